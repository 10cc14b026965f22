//! Promise: no client, slow, vanished, confused or hostile, delays a child, another client or a stop.

use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use ostler_proto::job::{Outcome, State};
use ostler_proto::limits;
use ostler_proto::methods::{JobStart, Nothing, Start, SupervisorInfo};
use ostler_tests::wire::{framed, request};
use ostler_tests::{
    Desk, House, PATIENCE, Wire, in_empty_house, in_house, pattern, process, puppet, script, within,
};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

async fn attached(house: &House) -> Wire {
    let mut wire = house.wire().await;
    wire.attach(&house.folders().owner_key(), "x").await;
    wire
}

/// Others are served as if nothing were.
async fn assert_served(desk: &Desk) {
    let begun = Instant::now();
    let row = desk.run(script("say fine")).await;
    assert_eq!(row.stdout.as_deref(), Some("fine\n"));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

/// Waits until only this desk is connected.
async fn alone(desk: &Desk) {
    let gone = async { while desk.must::<SupervisorInfo>(Nothing {}).await.connections > 1 {} };
    within(PATIENCE, "the end of every other connection", gone).await;
}

/// 061, 065, B30: a follower that never reads holds up neither the writer nor others, and costs no memory.
#[test]
fn a_client_that_never_reads_costs_nobody_anything() {
    in_house(async |house| {
        let desk = house.desk();
        let mut sleepers = Vec::new();
        let fifo = house.fifo("go");
        let row = desk
            .start(script(&format!("await {fifo} , out 67108864 , exit 0")))
            .await;
        for _ in 0..4 {
            let mut wire = attached(house).await;
            let tail =
                json!({ "id": row.id, "since": 0, "follow": true, "partialResultToken": "t" });
            wire.ask("job/tail", tail).await;
            sleepers.push(wire);
        }
        let pid = house.info().await.hello.pid;
        let before = process::resident(pid);
        house.open(&fifo).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!((ended.exit_code, ended.output.end), (Some(0), 64 << 20));
        let grown = process::resident(pid).saturating_sub(before);
        assert!(grown < 16 << 20, "grew by {grown} bytes");
        assert_served(&desk).await;
        // One of them wakes up and still gets all, or is told what is missing.
        let mut late = sleepers.pop().unwrap();
        let (mut next, mut lost) = (0, 0);
        while next < 64 << 20 {
            let message = late.read().await.expect("the connection lives");
            let page = &message["params"]["value"]["page"];
            if page.is_object() {
                let from = page["from"].as_u64().unwrap();
                lost += page["lost"].as_u64().unwrap();
                assert_eq!(
                    from,
                    next + page["lost"].as_u64().unwrap(),
                    "a gap that is not told"
                );
                let text = page["text"].as_str().unwrap();
                assert_eq!(pattern::first_difference(from, text.as_bytes()), None);
                next = page["next"].as_u64().unwrap();
            }
        }
        assert_eq!(lost, ended.output.lost);
    });
}

/// 062: a slow reader's gaps and pages together are the whole.
#[test]
fn every_gap_of_a_slow_reader_is_told() {
    in_house(async |house| {
        let desk = house.desk();
        let start = Start {
            output: ostler_proto::methods::OutputPolicy {
                spill: Some(false),
                ..Default::default()
            },
            ..script("paced 160 65536 1 , exit 0")
        };
        let row = desk.start(start).await;
        let mut wire = attached(house).await;
        let tail = json!({ "id": row.id, "since": 0, "follow": true, "partialResultToken": 5 });
        let id = wire.ask("job/tail", tail).await;
        desk.wait(&row.id).await;
        let (mut next, mut lost, mut got) = (0, 0, 0);
        loop {
            let message = wire.read().await.expect("the connection lives");
            if message["id"] == id {
                assert_eq!(message["result"]["next"], next);
                break;
            }
            let page = &message["params"]["value"]["page"];
            assert_eq!(message["params"]["token"], 5, "{message}");
            let gap = page["lost"].as_u64().unwrap();
            let from = page["from"].as_u64().unwrap();
            assert_eq!(from, next + gap);
            let text = page["text"].as_str().unwrap();
            assert_eq!(pattern::first_difference(from, text.as_bytes()), None);
            lost += gap;
            got += text.len() as u64;
            next = page["next"].as_u64().unwrap();
        }
        assert_eq!((got + lost, next), (160 * 65536, 160 * 65536));
    });
}

/// 064: half a header, half a body, nothing at all.
#[test]
fn a_client_that_stalls_in_a_message_blocks_nobody() {
    in_house(async |house| {
        let desk = house.desk();
        let mut stalled = Vec::new();
        for bytes in [
            "",
            "Content-Le",
            "Content-Length: 50\r\n\r\n{\"jsonrpc\"",
            "{\"jsonrpc\":\"2.0\",",
            "\r\n",
        ] {
            let mut wire = house.wire().await;
            wire.send(bytes.as_bytes()).await;
            stalled.push(wire);
        }
        assert_served(&desk).await;
        drop(stalled);
        alone(&desk).await;
    });
}

/// Vanishing in each request, at once after the question and before any answer.
#[test]
fn a_client_that_vanishes_in_any_request_leaves_nothing_behind() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.ready(script("out 32 , say ready , sleep")).await;
        let id = &row.id;
        let pid = house.info().await.hello.pid;
        let descriptors = process::descriptors(pid);
        let questions = [
            ("supervisor/info", json!({})),
            ("session/list", json!({})),
            ("session/open", json!({ "id": "other" })),
            ("job/list", json!({ "all": true })),
            ("job/get", json!({ "id": id })),
            (
                "job/read",
                json!({ "id": id, "since": 200, "waitMs": 60_000 }),
            ),
            (
                "job/tail",
                json!({ "id": id, "follow": true, "partialResultToken": 1 }),
            ),
            ("job/wait", json!({ "ids": [id] })),
            (
                "job/run",
                json!({ "start": { "args": [puppet(), "sleep"], "graceMs": 100 } }),
            ),
            (
                "job/run",
                json!({ "start": { "args": [puppet(), "flood"] }, "partialResultToken": 1 }),
            ),
            ("job/start", json!({ "args": [puppet(), "exit", "0"] })),
        ];
        for (method, params) in questions {
            for _ in 0..3 {
                let mut wire = attached(house).await;
                wire.ask(method, params.clone()).await;
            }
        }
        alone(&desk).await;
        // A start's job depends on its session; a run's tree ends with its request.
        let settled = async {
            loop {
                let rows = desk.list().await;
                let live = rows.iter().filter(|r| r.state != State::Exited);
                if live.count() == 1 {
                    return rows;
                }
            }
        };
        let rows = within(PATIENCE, "the end of every run", settled).await;
        for run in rows
            .iter()
            .filter(|r| r.args.get(1).is_some_and(|a| a == "flood"))
        {
            assert_eq!(run.outcome, Some(Outcome::Stopped), "{run:?}");
        }
        assert_eq!(desk.get(id).await.row.state, State::Running);
        // Descriptors of ended jobs and of gone clients are given back.
        let given_back = async {
            while process::descriptors(pid) > descriptors + 2 {
                assert_served(&desk).await
            }
        };
        within(PATIENCE, "the descriptors", given_back).await;
    });
}

/// Both framings; a lower-case header, unknown headers, white space, any split.
#[test]
fn any_framing_and_any_split_is_understood() {
    in_house(async |house| {
        let info = request(1, "supervisor/info", json!({}));
        let body = info.to_string();
        let n = body.len();
        let forms = [
            format!("content-length: {n}\r\n\r\n{body}"),
            format!(
                "CONTENT-LENGTH:{n}\r\nContent-Type: application/vscode-jsonrpc; charset=utf-8\r\n\r\n{body}"
            ),
            format!("X-Other: 1\r\nContent-Length:   {n}  \r\n\r\n{body}"),
            format!("{body}\n"),
            format!("  \n{body}\r\n"),
        ];
        for form in &forms {
            let mut wire = house.wire().await;
            wire.send(form.as_bytes()).await;
            assert!(wire.answer(1).await["result"]["pid"].is_number(), "{form}");
        }
        // 049: lengths are bytes; two requests in one write; one request in many.
        let mut wire = attached(house).await;
        let start = |id| {
            let env = json!({ "日本": "語é" });
            request(
                id,
                "job/run",
                json!({ "start": { "args": [puppet(), "say", "日本語"], "env": env } }),
            )
        };
        let two = [framed(&start(70)), framed(&start(71))].concat();
        wire.send(&two).await;
        let (mut first, mut second) = (false, false);
        while !(first && second) {
            let message = wire.read().await.expect("the connection lives");
            first |= message["id"] == 70;
            second |= message["id"] == 71;
            assert_eq!(message["result"]["stdout"], "日本語\n", "{message}");
        }
        let bytes = framed(&start(72));
        for piece in bytes.chunks(bytes.len().div_ceil(40)) {
            wire.send(piece).await;
            tokio::task::yield_now().await;
        }
        assert_eq!(wire.answer(72).await["result"]["stdout"], "日本語\n");
    });
}

/// White space before the first message is no message, in either framing.
#[test]
fn blank_lines_before_the_first_header_are_no_message() {
    in_house(async |house| {
        let body = request(1, "supervisor/info", json!({})).to_string();
        let mut wire = house.wire().await;
        wire.send(format!("\r\n\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
            .await;
        assert!(wire.answer(1).await["result"]["pid"].is_number());
    });
}

/// What is no message is refused, said, and the connection ends; others do not notice.
#[test]
fn garbage_ends_its_own_connection_with_words() {
    in_house(async |house| {
        let desk = house.desk();
        let huge = format!("Content-Length: {}\r\n\r\n", limits::MESSAGE + 1);
        let long_header = "X: y\r\n".repeat(limits::HEADER / 6 + 10);
        let negative = "Content-Length: -5\r\n\r\n{}";
        for bytes in [
            huge.as_str(),
            long_header.as_str(),
            negative,
            "GET / HTTP/1.1\r\n\r\n",
            "Content-Length: x\r\n\r\n",
        ] {
            let mut wire = house.wire().await;
            wire.send(bytes.as_bytes()).await;
            let said = wire.rest().await;
            let code = said.first().map(|m| m["error"]["code"].clone());
            assert!(
                matches!(code.as_ref().and_then(Value::as_i64), Some(-32700 | -32600)),
                "{bytes:.40}: {said:?}"
            );
        }
        let mut noise = house.wire().await;
        noise.send(&[0xff; 64 * 1024]).await;
        noise.rest().await;
        assert_served(&desk).await;
        alone(&desk).await;
    });
}

/// Wrong content in a right frame is answered, and the connection goes on.
#[test]
fn a_wrong_message_is_refused_and_the_next_one_is_served() {
    in_house(async |house| {
        let mut wire = attached(house).await;
        let cases = [
            (
                json!({ "jsonrpc": "2.0", "id": 500, "method": "no/such" }),
                -32601,
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 500, "method": "job/get", "params": {} }),
                -32602,
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 500, "method": "job/get", "params": { "id": 7 } }),
                -32602,
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 500, "method": "job/get", "params": { "id": "t1", "idd": 1 } }),
                -32602,
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 500, "method": "job/get", "params": [1] }),
                -32602,
            ),
        ];
        for (message, code) in cases {
            wire.send(&framed(&message)).await;
            let error = wire.answer(500).await["error"].take();
            assert_eq!(error["code"], code, "{message}");
            assert!(error["data"]["kind"].is_string(), "{error}");
        }
        wire.send(b"Content-Length: 5\r\n\r\n{bad}").await;
        let said = wire.read().await.expect("an answer");
        assert_eq!(
            (&said["error"]["code"], &said["id"]),
            (&json!(-32700), &Value::Null),
            "{said}"
        );
        wire.send(&framed(
            &json!({ "jsonrpc": "2.0", "method": "no/such/notification" }),
        ))
        .await;
        assert!(wire.call("supervisor/info", json!({})).await["result"].is_object());
    });
}

/// Waits until the other side has read all that was sent or has closed; true when it has nothing to say to it.
async fn is_taken(wire: &Wire) -> bool {
    let fd = wire.socket.as_raw_fd();
    let mut unread: libc::c_int = 1;
    while unread > 0 {
        tokio::task::yield_now().await;
        // SAFETY: the descriptor is open, the place for the number is alive for the call.
        let asked = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut unread) };
        assert_eq!(asked, 0, "{}", std::io::Error::last_os_error());
    }
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one pollfd that is alive for the call.
    unsafe { libc::poll(&raw mut poll, 1, 0) == 0 }
}

/// Each connection had its bound, and two thousand of them had none.
#[test]
fn half_messages_of_many_clients_have_a_bound_together() {
    in_empty_house(async |house| {
        let config = "[connection]\nunfinished = \"8 MiB\"\n";
        std::fs::write(&house.folders().config, config).expect("the folder is ours");
        house.start();
        let desk = house.desk();
        let half = format!("Content-Length: {}\r\n\r\n", 30 << 20) + &" ".repeat(3 << 20);
        let (mut held, mut refused) = (Vec::new(), 0);
        for _ in 0..8 {
            let mut wire = house.wire().await;
            wire.send(half.as_bytes()).await;
            if is_taken(&wire).await {
                held.push(wire);
            } else {
                let error = wire.read().await.expect("words before the end")["error"].take();
                assert_eq!(error["data"]["kind"], "limit", "{error}");
                assert_eq!(error["data"]["what"], "unfinished");
                assert!(wire.read().await.is_none());
                refused += 1;
            }
            assert_served(&desk).await;
        }
        assert!(refused >= 5 && !held.is_empty(), "{refused} refused");
        drop(held);
        // Their room is free again.
        let mut wire = attached(house).await;
        let large = "x".repeat(5 << 20);
        let answer = wire.call("job/get", json!({ "id": large })).await;
        assert_eq!(
            answer["error"]["data"]["kind"], "not_found",
            "{answer:.200}"
        );
    });
}

/// Batches are refused, in either framing, and nothing of them is done.
#[test]
fn a_batch_is_refused_whole() {
    in_house(async |house| {
        let desk = house.desk();
        let batch = json!([
            request(1, "supervisor/info", json!({})),
            request(2, "supervisor/stop", json!({}))
        ]);
        for bytes in [framed(&batch), format!("{batch}\n").into_bytes()] {
            let mut wire = house.wire().await;
            wire.send(&bytes).await;
            let said = wire.read().await.expect("a refusal");
            assert_eq!(said["error"]["code"], -32600, "{said}");
            assert_eq!(said["id"], Value::Null);
        }
        assert_served(&desk).await;
    });
}

/// The router's own answer had no kind, and no words.
#[test]
fn an_id_that_is_pending_already_is_refused_with_its_reason() {
    in_house(async |house| {
        let mut wire = attached(house).await;
        let row = house.desk().start(script("sleep")).await;
        let wait = |id: &str| framed(&request(500, "job/wait", json!({ "ids": [id] })));
        wire.send(&wait(&row.process_id)).await;
        wire.send(&wait(&row.process_id)).await;
        let error = wire.answer(500).await["error"].take();
        assert_eq!(error["data"]["kind"], "invalid_request", "{error}");
        assert_eq!(error["message"], "another request with this id is pending");
        wire.send(&framed(
            &json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": 500 } }),
        ))
        .await;
        let error = wire.answer(500).await["error"].take();
        assert_eq!(error["data"]["kind"], "cancelled", "{error}");
    });
}

/// It spoke of an `untagged enum Id` and a `struct Request`.
#[test]
fn what_is_no_request_is_refused_in_words_of_json() {
    in_house(async |house| {
        let mut wire = attached(house).await;
        for (message, id, why) in [
            (json!(7), Value::Null, "it must be an object"),
            (
                json!({ "id": 1, "method": "x" }),
                json!(1),
                "`jsonrpc` must be \"2.0\"",
            ),
            (
                json!({ "jsonrpc": 2.0, "id": "a", "method": "x" }),
                json!("a"),
                "`jsonrpc` must be \"2.0\"",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 1 }),
                json!(1),
                "`method` must be a text",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 1, "method": {} }),
                json!(1),
                "`method` must be a text",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": [1], "method": "x" }),
                Value::Null,
                "`id` must be a text or a whole number",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 1.5, "method": "x" }),
                Value::Null,
                "`id` must be a text or a whole number",
            ),
            (
                json!({ "jsonrpc": "2.0", "id": 1, "method": "job/list", "params": 3 }),
                json!(1),
                "`params` must be an object",
            ),
        ] {
            wire.send(&framed(&message)).await;
            let said = wire.read().await.expect("an answer");
            assert_eq!(said["id"], id, "{message}");
            assert_eq!(said["error"]["data"]["kind"], "invalid_request", "{said}");
            let words = format!("the message is no request: {why}");
            assert_eq!(said["error"]["message"], words, "{message}");
        }
    });
}

/// Text ids.
#[test]
fn ids_may_be_texts_and_come_back_as_they_were() {
    in_house(async |house| {
        let mut wire = attached(house).await;
        let odd = "日本 \" \\ \u{1F600}";
        wire.send(&framed(
            &json!({ "jsonrpc": "2.0", "id": odd, "method": "supervisor/info" }),
        ))
        .await;
        let answer = wire.read().await.expect("an answer");
        assert_eq!(answer["id"], odd);
        assert!(answer["result"]["pid"].is_number(), "{answer}");
    });
}

/// Hundreds of requests on one connection that asks and asks and does not read.
#[test]
fn a_client_that_asks_and_never_reads_is_bounded() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.run(script("out 1048576")).await.row;
        let pid = house.info().await.hello.pid;
        let before = process::resident(pid);
        let mut greedy = attached(house).await;
        let mut sent = 0;
        let flood = async {
            // 90 answers of 1.4 MiB each: above the bound on answers that wait.
            for n in 0..90 {
                let read =
                    json!({ "id": row.id, "since": 0, "max": limits::PAGE_MAX, "raw": true });
                greedy
                    .send(&framed(&request(1000 + n, "job/read", read)))
                    .await;
                sent += 1;
            }
        };
        within(PATIENCE, "the requests", flood).await;
        assert_served(&desk).await;
        let grown = process::resident(pid).saturating_sub(before);
        assert!(grown < 100 << 20, "grew by {grown} bytes");
        drop(greedy);
        alone(&desk).await;
        assert_eq!(sent, 90);
    });
}

/// What was kept for clients that never read goes back to the system when they leave.
#[test]
fn memory_of_answers_that_nobody_read_is_given_back() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.run(script("out 1048576")).await.row;
        let pid = house.info().await.hello.pid;
        let ask = json!({ "id": row.id, "since": 0, "max": limits::PAGE_MAX, "raw": true });
        let read = framed(&request(7, "job/read", ask));
        // The first answer makes what is made once.
        let mut first = attached(house).await;
        first.send(&read).await;
        first.answer(7).await;
        drop(first);
        alone(&desk).await;
        let before = process::resident(pid);
        // Each of them keeps one answer of 1.4 MiB at least.
        let mut greedy = Vec::new();
        for _ in 0..20 {
            let mut wire = attached(house).await;
            wire.send(&read.repeat(8)).await;
            greedy.push(wire);
        }
        let kept = async {
            while process::resident(pid) < before + (20 << 20) {
                assert_served(&desk).await
            }
        };
        within(PATIENCE, "answers that wait", kept).await;
        let most = process::resident(pid);
        drop(greedy);
        alone(&desk).await;
        let given_back = async {
            while process::resident(pid) > before + (8 << 20) {
                assert_served(&desk).await
            }
        };
        let told = format!("the fall of {most} to {before} bytes and some");
        within(PATIENCE, &told, given_back).await;
        eprintln!(
            "{before} bytes before, {most} with answers that wait, {} after",
            process::resident(pid)
        );
    });
}

/// A client that ends its sending side still gets its answers.
#[test]
fn a_half_closed_connection_gets_its_answers() {
    in_house(async |house| {
        let mut wire = attached(house).await;
        let run = json!({ "start": { "args": [puppet(), "nap", "100", ",", "say", "late"] } });
        let id = wire.ask("job/run", run).await;
        wire.say_no_more().await;
        assert_eq!(wire.answer(id).await["result"]["stdout"], "late\n");
        assert!(wire.rest().await.is_empty());
    });
}

/// `shutdown` and `exit` end this connection and nothing else.
#[test]
fn an_editor_that_says_exit_ends_its_own_connection() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let mut wire = house.wire().await;
        let init = wire
            .call(
                "initialize",
                json!({ "processId": null, "rootUri": null, "capabilities": {} }),
            )
            .await;
        assert!(init["result"]["capabilities"].is_object(), "{init}");
        wire.send(&framed(
            &json!({ "jsonrpc": "2.0", "method": "initialized", "params": {} }),
        ))
        .await;
        assert!(wire.call("supervisor/info", json!({})).await["result"].is_object());
        assert_eq!(
            wire.call("shutdown", Value::Null).await["result"],
            Value::Null
        );
        wire.send(&framed(&json!({ "jsonrpc": "2.0", "method": "exit" })))
            .await;
        assert!(wire.rest().await.is_empty());
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}

/// Many clients at once, each with its own cursor on one job.
#[test]
fn a_hundred_followers_of_one_job_all_get_it_whole() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk
            .start(script(&format!("await {fifo} , out 1000000 , exit 0")))
            .await;
        let mut followers = Vec::new();
        for _ in 0..100 {
            let mut wire = attached(house).await;
            let tail =
                json!({ "id": row.id, "since": 0, "follow": true, "partialResultToken": "t" });
            let id = wire.ask("job/tail", tail).await;
            followers.push((wire, id));
        }
        house.open(&fifo).await;
        for (mut wire, id) in followers {
            let mut next = 0;
            loop {
                let message = wire.read().await.expect("the connection lives");
                if message["id"] == id {
                    break;
                }
                let page = &message["params"]["value"]["page"];
                assert_eq!(
                    (page["from"].as_u64(), page["lost"].as_u64()),
                    (Some(next), Some(0))
                );
                assert_eq!(
                    pattern::first_difference(next, page["text"].as_str().unwrap().as_bytes()),
                    None
                );
                next = page["next"].as_u64().unwrap();
            }
            assert_eq!(next, 1_000_000);
        }
    });
}

/// A connection that only reads: the supervisor says nothing unasked.
#[test]
fn nothing_is_said_to_a_client_that_has_not_asked() {
    in_house(async |house| {
        let desk = house.desk();
        let mut silent = attached(house).await;
        desk.run(script("say x")).await;
        let mut byte = [0; 1];
        let read = tokio::time::timeout(Duration::from_millis(200), silent.socket.read(&mut byte));
        assert!(read.await.is_err(), "something was said");
        let refused = desk.refused::<JobStart>(Start::default()).await;
        assert_eq!(refused.data["field"], "args");
    });
}

/// One that never says a word holds a descriptor all the same.
#[test]
fn silent_connections_count_against_the_bound() {
    in_empty_house(async |house| {
        std::fs::write(&house.folders().config, "[connection]\nconnections = 5\n").unwrap();
        house.start();
        let mut silent = Vec::new();
        for _ in 0..12 {
            silent.push(house.wire().await);
        }
        // Those beyond are closed at once, the others stay.
        let mut closed = 0;
        for wire in &mut silent[5..] {
            closed += usize::from(wire.read().await.is_none());
        }
        assert!(closed >= 6, "{closed} of 7");
        drop(silent);
        within(PATIENCE, "a place", async {
            loop {
                let mut wire = house.wire().await;
                wire.send(&framed(&request(1, "supervisor/info", json!({}))))
                    .await;
                if wire.read().await.is_some() {
                    break;
                }
            }
        })
        .await;
    });
}
