//! The table of jobs: what the keeper knows of each, and the descriptors it holds.
//!
//! The rows are plain data that can be written down as they are (for an exec in place);
//! descriptors stand beside them. Owned by the loop; decides nothing.

use super::wire::{JobRow, Op};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};

/// Something of a job that the supervisor has not been told yet, in the order of telling.
pub(super) const TELL: [Op; 5] = [
    Op::Started,
    Op::Execed,
    Op::MemberEnded,
    Op::Ended,
    Op::Reaped,
];

/// The bit of a fact in [`Row::untold`]. EXECED stands for FAILED, too.
pub(super) fn bit(op: Op) -> u32 {
    1 << op as u32
}

/// The plain part of a job.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) told: JobRow,
    /// Facts waiting for room in the socket.
    pub(super) untold: u32,
    /// The program that the child was trying last.
    pub(super) trying: Option<u32>,
    /// A start whose failure was seen; it is told when the child is buried.
    pub(super) failing: Option<(u32, i32)>,
    /// Limits of the request were cut down.
    pub(super) clamped: bool,
    /// REAP came while a tracer withheld the status.
    pub(super) reap_wanted: bool,
}

/// The descriptors of a job.
#[derive(Default)]
pub(super) struct Held {
    pub(super) pidfd: Option<OwnedFd>,
    pub(super) status: Option<OwnedFd>,
    pub(super) out: Option<OwnedFd>,
    pub(super) err: Option<OwnedFd>,
    pub(super) input: Option<OwnedFd>,
    pub(super) spill: Option<OwnedFd>,
}

/// One job.
#[derive(Default)]
pub(super) struct Job {
    pub(super) row: Row,
    pub(super) held: Held,
}

/// All jobs that are not forgotten.
#[derive(Default)]
pub(super) struct Store {
    pub(super) jobs: HashMap<u64, Job>,
    /// Unreaped leaders by pid.
    pub(super) leaders: HashMap<i32, u64>,
    /// All jobs by the pid of their leader, buried or not: the number of its session.
    pub(super) sessions: HashMap<i32, u64>,
    /// Leaders that have ended, but whose status a tracer withholds.
    pub(super) withheld: BTreeSet<u64>,
    /// Jobs with something untold, each once.
    pub(super) waiting: VecDeque<u64>,
}

impl Store {
    /// The job with this id.
    pub(super) fn get(&mut self, job: u64) -> Option<&mut Job> {
        self.jobs.get_mut(&job)
    }

    /// Notes that something is to be told.
    pub(super) fn mark(&mut self, job: u64, op: Op) {
        let Some(entry) = self.jobs.get_mut(&job) else {
            return;
        };
        if entry.row.untold == 0 {
            self.waiting.push_back(job);
        }
        entry.row.untold |= bit(op);
    }

    /// Notes that everything known is to be told again.
    pub(super) fn mark_all(&mut self, job: u64) {
        TELL.into_iter().for_each(|op| self.mark(job, op));
    }

    /// Nothing waits any more: a new supervisor asks for all of it.
    pub(super) fn unmark(&mut self) {
        for job in self.waiting.drain(..) {
            if let Some(entry) = self.jobs.get_mut(&job) {
                entry.row.untold = 0;
            }
        }
    }

    /// Drops a job with all its descriptors.
    pub(super) fn forget(&mut self, job: u64) {
        if let Some(entry) = self.jobs.remove(&job) {
            self.drop_session(job, &entry.row.told);
            self.withheld.remove(&job);
            self.waiting.retain(|waiting| *waiting != job);
        }
    }

    /// Takes a job's session number away, unless a later job has got the same number.
    pub(super) fn drop_session(&mut self, job: u64, row: &JobRow) {
        if let Some(pid) = row.facts.started.map(|started| started.pid)
            && self.sessions.get(&pid) == Some(&job)
        {
            self.sessions.remove(&pid);
        }
    }

    /// How many jobs there are.
    pub(super) fn jobs(&self) -> u64 {
        self.jobs.len() as u64
    }
}

impl Held {
    /// What FETCH hands out, with the flag of each.
    pub(super) fn files(&self) -> Vec<(u32, BorrowedFd<'_>)> {
        use super::wire::{HAS_ERR, HAS_IN, HAS_OUT, HAS_SPILL};
        use std::os::fd::AsFd;
        [
            (HAS_OUT, &self.out),
            (HAS_ERR, &self.err),
            (HAS_IN, &self.input),
            (HAS_SPILL, &self.spill),
        ]
        .into_iter()
        .filter_map(|(flag, file)| file.as_ref().map(|file| (flag, file.as_fd())))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::wire::{Exec, Facts, Started, Step};

    /// For an exec in place, once there is one: what is in the rows is all that there is beside descriptors.
    #[test]
    fn the_table_survives_being_written_down() {
        let facts = Facts {
            started: Some(Started {
                pid: 7,
                start_time: 99,
                grouped: true,
            }),
            exec: Exec::Failed {
                step: Step::Chdir,
                errno: 20,
                candidate: 1,
            },
            members_ended: 4,
            ..Facts::default()
        };
        let row = Row {
            told: JobRow {
                slot: 9,
                record: vec![0, 255, b'x'],
                facts,
            },
            untold: bit(Op::Ended) | bit(Op::Reaped),
            trying: Some(2),
            failing: Some((3, -1)),
            clamped: true,
            reap_wanted: true,
        };
        let table = [(41, row), (42, Row::default())];
        let written = serde_json::to_vec(&table).expect("rows are plain data");
        let read: [(u64, Row); 2] = serde_json::from_slice(&written).expect("it was just written");
        assert_eq!(format!("{read:?}"), format!("{table:?}"));
    }
}
