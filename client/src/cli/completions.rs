//! `ostler completions`, and what a shell asks for at each press of TAB: commands, flags, and the ids, names and
//! sessions that there are at this moment.
//!
//! The shell's script calls this program with [`VARIABLE`] set. Then nothing is started, nothing is said, and a
//! supervisor that does not answer at once has no ids: TAB must never make anybody wait.

use std::ffi::OsString;
use std::time::Duration;

use clap::ValueEnum;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{Bash, CompleteEnv, Elvish, EnvCompleter, Fish, Powershell, Zsh};
use ostler::{Client, Mode};
use ostler_proto::job::Row;
use ostler_proto::methods::{JobList, List};

use super::failure::Failure;
use super::labels::{self, Labels};
use super::output::Out;
use super::scope::{self, Scope, SessionArg};
use super::words;
use crate::exit;

/// Set by the script to the name of its shell.
const VARIABLE: &str = "OSTLER_COMPLETE";
/// All that a press of TAB may cost.
const PATIENCE: Duration = Duration::from_millis(300);

/// Prints the script that makes a shell complete commands, ids, names and sessions.
///
/// It asks the running supervisor and never starts one.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  source <(ostler completions bash)          in ~/.bashrc
  source <(ostler completions zsh)           in ~/.zshrc, after compinit
  ostler completions fish | source           in ~/.config/fish/config.fish
  eval (ostler completions elvish | slurp)   in ~/.config/elvish/rc.elv
  ostler completions powershell | Out-String | Invoke-Expression")]
pub(crate) struct Args {
    /// Which shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Shell {
    Bash,
    Zsh,
    Fish,
    Elvish,
    Powershell,
}

impl Shell {
    fn completer(self) -> &'static dyn EnvCompleter {
        match self {
            Self::Bash => &Bash,
            Self::Zsh => &Zsh,
            Self::Fish => &Fish,
            Self::Elvish => &Elvish,
            Self::Powershell => &Powershell,
        }
    }

    /// Returns the script, which calls `ostler` as the shell finds it.
    fn script(self) -> std::io::Result<Vec<u8>> {
        let mut script = Vec::new();
        self.completer()
            .write_registration(VARIABLE, "ostler", "ostler", "ostler", &mut script)?;
        Ok(script)
    }
}

pub(crate) fn run(args: &Args) -> Result<i32, Failure> {
    let script = args
        .shell
        .script()
        .map_err(|e| Failure::ours(format!("cannot make the script: {e}")))?;
    let mut out = Out::new();
    out.text(&String::from_utf8_lossy(&script))?;
    out.flush()?;
    Ok(exit::DONE)
}

/// Answers a shell if it is one that asks. Then nothing else is to be done.
pub(crate) fn answer(args: &[OsString], parser: fn() -> clap::Command) -> bool {
    if std::env::var_os(VARIABLE).is_none() {
        return false;
    }
    let here = std::env::current_dir().ok();
    CompleteEnv::with_factory(parser)
        .var(VARIABLE)
        .bin("ostler")
        .completer("ostler")
        .try_complete(args.iter().cloned(), here.as_deref())
        // What cannot be completed is not completed: words would land in the middle of a command line.
        .unwrap_or(true)
}

/// Completes jobs that live.
pub(crate) fn live() -> ArgValueCandidates {
    ArgValueCandidates::new(|| jobs(true))
}

/// Completes all jobs that are kept.
pub(crate) fn kept() -> ArgValueCandidates {
    ArgValueCandidates::new(|| jobs(false))
}

/// Completes sessions.
pub(crate) fn sessions() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        ask(async |client, scope| {
            let sessions = labels::sessions(&client).await?;
            let labels = Labels::of(&scope, &sessions);
            Ok(sessions
                .iter()
                .map(|s| CompletionCandidate::new(labels.session(s)))
                .collect())
        })
    })
}

/// Completes what can be waited for.
pub(crate) fn conditions() -> ArgValueCandidates {
    const ALL: [(&str, &str); 8] = [
        ("exit", "its end"),
        ("text=", "a line that matches: text=REGEX"),
        ("port", "any port on which it listens"),
        ("port=", "a port on which it listens: port=N"),
        ("tcp=", "an address that takes connections: tcp=HOST:PORT"),
        ("quiet=", "no output for a time: quiet=TIME"),
        ("prompt", "a shell at its prompt"),
        ("input", "a terminal whose program waits for input"),
    ];
    ArgValueCandidates::new(|| {
        ALL.iter()
            .map(|(what, help)| CompletionCandidate::new(what).help(Some((*help).into())))
            .collect()
    })
}

/// Completes signals.
pub(crate) fn signals() -> ArgValueCandidates {
    ArgValueCandidates::new(|| exit::signal_names().map(CompletionCandidate::new).collect())
}

fn jobs(live: bool) -> Vec<CompletionCandidate> {
    ask(async move |client, scope| {
        let list = List {
            session: scope.explicit.clone(),
            root: match scope.explicit {
                None => Some(scope.project.root_named()?),
                Some(_) => None,
            },
            live,
            ..List::default()
        };
        let rows = client.ask::<JobList>(list).await?.jobs;
        let labels = Labels::for_rows(&client, &scope, rows.iter()).await?;
        Ok(rows
            .iter()
            .flat_map(|row| candidates(row, &labels.job(row)))
            .collect())
    })
}

/// A job by its name, if it has one, and by its id.
fn candidates(row: &Row, label: &str) -> Vec<CompletionCandidate> {
    const HELP: usize = 60;
    let help = format!("{}: {}", words::state(row), words::command(row));
    let help = words::shortened(&words::clean(&help), HELP);
    let session = label.strip_suffix(&row.id).unwrap_or("");
    let name = row.name.iter().map(|name| format!("{session}{name}"));
    name.chain([label.to_owned()])
        .map(|text| CompletionCandidate::new(text).help(Some(help.clone().into())))
        .collect()
}

/// Asks a supervisor that is there and answers at once; without one there is nothing to complete.
fn ask(
    question: impl AsyncFnOnce(Client, Scope) -> Result<Vec<CompletionCandidate>, Failure>,
) -> Vec<CompletionCandidate> {
    let typed = session_of(std::env::args_os());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let Ok(runtime) = runtime else {
        return Vec::new();
    };
    let asked = async {
        let scope = SessionArg::of(typed).scope()?;
        question(scope::client(Mode::Look)?, scope).await
    };
    let found = runtime.block_on(async { tokio::time::timeout(PATIENCE, asked).await });
    runtime.shutdown_background();
    match found {
        Ok(Ok(found)) => found,
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Returns the session that the unfinished command line names.
fn session_of(words: impl Iterator<Item = OsString>) -> Option<String> {
    let mut words = words.filter_map(|word| word.into_string().ok());
    let mut found = None;
    while let Some(word) = words.next() {
        if word == "--session" {
            found = words.next();
        } else if let Some(session) = word.strip_prefix("--session=") {
            found = Some(session.to_owned());
        }
    }
    found.filter(|session| !session.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;

    /// The committed scripts are the generated ones. `UPDATE_COMPLETIONS=1` writes them.
    #[test]
    fn the_committed_scripts_are_the_generated_ones() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../contrib/completions");
        for (shell, file) in [
            (Shell::Bash, "ostler.bash"),
            (Shell::Zsh, "_ostler"),
            (Shell::Fish, "ostler.fish"),
            (Shell::Elvish, "ostler.elv"),
            (Shell::Powershell, "ostler.ps1"),
        ] {
            let path = format!("{folder}/{file}");
            let made = shell.script().unwrap();
            if std::env::var_os("UPDATE_COMPLETIONS").is_some() {
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(&path, &made).unwrap();
            }
            let committed = std::fs::read(&path).unwrap_or_default();
            assert!(
                made == committed,
                "{file} is old: run the tests of ostler once with UPDATE_COMPLETIONS=1"
            );
        }
    }

    #[test]
    fn a_job_is_offered_by_name_and_by_id() {
        let mut web = row("t1");
        web.name = Some("web".into());
        let texts = |label: &str| -> Vec<_> {
            let found = candidates(&web, label);
            found.iter().map(|c| c.get_value().to_owned()).collect()
        };
        assert_eq!(texts("t1"), ["web", "t1"]);
        assert_eq!(texts("app-2/t1"), ["app-2/web", "app-2/t1"]);
    }

    #[test]
    fn the_session_is_that_of_the_line_that_is_being_typed() {
        let of = |line: &str| session_of(line.split(' ').map(OsString::from));
        assert_eq!(of("ostler -- ostler stop "), None);
        assert_eq!(of("ostler -- ostler stop --session x "), Some("x".into()));
        assert_eq!(of("ostler -- ostler stop --session=x "), Some("x".into()));
        assert_eq!(of("ostler -- ostler stop --session "), None);
    }
}
