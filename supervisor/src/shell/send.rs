//! Something typed to whatever is in front of a shell, and what came of it.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    limits,
    methods::Reason,
    refusal::{Refusal, RefusalKind},
    shell::{Send, Sent},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    exec::{Stand, key_conflict, stand, talker, turn, turn_by},
    waiting::{Came, Waiting, look},
};
use crate::{
    job::Job,
    ledger::{Entry, Ledger},
    terminal::{handed::Handed, keys, marks::Mark, proof::Waits, talk::Talk, text},
};

/// How long a shell that has not started is awaited before something is typed.
const FIRST_PROMPT: Duration = Duration::from_secs(10);

/// How long a prompt is awaited that must come by itself.
const PROMPT: Duration = Duration::from_secs(1);

/// Types and waits. Dropping this after the first byte does not take it back. What was typed already, by its key, is not
/// typed again, only awaited.
pub(crate) async fn send(ledger: &Ledger, job: &Arc<Job>, ask: &Send) -> Result<Sent, Refusal> {
    let patience = Duration::from_millis(ask.timeout_ms.unwrap_or(limits::SEND_TIMEOUT));
    let until = Instant::now() + patience;
    let times = job.desk.typed();
    let (typed, again) = match known(job, ask)? {
        Some((talk, handed)) => (Typed::again(job, talk, handed, until).await?, true),
        None => {
            let talk = talker(job)?;
            let turn = turn(job, talk)?;
            (Typed::by(ledger, job, talk, ask, until, turn).await?, false)
        }
    };
    let quiet = Duration::from_millis(ask.quiet_ms.unwrap_or(limits::SEND_QUIET));
    let reason = typed.come(Some(quiet), Some(until)).await;
    let shared = job.desk.typed() != times;
    let sent = answer(job, typed.talk, reason, typed.from, ask.max, shared);
    drop(typed);
    if again && reason != Reason::Exit && is_unseen(job, &sent) {
        return Err(never_seen(job));
    }
    Ok(sent)
}

/// What was typed with this key, by a request that has lost its connection.
fn known<'a>(job: &'a Job, ask: &Send) -> Result<Option<(&'a Talk, Handed)>, Refusal> {
    let (Some(key), Some(talk)) = (&ask.key, &job.talk) else {
        return Ok(None);
    };
    match talk.handed_by(key) {
        Some((handed, _)) if handed.is_text(ask) => Ok(Some((talk, handed))),
        Some(_) => Err(key_conflict()),
        None => Ok(None),
    }
}

/// Nothing came of it: at most the rest of a prompt that was on its way before.
fn is_unseen(job: &Job, sent: &Sent) -> bool {
    let marked = job.spec.shell.as_ref().is_some_and(|s| s.takes_lines());
    let codeless = marked && sent.reason == Reason::Prompt;
    sent.exit_code.is_none() && (codeless || sent.text.trim().is_empty())
}

/// A supervisor died about when it was typed, and nothing has been printed since.
fn never_seen(job: &Job) -> Refusal {
    let words = format!(
        "{}: nothing came of it since; it is not known whether the text was typed",
        job.id()
    );
    Refusal::new(RefusalKind::Busy, words).hint("ostler shell read shows what it says")
}

/// A text that was typed. Nobody else talks to the shell meanwhile.
pub(super) struct Typed<'a> {
    job: &'a Arc<Job>,
    talk: &'a Talk,
    /// Where what is printed behind it begins.
    pub(super) from: u64,
    /// What stands before proves nothing.
    since: u64,
    /// Who waited then already.
    before: Waits,
    /// Something ran then.
    ahead: bool,
    _turn: OwnedSemaphorePermit,
}

impl<'a> Typed<'a> {
    /// Types.
    ///
    /// # Errors
    /// The terminal did not take all of it.
    pub(super) async fn by(
        ledger: &Ledger,
        job: &'a Arc<Job>,
        talk: &'a Talk,
        ask: &Send,
        until: Instant,
        turn: OwnedSemaphorePermit,
    ) -> Result<Self, Refusal> {
        let patience = until.saturating_duration_since(Instant::now());
        let mut text = ask.text.clone().into_bytes();
        if ask.enter {
            text.push(b'\r');
        }
        for key in &ask.keys {
            text.extend(keys::press(key, job.face.modes.application_cursor())?);
        }
        started(job, talk, until).await;
        let before = match job.place().filter(|_| !text.is_empty()) {
            Some((place, _)) => look(place).await,
            None => Waits::default(),
        };
        // With nothing typed, a prompt that is there already is news to who asks, who goes on where the last answer
        // ended.
        let (since, from) = if text.is_empty() {
            (0, untold(job, talk))
        } else {
            (job.log.end(), job.log.end())
        };
        // Whoever waited takes it for an answer.
        let answers = before.newer_than(&Waits::default()).is_some();
        let ahead = !text.is_empty() && !answers && talk.is_ahead(&job.log);
        if !text.is_empty() {
            let handed = Handed::text(ask, from, ahead);
            // Before it is typed: who asks again must never make it be typed a second time.
            ledger.append(&Entry::Handed {
                number: job.spec.number,
                line: handed.clone(),
            });
            talk.hand_over_text(handed);
        }
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
        match written.await {
            Ok((took, turn)) if took == all => Ok(Self {
                job,
                talk,
                from,
                since,
                before,
                ahead,
                _turn: turn,
            }),
            Ok((took, _)) => Err(untyped(job, took, all)),
            Err(_) => Err(untyped(job, 0, all)),
        }
    }

    /// What was typed earlier, as soon as nobody else talks.
    async fn again(
        job: &'a Arc<Job>,
        talk: &'a Talk,
        handed: Handed,
        until: Instant,
    ) -> Result<Self, Refusal> {
        let turn = turn_by(job, talk, Some(until)).await?;
        Ok(Self {
            job,
            talk,
            from: handed.typed_at,
            since: handed.typed_at,
            before: Waits::default(),
            ahead: handed.ahead,
            _turn: turn,
        })
    }

    /// Waits until the program in front waits for more.
    pub(super) async fn come(&self, quiet: Option<Duration>, until: Option<Instant>) -> Reason {
        let waiting = Waiting {
            job: self.job,
            talk: self.talk,
            since: self.since,
            before: self.before.clone(),
            line: false,
            ahead: self.ahead,
            through: false,
            quiet,
            until,
        };
        match waiting.come().await {
            Came::For(reason) => reason,
            Came::NotTaken => Reason::InferredIdle,
        }
    }
}

/// Where the last answer ended. What an earlier supervisor has typed is not told, only what came of it.
fn untold(job: &Job, talk: &Talk) -> u64 {
    let told = talk.told();
    let newest = talk.all_handed().pop().filter(|line| line.typed_at == told);
    let line = newest.and_then(|handed| talk.followed(&job.log, &handed));
    line.and_then(|l| l.output).unwrap_or(told)
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
    let done = done(job, talk, reason, from);
    let (exit_code, cwd) = done.map_or((None, None), |d| (d.code, d.cwd));
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
        job: None,
    }
}

/// The end of the line that it went to, where a prompt came for that.
pub(super) fn done(job: &Job, talk: &Talk, reason: Reason, from: u64) -> Option<Mark> {
    let mut reading = talk.look(&job.log);
    let over = reading
        .line
        .as_ref()
        .is_some_and(|l| l.is_done() || l.is_aborted());
    let line = reading.line.take_if(|_| over);
    let newest = reading.done.clone().filter(|d| d.from >= from);
    let done = line.and_then(|l| l.done).or(newest);
    done.filter(|_| reason == Reason::Prompt)
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
        ahead: false,
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
