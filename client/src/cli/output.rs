//! Data to standard output, words to standard error. A reader that has gone away ends a command quietly.

use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_proto::job::Page;
use serde::Serialize;

use super::failure::Failure;
use super::{table, words};
use crate::exit;

/// What a pipe takes in one go once it says that it takes anything; more could block.
const PIPE_PIECE: usize = 4096;

/// A line is drawn on standard error that the next words must not be written behind.
static DRAWN: AtomicBool = AtomicBool::new(false);
/// Goes to the line's start and clears what is on it.
const ERASE: &str = "\r\x1b[K";

/// Writes words to standard error. A closed one is nobody to complain to.
pub(crate) fn note(text: &str) {
    erase_line();
    let _ = writeln!(io::stderr(), "{text}");
}

/// Tells whether a line that is drawn in place would be seen, and not end as rubbish in a file.
pub(crate) fn line_is_seen() -> bool {
    words_are_read() && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Draws a line in place of the one before. It has no control characters; it is cut to the terminal.
pub(crate) fn draw_line(text: &str) {
    if !in_foreground() {
        return;
    }
    // The last cell stays free: a terminal may go to its next line when it is taken.
    let width = table::width_of(libc::STDERR_FILENO).map_or(0, |w| w.saturating_sub(1));
    let text = table::cut(&words::clean(text), width);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let (dim, normal) = if plain {
        ("", "")
    } else {
        ("\x1b[2m", "\x1b[0m")
    };
    DRAWN.store(true, Ordering::Relaxed);
    // In one write: nothing comes between its parts.
    let _ = io::stderr().write_all(format!("{ERASE}{dim}{text}{normal}").as_bytes());
}

/// Tells whether the terminal is ours at this moment: behind a prompt, after `&` or Ctrl-Z, a line would only disturb.
fn in_foreground() -> bool {
    // SAFETY: both take numbers at most and touch no memory.
    unsafe { libc::tcgetpgrp(libc::STDERR_FILENO) == libc::getpgrp() }
}

/// Takes the line away that was drawn last.
pub(crate) fn erase_line() {
    if DRAWN.swap(false, Ordering::Relaxed) {
        let _ = io::stderr().write_all(ERASE.as_bytes());
    }
}

/// Begins a line of words behind data that has none, where a person sees both in one place.
pub(crate) fn begin_line() {
    if io::stdout().is_terminal() && io::stderr().is_terminal() {
        note("");
    }
}

/// Tells whether words go to a person.
pub(crate) fn words_are_read() -> bool {
    io::stderr().is_terminal()
}

fn failed(error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::quiet(exit::DONE),
        _ => Failure::ours(format!("cannot write to standard output: {error}")),
    }
}

/// Standard output of a command that prints something bounded.
pub(crate) struct Out {
    inner: BufWriter<StdoutLock<'static>>,
}

/// Prints one JSON value on a line, at once.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let mut out = Out::new();
    out.json(value)?;
    out.flush()
}

impl Out {
    pub(crate) fn new() -> Self {
        Self {
            inner: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: &str) -> Result<(), Failure> {
        self.inner
            .write_all(text.as_bytes())
            .map_err(|e| failed(&e))
    }

    /// Writes one line without control characters.
    pub(crate) fn line(&mut self, text: &str) -> Result<(), Failure> {
        self.text(&format!("{}\n", words::clean(text)))
    }

    /// Writes one JSON value on a line.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let text = serde_json::to_string(value)
            .map_err(|e| Failure::ours(format!("cannot write JSON: {e}")))?;
        self.text(&(text + "\n"))
    }

    /// Hands everything over; what is not flushed is not told.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        self.inner.flush().map_err(|e| failed(&e))
    }
}

/// A standard stream for output of any length: a reader that does not read never keeps Ctrl-C from working.
pub(crate) struct Pour {
    fd: RawFd,
    piece: usize,
}

impl Pour {
    pub(crate) fn stdout() -> Self {
        Self::to(libc::STDOUT_FILENO)
    }

    pub(crate) fn stderr() -> Self {
        Self::to(libc::STDERR_FILENO)
    }

    fn to(fd: RawFd) -> Self {
        // SAFETY: fills a plain struct that is alive for the call.
        let regular = unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            libc::fstat(fd, &raw mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFREG
        };
        Self {
            fd,
            piece: if regular { usize::MAX } else { PIPE_PIECE },
        }
    }

    /// Writes all of it.
    pub(crate) async fn write(&self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if !writable_within(self.fd, 0) {
                let fd = self.fd;
                // In a thread of its own, since neither files nor terminals shared with others can be watched.
                let _ = tokio::task::spawn_blocking(move || writable_within(fd, -1)).await;
            }
            let piece = &bytes[..bytes.len().min(self.piece)];
            // SAFETY: the buffer is valid for its length.
            let n = unsafe { libc::write(self.fd, piece.as_ptr().cast(), piece.len()) };
            match usize::try_from(n) {
                Ok(n) => bytes = &bytes[n..],
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if !matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) {
                        return Err(failed(&error));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Tells whether a descriptor takes something within so many ms; -1 waits for ever.
pub(crate) fn writable_within(fd: RawFd, timeout: libc::c_int) -> bool {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one pollfd that is alive for the call. A closed reader also counts: the write then says so.
    unsafe { libc::poll(&raw mut poll, 1, timeout) > 0 }
}

/// Returns the bytes of a page.
pub(crate) fn bytes_of(page: &Page) -> Result<Vec<u8>, Failure> {
    use base64::Engine;
    match (&page.base64, &page.text) {
        (Some(data), _) => base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|e| Failure::ours(format!("a page of the supervisor is damaged: {e}"))),
        (None, Some(text)) => Ok(text.clone().into_bytes()),
        (None, None) => Ok(Vec::new()),
    }
}

/// Says what is missing before a page.
pub(crate) fn note_gap(page: &Page) {
    if page.lost > 0 {
        let were = if page.lost == 1 { "was" } else { "were" };
        note(&format!("{} {were} lost here", words::bytes(page.lost)));
    }
}

/// Splits a page's bytes into its runs: `(is standard error, bytes)`.
pub(crate) fn runs<'a>(page: &Page, bytes: &'a [u8]) -> Vec<(bool, &'a [u8])> {
    let (mut rest, mut out) = (bytes, Vec::new());
    for (stream, length) in &page.runs {
        let n = usize::try_from(*length)
            .unwrap_or(usize::MAX)
            .min(rest.len());
        let (run, after) = rest.split_at(n);
        out.push((*stream == 2, run));
        rest = after;
    }
    if !rest.is_empty() {
        // No runs: all of it is standard output.
        out.push((false, rest));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_split_into_its_streams() {
        let mut page = Page::default();
        assert_eq!(runs(&page, b"abc"), [(false, &b"abc"[..])]);
        page.runs = vec![(1, 1), (2, 2)];
        assert_eq!(runs(&page, b"abc"), [(false, &b"a"[..]), (true, b"bc")]);
        page.runs = vec![(2, 99)];
        assert_eq!(runs(&page, b"abc"), [(true, &b"abc"[..])]);
    }

    #[test]
    fn bytes_come_as_they_are() {
        let page = Page {
            base64: Some("AP8K".into()),
            ..Page::default()
        };
        assert_eq!(bytes_of(&page).unwrap(), b"\0\xff\n");
    }

    #[tokio::test]
    async fn a_full_pipe_is_waited_for_without_blocking_the_runtime() {
        let (read, write) = io::pipe().unwrap();
        let pour = Pour::to(std::os::fd::AsRawFd::as_raw_fd(&write));
        let bytes = vec![7_u8; 1 << 20];
        let reader = async {
            // Polled on the same thread as the writer: only a writer that yields lets it run.
            tokio::task::yield_now().await;
            tokio::task::spawn_blocking(move || {
                let mut got = Vec::new();
                io::Read::read_to_end(&mut &read, &mut got).map(|_| got.len())
            })
            .await
            .unwrap()
        };
        let writer = async {
            pour.write(&bytes).await.unwrap();
            drop(write);
        };
        let ((), got) = tokio::join!(writer, reader);
        assert_eq!(got.unwrap(), 1 << 20);
    }
}
