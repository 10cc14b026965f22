//! `ostler shell send`.

use ostler::Mode;
use ostler_proto::methods::Reason;
use ostler_proto::shell::Send;

use super::{begun, stands};
use crate::cli::failure::Failure;
use crate::cli::output::{Out, note};
use crate::cli::scope::{self, SessionArg};
use crate::cli::{completions, duration, nearest, words};
use crate::exit;

/// Types into a shell, waits until it waits for more, and prints what came meanwhile.
///
/// Without a text it only waits. The text is typed as it is: no Enter is added.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell send s1 'import math' --enter
  ostler shell send s1 y
  ostler shell send s1 --timeout 1m
  ostler shell send s1 --background --enter make")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Types Enter behind it.
    #[arg(long)]
    enter: bool,
    /// Longest time in all; nothing is stopped at its end [default: 30s].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Silence after which it counts as waiting [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    silence: Option<u64>,
    /// Prints the id of a job that stands for it, and leaves: read it, wait for it, stop it. Then there is no default
    /// for --timeout and --silence, and what runs is interrupted when the time is over.
    #[arg(short, long)]
    background: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Does not say why it returned.
    #[arg(short, long)]
    quiet: bool,
    /// Shell: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// What to type.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Send {
        session: named.session,
        id: named.id,
        text: args.text.clone().unwrap_or_default(),
        enter: args.enter,
        timeout_ms: args.timeout,
        quiet_ms: args.silence,
        max: None,
        background: args.background,
        key: None,
        keys: Vec::new(),
    };
    let client = scope::client(Mode::Use)?;
    let sent = match client.send(params).await {
        Ok(sent) => sent,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&sent)?;
    } else if sent.job.is_none() {
        out.text(&sent.text)?;
        if !sent.text.is_empty() && !sent.text.ends_with('\n') {
            out.text("\n")?;
        }
    }
    out.flush()?;
    if let Some(job) = &sent.job {
        return begun(job, &args.id, args.json);
    }
    let id = scope.pasted(&args.id);
    if !args.quiet && !args.json {
        let at_prompt = sent.reason == Reason::Prompt;
        let code = sent
            .exit_code
            .filter(|_| at_prompt)
            .map(|c| format!(", exit code {c}"));
        let words = stands(&id, &sent.row, sent.reason);
        note(&words::clean(&format!(
            "{words}{}",
            code.unwrap_or_default()
        )));
    }
    Ok(match sent.reason {
        Reason::WaitOver => exit::TIMED_OUT,
        Reason::Exit => exit::of_row(&sent.row),
        _ => exit::DONE,
    })
}
