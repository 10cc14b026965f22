//! Lines of a log, with escapes stripped, across page borders.

use ostler_proto::{limits, methods::Line};

use crate::log::{Filter, Log};

/// A line longer than this is given in pieces: a program that never ends its line must not fill our memory.
const LONGEST: usize = 64 * 1024;

/// A cursor that gives lines.
#[derive(Debug)]
pub(crate) struct Lines {
    at: u64,
    /// Offset of the first byte of `rest`.
    from: u64,
    rest: String,
}

impl Lines {
    pub(crate) fn new(since: u64) -> Self {
        Self {
            at: since,
            from: since,
            rest: String::new(),
        }
    }

    /// Reads the next page; the whole lines that became known, or `None` when there is nothing to read.
    pub(crate) fn read(&mut self, log: &Log, last: bool) -> Option<Vec<Line>> {
        let page = log.text(self.at, limits::TAIL_FRAME as usize, Filter::All, last);
        if page.next <= self.at {
            return None;
        }
        if self.rest.is_empty() || page.lost > 0 {
            self.rest.clear();
            self.from = page.from;
        }
        self.at = page.next;
        self.rest.push_str(&page.text);
        Some(self.split())
    }

    /// The line that has not ended yet, if there is one.
    pub(crate) fn unfinished(&self) -> Option<Line> {
        (!self.rest.is_empty()).then(|| Line {
            from: self.from,
            text: strip(&self.rest),
        })
    }

    fn split(&mut self) -> Vec<Line> {
        let mut lines = Vec::new();
        let mut begin = 0;
        while let Some(end) = self.rest[begin..].find('\n').map(|i| begin + i) {
            let text = strip(self.rest[begin..end].trim_end_matches('\r'));
            lines.push(Line {
                from: self.from + begin as u64,
                text,
            });
            begin = end + 1;
        }
        if self.rest.len() - begin > LONGEST {
            let text = strip(&self.rest[begin..]);
            lines.push(Line {
                from: self.from + begin as u64,
                text,
            });
            begin = self.rest.len();
        }
        self.from += begin as u64;
        self.rest.drain(..begin);
        lines
    }
}

fn strip(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}
