//! The two directions: every line passes as it came, but those that are about terminals.
//!
//! ```text
//!   editor -> down -> agent      `initialize` says that there are terminals; sessions are noted
//!   editor <- up   <- agent      `terminal/*` and `_ostler/*` are answered here, references are rewritten
//! ```
//!
//! Requests of the two sides have numbers of their own, which may be the same ones: what the editor asked and what the
//! agent asked are never looked up in one table.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ostler::Client;
use ostler_proto::refusal::Refusal;
use ostler_proto::{VERSION, acp, limits};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::answer::{self, Answer, Failure, OWN_METHODS, OWN_OPTIONS};
use super::display::{Look, Then};
use super::ends::{Gone, Outlet};
use super::fields::Fields;
use super::follow::{self, Following};
use super::lines::split;
use super::session::{Session, Surroundings};

/// What the editor has asked of the agent.
enum Asked {
    Initialize,
    /// A new session, in this folder.
    New(Option<String>),
    /// To go on with this one, which was not known before.
    GoOn(String),
    /// To end this one.
    End(String),
}

#[derive(Default)]
struct State {
    /// Terminals are ours, as long as nobody speaks a later version, in which they are the agent's.
    answers: bool,
    look: Option<Look>,
    asked: HashMap<String, Asked>,
    sessions: HashMap<String, Arc<Session>>,
    /// What the agent has asked that is not answered yet; the waits among it can be taken back.
    pending: HashMap<String, Option<oneshot::Sender<()>>>,
    /// Kept open, so that the supervisor does not leave meanwhile.
    client: Option<Client>,
    closing: Vec<tokio::task::JoinHandle<()>>,
}

/// In which direction a line goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the agent.
    Down,
    /// To the editor.
    Up,
}

/// An answer to the agent.
#[derive(Serialize)]
struct Response {
    jsonrpc: &'static str,
    id: Box<RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
}

impl Response {
    fn line(id: Box<RawValue>, answer: Answer) -> Vec<u8> {
        let (result, error) = match answer {
            Ok(result) => (Some(result), None),
            Err(error) => (None, Some(error)),
        };
        let response = Self {
            jsonrpc: "2.0",
            id,
            result,
            error,
        };
        let mut line = serde_json::to_vec(&response).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// What stands between an editor and its agent.
#[derive(Clone)]
pub(super) struct Relay {
    around: Arc<Surroundings>,
    state: Arc<Mutex<State>>,
    editor: Outlet,
    agent: Outlet,
    /// Says something to the person, on standard error.
    note: fn(&str),
}

/// A number or text that names a request, in one spelling.
fn name(id: &RawValue) -> Option<String> {
    let id: Value = serde_json::from_str(id.get()).ok()?;
    (id.is_number() || id.is_string()).then(|| id.to_string())
}

impl Relay {
    pub(super) fn new(around: Surroundings, editor: Outlet, agent: Outlet, note: fn(&str)) -> Self {
        Self {
            around: Arc::new(around),
            state: Arc::default(),
            editor,
            agent,
            note,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes on a line.
    pub(super) async fn pass(&self, way: Way, line: Vec<u8>) -> Result<(), Gone> {
        match way {
            Way::Down => self.agent.send(self.down(line).await).await,
            Way::Up => self.up(line).await,
        }
    }

    /// A line of the editor: returns it as the agent gets it.
    async fn down(&self, line: Vec<u8>) -> Vec<u8> {
        let (body, end) = split(&line);
        let Some(mut message) = Fields::read(body) else {
            return line;
        };
        let (Some(method), Some(id)) = (message.text("method"), message.get("id").and_then(name))
        else {
            return line;
        };
        let params = message.object("params").unwrap_or_default();
        let session = || params.text("sessionId");
        let cwd = || params.text("cwd");
        let asked = match method.as_str() {
            "initialize" => {
                let Some(params) = self.offer(params).await else {
                    return line;
                };
                message.set("params", &params);
                self.ask(id, Asked::Initialize);
                return message.line(end);
            }
            "session/new" => Some(Asked::New(cwd())),
            "session/fork" => Some(Asked::New(cwd())),
            // Its terminals may come before the answer: what was is told again first.
            "session/load" | "session/resume" => {
                let fresh = session().filter(|session| self.begin(session, cwd()));
                fresh.map(Asked::GoOn)
            }
            "session/close" | "session/delete" => session().map(Asked::End),
            _ => None,
        };
        if let Some(asked) = asked {
            self.ask(id, asked);
        }
        line
    }

    fn ask(&self, id: String, asked: Asked) {
        let mut state = self.state();
        if state.asked.len() < limits::acp::ASKED {
            state.asked.insert(id, asked);
        }
    }

    /// Notes a session; false when it is known.
    fn begin(&self, id: &str, cwd: Option<String>) -> bool {
        let mut state = self.state();
        let fresh = !state.sessions.contains_key(id);
        if fresh {
            let session = Arc::new(Session::new(id.to_owned(), cwd));
            state.sessions.insert(id.to_owned(), session);
        }
        fresh
    }

    /// Adds terminals to what the editor offers, if there is somebody who has them.
    async fn offer(&self, mut params: Fields) -> Option<Fields> {
        let mut offered = match params.get("clientCapabilities").map(RawValue::get) {
            None | Some("null") => Fields::default(),
            Some(_) => params.object("clientCapabilities")?,
        };
        let client = match self.around.reach().await {
            Ok(client) => client,
            Err(why) => {
                (self.note)(&format!("terminals are left to the editor: {why}"));
                return None;
            }
        };
        let mut meta = offered.object("_meta").unwrap_or_default();
        let shows = meta.value("terminal_output") == Some(true.into());
        meta.set(
            "ostler",
            &json!({ "version": VERSION, "methods": OWN_METHODS, "create": OWN_OPTIONS }),
        );
        offered.set("terminal", &true);
        offered.set("_meta", &meta);
        params.set("clientCapabilities", &offered);
        let mut state = self.state();
        state.answers = true;
        state.look = Some(if shows { Look::Terminal } else { Look::Text });
        state.client = Some(client);
        Some(params)
    }

    /// A line of the agent: passes it on, answers it, or both.
    async fn up(&self, line: Vec<u8>) -> Result<(), Gone> {
        let Some(message) = Fields::read(split(&line).0) else {
            return self.editor.send(line).await;
        };
        let Some(method) = message.text("method") else {
            self.heard(&message);
            return self.editor.send(line).await;
        };
        let id = message.get("id").filter(|id| name(id).is_some());
        match (method.as_str(), id) {
            (method, Some(id)) if answer::is_ours(method) && self.state().answers => {
                self.begin_answer(method.to_owned(), id.to_owned(), &message);
                Ok(())
            }
            ("$/cancel_request", None) if self.take_back(&message) => Ok(()),
            ("session/update", None) => self.show(message, "update", line).await,
            ("session/request_permission", Some(_)) => self.show(message, "toolCall", line).await,
            _ => self.editor.send(line).await,
        }
    }

    /// An answer of the agent.
    fn heard(&self, answer: &Fields) {
        let Some(id) = answer.get("id").and_then(name) else {
            return;
        };
        let Some(asked) = self.state().asked.remove(&id) else {
            return;
        };
        let result = answer.object("result");
        match (asked, result) {
            (Asked::Initialize, result) => {
                let version = result.and_then(|r| r.value("protocolVersion")?.as_u64());
                // A refusal has no version, and nothing follows it.
                let is_ours = version.is_some_and(|v| v <= u64::from(acp::VERSION));
                self.state().answers &= is_ours;
            }
            (Asked::New(cwd), Some(result)) => {
                if let Some(session) = result.text("sessionId") {
                    self.begin(&session, cwd);
                }
            }
            (Asked::End(id), Some(_)) => self.finish(&id),
            (Asked::GoOn(id), None) if answer.get("error").is_some() => self.finish(&id),
            _ => {}
        }
    }

    /// A session is over: its terminals are.
    fn finish(&self, id: &str) {
        let mut state = self.state();
        if let Some(session) = state.sessions.remove(id) {
            let closing = tokio::spawn(async move { session.close().await });
            state.closing.retain(|closing| !closing.is_finished());
            state.closing.push(closing);
        }
    }

    /// Every session is over; comes back when nothing is left of them.
    pub(super) async fn finish_all(&self) {
        let ids: Vec<String> = self.state().sessions.keys().cloned().collect();
        ids.iter().for_each(|id| self.finish(id));
        let closing = std::mem::take(&mut self.state().closing);
        futures_util::future::join_all(closing).await;
    }

    /// The agent takes a request back. True where that was one of those that are answered here.
    fn take_back(&self, message: &Fields) -> bool {
        let params = message.object("params").unwrap_or_default();
        let id = params.get("requestId").and_then(name);
        let pending = id.and_then(|id| Some(self.state().pending.get_mut(&id)?.take()));
        let is_ours = pending.is_some();
        if let Some(wait) = pending.flatten() {
            // Whoever waits for it may have been answered in this moment.
            let _ = wait.send(());
        }
        is_ours
    }

    /// Answers beside everything else: nothing that waits may hold up what follows it.
    fn begin_answer(&self, method: String, id: Box<RawValue>, message: &Fields) {
        let relay = self.clone();
        let params = message.get("params").map(ToOwned::to_owned);
        let name = name(&id).unwrap_or_default();
        let (cancel, cancelled) = oneshot::channel();
        let cancel = answer::can_be_cancelled(&method).then_some(cancel);
        if self.state().pending.len() >= limits::pending() {
            return self.refuse(id);
        }
        self.state().pending.insert(name.clone(), cancel);
        tokio::spawn(async move {
            let answer = tokio::select! {
                answer = relay.answer(&method, params) => answer,
                // Where it cannot be taken back, the sender is gone.
                Ok(()) = cancelled => Err(Failure::cancelled()),
            };
            relay.state().pending.remove(&name);
            // An agent that has gone needs no answer.
            let _ = relay.agent.send(Response::line(id, answer)).await;
        });
    }

    fn refuse(&self, id: Box<RawValue>) {
        let most = limits::pending() as u64;
        let words = "too many requests of the agent are pending";
        let refusal = Refusal::limit("pending", most, words, &[]);
        let (agent, line) = (self.agent.clone(), Response::line(id, Err(refusal.into())));
        tokio::spawn(async move { agent.send(line).await });
    }

    async fn answer(&self, method: &str, params: Option<Box<RawValue>>) -> Answer {
        let params = params.unwrap_or_default();
        let named = Fields::read(params.get().as_bytes()).and_then(|p| p.text("sessionId"));
        let session = match &named {
            Some(id) => self.state().sessions.get(id).cloned(),
            None => None,
        };
        match session {
            Some(session) => answer::answer(&self.around, &session, method, &params).await,
            None => answer::without_session(method, named.as_deref()),
        }
    }

    /// Passes on what may refer to terminals, and says more about these where that is the first time.
    async fn show(&self, mut message: Fields, field: &str, line: Vec<u8>) -> Result<(), Gone> {
        let Some((session, look, then)) = self.rewrite(&mut message, field) else {
            return self.editor.send(line).await;
        };
        let line = if then.changed {
            message.line(split(&line).1)
        } else {
            line
        };
        self.editor.send(line).await?;
        for update in &then.updates {
            self.editor.send(follow::line(&session.id, update)).await?;
        }
        if then.follow.is_empty() {
            return Ok(());
        }
        let Some(opened) = session.opened().await else {
            return Ok(());
        };
        for (id, done) in then.follow {
            let following = Following {
                session: Arc::clone(&session),
                opened: opened.clone(),
                id,
                look,
                editor: self.editor.clone(),
            };
            tokio::spawn(following.run(done));
        }
        Ok(())
    }

    fn rewrite(&self, message: &mut Fields, field: &str) -> Option<(Arc<Session>, Look, Then)> {
        let mut params = message.object("params")?;
        let (session, look) = {
            let state = self.state();
            let session = state.sessions.get(&params.text("sessionId")?)?;
            (Arc::clone(session), state.look.filter(|_| state.answers)?)
        };
        let mut call = params.object(field)?;
        let tells = match call.text("sessionUpdate").as_deref() {
            Some("tool_call" | "tool_call_update") => true,
            None if field == "toolCall" => false,
            _ => return None,
        };
        let then = session.display().rewrite(look, &mut call, tells);
        if then.changed {
            params.set(field, &call);
            message.set("params", &params);
        }
        Some((session, look, then))
    }
}
