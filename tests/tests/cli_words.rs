//! Promise: what the command line says can be acted upon: ids work when they are given back, hints can be pasted,
//! and nothing that was asked for is passed over in silence.

use std::fs;
use std::os::unix::fs::DirBuilderExt;

use ostler_proto::methods::{Nothing, SupervisorInfo};
use ostler_tests::process::Process;
use ostler_tests::{House, Mount, in_empty_house, in_house, puppet};

/// Two projects whose folders have one name, a sleeping job in each.
fn two_of_one_name(house: &House) {
    for folder in ["one/app", "two/app"] {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true).create(house.file(folder)).unwrap();
        let line = format!("cd {folder} && ostler start -- {} sleep", puppet());
        assert_eq!(house.shell(&line).out, "t1\n");
    }
}

/// Two sessions `app` looked alike, and no id of either could be given back.
#[test]
fn sessions_of_one_name_are_told_apart_and_their_ids_can_be_given_back() {
    in_empty_house(async |house| {
        two_of_one_name(house);
        let ids = house.cli(&["ls", "-A", "-q"]).out;
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!(ids.len(), 2, "{ids:?}");
        assert_ne!(ids[0], ids[1]);
        for id in &ids {
            assert_eq!(house.cli(&["show", id]).code, 0, "{id}");
        }
        let table = house.cli(&["ls", "-A"]).out;
        let sessions = house.cli(&["session", "ls"]).out;
        for id in &ids {
            let session = id.strip_suffix("/t1").unwrap();
            assert!(table.contains(&format!("{session}/t1\t")), "{table}");
            assert!(sessions.contains(&format!("{session}\t")), "{sessions}");
        }
        let stopped = house.shell("ostler ls -A -q | xargs ostler stop");
        assert_eq!(stopped.code, 0, "{stopped:?}");
        for id in &ids {
            assert!(
                stopped.out.contains(&format!("{id}  stopped in ")),
                "{stopped:?}"
            );
        }
    });
}

/// One of them keeps its short ids where it is the one that is meant.
#[test]
fn the_own_session_needs_no_name_also_where_another_has_the_same() {
    in_empty_house(async |house| {
        two_of_one_name(house);
        let said = house.shell("cd one/app && ostler ls -A -q");
        let mut ids: Vec<&str> = said.out.lines().collect();
        ids.sort_by_key(|id| id.len());
        assert_eq!(ids[0], "t1");
        assert!(ids[1].starts_with("app-"), "{ids:?}");
        let said = house
            .shell("cd one/app && ostler ls -A -q | xargs ostler stop && ostler ls -q -A --live");
        assert_eq!(said.out.lines().count(), 2, "{said:?}");
        // A variable that names both selects none of them.
        let said = house.shell("OSTLER_SESSION=app ostler ls -A -q");
        assert!(
            said.out.lines().all(|id| id.starts_with("app-")),
            "{said:?}"
        );
    });
}

/// `app` was one of them from then on, and meant nobody knew which before.
#[test]
fn a_session_does_not_get_the_name_of_another_one_for_its_id() {
    in_empty_house(async |house| {
        two_of_one_name(house);
        let ids = house.cli(&["session", "ls", "-q"]).out;
        let ids: Vec<&str> = ids.lines().collect();
        for (session, others) in [(ids[0], &ids[1..]), (ids[1], &ids[..1]), ("mine", &ids[..])] {
            house.cli(&["session", "open", "mine"]);
            let said = house.cli(&["session", "rename", session, "app"]);
            let (s, it) = match others.len() {
                1 => ("", "it"),
                _ => ("s", "one"),
            };
            let mut sorted = others.to_vec();
            sorted.sort_unstable();
            let all = sorted.join(", ");
            assert_eq!(
                (said.code, said.out.as_str(), said.err),
                (
                    125,
                    "",
                    format!(
                        "error: app is the name of session{s} {all}\n\
                         hint: choose another name; to have {it} adopt the jobs, name it by its id: {all}\n"
                    )
                )
            );
        }
        assert_eq!(house.cli(&["show", "mine/t1"]).code, 125);
        // Its own name it may have, where it is the only one.
        assert_eq!(house.cli(&["session", "rename", ids[1], "mine"]).code, 0);
        assert_eq!(
            house.cli(&["session", "rename", ids[0], "app"]).out,
            "app\n"
        );
        let ls = house.cli(&["ls", "-A", "-q"]).out;
        let mut ls: Vec<&str> = ls.lines().collect();
        ls.sort_unstable();
        assert_eq!(ls, ["app/t1", "mine/t1"]);
    });
}

/// It said `no job t1 in this session`, of a session that nobody could have meant.
#[test]
fn an_ambiguous_session_is_told_as_that_for_one_id_and_for_several() {
    in_empty_house(async |house| {
        two_of_one_name(house);
        for args in [
            &["stop", "app/t1"][..],
            &["stop", "app/t1", "app/t2"],
            &["show", "app/t1"],
            &["wait", "app/t1"],
            &["tail", "app/t1"],
            &["ls", "--session", "app"],
            &["session", "close", "app"],
            &["session", "notices", "app"],
            &["session", "watch", "app"],
            &["session", "rename", "app", "b"],
            &["session", "adopt", "app"],
        ] {
            let said = house.cli(args);
            assert_eq!((said.code, said.out.as_str()), (125, ""), "{args:?}");
            let lines: Vec<&str> = said.err.lines().collect();
            assert_eq!(lines[0], "error: session app is not unique", "{args:?}");
            assert!(
                lines[1].starts_with("hint: name it by its id: app-"),
                "{lines:?}"
            );
            assert_eq!(lines.len(), 2, "{lines:?}");
        }
        assert_eq!(
            house.cli(&["ls", "-A", "-q", "--live"]).out.lines().count(),
            2
        );
        // Nobody of that name at all is another answer.
        let said = house.cli(&["stop", "nobody/t1", "nobody/t2"]);
        assert_eq!(
            said.err,
            "error: no session nobody\nhint: ostler session ls\n"
        );
    });
}

/// The hint of a read forgot what had been asked for, so that its next page was of another stream or session.
#[test]
fn the_hint_to_read_on_asks_for_the_same_and_works() {
    in_house(async |house| {
        house.cli(&[
            "start",
            "--session",
            "n",
            "--",
            puppet(),
            "say",
            "out",
            ",",
            "sayerr",
            "first",
            ",",
            "sayerr",
            "second",
        ]);
        house.cli(&["wait", "n/t1"]);
        let said = house.cli(&[
            "read",
            "t1",
            "--session",
            "n",
            "--since",
            "0",
            "--max",
            "10",
            "--stderr",
        ]);
        let hint = said
            .err
            .trim()
            .split_once(" more: ")
            .expect("there is more")
            .1
            .to_owned();
        assert!(
            hint.contains("--session n") && hint.contains("--stderr"),
            "{hint}"
        );
        let rest = house.shell(&hint);
        assert_eq!(said.out + &rest.out, "first\nsecond\n");
    });
}

/// Somebody stops the supervisor in a debugger: whoever waits is told why.
#[test]
fn a_supervisor_that_does_not_answer_is_told_while_the_command_waits() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let desk = house.desk_without_session();
        let hello = desk.must::<SupervisorInfo>(Nothing {}).await.hello;
        drop(desk);
        let supervisor = Process::of(hello.pid).expect("it has just answered");
        supervisor.signal(libc::SIGSTOP);
        let status = house.cli(&["daemon", "status"]);
        assert_eq!(status.code, 125);
        let words = format!(
            "does not answer (pid {}, stopped by a debugger?)",
            hello.pid
        );
        assert!(status.err.contains(&words), "{status:?}");
        assert!(!status.err.contains("note:"), "{status:?}");
        let mut terminal = house.terminal("ostler ls -q");
        terminal.shows(&format!(
            "note: the supervisor (pid {}) does not answer yet; stopped by a debugger?",
            hello.pid
        ));
        supervisor.signal(libc::SIGCONT);
        let (code, screen) = terminal.ends();
        assert_eq!(
            (code, screen.trim()),
            (0, "t1"),
            "it goes on waiting, and says it once"
        );
    });
}

/// A command line of 120 KB filled the screen of everybody who piped a listing.
#[test]
fn a_very_long_command_line_is_cut_in_a_pipe_and_whole_in_json() {
    in_house(async |house| {
        let long = "x".repeat(60_000);
        house.cli(&["start", "--", puppet(), "exec", "true", &long]);
        let line = house.cli(&["ls"]).out;
        assert!(
            line.chars().count() < 700 && line.ends_with("x…\n"),
            "{} characters",
            line.len()
        );
        assert!(house.cli(&["ls", "--json"]).out.contains(&long));
    });
}

/// An empty answer looked like a job that had printed nothing.
#[test]
fn a_cursor_beyond_the_end_is_told() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "say", "hello"]);
        house.cli(&["wait", "t1"]);
        let note = "note: t1 has 6 bytes so far; --since 5000 is beyond them\n";
        for args in [
            &["read", "t1", "--since", "5000"][..],
            &["tail", "t1", "--since", "5000"],
            &["tail", "-f", "t1", "--since", "5000"],
        ] {
            let said = house.cli(args);
            assert_eq!(
                (said.code, said.out.as_str(), said.err.as_str()),
                (0, "", note),
                "{args:?}"
            );
        }
        let at_the_end = house.cli(&["read", "t1", "--since", "6"]);
        assert_eq!(at_the_end.err, "");
    });
}

/// The parser took `-5` for a flag and gave advice about `--`.
#[test]
fn a_negative_number_is_refused_in_our_words() {
    in_empty_house(async |house| {
        for args in [
            &["read", "t1", "--since", "-5"][..],
            &["read", "t1", "--max", "-1"],
            &["read", "t1", "--match", "x", "-C", "-1"],
            &["read", "t1", "--wait", "-1s"],
            &["tail", "t1", "--since", "-5"],
            &["wait", "t1", "--since", "-5"],
            &["wait", "t1", "--timeout", "-3"],
            &["wait", "t1", "--for", "quiet=-3"],
            &["stop", "t1", "--grace", "-1s"],
            &["send", "t1", "x", "--timeout", "-1"],
            &["session", "open", "x", "--commands", "-1"],
            &["session", "close", "x", "--grace", "-1"],
            &["daemon", "stop", "--grace", "-1"],
            &["start", "--timeout", "-3", "--", "true"],
            &["start", "--ok", "-3", "--", "true"],
            &["run", "--grace", "-3", "--", "true"],
        ] {
            let said = house.cli(args);
            assert_eq!(said.code, 2, "{args:?}");
            assert!(
                said.err.contains("must not be negative"),
                "{args:?}: {said:?}"
            );
            assert!(!said.err.contains("tip:"), "{args:?}: {said:?}");
        }
    });
}

/// `session close` said "closed nope" of what never was.
#[test]
fn forgetting_what_is_not_there_is_success_and_told() {
    in_house(async |house| {
        house.cli(&["session", "open", "n"]);
        let said = house.cli(&["rm", "nope"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, "note: no job nope in f; nothing to forget\n")
        );
        let said = house.cli(&["rm", "n/t1"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, "note: no job t1 in n; nothing to forget\n")
        );
        let said = house.cli(&["session", "close", "nope"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (0, "note: no session nope; nothing to close\n")
        );
        let said = house.cli(&["session", "close", "n"]);
        assert_eq!((said.code, said.err.as_str()), (0, "closed n\n"));
    });
}

/// The job ran, its id was lost with the full disk, and nobody could stop it.
#[test]
fn what_was_started_is_named_where_its_id_cannot_be_printed() {
    in_empty_house(async |house| {
        let said = house.shell(&format!("ostler start -- {} sleep >/dev/full", puppet()));
        assert_eq!(said.code, 125);
        assert!(
            said.err
                .starts_with("error: cannot write to standard output: "),
            "{said:?}"
        );
        assert!(
            said.err
                .ends_with("\n  t1 was started\nhint: ostler stop t1\n"),
            "{said:?}"
        );
        assert_eq!(house.cli(&["stop", "t1"]).code, 0);
        let said = house.shell("ostler session open n >/dev/full");
        assert_eq!(said.code, 125);
        assert!(said.err.ends_with("\n  session n is open\n"), "{said:?}");
        // A reader that has gone away is no error.
        let said = house.shell("(ostler start -- true; echo code $? >&2) | :");
        assert_eq!(said.err, "code 0\n");
    });
}

/// It said that no supervisor runs, or how the start failed, and not what to do.
#[test]
fn what_lies_at_the_sockets_place_is_named_with_what_to_do() {
    in_empty_house(async |house| {
        let socket = house.folders().socket();
        let make: [(&str, &dyn Fn()); 2] = [
            ("file", &|| fs::write(&socket, "x").unwrap()),
            ("folder", &|| {
                fs::DirBuilder::new().mode(0o700).create(&socket).unwrap()
            }),
        ];
        for (what, make) in make {
            make();
            let path = socket.display();
            let hint = format!("hint: move it away: mv {path} {path}.old\n");
            let said = house.cli(&["ls"]);
            assert_eq!(said.code, 125);
            assert_eq!(
                said.err,
                format!("error: {path} is a {what}, not a socket\n{hint}")
            );
            let said = house.cli(&["start", "--", "true"]);
            let words = format!(
                "error: the supervisor did not start: {path} is a {what}, not a socket\n{hint}"
            );
            assert_eq!((said.code, said.err.as_str()), (125, words.as_str()));
            // The hint is good.
            let moved = house.shell(hint.trim().strip_prefix("hint: move it away: ").unwrap());
            assert_eq!(moved.code, 0);
            assert_eq!(house.cli(&["run", "--", "true"]).code, 0);
            assert_eq!(house.cli(&["daemon", "stop"]).code, 0);
            let old = socket.with_extension("sock.old");
            let _ = fs::remove_file(&old).or_else(|_| fs::remove_dir(&old));
        }
    });
}

/// The supervisor's own words about its wire were shown.
#[test]
fn sending_nothing_and_finding_nothing_are_told() {
    in_house(async |house| {
        house.cli(&[
            "start",
            "--stdin",
            "--",
            puppet(),
            "say",
            "hello",
            ",",
            "cat",
        ]);
        let said = house.cli(&["send", "t1", ""]);
        assert_eq!(said.code, 2);
        assert_eq!(
            said.err,
            "error: nothing to send: the text is empty\nhint: --enter sends a line end, --eof ends the input\n"
        );
        assert_eq!(house.cli(&["send", "t1", "", "--enter"]).code, 0);
        house.cli(&["wait", "t1", "--for", "text=hello"]);
        let said = house.cli(&["read", "t1", "--match", "absent"]);
        assert_eq!((said.code, said.out.as_str()), (0, ""));
        assert_eq!(said.err, "note: no line of t1 matches absent\n");
        assert_eq!(house.cli(&["send", "t1", "--eof"]).code, 0);
    });
}

/// The supervisor's fields were told, `for.text`, and a drawing of three lines.
#[test]
fn a_wrong_pattern_is_told_with_its_flag_in_one_line() {
    in_empty_house(async |house| {
        for (args, flag) in [
            (&["read", "t1", "--match", "("][..], "--match <RE>"),
            (&["wait", "t1", "--for", "text=("], "--for <WHAT>"),
        ] {
            let said = house.cli(args);
            assert_eq!(said.code, 2);
            let first = said.err.lines().next().unwrap();
            assert!(first.contains(flag), "{first}");
            assert!(
                first.ends_with(": is no regular expression: unclosed group"),
                "{first}"
            );
        }
    });
}

/// An error alone, of which nobody knew what next.
#[test]
fn what_is_not_found_is_told_with_where_it_was_looked_for() {
    in_house(async |house| {
        let said = house.cli(&["run", "--", "no-such-program-9"]);
        assert_eq!(said.code, 127);
        assert!(
            said.err.ends_with("hint: it is in no folder of PATH\n"),
            "{said:?}"
        );
        let said = house.cli(&["run", "--", "./nope"]);
        assert_eq!(said.code, 127);
        assert!(
            said.err
                .contains("hint: a path counts from the working directory, "),
            "{said:?}"
        );
        let said = house.cli(&["show", "proc_"]);
        let words = "error: job proc_ is not unique: 2 begin with that\nhint: give more of it; whole ones: ostler ls --json\n";
        assert_eq!((said.code, said.err.as_str()), (125, words));
        let said = house.cli(&["session", "open", "a b"]);
        assert!(
            said.err
                .starts_with("error: the session may not contain ' '"),
            "{said:?}"
        );
    });
}

/// A job that was named by its id and by its name was told twice.
#[test]
fn a_job_that_is_named_twice_is_told_once() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        let said = house.cli(&["stop", "t1", "t99", "web"]);
        assert_eq!(said.code, 125);
        assert_eq!(said.out.lines().count(), 1, "{said:?}");
        assert!(said.out.starts_with("t1  stopped in "), "{said:?}");
        assert_eq!(
            said.err,
            "error: no job t99 in this session\nhint: ostler ls\n"
        );
        let said = house.cli(&["wait", "t1", "web"]);
        assert_eq!(said.err, "t1 (web) was stopped by the user\n");
    });
}

/// A slip of the pen, and an id of the agent next door.
#[test]
fn a_near_miss_is_told_with_what_may_have_been_meant() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        house.cli(&[
            "start",
            "--session",
            "agent",
            "--name",
            "api",
            "--",
            puppet(),
            "sleep",
        ]);
        house.cli(&["start", "--session", "agent", "--", puppet(), "sleep"]);
        for (args, hint) in [
            (&["stop", "wbe"][..], "web"),
            (&["stop", "wbe", "wbe"], "web"),
            (&["show", "wen"], "web"),
            (&["tail", "wbe"], "web"),
            (&["read", "wbe"], "web"),
            (&["wait", "wbe"], "web"),
            (&["send", "wbe", "x"], "web"),
            (&["signal", "wbe", "INT"], "web"),
            (&["detach", "wbe"], "web"),
            (&["show", "apj"], "agent/api"),
            (&["show", "t2"], "agent/t2"),
        ] {
            let said = house.cli(args);
            assert_eq!(said.code, 125, "{args:?}");
            assert!(
                said.err
                    .contains(&format!("\nhint: did you mean {hint}?\n")),
                "{args:?}: {said:?}"
            );
        }
        assert_eq!(
            house.cli(&["show", "t9"]).err,
            "error: no job t9 in this session\nhint: ostler ls\n"
        );
        assert_eq!(
            house.cli(&["ls", "-q", "--live"]).out.lines().count(),
            3,
            "nothing was ended by a guess"
        );
    });
}

/// The hint named a job of another session, or one that was never meant.
#[test]
fn of_a_job_in_another_session_only_that_session_is_searched() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        for session in ["nightly", "empty"] {
            house.cli(&[
                "start",
                "-q",
                "--session",
                session,
                "--name",
                "api",
                "--",
                "true",
            ]);
        }
        house.cli(&["rm", "empty/t1"]);
        for (args, err) in [
            (
                &["show", "b/t1"][..],
                "error: no session b\nhint: ostler session ls\n",
            ),
            (
                &["show", "nightyl/t1"],
                "error: no session nightyl\nhint: did you mean nightly/t1?\n",
            ),
            (
                &["stop", "nightly/apj"],
                "error: no job apj in session nightly\nhint: did you mean nightly/api?\n",
            ),
            (
                &["tail", "nightly/web"],
                "error: no job web in session nightly\nhint: ostler ls --session nightly\n",
            ),
        ] {
            let said = house.cli(args);
            assert_eq!((said.code, said.err.as_str()), (125, err), "{args:?}");
        }
    });
}

/// The code alone, of which nobody knew whether it was the program's own.
#[test]
fn a_wait_says_that_its_job_died_of_a_signal() {
    in_house(async |house| {
        house.cli(&["start", "-c", "kill -SEGV $$"]);
        let said = house.cli(&["wait", "t1"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (139, "t1 died of SIGSEGV\n")
        );
        house.cli(&["start", "--", puppet(), "exit", "139"]);
        let said = house.cli(&["wait", "t2"]);
        assert_eq!((said.code, said.err.as_str()), (139, ""));
    });
}

/// It said nothing and meant success, of a job that had ended and of one that nobody held.
#[test]
fn a_detach_says_what_is_true() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        let said = house.cli(&["detach", "web"]);
        assert_eq!((said.code, said.out.as_str()), (0, "t1\n"));
        assert_eq!(said.err, "note: t1 (web) already runs in the background\n");
        assert_eq!(house.cli(&["detach", "-q", "web"]).err, "");
        house.cli(&["run", "--", puppet(), "exit", "3"]);
        let said = house.cli(&["detach", "t2"]);
        assert_eq!((said.code, said.out.as_str()), (125, ""));
        assert_eq!(
            said.err,
            "error: t2 has ended: it exited with code 3\nhint: ostler tail t2\n"
        );
        let mut run = house.terminal(&format!("ostler run -- {} say here , sleep", puppet()));
        run.shows("here");
        let said = house.cli(&["detach", "t3"]);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (0, "t3\n", "")
        );
        let (code, screen) = run.ends();
        assert_eq!((code, screen.trim()), (125, "t3 goes on in the background"));
    });
}

/// The advice did not help: `chmod` for a folder, a field of the protocol for a flag, a variable named `A=B`.
#[test]
fn advice_fits_what_was_typed() {
    in_house(async |house| {
        let said = house.cli(&["run", "--", "/tmp"]);
        assert_eq!(said.code, 126);
        assert_eq!(
            said.err,
            "error: cannot run \"/tmp\": permission denied\nhint: it is a folder, not a program\n"
        );
        house.cli(&["run", "-c", r"printf '\377'"]);
        let said = house.cli(&["read", "t2", "--strict"]);
        assert_eq!(said.code, 125);
        assert!(
            said.err
                .ends_with("\nhint: without --strict the bytes come as they are\n"),
            "{said:?}"
        );
        let said = house.cli(&["run", "--unset", "A=B", "--", "true"]);
        assert_eq!(said.code, 2);
        assert!(said.err.contains("must be a name alone"), "{said:?}");
    });
}

/// Without its keeper nothing begins or ends, and nobody said so.
#[test]
fn a_stopped_keeper_is_told_and_waited_for() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let hello = house.info().await.hello;
        let keeper = Process::of(hello.keeper_pid).expect("it has just started a job");
        keeper.signal(libc::SIGSTOP);
        let pid = hello.keeper_pid;
        let stopped = format!("the keeper (pid {pid}) is stopped; kill -CONT {pid} lets it go on");
        let said = house.cli(&["start", "--", puppet(), "exit", "0"]);
        assert_eq!((said.code, said.out.as_str()), (0, "t2\n"));
        assert_eq!(said.err, format!("note: t2 is starting: {stopped}\n"));
        let mut stop = house.terminal("ostler stop t1 2>&1 | cat");
        let mut run = house.terminal(&format!("ostler run -q -- {} exit 3", puppet()));
        for waiting in [&mut stop, &mut run] {
            waiting.shows("note: waiting for 2 s: ");
            waiting.shows(&stopped);
        }
        keeper.signal(libc::SIGCONT);
        let (code, screen) = stop.ends();
        assert_eq!(code, 0);
        assert!(screen.trim().starts_with("t1  stopped in "), "{screen}");
        let (code, screen) = run.ends();
        assert_eq!((code, screen.trim()), (3, ""));
        assert_eq!(house.cli(&["wait", "t2"]).code, 0);
        keeper.signal(libc::SIGSTOP);
        let mut all = house.terminal("ostler daemon stop");
        all.shows("note: waiting for 2 s: ");
        keeper.signal(libc::SIGCONT);
        assert_eq!(all.ends().0, 0);
    });
}

/// It said that the supervisor was ready and nobody listened, whenever the one that had failed was slow to be gone.
#[test]
fn a_full_disk_is_named_at_the_first_start() {
    in_empty_house(async |house| {
        let folder = house.folders().run.clone();
        let Some(disk) = Mount::disk(&folder, 64 << 10) else {
            return;
        };
        // The lock file finds no room, then the key: a page is left for the first of them.
        for (pages, file) in [(16, "house.lock"), (15, "owner.key")] {
            let fill = vec![0; pages * 4096];
            fs::write(folder.join("fill"), fill).unwrap();
            for _ in 0..10 {
                let said = house.cli(&["run", "--", "true"]);
                assert_eq!((said.code, said.out.as_str()), (125, ""));
                // On a busy machine it may be told before that it takes long.
                let lines: Vec<&str> = said
                    .err
                    .lines()
                    .skip_while(|l| l.starts_with("note: "))
                    .collect();
                assert!(
                    lines[0].starts_with("error: the supervisor did not start: "),
                    "{said:?}"
                );
                assert!(lines[0].contains(file), "{said:?}");
                assert!(lines[0].contains("No space left on device"), "{said:?}");
                let path = folder.display();
                assert_eq!(
                    lines[1],
                    format!("hint: make room: df -h {path}; df -i {path}")
                );
            }
            fs::remove_file(folder.join("fill")).unwrap();
            let _ = fs::remove_file(folder.join("house.lock"));
        }
        disk.resize(8 << 20);
        assert_eq!(house.cli(&["run", "--", "true"]).err, "");
        assert_eq!(house.cli(&["daemon", "stop"]).code, 0);
    });
}

/// `no line matches` was said of a log most of which was gone.
#[test]
fn a_search_tells_what_it_could_not_look_at() {
    in_house(async |house| {
        let line = format!(
            "ostler start --no-spill --name big -- {} out 600000",
            puppet()
        );
        house.shell(&line);
        house.cli(&["wait", "big"]);
        let said = house.cli(&["read", "big", "--match", "^nothing$"]);
        assert!(
            said.err.contains("are lost and were not looked at"),
            "{said:?}"
        );
    });
}

/// A slip in what destroys was success, and what was meant ran on.
#[test]
fn a_slip_in_what_forgets_or_stops_is_no_success() {
    in_house(async |house| {
        house.shell(&format!(
            "ostler start --session nightly --name mine -- {} sleep",
            puppet()
        ));
        for (line, near) in [
            ("ostler rm --session nightly mnie", "mine"),
            ("ostler rm --json --session nightly mnie", "mine"),
            ("ostler shell close --session nightly mnie", "mine"),
            ("ostler stop --all --session nightyl", "nightly"),
        ] {
            let said = house.shell(line);
            assert_eq!(said.code, 125, "{line}: {said:?}");
            assert!(
                said.err.contains(&format!("did you mean {near}"))
                    || said.err.contains(&format!("did you mean nightly/{near}")),
                "{line}: {said:?}"
            );
        }
        let said = house.shell("ostler session close night");
        assert_eq!(said.code, 2, "{said:?}");
        // What was forgotten before is forgotten, also where others are like it.
        house.shell("ostler rm --session nightly mine");
        let said = house.shell("ostler rm --session nightly t1");
        assert_eq!(said.code, 0, "{said:?}");
    });
}
