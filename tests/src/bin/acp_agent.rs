//! An agent of the Agent Client Protocol that does what its prompt says: a list of steps, each `[METHOD, PARAMS]` or
//! `[METHOD, PARAMS, {"bg": true}]`. It asks that of its client and repeats every answer in a message. `"$0"` stands for the
//! terminal of step 0; `["join", N]` waits for the answer of step N, `["update", UPDATE]` sends one.
//!
//! No library of the protocol, so that it says what it is told and nothing else. Answers are repeated without nulls and
//! with `T` for names of terminals, so that those of two clients can be compared.

use std::collections::HashMap;
use std::io::{Lines, StdinLock, Write};
use std::process::exit;

use serde_json::{Map, Value, json};

struct Agent {
    lines: Lines<StdinLock<'static>>,
    has_terminals: bool,
    next: i64,
    answers: HashMap<i64, Value>,
    terminals: HashMap<String, String>,
}

fn main() {
    let mut agent = Agent {
        lines: std::io::stdin().lines(),
        has_terminals: false,
        next: 0,
        answers: HashMap::new(),
        terminals: HashMap::new(),
    };
    while agent.take() {}
}

fn say(mut message: Value) {
    message["jsonrpc"] = "2.0".into();
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{message}")
        .and_then(|()| out.flush())
        .is_err()
    {
        exit(1);
    }
}

impl Agent {
    /// Takes one message; false at the end.
    fn take(&mut self) -> bool {
        let Some(Ok(line)) = self.lines.next() else {
            return false;
        };
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            return true;
        };
        let params = &message["params"];
        let result = match message["method"].as_str() {
            None => {
                if let Some(id) = message["id"].as_i64() {
                    self.answers.insert(id, message);
                }
                return true;
            }
            Some("initialize") => {
                self.has_terminals = params["clientCapabilities"]["terminal"] == true;
                json!({ "protocolVersion": 1, "authMethods": [], "agentInfo": { "name": "scripted", "version": "0" },
                    "agentCapabilities": { "loadSession": false, "sessionCapabilities": { "close": {} } } })
            }
            Some("session/new") => json!({ "sessionId": "scripted" }),
            Some("session/prompt") => {
                self.play(params);
                json!({ "stopReason": "end_turn" })
            }
            Some(_) => json!({}),
        };
        if !message["id"].is_null() {
            say(json!({ "id": message["id"], "result": result }));
        }
        true
    }

    fn play(&mut self, params: &Value) {
        let session = params["sessionId"].as_str().unwrap_or_default();
        let blocks = params["prompt"].as_array().into_iter().flatten();
        let text: String = blocks.filter_map(|b| b["text"].as_str()).collect();
        let steps: Vec<Value> = match serde_json::from_str(text.trim()) {
            Ok(steps) => steps,
            Err(e) => return tell(session, &format!("no script: {e}: {text}")),
        };
        if !self.has_terminals {
            tell(session, "no terminals here\n");
        }
        let mut asked = Vec::new();
        for step in &steps {
            let method = step[0].as_str().unwrap_or_default();
            if method == "join" {
                let step = step[1].as_u64().unwrap_or_default() as usize;
                self.hear(session, asked[step], &steps[step]);
                asked.push(0);
                continue;
            }
            let params = self.named(&step[1]);
            if method == "update" {
                update(session, params);
                asked.push(0);
                continue;
            }
            let mut params = params;
            params["sessionId"] = session.into();
            let id = self.next;
            self.next += 1;
            say(json!({ "id": id, "method": method, "params": params }));
            asked.push(id);
            if step[2]["bg"] != true {
                self.hear(session, id, step);
                if let Some(terminal) = self.answers[&id]["result"]["terminalId"].as_str() {
                    let name = format!("${}", asked.len() - 1);
                    self.terminals.insert(name, terminal.to_owned());
                }
            }
        }
    }

    /// Waits for an answer and repeats it.
    fn hear(&mut self, session: &str, id: i64, step: &Value) {
        while !self.answers.contains_key(&id) {
            if !self.take() {
                exit(0);
            }
        }
        let answer = &self.answers[&id];
        let mut said = match answer.get("error") {
            Some(error) => json!({ "error": error["code"] }),
            None => plain(answer["result"].clone()),
        };
        said.sort_all_objects();
        let mut said = said.to_string();
        for terminal in self.terminals.values() {
            said = said.replace(terminal.as_str(), "T");
        }
        if let Some(terminal) = answer["result"]["terminalId"].as_str() {
            said = said.replace(terminal, "T");
        }
        tell(
            session,
            &format!("{} {said}\n", step[0].as_str().unwrap_or_default()),
        );
    }

    /// Parameters with names of terminals in place of their numbers.
    fn named(&self, params: &Value) -> Value {
        match params {
            Value::String(text) => self.terminals.get(text).unwrap_or(text).as_str().into(),
            Value::Array(items) => items.iter().map(|item| self.named(item)).collect(),
            Value::Object(fields) => {
                let named = fields.iter().map(|(k, v)| (k.clone(), self.named(v)));
                Value::Object(named.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

/// Without what is null: some say it and some do not.
fn plain(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let said = fields.into_iter().filter(|(_, v)| !v.is_null());
            Value::Object(said.map(|(k, v)| (k, plain(v))).collect())
        }
        Value::Null => json!({}),
        other => other,
    }
}

fn update(session: &str, update: Value) {
    say(
        json!({ "method": "session/update", "params": { "sessionId": session, "update": update } }),
    );
}

fn tell(session: &str, text: &str) {
    let content = json!({ "type": "text", "text": text });
    update(
        session,
        json!({ "sessionUpdate": "agent_message_chunk", "content": content }),
    );
}
