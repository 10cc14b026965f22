//! What a job is: the plan of a request, then the record that travels with its process.

use ostler_proto::{
    job::{Kind, SessionRef, Size},
    methods::{OnLimit, Start},
};
use serde::{Deserialize, Serialize};

use crate::{clock::Moment, pipeline::Pipeline, terminal::dialect::ShellSpec};

/// A checked request, ready to become a job.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) start: Start,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    pub(crate) candidates: Vec<String>,
    pub(crate) accepted: Moment,
    pub(crate) bound: bool,
    pub(crate) key_of: u64,
    pub(crate) kind: Kind,
    /// How to talk to it, where it is a shell.
    pub(crate) shell: Option<ShellSpec>,
    /// Process id of the shell that it was sent to, where it is a send in the background.
    pub(crate) sent_to: Option<String>,
    /// Bytes of text that an agent wants at most of it, where it is an ACP terminal.
    pub(crate) text_limit: Option<u64>,
}

impl Plan {
    /// Takes away what was laid down for a job that did not come to be.
    pub(crate) fn clean_beside(&self) {
        clean_beside(self.shell.clone());
    }
}

/// Takes away the folder of a shell beside everything else: a disk that does not answer must not hold anybody up.
pub(super) fn clean_beside(shell: Option<ShellSpec>) {
    if shell.is_some() {
        tokio::task::spawn_blocking(move || clean(shell.as_ref()));
    }
}

/// Takes away the folder of a shell.
fn clean(shell: Option<&ShellSpec>) {
    if let Some(dir) = shell.and_then(|s| s.dir.as_deref()) {
        // Gone already where the whole folder above went.
        let _ = std::fs::remove_dir_all(dir);
    }
}

/// Where a job stands in the table: the only part of it that a rename or an adoption changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seat {
    pub(crate) session: SessionRef,
    /// What tells that session from every other one, whatever its id is.
    #[serde(default)]
    pub(crate) key: String,
    /// Short id in it.
    pub(crate) id: String,
}

/// What a job is, from its acceptance on. It travels in the fork request, so that the child and this record
/// come into being in one step. It holds no value of a variable: those may be secrets.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Spec {
    /// Number in this house: the job word on the wire to the keeper and in the cookie.
    pub(crate) number: u64,
    /// Where it was put at first; [`Job::seat`] is where it is.
    pub(crate) born: Seat,
    pub(crate) process_id: String,
    pub(crate) kind: Kind,
    pub(crate) name: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) cwd: String,
    /// Files that the child tries to execute, in order.
    pub(crate) candidates: Vec<String>,
    pub(crate) accepted: Moment,
    /// The window that its terminal began with.
    #[serde(default)]
    pub(crate) window: Option<Size>,
    /// Monotonic time at which the time limit passes.
    pub(crate) timeout_at: Option<u64>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) grace_ms: u64,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) on_limit: OnLimit,
    pub(crate) ok: Vec<i32>,
    pub(crate) side_effect: Option<String>,
    pub(crate) key: Option<String>,
    /// Hash of the parameters that came with the key.
    pub(crate) key_of: u64,
    pub(crate) stdin_open: bool,
    /// It has a terminal.
    pub(crate) pty: bool,
    /// How to talk to it, where it is a shell.
    #[serde(default)]
    pub(crate) shell: Option<ShellSpec>,
    /// Process id of the shell that it was sent to, where it is a send in the background: no process stands for it.
    #[serde(default)]
    pub(crate) sent_to: Option<String>,
    /// Key of the session that a sub-agent has for itself: its jobs go to this one's at its end.
    #[serde(default)]
    pub(crate) child: Option<String>,
    /// Bytes of text that an agent wants at most of it, where it is an ACP terminal.
    #[serde(default)]
    pub(crate) text_limit: Option<u64>,
    /// Its commands, where they are several.
    #[serde(default)]
    pub(crate) pipeline: Option<Pipeline>,
    /// Variables that the request kept from it.
    #[serde(default)]
    pub(crate) withheld: Vec<String>,
    /// The tree ends with its request, until it is detached.
    pub(crate) bound: bool,
    /// Where output goes that leaves the ring.
    pub(crate) spill: Option<String>,
    pub(crate) slot: u32,
    /// What this record is to be read as.
    #[serde(default = "first_format")]
    pub(crate) format: u32,
}

impl Spec {
    /// No process stands for it, so that the keeper knows nothing of it: what was sent to a shell in the background, and
    /// a sub-agent that somebody speaks as.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::Agent) && self.candidates.is_empty()
    }
}

/// The format of what does not say so.
pub(crate) fn first_format() -> u32 {
    1
}
