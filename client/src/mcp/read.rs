//! Reading jobs as the set `compact` does: one or several, from a cursor, around lines that match, after a wait.

use futures_util::future::{join_all, select_all};
use ostler::Error;
use ostler_proto::job::{JobResult, Kind, Outcome, Page, Row, State};
use ostler_proto::limits;
use ostler_proto::methods::{For, JobRead, Read, Reason, WaitedJob};

use super::answer::{Answer, Block};
use super::arguments::Arguments;
use super::condition::Until;
use super::fault::Fault;
use super::front::{Call, ports};
use super::list::list;
use super::run::{OWN, Ran, Wanted, add_reason, note};
use super::shells;
use super::text::{self, Share};
use super::wait::wait_for;
use super::{status, words};

/// How much is shown where no cursor is given.
const LOOK: Share = Share {
    whole: limits::COMPACT_READ_WHOLE,
    ..OWN
};

pub(super) fn some_ids(args: &Arguments) -> Result<Vec<String>, Fault> {
    let ids = args.ids("id")?;
    if ids.is_empty() {
        return Err(Fault::argument("id is missing: t1, or several: t1,s1."));
    }
    Ok(ids)
}

pub(super) async fn output(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let ids = args.ids("id")?;
    let since = args.whole("since")?;
    let grep = args.text("grep")?;
    let until = args.until()?;
    if ids.is_empty() {
        let other = ["since", "grep", "until", "wait_s"]
            .into_iter()
            .find(|n| args.has(n));
        if let Some(name) = other {
            return Err(Fault::argument(format!("{name} needs an id.")));
        }
        return list(call).await;
    }
    if ids.len() > 1 && since.is_some() {
        return Err(Fault::argument(
            "since is the cursor of one job: name one id.",
        ));
    }
    let wait = match (&until, args.has("wait_s")) {
        (None, false) => 0,
        _ => call.patience(args.wait("wait_s", limits::mcp::COMPACT_WAIT, call.max_wait)?),
    };
    let waits = until.is_some() || args.has("wait_s");
    let until = until.unwrap_or_default();
    let rows = join_all(ids.iter().map(|id| call.row(id))).await;
    let rows = rows.into_iter().collect::<Result<Vec<Row>, Fault>>()?;
    let looks = if waits {
        if let [row, ..] = rows.as_slice() {
            call.watch(row);
        }
        wait_for_all(call, &rows, &until, since, wait).await?
    } else {
        rows.iter().map(|_| None).collect()
    };
    let mut blocks = Vec::new();
    for (row, waited) in rows.iter().zip(looks) {
        let looked = Looked {
            until: &until,
            wait,
            waited,
        };
        blocks.push(look(call, row, since, grep, &looked).await?);
    }
    let hint = match blocks.as_slice() {
        [block] => block.hint.clone(),
        _ => None,
    };
    Ok(Answer {
        blocks,
        hint,
        keeps_tail: true,
        ..Answer::default()
    })
}

/// How the wait for a job went.
struct Looked<'a> {
    until: &'a Until,
    wait: u64,
    waited: Option<WaitedJob>,
}

/// Waits: for the end of all, or for the first of which something else is true.
async fn wait_for_all(
    call: &Call<'_>,
    rows: &[Row],
    until: &Until,
    since: Option<u64>,
    wait: u64,
) -> Result<Vec<Option<WaitedJob>>, Fault> {
    let one = |row: &Row, timeout: u64| {
        let (client, process_id) = (call.client.clone(), row.process_id.clone());
        let line = call.front.line(&row.process_id);
        let is_shell = row.kind == Kind::Shell;
        let what = match until {
            // A shell has no end of its own: that of the line that runs in it.
            Until::Exit if is_shell => For::Prompt,
            other => other.on_wire(),
        };
        let from = since.unwrap_or_else(|| line.filter(|_| is_shell).map_or(0, |l| l.from));
        async move { wait_for(&client, &process_id, what, from, Some(timeout)).await }
    };
    let fault = |e: Error| call.fault("", &e);
    if *until == Until::Exit {
        let all = join_all(rows.iter().map(|row| one(row, wait))).await;
        let all = all.into_iter().map(|w| w.map(Some).map_err(fault));
        return all.collect();
    }
    let waits: Vec<_> = rows.iter().map(|row| Box::pin(one(row, wait))).collect();
    let (first, at, _) = select_all(waits).await;
    let first = first.map_err(fault)?;
    let mut told: Vec<Option<WaitedJob>> = rows.iter().map(|_| None).collect();
    told[at] = Some(first);
    Ok(told)
}

/// What is said of one job that is read.
async fn look(
    call: &Call<'_>,
    before: &Row,
    since: Option<u64>,
    grep: Option<&str>,
    looked: &Looked<'_>,
) -> Result<Block, Fault> {
    let result = call.get(&before.process_id).await?;
    let row = &result.row;
    // Of a shell that was waited for it is the line that ran in it.
    let (mut block, line) = if row.kind == Kind::Shell && !row.is_over() {
        shell_block(call, row, looked).await?
    } else {
        (job_block(row, looked), None)
    };
    if let Some(pattern) = grep {
        matches(call, row, &mut block, pattern, since).await?;
        return Ok(block);
    }
    if let Some((grid, marker)) = shells::screen(call, row).await? {
        block.output = Some(grid);
        block.markers.push(marker);
        block.next = Some(row.output.end);
    } else {
        body(call, row, &mut block, since, line).await?;
    }
    let has_hint = block.hint.is_some();
    add_cursor(call, row, &mut block, since.is_some(), has_hint);
    Ok(block)
}

fn job_block(row: &Row, looked: &Looked<'_>) -> Block {
    let mut block = status::block(row, &ports(row), super::now());
    if let Some(waited) = &looked.waited {
        let ran = Ran {
            reason: if row.is_over() && waited.reason != Reason::Text {
                Reason::Exit
            } else {
                waited.reason
            },
            stranger: waited.stranger.clone(),
            waited: looked.wait,
            result: JobResult {
                row: row.clone(),
                stdout: None,
                stderr: None,
                stdout_truncated: false,
                stderr_truncated: false,
                side_effect: None,
                withheld: Vec::new(),
                file: None,
                detached: false,
            },
        };
        let what = Wanted {
            until: looked.until.clone(),
            wait: looked.wait,
            tty: false,
        };
        add_reason(&mut block, &ran, &what);
        block.why = shells::why(waited.reason);
        if waited.reason == Reason::WaitOver && *looked.until == Until::Exit {
            let fact = format!("waited {}", words::limit(looked.wait));
            note(&mut block, &fact);
            block.facts.push(fact);
        }
    }
    block
}

/// What is said of a shell, and where the output of the line is that was waited for.
async fn shell_block(
    call: &Call<'_>,
    row: &Row,
    looked: &Looked<'_>,
) -> Result<(Block, Option<(u64, u64)>), Fault> {
    let line = call.front.running_line(&row.process_id);
    let came = shells::glance(call, row).await?;
    let mut block = shells::block(call, &came);
    let waits_for_end = looked.waited.is_some() && *looked.until == Until::Exit;
    if let Some(waited) = &looked.waited {
        block.why = shells::why(waited.reason);
    }
    if let Some(line) = line.as_ref().filter(|_| came.reason == Reason::Prompt) {
        // Its end is told here.
        call.front.end_line(&row.process_id, line);
        call.front.ledger.forget_own(line.serial);
    }
    if came.reason == Reason::Prompt && line.is_none() {
        // Nothing ran: the last line was told already.
        block.phrase = format!("{} at prompt", row.id);
        block.facts.clear();
        block.code = None;
        block.seconds = None;
        if waits_for_end {
            block.facts.push("a shell has no end of its own".into());
            note(&mut block, "a shell has no end of its own");
        }
    } else if let Some(waited) = &looked.waited
        && waited.reason == Reason::WaitOver
    {
        let fact = format!(
            "waited {} for {}",
            words::limit(looked.wait),
            looked.until.name()
        );
        note(&mut block, &fact);
        block.facts.push(fact);
    }
    let stretch = line
        .filter(|_| looked.waited.is_some())
        .map(|_| came.output);
    Ok((block, stretch))
}

/// The output: a page from a cursor on, or the start and the end of the log.
async fn body(
    call: &Call<'_>,
    row: &Row,
    block: &mut Block,
    since: Option<u64>,
    line: Option<(u64, u64)>,
) -> Result<(), Fault> {
    let fault = |e: Error| call.fault(&row.id, &e);
    let Some(since) = since else {
        let (from, to) = line.unzip();
        block.since = from;
        return shells::add_output(call, block, row, from.unwrap_or(0), to, LOOK).await;
    };
    let page = text::page_from(&call.client, row, since, call.front.page)
        .await
        .map_err(fault)?;
    if page.from != since {
        block.since = Some(page.from);
    }
    shells::put(block, row, page);
    Ok(())
}

/// Where to go on.
fn add_cursor(call: &Call<'_>, row: &Row, block: &mut Block, paged: bool, has_hint: bool) {
    let read = call.front.names.read;
    let next = block.next.unwrap_or(0);
    let more = next < row.output.end;
    if paged && more {
        block.hint = Some(format!("{read}{} since={next}", row.id));
    } else if row.is_over() {
        if block.cut.is_some() {
            block.facts.push(format!("{} bytes", row.output.end));
            block.hint = Some(format!("{read}{} grep=REGEX", row.id));
        }
    } else if !has_hint && block.phrase.contains(" running ") {
        block.hint = Some(format!("{read}{} since={next}", row.id));
    }
}

/// Lines that match, with what stands around them.
async fn matches(
    call: &Call<'_>,
    row: &Row,
    block: &mut Block,
    pattern: &str,
    since: Option<u64>,
) -> Result<(), Fault> {
    let read = Read {
        id: row.process_id.clone(),
        since,
        max: Some(call.front.page),
        pattern: Some(pattern.to_owned()),
        context: Some(limits::mcp::COMPACT_CONTEXT),
        ..Read::default()
    };
    let found = call.client.ask::<JobRead>(read).await;
    let page: Page = found.map_err(|e| match &e {
        Error::Refused(r) if r.kind == ostler_proto::refusal::RefusalKind::BadArgument => {
            let why = r.message.lines().next_back().unwrap_or_default();
            let why = why.trim_start_matches("error: ");
            Fault::argument(format!("grep {pattern:?}: {}", words::one_line(why)))
        }
        _ => call.fault(&row.id, &e),
    })?;
    let mut text = String::new();
    for (i, line) in page.lines.iter().enumerate() {
        if i == 0 || line.skipped {
            text += &format!("[at {}]\n", line.from);
        }
        text += &line.text;
        text += if line.cut { "...\n" } else { "\n" };
    }
    let n = page.lines.iter().filter(|l| !l.context).count();
    let more = page.next < page.end && !page.lines.is_empty();
    let found = match n {
        1 => "1 line matches".to_owned(),
        n => format!("{n} lines match"),
    };
    let found = match (n, more) {
        (0, _) => found,
        (_, false) => format!("{found}, all shown"),
        (_, true) => format!("{found} up to here"),
    };
    // How long it took is not what was asked.
    if let (Some(code), Some(Outcome::Exited)) = (row.exit_code, row.outcome) {
        block.phrase = format!("{} exited {code}", row.id);
    } else if !row.is_over() && row.kind != Kind::Shell && row.state == State::Running {
        block.phrase = format!("{} running", row.id);
    }
    block.facts.clear();
    block.note = Some(found.clone());
    block.facts.push(found);
    block.ports.clear();
    block.seconds = None;
    block.next = Some(page.next);
    block.hint = more.then(|| {
        format!(
            "{}{} grep=REGEX since={}",
            call.front.names.read, row.id, page.next
        )
    });
    if page.lost > 0 {
        block.lost = Some(page.lost);
    }
    if !text.is_empty() {
        block.output = Some(text);
    }
    Ok(())
}
