//! Says whether the Agent Client Protocol's own types can read a message. A line in, `{"type": NAME, "value": JSON}`; a line
//! out, `ok` or why not.

use std::io::{BufRead, Write};

use agent_client_protocol_schema::v1;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn check<T: DeserializeOwned>(value: Value) -> Result<(), String> {
    serde_json::from_value::<T>(value)
        .map(drop)
        .map_err(|e| e.to_string())
}

macro_rules! verdict {
    ($name:expr, $value:expr, $($known:ident)*) => {
        match $name {
            $(stringify!($known) => check::<v1::$known>($value),)*
            other => Err(format!("no type {other}")),
        }
    };
}

fn main() {
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let said = match serde_json::from_str::<Value>(&line) {
            Err(e) => Err(e.to_string()),
            Ok(mut asked) => {
                let value = asked["value"].take();
                verdict!(asked["type"].as_str().unwrap_or_default(), value,
                    CreateTerminalRequest CreateTerminalResponse TerminalOutputRequest TerminalOutputResponse
                    WaitForTerminalExitRequest WaitForTerminalExitResponse KillTerminalRequest KillTerminalResponse
                    ReleaseTerminalRequest ReleaseTerminalResponse InitializeRequest InitializeResponse
                    SessionNotification RequestPermissionRequest Error)
            }
        };
        let said = said.err().map_or("ok".into(), |why| why.replace('\n', " "));
        if writeln!(out, "{said}").and_then(|()| out.flush()).is_err() {
            return;
        }
    }
}
