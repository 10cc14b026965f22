//! The editor's `initialize`, as it goes to each supervisor: with what the editor cannot know itself.

use ostler_proto::editor::EditorOptions;
use serde_json::{Value, json};

/// Id of a greeting whose answer no editor waits for.
pub(super) const OWN_ID: &str = "\"ostler lsp\"";

/// What the editor said.
#[derive(Debug, Clone)]
pub(super) struct Greeting {
    message: Value,
}

impl Greeting {
    /// Takes the editor's message.
    pub(super) fn of(body: &[u8]) -> Option<Self> {
        Some(Self {
            message: serde_json::from_slice(body).ok()?,
        })
    }

    /// The same with options that the editor does not give itself.
    pub(super) fn dressed(&self, ours: &EditorOptions) -> Vec<u8> {
        let mut message = self.message.clone();
        let options = &mut message["params"]["initializationOptions"];
        if options.is_null() {
            *options = json!({});
        }
        // Anything else is a fault of the editor's, and the supervisor says so.
        if let (Value::Object(given), Ok(Value::Object(ours))) =
            (options, serde_json::to_value(ours))
        {
            let wanted = ["ownerKey", "env", "umask", "limits"];
            let ours = ours
                .into_iter()
                .filter(|(name, value)| wanted.contains(&name.as_str()) && !value.is_null());
            for (name, value) in ours {
                given.entry(name).or_insert(value);
            }
        }
        message.to_string().into_bytes()
    }

    /// The same for a supervisor that came into the place of another one: the editor has its answer already.
    pub(super) fn again(&self, ours: &EditorOptions) -> Vec<u8> {
        let mut own = self.clone();
        own.message["id"] = json!("ostler lsp");
        own.dressed(ours)
    }

    /// Process of the editor.
    pub(super) fn process(&self) -> Option<u32> {
        let pid = self.message["params"]["processId"].as_u64()?;
        u32::try_from(pid).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dressed(options: Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": { "capabilities": {}, "initializationOptions": options } });
        let greeting = Greeting::of(message.to_string().as_bytes()).unwrap();
        let ours = EditorOptions {
            owner_key: Some("k".into()),
            umask: Some(7),
            ..EditorOptions::default()
        };
        let again: Value = serde_json::from_slice(&greeting.again(&ours)).unwrap();
        assert_eq!(again["id"].to_string(), OWN_ID);
        let body: Value = serde_json::from_slice(&greeting.dressed(&ours)).unwrap();
        assert_eq!(body["id"], 1);
        body["params"]["initializationOptions"].clone()
    }

    #[test]
    fn what_the_editor_says_itself_stays() {
        let all = json!({ "ownerKey": "k", "umask": 7, "limits": {} });
        assert_eq!(dressed(Value::Null), all);
        assert_eq!(dressed(json!({})), all);
        let own = dressed(json!({ "ownerKey": "mine", "keep": true }));
        assert_eq!(
            own,
            json!({ "ownerKey": "mine", "keep": true, "umask": 7, "limits": {} })
        );
        assert_eq!(dressed(json!([1])), json!([1]));
    }
}
