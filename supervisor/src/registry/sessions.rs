//! Sessions in the table: opened, attached, leased, closed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ostler_proto::{
    id,
    job::SessionRef,
    limits,
    methods::{OpenSession, OpenedSession, SessionLimits, SessionRow},
    refusal::{Refusal, RefusalKind},
};

use super::{Access, Closing, Inner, Lease, Registry, leaving};
use crate::{
    clock::Moment,
    job::Job,
    ledger::Entry,
    log::Budget,
    secret,
    session::{Record, Session},
};

impl Registry {
    /// Leases of sessions to which nobody is attached: after a restart they begin anew.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.lock()
            .sessions
            .values()
            .filter_map(Lease::of)
            .collect()
    }

    /// What lives in a session to which nobody came since its lease began, newest first.
    pub(crate) fn abandoned(&self, lease: &Lease) -> Vec<Arc<Job>> {
        let inner = self.lock();
        let session = inner.sessions.get(&lease.session);
        let session = session.filter(|s| s.clients == 0 && s.attached == lease.attached);
        let jobs = session.into_iter().flat_map(|s| s.jobs.values().rev());
        jobs.filter(|j| j.is_live()).cloned().collect()
    }

    pub(crate) fn open(
        &self,
        ask: OpenSession,
        access: &mut Access,
    ) -> Result<OpenedSession, Refusal> {
        check_open(&ask)?;
        let mut inner = self.lock();
        if inner.leaving {
            return Err(leaving());
        }
        let id = ask
            .id
            .clone()
            .unwrap_or_else(|| format!("s-{}", secret::word()));
        if inner.sessions.contains_key(&id) {
            return self.attach(&mut inner, &id, &ask, access);
        }
        if ask.attach_only {
            return Err(Refusal::no_session(&id));
        }
        let token = secret::token();
        let record = Record {
            session: SessionRef {
                name: ask.name.clone().unwrap_or_else(|| id.clone()),
                id: id.clone(),
            },
            root: ask.root.clone(),
            token_hash: secret::hash(&token),
            limits: limits_of(&ask, DEFAULT_LIMITS),
            lease_ms: ask.lease_ms,
            opened_at: Moment::now().wall,
            folder: secret::ulid(),
            next: [0; 4],
        };
        self.ledger.append(&Entry::Session(record.clone()));
        let mut session = Session::new(
            record,
            Budget::new(limits::SPILL_SESSION, Some(Arc::clone(&self.budget))),
        );
        session.clients = 1;
        session.attached = 1;
        let opened = OpenedSession {
            session: session.record.session.clone(),
            token: Some(token),
            created: true,
            limits: session.record.limits,
        };
        inner.closed.remove(&id);
        inner.sessions.insert(id.clone(), session);
        access.attached.push(id);
        Ok(opened)
    }

    fn attach(
        &self,
        inner: &mut Inner,
        id: &str,
        ask: &OpenSession,
        access: &mut Access,
    ) -> Result<OpenedSession, Refusal> {
        let session = inner
            .sessions
            .get_mut(id)
            .ok_or_else(|| Refusal::no_session(id))?;
        let shown = ask
            .token
            .as_deref()
            .is_some_and(|t| secret::hash(t) == session.record.token_hash);
        if !(access.owner || shown || access.attached.iter().any(|a| a == id)) {
            return Err(Refusal::no_session(id));
        }
        if session.closing {
            return Err(Refusal::new(
                RefusalKind::SessionGone,
                format!("session {id} is being closed"),
            ));
        }
        let limits = limits_of(ask, session.record.limits);
        let lease_changed = ask.lease_ms.is_some() && ask.lease_ms != session.record.lease_ms;
        session.record.lease_ms = ask.lease_ms.or(session.record.lease_ms);
        if lease_changed
            || limits != session.record.limits
            || (ask.root.is_some() && session.record.root.is_none())
        {
            session.record.limits = limits;
            session.record.root = session.record.root.take().or_else(|| ask.root.clone());
            self.ledger.append(&Entry::Session(session.record.clone()));
        }
        if !access.attached.iter().any(|a| a == id) {
            access.attached.push(id.into());
            session.clients += 1;
            session.attached += 1;
        }
        Ok(OpenedSession {
            session: session.record.session.clone(),
            token: None,
            created: false,
            limits,
        })
    }

    /// Folder of the project of the session that the asker means, if it has one.
    pub(crate) fn root_of(&self, asked: Option<&str>, access: &Access) -> Option<PathBuf> {
        let inner = self.lock();
        let id = inner.pick(asked, access).ok()?;
        inner
            .sessions
            .get(&id)?
            .record
            .root
            .as_ref()
            .map(PathBuf::from)
    }

    pub(crate) fn sessions(&self, access: &Access) -> Vec<SessionRow> {
        let inner = self.lock();
        let mut rows: Vec<_> = inner
            .sessions
            .values()
            .filter(|s| access.sees(&s.record.session.id))
            .map(Session::row)
            .collect();
        rows.sort_by_key(|r| r.opened_at);
        rows
    }

    /// Begins to close a session; returns its id and what lives in it, newest first. `None`: it is closed already.
    pub(crate) fn begin_close(
        &self,
        asked: Option<&str>,
        access: &Access,
    ) -> Result<Option<Closing>, Refusal> {
        let mut inner = self.lock();
        let id = match inner.pick(asked, access) {
            Ok(id) => id,
            // Deleting twice, or what never was, is success.
            Err(r) if r.kind == RefusalKind::NotFound && asked.is_some() => return Ok(None),
            Err(r) => return Err(r),
        };
        let session = inner
            .sessions
            .get_mut(&id)
            .ok_or_else(|| Refusal::no_session(&id))?;
        session.closing = true;
        Ok(Some((id, session.jobs.values().rev().cloned().collect())))
    }

    /// Forgets a session whose jobs are all over, then deletes its artifacts: never in another order.
    pub(crate) fn finish_close(&self, id: &str) {
        let (session, processes) = {
            let mut inner = self.lock();
            let Some(session) = inner.sessions.remove(id) else {
                return;
            };
            let processes: Vec<_> = session.jobs.values().cloned().collect();
            for job in &processes {
                inner.forget(job);
            }
            inner.closed.insert(id.to_owned(), Moment::now().wall);
            (session, processes)
        };
        self.ledger.append(&Entry::Closed { id: id.to_owned() });
        for job in processes {
            job.log.retire();
        }
        remove_folder(&self.artifacts.join(&session.record.folder));
        self.recount();
    }
}

const DEFAULT_LIMITS: SessionLimits = SessionLimits {
    commands: limits::COMMANDS,
    shells: limits::SHELLS,
    agents: limits::AGENTS,
};

fn limits_of(ask: &OpenSession, now: SessionLimits) -> SessionLimits {
    SessionLimits {
        commands: ask.commands.unwrap_or(now.commands),
        shells: ask.shells.unwrap_or(now.shells),
        agents: ask.agents.unwrap_or(now.agents),
    }
}

fn check_open(ask: &OpenSession) -> Result<(), Refusal> {
    for (field, word) in [("id", &ask.id), ("name", &ask.name)] {
        if let Some(Err(why)) = word.as_deref().map(id::check_word) {
            return Err(Refusal::bad(field, why));
        }
    }
    for (field, n) in [
        ("commands", ask.commands),
        ("shells", ask.shells),
        ("agents", ask.agents),
    ] {
        if n.is_some_and(|n| n == 0 || n > limits::QUOTA_CEILING) {
            return Err(Refusal::bad(
                field,
                format!("must be 1 to {}", limits::QUOTA_CEILING),
            ));
        }
    }
    crate::life::plan::within("leaseMs", ask.lease_ms, 1, limits::TIMEOUT_MAX)?;
    if ask
        .root
        .as_deref()
        .is_some_and(|r| !r.starts_with('/') || r.contains('\0'))
    {
        return Err(Refusal::bad("root", "must be an absolute path"));
    }
    Ok(())
}

fn remove_folder(folder: &Path) {
    match std::fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => crate::log_line!("warn", "artifacts {} stay: {e}", folder.display()),
    }
}
