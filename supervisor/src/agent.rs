//! The life of a sub-agent that no program stands for: one task, which alone publishes its status.
//!
//! Whoever registered it speaks as it, over a connection, and says when it has ended. Somebody else may want its end: that
//! is told to who speaks, who has the grace to say a last word. Where nobody speaks as it any more, and nobody comes back
//! in time, it is lost. After a crash of the supervisor it goes on: its row is in the ledger, its words in the arena.

use std::{pin::pin, sync::Arc, time::Duration};

use ostler_proto::{
    agent::StopRequest,
    job::{Outcome, OutcomeDetail, State},
    limits,
};
use tokio::time::sleep_until;

use crate::{
    clock::{self, Moment},
    job::{Cause, Finished, Job, Level, Stopped, Who},
    life::{self, Tools},
    owner::{LastWord, Owner},
    pump,
};

/// Lives a row to its end.
pub(crate) async fn live(tools: Tools, job: Arc<Job>) {
    let Some(owner) = &job.owner else { return };
    if job.status().finished.is_none() {
        job.publish(|s| s.state = State::Running);
    }
    let end = end(&job, owner).await;
    job.log.mark_exit();
    job.log.seal();
    let stopped = matches!(end, End::Wanted(..)).then(|| receipt(&job));
    life::publish_bare(&tools, &job, finished(&job, end), stopped);
    pump::finish(&tools.pumps, &job).await;
}

/// What somebody wants of it, if that is its end.
pub(crate) fn stop_request(job: &Job) -> Option<StopRequest> {
    let wanted = job.wanted().borrow().clone();
    let who = wanted.who.filter(|_| wanted.level > Level::Run)?;
    Some(StopRequest {
        by: who.by,
        reason: who.reason,
        left_ms: wanted.force_at.saturating_sub(clock::mono()),
    })
}

/// How it came to its end.
enum End {
    Said(LastWord),
    /// Somebody wanted it; the last word, if there was one.
    Wanted(Who, Option<LastWord>),
    Lost,
}

async fn end(job: &Job, owner: &Owner) -> End {
    let (mut wanted, mut holders) = (job.wanted(), owner.holders());
    let mut last_word = owner.last_word();
    let reattach = Duration::from_millis(limits::reattach());
    let mut lost = pin!(tokio::time::sleep(reattach));
    let mut was_alone = true;
    loop {
        let said = last_word.borrow_and_update().clone();
        let now = wanted.borrow_and_update().clone();
        let alone = *holders.borrow_and_update() == 0;
        let who = now.who.filter(|_| now.level > Level::Run);
        match (who, said) {
            (Some(who), said @ Some(_)) => return End::Wanted(who, said),
            (None, Some(said)) => return End::Said(said),
            // Nobody would hear of it.
            (Some(who), None) if alone || clock::mono() >= now.force_at => {
                return End::Wanted(who, None);
            }
            (Some(_), None) => job.publish(|s| s.state = State::Stopping),
            (None, None) => {}
        }
        if alone && !was_alone {
            lost.as_mut().reset(tokio::time::Instant::now() + reattach);
        }
        was_alone = alone;
        let force_at = now.force_at;
        tokio::select! {
            // The senders live in the job that the caller holds.
            Ok(()) = last_word.changed() => {}
            Ok(()) = wanted.changed() => {}
            Ok(()) = holders.changed() => {}
            () = sleep_until(clock::instant(force_at)), if force_at != u64::MAX => {}
            () = time_limit(job) => {}
            () = &mut lost, if alone => return End::Lost,
        }
    }
}

/// Waits for its time limit, which then wants its end.
async fn time_limit(job: &Job) {
    let at = job
        .spec
        .timeout_at
        .filter(|_| job.wanted().borrow().level == Level::Run);
    let Some(at) = at else {
        return std::future::pending().await;
    };
    sleep_until(clock::instant(at)).await;
    let who = Who::ours(Cause::Timeout, "timeout");
    job.want_stop(job.spec.grace_ms, who);
}

fn receipt(job: &Job) -> Stopped {
    Stopped {
        done: true,
        took_ms: clock::mono().saturating_sub(job.wanted().borrow().since),
        ..Stopped::default()
    }
}

fn finished(job: &Job, end: End) -> Finished {
    let (outcome, said, by, why) = match end {
        End::Said(said) => (Outcome::Exited, Some(said), None, None),
        End::Wanted(who, said) => {
            let outcome = match who.cause {
                Cause::Timeout => Outcome::TimedOut,
                Cause::Asked | Cause::Idle | Cause::OutputLimit | Cause::Quarantine => {
                    Outcome::Stopped
                }
            };
            (outcome, said, Some(who.by), who.reason)
        }
        End::Lost => {
            let why = "nobody speaks as it any more".to_owned();
            (Outcome::Lost, None, None, Some(why))
        }
    };
    let (code, reason) = said.map_or((None, None), |s| (Some(s.code), s.reason));
    let detail = OutcomeDetail {
        by,
        reason: why.or(reason),
        limit: job.spec.timeout_ms.filter(|_| outcome == Outcome::TimedOut),
        ..OutcomeDetail::default()
    };
    Finished {
        outcome,
        detail: Some(detail).filter(|d| *d != OutcomeDetail::default()),
        exit_code: code,
        at_exit: job.log.end(),
        lost: job.log.lost(),
        at: Moment::now(),
        signal: None,
        spawn_error: None,
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
