//! Promise: a thousand jobs are a thousand rows; nothing grows that does not shrink again.

use std::time::{Duration, Instant};

use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{
    CloseSession, JobStart, JobStop, Nothing, OpenSession, SessionClose, SessionList, Start, Stop,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::house::files_below;
use ostler_tests::{
    Desk, PATIENCE, command, in_empty_house, in_house, process, rounds, script, within,
};

/// Starts `n` jobs, 50 at a time, and returns their ids.
async fn start_many(desk: &Desk, n: usize, steps: &str) -> Vec<String> {
    let mut ids = Vec::new();
    while ids.len() < n {
        let batch: Vec<_> = (ids.len()..n.min(ids.len() + 50))
            .map(|_| {
                let (desk, start) = (desk.clone(), script(steps));
                tokio::spawn(async move { desk.start(start).await.id })
            })
            .collect();
        for one in batch {
            ids.push(one.await.expect("a start does not panic"));
        }
    }
    ids
}

#[test]
fn a_thousand_jobs_live_at_once_and_end_together() {
    in_house(async |house| {
        let desk = house.desk();
        let n = rounds("OSTLER_JOBS", 1000);
        let hello = house.info().await.hello;
        let before = [
            process::descriptors(hello.keeper_pid),
            process::descriptors(hello.pid),
        ];
        let ids = start_many(&desk, n, "say up , sleep").await;
        // A start that takes longer than its answer may is told as `starting`.
        let up = async {
            loop {
                let rows = desk.list().await;
                if rows.iter().filter(|r| r.state == State::Running).count() == n {
                    return;
                }
            }
        };
        within(PATIENCE, "the last of a thousand starts", up).await;
        let mut took: Vec<Duration> = Vec::new();
        for _ in 0..5 {
            let begun = Instant::now();
            desk.list().await;
            took.push(begun.elapsed());
        }
        took.sort();
        assert!(
            took[2] < Duration::from_millis(500),
            "a list took {:?}",
            took[2]
        );
        for id in [&ids[0], &ids[n / 2], &ids[n - 1]] {
            desk.said(id, "^up$").await;
        }
        house.kill_supervisor().await;
        let rows = desk.list().await;
        assert_eq!(
            rows.iter().filter(|r| r.state == State::Running).count(),
            n,
            "after a crash"
        );
        let stop = Stop {
            all: true,
            force: true,
            ..Stop::default()
        };
        let summary = desk.must::<JobStop>(stop).await;
        assert_eq!(summary.jobs.len(), n);
        assert!(
            summary
                .jobs
                .iter()
                .all(|r| r.row.outcome == Some(Outcome::Stopped) && r.row.tree.left == 0)
        );
        assert_eq!(house.marks().living().len(), 2, "keeper and supervisor");
        let pid = house.info().await.hello.pid;
        let after = [
            process::descriptors(hello.keeper_pid),
            process::descriptors(pid),
        ];
        assert!(
            after[0] <= before[0] + 4 && after[1] <= before[1] + 8,
            "{before:?} became {after:?}"
        );
    });
}

/// D18, 023, 130: programs that are not there among them.
#[test]
fn a_thousand_short_jobs_leave_no_zombie_and_no_descriptor() {
    in_house(async |house| {
        let desk = house.desk();
        for _ in 0..20 {
            desk.run(command(["true"])).await;
        }
        let hello = house.info().await.hello;
        let count = || {
            [
                process::descriptors(hello.keeper_pid),
                process::descriptors(hello.pid),
            ]
        };
        let before = count();
        let n = rounds("OSTLER_JOBS", 1000);
        let mut done = 0;
        while done < n {
            let batch: Vec<_> = (0..50)
                .map(|k| {
                    let desk = desk.clone();
                    if k % 10 == 9 {
                        let missing = command(["/nowhere/at/all"]);
                        return tokio::spawn(async move { desk.run(missing).await.row.exit_code });
                    }
                    let line = format!("exit {k}");
                    tokio::spawn(async move {
                        desk.run(command(["sh", "-c", &line])).await.row.exit_code
                    })
                })
                .collect();
            for (k, one) in batch.into_iter().enumerate() {
                let code = Some(k as i32).filter(|k| k % 10 != 9);
                assert_eq!(one.await.unwrap(), code);
                done += 1;
            }
        }
        let settled = async {
            while count() > before || !process::zombies_of(hello.keeper_pid).is_empty() {
                desk.list().await;
            }
        };
        within(PATIENCE, "the end of every zombie and descriptor", settled).await;
        assert!(process::zombies_of(hello.pid).is_empty());
    });
}

/// 055: memory follows what is kept, not what has been.
#[test]
fn memory_does_not_grow_with_the_number_of_jobs_that_have_been() {
    in_house(async |house| {
        let desk = house.desk();
        let pid = house.info().await.hello.pid;
        let round = async || {
            for _ in 0..300 {
                desk.run(script("out 1000")).await;
            }
            process::resident(pid)
        };
        round().await;
        let before = round().await;
        let after = round().await;
        assert!(after < before + (4 << 20), "{before} became {after}");
        assert!(
            desk.list().await.len() <= 200,
            "at most 200 finished jobs are kept"
        );
    });
}

/// Jobs and restarts together: what both processes hold after many is what they held after a few. By hand 10,000 jobs and
/// 100 restarts (`OSTLER_JOBS=10000 OSTLER_KILLS=100`).
#[test]
fn jobs_and_restarts_leave_memory_descriptors_and_processes_flat() {
    in_house(async |house| {
        let desk = house.desk();
        let kills = rounds("OSTLER_KILLS", 8);
        let jobs = rounds("OSTLER_JOBS", 320).div_ceil(kills);
        let mut first = None;
        for kill in 0..kills {
            for n in 0..jobs as i32 {
                let row = desk
                    .run(script(&format!("out 300 , exit {}", n % 100)))
                    .await
                    .row;
                assert_eq!(row.exit_code, Some(n % 100));
            }
            house.kill_supervisor().await;
            let hello = house.info().await.hello;
            let both = [hello.keeper_pid, hello.pid];
            let now = both.map(|pid| (process::descriptors(pid), process::resident(pid)));
            eprintln!("restart {kill}: {now:?}");
            // As many records as are kept, and whatever is made once, are there by then.
            if kill <= kills / 2 {
                first = Some(now);
            }
            for ((held, bytes), (was, before)) in now.iter().zip(first.expect("it was just taken"))
            {
                assert!(
                    *held <= was + 2,
                    "restart {kill}: {was} descriptors became {held}"
                );
                assert!(
                    *bytes < before + (4 << 20),
                    "restart {kill}: {before} bytes became {bytes}"
                );
            }
            assert!(process::zombies_of(hello.keeper_pid).is_empty());
        }
    });
}

/// Sessions that come and go leave nothing: no file, no descriptor, no process, no growing memory.
#[test]
fn sessions_that_were_opened_and_closed_leave_nothing() {
    in_house(async |house| {
        let hello = house.info().await.hello;
        let watcher = house.desk_without_session();
        let round = async |n: usize| {
            let desk = house.desk_of(OpenSession {
                id: Some(format!("s{n}")),
                ..OpenSession::default()
            });
            // One that spilled, one that is over and one that lives.
            let spilled = desk.start(script("out 300000")).await;
            desk.wait(&spilled.id).await;
            desk.run(script("exit 1")).await;
            desk.start(script("fork [ sleep ] , sleep")).await;
            let close = CloseSession {
                session: None,
                grace_ms: Some(0),
            };
            desk.must::<SessionClose>(close).await;
        };
        for n in 0..10 {
            round(n).await;
        }
        let before = (
            process::resident(hello.pid),
            process::descriptors(hello.pid),
        );
        for n in 10..10 + rounds("OSTLER_SESSIONS", 50) {
            round(n).await;
        }
        let settled = async {
            // The last desk's connection is closed a moment after it is dropped.
            while process::descriptors(hello.pid) > before.1 {
                watcher.must::<SessionList>(Nothing {}).await;
            }
        };
        within(PATIENCE, "the end of every descriptor", settled).await;
        let after = process::resident(hello.pid);
        assert!(after < before.0 + (4 << 20), "{} became {after}", before.0);
        assert!(
            watcher
                .must::<SessionList>(Nothing {})
                .await
                .sessions
                .is_empty()
        );
        assert_eq!(house.marks().living().len(), 2, "keeper and supervisor");
        let artifacts = files_below(&house.folders().artifacts());
        assert!(artifacts.is_empty(), "{artifacts:?}");
    });
}

/// Two clients that ask with one key at the same time start one job.
#[test]
fn equal_keys_of_two_clients_start_one_job() {
    in_house(async |house| {
        let desks = [house.desk(), house.desk()];
        for n in 0..rounds("OSTLER_KEYS", 50) {
            let asked = desks.each_ref().map(|desk| {
                let desk = desk.clone();
                let start = Start {
                    key: Some(format!("k{n}")),
                    ..script("exit 0")
                };
                tokio::spawn(async move { desk.start(start).await.process_id })
            });
            let [a, b] = asked;
            assert_eq!(a.await.unwrap(), b.await.unwrap(), "round {n}");
        }
    });
}

/// 131: where descriptors run out, the next job is refused with that reason and leaves nothing; who is there is served,
/// and so is who comes.
#[test]
fn a_house_without_descriptors_refuses_a_job_and_still_lists_and_stops() {
    in_empty_house(async |house| {
        house.start_with_descriptors(256);
        let generation = house.info().await.hello.generation;
        let desk = house.desk();
        let mut ids = Vec::new();
        let refusal = loop {
            match desk.call::<JobStart>(script("sleep")).await {
                Ok(row) => {
                    assert_eq!(row.spawn_error, None, "a refusal is no failed start");
                    ids.push(row.process_id);
                }
                Err(refusal) => break refusal,
            }
        };
        assert_eq!(refusal.kind, RefusalKind::Limit);
        assert_eq!(refusal.data["what"], "descriptors", "{refusal:?}");
        assert!(ids.len() > 10, "{}", ids.len());
        assert_eq!(desk.list().await.len(), ids.len(), "a refusal makes no row");
        // Each of these needs a descriptor for itself.
        let visitors: Vec<Desk> = (0..8).map(|_| house.desk_without_session()).collect();
        for visitor in &visitors {
            let row = visitor.get(&ids[0]).await.row;
            assert_eq!(row.state, State::Running);
        }
        let receipt = desk.stop(&ids[0], 5_000).await;
        assert_eq!(receipt.ended, 1);
        drop(visitors);
        // The place of one that is gone is free, once the visitors have gone as well.
        let again = async {
            loop {
                match desk.call::<JobStart>(script("exit 0")).await {
                    Ok(row) => return row,
                    Err(refusal) => assert_eq!(refusal.data["what"], "descriptors"),
                }
            }
        };
        let row = within(PATIENCE, "a place", again).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(0));
        assert_eq!(house.info().await.hello.generation, generation);
    });
}
