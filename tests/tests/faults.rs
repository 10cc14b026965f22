//! Promise: what fails around the house costs what it must and no more: other jobs and other clients go on, and the
//! record says what happened. DESIGN.md sections 5 and 6. Every fault is a real one, but for the clocks of the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use ostler_proto::job::{JobResult, Outcome, Row, State};
use ostler_proto::limits::RING;
use ostler_proto::methods::{JobGet, JobStart, Nothing, OpenSession, SessionList, Start, Target};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::desk::{command, script};
use ostler_tests::house::{House, as_ordinary_user, in_empty_house, in_house};
use ostler_tests::process;
use ostler_tests::{Desk, HungFolder, Mount, PATIENCE, within};

/// Far above what a start, a list or a stop takes, far below what hangs.
const PROMPTLY: Duration = Duration::from_secs(5);

/// Two rings and a bit: it must spill.
const LONG: u64 = 3 * RING;

/// Somebody else's work goes on as if nothing had happened.
async fn assert_others_go_on(desk: &Desk) {
    let begun = Instant::now();
    let row = desk.run(script("out 5000 , exit 4")).await.row;
    assert_eq!((row.exit_code, row.output.lost), (Some(4), 0), "{row:?}");
    desk.assert_pattern(&row.id, 5000).await;
    let row = desk
        .ready(script("fork [ ignore TERM , sleep ] , say ready , sleep"))
        .await;
    assert!(desk.list().await.iter().any(|r| r.id == row.id));
    let receipt = desk.stop(&row.id, 50).await;
    assert_eq!(
        (receipt.ended, receipt.survivors.len()),
        (2, 0),
        "{receipt:?}"
    );
    assert!(begun.elapsed() < PROMPTLY, "{:?}", begun.elapsed());
}

#[test]
fn a_disk_that_became_read_only_costs_the_long_logs_alone() {
    in_empty_house(async |house| {
        let artifacts = house.folders().artifacts();
        fs::create_dir(&artifacts).expect("it can be made");
        let Some(disk) = Mount::disk(&artifacts, 16 << 30) else {
            return;
        };
        house.start();
        let desk = house.desk();
        assert_others_go_on(&desk).await;
        disk.lock(true);
        assert_others_go_on(&desk).await;
        let row = desk.run(script(&format!("out {LONG} , exit 3"))).await.row;
        assert_eq!(row.exit_code, Some(3));
        let why = row
            .output
            .spill_stopped
            .clone()
            .expect("nothing can be written");
        assert!(why.contains("Read-only"), "{why}");
        assert!(row.output.lost >= LONG - RING, "{row:?}");
        // A session whose folder cannot be made is a session all the same.
        let fresh = house.desk_of(OpenSession {
            id: Some("fresh".into()),
            ..OpenSession::default()
        });
        assert_others_go_on(&fresh).await;
        disk.lock(false);
        let whole = desk.run(script(&format!("out {LONG}"))).await.row;
        assert_eq!((whole.output.lost, whole.output.spill_stopped), (0, None));
        desk.assert_pattern(&whole.id, LONG).await;
    });
}

#[test]
fn a_disk_that_does_not_answer_holds_up_the_jobs_that_write_to_it_and_nobody_else() {
    in_empty_house(async |house| {
        let artifacts = house.folders().artifacts();
        fs::create_dir(&artifacts).expect("it can be made");
        let Some(_disk) = Mount::disk(&artifacts, 16 << 30) else {
            return;
        };
        house.start();
        let desk = house.desk();
        let first = desk.run(script(&format!("out {LONG} , exit 3"))).await.row;
        let spill = first.output.spill.expect("it overflowed");
        let folder = Path::new(&spill).parent().expect("it is in a folder");
        let Some(mut hung) = HungFolder::over(folder) else {
            return;
        };
        let row = desk
            .start(script(&format!("out {LONG} , say done , sleep")))
            .await;
        hung.has_caught_somebody();
        assert_others_go_on(&desk).await;
        // It waits for the disk, and can be read and ended meanwhile.
        let now = desk.get(&row.id).await.row;
        assert_eq!(now.state, State::Running);
        let page = desk.read(&row.id, 0).await;
        assert_eq!((page.from, page.lost), (0, 0));
        let receipt = desk.stop(&row.id, 50).await;
        assert!(receipt.survivors.is_empty(), "{receipt:?}");
        // Whoever asks of that disk waits for it; many who ask again and again hold up nobody else (32 once did).
        let asking: Vec<_> = (0..80)
            .map(|_| {
                let (desk, id) = (house.desk(), first.id.clone());
                tokio::spawn(async move { desk.read_raw(&id, 0, 1000).await.0.lost })
            })
            .collect();
        let pid = house.info().await.hello.pid;
        let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        let all = async {
            while threads() < asking.len() {
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, "a thread for each who waits", all).await;
        assert_others_go_on(&desk).await;
        asking.iter().for_each(tokio::task::JoinHandle::abort);
        drop(hung);
        assert_eq!(desk.wait(&row.id).await.outcome, Some(Outcome::Stopped));
    });
}

#[test]
fn a_start_whose_disk_does_not_answer_says_so() {
    in_empty_house(async |house| {
        let artifacts = house.folders().artifacts();
        fs::create_dir(&artifacts).expect("it can be made");
        let Some(_hung) = HungFolder::over(&artifacts) else {
            return;
        };
        // The supervisor hangs in the kernel and cannot even end; its words come all the same.
        let said = house.try_start();
        let words = format!("the disk of {} does not answer", artifacts.display());
        assert!(said.contains(&words), "{said}");
    });
}

#[test]
fn a_log_is_whole_although_its_folder_was_cleaned_away() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let steps = format!("out {LONG} , await {fifo} , out {LONG} , exit 3");
        let row = desk.start(script(&steps)).await;
        let spilled = |r: &JobResult| r.row.output.end == LONG && r.row.output.spill.is_some();
        desk.until(&row.id, "the first part", spilled).await;
        fs::remove_dir_all(house.folders().artifacts()).expect("it is there");
        house.open(&fifo).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!(
            (ended.exit_code, ended.output.lost),
            (Some(3), 0),
            "{ended:?}"
        );
        desk.assert_pattern(&row.id, 2 * LONG).await;
        // Cleaned away after its end, or found by a new supervisor: what is gone is told.
        house.kill_supervisor().await;
        let page = desk.read(&row.id, 0).await;
        assert_eq!(page.lost, 2 * LONG - RING, "{page:?}");
        let why = desk.get(&row.id).await.row.output.spill_stopped;
        assert!(why.is_some_and(|w| w.contains("cannot be read any more")));
        // And the next one has a folder again.
        let next = desk.run(script(&format!("out {LONG}"))).await.row;
        assert_eq!((next.output.lost, next.output.spill_stopped), (0, None));
        desk.assert_pattern(&next.id, LONG).await;
    });
}

#[test]
fn a_house_whose_whole_folder_was_cleaned_away_is_found_again() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let before = house.info().await.hello;
        fs::remove_dir_all(house.dir()).expect("it is there");
        // As a command does that may start a house.
        let said = house.cli(&["start", "--session", "x", "--", "true"]);
        assert_eq!(said.code, 0, "{said:?}");
        let after = house.info().await.hello;
        assert_eq!(
            (after.keeper_pid, after.generation),
            (before.keeper_pid, before.generation)
        );
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        assert_others_go_on(&desk).await;
    });
}

/// The lock of starters is gone with it; a supervisor that wanted it was replaced by the next, for ever.
#[test]
fn an_idle_house_leaves_although_its_folder_was_cleaned_away() {
    in_empty_house(async |house| {
        let config = "[supervisor]\nleave_after = \"300ms\"\n";
        fs::write(&house.folders().config, config).expect("the folder is ours");
        house.start();
        let keeper = house.keeper().expect("it lives");
        fs::remove_dir_all(house.dir()).expect("it is there");
        within(PATIENCE, "the end of the house", keeper.gone()).await;
    });
}

/// A client waited for 15 seconds and said that nobody answered.
#[test]
fn a_folder_in_the_place_of_the_socket_is_named_and_the_house_goes_on_without_it() {
    in_house(async |house| {
        let row = house.desk().start(script("sleep")).await;
        let socket = house.folders().socket();
        fs::remove_file(&socket).expect("it is there");
        fs::create_dir(&socket).expect("its place is free");
        let path = socket.display();
        for args in [
            &["ls"][..],
            &["daemon", "status"],
            &["start", "--", "true"],
            &["daemon", "stop"],
        ] {
            let said = house.cli(args);
            let words = format!(
                "{path} is a folder, not a socket\nhint: move it away: mv {path} {path}.old\n"
            );
            assert_eq!(said.code, 125, "{said:?}");
            assert!(said.err.ends_with(&words), "{said:?}");
        }
        fs::remove_dir(&socket).expect("it is empty");
        let said = house.cli(&["ls", "-q", "--session", "x"]);
        assert_eq!((said.code, said.out), (0, format!("x/{}\n", row.id)));
    });
}

#[test]
fn a_folder_that_its_owner_has_shut_is_named_with_what_opens_it() {
    if !as_ordinary_user("a_folder_that_its_owner_has_shut_is_named_with_what_opens_it") {
        return;
    }
    in_house(async |house| {
        let shut = |mode| fs::set_permissions(house.dir(), fs::Permissions::from_mode(mode));
        shut(0o000).expect("it is ours");
        let said = house.cli(&["ls"]);
        shut(0o700).expect("it is ours");
        let hint = format!(
            "hint: its folder is shut (mode 000): chmod 700 {}\n",
            house.dir().display()
        );
        assert_eq!(said.code, 125);
        assert!(said.err.ends_with(&hint), "{said:?}");
    });
}

#[test]
fn so_few_descriptors_that_no_job_could_run_are_named_at_the_start() {
    in_empty_house(async |house| {
        for few in [16, 48, 133] {
            let said = house.try_start_with_limit(libc::RLIMIT_NOFILE, few);
            let words =
                format!("failed: {few} open files are allowed (ulimit -Hn) and 134 are needed");
            assert!(said.starts_with(&words), "{said:?}");
        }
        house.start_with_descriptors(134);
        house.desk().ready(script("say ready , sleep")).await;
    });
}

#[test]
fn a_child_that_hangs_in_its_directory_holds_up_no_other_start() {
    in_empty_house(async |house| {
        let folder = house.file("hung");
        fs::create_dir(&folder).expect("it can be made");
        let Some(mut hung) = HungFolder::over(&folder) else {
            return;
        };
        house.start();
        let desk = house.desk();
        let asked = Instant::now();
        let start = Start {
            cwd: Some(house.path("hung/inside")),
            ..script("exit 0")
        };
        let row = desk.must::<JobStart>(start).await;
        hung.has_caught_somebody();
        assert!(asked.elapsed() < PROMPTLY, "{:?}", asked.elapsed());
        assert_eq!(row.state, State::Starting, "{row:?}");
        assert_others_go_on(&desk).await;
        house.kill_supervisor().await;
        assert_others_go_on(&desk).await;
        drop(hung);
        let failed = desk.wait(&row.id).await;
        assert_eq!(failed.outcome, Some(Outcome::SpawnFailed), "{failed:?}");
        assert_eq!(failed.spawn_error.map(|e| e.step), Some("cwd".into()));
    });
}

#[test]
fn a_start_for_which_no_process_can_be_made_is_a_row_that_says_so() {
    if !as_ordinary_user("a_start_for_which_no_process_can_be_made_is_a_row_that_says_so") {
        return;
    }
    in_house(async |house| {
        let desk = house.desk();
        let beside = desk.ready(script("say ready , sleep")).await;
        let keeper = house.keeper().expect("it lives").pid;
        process::forbid_children(keeper);
        let row = desk.run(script("exit 0")).await.row;
        assert_eq!(row.outcome, Some(Outcome::SpawnFailed), "{row:?}");
        let error = row.spawn_error.expect("it says why");
        assert_eq!(error.errno, libc::EAGAIN, "{error:?}");
        assert_eq!(desk.get(&beside.id).await.row.state, State::Running);
        let receipt = desk.stop(&beside.id, 100).await;
        assert!(receipt.survivors.is_empty(), "{receipt:?}");
    });
}

#[test]
fn a_small_limit_on_files_in_the_starters_shell_does_not_bind_the_house() {
    in_empty_house(async |house| {
        let said = house.try_start_with_limit(libc::RLIMIT_FSIZE, 4096);
        // Who has the right raises it again.
        let raised = house.shell("ulimit -f 8 && ulimit -f unlimited").code == 0;
        if !raised {
            assert!(said.contains("file size limit of 4096 bytes"), "{said}");
            assert!(said.contains("ulimit -f"), "{said}");
            return;
        }
        assert_eq!(said.trim(), "ready");
        let desk = house.desk();
        let row = desk.run(script(&format!("out {LONG}"))).await.row;
        assert_eq!((row.output.lost, row.output.spill_stopped), (0, None));
        desk.assert_pattern(&row.id, LONG).await;
        // The job has what its starter had.
        let limit = desk.run(command(["sh", "-c", "ulimit -f"])).await;
        assert_eq!(limit.stdout.as_deref(), Some("8\n"), "blocks of 512 bytes");
    });
}

#[test]
fn an_ordinary_users_small_limit_on_files_is_named_at_the_start() {
    if as_ordinary_user("an_ordinary_users_small_limit_on_files_is_named_at_the_start") {
        a_small_limit_on_files_in_the_starters_shell_does_not_bind_the_house();
    }
}

#[test]
fn a_house_with_room_for_few_descriptors_serves_what_fits_and_refuses_the_rest() {
    if !as_ordinary_user(
        "a_house_with_room_for_few_descriptors_serves_what_fits_and_refuses_the_rest",
    ) {
        return;
    }
    in_empty_house(async |house| {
        house.start_with_descriptors(256);
        let desk = house.desk();
        let mut live = Vec::new();
        let refusal = loop {
            match desk.call::<JobStart>(script("sleep")).await {
                Ok(row) => live.push(row),
                Err(refusal) => break refusal,
            }
        };
        assert!(live.len() >= 20, "{} and then {refusal:?}", live.len());
        assert!(refusal.to_string().contains("descriptors"), "{refusal:?}");
        // Everything else is served.
        assert_eq!(desk.list().await.len(), live.len());
        desk.stop(&live.pop().expect("there are some").id, 100)
            .await;
        assert_others_go_on(&desk).await;
    });
}

#[test]
fn jobs_run_although_the_user_has_used_up_the_pages_of_pipes() {
    if !as_ordinary_user("jobs_run_although_the_user_has_used_up_the_pages_of_pipes") {
        return;
    }
    in_house(async |house| {
        let desk = house.desk();
        let hoard = hoard_of_pipes();
        let row = desk
            .run(script(&format!("out {LONG} , err 9000 , exit 5")))
            .await
            .row;
        assert_eq!((row.exit_code, row.output.lost), (Some(5), 0), "{row:?}");
        house.kill_supervisor().await;
        assert_others_go_on(&desk).await;
        drop(hoard);
    });
}

/// Pipes, each as large as it may be, until the user may have no larger ones.
fn hoard_of_pipes() -> Vec<(std::io::PipeReader, std::io::PipeWriter)> {
    use std::os::fd::AsRawFd;
    let mut hoard = Vec::new();
    loop {
        let pipe = std::io::pipe().expect("there are descriptors");
        // SAFETY: fcntl with an integer argument on a descriptor that we own.
        let size = unsafe { libc::fcntl(pipe.1.as_raw_fd(), libc::F_SETPIPE_SZ, 1 << 20) };
        hoard.push(pipe);
        if size < 0 {
            return hoard;
        }
    }
}

/// Shifts the wall clock and the machine's sleep, in milliseconds.
fn set_clocks(house: &House, wall: i64, slept: i64) {
    let fresh = house.file("clocks.new");
    fs::write(&fresh, format!("{wall} {slept}")).expect("it can be written");
    fs::rename(fresh, house.file("clocks")).expect("it can be moved");
}

const HOUR: i64 = 3_600_000;

async fn house_with_clocks(house: &House) -> (Desk, Row, Row) {
    set_clocks(house, 0, 0);
    let clocks = house.path("clocks");
    house.start_with(&[("OSTLER_CLOCKS", clocks.as_str())]);
    let desk = house.desk_of(OpenSession {
        id: Some("x".into()),
        lease_ms: Some(3 * HOUR as u64 / 2),
        ..OpenSession::default()
    });
    let ended = desk.run(script("out 100 , exit 3")).await.row;
    let start = Start {
        timeout_ms: Some(HOUR as u64),
        ..script("sleep")
    };
    let live = desk.start(start).await;
    (desk, ended, live)
}

/// 127: neither a limit, a lease nor what is kept goes by a clock that somebody may set.
#[test]
fn a_wall_clock_that_jumps_ends_nothing_and_forgets_nothing() {
    in_empty_house(async |house| {
        let (desk, ended, live) = house_with_clocks(house).await;
        for wall in [48 * HOUR, -48 * HOUR] {
            set_clocks(house, wall, 0);
            for _ in 0..2 {
                let now = desk.get(&live.id).await.row;
                assert_eq!(
                    (now.state, now.slept_ms),
                    (State::Running, 0),
                    "{wall}: {now:?}"
                );
                let kept = desk.get(&ended.id).await.row;
                assert_eq!(kept.exit_code, Some(3), "{wall}: {kept:?}");
                let next = desk.run(script("exit 0")).await.row;
                let (from, to) = (next.started_at, next.finished_at.expect("it has ended"));
                assert!(from <= to && to - from < 60_000, "{wall}: {next:?}");
                house.kill_supervisor().await;
            }
        }
        let receipt = desk.stop(&live.id, 100).await;
        let row = receipt.row;
        assert!(
            row.duration_ms.expect("it has ended") < HOUR as u64,
            "{row:?}"
        );
        assert!(row.finished_at >= Some(row.started_at), "{row:?}");
    });
}

/// Sleep of the machine is no idleness and no run time; the row says how long it was.
#[test]
fn sleep_of_the_machine_counts_against_nobody_and_is_told() {
    in_empty_house(async |house| {
        let (desk, ended, live) = house_with_clocks(house).await;
        let slept = 8 * HOUR;
        set_clocks(house, slept, slept);
        let now = desk.get(&live.id).await.row;
        assert_eq!(now.state, State::Running);
        assert!(now.slept_ms.abs_diff(slept as u64) < 5_000, "{now:?}");
        house.kill_supervisor().await;
        assert_eq!(desk.get(&live.id).await.row.state, State::Running);
        assert_eq!(desk.get(&ended.id).await.row.exit_code, Some(3));
        let row = desk.stop(&live.id, 100).await.row;
        assert!(
            row.duration_ms.expect("it has ended") < HOUR as u64,
            "{row:?}"
        );
        assert!(row.slept_ms.abs_diff(slept as u64) < 5_000, "{row:?}");
        // What is kept for a day is kept for a day of the machine's, asleep or not.
        set_clocks(house, 40 * HOUR, 40 * HOUR);
        desk.run(script("exit 0")).await;
        let gone = within(PATIENCE, "the old record to go", async {
            loop {
                if let Err(refusal) = desk.call::<JobGet>(target(&ended.id)).await {
                    return refusal;
                }
                desk.run(script("exit 0")).await;
            }
        });
        assert_eq!(gone.await.kind, RefusalKind::Gone);
        let sessions = desk.must::<SessionList>(Nothing {}).await;
        assert!(!sessions.sessions.is_empty(), "somebody is in it");
    });
}

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

/// Whatever moment a signal comes at, the house is up or it is gone.
#[test]
fn a_signal_at_any_moment_of_a_start_or_an_end_leaves_nothing() {
    in_empty_house(async |house| {
        for round in 0..ostler_tests::rounds("OSTLER_SIGNALS", 24) {
            let keeper = house.begin();
            let moment = Duration::from_micros(700 * round as u64);
            let begun = Instant::now();
            while begun.elapsed() < moment {
                std::hint::spin_loop();
            }
            let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
            // A second one in the middle of the end.
            keeper.signal(signals[round % 3]);
            std::thread::yield_now();
            keeper.signal(signals[(round + 1) % 3]);
            assert!(keeper.gone_within(PATIENCE), "round {round}");
            house.reap();
            house.assert_nothing_is_left();
        }
    });
}

/// A memory group of its own for both processes and what they start; removed when dropped.
struct Memory(std::path::PathBuf);

impl Memory {
    /// Nothing where this user may not make one, or where the kernel has another kind.
    fn of(pids: &[u32], bytes: u64) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let place = own.lines().find_map(|line| line.split_once(":memory:"));
        let above = Path::new("/sys/fs/cgroup/memory").join(place?.1.trim_start_matches('/'));
        let folder = above.join(format!("ostler-test-{}", std::process::id()));
        let made = fs::create_dir(&folder).and_then(|()| {
            fs::write(folder.join("memory.limit_in_bytes"), bytes.to_string())?;
            let group = folder.join("cgroup.procs");
            pids.iter()
                .try_for_each(|pid| fs::write(&group, pid.to_string()))
        });
        let memory = Self(folder);
        made.is_ok().then_some(memory)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let above = self.0.parent().map(|above| above.join("cgroup.procs"));
        let members = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        // What is left goes back to where it came from; a group with members cannot be removed.
        for pid in members.lines() {
            let _ = above.as_ref().map(|above| fs::write(above, pid));
        }
        let _ = fs::remove_dir(&self.0);
    }
}

/// The kernel ends the job that eats the memory, not who looks after it, and the row says that it was killed.
#[test]
fn when_memory_runs_out_the_job_that_eats_it_is_taken_and_nobody_else() {
    in_house(async |house| {
        let desk = house.desk();
        let beside = desk
            .start(script(&format!(
                "until {} 4099 10 , exit 6",
                house.path("over")
            )))
            .await;
        let hello = house.info().await.hello;
        let Some(_memory) = Memory::of(&[hello.keeper_pid, hello.pid], 96 << 20) else {
            ostler_tests::skip("no memory group can be made here");
            return;
        };
        let hungry = "x=abcdefghijklmnop; while :; do x=$x$x; done";
        for _ in 0..3 {
            let row = desk.run(command(["bash", "-c", hungry])).await.row;
            let told = (row.outcome, row.signal.as_deref());
            assert_eq!(told, (Some(Outcome::Signaled), Some("SIGKILL")), "{row:?}");
        }
        let after = house.info().await.hello;
        assert_eq!(
            (after.keeper_pid, after.generation),
            (hello.keeper_pid, hello.generation)
        );
        // More output than there is memory goes through the ring to the disk.
        let row = desk.run(script("out 200000000 , exit 5")).await.row;
        assert_eq!((row.exit_code, row.output.lost), (Some(5), 0), "{row:?}");
        assert_others_go_on(&desk).await;
        fs::write(house.path("over"), "").expect("a file can be made");
        let row = desk.wait(&beside.id).await;
        assert_eq!((row.exit_code, row.output.lost), (Some(6), 0));
    });
}
