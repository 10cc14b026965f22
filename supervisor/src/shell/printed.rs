//! What a line printed, as its program wrote it.

use ostler_proto::limits;

use crate::{
    job::Job,
    log::{Filter, Log},
    terminal::{Terminal, dialect::Dialect},
};

/// What fish tells the terminal is no longer than this: it holds a path.
const TOLD: usize = 8 * 1024;

/// A stretch of a log, cleaned of what the terminal and the shell have put into it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Printed {
    /// All of it, or its begin.
    pub(super) head: Vec<u8>,
    /// Its end, where it is too long to be handed back whole.
    pub(super) tail: Vec<u8>,
    pub(super) truncated: bool,
    /// Bytes that the log does not have any more.
    pub(super) lost: u64,
}

/// How a program's bytes came into the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    /// The terminal made CR LF of each LF.
    pub(super) adds_cr: bool,
    pub(super) dialect: Dialect,
}

impl Way {
    /// How they come into the log of this shell now.
    pub(super) fn of(job: &Job) -> Self {
        let modes = job.with_terminal(Terminal::settings);
        Self {
            adds_cr: modes.is_none_or(|modes| modes.adds_cr),
            dialect: job
                .spec
                .shell
                .as_ref()
                .map_or(Dialect::Plain, |s| s.dialect),
        }
    }

    /// Takes off what was put in, in bytes whose end splits nothing of that.
    fn back(self, mut bytes: Vec<u8>) -> Vec<u8> {
        if self.adds_cr {
            bytes = without_cr(&bytes);
        }
        if self.dialect == Dialect::Fish {
            bytes = without_fish(&bytes);
        }
        bytes
    }
}

/// The same for bytes that come piece by piece.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// What can be told from something else only by what comes next.
    rest: Vec<u8>,
}

impl Pieces {
    /// Takes the next piece; hands out what is certain.
    pub(super) fn next(&mut self, piece: &[u8], way: Way) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(piece);
        self.rest = all.split_off(certain(&all, way));
        way.back(all)
    }

    /// Nothing comes any more.
    pub(super) fn last(&mut self, way: Way) -> Vec<u8> {
        way.back(std::mem::take(&mut self.rest))
    }
}

/// Up to where bytes are what they are, whatever follows them.
fn certain(bytes: &[u8], way: Way) -> usize {
    let whole = bytes.len() - usize::from(way.adds_cr && bytes.ends_with(b"\r"));
    let from = whole.saturating_sub(TOLD);
    let last = memchr::memrchr(0x1b, &bytes[from..whole]).map(|n| n + from);
    let Some(mut at) = last.filter(|_| way.dialect == Dialect::Fish) else {
        return whole;
    };
    // The first byte of what may be the end of a sequence.
    let before = memchr::memrchr(0x1b, &bytes[from..at]).map(|n| n + from);
    if at + 1 == whole
        && let Some(before) = before.filter(|b| may_be_told(&bytes[*b..at]))
    {
        at = before;
    }
    if may_be_told(&bytes[at..whole]) {
        at
    } else {
        whole
    }
}

/// It begins what fish tells the terminal, and does not end it.
fn may_be_told(bytes: &[u8]) -> bool {
    let begins = |told: &[u8]| told.starts_with(bytes) || bytes.starts_with(told);
    (begins(b"\x1b]7;") || begins(b"\x1b]133;")) && !bytes.contains(&0x07)
}

/// Reads what was printed from one offset to another; of more than `max` bytes only begin and end.
pub(super) fn read(log: &Log, from: u64, to: u64, max: u64, way: Way) -> Printed {
    let size = to.saturating_sub(from);
    if size <= max {
        let (head, lost) = bytes(log, from, to, way);
        return Printed {
            head,
            lost,
            ..Printed::default()
        };
    }
    let ends = (limits::result_ends() as u64 * 4).min(max / 2);
    let (mut head, lost_head) = bytes(log, from, from + ends, way);
    let (mut tail, lost_tail) = bytes(log, to - ends, to, way);
    head.truncate(text_end(&head));
    tail.drain(..text_start(&tail));
    Printed {
        head,
        tail,
        truncated: true,
        lost: lost_head + lost_tail,
    }
}

fn bytes(log: &Log, from: u64, to: u64, way: Way) -> (Vec<u8>, u64) {
    let (mut at, mut all, mut lost) = (from, Vec::new(), 0);
    while at < to {
        let slice = log.read(at, (to - at) as usize, Filter::All);
        lost += slice.lost;
        if slice.next <= at {
            break;
        }
        all.extend_from_slice(&slice.bytes);
        at = slice.next;
    }
    (way.back(all), lost)
}

/// The exact inverse of what the terminal did: one CR off each LF.
fn without_cr(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    for (i, byte) in bytes.iter().enumerate() {
        if !(*byte == b'\r' && bytes.get(i + 1) == Some(&b'\n')) {
            plain.push(*byte);
        }
    }
    plain
}

/// fish tells the terminal of each directory that it changes to, and marks an abort, in the middle of the output.
fn without_fish(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = memchr::memchr(0x1b, rest) {
        plain.extend_from_slice(&rest[..at]);
        rest = &rest[at..];
        let told = rest.starts_with(b"\x1b]7;") || rest.starts_with(b"\x1b]133;");
        let end = rest[1..]
            .iter()
            .position(|b| matches!(b, 0x07 | 0x1b))
            .map(|n| n + 1);
        match end.filter(|_| told) {
            Some(end) if rest[end] == 0x07 => rest = &rest[end + 1..],
            Some(end) if rest.get(end + 1) == Some(&b'\\') => rest = &rest[end + 2..],
            _ => {
                plain.push(0x1b);
                rest = &rest[1..];
            }
        }
    }
    plain.extend_from_slice(rest);
    plain
}

/// Where the last whole character ends.
fn text_end(bytes: &[u8]) -> usize {
    let from = bytes.len().saturating_sub(4);
    match std::str::from_utf8(&bytes[from..]) {
        Err(e) if e.error_len().is_none() => from + e.valid_up_to(),
        _ => bytes.len(),
    }
}

/// Where the first whole character begins.
fn text_start(bytes: &[u8]) -> usize {
    let follows = |b: &&u8| **b & 0b1100_0000 == 0b1000_0000;
    bytes.iter().take(3).take_while(follows).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_carriage_return_goes_with_each_line_end_and_no_other() {
        assert_eq!(without_cr(b"a\r\nb\rc\r\r\n\r"), b"a\nb\rc\r\n\r");
    }

    #[test]
    fn what_fish_tells_the_terminal_is_no_output() {
        let said = b"a\x1b]7;file://h/tmp\x07b\x1b]133;D;130\x1b\\c\x1b[1md\x1b]7;x";
        assert_eq!(without_fish(said), b"abc\x1b[1md\x1b]7;x");
    }

    #[test]
    fn piece_by_piece_it_is_the_same() {
        let said = b"a\x1b]7;file://h/tmp\x07b\x1b]133;D;130\x1b\\c\x1b[1md\r\n\r\r\n\x1b\x1b]8;x\x07\r\x1b]7;x";
        for dialect in [Dialect::Fish, Dialect::Bash] {
            let way = Way {
                adds_cr: true,
                dialect,
            };
            for size in 1..said.len() {
                let mut pieces = Pieces::default();
                let mut all = Vec::new();
                for piece in said.chunks(size) {
                    all.extend(pieces.next(piece, way));
                }
                all.extend(pieces.last(way));
                let (all, whole) = (all.escape_ascii(), way.back(said.to_vec()));
                assert_eq!(all.to_string(), whole.escape_ascii().to_string(), "{size}");
            }
        }
    }

    #[test]
    fn a_cut_splits_no_character() {
        assert_eq!(text_end("aé".as_bytes()), 3);
        assert_eq!(text_end(&"aé".as_bytes()[..2]), 1);
        assert_eq!(text_start(&"éa".as_bytes()[1..]), 1);
        assert_eq!(text_start(b"\xff"), 0);
    }
}
