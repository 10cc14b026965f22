//! `ostler shell exec`.

use std::io::IsTerminal as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler::{Client, Error, Mode};
use ostler_proto::limits;
use ostler_proto::methods::{JobRead, JobSignal, Read, Reason, SignalJob};
use ostler_proto::shell::{Exec, Executed};

use super::{begun, stands};
use crate::cli::failure::Failure;
use crate::cli::interrupts::Interrupts;
use crate::cli::output::{self, Out, Pour, note};
use crate::cli::scope::{self, Scope, SessionArg};
use crate::cli::{caller, completions, duration, nearest, words};
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
        key: None,
    };
    let interrupt = SignalJob {
        session: named.session,
        id: named.id,
        signal: "SIGINT".into(),
    };
    let mut interrupts = Interrupts::new()?;
    let client = scope::client(Mode::Use)?;
    let executed = tokio::select! {
        executed = client.exec(params) => executed,
        failure = interrupted(&client, &mut interrupts, interrupt) => return Err(failure),
    };
    let executed = match executed {
        Ok(executed) => executed,
        Err(Error::Broken(cause)) => {
            let id = scope.pasted(&args.id);
            return Err(Failure::from(Error::Broken(cause)).hint(format!(
                "a line that had begun goes on in {id}: ostler shell send {id} waits for it and tells its code"
            )));
        }
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
        let id = scope.pasted(&args.id);
        if is_full_screen(&executed) && std::io::stdout().is_terminal() {
            return Err(
                Failure::ours(format!("a full-screen program runs in {id}")).hint(format!(
                    "ostler attach {id}; ostler screen {id}; ostler keys {id} KEY"
                )),
            );
        }
        let lost = print(&client, &executed).await?;
        if lost > 0 {
            let words = format!(
                "{} of the output are lost: no more is kept",
                words::bytes(lost)
            );
            return Err(Failure::ours(words).hint("let the line write its file itself"));
        }
    }
    code(&executed, &scope, &args)
}

/// A result in JSON is for somebody who reads it: long output as head and tail.
const JSON: u64 = 50 * 1024;

fn text(words: &[String]) -> Result<String, Failure> {
    if let [only] = words
        && only == "-"
    {
        return caller::input();
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

/// Prints what a line printed; returns how many bytes of it are gone.
async fn print(client: &Client, executed: &Executed) -> Result<u64, Failure> {
    let out = Pour::stdout();
    if !executed.truncated {
        let bytes = STANDARD.decode(executed.base64.as_deref().unwrap_or_default());
        let bytes = bytes.map_err(|e| {
            Failure::ours(format!("the supervisor answered what is no base64: {e}"))
        })?;
        out.write(&bytes).await?;
        return Ok(executed.lost);
    }
    // Too much for one answer: page by page, from the log.
    let (mut at, mut lost, mut held) = (executed.from, 0, false);
    while at < executed.next {
        let read = Read {
            id: executed.row.process_id.clone(),
            since: Some(at),
            max: Some((executed.next - at).min(limits::PAGE_MAX)),
            raw: true,
            ..Read::default()
        };
        let page = client.ask::<JobRead>(read).await?;
        lost += page.lost;
        if page.next <= at {
            break;
        }
        at = page.next;
        let mut bytes = output::bytes_of(&page)?;
        if executed.crlf {
            bytes = lf(&bytes, &mut held);
        }
        out.write(&bytes).await?;
    }
    if held {
        out.write(b"\r").await?;
    }
    Ok(lost)
}

/// One CR off each LF; one at the end waits for what follows.
fn lf(bytes: &[u8], held: &mut bool) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len() + 1);
    for byte in bytes {
        if *held && *byte != b'\n' {
            plain.push(b'\r');
        }
        *held = *byte == b'\r';
        if !*held {
            plain.push(*byte);
        }
    }
    plain
}

/// A screen of its own, drawn over ours, would leave it in disorder, and its questions would be answered into our shell.
fn is_full_screen(executed: &Executed) -> bool {
    let bytes = STANDARD.decode(executed.base64.as_deref().unwrap_or_default());
    let has = |bytes: &[u8], what: &[u8]| bytes.windows(what.len()).any(|w| w == what);
    executed.reason == Reason::InputWait
        && bytes.is_ok_and(|b| has(&b, b"\x1b[?1049h") || has(&b, b"\x1b[?47h"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_ends_are_those_of_the_program_wherever_pages_are_cut() {
        let text = b"a\r\nb\rc\r\r\nd\r";
        for cut in 0..text.len() {
            let mut held = false;
            let mut all = lf(&text[..cut], &mut held);
            all.extend(lf(&text[cut..], &mut held));
            assert_eq!(all, b"a\nb\rc\r\nd", "{cut}");
            assert!(held);
        }
    }
}
