//! Something typed to whatever is in front of a shell, and what came of it.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    limits,
    methods::Reason,
    refusal::{Refusal, RefusalKind},
    shell::{Send, Sent},
};
use tokio::time::Instant;

use super::{
    exec::{Stand, shell, stand, turn},
    waiting::{Came, Waiting, look},
};
use crate::{
    job::Job,
    terminal::{proof::Waits, talk::Talk, text},
};

/// Longest time of a send that names none.
const PATIENCE: u64 = 30_000;
/// Silence after which a program is taken for waiting.
const QUIET: u64 = 3_000;
/// How long a shell that has not started is awaited before something is typed.
const FIRST_PROMPT: Duration = Duration::from_secs(10);

/// How long a prompt is awaited that must come by itself.
const PROMPT: Duration = Duration::from_secs(1);

/// Types and waits. Dropping this after the first byte does not take it back.
pub(crate) async fn send(job: &Arc<Job>, ask: &Send) -> Result<Sent, Refusal> {
    let (_, talk) = shell(job)?;
    let turn = turn(job, talk)?;
    let patience = Duration::from_millis(ask.timeout_ms.unwrap_or(PATIENCE));
    let until = Instant::now() + patience;
    let mut text = ask.text.clone().into_bytes();
    if ask.enter {
        text.push(b'\r');
    }
    started(job, talk, until).await;
    let before = match job.place().filter(|_| !text.is_empty()) {
        Some((place, _)) => look(place).await,
        None => Waits::default(),
    };
    let times = job.desk.typed();
    // With nothing typed, a prompt that is there already is news to who asks.
    let since = if text.is_empty() { 0 } else { job.log.end() };
    // Who only waits goes on where the last answer ended.
    let from = if text.is_empty() {
        talk.told()
    } else {
        job.log.end()
    };
    talk.note_typed(&job.log, &text);
    let (writer, bytes) = (Arc::clone(job), text);
    let all = bytes.len() as u64;
    // The turn goes with the bytes: whoever asked may leave, but nobody else types in between.
    let written = tokio::spawn(async move {
        writer.saw_input();
        let took = match &writer.feed {
            Some(feed) if !bytes.is_empty() => feed.write(bytes, false, patience).await.bytes,
            _ => 0,
        };
        (took, turn)
    });
    let Ok((took, turn)) = written.await else {
        return Err(untyped(job, 0, all));
    };
    if took < all {
        return Err(untyped(job, took, all));
    }
    let waiting = Waiting {
        job,
        talk,
        since,
        before,
        line: false,
        through: false,
        quiet: Some(Duration::from_millis(ask.quiet_ms.unwrap_or(QUIET))),
        until: Some(until),
    };
    let came = waiting.come().await;
    drop(turn);
    let reason = match came {
        Came::For(reason) => reason,
        Came::NotTaken => Reason::InferredIdle,
    };
    Ok(answer(
        job,
        talk,
        reason,
        from,
        ask.max,
        job.desk.typed() != times,
    ))
}

fn untyped(job: &Job, took: u64, all: u64) -> Refusal {
    let words = format!(
        "{}: its terminal took {took} of {all} bytes in that time",
        job.id()
    );
    Refusal::new(RefusalKind::Busy, words)
        .with("bytes", took)
        .hint("the program in front does not read; ostler shell read shows what it says")
}

/// What is typed before a shell has started is echoed twice, or eaten by its start files.
async fn started(job: &Arc<Job>, talk: &Talk, until: Instant) {
    if !job.spec.shell.as_ref().is_some_and(|s| s.takes_lines()) {
        return;
    }
    let since = Instant::now();
    let mut news = job.log.subscribe();
    let mut status = job.watch();
    loop {
        news.mark_unchanged();
        if status.borrow_and_update().finished.is_some() {
            return;
        }
        let patience = match stand(job, talk) {
            Stand::Starting => FIRST_PROMPT,
            // The prompt of the line before is on its way; behind what is typed now it would count as its end.
            Stand::Coming => PROMPT,
            Stand::Prompt | Stand::Busy(_) => return,
        };
        let give_up = until.min(since + patience);
        tokio::select! {
            Ok(()) = news.changed() => {}
            Ok(()) = status.changed() => {}
            () = tokio::time::sleep_until(give_up) => return,
        }
    }
}

fn answer(
    job: &Arc<Job>,
    talk: &Talk,
    reason: Reason,
    from: u64,
    max: Option<u64>,
    shared: bool,
) -> Sent {
    let next = job.log.end();
    talk.tell(next);
    let (exit_code, cwd) = {
        let mut reading = talk.look(&job.log);
        let over = reading
            .line
            .as_ref()
            .is_some_and(|l| l.is_done() || l.is_aborted());
        let line = reading.line.take_if(|_| over);
        let newest = reading.done.clone().filter(|d| d.from >= from);
        let done = line.and_then(|l| l.done).or(newest);
        let done = done.filter(|_| reason == Reason::Prompt);
        done.map_or((None, None), |d| (d.code, d.cwd))
    };
    let ended = job
        .status()
        .finished
        .clone()
        .filter(|_| reason == Reason::Exit);
    let begin = from.max(next.saturating_sub(max.unwrap_or(limits::page())));
    Sent {
        reason,
        text: seen(job, begin, next),
        from,
        next,
        truncated: begin > from,
        exit_code: ended.map_or(exit_code, |e| e.exit_code),
        cwd,
        shared,
        row: job.row(),
    }
}

/// A stretch of a log as a person sees it.
pub(crate) fn seen(job: &Job, from: u64, to: u64) -> String {
    let (mut at, mut bytes) = (from, Vec::new());
    while at < to {
        let slice = job.face.echoes.read(&job.log, at, (to - at) as usize);
        if slice.next <= at {
            break;
        }
        bytes.extend_from_slice(&slice.bytes);
        at = slice.next;
    }
    text::plain(&bytes)
}

/// Waits for the first prompt of a shell that was just opened, or for the first wait of another program.
pub(crate) async fn opened(job: &Arc<Job>, patience: Duration) -> Option<Reason> {
    let talk = job.talk.as_ref()?;
    let waiting = Waiting {
        job,
        talk,
        since: 0,
        before: Waits::default(),
        line: false,
        through: false,
        quiet: None,
        until: Some(Instant::now() + patience),
    };
    match waiting.come().await {
        Came::For(Reason::WaitOver) | Came::NotTaken => None,
        Came::For(reason) => Some(reason),
    }
}

/// What a shell has said at its start.
pub(crate) fn opening(job: &Job) -> String {
    let end = job.log.end();
    if let Some(talk) = &job.talk {
        talk.tell(end);
    }
    seen(job, 0, end)
}
