//! What an editor on a connection has said of itself, what it was asked, and what of its work it may cancel.
//!
//! A connection on which nobody said `initialize` as LSP has it is no editor's: nothing is asked there.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ostler_proto::{
    editor::EditorOptions,
    methods::{OpenSession, ResourceLimit, Start},
};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::{Notify, oneshot};

use crate::secret;

/// An editor, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Editor {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    shows_progress: bool,
    dress: Dress,
    /// How its session was opened.
    session: Option<OpenSession>,
    /// Our requests that have no answer yet, by their ids.
    asked: HashMap<String, oneshot::Sender<bool>>,
    works: Vec<(Value, Arc<Notify>)>,
}

/// What jobs of this editor's commands are started with.
#[derive(Debug, Default, Clone)]
struct Dress {
    env: Option<BTreeMap<String, Option<String>>>,
    umask: Option<u32>,
    limits: BTreeMap<String, ResourceLimit>,
}

/// A request of ours, as it stands on the wire.
#[derive(Debug, Serialize)]
pub(crate) struct Asked {
    jsonrpc: &'static str,
    id: String,
    method: &'static str,
    params: AskedToken,
}

#[derive(Debug, Serialize)]
struct AskedToken {
    token: String,
}

/// Work that the editor may cancel by its token; until it is dropped.
#[derive(Debug)]
pub(crate) struct Cancellable<'a> {
    editor: &'a Editor,
    cancelled: Arc<Notify>,
}

impl Editor {
    /// Keeps how its session was opened: where somebody closes that, its next command opens it again.
    pub(crate) fn has_opened(&self, session: OpenSession) {
        self.lock().session = Some(session);
    }

    /// How its session was opened.
    pub(crate) fn session(&self) -> Option<OpenSession> {
        self.lock().session.clone()
    }

    /// Takes what it said in its `initialize`.
    pub(crate) fn introduce(&self, shows_progress: bool, options: EditorOptions) {
        let mut inner = self.lock();
        inner.shows_progress = shows_progress;
        inner.dress = Dress {
            env: options.env,
            umask: options.umask,
            limits: options.limits,
        };
    }

    /// Whether it takes progress for which it gave no token.
    pub(crate) fn shows_progress(&self) -> bool {
        self.lock().shows_progress
    }

    /// Gives a start what it does not say itself.
    pub(crate) fn dress(&self, start: &mut Start) {
        let dress = self.lock().dress.clone();
        if let Some(env) = dress.env.filter(|_| !start.env_replace) {
            let own = std::mem::replace(&mut start.env, env);
            start.env.extend(own);
            start.env_replace = true;
        }
        start.umask = start.umask.or(dress.umask);
        for (name, limit) in dress.limits {
            start.limits.entry(name).or_insert(limit);
        }
    }

    /// A request to make a token, the token, and what the answer will be.
    pub(crate) fn ask_for_token(&self) -> (Asked, Value, oneshot::Receiver<bool>) {
        // Unlike any that another supervisor made: an editor outlives us.
        let token = format!("ostler-{}", secret::token());
        let (to, answer) = oneshot::channel();
        let mut inner = self.lock();
        // Those of commands that are over, from an editor that never answers.
        inner.asked.retain(|_, answer| !answer.is_closed());
        inner.asked.insert(token.clone(), to);
        drop(inner);
        let asked = Asked {
            jsonrpc: "2.0",
            id: token.clone(),
            method: "window/workDoneProgress/create",
            params: AskedToken {
                token: token.clone(),
            },
        };
        (asked, token.into(), answer)
    }

    /// An answer came, perhaps to something that nobody waits for any more.
    pub(crate) fn answered(&self, answer: &Value) {
        let id = answer.get("id").and_then(Value::as_str);
        let asked = id.and_then(|id| self.lock().asked.remove(id));
        if let Some(asked) = asked {
            let _ = asked.send(answer.get("error").is_none_or(Value::is_null));
        }
    }

    /// Lets work be cancelled by this token.
    pub(crate) fn cancellable(&self, token: Value) -> Cancellable<'_> {
        let cancelled = Arc::new(Notify::new());
        self.lock().works.push((token, Arc::clone(&cancelled)));
        Cancellable {
            editor: self,
            cancelled,
        }
    }

    /// `window/workDoneProgress/cancel`. A token that is not known, or not any more, is nothing.
    pub(crate) fn cancel(&self, params: Option<&Value>) {
        let Some(token) = params.and_then(|p| p.get("token")) else {
            return;
        };
        let inner = self.lock();
        let works = inner.works.iter().filter(|(own, _)| own == token);
        works.for_each(|(_, cancelled)| cancelled.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cancellable<'_> {
    /// Waits until the editor cancels it.
    pub(crate) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for Cancellable<'_> {
    fn drop(&mut self) {
        let mut inner = self.editor.lock();
        inner
            .works
            .retain(|(_, cancelled)| !Arc::ptr_eq(cancelled, &self.cancelled));
    }
}
