//! A job: two cells and a log.
//!
//! Whoever wants something of a job raises *wanted*; whoever wants to know watches *status*; whoever wants
//! output reads the *log* at a cursor. The task that lives it alone writes the status. Nothing here starts, signals or
//! reads a process.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock, Weak,
    atomic::{AtomicU32, AtomicU64, Ordering},
};

use ostler_proto::{
    job::{
        Artifact, FileIdentity, Kind, Outcome, OutcomeDetail, Output, Retry, Row, SessionRef, Size,
        SpawnError, StageRow, State, Survivor, Tree,
    },
    methods::{Happened, OnLimit, Start},
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    clock::Moment,
    events::{Events, From},
    feed::Feed,
    log::Log,
    owner::Owner,
    pipeline::{Pipeline, StageEnd},
    terminal::{
        Desk, Face, Settings, Terminal,
        dialect::ShellSpec,
        keys,
        proof::{self, Place},
        talk::Talk,
    },
    tree::Mark,
};

/// The window of a terminal of which nobody knows it any more.
const WINDOW: Size = Size { rows: 24, cols: 80 };

/// A checked request, ready to become a job.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) start: Start,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) candidates: Vec<String>,
    pub(crate) accepted: Moment,
    pub(crate) bound: bool,
    pub(crate) key_of: u64,
    pub(crate) kind: Kind,
    /// How to talk to it, where it is a shell.
    pub(crate) shell: Option<ShellSpec>,
    /// Process id of the shell that it was sent to, where it is a send in the background.
    pub(crate) sent_to: Option<String>,
    /// Bytes of text that an agent wants at most of it, where it is an ACP terminal.
    pub(crate) text_limit: Option<u64>,
}

impl Plan {
    /// Takes away what was laid down for a job that did not come to be.
    pub(crate) fn clean_beside(&self) {
        clean_beside(self.shell.clone());
    }
}

/// Takes away the folder of a shell beside everything else: a disk that does not answer must not hold anybody up.
fn clean_beside(shell: Option<ShellSpec>) {
    if shell.is_some() {
        tokio::task::spawn_blocking(move || clean(shell.as_ref()));
    }
}

/// Takes away the folder of a shell.
fn clean(shell: Option<&ShellSpec>) {
    if let Some(dir) = shell.and_then(|s| s.dir.as_deref()) {
        // Gone already where the whole folder above went.
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Where a job stands in the table: the only part of it that a rename or an adoption changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) session: SessionRef,
    /// What tells that session from every other one, whatever its id is.
    #[serde(default)]
    pub(crate) key: String,
    /// Short id in it.
    pub(crate) id: String,
}

/// What a job is, from its acceptance on. It travels in the fork request, so that the child and this record
/// come into being in one step. It holds no value of a variable: those may be secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Number in this house: the job word on the wire to the keeper and in the cookie.
    pub(crate) number: u64,
    /// Where it was put at first; [`Job::seat`] is where it is.
    pub(crate) born: Seat,
    pub(crate) process_id: String,
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    /// Files that the child tries to execute, in order.
    pub(crate) candidates: Vec<String>,
    pub(crate) accepted: Moment,
    /// The window that its terminal began with.
    #[serde(default)]
    pub(crate) window: Option<Size>,
    /// Monotonic time at which the time limit passes.
    pub(crate) timeout_at: Option<u64>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) grace_ms: u64,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) on_limit: OnLimit,
    pub(crate) ok: Vec<i32>,
    pub(crate) side_effect: Option<String>,
    pub(crate) key: Option<String>,
    /// Hash of the parameters that came with the key.
    pub(crate) key_of: u64,
    pub(crate) stdin_open: bool,
    /// It has a terminal.
    pub(crate) pty: bool,
    /// How to talk to it, where it is a shell.
    #[serde(default)]
    pub(crate) shell: Option<ShellSpec>,
    /// Process id of the shell that it was sent to, where it is a send in the background: no process stands for it.
    #[serde(default)]
    pub(crate) sent_to: Option<String>,
    /// Key of the session that a sub-agent has for itself: its jobs go to this one's at its end.
    #[serde(default)]
    pub(crate) child: Option<String>,
    /// Bytes of text that an agent wants at most of it, where it is an ACP terminal.
    #[serde(default)]
    pub(crate) text_limit: Option<u64>,
    /// Its commands, where they are several.
    #[serde(default)]
    pub(crate) pipeline: Option<Pipeline>,
    /// Variables that the request kept from it.
    #[serde(default)]
    pub(crate) withheld: Vec<String>,
    /// The tree ends with its request, until it is detached.
    pub(crate) bound: bool,
    /// Where output goes that leaves the ring.
    pub(crate) spill: Option<String>,
    pub(crate) slot: u32,
    /// What this record is to be read as.
    #[serde(default = "first_format")]
    pub(crate) format: u32,
}

impl Spec {
    /// No process stands for it, so that the keeper knows nothing of it: what was sent to a shell in the background, and
    /// a sub-agent that somebody speaks as.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::Agent) && self.candidates.is_empty()
    }
}

/// The format of what does not say so.
pub(crate) fn first_format() -> u32 {
    1
}

/// How much is wanted of a job. Only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    Run,
    Stop,
    Kill,
}

/// Why somebody wants the end of a job; decides the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Asked,
    Timeout,
    Idle,
    OutputLimit,
    /// Supervisors died while restoring it.
    Quarantine,
}

/// Who wanted it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    pub(crate) cause: Cause,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
}

impl Who {
    /// Somebody asked for it.
    pub(crate) fn asked(by: &str, reason: Option<String>) -> Self {
        Self {
            cause: Cause::Asked,
            by: by.into(),
            reason,
        }
    }
}

/// The *wanted* cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) level: Level,
    /// Monotonic time from which force is allowed; only falls, until somebody asks again after a stop that was
    /// withstood.
    pub(crate) force_at: u64,
    /// The first one stays.
    pub(crate) who: Option<Who>,
    /// When it first rose, or was asked again.
    pub(crate) since: u64,
}

impl Wanted {
    /// Nothing of the job is to be looked at any more but its processes.
    pub(crate) fn is_quarantine(&self) -> bool {
        let who = self.who.as_ref();
        who.is_some_and(|who| who.cause == Cause::Quarantine)
    }

    fn raise(&mut self, level: Level, force_at: u64, who: Who, now: u64) -> bool {
        let before = (self.level, self.force_at);
        if self.level == Level::Run {
            self.since = now;
        }
        self.level = self.level.max(level);
        self.force_at = self.force_at.min(force_at);
        self.who.get_or_insert(who);
        before != (self.level, self.force_at)
    }

    /// Another try, with a grace of its own unless force was wanted once.
    fn renew(&mut self, grace_ms: u64, now: u64) {
        if grace_ms == 0 {
            self.level = Level::Kill;
        }
        let grace_ms = if self.level == Level::Kill {
            0
        } else {
            grace_ms
        };
        self.force_at = now.saturating_add(grace_ms);
        self.since = now;
    }
}

/// What the stop of a tree has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stopped {
    /// Members signalled or found, in order of appearance.
    pub(crate) seen: Vec<u32>,
    pub(crate) forced: u32,
    pub(crate) survivors: Vec<Survivor>,
    /// Nothing is left, or the survivors are named.
    pub(crate) done: bool,
    pub(crate) took_ms: u64,
}

/// The result. Never changes once published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) detail: Option<OutcomeDetail>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) spawn_error: Option<SpawnError>,
    pub(crate) at: Moment,
    pub(crate) at_exit: u64,
    /// Bytes lost by then.
    pub(crate) lost: u64,
    pub(crate) held_by: Option<u32>,
    pub(crate) pid: Option<u32>,
    pub(crate) resolved: Option<String>,
    pub(crate) file: Option<FileIdentity>,
    pub(crate) cpu_ms: u64,
    /// Texts, kept here only where later output could push them out of the ring.
    pub(crate) texts: Option<Texts>,
    /// Number of the notice that tells of this end; none for a foreground run, whose caller has the result.
    pub(crate) notice: Option<u64>,
    /// How the stages of a pipeline ended.
    #[serde(default)]
    pub(crate) stages: Vec<StageEnd>,
}

/// Head and tail of both streams.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Texts {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) stdout_cut: bool,
    pub(crate) stderr_cut: bool,
    pub(crate) replaced: u64,
}

/// The *status* cell.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) pid: Option<u32>,
    pub(crate) start_time: u64,
    /// How its members are found, once that is known.
    pub(crate) rung: Option<&'static str>,
    pub(crate) resolved: Option<String>,
    pub(crate) file: Option<FileIdentity>,
    /// Members left after the end.
    pub(crate) left: u32,
    pub(crate) finished: Option<Arc<Finished>>,
    pub(crate) stopped: Option<Stopped>,
    /// No member is left and nothing more can come.
    pub(crate) over: bool,
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) spec: Spec,
    pub(crate) log: Arc<Log>,
    /// How members are found in its house.
    rung: &'static str,
    wanted: watch::Sender<Wanted>,
    status: watch::Sender<Status>,
    last_output: AtomicU64,
    last_input: AtomicU64,
    /// Keyboard of the job, where there is one.
    pub(crate) feed: Option<Feed>,
    /// The tree ends with its last request.
    bound: watch::Sender<bool>,
    /// Requests that hold a foreground run.
    holders: AtomicU32,
    seat: RwLock<Seat>,
    /// While somebody may be on it.
    terminal: Mutex<Option<Terminal>>,
    /// What is known of its prompt, where it is a shell.
    pub(crate) talk: Option<Talk>,
    /// Who sits before it.
    pub(crate) desk: Desk,
    /// What is seen on it.
    pub(crate) face: Face,
    /// Who speaks as it, where it is a sub-agent.
    pub(crate) owner: Option<Owner>,
    /// The send in the background that this shell was given last.
    background: Mutex<Weak<Job>>,
    /// Number of its notice; 0: none. An adoption gives a new one.
    notice: AtomicU64,
    events: Arc<Events>,
}

/// What is needed to talk to it in turn: of a shell, and of any program at a terminal, which has no prompt of ours.
fn talk(spec: &Spec) -> Option<Talk> {
    match &spec.shell {
        Some(shell) => Some(Talk::new(&shell.nonce)),
        // Nobody knows it, so that no output can look like a mark.
        None => spec.pty.then(|| Talk::new(&crate::secret::token())),
    }
}

impl Job {
    pub(crate) fn new(
        spec: Spec,
        log: Arc<Log>,
        rung: &'static str,
        feed: Option<Feed>,
        events: Arc<Events>,
    ) -> Self {
        let wanted = Wanted {
            level: Level::Run,
            force_at: u64::MAX,
            who: None,
            since: 0,
        };
        let status = Status {
            state: State::Starting,
            pid: None,
            start_time: 0,
            rung: None,
            resolved: None,
            file: None,
            left: 0,
            finished: None,
            stopped: None,
            over: false,
        };
        Self {
            last_output: AtomicU64::new(spec.accepted.mono),
            last_input: AtomicU64::new(0),
            log,
            rung,
            wanted: watch::Sender::new(wanted),
            status: watch::Sender::new(status),
            feed,
            bound: watch::Sender::new(spec.bound),
            holders: AtomicU32::new(0),
            seat: RwLock::new(spec.born.clone()),
            terminal: Mutex::default(),
            talk: talk(&spec),
            desk: Desk::default(),
            face: Face::default(),
            owner: (spec.kind == Kind::Agent).then(Owner::new),
            background: Mutex::default(),
            notice: AtomicU64::new(0),
            events,
            spec,
        }
    }

    /// Its session and its short id there.
    pub(crate) fn seat(&self) -> Seat {
        let seat = self.seat.read().unwrap_or_else(PoisonError::into_inner);
        seat.clone()
    }

    /// Its terminal for a moment; no lock of a job is ever held across an await.
    pub(crate) fn with_terminal<T>(&self, ask: impl FnOnce(&Terminal) -> T) -> Option<T> {
        let terminal = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        terminal.as_ref().map(ask)
    }

    /// Where its terminal is, and how that is set; none when nobody is in front.
    pub(crate) fn place(&self) -> Option<(Place, Settings)> {
        let leader = self.status().pid?;
        self.with_terminal(|terminal| {
            let place = Place {
                leader,
                group: terminal.foreground()?,
                device: terminal.device()?,
            };
            Some((place, terminal.settings()))
        })?
    }

    /// Tells whether a shell is in use although nothing came or went: somebody talks to it, or something works in it
    /// that is not seen to wait for the terminal. Quiet work is not idleness, a forgotten prompt is.
    pub(crate) fn in_use(&self) -> impl Future<Output = bool> + use<> {
        let busy = self.desk.attached() > 0 || self.talk.as_ref().is_some_and(Talk::is_busy);
        let place = self.place().map(|(place, _)| place);
        async move {
            let Some(place) = place.filter(|_| !busy) else {
                return busy;
            };
            let looked = tokio::task::spawn_blocking(move || proof::works(place)).await;
            // Who cannot be looked at is not ended for it.
            looked.unwrap_or(true)
        }
    }

    /// Its window; of a terminal that is gone, the last one.
    pub(crate) fn window(&self) -> Size {
        let now = self.with_terminal(Terminal::size).flatten();
        let last = now.or_else(|| self.face.last_window());
        last.or(self.spec.window).unwrap_or(WINDOW)
    }

    /// For `life` alone.
    pub(crate) fn set_terminal(&self, terminal: Option<Terminal>) {
        let mut slot = self.terminal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(size) = slot.as_ref().and_then(Terminal::size) {
            self.face.was(size);
        }
        *slot = terminal;
        drop(slot);
        self.face.arrived.notify_waiters();
    }

    /// The send in the background that it was given last, if that is kept.
    pub(crate) fn background(&self) -> Option<Arc<Self>> {
        let last = self.background.lock();
        last.unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Gives this shell a send in the background; only for who has its turn.
    pub(crate) fn give_background(&self, send: &Arc<Self>) {
        let mut last = self
            .background
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *last = Arc::downgrade(send);
    }

    /// Takes away what lay on the disk for its processes, of which none is left.
    pub(crate) fn clean_beside(&self) {
        clean_beside(self.spec.shell.clone());
        if let Some(pipeline) = self.spec.pipeline.clone() {
            tokio::task::spawn_blocking(move || pipeline.clean());
        }
    }

    /// Its short id.
    pub(crate) fn id(&self) -> String {
        self.seat().id
    }

    /// For the registry alone, which holds its lock meanwhile.
    pub(crate) fn sit(&self, seat: Seat) {
        *self.seat.write().unwrap_or_else(PoisonError::into_inner) = seat;
    }

    /// Number of the notice of its end, if there is one.
    pub(crate) fn notice(&self) -> Option<u64> {
        Some(self.notice.load(Ordering::Acquire)).filter(|n| *n > 0)
    }

    /// Gives its notice this number.
    pub(crate) fn renumber_notice(&self, number: u64) {
        self.notice.store(number, Ordering::Release);
    }

    /// Tells those who watch; `from`: its name before.
    pub(crate) fn tell(&self, what: Happened, from: Option<From<'_>>) {
        // The status first, as in `publish`: in another order the two would wait for each other.
        let status = self.status();
        self.events
            .tell(what, &self.seat().key, from, || self.row_of(&status));
    }

    /// Raises *wanted*. Repeats are free; an earlier force time wins; the first cause stays.
    ///
    /// `grace_ms` is counted from now; 0 forces at once.
    pub(crate) fn want_stop(&self, grace_ms: u64, who: Who) -> bool {
        let now = crate::clock::mono();
        let level = if grace_ms == 0 {
            Level::Kill
        } else {
            Level::Stop
        };
        self.wanted
            .send_if_modified(|w| w.raise(level, now.saturating_add(grace_ms), who, now))
    }

    /// The same for somebody who asks now: where an earlier stop ended with survivors, a new one begins. Everything
    /// else that raises *wanted* says it once, or says it all the time.
    pub(crate) fn ask_stop(&self, grace_ms: u64, who: Who) {
        let withstood = self.is_live() && self.status().stopped.as_ref().is_some_and(|s| s.done);
        if !withstood {
            self.want_stop(grace_ms, who);
            return;
        }
        // First, so that who asked does not take the old answer for his own.
        self.publish(|s| {
            if let Some(stopped) = &mut s.stopped {
                stopped.done = false;
            }
        });
        let now = crate::clock::mono();
        self.wanted.send_modify(|w| w.renew(grace_ms, now));
    }

    /// Its end is wanted at once and whatever was wanted before, and it counts as lost.
    pub(crate) fn quarantine(&self, reason: &str) -> Wanted {
        let now = crate::clock::mono();
        let wanted = Wanted {
            level: Level::Kill,
            force_at: now,
            who: Some(Who {
                cause: Cause::Quarantine,
                by: "quarantine".into(),
                reason: Some(reason.into()),
            }),
            since: now,
        };
        self.restore_wanted(wanted.clone());
        wanted
    }

    /// Puts back what an earlier supervisor had been asked.
    pub(crate) fn restore_wanted(&self, wanted: Wanted) {
        self.wanted.send_replace(wanted);
    }

    pub(crate) fn wanted(&self) -> watch::Receiver<Wanted> {
        self.wanted.subscribe()
    }

    /// The status cell for readers. Read it as a level: a state may be jumped over.
    pub(crate) fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub(crate) fn status(&self) -> watch::Ref<'_, Status> {
        self.status.borrow()
    }

    /// For `life` alone. Whoever watches events has the change before anybody who waits for the job hears of it.
    pub(crate) fn publish(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_modify(|status| {
            let (state, left) = (status.state, status.left);
            change(status);
            // Once: an adoption may give it another one.
            if status.state != state
                && let Some(finished) = &status.finished
            {
                self.renumber_notice(finished.notice.unwrap_or(0));
            }
            let emptied = status.finished.is_some() && left > 0 && status.left == 0;
            let what = if status.state != state {
                happened(status.state)
            } else if emptied {
                Happened::Empty
            } else {
                return;
            };
            let key = self.seat().key;
            self.events.tell(what, &key, None, || self.row_of(status));
        });
    }

    /// For `pump` alone.
    pub(crate) fn saw_output(&self) {
        self.last_output
            .store(crate::clock::mono(), Ordering::Relaxed);
    }

    /// Monotonic time of the last output, or of the acceptance.
    pub(crate) fn last_output(&self) -> u64 {
        self.last_output.load(Ordering::Relaxed)
    }

    /// Somebody wrote to it.
    pub(crate) fn saw_input(&self) {
        self.last_input
            .store(crate::clock::mono(), Ordering::Relaxed);
    }

    /// Somebody types to it who does not talk to it in turn.
    pub(crate) fn note_typed(&self, bytes: &[u8]) {
        self.saw_input();
        if keys::is_report(bytes) {
            return;
        }
        self.desk.note_typed();
        if let Some(talk) = &self.talk {
            talk.note_typed(&self.log, bytes);
        }
    }

    /// Somebody looked at it: a shell that is read is in use.
    pub(crate) fn saw_reader(&self) {
        if self.spec.shell.is_some() {
            self.saw_input();
        }
    }

    /// Monotonic time at which its idle limit passes, if nothing comes or goes until then.
    pub(crate) fn idle_at(&self) -> Option<u64> {
        let last = self
            .last_output()
            .max(self.last_input.load(Ordering::Relaxed));
        Some(last + self.spec.idle_ms?)
    }

    /// Its result stands and nobody is left: there is nothing to stop, even if its life has a word to say yet.
    pub(crate) fn is_finished(&self) -> bool {
        let status = self.status();
        status.over || status.finished.is_some() && status.left == 0
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.status().over
    }

    /// A request begins to hold a foreground run.
    pub(crate) fn claim(&self) {
        self.holders.fetch_add(1, Ordering::AcqRel);
    }

    /// A request lets go. True when it was the last one of a run that is still bound to its request.
    pub(crate) fn unclaim(&self) -> bool {
        self.holders.fetch_sub(1, Ordering::AcqRel) == 1 && self.is_bound()
    }

    /// The run goes on without its request from here. True when it was bound.
    pub(crate) fn unbind(&self) -> bool {
        self.bound.send_if_modified(std::mem::take)
    }

    pub(crate) fn is_bound(&self) -> bool {
        *self.bound.borrow()
    }

    pub(crate) fn watch_bound(&self) -> watch::Receiver<bool> {
        self.bound.subscribe()
    }

    /// The row of a list: cells only, nobody is asked.
    pub(crate) fn row(&self) -> Row {
        let status = self.status().clone();
        self.row_of(&status)
    }

    fn row_of(&self, status: &Status) -> Row {
        let finished = status.finished.as_deref();
        let outcome = finished.map(|f| f.outcome);
        let exit_code = finished.and_then(|f| f.exit_code);
        let seat = self.seat();
        let stages = self.stages(finished.map_or(&[], |f| &f.stages));
        Row {
            id: seat.id,
            process_id: self.spec.process_id.clone(),
            session: seat.session,
            kind: self.spec.kind,
            name: self.spec.name.clone(),
            state: status.state,
            outcome,
            outcome_detail: self.detail(status),
            exit_code,
            signal: finished.and_then(|f| f.signal.clone()),
            ok: outcome.map(|o| o == Outcome::Exited && self.is_expected(exit_code, &stages)),
            shell: self.spec.sent_to.clone(),
            timed_out: outcome == Some(Outcome::TimedOut),
            cancelled: outcome == Some(Outcome::Stopped),
            spawn_error: finished.and_then(|f| f.spawn_error.clone()),
            pid: status.pid,
            executable: self.spec.args.first().cloned().unwrap_or_default(),
            resolved_path: status.resolved.clone(),
            args: self.spec.args.clone(),
            stages,
            retry: None,
            cwd: self.spec.cwd.clone(),
            started_at: self.spec.accepted.wall,
            finished_at: finished.map(|f| self.finished_wall(f)),
            duration_ms: finished.map(|f| f.at.mono.saturating_sub(self.spec.accepted.mono)),
            slept_ms: self
                .spec
                .accepted
                .slept_until(&finished.map_or_else(Moment::now, |f| f.at)),
            encoding: "utf-8".into(),
            replaced: finished.and_then(|f| f.texts.as_ref()).map(|t| t.replaced),
            artifacts: self.artifacts(),
            terminal: match finished {
                None => self.with_terminal(Terminal::size).flatten(),
                Some(_) => None,
            },
            title: match finished {
                None => self.face.title(),
                Some(_) => None,
            },
            output: self.output(finished),
            tree: Tree {
                rung: status.rung.unwrap_or(self.rung).into(),
                left: status.left,
                ..Tree::default()
            },
        }
    }

    /// By what its members are found. Once its main process is buried, that number may be anybody's.
    pub(crate) fn mark(&self) -> Mark {
        let status = self.status();
        let unburied = status.pid.filter(|_| status.finished.is_none());
        Mark {
            job: self.spec.number,
            leader: unburied.map(|pid| (pid, status.start_time)),
            process_id: self.spec.process_id.clone(),
        }
    }

    /// A wall clock that was set back must not end a job before it began: the monotonic duration decides.
    fn finished_wall(&self, finished: &Finished) -> u64 {
        let a = &self.spec.accepted;
        a.wall + finished.at.mono.saturating_sub(a.mono) + a.slept_until(&finished.at)
    }

    /// What its stages are, with what is known of their ends.
    pub(crate) fn stages(&self, ends: &[StageEnd]) -> Vec<StageRow> {
        let pipeline = self.spec.pipeline.as_ref();
        pipeline.map_or_else(Vec::new, |pipeline| pipeline.rows(ends))
    }

    fn is_expected(&self, code: Option<i32>, stages: &[StageRow]) -> bool {
        if !stages.is_empty() {
            return stages.iter().all(|stage| stage.ok == Some(true));
        }
        let ok = &self.spec.ok;
        if code.is_none() && self.spec.kind == Kind::Send {
            // What was typed was taken; a program at its prompt tells no code.
            return true;
        }
        code.is_some_and(|c| {
            if ok.is_empty() {
                c == 0
            } else {
                ok.contains(&c)
            }
        })
    }

    /// What to know before the same is started once more.
    pub(crate) fn retry(&self) -> Retry {
        let status = self.status();
        let is_over = status.finished.is_some();
        let outcome = status.finished.as_ref().map(|f| f.outcome);
        Retry {
            running: !is_over || status.left > 0,
            ran: if status.resolved.is_some() || self.spec.is_bare() {
                Some(true)
            } else {
                // It ended without an exec; of what is lost nobody knows that.
                (is_over && outcome != Some(Outcome::Lost)).then_some(false)
            },
            side_effect: self.spec.side_effect.clone(),
        }
    }

    /// Detail of the outcome, or of a stop that has not ended everything.
    fn detail(&self, status: &Status) -> Option<OutcomeDetail> {
        if let Some(finished) = &status.finished {
            return finished.detail.clone();
        }
        let survivors = status
            .stopped
            .as_ref()
            .map(|s| s.survivors.clone())
            .unwrap_or_default();
        let wanted = self.wanted.borrow();
        let who = wanted.who.as_ref()?;
        Some(OutcomeDetail {
            by: Some(who.by.clone()),
            reason: who.reason.clone(),
            survivors,
            ..OutcomeDetail::default()
        })
    }

    fn artifacts(&self) -> Vec<Artifact> {
        let Some(path) = self.log.spill_path() else {
            return Vec::new();
        };
        vec![Artifact {
            kind: "log".into(),
            path: path.display().to_string(),
            bytes: self.log.spill_bytes(),
        }]
    }

    /// Offset of the oldest byte that is kept: the spill begins with the first one.
    pub(crate) fn oldest(&self) -> u64 {
        if self.log.spill_path().is_some() {
            0
        } else {
            self.log.head()
        }
    }

    fn output(&self, finished: Option<&Finished>) -> Output {
        let spill = self.log.spill_path();
        Output {
            start: self.oldest(),
            end: self.log.end(),
            at_exit: finished.map(|f| f.at_exit),
            lost: finished.map_or(0, |f| f.lost).max(self.log.lost()),
            spill: spill.map(|p| p.display().to_string()),
            spill_stopped: self.log.spill_failure(),
            held_by: finished.and_then(|f| f.held_by),
        }
    }
}

const fn happened(state: State) -> Happened {
    match state {
        State::Starting => Happened::Starting,
        State::Running => Happened::Running,
        State::Stopping => Happened::Stopping,
        State::Draining => Happened::Draining,
        State::Exited => Happened::Exited,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(by: &str) -> Who {
        Who {
            cause: Cause::Asked,
            by: by.into(),
            reason: None,
        }
    }

    #[test]
    fn wanted_only_rises_and_its_first_cause_stays() {
        let mut w = Wanted {
            level: Level::Run,
            force_at: u64::MAX,
            who: None,
            since: 0,
        };
        assert!(w.raise(Level::Stop, 100, who("a"), 1));
        assert!(
            !w.raise(Level::Stop, 200, who("b"), 2),
            "a later deadline changes nothing"
        );
        assert!(
            w.raise(Level::Stop, 50, who("b"), 2),
            "a shorter one shortens"
        );
        assert!(w.raise(Level::Kill, 60, who("c"), 3));
        assert!(!w.raise(Level::Stop, 70, who("d"), 4));
        assert_eq!((w.level, w.force_at, w.since), (Level::Kill, 50, 1));
        assert_eq!(w.who, Some(who("a")));
    }

    #[test]
    fn another_try_has_its_own_grace_unless_force_was_wanted() {
        let mut w = Wanted {
            level: Level::Stop,
            force_at: 50,
            who: Some(who("a")),
            since: 1,
        };
        w.renew(100, 1_000);
        assert_eq!((w.level, w.force_at, w.since), (Level::Stop, 1_100, 1_000));
        w.renew(0, 2_000);
        assert_eq!((w.level, w.force_at), (Level::Kill, 2_000));
        w.renew(100, 3_000);
        assert_eq!((w.level, w.force_at, w.since), (Level::Kill, 3_000, 3_000));
        assert_eq!(w.who, Some(who("a")), "the first cause stays");
    }
}
