//! Ends: of leaders, which are told and kept, and of strays, which are buried at once.
//!
//! Called by the loop. A leader stays a zombie until the supervisor orders its burial,
//! so that its number stays its own. Everything else that ends below us is reaped as soon
//! as it is seen, its cookie read first. Peeking at all children always shows the same
//! first zombie, so a held leader would hide every stray behind it; then, and for the
//! count of strays at a leader's end, the list of children is read.

use super::cookie::{self, Owner};
use super::kernel::{self, Seen, Whom};
use super::store::{Held, Job};
use super::turn::{Keeper, records};
use super::wire::{Ended, Exec, NONE, Op, Reaped, Step};
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::time::Duration;

/// Readings of the list of children until one finds nobody to bury.
const READINGS: usize = 4;

/// Strays buried in one go; a fork loop must not keep us from our orders.
const AT_ONCE: usize = 1024;

impl Keeper {
    /// A leader's pidfd is readable.
    pub(super) fn leader_ended(&mut self, job: u64) {
        // The exec's outcome comes before the end: the pipe was closed before the exit.
        self.read_status(job);
        let Some(entry) = self.store.get(job) else {
            return;
        };
        let Some(pidfd) = &entry.held.pidfd else {
            return;
        };
        let seen = kernel::wait(Whom::Pidfd(pidfd.as_fd()), true);
        if matches!(seen, Ok(None)) {
            let ready = kernel::readable([pidfd.as_fd()], Duration::ZERO);
            if !matches!(ready, Ok([true])) {
                return;
            }
        }
        // Left in, a level-triggered entry would fire for ever.
        self.epoll.remove(pidfd.as_fd());
        match seen {
            Ok(Some(seen)) => self.end_known(job, seen),
            // Ended, but a tracer has the status.
            Ok(None) => {
                self.store.withheld.insert(job);
                self.note_end(job, None);
            }
            // Not ours to wait for; cannot be, but an end without a status beats a spin.
            Err(_) => self.note_end(job, None),
        }
    }

    fn end_known(&mut self, job: u64, seen: Seen) {
        self.store.withheld.remove(&job);
        let Some(entry) = self.store.get(job) else {
            return;
        };
        if let Some((step, errno)) = entry.row.failing {
            self.bury_failure(job, step, errno);
            return;
        }
        let reap = entry.row.reap_wanted;
        self.note_end(job, Some(seen));
        if reap {
            self.reap(job);
        }
    }

    fn note_end(&mut self, job: u64, seen: Option<Seen>) {
        if let Some(entry) = self.store.get(job) {
            entry.row.told.facts.ended = Some(Ended {
                code: seen.and_then(|seen| seen.code),
                signal: seen.and_then(|seen| seen.signal),
                core: seen.is_some_and(|seen| seen.core),
                withheld: seen.is_none(),
                strays: NONE,
            });
            self.ends.push(job);
        }
    }

    /// A start failed in the child: it is buried here, since it never was a job's leader.
    fn bury_failure(&mut self, job: u64, step: u32, errno: i32) {
        let Some(entry) = self.store.get(job) else {
            return;
        };
        if let Some(pidfd) = entry.held.pidfd.take() {
            // It has been seen as a zombie; this takes it.
            let _ = kernel::wait(Whom::Pidfd(pidfd.as_fd()), false);
        }
        entry.row.told.facts.exec = Exec::Failed {
            step: Step::from_number(step.into()).unwrap_or(Step::Died),
            errno,
            candidate: entry.row.trying.unwrap_or(0),
        };
        entry.held = Held::default();
        if let Some(started) = entry.row.told.facts.started {
            self.store.leaders.remove(&started.pid);
        }
        self.store.mark(job, Op::Execed);
    }

    /// Reads what the child says about its exec; the end of file is the exec itself.
    pub(super) fn read_status(&mut self, job: u64) {
        let Some(entry) = self.store.get(job) else {
            return;
        };
        let Some(status) = &entry.held.status else {
            return;
        };
        let (records, closed) = records(status);
        for (step, value) in records {
            if step == Step::Try as u32 {
                entry.row.trying = Some(value as u32);
            } else {
                entry.row.failing = Some((step, value));
            }
        }
        if !closed {
            return;
        }
        self.epoll.remove(status.as_fd());
        entry.held.status = None;
        if entry.row.failing.is_some() {
            return;
        }
        let clamped = entry.row.clamped;
        match entry.row.trying {
            Some(candidate) => {
                entry.row.told.facts.exec = Exec::Done { candidate, clamped };
                self.store.mark(job, Op::Execed);
            }
            None => entry.row.failing = Some((Step::Died as u32, 0)),
        }
    }

    /// Buries a leader whose end is known.
    pub(super) fn reap(&mut self, job: u64) {
        let Some(entry) = self.store.get(job) else {
            return;
        };
        let Some(pidfd) = &entry.held.pidfd else {
            return;
        };
        let reaped = match kernel::wait_with_usage(Whom::Pidfd(pidfd.as_fd()), false) {
            Ok(Some((seen, usage))) => reaped(seen, &usage),
            // A tracer still has it.
            Ok(None) => {
                entry.row.reap_wanted = true;
                return;
            }
            // Nothing left to wait for; the job must not hang on that.
            Err(_) => Reaped::default(),
        };
        entry.held.pidfd = None;
        entry.row.told.facts.reaped = Some(reaped);
        let started = entry.row.told.facts.started;
        self.store.withheld.remove(&job);
        if let Some(started) = started {
            self.store.leaders.remove(&started.pid);
        }
        self.store.mark(job, Op::Reaped);
    }

    /// Buries ended strays, and tells of the leaders that ended in this turn.
    pub(super) fn settle(&mut self) {
        // The kernel queues SIGCHLD in the same step that makes a zombie visible, so the
        // signals of all ends seen so far are here; read later they would cost a second
        // look at the list of children.
        self.read_signals();
        self.children_changed = false;
        if self.brain.withheld {
            self.supervisor_ended();
        }
        for job in self.store.withheld.clone() {
            self.look_again(job);
        }
        let ends = std::mem::take(&mut self.ends);
        if ends.is_empty() && !self.bury_first() {
            self.bury_listed();
        }
        if !ends.is_empty() || !self.touched.is_empty() {
            self.count(ends);
        }
    }

    /// Tells of the leaders that ended, and who is left of every ended job in which somebody has died since.
    ///
    /// Exact: whoever lives in a tree stands below a child of ours, and nobody else buries. What a child forked with
    /// its last breath came up behind it in the list, so a reading that found nobody to bury has seen everybody.
    fn count(&mut self, ends: Vec<u64>) {
        let mut read = self.bury_listed();
        for _ in 1..READINGS {
            if matches!(read, Some((_, true))) {
                read = self.bury_listed();
            }
        }
        let exact = matches!(read, Some((_, false)));
        let owners = read.map(|(living, _)| self.owners(&living));
        let touched = std::mem::take(&mut self.touched);
        let told: BTreeSet<u64> = touched.iter().chain(&ends).copied().collect();
        for job in told {
            let mut strays = self.strays(job, owners.as_deref());
            // Somebody dies and is followed all the time: rather one too many, and counted again.
            if owners.is_some() && !exact && touched.contains(&job) {
                strays = strays.max(1);
                self.touched.insert(job);
                self.children_changed = true;
            }
            if let Some(ended) = self.ended(job) {
                ended.strays = strays;
                self.store.mark(job, Op::MemberEnded);
            }
        }
        for job in ends {
            self.store.mark(job, Op::Ended);
        }
    }

    fn owners(&self, living: &[i32]) -> Vec<Owner> {
        living.iter().map(|pid| self.owner(*pid)).collect()
    }

    /// Who is left of a job besides its leader.
    fn strays(&self, job: u64, owners: Option<&[Owner]>) -> u64 {
        let known = owners.map_or(NONE, |owners| count(owners, job));
        if !matches!(known, 0 | NONE) {
            return known;
        }
        // Also who lost his cookie; and where nobody is left, the group goes.
        match self.house.defaults.remove_leaf(job) {
            true => 1,
            false => known,
        }
    }

    fn ended(&mut self, job: u64) -> Option<&mut Ended> {
        let Job { row, .. } = self.store.get(job)?;
        row.told.facts.ended.as_mut()
    }

    /// A tracer may have let go.
    fn look_again(&mut self, job: u64) {
        let pidfd = self.store.get(job).and_then(|job| job.held.pidfd.as_ref());
        let Some(pidfd) = pidfd else {
            return;
        };
        if let Ok(Some(seen)) = kernel::wait(Whom::Pidfd(pidfd.as_fd()), true) {
            self.end_known(job, seen);
        }
    }

    /// Buries strays as long as they come first. False when somebody who must not be
    /// reaped stands in front.
    fn bury_first(&mut self) -> bool {
        for _ in 0..AT_ONCE {
            let Ok(Some(seen)) = kernel::wait(Whom::Any, true) else {
                return true;
            };
            if self.kept(seen.pid) {
                return false;
            }
            self.bury(seen.pid);
        }
        self.children_changed = true;
        true
    }

    /// Buries all ended strays by the list of children. Returns who lives on, and whether one was buried.
    fn bury_listed(&mut self) -> Option<(Vec<i32>, bool)> {
        let children = self.house.children()?;
        let mut living = Vec::new();
        let mut buried = false;
        for pid in children {
            if self.kept(pid) {
                continue;
            }
            if let Ok(Some(_)) = kernel::wait(Whom::Pid(pid), true) {
                self.bury(pid);
                buried = true;
            } else {
                living.push(pid);
            }
        }
        Some((living, buried))
    }

    /// Leaders and the supervisor are reaped in their own time.
    fn kept(&self, pid: i32) -> bool {
        self.store.leaders.contains_key(&pid) || self.brain.is(pid)
    }

    fn bury(&mut self, pid: i32) {
        let owner = self.owner(pid);
        // It was seen as a zombie of ours.
        let _ = kernel::wait(Whom::Pid(pid), false);
        match owner {
            Owner::Job(job) => self.member_ended(job),
            Owner::Unknown => {
                let jobs = self.store.jobs.iter();
                let over = jobs.filter(|(_, job)| job.row.told.facts.ended.is_some());
                for job in over.map(|(id, _)| *id).collect::<Vec<_>>() {
                    self.member_ended(job);
                }
            }
        }
    }

    fn member_ended(&mut self, job: u64) {
        if let Some(entry) = self.store.get(job) {
            entry.row.told.facts.members_ended += 1;
            if entry.row.told.facts.ended.is_some() {
                self.touched.insert(job);
            }
            self.store.mark(job, Op::MemberEnded);
        }
    }

    /// Whose a child is: by its cookie, else by the session or group it is still in.
    pub(super) fn owner(&self, pid: i32) -> Owner {
        let by_cookie = cookie::owner(pid, self.house.defaults.instance);
        if by_cookie != Owner::Unknown {
            return by_cookie;
        }
        // SAFETY: plain calls; the child is unreaped, so its number is its own.
        let links = unsafe { [libc::getsid(pid), libc::getpgid(pid)] };
        links
            .into_iter()
            .find_map(|link| self.store.sessions.get(&link))
            .map_or(Owner::Unknown, |job| Owner::Job(*job))
    }
}

/// How many of them are the job's; nothing is sure where that is none and one may be anybody's.
fn count(owners: &[Owner], job: u64) -> u64 {
    let own = owners.iter().filter(|owner| **owner == Owner::Job(job));
    match own.count() as u64 {
        0 if owners.contains(&Owner::Unknown) => NONE,
        own => own,
    }
}

fn reaped(seen: Seen, usage: &libc::rusage) -> Reaped {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Reaped {
        code: seen.code,
        signal: seen.signal,
        user_us: micros(usage.ru_utime),
        sys_us: micros(usage.ru_stime),
        max_rss_kib: usage.ru_maxrss as u64,
    }
}
