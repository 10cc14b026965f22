//! What keeper and supervisor say to each other.
//!
//! ```text
//!   mod      operations, steps of a start, the fixed part of a message
//!   payload  what does not fit into it: FORK and HELLO
//!   facts    what the keeper tells of a job, as levels: a message that is repeated changes nothing
//!   codec    all of these as bytes, in native order: both ends are the same machine
//!   packet   one message, one packet of the socket, with its descriptors
//! ```

mod codec;
mod facts;
mod packet;
mod payload;

use serde::{Deserialize, Serialize};

pub use facts::{Ended, Exec, Facts, JobRow, Reaped, Started};
pub(crate) use facts::{ended_args, exec_args, members_args, reaped_args, started_args};
pub use packet::{Inbox, Message, send};
pub use payload::{ForkRequest, Limit, Stdin, Welcome};

/// First word of every message.
pub const MAGIC: u32 = 0x4f53_544c;
/// The wire version this build speaks; the only one so far.
pub const VERSION: u16 = 1;
/// The oldest one it speaks as well.
pub const OLDEST: u16 = 1;
/// Bytes of the header.
pub const HEADER: usize = 64;
/// Largest payload that travels inside the packet.
pub const INLINE: usize = 64 * 1024;
/// Largest payload at all; arguments and environment cannot be longer on Linux.
pub const LARGEST: u64 = 16 * 1024 * 1024;
/// Most descriptors in one message.
pub const MOST_FILES: usize = 32;
/// "No value" in an argument.
pub const NONE: u64 = u64::MAX;

/// The payload is in the first descriptor.
pub const PAYLOAD_FILE: u32 = 1 << 0;
/// The message carries the job's output. The following three in this order after it.
pub const HAS_OUT: u32 = 1 << 1;
/// The message carries the job's error output.
pub const HAS_ERR: u32 = 1 << 2;
/// The message carries the job's input.
pub const HAS_IN: u32 = 1 << 3;
/// The message carries the job's spill file.
pub const HAS_SPILL: u32 = 1 << 4;

/// LEAVE: nothing left to do.
pub const LEAVE_IDLE: u64 = 0;
/// LEAVE: asked to stop.
pub const LEAVE_DISPOSE: u64 = 1;
/// LEAVE: start the image passed along in standby; I go when I am told that it waits.
pub const LEAVE_UPGRADE: u64 = 2;
/// LEAVE: cannot serve; the payload is the reason.
pub const LEAVE_REFUSE: u64 = 3;
/// LEAVE: I stay after all; the one in standby is to go.
pub const LEAVE_STAY: u64 = 4;

/// CLOSE: the job's standard input.
pub const CLOSE_IN: u64 = 0;
/// CLOSE: the job's standard output (a terminal's master, too).
pub const CLOSE_OUT: u64 = 1;
/// CLOSE: the job's standard error.
pub const CLOSE_ERR: u64 = 2;

/// ERROR: the number is no operation of this version.
pub const ERROR_UNKNOWN: u64 = 1;
/// ERROR: REAP or FORGET of a leader that has not ended or is not reaped.
pub const ERROR_TOO_EARLY: u64 = 2;
/// ERROR: no such job.
pub const ERROR_NO_JOB: u64 = 3;
/// ERROR: the message could not be read, or its descriptors did not arrive.
pub const ERROR_MALFORMED: u64 = 4;

/// What a message is about. The number on the wire is the position here plus one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Op {
    /// k > s: attempt, why (0 first, 1 crash, 2 upgrade), cookie rung, instance, slots; payload [`Welcome`].
    Hello = 1,
    /// s > k: payload [`ForkRequest`]; the input file when it is passed.
    Fork,
    /// k > s: pid, start time, slot, has a group of its own (0, 1); out, err, in.
    Started,
    /// k > s: index of the program that was executed, limits were clamped (0, 1).
    Execed,
    /// k > s: step, errno, index of the program. Told when the child is buried.
    Failed,
    /// k > s: code, signal, core, withheld, strays. The leader is a zombie until REAP.
    Ended,
    /// k > s: how many members outside the leader have ended so far; once the leader has ended, its strays.
    MemberEnded,
    /// s > k: bury the leader.
    Reap,
    /// k > s: code, signal, user time, system time (both us), largest resident size (KiB).
    Reaped,
    /// s > k: which; drop the keeper's copy.
    Close,
    /// s > k: the spill file.
    Hold,
    /// s > k: drop everything of this job.
    Forget,
    /// s > k: tell of one job, or of all (job [`NONE`]).
    Fetch,
    /// k > s: payload [`JobRow`]; out, err, in, spill. Sequence of its FETCH.
    Job,
    /// k > s: that FETCH is answered.
    Done,
    /// s > k: generation; the new ledger.
    Ledger,
    /// s > k: clients are served.
    Ready,
    /// s > k: no trouble for a while; forget the crashes.
    Steady,
    /// s > k: why; I shall exit.
    Leave,
    /// s > k: kill your children that carry the job's cookie (job [`NONE`]: of every job).
    Sweep,
    /// Either way; answered at once.
    Ping,
    /// The answer, with the sequence of its PING.
    Pong,
    /// k > s: the socket was bound again; the listener, and the lock as it is now.
    Listener,
    /// k > s: code, refused operation; payload is a sentence.
    Error,
    /// k > s: the keeper got this signal (TERM, INT or HUP): end in order, within 10 s.
    Term,
    /// s > k: executed, and waits for HELLO. k > s: the next supervisor waits for you to go (0), or does not come
    /// (1, the payload says why).
    Standby,
}

const OPS: [Op; 26] = [
    Op::Hello,
    Op::Fork,
    Op::Started,
    Op::Execed,
    Op::Failed,
    Op::Ended,
    Op::MemberEnded,
    Op::Reap,
    Op::Reaped,
    Op::Close,
    Op::Hold,
    Op::Forget,
    Op::Fetch,
    Op::Job,
    Op::Done,
    Op::Ledger,
    Op::Ready,
    Op::Steady,
    Op::Leave,
    Op::Sweep,
    Op::Ping,
    Op::Pong,
    Op::Listener,
    Op::Error,
    Op::Term,
    Op::Standby,
];

impl Op {
    /// The operation with this number, if this version knows it.
    pub fn from_number(number: u16) -> Option<Self> {
        OPS.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// Where a start failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
pub enum Step {
    /// The request makes no sense.
    Request = 1,
    /// Too few descriptors are left; nothing was made.
    Descriptors,
    /// Pipes or terminal could not be made.
    Pipes,
    /// No process could be made.
    Clone,
    /// The child did not get a descriptor table of its own within 100 ms.
    Unshare,
    /// The terminal could not be taken as the controlling one.
    Terminal,
    /// The standard descriptors could not be put in place.
    Stdio,
    /// A limit that was asked for could not be set.
    Limits,
    /// The directory could not be entered.
    Chdir,
    /// No program could be executed.
    Exec,
    /// Not a failure: this program is tried next.
    Try,
    /// The child was ended before it executed anything.
    Died,
}

const STEPS: [Step; 12] = [
    Step::Request,
    Step::Descriptors,
    Step::Pipes,
    Step::Clone,
    Step::Unshare,
    Step::Terminal,
    Step::Stdio,
    Step::Limits,
    Step::Chdir,
    Step::Exec,
    Step::Try,
    Step::Died,
];

impl Step {
    /// The step with this number.
    pub fn from_number(number: u64) -> Option<Self> {
        let place = usize::try_from(number.checked_sub(1)?).ok()?;
        STEPS.get(place).copied()
    }
}

/// The fixed part of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// Wire version of the sender.
    pub version: u16,
    /// Number of the operation; unknown ones are let through to be answered by ERROR.
    pub op: u16,
    /// Which descriptors come along.
    pub flags: u32,
    /// Ties an answer to its question where one is needed.
    pub sequence: u32,
    /// The job, or 0.
    pub job: u64,
    /// Meaning by operation, see [`Op`].
    pub args: [u64; 5],
}

impl Frame {
    /// A message about a job.
    pub fn new(op: Op, job: u64, args: [u64; 5]) -> Self {
        Self {
            version: VERSION,
            op: op as u16,
            flags: 0,
            sequence: 0,
            job,
            args,
        }
    }

    /// The same with a sequence number.
    #[must_use]
    pub fn sequence(mut self, sequence: u32) -> Self {
        self.sequence = sequence;
        self
    }

    /// The operation, if this version knows it.
    pub fn op(&self) -> Option<Op> {
        Op::from_number(self.op)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_names_the_operation_and_step_it_stands_for() {
        for (place, op) in OPS.into_iter().enumerate() {
            assert_eq!(op as usize, place + 1);
        }
        for (place, step) in STEPS.into_iter().enumerate() {
            assert_eq!(step as usize, place + 1);
        }
        assert_eq!(Op::from_number(0), None);
        assert_eq!(Op::from_number(27), None);
    }
}
