//! Makes one job's process: pipes or terminal, the raw clone, and what the child does.
//!
//! Called by the loop, one start at a time. Owns nothing afterwards: the made
//! descriptors go to the table. It never waits for an exec (a child may hang in `chdir`
//! on a dead mount); the one wait is for the child's own descriptor table, at most
//! 100 ms. The child makes system calls only, in an order that matters.

use super::cookie;
use super::kernel::{self, check};
use super::wire::{ForkRequest, Limit, Stdin, Step};
use crate::tree::cgroup::{Cgroups, Removed};
use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// The longest wait for the first byte of a child that could run; it needs 80 us.
const UNSHARE_WAIT: Duration = Duration::from_millis(100);

/// How often that wait is repeated for a child that only waits for a processor. On a
/// machine with eleven runnable processes a core, 100 ms alone failed sound starts.
const UNSHARE_PATIENCE: u32 = 20;

/// Where a program that executes others finds the status pipe, if its request says so: as long as it is open there, the
/// start is under way.
pub(crate) const BEGUN: RawFd = 3;

/// Pauses between tries to execute a file that somebody still writes; after the last, which is none, it is an error.
pub(crate) const BUSY_PAUSES: [Duration; 9] = [
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(4),
    Duration::from_millis(8),
    Duration::from_millis(16),
    Duration::from_millis(32),
    Duration::from_millis(50),
    Duration::from_millis(50),
    Duration::ZERO,
];

/// Most programs of a request, so that all records fit a pipe of one page.
const MOST_PROGRAMS: usize = 256;

/// What all jobs of this house get unless their request says otherwise.
pub(super) struct Defaults {
    pub(super) umask: u32,
    pub(super) limits: Vec<Limit>,
    pub(super) instance: u32,
    pub(super) rung: cookie::Rung,
    /// The text for `/proc/self/oom_score_adj`.
    pub(super) oom: Vec<u8>,
    /// Where jobs have groups of their own, or why they have none.
    pub(super) groups: Result<Cgroups, String>,
}

impl Defaults {
    /// Makes the group of a job. Without it the job stands a rung lower, which is no reason not to run.
    fn make_leaf(&self, job: u64) -> Option<OwnedFd> {
        self.groups.as_ref().ok()?.make_leaf(job).ok()
    }

    /// Removes the group of a job. True: somebody lives in it.
    pub(super) fn remove_leaf(&self, job: u64) -> bool {
        let groups = self.groups.as_ref();
        groups.is_ok_and(|groups| groups.leaf(job).remove() == Removed::Populated)
    }
}

/// A start that came to nothing; nothing is left of it.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) step: Step,
    pub(super) errno: i32,
}

/// A process that is on its way to its exec.
pub(super) struct Born {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    /// Records of the child, then end of file at the exec.
    pub(super) status: OwnedFd,
    pub(super) out: Option<OwnedFd>,
    pub(super) err: Option<OwnedFd>,
    pub(super) input: Option<OwnedFd>,
    pub(super) clamped: bool,
    /// It is in a group of its own.
    pub(super) grouped: bool,
}

fn refuse(step: Step) -> impl Fn(io::Error) -> Refusal {
    move |error| Refusal {
        step,
        errno: error.raw_os_error().unwrap_or(libc::EINVAL),
    }
}

/// Starts a job's process. `passed` is the input file of a request that brings one.
pub(super) fn fork(
    request: &ForkRequest,
    job: u64,
    passed: Option<OwnedFd>,
    defaults: &Defaults,
) -> Result<Born, Refusal> {
    let born = try_fork(request, job, passed, defaults);
    if !born.as_ref().is_ok_and(|born| born.grouped) {
        defaults.remove_leaf(job);
    }
    born
}

fn try_fork(
    request: &ForkRequest,
    job: u64,
    passed: Option<OwnedFd>,
    defaults: &Defaults,
) -> Result<Born, Refusal> {
    let plan = Plan::new(request, job, defaults).ok_or(Refusal {
        step: Step::Request,
        errno: libc::EINVAL,
    })?;
    let (ours, theirs) = ends(request, passed).map_err(refuse(Step::Pipes))?;
    let (status, child_status) = status_pipe().map_err(refuse(Step::Pipes))?;
    let leaf = defaults.make_leaf(job);
    let mut child = Child {
        plan: &plan,
        enter: None,
        input: theirs.input.as_ref().map(AsRawFd::as_raw_fd),
        out: theirs.out.as_raw_fd(),
        err: theirs.err.as_ref().map(AsRawFd::as_raw_fd),
        terminal: request.pty.is_some(),
        tells_begun: request.tells_begun,
        status: child_status.as_raw_fd(),
    };
    let Some((pid, pidfd)) = child.born(leaf.as_ref()).map_err(refuse(Step::Clone))? else {
        child.run()
    };
    let Some(said) = unshared(pid, &status, &pidfd) else {
        bury(&pidfd);
        return Err(Refusal {
            step: Step::Unshare,
            errno: libc::ETIMEDOUT,
        });
    };
    Ok(Born {
        pid,
        pidfd: kernel::lift_or_keep(pidfd),
        status,
        out: ours.out,
        err: ours.err,
        input: ours.input,
        clamped: plan.clamped,
        grouped: leaf.is_some() && said != OUTSIDE,
    })
}

/// What the child says when its descriptors are its own: whether it is where it was to be born.
const INSIDE: u8 = b'u';
const OUTSIDE: u8 = b'o';

/// Waits for the child's byte. The keeper holds the writing end, too, until the tables
/// are apart, so a child that dies before its byte shows on the pidfd alone.
fn unshared(pid: i32, status: &OwnedFd, pidfd: &OwnedFd) -> Option<u8> {
    for _ in 0..UNSHARE_PATIENCE {
        match kernel::readable([status.as_fd(), pidfd.as_fd()], UNSHARE_WAIT) {
            Ok([true, _]) => return read_byte(status),
            Ok([false, false]) if runnable(pid) => {}
            _ => return None,
        }
    }
    None
}

fn read_byte(status: &OwnedFd) -> Option<u8> {
    let mut byte = 0u8;
    // SAFETY: room for one byte. The pipe does not block.
    let got = unsafe { libc::read(status.as_raw_fd(), (&raw mut byte).cast(), 1) };
    (got == 1).then_some(byte)
}

/// Whether a process waits for nothing but a processor. A stopped one could hold us for
/// ever.
fn runnable(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|text| {
        text.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('R'))
    })
}

/// Ends a child that may still share our descriptor table.
fn bury(pidfd: &OwnedFd) {
    // It may have ended by itself; either way it is waited for.
    let _ = kernel::signal(pidfd.as_fd(), libc::SIGKILL);
    let _ = kernel::readable([pidfd.as_fd()], Duration::from_secs(1));
    // One that is stuck in the kernel is reaped as a stranger when it ends.
    let _ = kernel::wait(kernel::Whom::Pidfd(pidfd.as_fd()), false);
}

/// The keeper's ends, all at [`kernel::HIGH`] or above.
struct Ours {
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    input: Option<OwnedFd>,
}

/// The child's ends; closed in the keeper as soon as the tables are apart.
struct Theirs {
    input: Option<OwnedFd>,
    out: OwnedFd,
    err: Option<OwnedFd>,
}

fn status_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reading, writing) = kernel::pipe(0)?;
    kernel::unblock(reading.as_fd())?;
    Ok((kernel::lift(reading)?, writing))
}

/// A pipe out of the child. Only our end does not block: many programs take EAGAIN on
/// their standard output for an error.
fn out_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (reading, writing) = kernel::pipe(0)?;
    kernel::unblock(reading.as_fd())?;
    Ok((kernel::lift(reading)?, writing))
}

fn ends(request: &ForkRequest, passed: Option<OwnedFd>) -> io::Result<(Ours, Theirs)> {
    if let Some((rows, columns)) = request.pty {
        return terminal(rows, columns);
    }
    let (our_input, input) = match request.stdin {
        Stdin::Null => (None, None),
        Stdin::Passed => (None, Some(passed.ok_or(io::ErrorKind::InvalidInput)?)),
        Stdin::Pipe => {
            let (reading, writing) = kernel::pipe(0)?;
            kernel::unblock(writing.as_fd())?;
            (Some(kernel::lift(writing)?), Some(reading))
        }
    };
    let (our_out, out) = out_pipe()?;
    let (our_err, err) = if request.merge {
        (None, None)
    } else {
        let (ours, theirs) = out_pipe()?;
        (Some(ours), Some(theirs))
    };
    let ours = Ours {
        out: Some(our_out),
        err: our_err,
        input: our_input,
    };
    Ok((ours, Theirs { input, out, err }))
}

/// A terminal: the master is ours, the other side is all three of the child's.
fn terminal(rows: u16, columns: u16) -> io::Result<(Ours, Theirs)> {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let unlock: libc::c_int = 0;
    // SAFETY: every pointer is valid for its call; both descriptors are made for us.
    unsafe {
        let path = c"/dev/ptmx".as_ptr();
        let master = check(libc::open(path, flags | libc::O_NONBLOCK).into())? as RawFd;
        let master = OwnedFd::from_raw_fd(master);
        check(libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlock).into())?;
        let slave = check(libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, flags).into())?;
        let slave = OwnedFd::from_raw_fd(slave as RawFd);
        check(libc::ioctl(slave.as_raw_fd(), libc::TIOCSWINSZ, &raw const size).into())?;
        let mut modes: libc::termios = std::mem::zeroed();
        check(libc::tcgetattr(slave.as_raw_fd(), &raw mut modes).into())?;
        // Otherwise erasing a character of two bytes leaves one of them in the line.
        modes.c_iflag |= libc::IUTF8;
        let now = libc::TCSANOW;
        check(libc::tcsetattr(slave.as_raw_fd(), now, &raw const modes).into())?;
        let ours = Ours {
            out: Some(kernel::lift(master)?),
            err: None,
            input: None,
        };
        let theirs = Theirs {
            input: None,
            out: slave,
            err: None,
        };
        Ok((ours, theirs))
    }
}

/// A list of strings as `execve` wants it.
struct Strings {
    pointers: Vec<*const c_char>,
    /// What the pointers point to; a moved `CString` keeps its bytes in place.
    _owned: Vec<CString>,
}

impl Strings {
    fn new(list: &[Vec<u8>]) -> Option<Self> {
        let owned = c_strings(list)?;
        let mut pointers: Vec<_> = owned.iter().map(|item| item.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Some(Self {
            pointers,
            _owned: owned,
        })
    }
}

/// `None` when one of them has a zero byte inside.
fn c_strings(list: &[Vec<u8>]) -> Option<Vec<CString>> {
    let whole = list.iter().map(|item| CString::new(item.as_slice()));
    whole.collect::<Result<_, _>>().ok()
}

/// Everything that the child needs, made before the fork.
struct Plan<'a> {
    programs: Vec<CString>,
    argv: Strings,
    env: Strings,
    cwd: CString,
    umask: u32,
    limits: Vec<(u32, libc::rlimit64)>,
    clamped: bool,
    cookie: Option<libc::rlimit64>,
    oom: &'a [u8],
}

impl<'a> Plan<'a> {
    fn new(request: &ForkRequest, job: u64, defaults: &'a Defaults) -> Option<Self> {
        let programs = c_strings(&request.programs)?;
        let sane = (1..=MOST_PROGRAMS).contains(&programs.len()) && !request.argv.is_empty();
        if !sane || job >= cookie::OWN {
            return None;
        }
        let (limits, clamped) = limits(request, &defaults.limits);
        let cookie = request
            .cookie
            .then(|| cookie::limit(defaults.rung, defaults.instance, job))
            .flatten();
        Some(Self {
            programs,
            argv: Strings::new(&request.argv)?,
            env: Strings::new(&request.env)?,
            cwd: CString::new(request.cwd.as_slice()).ok()?,
            umask: request.umask.unwrap_or(defaults.umask) & 0o777,
            limits,
            clamped,
            cookie,
            oom: &defaults.oom,
        })
    }
}

/// The limits to set: those the keeper raised for itself go back, then those asked for,
/// cut down to what is allowed. The cookie's own limit cannot be asked for.
fn limits(request: &ForkRequest, remembered: &[Limit]) -> (Vec<(u32, libc::rlimit64)>, bool) {
    let mut clamped = false;
    let mut set = Vec::new();
    let asked = |limit: &&Limit| request.limits.iter().any(|l| l.resource == limit.resource);
    let back = remembered.iter().filter(|limit| !asked(limit));
    for limit in back.chain(&request.limits) {
        let ours = kernel::limit_of(0, limit.resource).map(|ours| ours.rlim_max);
        let Some(ceiling) = ours.ok().filter(|_| limit.resource != libc::RLIMIT_RTTIME) else {
            clamped = true;
            continue;
        };
        let hard = limit.hard.min(ceiling);
        let soft = limit.soft.min(hard);
        clamped |= (soft, hard) != (limit.soft, limit.hard);
        let limit64 = libc::rlimit64 {
            rlim_cur: soft,
            rlim_max: hard,
        };
        set.push((limit.resource, limit64));
    }
    (set, clamped)
}

/// The child between clone and exec. It shares nothing with the keeper but, at first,
/// the descriptor table, so until that is its own it must not open or close anything.
struct Child<'a> {
    plan: &'a Plan<'a>,
    /// The group to enter, where the kernel does not let a child be born in one.
    enter: Option<RawFd>,
    input: Option<RawFd>,
    out: RawFd,
    err: Option<RawFd>,
    terminal: bool,
    /// The program says itself when all is executed.
    tells_begun: bool,
    status: RawFd,
}

impl Child<'_> {
    /// Makes the process, in its group at once where that is possible. In the child the answer is `None`.
    fn born(&mut self, leaf: Option<&OwnedFd>) -> io::Result<Option<(i32, OwnedFd)>> {
        if let Some(leaf) = leaf {
            // SAFETY: the keeper has one thread, and the child goes on with `Child::run`, which never returns.
            if let Ok(made) = unsafe { kernel::clone_into(libc::CLONE_FILES, leaf.as_fd()) } {
                return Ok(made);
            }
            // Refused by a filter of system calls, say. What is lacking to make a process shows in the next call.
            self.enter = Some(leaf.as_raw_fd());
        }
        // SAFETY: as above.
        unsafe { kernel::clone(libc::CLONE_FILES) }
    }

    fn run(&self) -> ! {
        let unshare = libc::CLOSE_RANGE_UNSHARE;
        if kernel::close_from(kernel::HIGH as u32, unshare).is_err() {
            leave();
        }
        self.write(&[if self.entered() { INSIDE } else { OUTSIDE }]);
        // SAFETY: plain call. It fails for a session leader, which we then are already.
        unsafe { libc::setsid() };
        if self.terminal {
            // SAFETY: plain call on a descriptor that is open.
            let taken = unsafe { libc::ioctl(self.out, libc::TIOCSCTTY, 0) };
            self.must(Step::Terminal, taken.into());
        }
        self.stdio();
        // All actions are the default ones: the keeper set them so and never changes one.
        kernel::unmask();
        self.raise_oom();
        self.limits();
        // SAFETY: plain call.
        unsafe { libc::umask(self.plan.umask) };
        // SAFETY: a valid C string.
        let entered = unsafe { libc::chdir(self.plan.cwd.as_ptr()) };
        self.must(Step::Chdir, entered.into());
        if self.tells_begun {
            self.hand_status_on();
        }
        self.exec()
    }

    /// Lets the program have the status pipe, too. Everything above 2 goes at the exec, so that nothing of use stands there.
    fn hand_status_on(&self) {
        // SAFETY: plain calls on descriptors that are the child's alone.
        let placed = unsafe {
            if self.status == BEGUN {
                libc::fcntl(BEGUN, libc::F_SETFD, 0)
            } else {
                libc::dup2(self.status, BEGUN)
            }
        };
        self.must(Step::Stdio, placed.into());
    }

    /// Enters the group if it is still to be entered. The descriptors are our own by now.
    fn entered(&self) -> bool {
        let Some(leaf) = self.enter else {
            return true;
        };
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        // SAFETY: a valid C string and readable bytes; the descriptor is ours alone.
        unsafe {
            let list = libc::openat(leaf, c"cgroup.procs".as_ptr(), flags);
            if list < 0 {
                return false;
            }
            let entered = libc::write(list, c"0".as_ptr().cast(), 1) == 1;
            libc::close(list);
            entered
        }
    }

    fn write(&self, bytes: &[u8]) {
        // SAFETY: readable bytes. Nobody can be told that this failed.
        unsafe { libc::write(self.status, bytes.as_ptr().cast(), bytes.len()) };
    }

    fn record(&self, step: Step, value: u32) {
        let mut record = [0; 8];
        record[..4].copy_from_slice(&(step as u32).to_ne_bytes());
        record[4..].copy_from_slice(&value.to_ne_bytes());
        self.write(&record);
    }

    fn must(&self, step: Step, answer: libc::c_long) {
        if let Err(error) = check(answer) {
            self.fail(step, error.raw_os_error().unwrap_or(0));
        }
    }

    fn fail(&self, step: Step, errno: i32) -> ! {
        self.record(step, errno as u32);
        leave()
    }

    /// Puts 0, 1 and 2 in place. All sources are above 2.
    fn stdio(&self) {
        let input = self.input.unwrap_or_else(|| {
            if self.terminal {
                return self.out;
            }
            // Opened anew: the open file of the keeper's own would be shared by all jobs.
            // SAFETY: a valid C string.
            unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) }
        });
        let sources = [input, self.out, self.err.unwrap_or(self.out)];
        for (target, source) in sources.into_iter().enumerate() {
            // SAFETY: plain call; nothing of ours stands at 0 to 2.
            let placed = unsafe { libc::dup2(source, target as RawFd) };
            self.must(Step::Stdio, placed.into());
        }
    }

    /// Memory pressure must take a job before the keeper. Failing is harmless.
    fn raise_oom(&self) {
        let path = c"/proc/self/oom_score_adj".as_ptr();
        // SAFETY: valid C string and readable bytes; the descriptor is ours alone.
        unsafe {
            let file = libc::open(path, libc::O_WRONLY | libc::O_CLOEXEC);
            if file >= 0 {
                libc::write(file, self.plan.oom.as_ptr().cast(), self.plan.oom.len());
                libc::close(file);
            }
        }
    }

    fn limits(&self) {
        for (resource, limit) in &self.plan.limits {
            if let Err(error) = kernel::set_limit(*resource, *limit) {
                self.fail(Step::Limits, error.raw_os_error().unwrap_or(0));
            }
        }
        if let Some(cookie) = self.plan.cookie {
            // Without it the job stands one rung lower; that is no reason not to run.
            let _ = cookie::wear(cookie);
        }
    }

    /// Tries each program as a shell looks along its path: a missing one is passed over,
    /// one that may not be executed is remembered, any other error is the answer.
    fn exec(&self) -> ! {
        let mut denied = None;
        let mut last = (0, libc::ENOENT);
        for (index, program) in self.plan.programs.iter().enumerate() {
            let index = index as u32;
            // When the keeper is gone, nobody reads this and the broken pipe ends the child: whoever had no cookie yet
            // when everything else was swept runs nothing.
            self.record(Step::Try, index);
            last = (index, self.try_program(program));
            match last.1 {
                libc::ENOENT | libc::ENOTDIR => {}
                libc::EACCES => denied = denied.or(Some(last)),
                errno => self.fail(Step::Exec, errno),
            }
        }
        let (index, errno) = denied.unwrap_or(last);
        self.record(Step::Try, index);
        self.fail(Step::Exec, errno)
    }

    /// Executes one program; returns the errno. A file that somebody still writes (often
    /// an unrelated fork that holds the compiler's descriptor for a moment) is tried again.
    fn try_program(&self, program: &CStr) -> i32 {
        let plan = self.plan;
        for pause in BUSY_PAUSES {
            // SAFETY: valid C strings and null-terminated lists that outlive the call.
            unsafe {
                libc::execve(
                    program.as_ptr(),
                    plan.argv.pointers.as_ptr(),
                    plan.env.pointers.as_ptr(),
                )
            };
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(0);
            if errno != libc::ETXTBSY || pause.is_zero() {
                return errno;
            }
            let pause = libc::timespec {
                tv_sec: 0,
                tv_nsec: pause.subsec_nanos().into(),
            };
            // SAFETY: `pause` outlives the call.
            unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
        }
        libc::ETXTBSY
    }
}

/// Ends the child without running anything of the keeper's.
fn leave() -> ! {
    // SAFETY: never returns.
    unsafe { libc::_exit(127) }
}
