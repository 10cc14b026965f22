//! Promise: a shell stays. Its directory, variables and programs last; a line gives exactly its output, its code and
//! its directory; whoever waits is told why the wait is over, by evidence and not by guess; nothing of it is left.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use ostler_proto::job::{Outcome, Row, State};
use ostler_proto::methods::{
    For, JobList, JobRead, JobResize, JobScreen, JobSignal, JobWait, JobWrite, List, Read, Reason,
    Resize, ShellClose, ShellExec, ShellList, ShellOpen, ShellRead, ShellSend, SignalJob, Target,
    Wait, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::screen::Look;
use ostler_proto::shell::{Exec, Executed, OpenShell, OpenedShell, ReadShell, Send, Sent};
use ostler_tests::{
    Desk, House, PATIENCE, in_house as in_any_house, in_house_of_shells as in_house, installed,
    process, rounds, within,
};

/// The shells whose prompts are marked. One that is not installed is skipped, loudly.
const SHELLS: &[&str] = &["bash", "zsh", "dash", "fish"];

fn shells() -> impl Iterator<Item = &'static str> {
    SHELLS.iter().copied().filter(|s| installed(s))
}

/// Those that read what `sh` reads.
fn posix() -> impl Iterator<Item = &'static str> {
    shells().filter(|s| *s != "fish")
}

/// A request for a shell whose home is a folder of the test.
fn plain(house: &House, program: &[&str]) -> OpenShell {
    let path = std::env::var("PATH").unwrap_or_default();
    let env = [
        ("HOME", house.path("home")),
        ("PATH", path),
        ("TERM", "xterm-256color".into()),
    ];
    fs::create_dir_all(house.file("home")).expect("a home can be made");
    // Root keeps what it makes for itself; the house may run as somebody else.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(house.file("home"), open).expect("it is ours");
    OpenShell {
        args: program.iter().map(|a| (*a).to_owned()).collect(),
        cwd: Some("/".into()),
        env: env.map(|(k, v)| (k.to_owned(), Some(v))).into(),
        env_replace: true,
        wait_ms: Some(20_000),
        ..OpenShell::default()
    }
}

async fn open(desk: &Desk, request: OpenShell) -> OpenedShell {
    let opened = desk.must::<ShellOpen>(request).await;
    assert!(opened.ready, "{opened:?}");
    opened
}

/// Opens a shell without start files of anybody.
async fn shell(house: &House, desk: &Desk, program: &str) -> String {
    let opened = open(desk, plain(house, &[program])).await;
    assert_eq!(opened.reason, Some(Reason::Prompt), "{program}");
    assert!(opened.exec, "{program}");
    opened.row.id
}

fn exec(id: &str, line: &str) -> Exec {
    Exec {
        id: id.into(),
        line: line.into(),
        timeout_ms: Some(20_000),
        ..Exec::default()
    }
}

async fn run(desk: &Desk, id: &str, line: &str) -> Executed {
    desk.must::<ShellExec>(exec(id, line)).await
}

/// Runs a line that ends; returns its output and its code.
async fn done(desk: &Desk, id: &str, line: &str) -> (String, i32) {
    let executed = run(desk, id, line).await;
    assert_eq!(executed.reason, Reason::Prompt, "{line}: {executed:?}");
    (
        executed.output.expect("text was asked for"),
        executed.exit_code.unwrap_or(-1),
    )
}

fn typed(id: &str, text: &str) -> Send {
    Send {
        id: id.into(),
        text: text.into(),
        timeout_ms: Some(20_000),
        ..Send::default()
    }
}

async fn send(desk: &Desk, id: &str, text: &str) -> Sent {
    desk.must::<ShellSend>(typed(id, text)).await
}

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

/// E1.
#[test]
fn a_directory_a_variable_and_a_function_stay() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let ran = run(&desk, &id, "cd /tmp; export A=b; f() { echo from-$A; }").await;
            assert_eq!(ran.cwd.as_deref(), Some("/tmp"), "{program}");
            assert_eq!(
                done(&desk, &id, "pwd; f").await,
                ("/tmp\nfrom-b\n".into(), 0)
            );
            assert_eq!(done(&desk, &id, "sh -c 'echo $A'").await, ("b\n".into(), 0));
        }
        if installed("fish") {
            let id = shell(house, &desk, "fish").await;
            let ran = run(
                &desk,
                &id,
                "cd /tmp; set -x A b; function f; echo from-$A; end",
            )
            .await;
            assert_eq!(ran.cwd.as_deref(), Some("/tmp"));
            assert_eq!(
                done(&desk, &id, "pwd; f").await,
                ("/tmp\nfrom-b\n".into(), 0)
            );
        }
    });
}

#[test]
fn output_and_code_of_a_line_are_exact() {
    in_house(async |house, desk| {
        fs::create_dir_all(house.file("home/é x")).expect("it can be made");
        let lines: &[(&str, &str, i32)] = &[
            ("echo a", "a\n", 0),
            ("printf no-newline", "no-newline", 0),
            ("true", "", 0),
            ("false", "", 1),
            ("", "", 0),
            ("   ", "", 0),
            ("sh -c 'exit 7'", "", 7),
            ("printf 'a\\n\\n\\nb'", "a\n\n\nb", 0),
            ("printf '\\r\\n\\ttab\\r'", "\r\n\ttab\r", 0),
            ("cd \"$HOME/é x\"; cd /; echo é", "é\n", 0),
            ("printf '\\033[1mbold\\033[m'", "\u{1b}[1mbold\u{1b}[m", 0),
            (
                "echo '$HOME `x` \\ \" ! # ~ * ?'",
                "$HOME `x` \\ \" ! # ~ * ?\n",
                0,
            ),
            (
                "printf '\\033]133;D;0\\007\\033]133;C\\007x'",
                "\u{1b}]133;D;0\u{7}\u{1b}]133;C\u{7}x",
                0,
            ),
        ];
        for program in shells() {
            let id = shell(house, &desk, program).await;
            for (line, output, code) in lines {
                // It takes foreign marks off its own output, and reads a backslash in single quotes.
                if program == "fish" && (line.contains("]133") || line.contains('\\')) {
                    continue;
                }
                // Its echo reads backslashes.
                if program == "dash" && line.contains("\\ \"") {
                    continue;
                }
                let ran = done(&desk, &id, line).await;
                assert_eq!(ran, ((*output).into(), *code), "{program}: {line}");
            }
            let (said, code) = done(&desk, &id, "no-such-program").await;
            assert!(
                said.contains("no-such-program") && !said.contains("__ost"),
                "{said}"
            );
            assert_eq!(code, 127, "{program}");
        }
    });
}

#[test]
fn a_text_of_many_lines_passes_no_line_editor() {
    in_house(async |house, desk| {
        let long = "x".repeat(100_000);
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let text = "cat <<'END'\na'b\n\ttab $x\nEND\nfor i in 1 2; do\n  echo $i\ndone\nif true; then echo yes; fi\n(exit 4)";
            let (said, code) = done(&desk, &id, text).await;
            assert_eq!(
                (said.as_str(), code),
                ("a'b\n\ttab $x\n1\n2\nyes\n", 4),
                "{program}"
            );
            let (said, code) = done(&desk, &id, &format!("A={long}; echo ${{#A}}")).await;
            assert_eq!((said.as_str(), code), ("100000\n", 0), "{program}");
            let many: String = (0..3_000).map(|n| format!("echo {n}\n")).collect();
            let ran = desk
                .must::<ShellExec>(Exec {
                    max: Some(1024 * 1024),
                    ..exec(&id, &many)
                })
                .await;
            let wanted: String = (0..3_000).map(|n| format!("{n}\n")).collect();
            assert_eq!(ran.output, Some(wanted), "{program}");
        }
    });
}

#[test]
fn what_is_no_whole_command_is_an_error_and_never_a_shell_that_waits_for_the_rest() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            for line in ["echo 'open", "echo )", "if true", "(", "echo \"a"] {
                if program == "fish" && line == "if true" {
                    continue;
                }
                let ran = run(&desk, &id, line).await;
                assert_eq!(ran.reason, Reason::Prompt, "{program}: {line}: {ran:?}");
                assert_ne!(ran.exit_code, Some(0), "{program}: {line}: {ran:?}");
                assert_eq!(
                    done(&desk, &id, "echo fine").await,
                    ("fine\n".into(), 0),
                    "{program}: {line}"
                );
            }
        }
        let id = shell(house, &desk, "bash").await;
        let refused = desk.refused::<ShellExec>(exec(&id, "a\0b")).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
    });
}

#[test]
fn random_bytes_come_back_as_they_were() {
    in_house(async |house, desk| {
        let file = house.path("home/random");
        let mut state = 7u64;
        let bytes: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 56) as u8
        })
        .take(200_000)
        .collect();
        for program in posix() {
            let id = shell(house, &desk, program).await;
            fs::write(&file, &bytes).expect("it can be written");
            let ran = desk
                .must::<ShellExec>(Exec {
                    raw: true,
                    max: Some(1024 * 1024),
                    ..exec(&id, &format!("cat {file}"))
                })
                .await;
            use base64::Engine as _;
            let got = base64::engine::general_purpose::STANDARD.decode(ran.base64.unwrap());
            assert!(got.unwrap() == bytes, "{program}");
            // Nothing of it was taken for a question, and answered into the next line.
            assert_eq!(
                done(&desk, &id, "echo next").await,
                ("next\n".into(), 0),
                "{program}"
            );
        }
    });
}

#[test]
fn long_output_is_handed_back_as_begin_and_end_and_the_rest_can_be_read() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        let ran = run(
            &desk,
            &id,
            "for ((i = 100000; i < 140000; i++)); do echo $i; done",
        )
        .await;
        assert!(ran.truncated, "{ran:?}");
        assert!(
            ran.output
                .as_deref()
                .unwrap()
                .starts_with("100000\n100001\n")
        );
        assert!(ran.tail.ends_with("139998\n139999\n"));
        // Seven bytes a line, and a carriage return from the terminal.
        let (page, bytes) = desk.read_raw(&id, ran.from + 20_000 * 8, 8).await;
        assert_eq!((page.lost, bytes.as_slice()), (0, &b"120000\r\n"[..]));
        // What was not read does not show up in the next line (bug report 043).
        assert_eq!(done(&desk, &id, "echo X").await, ("X\n".into(), 0));
    });
}

/// Bug report 070, and 1,000 of it by hand.
#[test]
fn a_thousand_lines_give_each_its_own_output_and_code() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            for n in 0..rounds("OSTLER_EXECS", 50) {
                let code = n % 250;
                let line = format!("false; true; cd /tmp; printf no-newline{n}; (exit {code})");
                let ran = run(&desk, &id, &line).await;
                assert_eq!(
                    (ran.output, ran.exit_code, ran.cwd.as_deref()),
                    (
                        Some(format!("no-newline{n}")),
                        Some(code as i32),
                        Some("/tmp")
                    ),
                    "{program}"
                );
            }
        }
    });
}

/// Bug report 071.
#[test]
fn strict_options_break_no_line_and_an_end_is_an_end() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let options = if program == "dash" {
                "set -eu"
            } else {
                "set -euo pipefail"
            };
            assert_eq!(
                done(&desk, &id, options).await,
                (String::new(), 0),
                "{program}"
            );
            assert_eq!(
                done(&desk, &id, "echo a").await,
                ("a\n".into(), 0),
                "{program}"
            );
            assert_eq!(
                done(&desk, &id, "x=1; echo $x").await,
                ("1\n".into(), 0),
                "{program}"
            );
            let ran = run(&desk, &id, "echo last; false").await;
            assert_eq!(
                (ran.reason, ran.exit_code),
                (Reason::Exit, Some(1)),
                "{program}: {ran:?}"
            );
            assert!(ran.output.unwrap().starts_with("last\n"));
        }
        let id = shell(house, &desk, "bash").await;
        done(&desk, &id, "set -u").await;
        let (said, code) = done(&desk, &id, "echo $UNSET").await;
        assert!(said.contains("UNSET"), "{said}");
        assert_eq!(code, 1);
        assert_eq!(done(&desk, &id, "echo on").await, ("on\n".into(), 0));
    });
}

/// Bug report 073, E15.
#[test]
fn a_replaced_prompt_does_not_hang_the_next_line() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let lines: &[&str] = match program {
                "bash" => &[
                    "PS1='$ '; PROMPT_COMMAND=",
                    "unset PROMPT_COMMAND PS0; PS1=x",
                    "readonly PS1 PROMPT_COMMAND",
                ],
                "zsh" => &[
                    "PS1='$ '; precmd_functions=()",
                    "unset PROMPT_EOL_MARK; PS1=x",
                    "readonly PS1",
                ],
                _ => &["PS1='$ '", "PS1=x"],
            };
            for line in lines {
                assert_eq!(done(&desk, &id, line).await.1, 0, "{program}: {line}");
                for n in 0..3 {
                    let line = format!("printf {n}; (exit {n})");
                    assert_eq!(
                        done(&desk, &id, &line).await,
                        (n.to_string(), n),
                        "{program}"
                    );
                }
            }
            // Typed by a person: without our help the marks are gone until the next line of ours.
            if program == "bash" {
                continue;
            }
            let sent = send(&desk, &id, "PS1='% '\n").await;
            assert_eq!(
                sent.reason,
                if program == "dash" {
                    Reason::InputWait
                } else {
                    Reason::Prompt
                },
                "{program}: {sent:?}"
            );
        }
    });
}

#[test]
fn an_end_in_zsh_is_exact_whatever_tells_it() {
    in_house(async |house, desk| {
        if !installed("zsh") {
            return;
        }
        let id = shell(house, &desk, "zsh").await;
        // Each takes away, puts back or surrounds what tells the end of a line.
        let settings = [
            "unsetopt prompt_sp",
            "PROMPT_EOL_MARK=",
            "setopt prompt_sp",
            "unset PROMPT_EOL_MARK",
            "unsetopt prompt_cr",
            "setopt prompt_cr",
            "loud() { print loud; return 3 }; precmd_functions+=(loud)",
            "unsetopt prompt_sp",
            "setopt prompt_sp",
            "setopt ksh_arrays",
            "precmd_functions=()",
            "unsetopt ksh_arrays",
            "precmd() { print loud }",
            "unfunction precmd",
            "IFS=o",
            "setopt no_unset",
            "precmd_functions=()",
            // And what tells its beginning.
            "preexec_functions=(loud)",
            "preexec_functions=()",
            "preexec() { print loud }",
            "unfunction preexec",
            "zshaddhistory_functions=(loud $zshaddhistory_functions)",
            "zshaddhistory() { print loud }",
            "unfunction zshaddhistory",
            "zshaddhistory_functions=()",
            "setopt hist_ignore_space",
            "trap : ZERR",
            "HISTSIZE=0",
            "preexec_functions=(true); readonly preexec_functions",
        ];
        for setting in settings {
            assert_eq!(
                done(&desk, &id, setting).await,
                (String::new(), 0),
                "{setting}"
            );
            for n in 0..2 {
                assert_eq!(
                    done(&desk, &id, "true").await,
                    (String::new(), 0),
                    "{setting}"
                );
                assert_eq!(
                    done(&desk, &id, "false").await,
                    (String::new(), 1),
                    "{setting}"
                );
                // Without a line end, and no plain line.
                let line = format!("printf '{n}'; (exit {n})");
                assert_eq!(
                    done(&desk, &id, &line).await,
                    (n.to_string(), n),
                    "{setting}"
                );
                let sent = send(&desk, &id, "print $((40 + 2)); false\n").await;
                assert_eq!(sent.reason, Reason::Prompt, "{setting}: {sent:?}");
                assert!(sent.text.contains("42"), "{setting}: {sent:?}");
            }
        }
    });
}

#[test]
fn nothing_of_ours_is_seen_by_programs_and_nested_shells_and_no_file_of_the_user_is_touched() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            let (said, _) = done(&desk, &id, "env; cat /proc/$$/cmdline | tr '\\0' ' '").await;
            let nonce_is_seen = said.contains("__ost") || said.contains("133;");
            assert!(!nonce_is_seen, "{program}: {said}");
            if program != "fish" {
                let (said, _) = done(
                    &desk,
                    &id,
                    "sh -c 'echo \"[$PS1]\" \"[$ENV]\"'; set | grep -c ZDOTDIR=/ || :",
                )
                .await;
                assert!(!said.contains("133"), "{program}: {said}");
            }
            desk.must::<ShellClose>(target(&id)).await;
            let kept: Vec<_> = fs::read_dir(house.file("home"))
                .unwrap()
                .flatten()
                .map(|e| e.file_name())
                .collect();
            let ours = kept.iter().any(|n| n.to_string_lossy().contains("ost"));
            assert!(!ours, "{program}: {kept:?}");
        }
    });
}

#[test]
fn the_history_of_a_person_has_no_line_of_ours() {
    in_house(async |house, desk| {
        for program in ["bash", "zsh"].into_iter().filter(|s| installed(s)) {
            let id = shell(house, &desk, program).await;
            done(&desk, &id, "echo secret-line").await;
            send(&desk, &id, "echo typed-line\n").await;
            let (said, _) = done(
                &desk,
                &id,
                if program == "zsh" {
                    "fc -l 1"
                } else {
                    "history"
                },
            )
            .await;
            assert!(said.contains("typed-line"), "{program}: {said}");
            assert!(
                !said.contains("__ost") && !said.contains("secret-line"),
                "{program}: {said}"
            );
        }
    });
}

#[test]
fn start_files_of_the_user_are_read_and_may_be_strange() {
    in_house(async |house, desk| {
        let home = house.file("home");
        fs::create_dir_all(home.join(".config/fish")).expect("it can be made");
        let rc = "set -u\nalias ours='echo aliased'\nexport FROM_RC=yes\nPS1='my prompt> '\n";
        fs::write(
            home.join(".bashrc"),
            format!("{rc}PROMPT_COMMAND='printf loud'\n"),
        )
        .unwrap();
        fs::write(
            home.join(".zshrc"),
            format!("{rc}precmd() {{ print loud }}\nRPROMPT=right\n"),
        )
        .unwrap();
        fs::write(home.join(".zshenv"), "ZENV=read\n").unwrap();
        fs::write(
            home.join(".config/fish/config.fish"),
            "set -x FROM_RC yes\nalias ours='echo aliased'\n",
        )
        .unwrap();
        for program in ["bash", "zsh", "fish"].into_iter().filter(|s| installed(s)) {
            let id = shell(house, &desk, program).await;
            for n in 0..3 {
                let ran = done(&desk, &id, "ours $FROM_RC; sh -c 'exit 5'").await;
                assert_eq!(ran, ("aliased yes\n".into(), 5), "{program} {n}");
            }
            let clean = OpenShell {
                clean: true,
                ..plain(house, &[program])
            };
            let id = open(&desk, clean).await.row.id;
            let (_, code) = done(&desk, &id, "ours").await;
            assert_eq!(code, 127, "{program} --clean");
        }
        if installed("zsh") {
            let id = shell(house, &desk, "zsh").await;
            assert_eq!(
                done(&desk, &id, "echo $ZENV ${ZDOTDIR-none}").await.0,
                "read none\n"
            );
        }
    });
}

/// Bug report 068, E3.
#[test]
fn a_slow_start_is_no_false_ready_and_a_line_waits_for_it() {
    in_house(async |house, desk| {
        fs::create_dir_all(house.file("home")).unwrap();
        fs::write(
            house.file("home/.bashrc"),
            "sleep 1; read -t 0.1 x; echo up\n",
        )
        .unwrap();
        let slow = OpenShell {
            wait_ms: None,
            ..plain(house, &["bash"])
        };
        let began = Instant::now();
        let opened = desk.must::<ShellOpen>(slow).await;
        assert!(
            !opened.ready && began.elapsed() < Duration::from_millis(900),
            "{opened:?}"
        );
        assert_eq!(
            done(&desk, &opened.row.id, "echo first").await,
            ("first\n".into(), 0)
        );
        let silent = OpenShell {
            wait_ms: None,
            ..plain(house, &["sleep", "1000"])
        };
        let opened = desk.must::<ShellOpen>(silent).await;
        assert!(!opened.ready && opened.reason.is_none(), "{opened:?}");
        let refused = desk.refused::<ShellExec>(exec(&opened.row.id, "x")).await;
        assert_eq!(refused.kind, RefusalKind::NoInput, "{refused:?}");
    });
}

#[test]
fn a_shell_that_dies_at_its_start_says_so() {
    in_house(async |house, desk| {
        fs::create_dir_all(house.file("home")).unwrap();
        fs::write(house.file("home/.bashrc"), "echo broken; exit 7\n").unwrap();
        let opened = desk.must::<ShellOpen>(plain(house, &["bash"])).await;
        assert!(!opened.ready);
        assert_eq!(
            (opened.reason, opened.row.exit_code),
            (Some(Reason::Exit), Some(7))
        );
        assert!(opened.text.contains("broken"), "{opened:?}");
        let opened = desk
            .must::<ShellOpen>(plain(house, &["/nowhere/bash"]))
            .await;
        assert_eq!(opened.row.outcome, Some(Outcome::SpawnFailed));
        no_shell_folder(house).await;
    });
}

/// The number that somebody writes into a FIFO.
fn number(fifo: &str) -> u32 {
    let text = fs::read_to_string(fifo).expect("somebody writes");
    text.trim().parse().expect("it is a number")
}

async fn ended(desk: &Desk, id: &str) -> Row {
    desk.until(id, "its end", |r| r.row.outcome.is_some())
        .await
        .row
}

async fn said_after(desk: &Desk, id: &str, pattern: &str, since: u64) {
    let wait = Wait {
        ids: vec![id.into()],
        what: For::Text(pattern.into()),
        since,
        ..Wait::default()
    };
    assert_eq!(
        desk.must::<JobWait>(wait).await.jobs[0].reason,
        Reason::Text
    );
}

/// Files go beside the answer, since a disk may be slow.
async fn no_shell_folder(house: &House) {
    while !shell_folders(house).is_empty() {
        tokio::task::yield_now().await;
    }
}

fn shell_folders(house: &House) -> Vec<String> {
    let entries = fs::read_dir(house.folders().artifacts())
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("shell-")).collect()
}

/// Bug report 083; E10 for a line.
#[test]
fn a_line_that_asks_says_so_and_can_be_answered() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let ran = run(
                &desk,
                &id,
                "printf 'Proceed? '; read x; echo got $x; (exit 6)",
            )
            .await;
            assert_eq!(ran.reason, Reason::InputWait, "{program}: {ran:?}");
            assert_eq!(ran.output.as_deref(), Some("Proceed? "), "{program}");
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert_eq!(refused.kind, RefusalKind::Busy, "{refused:?}");
            let sent = send(&desk, &id, "yes\n").await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Prompt, Some(6)),
                "{program}: {sent:?}"
            );
            assert!(sent.text.contains("got yes"), "{sent:?}");
            assert_eq!(done(&desk, &id, "echo next").await, ("next\n".into(), 0));
        }
    });
}

#[test]
fn a_line_that_runs_on_can_be_waited_for_and_interrupted() {
    in_house(async |house, desk| {
        let fifo = house.fifo("go");
        for program in shells() {
            let id = shell(house, &desk, program).await;
            let short = Exec {
                timeout_ms: Some(200),
                ..exec(&id, &format!("echo begun; cat {fifo}; sh -c 'exit 9'"))
            };
            let ran = desk.must::<ShellExec>(short).await;
            assert_eq!(ran.reason, Reason::WaitOver, "{program}: {ran:?}");
            assert_eq!(ran.output.as_deref(), Some("begun\n"), "{program}");
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert_eq!(refused.kind, RefusalKind::Busy);
            fs::write(&fifo, "came\n").expect("somebody reads it");
            let sent = send(&desk, &id, "").await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Prompt, Some(9)),
                "{program}: {sent:?}"
            );
            let short = Exec {
                timeout_ms: Some(200),
                ..exec(&id, "sleep 1000")
            };
            assert_eq!(desk.must::<ShellExec>(short).await.reason, Reason::WaitOver);
            desk.must::<JobSignal>(signal(&id, "SIGINT")).await;
            let sent = send(&desk, &id, "").await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Prompt, Some(130)),
                "{program}: {sent:?}"
            );
            assert_eq!(
                done(&desk, &id, "echo next").await,
                ("next\n".into(), 0),
                "{program}"
            );
        }
    });
}

/// A line that is in front by the time it speaks: a shell that is still on its way to it has other ideas of a signal.
const IN_FRONT: &str = "sh -c 'echo begun; exec sleep 1000'";

fn signal(id: &str, name: &str) -> SignalJob {
    SignalJob {
        session: None,
        id: id.into(),
        signal: name.into(),
    }
}

/// E7, E8; bug report 076.
#[test]
fn one_talks_at_a_time_and_the_other_is_refused_at_once() {
    in_house(async |house, desk| {
        let fifo = house.fifo("go");
        let id = shell(house, &desk, "bash").await;
        let first = {
            let (desk, line, id) = (desk.clone(), format!("cat {fifo}"), id.clone());
            tokio::spawn(async move { run(&desk, &id, &line).await })
        };
        busy(&desk, &id).await;
        let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
        assert_eq!(refused.kind, RefusalKind::Busy);
        let refused = desk.refused::<ShellSend>(typed(&id, "echo y\n")).await;
        assert_eq!(refused.kind, RefusalKind::Busy);
        fs::write(&fifo, "from the first\n").expect("somebody reads it");
        let first = first.await.expect("it did not panic");
        assert_eq!(
            first.output.as_deref(),
            Some("from the first\n"),
            "nothing of the others"
        );
    });
}

async fn busy(desk: &Desk, id: &str) {
    loop {
        let table = desk.must::<ShellList>(List::default()).await;
        if table.shells.iter().any(|s| s.row.id == *id && s.busy) {
            return;
        }
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_client_that_leaves_stops_nothing_and_the_next_one_knows() {
    in_house(async |house, desk| {
        let fifo = house.fifo("go");
        let id = shell(house, &desk, "bash").await;
        let leaving = {
            let (desk, id) = (house.desk(), id.clone());
            let line = format!("echo begun; cat {fifo}; echo went on");
            tokio::spawn(async move { run(&desk, &id, &line).await })
        };
        desk.said(&id, "begun$").await;
        leaving.abort();
        assert!(leaving.await.is_err());
        fs::write(&fifo, "").expect("somebody reads it");
        loop {
            // Until the supervisor has seen that the client left.
            match desk.call::<ShellSend>(typed(&id, "")).await {
                Ok(sent) => break assert_eq!(sent.reason, Reason::Prompt, "{sent:?}"),
                Err(refused) => assert_eq!(refused.kind, RefusalKind::Busy),
            }
        }
        assert!(desk.said(&id, "went on$").await.contains("went on"));
        assert_eq!(done(&desk, &id, "echo next").await, ("next\n".into(), 0));
    });
}

/// E10 and 6 of the readiness rules.
#[test]
fn a_repl_is_ready_when_it_waits_and_not_before() {
    in_house(async |house, desk| {
        let repls: &[(&str, &[&str], &str, &str)] = &[
            (
                "python3",
                &["python3", "-q"],
                "import time; time.sleep(0.4); print(6*7)\n",
                "exit(3)\n",
            ),
            (
                "node",
                &["node"],
                "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)),0,0,400); 6*7\n",
                "process.exit(3)\n",
            ),
        ];
        for (program, args, text, end) in repls.iter().filter(|r| installed(r.0)) {
            let opened = open(&desk, plain(house, args)).await;
            assert_eq!(
                (opened.reason, opened.exec),
                (Some(Reason::InputWait), false),
                "{program}"
            );
            let id = opened.row.id;
            let began = Instant::now();
            let sent = send(&desk, &id, text).await;
            assert_eq!(sent.reason, Reason::InputWait, "{program}: {sent:?}");
            assert!(sent.text.contains("42"), "{program}: {sent:?}");
            assert!(
                began.elapsed() < Duration::from_millis(2_500),
                "by proof, not by silence: {sent:?}"
            );
            let sent = send(&desk, &id, end).await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Exit, Some(3)),
                "{program}: {sent:?}"
            );
        }
    });
}

/// E12, E13, bug report 074.
#[test]
fn silence_is_said_to_be_inferred_and_the_time_limit_is_one() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        let quiet = Send {
            quiet_ms: Some(200),
            ..typed(&id, "sleep 1000\n")
        };
        let began = Instant::now();
        let sent = desk.must::<ShellSend>(quiet).await;
        assert_eq!(sent.reason, Reason::InferredIdle);
        assert!(began.elapsed() >= Duration::from_millis(200));
        desk.must::<JobSignal>(signal(&id, "INT")).await;
        assert_eq!(send(&desk, &id, "").await.reason, Reason::Prompt);
        let chatty = Send {
            timeout_ms: Some(300),
            ..typed(&id, "sh -c 'while :; do echo x; sleep 0.05; done'\n")
        };
        let sent = desk.must::<ShellSend>(chatty).await;
        assert_eq!(sent.reason, Reason::WaitOver);
        assert_eq!(sent.row.state, State::Running);
        desk.must::<JobSignal>(signal(&id, "INT")).await;
        assert_eq!(send(&desk, &id, "").await.reason, Reason::Prompt);
    });
}

/// E4, E5, E6.
#[test]
fn what_is_sent_is_typed_as_it_is() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            let half = Send {
                quiet_ms: Some(150),
                ..typed(&id, "echo one")
            };
            let sent = desk.must::<ShellSend>(half.clone()).await;
            assert!(!sent.text.contains("one\n"), "{program}: {sent:?}");
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert_eq!(
                refused.kind,
                RefusalKind::Busy,
                "{program}: half a line stands there"
            );
            let sent = send(&desk, &id, " two\n").await;
            assert!(sent.text.contains("one two"), "{program}: {sent:?}");
            assert_eq!(sent.reason, Reason::Prompt, "{program}");
            // Thrown away with the control byte alone: no line runs, and a line of ours can.
            desk.must::<ShellSend>(half).await;
            let sent = send(&desk, &id, "\u{3}").await;
            assert_eq!(sent.reason, Reason::Prompt, "{program}: {sent:?}");
            assert_eq!(
                done(&desk, &id, "echo x").await,
                ("x\n".into(), 0),
                "{program}"
            );
        }
    });
}

/// Behind half a line of a person ours would run with it.
#[test]
fn a_line_waits_for_nobody_who_has_typed_ahead() {
    in_house(async |house, desk| {
        for program in posix() {
            let fifo = house.fifo(&format!("go-{program}"));
            let id = shell(house, &desk, program).await;
            let short = Exec {
                timeout_ms: Some(200),
                ..exec(&id, &format!("cat {fifo}"))
            };
            assert_eq!(desk.must::<ShellExec>(short).await.reason, Reason::WaitOver);
            let write = |text: &str| Write {
                id: id.clone(),
                text: Some(text.into()),
                ..Write::default()
            };
            desk.must::<JobWrite>(write("rm -r ")).await;
            fs::write(&fifo, "").unwrap();
            assert_eq!(
                send(&desk, &id, "").await.reason,
                Reason::Prompt,
                "{program}"
            );
            if program != "dash" {
                desk.said(&id, "rm -r *$").await;
                // Until the line editor has taken it: in the middle of that an interrupt leaves some of it.
                desk.wait_for(&id, For::Quiet(200)).await;
            }
            match desk.call::<ShellExec>(exec(&id, "echo x")).await {
                // Its terminal holds the line and shows it early or late; early, it lets go of it.
                Ok(ran) => {
                    assert_eq!(program, "dash");
                    assert_eq!(ran.output.as_deref(), Some("x\n"));
                    continue;
                }
                Err(refused) => assert!(
                    refused.message.contains("half a line"),
                    "{program}: {refused:?}"
                ),
            }
            desk.must::<JobWrite>(write("\u{3}")).await;
            assert_eq!(
                done(&desk, &id, "echo x").await,
                ("x\n".into(), 0),
                "{program}"
            );
        }
    });
}

/// A person's line that is not whole: a line of ours would be its rest.
#[test]
fn a_line_that_asks_for_its_rest_takes_none_of_ours() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            let sent = send(&desk, &id, "echo 'open\n").await;
            let wanted = if program == "fish" {
                Reason::Prompt
            } else {
                Reason::InputWait
            };
            assert_eq!(sent.reason, wanted, "{program}: {sent:?}");
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert_eq!(refused.kind, RefusalKind::Busy, "{program}: {refused:?}");
            assert!(
                refused.hint.as_deref().unwrap().contains("C-c"),
                "{program}: {refused:?}"
            );
            let sent = send(&desk, &id, "\u{3}").await;
            assert_eq!(sent.reason, Reason::Prompt, "{program}: {sent:?}");
            assert_eq!(
                done(&desk, &id, "echo x").await,
                ("x\n".into(), 0),
                "{program}"
            );
        }
    });
}

#[test]
fn a_line_inline_in_what_is_no_shell_is_given_up() {
    in_house(async |house, desk| {
        if !installed("python3") {
            return;
        }
        let id = open(&desk, plain(house, &["python3", "-q"])).await.row.id;
        let inline = Exec {
            inline: true,
            ..exec(&id, "pwd")
        };
        let refused = desk.refused::<ShellExec>(inline).await;
        assert!(
            refused.message.contains("not known whether it ran"),
            "{refused:?}"
        );
    });
}

/// A prompt that is drawn again is still behind half a line.
#[test]
fn half_a_line_stays_half_when_its_prompt_is_drawn_again() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let write = |text: &str| Write {
                id: id.clone(),
                text: Some(text.into()),
                ..Write::default()
            };
            desk.must::<JobWrite>(write("echo half; : ")).await;
            desk.must::<JobWrite>(write("\u{c}")).await;
            let size = Resize {
                session: None,
                id: id.clone(),
                rows: 30,
                cols: 90,
                seat: None,
            };
            desk.must::<JobResize>(size).await;
            desk.wait_for(&id, For::Quiet(100)).await;
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert!(
                refused.message.contains("half a line"),
                "{program}: {refused:?}"
            );
        }
    });
}

/// A line that prints what a prompt is made of, and one that prints what the log holds of one.
#[test]
fn a_printed_prompt_ends_no_line() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let (said, code) = done(&desk, &id, "set; sleep 0.3; echo END; (exit 4)").await;
            assert!(said.ends_with("END\n"), "{program}: {said}");
            assert_eq!(code, 4, "{program}");
            fs::write(house.file("home/seen"), desk.bytes(&id).await).unwrap();
            let (said, code) = done(
                &desk,
                &id,
                "cat \"$HOME/seen\"; sleep 0.3; echo END; (exit 5)",
            )
            .await;
            assert!(said.ends_with("END\n"), "{program}: {said}");
            assert_eq!(code, 5, "{program}");
        }
    });
}

/// Marks go where the terminal is, and a directory may be called anything.
#[test]
fn where_output_goes_and_how_directories_are_called_breaks_no_line() {
    in_house(async |house, desk| {
        let home = house.file("home");
        fs::create_dir_all(home.join("a\u{1b}[1mb\u{7}c\nd")).unwrap();
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let ran = run(&desk, &id, "cd \"$HOME\"/a*; (exit 3)").await;
            assert_eq!(
                (ran.exit_code, ran.output.as_deref()),
                (Some(3), Some("")),
                "{program}"
            );
            assert!(
                ran.cwd
                    .as_deref()
                    .unwrap()
                    .ends_with("a\u{1b}[1mb\u{7}c\nd"),
                "{program}: {ran:?}"
            );
            assert_eq!(
                done(&desk, &id, "echo x").await,
                ("x\n".into(), 0),
                "{program}"
            );
            done(&desk, &id, "cd /; exec 5>&1 >/dev/null").await;
            assert_eq!(
                done(&desk, &id, "echo gone; (exit 6)").await,
                (String::new(), 6),
                "{program}"
            );
            assert_eq!(
                done(&desk, &id, "exec >&5; echo back").await,
                ("back\n".into(), 0),
                "{program}"
            );
        }
    });
}

/// Who talks to a terminal behind ours is not seen to wait, so nothing is said of it but that it is quiet.
#[test]
fn a_program_that_passes_its_terminal_on_is_no_question() {
    in_house(async |house, desk| {
        if !installed("script") {
            return;
        }
        let id = shell(house, &desk, "bash").await;
        let ran = done(&desk, &id, "script -qec 'sleep 2.2; echo done' /dev/null").await;
        assert!(ran.0.contains("done"), "{ran:?}");
    });
}

/// Keys that a shell itself reads inside a line are no prompt.
#[test]
fn a_shell_that_reads_a_key_is_not_at_its_prompt() {
    in_house(async |house, desk| {
        let reads: &[(&str, &str)] = &[
            ("bash", "read -n1 y; echo got-$y"),
            ("zsh", "read -k1 y; echo got-$y"),
        ];
        for (program, line) in reads.iter().filter(|r| installed(r.0)) {
            let id = shell(house, &desk, program).await;
            let sent = send(&desk, &id, &format!("{line}\n")).await;
            assert_eq!(sent.reason, Reason::InputWait, "{program}: {sent:?}");
            let sent = send(&desk, &id, "k").await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Prompt, Some(0)),
                "{program}: {sent:?}"
            );
        }
    });
}

#[test]
fn a_shell_that_became_another_program_is_not_called_ready() {
    in_house(async |house, desk| {
        if !installed("dash") {
            return;
        }
        fs::create_dir_all(house.file("home")).unwrap();
        fs::write(house.file("home/.bashrc"), "exec dash -i\n").unwrap();
        let opened = desk.must::<ShellOpen>(plain(house, &["bash"])).await;
        assert!(!opened.ready && !opened.exec, "{opened:?}");
        let refused = desk
            .refused::<ShellExec>(Exec {
                timeout_ms: Some(1_000),
                ..exec(&opened.row.id, "echo x")
            })
            .await;
        assert_eq!(refused.kind, RefusalKind::Busy);
    });
}

/// E14.
#[test]
fn a_shell_that_exits_ends_the_line_and_can_be_read_until_it_is_closed() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            let ran = run(&desk, &id, "echo bye; exit 3").await;
            assert_eq!(
                (ran.reason, ran.exit_code),
                (Reason::Exit, Some(3)),
                "{program}: {ran:?}"
            );
            assert!(ran.output.unwrap().starts_with("bye\n"), "{program}");
            for refused in [
                desk.refused::<ShellExec>(exec(&id, "echo x")).await,
                desk.refused::<ShellSend>(typed(&id, "x")).await,
            ] {
                assert_eq!(refused.kind, RefusalKind::NoInput);
                assert!(refused.message.contains("has ended"), "{refused:?}");
            }
            let read = ReadShell {
                id: id.clone(),
                ..ReadShell::default()
            };
            let lines = desk.must::<ShellRead>(read).await;
            assert!(lines.lines.iter().any(|l| l == "bye"), "{lines:?}");
            assert!(
                desk.must::<ShellList>(List::default())
                    .await
                    .shells
                    .iter()
                    .any(|s| s.row.id == id)
            );
            desk.must::<ShellClose>(target(&id)).await;
            let unknown = desk.refused::<ShellSend>(typed(&id, "x")).await;
            assert!(
                matches!(unknown.kind, RefusalKind::Gone | RefusalKind::NotFound),
                "{unknown:?}"
            );
        }
        no_shell_folder(house).await;
    });
}

/// E20, E21, E22.
#[test]
fn closing_a_shell_leaves_nothing_of_what_it_started() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            let file = house.fifo(&format!("pid-{program}"));
            let line = format!(
                "sh -c 'trap \"\" TERM HUP; echo $$ >{file}; while :; do sleep 1000; done' &"
            );
            done(&desk, &id, &line).await;
            let pid = number(&file);
            let close = |desk: Desk, id: String| {
                tokio::spawn(async move { desk.call::<ShellClose>(target(&id)).await })
            };
            let (a, b) = (
                close(desk.clone(), id.clone()),
                close(house.desk(), id.clone()),
            );
            let (a, b) = (a.await.unwrap(), b.await.unwrap());
            assert!(a.is_ok() && b.is_ok(), "{a:?} {b:?}");
            assert!(
                !process::lives(pid),
                "{program}: {}",
                process::describe(pid)
            );
            let again = desk.must::<ShellClose>(target(&id)).await;
            assert!(again.row.is_none(), "it is unknown now");
        }
        // One that was disowned, after a natural end.
        let id = shell(house, &desk, "bash").await;
        let file = house.fifo("pid");
        let line = format!("setsid sh -c 'echo $$ >{file}; sleep 1000' & disown");
        done(&desk, &id, &line).await;
        let pid = number(&file);
        assert_eq!(run(&desk, &id, "exit").await.reason, Reason::Exit);
        assert!(process::lives(pid));
        desk.must::<ShellClose>(target(&id)).await;
        assert!(!process::lives(pid));
    });
}

/// E23.
#[test]
fn a_close_ends_a_send_as_an_end_and_never_as_ready() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        let waiting = {
            let (desk, id) = (desk.clone(), id.clone());
            tokio::spawn(async move { run(&desk, &id, "echo begun; sleep 1000").await })
        };
        desk.said(&id, "begun$").await;
        let began = Instant::now();
        desk.must::<ShellClose>(target(&id)).await;
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "a shell hears that its terminal hangs up"
        );
        let ran = waiting.await.unwrap();
        assert_eq!(ran.reason, Reason::Exit, "{ran:?}");
    });
}

/// E24, E25.
#[test]
fn an_unused_shell_ends_and_one_that_works_does_not() {
    in_house(async |house, desk| {
        let idle = |ms| OpenShell {
            idle_ms: Some(ms),
            ..plain(house, &["bash"])
        };
        let fifo = house.fifo("go");
        let id = open(&desk, idle(400)).await.row.id;
        let other = open(&desk, idle(400)).await.row.id;
        // Quiet, and no terminal is waited for.
        done(&desk, &other, &format!("cat {fifo} >/dev/null &")).await;
        let row = ended(&desk, &id).await;
        assert_eq!(row.outcome, Some(Outcome::IdleReaped));
        let refused = desk.refused::<ShellSend>(typed(&id, "x")).await;
        assert!(
            refused.message.contains("idle time") && refused.message.contains("gone"),
            "{refused:?}"
        );
        assert_eq!(desk.get(&other).await.row.state, State::Running, "it works");
        fs::write(&fifo, "").unwrap();
        assert_eq!(
            ended(&desk, &other).await.outcome,
            Some(Outcome::IdleReaped)
        );
    });
}

/// E29.
#[test]
fn signals_reach_the_group_in_front_and_never_the_shell_by_accident() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        for name in ["SIGKILL", "SIGTERM", "SIGHUP", "SIGSTOP"] {
            let refused = desk.refused::<JobSignal>(signal(&id, name)).await;
            assert_eq!(refused.kind, RefusalKind::NoGroup, "{name}");
            assert!(refused.hint.unwrap().contains("shell close"), "{name}");
        }
        for (name, code) in [
            ("SIGINT", 130),
            ("SIGTERM", 143),
            ("SIGKILL", 137),
            ("SIGHUP", 129),
        ] {
            let seen = desk.get(&id).await.row.output.end;
            let line = {
                let (desk, id) = (desk.clone(), id.clone());
                tokio::spawn(async move { run(&desk, &id, IN_FRONT).await })
            };
            said_after(&desk, &id, "begun$", seen).await;
            let sent = desk.must::<JobSignal>(signal(&id, name)).await;
            assert_ne!(Some(sent.group), desk.get(&id).await.row.pid);
            let ran = line.await.unwrap();
            assert_eq!(
                (ran.reason, ran.exit_code),
                (Reason::Prompt, Some(code)),
                "{name}: {ran:?}"
            );
        }
    });
}

/// E17.
#[test]
fn a_program_that_switched_signals_off_in_its_terminal_is_interrupted_all_the_same() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        let line = {
            let (desk, id) = (desk.clone(), id.clone());
            tokio::spawn(async move {
                run(&desk, &id, &format!("stty -isig; {IN_FRONT}; stty isig")).await
            })
        };
        desk.said(&id, "begun$").await;
        desk.must::<JobSignal>(signal(&id, "INT")).await;
        let ran = line.await.unwrap();
        assert_eq!(ran.reason, Reason::Prompt, "{ran:?}");
    });
}

/// E30.
#[test]
fn a_shell_has_the_terminal_that_was_asked_for() {
    in_house(async |house, desk| {
        let sized = OpenShell {
            rows: Some(30),
            cols: Some(100),
            ..plain(house, &["bash"])
        };
        let id = open(&desk, sized).await.row.id;
        assert_eq!(
            done(&desk, &id, "stty size; echo $TERM; tty | cut -c-9")
                .await
                .0,
            "30 100\nxterm-256color\n/dev/pts/\n"
        );
        let id = shell(house, &desk, "dash").await;
        assert_eq!(done(&desk, &id, "stty size").await.0, "40 120\n");
    });
}

/// E31.
#[test]
fn a_name_belongs_to_one_shell_and_the_quota_counts_shells_alone() {
    in_any_house(async |house| {
        let desk = house.desk();
        let named = || OpenShell {
            name: Some("build".into()),
            ..plain(house, &["dash"])
        };
        let (a, b) = tokio::join!(
            desk.call::<ShellOpen>(named()),
            desk.call::<ShellOpen>(named())
        );
        let refused = [a.err(), b.err()].into_iter().flatten().collect::<Vec<_>>();
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].kind, RefusalKind::NameTaken);
        for _ in 0..3 {
            shell(house, &desk, "dash").await;
        }
        let full = desk.refused::<ShellOpen>(plain(house, &["dash"])).await;
        assert_eq!(full.kind, RefusalKind::Limit);
        assert!(full.message.contains("4 of 4 shells"), "{full:?}");
        // A refusal leaves nothing behind; its folder goes beside everything else.
        let cleaned = async {
            while shell_folders(house).len() != 4 {
                desk.list().await;
            }
        };
        within(PATIENCE, "the end of its folder", cleaned).await;
        desk.start(ostler_tests::script("sleep 1000")).await;
        let jobs = desk.must::<JobList>(List::default()).await.jobs;
        assert_eq!(jobs.len(), 5);
    });
}

#[test]
fn a_line_over_a_killed_supervisor_goes_on_and_its_end_is_known() {
    in_house(async |house, desk| {
        let fifo = house.fifo("go");
        for program in posix() {
            let id = shell(house, &desk, program).await;
            done(&desk, &id, "cd /tmp; A=kept").await;
            let short = Exec {
                timeout_ms: Some(200),
                ..exec(&id, &format!("cat {fifo}; (exit 8)"))
            };
            assert_eq!(desk.must::<ShellExec>(short).await.reason, Reason::WaitOver);
            house.kill_supervisor().await;
            let refused = desk.refused::<ShellExec>(exec(&id, "echo x")).await;
            assert_eq!(refused.kind, RefusalKind::Busy, "{program}: {refused:?}");
            fs::write(&fifo, "").expect("somebody reads it");
            let sent = send(&desk, &id, "").await;
            assert_eq!(
                (sent.reason, sent.exit_code),
                (Reason::Prompt, Some(8)),
                "{program}: {sent:?}"
            );
            assert_eq!(
                done(&desk, &id, "pwd; echo $A").await,
                ("/tmp\nkept\n".into(), 0),
                "{program}"
            );
            house.kill_supervisor().await;
            assert_eq!(
                done(&desk, &id, "echo $A; (exit 2)").await,
                ("kept\n".into(), 2),
                "{program}"
            );
        }
    });
}

#[test]
fn a_line_runs_inline_in_the_shell_that_is_in_front() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        for inner in ["bash --norc", "dash", "env -i sh", "zsh -f"] {
            if !installed(inner.split(' ').next().unwrap()) {
                continue;
            }
            let sent = send(&desk, &id, &format!("{inner}\n")).await;
            assert!(
                matches!(sent.reason, Reason::InputWait | Reason::Prompt),
                "{inner}: {sent:?}"
            );
            let inline = |line: &str| Exec {
                inline: true,
                ..exec(&id, line)
            };
            let ran = desk
                .must::<ShellExec>(inline("cd /usr; echo 'a\\b!é'\necho two; (exit 5)"))
                .await;
            assert_eq!(
                (ran.reason, ran.exit_code),
                (Reason::Prompt, Some(5)),
                "{inner}: {ran:?}"
            );
            let said = ran.output.unwrap();
            assert!(
                said.ends_with("é\ntwo\n") && !said.contains("printf"),
                "{inner}: {said}"
            );
            assert_eq!(ran.cwd.as_deref(), Some("/usr"), "{inner}");
            let sent = send(&desk, &id, "exit\n").await;
            assert_eq!(sent.reason, Reason::Prompt, "{inner}: {sent:?}");
            assert_eq!(
                done(&desk, &id, "echo outer").await,
                ("outer\n".into(), 0),
                "{inner}"
            );
        }
    });
}

#[test]
fn a_terminal_left_raw_or_without_echo_changes_no_output() {
    in_house(async |house, desk| {
        for program in posix() {
            let id = shell(house, &desk, program).await;
            for line in ["stty -echo", "stty echo", "stty raw", "stty sane"] {
                assert_eq!(done(&desk, &id, line).await.1, 0, "{program}: {line}");
                assert_eq!(
                    done(&desk, &id, "echo a; echo b").await,
                    ("a\nb\n".into(), 0),
                    "{program}: {line}"
                );
            }
        }
    });
}

#[test]
fn late_output_of_a_child_is_not_that_of_the_line_and_the_line_says_that_it_may_come() {
    in_house(async |house, desk| {
        let fifo = house.fifo("go");
        let id = shell(house, &desk, "bash").await;
        let ran = run(&desk, &id, &format!("(cat {fifo}; echo late) & echo now")).await;
        assert!(ran.others, "{ran:?}");
        assert!(ran.output.unwrap().ends_with("now\n"));
        fs::write(&fifo, "").unwrap();
        desk.said(&id, "late$").await;
        let ran = run(&desk, &id, "wait; echo next").await;
        assert!(!ran.others, "{ran:?}");
        assert!(ran.output.unwrap().ends_with("next\n"));
    });
}

/// Its record is kept for a day.
#[test]
fn a_shell_that_has_ended_holds_no_descriptor() {
    in_house(async |house, desk| {
        let supervisor = house.info().await.hello.pid;
        let cycle = async |program: &str| {
            let id = shell(house, &desk, program).await;
            assert_eq!(done(&desk, &id, "sleep 0 & wait").await.1, 0);
            run(&desk, &id, "exit").await;
            desk.over(&id).await;
        };
        cycle("dash").await;
        let before = process::descriptors(supervisor);
        for program in posix().chain(posix()) {
            cycle(program).await;
        }
        let closed = async {
            while process::descriptors(supervisor) > before {
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, "an end of each descriptor", closed).await;
    });
}

#[test]
fn shells_opened_and_closed_leave_no_terminal_process_or_file() {
    in_house(async |house, desk| {
        let supervisor = house.info().await.hello.pid;
        let keeper = house.info().await.hello.keeper_pid;
        let count = || {
            (
                process::descriptors(supervisor),
                process::descriptors(keeper),
            )
        };
        let cycle = async |program: &str| {
            let id = shell(house, &desk, program).await;
            assert_eq!(done(&desk, &id, "sleep 1000 & echo x").await.1, 0);
            desk.must::<ShellClose>(target(&id)).await;
        };
        cycle("dash").await;
        let before = count();
        for n in 0..rounds("OSTLER_SHELLS", 20) {
            cycle(
                ["bash", "dash", "zsh"]
                    .into_iter()
                    .filter(|s| installed(s))
                    .nth(n % 3)
                    .unwrap_or("dash"),
            )
            .await;
        }
        // The keeper closes its copies a moment after the answer.
        while count().0 > before.0 || count().1 > before.1 {
            tokio::task::yield_now().await;
        }
        no_shell_folder(house).await;
        assert!(
            desk.must::<ShellList>(List::default())
                .await
                .shells
                .is_empty()
        );
    });
}

/// E28.
#[test]
fn lines_are_paged_from_the_newest() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "dash").await;
        done(&desk, &id, "for i in 1 2 3 4 5; do echo line $i; done").await;
        // The end of a line stands in front of the prompt, which is a line too.
        desk.wait_for(&id, For::Prompt).await;
        let read = |back, count| ReadShell {
            session: None,
            id: id.clone(),
            back,
            count: Some(count),
        };
        let all = desk.must::<ShellRead>(read(0, 500)).await;
        let at = all
            .lines
            .iter()
            .position(|l| l == "line 3")
            .expect("it is there") as u64;
        let page = desk.must::<ShellRead>(read(all.total - at - 1, 1)).await;
        assert_eq!(page.lines, ["line 3"]);
        let past = desk.must::<ShellRead>(read(all.total + 10, 5)).await;
        assert_eq!((past.lines.len(), past.total), (0, all.total));
        let refused = desk.refused::<ShellRead>(read(0, 0)).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
    });
}

/// Who looks at a shell sees what was run, not how it was handed over.
#[test]
fn lines_of_a_shell_show_the_text_that_was_run() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = shell(house, &desk, program).await;
            done(&desk, &id, "echo one\necho two").await;
            let look = Look {
                id: id.clone(),
                ..Look::default()
            };
            let rows = desk.must::<JobScreen>(look).await.rows;
            let read = ReadShell {
                id: id.clone(),
                ..ReadShell::default()
            };
            let lines = desk.must::<ShellRead>(read).await.lines;
            for seen in [rows, lines] {
                let seen: Vec<&str> = seen.iter().map(|l| l.trim_end()).collect();
                let at = seen
                    .iter()
                    .position(|l| l.ends_with("echo one"))
                    .unwrap_or_else(|| panic!("{program}: {seen:?}"));
                assert_eq!(
                    seen[at + 1..at + 4],
                    ["echo two", "one", "two"],
                    "{program}: {seen:?}"
                );
                assert!(
                    !seen.iter().any(|l| l.contains("__ost")),
                    "{program}: {seen:?}"
                );
            }
        }
    });
}

/// C5.
#[test]
fn a_wait_for_the_end_of_a_shell_answers_at_once() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "dash").await;
        let waited = desk.wait_for(&id, For::Exit).await;
        assert_eq!(waited.reason, Reason::NoEnd);
        run(&desk, &id, "exit 4").await;
        let waited = desk.wait_for(&id, For::Exit).await;
        assert_eq!(
            (waited.reason, waited.row.exit_code),
            (Reason::Exit, Some(4))
        );
    });
}

#[test]
fn somebody_who_types_during_a_line_is_told_of() {
    in_house(async |house, desk| {
        let id = shell(house, &desk, "bash").await;
        let through = Exec {
            through: true,
            ..exec(&id, "echo begun; read x; echo got $x")
        };
        let line = {
            let desk = desk.clone();
            tokio::spawn(async move { desk.must::<ShellExec>(through).await })
        };
        desk.said(&id, "begun$").await;
        let write = Write {
            id: id.clone(),
            text: Some("other\n".into()),
            ..Write::default()
        };
        house.desk().must::<JobWrite>(write).await;
        let ran = line.await.unwrap();
        assert!(ran.shared, "{ran:?}");
        assert!(
            ran.output.as_deref().unwrap().ends_with("got other\n"),
            "{ran:?}"
        );
        let quiet = run(&desk, &id, "echo alone").await;
        assert!(!quiet.shared);
    });
}

#[test]
fn a_plain_page_of_a_shell_has_the_line_and_not_how_it_was_handed_over() {
    in_house(async |_house, desk| {
        let open = OpenShell {
            args: vec!["sh".into()],
            clean: true,
            wait_ms: Some(20_000),
            ..OpenShell::default()
        };
        let id = desk.must::<ShellOpen>(open).await.row.id;
        let line = Exec {
            id: id.clone(),
            line: "echo a$((1+1))b".into(),
            ..Exec::default()
        };
        desk.must::<ShellExec>(line).await;
        let read = Read {
            id,
            since: Some(0),
            plain: true,
            ..Read::default()
        };
        let text = desk.must::<JobRead>(read).await.text.unwrap();
        assert!(text.contains("echo a$((1+1))b\na2b\n"), "{text:?}");
        assert!(!text.contains("__ost"), "{text:?}");
    });
}

#[test]
fn keys_are_pressed_behind_the_text_and_a_wrong_one_sends_nothing() {
    in_house(async |_house, desk| {
        let open = OpenShell {
            args: vec!["sh".into()],
            clean: true,
            wait_ms: Some(20_000),
            ..OpenShell::default()
        };
        let id = desk.must::<ShellOpen>(open).await.row.id;
        let send = |text: &str, key: &str| Send {
            id: id.clone(),
            text: text.into(),
            keys: vec![key.into()],
            ..Send::default()
        };
        let refused = desk.refused::<ShellSend>(send("echo no\n", "Entre")).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
        let sent = desk.must::<ShellSend>(send("echo y$((1))s", "Enter")).await;
        assert_eq!((sent.reason, sent.exit_code), (Reason::Prompt, Some(0)));
        assert!(sent.text.contains("y1s\n"), "{:?}", sent.text);
        assert!(!sent.text.contains("no\n"), "{:?}", sent.text);
    });
}
