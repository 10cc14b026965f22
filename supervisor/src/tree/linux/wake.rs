//! Wakes the worker while it waits for deaths, so that a new request need not sit out a wait.
//!
//! When no descriptor could be had it does nothing: the worker's waits are short and bounded.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// An event counter of the kernel.
pub(in super::super) struct Wake {
    fd: Option<OwnedFd>,
}

impl Wake {
    pub(in super::super) fn new() -> Self {
        // SAFETY: eventfd takes two integers; the result is checked before use.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: a descriptor that is not negative was made just now and nobody else knows it.
        let fd = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) });
        Self { fd }
    }

    /// Returns what to poll; negative, and so never ready, when there is none.
    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Wakes the worker, or keeps its next wait from beginning.
    pub(in super::super) fn ring(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: writes eight bytes of a live array; a full counter (EAGAIN) is as awake as it gets.
        unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
    }

    /// Forgets all rings so far. Called before the queue is read, never after.
    pub(in super::super) fn hush(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: reads eight bytes into a live array; nothing to read (EAGAIN) is fine.
        unsafe { libc::read(self.raw(), count.as_mut_ptr().cast(), count.len()) };
    }
}
