//! `$/progress`, written straight from its parts: a tree of values in between costs as much as all the rest of a
//! short line.

use ostler_proto::methods::Progress;
use serde::Serialize;
use serde_json::Value;

/// One message of a stream.
#[derive(Serialize)]
pub(super) struct Notification<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: Told<'a>,
}

#[derive(Serialize)]
struct Told<'a> {
    token: &'a Value,
    value: &'a Progress,
}

impl<'a> Notification<'a> {
    /// The value for the request whose token this is.
    pub(super) const fn of(token: &'a Value, value: &'a Progress) -> Self {
        Self {
            jsonrpc: "2.0",
            method: "$/progress",
            params: Told { token, value },
        }
    }
}
