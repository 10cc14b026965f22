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
    pub(super) fn sees(&self, id: &str) -> bool {
        self.owner || self.attached.iter().any(|a| a == id)
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
        let (session, short) = match id.split_once('/') {
            Some((session, short)) => (Some(session), short),
            None => (asked, id),
        };
        let session_id = inner.pick(session, access)?;
        let session = inner
            .sessions
            .get(&session_id)
            .ok_or_else(|| Refusal::no_session(&session_id))?;
        if let Some(job) = session.find(short) {
            return Ok(Arc::clone(job));
        }
        Err(gone(session, short).unwrap_or_else(|| Refusal::no_job(id)))
    }

    /// The jobs that a list means: live first in order of start, then the newest ended.
    pub(crate) fn list(&self, ask: &List, access: &Access) -> Result<Vec<Arc<Job>>, Refusal> {
        let inner = self.lock();
        let mut jobs = Vec::new();
        if let Some(root) = &ask.root {
            for s in inner
                .sessions
                .values()
                .filter(|s| access.sees(&s.record.session.id))
            {
                if s.record
                    .root
                    .as_deref()
                    .is_some_and(|r| Path::new(r).starts_with(root))
                {
                    jobs.extend(s.jobs.values().cloned());
                }
            }
        } else if ask.all {
            for s in inner
                .sessions
                .values()
                .filter(|s| access.sees(&s.record.session.id))
            {
                jobs.extend(s.jobs.values().cloned());
            }
        } else {
            let id = inner.pick(ask.session.as_deref(), access)?;
            jobs.extend(
                inner
                    .sessions
                    .get(&id)
                    .into_iter()
                    .flat_map(|s| s.jobs.values().cloned()),
            );
        }
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
}

impl Inner {
    /// The session that the asker means and may see.
    pub(super) fn pick(&self, asked: Option<&str>, access: &Access) -> Result<String, Refusal> {
        let Some(asked) = asked else {
            return match access.attached.as_slice() {
                [one] => Ok(one.clone()),
                [] => Err(Refusal::new(
                    RefusalKind::NotFound,
                    "no session is attached on this connection",
                )
                .hint("session/open, or name the session")),
                many => Err(Refusal::new(
                    RefusalKind::Ambiguous,
                    "several sessions are attached on this connection",
                )
                .with("candidates", many)
                .hint("name the session")),
            };
        };
        if self.sessions.contains_key(asked) && access.sees(asked) {
            return Ok(asked.to_owned());
        }
        let seen = || {
            self.sessions
                .values()
                .map(|s| &s.record.session)
                .filter(|s| access.sees(&s.id))
        };
        let named: Vec<_> = seen()
            .filter(|s| s.name == asked)
            .map(|s| s.id.clone())
            .collect();
        let found = if named.is_empty() {
            seen()
                .filter(|s| s.id.starts_with(asked))
                .map(|s| s.id.clone())
                .collect()
        } else {
            named
        };
        match found.as_slice() {
            [one] => Ok(one.clone()),
            [] => Err(Refusal::no_session(asked)),
            many => Err(Refusal::new(
                RefusalKind::Ambiguous,
                format!("{asked} may be any of {}", many.join(", ")),
            )
            .with("candidates", many)),
        }
    }

    fn find_process(&self, id: &str, access: &Access) -> Result<Arc<Job>, Refusal> {
        let mut found = Vec::new();
        for (process_id, (session, number)) in self.processes.range(id.to_owned()..) {
            if !process_id.starts_with(id) {
                break;
            }
            if access.sees(session) {
                found.push((session, *number));
            }
        }
        match found.as_slice() {
            [(session, number)] => self
                .sessions
                .get(*session)
                .and_then(|s| s.jobs.get(number))
                .cloned()
                .ok_or_else(|| Refusal::no_job(id)),
            [] => Err(self
                .gone_process(id, access)
                .unwrap_or_else(|| Refusal::no_job(id))),
            many => Err(Refusal::new(
                RefusalKind::Ambiguous,
                format!("{id} may be any of {} jobs", many.len()),
            )),
        }
    }

    fn gone_process(&self, id: &str, access: &Access) -> Option<Refusal> {
        let mut seen = self
            .sessions
            .values()
            .filter(|s| access.sees(&s.record.session.id));
        seen.find_map(|s| gone(s, id))
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
