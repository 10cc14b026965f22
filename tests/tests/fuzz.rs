//! Promise: whatever bytes a client sends, it gets words or its connection ends; others are served as before, and
//! nothing grows. Bytes are drawn by chance from a seed:
//!
//! ```text
//!   OSTLER_FUZZ=20000 OSTLER_FUZZ_SEED=7 cargo nextest run -p ostler-tests --test fuzz
//! ```

use ostler_proto::job::State;
use ostler_tests::chance::Chance;
use ostler_tests::desk::script;
use ostler_tests::house::in_house;
use ostler_tests::process;
use ostler_tests::wire::{framed, request};
use ostler_tests::{PATIENCE, Wire, rounds, within};
use serde_json::{Value, json};

fn chance() -> (u64, Chance) {
    let seed = rounds("OSTLER_FUZZ_SEED", 1) as u64;
    (seed, Chance::of(seed))
}

/// Requests that make sense. Nothing that ends the house, and nothing that waits for long.
fn requests() -> Vec<Value> {
    let puppet = script("exit 0").args;
    [
        ("initialize", json!({ "processId": null, "rootUri": null, "capabilities": {} })),
        ("supervisor/info", json!({})),
        ("supervisor/hello", json!({ "name": "fuzz", "protocol": 1 })),
        ("session/open", json!({ "id": "fuzz", "commands": 3, "leaseMs": 1000 })),
        ("session/list", json!({})),
        ("session/close", json!({ "session": "fuzz", "graceMs": 0 })),
        ("session/rename", json!({ "session": "fuzz", "to": "other" })),
        ("job/start", json!({ "args": puppet, "cwd": "/", "env": { "A": "b" }, "output": { "maxBytes": 10 } })),
        ("job/run", json!({ "start": { "args": puppet }, "timeoutMs": 500 })),
        ("job/list", json!({ "all": true })),
        ("job/get", json!({ "id": "t1" })),
        ("job/read", json!({ "id": "t1", "since": 0, "max": 100, "waitMs": 10 })),
        ("job/tail", json!({ "id": "t1", "since": 0, "partialResultToken": "t" })),
        ("job/wait", json!({ "ids": ["t1"], "timeoutMs": 10 })),
        ("job/write", json!({ "id": "t1", "text": "x" })),
        ("job/keys", json!({ "id": "t1", "keys": ["C-c", "Up"] })),
        ("job/resize", json!({ "id": "t1", "rows": 10, "cols": 10 })),
        ("job/signal", json!({ "id": "t1", "signal": "INT" })),
        ("job/stop", json!({ "ids": ["t1"], "graceMs": 0 })),
        ("job/release", json!({ "id": "t1" })),
        ("shell/exec", json!({ "id": "s1", "line": "true", "timeoutMs": 10 })),
        ("initialize", json!({ "capabilities": { "window": { "workDoneProgress": true } }, "clientInfo": { "name": "fuzz" }, "workspaceFolders": [{ "uri": "file:///tmp" }], "initializationOptions": { "session": "fuzz", "keep": false, "env": { "A": "b" } } })),
        ("workspace/executeCommand", json!({ "command": "ostler.list", "arguments": [] })),
        ("workspace/executeCommand", json!({ "command": "ostler.run", "arguments": [{ "start": { "args": puppet } }], "workDoneToken": 1 })),
        ("workspace/executeCommand", json!({ "command": "ostler.tail", "arguments": ["t1"] })),
        ("workspace/executeCommand", json!({ "command": "ostler.wait", "arguments": [{ "ids": ["t1"], "timeoutMs": 10 }], "workDoneToken": "w" })),
        ("window/workDoneProgress/cancel", json!({ "token": "w" })),
        ("$/cancelRequest", json!({ "id": 1 })),
    ]
    .into_iter()
    .enumerate()
    .map(|(n, (method, params))| request(n as i64 + 1, method, params))
    .collect()
}

/// Values that nobody expects.
fn odd(chance: &mut Chance) -> Value {
    match chance.below(14) {
        0 => Value::Null,
        1 => json!(-1),
        2 => json!(u64::MAX),
        3 => json!(1e308),
        4 => json!(true),
        5 => json!(""),
        6 => json!("\0"),
        7 => json!("../../etc/passwd"),
        8 => json!("\u{202e}\u{1f468}\u{200d}\u{1f469}"),
        9 => json!("x".repeat(70_000)),
        10 => json!([]),
        11 => json!({ "": {} }),
        12 => json!(vec![0; 5_000]),
        _ => (0..200).fold(json!(1), |inner, _| json!([inner])),
    }
}

/// Puts something odd in one place of a value.
fn bend(value: &mut Value, chance: &mut Chance) {
    let deeper = chance.below(4) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let at = chance.below(map.len());
            if chance.below(6) == 0 {
                let key = map.keys().nth(at).cloned().unwrap_or_default();
                let was = map.remove(&key).unwrap_or_default();
                map.insert(format!("{key}x"), was);
            } else if let Some(inner) = map.values_mut().nth(at) {
                bend(inner, chance);
            }
        }
        Value::Array(all) if deeper && !all.is_empty() => {
            let at = chance.below(all.len());
            bend(&mut all[at], chance);
        }
        _ => *value = odd(chance),
    }
}

/// Changes some bytes: flips, cuts, doubles, inserts.
fn break_up(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = chance.below(bytes.len());
        match chance.below(5) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes.truncate(at),
            2 => bytes.extend_from_within(at..),
            3 => bytes.insert(at, chance.below(256) as u8),
            _ => {
                let piece: Vec<u8> = (0..chance.below(40))
                    .map(|_| chance.below(256) as u8)
                    .collect();
                bytes.splice(at..at, piece);
            }
        }
    }
}

/// Sends in pieces, says no more, and reads to the end: there must be one.
async fn send(mut wire: Wire, bytes: &[u8], chance: &mut Chance) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(1 + chance.below(rest.len()));
        wire.send(piece).await;
        rest = more;
    }
    wire.say_no_more().await;
    wire.rest().await;
}

/// Half of the messages in a framing that is right with a content that is not, half of them broken anywhere.
#[test]
fn no_bytes_of_one_client_harm_another() {
    in_house(async |house| {
        let (seed, mut chance) = chance();
        let desk = house.desk();
        let row = desk.ready(script("say ready , sleep")).await;
        let requests = requests();
        let key = std::fs::read_to_string(house.folders().owner_key()).expect("it is there");
        let owner = request(0, "supervisor/hello", json!({ "ownerKey": key.trim() }));
        let mut before = 0;
        let all = rounds("OSTLER_FUZZ", 600);
        for round in 0..all {
            let mut bytes = framed(&owner);
            for _ in 0..=chance.below(3) {
                let mut message = chance.pick(&requests).clone();
                if chance.below(2) == 0 {
                    bend(&mut message, &mut chance);
                }
                bytes.extend(framed(&message));
            }
            if chance.below(2) == 0 {
                break_up(&mut bytes, &mut chance);
            }
            let what = format!("OSTLER_FUZZ_SEED={seed}, round {round}");
            within(
                PATIENCE,
                &what,
                send(house.wire().await, &bytes, &mut chance),
            )
            .await;
            if round % 50 == 0 {
                let pid = house.info().await.hello.pid;
                assert_eq!(desk.get(&row.id).await.row.state, State::Running, "{what}");
                // What a first round of everything takes is not growth.
                if round <= all / 2 {
                    before = process::resident(pid);
                }
                let now = process::resident(pid);
                assert!(now < before + (64 << 20), "{before} became {now}, {what}");
            }
        }
        let hello = house.info().await.hello;
        assert_eq!(
            hello.generation, 1,
            "nothing has made the supervisor crash, seed {seed}"
        );
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}
