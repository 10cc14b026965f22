//! The set `compact`: `run`, `output`, `input`, `stop`. One tool for each class of permission.

use std::time::Instant;

use futures_util::future::{join_all, select_all};
use ostler::follow::Event;
use ostler::{Client, Error};
use ostler_proto::job::{JobResult, Kind, Outcome, Page, Row, Size, State};
use ostler_proto::limits;
use ostler_proto::methods::{
    For, JobDetach, JobList, JobRead, JobRun, JobStart, JobStop, List, OutputPolicy, Read, Reason,
    Receipt, Run, Start, Stdin, Stop, Target, Wait, WaitedJob,
};
use ostler_proto::shell::Send;

use super::answer::{Answer, Block};
use super::arguments::{Arguments, is_id};
use super::condition::Until;
use super::fault::Fault;
use super::front::{Call, ports};
use super::shells::{self, Untold};
use super::text::{self, Share};
use super::{status, words};

/// Window of a terminal.
pub(crate) const WINDOW: Size = Size {
    rows: 40,
    cols: 120,
};

/// How much of a command's own result is shown.
pub(crate) const OWN: Share = Share {
    whole: limits::COMPACT_WHOLE,
    head: limits::COMPACT_HEAD,
    tail: limits::COMPACT_TAIL,
};
/// How much is shown where no cursor is given.
const LOOK: Share = Share {
    whole: limits::COMPACT_READ_WHOLE,
    ..OWN
};

/// Runs a tool of this set.
///
/// # Errors
/// Its words are the result.
pub(crate) async fn call(
    call: &Call<'_>,
    tool: &str,
    map: Option<serde_json::Map<String, serde_json::Value>>,
) -> Result<Answer, Fault> {
    let of = |valid: &[&str]| Arguments::of(map.clone(), valid, false);
    match tool {
        "run" => {
            let args = of(&["command", "cwd", "wait_s", "until", "tty", "shell"])?;
            run(call, &args).await
        }
        "output" => {
            let args = of(&["id", "since", "grep", "until", "wait_s"])?;
            output(call, &args).await
        }
        "input" => {
            let args = of(&["id", "text", "keys", "wait_s"])?;
            input(call, &args).await
        }
        _ => {
            let args = of(&["id"])?;
            let ids = some_ids(&args)?;
            stop(call, &ids).await
        }
    }
}

async fn run(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let command = args.needed("command")?;
    let wait = call.patience(args.wait("wait_s", limits::mcp::COMPACT_WAIT, call.max_wait)?);
    let until = until(args)?;
    if let Some(shell) = args.text("shell")? {
        return in_shell(call, args, shell, command, wait, until.unwrap_or_default()).await;
    }
    if command.trim().is_empty() {
        return Err(Fault::argument("command is empty. Nothing was started."));
    }
    let tty = args.flag("tty")?.unwrap_or(false);
    let start = Start {
        line: Some(command.to_owned()),
        output: OutputPolicy {
            // One reader of both: in the order in which they were printed.
            merge: !tty,
            ..OutputPolicy::default()
        },
        pty: tty.then_some(WINDOW),
        stdin: if tty { Stdin::Open } else { Stdin::Closed },
        ..call.front.start(args.folder("cwd", &call.front.here)?)
    };
    let what = Wanted {
        until: until.unwrap_or_default(),
        wait,
        tty,
    };
    let ran = start_and_wait(call, start, &what).await?;
    let mut answer = told_run(call, &ran, &what, OWN).await?;
    if is_bare_cd(command) {
        let marker = "cd does not outlive this call: use cwd or shell";
        answer.blocks[0].markers.insert(0, marker.into());
    }
    Ok(answer)
}

fn until(args: &Arguments) -> Result<Option<Until>, Fault> {
    let wrong = |why| Fault::argument(format!("{why}. Nothing was started."));
    args.text("until")?
        .map(|text| Until::parse(text).map_err(wrong))
        .transpose()
}

/// A line that changes the directory and does nothing else.
pub(crate) fn is_bare_cd(command: &str) -> bool {
    let mut parts = command.split_whitespace();
    let line = command.contains(['&', ';', '|', '\n', '(', '`']);
    parts.next() == Some("cd") && !line && parts.count() <= 1
}

/// What a run waits for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    pub(crate) until: Until,
    pub(crate) wait: u64,
    /// It has a terminal, and returns when that is waited for.
    pub(crate) tty: bool,
}

/// What came of a run.
pub(crate) struct Ran {
    /// The job, with the ports of its tree.
    pub(crate) result: JobResult,
    /// Why the call returns.
    pub(crate) reason: Reason,
    /// A stranger on the port.
    pub(crate) stranger: Option<ostler_proto::methods::Listener>,
    /// Where the line that matched stands.
    pub(crate) waited: u64,
}

/// Starts a command and waits for what is wanted; from then on it goes on in the background.
pub(crate) async fn start_and_wait(
    call: &Call<'_>,
    start: Start,
    what: &Wanted,
) -> Result<Ran, Fault> {
    let began = Instant::now();
    let client = &call.client;
    let fault = |e: Error| call.fault("", &e);
    if what.wait == 0 {
        let row = client.ask::<JobStart>(start).await.map_err(fault)?;
        let (result, stranger) = (call.get(&row.process_id).await?, None);
        let reason = if row.is_over() {
            Reason::Exit
        } else {
            Reason::WaitOver
        };
        return Ok(Ran {
            result,
            reason,
            stranger,
            waited: 0,
        });
    }
    let mut stream = client.stream::<JobRun>(Run {
        start,
        pages: Some(false),
        collect: Some(false),
        // A task is known by its job, which no request holds any more.
        wait_ms: Some(call.task_after.unwrap_or(what.wait).min(what.wait)),
        ..Run::default()
    });
    let row = loop {
        match stream.next().await.map_err(fault)? {
            Event::Started(row) => break row,
            Event::End(result) => {
                let reason = if result.row.is_over() {
                    Reason::Exit
                } else {
                    Reason::WaitOver
                };
                let result = call.get(&result.row.process_id).await?;
                return Ok(Ran {
                    result,
                    reason,
                    stranger: None,
                    waited: what.wait,
                });
            }
            Event::Page(_) | Event::Happened(_) => {}
        }
    };
    call.watch(&row);
    let process_id = row.process_id.clone();
    let end = async {
        loop {
            if let Event::End(result) = stream.next().await? {
                return Ok::<_, Error>(result);
            }
        }
    };
    let met = met(client, &process_id, what);
    let (reason, stranger) = tokio::select! {
        biased;
        ended = end => {
            let detached = ended.map_err(fault)?.detached;
            let over = if detached { Reason::WaitOver } else { Reason::Exit };
            (over, None)
        }
        met = met => {
            let met = met.map_err(fault)?;
            let target = Target { session: None, id: process_id.clone() };
            client.ask::<JobDetach>(target).await.map_err(fault)?;
            (met.reason, met.stranger)
        }
    };
    let (mut reason, mut stranger) = (reason, stranger);
    if reason == Reason::WaitOver && call.task_after.is_some_and(|after| after < what.wait) {
        let waited = wait_on(client, &process_id, what).await.map_err(fault)?;
        (reason, stranger) = (waited.reason, waited.stranger);
    }
    if reason == Reason::WaitOver && matches!(what.until, Until::Port(_)) {
        stranger = look_for_stranger(client, &process_id, what).await;
    }
    let waited = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let result = call.get(&process_id).await?;
    Ok(Ran {
        result,
        reason,
        stranger,
        waited: waited.min(what.wait),
    })
}

/// What a run to its end answers, of a job that another front end has started.
pub(crate) async fn go_on(call: &Call<'_>, row: &Row) -> Result<Answer, Fault> {
    let what = Wanted {
        wait: limits::WAIT_MAX,
        tty: row.terminal.is_some(),
        ..Wanted::default()
    };
    let mut reason = Reason::Exit;
    if !row.is_over() {
        let waited = wait_on(&call.client, &row.process_id, &what).await;
        reason = waited.map_err(|e| call.fault(&row.id, &e))?.reason;
    }
    let ran = Ran {
        result: call.get(&row.process_id).await?,
        reason,
        stranger: None,
        waited: 0,
    };
    told_run(call, &ran, &what, OWN).await
}

/// Waits on for a job that no request holds any more.
async fn wait_on(client: &Client, process_id: &str, what: &Wanted) -> Result<WaitedJob, Error> {
    let end = shells::await_input(client, process_id, For::Exit, Some(what.wait));
    tokio::select! {
        biased;
        ended = end => ended,
        met = met(client, process_id, what) => met,
    }
}

/// Waits until what is wanted besides the end has come; the end itself is told by the run.
async fn met(client: &Client, process_id: &str, what: &Wanted) -> Result<WaitedJob, Error> {
    let wanted = match &what.until {
        Until::Exit if what.tty => For::Input,
        Until::Exit => std::future::pending().await,
        other => other.on_wire(),
    };
    let waited = shells::await_input(client, process_id, wanted, None).await?;
    if waited.reason == Reason::EndedBefore {
        return std::future::pending().await;
    }
    Ok(waited)
}

/// Who holds the port that was waited for in vain.
async fn look_for_stranger(
    client: &Client,
    process_id: &str,
    what: &Wanted,
) -> Option<ostler_proto::methods::Listener> {
    let waited = shells::await_input(client, process_id, what.until.on_wire(), Some(0)).await;
    waited.ok()?.stranger
}

/// What is said of a run.
pub(crate) async fn told_run(
    call: &Call<'_>,
    ran: &Ran,
    what: &Wanted,
    share: Share,
) -> Result<Answer, Fault> {
    let row = &ran.result.row;
    let mut block = status::block(row, &ports(row), super::now());
    if status::never_ran(row) {
        return Ok(failed(&block, row));
    }
    if let Some((grid, marker)) = shells::screen(call, row).await? {
        block.output = Some(grid);
        block.markers.push(marker);
        block.next = Some(row.output.end);
    } else {
        shells::add_output(call, &mut block, row, 0, None, share).await?;
    }
    add_reason(&mut block, ran, what);
    if row.is_over() && block.cut.is_some() {
        block.facts.push(format!("{} bytes", row.output.end));
    }
    block.hint = next_step(call, row, &block, ran.reason, true);
    Ok(Answer {
        keeps_tail: true,
        ..single(block)
    })
}

/// A job that never ran is an error: words and nothing else.
fn failed(block: &Block, row: &Row) -> Answer {
    let all = block
        .facts
        .iter()
        .fold(block.phrase.clone(), |l, f| l + "; " + f);
    Answer::never_ran(format!("[{all}]"), &row.process_id)
}

/// One job, and what to do next.
pub(crate) fn single(block: Block) -> Answer {
    Answer {
        hint: block.hint.clone(),
        blocks: vec![block],
        ..Answer::default()
    }
}

/// Why the call returned, where that is not plain from what is true of the job.
fn add_reason(block: &mut Block, ran: &Ran, what: &Wanted) {
    // Who does not wait is told nothing of why that is over.
    block.why = shells::why(ran.reason).filter(|_| what.wait > 0 || ran.reason == Reason::Exit);
    let is_over = ran.result.row.is_over();
    match ran.reason {
        Reason::WaitOver if !is_over => {
            if let Some(stranger) = &ran.stranger {
                block.facts.push(taken(stranger));
                note(block, &taken(stranger));
            } else if what.until != Until::Exit && what.wait > 0 {
                let fact = format!(
                    "waited {} for {}",
                    words::limit(ran.waited),
                    what.until.name()
                );
                note(block, &fact);
                block.facts.push(fact);
            }
        }
        Reason::InputWait | Reason::Prompt if !is_over => {
            block.phrase = format!("{} waits for input", block.id);
            block.facts.clear();
        }
        _ if is_over && what.until != Until::Exit => {
            let fact = format!("ended before {}", what.until.name());
            note(block, &fact);
            block.facts.push(fact);
        }
        _ => {}
    }
}

/// A fact that has no field of its own.
fn note(block: &mut Block, fact: &str) {
    let note = block.note.get_or_insert_default();
    if !note.is_empty() {
        note.push_str("; ");
    }
    note.push_str(fact);
}

/// `port 3000 belongs to another process (node, pid 811)`.
fn taken(stranger: &ostler_proto::methods::Listener) -> String {
    let who = match stranger.pid {
        0 => "of another user".to_owned(),
        pid => format!("{}, pid {pid}", words::one_line(&stranger.program)),
    };
    format!("port {} belongs to another process ({who})", stranger.port)
}

/// What to call next. `is_new`: the result that makes the job known.
fn next_step(
    call: &Call<'_>,
    row: &Row,
    block: &Block,
    reason: Reason,
    is_new: bool,
) -> Option<String> {
    let names = call.front.names;
    let id = &row.id;
    if row.is_over() {
        return block
            .cut
            .is_some()
            .then(|| format!("{}{id} grep=REGEX", names.read));
    }
    if matches!(reason, Reason::InputWait | Reason::Prompt) {
        return is_new.then(|| format!("{}{id}", names.input));
    }
    let since = block.next.unwrap_or(row.output.end);
    Some(format!("{}{id} since={since}", names.read))
}

/// Runs a line in a shell that stays.
async fn in_shell(
    call: &Call<'_>,
    args: &Arguments,
    shell: &str,
    line: &str,
    wait: u64,
    until: Until,
) -> Result<Answer, Fault> {
    let began = Instant::now();
    if shell != "new" {
        if args.has("cwd") {
            return Err(Fault::argument(format!(
                "cwd does not go with shell {shell}: cd there in the command. Nothing was started."
            )));
        }
        let row = call.row(shell).await?;
        shells::check_open(&row, call)?;
        if line.trim().is_empty() {
            return Err(Fault::argument("command is empty. Nothing was started."));
        }
        return line_in(call, &row, line, wait, until).await;
    }
    let cwd = args.folder("cwd", &call.front.here)?;
    let patience = shells::first_prompt(wait);
    let window = (WINDOW.rows, WINDOW.cols);
    let opened = shells::open(call, None, cwd.clone(), None, window, patience).await?;
    let untold = Untold::new(&call.client, &opened.row);
    if status::never_ran(&opened.row) {
        untold.tell();
        let block = status::block(&opened.row, &[], super::now());
        return Ok(failed(&block, &opened.row));
    }
    let _ = call.front.moved_to(&opened.row.process_id, &cwd);
    call.watch(&opened.row);
    let answer = if line.trim().is_empty() {
        let came = shells::glance(call, &opened.row).await?;
        Ok(single(shells::block(call, &came, wait)))
    } else {
        let spent = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        line_in(call, &opened.row, line, wait.saturating_sub(spent), until).await
    };
    untold.tell();
    answer
}

async fn line_in(
    call: &Call<'_>,
    row: &Row,
    line: &str,
    wait: u64,
    until: Until,
) -> Result<Answer, Fault> {
    call.watch(row);
    let running = shells::exec(call, row, line, wait);
    let since = row.output.end;
    let what = Wanted {
        until,
        wait,
        tty: false,
    };
    let wanted = async {
        if what.until == Until::Exit {
            return std::future::pending().await;
        }
        wait_for(
            &call.client,
            &row.process_id,
            what.until.on_wire(),
            since,
            None,
        )
        .await
    };
    let (came, met) = tokio::select! {
        biased;
        came = running => (came?, None),
        met = wanted => {
            let met = met.map_err(|e| call.fault(&row.id, &e))?;
            // The line goes on; what has come of it so far is what is seen now.
            let mut came = shells::glance(call, &met.row).await?;
            if !matches!(came.reason, Reason::Prompt | Reason::Exit) {
                came.reason = Reason::WaitOver;
            }
            (came, Some(met))
        }
    };
    let mut block = shells::block(call, &came, wait);
    let (from, to) = came.output;
    shells::add_output(call, &mut block, &came.row, from, Some(to), OWN).await?;
    if let Some(met) = met {
        block.why = shells::why(met.reason);
        block.ports.extend(met.listener.map(|l| l.port));
        block.facts.extend(status::listening(&block.ports));
    }
    if block.cut.is_some() && came.reason == Reason::Prompt {
        block.hint = Some(format!("{}{} grep=REGEX", call.front.names.read, row.id));
    }
    Ok(Answer {
        keeps_tail: true,
        ..single(block)
    })
}

async fn wait_for(
    client: &Client,
    id: &str,
    what: For,
    since: u64,
    timeout_ms: Option<u64>,
) -> Result<WaitedJob, Error> {
    let wait = Wait {
        ids: vec![id.to_owned()],
        what,
        since,
        timeout_ms,
        ..Wait::default()
    };
    let mut waited = client.wait(wait).await?;
    match waited.jobs.pop() {
        Some(job) => Ok(job),
        None => Err(Error::Protocol("a wait without a job".into())),
    }
}

fn some_ids(args: &Arguments) -> Result<Vec<String>, Fault> {
    let ids = args.ids("id")?;
    if ids.is_empty() {
        return Err(Fault::argument("id is missing: t1, or several: t1,s1."));
    }
    Ok(ids)
}

async fn output(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let ids = args.ids("id")?;
    let since = args.whole("since")?;
    let grep = args.text("grep")?;
    let until = until(args)?;
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
    let mut block = shells::block(call, &came, looked.wait);
    let waits_for_end = looked.waited.is_some() && *looked.until == Until::Exit;
    if let Some(waited) = &looked.waited {
        block.why = shells::why(waited.reason);
    }
    if let Some(line) = line.as_ref().filter(|_| came.reason == Reason::Prompt) {
        // Its end is told here.
        call.front.end_line(&row.process_id, line);
        call.front.ledger.forget_own(&row.process_id);
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
    shells::put(block, page);
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

/// All jobs: live ones first, then the newest ended.
pub(crate) async fn list(call: &Call<'_>) -> Result<Answer, Fault> {
    let all = List {
        session: call.session.clone(),
        ..List::default()
    };
    let table = call.client.ask::<JobList>(all).await;
    let rows = table.map_err(|e| call.fault("", &e))?.jobs;
    let total = rows.len();
    let mut live = Vec::new();
    let mut blocks = Vec::new();
    for row in rows.iter().take(limits::mcp::COMPACT_ROWS) {
        blocks.push(list_row(call, row).await);
    }
    for row in &rows {
        if !row.is_over() {
            live.push(row.id.clone());
        }
    }
    let mut last = match total {
        0 => "no jobs".to_owned(),
        1 => "1 job".into(),
        n => format!("{n} jobs"),
    };
    if !live.is_empty() {
        last += &format!("; live: {}", live.join(", "));
    }
    if total > limits::mcp::COMPACT_ROWS {
        last = format!("{} more]\n[{last}", total - limits::mcp::COMPACT_ROWS);
    }
    Ok(Answer {
        blocks,
        list: Some(last),
        ..Answer::default()
    })
}

/// `t1 running 12m22s; port 18765: COMMAND`.
pub(crate) async fn list_row(call: &Call<'_>, row: &Row) -> Block {
    // Of a living one it is looked where it listens.
    let looked = match row.is_over() {
        true => None,
        false => call.row(&row.process_id).await.ok(),
    };
    let row = looked.as_ref().unwrap_or(row);
    let mut block = if row.kind == Kind::Shell && !row.is_over() {
        match shells::glance(call, row).await {
            Ok(came) => {
                let mut block = shells::block(call, &came, 0);
                if came.reason == Reason::Prompt {
                    block.facts.clear();
                    block.code = None;
                    block.seconds = None;
                }
                block
            }
            Err(_) => status::block(row, &[], super::now()),
        }
    } else {
        status::block(row, &ports(row), super::now())
    };
    let command = words::command(row);
    let facts = block
        .facts
        .iter()
        .fold(block.phrase.clone(), |l, f| l + "; " + f);
    block.phrase = words::cut(&format!("{facts}: {command}"), limits::mcp::COMPACT_ROW);
    block.kind = match row.kind {
        Kind::Command => Some("command"),
        Kind::Shell => Some("shell"),
        Kind::Agent => Some("agent"),
        Kind::Send => None,
    };
    block.command = Some(words::cut(&command, limits::mcp::COMPACT_ROW));
    block.hint = None;
    block.note = None;
    block.is_row = true;
    block
}

async fn input(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let id = args.needed("id")?;
    let text = args.text("text")?.unwrap_or_default();
    let keys = args.text("keys")?.unwrap_or_default();
    let keys: Vec<String> = keys.split_whitespace().map(str::to_owned).collect();
    let wait = args.wait("wait_s", limits::mcp::COMPACT_INPUT_WAIT, call.max_wait)?;
    let row = call.row(id).await?;
    if row.kind == Kind::Shell {
        shells::check_open(&row, call)?;
    }
    if row.terminal.is_none() || !is_id(id) {
        return Err(Fault::no_terminal(&row.id, call.front.names));
    }
    call.watch(&row);
    let ask = Send {
        id: row.process_id.clone(),
        text: text.to_owned(),
        keys: keys.clone(),
        timeout_ms: Some(wait.max(1)),
        max: Some(limits::COMPACT_WHOLE),
        ..Send::default()
    };
    let (came, sent) = shells::send(call, &row, ask).await.map_err(wrong_key)?;
    let mut block = shells::block(call, &came, wait);
    if let Some((grid, marker)) = shells::screen(call, &came.row).await? {
        block.output = Some(grid);
        block.markers.insert(0, marker);
    } else {
        let shown = text::without_echo(&sent.text, text);
        if sent.truncated {
            block.cut = Some((sent.next - sent.from).saturating_sub(shown.len() as u64));
        }
        if !shown.is_empty() {
            block.output = Some(shown.to_owned());
        }
    }
    block.next = Some(sent.next);
    if came.reason == Reason::WaitOver && block.hint.is_none() {
        block.hint = Some(format!(
            "{}{} since={}",
            call.front.names.read, row.id, sent.next
        ));
    }
    Ok(Answer {
        keeps_tail: true,
        ..single(block)
    })
}

/// The supervisor knows the names of keys; nothing was sent.
fn wrong_key(fault: Fault) -> Fault {
    if fault.kind == "bad_argument" {
        let words = fault
            .words
            .replace(" Nothing was started.", " Nothing was sent.");
        return Fault { words, ..fault };
    }
    fault
}

/// Ends jobs with everything that they started.
pub(crate) async fn stop(call: &Call<'_>, ids: &[String]) -> Result<Answer, Fault> {
    let rows = join_all(ids.iter().map(|id| call.row(id))).await;
    let rows = rows.into_iter().collect::<Result<Vec<Row>, Fault>>()?;
    let client = call.client.clone();
    let asked: Vec<String> = rows.iter().map(|r| r.process_id.clone()).collect();
    // Their ends need no notice: this result tells them, or the call that was cancelled wanted them.
    let live = rows.iter().filter(|r| !r.is_over());
    live.for_each(|r| call.front.ledger.ended_by_us(&r.process_id));
    let stop = Stop {
        ids: asked.clone(),
        ..Stop::default()
    };
    // It goes on when the call is cancelled.
    let stopping = tokio::spawn(async move { client.ask::<JobStop>(stop).await });
    let most = call.most();
    let receipts = match tokio::time::timeout(most, stopping).await {
        Ok(Ok(summary)) => summary.map_err(|e| call.fault(&ids[0], &e))?.jobs,
        Ok(Err(_)) => return Err(Fault::new("internal", "the stop broke off")),
        Err(_) => Vec::new(),
    };
    let own = call.own_session().await;
    let mut blocks = Vec::new();
    let mut is_error = false;
    for row in &rows {
        let receipt = receipts.iter().find(|r| r.row.process_id == row.process_id);
        match receipt {
            Some(receipt) => {
                is_error |= !receipt.survivors.is_empty();
                let mut block = stopped(call, row, receipt);
                if row.kind == Kind::Agent {
                    block.facts.extend(left_running(receipt, own.as_deref()));
                }
                blocks.push(block);
            }
            None => {
                let row = call.row(&row.process_id).await?;
                blocks.push(status::block(&row, &[], super::now()));
            }
        }
    }
    Ok(Answer {
        blocks,
        is_error,
        ..Answer::default()
    })
}

/// What a sub-agent had started goes on, and belongs to this session unless another one is named.
fn left_running(receipt: &Receipt, own: Option<&str>) -> Option<String> {
    let short = |name: &String| match name.rsplit_once('/') {
        Some((session, id)) if Some(session) == own => id.to_owned(),
        _ => name.clone(),
    };
    let names: Vec<String> = receipt.left_running.iter().map(short).collect();
    (!names.is_empty()).then(|| format!("its commands go on: {}", names.join(", ")))
}

/// The receipt of a stop.
fn stopped(call: &Call<'_>, before: &Row, receipt: &Receipt) -> Block {
    let row = &receipt.row;
    let front = call.front;
    let mut block = status::block(row, &[], super::now());
    if !receipt.survivors.is_empty() {
        let all: Vec<String> = receipt
            .survivors
            .iter()
            .map(|s| format!("{} {}", s.pid, words::one_line(&s.program)))
            .collect();
        let n = words::processes(all.len() as u64);
        let remain = if all.len() == 1 { "remains" } else { "remain" };
        block.phrase = format!("{} stopped", row.id);
        block.facts = vec![format!("{n} {remain}: {}", all.join(", "))];
        block.note = Some(block.facts[0].clone());
        return block;
    }
    let was_stopped = row.outcome == Some(Outcome::Stopped);
    if receipt.already_finished && !was_stopped {
        block.phrase = match (row.outcome, row.exit_code) {
            (Some(Outcome::Exited), Some(code)) => format!("{} had exited {code}", row.id),
            _ => format!("{} had ended", row.id),
        };
        block.facts = vec!["nothing to stop".into()];
        block.note = Some("nothing to stop".into());
        block.seconds = None;
        return block;
    }
    if !receipt.already_finished {
        front.note_ended(&row.process_id, receipt.ended);
    }
    if let Some(ended) = front.ended(&row.process_id) {
        block.facts = vec![format!("{} ended", words::processes(ended.into()))];
        block.note = Some(block.facts[0].clone());
    }
    if before.kind == Kind::Shell {
        block.seconds = None;
    }
    block
}
