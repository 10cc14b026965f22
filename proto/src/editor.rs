//! What an editor may say of itself in its `initialize`, and what it is told there.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{job::SessionRef, methods::HelloAnswer, resource::ResourceLimit};

/// `initializationOptions` of an editor, all of them optional.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct EditorOptions {
    /// Content of the owner key file: every session of the user becomes visible.
    pub owner_key: Option<String>,
    /// The session to use, instead of the one of this editor and its workspace. It gets no lease.
    pub session: Option<String>,
    /// Proof that the editor may attach to it; told when the session was made.
    pub token: Option<String>,
    /// The session lasts until it is closed, not until 5 min after the editor is gone.
    pub keep: bool,
    /// The environment of jobs that commands start, in place of a plain login environment; what a command names itself is
    /// added to it.
    pub env: Option<BTreeMap<String, Option<String>>>,
    /// File mode mask of these jobs.
    pub umask: Option<u32>,
    /// Resource limits of these jobs.
    pub limits: BTreeMap<String, ResourceLimit>,
}

/// `capabilities.experimental.ostler` in the answer to an editor's `initialize`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct EditorHello {
    /// As in `supervisor/hello`.
    #[serde(flatten)]
    pub hello: HelloAnswer,
    /// The session that commands without one mean.
    pub session: SessionRef,
    /// Needed to attach to it again; told when it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}
