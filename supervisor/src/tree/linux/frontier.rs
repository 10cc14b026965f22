//! The newest process number the kernel gave out, and the numbers given out since an earlier moment.
//!
//! Numbers are given out in a circle, so whoever was born lately is found among a few numbers without reading
//! a directory: a few microseconds, where a pass over `/proc` takes as long as a short-lived process lives.
//! Reads only. It counts processes and threads of this namespace, whosesoever they are.

use std::fs;
use std::iter;

/// The most numbers that one step looks at; whatever is older belongs to the next full pass.
const SPAN: usize = 8_192;

/// Returns the newest number, nothing where `/proc` does not tell (mounted with `subset=pid`).
pub(super) fn newest() -> Option<u32> {
    last_field(&fs::read_to_string("/proc/loadavg").ok()?)
}

fn last_field(text: &str) -> Option<u32> {
    let newest = text.split_whitespace().nth(4)?.parse().ok()?;
    // A kernel that only plays Linux writes a zero.
    (newest > 0).then_some(newest)
}

/// Returns what was given out after `from` up to `to`, the newest first.
pub(super) fn since(from: u32, to: u32) -> impl Iterator<Item = u32> {
    // Past the highest number it begins again at the bottom. The limit is asked only then.
    let highest = match to < from {
        true => highest(),
        false => from,
    };
    span(from, to, highest)
}

fn span(from: u32, to: u32, highest: u32) -> impl Iterator<Item = u32> {
    let (low, high) = match to < from {
        true => (0, from + 1..highest),
        false => (from, 0..0),
    };
    let newest = (low + 1..=to).rev();
    iter::chain(newest, high.rev()).take(SPAN)
}

fn highest() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/pid_max").unwrap_or_default();
    // The default of small machines.
    text.trim().parse().unwrap_or(32_768)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_newest_first_also_around_the_end_of_the_circle() {
        let of = |from, to| span(from, to, 32_768).collect::<Vec<_>>();
        assert_eq!(of(7, 7), [0_u32; 0]);
        assert_eq!(of(7, 10), [10, 9, 8]);
        assert_eq!(of(32_765, 2), [2, 1, 32_767, 32_766]);
        assert_eq!(of(1, 30_000).len(), SPAN);
    }

    #[test]
    fn a_new_child_is_among_the_newest_numbers() {
        let before = newest().expect("a /proc");
        let mut child = std::process::Command::new("/bin/true")
            .spawn()
            .expect("it starts");
        let after = newest().expect("a /proc");
        assert!(since(before, after).any(|pid| pid == child.id()));
        child.wait().expect("our own child");
    }

    #[test]
    fn a_line_that_tells_no_number_is_no_answer() {
        assert_eq!(last_field("0.00 0.00 0.00 1/80 4711\n"), Some(4_711));
        for text in ["0.00 0.00 0.00 0/0 0\n", "0.00 0.00 0.00 1/80", ""] {
            assert_eq!(last_field(text), None, "{text}");
        }
    }
}
