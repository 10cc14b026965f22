//! Promise: `terminal/*` on the socket is what version 1 of the Agent Client Protocol says, and what went wrong in other
//! clients of it does not go wrong here. Letters and numbers in names are those of the collected reports.

use std::time::{Duration, Instant};

use ostler_proto::limits;
use ostler_proto::methods::{List, OpenSession};
use ostler_tests::terminals::{Agent, in_terminals, line, target};
use ostler_tests::{HungFolder, PATIENCE, in_empty_house, puppet, within};
use serde_json::{Value, json};

/// A, 1 to 5: most agents send a whole line and no arguments.
#[test]
fn a1_a_whole_line_without_arguments_is_run_by_a_shell() {
    in_terminals(async |_, mut agent| {
        for (command, said) in [
            ("echo test", "test\n"),
            ("printf 'a b\\n' | cat && echo \"$((1 + 1))\"", "a b\n2\n"),
            ("X=1; echo $X", "1\n"),
            ("-x() { echo odd; }; -x", "odd\n"),
        ] {
            let given = json!({ "command": command, "args": [] });
            assert_eq!(agent.ended(line(command)).await, (Some(0), said.into()));
            assert_eq!(agent.ended(given).await, (Some(0), said.into()));
        }
        // F 38: with bash where there is one.
        let said = agent.ended(line("cat <(echo hi); echo $-")).await.1;
        let (first, flags) = said.split_once('\n').unwrap();
        assert_eq!(first, "hi");
        // F 40: and never an interactive one, whose start files swallow output.
        assert!(!flags.contains('i'), "{flags}");
    });
}

#[test]
fn a5_a_program_whose_path_has_blanks_is_a_program() {
    in_terminals(async |house, mut agent| {
        let path = house.path("my program");
        std::os::unix::fs::symlink(puppet(), &path).unwrap();
        std::fs::write(house.file("dead file"), "x").unwrap();
        let given = json!({ "command": path, "args": ["say", "hi"] });
        assert_eq!(agent.ended(given).await, (Some(0), "hi\n".into()));
        let link = house.path("one word");
        std::os::unix::fs::symlink("/bin/pwd", &link).unwrap();
        let given = json!({ "command": link, "cwd": "/" });
        assert_eq!(agent.ended(given).await, (Some(0), "/\n".into()));
    });
}

#[test]
fn arguments_reach_the_program_as_they_are() {
    in_terminals(async |_, mut agent| {
        // F 41: nothing quotes or expands them.
        let args = ["argv", "$HOME", "a b", "'", "", "*", "\\", "é"];
        let given = json!({ "command": puppet(), "args": args });
        let expected: String = args[1..]
            .iter()
            .map(|a| format!("{}:{a}\n", a.len()))
            .collect();
        assert_eq!(agent.ended(given).await, (Some(0), expected));
    });
}

#[test]
fn what_cannot_be_executed_is_a_terminal_that_says_so() {
    in_terminals(async |house, mut agent| {
        let file = house.path("plain");
        std::fs::write(&file, "x").unwrap();
        for (given, code, word) in [
            (
                json!({ "command": "no-such-program", "args": ["x"] }),
                127,
                "no-such-program",
            ),
            (line("no-such-program"), 127, "no-such-program"),
            (line("no-such-program -x"), 127, "no-such-program"),
            (json!({ "command": file, "args": ["x"] }), 126, "plain"),
            (line(&file), 126, "plain"),
            (json!({ "command": "/", "args": ["x"] }), 126, "/"),
        ] {
            let (got, said) = agent.ended(given.clone()).await;
            assert_eq!(got, Some(code), "{given}: {said}");
            assert!(said.contains(word), "{given}: {said}");
        }
        // Its words are bound like any others.
        let given = json!({ "command": "no-such-program", "args": ["x"], "outputByteLimit": 6 });
        let id = agent.create(given).await;
        let output = agent.output(&id).await;
        assert_eq!((output.output.len(), output.truncated), (6, true));
    });
}

#[test]
fn a_folder_that_is_none_is_an_error_that_names_it_and_leaves_nothing() {
    in_terminals(async |house, mut agent| {
        let gone = house.path("gone");
        for (cwd, word) in [(gone.as_str(), gone.as_str()), ("rel", "absolute")] {
            let given = json!({ "sessionId": "x", "command": "echo x", "cwd": cwd });
            let (code, words) = agent.refused("terminal/create", given).await;
            assert_eq!(code, -32602);
            assert!(words.contains(word), "{words}");
        }
        assert!(house.desk().list().await.is_empty());
        let given = json!({ "command": "pwd", "cwd": "/usr" });
        assert_eq!(agent.ended(given).await.1, "/usr\n");
    });
}

#[test]
fn a_disk_that_does_not_answer_holds_up_nobody_who_does_not_ask_for_it() {
    in_empty_house(async |house| {
        let folder = house.file("hung");
        std::fs::create_dir(&folder).unwrap();
        let Some(_hung) = HungFolder::over(&folder) else {
            return;
        };
        house.start();
        let mut agent = Agent::of(house).await;
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let env = json!([{ "name": "PATH", "value": path }]);
        for _ in 0..10 {
            let given = json!({ "command": "echo slow; true", "env": env });
            let mut params = given;
            params["sessionId"] = "x".into();
            agent.wire.ask("terminal/create", params).await;
        }
        let begun = Instant::now();
        let given = json!({ "command": "/bin/echo", "args": ["prompt"] });
        assert_eq!(agent.ended(given).await, (Some(0), "prompt\n".into()));
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "{:?}",
            begun.elapsed()
        );
        // Those who ask for it are answered, too: a shell runs what may be a program or a line.
        let given = json!({ "command": "echo slow; true", "env": env });
        assert_eq!(agent.ended(given).await, (Some(0), "slow\n".into()));
    });
}

/// The table of what parameters are taken: as the other side's own types take them.
#[test]
fn parameters_are_taken_and_refused_as_the_protocols_own_types_do() {
    in_terminals(async |_, mut agent| {
        let full = json!({ "args": ["x"], "env": [{ "name": "A", "value": "1" }], "cwd": "/", "outputByteLimit": 5 });
        let mut tried = vec![json!({}), full];
        for (field, values) in [
            (
                "args",
                json!([null, [], "x", [1], [null], { "0": "x" }, 5, true]),
            ),
            (
                "env",
                json!([null, [], { "A": "1" }, [{ "name": "A" }], [{ "value": "1" }], [{ "name": "A", "value": 1 }],
                    [{ "name": "A", "value": "1", "_meta": null }], [{ "name": "A", "value": "1", "x": 1 }], ["A=1"], "A=1"]),
            ),
            ("cwd", json!([null, "/", 5, ["/"], {}])),
            (
                "outputByteLimit",
                json!([null, 0, 5, u64::MAX, "5", -1, 1.5, [5], true]),
            ),
            (
                "_meta",
                json!([null, 5, "x", [], {}, { "a": { "b": 1 } }, { "traceparent": "x" }]),
            ),
            ("command", json!([null, 5, ["echo"]])),
            ("sessionId", json!([null, 5])),
            ("unknown", json!([null, 5, {}])),
        ] {
            for value in values.as_array().unwrap() {
                let mut params = json!({});
                params[field] = value.clone();
                tried.push(params);
            }
        }
        for more in tried {
            let mut params = json!({ "sessionId": "x", "command": "true" });
            let fields = more.as_object().unwrap().clone();
            params.as_object_mut().unwrap().extend(fields);
            let theirs = agent.oracle.verdict("CreateTerminalRequest", &params);
            let answer = agent.wire.call("terminal/create", params.clone()).await;
            match theirs {
                Some(Ok(())) => {
                    let id = answer["result"]["terminalId"].as_str();
                    agent
                        .release(id.unwrap_or_else(|| panic!("{params}: {answer}")))
                        .await;
                }
                Some(Err(_)) => assert_eq!(answer["error"]["code"], -32602, "{params}: {answer}"),
                None => return,
            }
        }
        let missing = json!({ "sessionId": "x" });
        assert_eq!(agent.refused("terminal/create", missing).await.0, -32602);
    });
}

/// The same of the other four, which all name a terminal.
#[test]
fn who_names_a_terminal_is_understood_and_refused_as_by_the_protocols_own_types() {
    in_terminals(async |_, mut agent| {
        for (method, request) in [
            ("terminal/output", "TerminalOutputRequest"),
            ("terminal/wait_for_exit", "WaitForTerminalExitRequest"),
            ("terminal/kill", "KillTerminalRequest"),
            ("terminal/release", "ReleaseTerminalRequest"),
        ] {
            let mut id = agent.create(line("true")).await;
            let mut tried = vec![
                json!({}),
                json!({ "sessionId": "x" }),
                json!({ "terminalId": "ID" }),
                json!({ "session_id": "x", "terminalId": "ID" }),
                json!({ "sessionId": "x", "terminal_id": "ID" }),
                json!({ "SessionId": "x", "TerminalId": "ID" }),
                json!({ "sessionid": "x", "terminalid": "ID" }),
                json!(null),
            ];
            for (field, values) in [
                ("sessionId", json!([null, 5, true, ["x"], { "id": "x" }])),
                ("terminalId", json!([null, 5, true, ["ID"], { "id": "ID" }])),
                (
                    "_meta",
                    json!([null, 5, "x", [], {}, { "a": { "b": 1 } }, { "traceparent": "x" }]),
                ),
                ("unknown", json!([null, 5, {}])),
                ("terminalNo", json!(["other"])),
                ("timeoutMs", json!([5, "5", null])),
            ] {
                for value in values.as_array().unwrap() {
                    let mut params = json!({ "sessionId": "x", "terminalId": "ID" });
                    params[field] = value.clone();
                    tried.push(params);
                }
            }
            for params in tried {
                let params = params.to_string().replace("ID\"", &format!("{id}\""));
                let params: Value = serde_json::from_str(&params).unwrap();
                let Some(theirs) = agent.oracle.verdict(request, &params) else {
                    return;
                };
                let answer = agent.wire.call(method, params.clone()).await;
                match theirs {
                    Ok(()) => assert!(answer["result"].is_object(), "{method} {params}: {answer}"),
                    Err(_) => {
                        let code = &answer["error"]["code"];
                        assert_eq!(code, -32602, "{method} {params}: {answer}");
                    }
                }
                if theirs.is_ok() && method == "terminal/release" {
                    id = agent.create(line("true")).await;
                }
            }
            // What is no object is no request of that protocol, before anybody looks for names in it.
            for params in [json!("x"), json!(5)] {
                assert_eq!(agent.refused(method, params).await.0, -32600);
            }
            // Nothing in it goes by its place.
            for params in [json!([]), json!(["x", id])] {
                assert_eq!(agent.refused(method, params).await.0, -32602);
            }
        }
    });
}

/// B 13: an agent puts a time limit into its wait, which strict clients refuse.
#[test]
fn b13_fields_that_nobody_knows_are_ignored() {
    in_terminals(async |_, mut agent| {
        let id = agent.create(line("exit 3")).await;
        let mut params = target(&id);
        params["timeoutMs"] = 5.into();
        params["_meta"] = 5.into();
        let waited = agent.ok("terminal/wait_for_exit", params).await;
        assert_eq!(waited["exitCode"], 3);
    });
}

#[test]
fn both_framings_are_served_and_the_handshake_is_the_protocols() {
    in_terminals(async |house, mut agent| {
        let id = agent.create(line("echo hi")).await;
        let params = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        for version in [json!(1), json!(99)] {
            let mut params = params.clone();
            params["protocolVersion"] = version;
            let shaken = agent.ok("initialize", params).await;
            assert_eq!(shaken["protocolVersion"], 1);
            assert!(shaken["_meta"]["ostler"]["version"].is_string());
            let known = [
                "protocolVersion",
                "agentCapabilities",
                "agentInfo",
                "authMethods",
                "_meta",
            ];
            let fields = shaken.as_object().unwrap();
            assert!(
                fields.keys().all(|k| known.contains(&k.as_str())),
                "{shaken}"
            );
        }
        let mut lines = house.wire().await;
        let key = std::fs::read_to_string(house.folders().owner_key()).unwrap();
        for (n, method, params) in [
            (0, "initialize", params),
            (1, "supervisor/hello", json!({ "ownerKey": key.trim() })),
            (2, "session/open", json!({ "id": "x" })),
            (3, "terminal/wait_for_exit", target(&id)),
            (4, "terminal/output", target(&id)),
        ] {
            let request = json!({ "jsonrpc": "2.0", "id": n, "method": method, "params": params });
            lines.send(format!("{request}\r\n\r\n").as_bytes()).await;
            let answer = lines.answer(n).await;
            assert!(answer["result"].is_object(), "{answer}");
            if n == 4 {
                assert_eq!(answer["result"]["output"], "hi\n");
            }
        }
    });
}

/// B 7: the output is whole when the wait is answered.
#[test]
fn b7_output_is_there_when_the_end_is_told() {
    in_terminals(async |_, mut agent| {
        for n in 0..200 {
            let id = agent.create(line(&format!("echo {n}; echo err >&2"))).await;
            agent.wait(&id).await;
            let output = agent.output(&id).await;
            assert_eq!(output.output, format!("{n}\nerr\n"));
            assert_eq!(output.exit_status.unwrap().exit_code, Some(0));
            agent.release(&id).await;
        }
    });
}

/// B 10, 11: who holds the pipe holds up nobody.
#[test]
fn b10_a_grandchild_that_holds_the_output_does_not_keep_the_end_from_being_told() {
    in_terminals(async |_, mut agent| {
        let begun = Instant::now();
        let (code, said) = agent.ended(line("sleep 1000 & echo x")).await;
        assert_eq!((code, said.as_str()), (Some(0), "x\n"));
        assert!(begun.elapsed() < PATIENCE);
    });
}

/// B 14: a waiter whose peer goes away leaves nothing behind, and the job lives on.
#[test]
fn b14_a_wait_ends_with_its_connection_and_the_command_does_not() {
    in_terminals(async |house, mut agent| {
        let id = agent.script("say up , sleep", json!({})).await;
        agent.says(&id, "up").await;
        let mut other = Agent::of(house).await;
        other.wire.ask("terminal/wait_for_exit", target(&id)).await;
        drop(other);
        let alone = async { while house.info().await.connections > 2 {} };
        within(PATIENCE, "the end of the connection", alone).await;
        assert!(agent.output(&id).await.exit_status.is_none());
    });
}

#[test]
fn every_waiter_gets_the_same_answer_now_and_later() {
    in_terminals(async |house, mut agent| {
        let fifo = house.fifo("go");
        let id = agent
            .script(&format!("await {fifo} , exit 7"), json!({}))
            .await;
        let mut ids = Vec::new();
        for _ in 0..10 {
            ids.push(agent.wire.ask("terminal/wait_for_exit", target(&id)).await);
        }
        house.open(&fifo).await;
        // In whatever order.
        while !ids.is_empty() {
            let answer = agent.wire.read().await.unwrap();
            ids.retain(|id| answer["id"] != *id);
            let result = json!({ "exitCode": 7, "signal": null });
            assert_eq!(answer["result"], result, "{answer}");
        }
        assert_eq!(agent.wait(&id).await.exit_code, Some(7));
    });
}

/// Rule 10: taking a wait back ends the wait and nothing else.
#[test]
fn a_cancelled_wait_is_told_so_and_the_command_runs_on() {
    in_terminals(async |_, mut agent| {
        let id = agent.script("say up , sleep", json!({})).await;
        let ask = agent.wire.ask("terminal/wait_for_exit", target(&id)).await;
        let cancel = json!({ "jsonrpc": "2.0", "method": "$/cancel_request", "params": { "requestId": ask } });
        agent.wire.send(&ostler_tests::wire::framed(&cancel)).await;
        let answer = agent.wire.answer(ask).await;
        assert_eq!(answer["error"]["code"], -32800, "{answer}");
        assert!(agent.output(&id).await.exit_status.is_none());
        let odd = agent.wire.call("$/odd", json!({})).await;
        assert_eq!(odd["error"]["code"], -32601);
        let odd = agent.wire.call("terminal/resize", json!({})).await;
        assert_eq!(odd["error"]["code"], -32601);
    });
}

/// C 16: a kill just after the start hits what was started, and nobody else.
#[test]
fn c16_a_kill_just_after_the_start_hits_what_was_started() {
    in_terminals(async |_, mut agent| {
        for _ in 0..50 {
            let id = agent.create(line("sleep 60; echo never")).await;
            agent.kill(&id).await;
            let status = agent.wait(&id).await;
            assert_eq!(
                (status.exit_code, status.signal.as_deref()),
                (None, Some("SIGTERM"))
            );
            agent.kill(&id).await;
            agent.release(&id).await;
        }
    });
}

/// C 17 to 20: descendants, wherever they moved, end with it; who ignores the polite signal is forced.
#[test]
fn c17_a_kill_ends_the_whole_tree_and_is_forced_where_it_must_be() {
    in_terminals(async |house, mut agent| {
        let steps = "ignore TERM , orphan [ ignore TERM , sleep ] , fork [ setsid , sleep ] , say up , sleep";
        let more = json!({ "_meta": { "ostler": { "graceMs": 100 } } });
        let id = agent.script(steps, more).await;
        agent.says(&id, "up").await;
        assert!(!house.members().is_empty());
        let begun = Instant::now();
        agent.kill(&id).await;
        let status = agent.wait(&id).await;
        assert_eq!(status.signal.as_deref(), Some("SIGKILL"));
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(house.members(), [] as [u32; 0]);
        // C 20: a launcher whose child does the work.
        let id = agent.create(line("bash -c 'sleep 1000; :' ; :")).await;
        agent.kill(&id).await;
        agent.wait(&id).await;
        assert_eq!(house.members(), [] as [u32; 0]);
    });
}

/// D 19: kill, output, wait, release, in the order of the protocol; afterwards the id is nobody's.
#[test]
fn d19_after_a_kill_all_can_be_read_and_after_a_release_nothing() {
    in_terminals(async |_, mut agent| {
        let id = agent.script("say up , sleep", json!({})).await;
        agent.says(&id, "up").await;
        agent.kill(&id).await;
        assert_eq!(agent.wait(&id).await.signal.as_deref(), Some("SIGTERM"));
        let output = agent.output(&id).await;
        assert_eq!(output.output, "up\n");
        assert_eq!(output.exit_status.unwrap().exit_code, None);
        agent.release(&id).await;
        for method in ["output", "wait_for_exit", "kill"] {
            let method = format!("terminal/{method}");
            assert_eq!(agent.refused(&method, target(&id)).await.0, -32002);
        }
        agent.release(&id).await;
        agent.release("proc_never").await;
    });
}

#[test]
fn a_wait_is_answered_by_a_release() {
    in_terminals(async |house, mut agent| {
        let id = agent.script("say up , sleep", json!({})).await;
        agent.says(&id, "up").await;
        let waiting = agent.wire.ask("terminal/wait_for_exit", target(&id)).await;
        let releasing = agent.wire.ask("terminal/release", target(&id)).await;
        let mut answers = Vec::new();
        while answers.len() < 2 {
            let message = agent.wire.read().await.unwrap();
            let is = |id: i64| message["id"] == id;
            if is(waiting) {
                assert_eq!(
                    message["result"],
                    json!({ "exitCode": null, "signal": "SIGTERM" })
                );
            }
            assert!(is(waiting) || is(releasing), "{message}");
            assert!(message["result"].is_object(), "{message}");
            answers.push(message);
        }
        assert_eq!(house.members(), [] as [u32; 0]);
    });
}

/// D 23: an agent that never releases costs a bounded number of records.
#[test]
fn d23_an_agent_that_never_releases_is_served_on_and_on() {
    in_terminals(async |house, mut agent| {
        let mut first = None;
        for n in 0..260 {
            let id = agent.create(json!({ "command": "true", "args": [] })).await;
            agent.wait(&id).await;
            agent.output(&id).await;
            if n == 0 {
                first = Some(id);
            }
        }
        let kept = async { while house.desk().list().await.len() > limits::finished() {} };
        within(PATIENCE, "the oldest to go", kept).await;
        let (code, words) = agent
            .refused("terminal/output", target(&first.unwrap()))
            .await;
        assert_eq!(code, -32002, "{words}");
    });
}

/// E 34, 35: the newest text, within its limit as it is handed back, from a whole character on.
#[test]
fn e34_the_newest_text_is_kept_and_its_limit_is_that_of_what_is_handed_back() {
    in_terminals(async |_, mut agent| {
        for (command, limit, text, truncated) in [
            ("printf 'héllo wörld €€'", 5, "€", true),
            ("printf 'héllo wörld €€'", 6, "€€", true),
            ("printf 'héllo wörld €€'", 0, "", true),
            ("printf 'héllo wörld €€'", 20, "héllo wörld €€", false),
            ("printf 'héllo wörld €€'", 19, "éllo wörld €€", true),
            ("printf abc", 3, "abc", false),
            ("printf abc", 2, "bc", true),
            ("true", 0, "", false),
            (
                r"printf '\377%.0s' 1 2 3 4 5 6 7 8 9 10 11 12",
                10,
                "\u{fffd}\u{fffd}\u{fffd}",
                true,
            ),
            (r"printf 'ab\342\202'", 5, "ab\u{fffd}", false),
        ] {
            let given = json!({ "command": command, "outputByteLimit": limit });
            let id = agent.create(given).await;
            agent.wait(&id).await;
            let output = agent.output(&id).await;
            assert!(output.output.len() as u64 <= limit, "{command}: {output:?}");
            assert_eq!(
                (output.output.as_str(), output.truncated),
                (text, truncated),
                "{command} at {limit}"
            );
            agent.release(&id).await;
        }
        let given = json!({ "command": "seq 1 10000", "outputByteLimit": 100 });
        let id = agent.create(given).await;
        agent.wait(&id).await;
        let output = agent.output(&id).await;
        assert!(output.output.ends_with("9999\n10000\n"), "{output:?}");
        assert_eq!((output.output.len(), output.truncated), (100, true));
    });
}

/// B 13: a character that is not whole is held back while it may become so.
#[test]
fn a_character_that_is_not_whole_comes_with_its_last_byte() {
    in_terminals(async |house, mut agent| {
        let (go, end) = (house.fifo("go"), house.fifo("end"));
        let steps = format!("hex 61e282 , await {go} , hex ac62e282 , await {end} , exit 0");
        let id = agent.script(&steps, json!({})).await;
        assert_eq!(agent.says(&id, "a").await.output, "a");
        house.open(&go).await;
        assert_eq!(agent.says(&id, "b").await.output, "a€b");
        house.open(&end).await;
        agent.wait(&id).await;
        assert_eq!(agent.output(&id).await.output, "a€b\u{fffd}");
    });
}

/// Kimi and others take the text for one that only grows; `truncated` never goes back.
#[test]
fn truncated_stays_once_it_is_said_and_before_that_the_text_only_grows() {
    in_terminals(async |_, mut agent| {
        let more = json!({ "outputByteLimit": 60_000 });
        let id = agent.script("paced 40 4096 2 , exit 0", more).await;
        let (mut before, mut cut) = (String::new(), false);
        loop {
            let now = agent.output(&id).await;
            assert!(now.truncated || !cut);
            if now.truncated {
                assert!(now.output.len() > 59_990 && now.output.len() <= 60_000);
            } else {
                assert!(now.output.starts_with(&before));
            }
            (before, cut) = (now.output, now.truncated);
            if now.exit_status.is_some() {
                break;
            }
        }
        assert!(cut);
    });
}

/// E 32: without a limit, or with an absurd one, there is one of ours.
#[test]
fn e32_without_a_limit_there_is_one_of_ours() {
    in_terminals(async |_, mut agent| {
        for limit in [Value::Null, json!(u64::MAX)] {
            let more = json!({ "outputByteLimit": limit });
            let id = agent.script("out 6000000 , say end", more).await;
            agent.wait(&id).await;
            let output = agent.output(&id).await;
            assert_eq!(output.output.len() as u64, limits::TERMINAL_OUTPUT);
            assert!(output.truncated && output.output.ends_with("end\n"));
        }
        // The worst that JSON can make of it fits a message.
        let zeros = line("head -c 5000000 /dev/zero");
        let id = agent.create(zeros).await;
        agent.wait(&id).await;
        let output = agent.output(&id).await;
        assert_eq!(output.output.len() as u64, limits::TERMINAL_OUTPUT);
        // G 44: and one long line is as good as any.
        let id = agent
            .create(line("head -c 70000 /dev/zero | tr '\\0' x"))
            .await;
        agent.wait(&id).await;
        assert_eq!(agent.output(&id).await.output, "x".repeat(70_000));
    });
}

/// F 37: no pager waits for a key, whatever the configuration of git says.
#[test]
fn f37_no_pager_waits_for_a_person() {
    in_terminals(async |house, mut agent| {
        let said = agent.ended(line("echo \"[$PAGER][$GIT_PAGER]\"")).await.1;
        assert_eq!(said, "[][cat]\n");
        let given = json!({ "command": "echo \"[$PAGER][$GIT_PAGER]$A\"",
            "env": [{ "name": "PAGER", "value": "less" }, { "name": "A", "value": "1" }, { "name": "A", "value": "2" }] });
        assert_eq!(agent.ended(given).await.1, "[less][cat]2\n");
        if !ostler_tests::installed("git") {
            return;
        }
        let line = "git init -q . && git config core.pager 'less -+F' && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m first && git log --format=%s";
        let given = json!({ "command": line, "cwd": house.path(".") });
        assert_eq!(agent.ended(given).await, (Some(0), "first\n".into()));
    });
}

#[test]
fn who_reads_finds_the_end_at_once() {
    in_terminals(async |_, mut agent| {
        let (code, said) = agent.ended(line("cat; echo end")).await;
        assert_eq!((code, said.as_str()), (Some(0), "end\n"));
    });
}

/// H 46: a death by a signal has no code, and is none that reads as success.
#[test]
fn h46_a_death_by_signal_has_a_name_and_no_code() {
    in_terminals(async |_, mut agent| {
        for (command, status) in [
            (
                "sh -c 'kill -9 $$'",
                json!({ "exitCode": null, "signal": "SIGKILL" }),
            ),
            (
                "kill -SEGV $$",
                json!({ "exitCode": null, "signal": "SIGSEGV" }),
            ),
            ("exit 3", json!({ "exitCode": 3, "signal": null })),
            ("exit 0", json!({ "exitCode": 0, "signal": null })),
        ] {
            let id = agent
                .create(json!({ "command": "bash", "args": ["-c", command] }))
                .await;
            let waited = agent.ok("terminal/wait_for_exit", target(&id)).await;
            // bash becomes the sh that it was to run.
            assert_eq!(waited, status, "{command}");
            let output = agent.ok("terminal/output", target(&id)).await;
            assert_eq!(output["exitStatus"], status);
        }
    });
}

#[test]
fn a_terminal_is_an_ordinary_job_of_its_session() {
    in_terminals(async |house, mut agent| {
        let id = agent.script("say up , sleep", json!({})).await;
        agent.says(&id, "up").await;
        let desk = house.desk();
        let rows = desk.list().await;
        assert_eq!((rows.len(), rows[0].process_id.as_str()), (1, id.as_str()));
        assert_eq!(desk.read(&id, 0).await.text.as_deref(), Some("up\n"));
        desk.stop("t1", 3_000).await;
        assert_eq!(agent.wait(&id).await.signal.as_deref(), Some("SIGTERM"));
        let listed = house.cli(&["ls", "--session", "x", "-q"]);
        assert_eq!(listed.out, "x/t1\n", "{listed:?}");
    });
}

/// An id counts in its session alone, and a foreign one is answered like one that never was.
#[test]
fn an_id_is_good_for_its_session_and_for_nobody_else() {
    in_terminals(async |house, mut agent| {
        let id = agent.create(line("sleep 1000")).await;
        let mut stranger = Agent::stranger(house).await;
        let opened = stranger
            .wire
            .call("session/open", json!({ "id": "y" }))
            .await;
        assert_eq!(opened["result"]["created"], true);
        agent.wire.call("session/open", json!({ "id": "z" })).await;
        for method in ["output", "wait_for_exit", "kill"] {
            let method = format!("terminal/{method}");
            let of = |session: &str, id: &str| json!({ "sessionId": session, "terminalId": id });
            let theirs = stranger.refused(&method, of("y", &id)).await;
            let never = "proc_01ARZ3NDEKTSV4RRFFQ69G5FAV";
            let nobodys = stranger.refused(&method, of("y", never)).await;
            assert_eq!(theirs.0, -32002);
            assert_eq!(theirs.1.replace(&id, never), nobodys.1);
            assert_eq!(stranger.refused(&method, of("x", &id)).await.0, -32002);
            // A session of the same connection, but not the one in which it was made; a short id; a beginning.
            for (session, id) in [("z", id.as_str()), ("x", "t1"), ("x", &id[..20])] {
                assert_eq!(agent.refused(&method, of(session, id)).await.0, -32002);
            }
        }
        stranger
            .ok(
                "terminal/release",
                json!({ "sessionId": "y", "terminalId": id }),
            )
            .await;
        assert!(
            agent.output(&id).await.exit_status.is_none(),
            "a stranger's release does nothing"
        );
        let params = json!({ "sessionId": "nowhere", "command": "true" });
        assert_eq!(agent.refused("terminal/create", params).await.0, -32002);
    });
}

#[test]
fn a_full_session_refuses_with_what_runs() {
    in_terminals(async |house, mut agent| {
        let opened = agent
            .wire
            .call("session/open", json!({ "id": "x", "commands": 1 }))
            .await;
        assert!(opened["result"].is_object(), "{opened}");
        let id = agent.create(line("sleep 1000")).await;
        let params = json!({ "sessionId": "x", "command": "true" });
        let answer = agent.wire.call("terminal/create", params).await;
        assert_eq!(answer["error"]["code"], -32603, "{answer}");
        assert_eq!(answer["error"]["data"]["kind"], "limit");
        assert_eq!(answer["error"]["data"]["rows"][0]["processId"], id.as_str());
        let list = List {
            session: Some("x".into()),
            ..List::default()
        };
        let table = house
            .desk()
            .must::<ostler_proto::methods::JobList>(list)
            .await;
        assert_eq!(table.jobs.len(), 1);
    });
}

#[test]
fn a_terminal_and_its_limit_survive_the_supervisor() {
    in_terminals(async |house, mut agent| {
        let more = json!({ "outputByteLimit": 4 });
        let fifo = house.fifo("go");
        let steps = format!("put abcdef , await {fifo} , exit 5");
        let id = agent.script(&steps, more).await;
        agent.says(&id, "cdef").await;
        house.kill_supervisor().await;
        let mut agent = Agent::of(house).await;
        let output = agent.output(&id).await;
        assert_eq!((output.output.as_str(), output.truncated), ("cdef", true));
        house.open(&fifo).await;
        assert_eq!(agent.wait(&id).await.exit_code, Some(5));
    });
}

/// What the protocol lacks is asked for where it allows that.
#[test]
fn a_terminal_can_have_a_window_an_input_a_name_and_a_key() {
    in_terminals(async |house, mut agent| {
        let desk = house.desk_of(OpenSession {
            id: Some("x".into()),
            ..OpenSession::default()
        });
        let given = json!({ "command": "stty size; read line; echo \"<$line>\"", "_meta": { "other": 1,
            "ostler": { "pty": { "rows": 7, "cols": 33 }, "stdin": true, "name": "web", "key": "k" } } });
        let id = agent.create(given.clone()).await;
        assert_eq!(agent.create(given).await, id, "the same key");
        agent.says(&id, "7 33").await;
        let write = ostler_proto::methods::Write {
            id: "web".into(),
            text: Some("hey\n".into()),
            ..Default::default()
        };
        desk.must::<ostler_proto::methods::JobWrite>(write).await;
        agent.wait(&id).await;
        assert!(agent.output(&id).await.output.contains("<hey>"));
        let slip =
            json!({ "sessionId": "x", "command": "true", "_meta": { "ostler": { "ptty": 1 } } });
        let (code, words) = agent.refused("terminal/create", slip).await;
        assert_eq!(code, -32602);
        assert!(words.contains("ptty"), "{words}");
    });
}
