//! What people see in place of the short line that makes a shell take a text: the text itself.
//!
//! The log keeps what the terminal showed. Whoever looks at the terminal (an attach, the screen, lines of a shell)
//! reads through here instead.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ostler_proto::limits;

use crate::log::{Filter, Log, Slice};

/// Stretches that are remembered; who looks at older ones sees what the terminal showed.
const KEPT: usize = 256;
/// How long a reader waits for the end of a stretch. A shell takes a line in some milliseconds, or not at all.
const OPEN: Duration = Duration::from_secs(1);

/// The stretches of one terminal.
#[derive(Debug, Default)]
pub(crate) struct Echoes(Mutex<VecDeque<Echo>>);

#[derive(Debug)]
struct Echo {
    from: u64,
    /// None: it has not ended.
    to: Option<u64>,
    shown: Vec<u8>,
    since: Instant,
}

impl Echoes {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Echo>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From this offset on the terminal shows how a text is handed over.
    pub(crate) fn open(&self, from: u64, text: &str) {
        let mut echoes = self.lock();
        if echoes.len() == KEPT {
            echoes.pop_front();
        }
        echoes.push_back(Echo {
            from,
            to: None,
            shown: visible(text),
            since: Instant::now(),
        });
    }

    /// It has shown it up to here, where the output of the text begins. Says it once.
    pub(crate) fn close(&self, log: &Log, to: u64) {
        let is_open = |e: &Echo| e.to.is_none() && e.from <= to;
        if !self.lock().iter().any(is_open) {
            return;
        }
        let mut echoes = self.lock();
        if let Some(echo) = echoes.iter_mut().rfind(|e| is_open(e)) {
            let slice = log.read(echo.from, (to - echo.from) as usize, Filter::All);
            echo.shown.extend(modes(&slice.bytes));
            echo.to = Some(to);
        }
        drop(echoes);
        // Readers wait at its begin.
        log.wake();
    }

    /// It never came to that: what the terminal showed is what is seen.
    pub(crate) fn give_up(&self, log: &Log) {
        let mut echoes = self.lock();
        let before = echoes.len();
        echoes.retain(|e| e.to.is_some());
        let gave_up = echoes.len() < before;
        drop(echoes);
        if gave_up {
            log.wake();
        }
    }

    /// Reads a piece of the log as people see it. It may hold more or less bytes than `next - from`, and ends before a
    /// stretch that has not ended.
    pub(crate) fn read(&self, log: &Log, from: u64, max: usize) -> Slice {
        let mut slice = log.read(from, max, Filter::All);
        let echoes = self.lock();
        if !echoes.is_empty() {
            let (seen, stopped) = dress(echoes.iter(), slice.from, &slice.bytes, log.is_sealed());
            slice.bytes = seen;
            if let Some(at) = stopped {
                slice.next = at;
                slice.eof = false;
            }
        }
        slice
    }
}

/// What is seen of some bytes of the log, and where that stops if it does not go to their end.
fn dress<'a>(
    echoes: impl Iterator<Item = &'a Echo>,
    begin: u64,
    bytes: &[u8],
    sealed: bool,
) -> (Vec<u8>, Option<u64>) {
    let mut at = begin;
    let end = begin + bytes.len() as u64;
    let mut seen = Vec::with_capacity(bytes.len());
    let part = |from: u64, to: u64| &bytes[(from - begin) as usize..(to - begin) as usize];
    for echo in echoes {
        if echo.from >= end {
            break;
        }
        let waits = !sealed && echo.since.elapsed() < OPEN;
        match echo.to {
            Some(to) if to <= at => {}
            None if !waits || echo.from < at => {}
            None => {
                seen.extend_from_slice(part(at, echo.from));
                return (seen, Some(echo.from));
            }
            Some(to) => {
                if echo.from >= at {
                    seen.extend_from_slice(part(at, echo.from));
                    seen.extend_from_slice(&echo.shown);
                }
                at = to.min(end);
            }
        }
    }
    seen.extend_from_slice(part(at, end));
    (seen, None)
}

/// A text as a terminal shows it that is typed it, with its Enter.
fn visible(text: &str) -> Vec<u8> {
    let mut shown = Vec::with_capacity(text.len() + 2);
    let text = text.trim_end_matches('\n');
    // Hundreds of them are remembered, and a text may be as long as a message.
    let cut = text.floor_char_boundary(limits::SHELL_SHOWN);
    for byte in text[..cut].bytes() {
        match byte {
            b'\n' => shown.extend_from_slice(b"\r\n"),
            b'\t' => shown.push(b'\t'),
            0..=0x1f => shown.extend_from_slice(&[b'^', byte + 0x40]),
            0x7f => shown.extend_from_slice(b"^?"),
            _ => shown.push(byte),
        }
    }
    if cut < text.len() {
        shown.extend_from_slice(format!(" … {} bytes more", text.len() - cut).as_bytes());
    }
    shown.extend_from_slice(b"\r\n");
    shown
}

/// The sequences of a stretch that set modes of the terminal: a line editor puts back what it had changed.
fn modes(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::new();
    for at in memchr::memchr_iter(0x1b, bytes) {
        let rest = &bytes[at..];
        match rest.get(1..3) {
            Some([b'=' | b'>', _]) => kept.extend_from_slice(&rest[..2]),
            Some([b'[', b'?']) => {
                let digits = |b: &u8| b.is_ascii_digit() || *b == b';';
                let length = 3 + rest[3..].iter().take_while(|b| digits(b)).count();
                if matches!(rest.get(length), Some(b'h' | b'l')) {
                    kept.extend_from_slice(&rest[..=length]);
                }
            }
            _ => {}
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn echo(from: u64, to: Option<u64>) -> Echo {
        Echo {
            from,
            to,
            shown: b"TEXT".to_vec(),
            since: Instant::now(),
        }
    }

    fn seen(echoes: &[Echo], from: u64, text: &str) -> (String, u64) {
        let (seen, stopped) = dress(echoes.iter(), from, text.as_bytes(), false);
        let next = stopped.unwrap_or(from + text.len() as u64);
        (String::from_utf8(seen).unwrap(), next)
    }

    #[test]
    fn a_stretch_is_shown_as_its_text_wherever_pieces_are_cut() {
        let echoes = [echo(12, Some(15))];
        assert_eq!(seen(&echoes, 10, "abXYZcd"), ("abTEXTcd".into(), 17));
        assert_eq!(seen(&echoes, 10, "abX"), ("abTEXT".into(), 13));
        assert_eq!(seen(&echoes, 13, "YZcd"), ("cd".into(), 17));
        assert_eq!(seen(&echoes, 15, "cd"), ("cd".into(), 17));
        assert_eq!(seen(&echoes, 10, "ab"), ("ab".into(), 12));
        assert_eq!(seen(&echoes, 12, "XYZ"), ("TEXT".into(), 15));
    }

    #[test]
    fn a_stretch_that_has_not_ended_is_waited_for() {
        let echoes = [echo(12, Some(13)), echo(14, None)];
        assert_eq!(seen(&echoes, 10, "abXcYZ"), ("abTEXTc".into(), 14));
        assert_eq!(seen(&echoes, 14, "YZ"), (String::new(), 14));
    }

    /// 256 scripts of 16 MiB would have been 4 GiB.
    #[test]
    fn a_long_text_is_remembered_by_its_begin() {
        let shown = visible(&"é".repeat(limits::SHELL_TEXT / 2));
        assert!(shown.len() < limits::SHELL_SHOWN + 64);
        assert!(
            String::from_utf8(shown)
                .unwrap()
                .ends_with(" bytes more\r\n")
        );
    }

    #[test]
    fn a_text_moves_no_cursor_and_modes_stay() {
        assert_eq!(visible("a\n\x1b[2Jb\n"), b"a\r\n^[[2Jb\r\n");
        let stretch = b" \x08 . x\x1b[?1l\x1b>\x1b[?2004l\r\r\n\x1b[K\x1b[1m";
        assert_eq!(modes(stretch), b"\x1b[?1l\x1b>\x1b[?2004l");
    }
}
