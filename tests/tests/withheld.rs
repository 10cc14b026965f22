//! Promise: what looks like a secret does not reach the jobs of agents and editors, and each job's record names what was
//! kept from it; never a value.

use ostler_proto::methods::{JobList, List};
use ostler_tests::acp::Proxy;
use ostler_tests::mcp::Era;
use ostler_tests::wire::framed;
use ostler_tests::{Desk, House, Mcp, Wire, in_house};
use serde_json::{Value, json};

const SECRETS: [(&str, &str); 2] = [
    ("GIT_TOKEN", "hidden-value"),
    ("MY_API_KEY", "hidden-value"),
];
const LINE: &str = "env; echo over";

/// Looks at the one job of this house.
async fn look(house: &House, shown: &str) {
    let desk: Desk = house.desk_without_session();
    let all = List {
        all: true,
        ..List::default()
    };
    let jobs = desk.must::<JobList>(all).await.jobs;
    let [job] = &jobs[..] else {
        panic!("one job: {jobs:?}");
    };
    let result = desk.get(&job.process_id).await;
    let output = result.stdout.as_deref().unwrap_or_default();
    assert!(
        output.contains("over") && output.contains(shown),
        "{output}"
    );
    assert!(!output.contains("hidden-value"), "{output}");
    assert_eq!(result.withheld, SECRETS.map(|(name, _)| name));
    let record = serde_json::to_string(&result).unwrap();
    assert!(!record.contains("hidden-value"), "{record}");
    assert!(!house.log().contains("hidden-value"), "{}", house.log());
    let show = house.cli(&["show", &job.process_id]).out;
    assert!(show.contains("withheld   GIT_TOKEN MY_API_KEY\n"), "{show}");
}

#[test]
fn of_an_agent_with_mcp() {
    in_house(async |house| {
        let mut command = house.ostler(&["mcp"]);
        command.envs(SECRETS).env("SHOWN", "mcp");
        let mut mcp = Mcp::of(command, Era::Legacy, "tester").await;
        mcp.good("run", json!({ "command": LINE })).await;
        look(house, "SHOWN=mcp").await;
        mcp.close().await;
    });
}

#[test]
fn of_an_agent_with_acp() {
    in_house(async |house| {
        let proxy = Proxy::start_with(house, &["cat"], |command| {
            command.envs(SECRETS).env("SHOWN", "acp");
        });
        let mut proxy = proxy.shake(json!({})).await;
        proxy.session("s", &house.path(".")).await;
        let id = proxy.create(1, LINE).await;
        let target = json!({ "sessionId": "s", "terminalId": id });
        proxy.granted(2, "terminal/wait_for_exit", target).await;
        look(house, "SHOWN=acp").await;
        proxy.leave().await;
    });
}

#[test]
fn of_an_editor_with_lsp() {
    in_house(async |house| {
        let mut command = house.ostler(&["lsp"]);
        command.envs(SECRETS).env("SHOWN", "lsp");
        let (mut wire, mut child) = Wire::to_child(command);
        let hello = json!({ "processId": std::process::id(), "capabilities": {}, "clientInfo": { "name": "Try" } });
        wire.call("initialize", hello).await;
        let run = json!({ "command": "ostler.run", "arguments": [LINE] });
        let ran = wire.call("workspace/executeCommand", run).await;
        assert_eq!(ran["result"]["ok"], true, "{ran}");
        look(house, "SHOWN=lsp").await;
        wire.call("shutdown", Value::Null).await;
        let exit = json!({ "jsonrpc": "2.0", "method": "exit" });
        wire.send(&framed(&exit)).await;
        child.wait().unwrap();
    });
}
