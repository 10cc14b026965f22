//! Promise: a client of the newest revision that declares tasks gets one for a call that takes long; nobody else does.

use ostler_tests::mcp::{Era, outcome_of};
use ostler_tests::{House, Mcp, in_empty_house, puppet};
use serde_json::{Value, json};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

async fn client(house: &House, era: Era) -> Mcp {
    let capabilities = json!({"extensions": {EXTENSION: {}}});
    Mcp::with_capabilities(house.ostler(&["mcp"]), era, "tasks", capabilities).await
}

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

/// Asks until the task is over.
async fn over(mcp: &mut Mcp, id: &Value) -> Value {
    loop {
        let task = mcp.must("tasks/get", json!({"taskId": id})).await;
        if task["status"] != "working" {
            return task;
        }
    }
}

async fn begun(mcp: &mut Mcp, tool: &str, arguments: Value) -> Value {
    let id = mcp.begin_call(tool, arguments).await;
    let task = mcp.answer(id).await.0["result"].clone();
    assert_eq!(
        (&task["resultType"], &task["status"]),
        (&json!("task"), &json!("working")),
        "{task}"
    );
    assert_eq!(task["ttlMs"], Value::Null);
    task
}

#[test]
fn a_run_that_takes_long_is_a_task_with_the_id_of_its_job() {
    in_empty_house(async |house| {
        let mut mcp = client(house, Era::Modern).await;
        let quick = mcp.good("run", json!({"command": "echo quick"})).await;
        assert!(quick.text.starts_with("quick\n[t1 exited 0 "));
        let fifo = house.fifo("go");
        let steps = line(&format!("await {fifo} , say done , exit 3"));
        let task = begun(&mut mcp, "run", json!({"command": steps})).await;
        let id = task["taskId"].clone();
        let row = mcp.good("output", json!({"id": id})).await;
        assert_eq!(row.job()["id"], "t2");
        house.open(&fifo).await;
        let ended = over(&mut mcp, &id).await;
        assert_eq!(ended["status"], "completed");
        let told = outcome_of(&ended["result"], "");
        assert!(
            told.text.starts_with("done\n[t2 exited 3 in "),
            "{}",
            told.text
        );
        assert_eq!(told.job()["code"], 3);
        // It was told by the task.
        let after = mcp.good("run", json!({"command": "true"})).await;
        assert!(after.text.starts_with("[t3 exited 0 "), "{}", after.text);
        let now = mcp
            .good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        assert_eq!(now.job()["state"], "running");
    });
}

#[test]
fn a_task_that_is_taken_back_stops_its_run_and_leaves_what_it_only_waited_for() {
    in_empty_house(async |house| {
        let mut mcp = client(house, Era::Modern).await;
        let task = begun(&mut mcp, "run", json!({"command": line("sleep")})).await;
        for _ in 0..2 {
            mcp.must("tasks/cancel", json!({"taskId": task["taskId"]}))
                .await;
        }
        let ended = over(&mut mcp, &task["taskId"]).await;
        assert_eq!(ended["status"], "cancelled");
        let told = mcp
            .good("output", json!({"id": "t1", "until": "exit"}))
            .await;
        assert!(told.text.starts_with("[t1 stopped after "), "{}", told.text);
        mcp.good("run", json!({"command": line("sleep"), "wait_s": 0}))
            .await;
        let task = begun(&mut mcp, "output", json!({"id": "t2", "until": "exit"})).await;
        mcp.must("tasks/cancel", json!({"taskId": task["taskId"]}))
            .await;
        let told = mcp.good("output", json!({"id": "t2"})).await;
        assert_eq!(told.job()["state"], "running");
        let unknown = mcp.ask("tasks/get", json!({"taskId": "proc_nobody"})).await;
        assert_eq!(unknown["error"]["code"], -32602);
    });
}

/// The next front end knew nothing of it, although its job, whose id it has, is in its session.
#[test]
fn a_task_of_a_run_is_known_to_the_next_front_end() {
    in_empty_house(async |house| {
        let mut mcp = client(house, Era::Modern).await;
        let (one, two) = (house.fifo("one"), house.fifo("two"));
        let steps = line(&format!("await {one} , say first , exit 3"));
        let first = begun(&mut mcp, "run", json!({"command": steps})).await["taskId"].take();
        let steps = line(&format!("say out , await {two} , say second , exit 0"));
        let second = begun(&mut mcp, "run", json!({"command": steps})).await["taskId"].take();
        let third =
            begun(&mut mcp, "run", json!({"command": line("sleep")})).await["taskId"].take();
        let ask = json!({"id": "t3", "until": "text=never"});
        let wait = begun(&mut mcp, "output", ask).await["taskId"].take();
        let steps = line("say up , sleep");
        let ask = json!({"command": steps, "until": "text=never"});
        let until = begun(&mut mcp, "run", ask).await["taskId"].take();
        assert_eq!(mcp.end_by(libc::SIGKILL).await, libc::SIGKILL);
        // One ends while there is no front end at all.
        house.open(&one).await;
        house
            .desk_without_session()
            .wait(first.as_str().unwrap())
            .await;
        let mut next = client(house, Era::Modern).await;
        let ended = over(&mut next, &first).await;
        assert_eq!(ended["status"], "completed", "{ended}");
        let told = outcome_of(&ended["result"], "");
        assert!(
            told.text.starts_with("first\n[t1 exited 3 in "),
            "{}",
            told.text
        );
        let working = next.must("tasks/get", json!({"taskId": second})).await;
        assert_eq!(working["status"], "working", "{working}");
        house.open(&two).await;
        let ended = over(&mut next, &second).await;
        let told = outcome_of(&ended["result"], "");
        assert!(
            told.text.starts_with("out\nsecond\n[t2 exited 0 in "),
            "{}",
            told.text
        );
        assert_eq!(
            over(&mut next, &second).await,
            ended,
            "as often as it is asked"
        );
        next.must("tasks/cancel", json!({"taskId": third})).await;
        assert_eq!(over(&mut next, &third).await["status"], "cancelled");
        let told = next
            .good("output", json!({"id": "t3", "until": "exit"}))
            .await;
        assert!(told.text.contains("[t3 stopped after "), "{}", told.text);
        // What a call waited for besides is known to nobody any more; nor is there a task of what is no job of this session.
        for id in [&wait, &until, &json!("proc_01ARZ3NDEKTSV4RRFFQ69G5FAV")] {
            for method in ["tasks/get", "tasks/cancel"] {
                let unknown = next.ask(method, json!({"taskId": id})).await;
                assert_eq!(unknown["error"]["code"], -32602, "{id}: {unknown}");
            }
        }
        // The tasks told the ends.
        let after = next.good("run", json!({"command": "true"})).await;
        assert!(!after.text.contains("notice"), "{}", after.text);
        let mut stranger = Mcp::with_capabilities(
            house.ostler(&["mcp"]),
            Era::Modern,
            "other",
            json!({"extensions": {EXTENSION: {}}}),
        )
        .await;
        let foreign = stranger.ask("tasks/get", json!({"taskId": first})).await;
        assert_eq!(foreign["error"]["code"], -32602, "{foreign}");
    });
}

#[test]
fn who_shakes_hands_or_declares_nothing_gets_no_task() {
    in_empty_house(async |house| {
        let call = json!({"command": line("sleep"), "wait_s": 2.5});
        let mut legacy = client(house, Era::Legacy).await;
        let told = legacy.good("run", call.clone()).await;
        assert_eq!(told.job()["state"], "running");
        let mut plain = Mcp::modern(house, &[]).await;
        let told = plain.good("run", call).await;
        assert_eq!(told.job()["state"], "running");
        let refused = plain.ask("tasks/get", json!({"taskId": "x"})).await;
        assert_eq!(refused["error"]["code"], -32021);
    });
}
