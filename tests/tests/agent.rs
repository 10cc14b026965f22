//! Promise: a sub-agent is a job. It is listed, read, waited for and stopped like any other; what it started outlives it
//! and goes to whoever delegated; nobody has to guess whether it still lives.

use ostler::Agent;
use ostler_proto::agent::{
    AppendAgent, AwaitStop, ChildSession, FinishAgent, RegisterAgent, RegisteredAgent,
};
use ostler_proto::job::{Kind, Outcome, Row, State};
use ostler_proto::limits::RING;
use ostler_proto::methods::{
    AgentAppend, AgentFinish, AgentRegister, AgentStopRequested, CloseSession, JobList, JobRelease,
    JobStart, JobStop, JobWrite, Method, Nothing, OpenSession, SessionClose, SessionList,
    SessionRow, Start, Stop, Target, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::start::Stdin;
use ostler_tests::process::Process;
use ostler_tests::{
    Desk, House, PATIENCE, Wire, command, in_empty_house, in_house, pattern, puppet, rounds,
    script, within,
};
use serde_json::json;

fn agent(label: &str) -> RegisterAgent {
    RegisterAgent {
        label: Some(label.into()),
        ..RegisterAgent::default()
    }
}

/// A sub-agent with a session of its own.
fn delegated(label: &str, child: &str) -> RegisterAgent {
    RegisterAgent {
        child: Some(ChildSession {
            id: Some(child.into()),
            ..ChildSession::default()
        }),
        ..agent(label)
    }
}

async fn register(desk: &Desk, ask: RegisterAgent) -> Row {
    desk.must::<AgentRegister>(ask).await.row
}

fn says(id: &str, text: &str) -> AppendAgent {
    AppendAgent {
        id: id.into(),
        text: Some(text.into()),
        ..AppendAgent::default()
    }
}

fn finish(id: &str, code: i32) -> FinishAgent {
    FinishAgent {
        id: id.into(),
        exit_code: code,
        ..FinishAgent::default()
    }
}

fn stop(id: &str, grace_ms: u64) -> Stop {
    Stop {
        ids: vec![id.into()],
        grace_ms: Some(grace_ms),
        ..Stop::default()
    }
}

fn awaits(id: &str) -> AwaitStop {
    AwaitStop {
        id: id.into(),
        ..AwaitStop::default()
    }
}

fn session(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        ..OpenSession::default()
    }
}

async fn sessions(desk: &Desk) -> Vec<SessionRow> {
    let answer = desk.client.ask::<SessionList>(Nothing {}).await;
    answer.expect("an answer").sessions
}

/// A desk in the session of a sub-agent, by its token.
fn inside(house: &House, registered: &RegisteredAgent) -> Desk {
    let child = registered.child.clone().expect("it has a session");
    house.desk_of(OpenSession {
        id: Some(child.session.id),
        token: child.token,
        attach_only: true,
        ..OpenSession::default()
    })
}

#[test]
fn a_sub_agent_is_a_job_like_any_other() {
    in_house(async |house| {
        let desk = house.desk();
        let named = RegisterAgent {
            name: Some("reviewer".into()),
            ..agent("look at the last change")
        };
        let row = register(&desk, named).await;
        assert_eq!((row.id.as_str(), row.kind), ("a1", Kind::Agent));
        assert_eq!((row.state, row.pid), (State::Running, None));
        assert_eq!(row.executable, "look at the last change");
        let waiting = desk.printed("reviewer", "^two");
        let saying = async {
            desk.must::<AgentAppend>(says("a1", "one\n")).await;
            let said = desk
                .must::<AgentAppend>(says(&row.process_id, "two\n"))
                .await;
            assert_eq!((said.end, said.stop), (8, None));
        };
        tokio::join!(waiting, saying);
        let listed = desk.list().await;
        assert_eq!((listed.len(), listed[0].state), (1, State::Running));
        let last = FinishAgent {
            text: Some("done\n".into()),
            ..finish("a1", 0)
        };
        let ended = desk.must::<AgentFinish>(last.clone()).await;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Exited), Some(0))
        );
        assert_eq!(ended.ok, Some(true));
        // Who has lost the answer asks again; the result is the same each time.
        assert_eq!(desk.must::<AgentFinish>(last).await, ended);
        assert_eq!(desk.wait("a1").await, ended);
        for _ in 0..2 {
            let result = desk.get("a1").await;
            assert_eq!(result.stdout.as_deref(), Some("one\ntwo\ndone\n"));
        }
        let other = register(&desk, agent("another")).await;
        assert_eq!(other.id, "a2");
        let failed = FinishAgent {
            reason: Some("no such file".into()),
            ..finish("a2", 3)
        };
        let ended = desk.must::<AgentFinish>(failed).await;
        assert_eq!((ended.exit_code, ended.ok), (Some(3), Some(false)));
        let detail = ended.outcome_detail.expect("it said why");
        assert_eq!(detail.reason.as_deref(), Some("no such file"));
    });
}

#[test]
fn what_is_no_sub_agent_or_has_ended_cannot_be_spoken_for() {
    in_house(async |house| {
        let desk = house.desk();
        let job = desk.start(script("sleep")).await;
        let refused = desk.refused::<AgentAppend>(says(&job.id, "x")).await;
        assert_eq!(refused.kind, RefusalKind::NoInput);
        register(&desk, agent("a")).await;
        let refused = desk.refused::<JobWrite>(Write {
            id: "a1".into(),
            text: Some("x".into()),
            ..Write::default()
        });
        assert_eq!(refused.await.kind, RefusalKind::NoInput);
        desk.must::<AgentFinish>(finish("a1", 0)).await;
        for refused in [
            desk.refused::<AgentAppend>(says("a1", "x")).await,
            desk.refused::<AgentFinish>(finish("a1", 1)).await,
        ] {
            assert_eq!(refused.kind, RefusalKind::NoInput);
            assert!(refused.message.contains("has ended"), "{refused:?}");
        }
        for wrong in [
            RegisterAgent::default(),
            agent(" "),
            agent(&"x".repeat(2_000)),
        ] {
            let refused = desk.refused::<AgentRegister>(wrong).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
        }
        let refused = desk.refused::<AgentFinish>(finish("a1", 256)).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
    });
}

/// F1 for sub-agents.
#[test]
fn a_foreign_sub_agent_is_answered_as_one_that_never_was() {
    in_house(async |house| {
        let desk = house.desk();
        let row = register(&desk, agent("secret")).await;
        // Without the key of the owner, with a session of its own.
        let mut other = house.wire().await;
        let opened = other.call("session/open", json!({ "id": "other" })).await;
        assert_eq!(opened["result"]["created"], true, "{opened}");
        let never = row.process_id.replace("proc_0", "proc_1");
        for method in [
            AgentAppend::NAME,
            AgentFinish::NAME,
            AgentStopRequested::NAME,
        ] {
            let params = |id: &str| match method {
                AgentAppend::NAME => json!({ "id": id, "text": "x" }),
                _ => json!({ "id": id }),
            };
            let foreign = other.call(method, params(&row.process_id)).await["error"].clone();
            let unknown = other.call(method, params(&never)).await["error"].clone();
            assert_eq!(foreign["data"]["kind"], "not_found", "{foreign}");
            let unknown = unknown.to_string().replace(&never, &row.process_id);
            assert_eq!(foreign.to_string(), unknown, "{method}");
        }
        let result = desk.get("a1").await;
        assert_eq!(
            (result.row.state, result.row.output.end),
            (State::Running, 0)
        );
    });
}

/// D12, without commands of its own: who speaks as it is told, and has the grace.
#[test]
fn a_stop_is_told_to_who_speaks_as_it_and_answered_with_its_last_word() {
    in_house(async |house| {
        let owner = house.desk();
        register(&owner, agent("long work")).await;
        let asker = house.desk();
        let ask = Stop {
            by: Some("user".into()),
            reason: Some("enough".into()),
            ..stop("a1", 20_000)
        };
        let owning = async {
            let told = owner.must::<AgentStopRequested>(awaits("a1")).await;
            let request = told.stop.expect("somebody wants its end");
            assert_eq!(
                (request.by.as_str(), request.reason.as_deref()),
                ("user", Some("enough"))
            );
            assert!(request.left_ms > 10_000, "{request:?}");
            assert_eq!(told.row.state, State::Stopping);
            let said = owner.must::<AgentAppend>(says("a1", "half done\n")).await;
            assert!(said.stop.is_some(), "it is told with each word as well");
            owner.must::<AgentFinish>(finish("a1", 1)).await
        };
        let (summary, ended) = tokio::join!(asker.must::<JobStop>(ask), owning);
        let receipt = &summary.jobs[0];
        assert_eq!(receipt.row, ended);
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Stopped), Some(1))
        );
        assert!(ended.cancelled && receipt.survivors.is_empty());
        assert_eq!(receipt.took_ms / 20_000, 0, "{receipt:?}");
        let detail = ended.outcome_detail.expect("somebody asked");
        assert_eq!(
            (detail.by.as_deref(), detail.reason.as_deref()),
            (Some("user"), Some("enough"))
        );
    });
}

#[test]
fn a_stop_that_nobody_answers_ends_with_its_grace() {
    in_house(async |house| {
        let owner = house.desk();
        register(&owner, agent("deaf")).await;
        let ended = owner.stop("a1", 300).await.row;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Stopped), None)
        );
        // With nobody to hear it, there is nothing to wait for.
        let gone = house.desk();
        register(&gone, agent("gone")).await;
        drop(gone);
        let asked = owner.must::<JobStop>(stop("a2", 60_000));
        let stopped = within(PATIENCE, "the end", asked).await;
        assert_eq!(stopped.jobs[0].row.outcome, Some(Outcome::Stopped));
        let limited = RegisterAgent {
            timeout_ms: Some(100),
            grace_ms: Some(0),
            ..agent("slow")
        };
        register(&owner, limited).await;
        assert_eq!(owner.wait("a3").await.outcome, Some(Outcome::TimedOut));
    });
}

/// The time in which a lost owner may come back, for a test.
fn soon(house: &House) {
    let config = "[supervisor]\nreattach = \"300ms\"\n";
    std::fs::write(&house.folders().config, config).expect("the folder is ours");
}

#[test]
fn a_sub_agent_whose_owner_is_gone_is_lost_and_one_that_comes_back_in_time_goes_on() {
    in_empty_house(async |house| {
        soon(house);
        house.start();
        let watcher = house.desk();
        let keyed = RegisterAgent {
            key: Some("k".into()),
            ..agent("comes back")
        };
        let first = house.desk();
        register(&first, keyed.clone()).await;
        let second = house.desk();
        let again = register(&second, keyed.clone()).await;
        assert_eq!(again.id, "a1", "the same row");
        drop(first);
        let lost = house.desk();
        register(&lost, agent("does not")).await;
        drop(lost);
        // The second one was lost later than the first one would have been.
        let ended = watcher.wait("a2").await;
        assert_eq!(ended.outcome, Some(Outcome::Lost));
        let detail = ended.outcome_detail.expect("it says why");
        assert_eq!(
            detail.reason.as_deref(),
            Some("nobody speaks as it any more")
        );
        second.must::<AgentAppend>(says("a1", "here\n")).await;
        let conflict = RegisterAgent {
            key: Some("k".into()),
            ..agent("something else")
        };
        let refused = second.refused::<AgentRegister>(conflict).await;
        assert_eq!(refused.kind, RefusalKind::KeyConflict);
        assert_eq!(
            second.must::<AgentFinish>(finish("a1", 0)).await.ok,
            Some(true)
        );
    });
}

/// The ways in which who speaks goes without a word: its connection is closed while a request is served, its process is
/// killed, or it does not come to a new supervisor.
#[test]
fn a_sub_agent_whose_owner_was_killed_is_lost_when_its_time_is_over() {
    in_empty_house(async |house| {
        soon(house);
        house.start();
        let watcher = house.desk();
        let ask = json!({ "label": "speaks" });
        let id_of = |answer: serde_json::Value| {
            let id = answer["result"]["row"]["processId"].as_str();
            id.unwrap_or_else(|| panic!("{answer}")).to_owned()
        };

        let mut closed = house.wire().await;
        closed.call("session/open", json!({ "id": "closed" })).await;
        let first = id_of(closed.call(AgentRegister::NAME, ask.clone()).await);
        closed
            .ask(AgentStopRequested::NAME, json!({ "id": first }))
            .await;
        closed.call(JobList::NAME, json!({})).await;
        drop(closed);

        let (mut wire, mut bridge) = Wire::to_child(house.ostler(&["lsp"]));
        let hello = json!({ "processId": null, "capabilities": {}, "rootUri": null });
        wire.call("initialize", hello).await;
        let second = id_of(wire.call(AgentRegister::NAME, ask.clone()).await);
        bridge.kill().expect("it lives");
        bridge.wait().expect("it was killed");

        for id in [&first, &second] {
            assert_eq!(watcher.wait(id).await.outcome, Some(Outcome::Lost), "{id}");
        }

        let mut gone = house.wire().await;
        gone.call("session/open", json!({ "id": "gone" })).await;
        let third = id_of(gone.call(AgentRegister::NAME, ask).await);
        // It breaks with the supervisor, and nobody comes to the next one.
        house.kill_supervisor().await;
        assert_eq!(watcher.wait(&third).await.outcome, Some(Outcome::Lost));
    });
}

#[test]
fn a_sub_agent_goes_on_over_crashes_of_the_supervisor_with_every_word() {
    in_house(async |house| {
        let desk = house.desk();
        register(&desk, delegated("long", "below")).await;
        // More than a ring, so that the first words are on disk.
        let (piece, pieces) = (RING / 8, 24);
        for n in 0..pieces {
            if n % 6 == 5 {
                house.kill_supervisor().await;
            }
            let bytes = pattern::bytes(n * piece, piece as usize);
            let said = AppendAgent {
                text: None,
                base64: Some(base64(&bytes)),
                at: Some(n * piece),
                ..says("a1", "")
            };
            // Said twice, as by who has lost the answer.
            for _ in 0..2 {
                let end = desk.must::<AgentAppend>(said.clone()).await.end;
                assert_eq!(end, (n + 1) * piece);
            }
            let elsewhere = AppendAgent {
                at: Some(1),
                ..said
            };
            let refused = desk.refused::<AgentAppend>(elsewhere).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
        }
        desk.assert_pattern("a1", pieces * piece).await;
        house.kill_supervisor().await;
        assert_eq!(desk.get("a1").await.row.state, State::Running);
        let ended = desk.must::<AgentFinish>(finish("a1", 0)).await;
        assert_eq!((ended.ok, ended.output.lost), (Some(true), 0));
        desk.assert_pattern("a1", pieces * piece).await;
        house.kill_supervisor().await;
        let again = desk.get("a1").await.row;
        assert_eq!(
            (again.outcome, again.exit_code),
            (ended.outcome, ended.exit_code)
        );
        assert_eq!(
            (again.finished_at, again.output.end),
            (ended.finished_at, pieces * piece)
        );
    });
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// F6, D12: handed over, over its quota too, and nothing is killed.
#[test]
fn what_a_sub_agent_started_goes_to_who_delegated_and_goes_on() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            commands: Some(1),
            ..session("x")
        });
        desk.start(script("sleep")).await;
        let registered = desk.must::<AgentRegister>(delegated("work", "below")).await;
        let child = inside(house, &registered);
        let server = child.ready(script("say ready , sleep")).await;
        let done = child.run(script("say over , exit 3")).await.row;
        let cursor = child.read(&server.id, 0).await.next;
        // Who delegated sees them all the time.
        let seen = sessions(&desk).await;
        let below = seen
            .iter()
            .find(|s| s.session.id == "below")
            .expect("it is listed");
        assert_eq!((below.parent.as_deref(), below.jobs), (Some("x"), 1));
        let receipt = desk.stop("a1", 0).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        let [left] = &receipt.left_running[..] else {
            panic!("one goes on: {receipt:?}")
        };
        let row = desk.get(left).await.row;
        assert_eq!(
            (row.process_id.clone(), row.state),
            (server.process_id, State::Running)
        );
        assert!(
            Process::of(server.pid.unwrap()).is_some(),
            "it was not touched"
        );
        assert_eq!(desk.read(left, cursor).await.from, cursor);
        let old = desk.get(&format!("below/{}", server.id)).await.row;
        assert_eq!(old.id, row.id, "the old name holds");
        let ended = desk.get(&done.process_id).await.row;
        assert_eq!(ended.exit_code, Some(3));
        // Nobody's child any more.
        let refused = child.refused::<JobStart>(script("sleep")).await;
        assert!(
            matches!(
                refused.kind,
                RefusalKind::Moved | RefusalKind::NotFound | RefusalKind::Limit
            ),
            "{refused:?}"
        );
        // Over the quota: nothing new until there is room.
        let refused = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(refused.kind, RefusalKind::Limit);
        desk.stop(left, 0).await;
    });
}

#[test]
fn the_command_line_says_whose_the_commands_of_a_stopped_sub_agent_are() {
    in_house(async |house| {
        let desk = house.desk();
        let registered = desk.must::<AgentRegister>(delegated("work", "below")).await;
        let child = inside(house, &registered);
        child.start(script("sleep")).await;
        child.start(script("sleep")).await;
        let said = house.cli(&["stop", "--session", "x", "--grace", "0", "a1"]);
        assert_eq!(said.code, 0, "{said:?}");
        let out = said.out.trim_end();
        assert!(out.ends_with("; its commands go on: t1, t2"), "{said:?}");
        let ls = house.cli(&["ls", "--session", "x"]);
        for line in ["a1\t\tstopped", "t1\t\trunning", "t2\t\trunning"] {
            assert!(ls.out.contains(line), "{ls:?}");
        }
    });
}

/// The receipt said that they go on, and the next one that they were stopped.
#[test]
fn what_is_stopped_with_its_sub_agent_is_not_said_to_go_on() {
    in_house(async |house| {
        let desk = house.desk();
        for wait in [true, false] {
            let registered = desk.must::<AgentRegister>(delegated("work", "below")).await;
            let child = inside(house, &registered);
            child.start(script("sleep")).await;
            let left = child.start(script("sleep")).await;
            // As one job alone it goes on, and the other one does not.
            let stop = Stop {
                ids: vec![registered.row.process_id.clone(), left.process_id.clone()],
                grace_ms: Some(0),
                wait: Some(true),
                ..Stop::default()
            };
            let summary = desk.must::<JobStop>(stop).await;
            assert_eq!(summary.jobs[0].left_running.len(), 1, "{summary:?}");
            let rest = summary.jobs[0].left_running[0].clone();
            desk.stop(&rest, 0).await;

            let registered = desk.must::<AgentRegister>(delegated("work", "below")).await;
            let child = inside(house, &registered);
            let left = child.start(script("sleep")).await;
            let stop = Stop {
                everywhere: true,
                grace_ms: Some(0),
                wait: Some(wait),
                ..Stop::default()
            };
            let summary = house.desk_without_session().must::<JobStop>(stop).await;
            assert_eq!(summary.jobs.len(), 2, "{summary:?}");
            for receipt in &summary.jobs {
                assert!(receipt.left_running.is_empty(), "{summary:?}");
            }
            desk.over(&left.process_id).await;
            desk.over(&registered.row.process_id).await;
        }
    });
}

/// F6, D12: where the same command stops them as well, they are stopped, and nothing else is said of them.
#[test]
fn a_receipt_says_that_commands_go_on_only_where_the_same_command_does_not_stop_them() {
    in_house(async |house| {
        std::fs::create_dir(house.file(".git")).unwrap();
        let ways: [(&[&str], bool); 5] = [
            (&["stop", "--session", "x", "--all"], true),
            (&["stop", "--project"], false),
            (&["stop", "-A"], false),
            (&["stop", "x/work", "below/t1"], false),
            (&["daemon", "stop"], false),
        ];
        for (way, goes_on) in ways {
            let desk = house.desk_of(OpenSession {
                root: Some(house.path("").trim_end_matches('/').into()),
                ..session("x")
            });
            let work = RegisterAgent {
                name: Some("work".into()),
                ..delegated("work", "below")
            };
            let registered = desk.must::<AgentRegister>(work).await;
            let child = inside(house, &registered);
            let started = child.ready(script("ignore TERM , say ready , sleep")).await;
            let said = house.cli(&[way, &["--grace", "100ms"]].concat());
            assert_eq!(said.code, 0, "{said:?}");
            assert_eq!(said.out.contains("go on"), goes_on, "{way:?}: {said:?}");
            let command = Process::of(started.pid.unwrap());
            assert_eq!(command.is_some(), goes_on, "{way:?}: {said:?}");
            if goes_on {
                assert!(said.out.ends_with("; its commands go on: t1\n"), "{said:?}");
            }
        }
    });
}

/// Its `t1` is another job than the `t1` of whoever stops it from above.
#[test]
fn what_a_sub_agent_of_a_sub_agent_leaves_is_named_with_its_session() {
    in_house(async |house| {
        let desk = house.desk();
        let top = desk.start(script("sleep")).await;
        let registered = desk.must::<AgentRegister>(delegated("work", "below")).await;
        let child = inside(house, &registered);
        let registered = child
            .must::<AgentRegister>(delegated("deep", "deeper"))
            .await;
        let left = inside(house, &registered).start(script("sleep")).await;
        assert_eq!((top.id.as_str(), left.id.as_str()), ("t1", "t1"));
        let said = house.cli(&["stop", "--session", "x", "--grace", "0", "below/a1"]);
        assert_eq!(said.code, 0, "{said:?}");
        let out = said.out.trim_end();
        assert!(out.ends_with("; its commands go on: below/t1"), "{said:?}");
        let found = desk.get("below/t1").await.row;
        assert_eq!(found.process_id, left.process_id);
        // One further up: the name that was told still is that job.
        let receipt = desk.stop("a1", 0).await;
        assert_eq!(receipt.left_running, ["x/t2"]);
        for name in ["below/t1", "x/t2"] {
            assert_eq!(desk.get(name).await.row.process_id, left.process_id);
        }
    });
}

#[test]
fn a_program_started_as_a_sub_agent_starts_its_commands_in_a_session_of_its_own() {
    in_house(async |house| {
        let go = house.fifo("go");
        let line = format!(
            "ostler start --session x --agent --name worker -c 'ostler start -- puppet sleep; puppet await {go}'"
        );
        let said = house.shell(&line);
        assert_eq!((said.code, said.out.as_str()), (0, "a1\n"), "{said:?}");
        let desk = house.desk();
        assert_eq!(desk.printed("worker", "^t1$").await, "t1");
        let waited = house.cli(&["wait", "--session", "x", "worker", "--timeout", "10ms"]);
        assert_eq!(waited.code, 124, "{waited:?}");
        house.open(&go).await;
        assert_eq!(desk.wait("worker").await.exit_code, Some(0));
        let left = desk
            .until("t1", "the hand-over", |r| r.row.session.id == "x")
            .await;
        assert_eq!(left.row.state, State::Running);
    });
}

/// Three deep: each is a program with a session of its own, and each delegates to the next.
#[test]
fn programs_that_are_sub_agents_have_sessions_of_their_own_three_deep() {
    in_house(async |house| {
        let desk = house.desk();
        let mut above = desk.clone();
        let mut rows = Vec::new();
        for depth in 1..=3 {
            let start = script(&format!("ignore TERM , say ready {depth} , sleep"));
            let ask = RegisterAgent {
                name: Some(format!("depth{depth}")),
                start: Some(Box::new(start)),
                ..RegisterAgent::default()
            };
            let registered = above.must::<AgentRegister>(ask).await;
            assert_eq!(registered.row.kind, Kind::Agent);
            above.printed(&registered.row.id, "^ready").await;
            let child = registered.child.clone().expect("a program has a session");
            let environment =
                std::fs::read(format!("/proc/{}/environ", registered.row.pid.unwrap()));
            let environment = environment.expect("it lives");
            let variable = format!("OSTLER_SESSION={}", child.session.id);
            assert!(
                environment
                    .split(|b| *b == 0)
                    .any(|v| v == variable.as_bytes())
            );
            above = inside(house, &registered);
            above.start(script("sleep")).await;
            rows.push(registered.row);
        }
        // The one in the middle ends: what was below it works for the first one now.
        let receipt = desk.stop(&rows[1].process_id, 0).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        assert_eq!(receipt.left_running.len(), 2, "{receipt:?}");
        let third = desk.get(&rows[2].process_id).await.row;
        assert_eq!(third.state, State::Running);
        assert_eq!(
            third.session, rows[1].session,
            "it stands where the second one stood"
        );
        // The first one ends after a crash of the supervisor.
        house.kill_supervisor().await;
        let receipt = desk.stop(&rows[0].process_id, 0).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        let live = desk
            .list()
            .await
            .into_iter()
            .filter(|r| r.state == State::Running);
        assert_eq!(live.count(), 3, "two commands and the third agent");
        let closed = desk.must::<SessionClose>(CloseSession::default()).await;
        assert!(closed.jobs.iter().all(|r| r.survivors.is_empty()));
        assert_eq!(closed.jobs.len(), 6);
    });
}

/// A refusal named `start` for its `key`, `label` for a `timeoutMs`, and `id` for that of the child session.
#[test]
fn a_registration_that_is_refused_names_the_field_that_is_wrong() {
    in_house(async |house| {
        let desk = house.desk();
        let program = |change: &dyn Fn(&mut RegisterAgent)| {
            let mut ask = RegisterAgent {
                start: Some(Box::new(script("sleep"))),
                ..RegisterAgent::default()
            };
            change(&mut ask);
            ask
        };
        let start = |change: &dyn Fn(&mut Start)| {
            program(&|ask| change(ask.start.as_mut().expect("it has one")))
        };
        let child = |change: &dyn Fn(&mut ChildSession)| {
            program(&|ask| change(ask.child.insert(ChildSession::default())))
        };
        let table = [
            ("start.key", start(&|s| s.key = Some("k".into()))),
            ("start.name", start(&|s| s.name = Some("n".into()))),
            ("start.session", start(&|s| s.session = Some("x".into()))),
            ("label", program(&|a| a.label = Some("work".into()))),
            ("timeoutMs", program(&|a| a.timeout_ms = Some(1))),
            ("graceMs", program(&|a| a.grace_ms = Some(1))),
            ("child.id", child(&|c| c.id = Some("a b".into()))),
            ("child.commands", child(&|c| c.commands = Some(0))),
            ("label", RegisterAgent::default()),
            ("child.id", delegated("work", "x")),
        ];
        for (field, ask) in table {
            let refused = desk.refused::<AgentRegister>(ask).await;
            assert_eq!(refused.data["field"], field, "{refused:?}");
            let says_so = refused.message.contains(&format!("`{field}`"))
                || refused.hint.as_ref().is_some_and(|h| h.contains(field));
            assert!(says_so, "{refused:?}");
        }
        assert!(desk.list().await.is_empty());
    });
}

/// Nothing outlives the session that delegated: not by being handed over while that is ended.
#[test]
fn a_closed_session_ends_what_its_sub_agents_run() {
    in_house(async |house| {
        for (n, closing) in ["close", "lease"].into_iter().enumerate() {
            let lease_ms = (closing == "lease").then_some(1);
            let name = format!("s{n}");
            let desk = house.desk_of(OpenSession {
                lease_ms,
                ..session(&name)
            });
            let first = desk
                .must::<AgentRegister>(delegated("one", &format!("b{n}")))
                .await;
            let one = inside(house, &first);
            let second = one
                .must::<AgentRegister>(delegated("two", &format!("c{n}")))
                .await;
            let two = inside(house, &second);
            let mut processes = Vec::new();
            for desk in [&desk, &one, &two] {
                let row = desk.ready(script("say ready , sleep")).await;
                processes.push(Process::of(row.pid.unwrap()).expect("it runs"));
            }
            if closing == "close" {
                let closed = desk.must::<SessionClose>(CloseSession::default()).await;
                assert_eq!(closed.jobs.len(), 5, "{closed:?}");
            } else {
                drop(one);
                drop(two);
                drop(desk);
            }
            for process in processes {
                within(PATIENCE, "its end", process.gone()).await;
            }
        }
    });
}

#[test]
fn sub_agents_have_a_limit_of_their_own() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            agents: Some(2),
            commands: Some(1),
            ..session("x")
        });
        desk.start(script("sleep")).await;
        register(&desk, agent("one")).await;
        register(&desk, delegated("two", "below")).await;
        let refused = desk
            .refused::<AgentRegister>(delegated("three", "below3"))
            .await;
        assert_eq!(refused.kind, RefusalKind::Limit);
        assert_eq!(
            refused.data["rows"].as_array().map(Vec::len),
            Some(2),
            "{refused:?}"
        );
        // Nothing was made for it.
        let open = sessions(&desk).await;
        assert!(open.iter().all(|s| s.session.id != "below3"), "{open:?}");
        desk.must::<AgentFinish>(finish("a1", 0)).await;
        register(&desk, agent("three")).await;
        desk.must::<JobRelease>(Target {
            session: None,
            id: "a2".into(),
        })
        .await;
        let rows = desk.list().await;
        assert!(rows.iter().all(|r| r.id != "a2"), "{rows:?}");
    });
}

/// Its end and the hand-over are two steps; a crash in between leaves no session without a parent.
#[test]
fn a_crash_at_the_end_of_a_sub_agent_loses_none_of_its_commands() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            commands: Some(100),
            ..session("x")
        });
        for n in 0..rounds("OSTLER_KILLS", 10) {
            let below = format!("below{n}");
            let registered = desk.must::<AgentRegister>(delegated("work", &below)).await;
            let child = inside(house, &registered);
            let row = child.start(command([puppet(), "sleep"])).await;
            let id = registered.row.id.clone();
            let ending = desk.client.ask::<AgentFinish>(finish(&id, 0));
            let (ended, _) = tokio::join!(ending, house.kill_supervisor());
            // Whichever was first: it has ended, or goes on and is ended now.
            if ended.is_err() {
                desk.must::<AgentFinish>(finish(&id, 0)).await;
            }
            let now = desk.until(&row.process_id, "the hand-over", |r| {
                r.row.session.id == "x"
            });
            assert_eq!(now.await.row.state, State::Running);
            desk.stop(&row.process_id, 0).await;
        }
    });
}

#[test]
fn the_library_speaks_as_a_sub_agent_over_a_killed_supervisor() {
    in_house(async |house| {
        let desk = house.desk();
        let agent = Agent::register(&desk.client, delegated("review", "below")).await;
        let agent = agent.expect("it is registered");
        assert_eq!(agent.child().map(|c| c.created), Some(true));
        let watcher = house.desk();
        let stopped = async {
            watcher.said("a1", "^99$").await;
            watcher.stop("a1", 60_000).await.row
        };
        let speaking = async {
            for n in 0..100 {
                let said = async { agent.say(&format!("{n}\n")).await.expect("it is said") };
                if n % 20 == 10 {
                    tokio::join!(said, house.kill_supervisor());
                } else {
                    said.await;
                }
            }
            let asked = agent.stop_requested().await.expect("an answer");
            assert_eq!(asked.map(|stop| stop.by).as_deref(), Some("client"));
            agent
                .finish(2, Some("was asked to".into()))
                .await
                .expect("it ends")
        };
        let (stopped, finished) = tokio::join!(stopped, speaking);
        assert_eq!((stopped.exit_code, finished.exit_code), (Some(2), Some(2)));
        let all: String = (0..100).map(|n| format!("{n}\n")).collect();
        assert_eq!(desk.get("a1").await.stdout, Some(all));
    });
}

/// A client that has lost the answer asks again, with the same key.
#[test]
fn a_registration_that_is_asked_again_is_the_same_one_with_its_session() {
    in_house(async |house| {
        let desk = house.desk();
        let program = RegisterAgent {
            start: Some(Box::new(script("sleep"))),
            child: Some(ChildSession {
                id: Some("below-it".into()),
                ..ChildSession::default()
            }),
            ..RegisterAgent::default()
        };
        for (key, ask) in [("k1", delegated("review", "below")), ("k2", program)] {
            let ask = RegisterAgent {
                key: Some(key.into()),
                ..ask
            };
            let first = desk.must::<AgentRegister>(ask.clone()).await;
            for _ in 0..2 {
                let again = desk.must::<AgentRegister>(ask.clone()).await;
                assert_eq!(again.row.process_id, first.row.process_id);
                let of = |r: &RegisteredAgent| r.child.as_ref().map(|c| c.session.clone());
                assert_eq!(of(&again), of(&first));
            }
            // With what opens that session, unless a supervisor has died since, which kept it in its head alone.
            let token = |r: &RegisteredAgent| r.child.as_ref().and_then(|c| c.token.clone());
            let again = desk.must::<AgentRegister>(ask.clone()).await;
            assert!(token(&first).is_some());
            assert_eq!(token(&again), token(&first));
            house.kill_supervisor().await;
            let again = desk.must::<AgentRegister>(ask.clone()).await;
            assert_eq!(again.row.process_id, first.row.process_id);
            assert_eq!(token(&again), None);
        }
        assert_eq!(desk.list().await.len(), 2);
    });
}

/// `start` belonged beside `start`, a time limit was called a label, and what was wrong with the program or with the session
/// below it was told of fields that the request does not have.
#[test]
fn each_refusal_of_a_registration_names_the_field_as_the_request_has_it() {
    in_house(async |house| {
        let desk = house.desk();
        let program = json!({ "args": [puppet(), "sleep"] });
        let with = |field: &str, value: serde_json::Value| {
            let mut start = program.clone();
            start[field] = value;
            json!({ "start": start })
        };
        for (ask, field, words) in [
            (
                json!({}),
                "label",
                "must say what it is to do, or `start` which program it is",
            ),
            (json!({ "label": "a\0b" }), "label", "may not contain NUL"),
            (
                json!({ "label": "a", "timeoutMs": 0 }),
                "timeoutMs",
                "must be 1 to 2592000000",
            ),
            (
                json!({ "label": "a", "name": "t1" }),
                "name",
                "may not look like an id",
            ),
            (
                json!({ "label": "a", "key": "" }),
                "key",
                "must have 1 to 256 bytes",
            ),
            (
                with("session", json!("x")),
                "start.session",
                "belongs beside `start`, as `session`",
            ),
            (
                with("key", json!("k")),
                "start.key",
                "belongs beside `start`, as `key`",
            ),
            (
                with("name", json!("n")),
                "start.name",
                "belongs beside `start`, as `name`",
            ),
            (
                json!({ "start": program, "label": "a" }),
                "label",
                "is for one without a program: with `start` that is what lists show",
            ),
            (
                json!({ "start": program, "timeoutMs": 5 }),
                "timeoutMs",
                "belongs into `start`, as `start.timeoutMs`",
            ),
            (
                json!({ "start": program, "graceMs": 5 }),
                "graceMs",
                "belongs into `start`, as `start.graceMs`",
            ),
            (
                json!({ "start": program, "name": "t1" }),
                "name",
                "may not look like an id",
            ),
            (json!({ "start": {} }), "start.args", "must name a program"),
            (with("cwd", json!("here")), "start.cwd", "must be absolute"),
            (
                with("timeoutMs", json!(0)),
                "start.timeoutMs",
                "must be 1 to 2592000000",
            ),
            (
                with("stdin", json!({ "base64": "%" })),
                "start.stdin",
                "is no base64",
            ),
            (
                json!({ "label": "a", "child": { "id": "a/b" } }),
                "child.id",
                "",
            ),
            (
                json!({ "label": "a", "child": { "shells": 0 } }),
                "child.shells",
                "must be 1 to 10000",
            ),
            (
                json!({ "label": "a", "child": { "id": 7 } }),
                "child.id",
                "is wrong",
            ),
        ] {
            let asked: RegisterAgent = match serde_json::from_value(ask.clone()) {
                Ok(asked) => asked,
                Err(_) => {
                    let refused = &house.wire().await.call("agent/register", ask).await["error"];
                    assert_eq!(refused["data"]["field"], field, "{refused}");
                    continue;
                }
            };
            let refused = desk.refused::<AgentRegister>(asked).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument, "{ask}");
            assert_eq!(refused.data["field"], field, "{ask}: {refused:?}");
            let begins = format!("`{field}` {words}");
            assert!(
                refused.message.starts_with(&begins),
                "{ask}: {}",
                refused.message
            );
        }
        let refused = desk.refused::<AgentRegister>(delegated("a", "x")).await;
        assert_eq!(refused.data["field"], "child.id", "{refused:?}");
        let hint = refused.hint.expect("what to do about it");
        assert_eq!(hint, "another `child.id`; without one it is made up");
    });
}

/// A row that had no process stood there as starting for ever, with a session below it.
#[test]
fn a_registration_that_is_refused_leaves_no_row_and_no_session() {
    in_house(async |house| {
        let desk = house.desk();
        let mut start = script("sleep");
        start.stdin = Stdin::Base64("%".into());
        let unreadable = RegisterAgent {
            start: Some(Box::new(start)),
            ..RegisterAgent::default()
        };
        assert_eq!(desk.list().await, []);
        let open = sessions(&desk).await;
        let taken = delegated("review", &open[0].session.id);
        let (bad, name_taken) = (RefusalKind::BadArgument, RefusalKind::NameTaken);
        for (ask, why) in [(unreadable, bad), (taken, name_taken)] {
            assert_eq!(desk.refused::<AgentRegister>(ask).await.kind, why);
            assert_eq!(desk.list().await, []);
            assert_eq!(sessions(&desk).await.len(), open.len());
        }
    });
}

/// The hints were those for commands, which nobody can follow who has a sub-agent.
#[test]
fn who_types_to_a_sub_agent_is_told_that_it_takes_no_input() {
    in_house(async |house| {
        let desk = house.desk();
        desk.must::<AgentRegister>(delegated("work", "below")).await;
        let said = house.cli(&["send", "--session", "x", "a1", "hello"]);
        assert_eq!(
            said.err,
            "error: a1 is a sub-agent, which takes no input\nhint: ostler read a1\n"
        );
        let keys = house.cli(&["keys", "--session", "x", "a1", "C-c"]);
        assert_eq!(keys.err, "error: a1 has no terminal\n");
        let mut mcp = ostler_tests::Mcp::legacy(house, &["--session", "x"]).await;
        assert_eq!(
            mcp.bad("input", serde_json::json!({"id": "a1", "text": "hello"}))
                .await,
            "no_input: a1 is a sub-agent and takes no input. Read it: output id=a1."
        );
    });
}

/// The answer came before the hand-over: a list right behind it showed the commands in the session of the sub-agent.
#[test]
fn who_is_told_that_a_sub_agent_has_finished_finds_what_it_started() {
    in_house(async |house| {
        let desk = house.desk();
        for round in 1..=10 {
            let id = format!("below{round}");
            let registered = desk.must::<AgentRegister>(delegated("work", &id)).await;
            let server = inside(house, &registered).start(script("sleep")).await;
            desk.must::<AgentFinish>(finish(&registered.row.id, 0))
                .await;
            let rows = desk.list().await;
            assert!(
                rows.iter().any(|r| r.process_id == server.process_id),
                "round {round}: {rows:?}"
            );
        }
    });
}
