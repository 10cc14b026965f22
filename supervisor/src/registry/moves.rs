//! A session that gets another id, and one that hands its jobs to another. Nothing of a job changes but its seat:
//! cursors, results, waits and stops in progress go on.

use std::sync::Arc;

use ostler_proto::{
    id,
    job::SessionRef,
    methods::{MovedJob, MovedSession},
    refusal::{Refusal, RefusalKind},
};

use super::{Access, Inner, Registry, closing, leaving};
use crate::{
    events::From,
    job::{Job, Seat},
    ledger::{Entry, Gone, Moved, Seated},
    session::Session,
};

impl Registry {
    /// Gives a session another id. One that exists and is seen adopts the jobs. The name of another one is refused: was
    /// that one meant, or did nobody think of it?
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
        inner.check_name(&from, to, access)?;
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
                key: session.key().into(),
                id: job.id(),
            };
            told.seat(&mut session, job, seat, &from);
            inner.place(job, to);
        }
        inner.gone.forget(to);
        self.remember(&mut inner, gone, &session, told.seated.clone());
        let answer = moved(&session, told.jobs.clone());
        inner.sessions.insert(to.into(), session);
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
            return Err(Refusal::bad(
                "into",
                format!("is {child} itself: its jobs are there already"),
            ));
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
                key: session.key().into(),
                id: session.id_for_adopted(job.spec.kind, &job.id()),
            };
            // The numbers of one session say nothing to the reader of another. One that ends later has a number then.
            let mut newest = self.notices.hold();
            if let Some(number) = job.notice() {
                let untold = number > seen;
                *newest += u64::from(untold);
                job.renumber_notice(if untold { *newest } else { 0 });
            }
            if job.status().finished.is_none()
                && let Some(wanted) = job.break_silence()
            {
                let number = job.spec.number;
                self.ledger.append(&Entry::Wanted { number, wanted });
            }
            drop(newest);
            told.seat(&mut session, job, seat, child);
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
        self.events.stir();
        Ok(answer)
    }

    /// A sub-agent has ended: the jobs of its own session go to the one that delegated, and live on there. Done once;
    /// says nothing of what is no sub-agent.
    pub(crate) fn hand_over(&self, job: &Job) {
        let (Some(owner), Some(child)) = (&job.owner, &job.spec.child) else {
            return;
        };
        let mut inner = self.lock();
        let into = job.seat().session.id;
        if job.is_live() || !inner.sessions.contains_key(&into) {
            return;
        }
        let ids = self.take_in(&mut inner, child, &into);
        let session = inner.sessions.get(&into);
        let lives = |id: &String| {
            let number = session.and_then(|s| s.short.get(id));
            let job = number.and_then(|n| session?.jobs.get(n));
            job.is_some_and(|j| !j.is_finished())
        };
        // With the session: whoever stops a sub-agent of a sub-agent may have another `t1` of its own.
        let named = |id: String| format!("{into}/{id}");
        let names = ids.map(|ids| ids.into_iter().filter(lives).map(named).collect());
        if let Some(names) = names {
            owner.leave_running(names);
        }
    }

    /// Adopts the session of this key, whatever the quota of the other one says; returns the ids that its jobs have then.
    /// None: it is not there any more, or somebody closes one of them.
    fn take_in(&self, inner: &mut Inner, key: &str, into: &str) -> Option<Vec<String>> {
        let child = inner.by_key(key).filter(|s| s.closing == 0)?;
        let child = child.record.session.id.clone();
        let moved = self.merge(inner, &child, into).ok()?;
        Some(moved.jobs.into_iter().map(|job| job.to).collect())
    }

    /// All that works for a session stands in it from here on: it is about to be ended as a whole.
    pub(super) fn gather(&self, inner: &mut Inner, id: &str) {
        loop {
            let jobs = inner
                .sessions
                .get(id)
                .into_iter()
                .flat_map(|s| s.jobs.values());
            let children = jobs.filter_map(|job| job.spec.child.clone());
            let taken = children
                .collect::<Vec<_>>()
                .iter()
                .filter_map(|key| self.take_in(inner, key, id))
                .count();
            // A sub-agent that came with them may have had sub-agents of its own.
            if taken == 0 {
                return;
            }
        }
    }

    fn remember(&self, inner: &mut Inner, gone: Gone, to: &Session, seats: Vec<Seated>) {
        inner.gone.remember(gone.clone());
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

/// What a move did, for its answer and the ledger.
#[derive(Default)]
struct Told {
    jobs: Vec<MovedJob>,
    seated: Vec<Seated>,
}

impl Told {
    fn seat(&mut self, session: &mut Session, job: &Arc<Job>, seat: Seat, from: &str) {
        let before = job.seat();
        let old = format!("{from}/{}", before.id);
        let from = From {
            session: &before.key,
            name: &old,
        };
        job.move_to(seat.clone(), from);
        session.moved.insert(old.clone(), job.spec.number);
        session.insert(Arc::clone(job));
        self.jobs.push(MovedJob {
            from: old.clone(),
            to: seat.id.clone(),
            process_id: job.spec.process_id.clone(),
        });
        self.seated.push(session.seated(job));
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
        if session.closing > 0 {
            return Err(closing(&session.record.session.id));
        }
        Ok(session.record.session.id.clone())
    }

    /// Two sessions of which one has for its id what is the other's name could not be told apart by it.
    fn check_name(&self, from: &str, to: &str, access: &Access) -> Result<(), Refusal> {
        let others = self.seen(access).map(|s| &s.record.session);
        let others = others.filter(|s| s.name == to && s.id != from);
        let ids: Vec<&str> = others.map(|s| s.id.as_str()).collect();
        match ids.as_slice() {
            [] => Ok(()),
            ids => Err(Refusal::named_so(to, ids)),
        }
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

    /// The refusal for somebody who shows the token of a session that is no more.
    pub(super) fn moved_for_token(&self, id: &str, hash: &str) -> Option<Refusal> {
        let mut gone = self.gone.newest_first();
        let found = gone.find(|g| g.id == id && g.token_hash == hash)?;
        let there = self.sessions.get(&found.to);
        // The same slot under another id, or its jobs in a session that this token does not open.
        let renamed = there.is_some_and(|s| s.record.token_hash == hash);
        let hint = if renamed {
            format!("open {} with the same token", found.to)
        } else {
            format!(
                "its jobs are {}'s, which has a token of its own; open another session, or ask its owner",
                found.to
            )
        };
        let words = format!("session {id} is now {}", found.to);
        let refusal = Refusal::new(RefusalKind::Moved, words);
        Some(
            refusal
                .with("to", &found.to)
                .with("renamed", renamed)
                .hint(hint),
        )
    }
}
