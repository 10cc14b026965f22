//! The set `compact`: `run`, `output`, `input`, `stop`. One tool for each class of permission.

use std::time::Instant;

use ostler_proto::job::{Kind, Row};
use ostler_proto::limits;
use ostler_proto::methods::{OutputPolicy, Reason, Start, Stdin};
use ostler_proto::shell::Send;

use super::answer::Answer;
use super::answer::single;
use super::arguments::{Arguments, is_id};
use super::condition::Until;
use super::fault::Fault;
use super::front::Call;
use super::read::{output, some_ids};
use super::run::{self, OWN, WINDOW, Wanted, is_bare_cd, start_and_wait, told_run};
use super::shells::{self, Untold};
use super::status;
use super::stop::stop;
use super::text::{self};
use super::wait::wait_for;

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
    let until = args.until()?;
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
        return Ok(run::failed(&block, &opened.row));
    }
    let _ = call.front.moved_to(&opened.row.process_id, &cwd);
    call.watch(&opened.row);
    let answer = if line.trim().is_empty() {
        let came = shells::glance(call, &opened.row).await?;
        Ok(single(shells::block(call, &came)))
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
    let mut block = shells::block(call, &came);
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
    let (came, sent) = shells::send(call, &row, ask).await?;
    let mut block = shells::block(call, &came);
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
