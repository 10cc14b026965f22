//! Membership without a cookie: parents, session, group, and `OSTLER_JOB` in the environment.
//!
//! The second rung. An orphan that changed session and group and cleared its environment before it was first
//! seen belongs to nobody here. Reads everything it can see; never acts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::{fs, io};

use super::super::{Mark, Target};
use super::{Spared, facts, pids};

/// Who was seen in which tree: number and start time by process id. Without it the second look, from a dead
/// leader, would find nothing of what ignored the first signal.
pub(super) type Memory = HashMap<String, BTreeMap<u32, u64>>;

/// Returns target, number and start time of every member, dead or alive, and remembers them.
pub(super) fn members(
    targets: &[Arc<Target>],
    spared: &Spared,
    memory: &mut Memory,
) -> io::Result<Vec<(usize, u32, u64)>> {
    let view = View::read(spared)?;
    memory.retain(|_, seen| {
        seen.retain(|pid, start| view.is(*pid, *start));
        !seen.is_empty()
    });
    let mut found = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        // Leftovers of a dead house cannot be told from another house's jobs without a cookie.
        let Target::Job(mark) = &**target else {
            continue;
        };
        let known = memory.get(&mark.process_id);
        let tree = view.tree(mark, known);
        if !tree.is_empty() {
            memory.insert(mark.process_id.clone(), tree.clone());
        }
        found.extend(tree.into_iter().map(|(pid, start)| (at, pid, start)));
    }
    Ok(found)
}

/// All processes at one moment.
struct View {
    rows: HashMap<u32, facts::Stat>,
    children: HashMap<u32, Vec<u32>>,
    marked: HashMap<String, Vec<u32>>,
}

impl View {
    fn read(spared: &Spared) -> io::Result<Self> {
        let mut view = Self {
            rows: HashMap::new(),
            children: HashMap::new(),
            marked: HashMap::new(),
        };
        for pid in pids()?.filter(|pid| !spared.holds(*pid)) {
            let Some(stat) = facts::stat(pid) else {
                continue;
            };
            view.children.entry(stat.parent).or_default().push(pid);
            if let Some(job) = marker(pid) {
                view.marked.entry(job).or_default().push(pid);
            }
            view.rows.insert(pid, stat);
        }
        Ok(view)
    }

    fn is(&self, pid: u32, start: u64) -> bool {
        self.rows.get(&pid).is_some_and(|row| row.start == start)
    }

    /// Everything below whatever is tied to the mark.
    fn tree(&self, mark: &Mark, known: Option<&BTreeMap<u32, u64>>) -> BTreeMap<u32, u64> {
        let mut open = self.roots(mark);
        open.extend(known.into_iter().flatten().map(|(pid, _)| *pid));
        let mut seen = HashSet::new();
        let mut tree = BTreeMap::new();
        while let Some(pid) = open.pop() {
            let Some(row) = self.rows.get(&pid).filter(|_| seen.insert(pid)) else {
                continue;
            };
            tree.insert(pid, row.start);
            open.extend(self.children.get(&pid).into_iter().flatten());
        }
        tree
    }

    /// The number of a session or group is not given out again while somebody is in it; once the leader's
    /// number has become somebody else's, it says nothing.
    fn roots(&self, mark: &Mark) -> Vec<u32> {
        let mut roots = self
            .marked
            .get(&mark.process_id)
            .cloned()
            .unwrap_or_default();
        let Some((leader, start)) = mark.leader else {
            return roots;
        };
        if self.rows.contains_key(&leader) && !self.is(leader, start) {
            return roots;
        }
        let tied = self
            .rows
            .iter()
            .filter(|(pid, row)| **pid == leader || row.session == leader || row.group == leader);
        roots.extend(tied.map(|(pid, _)| *pid));
        roots
    }
}

/// The value of `OSTLER_JOB` in a process's first environment, if we may read it.
pub(super) fn marker(pid: u32) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    let value = entries.find_map(|entry| entry.strip_prefix(b"OSTLER_JOB="))?;
    String::from_utf8(value.to_vec()).ok()
}
