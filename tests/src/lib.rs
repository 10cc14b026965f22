//! The harness of the black-box suites: a house of its own for each test, and nothing left when it is over.
//!
//! ```text
//!   in_house(async |house| { .. })      a temporary OSTLER_DIR, the real `ostler daemon run` in it
//!     house.desk()                      a client with a session; every call has a deadline
//!     house.wire()                      a raw socket, where the fault is in the bytes
//!     house.kill_supervisor()           waits until a new generation answers
//!   the end                             TERM to the keeper, then: no process, no socket, no artifact is left
//! ```
//!
//! Owned by the suites in `tests/tests`. It speaks with the product as everybody does (socket, binary, files,
//! signals) and never reaches into it; only the layout of the cookie is read, to find what is left in the process
//! table. It never sleeps: it waits for an answer, for an end by pidfd, or for output of the puppet, each with a
//! deadline that fails loudly. A panicking test prints the daemon's log.

pub mod acp;
pub mod binaries;
pub mod chance;
pub mod cli;
pub mod containment;
pub mod desk;
pub mod groups;
pub mod house;
pub mod mcp;
pub mod mount;
pub mod oracle;
pub mod pattern;
pub mod printers;
pub mod process;
pub mod screen;
pub mod terminals;
pub mod tmux;
pub mod tools;
pub mod wire;

use std::time::Duration;

pub use binaries::{ostler, puppet};
pub use cli::{Said, redacted};
pub use desk::{Desk, command, script};
pub use house::{House, in_empty_house, in_house, in_house_of_shells};
pub use mcp::Mcp;
pub use mount::{HungFolder, Mount};
pub use printers::Printers;
pub use tmux::Tmux;
pub use wire::Wire;

/// What a test waits for at most when it names no time: far above anything that is right, on a busy machine too.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Says that something cannot be tested here. The test command counts these at its end: the runner shows nothing of
/// tests that pass.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
    if let Some(list) = std::env::var_os("OSTLER_SKIPPED") {
        let file = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(list);
        // One write: many tests share the file.
        let line = format!("{why}\n");
        let _ = file.and_then(|mut file| std::io::Write::write_all(&mut file, line.as_bytes()));
    }
}

/// Whether a program is on the PATH; one that is not is skipped, loudly.
pub fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    if !is_there {
        skip(&format!("no {program}"));
    }
    is_there
}

/// Awaits something that must come.
///
/// # Panics
/// It did not come in time.
pub async fn within<T>(patience: Duration, what: &str, it: impl Future<Output = T>) -> T {
    match tokio::time::timeout(patience, it).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {patience:?}"),
    }
}

/// Returns a number that the environment gives, or the one for every day.
pub fn rounds(variable: &str, every_day: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
        Err(_) => every_day,
    }
}
