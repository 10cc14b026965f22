//! An MCP client of our own: one message a line over the pipes of `ostler mcp`, in both eras, with a deadline on every
//! answer. It knows nothing of the front end but what every client sees.

use std::collections::HashMap;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::{House, PATIENCE, within};

/// The revision of clients that shake hands.
pub const LEGACY: &str = "2025-11-25";
/// The revision of clients that do not.
pub const MODERN: &str = "2026-07-28";

/// How a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// With `initialize`.
    Legacy,
    /// Without: each request says it all.
    Modern,
}

/// A client and its server.
pub struct Mcp {
    child: Child,
    input: Option<ChildStdin>,
    output: Lines<BufReader<ChildStdout>>,
    era: Era,
    capabilities: Value,
    name: String,
    next: u64,
    answers: HashMap<u64, (Value, String)>,
    /// Notifications, in order.
    pub told: Vec<Value>,
    /// What the server said of itself.
    pub welcome: Value,
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// What clients show that show text.
    pub text: String,
    /// What clients show that show JSON.
    pub json: Option<Value>,
    /// The same as it stood on the line.
    pub json_text: String,
    /// The tool has failed.
    pub is_error: bool,
    /// `_meta`.
    pub meta: Value,
}

impl Outcome {
    /// The last line, which is always the server's own.
    pub fn status(&self) -> &str {
        self.text.lines().next_back().unwrap_or_default()
    }

    /// The one job that it is about.
    ///
    /// # Panics
    /// There is none.
    pub fn job(&self) -> &Value {
        match &self.json {
            Some(json) => &json["jobs"][0],
            None => panic!("no job in {}", self.text),
        }
    }

    /// What that job printed.
    pub fn output(&self) -> &str {
        self.job()["output"].as_str().unwrap_or_default()
    }
}

impl Mcp {
    /// Starts a server in this house and shakes hands with it, as a client of the name `tester`.
    pub async fn legacy(house: &House, args: &[&str]) -> Self {
        Self::of(house.ostler(&with_mcp(args)), Era::Legacy, "tester").await
    }

    /// The same without a handshake.
    pub async fn modern(house: &House, args: &[&str]) -> Self {
        Self::of(house.ostler(&with_mcp(args)), Era::Modern, "tester").await
    }

    /// A client of this name.
    pub async fn named(house: &House, name: &str, args: &[&str]) -> Self {
        Self::of(house.ostler(&with_mcp(args)), Era::Legacy, name).await
    }

    /// Any command that serves.
    ///
    /// # Panics
    /// It cannot be executed, or does not answer.
    pub async fn of(command: std::process::Command, era: Era, name: &str) -> Self {
        Self::with_capabilities(command, era, name, json!({})).await
    }

    /// The same, of a client that can do more.
    ///
    /// # Panics
    /// It cannot be executed, or does not answer.
    pub async fn with_capabilities(
        command: std::process::Command,
        era: Era,
        name: &str,
        capabilities: Value,
    ) -> Self {
        let mut command = Command::from(command);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("it can be executed");
        let output = child.stdout.take().expect("it was piped");
        let mut client = Self {
            input: child.stdin.take(),
            output: BufReader::new(output).lines(),
            child,
            era,
            capabilities: capabilities.clone(),
            name: name.into(),
            next: 0,
            answers: HashMap::new(),
            told: Vec::new(),
            welcome: Value::Null,
        };
        match era {
            Era::Legacy => {
                let hello = json!({
                    "protocolVersion": LEGACY,
                    "capabilities": capabilities,
                    "clientInfo": {"name": name, "version": "1"}
                });
                client.welcome = client.must("initialize", hello).await;
                client.notify("notifications/initialized", json!({})).await;
            }
            Era::Modern => client.welcome = client.must("server/discover", json!({})).await,
        }
        client
    }

    /// Sends a line as it is.
    ///
    /// # Panics
    /// The server takes none any more.
    pub async fn send_line(&mut self, line: &str) {
        let input = self.input.as_mut().expect("its input is open");
        let all = format!("{line}\n");
        let written = input.write_all(all.as_bytes()).await;
        written.expect("the server reads");
    }

    /// Tells something that has no answer.
    pub async fn notify(&mut self, method: &str, params: Value) {
        let message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.send_line(&message.to_string()).await;
    }

    /// Asks and does not wait. Returns the number of the request.
    pub async fn begin(&mut self, method: &str, mut params: Value) -> u64 {
        self.next += 1;
        if self.era == Era::Modern {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(MODERN);
            meta["io.modelcontextprotocol/clientCapabilities"] = self.capabilities.clone();
            meta["io.modelcontextprotocol/clientInfo"] = json!({"name": self.name, "version": "1"});
        }
        let message =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.send_line(&message.to_string()).await;
        self.next
    }

    /// Calls a tool and does not wait.
    pub async fn begin_call(&mut self, tool: &str, arguments: Value) -> u64 {
        let params = json!({"name": tool, "arguments": arguments});
        self.begin("tools/call", params).await
    }

    /// Takes a request back.
    pub async fn cancel(&mut self, id: u64) {
        self.notify("notifications/cancelled", json!({"requestId": id}))
            .await;
    }

    /// Waits for the answer of a request: the message, and the line that it was.
    ///
    /// # Panics
    /// It does not come.
    pub async fn answer(&mut self, id: u64) -> (Value, String) {
        let coming = async {
            loop {
                if let Some(answer) = self.answers.remove(&id) {
                    return answer;
                }
                let line = self.output.next_line().await.expect("the pipe can be read");
                let line = line.unwrap_or_else(|| panic!("the server ended before answer {id}"));
                let message: Value = serde_json::from_str(&line)
                    .unwrap_or_else(|e| panic!("no JSON on the line ({e}): {line}"));
                match message["id"].as_u64() {
                    Some(of) if message["method"].is_null() => {
                        self.answers.insert(of, (message, line));
                    }
                    _ => self.told.push(message),
                }
            }
        };
        within(PATIENCE * 2, &format!("answer {id}"), coming).await
    }

    /// Asks and waits.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.begin(method, params).await;
        self.answer(id).await.0
    }

    /// Asks what must be granted.
    ///
    /// # Panics
    /// It was refused.
    pub async fn must(&mut self, method: &str, params: Value) -> Value {
        let answer = self.ask(method, params).await;
        match answer.get("result") {
            Some(result) => result.clone(),
            None => panic!("{method} was refused: {answer}"),
        }
    }

    /// Calls a tool.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Outcome {
        let id = self.begin_call(tool, arguments).await;
        self.result(id).await
    }

    /// Calls a tool that must succeed.
    ///
    /// # Panics
    /// It failed.
    pub async fn good(&mut self, tool: &str, arguments: Value) -> Outcome {
        let outcome = self.call(tool, arguments.clone()).await;
        assert!(!outcome.is_error, "{tool} {arguments}: {}", outcome.text);
        outcome
    }

    /// Calls a tool that must fail, and returns its words.
    ///
    /// # Panics
    /// It succeeded, or said something in JSON.
    pub async fn bad(&mut self, tool: &str, arguments: Value) -> String {
        let outcome = self.call(tool, arguments.clone()).await;
        assert!(outcome.is_error, "{tool} {arguments}: {}", outcome.text);
        assert_eq!(outcome.json, None, "errors are text only");
        outcome.text
    }

    /// Waits for the result of a call.
    ///
    /// # Panics
    /// It was refused.
    pub async fn result(&mut self, id: u64) -> Outcome {
        let (message, line) = self.answer(id).await;
        let Some(result) = message.get("result") else {
            panic!("no result: {message}");
        };
        outcome_of(result, &line)
    }

    /// Its process.
    ///
    /// # Panics
    /// It has been waited for.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// Sends its process a signal and waits for its end; returns the signal that ended it, or the negative code.
    ///
    /// # Panics
    /// It does not end.
    pub async fn end_by(mut self, signal: i32) -> i32 {
        let pid = i32::try_from(self.pid()).expect("a process number is small");
        // SAFETY: our own child, not waited for yet.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        let status = within(PATIENCE, "the end of the server", self.child.wait()).await;
        let status = status.expect("it is our child");
        status
            .signal()
            .unwrap_or_else(|| -status.code().unwrap_or(0))
    }

    /// Ends its input and waits for its end; returns its code.
    ///
    /// # Panics
    /// It does not end.
    pub async fn close(mut self) -> i32 {
        drop(self.input.take());
        let status = within(PATIENCE, "the end of the server", self.child.wait()).await;
        status.expect("it is our child").code().unwrap_or(-1)
    }
}

impl Drop for Mcp {
    fn drop(&mut self) {
        // Its house looks for what is left: a server that was told to end must have ended.
        let _ = self.child.start_kill();
        while let Ok(None) = self.child.try_wait() {
            std::thread::yield_now();
        }
    }
}

/// The result of a tool as it stands in an answer.
///
/// # Panics
/// It has no text.
pub fn outcome_of(result: &Value, line: &str) -> Outcome {
    let text = result["content"][0]["text"].as_str();
    let json = result.get("structuredContent").cloned();
    let json_text = match line.find("\"structuredContent\":") {
        Some(at) if json.is_some() => {
            let rest = &line[at + "\"structuredContent\":".len()..];
            let mut all = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            all.next();
            rest[..all.byte_offset()].to_owned()
        }
        _ => String::new(),
    };
    Outcome {
        text: text.expect("every result has text").to_owned(),
        json,
        json_text,
        is_error: result["isError"] == json!(true),
        meta: result["_meta"].clone(),
    }
}

fn with_mcp<'a>(args: &[&'a str]) -> Vec<&'a str> {
    std::iter::once("mcp").chain(args.iter().copied()).collect()
}
