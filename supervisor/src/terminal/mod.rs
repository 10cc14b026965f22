//! The terminal of a job as its supervisor holds it: its window, who is in front, and how typed lines get through.

mod desk;
pub(crate) mod dialect;
mod echo;
mod face;
pub(crate) mod handed;
pub(crate) mod keys;
pub(crate) mod marks;
pub(crate) mod proof;
mod scan;
mod screen;
mod sieve;
pub(crate) mod talk;
pub(crate) mod text;
mod witness;

use std::{
    io,
    mem::MaybeUninit,
    os::fd::{AsRawFd, OwnedFd},
};

use ostler_proto::job::Size;

pub(crate) use desk::{Desk, Guest, Seated};
pub(crate) use face::Face;
pub(crate) use scan::{Found, Modes, Query, Scan};
pub(crate) use screen::{Broken, Easel, Screen};

/// Bytes of one line that are typed before it is handed over in part. Linux keeps 4,095 of an unfinished line and
/// throws away what comes then, without a word.
pub(crate) const PART: usize = 3_000;

/// Major number of the slaves of Unix98 terminals.
const SLAVES: u32 = 136;

/// A copy of the master, for everything that is no byte.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: OwnedFd,
    /// Number of the device, which stays.
    device: Option<u64>,
}

impl Terminal {
    pub(crate) fn new(master: OwnedFd) -> Self {
        let device = device(&master);
        Self { master, device }
    }

    /// Its window.
    pub(crate) fn size(&self) -> Option<Size> {
        let mut size = MaybeUninit::<libc::winsize>::zeroed();
        // SAFETY: the structure is as large as the call wants it.
        let done =
            unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCGWINSZ, size.as_mut_ptr()) };
        // SAFETY: zeroes are a valid value, and the call has filled it.
        let size = unsafe { size.assume_init() };
        (done == 0).then_some(Size {
            rows: size.ws_row,
            cols: size.ws_col,
        })
    }

    /// Gives it another one; the foreground group is told by the kernel.
    ///
    /// # Errors
    /// What the kernel answers.
    pub(crate) fn resize(&self, size: Size) -> io::Result<()> {
        let size = libc::winsize {
            ws_row: size.rows,
            ws_col: size.cols,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        // SAFETY: the structure outlives the call.
        match unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its settings; those of a terminal that cannot tell are all off.
    pub(crate) fn settings(&self) -> Settings {
        let termios = modes(&self.master);
        let local = |flag| termios.is_some_and(|t| t.c_lflag & flag != 0);
        let output = |flag| termios.is_some_and(|t| t.c_oflag & flag != 0);
        Settings {
            lines: local(libc::ICANON),
            echo: local(libc::ECHO),
            signals: local(libc::ISIG),
            adds_cr: output(libc::OPOST) && output(libc::ONLCR),
        }
    }

    /// Types what it takes at once; returns how much that was. For a few bytes at a prompt, where nobody else types:
    /// everything else goes through the queue of the keyboard.
    pub(crate) fn type_now(&self, bytes: &[u8]) -> usize {
        // SAFETY: the slice is valid for its length. The master never blocks: its reader has set it so.
        let took =
            unsafe { libc::write(self.master.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(took).unwrap_or(0)
    }

    /// Something stands in it that was not read yet.
    pub(crate) fn has_output(&self) -> bool {
        let mut ask = libc::pollfd {
            fd: self.master.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one structure, and no time to wait.
        unsafe { libc::poll(&raw mut ask, 1, 0) > 0 && ask.revents & libc::POLLIN != 0 }
    }

    /// Device number of the slave, by which its processes have it.
    pub(crate) fn device(&self) -> Option<u64> {
        self.device
    }

    /// Whether its program takes answers to what it asks its terminal.
    pub(crate) fn takes_answers(&self) -> bool {
        modes(&self.master).is_some_and(|modes| is_raw(&modes))
    }

    /// The group that gets what is typed, if there is one.
    pub(crate) fn foreground(&self) -> Option<u32> {
        let mut group: libc::pid_t = 0;
        // SAFETY: the call writes one number.
        let done = unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCGPGRP, &raw mut group) };
        u32::try_from(group).ok().filter(|g| done == 0 && *g > 1)
    }
}

fn device(master: &OwnedFd) -> Option<u64> {
    let mut number: libc::c_uint = 0;
    // SAFETY: the call writes one number.
    let done = unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTN, &raw mut number) };
    (done == 0).then(|| libc::makedev(SLAVES, number))
}

/// Settings of a terminal that tell what is in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Settings {
    /// It hands over whole lines.
    pub(crate) lines: bool,
    /// It shows what is typed.
    pub(crate) echo: bool,
    /// `^C` is a signal.
    pub(crate) signals: bool,
    /// A line end of a program leaves it as CR LF.
    pub(crate) adds_cr: bool,
}

/// Whether a program reads each byte as it comes and shows nothing by itself. Only then is an answer to its questions
/// taken for what it is: else it would be typed into the next line, and echoed.
fn is_raw(modes: &libc::termios) -> bool {
    modes.c_lflag & (libc::ICANON | libc::ECHO) == 0
}

/// How a terminal takes input right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Line by line; this character hands over what there is of a line, and ends the input where there is nothing.
    Lines { end: u8 },
    /// Each byte as it comes.
    Bytes,
}

/// Asks a master. One that cannot tell takes bytes: nothing is added to what is typed then.
pub(crate) fn mode(master: &OwnedFd) -> Mode {
    match modes(master) {
        // Zero means that the character is switched off.
        Some(modes) if modes.c_lflag & libc::ICANON != 0 && modes.c_cc[libc::VEOF] != 0 => {
            Mode::Lines {
                end: modes.c_cc[libc::VEOF],
            }
        }
        _ => Mode::Bytes,
    }
}

fn modes(master: &OwnedFd) -> Option<libc::termios> {
    let mut modes = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the structure is as large as the call wants it.
    let done = unsafe { libc::tcgetattr(master.as_raw_fd(), modes.as_mut_ptr()) };
    // SAFETY: zeroes are a valid value, and the call has filled it.
    (done == 0).then(|| unsafe { modes.assume_init() })
}

/// How much of `bytes` may be typed in one go when `typed` bytes of the line stand there already, and how many stand
/// there afterwards.
pub(crate) fn part(bytes: &[u8], typed: usize) -> (usize, usize) {
    let most = &bytes[..bytes.len().min(PART.saturating_sub(typed).max(1))];
    match most.iter().rposition(|b| matches!(b, b'\n' | b'\r')) {
        Some(at) => (most.len(), most.len() - at - 1),
        None => (most.len(), typed + most.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in the line after each part of a text, and that nothing of it is left out.
    fn lines(text: &[u8]) -> Vec<usize> {
        let (mut at, mut typed, mut told) = (0, 0, Vec::new());
        while at < text.len() {
            let (n, now) = part(&text[at..], typed);
            assert!(n > 0);
            at += n;
            told.push(now);
            typed = if now >= PART { 0 } else { now };
        }
        assert_eq!(at, text.len());
        told
    }

    #[test]
    fn a_long_line_is_typed_in_parts_and_short_ones_together() {
        assert_eq!(lines(b"ls\npwd\n"), [0]);
        assert_eq!(lines(b"ls\npw"), [2]);
        assert_eq!(lines(&[b'x'; 7_000]), [PART, PART, 1_000]);
        let mut text = vec![b'x'; PART - 1];
        text.extend(b"\nab");
        assert_eq!(lines(&text), [0, 2]);
    }
}
