//! What keeper and supervisor say to each other, and how it is put in packets.
//!
//! One packet is one message: a 64-byte header in native byte order (both ends are the
//! same machine), then the payload, with descriptors beside it. A payload above
//! [`INLINE`] travels in a sealed memory file, which then is the first descriptor.
//! Neither function here ever blocks. State is told as levels: a message that is
//! repeated changes nothing.

use super::kernel::{self, check};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

/// First word of every message.
pub const MAGIC: u32 = 0x4f53_544c;
/// The wire version this build speaks; the only one so far.
pub const VERSION: u16 = 1;
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
/// LEAVE: start the image passed along in my place.
pub const LEAVE_UPGRADE: u64 = 2;
/// LEAVE: cannot serve; the payload is the reason.
pub const LEAVE_REFUSE: u64 = 3;

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
    /// k > s: pid, start time, slot; out, err, in.
    Started,
    /// k > s: index of the program that was executed, limits were clamped (0, 1).
    Execed,
    /// k > s: step, errno, index of the program. Told when the child is buried.
    Failed,
    /// k > s: code, signal, core, withheld, strays. The leader is a zombie until REAP.
    Ended,
    /// k > s: how many members outside the leader have ended so far.
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
    /// k > s: the socket was bound again; the listener.
    Listener,
    /// k > s: code, refused operation; payload is a sentence.
    Error,
    /// k > s: the keeper got this signal (TERM, INT or HUP): end in order, within 10 s.
    Term,
}

const OPS: [Op; 25] = [
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

    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.op.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.job.to_ne_bytes());
        for (place, value) in bytes[24..].chunks_exact_mut(8).zip(self.args) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u32()? != MAGIC {
            return None;
        }
        Some(Self {
            version: reader.u16()?,
            op: reader.u16()?,
            flags: reader.u32()?,
            sequence: reader.u32()?,
            job: reader.u64()?,
            args: [
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
            ],
        })
    }
}

/// A message as it came in.
#[derive(Debug)]
pub struct Message {
    /// The fixed part.
    pub frame: Frame,
    /// The payload, from the packet or from its file.
    pub payload: Vec<u8>,
    /// The descriptors that came along, without the payload's file.
    pub files: Vec<OwnedFd>,
    /// Descriptors were lost on the way (our table is full) or the payload's file cannot be
    /// read; what came is closed.
    pub truncated: bool,
}

/// Sends one message at once.
///
/// # Errors
/// `WouldBlock` when the other side's queue is full; `BrokenPipe` when it is gone;
/// ETOOMANYREFS when too many descriptors are on their way already.
pub fn send(
    wire: BorrowedFd<'_>,
    mut frame: Frame,
    payload: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if payload.len() <= INLINE {
        return send_packet(wire, &frame, payload, files);
    }
    let file = payload_file(payload)?;
    frame.flags |= PAYLOAD_FILE;
    let mut all = vec![file.as_fd()];
    all.extend_from_slice(files);
    send_packet(wire, &frame, &[], &all)
}

/// A sealed memory file with these bytes.
fn payload_file(payload: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(kernel::memfd(c"ostler-payload")?);
    file.write_all(payload)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    kernel::seal(file.as_fd(), seals)?;
    Ok(file.into())
}

/// Room for the descriptors of one message, aligned as the kernel wants it.
type Ancillary = [u64; 32];

fn send_packet(
    wire: BorrowedFd<'_>,
    frame: &Frame,
    payload: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if files.len() > MOST_FILES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = frame.encode();
    let mut parts = [part(&mut head), constant_part(payload)];
    let mut ancillary: Ancillary = [0; 32];
    // SAFETY: zeroes are a valid empty message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    if !files.is_empty() {
        attach(&mut message, &mut ancillary, files);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: everything that `message` points to outlives the call.
        let sent = unsafe { libc::sendmsg(wire.as_raw_fd(), &raw const message, flags) };
        match check(sent as libc::c_long) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// For sending only: the kernel does not write through this one.
fn constant_part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Puts the descriptors into the message's ancillary part.
fn attach(message: &mut libc::msghdr, room: &mut Ancillary, files: &[BorrowedFd<'_>]) {
    let bytes = (files.len() * size_of::<RawFd>()) as u32;
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: `room` is 256 bytes, more than the space for MOST_FILES descriptors, and
    // aligned for a control header, so the pointers below stay inside it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let control = libc::CMSG_FIRSTHDR(message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        let data = libc::CMSG_DATA(control).cast::<RawFd>();
        for (place, file) in files.iter().enumerate() {
            data.add(place).write_unaligned(file.as_raw_fd());
        }
    }
}

/// Receives messages; keeps its buffer between them.
pub struct Inbox {
    buffer: Vec<u8>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            buffer: vec![0; HEADER + INLINE],
        }
    }
}

impl Inbox {
    /// Takes the next message; `None` when the other side is gone.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` for a packet that is no message
    /// (it is consumed, the next call goes on).
    pub fn receive(&mut self, wire: BorrowedFd<'_>) -> io::Result<Option<Message>> {
        let mut parts = [part(&mut self.buffer)];
        let mut ancillary: Ancillary = [0; 32];
        // SAFETY: zeroes are a valid empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = 1;
        message.msg_control = ancillary.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Ancillary>();
        let length = receive_packet(wire, &mut message)?;
        let files = detach(&message);
        if length == 0 {
            return Ok(None);
        }
        let truncated = message.msg_flags & libc::MSG_CTRUNC != 0;
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.assemble(length, files, truncated).map(Some)
    }

    fn assemble(
        &self,
        length: usize,
        mut files: Vec<OwnedFd>,
        truncated: bool,
    ) -> io::Result<Message> {
        let frame = Frame::decode(&self.buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let mut payload = self.buffer[HEADER..length].to_vec();
        let mut truncated = truncated;
        if !truncated && frame.flags & PAYLOAD_FILE != 0 {
            let file = (!files.is_empty()).then(|| files.remove(0));
            // One that cannot be read is as good as one that did not arrive: the receiver
            // knows what the message was about and can answer.
            match file.map(read_whole) {
                Some(Ok(whole)) => payload = whole,
                _ => truncated = true,
            }
        }
        if truncated {
            // Which of them are missing is not said; a wrong one is worse than none.
            files.clear();
        }
        Ok(Message {
            frame,
            payload,
            files,
            truncated,
        })
    }
}

fn receive_packet(wire: BorrowedFd<'_>, message: &mut libc::msghdr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    loop {
        // SAFETY: everything that `message` points to outlives the call.
        let got = unsafe { libc::recvmsg(wire.as_raw_fd(), message, flags) };
        match check(got as libc::c_long) {
            Ok(length) => return Ok(length as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(0),
            Err(error) => return Err(error),
        }
    }
}

/// Takes over the descriptors that came with a message.
fn detach(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: the kernel has filled the control part and its length; every number in an
    // SCM_RIGHTS entry is a descriptor that it has just made for us.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(entry) = control.as_ref() {
            if entry.cmsg_level == libc::SOL_SOCKET && entry.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let bytes = entry.cmsg_len - libc::CMSG_LEN(0) as usize;
                for place in 0..bytes / size_of::<RawFd>() {
                    files.push(OwnedFd::from_raw_fd(data.add(place).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
    files
}

fn read_whole(file: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    let length = file.metadata()?.len();
    if length > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// One resource limit; `u64::MAX` is "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The kernel's number (`RLIMIT_*`).
    pub resource: u32,
    /// What holds.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// What the job gets as descriptor 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// The null device.
    #[default]
    Null,
    /// A pipe; STARTED carries its writing end.
    Pipe,
    /// The file that came with the request.
    Passed,
}

/// The payload of FORK.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkRequest {
    /// Arena slot of the job's ring; the keeper only remembers it.
    pub slot: u32,
    /// Absolute paths, tried in order; 256 at most.
    pub programs: Vec<Vec<u8>>,
    /// The arguments, the first being the name the program sees.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The directory to start in.
    pub cwd: Vec<u8>,
    /// `None`: the keeper's own from before it was started.
    pub umask: Option<u32>,
    /// Limits to set; what is above the keeper's hard limit is cut down to it.
    pub limits: Vec<Limit>,
    /// Mark the job (where this house can).
    pub cookie: bool,
    /// Descriptor 0.
    pub stdin: Stdin,
    /// Rows and columns of a terminal, which then is all three descriptors.
    pub pty: Option<(u16, u16)>,
    /// Error output goes where output goes.
    pub merge: bool,
    /// The caller's own record, given back by FETCH.
    pub record: Vec<u8>,
}

impl ForkRequest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.slot);
        out.u32(u32::from(self.cookie) | u32::from(self.merge) << 1);
        out.u32(self.stdin as u32);
        out.optional(self.umask);
        let size = self
            .pty
            .map(|(rows, columns)| u32::from(rows) << 16 | u32::from(columns));
        out.optional(size);
        out.limits(&self.limits);
        out.list(&self.programs);
        out.list(&self.argv);
        out.list(&self.env);
        out.bytes(&self.cwd);
        out.bytes(&self.record);
        out.0
    }

    /// From bytes; `None` when they are no request.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let slot = from.u32()?;
        let flags = from.u32()?;
        let stdin = match from.u32()? {
            0 => Stdin::Null,
            1 => Stdin::Pipe,
            2 => Stdin::Passed,
            _ => return None,
        };
        let umask = from.optional()?;
        let pty = from
            .optional()?
            .map(|size| ((size >> 16) as u16, size as u16));
        Some(Self {
            slot,
            cookie: flags & 1 != 0,
            merge: flags & 2 != 0,
            stdin,
            umask,
            pty,
            limits: from.limits()?,
            programs: from.list()?,
            argv: from.list()?,
            env: from.list()?,
            cwd: from.bytes()?,
            record: from.bytes()?,
        })
    }
}

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
    /// Children of the keeper that are, or may be, members of this job;
    /// `u64::MAX` when they could not be listed.
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
pub(crate) fn word(value: Option<i32>) -> u64 {
    value.map_or(NONE, |value| value as u64)
}

pub(crate) fn unword(value: u64) -> Option<i32> {
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
            Some(Op::MemberEnded) => self.members_ended = args[0],
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

impl JobRow {
    /// As bytes: each fact as the operation and arguments that would tell it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let facts = &self.facts;
        let mut told = Vec::new();
        if let Some(started) = facts.started {
            let args = [started.pid as u64, started.start_time, 0, 0, 0];
            told.push((Op::Started, args));
        }
        told.extend(exec_args(facts.exec));
        told.extend(facts.ended.map(|ended| (Op::Ended, ended_args(ended))));
        told.extend(facts.reaped.map(|reaped| (Op::Reaped, reaped_args(reaped))));
        told.push((Op::MemberEnded, [facts.members_ended, 0, 0, 0, 0]));
        out.u32(self.slot);
        out.u32(told.len() as u32);
        for (op, args) in told {
            out.u32(u32::from(op as u16));
            args.iter().for_each(|value| out.u64(*value));
        }
        out.bytes(&self.record);
        out.0
    }

    /// From bytes; `None` when they are no row.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let mut row = Self {
            slot: from.u32()?,
            ..Self::default()
        };
        for _ in 0..from.u32()? {
            let op = Op::from_number(from.u32()?.try_into().ok()?)?;
            let mut args = [0; 5];
            for place in &mut args {
                *place = from.u64()?;
            }
            row.facts.learn(&Frame::new(op, 0, args));
        }
        row.record = from.bytes()?;
        Some(row)
    }
}

/// The payload of HELLO: what does not fit its arguments.
///
/// Its descriptors, in order: listener, house lock, ledger, arena, headers, then reading
/// and writing end of each scratch pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Lowest wire version the keeper speaks.
    pub oldest: u32,
    /// Highest one.
    pub newest: u32,
    /// Version of the keeper's build.
    pub build: Vec<u8>,
    /// The umask the keeper was started with.
    pub umask: u32,
    /// The limits it was started with and has raised for itself.
    pub limits: Vec<Limit>,
    /// The job that the last supervisor was restoring when it died.
    pub restoring: Option<u64>,
    /// How many supervisors in a row died while restoring that job.
    pub restoring_deaths: u32,
    /// Generation of the ledger passed along; 0 is the empty first one.
    pub ledger: u64,
}

impl Welcome {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.oldest);
        out.u32(self.newest);
        out.bytes(&self.build);
        out.u32(self.umask);
        out.limits(&self.limits);
        out.u64(self.restoring.unwrap_or(NONE));
        out.u32(self.restoring_deaths);
        out.u64(self.ledger);
        out.0
    }

    /// From bytes; `None` when they are no welcome.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        Some(Self {
            oldest: from.u32()?,
            newest: from.u32()?,
            build: from.bytes()?,
            umask: from.u32()?,
            limits: from.limits()?,
            restoring: Some(from.u64()?).filter(|job| *job != NONE),
            restoring_deaths: from.u32()?,
            ledger: from.u64()?,
        })
    }
}

/// Builds a payload.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn optional(&mut self, value: Option<u32>) {
        self.u64(value.map_or(NONE, u64::from));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn list(&mut self, list: &[Vec<u8>]) {
        self.u32(list.len() as u32);
        list.iter().for_each(|item| self.bytes(item));
    }

    fn limits(&mut self, limits: &[Limit]) {
        self.u32(limits.len() as u32);
        for limit in limits {
            self.u32(limit.resource);
            self.u64(limit.soft);
            self.u64(limit.hard);
        }
    }
}

/// Reads a payload; every method answers `None` when the bytes are used up.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    fn optional(&mut self) -> Option<Option<u32>> {
        let value = self.u64()?;
        Some((value != NONE).then_some(value as u32))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()?;
        self.take(length as usize).map(<[u8]>::to_vec)
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.u32()?;
        (0..count).map(|_| self.bytes()).collect()
    }

    fn limits(&mut self) -> Option<Vec<Limit>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| {
                Some(Limit {
                    resource: self.u32()?,
                    soft: self.u64()?,
                    hard: self.u64()?,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> ForkRequest {
        ForkRequest {
            slot: 3,
            programs: vec![b"/bin/true".to_vec(), b"/usr/bin/true".to_vec()],
            argv: vec![b"true".to_vec(), vec![]],
            env: vec![b"A=1".to_vec()],
            cwd: b"/".to_vec(),
            umask: Some(0o22),
            limits: vec![Limit {
                resource: 7,
                soft: 1024,
                hard: u64::MAX,
            }],
            cookie: true,
            stdin: Stdin::Passed,
            pty: Some((24, 80)),
            merge: true,
            record: vec![0, 255],
        }
    }

    #[test]
    fn a_request_survives_the_wire_and_a_cut_one_is_refused() {
        let bytes = request().encode();
        assert_eq!(ForkRequest::decode(&bytes), Some(request()));
        for length in 0..bytes.len() {
            assert_eq!(ForkRequest::decode(&bytes[..length]), None);
        }
    }

    #[test]
    fn a_row_survives_the_wire() {
        let row = JobRow {
            slot: 9,
            record: b"mine".to_vec(),
            facts: Facts {
                started: Some(Started {
                    pid: 7,
                    start_time: 99,
                }),
                exec: Exec::Failed {
                    step: Step::Chdir,
                    errno: 20,
                    candidate: 1,
                },
                ended: Some(Ended {
                    code: None,
                    signal: Some(9),
                    core: true,
                    withheld: false,
                    strays: 2,
                }),
                reaped: Some(Reaped {
                    code: Some(0),
                    signal: None,
                    user_us: 1,
                    sys_us: 2,
                    max_rss_kib: 3,
                }),
                members_ended: 4,
            },
        };
        assert_eq!(JobRow::decode(&row.encode()), Some(row));
    }

    #[test]
    fn every_number_names_the_operation_and_step_it_stands_for() {
        for (place, op) in OPS.into_iter().enumerate() {
            assert_eq!(op as usize, place + 1);
        }
        for (place, step) in STEPS.into_iter().enumerate() {
            assert_eq!(step as usize, place + 1);
        }
        assert_eq!(Op::from_number(0), None);
        assert_eq!(Op::from_number(26), None);
    }

    #[test]
    fn a_large_payload_and_descriptors_arrive_together() {
        let (ours, theirs) = kernel::packet_pair().expect("a socket pair");
        let payload = vec![7; 1 << 20];
        let frame = Frame::new(Op::Fork, 5, [1, 2, 3, 4, 5]).sequence(6);
        send(ours.as_fd(), frame, &payload, &[ours.as_fd()]).expect("room in the queue");
        let got = Inbox::default()
            .receive(theirs.as_fd())
            .expect("a message")
            .expect("an open socket");
        assert_eq!(got.payload, payload);
        assert_eq!((got.frame.job, got.frame.args), (5, [1, 2, 3, 4, 5]));
        assert_eq!((got.files.len(), got.truncated), (1, false));
    }

    #[test]
    fn a_packet_that_is_no_message_is_skipped() {
        let (ours, theirs) = kernel::packet_pair().expect("a socket pair");
        // SAFETY: three readable bytes.
        unsafe { libc::write(ours.as_raw_fd(), b"abc".as_ptr().cast(), 3) };
        let frame = Frame::new(Op::Ping, 0, [0; 5]);
        send(ours.as_fd(), frame, &[], &[]).expect("room in the queue");
        let mut inbox = Inbox::default();
        let error = inbox.receive(theirs.as_fd()).expect_err("not a message");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let next = inbox.receive(theirs.as_fd()).expect("a message");
        assert_eq!(next.map(|next| next.frame), Some(frame));
    }
}
