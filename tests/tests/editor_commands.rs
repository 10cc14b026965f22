//! Promise: any LSP client can start, see and end jobs, with progress, and nothing of it delays anybody.

use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{Nothing, SessionList};
use ostler_tests::wire::framed;
use ostler_tests::{Desk, House, PATIENCE, Wire, in_empty_house, in_house, puppet, script, within};
use serde_json::{Value, json};

/// An editor on the socket.
struct Editor {
    wire: Wire,
    /// What it was told when it said `initialize`.
    hello: Value,
}

impl Editor {
    /// Connects and greets.
    async fn open(house: &House, more: Value) -> Self {
        let mut params = json!({
            "processId": null,
            "clientInfo": { "name": "Try", "version": "1" },
            "rootUri": format!("file://{}", house.file(".").display()),
            "capabilities": { "window": { "workDoneProgress": true } },
        });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let mut wire = house.wire().await;
        let hello = wire.call("initialize", params).await;
        assert!(hello["result"].is_object(), "{hello}");
        let greeted = json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} });
        wire.send(&framed(&greeted)).await;
        Self { wire, hello }
    }

    fn ostler(&self) -> &Value {
        &self.hello["result"]["capabilities"]["experimental"]["ostler"]
    }

    async fn ask(&mut self, command: &str, arguments: Value, token: Option<Value>) -> i64 {
        let mut params = json!({ "command": command, "arguments": arguments });
        if let Some(token) = token {
            params["workDoneToken"] = token;
        }
        self.wire.ask("workspace/executeCommand", params).await
    }

    /// Asks and returns the result; progress on the way is dropped.
    async fn call(&mut self, command: &str, arguments: Value) -> Value {
        let id = self.ask(command, arguments, Some(json!("quiet"))).await;
        let answer = self.wire.answer(id).await;
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].clone()
    }

    async fn refused(&mut self, command: &str, arguments: Value) -> Value {
        let id = self.ask(command, arguments, None).await;
        let mut answer = self.wire.answer(id).await;
        assert!(answer["error"].is_object(), "{answer}");
        answer["error"].take()
    }

    async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.wire.send(&framed(&message)).await;
    }

    /// The next progress with this token, and the kind of it.
    async fn progress(&mut self, token: &Value) -> Value {
        let message = self.wire.read().await.expect("the connection lives");
        assert_eq!(message["method"], "$/progress", "{message}");
        assert_eq!(&message["params"]["token"], token, "{message}");
        message["params"]["value"].clone()
    }

    /// Answers the next message, which asks for a token, and returns the token.
    async fn give_token(&mut self) -> Value {
        let asked = self.wire.read().await.expect("the connection lives");
        assert_eq!(asked["method"], "window/workDoneProgress/create", "{asked}");
        let answer = json!({ "jsonrpc": "2.0", "id": asked["id"], "result": null });
        self.wire.send(&framed(&answer)).await;
        asked["params"]["token"].clone()
    }
}

fn puppet_line(steps: &str) -> Value {
    json!([format!("exec {} {steps}", puppet())])
}

async fn is_running(desk: &Desk, id: &str) -> bool {
    desk.get(id).await.row.state == State::Running
}

#[test]
fn the_commands_are_told_at_the_beginning_with_who_answers() {
    in_house(async |house| {
        let editor = Editor::open(house, json!({})).await;
        let provider = &editor.hello["result"]["capabilities"]["executeCommandProvider"];
        let names = ["start", "run", "list", "tail", "wait", "stop", "send"];
        let names: Vec<String> = names.iter().map(|n| format!("ostler.{n}")).collect();
        assert_eq!(provider["commands"], json!(names));
        let told = editor.ostler();
        assert_eq!(told["pid"], house.info().await.hello.pid);
        assert_eq!(told["owner"], false);
        assert!(
            told["session"]["id"]
                .as_str()
                .unwrap()
                .starts_with("try-f-")
        );
        assert!(told["token"].is_string());
    });
}

#[test]
fn every_verb_takes_plain_texts_and_an_object() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({})).await;
        let row = editor
            .call("ostler.start", puppet_line("say ready , sleep"))
            .await;
        assert_eq!(
            (&row["id"], &row["state"]),
            (&json!("t1"), &json!("running"))
        );
        let open = json!([{ "args": [puppet(), "say", "ready", ",", "cat"], "stdin": "open", "name": "web" }]);
        let row = editor.call("ostler.start", open).await;
        assert_eq!(row["id"], "t2");
        let text = json!([{ "ids": ["web"], "for": { "text": "ready" } }]);
        assert_eq!(
            editor.call("ostler.wait", text).await["jobs"][0]["reason"],
            "text"
        );
        let sent = editor.call("ostler.send", json!(["web", "hello\n"])).await;
        assert_eq!(sent["bytes"], 6);
        let text = json!([{ "ids": ["web"], "for": { "text": "hello" } }]);
        editor.call("ostler.wait", text).await;
        let tail = editor.call("ostler.tail", json!(["web"])).await;
        assert_eq!(tail["page"]["text"], "ready\nhello\n", "{tail}");
        let lines = json!([{ "id": "web", "lines": 1 }]);
        let tail = editor.call("ostler.tail", lines).await;
        assert_eq!(
            (&tail["page"]["text"], &tail["next"]),
            (&json!("hello\n"), &json!(12))
        );
        let table = editor.call("ostler.list", json!([])).await;
        assert_eq!(table["jobs"].as_array().unwrap().len(), 2);
        assert_eq!(
            editor.call("ostler.list", Value::Null).await,
            editor.call("ostler.list", json!([{ "live": true }])).await
        );
        let summary = editor.call("ostler.stop", json!(["web", "t1"])).await;
        assert_eq!(summary["jobs"].as_array().unwrap().len(), 2);
        assert_eq!(summary["jobs"][0]["row"]["outcomeDetail"]["by"], "user");
        let waited = editor.call("ostler.wait", json!(["web", "t1"])).await;
        assert_eq!(waited["jobs"][1]["row"]["outcome"], "stopped");
        let result = editor
            .call("ostler.run", json!(["echo out; echo err >&2; exit 3"]))
            .await;
        assert_eq!(
            (&result["stdout"], &result["stderr"], &result["exitCode"]),
            (&json!("out\n"), &json!("err\n"), &json!(3))
        );
    });
}

#[test]
fn wrong_arguments_are_refused_with_their_place() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({})).await;
        for (command, arguments, field, words) in [
            (
                "ostler.nothing",
                json!([]),
                "command",
                "is none of ours: ostler.nothing",
            ),
            (
                "ostler.start",
                json!([]),
                "arguments",
                "a line for a shell, or one object with the fields of job/start",
            ),
            (
                "ostler.start",
                json!(["a", "b"]),
                "arguments",
                "a line for a shell",
            ),
            (
                "ostler.start",
                json!([7]),
                "arguments",
                "a line for a shell",
            ),
            (
                "ostler.start",
                json!([{ "lin": "x" }]),
                "arguments[0].lin",
                "is not known here",
            ),
            (
                "ostler.start",
                json!([{ "args": 7 }]),
                "arguments[0].args",
                "is wrong",
            ),
            ("ostler.run", json!([{}]), "args", "must name a program"),
            (
                "ostler.run",
                json!([{ "start": { "args": ["x"], "umask": "y" } }]),
                "arguments[0].start.umask",
                "a whole number",
            ),
            ("ostler.list", json!(["x"]), "arguments", "must be nothing"),
            ("ostler.tail", json!([]), "arguments", "an id"),
            ("ostler.wait", json!([]), "arguments", "ids"),
            ("ostler.stop", json!([[]]), "arguments", "ids"),
            (
                "ostler.send",
                json!(["t1"]),
                "arguments",
                "an id and a text",
            ),
        ] {
            let error = editor.refused(command, arguments.clone()).await;
            assert_eq!(
                error["data"]["kind"], "bad_argument",
                "{command} {arguments}: {error}"
            );
            assert_eq!(
                error["data"]["field"], field,
                "{command} {arguments}: {error}"
            );
            assert!(
                error["message"].as_str().unwrap().contains(words),
                "{error}"
            );
        }
        let error = editor.refused("ostler.tail", json!(["t9"])).await;
        assert_eq!(error["data"]["kind"], "not_found");
        let id = editor.ask("ostler.list", json!([]), Some(json!([1]))).await;
        let error = editor.wire.answer(id).await["error"].take();
        assert_eq!(error["data"]["field"], "workDoneToken", "{error}");
    });
}

#[test]
fn a_run_tells_its_progress_with_the_editors_token_and_then_its_result() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({})).await;
        let (first, second) = (house.fifo("1"), house.fifo("2"));
        let line = puppet_line(&format!(
            "say begun , await {first} , say middle , await {second} , exit 4"
        ));
        let token = json!(7);
        let id = editor.ask("ostler.run", line, Some(token.clone())).await;
        let begin = editor.progress(&token).await;
        assert_eq!(
            (&begin["kind"], &begin["cancellable"]),
            (&json!("begin"), &json!(true))
        );
        assert!(
            begin["title"].as_str().unwrap().starts_with("run: exec "),
            "{begin}"
        );
        if begin["message"] != "begun" {
            assert_eq!(editor.progress(&token).await["message"], "begun");
        }
        house.open(&first).await;
        assert_eq!(
            editor.progress(&token).await,
            json!({ "kind": "report", "message": "middle" })
        );
        house.open(&second).await;
        assert_eq!(
            editor.progress(&token).await,
            json!({ "kind": "end", "message": "t1 exited with code 4" })
        );
        let answer = editor.wire.read().await.unwrap();
        assert_eq!(
            (&answer["id"], &answer["result"]["exitCode"]),
            (&json!(id), &json!(4))
        );
    });
}

/// A program that prints a thousand lines a second is no reason to send a thousand messages.
#[test]
fn reports_are_bounded_however_much_is_printed() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({})).await;
        let begun = std::time::Instant::now();
        let id = editor
            .ask(
                "ostler.run",
                puppet_line("paced 400 100 5 , exit 0"),
                Some(json!("t")),
            )
            .await;
        let mut reports = 0;
        loop {
            let message = editor.wire.read().await.unwrap();
            if message["id"] == id {
                break;
            }
            reports += 1;
        }
        let most = begun.elapsed().as_millis() / 200 + 3;
        assert!(
            reports >= 3 && reports <= most,
            "{reports} in {:?}",
            begun.elapsed()
        );
    });
}

#[test]
fn an_editor_without_a_token_is_asked_for_one_if_it_shows_progress() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({})).await;
        let fifo = house.fifo("go");
        let id = editor
            .ask(
                "ostler.run",
                puppet_line(&format!("await {fifo} , exit 0")),
                None,
            )
            .await;
        let token = editor.give_token().await;
        assert_eq!(editor.progress(&token).await["kind"], "begin");
        house.open(&fifo).await;
        assert_eq!(editor.progress(&token).await["kind"], "end");
        assert_eq!(editor.wire.read().await.unwrap()["id"], id);

        // One that does not, or says no, or says nothing, hears of nothing but the result.
        let plain = json!({ "capabilities": {} });
        let mut plain = Editor::open(house, plain).await;
        let id = plain.ask("ostler.run", json!(["true"]), None).await;
        assert_eq!(plain.wire.read().await.unwrap()["id"], id);
        let fifo = house.fifo("no");
        let id = editor
            .ask(
                "ostler.run",
                puppet_line(&format!("await {fifo} , exit 0")),
                None,
            )
            .await;
        let asked = editor.wire.read().await.unwrap();
        let no =
            json!({ "jsonrpc": "2.0", "id": asked["id"], "error": { "code": 1, "message": "no" } });
        editor.wire.send(&framed(&no)).await;
        house.open(&fifo).await;
        assert_eq!(editor.wire.read().await.unwrap()["id"], id);
        let id = editor.ask("ostler.run", json!(["true"]), None).await;
        let mut seen = Vec::new();
        loop {
            let message = editor.wire.read().await.unwrap();
            if message["id"] == id {
                break;
            }
            seen.push(message["method"].clone());
        }
        assert!(
            seen.iter().all(|m| m == "window/workDoneProgress/create"),
            "{seen:?}"
        );
    });
}

#[test]
fn cancelling_the_progress_of_a_run_stops_it_and_its_result_says_so() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let mut editor = Editor::open(house, json!({})).await;
        let id = editor
            .ask("ostler.run", puppet_line("sleep"), Some(json!("r")))
            .await;
        assert_eq!(editor.progress(&json!("r")).await["kind"], "begin");
        // One that nobody knows is nothing.
        editor
            .notify(
                "window/workDoneProgress/cancel",
                json!({ "token": "other" }),
            )
            .await;
        editor
            .notify("window/workDoneProgress/cancel", json!({ "token": "r" }))
            .await;
        assert_eq!(editor.progress(&json!("r")).await["kind"], "end");
        let answer = editor.wire.read().await.unwrap();
        assert_eq!(answer["id"], id);
        assert_eq!(answer["result"]["outcome"], "stopped", "{answer}");
        let process = answer["result"]["processId"].as_str().unwrap();
        assert_eq!(desk.get(process).await.row.outcome, Some(Outcome::Stopped));
    });
}

#[test]
fn a_cancelled_request_of_a_run_stops_it_and_ends_its_progress() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let mut editor = Editor::open(house, json!({})).await;
        let id = editor
            .ask("ostler.run", puppet_line("sleep"), Some(json!("r")))
            .await;
        assert_eq!(editor.progress(&json!("r")).await["kind"], "begin");
        editor.notify("$/cancelRequest", json!({ "id": id })).await;
        let (mut ended, mut refused) = (false, false);
        while !(ended && refused) {
            let message = editor.wire.read().await.unwrap();
            ended |= message["params"]["value"]["kind"] == "end";
            refused |= message["id"] == id && message["error"]["code"] == -32800;
        }
        let session = editor.ostler()["session"]["id"].as_str().unwrap();
        let row = desk.over(&format!("{session}/t1")).await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
    });
}

#[test]
fn cancelling_a_wait_or_a_tail_ends_that_alone() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let mut editor = Editor::open(house, json!({})).await;
        let row = editor
            .call("ostler.start", puppet_line("say here , sleep"))
            .await;
        let process = row["processId"].as_str().unwrap().to_owned();
        for (command, arguments) in [
            ("ostler.wait", json!([process])),
            ("ostler.tail", json!([{ "id": process, "follow": true }])),
            (
                "ostler.tail",
                json!([{ "id": process, "follow": true, "partialResultToken": "p" }]),
            ),
        ] {
            // By its token.
            let id = editor
                .ask(command, arguments.clone(), Some(json!("w")))
                .await;
            while editor.wire.read().await.unwrap()["params"]["value"]["kind"] != "begin" {}
            editor
                .notify("window/workDoneProgress/cancel", json!({ "token": "w" }))
                .await;
            let error = editor.wire.answer(id).await["error"].take();
            assert_eq!(error["data"]["kind"], "cancelled", "{error}");
            // By its request.
            let id = editor.ask(command, arguments, Some(json!("w"))).await;
            editor.notify("$/cancelRequest", json!({ "id": id })).await;
            let error = editor.wire.answer(id).await["error"].take();
            assert_eq!(error["code"], -32800, "{error}");
            assert!(is_running(&desk, &process).await);
        }
    });
}

/// A hundred commands that wait, and the next one is answered at once.
#[test]
fn commands_that_wait_keep_nobody_waiting() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({ "capabilities": {} })).await;
        editor.call("ostler.start", puppet_line("sleep")).await;
        for _ in 0..100 {
            editor.ask("ostler.wait", json!(["t1"]), None).await;
        }
        let table = editor.call("ostler.list", json!([])).await;
        assert_eq!(table["jobs"][0]["state"], "running");
    });
}

#[test]
fn a_tail_with_a_token_streams_and_one_without_answers_the_text() {
    in_house(async |house| {
        let mut editor = Editor::open(house, json!({ "capabilities": {} })).await;
        let fifo = house.fifo("go");
        editor
            .call(
                "ostler.start",
                puppet_line(&format!("say one , await {fifo} , say two , exit 0")),
            )
            .await;
        let ask = json!([{ "id": "t1", "since": 0, "follow": true, "partialResultToken": "p" }]);
        let streamed = editor.ask("ostler.tail", ask, None).await;
        let ask = json!([{ "id": "t1", "since": 0, "follow": true }]);
        let told = editor.ask("ostler.tail", ask, None).await;
        house.open(&fifo).await;
        let (mut text, mut answers) = (String::new(), Vec::new());
        while answers.len() < 2 {
            let message = editor.wire.read().await.unwrap();
            if message["method"] == "$/progress" {
                text += message["params"]["value"]["page"]["text"].as_str().unwrap();
            } else {
                answers.push(message);
            }
        }
        assert_eq!(text, "one\ntwo\n");
        for answer in answers {
            let result = &answer["result"];
            assert_eq!(
                (&result["next"], &result["row"]["exitCode"]),
                (&json!(8), &json!(0))
            );
            if answer["id"] == told {
                assert_eq!(result["page"]["text"], "one\ntwo\n");
            } else {
                assert_eq!(
                    (&answer["id"], &result["page"]),
                    (&json!(streamed), &Value::Null)
                );
            }
        }
    });
}

/// An editor that went away in the middle of everything leaves what its lease keeps, and nothing else.
#[test]
fn an_editor_that_vanishes_ends_its_runs_and_keeps_its_starts_for_its_lease() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let mut editor = Editor::open(house, json!({})).await;
        let session = editor.ostler()["session"]["id"]
            .as_str()
            .unwrap()
            .to_owned();
        editor.call("ostler.start", puppet_line("sleep")).await;
        editor
            .ask("ostler.run", puppet_line("sleep"), Some(json!("r")))
            .await;
        assert_eq!(editor.progress(&json!("r")).await["kind"], "begin");
        drop(editor);
        let run = desk.over(&format!("{session}/t2")).await;
        assert_eq!(run.outcome, Some(Outcome::Stopped));
        assert!(is_running(&desk, &format!("{session}/t1")).await);
        let sessions = desk.must::<SessionList>(Nothing {}).await.sessions;
        let own = sessions.iter().find(|s| s.session.id == session).unwrap();
        assert_eq!((own.lease_ms, own.clients), (Some(300_000), 0));
        assert_eq!(
            own.root.as_deref(),
            Some(&*house.file(".").canonicalize().unwrap().to_string_lossy())
        );
    });
}

#[test]
fn the_jobs_of_an_editor_end_with_its_lease() {
    in_empty_house(async |house| {
        let config = "[session]\neditor_lease = \"100ms\"\n";
        std::fs::write(&house.folders().config, config).unwrap();
        house.start();
        let mut editor = Editor::open(house, json!({})).await;
        let row = editor.call("ostler.start", puppet_line("sleep")).await;
        drop(editor);
        let desk = house.desk_without_session();
        let row = desk.over(row["processId"].as_str().unwrap()).await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        assert_eq!(row.outcome_detail.unwrap().by.as_deref(), Some("lease"));
    });
}

#[test]
fn a_window_that_is_loaded_again_finds_its_jobs_by_token_or_key_and_another_one_does_not() {
    in_house(async |house| {
        let key = std::fs::read_to_string(house.folders().owner_key()).unwrap();
        let mut first = Editor::open(house, json!({})).await;
        first.call("ostler.start", puppet_line("sleep")).await;
        let (session, token) = (
            first.ostler()["session"].clone(),
            first.ostler()["token"].clone(),
        );
        drop(first);
        let by_token = json!({ "initializationOptions": { "token": token } });
        let by_key = json!({ "initializationOptions": { "ownerKey": key.trim() } });
        for options in [by_token, by_key] {
            let mut again = Editor::open(house, options).await;
            assert_eq!(again.ostler()["session"], session);
            assert_eq!(
                again.call("ostler.list", json!([])).await["jobs"][0]["state"],
                "running"
            );
        }
        let mut other = Editor::open(house, json!({})).await;
        assert_ne!(other.ostler()["session"], session);
        assert_eq!(
            other.call("ostler.list", json!([])).await["jobs"],
            json!([])
        );
        // Another editor in the same place has its own, as has this one in another place.
        let vi = Editor::open(house, json!({ "clientInfo": { "name": "Vi" } })).await;
        assert!(
            vi.ostler()["session"]["id"]
                .as_str()
                .unwrap()
                .starts_with("vi-f-")
        );
        let elsewhere = json!({ "rootUri": null, "workspaceFolders": [{ "uri": "file:///usr/s%68are", "name": "x" }] });
        let elsewhere = Editor::open(house, elsewhere).await;
        assert!(
            elsewhere.ostler()["session"]["id"]
                .as_str()
                .unwrap()
                .starts_with("try-share-")
        );
        let nowhere = Editor::open(house, json!({ "rootUri": null })).await;
        assert_eq!(nowhere.ostler()["session"]["name"], "try");
    });
}

#[test]
fn a_session_of_the_editors_choice_keeps_the_lease_that_it_has() {
    in_house(async |house| {
        let key = std::fs::read_to_string(house.folders().owner_key()).unwrap();
        let desk = house.desk();
        desk.start(script("sleep")).await;
        let session = desk.client.session().await.unwrap().unwrap().session.id;
        let mine =
            json!({ "initializationOptions": { "ownerKey": key.trim(), "session": session } });
        let mut editor = Editor::open(house, mine).await;
        assert_eq!(
            editor.call("ostler.list", json!([])).await["jobs"][0]["id"],
            "t1"
        );
        let keep =
            json!({ "clientInfo": { "name": "Kept" }, "initializationOptions": { "keep": true } });
        let kept = Editor::open(house, keep).await;
        let table = editor.wire.call("session/list", json!({})).await;
        let rows = table["result"]["sessions"].as_array().unwrap();
        let lease =
            |id: &Value| &rows.iter().find(|r| r["session"]["id"] == *id).unwrap()["leaseMs"];
        assert_eq!(lease(&json!(session)), &Value::Null);
        assert_eq!(lease(&kept.ostler()["session"]["id"]), &Value::Null);
        // What is wrong in the options is told where it stands.
        let mut wire = house.wire().await;
        for (options, field) in [
            (json!({ "keep": 7 }), "initializationOptions.keep"),
            (json!({ "kep": true }), "initializationOptions.kep"),
            (json!([1]), "initializationOptions"),
        ] {
            let params = json!({ "capabilities": {}, "initializationOptions": options });
            let error = wire.call("initialize", params).await["error"].take();
            assert_eq!(error["data"]["field"], field, "{error}");
        }
    });
}

/// Each of its commands was refused with a hint that no editor can follow.
#[test]
fn an_editor_whose_session_was_closed_or_adopted_has_another_with_its_next_command() {
    in_house(async |house| {
        let desk = house.desk();
        desk.list().await;
        let mut editor = Editor::open(house, json!({})).await;
        let id = editor.ostler()["session"]["id"].as_str();
        let id = id
            .unwrap_or_else(|| panic!("{}", editor.ostler()))
            .to_owned();
        for end in [
            &["session", "close", &id][..],
            &["session", "adopt", &id, "--into", "x"],
        ] {
            editor.call("ostler.start", puppet_line("sleep")).await;
            let said = house.cli(end);
            assert_eq!(said.code, 0, "{said:?}");
            let table = editor.call("ostler.list", json!([])).await;
            assert_eq!(table["jobs"], json!([]), "{end:?}");
        }
        let run = editor.call("ostler.run", puppet_line("exit 3")).await;
        assert_eq!(run["exitCode"], 3, "{run}");
        assert_eq!(desk.list().await.len(), 1, "the adopted one is there");
    });
}

#[test]
fn what_an_editor_says_of_its_environment_is_what_its_jobs_have() {
    in_house(async |house| {
        let options = json!({ "env": { "PATH": "/usr/bin:/bin", "FROM": "editor", "BOTH": "editor" }, "umask": 0o027 });
        let mut editor = Editor::open(house, json!({ "initializationOptions": options })).await;
        let run = json!([{ "start": { "line": "echo $FROM $BOTH $OWN; umask; pwd", "env": { "BOTH": "own", "OWN": "own" } } }]);
        let result = editor.call("ostler.run", run).await;
        let root = house.file(".").canonicalize().unwrap();
        assert_eq!(
            result["stdout"],
            format!("editor own own\n0027\n{}\n", root.display()),
            "{result}"
        );
    });
}

/// It lingered until its requests were answered; eglot and lsp-mode then kill what they started.
#[test]
fn exit_closes_at_once_whatever_is_pending() {
    in_house(async |house| {
        let desk = house.desk_without_session();
        let mut editor = Editor::open(house, json!({ "capabilities": {} })).await;
        let row = editor.call("ostler.start", puppet_line("sleep")).await;
        editor.ask("ostler.wait", json!(["t1"]), None).await;
        assert_eq!(
            editor.wire.call("shutdown", Value::Null).await["result"],
            Value::Null
        );
        let error = editor.refused("ostler.list", json!([])).await;
        assert_eq!(error["code"], -32600, "{error}");
        assert!(
            error["message"]
                .as_str()
                .unwrap()
                .contains("only `exit` may follow"),
            "{error}"
        );
        editor.notify("exit", Value::Null).await;
        let rest = within(PATIENCE, "the end", editor.wire.rest()).await;
        assert!(rest.is_empty(), "{rest:?}");
        assert!(is_running(&desk, row["processId"].as_str().unwrap()).await);
    });
}
