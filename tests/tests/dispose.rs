//! Promise: when the house ends, however it ends, no process, socket or artifact of it stays.

use std::time::{Duration, Instant};

use ostler::{Client, Error, Mode, Unavailable};
use ostler_proto::address::RUNG_VARIABLE;
use ostler_proto::job::{Outcome, State};
use ostler_proto::limits::RING;
use ostler_proto::methods::{
    JobRead, JobStart, Nothing, OpenSession, Read, StopSupervisor, SupervisorInfo, SupervisorStop,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::process::{self, Process};
use ostler_tests::{
    Desk, House, PATIENCE, command, in_empty_house, in_house, puppet, rounds, script, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// One tree of each kind that other tools leave alive.
async fn hostile_trees(desk: &Desk) {
    for steps in [
        "ignore TERM , ignore HUP , ignore INT , say ready , sleep",
        "orphan [ ignore TERM , say ready , sleep ] , exit 0",
        "orphan [ orphan [ ignore TERM , null 1 , null 2 , sleep ] , say ready , sleep ] , sleep",
        "fork [ fork [ raise STOP , sleep ] , say ready , sleep ] , sleep",
        "out 600000 , say , say ready , sleep",
        "leavemain , say ready , sleep",
    ] {
        desk.ready(script(steps)).await;
    }
    let bare = [
        "env",
        "-i",
        "setsid",
        puppet(),
        "orphan",
        "[",
        "ignore",
        "TERM",
        ",",
        "say",
        "ready",
        ",",
        "sleep",
        "]",
    ];
    desk.ready(command(bare)).await;
    let row = desk.start(script("renew 3 , say ready , exit 0")).await;
    desk.wait(&row.id).await;
}

/// G1, G8, G10: with a summary of what was.
#[test]
fn a_stop_of_the_supervisor_is_answered_when_every_job_is_gone() {
    in_house(async |house| {
        let desk = house.desk();
        hostile_trees(&desk).await;
        let keeper = house.keeper().expect("the keeper lives");
        let summary = desk
            .must::<SupervisorStop>(StopSupervisor {
                grace_ms: Some(200),
            })
            .await;
        let house_job = ostler_supervisor::tree::cookie::HOUSE_JOB;
        let left: Vec<_> = house.marks().living();
        let jobs: Vec<_> = left
            .iter()
            .filter(|p| house.marks().job_of(**p) != Some(house_job))
            .collect();
        let lines: Vec<_> = jobs.iter().map(|p| process::describe(**p)).collect();
        assert!(
            jobs.is_empty(),
            "answered while these live: {lines:#?}\n{summary:#?}"
        );
        assert!(summary.jobs.len() >= 7, "{}", summary.jobs.len());
        assert!(summary.jobs.iter().all(|r| r.survivors.is_empty()));
        drop(desk);
        keeper.gone().await;
        house.reap();
        house.assert_nothing_is_left();
    });
}

/// G3: each of the three signals, to either process.
async fn ends_everything(house: &House, signal: i32, to_keeper: bool) {
    let desk = house.desk();
    hostile_trees(&desk).await;
    let keeper = house.keeper().expect("the keeper lives");
    let supervisor = Process::of(house.info().await.hello.pid).expect("it has just answered");
    if to_keeper {
        keeper.signal(signal);
    } else {
        supervisor.signal(signal);
    }
    drop(desk);
    supervisor.gone().await;
    keeper.gone().await;
    house.reap();
    house.assert_nothing_is_left();
}

/// Each takes a whole grace, since some of the trees ignore every polite signal; one after the other they took six.
macro_rules! ends_everything {
    ($($name:ident: $signal:ident, $to_keeper:literal;)*) => {
        $(
            #[test]
            fn $name() {
                in_house(async |house| ends_everything(house, libc::$signal, $to_keeper).await);
            }
        )*
    };
}

ends_everything! {
    a_terminated_keeper_ends_everything_in_order: SIGTERM, true;
    an_interrupted_keeper_ends_everything_in_order: SIGINT, true;
    a_keeper_that_is_hung_up_ends_everything_in_order: SIGHUP, true;
    a_terminated_supervisor_ends_everything_in_order: SIGTERM, false;
    an_interrupted_supervisor_ends_everything_in_order: SIGINT, false;
    a_supervisor_that_is_hung_up_ends_everything_in_order: SIGHUP, false;
}

/// The keeper is killed: the supervisor ends everything it knows and itself.
#[test]
fn a_killed_keeper_leaves_nothing() {
    in_house(async |house| {
        let desk = house.desk();
        hostile_trees(&desk).await;
        let hello = house.info().await.hello;
        let supervisor = Process::of(hello.pid).unwrap();
        Process::of(hello.keeper_pid).unwrap().signal(libc::SIGKILL);
        supervisor.gone().await;
        house.reap();
        house.assert_nothing_is_left();
        // The next one starts at once.
        house.start();
        assert!(house.desk().list().await.is_empty());
    });
}

/// The keeper's death while everything is being stopped: nobody tells of ends any more, and the stop waited for ever.
#[test]
fn a_keeper_that_is_killed_during_the_end_does_not_hold_it_up() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let hello = house.info().await.hello;
        let (keeper, supervisor) = (
            Process::of(hello.keeper_pid).unwrap(),
            Process::of(hello.pid).unwrap(),
        );
        supervisor.signal(libc::SIGTERM);
        let stopping = |r: &ostler_proto::job::JobResult| r.row.state == State::Stopping;
        desk.until(&row.id, "the stop", stopping).await;
        keeper.signal(libc::SIGKILL);
        supervisor.gone().await;
        house.reap();
        house.assert_nothing_is_left();
    });
}

/// 037: a child that is not marked yet when its keeper dies is passed over by the sweep of those who are. It ends by
/// itself, at the latest when it says what it will execute and nobody is there to read that.
#[test]
fn a_child_whose_keeper_died_before_it_was_marked_runs_nothing() {
    in_house(async |house| {
        let hello = house.info().await.hello;
        let supervisor = Process::of(hello.pid).expect("it has just answered");
        let keeper = Process::of(hello.keeper_pid).expect("it has just answered");
        let starts = {
            let desk = house.desk();
            tokio::spawn(async move {
                loop {
                    let _ = desk.client.call::<JobStart>(script("sleep")).await;
                }
            })
        };
        let catching = async {
            loop {
                if let Some(child) = unmarked_child(house, &keeper, supervisor.pid) {
                    return child;
                }
                tokio::task::yield_now().await;
            }
        };
        let child = within(PATIENCE, "a child before it is marked", catching).await;
        keeper.signal(libc::SIGKILL);
        starts.abort();
        supervisor.gone().await;
        house.reap();
        child.signal(libc::SIGCONT);
        // What it would have become sleeps for ever.
        child.gone().await;
        house.assert_nothing_is_left();
    });
}

/// Stops a child of the keeper that does not carry a job's cookie yet, but has descriptors of its own: while it shares
/// the keeper's, the wire stays open and the supervisor does not see the keeper's end.
fn unmarked_child(house: &House, keeper: &Process, supervisor: u32) -> Option<Process> {
    let unmarked = |pid: u32| {
        let house_job = ostler_supervisor::tree::cookie::HOUSE_JOB;
        pid != supervisor && house.marks().job_of(pid) == Some(house_job)
    };
    let list = format!("/proc/{0}/task/{0}/children", keeper.pid);
    let children = std::fs::read_to_string(list);
    let children = children.expect("the keeper lives");
    let mut pids = children
        .split_whitespace()
        .map(|p| p.parse().expect("a number"));
    let child = Process::of(pids.rfind(|pid| unmarked(*pid))?)?;
    child.freeze();
    keeper.freeze();
    let shares = process::descriptors(child.pid) == process::descriptors(keeper.pid);
    if process::lives(child.pid) && unmarked(child.pid) && !shares {
        return Some(child);
    }
    keeper.signal(libc::SIGCONT);
    child.signal(libc::SIGCONT);
    None
}

/// Both are killed together: the next start ends the survivors before it answers.
#[test]
fn the_next_start_ends_what_two_killed_processes_left() {
    in_house(async |house| {
        let desk = house.desk();
        hostile_trees(&desk).await;
        house.kill_both().await;
        assert!(
            !house.marks().living().is_empty(),
            "somebody survives, else this proves nothing"
        );
        house.start();
        let house_job = ostler_supervisor::tree::cookie::HOUSE_JOB;
        let left: Vec<_> = house.marks().living();
        let jobs: Vec<_> = left
            .iter()
            .filter(|p| house.marks().job_of(**p) != Some(house_job))
            .collect();
        assert!(jobs.is_empty(), "{jobs:?} live beside the new house");
        assert!(house.desk().list().await.is_empty());
        let artifacts = ostler_tests::house::files_below(&house.folders().artifacts());
        assert!(artifacts.is_empty(), "{artifacts:?}");
    });
}

/// Without groups and cookies the environment says whose they are, and parents lead to those that have cleared it.
#[test]
fn the_next_start_on_the_links_rung_ends_what_two_killed_processes_left() {
    in_empty_house(async |house| {
        let links = [(RUNG_VARIABLE, "links")];
        house.start_with(&links);
        let desk = house.desk();
        let steps = "ignore TERM , fork [ setsid , ignore TERM , say ready , sleep ] , sleep";
        for _ in 0..5 {
            desk.ready(script(steps)).await;
        }
        house.kill_both().await;
        let left = house.marks().living();
        assert!(left.len() >= 10, "else this proves nothing: {left:?}");
        house.start_with(&links);
        let supervisor = house.info().await.hello.pid;
        let keeper = house.keeper().expect("it lives").pid;
        let mut jobs = house.marks().living();
        jobs.retain(|pid| ![supervisor, keeper].contains(pid));
        assert!(jobs.is_empty(), "{jobs:?} live beside the new house");
    });
}

/// A stop trusted the socket file, said that nobody ran, and the jobs lived on.
#[test]
fn a_stop_ends_what_two_killed_processes_left_although_their_socket_is_gone() {
    in_house(async |house| {
        let desk = house.desk();
        hostile_trees(&desk).await;
        house.kill_both().await;
        std::fs::remove_file(house.folders().socket()).expect("it is stale");
        assert!(
            !house.marks().living().is_empty(),
            "else this proves nothing"
        );
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
        house.assert_nothing_is_left();
        let again = house.cli(&["daemon", "stop"]);
        assert_eq!(
            (again.code, again.err.as_str()),
            (0, "no supervisor runs\n"),
            "{again:?}"
        );
    });
}

/// The same where the second one dies while it ends everything, at whatever moment of that.
#[test]
fn a_stop_ends_what_is_left_when_the_end_of_everything_was_cut_short() {
    in_house(async |house| {
        for round in 0..rounds("OSTLER_KILLS", 10) as u64 {
            let desk = house.desk();
            hostile_trees(&desk).await;
            let hello = house.info().await.hello;
            let [keeper, supervisor] = [hello.keeper_pid, hello.pid]
                .map(|pid| Process::of(pid).expect("it has just answered"));
            keeper.signal(libc::SIGKILL);
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(round * 700) {
                std::hint::spin_loop();
            }
            supervisor.signal(libc::SIGKILL);
            within(PATIENCE, "both ends", async {
                (keeper.gone().await, supervisor.gone().await)
            })
            .await;
            house.reap();
            let said = house.cli(&["daemon", "stop"]);
            assert_eq!(said.code, 0, "round {round}: {said:?}");
            house.assert_nothing_is_left();
            house.start();
        }
    });
}

/// A stop finds a house whose folder was taken away, and does not say that nobody runs.
#[test]
fn a_stop_ends_a_house_whose_folder_is_gone() {
    in_house(async |house| {
        hostile_trees(&house.desk()).await;
        std::fs::remove_dir_all(house.dir()).expect("it is there");
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.out.contains("stopped"), "{said:?}");
        house.reap();
        house.assert_nothing_is_left();
    });
}

/// While one that lost its keeper ends everything, a stop waits for that.
#[test]
fn a_stop_waits_for_who_is_ending_everything() {
    in_house(async |house| {
        hostile_trees(&house.desk()).await;
        let keeper = house.keeper().expect("it lives");
        keeper.signal(libc::SIGKILL);
        keeper.gone().await;
        house.reap();
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
        house.assert_nothing_is_left();
    });
}

/// The files of a house that kept crashing go with the next stop.
#[test]
fn a_stop_clears_what_a_house_that_kept_crashing_left() {
    in_empty_house(async |house| {
        house.start_with(&[("OSTLER_STEADY_MS", "600000")]);
        let desk = house.desk();
        desk.run(script("out 2000000")).await;
        let keeper = house.keeper().expect("it lives");
        for _ in 0..5 {
            house.kill_supervisor().await;
        }
        let pid = house.info().await.hello.pid;
        Process::of(pid)
            .expect("it has just answered")
            .signal(libc::SIGKILL);
        keeper.gone().await;
        house.reap();
        let left = ostler_tests::house::files_below(&house.folders().artifacts());
        assert!(!left.is_empty(), "else this proves nothing");
        assert_eq!(house.cli(&["daemon", "stop"]).code, 0);
        house.assert_nothing_is_left();
    });
}

/// Whoever takes the owner key away, a job perhaps, must not lock its owner out.
#[test]
fn an_owner_key_that_was_taken_away_is_put_back() {
    in_house(async |house| {
        let key = std::fs::read_to_string(house.folders().owner_key()).expect("it is there");
        std::fs::remove_file(house.folders().owner_key()).expect("it is there");
        let said = house.cli(&["daemon", "status", "--json"]);
        assert_eq!(said.code, 0, "{said:?}");
        let back = std::fs::read_to_string(house.folders().owner_key()).expect("it is back");
        assert_eq!(back, key);
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
        house.reap();
    });
}

/// G9.
#[test]
fn a_client_that_leaves_ends_nothing_and_comes_back_to_its_cursor() {
    in_house(async |house| {
        let fifo = house.fifo("go");
        let desk = house.desk();
        let row = desk
            .ready(script(&format!(
                "say ready , await {fifo} , say after , sleep"
            )))
            .await;
        drop(desk);
        house.open(&fifo).await;
        let desk = house.desk();
        let read = Read {
            id: row.id.clone(),
            since: Some(6),
            wait_ms: Some(10_000),
            ..Read::default()
        };
        assert_eq!(
            desk.must::<JobRead>(read).await.text.as_deref(),
            Some("after\n")
        );
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}

/// G11, 106: the loser says so in one calm line, and the house that is there does not notice.
#[test]
fn a_second_daemon_on_the_same_place_is_refused() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let output = house.ostler(&["daemon", "run"]).output().unwrap();
        let words = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(125), "{words}");
        assert_eq!(
            words.trim_end().lines().count(),
            2,
            "a line and a hint: {words}"
        );
        let pid = house.info().await.hello.keeper_pid.to_string();
        assert!(words.contains(&pid), "it names who has the place: {words}");
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        assert_eq!(house.info().await.hello.generation, 1);
    });
}

/// G11: a socket that nobody listens on any more is no house.
#[test]
fn a_stale_socket_is_taken_over() {
    in_house(async |house| {
        let before = house.info().await.hello;
        house.kill_both().await;
        assert!(
            house.folders().socket().exists(),
            "it is stale, else this proves nothing"
        );
        house.start();
        assert_ne!(house.info().await.hello.keeper_pid, before.keeper_pid);
    });
}

/// 104, 116: a cleaner took the socket, or everything.
#[test]
fn a_deleted_socket_is_bound_again_and_no_second_house_begins() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let before = house.info().await.hello;
        std::fs::remove_file(house.folders().socket()).unwrap();
        let client = Client::new(house.options(Mode::Start));
        let after = within(PATIENCE, "an answer", client.hello())
            .await
            .expect("the same house answers");
        assert_eq!(
            (after.keeper_pid, after.generation),
            (before.keeper_pid, before.generation)
        );
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        assert!(house.folders().socket().exists());
    });
}

/// 104: where the lock file was taken away too, both hold the new one: else the end of the keeper would let a second
/// house begin while the first still stops its jobs.
#[test]
fn a_house_that_bound_again_holds_the_new_lock_twice() {
    in_house(async |house| {
        use std::os::unix::fs::MetadataExt;
        house.desk().start(script("sleep")).await;
        let before = house.info().await.hello;
        for file in [house.folders().socket(), house.folders().house_lock()] {
            std::fs::remove_file(file).unwrap();
        }
        let client = Client::new(house.options(Mode::Start));
        let after = within(PATIENCE, "an answer", client.hello()).await;
        assert_eq!(after.unwrap().keeper_pid, before.keeper_pid);
        let lock = std::fs::metadata(house.folders().house_lock()).unwrap();
        for pid in [before.keeper_pid, before.pid] {
            let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let mut held = files
                .flatten()
                .filter_map(|f| std::fs::metadata(f.path()).ok());
            let held = held.any(|f| (f.dev(), f.ino()) == (lock.dev(), lock.ino()));
            assert!(held, "{pid} does not hold the lock");
        }
    });
}

/// 104: files are caches, the socket answers first.
#[test]
fn deleted_lock_files_do_not_make_a_second_house() {
    in_house(async |house| {
        let before = house.info().await.hello;
        let lock = std::fs::read(house.folders().house_lock()).unwrap();
        std::fs::remove_file(house.folders().house_lock()).unwrap();
        let _ = std::fs::remove_file(house.folders().start_lock());
        let client = Client::new(house.options(Mode::Start));
        let after = within(PATIENCE, "an answer", client.hello()).await.unwrap();
        assert_eq!(after.keeper_pid, before.keeper_pid);
        // For the end of the test, which finds the keeper by it.
        std::fs::write(house.folders().house_lock(), lock).unwrap();
    });
}

/// 098: trouble of a client's own is no sign of a dead house.
#[test]
fn a_client_in_trouble_does_not_take_the_socket_of_a_living_house() {
    in_house(async |house| {
        use std::os::unix::fs::MetadataExt;
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let before = house.info().await.hello;
        let socket = house.folders().socket();
        let inode = || std::fs::metadata(&socket).expect("it is there").ino();
        let its_inode = inode();
        // From too few to load the program up to nearly enough.
        for descriptors in 3..16 {
            let said = house.shell(&format!(
                "ulimit -n {descriptors}; exec ostler start -- true"
            ));
            assert_eq!(inode(), its_inode, "{descriptors}: {said:?}");
        }
        // Nobody takes the connections that wait, and no more of them may.
        let supervisor = Process::of(before.pid).expect("it has just answered");
        supervisor.freeze();
        let waiting = fill_backlog(&socket).await;
        let client = Client::new(house.options(Mode::Start));
        let asking = tokio::spawn(async move { client.hello().await });
        let mut asking = std::pin::pin!(asking);
        let early = tokio::time::timeout(Duration::from_millis(300), &mut asking).await;
        supervisor.signal(libc::SIGCONT);
        drop(waiting);
        let answer = match early {
            Ok(answer) => answer,
            Err(_) => within(PATIENCE, "an answer", asking).await,
        };
        if let Ok(hello) = answer.expect("asking does not panic") {
            assert_eq!(hello.keeper_pid, before.keeper_pid);
        }
        assert_eq!(inode(), its_inode);
        let after = house.info().await.hello;
        assert_eq!(
            (after.keeper_pid, after.generation),
            (before.keeper_pid, before.generation)
        );
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}

/// Connects until the listener's queue is full.
async fn fill_backlog(socket: &std::path::Path) -> Vec<UnixStream> {
    let mut waiting = Vec::new();
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => waiting.push(stream),
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "{error}");
                return waiting;
            }
        }
    }
}

/// 127: a long sleep of everything is not idleness and not a crash.
#[test]
fn a_house_that_was_stopped_as_a_whole_goes_on() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let hello = house.info().await.hello;
        let both = [hello.keeper_pid, hello.pid].map(|pid| Process::of(pid).unwrap());
        both.iter().for_each(Process::freeze);
        let asked = tokio::time::timeout(
            Duration::from_millis(300),
            desk.client.call::<SupervisorInfo>(Nothing {}),
        );
        assert!(asked.await.is_err(), "a stopped supervisor answered");
        both.iter().rev().for_each(|p| p.signal(libc::SIGCONT));
        assert_eq!(house.info().await.hello.generation, hello.generation);
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}

/// 107: the reason of a start that fails reaches the client that asked for it.
#[test]
fn a_start_that_fails_says_why_to_its_client() {
    in_empty_house(async |house| {
        std::fs::create_dir(house.folders().house_lock()).unwrap();
        let client = Client::new(house.options(Mode::Start));
        let error = within(PATIENCE, "an answer", client.hello())
            .await
            .expect_err("there is no house");
        let Error::Unavailable(why) = &error else {
            panic!("{error:?}")
        };
        assert!(
            matches!(
                &**why,
                Unavailable::Failed { .. } | Unavailable::Lock { .. }
            ),
            "{why:?}"
        );
        assert!(
            error.to_string().to_lowercase().contains("is a directory"),
            "{error}"
        );
        std::fs::remove_dir(house.folders().house_lock()).unwrap();
        within(PATIENCE, "an answer", client.hello())
            .await
            .expect("now it starts");
    });
}

/// Without a house nothing but a start makes one.
#[test]
fn a_client_that_only_looks_starts_nothing() {
    in_empty_house(async |house| {
        for mode in [Mode::Use, Mode::Look] {
            let client = Client::new(house.options(mode));
            let error = within(PATIENCE, "an answer", client.hello())
                .await
                .expect_err("nobody is there");
            let Error::Unavailable(why) = &error else {
                panic!("{error:?}")
            };
            assert!(matches!(**why, Unavailable::NotRunning), "{why:?}");
        }
        assert!(house.marks().living().is_empty());
    });
}

/// 134, 136: what is written to disk is for its owner alone.
#[test]
fn key_socket_and_log_are_private() {
    in_house(async |house| {
        use std::os::unix::fs::MetadataExt;
        let desk = house.desk();
        desk.run(script(&format!("out {}", 2 * RING))).await;
        let folders = house.folders();
        for path in [
            folders.owner_key(),
            folders.socket(),
            folders.log(),
            folders.house_lock(),
            folders.start_lock(),
        ] {
            let Ok(meta) = std::fs::metadata(&path) else {
                continue;
            };
            assert_eq!(
                meta.mode() & 0o077,
                0,
                "{} has mode {:o}",
                path.display(),
                meta.mode()
            );
        }
        assert_eq!(
            std::fs::metadata(folders.artifacts()).unwrap().mode() & 0o777,
            0o700
        );
        let key = std::fs::read_to_string(folders.owner_key()).unwrap();
        assert_eq!(key.trim().len(), 64);
        assert!(!house.log().contains(key.trim()));
    });
}

/// New work is refused while the house leaves, and old questions are still answered.
#[test]
fn nothing_new_is_taken_while_everything_is_being_stopped() {
    in_house(async |house| {
        let desk = house.desk();
        desk.ready(script("ignore TERM , say ready , sleep")).await;
        let stopping = house.desk_without_session();
        let stop = tokio::spawn(async move {
            stopping
                .must::<SupervisorStop>(StopSupervisor {
                    grace_ms: Some(1500),
                })
                .await
        });
        desk.until("t1", "the stop", |r| r.row.state == State::Stopping)
            .await;
        let refusal = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(refusal.kind, RefusalKind::Leaving);
        let summary = stop.await.unwrap();
        assert_eq!(summary.jobs[0].row.outcome, Some(Outcome::Stopped));
    });
}

/// A lease ends its session's jobs when the last client has been gone for its time, and not before.
#[test]
fn a_lease_ends_the_jobs_of_a_session_whose_clients_are_gone() {
    in_house(async |house| {
        let watcher = house.desk();
        let leased = house.desk_of(OpenSession {
            id: Some("leased".into()),
            lease_ms: Some(300),
            ..OpenSession::default()
        });
        let row = leased.start(script("sleep")).await;
        let begun = Instant::now();
        assert_eq!(
            watcher.wait_ms(&row.process_id, 600).await.row.state,
            State::Running,
            "a client is there"
        );
        drop(leased);
        let ended = watcher.wait(&row.process_id).await;
        assert_eq!(ended.outcome, Some(Outcome::Stopped));
        assert_eq!(ended.outcome_detail.unwrap().by.as_deref(), Some("lease"));
        assert!(
            begun.elapsed() >= Duration::from_millis(900),
            "{:?}",
            begun.elapsed()
        );
    });
}

/// 136: where the folder keeps nobody out, who a client is still decides.
#[test]
fn a_client_of_another_user_is_not_served_although_he_reaches_the_socket() {
    in_house(async |house| {
        if house.uid() != 0 {
            ostler_tests::skip("only the superuser can connect as somebody else");
            return;
        }
        let socket = house.folders().socket();
        for path in socket.ancestors().take(3) {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            std::fs::set_permissions(path, mode).unwrap();
        }
        let connect = move || {
            // SAFETY: the bare call, which changes this thread alone; it has nothing else to do.
            let changed = unsafe { libc::syscall(libc::SYS_setresuid, -1, NOBODY, -1) };
            assert_eq!(changed, 0, "{}", std::io::Error::last_os_error());
            std::os::unix::net::UnixStream::connect(socket).expect("everybody may connect")
        };
        let stream = std::thread::spawn(connect).join().unwrap();
        stream.set_nonblocking(true).unwrap();
        let mut stream = UnixStream::from_std(stream).unwrap();
        let ask = ostler_tests::wire::request(1, "supervisor/info", serde_json::json!({}));
        let _ = stream.write_all(&ostler_tests::wire::framed(&ask)).await;
        let mut told = Vec::new();
        let reading = stream.read_to_end(&mut told);
        // A reset is an end as well.
        let _ = within(PATIENCE, "the end of the connection", reading).await;
        assert!(told.is_empty(), "{}", String::from_utf8_lossy(&told));
        assert!(house.log().contains("of another user"), "{}", house.log());
    });
}

/// Nobody, everywhere.
const NOBODY: libc::c_long = 65_534;
