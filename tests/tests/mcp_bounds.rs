//! Promise: a result is never longer than it may be, and says with what little it has which job it is about and how much
//! is left out: once, and by the right number. What it says of an end is the same whenever it is asked.

use ostler_tests::mcp::{Era, Outcome};
use ostler_tests::{House, Mcp, in_empty_house, in_house};
use regex::Regex;
use serde_json::{Value, json};

const SETS: [&str; 3] = ["compact", "epoch", "dsh"];

/// A front end of this set whose results have this bound, in a session of its own.
async fn bounded(house: &House, set: &str, bound: usize) -> Mcp {
    let bound = bound.to_string();
    let args = ["--tools", set, "--max-result", &bound];
    // By its first word a client finds its session again.
    Mcp::named(house, &format!("{set}{bound}"), &args).await
}

/// Both forms of a result keep their bound and have the id.
fn assert_names(told: &Outcome, bound: usize, id: &str) {
    for form in [&told.text, &told.json_text] {
        assert!(form.len() <= bound, "{} bytes: {form}", form.len());
        assert!(form.contains(id), "{id} is not in: {form}");
    }
    let _: Value = serde_json::from_str(&told.json_text).expect("what is left of it is JSON");
}

/// I2: an id that its asker does not get to see is a job that nobody can end.
#[test]
fn the_id_of_what_was_opened_or_started_survives_the_smallest_bound() {
    in_empty_house(async |house| {
        let label = "x".repeat(200);
        let background = format!("sleep 1000 # {label}");
        let calls = |set: &str| match set {
            "compact" => vec![
                ("run", json!({"command": "", "shell": "new"}), "s1"),
                ("run", json!({"command": background, "wait_s": 0}), "t1"),
                (
                    "run",
                    json!({"command": "sleep 1000", "wait_s": 0, "tty": true}),
                    "t2",
                ),
                (
                    "run",
                    json!({"command": "sleep 1000", "shell": "new", "wait_s": 0.1}),
                    "s2",
                ),
            ],
            "epoch" => vec![
                ("shell_open", json!({}), "s1"),
                (
                    "terminal",
                    json!({"command": background, "background": true}),
                    "t1",
                ),
            ],
            _ => vec![
                (
                    "terminal_open",
                    json!({"type": "shell", "name": "n".repeat(60)}),
                    "pty-1",
                ),
                (
                    "bash",
                    json!({"command": background, "description": label, "run_in_background": true}),
                    "bash-1",
                ),
                (
                    "terminal_send",
                    json!({"sessionId": "pty-1", "text": background, "run_in_background": true}),
                    "pty-send-1",
                ),
            ],
        };
        for set in SETS {
            let mut mcp = bounded(house, set, 64).await;
            for (tool, arguments, id) in calls(set) {
                let told = mcp.good(tool, arguments).await;
                assert_names(&told, 64, id);
            }
            // By the ids that it was told, all can be ended.
            let ends = match set {
                "compact" => vec![("stop", json!({"id": "s1,t1,t2,s2"}))],
                "epoch" => vec![
                    ("task_stop", json!({"id": "t1"})),
                    ("shell_close", json!({"id": "s1"})),
                ],
                _ => vec![
                    ("job_kill", json!({"job_id": "pty-send-1"})),
                    ("job_kill", json!({"job_id": "bash-1"})),
                    ("terminal_close", json!({"sessionId": "pty-1"})),
                ],
            };
            for (tool, arguments) in ends {
                let told = mcp.good(tool, arguments).await;
                assert!(told.text.len() <= 64, "{}", told.text);
            }
        }
    });
}

/// The numbers in the marks of what is left out.
fn cuts(text: &str) -> Vec<usize> {
    let mark = Regex::new(r"(?m)^\[(\d+) bytes (?:cut|left out)[^\n]*\]$").unwrap();
    let all = mark.captures_iter(text);
    all.map(|found| found[1].parse().unwrap()).collect()
}

/// How many bytes of what `seq` prints stand in an output, in which one line is the mark.
fn shown(text: &str) -> usize {
    let is_output = |line: &&str| line.bytes().all(|b| b.is_ascii_digit());
    let lines = text
        .split_inclusive('\n')
        .filter(|line| is_output(&line.trim_end()));
    lines.map(str::len).sum()
}

/// I3: one mark, with the number of all that is missing, however often the text was cut on its way.
#[test]
fn what_is_cut_twice_is_marked_once_and_counted_whole() {
    in_empty_house(async |house| {
        // What `seq` prints: above every share of a result, so that it is cut before its bound cuts it again.
        for set in SETS {
            let (upto, whole) = match set {
                // This set cuts at 50 KB, and marks that in another way.
                "dsh" => (9_000, 43_893),
                _ => (60_000, 348_894),
            };
            for bound in [160, 300, 1_000, 2_000, 3_000, 3_500, 4_200, 6_000] {
                let mut mcp = bounded(house, set, bound).await;
                let command = format!("seq 1 {upto}");
                let calls = match set {
                    "compact" => vec![
                        ("run", json!({"command": command})),
                        ("output", json!({"id": "t1"})),
                    ],
                    "epoch" => vec![("terminal", json!({"command": command}))],
                    _ => vec![("bash", json!({"command": command, "description": "x"}))],
                };
                for (tool, arguments) in calls {
                    let told = mcp.good(tool, arguments).await;
                    assert!(told.text.len() <= bound && told.json_text.len() <= bound);
                    let json = told.json.as_ref().unwrap();
                    let output = match set {
                        "dsh" => &json["stdout"],
                        _ => &json["jobs"][0]["output"],
                    };
                    for text in [&told.text, output.as_str().unwrap_or_default()] {
                        let (marks, shown) = (cuts(text), shown(text));
                        let what = format!("{set} {bound} {tool}: {text}");
                        // A bound may leave no room for output; then there is nothing to mark.
                        if shown == 0 {
                            continue;
                        }
                        assert_eq!(marks.len(), 1, "{what}");
                        // The line in which the cut fell stands in two parts, of which the first got an end.
                        let missing = whole - shown;
                        assert!(
                            marks[0].abs_diff(missing) <= 1,
                            "{missing} are missing in {what}"
                        );
                    }
                }
            }
        }
    });
}

/// I3 where the text has a mark of its own and a line says where all of it is: the bound adds none.
#[test]
fn a_truncated_text_of_dsh_that_is_cut_again_gets_no_second_mark() {
    in_empty_house(async |house| {
        for bound in [300, 1_000, 3_000, 4_200, 6_000] {
            let mut mcp = bounded(house, "dsh", bound).await;
            let bash = json!({"command": "seq 1 60000; seq 1 60000 >&2", "description": "x"});
            let told = mcp.good("bash", bash).await;
            assert!(told.text.len() <= bound && told.json_text.len() <= bound);
            let place = "[output truncated; full output: /";
            assert_eq!(told.text.matches(place).count(), 1, "{}", told.text);
            assert_eq!(cuts(&told.text), [0; 0], "{}", told.text);
            let json = told.json.unwrap();
            assert_eq!(json["truncated"], true);
            let stdout = json["stdout"].as_str().unwrap();
            let stderr = json["stderr"].as_str().unwrap();
            for text in [stdout, stderr] {
                assert_eq!(cuts(text), [0; 0], "{text}");
                assert!(text.matches("[...").count() <= 1, "{text}");
            }
            // The end is what is kept.
            assert!(
                told.text.contains("60000\n[output truncated"),
                "{}",
                told.text
            );
        }
    });
}

/// I4: what is wrong is told within the bound, whatever long thing it is about.
#[test]
fn errors_keep_the_bound_and_their_word() {
    in_empty_house(async |house| {
        let long = "y".repeat(20_000);
        let id = format!("t{}", "9".repeat(20_000));
        for set in SETS {
            for bound in [64, 128, 300] {
                let mut mcp = bounded(house, set, bound).await;
                let fill = match set {
                    "compact" => (
                        "run",
                        json!({"command": format!("sleep 1000 # {long}"), "wait_s": 0}),
                    ),
                    "epoch" => (
                        "terminal",
                        json!({"command": format!("sleep 1000 # {long}"), "background": true}),
                    ),
                    _ => (
                        "bash",
                        json!({"command": format!("sleep 1000 # {long}"), "description": "x", "run_in_background": true}),
                    ),
                };
                let full = (fill.0, fill.1.clone(), "limit: ");
                let calls = match set {
                    "compact" => vec![
                        ("output", json!({"id": id}), "not_found: "),
                        ("output", json!({"id": long}), "not_found: "),
                        (
                            "output",
                            json!({"id": "t1", "grep": format!("({long}")}),
                            "bad_argument: ",
                        ),
                        (
                            "run",
                            json!({"command": "true", long.as_str(): 1}),
                            "bad_argument: ",
                        ),
                        (
                            "run",
                            json!({"command": "true", "until": long}),
                            "bad_argument: ",
                        ),
                        ("input", json!({"id": "t1", "keys": long}), "no_input: "),
                        ("stop", json!({"id": long}), "not_found: "),
                        full,
                    ],
                    "epoch" => vec![
                        ("task_output", json!({"id": id}), "not_found: "),
                        (
                            "terminal",
                            json!({"command": "true", "workdir": format!("/{long}")}),
                            "cwd_refused: ",
                        ),
                        (
                            "terminal",
                            json!({"command": "true", "sandbox_permissions": long, "justification": "x"}),
                            "bad_argument: ",
                        ),
                        (
                            "shell_send",
                            json!({"id": long, "input": "x"}),
                            "not_found: ",
                        ),
                        full,
                    ],
                    _ => vec![
                        ("job_output", json!({"job_id": id}), "not_found: "),
                        ("terminal_read", json!({"sessionId": long}), "NO_SESSION: "),
                        ("terminal_open", json!({"type": long}), "NO_BACKEND: "),
                        full,
                    ],
                };
                if set == "dsh" {
                    let nowhere =
                        json!({"command": "true", "description": "x", "workdir": &long[..200]});
                    let words = mcp.bad("bash", nowhere).await;
                    assert!(words.len() <= bound, "{words}");
                    assert!(words.starts_with("[bash-1 spawn failed"), "{words}");
                }
                for _ in 0..8 {
                    mcp.good(fill.0, fill.1.clone()).await;
                }
                for (tool, arguments, word) in calls {
                    let words = mcp.bad(tool, arguments).await;
                    assert!(words.len() <= bound, "{bound} {tool}: {words}");
                    assert!(words.starts_with(word), "{tool}: {words}");
                    assert_eq!(words.lines().count(), 1, "{words}");
                }
                // What is refused before it is a call has a bound of its own.
                let answer = mcp
                    .ask("tools/call", json!({"name": long, "arguments": {}}))
                    .await;
                let words = answer["error"]["message"].as_str().expect("it is refused");
                assert!(words.starts_with("unknown tool: yyy"), "{words}");
                assert!(words.len() < 200, "{} bytes", words.len());
            }
        }
    });
}

/// I4 where a task is asked for that nobody has made.
#[test]
fn an_unknown_task_is_named_within_a_bound() {
    in_empty_house(async |house| {
        let tasks = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
        let command = house.ostler(&["mcp"]);
        let mut mcp = Mcp::with_capabilities(command, Era::Modern, "tasks", tasks).await;
        for method in ["tasks/get", "tasks/cancel"] {
            let ask = json!({"taskId": "y".repeat(20_000)});
            let answer = mcp.ask(method, ask).await;
            let words = answer["error"]["message"].as_str().expect("a refusal");
            assert!(words.starts_with("unknown task: yyy"), "{words}");
            assert!(words.len() < 100, "{} bytes", words.len());
        }
    });
}

/// I11: who asks a second time what a sub-agent has to say is told the same, in every set and whoever has asked before.
#[test]
fn what_a_sub_agent_said_at_last_is_read_twice_alike() {
    in_house(async |house| {
        let mut owner = house.wire().await;
        owner.attach(&house.folders().owner_key(), "x").await;
        let registered = owner
            .call("agent/register", json!({"label": "review"}))
            .await;
        assert_eq!(registered["result"]["row"]["id"], "a1", "{registered}");
        let mut readers = Vec::new();
        for set in SETS {
            let args = ["--session", "x", "--tools", set];
            readers.push((set, Mcp::named(house, set, &args).await));
        }
        let read = |set: &str| match set {
            "compact" => ("output", json!({"id": "a1"})),
            "epoch" => ("task_output", json!({"id": "a1"})),
            _ => ("job_output", json!({"job_id": "subagent-1"})),
        };
        // Some of it has been read while it lived.
        let said = json!({"id": "a1", "text": "looking\n"});
        owner.call("agent/append", said).await;
        for (set, mcp) in &mut readers {
            let (tool, arguments) = read(set);
            let told = mcp.good(tool, arguments).await;
            assert!(told.text.starts_with("looking\n"), "{set}: {}", told.text);
        }
        let last = json!({"id": "a1", "text": "two faults\n", "exitCode": 0});
        let finished = owner.call("agent/finish", last).await;
        assert_eq!(finished["result"]["state"], "exited", "{finished}");
        for (set, mcp) in &mut readers {
            let mut told = Vec::new();
            for _ in 0..3 {
                let (tool, arguments) = read(set);
                told.push(mcp.good(tool, arguments).await);
            }
            assert!(
                told[0].text.starts_with("looking\ntwo faults\n"),
                "{set}: {}",
                told[0].text
            );
            for later in &told[1..] {
                assert_eq!(
                    (&later.text, &later.json),
                    (&told[0].text, &told[0].json),
                    "{set}"
                );
            }
        }
        let mut pages = Vec::new();
        for _ in 0..2 {
            let page = owner
                .call("job/read", json!({"id": "a1", "since": 0}))
                .await;
            let got = owner.call("job/get", json!({"id": "a1"})).await;
            pages.push((page["result"].clone(), got["result"].clone()));
        }
        assert_eq!(pages[0], pages[1]);
        assert_eq!(pages[0].1["stdout"], "looking\ntwo faults\n");
    });
}
