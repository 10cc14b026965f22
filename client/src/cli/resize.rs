//! `ostler resize`: another window for a job's terminal.

use ostler::Mode;
use ostler_proto::job::Size;
use ostler_proto::methods::{JobResize, Resize};

use super::completions;
use super::failure::Failure;
use super::nearest;
use super::output::Out;
use super::scope::{self, SessionArg};
use super::size;
use crate::exit;

/// Gives the terminal of a job that was started with --pty another size.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler resize t1 120x40")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints the row as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// Columns and lines.
    #[arg(value_name = "COLSxROWS", value_parser = size::size)]
    size: Size,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Resize {
        session: named.session,
        id: named.id,
        rows: args.size.rows,
        cols: args.size.cols,
        seat: None,
    };
    let client = scope::client(Mode::Use)?;
    let row = match client.ask::<JobResize>(params).await {
        Ok(row) => row,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    if args.json {
        let mut out = Out::new();
        out.json(&row)?;
        out.flush()?;
    }
    Ok(exit::DONE)
}
