//! Promise: TAB offers what is there at this moment, starts nothing, and never makes anybody wait.

use std::process::Command;
use std::time::{Duration, Instant};

use ostler_proto::methods::{Nothing, SupervisorInfo};
use ostler_tests::process::Process;
use ostler_tests::{House, in_empty_house, in_house, puppet};

/// What bash offers behind these words, the last of which is being typed.
fn offered(house: &House, words: &[&str]) -> Vec<String> {
    const SCRIPT: &str = r#"
        . <(ostler completions bash)
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        COMP_TYPE=9
        _clap_complete_ostler ostler "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let quoted: Vec<String> = words.iter().map(|w| format!("'{w}'")).collect();
    let said = house.shell(&format!(
        "bash -c '{}' bash {}",
        SCRIPT.replace('\'', r"'\''"),
        quoted.join(" ")
    ));
    assert_eq!((said.code, said.err.as_str()), (0, ""), "{words:?}");
    said.out
        .lines()
        .filter(|l| !l.is_empty())
        .map(str::to_owned)
        .collect()
}

#[test]
fn bash_offers_commands_flags_ids_names_and_sessions() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        house.cli(&["start", "--", puppet(), "exit", "0"]);
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
        house.cli(&["wait", "t2"]);
        assert_eq!(offered(house, &["ostler", "st"]), ["start", "stop"]);
        assert!(offered(house, &["ostler", "stop", "--"]).contains(&"--force".to_owned()));
        let live = offered(house, &["ostler", "stop", ""]);
        for job in ["web", "t1", "agent/api", "agent/t1"] {
            assert!(live.contains(&job.to_owned()), "{job}: {live:?}");
        }
        assert!(!live.contains(&"t2".to_owned()), "it is over: {live:?}");
        assert!(offered(house, &["ostler", "tail", "t"]).contains(&"t2".to_owned()));
        assert_eq!(offered(house, &["ostler", "wait", "we"]), ["web"]);
        assert_eq!(offered(house, &["ostler", "stop", "t1", "we"]), ["web"]);
        assert_eq!(
            offered(house, &["ostler", "stop", "--session", "ag"]),
            ["agent"]
        );
        assert_eq!(
            offered(house, &["ostler", "stop", "--session", "agent", "a"]),
            ["api"]
        );
        assert_eq!(
            offered(house, &["ostler", "session", "close", "ag"]),
            ["agent"]
        );
        let offers = |words: &[&str], word: &str| {
            let offered = offered(house, words);
            assert!(offered.contains(&word.to_owned()), "{words:?}: {offered:?}");
        };
        for what in ["exit", "text=", "port=", "tcp=", "quiet="] {
            offers(&["ostler", "wait", "--for", &what[..1]], what);
        }
        offers(&["ostler", "signal", "web", "H"], "HUP");
        offers(&["ostler", "signal", "web", "US"], "USR2");
        // What is offered works.
        for job in live.iter().filter(|job| !job.starts_with('-')) {
            assert_eq!(house.cli(&["stop", job]).code, 0, "{job}");
        }
    });
}

#[test]
fn completing_starts_no_supervisor() {
    in_empty_house(async |house| {
        assert_eq!(offered(house, &["ostler", "sto"]), ["stop"]);
        let offered = offered(house, &["ostler", "stop", ""]);
        assert!(
            offered.iter().all(|word| word.starts_with('-')),
            "{offered:?}"
        );
        assert!(
            house.marks().living().is_empty(),
            "TAB started a supervisor"
        );
        assert!(!house.folders().house_lock().exists());
    });
}

#[test]
fn a_supervisor_that_does_not_answer_has_no_ids_and_keeps_nobody() {
    in_house(async |house| {
        house.cli(&["start", "--name", "web", "--", puppet(), "sleep"]);
        let hello = house
            .desk_without_session()
            .must::<SupervisorInfo>(Nothing {})
            .await
            .hello;
        let supervisor = Process::of(hello.pid).expect("it has just answered");
        supervisor.signal(libc::SIGSTOP);
        let began = Instant::now();
        let offered = offered(house, &["ostler", "stop", "w"]);
        let took = began.elapsed();
        supervisor.signal(libc::SIGCONT);
        assert!(offered.is_empty(), "{offered:?}");
        // `daemon status` waits 2 s for such a one.
        assert!(took < Duration::from_millis(1_900), "{took:?}");
    });
}

/// Each script is one that its shell can read, where the shell is here.
#[test]
fn the_scripts_of_all_shells_can_be_read_by_them() {
    in_empty_house(async |house| {
        for (shell, check) in [
            ("bash", "bash -n script"),
            ("zsh", "zsh -n script"),
            ("fish", "fish --no-execute script"),
            ("elvish", "elvish -compileonly script"),
            ("powershell", ""),
        ] {
            let script = house.cli(&["completions", shell]);
            assert_eq!((script.code, script.err.as_str()), (0, ""), "{shell}");
            assert!(script.out.contains("OSTLER_COMPLETE"), "{shell}");
            std::fs::write(house.file("script"), script.out).unwrap();
            let here = Command::new(shell).arg("-c").arg("").output().is_ok();
            if !here || check.is_empty() {
                ostler_tests::skip(&format!("no {shell} here to read its script"));
                continue;
            }
            let read = house.shell(check);
            assert_eq!((read.code, read.err.as_str()), (0, ""), "{shell}");
        }
        let said = house.cli(&["completions", "tcsh"]);
        assert_eq!(said.code, 2);
        assert!(
            said.err.contains("bash, zsh, fish, elvish, powershell"),
            "{said:?}"
        );
    });
}
