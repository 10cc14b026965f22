//! What a message is, without taking it apart.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The outside of a message.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    /// As it stands there, so that `7` and `"7"` are two.
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    /// Absent in an answer.
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
}

impl<'a> Envelope<'a> {
    /// Reads it; what is no message is the supervisor's to refuse.
    pub(super) fn read(body: &'a [u8]) -> Option<Self> {
        serde_json::from_slice(body).ok()
    }

    /// Id of a request or an answer, as text.
    pub(super) fn id(&self) -> Option<&'a str> {
        self.id.map(RawValue::get).filter(|id| *id != "null")
    }
}

/// A notification that says how far some work is.
pub(super) fn progress(token: &Value, value: &Value) -> Vec<u8> {
    let message = json!({ "jsonrpc": "2.0", "method": "$/progress", "params": { "token": token, "value": value } });
    message.to_string().into_bytes()
}

/// An answer. `id` is text of JSON.
pub(super) fn answer(id: &str, result: &Value) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#).into_bytes()
}

/// What LSP calls a request that has failed for reasons outside of it.
const REQUEST_FAILED: i64 = -32803;

/// A refusal of ours.
pub(super) fn refusal(id: &str, message: &str, hint: Option<&str>) -> Vec<u8> {
    // `retry` is what an editor looks for in a failed `initialize`.
    let mut data = json!({ "kind": "unavailable", "retry": false });
    if let Some(hint) = hint {
        data["hint"] = hint.into();
    }
    let error = json!({ "code": REQUEST_FAILED, "message": message, "data": data });
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_keeps_its_form() {
        let id = |text: &'static str| {
            let envelope = Envelope::read(text.as_bytes()).unwrap();
            envelope.id().map(str::to_owned)
        };
        assert_eq!(id(r#"{"id":7}"#).as_deref(), Some("7"));
        assert_eq!(id(r#"{"id":"7"}"#).as_deref(), Some("\"7\""));
        assert_eq!(id(r#"{"id":null}"#), None);
        assert_eq!(id(r#"{"method":"x"}"#), None);
        assert!(Envelope::read(b"[1]").is_none());
    }
}
