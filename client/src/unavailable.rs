//! Why there is no supervisor to speak with, in words, with what to do next.

use std::io;
use std::path::{Path, PathBuf};

use ostler_proto::{VERSION, limits};

use crate::endpoint::BadFolder;

/// Why there is no supervisor to speak with.
#[derive(Debug, thiserror::Error)]
pub enum Unavailable {
    /// None runs, and the caller does not start one.
    #[error("no supervisor runs")]
    NotRunning,
    /// The socket's folder cannot be trusted.
    #[error("{}{error}", if *starting { "the supervisor did not start: " } else { "" })]
    Folder {
        /// Why.
        #[source]
        error: BadFolder,
        /// One was to be started there.
        starting: bool,
    },
    /// The socket cannot be used; that does not mean that nobody listens.
    #[error("cannot connect to {}: {error}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Something else lies at the socket's place.
    #[error("{}{} is a {}, not a socket", if *starting { "the supervisor did not start: " } else { "" }, socket.display(), if *folder { "folder" } else { "file" })]
    NoSocket {
        /// The place.
        socket: PathBuf,
        /// One was to be started there.
        starting: bool,
        /// It is a folder.
        folder: bool,
    },
    /// A lock file cannot be used.
    #[error("cannot lock {}: {error}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The program that would be the supervisor cannot be run.
    #[error("cannot run {}: {error}", program.display())]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// It was started and gave up.
    #[error("the supervisor did not start: {reason}")]
    Failed {
        /// Its own words.
        reason: String,
        /// Where its log is.
        log: PathBuf,
    },
    /// Somebody holds the lock, but nobody listens or answers.
    #[error("the supervisor holds the lock but does not answer ({})", who(*pid, *stopped))]
    Silent {
        /// Whichever of the two is stopped, else the keeper, if the lock file names it.
        pid: Option<u32>,
        /// It is stopped by somebody.
        stopped: bool,
        /// Where its log is.
        log: PathBuf,
    },
    /// Another client has been starting one for too long.
    #[error("another client has been starting the supervisor for {} s", limits::start_patience() / 1000)]
    Contended {
        /// Where its log is.
        log: PathBuf,
    },
    /// Every connection ended before the handshake was answered.
    #[error("the supervisor closes every connection before it answers")]
    Unsteady {
        /// Where its log is.
        log: PathBuf,
    },
    /// The two sides have no protocol in common.
    #[error("supervisor {theirs} and this client {VERSION} have no protocol in common")]
    TooOld {
        /// Its version.
        theirs: String,
    },
}

/// How a system says that a disk has no room, or no room for another file.
const NO_SPACE: &str = "No space left on device";

/// What helps then: a full disk has no log either.
fn room(beside: &Path) -> String {
    let folder = beside.parent().unwrap_or(beside).display();
    format!("make room: df -h {folder}; df -i {folder}")
}

/// What helps where its owner has shut the folder of it.
fn shut(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;
    let folder = path.parent()?;
    let there = std::fs::metadata(folder).ok()?;
    // SAFETY: plain call without preconditions.
    let ours = there.uid() == unsafe { libc::geteuid() };
    (ours && there.mode() & 0o700 != 0o700).then(|| {
        let mode = there.mode() & 0o777;
        format!(
            "its folder is shut (mode {mode:03o}): chmod 700 {}",
            folder.display()
        )
    })
}

fn who(pid: Option<u32>, stopped: bool) -> String {
    match pid {
        Some(pid) if stopped => format!("pid {pid}, stopped by a debugger?"),
        Some(pid) => format!("pid {pid}"),
        None => "its lock file names no process".into(),
    }
}

impl Unavailable {
    /// Returns what to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NotRunning => Some("ostler daemon start".into()),
            Self::Folder { error, .. } => Some(error.hint()),
            Self::Failed { reason, log } if reason.contains(NO_SPACE) => Some(room(log)),
            Self::Lock { path, error } if error.kind() == io::ErrorKind::StorageFull => {
                Some(room(path))
            }
            Self::Silent {
                pid: Some(pid),
                stopped: true,
                ..
            } => Some(format!("it goes on with: kill -CONT {pid}")),
            Self::Failed { log, .. }
            | Self::Silent { log, .. }
            | Self::Contended { log }
            | Self::Unsteady { log } => Some(format!("log: {}", log.display())),
            Self::TooOld { .. } => {
                Some("stop it with its own version of ostler: ostler daemon stop".into())
            }
            Self::NoSocket { socket, .. } => {
                Some(format!("move it away: mv {0} {0}.old", socket.display()))
            }
            Self::Connect { socket: path, .. } | Self::Lock { path, .. } => Some(
                shut(path)
                    .unwrap_or_else(|| format!("whose it is tells: ls -l {}", path.display())),
            ),
            Self::Program { .. } => Some("put ostler beside this program, or on PATH".into()),
        }
    }
}
