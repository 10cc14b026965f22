//! The set `epoch`: one-shot commands, background tasks and shells as three families, for agents that know those names.

use futures_util::future::join_all;
use ostler::Error;
use ostler_proto::job::{Kind, Outcome, Row};
use ostler_proto::limits;
use ostler_proto::methods::{
    For, JobStart, List, OnLimit, OutputPolicy, Reason, ShellClose, ShellList, Start, Stdin, Target,
};
use ostler_proto::shell::Send;

use super::answer::{Answer, Block, single};
use super::arguments::Arguments;
use super::fault::Fault;
use super::front::{Call, ports};
use super::run::{WINDOW, Wanted, is_bare_cd, start_and_wait, told_run};
use super::shells::{self, Untold};
use super::text::{self, Share, Text};
use super::wait::wait_for;
use super::{list, stop};
use super::{sandbox, status, words};

/// How much of a command's own result is shown.
pub(crate) fn own() -> Share {
    Share {
        whole: limits::result_whole(),
        head: limits::result_ends(),
        tail: limits::result_ends(),
    }
}

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
    let answer = match tool {
        "terminal" => {
            let args = of(&[
                "command",
                "background",
                "pty",
                "stdin",
                "workdir",
                "sandbox_permissions",
                "justification",
            ])?;
            terminal(call, &args).await?
        }
        "task_list" => {
            of(&[])?;
            return list::list(call).await;
        }
        "task_output" => {
            let args = of(&["id", "since"])?;
            output(call, &args, None).await?
        }
        "task_wait" => {
            let args = of(&["id", "timeoutMs"])?;
            return wait(call, &args).await;
        }
        "task_stop" => {
            let args = of(&["id"])?;
            let id = args.needed("id")?.to_owned();
            return stop(call, &id).await;
        }
        "shell_open" => {
            let args = of(&["workdir", "sandbox_permissions", "justification"])?;
            open(call, &args).await?
        }
        "shell_send" => {
            let args = of(&["id", "input", "wait"])?;
            send(call, &args).await?
        }
        "shell_read" => {
            let args = of(&["id", "since"])?;
            output(call, &args, Some(Kind::Shell)).await?
        }
        "shell_list" => {
            of(&[])?;
            return shell_list(call).await;
        }
        _ => {
            let args = of(&["id"])?;
            let id = args.needed("id")?.to_owned();
            a_shell(call, &id).await?;
            return stop(call, &id).await;
        }
    };
    let untrusted = answer.blocks.iter().any(|b| b.output.is_some());
    Ok(Answer {
        untrusted,
        ..answer
    })
}

async fn terminal(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let command = args.needed("command")?;
    if command.trim().is_empty() {
        return Err(Fault::argument("command is empty. Nothing was started."));
    }
    sandbox::check(args)?;
    let pty = args.flag("pty")?.unwrap_or(false);
    let stdin = args.text("stdin")?;
    if pty && stdin.is_some() {
        return Err(Fault::argument(
            "stdin does not go with pty. Nothing was started.",
        ));
    }
    let start = Start {
        line: Some(command.to_owned()),
        output: OutputPolicy {
            merge: !pty,
            max_bytes: Some(limits::mcp::EPOCH_OUTPUT),
            on_limit: OnLimit::Stop,
            ..OutputPolicy::default()
        },
        pty: pty.then_some(WINDOW),
        stdin: stdin.map_or(Stdin::Closed, |text| Stdin::Text(text.to_owned())),
        ..call
            .front
            .start(sandbox::folder(args, "workdir", &call.front.here)?)
    };
    if args.flag("background")?.unwrap_or(false) {
        return in_background(call, start).await;
    }
    let what = Wanted {
        wait: call.max_wait,
        ..Wanted::default()
    };
    let ran = start_and_wait(call, start, &what).await?;
    let mut answer = told_run(call, &ran, &what, own()).await?;
    let row = &ran.result.row;
    for block in &mut answer.blocks {
        finish(block, row);
        if is_bare_cd(command) {
            let marker = "cd does not outlive this call: use workdir or shell_open";
            block.markers.insert(0, marker.into());
        }
    }
    Ok(answer)
}

/// How a foreground result of this set ends: the id last, and where the rest is.
fn finish(block: &mut Block, row: &Row) {
    mark_limit(block, row);
    if let Some(cut) = block.cut {
        let rest = match status::whole_output(row) {
            Some(path) => format!("whole output: {path}"),
            None => format!("read on: task_output id={} since={}", row.id, block.head),
        };
        block.cut_words = Some(format!("{cut} bytes left out; {rest}"));
        block.hint = None;
    }
    if row.is_over() {
        block.id_last = true;
    }
}

/// It printed more than it may; the words are the same wherever that is seen.
fn mark_limit(block: &mut Block, row: &Row) {
    if row.outcome == Some(Outcome::OutputLimit) {
        let most = limits::mcp::EPOCH_OUTPUT;
        block
            .markers
            .push(format!("output limit: {most} bytes; killed"));
    }
}

async fn in_background(call: &Call<'_>, start: Start) -> Result<Answer, Fault> {
    let row = call.client.ask::<JobStart>(start).await;
    let row = row.map_err(|e| call.fault("", &e))?;
    if status::never_ran(&row) {
        let block = status::block(&row, &[], super::now());
        return Ok(Answer::never_ran(
            format!("[{}]", block.phrase),
            &row.process_id,
        ));
    }
    let id = &row.id;
    let mut block = status::block(&row, &[], super::now());
    block.phrase = format!("{id} started");
    block.facts = vec![
        format!("read it: task_output id={id}"),
        format!("end it: task_stop id={id}"),
    ];
    let hint = Some(format!("task_output id={id}"));
    Ok(Answer {
        hint,
        ..single(block)
    })
}

/// A page of a job, or of a shell.
async fn output(call: &Call<'_>, args: &Arguments, kind: Option<Kind>) -> Result<Answer, Fault> {
    let id = args.needed("id")?;
    let since = args.whole("since")?;
    let row = match kind {
        Some(_) => a_shell(call, id).await?,
        None => call.row(id).await?,
    };
    let text = read(call, &row, since).await?;
    let mut block = of_now(call, &row).await?;
    add_page(&mut block, &row, since, text);
    mark_limit(&mut block, &row);
    Ok(Answer {
        keeps_tail: since.is_none(),
        ..single(block)
    })
}

async fn read(call: &Call<'_>, row: &Row, since: Option<u64>) -> Result<Text, Fault> {
    let text = match since {
        Some(since) => text::page_from(&call.client, row, since, call.front.page).await,
        None => text::newest(&call.client, row).await,
    };
    text.map_err(|e| call.fault(&row.id, &e))
}

/// What is true of a job, and of a shell's prompt.
async fn of_now(call: &Call<'_>, row: &Row) -> Result<Block, Fault> {
    if row.kind == Kind::Shell && !row.is_over() {
        let came = shells::glance(call, row).await?;
        let mut block = shells::block(call, &came);
        block.hint = None;
        block.why = None;
        return Ok(block);
    }
    Ok(status::block(row, &ports(row), super::now()))
}

/// Puts a page into what is said of a job; nothing is said to be nothing.
fn add_page(block: &mut Block, row: &Row, since: Option<u64>, text: Text) {
    if let Some(asked) = since
        && text.from != asked
    {
        block.since = Some(text.from);
    }
    let next = text.next;
    let is_empty = text.output.is_empty();
    shells::put(block, row, text);
    if is_empty {
        let words = match since {
            _ if row.is_over() && row.output.end == 0 => "no retained output",
            None | Some(0) => "no output yet",
            Some(_) => "no new output",
        };
        block.markers.push(words.into());
    }
    block.facts.push(format!("since={next}"));
    block.hint = None;
}

async fn wait(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let id = args.needed("id")?;
    let asked = args.whole("timeoutMs")?.unwrap_or(limits::mcp::EPOCH_WAIT);
    let timeout = asked.min(limits::mcp::EPOCH_WAIT_MAX).min(call.max_wait);
    let row = call.row(id).await?;
    if row.kind == Kind::Shell && !row.is_over() {
        let mut block = status::block(&row, &[], super::now());
        block.phrase = format!("{} is a shell: it has no end to wait for", row.id);
        block.facts.clear();
        return Ok(single(block));
    }
    call.watch(&row);
    let waited = wait_for(&call.client, &row.process_id, For::Exit, 0, Some(timeout)).await;
    let waited = waited.map_err(|e| call.fault(&row.id, &e))?;
    let row = &waited.row;
    let mut block = status::block(row, &[], super::now());
    block.why = shells::why(waited.reason);
    mark_limit(&mut block, row);
    if row.is_over() {
        block
            .facts
            .push(format!("read it: task_output id={}", row.id));
    } else {
        let took = words::took(status::elapsed(row, super::now()));
        block.phrase = format!("{} still running {took}", row.id);
        block.facts = vec!["the wait is over, the job goes on".into()];
    }
    let hint = Some(format!("task_output id={}", row.id));
    Ok(Answer {
        hint,
        ..single(block)
    })
}

/// Stops a job; a shell is closed, and its record goes.
pub(crate) async fn stop(call: &Call<'_>, id: &str) -> Result<Answer, Fault> {
    let row = call.row(id).await?;
    let mut answer = stop::stop(call, std::slice::from_ref(&row.process_id)).await?;
    if row.kind == Kind::Shell && !answer.is_error {
        let target = Target {
            session: None,
            id: row.process_id.clone(),
        };
        let closed = call.client.ask::<ShellClose>(target).await;
        closed.map_err(|e| call.fault(id, &e))?;
        for block in &mut answer.blocks {
            block.phrase = format!("{} closed", row.id);
        }
    }
    Ok(answer)
}

async fn open(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    sandbox::check(args)?;
    let cwd = sandbox::folder(args, "workdir", &call.front.here)?;
    let window = limits::SHELL_WINDOW;
    let patience = limits::first_output();
    let opened = shells::open(call, Some("sh"), cwd.clone(), None, window, patience).await?;
    let untold = Untold::new(&call.client, &opened.row);
    let row = &opened.row;
    let mut block = status::block(row, &[], super::now());
    if status::never_ran(row) || row.is_over() {
        untold.tell();
        return Ok(Answer::never_ran(
            format!("[{}]", block.phrase),
            &row.process_id,
        ));
    }
    let _ = call.front.moved_to(&row.process_id, &cwd);
    let place = match std::path::Path::new(&cwd).strip_prefix(&call.front.here) {
        Ok(rest) if !rest.as_os_str().is_empty() => rest.display().to_string(),
        _ => "the workspace".into(),
    };
    block.phrase = format!("{} open", row.id);
    block.facts = vec![format!("sh in {place}")];
    block.note = Some(block.facts[0].clone());
    if !opened.ready {
        block.facts.push("not ready yet".into());
        block.note = Some(block.facts.join("; "));
    }
    block.seconds = None;
    let shown = opened.text.trim_end();
    if !shown.is_empty() {
        block.output = Some(opened.text.clone());
    }
    let hint = Some(format!("shell_send id={}", row.id));
    untold.tell();
    Ok(Answer {
        hint,
        ..single(block)
    })
}

async fn a_shell(call: &Call<'_>, id: &str) -> Result<Row, Fault> {
    let row = call.row(id).await?;
    if row.kind != Kind::Shell {
        return Err(Fault::argument(format!(
            "{} is no shell: shell_list lists yours.",
            row.id
        )));
    }
    Ok(row)
}

async fn send(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let id = args.needed("id")?;
    let input = args.needed("input")?;
    let wait = args.whole("wait")?.unwrap_or(limits::mcp::EPOCH_SEND_WAIT);
    let wait = wait.min(limits::mcp::EPOCH_SEND_MAX).min(call.max_wait);
    let row = a_shell(call, id).await?;
    shells::check_open(&row, call)?;
    call.watch(&row);
    let ask = Send {
        id: row.process_id.clone(),
        text: input.to_owned(),
        timeout_ms: Some(wait.max(1)),
        ..Send::default()
    };
    let (came, sent) = shells::send(call, &row, ask).await?;
    let mut block = shells::block(call, &came);
    block.hint = None;
    if sent.truncated {
        block.cut = Some((sent.next - sent.from).saturating_sub(sent.text.len() as u64));
    }
    block.next = Some(sent.next);
    if sent.text.is_empty() {
        block.markers.push("no new output".into());
    } else {
        block.output = Some(sent.text);
    }
    if matches!(came.reason, Reason::WaitOver) && !came.half {
        block.facts.push("the wait is over, it goes on".into());
    }
    block.facts.push(format!("since={}", sent.next));
    Ok(Answer {
        keeps_tail: true,
        ..single(block)
    })
}

async fn shell_list(call: &Call<'_>) -> Result<Answer, Fault> {
    let table = call.client.ask::<ShellList>(List::default()).await;
    let shells = table.map_err(|e: Error| call.fault("", &e))?.shells;
    let rows = shells.iter().map(|s| list::list_row(call, &s.row));
    let blocks: Vec<Block> = join_all(rows).await;
    let live: Vec<&str> = shells
        .iter()
        .filter(|s| !s.row.is_over())
        .map(|s| s.row.id.as_str())
        .collect();
    let mut last = match blocks.len() {
        0 => "no terminals".to_owned(),
        1 => "1 shell".into(),
        n => format!("{n} shells"),
    };
    if !live.is_empty() {
        last += &format!("; live: {}", live.join(", "));
    }
    Ok(Answer {
        blocks,
        list: Some(last),
        ..Answer::default()
    })
}
