//! Promise: an end that nobody was told of is noticed, once and until that is confirmed; one of which its owner knows
//! is not: what it waited for, read to the end, or ended itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{
    For, JobRelease, JobRun, JobSignal, JobStart, JobStop, JobTail, Notice, OpenSession,
    ReadNotices, Run, SessionNotices, ShellExec, SignalJob, Start, Stop, Tail, Target,
};
use ostler_proto::shell::Exec;
use ostler_tests::house::{House, in_empty_house, in_house, in_house_of_shells};
use ostler_tests::process::Process;
use ostler_tests::{Desk, PATIENCE, Wire, desk::script, within};
use serde_json::{Value, json};

async fn notices(desk: &Desk, seen: Option<u64>) -> Vec<Notice> {
    let ask = ReadNotices {
        session: None,
        seen,
    };
    desk.must::<SessionNotices>(ask).await.notices
}

/// The ids of what is noticed.
async fn noticed(desk: &Desk) -> Vec<String> {
    let notices = notices(desk, None).await;
    notices.into_iter().map(|n| n.row.id).collect()
}

/// A session as agents have them.
fn leased(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        lease_ms: Some(60_000),
        ..OpenSession::default()
    }
}

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

/// A client that holds the session by its token and shows no owner key; what it asks is in its own hands, byte by byte.
struct Agent {
    wire: Wire,
}

impl Agent {
    async fn open(house: &House, id: &str) -> Self {
        let mut wire = house.wire().await;
        let ask = json!({ "id": id, "leaseMs": 60_000 });
        let opened = wire.call("session/open", ask).await;
        assert!(opened["result"]["token"].is_string(), "{opened}");
        Self { wire }
    }

    async fn must(&mut self, method: &str, params: Value) -> Value {
        let mut answer = self.wire.call(method, params).await;
        assert!(answer["result"].is_object(), "{method}: {answer}");
        answer["result"].take()
    }

    async fn start(&mut self, steps: &str) -> String {
        let ask = json!({ "args": script(steps).args, "cwd": "/" });
        let row = self.must("job/start", ask).await;
        let id = row["id"].as_str().expect("a row has an id").to_owned();
        // On a busy machine the answer comes before its process, which a signal is for.
        self.until(&id, |row| row["state"] != "starting").await;
        id
    }

    /// Looks until its row is so; a look claims nothing.
    async fn until(&mut self, id: &str, is: impl Fn(&Value) -> bool) {
        let looking = async { while !is(&self.must("job/get", json!({ "id": id })).await) {} };
        within(PATIENCE, "a state of it", looking).await;
    }

    /// The ids of what is noticed.
    async fn noticed(&mut self) -> Vec<String> {
        let told = self.must("session/notices", json!({})).await;
        let notices = told["notices"].as_array().expect("a list");
        let id = |n: &Value| n["row"]["id"].as_str().expect("a row has an id").to_owned();
        notices.iter().map(id).collect()
    }

    async fn forget_all(&mut self) {
        self.must("session/notices", json!({ "seen": 1_000_000 }))
            .await;
    }
}

/// I5: one notice for each end in the background, none for what a caller waited for in the foreground.
#[test]
fn an_end_in_the_background_is_noticed_until_it_is_confirmed() {
    in_house(async |house| {
        let desk = house.desk();
        desk.run(script("exit 1")).await;
        assert!(notices(&desk, None).await.is_empty());
        let (a, b) = (
            desk.start(script("exit 1")).await,
            desk.start(script("exit 2")).await,
        );
        for row in [&a, &b] {
            desk.over(&row.id).await;
        }
        let told = notices(&desk, None).await;
        let codes: Vec<_> = told.iter().map(|n| n.row.exit_code).collect();
        assert!(
            codes == [Some(1), Some(2)] || codes == [Some(2), Some(1)],
            "{codes:?}"
        );
        // Reading tells nothing away; a number that was never given out confirms no end to come.
        assert_eq!(notices(&desk, None).await.len(), 2);
        assert_eq!(notices(&desk, Some(told[0].number)).await.len(), 1);
        assert!(notices(&desk, Some(1_000_000)).await.is_empty());
        let c = desk.start(script("exit 3")).await;
        desk.over(&c.id).await;
        assert_eq!(notices(&desk, None).await[0].row.exit_code, Some(3));
    });
}

/// Each answer that shows its owner an end takes the place of the notice, over a crash too; one that shows less does not.
#[test]
fn what_its_owner_waited_for_read_to_the_end_or_ended_is_not_noticed() {
    in_house(async |house| {
        let desk = house.desk();
        let ended = async |steps: &str| {
            let row = desk.start(script(steps)).await;
            desk.over(&row.id).await;
            row.id
        };
        desk.wait(&ended("exit 1").await).await;
        let never = Start {
            args: vec!["no-such-program".into()],
            cwd: Some("/".into()),
            ..Start::default()
        };
        let row = desk.must::<JobStart>(never).await;
        assert!(row.spawn_error.is_some(), "{row:?}");
        let row = desk.start(script("say going , exit 1")).await;
        desk.wait_for(&row.id, For::Text("never".into())).await;
        let read = ended("say all of it").await;
        assert!(desk.read(&read, 0).await.eof);
        let tailed = ended("say all of it").await;
        let tail = Tail {
            id: tailed,
            partial_result_token: json!("t"),
            ..Tail::default()
        };
        desk.must::<JobTail>(tail).await;
        desk.follow(&desk.start(script("out 1000")).await.id).await;
        let stopped = desk.ready(script("say ready , sleep")).await;
        desk.stop(&stopped.id, 5_000).await;
        let forgotten = desk.ready(script("say ready , sleep")).await;
        desk.must::<JobRelease>(target(&forgotten.id)).await;
        let at_once = desk.ready(script("say ready , sleep")).await;
        let stop = Stop {
            ids: vec![at_once.id.clone()],
            wait: Some(false),
            ..Stop::default()
        };
        desk.must::<JobStop>(stop).await;
        desk.over(&at_once.id).await;
        assert_eq!(noticed(&desk).await, [""; 0]);

        // Looked at before its end, in part, or by an answer that tells no end.
        let waited = desk.ready(script("say ready , sleep")).await;
        desk.wait_ms(&waited.id, 1).await;
        let end = SignalJob {
            session: None,
            id: waited.id.clone(),
            signal: "KILL".into(),
        };
        desk.must::<JobSignal>(end).await;
        desk.over(&waited.id).await;
        let part = ended("out 1000").await;
        desk.read_raw(&part, 0, 10).await;
        let left = [waited.id, part];
        assert_eq!(noticed(&desk).await, left);
        house.kill_supervisor().await;
        let desk = house.desk();
        assert_eq!(noticed(&desk).await, left, "after a crash");
        // A stop of what has ended is no end of its own.
        assert!(desk.stop(&left[0], 0).await.already_finished);
        assert_eq!(noticed(&desk).await, left);
    });
}

/// Whoever looks after an agent's jobs takes no notice from it; a session that is nobody's but the user's is the user's.
#[test]
fn what_somebody_else_ended_or_saw_is_noticed() {
    in_house(async |house| {
        let mut agent = Agent::open(house, "theirs").await;
        let user = house.desk_without_session();
        let of = |id: &str| format!("theirs/{id}");
        let waited = agent.start("exit 1").await;
        user.wait(&of(&waited)).await;
        let read = agent.start("say hello").await;
        user.over(&of(&read)).await;
        assert!(user.read(&of(&read), 0).await.eof);
        let stopped = agent.start("sleep").await;
        user.stop(&of(&stopped), 5_000).await;
        assert_eq!(agent.noticed().await, [waited, read, stopped]);

        let own = house.desk();
        let row = own.start(script("exit 1")).await;
        user.wait(&row.process_id).await;
        assert_eq!(noticed(&own).await, [""; 0]);

        // Nor where an agent works in a session of the user's, as long as it does.
        let front = house.desk_of(OpenSession {
            id: Some("x".into()),
            confirms: true,
            ..OpenSession::default()
        });
        front.list().await;
        let row = own.start(script("exit 1")).await;
        user.wait(&row.process_id).await;
        assert_eq!(noticed(&front).await, [row.id]);
    });
}

/// Another reader of the same owner is not told of an end for which the answer of a wait is on its way.
#[test]
fn an_end_that_one_waits_for_is_told_to_no_other() {
    in_house(async |house| {
        let (mut agent, reader) = (Agent::open(house, "a").await, house.desk_of(leased("a")));
        let done = Arc::new(AtomicBool::new(false));
        let reading = {
            let done = Arc::clone(&done);
            tokio::spawn(async move {
                let mut looks = 0_u32;
                while !done.load(Ordering::Acquire) {
                    let told = notices(&reader, None).await;
                    assert!(told.is_empty(), "{told:?}");
                    looks += 1;
                }
                looks
            })
        };
        for _ in 0..190 {
            let id = agent.start("sleep").await;
            let wait = agent.wire.ask("job/wait", json!({ "ids": [id] })).await;
            // It is under way when what came long after it is answered.
            for _ in 0..3 {
                agent.must("session/list", json!({})).await;
            }
            let kill = json!({ "id": id, "signal": "KILL" });
            let kill = agent.wire.ask("job/signal", kill).await;
            let (mut killed, mut answered) = (false, false);
            while !(killed && answered) {
                let message = agent.wire.read().await.expect("it lives");
                killed |= message["id"] == kill;
                answered |= message["id"] == wait;
                assert!(message["result"].is_object(), "{message}");
            }
        }
        done.store(true, Ordering::Release);
        let looks = within(PATIENCE, "the reader", reading)
            .await
            .expect("it ends well");
        assert!(looks > 60, "{looks} looks are too few to see anything");
    });
}

/// I5: told by the answer or by the notice, never by both and never by neither, however close the cancel comes.
#[test]
fn a_cancelled_wait_gives_back_what_it_claimed_in_the_same_instant() {
    in_house(async |house| {
        let mut agent = Agent::open(house, "a").await;
        let (mut answered, mut cancelled) = (0, 0);
        for round in 0..200_u32 {
            let id = agent.start("sleep").await;
            let wait = agent.wire.ask("job/wait", json!({ "ids": [id] })).await;
            let kill = json!({ "id": id, "signal": "KILL" });
            let mut last = agent.wire.ask("job/signal", kill).await;
            // Sooner or later than the end: some round trips behind the signal, in which the answer may come.
            let mut answer = None;
            for _ in 0..round % 8 {
                loop {
                    let message = agent.wire.read().await.expect("it lives");
                    if message["id"] == last {
                        break;
                    }
                    assert_eq!(message["id"], wait, "{message}");
                    answer = Some(message);
                }
                last = agent.wire.ask("session/list", json!({})).await;
            }
            let cancel =
                json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": wait } });
            agent.wire.send(&ostler_tests::wire::framed(&cancel)).await;
            let answer = match answer {
                Some(answer) => answer,
                None => agent.wire.answer(wait).await,
            };
            let told = answer["result"].is_object();
            assert!(told || answer["error"]["code"] == -32_800, "{answer}");
            agent.until(&id, |row| row["state"] == "exited").await;
            let noticed = agent.noticed().await;
            if told {
                answered += 1;
                assert!(noticed.is_empty(), "round {round}: told twice");
            } else {
                cancelled += 1;
                assert_eq!(noticed, [id], "round {round}: not told");
            }
            agent.forget_all().await;
        }
        assert!(
            answered > 0 && cancelled > 0,
            "{answered} answers, {cancelled} cancels: one of both was never seen"
        );
    });
}

/// The numbers of a new supervisor began again at one for ends that it came to before it had read how far they were: they
/// counted as confirmed, and were never told.
#[test]
fn what_ended_while_no_supervisor_was_there_has_numbers_behind_what_was_confirmed() {
    in_house(async |house| {
        let desk = house.desk();
        for _ in 0..3 {
            let row = desk.start(script("exit 1")).await;
            desk.over(&row.id).await;
        }
        let last = notices(&desk, None).await.pop().expect("three are told");
        assert!(notices(&desk, Some(last.number)).await.is_empty());
        let fifo = house.fifo("go");
        let mut processes = Vec::new();
        for _ in 0..190 {
            let ready = format!("say ready , await {fifo}");
            let row = desk.ready(script(&ready)).await;
            let pid = desk.get(&row.id).await.row.pid.expect("it runs");
            processes.push(Process::of(pid).expect("it runs"));
        }
        let supervisor = Process::of(house.info().await.hello.pid).expect("it has just answered");
        supervisor.freeze();
        house.open(&fifo).await;
        for process in processes {
            process.gone().await;
        }
        supervisor.signal(libc::SIGKILL);
        supervisor.gone().await;
        let desk = house.desk();
        for n in 4..=193 {
            desk.over(&format!("t{n}")).await;
        }
        assert_eq!(notices(&desk, None).await.len(), 190);
    });
}

/// A front end whose own answers may not arrive is told until it confirms.
#[test]
fn who_confirms_is_told_until_it_does() {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            confirms: true,
            ..leased("front")
        });
        let row = desk.start(script("exit 1")).await;
        desk.wait(&row.id).await;
        assert!(desk.read(&row.id, 0).await.eof);
        let told = notices(&desk, None).await;
        assert_eq!(told.len(), 1);
        assert!(notices(&desk, Some(told[0].number)).await.is_empty());
        // What it has ended itself it knows, whatever becomes of the answer.
        let row = desk.start(script("sleep")).await;
        desk.stop(&row.id, 5_000).await;
        assert!(notices(&desk, None).await.is_empty());
    });
}

/// The result of a foreground run went to nobody: whoever goes on with its session hears of it.
#[test]
fn a_run_whose_client_is_killed_is_noticed_and_a_cancelled_one_is_not() {
    in_house(async |house| {
        let desk = house.desk();
        let mut gone = house.wire().await;
        gone.attach(&house.folders().owner_key(), "x").await;
        let start = json!({ "args": script("say ready , sleep").args, "cwd": "/" });
        let run = json!({ "start": start, "partialResultToken": "r" });
        let first = gone.ask("job/run", run.clone()).await;
        assert_eq!(gone.read().await.unwrap()["method"], "$/progress");
        desk.printed("t1", "^ready$").await;
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": first } });
        gone.send(&ostler_tests::wire::framed(&cancel)).await;
        assert_eq!(desk.over("t1").await.outcome, Some(Outcome::Stopped));
        assert_eq!(noticed(&desk).await, [""; 0]);
        gone.ask("job/run", run).await;
        while gone.read().await.unwrap()["params"]["value"]["started"].is_null() {}
        desk.printed("t2", "^ready$").await;
        drop(gone);
        let row = desk.over("t2").await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        assert_eq!(noticed(&desk).await, ["t2"]);
    });
}

/// Its request let it go after its time, and a crash took it back: its end was nobody's news, and it was stopped when no
/// client came back for it.
#[test]
fn a_run_that_went_on_in_the_background_stays_there_over_a_crash() {
    in_house(async |house| {
        let (desk, fifo) = (house.desk(), house.fifo("go"));
        let run = Run {
            start: script(&format!("say ready , await {fifo} , exit 3")),
            wait_ms: Some(1),
            ..Run::default()
        };
        let result = desk.must::<JobRun>(run).await;
        assert!(result.detached);
        house.kill_supervisor().await;
        house.open(&fifo).await;
        let row = desk.over(&result.row.id).await;
        assert_eq!(row.exit_code, Some(3));
        assert_eq!(noticed(&desk).await, [row.id]);
    });
}

/// Over a crash its client had some time to come back, in which it ended: for a client that never did it was nobody's news.
#[test]
fn a_run_whose_client_is_gone_with_its_supervisor_is_noticed_unless_that_comes_back() {
    in_empty_house(async |house| {
        let config = "[supervisor]\nreattach = \"500ms\"\n";
        std::fs::write(&house.folders().config, config).expect("the folder is ours");
        house.start();
        let desk = house.desk();
        let fifos = [house.fifo("t1"), house.fifo("t2")];
        let run = |fifo: &str| {
            let start = script(&format!("say ready , await {fifo} , exit 3"));
            json!({ "start": { "args": start.args, "cwd": "/", "key": fifo }, "partialResultToken": 7 })
        };
        let mut clients = Vec::new();
        for fifo in &fifos {
            let mut client = house.wire().await;
            client.attach(&house.folders().owner_key(), "x").await;
            client.ask("job/run", run(fifo)).await;
            while client.read().await.unwrap()["params"]["value"]["started"].is_null() {}
            clients.push(client);
        }
        for id in ["t1", "t2"] {
            desk.printed(id, "^ready$").await;
        }
        house.kill_supervisor().await;
        drop(clients);
        let mut back = house.wire().await;
        back.attach(&house.folders().owner_key(), "x").await;
        let asked = back.ask("job/run", run(&fifos[0])).await;
        for fifo in &fifos {
            house.open(fifo).await;
        }
        let answer = back.answer(asked).await;
        assert_eq!(answer["result"]["exitCode"], 3, "{answer}");
        for id in ["t1", "t2"] {
            assert_eq!(desk.over(id).await.outcome, Some(Outcome::Exited), "{id}");
        }
        // The time of both is over by then.
        let told = async {
            loop {
                let told = noticed(&desk).await;
                if !told.is_empty() {
                    return told;
                }
            }
        };
        assert_eq!(within(PATIENCE, "the notice", told).await, ["t2"]);
    });
}

/// A shell that ends while its owner runs a line in it.
#[test]
fn a_shell_that_ends_with_the_line_of_its_owner_is_not_noticed() {
    in_house_of_shells(async |_, desk| {
        let id = desk.shell("bash").await;
        let exec = Exec {
            id: id.clone(),
            line: "exit 3".into(),
            ..Exec::default()
        };
        let done = desk.must::<ShellExec>(exec).await;
        assert_eq!(done.row.state, State::Exited, "{done:?}");
        assert_eq!(noticed(&desk).await, [""; 0]);
    });
}

/// I7: what goes with its session, or with its house, is announced to nobody.
#[test]
fn nothing_is_noticed_while_its_session_or_its_house_is_taken_down() {
    for (method, params) in [
        ("session/close", json!({ "graceMs": 20_000 })),
        ("supervisor/stop", json!({ "graceMs": 20_000 })),
    ] {
        in_house(async |house| {
            let (desk, fifo) = (house.desk(), house.fifo("go"));
            let slow = format!("on TERM [ await {fifo} , exit 0 ] , say ready , sleep");
            let slow = desk.ready(script(&slow)).await;
            let quick = desk.ready(script("say ready , sleep")).await;
            let mut end = house.wire().await;
            end.attach(&house.folders().owner_key(), "x").await;
            let ending = end.ask(method, params.clone()).await;
            desk.over(&quick.id).await;
            assert_eq!(noticed(&desk).await, [""; 0], "{method}");
            assert_eq!(desk.get(&slow.id).await.row.state, State::Stopping);
            house.open(&fifo).await;
            let answer = end.answer(ending).await;
            let jobs = answer["result"]["jobs"].as_array();
            assert_eq!(jobs.map(Vec::len), Some(2), "{answer}");
        });
    }
}
