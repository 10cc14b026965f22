//! After a crash: what the ledger and the keeper know becomes a house again. Everything here may be cut by the
//! next crash and is then done again from the start.

use std::{
    collections::{HashMap, HashSet},
    fs,
    os::fd::OwnedFd,
    path::Path,
    sync::Arc,
    time::Duration,
};

use ostler_proto::{job::Outcome, limits};

use crate::{
    clock::Moment,
    feed::Feed,
    house::House,
    job::{Finished, Job, Seat, Spec, Wanted, Who},
    ledger::{Entry, Moved, Moves, Seated},
    log::{Arena, Log},
    process::link::JobState,
    registry::{Registry, spill_policy},
    session::{Record, Tombstone},
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
}

/// Makes sessions and jobs; nothing runs yet. Called before the scratch pipes are emptied into the rings.
pub(crate) fn prepare(
    registry: &Registry,
    arena: &Arc<Arena>,
    past: &Past,
    states: Vec<JobState>,
    rung: &'static str,
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
    let mut jobs = Vec::new();
    let mut live = HashSet::new();
    for mut state in states {
        let Ok(spec) = serde_json::from_slice::<Spec>(&state.record) else {
            crate::log_line!(
                "error",
                "job {} of the keeper has no record that can be read",
                state.job
            );
            continue;
        };
        live.insert(spec.number);
        let spill = state.fds.spill.take();
        let finished = past.finished.get(&spec.number).map(|(_, f)| f.clone());
        jobs.push((
            make(registry, arena, past, spec, finished, spill, rung),
            Some(state),
        ));
    }
    for (number, (spec, finished)) in &past.finished {
        if !live.contains(number) && !past.gone.contains(&spec.process_id) {
            let job = make(
                registry,
                arena,
                past,
                spec.clone(),
                Some(finished.clone()),
                None,
                rung,
            );
            jobs.push((job, None));
        }
    }
    jobs.sort_by_key(|(job, _)| job.spec.number);
    for spec in past.lost() {
        let shells = jobs.iter().map(|(job, _)| job);
        bury(registry, past.seat(spec), spec, shells);
    }
    Restored { jobs }
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

fn make(
    registry: &Registry,
    arena: &Arc<Arena>,
    past: &Past,
    spec: Spec,
    finished: Option<Finished>,
    spill: Option<OwnedFd>,
    rung: &'static str,
) -> Arc<Job> {
    let seated = past.seats.get(&spec.number);
    let seat = past.seat(&spec).clone();
    let policy = match registry.budget_of(&seat.session.id) {
        Some(budget) => spill_policy(&spec, &budget),
        None => crate::log::SpillPolicy::Off,
    };
    let log = Log::restore(
        Arc::clone(arena),
        spec.slot as usize,
        spec.number,
        spill,
        policy,
    );
    let feed = spec.stdin_open.then(Feed::new);
    let (number, bound) = (spec.number, spec.bound);
    let job = Job::new(spec, log, rung, feed, Arc::clone(&registry.events));
    job.sit(seat);
    if let Some(wanted) = past.wanted.get(&number) {
        job.restore_wanted(wanted.clone());
    }
    if bound && past.unbound.contains(&number) {
        job.unbind();
    }
    if let Some(finished) = finished {
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

impl Restored {
    /// The log of a job, for the bytes that a scratch pipe still holds.
    pub(crate) fn log_of(&self, job: u64) -> Option<Arc<Log>> {
        self.jobs
            .iter()
            .find(|(j, _)| j.spec.number == job)
            .map(|(j, _)| Arc::clone(&j.log))
    }

    /// Puts the jobs into the table and goes on with the lives of those that have one.
    pub(crate) fn resume(self, house: &Arc<House>, past: &Past) {
        let mut back = 0;
        for (job, state) in self.jobs {
            let seated = house
                .registry
                .restore_job(&job, past.old_names(job.spec.number));
            match state {
                None => {
                    job.log.seal();
                    job.publish(|s| s.over = true);
                }
                Some(state) => {
                    back += 1;
                    if job.status().finished.is_some() {
                        // The keeper knows it still, so that somebody was left; how many is counted again.
                        job.publish(|s| s.left = s.left.max(1));
                    }
                    if !seated {
                        // Its session was closed in the moment of the crash: nobody could ever stop it.
                        job.want_stop(job.spec.grace_ms, Who::asked("close", None));
                    } else if job.is_bound() {
                        wait_for_client(&job);
                    }
                    house.adopt(&job, state.entry.facts, Some(state.fds));
                }
            }
        }
        // A first supervisor has an empty arena, and to look at each of its headers would fill two megabytes with them.
        let crashed = past.started_at.is_some();
        house
            .registry
            .restored(past.next_number, past.notices, crashed);
        for lease in house.registry.leases() {
            house.run_lease(lease);
        }
        if back > 0 {
            let jobs = if back == 1 { "job" } else { "jobs" };
            crate::log_line!("info", "went on with {back} {jobs}");
        }
    }
}

/// A connection broken by our own restart is no cancel: the client of a foreground run has some time to come back.
fn wait_for_client(job: &Arc<Job>) {
    job.claim();
    let job = Arc::clone(job);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(limits::reattach())).await;
        if job.unclaim() && job.status().finished.is_none() {
            job.want_stop(
                job.spec.grace_ms,
                Who::asked("client", Some("its client did not come back".into())),
            );
        }
    });
}
