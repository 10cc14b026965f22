//! Reading a log at an offset: from the ring, from the spill, or a number of bytes that are gone.
//!
//! Takes no lock against the pump and consumes nothing, so readers never disturb each other or the job. A read copies
//! first and asks afterwards whether the copy was still true; what moved away meanwhile is taken from the spill, or
//! counted as lost.

use std::io;

use crate::disk;

use super::arena::Word;
use super::job_log::Log;
use super::runs::Run;

/// Bytes looked through by one call when a filter hides most of them.
const SCAN: u64 = 64 * 1024;
/// Most bytes copied before `head` is looked at again: small enough that a flooding job seldom gets past the reader.
const PIECE: u64 = 32 * 1024;

/// Which stream is wanted. Offsets are those of the whole log all the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Filter {
    /// Both, in order of arrival.
    #[default]
    All,
    /// Stream 0; also everything of a terminal.
    Stdout,
    /// Stream 1.
    Stderr,
}

impl Filter {
    pub(crate) fn wants(self, stream: u8) -> bool {
        match self {
            Filter::All => true,
            Filter::Stdout => stream == 0,
            Filter::Stderr => stream == 1,
        }
    }
}

/// What one read found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// First offset that this slice is about, behind what was lost; never beyond the end.
    pub from: u64,
    /// Where to read on.
    pub next: u64,
    /// End of the log at the time.
    pub end: u64,
    /// Bytes between the offset asked for and `from` that nobody has any more (of both streams, whatever the filter).
    pub lost: u64,
    /// The bytes of the wanted streams.
    pub bytes: Vec<u8>,
    /// Whose they are: stream (0 stdout, 1 stderr) and number of bytes, in order.
    pub runs: Vec<(u8, u32)>,
    /// The output is closed and `next` is its end.
    pub eof: bool,
    /// Offset of each run's first byte; with a filter they do not touch.
    pub(super) starts: Vec<u64>,
    /// Bytes are missing right behind `next`.
    pub(super) gap_follows: bool,
}

/// What is kept, as one consistent look at the header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    hole_from: u64,
    floor: u64,
    spilled: u64,
    head: u64,
    pub(super) end: u64,
}

/// What came of one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Took {
    Some,
    /// It moved away meanwhile; the next look finds it elsewhere or counts it.
    Nothing,
    /// It is there, but we are out of descriptors or memory: the caller asks again later.
    NotNow,
}

/// Where some bytes stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Ring,
    Spill,
}

impl Kept {
    /// The order matters: whatever leaves the ring is spilled before, so `head` is read before `spilled`; the same for
    /// `floor`. A stale lower value is found out after the copy, a stale higher one would be a false loss.
    pub(super) fn look(log: &Log) -> Kept {
        let slot = log.slot();
        let head = slot.get(Word::Head);
        let hole_from = slot.get(Word::HoleFrom);
        let floor = slot.get(Word::Floor);
        let spilled = if log.spill_is_readable() {
            slot.get(Word::Spilled)
        } else {
            0
        };
        Kept {
            hole_from: hole_from.min(spilled),
            floor,
            spilled,
            head,
            end: slot.get(Word::End),
        }
    }

    /// The first offset at or behind `at` that is kept, where it stands, and how far in one piece.
    fn find(&self, at: u64) -> Option<(u64, Place, u64)> {
        if at >= self.end {
            None
        } else if at >= self.head {
            Some((at, Place::Ring, self.end))
        } else if at < self.hole_from {
            Some((at, Place::Spill, self.hole_from))
        } else if at.max(self.floor) < self.spilled.min(self.head) {
            Some((at.max(self.floor), Place::Spill, self.spilled))
        } else if self.head < self.end {
            Some((self.head, Place::Ring, self.end))
        } else {
            None
        }
    }

    /// Bytes that are in neither ring nor spill.
    pub(super) fn lost(&self) -> u64 {
        let first = self.hole_from.min(self.head);
        let second = self
            .spilled
            .min(self.head)
            .saturating_sub(self.floor.max(first));
        self.head - first - second
    }
}

impl Log {
    /// Reads at most `max` bytes (0 counts as 1) from offset `from` on.
    ///
    /// An offset beyond the end answers nothing and the true end as `next`. With a filter the call may answer nothing
    /// although `next` moved: it looks through a bounded part of the log only.
    pub fn read(&self, from: u64, max: usize, filter: Filter) -> Slice {
        let max = max.max(1) as u64;
        let kept = Kept::look(self);
        let mut page = Slice {
            end: kept.end,
            from: from.min(kept.end),
            next: from.min(kept.end),
            ..Slice::default()
        };
        let scan = if filter == Filter::All {
            max
        } else {
            max.max(SCAN)
        };
        let mut fresh = true;
        while (page.bytes.len() as u64) < max {
            let kept = Kept::look(self);
            page.end = kept.end;
            let found = kept.find(page.next);
            let at = kept_from(&kept, page.next);
            if at > page.next {
                if !fresh {
                    break;
                }
                page.skip_to(at);
            }
            let Some((_, place, until)) = found else {
                break;
            };
            if !fresh && at - page.from >= scan {
                break;
            }
            let to = until.min(at + piece(max - page.bytes.len() as u64, filter));
            match self.take(&mut page, place, at, to, max, filter) {
                Took::Some => fresh = false,
                Took::Nothing => {}
                Took::NotNow => break,
            }
        }
        page.gap_follows = kept_from(&Kept::look(self), page.next) > page.next;
        page.eof = self.is_sealed() && page.next == self.end();
        page
    }

    /// Adds what is true of `at..to`.
    fn take(
        &self,
        page: &mut Slice,
        place: Place,
        at: u64,
        to: u64,
        max: u64,
        filter: Filter,
    ) -> Took {
        let mut bytes = Vec::new();
        let mut runs = Vec::new();
        let to = match place {
            Place::Ring => self.copy_ring(at, to, &mut bytes, &mut runs),
            Place::Spill => match self.copy_spill(at, to, &mut bytes, &mut runs) {
                Some(to) => to,
                None => return Took::NotNow,
            },
        };
        if to <= at {
            return Took::Nothing;
        }
        let mut passed = 0;
        for run in runs {
            let n = (run.to - run.from).min(max - page.bytes.len() as u64);
            if filter.wants(run.stream) {
                page.add(run.stream, run.from, &bytes[passed..passed + n as usize]);
                page.next = run.from + n;
                if page.bytes.len() as u64 == max {
                    break;
                }
            } else {
                page.next = run.to;
            }
            passed += (run.to - run.from) as usize;
        }
        Took::Some
    }

    /// Copies `at..to` of the ring with its runs, and returns how far both are true; `at` when the start moved away.
    fn copy_ring(&self, at: u64, to: u64, bytes: &mut Vec<u8>, runs: &mut Vec<Run>) -> u64 {
        let slot = self.slot();
        // `head` was read before `end`, and a flooding job may have passed a whole ring in between.
        let to = to.min(at + slot.capacity());
        let head = slot.copy(at, to, bytes);
        if head > at {
            return at;
        }
        slot.runs_in_memory(at, to, runs);
        if slot.get(Word::Head) > at {
            return at;
        }
        runs.last().map_or(at, |run| run.to)
    }

    /// The same from the spill; `None` when it cannot be asked just now. A file that cannot be read any more is given
    /// up as a whole: its bytes become a gap.
    fn copy_spill(
        &self,
        at: u64,
        to: u64,
        bytes: &mut Vec<u8>,
        runs: &mut Vec<Run>,
    ) -> Option<u64> {
        let slot = self.slot();
        let Some(spill) = self.spill() else {
            return Some(at);
        };
        bytes.resize((to - at) as usize, 0);
        let read = disk::in_place(|| {
            spill
                .read(slot, at, bytes)
                .and_then(|()| spill.runs(slot, at, to, runs))
        });
        let still = at >= slot.get(Word::Floor) || to <= slot.get(Word::HoleFrom);
        match read {
            Err(e) if is_passing(&e) => None,
            _ if !still => Some(at),
            Ok(told) if told > at => Some(told),
            _ => {
                self.give_up_spill();
                Some(at)
            }
        }
    }
}

/// Failures that say something about us at this moment, not about the file.
fn is_passing(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::EINTR)
    )
}

/// The first offset at or behind `at` that is kept, or will be.
fn kept_from(kept: &Kept, at: u64) -> u64 {
    kept.find(at).map_or(kept.end, |(at, ..)| at).max(at)
}

/// Bytes to look at next: what is still wanted, or more when most of it may be another stream's.
fn piece(wanted: u64, filter: Filter) -> u64 {
    match filter {
        Filter::All => wanted.min(PIECE),
        _ => wanted.clamp(PIECE / 8, PIECE),
    }
}

impl Slice {
    fn skip_to(&mut self, at: u64) {
        self.lost += at - self.next;
        self.from = at;
        self.next = at;
    }

    fn add(&mut self, stream: u8, from: u64, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let n = bytes.len() as u32;
        if let (Some(last), Some(start)) = (self.runs.last_mut(), self.starts.last())
            && last.0 == stream
            && start + u64::from(last.1) == from
        {
            last.1 += n;
            return;
        }
        self.runs.push((stream, n));
        self.starts.push(from);
    }
}
