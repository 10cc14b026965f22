//! Our own terminal while it shows another one: every key passes as it is, and all is as before when this is over.

use std::io::{self, Write};

use super::failure::Failure;
use super::output;

/// Puts back what a program may have asked of a terminal: looks, wrapping, keys, mouse, paste, title bar and screen.
const RESET: &str = "\x1b[0m\x1b(B\x0f\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1006l\x1b[?2004l\x1b[?1l\x1b>\x1b[4l\x1b[?7h\x1b[?1049l\x1b[r\x1b[?25h\x1b[0 q";

/// How long a terminal may take to take that, in ms.
const PATIENCE: i32 = 1_000;

/// The raw mode of standard input. Leaving it, however that comes, restores everything.
pub(crate) struct Raw {
    before: libc::termios,
    rows: u16,
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
        Ok(Self { before, rows })
    }

    /// The terminal has another window.
    pub(crate) fn resized(&mut self, rows: u16) {
        self.rows = rows;
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that takes nothing, or is gone, must not keep us.
        if output::writable_within(libc::STDOUT_FILENO, PATIENCE) {
            let mut out = io::stdout();
            let _ = write!(out, "{RESET}\x1b[{};1H\r\n", self.rows);
            let _ = out.flush();
        }
        // SAFETY: the structure is the one that the terminal had.
        unsafe { libc::tcsetattr(libc::STDIN_FILENO, libc::TCSANOW, &raw const self.before) };
    }
}
