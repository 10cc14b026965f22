//! `ostler start`: a job in the background.

use ostler_proto::agent::RegisterAgent;
use ostler_proto::job::{Outcome, Size, State};
use ostler_proto::methods::{AgentRegister, JobStart, Start};

use super::failure::Failure;
use super::output::Out;
use super::request::JobArgs;
use super::{size, slow, table, words};
use crate::exit;

/// Starts a command in the background and prints its id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler start --name web -- npm run dev
  ostler start -c 'while sleep 60; do make sync; done'
  id=$(ostler start --stdin -- bc) && ostler send \"$id\" '1+1' --enter
  ostler start --pty=120x40 -- python3
  ostler start --agent --name reviewer -- sh -c 'ostler start -- make; cat notes'")]
pub(crate) struct Args {
    /// Prints the whole row as JSON.
    #[arg(long)]
    json: bool,
    /// Prints the id only, and does not say that it made a session.
    #[arg(short, long)]
    quiet: bool,
    /// Gives the job a terminal of this size [default: that of this terminal, else 80x24]. It is its input as well.
    #[arg(
        long,
        value_name = "COLSxROWS",
        value_parser = size::size,
        num_args = 0..=1,
        require_equals = true,
        conflicts_with = "stdin"
    )]
    pty: Option<Option<Size>>,
    /// Makes it a sub-agent, a1: it has a session of its own, which it finds in OSTLER_SESSION; what it starts there
    /// outlives it and goes to this session.
    #[arg(long)]
    agent: bool,
    #[command(flatten)]
    job: JobArgs,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.job.session.scope()?;
    let mut request = args.job.request()?;
    request.pty = args.pty.map(|size| size.unwrap_or_else(table::window));
    let client = scope.opening_client(args.quiet).await?;
    let row = if args.agent {
        let registered = client.ask::<AgentRegister>(as_agent(request)).await?;
        registered.row
    } else {
        client.ask::<JobStart>(request).await?
    };
    let print = || {
        let mut out = Out::new();
        if args.json {
            out.json(&row)?;
        } else {
            out.line(&row.id)?;
        }
        out.flush()
    };
    // Without its id nobody would find again what runs now.
    print().map_err(|f| {
        let id = scope.pasted(&row.id);
        f.cause(format!("{id} was started"))
            .hint(format!("ostler stop {id}"))
    })?;
    if row.state == State::Starting {
        slow::tell_starting(&scope.pasted(&row.id));
    }
    match row.outcome {
        Some(Outcome::SpawnFailed | Outcome::SandboxFailed) => Err(words::never_ran(&row)),
        // A short job may be over by now; it was started, which is what was asked.
        _ => Ok(exit::DONE),
    }
}

/// The same program as a sub-agent.
fn as_agent(mut start: Start) -> RegisterAgent {
    RegisterAgent {
        session: start.session.take(),
        key: start.key.take(),
        name: start.name.take(),
        start: Some(Box::new(start)),
        ..RegisterAgent::default()
    }
}
