//! `ostler acp`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;

use clap::ValueHint;

use super::failure::Failure;
use super::output::note;
use super::{caller, scope};
use crate::acp::{self, Surroundings};
use crate::exit;
use crate::secret::inherited;

/// Stands between an editor and an agent that speak the Agent Client Protocol, and has the terminals of the agent.
///
/// Put it before the agent's command where the editor is told how to start it. What the agent runs are then jobs: they
/// are listed and stopped like any others, end with their session to the last grandchild, and survive the
/// supervisor. The agent gets terminals also where the editor has none; the editor shows their output. Everything else passes
/// as it is. Ends when the editor or the agent does, with the exit code of the agent.
///
/// Terminals have the environment of the editor, without variables whose names look like secrets (KEY, PASSWORD, SECRET, TOKEN)
/// unless --pass names them or the agent sets them; the agent itself has all of them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler acp -- kimi acp
  ostler acp --pass GITHUB_TOKEN -- npx some-agent --acp

In an editor that is told command and arguments: command \"ostler\", arguments \"acp\", \"--\" and
those of the agent. ostler ls shows what it runs, each of its sessions as AGENT-123abc.")]
pub(crate) struct Args {
    /// Hands on this variable to terminals although its name looks like a secret. May be repeated.
    #[arg(long, value_name = "NAME")]
    pass: Vec<String>,
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
    let around = surroundings(Path::new(program), &args.pass)?;
    let tell = |what: &str| note(&format!("note: {what}"));
    acp::run(agent, around, tell)
        .await
        .map_err(|error| failure(program, &error))
}

fn surroundings(program: &Path, pass: &[String]) -> Result<Surroundings, Failure> {
    let mut options = scope::options(ostler::Mode::Start)?;
    // Its sessions are its own: it needs to see no others.
    options.owner = false;
    options.name = format!("ostler acp {}", ostler_proto::VERSION);
    Ok(Surroundings {
        options,
        name: acp::name_of(program),
        env: environment(std::env::vars_os(), pass),
        umask: caller::umask(),
        limits: caller::limits(),
    })
}

/// The editor's variables, as far as terminals may have them. An editor that was started with next to nothing has
/// terminals with a login environment.
fn environment(
    vars: impl Iterator<Item = (OsString, OsString)>,
    pass: &[String],
) -> Option<BTreeMap<String, Option<String>>> {
    let variables = inherited(vars, pass);
    variables.contains_key("PATH").then_some(variables)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_withheld_unless_it_is_passed() {
        let vars = [
            ("PATH", "/bin"),
            ("A_TOKEN", "x"),
            ("api_key", "y"),
            ("LANG", "C"),
        ];
        let env = |pass: &[String]| {
            let vars = vars.map(|(n, v)| (n.into(), v.into()));
            let variables = environment(vars.into_iter(), pass).unwrap();
            let given = variables.into_iter().filter(|(_, value)| value.is_some());
            given.map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(env(&[]), ["LANG", "PATH"]);
        assert_eq!(env(&["A_TOKEN".into()]), ["A_TOKEN", "LANG", "PATH"]);
        let nothing = [("LANG".into(), "C".into())];
        assert!(environment(nothing.into_iter(), &[]).is_none());
    }
}
