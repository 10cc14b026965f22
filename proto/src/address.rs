//! Where the socket, the locks and the state are. Rules only: nothing here looks at a disk.
//!
//! The address does not depend on variables that some clients strip: every client of a user finds the same
//! socket. Only `OSTLER_DIR` moves everything, for hermetic use.

use std::path::{Path, PathBuf};

/// The variable that moves socket, state and configuration into one folder.
pub const DIR_VARIABLE: &str = "OSTLER_DIR";
/// The variable that names the session of a command line.
pub const SESSION_VARIABLE: &str = "OSTLER_SESSION";
/// The variable that marks a job's processes with its process id.
pub const JOB_VARIABLE: &str = "OSTLER_JOB";
/// The variable that marks a job's processes with the house that they belong to: the next one finds by it what two killed
/// processes left behind, where nothing better marks them.
pub const HOUSE_VARIABLE: &str = "OSTLER_HOUSE";

/// The best way to find the members of jobs that a new house may use: `cgroup` (as without it), `cookie` or `links`.
pub const RUNG_VARIABLE: &str = "OSTLER_RUNG";

/// Milliseconds that replace [`crate::limits::steady()`] in a house that `OSTLER_DIR` moved: tests kill a supervisor
/// hundreds of times a minute, which elsewhere is a reason to end the house.
pub const STEADY_VARIABLE: &str = "OSTLER_STEADY_MS";

/// A file with two numbers, the milliseconds by which the wall clock and the clock that counts the machine's sleep are
/// ahead of the true ones, in a house that `OSTLER_DIR` moved: no test may set the clocks of its machine or put it to
/// sleep.
pub const CLOCKS_VARIABLE: &str = "OSTLER_CLOCKS";

/// Longest path of a Unix socket, its final NUL not counted.
pub const SOCKET_PATH_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// What is put behind the socket's name while it is bound, before it is renamed into place.
pub const BINDING_SUFFIX: &str = ".new";

/// The two folders of a house and its configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folders {
    /// Socket and locks.
    pub run: PathBuf,
    /// Log, owner key, artifacts.
    pub state: PathBuf,
    /// Configuration.
    pub config: PathBuf,
}

impl Folders {
    /// Folders when `OSTLER_DIR` is set.
    pub fn moved(dir: &Path) -> Self {
        Self {
            run: dir.to_path_buf(),
            state: dir.to_path_buf(),
            config: dir.join("config.toml"),
        }
    }

    /// Folders of a user. `run_user_is_ours`: `/run/user/UID` is a folder that belongs to the user.
    pub fn of_user(uid: u32, home: &Path, run_user_is_ours: bool) -> Self {
        let run = if run_user_is_ours {
            PathBuf::from(format!("/run/user/{uid}/ostler"))
        } else {
            PathBuf::from(format!("/tmp/ostler-{uid}"))
        };
        Self {
            run,
            state: home.join(".local/state/ostler"),
            config: home.join(".config/ostler/config.toml"),
        }
    }

    /// The socket.
    pub fn socket(&self) -> PathBuf {
        self.run.join("ostler.sock")
    }

    /// Held by a client while it starts a house.
    pub fn start_lock(&self) -> PathBuf {
        self.run.join("start.lock")
    }

    /// Held by keeper and supervisor for life.
    pub fn house_lock(&self) -> PathBuf {
        self.run.join("house.lock")
    }

    /// The supervisor's own log.
    pub fn log(&self) -> PathBuf {
        self.state.join("daemon.log")
    }

    /// The key by which the human's command line sees every session.
    pub fn owner_key(&self) -> PathBuf {
        self.state.join("owner.key")
    }

    /// Spill files, a folder a session.
    pub fn artifacts(&self) -> PathBuf {
        self.state.join("artifacts")
    }

    /// Tells whether the socket's path, and the longer one used while binding, fit the kernel's bound.
    ///
    /// # Errors
    /// Returns the length that is too long.
    pub fn check_length(&self) -> Result<(), usize> {
        let n = self.socket().as_os_str().len() + BINDING_SUFFIX.len();
        if n > SOCKET_PATH_MAX { Err(n) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_of_a_user_finds_the_same_socket() {
        let f = Folders::of_user(7, Path::new("/home/a"), true);
        assert_eq!(f.socket(), Path::new("/run/user/7/ostler/ostler.sock"));
        let f = Folders::of_user(7, Path::new("/home/a"), false);
        assert_eq!(f.socket(), Path::new("/tmp/ostler-7/ostler.sock"));
        assert_eq!(f.log(), Path::new("/home/a/.local/state/ostler/daemon.log"));
    }

    #[test]
    fn a_path_too_long_is_told_before_bind() {
        assert!(Folders::moved(Path::new("/tmp/x")).check_length().is_ok());
        assert_eq!(
            Folders::moved(&PathBuf::from(format!("/{}", "x".repeat(110)))).check_length(),
            Err(127)
        );
    }
}
