//! Run tags: which stream each byte of a log came from.
//!
//! A tag is one word, `end << 1 | stream`: the run of that stream ends there and begins where the tag before it ends.
//! While one stream alone has written there are no tags, only two flag bits. Tags are written before `end` is raised and
//! writing one again changes nothing, so a crash anywhere in between is repaired by doing it once more. When the table
//! is full the oldest tag goes, and the ring's head rises with it: a byte of unknown origin is never shown.

use std::sync::atomic::{Ordering, fence};

use super::arena::Word;
use super::job_log::flag;
use super::ring::Slot;

/// A run of bytes of one stream, clipped to what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) stream: u8,
    pub(super) from: u64,
    pub(super) to: u64,
}

pub(super) fn end_of(tag: u64) -> u64 {
    tag >> 1
}

pub(super) fn stream_of(tag: u64) -> u8 {
    (tag & 1) as u8
}

fn pack(end: u64, stream: u8) -> u64 {
    end << 1 | u64::from(stream & 1)
}

/// Who has written so far, when it was one stream alone (or nobody, which reads as stdout).
fn lone(flags: u64) -> u8 {
    u8::from(flags & flag::LONE_STDERR != 0)
}

impl Slot {
    /// New tags that bytes of `stream` would need: none, one, or two when the second stream writes for the first time.
    pub(super) fn tags_needed(&self, stream: u8) -> u64 {
        let n = self.get(Word::RunsEnd);
        if n > 0 {
            return u64::from(stream_of(self.tag(n - 1).load(Ordering::Acquire)) != stream);
        }
        let flags = self.get(Word::Flags);
        let alone = self.get(Word::End) == 0 || flags & flag::LONE == 0 || lone(flags) == stream;
        if alone { 0 } else { 2 }
    }

    /// Notes that `base..end` came from `stream`. Before `end` is raised, and safe to repeat.
    pub(super) fn tag_run(&self, stream: u8, base: u64, end: u64) {
        let n = self.get(Word::RunsEnd);
        if n == 0 {
            let flags = self.get(Word::Flags);
            if base == 0 || flags & flag::LONE == 0 {
                self.set_lone(stream);
                return;
            }
            if lone(flags) == stream {
                return;
            }
            self.push_tag(pack(base, lone(flags)));
        } else {
            let last = self.tag(n - 1).load(Ordering::Acquire);
            if end_of(last) >= end {
                return; // Done before the crash that we are repairing.
            }
            if stream_of(last) == stream {
                self.tag(n - 1).store(pack(end, stream), Ordering::Release);
                return;
            }
        }
        self.push_tag(pack(end, stream));
    }

    fn set_lone(&self, stream: u8) {
        let bits = flag::LONE | if stream == 0 { 0 } else { flag::LONE_STDERR };
        let all = flag::LONE | flag::LONE_STDERR;
        if self.get(Word::Flags) & all != bits {
            // The other bits belong to the spill writer as well, hence not a plain store.
            self.word(Word::Flags)
                .fetch_update(Ordering::AcqRel, Ordering::Acquire, |f| {
                    Some(f & !all | bits)
                })
                .ok();
        }
    }

    fn push_tag(&self, tag: u64) {
        let n = self.get(Word::RunsEnd);
        let oldest = self.get(Word::RunsHead);
        if n - oldest == self.max_runs() {
            let gone = end_of(self.tag(oldest).load(Ordering::Acquire));
            self.raise_before(Word::Head, gone);
            self.raise_before(Word::RunsHead, oldest + 1);
        }
        self.tag(n).store(tag, Ordering::Release);
        self.set(Word::RunsEnd, n + 1);
    }

    /// Takes back tags of bytes that never arrived: after a crash between the tag and `end`.
    pub(super) fn trim_tags(&self) {
        let end = self.get(Word::End);
        let oldest = self.get(Word::RunsHead);
        let mut n = self.get(Word::RunsEnd);
        while n > oldest && end_of(self.tag(n - 1).load(Ordering::Acquire)) > end {
            let before = if n - 1 > oldest {
                end_of(self.tag(n - 2).load(Ordering::Acquire))
            } else {
                0
            };
            if before < end {
                let stream = stream_of(self.tag(n - 1).load(Ordering::Acquire));
                self.tag(n - 1).store(pack(end, stream), Ordering::Release);
                return;
            }
            n -= 1;
            self.set(Word::RunsEnd, n);
        }
    }

    /// Appends the runs of `from..to` as far as the tags in memory know them. Only true if `head` is still at or below
    /// `from` afterwards, since tags are overwritten as bytes are.
    pub(super) fn runs_in_memory(&self, from: u64, to: u64, out: &mut Vec<Run>) {
        let kept = out.len();
        loop {
            let oldest = self.get(Word::RunsHead);
            let n = self.get(Word::RunsEnd);
            if n == 0 {
                let stream = lone(self.get(Word::Flags));
                out.push(Run { stream, from, to });
            } else {
                let tag = |i| Some(self.tag(i).load(Ordering::Acquire));
                collect(oldest.min(n), n, from, to, tag, out);
            }
            fence(Ordering::SeqCst);
            // A tag that went meanwhile may have misled the search even if its own bytes were not asked for.
            if self.get(Word::RunsHead) == oldest {
                return;
            }
            out.truncate(kept);
        }
    }
}

/// Appends the runs of `from..to` found among tags `lo..hi`, and returns how far they reach.
pub(super) fn collect(
    lo: u64,
    hi: u64,
    from: u64,
    to: u64,
    mut tag: impl FnMut(u64) -> Option<u64>,
    out: &mut Vec<Run>,
) -> u64 {
    let (mut first, mut behind) = (lo, hi);
    while first < behind {
        let middle = first + (behind - first) / 2;
        match tag(middle) {
            Some(t) if end_of(t) > from => behind = middle,
            Some(_) => first = middle + 1,
            None => return from,
        }
    }
    let mut at = from;
    while at < to && first < hi {
        let Some(t) = tag(first) else { break };
        let end = end_of(t).min(to);
        if end > at {
            push_run(out, stream_of(t), at, end);
            at = end;
        }
        first += 1;
    }
    at
}

/// Appends a run, joining it with the one before when they touch.
pub(super) fn push_run(out: &mut Vec<Run>, stream: u8, from: u64, to: u64) {
    match out.last_mut() {
        Some(last) if last.stream == stream && last.to == from => last.to = to,
        _ => out.push(Run { stream, from, to }),
    }
}
