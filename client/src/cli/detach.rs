//! `ostler detach`: a running `run` goes on in the background.

use ostler_proto::methods::{JobDetach, Target};

use super::failure::Failure;
use super::labels::Labels;
use super::one::OneJob;
use super::output::{Out, note};
use super::scope::SessionArg;
use super::{completions, words};
use crate::exit;

/// Turns a job of a running `ostler run` into a background job; that `run` ends with 125. Prints its id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler detach t2")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints the id only, and does not say that it runs in the background already.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the row as JSON; `already` says that no run held it.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    let params = Target {
        session: job.session.clone(),
        id: job.id.clone(),
    };
    let answer = job.ask::<JobDetach>(params).await?;
    let row = &answer.row;
    let labels = Labels::for_rows(&job.client, &job.scope, std::iter::once(row)).await?;
    let id = labels.job(row);
    if row.is_over() {
        let what = format!("{} has ended: it {}", words::titled(row), words::ended(row));
        return Err(Failure::ours(what).hint(format!("ostler tail {id}")));
    }
    let mut out = Out::new();
    if args.json {
        out.json(&answer)?;
    } else {
        out.line(&id)?;
    }
    out.flush()?;
    if answer.already && !args.quiet && !args.json {
        let who = words::clean(&words::titled(row));
        note(&format!("note: {who} already runs in the background"));
    }
    Ok(exit::DONE)
}
