//! What `house.lock` says, and knocking at the keeper's door. Linux processes by pidfd only.
//!
//! The lock file is a hint for people and for this file; whether a house lives is told by the lock on it.
//! This file starts nothing and ends nothing: the one signal it sends asks the keeper to look for itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fs2::{FileExt, TryLockError};
use ostler_proto::address::Folders;
use serde::Deserialize;

/// A keeper is asked at most once in this time by all clients together, in ms: its own look takes up to 5 s.
const KNOCK_EVERY: u64 = 10_000;

/// The line in `house.lock`. Fields may be missing in a house that is just beginning.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct House {
    /// Process number of the keeper.
    pub pid: u32,
    /// Its start time as the kernel has it (clock ticks since boot), which tells it from a later process.
    pub start: serde_json::Value,
    /// Build of the keeper.
    pub version: String,
    /// Why it did not start or why it left.
    pub reason: Option<String>,
    /// It has ended, and so has everything in it. False in one that stands, or was killed.
    #[serde(rename = "nothingLeft")]
    pub nothing_left: bool,
}

/// Whether somebody holds the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Held {
    /// No house.
    No,
    /// A house that lives, begins or leaves.
    Yes,
    /// Another client is starting one at this moment.
    Starting,
}

/// The right to start a house; given back when dropped.
#[derive(Debug)]
pub struct StartLock {
    file: File,
}

impl StartLock {
    /// Takes the lock if nobody has it. The folder must exist.
    ///
    /// # Errors
    /// The file cannot be created or locked for another reason than that somebody has it.
    pub fn try_take(folders: &Folders) -> io::Result<Option<Self>> {
        let file = open_start_lock(folders)?;
        match FileExt::try_lock(&file) {
            Ok(()) => Ok(Some(Self { file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(e)) => Err(e),
        }
    }

    /// Tells whether the file is still the one at its path: a cleaner may have removed it under its holder.
    pub fn is_current(&self, folders: &Folders) -> bool {
        use std::os::unix::fs::MetadataExt;
        match (
            self.file.metadata(),
            std::fs::symlink_metadata(folders.start_lock()),
        ) {
            (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
            _ => false,
        }
    }
}

fn open_start_lock(folders: &Folders) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(folders.start_lock())
}

/// Tells whether a house holds its lock, for a caller that does not hold `start.lock`.
///
/// It looks under `start.lock`, because even a shared lock held for a moment could make a house that is just
/// beginning believe that there is another one.
///
/// # Errors
/// The files cannot be opened.
pub fn held(folders: &Folders) -> io::Result<Held> {
    if !folders.house_lock().exists() {
        return Ok(Held::No);
    }
    match StartLock::try_take(folders)? {
        None => Ok(Held::Starting),
        Some(_lock) => Ok(if held_under_start_lock(folders)? {
            Held::Yes
        } else {
            Held::No
        }),
    }
}

/// The same for the holder of `start.lock`.
///
/// # Errors
/// The file cannot be opened.
pub fn held_under_start_lock(folders: &Folders) -> io::Result<bool> {
    let file = match File::open(folders.house_lock()) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(e),
    };
    match FileExt::try_lock_shared(&file) {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(e)) => Err(e),
    }
}

/// Returns what `house.lock` says, if it says anything.
pub fn read(folders: &Folders) -> Option<House> {
    let text = std::fs::read_to_string(folders.house_lock()).ok()?;
    serde_json::from_str(text.lines().next()?).ok()
}

/// Asks the keeper to look whether its socket is in place and its supervisor answers (SIGUSR1).
///
/// Returns whether it was asked: not when the process is another one by now, and not twice in ten seconds.
pub fn knock(folders: &Folders) -> bool {
    let Some(house) = read(folders) else {
        return false;
    };
    let Some(keeper) = keeper_of(&house) else {
        return false;
    };
    may_knock(folders).unwrap_or(true) && signal(&keeper, libc::SIGUSR1)
}

/// Returns a descriptor of the keeper, if it is still that process.
fn keeper_of(house: &House) -> Option<OwnedFd> {
    let pid = i32::try_from(house.pid).ok().filter(|pid| *pid > 1)?;
    // SAFETY: the call takes two integers; a result that is not negative is a new descriptor that nobody owns.
    let keeper = unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(i32::try_from(fd).ok()?)
    };
    // The number is looked at after the descriptor was taken: it cannot go to another process unnoticed.
    let started = start_time(Path::new("/proc"), house.pid)?;
    let said = match &house.start {
        serde_json::Value::String(s) => s.clone(),
        other => other.to_string(),
    };
    (said == started).then_some(keeper)
}

/// Returns the 22nd field of `/proc/PID/stat`.
fn start_time(proc: &Path, pid: u32) -> Option<String> {
    let stat = std::fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    // The second field is a name in parentheses that may itself hold blanks and parentheses.
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(19).map(str::to_owned)
}

/// Tells whether a keeper or its supervisor is stopped or traced: the likely reason for its silence.
pub fn is_stopped(keeper: u32) -> bool {
    stopped_one(keeper).is_some()
}

/// Which of the two it is.
pub fn stopped_one(keeper: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
    let supervisor = children.ok().and_then(|pids| {
        let mut pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok());
        // Jobs are children as well, and a stopped job says nothing.
        pids.find(|pid| is_supervisor(*pid))
    });
    [Some(keeper), supervisor]
        .into_iter()
        .flatten()
        .find(|pid| is_held(*pid))
}

fn is_held(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rfind(')')
            .is_some_and(|at| stat[at + 1..].trim_start().starts_with(['T', 't']))
    })
}

fn is_supervisor(pid: u32) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| is_supervise(&line))
}

/// The folders follow.
fn is_supervise(line: &[u8]) -> bool {
    let mut words = line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"daemon") && words.next() == Some(b"supervise")
}

fn signal(process: &OwnedFd, signal: i32) -> bool {
    // SAFETY: the descriptor is open, the info pointer may be null.
    unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            process.as_raw_fd(),
            signal,
            std::ptr::null::<libc::siginfo_t>(),
            0,
        ) == 0
    }
}

/// Tells whether nobody has knocked for a while, and notes that somebody does now.
///
/// The note is the content of `start.lock`: it needs no file more. Two clients that come at the very same
/// moment may both knock, which does no harm.
fn may_knock(folders: &Folders) -> io::Result<bool> {
    let mut file = open_start_lock(folders)?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_millis());
    let now = u64::try_from(now).unwrap_or(u64::MAX);
    let last = text.trim().parse::<u64>().unwrap_or(0);
    // A clock that was set back must not forbid it for ever.
    if last <= now && now - last < KNOCK_EVERY {
        return Ok(false);
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{now}")?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders() -> (tempfile::TempDir, Folders) {
        let dir = tempfile::tempdir().unwrap();
        let folders = Folders::moved(dir.path());
        (dir, folders)
    }

    #[test]
    fn a_supervisor_is_known_by_its_first_words() {
        assert!(is_supervise(
            b"ostler\0daemon\0supervise\0/run\0/state\0/config\0"
        ));
        assert!(!is_supervise(b"ostler\0daemon\0keep\0"));
        assert!(!is_supervise(b"vi\0notes\0daemon\0supervise\0"));
    }

    #[test]
    fn a_house_is_held_by_its_lock_and_not_by_its_file() {
        let (_dir, folders) = folders();
        assert_eq!(held(&folders).unwrap(), Held::No);
        let file = File::create(folders.house_lock()).unwrap();
        assert_eq!(held(&folders).unwrap(), Held::No);
        FileExt::lock(&file).unwrap();
        assert_eq!(held(&folders).unwrap(), Held::Yes);
        let starting = StartLock::try_take(&folders).unwrap().unwrap();
        assert_eq!(held(&folders).unwrap(), Held::Starting);
        assert!(StartLock::try_take(&folders).unwrap().is_none());
        drop((starting, file));
        assert_eq!(held(&folders).unwrap(), Held::No);
    }

    #[test]
    fn a_lock_file_that_was_removed_is_noticed() {
        let (_dir, folders) = folders();
        let lock = StartLock::try_take(&folders).unwrap().unwrap();
        assert!(lock.is_current(&folders));
        std::fs::remove_file(folders.start_lock()).unwrap();
        assert!(!lock.is_current(&folders));
    }

    #[test]
    fn nobody_is_asked_twice_in_a_row() {
        let (_dir, folders) = folders();
        assert!(may_knock(&folders).unwrap());
        assert!(!may_knock(&folders).unwrap());
        std::fs::write(folders.start_lock(), "99999999999999").unwrap();
        assert!(may_knock(&folders).unwrap());
    }

    #[test]
    fn a_process_with_another_start_time_is_not_the_keeper() {
        let pid = std::process::id();
        let mine = start_time(Path::new("/proc"), pid).unwrap();
        let house = |start: serde_json::Value| House {
            pid,
            start,
            ..House::default()
        };
        let number: u64 = mine.parse().unwrap();
        assert!(keeper_of(&house(number.into())).is_some());
        assert!(keeper_of(&house(mine.into())).is_some());
        assert!(keeper_of(&house((number + 1).into())).is_none());
        assert!(keeper_of(&House::default()).is_none());
    }
}
