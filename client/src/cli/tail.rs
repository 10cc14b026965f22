//! `ostler tail`: a job's output as a stream.

use ostler::follow::{Event, Stream};
use ostler_proto::job::Outcome;
use ostler_proto::methods::{JobTail, Tail, TailEnd};

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::one::OneJob;
use super::output::{self, Pour, note};
use super::read::{self, Only};
use super::scope::SessionArg;
use super::{completions, number, words};
use crate::exit;

/// Prints all that is kept of a job's output, or its last lines; with -f the newest page and then what comes.
///
/// Following ends with the job and passes its exit code. Ctrl-C leaves; the job is not touched.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler tail t2 | less
  ostler tail -n 20 t2
  ostler tail -f web
  ostler tail -f --since 0 --stderr t3
  ostler tail -f --json web | jq -r .text")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Goes on until the job is over.
    #[arg(short, long)]
    follow: bool,
    /// Offset of the first byte wanted.
    #[arg(long, value_name = "N", value_parser = number::offset, allow_hyphen_values = true)]
    since: Option<u64>,
    /// The last N lines only; with -f, 0 is only what is new.
    #[arg(short = 'n', long, value_name = "N", value_parser = number::offset, allow_hyphen_values = true, conflicts_with = "since")]
    lines: Option<u64>,
    #[command(flatten)]
    only: Only,
    /// Text as a person sees it: no escape sequences, progress bars as they stood at last. A line is told at its end.
    #[arg(long)]
    plain: bool,
    /// Prints one JSON page a line.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    let params = Tail {
        session: job.session.clone(),
        id: job.id.clone(),
        // From the first byte ever, so that what is no longer kept is said, not skipped.
        since: args
            .since
            .or((!args.follow && args.lines.is_none()).then_some(0)),
        lines: args.lines,
        follow: args.follow,
        stream: args.only.stream(),
        raw: !args.json && !args.plain,
        plain: args.plain,
        ..Tail::default()
    };
    let mut interrupts = Interrupts::new()?;
    let follow = async {
        if let Some(since) = args.since {
            // The stream itself begins at the end then, and would not say so.
            let page = read::look(&job, since).await?;
            read::note_beyond(&args.id, args.since, &page);
        }
        match pour(job.client.stream::<JobTail>(params), args.json).await {
            Ok(end) => Ok(end),
            Err(Stopped::Asking(e)) => Err(job.failure(e).await),
            Err(Stopped::Telling(failure)) => Err(failure),
        }
    };
    let end = tokio::select! {
        end = follow => end?,
        _ = interrupts.next() => {
            if args.follow {
                note(&format!("{} still runs", words::clean(&job.scope.pasted(&args.id))));
            }
            return Err(Failure::quiet(exit::INTERRUPTED));
        }
    };
    if args.follow {
        followed(&end)
    } else {
        Ok(exit::DONE)
    }
}

/// Why a stream ended early.
enum Stopped {
    Asking(ostler::Error),
    Telling(Failure),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Telling(failure)
    }
}

async fn pour(mut stream: Stream<JobTail>, json: bool) -> Result<TailEnd, Stopped> {
    let pour = Pour::stdout();
    loop {
        match stream.next().await.map_err(Stopped::Asking)? {
            Event::Started(_) | Event::Happened(_) => {}
            Event::Page(page) if json => {
                output::json(&page)?;
            }
            Event::Page(page) => {
                output::note_gap(&page);
                pour.write(&output::bytes_of(&page)?).await?;
            }
            Event::End(end) => return Ok(*end),
        }
    }
}

/// Passes the job's code, and says what the code alone does not.
fn followed(end: &TailEnd) -> Result<i32, Failure> {
    let row = &end.row;
    match row.outcome {
        Some(Outcome::Exited | Outcome::Signaled) => Ok(exit::of_row(row)),
        Some(Outcome::SpawnFailed) => Err(words::never_ran(row)),
        _ => Err(Failure {
            code: exit::of_row(row),
            ..Failure::ours(format!("{} {}", words::titled(row), words::ended(row)))
        }),
    }
}
