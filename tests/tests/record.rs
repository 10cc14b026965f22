//! Promise: the record of a job is whole, consistent and the same each time it is read, and holds no secret.

use ostler_proto::job::{JobResult, Outcome, Row, State};
use ostler_proto::methods::{JobRun, OnLimit, OutputPolicy, Run, Start};
use ostler_tests::house::{House, files_below, in_house};
use ostler_tests::{Desk, command, desk::script};
use serde_json::json;

/// One job of each kind of end, and two that live.
async fn crowd(desk: &Desk) {
    for steps in ["exit 0", "exit 2", "kill SEGV", "out 300000 , exit 0"] {
        desk.run(script(steps)).await;
    }
    desk.run(command(["/nowhere/at/all"])).await;
    let limited = Start {
        timeout_ms: Some(1),
        ..script("sleep")
    };
    desk.run(limited).await;
    let stopped = desk.start(script("sleep")).await;
    desk.stop(&stopped.id, 0).await;
    desk.start(script("fork [ sleep ] , exit 0")).await;
    let stubborn = desk.ready(script("ignore TERM , say ready , sleep")).await;
    desk.ready(script("say ready , sleep")).await;
    let stopping = desk.clone();
    tokio::spawn(async move { stopping.stop(&stubborn.id, 30_000).await });
}

fn assert_sane(row: &Row) {
    let ended = row.state == State::Exited;
    assert_eq!(row.finished_at.is_some(), ended, "{row:?}");
    assert_eq!(row.duration_ms.is_some(), ended, "{row:?}");
    assert_eq!(row.outcome.is_some(), ended, "{row:?}");
    assert_eq!(row.ok.is_some(), ended, "{row:?}");
    assert_eq!(row.output.at_exit.is_some(), ended, "{row:?}");
    assert!(
        !row.executable.is_empty() && !row.args.is_empty(),
        "{row:?}"
    );
    assert!(row.process_id.starts_with("proc_"), "{row:?}");
    // In 2020 at the earliest: Unix time in milliseconds, so that no time zone is to be guessed.
    assert!(row.started_at > 1_577_836_800_000, "{row:?}");
    if let (Some(finished), Some(took)) = (row.finished_at, row.duration_ms) {
        assert_eq!(finished - row.started_at, took + row.slept_ms, "{row:?}");
    }
    let ways = [
        row.exit_code.is_some(),
        row.signal.is_some(),
        row.spawn_error.is_some(),
    ];
    let ways = ways.into_iter().filter(|w| *w).count();
    // A time limit may pass before the child has become the program: then there is nothing that ended in some way.
    let began = row.resolved_path.is_some() || row.spawn_error.is_some();
    assert_eq!(ways, usize::from(ended && began), "one way: {row:?}");
    assert!(row.output.start <= row.output.end, "{row:?}");
    assert!(row.output.at_exit.unwrap_or(0) <= row.output.end, "{row:?}");
}

/// I13, J5: every record, in a list, alone, and as text on the wire.
#[test]
fn every_record_makes_sense_and_shows_nothing_of_our_own() {
    in_house(async |house| {
        let desk = house.desk();
        crowd(&desk).await;
        let rows = desk.list().await;
        assert_eq!(rows.len(), 10);
        for row in &rows {
            assert_sane(row);
            assert_sane(&desk.get(&row.id).await.row);
        }
        let outcomes: Vec<_> = rows.iter().filter_map(|r| r.outcome).collect();
        for outcome in [
            Outcome::Exited,
            Outcome::Signaled,
            Outcome::SpawnFailed,
            Outcome::TimedOut,
            Outcome::Stopped,
        ] {
            assert!(outcomes.contains(&outcome), "{outcomes:?}");
        }
        // What is ours to know: slots, numbers, keys, tokens.
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let table = wire.call("job/list", json!({})).await.to_string();
        for word in ["slot", "token", "keyOf", "candidates", "\"key\"", "number"] {
            assert!(!table.contains(&format!("\"{word}")), "{word}: {table}");
        }
    });
}

/// J1: a code that was expected is success, whatever is on standard error; a signal or a stop never is.
#[test]
fn only_an_expected_code_is_ok() {
    in_house(async |house| {
        let desk = house.desk();
        let run = async |steps: &str, ok: &[i32]| {
            let start = Start {
                ok: ok.to_vec(),
                ..script(steps)
            };
            desk.run(start).await.row
        };
        let row = run("sayerr bad , exit 2", &[0, 2]).await;
        assert_eq!((row.ok, row.outcome), (Some(true), Some(Outcome::Exited)));
        assert_eq!(run("exit 0", &[0, 2]).await.ok, Some(true));
        assert_eq!(run("exit 1", &[0, 2]).await.ok, Some(false));
        assert_eq!(run("exit 0", &[2]).await.ok, Some(false));
        assert_eq!(run("sayerr bad , exit 0", &[]).await.ok, Some(true));
        assert_eq!(run("exit 2", &[]).await.ok, Some(false));
        // 128 + 9, as a shell would say it, is no code.
        assert_eq!(run("kill KILL", &[137, 9, 0]).await.ok, Some(false));
        let stopped = Start {
            ok: vec![0],
            ..script("on TERM [ exit 0 ] , say ready , sleep")
        };
        let row = desk.ready(stopped).await;
        let row = desk.stop(&row.id, 5_000).await.row;
        assert_eq!((row.exit_code, row.ok), (Some(0), Some(false)));
    });
}

/// J4, 142, I12, C2: a result is there after its end, the same each time, to each client, and under another supervisor.
#[test]
fn a_result_is_the_same_each_time_it_is_read() {
    in_house(async |house| {
        let desk = house.desk();
        let mut before: Vec<JobResult> = Vec::new();
        for start in [
            script("say hello , sayerr there , exit 3"),
            command(["/nowhere/at/all"]),
            script("out 300000 , kill SEGV"),
        ] {
            let row = desk.must::<JobRun>(run_of(start)).await.row;
            // The spill is written behind the end.
            let written = |r: &JobResult| {
                let artifacts = &r.row.artifacts;
                artifacts.iter().all(|a| a.bytes == r.row.output.end)
            };
            before.push(desk.until(&row.id, "the spill", written).await);
        }
        assert!(before[1].row.spawn_error.is_some());
        for when in ["again", "to another", "after a crash"] {
            let other = house.desk();
            for result in &before {
                let now = other.get(&result.row.id).await;
                let (was, is) = (json!(result), json!(now));
                assert_eq!(is, was, "{when}");
                let page = other.read(&result.row.id, 0).await;
                assert_eq!(page.end, result.row.output.end, "{when}");
            }
            if when == "to another" {
                house.kill_supervisor().await;
            }
        }
    });
}

fn run_of(start: Start) -> Run {
    Run {
        start,
        ..Run::default()
    }
}

fn assert_nowhere(house: &House, secret: &str, texts: &[String]) {
    for text in texts {
        assert!(!text.contains(secret), "{text}");
    }
    let log = house.log();
    assert!(!log.contains(secret), "{log}");
    for file in files_below(house.dir()) {
        let text = std::fs::read(&file).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains(secret), "{}", file.display());
    }
}

/// J11: the value of a variable is in no row, no event, no refusal, no log and no file of the house.
#[test]
fn values_of_variables_are_told_to_nobody_but_the_job() {
    in_house(async |house| {
        let secret = "hunter2-hunter2";
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let env = json!({ "API_TOKEN": secret, "OTHER": secret });
        let start = |args: Vec<String>, key: &str| json!({ "args": args, "cwd": "/", "env": env, "key": key });
        let watch = json!({ "partialResultToken": 1 });
        wire.ask("session/watch", watch).await;
        let mut texts = Vec::new();
        let good = script("out 300000 , exit 0").args;
        let ask = json!({ "start": start(good, "one") });
        let mut asked = vec![wire.ask("job/run", ask).await];
        let bad = vec!["/nowhere/at/all".to_owned()];
        asked.push(wire.ask("job/start", start(bad, "two")).await);
        // The same key with something else, and a wrong number: refusals that quote the request.
        let other = vec!["true".to_owned()];
        asked.push(wire.ask("job/start", start(other.clone(), "two")).await);
        let mut wrong = start(other, "three");
        wrong["timeoutMs"] = json!(-1);
        asked.push(wire.ask("job/start", wrong).await);
        while !asked.is_empty() {
            let message = wire.read().await.expect("the connection goes on");
            texts.push(message.to_string());
            asked.retain(|id| message["id"] != *id);
        }
        texts.push(wire.call("job/list", json!({})).await.to_string());
        house.kill_supervisor().await;
        let desk = house.desk();
        for row in desk.list().await {
            texts.push(json!(desk.get(&row.id).await).to_string());
        }
        assert!(texts.len() > 6, "{texts:?}");
        assert_nowhere(house, secret, &texts);
    });
}

/// J2: ways to end that are five different answers.
#[test]
fn the_ways_to_end_are_never_confused() {
    in_house(async |house| {
        let desk = house.desk();
        let outcome = async |start: Start| {
            let row = desk.run(start).await.row;
            (row.outcome.unwrap(), row.exit_code, row.signal)
        };
        let code = |n| Some(n);
        assert_eq!(
            outcome(script("exit 127")).await,
            (Outcome::Exited, code(127), None)
        );
        let (failed, none, _) = outcome(command(["/nowhere/at/all"])).await;
        assert_eq!((failed, none), (Outcome::SpawnFailed, None));
        let (signaled, none, signal) = outcome(script("kill SEGV")).await;
        assert_eq!((signaled, none), (Outcome::Signaled, None));
        assert_eq!(signal.as_deref(), Some("SIGSEGV"));
        let limited = Start {
            timeout_ms: Some(50),
            ..script("sleep")
        };
        assert_eq!(outcome(limited).await.0, Outcome::TimedOut);
        let flood = Start {
            output: OutputPolicy {
                max_bytes: Some(1_000),
                on_limit: OnLimit::Stop,
                ..OutputPolicy::default()
            },
            ..script("flood")
        };
        assert_eq!(outcome(flood).await.0, Outcome::OutputLimit);
        // The same signal from us and from itself.
        let row = desk.start(script("sleep")).await;
        let stopped = desk.stop(&row.id, 5_000).await.row;
        assert_eq!(stopped.outcome, Some(Outcome::Stopped));
        let (own, _, signal) = outcome(script("kill TERM")).await;
        assert_eq!(
            (own, signal.as_deref()),
            (Outcome::Signaled, Some("SIGTERM"))
        );
    });
}
