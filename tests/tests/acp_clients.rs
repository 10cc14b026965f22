//! Promise: editors and agents that others have written work through `ostler acp` as they work with each other.
//!
//! `tests/run` installs them; what cannot be had is skipped aloud.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use ostler_tests::tools::tool;
use ostler_tests::{House, PATIENCE, in_house, ostler, within};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn node() -> Option<PathBuf> {
    tool("node/node_modules/node/bin/node")
}

fn scripted() -> String {
    let folder = ostler().parent().unwrap();
    folder.join("acp_agent").display().to_string()
}

/// A command that runs in a house, with what its program needs.
fn of_house(house: &House, program: &Path) -> Command {
    let plain = house.ostler(&[]);
    let mut command = Command::new(program);
    let bin = program.parent().unwrap();
    command
        .env_clear()
        .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))))
        .env(
            "PATH",
            format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()),
        )
        .current_dir(house.file("."));
    command
}

/// Runs a client to its end and returns what it printed.
async fn printed(mut command: Command) -> String {
    command.stdin(Stdio::null());
    let running = tokio::process::Command::from(command)
        .kill_on_drop(true)
        .output();
    let output = within(PATIENCE * 2, "the end of the client", running)
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{}: {said}\n{errors}",
        output.status
    );
    said
}

fn through_us(agent: &str) -> String {
    format!("{} acp -- {agent}", ostler().display())
}

/// acpx: with terminals of its own before the agent itself, without them before us.
async fn acpx(house: &House, ours: bool, steps: &Value) -> Option<String> {
    let (node, acpx) = (node()?, tool("acpx/node_modules/acpx/dist/cli.js")?);
    let mut command = of_house(house, &node);
    let agent = match ours {
        true => through_us(&scripted()),
        false => scripted(),
    };
    command
        .arg(acpx)
        .args(["--agent", &agent, "--approve-all", "--format", "text"]);
    if ours {
        command.arg("--no-terminal");
    }
    command.args(["exec", &steps.to_string()]);
    Some(printed(command).await)
}

/// What the agent was answered.
fn answers(said: &str) -> Vec<String> {
    let answer = |line: &&str| line.starts_with("terminal/") || line.starts_with("no ");
    said.lines().filter(answer).map(str::to_owned).collect()
}

fn step(method: &str, terminal: &str) -> Value {
    json!([format!("terminal/{method}"), { "terminalId": terminal }])
}

#[test]
fn acpx_sees_the_same_with_and_without_us() {
    in_house(async |house| {
        let life = |create: Value| {
            json!([
                ["terminal/create", create],
                step("wait_for_exit", "$0"),
                step("output", "$0"),
                step("kill", "$0"),
                step("release", "$0"),
                step("release", "$0")
            ])
        };
        let waiting = json!([
            ["terminal/create", { "command": "sleep", "args": ["1000"] }],
            ["terminal/wait_for_exit", { "terminalId": "$0" }, { "bg": true }],
            step("kill", "$0"), ["join", 1], step("output", "$0"), step("release", "$0"), step("output", "$0")
        ]);
        for steps in [
            life(json!({ "command": "printf", "args": ["hi"] })),
            life(json!({ "command": "echo out; echo err >&2; exit 3" })),
            life(json!({ "command": "sh", "args": ["-c", "kill -9 $$"] })),
            life(json!({ "command": "printf 'héllo wörld €€'", "outputByteLimit": 5 })),
            life(json!({ "command": "printf abc", "outputByteLimit": 0 })),
            life(
                json!({ "command": "echo $A", "env": [{ "name": "A", "value": "1" }, { "name": "A", "value": "2" }] }),
            ),
            life(json!({ "command": "seq", "args": ["1", "20000"], "outputByteLimit": 100 })),
            life(json!({ "command": "cat" })),
            waiting,
        ] {
            let (Some(theirs), Some(ours)) = (
                acpx(house, false, &steps).await,
                acpx(house, true, &steps).await,
            ) else {
                return;
            };
            let (theirs, mut ours) = (answers(&theirs), answers(&ours));
            assert!(theirs.len() > 4, "{steps}: {theirs:?}");
            // Of what is not there any more each says its own.
            for (mine, other) in ours.iter_mut().zip(&theirs) {
                if mine.contains(r#"{"error":"#) && other.contains(r#"{"error":"#) {
                    mine.clone_from(other);
                }
            }
            assert_eq!(ours, theirs, "{steps}");
        }
        assert_eq!(house.members(), [] as [u32; 0]);
    });
}

#[test]
fn the_python_library_reads_all_that_we_say() {
    in_house(async |house| {
        let Some(python) = tool("acp-py/bin/python") else {
            return;
        };
        let refers = json!(["update", { "sessionUpdate": "tool_call", "toolCallId": "c", "title": "count",
            "content": [{ "type": "terminal", "terminalId": "$0" }] }]);
        let steps = json!([
            ["terminal/create", { "command": "seq 1 20000" }],
            refers, step("wait_for_exit", "$0"), step("output", "$0"), step("release", "$0"), refers
        ]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/acp_client.py");
        let mut command = of_house(house, &python);
        command
            .arg(script)
            .arg(steps.to_string())
            .arg(ostler())
            .args(["acp", "--"])
            .arg(scripted());
        let said = printed(command).await;
        let answers = answers(&said);
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert!(answers[2].contains(r"19999\n20000\n"), "the whole output");
        let calls: Vec<Value> = said
            .lines()
            .filter(|line| line.contains("toolCallId"))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let last = calls.last().unwrap()["content"][0]["content"]["text"]
            .as_str()
            .unwrap();
        assert!(
            last.contains("\n20000\n") && last.ends_with("exited with code 0"),
            "{last}"
        );
        assert!(last.len() < 20_000);
    });
}

/// G 44: with the bound that the library has by itself, which was the end of connections in its earlier versions.
#[test]
fn the_python_library_takes_more_than_64_kib_with_its_own_bound() {
    in_house(async |house| {
        let Some(python) = tool("acp-py/bin/python") else {
            return;
        };
        let refers = json!(["update", { "sessionUpdate": "tool_call", "toolCallId": "c", "title": "fill",
            "content": [{ "type": "terminal", "terminalId": "$0" }] }]);
        let steps = json!([
            ["terminal/create", { "command": "head -c 70000 /dev/zero | tr '\\0' x" }],
            refers,
            step("wait_for_exit", "$0"),
            step("output", "$0"),
            step("release", "$0")
        ]);
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/acp_client.py");
        let mut command = of_house(house, &python);
        command
            .env("ACP_LINE", "own")
            .arg(script)
            .arg(steps.to_string())
            .arg(ostler())
            .args(["acp", "--"])
            .arg(scripted());
        let said = printed(command).await;
        let answers = answers(&said);
        assert_eq!(answers.len(), 4, "{answers:?}");
        assert!(answers[2].contains(&"x".repeat(70_000)), "the whole output");
        assert!(said.contains("exited with code 0"));
        assert_eq!(house.members(), [] as [u32; 0]);
    });
}

/// A model that asks for a command in its agent's shell, then says what came of it.
struct Model {
    port: u16,
    /// What it was told of its commands.
    results: Arc<Mutex<Vec<String>>>,
}

impl Model {
    async fn start(commands: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let results = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&results);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(serve(socket, commands, Arc::clone(&told)));
            }
        });
        Self { port, results }
    }
}

async fn serve(
    mut socket: TcpStream,
    commands: &[&str],
    told: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut bytes = Vec::new();
    let (body, length) = loop {
        socket.read_buf(&mut bytes).await.ok().filter(|n| *n > 0)?;
        let head = bytes.windows(4).position(|w| w == b"\r\n\r\n");
        if let Some(head) = head {
            let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            let length = text.split("content-length:").nth(1);
            let length = length.and_then(|l| l.split("\r\n").next()?.trim().parse().ok());
            break (head + 4, length.unwrap_or(0));
        }
    };
    while bytes.len() < body + length {
        socket.read_buf(&mut bytes).await.ok().filter(|n| *n > 0)?;
    }
    let request: Value = serde_json::from_slice(&bytes[body..]).unwrap_or_default();
    let messages = request["messages"].as_array().cloned().unwrap_or_default();
    let results: Vec<String> = messages
        .iter()
        .filter(|m| m["role"] == "tool")
        .map(|m| m["content"].to_string())
        .collect();
    let tools = request["tools"].as_array().into_iter().flatten();
    let shell = tools
        .filter_map(|t| t["function"]["name"].as_str())
        .find(|name| ["bash", "shell"].contains(&name.to_ascii_lowercase().as_str()));
    let delta = match (shell, commands.get(results.len())) {
        (Some(shell), Some(command)) => {
            let arguments = json!({ "command": command }).to_string();
            json!({ "role": "assistant", "tool_calls": [{ "index": 0, "id": format!("call_{}", results.len()),
                "type": "function", "function": { "name": shell, "arguments": arguments } }] })
        }
        _ => json!({ "role": "assistant", "content": "all done" }),
    };
    let finish = if delta["content"].is_null() {
        "tool_calls"
    } else {
        "stop"
    };
    if shell.is_some() {
        *told.lock().unwrap() = results;
    }
    let piece = |delta: Value, finish: Value| {
        let chunk = json!({ "id": "x", "object": "chat.completion.chunk", "created": 1, "model": "mock",
            "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 } });
        format!("data: {chunk}\n\n")
    };
    let text = [
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n".into(),
        piece(delta, Value::Null),
        piece(json!({}), finish.into()),
        "data: [DONE]\n\n".into(),
    ];
    socket.write_all(text.concat().as_bytes()).await.ok()?;
    socket.shutdown().await.ok()
}

/// A real agent that uses terminals, before a real editor that has none.
#[test]
fn kimi_runs_its_commands_in_our_terminals() {
    in_house(async |house| {
        let kimi = tool("kimi/node_modules/@moonshot-ai/kimi-code/dist/main.mjs");
        let acpx = tool("acpx/node_modules/acpx/dist/cli.js");
        let (Some(node), Some(kimi), Some(acpx)) = (node(), kimi, acpx) else {
            return;
        };
        let model = Model::start(&[
            "echo of $OSTLER_SESSION; echo err >&2; exit 3",
            "kill -9 $$",
            "seq 1 3",
        ])
        .await;
        let home = house.file("kimi");
        std::fs::create_dir(&home).unwrap();
        let config = format!(
            "default_model = \"mock\"\ndefault_permission_mode = \"auto\"\ntelemetry = false\n\
             [providers.mock]\ntype = \"openai\"\nbase_url = \"http://127.0.0.1:{}/v1\"\napi_key = \"x\"\n\
             [models.mock]\nprovider = \"mock\"\nmodel = \"mock\"\nmax_context_size = 100000\ncapabilities = [\"tool_use\"]\n",
            model.port
        );
        std::fs::write(home.join("config.toml"), config).unwrap();
        let mut command = of_house(house, &node);
        let agent = through_us(&format!("{} {} acp", node.display(), kimi.display()));
        command.env("KIMI_CODE_HOME", &home).arg(acpx).args([
            "--agent",
            &agent,
            "--no-terminal",
            "--approve-all",
            "--format",
            "text",
            "exec",
            "run it",
        ]);
        let said = printed(command).await;
        assert!(said.contains("all done"), "{said}");
        let results = model.results.lock().unwrap().clone();
        assert_eq!(results.len(), 3, "{results:?}\n{said}");
        // In the session that stands for the agent's.
        assert!(
            results[0].contains("of node-") && results[0].contains("err"),
            "{results:?}"
        );
        assert!(results[0].contains('3'), "its code: {results:?}");
        assert!(results[2].contains(r"1\n2\n3"), "{results:?}");
        let jobs = house.cli(&["ls", "-A", "-q"]);
        assert_eq!(jobs.out, "", "its session went with it");
    });
}
