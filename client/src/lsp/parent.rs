//! The editor as a process. Its pipes may be held open by something else that it started; LSP has a server end when the
//! process that started it is gone.

use std::future::pending;
use std::os::fd::{FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// How far up the editor may be: behind shells and wrappers.
const DEPTH: usize = 16;

/// Returns when the process of that number is gone, if it is one above this one: behind a container or a network the
/// number would be somebody else's.
pub(super) async fn gone(pid: u32) {
    let Some(watched) = watch(pid) else {
        return pending().await;
    };
    if watched.readable().await.is_err() {
        pending().await
    }
}

fn watch(pid: u32) -> Option<AsyncFd<OwnedFd>> {
    // SAFETY: two numbers; the descriptor that comes back is fresh and nobody else's.
    let fd = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(i32::try_from(fd).ok()?)
    };
    // Asked behind that, the number cannot be another process's any more.
    if !is_above(pid) {
        return None;
    }
    // SAFETY: an owned descriptor stays the same one until it is dropped.
    unsafe { AsyncFd::register(fd) }.ok()
}

fn is_above(pid: u32) -> bool {
    let mut at = std::process::id();
    for _ in 0..DEPTH {
        match parent(at) {
            Some(above) if above == pid => return true,
            Some(above) if above > 1 => at = above,
            _ => return false,
        }
    }
    false
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold anything.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_above_counts() {
        // SAFETY: takes nothing.
        let above = unsafe { libc::getppid() };
        assert!(is_above(above.try_into().unwrap()));
        assert!(!is_above(std::process::id()));
    }
}
