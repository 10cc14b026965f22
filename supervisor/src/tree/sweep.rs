//! The shared service that looks for members, signals them and ends trees: one scan serves everybody.
//!
//! Requests queue up; one thread takes all that is pending, scans once and answers. It sleeps while there is
//! nothing to do. It never reaps (the keeper does) and keeps no descriptor of a member.
//!
//! The thread is there from the beginning: when a fork storm has filled the process table, no thread can be made,
//! and that is when a stop is wanted most (a worker made on demand once panicked there).
//!
//! A kill goes in rounds: stop whatever is found and look again until nothing new turns up, kill all that was
//! found, sleep until it is dead, look again; over when two looks in a row see nobody. Killing without stopping
//! first loses against a program that forks and dies: it was once chased for 10,000 scans.
//!
//! Chains in which each process forks its successor and dies within 0.3 ms need more: the leader's group is
//! stopped and killed as a whole, a look goes on after its pass over `/proc` with the numbers given out since
//! then, and while a kill is on the thread runs before ordinary ones where it may. Measured with 40 chains on two
//! cores beside two to four busy loops: 4 to 13 looks, mostly under 0.1 s, the worst 1.0 s. Any one of the three may be
//! missing; without the second and third, single looks took ten seconds, since the corpses filled the table.
//!
//! Where a job has a group of its own (see `cgroup`), all of it is ended by one write before anybody is looked for, and
//! the looks are for those who had moved out of it.
//!
//! What remains: on the links rung, and where `/proc` does not tell the newest number, chains outside the
//! leader's group are met by passes alone; before Linux 6.9 the group cannot be signalled as a whole. A look is
//! as long as the table: where the keeper does not get to reap, thousands of corpses lie in it, and an ordinary
//! user's thread among a hundred busy ones may need longer than the deadline. A kill that found nothing to hold
//! in its last looks says that it could not look, never that nobody is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler_proto::job::Survivor;
use ostler_proto::limits;
use tokio::sync::oneshot;

use super::platform::cgroup::{Cgroups, Figures, Leaf, Removed};
use super::platform::{self, Group, Opened, Process, Scanner, Urgency, Waited, Wake};
use super::{Found, Mark, Proof, Rung, Target};

/// Looks that may bring new processes before the kill begins anyway: somebody who forks faster than we stop
/// must not put it off for ever.
const FREEZES: u32 = 8;
/// Looks in a row that must see nobody.
const EMPTY_LOOKS: u32 = 2;
/// First and longest sleep between two looks at what does not die.
const PATIENCE: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// What was struck gets so long to die before it is called a survivor: on a busy machine the kernel needs time
/// to run it once more.
const REACTION: Duration = Duration::from_millis(250);
/// How long the dead of the groups are awaited before everybody is looked at all the same.
const LAST_BREATH: Duration = Duration::from_millis(50);
/// Looks that a kill may still take past its deadline, for the sake of [`REACTION`] or because somebody new
/// turns up. Counted, not timed: on a machine where one look takes seconds, nobody is to be called a survivor
/// before he was struck.
const LAST_LOOKS: u32 = 10;

/// What became of a tree that was to be ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Killed {
    /// Numbers of all members that were seen alive.
    pub seen: Vec<u32>,
    /// Who is still there, and why. Empty: nobody is left.
    pub survivors: Vec<Survivor>,
}

/// Finds, signals and ends trees. Clones share one queue and one thread, which ends with the last of them.
///
/// A call that is dropped before it answers has still been asked.
#[derive(Clone)]
pub struct Trees {
    shared: Arc<Shared>,
    _last: Arc<Last>,
}

impl Trees {
    /// Makes the service for the house `instance`, see [`super::instance_here`].
    pub fn new(instance: u32, rung: Rung) -> Self {
        Self::with_groups(instance, rung, Err(String::new()))
    }

    /// The same where jobs may have groups, or why not; `rung` is how those are found who are in none.
    pub fn with_groups(instance: u32, rung: Rung, groups: Result<Cgroups, String>) -> Self {
        let (cgroups, lack) = match groups {
            Ok(groups) => (Some(groups), None),
            Err(lack) => (None, Some(lack)),
        };
        let shared = Arc::new(Shared {
            instance,
            rung,
            cgroups,
            lack,
            queue: Mutex::new(Queue::default()),
            news: Condvar::new(),
            wake: Wake::new(),
            scans: AtomicU64::new(0),
            fault: Mutex::new(None),
        });
        lock(&shared.queue).served = shared.begin();
        Self {
            _last: Arc::new(Last(Arc::clone(&shared))),
            shared,
        }
    }

    /// Returns how the jobs of this house are marked in their environment.
    pub fn house_marker(&self) -> String {
        super::house_marker(self.shared.instance)
    }

    /// Returns how members are found in this house: `cgroup`, `cookie` or `links`.
    pub fn rung(&self) -> &'static str {
        self.rung_of(self.shared.cgroups.is_some())
    }

    /// The same of one job, whose start may have been refused a group.
    pub fn rung_of(&self, grouped: bool) -> &'static str {
        let rung = if grouped {
            Rung::Cgroup
        } else {
            self.shared.rung
        };
        rung.word()
    }

    /// Why jobs have no groups, where they have none.
    pub fn lack(&self) -> Option<&str> {
        self.shared.lack.as_deref()
    }

    /// What the kernel counted for the group of a job, if it has one.
    pub fn figures(&self, job: u64) -> Option<Figures> {
        self.shared.cgroups.as_ref()?.leaf(job).figures()
    }

    /// Removes the groups of the house, when the keeper who made them is gone. False: somebody lives in one.
    pub fn remove_groups(&self) -> bool {
        let cgroups = self.shared.cgroups.as_ref();
        cgroups.is_none_or(|cgroups| {
            cgroups.clear();
            cgroups.whole().remove() == Removed::Gone
        })
    }

    /// Returns how often all processes were looked at since the service was made.
    pub fn scans(&self) -> u64 {
        self.shared.scans.load(Ordering::Relaxed)
    }

    /// Returns why the last scan failed, nothing when it did not. While this says something, an empty list of
    /// members means nothing.
    pub fn fault(&self) -> Option<String> {
        lock(&self.shared.fault).clone()
    }

    /// Returns the living members, the main process included, as far as they were found. The scan starts after the
    /// call.
    pub async fn members(&self, mark: Mark) -> Vec<u32> {
        self.query(mark, Vec::new()).await.found
    }

    /// Counts the living members. Nothing: nobody could look, which is not the same as that nobody is there.
    pub async fn count(&self, mark: Mark) -> Option<u32> {
        let looked = self.query(mark, Vec::new()).await;
        looked.whole.then_some(looked.found.len() as u32)
    }

    /// Asks every member to end: TERM, then CONT for those that are stopped. Where there is a terminal it hangs up as
    /// well, because an interactive shell hears nothing else. Returns whom it reached.
    pub async fn polite(&self, mark: Mark, terminal: bool) -> Vec<u32> {
        let signals = if terminal {
            vec![Signal::Polite, Signal::HangUp, Signal::Continue]
        } else {
            vec![Signal::Polite, Signal::Continue]
        };
        self.query(mark, signals).await.found
    }

    /// Sends `signo` to every member. Returns whom it reached.
    pub async fn signal(&self, mark: Mark, signo: i32) -> Vec<u32> {
        self.query(mark, vec![Signal::Number(signo)]).await.found
    }

    /// Ends the tree and answers when nobody is left, or after [`limits::force_wait()`] with those that remain; a few
    /// looks later while the tree still changes.
    pub async fn kill(&self, mark: Mark) -> Killed {
        self.end(Target::Job(mark)).await
    }

    /// Ends what a dead house of the same instance left behind, except the processes in `keep`. Only for the
    /// start, and only when [`super::house_is_alive`] found nobody. On the links rung without groups it goes by
    /// the environment and by parents.
    pub async fn sweep_house(&self, keep: &[u32]) -> Killed {
        let keep = keep.to_vec();
        let killed = self.end(Target::House { keep }).await;
        if let Some(cgroups) = &self.shared.cgroups {
            cgroups.clear();
        }
        killed
    }

    async fn query(&self, mark: Mark, signals: Vec<Signal>) -> Looked {
        let (reply, answer) = oneshot::channel();
        self.shared.ask(Ask::Query(Query {
            target: Arc::new(Target::Job(mark)),
            signals,
            met: BTreeSet::new(),
            hit: Vec::new(),
            reply,
        }));
        // The worker always answers; it is gone only together with the runtime, or after a panic.
        answer.await.unwrap_or_default()
    }

    async fn end(&self, target: Target) -> Killed {
        let (reply, answer) = oneshot::channel();
        let target = Arc::new(target);
        let kill = Kill::new(Arc::clone(&target), reply);
        self.shared.ask(Ask::Kill(kill));
        answer
            .await
            .unwrap_or_else(|_| blind(&target, "the worker is gone"))
    }
}

/// What `Trees` and the thread share.
struct Shared {
    instance: u32,
    rung: Rung,
    cgroups: Option<Cgroups>,
    lack: Option<String>,
    queue: Mutex<Queue>,
    news: Condvar,
    wake: Wake,
    scans: AtomicU64,
    fault: Mutex<Option<String>>,
}

/// Requests that no scan has seen yet.
#[derive(Default)]
struct Queue {
    asked: Vec<Ask>,
    /// There is a thread. False only where none could be made; each request tries again.
    served: bool,
    /// Nobody can ask any more.
    over: bool,
}

enum Ask {
    Query(Query),
    Kill(Kill),
}

/// Dropped with the last `Trees`.
struct Last(Arc<Shared>);

impl Drop for Last {
    fn drop(&mut self) {
        lock(&self.0.queue).over = true;
        self.0.news.notify_one();
    }
}

impl Shared {
    /// Makes the thread; false when that is impossible now.
    fn begin(self: &Arc<Self>) -> bool {
        let shared = Arc::clone(self);
        let thread = std::thread::Builder::new().name("trees".into());
        thread.spawn(move || serve(&shared)).is_ok()
    }

    fn ask(self: &Arc<Self>, ask: Ask) {
        let mut queue = lock(&self.queue);
        if !queue.served {
            queue.served = self.begin();
        }
        if !queue.served {
            // Dropped unanswered, which its asker takes for "could not look".
            return;
        }
        queue.asked.push(ask);
        drop(queue);
        self.news.notify_one();
        self.wake.ring();
    }

    /// Waits for requests; false when there will be none.
    fn wanted(&self) -> bool {
        let queue = lock(&self.queue);
        let idle = |queue: &mut Queue| queue.asked.is_empty() && !queue.over;
        let queue = self.news.wait_while(queue, idle);
        !queue
            .unwrap_or_else(PoisonError::into_inner)
            .asked
            .is_empty()
    }
}

/// The thread: serves until nobody can ask any more. What the scanner remembers of a tree holds between requests.
fn serve(shared: &Arc<Shared>) {
    let scanner_of = || Scanner::new(shared.instance, shared.rung, shared.cgroups.clone());
    let mut scanner = scanner_of();
    while shared.wanted() {
        let worker = Worker {
            shared,
            scanner: &mut scanner,
            kills: Vec::new(),
            patience: PATIENCE[0],
        };
        if std::panic::catch_unwind(AssertUnwindSafe(|| worker.run())).is_err() {
            // Whoever asked before that hears that we could not look, and the next one is served again.
            lock(&shared.queue).asked.clear();
            scanner = scanner_of();
            crate::log_line!("error", "a look at the process table panicked");
        }
    }
}

/// A poisoned lock is taken all the same: every value behind these locks is whole between two statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs while there are requests or trees to end.
struct Worker<'a> {
    shared: &'a Shared,
    scanner: &'a mut Scanner,
    kills: Vec<Kill>,
    patience: Duration,
}

impl Worker<'_> {
    fn run(mut self) {
        let mut urgency = None;
        while let Some(mut queries) = self.take() {
            // Only a kill is in a hurry; whoever merely asks waits for his turn.
            urgency = match self.kills.is_empty() {
                true => None,
                false => urgency.or_else(|| Some(Urgency::new())),
            };
            let fault = self.look(&mut queries).err();
            if let Some(error) = &fault {
                self.kills.iter_mut().for_each(|kill| kill.blinded(error));
            }
            *lock(&self.shared.fault) = fault.as_ref().map(ToString::to_string);
            for query in queries {
                let looked = Looked {
                    found: query.hit,
                    whole: fault.is_none(),
                };
                // Whoever asked may have left.
                let _ = query.reply.send(looked);
            }
            self.settle(fault.is_some());
        }
    }

    /// Takes what is pending; nothing when there is nothing to do any more.
    fn take(&mut self) -> Option<Vec<Query>> {
        self.shared.wake.hush();
        let mut queue = lock(&self.shared.queue);
        if queue.asked.is_empty() && self.kills.is_empty() {
            return None;
        }
        let mut queries = Vec::new();
        for ask in queue.asked.drain(..) {
            match ask {
                Ask::Query(query) => queries.push(query),
                Ask::Kill(mut kill) => {
                    self.patience = PATIENCE[0];
                    let leaf = self.scanner.leaf(kill.target.job());
                    kill.leaf = leaf.filter(Leaf::exists);
                    self.kills.push(kill);
                }
            }
        }
        Some(queries)
    }

    /// One scan for everybody.
    fn look(&mut self, queries: &mut [Query]) -> io::Result<()> {
        self.end_groups();
        let kills = &mut self.kills;
        let wanted = kills.iter().map(|kill| &kill.target);
        let wanted = wanted.chain(queries.iter().map(|query| &query.target));
        let targets: Vec<Arc<Target>> = wanted.cloned().collect();
        self.shared.scans.fetch_add(1, Ordering::Relaxed);
        let chase = !kills.is_empty();
        self.scanner.scan(
            &targets,
            chase,
            &mut |at, found| match at.checked_sub(kills.len()) {
                None => kills[at].found(&found),
                Some(at) => queries[at].found(&found),
            },
        )?;
        queries
            .iter_mut()
            .try_for_each(|q| q.ask_group(self.scanner))
    }

    /// Ends what is in the groups, all of them before the first is waited for: they die side by side.
    fn end_groups(&mut self) {
        self.kills.iter_mut().for_each(Kill::look_again);
        let until = Instant::now() + LAST_BREATH;
        for kill in &mut self.kills {
            kill.await_group(until, &self.shared.wake);
        }
    }

    /// Answers kills that are over, strikes where everything stands still, and sleeps when nobody wants
    /// another look at once.
    fn settle(&mut self, blind: bool) {
        let now = Instant::now();
        let mut again = false;
        let mut moved = false;
        let mut struck = Vec::new();
        let scanner = &*self.scanner;
        self.kills.retain_mut(|kill| {
            moved |= kill.fresh;
            match kill.next(blind, now) {
                Step::Over => kill.answer(),
                Step::Look => again = true,
                Step::Strike => {
                    struck.extend(kill.here.iter().map(|(pid, proof)| (*pid, *proof)));
                    kill.strike(scanner);
                }
            }
            kill.reply.is_some()
        });
        if again || self.kills.is_empty() {
            return;
        }
        self.patience = match moved {
            true => PATIENCE[0],
            false => (self.patience * 2).min(PATIENCE[1]),
        };
        let deadlines = self.kills.iter().map(|kill| kill.deadline);
        let ahead = deadlines.filter(|deadline| *deadline > now);
        let until = ahead.fold(now + self.patience, Instant::min);
        self.sleep(&struck, until);
    }

    /// Sleeps until all of them are dead, one after the other through one descriptor: the last death ends the
    /// wait either way.
    fn sleep(&self, struck: &[(u32, Proof)], until: Instant) {
        let mut blind = struck.is_empty();
        for (pid, proof) in struck {
            match wait_one(self.scanner, *pid, *proof, until, &self.shared.wake) {
                Ok(Waited::Dead) => {}
                Ok(Waited::TimeOver | Waited::Woken) => return,
                Err(_) => blind = true,
            }
        }
        // No descriptor was to be had: without a pause this would be a busy loop.
        if blind {
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
        }
    }
}

/// Waits for one death. Somebody who is no longer the one that was struck counts as dead.
fn wait_one(
    scanner: &Scanner,
    pid: u32,
    proof: Proof,
    until: Instant,
    wake: &Wake,
) -> io::Result<Waited> {
    match scanner.reopen(pid, proof)? {
        Opened::Live(process) => process.wait_dead(until, wake),
        Opened::Dead | Opened::Stranger => Ok(Waited::Dead),
    }
}

/// A signal by what it is for; only the platform knows numbers.
#[derive(Clone, Copy)]
enum Signal {
    Polite,
    HangUp,
    Continue,
    Freeze,
    Kill,
    Number(i32),
}

impl Signal {
    #[cfg(unix)]
    const fn number(self) -> i32 {
        match self {
            Self::Polite => libc::SIGTERM,
            Self::HangUp => libc::SIGHUP,
            Self::Continue => libc::SIGCONT,
            Self::Freeze => libc::SIGSTOP,
            Self::Kill => libc::SIGKILL,
            Self::Number(number) => number,
        }
    }

    /// Windows has none; nothing is ever found there to be signalled.
    #[cfg(not(unix))]
    const fn number(self) -> i32 {
        match self {
            Self::Number(number) => number,
            Self::Polite | Self::HangUp | Self::Continue | Self::Freeze | Self::Kill => 0,
        }
    }
}

/// Who is there; they may get signals on the way.
struct Query {
    target: Arc<Target>,
    signals: Vec<Signal>,
    /// Nobody is signalled twice, though a look may tell of a newborn twice.
    met: BTreeSet<u32>,
    hit: Vec<u32>,
    reply: oneshot::Sender<Looked>,
}

/// Whom a look found.
#[derive(Default)]
struct Looked {
    found: Vec<u32>,
    /// It went to its end; otherwise there may be others.
    whole: bool,
}

impl Query {
    fn found(&mut self, found: &Found<'_>) {
        let Found::Live(process) = found else {
            return;
        };
        if !self.met.insert(process.pid()) {
            return;
        }
        self.tell(process);
    }

    /// Those in the group of the job whom the scan did not know: they lost their cookie, or were born behind it.
    fn ask_group(&mut self, scanner: &Scanner) -> io::Result<()> {
        let job = self.target.job();
        let Some(leaf) = scanner.leaf(job) else {
            return Ok(());
        };
        for pid in leaf.members() {
            if self.met.insert(pid)
                && let Opened::Live(process) = scanner.reopen(pid, Proof::Group(job))?
            {
                self.tell(&process);
            }
        }
        Ok(())
    }

    fn tell(&mut self, process: &Process) {
        // Whoever got the first one was reached: it may end him, and the second then finds nobody. A receipt that
        // counted only who got both named two of three members now and then.
        let sent = self
            .signals
            .iter()
            .map(|s| process.send(s.number()).is_ok());
        let sent: Vec<bool> = sent.collect();
        if sent.first().is_none_or(|first| *first) {
            self.hit.push(process.pid());
        }
    }
}

/// What a kill wants next.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Look,
    Strike,
    Over,
}

/// One tree on its way out.
struct Kill {
    target: Arc<Target>,
    /// The group that it is all in, but for those who moved out.
    leaf: Option<Leaf>,
    /// Somebody may live in the group.
    inside: bool,
    /// Somebody was met outside of it.
    outside: bool,
    reply: Option<oneshot::Sender<Killed>>,
    deadline: Instant,
    /// Seen alive at any time.
    seen: BTreeSet<u32>,
    /// Found dead without having been seen alive: unreaped children, and those that died under our eyes.
    gone: BTreeSet<u32>,
    /// Alive in the newest look.
    here: BTreeMap<u32, Proof>,
    /// The newest look brought somebody new, dead or alive: there is life in the tree.
    fresh: bool,
    freezes: u32,
    empties: u32,
    late_looks: u32,
    /// The fewest that were met in a look past the deadline.
    fewest: usize,
    /// When each of those that are here was struck first.
    struck: BTreeMap<u32, Instant>,
    denied: BTreeSet<u32>,
    fault: Option<String>,
}

impl Kill {
    fn new(target: Arc<Target>, reply: oneshot::Sender<Killed>) -> Self {
        Self {
            target,
            leaf: None,
            inside: true,
            outside: false,
            reply: Some(reply),
            deadline: Instant::now() + Duration::from_millis(limits::force_wait()),
            seen: BTreeSet::new(),
            gone: BTreeSet::new(),
            here: BTreeMap::new(),
            fresh: false,
            freezes: 0,
            empties: 0,
            late_looks: 0,
            fewest: usize::MAX,
            struck: BTreeMap::new(),
            denied: BTreeSet::new(),
            fault: None,
        }
    }

    fn look_again(&mut self) {
        // Before the first look, and while somebody turns up: what came into the group since then runs.
        if self.fresh || self.seen.is_empty() {
            self.send_group(Signal::Freeze);
        }
        self.inside |= self.fresh;
        self.here.clear();
        self.fresh = false;
        self.fault = None;
        if let Some(leaf) = self.leaf.as_ref().filter(|_| self.inside) {
            self.seen.extend(leaf.members());
            // One that may not be ended so, or is not there, has members like any other tree, or none.
            let _ = leaf.kill();
        }
    }

    /// Whoever has not died in time is one of those who are here.
    fn await_group(&mut self, until: Instant, wake: &Wake) {
        let Some(leaf) = self.leaf.as_ref().filter(|_| self.inside) else {
            return;
        };
        self.inside = !leaf.empties(until, Some(wake));
        if self.inside {
            let proof = Proof::Group(self.target.job());
            let stay = leaf.members().into_iter().map(|pid| (pid, proof));
            self.here.extend(stay);
        }
    }

    fn blinded(&mut self, error: &io::Error) {
        self.fault = Some(error.to_string());
    }

    /// Stops it at once: what stands still cannot fork.
    fn found(&mut self, found: &Found<'_>) {
        match found {
            Found::Live(process) => {
                let pid = process.pid();
                self.fresh |= self.seen.insert(pid);
                self.outside |= !self.here.contains_key(&pid);
                self.here.insert(pid, process.proof());
                self.send(process, Signal::Freeze);
            }
            // A member that died between being read and being opened has perhaps forked before: only a corpse
            // that was there already counts as nobody.
            Found::Dead(pid) => self.fresh |= !self.seen.contains(pid) && self.gone.insert(*pid),
        }
    }

    fn send(&mut self, process: &Process, signal: Signal) {
        let refused = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        if process.send(signal.number()).is_err_and(refused) {
            self.denied.insert(process.pid());
        }
    }

    /// Signals the leader's group as a whole, if there is one that is the job's alone.
    fn send_group(&self, signal: Signal) {
        let Target::Job(mark) = &*self.target else {
            return;
        };
        if self.leaf.is_some() && !self.outside {
            return;
        }
        let group = mark.leader.and_then(|(pid, start)| Group::of(pid, start));
        if let Some(group) = group {
            group.send(signal.number());
        }
    }

    fn next(&mut self, blind: bool, now: Instant) -> Step {
        let late = now >= self.deadline;
        self.late_looks += u32::from(late);
        let very_late = self.late_looks > LAST_LOOKS;
        if blind {
            return if late { Step::Over } else { Step::Strike };
        }
        if self.here.is_empty() {
            self.empties = if self.fresh { 0 } else { self.empties + 1 };
            if very_late && self.fresh {
                self.fault = Some("its processes die before they can be stopped".to_owned());
            }
            let over = self.empties >= EMPTY_LOOKS || very_late && self.fresh;
            return if over { Step::Over } else { Step::Look };
        }
        self.empties = 0;
        let here = &self.here;
        self.struck.retain(|pid, _| here.contains_key(pid));
        if late && self.is_dying(now) {
            self.late_looks = 0;
        } else if very_late || late && self.resist(now) {
            return Step::Over;
        }
        if self.fresh && self.freezes < FREEZES && !late {
            self.freezes += 1;
            return Step::Look;
        }
        self.freezes = 0;
        Step::Strike
    }

    /// Tells whether fewer are here than in any look before, past the deadline.
    fn is_dying(&mut self, now: Instant) -> bool {
        let fewer = self.here.len() < self.fewest;
        self.fewest = self.fewest.min(self.here.len());
        fewer && now < self.deadline + Duration::from_millis(limits::FORCE_DYING)
    }

    /// Tells whether all that are here had their blow and the time to die of it, or may not be struck.
    fn resist(&self, now: Instant) -> bool {
        let struck = |pid| self.struck.get(pid).is_some_and(|at| now >= *at + REACTION);
        self.here
            .keys()
            .all(|pid| self.denied.contains(pid) || struck(pid))
    }

    fn strike(&mut self, scanner: &Scanner) {
        self.send_group(Signal::Kill);
        for (pid, proof) in self.here.clone() {
            if let Ok(Opened::Live(process)) = scanner.reopen(pid, proof) {
                self.send(&process, Signal::Kill);
            }
            self.struck.entry(pid).or_insert_with(Instant::now);
        }
    }

    fn answer(&mut self) {
        let Some(reply) = self.reply.take() else {
            return;
        };
        // Nobody in there may be left standing still, and nobody joins a group that is empty.
        self.send_group(Signal::Kill);
        let mut killed = match &self.fault {
            Some(fault) => blind(&self.target, fault),
            None => Killed::default(),
        };
        killed.seen = self.seen.iter().copied().collect();
        let left = self.here.keys().map(|pid| self.survivor(*pid));
        killed.survivors.extend(left);
        // Whoever asked may have left.
        let _ = reply.send(killed);
    }

    fn survivor(&self, pid: u32) -> Survivor {
        let why = if self.denied.contains(&pid) {
            "not permitted"
        } else if platform::state(pid) == Some('D') {
            "uninterruptible"
        } else {
            "does not react"
        };
        Survivor {
            pid,
            program: platform::program(pid).unwrap_or_default(),
            why: why.to_owned(),
        }
    }
}

/// The answer when nobody could look: the tree must not be called empty.
fn blind(target: &Target, fault: &str) -> Killed {
    let leader = match target {
        Target::Job(mark) => mark.leader.map_or(0, |(pid, _)| pid),
        Target::House { .. } => 0,
    };
    Killed {
        seen: Vec::new(),
        survivors: vec![Survivor {
            pid: leader,
            program: String::new(),
            why: format!("cannot be looked for: {fault}"),
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kill whose time is over, of members that were all struck long ago.
    fn late(now: Instant) -> Kill {
        let mark = Mark {
            job: 1,
            leader: None,
            process_id: "proc_x".into(),
        };
        let mut kill = Kill::new(Arc::new(Target::Job(mark)), oneshot::channel().0);
        kill.deadline = now;
        kill.struck = (0..9).map(|pid| (pid, now)).collect();
        kill
    }

    /// What it wants when so many are left, a second past its deadline or as many as are given.
    fn looks(past: Duration, left: &[u32]) -> Vec<Step> {
        let now = Instant::now();
        let mut kill = late(now);
        let step = |n: &u32| {
            kill.here = (0..*n).map(|pid| (pid, Proof::Start(1))).collect();
            kill.next(false, now + past)
        };
        left.iter().map(step).collect()
    }

    #[test]
    fn a_kill_goes_on_past_its_deadline_while_fewer_and_fewer_are_left() {
        use Step::{Over, Strike};
        let second = Duration::from_secs(1);
        assert_eq!(looks(second, &[9, 7, 4, 4]), [Strike, Strike, Strike, Over]);
        // Never for ever.
        let long = Duration::from_millis(limits::FORCE_DYING);
        assert_eq!(looks(long, &[9]), [Over]);
    }
}
