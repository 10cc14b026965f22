//! Promise: jobs of every kind stand in one table, each told by its kind wherever it is listed; what ends a job of one
//! kind ends it whole whatever door it came through, and differs in what it leaves behind.

use std::time::Duration;

use ostler_proto::agent::RegisterAgent;
use ostler_proto::job::{Kind, Outcome, State};
use ostler_proto::methods::{
    AgentRegister, JobGet, List, ShellClose, ShellExec, ShellList, ShellSend, Target,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{Exec, Send};
use ostler_tests::desk::script;
use ostler_tests::process::Process;
use ostler_tests::{Desk, House, Mcp, PATIENCE, in_house, puppet, within};
use serde_json::{Value, json};

/// One of each kind: `t1`, `s1`, `a1`, `x1`.
async fn one_of_each(desk: &Desk) {
    let command = desk.start(script("sleep")).await;
    let shell = desk.shell("sh").await;
    let review = RegisterAgent {
        label: Some("review".into()),
        ..RegisterAgent::default()
    };
    let agent = desk.must::<AgentRegister>(review).await.row;
    let send = Send {
        id: shell.clone(),
        text: format!("exec {} sleep", puppet()),
        enter: true,
        background: true,
        ..Send::default()
    };
    let sent = desk.must::<ShellSend>(send).await.job.expect("a job");
    let ids = [&command.id, &shell, &agent.id, &sent.id];
    assert_eq!(ids, ["t1", "s1", "a1", "x1"]);
}

/// `ID KIND` of each, in order of the ids.
fn kinds(rows: &Value, id: &str) -> Vec<String> {
    let rows = rows.as_array().unwrap_or_else(|| panic!("no rows: {rows}"));
    let word = |row: &Value, field: &str| row[field].as_str().unwrap_or("none").to_owned();
    let mut all: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {}", word(row, id), word(row, "kind")))
        .collect();
    all.sort();
    all
}

const EACH: [&str; 4] = ["a1 agent", "s1 shell", "t1 command", "x1 send"];

/// F15: on the socket, and by `ostler ls`.
#[test]
fn a_list_tells_every_job_by_its_kind() {
    in_house(async |house| {
        let desk = house.desk();
        one_of_each(&desk).await;
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let listed = wire.call("job/list", json!({})).await;
        assert_eq!(kinds(&listed["result"]["jobs"], "id"), EACH);
        for row in desk.list().await {
            assert_eq!(row.id.chars().next(), Some(row.kind.letter()));
            assert_eq!(desk.get(&row.id).await.row.kind, row.kind);
        }
        let shells = desk.must::<ShellList>(List::default()).await.shells;
        let shells: Vec<_> = shells.iter().map(|s| (&*s.row.id, s.row.kind)).collect();
        assert_eq!(shells, [("s1", Kind::Shell)], "no other kind is a shell");
        let said = house.cli(&["ls", "--session", "x", "--json"]);
        let rows: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|e| panic!("{e}: {said:?}"));
        assert_eq!(kinds(&rows["jobs"], "id"), EACH);
    });
}

/// F15 in the three sets of tools.
#[test]
fn the_tools_list_every_job_by_its_kind() {
    in_house(async |house| {
        let desk = house.desk();
        one_of_each(&desk).await;
        for (set, tool) in [("compact", "output"), ("epoch", "task_list")] {
            let mut mcp = Mcp::legacy(house, &["--session", "x", "--tools", set]).await;
            let told = mcp.good(tool, json!({})).await;
            assert_eq!(kinds(&told.json.unwrap()["jobs"], "id"), EACH, "{set}");
            for id in ["t1", "s1", "a1", "x1"] {
                let line = format!("{id} ");
                let is_row = |l: &str| l.starts_with(&line);
                assert_eq!(
                    told.text.lines().filter(|l| is_row(l)).count(),
                    1,
                    "{}",
                    told.text
                );
            }
        }
        let mut mcp = Mcp::legacy(house, &["--session", "x", "--tools", "epoch"]).await;
        let shells = mcp.good("shell_list", json!({})).await.json.unwrap();
        assert_eq!(kinds(&shells["jobs"], "id"), ["s1 shell"]);
        let mut mcp = Mcp::legacy(house, &["--session", "x", "--tools", "dsh"]).await;
        let jobs = mcp.good("job_list", json!({})).await.json.unwrap();
        let of_dsh = ["bash-1 bash", "pty-send-1 pty-send", "subagent-1 subagent"];
        assert_eq!(kinds(&jobs["jobs"], "id"), of_dsh);
        let terminals = mcp.good("terminal_list", json!({})).await.json.unwrap();
        assert_eq!(terminals["sessions"].as_array().unwrap().len(), 1);
        assert_eq!(terminals["sessions"][0]["sessionId"], "pty-1");
    });
}

/// A shell in which somebody has left a process that left its terminal; both processes.
async fn shell_with_a_runaway(house: &House, desk: &Desk) -> (String, [Process; 2]) {
    let id = desk.shell("sh").await;
    let number = house.path(&format!("runaway-{id}"));
    let exec = Exec {
        id: id.clone(),
        line: format!(
            "{} orphan [ pidfile {number} , sleep ] ; echo left",
            puppet()
        ),
        ..Exec::default()
    };
    assert_eq!(desk.must::<ShellExec>(exec).await.exit_code, Some(0));
    let runaway = async {
        loop {
            match std::fs::read_to_string(&number) {
                Ok(text) => return text.trim().parse().expect("a number"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let runaway = within(PATIENCE, "the number of the runaway", runaway).await;
    let shell = desk.get(&id).await.row.pid.expect("it runs");
    let both = [shell, runaway].map(|pid| Process::of(pid).expect("it lives"));
    (id, both)
}

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

/// F16, decisions 1.2: one way to end a shell, two ways to forget it.
#[test]
fn a_stopped_shell_keeps_its_record_and_a_closed_one_does_not() {
    in_house(async |house| {
        let desk = house.desk();
        let (stopped, of_stopped) = shell_with_a_runaway(house, &desk).await;
        let (closed, of_closed) = shell_with_a_runaway(house, &desk).await;
        assert_eq!((stopped.as_str(), closed.as_str()), ("s1", "s2"));
        let receipt = desk.stop(&stopped, 3_000).await;
        let released = desk.must::<ShellClose>(target(&closed)).await;
        // Both answer when all that was in it is gone, wherever it went.
        for process in of_stopped.iter().chain(&of_closed) {
            assert!(process.gone_within(Duration::ZERO), "{} lives", process.pid);
        }
        let last = released.row.expect("the last word of it");
        for row in [&receipt.row, &last] {
            assert_eq!((row.state, row.kind), (State::Exited, Kind::Shell));
            assert_eq!(row.outcome, Some(Outcome::Stopped));
        }
        assert_eq!((receipt.ended, receipt.kind), (2, Kind::Shell));
        // What is left of each.
        let ids: Vec<String> = desk.list().await.into_iter().map(|row| row.id).collect();
        assert_eq!(ids, ["s1"]);
        let page = desk.read("s1", 0).await;
        assert!(
            page.text.unwrap_or_default().contains("left"),
            "it can be read still"
        );
        let none = desk.call::<JobGet>(target("s2")).await;
        let none = none.expect_err("it is forgotten");
        let kinds = [RefusalKind::NotFound, RefusalKind::Gone];
        assert!(kinds.contains(&none.kind), "{none:?}");
        // What was stopped can be closed, and is forgotten then; twice is success.
        for is_there in [true, false] {
            let row = desk.must::<ShellClose>(target("s1")).await.row;
            assert_eq!(row.is_some(), is_there);
        }
        assert_eq!(desk.list().await, []);
        // Only a shell is closed.
        desk.start(script("sleep")).await;
        let refused = desk.refused::<ShellClose>(target("t1")).await;
        assert_eq!(refused.kind, RefusalKind::NoInput, "{refused:?}");
        assert_eq!(desk.get("t1").await.row.state, State::Running);
    });
}
