//! `job/stop` and `job/signal`.

use std::sync::Arc;

use ostler_proto::{
    job::{JobResult, Kind, State},
    limits,
    methods::{JobSignal, JobStop, List, Receipt, SignalJob, Signalled, Stop, StopSummary},
    refusal::{Refusal, RefusalKind},
};

use super::{Serve, start::result};
use crate::{
    caller::Caller,
    claim,
    house::settled,
    job::{Job, Who},
    life::plan::within,
    registry::{Access, Registry},
    signal,
    terminal::Terminal,
};

impl Serve for JobStop {
    async fn serve(caller: Caller, params: Stop) -> Result<StopSummary, Refusal> {
        within("graceMs", params.grace_ms, 0, limits::GRACE_MAX)?;
        if params
            .reason
            .as_ref()
            .is_some_and(|r| r.len() > limits::REASON)
        {
            return Err(Refusal::bad(
                "reason",
                format!("must have at most {} bytes", limits::REASON),
            ));
        }
        let (jobs, unknown) = targets(&caller, &params)?;
        let by = params.by.as_deref().unwrap_or("client");
        // Newest first, and nobody waits for another: one grace in all.
        let over: Vec<bool> = jobs.iter().map(|j| j.is_finished()).collect();
        let mut order: Vec<&Arc<Job>> = jobs.iter().filter(|j| j.is_live()).collect();
        order.sort_by_key(|j| std::cmp::Reverse(j.spec.number));
        for job in order {
            let grace = if params.force {
                0
            } else {
                params.grace_ms.unwrap_or(job.spec.grace_ms)
            };
            let who = Who::asked(by, params.reason.clone()).silent(caller.owns(job));
            job.ask_stop(grace, who);
        }
        let mut receipts = Vec::with_capacity(jobs.len());
        for (job, over) in jobs.iter().zip(over) {
            if !over && params.wait.unwrap_or(true) {
                settled(job).await;
            }
            caller.house().registry.hand_over(job);
            receipts.push(Receipt {
                result: final_result(job).filter(|_| params.collect).map(Box::new),
                ..receipt(job, over)
            });
            if !over {
                claim::told(&caller, job);
            }
        }
        let registry = &caller.house().registry;
        drop_stopped(&mut receipts, &jobs, registry, &caller.access());
        Ok(StopSummary {
            jobs: receipts,
            unknown,
        })
    }
}

/// The jobs that are meant, and ids that name none. One id that names none is a refusal; among several it must not
/// keep the others running.
fn targets(caller: &Caller, params: &Stop) -> Result<(Vec<Arc<Job>>, Vec<String>), Refusal> {
    let (registry, access) = (&caller.house().registry, caller.access());
    let wide = params.all || params.root.is_some() || params.everywhere;
    if wide {
        let list = List {
            session: params.session.clone(),
            root: params.root.clone(),
            all: params.everywhere,
            live: true,
        };
        return Ok((registry.list(&list, &access)?, Vec::new()));
    }
    if params.ids.is_empty() || params.ids.len() > limits::IDS {
        return Err(Refusal::bad(
            "ids",
            format!("must name 1 to {} jobs", limits::IDS),
        ));
    }
    let (mut jobs, mut unknown) = (Vec::new(), Vec::new());
    for id in &params.ids {
        match registry.find(params.session.as_deref(), id, &access) {
            Ok(job) => jobs.push(job),
            Err(refusal) if params.ids.len() == 1 => return Err(refusal),
            Err(_) => unknown.push(id.clone()),
        }
    }
    Ok((jobs, unknown))
}

/// What the stop of a job did, told from its published status.
pub(super) fn receipt(job: &Job, was_over: bool) -> Receipt {
    let row = job.row();
    let stopped = job
        .status()
        .stopped
        .clone()
        .filter(|_| !was_over)
        .unwrap_or_default();
    Receipt {
        kind: row.kind,
        already_finished: was_over,
        ended: stopped.seen.len() as u32,
        forced: stopped.forced,
        took_ms: stopped.took_ms,
        survivors: if row.state == State::Exited && row.tree.left == 0 {
            Vec::new()
        } else {
            stopped.survivors
        },
        left_running: job
            .owner
            .as_ref()
            // It did that then: who knows what has become of them since.
            .filter(|_| !was_over)
            .map_or_else(Vec::new, |owner| owner.left_running().to_vec()),
        row,
        result: None,
    }
}

/// What a sub-agent had started does not go on where the same request stops it, whatever it is called by now.
pub(super) fn drop_stopped(
    receipts: &mut [Receipt],
    jobs: &[Arc<Job>],
    registry: &Registry,
    access: &Access,
) {
    let goes_on = |name: &String| {
        let job = registry.find(None, name, access);
        !job.is_ok_and(|job| jobs.iter().any(|stopped| Arc::ptr_eq(stopped, &job)))
    };
    for receipt in receipts {
        receipt.left_running.retain(goes_on);
    }
}

fn final_result(job: &Job) -> Option<JobResult> {
    job.status().finished.as_ref()?;
    Some(result(job, true))
}

/// Signals that a shell takes at its prompt without an end.
const HARMLESS: &[i32] = &[libc::SIGINT, libc::SIGWINCH, libc::SIGCONT];

impl Serve for JobSignal {
    async fn serve(caller: Caller, params: SignalJob) -> Result<Signalled, Refusal> {
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        let number = signal::number(&params.signal)
            .ok_or_else(|| Refusal::bad("signal", format!("knows no {}", params.signal)))?;
        let status = job.status().clone();
        let alive = matches!(status.state, State::Running | State::Stopping);
        let Some(group) = status.pid.filter(|_| alive) else {
            let why = match status.finished {
                Some(_) => "has ended",
                None => "has no main process to signal",
            };
            let refusal = Refusal::new(RefusalKind::NoGroup, format!("{} {why}", job.id()));
            return Err(match &job.spec.sent_to {
                Some(shell) if status.finished.is_none() => {
                    refusal.hint(format!("ostler stop {0} interrupts it; ostler signal {shell} signals what runs in its shell", job.id()))
                }
                _ => refusal,
            });
        };
        // Of a terminal the group in the foreground, as if it had been typed; it is of this job's session.
        let front = job.with_terminal(Terminal::foreground);
        let Some(front) = front.unwrap_or(Some(group)) else {
            return Err(Refusal::new(
                RefusalKind::NoGroup,
                format!("nobody is in the foreground of {}", job.id()),
            ));
        };
        if job.spec.kind == Kind::Shell && front == group && !HARMLESS.contains(&number) {
            let id = job.id();
            let words = format!(
                "the shell itself is in front of {id}; {} would end it",
                signal::name(number)
            );
            return Err(Refusal::new(RefusalKind::NoGroup, words).hint(format!(
                "ostler shell close {id} ends it with everything in it"
            )));
        }
        let group = front;
        // The leader is unreaped while the state is one of these, so its number, and its group's, is ours.
        // SAFETY: kill has no memory precondition; the group is never 0, 1 or our own (leaders are session leaders).
        if unsafe { libc::kill(-(group as i32), number) } != 0 {
            let error = std::io::Error::last_os_error();
            return Err(Refusal::new(
                RefusalKind::NoGroup,
                format!("{}: {error}", job.id()),
            ));
        }
        Ok(Signalled { group })
    }
}
