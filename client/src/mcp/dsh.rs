//! The set `dsh`: bash, background jobs and terminals under the names, fields and last lines of another harness. Unknown
//! arguments are ignored, as there.

use std::sync::Arc;

use ostler_proto::id;
use ostler_proto::job::{JobResult, Kind, Outcome, Row, State};
use ostler_proto::limits;
use ostler_proto::methods::{
    For, JobList, JobSignal, JobStart, JobStop, List, Reason, ShellClose, ShellRead, ShellSend,
    SignalJob, Start, Stop, Target,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{ReadShell, Send};
use serde_json::{Map, Value, json};

use super::answer::{Answer, Plain};
use super::arguments::Arguments;
use super::fault::Fault;
use super::front::Call;
use super::names::DSH;
use super::run::{Wanted, start_and_wait};
use super::shells::{self, Untold};
use super::wait::wait_for;
use super::{sandbox, status, text, words};

/// Window of a terminal.
const WINDOW: (u16, u16) = (40, 160);

/// Names before the present ones.
const OLD: [(&str, &str); 3] = [
    ("task_output", "job_output"),
    ("task_list", "job_list"),
    ("task_kill", "job_kill"),
];

/// Today's name of a tool.
pub(crate) fn today(name: &str) -> &str {
    let old = OLD.iter().find(|(old, _)| *old == name);
    old.map_or(name, |(_, new)| new)
}

/// Runs a tool of this set.
///
/// # Errors
/// Its words are the result.
pub(crate) async fn call(
    call: &Call<'_>,
    tool: &str,
    map: Option<Map<String, Value>>,
) -> Result<Answer, Fault> {
    let args = Arguments::of(map, &[], true)?;
    match today(tool) {
        "bash" => bash(call, &args).await,
        "job_output" => job_output(call, &args).await,
        "job_list" => job_list(call).await,
        "job_kill" => job_kill(call, &args).await,
        "terminal_open" => open(call, &args).await,
        "terminal_send" => send(call, &args).await,
        "terminal_read" => read(call, &args).await,
        "terminal_signal" => signal(call, &args).await,
        "terminal_close" => close(call, &args).await,
        _ => terminals(call).await,
    }
}

/// An answer with last lines of its own.
fn plain(body: String, last: Vec<String>, fields: &'static [&'static str], json: Value) -> Answer {
    Answer {
        plain: Some(Plain {
            body,
            last,
            fields,
            is_marked: false,
        }),
        json: Some(json),
        keeps_tail: true,
        ..Answer::default()
    }
}

/// Takes down in a result what it says of these rows: that they have ended, or not.
fn of_rows<'a>(mut answer: Answer, rows: impl IntoIterator<Item = &'a Row>) -> Answer {
    for row in rows {
        let list = match row.is_over() {
            true => &mut answer.ended,
            false => &mut answer.live,
        };
        list.push(row.process_id.clone());
    }
    answer
}

fn text_of<'a>(args: &'a Arguments, name: &str) -> Result<&'a str, Fault> {
    let text = args.needed(name)?;
    if text.trim().is_empty() {
        return Err(Fault::argument(format!(
            "{name} is empty. Nothing was started."
        )));
    }
    Ok(text)
}

fn time(args: &Arguments, name: &str, (default, most): (u64, u64)) -> Result<u64, Fault> {
    match args.number(name)? {
        None => Ok(default),
        Some(n) if n < 1.0 => Err(Fault::argument(format!(
            "{name} must be 1 or more. Nothing was started."
        ))),
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "1 or more; what is too large is cut to the bound"
        )]
        Some(n) => Ok((n.min(1e12) as u64).min(most)),
    }
}

async fn bash(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let command = text_of(args, "command")?;
    text_of(args, "description")?;
    sandbox::check(args)?;
    let background = args.flag("run_in_background")?.unwrap_or(false);
    let timeout = time(args, "timeoutMs", limits::mcp::DSH_TIMEOUT)?;
    let start = Start {
        args: ["bash", "-c", command].map(String::from).into(),
        // What runs in the background has no limit.
        timeout_ms: (!background).then_some(timeout),
        ..call.front.start(args.folder("workdir", &call.front.here)?)
    };
    if background {
        let row = call.client.ask::<JobStart>(start).await;
        let row = row.map_err(|e| call.fault("", &e))?;
        if status::never_ran(&row) {
            return Ok(never_ran(&row));
        }
        return Ok(started(&row));
    }
    let what = Wanted {
        wait: call.max_wait,
        ..Wanted::default()
    };
    let ran = start_and_wait(call, start, &what).await?;
    let row = &ran.result.row;
    if status::never_ran(row) {
        return Ok(never_ran(row));
    }
    if !row.is_over() {
        // Its limit stands.
        return Ok(started(row));
    }
    Ok(of_rows(foreground(&ran.result, timeout), [row]))
}

fn never_ran(row: &Row) -> Answer {
    let block = status::block(row, &[], super::now());
    let all = block.facts.iter().fold(block.phrase, |l, f| l + "; " + f);
    let words = all.replacen(&row.id, &DSH.shown(&row.id), 1);
    Answer::never_ran(format!("[{words}]"), &row.process_id)
}

fn started(row: &Row) -> Answer {
    let id = DSH.shown(&row.id);
    let line =
        format!("[started background job {id}; collect it with job_output, end it with job_kill]");
    let json = json!({"kind": "background", "jobId": id});
    plain(String::new(), vec![line], &[], json)
}

/// What a command printed, both streams apart, and how it ended.
fn foreground(result: &JobResult, timeout: u64) -> Answer {
    let row = &result.row;
    let stdout = super::fold::fold(result.stdout.as_deref().unwrap_or_default()).text;
    let stderr = super::fold::fold(result.stderr.as_deref().unwrap_or_default()).text;
    let truncated = result.stdout_truncated || result.stderr_truncated;
    let mut body = stdout.clone();
    if !stderr.is_empty() {
        if !body.is_empty() && !body.ends_with('\n') {
            body.push('\n');
        }
        body += "[stderr]\n";
        body += &stderr;
    }
    let mut last = Vec::new();
    let mut json = json!({"kind": "foreground", "stdout": stdout, "stderr": stderr});
    if truncated {
        let path = status::whole_output(row);
        json["truncated"] = true.into();
        if let Some(path) = path {
            json["outputPath"] = path.into();
        }
        last.push(format!(
            "[output truncated; full output: {}]",
            path.unwrap_or("unavailable")
        ));
    }
    if row.outcome == Some(Outcome::TimedOut) {
        json["timedOut"] = true.into();
        last.push(format!("[timed out after {timeout} ms]"));
    }
    if let Some(signal) = &row.signal {
        json["signal"] = signal.as_str().into();
        last.push(format!("[signal: {signal}]"));
    } else {
        let code = row.exit_code.unwrap_or(0);
        json["exitCode"] = code.into();
        last.push(format!("[exit code: {code}]"));
    }
    let mut answer = plain(body, last, &["stdout", "stderr"], json);
    if let Some(plain) = &mut answer.plain {
        plain.is_marked = truncated;
    }
    answer
}

/// An id as this set writes it, or as all others do, to the short one.
fn short(text: &str) -> Option<String> {
    const LONG: [(&str, char); 4] = [
        ("pty-send-", 'x'),
        ("subagent-", 'a'),
        ("bash-", 't'),
        ("pty-", 's'),
    ];
    let text = text.trim();
    if id::is_short_id(text) || super::arguments::is_id(text) {
        return Some(text.to_owned());
    }
    LONG.iter().find_map(|(long, letter)| {
        let number = text.strip_prefix(long)?;
        let is_number = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        is_number.then(|| format!("{letter}{number}"))
    })
}

/// A job by the id that was given under today's name or the one before.
async fn job(call: &Call<'_>, args: &Arguments) -> Result<Row, Fault> {
    let name = if args.has("task_id") {
        "task_id"
    } else {
        "job_id"
    };
    let asked = text_of(args, name)?;
    let unknown = || Fault::not_found(asked, DSH);
    let short = short(asked).ok_or_else(unknown)?;
    let row = call.row(&short).await.map_err(|fault| match fault.kind {
        "not_found" => unknown(),
        _ => fault,
    })?;
    // A terminal is no job here.
    if row.kind == Kind::Shell {
        return Err(unknown());
    }
    Ok(row)
}

/// A terminal; one that nobody has and one that somebody else has are alike.
async fn terminal(call: &Call<'_>, args: &Arguments) -> Result<Row, Fault> {
    let asked = text_of(args, "sessionId")?;
    let unknown = || {
        let asked = words::one_line(&words::cut(asked, 60));
        Fault::new(
            "NO_SESSION",
            format!("no terminal {asked}. terminal_list lists yours."),
        )
    };
    let short = short(asked).ok_or_else(unknown)?;
    let row = call.row(&short).await.map_err(|fault| match fault.kind {
        "not_found" | "gone" => unknown(),
        _ => fault,
    })?;
    if row.kind != Kind::Shell {
        return Err(unknown());
    }
    Ok(row)
}

/// `completed`, and more about it.
fn status_of(row: &Row) -> (&'static str, Option<String>) {
    let code = row.exit_code.map(|code| format!("exit code {code}"));
    let Some(outcome) = row.outcome else {
        let word = match row.state {
            State::Stopping => "stopping",
            _ => "running",
        };
        return (word, None);
    };
    match outcome {
        Outcome::Exited => {
            let reason = row.outcome_detail.as_ref().and_then(|d| d.reason.clone());
            ("completed", code.or(reason))
        }
        Outcome::Signaled => ("killed", row.signal.as_ref().map(|s| format!("signal {s}"))),
        Outcome::Stopped => {
            let reason = row.outcome_detail.as_ref().and_then(|d| d.reason.clone());
            ("killed", reason)
        }
        Outcome::IdleReaped => (
            "killed",
            Some(format!("{} without use", status::unused(row))),
        ),
        Outcome::TimedOut => ("killed", Some("timed out".into())),
        Outcome::OutputLimit => ("killed", Some("output limit".into())),
        Outcome::SpawnFailed => ("failed", row.spawn_error.as_ref().map(status::spawn_error)),
        Outcome::SandboxFailed => ("failed", Some("the sandbox did not start".into())),
        Outcome::Lost => ("failed", Some("lost".into())),
    }
}

fn kind_of(row: &Row) -> &'static str {
    match row.kind {
        Kind::Command => "bash",
        Kind::Shell => "pty",
        Kind::Agent => "subagent",
        Kind::Send => "pty-send",
    }
}

fn label(row: &Row) -> String {
    let text = words::cut(&words::command(row), 100);
    if text.is_empty() {
        row.id.clone()
    } else {
        text
    }
}

fn snapshot(row: &Row) -> Value {
    let (status, detail) = status_of(row);
    let mut job = json!({
        "id": DSH.shown(&row.id),
        "kind": kind_of(row),
        "label": label(row),
        "status": status,
        "startedAt": row.started_at,
    });
    if let Some(detail) = detail {
        job["detail"] = detail.into();
    }
    if let Some(at) = row.finished_at {
        job["finishedAt"] = at.max(row.started_at).into();
    }
    job
}

/// `completed, exit code 0`.
fn status_line(row: &Row) -> String {
    match status_of(row) {
        (word, Some(detail)) => format!("{word}, {detail}"),
        (word, None) => word.into(),
    }
}

async fn job_output(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let mut row = job(call, args).await?;
    let timeout = time(args, "timeout_ms", limits::mcp::DSH_WAIT)?.min(call.max_wait);
    if args.flag("wait")?.unwrap_or(false) && !row.is_over() {
        call.watch(&row);
        let waited = wait_for(&call.client, &row.process_id, For::Exit, 0, Some(timeout)).await;
        row = waited.map_err(|e| call.fault(&row.id, &e))?.row;
    }
    // What a sub-agent has said in all is told from its beginning, and again to who asks again.
    let is_final = row.kind == Kind::Agent && row.is_over();
    let reader = match is_final {
        true => format!("{} in all", row.process_id),
        false => row.process_id.clone(),
    };
    let since = call.front.cursor(&reader);
    let page = text::page_from(&call.client, &row, since, call.front.page).await;
    let page = page.map_err(|e| call.fault(&row.id, &e))?;
    let is_told = is_final && page.next >= page.end;
    let next = if is_told { 0 } else { page.next };
    call.front.set_cursor(&reader, next);
    let mut last = Vec::new();
    if page.lost > 0 {
        last.push(format!("[{} bytes before this are lost]", page.lost));
        last.extend(status::not_kept(&row).map(|why| format!("[{why}]")));
    }
    if page.output.is_empty() {
        last.push("[no new output]".into());
    } else if page.next < page.end {
        last.push(format!(
            "[{} more bytes: call job_output again]",
            page.end - page.next
        ));
    }
    last.push(format!(
        "[{} status: {}]",
        DSH.shown(&row.id),
        status_line(&row)
    ));
    let json = json!({"text": page.output, "job": snapshot(&row)});
    Ok(of_rows(plain(page.output, last, &["text"], json), [&row]))
}

async fn rows(call: &Call<'_>) -> Result<Vec<Row>, Fault> {
    let table = call.client.ask::<JobList>(List::default()).await;
    Ok(table.map_err(|e| call.fault("", &e))?.jobs)
}

async fn job_list(call: &Call<'_>) -> Result<Answer, Fault> {
    let rows = rows(call).await?;
    let jobs: Vec<&Row> = rows.iter().filter(|r| r.kind != Kind::Shell).collect();
    let lines: Vec<String> = jobs
        .iter()
        .map(|row| {
            let line = format!(
                "{} {} {}: {}",
                DSH.shown(&row.id),
                kind_of(row),
                status_line(row),
                label(row)
            );
            words::cut(&line, 120) + "\n"
        })
        .collect();
    let live: Vec<String> = jobs
        .iter()
        .filter(|r| !r.is_over())
        .map(|r| DSH.shown(&r.id))
        .collect();
    let mut last = match jobs.len() {
        0 => "no jobs".to_owned(),
        1 => "1 job".into(),
        n => format!("{n} jobs"),
    };
    if !live.is_empty() {
        last += &format!("; live: {}", live.join(", "));
    }
    let all: Vec<Value> = jobs.iter().map(|r| snapshot(r)).collect();
    let answer = plain(
        lines.concat(),
        vec![format!("[{last}]")],
        &[],
        json!({"jobs": all}),
    );
    Ok(of_rows(answer, jobs))
}

async fn job_kill(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let row = job(call, args).await?;
    let shown = DSH.shown(&row.id);
    if row.is_over() {
        let line = format!("[{shown} had already finished: {}]", status_line(&row));
        let json = json!({"outcome": "already-finished", "job": snapshot(&row)});
        return Ok(of_rows(plain(String::new(), vec![line], &[], json), [&row]));
    }
    call.front.ledger.ended_by_us(&row.process_id);
    let reason = args.text("reason")?.map(|r| words::cut(r, limits::REASON));
    let stop = Stop {
        ids: vec![row.process_id.clone()],
        reason,
        wait: Some(false),
        ..Stop::default()
    };
    let asked = call.client.ask::<JobStop>(stop).await;
    asked.map_err(|e| call.fault(&row.id, &e))?;
    // As it is at this moment, however fast it ends.
    let mut job = snapshot(&row);
    job["status"] = "stopping".into();
    let line = format!("[{shown} kill requested; status: stopping]");
    let json = json!({"outcome": "cancellation-requested", "job": job});
    Ok(plain(String::new(), vec![line], &[], json))
}

async fn open(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let backend = text_of(args, "type")?;
    if backend != "shell" {
        return Err(Fault::new(
            "NO_BACKEND",
            format!(
                "no terminal type {:?}: use shell. Nothing was started.",
                words::cut(backend, 40)
            ),
        ));
    }
    let name = args.text("name")?.map(str::to_owned);
    let cwd = args.folder("cwd", &call.front.here)?;
    let patience = shells::first_prompt(limits::first_output());
    let opened = shells::open(call, None, cwd, name.clone(), WINDOW, patience).await;
    let opened = opened.map_err(|fault| match fault.kind {
        "name_taken" => Fault::new("DUPLICATE_NAME", fault.words),
        _ => fault,
    })?;
    let untold = Untold::new(&call.client, &opened.row);
    let row = &opened.row;
    if status::never_ran(row) || row.is_over() {
        untold.tell();
        return Ok(never_ran(row));
    }
    let id = DSH.shown(&row.id);
    let motd = opened.text.trim_end().to_owned();
    let first = format!("[started terminal {id} (shell)]");
    let mut json = json!({
        "sessionId": id, "type": "shell", "status": "running", "motd": motd
    });
    if let Some(name) = &name {
        json["name"] = name.as_str().into();
    }
    if let Some(pid) = row.pid {
        json["pid"] = pid.into();
    }
    let body = if motd.is_empty() {
        "[no startup output]".to_owned()
    } else {
        motd
    };
    untold.tell();
    // The id comes first here, and stays when all else goes.
    let mut answer = plain(format!("{first}\n{body}"), Vec::new(), &["motd"], json);
    answer.keeps_tail = false;
    Ok(answer)
}

async fn send(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let row = terminal(call, args).await?;
    let text = args.needed("text")?;
    let background = args.flag("run_in_background")?.unwrap_or(false);
    if row.is_over() {
        return Err(Fault::new(
            "exited",
            format!("{} has exited: {}.", DSH.shown(&row.id), status_line(&row)),
        ));
    }
    shells::check_open(&row, call)?;
    call.watch(&row);
    let ask = Send {
        id: row.process_id.clone(),
        text: text.to_owned(),
        enter: args.flag("submit")?.unwrap_or(true),
        timeout_ms: (!background).then(|| limits::mcp::DSH_SEND.min(call.max_wait)),
        max: Some(limits::RING),
        background,
        ..Send::default()
    };
    let active = |fault: Fault| match fault.kind {
        "busy" => Fault::new("SEND_ACTIVE", fault.words),
        _ => fault,
    };
    if background {
        let sent = call.client.call::<ShellSend>(ask).await;
        let sent = sent.map_err(|e| active(call.fault(&row.id, &e)))?;
        let Some(job) = sent.job else {
            return Err(Fault::new("internal", "no job stands for what was sent"));
        };
        hold_line(call, &row, &job, text);
        return Ok(started(&job));
    }
    let (came, sent) = shells::send(call, &row, ask).await.map_err(active)?;
    let reason = match came.reason {
        Reason::Prompt | Reason::InputWait => "stdin_read",
        Reason::InferredIdle => "inferred_idle",
        Reason::Exit | Reason::EndedBefore => "session_exit",
        _ => "timeout",
    };
    let (word, exit) = session_status(&came.row);
    let last = vec![format!("[wait: {reason}]"), format!("[terminal: {exit}]")];
    let mut json = json!({
        "kind": "foreground", "viewport": sent.text, "waitReason": reason,
        "sessionStatus": word, "truncated": sent.truncated
    });
    add_exit(&mut json, &came.row);
    Ok(of_rows(
        plain(sent.text, last, &["viewport"], json),
        [&came.row],
    ))
}

/// What was sent in the background is what runs in the terminal until its job ends, which is noticed as that of a job.
fn hold_line(call: &Call<'_>, shell: &Row, job: &Row, text: &str) {
    let typed = words::one_line(text.trim_end());
    let line = call
        .front
        .begin_line(&shell.process_id, &typed, shell.output.end);
    let (client, front) = (call.client.clone(), Arc::clone(call.front));
    let (shell, job) = (shell.process_id.clone(), job.process_id.clone());
    tokio::spawn(async move {
        // Without a supervisor nothing runs either.
        let _ = wait_for(&client, &job, For::Exit, 0, None).await;
        front.end_line(&shell, &line);
    });
}

/// `running`; `exited`, and how.
fn session_status(row: &Row) -> (&'static str, String) {
    if !row.is_over() {
        return ("running", "running".into());
    }
    let code = row.exit_code.map_or("null".into(), |c| c.to_string());
    let signal = row.signal.as_deref().unwrap_or("null");
    ("exited", format!("exited, code {code}, signal {signal}"))
}

fn add_exit(json: &mut Value, row: &Row) {
    if !row.is_over() {
        return;
    }
    if let Some(code) = row.exit_code {
        json["exitCode"] = code.into();
    }
    if let Some(signal) = &row.signal {
        json["signal"] = signal.as_str().into();
    }
}

async fn read(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let row = terminal(call, args).await?;
    let offset = args.whole("offset")?.unwrap_or(0);
    let count = args.whole("count")?.unwrap_or(limits::mcp::DSH_LINES);
    if count == 0 {
        return Err(Fault::argument("count must be 1 or more."));
    }
    let ask = ReadShell {
        session: None,
        id: row.process_id.clone(),
        back: offset,
        count: Some(count.min(limits::SHELL_LINES)),
    };
    let read = call.client.ask::<ShellRead>(ask).await;
    let read = read.map_err(|e| call.fault(&row.id, &e))?;
    let end = offset + read.lines.len() as u64;
    let text = read.lines.join("\n");
    let truncated = end < read.total || read.lost > 0;
    let mut last = Vec::new();
    if text.is_empty() {
        last.push("[no retained output]".into());
    }
    last.push(format!(
        "[lines {offset} to {end} of {} from the newest]",
        read.total
    ));
    let json = json!({
        "text": text, "totalLines": read.total, "lineBegin": offset, "lineEnd": end,
        "truncated": truncated
    });
    Ok(plain(text, last, &["text"], json))
}

async fn signal(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    const SIGNALS: [&str; 5] = ["SIGINT", "SIGTERM", "SIGKILL", "SIGTSTP", "SIGHUP"];
    let row = terminal(call, args).await?;
    let signal = text_of(args, "signal")?;
    if !SIGNALS.contains(&signal) {
        return Err(Fault::argument(format!(
            "signal {:?}: use {}.",
            words::cut(signal, 40),
            SIGNALS.join(", ")
        )));
    }
    if row.state == State::Stopping {
        shells::check_open(&row, call)?;
    }
    let ask = SignalJob {
        session: None,
        id: row.process_id.clone(),
        signal: signal.to_owned(),
    };
    let sent = call.client.call::<JobSignal>(ask).await;
    let refused = |fault: Fault| match fault.kind {
        "no_group" if signal == "SIGKILL" => {
            let words = format!("{} terminal_close ends it whole.", fault.words);
            Fault { words, ..fault }
        }
        _ => fault,
    };
    let group = sent.map_err(|e| refused(call.fault(&row.id, &e)))?.group;
    let line = format!("[{signal} sent to group {group}]");
    let json = json!({"delivered": true, "targetPgid": group});
    Ok(plain(String::new(), vec![line], &[], json))
}

async fn close(call: &Call<'_>, args: &Arguments) -> Result<Answer, Fault> {
    let row = terminal(call, args).await?;
    let shown = DSH.shown(&row.id);
    let was_closing = row.state == State::Stopping;
    call.front.ledger.ended_by_us(&row.process_id);
    let client = call.client.clone();
    let target = Target {
        session: None,
        id: row.process_id.clone(),
    };
    // It goes on when the call is cancelled.
    let closing = tokio::spawn(async move { client.ask::<ShellClose>(target).await });
    let closed = tokio::time::timeout(call.most(), closing).await;
    match closed {
        Ok(Ok(Ok(_))) => {}
        Ok(Ok(Err(ostler::Error::Refused(refusal)))) if refusal.kind == RefusalKind::Busy => {
            let words = words::one_line(&refusal.message);
            return Err(Fault::new("survivors", format!("{words}. Close it again.")));
        }
        Ok(Ok(Err(error))) => return Err(call.fault(&row.id, &error)),
        Ok(Err(_)) => return Err(Fault::new("internal", "the close broke off")),
        Err(_) => {
            return Err(Fault::new(
                "closing",
                format!("{shown} is still being closed."),
            ));
        }
    }
    let (outcome, line) = match was_closing {
        true => ("already-closing", format!("[{shown} was already closing]")),
        false => ("closed", format!("[{shown} closed]")),
    };
    let json = json!({"sessionId": shown, "outcome": outcome});
    Ok(plain(String::new(), vec![line], &[], json))
}

async fn terminals(call: &Call<'_>) -> Result<Answer, Fault> {
    let rows = rows(call).await?;
    let all: Vec<&Row> = rows.iter().filter(|r| r.kind == Kind::Shell).collect();
    let mut lines = String::new();
    let mut sessions = Vec::new();
    for row in &all {
        let (word, exit) = session_status(row);
        let shown = DSH.shown(&row.id);
        let name = row
            .name
            .as_ref()
            .map_or(String::new(), |n| format!(" ({n})"));
        lines += &words::cut(&format!("{shown}{name} shell {exit}"), 119);
        lines.push('\n');
        let mut session = json!({"sessionId": shown, "type": "shell", "status": word});
        if let Some(name) = &row.name {
            session["name"] = name.as_str().into();
        }
        if let Some(pid) = row.pid.filter(|_| !row.is_over()) {
            session["pid"] = pid.into();
        }
        add_exit(&mut session, row);
        sessions.push(session);
    }
    let last = match all.len() {
        0 => "[no terminals]".to_owned(),
        1 => "[1 terminal]".into(),
        n => format!("[{n} terminals]"),
    };
    let answer = plain(lines, vec![last], &[], json!({"sessions": sessions}));
    Ok(of_rows(answer, all))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended, row};

    #[test]
    fn ids_have_two_forms() {
        for (long, id) in [
            ("bash-1", "t1"),
            ("pty-2", "s2"),
            ("pty-send-100", "x100"),
            ("subagent-3", "a3"),
            ("t4", "t4"),
        ] {
            assert_eq!(short(long).as_deref(), Some(id));
            if long.contains('-') {
                assert_eq!(DSH.shown(id), long);
            }
        }
        for bad in ["bash-", "bash-x", "web", "x/t1", ""] {
            assert_eq!(short(bad), None, "{bad}");
        }
    }

    #[test]
    fn outcomes_are_told_in_the_words_of_this_set() {
        let of = |outcome, code| status_line(&ended(outcome, code, None));
        assert_eq!(of(Outcome::Exited, Some(0)), "completed, exit code 0");
        assert_eq!(of(Outcome::Stopped, None), "killed");
        assert_eq!(of(Outcome::SpawnFailed, None), "failed");
        assert_eq!(status_line(&row("t1")), "running");
        let snapshot = snapshot(&row("t1"));
        assert_eq!(
            (&snapshot["id"], snapshot.get("finishedAt")),
            (&json!("bash-1"), None)
        );
    }
}
