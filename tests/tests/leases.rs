//! Promise: whoever of those who use the supervisor is killed, what it ran ends in its time, and what there is to read can be
//! read; and a sub-agent, a heartbeat or a move of a session ends nothing that it does not say.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use ostler_proto::agent::{
    AppendAgent, AwaitStop, ChildSession, FinishAgent, RegisterAgent, RegisteredAgent,
};
use ostler_proto::job::{Outcome, Row, State};
use ostler_proto::limits;
use ostler_proto::methods::{
    AgentAppend, AgentFinish, AgentRegister, AgentStopRequested, JobRead, Nothing, OpenSession,
    Read, RenameSession, SessionList, SessionRename, SessionRow, Stop,
};
use ostler_tests::acp::Proxy;
use ostler_tests::process::{self, Process};
use ostler_tests::{
    Desk, House, Mcp, PATIENCE, Wire, in_empty_house, in_house, ostler, puppet, script, within,
};
use serde_json::{Value, json};

fn named(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        ..OpenSession::default()
    }
}

async fn sessions(house: &House) -> Vec<SessionRow> {
    let desk = house.desk_without_session();
    desk.must::<SessionList>(Nothing {}).await.sessions
}

/// Waits until the one session has lost its last client, and returns it: the end of a process is seen on its socket.
async fn orphaned(house: &House) -> SessionRow {
    let alone = async {
        loop {
            let mut all = sessions(house).await;
            if all.len() == 1 && all[0].clients == 0 {
                return all.remove(0);
            }
        }
    };
    within(PATIENCE, "the end of the connection", alone).await
}

/// What agents are given when they go, and not yet over.
fn assert_lease_runs(session: &SessionRow) {
    assert_eq!(session.lease_ms, Some(limits::AGENT_LEASE), "{session:?}");
    let left = session.lease_left_ms.expect("it runs");
    assert!(left <= limits::AGENT_LEASE, "{session:?}");
    assert_eq!(session.lapsed_at, None);
}

/// A front end of agents is killed: its command runs on for the lease, then ends by it. Nobody waits for the half minute here:
/// who has the token shortens it. What there is to read stays, for a new connection with that token and no other.
#[test]
fn what_a_killed_mcp_front_end_ran_ends_by_its_lease_and_can_be_read_with_its_token() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let steps = format!("exec {} fork [ sleep ] , say kept , sleep", puppet());
        let ask = json!({"command": steps, "until": "text=kept"});
        mcp.good("run", ask).await;
        let ask = json!({"command": "echo over; exit 3"});
        mcp.good("run", ask).await;
        assert_eq!(mcp.end_by(libc::SIGKILL).await, libc::SIGKILL);
        let session = orphaned(house).await;
        assert_lease_runs(&session);
        let tokens = house.folders().state.join("agents");
        let file = std::fs::read_dir(tokens).unwrap().next().unwrap().unwrap();
        let kept: Value = serde_json::from_slice(&std::fs::read(file.path()).unwrap()).unwrap();
        let (id, token) = (&kept["session"], &kept["token"]);
        assert_eq!(id, session.session.id.as_str());
        let mut wire = house.wire().await;
        let open = json!({ "id": id, "token": token, "attachOnly": true, "leaseMs": 1 });
        let opened = wire.call("session/open", open.clone()).await;
        assert!(opened["result"].is_object(), "{opened}");
        // Coming back has stopped the lease, and nothing else.
        let row = wire.call("job/get", json!({ "id": "t1" })).await["result"].take();
        assert_eq!(row["state"], "running", "{row}");
        drop(wire);
        let watcher = house.desk_without_session();
        let process_id = row["processId"].as_str().unwrap();
        let ended = watcher.wait(process_id).await;
        let by = ended.outcome_detail.and_then(|d| d.by);
        assert_eq!(
            (ended.outcome, by.as_deref()),
            (Some(Outcome::Stopped), Some("lease"))
        );
        watcher.over(process_id).await;
        assert!(orphaned(house).await.lapsed_at.is_some());
        let mut wire = house.wire().await;
        let stranger = wire
            .call("session/open", json!({ "id": id, "attachOnly": true }))
            .await;
        assert!(stranger["error"].is_object(), "{stranger}");
        wire.call("session/open", open).await;
        for (job, text, outcome) in [("t1", "kept\n", "stopped"), ("t2", "over\n", "exited")] {
            let page = wire
                .call("job/read", json!({ "id": job, "since": 0 }))
                .await;
            assert_eq!(page["result"]["text"], text, "{page}");
            let got = wire.call("job/get", json!({ "id": job })).await;
            assert_eq!(got["result"]["outcome"], outcome, "{got}");
        }
    });
}

/// The same of `ostler acp`: its agent ends at once, its terminals by the lease. Its token dies with it, so that it is the user
/// who reads.
#[test]
fn what_a_killed_acp_front_end_ran_ends_by_its_lease_and_can_be_read() {
    in_house(async |house| {
        let mut proxy = Proxy::shaken(house, json!({})).await;
        proxy.session("s", &house.path(".")).await;
        let id = proxy
            .create(1, &format!("{} say kept , sleep", puppet()))
            .await;
        proxy
            .ask(
                2,
                "terminal/wait_for_exit",
                json!({ "sessionId": "s", "terminalId": id }),
            )
            .await;
        let watcher = house.desk_without_session();
        watcher.said(&id, "^kept$").await;
        let own = proxy.child.id().unwrap();
        let agent = process::all()
            .into_iter()
            .find(|p| process::parent(*p) == Some(own));
        let agent = Process::of(agent.unwrap()).unwrap();
        Process::of(own).unwrap().signal(libc::SIGKILL);
        assert_eq!(proxy.code().await, 137);
        within(PATIENCE, "the end of the agent", agent.gone()).await;
        let session = orphaned(house).await;
        assert_lease_runs(&session);
        assert_eq!(watcher.get(&id).await.row.state, State::Running);
        let shorter = house.desk_of(OpenSession {
            lease_ms: Some(1),
            ..named(&session.session.id)
        });
        shorter.list().await;
        drop(shorter);
        let ended = watcher.wait(&id).await;
        assert_eq!(
            ended.outcome_detail.and_then(|d| d.by).as_deref(),
            Some("lease")
        );
        watcher.over(&id).await;
        let read = Read {
            id,
            since: Some(0),
            ..Read::default()
        };
        assert_eq!(
            watcher.must::<JobRead>(read).await.text.as_deref(),
            Some("kept\n")
        );
    });
}

/// An editor is killed, which says nothing to anybody: `ostler acp` sees the end of its input, ends its agent and closes the
/// session, and nothing waits for a lease.
#[test]
fn the_terminals_of_a_killed_editor_are_gone() {
    in_house(async |house| {
        let agent = ostler().parent().unwrap().join("acp_agent");
        let steps = json!([
            ["terminal/create", { "command": puppet(), "args": ["fork", "[", "sleep", "]", ",", "ignore", "TERM", ",", "say", "up", ",", "sleep"] }],
            ["update", { "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": [{ "type": "terminal", "terminalId": "$0" }] }],
            ["terminal/wait_for_exit", { "terminalId": "$0" }]
        ]);
        let prompt = json!({ "sessionId": "scripted", "prompt": [{ "type": "text", "text": steps.to_string() }] });
        let asked: String = [
            (
                "initialize",
                json!({ "protocolVersion": 1, "clientCapabilities": {} }),
            ),
            (
                "session/new",
                json!({ "cwd": house.path("."), "mcpServers": [] }),
            ),
            ("session/prompt", prompt),
        ]
        .into_iter()
        .enumerate()
        .map(|(n, (method, params))| {
            json!({ "jsonrpc": "2.0", "id": n, "method": method, "params": params }).to_string()
                + "\n"
        })
        .collect();
        std::fs::write(house.file("asked"), asked).unwrap();
        // bash, for a child on two pipes; it repeats what comes.
        let editor = format!(
            "coproc {{ exec {} acp -- {}; }}; while read -r line; do echo \"$line\" >&${{COPROC[1]}}; done <asked; \
             while read -r line <&${{COPROC[0]}}; do echo \"$line\"; done",
            ostler().display(),
            agent.display()
        );
        let plain = house.ostler(&[]);
        let mut command = std::process::Command::new("bash");
        command
            .args(["-c", &editor])
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .current_dir(house.file("."))
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let up = tokio::task::spawn_blocking(move || {
            said.lines()
                .map_while(Result::ok)
                .any(|line| line.contains(r"\nup\n"))
        });
        assert!(
            within(PATIENCE, "the terminal", up).await.unwrap(),
            "it ended before"
        );
        let own = process::all()
            .into_iter()
            .find(|p| process::parent(*p) == Some(child.id()));
        let own = own.unwrap();
        let agent = process::all()
            .into_iter()
            .find(|p| process::parent(*p) == Some(own))
            .unwrap();
        let (own, agent) = (Process::of(own).unwrap(), Process::of(agent).unwrap());
        let begun = Instant::now();
        child.kill().unwrap();
        child.wait().unwrap();
        for process in [agent, own] {
            within(
                PATIENCE,
                "the end of what stood behind the editor",
                process.gone(),
            )
            .await;
        }
        assert!(sessions(house).await.is_empty());
        assert_eq!(house.members(), [] as [u32; 0]);
        assert!(begun.elapsed() < Duration::from_millis(limits::AGENT_LEASE));
    });
}

/// A sub-agent that is spoken for, with a session of its own, and a desk in that.
async fn register(house: &House, above: &Desk, name: &str) -> (Row, Desk) {
    let ask = RegisterAgent {
        label: Some(name.into()),
        name: Some(name.into()),
        child: Some(ChildSession {
            id: Some(format!("of-{name}")),
            ..ChildSession::default()
        }),
        ..RegisterAgent::default()
    };
    let RegisteredAgent { row, child } = above.must::<AgentRegister>(ask).await;
    let child = child.expect("it was asked for");
    let inside = house.desk_of(OpenSession {
        token: child.token,
        attach_only: true,
        ..named(&child.session.id)
    });
    (row, inside)
}

fn awaits(id: &str) -> AwaitStop {
    AwaitStop {
        id: id.into(),
        ..AwaitStop::default()
    }
}

fn finish(id: &str) -> FinishAgent {
    FinishAgent {
        id: id.into(),
        ..FinishAgent::default()
    }
}

/// Three deep, none of them a program: each is spoken for by the connection that registered it. The one in the middle ends,
/// stopped or by itself; what is below goes on and belongs to the first.
#[test]
fn sub_agents_that_are_spoken_for_go_on_three_deep_when_the_middle_one_ends() {
    for stopped in [true, false] {
        in_house(async |house| {
            let top = house.desk_of(named("top"));
            let (first, one) = register(house, &top, "one").await;
            let (second, two) = register(house, &one, "two").await;
            let (third, three) = register(house, &two, "three").await;
            let command = two.ready(script("say ready , sleep")).await;
            let deepest = three.ready(script("say ready , sleep")).await;
            if stopped {
                let stop = Stop {
                    ids: vec![second.process_id.clone()],
                    grace_ms: Some(20_000),
                    ..Stop::default()
                };
                let speaking = async {
                    let told = one.must::<AgentStopRequested>(awaits("two")).await;
                    assert!(told.stop.is_some(), "{told:?}");
                    one.must::<AgentFinish>(finish("two")).await
                };
                let asking = top.must::<ostler_proto::methods::JobStop>(stop);
                let (summary, ended) = tokio::join!(asking, speaking);
                let receipt = &summary.jobs[0];
                assert_eq!(
                    (ended.outcome, &receipt.row),
                    (Some(Outcome::Stopped), &ended)
                );
                assert_eq!(receipt.left_running.len(), 2, "{receipt:?}");
            } else {
                let ended = one.must::<AgentFinish>(finish("two")).await;
                assert_eq!(ended.outcome, Some(Outcome::Exited));
            }
            // Nobody was told to end who is not the one in the middle.
            for (row, session) in [
                (&first, "top"),
                (&third, "of-one"),
                (&command, "of-one"),
                (&deepest, "of-three"),
            ] {
                let now = top.get(&row.process_id).await.row;
                assert_eq!(
                    (now.state, now.session.id.as_str()),
                    (State::Running, session),
                    "{now:?}"
                );
            }
            // The third one is spoken for by the connection that registered it, and by its new owner.
            for (n, desk) in [(0, &two), (1, &one)] {
                let says = AppendAgent {
                    id: third.process_id.clone(),
                    text: Some("here\n".into()),
                    ..AppendAgent::default()
                };
                match desk.call::<AgentAppend>(says).await {
                    Ok(said) => assert_eq!(said.end, 5 * (n + 1)),
                    Err(refusal) => panic!("{n}: {refusal:?}"),
                }
            }
            let ended = one.must::<AgentFinish>(finish(&third.process_id)).await;
            assert_eq!(ended.outcome, Some(Outcome::Exited));
            assert_eq!(top.get(&deepest.process_id).await.row.session.id, "of-one");
            top.must::<AgentFinish>(finish("one")).await;
            let live: Vec<_> = top
                .list()
                .await
                .into_iter()
                .filter(|r| r.state == State::Running)
                .collect();
            assert_eq!(live.len(), 2, "both commands are the top's: {live:?}");
            assert!(sessions(house).await.iter().all(|s| s.session.id == "top"));
        });
    }
}

/// J6 at its default: five seconds from beat to beat, and nothing for a watcher that has not asked.
#[test]
fn the_heart_beats_every_five_seconds_for_who_names_no_time_and_for_nobody_else() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        desk.start(script("sleep")).await;
        let watch = |more: &[&str]| {
            let args = [&["session", "watch", "x", "--json"], more].concat();
            let mut command = house.ostler(&args);
            command.stdin(Stdio::null());
            Wire::to_child(command)
        };
        let (mut quiet, mut other) = watch(&[]);
        let (mut asked, mut child) = watch(&["--heartbeat"]);
        let mut beats = Vec::new();
        while beats.len() < 2 {
            let event = asked.read().await.expect("a watch goes on");
            if event["type"] == "heartbeat" {
                beats.push(Instant::now());
            }
        }
        let between = (beats[1] - beats[0]).as_secs_f64();
        assert!((4.5..8.0).contains(&between), "{between} s");
        desk.must::<ostler_proto::methods::SessionClose>(Default::default())
            .await;
        // All that the other one was told, to the end.
        let told = quiet.rest().await;
        assert!(told.iter().any(|e| e["type"] == "exited"), "{told:?}");
        assert!(told.iter().all(|e| e["type"] != "heartbeat"), "{told:?}");
        asked.rest().await;
        for child in [&mut other, &mut child] {
            child.wait().unwrap();
        }
    });
}

/// F3, F6: a rename onto a session that is there hands its jobs over to that. Names and cursors of before go on, over a crash
/// too, and those who follow miss nothing.
#[test]
fn a_rename_onto_a_session_that_is_there_keeps_old_names_and_cursors() {
    in_house(async |house| {
        let (old, new) = (house.desk_of(named("old")), house.desk_of(named("new")));
        let theirs = new.ready(script("say ready , sleep")).await;
        let fifo = house.fifo("go");
        let row = old
            .start(script(&format!(
                "say one , await {fifo} , say two , exit 3"
            )))
            .await;
        old.said("t1", "^one$").await;
        let cursor = old.read("t1", 0).await.next;
        let reader = house.desk_without_session();
        let rest = {
            let (reader, id) = (reader.clone(), row.process_id.clone());
            tokio::spawn(async move { reader.said(&id, "^two$").await })
        };
        let rename = RenameSession {
            session: None,
            to: "new".into(),
        };
        let moved = old.must::<SessionRename>(rename).await;
        let names: Vec<_> = moved
            .jobs
            .iter()
            .map(|j| (j.from.as_str(), j.to.as_str()))
            .collect();
        assert_eq!(
            (moved.session.id.as_str(), names),
            ("new", vec![("old/t1", "t2")])
        );
        for round in 0..2 {
            let new = house.desk_of(named("new"));
            assert_eq!(new.get("t1").await.row.process_id, theirs.process_id);
            for id in ["old/t1", "t2", &row.process_id] {
                assert_eq!(new.get(id).await.row.process_id, row.process_id, "{id}");
                let page = new.read(id, 0).await;
                assert_eq!(page.text.as_deref(), Some("one\n"), "{id}");
                assert_eq!(page.next, cursor);
            }
            let said = house.cli(&["read", "old/t1", "--since", "0"]);
            assert!(said.code == 0 && said.out.contains("one"), "{said:?}");
            if round == 0 {
                house.kill_supervisor().await;
            }
        }
        let new = house.desk_of(named("new"));
        house.open(&fifo).await;
        assert_eq!(new.wait("old/t1").await.exit_code, Some(3));
        // From where the reader of before stood.
        assert_eq!(
            new.read("old/t1", cursor).await.text.as_deref(),
            Some("two\n")
        );
        assert_eq!(within(PATIENCE, "who followed", rest).await.unwrap(), "two");
    });
}
