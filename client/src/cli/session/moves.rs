//! `ostler session rename` and `adopt`: jobs under another name, or with another owner.

use std::path::Path;

use ostler::Mode;
use ostler_proto::id;
use ostler_proto::methods::{
    AdoptSession, MovedSession, Nothing, RenameSession, SessionAdopt, SessionList, SessionRename,
    SessionRow,
};

use crate::cli::failure::Failure;
use crate::cli::labels::{self, Labels};
use crate::cli::output::{self, Out, note};
use crate::cli::scope::{self, SessionArg};
use crate::cli::{completions, words};
use crate::exit;

/// Gives a session another id. Onto one that exists, its jobs are adopted by that. Prints the new id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session rename claude-7k2 claude-9qd")]
pub(crate) struct Rename {
    /// Id, unique prefix or name.
    #[arg(value_name = "SESSION", add = completions::sessions())]
    session: String,
    /// Its new id.
    #[arg(value_name = "NEW", add = completions::sessions())]
    to: String,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Takes over all jobs of a session, which then is no more. Says their new ids; the old ones stay valid.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session adopt claude-7k2
  ostler session adopt claude-7k2 --into claude-9qd")]
pub(crate) struct Adopt {
    /// Id, unique prefix or name of the session whose jobs are taken.
    #[arg(value_name = "SESSION", add = completions::sessions())]
    session: String,
    /// Who gets them [default: the session of this project].
    #[arg(long, value_name = "SESSION", add = completions::sessions())]
    into: Option<String>,
    /// Prints the new ids only.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub(super) async fn rename(args: Rename) -> Result<i32, Failure> {
    let client = scope::client(Mode::Use)?;
    let before = client.ask::<SessionList>(Nothing {}).await?.sessions;
    let params = RenameSession {
        session: Some(args.session),
        to: args.to,
    };
    let moved = client.ask::<SessionRename>(params).await?;
    let mut out = Out::new();
    if args.json {
        out.json(&moved)?;
    } else {
        out.line(&moved.session.id)?;
    }
    out.flush()?;
    let after = client.ask::<SessionList>(Nothing {}).await?.sessions;
    // What is not there any more under its id.
    let gone = before
        .iter()
        .find(|b| after.iter().all(|a| a.session.id != b.session.id));
    if let Some(root) = gone.and_then(root_of_project) {
        note(&words::clean(&format!(
            "note: a start in {root} makes a new session; with --session {} it goes on in this one",
            moved.session.id
        )));
    }
    Ok(exit::DONE)
}

/// The folder whose session it is without anybody naming it.
fn root_of_project(row: &SessionRow) -> Option<&str> {
    let root = row.root.as_deref()?;
    let folder = Path::new(root).file_name().unwrap_or_default();
    let (id, _) = id::session_of_root(&folder.to_string_lossy(), root.as_bytes());
    (id == row.session.id).then_some(root)
}

pub(super) async fn adopt(args: Adopt) -> Result<i32, Failure> {
    let client = scope::client(Mode::Use)?;
    let into = match args.into {
        Some(into) => into,
        // The session of a project need not exist yet: whoever adopts wants it to.
        None => {
            let scope = SessionArg::default().scope()?;
            let open = scope.named(&client).await?;
            client.open_session(open).await?.session.id
        }
    };
    let params = AdoptSession {
        session: args.session,
        into: Some(into),
    };
    let moved = client.ask::<SessionAdopt>(params).await?;
    if args.json {
        output::json(&moved)?;
        return Ok(exit::DONE);
    }
    let sessions = labels::sessions(&client).await.unwrap_or_default();
    let scope = SessionArg::default().scope()?;
    tell(&moved, &Labels::of(&scope, &sessions), args.quiet)?;
    Ok(exit::DONE)
}

/// Prints the new ids as they can be typed here.
fn tell(moved: &MovedSession, labels: &Labels, quiet: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    for job in &moved.jobs {
        let to = labels.id(&moved.session, &job.to);
        if quiet {
            out.line(&to)?;
        } else {
            out.line(&format!("{} is now {to}", job.from))?;
        }
    }
    out.flush()
}
