//! Promise: whatever happens in whatever order, for as long as it lasts: no process too many or too few, no byte lost
//! or doubled, no code wrong, nothing that grows.
//!
//! Starts, tails, reads, stops, ends, lines in a shell, crashes and upgrades are drawn by chance from a seed; every promise that
//! can be checked is checked after each step. Short here; for a long one:
//!
//! ```text
//!   OSTLER_SOAK_SECONDS=3600 OSTLER_SOAK_SEED=7 cargo nextest run -p ostler-tests --test soak by_chance
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::time::{Duration, Instant};

use ostler::upgrade::{Upgraded, upgrade};
use ostler_proto::job::{JobResult, Outcome, Row, State, Stream};
use ostler_proto::methods::{
    JobList, JobRelease, JobStart, List, Reason, ShellExec, ShellOpen, Target, UpgradeSupervisor,
};
use ostler_proto::shell::{Exec, OpenShell};
use ostler_tests::chance::Chance;
use ostler_tests::desk::script;
use ostler_tests::house::{House, in_house};
use ostler_tests::process::{self, Process};
use ostler_tests::{Desk, PATIENCE, Printers, ostler, pattern, rounds, within};
use tokio::task::JoinHandle;

/// The figure of the issue: 100 printing jobs, 20 clients that read them, 50 kills (5 of them in every run).
#[test]
fn a_hundred_jobs_lose_nothing_for_twenty_readers_over_kills() {
    in_house(async |house| {
        let desk = house.desk();
        let printers = Printers::start(house, &desk, 100, 997, 20).await;
        let mut readers = Vec::new();
        for client in 0..20 {
            let desk = house.desk();
            for row in printers.rows.iter().skip(client).step_by(20) {
                let (desk, id) = (desk.clone(), row.id.clone());
                let reading = tokio::spawn(async move { desk.follow(&id).await });
                readers.push((row.id.clone(), reading));
            }
        }
        for _ in 0..rounds("OSTLER_KILLS", 5) {
            house.kill_supervisor().await;
        }
        printers.finish(&desk).await;
        for (id, reader) in readers {
            let seen = within(PATIENCE, "the end of a tail", reader).await;
            let seen = seen.unwrap_or_else(|e| std::panic::resume_unwind(e.into_panic()));
            let all = desk.stream(&id, Stream::Stdout).await;
            assert_eq!(seen, all.len() as u64, "{id}");
        }
    });
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Prints until its file is there, then exits with its number.
    Printer,
    /// Three processes that ignore everything, one of them out of sight.
    Hostile,
    /// Has ended with its number.
    Done,
}

/// A job as the driver knows it.
#[derive(Debug)]
struct Known {
    kind: Kind,
    code: i32,
    /// What the cookie of its processes says.
    number: u64,
    follower: Option<JoinHandle<u64>>,
    live: bool,
}

impl Known {
    fn processes(&self) -> usize {
        match (self.live, self.kind) {
            (false, _) => 0,
            (true, Kind::Hostile) => 3,
            (true, _) => 1,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Do {
    Print,
    Torment,
    Run,
    Finish,
    Stop,
    Release,
    Read,
    Follow,
    Line,
    Crash,
    CrashTwice,
    Freeze,
    Upgrade,
}

/// Each as often as it stands here.
const DRAWN: &[Do] = &[
    Do::Print,
    Do::Print,
    Do::Print,
    Do::Torment,
    Do::Torment,
    Do::Run,
    Do::Run,
    Do::Finish,
    Do::Finish,
    Do::Stop,
    Do::Stop,
    Do::Stop,
    Do::Release,
    Do::Release,
    Do::Release,
    Do::Read,
    Do::Read,
    Do::Follow,
    Do::Follow,
    Do::Line,
    Do::Line,
    Do::Crash,
    Do::Crash,
    Do::CrashTwice,
    Do::Freeze,
    Do::Upgrade,
];

/// Live jobs at most: the machine is to be busy, not full.
const MOST: usize = 12;

/// Ended ones at most, with the live ones.
const MANY: usize = 100;

struct Soak<'a> {
    house: &'a House,
    desk: Desk,
    chance: Chance,
    seed: u64,
    done: Vec<Do>,
    jobs: BTreeMap<String, Known>,
    /// A shell and the number that its variable has.
    shell: (String, u64),
    next: i32,
}

impl fmt::Display for Soak<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = &self.done[self.done.len().saturating_sub(12)..];
        let (seed, steps) = (self.seed, self.done.len());
        write!(
            f,
            "OSTLER_SOAK_SEED={seed}, step {steps}, the last: {last:?}"
        )
    }
}

impl Soak<'_> {
    async fn step(&mut self) {
        let next = match self.jobs.len() {
            // More than are kept would be let go of without being asked.
            MANY.. => Do::Release,
            _ => *self.chance.pick(DRAWN),
        };
        self.done.push(next);
        match next {
            Do::Print => self.begin(Kind::Printer).await,
            Do::Torment => self.begin(Kind::Hostile).await,
            Do::Run => self.run().await,
            Do::Finish => self.finish().await,
            Do::Stop => self.stop().await,
            Do::Release => self.release().await,
            Do::Read => self.read().await,
            Do::Follow => self.follow(),
            Do::Line => self.line().await,
            Do::Crash => {
                self.house.kill_supervisor().await;
            }
            Do::CrashTwice => {
                self.house.kill_supervisor_and_the_next().await;
                // And one more, so that the crashes before are forgiven.
                self.house.kill_supervisor().await;
            }
            Do::Freeze => self.freeze().await,
            Do::Upgrade => self.upgrade().await,
        }
    }

    fn over(&self, code: i32) -> String {
        self.house.path(&format!("over{code}"))
    }

    async fn begin(&mut self, kind: Kind) {
        if self.jobs.values().filter(|k| k.live).count() >= MOST {
            return;
        }
        self.next += 1;
        let code = self.next % 100;
        let start = match kind {
            Kind::Printer => {
                let size = 500 + self.chance.below(8000);
                let _ = fs::remove_file(self.over(code));
                script(&format!(
                    "until {} {size} 15 , exit {code}",
                    self.over(code)
                ))
            }
            _ => script(
                "ignore TERM , orphan [ ignore TERM , sleep ] , fork [ ignore TERM , say ready , sleep ] , sleep",
            ),
        };
        let row = match kind {
            Kind::Printer => self.desk.start(start).await,
            _ => self.desk.ready(start).await,
        };
        let number = self.number_of(&row).await;
        self.keep(
            row.id,
            Known {
                kind,
                code,
                number,
                follower: None,
                live: true,
            },
        );
    }

    /// What the cookie of its main process says.
    async fn number_of(&self, row: &Row) -> u64 {
        let runs = |r: &JobResult| r.row.state == State::Running;
        let row = self.desk.until(&row.id, "the process", runs).await.row;
        let pid = row.pid.expect("it runs");
        let number = self.house.marks().job_of(pid);
        number.unwrap_or_else(|| panic!("{pid} has no cookie, {self}"))
    }

    fn keep(&mut self, id: String, known: Known) {
        assert!(
            self.jobs.insert(id.clone(), known).is_none(),
            "{id} twice, {self}"
        );
    }

    async fn run(&mut self) {
        self.next += 1;
        let (code, bytes) = (self.next % 100, self.chance.below(400_000) as u64);
        let mut start = script(&format!("out {bytes} , exit {code}"));
        start.output.merge = self.next % 2 == 0;
        let row = self.desk.must::<JobStart>(start).await;
        let row = self.desk.wait(&row.id).await;
        assert_eq!(
            (row.exit_code, row.output.end),
            (Some(code), bytes),
            "{self}"
        );
        self.desk.assert_pattern(&row.id, bytes).await;
        self.keep(
            row.id,
            Known {
                kind: Kind::Done,
                code,
                number: 0,
                follower: None,
                live: false,
            },
        );
    }

    /// One of those that are as asked.
    fn draw(&mut self, is: impl Fn(&Known) -> bool) -> Option<String> {
        let some: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, k)| is(k))
            .map(|(id, _)| id.clone())
            .collect();
        (!some.is_empty()).then(|| self.chance.pick(&some).clone())
    }

    async fn finish(&mut self) {
        let Some(id) = self.draw(|k| k.live && k.kind == Kind::Printer) else {
            return;
        };
        let code = self.jobs[&id].code;
        fs::write(self.over(code), "").expect("a file can be made");
        let row = self.desk.wait(&id).await;
        let told = (row.outcome, row.exit_code, row.output.lost);
        assert_eq!(told, (Some(Outcome::Exited), Some(code), 0), "{id}, {self}");
        self.ended(&id).await;
        self.desk.assert_whole(&row).await;
    }

    async fn stop(&mut self) {
        let Some(id) = self.draw(|k| k.live) else {
            return;
        };
        let grace = *self.chance.pick(&[0, 20]);
        let receipt = self.desk.stop(&id, grace).await;
        let known = &self.jobs[&id];
        assert!(receipt.survivors.is_empty(), "{receipt:?}, {self}");
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped), "{id}, {self}");
        if known.kind == Kind::Hostile {
            assert_eq!(receipt.ended, 3, "{receipt:?}, {self}");
        }
        self.ended(&id).await;
    }

    /// It is over: whoever followed it has all of it.
    async fn ended(&mut self, id: &str) {
        let known = self.jobs.get_mut(id).expect("it is known");
        known.live = false;
        let follower = known.follower.take();
        let Some(follower) = follower else { return };
        let seen = within(PATIENCE, "the end of a tail", follower).await;
        let seen = seen.unwrap_or_else(|e| panic!("a tail of {id}: {e}, {self}"));
        let all = self.desk.stream(id, Stream::Stdout).await;
        assert_eq!(seen, all.len() as u64, "a tail of {id}, {self}");
    }

    async fn release(&mut self) {
        let Some(id) = self.draw(|k| !k.live || k.kind == Kind::Hostile) else {
            return;
        };
        let target = Target {
            session: None,
            id: id.clone(),
        };
        self.desk.must::<JobRelease>(target).await;
        self.jobs.remove(&id);
    }

    async fn read(&mut self) {
        let Some(id) = self.draw(|k| k.live && k.kind == Kind::Printer) else {
            return;
        };
        let end = self.desk.get(&id).await.row.output.end;
        let since = self.chance.below(end as usize + 1) as u64;
        let (page, bytes) = self.desk.read_raw(&id, since, 100_000).await;
        assert_eq!((page.from, page.lost), (since, 0), "{id}, {self}");
        assert_eq!(
            pattern::first_difference(since, &bytes),
            None,
            "{id}, {self}"
        );
    }

    fn follow(&mut self) {
        let Some(id) = self.draw(|k| k.live && k.kind == Kind::Printer && k.follower.is_none())
        else {
            return;
        };
        let (desk, name) = (self.house.desk(), id.clone());
        let task = tokio::spawn(async move { desk.follow(&name).await });
        self.jobs.get_mut(&id).expect("it was drawn").follower = Some(task);
    }

    async fn line(&mut self) {
        self.shell.1 += 1;
        let exec = Exec {
            id: self.shell.0.clone(),
            line: "n=$((n+1)); echo $n; (exit $n)".into(),
            timeout_ms: Some(20_000),
            ..Exec::default()
        };
        let done = self.desk.must::<ShellExec>(exec).await;
        let told = (
            done.reason,
            done.output.as_deref().map(str::trim),
            done.exit_code,
        );
        let n = self.shell.1;
        let wanted = (Reason::Prompt, n.to_string(), (n % 256) as i32);
        assert_eq!(told, (wanted.0, Some(&*wanted.1), Some(wanted.2)), "{self}");
    }

    /// It stands still for a moment, in the middle of whatever it does.
    async fn freeze(&mut self) {
        let pid = self.house.info().await.hello.pid;
        let supervisor = Process::of(pid).expect("it has just answered");
        supervisor.freeze();
        for _ in 0..self.chance.below(2000) {
            tokio::task::yield_now().await;
        }
        supervisor.signal(libc::SIGCONT);
    }

    /// To itself, which takes the same way as to another build.
    async fn upgrade(&mut self) {
        let before = self.house.info().await.hello;
        let to = UpgradeSupervisor {
            image: ostler().display().to_string(),
            force: true,
        };
        let desk = self.house.desk_without_session();
        let done = within(PATIENCE, "an upgrade", upgrade(&desk.client, to)).await;
        let done = done.unwrap_or_else(|e| panic!("{e}, {self}"));
        assert!(matches!(done, Upgraded::Done { .. }), "{done:?}, {self}");
        let after = self.house.info().await.hello;
        let told = (after.keeper_pid, after.generation);
        assert_eq!(told, (before.keeper_pid, before.generation + 1), "{self}");
    }

    /// Every promise that can be seen from outside, now.
    async fn check(&mut self) {
        let rows = self.desk.must::<JobList>(List::default()).await.jobs;
        let listed: BTreeMap<_, _> = rows
            .iter()
            .map(|r| (r.id.clone(), r.state != State::Exited))
            .collect();
        let mut known: BTreeMap<_, _> = self
            .jobs
            .iter()
            .map(|(id, k)| (id.clone(), k.live))
            .collect();
        known.insert(self.shell.0.clone(), true);
        assert_eq!(listed, known, "{self}");
        for row in rows.iter().filter(|r| r.state == State::Exited) {
            let known = &self.jobs[&row.id];
            let code = (known.kind != Kind::Hostile && row.outcome == Some(Outcome::Exited))
                .then_some(known.code);
            assert!(code.is_none() || row.exit_code == code, "{row:?}, {self}");
            assert_eq!((row.tree.left, row.output.lost), (0, 0), "{row:?}, {self}");
        }
        let marks = self.house.marks();
        let mut living: BTreeMap<u64, usize> = BTreeMap::new();
        for job in marks
            .living()
            .into_iter()
            .filter_map(|pid| marks.job_of(pid))
        {
            *living.entry(job).or_default() += 1;
        }
        for (id, known) in self.jobs.iter().filter(|(_, k)| k.live) {
            let now = living.remove(&known.number);
            assert_eq!(now, Some(known.processes()), "processes of {id}, {self}");
        }
        // The shell, and the house itself.
        assert_eq!(living.len(), 2, "{living:?}, {self}");
        let failed = self
            .jobs
            .iter()
            .find(|(_, k)| k.follower.as_ref().is_some_and(JoinHandle::is_finished));
        assert!(
            failed.is_none(),
            "a tail ended before its job: {failed:?}, {self}"
        );
    }

    async fn finish_all(&mut self) {
        while let Some(id) = self.draw(|k| k.live) {
            self.desk.stop(&id, 0).await;
            self.ended(&id).await;
        }
        while let Some(id) = self.draw(|_| true) {
            self.desk
                .must::<JobRelease>(Target {
                    session: None,
                    id: id.clone(),
                })
                .await;
            self.jobs.remove(&id);
        }
    }

    /// Descriptors of keeper and supervisor, and their memory in bytes, with nothing but the shell there.
    async fn weight(&self) -> ([usize; 2], u64) {
        // A supervisor that is new, as at the beginning.
        self.house.kill_supervisor().await;
        let hello = self.house.info().await.hello;
        let both = [hello.keeper_pid, hello.pid];
        assert!(process::zombies_of(hello.keeper_pid).is_empty(), "{self}");
        (
            both.map(process::descriptors),
            both.iter().map(|pid| process::resident(*pid)).sum(),
        )
    }
}

async fn soak(house: &House, seed: u64, time: Duration) {
    let desk = house.desk();
    let open = OpenShell {
        args: vec!["bash".into()],
        clean: true,
        wait_ms: Some(10_000),
        ..OpenShell::default()
    };
    let shell = desk.must::<ShellOpen>(open).await.row.id;
    let mut soak = Soak {
        house,
        desk,
        chance: Chance::of(seed),
        seed,
        done: Vec::new(),
        jobs: BTreeMap::new(),
        shell: (shell, 0),
        next: 0,
    };
    let before = soak.weight().await;
    let begun = Instant::now();
    while begun.elapsed() < time {
        soak.step().await;
        soak.check().await;
    }
    soak.finish_all().await;
    soak.check().await;
    let after = soak.weight().await;
    for (was, is) in before.0.iter().zip(after.0) {
        assert!(
            is <= was + 2,
            "descriptors: {before:?} became {after:?}, {soak}"
        );
    }
    assert!(
        after.1 < before.1 + (8 << 20),
        "memory: {before:?} became {after:?}, {soak}"
    );
    eprintln!("seed {seed}: {} steps", soak.done.len());
}

/// The whole, by chance.
#[test]
fn every_promise_holds_after_every_step_by_chance() {
    let seconds = rounds("OSTLER_SOAK_SECONDS", 10) as u64;
    let seed = rounds("OSTLER_SOAK_SEED", 1) as u64;
    // The bound of one test is some minutes: a long soak is many houses.
    let houses = seconds.div_ceil(120);
    for n in 0..houses {
        in_house(async |house| {
            soak(house, seed + n, Duration::from_secs(seconds / houses)).await;
        });
    }
}
