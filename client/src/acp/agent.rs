//! The agent: a plain child of ours with a process group of its own, so that what it has started itself ends with it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio::sync::watch;

/// A running agent.
pub(super) struct Agent {
    child: Child,
    /// It has ended, and is not reaped: its number, and its group's, is nobody else's.
    ended: watch::Receiver<bool>,
}

impl Agent {
    /// Starts it; returns it with what it reads and what it writes.
    ///
    /// # Errors
    /// It cannot be executed.
    pub(super) fn start(mut command: Command) -> io::Result<(Self, OwnedFd, OwnedFd)> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        // SAFETY: one system call between fork and exec, which takes numbers only.
        unsafe {
            command.pre_exec(|| {
                end_with_parent();
                Ok(())
            });
        }
        let mut child = command.spawn()?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let ended = watched(child.id());
        Ok((Self { child, ended }, stdin.into(), stdout.into()))
    }

    /// Tells of its end.
    pub(super) fn watch(&self) -> watch::Receiver<bool> {
        self.ended.clone()
    }

    /// Waits for its end.
    pub(super) async fn ended(&self) {
        let mut ended = self.ended.clone();
        // The thread that tells it goes on until then.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    /// Signals it and all of its group.
    pub(super) fn signal(&self, signal: i32) {
        let Ok(group) = i32::try_from(self.child.id()) else {
            return;
        };
        // SAFETY: no memory; the child is not reaped before it is let go of, so the group is its own, and never 0.
        unsafe {
            libc::kill(-group, signal);
        }
    }

    /// Ends it: an end of its input is out already. Polite after `patience`, forced after the grace.
    pub(super) async fn end(&self, patience: Duration, grace: Duration) {
        if tokio::time::timeout(patience, self.ended()).await.is_ok() {
            // What it leaves behind goes with it.
            self.signal(libc::SIGTERM);
            return;
        }
        self.signal(libc::SIGTERM);
        let _ = tokio::time::timeout(grace, self.ended()).await;
        self.signal(libc::SIGKILL);
        self.ended().await;
    }

    /// Its exit code, 128 and the number for a signal. Only when it has ended.
    pub(super) fn code(mut self) -> io::Result<i32> {
        let status = self.child.wait()?;
        let signal = status.signal().unwrap_or_default();
        Ok(status.code().unwrap_or(128 + signal))
    }
}

/// Tells of the end of a child without reaping it.
fn watched(pid: u32) -> watch::Receiver<bool> {
    let (told, ended) = watch::channel(false);
    std::thread::spawn(move || {
        loop {
            // SAFETY: a plain struct that is alive for the call.
            let waited = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let flags = libc::WEXITED | libc::WNOWAIT;
                libc::waitid(libc::P_PID, pid, &raw mut info, flags)
            };
            let again =
                waited != 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if !again {
                break;
            }
        }
        let _ = told.send(true);
    });
    ended
}

/// Where we are killed, nobody is left to close its input properly.
#[cfg(target_os = "linux")]
fn end_with_parent() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
    }
}

/// Elsewhere the end of its input must do.
#[cfg(not(target_os = "linux"))]
fn end_with_parent() {}
