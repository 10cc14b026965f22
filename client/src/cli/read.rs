//! `ostler read`: one page of a job's output.

use ostler_proto::job::{Page, Stream};
use ostler_proto::methods::{JobRead, Read};
use ostler_proto::refusal::RefusalKind;

use super::failure::Failure;
use super::one::OneJob;
use super::output::{self, Out, Pour, note};
use super::scope::SessionArg;
use super::{completions, duration, number, pattern, words};
use crate::exit;

/// Prints one page of a job's output; without --since the newest one.
///
/// With --match it prints lines as grep -b does: OFFSET:LINE for a match, and with -C OFFSET-LINE for the lines around
/// it and -- between groups. Escapes are left out of them.
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
    #[arg(long, value_name = "N", value_parser = number::offset, allow_hyphen_values = true)]
    since: Option<u64>,
    /// Bytes at most, with --match of the lines [default: 8192].
    #[arg(long, value_name = "N", value_parser = number::page, allow_hyphen_values = true)]
    max: Option<u64>,
    /// Waits this long for something to read.
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Only lines that match this regular expression, from the beginning or --since on, each behind its offset.
    #[arg(long = "match", value_parser = pattern::pattern, value_name = "RE", allow_hyphen_values = true, conflicts_with_all = ["wait", "stdout", "stderr"])]
    pattern: Option<String>,
    /// Lines before and after each match.
    #[arg(short = 'C', long, value_name = "N", requires = "pattern", value_parser = number::context, allow_hyphen_values = true)]
    context: Option<u64>,
    #[command(flatten)]
    only: Only,
    /// Text as a person sees it: no escape sequences, progress bars as they stood at last.
    #[arg(long, conflicts_with = "pattern")]
    plain: bool,
    /// Refuses bytes that are no UTF-8 instead of passing or replacing them.
    #[arg(long, conflicts_with = "pattern")]
    strict: bool,
    /// Prints the page as JSON.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID")]
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
    let job = OneJob::of(&args.session, &args.id)?;
    let params = Read {
        session: job.session.clone(),
        id: job.id.clone(),
        since: args.since,
        max: args.max,
        wait_ms: args.wait,
        stream: args.only.stream(),
        raw: !args.json && !args.strict && !args.plain && args.pattern.is_none(),
        strict: args.strict,
        plain: args.plain,
        pattern: args.pattern.clone(),
        context: args.context,
    };
    let page = match job.client.ask::<JobRead>(params).await {
        Ok(page) => page,
        Err(e) => return Err(failure(&job, e).await),
    };
    if args.json {
        output::json(&page)?;
        return Ok(exit::DONE);
    }
    if args.pattern.is_some() {
        print_lines(&page, args.context.is_some_and(|n| n > 0))?;
        if page.lost > 0 {
            let words = words::bytes(page.lost);
            note(&format!("note: {words} are lost and were not looked at"));
        }
    } else {
        output::note_gap(&page);
        let bytes = output::bytes_of(&page)?;
        Pour::stdout().write(&bytes).await?;
        if !bytes.is_empty() && !bytes.ends_with(b"\n") && page.next < page.end {
            output::begin_line();
        }
    }
    note_beyond(&args.id, args.since, &page);
    if let Some(pattern) = &args.pattern
        && page.lines.is_empty()
    {
        let up_to = if page.next < page.end && !page.eof {
            format!(" before offset {}", page.next)
        } else {
            String::new()
        };
        note(&words::clean(&format!(
            "note: no line of {}{up_to} matches {pattern}",
            args.id
        )));
    }
    // Of a log that is over the last line counts also without its end.
    if page.next < page.end && !page.eof {
        note(&words::clean(&format!(
            "{} more: {}",
            words::bytes(page.end - page.next),
            args.again(page.next)
        )));
    }
    Ok(exit::DONE)
}

/// How it fails. The supervisor knows of fields, a person of flags.
async fn failure(job: &OneJob, error: ostler::Error) -> Failure {
    let strict = matches!(&error, ostler::Error::Refused(r) if r.kind == RefusalKind::Undecodable);
    let failure = job.failure(error).await;
    if strict {
        return failure.hint("without --strict the bytes come as they are");
    }
    failure
}

impl Args {
    /// Returns the command that reads on, with everything that was asked for here.
    fn again(&self, since: u64) -> String {
        let mut line = format!("ostler read {} --since {since}", words::quoted(&self.id));
        let mut add = |flag: &str, value: Option<String>| {
            if let Some(value) = value {
                line += &format!(" {flag} {}", words::quoted(&value));
            }
        };
        add("--session", self.session.named().map(str::to_owned));
        add("--max", self.max.map(|n| n.to_string()));
        add("--match", self.pattern.clone());
        add("-C", self.context.map(|n| n.to_string()));
        add("--wait", self.wait.map(|ms| format!("{ms}ms")));
        match self.only.stream() {
            None => {}
            Some(Stream::Stdout) => line += " --stdout",
            Some(Stream::Stderr) => line += " --stderr",
        }
        line
    }
}

/// Says of a cursor that is beyond the end that it is, since nothing else would be printed.
pub(crate) fn note_beyond(id: &str, since: Option<u64>, page: &Page) {
    let Some(since) = since.filter(|since| *since > page.end) else {
        return;
    };
    note(&words::clean(&format!(
        "note: {id} has {} so far; --since {since} is beyond {}",
        words::bytes(page.end),
        if page.end == 1 { "it" } else { "them" }
    )));
}

/// Asks where a log ends, for a cursor that may be beyond it.
pub(crate) async fn look(job: &OneJob, since: u64) -> Result<Page, Failure> {
    job.ask::<JobRead>(Read {
        session: job.session.clone(),
        id: job.id.clone(),
        since: Some(since),
        max: Some(1),
        ..Read::default()
    })
    .await
}

/// Prints lines behind their offsets, as a person wants to go on reading there.
fn print_lines(page: &Page, grouped: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    for line in &page.lines {
        if grouped && line.skipped {
            out.line("--")?;
        }
        let mark = if line.context { '-' } else { ':' };
        out.line(&format!("{}{mark}{}", line.from, line.text))?;
    }
    out.flush()?;
    if let Some(cut) = page.lines.iter().find(|line| line.cut) {
        note(&format!(
            "note: the line at {} is longer than that and was cut",
            cut.from
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn again(args: &[&str]) -> String {
        let all = std::iter::once("read").chain(args.iter().copied());
        Line::try_parse_from(all).unwrap().args.again(9)
    }

    #[test]
    fn the_command_that_reads_on_asks_for_the_same() {
        assert_eq!(again(&["t1"]), "ostler read t1 --since 9");
        assert_eq!(
            again(&[
                "x/t1", "--since", "0", "--stderr", "--max", "5", "--wait", "2s"
            ]),
            "ostler read x/t1 --since 9 --max 5 --wait 2000ms --stderr"
        );
        assert_eq!(
            again(&["web", "--session", "n", "--match", "a|b c", "-C", "1"]),
            "ostler read web --since 9 --session n --match 'a|b c' -C 1"
        );
        assert_eq!(
            again(&["t1", "--stdout"]),
            "ostler read t1 --since 9 --stdout"
        );
    }
}
