//! Sessions, quotas, names, ids, tombstones: the one table behind the one mutex.
//!
//! The mutex is held for look-ups and for admitting a job, never across an await. A foreign thing and an
//! unknown thing take the same way through this file and give the same answer.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ostler_proto::{
    id,
    job::{Kind, SessionRef},
    limits,
    methods::{List, OpenSession, OpenedSession, SessionLimits, SessionRow},
    refusal::{Refusal, RefusalKind},
};
use tokio::sync::watch;

use crate::{
    clock::Moment,
    feed::Feed,
    job::{Finished, Job, Plan, Spec},
    ledger::{Entry, Ledger},
    log::{Arena, Budget, Log, SpillPolicy},
    secret,
    session::{Permit, Record, Session, Tombstone},
};

/// What a connection may see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// It showed the owner key.
    pub(crate) owner: bool,
    /// Sessions whose token it showed, or that it made, in order.
    pub(crate) attached: Vec<String>,
}

/// How much there is to keep; the daemon leaves when all of it is nothing for a while.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) jobs: u64,
    pub(crate) results: u64,
    pub(crate) connections: u64,
}

/// A lease that runs.
#[derive(Debug)]
pub(crate) struct Lease {
    session: String,
    pub(crate) ms: u64,
    /// How often somebody had attached when it began: one more, and it is void.
    attached: u64,
}

impl Lease {
    fn of(session: &Session) -> Option<Self> {
        let ms = session.record.lease_ms.filter(|_| session.clients == 0)?;
        Some(Self {
            session: session.record.session.id.clone(),
            ms,
            attached: session.attached,
        })
    }
}

/// A session that is being closed: its id, and what is in it, newest first.
pub(crate) type Closing = (String, Vec<Arc<Job>>);

/// What of the load somebody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signs {
    /// Nothing is worth staying for.
    pub(crate) empty: bool,
    /// No client is connected.
    pub(crate) alone: bool,
}

impl Load {
    fn signs(self) -> Signs {
        let alone = self.connections == 0;
        Signs {
            empty: alone && self.jobs == 0 && self.results == 0,
            alone,
        }
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Admission {
    /// A job was made; its life begins with this permit.
    New(Arc<Job>, Permit),
    /// Its key names a job that exists.
    Known(Arc<Job>),
}

/// The table.
#[derive(Debug)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    pub(crate) ledger: Arc<Ledger>,
    arena: Arc<Arena>,
    artifacts: PathBuf,
    budget: Arc<Budget>,
    rung: &'static str,
    load: Mutex<Load>,
    /// Changes of the load that somebody waits for; moves only when one of them does, so that a job that comes and
    /// goes beside a client wakes nobody.
    signs: watch::Sender<Signs>,
    /// Live jobs that the descriptor table has room for.
    most_jobs: u64,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<String, Session>,
    /// Process id to session and number.
    processes: BTreeMap<String, (String, u64)>,
    closed: HashMap<String, u64>,
    next_number: u64,
    leaving: bool,
    connections: u64,
}

impl Registry {
    pub(crate) fn new(
        ledger: Arc<Ledger>,
        arena: Arc<Arena>,
        artifacts: PathBuf,
        rung: &'static str,
        most_jobs: u64,
    ) -> Self {
        let budget = Budget::with_floor(limits::SPILL_USER, artifacts.clone(), limits::DISK_FLOOR);
        Self {
            inner: Mutex::new(Inner {
                next_number: 1,
                ..Inner::default()
            }),
            ledger,
            arena,
            artifacts,
            budget,
            rung,
            load: Mutex::default(),
            signs: watch::Sender::new(Load::default().signs()),
            most_jobs,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much there is to keep.
    pub(crate) fn load(&self) -> Load {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches what of it matters for leaving.
    pub(crate) fn signs(&self) -> watch::Receiver<Signs> {
        self.signs.subscribe()
    }

    fn note(&self, change: impl FnOnce(&mut Load)) {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut load);
        let now = load.signs();
        self.signs
            .send_if_modified(|signs| std::mem::replace(signs, now) != now);
    }

    /// Recounts what there is to keep; called when a job began, ended or went.
    pub(crate) fn recount(&self) {
        let inner = self.lock();
        let (mut jobs, mut results) = (0, 0);
        for job in inner.sessions.values().flat_map(|s| s.jobs.values()) {
            if job.is_live() {
                jobs += 1
            } else {
                results += 1
            }
        }
        let load = Load {
            jobs,
            results,
            connections: inner.connections,
        };
        self.note(|l| *l = load);
    }

    pub(crate) fn connection_came(&self) -> u64 {
        let n = {
            let mut inner = self.lock();
            inner.connections += 1;
            inner.connections
        };
        self.note(|l| l.connections = n);
        n
    }

    /// Takes a connection off; returns the leases that begin to run.
    pub(crate) fn connection_went(&self, access: &Access) -> Vec<Lease> {
        let mut leases = Vec::new();
        let n = {
            let mut inner = self.lock();
            inner.connections -= 1;
            for id in &access.attached {
                if let Some(session) = inner.sessions.get_mut(id) {
                    session.clients = session.clients.saturating_sub(1);
                    leases.extend(Lease::of(session));
                }
            }
            inner.connections
        };
        self.note(|l| l.connections = n);
        leases
    }

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

    /// Refuses everything new from here on.
    pub(crate) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Takes that back: somebody came while the supervisor was about to go.
    pub(crate) fn stay(&self) {
        self.lock().leaving = false;
    }

    // ---- sessions ----

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

    /// Opens a session again whose jobs could not all be ended: they stay listed, and closing it again tries again.
    pub(crate) fn give_up_close(&self, id: &str) {
        if let Some(session) = self.lock().sessions.get_mut(id) {
            session.closing = false;
        }
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

    // ---- jobs ----

    /// Checks quota, name and key and makes the job, all in one step; a refusal makes nothing.
    pub(crate) fn admit(&self, plan: &Plan, access: &Access) -> Result<Admission, Refusal> {
        let mut inner = self.lock();
        if inner.leaving {
            return Err(leaving());
        }
        let session_id = inner.pick(plan.start.session.as_deref(), access)?;
        let session = inner
            .sessions
            .get(&session_id)
            .ok_or_else(|| Refusal::no_session(&session_id))?;
        if session.closing {
            return Err(Refusal::new(
                RefusalKind::SessionGone,
                format!("session {session_id} is being closed"),
            ));
        }
        if let Some(known) = known_key(session, plan)? {
            return Ok(Admission::Known(known));
        }
        if let Some(name) = plan.start.name.as_deref().filter(|n| session.has_live(n)) {
            return Err(Refusal::new(
                RefusalKind::NameTaken,
                format!("the name {name} belongs to a live job of {session_id}"),
            )
            .hint(format!("ostler stop {name}, or another --name")));
        }
        self.room(&inner)?;
        let permit = session
            .place(Kind::Command)
            .map_err(|limit| full(session, limit))?;
        let slot = self
            .arena
            .claim(inner.next_number)
            .ok_or_else(|| self.no_record())?;
        let job = Arc::new(self.make(&mut inner, &session_id, plan, slot));
        inner.put(&session_id, Arc::clone(&job));
        drop(inner);
        self.note(|l| l.jobs += 1);
        Ok(Admission::New(job, permit))
    }

    /// Descriptors are refused before anything is made: running out half way would cost somebody else.
    fn room(&self, inner: &Inner) -> Result<(), Refusal> {
        let live = self.load().jobs;
        let most = self
            .most_jobs
            .saturating_sub(inner.connections / limits::DESCRIPTORS_PER_JOB);
        if live < most {
            return Ok(());
        }
        Err(Refusal::limit(
            "descriptors",
            most,
            format!("{live} jobs run; no descriptors for another"),
            &[],
        )
        .hint("stop some, or raise the limit of open files and restart"))
    }

    fn no_record(&self) -> Refusal {
        let slots = self.arena.slots() as u64;
        Refusal::limit(
            "records",
            slots,
            format!("{slots} records are kept; no room for another"),
            &[],
        )
        .hint("ostler rm, or ostler session close, for what is not needed any more")
    }

    fn make(&self, inner: &mut Inner, session_id: &str, plan: &Plan, slot: usize) -> Job {
        let number = inner.next_number;
        inner.next_number += 1;
        let session = inner
            .sessions
            .get_mut(session_id)
            .expect("the caller holds the lock and looked it up");
        let process_id = format!("{}{}", id::PROCESS_PREFIX, secret::ulid());
        let spill = plan.start.output.spill.unwrap_or(true);
        let spill = spill.then(|| {
            session
                .spill_path(&self.artifacts, &process_id)
                .display()
                .to_string()
        });
        let ask = &plan.start;
        let spec = Spec {
            number,
            id: session.next_id(Kind::Command),
            process_id,
            kind: Kind::Command,
            session: session.record.session.clone(),
            name: ask.name.clone(),
            args: plan.args.clone(),
            cwd: plan.cwd.clone(),
            candidates: plan.candidates.clone(),
            accepted: plan.accepted,
            timeout_at: ask.timeout_ms.map(|ms| plan.accepted.mono + ms),
            timeout_ms: ask.timeout_ms,
            grace_ms: ask.grace_ms.unwrap_or(limits::GRACE),
            max_bytes: ask.output.max_bytes,
            on_limit: ask.output.on_limit,
            ok: ask.ok.clone(),
            side_effect: ask.side_effect.clone(),
            key: ask.key.clone(),
            key_of: plan.key_of,
            stdin_open: ask.stdin == ostler_proto::methods::Stdin::Open,
            bound: plan.bound,
            spill,
            slot: slot as u32,
        };
        let policy = spill_policy(&spec, &session.budget);
        let log = Log::new(Arc::clone(&self.arena), slot, number, policy);
        let feed = spec.stdin_open.then(Feed::new);
        Job::new(spec, log, self.rung, feed)
    }

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

    /// Every job that lives.
    pub(crate) fn live(&self) -> Vec<Arc<Job>> {
        let inner = self.lock();
        let jobs = inner.sessions.values().flat_map(|s| s.jobs.values());
        jobs.filter(|j| j.is_live()).cloned().collect()
    }

    /// Forgets a job that is over, and its artifacts.
    pub(crate) fn release(&self, job: &Arc<Job>) {
        let entry = {
            let mut inner = self.lock();
            let Some(session) = inner.sessions.get_mut(&job.spec.session.id) else {
                return;
            };
            if session.remove(job.spec.number).is_none() {
                return;
            }
            let tombstone = session.bury(job, "released");
            inner.forget(job);
            Entry::Buried {
                session: job.spec.session.id.clone(),
                tombstone,
            }
        };
        self.ledger.append(&entry);
        job.log.retire();
        self.recount();
    }

    /// Lets go of ended jobs beyond what is kept. Called when a job is over.
    pub(crate) fn trim(&self, session_id: &str) {
        let gone: Vec<(Arc<Job>, Tombstone)> = {
            let mut inner = self.lock();
            let Some(session) = inner.sessions.get_mut(session_id) else {
                return;
            };
            let surplus = session.surplus(Moment::now().wall);
            let mut gone = Vec::new();
            for number in surplus {
                if let Some(job) = session.remove(number) {
                    let tombstone = session.bury(&job, "evicted");
                    gone.push((job, tombstone));
                }
            }
            for (job, _) in &gone {
                inner.forget(job);
            }
            gone
        };
        for (job, tombstone) in gone {
            self.ledger.append(&Entry::Buried {
                session: session_id.to_owned(),
                tombstone,
            });
            job.log.retire();
        }
        self.recount();
    }

    // ---- restart ----

    /// What is alive, as ledger entries.
    pub(crate) fn snapshot(&self, started_at: u64, generation: u64) -> Vec<Entry> {
        let inner = self.lock();
        let mut entries = vec![Entry::House {
            started_at,
            generation,
            next_number: inner.next_number,
        }];
        for session in inner.sessions.values() {
            entries.push(Entry::Session(session.record.clone()));
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
        entries
    }

    /// Puts a session of an earlier supervisor back.
    pub(crate) fn restore_session(&self, record: Record, tombstones: Vec<Tombstone>) {
        let budget = Budget::new(limits::SPILL_SESSION, Some(Arc::clone(&self.budget)));
        let mut session = Session::new(record, budget);
        for tombstone in tombstones {
            session.put_tombstone(tombstone);
        }
        self.lock()
            .sessions
            .insert(session.record.session.id.clone(), session);
    }

    /// Budget of the session that a job of an earlier supervisor belongs to.
    pub(crate) fn budget_of(&self, session: &str) -> Option<Arc<Budget>> {
        self.lock()
            .sessions
            .get(session)
            .map(|s| Arc::clone(&s.budget))
    }

    /// Puts a job of an earlier supervisor back and takes its place in the quota.
    pub(crate) fn restore_job(&self, job: &Arc<Job>) -> Option<Permit> {
        let mut inner = self.lock();
        let session = inner.sessions.get(&job.spec.session.id)?;
        let permit = session.place_anyway(job.spec.kind);
        let id = job.spec.session.id.clone();
        inner.put(&id, Arc::clone(job));
        Some(permit)
    }

    /// Ends a restore: numbers and slots that are in use are not given out again.
    pub(crate) fn restored(&self, next_number: u64) {
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
        for slot in 0..self.arena.slots() {
            let owner = self.arena.owner(slot);
            if owner.is_some() && owner != owned.get(&slot).copied() {
                let _ = self.arena.punch(slot);
            }
        }
        self.recount();
    }
}

const DEFAULT_LIMITS: SessionLimits = SessionLimits {
    commands: limits::COMMANDS,
    shells: limits::SHELLS,
    agents: limits::AGENTS,
};

impl Access {
    fn sees(&self, id: &str) -> bool {
        self.owner || self.attached.iter().any(|a| a == id)
    }
}

impl Inner {
    /// The session that the asker means and may see.
    fn pick(&self, asked: Option<&str>, access: &Access) -> Result<String, Refusal> {
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

    fn put(&mut self, session_id: &str, job: Arc<Job>) {
        self.processes.insert(
            job.spec.process_id.clone(),
            (session_id.to_owned(), job.spec.number),
        );
        if let Some(session) = self.sessions.get_mut(session_id) {
            session.insert(job);
        }
    }

    fn forget(&mut self, job: &Job) {
        self.processes.remove(&job.spec.process_id);
    }
}

/// Where the output of a job goes that leaves its ring.
pub(crate) fn spill_policy(spec: &Spec, budget: &Arc<Budget>) -> SpillPolicy {
    match &spec.spill {
        None => SpillPolicy::Off,
        Some(path) => SpillPolicy::To {
            path: PathBuf::from(path),
            cap: limits::SPILL_JOB,
            budget: Arc::clone(budget),
        },
    }
}

fn known_key(session: &Session, plan: &Plan) -> Result<Option<Arc<Job>>, Refusal> {
    let known = plan
        .start
        .key
        .as_ref()
        .and_then(|k| session.keys.get(k))
        .and_then(|n| session.jobs.get(n));
    match known {
        Some(job) if job.spec.key_of == plan.key_of => Ok(Some(Arc::clone(job))),
        Some(job) => Err(Refusal::new(
            RefusalKind::KeyConflict,
            format!("this key was used for another request, {}", job.spec.id),
        )
        .hint("use a fresh key for a new job")),
        None => Ok(None),
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

fn full(session: &Session, limit: u32) -> Refusal {
    let live: Vec<_> = session
        .jobs
        .values()
        .filter(|j| j.is_live())
        .map(|j| j.row())
        .collect();
    let name = &session.record.session.name;
    Refusal::limit(
        "commands",
        u64::from(limit),
        format!("{limit} of {limit} commands run in {name}"),
        &live,
    )
    .hint(format!(
        "stop one, or ostler session open {} --commands {}",
        session.record.session.id,
        (u64::from(limit) * 2).clamp(1, u64::from(limits::QUOTA_CEILING))
    ))
}

fn leaving() -> Refusal {
    Refusal::new(RefusalKind::Leaving, "the supervisor is leaving").hint("try again in a moment")
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
