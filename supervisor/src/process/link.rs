//! The supervisor's end of the wire to the keeper.
//!
//! Every call puts one message on its way and returns; what comes back shows as levels in
//! a watch channel per job, so no order of events can be missed. One task receives, and
//! sends what found no room. It never waits for a process, never signals one, and decides
//! nothing; the keeper's answers are facts.

use crate::keeper::cookie::Rung;
use crate::keeper::wire::{self, Facts, ForkRequest, Frame, Inbox, JobRow, Limit, Message, Op};
use crate::tree::cgroup::Cgroups;
use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// How often descriptors that were lost for want of room are asked for again.
const REFILLS: u32 = 3;

/// Everything that the keeper hands to a supervisor at its start.
#[derive(Debug)]
pub struct House {
    /// The listening socket, non-blocking.
    pub listener: OwnedFd,
    /// A duplicate of the house lock; keep it open for life.
    pub lock: OwnedFd,
    /// Records appended by earlier supervisors and this one.
    pub ledger: OwnedFd,
    /// Which ledger that is; 0 is the empty first one.
    pub ledger_generation: u64,
    /// The rings.
    pub arena: OwnedFd,
    /// Scratch control blocks and job headers.
    pub headers: OwnedFd,
    /// Slots in the arena.
    pub slots: u64,
    /// Reading and writing end of each scratch pipe.
    pub scratch: Vec<(OwnedFd, OwnedFd)>,
    /// Which start in a row this is, from 1 (STEADY sets it back).
    pub attempt: u32,
    /// Why there is a new supervisor.
    pub why: Why,
    /// What jobs can carry as a mark.
    pub cookie: Rung,
    /// Where jobs have groups of their own, or why they have none.
    pub groups: Result<Cgroups, String>,
    /// The house's number in cookies.
    pub instance: u32,
    /// Version of the keeper's build.
    pub build: String,
    /// Wire versions the keeper speaks, oldest and newest.
    pub wire: (u32, u32),
    /// The umask the keeper was started with.
    pub umask: u32,
    /// The limits it was started with and has raised.
    pub limits: Vec<Limit>,
    /// The job that the last supervisor was restoring when it died, and how many died so.
    pub restoring: Option<(u64, u32)>,
    /// Which build of its version the keeper is; empty where it does not say so.
    pub build_id: String,
    /// Why the last upgrade was taken back.
    pub taken_back: Option<String>,
}

/// Why a supervisor was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The house is new.
    First,
    /// The one before died.
    Crash,
    /// The one before made room.
    Upgrade,
}

/// The supervisor's copies of a job's descriptors.
#[derive(Debug, Default)]
pub struct JobFds {
    /// Standard output, or the terminal's master.
    pub out: Option<OwnedFd>,
    /// Standard error, when it is not merged.
    pub err: Option<OwnedFd>,
    /// Standard input, when it is a pipe.
    pub stdin: Option<OwnedFd>,
    /// The spill file (only from [`Keeper::fetch`]).
    pub spill: Option<OwnedFd>,
}

/// A job that this supervisor knows of.
#[derive(Debug, Clone)]
pub struct Entry {
    /// What has happened, as levels.
    pub facts: watch::Receiver<Facts>,
}

/// A job as the keeper has it.
#[derive(Debug)]
pub struct JobState {
    /// Its id.
    pub job: u64,
    /// Slot of its ring.
    pub slot: u32,
    /// The record that came with its start.
    pub record: Vec<u8>,
    /// What has happened up to the answer.
    pub facts: Facts,
    /// What happens from now on.
    pub entry: Entry,
    /// Its descriptors.
    pub fds: JobFds,
}

/// Which of a job's descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Standard input.
    In,
    /// Standard output or the terminal.
    Out,
    /// Standard error.
    Err,
}

/// Why the supervisor goes.
#[derive(Debug)]
pub enum Leave<'a> {
    /// Nothing is left to do.
    Idle,
    /// It was asked to stop.
    Dispose,
    /// It cannot serve, for this reason.
    Refuse(&'a str),
    /// This image is to be started in standby, to come after it.
    Upgrade(BorrowedFd<'a>),
    /// It stays after all.
    Stay,
}

/// A message that found no room yet.
struct Waiting {
    frame: Frame,
    payload: Vec<u8>,
    files: Vec<OwnedFd>,
}

struct Known {
    facts: watch::Sender<Facts>,
    fds: Option<JobFds>,
    refills: u32,
}

/// An answer to FETCH that is coming in.
struct Fetching {
    /// Unanswered questions of this sequence: one, and one for each row asked again.
    questions: u32,
    /// Only the records are wanted; nothing else of the rows is taken in.
    records_only: bool,
    rows: Vec<(u64, JobRow, JobFds)>,
    done: oneshot::Sender<Vec<(u64, JobRow, JobFds)>>,
}

#[derive(Default)]
struct State {
    jobs: HashMap<u64, Known>,
    queue: VecDeque<Waiting>,
    fetches: HashMap<u32, Fetching>,
    sequence: u32,
    listeners: Option<mpsc::UnboundedReceiver<OwnedFd>>,
    /// The lock that came with the last listener, held and nothing else.
    house_lock: Option<OwnedFd>,
}

struct Shared {
    wire: AsyncFd<OwnedFd>,
    state: Mutex<State>,
    /// Something was put into the queue.
    queued: Notify,
    listeners: mpsc::UnboundedSender<OwnedFd>,
    closed: watch::Sender<bool>,
    term: watch::Sender<Option<i32>>,
    /// What became of the next supervisor.
    standby: watch::Sender<Option<Result<(), String>>>,
    /// The keeper's last refusal, for the log.
    refusals: watch::Sender<Option<Refusal>>,
}

/// An order that the keeper did not carry out: a fault of ours, or too early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The job it was about, or 0.
    pub job: u64,
    /// `wire::ERROR_*`.
    pub code: u64,
    /// The operation.
    pub op: u16,
    /// The keeper's sentence.
    pub text: String,
}

/// A handle to the keeper; clones share one wire.
#[derive(Clone)]
pub struct Keeper {
    shared: Arc<Shared>,
}

impl Keeper {
    /// Takes the wire (descriptor 3 of a supervisor) and waits for the keeper's HELLO.
    ///
    /// # Errors
    /// `InvalidData` when the first message is no HELLO of a version spoken here;
    /// `UnexpectedEof` when the keeper is gone.
    pub async fn hello(wire: OwnedFd) -> io::Result<(Self, House)> {
        set_flags(&wire)?;
        let wire = crate::ready::both(wire)?;
        // Everything that can be made ready without the house is: in standby this is where it waits for its turn.
        let waits = Frame::new(Op::Standby, 0, [0; 5]);
        wire::send(wire.as_fd(), waits, &[], &[])?;
        let mut inbox = Inbox::default();
        let message = loop {
            let mut ready = wire.readable().await?;
            match ready.try_io(|wire| inbox.receive(wire.as_fd())) {
                Ok(answer) => break answer?.ok_or(io::ErrorKind::UnexpectedEof)?,
                Err(_would_block) => {}
            }
        };
        let house = House::read(message).ok_or(io::ErrorKind::InvalidData)?;
        let (listeners, receiver) = mpsc::unbounded_channel();
        let state = State {
            listeners: Some(receiver),
            ..State::default()
        };
        let shared = Arc::new(Shared {
            wire,
            state: Mutex::new(state),
            queued: Notify::new(),
            listeners,
            closed: watch::Sender::new(false),
            term: watch::Sender::new(None),
            standby: watch::Sender::new(None),
            refusals: watch::Sender::new(None),
        });
        tokio::spawn(serve(Arc::clone(&shared), inbox));
        Ok((Self { shared }, house))
    }

    /// Registers a job before its start, so that nothing told of it is lost.
    #[must_use]
    pub fn enter(&self, job: u64) -> Entry {
        let mut state = self.shared.lock();
        let known = state.jobs.entry(job).or_insert_with(Known::new);
        Entry {
            facts: known.facts.subscribe(),
        }
    }

    /// The descriptors of a job, once; there when `started` is set.
    #[must_use]
    pub fn take_fds(&self, job: u64) -> Option<JobFds> {
        self.shared.lock().jobs.get_mut(&job)?.fds.take()
    }

    /// Starts a job. `stdin` is the file of [`wire::Stdin::Passed`].
    ///
    /// # Errors
    /// When the file cannot be duplicated for the queue.
    pub fn fork(
        &self,
        job: u64,
        request: &ForkRequest,
        stdin: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        self.with_files(Op::Fork, job, 0, request.encode(), stdin)
    }

    /// Buries a leader that has ended; answered in `reaped`.
    pub fn reap(&self, job: u64) {
        self.order(Op::Reap, job, 0);
    }

    /// Drops the keeper's copy of a descriptor. Close ours first.
    pub fn close(&self, job: u64, which: Which) {
        let which = match which {
            Which::In => wire::CLOSE_IN,
            Which::Out => wire::CLOSE_OUT,
            Which::Err => wire::CLOSE_ERR,
        };
        self.order(Op::Close, job, which);
    }

    /// Gives the keeper a duplicate of the job's spill file.
    ///
    /// # Errors
    /// When the file cannot be duplicated for the queue.
    pub fn hold_spill(&self, job: u64, spill: BorrowedFd<'_>) -> io::Result<()> {
        self.with_files(Op::Hold, job, 0, Vec::new(), Some(spill))
    }

    /// Drops a buried job in the keeper and here.
    pub fn forget(&self, job: u64) {
        self.order(Op::Forget, job, 0);
        self.shared.lock().jobs.remove(&job);
    }

    /// Kills the keeper's children that carry the job's cookie; `None`: every job's.
    pub fn sweep(&self, job: Option<u64>) {
        self.order(Op::Sweep, job.unwrap_or(wire::NONE), 0);
    }

    /// Starts the next supervisor from this image and returns when it waits for us to go. From then on there is a
    /// second.
    ///
    /// # Errors
    /// Why it does not come; then nothing has changed.
    pub async fn prepare(&self, image: BorrowedFd<'_>) -> Result<(), String> {
        self.shared.standby.send_replace(None);
        self.leave(&Leave::Upgrade(image))
            .map_err(|error| error.to_string())?;
        let mut standby = self.shared.standby.subscribe();
        // Copied at once: the guard must not live across the wait below.
        let told = async { standby.wait_for(Option::is_some).await.ok()?.clone() };
        tokio::select! {
            told = told => told.unwrap_or(Ok(())),
            () = self.closed() => Err("the keeper is gone".into()),
        }
    }

    /// The records of all jobs, as they came with their starts. One that cannot be had is empty.
    pub async fn records(&self) -> Vec<(u64, Vec<u8>)> {
        let rows = self.fetch_rows(true).await;
        rows.into_iter()
            .map(|(job, row, _)| (job, row.record))
            .collect()
    }

    /// Asks for all jobs. Empty when the keeper is gone.
    pub async fn fetch(&self) -> Vec<JobState> {
        let rows = self.fetch_rows(false).await;
        let mut jobs = Vec::with_capacity(rows.len());
        for (job, row, fds) in rows {
            let entry = self.enter(job);
            jobs.push(JobState {
                job,
                slot: row.slot,
                record: row.record,
                facts: row.facts,
                entry,
                fds,
            });
        }
        jobs
    }

    async fn fetch_rows(&self, records_only: bool) -> Vec<(u64, JobRow, JobFds)> {
        let (done, answer) = oneshot::channel();
        let sequence = {
            let mut state = self.shared.lock();
            state.sequence += 1;
            let sequence = state.sequence;
            let fetching = Fetching {
                questions: 1,
                records_only,
                rows: Vec::new(),
                done,
            };
            state.fetches.insert(sequence, fetching);
            sequence
        };
        let frame = Frame::new(Op::Fetch, wire::NONE, [0; 5]).sequence(sequence);
        self.shared.send(frame, Vec::new(), Vec::new());
        tokio::select! {
            rows = answer => rows.unwrap_or_default(),
            () = self.closed() => Vec::new(),
        }
    }

    /// Clients are served from now on.
    pub fn ready(&self) {
        self.order(Op::Ready, 0, 0);
    }

    /// Ran for a while without trouble.
    pub fn steady(&self) {
        self.order(Op::Steady, 0, 0);
    }

    /// Announces our exit; exit soon after it.
    ///
    /// # Errors
    /// When the image of an upgrade cannot be duplicated for the queue.
    pub fn leave(&self, why: &Leave<'_>) -> io::Result<()> {
        let (number, reason, image) = match why {
            Leave::Idle => (wire::LEAVE_IDLE, "", None),
            Leave::Dispose => (wire::LEAVE_DISPOSE, "", None),
            Leave::Refuse(reason) => (wire::LEAVE_REFUSE, *reason, None),
            Leave::Upgrade(image) => (wire::LEAVE_UPGRADE, "", Some(*image)),
            Leave::Stay => (wire::LEAVE_STAY, "", None),
        };
        self.with_files(Op::Leave, 0, number, reason.into(), image)
    }

    /// Puts a new ledger in the place of the old one.
    ///
    /// It has it when this returns: a supervisor that is killed then leaves no ledger that nobody holds.
    ///
    /// # Errors
    /// It cannot be given at once; the one before stays.
    pub fn ledger(&self, generation: u64, file: BorrowedFd<'_>) -> io::Result<()> {
        let frame = Frame::new(Op::Ledger, 0, [generation, 0, 0, 0, 0]);
        let files = [file.try_clone_to_owned()?];
        let state = self.shared.lock();
        if !state.queue.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        put(&self.shared.wire, &frame, &[], &files)
    }

    /// Everything ordered so far is on its way to the keeper (or the keeper is gone).
    /// To be awaited between [`Keeper::leave`] and the exit.
    pub async fn flushed(&self) {
        let mut closed = self.shared.closed.subscribe();
        while !*closed.borrow_and_update() && !self.shared.lock().queue.is_empty() {
            tokio::select! {
                _ = self.shared.wire.writable() => tokio::task::yield_now().await,
                _ = closed.changed() => return,
            }
        }
    }

    /// Comes when the keeper is gone.
    pub async fn closed(&self) {
        let mut closed = self.shared.closed.subscribe();
        // The sender lives in `shared`, so this ends by the value alone.
        let _ = closed.wait_for(|closed| *closed).await;
    }

    /// Comes when the keeper was asked to end, with the signal's number. Finish in 10 s.
    pub async fn asked_to_end(&self) -> i32 {
        let mut term = self.shared.term.subscribe();
        // Copied at once: the guard must not live across the wait below.
        let asked = term.wait_for(Option::is_some).await.map(|number| *number);
        match asked {
            Ok(number) => number.unwrap_or(libc::SIGTERM),
            Err(_) => std::future::pending().await,
        }
    }

    /// Listeners that replace the one in [`House`], to be taken once.
    #[must_use]
    pub fn listeners(&self) -> Option<mpsc::UnboundedReceiver<OwnedFd>> {
        self.shared.lock().listeners.take()
    }

    /// Orders that the keeper refused, the last one, for the log.
    #[must_use]
    pub fn refusals(&self) -> watch::Receiver<Option<Refusal>> {
        self.shared.refusals.subscribe()
    }

    fn order(&self, op: Op, job: u64, first: u64) {
        let frame = Frame::new(op, job, [first, 0, 0, 0, 0]);
        self.shared.send(frame, Vec::new(), Vec::new());
    }

    fn with_files(
        &self,
        op: Op,
        job: u64,
        first: u64,
        payload: Vec<u8>,
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let frame = Frame::new(op, job, [first, 0, 0, 0, 0]);
        let file = file.map(|file| file.try_clone_to_owned()).transpose()?;
        self.shared.send(frame, payload, file.into_iter().collect());
        Ok(())
    }
}

/// The wire must not leak into anything and never block.
fn set_flags(wire: &OwnedFd) -> io::Result<()> {
    use crate::keeper::kernel;
    use std::os::fd::AsRawFd;
    // SAFETY: plain call on a descriptor that we own.
    let set = unsafe { libc::fcntl(wire.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
    kernel::check(set.into())?;
    kernel::unblock(wire.as_fd())
}

impl House {
    /// From the HELLO; `None` when it is none, or descriptors are missing.
    fn read(message: Message) -> Option<Self> {
        let args = message.frame.args;
        let welcome = wire::Welcome::decode(&message.payload)?;
        let spoken =
            welcome.oldest <= wire::VERSION.into() && welcome.newest >= wire::OLDEST.into();
        if message.frame.op() != Some(Op::Hello) || !spoken || message.truncated {
            return None;
        }
        let mut files = message.files.into_iter();
        let instance = args[3] as u32;
        Some(Self {
            listener: files.next()?,
            lock: files.next()?,
            ledger: files.next()?,
            arena: files.next()?,
            headers: files.next()?,
            scratch: pairs(files)?,
            ledger_generation: welcome.ledger,
            slots: args[4],
            attempt: args[0] as u32,
            why: match args[1] {
                0 => Why::First,
                1 => Why::Crash,
                _ => Why::Upgrade,
            },
            cookie: match args[2] {
                1 => Rung::Both,
                2 => Rung::Soft,
                _ => Rung::None,
            },
            groups: groups(&welcome, instance),
            instance,
            build: text(&welcome.build),
            wire: (welcome.oldest, welcome.newest),
            umask: welcome.umask,
            limits: welcome.limits,
            restoring: welcome.restoring.map(|job| (job, welcome.restoring_deaths)),
            build_id: text(&welcome.id),
            taken_back: Some(text(&welcome.taken_back)).filter(|why| !why.is_empty()),
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn groups(welcome: &wire::Welcome, instance: u32) -> Result<Cgroups, String> {
    if welcome.cgroup.is_empty() {
        return Err(text(&welcome.cgroup_lack));
    }
    let folder = Path::new(OsStr::from_bytes(&welcome.cgroup));
    Cgroups::at(folder, instance).ok_or_else(|| format!("{} is gone", folder.display()))
}

fn pairs(mut files: impl Iterator<Item = OwnedFd>) -> Option<Vec<(OwnedFd, OwnedFd)>> {
    let mut pairs = Vec::new();
    while let Some(reading) = files.next() {
        pairs.push((reading, files.next()?));
    }
    Some(pairs)
}

impl Known {
    fn new() -> Self {
        Self {
            facts: watch::Sender::new(Facts::default()),
            fds: None,
            refills: 0,
        }
    }
}

impl JobFds {
    /// Sorts the files of a message by its flags.
    fn read(flags: u32, files: Vec<OwnedFd>) -> Self {
        let mut files = files.into_iter();
        let mut next = |flag| (flags & flag != 0).then(|| files.next()).flatten();
        Self {
            out: next(wire::HAS_OUT),
            err: next(wire::HAS_ERR),
            stdin: next(wire::HAS_IN),
            spill: next(wire::HAS_SPILL),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends at once where there is room and nothing waits before; queues otherwise.
    fn send(&self, frame: Frame, payload: Vec<u8>, files: Vec<OwnedFd>) {
        let mut state = self.lock();
        if state.queue.is_empty() && put(&self.wire, &frame, &payload, &files).is_ok() {
            return;
        }
        state.queue.push_back(Waiting {
            frame,
            payload,
            files,
        });
        drop(state);
        self.queued.notify_one();
    }

    /// Sends what waits. True when the queue is empty.
    fn drain(&self) -> io::Result<bool> {
        let mut state = self.lock();
        while let Some(next) = state.queue.front() {
            match put(&self.wire, &next.frame, &next.payload, &next.files) {
                Ok(()) => drop(state.queue.pop_front()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn take_in(&self, message: Message) {
        let frame = message.frame;
        match frame.op() {
            Some(Op::Job) => self.row(message),
            Some(Op::Done) => self.done(frame.sequence),
            Some(Op::Ping) => {
                let pong = Frame::new(Op::Pong, 0, [0; 5]).sequence(frame.sequence);
                self.send(pong, Vec::new(), Vec::new());
            }
            Some(Op::Listener) => {
                let mut files = message.files.into_iter();
                let listener = files.next();
                if let Some(lock) = files.next() {
                    self.lock().house_lock = Some(lock);
                }
                if let Some(listener) = listener {
                    // Nobody may have asked for them; then the old one stays in use.
                    let _ = self.listeners.send(listener);
                }
            }
            Some(Op::Standby) => {
                let why = text(&message.payload);
                let told = if frame.args[0] == 0 { Ok(()) } else { Err(why) };
                self.standby.send_replace(Some(told));
            }
            Some(Op::Term) => drop(self.term.send_replace(Some(frame.args[0] as i32))),
            Some(Op::Error) => drop(self.refusals.send_replace(Some(Refusal {
                job: frame.job,
                code: frame.args[0],
                op: frame.args[1] as u16,
                text: text(&message.payload),
            }))),
            _ => self.fact(message),
        }
    }

    fn fact(&self, message: Message) {
        let frame = message.frame;
        let mut state = self.lock();
        // One that is not known here is told whole by FETCH.
        let Some(known) = state.jobs.get_mut(&frame.job) else {
            return;
        };
        if frame.op() == Some(Op::Started) {
            if message.truncated && known.want_refill() {
                // `started` is set when the descriptors are there: JOB of sequence 0.
                drop(state);
                let again = Frame::new(Op::Fetch, frame.job, [0; 5]);
                return self.send(again, Vec::new(), Vec::new());
            }
            if known.facts.borrow().started.is_none() {
                known.fds = Some(JobFds::read(frame.flags, message.files));
            }
        }
        known.facts.send_modify(|facts| facts.learn(&frame));
    }

    fn row(&self, message: Message) {
        let frame = message.frame;
        let row = JobRow::decode(&message.payload);
        let mut state = self.lock();
        if let Some(fetching) = state.fetches.get_mut(&frame.sequence)
            && fetching.records_only
        {
            let row = row.unwrap_or_default();
            fetching.rows.push((frame.job, row, JobFds::default()));
            return;
        }
        let Some(row) = row else {
            return;
        };
        let known = state.jobs.entry(frame.job).or_insert_with(Known::new);
        if message.truncated && known.want_refill() {
            if let Some(fetching) = state.fetches.get_mut(&frame.sequence) {
                fetching.questions += 1;
            }
            drop(state);
            let again = Frame::new(Op::Fetch, frame.job, [0; 5]).sequence(frame.sequence);
            return self.send(again, Vec::new(), Vec::new());
        }
        let fds = JobFds::read(frame.flags, message.files);
        known.facts.send_replace(row.facts.clone());
        match state.fetches.get_mut(&frame.sequence) {
            Some(fetching) => fetching.rows.push((frame.job, row, fds)),
            None => {
                if let Some(known) = state.jobs.get_mut(&frame.job) {
                    known.fds = Some(fds);
                }
            }
        }
    }

    fn done(&self, sequence: u32) {
        let mut state = self.lock();
        let Some(fetching) = state.fetches.get_mut(&sequence) else {
            return;
        };
        fetching.questions -= 1;
        if fetching.questions == 0
            && let Some(fetching) = state.fetches.remove(&sequence)
        {
            // Whoever asked may have gone.
            let _ = fetching.done.send(fetching.rows);
        }
    }

    fn gone(&self) {
        let mut state = self.lock();
        state.fetches.clear();
        state.queue.clear();
        drop(state);
        self.closed.send_replace(true);
    }
}

impl Known {
    /// Whether lost descriptors are asked for once more.
    fn want_refill(&mut self) -> bool {
        self.refills += 1;
        self.refills <= REFILLS
    }
}

fn put(
    wire: &AsyncFd<OwnedFd>,
    frame: &Frame,
    payload: &[u8],
    files: &[OwnedFd],
) -> io::Result<()> {
    let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
    wire::send(wire.as_fd(), *frame, payload, &files)
}

/// Receives and drains until the keeper is gone.
async fn serve(shared: Arc<Shared>, mut inbox: Inbox) {
    loop {
        let waits = !shared.lock().queue.is_empty();
        let open = tokio::select! {
            open = receive(&shared, &mut inbox) => open,
            () = shared.queued.notified(), if !waits => Ok(true),
            sent = send_waiting(&shared), if waits => sent,
        };
        if !matches!(open, Ok(true)) {
            return shared.gone();
        }
    }
}

/// Takes in everything that has come. False at the end of the wire.
async fn receive(shared: &Shared, inbox: &mut Inbox) -> io::Result<bool> {
    let mut ready = shared.wire.readable().await?;
    loop {
        match ready.try_io(|wire| inbox.receive(wire.as_fd())) {
            Ok(Ok(Some(message))) => shared.take_in(message),
            Ok(Ok(None)) => return Ok(false),
            // Consumed; the next one may be whole.
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {}
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => return Ok(true),
        }
    }
}

async fn send_waiting(shared: &Shared) -> io::Result<bool> {
    let mut ready = shared.wire.writable().await?;
    match shared.drain() {
        Ok(true) => {}
        Ok(false) => ready.clear_ready(),
        Err(error) if retryable(&error) => {
            // Too many descriptors on their way; the keeper takes them in no time.
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        Err(error) => return Err(error),
    }
    Ok(true)
}

fn retryable(error: &io::Error) -> bool {
    let errno = error.raw_os_error();
    [
        libc::ETOOMANYREFS,
        libc::EMFILE,
        libc::ENFILE,
        libc::ENOMEM,
        libc::ENOBUFS,
    ]
    .into_iter()
    .any(|one| errno == Some(one))
}
