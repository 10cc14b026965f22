//! Promise: the sessions of agents can be seen, named, taken over and left at the command line.

use serde_json::Value;

use ostler_tests::{House, in_empty_house, in_house, puppet, redacted};

fn start(house: &House, session: &str) {
    let said = house.cli(&["start", "-q", "--session", session, "--", puppet(), "sleep"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

/// Walk 5: an agent crashed, and a person goes on with its jobs.
#[test]
fn the_jobs_of_an_agent_are_adopted_with_their_new_ids() {
    in_empty_house(async |house| {
        assert_eq!(house.cli(&["start", "--", puppet(), "sleep"]).out, "t1\n");
        start(house, "claude-7k2");
        start(house, "claude-7k2");
        let said = house.cli(&["session", "adopt", "claude-7k2"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        assert_eq!(
            said.out,
            "claude-7k2/t1 is now t2\nclaude-7k2/t2 is now t3\n"
        );
        assert_eq!(house.cli(&["ls", "-q", "--live"]).out.lines().count(), 3);
        // The old name is still good for the new owner.
        assert_eq!(house.cli(&["stop", "claude-7k2/t1"]).code, 0);
        assert_eq!(house.cli(&["ls", "-q", "--live"]).out.lines().count(), 2);
        let again = house.cli(&["session", "adopt", "nobody"]);
        assert_eq!(again.code, 125);
        assert!(
            again.err.starts_with("error: no session nobody\nhint: "),
            "{again:?}"
        );
    });
}

/// Whose project it is need not have started anything.
#[test]
fn a_project_without_a_session_gets_one_when_it_adopts() {
    in_house(async |house| {
        start(house, "agent");
        let said = house.cli(&["session", "adopt", "agent"]);
        assert_eq!((said.code, said.out.as_str()), (0, "agent/t1 is now t1\n"));
        start(house, "agent");
        // Into one that is named, nothing is made by a slip.
        let said = house.cli(&["session", "adopt", "agent", "--into", "nightyl"]);
        assert_eq!(said.code, 125);
        assert_eq!(house.cli(&["session", "ls"]).out.lines().count(), 2);
        house.cli(&["session", "open", "nightly"]);
        let said = house.cli(&["session", "adopt", "agent", "--into", "nightly"]);
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, "agent/t1 is now nightly/t1\n")
        );
        let said = house.cli(&["session", "adopt", "nightly", "-q"]);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (0, "t2\n", "")
        );
    });
}

#[test]
fn a_session_is_renamed_and_its_jobs_go_on_under_the_new_name() {
    in_house(async |house| {
        start(house, "claude-7k2");
        let said = house.cli(&["session", "rename", "claude-7k2", "nightly"]);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (0, "nightly\n", "")
        );
        // As the next command needs it.
        let ids = house.cli(&["ls", "-q", "--session", "nightly"]).out;
        assert_eq!(ids, "nightly/t1\n");
        let said = house.cli(&["session", "rename", "nightly", "a/b"]);
        assert_eq!(said.code, 2);
        let json = house
            .cli(&["session", "rename", "nightly", "n2", "--json"])
            .out;
        let moved: serde_json::Value = serde_json::from_str(&json).expect("one JSON value");
        assert_eq!(moved["session"]["id"], "n2");
        assert_eq!(house.cli(&["stop", "n2/t1"]).code, 0);
    });
}

#[test]
fn a_lease_is_set_shown_and_taken_back() {
    in_house(async |house| {
        house.cli(&["session", "open", "n", "--lease", "30s"]);
        let lease = || {
            let table = redacted(&house.cli(&["session", "ls"]).out);
            table.trim().rsplit('\t').next().unwrap().to_owned()
        };
        let shown = lease();
        assert!(
            shown.starts_with("ends in ") || shown == "30 s without a client",
            "{shown}"
        );
        house.cli(&["session", "open", "n", "--keep"]);
        assert_eq!(lease(), "until closed");
        assert_eq!(
            house
                .cli(&["session", "open", "n", "--keep", "--lease", "1s"])
                .code,
            2
        );
    });
}

#[test]
fn ends_are_listed_until_they_are_confirmed() {
    in_house(async |house| {
        let started = house.cli(&[
            "start",
            "--json",
            "--name",
            "build",
            "--",
            puppet(),
            "exit",
            "3",
        ]);
        let row: Value = serde_json::from_str(&started.out).unwrap();
        let id = row["processId"].as_str().unwrap();
        house.desk_without_session().over(id).await;
        let mut said = house.cli(&["session", "notices"]);
        said.out = redacted(&said.out);
        assert_eq!(
            (said.code, said.out.as_str()),
            (0, "1  t1 (build) exited with code 3: puppet exit 3\n")
        );
        assert_eq!(
            redacted(&house.cli(&["session", "notices"]).out),
            said.out,
            "looking confirms nothing"
        );
        assert_eq!(house.cli(&["session", "notices", "--seen", "1"]).out, "");
        assert_eq!(house.cli(&["session", "notices"]).out, "");
        assert_eq!(house.cli(&["session", "notices", "nobody"]).code, 0);
        // Who waits for it, reads all of it or ends it needs no notice.
        house.cli(&["start", "--", puppet(), "exit", "3"]);
        house.cli(&["wait", "t2"]);
        house.cli(&["start", "--", puppet(), "say", "hello"]);
        house.cli(&["tail", "-f", "t3"]);
        house.cli(&["start", "--", puppet(), "sleep"]);
        house.cli(&["stop", "t4"]);
        assert_eq!(house.cli(&["session", "notices"]).out, "");
    });
}

/// What a job of an explicit session starts stands beside it.
#[test]
fn a_job_that_starts_a_job_does_so_in_its_own_session() {
    in_empty_house(async |house| {
        let told = house.shell("ostler run --session inner -c 'ostler start -- sleep 100' && ostler ls -q --session inner --live");
        assert_eq!(
            (told.code, told.out.as_str()),
            (0, "t2\ninner/t2\n"),
            "{told:?}"
        );
        let told = house.cli(&["signal", "inner/t1", "TERM"]);
        assert!(told.err.contains("t1 has ended"), "{told:?}");
    });
}

/// `start --session nightyl` made a session of that name in silence, and its job was looked for in `nightly`.
#[test]
fn a_session_that_was_made_by_a_start_is_told_once() {
    in_house(async |house| {
        start(house, "nightly");
        let said = |args: &[&str]| {
            let said = house.cli(&[args, &["--", puppet(), "exit", "0"]].concat());
            assert_eq!(said.code, 0, "{said:?}");
            said.err
        };
        let slip = "note: session nightyl is new; did you mean nightly?\n";
        assert_eq!(said(&["start", "--session", "nightyl"]), slip);
        assert_eq!(said(&["start", "--session", "nightyl"]), "");
        let made = "note: session build is new\n";
        assert_eq!(said(&["run", "--session", "build"]), made);
        assert_eq!(said(&["run", "--session", "build"]), "");
        assert_eq!(said(&["run", "-q", "--session", "other"]), "");
        let line = format!("OSTLER_SESSION=agent-1 ostler start -- {} exit 0", puppet());
        assert_eq!(house.shell(&line).err, "note: session agent-1 is new\n");
        // The session of the project is nobody's slip.
        assert_eq!(said(&["start"]), "");
    });
}

/// Only these three took their session as a word alone.
#[test]
fn commands_about_a_session_take_it_as_a_flag_too() {
    in_house(async |house| {
        start(house, "n");
        house.cli(&["signal", "n/t1", "KILL"]);
        house.desk_without_session().over("n/t1").await;
        let word = house.cli(&["session", "notices", "n"]);
        let flag = house.cli(&["session", "notices", "--session", "n"]);
        assert_eq!((word.out.lines().count(), word), (1, flag));
        let both = house.cli(&["session", "notices", "n", "--session", "n"]);
        assert_eq!(both.code, 2);
        let mut watch = house.terminal("ostler session watch --session n");
        // It may see the start only from the moment on at which it watches.
        let began = std::time::Instant::now();
        while !watch.has_shown("n/t") {
            assert!(began.elapsed() < ostler_tests::PATIENCE, "it shows nothing");
            house.cli(&["run", "--session", "n", "--", "true"]);
        }
        let said = house.cli(&["session", "close", "--session", "n"]);
        assert_eq!((said.code, said.err.as_str()), (0, "closed n\n"));
        let (code, shown) = watch.ends();
        assert_eq!(code, 0, "{shown}");
        for every in ["--all", "--everywhere", "-A"] {
            assert_eq!(house.cli(&["ls", every, "-q"]).code, 0, "{every}");
        }
    });
}

/// The next start made a second session of the project in silence, and the jobs of the first were not found.
#[test]
fn the_rename_of_a_projects_own_session_says_what_the_next_start_does() {
    in_house(async |house| {
        house.cli(&["start", "--", puppet(), "sleep"]);
        let said = house.cli(&["session", "rename", "f", "nightly"]);
        assert_eq!((said.code, said.out.as_str()), (0, "nightly\n"));
        let root = house.file(".").canonicalize().unwrap();
        let note = format!(
            "note: a start in {} makes a new session; with --session nightly it goes on in this one\n",
            root.display()
        );
        assert_eq!(said.err, note);
        let said = house.cli(&["start", "--session", "nightly", "--", puppet(), "sleep"]);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("t2\n", ""));
        assert_eq!(house.cli(&["session", "rename", "nightly", "n2"]).err, "");
    });
}
