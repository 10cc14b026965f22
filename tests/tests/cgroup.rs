//! Promise: a job has a control group of its own where one may be made, its row says so, and no group is left.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ostler_proto::job::{JobResult, Row, State};
use ostler_proto::methods::JobStart;
use ostler_tests::groups::{self, Delegated};
use ostler_tests::process::Process;
use ostler_tests::{Desk, House, in_empty_house, in_house, ostler, puppet, script, skip, within};

/// The folder of the house, if it has one.
fn folder(house: &House) -> Option<PathBuf> {
    let mut found = groups::named(&house.marks().group());
    assert!(found.len() <= 1, "{found:?}");
    found.pop()
}

/// The groups of jobs, by number.
fn leaves(house: &House) -> Vec<String> {
    let folder = folder(house).expect("the house has groups");
    let below = groups::below(&folder);
    let names = below.iter().filter_map(|(path, _)| path.file_name());
    names
        .map(|name| name.to_string_lossy().into_owned())
        .collect()
}

async fn until_leaves(house: &House, wanted: &[&str]) {
    let seen = async {
        while leaves(house) != wanted {
            tokio::task::yield_now().await;
        }
    };
    within(ostler_tests::PATIENCE, "the groups", seen).await;
}

/// Runs a test in a house that is up, if it stands on this rung.
fn with_groups(test: impl AsyncFnOnce(&House, Desk)) {
    in_house(async |house| {
        let info = house.info().await;
        match info.rung.as_str() {
            "cgroup" => test(house, house.desk()).await,
            _ => skip(&format!("no control groups: {:?}", info.rung_why)),
        }
    });
}

/// A job that has ended, of which one is left who has lost everything but the group.
async fn lost(desk: &Desk) -> Row {
    let steps = "lower , orphan [ say ready , sleep ] , exit 0";
    let words = ["/usr/bin/env", "-i", puppet()].into_iter();
    let row = desk
        .ready(ostler_tests::command(words.chain(steps.split(' '))))
        .await;
    let ended = desk.until(&row.id, "its end", |r| r.row.state == State::Exited);
    ended.await.row
}

#[test]
fn a_group_holds_the_whole_tree_and_goes_with_its_last_member() {
    with_groups(async |house, desk| {
        let row = desk
            .ready(script("orphan [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        let tree = desk.get(&row.id).await.row.tree;
        assert_eq!((tree.rung.as_str(), tree.rung_why), ("cgroup", None));
        let leaf = folder(house).expect("it has groups").join("1");
        let listed = fs::read_to_string(leaf.join("cgroup.procs")).expect("there is a group");
        let mut listed: Vec<u32> = listed
            .lines()
            .map(|l| l.parse().expect("a number"))
            .collect();
        let mut told = tree.pids.expect("it was asked for them");
        listed.sort_unstable();
        told.sort_unstable();
        assert_eq!((told.len(), &told), (2, &listed));
        // The main process alone ends.
        Process::of(row.pid.expect("it runs"))
            .expect("it lives")
            .signal(libc::SIGKILL);
        let left = |r: &JobResult| r.row.state == State::Exited && r.row.tree.left == 1;
        desk.until(&row.id, "what is left", left).await;
        assert_eq!(leaves(house), ["1"]);
        desk.stop(&row.id, 0).await;
        until_leaves(house, &[]).await;
    });
}

#[test]
fn a_job_that_ends_by_itself_or_never_runs_leaves_no_group() {
    with_groups(async |house, desk| {
        desk.run(script("exit 3")).await;
        desk.run(script("subgroup a , subgroup b , exit 0")).await;
        let missing = ostler_tests::command(["/nowhere/at/all"]);
        desk.must::<JobStart>(missing).await;
        until_leaves(house, &[]).await;
    });
}

/// Members that no cookie tells are members all the same.
#[test]
fn who_has_lost_everything_but_the_group_is_listed_signalled_and_counted() {
    with_groups(async |_, desk| {
        let row = lost(&desk).await;
        assert_eq!(row.tree.left, 1);
        let tree = desk.get(&row.id).await.row.tree;
        assert_eq!(tree.pids.map(|p| p.len()), Some(1));
        // The polite signal alone does it: the grace is longer than anybody's patience.
        let receipt = desk.stop(&row.id, 60_000).await;
        assert_eq!((receipt.ended, receipt.forced), (1, 0));
    });
}

/// A sandbox around the house may know the older call alone: the child goes into its group by itself then.
#[test]
fn without_the_call_that_bears_into_a_group_the_child_enters_its_own() {
    in_empty_house(async |house| {
        house.start_after(refuse_clone3);
        if house.info().await.rung != "cgroup" {
            return skip("no control groups here");
        }
        let desk = house.desk();
        let row = desk
            .ready(script("fork [ setsid , sleep ] , say ready , sleep"))
            .await;
        let tree = desk.get(&row.id).await.row.tree;
        assert_eq!(
            (tree.rung.as_str(), leaves(house)),
            ("cgroup", vec!["1".into()])
        );
        assert_eq!(desk.stop(&row.id, 3000).await.ended, 2);
    });
}

/// As filters of system calls do: the library falls back, and so must we.
fn refuse_clone3() -> io::Result<()> {
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let equal = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    let answer = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut lines = [
        line(load, 0, 0, 0),
        line(equal, 0, 1, libc::SYS_clone3 as u32),
        line(answer, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
        line(answer, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: lines.len() as u16,
        filter: lines.as_mut_ptr(),
    };
    // SAFETY: the program and its lines outlive the calls.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(
                libc::PR_SET_SECCOMP,
                libc::SECCOMP_MODE_FILTER,
                &raw const program,
            ) == 0
    };
    done.then_some(()).ok_or_else(io::Error::last_os_error)
}

/// The row tells what is true of this job, not of the house.
#[test]
fn a_job_whose_group_was_refused_stands_on_the_next_rung_and_says_so() {
    with_groups(async |house, desk| {
        let most = folder(house)
            .expect("it has groups")
            .join("cgroup.max.descendants");
        let file = fs::OpenOptions::new().write(true).open(most);
        io::Write::write_all(&mut file.expect("it is ours"), b"0").expect("it can be set");
        let row = desk
            .ready(script("fork [ setsid , sleep ] , say ready , sleep"))
            .await;
        assert_eq!(desk.get(&row.id).await.row.tree.rung, "cookie");
        assert_eq!(desk.stop(&row.id, 3000).await.ended, 2);
    });
}

/// The next start finds what the last one had elsewhere, also who carries no mark any more.
#[test]
fn groups_that_two_killed_processes_left_in_another_place_are_cleared() {
    // SAFETY: geteuid has no precondition.
    let Some(place) = Delegated::to(unsafe { libc::geteuid() }) else {
        return skip("no control group can be made here");
    };
    in_empty_house(async |house| {
        let door = place.door();
        house.start_after(move || fs::write(&door, "0"));
        if house.info().await.rung != "cgroup" {
            return skip("no control groups here");
        }
        let desk = house.desk();
        lost(&desk).await;
        let was = folder(house).expect("it has groups");
        assert_eq!(was.parent(), Some(place.folder()));
        let member = only_member(&was);
        drop(desk);
        house.kill_both().await;
        assert!(was.exists(), "nobody has cleared it yet");
        house.start();
        assert!(!was.exists(), "a group of the dead house is left");
        member.gone().await;
        let now = folder(house).expect("it has groups");
        assert_eq!(now.parent(), groups::own().as_deref());
    });
}

/// Who lives in the group of the first job.
fn only_member(groups: &Path) -> Process {
    let member = fs::read_to_string(groups.join("1/cgroup.procs")).expect("it has members");
    let pid = member.trim().parse().expect("it is one");
    Process::of(pid).expect("it lives")
}

/// Where the first one of them had died in the same place.
#[test]
fn the_next_house_in_the_same_place_ends_what_is_in_its_groups() {
    with_groups(async |house, desk| {
        lost(&desk).await;
        let member = only_member(&folder(house).expect("it has groups"));
        house.kill_both().await;
        house.start();
        member.gone().await;
        until_leaves(house, &[]).await;
    });
}

#[test]
fn a_house_in_a_job_has_its_groups_in_the_group_of_the_job() {
    with_groups(async |house, desk| {
        let inner = house.path("n");
        fs::create_dir(&inner).expect("it can be made");
        let line = format!(
            "export OSTLER_DIR={inner}; {o} daemon start -q && {o} start -q -- {p} sleep; \
             echo ready; exec {p} sleep",
            o = ostler().display(),
            p = puppet()
        );
        let row = desk
            .ready(ostler_tests::command(["bash", "-c", &line]))
            .await;
        let leaf = folder(house).expect("it has groups").join("1");
        let name = ostler_tests::process::Marks::of(Path::new(&inner)).group();
        assert_eq!(groups::named(&name), [leaf.join(&name)]);
        assert_eq!(groups::below(&leaf.join(&name)).len(), 1);
        let receipt = desk.stop(&row.id, 0).await;
        assert!(receipt.survivors.is_empty(), "{receipt:?}");
        until_leaves(house, &[]).await;
    });
}

#[test]
fn a_lower_rung_is_taken_when_it_is_wanted_and_the_reason_is_told() {
    for rung in ["cookie", "links"] {
        in_empty_house(async |house| {
            house.start_with(&[("OSTLER_RUNG", rung)]);
            assert_eq!(house.info().await.rung, rung);
            let row = house.desk().start(script("sleep")).await;
            let tree = house.desk().get(&row.id).await.row.tree;
            assert_eq!(tree.rung, rung);
            let why = "cgroup: not wanted (OSTLER_RUNG)";
            assert_eq!(tree.rung_why.as_deref(), Some(why));
            let shown = house.cli(&["show", &row.id, "--session", "x"]);
            let words = format!("found by {rung} ({why})");
            assert!(shown.out.contains(&words), "{shown:?}");
            assert_eq!(folder(house), None);
        });
    }
}

#[test]
fn a_rung_that_is_none_is_refused_by_its_name() {
    in_empty_house(async |house| {
        let mut command = house.ostler(&["daemon", "run"]);
        let said = command
            .env("OSTLER_RUNG", "ladder")
            .output()
            .expect("it can be executed");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let words = "failed: OSTLER_RUNG is `ladder`: it may be cgroup, cookie or links\n";
        assert_eq!(said, words);
    });
}
