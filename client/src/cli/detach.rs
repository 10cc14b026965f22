//! `ostler detach`: a running `run` goes on in the background.

use ostler::Mode;
use ostler_proto::methods::{JobDetach, Target};

use super::completions;
use super::failure::Failure;
use super::labels::Labels;
use super::nearest;
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
    /// Prints the id only, which is what it does anyway.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the row as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = Target {
        session: named.session,
        id: named.id,
    };
    let client = scope::client(Mode::Use)?;
    let row = match client.ask::<JobDetach>(params).await {
        Ok(row) => row,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&row)?;
    } else {
        let labels = Labels::for_rows(&client, &scope, std::iter::once(&row)).await?;
        out.line(&labels.job(&row))?;
    }
    out.flush()?;
    Ok(exit::DONE)
}
