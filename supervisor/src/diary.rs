//! The supervisor's own log: one line an event, RFC 3339, level, words. Never a value of a variable.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

static LOG: Mutex<Option<File>> = Mutex::new(None);

/// Opens the log for appending, or opens it again when its file is gone. Without one, lines go nowhere: a full
/// disk must not stop the house.
pub(crate) fn open(path: &Path) {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    *LOG.lock().unwrap_or_else(PoisonError::into_inner) = opened.ok();
}

/// Appends one line to a log that is not kept open: for the keeper, which holds no file that it can do without.
pub(crate) fn append(path: &Path, level: &str, words: &str) {
    let opened = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    if let Ok(mut log) = opened {
        // A log that cannot be written must not end anybody.
        let _ = log.write_all(text(level, words).as_bytes());
    }
}

/// Writes one line in one `write`, so that keeper and supervisor can share the file.
pub(crate) fn line(level: &str, words: &str) {
    if let Some(log) = LOG.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
        // A log that cannot be written must not end anybody.
        let _ = log.write_all(text(level, words).as_bytes());
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
