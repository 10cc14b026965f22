//! Promise: what cannot be ended is named and keeps its place, and it holds up nobody.

use std::time::{Duration, Instant};

use ostler_proto::job::{JobResult, Outcome, Row, State, Survivor};
use ostler_proto::methods::{
    CloseSession, JobRelease, JobStart, JobStop, OpenSession, Receipt, SessionClose, Stop,
    StopSupervisor, SupervisorStop, Target,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::house::as_ordinary_user_with_root_puppet;
use ostler_tests::process::{self, Process};
use ostler_tests::{Desk, House, HungFolder, command, in_empty_house, in_house, script};

/// The grace of these stops, the forced end of two seconds, and a busy machine.
const BOUND: Duration = Duration::from_secs(10);

/// A session in which one command may live.
fn narrow(house: &House) -> Desk {
    house.desk_of(OpenSession {
        id: Some("narrow".into()),
        commands: Some(1),
        ..OpenSession::default()
    })
}

/// Stops what cannot be ended; the answer comes in time and names this process.
async fn stop_names(desk: &Desk, row: &Row, pid: u32, why: &str) -> Receipt {
    let begun = Instant::now();
    let receipt = desk.stop(&row.id, 100).await;
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    let survivor = Survivor {
        pid,
        program: "puppet".into(),
        why: why.into(),
    };
    assert_eq!(receipt.survivors, [survivor]);
    assert!(!receipt.already_finished, "{receipt:?}");
    receipt
}

/// The job is not over: its row says so, and nobody gets its place.
async fn assert_it_keeps_its_place(desk: &Desk, row: &Row) {
    let now = desk.get(&row.id).await.row;
    assert_eq!((now.state, now.outcome), (State::Stopping, None), "{now:?}");
    let refusal = desk.refused::<JobStart>(script("sleep")).await;
    assert_eq!(refusal.kind, RefusalKind::Limit);
    assert_eq!(refusal.data["rows"][0]["id"], row.id, "{refusal:?}");
    assert_eq!(refusal.data["rows"][0]["state"], "stopping", "{refusal:?}");
}

/// Once the last member is gone, the job is over and its place free.
async fn assert_it_ends(desk: &Desk, row: &Row) -> Row {
    let ended = desk.over(&row.id).await;
    assert_eq!(ended.outcome, Some(Outcome::Stopped));
    let next = desk.run(script("exit 0")).await.row;
    assert_eq!(next.exit_code, Some(0));
    ended
}

/// Processor time that a process has used so far.
fn used(pid: u32) -> Duration {
    Duration::from_millis(ostler_supervisor::stats::usage(&[pid]).cpu_ms)
}

/// A folder whose file system does not answer; nothing where this user may not make one. The house is started.
fn hung_folder(house: &House) -> Option<HungFolder> {
    let folder = house.file("hung");
    std::fs::create_dir(&folder).expect("it can be made");
    let hung = HungFolder::over(&folder);
    if hung.is_some() {
        house.start();
    }
    hung
}

/// A job whose main process hangs in the kernel.
async fn hang(house: &House, desk: &Desk, hung: &mut HungFolder) -> (Row, u32) {
    let row = desk
        .start(script(&format!("touch {}/file", house.path("hung"))))
        .await;
    hung.has_caught_somebody();
    let pid = row.pid.expect("it runs");
    (row, pid)
}

/// D13, 020.
#[test]
fn a_process_that_hangs_in_the_kernel_is_named_and_its_job_stays_stopping() {
    in_empty_house(async |house| {
        let Some(mut hung) = hung_folder(house) else {
            return;
        };
        let desk = narrow(house);
        let (row, pid) = hang(house, &desk, &mut hung).await;
        stop_names(&desk, &row, pid, "uninterruptible").await;
        assert_it_keeps_its_place(&desk, &row).await;
        // Nobody else is held up, and asking again is as bounded as asking once.
        let other = house.desk();
        let beside = other
            .ready(script("fork [ sleep ] , say ready , sleep"))
            .await;
        let receipt = other.stop(&beside.id, 3000).await;
        assert_eq!((receipt.ended, receipt.survivors.len()), (2, 0));
        stop_names(&desk, &row, pid, "uninterruptible").await;
        let said = house.cli(&["stop", "--session", "narrow", "--force", &row.id]);
        let words = format!("t1  not ended: pid {pid} (puppet) does not react, uninterruptible\n");
        assert_eq!((said.code, said.out, said.err), (125, words, String::new()));
        drop(hung);
        let ended = assert_it_ends(&desk, &row).await;
        assert!(ended.signal.is_some(), "one of our signals: {ended:?}");
    });
}

/// 020: an open stop of everything is answered, and the one that hangs does not keep the others alive.
#[test]
fn a_stop_of_all_ends_the_others_beside_one_that_hangs() {
    in_empty_house(async |house| {
        let Some(mut hung) = hung_folder(house) else {
            return;
        };
        let desk = house.desk();
        let (row, pid) = hang(house, &desk, &mut hung).await;
        let beside = desk
            .ready(script("orphan [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        let stop = Stop {
            all: true,
            grace_ms: Some(100),
            ..Stop::default()
        };
        let summary = desk.must::<JobStop>(stop).await;
        for receipt in summary.jobs {
            let named: Vec<u32> = receipt.survivors.iter().map(|s| s.pid).collect();
            if receipt.row.id == row.id {
                assert_eq!(named, [pid]);
            } else {
                assert_eq!((receipt.row.id, named), (beside.id.clone(), vec![]));
            }
        }
        drop(hung);
        desk.over(&row.id).await;
    });
}

/// 008, 020: a session is not forgotten over the head of a job that lives.
#[test]
fn a_session_with_what_cannot_be_ended_stays_until_that_is_gone() {
    in_empty_house(async |house| {
        let Some(mut hung) = hung_folder(house) else {
            return;
        };
        let desk = narrow(house);
        let (row, pid) = hang(house, &desk, &mut hung).await;
        let close = CloseSession {
            session: None,
            grace_ms: Some(100),
        };
        // The second time as the first.
        for _ in 0..2 {
            let summary = desk.must::<SessionClose>(close.clone()).await;
            assert_eq!(summary.jobs[0].survivors[0].pid, pid, "{summary:?}");
            assert_it_keeps_its_place(&desk, &row).await;
        }
        let refusal = desk
            .refused::<JobRelease>(Target {
                session: None,
                id: row.id.clone(),
            })
            .await;
        assert_eq!(refusal.kind, RefusalKind::Busy, "{refusal:?}");
        drop(hung);
        desk.over(&row.id).await;
        let summary = desk.must::<SessionClose>(close).await;
        assert!(summary.jobs[0].survivors.is_empty(), "{summary:?}");
    });
}

/// 020: a crash forgets neither the stop nor who withstood it.
#[test]
fn a_new_supervisor_still_knows_what_could_not_be_ended() {
    in_empty_house(async |house| {
        let Some(mut hung) = hung_folder(house) else {
            return;
        };
        let desk = narrow(house);
        let (row, pid) = hang(house, &desk, &mut hung).await;
        stop_names(&desk, &row, pid, "uninterruptible").await;
        house.kill_supervisor().await;
        let stopping = |r: &JobResult| r.row.state == State::Stopping;
        desk.until(&row.id, "the stop that goes on", stopping).await;
        stop_names(&desk, &row, pid, "uninterruptible").await;
        assert_it_keeps_its_place(&desk, &row).await;
        drop(hung);
        assert_it_ends(&desk, &row).await;
    });
}

/// 020, G1: the house leaves all the same, names who is left, and the next one begins beside him.
#[test]
fn a_house_that_cannot_end_everything_names_who_is_left_and_leaves() {
    in_empty_house(async |house| {
        let Some(mut hung) = hung_folder(house) else {
            return;
        };
        let desk = house.desk();
        let (row, pid) = hang(house, &desk, &mut hung).await;
        let keeper = house.keeper().expect("the keeper lives");
        let stop = StopSupervisor {
            grace_ms: Some(100),
        };
        let summary = desk.must::<SupervisorStop>(stop).await;
        let receipt = &summary.jobs[0];
        assert_eq!(receipt.row.id, row.id);
        assert_eq!(receipt.survivors.len(), 1, "{receipt:?}");
        assert_eq!(receipt.survivors[0].pid, pid);
        drop(desk);
        keeper.gone().await;
        house.reap();
        assert_eq!(house.marks().living(), [pid], "and nobody else");
        house.start();
        assert!(house.desk().list().await.is_empty());
        assert!(house.log().contains(&format!("pid {pid}")), "it is named");
        let process = Process::of(pid).expect("it hangs");
        drop(hung);
        process.gone().await;
    });
}

/// The set-uid puppet as the main process of a job: root's for good, until the FIFO is opened.
async fn privileged(desk: &Desk, root_puppet: &str, fifo: &str) -> Row {
    let steps = format!("become 0 , say ready , await {fifo} , exit 0");
    let words = [root_puppet].into_iter().chain(steps.split_whitespace());
    desk.ready(command(words)).await
}

/// 019: that a signal is not permitted does not mean that nobody is there.
#[test]
fn a_member_that_became_another_users_is_named_and_not_taken_for_gone() {
    let test = "a_member_that_became_another_users_is_named_and_not_taken_for_gone";
    let Some(root_puppet) = as_ordinary_user_with_root_puppet(test) else {
        return;
    };
    in_house(async |house| {
        let desk = narrow(house);
        let fifo = house.fifo("go");
        let row = privileged(&desk, &root_puppet, &fifo).await;
        let pid = row.pid.expect("it runs");
        let supervisor = house.info().await.hello.pid;
        let before = used(supervisor);
        let receipt = stop_names(&desk, &row, pid, "not permitted").await;
        // A loop that takes the refusal for "not yet" looks all the time.
        let spent = used(supervisor) - before;
        let looked = Duration::from_millis(receipt.took_ms);
        assert!(spent < looked / 2, "{spent:?} of {looked:?}");
        assert!(process::lives(pid));
        assert_it_keeps_its_place(&desk, &row).await;
        let said = house.cli(&["stop", "--session", "narrow", &row.id]);
        let words = format!("t1  not ended: pid {pid} (puppet) may not be signalled by you\n");
        assert_eq!((said.code, said.out, said.err), (125, words, String::new()));
        house.open(&fifo).await;
        assert_it_ends(&desk, &row).await;
    });
}

/// The first stop named it; the second one started a house that could not end it either, and said that all was well.
#[test]
fn a_second_stop_of_the_house_names_what_the_first_one_could_not_end() {
    let test = "a_second_stop_of_the_house_names_what_the_first_one_could_not_end";
    let Some(root_puppet) = as_ordinary_user_with_root_puppet(test) else {
        return;
    };
    in_empty_house(async |house| {
        house.start();
        let fifo = house.fifo("go");
        let row = privileged(&narrow(house), &root_puppet, &fifo).await;
        let pid = row.pid.expect("it runs");
        for _ in 0..2 {
            let said = house.cli(&["daemon", "stop", "--grace", "0"]);
            assert_eq!(said.code, 125, "{said:?}");
            let named = format!("pid {pid} (puppet)");
            assert!((said.out + &said.err).contains(&named), "it is not named");
        }
        let said = house.cli(&["daemon", "stop", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&said.out).expect("it is JSON");
        assert_eq!(json["remaining"][0]["pid"], pid, "{json}");
        let process = Process::of(pid).expect("it lives");
        house.open(&fifo).await;
        process.gone().await;
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
    });
}

/// 019: the others of its tree are ended, and a natural end counts it.
#[test]
fn a_privileged_child_alone_is_left_of_its_tree() {
    let test = "a_privileged_child_alone_is_left_of_its_tree";
    let Some(root_puppet) = as_ordinary_user_with_root_puppet(test) else {
        return;
    };
    in_house(async |house| {
        let desk = narrow(house);
        let fifo = house.fifo("go");
        let line = format!(
            "{} ignore TERM , sleep & {root_puppet} become 0 , pid , say ready , await {fifo} &",
            ostler_tests::puppet()
        );
        let row = desk.start(command(["sh", "-c", &line])).await;
        let pid = desk.number(&row.id, "pid").await;
        desk.printed(&row.id, "^ready$").await;
        let ended = desk.wait(&row.id).await;
        assert_eq!((ended.outcome, ended.tree.left), (Some(Outcome::Exited), 2));
        let receipt = stop_names(&desk, &row, pid, "not permitted").await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Exited), "that stands");
        assert_eq!(receipt.row.tree.left, 1, "{:?}", receipt.row);
        let refusal = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(refusal.kind, RefusalKind::Limit, "it keeps the place");
        house.open(&fifo).await;
        desk.over(&row.id).await;
        desk.start(script("sleep")).await;
    });
}
