//! `supervisor/upgrade`: another image in the place of the supervisor, while its jobs run on.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `supervisor/upgrade`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UpgradeSupervisor {
    /// Absolute path of the program that is to be the next supervisor. Opened at once; what becomes of the path
    /// afterwards is no matter.
    pub image: String,
    /// Also when it is the build that runs.
    pub force: bool,
}

/// A build.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Build {
    /// Version of the program.
    pub version: String,
    /// Which build of that version; empty in a program that does not say so.
    pub build: String,
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.build.as_str() {
            "" => f.write_str(&self.version),
            build => write!(f, "{} ({build})", self.version),
        }
    }
}

/// What was found out about the image, and done. When `changed`, the next supervisor waits and this one leaves right
/// after this answer: the connection ends, and the next one answers on the same socket, with the next generation.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeBegun {
    /// False: it is the build that runs, and nothing was done.
    pub changed: bool,
    /// What runs.
    pub from: Build,
    /// What the image is.
    pub to: Build,
    /// The keeper, which stays as it is.
    pub keeper: Build,
    /// The generation that leaves.
    pub generation: u64,
    /// Live jobs, which go on.
    pub jobs: u64,
}
