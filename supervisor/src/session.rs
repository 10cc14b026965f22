//! A session: the owner of jobs. Plain data behind the registry's mutex; it asks nobody and waits for nothing.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ostler_proto::{
    job::{Kind, Outcome, SessionRef},
    limits,
    methods::{SessionLimits, SessionRow},
};
use serde::{Deserialize, Serialize};

use crate::{clock::Moment, job::Job, ledger::Seated, log::Budget};

/// What survives of a session: its ledger entry.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) session: SessionRef,
    pub(crate) root: Option<String>,
    /// SHA-256 of the token, in hex.
    pub(crate) token_hash: String,
    pub(crate) limits: SessionLimits,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) opened_at: u64,
    /// Name of its artifact folder: unguessable, never derived from its id. Also what tells it from an earlier or
    /// later session of the same id.
    pub(crate) folder: String,
    /// Artifact folders of the sessions that it adopted.
    pub(crate) adopted: Vec<String>,
    /// The session that it works for, by that one's folder and by its id at the time.
    pub(crate) parent: Option<(String, String)>,
    /// When its lease ended its jobs; it goes some time after that.
    pub(crate) lapsed: Option<Moment>,
    /// The last notice that its reader has confirmed.
    pub(crate) seen: u64,
    /// Next number of each kind: commands, shells, sub-agents, sends.
    pub(crate) next: [u64; 4],
}

/// The newest number of a notice in the house. Whoever gives one out holds it until the end that has the number is
/// published, so that no reader sees a later one first.
#[derive(Debug, Default)]
pub(crate) struct Numbers(Mutex<u64>);

impl Numbers {
    /// Nobody else gives out a number meanwhile.
    pub(crate) fn hold(&self) -> MutexGuard<'_, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What stays of a record that is gone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    pub(crate) id: String,
    pub(crate) process_id: String,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) finished_at: Option<u64>,
    /// `released` or `evicted`, or more words that go on after `was`.
    pub(crate) why: String,
}

/// One session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) record: Record,
    /// In order of start.
    pub(crate) jobs: BTreeMap<u64, Arc<Job>>,
    pub(crate) short: HashMap<String, u64>,
    pub(crate) keys: HashMap<String, u64>,
    /// `SESSION/t1` of jobs that were another session's: their old names stay valid here.
    pub(crate) moved: HashMap<String, u64>,
    pub(crate) tombstones: VecDeque<Tombstone>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) clients: u32,
    /// Of those: how many confirm its notices.
    pub(crate) readers: u32,
    /// How often somebody attached.
    pub(crate) attached: u64,
    /// Monotonic time at which its lease began to run.
    pub(crate) alone_since: Option<u64>,
    /// So many are closing it: nothing new is taken until the last one has given up.
    pub(crate) closing: u32,
}

/// The live job of a name, else the newest ended one, of jobs that come newest first.
fn newest_named<'a>(
    name: &str,
    jobs: impl Iterator<Item = &'a Arc<Job>> + Clone,
) -> Option<&'a Arc<Job>> {
    let mut named = jobs.filter(|j| j.spec.name.as_deref() == Some(name));
    let newest = named.clone().next();
    named.find(|j| j.is_live()).or(newest)
}

const fn index(kind: Kind) -> usize {
    match kind {
        Kind::Command => 0,
        Kind::Shell => 1,
        Kind::Agent => 2,
        Kind::Send => 3,
    }
}

impl Session {
    pub(crate) fn new(record: Record, budget: Arc<Budget>) -> Self {
        Self {
            record,
            jobs: BTreeMap::new(),
            short: HashMap::new(),
            keys: HashMap::new(),
            moved: HashMap::new(),
            tombstones: VecDeque::new(),
            budget,
            clients: 0,
            readers: 0,
            attached: 0,
            alone_since: None,
            closing: 0,
        }
    }

    /// Tells whether there is a place for one more of this kind; else the limit. A job holds its place until its
    /// tree is empty.
    pub(crate) fn room(&self, kind: Kind) -> Result<(), u32> {
        let limit = self.limit(kind);
        let taken = self
            .jobs
            .values()
            .filter(|j| j.spec.kind == kind && !j.is_finished());
        if taken.count() as u64 >= u64::from(limit) {
            return Err(limit);
        }
        Ok(())
    }

    fn limit(&self, kind: Kind) -> u32 {
        match kind {
            Kind::Command => self.record.limits.commands,
            Kind::Shell => self.record.limits.shells,
            Kind::Agent => self.record.limits.agents,
            Kind::Send => u32::MAX,
        }
    }

    /// Allots the next id of this kind. Never the same twice.
    pub(crate) fn next_id(&mut self, kind: Kind) -> String {
        let next = &mut self.record.next[index(kind)];
        *next += 1;
        ostler_proto::id::short_id(kind, *next)
    }

    /// An id that was given out, by a supervisor before this one, to a job that is gone: it is never given out again.
    pub(crate) fn has_given(&mut self, id: &str) {
        for kind in [Kind::Command, Kind::Shell, Kind::Agent, Kind::Send] {
            let number = id.get(1..).and_then(|n| n.parse().ok()).unwrap_or(0);
            // Of an adopted job's tombstone the name is `CHILD/t1`, which is no id of this session.
            if ostler_proto::id::short_id(kind, number) == id {
                let next = &mut self.record.next[index(kind)];
                *next = (*next).max(number);
            }
        }
    }

    /// The id that an adopted job gets: its own if no job here ever had that or could have had it, else the next one.
    pub(crate) fn id_for_adopted(&mut self, kind: Kind, id: &str) -> String {
        let number: u64 = id[1..].parse().unwrap_or(0);
        if number > self.record.next[index(kind)] {
            return id.into();
        }
        self.next_id(kind)
    }

    /// What the ledger keeps of a job's place.
    pub(crate) fn seated(&self, job: &Job) -> Seated {
        let number = job.spec.number;
        let ended = job.status().finished.is_some();
        let from = self.moved.iter().filter(|(_, n)| **n == number);
        Seated {
            number,
            seat: job.seat(),
            notice: ended.then(|| job.notice().unwrap_or(0)),
            from: from.map(|(old, _)| old.clone()).collect(),
        }
    }

    /// Puts a job into the table; ids of restored jobs are not given out again.
    pub(crate) fn insert(&mut self, job: Arc<Job>) {
        let id = job.id();
        let number: u64 = id[1..].parse().unwrap_or(0);
        let next = &mut self.record.next[index(job.spec.kind)];
        *next = (*next).max(number);
        self.short.insert(id, job.spec.number);
        if let Some(key) = &job.spec.key {
            // The key of an adopted job must not take the place of one that was here before.
            self.keys.entry(key.clone()).or_insert(job.spec.number);
        }
        self.jobs.insert(job.spec.number, job);
    }

    /// Takes a job out of the table.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&number)?;
        self.short.remove(&job.id());
        self.moved.retain(|_, n| *n != number);
        if let Some(key) = &job.spec.key
            && self.keys.get(key) == Some(&number)
        {
            self.keys.remove(key);
        }
        Some(job)
    }

    /// Keeps a short record of a job that was taken out.
    pub(crate) fn bury(&mut self, job: &Job, why: &str) -> Tombstone {
        let row = job.row();
        let tombstone = Tombstone {
            id: row.id,
            process_id: row.process_id,
            outcome: row.outcome,
            finished_at: row.finished_at,
            why: why.into(),
        };
        self.put_tombstone(tombstone.clone());
        tombstone
    }

    pub(crate) fn put_tombstone(&mut self, tombstone: Tombstone) {
        self.tombstones.push_back(tombstone);
        if self.tombstones.len() > limits::tombstones() {
            self.tombstones.pop_front();
        }
    }

    /// The job of a short id, else the live job of a name, else the newest ended one of that name.
    pub(crate) fn find(&self, id: &str) -> Option<&Arc<Job>> {
        if let Some(number) = self.short.get(id) {
            return self.jobs.get(number);
        }
        newest_named(id, self.jobs.values().rev())
    }

    /// The same of a job that was another session's, by its id or name there.
    pub(crate) fn find_moved(&self, session: &str, id: &str) -> Option<&Arc<Job>> {
        if let Some(number) = self.moved.get(&format!("{session}/{id}")) {
            return self.jobs.get(number);
        }
        let old = self.moved.iter();
        let from = old.filter(|(old, _)| old.rsplit_once('/').is_some_and(|(of, _)| of == session));
        let mut numbers: Vec<u64> = from.map(|(_, number)| *number).collect();
        numbers.sort_unstable_by(|a, b| b.cmp(a));
        newest_named(id, numbers.iter().filter_map(|n| self.jobs.get(n)))
    }

    /// Tells whether a live job has this name.
    pub(crate) fn has_live(&self, name: &str) -> bool {
        self.jobs
            .values()
            .any(|j| j.spec.name.as_deref() == Some(name) && !j.is_finished())
    }

    /// Ended jobs beyond what is kept, oldest first.
    pub(crate) fn surplus(&self, now: Moment) -> Vec<u64> {
        let ended: Vec<_> = self.jobs.values().filter(|j| !j.is_live()).collect();
        let many = ended.len().saturating_sub(limits::finished());
        ended
            .iter()
            .enumerate()
            .filter(|(i, j)| {
                let at = j.status().finished.as_ref().map_or(now.boot, |f| f.at.boot);
                *i < many || now.boot.saturating_sub(at) > limits::finished_for()
            })
            .map(|(_, j)| j.spec.number)
            .collect()
    }

    /// Boot time at which the first of what is kept here has been kept long enough: it counts the sleep of the machine,
    /// and nobody can set it.
    pub(crate) fn expires(&self) -> Option<u64> {
        let ended = self.jobs.values().filter(|j| !j.is_live());
        let ended = ended.filter_map(|j| Some(j.status().finished.as_ref()?.at.boot));
        // A session with survivors, or with somebody in it, waits for nothing but them.
        let left = self.clients == 0 && !self.jobs.values().any(|j| j.is_live());
        let lapsed = self.record.lapsed.filter(|_| left).map(|at| at.boot);
        let first = ended.chain(lapsed).min()?;
        Some(first + limits::finished_for())
    }

    pub(crate) fn row(&self) -> SessionRow {
        let live = self.jobs.values().filter(|j| j.is_live()).count() as u32;
        SessionRow {
            session: self.record.session.clone(),
            root: self.record.root.clone(),
            jobs: live,
            finished: self.jobs.len() as u32 - live,
            clients: self.clients,
            limits: self.record.limits,
            opened_at: self.record.opened_at,
            parent: self.record.parent.as_ref().map(|(_, id)| id.clone()),
            lease_ms: self.record.lease_ms,
            lease_left_ms: self.lease_left(),
            lapsed_at: self.record.lapsed.map(|at| at.wall),
        }
    }

    /// What is left of its lease, while it runs.
    fn lease_left(&self) -> Option<u64> {
        let since = self.alone_since.filter(|_| self.clients == 0)?;
        let lease = self
            .record
            .lease_ms
            .filter(|_| self.record.lapsed.is_none())?;
        Some((since + lease).saturating_sub(crate::clock::mono()))
    }

    /// What tells it from every other session, whatever its id is now.
    pub(crate) fn key(&self) -> &str {
        &self.record.folder
    }

    /// File for what leaves the ring of a job.
    pub(crate) fn spill_path(&self, artifacts: &std::path::Path, process_id: &str) -> PathBuf {
        artifacts
            .join(&self.record.folder)
            .join(format!("{process_id}.log"))
    }
}
