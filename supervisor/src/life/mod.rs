//! The life of a job: one task, the only one that signals and buries, and it buries last.
//!
//! It turns what the keeper tells, what is wanted, what the pump sees and what time it is into events of the
//! pure table in [`step`], and does what the table says. Everything slow (scans, kills) runs beside it, so that
//! a second, shorter stop is heard while the first one works.

use std::{
    collections::{BTreeSet, VecDeque},
    os::fd::OwnedFd,
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt, future::BoxFuture, stream::FuturesUnordered};
use ostler_proto::{
    job::{Outcome, OutcomeDetail, SpawnError, State, Survivor},
    limits,
};
use tokio::sync::watch;

use self::step::{Action, Event, Life, Phase};
use crate::{
    clock::{self, Moment},
    feed::Into,
    job::{Cause, Finished, Job, Level, Stopped, Wanted, Who},
    keeper::wire::{Ended, Exec, Facts, NONE, Started, Step},
    ledger::{Entry, Ledger},
    pipeline::Report,
    process::link::{JobFds, Keeper, Which},
    pump::{self, Pumps},
    session::Numbers,
    terminal::Terminal,
    tree::{Killed, Mark, Trees},
};

pub(crate) mod plan;

mod spawn_error;

pub(crate) mod step;

pub(crate) mod texts;

/// What every life needs of the house.
#[derive(Clone)]
pub(crate) struct Tools {
    pub(crate) keeper: Keeper,
    pub(crate) trees: Trees,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) pumps: Arc<Pumps>,
    /// The newest number of a notice.
    pub(crate) notices: Arc<Numbers>,
}

/// Lives a job to its end: returns when no member is left and the keeper has forgotten it.
///
/// `fds`: the streams of a job that an earlier supervisor began.
pub(crate) async fn live(
    tools: Tools,
    job: Arc<Job>,
    facts: watch::Receiver<Facts>,
    fds: Option<JobFds>,
) {
    let mut living = Living::new(tools, job, facts, fds);
    while living.life.phase != Phase::Over {
        let event = living.next().await;
        living.handle(event);
    }
    living.job.publish(|s| s.over = true);
    living.job.clean_beside();
}

/// Puts the process of a job into its row.
fn show_process(tools: &Tools, job: &Job, started: Started) {
    let rung = tools.trees.rung_of(started.grouped);
    job.publish(|s| {
        s.rung = Some(rung);
        s.pid = Some(started.pid as u32);
        s.start_time = started.start_time;
    });
}

/// Puts into its row what the keeper knows of a job that an earlier supervisor began, before anybody asks: its life comes
/// to that later, and a job that ran was listed without a process.
pub(crate) fn show_known(tools: &Tools, job: &Job, facts: &Facts) {
    if let Some(started) = facts.started {
        show_process(tools, job, started);
    }
    let runs = matches!(facts.exec, Exec::Done { .. });
    if runs && job.status().state == State::Starting {
        job.publish(|s| s.state = State::Running);
    }
}

/// Publishes the end of a row that no process stands for: the one who lives it.
pub(crate) fn publish_bare(
    tools: &Tools,
    job: &Job,
    mut finished: Finished,
    stopped: Option<Stopped>,
) {
    // Held to the end of this, so that ends are told in the order of their numbers.
    let mut newest = tools.notices.hold();
    if !job.ends_in_silence() {
        *newest += 1;
        finished.notice = Some(*newest);
    }
    tools.ledger.append(&Entry::Finished {
        spec: Box::new(job.spec.clone()),
        finished: Box::new(finished.clone()),
    });
    job.publish(|s| {
        s.state = State::Exited;
        s.finished = Some(Arc::new(finished));
        s.stopped = stopped;
        s.over = true;
    });
}

/// First pause between two counts of a tree whose members end all the time, and the longest one: a chain of processes
/// that renew themselves must not keep a core busy with counting them.
const COUNT_FIRST: Duration = Duration::from_millis(1);
/// See [`COUNT_FIRST`].
const COUNT_MOST: Duration = Duration::from_millis(200);

/// How long the keeper may take to bury whom a forced end has killed, before that is done once more.
const BURIAL: Duration = Duration::from_millis(50);
/// How often it is done once more.
const MOST_AGAIN: u32 = 8;

/// What runs beside a life.
enum Work {
    Signalled(Vec<u32>),
    Killed(Killed),
    /// The keeper had the time to bury who was killed.
    Awaited,
    /// Nothing: nobody could look.
    Counted(Option<u32>),
    CaughtUp,
    /// A shell that has been quiet is in use all the same.
    Used(bool),
    /// What the runner of a pipeline has told; nothing where the disk did not answer.
    Reported(Option<Report>),
}

/// What the keeper has told so far, to find what is new.
#[derive(Default)]
struct Told {
    started: bool,
    exec: bool,
    ended: Option<Ended>,
    members_ended: u64,
}

struct Living {
    tools: Tools,
    job: Arc<Job>,
    life: Life,
    facts: watch::Receiver<Facts>,
    wanted: watch::Receiver<Wanted>,
    told: Told,
    pending: VecDeque<Event>,
    works: FuturesUnordered<BoxFuture<'static, Work>>,
    fds: Option<JobFds>,
    pump: Option<pump::Running>,
    /// The drain's time is over and the pump was asked for what still stood in the pipes.
    caught_up: bool,
    /// It has not answered yet.
    catching_up: bool,
    /// A wish that came meanwhile: from when on force is allowed.
    put_off: Option<u64>,
    /// Signals to the tree that are on their way.
    signalling: u32,
    counting: bool,
    /// Whether it is in use is being looked at.
    asking_use: bool,
    /// Nobody has counted yet what the main process left behind.
    first_count: bool,
    /// Pause before the next count; grows while each count is overtaken by another end.
    pause: Duration,
    /// Something ended while a count was under way.
    count_again: bool,
    left: u32,
    spawn_error: Option<SpawnError>,
    /// What the runner of a pipeline has told so far.
    report: Report,
    /// Looks at that which are under way.
    reading: u32,
    /// Who began to stop it while its main process lived: decides the outcome.
    stopped_by: Option<Who>,
    stopped: Stopped,
    /// Who was killed; a second try finds some of them again.
    forced: BTreeSet<u32>,
    /// Forced ends that met nobody where somebody is.
    again: u32,
}

impl Living {
    fn new(
        tools: Tools,
        job: Arc<Job>,
        facts: watch::Receiver<Facts>,
        fds: Option<JobFds>,
    ) -> Self {
        let mut life = Life::new(job.spec.timeout_at);
        if job.status().finished.is_some() {
            // Restored: its result stands already, members were left.
            life.phase = Phase::Held { force_at: None };
        }
        let left = job.status().left;
        // What its main process did meanwhile is not what became of it.
        let quarantine = job.wanted().borrow().clone();
        let stopped_by = quarantine
            .is_quarantine()
            .then_some(quarantine.who)
            .flatten();
        // The receiver first: a wish that came before this task began must count as news.
        let mut wanted = job.wanted();
        wanted.mark_changed();
        Self {
            tools,
            life,
            facts,
            wanted,
            told: Told::default(),
            pending: VecDeque::new(),
            works: FuturesUnordered::new(),
            fds,
            pump: None,
            caught_up: false,
            catching_up: false,
            put_off: None,
            signalling: 0,
            counting: false,
            asking_use: false,
            first_count: false,
            pause: Duration::ZERO,
            count_again: false,
            left,
            spawn_error: None,
            report: Report::default(),
            reading: 0,
            stopped_by,
            stopped: Stopped::default(),
            forced: BTreeSet::new(),
            again: 0,
            job,
        }
    }

    /// Waits for the next event.
    async fn next(&mut self) -> Event {
        loop {
            self.hear();
            // The receipt of a stop names what its signals reached, a result how many are left and how each stage ended, so
            // these are heard before any end.
            let told = self.signalling == 0 && !self.first_count && self.reading == 0;
            if told && let Some(event) = self.pending.pop_front() {
                return event;
            }
            let (deadline, idle_at) = (self.deadline(), self.idle_at());
            tokio::select! {
                // The keeper's link ends the house when it breaks; until then its cells stay open.
                Ok(()) = self.facts.changed() => {}
                // Before there is a process, there is nobody to signal; the wish waits in its cell.
                Ok(()) = self.wanted.changed(), if self.told.started => {
                    let wanted = self.wanted.borrow_and_update().clone();
                    if wanted.level > Level::Run && !self.put_off(wanted.force_at) {
                        return Event::Wanted { force_at: wanted.force_at };
                    }
                }
                _ = wait(&mut self.pump), if self.pump.is_some() => {
                    self.pump = None;
                    self.pending.push_back(Event::OutputClosed);
                    self.take_up();
                }
                Some(work) = self.works.next(), if !self.works.is_empty() => self.done(work),
                () = clock_at(deadline), if deadline.is_some() => {
                    if !self.catch_up() {
                        return Event::Deadline;
                    }
                }
                // Output does not wake this task; whether it was idle is asked when it could have been.
                () = clock_at(idle_at), if idle_at.is_some() => self.check_idle(),
            }
        }
    }

    fn deadline(&self) -> Option<u64> {
        let waits = self.caught_up && matches!(self.life.phase, Phase::Draining { .. });
        self.life.deadline().filter(|_| !waits)
    }

    /// When it may be ended for being idle.
    fn idle_at(&self) -> Option<u64> {
        let runs = matches!(self.life.phase, Phase::Starting | Phase::Running);
        self.job.idle_at().filter(|_| runs && !self.asking_use)
    }

    fn check_idle(&mut self) {
        if self.job.idle_at().is_none_or(|at| clock::mono() < at) {
            return;
        }
        if self.job.spec.shell.is_some() {
            self.asking_use = true;
            let asked = self.job.in_use();
            self.works
                .push(Box::pin(async move { Work::Used(asked.await) }));
        } else {
            self.end_idle();
        }
    }

    fn heard_use(&mut self, used: bool) {
        self.asking_use = false;
        if used {
            self.job.saw_input();
        } else if self.job.idle_at().is_some_and(|at| clock::mono() >= at) {
            self.end_idle();
        }
    }

    fn end_idle(&self) {
        let who = Who::ours(Cause::Idle, "idle limit");
        self.job.want_stop(self.job.spec.grace_ms, who);
    }

    /// At the end of a drain the pump is asked once for what stands in the pipes. True: it was asked now.
    fn catch_up(&mut self) -> bool {
        let draining = matches!(self.life.phase, Phase::Draining { .. });
        let Some(pump) = self.pump.as_ref().filter(|_| draining && !self.caught_up) else {
            return false;
        };
        self.caught_up = true;
        self.catching_up = true;
        // Bounded: behind a disk that does not answer, the rest comes into the log later. Not by the drain's own time,
        // which is for who holds the pipe: a busy disk once cut results, and followers with them, at a multiple of the ring.
        let caught_up =
            tokio::time::timeout(Duration::from_millis(limits::catch_up()), pump.catch_up());
        self.works.push(Box::pin(async move {
            let _ = caught_up.await;
            Work::CaughtUp
        }));
        true
    }

    /// A wish that comes while the output is drained waits until what stands in the pipes is read: what the job said
    /// before its natural end is part of its result, whoever wanted that end a moment later. True: it waits.
    fn put_off(&mut self, force_at: u64) -> bool {
        let draining = matches!(self.life.phase, Phase::Draining { .. }) && self.pump.is_some();
        // Asked for already, at the end of the drain's time: then the answer is on its way.
        let waits = draining && (self.catch_up() || self.catching_up);
        if waits {
            self.put_off = Some(force_at);
        }
        waits
    }

    fn take_up(&mut self) {
        self.catching_up = false;
        if let Some(force_at) = self.put_off.take() {
            self.pending.push_back(Event::Wanted { force_at });
        }
    }

    /// Turns news of the keeper into events.
    fn hear(&mut self) {
        let facts = self.facts.borrow_and_update().clone();
        if let (Some(started), false) = (facts.started, self.told.started) {
            self.told.started = true;
            show_process(&self.tools, &self.job, started);
            self.take_streams();
        }
        if !self.told.exec && facts.exec != Exec::Pending {
            self.told.exec = true;
            self.hear_exec(facts.exec);
        }
        // A tree can become empty only at such a moment, because every orphan comes to the keeper.
        let gone = facts.members_ended != self.told.members_ended;
        self.told.members_ended = facts.members_ended;
        let Some(ended) = facts.ended.filter(|e| !e.withheld) else {
            return;
        };
        let first = self.told.ended.replace(ended).is_none();
        if first {
            self.read_report();
            self.pending.push_back(Event::MainEnded);
        }
        // A stop may have emptied the tree before the end of its leader was told.
        if !(first || gone) || self.life.tree_empty {
            return;
        }
        if ended.strays == 0 {
            self.pending.push_back(Event::TreeEmpty);
        } else {
            self.first_count |= first;
            self.count();
        }
    }

    fn hear_exec(&mut self, exec: Exec) {
        match exec {
            // Whether every stage was executed stands in the report.
            Exec::Done { .. } if self.job.spec.pipeline.is_some() => self.read_report(),
            Exec::Done { candidate, .. } => {
                let resolved = self.job.spec.candidates.get(candidate as usize).cloned();
                self.runs(resolved);
            }
            Exec::Failed {
                step,
                errno,
                candidate,
            } => {
                // A child that our own stop ended on its way to exec was stopped; nothing failed.
                if !(step == Step::Died && self.stopped_by.is_some()) {
                    let error = spawn_error::of(&self.job.spec, step, errno, candidate);
                    self.spawn_error = Some(error);
                }
                self.told.started = true;
                self.pending.push_back(Event::ExecFailed);
            }
            Exec::Pending => {}
        }
    }

    /// Its program is executed.
    fn runs(&mut self, resolved: Option<String>) {
        let file = resolved.as_deref().and_then(crate::file::identity);
        self.job.publish(|s| {
            s.resolved = resolved;
            s.file = file;
            if s.state == State::Starting {
                s.state = State::Running;
            }
        });
        self.pending.push_back(Event::ExecOk);
    }

    /// Looks at what the runner of a pipeline has told, if this is one.
    fn read_report(&mut self) {
        let Some(pipeline) = self.job.spec.pipeline.clone() else {
            return;
        };
        self.reading += 1;
        let read = tokio::task::spawn_blocking(move || Report::read(&pipeline.report));
        let read = tokio::time::timeout(Duration::from_millis(limits::catch_up()), read);
        self.works.push(Box::pin(async move {
            Work::Reported(read.await.ok().and_then(Result::ok))
        }));
    }

    fn heard_report(&mut self, report: Report) {
        let first = report.stages.iter().find_map(|stage| stage.path.clone());
        self.report = report;
        match (&self.report.failure, &self.job.spec.pipeline) {
            // What our own stop ended on its way was stopped.
            (Some(failure), Some(pipeline)) if self.stopped_by.is_none() => {
                self.spawn_error = Some(spawn_error::of_stage(pipeline, failure));
            }
            (None, _) if self.life.phase == Phase::Starting => self.runs(first),
            _ => {}
        }
    }

    /// Begins to read what the child writes, and to feed what it reads.
    fn take_streams(&mut self) {
        let number = self.job.spec.number;
        let Some(streams) = self
            .fds
            .take()
            .or_else(|| self.tools.keeper.take_fds(number))
        else {
            return;
        };
        let keyboard = self.take_terminal(streams.out.as_ref());
        self.pump = Some(pump::begin(
            &self.tools.pumps,
            &self.job,
            streams.out,
            streams.err,
        ));
        let input = streams.stdin.map(|input| (input, Into::Pipe));
        if let Some((input, into)) = keyboard.or(input) {
            let (job, keeper) = (Arc::clone(&self.job), self.tools.keeper.clone());
            tokio::spawn(async move {
                if let Some(feed) = &job.feed {
                    let close = || keeper.close(number, Which::In);
                    feed.serve(input, into, close).await;
                }
            });
        }
    }

    /// A terminal is read, typed at and asked, each through a descriptor of its own. Returns the one to type at.
    fn take_terminal(&self, master: Option<&OwnedFd>) -> Option<(OwnedFd, Into)> {
        let master = master.filter(|_| self.job.spec.pty)?;
        match (master.try_clone(), master.try_clone()) {
            (Ok(keyboard), Ok(copy)) => {
                self.job.set_terminal(Some(Terminal::new(copy)));
                Some((keyboard, Into::Terminal))
            }
            _ => {
                crate::log_line!("error", "no descriptor for the input of a terminal");
                None
            }
        }
    }

    fn handle(&mut self, event: Event) {
        let before = self.life.phase;
        let (life, actions) = step::step(self.life, clock::mono(), event);
        self.life = life;
        for action in actions {
            self.act(action, before);
        }
    }

    fn act(&mut self, action: Action, before: Phase) {
        match action {
            Action::WantTimeout => {
                let who = Who::ours(Cause::Timeout, "timeout");
                self.job.want_stop(self.job.spec.grace_ms, who);
            }
            Action::Polite => self.polite(before),
            Action::Force => self.force(),
            Action::Bury => {
                self.tools.keeper.reap(self.job.spec.number);
                self.job.publish(|s| s.state = State::Draining);
            }
            Action::Publish => self.publish(),
            Action::PublishFailure => {
                self.publish();
                self.close();
            }
            Action::Close => self.close(),
        }
    }

    fn polite(&mut self, before: Phase) {
        let wanted = self.wanted.borrow().clone();
        let number = self.job.spec.number;
        if matches!(before, Phase::Starting | Phase::Running) {
            self.stopped_by.clone_from(&wanted.who);
            self.job.publish(|s| s.state = State::Stopping);
        }
        self.stopped.done = false;
        self.tools.ledger.append(&Entry::Wanted {
            number,
            wanted: wanted.clone(),
        });
        if wanted.level == Level::Stop {
            self.signalling += 1;
            let (trees, mark) = (self.tools.trees.clone(), self.mark());
            let terminal = self.job.spec.pty;
            self.works.push(Box::pin(async move {
                Work::Signalled(trees.polite(mark, terminal).await)
            }));
        }
    }

    fn done(&mut self, work: Work) {
        match work {
            Work::Used(used) => self.heard_use(used),
            Work::Reported(report) => {
                self.reading -= 1;
                let before = std::mem::take(&mut self.report);
                self.heard_report(report.unwrap_or(before));
            }
            Work::Signalled(pids) => {
                self.signalling -= 1;
                self.saw(&pids);
            }
            Work::Killed(killed) => {
                self.signalling -= 1;
                self.saw(&killed.seen);
                self.forced.extend(killed.seen);
                self.stopped.forced = self.forced.len() as u32;
                if killed.survivors.is_empty() {
                    self.found_nobody();
                } else {
                    self.withstood(killed.survivors);
                }
            }
            Work::Awaited => self.awaited(),
            Work::CaughtUp => {
                self.pending.push_back(Event::Deadline);
                self.take_up();
            }
            // A tree is never called empty because nobody could look.
            Work::Counted(None) => {
                self.counting = false;
                self.first_count = false;
                self.left = self.left.max(1);
                self.count_later();
            }
            Work::Counted(Some(n)) => {
                self.counting = false;
                self.first_count = false;
                self.left = n.max(u32::from(self.is_inhabited()));
                // A count during which something ended may have missed what that one forked at last.
                if std::mem::take(&mut self.count_again) {
                    self.count_later();
                } else if self.left == 0 {
                    self.pending.push_back(Event::TreeEmpty);
                } else {
                    self.pause = Duration::ZERO;
                }
                if self.job.status().finished.is_some() {
                    let left = self.left;
                    self.job.publish(|s| s.left = left);
                }
            }
        }
    }

    /// Somebody is left for sure, as the keeper sees its children; whoever renews himself all the time is missed by
    /// every look.
    fn is_inhabited(&self) -> bool {
        let ended = self.told.ended;
        ended.is_some_and(|ended| !matches!(ended.strays, 0 | NONE))
    }

    /// A forced end met nobody any more. Where the keeper still has somebody, its news is awaited: as a rule he was
    /// ended and is not buried yet.
    fn found_nobody(&mut self) {
        if self.is_inhabited() {
            self.works.push(Box::pin(async {
                tokio::time::sleep(BURIAL).await;
                Work::Awaited
            }));
        } else {
            self.pending.push_back(Event::TreeEmpty);
        }
    }

    /// What slipped through between two looks is struck by the keeper as well, whose children it is.
    fn awaited(&mut self) {
        if self.life.tree_empty {
            return;
        }
        if !self.is_inhabited() {
            self.pending.push_back(Event::TreeEmpty);
        } else if self.again < MOST_AGAIN {
            self.again += 1;
            self.tools.keeper.sweep(Some(self.job.spec.number));
            self.force();
        } else {
            self.again = 0;
            let leader = self.job.status().pid.unwrap_or(0);
            self.withstood(vec![Survivor {
                pid: leader,
                program: String::new(),
                why: "cannot be looked for: its processes die before they can be stopped".into(),
            }]);
        }
    }

    fn withstood(&mut self, survivors: Vec<Survivor>) {
        self.stopped.survivors = survivors;
        self.tell_stopped();
        self.pending.push_back(Event::Withstood);
    }

    fn force(&mut self) {
        self.signalling += 1;
        let (trees, mark) = (self.tools.trees.clone(), self.mark());
        self.works.push(Box::pin(
            async move { Work::Killed(trees.kill(mark).await) },
        ));
    }

    fn saw(&mut self, pids: &[u32]) {
        for pid in pids {
            if !self.stopped.seen.contains(pid) {
                self.stopped.seen.push(*pid);
            }
        }
    }

    /// Publishes what the stop did; waiting stops answer from it.
    fn tell_stopped(&mut self) {
        let wanted = self.wanted.borrow();
        if wanted.level == Level::Run {
            return;
        }
        self.stopped.took_ms = clock::mono().saturating_sub(wanted.since);
        self.stopped.done = true;
        let stopped = self.stopped.clone();
        self.job.publish(|s| s.stopped = Some(stopped));
    }

    fn count_later(&mut self) {
        self.pause = (self.pause * 2).clamp(COUNT_FIRST, COUNT_MOST);
        self.count();
    }

    /// Counts the members; one scan at a time, and once more if something ended meanwhile.
    fn count(&mut self) {
        if self.counting {
            self.count_again = true;
            return;
        }
        self.counting = true;
        let (trees, mark) = (self.tools.trees.clone(), self.mark());
        let pause = self.pause;
        self.works.push(Box::pin(async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            Work::Counted(trees.count(mark).await)
        }));
    }

    fn mark(&self) -> Mark {
        let status = self.job.status();
        // Once buried, the leader's number may be anybody's.
        let leader = status
            .pid
            .filter(|_| self.told.ended.is_none())
            .map(|pid| (pid, status.start_time));
        Mark {
            job: self.job.spec.number,
            leader,
            process_id: self.job.spec.process_id.clone(),
        }
    }

    fn publish(&mut self) {
        let mut finished = self.finished();
        // Held to the end of this, so that ends are told in the order of their numbers. Who waits in the foreground has
        // the result and needs no notice of it; where nobody waits any more, nobody has.
        let notices = Arc::clone(&self.tools.notices);
        let mut newest = notices.hold();
        if !self.job.is_waited_for() && !self.job.ends_in_silence() {
            *newest += 1;
            finished.notice = Some(*newest);
        }
        let finished = Arc::new(finished);
        let spec = Box::new(self.job.spec.clone());
        self.tools.ledger.append(&Entry::Finished {
            spec,
            finished: Box::new(Finished::clone(&finished)),
        });
        // Where the keeper told of nobody besides the leader, the tree is empty, even if that event is still to be
        // handled: a result once said that a plain `echo` had left a process.
        let alone = self.told.ended.is_some_and(|e| e.strays == 0);
        let left = if alone || self.life.tree_empty || self.life.phase == Phase::Over {
            0
        } else {
            self.left.max(1)
        };
        self.job.publish(|s| {
            s.state = State::Exited;
            s.left = left;
            s.finished = Some(finished);
        });
    }

    fn finished(&self) -> Finished {
        self.job.log.mark_exit();
        let at_exit = self.job.log.at_exit().unwrap_or_else(|| self.job.log.end());
        let ended = self.told.ended.filter(|_| self.spawn_error.is_none());
        let (outcome, detail) = self.outcome(ended);
        let held = self.life.phase != Phase::Over || !self.life.output_closed;
        let status = self.job.status();
        let cpu = self
            .facts
            .borrow()
            .reaped
            .map_or(0, |r| (r.user_us + r.sys_us) / 1_000);
        Finished {
            outcome,
            detail,
            exit_code: ended.and_then(|e| e.code),
            signal: ended.and_then(|e| e.signal).map(crate::signal::name),
            spawn_error: self.spawn_error.clone(),
            at: Moment::now(),
            at_exit,
            lost: self.job.log.lost(),
            held_by: (held && !self.life.output_closed && self.left > 0).then_some(self.left),
            pid: status.pid,
            resolved: status.resolved.clone(),
            file: status.file.clone(),
            cpu_ms: cpu,
            texts: held.then(|| texts::of(&self.job.log, at_exit)),
            notice: None,
            stages: self.report.stages.clone(),
        }
    }

    fn outcome(&self, ended: Option<Ended>) -> (Outcome, Option<OutcomeDetail>) {
        if let Some(error) = &self.spawn_error {
            let detail = OutcomeDetail {
                errno: Some(error.errno),
                path: error.path.clone(),
                ..OutcomeDetail::default()
            };
            return (Outcome::SpawnFailed, Some(detail));
        }
        let Some(who) = &self.stopped_by else {
            let signaled = ended.is_some_and(|e| e.signal.is_some());
            return (
                if signaled {
                    Outcome::Signaled
                } else {
                    Outcome::Exited
                },
                None,
            );
        };
        let (outcome, limit) = match who.cause {
            Cause::Asked => (Outcome::Stopped, None),
            Cause::Timeout => (Outcome::TimedOut, self.job.spec.timeout_ms),
            Cause::OutputLimit => (Outcome::OutputLimit, self.job.spec.max_bytes),
            Cause::Idle => (Outcome::IdleReaped, self.job.spec.idle_ms),
            Cause::Quarantine => (Outcome::Lost, None),
        };
        let detail = OutcomeDetail {
            by: Some(who.by.clone()),
            reason: who.reason.clone(),
            limit,
            ..OutcomeDetail::default()
        };
        (outcome, Some(detail))
    }

    /// Nothing is left: nobody writes any more, and the keeper may forget.
    fn close(&mut self) {
        if let Some(pump) = self.pump.take() {
            pump.stop();
        }
        if let Some(feed) = &self.job.feed {
            feed.end();
        }
        self.job.set_terminal(None);
        if let Some(talk) = &self.job.talk {
            talk.close();
        }
        self.tools.keeper.forget(self.job.spec.number);
        self.job.log.seal();
        self.left = 0;
        self.job.publish(|s| s.left = 0);
        self.tell_stopped();
    }
}

async fn wait(pump: &mut Option<pump::Running>) {
    if let Some(pump) = pump {
        pump.ended().await;
    }
}

async fn clock_at(deadline: Option<u64>) {
    if let Some(at) = deadline {
        tokio::time::sleep_until(clock::instant(at)).await;
    }
}
