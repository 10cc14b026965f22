//! `ostler mcp`: the tools of an agent.

use std::path::PathBuf;

use clap::ValueEnum;
use ostler::Mode;
use ostler_proto::limits;

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::left::{self, Left};
use super::output::{Out, note};
use super::scope::{self, SessionArg};
use super::{caller, request};
use crate::exit;
use crate::mcp::{self, End, Heritage, Options, Set, client_config};
use crate::secret::inherited;

/// Serves an agent over standard input and output as an MCP server.
///
/// Its tools run commands, keep them in the background, read them, type into them and stop them. Each agent has a session
/// of its own, which ends half a minute after it; a restarted one goes on where it was.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  claude mcp add ostler -- ostler mcp
  codex mcp add ostler -- ostler mcp
  gemini mcp add ostler ostler mcp
  ostler mcp --print-config opencode        what to put into opencode.json
  ostler mcp --print-config json            for every client that reads mcpServers
  ostler mcp --session app                  the session that `ostler ls --session app` shows")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Which tools.
    #[arg(long, value_enum, default_value_t = Tools::Compact)]
    tools: Tools,
    /// Longest wait of one call, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = limits::TOOL_WAIT / 1_000, value_parser = clap::value_parser!(u64).range(1..=limits::TOOL_WAIT_MAX / 1_000))]
    max_wait: u64,
    /// Bytes of the largest result, at least 64.
    #[arg(long, value_name = "BYTES", default_value_t = limits::TOOL_RESULT as u64, value_parser = clap::value_parser!(u64).range(limits::TOOL_RESULT_LEAST as u64..))]
    max_result: u64,
    /// Ends the session with its client: every job is stopped, and what became of all is told on standard error, as JSON.
    #[arg(long)]
    headless: bool,
    /// Prints what makes this client start it, and ends.
    #[arg(long, value_enum, value_name = "CLIENT")]
    print_config: Option<Client>,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Tools {
    /// Four tools: run, output, input, stop.
    Compact,
    /// Ten: terminal, task_list and others, shell_open and others.
    Epoch,
    /// Ten: bash, job_output and others, terminal_open and others.
    Dsh,
    /// The same with task_output, task_list and task_kill.
    DshOld,
}

#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Claude,
    Codex,
    Gemini,
    Opencode,
    Json,
}

impl Tools {
    fn set(self) -> Set {
        match self {
            Self::Compact => Set::Compact,
            Self::Epoch => Set::Epoch,
            Self::Dsh => Set::Dsh,
            Self::DshOld => Set::DshOld,
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    if let Some(client) = args.print_config {
        return print(&args, client);
    }
    let here = PathBuf::from(request::directory(None)?);
    let options = Options {
        set: args.tools.set(),
        session: args.session.scope()?.explicit,
        here,
        // Our own image, also after its file was replaced by a newer one.
        program: PathBuf::from("/proc/self/exe"),
        heritage: Heritage {
            env: inherited(std::env::vars_os(), &[]),
            umask: caller::umask(),
            limits: caller::limits(),
        },
        max_result: usize::try_from(args.max_result).unwrap_or(usize::MAX),
        max_wait: args.max_wait * 1_000,
        headless: args.headless,
    };
    // An agent that goes on later finds its jobs; one that does not must not leave them to their lease.
    let mut interrupts = if args.headless {
        Interrupts::of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?
    } else {
        Interrupts::none()
    };
    let mut signal = None;
    let serving = mcp::serve(options, async || signal = Some(interrupts.next().await));
    let end = Box::pin(serving)
        .await
        .map_err(|e| Failure::ours(format!("the tools cannot be listed: {e}")))?;
    let unknown = |failure: Failure| Failure {
        what: format!("what became of the jobs is not known: {}", failure.what),
        ..failure
    };
    // Standard output is the client's, to the end.
    match end {
        End::Left => {}
        End::Closed(closed) => {
            end_remains().await?;
            note(&serde_json::json!(closed).to_string());
        }
        End::Unknown(error) => return Err(unknown(error.into())),
        End::Silent(time) => {
            let what = format!("no answer for {} s", time.as_secs());
            let hint =
                "ostler daemon status says who does not answer; the session ends when that goes on";
            return Err(unknown(Failure::ours(what).hint(hint)));
        }
    }
    Ok(signal.map_or(exit::DONE, exit::of_signal))
}

/// Ends what a house has left that was killed as a whole: the next one does that before it answers.
async fn end_remains() -> Result<(), Failure> {
    if left::behind() == Left::Jobs {
        scope::client(Mode::Start)?.hello().await?;
    }
    Ok(())
}

fn print(args: &Args, client: Client) -> Result<i32, Failure> {
    let client = match client {
        Client::Claude => client_config::For::Claude,
        Client::Codex => client_config::For::Codex,
        Client::Gemini => client_config::For::Gemini,
        Client::Opencode => client_config::For::Opencode,
        Client::Json => client_config::For::Json,
    };
    let mut words = vec!["mcp".to_owned()];
    if let Some(session) = args.session.named() {
        words.extend(["--session".into(), session.into()]);
    }
    if args.tools != Tools::Compact
        && let Some(tools) = args.tools.to_possible_value()
    {
        words.extend(["--tools".into(), tools.get_name().into()]);
    }
    if args.max_wait * 1_000 != limits::TOOL_WAIT {
        words.extend(["--max-wait".into(), args.max_wait.to_string()]);
    }
    if args.headless {
        words.push("--headless".into());
    }
    if args.max_result != limits::TOOL_RESULT as u64 {
        words.extend(["--max-result".into(), args.max_result.to_string()]);
    }
    let mut out = Out::new();
    out.text(&client_config::text(client, "ostler", &words))?;
    out.flush()?;
    Ok(exit::DONE)
}
