//! The last guard: everything that was ever started below the keeper ends here.
//!
//! Runs instead of the loop, once. It needs no cookie and no table: what escapes from a
//! dying tree comes up to the keeper, which kills its children, reaps, and reads the list
//! again until there are none. It stops only at what the kernel itself will not end.

use super::kernel::{self, Whom};
use super::turn::{Finish, Keeper, next_signal};
use crate::tree::cgroup::Removed;
use std::collections::BTreeSet;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long to wait for a change before the list is read again all the same.
const PAUSE: Duration = Duration::from_millis(20);
/// How long nothing may change before what is left counts as not to be ended.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long the kernel may keep a group in which nobody lives.
const LETTING_GO: Duration = Duration::from_secs(1);

impl Keeper {
    /// Ends every descendant and the house.
    pub(super) fn guard(mut self, finish: &Finish) -> ExitCode {
        self.house.vanish();
        let left = self.end_all();
        let gone = self.remove_groups();
        let mut reason = finish.reason.clone();
        if !left.is_empty() {
            let text = format!("cannot be ended: {left:?}");
            self.house.log("error", &text);
            reason = if reason.is_empty() {
                text
            } else {
                format!("{reason}; {text}")
            };
        }
        let nothing_left = finish.cleared && gone && left.is_empty();
        // Best effort: the reason is in the log as well.
        let _ = self.house.describe(&reason, nothing_left);
        if reason.is_empty() {
            self.house.log("info", "left in order");
            self.house
                .announce("failed: the house was ended before it was ready");
            return ExitCode::SUCCESS;
        }
        self.house.log("error", &reason);
        self.house.announce(&format!("failed: {reason}"));
        ExitCode::FAILURE
    }

    /// Removes what the jobs stood in. False: something of it stays.
    fn remove_groups(&self) -> bool {
        let Ok(groups) = &self.house.defaults.groups else {
            return true;
        };
        let begun = Instant::now();
        loop {
            groups.clear();
            // The kernel may need a moment to let go of who has died.
            let removed = groups.whole().remove();
            if removed != Removed::Kept || begun.elapsed() > LETTING_GO {
                return removed == Removed::Gone;
            }
            let _ = kernel::readable([self.signals.as_fd()], PAUSE);
        }
    }

    /// Kills and reaps until no child is left; returns those that stay.
    fn end_all(&mut self) -> BTreeSet<i32> {
        if let Ok(groups) = &self.house.defaults.groups {
            // All at once, and also who came in from elsewhere. What it does not reach is met below.
            let _ = groups.whole().kill();
        }
        let mut before = BTreeSet::new();
        let mut changed = Instant::now();
        loop {
            let children = self.kill_children();
            if reap_all(&mut changed) {
                return BTreeSet::new();
            }
            if children != before {
                changed = Instant::now();
                before = children;
            }
            if changed.elapsed() > PATIENCE {
                return before;
            }
            // Whichever comes first; an interrupted wait is as good.
            let _ = kernel::readable([self.signals.as_fd()], PAUSE);
            while next_signal(&self.signals).is_some() {}
        }
    }

    fn kill_children(&mut self) -> BTreeSet<i32> {
        // Without a list there are at least those we know.
        let known = self.store.leaders.keys().copied().collect();
        let children = self.house.children().unwrap_or(known);
        for pid in &children {
            // SAFETY: plain call; an unreaped child's number is its own.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
        children.into_iter().collect()
    }
}

/// Reaps whoever has ended. True when there are no children at all.
fn reap_all(changed: &mut Instant) -> bool {
    loop {
        match kernel::wait(Whom::Any, false) {
            Ok(Some(_)) => *changed = Instant::now(),
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}
