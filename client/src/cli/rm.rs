//! `ostler rm`: forgets jobs.

use ostler::Mode;
use ostler_proto::methods::{JobRelease, Target};

use super::failure::Failure;
use super::output::{Out, note};
use super::scope::{self, SessionArg};
use super::{completions, nearest, words};
use crate::exit;

/// Stops jobs that still run, then forgets them and their output. Twice is success.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler rm t1
  ostler rm t1 t2 web")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints one JSON answer a line.
    #[arg(long)]
    json: bool,
    /// Jobs: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID", required = true)]
    ids: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let mut out = Out::new();
    let mut worst: Option<Failure> = None;
    for text in &args.ids {
        let named = scope.target(text)?;
        let params = Target {
            session: named.session,
            id: named.id,
        };
        match client.ask::<JobRelease>(params).await {
            Ok(answer) if args.json => out.json(&answer)?,
            Ok(answer) if answer.row.is_none() && !args.quiet => {
                note(&words::clean(&format!(
                    "note: no job {}; nothing to forget",
                    scope.placed(text)
                )));
            }
            Ok(_) => {}
            // One that is refused keeps no other from being forgotten.
            Err(e @ ostler::Error::Refused(_)) => {
                let failure = nearest::explained(&client, &scope, text, e).await;
                if let Some(before) = worst.replace(failure) {
                    before.tell();
                }
            }
            Err(e) => return Err(e.into()),
        }
    }
    out.flush()?;
    worst.map_or(Ok(exit::DONE), Err)
}
