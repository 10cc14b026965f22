//! After a crash: what the ledger and the keeper know becomes a house again. Everything here may be cut by the
//! next crash and is then done again from the start.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::Duration,
};

use ostler_proto::{
    job::{Kind, Outcome},
    limits,
};

use crate::{
    agent,
    clock::Moment,
    feed::Feed,
    house::House,
    job::{Finished, Job, Seat, Spec, Wanted, Who},
    ledger::{Entry, Moved, Moves, Seated},
    life,
    log::{
        Arena, Log,
        scratch::{self, ScratchPair},
    },
    process::link::{JobFds, JobState},
    quarantine::{self, Quarantine},
    registry::{Registry, spill_policy},
    session::{Record, Tombstone},
    terminal::handed::HandedOnes,
};

/// What the ledger says, the last word on each thing.
#[derive(Default)]
pub(crate) struct Past {
    pub(crate) started_at: Option<u64>,
    pub(crate) generation: u64,
    pub(crate) next_number: u64,
    sessions: Vec<Record>,
    /// Jobs that no process stands for, finished or not.
    begun: HashMap<u64, Spec>,
    tombstones: HashMap<String, Vec<Tombstone>>,
    finished: HashMap<u64, (Spec, Finished)>,
    wanted: HashMap<u64, Wanted>,
    unbound: HashSet<u64>,
    gone: HashSet<String>,
    seats: HashMap<u64, Seated>,
    handed: HashMap<u64, HandedOnes>,
    moved: Moves,
    /// The newest number of a notice.
    pub(crate) notices: u64,
}

impl Past {
    pub(crate) fn read(entries: Vec<Entry>) -> Self {
        let mut past = Self {
            next_number: 1,
            ..Self::default()
        };
        for entry in entries {
            past.learn(entry);
        }
        past
    }

    fn learn(&mut self, entry: Entry) {
        match entry {
            Entry::House {
                started_at,
                generation,
                next_number,
                notices,
                ..
            } => {
                self.notices = self.notices.max(notices);
                self.started_at = Some(started_at);
                self.generation = generation;
                self.next_number = self.next_number.max(next_number);
            }
            Entry::Session(record) => {
                self.moved.forget(&record.session.id);
                self.sessions.retain(|s| s.session.id != record.session.id);
                self.sessions.push(record);
            }
            Entry::Closed { id } => {
                self.moved.forget_to(&id);
                self.sessions.retain(|s| s.session.id != id);
                self.tombstones.remove(&id);
                let seats = &self.seats;
                let session = |spec: &Spec| seat(seats, spec).session.id.clone();
                self.finished.retain(|_, (spec, _)| session(spec) != id);
                self.begun.retain(|_, spec| session(spec) != id);
            }
            Entry::Begun(spec) => {
                self.next_number = self.next_number.max(spec.number + 1);
                self.begun.insert(spec.number, *spec);
            }
            Entry::Finished { spec, finished } => {
                self.next_number = self.next_number.max(spec.number + 1);
                self.notices = self.notices.max(finished.notice.unwrap_or(0));
                self.finished.insert(spec.number, (*spec, *finished));
            }
            Entry::Released { process_id } => {
                self.gone.insert(process_id);
            }
            Entry::Buried { session, tombstone } => {
                self.gone.insert(tombstone.process_id.clone());
                self.tombstones.entry(session).or_default().push(tombstone);
            }
            Entry::Handed { number, line } => {
                self.handed.entry(number).or_default().push(line);
            }
            Entry::Wanted { number, wanted } => {
                self.wanted.insert(number, wanted);
            }
            Entry::Unbound { number } => {
                self.unbound.insert(number);
            }
            Entry::Moved(moved) => self.learn_move(*moved),
            Entry::Seated(seated) => self.learn_seat(seated),
            Entry::Gone(gone) => self.moved.remember(gone),
        }
    }

    fn learn_move(&mut self, moved: Moved) {
        let Moved { from, to, seats } = moved;
        let stones = self.tombstones.remove(&from.id);
        // A rename takes them along; an adoption writes its own.
        if from.key == to.folder
            && let Some(stones) = stones
        {
            self.tombstones.insert(to.session.id.clone(), stones);
        }
        self.sessions.retain(|s| s.folder != from.key);
        self.learn(Entry::Session(to));
        seats.into_iter().for_each(|s| self.learn_seat(s));
        self.moved.remember(from);
    }

    fn learn_seat(&mut self, seated: Seated) {
        self.notices = self.notices.max(seated.notice.unwrap_or(0));
        self.seats.insert(seated.number, seated);
    }

    fn seat<'a>(&'a self, spec: &'a Spec) -> &'a Seat {
        seat(&self.seats, spec)
    }

    /// Jobs that ended with the supervisor before this one.
    fn lost(&self) -> impl Iterator<Item = &Spec> {
        let over =
            |s: &&Spec| self.finished.contains_key(&s.number) || self.gone.contains(&s.process_id);
        self.begun.values().filter(move |spec| !over(spec))
    }

    /// Jobs that an earlier supervisor has put into quarantine.
    pub(crate) fn quarantined(&self) -> impl Iterator<Item = u64> {
        let wanted = self.wanted.iter().filter(|(_, w)| w.is_quarantine());
        wanted.map(|(number, _)| *number)
    }

    /// Names by which the owner of a job may still call it.
    fn old_names(&self, number: u64) -> &[String] {
        self.seats.get(&number).map_or(&[], |s| &s.from)
    }
}

/// Where a job stands.
fn seat<'a>(seats: &'a HashMap<u64, Seated>, spec: &'a Spec) -> &'a Seat {
    seats.get(&spec.number).map_or(&spec.born, |s| &s.seat)
}

/// Jobs that are back, before anything of them is read or decided.
pub(crate) struct Restored {
    jobs: Vec<(Arc<Job>, Option<JobState>)>,
    /// What the keeper has no readable record of.
    unreadable: Vec<JobState>,
    quarantine: Quarantine,
}

/// Makes sessions and jobs; nothing runs yet. Called before the scratch pipes are emptied into the rings.
pub(crate) fn prepare(
    registry: &Registry,
    arena: &Arc<Arena>,
    past: &Past,
    states: Vec<JobState>,
    rung: &'static str,
    quarantine: Quarantine,
) -> Restored {
    for record in &past.sessions {
        let stones = past
            .tombstones
            .get(&record.session.id)
            .cloned()
            .unwrap_or_default();
        registry.restore_session(record.clone(), stones);
    }
    registry.restore_gone(past.moved.clone());
    registry.restore_notices(past.notices);
    let mut jobs = Vec::new();
    let mut live = HashSet::new();
    let mut unreadable = Vec::new();
    let maker = Maker {
        registry,
        arena,
        past,
        rung,
        quarantine: &quarantine,
    };
    for mut state in states {
        let Ok(spec) = serde_json::from_slice::<Spec>(&state.record) else {
            unreadable.push(state);
            continue;
        };
        live.insert(spec.number);
        let spill = state.fds.spill.take();
        if quarantine.holds(spec.number) {
            state.fds = JobFds::default();
        }
        jobs.push((maker.make(spec, spill), Some(state)));
    }
    for (number, (spec, _)) in &past.finished {
        if !live.contains(number) && !past.gone.contains(&spec.process_id) {
            jobs.push((maker.make(spec.clone(), None), None));
        }
    }
    for spec in past.lost().filter(|spec| spec.kind == Kind::Agent) {
        // Whoever speaks as it comes back, or nobody does.
        jobs.push((maker.make(spec.clone(), None), None));
    }
    jobs.sort_by_key(|(job, _)| job.spec.number);
    for spec in past.lost().filter(|spec| spec.kind != Kind::Agent) {
        let shells = jobs.iter().map(|(job, _)| job);
        bury(registry, past.seat(spec), spec, shells);
    }
    Restored {
        jobs,
        unreadable,
        quarantine,
    }
}

/// A send in the background ends with its supervisor, what it sent does not.
fn bury<'a>(
    registry: &Registry,
    seat: &Seat,
    spec: &Spec,
    mut jobs: impl Iterator<Item = &'a Arc<Job>>,
) {
    let shell = jobs.find(|j| Some(&j.spec.process_id) == spec.sent_to.as_ref());
    let rest = match shell.filter(|s| s.status().finished.is_none()) {
        Some(shell) => format!("what it sent goes on in {}", shell.id()),
        None => "its shell has ended".into(),
    };
    for file in spec.spill.iter().map(Path::new) {
        // Most have none.
        let _ = fs::remove_file(file);
        let _ = fs::remove_file(file.with_extension("runs"));
    }
    let tombstone = Tombstone {
        id: seat.id.clone(),
        process_id: spec.process_id.clone(),
        outcome: Some(Outcome::Lost),
        finished_at: Some(Moment::now().wall),
        why: format!("lost when its supervisor was replaced; {rest}"),
    };
    registry.bury_lost(&seat.session.id, tombstone);
}

/// What a job is made again from.
struct Maker<'a> {
    registry: &'a Registry,
    arena: &'a Arc<Arena>,
    past: &'a Past,
    rung: &'static str,
    quarantine: &'a Quarantine,
}

impl Maker<'_> {
    fn make(&self, spec: Spec, spill: Option<OwnedFd>) -> Arc<Job> {
        let number = spec.number;
        self.quarantine
            .restoring(number, || self.make_marked(spec, spill))
    }

    fn make_marked(&self, spec: Spec, spill: Option<OwnedFd>) -> Arc<Job> {
        let past = self.past;
        let (number, bound) = (spec.number, spec.bound);
        let seated = past.seats.get(&number);
        let seat = past.seat(&spec).clone();
        let log = self.log(&spec, &seat, spill);
        let feed = spec.stdin_open.then(Feed::new);
        let events = Arc::clone(&self.registry.events);
        let job = Job::new(spec, log, self.rung, feed, events);
        job.sit(seat);
        if let (Some(talk), Some(lines)) = (&job.talk, past.handed.get(&number)) {
            talk.restore(&job.log, lines.clone());
        }
        if let Some(wanted) = past.wanted.get(&number) {
            job.restore_wanted(wanted.clone());
        }
        if bound && past.unbound.contains(&number) {
            job.unbind();
        }
        if let Some((_, finished)) = past.finished.get(&number) {
            let finished = finished.clone();
            job.publish(|s| {
                s.state = ostler_proto::job::State::Exited;
                s.pid = finished.pid;
                s.resolved.clone_from(&finished.resolved);
                s.file.clone_from(&finished.file);
                s.finished = Some(Arc::new(finished));
            });
        }
        if let Some(notice) = seated.and_then(|s| s.notice) {
            job.renumber_notice(notice);
        }
        Arc::new(job)
    }

    fn log(&self, spec: &Spec, seat: &Seat, spill: Option<OwnedFd>) -> Arc<Log> {
        let policy = match self.registry.budget_of(&seat.session.id) {
            Some(budget) => spill_policy(spec, &budget),
            None => crate::log::SpillPolicy::Off,
        };
        let (arena, slot, number) = (Arc::clone(self.arena), spec.slot as usize, spec.number);
        if self.quarantine.holds(number) {
            return Log::new(arena, slot, number, policy);
        }
        Log::restore(arena, slot, number, spill, policy)
    }
}

impl Restored {
    /// Moves what a scratch pipe still holds to the log that it is for.
    ///
    /// # Errors
    /// The pipe cannot be asked or read.
    pub(crate) fn empty(&self, pair: &ScratchPair, arena: &Arc<Arena>) -> io::Result<()> {
        let job = scratch::owner_of(pair, arena);
        self.quarantine.restoring(job, || {
            scratch::restore(pair, arena, |job| self.log_of(job))
        })
    }

    fn log_of(&self, job: u64) -> Option<Arc<Log>> {
        let mut jobs = self.jobs.iter().map(|(job, _)| job);
        let job = jobs.find(|j| j.spec.number == job)?;
        (!self.quarantine.holds(job.spec.number)).then(|| Arc::clone(&job.log))
    }

    /// Puts the jobs into the table and goes on with the lives of those that have one.
    pub(crate) fn resume(self, house: &Arc<House>, past: &Past) {
        let back = self
            .jobs
            .iter()
            .filter(|(_, state)| state.is_some())
            .count();
        let ended: Vec<_> = self.jobs.iter().map(|(job, _)| Arc::clone(job)).collect();
        for (job, state) in self.jobs {
            let old_names = past.old_names(job.spec.number);
            self.quarantine.end(&job, &house.tools.ledger);
            self.quarantine
                .restoring(job.spec.number, || go_on(house, &job, old_names, state));
        }
        for state in self.unreadable {
            quarantine::put_down(&house.tools, state);
        }
        // A first supervisor has an empty arena, and to look at each of its headers would fill two megabytes with them.
        let crashed = past.started_at.is_some();
        house.registry.restored(past.next_number, crashed);
        // What a sub-agent had that ended with the last supervisor.
        for job in &ended {
            house.registry.hand_over(job);
        }
        for lease in house.registry.leases() {
            house.run_lease(lease);
        }
        if back > 0 {
            let jobs = if back == 1 { "job" } else { "jobs" };
            crate::log_line!("info", "went on with {back} {jobs}");
        }
    }
}

/// Puts a job into the table and goes on with its life, if it has one.
fn go_on(house: &Arc<House>, job: &Arc<Job>, old_names: &[String], state: Option<JobState>) {
    let seated = house.registry.restore_job(job, old_names);
    if state.is_none() && job.status().finished.is_none() {
        // Only of a sub-agent that somebody speaks as.
        return house.let_live(job, agent::live(house.tools.clone(), Arc::clone(job)));
    }
    let Some(state) = state else {
        job.log.seal();
        job.log.close_spill();
        job.publish(|s| s.over = true);
        // Its supervisor may have died before it did that.
        job.clean_beside();
        return;
    };
    if job.status().finished.is_some() {
        // The keeper knows it still, so that somebody was left; how many is counted again.
        job.publish(|s| s.left = s.left.max(1));
    }
    let facts = state.entry.facts;
    life::show_known(&house.tools, job, &facts.borrow());
    if !seated {
        // Its session was closed in the moment of the crash: nobody could ever stop it.
        job.want_stop(job.spec.grace_ms, Who::asked("close", None).silent(true));
    } else if job.is_bound() {
        wait_for_client(house, job);
    }
    house.adopt(job, facts, Some(state.fds));
}

/// A connection broken by our own restart is no cancel: the client of a foreground run has some time to come back.
fn wait_for_client(house: &Arc<House>, job: &Arc<Job>) {
    job.hold();
    let (house, job) = (Arc::clone(house), Arc::clone(job));
    let before = job.held();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(limits::reattach())).await;
        if !job.let_go() {
            return;
        }
        if job.status().finished.is_none() {
            job.want_stop(
                job.spec.grace_ms,
                Who::asked("client", Some("its client did not come back".into())),
            );
        } else if job.held() == before {
            // It ended in that time, for a client that never asked.
            house.registry.notice_after_all(&job);
        }
    });
}
