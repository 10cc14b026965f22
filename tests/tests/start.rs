//! Promise: a start answers at once with the truth, and the child gets exactly what was asked for.

use std::time::{Duration, Instant};

use ostler_proto::job::{JobResult, Outcome, Retry, State};
use ostler_proto::methods::{
    Hello, JobStart, JobStop, JobWait, OnLimit, OpenSession, OutputPolicy, ResourceLimit,
    SessionOpen, Start, Stdin, Stop, Wait,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::{command, in_house, puppet, script};
use serde_json::{Value, json};

/// A1.
#[test]
fn a_start_does_not_wait_for_the_command() {
    in_house(async |house| {
        let desk = house.desk();
        desk.run(command(["true"])).await;
        // A wait that is part of a start shows in each of them; a busy machine does not.
        let mut quickest = Duration::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            let row = desk.start(script("sleep")).await;
            quickest = quickest.min(begun.elapsed());
            assert_eq!(row.state, State::Running);
            assert_eq!(row.outcome, None);
            assert!(row.pid.is_some_and(ostler_tests::process::lives));
        }
        assert!(quickest < Duration::from_millis(150), "{quickest:?}");
    });
}

/// A2, A18.
#[test]
fn arguments_reach_the_child_as_they_are() {
    in_house(async |house| {
        let odd = [
            "$HOME",
            "`id`",
            "a b",
            "",
            "it's",
            "\"q\"",
            "\\",
            "new\nline",
            "*",
            "~",
            "日本語",
            "e\u{301}",
            "-x",
            ";",
            "tab\t",
        ];
        let args = [puppet(), "argv"].into_iter().chain(odd);
        let result = house.desk().run(command(args)).await;
        let wanted: String = odd.iter().map(|a| format!("{}:{a}\n", a.len())).collect();
        assert_eq!(result.stdout.as_deref(), Some(wanted.as_str()));
    });
}

/// A3.
#[test]
fn an_empty_program_is_refused_without_a_job() {
    in_house(async |house| {
        let desk = house.desk();
        for args in [vec![], vec![""], vec!["", "x"]] {
            let refusal = desk.refused::<JobStart>(command(args)).await;
            assert_eq!(refusal.kind, RefusalKind::BadArgument);
            assert_eq!(refusal.data["field"], "args");
        }
        let blank = Start {
            line: Some(" ".into()),
            ..Start::default()
        };
        assert_eq!(
            desk.refused::<JobStart>(blank).await.kind,
            RefusalKind::BadArgument
        );
        assert!(desk.list().await.is_empty(), "a refusal left a row");
    });
}

/// A4, A5, 095.
#[test]
fn what_only_trying_can_show_is_a_row_that_failed_to_spawn() {
    in_house(async |house| {
        let desk = house.desk();
        let file = house.path("no program");
        std::fs::write(&file, "text").unwrap();
        let nowhere = house.path("nowhere");
        let in_nowhere = Start {
            cwd: Some(nowhere.clone()),
            ..command(["true"])
        };
        let cases = [
            (in_nowhere, "cwd", libc::ENOENT, "cwd"),
            (command(["no-such-program-9"]), "exec", libc::ENOENT, "args"),
            (command([nowhere.as_str()]), "exec", libc::ENOENT, "args"),
            (command([file.as_str()]), "exec", libc::EACCES, "args"),
            (command(["/tmp"]), "exec", libc::EACCES, "args"),
        ];
        for (start, step, errno, field) in cases {
            let row = desk.must::<JobStart>(start.clone()).await;
            let row = desk.wait(&row.id).await;
            assert_eq!(
                (row.state, row.outcome),
                (State::Exited, Some(Outcome::SpawnFailed)),
                "{start:?}"
            );
            assert_eq!(
                (row.exit_code, row.signal.as_deref(), row.ok),
                (None, None, Some(false))
            );
            let error = row.spawn_error.expect("a failed spawn has an error");
            assert_eq!(
                (error.step.as_str(), error.errno),
                (step, errno),
                "{start:?}: {error:?}"
            );
            assert!(error.field.starts_with(field), "{error:?}");
        }
        let ran = desk.run(command(["sh", "-c", "exit 127"])).await.row;
        assert_eq!(
            (ran.outcome, ran.exit_code),
            (Some(Outcome::Exited), Some(127))
        );
        assert_eq!(ran.spawn_error, None);
    });
}

/// 095: another thread's child may still have the file open for writing when it is executed.
#[test]
fn a_script_that_was_just_written_runs() {
    in_house(async |house| {
        use std::os::unix::fs::PermissionsExt;
        let desk = house.desk();
        for n in 0..100 {
            let path = house.path(&format!("script{n}"));
            std::fs::write(&path, "#!/bin/sh\nexit 5\n").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
            let row = desk.run(command([path])).await.row;
            assert_eq!(
                (row.outcome, row.exit_code),
                (Some(Outcome::Exited), Some(5)),
                "{:?}",
                row.spawn_error
            );
        }
    });
}

/// A7, A9: also that the refusal says what runs.
#[test]
fn the_ninth_command_is_refused_with_the_eight_and_another_session_is_free() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            id: Some("eight".into()),
            ..OpenSession::default()
        });
        let mut ids = Vec::new();
        for _ in 0..8 {
            ids.push(desk.start(script("sleep")).await.id);
        }
        let refusal = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(refusal.kind, RefusalKind::Limit);
        assert_eq!(refusal.data["limit"], 8);
        let rows = refusal.data["rows"].as_array().expect("the rows that run");
        let mut told: Vec<_> = rows
            .iter()
            .map(|r| r["id"].as_str().unwrap().to_owned())
            .collect();
        told.sort();
        ids.sort();
        assert_eq!(told, ids);
        assert_eq!(desk.list().await.len(), 8, "a refusal left a row");
        house.desk().start(script("sleep")).await;
    });
}

/// A11: one job ended in each way.
#[test]
fn every_way_to_end_frees_the_place() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            id: Some("one".into()),
            commands: Some(1),
            ..OpenSession::default()
        });
        let limited = |script: Start| Start {
            timeout_ms: Some(50),
            grace_ms: Some(0),
            ..script
        };
        let flood = Start {
            output: OutputPolicy {
                max_bytes: Some(1000),
                on_limit: OnLimit::Stop,
                ..OutputPolicy::default()
            },
            ..script("flood")
        };
        for start in [
            script("exit 0"),
            script("exit 3"),
            script("kill KILL"),
            command(["no-such-program-9"]),
            limited(script("sleep")),
            flood,
        ] {
            let row = desk.must::<JobStart>(start).await;
            desk.wait(&row.id).await;
        }
        let row = desk.start(script("ignore TERM , sleep")).await;
        desk.stop(&row.id, 0).await;
        // A job whose leftover lives holds its place; without it the place is free.
        let row = desk.start(script("fork [ sleep ] , exit 0")).await;
        desk.wait(&row.id).await;
        let refusal = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(refusal.kind, RefusalKind::Limit);
        desk.stop(&row.id, 0).await;
        desk.start(script("sleep")).await;
    });
}

/// A12: a cancel that comes in the same write as the start and before it.
#[test]
fn a_start_that_was_cancelled_before_it_began_runs_nothing_or_says_so() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let mark = house.path("mark");
        let start = ostler_tests::wire::request(
            900,
            "job/start",
            json!({ "args": [puppet(), "touch", mark, ",", "sleep"] }),
        );
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": 900 } });
        let mut bytes = ostler_tests::wire::framed(&start);
        bytes.extend(ostler_tests::wire::framed(&cancel));
        wire.send(&bytes).await;
        let answer = wire.answer(900).await;
        let listed = house.desk().list().await;
        if answer["error"]["code"] == -32800 {
            // Accepted before the cancel was read: then it is listed, never both cancelled and hidden.
            assert_eq!(
                listed.is_empty(),
                !std::path::Path::new(&mark).exists() && listed.is_empty()
            );
        } else {
            assert_eq!(listed.len(), 1, "{answer}");
        }
    });
}

/// A13.
#[test]
fn a_cancel_after_the_answer_changes_nothing() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let id = wire
            .ask("job/start", json!({ "args": [puppet(), "sleep"] }))
            .await;
        let row = wire.answer(id).await["result"].clone();
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": id } });
        wire.send(&ostler_tests::wire::framed(&cancel)).await;
        let now = wire.call("job/get", json!({ "id": row["id"] })).await;
        assert_eq!(now["result"]["state"], "running");
    });
}

/// A14, 082.
#[test]
fn standard_input_is_the_null_device_unless_asked_for() {
    in_house(async |house| {
        let desk = house.desk();
        let result = desk.run(script("stdin")).await;
        assert_eq!(result.stdout.as_deref(), Some("stdin 0 cbf29ce484222325\n"));
        let given = Start {
            stdin: Stdin::Text("日本\n".into()),
            ..script("cat")
        };
        assert_eq!(desk.run(given).await.stdout.as_deref(), Some("日本\n"));
    });
}

/// A19: zero, negative, fraction, no number, huge.
#[test]
fn a_number_out_of_range_is_refused_at_once_with_its_field() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let odd = [
            json!(-1),
            json!(0.5),
            json!("x"),
            json!(1e30),
            json!(u64::MAX),
            json!([]),
        ];
        let start = |field: &str, value: &Value| {
            let mut start = json!({ "args": ["true"] });
            start[field] = value.clone();
            start
        };
        for value in &odd {
            for field in ["timeoutMs", "graceMs", "idleMs", "umask"] {
                let answer = wire.call("job/start", start(field, value)).await;
                assert_refused(&answer, field);
            }
            let answer = wire
                .call("job/start", start("output", &json!({ "maxBytes": value })))
                .await;
            assert_refused(&answer, "maxBytes");
        }
        for field in ["timeoutMs", "idleMs"] {
            assert_refused(
                &wire.call("job/start", start(field, &json!(0))).await,
                field,
            );
        }
        let row = wire
            .call("job/start", json!({ "args": [puppet(), "sleep"] }))
            .await;
        let id = row["result"]["id"].clone();
        for value in &odd {
            let wait = json!({ "ids": [id], "timeoutMs": value });
            assert_refused(&wire.call("job/wait", wait).await, "timeoutMs");
            let stop = json!({ "ids": [id], "graceMs": value });
            assert_refused(&wire.call("job/stop", stop).await, "graceMs");
            let read = json!({ "id": id, "max": value });
            assert_refused(&wire.call("job/read", read).await, "max");
            let read = json!({ "id": id, "since": value });
            // Any offset of 64 bits may be asked for.
            if *value != json!(u64::MAX) {
                assert_refused(&wire.call("job/read", read).await, "since");
            }
            let open = json!({ "id": "y", "commands": value });
            assert_refused(&wire.call("session/open", open).await, "commands");
        }
        let state = wire.call("job/get", json!({ "id": id })).await["result"]["state"].clone();
        assert_eq!(state, "running");
        assert_eq!(
            wire.call("job/list", json!({})).await["result"]["jobs"]
                .as_array()
                .unwrap()
                .len(),
            1
        );
    });
}

fn assert_refused(answer: &Value, field: &str) {
    assert_eq!(answer["error"]["code"], -32602, "{field}: {answer}");
    let told = answer["error"]["data"]["field"]
        .as_str()
        .unwrap_or_default();
    assert!(
        told.ends_with(field),
        "`{told}` is told for {field}: {answer}"
    );
}

/// 028: the write end of one child's pipe in another one delays the end of output.
#[test]
fn jobs_started_at_the_same_time_do_not_share_pipe_ends() {
    in_house(async |house| {
        let desk = house.desk();
        let mut starts = Vec::new();
        for n in 0..200 {
            let start = if n % 2 == 0 {
                command(["true"])
            } else {
                script("sleep")
            };
            let desk = desk.clone();
            starts.push(tokio::spawn(async move { (n, desk.start(start).await.id) }));
        }
        let mut ids = Vec::new();
        for start in starts {
            ids.push(start.await.unwrap());
        }
        for (n, id) in ids.iter().filter(|(n, _)| n % 2 == 0) {
            let row = desk.wait(id).await;
            assert_eq!(row.output.held_by, None, "{n}: {row:?}");
            assert_eq!(row.exit_code, Some(0));
        }
        for (_, id) in ids.iter().filter(|(n, _)| n % 2 == 1) {
            let begun = |r: &JobResult| r.row.state != State::Starting;
            let row = desk.until(id, "the end of its start", begun).await.row;
            assert_eq!(row.state, State::Running, "{row:?}");
        }
        let stop = Stop {
            all: true,
            force: true,
            ..Stop::default()
        };
        assert_eq!(desk.must::<JobStop>(stop).await.jobs.len(), 100);
    });
}

/// 031.
#[test]
fn a_job_has_three_descriptors_and_nothing_of_ours() {
    in_house(async |house| {
        let desk = house.desk();
        let other = desk.start(script("sleep")).await;
        let text = desk.run(script("fds")).await.stdout.unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[0], "0 /dev/null");
        assert!(
            lines[1].starts_with("1 pipe:") && lines[2].starts_with("2 pipe:"),
            "{text}"
        );
        desk.stop(&other.id, 0).await;
    });
}

/// 089: what the keeper blocks, ignores and raises for itself is not the job's.
#[test]
fn a_job_begins_with_a_clean_signal_mask_and_the_limits_of_the_request() {
    in_house(async |house| {
        let desk = house.desk();
        let mut start = script("mask");
        start.limits.insert(
            "nofile".into(),
            ResourceLimit {
                soft: Some(300),
                hard: Some(400),
            },
        );
        let text = desk.run(start.clone()).await.stdout.unwrap();
        for line in text.lines() {
            assert!(line.ends_with("0000000000000000"), "{text}");
        }
        start.args = ["sh", "-c", "ulimit -Sn; ulimit -Hn"]
            .map(String::from)
            .to_vec();
        assert_eq!(desk.run(start).await.stdout.as_deref(), Some("300\n400\n"));
        let plain = desk
            .run(command(["sh", "-c", "ulimit -Sn"]))
            .await
            .stdout
            .unwrap();
        let mut own = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `own` is a valid rlimit.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut own) };
        assert_eq!(
            plain.trim(),
            own.rlim_cur.to_string(),
            "the soft limit that the keeper was started with"
        );
    });
}

/// 121: neither another client's environment nor that of whoever started the house.
#[test]
fn each_request_has_its_own_environment() {
    in_house(async |house| {
        let desk = house.desk();
        let with = |vars: &[(&str, Option<&str>)], replace| Start {
            env: vars
                .iter()
                .map(|(k, v)| ((*k).into(), v.map(Into::into)))
                .collect(),
            env_replace: replace,
            ..script("environ")
        };
        let one = desk
            .run(with(&[("A", Some("1")), ("E", Some(""))], false))
            .await
            .stdout
            .unwrap();
        assert!(
            one.lines().any(|l| l == "A=1") && one.lines().any(|l| l == "E="),
            "{one}"
        );
        let two = desk
            .run(with(&[("B", Some("2")), ("HOME", None)], false))
            .await
            .stdout
            .unwrap();
        assert!(two.lines().any(|l| l == "B=2"), "{two}");
        assert!(
            !two.lines()
                .any(|l| l.starts_with("A=") || l.starts_with("HOME=")),
            "{two}"
        );
        assert!(
            !two.contains("OSTLER_STEADY_MS"),
            "a variable of the daemon's leaked: {two}"
        );
        let bare = desk
            .run(with(&[("B", Some("2"))], true))
            .await
            .stdout
            .unwrap();
        let foreign: Vec<_> = bare
            .lines()
            .filter(|l| !l.starts_with("OSTLER_") && *l != "B=2")
            .collect();
        assert!(foreign.is_empty(), "{bare}");
        assert!(!bare.to_ascii_lowercase().contains("token"), "{bare}");
    });
}

/// Rule 6: directory and mask come from the request, not from the daemon, which sits in `/`.
#[test]
fn directory_and_mask_come_from_the_request() {
    in_house(async |house| {
        let desk = house.desk();
        let start = Start {
            cwd: Some(house.path("")),
            umask: Some(0o027),
            ..script("cwd , umask")
        };
        let wanted = format!("{}\nUmask: 0027\n", house.path("").trim_end_matches('/'));
        assert_eq!(
            desk.run(start).await.stdout.as_deref(),
            Some(wanted.as_str())
        );
        let relative = Start {
            cwd: Some("x".into()),
            ..command(["true"])
        };
        let refusal = desk.refused::<JobStart>(relative).await;
        assert_eq!(refusal.data["field"], "cwd");
        let pid = house.info().await.hello.pid;
        let there = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
        assert_eq!(there, std::path::Path::new("/"));
    });
}

/// Where nothing is said, the project is meant.
#[test]
fn the_root_of_the_session_is_the_default_directory() {
    in_house(async |house| {
        let root = house.path("").trim_end_matches('/').to_owned();
        let desk = house.desk_of(OpenSession {
            id: Some("rooted".into()),
            root: Some(root.clone()),
            ..OpenSession::default()
        });
        let start = Start {
            cwd: None,
            ..script("cwd")
        };
        assert_eq!(desk.run(start).await.stdout, Some(format!("{root}\n")));
    });
}

/// DESIGN.md section 4: the client that lost the answer asks again.
#[test]
fn the_same_key_is_the_same_job_and_another_request_with_it_is_a_conflict() {
    in_house(async |house| {
        let desk = house.desk();
        let start = Start {
            key: Some("k".into()),
            ..script("sleep")
        };
        let first = desk.start(start.clone()).await;
        let again = desk.start(start.clone()).await;
        assert_eq!(first.process_id, again.process_id);
        let other = Start {
            key: Some("k".into()),
            ..script("exit 0")
        };
        assert_eq!(
            desk.refused::<JobStart>(other).await.kind,
            RefusalKind::KeyConflict
        );
        assert_eq!(desk.list().await.len(), 1);
        house.kill_supervisor().await;
        assert_eq!(desk.start(start).await.process_id, first.process_id);
    });
}

/// F14, and that a name means one live job.
#[test]
fn a_short_id_is_never_used_again_and_a_name_is_taken_while_its_job_lives() {
    in_house(async |house| {
        let desk = house.desk();
        let named = |start: Start| Start {
            name: Some("web".into()),
            ..start
        };
        let first = desk.start(named(script("sleep"))).await;
        assert_eq!(first.id, "t1");
        let refusal = desk.refused::<JobStart>(named(script("sleep"))).await;
        assert_eq!(refusal.kind, RefusalKind::NameTaken);
        desk.stop("web", 0).await;
        let second = desk.start(named(script("sleep"))).await;
        assert!(second.id != first.id, "{} was used again", first.id);
        assert_eq!(desk.get("web").await.row.process_id, second.process_id);
    });
}

/// The answer for another session's job is that for no job, byte for byte.
#[test]
fn a_foreign_job_is_answered_as_an_unknown_one() {
    in_house(async |house| {
        let mine = house.desk();
        let job = mine.start(script("sleep")).await;
        let mut stranger = house.wire().await;
        let hello = stranger
            .call("supervisor/hello", json!(Hello::default()))
            .await;
        assert_eq!(hello["result"]["owner"], false);
        let opened = stranger
            .call("session/open", json!({ "id": "stranger" }))
            .await;
        assert_eq!(opened["result"]["created"], true, "{opened}");
        for method in [
            "job/get",
            "job/read",
            "job/detach",
            "job/wait",
            "job/stop",
            "job/signal",
            "job/write",
        ] {
            let ask = |id: &str| match method {
                "job/wait" | "job/stop" => json!({ "ids": [id] }),
                "job/signal" => json!({ "id": id, "signal": "INT" }),
                "job/write" => json!({ "id": id, "text": "x" }),
                _ => json!({ "id": id }),
            };
            let unknown_id = "proc_01ARZ3NDEKTSV4RRFFQ69G5FAV";
            for (foreign, unknown) in [(job.process_id.as_str(), unknown_id), ("t1", "t9")] {
                let a = stranger.call(method, ask(foreign)).await["error"].to_string();
                let b = stranger.call(method, ask(unknown)).await["error"].to_string();
                assert_eq!(a.replace(foreign, unknown), b, "{method}");
                assert!(b.contains("2001"), "{b}");
            }
        }
        assert_eq!(mine.get(&job.id).await.row.state, State::Running);
    });
}

/// Limits of a session are settable, within their own bounds.
#[test]
fn an_open_session_may_change_its_limits_up_to_the_ceiling() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let open = |commands| OpenSession {
            id: Some("l".into()),
            commands: Some(commands),
            ..OpenSession::default()
        };
        assert!(desk.must::<SessionOpen>(open(2)).await.created);
        assert_eq!(desk.must::<SessionOpen>(open(9)).await.limits.commands, 9);
        let refusal = desk.refused::<SessionOpen>(open(10_001)).await;
        assert_eq!(refusal.data["field"], "commands");
        let nothing = Wait {
            ids: vec![],
            ..Wait::default()
        };
        assert_eq!(desk.refused::<JobWait>(nothing).await.data["field"], "ids");
    });
}

/// F1: a foreign id is answered in like time. Medians of many turns, one beside the other.
#[test]
fn a_foreign_job_takes_as_long_as_an_unknown_one() {
    in_house(async |house| {
        let owner = house.desk();
        let row = owner.start(script("sleep")).await;
        let mut stranger = house.wire().await;
        stranger.call("session/open", json!({ "id": "mine" })).await;
        let unknown = format!("{}x", &row.process_id[..row.process_id.len() - 1]);
        let (mut foreign, mut never) = (Vec::new(), Vec::new());
        for _ in 0..300 {
            for (id, times) in [(&row.process_id, &mut foreign), (&unknown, &mut never)] {
                let begun = std::time::Instant::now();
                let answer = stranger.call("job/get", json!({ "id": id })).await;
                times.push(begun.elapsed());
                assert_eq!(answer["error"]["data"]["kind"], "not_found");
            }
        }
        foreign.sort();
        never.sort();
        let (a, b) = (foreign[150], never[150]);
        assert!(a < b * 2 && b < a * 2, "{a:?} against {b:?}");
    });
}

/// F2: what a stranger may list, and end with a wide stop, is his own alone.
#[test]
fn no_list_and_no_wide_stop_of_a_stranger_meets_a_foreign_job() {
    in_house(async |house| {
        let mine = house.desk_of(OpenSession {
            id: Some("mine".into()),
            root: Some("/".into()),
            ..OpenSession::default()
        });
        let job = mine.start(script("sleep")).await;
        let mut stranger = house.wire().await;
        let open = json!({ "id": "stranger", "root": "/" });
        stranger.call("session/open", open).await;
        let start = json!({ "args": script("sleep").args, "cwd": "/" });
        let own = stranger.call("job/start", start).await["result"].clone();
        for wide in [json!({}), json!({ "all": true }), json!({ "root": "/" })] {
            let listed = stranger.call("job/list", wide.clone()).await;
            let jobs = listed["result"]["jobs"].as_array().unwrap();
            assert_eq!(jobs.len(), 1, "{wide}: {listed}");
            assert_eq!(jobs[0]["processId"], own["processId"], "{wide}");
        }
        let sessions = stranger.call("session/list", json!({})).await;
        let sessions = sessions["result"]["sessions"].as_array().unwrap();
        assert_eq!(sessions.len(), 1, "{sessions:?}");
        let notices = json!({ "session": "mine" });
        let refused = stranger.call("session/notices", notices).await;
        assert_eq!(refused["error"]["data"]["kind"], "not_found", "{refused}");
        let watch = json!({ "session": "mine", "partialResultToken": 1 });
        let refused = stranger.call("session/watch", watch).await;
        assert_eq!(refused["error"]["data"]["kind"], "not_found", "{refused}");
        for wide in ["all", "everywhere"] {
            let stop = json!({ wide: true, "force": true });
            let stopped = stranger.call("job/stop", stop).await;
            assert!(stopped["result"].is_object(), "{wide}: {stopped}");
        }
        let stop = json!({ "root": "/", "force": true });
        let stopped = stranger.call("job/stop", stop).await;
        assert_eq!(stopped["result"]["jobs"], json!([]), "{stopped}");
        assert_eq!(mine.get(&job.id).await.row.state, State::Running);
        // Nor may he close or release it: for him it never was, so that both are success and do nothing.
        let close = json!({ "session": "mine" });
        stranger.call("session/close", close).await;
        let release = json!({ "id": job.process_id });
        stranger.call("job/release", release).await;
        assert_eq!(mine.get(&job.id).await.row.state, State::Running);
    });
}

/// 002, the questions before a retry: still running? did it run? what does it do?
#[test]
fn a_known_key_is_answered_with_what_to_know_before_a_retry() {
    in_house(async |house| {
        let desk = house.desk();
        let keyed = |key: &str, start: Start| Start {
            key: Some(key.into()),
            side_effect: Some("write".into()),
            ..start
        };
        let go = house.fifo("go");
        let first = keyed("k", script(&format!("say ready , await {go}")));
        assert_eq!(desk.ready(first.clone()).await.retry, None);
        let facts = |running, ran| {
            Some(Retry {
                running,
                ran,
                side_effect: Some("write".into()),
            })
        };
        let again = desk.must::<JobStart>(first.clone()).await;
        assert_eq!(
            (again.id.as_str(), again.retry),
            ("t1", facts(true, Some(true)))
        );
        house.kill_supervisor().await;
        let after = desk.must::<JobStart>(first.clone()).await;
        assert_eq!(after.retry, facts(true, Some(true)));
        house.open(&go).await;
        desk.wait("t1").await;
        let over = desk.must::<JobStart>(first).await;
        assert_eq!(
            (over.ok, over.retry),
            (Some(true), facts(false, Some(true)))
        );
        assert_eq!(desk.get("t1").await.row.retry, None, "nobody asked again");
        let never = keyed("n", command(["no-such-program-9"]));
        desk.must::<JobStart>(never.clone()).await;
        let never = desk.must::<JobStart>(never).await;
        assert_eq!(never.retry, facts(false, Some(false)));
        let left = keyed("l", script("fork [ ignore HUP , sleep ] , exit 0"));
        let id = desk.must::<JobStart>(left.clone()).await.id;
        desk.wait(&id).await;
        let left = desk.must::<JobStart>(left).await;
        assert_eq!(left.retry, facts(true, Some(true)), "its child runs on");
    });
}

#[test]
fn a_run_that_is_asked_again_says_so_in_its_first_word_and_in_its_result() {
    in_house(async |house| {
        let desk = house.desk();
        let start = Start {
            key: Some("k".into()),
            ..script("say x")
        };
        assert_eq!(desk.run(start.clone()).await.row.retry, None);
        let again = desk.run(start).await;
        let facts = Retry {
            running: false,
            ran: Some(true),
            side_effect: None,
        };
        assert_eq!(again.row.retry, Some(facts));
        assert_eq!(again.stdout.as_deref(), Some("x\n"));
    });
}

#[test]
fn what_was_kept_from_a_job_is_named_where_everything_of_it_is_told() {
    in_house(async |house| {
        let desk = house.desk();
        let env = [("B_TOKEN", None), ("A_KEY", None), ("SHOWN", Some("1"))];
        let start = Start {
            env: env.map(|(n, v)| (n.into(), v.map(Into::into))).into(),
            ..script("environ")
        };
        let result = desk.run(start).await;
        assert_eq!(result.withheld, ["A_KEY", "B_TOKEN"]);
        let seen = result.stdout.unwrap_or_default();
        assert!(
            seen.contains("SHOWN=1") && !seen.contains("TOKEN"),
            "{seen}"
        );
        house.kill_supervisor().await;
        assert_eq!(desk.get("t1").await.withheld, ["A_KEY", "B_TOKEN"]);
    });
}
