//! A command under way as the sets wait for it and tell it.

use std::time::Instant;

use ostler::follow::Event;
use ostler::{Client, Error};
use ostler_proto::job::{JobResult, Row, Size};
use ostler_proto::limits;
use ostler_proto::methods::{
    For, JobDetach, JobRun, JobStart, Reason, Run, Start, Target, WaitedJob,
};

use super::answer::{Answer, Block, single};
use super::condition::Until;
use super::fault::Fault;
use super::front::{Call, ports};
use super::shells;
use super::text::Share;
use super::wait::wait_for;
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
    let end = wait_for(client, process_id, For::Exit, 0, Some(what.wait));
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
    let waited = wait_for(client, process_id, wanted, 0, None).await?;
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
    let waited = wait_for(client, process_id, what.until.on_wire(), 0, Some(0)).await;
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
pub(super) fn failed(block: &Block, row: &Row) -> Answer {
    let all = block
        .facts
        .iter()
        .fold(block.phrase.clone(), |l, f| l + "; " + f);
    Answer::never_ran(format!("[{all}]"), &row.process_id)
}

/// Why the call returned, where that is not plain from what is true of the job.
pub(super) fn add_reason(block: &mut Block, ran: &Ran, what: &Wanted) {
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
pub(super) fn note(block: &mut Block, fact: &str) {
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
pub(super) fn next_step(
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
