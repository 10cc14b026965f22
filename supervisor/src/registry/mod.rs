//! Sessions, quotas, names, ids, tombstones: the one table behind the one mutex.
//!
//! The mutex is held for look-ups and for admitting a job, never across an await. Here: the table and what a job
//! needs of it; [`sessions`]: opening and closing; [`names`]: who may see what, and which thing a name means;
//! [`restart`]: the way into the ledger and back.

mod moves;

mod names;

mod restart;

mod sessions;

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ostler_proto::{
    agent::ChildSession,
    id,
    job::{Kind, Retry, Row},
    limits,
    methods::{Happened, OpenedSession},
    refusal::{Refusal, RefusalKind},
};
use tokio::sync::watch;

use crate::{
    clock::Moment,
    events::Events,
    feed::Feed,
    job::{Job, Plan, Seat, Spec},
    ledger::{Entry, FORMAT, Ledger, Moves},
    log::{Arena, Budget, Log, SpillPolicy},
    pipeline::Pipeline,
    secret,
    session::{Numbers, Session},
};

/// What a connection may see.
#[derive(Debug, Clone, Default)]
pub(crate) struct Access {
    /// It showed the owner key.
    pub(crate) owner: bool,
    /// Keys of the sessions whose token it showed, or that it made, in order. A key outlives a rename, and a later
    /// session of the same id has another one.
    pub(crate) attached: Vec<String>,
    /// Keys of those of them whose notices it confirms by `session/notices`: none of its other answers counts as told.
    pub(crate) confirmed: Vec<String>,
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
    /// Key of its session.
    session: String,
    pub(crate) ms: u64,
    /// How often somebody had attached when it began: one more, and it is void.
    attached: u64,
}

impl Lease {
    fn of(session: &Session) -> Option<Self> {
        let ms = session.record.lease_ms.filter(|_| session.clients == 0)?;
        Some(Self {
            session: session.key().into(),
            ms,
            attached: session.attached,
        })
    }
}

/// A session that is being closed: its key, and what is in it, newest first.
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
    /// A job was made; its life is to begin.
    New(Arc<Job>),
    /// Its key names a job that exists.
    Known(Arc<Job>),
}

impl Admission {
    /// The job.
    pub(crate) fn job(&self) -> &Arc<Job> {
        match self {
            Self::New(job) | Self::Known(job) => job,
        }
    }

    /// What there is to know of a job that was started by an earlier request.
    pub(crate) fn retry(&self) -> Option<Retry> {
        match self {
            Self::New(_) => None,
            Self::Known(job) => Some(job.retry()),
        }
    }

    /// Its row, for whoever made the request.
    pub(crate) fn row(&self) -> Row {
        Row {
            retry: self.retry(),
            ..self.job().row()
        }
    }
}

/// What the table says to a request.
enum Checked {
    /// Its key names this job.
    Known(Arc<Job>),
    /// There is room in the session of this id.
    Free(String),
}

/// Where the job of a request is to be.
struct Place {
    /// Id of its session.
    session: String,
    /// Key of the session that it has for itself.
    child: Option<String>,
    /// Place of its log.
    slot: usize,
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
    started_at: u64,
    pub(crate) events: Arc<Events>,
    /// The newest number of a notice.
    notices: Arc<Numbers>,
}

#[derive(Debug, Default)]
struct Inner {
    sessions: BTreeMap<String, Session>,
    /// Process id to session and number.
    processes: BTreeMap<String, (String, u64)>,
    gone: Moves,
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
        started_at: u64,
        generation: u64,
    ) -> Self {
        let budget = Budget::with_floor(
            limits::spill_user(),
            artifacts.clone(),
            limits::disk_floor(),
        );
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
            started_at,
            events: Events::new(generation),
            notices: Arc::default(),
        }
    }

    /// Where the numbers of notices come from, for those who publish ends.
    pub(crate) fn notice_numbers(&self) -> Arc<Numbers> {
        Arc::clone(&self.notices)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much there is to keep.
    pub(crate) fn load(&self) -> Load {
        *self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses when the house is on its way out.
    ///
    /// # Errors
    /// It is.
    pub(crate) fn check_stays(&self) -> Result<(), Refusal> {
        if self.lock().leaving {
            return Err(leaving());
        }
        Ok(())
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
            for key in &access.confirmed {
                if let Some(session) = inner.by_key_mut(key) {
                    session.readers = session.readers.saturating_sub(1);
                }
            }
            for key in &access.attached {
                if let Some(session) = inner.by_key_mut(key) {
                    session.clients = session.clients.saturating_sub(1);
                    if session.clients == 0 {
                        session.alone_since = Some(crate::clock::mono());
                    }
                    leases.extend(Lease::of(session));
                }
            }
            inner.connections
        };
        self.note(|l| l.connections = n);
        leases
    }

    /// Refuses everything new from here on.
    pub(crate) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// Takes that back: somebody came while the supervisor was about to go.
    pub(crate) fn stay(&self) {
        self.lock().leaving = false;
    }

    /// Checks quota, name and key and makes the job, all in one step; a refusal makes nothing.
    pub(crate) fn admit(&self, plan: &Plan, access: &Access) -> Result<Admission, Refusal> {
        let (admission, _) = self.register(plan, None, access)?;
        Ok(admission)
    }

    /// The same for a sub-agent, with the session that it is to have of its own. One that is known keeps what it has.
    pub(crate) fn register(
        &self,
        plan: &Plan,
        child: Option<ChildSession>,
        access: &Access,
    ) -> Result<(Admission, Option<OpenedSession>), Refusal> {
        let mut inner = self.lock();
        match self.check(&inner, plan, access)? {
            Checked::Known(job) => {
                let child = inner.child_of(&job);
                Ok((Admission::Known(job), child))
            }
            Checked::Free(session_id) => {
                let name = plan.start.name.as_deref();
                let below = child.map(|child| inner.below(&session_id, name, child));
                let below = below.transpose()?;
                let slot = self.slot(&inner)?;
                let below = below.map(|below| self.open_below(&mut inner, below));
                let (key, child) = below.unzip();
                let place = Place {
                    session: session_id,
                    child: key,
                    slot,
                };
                let job = self.begin(&mut inner, plan, place);
                let token = child.as_ref().and_then(|child| child.token.clone());
                if let (Some(owner), Some(token)) = (&job.owner, token) {
                    owner.keep_child_token(token);
                }
                Ok((Admission::New(job), child))
            }
        }
    }

    fn check(&self, inner: &Inner, plan: &Plan, access: &Access) -> Result<Checked, Refusal> {
        if inner.leaving {
            return Err(leaving());
        }
        let session = inner.pick(plan.start.session.as_deref(), access)?;
        let session_id = &session.record.session.id;
        if session.closing > 0 {
            return Err(closing(session_id));
        }
        if let Some(known) = known_key(session, plan)? {
            return Ok(Checked::Known(known));
        }
        if let Some(name) = plan.start.name.as_deref().filter(|n| session.has_live(n)) {
            return Err(Refusal::new(
                RefusalKind::NameTaken,
                format!(
                    "the name {name} belongs to a live job of {}",
                    session.record.session.name
                ),
            )
            .hint(format!("ostler stop {name}, or another --name")));
        }
        self.room(inner)?;
        let room = session.room(plan.kind);
        room.map_err(|limit| full(session, plan.kind, limit))?;
        Ok(Checked::Free(session_id.clone()))
    }

    /// Makes the job of a request that has been checked.
    fn begin(&self, inner: &mut Inner, plan: &Plan, place: Place) -> Arc<Job> {
        let session_id = place.session.clone();
        let job = Arc::new(self.make(inner, plan, place));
        if job.spec.is_bare() {
            // The keeper knows nothing of it, and its id must be answered for after a crash.
            self.ledger
                .append(&Entry::Begun(Box::new(job.spec.clone())));
        }
        inner.put(&session_id, Arc::clone(&job));
        // Told before there is a process, and before anybody can move it.
        job.tell(Happened::Starting);
        self.note(|l| l.jobs += 1);
        job
    }

    fn slot(&self, inner: &Inner) -> Result<usize, Refusal> {
        let slot = self.arena.claim(inner.next_number);
        slot.ok_or_else(|| self.no_record())
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

    fn make(&self, inner: &mut Inner, plan: &Plan, place: Place) -> Job {
        let Place {
            session,
            child,
            slot,
        } = place;
        let number = inner.next_number;
        inner.next_number += 1;
        let session = inner
            .sessions
            .get_mut(&session)
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
        let withheld = ask.env.iter().filter(|(_, value)| value.is_none());
        let pipeline = (!ask.stages.is_empty()).then(|| Pipeline {
            stages: ask.stages.clone(),
            report: Pipeline::report_of(&self.artifacts, &process_id),
        });
        let spec = Spec {
            number,
            born: Seat {
                session: session.record.session.clone(),
                key: session.key().into(),
                id: session.next_id(plan.kind),
            },
            process_id,
            kind: plan.kind,
            name: ask.name.clone(),
            args: plan.args.clone(),
            cwd: plan.cwd.clone(),
            candidates: plan.candidates.clone(),
            accepted: plan.accepted,
            window: ask.pty,
            timeout_at: ask.timeout_ms.map(|ms| plan.accepted.mono + ms),
            timeout_ms: ask.timeout_ms,
            idle_ms: ask.idle_ms,
            grace_ms: ask.grace_ms.unwrap_or(limits::grace()),
            max_bytes: ask.output.max_bytes,
            on_limit: ask.output.on_limit,
            ok: ask.ok.clone(),
            side_effect: ask.side_effect.clone(),
            key: ask.key.clone(),
            key_of: plan.key_of,
            stdin_open: ask.pty.is_some() || ask.stdin == ostler_proto::methods::Stdin::Open,
            pty: ask.pty.is_some(),
            shell: plan.shell.clone(),
            sent_to: plan.sent_to.clone(),
            child,
            text_limit: plan.text_limit,
            pipeline,
            withheld: withheld.map(|(name, _)| name.clone()).collect(),
            bound: plan.bound,
            spill,
            format: FORMAT,
            slot: slot as u32,
        };
        let policy = spill_policy(&spec, &session.budget);
        let log = Log::new(Arc::clone(&self.arena), slot, number, policy);
        let feed = spec.stdin_open.then(Feed::new);
        Job::new(spec, log, self.rung, feed, Arc::clone(&self.events))
    }

    /// Every job that lives.
    pub(crate) fn live(&self) -> Vec<Arc<Job>> {
        let inner = self.lock();
        let jobs = inner.sessions.values().flat_map(|s| s.jobs.values());
        jobs.filter(|j| j.is_live()).cloned().collect()
    }

    /// Forgets a job that is over, and its artifacts.
    pub(crate) fn release(&self, job: &Arc<Job>) {
        {
            let mut inner = self.lock();
            let session_id = job.seat().session.id;
            let Some(session) = inner.sessions.get_mut(&session_id) else {
                return;
            };
            if session.remove(job.spec.number).is_none() {
                return;
            }
            let tombstone = session.bury(job, "released");
            inner.forget(job);
            // While nobody can rename the session.
            self.ledger.append(&Entry::Buried {
                session: session_id,
                tombstone,
            });
            job.tell(Happened::Removed);
        }
        job.log.retire();
        self.recount();
    }

    /// Lets go of ended jobs beyond what is kept. Called when a job is over.
    pub(crate) fn trim(&self, session_id: &str) {
        let gone = {
            let mut inner = self.lock();
            let Some(session) = inner.sessions.get_mut(session_id) else {
                return;
            };
            let surplus = session.surplus(Moment::now());
            let mut gone = Vec::new();
            for number in surplus {
                if let Some(job) = session.remove(number) {
                    let tombstone = session.bury(&job, "evicted");
                    self.ledger.append(&Entry::Buried {
                        session: session_id.to_owned(),
                        tombstone,
                    });
                    job.tell(Happened::Removed);
                    gone.push(job);
                }
            }
            for job in &gone {
                inner.forget(job);
            }
            gone
        };
        for job in gone {
            job.log.retire();
        }
        self.recount();
    }
}

impl Inner {
    fn by_key_mut(&mut self, key: &str) -> Option<&mut Session> {
        self.sessions.values_mut().find(|s| s.key() == key)
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
            cap: limits::spill_job(),
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
            format!("this key was used for another request, {}", job.id()),
        )
        .hint("use a fresh key for a new job")),
        None => Ok(None),
    }
}

fn full(session: &Session, kind: Kind, limit: u32) -> Refusal {
    let live: Vec<_> = session
        .jobs
        .values()
        .filter(|j| j.spec.kind == kind && !j.is_finished())
        .map(|j| j.row())
        .collect();
    let name = &session.record.session.name;
    let kinds = match kind {
        Kind::Shell => "shells",
        Kind::Agent => "agents",
        Kind::Command | Kind::Send => "commands",
    };
    Refusal::limit(
        kinds,
        u64::from(limit),
        format!("{limit} of {limit} {kinds} run in {name}"),
        &live,
    )
    .hint(format!(
        "stop one, or ostler session open {} --{kinds} {}",
        session.record.session.id,
        (u64::from(limit) * 2).clamp(1, u64::from(limits::quota_ceiling()))
    ))
}

fn closing(id: &str) -> Refusal {
    Refusal::new(
        RefusalKind::SessionGone,
        format!("session {id} is being closed"),
    )
}

pub(crate) fn leaving() -> Refusal {
    Refusal::new(RefusalKind::Leaving, "the supervisor is leaving").hint("try again in a moment")
}
