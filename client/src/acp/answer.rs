//! What the agent asks of terminals, answered by the supervisor: the five methods of the protocol, and under a name of
//! our own what it lacks.

use std::sync::Arc;
use std::time::Duration;

use ostler::Error;
use ostler_proto::acp::{self, CreateTerminal, Done, ExitStatus, TerminalTarget};
use ostler_proto::limits;
use ostler_proto::methods::TerminalCreate;
use ostler_proto::methods::{
    JobKeys, JobList, JobRead, JobResize, JobScreen, JobSignal, JobWait, JobWrite, Method, Read,
    TerminalKill, TerminalOutput, TerminalRelease, TerminalWaitForExit, Wait,
};
use ostler_proto::refusal::{Refusal, RefusalKind};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::display::Past;
use super::session::{Opened, Session, Surroundings};

/// What the methods of our own begin with.
pub(super) const OWN: &str = "_ostler/";

/// The methods of our own, each like one of the supervisor's with `terminalId` in place of its `id`.
pub(super) const OWN_METHODS: [&str; 8] = [
    "_ostler/input",
    "_ostler/resize",
    "_ostler/signal",
    "_ostler/output",
    "_ostler/wait",
    "_ostler/list",
    "_ostler/screen",
    "_ostler/keys",
];

/// What `_meta.ostler` of `terminal/create` may ask for.
pub(super) const OWN_OPTIONS: [&str; 7] = [
    "pty",
    "stdin",
    "name",
    "key",
    "timeoutMs",
    "idleMs",
    "graceMs",
];

/// An error as the agent gets it.
#[derive(Debug, Serialize)]
pub(super) struct Failure {
    code: i64,
    message: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    data: Value,
}

impl Failure {
    /// A wait that was taken back.
    pub(super) fn cancelled() -> Self {
        Refusal::new(RefusalKind::Cancelled, "the request was cancelled").into()
    }

    fn bad(why: impl std::fmt::Display) -> Self {
        Refusal::new(RefusalKind::BadArgument, why.to_string()).into()
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self {
            code: acp::code(refusal.kind),
            data: refusal.to_data(),
            message: refusal.message,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            error => {
                let refusal = Refusal::new(RefusalKind::Internal, error.to_string());
                match &error {
                    Error::Unavailable(why) => match why.hint() {
                        Some(hint) => refusal.hint(hint),
                        None => refusal,
                    },
                    _ => refusal,
                }
                .into()
            }
        }
    }
}

/// The result of a request, as text.
pub(super) type Answer = Result<Box<RawValue>, Failure>;

/// Tells whether a request is answered here.
pub(super) fn is_ours(method: &str) -> bool {
    let five = [
        TerminalCreate::NAME,
        TerminalOutput::NAME,
        TerminalWaitForExit::NAME,
        TerminalKill::NAME,
        TerminalRelease::NAME,
    ];
    five.contains(&method) || OWN_METHODS.contains(&method)
}

/// Tells whether a request only waits or looks: taking it back ends it at once and changes nothing. The others are
/// answered as they end.
pub(super) fn can_be_cancelled(method: &str) -> bool {
    [TerminalWaitForExit::NAME, "_ostler/wait", "_ostler/output"].contains(&method)
}

/// Answers a request about a session.
pub(super) async fn answer(
    around: &Surroundings,
    session: &Arc<Session>,
    method: &str,
    params: &RawValue,
) -> Answer {
    if method == TerminalCreate::NAME {
        let params: CreateTerminal = read(params)?;
        let (cwd, line) = (params.cwd.clone(), line_of(&params));
        let created = session.create(around, params).await?;
        session.display().begin(&created.terminal_id, line, cwd);
        return raw(&created);
    }
    if method.starts_with(OWN) {
        return own(
            session,
            method,
            serde_json::from_str(params.get()).map_err(Failure::bad)?,
        )
        .await;
    }
    let id = read::<TerminalTarget>(params)?.terminal_id;
    let Some(opened) = session.opened().await else {
        return nobody(method, &id);
    };
    match method {
        TerminalOutput::NAME => raw(&opened.ask::<TerminalOutput>(&id).await?),
        TerminalKill::NAME => raw(&opened.ask::<TerminalKill>(&id).await?),
        TerminalRelease::NAME => {
            remember(session, &opened, &id).await;
            raw(&opened.ask::<TerminalRelease>(&id).await?)
        }
        _ => raw(&opened.ask::<TerminalWaitForExit>(&id).await?),
    }
}

/// Answers a request about a session that nobody has told us of, or about none.
pub(super) fn without_session(method: &str, named: Option<&str>) -> Answer {
    match named {
        None => Err(Refusal::bad("sessionId", "is missing").into()),
        Some(_) if method == TerminalRelease::NAME => raw(&Done {}),
        Some(id) => Err(Refusal::new(RefusalKind::NotFound, format!("no session {id}")).into()),
    }
}

/// The command as a person would have typed it.
fn line_of(params: &CreateTerminal) -> String {
    let args = params.args.iter().flatten();
    let words = std::iter::once(&params.command).chain(args);
    words.map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// A session that has no terminals: what is asked about one of them.
fn nobody(method: &str, id: &str) -> Answer {
    if method == TerminalRelease::NAME {
        return raw(&Done {});
    }
    Err(Refusal::new(
        RefusalKind::NotFound,
        format!("no terminal {id} in this session"),
    )
    .into())
}

/// Keeps the last words of a terminal that is about to be forgotten: agents go on referring to it, and what the editor
/// is being shown of it is shown to its end.
async fn remember(session: &Session, opened: &Opened, id: &str) {
    if !session.display().knows(id) {
        return;
    }
    let end = async {
        opened.ask::<TerminalKill>(id).await?;
        let status = opened.ask::<TerminalWaitForExit>(id).await?;
        let read = Read {
            id: id.into(),
            max: Some(limits::acp::RELEASED_TEXT),
            ..Read::default()
        };
        let page = opened.client.ask::<JobRead>(read).await?;
        let text = page.text.unwrap_or_default();
        let text = match page.next {
            // What could not be executed has printed nothing, and says why.
            0 => opened.ask::<TerminalOutput>(id).await?.output,
            _ => text,
        };
        let cut = page.from > 0 || page.lost > 0;
        Ok::<_, Error>(Past { text, cut, status })
    };
    // What is gone already has no more words.
    let Ok(past) = end.await else {
        return;
    };
    let followers = session.display().followers(id);
    for mut follower in followers {
        // It reads to the end and goes; an editor that does not read must not hold up its agent.
        let _ = tokio::time::timeout(
            Duration::from_millis(limits::acp::RELEASE_TOLD),
            follower.wait_for(|done| *done),
        )
        .await;
    }
    session.display().end(id, past);
}

async fn own(session: &Session, method: &str, params: Value) -> Answer {
    let Value::Object(mut params) = params else {
        return Err(Failure::bad("`params` must be an object"));
    };
    params.remove("sessionId");
    params.remove("_meta");
    if let Some(id) = params.remove("terminalId") {
        match method {
            "_ostler/wait" => params.insert("ids".into(), json!([id])),
            _ => params.insert("id".into(), id),
        };
    } else if method != "_ostler/list" {
        return Err(Refusal::bad("terminalId", "is missing").into());
    }
    let Some(opened) = session.opened().await else {
        return match method {
            "_ostler/list" => raw(&json!({ "jobs": [] })),
            _ => nobody(method, "of this name"),
        };
    };
    let (client, params) = (&opened.client, Value::Object(params));
    match method {
        "_ostler/input" => raw(&client.call::<JobWrite>(of::<JobWrite>(params)?).await?),
        "_ostler/keys" => raw(&client.call::<JobKeys>(of::<JobKeys>(params)?).await?),
        "_ostler/signal" => raw(&client.call::<JobSignal>(of::<JobSignal>(params)?).await?),
        "_ostler/resize" => raw(&client.ask::<JobResize>(of::<JobResize>(params)?).await?),
        "_ostler/output" => raw(&client.ask::<JobRead>(of::<JobRead>(params)?).await?),
        "_ostler/screen" => raw(&client.ask::<JobScreen>(of::<JobScreen>(params)?).await?),
        "_ostler/list" => raw(&client.ask::<JobList>(of::<JobList>(params)?).await?),
        _ => {
            let params: Wait = of::<JobWait>(params)?;
            raw(&client.wait(params).await?)
        }
    }
}

fn of<M: Method>(params: Value) -> Result<M::Params, Failure> {
    serde_json::from_value(params).map_err(Failure::bad)
}

fn read<T: DeserializeOwned>(params: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(params.get()).map_err(Failure::bad)
}

fn raw(result: &impl Serialize) -> Answer {
    serde_json::value::to_raw_value(result).map_err(|e| {
        Refusal::new(RefusalKind::Internal, format!("the answer is no JSON: {e}")).into()
    })
}

/// How a program ended, in words for people.
pub(super) fn words(status: &ExitStatus) -> String {
    match (status.exit_code, &status.signal) {
        (_, Some(signal)) => format!("ended by {signal}"),
        (Some(code), None) => format!("exited with code {code}"),
        (None, None) => "ended".into(),
    }
}
