//! Work-done progress that was begun and not ended. No supervisor that was replaced ends its own, and the next one begins
//! it anew where its request is asked again: an editor must see one begin and one end.

use serde_json::{Value, json};

use super::message;

/// Tokens of progress that the editor shows.
#[derive(Debug, Default)]
pub(super) struct Works {
    shown: Vec<Value>,
}

impl Works {
    /// Takes note of a `$/progress`; returns it as the editor is to see it, if that is another way.
    pub(super) fn note(&mut self, body: &[u8]) -> Option<Vec<u8>> {
        let mut told: Value = serde_json::from_slice(body).ok()?;
        let params = &mut told["params"];
        let (token, kind) = (params["token"].clone(), params["value"]["kind"].as_str());
        match kind {
            Some("begin") if self.shown.contains(&token) => {
                let value = &mut params["value"];
                let message = value["message"].take();
                *value = json!({ "kind": "report", "message": message });
                return Some(told.to_string().into_bytes());
            }
            Some("begin") => self.shown.push(token),
            Some("end") => self.shown.retain(|shown| *shown != token),
            _ => {}
        }
        None
    }

    /// Ends all that will not go on; returns what the editor is told.
    pub(super) fn end_all_but(&mut self, goes_on: &[&Value]) -> Vec<Vec<u8>> {
        let (keep, over): (Vec<_>, Vec<_>) = std::mem::take(&mut self.shown)
            .into_iter()
            .partition(|token| goes_on.contains(&token));
        self.shown = keep;
        let end = json!({ "kind": "end", "message": "the supervisor was replaced" });
        over.iter()
            .map(|token| message::progress(token, &end))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(token: &str, kind: &str) -> Vec<u8> {
        message::progress(&json!(token), &json!({ "kind": kind, "message": "m" }))
    }

    #[test]
    fn a_second_begin_is_a_report_and_what_is_left_is_ended_once() {
        let mut works = Works::default();
        assert_eq!(works.note(&stage("a", "begin")), None);
        assert_eq!(works.note(&stage("b", "begin")), None);
        let again: Value =
            serde_json::from_slice(&works.note(&stage("a", "begin")).unwrap()).unwrap();
        assert_eq!(
            again["params"]["value"],
            json!({ "kind": "report", "message": "m" })
        );
        assert_eq!(works.note(&stage("c", "begin")), None);
        assert_eq!(works.note(&stage("c", "end")), None);
        let ended = works.end_all_but(&[&json!("a")]);
        assert_eq!(ended.len(), 1);
        assert!(String::from_utf8_lossy(&ended[0]).contains(r#""token":"b""#));
        assert_eq!(works.end_all_but(&[]).len(), 1);
        assert!(works.end_all_but(&[]).is_empty());
    }
}
