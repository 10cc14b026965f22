//! `ostler screen`: what a person would see on a job's terminal.

use ostler::Mode;
use ostler_proto::methods::JobScreen;
use ostler_proto::screen::{Back, Look};

use super::failure::Failure;
use super::output::Out;
use super::scope::{self, SessionArg};
use super::{completions, nearest, number};
use crate::exit;

/// Prints what a person would see on the terminal of a job that was started with --pty.
///
/// Also of a job that has ended: its last screen.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler screen t1
  ostler screen t1 --lines 200
  ostler screen t1 --lines 50 --back 50
  ostler screen t1 --json --colors | jq .cursor")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// The newest N lines instead, those that have left the screen included.
    #[arg(long, value_name = "N", value_parser = number::lines, allow_hyphen_values = true)]
    lines: Option<u64>,
    /// Leaves out so many newer lines.
    #[arg(long, value_name = "N", value_parser = number::offset, allow_hyphen_values = true, requires = "lines")]
    back: Option<u64>,
    /// Tells colours and the like as well.
    #[arg(long, requires = "json")]
    colors: bool,
    /// Prints text, cursor, title and modes as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Look {
        session: named.session,
        id: named.id,
        colors: args.colors,
        lines: args.lines.map(|count| Back {
            back: args.back.unwrap_or(0),
            count,
        }),
    };
    let client = scope::client(Mode::Use)?;
    let screen = match client.ask::<JobScreen>(params).await {
        Ok(screen) => screen,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&screen)?;
    } else {
        let rows = screen.lines.map_or(screen.rows, |lines| lines.text);
        let used = rows.iter().rposition(|row| !row.is_empty());
        for row in &rows[..used.map_or(0, |last| last + 1)] {
            out.line(row)?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}
