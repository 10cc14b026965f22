//! Persistent shells and whatever sits at a terminal: opened, given a line, typed to, and what is true of them then.

use std::sync::Arc;

use ostler::{Client, Error};
use ostler_proto::job::{Kind, Row, State};
use ostler_proto::limits;
use ostler_proto::methods::{For, JobScreen, JobStop, Reason, ShellExec, ShellOpen, Stop};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::screen::Look;
use ostler_proto::shell::{Exec, OpenShell, OpenedShell, Send, Sent};

use super::answer::Block;
use super::fault::Fault;
use super::front::{Call, Front, Line, ports};
use super::status;
use super::text::{self, Share, Text};
use super::wait::wait_for;
use super::words;

/// What came of a line or of typed text.
pub(crate) struct Came {
    /// Why the call returns.
    pub(crate) reason: Reason,
    /// Of the line that has ended.
    pub(crate) code: Option<i32>,
    /// Directory of the shell.
    pub(crate) cwd: Option<String>,
    /// The job then.
    pub(crate) row: Row,
    /// How long it took.
    pub(crate) took: u64,
    /// Somebody else typed meanwhile.
    pub(crate) shared: bool,
    /// Where in the log what it printed begins, and where that ends.
    pub(crate) output: (u64, u64),
    /// What was typed at a prompt has no end yet, so that nothing runs.
    pub(crate) half: bool,
}

/// Opens a shell: bash where there is one, else `sh`, without anybody's start files.
pub(crate) async fn open(
    call: &Call<'_>,
    program: Option<&str>,
    cwd: String,
    name: Option<String>,
    size: (u16, u16),
    wait_ms: u64,
) -> Result<OpenedShell, Fault> {
    let front = call.front;
    let bash = || in_path(front, "bash").unwrap_or_else(|| "sh".into());
    let program = program.map_or_else(bash, str::to_owned);
    let ask = OpenShell {
        key: Some(front.key()),
        args: vec![program],
        clean: true,
        cwd: Some(cwd),
        env: front.heritage.env.clone(),
        umask: Some(front.heritage.umask),
        limits: front.heritage.limits.clone(),
        rows: Some(size.0),
        cols: Some(size.1),
        name,
        wait_ms: Some(wait_ms),
        ..OpenShell::default()
    };
    let opened = call.client.ask::<ShellOpen>(ask).await;
    opened.map_err(|e| call.fault("s1", &e))
}

fn in_path(front: &Front, program: &str) -> Option<String> {
    let path = front.heritage.env.get("PATH").cloned().flatten();
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .and_then(|file| file.to_str().map(str::to_owned))
}

/// How long the first line of a shell waits for its first prompt.
pub(crate) fn first_prompt(wait: u64) -> u64 {
    wait.clamp(limits::mcp::HAND_OVER, limits::mcp::FIRST_PROMPT)
}

/// Ends a shell whose id nobody was told.
pub(crate) struct Untold {
    client: Client,
    shell: Option<String>,
}

impl Untold {
    pub(crate) fn new(client: &Client, row: &Row) -> Self {
        Self {
            client: client.clone(),
            shell: Some(row.process_id.clone()),
        }
    }

    /// It is told now.
    pub(crate) fn tell(mut self) {
        self.shell = None;
    }
}

impl Drop for Untold {
    fn drop(&mut self) {
        let Some(shell) = self.shell.take() else {
            return;
        };
        let client = self.client.clone();
        tokio::spawn(async move {
            let stop = Stop {
                ids: vec![shell],
                ..Stop::default()
            };
            // Without a supervisor there is no shell either.
            let _ = client.ask::<JobStop>(stop).await;
        });
    }
}

/// A shell that is over answers no line; one that was ended for want of use says so.
pub(crate) fn check_open(row: &Row, call: &Call<'_>) -> Result<(), Fault> {
    let names = call.front.names;
    let id = names.shown(&row.id);
    if row.kind != Kind::Shell {
        return Err(Fault::argument(format!(
            "{id} is no shell: use s1, or new. Nothing was started."
        )));
    }
    if row.state == State::Stopping {
        return Err(Fault::new(
            "closing",
            format!("{id} is being closed. {} opens another.", names.open),
        ));
    }
    if !row.is_over() {
        return Ok(());
    }
    let why = match row.outcome {
        Some(ostler_proto::job::Outcome::IdleReaped) => {
            format!("{id} was closed after {} without use", status::unused(row))
        }
        _ => format!("{id} has ended"),
    };
    Err(Fault::new(
        "gone",
        format!("{why}; its state is lost. {} opens another.", names.open),
    ))
}

/// Runs a line in a shell, and waits for its end, a question or the end of the time.
pub(crate) async fn exec(call: &Call<'_>, row: &Row, line: &str, wait: u64) -> Result<Came, Fault> {
    let ask = Exec {
        id: row.process_id.clone(),
        line: line.to_owned(),
        timeout_ms: Some(wait.max(limits::mcp::HAND_OVER)),
        max: Some(0),
        // Asked again when the supervisor is replaced meanwhile, it runs once.
        key: Some(call.front.key()),
        ..Exec::default()
    };
    let before = call.front.line(&row.process_id);
    let mut sent = call.front.begin_line(&row.process_id, line, row.output.end);
    let done = match call.client.ask::<ShellExec>(ask).await {
        Ok(done) => done,
        Err(error) => {
            call.front.take_back(&row.process_id, before);
            return Err(refused(call, row, &error).await);
        }
    };
    sent.from = done.from;
    call.front.place_line(&row.process_id, &sent);
    let came = Came {
        reason: done.reason,
        code: done.exit_code,
        cwd: done.cwd,
        row: done.row,
        took: done.duration_ms,
        shared: done.shared,
        output: (done.from, done.next),
        half: false,
    };
    Ok(end_or_announce(call, came, &sent))
}

/// Types to whatever is in front, presses keys, and waits until it waits for more.
pub(crate) async fn send(call: &Call<'_>, row: &Row, ask: Send) -> Result<(Came, Sent), Fault> {
    let before = call.front.open_line(&row.process_id);
    let ends = |text: &str| text.contains(['\n', '\r', '\x03', '\x04']);
    let half = before.is_none()
        && row.kind == Kind::Shell
        && !ask.text.is_empty()
        && !(ends(&ask.text) || ask.enter || !ask.keys.is_empty());
    let line = before.unwrap_or_else(|| {
        let typed = words::one_line(ask.text.trim_end());
        call.front
            .begin_line(&row.process_id, &typed, row.output.end)
    });
    let began = std::time::Instant::now();
    let sent = match call.client.send(ask).await {
        Ok(sent) => sent,
        Err(error) => return Err(refused(call, row, &error).await),
    };
    let came = Came {
        reason: sent.reason,
        code: sent.exit_code,
        cwd: sent.cwd.clone(),
        row: sent.row.clone(),
        took: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        shared: sent.shared,
        output: (sent.from, sent.next),
        half: half && sent.exit_code.is_none() && sent.reason != Reason::Exit,
    };
    Ok((end_or_announce(call, came, &line), sent))
}

/// A line whose end is known is told; one that outlives its call is announced when it ends.
fn end_or_announce(call: &Call<'_>, came: Came, line: &Line) -> Came {
    let shell = &came.row.process_id;
    match came.reason {
        Reason::Prompt | Reason::Exit | Reason::EndedBefore => {
            call.front.end_line(shell, line);
            // An interrupted line has ended in two places at once.
            call.front.ledger.forget_own(line.serial);
        }
        _ if came.half => {
            call.front.end_line(shell, line);
        }
        _ if came.row.kind == Kind::Shell => announce(call, &came.row, line.clone()),
        _ => {}
    }
    came
}

/// Tells the end of a line like that of a job, unless a result has.
fn announce(call: &Call<'_>, row: &Row, line: Line) {
    let (client, front) = (call.client.clone(), Arc::clone(call.front));
    let (id, shell) = (row.id.clone(), row.process_id.clone());
    tokio::spawn(async move {
        let waited = wait_for(&client, &shell, For::Prompt, 0, None).await;
        let Ok(waited) = waited else {
            return;
        };
        front.saw_end(&shell, &line);
        // Whoever has asked for it in the meantime has its end already.
        if waited.reason == Reason::Prompt && front.takes_notice(&line) {
            let code = waited
                .exit_code
                .map_or(String::new(), |c| format!(" exited {c}"));
            let took = u64::try_from(line.began.elapsed().as_millis()).unwrap_or(u64::MAX);
            let told = format!(
                "{} command{code} in {}: {}; next: {}",
                front.names.shown(&id),
                words::took(took),
                words::cut(&words::one_line(&line.text), 60),
                front.names.read(&id),
            );
            front.ledger.add_own(line.serial, shell, told);
        }
    });
}

/// What is true of a terminal at this moment.
pub(crate) async fn glance(call: &Call<'_>, row: &Row) -> Result<Came, Fault> {
    let waited = wait_for(
        &call.client,
        &row.process_id,
        For::Input,
        0,
        Some(limits::mcp::GLANCE),
    )
    .await;
    let waited = waited.map_err(|e| call.fault(&row.id, &e))?;
    let line = call.front.line(&row.process_id);
    let took = line.as_ref().map_or(0, |line| {
        let until_now = u64::try_from(line.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        line.took.unwrap_or(until_now)
    });
    Ok(Came {
        reason: waited.reason,
        code: waited.exit_code,
        cwd: waited.cwd,
        took,
        output: (
            line.map_or(0, |line| line.from),
            waited.output_end.unwrap_or(waited.row.output.end),
        ),
        row: waited.row,
        shared: false,
        half: false,
    })
}

/// Why a shell or a terminal takes nothing now.
async fn refused(call: &Call<'_>, row: &Row, error: &Error) -> Fault {
    let names = call.front.names;
    match error {
        Error::Refused(refusal) if refusal.kind == RefusalKind::Busy => {
            let (id, shown) = (&row.id, names.shown(&row.id));
            let what = match call.front.open_line(&row.process_id) {
                Some(line) => format!("{:?}", words::cut(&words::one_line(&line.text), 60)),
                None => "a command".into(),
            };
            Fault::new(
                "busy",
                format!(
                    "{shown} still runs {what}. {} waits; {} interrupts.",
                    names.wait(id),
                    names.interrupt(id)
                ),
            )
        }
        Error::Refused(refusal) if refusal.kind == RefusalKind::NoInput => {
            // It may have ended meanwhile, or somebody may be ending it.
            match call.row(&row.id).await {
                Ok(row) if row.kind == Kind::Shell => check_open(&row, call)
                    .err()
                    .unwrap_or_else(|| Fault::no_terminal(&row.id, names)),
                Ok(row) if row.is_over() => Fault::new(
                    "no_input",
                    format!(
                        "{} has ended: {}.",
                        row.id,
                        status::block(&row, &[], super::now()).phrase
                    ),
                ),
                Ok(row) => Fault::no_terminal(&row.id, names),
                Err(fault) => fault,
            }
        }
        error => call.fault(&row.id, error),
    }
}

/// What a call says of a terminal: a shell's prompt, a question, or that it goes on.
pub(crate) fn block(call: &Call<'_>, came: &Came) -> Block {
    let front = call.front;
    let row = &came.row;
    let ports = ports(row);
    let mut block = status::block(row, &ports, super::now());
    let id = &row.id;
    let is_shell = row.kind == Kind::Shell;
    block.why = why(came.reason);
    // Whatever its terminal says: somebody wants its end.
    if row.is_over() || row.state == State::Stopping {
        return block;
    }
    match came.reason {
        _ if came.half => {
            block.phrase = format!("{id} typed, not entered");
            block.facts = vec!["end with \\n to run it".into()];
            block.seconds = None;
        }
        Reason::Prompt if is_shell => {
            block.phrase = format!("{id} at prompt");
            block.facts.clear();
            if let Some(code) = came.code {
                block
                    .facts
                    .push(format!("exit {code} in {}", words::took(came.took)));
                block.code = Some(code.into());
                block.seconds = Some(status::tenths(came.took));
            } else {
                block.seconds = None;
            }
            let moved = came
                .cwd
                .as_deref()
                .and_then(|cwd| front.moved_to(&row.process_id, cwd));
            if let Some(cwd) = moved {
                block.facts.push(format!("cwd {}", words::one_line(&cwd)));
                block.cwd = Some(cwd);
            }
        }
        Reason::Prompt | Reason::InputWait => {
            block.phrase = format!("{id} waits for input");
            block.facts.clear();
            block.seconds = None;
        }
        Reason::InferredIdle => {
            block.phrase = format!("{id} quiet {}", words::limit(limits::SEND_QUIET));
            block.facts = vec!["may wait for input (inferred)".into()];
            // As in the walks: with a comma, not as a fact of its own.
            block.phrase = format!("{}, {}", block.phrase, block.facts.remove(0));
            block.seconds = None;
        }
        _ if is_shell => {
            block.phrase = format!("{id} busy {}", words::took(came.took));
            block.facts.clear();
            block.facts.extend(status::listening(&block.ports));
            block.seconds = Some(status::tenths(came.took));
            block.hint = Some(front.names.wait(id));
            block.is_busy = true;
        }
        _ => {}
    }
    if came.shared {
        block.markers.push("somebody else typed meanwhile".into());
    }
    block
}

/// Why a call returned, as the JSON says it.
pub(crate) fn why(reason: Reason) -> Option<&'static str> {
    Some(match reason {
        Reason::Exit | Reason::EndedBefore => "exit",
        Reason::Port => "port",
        Reason::Text => "text",
        Reason::Quiet => "quiet",
        Reason::Prompt => "prompt",
        Reason::InputWait => "input_wait",
        Reason::InferredIdle => "inferred_idle",
        Reason::WaitOver => "wait_over",
        Reason::NoEnd | Reason::Background => return None,
    })
}

/// Adds what was printed from an offset on, up to another one or to the end.
pub(crate) async fn add_output(
    call: &Call<'_>,
    block: &mut Block,
    row: &Row,
    from: u64,
    to: Option<u64>,
    share: Share,
) -> Result<(), Fault> {
    let text = text::share(&call.client, row, from, to, share).await;
    put(block, row, text.map_err(|e| call.fault(&row.id, &e))?);
    Ok(())
}

/// Puts an output into what is said of a job.
pub(crate) fn put(block: &mut Block, row: &Row, text: Text) {
    if text.lost > 0 {
        block.lost = Some(text.lost);
        block.markers.extend(status::not_kept(row));
    }
    if text.cut > 0 {
        block.cut = Some(text.cut);
    }
    if text.overwritten > 0 {
        block.markers.push(format!(
            "{} bytes of overwritten lines left out",
            text.overwritten
        ));
    }
    block.next = Some(text.next);
    block.head = text.head;
    if !text.output.is_empty() {
        block.output = Some(text.output);
    }
}

/// The grid, while the program has the whole screen to itself.
pub(crate) async fn screen(call: &Call<'_>, row: &Row) -> Result<Option<(String, String)>, Fault> {
    if row.terminal.is_none() || row.is_over() {
        return Ok(None);
    }
    let look = Look {
        id: row.process_id.clone(),
        ..Look::default()
    };
    let screen = call.client.ask::<JobScreen>(look).await;
    let screen = screen.map_err(|e| call.fault(&row.id, &e))?;
    if !screen.alternate {
        return Ok(None);
    }
    let mut grid = screen.rows.join("\n");
    grid.truncate(grid.trim_end_matches('\n').len());
    let marker = format!(
        "screen {}x{}, cursor {},{}",
        screen.size.cols, screen.size.rows, screen.cursor.row, screen.cursor.column
    );
    Ok(Some((grid, marker)))
}
