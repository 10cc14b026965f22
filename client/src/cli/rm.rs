//! `ostler rm`: forgets jobs.

use ostler::{Client, Mode};
use ostler_proto::methods::{JobList, JobRelease, List, Method, Released, Target};
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
    let ids = if args.ended {
        ended(&client, &scope).await?
    } else {
        args.ids.clone()
    };
    let say = Say {
        thing: "job",
        verb: "forget",
        json: args.json,
        quiet: args.quiet,
    };
    forget::<JobRelease>(&client, &scope, &ids, &say).await
}

/// How it is told that things were forgotten.
pub(crate) struct Say {
    pub(crate) thing: &'static str,
    pub(crate) verb: &'static str,
    pub(crate) json: bool,
    pub(crate) quiet: bool,
}

/// Forgets things one after another. One that is refused keeps no other from being forgotten.
pub(crate) async fn forget<M>(
    client: &Client,
    scope: &Scope,
    ids: &[String],
    say: &Say,
) -> Result<i32, Failure>
where
    M: Method<Params = Target, Result = Released>,
{
    let mut out = Out::new();
    let mut worst: Option<Failure> = None;
    for text in ids {
        let named = scope.target(text)?;
        let params = Target {
            session: named.session,
            id: named.id,
        };
        let failure = match client.ask::<M>(params).await {
            Ok(answer) => {
                let slip = match answer.row {
                    None => nearest::slip(client, scope, text).await,
                    Some(_) => None,
                };
                if slip.is_none() && say.json {
                    out.json(&answer)?;
                } else if slip.is_none() && answer.row.is_none() && !say.quiet {
                    let (thing, verb, id) = (say.thing, say.verb, scope.placed(text));
                    note(&words::clean(&format!(
                        "note: no {thing} {id}; nothing to {verb}"
                    )));
                }
                slip
            }
            Err(e @ ostler::Error::Refused(_)) => {
                Some(nearest::explained(client, scope, text, e).await)
            }
            Err(e) => return Err(e.into()),
        };
        if let Some(before) = failure.and_then(|f| worst.replace(f)) {
            before.tell();
        }
    }
    out.flush()?;
    worst.map_or(Ok(exit::DONE), Err)
}
