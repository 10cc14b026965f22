//! Promise: a stop ends the whole tree and is answered only when nothing is left, or the survivors are named.

use std::time::{Duration, Instant};

use ostler_proto::job::{JobResult, Outcome, Row, State};
use ostler_proto::methods::{
    CloseSession, JobDetach, JobGet, JobRelease, JobRun, JobSignal, JobStart, JobStop, JobWait,
    OpenSession, Run, SessionClose, SignalJob, Start, Stdin, Stop, Target, Wait,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::process::{Process, lives};
use ostler_tests::{Desk, House, command, in_house, puppet, rounds, script, within};

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

/// Stops with this grace and asserts that nothing of the house's jobs is left when the answer comes.
async fn stop_leaves_nothing(house: &House, desk: &Desk, id: &str, grace_ms: u64) -> Row {
    let receipt = desk.stop(id, grace_ms).await;
    let left = members(house);
    assert!(receipt.survivors.is_empty(), "{receipt:?}");
    assert!(left.is_empty(), "answered while there are: {left:?}");
    assert_eq!(
        (receipt.row.state, receipt.row.tree.left),
        (State::Exited, 0)
    );
    receipt.row
}

/// Living processes of jobs.
fn members(house: &House) -> Vec<String> {
    let members = house.members().into_iter();
    members.map(ostler_tests::process::describe).collect()
}

/// D1, 001, 008: the server that a command launched keeps its port.
#[test]
fn a_stop_ends_grandchildren_and_frees_their_port() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .start(script("fork [ fork [ listen 0 , sleep ] , sleep ] , reap"))
            .await;
        let port = desk.number(&row.id, "port").await;
        let row = stop_leaves_nothing(house, &desk, &row.id, 3000).await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        std::net::TcpListener::bind(("127.0.0.1", port as u16)).expect("the port is free");
    });
}

/// 002, 013.
#[test]
fn a_stop_finds_what_left_its_session_and_lost_its_parent() {
    in_house(async |house| {
        let desk = house.desk();
        for steps in [
            "orphan [ say ready , sleep ] , exit 0",
            "orphan [ orphan [ ignore TERM , ignore HUP , say ready , sleep ] ] , sleep",
            "orphan [ setpgid , null 1 , null 2 , pidfile PID , sleep ] , say ready , sleep",
            "orphan [ orphan [ say ready , raise STOP , sleep ] ] , sleep",
        ] {
            let steps = steps.replace("PID", &house.path("pid"));
            let row = desk.ready(script(&steps)).await;
            stop_leaves_nothing(house, &desk, &row.id, 200).await;
        }
        let bare = [
            "env",
            "-i",
            "setsid",
            puppet(),
            "orphan",
            "[",
            "say",
            "ready",
            ",",
            "sleep",
            "]",
        ];
        let row = desk.ready(command(bare)).await;
        stop_leaves_nothing(house, &desk, &row.id, 200).await;
    });
}

/// D2: and the outcome says both who and how.
#[test]
fn a_job_that_ignores_the_polite_signal_is_forced_after_the_grace_and_not_before() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let receipt = desk.stop(&row.id, 300).await;
        assert!(receipt.took_ms >= 300, "{receipt:?}");
        assert_eq!((receipt.ended, receipt.forced), (1, 1));
        let row = receipt.row;
        assert_eq!(
            (row.outcome, row.signal.as_deref()),
            (Some(Outcome::Stopped), Some("SIGKILL"))
        );
        assert!(row.cancelled && !row.timed_out && row.ok == Some(false));
    });
}

/// 004: the second look at the tree must not begin at the dead leader.
#[test]
fn a_child_that_ignores_the_polite_signal_is_forced_when_its_leader_is_gone() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .ready(script("fork [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        let row = stop_leaves_nothing(house, &desk, &row.id, 200).await;
        assert_eq!(
            row.signal.as_deref(),
            Some("SIGTERM"),
            "the leader went politely"
        );
    });
}

/// 005.
#[test]
fn a_tree_that_forks_while_it_dies_is_ended() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .ready(script("ignore TERM , renew 5 , say ready , sleep"))
            .await;
        stop_leaves_nothing(house, &desk, &row.id, 100).await;
        let line = "for i in 1 2 3 4; do (while :; do sh -c : ; done) & done; echo ready; wait";
        let row = desk.ready(command(["sh", "-c", line])).await;
        stop_leaves_nothing(house, &desk, &row.id, 0).await;
        // The leader has ended long ago; only the chains are left.
        let row = desk.start(script("renew 5 , exit 0")).await;
        assert!(desk.wait(&row.id).await.tree.left > 0);
        stop_leaves_nothing(house, &desk, &row.id, 0).await;
    });
}

/// 010: the restart must not collide with an instance that is still closing.
#[test]
fn the_grace_belongs_to_the_whole_tree_and_not_to_its_leader() {
    in_house(async |house| {
        let desk = house.desk();
        let lock = house.path("lock");
        let server = format!(
            "fork [ lock {lock} , on TERM [ nap 400 , exit 0 ] , say ready , sleep ] , sleep"
        );
        let row = desk.ready(script(&server)).await;
        let receipt = desk.stop(&row.id, 10_000).await;
        assert_eq!(receipt.forced, 0, "{receipt:?}");
        assert!(receipt.took_ms >= 400, "{receipt:?}");
        let again = desk.run(script(&format!("lock {lock} , exit 0"))).await;
        assert_eq!(again.row.exit_code, Some(0), "{:?}", again.stdout);
    });
}

/// A member outside the leader's group gets its chance too.
#[test]
fn the_polite_signal_goes_to_every_member_and_wakes_the_stopped_ones() {
    in_house(async |house| {
        let desk = house.desk();
        // Each says that its handler is set: a signal that comes before would end it without a word.
        let steps = "orphan [ on TERM [ say orphan-bye , exit 0 ] , say orphan-up , sleep ] , \
            fork [ on TERM [ say stopped-bye , exit 0 ] , say stopped-up , raise STOP , sleep ] , \
            on TERM [ say bye , exit 0 ] , say ready , sleep";
        let row = desk.ready(script(steps)).await;
        for up in ["^orphan-up$", "^stopped-up$"] {
            desk.said(&row.id, up).await;
        }
        let receipt = desk.stop(&row.id, 10_000).await;
        assert_eq!((receipt.ended, receipt.forced), (3, 0), "{receipt:?}");
        let text = desk.read(&row.id, 0).await.text.unwrap();
        for word in ["orphan-bye", "stopped-bye", "bye"] {
            assert!(text.lines().any(|l| l == word), "{text}");
        }
        let row = receipt.row;
        assert_eq!(
            (row.outcome, row.exit_code),
            (Some(Outcome::Stopped), Some(0))
        );
        assert_eq!(row.ok, Some(false), "stopped is never success");
    });
}

/// D4.
#[test]
fn a_second_stop_is_free_and_only_a_shorter_one_changes_the_deadline() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let begun = Instant::now();
        let stop = |grace| {
            let (desk, id) = (desk.clone(), row.id.clone());
            tokio::spawn(async move { desk.stop(&id, grace).await })
        };
        let first = stop(20_000);
        desk.until(&row.id, "the stop", |r| r.row.state == State::Stopping)
            .await;
        let (longer, shorter) = (stop(60_000), stop(300));
        for receipt in [first, longer, shorter] {
            let receipt = receipt.await.unwrap();
            assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
            assert!(!receipt.already_finished);
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
    });
}

/// D5.
#[test]
fn a_stop_of_a_finished_job_is_success_and_touches_nothing() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("say unread , exit 4")).await;
        let before = desk.wait(&row.id).await;
        let receipt = desk.stop(&row.id, 0).await;
        assert!(
            receipt.already_finished && receipt.ended == 0,
            "{receipt:?}"
        );
        assert_eq!(receipt.row, before);
        assert_eq!(
            desk.read(&row.id, 0).await.text.as_deref(),
            Some("unread\n")
        );
    });
}

/// D6, 124, 125: the number of a job that ended long ago is somebody else's now.
#[test]
fn a_reused_pid_is_never_signalled() {
    in_house(async |house| {
        use std::os::unix::process::CommandExt;
        let desk = house.desk();
        let row = desk.start(script("exit 0")).await;
        let pid = desk.wait(&row.id).await.pid.expect("it ran");
        let mut stranger = None;
        for _ in 0..200 {
            // Only the superuser may choose the next number; for others there is nothing to see here.
            if std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_err() {
                ostler_tests::skip("the next process number cannot be chosen by this user");
                return;
            }
            let mut child = std::process::Command::new(puppet())
                .args(["sleep"])
                .process_group(0)
                .spawn()
                .unwrap();
            if child.id() == pid {
                stranger = Some(child);
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let mut stranger = stranger.expect("one of 200 tries gets the number");
        desk.stop(&row.id, 0).await;
        let signal = SignalJob {
            id: row.id.clone(),
            signal: "KILL".into(),
            session: None,
        };
        assert_eq!(
            desk.refused::<JobSignal>(signal).await.kind,
            RefusalKind::NoGroup
        );
        desk.must::<JobRelease>(target(&row.id)).await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        assert!(
            stranger.try_wait().unwrap().is_none(),
            "a stranger was ended"
        );
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    });
}

/// D7, 035.
#[test]
fn a_tree_of_zombies_counts_as_gone() {
    in_house(async |house| {
        let desk = house.desk();
        // The leader never waits for its child, which is a zombie until the leader is gone.
        let row = desk
            .start(script("fork [ pid , exit 0 ] , say ready , sleep"))
            .await;
        dead_child(&desk, &row).await;
        // Whoever takes the zombie for a member that ignores us sits out this grace, which is twice our patience.
        let stopped = stop_leaves_nothing(house, &desk, &row.id, 60_000).await;
        assert_eq!(stopped.signal.as_deref(), Some("SIGTERM"));
        // The zombie's parent is itself a member that ignores the signal.
        let steps = "fork [ ignore TERM , fork [ pid , exit 0 ] , say ready , sleep ] , exit 0";
        let row = desk.start(script(steps)).await;
        dead_child(&desk, &row).await;
        stop_leaves_nothing(house, &desk, &row.id, 100).await;
    });
}

/// Waits until the child that said its number is dead and its parent has gone on.
async fn dead_child(desk: &Desk, row: &Row) {
    let child = desk.number(&row.id, "pid").await;
    desk.printed(&row.id, "^ready$").await;
    // Nothing of that number any more: somebody has buried it already, which he must not.
    Process::of(child)
        .expect("nobody waits for it")
        .gone()
        .await;
}

/// D10.
#[test]
fn a_job_that_kills_itself_was_not_stopped_by_us() {
    in_house(async |house| {
        let desk = house.desk();
        for signal in ["KILL", "TERM", "SEGV", "PIPE"] {
            let row = desk.run(script(&format!("kill {signal}"))).await.row;
            assert_eq!(row.outcome, Some(Outcome::Signaled));
            assert_eq!(row.signal, Some(format!("SIG{signal}")));
            assert_eq!(
                (row.exit_code, row.cancelled, row.timed_out),
                (None, false, false)
            );
        }
    });
}

/// 038: somebody else ended it; "no such process" is an end, also in the middle of a stop.
#[test]
fn a_job_that_was_killed_from_outside_is_over_and_can_be_removed() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("fork [ pid , sleep ] , sleep")).await;
        let child = desk.number(&row.id, "pid").await;
        for pid in [row.pid.expect("it runs"), child] {
            let process = Process::of(pid).expect("it lives");
            process.signal(libc::SIGKILL);
            process.gone().await;
        }
        let ended = desk.over(&row.id).await;
        assert_eq!(
            (ended.outcome, ended.signal.as_deref()),
            (Some(Outcome::Signaled), Some("SIGKILL"))
        );
        assert!(desk.stop(&row.id, 3000).await.already_finished);
        desk.must::<JobRelease>(target(&row.id)).await;
        assert!(desk.list().await.is_empty());

        let row = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let (other, id) = (desk.clone(), row.id.clone());
        let stop = tokio::spawn(async move { other.stop(&id, 60_000).await });
        desk.until(&row.id, "the stop", |r| r.row.state == State::Stopping)
            .await;
        let process = Process::of(row.pid.expect("it runs")).expect("it ignores the signal");
        process.signal(libc::SIGKILL);
        let receipt = stop.await.unwrap();
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        assert!(receipt.survivors.is_empty(), "{receipt:?}");
    });
}

/// D15.
#[test]
fn who_stopped_a_job_and_why_is_in_its_record() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let stop = Stop {
            ids: vec![row.id.clone()],
            by: Some("user".into()),
            reason: Some("wrong branch, 日本".into()),
            ..Stop::default()
        };
        desk.must::<JobStop>(stop).await;
        let detail = desk
            .get(&row.id)
            .await
            .row
            .outcome_detail
            .expect("there is more to tell");
        assert_eq!(detail.by.as_deref(), Some("user"));
        assert_eq!(detail.reason.as_deref(), Some("wrong branch, 日本"));
    });
}

/// D16: every path to an end cleans the whole tree.
#[test]
fn time_limit_abort_and_close_end_the_whole_tree() {
    in_house(async |house| {
        let desk = house.desk();
        let tree = "fork [ sleep ] , orphan [ ignore TERM , say ready , sleep ] , sleep";
        let limited = Start {
            timeout_ms: Some(400),
            grace_ms: Some(100),
            ..script(tree)
        };
        let row = desk.run(limited).await.row;
        assert_eq!(row.outcome, Some(Outcome::TimedOut));
        assert!(row.timed_out && !row.cancelled, "{row:?}");
        assert!(members(house).is_empty(), "{:?}", members(house));

        let key = ostler::fresh_key();
        let start = Start {
            key: Some(key),
            grace_ms: Some(100),
            name: Some("aborted".into()),
            ..script(tree)
        };
        let other = desk.clone();
        let run = Run {
            start,
            ..Run::default()
        };
        let run = tokio::spawn(async move { other.must::<JobRun>(run).await });
        let begun = async {
            while desk.call::<JobGet>(target("aborted")).await.is_err() {}
            desk.said("aborted", "^ready$").await
        };
        within(ostler_tests::PATIENCE, "the run", begun).await;
        run.abort();
        let row = desk.over("aborted").await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        assert!(members(house).is_empty(), "{:?}", members(house));

        desk.ready(script(tree)).await;
        let close = CloseSession {
            grace_ms: Some(100),
            ..CloseSession::default()
        };
        let summary = desk.must::<SessionClose>(close.clone()).await;
        assert!(
            summary
                .jobs
                .iter()
                .any(|r| r.row.outcome == Some(Outcome::Stopped))
        );
        assert!(members(house).is_empty(), "{:?}", members(house));
    });
}

/// 007: a cancelled wait leaves the job, a cancelled run ends it; a detached one is nobody's.
#[test]
fn a_cancelled_wait_leaves_the_job_and_a_detached_run_outlives_its_request() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let wait = desk.client.call::<JobWait>(Wait {
            ids: vec![row.id.clone()],
            ..Wait::default()
        });
        // Dropping the call cancels the request.
        let waited = tokio::time::timeout(Duration::from_millis(100), wait).await;
        assert!(waited.is_err(), "{waited:?}");
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);

        let other = house.desk();
        let run = Run {
            start: Start {
                name: Some("run".into()),
                ..script("say ready , sleep")
            },
            ..Run::default()
        };
        let run = tokio::spawn(async move { other.must::<JobRun>(run).await });
        let begun = async { while desk.call::<JobGet>(target("run")).await.is_err() {} };
        within(ostler_tests::PATIENCE, "the run", begun).await;
        desk.must::<JobDetach>(target("run")).await;
        let answer = run.await.unwrap();
        assert!(answer.detached, "{answer:?}");
        assert_eq!(desk.get("run").await.row.state, State::Running);
    });
}

/// 011: a stop that comes before the child has done anything.
#[test]
fn a_stop_right_after_the_start_ends_the_child_and_nobody_else() {
    in_house(async |house| {
        let desk = house.desk();
        let bystander = desk.start(script("sleep")).await;
        for _ in 0..ostler_tests::rounds("OSTLER_STOPS", 200) {
            let row = desk.must::<JobStart>(script("sleep")).await;
            let receipt = desk.stop(&row.id, 3000).await;
            assert_eq!(receipt.row.outcome, Some(Outcome::Stopped), "{receipt:?}");
        }
        assert_eq!(desk.get(&bystander.id).await.row.state, State::Running);
    });
}

/// 022: the shell's own job control fails; the leftover is told.
#[test]
fn a_natural_end_says_how_many_processes_are_left() {
    in_house(async |house| {
        let desk = house.desk();
        let result = desk
            .run(script(
                "orphan [ null 1 , null 2 , sleep ] , fork [ null 1 , null 2 , sleep ] , exit 0",
            ))
            .await;
        assert_eq!(
            (result.row.outcome, result.row.exit_code),
            (Some(Outcome::Exited), Some(0))
        );
        let there = members(house);
        assert_eq!(there.len(), 2, "both leftovers live: {there:#?}");
        assert_eq!(result.row.tree.left, 2, "{:?}", result.row);
        let receipt = desk.stop(&result.row.id, 3000).await;
        assert_eq!(
            (receipt.already_finished, receipt.ended),
            (false, 2),
            "{receipt:?}"
        );
        assert_eq!(
            receipt.row.outcome,
            Some(Outcome::Exited),
            "the outcome stands"
        );
        assert_eq!(receipt.row.tree.left, 0);
        assert!(members(house).is_empty());
    });
}

/// A `Z` with living threads is alive.
#[test]
fn a_leader_whose_main_thread_has_left_still_runs() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk
            .ready(script(&format!(
                "leavemain , say ready , await {fifo} , exit 6"
            )))
            .await;
        assert_eq!(desk.wait_ms(&row.id, 100).await.row.state, State::Running);
        house.open(&fifo).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(6));
        let row = desk.ready(script("leavemain , say ready , sleep")).await;
        stop_leaves_nothing(house, &desk, &row.id, 3000).await;
    });
}

/// One grace in all, and the newest first.
#[test]
fn stopping_many_stubborn_jobs_takes_one_grace() {
    in_house(async |house| {
        let desk = house.desk();
        for _ in 0..10 {
            desk.ready(script("ignore TERM , say ready , sleep")).await;
        }
        let begun = Instant::now();
        let stop = Stop {
            all: true,
            grace_ms: Some(1000),
            ..Stop::default()
        };
        let summary = desk.must::<JobStop>(stop).await;
        assert_eq!(summary.jobs.len(), 10);
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        assert!(members(house).is_empty());
    });
}

/// I10: the quick stop answers when the signal is out.
#[test]
fn a_stop_that_does_not_wait_answers_stopping() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let stop = Stop {
            ids: vec![row.id.clone()],
            // Twice our patience: an answer that waits for the end does not come.
            grace_ms: Some(60_000),
            wait: Some(false),
            ..Stop::default()
        };
        let receipt = desk.must::<JobStop>(stop).await.jobs.remove(0);
        assert!(
            matches!(receipt.row.state, State::Stopping | State::Running),
            "{receipt:?}"
        );
        let stopping = |r: &JobResult| r.row.state == State::Stopping;
        assert!(
            desk.until(&row.id, "stopping", stopping)
                .await
                .row
                .outcome
                .is_none()
        );
        desk.stop(&row.id, 0).await;
        assert_eq!(desk.wait(&row.id).await.outcome, Some(Outcome::Stopped));
    });
}

/// Who says force does not wait for a grace.
#[test]
fn a_forced_stop_skips_the_grace() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .ready(script(
                "on TERM [ say polite , exit 0 ] , say ready , sleep",
            ))
            .await;
        let stop = Stop {
            ids: vec![row.id.clone()],
            force: true,
            ..Stop::default()
        };
        let receipt = desk.must::<JobStop>(stop).await.jobs.remove(0);
        assert_eq!(receipt.row.signal.as_deref(), Some("SIGKILL"));
        assert_eq!(desk.read(&row.id, 0).await.text.as_deref(), Some("ready\n"));
    });
}

/// D19, D20, D21.
#[test]
fn after_a_kill_output_wait_and_release_work_and_then_nothing_does() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("say ready , sleep")).await;
        let stop = Stop {
            ids: vec![row.id.clone()],
            wait: Some(false),
            ..Stop::default()
        };
        desk.must::<JobStop>(stop).await;
        assert_eq!(desk.read(&row.id, 0).await.text.as_deref(), Some("ready\n"));
        desk.wait(&row.id).await;
        let released = desk.must::<JobRelease>(target(&row.id)).await;
        assert_eq!(released.row.expect("it was known").id, row.id);
        let refusal = desk.refused::<JobGet>(target(&row.id)).await;
        assert_eq!(refusal.kind, RefusalKind::Gone);
        assert!(refusal.data.contains_key("tombstone"), "{refusal:?}");
        assert!(desk.must::<JobRelease>(target(&row.id)).await.row.is_none());
        assert!(desk.must::<JobRelease>(target("t77")).await.row.is_none());
    });
}

/// D21: and a running job is stopped by its release.
#[test]
fn a_release_answers_who_waits() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .ready(script("fork [ sleep ] , say ready , sleep"))
            .await;
        let waiting = house.desk();
        let id = row.id.clone();
        let wait = tokio::spawn(async move { waiting.wait(&id).await });
        desk.until(&row.id, "running", |r| r.row.state == State::Running)
            .await;
        desk.must::<JobRelease>(target(&row.id)).await;
        let told = wait.await.unwrap();
        assert_eq!(told.outcome, Some(Outcome::Stopped));
        assert!(members(house).is_empty());
        assert!(desk.list().await.is_empty());
    });
}

/// F10, F11: close twice is success; the other session's jobs stay.
#[test]
fn closing_a_session_twice_is_success_and_touches_no_other_session() {
    in_house(async |house| {
        let desk = house.desk();
        let other = house.desk_of(OpenSession {
            id: Some("other".into()),
            ..OpenSession::default()
        });
        let kept = other.start(script("sleep")).await;
        desk.start(script("sleep")).await;
        let close = CloseSession {
            session: Some("x".into()),
            grace_ms: None,
        };
        assert_eq!(
            other.must::<SessionClose>(close.clone()).await.jobs.len(),
            1
        );
        assert!(other.must::<SessionClose>(close).await.jobs.is_empty());
        let unknown = CloseSession {
            session: Some("never".into()),
            grace_ms: None,
        };
        assert!(other.must::<SessionClose>(unknown).await.jobs.is_empty());
        assert_eq!(other.get(&kept.id).await.row.state, State::Running);
        assert_eq!(members(house).len(), 1, "{:?}", members(house));
    });
}

/// The group of the main process, by name; nothing else is hit.
#[test]
fn a_signal_reaches_the_group_of_the_main_process() {
    in_house(async |house| {
        let desk = house.desk();
        let steps = "fork [ on USR1 [ say child-got , exit 0 ] , say ready , sleep ] , on USR1 [ say got , exit 8 ] , sleep";
        let row = desk.ready(script(steps)).await;
        let signal = |name: &str| SignalJob {
            id: row.id.clone(),
            signal: name.into(),
            session: None,
        };
        assert_eq!(
            desk.refused::<JobSignal>(signal("NOPE")).await.data["field"],
            "signal"
        );
        let group = desk.must::<JobSignal>(signal("SIGUSR1")).await.group;
        assert_eq!(Some(group), row.pid);
        let ended = desk.over(&row.id).await;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Exited), Some(8))
        );
        let text = desk.read(&row.id, 0).await.text.unwrap();
        assert!(text.contains("child-got\n"), "{text}");
    });
}

/// A member that somebody else holds stopped does not keep a stop from its end.
#[test]
fn a_stop_ends_a_tree_that_was_stopped_from_outside() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("fork [ pid , sleep ] , sleep")).await;
        let child = desk.number(&row.id, "pid").await;
        for pid in [child, row.pid.expect("it runs")] {
            Process::of(pid).expect("it lives").signal(libc::SIGSTOP);
        }
        let receipt = desk.stop(&row.id, 10_000).await;
        assert_eq!((receipt.ended, receipt.forced), (2, 0), "{receipt:?}");
        assert!(!lives(child));
    });
}

/// J10: input may be given later, and its end ends the job.
#[test]
fn input_is_written_to_the_job_until_its_end_is_said() {
    in_house(async |house| {
        use ostler_proto::methods::{JobWrite, Write};
        let desk = house.desk();
        let open = Start {
            stdin: Stdin::Open,
            ..script("cat")
        };
        let row = desk.start(open).await;
        let write = |text: Option<&str>, eof| Write {
            id: row.id.clone(),
            text: text.map(Into::into),
            eof,
            ..Write::default()
        };
        let wrote = desk.must::<JobWrite>(write(Some("a日\n"), false)).await;
        assert_eq!((wrote.bytes, wrote.complete), (5, true));
        desk.said(&row.id, "^a日$").await;
        // The end of input must reach the job although the keeper holds a copy of the writing end.
        desk.must::<JobWrite>(write(None, true)).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(0));
        let closed = desk.start(script("sleep")).await;
        let refusal = desk.refused::<JobWrite>(Write {
            id: closed.id,
            text: Some("x".into()),
            ..Write::default()
        });
        assert_eq!(refusal.await.kind, RefusalKind::NoInput);
    });
}

/// 085: A job that does not read must not hold the writer or anybody else.
#[test]
fn a_write_to_a_job_that_does_not_read_is_bounded_and_counted() {
    in_house(async |house| {
        use ostler_proto::methods::{JobWrite, Write};
        let desk = house.desk();
        let open = Start {
            stdin: Stdin::Open,
            ..script("sleep")
        };
        let row = desk.start(open).await;
        let write = Write {
            id: row.id.clone(),
            text: Some("x".repeat(1 << 20)),
            timeout_ms: Some(200),
            ..Write::default()
        };
        let wrote = desk.must::<JobWrite>(write).await;
        assert!(!wrote.complete && wrote.bytes < 1 << 20, "{wrote:?}");
        stop_leaves_nothing(house, &desk, &row.id, 3000).await;
    });
}

/// What a job said before its natural end is part of its result, whoever wanted that end a moment later.
#[test]
fn a_stop_that_meets_the_natural_end_loses_no_output() {
    in_house(async |house| {
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let desk = house.desk();
                tokio::spawn(async move {
                    let mut natural = 0;
                    for round in 0..rounds("OSTLER_MEETINGS", 120) {
                        let row = desk.start(script("say start , say end , exit 0")).await;
                        // From at once to a little after its end.
                        for _ in 0..round % 8 {
                            desk.list().await;
                        }
                        let receipt = desk.stop(&row.id, 1_000).await;
                        if receipt.row.outcome == Some(Outcome::Exited) {
                            natural += 1;
                            let text = desk.read(&row.process_id, 0).await.text;
                            assert_eq!(text.as_deref(), Some("start\nend\n"), "round {round}");
                        }
                    }
                    natural
                })
            })
            .collect();
        let mut natural = 0;
        for task in tasks {
            natural += task.await.unwrap();
        }
        assert!(natural > 0, "no stop met a natural end");
    });
}

/// 085: what is written while the job prints it back is more than both pipes hold, so that each could wait for the other.
#[test]
fn a_megabyte_goes_in_and_comes_back_out_of_a_job_that_echoes() {
    in_house(async |house| {
        use ostler_proto::methods::{JobWrite, Write};
        let desk = house.desk();
        let open = Start {
            stdin: Stdin::Open,
            ..script("cat")
        };
        let row = desk.start(open).await;
        let line = "0123456789abcde\n";
        let piece = line.repeat((1 << 20) / line.len());
        for i in 0..4 {
            let write = Write {
                id: row.id.clone(),
                text: Some(piece.clone()),
                eof: i == 3,
                timeout_ms: Some(30_000),
                ..Write::default()
            };
            let wrote = desk.must::<JobWrite>(write).await;
            assert_eq!((wrote.bytes, wrote.complete), (1 << 20, true), "{i}");
        }
        let ended = desk.wait(&row.id).await;
        assert_eq!((ended.exit_code, ended.output.end), (Some(0), 4 << 20));
        let back = desk.bytes(&row.id).await;
        assert!(
            back == piece.repeat(4).into_bytes(),
            "it came back as it was"
        );
    });
}

/// 085: a reader that is gone is an answer, and costs the supervisor nothing.
#[test]
fn a_write_to_a_job_that_has_closed_its_input_is_answered() {
    in_house(async |house| {
        use ostler_proto::methods::{JobWrite, Write};
        let desk = house.desk();
        let open = |steps: &str| Start {
            stdin: Stdin::Open,
            ..script(steps)
        };
        let ended = desk.start(open("exit 0")).await;
        desk.over(&ended.id).await;
        let deaf = desk.ready(open("close 0 , say ready , sleep")).await;
        for row in [&ended, &deaf] {
            let write = Write {
                id: row.id.clone(),
                text: Some("x".repeat(1 << 20)),
                timeout_ms: Some(30_000),
                ..Write::default()
            };
            match desk.call::<JobWrite>(write).await {
                Ok(wrote) => assert!(!wrote.complete && wrote.bytes == 0, "{wrote:?}"),
                Err(refusal) => assert_eq!(refusal.kind, RefusalKind::NoInput),
            }
        }
        assert_eq!(desk.get(&deaf.id).await.row.state, State::Running);
    });
}

/// The structured commands end with a result, also those that are cancelled: what they had printed, also behind the
/// signal.
#[test]
fn a_stop_hands_over_the_final_result_to_who_asks_for_it() {
    in_house(async |house| {
        let desk = house.desk();
        let last_words = "on TERM [ say last , sayerr words , exit 3 ] , say ready , sleep";
        let row = desk.ready(script(last_words)).await;
        let stop = |collect| Stop {
            ids: vec![row.id.clone()],
            grace_ms: Some(10_000),
            collect,
            ..Stop::default()
        };
        let receipt = desk.must::<JobStop>(stop(true)).await.jobs.remove(0);
        let result = receipt.result.expect("it was asked for");
        assert_eq!(result.stdout.as_deref(), Some("ready\nlast\n"));
        assert_eq!(result.stderr.as_deref(), Some("words\n"));
        assert_eq!((result.row.exit_code, receipt.forced), (Some(3), 0));
        assert_eq!(*result, desk.get(&row.id).await, "the same each time");
        let again = desk.must::<JobStop>(stop(false)).await.jobs.remove(0);
        assert!(again.already_finished && again.result.is_none());
    });
}
