//! What is sent to a shell in the background: a job of kind `send` that no process stands for.
//!
//! The turn of the shell is taken before there is a row, and kept until the end of the row is known. One task lives
//! the row, and it alone publishes its status: it hands over what is sent, waits as `exec` and `send` do, copies what is
//! printed into a log of the row's own, and interrupts what runs when somebody wants the end. It never ends the shell.

use std::{pin::pin, sync::Arc, time::Duration};

use ostler_proto::{
    job::{Kind, Outcome, OutcomeDetail, SpawnError, State},
    limits,
    methods::{Reason, Start},
    refusal::Refusal,
    shell::{Exec, Send},
};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep_until},
};

use super::{
    exec::{self, HandedOver, Stand},
    interrupt::{AGAIN, Interrupt},
    printed::{Pieces, Way},
    send::{self, Typed},
};
use crate::{
    clock::{self, Moment},
    house::House,
    job::{Cause, Finished, Job, Level, Plan, Who},
    life::{self, Tools},
    log::Filter,
    pump,
    registry::{Access, Admission},
};

/// What is sent.
pub(crate) enum Errand {
    /// A line, which has an end of its own.
    Line(Exec),
    /// A text, which is over when whoever took it waits for more.
    Text(Send),
}

impl Errand {
    fn text(&self) -> &str {
        match self {
            Self::Line(ask) => &ask.line,
            Self::Text(ask) => &ask.text,
        }
    }

    fn timeout_ms(&self) -> Option<u64> {
        match self {
            Self::Line(ask) => ask.timeout_ms,
            Self::Text(ask) => ask.timeout_ms,
        }
    }

    /// The right to send it, unless it is known now that it cannot be sent.
    async fn turn(&self, shell: &Arc<Job>) -> Result<OwnedSemaphorePermit, Refusal> {
        let (_, talk) = exec::shell(shell)?;
        let Self::Line(ask) = self else {
            return exec::turn(shell, talk);
        };
        exec::takes(shell, ask)?;
        let turn = exec::turn(shell, talk)?;
        if ask.inline {
            exec::ready(shell, talk, true, None).await?;
        } else if let Stand::Busy(refusal) = exec::stand(shell, talk) {
            return Err(*refusal);
        }
        Ok(turn)
    }

    fn plan(&self, shell: &Job) -> Plan {
        let start = Start {
            session: Some(shell.seat().session.id),
            timeout_ms: self.timeout_ms(),
            ..Start::default()
        };
        let reading = shell.talk.as_ref().map(|talk| talk.look(&shell.log));
        let cwd = reading.and_then(|r| r.done.as_ref()?.cwd.clone());
        Plan {
            start,
            args: vec![self.text().to_owned()],
            cwd: cwd.unwrap_or_else(|| shell.spec.cwd.clone()),
            candidates: Vec::new(),
            accepted: Moment::now(),
            bound: false,
            key_of: 0,
            kind: Kind::Send,
            shell: None,
            sent_to: Some(shell.spec.process_id.clone()),
            text_limit: None,
        }
    }
}

/// Takes the turn of a shell, makes the row and begins its life.
///
/// # Errors
/// The shell is busy, held or gone, or no row can be made. Nothing was sent then.
pub(crate) async fn begin(
    house: &Arc<House>,
    access: &Access,
    shell: &Arc<Job>,
    errand: Errand,
) -> Result<Arc<Job>, Refusal> {
    let turn = errand.turn(shell).await?;
    let admitted = house.registry.admit(&errand.plan(shell), access)?;
    let (Admission::New(job) | Admission::Known(job)) = admitted;
    shell.give_background(&job);
    let sending = Sending {
        tools: house.tools.clone(),
        shell: Arc::clone(shell),
        job: Arc::clone(&job),
        output: watch::Sender::new(Output::None),
    };
    house.let_live(&job, sending.live(errand, turn));
    Ok(job)
}

/// What came of it.
enum End {
    /// It is done. The code where the shell told one; of a text, why it counts as done.
    Done {
        code: Option<i32>,
        reason: Option<Reason>,
    },
    ShellEnded,
    /// The line is done, and its shell did not tell its code.
    NoCode,
    /// It never ran.
    Refused(Refusal),
    /// Somebody wanted its end, and there was nothing to wait for.
    Left,
}

/// Where in the log of the shell the output stands that goes into the log of the row.
#[derive(Debug, Clone, Copy)]
enum Output {
    /// Nothing was sent yet.
    None,
    /// The marks tell.
    Marked,
    /// All from here on.
    From(u64),
    /// All of it.
    Whole(u64, u64),
}

/// The life of one row.
struct Sending {
    tools: Tools,
    shell: Arc<Job>,
    job: Arc<Job>,
    output: watch::Sender<Output>,
}

impl Sending {
    async fn live(self, errand: Errand, turn: OwnedSemaphorePermit) {
        let mut interrupt = Interrupt::default();
        let ending = async {
            let end = match &errand {
                Errand::Line(ask) => self.line(ask, turn, &mut interrupt).await,
                Errand::Text(ask) => self.text(ask, turn, &mut interrupt).await,
            };
            // Who copies must come to an end also where nothing was sent.
            self.output.send_if_modified(|output| {
                let open = !matches!(output, Output::Whole(..));
                if open {
                    *output = Output::Whole(0, 0);
                }
                open
            });
            match end {
                Ok(end) => end,
                Err(_) if self.shell.status().finished.is_some() => End::ShellEnded,
                Err(refusal) => End::Refused(refusal),
            }
        };
        let mut copy = Copy::default();
        let copying = async {
            tokio::select! {
                () = self.copy(&mut copy) => {}
                () = self.is_stuck() => {}
            }
        };
        let (end, ()) = tokio::join!(ending, copying);
        self.job.log.mark_exit();
        self.job.log.seal();
        let finished = self.finished(end, &interrupt, self.lost(&copy));
        self.publish(finished, interrupt);
        pump::finish(&self.tools.pumps, &self.job).await;
    }

    async fn line(
        &self,
        ask: &Exec,
        turn: OwnedSemaphorePermit,
        interrupt: &mut Interrupt,
    ) -> Result<End, Refusal> {
        let shell = &self.shell;
        let talk = exec::takes(shell, ask)?;
        tokio::select! {
            ready = exec::ready(shell, talk, ask.inline, None) => ready?,
            () = self.wished() => {
                interrupt.begin(&self.job);
                return Ok(End::Left);
            }
        }
        let handed = HandedOver::by(&self.tools.ledger, shell, talk, ask, turn).await?;
        self.runs(Output::Marked);
        let runs = || {
            let reading = talk.look(&shell.log);
            let line = reading.line.as_ref();
            line.is_some_and(|l| l.output.is_some() && !l.is_done() && !l.is_aborted())
        };
        let come = handed.come(true, None);
        let Some(came) = self.unless_left(come, interrupt, runs, false).await else {
            let (from, to) = exec::span(shell, handed.give_up().as_ref(), None);
            self.output.send_replace(Output::Whole(from, to));
            return Ok(End::Left);
        };
        let (reason, line) = handed.end(came)?;
        let done = line.as_ref().and_then(|l| l.done.as_ref());
        let done = done.filter(|_| reason == Reason::Prompt);
        let (from, to) = exec::span(shell, line.as_ref(), done);
        talk.tell(to);
        self.output.send_replace(Output::Whole(from, to));
        Ok(match (reason, done.and_then(|d| d.code)) {
            (Reason::Exit, _) => End::ShellEnded,
            (_, Some(code)) => End::Done {
                code: Some(code),
                reason: None,
            },
            (_, None) => End::NoCode,
        })
    }

    async fn text(
        &self,
        ask: &Send,
        turn: OwnedSemaphorePermit,
        interrupt: &mut Interrupt,
    ) -> Result<End, Refusal> {
        let shell = &self.shell;
        let (_, talk) = exec::shell(shell)?;
        let patience = Duration::from_millis(ask.timeout_ms.unwrap_or(limits::SEND_TIMEOUT));
        let typed = Typed::by(
            &self.tools.ledger,
            shell,
            talk,
            ask,
            Instant::now() + patience,
            turn,
        )
        .await?;
        self.runs(Output::From(typed.from));
        let come = typed.come(ask.quiet_ms.map(Duration::from_millis), None);
        let came = self.unless_left(come, interrupt, || true, true).await;
        let (from, to) = (typed.from, shell.log.end());
        talk.tell(to);
        self.output.send_replace(Output::Whole(from, to));
        Ok(match came {
            None => End::Left,
            Some(Reason::Exit) => End::ShellEnded,
            Some(reason) => End::Done {
                code: send::done(shell, talk, reason, from).and_then(|d| d.code),
                reason: Some(reason),
            },
        })
    }

    /// It is sent.
    fn runs(&self, output: Output) {
        self.job.publish(|s| s.state = State::Running);
        self.output.send_replace(output);
    }

    /// Waits until somebody wants its end.
    async fn wished(&self) {
        let mut wanted = self.job.wanted();
        tokio::select! {
            // The sender lives in the job that this holds.
            _ = wanted.wait_for(|w| w.level > Level::Run) => {}
            () = self.time_limit() => {}
        }
    }

    /// Waits for its time limit, which then wants its end.
    async fn time_limit(&self) {
        let Some(at) = self.job.spec.timeout_at else {
            return std::future::pending().await;
        };
        sleep_until(clock::instant(at)).await;
        let who = Who::ours(Cause::Timeout, "timeout");
        self.job.want_stop(self.job.spec.grace_ms, who);
    }

    /// Waits for what comes by itself, and brings it about when somebody wants that. None: it is left alone.
    async fn unless_left<T>(
        &self,
        come: impl Future<Output = T>,
        interrupt: &mut Interrupt,
        runs: impl Fn() -> bool,
        is_text: bool,
    ) -> Option<T> {
        let (mut come, mut time_limit) = (pin!(come), pin!(self.time_limit()));
        let (mut wanted, mut limited) = (self.job.wanted(), true);
        // What was wanted before this must count as news.
        wanted.mark_changed();
        loop {
            let again = Instant::now() + AGAIN;
            tokio::select! {
                biased;
                came = &mut come => return Some(came),
                Ok(()) = wanted.changed() => {
                    if wanted.borrow_and_update().level == Level::Run {
                        continue;
                    }
                    interrupt.begin(&self.job);
                }
                () = &mut time_limit, if limited => {
                    limited = false;
                    continue;
                }
                () = sleep_until(again), if interrupt.goes_on() => {}
            }
            let step = interrupt.step(&self.shell, &self.job, runs(), is_text);
            if step.await.is_break() {
                return None;
            }
        }
    }

    /// Copies what is printed until all of it is known and copied.
    async fn copy(&self, copy: &mut Copy) {
        let mut output = self.output.subscribe();
        let mut news = self.shell.log.subscribe();
        loop {
            // Before looking: what comes afterwards is news.
            news.mark_unchanged();
            let known = *output.borrow_and_update();
            let span = match known {
                Output::None => None,
                Output::Marked => self.printed(),
                Output::From(from) => Some((from, self.shell.log.end())),
                Output::Whole(from, to) => Some((from, to)),
            };
            if let Some((from, to)) = span {
                copy.go_on(self, from, to).await;
            }
            if matches!(known, Output::Whole(..)) {
                let rest = copy.pieces.last(Way::of(&self.shell));
                pump::put(&self.tools.pumps, &self.job, &rest).await;
                return;
            }
            tokio::select! {
                // Both senders live as long as this.
                Ok(()) = news.changed() => {}
                Ok(()) = output.changed() => {}
            }
        }
    }

    /// Waits until the end is known and copying does not get on any more: a disk that does not answer holds up no end.
    async fn is_stuck(&self) {
        let mut output = self.output.subscribe();
        // The sender lives as long as this.
        let _ = output.wait_for(|o| matches!(o, Output::Whole(..))).await;
        loop {
            let end = self.job.log.end();
            tokio::time::sleep(Duration::from_millis(limits::catch_up())).await;
            if self.job.log.end() == end {
                return;
            }
        }
    }

    /// Bytes that were printed and are not in the log of the row.
    fn lost(&self, copy: &Copy) -> u64 {
        match *self.output.borrow() {
            Output::Whole(from, to) => copy.lost + to.saturating_sub(copy.at.unwrap_or(from)),
            Output::None | Output::Marked | Output::From(_) => copy.lost,
        }
    }

    fn printed(&self) -> Option<(u64, u64)> {
        let talk = self.shell.talk.as_ref()?;
        talk.look(&self.shell.log).printed()
    }

    fn finished(&self, end: End, interrupt: &Interrupt, lost: u64) -> Finished {
        let code = match &end {
            End::Done { code, .. } => *code,
            End::ShellEnded => {
                let shell = self.shell.status().finished.clone();
                shell.and_then(|f| f.exit_code)
            }
            End::NoCode | End::Refused(_) | End::Left => None,
        };
        let (outcome, detail) = match interrupt.who() {
            Some(who) => self.stopped_by(who),
            None => of_itself(&end),
        };
        Finished {
            outcome,
            detail: Some(detail).filter(|d| *d != OutcomeDetail::default()),
            exit_code: code,
            signal: None,
            spawn_error: match end {
                End::Refused(refusal) if outcome == Outcome::SpawnFailed => Some(not_sent(refusal)),
                _ => None,
            },
            at: Moment::now(),
            at_exit: self.job.log.end(),
            lost: lost + self.job.log.lost(),
            held_by: None,
            pid: None,
            resolved: None,
            file: None,
            cpu_ms: 0,
            texts: None,
            notice: None,
            stages: Vec::new(),
        }
    }

    fn stopped_by(&self, who: &Who) -> (Outcome, OutcomeDetail) {
        let (outcome, limit) = match who.cause {
            Cause::Timeout => (Outcome::TimedOut, self.job.spec.timeout_ms),
            Cause::Asked | Cause::Idle | Cause::OutputLimit | Cause::Quarantine => {
                (Outcome::Stopped, None)
            }
        };
        let detail = OutcomeDetail {
            by: Some(who.by.clone()),
            reason: who.reason.clone(),
            limit,
            ..OutcomeDetail::default()
        };
        (outcome, detail)
    }

    fn publish(&self, finished: Finished, mut interrupt: Interrupt) {
        let stopped = interrupt.receipt(&self.job);
        life::publish_bare(&self.tools, &self.job, finished, stopped);
    }
}

/// An end that nobody wanted.
fn of_itself(end: &End) -> (Outcome, OutcomeDetail) {
    let (outcome, reason) = match end {
        End::Done { reason, .. } => (Outcome::Exited, reason.map(word)),
        End::ShellEnded => (Outcome::Lost, Some("its shell ended".into())),
        End::NoCode => (
            Outcome::Lost,
            Some("its shell did not tell its code".into()),
        ),
        End::Refused(_) => (Outcome::SpawnFailed, None),
        End::Left => (Outcome::Stopped, None),
    };
    let detail = OutcomeDetail {
        reason,
        ..OutcomeDetail::default()
    };
    (outcome, detail)
}

/// A reason as it is called on the wire.
fn word(reason: Reason) -> String {
    let word = serde_json::to_value(reason).ok();
    word.and_then(|w| Some(w.as_str()?.to_owned()))
        .unwrap_or_default()
}

fn not_sent(refusal: Refusal) -> SpawnError {
    SpawnError {
        step: "line".into(),
        errno: libc::EBUSY,
        hint: refusal.hint,
        message: refusal.message,
        path: None,
        field: "line".into(),
    }
}

/// What was copied so far.
#[derive(Debug, Default)]
struct Copy {
    /// Offset in the log of the shell behind it.
    at: Option<u64>,
    pieces: Pieces,
    lost: u64,
}

impl Copy {
    async fn go_on(&mut self, sending: &Sending, from: u64, to: u64) {
        let mut at = self.at.unwrap_or(from);
        while at < to {
            let most = (to - at).min(limits::TAIL_FRAME);
            let slice = sending.shell.log.read(at, most as usize, Filter::All);
            self.lost += slice.lost;
            if slice.next <= at {
                break;
            }
            at = slice.next;
            let plain = self.pieces.next(&slice.bytes, Way::of(&sending.shell));
            pump::put(&sending.tools.pumps, &sending.job, &plain).await;
            self.at = Some(at);
        }
    }
}
