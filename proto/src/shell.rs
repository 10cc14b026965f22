//! What `shell/*` takes and answers: a shell is a job of kind `shell`, so everything that `job/*` does works on it too.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    job::{Row, SessionRef},
    reason::Reason,
    resource::ResourceLimit,
};

/// `shell/open`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenShell {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Idempotency key: the same key and parameters answer the same shell.
    pub key: Option<String>,
    /// Program and arguments: a shell, or anything that talks to a terminal. Absent: `SHELL` of the request, else the
    /// user's own shell.
    pub args: Vec<String>,
    /// A shell without the user's start files.
    pub clean: bool,
    /// Absolute working directory; the session's root, else the home directory, when absent.
    pub cwd: Option<String>,
    /// Variables; null removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// `env` is the whole environment. Otherwise it is added to a plain login environment.
    pub env_replace: bool,
    /// File mode mask.
    pub umask: Option<u32>,
    /// Resource limits by name, as in `job/start`.
    pub limits: BTreeMap<String, ResourceLimit>,
    /// Lines of its window, 1 to 5,000; 40 when absent.
    pub rows: Option<u16>,
    /// Columns of its window, 1 to 5,000; 120 when absent.
    pub cols: Option<u16>,
    /// Time without activity after which it is ended as `idle_reaped`; the setting `idle` of table `shell` when absent,
    /// 0: never.
    pub idle_ms: Option<u64>,
    /// Grace of any stop of this shell.
    pub grace_ms: Option<u64>,
    /// Name, unique among the live jobs of the session.
    pub name: Option<String>,
    /// Sandbox mode.
    pub mode: Option<String>,
    /// Longest time to wait for the first prompt; 250 when absent, at most 60,000.
    pub wait_ms: Option<u64>,
}

/// An open shell.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct OpenedShell {
    /// Its row.
    pub row: Row,
    /// It waits for a line. Otherwise nothing is known yet: a send or exec waits for that by itself.
    pub ready: bool,
    /// Why it counts as ready, or that it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// What it has said so far, without escape sequences.
    pub text: String,
    /// `shell/exec` works on it: it is one of the shells whose prompt can be marked.
    pub exec: bool,
}

/// `shell/send`: types, then waits until the program in front waits for more.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Send {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Typed as it is: no Enter is added. Empty: only waits.
    pub text: String,
    /// Types Enter behind it.
    pub enter: bool,
    /// Keys that are pressed behind that, by the names of `job/keys`. One that there is not refuses all of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<String>,
    /// Longest time in all, 30,000 when absent. At its end nothing is stopped.
    pub timeout_ms: Option<u64>,
    /// Silence after which it is taken for waiting, 3,000 when absent; told as `inferred_idle`.
    pub quiet_ms: Option<u64>,
    /// Bytes of text handed back at most, the newest ones; 8 KiB when absent.
    pub max: Option<u64>,
    /// Answers at once with a job of kind `send` that stands for it. Then `timeoutMs` and `quietMs` have no default, and
    /// at the end of `timeoutMs` what runs is interrupted.
    pub background: bool,
    /// Idempotency key: asked again with it, the same text is not typed a second time, only what comes of it awaited. The
    /// newest 16 lines and texts of a shell are known.
    pub key: Option<String>,
}

/// What came of a send.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Sent {
    /// Why it returned: `prompt`, `input_wait`, `inferred_idle`, `wait_over` or `exit`, which is the end of the shell;
    /// `background` where that was asked for, and `job` has all there is to know.
    pub reason: Reason,
    /// What was printed meanwhile, echo included, without escape sequences.
    pub text: String,
    /// Where that begins in the log.
    pub from: u64,
    /// Where it ends.
    pub next: u64,
    /// Text before the part that is handed back; read it with `job/read`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Exit code of the line that ended, where the prompt tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Directory of the shell at its prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Somebody else typed meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// The shell.
    pub row: Row,
    /// The job in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Row>>,
}

/// `shell/exec`: one command line, its output, its code.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Exec {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// What the shell is to run: one line or many.
    pub line: String,
    /// Longest time in all; until it is done when absent. At its end the line goes on.
    pub timeout_ms: Option<u64>,
    /// Output above this many bytes is handed back as head and tail; 50 KiB when absent, at most 16 MiB.
    pub max: Option<u64>,
    /// Hand the output back as bytes.
    pub raw: bool,
    /// Wait on when a program asks for input, instead of saying so.
    pub through: bool,
    /// Run it in whatever POSIX shell is in front: one inside the shell, over ssh, of another user.
    pub inline: bool,
    /// Answers at once with a job of kind `send` that stands for the line and has its output in a log of its own. It
    /// waits on when a program asks for input; at the end of `timeoutMs` the line is interrupted.
    pub background: bool,
    /// Idempotency key: asked again with it, the same line does not run a second time. Its end is awaited and told, also
    /// by a supervisor that took the place of the one that was asked. The newest 16 lines of a shell are known.
    pub key: Option<String>,
}

/// What came of a line.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Executed {
    /// Why it returned: `prompt` when the line is done; else `input_wait`, `wait_over` or `exit`, which is the end of
    /// the shell. After the first two the line goes on: `shell/send` types to it or waits for it, `job/signal` interrupts.
    /// `background` where that was asked for, and `job` has all there is to know.
    pub reason: Reason,
    /// Exactly what it printed, line ends as the program wrote them. With `truncated` only its head.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The same as bytes, where `raw` was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The end of the output, where it is too long to be handed back whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tail: String,
    /// `output` and `tail` are not all of it; `job/read` from `from` to `next` has the rest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Where the output begins in the log.
    pub from: u64,
    /// Where it ends, or ended so far.
    pub next: u64,
    /// Its line ends stand in the log as CR LF, as the terminal made them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crlf: bool,
    /// Bytes of it that the log does not have any more.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Bytes that were no UTF-8.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub replaced: u64,
    /// Its exit code, as the shell tells it; of the shell after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Directory of the shell afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How long it ran.
    pub duration_ms: u64,
    /// Somebody else typed meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shared: bool,
    /// Other processes of the shell live on and may print later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub others: bool,
    /// The shell.
    pub row: Row,
    /// The job in the background.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<Box<Row>>,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `shell/read`: lines as a person would see them, counted from the newest.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReadShell {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Lines to leave out, counted from the newest.
    pub back: u64,
    /// Lines at most, 500 when absent.
    pub count: Option<u64>,
}

/// Lines.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ShellLines {
    /// In the order in which they were printed.
    pub lines: Vec<String>,
    /// How many there are in all.
    pub total: u64,
    /// The newest `back` were left out.
    pub back: u64,
    /// Bytes before the oldest line that are not looked at any more.
    pub lost: u64,
    /// The shell.
    pub row: Row,
}

/// `shell/list`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ShellTable {
    /// Live first, then the newest ended.
    pub shells: Vec<ShellRow>,
}

/// One shell.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct ShellRow {
    /// Its row.
    pub row: Row,
    /// Its owner.
    pub session: SessionRef,
    /// The last prompt was told to be back and nothing was typed since.
    pub ready: bool,
    /// A send or exec is in progress.
    pub busy: bool,
    /// `shell/exec` works on it.
    pub exec: bool,
    /// Its directory, as last seen at a prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
}
