//! Why something that was waited for is over.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why a wait is over.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The job ended, which was what was waited for.
    Exit,
    /// The job ended before what was waited for happened.
    EndedBefore,
    /// The port is open.
    Port,
    /// The text came.
    Text,
    /// It was quiet.
    Quiet,
    /// The prompt is back.
    Prompt,
    /// It waits for input.
    InputWait,
    /// It is quiet and probably waits.
    InferredIdle,
    /// The wait's own time is over; the job is not touched.
    WaitOver,
    /// This job has no end to wait for.
    NoEnd,
    /// It goes on in the background, as a job of its own.
    Background,
}
