//! A session that gets another id, and one that hands its jobs to another. Nothing of a job changes but its seat:
//! cursors, results, waits and stops in progress go on.

use std::sync::Arc;

use ostler_proto::{
    id,
    job::SessionRef,
    limits,
    methods::{Happened, MovedJob, MovedSession},
    refusal::{Refusal, RefusalKind},
};

use super::{Access, Inner, Registry, closing, leaving};
use crate::{
    job::{Job, Seat},
    ledger::{Entry, Gone, Moved, Seated},
    session::Session,
};

impl Registry {
    /// Gives a session another id. One that exists and is seen adopts the jobs.
    pub(crate) fn rename(
        &self,
        asked: Option<&str>,
        to: &str,
        access: &Access,
    ) -> Result<MovedSession, Refusal> {
        id::check_word(to).map_err(|why| Refusal::bad("to", why))?;
        let mut inner = self.lock();
        let from = inner.movable(asked, access)?;
        if from == to {
            let session = inner.pick(Some(to), access)?;
            return Ok(moved(session, Vec::new()));
        }
        if inner.sessions.contains_key(to) {
            let into = inner.movable(Some(to), access)?;
            return self.merge(&mut inner, &from, &into);
        }
        let mut session = inner.take(&from)?;
        let gone = Gone::of(&session, to);
        session.record.session = SessionRef {
            id: to.into(),
            name: to.into(),
        };
        let jobs: Vec<_> = session.jobs.values().cloned().collect();
        let mut told = Told::default();
        for job in &jobs {
            let seat = Seat {
                session: session.record.session.clone(),
                id: job.id(),
            };
            told.seat(&mut session, job, seat, &from, job.notice());
            inner.place(job, to);
        }
        inner.forget_moves_of(to);
        self.remember(&mut inner, gone, &session, told.seated.clone());
        let answer = moved(&session, told.jobs.clone());
        inner.sessions.insert(to.into(), session);
        told.tell();
        Ok(answer)
    }

    /// Hands all jobs of a session to another one.
    pub(crate) fn adopt(
        &self,
        child: &str,
        into: Option<&str>,
        access: &Access,
    ) -> Result<MovedSession, Refusal> {
        let mut inner = self.lock();
        let child = inner.movable(Some(child), access)?;
        let into = inner.movable(into, access)?;
        if child == into {
            return Err(Refusal::bad("into", "must be another session"));
        }
        self.merge(&mut inner, &child, &into)
    }

    /// Over its quota, too: nothing is killed in silence, new starts are refused until there is room.
    fn merge(&self, inner: &mut Inner, child: &str, into: &str) -> Result<MovedSession, Refusal> {
        let mut session = inner.take(into)?;
        // Taken second, and put back by nobody: from here on nothing can fail.
        let from = match inner.take(child) {
            Ok(from) => from,
            Err(refusal) => {
                inner.sessions.insert(into.into(), session);
                return Err(refusal);
            }
        };
        let gone = Gone::of(&from, into);
        let seen = from.record.seen;
        session.record.adopted.push(from.record.folder.clone());
        session
            .record
            .adopted
            .extend(from.record.adopted.iter().cloned());
        let mut told = Told::default();
        for job in from.jobs.values() {
            let seat = Seat {
                session: session.record.session.clone(),
                id: session.id_for_adopted(job.spec.kind, &job.id()),
            };
            // The numbers of one session say nothing to the reader of another.
            let notice = job
                .notice()
                .filter(|n| *n > seen)
                .map(|_| self.next_notice());
            told.seat(&mut session, job, seat, child, notice);
            inner.place(job, into);
        }
        for (old, number) in from.moved {
            session.moved.entry(old).or_insert(number);
        }
        inner.reparent(from.record.folder.as_str(), &session);
        self.remember(inner, gone, &session, told.seated.clone());
        for mut stone in from.tombstones {
            stone.id = format!("{child}/{}", stone.id);
            session.put_tombstone(stone.clone());
            self.ledger.append(&Entry::Buried {
                session: into.into(),
                tombstone: stone,
            });
        }
        let answer = moved(&session, told.jobs.clone());
        inner.sessions.insert(into.into(), session);
        told.tell();
        self.events.stir();
        Ok(answer)
    }

    fn remember(&self, inner: &mut Inner, gone: Gone, to: &Session, seats: Vec<Seated>) {
        inner.remember_gone(gone.clone());
        self.ledger.append(&Entry::Moved(Box::new(Moved {
            from: gone,
            to: to.record.clone(),
            seats,
        })));
    }
}

impl Gone {
    fn of(session: &Session, to: &str) -> Self {
        Self {
            id: session.record.session.id.clone(),
            key: session.key().into(),
            token_hash: session.record.token_hash.clone(),
            to: to.into(),
        }
    }
}

/// What a move did, for its answer, the ledger and those who watch.
#[derive(Default)]
struct Told {
    jobs: Vec<MovedJob>,
    seated: Vec<Seated>,
    events: Vec<(Arc<Job>, String)>,
}

impl Told {
    fn seat(
        &mut self,
        session: &mut Session,
        job: &Arc<Job>,
        seat: Seat,
        from: &str,
        notice: Option<u64>,
    ) {
        let old = format!("{from}/{}", job.id());
        job.sit(seat.clone());
        job.renumber_notice(notice.unwrap_or(0));
        session.moved.insert(old.clone(), job.spec.number);
        session.insert(Arc::clone(job));
        self.jobs.push(MovedJob {
            from: old.clone(),
            to: seat.id.clone(),
            process_id: job.spec.process_id.clone(),
        });
        self.seated.push(session.seated(job));
        self.events.push((Arc::clone(job), old));
    }

    fn tell(self) {
        for (job, old) in self.events {
            job.tell(Happened::Moved, Some(old));
        }
    }
}

fn moved(session: &Session, jobs: Vec<MovedJob>) -> MovedSession {
    MovedSession {
        session: session.record.session.clone(),
        jobs,
    }
}

impl Inner {
    /// Id of a session whose jobs may be moved, or that may get some.
    fn movable(&self, asked: Option<&str>, access: &Access) -> Result<String, Refusal> {
        if self.leaving {
            return Err(leaving());
        }
        let session = self.pick(asked, access)?;
        if session.closing {
            return Err(closing(&session.record.session.id));
        }
        Ok(session.record.session.id.clone())
    }

    fn take(&mut self, id: &str) -> Result<Session, Refusal> {
        self.sessions
            .remove(id)
            .ok_or_else(|| Refusal::no_session(id))
    }

    fn place(&mut self, job: &Job, session: &str) {
        let at = (session.to_owned(), job.spec.number);
        self.processes.insert(job.spec.process_id.clone(), at);
    }

    /// Sessions that worked for one that is no more work for the one that has its jobs.
    fn reparent(&mut self, key: &str, to: &Session) {
        for session in self.sessions.values_mut() {
            if let Some(parent) = &mut session.record.parent
                && parent.0 == key
            {
                *parent = (to.key().into(), to.record.session.id.clone());
            }
        }
    }

    /// An id that is in use again has not moved.
    pub(super) fn forget_moves_of(&mut self, id: &str) {
        self.gone.retain(|g| g.id != id);
    }

    /// Keeps where a session went. Earlier ones that went there go along, so that no chain is to be followed.
    pub(super) fn remember_gone(&mut self, gone: Gone) {
        for earlier in self.gone.iter_mut().filter(|g| g.to == gone.id) {
            earlier.to.clone_from(&gone.to);
        }
        self.gone.push_back(gone);
        if self.gone.len() > limits::moved() {
            self.gone.pop_front();
        }
    }

    /// The refusal for somebody who shows the token of a session that is no more.
    pub(super) fn moved_for_token(&self, id: &str, hash: &str) -> Option<Refusal> {
        let mut gone = self.gone.iter().rev();
        let found = gone.find(|g| g.id == id && g.token_hash == hash)?;
        Some(
            Refusal::new(
                RefusalKind::Moved,
                format!("session {id} is now {}", found.to),
            )
            .with("to", &found.to)
            .hint(format!("open {} with the same token", found.to)),
        )
    }
}
