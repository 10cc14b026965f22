//! The only errors a client can receive. Each has a number and a stable kind; the words may change.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::job::Row;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $code:literal $word:literal;)*) => {
        /// The closed list of refusals.
        #[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
        pub enum RefusalKind {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl RefusalKind {
            /// All of them, in order of their numbers.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// JSON-RPC error number.
            pub const fn code(self) -> i64 {
                match self { $(Self::$name => $code,)* }
            }

            /// Stable word, `data.kind` on the wire.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

kinds! {
    /// The message is no JSON.
    Parse = -32700 "parse";
    /// The message is no request, or a batch.
    InvalidRequest = -32600 "invalid_request";
    /// No method of that name.
    NoMethod = -32601 "no_method";
    /// A field is missing, malformed or out of range: `field`.
    BadArgument = -32602 "bad_argument";
    /// A fault of ours; the log has more.
    Internal = -32603 "internal";
    /// The caller cancelled this request.
    Cancelled = -32800 "cancelled";
    /// Unknown, or another session's: the same answer.
    NotFound = 2001 "not_found";
    /// It was here; `tombstone` says what happened.
    Gone = 2002 "gone";
    /// The session has been closed, or belongs to an earlier supervisor.
    SessionGone = 2003 "session_gone";
    /// The session's jobs are in another session now.
    Moved = 2004 "moved";
    /// A limit is reached: `what`, `limit`, `rows`.
    Limit = 2005 "limit";
    /// Somebody else is at it.
    Busy = 2006 "busy";
    /// A person holds the shell.
    Held = 2007 "held";
    /// The sandbox did not start; nothing ran.
    SandboxFailed = 2009 "sandbox_failed";
    /// The job was started with its input closed.
    NoInput = 2010 "no_input";
    /// Strict text was asked for and the bytes are none.
    Undecodable = 2011 "undecodable";
    /// No foreground group to signal.
    NoGroup = 2012 "no_group";
    /// The directory is outside what the session may use.
    CwdRefused = 2013 "cwd_refused";
    /// The command is on the guard list.
    CommandRefused = 2014 "command_refused";
    /// Nobody is there who may decide.
    NoHost = 2015 "no_host";
    /// One side is too old.
    TooOld = 2016 "too_old";
    /// The supervisor is leaving; nothing new is taken.
    Leaving = 2017 "leaving";
    /// Another live job of the session has this name.
    NameTaken = 2018 "name_taken";
    /// Several things have this name: `candidates`.
    Ambiguous = 2019 "ambiguous";
    /// The key was used for another request.
    KeyConflict = 2020 "key_conflict";
    /// The image cannot take over; nothing has changed.
    ImageRefused = 2021 "image_refused";
}

/// A refusal: what, why and what next.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// Which.
    pub kind: RefusalKind,
    /// A lowercase fragment that says what and which.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// More fields of `data`.
    pub data: Map<String, Value>,
}

impl Refusal {
    /// A refusal with words and nothing else.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            data: Map::new(),
        }
    }

    /// A field that is wrong.
    pub fn bad(field: &str, why: impl std::fmt::Display) -> Self {
        Self::new(RefusalKind::BadArgument, format!("`{field}` {why}")).with("field", field)
    }

    /// The same of a field that lies in this one of the request.
    #[must_use]
    pub fn inside(mut self, outer: &str) -> Self {
        let field = self.data.get("field").and_then(Value::as_str);
        let Some(field) = field.map(str::to_owned) else {
            return self;
        };
        let whole = format!("{outer}.{field}");
        if let Some(why) = self.message.strip_prefix(&format!("`{field}`")) {
            self.message = format!("`{whole}`{why}");
        }
        self.with("field", whole)
    }

    /// An unknown or foreign job: one and the same answer. It names only what the asker named, `t1` or `SESSION/t1`.
    pub fn no_job(id: &str) -> Self {
        let words = match id.split_once('/') {
            Some((session, short)) => format!("no job {short} in session {session}"),
            None => format!("no job {id} in this session"),
        };
        Self::new(RefusalKind::NotFound, words).hint("ostler ls")
    }

    /// An unknown or foreign session: one and the same answer.
    pub fn no_session(id: &str) -> Self {
        Self::new(RefusalKind::NotFound, format!("no session {id}")).hint("ostler session ls")
    }

    /// A session that several have the name or the beginning of.
    pub fn ambiguous_session(asked: &str, ids: &[&str]) -> Self {
        Self::new(
            RefusalKind::Ambiguous,
            format!("session {asked} is not unique"),
        )
        .with("candidates", ids)
        .hint(format!("name it by its id: {}", ids.join(", ")))
    }

    /// A word that is no session's id, and the name of these.
    pub fn named_so(name: &str, ids: &[&str]) -> Self {
        let (sessions, it) = match ids.len() {
            1 => ("session", "it"),
            _ => ("sessions", "one"),
        };
        let all = ids.join(", ");
        Self::new(
            RefusalKind::NameTaken,
            format!("{name} is the name of {sessions} {all}"),
        )
        .with("candidates", ids)
        .hint(format!(
            "choose another name; to have {it} adopt the jobs, name it by its id: {all}"
        ))
    }

    /// The beginning of several process ids.
    pub fn ambiguous_job(asked: &str, jobs: usize) -> Self {
        Self::new(
            RefusalKind::Ambiguous,
            format!("job {asked} is not unique: {jobs} begin with that"),
        )
        .hint("give more of it; whole ones: ostler ls --json")
    }

    /// A session whose jobs are in another one now, for somebody who held it.
    pub fn moved(id: &str, to: &str) -> Self {
        Self::new(RefusalKind::Moved, format!("session {id} is now {to}"))
            .with("to", to)
            .hint(format!("ostler ls --session {to}"))
    }

    /// A full quota, with what runs.
    pub fn limit(what: &str, limit: u64, message: impl Into<String>, rows: &[Row]) -> Self {
        Self::new(RefusalKind::Limit, message)
            .with("what", what)
            .with("limit", limit)
            .with("rows", rows)
    }

    /// Adds what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a field to `data`.
    #[must_use]
    pub fn with(mut self, field: &str, value: impl Serialize) -> Self {
        // Only strings, numbers and rows are given here, and none of them can fail to become JSON.
        self.data.insert(
            field.into(),
            serde_json::to_value(value).unwrap_or(Value::Null),
        );
        self
    }

    /// Returns the JSON-RPC error's `data`.
    pub fn to_data(&self) -> Value {
        let mut data = self.data.clone();
        data.insert("kind".into(), json!(self.kind.word()));
        if let Some(hint) = &self.hint {
            data.insert("hint".into(), json!(hint));
        }
        Value::Object(data)
    }

    /// Reads a JSON-RPC error object, also one of a newer supervisor.
    pub fn from_error(code: i64, message: &str, data: Option<&Value>) -> Self {
        // The word says more than the number: `terminal/*` has the numbers of another protocol.
        let word = data.and_then(|data| data.get("kind")?.as_str());
        let kinds = || RefusalKind::ALL.iter().copied();
        let kind = kinds()
            .find(|k| Some(k.word()) == word)
            .or_else(|| kinds().find(|k| k.code() == code))
            .unwrap_or(RefusalKind::Internal);
        let mut map = data.and_then(Value::as_object).cloned().unwrap_or_default();
        map.remove("kind");
        let hint = map
            .remove("hint")
            .and_then(|h| h.as_str().map(str::to_owned));
        Self {
            kind,
            message: message.into(),
            hint,
            data: map,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_foreign_job_reads_as_an_unknown_one() {
        assert_eq!(
            Refusal::no_job("t9").to_data(),
            Refusal::no_job("t9").to_data()
        );
        assert_eq!(Refusal::no_job("t9").kind.code(), 2001);
    }

    #[test]
    fn numbers_are_unique() {
        for (i, a) in RefusalKind::ALL.iter().enumerate() {
            for b in &RefusalKind::ALL[i + 1..] {
                assert_ne!(a.code(), b.code());
                assert_ne!(a.word(), b.word());
            }
        }
    }

    #[test]
    fn a_refusal_survives_the_wire() {
        let r = Refusal::bad("timeoutMs", "must be above 0").hint("x");
        assert_eq!(
            Refusal::from_error(r.kind.code(), &r.message, Some(&r.to_data())),
            r
        );
    }
}
