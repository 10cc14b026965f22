//! Shapes of `agent/*`: sub-agents as jobs.
//!
//! A sub-agent is a row `a1` of the session that delegates to it. Either a program stands for it, started with the row,
//! or whoever registers it speaks as it: appends what it has to say and finishes it. It may have a session of its own,
//! in which its commands run; at its end they go to the session that delegated.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{job::Row, session::OpenedSession, start::Start};

/// `agent/register`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RegisterAgent {
    /// The session that delegates; the attached one when absent.
    pub session: Option<String>,
    /// What it is to do, for lists. Needed where `start` is absent.
    pub label: Option<String>,
    /// Name, unique among the live jobs of the session.
    pub name: Option<String>,
    /// Idempotency key: the same key and parameters answer the same row, and who asks again speaks as it again.
    pub key: Option<String>,
    /// A session of its own. A program always has one.
    pub child: Option<ChildSession>,
    /// The program that is the sub-agent, with a `session`, `key` and `name` of this request. It finds its own session in
    /// `OSTLER_SESSION`.
    pub start: Option<Box<Start>>,
    /// Time limit from acceptance; with `start` its own.
    pub timeout_ms: Option<u64>,
    /// Grace of any stop; with `start` its own.
    pub grace_ms: Option<u64>,
}

/// The session of a sub-agent. It lives as long as that does.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ChildSession {
    /// Id; made of that of the delegating session when absent.
    pub id: Option<String>,
    /// Live commands allowed.
    pub commands: Option<u32>,
    /// Live shells allowed.
    pub shells: Option<u32>,
    /// Live sub-agents allowed.
    pub agents: Option<u32>,
}

/// A registered sub-agent.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct RegisteredAgent {
    /// Its row.
    pub row: Row,
    /// Its session, not attached here; the token at its creation only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub child: Option<OpenedSession>,
}

/// `agent/append`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AppendAgent {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// What it says. Either this or `base64`.
    pub text: Option<String>,
    /// The same as bytes.
    pub base64: Option<String>,
    /// Where its log must end before it. Where it ends behind it, that has been said already and is not said twice, for who
    /// has lost the answer; anywhere else is refused.
    pub at: Option<u64>,
}

/// What became of that.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct AppendedAgent {
    /// Where its log ends now.
    pub end: u64,
    /// Somebody wants its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRequest>,
}

/// Somebody wants the end of a sub-agent.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct StopRequest {
    /// Who, as in an outcome.
    pub by: String,
    /// Why, in that one's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is left of the grace: at its end the row is `stopped` whatever it says.
    pub left_ms: u64,
}

/// `agent/stopRequested`: asked by who speaks as a sub-agent, answered when somebody wants its end.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AwaitStop {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
}

/// Why `agent/stopRequested` answers.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct StopAwaited {
    /// Somebody wants its end; absent when it has ended otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<StopRequest>,
    /// The row now.
    pub row: Row,
}

/// `agent/finish`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct FinishAgent {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// The last that it says.
    pub text: Option<String>,
    /// 0: it has done what it was to do. As of a program, 0 to 255.
    pub exit_code: i32,
    /// Why it ended so, in a line.
    pub reason: Option<String>,
}
