//! `ostler resize`: another window for a job's terminal.

use ostler_proto::job::Size;
use ostler_proto::methods::{JobResize, Resize};

use super::failure::Failure;
use super::one::OneJob;
use super::scope::SessionArg;
use super::{completions, output, size};
use crate::exit;

/// Gives the terminal of a job that was started with --pty another size.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler resize t1 120x40")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints the row as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
    /// Columns and lines.
    #[arg(value_name = "COLSxROWS", value_parser = size::size)]
    size: Size,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    let params = Resize {
        session: job.session.clone(),
        id: job.id.clone(),
        rows: args.size.rows,
        cols: args.size.cols,
        seat: None,
    };
    let row = job.ask::<JobResize>(params).await?;
    if args.json {
        output::json(&row)?;
    }
    Ok(exit::DONE)
}
