//! Lines of a log, with escapes stripped, across page borders, each with the offset of its first byte.

use ostler_proto::{job::Line, limits};

use crate::log::{Filter, Log};

/// A line longer than this is given in pieces: a program that never ends its line must not fill our memory.
const LONGEST: usize = 64 * 1024;

/// A cursor that gives lines. Works on bytes, so that offsets stay true where text is not.
#[derive(Debug)]
pub(crate) struct Lines {
    at: u64,
    /// What was read and has no line end yet; it ends at `at`.
    rest: Vec<u8>,
}

impl Lines {
    pub(crate) fn new(since: u64) -> Self {
        Self {
            at: since,
            rest: Vec::new(),
        }
    }

    /// Offset of the first byte that no given line holds.
    pub(crate) fn next(&self) -> u64 {
        self.at - self.rest.len() as u64
    }

    /// Reads on; the whole lines that became known, or `None` when there is nothing to read.
    pub(crate) fn read(&mut self, log: &Log) -> Option<Vec<Line>> {
        let slice = log.read(self.at, limits::TAIL_FRAME as usize, Filter::All);
        if slice.next <= self.at {
            return None;
        }
        if slice.lost > 0 {
            self.rest.clear();
        }
        self.at = slice.next;
        self.rest.extend_from_slice(&slice.bytes);
        Some(self.split())
    }

    /// The line that has not ended yet, if there is one.
    pub(crate) fn unfinished(&self) -> Option<Line> {
        (!self.rest.is_empty()).then(|| line(self.next(), &self.rest))
    }

    fn split(&mut self) -> Vec<Line> {
        let (begin, mut lines, mut done) = (self.next(), Vec::new(), 0);
        while let Some(end) = self.rest[done..]
            .iter()
            .position(|b| *b == b'\n')
            .map(|i| done + i)
        {
            lines.push(line(begin + done as u64, &self.rest[done..end]));
            done = end + 1;
        }
        if self.rest.len() - done > LONGEST {
            lines.push(line(begin + done as u64, &self.rest[done..]));
            done = self.rest.len();
        }
        self.rest.drain(..done);
        lines
    }
}

fn line(from: u64, bytes: &[u8]) -> Line {
    let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
    if bytes.contains(&b'\r') {
        // Drawn over and over, or behind a prompt: what a person saw last.
        let text = crate::terminal::text::plain(bytes);
        return Line { from, text };
    }
    let text = String::from_utf8_lossy(bytes);
    Line {
        from,
        text: anstream::adapter::strip_str(&text).to_string(),
    }
}
