//! A job that two supervisors died of while they restored it must not take the house along: nothing of it is looked
//! at any more but its processes, which are ended.
//!
//! The mark stands in memory that the keeper holds, so it outlives its supervisor; the keeper tells the next one.
//! Never owned here: how often a house may die at all (the keeper's), and how a tree is ended (`life`).

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
};

use ostler_proto::limits;

use crate::{
    job::Job,
    keeper::wire::Facts,
    ledger::{Entry, Ledger},
    life::Tools,
    log::Arena,
    process::link::JobState,
    tree::Mark,
};

/// Why such a job is lost, in the words of its row.
const REASON: &str =
    "the supervisor died twice while restoring it; its processes were ended, its output is gone";

/// Which jobs are in quarantine, and the mark of the one that is being restored.
pub(crate) struct Quarantine {
    arena: Arc<Arena>,
    jobs: HashSet<u64>,
}

impl Quarantine {
    /// `marked`: the job under whose mark the last supervisor died, and how many did in a row. `earlier`: those that an
    /// earlier supervisor has put in.
    pub(crate) fn new(
        arena: &Arc<Arena>,
        marked: Option<(u64, u32)>,
        earlier: impl Iterator<Item = u64>,
    ) -> Self {
        let marked = marked.filter(|(_, deaths)| *deaths >= limits::RESTORE_DEATHS);
        Self {
            arena: Arc::clone(arena),
            jobs: marked
                .map(|(job, _)| job)
                .into_iter()
                .chain(earlier)
                .collect(),
        }
    }

    pub(crate) fn holds(&self, job: u64) -> bool {
        self.jobs.contains(&job)
    }

    /// Does something with what is known of a job, under its mark.
    pub(crate) fn restoring<T>(&self, job: u64, work: impl FnOnce() -> T) -> T {
        let word = self.arena.house_word(0);
        word.store(job.saturating_add(1), Ordering::SeqCst);
        let done = work();
        word.store(0, Ordering::SeqCst);
        done
    }

    /// Wants the end of a job that is in. Told to the ledger first: the next supervisor must not begin anew with it.
    pub(crate) fn end(&self, job: &Job, ledger: &Ledger) {
        if !self.holds(job.spec.number) {
            return;
        }
        let number = job.spec.number;
        let wanted = job.quarantine(REASON);
        ledger.append(&Entry::Wanted { number, wanted });
        crate::log_line!("error", "job={} is lost: {REASON}", job.spec.process_id);
    }
}

/// Ends the tree of a job whose record nobody can read: no row can stand for it, so only the log tells.
pub(crate) fn put_down(tools: &Tools, state: JobState) {
    let tools = tools.clone();
    tokio::spawn(async move {
        let mark = mark(&state);
        crate::log_line!(
            "error",
            "job {} of the keeper has no record that can be read: its processes are ended",
            state.job
        );
        for survivor in tools.trees.kill(mark).await.survivors {
            crate::log_line!(
                "error",
                "of job {}: pid {} {}",
                state.job,
                survivor.pid,
                survivor.why
            );
        }
        let mut facts = state.entry.facts.clone();
        // The keeper buries nobody that has not ended, and forgets nobody that it has not buried.
        let ended = facts.wait_for(|f| f.ended.is_some() || f.started.is_none());
        if ended.await.is_ok() {
            tools.keeper.reap(state.job);
            tools.keeper.forget(state.job);
        }
    });
}

fn mark(state: &JobState) -> Mark {
    let Facts { started, ended, .. } = &state.facts;
    let leader = started.filter(|_| ended.is_none());
    Mark {
        job: state.job,
        leader: leader.map(|s| (s.pid as u32, s.start_time)),
        process_id: format!("unreadable {}", state.job),
    }
}
