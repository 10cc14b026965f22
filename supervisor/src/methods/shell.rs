//! `shell/*`.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    job::{Kind, Row},
    limits,
    methods::{
        List, Reason, Released, ShellClose, ShellExec, ShellList, ShellOpen, ShellRead, ShellSend,
        Target,
    },
    refusal::{Refusal, RefusalKind},
    shell::{
        Exec, Executed, OpenShell, OpenedShell, ReadShell, Send, Sent, ShellLines, ShellRow,
        ShellTable,
    },
};

use super::{
    Serve,
    start::{begun, release},
};
use crate::{
    caller::Caller,
    claim,
    house::House,
    job::Job,
    life::plan::{self, check_key, within},
    registry::Admission,
    shell::{
        background::{self, Errand},
        exec, open, send,
    },
};

impl Serve for ShellOpen {
    async fn serve(caller: Caller, params: OpenShell) -> Result<OpenedShell, Refusal> {
        within("waitMs", params.wait_ms, 0, limits::SHELL_OPEN_MAX)?;
        let patience = Duration::from_millis(params.wait_ms.unwrap_or(limits::first_output()));
        let house = caller.house();
        let root = house
            .registry
            .root_of(params.session.as_deref(), &caller.access());
        let artifacts = house.folders.artifacts();
        let home = root.unwrap_or_else(|| house.home.clone());
        // Files are laid down: a disk that does not answer must hold up nobody but this request.
        let planned =
            tokio::task::spawn_blocking(move || open::plan(params, &home, &artifacts)).await;
        let plan = planned.map_err(|_| {
            Refusal::new(RefusalKind::Internal, "the shell could not be prepared")
        })??;
        let input = plan::input(&plan.start.stdin).inspect_err(|_| plan.clean_beside())?;
        let admitted = house.registry.admit(&plan, &caller.access());
        let admission = admitted.inspect_err(|_| plan.clean_beside())?;
        match &admission {
            Admission::New(job) => {
                let launched = house.launch(job, &plan.start, input);
                launched.inspect_err(|_| plan.clean_beside())?;
            }
            Admission::Known(_) => plan.clean_beside(),
        }
        let job = admission.job();
        begun(job).await;
        let reason = send::opened(job, patience).await;
        Ok(OpenedShell {
            // A shell that waits without a prompt asks something in its start files, or is another program by now.
            ready: match reason {
                Some(Reason::Prompt) => true,
                Some(Reason::InputWait) => !takes_lines(job),
                _ => false,
            },
            reason,
            text: send::opening(job),
            exec: takes_lines(job) && reason != Some(Reason::InputWait),
            row: claim::started(&caller, &admission),
        })
    }
}

fn takes_lines(job: &Job) -> bool {
    job.spec.shell.as_ref().is_some_and(|s| s.takes_lines())
}

fn check(field: &str, text: &str) -> Result<(), Refusal> {
    if text.len() > limits::SHELL_TEXT {
        let words = format!("has {} bytes, above {}", text.len(), limits::SHELL_TEXT);
        return Err(Refusal::bad(field, words));
    }
    Ok(())
}

/// A supervisor that makes way for the next one types nothing more: who asked asks that one.
async fn unless_leaving<T>(house: &House, talk: impl Future<Output = T>) -> T {
    tokio::select! {
        biased;
        () = house.upgrade.going() => std::future::pending().await,
        done = talk => done,
    }
}

fn check_one_key(key: Option<&str>, background: bool) -> Result<(), Refusal> {
    if background && key.is_some() {
        return Err(Refusal::bad(
            "key",
            "belongs to no request in the background",
        ));
    }
    check_key(key)
}

impl Serve for ShellSend {
    async fn serve(caller: Caller, params: Send) -> Result<Sent, Refusal> {
        within("timeoutMs", params.timeout_ms, 1, limits::WAIT_MAX)?;
        within("quietMs", params.quiet_ms, 1, limits::WAIT_MAX)?;
        within("max", params.max, 0, limits::PAGE_MAX)?;
        check("text", &params.text)?;
        check_one_key(params.key.as_deref(), params.background)?;
        within(
            "keys",
            Some(params.keys.len() as u64),
            0,
            limits::KEYS as u64,
        )?;
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        if !params.background {
            let house = caller.house();
            let done = unless_leaving(house, send::send(&house.tools.ledger, &job, &params)).await;
            house.shorten_ledger();
            tell_end(&caller, &job, done.as_ref().ok().map(|done| &done.row));
            return done;
        }
        let begun = in_background(&caller, &job, Errand::Text(params)).await?;
        let end = job.log.end();
        Ok(Sent {
            reason: Reason::Background,
            text: String::new(),
            from: end,
            next: end,
            truncated: false,
            exit_code: None,
            cwd: None,
            shared: false,
            row: job.row(),
            job: Some(begun),
        })
    }
}

impl Serve for ShellExec {
    async fn serve(caller: Caller, params: Exec) -> Result<Executed, Refusal> {
        within("timeoutMs", params.timeout_ms, 1, limits::WAIT_MAX)?;
        within("max", params.max, 0, limits::SHELL_OUTPUT)?;
        check("line", &params.line)?;
        check_one_key(params.key.as_deref(), params.background)?;
        if params.line.contains('\0') {
            return Err(Refusal::bad(
                "line",
                "may not contain NUL: no shell takes it",
            ));
        }
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        if !params.background {
            let house = caller.house();
            let done = unless_leaving(house, exec::exec(&house.tools.ledger, &job, &params)).await;
            house.shorten_ledger();
            tell_end(&caller, &job, done.as_ref().ok().map(|done| &done.row));
            return done;
        }
        let begun = in_background(&caller, &job, Errand::Line(params)).await?;
        let end = job.log.end();
        Ok(Executed {
            reason: Reason::Background,
            output: None,
            base64: None,
            tail: String::new(),
            truncated: false,
            from: end,
            next: end,
            crlf: false,
            lost: 0,
            replaced: 0,
            exit_code: None,
            cwd: None,
            duration_ms: 0,
            shared: false,
            others: false,
            row: job.row(),
            job: Some(begun),
        })
    }
}

/// An answer with such a row tells the end of the shell, if that came of it.
fn tell_end(caller: &Caller, shell: &Arc<Job>, row: Option<&Row>) {
    if row.is_some_and(Row::is_over) {
        claim::told(caller, shell);
    }
}

/// Makes the job that stands for what is sent, and waits until it is, 100 ms at most.
async fn in_background(
    caller: &Caller,
    shell: &Arc<Job>,
    errand: Errand,
) -> Result<Box<Row>, Refusal> {
    let job = background::begin(caller.house(), &caller.access(), shell, errand).await?;
    begun(&job).await;
    Ok(Box::new(job.row()))
}

impl Serve for ShellRead {
    async fn serve(caller: Caller, params: ReadShell) -> Result<ShellLines, Refusal> {
        within("count", params.count, 1, limits::SHELL_LINES)?;
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        if job.spec.kind != Kind::Shell {
            return Err(
                Refusal::new(RefusalKind::NoInput, format!("{} is no shell", job.id()))
                    .hint("ostler read"),
            );
        }
        job.saw_reader();
        let end = job.log.end();
        let begin = end
            .saturating_sub(limits::RING)
            .max(job.log.head().min(end));
        let text = send::seen(&job, begin, end);
        let lines: Vec<&str> = text.lines().collect();
        let last = lines
            .len()
            .saturating_sub(usize::try_from(params.back).unwrap_or(usize::MAX));
        let first =
            last.saturating_sub(params.count.unwrap_or(limits::SHELL_LINES_DEFAULT) as usize);
        Ok(ShellLines {
            lines: lines[first..last].iter().map(|l| (*l).to_owned()).collect(),
            total: lines.len() as u64,
            back: params.back,
            lost: begin,
            row: job.row(),
        })
    }
}

impl Serve for ShellList {
    async fn serve(caller: Caller, params: List) -> Result<ShellTable, Refusal> {
        let jobs = caller.house().registry.list(&params, &caller.access())?;
        let shells = jobs.iter().filter(|j| j.spec.kind == Kind::Shell);
        Ok(ShellTable {
            shells: shells.map(|j| row(j)).collect(),
        })
    }
}

fn row(job: &Job) -> ShellRow {
    let live = job.status().finished.is_none();
    let talk = job.talk.as_ref().filter(|_| live);
    let (prompt, cwd) = talk.map_or((None, None), |talk| {
        let reading = talk.look(&job.log);
        let cwd = reading.done.as_ref().and_then(|d| d.cwd.clone());
        let runs = reading
            .line
            .as_ref()
            .is_some_and(|l| !l.is_done() && !l.is_aborted());
        (reading.prompt.filter(|_| !runs), cwd)
    });
    ShellRow {
        session: job.seat().session,
        ready: talk.is_some_and(|t| prompt.is_some_and(|at| !t.typed_since(at))),
        busy: talk.is_some_and(|t| t.is_busy()),
        exec: takes_lines(job),
        cwd,
        row: job.row(),
    }
}

impl Serve for ShellClose {
    async fn serve(caller: Caller, params: Target) -> Result<Released, Refusal> {
        let registry = &caller.house().registry;
        if let Ok(job) = registry.find(params.session.as_deref(), &params.id, &caller.access())
            && job.spec.kind != Kind::Shell
        {
            return Err(
                Refusal::new(RefusalKind::NoInput, format!("{} is no shell", job.id()))
                    .hint("ostler rm"),
            );
        }
        release(caller, params, "close").await
    }
}
