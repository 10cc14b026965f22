//! Promise: an agent's jobs are its own: hidden from others, found again after a restart, kept when the supervisor is
//! replaced; and the end of each is told exactly once.

use ostler_proto::limits;
use ostler_proto::methods::OpenSession;
use ostler_tests::mcp::Era;
use ostler_tests::process::Process;
use ostler_tests::{Mcp, in_empty_house, in_house, process, puppet, script};
use serde_json::{Value, json};
use std::path::Path;

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

/// Starts a command in the background that ends when the fifo is opened.
async fn waiting(mcp: &mut Mcp, fifo: &str, code: u32) -> Value {
    let steps = line(&format!("await {fifo} , exit {code}"));
    let told = mcp
        .good("run", json!({"command": steps, "wait_s": 0}))
        .await;
    told.job()["id"].clone()
}

fn notices(told: &ostler_tests::mcp::Outcome) -> Vec<String> {
    let all = told.text.lines().filter(|l| l.starts_with("[notice: "));
    all.map(str::to_owned).collect()
}

/// Lets the job end, and waits for that as somebody else.
async fn end(house: &ostler_tests::House, fifo: &str, id: &str) {
    house.open(fifo).await;
    let said = house.cli(&["session", "ls", "--json"]);
    let table: Value = serde_json::from_str(&said.out).unwrap();
    let session = table["sessions"][0]["session"]["id"].as_str().unwrap();
    house.cli(&["wait", &format!("{session}/{id}")]);
}

#[test]
fn an_end_that_no_result_showed_is_told_in_the_next_one_and_only_there() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        waiting(&mut mcp, &fifo, 3).await;
        end(house, &fifo, "t1").await;
        // With an error as well.
        let told = mcp.call("output", json!({"id": "t9"})).await;
        assert!(told.is_error);
        let told = notices(&told);
        assert_eq!(told.len(), 1);
        assert!(
            told[0].starts_with("[notice: t1 exited 3 in ")
                && told[0].ends_with("; next: output id=t1]")
        );
        let again = mcp.good("run", json!({"command": "true"})).await;
        assert!(notices(&again).is_empty(), "{}", again.text);
        // What we stopped is none.
        let fifo = house.fifo("second");
        waiting(&mut mcp, &fifo, 1).await;
        mcp.good("stop", json!({"id": "t3"})).await;
        let after = mcp.good("run", json!({"command": "true"})).await;
        assert!(notices(&after).is_empty(), "{}", after.text);
        // Nor is what a list shows.
        let fifo = house.fifo("third");
        waiting(&mut mcp, &fifo, 1).await;
        end(house, &fifo, "t5").await;
        let list = mcp.good("output", json!({})).await;
        assert!(notices(&list).is_empty(), "{}", list.text);
        let after = mcp.good("run", json!({"command": "true"})).await;
        assert!(notices(&after).is_empty(), "{}", after.text);
    });
}

#[test]
fn a_stop_by_the_user_is_told() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::named(house, "claude-code", &[]).await;
        mcp.good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        let stopped = house.cli(&["stop", "-A"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        let told = mcp.good("run", json!({"command": "true"})).await;
        let told = notices(&told);
        assert!(
            told[0].starts_with("[notice: t1 stopped by the user after "),
            "{told:?}"
        );
        assert!(told[0].ends_with(": sleep 60]"), "{told:?}");
    });
}

#[test]
fn a_wait_that_is_cancelled_leaves_its_notice() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        waiting(&mut mcp, &fifo, 2).await;
        let wait = mcp
            .begin_call("output", json!({"id": "t1", "until": "exit"}))
            .await;
        mcp.cancel(wait).await;
        end(house, &fifo, "t1").await;
        let told = mcp.good("run", json!({"command": "true"})).await;
        assert_eq!(notices(&told).len(), 1, "{}", told.text);
    });
}

#[test]
fn a_restarted_agent_goes_on_in_its_session_and_two_at_once_never_share() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::named(house, "claude-code", &[]).await;
        mcp.good(
            "run",
            json!({"command": "echo old; exec sleep 60", "until": "text=old"}),
        )
        .await;
        mcp.good("run", json!({"command": "X=7", "shell": "new"}))
            .await;
        // Another one beside it, of the same name, in the same folder.
        let mut other = Mcp::named(house, "claude-code", &[]).await;
        assert_eq!(other.good("output", json!({})).await.text, "[no jobs]");
        let foreign = other.bad("output", json!({"id": "t1"})).await;
        assert_eq!(
            foreign,
            other
                .bad("output", json!({"id": "t77"}))
                .await
                .replace("t77", "t1")
        );
        assert_eq!(mcp.end_by(libc::SIGKILL).await, libc::SIGKILL);
        let mut next = Mcp::named(house, "claude-code", &[]).await;
        let told = next
            .good("run", json!({"command": "echo $X", "shell": "s1"}))
            .await;
        let lines: Vec<&str> = told.text.lines().collect();
        assert_eq!(lines[0], "7");
        assert!(
            lines[1].starts_with("[resumed: ") && lines[1].contains("t1 running "),
            "{}",
            told.text
        );
        assert!(
            lines[1].contains("s1 at prompt") && lines[1].contains(": echo old; exec sleep 60"),
            "{}",
            told.text
        );
        let once = next.good("output", json!({"id": "t1"})).await;
        assert!(once.text.starts_with("old\n[t1 running "), "{}", once.text);
        // Another client in the same folder has its own.
        let mut codex = Mcp::named(house, "codex-mcp-client", &[]).await;
        assert_eq!(codex.good("output", json!({})).await.text, "[no jobs]");
        let said = house.cli(&["session", "ls", "-q"]);
        assert_eq!(
            said.out
                .lines()
                .filter(|l| l.starts_with("claude-"))
                .count(),
            2,
            "{}",
            said.out
        );
        assert_eq!(
            said.out.lines().filter(|l| l.starts_with("codex-")).count(),
            1
        );
    });
}

#[test]
fn a_notice_that_was_not_written_comes_to_the_successor_and_a_confirmed_one_does_not() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let (one, two) = (house.fifo("one"), house.fifo("two"));
        waiting(&mut mcp, &one, 1).await;
        waiting(&mut mcp, &two, 2).await;
        end(house, &one, "t1").await;
        let told = mcp.good("run", json!({"command": "true"})).await;
        assert_eq!(notices(&told).len(), 1);
        // The next call confirms it.
        mcp.good("run", json!({"command": "true"})).await;
        end(house, &two, "t2").await;
        mcp.end_by(libc::SIGKILL).await;
        let mut next = Mcp::legacy(house, &[]).await;
        let told = next.good("run", json!({"command": "true"})).await;
        let told = notices(&told);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].starts_with("[notice: t2 exited 2 in "), "{told:?}");
    });
}

#[test]
fn a_signal_ends_the_front_end_and_leaves_the_jobs() {
    in_empty_house(async |house| {
        for signal in [libc::SIGINT, libc::SIGTERM] {
            let mut mcp = Mcp::legacy(house, &[]).await;
            let told = mcp
                .good(
                    "run",
                    json!({"command": line("pid , sleep"), "until": "text=pid"}),
                )
                .await;
            let pid = told
                .output()
                .lines()
                .find_map(|l| l.strip_prefix("pid "))
                .unwrap();
            let pid: u32 = pid.parse().unwrap();
            assert_eq!(mcp.end_by(signal).await, signal);
            assert!(process::lives(pid));
        }
    });
}

#[test]
fn the_end_of_the_input_ends_it_and_leaves_the_jobs() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = mcp
            .good(
                "run",
                json!({"command": line("pid , sleep"), "until": "text=pid"}),
            )
            .await;
        let pid = told
            .output()
            .lines()
            .find_map(|l| l.strip_prefix("pid "))
            .unwrap();
        let pid: u32 = pid.parse().unwrap();
        // A wait that nobody will see the end of does not keep it.
        mcp.begin_call("output", json!({"id": "t1", "until": "exit"}))
            .await;
        let began = std::time::Instant::now();
        assert_eq!(mcp.close().await, 0);
        assert!(began.elapsed() < std::time::Duration::from_secs(4));
        assert!(process::lives(pid));
    });
}

#[test]
fn a_supervisor_that_is_killed_during_a_run_is_not_noticed() {
    in_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        let mark = house.fifo("mark");
        let steps = line(&format!(
            "say begun , await {mark} , await {fifo} , say done , exit 5"
        ));
        let id = mcp.begin_call("run", json!({"command": steps})).await;
        // It runs as soon as somebody opens this.
        house.open(&mark).await;
        house.kill_supervisor().await;
        house.open(&fifo).await;
        let told = mcp.result(id).await;
        assert_eq!(told.output(), "begun\ndone\n");
        assert!(
            told.status().starts_with("[t1 exited 5 in "),
            "{}",
            told.text
        );
        let list = mcp.good("output", json!({})).await;
        assert!(list.text.ends_with("\n[1 job]"), "{}", list.text);
        // A wait and a shell as well.
        mcp.good("run", json!({"command": "Y=1", "shell": "new"}))
            .await;
        house.kill_supervisor().await;
        let told = mcp
            .good("run", json!({"command": "echo $Y", "shell": "s1"}))
            .await;
        assert_eq!(told.output(), "1\n", "{}", told.text);
    });
}

#[test]
fn a_line_in_a_shell_is_answered_over_a_killed_supervisor_and_runs_once() {
    in_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        mcp.good("run", json!({"command": "", "shell": "new"}))
            .await;
        let (mark, fifo) = (house.fifo("mark"), house.fifo("go"));
        let steps = format!(
            "echo begun; {} await {mark} , await {fifo} , exit 6",
            puppet()
        );
        let id = mcp
            .begin_call("run", json!({"command": steps, "shell": "s1"}))
            .await;
        house.open(&mark).await;
        house.kill_supervisor().await;
        house.open(&fifo).await;
        let told = mcp.result(id).await;
        assert_eq!(told.output(), "begun\n", "{}", told.text);
        assert!(
            told.status().starts_with("[s1 at prompt; exit 6 in "),
            "{}",
            told.text
        );
    });
}

#[test]
fn a_house_that_was_stopped_is_started_again_and_said_to_be_another_one() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        mcp.good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        let stopped = house.cli(&["daemon", "stop"]);
        assert_eq!(stopped.code, 0, "{}", stopped.err);
        let told = mcp.good("run", json!({"command": "echo new"})).await;
        assert!(
            told.text.starts_with(
                "new\n[the session before this one has ended: its jobs are gone]\n[t1 exited 0"
            ),
            "{}",
            told.text
        );
        let told = mcp.good("run", json!({"command": "echo new"})).await;
        assert!(told.text.starts_with("new\n[t2 exited 0"), "{}", told.text);
    });
}

/// It worked in whichever of them came first.
#[test]
fn a_session_name_that_two_have_is_refused_with_both_ids() {
    in_house(async |house| {
        let named = |id: &str| OpenSession {
            id: Some(id.into()),
            name: Some("app".into()),
            ..OpenSession::default()
        };
        for id in ["app-1", "app-2"] {
            house.desk_of(named(id)).start(script("sleep")).await;
        }
        let mut mcp = Mcp::legacy(house, &["--session", "app"]).await;
        for (tool, arguments) in [("output", json!({})), ("run", json!({"command": "true"}))] {
            let told = mcp.bad(tool, arguments).await;
            assert_eq!(
                told,
                "ambiguous: session app is not unique: app-1, app-2. Tell the user to give ostler mcp one of them."
            );
        }
        // An id is one, whatever others are named.
        let mut mcp = Mcp::legacy(house, &["--session", "app-2"]).await;
        let list = mcp.good("output", json!({})).await;
        assert!(list.text.starts_with("t1 running "), "{}", list.text);
    });
}

#[test]
fn a_named_session_is_the_one_that_people_see() {
    in_house(async |house| {
        let id = house
            .cli(&["start", "--session", "app", "--", puppet(), "sleep"])
            .out;
        assert_eq!(id, "t1\n");
        let mut mcp = Mcp::legacy(house, &["--session", "app"]).await;
        let list = mcp.good("output", json!({})).await;
        assert!(list.text.starts_with("t1 running "), "{}", list.text);
        mcp.good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        let said = house.cli(&["ls", "--session", "app", "-q"]);
        assert_eq!(said.out, "app/t1\napp/t2\n");
        // The owner key shows more than this session; its tools do not.
        let other = house.cli(&[
            "start",
            "--session",
            "other",
            "--json",
            "--",
            puppet(),
            "sleep",
        ]);
        let other: Value = serde_json::from_str(&other.out).unwrap();
        let foreign = other["processId"].as_str().unwrap();
        let told = mcp.bad("output", json!({"id": foreign})).await;
        assert_eq!(
            told,
            format!("not_found: no job {foreign}. output without id lists yours.")
        );
        let told = mcp.bad("stop", json!({"id": "other/t1"})).await;
        assert_eq!(
            told,
            "not_found: no job other/t1. output without id lists yours."
        );
    });
}

#[test]
fn who_cannot_have_a_supervisor_says_why_and_serves_on() {
    use std::os::unix::fs::PermissionsExt;
    in_empty_house(async |house| {
        let mode =
            |mode| std::fs::set_permissions(house.dir(), std::fs::Permissions::from_mode(mode));
        mode(0o777).unwrap();
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = mcp.bad("run", json!({"command": "true"})).await;
        assert!(told.starts_with("unavailable: the supervisor does not answer (the supervisor did not start: socket folder "), "{told}");
        assert!(
            told.ends_with(
                "Running jobs go on. Try again; if it stays, tell the user to run: ostler doctor"
            ),
            "{told}"
        );
        mode(0o700).unwrap();
        let told = mcp.good("run", json!({"command": "echo here"})).await;
        assert!(
            told.text.starts_with("here\n[t1 exited 0 in "),
            "{}",
            told.text
        );
    });
}

#[test]
fn a_supervisor_that_says_nothing_is_not_waited_for_without_end() {
    in_house(async |house| {
        let mut mcp = Mcp::legacy(house, &["--max-wait", "1"]).await;
        mcp.good("run", json!({"command": "true"})).await;
        let pid = house.info().await.hello.pid;
        let supervisor = process::Process::of(pid).unwrap();
        supervisor.freeze();
        let told = mcp.bad("run", json!({"command": "true"})).await;
        supervisor.signal(libc::SIGCONT);
        assert!(
            told.starts_with("unavailable: the supervisor does not answer (no answer for 31 s)"),
            "{told}"
        );
        let told = mcp.good("run", json!({"command": "echo again"})).await;
        assert!(told.text.starts_with("again\n"), "{}", told.text);
    });
}

#[test]
fn what_to_put_into_a_client_s_configuration_is_printed_and_nothing_is_started() {
    in_empty_house(async |house| {
        let said = house.cli(&[
            "mcp",
            "--print-config",
            "claude",
            "--tools",
            "epoch",
            "--max-wait",
            "120",
        ]);
        assert_eq!(
            said.out,
            "claude mcp add ostler -- ostler mcp --tools epoch --max-wait 120\n"
        );
        for client in ["codex", "gemini", "opencode", "json"] {
            let said = house.cli(&["mcp", "--print-config", client]);
            assert_eq!((said.code, said.err.as_str()), (0, ""));
            assert!(said.out.contains("ostler"), "{}", said.out);
        }
        assert_eq!(house.cli(&["mcp", "--max-wait", "301"]).code, 2);
        assert_eq!(house.cli(&["mcp", "--max-result", "63"]).code, 2);
        assert!(!house.folders().socket().exists());
    });
}

/// A run without a person ends with a summary of what it started, and nothing of it is left.
#[test]
fn a_headless_front_end_ends_its_session_and_says_what_became_of_all_jobs() {
    in_empty_house(async |house| {
        let call = |id: u32, command: &str| {
            let arguments = json!({"command": command, "wait_s": 0});
            json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "run", "arguments": arguments}})
        };
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}});
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let requests = [
            initialize,
            initialized,
            call(2, "exec puppet ignore TERM , sleep"),
            call(3, "exit 4"),
        ];
        let requests: String = requests.iter().map(|r| format!("{r}\n")).collect();
        std::fs::write(house.file("requests"), requests).expect("the folder is ours");
        let go = house.fifo("go");
        let line = format!(
            "{{ cat {}; puppet await {go}; }} | ostler mcp --headless",
            house.path("requests")
        );
        let said = std::thread::scope(|scope| {
            let said = scope.spawn(|| house.shell(&line));
            // Its input ends when one has ended.
            while !house.cli(&["ls", "-A"]).out.contains("exited 4") && !said.is_finished() {}
            house.open_if_awaited(&go);
            said.join().expect("no panic")
        });
        assert_eq!(said.code, 0, "{said:?}");
        let answers: Vec<Value> = said
            .out
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(
            answers.len(),
            3,
            "nothing else is on standard output: {said:?}"
        );
        let summary: Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
        let jobs = summary["jobs"].as_array().expect("there are jobs");
        // Whichever of the two was first.
        let is = |field: &str, value: Value| jobs.iter().any(|j| j["row"][field] == value);
        assert_eq!(jobs.len(), 2, "{summary}");
        assert!(is("exitCode", json!(4)), "{summary}");
        assert!(is("outcome", json!("stopped")), "{summary}");
        let left = house.cli(&["session", "ls", "-q"]);
        assert_eq!((left.code, left.out.as_str()), (0, ""), "{left:?}");
    });
}

/// However it is asked for its end: by its input, above, or by a signal, also while a call is under way.
#[test]
fn a_headless_front_end_that_is_ended_by_a_signal_says_what_became_of_all_jobs_too() {
    in_empty_house(async |house| {
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            let said = house.path(&format!("said-{signal}"));
            let mut command = house.client_command(Path::new("sh"));
            command.args(["-c", &format!("exec ostler mcp --headless 2>{said}")]);
            let mut mcp = Mcp::of(command, Era::Legacy, "tester").await;
            mcp.good("run", json!({"command": "exit 4"})).await;
            let server = json!({"command": "exec puppet say ready , sleep", "until": "text=ready"});
            mcp.good("run", server).await;
            mcp.begin_call("run", json!({"command": "exec puppet sleep"}))
                .await;
            assert_eq!(mcp.end_by(signal).await, -128 - signal);
            let said = std::fs::read_to_string(&said).unwrap();
            let summary: Value = serde_json::from_str(said.trim_end()).unwrap();
            let jobs = summary["jobs"].as_array().unwrap();
            let codes: Vec<_> = jobs.iter().map(|j| &j["row"]["exitCode"]).collect();
            // The one under way was asked for, and may not have begun.
            assert!(jobs.len() == 2 || jobs.len() == 3, "{summary}");
            assert!(codes.contains(&&json!(4)), "{summary}");
            let left = house.cli(&["ls", "-A", "--live", "-q"]);
            assert_eq!((left.code, left.out.as_str()), (0, ""), "{left:?}");
        }
    });
}

/// Its summary had the jobs of its last session and said nothing of the others; where the last one had ended too, or there
/// had been none, there was no summary, or an empty one as if nothing had ever run.
#[test]
fn a_headless_front_end_says_what_became_of_its_earlier_sessions() {
    in_empty_house(async |house| {
        let said = house.path("said");
        let headless = async || {
            let mut command = house.client_command(Path::new("sh"));
            command.args(["-c", &format!("exec ostler mcp --headless 2>{said}")]);
            Mcp::of(command, Era::Legacy, "tester").await
        };
        let summary = || -> Value {
            let said = std::fs::read_to_string(&said).unwrap();
            serde_json::from_str(said.lines().last().unwrap_or_default())
                .unwrap_or_else(|e| panic!("{e}: {said}"))
        };
        assert_eq!(headless().await.close().await, 0);
        assert_eq!(summary(), json!({"jobs": []}), "nothing was called");

        let mut mcp = headless().await;
        mcp.good("run", json!({"command": "true"})).await;
        assert_eq!(house.cli(&["daemon", "stop", "-q"]).code, 0);
        mcp.good("run", json!({"command": "exit 5"})).await;
        assert_eq!(mcp.close().await, 0);
        let told = summary();
        let codes = |told: &Value| -> Vec<Value> {
            let jobs = told["jobs"].as_array().unwrap().iter();
            jobs.map(|j| j["row"]["exitCode"].clone()).collect()
        };
        assert_eq!(codes(&told), [5], "{told}");
        let earlier = told["earlier"].as_array().unwrap();
        assert_eq!(earlier.len(), 1, "{told}");
        let words = earlier[0].as_str().unwrap();
        assert!(
            words.starts_with("tester-") && words.ends_with(": its jobs are gone"),
            "{told}"
        );

        // Adopted meanwhile, and nothing was called since.
        let mut mcp = headless().await;
        mcp.good("run", json!({"command": "true"})).await;
        let ours = house.cli(&["session", "ls", "-q"]).out;
        house.cli(&["session", "open", "other"]);
        let adopted = house.cli(&["session", "adopt", ours.trim(), "--into", "other"]);
        assert_eq!(adopted.code, 0, "{adopted:?}");
        assert_eq!(mcp.close().await, 0);
        let words = format!("{}: its jobs are those of session other", ours.trim());
        assert_eq!(summary(), json!({"jobs": [], "earlier": [words]}));

        // Killed as a whole: nothing of it may outlive an agent that said that nothing is to.
        let mut mcp = headless().await;
        let job = json!({"command": "exec puppet say ready , sleep", "until": "text=ready"});
        mcp.good("run", job).await;
        assert!(!house.members().is_empty());
        house.kill_both().await;
        assert_eq!(mcp.close().await, 0);
        assert_eq!(house.members(), Vec::<u32>::new());
        let told = summary();
        let (jobs, earlier) = (&told["jobs"], told["earlier"].as_array().unwrap());
        assert_eq!((jobs, earlier.len()), (&json!([]), 1), "{told}");
    });
}

/// It waited for as long as that took; whoever had asked for its end killed it then, and heard nothing.
#[test]
fn a_headless_front_end_does_not_wait_for_ever_for_a_supervisor_that_is_stopped() {
    in_empty_house(async |house| {
        let said = house.path("said");
        let mut command = house.client_command(Path::new("sh"));
        command.args(["-c", &format!("exec ostler mcp --headless 2>{said}")]);
        let mut mcp = Mcp::of(command, Era::Legacy, "tester").await;
        mcp.good("run", json!({"command": "true"})).await;
        let hello = house.info().await.hello;
        let supervisor = Process::of(hello.pid).expect("it has just answered");
        supervisor.signal(libc::SIGSTOP);
        let code = mcp.end_by(libc::SIGTERM).await;
        supervisor.signal(libc::SIGCONT);
        let told = std::fs::read_to_string(&said).unwrap();
        assert_eq!(code, -125, "{told}");
        let words = format!(
            "error: what became of the jobs is not known: no answer for {} s\nhint: ",
            limits::mcp::CLOSING / 1_000
        );
        assert!(told.contains(&words), "{told}");
    });
}

/// Every later call said `no job .` or where the jobs are now, for good.
#[test]
fn an_agent_whose_session_was_closed_or_adopted_goes_on_in_another() {
    in_empty_house(async |house| {
        house.cli(&["session", "open", "other"]);
        for (args, tool) in [
            (&[][..], "run"),
            (&["--session", "x"], "run"),
            (&["--tools", "epoch"], "terminal"),
            (&["--tools", "dsh"], "bash"),
        ] {
            for ends in ["close", "adopt"] {
                let mut mcp = Mcp::named(house, "brk", args).await;
                let mut ask = json!({"command": "true"});
                if tool == "bash" {
                    ask["description"] = "x".into();
                }
                mcp.call(tool, ask.clone()).await;
                let said = house.cli(&["session", "ls", "-q"]);
                let ours = said.out.lines().find(|id| *id != "other");
                let ours = ours.unwrap_or_else(|| panic!("{said:?}")).to_owned();
                let end: &[&str] = match ends {
                    "close" => &["session", "close", &ours],
                    _ => &["session", "adopt", &ours, "--into", "other"],
                };
                assert_eq!(house.cli(end).code, 0, "{args:?} {ends}");
                let told = mcp.call(tool, ask.clone()).await;
                assert!(told.text.contains("Try again"), "{args:?} {ends}: {told:?}");
                let told = mcp.call(tool, ask).await;
                assert!(!told.is_error, "{args:?} {ends}: {told:?}");
                let jobs = match ends {
                    "close" => "its jobs are gone",
                    _ => "its jobs are those of session other",
                };
                let words = format!("[the session before this one has ended: {jobs}]");
                assert!(told.text.contains(&words), "{args:?} {ends}: {told:?}");
                mcp.close().await;
                house.cli(&["session", "close", &ours]);
                let rest = house.cli(&["session", "ls", "-q"]).out;
                for id in rest.lines().filter(|id| *id != "other") {
                    house.cli(&["session", "close", id]);
                }
            }
        }
    });
}

/// What it started belongs to the session that delegated, and the receipt says so.
#[test]
fn the_receipt_of_a_stopped_sub_agent_names_the_commands_that_go_on() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &["--session", "x"]).await;
        mcp.good("run", json!({"command": "true"})).await;
        let go = house.path("up");
        let agent = format!("ostler start -- puppet sleep; echo up >{go}; exec puppet sleep");
        let said = house.shell(&format!("ostler start --session x --agent -c '{agent}'"));
        assert_eq!((said.code, said.out.as_str()), (0, "a1\n"), "{said:?}");
        house.desk().printed("a1", "^t1$").await;
        let list = mcp.good("output", json!({})).await;
        assert!(list.text.contains("a1 running "), "{}", list.text);
        let stopped = mcp.good("stop", json!({"id": "a1"})).await;
        let status = stopped.status();
        assert!(status.starts_with("[a1 stopped after "), "{status}");
        assert!(status.ends_with("; its commands go on: t2]"), "{status}");
        let list = mcp.good("output", json!({})).await;
        assert!(list.text.contains("t2 running "), "{}", list.text);
    });
}
