//! `workspace/executeCommand`: the common verbs for any LSP client.
//!
//! The arguments of a command are one object, with the fields of the method that it stands for, or plain texts for what
//! is asked most: a line for a shell, or ids.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::job::{Page, Row, Stream};

/// A command that is offered to editors.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    /// Its name on the wire.
    pub name: &'static str,
    /// The method whose fields its object has.
    pub method: &'static str,
    /// What may stand in place of the object.
    pub texts: &'static str,
    /// One sentence.
    pub doc: &'static str,
}

/// `job/start`.
pub const START: &str = "ostler.start";
/// `job/run`.
pub const RUN: &str = "ostler.run";
/// `job/list`.
pub const LIST: &str = "ostler.list";
/// `job/tail`.
pub const TAIL: &str = "ostler.tail";
/// `job/wait`.
pub const WAIT: &str = "ostler.wait";
/// `job/stop`.
pub const STOP: &str = "ostler.stop";
/// `job/write`.
pub const SEND: &str = "ostler.send";

/// Every command, in the order in which they are told.
pub const COMMANDS: &[Offered] = &[
    Offered {
        name: START,
        method: "job/start",
        texts: "a line for a shell",
        doc: "Starts a job in the background.",
    },
    Offered {
        name: RUN,
        method: "job/run",
        texts: "a line for a shell",
        doc: "Starts a job and waits for its end; cancelling it stops the job.",
    },
    Offered {
        name: LIST,
        method: "job/list",
        texts: "nothing",
        doc: "Lists jobs.",
    },
    Offered {
        name: TAIL,
        method: "job/tail",
        texts: "an id",
        doc: "Reads what a job printed last; cancelling it stops the reading alone.",
    },
    Offered {
        name: WAIT,
        method: "job/wait",
        texts: "ids",
        doc: "Waits for ends, text, quiet or a port; cancelling it ends the wait alone.",
    },
    Offered {
        name: STOP,
        method: "job/stop",
        texts: "ids",
        doc: "Ends the whole tree of jobs.",
    },
    Offered {
        name: SEND,
        method: "job/write",
        texts: "an id and a text",
        doc: "Types into a job, as it is: no Enter is added.",
    },
];

/// `workspace/executeCommand`, in LSP's shape: fields of other versions of it are ignored.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteCommand {
    /// `ostler.start`, `run`, `list`, `tail`, `wait`, `stop` or `send`.
    pub command: String,
    /// One object with the fields of the method, or plain texts.
    #[serde(default)]
    pub arguments: Option<Vec<Value>>,
    /// Progress is told with this token. Without it a token is made for `run`, `tail`, `wait` and `stop`, if the editor
    /// declared `window.workDoneProgress`.
    #[serde(default)]
    pub work_done_token: Option<Value>,
}

/// `ostler.tail`: as `job/tail`, but that without a token the text is in the answer.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TailCommand {
    /// Owner; the editor's session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Stream pages as `$/progress` with this token, and answer when all is told.
    #[serde(default)]
    pub partial_result_token: Option<Value>,
    /// Cursor; the newest page, from a line's start, when neither this nor `lines` is given.
    #[serde(default)]
    pub since: Option<u64>,
    /// In place of `since`: the last so many lines.
    #[serde(default)]
    pub lines: Option<u64>,
    /// Answer when the job is over.
    #[serde(default)]
    pub follow: bool,
    /// One stream alone.
    #[serde(default)]
    pub stream: Option<Stream>,
    /// Bytes instead of text.
    #[serde(default)]
    pub raw: bool,
    /// Text as a person sees it.
    #[serde(default)]
    pub plain: bool,
}

/// What `ostler.tail` answers.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Tailed {
    /// The text, where it was not streamed: 1 MiB at most; read on at its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page: Option<Page>,
    /// Cursor to read on.
    pub next: u64,
    /// The job.
    pub row: Row,
}
