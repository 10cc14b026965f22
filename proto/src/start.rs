//! What a job is started with.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{job::Size, resource::ResourceLimit};

/// What a job's standard input is.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum Stdin {
    /// The null device.
    #[default]
    Closed,
    /// A pipe that `job/write` feeds.
    Open,
    /// This text, then the end.
    Text(String),
    /// These bytes, then the end.
    Base64(String),
}

/// What happens at `maxBytes`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum OnLimit {
    /// Nothing: the log keeps what it can.
    #[default]
    Keep,
    /// The tree is ended: `output_limit`.
    Stop,
}

/// What is done with output.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OutputPolicy {
    /// Bound for `onLimit`.
    pub max_bytes: Option<u64>,
    /// What happens there.
    pub on_limit: OnLimit,
    /// Keep on disk what leaves the ring; true when absent.
    pub spill: Option<bool>,
    /// One pipe for both streams, as `2>&1`: exact order, no telling apart.
    pub merge: bool,
}

/// One command of a pipeline.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Stage {
    /// Program and arguments.
    pub args: Vec<String>,
    /// Exit codes that count as success; 0 alone when empty. Of all but the last stage SIGPIPE counts, too: whoever read
    /// from it had enough.
    #[serde(default)]
    pub ok: Vec<i32>,
}

/// `job/start`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Start {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Idempotency key: the same key and parameters answer the same job.
    pub key: Option<String>,
    /// Program and arguments. Either this, `line` or `stages`.
    pub args: Vec<String>,
    /// A line for `/bin/sh -c`.
    pub line: Option<String>,
    /// A pipeline: each reads what the one before it writes, no shell is between them. One job, in which the last one's
    /// end is the job's; the row has the end of each. 64 at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<Stage>,
    /// Absolute working directory; the session's root, else the home directory, when absent.
    pub cwd: Option<String>,
    /// Variables; null removes one.
    pub env: BTreeMap<String, Option<String>>,
    /// `env` is the whole environment. Otherwise it is added to a plain login environment.
    pub env_replace: bool,
    /// File mode mask.
    pub umask: Option<u32>,
    /// Resource limits by name: `nofile`, `core`, `as`, `cpu`, `data`, `fsize`, `memlock`, `nproc`, `stack`.
    pub limits: BTreeMap<String, ResourceLimit>,
    /// Standard input.
    pub stdin: Stdin,
    /// Run in a terminal of this size, 1 to 5,000 each way. It is input and both outputs.
    pub pty: Option<Size>,
    /// Time limit from acceptance.
    pub timeout_ms: Option<u64>,
    /// Time without output or input after which it is ended as `idle_reaped`; none when absent.
    pub idle_ms: Option<u64>,
    /// Grace of any stop of this job.
    pub grace_ms: Option<u64>,
    /// What is done with output.
    pub output: OutputPolicy,
    /// Exit codes that count as success; 0 alone when empty. Those of `stages` stand there.
    pub ok: Vec<i32>,
    /// `read`, `write`, `network` or `process`: what the caller says it does; kept in the record.
    pub side_effect: Option<String>,
    /// Name, unique among the live jobs of the session.
    pub name: Option<String>,
    /// Sandbox mode.
    pub mode: Option<String>,
}
