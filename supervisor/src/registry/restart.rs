//! The table on its way into the ledger and back out of it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use ostler_proto::limits;

use super::Registry;
use crate::{
    job::{Finished, Job},
    ledger::{Entry, FORMAT, Moves},
    log::Budget,
    session::{Record, Session, Tombstone},
};

impl Registry {
    /// What is alive, as ledger entries.
    pub(crate) fn snapshot(&self, started_at: u64, generation: u64) -> Vec<Entry> {
        let inner = self.lock();
        let mut entries = vec![Entry::House {
            started_at,
            generation,
            next_number: inner.next_number,
            notices: *self.notices.hold(),
            format: FORMAT,
        }];
        for session in inner.sessions.values() {
            entries.push(Entry::Session(session.record.clone()));
            // Also what came back to where it was born: its former names and its notice are others.
            let named: HashSet<u64> = session.moved.values().copied().collect();
            let has_moved = |j: &&Arc<Job>| {
                named.contains(&j.spec.number) || j.seat() != j.spec.born || is_renumbered(j)
            };
            let moved = session.jobs.values().filter(has_moved);
            entries.extend(moved.map(|j| Entry::Seated(session.seated(j))));
            for tombstone in &session.tombstones {
                let session = session.record.session.id.clone();
                entries.push(Entry::Buried {
                    session,
                    tombstone: tombstone.clone(),
                });
            }
            for job in session.jobs.values() {
                let status = job.status();
                if let Some(finished) = &status.finished {
                    let finished = Box::new(Finished::clone(finished));
                    entries.push(Entry::Finished {
                        spec: Box::new(job.spec.clone()),
                        finished,
                    });
                }
                if job.spec.is_bare() && status.finished.is_none() {
                    entries.push(Entry::Begun(Box::new(job.spec.clone())));
                }
                if status.finished.is_none()
                    && let Some(talk) = &job.talk
                {
                    let number = job.spec.number;
                    let lines = talk.all_handed().into_iter();
                    entries.extend(lines.map(|line| Entry::Handed { number, line }));
                }
                let wanted = job.wanted().borrow().clone();
                if wanted.who.is_some() && !status.over {
                    entries.push(Entry::Wanted {
                        number: job.spec.number,
                        wanted,
                    });
                }
                if job.spec.bound && !job.is_bound() && !status.over {
                    entries.push(Entry::Unbound {
                        number: job.spec.number,
                    });
                }
            }
        }
        entries.extend(inner.gone.oldest_first().cloned().map(Entry::Gone));
        entries
    }

    /// Puts a session of an earlier supervisor back.
    pub(crate) fn restore_session(&self, record: Record, tombstones: Vec<Tombstone>) {
        let budget = Budget::new(limits::spill_session(), Some(Arc::clone(&self.budget)));
        let mut session = Session::new(record, budget);
        for tombstone in tombstones {
            session.has_given(&tombstone.id);
            session.put_tombstone(tombstone);
        }
        self.lock()
            .sessions
            .insert(session.record.session.id.clone(), session);
    }

    /// Keeps what stays of a job that ended with the supervisor before this one.
    pub(crate) fn bury_lost(&self, session_id: &str, tombstone: Tombstone) {
        let mut inner = self.lock();
        let Some(session) = inner.sessions.get_mut(session_id) else {
            return;
        };
        session.has_given(&tombstone.id);
        session.put_tombstone(tombstone.clone());
        self.ledger.append(&Entry::Buried {
            session: session_id.to_owned(),
            tombstone,
        });
    }

    /// Puts back where sessions went.
    pub(crate) fn restore_gone(&self, gone: Moves) {
        self.lock().gone = gone;
    }

    /// Budget of the session that a job of an earlier supervisor belongs to.
    pub(crate) fn budget_of(&self, session: &str) -> Option<Arc<Budget>> {
        self.lock()
            .sessions
            .get(session)
            .map(|s| Arc::clone(&s.budget))
    }

    /// Puts a job of an earlier supervisor back; false when its session is gone.
    pub(crate) fn restore_job(&self, job: &Arc<Job>, from: &[String]) -> bool {
        let mut inner = self.lock();
        let id = job.seat().session.id;
        let Some(session) = inner.sessions.get_mut(&id) else {
            return false;
        };
        for old in from {
            session.moved.insert(old.clone(), job.spec.number);
        }
        inner.put(&id, Arc::clone(job));
        true
    }

    /// Numbers of notices up to this one are used. Before any job goes on: one that had ended publishes that at once, by a
    /// number that would count as confirmed.
    pub(crate) fn restore_notices(&self, newest: u64) {
        *self.notices.hold() = newest;
    }

    /// Ends a restore: numbers and slots that are in use are not given out again.
    pub(crate) fn restored(&self, next_number: u64, crashed: bool) {
        let mut inner = self.lock();
        let jobs: Vec<_> = inner
            .sessions
            .values()
            .flat_map(|s| s.jobs.values())
            .cloned()
            .collect();
        let top = jobs.iter().map(|j| j.spec.number + 1).max().unwrap_or(1);
        inner.next_number = inner.next_number.max(top).max(next_number);
        let owned: HashMap<usize, u64> = jobs
            .iter()
            .map(|j| (j.spec.slot as usize, j.spec.number))
            .collect();
        drop(inner);
        // A job that was admitted and never reached the keeper left its slot behind.
        let slots = if crashed { self.arena.slots() } else { 0 };
        for slot in 0..slots {
            let owner = self.arena.owner(slot);
            if owner.is_some() && owner != owned.get(&slot).copied() {
                let _ = self.arena.punch(slot);
            }
        }
        self.recount();
    }
}

/// Its notice is not that of its end any more.
fn is_renumbered(job: &Job) -> bool {
    let finished = job.status().finished.clone();
    finished.is_some_and(|finished| finished.notice != job.notice())
}
