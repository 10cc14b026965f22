//! `ostler send`: text into a job's input.

use ostler_proto::methods::{JobWrite, Write};

use super::failure::Failure;
use super::one::OneJob;
use super::scope::SessionArg;
use super::{caller, completions, duration, output, words};
use crate::exit;

/// Writes text to the input of a job that was started with --stdin. Nothing is added unless asked for.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler send t1 y --enter
  ostler send t1 'last words' --enter --eof
  ostler send t1 --eof
  echo 1+1 | ostler send t1 -")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Ends the line.
    #[arg(long)]
    enter: bool,
    /// Ends the input after that.
    #[arg(long)]
    eof: bool,
    /// How long the job may take to take it [default: 5s].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// What to write; - is what comes from standard input.
    #[arg(
        value_name = "TEXT",
        allow_hyphen_values = true,
        required_unless_present_any = ["enter", "eof"]
    )]
    text: Option<String>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    if !args.enter && !args.eof && args.text.as_deref() == Some("") {
        return Err(Failure::usage("nothing to send: the text is empty")
            .hint("--enter sends a line end, --eof ends the input"));
    }
    let mut text = match args.text.as_deref() {
        Some("-") => caller::input()?,
        text => text.unwrap_or_default().to_owned(),
    };
    if args.enter {
        text.push('\n');
    }
    let length = text.len() as u64;
    let params = Write {
        session: job.session.clone(),
        id: job.id.clone(),
        text: (length > 0).then_some(text),
        base64: None,
        eof: args.eof,
        timeout_ms: args.timeout,
        seat: None,
    };
    // Never asked twice: what was typed once must not arrive twice.
    let written = job.call::<JobWrite>(params).await?;
    if args.json {
        output::json(&written)?;
    }
    if written.complete {
        return Ok(exit::DONE);
    }
    let id = words::clean(&args.id);
    Err(if written.closed {
        Failure::ours(format!("{id} has closed its input"))
    } else {
        Failure::ours(format!(
            "{id} took {} of {} in time; it does not read",
            words::thousands(written.bytes),
            words::bytes(length)
        ))
        .hint("send the rest later, or give it more time with --timeout")
    })
}
