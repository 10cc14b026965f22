//! A session: the owner of jobs. Plain data behind the registry's mutex; it asks nobody and waits for nothing.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use ostler_proto::{
    job::{Kind, Outcome, SessionRef},
    limits,
    methods::{SessionLimits, SessionRow},
};
use serde::{Deserialize, Serialize};

use crate::{job::Job, log::Budget};

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
    /// Name of its artifact folder: unguessable, never derived from its id.
    pub(crate) folder: String,
    /// Next number of each kind: commands, shells, sub-agents, sends.
    pub(crate) next: [u64; 4],
}

/// What stays of a record that is gone.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    pub(crate) id: String,
    pub(crate) process_id: String,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) finished_at: Option<u64>,
    /// `released` or `evicted`.
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
    pub(crate) tombstones: VecDeque<Tombstone>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) clients: u32,
    /// How often somebody attached.
    pub(crate) attached: u64,
    /// It is being closed: nothing new is taken.
    pub(crate) closing: bool,
    places: Arc<Places>,
}

/// Places taken, by kind.
#[derive(Debug, Default)]
struct Places([AtomicU32; 4]);

/// A place in a quota, held until the job's tree is empty.
#[derive(Debug)]
pub(crate) struct Permit {
    places: Arc<Places>,
    kind: Kind,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.places.0[index(self.kind)].fetch_sub(1, Ordering::AcqRel);
    }
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
            tombstones: VecDeque::new(),
            budget,
            clients: 0,
            attached: 0,
            closing: false,
            places: Arc::default(),
        }
    }

    /// Takes a place of this kind, if one is free.
    pub(crate) fn place(&self, kind: Kind) -> Result<Permit, u32> {
        let limit = self.limit(kind);
        let taken = &self.places.0[index(kind)];
        // The registry's mutex is held: nobody else adds, others only give back.
        if taken.load(Ordering::Acquire) >= limit {
            return Err(limit);
        }
        Ok(self.place_anyway(kind))
    }

    /// Takes a place without asking: for jobs that exist already.
    pub(crate) fn place_anyway(&self, kind: Kind) -> Permit {
        self.places.0[index(kind)].fetch_add(1, Ordering::AcqRel);
        Permit {
            places: Arc::clone(&self.places),
            kind,
        }
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

    /// Puts a job into the table; ids of restored jobs are not given out again.
    pub(crate) fn insert(&mut self, job: Arc<Job>) {
        let number: u64 = job.spec.id[1..].parse().unwrap_or(0);
        let next = &mut self.record.next[index(job.spec.kind)];
        *next = (*next).max(number);
        self.short.insert(job.spec.id.clone(), job.spec.number);
        if let Some(key) = &job.spec.key {
            self.keys.insert(key.clone(), job.spec.number);
        }
        self.jobs.insert(job.spec.number, job);
    }

    /// Takes a job out of the table.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Arc<Job>> {
        let job = self.jobs.remove(&number)?;
        self.short.remove(&job.spec.id);
        if let Some(key) = &job.spec.key {
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
        if self.tombstones.len() > limits::TOMBSTONES {
            self.tombstones.pop_front();
        }
    }

    /// The job of a short id, else the live job of a name, else the newest ended one of that name.
    pub(crate) fn find(&self, id: &str) -> Option<&Arc<Job>> {
        if let Some(number) = self.short.get(id) {
            return self.jobs.get(number);
        }
        let named = || {
            self.jobs
                .values()
                .rev()
                .filter(|j| j.spec.name.as_deref() == Some(id))
        };
        named().find(|j| j.is_live()).or_else(|| named().next())
    }

    /// Tells whether a live job has this name.
    pub(crate) fn has_live(&self, name: &str) -> bool {
        self.jobs
            .values()
            .any(|j| j.spec.name.as_deref() == Some(name) && j.is_live())
    }

    /// Ended jobs beyond what is kept, oldest first.
    pub(crate) fn surplus(&self, now_wall: u64) -> Vec<u64> {
        let ended: Vec<_> = self.jobs.values().filter(|j| !j.is_live()).collect();
        let many = ended.len().saturating_sub(limits::FINISHED);
        ended
            .iter()
            .enumerate()
            .filter(|(i, j)| {
                let at = j.status().finished.as_ref().map_or(now_wall, |f| f.at.wall);
                *i < many || now_wall.saturating_sub(at) > limits::FINISHED_FOR
            })
            .map(|(_, j)| j.spec.number)
            .collect()
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
        }
    }

    /// File for what leaves the ring of a job.
    pub(crate) fn spill_path(&self, artifacts: &std::path::Path, process_id: &str) -> PathBuf {
        artifacts
            .join(&self.record.folder)
            .join(format!("{process_id}.log"))
    }
}
