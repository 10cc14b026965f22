//! The house: what every connection and every method shares. It starts lives; it lives none.

use std::{path::PathBuf, sync::Arc, time::Duration};

use ostler_proto::{
    PROTOCOL, PROTOCOL_MIN, VERSION,
    address::Folders,
    limits,
    methods::{Build, HelloAnswer, Start},
    refusal::Refusal,
};
use tokio::sync::{Notify, Semaphore, watch};

use crate::{
    clock::Moment,
    job::{Job, Who},
    keeper::wire::Facts,
    ledger::Entry,
    life::{self, Tools, plan},
    process::link::{JobFds, Leave},
    registry::{Lease, Registry},
    upgrade::Upgrade,
};

/// The one house of this process.
pub(crate) struct House {
    pub(crate) registry: Arc<Registry>,
    pub(crate) tools: Tools,
    pub(crate) folders: Folders,
    /// Home directory from the password file.
    pub(crate) home: PathBuf,
    pub(crate) owner_key: String,
    pub(crate) started_at: u64,
    pub(crate) generation: u64,
    pub(crate) keeper_pid: u32,
    /// `splice`, or `read` where the kernel refuses the former.
    pub(crate) byte_path: &'static str,
    /// A job is over, or a lease: there may be something to let go of some day.
    pub(crate) ended: Notify,
    /// Places for connections.
    pub(crate) places: Arc<Semaphore>,
    /// Somebody asked for the end; the daemon finishes it after the answer.
    pub(crate) disposed: Notify,
    /// Which build this is, and which the keeper.
    pub(crate) build: String,
    pub(crate) keeper_build: Build,
    /// Wire versions that the keeper speaks.
    pub(crate) keeper_wire: (u32, u32),
    /// Why the last upgrade was taken back.
    pub(crate) taken_back: Option<String>,
    pub(crate) upgrade: Upgrade,
}

impl House {
    /// Says who answers.
    pub(crate) fn hello(&self, owner: bool) -> HelloAnswer {
        HelloAnswer {
            protocol: PROTOCOL,
            protocol_min: PROTOCOL_MIN,
            version: VERSION.into(),
            build: self.build.clone(),
            pid: std::process::id(),
            keeper_pid: self.keeper_pid,
            generation: self.generation,
            owner,
        }
    }

    /// What this supervisor is.
    pub(crate) fn this(&self) -> Build {
        Build {
            version: VERSION.into(),
            build: self.build.clone(),
        }
    }

    /// Asks the keeper for the child of a new job and begins its life.
    ///
    /// # Errors
    /// A refusal that leaves nothing behind.
    pub(crate) fn launch(
        self: &Arc<Self>,
        job: &Arc<Job>,
        start: &Start,
        input: plan::Input,
    ) -> Result<(), Refusal> {
        let child = self.registry.child_of(job).map(|child| child.session.id);
        let house = self.tools.trees.house_marker();
        let (request, file) = plan::fork_request(start, &job.spec, input, house, child);
        let entry = self.tools.keeper.enter(job.spec.number);
        let file = file.as_ref().map(std::os::fd::AsFd::as_fd);
        if let Err(error) = self.tools.keeper.fork(job.spec.number, &request, file) {
            self.tools.keeper.forget(job.spec.number);
            job.publish(|s| s.over = true);
            self.registry.release(job);
            let words = format!("no descriptors for another job: {error}");
            return Err(Refusal::limit("descriptors", 0, words, &[]));
        }
        self.adopt(job, entry.facts, None);
        Ok(())
    }

    /// Begins, or goes on with, the life of a job whose facts the keeper tells.
    pub(crate) fn adopt(
        self: &Arc<Self>,
        job: &Arc<Job>,
        facts: watch::Receiver<Facts>,
        fds: Option<JobFds>,
    ) {
        let life = life::live(self.tools.clone(), Arc::clone(job), facts, fds);
        self.let_live(job, life);
    }

    /// Lets a job live its life, and keeps house when that is over.
    pub(crate) fn let_live(
        self: &Arc<Self>,
        job: &Arc<Job>,
        life: impl Future<Output = ()> + Send + 'static,
    ) {
        let (house, job) = (Arc::clone(self), Arc::clone(job));
        tokio::spawn(async move {
            life.await;
            house.registry.hand_over(&job);
            house.registry.trim(&job.seat().session.id);
            house.ended.notify_one();
            house.shorten_ledger();
        });
    }

    /// A run goes on without its request from here on, also over a crash. True when it was bound to it.
    pub(crate) fn unbind(&self, job: &Job) -> bool {
        let was_bound = job.unbind();
        if was_bound {
            let number = job.spec.number;
            self.tools.ledger.append(&Entry::Unbound { number });
        }
        was_bound
    }

    /// Stops the jobs of a session when its lease is over and nobody came meanwhile. Records and artifacts stay.
    pub(crate) fn run_lease(self: &Arc<Self>, lease: Lease) {
        let house = Arc::clone(self);
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(lease.ms)).await;
            for job in house.registry.lapse(&lease) {
                job.want_stop(job.spec.grace_ms, Who::asked("lease", None));
            }
            house.ended.notify_one();
        });
    }

    /// Lets go of what has been kept long enough, for as long as the house stands. Sleeps until the first of it is
    /// due, or until something ended where nothing was kept: what ends later is due later.
    pub(crate) async fn forget_old(&self) {
        loop {
            match self.registry.expires() {
                None => self.ended.notified().await,
                Some(at) => {
                    // Kept longer than that, not exactly as long.
                    let left = (at + 1).saturating_sub(Moment::now().boot);
                    tokio::time::sleep(Duration::from_millis(left)).await;
                    self.registry.expire();
                }
            }
        }
    }

    /// Writes the ledger anew where most of it is out of date.
    pub(crate) fn shorten_ledger(&self) {
        let ledger = &self.registry.ledger;
        if !ledger.is_long() {
            return;
        }
        let mark = ledger.mark();
        let entries = self.registry.snapshot(self.started_at, self.generation);
        let keeper = &self.tools.keeper;
        let done = ledger.rewrite(&entries, mark, |generation, file| {
            keeper.ledger(generation, file)
        });
        if let Err(error) = done {
            crate::log_line!("warn", "the ledger stays long: {error}");
        }
    }

    /// Stops every job, newest first, without waiting in between: one grace in all. Returns the jobs.
    pub(crate) async fn stop_all(&self, grace_ms: u64, by: &str) -> Vec<Arc<Job>> {
        self.registry.leave();
        if self.upgrade.call_off() {
            // Sent or not, an end of the keeper is told elsewhere.
            let _ = self.tools.keeper.leave(&Leave::Stay);
        }
        let mut jobs = self.registry.live();
        jobs.sort_by_key(|j| std::cmp::Reverse(j.spec.number));
        for job in &jobs {
            // Nobody is left to be told.
            job.ask_stop(grace_ms, Who::asked(by, None).silent(true));
        }
        for job in &jobs {
            settled(job).await;
        }
        jobs
    }
}

/// Waits until nothing is left of a stopped job, or its survivors are named.
pub(crate) async fn settled(job: &Job) {
    let mut status = job.watch();
    // The sender lives in the job that the caller holds.
    let _ = status
        .wait_for(|s| s.over || s.stopped.as_ref().is_some_and(|x| x.done))
        .await;
    background_over(job).await;
}

/// What was sent to a shell in the background ends with it; who is told of the one end finds the other.
async fn background_over(shell: &Job) {
    if shell.status().finished.is_some()
        && let Some(send) = shell.background()
    {
        let mut status = send.watch();
        // A disk that does not answer holds up no stop; then its end comes later.
        let patience = Duration::from_millis(limits::catch_up());
        let _ = tokio::time::timeout(patience, status.wait_for(|s| s.over)).await;
    }
}

/// The same for who is about to forget it: a tree of which nothing is left is over a moment later.
pub(crate) async fn over(job: &Job) {
    let mut status = job.watch();
    let withstood = |s: &crate::job::Stopped| s.done && !s.survivors.is_empty();
    // The sender lives in the job that the caller holds.
    let _ = status
        .wait_for(|s| s.over || s.stopped.as_ref().is_some_and(withstood))
        .await;
    background_over(job).await;
}

/// Longest time that a dispose may take: every grace, the force, and something for the scheduler.
pub(crate) fn longest_dispose() -> u64 {
    limits::GRACE_MAX + limits::force_wait() + 5_000
}
