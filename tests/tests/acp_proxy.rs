//! Promise: between an editor and its agent `ostler acp` changes nothing but who has the terminals; and whoever of the
//! four dies, nothing hangs and nothing is left.

use std::time::Instant;

use ostler_proto::methods::{Nothing, SessionList};
use ostler_tests::acp::Proxy;
use ostler_tests::process::{self, Process};
use ostler_tests::{House, PATIENCE, in_empty_house, in_house, puppet, within};
use serde_json::{Value, json};

/// Sessions of jobs that are open.
async fn sessions(house: &House) -> Vec<String> {
    let desk = house.desk_without_session();
    let table = desk.must::<SessionList>(Nothing {}).await;
    table.sessions.into_iter().map(|s| s.session.id).collect()
}

/// Waits until so many are open.
async fn until_open(house: &House, wanted: usize) {
    let opened = async { while sessions(house).await.len() != wanted {} };
    within(PATIENCE, "the sessions", opened).await;
}

fn target(id: &str) -> Value {
    json!({ "sessionId": "s", "terminalId": id })
}

fn meta_look() -> Value {
    json!({ "_meta": { "terminal_output": true } })
}

/// A session `s` behind an editor with these capabilities.
async fn ready(house: &House, capabilities: Value) -> Proxy {
    let mut proxy = Proxy::shaken(house, capabilities).await;
    proxy.session("s", &house.path(".")).await;
    proxy
}

#[test]
fn what_is_not_about_terminals_passes_byte_for_byte() {
    in_empty_house(async |house| {
        let lines: &[&[u8]] = &[
            b"\n",
            b"\r\n",
            b"  \n",
            b"no json\n",
            b"\xff\xfe\n",
            b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\"}]\n",
            b"{\"jsonrpc\": \"2.0\" , \"id\":1.0,\"method\":\"x\\u0079\",\"params\":{\"n\":123456789012345678901234567890,\"f\":1.50,\"f\":2}}\r\n",
            b"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"terminal/output\"}\n",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"terminal/output\",\"params\":{}}\n",
            // Nobody has said that there are terminals.
            b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"terminal/create\",\"params\":{\"sessionId\":\"s\",\"command\":\"x\"}}\n",
            b"{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"result\":{}}\n",
            b"{\"error\":{\"code\":-32700,\"message\":\"no id at all\"}}\n",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"$/cancel_request\",\"params\":{\"requestId\":7}}\n",
            b"{\"jsonrpc\":\"2.0\",\"method\":\"session/update\",\"params\":{\"sessionId\":\"s\",\"update\":{\"sessionUpdate\":\"tool_call\",\"toolCallId\":\"c\",\"content\":[{\"type\":\"terminal\",\"terminalId\":\"t\"}]}}}\n",
            b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"clientCapabilities\":7}}\n",
            b"the last line has no end",
        ];
        let mut proxy = Proxy::start(house, &["cat"]);
        for line in lines {
            proxy.send(line).await;
        }
        proxy.stdin = None;
        let all = proxy.rest().await;
        assert_eq!(
            String::from_utf8_lossy(&all),
            String::from_utf8_lossy(&lines.concat())
        );
        assert_eq!(all, lines.concat());
        assert_eq!(proxy.code().await, 0);
        assert!(
            !house.folders().socket().exists(),
            "nobody asked for a supervisor"
        );
    });
}

#[test]
fn lines_of_any_length_pass_whole_and_nothing_comes_between() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "sleep 1000").await;
        // Above the bound it is not looked at, but it passes; answers to the agent wait for its end.
        for length in [70_000, 33_000_000, 40_000_000] {
            let mut line = br#"{"jsonrpc":"2.0","method":"_x","params":{"t":""#.to_vec();
            line.resize(length, b'x');
            line.extend_from_slice(b"\"}}\n");
            // Both at once: the pipes in between hold less.
            let mut stdin = proxy.stdin.take().unwrap();
            let sent = line.clone();
            let sending = tokio::spawn(async move {
                use tokio::io::AsyncWriteExt;
                stdin.write_all(&sent).await.unwrap();
                stdin
            });
            let came = proxy.line().await;
            assert!(came == line, "{length}: {} bytes came", came.len());
            proxy.stdin = Some(sending.await.unwrap());
        }
        let output = proxy.granted(2, "terminal/output", target(&id)).await;
        assert_eq!(output["output"], "");
        proxy.leave().await;
    });
}

#[test]
fn the_agent_is_offered_terminals_beside_all_that_the_editor_offers() {
    in_empty_house(async |house| {
        let mut proxy = Proxy::start(house, &["cat"]);
        proxy
            .send(b"{\"jsonrpc\":\"2.0\",\"id\":\"\\u0061\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":1,\"clientInfo\":{\"n\":1.50},\"clientCapabilities\":{\"fs\":{\"readTextFile\":true},\"terminal\":false,\"_meta\":{\"x\":1}}}}\r\n")
            .await;
        let line = String::from_utf8(proxy.line().await).unwrap();
        assert!(line.ends_with("\r\n"), "{line:?}");
        assert!(line.contains(r#""clientInfo":{"n":1.50}"#), "{line}");
        assert!(line.contains(r#""id":"\u0061""#), "{line}");
        let offered: Value = serde_json::from_str(&line).unwrap();
        let offered = &offered["params"]["clientCapabilities"];
        assert_eq!(offered["terminal"], true);
        assert_eq!(offered["fs"], json!({ "readTextFile": true }));
        assert_eq!(offered["_meta"]["x"], 1);
        let own = offered["_meta"]["ostler"]["methods"].as_array().unwrap();
        assert!(own.contains(&"_ostler/input".into()), "{own:?}");
        // Whatever was said of it: null is nothing.
        for params in [json!({}), json!({ "clientCapabilities": null })] {
            proxy.ask(1, "initialize", params).await;
            let offered = proxy.said("initialize").await;
            assert_eq!(offered["params"]["clientCapabilities"]["terminal"], true);
        }
        assert_eq!(proxy.leave().await, 0);
        house.cli(&["daemon", "stop"]);
    });
}

#[test]
fn without_a_supervisor_terminals_are_left_to_the_editor() {
    in_empty_house(async |house| {
        // The folder of the socket cannot be made.
        std::fs::write(house.file("no"), "").unwrap();
        let mut proxy = Proxy::start_with(house, &["cat"], |command| {
            command.env("OSTLER_DIR", house.path("no/folder"));
        });
        let initialize = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"clientCapabilities\":{}}}\n";
        let create = b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"terminal/create\",\"params\":{\"sessionId\":\"s\",\"command\":\"x\"}}\n";
        for line in [&initialize[..], &create[..]] {
            proxy.send(line).await;
            assert_eq!(proxy.line().await, line);
        }
        assert_eq!(proxy.leave().await, 0);
        let said = std::fs::read_to_string(house.file("acp.err")).unwrap();
        assert!(
            said.starts_with("note: terminals are left to the editor: "),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    });
}

#[test]
fn a_later_version_of_the_protocol_passes_untouched() {
    in_house(async |house| {
        let mut proxy = Proxy::start(house, &["cat"]);
        proxy
            .ask(0, "initialize", json!({ "protocolVersion": 2 }))
            .await;
        proxy.said("initialize").await;
        proxy.answer(0, json!({ "protocolVersion": 2 })).await;
        proxy.result(0).await;
        proxy.session("s", "/").await;
        let create = json!({ "sessionId": "s", "command": "true" });
        proxy.ask(5, "terminal/create", create.clone()).await;
        assert_eq!(proxy.said("terminal/create").await["params"], create);
        proxy.ask(6, "terminal/cancel", json!({})).await;
        proxy.said("terminal/cancel").await;
        assert!(sessions(house).await.is_empty());
        proxy.leave().await;
    });
}

/// Both sides number from 0.
#[test]
fn numbers_of_the_two_sides_may_be_the_same() {
    in_house(async |house| {
        let mut proxy = Proxy::shaken(house, json!({})).await;
        proxy.ask(0, "session/new", json!({ "cwd": "/" })).await;
        proxy.said("session/new").await;
        // What the agent asks meanwhile has the number of what it was asked.
        proxy.ask(0, "fs/read_text_file", json!({})).await;
        proxy.said("fs/read_text_file").await;
        proxy.answer(0, json!({ "sessionId": "s" })).await;
        proxy.result(0).await;
        proxy
            .ask(0, "session/prompt", json!({ "sessionId": "s" }))
            .await;
        proxy.said("session/prompt").await;
        let id = proxy.create(0, "exit 4").await;
        let status = proxy
            .granted(0, "terminal/wait_for_exit", target(&id))
            .await;
        assert_eq!(status["exitCode"], 4);
        // A text that looks like a number is another name, and comes back as it was.
        proxy.say(json!({ "jsonrpc": "2.0", "id": "0", "method": "terminal/output", "params": target(&id) })).await;
        let answer = proxy.until("the answer", |m| m["id"] == "0").await;
        assert_eq!(answer["result"]["exitStatus"]["exitCode"], 4);
        proxy.leave().await;
    });
}

#[test]
fn a_terminal_runs_where_and_with_what_the_editor_has() {
    in_house(async |house| {
        std::fs::create_dir(house.file("project")).unwrap();
        let mut proxy = Proxy::start_with(house, &["cat"], |command| {
            command
                .env("EDITORS", "own")
                .env("PAGER", "less")
                .env("A", "0")
                .env("MY_TOKEN", "t");
        });
        proxy
            .ask(0, "initialize", json!({ "protocolVersion": 1 }))
            .await;
        proxy.said("initialize").await;
        proxy.answer(0, json!({ "protocolVersion": 1 })).await;
        proxy.result(0).await;
        proxy.session("s", &house.path("project")).await;
        let params = json!({ "sessionId": "s", "command": "pwd; echo $EDITORS [$PAGER] $A $B $MY_TOKEN; ostler ls -q",
            "env": [{ "name": "A", "value": "1" }, { "name": "B", "value": "2" },
                { "name": "PATH", "value": format!("{}:/usr/bin:/bin", ostler_tests::ostler().parent().unwrap().display()) }] });
        let created = proxy.granted(1, "terminal/create", params).await;
        let id = created["terminalId"].as_str().unwrap().to_owned();
        proxy
            .granted(2, "terminal/wait_for_exit", target(&id))
            .await;
        let output = proxy.granted(3, "terminal/output", target(&id)).await;
        let text = output["output"].as_str().unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].ends_with("/f/project"), "{text}");
        assert_eq!(lines[1], "own [] 1 2");
        // It stands in the session of its agent, for what it starts itself, too.
        assert!(lines[2].ends_with("t1"), "{text}");
        let open = sessions(house).await;
        assert!(open.len() == 1 && open[0].starts_with("cat-"), "{open:?}");
        proxy.leave().await;
        until_open(house, 0).await;
    });
}

#[test]
fn a_session_of_the_agent_is_a_session_of_jobs_from_its_first_terminal_to_its_end() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        assert!(sessions(house).await.is_empty(), "no terminal, no session");
        let first = proxy.create(1, "sleep 1000").await;
        // load and resume name theirs before they are answered; fork is told its own.
        for (n, method) in [(10, "session/load"), (11, "session/resume")] {
            let id = method.replace('/', "-");
            proxy
                .ask(n, method, json!({ "sessionId": id, "cwd": "/" }))
                .await;
            proxy.said(method).await;
            let params = json!({ "sessionId": id, "command": "sleep 1000" });
            proxy.granted(n + 10, "terminal/create", params).await;
            proxy.answer(n, json!({})).await;
            proxy.result(n).await;
        }
        proxy
            .ask(12, "session/fork", json!({ "sessionId": "s", "cwd": "/" }))
            .await;
        proxy.said("session/fork").await;
        proxy.answer(12, json!({ "sessionId": "forked" })).await;
        proxy.result(12).await;
        let params = json!({ "sessionId": "forked", "command": "sleep 1000" });
        proxy.granted(22, "terminal/create", params).await;
        assert_eq!(sessions(house).await.len(), 4);
        // Of one session in another it is nobody's; nor is one of a session that nobody knows.
        let other = json!({ "sessionId": "forked", "terminalId": first });
        for (n, method) in [(30, "terminal/output"), (31, "terminal/kill")] {
            proxy.ask(n, method, other.clone()).await;
            assert_eq!(proxy.answered(n).await["error"]["code"], -32002);
        }
        let params = json!({ "sessionId": "unknown", "command": "true" });
        proxy.ask(32, "terminal/create", params).await;
        assert_eq!(proxy.answered(32).await["error"]["code"], -32002);
        // The end of a turn ends nothing, a refused close neither.
        proxy
            .tell("session/cancel", json!({ "sessionId": "s" }))
            .await;
        proxy.said("session/cancel").await;
        proxy
            .ask(40, "session/close", json!({ "sessionId": "s" }))
            .await;
        proxy.said("session/close").await;
        proxy
            .say(json!({ "jsonrpc": "2.0", "id": 40, "error": { "code": -1, "message": "no" } }))
            .await;
        assert!(proxy.answered(40).await["error"].is_object());
        let output = proxy.granted(41, "terminal/output", target(&first)).await;
        assert!(output.get("exitStatus").is_none(), "{output}");
        for (n, method, id) in [
            (42, "session/close", "s"),
            (43, "session/delete", "forked"),
            (44, "session/delete", "never"),
        ] {
            proxy.ask(n, method, json!({ "sessionId": id })).await;
            proxy.said(method).await;
            proxy.answer(n, json!({})).await;
            proxy.result(n).await;
        }
        until_open(house, 2).await;
        proxy.ask(45, "terminal/output", target(&first)).await;
        assert_eq!(proxy.answered(45).await["error"]["code"], -32002);
        assert_eq!(
            proxy.granted(46, "terminal/release", target(&first)).await,
            json!({})
        );
        proxy.leave().await;
        until_open(house, 0).await;
        assert_eq!(house.members(), [] as [u32; 0]);
    });
}

#[test]
fn an_editor_that_knows_the_convention_builds_a_terminal_of_it() {
    in_house(async |house| {
        let mut proxy = ready(house, meta_look()).await;
        let (go, end) = (house.fifo("go"), house.fifo("end"));
        let line = format!(
            "{} say one , await {go} , say two , await {end} , exit 3",
            puppet()
        );
        let id = proxy.create(1, &line).await;
        let head = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run", "kind": "execute" });
        assert_eq!(proxy.update(head.clone()).await, head);
        let content = json!([{ "type": "terminal", "terminalId": id }]);
        let refers =
            json!({ "sessionUpdate": "tool_call_update", "toolCallId": "c", "content": content });
        let told = proxy.update(refers.clone()).await;
        assert_eq!(told["sessionUpdate"], "tool_call");
        assert_eq!(
            (&told["title"], &told["content"]),
            (&json!("Run"), &content)
        );
        assert_eq!(told["_meta"]["terminal_info"]["terminal_id"], id.as_str());
        let output = |text: &'static str| {
            move |m: &Value| m["params"]["update"]["_meta"]["terminal_output"]["data"] == text
        };
        proxy.until("output", output("one\n")).await;
        house.open(&go).await;
        proxy.until("output", output("two\n")).await;
        assert_eq!(proxy.update(refers.clone()).await, refers, "told once");
        house.open(&end).await;
        let exited = proxy
            .until("the exit", |m| {
                m["params"]["update"]["_meta"]["terminal_exit"].is_object()
            })
            .await;
        let update = &exited["params"]["update"];
        assert_eq!(update["toolCallId"], "c");
        assert_eq!(
            update["_meta"]["terminal_exit"],
            json!({ "terminal_id": id, "exit_code": 3, "signal": null })
        );
        proxy.granted(2, "terminal/release", target(&id)).await;
        assert_eq!(
            proxy.update(refers.clone()).await,
            refers,
            "after the release, too"
        );
        proxy.leave().await;
    });
}

#[test]
fn any_other_editor_gets_the_output_as_text() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let go = house.fifo("go");
        let line = format!("{} say one , await {go} , say two , kill KILL", puppet());
        let id = proxy.create(1, &line).await;
        let mine = json!({ "type": "content", "content": { "type": "text", "text": "mine" } });
        let content = json!([mine, { "type": "terminal", "terminalId": id }]);
        let told = proxy.update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run", "content": content })).await;
        assert_eq!(told["content"][0], mine);
        let text = |m: &Value| {
            m["params"]["update"]["content"][1]["content"]["text"]
                .as_str()
                .map(str::to_owned)
        };
        let first = told["content"][1]["content"]["text"].as_str().unwrap();
        assert!(first.contains("$ "), "{first}");
        let update = proxy
            .until("output", |m| text(m).is_some_and(|t| t.contains("one\n")))
            .await;
        assert_eq!(update["params"]["update"]["content"][0], mine);
        house.open(&go).await;
        let last = proxy
            .until("the end", |m| {
                text(m).is_some_and(|t| t.ends_with("ended by SIGKILL"))
            })
            .await;
        assert!(text(&last).unwrap().contains("one\ntwo\n"));
        // A permission is asked with it as well.
        let call = json!({ "toolCallId": "d", "content": content });
        proxy
            .ask(
                2,
                "session/request_permission",
                json!({ "sessionId": "s", "toolCall": call, "options": [] }),
            )
            .await;
        let asked = proxy.said("session/request_permission").await;
        let shown = asked["params"]["toolCall"]["content"][1]["content"]["text"]
            .as_str()
            .unwrap();
        assert!(shown.contains("two"), "{shown}");
        proxy.leave().await;
    });
}

#[test]
fn what_could_not_be_executed_says_so_to_the_editor() {
    in_house(async |house| {
        let mut proxy = ready(house, meta_look()).await;
        let params = json!({ "sessionId": "s", "command": "no-such-program", "args": ["x"] });
        let created = proxy.granted(1, "terminal/create", params).await;
        let id = created["terminalId"].as_str().unwrap().to_owned();
        let content = json!([{ "type": "terminal", "terminalId": id }]);
        proxy
            .update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": content }))
            .await;
        let words = "no-such-program: command not found\n";
        proxy
            .until("its words", |m| {
                m["params"]["update"]["_meta"]["terminal_output"]["data"] == words
            })
            .await;
        proxy
            .until("exit", |m| {
                m["params"]["update"]["_meta"]["terminal_exit"]["exit_code"] == 127
            })
            .await;
        proxy.leave().await;
    });
}

/// D 25, 26, 29: agents refer to terminals that they have released, or that were another life's.
#[test]
fn a_reference_after_the_release_shows_what_there_was() {
    in_house(async |house| {
        for look in [json!({}), meta_look()] {
            let with_meta = look != json!({});
            let mut proxy = ready(house, look).await;
            let id = proxy.create(1, "echo all of it; exit 5").await;
            proxy
                .granted(2, "terminal/wait_for_exit", target(&id))
                .await;
            proxy.granted(3, "terminal/release", target(&id)).await;
            let refers = |id: &str| {
                json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x",
                "content": [{ "type": "terminal", "terminalId": id }] })
            };
            let told = proxy.update(refers(&id)).await;
            if with_meta {
                assert!(told["_meta"]["terminal_info"].is_object(), "{told}");
                proxy
                    .until("output", |m| {
                        m["params"]["update"]["_meta"]["terminal_output"]["data"] == "all of it\n"
                    })
                    .await;
                proxy
                    .until("exit", |m| {
                        m["params"]["update"]["_meta"]["terminal_exit"]["exit_code"] == 5
                    })
                    .await;
            } else {
                let text = told["content"][0]["content"]["text"].as_str().unwrap();
                assert!(
                    text.contains("all of it\n") && text.ends_with("exited with code 5"),
                    "{text}"
                );
            }
            let old = proxy
                .update(refers("proc_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
                .await;
            let text = old["content"][0]["content"]["text"].as_str().unwrap();
            assert!(text.contains("not kept any more"), "{text}");
            let theirs = refers("toolu_1");
            assert_eq!(proxy.update(theirs.clone()).await, theirs);
            proxy.leave().await;
        }
    });
}

#[test]
fn an_editor_that_is_behind_is_told_what_is_left_out_and_the_end() {
    in_house(async |house| {
        let mut proxy = ready(house, meta_look()).await;
        let id = proxy
            .create(1, &format!("{} out 20000000 , exit 0", puppet()))
            .await;
        proxy
            .update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": [{ "type": "terminal", "terminalId": id }] }))
            .await;
        let mut bytes = 0;
        let mut left_out = false;
        loop {
            let update = proxy.said("session/update").await;
            let meta = &update["params"]["update"]["_meta"];
            if meta["terminal_exit"].is_object() {
                break;
            }
            let data = meta["terminal_output"]["data"].as_str().unwrap();
            bytes += data.len();
            left_out |= data.contains("bytes are left out here");
        }
        assert!(left_out && bytes < 2_000_000, "{bytes}");
        proxy.leave().await;
    });
}

#[test]
fn a_wait_that_is_taken_back_ends_and_what_is_not_ours_passes() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "sleep 1000").await;
        proxy.ask(2, "terminal/wait_for_exit", target(&id)).await;
        proxy.ask(3, "fs/read_text_file", json!({})).await;
        proxy.said("fs/read_text_file").await;
        for request in [2, 3] {
            proxy
                .tell("$/cancel_request", json!({ "requestId": request }))
                .await;
        }
        assert_eq!(proxy.answered(2).await["error"]["code"], -32800);
        let passed = proxy.said("$/cancel_request").await;
        assert_eq!(passed["params"]["requestId"], 3, "the other one was ours");
        // What cannot be taken back is answered, and nobody else hears of it.
        proxy.ask(8, "terminal/kill", target(&id)).await;
        proxy
            .tell("$/cancel_request", json!({ "requestId": 8 }))
            .await;
        assert_eq!(proxy.result(8).await, json!({}));
        proxy
            .granted(9, "terminal/wait_for_exit", target(&id))
            .await;
        let id = proxy.create(10, "sleep 1000").await;
        let output = proxy.granted(4, "terminal/output", target(&id)).await;
        assert!(output.get("exitStatus").is_none(), "it runs on");
        proxy.leave().await;
    });
}

#[test]
fn what_the_protocol_lacks_has_methods_of_our_own() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let params = json!({ "sessionId": "s", "command": "stty size; read line; echo \"<$line>\"; exec sleep 1000",
            "_meta": { "ostler": { "pty": { "rows": 5, "cols": 50 }, "stdin": true, "name": "web" } } });
        let created = proxy.granted(1, "terminal/create", params).await;
        let id = created["terminalId"].as_str().unwrap().to_owned();
        let with = |more: Value| {
            let mut params = target(&id);
            params
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            params
        };
        let wait = |text: &str| with(json!({ "for": { "text": text }, "timeoutMs": 20_000 }));
        proxy.granted(2, "_ostler/wait", wait("^5 50")).await;
        proxy
            .granted(3, "_ostler/resize", with(json!({ "rows": 6, "cols": 60 })))
            .await;
        proxy
            .granted(4, "_ostler/input", with(json!({ "text": "hey\n" })))
            .await;
        proxy.granted(5, "_ostler/wait", wait("<hey>")).await;
        let page = proxy
            .granted(6, "_ostler/output", with(json!({ "since": 6 })))
            .await;
        assert_eq!(page["from"], 6);
        let screen = proxy.granted(7, "_ostler/screen", target(&id)).await;
        assert!(screen.to_string().contains("<hey>"), "{screen}");
        let list = proxy
            .granted(8, "_ostler/list", json!({ "sessionId": "s" }))
            .await;
        assert_eq!(list["jobs"][0]["processId"], id.as_str());
        assert_eq!(list["jobs"][0]["name"], "web");
        // Its own time is over: it says so, and ends nothing.
        let short = with(json!({ "timeoutMs": 1 }));
        assert_eq!(
            proxy.granted(9, "_ostler/wait", short).await["timedOut"],
            true
        );
        proxy
            .granted(10, "_ostler/keys", with(json!({ "keys": ["x"] })))
            .await;
        proxy
            .granted(11, "_ostler/signal", with(json!({ "signal": "KILL" })))
            .await;
        let status = proxy
            .granted(12, "terminal/wait_for_exit", target(&id))
            .await;
        assert_eq!(status["signal"], "SIGKILL");
        for (n, method, params, code) in [
            (20, "_ostler/resize", with(json!({ "rows": 1 })), -32602),
            (21, "_ostler/input", json!({ "sessionId": "s" }), -32602),
            (
                22,
                "_ostler/input",
                json!({ "sessionId": "never", "terminalId": id }),
                -32002,
            ),
        ] {
            proxy.ask(n, method, params).await;
            assert_eq!(proxy.answered(n).await["error"]["code"], code, "{method}");
        }
        proxy.leave().await;
    });
}

#[test]
fn a_wait_goes_on_over_a_supervisor_that_is_killed() {
    in_house(async |house| {
        let mut proxy = ready(house, meta_look()).await;
        let go = house.fifo("go");
        let id = proxy
            .create(
                1,
                &format!("{} say up , await {go} , say done , exit 6", puppet()),
            )
            .await;
        proxy
            .update(json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "x", "content": [{ "type": "terminal", "terminalId": id }] }))
            .await;
        proxy
            .until("output", |m| {
                m["params"]["update"]["_meta"]["terminal_output"]["data"] == "up\n"
            })
            .await;
        for n in 10..13 {
            proxy.ask(n, "terminal/wait_for_exit", target(&id)).await;
        }
        let other = proxy.create(2, "echo other").await;
        house.kill_supervisor().await;
        // What is asked meanwhile waits until there is one again.
        let output = proxy.granted(3, "terminal/output", target(&id)).await;
        assert_eq!(output["output"], "up\n");
        house.kill_supervisor().await;
        house.open(&go).await;
        for n in 10..13 {
            assert_eq!(proxy.result(n).await["exitCode"], 6);
        }
        proxy
            .until("output", |m| {
                m["params"]["update"]["_meta"]["terminal_output"]["data"] == "done\n"
            })
            .await;
        proxy
            .until("exit", |m| {
                m["params"]["update"]["_meta"]["terminal_exit"]["exit_code"] == 6
            })
            .await;
        proxy
            .granted(4, "terminal/wait_for_exit", target(&other))
            .await;
        let fresh = proxy.create(5, "echo fresh").await;
        proxy
            .granted(6, "terminal/wait_for_exit", target(&fresh))
            .await;
        proxy.leave().await;
    });
}

#[test]
fn an_agent_goes_on_when_the_supervisor_was_ended_and_gets_another_one() {
    in_empty_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "sleep 1000").await;
        proxy.ask(2, "terminal/wait_for_exit", target(&id)).await;
        // Behind the wait: it has been sent when this is answered.
        proxy.granted(3, "terminal/output", target(&id)).await;
        let stopped = house.cli(&["daemon", "stop"]);
        assert_eq!(stopped.code, 0, "{stopped:?}");
        let waited = proxy.answered(2).await;
        let ended = waited["result"]["signal"] == "SIGTERM" || waited["error"]["code"] == -32603;
        assert!(ended, "{waited}");
        proxy.ask(4, "terminal/output", target(&id)).await;
        assert!(proxy.answered(4).await["error"].is_object());
        let id = proxy.create(5, "echo again").await;
        proxy
            .granted(6, "terminal/wait_for_exit", target(&id))
            .await;
        let output = proxy.granted(7, "terminal/output", target(&id)).await;
        assert_eq!(output["output"], "again\n");
        proxy.leave().await;
        house.cli(&["daemon", "stop"]);
    });
}

#[test]
fn a_session_that_a_person_renames_or_closes_is_no_end_for_the_agent() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "echo hi; exec sleep 1000").await;
        let before = sessions(house).await.remove(0);
        let renamed = house.cli(&["session", "rename", &before, "mine"]);
        assert_eq!(renamed.code, 0, "{renamed:?}");
        let output = proxy.granted(2, "terminal/output", target(&id)).await;
        assert!(output.get("exitStatus").is_none(), "{output}");
        house.kill_supervisor().await;
        proxy.granted(3, "terminal/output", target(&id)).await;
        proxy.create(4, "true").await;
        assert_eq!(sessions(house).await, ["mine"]);
        let closed = house.cli(&["session", "close", "mine"]);
        assert_eq!(closed.code, 0, "{closed:?}");
        proxy.ask(5, "terminal/output", target(&id)).await;
        assert_eq!(proxy.answered(5).await["error"]["code"], -32002);
        let id = proxy.create(6, "echo again").await;
        proxy
            .granted(7, "terminal/wait_for_exit", target(&id))
            .await;
        assert_eq!(sessions(house).await.len(), 1);
        proxy.leave().await;
        until_open(house, 0).await;
    });
}

#[test]
fn the_exit_code_is_the_agents_and_what_it_ran_ends_with_it() {
    in_house(async |house| {
        for (agent, code) in [
            ("exit 7", 7),
            ("kill -9 $$", 137),
            ("cat >/dev/null; exit 9", 9),
        ] {
            let mut proxy = Proxy::start(house, &["sh", "-c", agent]);
            if code == 9 {
                proxy.stdin = None;
            }
            assert_eq!(proxy.code().await, code, "{agent}");
        }
        // Its last words are whole.
        let mut proxy = Proxy::start(house, &["sh", "-c", "head -c 3000000 /dev/zero; exit 3"]);
        assert_eq!(
            (proxy.rest().await.len(), proxy.code().await),
            (3_000_000, 3)
        );
        // Who holds its output open holds up nobody.
        let begun = Instant::now();
        let mut proxy = Proxy::start(house, &["sh", "-c", "setsid sleep 100 & echo $!; exit 4"]);
        let pid: u32 = String::from_utf8(proxy.line().await)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        assert_eq!(proxy.code().await, 4);
        assert!(begun.elapsed() < PATIENCE);
        Process::of(pid).unwrap().signal(libc::SIGKILL);
        let missing = house.cli(&["acp", "--", "no-such-agent"]);
        assert_eq!((missing.code, missing.out.as_str()), (127, ""));
        assert_eq!(
            missing.err,
            "error: no program \"no-such-agent\"\nhint: ostler acp -- AGENT [ARGUMENTS]\n"
        );
    });
}

#[test]
fn what_an_agent_ran_ends_when_it_dies() {
    in_house(async |house| {
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "sleep 1000").await;
        proxy.ask(2, "terminal/wait_for_exit", target(&id)).await;
        assert!(!house.members().is_empty());
        let agent = process::all()
            .into_iter()
            .find(|p| process::parent(*p) == proxy.child.id());
        Process::of(agent.unwrap()).unwrap().signal(libc::SIGKILL);
        proxy.rest().await;
        assert_eq!(proxy.code().await, 137);
        assert_eq!(house.members(), [] as [u32; 0]);
        until_open(house, 0).await;
    });
}

/// B 14, C 20: the editor closes its side while the agent waits for a terminal; the agent's launcher has children.
#[test]
fn when_the_editor_has_gone_the_agent_ends_politely_or_by_force_with_all_of_its_own() {
    in_house(async |house| {
        let begun = Instant::now();
        let mut proxy = ready(house, json!({})).await;
        let id = proxy.create(1, "sleep 1000").await;
        proxy.ask(2, "terminal/wait_for_exit", target(&id)).await;
        assert_eq!(proxy.leave().await, 0);
        assert_eq!(house.members(), [] as [u32; 0]);
        // It does not read its input, so that its end says nothing to it; a launcher, and what it launched.
        let pids = house.path("pids");
        let line = format!("echo $$ >>{pids}; sh -c 'echo $$ >>{pids}; echo up; sleep 1000; :'; :");
        let mut proxy = Proxy::start(house, &["bash", "-c", &line]);
        assert_eq!(proxy.line().await, b"up\n");
        assert_eq!(proxy.leave().await, 143);
        let line = format!("trap '' TERM; echo $$ >>{pids}; echo up; while :; do sleep 1; done");
        let mut proxy = Proxy::start(house, &["bash", "-c", &line]);
        assert_eq!(proxy.line().await, b"up\n");
        assert_eq!(proxy.leave().await, 137);
        let pids = std::fs::read_to_string(house.file("pids")).unwrap();
        assert_eq!(pids.lines().count(), 3);
        for pid in pids.lines() {
            // The signal is out; to die takes a moment.
            if let Some(left) = Process::of(pid.parse().unwrap()) {
                within(PATIENCE, "the end of what the agent ran", left.gone()).await;
            }
        }
        assert!(begun.elapsed() < PATIENCE);
    });
}

#[test]
fn an_editor_that_reads_no_more_has_gone_as_well() {
    in_house(async |house| {
        let line = "while echo line; do :; done; exec sleep 1000";
        let mut command = house.ostler(&["acp", "--", "bash", "-c", line]);
        let child = command
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        let mut child = child.spawn().unwrap();
        drop(child.stdout.take());
        let gone = Process::of(child.id()).unwrap();
        assert!(gone.gone_within(PATIENCE));
        // bash finds nobody who reads, or is ended.
        let code = child.wait().unwrap().code();
        assert!(matches!(code, Some(141 | 143)), "{code:?}");
        let mut said = String::new();
        std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
        let ours = said.lines().filter(|l| !l.contains("echo"));
        assert_eq!(ours.count(), 0, "{said}");
    });
}

/// The answers to an agent that does not read must not keep its end from coming.
#[test]
fn an_agent_that_does_not_read_ends_with_its_editor() {
    in_house(async |house| {
        let initialize = r#"{"jsonrpc":"2.0","id":9,"method":"initialize","params":{}}"#;
        let new = r#"{"jsonrpc":"2.0","id":8,"method":"session/new","params":{"cwd":"/"}}"#;
        let create = r#"{"jsonrpc":"2.0","id":1,"method":"terminal/create","params":{"sessionId":"s","command":"head -c 3000000 /dev/zero"}}"#;
        // It answers the handshake, then asks and asks and reads nothing.
        let agent = format!(
            r#"read x; echo '{{"jsonrpc":"2.0","id":9,"result":{{"protocolVersion":1}}}}'
            read x; echo '{{"jsonrpc":"2.0","id":8,"result":{{"sessionId":"s"}}}}'
            echo '{create}'; read x; id=${{x#*proc_}}; id=proc_${{id%%\"*}}
            for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
                echo '{{"jsonrpc":"2.0","id":'$n',"method":"terminal/wait_for_exit","params":{{"sessionId":"s","terminalId":"'$id'"}}}}'
                echo '{{"jsonrpc":"2.0","id":1'$n',"method":"terminal/output","params":{{"sessionId":"s","terminalId":"'$id'"}}}}'
            done
            echo '{{"jsonrpc":"2.0","method":"asked"}}'; exec sleep 1000"#
        );
        for signal in [None, Some(libc::SIGTERM)] {
            let mut proxy = Proxy::start(house, &["bash", "-c", &agent]);
            proxy
                .send(format!("{initialize}\n{new}\n").as_bytes())
                .await;
            proxy.said("asked").await;
            // As much as there is room for, from the editor as well.
            let mut stdin = proxy.stdin.take().unwrap();
            let filling = tokio::spawn(async move {
                use tokio::io::AsyncWriteExt;
                let line = [&[b'x'; 100_000][..], b"\n"].concat();
                for _ in 0..30 {
                    let _ = stdin.write_all(&line).await;
                }
                stdin
            });
            let begun = Instant::now();
            match signal {
                Some(signal) => {
                    let process = Process::of(proxy.child.id().unwrap()).unwrap();
                    process.signal(signal);
                }
                None => filling.abort(),
            }
            assert_eq!(proxy.code().await, 143, "{signal:?}");
            assert!(begun.elapsed() < PATIENCE);
        }
        until_open(house, 0).await;
    });
}

#[test]
fn an_editor_that_dies_before_a_full_agent_is_noticed() {
    in_house(async |house| {
        use tokio::io::AsyncWriteExt;
        let mut proxy = Proxy::start(house, &["sleep", "1000"]);
        let line = [&[b'x'; 100_000][..], b"\n"].concat();
        let stdin = proxy.stdin.as_mut().unwrap();
        let full = async {
            let moment = std::time::Duration::from_millis(300);
            while tokio::time::timeout(moment, stdin.write_all(&line))
                .await
                .is_ok()
            {}
        };
        within(PATIENCE, "a full agent", full).await;
        assert_eq!(proxy.leave().await, 143);
    });
}

#[test]
fn an_editor_that_does_not_read_can_still_end_it() {
    in_house(async |house| {
        let mut proxy = Proxy::start(house, &["sh", "-c", "echo up; while :; do echo line; done"]);
        assert_eq!(proxy.line().await, b"up\n");
        let begun = Instant::now();
        let process = Process::of(proxy.child.id().unwrap()).unwrap();
        process.signal(libc::SIGTERM);
        assert_eq!(proxy.code().await, 143);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
    });
}

#[test]
fn the_end_of_what_the_agent_says_is_the_end_for_the_editor() {
    in_house(async |house| {
        let fifo = house.fifo("go");
        let line = format!("echo last; exec >&-; : <{fifo}; exit 5");
        let mut proxy = Proxy::start(house, &["bash", "-c", &line]);
        assert_eq!(proxy.rest().await, b"last\n");
        house.open(&fifo).await;
        assert_eq!(proxy.leave().await, 5);
    });
}

#[test]
fn a_signal_ends_it_with_its_agent_and_its_own_death_as_well() {
    in_house(async |house| {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGKILL] {
            let mut proxy = Proxy::start(house, &["sh", "-c", "echo $$; exec sleep 1000"]);
            let pid: u32 = String::from_utf8(proxy.line().await)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let agent = Process::of(pid).unwrap();
            Process::of(proxy.child.id().unwrap())
                .unwrap()
                .signal(signal);
            within(PATIENCE, "the end of the agent", agent.gone()).await;
            let code = if signal == libc::SIGKILL { 137 } else { 143 };
            assert_eq!(proxy.code().await, code);
        }
    });
}
