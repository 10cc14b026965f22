//! A connection that comes back. Owned by the program; clones share one connection.
//!
//! When the supervisor is replaced, its listener and the backlog stay: connecting again works at once, and the
//! session is attached again with its token. What was asked is asked again only where that is safe, which the
//! caller says by its choice of method. It never starts a second supervisor for a broken connection: the jobs
//! of the first one would be gone, and an empty table is no answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ostler_proto::methods::{
    HelloAnswer, JobWait, Method, OpenSession, OpenedSession, SessionOpen, ShellExec, ShellSend,
    Wait, Waited,
};
use ostler_proto::refusal::{Refusal, RefusalKind};
use ostler_proto::shell::{Exec, Executed, Send, Sent};
use tokio::sync::Mutex;

use crate::breaks::Breaks;
use crate::connection::{Connection, Error};
use crate::start::{Link, Mode, Options, reach};

/// A client of one supervisor.
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
}

struct State {
    options: Options,
    link: Option<Link>,
}

impl Client {
    /// Returns a client that connects with its first request.
    pub fn new(options: Options) -> Self {
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    options,
                    link: None,
                }),
            }),
        }
    }

    /// Connects now, if it is not connected, and returns who is there.
    ///
    /// # Errors
    /// See [`reach`].
    pub async fn hello(&self) -> Result<HelloAnswer, Error> {
        let (link, ()) = self.with(|_| ()).await?;
        Ok(link.hello)
    }

    /// Returns the session of the options, opened. `None` when they name none.
    ///
    /// # Errors
    /// See [`reach`].
    pub async fn session(&self) -> Result<Option<OpenedSession>, Error> {
        let (link, ()) = self.with(|_| ()).await?;
        Ok(link.session)
    }

    /// Creates or attaches a session, in place of the one of the options, and comes back to it from then on.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn open_session(&self, open: OpenSession) -> Result<OpenedSession, Error> {
        let opened = self.ask::<SessionOpen>(open.clone()).await?;
        let mut state = self.shared.state.lock().await;
        state.options.session = Some(open);
        if let Some(mut link) = state.link.take() {
            link.session = Some(opened.clone());
            state.keep(&link);
        }
        Ok(opened)
    }

    /// Asks once. A connection that broke earlier is opened again first; one that breaks now is an error,
    /// because the request may have been carried out.
    ///
    /// # Errors
    /// The supervisor refused, is not there, or went away.
    pub async fn call<M: Method>(&self, params: M::Params) -> Result<M::Result, Error> {
        let (_link, call) = self.with(|c| c.call::<M>(&params)).await?;
        call.await
    }

    /// Asks until there is an answer, also when the supervisor is replaced meanwhile. For requests that may be
    /// carried out twice: those that change nothing, a start with a key, a stop.
    ///
    /// # Errors
    /// The supervisor refused, or is gone for good.
    pub async fn ask<M: Method>(&self, params: M::Params) -> Result<M::Result, Error> {
        let mut breaks = Breaks::default();
        loop {
            match self.with(|c| c.call::<M>(&params)).await?.1.await {
                Err(Error::Broken(_)) if breaks.again().await => {}
                answer => return answer,
            }
        }
    }

    /// Waits, also over a replaced supervisor; the time limit counts from now and not from each try.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn wait(&self, params: Wait) -> Result<Waited, Error> {
        self.ask_within::<JobWait>(params, 0, |p| &mut p.timeout_ms)
            .await
    }

    /// Runs a line in a shell, also over a replaced supervisor: it gets a key where it has none, so that it runs once.
    /// The time limit counts from now and not from each try. In the background it is asked once.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn exec(&self, mut params: Exec) -> Result<Executed, Error> {
        if params.background {
            return self.call::<ShellExec>(params).await;
        }
        params.key.get_or_insert_with(fresh_key);
        self.ask_within::<ShellExec>(params, 1, |p| &mut p.timeout_ms)
            .await
    }

    /// Types into a shell and waits, also over a replaced supervisor: it gets a key where it has none, so that it is typed
    /// once. In the background it is asked once.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn send(&self, mut params: Send) -> Result<Sent, Error> {
        if params.background {
            return self.call::<ShellSend>(params).await;
        }
        params.key.get_or_insert_with(fresh_key);
        self.ask_within::<ShellSend>(params, 1, |p| &mut p.timeout_ms)
            .await
    }

    /// Asks until there is an answer. What is left of the time limit goes with each try, `least` ms of it.
    async fn ask_within<M: Method>(
        &self,
        mut params: M::Params,
        least: u64,
        limit: impl Fn(&mut M::Params) -> &mut Option<u64>,
    ) -> Result<M::Result, Error> {
        let deadline =
            limit(&mut params).map(|limit| Instant::now() + Duration::from_millis(limit));
        let mut breaks = Breaks::default();
        loop {
            if let Some(deadline) = deadline {
                let left = deadline.saturating_duration_since(Instant::now());
                let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
                *limit(&mut params) = Some(left.max(least));
            }
            let call = self.with(|c| c.call::<M>(&params)).await?.1;
            match call.await {
                Err(Error::Broken(_)) if breaks.again().await => {}
                answer => return answer,
            }
        }
    }

    /// Runs `f` on a living connection. On a new one, whatever `f` queues travels together with the handshake.
    pub(crate) async fn with<T>(&self, f: impl Fn(&Connection) -> T) -> Result<(Link, T), Error> {
        let mut state = self.shared.state.lock().await;
        if let Some(link) = &state.link
            && !link.connection.is_broken()
        {
            return Ok((link.clone(), f(&link.connection)));
        }
        loop {
            match reach(&state.options, &f).await {
                Ok((link, queued)) => {
                    state.keep(&link);
                    return Ok((link, queued));
                }
                // What was queued behind it found no session, and did nothing.
                Err(Error::Refused(refusal)) if state.goes_along(&refusal) => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl State {
    /// The session was renamed while the connection was gone. Each answer names where it is now, so that a second one
    /// of the same place is an error. One that has its jobs by adoption has another token: only the owner key opens it.
    fn goes_along(&mut self, refusal: &Refusal) -> bool {
        if refusal.data.get("renamed") == Some(&false.into()) && !self.options.owner {
            return false;
        }
        let to = refusal.data.get("to").and_then(|to| to.as_str());
        let (RefusalKind::Moved, Some(to), Some(open)) =
            (refusal.kind, to, &mut self.options.session)
        else {
            return false;
        };
        open.attach_only && open.id.replace(to.to_owned()).as_deref() != Some(to)
    }

    /// Remembers what is needed to come back: the same session, and nothing new in place of a lost one.
    fn keep(&mut self, link: &Link) {
        if let (Some(open), Some(opened)) = (&mut self.options.session, &link.session) {
            open.id = Some(opened.session.id.clone());
            open.token = opened.token.clone().or(open.token.take());
            open.attach_only = true;
        }
        if self.options.mode == Mode::Start {
            self.options.mode = Mode::Use;
        }
        self.link = Some(link.clone());
    }
}

/// Returns an idempotency key that nobody has used: 128 random bits in hexadecimal.
pub fn fresh_key() -> String {
    let mut bytes = [0_u8; 16];
    // SAFETY: the buffer is valid for its whole length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if got != 16 {
        // Kernels without the call are older than the oldest one supported; the clock and pid still differ.
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos());
        return format!("{now:x}-{:x}", std::process::id());
    }
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
