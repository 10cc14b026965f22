//! `ostler keys`: keys pressed at a job's terminal.

use ostler::Mode;
use ostler_proto::methods::JobKeys;
use ostler_proto::screen::Keys;

use super::failure::Failure;
use super::output::Out;
use super::scope::{self, SessionArg};
use super::{completions, duration, nearest, words};
use crate::exit;

/// Presses keys at the terminal of a job that was started with --pty, by their names.
///
/// A key is one character or a name: Up, Down, Left, Right, Home, End, PageUp, PageDown, Insert, Delete, F1 to F12,
/// Enter, Tab, Escape, Space, Backspace; with C- (control), M- (meta) and S- (shift) before it. Text is sent by
/// `ostler send`, or pasted.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler keys t1 C-c
  ostler keys t1 Up Enter
  ostler keys t1 --paste 'echo one; echo two' Enter
  ostler keys t1 Escape : w q Enter")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Pastes this before the keys are pressed, as a terminal does.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    paste: Option<String>,
    /// How long the job may take to take it [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// Keys, in order.
    #[arg(
        value_name = "KEY",
        allow_hyphen_values = true,
        required_unless_present = "paste"
    )]
    keys: Vec<String>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Keys {
        session: named.session,
        id: named.id,
        paste: args.paste,
        keys: args.keys,
        timeout_ms: args.timeout,
    };
    // Never asked twice: what was pressed once must not arrive twice.
    let client = scope::client(Mode::Use)?;
    let written = match client.call::<JobKeys>(params).await {
        Ok(written) => written,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    if args.json {
        let mut out = Out::new();
        out.json(&written)?;
        out.flush()?;
    }
    if written.complete {
        return Ok(exit::DONE);
    }
    let id = words::clean(&args.id);
    Err(if written.closed {
        Failure::ours(format!("{id} has closed its input"))
    } else {
        let took = words::bytes(written.bytes);
        Failure::ours(format!("{id} took only {took} in time; it does not read"))
            .hint("give it more time with --timeout")
    })
}
