//! A descriptor in the runtime's epoll: the one place that registers one.

use std::{io, os::fd::OwnedFd};

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
pub(crate) fn writable(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(fd, Interest::WRITABLE)
}

/// Registers a descriptor for both.
///
/// # Errors
/// As [`readable`].
pub(crate) fn both(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    register(fd, Interest::READABLE | Interest::WRITABLE)
}

fn register(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` names the same open file until it is dropped, which is all that the registration needs.
    unsafe { AsyncFd::register_with_interest(fd, interest) }.map_err(|e| e.into_parts().1)
}
