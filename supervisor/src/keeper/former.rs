//! A house that lives without its folder: a cleaner of temporary files took socket and lock away under it.
//!
//! A new start finds a free lock then, and would end every job of the living house as leftovers of a dead one.
//! So whoever has just taken the lock looks for a living house of its instance first, asks its keeper to bind
//! again, and goes.

use std::{
    fs::File,
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

use crate::tree::{self, cookie::HOUSE_JOB};

/// How long the living house may take to bind again.
const PATIENCE: Duration = Duration::from_secs(3);
/// Between two tries to connect; nothing tells when a socket appears.
const AGAIN: Duration = Duration::from_millis(5);

/// So many of these, then it is asked whether the house still lives.
const TRIES: u32 = 10;

/// What is known of a house that was here before.
pub(super) enum Former {
    /// None lives, or nobody can know.
    None,
    /// It lives and listens again.
    Listens,
    /// It lives and does not come back, told by the number of its keeper.
    Silent(u32),
}

/// Looks for a living house of this instance and wakes it. The lock is let go when there is one: it is the living
/// house's to take.
pub(super) fn wake(instance: u32, socket: &Path, lock: &mut Option<File>) -> Former {
    // Without /proc nothing is found and nothing can be swept either.
    let Ok(Some(found)) = tree::house_is_alive(instance, &[std::process::id()]) else {
        return Former::None;
    };
    drop(lock.take());
    let keeper = parent(found)
        .filter(|p| tree::job_of(*p, instance) == Some(HOUSE_JOB))
        .unwrap_or(found);
    // SAFETY: plain call; the process carries our own house's cookie, so it is a keeper of this user.
    unsafe { libc::kill(keeper as i32, libc::SIGUSR1) };
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        for _ in 0..TRIES {
            if UnixStream::connect(socket).is_ok() {
                return Former::Listens;
            }
            std::thread::sleep(AGAIN);
        }
        // It was on its way out: whoever starts anew must not wait for one that is gone.
        if !matches!(
            tree::house_is_alive(instance, &[std::process::id()]),
            Ok(Some(_))
        ) {
            return Former::None;
        }
    }
    Former::Silent(keeper)
}

fn parent(pid: u32) -> Option<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    text.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(1)?
        .parse()
        .ok()
}
