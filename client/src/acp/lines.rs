//! Bytes into lines, each with its end as it came. A line above the bound passes in pieces that nobody looks at.

use ostler_proto::limits;

/// Memory that is kept for the next line.
const KEPT: usize = 1024 * 1024;

/// What comes next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A whole line, its end included.
    Line(Vec<u8>),
    /// A piece of a line that is too long to be looked at. `last`: the line ends with it.
    Piece { bytes: Vec<u8>, last: bool },
}

/// Bytes that came and are no whole line yet.
pub(super) struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins.
    at: usize,
    searched: usize,
    most: usize,
    /// Inside a line that is too long.
    passing: bool,
}

impl Default for Lines {
    fn default() -> Self {
        Self::bounded(limits::MESSAGE)
    }
}

impl Lines {
    fn bounded(most: usize) -> Self {
        Self {
            bytes: Vec::new(),
            at: 0,
            searched: 0,
            most,
            passing: false,
        }
    }

    /// Adds what came.
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// What can be passed on now.
    pub(super) fn next(&mut self) -> Option<Next> {
        let new = &self.bytes[self.searched..];
        if let Some(found) = new.iter().position(|b| *b == b'\n') {
            let bytes = self.cut(self.searched + found + 1);
            return Some(if std::mem::take(&mut self.passing) {
                Next::Piece { bytes, last: true }
            } else {
                Next::Line(bytes)
            });
        }
        self.compact();
        self.passing |= self.bytes.len() > self.most;
        if self.passing && !self.bytes.is_empty() {
            let bytes = self.cut(self.bytes.len());
            return Some(Next::Piece { bytes, last: false });
        }
        None
    }

    /// What is left at the end, which has no line end.
    pub(super) fn rest(&mut self) -> Option<Next> {
        let bytes = self.cut(self.bytes.len());
        if std::mem::take(&mut self.passing) {
            return Some(Next::Piece { bytes, last: true });
        }
        (!bytes.is_empty()).then_some(Next::Line(bytes))
    }

    fn cut(&mut self, to: usize) -> Vec<u8> {
        let line = self.bytes[self.at..to].to_vec();
        self.at = to;
        self.searched = to;
        line
    }

    /// Moves what is left to the front, only when nothing whole is left, so that each byte moves once. A long line is no
    /// reason to keep its memory.
    fn compact(&mut self) {
        if self.at == self.bytes.len() && self.bytes.capacity() > KEPT {
            self.bytes = Vec::new();
        } else {
            self.bytes.drain(..self.at);
        }
        self.at = 0;
        self.searched = self.bytes.len();
    }
}

/// A line without its end, and the end.
pub(super) fn split(line: &[u8]) -> (&[u8], &[u8]) {
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    let body = body.strip_suffix(b"\r").unwrap_or(body);
    line.split_at(body.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(lines: &mut Lines) -> Vec<Next> {
        std::iter::from_fn(|| lines.next()).collect()
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_the_bytes_come(text in "[ab\r\n]{0,200}", cut in 1usize..9) {
            let mut lines = Lines::bounded(10);
            let (mut out, mut inside) = (Vec::new(), false);
            let mut take = |next: Next, last: bool| match next {
                Next::Line(line) => {
                    assert!(!inside);
                    assert!(last || line.ends_with(b"\n"));
                    out.extend(line);
                }
                Next::Piece { bytes, last } => {
                    inside = !last;
                    out.extend(bytes);
                }
            };
            for bytes in text.as_bytes().chunks(cut) {
                lines.push(bytes);
                all(&mut lines).into_iter().for_each(|n| take(n, false));
            }
            lines.rest().into_iter().for_each(|n| take(n, true));
            prop_assert_eq!(out, text.into_bytes());
        }
    }

    #[test]
    fn a_line_above_the_bound_passes_in_pieces() {
        let mut lines = Lines::bounded(4);
        lines.push(b"abcde");
        let piece = |bytes: &[u8], last| Next::Piece {
            bytes: bytes.into(),
            last,
        };
        assert_eq!(all(&mut lines), [piece(b"abcde", false)]);
        lines.push(b"fg\nx\n");
        assert_eq!(
            all(&mut lines),
            [piece(b"fg\n", true), Next::Line(b"x\n".into())]
        );
    }

    #[test]
    fn the_end_of_a_line_is_kept() {
        assert_eq!(split(b"a\r\n"), (&b"a"[..], &b"\r\n"[..]));
        assert_eq!(split(b"a\n"), (&b"a"[..], &b"\n"[..]));
        assert_eq!(split(b"a"), (&b"a"[..], &b""[..]));
        assert_eq!(split(b"\n"), (&b""[..], &b"\n"[..]));
    }
}
