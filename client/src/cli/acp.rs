//! `ostler acp`.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::ValueHint;
use ostler_proto::acp::EnvVariable;

use super::failure::Failure;
use super::output::note;
use super::{caller, scope};
use crate::acp::{self, Surroundings};
use crate::exit;

/// Stands between an editor and an agent that speak the Agent Client Protocol, and has the terminals of the agent.
///
/// Put it before the agent's command where the editor is told how to start it. What the agent runs are then jobs: they
/// are listed and stopped like any others, end with their session to the last grandchild, and survive the
/// supervisor. The agent gets terminals also where the editor has none; the editor shows their output. Everything else passes
/// as it is. Ends when the editor or the agent does, with the exit code of the agent.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler acp -- kimi acp
  ostler acp -- npx some-agent --acp

In an editor that is told command and arguments: command \"ostler\", arguments \"acp\", \"--\" and
those of the agent. ostler ls shows what it runs, each of its sessions as AGENT-123abc.")]
pub(crate) struct Args {
    /// The agent and its arguments.
    #[arg(
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments,
        value_name = "AGENT",
        required = true
    )]
    agent: Vec<OsString>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let (program, rest) = args
        .agent
        .split_first()
        .ok_or_else(|| Failure::usage("no agent is named"))?;
    let mut agent = Command::new(program);
    agent.args(rest);
    let around = surroundings(Path::new(program))?;
    let tell = |what: &str| note(&format!("note: {what}"));
    acp::run(agent, around, tell)
        .await
        .map_err(|error| failure(program, &error))
}

fn surroundings(program: &Path) -> Result<Surroundings, Failure> {
    let mut options = scope::options(ostler::Mode::Start)?;
    // Its sessions are its own: it needs to see no others.
    options.owner = false;
    options.name = format!("ostler acp {}", ostler_proto::VERSION);
    Ok(Surroundings {
        options,
        name: acp::name_of(program),
        env: environment(),
        umask: caller::umask(),
        limits: caller::limits(),
    })
}

/// Our environment, as far as it is text: what is none cannot be said to the supervisor.
fn environment() -> Vec<EnvVariable> {
    let text = |(name, value): (OsString, OsString)| {
        Some(EnvVariable::new(
            name.into_string().ok()?,
            value.into_string().ok()?,
        ))
    };
    std::env::vars_os().filter_map(text).collect()
}

fn failure(program: &OsString, error: &io::Error) -> Failure {
    let program = program.to_string_lossy();
    let (code, what) = match error.kind() {
        io::ErrorKind::NotFound => (exit::NOT_FOUND, format!("no program \"{program}\"")),
        _ => (exit::NOT_EXECUTABLE, format!("{program}: {error}")),
    };
    Failure {
        code,
        ..Failure::ours(what).hint("ostler acp -- AGENT [ARGUMENTS]")
    }
}
