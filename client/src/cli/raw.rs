//! Our own terminal while it shows another one: every key passes as it is, and all is as before when this is over.

use std::io::{self, Write};

use super::failure::Failure;
use super::output;

/// Puts back what a program may have asked of a terminal and what moves nothing: looks, wrapping, keys, mouse, paste.
const PLAIN: &str = "\x1b[0m\x1b(B\x0f\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[4l\x1b[?7h\x1b[?25h\x1b[0 q";
/// Puts back the screen, and the whole of it to scroll; nobody knows where the cursor is then.
const SCREEN: &str = "\x1b[?1049l\x1b[r";
/// The same of a program that stayed on the usual screen: the cursor stays where it is.
const SCROLLING: &str = "\x1b7\x1b[r\x1b8";

/// How long a terminal may take to take that, in ms.
const PATIENCE: i32 = 1_000;

/// The raw mode of standard input. Leaving it, however that comes, restores everything.
pub(crate) struct Raw {
    before: libc::termios,
    end: End,
}

/// What our terminal gets at the end, beside its modes.
#[derive(Debug, Clone, Copy)]
enum End {
    /// Everything is put back, and words begin below the screen, which has so many lines.
    Below { rows: u16 },
    /// What moves nothing is put back; words begin on a line of their own.
    Here { column: u16 },
    /// Nothing.
    Untouched,
}

impl Raw {
    /// Goes into raw mode. `rows`: lines of the terminal, below which the words after it begin.
    pub(crate) fn enter(rows: u16) -> Result<Self, Failure> {
        let failed = || {
            let error = io::Error::last_os_error();
            Failure::ours(format!("the terminal cannot be used: {error}"))
        };
        let mut modes = std::mem::MaybeUninit::<libc::termios>::zeroed();
        // SAFETY: the structure is as large as the call wants it.
        if unsafe { libc::tcgetattr(libc::STDIN_FILENO, modes.as_mut_ptr()) } != 0 {
            return Err(failed());
        }
        // SAFETY: the call has filled it.
        let before = unsafe { modes.assume_init() };
        let mut raw = before;
        // SAFETY: both take a valid structure.
        let done = unsafe {
            libc::cfmakeraw(&raw mut raw);
            libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const raw)
        };
        if done != 0 {
            return Err(failed());
        }
        Ok(Self {
            before,
            end: End::Below { rows },
        })
    }

    /// The terminal has another window.
    pub(crate) fn resized(&mut self, rows: u16) {
        self.end = End::Below { rows };
    }

    /// Ends, and leaves what a program wrote as it is: it has ended by itself, and cleaned up as it wanted.
    pub(crate) fn untouched(mut self) {
        self.end = End::Untouched;
    }

    /// Ends behind a program that could not clean up, but has left the cursor where words may follow, in this column.
    pub(crate) fn here(mut self, column: u16) {
        self.end = End::Here { column };
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that takes nothing, or is gone, must not keep us.
        let last = match self.end {
            End::Below { rows } => format!("{PLAIN}{SCREEN}\x1b[{rows};1H\r\n"),
            End::Here { column: 0 } => format!("{PLAIN}{SCROLLING}"),
            End::Here { .. } => format!("{PLAIN}{SCROLLING}\r\n"),
            End::Untouched => String::new(),
        };
        if !last.is_empty() && output::writable_within(libc::STDOUT_FILENO, PATIENCE) {
            let mut out = io::stdout();
            let _ = out.write_all(last.as_bytes());
            let _ = out.flush();
        }
        // SAFETY: the structure is the one that the terminal had.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.before) };
    }
}
