//! The step that moves bytes from a job to its log and that `kill -9` cannot split.
//!
//! SIGKILL acts when a system call returns: after a plain `read` the bytes have left the kernel and no counter says so.
//! So bytes are spliced into a scratch pipe first, which the keeper holds as well, and a control block in shared memory
//! says whose they are; whatever has not reached the ring is still in that pipe, and FIONREAD counts it exactly. One
//! pair serves all jobs of a worker, since a step is synchronous. Nothing in here may ever await or take longer than a
//! few system calls that cannot block.
//!
//! ```text
//!   owner | splice | base, pend | readv | tag, end | pend = 0
//!         ^ killed in between: nothing | in the pipe | end = base + pend - FIONREAD(pipe), then the pipe is drained
//! ```

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::arena::{Arena, BlockWord};
use super::job_log::{Admit, Log};

/// In `pend`: the bytes are read straight into the ring, so after a crash nobody knows how many arrived.
const DOUBT: u64 = 1 << 63;

/// A scratch pipe and the number of its control block. Made by the keeper, which holds both ends too.
#[derive(Debug)]
pub struct ScratchPair {
    /// Where the ring is filled from.
    pub read: OwnedFd,
    /// Where the job's bytes are spliced to.
    pub write: OwnedFd,
    /// The control block, below [`super::BLOCKS`].
    pub block: usize,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// So many bytes are in the log now, as many as were wanted.
    Moved(u64),
    /// So many, fewer than that: a terminal holds no more, unless these are nearly as many as it hands out in one go.
    Short(u64),
    /// Nothing to read at present.
    Empty,
    /// The end of the pipe or PTY.
    Closed,
    /// The spill writer has to run first; nothing was read.
    WaitForSpill,
}

/// The pairs of the house. At most as many steps run at once as there are workers, and there is a pair for each.
#[derive(Debug)]
pub struct Pool {
    free: Mutex<Free>,
    back: Condvar,
}

#[derive(Debug)]
struct Free {
    pairs: Vec<ScratchPair>,
    /// Threads that wait for one. Waking nobody would cost a system call a step.
    waiting: usize,
}

impl Pool {
    /// A pool of these pairs; at least one.
    pub fn new(pairs: Vec<ScratchPair>) -> Pool {
        Pool {
            free: Mutex::new(Free { pairs, waiting: 0 }),
            back: Condvar::new(),
        }
    }

    /// One [`step`] with any pair. Waits for a pair only if more threads step than there are pairs.
    ///
    /// # Errors
    /// As [`step`].
    pub fn step(&self, source: BorrowedFd<'_>, log: &Log, stream: u8) -> io::Result<Step> {
        let pair = self.take();
        let result = step(&pair, source, log, stream);
        let mut free = self.free();
        free.pairs.push(pair);
        if free.waiting > 0 {
            self.back.notify_one();
        }
        drop(free);
        result
    }

    /// Lets every step that runs come to its end, and none begin any more: who would take one waits for ever. For the
    /// last moment of a process.
    pub fn close(&self, pairs: usize) {
        for _ in 0..pairs {
            drop(self.take());
        }
    }

    fn take(&self) -> ScratchPair {
        let mut free = self.free();
        loop {
            if let Some(pair) = free.pairs.pop() {
                return pair;
            }
            free.waiting += 1;
            free = self.back.wait(free).unwrap_or_else(PoisonError::into_inner);
            free.waiting -= 1;
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Moves at most 32 KiB from `source` (non-blocking; a PTY master must have O_NONBLOCK set) to the log.
///
/// # Errors
/// What reading the source answers, other than "nothing" and "closed". The log is in order then.
pub fn step(pair: &ScratchPair, source: BorrowedFd<'_>, log: &Log, stream: u8) -> io::Result<Step> {
    let turn = log.turn();
    let want = match log.admit(&turn, stream, log.step_bytes()) {
        Admit::Bytes(n) => n,
        Admit::Wait => return Ok(Step::WaitForSpill),
        Admit::Full => return full(source, log),
    };
    let block = Block::of(log.slot().arena(), pair);
    block.set(BlockWord::Owner, owner(log.job(), stream));
    match splice(source, pair.write.as_fd(), want) {
        Ok(0) => Ok(Step::Closed),
        Ok(n) => {
            fill(pair, &block, log, &turn, stream, n)?;
            Ok(moved(n, want))
        }
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            plain(&block, source, log, &turn, stream, want)
        }
        Err(e) => quiet(&e).ok_or(e),
    }
}

/// Finishes what a killed supervisor left in a pair; afterwards the pair is empty. Each of its steps may be cut by
/// another kill and done again. `lookup` finds the restored log of a job; bytes of a job that is gone are dropped.
///
/// # Errors
/// When the pipe cannot be asked or read.
pub fn restore(
    pair: &ScratchPair,
    arena: &Arc<Arena>,
    lookup: impl Fn(u64) -> Option<Arc<Log>>,
) -> io::Result<()> {
    let block = Block::of(arena, pair);
    let owner = block.get(BlockWord::Owner);
    let (base, pend) = (block.get(BlockWord::Base), block.get(BlockWord::Pend));
    let queued = queued(pair.read.as_fd())?;
    let Some(log) = lookup(owner >> 1) else {
        drain(pair, queued)?;
        block.set(BlockWord::Pend, 0);
        return Ok(());
    };
    let turn = log.turn();
    let stream = (owner & 1) as u8;
    if pend & DOUBT != 0 {
        log.doubt(base, pend & !DOUBT);
    } else if pend != 0 {
        // What the pipe does not hold any more is in the ring, to the byte. The tag may be missing still.
        log.commit(&turn, stream, base, pend - queued);
    }
    block.set(BlockWord::Pend, 0);
    if queued > 0 {
        fill(pair, &block, &log, &turn, stream, queued)?;
    }
    Ok(())
}

/// The job that the bytes in a pair belong to, where there are any.
pub fn owner_of(pair: &ScratchPair, arena: &Arc<Arena>) -> u64 {
    Block::of(arena, pair).get(BlockWord::Owner) >> 1
}

/// Whether this system can splice from a pipe, and from a PTY master; where not, a crash leaves bytes in doubt.
pub fn splice_works() -> io::Result<(bool, bool)> {
    Ok((probe(pipe_with_a_byte()?)?, probe(terminal_with_a_byte()?)?))
}

/// The source is exactly one ring ahead of an empty spill. One more byte decides whether there will be a file at all.
fn full(source: BorrowedFd<'_>, log: &Log) -> io::Result<Step> {
    let mut poll = libc::pollfd {
        fd: source.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid structure, and no waiting.
    if unsafe { libc::poll(&mut poll, 1, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if poll.revents & libc::POLLIN != 0 {
        log.overflow();
        Ok(Step::WaitForSpill)
    } else if poll.revents != 0 {
        Ok(Step::Closed)
    } else {
        Ok(Step::Empty)
    }
}

/// From the scratch pipe, which holds exactly `n` bytes of this log, into the ring.
fn fill(
    pair: &ScratchPair,
    block: &Block<'_>,
    log: &Log,
    turn: &MutexGuard<'_, ()>,
    stream: u8,
    n: u64,
) -> io::Result<()> {
    let slot = log.slot();
    let base = log.end();
    slot.make_room(n);
    block.set(BlockWord::Base, base);
    block.set(BlockWord::Pend, n);
    let mut done = 0;
    while done < n {
        match readv(pair.read.as_fd(), &slot.pieces(base + done, base + n)) {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(m) => done += m,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => {
                // A page of the ring cannot be had. The pair serves others: it must be empty again, loss is counted.
                log.drop_ring(turn, n);
                drain(pair, n - done)?;
                done = n;
            }
        }
    }
    log.commit(turn, stream, base, n);
    block.set(BlockWord::Pend, 0);
    Ok(())
}

/// Where splice is refused. The ring gives up room for a whole read first, and a crash leaves that much in doubt.
fn plain(
    block: &Block<'_>,
    source: BorrowedFd<'_>,
    log: &Log,
    turn: &MutexGuard<'_, ()>,
    stream: u8,
    want: u64,
) -> io::Result<Step> {
    let base = log.end();
    log.slot().make_room(want);
    block.set(BlockWord::Base, base);
    block.set(BlockWord::Pend, want | DOUBT);
    let got = readv(source, &log.slot().pieces(base, base + want));
    if let Ok(n) = got
        && n > 0
    {
        log.commit(turn, stream, base, n);
    }
    block.set(BlockWord::Pend, 0);
    match got {
        Ok(0) => Ok(Step::Closed),
        Ok(n) => Ok(moved(n, want)),
        Err(e) => quiet(&e).ok_or(e),
    }
}

fn moved(n: u64, want: u64) -> Step {
    if n < want {
        Step::Short(n)
    } else {
        Step::Moved(n)
    }
}

/// Answers that are no failures. EIO is how Linux tells the end of a PTY.
fn quiet(e: &io::Error) -> Option<Step> {
    match e.raw_os_error() {
        Some(libc::EAGAIN) => Some(Step::Empty),
        Some(libc::EIO) => Some(Step::Closed),
        _ => None,
    }
}

fn owner(job: u64, stream: u8) -> u64 {
    job << 1 | u64::from(stream & 1)
}

/// A control block in the arena's house page.
struct Block<'a> {
    arena: &'a Arena,
    index: usize,
}

impl<'a> Block<'a> {
    fn of(arena: &'a Arena, pair: &ScratchPair) -> Block<'a> {
        Block {
            arena,
            index: pair.block,
        }
    }

    fn word(&self, word: BlockWord) -> &AtomicU64 {
        self.arena.block(self.index, word)
    }

    fn get(&self, word: BlockWord) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    fn set(&self, word: BlockWord, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }
}

fn splice(from: BorrowedFd<'_>, to: BorrowedFd<'_>, n: u64) -> io::Result<u64> {
    loop {
        // SAFETY: a plain call on borrowed descriptors, without offsets.
        let moved = unsafe {
            libc::splice(
                from.as_raw_fd(),
                std::ptr::null_mut(),
                to.as_raw_fd(),
                std::ptr::null_mut(),
                n as usize,
                libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE,
            )
        };
        match counted(moved) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// The kernel touches the ring's pages here, and tells by an error if it cannot.
fn readv(from: BorrowedFd<'_>, pieces: &[libc::iovec; 2]) -> io::Result<u64> {
    // SAFETY: both pieces lie in a mapping that lives as long as the log; readers of the same bytes know that they may
    // change under them.
    counted(unsafe { libc::readv(from.as_raw_fd(), pieces.as_ptr(), 2) })
}

fn counted(n: isize) -> io::Result<u64> {
    u64::try_from(n).map_err(|_| io::Error::last_os_error())
}

fn queued(pipe: BorrowedFd<'_>) -> io::Result<u64> {
    let mut n: libc::c_int = 0;
    // SAFETY: FIONREAD fills one int.
    if unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &mut n) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(n as u64)
}

/// Throws `n` queued bytes of a scratch pipe away.
fn drain(pair: &ScratchPair, mut n: u64) -> io::Result<()> {
    let mut waste = [0u8; 4096];
    while n > 0 {
        let len = waste.len().min(n as usize);
        // SAFETY: the buffer is ours and at least `len` bytes long.
        match counted(unsafe { libc::read(pair.read.as_raw_fd(), waste.as_mut_ptr().cast(), len) })
        {
            Ok(0) => return Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
            Ok(m) => n -= m,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// A source with one byte in it, and whatever must stay open for that.
type Source = (OwnedFd, OwnedFd);

fn probe((source, _other): Source) -> io::Result<bool> {
    let (_read, write) = io::pipe()?;
    match splice(source.as_fd(), write.as_fd(), 1) {
        Ok(n) => Ok(n == 1),
        Err(e)
            if matches!(
                e.raw_os_error(),
                Some(libc::EINVAL | libc::ENOSYS | libc::EPERM)
            ) =>
        {
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

fn pipe_with_a_byte() -> io::Result<Source> {
    let (read, mut write) = io::pipe()?;
    io::Write::write_all(&mut write, b"x")?;
    Ok((read.into(), write.into()))
}

fn terminal_with_a_byte() -> io::Result<Source> {
    let (master, slave) = open_terminal()?;
    let mut slave = std::fs::File::from(slave);
    io::Write::write_all(&mut slave, b"x")?;
    Ok((master, slave.into()))
}

pub(super) fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: two ints to fill; name, attributes and size are not asked for.
    if unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both were just made and belong to nobody else.
    unsafe { Ok((owned(master), owned(slave))) }
}

/// # Safety
/// The descriptor is open and nobody else owns it.
unsafe fn owned(fd: libc::c_int) -> OwnedFd {
    // SAFETY: the caller's promise.
    unsafe { std::os::fd::FromRawFd::from_raw_fd(fd) }
}
