//! Which session or job a name means, for somebody who sees only some. A foreign thing and an unknown thing take
//! the same way through this file and give the same answer.

use std::{path::Path, sync::Arc};

use ostler_proto::{
    id,
    methods::List,
    refusal::{Refusal, RefusalKind},
};

use super::{Access, Inner, Registry};
use crate::{job::Job, session::Session};

impl Access {
    /// Tells whether it was attached to the session of this key.
    pub(super) fn holds(&self, key: &str) -> bool {
        self.attached.iter().any(|a| a == key)
    }

    /// Tells whether it confirms the notices of the session of this key.
    pub(super) fn confirms(&self, key: &str) -> bool {
        self.confirmed.iter().any(|c| c == key)
    }
}

impl Registry {
    /// The job of an id in the session that the asker means.
    pub(crate) fn find(
        &self,
        asked: Option<&str>,
        id: &str,
        access: &Access,
    ) -> Result<Arc<Job>, Refusal> {
        let inner = self.lock();
        if id::is_process_id(id) {
            return inner.find_process(id, access);
        }
        let (named, short) = match id.split_once('/') {
            Some((session, short)) => (Some(session), short),
            None => (asked, id),
        };
        let session = match inner.pick(named, access) {
            Ok(session) => session,
            Err(refusal) => {
                let job = named.and_then(|session| inner.find_moved(session, short, access));
                return job.ok_or(refusal);
            }
        };
        if let Some(job) = session.find(short) {
            return Ok(Arc::clone(job));
        }
        Err(gone(session, short).unwrap_or_else(|| Refusal::no_job(id)))
    }

    /// The jobs that a list means: live first in order of start, then the newest ended.
    pub(crate) fn list(&self, ask: &List, access: &Access) -> Result<Vec<Arc<Job>>, Refusal> {
        let inner = self.lock();
        let sessions: Vec<&Session> = if let Some(root) = &ask.root {
            let inside = |s: &&Session| {
                let of = s.record.root.as_deref();
                of.is_some_and(|r| Path::new(r).starts_with(root))
            };
            inner.seen(access).filter(inside).collect()
        } else if ask.all {
            inner.seen(access).collect()
        } else {
            vec![inner.pick(ask.session.as_deref(), access)?]
        };
        let jobs = sessions.into_iter().flat_map(|s| s.jobs.values().cloned());
        let mut jobs: Vec<_> = jobs.collect();
        drop(inner);
        if ask.live {
            jobs.retain(|j| j.is_live());
        }
        jobs.sort_by_key(|j| {
            if j.is_live() {
                (0, j.spec.number)
            } else {
                (1, u64::MAX - j.spec.number)
            }
        });
        Ok(jobs)
    }

    /// Tells whether the asker sees the session of this key; the owner sees those that are gone as well.
    pub(crate) fn sees(&self, access: &Access, key: &str) -> bool {
        if access.owner {
            return true;
        }
        let inner = self.lock();
        inner.by_key(key).is_some_and(|s| inner.sees(access, s))
    }

    /// Tells whether a job is this one's own: who attached to its session, or who has the owner key, where the session
    /// is no agent's. Who just looks after what agents do is told of nothing in their place.
    pub(crate) fn owns(&self, access: &Access, job: &Job) -> bool {
        let key = job.seat().key;
        if access.holds(&key) {
            return true;
        }
        let inner = self.lock();
        let session = inner.by_key(&key).filter(|_| access.owner);
        session.is_some_and(|s| {
            s.record.lease_ms.is_none() && s.record.parent.is_none() && s.readers == 0
        })
    }

    /// Tells whether this one has its notices otherwise.
    pub(crate) fn confirms(&self, access: &Access, job: &Job) -> bool {
        access.confirms(&job.seat().key)
    }

    /// Tells whether there is a session of this key.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.lock().by_key(key).is_some()
    }

    /// Key of the session that the asker means.
    pub(crate) fn key_of(&self, asked: Option<&str>, access: &Access) -> Result<String, Refusal> {
        let inner = self.lock();
        Ok(inner.pick(asked, access)?.key().into())
    }

    /// Keys of the sessions that the asker sees.
    pub(crate) fn keys(&self, access: &Access) -> Vec<String> {
        let inner = self.lock();
        inner.seen(access).map(|s| s.key().into()).collect()
    }
}

impl Inner {
    pub(super) fn by_key(&self, key: &str) -> Option<&Session> {
        self.sessions.values().find(|s| s.key() == key)
    }

    /// Sees a session: the owner, who attached to it, and who attached to one that it works for.
    pub(super) fn sees(&self, access: &Access, session: &Session) -> bool {
        if access.owner || access.holds(session.key()) {
            return true;
        }
        if access.attached.is_empty() {
            return false;
        }
        // Bounded: a parent is there before its child, so the chain has no loop, but a rename of a rename could make one.
        let mut parent = session.record.parent.as_ref();
        for _ in 0..self.sessions.len() {
            let Some((key, _)) = parent else { return false };
            if access.holds(key) {
                return true;
            }
            parent = self.by_key(key).and_then(|s| s.record.parent.as_ref());
        }
        false
    }

    pub(super) fn seen<'a, 'b>(
        &'a self,
        access: &'b Access,
    ) -> impl Iterator<Item = &'a Session> + use<'a, 'b> {
        self.sessions.values().filter(|s| self.sees(access, s))
    }

    /// The session that the asker means and may see.
    pub(super) fn pick(&self, asked: Option<&str>, access: &Access) -> Result<&Session, Refusal> {
        let Some(asked) = asked else {
            return self.attached(access);
        };
        if let Some(session) = self.sessions.get(asked)
            && self.sees(access, session)
        {
            return Ok(session);
        }
        let named: Vec<_> = self
            .seen(access)
            .filter(|s| s.record.session.name == asked)
            .collect();
        let found = if named.is_empty() {
            self.seen(access)
                .filter(|s| s.record.session.id.starts_with(asked))
                .collect()
        } else {
            named
        };
        match found.as_slice() {
            [one] => Ok(one),
            [] => Err(self
                .moved(asked, access)
                .unwrap_or_else(|| Refusal::no_session(asked))),
            many => {
                let ids: Vec<_> = many.iter().map(|s| s.record.session.id.as_str()).collect();
                Err(Refusal::ambiguous_session(asked, &ids))
            }
        }
    }

    /// The one session that was attached on the connection, wherever a rename has put it since.
    fn attached(&self, access: &Access) -> Result<&Session, Refusal> {
        let attached = access.attached.iter().filter_map(|key| self.by_key(key));
        let attached: Vec<_> = attached.collect();
        match attached.as_slice() {
            [one] => Ok(one),
            [] => {
                let mut adopted = self.gone.newest_first();
                if let Some(gone) = adopted.find(|g| access.holds(&g.key)) {
                    return Err(Refusal::moved(&gone.id, &gone.to).with("renamed", false));
                }
                if !access.attached.is_empty() {
                    let words = "the session of this connection was closed";
                    return Err(Refusal::new(RefusalKind::SessionGone, words)
                        .hint("session/open begins another"));
                }
                Err(Refusal::new(
                    RefusalKind::NotFound,
                    "no session is attached on this connection",
                )
                .hint("session/open, or name the session"))
            }
            many => {
                let ids: Vec<_> = many.iter().map(|s| s.record.session.id.as_str()).collect();
                Err(Refusal::new(
                    RefusalKind::Ambiguous,
                    "several sessions are attached on this connection",
                )
                .with("candidates", ids)
                .hint("name the session"))
            }
        }
    }

    /// Where a session went, for those who held it or see where it is now; nobody else learns that it was there.
    pub(super) fn moved(&self, asked: &str, access: &Access) -> Option<Refusal> {
        let gone = self.gone.newest_first().find(|g| g.id == asked)?;
        let there = self.sessions.get(&gone.to);
        let knows =
            access.owner || access.holds(&gone.key) || there.is_some_and(|s| self.sees(access, s));
        // The same slot under another id, or its jobs in another session.
        let renamed = there.is_some_and(|s| s.key() == gone.key);
        knows.then(|| Refusal::moved(asked, &gone.to).with("renamed", renamed))
    }

    /// The job that once was `SESSION/t1`, or `SESSION/NAME`, in a session that the asker sees.
    fn find_moved(&self, session: &str, short: &str, access: &Access) -> Option<Arc<Job>> {
        let mut seen = self.seen(access);
        seen.find_map(|s| s.find_moved(session, short).cloned())
    }

    fn find_process(&self, id: &str, access: &Access) -> Result<Arc<Job>, Refusal> {
        let mut found = Vec::new();
        for (process_id, (session, number)) in self.processes.range(id.to_owned()..) {
            if !process_id.starts_with(id) {
                break;
            }
            let session = self.sessions.get(session);
            if let Some(session) = session.filter(|s| self.sees(access, s)) {
                found.push((session, *number));
            }
        }
        match found.as_slice() {
            [(session, number)] => session
                .jobs
                .get(number)
                .cloned()
                .ok_or_else(|| Refusal::no_job(id)),
            [] => Err(self
                .seen(access)
                .find_map(|s| gone(s, id))
                .unwrap_or_else(|| Refusal::no_job(id))),
            many => Err(Refusal::ambiguous_job(id, many.len())),
        }
    }
}

fn gone(session: &Session, id: &str) -> Option<Refusal> {
    let stone = session
        .tombstones
        .iter()
        .rev()
        .find(|t| t.id == id || t.process_id == id)?;
    Some(
        Refusal::new(RefusalKind::Gone, format!("{id} was {}", stone.why)).with("tombstone", stone),
    )
}
