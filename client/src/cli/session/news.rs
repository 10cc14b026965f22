//! `ostler session watch` and `notices`: what happens to jobs, and which ends nobody has read of yet.

use ostler::Mode;
use ostler::follow::Event;
use ostler_proto::limits;
use ostler_proto::methods::{
    self, Happened, Notice, ReadNotices, SessionNotices, SessionWatch, WatchSession,
};

use crate::cli::failure::Failure;
use crate::cli::interrupts::Interrupts;
use crate::cli::output::Out;
use crate::cli::scope::{self, SessionWord};
use crate::cli::{ask_if_any, duration, number, words};
use crate::exit;

/// Prints what happens to jobs, a line each, until it is interrupted or the session is closed.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session watch
  ostler session watch --heartbeat
  ostler session watch -A --json | jq -r 'select(.type == \"exited\") | .row.id'")]
pub(crate) struct Watch {
    #[command(flatten)]
    session: SessionWord,
    /// Every session of the user.
    #[arg(short = 'A', long, alias = "everywhere", conflicts_with_all = ["word", "flag"])]
    all: bool,
    /// Tells every so often how each live job is: its processes, CPU time and memory [default without a TIME: 5s].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, num_args = 0..=1, require_equals = true)]
    heartbeat: Option<Option<u64>>,
    /// Prints one JSON event a line.
    #[arg(long)]
    json: bool,
}

/// Lists the ends of background jobs that were not confirmed yet, oldest first.
///
/// What you waited for, read to its end or stopped is no news. Of an agent's session it is news until the agent was told, or
/// until you confirm it here.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session notices
  ostler session notices --seen 12 --json")]
pub(crate) struct ListNotices {
    #[command(flatten)]
    session: SessionWord,
    /// Confirms every notice up to this number first.
    #[arg(long, value_name = "N", value_parser = number::offset, allow_hyphen_values = true)]
    seen: Option<u64>,
    /// Prints JSON: {"notices": [...]}.
    #[arg(long)]
    json: bool,
}

pub(super) async fn watch(args: Watch) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let params = WatchSession {
        session: (!args.all).then(|| scope.session()),
        all: args.all,
        heartbeat_ms: args.heartbeat.map(|ms| ms.unwrap_or(limits::HEARTBEAT)),
        ..WatchSession::default()
    };
    let mut events = client.stream::<SessionWatch>(params);
    let mut interrupts = Interrupts::new()?;
    loop {
        let event = tokio::select! {
            event = events.next() => event?,
            _ = interrupts.next() => return Err(Failure::quiet(exit::INTERRUPTED)),
        };
        match event {
            Event::Happened(event) => tell(&event, args.json)?,
            Event::End(_) => return Ok(exit::DONE),
            Event::Started(_) | Event::Page(_) => {}
        }
    }
}

fn tell(event: &methods::Event, json: bool) -> Result<(), Failure> {
    let mut out = Out::new();
    if json {
        out.json(event)?;
    } else if event.what != Happened::Watching {
        out.line(&line(event))?;
    }
    out.flush()
}

fn line(event: &methods::Event) -> String {
    let Some(row) = &event.row else {
        return match event.missed {
            Some(1) => "1 event was missed here: ostler ls".into(),
            Some(missed) if missed > 0 => format!("{missed} events were missed here: ostler ls"),
            _ => "the supervisor was replaced, events may be missing here: ostler ls".into(),
        };
    };
    let what = match event.what {
        Happened::Starting => format!("starting  {}", words::command(row)),
        Happened::Exited => words::state(row),
        Happened::Empty => "nothing is left of it".into(),
        Happened::Moved => format!("was {}", event.from.as_deref().unwrap_or_default()),
        Happened::Removed => "removed".into(),
        Happened::Heartbeat => {
            let tree = &row.tree;
            let count = tree.pids.as_ref().map_or(0, Vec::len) as u32;
            format!(
                "{}, {}, {} CPU, {}",
                words::state(row),
                words::processes(count),
                words::took(tree.cpu_ms.unwrap_or(0)),
                words::bytes(tree.rss_bytes.unwrap_or(0))
            )
        }
        Happened::Bell => "rings".into(),
        Happened::Title => match &row.title {
            Some(title) => format!("title {title}"),
            None => "no title".into(),
        },
        Happened::Running
        | Happened::Stopping
        | Happened::Draining
        | Happened::Missed
        | Happened::Watching => words::state(row),
    };
    format!("{}/{}  {what}", row.session.id, words::titled(row))
}

pub(super) async fn notices(args: ListNotices) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let params = ReadNotices {
        session: Some(scope.session()),
        seen: args.seen,
    };
    let told = ask_if_any::<SessionNotices>(&client, params).await?;
    let told = told.unwrap_or(methods::Notices {
        notices: Vec::new(),
    });
    let mut out = Out::new();
    if args.json {
        out.json(&told)?;
    } else {
        for Notice { number, row } in &told.notices {
            out.line(&format!(
                "{number}  {} {}: {}",
                words::titled(row),
                words::ended(row),
                words::command(row)
            ))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}
