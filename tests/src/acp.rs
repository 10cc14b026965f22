//! `ostler acp` with a test on both of its sides. The agent is `cat`: whatever the test says as the editor comes back as
//! if the agent had said it, and what the agent is told comes back as well.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::oracle::Oracle;
use crate::{House, PATIENCE, within};

/// A running `ostler acp`.
pub struct Proxy {
    /// The process.
    pub child: Child,
    /// The editor's side of its input; taken to close it.
    pub stdin: Option<ChildStdin>,
    out: BufReader<ChildStdout>,
    /// What came while something else was awaited.
    passed: Vec<Value>,
    oracle: Oracle,
}

impl Proxy {
    /// Starts it before this agent.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn start(house: &House, agent: &[&str]) -> Self {
        Self::start_with(house, agent, |_| {})
    }

    /// Starts it after the command was changed.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn start_with(
        house: &House,
        agent: &[&str],
        change: impl FnOnce(&mut std::process::Command),
    ) -> Self {
        let errors = std::fs::File::create(house.file("acp.err")).expect("a file can be made");
        let mut command = house.ostler(&[&["acp", "--"], agent].concat());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors);
        change(&mut command);
        let mut child = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .expect("ostler can be executed");
        Self {
            stdin: child.stdin.take(),
            out: BufReader::new(child.stdout.take().expect("it was piped")),
            child,
            passed: Vec::new(),
            oracle: Oracle::default(),
        }
    }

    /// One whose agent is `cat`, after the handshake of an editor with these capabilities.
    pub async fn shaken(house: &House, capabilities: Value) -> Self {
        Self::start(house, &["cat"]).shake(capabilities).await
    }

    /// Shakes hands for the editor and for an agent that is `cat`.
    pub async fn shake(self, capabilities: Value) -> Self {
        let mut proxy = self;
        let params = json!({ "protocolVersion": 1, "clientCapabilities": capabilities });
        proxy.ask(0, "initialize", params).await;
        proxy.said("initialize").await;
        proxy.answer(0, json!({ "protocolVersion": 1 })).await;
        proxy.result(0).await;
        proxy
    }

    /// A session of the agent, made by the editor.
    pub async fn session(&mut self, id: &str, cwd: &str) {
        let params = json!({ "cwd": cwd, "mcpServers": [] });
        self.ask(1000, "session/new", params).await;
        self.said("session/new").await;
        self.answer(1000, json!({ "sessionId": id })).await;
        self.result(1000).await;
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("it is open");
        // The other side may have gone: what it says about that is read afterwards.
        let _ = within(PATIENCE, "room for bytes", stdin.write_all(bytes)).await;
    }

    /// Sends a message.
    pub async fn say(&mut self, message: Value) {
        self.send(format!("{message}\n").as_bytes()).await;
    }

    /// Sends a request.
    pub async fn ask(&mut self, id: i64, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))
            .await;
    }

    /// Sends a notification.
    pub async fn tell(&mut self, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
            .await;
    }

    /// Sends the answer to a request.
    pub async fn answer(&mut self, id: i64, result: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "result": result }))
            .await;
    }

    /// Asks what must be granted, and returns the result.
    pub async fn granted(&mut self, id: i64, method: &str, params: Value) -> Value {
        self.ask(id, method, params).await;
        self.result(id).await
    }

    /// The next line, its end included; empty at the end.
    pub async fn line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        let reading = self.out.read_until(b'\n', &mut line);
        within(PATIENCE, "a line", reading).await.expect("a pipe");
        line
    }

    /// Everything up to the end.
    pub async fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        let reading = self.out.read_to_end(&mut all);
        within(PATIENCE, "the end", reading).await.expect("a pipe");
        all
    }

    /// The next message that is the one; others are kept for later.
    ///
    /// # Panics
    /// The end comes first.
    pub async fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&is) {
            return self.passed.remove(at);
        }
        loop {
            let line = self.line().await;
            let text = String::from_utf8_lossy(&line);
            let message: Value =
                serde_json::from_str(&text).unwrap_or_else(|e| panic!("{what}: {e}: {text:?}"));
            let name = match message["method"].as_str() {
                Some("session/update") => Some("SessionNotification"),
                Some("session/request_permission") => Some("RequestPermissionRequest"),
                _ => None,
            };
            if let Some(name) = name {
                self.oracle.reads(name, &message["params"]);
            }
            if is(&message) {
                return message;
            }
            self.passed.push(message);
        }
    }

    /// The request or notification of this method.
    pub async fn said(&mut self, method: &str) -> Value {
        self.until(method, |m| m["method"] == method).await
    }

    /// The answer to a request.
    pub async fn answered(&mut self, id: i64) -> Value {
        let what = format!("the answer to {id}");
        self.until(&what, |m| m["id"] == id && m.get("method").is_none())
            .await
    }

    /// The result of a request.
    ///
    /// # Panics
    /// It was refused.
    pub async fn result(&mut self, id: i64) -> Value {
        let answer = self.answered(id).await;
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// A terminal of session `s`.
    pub async fn create(&mut self, id: i64, command: &str) -> String {
        let params = json!({ "sessionId": "s", "command": command });
        let created = self.granted(id, "terminal/create", params).await;
        created["terminalId"].as_str().expect("an id").to_owned()
    }

    /// An update of session `s` by the agent, as the editor gets it.
    pub async fn update(&mut self, update: Value) -> Value {
        let params = json!({ "sessionId": "s", "update": update });
        self.tell("session/update", params).await;
        self.said("session/update").await["params"]["update"].clone()
    }

    /// Waits for its end and returns its code.
    pub async fn code(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let status = within(PATIENCE, "the end of ostler acp", self.child.wait()).await;
        let status = status.expect("it is our child");
        status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
    }

    /// Says no more, and waits for its end.
    pub async fn leave(mut self) -> i32 {
        self.stdin = None;
        self.rest().await;
        self.code().await
    }
}
