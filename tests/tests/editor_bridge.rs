//! Promise: `ostler lsp` starts the supervisor, outlives it, and ends with its editor.

use std::process::{Child, Command};

use ostler_proto::job::{Outcome, State};
use ostler_tests::process::Process;
use ostler_tests::wire::framed;
use ostler_tests::{Desk, House, PATIENCE, Wire, in_empty_house, in_house, puppet, within};
use serde_json::{Value, json};

/// An editor with `ostler lsp` on its pipes.
struct Editor {
    wire: Wire,
    child: Child,
}

impl Editor {
    fn begin(house: &House) -> Self {
        Self::with(house.ostler(&["lsp"]))
    }

    fn with(command: Command) -> Self {
        let (wire, child) = Wire::to_child(command);
        Self { wire, child }
    }

    /// Begins and greets.
    async fn open(house: &House) -> Self {
        let mut editor = Self::begin(house);
        let hello = editor.greet(house).await;
        assert!(hello["result"].is_object(), "{hello}");
        editor
    }

    async fn greet(&mut self, house: &House) -> Value {
        let params = json!({
            "processId": std::process::id(),
            "clientInfo": { "name": "Try" },
            "rootUri": format!("file://{}", house.file(".").display()),
            "capabilities": { "window": { "workDoneProgress": true } },
        });
        let hello = self.wire.call("initialize", params).await;
        self.notify("initialized", json!({})).await;
        hello
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.wire.send(&framed(&message)).await;
    }

    async fn ask(&mut self, command: &str, arguments: Value, token: &str) -> i64 {
        let params = json!({ "command": command, "arguments": arguments, "workDoneToken": token });
        self.wire.ask("workspace/executeCommand", params).await
    }

    async fn call(&mut self, command: &str, arguments: Value) -> Value {
        let id = self.ask(command, arguments, "quiet").await;
        let answer = self.wire.answer(id).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    /// The next message about work, as kind and message.
    async fn work(&mut self, token: &str) -> (String, Value) {
        loop {
            let message = self.wire.read().await.expect("the bridge lives");
            if message["params"]["token"] == token {
                let value = &message["params"]["value"];
                return (
                    value["kind"].as_str().unwrap_or_default().to_owned(),
                    value["message"].clone(),
                );
            }
        }
    }

    fn process(&self) -> Process {
        Process::of(self.child.id()).expect("nobody has waited for it")
    }

    /// Its exit code.
    async fn ended(mut self) -> i32 {
        within(PATIENCE, "the end of the bridge", self.process().gone()).await;
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Editor {
    /// Nothing is left of a test's own, however busy the machine is.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn puppet_line(steps: &str) -> Value {
    json!([format!("exec {} {steps}", puppet())])
}

async fn state(desk: &Desk, id: &str) -> State {
    desk.get(id).await.row.state
}

#[test]
fn an_editor_starts_the_supervisor_and_runs_its_first_job() {
    in_empty_house(async |house| {
        let mut editor = Editor::begin(house);
        let hello = editor.greet(house).await;
        let told = &hello["result"]["capabilities"]["experimental"]["ostler"];
        assert_eq!(
            (&told["owner"], &told["session"]["name"]),
            (&json!(true), &json!("try-f")),
            "{hello}"
        );
        let result = editor.call("ostler.run", json!(["echo hello; pwd"])).await;
        let root = house.file(".").canonicalize().unwrap();
        assert_eq!(result["stdout"], format!("hello\n{}\n", root.display()));
        assert_eq!(
            editor.wire.call("shutdown", Value::Null).await["result"],
            Value::Null
        );
        editor.notify("exit", Value::Null).await;
        assert_eq!(editor.ended().await, 0);
        assert_eq!(house.cli(&["ls"]).out.lines().count(), 1);
    });
}

#[test]
fn jobs_have_the_environment_of_the_editor_without_its_secrets() {
    in_house(async |house| {
        let mut command = house.ostler(&["lsp"]);
        command.envs([
            ("PLAIN", "seen"),
            ("GITHUB_TOKEN", "hidden"),
            ("DB_PASSWORD", "hidden"),
        ]);
        let mut editor = Editor::with(command);
        editor.greet(house).await;
        let run = json!([{ "start": { "line": "echo $PLAIN.$GITHUB_TOKEN.$DB_PASSWORD.$API_KEY", "env": { "API_KEY": "given" } } }]);
        assert_eq!(
            editor.call("ostler.run", run).await["stdout"],
            "seen...given\n"
        );
    });
}

#[test]
fn the_end_of_input_and_exit_end_it_at_once_whatever_is_pending() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        for code in [0, 1] {
            let mut editor = Editor::open(house).await;
            let row = editor.call("ostler.start", puppet_line("sleep")).await;
            let started = row["processId"].as_str().unwrap().to_owned();
            editor.ask("ostler.wait", json!([started]), "w").await;
            editor.ask("ostler.run", puppet_line("sleep"), "r").await;
            assert_eq!(editor.work("r").await.0, "begin");
            let table = editor.call("ostler.list", json!([{ "live": true }])).await;
            let run = table["jobs"].as_array().unwrap().last().unwrap()["processId"].clone();
            if code == 0 {
                editor.wire.say_no_more().await;
            } else {
                // Without `shutdown` before it.
                editor.notify("exit", Value::Null).await;
            }
            assert_eq!(editor.ended().await, code);
            // What was tied to the editor ends, what its session has goes on.
            let run = desk.over(run.as_str().unwrap()).await;
            assert_eq!(run.outcome, Some(Outcome::Stopped));
            assert_eq!(state(&desk, &started).await, State::Running);
            desk.stop(&started, 0).await;
        }
    });
}

/// Something that an editor started may hold its pipes open.
#[test]
fn it_ends_with_the_process_of_its_editor() {
    in_house(async |house| {
        let fifo = house.fifo("go");
        let line = format!(
            "exec 3<&0; {{ exec {} lsp <&3; }} & exec {} await {fifo}",
            ostler_tests::ostler().display(),
            puppet()
        );
        let plain = house.ostler(&[]);
        let mut command = Command::new("sh");
        command
            .args(["-c", &line])
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let (mut wire, mut child) = Wire::to_child(command);
        let params = json!({ "processId": child.id(), "capabilities": {} });
        let hello = wire.call("initialize", params).await;
        assert!(hello["result"].is_object(), "{hello}");
        house.open(&fifo).await;
        child.wait().unwrap();
        // Our side is open, and all the same nobody is there any more.
        assert!(wire.read().await.is_none());
    });
}

#[test]
fn a_supervisor_that_is_replaced_is_not_noticed_by_who_waits_runs_or_tails() {
    in_house(async |house| {
        let mut editor = Editor::open(house).await;
        let fifo = house.fifo("go");
        let run = editor
            .ask(
                "ostler.run",
                puppet_line(&format!("say begun , await {fifo} , say done , exit 5")),
                "r",
            )
            .await;
        assert_eq!(editor.work("r").await.0, "begin");
        let id = editor.call("ostler.list", json!([])).await["jobs"][0]["processId"].clone();
        let wait = editor.ask("ostler.wait", json!([id]), "w").await;
        let tail = json!([{ "id": id, "since": 0, "follow": true, "partialResultToken": "p" }]);
        let tail = editor.ask("ostler.tail", tail, "t").await;
        let mut text = String::new();
        while text.is_empty() {
            let message = editor.wire.read().await.unwrap();
            if message["params"]["token"] == "p" {
                text += message["params"]["value"]["page"]["text"].as_str().unwrap();
            }
        }
        house.kill_supervisor().await;
        // It serves as before, with the same session.
        assert_eq!(
            editor.call("ostler.list", json!([])).await["jobs"][0]["processId"],
            id
        );
        house.open(&fifo).await;
        let (mut kinds, mut answers) = (Vec::new(), Vec::new());
        while answers.len() < 3 {
            let message = editor.wire.read().await.unwrap();
            let value = &message["params"]["value"];
            if message["params"]["token"] == "r" {
                kinds.push(value["kind"].as_str().unwrap().to_owned());
            } else if message["params"]["token"] == "p" {
                text += value["page"]["text"].as_str().unwrap();
            } else if message["method"].is_null() {
                assert!(message["error"].is_null(), "{message}");
                answers.push(message);
            }
        }
        let result = |id: i64| &answers.iter().find(|a| a["id"] == id).unwrap()["result"];
        assert_eq!(
            (&result(run)["exitCode"], &result(run)["stdout"]),
            (&json!(5), &json!("begun\ndone\n"))
        );
        assert_eq!(result(wait)["jobs"][0]["row"]["exitCode"], 5);
        assert_eq!(result(tail)["next"], 11);
        // Once, and in order.
        assert_eq!(text, "begun\ndone\n");
        assert!(!kinds.contains(&"begin".to_owned()), "{kinds:?}");
        assert_eq!(kinds.iter().filter(|k| *k == "end").count(), 1, "{kinds:?}");
    });
}

/// What was asked when the supervisor died is done once, or its editor hears that nobody knows.
#[test]
fn a_start_is_done_once_and_what_cannot_be_asked_twice_is_refused_in_words() {
    in_house(async |house| {
        let mut editor = Editor::open(house).await;
        let pid = house.info().await.hello.pid;
        let supervisor = Process::of(pid).unwrap();
        supervisor.freeze();
        let start = editor.ask("ostler.start", puppet_line("sleep"), "s").await;
        let open = json!([{ "args": [puppet(), "cat"], "stdin": "open", "name": "web" }]);
        let open = editor.ask("ostler.start", open, "o").await;
        let send = editor.ask("ostler.send", json!(["web", "x"]), "x").await;
        let list = editor.ask("ostler.list", json!([]), "l").await;
        supervisor.signal(libc::SIGKILL);
        let mut answers = Vec::new();
        while answers.len() < 4 {
            let message = editor.wire.read().await.unwrap();
            if message["method"].is_null() {
                answers.push(message);
            }
        }
        let of = |id: i64| answers.iter().find(|a| a["id"] == id).unwrap();
        assert_eq!(of(start)["result"]["state"], "running", "{:?}", of(start));
        assert_eq!(of(open)["result"]["name"], "web");
        assert!(of(list)["result"]["jobs"].is_array());
        if of(send)["error"].is_null() {
            // Its program answers in its own time.
            let echo = json!([{ "ids": ["web"], "for": { "text": "x" } }]);
            editor.call("ostler.wait", echo).await;
        }
        let log = editor.call("ostler.tail", json!(["web"])).await;
        let typed = log["page"]["text"].as_str().unwrap().matches('x').count();
        let (error, result) = (&of(send)["error"], &of(send)["result"]);
        if error.is_null() {
            // The bridge had not handed it on by then: the next supervisor was the first to be asked.
            assert_eq!((&result["bytes"], typed), (&json!(1), 1), "{log}");
        } else {
            assert_eq!(
                (&error["code"], &error["data"]["kind"]),
                (&json!(-32803), &json!("unavailable")),
                "{error}"
            );
            let words = error["message"].as_str().unwrap();
            assert!(
                words.contains("nobody knows") && typed <= 1,
                "{words}: {log}"
            );
        }
        let table = editor.call("ostler.list", json!([])).await;
        assert_eq!(table["jobs"].as_array().unwrap().len(), 2, "{table}");
    });
}

#[test]
fn an_upgrade_of_the_supervisor_is_not_noticed_either() {
    in_house(async |house| {
        let mut editor = Editor::open(house).await;
        let row = editor.call("ostler.start", puppet_line("sleep")).await;
        let wait = editor.ask("ostler.wait", json!(["t1"]), "w").await;
        assert_eq!(editor.work("w").await.0, "begin");
        let said = house.cli(&["daemon", "upgrade", "--force"]);
        assert_eq!(said.code, 0, "{said:?}");
        editor.ask("ostler.stop", json!(["t1"]), "s").await;
        let answer = editor.wire.answer(wait).await;
        assert_eq!(
            answer["result"]["jobs"][0]["row"]["processId"], row["processId"],
            "{answer}"
        );
    });
}

/// Its jobs are gone: that is said to who waits, and the next thing that is asked for finds a new one.
#[test]
fn a_supervisor_that_was_stopped_is_said_to_who_waits_and_started_for_who_asks() {
    in_house(async |house| {
        let mut editor = Editor::open(house).await;
        editor.call("ostler.start", puppet_line("sleep")).await;
        let wait = editor
            .ask("ostler.tail", json!([{ "id": "t1", "follow": true }]), "w")
            .await;
        assert_eq!(editor.work("w").await.0, "begin");
        let said = house.cli(&["daemon", "stop", "--grace", "0"]);
        assert_eq!(said.code, 0, "{said:?}");
        // Asked before anybody told the editor.
        let run = editor.ask("ostler.run", json!(["echo again"]), "r").await;
        let (mut ended, mut result) = (Value::Null, Value::Null);
        while ended.is_null() || result.is_null() {
            let message = editor.wire.read().await.unwrap();
            if message["id"] == wait {
                ended = message;
            } else if message["id"] == run {
                result = message["result"].clone();
            }
        }
        if ended["error"].is_object() {
            assert_eq!(ended["error"]["message"], "no supervisor runs", "{ended}");
        } else {
            // It saw the end before the house did.
            assert_eq!(ended["result"]["row"]["outcome"], "stopped", "{ended}");
        }
        assert_eq!(result["stdout"], "again\n");
        assert_eq!(result["session"]["name"], "try-f", "the same greeting");
    });
}

#[test]
fn an_editor_is_told_why_no_supervisor_can_be_started() {
    in_empty_house(async |house| {
        std::fs::create_dir(house.folders().socket()).unwrap();
        let mut editor = Editor::begin(house);
        let hello = editor.greet(house).await;
        let error = &hello["error"];
        assert_eq!(error["data"]["kind"], "unavailable", "{hello}");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("is a folder, not a socket"),
            "{hello}"
        );
        assert!(
            error["data"]["hint"]
                .as_str()
                .unwrap()
                .starts_with("move it away"),
            "{hello}"
        );
        assert_eq!(
            editor.wire.call("shutdown", Value::Null).await["result"],
            Value::Null
        );
        // Put right, the next editor request is served without another greeting.
        std::fs::remove_dir(house.folders().socket()).unwrap();
        let mut editor = Editor::begin(house);
        assert!(editor.greet(house).await["result"].is_object());
    });
}

#[test]
fn garbage_from_an_editor_ends_it_with_words_and_code() {
    in_house(async |house| {
        let mut command = house.ostler(&["lsp"]);
        command.stderr(std::fs::File::create(house.file("err")).unwrap());
        let mut editor = Editor::with(command);
        editor.wire.send(b"Content-Length: x\r\n\r\n").await;
        assert_eq!(editor.ended().await, 125);
        let said = std::fs::read_to_string(house.file("err")).unwrap();
        assert!(
            said.starts_with("error: what the editor sends is no LSP: "),
            "{said}"
        );
    });
}
