//! A limit of the kernel that a job is given.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A resource limit of a job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ResourceLimit {
    /// Soft limit; null is unlimited.
    pub soft: Option<u64>,
    /// Hard limit; null is unlimited. It cannot rise above the keeper's.
    pub hard: Option<u64>,
}
