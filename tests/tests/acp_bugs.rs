//! Promise: what others have reported of terminals of the Agent Client Protocol does not happen here: what it costs to keep
//! them and to look at them, the pager behind a real terminal, the turn that is cancelled, the line that is too long.
//! Letters and numbers in names are those of the collected reports; those that need only `terminal/*` itself stand in
//! `acp_terminals`.

use std::time::Duration;

use ostler_proto::limits::RING;
use ostler_proto::methods::{JobWrite, Write};
use ostler_tests::acp::Proxy;
use ostler_tests::terminals::{Agent, in_terminals, target};
use ostler_tests::{House, PATIENCE, in_empty_house, in_house, process, puppet, within};
use serde_json::{Value, json};

/// The bound of a line in programs that name none.
const LINE: usize = 64 * 1024;

fn of_proxy(id: &str) -> Value {
    json!({ "sessionId": "s", "terminalId": id })
}

/// C 22: the editor stops the turn. That reaches the agent past the wait that is pending; what the agent then does ends the
/// command, and everybody who waits is told.
#[test]
fn c22_a_turn_that_is_cancelled_can_stop_its_command() {
    in_house(async |house| {
        let mut proxy = Proxy::shaken(house, json!({})).await;
        proxy.session("s", &house.path(".")).await;
        let prompt = json!({ "sessionId": "s", "prompt": [] });
        proxy.ask(1, "session/prompt", prompt).await;
        proxy.said("session/prompt").await;
        let steps = format!("{} fork [ sleep ] , say up , sleep", puppet());
        let id = proxy.create(2, &steps).await;
        proxy.ask(3, "terminal/wait_for_exit", of_proxy(&id)).await;
        proxy
            .tell("session/cancel", json!({ "sessionId": "s" }))
            .await;
        // The wait, which was asked before, has not been answered by it.
        let first = proxy.until("the cancel", |m| {
            m["method"] == "session/cancel" || m["id"] == 3
        });
        assert_eq!(first.await["method"], "session/cancel");
        proxy.granted(4, "terminal/kill", of_proxy(&id)).await;
        let status = json!({ "exitCode": null, "signal": "SIGTERM" });
        assert_eq!(proxy.result(3).await, status);
        // With all that it had started.
        house.desk().over(&id).await;
        let output = proxy.granted(5, "terminal/output", of_proxy(&id)).await;
        assert_eq!(output["exitStatus"], status);
        proxy.granted(6, "terminal/release", of_proxy(&id)).await;
        proxy.answer(1, json!({ "stopReason": "cancelled" })).await;
        assert_eq!(proxy.result(1).await["stopReason"], "cancelled");
        // The session goes on.
        let id = proxy.create(7, "echo again").await;
        proxy
            .granted(8, "terminal/wait_for_exit", of_proxy(&id))
            .await;
        let output = proxy.granted(9, "terminal/output", of_proxy(&id)).await;
        assert_eq!(output["output"], "again\n");
        proxy.leave().await;
    });
}

/// Runs so many terminals that print `line` to their end.
async fn finish(agent: &mut Agent, terminals: usize, command: &str, released: bool) {
    for _ in 0..terminals {
        let given = json!({ "command": command, "outputByteLimit": 64 * 1024 });
        let id = agent.create(given).await;
        agent.wait(&id).await;
        agent.output(&id).await;
        if released {
            agent.release(&id).await;
        }
    }
}

/// What the supervisor has in memory.
async fn resident(house: &House) -> u64 {
    process::resident(house.info().await.hello.pid)
}

/// D 28: what has ended costs its newest output and little else, and only as many as are kept.
#[test]
fn d28_finished_terminals_cost_a_bounded_amount_of_memory() {
    in_empty_house(async |house| {
        let kept = 12;
        let config = format!("[session]\nfinished = {kept}\n");
        std::fs::write(&house.folders().config, config).unwrap();
        house.start();
        let mut agent = Agent::of(house).await;
        let flood = "seq 60000";
        // One at a time, for what the first ones need once.
        finish(&mut agent, 2, flood, true).await;
        let before = resident(house).await;
        finish(&mut agent, 60, flood, true).await;
        let grown = resident(house).await.saturating_sub(before);
        assert!(grown < 4 << 20, "60 released ones cost {grown} bytes");
        let before = resident(house).await;
        finish(&mut agent, kept as usize, flood, false).await;
        let first = resident(house).await.saturating_sub(before);
        let most = kept * (RING + 64 * 1024) + (4 << 20);
        assert!(first < most, "{kept} kept ones cost {first} bytes");
        let before = resident(house).await;
        finish(&mut agent, 3 * kept as usize, flood, false).await;
        let grown = resident(house).await.saturating_sub(before);
        assert!(grown < 4 << 20, "those behind them cost {grown} bytes");
    });
}

/// Processor time of the supervisor for so many looks at a terminal.
async fn looks(house: &House, agent: &mut Agent, id: &str, times: usize) -> Duration {
    let pid = house.info().await.hello.pid;
    let before = used(pid);
    for _ in 0..times {
        // Not held against the types: what they cost is somebody else's, but it takes its time.
        agent.wire.call("terminal/output", target(id)).await;
    }
    used(pid) - before
}

fn used(pid: u32) -> Duration {
    Duration::from_millis(ostler_supervisor::stats::usage(&[pid]).cpu_ms)
}

/// E 31: a look at a terminal costs what it hands back, however much there was before; one that prints nothing costs no more
/// than any other question. Ratios within one run: the machine is as busy for the one as for the other. The clock of
/// processor time ticks in hundredths of a second.
#[test]
fn e31_a_look_costs_what_it_hands_back() {
    const TICKS: Duration = Duration::from_millis(30);
    in_terminals(async |house, mut agent| {
        let limit = 256 * 1024;
        let given = |bytes: u64| json!({ "command": format!("yes | head -c {bytes}"), "outputByteLimit": limit });
        let little = agent.create(given(limit + 1)).await;
        let much = agent.create(given(50_000_000)).await;
        for id in [&little, &much] {
            agent.wait(id).await;
            let output = agent.output(id).await;
            assert_eq!(
                (output.output.len() as u64, output.truncated),
                (limit, true)
            );
        }
        let one = looks(house, &mut agent, &little, 40).await;
        let other = looks(house, &mut agent, &much, 40).await;
        assert!(
            other < 2 * one + TICKS,
            "{other:?} after 50 MB, {one:?} after 256 KiB"
        );
        let quiet = agent.script("say quiet , sleep", json!({})).await;
        agent.says(&quiet, "quiet").await;
        let polls = looks(house, &mut agent, &quiet, 300).await;
        let pid = house.info().await.hello.pid;
        let before = used(pid);
        for _ in 0..300 {
            agent.wire.call("job/get", json!({ "id": quiet })).await;
        }
        let gets = used(pid) - before;
        assert!(
            polls < 2 * gets + TICKS,
            "300 polls cost {polls:?}, 300 other questions {gets:?}"
        );
    });
}

/// F 37, behind a real terminal, where programs look for a pager: one that the configuration names is not used; one that the
/// request names is, and whoever sees it wait can answer it.
#[test]
fn f37_on_a_real_terminal_only_a_pager_that_was_asked_for_waits() {
    in_terminals(async |house, mut agent| {
        if !ostler_tests::installed("git") {
            return;
        }
        let prepare = "git init -q . && git config core.pager 'touch paged; sleep 1000' && git config pager.log true \
            && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first";
        let given = json!({ "command": prepare, "cwd": house.path(".") });
        assert_eq!(agent.ended(given).await.0, Some(0));
        let pty = json!({ "ostler": { "pty": { "rows": 4, "cols": 80 } } });
        let log = "test -t 1 && git log --format=%s && git branch --list";
        let given = json!({ "command": log, "cwd": house.path("."), "_meta": pty });
        let (code, said) = agent.ended(given).await;
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains("first"), "{said:?}");
        assert!(
            !house.file("paged").exists(),
            "the pager of the configuration ran"
        );
        let pager = "cat; echo more?; read key </dev/tty; echo got $key";
        let env = json!([{ "name": "GIT_PAGER", "value": pager }]);
        let given = json!({ "command": "git log --format=%s", "cwd": house.path("."), "env": env, "_meta": pty });
        let id = agent.create(given).await;
        let shown = agent.says(&id, "more?").await;
        assert!(
            shown.exit_status.is_none() && shown.output.contains("first"),
            "{shown:?}"
        );
        let write = Write {
            id: id.clone(),
            text: Some("q\n".into()),
            ..Write::default()
        };
        house.desk().must::<JobWrite>(write).await;
        assert_eq!(agent.wait(&id).await.exit_code, Some(0));
        assert!(agent.output(&id).await.output.contains("got q"));
    });
}

/// G 44: a line over 64 KiB ends the connection of many a client. What `ostler acp` itself tells an editor is never that long,
/// whatever a terminal prints: JSON makes six bytes of a NUL, and three of a byte that is no text.
#[test]
fn g44_no_line_of_ours_to_an_editor_is_longer_than_64_kib() {
    in_house(async |house| {
        for capabilities in [json!({}), json!({ "_meta": { "terminal_output": true } })] {
            for byte in [r"\0", r"\377", "x"] {
                let mut proxy = Proxy::shaken(house, capabilities.clone()).await;
                proxy.session("s", &house.path(".")).await;
                let fifo = house.fifo("go");
                let command = format!(
                    "head -c 200000 /dev/zero | tr '\\0' '{byte}'; : <{fifo}; head -c 200000 /dev/zero | tr '\\0' '{byte}'; echo end"
                );
                let id = proxy.create(1, &command).await;
                let refers = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x",
                    "content": [{ "type": "terminal", "terminalId": id }] });
                let params = json!({ "sessionId": "s", "update": refers });
                proxy.tell("session/update", params.clone()).await;
                house.open(&fifo).await;
                // Again after the release, where it is told from what was kept.
                let is_last = |text: &str| {
                    text.contains("exited with code 0") || text.contains("terminal_exit")
                };
                let mut longest = 0;
                for round in 0..2 {
                    loop {
                        let line = within(PATIENCE, "the end of the output", proxy.line()).await;
                        let text = String::from_utf8_lossy(&line);
                        longest = longest.max(line.len());
                        if is_last(&text) {
                            break;
                        }
                    }
                    if round == 0 {
                        proxy.granted(2, "terminal/release", of_proxy(&id)).await;
                        let mut params = params.clone();
                        params["update"]["toolCallId"] = "d".into();
                        proxy.tell("session/update", params).await;
                        if capabilities != json!({}) {
                            // It is told once.
                            break;
                        }
                    }
                }
                assert!(longest <= LINE, "{longest} bytes of {byte} {capabilities}");
                std::fs::remove_file(&fifo).unwrap();
                proxy.leave().await;
            }
        }
    });
}
