//! `ostler detach`: a running `run` goes on in the background.

use ostler::Mode;
use ostler_proto::methods::{JobDetach, Target};

use super::failure::Failure;
use super::output::Out;
use super::scope::{self, SessionArg};
use crate::exit;

/// Turns a job of a running `ostler run` into a background job; that `run` ends with 125. Prints its id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler detach t2")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints the row as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Target {
        session: named.session,
        id: named.id,
    };
    let row = scope::client(Mode::Use)?.ask::<JobDetach>(params).await?;
    let mut out = Out::new();
    if args.json {
        out.json(&row)?;
    } else {
        out.line(&scope.label(&row))?;
    }
    out.flush()?;
    Ok(exit::DONE)
}
