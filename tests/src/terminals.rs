//! Whoever runs commands by `terminal/*` on the socket, and holds every answer against the protocol's own types.

use ostler_proto::acp::{ExitStatus, TerminalText};
use serde_json::{Value, json};

use crate::oracle::Oracle;
use crate::{House, PATIENCE, Wire, in_house, puppet, within};

/// An agent in session `x`.
pub struct Agent {
    /// Its connection.
    pub wire: Wire,
    /// What knows the types of the protocol.
    pub oracle: Oracle,
}

impl Agent {
    /// The owner's.
    pub async fn of(house: &House) -> Self {
        let mut agent = Self::stranger(house).await;
        let key = house.folders().owner_key();
        agent.wire.attach(&key, "x").await;
        agent
    }

    /// One that has shown nothing and has no session.
    pub async fn stranger(house: &House) -> Self {
        Self {
            wire: house.wire().await,
            oracle: Oracle::default(),
        }
    }

    /// The result of what must be granted, which the other side's types can read.
    ///
    /// # Panics
    /// It was refused, or they cannot.
    pub async fn ok(&mut self, method: &str, params: Value) -> Value {
        let answer = self.wire.call(method, params).await;
        let result = answer["result"].clone();
        assert!(!result.is_null(), "{method}: {answer}");
        let name = match method {
            "terminal/create" => "CreateTerminalResponse",
            "terminal/output" => "TerminalOutputResponse",
            "terminal/wait_for_exit" => "WaitForTerminalExitResponse",
            "terminal/kill" => "KillTerminalResponse",
            "terminal/release" => "ReleaseTerminalResponse",
            _ => "InitializeResponse",
        };
        self.oracle.reads(name, &result);
        result
    }

    /// Number and words of a refusal.
    ///
    /// # Panics
    /// It was granted.
    pub async fn refused(&mut self, method: &str, params: Value) -> (i64, String) {
        let answer = self.wire.call(method, params).await;
        let error = &answer["error"];
        assert!(error.is_object(), "{method}: {answer}");
        self.oracle.reads("Error", error);
        let words = error["message"].as_str().expect("text").to_owned();
        (error["code"].as_i64().expect("a number"), words)
    }

    /// Makes a terminal and returns its id.
    ///
    /// # Panics
    /// It was refused.
    pub async fn create(&mut self, params: Value) -> String {
        let mut params = params;
        params["sessionId"] = "x".into();
        let created = self.ok("terminal/create", params).await;
        created["terminalId"].as_str().expect("text").to_owned()
    }

    /// A terminal of the puppet, whose steps are words separated by blanks.
    pub async fn script(&mut self, steps: &str, more: Value) -> String {
        let mut params = more;
        params["command"] = puppet().into();
        params["args"] = steps.split_whitespace().collect();
        self.create(params).await
    }

    /// What it has printed, and how it ended.
    ///
    /// # Panics
    /// It was refused.
    pub async fn output(&mut self, id: &str) -> TerminalText {
        let output = self.ok("terminal/output", target(id)).await;
        serde_json::from_value(output).expect("an output")
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// It was refused.
    pub async fn wait(&mut self, id: &str) -> ExitStatus {
        let waited = self.ok("terminal/wait_for_exit", target(id)).await;
        serde_json::from_value(waited).expect("a status")
    }

    /// Its code and all that it printed.
    pub async fn ended(&mut self, params: Value) -> (Option<u32>, String) {
        let id = self.create(params).await;
        let code = self.wait(&id).await.exit_code;
        (code, self.output(&id).await.output)
    }

    /// Ends it.
    ///
    /// # Panics
    /// It was refused.
    pub async fn kill(&mut self, id: &str) {
        assert_eq!(self.ok("terminal/kill", target(id)).await, json!({}));
    }

    /// Ends and forgets it.
    ///
    /// # Panics
    /// It was refused.
    pub async fn release(&mut self, id: &str) {
        let released = self.ok("terminal/release", target(id)).await;
        assert_eq!(released, json!({}));
    }

    /// Waits until its output says this.
    pub async fn says(&mut self, id: &str, text: &str) -> TerminalText {
        let saying = async {
            loop {
                let output = self.output(id).await;
                if output.output.contains(text) {
                    return output;
                }
            }
        };
        within(PATIENCE, text, saying).await
    }
}

/// Names a terminal of session `x`.
pub fn target(id: &str) -> Value {
    json!({ "sessionId": "x", "terminalId": id })
}

/// A command that is a whole line.
pub fn line(line: &str) -> Value {
    json!({ "command": line })
}

/// Runs a test with an agent in a house that is up.
pub fn in_terminals(test: impl AsyncFnOnce(&House, Agent)) {
    in_house(async |house| {
        let agent = Agent::of(house).await;
        test(house, agent).await;
    });
}
