//! Where the newest part of a log begins: so many bytes, or so many lines.

use crate::log::{Filter, Log};

/// Bytes that are looked at in one go, from the end backwards.
const PIECE: u64 = 64 * 1024;

/// Where the newest page begins: at a line's start if there is one in it.
pub(super) fn newest(log: &Log, max: u64) -> u64 {
    let end = log.end();
    let start = end.saturating_sub(max).max(if log.spill_path().is_some() {
        0
    } else {
        log.head()
    });
    if start == 0 {
        return 0;
    }
    let slice = log.read(start - 1, (max + 1) as usize, Filter::All);
    let line = slice
        .bytes
        .iter()
        .position(|b| *b == b'\n')
        .map(|i| slice.from + i as u64 + 1);
    line.filter(|at| *at < end).unwrap_or(start)
}

/// Where the last `wanted` lines begin; of one stream alone where the others are not wanted. A line without its end
/// is one, too. 0 when there are not so many.
pub(super) async fn last_lines(log: &Log, wanted: u64, filter: Filter) -> u64 {
    let end = log.end();
    if wanted == 0 {
        return end;
    }
    let (mut upto, mut count) = (end, Count::new(wanted));
    while upto > 0 {
        let from = upto.saturating_sub(PIECE);
        if let Some(begin) = count.within(log, from, upto, filter) {
            return begin;
        }
        upto = from;
        // A long log must not hold a worker of the house.
        tokio::task::yield_now().await;
    }
    0
}

/// The line ends that are still to be passed on the way back.
struct Count {
    left: u64,
    /// The last byte of all ends the last line, and begins none.
    at_the_end: bool,
}

impl Count {
    fn new(wanted: u64) -> Self {
        Self {
            left: wanted,
            at_the_end: true,
        }
    }

    /// Passes the line ends of a piece, the last one first; returns where the first line that is wanted begins.
    fn within(&mut self, log: &Log, from: u64, upto: u64, filter: Filter) -> Option<u64> {
        let (mut ends, mut last, mut at) = (Vec::new(), None, from);
        while at < upto {
            let slice = log.read(at, (upto - at) as usize, Filter::All);
            if slice.next <= at {
                break;
            }
            let (mut first, mut bytes) = (slice.from, slice.bytes.as_slice());
            for (stream, n) in slice.runs {
                let (run, rest) = bytes.split_at(n as usize);
                // Where bytes are gone, the slice may begin behind the piece.
                let within = upto.saturating_sub(first).min(u64::from(n));
                let run = &run[..within as usize];
                if filter.wants(stream) && !run.is_empty() {
                    ends.extend(memchr::memchr_iter(b'\n', run).map(|i| first + i as u64));
                    last = Some(first + within - 1);
                }
                (first, bytes) = (first + u64::from(n), rest);
            }
            at = slice.next;
        }
        if self.at_the_end && last.is_some() {
            self.at_the_end = false;
            ends.pop_if(|end| Some(*end) == last);
        }
        let begins = ends.len().checked_sub(self.left as usize);
        if begins.is_none() {
            self.left -= ends.len() as u64;
        }
        begins.map(|i| ends[i] + 1)
    }
}
