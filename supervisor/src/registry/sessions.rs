//! Sessions in the table: opened, attached, leased, closed.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ostler_proto::{
    agent::ChildSession,
    id,
    job::SessionRef,
    limits,
    methods::{Happened, Notice, OpenSession, OpenedSession, SessionLimits, SessionRow},
    refusal::{Refusal, RefusalKind},
};

use super::{Access, Closing, Inner, Lease, Registry, closing, leaving};
use crate::{
    clock::Moment,
    disk,
    job::Job,
    ledger::Entry,
    log::Budget,
    owner::Owner,
    secret,
    session::{Record, Session},
};

/// A session that may be opened for a sub-agent.
pub(super) struct Below {
    ask: OpenSession,
    id: String,
    /// Key and id of the session that delegates.
    parent: (String, String),
}

impl Inner {
    /// Checks the session that a sub-agent is to have, below the one that delegates to it.
    pub(super) fn below(
        &self,
        above: &str,
        name: Option<&str>,
        child: ChildSession,
    ) -> Result<Below, Refusal> {
        let parent = self.sessions.get(above).expect("the caller has found it");
        let id = child.id.clone().unwrap_or_else(|| {
            let word = secret::word();
            let room = limits::NAME - word.len() - 1;
            format!("{}-{word}", &above[..above.len().min(room)])
        });
        let ask = OpenSession {
            id: Some(id.clone()),
            name: name.map(Into::into),
            root: parent.record.root.clone(),
            commands: child.commands,
            shells: child.shells,
            agents: child.agents,
            ..OpenSession::default()
        };
        check_open(&ask).map_err(|refusal| refusal.inside("child"))?;
        if self.sessions.contains_key(&id) {
            let words = format!("there is a session {id} already");
            return Err(Refusal::new(RefusalKind::NameTaken, words)
                .with("field", "child.id")
                .hint("another `child.id`; without one it is made up"));
        }
        let parent = (parent.key().to_owned(), above.to_owned());
        Ok(Below { ask, id, parent })
    }

    pub(super) fn child_of(&self, job: &Job) -> Option<OpenedSession> {
        let child = self.by_key(job.spec.child.as_deref()?)?;
        let token = job.owner.as_ref().and_then(Owner::child_token);
        Some(opened(child, token.cloned()))
    }
}

/// Its notices have a reader who confirms them, as long as that connection lasts.
fn confirm(session: &mut Session, ask: &OpenSession, access: &mut Access) {
    if ask.confirms && !access.confirms(session.key()) {
        access.confirmed.push(session.key().into());
        session.readers += 1;
    }
}

impl Registry {
    /// Leases of sessions to which nobody is attached: after a restart they begin anew.
    pub(crate) fn leases(&self) -> Vec<Lease> {
        self.lock()
            .sessions
            .values()
            .filter_map(Lease::of)
            .collect()
    }

    /// Ends a lease: returns what lives in its session, newest first, unless somebody came since it began. Records
    /// and artifacts stay for a while.
    pub(crate) fn lapse(&self, lease: &Lease) -> Vec<Arc<Job>> {
        let mut inner = self.lock();
        let session = inner.by_key_mut(&lease.session);
        let session = session.filter(|s| s.clients == 0 && s.attached == lease.attached);
        let Some(session) = session else {
            return Vec::new();
        };
        session.record.lapsed = Some(Moment::now());
        self.ledger.append(&Entry::Session(session.record.clone()));
        let id = session.record.session.id.clone();
        self.gather(&mut inner, &id);
        let session = inner.sessions.get(&id);
        let jobs = session.into_iter().flat_map(|s| s.jobs.values().rev());
        jobs.filter(|j| j.is_live()).cloned().collect()
    }

    /// Opens the session of a sub-agent that is about to be registered. Nobody is attached to it. Returns its key as
    /// well.
    pub(super) fn open_below(&self, inner: &mut Inner, below: Below) -> (String, OpenedSession) {
        let Below { ask, id, parent } = below;
        let (session, token) = self.create(inner, &ask, id, Some(parent));
        (session.key().to_owned(), opened(session, Some(token)))
    }

    /// The session of a sub-agent, if it is there.
    pub(crate) fn child_of(&self, job: &Job) -> Option<OpenedSession> {
        self.lock().child_of(job)
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
        if let Some(token) = &ask.token {
            // Whoever shows a token wants what it had, never a fresh session in its place.
            let moved = inner.moved_for_token(&id, &secret::hash(token));
            return Err(moved.unwrap_or_else(|| self.session_gone(&id)));
        }
        if ask.attach_only {
            let moved = inner.moved(&id, access);
            return Err(moved.unwrap_or_else(|| Refusal::no_session(&id)));
        }
        let parent = match &ask.parent {
            None => None,
            Some(parent) => {
                let parent = inner.pick(Some(parent), access)?;
                Some((parent.key().to_owned(), parent.record.session.id.clone()))
            }
        };
        let (session, token) = self.create(&mut inner, &ask, id, parent);
        (session.clients, session.attached) = (1, 1);
        access.attached.push(session.key().into());
        confirm(session, &ask, access);
        Ok(opened(session, Some(token)))
    }

    /// Puts a new session into the table; returns its token as well.
    fn create<'a>(
        &self,
        inner: &'a mut Inner,
        ask: &OpenSession,
        id: String,
        parent: Option<(String, String)>,
    ) -> (&'a mut Session, String) {
        let token = secret::token();
        let record = Record {
            session: SessionRef {
                name: ask.name.clone().unwrap_or_else(|| id.clone()),
                id: id.clone(),
            },
            root: ask.root.clone(),
            token_hash: secret::hash(&token),
            limits: limits_of(ask, default_limits()),
            lease_ms: ask.lease_ms.filter(|_| !ask.keep),
            opened_at: Moment::now().wall,
            folder: secret::ulid(),
            adopted: Vec::new(),
            parent,
            lapsed: None,
            seen: 0,
            next: [0; 4],
        };
        self.ledger.append(&Entry::Session(record.clone()));
        let budget = Budget::new(limits::spill_session(), Some(Arc::clone(&self.budget)));
        let session = Session::new(record, budget);
        inner.gone.forget(&id);
        let entry = inner.sessions.entry(id);
        (entry.insert_entry(session).into_mut(), token)
    }

    fn attach(
        &self,
        inner: &mut Inner,
        id: &str,
        ask: &OpenSession,
        access: &mut Access,
    ) -> Result<OpenedSession, Refusal> {
        let held = inner
            .sessions
            .get(id)
            .is_some_and(|s| inner.sees(access, s));
        let session = inner
            .sessions
            .get_mut(id)
            .ok_or_else(|| Refusal::no_session(id))?;
        let shown = ask
            .token
            .as_deref()
            .is_some_and(|t| secret::hash(t) == session.record.token_hash);
        if !(held || shown) {
            // Word for word what an unknown one gets.
            return Err(match &ask.token {
                Some(_) => self.session_gone(id),
                None => Refusal::no_session(id),
            });
        }
        if session.closing > 0 {
            return Err(closing(id));
        }
        let changed = change(&mut session.record, ask);
        if changed {
            self.ledger.append(&Entry::Session(session.record.clone()));
        }
        let limits = session.record.limits;
        if !access.holds(session.key()) {
            access.attached.push(session.key().into());
            session.clients += 1;
            session.attached += 1;
            session.alone_since = None;
        }
        confirm(session, ask, access);
        Ok(OpenedSession {
            session: session.record.session.clone(),
            token: None,
            created: false,
            limits,
        })
    }

    /// A token of an earlier life, or of a session that was closed.
    fn session_gone(&self, id: &str) -> Refusal {
        Refusal::new(
            RefusalKind::SessionGone,
            format!("this token opens no session {id}: it was closed, or its supervisor ended"),
        )
        .with("startedAt", self.started_at)
        .hint("open it without a token to begin anew")
    }

    /// Folder of the project of the session that the asker means, if it has one.
    pub(crate) fn root_of(&self, asked: Option<&str>, access: &Access) -> Option<PathBuf> {
        let inner = self.lock();
        let session = inner.pick(asked, access).ok()?;
        session.record.root.as_ref().map(PathBuf::from)
    }

    pub(crate) fn sessions(&self, access: &Access) -> Vec<SessionRow> {
        let inner = self.lock();
        let seen = inner.sessions.values().filter(|s| inner.sees(access, s));
        let mut rows: Vec<_> = seen
            .map(|session| {
                let parent = session.record.parent.as_ref();
                let parent = parent.and_then(|(key, _)| inner.by_key(key));
                SessionRow {
                    parent: parent.map(|p| p.record.session.id.clone()),
                    ..session.row()
                }
            })
            .collect();
        rows.sort_by_key(|r| r.opened_at);
        rows
    }

    /// Ends of background jobs behind the last number that was confirmed; confirms those up to `seen` first.
    pub(crate) fn notices(
        &self,
        asked: Option<&str>,
        seen: Option<u64>,
        access: &Access,
    ) -> Result<Vec<Notice>, Refusal> {
        let mut inner = self.lock();
        let id = inner.pick(asked, access)?.record.session.id.clone();
        let session = inner
            .sessions
            .get_mut(&id)
            .ok_or_else(|| Refusal::no_session(&id))?;
        // Ends have their numbers in order, and none may come while these are collected: an older number than the last
        // one told would count as confirmed with it.
        let _none = self.notices.hold();
        let newest = session.jobs.values().filter_map(|j| j.notice()).max();
        // A number that was never given out must not silence the ends that come.
        let seen = seen.map(|n| n.min(newest.unwrap_or(0)));
        if let Some(seen) = seen.filter(|n| *n > session.record.seen) {
            session.record.seen = seen;
            self.ledger.append(&Entry::Session(session.record.clone()));
        }
        let behind = session.record.seen;
        let jobs = session.jobs.values();
        let told = jobs.filter_map(|j| Some((j.notice().filter(|n| *n > behind)?, j)));
        let told = told.filter(|(_, job)| !job.claims.keeps_back());
        let mut told: Vec<_> = told.collect();
        told.sort_by_key(|(number, _)| *number);
        Ok(told
            .into_iter()
            .map(|(number, job)| Notice {
                number,
                row: job.row(),
            })
            .collect())
    }

    /// Its owner was told of its end: no notice tells it.
    pub(crate) fn notice_no_more(&self, job: &Job) {
        self.renumber(job, |_| 0);
    }

    /// Whoever claimed its notice was not told. Its number may have been confirmed with a later one meanwhile.
    pub(crate) fn notice_again(&self, job: &Job) {
        self.renumber(job, |newest| {
            *newest += 1;
            *newest
        });
    }

    /// An answer was to tell its end, and nobody has come for that.
    pub(crate) fn notice_after_all(&self, job: &Job) {
        if !job.ends_in_silence() {
            self.number(job, |now, newest| {
                *newest += 1;
                Some(now.unwrap_or(*newest))
            });
        }
    }

    /// Gives the notice of a job another number, if it has one.
    fn renumber(&self, job: &Job, number: impl FnOnce(&mut u64) -> u64) {
        self.number(job, |now, newest| now.map(|_| number(newest)));
    }

    /// Gives the notice of a job the number that comes of the one that it has and of the newest of the house.
    fn number(&self, job: &Job, number: impl FnOnce(Option<u64>, &mut u64) -> Option<u64>) {
        let inner = self.lock();
        let mut newest = self.notices.hold();
        let session = inner.by_key(&job.seat().key);
        let session = session.filter(|s| s.jobs.contains_key(&job.spec.number));
        if let Some(session) = session
            && let Some(number) = number(job.notice(), &mut newest)
        {
            job.renumber_notice(number);
            self.ledger.append(&Entry::Seated(session.seated(job)));
        }
    }

    /// Begins to close a session; returns its key and what lives in it, newest first. `None`: it is closed already.
    pub(crate) fn begin_close(
        &self,
        asked: Option<&str>,
        access: &Access,
    ) -> Result<Option<Closing>, Refusal> {
        let mut inner = self.lock();
        let id = match inner.pick(asked, access) {
            Ok(session) => session.record.session.id.clone(),
            // Deleting twice, or what never was, is success.
            Err(r) if r.kind == RefusalKind::NotFound && asked.is_some() => return Ok(None),
            Err(r) => return Err(r),
        };
        let session = inner
            .sessions
            .get_mut(&id)
            .ok_or_else(|| Refusal::no_session(&id))?;
        session.closing += 1;
        self.gather(&mut inner, &id);
        let session = inner.sessions.get(&id);
        let session = session.ok_or_else(|| Refusal::no_session(&id))?;
        let jobs = session.jobs.values().rev().cloned().collect();
        Ok(Some((session.key().into(), jobs)))
    }

    /// Boot time at which [`Registry::expire`] has something to do, as far as is known now.
    pub(crate) fn expires(&self) -> Option<u64> {
        let inner = self.lock();
        inner.sessions.values().filter_map(Session::expires).min()
    }

    /// Lets go of what has been kept long enough: ended jobs, and sessions whose lease ended then.
    pub(crate) fn expire(&self) {
        let now = Moment::now().boot;
        let (ids, lapsed): (Vec<_>, Vec<_>) = {
            let mut inner = self.lock();
            let old = |s: &&mut Session| {
                let lapsed = s.record.lapsed;
                let long = lapsed.is_some_and(|at| at.boot + limits::finished_for() <= now);
                long && s.clients == 0 && !s.jobs.values().any(|j| j.is_live())
            };
            let mut lapsed = Vec::new();
            for session in inner.sessions.values_mut().filter(old) {
                session.closing += 1;
                lapsed.push(session.key().to_owned());
            }
            (inner.sessions.keys().cloned().collect(), lapsed)
        };
        ids.iter().for_each(|id| self.trim(id));
        lapsed.iter().for_each(|key| self.finish_close(key));
    }

    /// Opens a session again whose jobs could not all be ended: they stay listed, and closing it again tries again.
    pub(crate) fn give_up_close(&self, key: &str) {
        if let Some(session) = self.lock().by_key_mut(key) {
            session.closing = session.closing.saturating_sub(1);
        }
    }

    /// Forgets a session whose jobs are all over, then deletes its artifacts: never in another order. By its key: where
    /// two close it, its id may be somebody else's by the time the second one comes here.
    pub(crate) fn finish_close(&self, key: &str) {
        let session = {
            let mut inner = self.lock();
            let Some(id) = inner.by_key(key).map(|s| s.record.session.id.clone()) else {
                return;
            };
            let Some(session) = inner.sessions.remove(&id) else {
                return;
            };
            inner.gone.forget_to(&id);
            self.ledger.append(&Entry::Closed { id });
            for job in session.jobs.values() {
                inner.forget(job);
                job.tell(Happened::Removed);
            }
            session
        };
        for job in session.jobs.values() {
            job.log.retire();
        }
        self.events.stir();
        let adopted = session.record.adopted.iter();
        for folder in adopted.chain([&session.record.folder]) {
            disk::in_place(|| remove_folder(&self.artifacts.join(folder)));
        }
        self.recount();
    }
}

/// A session for who has just opened it; with the token it is new.
fn opened(session: &Session, token: Option<String>) -> OpenedSession {
    OpenedSession {
        session: session.record.session.clone(),
        created: token.is_some(),
        token,
        limits: session.record.limits,
    }
}

fn default_limits() -> SessionLimits {
    SessionLimits {
        commands: limits::commands(),
        shells: limits::shells(),
        agents: limits::agents(),
    }
}

/// Changes what an open session may be asked to change; true when something did.
fn change(record: &mut Record, ask: &OpenSession) -> bool {
    let before = (
        record.limits,
        record.lease_ms,
        record.root.is_some(),
        record.lapsed,
    );
    record.limits = limits_of(ask, record.limits);
    record.lease_ms = ask.lease_ms.or(record.lease_ms).filter(|_| !ask.keep);
    record.root = record.root.take().or_else(|| ask.root.clone());
    // Somebody came back: what is there goes on.
    record.lapsed = None;
    before
        != (
            record.limits,
            record.lease_ms,
            record.root.is_some(),
            record.lapsed,
        )
}

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
        if n.is_some_and(|n| n == 0 || n > limits::quota_ceiling()) {
            return Err(Refusal::bad(
                field,
                format!("must be 1 to {}", limits::quota_ceiling()),
            ));
        }
    }
    if ask.keep && ask.lease_ms.is_some() {
        return Err(Refusal::bad("keep", "and `leaseMs` exclude each other"));
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

/// A link in place of the folder is taken away, one in place of the folder of all is not walked through.
fn remove_folder(folder: &Path) {
    if folder.parent().is_some_and(Path::is_symlink) {
        crate::log_line!("warn", "artifacts are not at {}", folder.display());
        return;
    }
    match std::fs::remove_dir_all(folder) {
        Ok(()) => {}
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => crate::log_line!("warn", "artifacts {} stay: {e}", folder.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ledger::Ledger, log::Arena};
    use std::os::fd::OwnedFd;

    fn registry() -> Registry {
        let (rings, headers) = Arena::create().unwrap();
        let arena = Arena::map(rings, headers).unwrap();
        let ledger: OwnedFd = tempfile::tempfile().unwrap().into();
        let (ledger, _) = Ledger::open(ledger).unwrap();
        let artifacts = PathBuf::from("/nowhere");
        Registry::new(Arc::new(ledger), arena, artifacts, "cookie", 10, 0, 1)
    }

    /// The first of two that gave up opened the session; what was started then was forgotten by the second, alive.
    #[test]
    fn a_session_takes_nothing_new_while_anybody_closes_it() {
        let registry = registry();
        let mut access = Access::default();
        let named = || OpenSession {
            id: Some("x".into()),
            ..OpenSession::default()
        };
        registry.open(named(), &mut access).unwrap();
        let begin = |access: &Access| registry.begin_close(Some("x"), access).unwrap().unwrap();
        let ((key, _), _) = (begin(&access), begin(&access));
        registry.give_up_close(&key);
        assert!(registry.open(named(), &mut access).is_err());
        registry.give_up_close(&key);
        assert!(registry.open(named(), &mut access).is_ok());
    }
}
