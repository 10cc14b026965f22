//! `ostler signal`: a signal to the group of a job's main process.

use ostler_proto::methods::{JobSignal, SignalJob};

use super::failure::Failure;
use super::one::OneJob;
use super::scope::SessionArg;
use super::{completions, output};
use crate::exit;

/// Sends a signal to a job. To end one with all that it started, use `ostler stop`.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler signal web HUP
  ostler signal t1 INT")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// INT, SIGINT or 2.
    #[arg(value_name = "SIGNAL", value_parser = signal, allow_hyphen_values = true, add = completions::signals())]
    signal: String,
}

/// Returns the name on the wire.
fn signal(text: &str) -> Result<String, String> {
    let unknown = || "no such signal; give INT, TERM, KILL or the like, or its number".to_owned();
    let upper = text.to_ascii_uppercase();
    if exit::signal_number(&upper).is_none() {
        return Err(unknown());
    }
    match upper.parse::<i32>() {
        Ok(number) => exit::signal_name(number).ok_or_else(unknown),
        Err(_) if upper.starts_with("SIG") => Ok(upper),
        Err(_) => Ok(format!("SIG{upper}")),
    }
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    let params = SignalJob {
        session: job.session.clone(),
        id: job.id.clone(),
        signal: args.signal,
    };
    let answer = job.call::<JobSignal>(params).await?;
    if args.json {
        output::json(&answer)?;
    }
    Ok(exit::DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_spellings_have_one_name_on_the_wire() {
        for text in ["INT", "int", "SIGINT", "2"] {
            assert_eq!(signal(text).as_deref(), Ok("SIGINT"), "{text}");
        }
        for text in ["", "0", "65", "NOPE", "-9"] {
            assert!(signal(text).is_err(), "{text}");
        }
    }
}
