//! What a line printed, as its program wrote it.

use ostler_proto::limits;

use crate::{
    log::{Filter, Log},
    terminal::dialect::Dialect,
};

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
    if way.adds_cr {
        all = without_cr(&all);
    }
    if way.dialect == Dialect::Fish {
        all = without_fish(&all);
    }
    (all, lost)
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
    fn a_cut_splits_no_character() {
        assert_eq!(text_end("aé".as_bytes()), 3);
        assert_eq!(text_end(&"aé".as_bytes()[..2]), 1);
        assert_eq!(text_start(&"éa".as_bytes()[1..]), 1);
        assert_eq!(text_start(b"\xff"), 0);
    }
}
