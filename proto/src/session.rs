//! What a session that was opened is, and how much may live in it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::SessionRef;

/// An open session.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct OpenedSession {
    /// Which.
    pub session: SessionRef,
    /// Needed to attach again; told at creation only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// It did not exist before.
    pub created: bool,
    /// Its limits now.
    pub limits: SessionLimits,
}

/// Live jobs allowed.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SessionLimits {
    /// Commands.
    pub commands: u32,
    /// Shells.
    pub shells: u32,
    /// Sub-agents.
    pub agents: u32,
}
