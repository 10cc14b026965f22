//! Promise: what LSP clients are seen to send is understood, byte for byte; and what is wrong is answered where it can be.
//!
//! What is not here is in `clients.rs`: split and joined messages, text ids, batches, garbage.

use ostler_tests::wire::{framed, request};
use ostler_tests::{House, Wire, in_house};
use serde_json::{Value, json};

/// The connection still serves.
async fn assert_goes_on(wire: &mut Wire, after: &str) {
    let answer = wire.call("supervisor/info", json!({})).await;
    assert!(
        answer["result"]["pid"].is_number(),
        "after {after}: {answer}"
    );
}

/// Sends a message and returns the next one that comes.
async fn said(house: &House, message: &Value) -> (Wire, Value) {
    let mut wire = house.wire().await;
    wire.send(&framed(message)).await;
    let said = wire.read().await.expect("an answer");
    (wire, said)
}

#[test]
fn a_request_of_the_protocol_that_is_not_known_is_answered_and_a_notification_is_not() {
    in_house(async |house| {
        for method in [
            "$/x",
            "$/setTrace",
            "$/cancelRequest",
            "textDocument/hover",
            "no/such",
        ] {
            let (mut wire, said) = said(house, &request(7, method, json!({}))).await;
            assert_eq!(
                (&said["id"], &said["error"]["code"]),
                (&json!(7), &json!(-32601)),
                "{method}: {said}"
            );
            let note = json!({ "jsonrpc": "2.0", "method": method, "params": {} });
            wire.send(&framed(&note)).await;
            assert_goes_on(&mut wire, method).await;
        }
    });
}

#[test]
fn parameters_may_be_absent_or_null() {
    in_house(async |house| {
        for message in [
            json!({ "jsonrpc": "2.0", "id": 7, "method": "supervisor/info" }),
            json!({ "jsonrpc": "2.0", "id": 7, "method": "supervisor/info", "params": null }),
            json!({ "jsonrpc": "2.0", "id": 0, "method": "supervisor/info", "params": {} }),
            json!({ "jsonrpc": "2.0", "id": -1, "method": "supervisor/info", "params": {} }),
            json!({ "jsonrpc": "2.0", "id": "", "method": "shutdown" }),
        ] {
            let (_wire, said) = said(house, &message).await;
            assert_eq!(said["id"], message["id"]);
            assert!(said.get("result").is_some(), "{message}: {said}");
        }
    });
}

/// Nothing is asked for by a message to which no answer can be given.
#[test]
fn a_request_without_an_id_does_nothing() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        for (method, params) in [
            ("job/start", json!({ "args": ["sleep", "60"] })),
            (
                "workspace/executeCommand",
                json!({ "command": "ostler.start", "arguments": ["sleep 60"] }),
            ),
            ("supervisor/stop", json!({})),
        ] {
            let note = json!({ "jsonrpc": "2.0", "method": method, "params": params });
            wire.send(&framed(&note)).await;
        }
        let jobs = wire.call("job/list", json!({})).await;
        assert_eq!(jobs["result"]["jobs"], json!([]), "{jobs}");
    });
}

#[test]
fn answers_and_cancels_that_mean_nothing_are_nothing() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        let done = wire.ask("supervisor/info", json!({})).await;
        wire.answer(done).await;
        for message in [
            json!({ "jsonrpc": "2.0", "id": 99, "result": null }),
            json!({ "jsonrpc": "2.0", "id": "ostler-x", "error": { "code": 1, "message": "x" } }),
            json!({ "jsonrpc": "2.0", "id": null, "error": { "code": 1, "message": "x" } }),
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": 12345 } }),
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": "x" } }),
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": done } }),
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest" }),
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": [1] } }),
            json!({ "jsonrpc": "2.0", "method": "window/workDoneProgress/cancel", "params": { "token": "x" } }),
            json!({ "jsonrpc": "2.0", "method": "window/workDoneProgress/cancel" }),
        ] {
            wire.send(&framed(&message)).await;
            // The first thing that comes is the answer to what is asked then.
            let id = wire.ask("supervisor/info", json!({})).await;
            let said = wire.read().await.expect("an answer");
            assert_eq!(said["id"], id, "after {message}: {said}");
        }
    });
}

#[test]
fn a_body_that_is_empty_or_no_json_is_answered_and_the_next_one_is_served() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        for body in [
            "",
            " ",
            "nonsense",
            "{\"jsonrpc\": \"2.0\", ",
            "\u{feff}{}",
            "\"\\ud800\"",
        ] {
            wire.send(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
                .await;
            let said = wire.read().await.expect("an answer");
            assert_eq!(
                (&said["id"], &said["error"]["data"]["kind"]),
                (&Value::Null, &json!("parse")),
                "{body:?}: {said}"
            );
        }
        assert_goes_on(&mut wire, "all of them").await;
    });
}

#[test]
fn headers_may_end_in_line_feeds_alone_and_have_no_blank() {
    in_house(async |house| {
        let body = request(1, "supervisor/info", json!({})).to_string();
        let n = body.len();
        for form in [
            format!("Content-Length: {n}\n\n{body}"),
            format!("Content-Length:{n}\r\n\r\n{body}"),
            format!("content-type: x\r\ncontent-length: {n}\r\n\r\n{body}"),
            format!(
                "Content-Length: {n}\r\nContent-Type: application/vscode-jsonrpc; charset=utf8\r\n\r\n{body}"
            ),
        ] {
            let mut wire = house.wire().await;
            wire.send(form.as_bytes()).await;
            assert!(wire.answer(1).await["result"]["pid"].is_number(), "{form}");
            assert_goes_on(&mut wire, &form).await;
        }
    });
}

/// Whoever sends that would wait for an answer for ever.
#[test]
fn a_header_block_without_a_length_is_answered_and_ends_the_connection() {
    in_house(async |house| {
        for header in [
            "Content-Type: x\r\n\r\n{}",
            "X: y\r\n\r\n",
            "Content-Length: \r\n\r\n{}",
        ] {
            let mut wire = house.wire().await;
            wire.send(header.as_bytes()).await;
            let said = wire.read().await.expect("words before the end");
            assert_eq!(said["error"]["code"], -32600, "{header:?}: {said}");
            let words = said["error"]["message"].as_str().unwrap();
            assert!(words.contains("Content-Length"), "{words}");
            assert!(wire.read().await.is_none(), "{header:?}");
        }
    });
}

#[test]
fn a_second_initialize_is_answered_as_the_first_and_none_is_needed() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        assert_goes_on(&mut wire, "nothing").await;
        let params = json!({ "processId": null, "capabilities": {}, "rootUri": "file:///usr" });
        let first = wire.call("initialize", params.clone()).await;
        let second = wire.call("initialize", params).await;
        let session = |hello: &Value| {
            hello["result"]["capabilities"]["experimental"]["ostler"]["session"].clone()
        };
        assert_eq!(session(&first), session(&second));
        assert!(session(&first)["id"].is_string(), "{first}");
        let list = json!({ "command": "ostler.list" });
        let jobs = wire.call("workspace/executeCommand", list).await;
        assert_eq!(jobs["result"]["jobs"], json!([]), "{jobs}");
    });
}

#[test]
fn exit_without_shutdown_closes_as_well() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        assert_goes_on(&mut wire, "nothing").await;
        wire.send(&framed(&json!({ "jsonrpc": "2.0", "method": "exit" })))
            .await;
        assert!(wire.read().await.is_none());
        let (_wire, said) = said(house, &request(1, "supervisor/info", json!({}))).await;
        assert!(said["result"]["pid"].is_number());
    });
}
