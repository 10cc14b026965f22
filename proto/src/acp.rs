//! Terminals of the Agent Client Protocol, version 1, as the supervisor serves them: shapes of `terminal/*`, and the
//! error numbers of that protocol.
//!
//! Unlike everywhere else, unknown fields in parameters are ignored and absent and null are alike: that is what the
//! peers of that protocol do. What it lacks is asked for in `_meta.ostler`, where a slip of the pen is refused.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use crate::{
    job::{Row, Size},
    refusal::RefusalKind,
    resource::ResourceLimit,
};

/// Version of that protocol.
pub const VERSION: u16 = 1;

/// What the methods of its terminals begin with.
pub const FAMILY: &str = "terminal/";

/// Error number of a thing that is not there.
pub const NO_RESOURCE: i64 = -32002;

/// Returns the number that a refusal has in an answer to `terminal/*`. `data.kind` says more.
pub const fn code(kind: RefusalKind) -> i64 {
    match kind {
        RefusalKind::NotFound
        | RefusalKind::Gone
        | RefusalKind::SessionGone
        | RefusalKind::Moved
        | RefusalKind::Ambiguous => NO_RESOURCE,
        RefusalKind::Parse
        | RefusalKind::InvalidRequest
        | RefusalKind::NoMethod
        | RefusalKind::BadArgument
        | RefusalKind::Cancelled => kind.code(),
        _ => RefusalKind::Internal.code(),
    }
}

/// `terminal/create`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase")]
pub struct CreateTerminal {
    /// Owner: a session that the connection has opened, by id or name.
    pub session_id: String,
    /// A program; or, without `args`, a whole line for a shell where it is no program's name.
    pub command: String,
    /// Its arguments: with any, the program is executed as it is named, without a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Variables beside those of a login; of a name that is given twice the last one counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVariable>>,
    /// Absolute working directory; the session's root, else the home directory, when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Bytes of text that `terminal/output` hands back at most, the newest ones; 4 MiB when absent or above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_byte_limit: Option<u64>,
    /// What the protocol lacks.
    #[serde(
        rename = "_meta",
        default,
        deserialize_with = "lenient",
        skip_serializing_if = "Option::is_none"
    )]
    pub meta: Option<CreateMeta>,
}

/// A variable.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct EnvVariable {
    /// Name.
    pub name: String,
    /// Value.
    pub value: String,
}

impl EnvVariable {
    /// A variable.
    pub fn new(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: value.into(),
        }
    }
}

/// `_meta` of `terminal/create`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
pub struct CreateMeta {
    /// Ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ostler: Option<CreateOptions>,
    /// Somebody else's.
    #[serde(flatten)]
    pub others: Map<String, Value>,
}

/// What a terminal can be given beyond the protocol; each as in `job/start`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CreateOptions {
    /// Idempotency key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Name, unique among the live jobs of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `env` is the whole environment.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub env_replace: bool,
    /// Variables that are kept from it, by name; what `env` gives it, it has all the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub withheld: Vec<String>,
    /// File mode mask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub umask: Option<u32>,
    /// Resource limits.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, ResourceLimit>,
    /// A real terminal of this size. Its output is what the program wrote, escape sequences included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pty: Option<Size>,
    /// An input that `job/write` feeds, in place of the null device.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stdin: bool,
    /// Time limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Time without output or input after which it is ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_ms: Option<u64>,
    /// Time between the polite and the forced end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

/// Of `_meta` only an object counts; anything else is dropped, as everywhere in that protocol. What is ours in it is
/// read strictly.
fn lenient<'de, D: Deserializer<'de>>(from: D) -> Result<Option<CreateMeta>, D::Error> {
    match Value::deserialize(from)? {
        Value::Object(map) => serde_json::from_value(Value::Object(map))
            .map(Some)
            .map_err(serde::de::Error::custom),
        _ => Ok(None),
    }
}

/// Answer of `terminal/create`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct CreatedTerminal {
    /// The job's `processId`.
    pub terminal_id: String,
}

/// `terminal/output`, `wait_for_exit`, `kill` and `release`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase")]
pub struct TerminalTarget {
    /// The session in which it was made.
    pub session_id: String,
    /// What `terminal/create` answered.
    pub terminal_id: String,
}

/// Answer of `terminal/output`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct TerminalText {
    /// The newest text, both streams in order of arrival.
    pub output: String,
    /// Something before it is left out.
    pub truncated: bool,
    /// How it ended; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<ExitStatus>,
}

/// How a program ended.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ExitStatus {
    /// What it returned; null after a signal.
    pub exit_code: Option<u32>,
    /// `SIGKILL`; null after a return.
    pub signal: Option<String>,
}

impl ExitStatus {
    /// How a job ended, if it did. One that never ran gives what a shell gives: 127 where there is no such program, 126
    /// where it cannot be executed.
    pub fn of(row: &Row) -> Option<Self> {
        let failed = row.spawn_error.as_ref().map(|error| error.shell_code());
        row.is_over().then(|| Self {
            // A negative code of another system goes out as it is written there.
            exit_code: row.exit_code.or(failed).map(|code| code as u32),
            signal: row.signal.clone(),
        })
    }
}

/// Nothing to say.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
pub struct Done {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(params: Value) -> Result<CreateTerminal, serde_json::Error> {
        serde_json::from_value(params)
    }

    #[test]
    fn a_meta_that_is_none_is_dropped_and_a_slip_in_ours_is_told() {
        let with = |meta: Value| read(json!({ "sessionId": "s", "command": "c", "_meta": meta }));
        assert!(with(json!(5)).unwrap().meta.is_none());
        assert!(with(json!(null)).unwrap().meta.is_none());
        let theirs = with(json!({ "traceparent": "x" })).unwrap().meta.unwrap();
        assert_eq!(theirs.others["traceparent"], "x");
        let ours = with(json!({ "ostler": { "stdin": true } })).unwrap().meta;
        assert!(ours.unwrap().ostler.unwrap().stdin);
        assert!(with(json!({ "ostler": { "stdn": true } })).is_err());
    }

    #[test]
    fn numbers_are_those_of_the_protocol() {
        for kind in RefusalKind::ALL {
            let code = code(*kind);
            assert!(code < 0, "{} has {code}", kind.word());
        }
        assert_eq!(code(RefusalKind::Gone), -32002);
        assert_eq!(code(RefusalKind::Limit), -32603);
    }
}
