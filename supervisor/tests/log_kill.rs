//! `kill -9` at random moments, also inside the restore: no byte of any job may be lost or doubled.
//!
//! The test process plays the keeper: it holds the memfds, the scratch pipes and the jobs' reading ends. A forked child
//! plays the supervisor: it maps the same memory, restores, and pumps with two threads until it is killed. Every byte is
//! a function of its stream and offset, so the checker needs no second count. One job is a terminal, one spills.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ostler_supervisor::log::scratch::{self, Pool, ScratchPair, Step};
use ostler_supervisor::log::{Arena, Budget, Filter, Log, Shape, SpillPolicy};

const KILLS: u32 = 240;
/// Small enough that every child overruns it, tags included.
const SHAPE: Shape = Shape {
    ring: 64 * 1024,
    runs: 512,
};

/// The numbered lines: 16 bytes each, the offset in hexadecimal.
fn byte_at(stream: u64, offset: u64) -> u8 {
    let line = offset / 16;
    match offset % 16 {
        15 => b'\n',
        14 => b'A' + (stream as u8),
        n => b"0123456789abcdef"[(line >> (4 * (13 - n))) as usize & 15],
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// A job: its reading ends (stdout, and perhaps stderr).
struct Job {
    number: u64,
    ends: Vec<OwnedFd>,
    spills: bool,
}

struct House {
    rings: OwnedFd,
    headers: OwnedFd,
    pairs: Vec<(OwnedFd, OwnedFd)>,
    jobs: Vec<Job>,
    /// The writing ends, which a child of ours must not hold open.
    writing: Vec<RawFd>,
    folder: tempfile::TempDir,
}

impl House {
    fn arena(&self) -> Arc<Arena> {
        let dup = |fd: &OwnedFd| fd.try_clone().expect("descriptor");
        Arena::map_shaped(SHAPE, dup(&self.rings), dup(&self.headers)).expect("mapping")
    }

    fn policy(&self, job: &Job) -> SpillPolicy {
        match job.spills {
            false => SpillPolicy::Off,
            true => SpillPolicy::To {
                path: self
                    .folder
                    .path()
                    .join(format!("spills/{}.log", job.number)),
                cap: 1 << 40,
                budget: Budget::new(1 << 40, None),
            },
        }
    }

    fn restore(&self) -> io::Result<(Vec<Arc<Log>>, Pool)> {
        let arena = self.arena();
        let logs: Vec<_> = self
            .jobs
            .iter()
            .enumerate()
            .map(|(slot, job)| {
                Log::restore(Arc::clone(&arena), slot, job.number, None, self.policy(job))
            })
            .collect();
        let mut pairs = Vec::new();
        for (block, (read, write)) in self.pairs.iter().enumerate() {
            let pair = ScratchPair {
                read: read.try_clone()?,
                write: write.try_clone()?,
                block,
            };
            scratch::restore(&pair, &arena, |job| {
                logs.iter().find(|log| log.job() == job).cloned()
            })?;
            pairs.push(pair);
        }
        Ok((logs, Pool::new(pairs)))
    }

    /// The supervisor's life: restore, then pump until every source is closed or the axe falls.
    fn supervise(&self) -> io::Result<()> {
        let (logs, pool) = self.restore()?;
        let closed: Vec<Vec<AtomicBool>> = self
            .jobs
            .iter()
            .map(|job| job.ends.iter().map(|_| AtomicBool::new(false)).collect())
            .collect();
        std::thread::scope(|scope| {
            let threads = [0, 1].map(|_| scope.spawn(|| self.pump(&logs, &pool, &closed)));
            threads
                .into_iter()
                .try_for_each(|t| t.join().expect("a pump thread panicked"))
        })
    }

    fn pump(&self, logs: &[Arc<Log>], pool: &Pool, closed: &[Vec<AtomicBool>]) -> io::Result<()> {
        loop {
            let (mut open, mut moved) = (false, false);
            for ((job, log), closed) in self.jobs.iter().zip(logs).zip(closed) {
                for (stream, (end, closed)) in job.ends.iter().zip(closed).enumerate() {
                    if closed.load(Ordering::Acquire) {
                        continue;
                    }
                    match pool.step(end.as_fd(), log, stream as u8)? {
                        Step::Moved(_) | Step::Short(_) => moved = true,
                        Step::Closed => closed.store(true, Ordering::Release),
                        Step::Empty => {}
                        Step::WaitForSpill => moved = log.spill_pending().map(|_| true)?,
                    }
                    open = true;
                }
            }
            if !open {
                return Ok(());
            }
            if !moved {
                wait(
                    libc::POLLIN,
                    self.jobs.iter().flat_map(|job| &job.ends).map(AsFd::as_fd),
                    1,
                );
            }
        }
    }

    fn fork(&self) -> libc::pid_t {
        // SAFETY: the child uses memory, threads and system calls only, and leaves by `_exit`; glibc keeps its allocator
        // usable across fork, and nobody else in this process holds one of std's locks for long.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
        if pid == 0 {
            for fd in &self.writing {
                // SAFETY: the child's copies, which nothing in it uses; their owners live in the parent.
                unsafe { libc::close(*fd) };
            }
            let result =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.supervise()));
            let code = match result {
                Ok(Ok(())) => 0,
                Ok(Err(_)) => 3,
                Err(_) => 4,
            };
            // SAFETY: ends the child at once; nothing of the parent's is flushed twice.
            unsafe { libc::_exit(code) };
        }
        pid
    }
}

/// Waits for one of these. The limit is for what changes without an event: another thread, or the order to stop.
fn wait<'a>(
    events: libc::c_short,
    ends: impl Iterator<Item = BorrowedFd<'a>>,
    limit_ms: libc::c_int,
) {
    let mut polls: Vec<_> = ends
        .map(|fd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events,
            revents: 0,
        })
        .collect();
    // SAFETY: a valid array of that length.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, limit_ms) };
}

/// Writes numbered bytes in pieces of any size until told to stop, then closes. Returns how many.
fn write_on(mut to: File, stream: u64, stop: &AtomicBool) -> u64 {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (stream + 1));
    let mut at = 0;
    while !stop.load(Ordering::Relaxed) {
        let n = match random.below(4) {
            0 => 1 + random.below(20),
            1 => 1 + random.below(3000),
            _ => 1 + random.below(40_000),
        };
        let piece: Vec<u8> = (at..at + n).map(|o| byte_at(stream, o)).collect();
        match to.write(&piece) {
            Ok(n) => at += n as u64,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                wait(libc::POLLOUT, [to.as_fd()].into_iter(), 20)
            }
            Err(e) => panic!("the reading end is held open: {e}"),
        }
    }
    at
}

/// Tells the writers to stop when the test is over, however it ends.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn pipe() -> (OwnedFd, File) {
    let (read, write) = io::pipe().expect("pipe");
    let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
    unblock(&read);
    unblock(&write);
    (read, File::from(write))
}

fn terminal() -> (OwnedFd, File) {
    let (mut master, mut slave) = (-1, -1);
    let null = std::ptr::null_mut();
    // SAFETY: two ints to fill; nothing else is asked for.
    let made = unsafe { libc::openpty(&mut master, &mut slave, null, null.cast(), null.cast()) };
    assert_eq!(made, 0);
    // SAFETY: both were just made and belong to nobody else.
    let (master, slave) = unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
    let mut mode = std::mem::MaybeUninit::<libc::termios>::uninit();
    // SAFETY: the structure is filled by the first call and only then used.
    unsafe {
        assert_eq!(libc::tcgetattr(slave.as_raw_fd(), mode.as_mut_ptr()), 0);
        libc::cfmakeraw(mode.as_mut_ptr());
        assert_eq!(
            libc::tcsetattr(slave.as_raw_fd(), libc::TCSANOW, mode.as_ptr()),
            0
        );
    }
    unblock(&master);
    unblock(&slave);
    (master, File::from(slave))
}

fn unblock(fd: &OwnedFd) {
    // SAFETY: a plain call on an owned descriptor.
    let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0);
}

/// Checks all that the logs hold now: every byte by its stream and offset, every counter against the bytes.
struct Checker {
    /// Per job: the log's offset up to which was checked, and the bytes of each stream up to there.
    at: Vec<(u64, [Option<u64>; 2])>,
}

impl Checker {
    fn check(&mut self, house: &House, logs: &[Arc<Log>], first_stream: &[u64]) {
        for (index, log) in logs.iter().enumerate() {
            let (at, counts) = &mut self.at[index];
            while *at < log.end() {
                let page = log.read(*at, 1 << 16, Filter::All);
                assert!(page.next > *at, "job {index} stands still at {at}");
                assert!(
                    !house.jobs[index].spills || page.lost == 0,
                    "the spilling job lost {}",
                    page.lost
                );
                if page.lost > 0 && house.jobs[index].ends.len() == 1 {
                    counts[0] = counts[0].map(|n| n + page.lost);
                } else if page.lost > 0 {
                    *counts = [None; 2];
                }
                let mut bytes = page.bytes.as_slice();
                for (stream, n) in page.runs {
                    let (run, rest) = bytes.split_at(n as usize);
                    bytes = rest;
                    let count = &mut counts[usize::from(stream)];
                    check_run(index, first_stream[index] + u64::from(stream), run, count);
                }
                *at = page.next;
            }
        }
    }
}

/// After a loss of two interleaved streams the place in each is found again from a whole line.
fn check_run(job: usize, stream: u64, run: &[u8], count: &mut Option<u64>) {
    let start = count.or_else(|| {
        let line = run.iter().position(|b| *b == b'\n')?;
        let number = std::str::from_utf8(run.get(line + 1..line + 15)?).ok()?;
        Some(u64::from_str_radix(number, 16).ok()? * 16 - line as u64 - 1)
    });
    let Some(start) = start else { return };
    for (i, byte) in run.iter().enumerate() {
        let expected = byte_at(stream, start + i as u64);
        assert_eq!(
            *byte,
            expected,
            "job {job}, stream {stream}, byte {}",
            start + i as u64
        );
    }
    *count = Some(start + run.len() as u64);
}

fn reap(pid: libc::pid_t) -> libc::c_int {
    let mut status = 0;
    // SAFETY: our own child, one int to fill.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    status
}

fn house(folder: tempfile::TempDir, jobs: Vec<Job>, writing: Vec<RawFd>) -> House {
    let (rings, headers) = Arena::create_shaped(SHAPE, jobs.len()).expect("memfds");
    let pairs = (0..2)
        .map(|_| {
            let (read, write) = io::pipe().expect("pipe");
            (read.into(), write.into())
        })
        .collect();
    let house = House {
        rings,
        headers,
        pairs,
        jobs,
        writing,
        folder,
    };
    let arena = house.arena();
    for (slot, job) in house.jobs.iter().enumerate() {
        Log::new(Arc::clone(&arena), slot, job.number, house.policy(job));
    }
    house
}

/// Kills the child at a random moment, as often as asked; `between` looks at the memory while nobody runs.
fn kill_again_and_again(house: &House, mut between: impl FnMut(u32)) {
    let mut random = Random(0x1234_5678_9abc_def1);
    for kill in 0..KILLS {
        let pid = house.fork();
        // The moment itself is what is random here; there is no event to wait for.
        std::thread::park_timeout(Duration::from_micros(
            300 + random.below(if kill % 3 == 0 { 1200 } else { 19_700 }),
        ));
        // SAFETY: our own child, not reaped yet.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        let status = reap(pid);
        assert!(
            libc::WIFSIGNALED(status),
            "the child ended by itself: {status:#x}"
        );
        between(kill);
    }
}

#[test]
fn no_byte_is_lost_or_doubled_when_the_supervisor_is_killed_at_any_moment() {
    let folder = tempfile::tempdir().expect("temp folder");
    let (out_a, to_a) = pipe();
    let (out_b, to_b) = pipe();
    let (err_b, to_err_b) = pipe();
    let (out_c, to_c) = terminal();
    let (out_d, to_d) = pipe();
    let (err_d, to_err_d) = pipe();
    let job = |number, ends, spills| Job {
        number,
        ends,
        spills,
    };
    let jobs = vec![
        job(11, vec![out_a], false),
        job(12, vec![out_b, err_b], true),
        job(13, vec![out_c], false),
        job(14, vec![out_d, err_d], false),
    ];
    let first_stream = [0, 1, 3, 4];
    let writing = [&to_a, &to_b, &to_err_b, &to_c, &to_d, &to_err_d].map(AsRawFd::as_raw_fd);
    let house = house(folder, jobs, writing.to_vec());
    let stop = AtomicBool::new(false);
    let checker = Mutex::new(Checker {
        at: vec![(0, [Some(0); 2]); house.jobs.len()],
    });
    let ends = Mutex::new(vec![0; house.jobs.len()]);
    let interrupted = AtomicU64::new(0);

    let written: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = [to_a, to_b, to_err_b, to_c, to_d, to_err_d]
            .into_iter()
            .enumerate()
            .map(|(stream, to)| {
                let stop = &stop;
                scope.spawn(move || write_on(to, stream as u64, stop))
            })
            .collect();
        let stopping = StopAtEnd(&stop);
        kill_again_and_again(&house, |kill| {
            interrupted.fetch_add(u64::from(in_flight(&house)), Ordering::Relaxed);
            // Looking restores, which the next child would do; so look seldom and leave most restores to be killed.
            if kill % 8 == 7 {
                let (logs, _pool) = house.restore().expect("restore");
                let mut ends = ends.lock().expect("one thread");
                for (end, log) in ends.iter_mut().zip(&logs) {
                    assert!(log.end() >= *end, "an end went back");
                    *end = log.end();
                }
                checker
                    .lock()
                    .expect("one thread")
                    .check(&house, &logs, &first_stream);
            }
        });
        drop(stopping);
        let last = house.fork();
        let written = writers
            .into_iter()
            .map(|w| w.join().expect("writer"))
            .collect();
        assert_eq!(reap(last), 0, "the last supervisor pumps to the end");
        written
    });

    let (logs, _pool) = house.restore().expect("restore");
    checker
        .lock()
        .expect("one thread")
        .check(&house, &logs, &first_stream);
    let totals = [
        written[0],
        written[1] + written[2],
        written[3],
        written[4] + written[5],
    ];
    assert_eq!(logs.iter().map(|log| log.end()).collect::<Vec<_>>(), totals);
    let counts = checker.lock().expect("one thread").at[1].1;
    assert_eq!(
        counts,
        [Some(written[1]), Some(written[2])],
        "each stream of the spilling job is complete"
    );
    check_file(&house.folder.path().join("spills/12.log"), &logs[1]);
    assert!(
        interrupted.load(Ordering::Relaxed) > 0,
        "no kill hit a step: the test proves nothing"
    );
}

/// Whether the last kill left bytes in a scratch pipe or a record of them.
fn in_flight(house: &House) -> bool {
    house.pairs.iter().any(|(read, _)| {
        let mut n: libc::c_int = 0;
        // SAFETY: FIONREAD fills one int.
        let asked = unsafe { libc::ioctl(read.as_raw_fd(), libc::FIONREAD, &mut n) };
        assert_eq!(asked, 0);
        n > 0
    })
}

/// The spill is the log from its first byte, as far as it goes.
fn check_file(path: &Path, log: &Log) {
    while log.wants_spill() {
        log.spill_pending().expect("the disk takes it");
    }
    let file = std::fs::read(path).expect("it overflowed");
    assert!(file.len() as u64 + SHAPE.ring >= log.end());
    let mut at = 0;
    for chunk in file.chunks(1 << 16) {
        assert_eq!(log.read(at, chunk.len(), Filter::All).bytes, chunk);
        at += chunk.len() as u64;
    }
}
