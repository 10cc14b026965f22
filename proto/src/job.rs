//! What is said of a job: the row that lists show, the result that is handed back, pages of its output.
//!
//! Times are integer Unix milliseconds, durations milliseconds, signals `SIGINT`. Unknown fields must be
//! ignored by readers: rows grow.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a job is.
#[derive(
    Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A command, `t1`.
    Command,
    /// A persistent shell, `s1`.
    Shell,
    /// A sub-agent, `a1`.
    Agent,
    /// A send in the background, `x1`.
    Send,
}

impl Kind {
    /// Returns the letter that ids of this kind begin with.
    pub const fn letter(self) -> char {
        match self {
            Self::Command => 't',
            Self::Shell => 's',
            Self::Agent => 'a',
            Self::Send => 'x',
        }
    }
}

/// What is true of a job now.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum State {
    /// Accepted; exec has neither succeeded nor failed.
    Starting,
    /// The main process runs.
    Running,
    /// A polite signal is out; members are left.
    Stopping,
    /// The main process is gone, its output is not.
    Draining,
    /// The result stands. Members may be left: see `tree.left`.
    Exited,
}

/// How a job ended. The first outcome wins and they never collapse into one another.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The main process returned `exitCode`.
    Exited,
    /// The main process died of `signal`, which we did not send.
    Signaled,
    /// Its time limit passed.
    TimedOut,
    /// Somebody stopped it: `outcomeDetail.by` and `reason`.
    Stopped,
    /// It wrote more than `output.maxBytes` with `onLimit: stop`.
    OutputLimit,
    /// It was quiet for its idle limit.
    IdleReaped,
    /// It never ran: `spawnError`.
    SpawnFailed,
    /// It never ran: the sandbox did not start.
    SandboxFailed,
    /// Nobody knows: the keeper was killed; or it was a send in the background, and its shell ended.
    Lost,
}

/// More about an outcome; only the fields that apply are present.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct OutcomeDetail {
    /// Who ended it: `user`, `client`, `timeout`, `lease`, `close`, `dispose`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// What they said; of a send in the background that is over, why it is: `prompt`, `input_wait` or `inferred_idle`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Error number of the failed step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
    /// What was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The limit that was reached, in its own unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What could not be ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<Survivor>,
}

/// A process that could not be ended.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Survivor {
    /// Process number.
    pub pid: u32,
    /// Program name as the kernel has it.
    pub program: String,
    /// Why: `uninterruptible`, `not permitted`, `does not react`.
    pub why: String,
}

/// Why a job never ran.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SpawnError {
    /// Which step failed: `exec`, `cwd`, `stdin`, `limits`, `fork`; `line` where a shell did not take one.
    pub step: String,
    /// Error number.
    pub errno: i32,
    /// The kernel's words for it.
    pub message: String,
    /// What was tried; the last of several places.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The request's field that caused it.
    pub field: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl SpawnError {
    /// Returns the code that a shell would give: 127 when nothing of that name was found, else 126.
    pub fn shell_code(&self) -> i32 {
        const ENOENT: i32 = 2;
        if self.step == "exec" && self.errno == ENOENT {
            127
        } else {
            126
        }
    }
}

/// A session as rows name it.
#[derive(
    Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord,
)]
#[serde(rename_all = "camelCase")]
pub struct SessionRef {
    /// Unique id.
    pub id: String,
    /// Short name, unique or not.
    pub name: String,
}

/// Where the output stands.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// Oldest offset that can still be read.
    pub start: u64,
    /// Offset after the last byte written so far.
    pub end: u64,
    /// Offset at which the result was taken; later bytes came from what the job left behind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_exit: Option<u64>,
    /// Bytes that can no longer be read.
    pub lost: u64,
    /// File with what left the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill: Option<String>,
    /// Why the spill stopped, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spill_stopped: Option<String>,
    /// Processes that still held the output open when the result was taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_by: Option<u32>,
}

/// The tree of a job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// How members are found: `cgroup`, `cookie`, `links`, `jobObject`.
    pub rung: String,
    /// Why it is no better one, in `get` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rung_why: Option<String>,
    /// Members left after the end.
    pub left: u32,
    /// Members, in `get` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids: Option<Vec<u32>>,
    /// Ports on which members listen, in `get` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ports: Option<Vec<u16>>,
    /// Processor time of living members and of the reaped leader, in `get` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// Resident memory of living members, in `get` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
}

/// Window of a terminal.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// A file that a job left with us.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Artifact {
    /// `log`: everything that left the ring.
    #[serde(rename = "type")]
    pub kind: String,
    /// Where it is.
    pub path: String,
    /// Its size.
    pub bytes: u64,
}

/// One command of a pipeline: what became of it.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StageRow {
    /// All arguments, the program first.
    pub args: Vec<String>,
    /// The file that was executed, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_path: Option<String>,
    /// Process number; metadata.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// What it returned. Of a living job `job/get` tells, lists do not.
    pub exit_code: Option<i32>,
    /// The signal that it died of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Ended as expected; null while it is not known how it ended.
    pub ok: Option<bool>,
}

/// What to know before something is started once more: nothing was started now, the row is that of the first time.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Retry {
    /// It is not over, or somebody is left of it: a second one would run beside that.
    pub running: bool,
    /// Its program was executed, or one of its stages, so that what it does may be done, in part or as a whole. False: it
    /// never ran, and may be started with another key. Null: not known.
    pub ran: Option<bool>,
    /// What the caller said that it does: `read`, `write`, `network` or `process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<String>,
}

/// One job, as lists and `job/get` show it.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Short id in its session.
    pub id: String,
    /// Unique, unguessable id.
    pub process_id: String,
    /// The owner.
    pub session: SessionRef,
    /// What it is.
    pub kind: Kind,
    /// Name given at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What is true of it.
    pub state: State,
    /// How it ended; null while it lives.
    pub outcome: Option<Outcome>,
    /// More about the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome_detail: Option<OutcomeDetail>,
    /// What the main process returned.
    pub exit_code: Option<i32>,
    /// The signal that the main process died of.
    pub signal: Option<String>,
    /// Ended by itself with an expected code, and so did each of its stages; null while it lives.
    pub ok: Option<bool>,
    /// The outcome is `timed_out`.
    pub timed_out: bool,
    /// The outcome is `stopped`.
    pub cancelled: bool,
    /// Why it never ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spawn_error: Option<SpawnError>,
    /// `processId` of the shell that a send in the background was sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell: Option<String>,
    /// Process number of the main process; metadata.
    pub pid: Option<u32>,
    /// The program as it was asked for.
    pub executable: String,
    /// The file that was executed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_path: Option<String>,
    /// All arguments, the program first; of a pipeline, those of its first stage.
    pub args: Vec<String>,
    /// In the answer to a request whose key is known: what to know of the job that it started then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    /// The commands of a pipeline, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<StageRow>,
    /// Working directory.
    pub cwd: String,
    /// When it was accepted.
    pub started_at: u64,
    /// When its result was published.
    pub finished_at: Option<u64>,
    /// From acceptance to the result on the monotonic clock, sleep of the machine left out.
    pub duration_ms: Option<u64>,
    /// Sleep of the machine in between.
    pub slept_ms: u64,
    /// How text was decoded: `utf-8`.
    pub encoding: String,
    /// Invalid sequences that were replaced in the texts of the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replaced: Option<u64>,
    /// Files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub artifacts: Vec<Artifact>,
    /// Window of its terminal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Size>,
    /// Title of that window, if the program gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Where its output stands.
    pub output: Output,
    /// Its tree.
    pub tree: Tree,
}

impl Row {
    /// Tells whether the result stands.
    pub fn is_over(&self) -> bool {
        self.state == State::Exited
    }
}

/// A finished job with its texts. Immutable once published.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct JobResult {
    /// The row.
    #[serde(flatten)]
    pub row: Row,
    /// Text of standard output up to `output.atExit`: whole, or head and tail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Text of standard error, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
    /// Not the whole text: the rest is in the log.
    pub stdout_truncated: bool,
    /// Not the whole text: the rest is in the log.
    pub stderr_truncated: bool,
    /// What the caller said that it does: `read`, `write`, `network` or `process`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub side_effect: Option<String>,
    /// The file that was executed, as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<FileIdentity>,
    /// Variables that whoever started it kept from it, by name: null in `env`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// The run became a background job; it is not over.
    #[serde(default)]
    pub detached: bool,
}

/// What tells a file from another one of the same name, before or after.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct FileIdentity {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Size.
    pub bytes: u64,
    /// When its content changed last.
    pub modified_at: u64,
}

/// One bounded answer to a read.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// Offset of the first byte of this page.
    pub from: u64,
    /// Where to read on.
    pub next: u64,
    /// Offset after the last byte written so far.
    pub end: u64,
    /// Bytes between what was asked for and `from` that can no longer be read.
    pub lost: u64,
    /// The bytes as text; never cut inside a character.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The bytes as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Invalid sequences in this page that became U+FFFD.
    pub replaced: u64,
    /// `[stream, length in bytes of text or data]` in order, stream 1 stdout, 2 stderr; absent when all is stdout.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<(u8, u64)>,
    /// Nothing will ever follow `next`.
    pub eof: bool,
    /// Lines that matched, with their context, where lines were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<Line>,
}

/// A line of a log.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// Offset of its first byte.
    pub from: u64,
    /// Its text without the line end.
    pub text: String,
    /// It stands beside a match and is none itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub context: bool,
    /// Lines between the one before and this one are left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// Only its beginning: it is longer than all that was asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cut: bool,
}

/// Which of the two streams.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}
