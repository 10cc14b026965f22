//! Bytes from a child into its log: one task a job, no decision, no queue.
//!
//! Each step takes a scratch pair, runs to its end and gives it back (`log::scratch`); after some steps the task
//! yields, so that a flood leaves room for others. The child waits only for our own disk: when the spill writer
//! is behind, this job's pump waits for it and nobody else does.

use std::{
    os::fd::{AsFd, AsRawFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ostler_proto::{job::State, limits, methods::OnLimit};
use tokio::{
    io::unix::AsyncFd,
    sync::{Semaphore, mpsc, oneshot},
    task::JoinHandle,
};

use crate::{
    job::{Cause, Job, Status, Who},
    log::{
        Log,
        scratch::{Pool, ScratchPair, Step},
    },
    process::link::Keeper,
    ready, replies,
    terminal::Scan,
};

/// Steps between two yields.
const STEPS: usize = 16;
/// A read of this size or more means that the child is faster than we are.
const FULL: u64 = 32 * 1024;
/// Full reads in a row after which a larger pipe is worth its pages.
const NOISY: u32 = 8;
/// The larger pipe. Pipe pages are counted per user, so there are at most [`limits::big_pipes()`] of them.
const BIG: i32 = 1024 * 1024;

/// A terminal hands out at most 4 KiB in one go. So many goes in a row of at least [`TALKS`] bytes, and it is loud: for
/// each of them the runtime would wake a second thread that finds nothing to do.
const LOUD: u32 = 8;
const TALKS: u64 = 1024;
/// How long the pump of a loud terminal waits for it itself before the runtime watches it again, and how often in a turn.
const PAUSE: Duration = Duration::from_micros(50);
const PAUSES: usize = 4;

/// What all pumps of a house share.
pub(crate) struct Pumps {
    pool: Pool,
    pairs: usize,
    keeper: Keeper,
    writers: Semaphore,
    big: AtomicUsize,
}

impl Pumps {
    pub(crate) fn new(pairs: Vec<ScratchPair>, keeper: Keeper) -> Self {
        Self {
            pairs: pairs.len(),
            pool: Pool::new(pairs),
            keeper,
            writers: Semaphore::new(limits::spill_writers()),
            big: AtomicUsize::new(0),
        }
    }

    /// No byte moves any more, in the last moment of a process.
    pub(crate) fn stop(&self) {
        self.pool.close(self.pairs);
    }
}

/// Starts the pump of a job. It ends when every stream has ended.
pub(crate) fn begin(
    pumps: &Arc<Pumps>,
    job: &Arc<Job>,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
) -> Running {
    let (asks, asked) = mpsc::channel(1);
    let pump = Pump {
        pumps: Arc::clone(pumps),
        job: Arc::clone(job),
        writer: None,
        asked,
        scan: job.spec.pty.then(|| replies::begin(job)),
        over_limit: false,
    };
    let task = tokio::spawn(pump.run(out, err));
    Running { task, asks }
}

/// A pump that runs, held by the life of its job.
pub(crate) struct Running {
    task: JoinHandle<()>,
    asks: mpsc::Sender<oneshot::Sender<()>>,
}

impl Running {
    /// Waits until every stream has ended.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await
            && error.is_panic()
        {
            crate::log_line!(
                "error",
                "a pump panicked; what its job prints from now on is lost"
            );
        }
    }

    /// Answers when all that stood in the pipes at the time of asking is in the log: on a busy machine the
    /// pump may be late, and a last line must not be missing from a result for that.
    pub(crate) fn catch_up(&self) -> impl Future<Output = ()> + use<> {
        let asks = self.asks.clone();
        async move {
            let (done, told) = oneshot::channel();
            if asks.send(done).await.is_ok() {
                // A pump that ends meanwhile has read everything.
                let _ = told.await;
            }
        }
    }

    /// Reads no more.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }
}

struct Pump {
    pumps: Arc<Pumps>,
    job: Arc<Job>,
    /// The one write of this job's spill that may be under way.
    writer: Option<JoinHandle<()>>,
    asked: mpsc::Receiver<oneshot::Sender<()>>,
    /// Of a terminal alone.
    scan: Option<Scan>,
    /// It printed more than it may, and is being killed.
    over_limit: bool,
}

/// One stream of a child.
struct Source {
    fd: Watched,
    stream: u8,
    noise: Noise,
}

/// Who watches whether there is something to read.
enum Watched {
    Runtime(AsyncFd<OwnedFd>),
    /// The pump itself: it is loud.
    Pump(OwnedFd),
}

impl Watched {
    fn get(&self) -> &OwnedFd {
        match self {
            Self::Runtime(fd) => fd.get_ref(),
            Self::Pump(fd) => fd,
        }
    }
}

/// How a turn has ended.
enum Turned {
    /// There may be more now.
    Open,
    /// Nothing stands there: the runtime tells of more.
    Empty,
    /// And so much that the pump is to watch for it, or so little that the runtime is to.
    Loud,
    Calm,
    /// That was all.
    Closed,
}

/// How busy a stream is, and whether its pipe was enlarged for that.
#[derive(Default)]
struct Noise {
    full: u32,
    big: Option<Arc<Pumps>>,
    /// Goes of a terminal in a row.
    goes: u32,
}

impl Source {
    fn new(fd: Option<OwnedFd>, stream: u8) -> Option<Self> {
        Some(Self {
            fd: Watched::Runtime(watched(fd?)?),
            stream,
            noise: Noise::default(),
        })
    }

    /// Watched by whom it is to be from now on.
    fn turned(mut self, turned: &Turned) -> Option<Self> {
        self.noise.goes = 0;
        self.fd = match (turned, self.fd) {
            (Turned::Closed, _) => return None,
            (Turned::Loud, Watched::Runtime(fd)) => Watched::Pump(fd.into_inner()),
            (Turned::Calm, Watched::Pump(fd)) => Watched::Runtime(watched(fd)?),
            (_, fd) => fd,
        };
        Some(self)
    }
}

fn watched(fd: OwnedFd) -> Option<AsyncFd<OwnedFd>> {
    ready::readable(fd)
        .inspect_err(|error| {
            crate::log_line!(
                "error",
                "a stream could not be watched, its output is lost: {error}"
            );
        })
        .ok()
}

impl Noise {
    /// Grows the pipe of a child that keeps it full. Being refused is no fault: the user's pages are used up.
    fn saw(&mut self, n: u64, fd: &OwnedFd, pumps: &Arc<Pumps>) {
        if n < FULL {
            self.full = 0;
            return;
        }
        self.full += 1;
        if self.full != NOISY || self.big.is_some() {
            return;
        }
        if pumps.big.fetch_add(1, Ordering::Relaxed) < limits::big_pipes() {
            set_pipe_size(fd, BIG);
            self.big = Some(Arc::clone(pumps));
        } else {
            pumps.big.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Noise {
    /// Tells whether a terminal has become loud.
    fn is_loud(&mut self, n: u64) -> bool {
        self.goes = if n < TALKS { 0 } else { self.goes + 1 };
        self.goes >= LOUD
    }
}

impl Drop for Noise {
    fn drop(&mut self) {
        if let Some(pumps) = &self.big {
            pumps.big.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Bytes that stand in a pipe.
fn waiting(fd: &OwnedFd) -> u64 {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int.
    unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut n) };
    u64::try_from(n).unwrap_or(0)
}

fn set_pipe_size(fd: &OwnedFd, bytes: i32) {
    // SAFETY: fcntl with an integer argument on a descriptor that we own; failure changes nothing.
    unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) };
}

impl Pump {
    async fn run(mut self, out: Option<OwnedFd>, err: Option<OwnedFd>) {
        let (mut out, mut err) = (Source::new(out, 0), Source::new(err, 1));
        // Where both have something, standard output comes first and then they take turns: the true order
        // of two pipes is known to nobody, and neither may starve the other.
        let mut turn_of_err = false;
        while out.is_some() || err.is_some() {
            tokio::select! {
                // Who prints too much finds its pipe full until it is killed: on a busy machine, where that takes a while,
                // it filled the disk with what nobody may read.
                () = killed(&self.job), if self.over_limit => {
                    self.over_limit = false;
                    continue;
                }
                is_err = next(out.as_ref(), err.as_ref(), turn_of_err), if !self.over_limit => turn_of_err = is_err,
                Some(done) = self.asked.recv() => {
                    self.catch_up(&mut out).await;
                    self.catch_up(&mut err).await;
                    // Nobody waits any more when the job was published meanwhile.
                    let _ = done.send(());
                    continue;
                }
            }
            let source = if turn_of_err { &mut err } else { &mut out };
            turn_of_err = !turn_of_err;
            let Some(open) = source else { continue };
            match self.turn(open).await {
                // No room is to be made for others by one that waits in any case: the runtime would wake a second thread.
                Turned::Empty => continue,
                Turned::Open => {}
                turned => *source = source.take().and_then(|source| source.turned(&turned)),
            }
            tokio::task::yield_now().await;
        }
        self.job.log.seal();
        // Telling that the output is closed must not wait for the disk: the ring has the rest.
        tokio::spawn(self.finish());
    }

    /// Reads what stands in a pipe now, and no more: a descendant may go on writing for ever.
    async fn catch_up(&mut self, source: &mut Option<Source>) {
        let Some(open) = source else { return };
        let mut left = waiting(open.fd.get());
        loop {
            let fd = open.fd.get().as_fd();
            match self.pumps.pool.step(fd, &self.job.log, open.stream) {
                Ok(Step::Moved(n) | Step::Short(n)) if n < left => left -= n,
                Ok(Step::Moved(_) | Step::Short(_)) if left > 0 => left = 0,
                Ok(Step::Moved(_) | Step::Short(_) | Step::Empty) => {
                    self.listen();
                    return;
                }
                Ok(Step::WaitForSpill) => {
                    self.kick();
                    self.wait_for_writer().await;
                }
                Ok(Step::Closed) | Err(_) => {
                    *source = None;
                    return;
                }
            }
        }
    }

    /// Some steps of one stream.
    async fn turn(&mut self, source: &mut Source) -> Turned {
        let Source { fd, stream, noise } = source;
        // Taken before the first step: what arrives after an empty one is a new event and is not forgotten.
        let mut ready = match &*fd {
            Watched::Runtime(fd) => match fd.readable().await {
                Ok(ready) => Some(ready),
                Err(_) => return Turned::Closed,
            },
            Watched::Pump(_) => None,
        };
        let fd = fd.get();
        let mut pauses = 0;
        for _ in 0..STEPS {
            let step = self.pumps.pool.step(fd.as_fd(), &self.job.log, *stream);
            match step {
                Ok(Step::Moved(n) | Step::Short(n)) => {
                    self.job.saw_output();
                    noise.saw(n, fd, &self.pumps);
                    self.check_limit();
                    self.listen();
                    self.kick();
                    if self.over_limit {
                        return Turned::Open;
                    }
                    if let (Some(_), Some(ready)) = (&self.scan, &mut ready) {
                        if noise.is_loud(n) {
                            return Turned::Loud;
                        }
                        if n < TALKS && matches!(step, Ok(Step::Short(_))) {
                            // That was all: a terminal hands out what it has. To ask once more costs a wait for a thread of
                            // the kernel; what comes after this read is a new event.
                            ready.clear_ready();
                            return Turned::Empty;
                        }
                    }
                }
                Ok(Step::Empty) => match &mut ready {
                    Some(ready) => {
                        ready.clear_ready();
                        return Turned::Empty;
                    }
                    None if !ready::within(fd, PAUSE) => return Turned::Calm,
                    None => {
                        pauses += 1;
                        if pauses == PAUSES {
                            return Turned::Open;
                        }
                    }
                },
                Ok(Step::Closed) => return Turned::Closed,
                Ok(Step::WaitForSpill) => {
                    self.kick();
                    self.wait_for_writer().await;
                }
                Err(error) => {
                    crate::log_line!(
                        "error",
                        "job={} reading its output: {error}",
                        self.job.spec.process_id
                    );
                    return Turned::Closed;
                }
            }
        }
        Turned::Open
    }

    /// Hears what the program asks its terminal, if it has one.
    fn listen(&mut self) {
        if let Some(scan) = &mut self.scan {
            replies::listen(&self.job, scan);
        }
    }

    fn check_limit(&mut self) {
        let spec = &self.job.spec;
        if spec.on_limit == OnLimit::Stop
            && spec.max_bytes.is_some_and(|most| self.job.log.end() > most)
        {
            let who = Who::ours(Cause::OutputLimit, "output limit");
            // Once: what stands in its pipe when it is dead is read.
            self.over_limit |= self.job.want_stop(0, who);
        }
    }

    /// Starts the spill writer when there is enough for it and none is at it.
    fn kick(&mut self) {
        if self.writer.as_ref().is_some_and(|w| !w.is_finished()) || !self.job.log.wants_spill() {
            return;
        }
        let (pumps, job) = (Arc::clone(&self.pumps), Arc::clone(&self.job));
        self.writer = Some(tokio::spawn(async move { spill(&pumps, &job).await }));
    }

    async fn wait_for_writer(&mut self) {
        if let Some(writer) = self.writer.take() {
            // A writer that panicked has left the spill as it is; the step then drops what it must.
            let _ = writer.await;
        } else {
            self.job.log.room_made().await;
        }
    }

    /// Writes what is left after the last byte, so that the file is whole, and closes it.
    async fn finish(mut self) {
        loop {
            if let Some(writer) = self.writer.take() {
                let _ = writer.await;
            }
            self.kick();
            if self.writer.is_none() {
                break;
            }
        }
        self.job.log.close_spill();
    }
}

/// Appends to the log of a job that no process writes to. Waits for our own disk alone.
pub(crate) async fn put(pumps: &Arc<Pumps>, job: &Arc<Job>, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        at += job.log.append(0, &bytes[at..]);
        job.saw_output();
        if job.log.wants_spill() {
            spill(pumps, job).await;
        }
    }
}

/// Writes the rest of such a log, which is sealed, so that its file is whole.
pub(crate) async fn finish(pumps: &Arc<Pumps>, job: &Arc<Job>) {
    while job.log.wants_spill() {
        spill(pumps, job).await;
    }
    job.log.close_spill();
}

/// Comes when the main process of a job is dead.
async fn killed(job: &Job) {
    let dead = |s: &Status| s.over || matches!(s.state, State::Draining | State::Exited);
    // The sender lives in the job.
    let _ = job.watch().wait_for(dead).await;
}

/// Waits for either stream; true for standard error, which goes first when `prefer_err`.
async fn next(out: Option<&Source>, err: Option<&Source>, prefer_err: bool) -> bool {
    if prefer_err {
        tokio::select! {
            biased;
            () = readable(err), if err.is_some() => true,
            () = readable(out), if out.is_some() => false,
        }
    } else {
        tokio::select! {
            biased;
            () = readable(out), if out.is_some() => false,
            () = readable(err), if err.is_some() => true,
        }
    }
}

async fn readable(source: Option<&Source>) {
    if let Some(source) = source
        && let Watched::Runtime(fd) = &source.fd
    {
        // An error here shows again, and is handled, where the stream is read.
        drop(fd.readable().await);
    }
}

/// One write of a spill, at most [`limits::spill_writers()`] in the house. The keeper holds the file from its first
/// byte on: somebody who cleans folders may take its name away.
async fn spill(pumps: &Arc<Pumps>, job: &Arc<Job>) {
    let Ok(_place) = pumps.writers.acquire().await else {
        return;
    };
    let log: Arc<Log> = Arc::clone(&job.log);
    // The keeper knows those alone that it made a process for.
    let fresh = log.spill_path().is_none() && job.spec.sent_to.is_none();
    let wrote = tokio::task::spawn_blocking(move || log.spill_pending()).await;
    if let Ok(Err(error)) = wrote {
        crate::log_line!(
            "warn",
            "job={} its full output is not kept: {error}",
            job.spec.process_id
        );
    }
    if fresh
        && let Ok(Some(file)) = job.log.spill_fd()
        && let Err(error) = pumps.keeper.hold_spill(job.spec.number, file.as_fd())
    {
        crate::log_line!(
            "warn",
            "job={} spill not held: {error}",
            job.spec.process_id
        );
    }
}
