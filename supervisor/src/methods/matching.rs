//! `job/read` with `match`: one page of lines that match, with their context, over ring and spill.

use std::{
    collections::VecDeque,
    ops::ControlFlow::{self, Break, Continue},
};

use ostler_proto::{
    job::{Line, Page},
    limits,
    methods::Read,
    refusal::Refusal,
};
use regex::Regex;

use super::compile;
use crate::{
    job::Job,
    life::plan::within,
    lines::{Lines, Raw},
};

/// What is looked for, and what was found so far.
pub(super) struct Matching {
    pattern: Regex,
    context: usize,
    /// Bytes that the lines may have, their ends counted.
    max: u64,
    lines: Vec<Line>,
    bytes: u64,
    /// The last lines that did not match.
    before: VecDeque<Line>,
    /// Lines that still belong to the last match.
    after: usize,
    /// Lines were left out since the last one that was kept.
    skipped: bool,
}

impl Matching {
    /// What a request looks for, if that is lines.
    pub(super) fn of(params: &Read, max: u64) -> Result<Option<Self>, Refusal> {
        within("context", params.context, 0, limits::CONTEXT)?;
        let Some(pattern) = &params.pattern else {
            return match params.context {
                Some(_) => Err(Refusal::bad("context", "needs `match`")),
                None => Ok(None),
            };
        };
        let others = [
            ("waitMs", params.wait_ms.is_some()),
            ("stream", params.stream.is_some()),
            ("strict", params.strict),
        ];
        if let Some((field, _)) = others.iter().find(|(_, given)| *given) {
            return Err(Refusal::bad(field, "and `match` exclude each other"));
        }
        Ok(Some(Self {
            pattern: compile("match", pattern)?,
            context: params.context.unwrap_or(0) as usize,
            max,
            lines: Vec::new(),
            bytes: 0,
            before: VecDeque::new(),
            after: 0,
            skipped: false,
        }))
    }

    /// Looks from an offset on, until the page is full or all is seen.
    pub(super) async fn page(mut self, job: &Job, since: u64) -> Page {
        let mut lines = Lines::new(since.min(job.log.end()));
        let (mut full, mut over) = (self.max == 0, false);
        while !over && !full {
            let turn = super::search().await;
            match lines.read(&job.log, |raw| self.see(raw)) {
                Some(flow) => full = flow.is_break(),
                None => over = true,
            }
            drop(turn);
            // A long log must not hold a worker of the house.
            tokio::task::yield_now().await;
        }
        if over && let Some(raw) = lines.unfinished() {
            full = self.see(raw).is_break();
        }
        let next = match self.before.front() {
            // They belong to the match that begins the next page.
            Some(line) if full => line.from,
            _ => lines.next(),
        };
        Page {
            from: since,
            next,
            end: job.log.end(),
            lost: lines.lost(),
            eof: over && !full && job.log.is_sealed(),
            lines: self.lines,
            ..Page::default()
        }
    }

    /// Looks at a line; breaks at one for which the page has no room.
    fn see(&mut self, raw: Raw<'_>) -> ControlFlow<()> {
        let text = raw.text();
        let matches = self.pattern.is_match(&text);
        if !matches && self.after == 0 {
            self.pass(raw);
            return Continue(());
        }
        let before = self
            .before
            .iter()
            .filter(|_| matches)
            .map(size)
            .sum::<u64>();
        let room = self.max - self.bytes;
        let mut line = Line {
            context: !matches,
            ..raw.line()
        };
        if before + size(&line) <= room {
            if matches {
                for line in std::mem::take(&mut self.before) {
                    self.keep(line);
                }
            }
        } else if self.lines.is_empty() {
            // A page that is too small even for the first: its beginning is told, or nobody would ever get past it.
            self.skipped |= !self.before.is_empty();
            self.before.clear();
            cut(&mut line, room);
        } else {
            return Break(());
        }
        self.after = if matches {
            self.context
        } else {
            self.after - 1
        };
        self.keep(line);
        Continue(())
    }

    /// Remembers a line that may be the context of the next match.
    fn pass(&mut self, raw: Raw<'_>) {
        if self.before.len() == self.context {
            self.skipped = true;
            self.before.pop_front();
        }
        if self.context > 0 {
            self.before.push_back(Line {
                context: true,
                ..raw.line()
            });
        }
    }

    fn keep(&mut self, mut line: Line) {
        let skipped = std::mem::take(&mut self.skipped);
        line.skipped = skipped && !self.lines.is_empty();
        self.bytes += size(&line);
        self.lines.push(line);
    }
}

/// What a line takes of a page.
fn size(line: &Line) -> u64 {
    line.text.len() as u64 + 1
}

fn cut(line: &mut Line, room: u64) {
    let most = room.saturating_sub(1) as usize;
    if line.text.len() > most {
        line.text.truncate(line.text.floor_char_boundary(most));
        line.cut = true;
    }
}
