//! `ostler shell exec`.

use std::io::Read as _;

use base64::Engine as _;
use ostler::{Client, Mode};
use ostler_proto::methods::{JobSignal, Reason, ShellExec, SignalJob};
use ostler_proto::shell::{Exec, Executed};

use super::{begun, stands};
use crate::cli::failure::Failure;
use crate::cli::interrupts::Interrupts;
use crate::cli::output::{Out, Pour, note};
use crate::cli::scope::{self, Scope, SessionArg};
use crate::cli::{completions, duration, nearest, words};
use crate::exit;

/// Output up to this is printed whole.
const WHOLE: u64 = 16 * 1024 * 1024;

/// Runs one command line in a shell: prints exactly its output and passes its exit code.
///
/// Ctrl-C once interrupts the line, a second time leaves it running.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell exec s1 'cd /tmp && ls'
  ostler shell exec s1 --timeout 30s 'sleep 1; date'
  ostler shell exec s1 -- ls -la
  ostler shell exec build - <script.sh
  ostler shell exec s1 --inline hostname
  ostler shell exec s1 --background make")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Stops waiting after this time; the line goes on.
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Waits on when the line asks for input, instead of saying so.
    #[arg(long)]
    through: bool,
    /// Runs it in whatever POSIX shell is in front: one inside the shell, over ssh, of another user.
    #[arg(long)]
    inline: bool,
    /// Prints the id of a job that stands for the line, and leaves: read it, wait for it, stop it. The line is
    /// interrupted when the time of --timeout is over.
    #[arg(short, long, conflicts_with = "through")]
    background: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Says nothing of its own.
    #[arg(short, long)]
    quiet: bool,
    /// Shell: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// What to run; several words are joined by blanks, - reads it from standard input.
    #[arg(required = true, value_name = "LINE")]
    line: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let line = text(&args.line)?;
    let params = Exec {
        session: named.session.clone(),
        id: named.id.clone(),
        line,
        timeout_ms: args.timeout,
        max: Some(if args.json { JSON } else { WHOLE }),
        raw: !args.json,
        through: args.through,
        inline: args.inline,
        background: args.background,
    };
    let interrupt = SignalJob {
        session: named.session,
        id: named.id,
        signal: "SIGINT".into(),
    };
    let mut interrupts = Interrupts::new()?;
    let client = scope::client(Mode::Use)?;
    // Never asked twice: a line must not run twice.
    let executed = tokio::select! {
        executed = client.call::<ShellExec>(params) => executed,
        failure = interrupted(&client, &mut interrupts, interrupt) => return Err(failure),
    };
    let executed = match executed {
        Ok(executed) => executed,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    if args.json {
        let mut out = Out::new();
        out.json(&executed)?;
        out.flush()?;
    }
    if let Some(job) = &executed.job {
        return begun(job, &args.id, args.json);
    }
    if !args.json {
        print(&executed, &scope.pasted(&args.id)).await?;
    }
    code(&executed, &scope, &args)
}

/// A result in JSON is for somebody who reads it: long output as head and tail.
const JSON: u64 = 50 * 1024;

fn text(words: &[String]) -> Result<String, Failure> {
    if let [only] = words
        && only == "-"
    {
        let mut text = String::new();
        std::io::stdin()
            .read_to_string(&mut text)
            .map_err(|e| Failure::ours(format!("the input cannot be read: {e}")))?;
        return Ok(text);
    }
    Ok(words.join(" "))
}

/// Ctrl-C; returns how to leave when that is wanted.
async fn interrupted(client: &Client, interrupts: &mut Interrupts, signal: SignalJob) -> Failure {
    interrupts.next().await;
    let asked = client.clone();
    let id = signal.id.clone();
    // In its own task: the next Ctrl-C must not wait for the answer to this one.
    tokio::spawn(async move { asked.call::<JobSignal>(signal).await });
    interrupts.next().await;
    note(&words::clean(&format!("the line goes on in {id}")));
    Failure::quiet(exit::INTERRUPTED)
}

async fn print(executed: &Executed, id: &str) -> Result<(), Failure> {
    let decode = |text: &str| base64::engine::general_purpose::STANDARD.decode(text);
    let bytes = decode(executed.base64.as_deref().unwrap_or_default())
        .map_err(|e| Failure::ours(format!("the supervisor answered what is no base64: {e}")))?;
    let out = Pour::stdout();
    out.write(&bytes).await?;
    if executed.truncated {
        out.write(executed.tail.as_bytes()).await?;
        note(&format!(
            "note: only begin and end of {}; all: ostler read {id} --since {} --max 1M",
            words::size(executed.next - executed.from),
            executed.from
        ));
    }
    if executed.lost > 0 {
        note(&format!(
            "note: {} of it are lost",
            words::bytes(executed.lost)
        ));
    }
    Ok(())
}

fn code(executed: &Executed, scope: &Scope, args: &Args) -> Result<i32, Failure> {
    let id = scope.pasted(&args.id);
    let words = stands(&id, &executed.row, executed.reason);
    match executed.reason {
        Reason::Prompt => {
            if executed.shared && !args.quiet {
                note(&format!("note: somebody else typed in {id} meanwhile"));
            }
            executed.exit_code.ok_or_else(|| {
                Failure::ours("the line has ended, but its shell did not tell its code")
            })
        }
        Reason::WaitOver => Err(Failure {
            code: exit::TIMED_OUT,
            ..Failure::ours(words)
        }
        .hint(format!(
            "ostler shell send {id} waits on; ostler signal {id} INT interrupts"
        ))),
        Reason::InputWait => Err(Failure::ours(words).hint(format!(
            "ostler shell send {id} TEXT --enter; ostler signal {id} INT interrupts"
        ))),
        _ => {
            if !args.quiet {
                note(&words);
            }
            Ok(exit::of_row(&executed.row))
        }
    }
}
