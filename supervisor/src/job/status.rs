//! The *status* cell: what is true of a job, what its stop has done, and its result.

use std::sync::Arc;

use ostler_proto::job::{FileIdentity, Outcome, OutcomeDetail, SpawnError, State, Survivor};
use serde::{Deserialize, Serialize};

use crate::{clock::Moment, pipeline::StageEnd};

/// What the stop of a tree has done so far.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stopped {
    /// Members signalled or found, in order of appearance.
    pub(crate) seen: Vec<u32>,
    pub(crate) forced: u32,
    pub(crate) survivors: Vec<Survivor>,
    /// Nothing is left, or the survivors are named.
    pub(crate) done: bool,
    pub(crate) took_ms: u64,
}

/// The result. Never changes once published.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    pub(crate) detail: Option<OutcomeDetail>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) signal: Option<String>,
    pub(crate) spawn_error: Option<SpawnError>,
    pub(crate) at: Moment,
    pub(crate) at_exit: u64,
    /// Bytes lost by then.
    pub(crate) lost: u64,
    pub(crate) held_by: Option<u32>,
    pub(crate) pid: Option<u32>,
    pub(crate) resolved: Option<String>,
    pub(crate) file: Option<FileIdentity>,
    pub(crate) cpu_ms: u64,
    /// Texts, kept here only where later output could push them out of the ring.
    pub(crate) texts: Option<Texts>,
    /// Number of the notice that tells of this end; none where somebody is told otherwise: who waits for
    /// a foreground run, and an owner who ended it.
    pub(crate) notice: Option<u64>,
    /// How the stages of a pipeline ended.
    #[serde(default)]
    pub(crate) stages: Vec<StageEnd>,
}

impl Finished {
    /// A stage of its pipeline was executed.
    pub(super) fn began(&self) -> bool {
        self.stages.iter().any(|stage| stage.pid.is_some())
    }
}

/// Head and tail of both streams.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Texts {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) stdout_cut: bool,
    pub(crate) stderr_cut: bool,
    pub(crate) replaced: u64,
}

/// The *status* cell.
#[derive(Debug, Clone)]
pub(crate) struct Status {
    pub(crate) state: State,
    pub(crate) pid: Option<u32>,
    pub(crate) start_time: u64,
    /// How its members are found, once that is known.
    pub(crate) rung: Option<&'static str>,
    pub(crate) resolved: Option<String>,
    pub(crate) file: Option<FileIdentity>,
    /// Members left after the end.
    pub(crate) left: u32,
    pub(crate) finished: Option<Arc<Finished>>,
    pub(crate) stopped: Option<Stopped>,
    /// No member is left and nothing more can come.
    pub(crate) over: bool,
}
