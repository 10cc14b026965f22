//! Promise: the table of sessions and jobs is at every moment what the requests so far have made of it, over renames,
//! adoptions, closes and crashes; and the process table agrees.
//!
//! A small model says what each request must do. Requests are drawn by chance from a seed, which is named on failure.

use std::collections::BTreeMap;
use std::fmt;

use ostler_proto::job::{JobResult, State};
use ostler_proto::methods::{
    AdoptSession, CloseSession, JobList, JobRelease, JobStart, JobStop, List, MovedSession,
    OpenSession, RenameSession, SessionAdopt, SessionClose, SessionOpen, SessionRename, Start,
    Stop, Target,
};
use ostler_proto::refusal::{Refusal, RefusalKind};
use ostler_supervisor::tree::cookie::HOUSE_JOB;
use ostler_tests::chance::Chance;
use ostler_tests::house::{House, in_house};
use ostler_tests::{Desk, desk::script, rounds};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A job as the model knows it: its short id, and whether it lives.
#[derive(Debug, Clone)]
struct Job {
    /// How many requests came before its start.
    born: usize,
    process_id: String,
    number: u64,
    live: bool,
}

/// A session: its jobs in order of their start, and the newest number that it has given out.
#[derive(Debug, Clone, Default)]
struct Session {
    jobs: Vec<Job>,
    last: u64,
}

#[derive(Debug, Clone, Copy)]
enum Ask {
    Open(usize),
    Start(usize),
    Run(usize),
    Stop(usize, usize),
    Release(usize, usize),
    Rename(usize, usize),
    Adopt(usize, usize),
    Close(usize),
    Crash,
}

/// What is asked next.
fn draw(chance: &mut Chance) -> Ask {
    let (a, b, i) = (
        chance.below(NAMES.len()),
        chance.below(NAMES.len()),
        chance.below(8),
    );
    match chance.below(40) {
        0..6 => Ask::Open(a),
        6..16 => Ask::Start(a),
        16..20 => Ask::Run(a),
        20..24 => Ask::Stop(a, i),
        24..29 => Ask::Release(a, i),
        29..33 => Ask::Rename(a, b),
        33..36 => Ask::Adopt(a, b),
        36..39 => Ask::Close(a),
        _ => Ask::Crash,
    }
}

struct World<'a> {
    house: &'a House,
    desk: Desk,
    sessions: BTreeMap<&'static str, Session>,
    /// Where an id went that is in use no more.
    moved: BTreeMap<&'static str, &'static str>,
    asked: Vec<Ask>,
    seed: u64,
}

impl fmt::Display for World<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {:?}", self.seed, self.asked)
    }
}

impl World<'_> {
    async fn ask(&mut self, ask: Ask) {
        self.asked.push(ask);
        match ask {
            Ask::Open(a) => self.open(NAMES[a]).await,
            Ask::Start(a) => self.start(NAMES[a], "sleep").await,
            Ask::Run(a) => self.start(NAMES[a], "exit 0").await,
            Ask::Stop(a, i) => self.stop(NAMES[a], i).await,
            Ask::Release(a, i) => self.release(NAMES[a], i).await,
            Ask::Rename(a, b) => self.rename(NAMES[a], NAMES[b]).await,
            Ask::Adopt(a, b) => self.adopt(NAMES[a], NAMES[b]).await,
            Ask::Close(a) => self.close(NAMES[a]).await,
            Ask::Crash => {
                self.house.kill_supervisor().await;
            }
        }
    }

    async fn open(&mut self, id: &'static str) {
        let ask = OpenSession {
            id: Some(id.into()),
            commands: Some(1_000),
            ..OpenSession::default()
        };
        let opened = self.desk.must::<SessionOpen>(ask).await;
        let new = !self.sessions.contains_key(id);
        assert_eq!(opened.created, new, "{self}");
        self.sessions.entry(id).or_default();
        self.moved.remove(id);
    }

    async fn start(&mut self, id: &'static str, steps: &str) {
        let start = Start {
            session: Some(id.into()),
            ..script(steps)
        };
        let Some(session) = self.sessions.get_mut(id) else {
            let refusal = self.desk.refused::<JobStart>(start).await;
            return self.assert_absent(id, &refusal);
        };
        let row = self.desk.start(start).await;
        session.last += 1;
        let number = session.last;
        session.jobs.push(Job {
            born: self.asked.len(),
            process_id: row.process_id.clone(),
            number,
            live: steps == "sleep",
        });
        assert_eq!(row.id, format!("t{number}"), "{self}");
        if steps == "sleep" {
            // On a busy machine a start may be answered before there is a process.
            let runs = |r: &JobResult| r.row.state == State::Running;
            self.desk.until(&row.process_id, "the process", runs).await;
        } else {
            self.desk.over(&row.process_id).await;
        }
    }

    fn assert_absent(&self, id: &str, refusal: &Refusal) {
        let Some(to) = self.moved.get(id) else {
            assert_eq!(refusal.kind, RefusalKind::NotFound, "{self}");
            return;
        };
        assert_eq!(refusal.kind, RefusalKind::Moved, "{self}");
        assert_eq!(refusal.data["to"], *to, "{self}");
    }

    /// By its short id, as a person would.
    fn pick(&self, id: &str, i: usize) -> Option<(usize, String)> {
        let jobs = &self.sessions.get(id)?.jobs;
        let at = i.checked_rem(jobs.len())?;
        Some((at, format!("{id}/t{}", jobs[at].number)))
    }

    async fn stop(&mut self, id: &'static str, i: usize) {
        let Some((at, name)) = self.pick(id, i) else {
            return;
        };
        let stop = Stop {
            ids: vec![name],
            force: true,
            ..Stop::default()
        };
        let receipt = self.desk.must::<JobStop>(stop).await.jobs.remove(0);
        let session = self.sessions.get_mut(id).expect("it was picked from it");
        let job = &mut session.jobs[at];
        let lived = std::mem::take(&mut job.live);
        let told = (receipt.row.process_id, receipt.already_finished);
        assert_eq!(told, (job.process_id.clone(), !lived), "{self}");
    }

    async fn release(&mut self, id: &'static str, i: usize) {
        let Some((at, name)) = self.pick(id, i) else {
            return;
        };
        let target = Target {
            session: None,
            id: name,
        };
        self.desk.must::<JobRelease>(target).await;
        let session = self.sessions.get_mut(id).expect("it was picked from it");
        session.jobs.remove(at);
    }

    async fn rename(&mut self, from: &'static str, to: &'static str) {
        let ask = RenameSession {
            session: Some(from.into()),
            to: to.into(),
        };
        if !self.sessions.contains_key(from) {
            let refusal = self.desk.refused::<SessionRename>(ask).await;
            return self.assert_absent(from, &refusal);
        }
        let moved = self.desk.must::<SessionRename>(ask).await;
        if from != to {
            self.move_jobs(from, to, &moved);
        }
    }

    async fn adopt(&mut self, from: &'static str, to: &'static str) {
        let ask = AdoptSession {
            session: from.into(),
            into: Some(to.into()),
        };
        if from == to || !self.sessions.contains_key(from) || !self.sessions.contains_key(to) {
            self.desk.refused::<SessionAdopt>(ask).await;
            return;
        }
        let moved = self.desk.must::<SessionAdopt>(ask).await;
        self.move_jobs(from, to, &moved);
    }

    /// A number that is taken becomes the next one that is free; onto an id that is free, the whole slot goes.
    fn move_jobs(&mut self, from: &'static str, to: &'static str, told: &MovedSession) {
        let earlier = self.moved.values_mut().filter(|went| **went == from);
        earlier.for_each(|went| *went = to);
        self.moved.remove(to);
        self.moved.insert(from, to);
        let old = self.sessions.remove(from).expect("it was looked for");
        let table: Vec<_> = match self.sessions.get_mut(to) {
            None => {
                let table = old.jobs.iter().map(|j| (j.number, j.number)).collect();
                self.sessions.insert(to, old);
                table
            }
            Some(into) => {
                let mut table = Vec::new();
                for mut job in old.jobs {
                    let before = job.number;
                    into.last = job.number.max(into.last + u64::from(before <= into.last));
                    job.number = into.last;
                    table.push((before, job.number));
                    into.jobs.push(job);
                }
                into.jobs.sort_by_key(|j| j.born);
                table
            }
        };
        let table: Vec<_> = table
            .iter()
            .map(|(before, after)| (format!("{from}/t{before}"), format!("t{after}")))
            .collect();
        let moved = told.jobs.iter().map(|m| (m.from.clone(), m.to.clone()));
        assert_eq!(moved.collect::<Vec<_>>(), table, "{self}");
    }

    async fn close(&mut self, id: &'static str) {
        let ask = CloseSession {
            session: Some(id.into()),
            grace_ms: Some(0),
        };
        if !self.sessions.contains_key(id) && self.moved.contains_key(id) {
            let refusal = self.desk.refused::<SessionClose>(ask).await;
            return self.assert_absent(id, &refusal);
        }
        let summary = self.desk.must::<SessionClose>(ask).await;
        let gone = self.sessions.remove(id).unwrap_or_default();
        self.moved.retain(|_, to| *to != id);
        assert_eq!(summary.jobs.len(), gone.jobs.len(), "{self}");
    }

    /// What is listed, by session, short id and process id, is what the model has; and so many processes live.
    async fn assert_agrees(&self) {
        let list = List {
            all: true,
            ..List::default()
        };
        let rows = self.desk.must::<JobList>(list).await.jobs;
        let listed = rows.iter().map(|r| {
            let live = r.state != State::Exited;
            (r.session.id.as_str(), r.id.clone(), &*r.process_id, live)
        });
        let mut listed: Vec<_> = listed.collect();
        let known = self.sessions.iter().flat_map(|(id, session)| {
            let of = |j: &'_ Job| format!("t{}", j.number);
            let jobs = session.jobs.iter();
            jobs.map(move |j| (*id, of(j), &*j.process_id, j.live))
        });
        let mut known: Vec<_> = known.collect();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known, "{self}");
        let marks = self.house.marks();
        let running = marks.living().into_iter().filter_map(|p| marks.job_of(p));
        let running = running.filter(|job| *job != HOUSE_JOB).count();
        let live = known.iter().filter(|(.., live)| *live).count();
        assert_eq!(running, live, "processes, {self}");
    }
}

/// 133, 139, F3, F6, F14.
#[test]
fn whatever_is_asked_the_tables_agree() {
    for seed in 1..=rounds("OSTLER_SEEDS", 6) as u64 {
        in_house(async |house| {
            let mut chance = Chance::of(seed);
            let mut world = World {
                house,
                desk: house.desk_without_session(),
                sessions: BTreeMap::new(),
                moved: BTreeMap::new(),
                asked: Vec::new(),
                seed,
            };
            for _ in 0..rounds("OSTLER_ASKS", 120) {
                let ask = draw(&mut chance);
                world.ask(ask).await;
                world.assert_agrees().await;
            }
        });
    }
}
