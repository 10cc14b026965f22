//! Promise: the walks at the command line, word for word; times, pids and folders are redacted.

use ostler_tests::{House, in_empty_house, puppet, redacted};

/// Code, standard output and standard error of one command, redacted.
fn told(house: &House, args: &[&str]) -> (i32, String, String) {
    let said = house.cli(args);
    (said.code, redacted(&said.out), redacted(&said.err))
}

fn is(told: &(i32, String, String), code: i32, out: &str, err: &str) {
    assert_eq!((told.0, told.1.as_str(), told.2.as_str()), (code, out, err));
}

/// Walk 1.
#[test]
fn a_dev_server_is_started_and_its_port_awaited() {
    in_empty_house(async |house| {
        is(
            &told(
                house,
                &[
                    "start",
                    "--name",
                    "web",
                    "--",
                    puppet(),
                    "listen",
                    "0",
                    ",",
                    "sleep",
                ],
            ),
            0,
            "t1\n",
            "",
        );
        let text = house.shell(
            "ostler wait web --for text='port [0-9]+' --timeout 20s && ostler read web --since 0",
        );
        let port = text
            .out
            .lines()
            .last()
            .unwrap()
            .trim_start_matches("port ")
            .to_owned();
        let (code, out, err) = told(
            house,
            &[
                "wait",
                "web",
                "--for",
                &format!("port={port}"),
                "--timeout",
                "30s",
            ],
        );
        assert_eq!((code, out.as_str()), (0, ""));
        assert_eq!(
            err,
            format!("t1 (web) listens on {port} after N s: puppet, pid P\n")
        );

        let (code, out, err) = told(
            house,
            &["wait", "web", "--for", "port=1", "--timeout", "200ms"],
        );
        assert_eq!((code, out.as_str()), (124, ""));
        assert_eq!(
            err,
            format!("timed out after 200 ms; t1 still runs, listening on {port}\n")
        );

        let strange = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let held = strange.local_addr().unwrap().port();
        let (code, _, err) = told(
            house,
            &[
                "wait",
                "web",
                "--for",
                &format!("port={held}"),
                "--timeout",
                "200ms",
            ],
        );
        assert_eq!(code, 124);
        let note = format!("note: port {held} is held by pid P (");
        assert!(
            err.contains(&note) && err.contains("), which is not of t1\n"),
            "{err}"
        );

        let words = "error: t1 was started with its input closed\nhint: start --stdin";
        let (code, out, err) = told(house, &["send", "web", "y", "--enter"]);
        assert_eq!((code, out.as_str()), (125, ""));
        assert!(err.starts_with(words), "{err}");
    });
}

/// Walk 1: the ways in which it goes wrong.
#[test]
fn a_wait_on_a_job_that_ends_first_says_how_and_shows_the_last_lines() {
    in_empty_house(async |house| {
        told(
            house,
            &[
                "start",
                "--",
                puppet(),
                "say",
                "one",
                ",",
                "say",
                "two",
                ",",
                "exit",
                "1",
            ],
        );
        let told_it = told(
            house,
            &["wait", "t1", "--for", "port=5173", "--timeout", "30s"],
        );
        let words = "error: t1 ended before port 5173 was open: exited with code 1\n  one\n  two\nhint: ostler tail t1\n";
        is(&told_it, 1, "", words);
        told(house, &["start", "--", puppet(), "exit", "0"]);
        let told_it = told(house, &["wait", "t2", "--for", "text=never"]);
        assert_eq!(
            told_it.0, 125,
            "it ended well, but what was waited for never came: {told_it:?}"
        );
        let told_it = told(house, &["start", "--", "npm run dev"]);
        is(
            &told_it,
            127,
            "t3\n",
            "error: no program \"npm run dev\"\nhint: a shell line needs -c\n",
        );
    });
}

/// Walk 2.
#[test]
fn a_foreground_run_streams_both_streams_and_passes_the_code() {
    in_empty_house(async |house| {
        let told_it = told(
            house,
            &[
                "run",
                "--",
                puppet(),
                "say",
                "out",
                ",",
                "sayerr",
                "err",
                ",",
                "exit",
                "101",
            ],
        );
        is(&told_it, 101, "out\n", "err\n");
    });
}

/// Walk 2: the failing line of a long log, found again.
#[test]
fn a_line_of_a_long_log_is_found_by_its_pattern() {
    in_empty_house(async |house| {
        let line = "out 100000 , say , say test parse::empty ... FAILED , out 100000 , exit 101";
        let run = format!("ostler run -- {} {line} >run.out", puppet());
        assert_eq!(house.shell(&run).code, 101);
        let whole = std::fs::metadata(house.file("run.out")).unwrap().len();
        assert_eq!(
            whole,
            200_000 + 1 + "test parse::empty ... FAILED\n".len() as u64
        );
        let (code, out, _) = told(house, &["read", "t1", "--match", "panicked|FAILED"]);
        assert_eq!(
            (code, out.as_str()),
            (0, "100001:test parse::empty ... FAILED\n")
        );
    });
}

/// Walk 2: detached from elsewhere, a run never says success.
#[test]
fn a_run_that_was_detached_ends_with_our_code_and_the_job_goes_on() {
    in_empty_house(async |house| {
        let line = format!(
            "ostler run --name r -- {} say ready , sleep >run.out 2>run.err; echo $?",
            puppet()
        );
        let run = std::thread::scope(|scope| {
            let running = scope.spawn(|| house.shell(&line));
            let detach =
                "until ostler wait r --for text=ready 2>/dev/null; do :; done; ostler detach r";
            assert_eq!(house.shell(detach).out, "t1\n");
            running.join().unwrap()
        });
        assert_eq!(run.out, "125\n");
        let err = std::fs::read_to_string(house.file("run.err")).unwrap();
        assert!(err.contains("t1 (r) goes on in the background"), "{err}");
        assert!(told(house, &["ls"]).1.contains("\trunning\t"));
    });
}

/// Walk 3.
#[test]
fn a_second_terminal_sees_the_jobs_and_their_output() {
    in_empty_house(async |house| {
        told(
            house,
            &[
                "start",
                "--name",
                "web",
                "--",
                puppet(),
                "say",
                "up",
                ",",
                "sleep",
            ],
        );
        told(house, &["run", "--", puppet(), "exit", "101"]);
        told(house, &["wait", "web", "--for", "text=up"]);
        let rows = "t1\tweb\trunning\tAGE\t3 B\tpuppet say up , sleep\nt2\t\texited 101\tAGE\t0 B\tpuppet exit 101\n";
        is(&told(house, &["ls"]), 0, rows, "");
        is(&told(house, &["ls", "-q"]), 0, "t1\nt2\n", "");
        is(&told(house, &["ls", "-q", "--live"]), 0, "t1\n", "");
        is(&told(house, &["tail", "web"]), 0, "up\n", "");
        told(
            house,
            &[
                "start",
                "--name",
                "brief",
                "--",
                puppet(),
                "say",
                "a",
                ",",
                "exit",
                "9",
            ],
        );
        is(
            &told(house, &["tail", "-f", "brief", "--since", "0"]),
            9,
            "a\n",
            "",
        );
        let json = house.cli(&["ls", "--json"]).out;
        let table: serde_json::Value = serde_json::from_str(&json).expect("one JSON value");
        let row = &table["jobs"][0];
        for field in [
            "id",
            "processId",
            "session",
            "kind",
            "state",
            "pid",
            "args",
            "cwd",
            "startedAt",
            "output",
            "tree",
        ] {
            assert!(!row[field].is_null(), "{field} is missing: {row}");
        }
    });
}

/// Walk 3: what can no longer be read is said with its number.
#[test]
fn a_gap_is_told_in_words_and_bytes() {
    in_empty_house(async |house| {
        let run = format!(
            "ostler start --no-spill -q -- {} out 344064 && ostler wait t1",
            puppet()
        );
        assert_eq!(house.shell(&run).code, 0);
        let (code, out, err) = told(house, &["tail", "t1", "--since", "0"]);
        assert_eq!((code, out.len()), (0, 262_144));
        assert_eq!(err, "81,920 bytes were lost here\n");
    });
}

/// Walk 4.
#[test]
fn everything_of_a_project_is_stopped_with_receipts() {
    in_empty_house(async |house| {
        std::fs::create_dir(house.file(".git")).unwrap();
        let tree = [
            "start",
            "--",
            puppet(),
            "fork",
            "[",
            "sleep",
            "]",
            ",",
            "fork",
            "[",
            "sleep",
            "]",
            ",",
            "say",
            "ready",
            ",",
            "sleep",
        ];
        told(house, &tree);
        told(house, &["wait", "t1", "--for", "text=ready"]);
        let stubborn = [
            "start",
            "--session",
            "agent",
            "--grace",
            "100ms",
            "--",
            puppet(),
        ];
        told(
            house,
            &[
                &stubborn[..],
                &["ignore", "TERM", ",", "say", "ready", ",", "sleep"],
            ]
            .concat(),
        );
        told(house, &["wait", "agent/t1", "--for", "text=ready"]);
        let (code, out, err) = told(house, &["stop", "--project"]);
        assert_eq!((code, err.as_str()), (0, ""));
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_by_key(|l| l.contains("agent"));
        let words: Vec<String> = lines
            .iter()
            .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert!(
            words[0].ends_with("t1 stopped in N s, 3 processes"),
            "{out}"
        );
        assert_eq!(
            words[1], "agent/t1 stopped in N s, 1 process, 1 forced",
            "{out}"
        );
        is(
            &told(house, &["stop", "--all"]),
            0,
            "",
            "nothing to stop in f\n",
        );
    });
}

/// Walk 8.
#[test]
fn two_agents_in_one_repository_do_not_meet_and_the_person_sees_both() {
    in_empty_house(async |house| {
        for session in ["claude-7k2", "codex-9qd"] {
            told(
                house,
                &["start", "--session", session, "--", puppet(), "sleep"],
            );
        }
        let (_, out, _) = told(house, &["ls"]);
        assert!(
            out.contains("claude-7k2/t1\t") && out.contains("codex-9qd/t1\t"),
            "{out}"
        );
        for _ in 0..7 {
            assert_eq!(
                told(
                    house,
                    &["start", "--session", "claude-7k2", "--", puppet(), "sleep"]
                )
                .0,
                0
            );
        }
        let (code, out, err) = told(
            house,
            &["start", "--session", "claude-7k2", "--", puppet(), "sleep"],
        );
        let lines: Vec<&str> = err.lines().collect();
        assert_eq!((code, out.as_str(), lines.len()), (125, "", 10), "{err}");
        assert_eq!(lines[0], "error: 8 of 8 commands run in claude-7k2");
        assert_eq!(lines[1], "  t1 running: puppet sleep");
        assert_eq!(
            lines[9],
            "hint: stop one, or ostler session open claude-7k2 --commands 16"
        );
        let (code, out, _) = told(house, &["stop", "claude-7k2/t3"]);
        assert_eq!(code, 0);
        assert!(out.contains("stopped in N s, 1 process"), "{out}");
        let (_, out, _) = told(house, &["ls", "-q", "--live", "--session", "codex-9qd"]);
        assert_eq!(out, "codex-9qd/t1\n", "the other one is not touched");
        let unknown = told(house, &["show", "t5", "--session", "codex-9qd"]);
        assert_eq!(
            (unknown.0, unknown.2.as_str()),
            (125, "error: no job t5 in this session\nhint: ostler ls\n")
        );
    });
}

/// Walk 10.
#[test]
fn a_start_that_cannot_be_says_why_in_one_line_and_what_to_do() {
    in_empty_house(async |house| {
        use std::os::unix::fs::PermissionsExt;
        let open = |mode| {
            std::fs::set_permissions(house.dir(), std::fs::Permissions::from_mode(mode)).unwrap()
        };
        open(0o777);
        let words = "error: the supervisor did not start: socket folder BASE/h can be written by others (mode 0777)\n\
            hint: chmod 700 BASE/h\n";
        is(&told(house, &["run", "--", "true"]), 125, "", words);
        open(0o700);
        is(&told(house, &["run", "--", "true"]), 0, "", "");
        let status = house.cli(&["daemon", "status", "--json"]).out;
        let status: serde_json::Value = serde_json::from_str(&status).expect("one JSON value");
        assert_eq!(
            (&status["running"], &status["jobs"]),
            (&true.into(), &0.into())
        );
        for field in ["pid", "keeperPid", "generation", "sessions"] {
            assert!(status[field].is_u64(), "{field}: {status}");
        }
        let (code, out, _) = told(house, &["daemon", "logs"]);
        assert!(code == 0 && out.contains("serving"), "{out}");
        assert_eq!(told(house, &["daemon", "stop"]).0, 0);
        house.assert_nothing_is_left();
    });
}
