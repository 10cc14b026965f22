//! The kernel's calls that the standard library does not offer, each checked once.
//!
//! Used by everything in the keeper; owns nothing and decides nothing. Every function
//! here is one system call (or one retry of it after a signal).

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Descriptors that live long stand at this number and above, so that a child of
/// the keeper can drop all of them with one `close_range`.
pub(crate) const HIGH: libc::c_int = 64;

/// What `waitid` told of a child.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) pid: i32,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) core: bool,
}

/// Whom `waitid` is asked about.
#[derive(Clone, Copy)]
pub(crate) enum Whom<'a> {
    Any,
    Pid(i32),
    Pidfd(BorrowedFd<'a>),
}

/// The result of a raw call, or `errno`.
pub(crate) fn check(answer: libc::c_long) -> io::Result<libc::c_long> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// Takes over a descriptor that a call has just made.
fn own(answer: libc::c_long) -> io::Result<OwnedFd> {
    let number = check(answer)? as RawFd;
    // SAFETY: the kernel has just made this descriptor for us; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A memory file that can be sealed.
pub(crate) fn memfd(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a valid C string for the duration of the call.
    own(unsafe {
        libc::syscall(
            libc::SYS_memfd_create,
            name.as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        )
    })
}

/// Adds seals to a memory file.
pub(crate) fn seal(file: BorrowedFd<'_>, seals: libc::c_int) -> io::Result<()> {
    // SAFETY: plain call on a descriptor that is open while it is borrowed.
    let answer = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
    check(answer.into()).map(drop)
}

/// A pipe, reading end first.
pub(crate) fn pipe(flags: libc::c_int) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: `ends` has room for the two numbers.
    check(unsafe { libc::pipe2(ends.as_mut_ptr(), flags | libc::O_CLOEXEC) }.into())?;
    // SAFETY: both have just been made for us.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// A connected pair of packet sockets.
pub(crate) fn packet_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: `ends` has room for the two numbers.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }.into())?;
    // SAFETY: both have just been made for us.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// The same open file under a number of at least [`HIGH`]; the old number is closed.
pub(crate) fn lift(file: OwnedFd) -> io::Result<OwnedFd> {
    if file.as_raw_fd() >= HIGH {
        return Ok(file);
    }
    // SAFETY: plain call on a descriptor that we own.
    own(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) }.into())
}

/// As [`lift`], but with no number left up there the file stays where it is.
pub(crate) fn lift_or_keep(file: OwnedFd) -> OwnedFd {
    // SAFETY: plain call on a descriptor that we own.
    let made = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD_CLOEXEC, HIGH) };
    own(made.into()).unwrap_or(file)
}

/// Makes reads and writes through this open file return at once.
pub(crate) fn unblock(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain calls on a descriptor that is open while it is borrowed.
    let flags = check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) }.into())?;
    let flags = flags as libc::c_int | libc::O_NONBLOCK;
    // SAFETY: as above.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }.into()).map(drop)
}

/// Sends a signal to exactly the process that this descriptor stands for.
pub(crate) fn signal(pidfd: BorrowedFd<'_>, number: libc::c_int) -> io::Result<()> {
    // SAFETY: no signal information is passed; the descriptor is open while borrowed.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            pidfd.as_raw_fd(),
            number,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        )
    };
    check(answer).map(drop)
}

/// Asks for an ended child without ever blocking. `leave` keeps it a zombie.
pub(crate) fn wait(whom: Whom<'_>, leave: bool) -> io::Result<Option<Seen>> {
    wait_with_usage(whom, leave).map(|seen| seen.map(|(seen, _)| seen))
}

/// As [`wait`], with the resources that the child and its waited-for children used.
pub(crate) fn wait_with_usage(
    whom: Whom<'_>,
    leave: bool,
) -> io::Result<Option<(Seen, libc::rusage)>> {
    let (kind, id) = match whom {
        Whom::Any => (libc::P_ALL, 0),
        Whom::Pid(pid) => (libc::P_PID, pid),
        Whom::Pidfd(pidfd) => (libc::P_PIDFD, pidfd.as_raw_fd()),
    };
    let options = libc::WEXITED | libc::WNOHANG | if leave { libc::WNOWAIT } else { 0 };
    // SAFETY: both are plain data, for which zeroes are a valid value.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) =
        unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: `info` and `usage` outlive the call and have the layout it expects.
    check(unsafe {
        libc::syscall(
            libc::SYS_waitid,
            kind,
            id,
            &raw mut info,
            options,
            &raw mut usage,
        )
    })?;
    Ok(seen(&info).map(|seen| (seen, usage)))
}

/// Reads the answer of `waitid`; pid 0 means that nobody had ended.
fn seen(info: &libc::siginfo_t) -> Option<Seen> {
    // SAFETY: after `waitid` these are the members that are filled in.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let exited = info.si_code == libc::CLD_EXITED;
    (pid != 0).then_some(Seen {
        pid,
        code: exited.then_some(status),
        signal: (!exited).then_some(status),
        core: info.si_code == libc::CLD_DUMPED,
    })
}

/// Waits until one of the files is readable; says which of them are.
pub(crate) fn readable<const N: usize>(
    files: [BorrowedFd<'_>; N],
    limit: Duration,
) -> io::Result<[bool; N]> {
    let mut asked = files.map(|file| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    });
    let wait = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: `asked` has N entries and outlives the call.
    let answer = unsafe { libc::poll(asked.as_mut_ptr(), N as libc::nfds_t, wait) };
    check(answer.into())?;
    Ok(asked.map(|file| file.revents != 0))
}

/// Reads a resource limit of a process (0 = ourselves).
pub(crate) fn limit_of(pid: i32, resource: u32) -> io::Result<libc::rlimit64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: nothing is set, `limit` has room for the answer.
    check(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid,
            resource,
            std::ptr::null::<libc::rlimit64>(),
            &raw mut limit,
        )
    })?;
    Ok(limit)
}

/// Sets a resource limit of the calling process. Usable between fork and exec.
pub(crate) fn set_limit(resource: u32, limit: libc::rlimit64) -> io::Result<()> {
    // SAFETY: `limit` is valid for the call, no old value is asked for.
    check(unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            resource,
            &raw const limit,
            std::ptr::null::<libc::rlimit64>(),
        )
    })
    .map(drop)
}

/// Closes all descriptors from `first` on.
pub(crate) fn close_from(first: u32, flags: u32) -> io::Result<()> {
    // SAFETY: callers own no descriptor in this range that they use afterwards.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, flags) }).map(drop)
}

/// Blocks every signal but those that a fault raises, and returns a file to read them from.
pub(crate) fn signals() -> io::Result<OwnedFd> {
    // SAFETY: `set` is filled by `sigfillset` before anybody reads it.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut set);
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE] {
            libc::sigdelset(&raw mut set, fault);
        }
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()).into())?;
        own(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK).into())
    }
}

/// Gives every signal, the real-time ones too, its default action and unblocks all.
///
/// The C library refuses to touch two real-time signals of its own, and a caller may
/// have left them ignored; hence the raw call.
pub(crate) fn default_signals() {
    #[repr(C)]
    struct Action {
        handler: usize,
        flags: usize,
        restorer: usize,
        mask: u64,
    }
    let plain = Action {
        handler: libc::SIG_DFL,
        flags: 0,
        restorer: 0,
        mask: 0,
    };
    for number in 1..=64 {
        // SAFETY: `plain` has the kernel's layout. KILL and STOP answer EINVAL, rightly.
        unsafe {
            libc::syscall(
                libc::SYS_rt_sigaction,
                number,
                &raw const plain,
                std::ptr::null_mut::<Action>(),
                8,
            )
        };
    }
    unmask();
}

/// Unblocks every signal. Usable between fork and exec.
pub(crate) fn unmask() {
    let none: u64 = 0;
    // SAFETY: the kernel's signal set is eight bytes.
    unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            std::ptr::null_mut::<u64>(),
            8,
        )
    };
}

/// Forks without the C library's fork handlers. In the child the answer is `None`.
///
/// # Safety
/// The child makes system calls only, and ends in `execve` or `_exit`: other threads of the caller may hold any lock.
pub(crate) unsafe fn clone(flags: libc::c_int) -> io::Result<Option<(i32, OwnedFd)>> {
    let mut pidfd: RawFd = -1;
    let flags = flags | libc::CLONE_PIDFD | libc::SIGCHLD;
    // SAFETY: no new stack, no thread storage; the third argument takes the pidfd on
    // every architecture.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has put a descriptor for us there.
    Ok(Some((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// As [`clone`], with the child born in a group: it never stood in another one.
///
/// # Safety
/// As of [`clone`].
pub(crate) unsafe fn clone_into(
    flags: libc::c_int,
    group: BorrowedFd<'_>,
) -> io::Result<Option<(i32, OwnedFd)>> {
    /// `CLONE_INTO_CGROUP`; the crate `libc` has it as a number too small for it.
    const INTO_GROUP: u64 = 1 << 33;
    /// The kernel's `struct clone_args`, second version.
    #[repr(C)]
    #[derive(Default)]
    struct Arguments {
        flags: u64,
        pidfd: u64,
        child_tid: u64,
        parent_tid: u64,
        exit_signal: u64,
        stack: u64,
        stack_size: u64,
        tls: u64,
        set_tid: u64,
        set_tid_size: u64,
        group: u64,
    }
    let mut pidfd: RawFd = -1;
    let arguments = Arguments {
        flags: flags as u64 | libc::CLONE_PIDFD as u64 | INTO_GROUP,
        pidfd: (&raw mut pidfd) as u64,
        exit_signal: libc::SIGCHLD as u64,
        group: group.as_raw_fd() as u64,
        ..Arguments::default()
    };
    let size = size_of::<Arguments>();
    // SAFETY: the arguments outlive the call; no new stack, no thread storage.
    let pid = check(unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size) })?;
    if pid == 0 {
        return Ok(None);
    }
    // SAFETY: the kernel has put a descriptor for us there.
    Ok(Some((pid as i32, unsafe { OwnedFd::from_raw_fd(pidfd) })))
}

/// An epoll set whose entries carry a 64-bit token.
pub(crate) struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: plain call.
        let made = own(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) }.into())?;
        lift(made).map(Self)
    }

    fn control(&self, what: i32, file: BorrowedFd<'_>, events: i32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: events as u32,
            u64: token,
        };
        let (set, file) = (self.0.as_raw_fd(), file.as_raw_fd());
        // SAFETY: `event` outlives the call, the descriptors are open.
        check(unsafe { libc::epoll_ctl(set, what, file, &raw mut event) }.into()).map(drop)
    }

    /// Watches a file for `events`.
    pub(crate) fn add(&self, file: BorrowedFd<'_>, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, file, events, token)
    }

    /// Watches a file for other events than before.
    pub(crate) fn change(&self, file: BorrowedFd<'_>, events: i32, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, file, events, token)
    }

    /// Stops watching. Must come before the close: a copy of the open file held by
    /// the supervisor would keep the entry alive.
    pub(crate) fn remove(&self, file: BorrowedFd<'_>) {
        // An entry that is gone already is what we want; there is no other error here.
        let _ = self.control(libc::EPOLL_CTL_DEL, file, 0, 0);
    }

    /// Waits for events, for ever without a limit; returns `(token, events)` pairs.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<Vec<(u64, i32)>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        // Rounded up, or a wait for 0.4 ms would spin.
        let wait = limit.map_or(-1, |limit| limit.as_millis().min(1 << 30) as i32 + 1);
        // SAFETY: room for 64 events, which outlives the call.
        let answer = unsafe { libc::epoll_wait(self.0.as_raw_fd(), events.as_mut_ptr(), 64, wait) };
        let count = check(answer.into())? as usize;
        Ok(events[..count]
            .iter()
            .map(|event| (event.u64, event.events as i32))
            .collect())
    }
}
