//! One process held by a descriptor, recognised after the descriptor was opened.
//!
//! Lives for the length of one look or one signal. It never signals by number.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use super::super::Proof;
use super::Wake;

/// A living process that cannot become another one while this is held.
pub(in super::super) struct Process {
    fd: OwnedFd,
    pid: u32,
    proof: Proof,
}

/// What became of opening a process.
pub(in super::super) enum Opened {
    /// It lives and is who it should be.
    Live(Process),
    /// It is gone or a zombie without living threads.
    Dead,
    /// The number belongs to somebody else, or the process is no longer marked.
    Stranger,
}

/// How a wait for a death ended.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Waited {
    /// The process is dead.
    Dead,
    /// The time is over.
    TimeOver,
    /// Somebody rang.
    Woken,
}

impl Process {
    /// Opens first, recognises second, looks for life last. If it still lives after it was recognised by
    /// number, the number was its own all the time.
    ///
    /// # Errors
    /// Anything but "no such process": no descriptor left, or a sandbox forbids the call.
    pub(in super::super) fn open(
        pid: u32,
        proof: Proof,
        recognise: impl FnOnce() -> bool,
    ) -> io::Result<Opened> {
        let Some(fd) = open_pidfd(pid)? else {
            return Ok(Opened::Dead);
        };
        let recognised = recognise();
        if wait(&[fd.as_raw_fd()], Duration::ZERO)?[0] {
            return Ok(Opened::Dead);
        }
        if !recognised {
            return Ok(Opened::Stranger);
        }
        Ok(Opened::Live(Self { fd, pid, proof }))
    }

    pub(in super::super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(in super::super) fn proof(&self) -> Proof {
        self.proof
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// `ESRCH` when it has just died, `EPERM` when it became somebody else's by a set-uid program.
    pub(in super::super) fn send(&self, signal: i32) -> io::Result<()> {
        // SAFETY: the descriptor is open, the null pointer asks for the default signal information.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if sent == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sleeps until it is dead, `until` has come, or `wake` rings.
    ///
    /// # Errors
    /// The kernel refused to poll.
    pub(in super::super) fn wait_dead(&self, until: Instant, wake: &Wake) -> io::Result<Waited> {
        let ready = wait(
            &[self.fd.as_raw_fd(), wake.raw()],
            until.saturating_duration_since(Instant::now()),
        )?;
        Ok(match ready {
            [true, _] => Waited::Dead,
            [false, true] => Waited::Woken,
            [false, false] => Waited::TimeOver,
        })
    }
}

/// Opens a process by number; nothing when there is none.
pub(super) fn open_pidfd(pid: u32) -> io::Result<Option<OwnedFd>> {
    let Ok(number) = libc::pid_t::try_from(pid) else {
        return Ok(None);
    };
    // SAFETY: pidfd_open takes two integers; the result is checked before use.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) };
    if fd >= 0 {
        let fd = RawFd::try_from(fd).map_err(io::Error::other)?;
        // SAFETY: the kernel has just made this descriptor and nobody else knows it.
        return Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }));
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        // EINVAL, or ENOENT from newer kernels: a thread's number, or one that only names a group or session.
        Some(libc::ESRCH | libc::EINVAL | libc::ENOENT) => Ok(None),
        _ => Err(error),
    }
}

/// Polls for readability. A negative descriptor is never readable. Rounds the time up to whole milliseconds:
/// rounding down would spin through the last one.
fn wait<const N: usize>(fds: &[RawFd; N], time: Duration) -> io::Result<[bool; N]> {
    poll_for(&fds.map(|fd| (fd, libc::POLLIN)), time)
}

/// The same for other events than readability.
pub(super) fn poll_for<const N: usize>(
    asked: &[(RawFd, libc::c_short); N],
    time: Duration,
) -> io::Result<[bool; N]> {
    let mut polled = asked.map(|(fd, events)| libc::pollfd {
        fd,
        events,
        revents: 0,
    });
    let milliseconds = time.as_micros().div_ceil(1_000);
    let milliseconds = i32::try_from(milliseconds).unwrap_or(i32::MAX);
    // SAFETY: `polled` is an array of N entries that outlives the call.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, milliseconds) };
    if ready < 0 {
        let error = io::Error::last_os_error();
        if error.kind() == io::ErrorKind::Interrupted {
            return Ok([false; N]);
        }
        return Err(error);
    }
    Ok(polled.map(|entry| entry.revents & entry.events != 0))
}
