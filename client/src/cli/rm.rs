//! `ostler rm`: forgets jobs.

use ostler::{Client, Mode};
use ostler_proto::methods::{JobList, JobRelease, List, Target};
use ostler_proto::refusal::RefusalKind;

use super::failure::Failure;
use super::output::{Out, note};
use super::scope::{self, Scope, SessionArg};
use super::{completions, nearest, words};
use crate::exit;

/// Stops jobs that still run, then forgets them and their output. Twice is success.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler rm t1
  ostler rm t1 t2 web
  ostler rm --ended")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints one JSON answer a line.
    #[arg(long)]
    json: bool,
    /// All of the session that have ended, with nothing left of them.
    #[arg(long, conflicts_with = "ids")]
    ended: bool,
    /// Jobs: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID", required_unless_present = "ended")]
    ids: Vec<String>,
}

/// Process ids of the jobs that are over.
async fn ended(client: &Client, scope: &Scope) -> Result<Vec<String>, Failure> {
    let list = List {
        session: Some(scope.session()),
        ..List::default()
    };
    let jobs = match client.ask::<JobList>(list).await {
        Ok(table) => table.jobs,
        // Nothing was ever started in it.
        Err(ostler::Error::Refused(r)) if r.kind == RefusalKind::NotFound => Vec::new(),
        Err(e) => return Err(e.into()),
    };
    let over = jobs
        .into_iter()
        .filter(|j| j.outcome.is_some() && j.tree.left == 0);
    Ok(over.map(|j| j.process_id).collect())
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let mut out = Out::new();
    let mut worst: Option<Failure> = None;
    let ids = if args.ended {
        ended(&client, &scope).await?
    } else {
        args.ids.clone()
    };
    for text in &ids {
        let named = scope.target(text)?;
        let params = Target {
            session: named.session,
            id: named.id,
        };
        match client.ask::<JobRelease>(params).await {
            Ok(answer) if args.json => out.json(&answer)?,
            Ok(answer) if answer.row.is_none() => {
                if let Some(slip) = nearest::slip(&client, &scope, text).await {
                    if let Some(before) = worst.replace(slip) {
                        before.tell();
                    }
                    continue;
                }
                if args.quiet {
                    continue;
                }
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
