//! The supervisor's own log: one line an event, RFC 3339, level, words. Never a value of a variable.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    path::Path,
    sync::OnceLock,
};

static LOG: OnceLock<File> = OnceLock::new();

/// Opens the log for appending. Without one, lines go nowhere: a full disk must not stop the house.
pub(crate) fn open(path: &Path) {
    if let Ok(file) = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path)
    {
        let _ = LOG.set(file);
    }
}

/// Writes one line in one `write`, so that keeper and supervisor can share the file.
pub(crate) fn line(level: &str, words: &str) {
    if let Some(mut log) = LOG.get() {
        let now = jiff::Timestamp::now();
        // A log that cannot be written must not end anybody.
        let _ =
            log.write_all(format!("{now:.3} {level} {}\n", words.replace('\n', " ")).as_bytes());
    }
}

/// Writes one line to the supervisor's log: level, then a format string and its arguments.
#[macro_export]
macro_rules! log_line {
    ($level:literal, $($words:tt)*) => { $crate::diary::line($level, &format!($($words)*)) };
}
