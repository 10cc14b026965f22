//! Promise: the supervisor may be killed at any moment, and no byte, no exit code and no promise is lost.

use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{
    JobGet, JobList, JobRelease, JobRun, JobStart, JobStop, List, Nothing, OutputPolicy, Run,
    SessionList, Start, Stdin, Stop, Target,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::process::{self, Process};
use ostler_tests::{
    House, PATIENCE, Printers, in_empty_house, in_house, pattern, puppet, rounds, script, within,
};

/// 016, G5.
#[test]
fn jobs_notice_nothing_of_a_new_supervisor_and_are_listed_as_before() {
    in_house(async |house| {
        let desk = house.desk();
        let mut before = Vec::new();
        for n in 0..3 {
            let start = Start {
                name: Some(format!("job{n}")),
                ..script("say ready , sleep")
            };
            before.push(desk.ready(start).await.id);
        }
        let ended = desk.run(script("say out , sayerr err , exit 5")).await;
        let rows = desk.list().await;
        house.kill_supervisor().await;
        let again = desk.list().await;
        assert_eq!(again, rows);
        assert_eq!(desk.get(&ended.row.id).await, ended);
        let next = desk.start(script("sleep")).await;
        assert_eq!(next.id, "t5", "ids go on");
        for id in before {
            assert_eq!(
                desk.stop(&id, 3000).await.row.outcome,
                Some(Outcome::Stopped)
            );
        }
    });
}

/// G4: a fault of our own is an end like any other; no job pays for it.
#[test]
fn a_supervisor_that_aborts_is_replaced_and_its_jobs_go_on() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk
            .ready(script(&format!("say ready , await {fifo} , exit 6")))
            .await;
        for signal in [libc::SIGABRT, libc::SIGILL] {
            house.end_supervisor(signal).await;
            assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        }
        house.open(&fifo).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(6));
    });
}

/// DESIGN.md section 2: kills under load, some of them before the new supervisor has answered anybody.
#[test]
fn forty_printing_jobs_lose_no_byte_and_no_exit_code_over_many_kills() {
    in_house(async |house| {
        kills_under_load(house, rounds("OSTLER_KILLS", 10)).await;
    });
}

async fn kills_under_load(house: &House, kills: usize) {
    let desk = house.desk();
    let printers = Printers::start(house, &desk, 40, 4099, 10).await;
    for kill in 0..kills {
        house.kill_supervisor().await;
        if kill % 3 == 2 {
            house.kill_supervisor_and_the_next().await;
        }
    }
    printers.finish(&desk).await;
}

/// The same without root, in a process of its own.
#[test]
fn an_ordinary_user_loses_nothing_either() {
    if !ostler_tests::house::as_ordinary_user("an_ordinary_user_loses_nothing_either") {
        return;
    }
    in_house(async |house| {
        kills_under_load(house, rounds("OSTLER_KILLS", 10).div_ceil(4)).await;
        let desk = house.desk();
        let hostile =
            "orphan [ ignore TERM , orphan [ ignore TERM , say ready , sleep ] , sleep ] , exit 0";
        let row = desk.ready(script(hostile)).await;
        house.kill_supervisor().await;
        let receipt = desk.stop(&row.id, 100).await;
        assert_eq!(
            (receipt.row.tree.left, receipt.survivors.len()),
            (0, 0),
            "{receipt:?}"
        );
    });
}

/// A chain of processes fills the table, or the user's share of it; then of all times it must be ended.
#[test]
fn a_supervisor_that_may_make_no_thread_still_stops_and_spills() {
    if !ostler_tests::house::as_ordinary_user(
        "a_supervisor_that_may_make_no_thread_still_stops_and_spills",
    ) {
        return;
    }
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .ready(script("fork [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        // The new one has not had any work yet for which it would have made a thread.
        house.kill_supervisor().await;
        process::forbid_children(house.info().await.hello.pid);
        let long = desk.run(script("out 3000000 , exit 4")).await.row;
        assert_eq!((long.exit_code, long.output.lost), (Some(4), 0), "{long:?}");
        let receipt = desk.stop(&row.id, 100).await;
        assert_eq!(
            (receipt.row.tree.left, receipt.ended),
            (0, 2),
            "{receipt:?}"
        );
        assert!(receipt.survivors.is_empty(), "{receipt:?}");
    });
}

/// Jobs that end while nobody is there to see it.
#[test]
fn an_end_during_the_change_is_not_lost() {
    in_house(async |house| {
        let desk = house.desk();
        for round in 0..rounds("OSTLER_KILLS", 10) {
            let fifo = house.fifo(&format!("go{round}"));
            let mut ids = Vec::new();
            for n in 0..10 {
                ids.push((
                    n,
                    desk.start(script(&format!("await {fifo} , out 5000 , exit {n}")))
                        .await
                        .id,
                ));
            }
            let pid = house.info().await.hello.pid;
            let old = Process::of(pid).unwrap();
            // A stopped supervisor sees nothing of the ends; then it is gone.
            old.freeze();
            house.open(&fifo).await;
            old.signal(libc::SIGKILL);
            for (n, id) in ids {
                let row = desk.wait(&id).await;
                assert_eq!(
                    (row.exit_code, row.output.end),
                    (Some(n), 5000),
                    "round {round}"
                );
                desk.assert_pattern(&id, 5000).await;
            }
        }
    });
}

/// A stop, a time limit and a session in progress go on under the next supervisor.
#[test]
fn what_was_in_progress_goes_on() {
    in_house(async |house| {
        let desk = house.desk();
        let stubborn = desk.ready(script("ignore TERM , say ready , sleep")).await;
        let limited = Start {
            timeout_ms: Some(1500),
            grace_ms: Some(0),
            ..script("sleep")
        };
        let limited = desk.start(limited).await;
        let fed = Start {
            stdin: Stdin::Open,
            ..script("cat")
        };
        let fed = desk.start(fed).await;
        let stop = Stop {
            ids: vec![stubborn.id.clone()],
            grace_ms: Some(1000),
            wait: Some(false),
            by: Some("user".into()),
            reason: Some("why".into()),
            ..Stop::default()
        };
        desk.must::<JobStop>(stop).await;
        house.kill_supervisor().await;
        let row = desk.over(&stubborn.id).await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        let detail = row.outcome_detail.unwrap();
        assert_eq!(
            (detail.by.as_deref(), detail.reason.as_deref()),
            (Some("user"), Some("why"))
        );
        let row = desk.wait(&limited.id).await;
        assert_eq!(row.outcome, Some(Outcome::TimedOut));
        use ostler_proto::methods::{JobWrite, Write};
        let write = Write {
            id: fed.id.clone(),
            text: Some("still fed\n".into()),
            eof: true,
            ..Write::default()
        };
        desk.must::<JobWrite>(write).await;
        assert_eq!(desk.wait(&fed.id).await.exit_code, Some(0));
        assert_eq!(
            desk.read(&fed.id, 0).await.text.as_deref(),
            Some("still fed\n")
        );
    });
}

/// A crash of ours is no cancel of theirs: the run goes on and its client comes back by its key.
#[test]
fn a_run_survives_the_crash_and_its_stream_goes_on_at_its_cursor() {
    in_house(async |house| {
        use ostler::follow::Event;
        let desk = house.desk();
        let over = house.path("over");
        let run = Run {
            start: Start {
                key: Some(ostler::fresh_key()),
                ..script(&format!("until {over} 1000 1 , exit 4"))
            },
            collect: Some(false),
            ..Run::default()
        };
        let mut stream = desk.client.stream::<JobRun>(run);
        let (mut next, mut kills) = (0, 0);
        let mut text = String::new();
        let result = loop {
            match within(PATIENCE, "the next page", stream.next())
                .await
                .unwrap()
            {
                Event::Started(_) | Event::Happened(_) => {}
                Event::Page(page) => {
                    assert_eq!((page.from, page.lost), (next, 0));
                    next = page.next;
                    text += &page.text.unwrap();
                    if kills < 3 && next > 20_000 * (kills + 1) {
                        kills += 1;
                        house.kill_supervisor().await;
                    } else if kills == 3 && next > 100_000 {
                        std::fs::write(&over, "").unwrap();
                    }
                }
                Event::End(result) => break result,
            }
        };
        assert_eq!((result.row.exit_code, kills), (Some(4), 3));
        let total = text.rfind("total ").expect("the total is said");
        assert_eq!(
            pattern::first_difference(0, &text.as_bytes()[..total]),
            None
        );
    });
}

/// Sessions, their tokens and limits are what they were.
#[test]
fn sessions_and_their_tokens_outlive_a_crash() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        let open = serde_json::json!({ "id": "mine", "name": "m", "commands": 3 });
        let opened = wire.call("session/open", open).await;
        let token = opened["result"]["token"]
            .as_str()
            .expect("a token")
            .to_owned();
        let started = wire
            .call(
                "job/start",
                serde_json::json!({ "args": [puppet(), "sleep"] }),
            )
            .await;
        let process_id = started["result"]["processId"].clone();
        house.kill_supervisor().await;
        let mut wire = house.wire().await;
        let without = wire
            .call("session/open", serde_json::json!({ "id": "mine" }))
            .await;
        assert!(
            without["error"]["code"].is_number(),
            "attached without a token: {without}"
        );
        let attach = serde_json::json!({ "id": "mine", "token": token, "attachOnly": true });
        let attached = wire.call("session/open", attach).await;
        assert_eq!(attached["result"]["created"], false, "{attached}");
        assert_eq!(attached["result"]["limits"]["commands"], 3);
        let jobs = wire.call("job/list", serde_json::json!({})).await;
        assert_eq!(jobs["result"]["jobs"][0]["processId"], process_id);
        let table = house
            .desk_without_session()
            .must::<SessionList>(Nothing {})
            .await;
        assert!(
            table
                .sessions
                .iter()
                .any(|s| s.session.id == "mine" && s.session.name == "m")
        );
    });
}

/// An output that nobody spills loses what leaves the ring, over a crash too by number.
#[test]
fn loss_is_stated_over_a_crash() {
    in_house(async |house| {
        let desk = house.desk();
        let over = house.path("over");
        let start = Start {
            output: OutputPolicy {
                spill: Some(false),
                ..OutputPolicy::default()
            },
            ..script(&format!("until {over} 100000 1 , exit 0"))
        };
        let row = desk.start(start).await;
        let printed = |r: &ostler_proto::job::JobResult| r.row.output.end > 1_000_000;
        desk.until(&row.id, "a megabyte", printed).await;
        house.kill_supervisor().await;
        std::fs::write(&over, "").unwrap();
        let row = desk.wait(&row.id).await;
        assert_eq!(row.output.start, row.output.lost, "{:?}", row.output);
        let (page, bytes) = desk.read_raw(&row.id, 0, 100_000).await;
        assert_eq!((page.from, page.lost), (row.output.lost, row.output.lost));
        assert_eq!(pattern::first_difference(page.from, &bytes), None);
    });
}

/// A supervisor that keeps crashing ends the house: better none than one that hides what happened.
#[test]
fn the_sixth_crash_in_a_row_ends_the_house_and_all_in_it() {
    in_empty_house(async |house| {
        house.start_with(&[("OSTLER_STEADY_MS", "600000")]);
        let desk = house.desk();
        desk.ready(script("orphan [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        let keeper = house.keeper().expect("the keeper lives");
        for _ in 0..5 {
            house.kill_supervisor().await;
        }
        let pid = house.info().await.hello.pid;
        Process::of(pid).unwrap().signal(libc::SIGKILL);
        keeper.gone().await;
        house.reap();
        house.assert_nothing_is_left();
    });
}

/// Neither process keeps a descriptor of what a former supervisor had open.
#[test]
fn crashes_leak_no_descriptors() {
    in_house(async |house| {
        let desk = house.desk();
        desk.start(script("sleep")).await;
        house.kill_supervisor().await;
        let hello = house.info().await.hello;
        let keeper = process::descriptors(hello.keeper_pid);
        let supervisor = process::descriptors(hello.pid);
        for _ in 0..5 {
            house.kill_supervisor().await;
        }
        let hello = house.info().await.hello;
        assert_eq!(process::descriptors(hello.keeper_pid), keeper);
        let now = process::descriptors(hello.pid);
        assert!(now <= supervisor + 1, "{supervisor} became {now}");
        assert!(process::zombies_of(hello.keeper_pid).is_empty());
        let state = desk.must::<JobStart>(script("sleep")).await.state;
        assert_eq!(state, State::Running);
    });
}

/// F14: the number of a job whose record was released was given out again after a crash.
#[test]
fn a_short_id_is_not_used_again_after_a_crash() {
    in_house(async |house| {
        let desk = house.desk();
        for id in ["t1", "t2", "t3"] {
            let row = desk.start(script("exit 0")).await;
            assert_eq!(row.id, id);
            desk.over(&row.id).await;
            let target = Target {
                session: None,
                id: row.id.clone(),
            };
            desk.must::<JobRelease>(target.clone()).await;
            house.kill_supervisor().await;
            // And it still says what became of it.
            let refusal = desk.refused::<JobGet>(target).await;
            assert_eq!(refusal.kind, RefusalKind::Gone);
        }
    });
}

/// A list in the first moment of a new supervisor has everything that the keeper knows.
#[test]
fn no_job_that_runs_is_listed_without_its_process() {
    in_house(async |house| {
        let open = ostler_proto::methods::OpenSession {
            id: Some("x".into()),
            commands: Some(200),
            ..Default::default()
        };
        let desk = house.desk_of(open);
        for _ in 0..150 {
            desk.start(script("sleep")).await;
        }
        let rows = desk.list().await;
        // One answer after the other, so that one is the first of each new supervisor.
        let (stop, stopped) = tokio::sync::watch::channel(false);
        let askers: Vec<_> = (0..4)
            .map(|_| {
                let (desk, rows, stopped) = (desk.clone(), rows.clone(), stopped.clone());
                tokio::spawn(async move {
                    while !*stopped.borrow() {
                        let table = desk.client.ask::<JobList>(List::default()).await;
                        for (now, before) in table.unwrap().jobs.iter().zip(&rows) {
                            assert_eq!((now.state, now.pid), (State::Running, before.pid));
                        }
                    }
                })
            })
            .collect();
        for _ in 0..rounds("OSTLER_KILLS", 10) {
            house.kill_supervisor().await;
        }
        stop.send_replace(true);
        for asker in askers {
            asker.await.unwrap();
        }
    });
}
