//! Promise: the sets `epoch` and `dsh` do under their names what `compact` does under its own, with the words and fields
//! that the agents of those harnesses know.

use ostler_tests::mcp::{Era, Outcome};
use ostler_tests::{Mcp, in_empty_house, puppet};
use regex::Regex;
use serde_json::{Value, json};

fn timeless(text: &str) -> String {
    let times = Regex::new(r"\b\d+(\.\d+s|m\d\ds|h\d\dm)").unwrap();
    times.replace_all(text, "N").into_owned()
}

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

fn last(told: &Outcome) -> String {
    timeless(told.status())
}

async fn epoch(house: &ostler_tests::House) -> Mcp {
    Mcp::legacy(house, &["--tools", "epoch"]).await
}

async fn dsh(house: &ostler_tests::House) -> Mcp {
    Mcp::legacy(house, &["--tools", "dsh"]).await
}

#[test]
fn an_epoch_command_ends_with_its_id_last_and_says_where_the_rest_is() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        let told = mcp
            .good("terminal", json!({"command": "echo a; exit 3"}))
            .await;
        assert_eq!(timeless(&told.text), "a\n[exited 3 in N; t1]");
        assert_eq!(
            (&told.job()["id"], &told.job()["code"]),
            (&json!("t1"), &json!(3))
        );
        assert_eq!(told.meta["ostler/untrusted"], true);
        let told = mcp
            .good("terminal", json!({"command": "cat", "stdin": "given"}))
            .await;
        assert_eq!(timeless(&told.text), "given\n[exited 0 in N; t2]");
        // 300 KB left the ring: there is a file.
        let told = mcp
            .good("terminal", json!({"command": "seq 1 60000"}))
            .await;
        let path = Regex::new(r"\n\[\d+ bytes left out; whole output: (/\S+)\]\n").unwrap();
        let path = path
            .captures(&told.text)
            .unwrap_or_else(|| panic!("{}", told.text))[1]
            .to_owned();
        assert_eq!(std::fs::read(path).unwrap().len(), 348_894);
        // 60 KB did not.
        let told = mcp
            .good("terminal", json!({"command": "seq 1 12000"}))
            .await;
        assert!(
            told.text
                .contains(" bytes left out; read on: task_output id=t4 since=2000]\n"),
            "{}",
            told.text
        );
        let told = mcp
            .good("terminal", json!({"command": line("flood")}))
            .await;
        assert!(
            told.text
                .contains("\n[output limit: 10485760 bytes; killed]\n"),
            "{}",
            told.text
        );
        assert!(
            last(&told).starts_with("[output limit after N; "),
            "{}",
            last(&told)
        );
        assert_eq!(told.job()["outcome"], "output_limit");
        let bound = mcp.good("terminal", json!({"command": "cd /tmp"})).await;
        assert!(
            bound
                .text
                .starts_with("[cd does not outlive this call: use workdir or shell_open]\n")
        );
    });
}

#[test]
fn an_epoch_command_stays_in_its_workspace_and_gets_no_wider_sandbox() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        for (arguments, words) in [
            (
                json!({"command": "ls", "workdir": "/etc"}),
                "cwd_refused: /etc is outside the project. Nothing was started.",
            ),
            (
                json!({"command": "ls", "justification": "x"}),
                "bad_argument: sandbox_permissions and justification go together. Nothing was started.",
            ),
            (
                json!({"command": "ls", "sandbox_permissions": "danger-full-access", "justification": "x"}),
                "bad_argument: danger-full-access is not wider than what holds here: no sandbox confines commands. Leave sandbox_permissions and justification out. Nothing was started.",
            ),
        ] {
            assert_eq!(mcp.bad("terminal", arguments).await, words);
        }
        assert_eq!(mcp.good("task_list", json!({})).await.text, "[no jobs]");
    });
}

#[test]
fn epoch_tasks_are_read_waited_for_and_stopped() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        let fifo = house.fifo("go");
        let steps = line(&format!("say up , await {fifo} , say done , exit 4"));
        let told = mcp
            .good("terminal", json!({"command": steps, "background": true}))
            .await;
        assert_eq!(
            told.text,
            "[t1 started; read it: task_output id=t1; end it: task_stop id=t1]"
        );
        let told = mcp
            .good("task_wait", json!({"id": "t1", "timeoutMs": 300}))
            .await;
        assert_eq!(
            last(&told),
            "[t1 still running N; the wait is over, the job goes on]"
        );
        let told = mcp.good("task_output", json!({"id": "t1"})).await;
        assert_eq!(timeless(&told.text), "up\n[t1 running N; since=3]");
        let none = mcp
            .good("task_output", json!({"id": "t1", "since": 3}))
            .await;
        assert_eq!(
            timeless(&none.text),
            "[no new output]\n[t1 running N; since=3]"
        );
        house.open(&fifo).await;
        let told = mcp.good("task_wait", json!({"id": "t1"})).await;
        assert_eq!(
            last(&told),
            "[t1 exited 4 in N; read it: task_output id=t1]"
        );
        let told = mcp
            .good("task_output", json!({"id": "t1", "since": 3}))
            .await;
        assert_eq!(timeless(&told.text), "done\n[t1 exited 4 in N; since=8]");
        mcp.good(
            "terminal",
            json!({"command": "sleep 60", "background": true}),
        )
        .await;
        let list = mcp.good("task_list", json!({})).await;
        assert!(list.text.ends_with("\n[2 jobs; live: t2]"), "{}", list.text);
        let told = mcp.good("task_stop", json!({"id": "t2"})).await;
        assert!(
            last(&told).starts_with("[t2 stopped after N; "),
            "{}",
            told.text
        );
        let none = mcp.bad("task_output", json!({"id": "t9"})).await;
        assert_eq!(none, "not_found: no job t9. task_list lists yours.");
    });
}

#[test]
fn an_epoch_shell_keeps_its_state_until_it_is_closed() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        let told = mcp.good("shell_open", json!({})).await;
        let status = told.status();
        assert!(
            status.starts_with("[s1 open; sh in the workspace"),
            "{}",
            told.text
        );
        let told = mcp
            .good(
                "shell_send",
                json!({"id": "s1", "input": "X=5\n", "wait": 5000}),
            )
            .await;
        assert!(
            last(&told).starts_with("[s1 at prompt; exit 0 in N; "),
            "{}",
            told.text
        );
        let told = mcp
            .good(
                "shell_send",
                json!({"id": "s1", "input": "echo $X-\n", "wait": 5000}),
            )
            .await;
        // The echo is kept here.
        assert!(told.text.contains("echo $X-\n5-\n"), "{}", told.text);
        let since = told.job()["next"].as_u64().unwrap();
        let told = mcp
            .good(
                "shell_send",
                json!({"id": "s1", "input": "echo ty", "wait": 400}),
            )
            .await;
        assert!(told.text.contains("echo ty"), "{}", told.text);
        let told = mcp
            .good(
                "shell_send",
                json!({"id": "s1", "input": "ped\n", "wait": 5000}),
            )
            .await;
        assert!(told.text.contains("typed\n"), "{}", told.text);
        let told = mcp
            .good("shell_read", json!({"id": "s1", "since": since}))
            .await;
        assert!(
            told.text.contains("typed\n") && !told.text.contains("X=5"),
            "{}",
            told.text
        );
        mcp.good(
            "shell_send",
            json!({"id": "s1", "input": "sleep 60\n", "wait": 300}),
        )
        .await;
        let told = mcp
            .good(
                "shell_send",
                json!({"id": "s1", "input": "\u{3}", "wait": 5000}),
            )
            .await;
        assert!(
            last(&told).starts_with("[s1 at prompt; exit 130 in N"),
            "{}",
            told.text
        );
        let told = mcp.good("task_wait", json!({"id": "s1"})).await;
        assert_eq!(told.text, "[s1 is a shell: it has no end to wait for]");
        let list = mcp.good("shell_list", json!({})).await;
        assert!(
            list.text.ends_with("\n[1 shell; live: s1]"),
            "{}",
            list.text
        );
        let told = mcp.good("shell_close", json!({"id": "s1"})).await;
        assert_eq!(told.text, "[s1 closed; 1 process ended]");
        let list = mcp.good("shell_list", json!({})).await;
        assert_eq!(list.text, "[no terminals]");
    });
}

#[test]
fn a_dsh_command_tells_its_streams_apart_and_its_code_last() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        let bash = |command: &str| json!({"command": command, "description": "x", "unknown": 1});
        let told = mcp
            .good("bash", bash("echo out; printf err >&2; exit 3"))
            .await;
        assert_eq!(told.text, "out\n[stderr]\nerr\n[exit code: 3]");
        let json = told.json.unwrap();
        assert_eq!(
            json,
            json!({"kind": "foreground", "stdout": "out\n", "stderr": "err", "exitCode": 3})
        );
        let told = mcp.good("bash", bash("kill -9 $$")).await;
        assert_eq!(told.text, "[signal: SIGKILL]");
        let slow = json!({"command": "echo a; sleep 60", "description": "x", "timeoutMs": 300});
        let told = mcp.good("bash", slow).await;
        assert!(
            told.text.starts_with("a\n[timed out after 300 ms]\n["),
            "{}",
            told.text
        );
        assert_eq!(told.json.unwrap()["timedOut"], true);
        let none = mcp.bad("bash", json!({"command": "ls"})).await;
        assert_eq!(
            none,
            "bad_argument: description is missing. Nothing was started."
        );
        let zero = json!({"command": "ls", "description": "x", "timeoutMs": 0});
        let none = mcp.bad("bash", zero).await;
        assert_eq!(
            none,
            "bad_argument: timeoutMs must be 1 or more. Nothing was started."
        );
        let nowhere = json!({"command": "ls", "description": "x", "workdir": "nowhere"});
        let failed = mcp.bad("bash", nowhere).await;
        assert!(
            failed.starts_with("[bash-4 spawn failed: no such folder: "),
            "{failed}"
        );
    });
}

#[test]
fn dsh_jobs_are_collected_once_by_today_s_and_by_older_names() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        let fifo = house.fifo("go");
        let steps = line(&format!("say up , await {fifo} , say done , exit 0"));
        let job = json!({"command": steps, "description": "x", "run_in_background": true});
        let told = mcp.good("bash", job).await;
        assert_eq!(
            told.text,
            "[started background job bash-1; collect it with job_output, end it with job_kill]"
        );
        assert_eq!(
            told.json.unwrap(),
            json!({"kind": "background", "jobId": "bash-1"})
        );
        let told = mcp
            .good(
                "job_output",
                json!({"job_id": "bash-1", "wait": true, "timeout_ms": 400}),
            )
            .await;
        assert_eq!(told.text, "up\n[bash-1 status: running]");
        let told = mcp.good("task_output", json!({"task_id": "t1"})).await;
        assert_eq!(told.text, "[no new output]\n[bash-1 status: running]");
        let list = mcp.good("job_list", json!({})).await;
        assert!(
            list.text.starts_with("bash-1 bash running: ")
                && list.text.ends_with("\n[1 job; live: bash-1]"),
            "{}",
            list.text
        );
        house.open(&fifo).await;
        let told = mcp
            .good("job_output", json!({"job_id": "bash-1", "wait": true}))
            .await;
        assert_eq!(told.text, "done\n[bash-1 status: completed, exit code 0]");
        let job = told.json.unwrap()["job"].clone();
        assert!(job["finishedAt"].as_u64() >= job["startedAt"].as_u64());
        let kill = json!({"job_id": "bash-1", "reason": "enough"});
        let told = mcp.good("job_kill", kill).await;
        assert_eq!(
            told.text,
            "[bash-1 had already finished: completed, exit code 0]"
        );
        let sleeper = json!({"command": "sleep 60", "description": "x", "run_in_background": true});
        mcp.good("bash", sleeper).await;
        let told = mcp
            .good(
                "task_kill",
                json!({"task_id": "bash-2", "reason": "enough"}),
            )
            .await;
        assert_eq!(told.text, "[bash-2 kill requested; status: stopping]");
        assert_eq!(told.json.unwrap()["job"]["status"], "stopping");
        let told = mcp
            .good("job_output", json!({"job_id": "bash-2", "wait": true}))
            .await;
        assert_eq!(
            told.text,
            "[no new output]\n[bash-2 status: killed, enough]"
        );
        let none = mcp.bad("job_output", json!({"job_id": "bash-9"})).await;
        assert_eq!(none, "not_found: no job bash-9. job_list lists yours.");
    });
}

#[test]
fn a_notice_of_this_set_has_its_ids_and_names() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        let fifo = house.fifo("go");
        let steps = line(&format!("await {fifo} , exit 7"));
        let job = json!({"command": steps, "description": "x", "run_in_background": true});
        mcp.good("bash", job).await;
        house.open(&fifo).await;
        // Its end is told by the first result that is made behind it.
        let told = loop {
            let told = mcp
                .good("bash", json!({"command": "true", "description": "x"}))
                .await;
            if told.text.contains("notice") {
                break told;
            }
        };
        assert!(
            timeless(&told.text).starts_with("[notice: bash-1 exited 7 in N: exec "),
            "{}",
            told.text
        );
        assert!(
            told.text.contains("; next: job_output job_id=bash-1]\n"),
            "{}",
            told.text
        );
        let json = told.json.unwrap();
        assert!(
            json["notices"][0]
                .as_str()
                .unwrap()
                .starts_with("bash-1 exited 7")
        );
    });
}

#[test]
fn dsh_terminals_say_why_they_return() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        let told = mcp
            .good("terminal_open", json!({"type": "shell", "name": "main"}))
            .await;
        assert!(
            told.text.starts_with("[started terminal pty-1 (shell)]\n"),
            "{}",
            told.text
        );
        let taken = mcp
            .bad("terminal_open", json!({"type": "shell", "name": "main"}))
            .await;
        assert!(taken.starts_with("DUPLICATE_NAME: "), "{taken}");
        let none = mcp.bad("terminal_open", json!({"type": "emacs"})).await;
        assert!(none.starts_with("NO_BACKEND: "), "{none}");
        let told = mcp
            .good(
                "terminal_send",
                json!({"sessionId": "pty-1", "text": "echo $((6*7)); stty size"}),
            )
            .await;
        assert!(told.text.contains("42\n40 160\n"), "{}", told.text);
        assert!(
            told.text
                .ends_with("\n[wait: stdin_read]\n[terminal: running]"),
            "{}",
            told.text
        );
        let json = told.json.unwrap();
        assert_eq!(
            (&json["waitReason"], &json["sessionStatus"]),
            (&json!("stdin_read"), &json!("running"))
        );
        let told = mcp
            .good("terminal_read", json!({"sessionId": "pty-1", "count": 2}))
            .await;
        assert!(
            told.status().starts_with("[lines 0 to 2 of "),
            "{}",
            told.text
        );
        let past = mcp
            .good(
                "terminal_read",
                json!({"sessionId": "pty-1", "offset": 999}),
            )
            .await;
        let json = past.json.unwrap();
        assert_eq!(
            (&json["text"], &json["lineBegin"], &json["lineEnd"]),
            (&json!(""), &json!(999), &json!(999))
        );
        let back = json!({"sessionId": "pty-1", "text": "sleep 60", "run_in_background": true});
        let told = mcp.good("terminal_send", back).await;
        assert_eq!(told.json.unwrap()["jobId"], "pty-send-1");
        let busy = mcp
            .bad("terminal_send", json!({"sessionId": "pty-1", "text": "ls"}))
            .await;
        assert!(busy.starts_with("SEND_ACTIVE: "), "{busy}");
        let told = mcp.good("job_kill", json!({"job_id": "pty-send-1"})).await;
        assert_eq!(told.text, "[pty-send-1 kill requested; status: stopping]");
        mcp.good("job_output", json!({"job_id": "pty-send-1", "wait": true}))
            .await;
        let shell = mcp
            .bad(
                "terminal_signal",
                json!({"sessionId": "pty-1", "signal": "SIGKILL"}),
            )
            .await;
        assert!(shell.starts_with("no_group: "), "{shell}");
        let list = mcp.good("terminal_list", json!({})).await;
        assert_eq!(list.text, "pty-1 (main) shell running\n[1 terminal]");
        let told = mcp
            .good("terminal_close", json!({"sessionId": "pty-1"}))
            .await;
        assert_eq!(told.text, "[pty-1 closed]");
        let none = mcp
            .bad("terminal_read", json!({"sessionId": "pty-1"}))
            .await;
        assert_eq!(
            none,
            "NO_SESSION: no terminal pty-1. terminal_list lists yours."
        );
        assert_eq!(
            mcp.good("terminal_list", json!({})).await.text,
            "[no terminals]"
        );
    });
}

#[test]
fn a_small_bound_leaves_the_ids_of_every_set() {
    in_empty_house(async |house| {
        let args = ["--tools", "dsh", "--max-result", "64"];
        let mut mcp = Mcp::legacy(house, &args).await;
        let told = mcp.good("terminal_open", json!({"type": "shell"})).await;
        assert!(
            told.text.len() <= 64 && told.text.contains("pty-1"),
            "{}",
            told.text
        );
        assert!(
            told.json_text.len() <= 64 && told.json_text.contains("pty-1"),
            "{}",
            told.json_text
        );
        let job = json!({"command": "seq 1 5000", "description": "x", "run_in_background": true});
        let told = mcp.good("bash", job).await;
        assert!(
            told.text.len() <= 64 && told.text.contains("bash-1"),
            "{}",
            told.text
        );
        let told = mcp
            .good("job_output", json!({"job_id": "bash-1", "wait": true}))
            .await;
        assert!(
            told.text.len() <= 64 && told.text.contains("bash-1"),
            "{}",
            told.text
        );
        assert!(
            told.json_text.len() <= 64 && told.json_text.contains("bash-1"),
            "{}",
            told.json_text
        );
        let args = ["--tools", "epoch", "--max-result", "64"];
        let mut mcp = Mcp::named(house, "other", &args).await;
        let told = mcp
            .good("terminal", json!({"command": "seq 1 50000"}))
            .await;
        assert!(
            told.text.len() <= 64 && told.text.contains("; t1]"),
            "{}",
            told.text
        );
        let json: Value = serde_json::from_str(&told.json_text).unwrap();
        assert_eq!(json["jobs"][0]["id"], "t1");
    });
}

/// However its result is come by: in the background it had been an end like any other.
#[test]
fn an_epoch_job_that_printed_too_much_is_marked_in_the_background_too() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        let mark = "[output limit: 10485760 bytes; killed]\n";
        for arguments in [
            json!({"command": line("flood"), "background": true}),
            json!({"command": line("flood"), "background": true, "pty": true}),
        ] {
            let begun = mcp.good("terminal", arguments).await;
            let id = begun.job()["id"].clone();
            let waited = mcp
                .good("task_wait", json!({"id": id, "timeoutMs": 30_000}))
                .await;
            assert!(waited.text.starts_with(mark), "{}", waited.text);
            let read = mcp.good("task_output", json!({"id": id})).await;
            assert!(read.text.contains(&format!("\n{mark}")), "{}", last(&read));
            assert_eq!(read.job()["outcome"], "output_limit");
        }
    });
}

/// I5: what a job printed to its end is known to who read it.
#[test]
fn what_was_read_to_its_end_needs_no_notice_in_any_set() {
    in_empty_house(async |house| {
        for set in ["compact", "epoch", "dsh"] {
            let args = ["--session", set, "--tools", set];
            let mut mcp = Mcp::legacy(house, &args).await;
            let fifo = house.fifo(set);
            let steps = line(&format!("await {fifo} , say done , exit 3"));
            let (start, arguments) = match set {
                "compact" => ("run", json!({"command": steps, "wait_s": 0})),
                "epoch" => ("terminal", json!({"command": steps, "background": true})),
                _ => {
                    let command =
                        json!({"command": steps, "description": "x", "run_in_background": true});
                    ("bash", command)
                }
            };
            mcp.good(start, arguments).await;
            house.open(&fifo).await;
            // Somebody else sees its end first.
            house.cli(&["wait", &format!("{set}/t1")]);
            let (read, arguments, list) = match set {
                "compact" => ("output", json!({"id": "t1"}), "output"),
                "epoch" => ("task_output", json!({"id": "t1"}), "task_list"),
                _ => ("job_output", json!({"job_id": "bash-1"}), "job_list"),
            };
            let told = mcp.good(read, arguments).await;
            assert!(told.text.starts_with("done\n"), "{set}: {}", told.text);
            assert!(!told.text.contains("notice"), "{set}: {}", told.text);
            // Twice: what the first of them confirmed cannot come with the second.
            for _ in 0..2 {
                let after = mcp.good(list, json!({})).await;
                assert!(!after.text.contains("notice"), "{set}: {}", after.text);
            }
        }
    });
}

/// A client that asks for more than a call may take is not refused, and told how long it was.
#[test]
fn a_wait_above_the_bound_is_cut_to_it_in_every_set() {
    in_empty_house(async |house| {
        let long = 1_000_000_000;
        for set in ["compact", "epoch", "dsh"] {
            let args = ["--tools", set, "--session", set, "--max-wait", "1"];
            let mut mcp = Mcp::legacy(house, &args).await;
            let calls = match set {
                "compact" => vec![
                    (
                        "run",
                        json!({"command": line("sleep"), "wait_s": long}),
                        "[t1 running N; next: output id=t1 since=0]",
                    ),
                    (
                        "output",
                        json!({"id": "t1", "wait_s": long}),
                        "[t1 running N; waited N; next: output id=t1 since=0]",
                    ),
                    (
                        "output",
                        json!({"id": "t1", "until": "text=never", "wait_s": long}),
                        "[t1 running N; waited N for text; next: output id=t1 since=0]",
                    ),
                ],
                "epoch" => vec![
                    (
                        "terminal",
                        json!({"command": line("sleep"), "background": true}),
                        "[t1 started; read it: task_output id=t1; end it: task_stop id=t1]",
                    ),
                    (
                        "task_wait",
                        json!({"id": "t1", "timeoutMs": long}),
                        "[t1 still running N; the wait is over, the job goes on]",
                    ),
                ],
                _ => vec![
                    (
                        "bash",
                        json!({"command": line("sleep"), "description": "x", "timeoutMs": long}),
                        "[started background job bash-1; collect it with job_output, end it with job_kill]",
                    ),
                    (
                        "job_output",
                        json!({"job_id": "bash-1", "wait": true, "timeout_ms": long}),
                        "[bash-1 status: running]",
                    ),
                ],
            };
            for (tool, arguments, status) in calls {
                let begun = std::time::Instant::now();
                let told = mcp.good(tool, arguments).await;
                // What was waited is told as the bound that it was cut to.
                let told = last(&told).replace("waited 1s", "waited N");
                assert_eq!(told, status);
                assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
            }
        }
    });
}

/// 004, `submit`.
#[test]
fn a_dsh_terminal_is_given_enter_unless_that_is_not_wanted() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        mcp.good("terminal_open", json!({"type": "shell"})).await;
        let typed = json!({"sessionId": "pty-1", "text": "echo $((6*7))", "submit": false});
        let told = mcp.good("terminal_send", typed).await;
        let json = told.json.unwrap();
        let viewport = json["viewport"].as_str().unwrap();
        assert!(viewport.contains("echo $((6*7))"), "{json}");
        assert!(!viewport.contains("42"), "{json}");
        let entered = json!({"sessionId": "pty-1", "text": ""});
        let told = mcp.good("terminal_send", entered).await;
        assert!(told.text.contains("42\n"), "{}", told.text);
        // A line end of its own is as good.
        let with_end = json!({"sessionId": "pty-1", "text": "echo $((6*8))\n", "submit": false});
        let told = mcp.good("terminal_send", with_end).await;
        assert!(told.text.contains("48\n"), "{}", told.text);
    });
}

/// 004, line marker: the range of a page and the total.
#[test]
fn the_lines_of_a_dsh_terminal_are_paged_from_the_newest_and_counted() {
    in_empty_house(async |house| {
        let mut mcp = dsh(house).await;
        mcp.good("terminal_open", json!({"type": "shell"})).await;
        let seq = json!({"sessionId": "pty-1", "text": "seq 101 130"});
        mcp.good("terminal_send", seq).await;
        let all = mcp
            .good("terminal_read", json!({"sessionId": "pty-1"}))
            .await;
        let all = all.json.unwrap();
        let total = all["totalLines"].as_u64().unwrap();
        // The line that was typed, what it printed, and the prompt.
        assert_eq!((total, &all["truncated"]), (32, &json!(false)), "{all}");
        assert_eq!(
            (&all["lineBegin"], &all["lineEnd"]),
            (&json!(0), &json!(32))
        );
        let (mut pages, mut offset) = (Vec::new(), 0);
        while offset < total {
            let ask = json!({"sessionId": "pty-1", "offset": offset, "count": 10});
            let told = mcp.good("terminal_read", ask).await;
            let json = told.json.clone().unwrap();
            let end = json["lineEnd"].as_u64().unwrap();
            let last = format!("[lines {offset} to {end} of 32 from the newest]");
            assert_eq!(told.status(), last);
            assert_eq!(
                (&json["lineBegin"], &json["totalLines"]),
                (&json!(offset), &json!(32))
            );
            assert_eq!(json["truncated"], end < total);
            pages.push(json["text"].as_str().unwrap().to_owned());
            offset = end;
        }
        assert_eq!(pages.len(), 4);
        pages.reverse();
        assert_eq!(pages.join("\n"), all["text"].as_str().unwrap());
        assert!(pages[1].starts_with("102\n103\n"), "{pages:?}");
    });
}

/// 004, `DUPLICATE_NAME`: each owner has names of its own.
#[test]
fn a_name_of_a_dsh_terminal_is_unique_for_its_owner_alone() {
    in_empty_house(async |house| {
        let main = json!({"type": "shell", "name": "main"});
        let mut one = Mcp::named(house, "one", &["--tools", "dsh"]).await;
        let mut two = Mcp::named(house, "two", &["--tools", "dsh"]).await;
        for mcp in [&mut one, &mut two] {
            let told = mcp.good("terminal_open", main.clone()).await;
            assert_eq!(told.json.unwrap()["name"], "main");
        }
        // Of two that are asked for at once one is refused as well.
        let twin = json!({"type": "shell", "name": "twin"});
        let first = one.begin_call("terminal_open", twin.clone()).await;
        let second = one.begin_call("terminal_open", twin).await;
        let both = [one.result(first).await, one.result(second).await];
        let refused: Vec<_> = both.iter().filter(|told| told.is_error).collect();
        assert_eq!(refused.len(), 1, "{both:?}");
        assert!(refused[0].text.starts_with("DUPLICATE_NAME: "), "{both:?}");
        // It is free when its terminal is closed.
        one.good("terminal_close", json!({"sessionId": "pty-1"}))
            .await;
        one.good("terminal_open", main).await;
    });
}

/// 003, `task_stop` on a shell: identical to `shell_close`.
#[test]
fn epoch_stops_a_shell_as_it_closes_it() {
    in_empty_house(async |house| {
        let mut mcp = epoch(house).await;
        let mut told = Vec::new();
        for (tool, id) in [("task_stop", "s1"), ("shell_close", "s2")] {
            mcp.good("shell_open", json!({})).await;
            let ended = mcp.good(tool, json!({"id": id})).await;
            let json = ended.json.unwrap().to_string();
            told.push((ended.text.replace(id, "S"), json.replace(id, "S")));
            // Neither leaves a record, and both say so twice.
            assert_eq!(mcp.good("task_list", json!({})).await.text, "[no jobs]");
            let again = mcp.bad(tool, json!({"id": id})).await;
            let gone = format!("gone: {id} was released. task_list lists what is kept.");
            assert_eq!(again, gone);
        }
        assert_eq!(told[0], told[1]);
        assert_eq!(told[0].0, "[S closed; 1 process ended]");
    });
}

/// What could not be started was told by its result, and then again by a notice.
#[test]
fn what_could_not_be_started_is_told_once() {
    let file = "/etc/passwd";
    let (compact, epoch) = (json!({"command": "true"}), json!({}));
    let dsh = json!({});
    for (set, tool, ask, quiet, nothing) in [
        (
            "compact",
            "run",
            json!({"command": "true", "cwd": file}),
            "run",
            &compact,
        ),
        (
            "compact",
            "run",
            json!({"command": "true", "cwd": file, "wait_s": 0}),
            "run",
            &compact,
        ),
        (
            "compact",
            "run",
            json!({"command": "true", "shell": "new"}),
            "run",
            &compact,
        ),
        (
            "epoch",
            "terminal",
            json!({"command": "true", "workdir": file}),
            "shell_list",
            &epoch,
        ),
        (
            "epoch",
            "shell_open",
            json!({"workdir": file}),
            "task_list",
            &epoch,
        ),
        (
            "dsh",
            "bash",
            json!({"command": "true", "description": "x"}),
            "terminal_list",
            &dsh,
        ),
        (
            "dsh",
            "bash",
            json!({"command": "true", "description": "x", "run_in_background": true}),
            "terminal_list",
            &dsh,
        ),
        (
            "dsh",
            "terminal_open",
            json!({"type": "shell"}),
            "job_list",
            &dsh,
        ),
    ] {
        in_empty_house(async |house| {
            // Neither `bash` nor the user's shell is there.
            let mut command = house.ostler(&["mcp", "--tools", set]);
            command
                .env("PATH", "/no/such")
                .env("SHELL", "/no/such/shell");
            let mut mcp = Mcp::of(command, Era::Legacy, "tester").await;
            let told = mcp.call(tool, ask.clone()).await;
            let after = mcp.call(quiet, nothing.clone()).await;
            let all = format!("{}\n{}", told.text, after.text);
            // A start that does not wait may answer before it is known.
            let early = usize::from(!told.is_error);
            assert!(early == 0 || tool != "terminal_open", "{all}");
            assert_eq!(
                all.matches("[notice: ").count(),
                early,
                "{set} {tool} {ask}: {all}"
            );
        });
    }
}
