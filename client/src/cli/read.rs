//! `ostler read`: one page of a job's output.

use ostler::Mode;
use ostler_proto::job::{Page, Stream};
use ostler_proto::limits;
use ostler_proto::methods::{JobRead, Read};

use super::failure::Failure;
use super::output::{self, Out, Pour, note};
use super::scope::{self, SessionArg};
use super::{duration, words};
use crate::exit;

/// Prints one page of a job's output; without --since the newest one.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler read web
  ostler read t2 --since 0 --max 1000
  ostler read t2 --match 'panicked|FAILED' -C 1
  ostler read t2 --since 8192 --wait 5s --json")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Offset of the first byte wanted.
    #[arg(long, value_name = "N")]
    since: Option<u64>,
    /// Bytes at most [default: 8192].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=limits::PAGE_MAX))]
    max: Option<u64>,
    /// Waits this long for something to read.
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Only lines that match this regular expression, each behind its offset.
    #[arg(long = "match", value_name = "RE", conflicts_with_all = ["wait", "stdout", "stderr"])]
    pattern: Option<String>,
    /// Lines before and after each match.
    #[arg(short = 'C', long, value_name = "N", requires = "pattern", value_parser = clap::value_parser!(u64).range(0..=limits::CONTEXT))]
    context: Option<u64>,
    #[command(flatten)]
    only: Only,
    /// Prints the page as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(value_name = "ID")]
    id: String,
}

/// One of the two streams alone.
#[derive(clap::Args, Debug, Clone, Copy)]
pub(crate) struct Only {
    /// Standard output alone.
    #[arg(long, conflicts_with = "stderr")]
    stdout: bool,
    /// Standard error alone.
    #[arg(long)]
    stderr: bool,
}

impl Only {
    pub(crate) fn stream(self) -> Option<Stream> {
        match (self.stdout, self.stderr) {
            (true, _) => Some(Stream::Stdout),
            (false, true) => Some(Stream::Stderr),
            (false, false) => None,
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let named = args.session.scope()?.target(&args.id)?;
    let params = Read {
        session: named.session,
        id: named.id,
        since: args.since,
        max: args.max,
        wait_ms: args.wait,
        stream: args.only.stream(),
        raw: !args.json,
        pattern: args.pattern.clone(),
        context: args.context,
    };
    let page = scope::client(Mode::Use)?.ask::<JobRead>(params).await?;
    if args.json {
        let mut out = Out::new();
        out.json(&page)?;
        out.flush()?;
        return Ok(exit::DONE);
    }
    if args.pattern.is_some() {
        print_lines(&page)?;
    } else {
        output::note_gap(&page);
        Pour::stdout().write(&output::bytes_of(&page)?).await?;
    }
    if page.next < page.end {
        note(&format!(
            "{} more bytes: ostler read {} --since {}",
            words::thousands(page.end - page.next),
            words::clean(&args.id),
            page.next
        ));
    }
    Ok(exit::DONE)
}

/// Prints lines behind their offsets, as a person wants to go on reading there.
fn print_lines(page: &Page) -> Result<(), Failure> {
    let mut out = Out::new();
    for line in &page.lines {
        out.line(&format!("{}  {}", line.from, words::clean(&line.text)))?;
    }
    out.flush()
}
