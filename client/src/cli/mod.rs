//! The command line: one file a command, each with its arguments and what it does with them.
//!
//! Translation only: a command turns flags into one request and an answer into words. It never looks into the
//! supervisor and keeps no state of its own.

mod acp;
mod attach;
mod caller;
mod completions;
mod config;
mod detach;
mod doctor;
mod duration;
mod failure;
mod interrupts;
mod keys;
mod labels;
mod left;
mod live;
mod ls;
mod lsp;
mod man;
mod mcp;
mod nearest;
mod number;
mod one;
mod output;
mod pattern;
mod raw;
mod read;
mod request;
mod resize;
mod rm;
mod run;
mod scope;
mod screen;
mod seat;
mod send;
mod session;
mod shell;
mod show;
mod signal;
mod size;
mod slow;
mod start;
mod stop;
mod table;
mod tail;
mod upgrade;
mod wait;
mod words;

pub(crate) mod daemon;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use ostler::Client;
use ostler_proto::methods::Method;
use ostler_proto::refusal::RefusalKind;

use self::failure::Failure;
/// Runs commands in the background and keeps hold of them, to the last grandchild.
#[derive(Parser, Debug)]
#[command(
    name = "ostler",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  ostler run -- cargo test          run in the foreground, keep the output
  ostler start --name web -- npm run dev
  ostler wait web --for port=5173 --timeout 30s
  ostler tail -f web
  ostler stop --all

Exit codes: the job's own for run, wait and tail -f; 124 time limit, 125 refused or failed,
126 not executable, 127 not found, 2 wrong use, 130 Ctrl-C."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Run(run::Args),
    Start(start::Args),
    Ls(ls::Args),
    Show(show::Args),
    Read(read::Args),
    Tail(tail::Args),
    Wait(wait::Args),
    Stop(stop::Args),
    Rm(rm::Args),
    Send(send::Args),
    Attach(attach::Args),
    Keys(keys::Args),
    Screen(screen::Args),
    Signal(signal::Args),
    Resize(resize::Args),
    Detach(detach::Args),
    Acp(acp::Args),
    #[command(subcommand)]
    Shell(shell::Command),
    #[command(subcommand)]
    Session(session::Command),
    #[command(subcommand)]
    Daemon(daemon::Command),
    Mcp(mcp::Args),
    #[command(subcommand)]
    Config(config::Command),
    Lsp(lsp::Args),
    Doctor(doctor::Args),
    Completions(completions::Args),
}

/// Parses, runs, tells, and returns the code. Wrong use ends the process inside the parser, with code 2.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    if completions::answer(&args, Cli::command) {
        return ExitCode::SUCCESS;
    }
    let command = Cli::parse_from(args).command;
    config::apply();
    if let Command::Daemon(daemon::Command::Run) = command {
        // The keeper must find a process without a runtime.
        return daemon::run();
    }
    let ended = match command {
        Command::Daemon(daemon::Command::Stop(_)) => block_on(slow::beside(dispatch(command))),
        // A front end lives as long as its editor.
        Command::Acp(_) => block_on(dispatch(command)),
        // They look for themselves.
        Command::Daemon(_) | Command::Config(_) | Command::Doctor(_) | Command::Completions(_) => {
            block_on(dispatch(command))
        }
        // An editor waits for ever, and shows what is said here as a fault.
        Command::Lsp(_) => block_on(dispatch(command)),
        _ => block_on(slow::beside(dispatch(command))),
    };
    let code = match ended {
        Ok(code) => code,
        Err(failure) => {
            failure.tell();
            failure.code
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

async fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Start(args) => start::run(args).await,
        Command::Ls(args) => ls::run(args).await,
        Command::Show(args) => show::run(args).await,
        Command::Read(args) => read::run(args).await,
        Command::Tail(args) => tail::run(args).await,
        Command::Wait(args) => wait::run(args).await,
        Command::Stop(args) => stop::run(args).await,
        Command::Rm(args) => rm::run(args).await,
        Command::Send(args) => send::run(args).await,
        Command::Attach(args) => attach::run(args).await,
        Command::Keys(args) => keys::run(args).await,
        Command::Screen(args) => screen::run(args).await,
        Command::Signal(args) => signal::run(args).await,
        Command::Resize(args) => resize::run(args).await,
        Command::Detach(args) => detach::run(args).await,
        Command::Acp(args) => acp::run(args).await,
        Command::Shell(command) => shell::run(command).await,
        Command::Session(command) => session::run(command).await,
        Command::Daemon(command) => daemon::dispatch(command).await,
        Command::Mcp(args) => Box::pin(mcp::run(args)).await,
        Command::Config(command) => config::run(command),
        Command::Lsp(args) => lsp::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Completions(args) => completions::run(&args),
    }
}

/// Descriptors that a runtime, its signals and a connection need; without them the libraries below panic.
const DESCRIPTORS: usize = 12;

fn enough_descriptors() -> Result<(), Failure> {
    let opened: Result<Vec<_>, _> = (0..DESCRIPTORS)
        .map(|_| std::fs::File::open("/dev/null"))
        .collect();
    opened.map(drop).map_err(|error| {
        Failure::ours(format!("too few descriptors to work with: {error}"))
            .hint("raise the limit: ulimit -n 64")
    })
}

fn block_on(command: impl Future<Output = Result<i32, Failure>>) -> Result<i32, Failure> {
    enough_descriptors()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|e| Failure::ours(format!("no event loop: {e}")))?;
    let result = runtime.block_on(command);
    // A thread that waits for a reader of our output or for input must not keep us.
    runtime.shutdown_background();
    result
}

/// Tells whether the failure is that no supervisor runs, for commands to which that is an answer.
fn nobody(error: &ostler::Error) -> bool {
    matches!(error, ostler::Error::Unavailable(why) if matches!(**why, ostler::Unavailable::NotRunning))
}

/// Asks about a whole session if a supervisor runs, and says so if it is of another build. A session that does
/// not exist is as empty as a house that does not stand.
async fn ask_if_any<M: Method>(
    client: &Client,
    params: M::Params,
) -> Result<Option<M::Result>, Failure> {
    match client.ask::<M>(params).await {
        Ok(answer) => {
            upgrade::meet(client).await?;
            Ok(Some(answer))
        }
        Err(e) if nobody(&e) => {
            left::tell();
            Ok(None)
        }
        Err(ostler::Error::Refused(r)) if r.kind == RefusalKind::NotFound => Ok(None),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit;
    #[test]
    fn the_parser_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_examples_in_its_help() {
        fn check(command: &clap::Command) {
            for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
                if sub.has_subcommands() {
                    check(sub);
                    continue;
                }
                let help = sub.get_after_help().map(ToString::to_string);
                assert!(
                    help.is_some_and(|h| h.contains("ostler ")),
                    "{} has no examples",
                    sub.get_name()
                );
            }
        }
        check(&Cli::command());
    }

    #[test]
    fn a_slip_of_the_pen_gets_a_suggestion_and_code_2() {
        let e = Cli::try_parse_from(["ostler", "strat"]).unwrap_err();
        assert_eq!(e.exit_code(), exit::USAGE);
        assert!(e.to_string().contains("start"), "{e}");
    }
}
