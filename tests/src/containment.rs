//! The matrix of containment: ways to escape, ends of a tree, rungs, users. The suite and the table share it.
//!
//! Each escape runs from a copy of the puppet in a folder of its own, so that a bystander finds its processes by their
//! program or by its path in their command line, whatever they did to their cookie, group, session, environment,
//! descriptors and names; chains, of which every look misses the link of the moment, by the writing end of a FIFO that
//! they hold. Nothing of the house under test is used for that.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ostler_proto::address::RUNG_VARIABLE;
use ostler_proto::job::{Row, Size, State};
use ostler_proto::methods::{
    CloseSession, JobRelease, JobStop, Receipt, SessionClose, Start, Stop, StopSummary,
    StopSupervisor, SupervisorStop, Target,
};
use serde::{Deserialize, Serialize};

use crate::groups::{self, Delegated};
use crate::house::{NOBODY, RootPuppet, in_empty_house, is_superuser};
use crate::process::{self, Process};
use crate::{Desk, House, PATIENCE, command, ostler, puppet, within};

/// The rungs, the best first.
pub const RUNGS: [&str; 3] = ["cgroup", "cookie", "links"];

/// Who keeps the house.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    /// The superuser.
    Root,
    /// User 65534.
    Ordinary,
}

impl User {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Root, Self::Ordinary];

    /// A word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "user",
        }
    }
}

/// How a tree comes to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// `job/stop`.
    Stop,
    /// The time limit of the job.
    Timeout,
    /// `job/release`.
    Release,
    /// `session/close`.
    Close,
    /// `supervisor/stop`.
    Dispose,
    /// The supervisor is killed, and the next one is asked to stop the job.
    Crash,
    /// The keeper is killed.
    Orphaned,
}

impl End {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Stop,
        Self::Timeout,
        Self::Release,
        Self::Close,
        Self::Dispose,
        Self::Crash,
        Self::Orphaned,
    ];

    /// A word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Timeout => "timeout",
            Self::Release => "release",
            Self::Close => "close",
            Self::Dispose => "dispose",
            Self::Crash => "crash",
            Self::Orphaned => "keeper killed",
        }
    }
}

/// What the escaping job is.
enum Program {
    /// Steps of the puppet.
    Steps(&'static str),
    /// The same on a terminal.
    Terminal(&'static str),
    /// A line of bash; `PUPPET` is the puppet.
    Line(&'static str),
    /// Steps of a puppet that may become another user.
    Privileged(&'static str),
}

/// One way to escape.
pub struct Escape {
    /// What it does, in a few words.
    pub name: &'static str,
    program: Program,
}

const fn steps(name: &'static str, steps: &'static str) -> Escape {
    Escape {
        name,
        program: Program::Steps(steps),
    }
}

const fn line(name: &'static str, line: &'static str) -> Escape {
    Escape {
        name,
        program: Program::Line(line),
    }
}

const RENEWED: &str = "chains that renew themselves";
const ENDED: &str = "orphan of an ended job";
const ENDED_CHAIN: &str = "chain that renews itself in an ended job";
const LOWERED: &str = "its own cookie lowered";
const LOST: &str = "cookie, parents, session and environment lost";
const LOST_MOVED: &str = "cookie, parents, session, environment and group lost";
const BURIED: &str = "orphan of an ended job, session and environment lost";
const PRIVILEGED: &str = "set-uid program, for good another user's";
const WATCHED: &str = "leader traced by an outsider";
const MOVED: &str = "another control group";

/// All of them. A job says `ready` when everybody is in place.
pub const ESCAPES: &[Escape] = &[
    steps(
        "TERM ignored by the leader",
        "ignore TERM , say ready , sleep",
    ),
    steps(
        "TERM, HUP, INT ignored by a child",
        "fork [ ignore TERM , ignore HUP , ignore INT , say ready , sleep ] , sleep",
    ),
    steps(
        "setsid",
        "fork [ setsid , ignore TERM , say ready , sleep ] , sleep",
    ),
    steps(
        "double fork",
        "orphan [ orphan [ ignore TERM , say ready , sleep ] ] , sleep",
    ),
    steps(
        "a whole daemon: double fork, name, descriptors",
        "orphan [ orphan [ name daemon , ignore TERM , say ready , closeall , sleep ] ] , sleep",
    ),
    line(
        "env -i",
        "env -i PUPPET setsid , ignore TERM , say ready , sleep & exec PUPPET sleep",
    ),
    line(
        "nohup",
        "nohup PUPPET ignore TERM , say ready , sleep & exec PUPPET sleep",
    ),
    line(
        "disown",
        "set -m; PUPPET ignore TERM , say ready , sleep & disown -a; exec PUPPET sleep",
    ),
    steps(
        "fork while dying",
        "on TERM [ fork [ ignore TERM , sleep ] , exit 0 ] , say ready , sleep",
    ),
    steps(
        "orphan made at the exit",
        "on TERM [ orphan [ ignore TERM , sleep ] , exit 0 ] , say ready , sleep",
    ),
    steps(RENEWED, "renew 3 , say ready , ignore TERM , sleep"),
    steps(
        "stopped",
        "fork [ fork [ raise STOP , sleep ] , say ready , sleep ] , sleep",
    ),
    steps(
        "stops itself at TERM",
        "on TERM [ raise STOP , sleep ] , say ready , sleep",
    ),
    steps(
        "traced child",
        "traced [ sleep ] , ignore TERM , say ready , sleep",
    ),
    steps(WATCHED, "ignore TERM , pid , say ready , sleep"),
    steps(
        "all descriptors closed",
        "fork [ ignore TERM , say ready , closeall , sleep ] , null 1 , sleep",
    ),
    steps(
        "another name",
        "name kworker/0:1 , fork [ name init , ignore TERM , say ready , sleep ] , sleep",
    ),
    steps(
        "another group",
        "fork [ setpgid , ignore TERM , say ready , sleep ] , sleep",
    ),
    steps(
        "child on a terminal of its own",
        "pty [ ignore HUP , ignore TERM , sleep ] , ignore TERM , say ready , sleep",
    ),
    Escape {
        name: "left the terminal, HUP ignored",
        program: Program::Terminal(
            "orphan [ ignore HUP , ignore TERM , say ready , sleep ] , ignore HUP , sleep",
        ),
    },
    steps(
        "vfork that does not end",
        "fork [ vfork [ ignore TERM , say ready , sleep ] ] , sleep",
    ),
    steps(
        "main thread ended",
        "leavemain , ignore TERM , say ready , sleep",
    ),
    steps(
        "thread that forks",
        "threadfork [ ignore TERM , say ready , sleep ] , sleep",
    ),
    steps(
        "sub-reaper of its own",
        "subreaper , orphan [ orphan [ ignore TERM , say ready , sleep ] ] , ignore TERM , sleep",
    ),
    line(
        "namespaces of its own",
        "unshare -Urpf PUPPET ignore TERM , say ready , sleep || \
         exec PUPPET ignore TERM , say ready , sleep",
    ),
    steps(
        "a tree 500 deep",
        "deep DEEP [ ignore TERM , say ready , sleep ] , sleep",
    ),
    steps(
        "a tree 500 wide",
        "wide WIDE , ignore TERM , say ready , sleep",
    ),
    line(
        "supervisor in a job",
        "export OSTLER_DIR=NESTED OSTLER_RUNG=RUNG; OSTLER daemon start -q && \
         OSTLER start -q -- PUPPET fork [ setsid , ignore TERM , sleep ] , sleep && \
         exec PUPPET say ready , sleep",
    ),
    steps(ENDED, "orphan [ ignore TERM , say ready , sleep ] , exit 0"),
    steps(ENDED_CHAIN, "renew 2 , say ready , exit 0"),
    line(
        BURIED,
        "env -i PUPPET orphan [ ignore TERM , say ready , sleep ] , exit 0",
    ),
    steps(
        LOWERED,
        "fork [ lower , ignore TERM , say ready , sleep ] , sleep",
    ),
    line(
        LOST,
        "env -i PUPPET lower , orphan [ ignore TERM , say ready , sleep ] ; exec PUPPET sleep",
    ),
    steps(
        "groups within its group, standing still",
        "fork [ subgroup a , subgroup b , ignore TERM , say ready , freeze , sleep ] , sleep",
    ),
    steps(
        MOVED,
        "fork [ enter ELSEWHERE , setsid , ignore TERM , say ready , sleep ] , sleep",
    ),
    line(
        LOST_MOVED,
        "env -i PUPPET enter ELSEWHERE , lower , orphan [ ignore TERM , say ready , sleep ] ; \
         exec PUPPET sleep",
    ),
    Escape {
        name: PRIVILEGED,
        program: Program::Privileged("become 0 , ignore TERM , say ready , await FIFO , exit 0"),
    },
    steps(
        "child that became an ordinary user's",
        "fork [ setsid , drop , ignore TERM , say ready , sleep ] , sleep",
    ),
];

/// What became of one escape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Its name.
    pub escape: String,
    /// Processes that live after the end was answered.
    pub left: usize,
    /// The answer names all of them.
    pub named: bool,
}

/// Why processes may be left in a cell. Nothing: nobody may.
pub fn excuse(escape: &str, rung: &str, user: User, end: End) -> Option<&'static str> {
    let by_the_kernel = matches!(end, End::Dispose);
    match escape {
        ENDED | ENDED_CHAIN | BURIED if end == End::Timeout => Some(
            "its limit ended with the job; members that outlive it stay, and go with the session",
        ),
        PRIVILEGED if user == User::Ordinary && rung != "cgroup" => {
            Some("an ordinary user may not signal it without a group; it is named")
        }
        BURIED if rung == "links" && !by_the_kernel => Some(
            "nothing ties it to the job any more; `daemon stop` ends it, the death of the keeper does not",
        ),
        ENDED_CHAIN if rung == "links" && !by_the_kernel => Some(
            "every look may miss the link of the moment; it is named, and `daemon stop` ends it",
        ),
        LOST if rung != "cgroup" && !by_the_kernel => Some(
            "nothing ties it to the job any more; `daemon stop` ends it, the death of the keeper does not",
        ),
        LOST_MOVED if !by_the_kernel => Some(
            "nothing ties it to the job any more; `daemon stop` ends it, the death of the keeper does not",
        ),
        _ => None,
    }
}

/// Whoever is left of this one stands in the answer, or in the log where nobody asked.
pub fn must_be_named(escape: &str) -> bool {
    escape == PRIVILEGED
}

/// Plays one column of the matrix in a process of its own. Nothing: that rung or user cannot be had here.
///
/// # Panics
/// It could not be played.
pub fn column(program: &Path, rung: &str, user: User, end: End) -> Option<Vec<Cell>> {
    let uid = match (user, is_superuser()) {
        (User::Root, false) => return None,
        (User::Ordinary, true) => Some(NOBODY),
        _ => None,
    };
    let group = Delegated::to(uid.unwrap_or(0));
    if rung == "cgroup" && group.is_none() {
        return None;
    }
    let privileged = is_superuser().then(RootPuppet::make);
    let mut play = Command::new(program);
    play.args(["play", rung, end.word()])
        .env(RUNG_VARIABLE, rung)
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    if let Some(privileged) = &privileged {
        play.env("PRIVILEGED", privileged.path());
    }
    if let Some(group) = &group {
        let door = group.door();
        play.env("ELSEWHERE", group.folder().join("elsewhere"));
        // SAFETY: opens and writes one file; the parent has one thread that could hold a lock.
        unsafe { play.pre_exec(move || fs::write(&door, "0")) };
    }
    if let Some(uid) = uid {
        // The group is entered before: its list of the old place belongs to the superuser.
        // SAFETY: plain calls.
        unsafe {
            play.pre_exec(move || {
                let dropped = libc::setgroups(0, std::ptr::null()) == 0
                    && libc::setgid(uid) == 0
                    && libc::setuid(uid) == 0;
                dropped
                    .then_some(())
                    .ok_or_else(std::io::Error::last_os_error)
            })
        };
    }
    let out = play.output().expect("it can be executed");
    assert!(
        out.status.success(),
        "{rung}, {}, {}",
        user.word(),
        end.word()
    );
    let cells = serde_json::from_slice(&out.stdout).expect("it prints cells");
    if let Some(group) = group {
        let _ = fs::remove_dir(group.folder().join("elsewhere"));
        let left = groups::below(group.folder());
        assert!(left.is_empty(), "control groups are left: {left:?}");
    }
    Some(cells)
}

/// Plays one column as the user of this process, on the rung that `OSTLER_RUNG` says, and returns its cells.
///
/// # Panics
/// The house stands on another rung, or an escape does not come about.
pub fn play(rung: &str, end: End) -> Vec<Cell> {
    let mut cells = Vec::new();
    in_empty_house(async |house| {
        // On a busy machine a thousand processes need longer to die than a person likes to wait. Where somebody may not
        // be ended, it is the time until he is named.
        let wait = if is_superuser() || rung == "cgroup" {
            8
        } else {
            4
        };
        let patient = format!("[stop]\nforce_wait = \"{wait}s\"\n");
        fs::write(&house.folders().config, patient).expect("the folder is ours");
        house.start();
        assert_eq!(
            house.info().await.rung,
            rung,
            "{:?}",
            house.info().await.rung_why
        );
        let mut stage = Stage::set(house);
        stage.begin(end).await;
        let named = stage.end(end).await;
        cells = stage.look(&named);
        stage.strike().await;
    });
    cells
}

/// The escapes of one house.
struct Stage<'a> {
    house: &'a House,
    desk: Desk,
    /// A folder for each, by its place among the escapes.
    folders: BTreeMap<usize, PathBuf>,
    /// The reading end of the FIFO of each.
    held: Vec<fs::File>,
    rows: Vec<(usize, Row)>,
    fifo: String,
    tracers: Vec<std::process::Child>,
}

impl<'a> Stage<'a> {
    fn set(house: &'a House) -> Self {
        let copy = house.file("puppet");
        fs::copy(puppet(), &copy).expect("the puppet can be copied");
        let mut held = Vec::new();
        let folders = (0..ESCAPES.len()).map(|at| {
            let folder = house.file(&format!("e{at}"));
            fs::create_dir(&folder).expect("it can be made");
            let alive = house.fifo(&format!("e{at}/alive"));
            let mut options = fs::OpenOptions::new();
            let reading = options
                .read(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&alive);
            held.push(reading.expect("its reading end opens"));
            // Only one that had a writer is hung up.
            drop(fs::OpenOptions::new().write(true).open(alive));
            fs::hard_link(&copy, folder.join("puppet")).expect("it can be linked");
            (at, folder)
        });
        if let Some(elsewhere) = std::env::var_os("ELSEWHERE") {
            fs::create_dir(elsewhere).expect("the group was delegated");
        }
        let folders = folders.collect();
        Self {
            folders,
            held,
            desk: house.desk(),
            rows: Vec::new(),
            fifo: house.fifo("go"),
            tracers: Vec::new(),
            house,
        }
    }

    /// Starts all of them and waits until everybody is in place. Chains come last: they would hold up the others.
    async fn begin(&mut self, end: End) {
        let chains = [RENEWED, ENDED_CHAIN];
        for chains_now in [false, true] {
            let mut started = Vec::new();
            for (at, escape) in ESCAPES.iter().enumerate() {
                if chains.contains(&escape.name) != chains_now {
                    continue;
                }
                if let Some(mut start) = self.start(at, escape) {
                    start.grace_ms = Some(GRACE);
                    start.timeout_ms = (end == End::Timeout).then_some(LIMIT);
                    started.push((at, self.desk.start(start).await));
                }
            }
            let ready = started.iter().map(|(at, row)| async {
                let said = self.desk.printed(&row.id, "^ready");
                within(PATIENCE, ESCAPES[*at].name, Box::pin(said)).await
            });
            join_all(ready).await;
            self.rows.append(&mut started);
        }
        for (at, row) in &self.rows {
            if ESCAPES[*at].name == WATCHED {
                self.tracers.push(trace(row.pid.expect("it runs")));
            }
        }
    }

    /// Nothing where that cannot be done here.
    fn start(&self, at: usize, escape: &Escape) -> Option<Start> {
        let own = self.folders[&at].join("puppet").display().to_string();
        let elsewhere = std::env::var("ELSEWHERE").ok();
        let fill = |text: &str| {
            let mut text = text.to_owned();
            if text.contains("ELSEWHERE") {
                text = text.replace("ELSEWHERE", elsewhere.as_deref()?);
            }
            let nested = self.folders[&at].display().to_string();
            Some(
                text.replace("PUPPET", &own)
                    .replace("NESTED", &nested)
                    .replace("OSTLER ", &format!("{} ", ostler().display()))
                    .replace(
                        "=RUNG",
                        &format!("={}", std::env::var(RUNG_VARIABLE).unwrap_or_default()),
                    )
                    .replace("FIFO", &self.fifo)
                    .replace("DEEP", &size("OSTLER_DEEP"))
                    .replace("WIDE", &size("OSTLER_WIDE"))
                    .replace("drop", &format!("become {NOBODY}")),
            )
        };
        let words = |program: &str, text: &str| {
            let text = fill(text)?;
            Some(command(
                [program].into_iter().chain(text.split_whitespace()),
            ))
        };
        let hold = format!("hold {}", self.folders[&at].join("alive").display());
        match escape.program {
            Program::Steps(text) => words(&own, &format!("{hold} , {text}")),
            Program::Terminal(text) => {
                let mut start = words(&own, &format!("{hold} , {text}"))?;
                start.pty = Some(Size { rows: 24, cols: 80 });
                Some(start)
            }
            Program::Line(text) => Some(command(["bash", "-c", &fill(text)?])),
            Program::Privileged(text) => {
                let copy = std::env::var("PRIVILEGED").ok()?;
                let mut start = words(&copy, text)?;
                // The mark, since another user's program cannot be asked after.
                start.args.extend([",".into(), "say".into(), own.clone()]);
                Some(start)
            }
        }
    }

    /// Ends all of them; returns whom the answers name as left.
    async fn end(&self, end: End) -> Vec<u32> {
        match end {
            End::Stop => self.stop().await,
            End::Crash => {
                self.house.kill_supervisor().await;
                self.stop().await
            }
            End::Timeout => self.sit_out().await,
            End::Release => {
                let releases = self.rows.iter().map(|(_, row)| {
                    self.desk.call::<JobRelease>(Target {
                        session: None,
                        id: row.id.clone(),
                    })
                });
                join_all(releases).await;
                // A refusal names nobody, the row of the job does.
                self.named_in_rows().await
            }
            End::Close => {
                let close = CloseSession {
                    session: None,
                    grace_ms: Some(GRACE),
                };
                named(&self.desk.must::<SessionClose>(close).await.jobs)
            }
            End::Dispose => self.dispose().await,
            End::Orphaned => {
                let supervisor = self.house.info().await.hello.pid;
                let supervisor = Process::of(supervisor).expect("it has just answered");
                let keeper = self.house.keeper().expect("the keeper lives");
                keeper.signal(libc::SIGKILL);
                let gone = tokio::task::spawn_blocking(move || supervisor.gone_within(LAST));
                assert!(
                    gone.await.expect("waiting does not panic"),
                    "it goes on alone"
                );
                self.house.reap();
                self.named_in_log()
            }
        }
    }

    async fn stop(&self) -> Vec<u32> {
        let stop = Stop {
            all: true,
            grace_ms: Some(GRACE),
            ..Stop::default()
        };
        let summary: StopSummary = self.desk.must::<JobStop>(stop).await;
        named(&summary.jobs)
    }

    /// Waits until every job has come to its end, or is said not to.
    async fn sit_out(&self) -> Vec<u32> {
        for (_, row) in &self.rows {
            let settled = |r: &ostler_proto::job::JobResult| {
                let detail = r.row.outcome_detail.as_ref();
                r.row.state == State::Exited || detail.is_some_and(|d| !d.survivors.is_empty())
            };
            self.desk
                .until(&row.id, "the end of its time", settled)
                .await;
        }
        self.named_in_rows().await
    }

    async fn named_in_rows(&self) -> Vec<u32> {
        let rows = self.desk.list().await.into_iter();
        let details = rows.filter_map(|row| row.outcome_detail);
        details
            .flat_map(|d| d.survivors.into_iter().map(|s| s.pid))
            .collect()
    }

    async fn dispose(&self) -> Vec<u32> {
        let keeper = self.house.keeper().expect("the keeper lives");
        let stop = StopSupervisor {
            grace_ms: Some(GRACE),
        };
        let summary = self.desk.must::<SupervisorStop>(stop).await;
        keeper.gone().await;
        self.house.reap();
        let mut all = named(&summary.jobs);
        all.extend(self.named_in_log());
        all
    }

    /// Numbers in the lines of the log that speak of who is left.
    fn named_in_log(&self) -> Vec<u32> {
        let log = self.house.log();
        let lines = log
            .lines()
            .filter(|l| l.contains("not ended: pid") || l.contains("cannot be ended"));
        let numbers = lines.flat_map(|l| l.split(|c: char| !c.is_ascii_digit()));
        numbers.filter_map(|n| n.parse().ok()).collect()
    }

    /// Who lives, by escape.
    fn look(&self, named: &[u32]) -> Vec<Cell> {
        let mut left: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (at, pid) in self.marked() {
            left.entry(at).or_default().push(pid);
        }
        for (at, pids) in &left {
            for pid in pids {
                eprintln!(
                    "left of `{}`: {}",
                    ESCAPES[*at].name,
                    process::describe(*pid)
                );
            }
        }
        let cells = self.rows.iter().map(|(at, _)| {
            let pids = left.get(at).cloned().unwrap_or_default();
            let at_least = usize::from(has_writer(&self.held[*at]));
            Cell {
                escape: ESCAPES[*at].name.to_owned(),
                left: pids.len().max(at_least),
                named: !pids.is_empty() && pids.iter().all(|pid| named.contains(pid)),
            }
        });
        cells.collect()
    }

    /// Living processes with the escape that they are of.
    fn marked(&self) -> Vec<(usize, u32)> {
        let own = std::process::id();
        let tracers: Vec<u32> = self.tracers.iter().map(std::process::Child::id).collect();
        let others = process::all().into_iter();
        let others = others.filter(|pid| *pid != own && !tracers.contains(pid));
        others
            .filter_map(|pid| Some((self.escape_of(pid)?, pid)))
            .filter(|(_, pid)| process::has_living_thread(*pid))
            .collect()
    }

    fn escape_of(&self, pid: u32) -> Option<usize> {
        let words = process::marks_of(pid);
        let base = self.house.file("e");
        let base = base.as_os_str().as_encoded_bytes();
        let at = words.windows(base.len()).position(|w| w == base)? + base.len();
        let digits = words[at..].iter().take_while(|b| b.is_ascii_digit());
        str::from_utf8(&digits.copied().collect::<Vec<u8>>())
            .ok()?
            .parse()
            .ok()
    }

    /// Ends whoever is left, by the test's own means.
    async fn strike(&mut self) {
        self.house.open_if_awaited(&self.fifo);
        let begun = Instant::now();
        loop {
            let left = self.marked();
            if left.is_empty() && !self.held.iter().any(has_writer) {
                break;
            }
            // Of a chain every look may miss the link of the moment; it ends by itself.
            assert!(begun.elapsed() < CHAIN_LIFE, "{left:?} cannot be ended");
            let left: Vec<Process> = left
                .iter()
                .filter_map(|(_, pid)| Process::of(*pid))
                .collect();
            for signal in [libc::SIGSTOP, libc::SIGKILL] {
                left.iter().for_each(|process| process.signal(signal));
            }
            for process in left {
                process.gone_within(Duration::from_millis(100));
            }
        }
        for tracer in &mut self.tracers {
            let _ = tracer.kill();
            let _ = tracer.wait();
        }
    }
}

/// Longer than a chain of the puppet renews itself.
const CHAIN_LIFE: Duration = Duration::from_secs(75);
/// Between the polite and the forced end.
const GRACE: u64 = 300;
/// A supervisor without its keeper looks at a thousand processes many times; on a busy machine that takes a while.
const LAST: Duration = Duration::from_secs(120);
/// The time limit: everybody is in place by then, also on a busy machine.
const LIMIT: u64 = 10_000;

/// How deep or wide: 500, unless the variable says more.
fn size(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| "500".into())
}

fn named(receipts: &[Receipt]) -> Vec<u32> {
    let survivors = receipts.iter().flat_map(|receipt| &receipt.survivors);
    survivors.map(|survivor| survivor.pid).collect()
}

/// Tells whether anybody holds the writing end of this FIFO.
fn has_writer(fifo: &fs::File) -> bool {
    let mut asked = libc::pollfd {
        fd: fifo.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry, as the count says.
    unsafe { libc::poll(&raw mut asked, 1, 0) };
    asked.revents & libc::POLLHUP == 0
}

/// A tracer that is none of the house's.
fn trace(pid: u32) -> std::process::Child {
    use std::io::{BufRead, BufReader};
    let mut tracer = Command::new(puppet())
        .args(["trace", &pid.to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the puppet can be executed");
    let mut said = String::new();
    let out = tracer.stdout.as_mut().expect("it was piped");
    BufReader::new(out)
        .read_line(&mut said)
        .expect("it speaks text");
    assert_eq!(
        said.trim(),
        "tracing",
        "a process of the same user can be traced"
    );
    tracer
}
