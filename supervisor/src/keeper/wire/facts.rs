//! What the keeper tells of a job.

use serde::{Deserialize, Serialize};

use super::{Frame, NONE, Op, Step};

/// How far the exec has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Exec {
    /// Not known yet.
    #[default]
    Pending,
    /// The program runs.
    Done {
        /// Index among the programs of the request.
        candidate: u32,
        /// A limit was cut down.
        clamped: bool,
    },
    /// There never was a program; the child, if there was one, is buried.
    Failed {
        /// Where.
        step: Step,
        /// Why; 0 where there is no reason.
        errno: i32,
        /// The program that the errno belongs to.
        candidate: u32,
    },
}

/// The process behind a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Process id; also its group and session.
    pub pid: i32,
    /// Start time in clock ticks since boot, as in `/proc/PID/stat`; 0 when unreadable.
    pub start_time: u64,
    /// It was born in a group of its own.
    pub grouped: bool,
}

/// How a leader ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It left a core.
    pub core: bool,
    /// A tracer withholds the status for now; it is told again when it lets go.
    pub withheld: bool,
    /// Members that are left besides the leader, as far as they are children of the keeper: zero is exact, above zero
    /// somebody is there for sure. `u64::MAX` when that cannot be told. Told anew whenever a member ends.
    pub strays: u64,
}

/// What was known when a leader was buried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Reaped {
    /// Exit code.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// User time of the leader and the children it waited for, in microseconds.
    pub user_us: u64,
    /// System time of the same.
    pub sys_us: u64,
    /// Largest resident size, in KiB.
    pub max_rss_kib: u64,
}

/// Everything the keeper tells of a job, as levels.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Facts {
    /// There is a process.
    pub started: Option<Started>,
    /// The exec.
    pub exec: Exec,
    /// The leader has ended (and is a zombie until it is reaped).
    pub ended: Option<Ended>,
    /// The leader is buried.
    pub reaped: Option<Reaped>,
    /// Members outside the leader that have ended so far.
    pub members_ended: u64,
}

/// A job as the keeper's table has it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct JobRow {
    /// Arena slot.
    pub slot: u32,
    /// The caller's record.
    pub record: Vec<u8>,
    /// What has happened.
    pub facts: Facts,
}

/// An exit code or signal in an argument.
fn word(value: Option<i32>) -> u64 {
    value.map_or(NONE, |value| value as u64)
}

fn unword(value: u64) -> Option<i32> {
    (value != NONE).then_some(value as i32)
}

/// The arguments of EXECED or FAILED; `None` while neither is known.
pub(crate) fn exec_args(exec: Exec) -> Option<(Op, [u64; 5])> {
    match exec {
        Exec::Pending => None,
        Exec::Done { candidate, clamped } => {
            Some((Op::Execed, [candidate.into(), clamped.into(), 0, 0, 0]))
        }
        Exec::Failed {
            step,
            errno,
            candidate,
        } => Some((
            Op::Failed,
            [step as u64, errno as u64, candidate.into(), 0, 0],
        )),
    }
}

pub(crate) fn started_args(started: Started, slot: u32) -> [u64; 5] {
    let Started {
        pid,
        start_time,
        grouped,
    } = started;
    [pid as u64, start_time, slot.into(), grouped.into(), 0]
}

/// What MEMBER_ENDED says: how many so far, and whether anybody is left once the leader has ended.
pub(crate) fn members_args(facts: &Facts) -> [u64; 5] {
    let strays = facts.ended.map_or(NONE, |ended| ended.strays);
    [facts.members_ended, strays, 0, 0, 0]
}

pub(crate) fn ended_args(ended: Ended) -> [u64; 5] {
    [
        word(ended.code),
        word(ended.signal),
        ended.core.into(),
        ended.withheld.into(),
        ended.strays,
    ]
}

pub(crate) fn reaped_args(reaped: Reaped) -> [u64; 5] {
    [
        word(reaped.code),
        word(reaped.signal),
        reaped.user_us,
        reaped.sys_us,
        reaped.max_rss_kib,
    ]
}

impl Facts {
    /// Takes in what one message tells. Messages about nothing of a job change nothing.
    pub fn learn(&mut self, frame: &Frame) {
        let args = frame.args;
        match frame.op() {
            Some(Op::Started) => {
                self.started = Some(Started {
                    pid: args[0] as i32,
                    start_time: args[1],
                    grouped: args[3] != 0,
                });
            }
            Some(Op::Execed) => {
                self.exec = Exec::Done {
                    candidate: args[0] as u32,
                    clamped: args[1] != 0,
                };
            }
            Some(Op::Failed) => {
                self.exec = Exec::Failed {
                    step: Step::from_number(args[0]).unwrap_or(Step::Request),
                    errno: args[1] as i32,
                    candidate: args[2] as u32,
                };
            }
            Some(Op::Ended) => self.ended = Some(read_ended(args)),
            Some(Op::Reaped) => self.reaped = Some(read_reaped(args)),
            Some(Op::MemberEnded) => {
                self.members_ended = args[0];
                if let Some(ended) = &mut self.ended {
                    ended.strays = args[1];
                }
            }
            _ => {}
        }
    }
}

fn read_ended(args: [u64; 5]) -> Ended {
    Ended {
        code: unword(args[0]),
        signal: unword(args[1]),
        core: args[2] != 0,
        withheld: args[3] != 0,
        strays: args[4],
    }
}

fn read_reaped(args: [u64; 5]) -> Reaped {
    Reaped {
        code: unword(args[0]),
        signal: unword(args[1]),
        user_us: args[2],
        sys_us: args[3],
        max_rss_kib: args[4],
    }
}
