//! Membership without a cookie: parents, session, group, and `OSTLER_JOB` in the environment; of what a dead house left
//! behind, `OSTLER_HOUSE`.
//!
//! The second rung. An orphan that changed session and group and cleared its environment before it was first
//! seen belongs to nobody here. Reads everything it can see; never acts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::{fs, io};

use ostler_proto::address::{HOUSE_VARIABLE, JOB_VARIABLE};

use super::super::{Mark, Target};
use super::{Spared, facts, pids};

/// Who was seen in which tree: number and start time by process id. Without it the second look, from a dead
/// leader, would find nothing of what ignored the first signal.
pub(super) type Memory = HashMap<String, BTreeMap<u32, u64>>;

/// Returns target, number and start time of every member, dead or alive, and remembers them.
pub(super) fn members(
    instance: u32,
    targets: &[Arc<Target>],
    spared: &Spared,
    memory: &mut Memory,
) -> io::Result<Vec<(usize, u32, u64)>> {
    let view = View::read(instance, spared)?;
    memory.retain(|_, seen| {
        seen.retain(|pid, start| view.is(*pid, *start));
        !seen.is_empty()
    });
    let mut found = Vec::new();
    for (at, target) in targets.iter().enumerate() {
        let mark = match &**target {
            Target::Job(mark) => mark,
            Target::House { keep } => {
                let left = view.below(view.left.clone());
                let left = left.into_iter().filter(|(pid, _)| !keep.contains(pid));
                found.extend(left.map(|(pid, start)| (at, pid, start)));
                continue;
            }
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
    /// Those that are marked as jobs of this house.
    left: Vec<u32>,
}

impl View {
    fn read(instance: u32, spared: &Spared) -> io::Result<Self> {
        let mut view = Self {
            rows: HashMap::new(),
            children: HashMap::new(),
            marked: HashMap::new(),
            left: Vec::new(),
        };
        let house = house_marker(instance);
        for pid in pids()?.filter(|pid| !spared.holds(*pid)) {
            let Some(stat) = facts::stat(pid) else {
                continue;
            };
            view.children.entry(stat.parent).or_default().push(pid);
            let marks = Marks::of(pid);
            if let Some(job) = marks.job {
                view.marked.entry(job).or_default().push(pid);
            }
            if marks.house.is_some_and(|marked| marked == house) {
                view.left.push(pid);
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
        self.below(open)
    }

    /// These and everything below them.
    fn below(&self, mut open: Vec<u32>) -> BTreeMap<u32, u64> {
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

/// What a process's first environment says of it, if we may read that.
#[derive(Default)]
struct Marks {
    /// The value of `OSTLER_JOB`.
    job: Option<String>,
    /// The value of `OSTLER_HOUSE`.
    house: Option<String>,
}

impl Marks {
    fn of(pid: u32) -> Self {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let value = |name: &str| {
            let mut entries = environment.split(|byte| *byte == 0);
            let value = entries
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
            String::from_utf8(value.to_vec()).ok()
        };
        Self {
            job: value(JOB_VARIABLE),
            house: value(HOUSE_VARIABLE),
        }
    }
}

/// The value of `OSTLER_JOB` in a process's first environment, if we may read it.
pub(super) fn marker(pid: u32) -> Option<String> {
    Marks::of(pid).job
}

/// A process is marked as a job of this house.
pub(super) fn is_of_house(pid: u32, instance: u32) -> bool {
    Marks::of(pid).house == Some(house_marker(instance))
}

/// The value of `OSTLER_HOUSE` in the jobs of a house.
pub(super) fn house_marker(instance: u32) -> String {
    format!("{instance:08x}")
}
