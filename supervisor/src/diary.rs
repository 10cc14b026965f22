//! The supervisor's own log: one line an event, RFC 3339, level, words. Never a value of a variable.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use ostler_proto::limits;

static LOG: Mutex<Option<Log>> = Mutex::new(None);

/// The open log.
struct Log {
    file: File,
    path: PathBuf,
    /// Its size, what the keeper appends not counted.
    bytes: u64,
}

/// Opens the log for appending, or opens it again when its file is gone. Without one, lines go nowhere: a full
/// disk must not stop the house.
pub(crate) fn open(path: &Path) {
    *lock() = Log::open(path).ok();
}

fn lock() -> MutexGuard<'static, Option<Log>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn open(path: &Path) -> io::Result<Self> {
        let file = open_file(path)?;
        Ok(Self {
            bytes: file.metadata()?.len(),
            path: path.into(),
            file,
        })
    }

    fn write(&mut self, line: &str) -> io::Result<()> {
        if self.bytes > 0 && self.bytes + line.len() as u64 > limits::log() {
            self.begin_anew()?;
        }
        self.file.write_all(line.as_bytes())?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Keeps what there is under another name, in place of what was kept before.
    fn begin_anew(&mut self) -> io::Result<()> {
        std::fs::rename(&self.path, before(&self.path))?;
        *self = Self::open(&self.path)?;
        Ok(())
    }
}

/// Opens the file for appending. A link in its place is taken away, not followed: we write nowhere else.
fn open_file(path: &Path) -> io::Result<File> {
    let open = || {
        OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)
    };
    match open() {
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            std::fs::remove_file(path)?;
            open()
        }
        opened => opened,
    }
}

/// Where the log before this one is.
fn before(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".1");
    name.into()
}

/// Appends one line to a log that is not kept open: for the keeper, which holds no file that it can do without.
pub(crate) fn append(path: &Path, level: &str, words: &str) {
    if let Ok(mut log) = open_file(path) {
        // A log that cannot be written must not end anybody.
        let _ = log.write_all(text(level, words).as_bytes());
    }
}

/// Writes one line in one `write`, so that keeper and supervisor can share the file.
pub(crate) fn line(level: &str, words: &str) {
    if let Some(log) = lock().as_mut() {
        // A log that cannot be written must not end anybody.
        let _ = log.write(&text(level, words));
    }
}

fn text(level: &str, words: &str) -> String {
    format!(
        "{:.3} {level} {}\n",
        jiff::Timestamp::now(),
        words.replace('\n', " ")
    )
}

/// Writes one line to the supervisor's log: level, then a format string and its arguments.
#[macro_export]
macro_rules! log_line {
    ($level:literal, $($words:tt)*) => { $crate::diary::line($level, &format!($($words)*)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_full_begins_anew_and_the_one_before_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("daemon.log");
        let mut log = Log::open(&path).unwrap();
        let line = "x".repeat(limits::log() as usize / 2 + 1);
        for _ in 0..3 {
            log.write(&line).unwrap();
        }
        let size = |path: &Path| std::fs::metadata(path).unwrap().len();
        assert_eq!(size(&path), line.len() as u64);
        assert_eq!(size(&before(&path)), line.len() as u64);
        let entries = std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(entries, 2, "two in all, however much is said");
    }
}
