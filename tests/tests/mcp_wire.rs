//! Promise: on the wire `ostler mcp` is what every MCP client expects: both eras, the same tools for everybody, results that
//! fit their schemas and their bound, progress only for who asked, cancels that come late and change nothing.

use std::path::Path;

use ostler_tests::mcp::{Era, MODERN};
use ostler_tests::{Mcp, in_empty_house, in_house, process, puppet};
use serde_json::{Value, json};

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

/// The committed list is what goes out. `UPDATE_GOLDEN=1` writes it.
fn assert_golden(file: &str, told: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("golden")
        .join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, told).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == told,
        "{file} is not what goes out; UPDATE_GOLDEN=1 writes it"
    );
}

/// The bytes of the list of tools on the wire.
async fn listed(mcp: &mut Mcp) -> String {
    let id = mcp.begin("tools/list", json!({})).await;
    let (_, line) = mcp.answer(id).await;
    let from = line.find("\"tools\":[").unwrap() + "\"tools\":".len();
    let mut all = serde_json::Deserializer::from_str(&line[from..]).into_iter::<Value>();
    all.next();
    line[from..from + all.byte_offset()].to_owned()
}

#[test]
fn the_tools_are_those_of_the_golden_file_for_everybody() {
    in_empty_house(async |house| {
        for set in ["compact", "epoch", "dsh", "dsh-old"] {
            let args = ["--tools", set];
            let told = listed(&mut Mcp::legacy(house, &args).await).await;
            assert_golden(&format!("{set}.json"), &told);
            assert_eq!(told, listed(&mut Mcp::modern(house, &args).await).await);
            let mut elsewhere = house.ostler(&["mcp", "--tools", set]);
            elsewhere
                .current_dir("/")
                .env("OSTLER_SESSION", "x")
                .env("LANG", "de_DE");
            let mut other = Mcp::of(elsewhere, Era::Legacy, "other").await;
            assert_eq!(told, listed(&mut other).await);
        }
        // Nobody was asked to do anything: no house was started.
        assert!(!house.folders().socket().exists());
    });
}

#[test]
fn both_eras_are_welcome_and_told_what_this_is() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        assert_eq!(mcp.welcome["serverInfo"]["name"], "ostler");
        assert_eq!(mcp.welcome["protocolVersion"], ostler_tests::mcp::LEGACY);
        assert!(mcp.welcome["instructions"].as_str().unwrap().len() < 120);
        let list = mcp.must("tools/list", json!({})).await;
        assert_eq!(
            (&list["ttlMs"], &list["cacheScope"]),
            (&json!(86_400_000), &json!("public"))
        );
        assert_eq!(list.get("resultType"), None);
        let told = mcp.good("run", json!({"command": "echo a"})).await;
        assert!(told.text.starts_with("a\n[t1 exited 0 in "));
        let mut mcp = Mcp::modern(house, &[]).await;
        let versions = mcp.welcome["supportedVersions"].as_array().unwrap();
        assert!(versions.contains(&json!(MODERN)), "{versions:?}");
        let list = mcp.must("tools/list", json!({})).await;
        assert_eq!(
            (&list["ttlMs"], &list["resultType"]),
            (&json!(86_400_000), &json!("complete"))
        );
        let told = mcp.good("run", json!({"command": "echo b"})).await;
        assert!(
            told.text.starts_with("b\n[t1 exited 0 in "),
            "{}",
            told.text
        );
        // An unknown tool is a fault of the client, not of the call.
        let refused = mcp
            .ask("tools/call", json!({"name": "nope", "arguments": {}}))
            .await;
        assert_eq!(refused["error"]["code"], -32602);
    });
}

/// What every schema of ours is made of: a small part of JSON Schema, checked here.
fn check(schema: &Value, value: &Value, at: &str) {
    match schema["type"].as_str() {
        Some("object") => {
            let map = value
                .as_object()
                .unwrap_or_else(|| panic!("{at} is no object: {value}"));
            for name in schema["required"].as_array().into_iter().flatten() {
                assert!(
                    map.contains_key(name.as_str().unwrap()),
                    "{at} lacks {name}: {value}"
                );
            }
            for (name, value) in map {
                let of = &schema["properties"][name];
                assert!(!of.is_null(), "{at}.{name} is not in the schema");
                check(of, value, &format!("{at}.{name}"));
            }
        }
        Some("array") => {
            let list = value
                .as_array()
                .unwrap_or_else(|| panic!("{at} is no list: {value}"));
            list.iter()
                .for_each(|value| check(&schema["items"], value, at));
        }
        Some("integer") => assert!(value.is_u64() || value.is_i64(), "{at}: {value}"),
        Some("number") => assert!(value.is_number(), "{at}: {value}"),
        Some("boolean") => assert!(value.is_boolean(), "{at}: {value}"),
        Some("string") => {
            assert!(value.is_string(), "{at}: {value}");
            if let Some(all) = schema["enum"].as_array() {
                assert!(all.contains(value), "{at}: {value}");
            }
        }
        other => panic!("{at}: type {other:?}"),
    }
}

#[test]
fn schemas_have_no_format_and_every_result_fits_its_own() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let tools = mcp.must("tools/list", json!({})).await;
        assert!(!tools.to_string().contains("\"format\""));
        let schema = tools["tools"][0]["outputSchema"].clone();
        let calls = [
            ("run", json!({"command": "seq 1 9000"})),
            ("run", json!({"command": "sleep 60", "wait_s": 0})),
            ("run", json!({"command": "cd /", "shell": "new"})),
            ("run", json!({"command": "read x", "tty": true})),
            ("run", json!({"command": "kill -9 $$"})),
            ("input", json!({"id": "t3", "text": "x\n"})),
            ("output", json!({})),
            ("output", json!({"id": "t1,t2,s1"})),
            ("output", json!({"id": "t1", "grep": "77"})),
            ("output", json!({"id": "t1", "since": 5})),
            ("stop", json!({"id": "t1,t2,s1"})),
        ];
        for (tool, arguments) in calls {
            let told = mcp.good(tool, arguments.clone()).await;
            check(
                &schema,
                told.json.as_ref().unwrap(),
                &format!("{tool} {arguments}"),
            );
            // Its fields come in the order of the contract, the output last.
            for job in told.json_text.split("{\"id\":").skip(1) {
                let ends = job.find("\"output\":").is_none_or(|at| {
                    let behind = &job[at + 9..];
                    !["\"note\":", "\"state\":", "\"next\":"]
                        .iter()
                        .any(|f| behind.contains(f))
                });
                assert!(ends || job.contains("\\\""), "{job}");
            }
            assert!(told.text.lines().next_back().unwrap().starts_with('['));
        }
    });
}

#[test]
fn every_result_fits_its_bound_and_still_names_its_job() {
    in_empty_house(async |house| {
        for bound in [64_usize, 65, 100, 128, 300] {
            let text = bound.to_string();
            let args = ["--max-result", text.as_str()];
            let mut mcp = Mcp::named(house, &format!("c{bound}"), &args).await;
            let calls = [
                ("run", json!({"command": "seq 1 9000"}), "[t1 exited"),
                (
                    "run",
                    json!({"command": "printf '\u{e4}\u{1f600}%.0s' $(seq 1 99)"}),
                    "[t2 exited",
                ),
                (
                    "run",
                    json!({"command": "sleep 60", "wait_s": 0}),
                    "[t3 running",
                ),
                ("output", json!({"id": "t1"}), "[t1 exited"),
                ("output", json!({"id": "t1", "grep": "77"}), "[t1 exited"),
                ("output", json!({"id": "t1,t3"}), "t1 exited"),
                ("output", json!({}), "t3 running"),
                ("stop", json!({"id": "t3"}), "[t3 stopped"),
            ];
            for (tool, arguments, has) in calls {
                let told = mcp.good(tool, arguments.clone()).await;
                assert!(told.text.len() <= bound, "{bound} {tool}: {}", told.text);
                assert!(
                    told.json_text.len() <= bound,
                    "{bound} {tool}: {}",
                    told.json_text
                );
                assert!(
                    told.text.contains(has),
                    "{bound} {tool} {arguments}: {}",
                    told.text
                );
                assert!(told.job()["id"].is_string(), "{}", told.json_text);
            }
            let words = mcp.bad("output", json!({"id": "t".repeat(500)})).await;
            assert!(
                words.len() <= bound && words.starts_with("not_found: no job ttt"),
                "{words}"
            );
        }
    });
}

#[test]
fn progress_is_told_to_who_gave_a_token_and_never_after_the_answer() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let steps = line("put x , sleep");
        let with = json!({
            "name": "run",
            "arguments": {"command": steps, "wait_s": 7},
            "_meta": {"progressToken": "p"}
        });
        let with = mcp.begin("tools/call", with).await;
        let without = mcp
            .begin_call("run", json!({"command": steps, "wait_s": 7}))
            .await;
        let answer = mcp.answer(with).await.0;
        assert!(answer["result"]["isError"] != json!(true), "{answer}");
        mcp.answer(without).await;
        mcp.must("tools/list", json!({})).await;
        let told: Vec<&Value> = mcp.told.iter().map(|n| &n["params"]).collect();
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(
            (&told[0]["progressToken"], &told[0]["progress"]),
            (&json!("p"), &json!(5.0))
        );
        assert_eq!(told[0]["total"], 45.0);
        let words = told[0]["message"].as_str().unwrap();
        assert!(words.ends_with(" running 5s, 1 bytes"), "{words}");
    });
}

#[test]
fn a_run_that_is_cancelled_before_its_answer_takes_its_tree_along() {
    in_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let file = house.path("pid");
        let up = house.fifo("up");
        let steps = line(&format!(
            "pidfile {file} , fork [ sleep ] , await {up} , sleep"
        ));
        let id = mcp.begin_call("run", json!({"command": steps})).await;
        house.open(&up).await;
        let pid: u32 = std::fs::read_to_string(&file)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let running = process::Process::of(pid).unwrap();
        mcp.cancel(id).await;
        running.gone().await;
        let told = mcp
            .good("output", json!({"id": "t1", "until": "exit"}))
            .await;
        assert!(told.text.starts_with("[t1 stopped after "), "{}", told.text);
    });
}

#[test]
fn cancels_that_come_late_or_name_nobody_change_nothing() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let id = mcp
            .begin_call("run", json!({"command": line("sleep"), "wait_s": 0.3}))
            .await;
        mcp.result(id).await;
        for of in [id, 4_711] {
            mcp.cancel(of).await;
        }
        mcp.notify("notifications/cancelled", json!({"requestId": "x"}))
            .await;
        let told = mcp.good("output", json!({"id": "t1"})).await;
        assert_eq!(told.job()["state"], "running");
        // A wait that is taken back leaves the job alone.
        let wait = mcp
            .begin_call("output", json!({"id": "t1", "until": "exit"}))
            .await;
        mcp.cancel(wait).await;
        let told = mcp.good("output", json!({"id": "t1"})).await;
        assert_eq!(told.job()["state"], "running");
        // A stop goes on when nobody waits for it.
        let stop = mcp.begin_call("stop", json!({"id": "t1"})).await;
        mcp.cancel(stop).await;
        let told = mcp
            .good("output", json!({"id": "t1", "until": "exit"}))
            .await;
        assert!(told.text.starts_with("[t1 stopped "), "{}", told.text);
    });
}

#[test]
fn what_is_no_request_of_ours_ends_nothing() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        mcp.send_line("this is no JSON").await;
        mcp.send_line("").await;
        mcp.send_line("[1,2]").await;
        mcp.send_line("{\"jsonrpc\":\"2.0\",\"id\":77,\"method\":\"no/such\"}")
            .await;
        let (answer, _) = mcp.answer(77).await;
        assert_eq!(answer["error"]["code"], -32601);
        let told = mcp.good("run", json!({"command": "echo still here"})).await;
        assert!(told.text.starts_with("still here\n"));
        assert_eq!(mcp.close().await, 0);
    });
}

/// A method that there is, with parameters that are not its own, was answered as one that there is not.
#[test]
fn parameters_that_cannot_be_read_are_told_as_such_in_both_eras() {
    in_empty_house(async |house| {
        let declared = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        for era in [Era::Legacy, Era::Modern] {
            let command = house.ostler(&["mcp"]);
            let mut mcp = Mcp::with_capabilities(command, era, "tester", declared.clone()).await;
            // As they are, without what the newer era adds to them.
            for (n, (method, params)) in [
                ("tools/call", ""),
                ("tools/call", r#","params":null"#),
                ("tools/call", r#","params":{}"#),
                ("tools/call", r#","params":{"name":5}"#),
                ("tools/call", r#","params":{"name":"run","arguments":5}"#),
                ("tasks/get", ""),
                ("tasks/get", r#","params":{"taskId":5}"#),
                ("tasks/cancel", r#","params":{}"#),
                ("tasks/update", r#","params":{}"#),
            ]
            .into_iter()
            .enumerate()
            {
                let id = 1_000 + n as u64;
                mcp.send_line(&format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"{params}}}"#
                ))
                .await;
                let error = mcp.answer(id).await.0["error"].take();
                assert_eq!(error["code"], -32602, "{era:?} {method}{params}: {error}");
            }
            for (method, params) in [
                ("tools/call", json!({})),
                ("tools/call", json!({"name": "run", "arguments": "x"})),
                ("tasks/get", json!({"taskId": {}})),
            ] {
                let error = mcp.ask(method, params.clone()).await["error"].take();
                assert_eq!(error["code"], -32602, "{era:?} {method} {params}: {error}");
                let words = error["message"].as_str().unwrap();
                assert!(words.starts_with(method), "{words}");
            }
            for method in ["no/such", "tools/none", "resources/read"] {
                let error = mcp.ask(method, json!({})).await["error"].take();
                assert_eq!(error["code"], -32601, "{era:?} {method}: {error}");
            }
            let told = mcp.good("run", json!({"command": "echo still here"})).await;
            assert!(told.text.starts_with("still here\n"));
        }
        // Tasks are of one set alone.
        let mut mcp = Mcp::legacy(house, &["--tools", "epoch"]).await;
        let error = mcp.ask("tasks/get", json!({})).await["error"].take();
        assert_eq!(error["code"], -32601, "{error}");
    });
}

#[test]
fn an_environment_of_nothing_is_enough_and_secrets_are_withheld() {
    in_empty_house(async |house| {
        let mut bare = house.ostler(&["mcp"]);
        let dir = house.dir().to_owned();
        bare.env_clear()
            .env("OSTLER_DIR", &dir)
            .env("OSTLER_STEADY_MS", "1");
        let mut mcp = Mcp::of(bare, Era::Legacy, "codex").await;
        let told = mcp
            .good(
                "run",
                json!({"command": "echo $HOME $PATH | wc -w; ls / | wc -l"}),
            )
            .await;
        assert!(told.text.starts_with("2\n"), "{}", told.text);
        let mut full = house.ostler(&["mcp"]);
        full.env("MY_API_KEY", "1")
            .env("GH_TOKEN", "1")
            .env("PLAIN", "yes");
        let mut mcp = Mcp::of(full, Era::Legacy, "claude").await;
        let told = mcp
            .good(
                "run",
                json!({"command": "echo \"$MY_API_KEY$GH_TOKEN-$PLAIN\""}),
            )
            .await;
        assert!(told.text.starts_with("-yes\n"), "{}", told.text);
    });
}

/// What a model is given of each tool, in tokens of o200k_base.
fn tokens(tools: &Value) -> (usize, usize) {
    let table = tiktoken_rs::o200k_base().unwrap();
    let given = |tool: &Value| {
        let parts = ["name", "description", "inputSchema"];
        let parts = parts.map(|part| format!("\"{part}\":{}", tool[part]));
        format!("{{{}}}", parts.join(","))
    };
    let all: Vec<String> = tools.as_array().unwrap().iter().map(given).collect();
    let tokens = all
        .iter()
        .map(|text| table.encode_ordinary(text).len())
        .sum();
    (tokens, all.iter().map(String::len).sum())
}

#[test]
fn the_set_compact_costs_a_model_at_most_600_tokens() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let (tokens, bytes) = tokens(&mcp.must("tools/list", json!({})).await["tools"]);
        assert!(tokens <= 600, "{tokens} tokens, {bytes} bytes");
        // A count of nothing would be small too.
        assert!(
            tokens > 400 && bytes > 2_000,
            "{tokens} tokens, {bytes} bytes"
        );
    });
}
