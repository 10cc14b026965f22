//! Whether a descriptor is ready, by the runtime's epoll, which is registered with here alone, or by a short look.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Duration,
};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers a descriptor for reading.
///
/// # Errors
/// What epoll answers: no memory, or too many watches.
pub(crate) fn readable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(fd, Interest::READABLE)
}

/// Registers a descriptor for writing.
///
/// # Errors
/// As [`readable`].
pub(crate) fn writable<F: AsFd + AsRawFd>(fd: F) -> io::Result<AsyncFd<F>> {
    register(fd, Interest::WRITABLE)
}

/// Registers a descriptor for both.
///
/// # Errors
/// As [`readable`].
pub(crate) fn both(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(fd, Interest::READABLE | Interest::WRITABLE)
}

/// Tells whether there is something to read, or an end, within this time. It blocks its thread: for moments alone.
pub(crate) fn within(fd: &OwnedFd, patience: Duration) -> bool {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let patience = libc::timespec {
        tv_sec: 0,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: one pollfd and one time that live for the call, and no mask.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const patience, std::ptr::null()) > 0 }
}

fn register<F: AsFd + AsRawFd>(fd: F, interest: Interest) -> io::Result<AsyncFd<F>> {
    // SAFETY: what owns or borrows a descriptor names the same open file until it is dropped, which is all that the
    // registration needs.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(|e| e.into_parts().1)
}
