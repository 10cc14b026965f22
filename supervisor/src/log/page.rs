//! Bytes of a log as text, in pages that never split a character.
//!
//! A page ends before a character that is not complete yet, unless nothing will complete it. Both streams are decoded on
//! their own, so that a character of one may be interrupted by bytes of the other. Invalid bytes become U+FFFD and are
//! counted; the rest of a character whose beginning is gone counts as lost with it.

use super::job_log::Log;
use super::read::{Filter, Slice};

/// An unfinished character is waited for over this many bytes of the other stream, then it is shown as U+FFFD: half a
/// character on stdout must not silence stderr for ever. The number is the usual buffer of a program's stdout, which is
/// where characters are cut.
const PATIENCE: u64 = 4096;

/// One page of text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text {
    /// First offset that this page is about.
    pub from: u64,
    /// Where to read on: always at the beginning of a character.
    pub next: u64,
    /// End of the log at the time.
    pub end: u64,
    /// Bytes missing before `from`, and those of characters that lost a part of themselves there.
    pub lost: u64,
    /// The decoded text.
    pub text: String,
    /// Bytes that were no valid UTF-8.
    pub replaced: u64,
    /// Stream and number of bytes of `text` (its UTF-8), in order; a character stands where its last byte came.
    pub runs: Vec<(u8, u32)>,
    /// The output is closed and all of it has been handed out.
    pub eof: bool,
}

impl Log {
    /// A page of text from offset `from` on: at most `max` bytes of the log, or one character, whichever is more.
    /// `last` says that nothing more is waited for (the job has exited), so that an unfinished character at the end is
    /// shown instead of held back.
    pub fn text(&self, from: u64, max: usize, filter: Filter, last: bool) -> Text {
        let mut want = max.max(1);
        loop {
            let slice = self.read(from, want, filter);
            let rests = self.rests(&slice, filter);
            let page = decode(&slice, last, 0, rests);
            if page.next > slice.from || slice.next == slice.from {
                return page;
            }
            // Held back at its very first byte.
            if slice.next - slice.from >= PATIENCE {
                return decode(&slice, last, slice.from + 1, rests);
            }
            if slice.next == slice.end {
                return hold(from, slice.end);
            }
            want = if want < 4 { want + 1 } else { want * 2 };
        }
    }

    /// How many bytes at the start of each stream may be the rest of a character whose beginning is lost: 3 right behind
    /// a gap. A stream may also have been silent since the gap; the cursor does not tell, so the log is asked, and only
    /// if the page begins with such bytes.
    fn rests(&self, slice: &Slice, filter: Filter) -> [usize; 2] {
        if slice.lost > 0 {
            return [3; 2];
        }
        let mut rests = [0; 2];
        if !(parts(slice, slice.next)
            .iter()
            .any(|p| p.bytes.first().is_some_and(|b| is_continuation(*b))))
        {
            return rests;
        }
        let mut at = slice.from.saturating_sub(PATIENCE);
        while at < slice.from {
            let before = self.read(at, (slice.from - at) as usize, filter);
            if before.lost > 0 {
                rests = [3; 2];
            }
            for part in parts(&before, slice.from) {
                let rest = &mut rests[usize::from(part.stream)];
                let n = part
                    .bytes
                    .iter()
                    .take(*rest)
                    .take_while(|b| is_continuation(**b))
                    .count();
                *rest = if n == part.bytes.len() { *rest - n } else { 0 };
            }
            if before.next <= at {
                break;
            }
            at = before.next;
        }
        rests
    }
}

/// Nothing yet. The loss before it is told with the first text behind it, because only then the characters that were
/// cut by that loss are known.
fn hold(from: u64, end: u64) -> Text {
    Text {
        from,
        next: from,
        end,
        ..Text::default()
    }
}

/// The text of one slice. Holds back an unfinished character at its end unless `last` is set or the output is closed;
/// those that begin before `patience_until` are shown.
fn decode(slice: &Slice, last: bool, patience_until: u64, rests: [usize; 2]) -> Text {
    let nothing_follows = slice.eof || last && slice.next == slice.end;
    let next = match nothing_follows || slice.gap_follows {
        true => slice.next,
        false => cut(slice, patience_until),
    };
    let mut parts = parts(slice, next);
    let mut page = Text {
        from: slice.from,
        next,
        end: slice.end,
        lost: slice.lost,
        eof: slice.eof && next == slice.next,
        ..Text::default()
    };
    if rests != [0; 2] {
        page.lost += trim_front(&mut parts, rests);
        page.from = parts
            .iter()
            .find(|p| !p.bytes.is_empty())
            .map_or(next, |p| p.at);
    }
    if slice.gap_follows {
        page.lost += trim_back(slice, &mut parts);
    }
    let mut decoder = Decoder {
        page,
        carry: Default::default(),
    };
    for part in &parts {
        decoder.add(part.stream, part.bytes);
    }
    decoder.finish()
}

/// A run with its bytes.
struct Part<'a> {
    stream: u8,
    at: u64,
    bytes: &'a [u8],
}

/// The runs of a slice up to offset `until`.
fn parts(slice: &Slice, until: u64) -> Vec<Part<'_>> {
    let mut passed = 0;
    let mut parts = Vec::with_capacity(slice.runs.len());
    for (&(stream, n), &at) in slice.runs.iter().zip(&slice.starts) {
        let bytes = &slice.bytes[passed..passed + n as usize];
        passed += n as usize;
        if at < until {
            let n = bytes.len().min((until - at) as usize);
            parts.push(Part {
                stream,
                at,
                bytes: &bytes[..n],
            });
        }
    }
    parts
}

/// The largest offset at which no stream is inside a character.
fn cut(slice: &Slice, patience_until: u64) -> u64 {
    let all = parts(slice, slice.next);
    let mut at = slice.next;
    loop {
        let before = parts(slice, at);
        let straddling = [0, 1].into_iter().filter_map(|stream| {
            let (start, bytes) = unfinished(&before, stream)?;
            may_go_on(&bytes, byte_behind(&all, stream, at)).then_some(start)
        });
        match straddling.filter(|start| *start >= patience_until).min() {
            Some(start) => at = start,
            None => return at,
        }
    }
}

/// Whether an unfinished character is one still, given the next byte of its stream; unknown is yes.
fn may_go_on(bytes: &[u8], next: Option<u8>) -> bool {
    let Some(next) = next else { return true };
    let longer = [bytes, &[next]].concat();
    begins_unfinished(&longer) || std::str::from_utf8(&longer).is_ok()
}

/// The first byte of a stream at or behind an offset.
fn byte_behind(parts: &[Part<'_>], stream: u8, at: u64) -> Option<u8> {
    let first = parts
        .iter()
        .find(|p| p.stream == stream && p.at + p.bytes.len() as u64 > at)?;
    first
        .bytes
        .get(at.saturating_sub(first.at) as usize)
        .copied()
}

/// The character that this stream has left unfinished, if it has: where it begins, and its bytes so far.
fn unfinished(parts: &[Part<'_>], stream: u8) -> Option<(u64, Vec<u8>)> {
    let mut tail = [0u8; 3];
    let mut kept = 0;
    for part in parts.iter().rev().filter(|p| p.stream == stream) {
        for (i, byte) in part.bytes.iter().enumerate().rev() {
            kept += 1;
            tail[3 - kept] = *byte;
            // A first byte of a character can be nothing else, so what stands before it does not matter.
            if begins_unfinished(&tail[3 - kept..]) {
                return Some((part.at + i as u64, tail[3 - kept..].to_vec()));
            }
            if kept == 3 || !is_continuation(*byte) {
                return None;
            }
        }
    }
    None
}

fn begins_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

fn is_continuation(byte: u8) -> bool {
    byte & 0xc0 == 0x80
}

/// Takes the ends of characters away whose beginning is lost, at most so many bytes a stream, and counts them.
fn trim_front(parts: &mut [Part<'_>], rests: [usize; 2]) -> u64 {
    let mut trimmed = 0;
    for stream in [0, 1] {
        let mut left = rests[usize::from(stream)];
        for part in parts.iter_mut().filter(|p| p.stream == stream) {
            let n = part
                .bytes
                .iter()
                .take(left)
                .take_while(|b| is_continuation(**b))
                .count();
            part.bytes = &part.bytes[n..];
            part.at += n as u64;
            trimmed += n as u64;
            left -= n;
            if !part.bytes.is_empty() {
                break;
            }
        }
    }
    trimmed
}

/// Takes the beginnings of characters away whose end is lost, and counts them.
fn trim_back(slice: &Slice, parts: &mut [Part<'_>]) -> u64 {
    let mut trimmed = 0;
    for stream in [0, 1] {
        let Some((start, _)) = unfinished(parts, stream) else {
            continue;
        };
        for part in parts.iter_mut().filter(|p| p.stream == stream) {
            let keep = (start.saturating_sub(part.at)).min(part.bytes.len() as u64) as usize;
            trimmed += (part.bytes.len() - keep) as u64;
            part.bytes = &part.bytes[..keep];
        }
    }
    debug_assert!(trimmed <= slice.bytes.len() as u64);
    trimmed
}

/// Decodes runs of two streams, each with the bytes of its unfinished character.
struct Decoder {
    page: Text,
    carry: [Vec<u8>; 2],
}

impl Decoder {
    fn add(&mut self, stream: u8, bytes: &[u8]) {
        let carry = std::mem::take(&mut self.carry[usize::from(stream)]);
        if carry.is_empty() {
            self.decode(stream, bytes);
        } else {
            self.decode(stream, &[carry.as_slice(), bytes].concat());
        }
    }

    fn decode(&mut self, stream: u8, bytes: &[u8]) {
        let before = self.page.text.len();
        let mut passed = 0;
        for chunk in bytes.utf8_chunks() {
            self.page.text.push_str(chunk.valid());
            let bad = chunk.invalid();
            passed += chunk.valid().len() + bad.len();
            if passed == bytes.len() && begins_unfinished(bad) {
                self.carry[usize::from(stream)] = bad.to_vec();
            } else if !bad.is_empty() {
                self.replace(bad.len());
            }
        }
        self.note(stream, before);
    }

    fn replace(&mut self, n: usize) {
        self.page.text.push(char::REPLACEMENT_CHARACTER);
        self.page.replaced += n as u64;
    }

    fn note(&mut self, stream: u8, before: usize) {
        let n = (self.page.text.len() - before) as u32;
        match self.page.runs.last_mut() {
            _ if n == 0 => {}
            Some(last) if last.0 == stream => last.1 += n,
            _ => self.page.runs.push((stream, n)),
        }
    }

    /// What is still unfinished now is so for good.
    fn finish(mut self) -> Text {
        for stream in [0, 1] {
            let rest = std::mem::take(&mut self.carry[usize::from(stream)]);
            if !rest.is_empty() {
                let before = self.page.text.len();
                self.replace(rest.len());
                self.note(stream, before);
            }
        }
        self.page
    }
}
