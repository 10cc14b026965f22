//! Promise: the exit code says what happened, also in scripts, pipes and terminals, and no command hangs.

use ostler_proto::job::State;
use ostler_proto::methods::{Nothing, SupervisorInfo};
use ostler_tests::{PATIENCE, in_empty_house, in_house, process, puppet, within};

/// 1.6.
#[test]
fn run_passes_the_code_of_its_job_and_names_its_own_failures() {
    in_empty_house(async |house| {
        let p = puppet();
        let cases: [(&[&str], i32); 12] = [
            (&["run", "--", p, "exit", "0"], 0),
            (&["run", "--", p, "exit", "42"], 42),
            (&["run", "--", p, "exit", "255"], 255),
            (&["run", "--", p, "kill", "KILL"], 137),
            (&["run", "--", p, "kill", "TERM"], 143),
            (&["run", "--", p, "kill", "SEGV"], 139),
            (
                &[
                    "run",
                    "--timeout",
                    "100ms",
                    "--grace",
                    "0",
                    "--",
                    p,
                    "sleep",
                ],
                124,
            ),
            (&["run", "--", "/tmp"], 126),
            (&["run", "--", "no-such-program-9"], 127),
            (&["run", "-c", "exit 127"], 127),
            (&["run"], 2),
            (&["run", "--timeout", "5x", "--", p, "exit", "0"], 2),
        ];
        for (args, code) in cases {
            let said = house.cli(args);
            assert_eq!(said.code, code, "{args:?}: {said:?}");
            assert!(
                !said.err.contains("panicked") && !said.err.contains("backtrace"),
                "{said:?}"
            );
        }
    });
}

/// 091, 092: nothing is turned into success, no option of the shell is changed.
#[test]
fn a_shell_line_has_the_code_that_the_shell_gives() {
    in_empty_house(async |house| {
        assert_eq!(house.cli(&["run", "-c", "false | cat"]).code, 0);
        assert_eq!(house.cli(&["run", "-c", "sleep 0; exit 42"]).code, 42);
        let started = house.cli(&["start", "-c", "exit 7"]);
        assert_eq!((started.code, started.out.as_str()), (0, "t3\n"));
        assert_eq!(house.cli(&["wait", "t3"]).code, 7);
    });
}

/// Several ids: the first that is not 0, in the order given.
#[test]
fn wait_gives_the_first_code_that_is_not_zero_in_the_order_asked() {
    in_empty_house(async |house| {
        for code in ["0", "5", "6"] {
            house.cli(&["start", "--", puppet(), "exit", code]);
        }
        assert_eq!(house.cli(&["wait", "t1", "t3", "t2"]).code, 6);
        assert_eq!(house.cli(&["wait", "t2", "t1"]).code, 5);
        assert_eq!(house.cli(&["wait", "t1"]).code, 0);
        house.cli(&["start", "--", puppet(), "sleep"]);
        let over = house.cli(&["wait", "t4", "--timeout", "100ms"]);
        assert_eq!(over.code, 124);
        assert!(over.err.contains("t4 still runs"), "{over:?}");
    });
}

/// Stopped is never success.
#[test]
fn a_stopped_job_that_exited_well_gives_143() {
    in_empty_house(async |house| {
        let polite = [
            puppet(),
            "on",
            "TERM",
            "[",
            "exit",
            "0",
            "]",
            ",",
            "say",
            "ready",
            ",",
            "sleep",
        ];
        house.cli(&[&["start", "--"][..], &polite[..]].concat());
        house.cli(&["wait", "t1", "--for", "text=ready"]);
        assert_eq!(house.cli(&["stop", "t1"]).code, 0);
        assert_eq!(house.cli(&["wait", "t1"]).code, 143);
        assert_eq!(house.cli(&["tail", "-f", "t1"]).code, 143);
        assert_eq!(house.cli(&["stop", "t1"]).code, 0, "again is success");
    });
}

/// Only what starts something starts a supervisor.
#[test]
fn without_a_supervisor_each_command_says_so_as_it_should_and_starts_none() {
    in_empty_house(async |house| {
        let cases: [(&[&str], i32); 12] = [
            (&["ls"], 0),
            (&["ls", "-q"], 0),
            (&["session", "ls"], 0),
            (&["stop", "--all"], 0),
            (&["daemon", "status"], 0),
            (&["daemon", "stop"], 0),
            (&["daemon", "logs"], 0),
            (&["show", "t1"], 125),
            (&["wait", "t1"], 125),
            (&["tail", "t1"], 125),
            (&["read", "t1"], 125),
            (&["stop", "t1"], 125),
        ];
        for (args, code) in cases {
            let said = house.cli(args);
            assert_eq!(said.code, code, "{args:?}: {said:?}");
            if code == 125 {
                assert_eq!(
                    said.err,
                    "error: no supervisor runs\nhint: ostler daemon start\n"
                );
            }
        }
        let table = house.cli(&["ls", "--json"]);
        assert_eq!(table.out.trim(), r#"{"jobs":[]}"#);
        assert!(
            house.marks().living().is_empty(),
            "one of them started a supervisor"
        );
    });
}

/// Wrong use does nothing at all.
#[test]
fn wrong_use_is_2_and_nothing_is_done() {
    in_empty_house(async |house| {
        for args in [
            &["nope"][..],
            &["start"],
            &["start", "--grace", "-1s", "--", "true"],
            &["wait"],
            &["wait", "t1", "--for", "nonsense"],
            &["wait", "t1", "--for", "port=70000"],
            &["run", "-c", "true", "--", "true"],
            &["stop"],
        ] {
            let said = house.cli(args);
            assert_eq!(
                (said.code, said.out.as_str()),
                (2, ""),
                "{args:?}: {said:?}"
            );
            assert!(said.err.starts_with("error: "), "{said:?}");
        }
        assert!(house.marks().living().is_empty());
    });
}

/// 026: the daemon that a command starts keeps nothing of its caller.
#[test]
fn a_command_substitution_does_not_wait_for_the_daemon() {
    in_empty_house(async |house| {
        let line = format!("x=$(ostler start -- {} sleep); echo got $x", puppet());
        assert_eq!(house.shell(&line).out, "got t1\n");
        let keeper = house.keeper().expect("it was started").pid;
        for pid in [keeper, house.info().await.hello.pid] {
            for n in 0..3 {
                let to = std::fs::read_link(format!("/proc/{pid}/fd/{n}")).unwrap();
                assert!(
                    !to.starts_with("pipe:") && !to.to_string_lossy().contains("/f/"),
                    "{n} of {pid} is {to:?}"
                );
            }
        }
        house.cli(&["daemon", "stop"]);
        // A third descriptor and a pipe as input.
        let line = format!(
            "mkfifo held; (exec 3<>held; x=$(echo | ostler start -- {} sleep); echo got $x)",
            puppet()
        );
        assert_eq!(house.shell(&line).out, "got t1\n");
        for pid in [house.keeper().unwrap().pid, house.info().await.hello.pid] {
            let folder = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
            let held = folder
                .flatten()
                .any(|e| std::fs::read_link(e.path()).is_ok_and(|p| p.ends_with("held")));
            assert!(!held, "{pid} keeps the caller's descriptor");
        }
    });
}

/// A closed pipe is no error, and what nobody reads ends.
#[test]
fn a_reader_that_has_enough_ends_the_command_quietly() {
    in_empty_house(async |house| {
        let line = format!(
            "(ostler run -- {} flood; echo code $? >&2) | head -c 10",
            puppet()
        );
        let said = house.shell(&line);
        assert_eq!(
            (said.out.as_str(), said.err.as_str()),
            ("0000000000", "code 141\n"),
            "as in a shell: what was stopped on the way is no success"
        );
        let desk = house.desk();
        let rows = desk.must::<ostler_proto::methods::JobList>(ostler_proto::methods::List {
            all: true,
            ..Default::default()
        });
        for row in rows.await.jobs {
            assert_eq!(desk.wait(&row.process_id).await.state, State::Exited);
        }
        house.cli(&[
            "start",
            "--name",
            "flood",
            "--",
            puppet(),
            "paced",
            "1000000",
            "160",
            "1",
        ]);
        let said = house.shell("(ostler tail -f flood; echo code $? >&2) | head -n 1");
        assert!(said.err.is_empty() || said.err == "code 0\n", "{said:?}");
        assert!(
            house.cli(&["ls"]).out.contains("running"),
            "a reader that leaves ends nothing"
        );
        let said = house.shell("(ostler ls; echo code $? >&2) | :");
        assert_eq!(said.err, "code 0\n");
    });
}

/// A closed pipe ends each command that prints with 0 and without a word.
#[test]
fn a_reader_that_is_gone_is_no_error_of_any_command() {
    in_house(async |house| {
        let start = format!("ostler start --name web -- {} out 200000 , sleep", puppet());
        house.shell(&start);
        house.cli(&["wait", "web", "--for", "quiet=50ms"]);
        for command in [
            "ls",
            "ls -q",
            "ls --json",
            "show web",
            "show web --json",
            "read web",
            "read web --json",
            "read web --match 0",
            "tail web",
            "tail web --json",
            "wait web --for quiet=1ms --json",
            "session ls",
            "session open",
            "daemon status",
            "daemon logs",
            "completions bash",
            "--help",
            "--version",
            "start -- true",
            "run -- echo x",
            "stop web",
        ] {
            let said = house.shell(&format!("(ostler {command}; echo code $? >&2) | :"));
            let code = if command.starts_with("run") { 141 } else { 0 };
            assert_eq!(said.err, format!("code {code}\n"), "{command}");
        }
        let said = house.shell("(ostler tail web; echo code $? >&2) | head -n 1");
        assert_eq!(
            (said.out.lines().count(), said.err.as_str()),
            (1, "code 0\n")
        );
        // Nobody who hears the words: the code says it all the same.
        let said = house.shell("(ostler show nope; echo code $? >&3) 3>&2 2>&1 | :");
        assert_eq!(said.err, "code 125\n");
    });
}

/// What says nothing but errors.
#[test]
fn quiet_commands_print_ids_or_nothing() {
    in_empty_house(async |house| {
        let silent = |args: &[&str]| {
            let said = house.cli(args);
            assert_eq!(
                (said.code, said.out.as_str(), said.err.as_str()),
                (0, "", ""),
                "{args:?}"
            );
        };
        silent(&["daemon", "start", "-q"]);
        assert_eq!(house.cli(&["session", "open", "n", "-q"]).out, "n\n");
        assert_eq!(
            house.cli(&["start", "-q", "--", puppet(), "exit", "3"]).out,
            "t1\n"
        );
        let waited = house.cli(&["wait", "-q", "t1"]);
        assert_eq!((waited.code, waited.err.as_str()), (3, ""));
        let over = house.cli(&["wait", "-q", "t1", "--for", "text=never"]);
        assert_eq!((over.code, over.err.as_str()), (3, ""));
        assert_eq!(
            house.cli(&["start", "-q", "--", puppet(), "sleep"]).out,
            "t2\n"
        );
        silent(&["stop", "-q", "t2"]);
        silent(&["stop", "-q", "--all"]);
        silent(&["rm", "-q", "t2", "nope"]);
        silent(&["session", "close", "-q", "n"]);
        silent(&["session", "close", "-q", "nope"]);
        let said = house.cli(&["stop", "-q", "nope"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (125, "error: no job nope in this session\nhint: ostler ls\n")
        );
        silent(&["daemon", "stop", "-q"]);
        silent(&["daemon", "stop", "-q"]);
    });
}

/// 086: keys at the terminal of the command that started it are not for the daemon.
#[test]
fn ctrl_c_in_the_terminal_that_started_it_ends_neither_daemon_nor_jobs() {
    in_empty_house(async |house| {
        let line = format!(
            "ostler start -- {} sleep; echo ready; exec sleep 1000",
            puppet()
        );
        let mut terminal = house.terminal(&line);
        terminal.shows("ready");
        let before = house.info().await.hello;
        terminal.type_in("\x03");
        let (code, _) = terminal.ends();
        assert_eq!(code, 128 + libc::SIGINT);
        let after = house.info().await.hello;
        assert_eq!(
            (after.pid, after.keeper_pid),
            (before.pid, before.keeper_pid)
        );
        assert!(house.cli(&["ls"]).out.contains("running"));
        assert!(process::lives(after.keeper_pid));
    });
}

/// Ctrl-C: once is the job's interrupt, and its code is passed.
#[test]
fn ctrl_c_in_a_foreground_run_is_given_to_the_job() {
    in_house(async |house| {
        let steps = "on INT [ say caught , exit 33 ] , say ready , sleep";
        let mut terminal = house.terminal(&format!(
            "trap : INT; ostler run -- {} {steps}; echo code $?",
            puppet()
        ));
        terminal.shows("ready");
        terminal.type_in("\x03");
        terminal.shows("caught");
        terminal.shows("code 33");
        terminal.ends();
        // One that goes on is stopped by the second.
        let steps = "on INT [ say caught ] , say ready , sleep";
        let mut terminal = house.terminal(&format!("ostler run -- {} {steps}", puppet()));
        terminal.shows("ready");
        terminal.type_in("\x03");
        terminal.shows("caught");
        terminal.type_in("\x03");
        let (code, screen) = terminal.ends();
        assert!(code == 143 || code == 130, "{code}: {screen}");
        let live = house.cli(&["ls", "-q", "--live"]);
        assert_eq!(live.out, "");
    });
}

/// Ctrl-C ends looking, not the job.
#[test]
fn ctrl_c_in_a_tail_says_that_the_job_still_runs() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "say", "up", ",", "sleep"]);
        let mut terminal = house.terminal("trap : INT; ostler tail -f t1; echo code $?");
        terminal.shows("up");
        terminal.type_in("\x03");
        terminal.shows("t1 still runs");
        terminal.shows("code 130");
        terminal.ends();
        let desk = house.desk_without_session();
        let clients = async |n| {
            let until =
                async { while desk.must::<SupervisorInfo>(Nothing {}).await.connections != n {} };
            within(PATIENCE, "the right number of clients", until).await;
        };
        clients(1).await;
        let mut terminal = house.terminal("trap : INT; ostler wait t1; echo code $?");
        clients(2).await;
        terminal.type_in("\x03");
        terminal.shows("t1 still runs");
        terminal.shows("code 130");
        terminal.ends();
        assert!(house.cli(&["ls"]).out.contains("running"));
    });
}

/// A name that is not there beside one that is: the one is stopped, the other is told.
#[test]
fn stop_does_what_it_can_and_names_what_it_cannot() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let said = house.cli(&["stop", "t1", "t99"]);
        assert_eq!(said.code, 125);
        assert!(said.err.contains("no job t99"), "{said:?}");
        let live = house.cli(&["ls", "-q", "--live"]).out;
        assert!(live.is_empty(), "t1 was not stopped: {said:?}");
    });
}

/// 121, 124: environment, folder and input are the caller's.
#[test]
fn the_callers_environment_and_folder_are_the_jobs() {
    in_house(async |house| {
        let said =
            house.shell("A='1 2' ostler run -c 'echo \"$A\"; pwd; env | grep -c ^OSTLER_STEADY'");
        let folder = house.path(".");
        let wanted = format!("1 2\n{}\n", folder.trim_end_matches("/."));
        assert!(said.out.starts_with(&wanted), "{said:?}");
        let said = house.shell(&format!(
            "printf abc | ostler run --stdin -- {} cat",
            puppet()
        ));
        assert_eq!((said.code, said.out.as_str()), (0, "abc"));
        let said = house.shell(&format!(
            "printf abc | (ostler run -- {} cat; cat)",
            puppet()
        ));
        assert_eq!(
            said.out, "abc",
            "without --stdin the caller's input is not touched"
        );
    });
}

/// A removed worktree: what was started there is listed and stopped from there.
#[test]
fn jobs_of_a_deleted_folder_are_listed_and_stopped_from_it() {
    in_empty_house(async |house| {
        let line = "mkdir gone && cd gone && ostler start -- sleep 1000 && rmdir ../gone && ostler ls -q && ostler stop --all";
        let told = house.shell(line);
        assert_eq!(told.code, 0, "{}", told.err);
        assert!(
            told.out.starts_with("t1\nt1\nt1  stopped in "),
            "{}",
            told.out
        );
        let start = house.shell("mkdir gone && cd gone && rmdir ../gone && ostler start -- true");
        assert_eq!(start.code, 125);
        assert!(
            start.err.contains("hint: cd to a folder that exists"),
            "{}",
            start.err
        );
    });
}

/// A client of `daemon stop` that dies left a house that refused everything and never left.
#[test]
fn a_stop_of_the_house_goes_on_without_its_client() {
    in_empty_house(async |house| {
        let line = format!(
            "ostler start --grace 2s -- {} ignore TERM , say ready , sleep && ostler wait t1 --for text=ready",
            puppet()
        );
        assert_eq!(house.shell(&line).code, 0);
        // The client dies when its request is there, and before the grace is over.
        let killed = house.shell(
            "ostler daemon stop & until ostler show t1 | grep -q stopping; do :; done; kill -9 $!",
        );
        assert_eq!(killed.code, 0, "{}", killed.err);
        let gone =
            "timeout 20 sh -c 'until ostler daemon status | grep -q \"running *no\"; do :; done'";
        assert_eq!(
            house.shell(gone).code,
            0,
            "the house neither serves nor leaves"
        );
        assert_eq!(house.shell("ostler run -- true").code, 0);
    });
}

/// What lives on after a foreground command is said, on a pipe too.
#[test]
fn a_run_says_what_it_leaves_behind() {
    in_empty_house(async |house| {
        let told = house.shell("ostler run -c 'sleep 1000 & echo x'; ostler stop --all");
        assert!(
            told.err
                .contains("note: 1 process of t1 left: ostler stop t1"),
            "{}",
            told.err
        );
        assert!(told.out.starts_with("x\nt1  stopped in "), "{}", told.out);
    });
}

/// A panic of a library below is no answer.
#[test]
fn a_client_without_descriptors_says_so_in_one_line() {
    in_empty_house(async |house| {
        for n in [6, 8, 10, 12] {
            let told = house.shell(&format!("ulimit -n {n}; ostler ls"));
            assert_eq!(told.code, 125, "{n}: {}", told.err);
            assert!(
                told.err.starts_with("error: too few descriptors"),
                "{n}: {}",
                told.err
            );
            assert_eq!(told.err.lines().count(), 2, "{n}: {}", told.err);
        }
    });
}

/// `ostler run -- dump > file && upload`: what did not get through whole is no success.
#[test]
fn a_run_whose_output_did_not_get_through_is_no_success() {
    in_empty_house(async |house| {
        std::fs::write(&house.folders().config, "[output]\nspill_job = 0\n").unwrap();
        // Nobody reads before the job is over: only what the ring holds is left then.
        let line = |code: u32| {
            format!(
                "mkfifo f; {{ ostler run --name r -- {} out 5000000 , exit {code} >f 2>err; echo $? >code; }} & \
                 exec 3<f; until ostler wait r 2>/dev/null; [ $? = {code} ]; do :; done; cat <&3 >out; wait; \
                 cat code err; rm f; exec 3<&-",
                puppet()
            )
        };
        let told = house.shell(&line(0));
        assert!(told.out.starts_with("125\n"), "{told:?}");
        assert!(told.out.contains("bytes were lost here"), "{told:?}");
        assert!(
            told.out.contains("error: ") && told.out.contains("did not get through"),
            "{told:?}"
        );
        // A code of the job's own says enough.
        let told = house.shell(&line(3));
        assert!(told.out.starts_with("3\n"), "{told:?}");
    });
}

/// Keeper and supervisor killed together: that something may be left is said, and `daemon stop` leaves nothing.
#[test]
fn what_a_killed_house_left_is_told_and_ended_by_a_stop() {
    in_empty_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let hello = house.info().await.hello;
        let both = [hello.keeper_pid, hello.pid].map(|p| process::Process::of(p).unwrap());
        both.iter().for_each(process::Process::freeze);
        for process in both {
            process.signal(libc::SIGKILL);
            process.gone().await;
        }
        assert_eq!(house.marks().living().len(), 1, "the job lives");
        for args in [["ls", "-A"], ["stop", "-A"]] {
            let told = house.cli(&args);
            assert_eq!(told.code, 0);
            assert!(told.err.contains("was killed with its keeper"), "{told:?}");
        }
        let told = house.cli(&["doctor"]);
        assert_eq!(told.code, 125);
        assert!(
            told.out.contains("was killed together with its keeper"),
            "{}",
            told.out
        );
        assert_eq!(house.cli(&["daemon", "stop"]).code, 0);
        house.assert_nothing_is_left();
        assert_eq!(house.cli(&["doctor"]).code, 0);
    });
}

/// In a home folder this would be everything that runs.
#[test]
fn a_folder_that_is_no_project_is_not_stopped_as_one() {
    in_empty_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let told = house.cli(&["stop", "--project"]);
        assert_eq!(told.code, 125, "{told:?}");
        assert!(told.err.contains("is no project"), "{}", told.err);
        let told = house.shell("mkdir .git; ostler start -- puppet sleep && ostler stop --project");
        assert_eq!(told.code, 0, "{told:?}");
    });
}
