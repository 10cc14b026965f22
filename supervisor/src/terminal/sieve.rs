//! What an emulator is given: everything, but for strings without an end.
//!
//! A control string (a title, a link, data of some program) is collected by the parser until its end comes, whatever
//! its length. What is above a bound is left out here, so that no output makes the parser grow.

use memchr::memchr;
use unicode_width::UnicodeWidthChar;

/// Bytes of a control string that are passed on: far more than any title or link needs.
const STRING: usize = 4 * 1024;

const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;

/// A filter for one stream; sequences may be split anywhere.
#[derive(Debug, Default)]
pub(super) struct Sieve {
    place: Place,
    /// Characters without a width that were passed on: an emulator keeps each of them beside its cell.
    marks: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    Escape,
    /// In a control string, with so many bytes of it.
    String(usize),
}

impl Sieve {
    /// Passes a piece on.
    pub(super) fn pass(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while let Some(first) = bytes.first() {
            let done = match self.place {
                Place::Text => self.text(bytes, out),
                Place::Escape => {
                    self.place = after_escape(*first);
                    out.push(*first);
                    1
                }
                Place::String(length) => self.string(bytes, length, out),
            };
            bytes = &bytes[done..];
        }
    }

    /// Characters without a width so far.
    pub(super) fn marks(&self) -> u64 {
        self.marks
    }

    fn text(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> usize {
        let end = memchr(ESC, bytes).map_or(bytes.len(), |at| {
            self.place = Place::Escape;
            at + 1
        });
        let text = &bytes[..end];
        if !text.is_ascii() {
            let chars = text.utf8_chunks().flat_map(|chunk| chunk.valid().chars());
            self.marks += chars.filter(|c| c.width() == Some(0)).count() as u64;
        }
        out.extend_from_slice(text);
        end
    }

    fn string(&mut self, bytes: &[u8], length: usize, out: &mut Vec<u8>) -> usize {
        let end = bytes
            .iter()
            .position(|b| matches!(*b, ESC | BEL | CAN | SUB));
        let body = &bytes[..end.unwrap_or(bytes.len())];
        let kept = body.len().min(STRING.saturating_sub(length));
        out.extend_from_slice(&body[..kept]);
        self.place = Place::String(length + kept);
        let Some(end) = end else { return bytes.len() };
        out.push(bytes[end]);
        self.place = if bytes[end] == ESC {
            Place::Escape
        } else {
            Place::Text
        };
        end + 1
    }
}

fn after_escape(byte: u8) -> Place {
    match byte {
        b']' => Place::String(0),
        CAN | SUB | 0x20..=0x7e => Place::Text,
        // Another escape, or what is carried out in between.
        _ => Place::Escape,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut sieve, mut out) = (Sieve::default(), Vec::new());
        bytes.chunks(piece).for_each(|p| sieve.pass(p, &mut out));
        out
    }

    #[test]
    fn what_has_an_end_passes_as_it_is_however_it_is_split() {
        let all = "plain é\u{301} \x1b[31mred\x1b]0;title\x07 \x1b]8;;x\x1b\\link\x1b]8;;\x1b\\ \x1bP+q\x1b\\ \x1b\x1b]2;a\x18b";
        for piece in [1, 2, 3, 7, all.len()] {
            assert_eq!(passed(all.as_bytes(), piece), all.as_bytes(), "{piece}");
        }
    }

    #[test]
    fn a_string_without_an_end_stays_small_and_what_follows_its_end_is_there() {
        let mut all = b"a\x1b]0;".to_vec();
        all.extend(vec![b'x'; 1 << 20]);
        all.extend(b"\x07b");
        for piece in [1, 4_096, all.len()] {
            let out = passed(&all, piece);
            assert!(out.len() < STRING + 16, "{} bytes", out.len());
            assert!(out.ends_with(b"\x07b"));
        }
    }

    #[test]
    fn characters_without_a_width_are_counted() {
        let mut sieve = Sieve::default();
        sieve.pass("e\u{301}\u{301}漢 x".as_bytes(), &mut Vec::new());
        assert_eq!(sieve.marks(), 2);
    }
}
