//! Lines of a log, with escapes stripped, across page borders, each with the offset of its first byte.

use std::{borrow::Cow, ops::ControlFlow};

use ostler_proto::{job::Line, limits};

use crate::{
    log::{Filter, Log},
    terminal::text,
};

/// A line longer than this is given in pieces: a program that never ends its line must not fill our memory.
const LONGEST: usize = 64 * 1024;

/// A cursor that shows lines. Works on bytes, so that offsets stay true where text is not.
#[derive(Debug)]
pub(crate) struct Lines {
    at: u64,
    /// What was read and has no line end yet; it ends at `at`.
    rest: Vec<u8>,
    lost: u64,
}

/// A line as it stands in the log. Most of those that are searched are looked at once and never kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    /// Offset of its first byte.
    pub(crate) from: u64,
    bytes: &'a [u8],
}

impl<'a> Raw<'a> {
    /// Its text without the line end and without escapes.
    pub(crate) fn text(self) -> Cow<'a, str> {
        let bytes = self.bytes.strip_suffix(b"\r").unwrap_or(self.bytes);
        match str::from_utf8(bytes) {
            Ok(text) if is_plain(bytes) => Cow::Borrowed(text),
            // Drawn over and over, or behind a prompt: what a person saw last.
            _ if bytes.contains(&b'\r') => Cow::Owned(text::plain(bytes)),
            _ => {
                let text = String::from_utf8_lossy(bytes);
                Cow::Owned(anstream::adapter::strip_str(&text).to_string())
            }
        }
    }

    /// The line as it is told.
    pub(crate) fn line(self) -> Line {
        Line {
            from: self.from,
            text: self.text().into_owned(),
            ..Line::default()
        }
    }
}

/// Tells whether nothing is in it that could be an escape. Looks at every byte, which is quicker than to look for the
/// first.
fn is_plain(bytes: &[u8]) -> bool {
    let plain = |b: u8| (b >= 0x20 && b != 0x7f) || b == b'\t';
    bytes.iter().fold(true, |all, b| all & plain(*b))
}

impl Lines {
    pub(crate) fn new(since: u64) -> Self {
        Self {
            at: since,
            rest: Vec::new(),
            lost: 0,
        }
    }

    /// Bytes on the way that nobody has any more.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Offset of the first byte that no shown line holds.
    pub(crate) fn next(&self) -> u64 {
        self.at - self.rest.len() as u64
    }

    /// Reads on and shows the whole lines that became known; `None` when there is nothing to read. A line at which the
    /// reader breaks is not taken: the next one begins there, and the reader is done.
    pub(crate) fn read(
        &mut self,
        log: &Log,
        see: impl FnMut(Raw<'_>) -> ControlFlow<()>,
    ) -> Option<ControlFlow<()>> {
        let slice = log.read(self.at, limits::TAIL_FRAME as usize, Filter::All);
        if slice.next <= self.at {
            return None;
        }
        if slice.lost > 0 {
            self.rest.clear();
            self.lost += slice.lost;
        }
        self.at = slice.next;
        self.rest.extend_from_slice(&slice.bytes);
        Some(self.show(see))
    }

    /// The line that has not ended yet, if there is one.
    pub(crate) fn unfinished(&self) -> Option<Raw<'_>> {
        (!self.rest.is_empty()).then(|| Raw {
            from: self.next(),
            bytes: &self.rest,
        })
    }

    fn show(&mut self, mut see: impl FnMut(Raw<'_>) -> ControlFlow<()>) -> ControlFlow<()> {
        let begin = self.next();
        let (mut done, mut flow) = (0, ControlFlow::Continue(()));
        let mut take = |done: &mut usize, end: usize, next: usize| {
            let raw = Raw {
                from: begin + *done as u64,
                bytes: &self.rest[*done..end],
            };
            let flow = see(raw);
            if flow.is_continue() {
                *done = next;
            }
            flow
        };
        for end in memchr::memchr_iter(b'\n', &self.rest) {
            flow = take(&mut done, end, end + 1);
            if flow.is_break() {
                break;
            }
        }
        let all = self.rest.len();
        if flow.is_continue() && all - done > LONGEST {
            flow = take(&mut done, all, all);
        }
        self.rest.drain(..done);
        flow
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(bytes: &[u8]) -> String {
        Raw { from: 0, bytes }.text().into_owned()
    }

    #[test]
    fn escapes_and_line_ends_are_no_text() {
        assert_eq!(text(b"\x1b[31mred\x1b[0m\r"), "red");
        assert_eq!(text(b"a\xffb"), "a\u{fffd}b");
    }

    proptest! {
        /// The short way gives what the long one gives.
        #[test]
        fn a_line_that_looks_plain_has_nothing_to_strip(line in r"[\t -~\x{80}-\x{2fff}]{0,40}") {
            let stripped = anstream::adapter::strip_str(&line).to_string();
            prop_assert_eq!(text(line.as_bytes()), stripped);
        }

        #[test]
        fn lines_are_those_between_line_ends(bytes in "[a\n]{0,60}", stop in 0_usize..20) {
            let mut lines = Lines { at: bytes.len() as u64, rest: bytes.clone().into_bytes(), lost: 0 };
            let mut seen = Vec::new();
            let flow = lines.show(|raw| {
                if seen.len() == stop {
                    return ControlFlow::Break(());
                }
                seen.push((raw.from as usize, raw.text().into_owned()));
                ControlFlow::Continue(())
            });
            let whole = bytes.matches('\n').count();
            prop_assert_eq!(seen.len(), whole.min(stop));
            prop_assert_eq!(flow.is_break(), whole > stop);
            for (from, text) in seen {
                prop_assert_eq!(&bytes[from..=from + text.len()], format!("{text}\n"));
            }
            let next = lines.next() as usize;
            prop_assert_eq!(lines.unfinished().map_or(String::new(), |raw| raw.text().replace('\n', "n")),
                bytes[next..].replace('\n', "n"));
        }
    }
}
