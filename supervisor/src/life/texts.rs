//! The texts of a result: each stream whole, or its head and its tail with what is missing named between.

use ostler_proto::limits::{self, PAGE_MAX};

use crate::{
    job::Texts,
    log::{Filter, Log},
};

/// Reads both streams up to `until`, the end that the result is about.
pub(crate) fn of(log: &Log, until: u64) -> Texts {
    let (stdout, stdout_cut, r1) = one(log, until, Filter::Stdout);
    let (stderr, stderr_cut, r2) = one(log, until, Filter::Stderr);
    Texts {
        stdout,
        stderr,
        stdout_cut,
        stderr_cut,
        replaced: r1 + r2,
    }
}

fn one(log: &Log, until: u64, filter: Filter) -> (String, bool, u64) {
    if until <= limits::result_whole() {
        return collect(log, 0, until, filter, usize::MAX);
    }
    // The stream may be small although the log is large: take it whole if it is.
    let (whole, cut, replaced) =
        collect(log, 0, until, filter, limits::result_whole() as usize + 4);
    if whole.len() as u64 <= limits::result_whole() && !cut {
        return (whole, false, replaced);
    }
    let head: String = whole.chars().take(limits::result_ends()).collect();
    // Four bytes a character at most; a filter may need to look further back.
    let mut span = (limits::result_ends() * 4) as u64;
    let (tail, replaced) = loop {
        let (text, _, r) = collect(log, until.saturating_sub(span), until, filter, usize::MAX);
        let n = text.chars().count();
        if n >= limits::result_ends() || span >= until || span >= 64 * PAGE_MAX {
            break (
                text.chars()
                    .skip(n.saturating_sub(limits::result_ends()))
                    .collect::<String>(),
                r,
            );
        }
        span *= 8;
    };
    if head.is_empty() && tail.is_empty() {
        // Of the other stream all that is gone may have been: nothing is between nothing and nothing.
        return (String::new(), true, replaced);
    }
    let gone = log.text(0, 1, filter, false).lost > 0;
    let place = if gone { "is lost" } else { "is in the log" };
    (
        format!("{head}\n[... the middle {place} ...]\n{tail}"),
        true,
        replaced,
    )
}

/// Text of one stream from an offset; `true` when bytes were lost or there was more than `most`.
fn collect(log: &Log, from: u64, until: u64, filter: Filter, most: usize) -> (String, bool, u64) {
    let (mut at, mut out, mut cut, mut replaced) = (from, String::new(), false, 0);
    while at < until {
        let want = (until - at).min(PAGE_MAX) as usize;
        let page = log.text(at, want, filter, at + want as u64 >= until);
        if page.next <= at {
            break;
        }
        cut |= page.lost > 0;
        replaced += page.replaced;
        out.push_str(&page.text);
        at = page.next;
        if out.len() > most {
            return (out, true, replaced);
        }
    }
    (out, cut, replaced)
}
