//! The scan on Linux: one pass over `/proc` that finds the members of any number of trees.
//!
//! Owned by the sweep's worker. Everything is read afresh each time; a descriptor lives only while its process
//! is being looked at, because an ordinary user has 1,024 of them and a job may have more members. It never
//! signals anything by number, and never touches process 0, 1, itself or its parent.

pub mod cgroup;
mod facts;
mod frontier;
mod group;
mod handle;
mod links;
mod lost;
mod sockets;
mod urgency;
mod wake;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io, process};

use super::{Found, Proof, Rung, Target, cookie};
use cgroup::{Cgroups, Leaf};
pub(super) use facts::state;
pub use facts::{cookie_of, describe, program, start_time};
pub(super) use group::Group;
pub(super) use handle::{Opened, Process, Waited};
pub(super) use sockets::{listening, sockets_of};
pub(super) use urgency::Urgency;
pub(super) use wake::Wake;

/// How long one look runs after newborn processes. Strangers that fork all the time must not hold it up.
const CHASE: Duration = Duration::from_millis(5);

/// Returns the job of `instance` whose cookie process `pid` carries, [`cookie::HOUSE_JOB`] for a keeper or
/// supervisor, nothing for a stranger or a process that is gone. Works on zombies.
pub fn job_of(pid: u32, instance: u32) -> Option<u64> {
    let (soft, hard) = cookie_of(pid)?;
    cookie::belongs(soft, hard, instance)
}

/// Returns the instance of a house of this user with this runtime folder (its real path).
///
/// Beside the boot id it covers the process namespace: a container with the same user number and path has the
/// same boot id, and its processes are visible from outside. Without the namespace the outer house would take
/// the container's jobs for leftovers of its own and end them.
///
/// # Errors
/// `/proc` is missing or cannot be read.
pub fn instance_here(run_folder: &Path) -> io::Result<u32> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let namespace = fs::read_link("/proc/self/ns/pid")?;
    // SAFETY: getuid has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    let epoch = format!("{} {}", boot.trim(), namespace.display());
    Ok(cookie::instance(uid, &epoch, run_folder))
}

/// Returns a living keeper or supervisor of `instance`, other than the processes in `except`.
///
/// # Errors
/// `/proc` cannot be read; then nothing is known, and a start must sweep nothing.
pub fn house_is_alive(instance: u32, except: &[u32]) -> io::Result<Option<u32>> {
    let mut found = living(instance, |pid, job| {
        job == cookie::HOUSE_JOB && !except.contains(&pid)
    });
    found.next().transpose()
}

/// Returns the living processes of jobs of `instance`, other than this one.
///
/// # Errors
/// `/proc` cannot be read.
pub fn jobs_alive(instance: u32, rung: Rung) -> io::Result<Vec<u32>> {
    let is_job = |pid, job| job != cookie::HOUSE_JOB && pid != process::id();
    let found: io::Result<Vec<u32>> = living(instance, is_job).collect();
    let found = found?;
    if !found.is_empty() || rung < Rung::Links {
        return Ok(found);
    }
    let is_one = |pid: &u32| {
        *pid != process::id()
            && job_of(*pid, instance) != Some(cookie::HOUSE_JOB)
            && links::is_of_house(*pid, instance)
    };
    Ok(pids()?.filter(is_one).collect())
}

/// Returns the value of [`ostler_proto::address::HOUSE_VARIABLE`] in the jobs of `instance`.
pub fn house_marker(instance: u32) -> String {
    links::house_marker(instance)
}

/// Those that carry a cookie of the instance and are wanted.
fn living(
    instance: u32,
    is_wanted: impl Fn(u32, u64) -> bool,
) -> impl Iterator<Item = io::Result<u32>> {
    let (pids, unread) = match pids() {
        Ok(pids) => (Some(pids), None),
        Err(error) => (None, Some(Err(error))),
    };
    let found = pids.into_iter().flatten().filter_map(move |pid| {
        let job = job_of(pid, instance).filter(|job| is_wanted(pid, *job))?;
        let still = || job_of(pid, instance) == Some(job);
        match Process::open(pid, Proof::Cookie(job), still) {
            Ok(Opened::Live(_)) => Some(Ok(pid)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    });
    unread.into_iter().chain(found)
}

/// Returns the numbers of all processes that can be seen, in ascending order as a rule.
///
/// A `/proc` of another process namespace is refused: its numbers would mean other processes here.
///
/// The list is taken whole before anybody is looked at. Read and looked at by turns, a pass was once seconds
/// long: the kernel lists in ascending order, and chains gave out new numbers as fast as it came along.
pub(super) fn pids() -> io::Result<impl Iterator<Item = u32>> {
    let own = fs::read_link("/proc/self")?;
    if own.as_os_str().as_encoded_bytes() != process::id().to_string().as_bytes() {
        return Err(io::Error::other("/proc shows another process namespace"));
    }
    let entries = fs::read_dir("/proc")?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    Ok(pids.collect::<Vec<u32>>().into_iter())
}

/// Finds members. Keeps nothing between scans on the cookie rung; on the links rung it remembers whom it has
/// seen, because an orphan can no longer be told by its parents.
pub(super) struct Scanner {
    instance: u32,
    rung: Rung,
    cgroups: Option<Cgroups>,
    remembered: links::Memory,
    lost: lost::Lost,
}

impl Scanner {
    pub(super) fn new(instance: u32, rung: Rung, cgroups: Option<Cgroups>) -> Self {
        Self {
            instance,
            rung,
            cgroups,
            remembered: links::Memory::default(),
            lost: lost::Lost::default(),
        }
    }

    /// Looks at every process once and tells `visit` of each member, with the index of its target. A process
    /// is acted on inside the call, right after it was recognised: later it may be somebody else.
    ///
    /// With `chase` it then goes after newborn processes, so that one may be told of twice.
    ///
    /// # Errors
    /// `/proc` cannot be read, or no descriptor is left. What was visited until then stands.
    pub(super) fn scan(
        &mut self,
        targets: &[Arc<Target>],
        chase: bool,
        visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<()> {
        match self.rung {
            Rung::Cgroup | Rung::Cookie => self.scan_cookies(targets, chase, visit),
            Rung::Links => self.scan_links(targets, visit),
        }
    }

    /// Opens a process that an earlier scan found, if it is still the same.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn reopen(&self, pid: u32, proof: Proof) -> io::Result<Opened> {
        Process::open(pid, proof, || match proof {
            Proof::Cookie(job) => job_of(pid, self.instance) == Some(job),
            Proof::Start(start) => facts::start_time(pid) == Some(start),
            Proof::Group(job) => self.leaf(job).is_some_and(|l| l.members().contains(&pid)),
        })
    }

    /// The group of a job, or of the whole house; nothing on the lower rungs.
    pub(super) fn leaf(&self, job: Option<u64>) -> Option<Leaf> {
        let cgroups = self.cgroups.as_ref()?;
        Some(job.map_or_else(|| cgroups.whole(), |job| cgroups.leaf(job)))
    }

    fn scan_cookies(
        &mut self,
        targets: &[Arc<Target>],
        chase: bool,
        visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<()> {
        let index = Index::new(targets);
        let mut leaders = index.leaders.clone();
        let spared = Spared::now();
        let before = chase.then(frontier::newest).flatten();
        let mut pids: Vec<u32> = pids()?.collect();
        if let Some(newest) = before {
            // The youngest first, they have the least time; above the newest are the oldest, from the last
            // time around.
            pids.sort_unstable_by_key(|pid| Reverse((*pid <= newest, *pid)));
        }
        let mut without = Vec::new();
        for pid in pids {
            let Some(job) = self.consider(pid, &index, &spared, &mut without, visit)? else {
                continue;
            };
            if let Some((_, targets)) = leaders.get_mut(&pid) {
                targets.retain(|target| !index.of(job, pid).any(|told| told == *target));
            }
        }
        // A leader that lowered its own limits is still the leader.
        for (pid, (start, targets)) in leaders {
            if targets.is_empty() || spared.holds(pid) {
                continue;
            }
            let opened = self.reopen(pid, Proof::Start(start))?;
            if let Opened::Live(process) = &opened {
                targets
                    .iter()
                    .for_each(|target| visit(*target, Found::Live(process)));
            }
        }
        if let Some(before) = before {
            self.chase(before, &index, &spared, &mut without, visit)?;
        }
        without.retain(|pid| !spared.holds(*pid));
        for (pid, start, job) in self.lost.tell(&without, targets, self.instance) {
            if index.wants(job, pid) {
                let opened = self.reopen(pid, Proof::Start(start))?;
                index
                    .of(job, pid)
                    .for_each(|target| tell(&opened, pid, target, visit));
            }
        }
        Ok(())
    }

    /// Tells of one process, if it belongs to a target; returns its job then. Who may have lost his cookie is noted.
    fn consider(
        &self,
        pid: u32,
        index: &Index<'_>,
        spared: &Spared,
        without: &mut Vec<u32>,
        visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<Option<u64>> {
        let Some((soft, hard)) = cookie_of(pid) else {
            return Ok(None);
        };
        let Some(job) = cookie::belongs(soft, hard, self.instance) else {
            if cookie::was_lowered(soft) {
                without.push(pid);
            }
            return Ok(None);
        };
        if spared.holds(pid) || job == cookie::HOUSE_JOB || !index.wants(job, pid) {
            return Ok(None);
        }
        let opened = self.reopen(pid, Proof::Cookie(job))?;
        for target in index.of(job, pid) {
            tell(&opened, pid, target, visit);
        }
        Ok(Some(job))
    }

    /// Goes after those that were born since number `from` was the newest: a directory pass sees only what was
    /// there when it came by, and a chain is always one link further. Over when nobody is born any more.
    fn chase(
        &self,
        mut from: u32,
        index: &Index<'_>,
        spared: &Spared,
        without: &mut Vec<u32>,
        visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<()> {
        let until = Instant::now() + CHASE;
        while let Some(newest) = frontier::newest().filter(|newest| *newest != from) {
            for pid in frontier::since(from, newest) {
                self.consider(pid, index, spared, without, visit)?;
            }
            from = newest;
            if Instant::now() >= until {
                break;
            }
        }
        Ok(())
    }

    fn scan_links(
        &mut self,
        targets: &[Arc<Target>],
        visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<()> {
        let spared = Spared::now();
        for (target, pid, start) in
            links::members(self.instance, targets, &spared, &mut self.remembered)?
        {
            let opened = self.reopen(pid, Proof::Start(start))?;
            tell(&opened, pid, target, visit);
        }
        Ok(())
    }
}

/// Hands one candidate on.
fn tell(opened: &Opened, pid: u32, target: usize, visit: &mut dyn FnMut(usize, Found<'_>)) {
    match opened {
        Opened::Live(process) => visit(target, Found::Live(process)),
        Opened::Dead => visit(target, Found::Dead(pid)),
        Opened::Stranger => {}
    }
}

/// Processes that are never members, whatever they look like.
struct Spared {
    own: u32,
    keeper: u32,
}

impl Spared {
    /// The parent is asked each time: when the keeper dies, the supervisor gets another one.
    fn now() -> Self {
        Self {
            own: process::id(),
            keeper: std::os::unix::process::parent_id(),
        }
    }

    fn holds(&self, pid: u32) -> bool {
        pid <= 1 || pid == self.own || pid == self.keeper
    }
}

/// Targets by job, so that 200 trees cost one look-up a process.
struct Index<'a> {
    jobs: HashMap<u64, Vec<usize>>,
    houses: Vec<(usize, &'a [u32])>,
    leaders: HashMap<u32, (u64, Vec<usize>)>,
}

impl<'a> Index<'a> {
    fn new(targets: &'a [Arc<Target>]) -> Self {
        let mut index = Self {
            jobs: HashMap::new(),
            houses: Vec::new(),
            leaders: HashMap::new(),
        };
        for (at, target) in targets.iter().enumerate() {
            match &**target {
                Target::Job(mark) => {
                    index.jobs.entry(mark.job).or_default().push(at);
                    if let Some((pid, start)) = mark.leader {
                        let entry = index.leaders.entry(pid).or_insert((start, Vec::new()));
                        entry.1.push(at);
                    }
                }
                Target::House { keep } => index.houses.push((at, keep)),
            }
        }
        index
    }

    fn wants(&self, job: u64, pid: u32) -> bool {
        self.of(job, pid).next().is_some()
    }

    fn of(&self, job: u64, pid: u32) -> impl Iterator<Item = usize> {
        let jobs = self.jobs.get(&job).into_iter().flatten().copied();
        let houses = self
            .houses
            .iter()
            .filter(move |(_, keep)| !keep.contains(&pid));
        jobs.chain(houses.map(|(at, _)| *at))
    }
}
