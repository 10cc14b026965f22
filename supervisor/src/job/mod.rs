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
    job::{Kind, Size, State},
    methods::Happened,
};
use tokio::sync::watch;

use crate::{
    events::{Events, From},
    feed::Feed,
    log::Log,
    owner::Owner,
    terminal::{
        Desk, Face, Settings, Terminal, keys,
        proof::{self, Place},
        talk::Talk,
    },
    tree::Mark,
};

mod claims;

mod row;

mod spec;

mod status;

mod wanted;

pub(crate) use claims::Claims;
pub(crate) use spec::{Plan, Seat, Spec, first_format};
pub(crate) use status::{Finished, Status, Stopped, Texts};
pub(crate) use wanted::{Cause, Level, Wanted, Who};

/// The window of a terminal of which nobody knows it any more.
const WINDOW: Size = Size { rows: 24, cols: 80 };

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
    /// Requests that ever have.
    held: AtomicU32,
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
    /// Who waits for its end and needs no notice of it.
    pub(crate) claims: Claims,
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
            held: AtomicU32::new(0),
            seat: RwLock::new(spec.born.clone()),
            terminal: Mutex::default(),
            talk: talk(&spec),
            desk: Desk::default(),
            face: Face::default(),
            owner: (spec.kind == Kind::Agent).then(Owner::new),
            background: Mutex::default(),
            notice: AtomicU64::new(0),
            claims: Claims::default(),
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
        spec::clean_beside(self.spec.shell.clone());
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

    /// Tells those who watch.
    pub(crate) fn tell(&self, what: Happened) {
        // The status first, as in `publish`: in another order the two would wait for each other.
        let status = self.status();
        self.events
            .tell(what, &self.seat().key, None, || self.row_of(&status));
    }

    /// It goes to another seat, and those who watch are told before anything else that happens to it there. `from`: its
    /// name before. For the registry alone, which holds its lock meanwhile.
    pub(crate) fn move_to(&self, seat: Seat, from: From<'_>) {
        // The status first, as in `publish`, which must not come in between: the new owner was told that a job ended which
        // it had never heard of.
        let status = self.status();
        let key = seat.key.clone();
        self.sit(seat);
        self.events
            .tell(Happened::Moved, &key, Some(from), || self.row_of(&status));
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
                reason: Some(reason.into()),
                ..Who::ours(Cause::Quarantine, "quarantine")
            }),
            since: now,
        };
        self.restore_wanted(wanted.clone());
        wanted
    }

    /// No notice is to tell of its end.
    pub(crate) fn ends_in_silence(&self) -> bool {
        let wanted = self.wanted.borrow();
        wanted.who.as_ref().is_some_and(|who| who.silent)
    }

    /// Another owner has it, who did not ask for its end. Returns what is wanted of it now, if that is another thing.
    pub(crate) fn break_silence(&self) -> Option<Wanted> {
        let broken = self.wanted.send_if_modified(|wanted| {
            let who = wanted.who.as_mut();
            who.is_some_and(|who| std::mem::take(&mut who.silent))
        });
        broken.then(|| self.wanted.borrow().clone())
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
    pub(crate) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::AcqRel);
        self.held.fetch_add(1, Ordering::AcqRel);
    }

    /// How many requests have held it.
    pub(crate) fn held(&self) -> u32 {
        self.held.load(Ordering::Acquire)
    }

    /// A request lets go. True when it was the last one of a run that is still bound to its request.
    pub(crate) fn let_go(&self) -> bool {
        self.holders.fetch_sub(1, Ordering::AcqRel) == 1 && self.is_bound()
    }

    /// The run goes on without its request from here. True when it was bound.
    pub(crate) fn unbind(&self) -> bool {
        self.bound.send_if_modified(std::mem::take)
    }

    pub(crate) fn is_bound(&self) -> bool {
        *self.bound.borrow()
    }

    /// A request waits for the result of this foreground run.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_bound() && self.holders.load(Ordering::Acquire) > 0
    }

    pub(crate) fn watch_bound(&self) -> watch::Receiver<bool> {
        self.bound.subscribe()
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
