//! What a given list of processes uses: processor time and memory, and how they are called.
//!
//! Asked for one job at a time (`job/get`, `top`). Keeps nothing between calls: a kept table would hold a
//! descriptor a process. Membership is the business of [`crate::tree`].

use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// What processes use together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time since each was started, milliseconds. Children that are gone do not count.
    pub cpu_ms: u64,
    /// Resident memory, bytes. Shared pages count once a process.
    pub rss_bytes: u64,
}

/// Returns what those of `pids` that live use together. Blocks for some microseconds a process.
pub fn usage(pids: &[u32]) -> Usage {
    let what = ProcessRefreshKind::nothing().with_memory().with_cpu();
    let mut sum = Usage::default();
    each(pids, what, |process| {
        sum.cpu_ms += process.accumulated_cpu_time();
        sum.rss_bytes += process.memory();
    });
    sum
}

/// Returns number and program name of those of `pids` that live, in the order of `pids`.
pub fn programs(pids: &[u32]) -> Vec<(u32, String)> {
    let mut names = Vec::new();
    each(pids, ProcessRefreshKind::nothing(), |process| {
        let name = process.name().to_string_lossy().into_owned();
        names.push((process.pid().as_u32(), name));
    });
    names
}

fn each(pids: &[u32], what: ProcessRefreshKind, mut visit: impl FnMut(&sysinfo::Process)) {
    let asked: Vec<Pid> = pids.iter().copied().map(Pid::from_u32).collect();
    // Some systems have no process table to offer; then there is nothing to say.
    let Ok(mut system) = System::new() else {
        return;
    };
    let update = ProcessesToUpdate::Some(&asked);
    system.refresh_processes_specifics(update, true, what.without_tasks());
    asked
        .iter()
        .filter_map(|pid| system.process(*pid))
        .for_each(&mut visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_memory_and_name_are_told_and_a_free_number_adds_nothing() {
        let own = std::process::id();
        let usage = usage(&[own, u32::MAX - 1]);
        assert!(usage.rss_bytes > 100 * 1024, "{usage:?}");
        let names = programs(&[own, u32::MAX - 1]);
        assert_eq!(names.len(), 1);
        assert_eq!(names[0].0, own);
        assert!(!names[0].1.is_empty());
    }
}
