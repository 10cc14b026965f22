//! Promise: a line in a shell runs once, and who asked for it gets its output and its code, whatever happens to the
//! supervisor meanwhile. Over a crash or an upgrade the client asks again with the key of the line.

use std::fs;
use std::io::Write as _;

use ostler::Error;
use ostler::upgrade::{Upgraded, upgrade};
use ostler_proto::methods::{Reason, ShellExec, ShellOpen, ShellSend};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{Exec, Executed, OpenShell, Send};
use ostler_proto::upgrade::UpgradeSupervisor;
use ostler_tests::chance::Chance;
use ostler_tests::process::Process;
use ostler_tests::{
    Desk, House, PATIENCE, in_house_of_shells as in_house, installed, ostler, rounds, within,
};

/// Shells whose plain lines are typed, each in its own way, and one whose lines always lie in a file.
fn shells() -> impl Iterator<Item = &'static str> {
    let all = ["bash", "zsh", "dash", "fish"];
    all.into_iter().filter(|s| installed(s))
}

fn exec(id: &str, line: &str) -> Exec {
    Exec {
        id: id.into(),
        line: line.into(),
        ..Exec::default()
    }
}

/// Runs a line as the library does, with a key of its own.
async fn run(desk: &Desk, ask: Exec) -> Executed {
    let line = ask.line.clone();
    let executed = within(PATIENCE, "an answer", desk.client.exec(ask)).await;
    executed.unwrap_or_else(|e| panic!("{line}: {e}"))
}

fn output(executed: &Executed) -> (&str, Option<i32>) {
    (
        executed.output.as_deref().unwrap_or_default(),
        executed.exit_code,
    )
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Crash,
    Upgrade,
}

impl Change {
    async fn happen(self, house: &House) {
        match self {
            Self::Crash => drop(house.kill_supervisor().await),
            Self::Upgrade => {
                let to = UpgradeSupervisor {
                    image: ostler().display().to_string(),
                    force: true,
                };
                let desk = house.desk_without_session();
                let done = upgrade(&desk.client, to).await.expect("it is the same");
                assert!(matches!(done, Upgraded::Done { .. }), "{done:?}");
            }
        }
    }
}

/// Runs a line that reads a FIFO in the middle, and changes the supervisor while it waits there.
async fn across(house: &House, desk: &Desk, ask: Exec, change: Change) -> Executed {
    let fifo = house.fifo("go");
    let line = ask.line.replace("FIFO", &fifo);
    let answer = run(desk, Exec { line, ..ask });
    let path = fifo.clone();
    let there = tokio::task::spawn_blocking(move || fs::File::options().write(true).open(path));
    let meanwhile = async {
        let there = within(PATIENCE, "the line", there).await;
        let mut there = there.expect("no panic").expect("it is there");
        change.happen(house).await;
        there.write_all(b"read\n").expect("it is being read");
    };
    let (answer, ()) = tokio::join!(answer, meanwhile);
    fs::remove_file(&fifo).expect("it is there");
    answer
}

#[test]
fn a_line_over_a_change_of_the_supervisor_is_answered_whole() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = desk.shell(program).await;
            for change in [Change::Crash, Change::Upgrade] {
                // One that is typed as it is, and one that lies in a file.
                for line in ["cat FIFO", "printf 'first\n'\ncat FIFO\nsh -c 'exit 7'"] {
                    let answer = across(house, &desk, exec(&id, line), change).await;
                    let expected = match line {
                        "cat FIFO" => ("read\n", Some(0)),
                        _ => ("first\nread\n", Some(7)),
                    };
                    assert_eq!(answer.reason, Reason::Prompt, "{program} {change:?}");
                    assert_eq!(output(&answer), expected, "{program} {change:?} {answer:?}");
                }
            }
        }
    });
}

#[test]
fn a_line_that_ends_its_shell_over_a_crash_is_answered() {
    in_house(async |house, desk| {
        let id = desk.shell("bash").await;
        let answer = across(house, &desk, exec(&id, "cat FIFO; exit 3"), Change::Crash).await;
        assert_eq!((answer.reason, answer.exit_code), (Reason::Exit, Some(3)));
        // The shell says farewell.
        assert_eq!(output(&answer).0.trim_end_matches("exit\n"), "read\n");
    });
}

#[test]
fn the_command_line_passes_output_and_code_of_a_line_over_a_crash() {
    in_house(async |house, desk| {
        let id = desk.shell("bash").await;
        let go = house.fifo("go");
        let line = format!("cat {go}; (exit 9)");
        let said = std::thread::scope(|scope| {
            let args = ["shell", "exec", "--session", "x", &id, &line];
            let said = scope.spawn(move || house.cli(&args));
            let mut there = fs::File::options().write(true).open(&go).expect("a reader");
            let supervisor = house.supervisors()[0];
            Process::of(supervisor)
                .expect("it lives")
                .signal(libc::SIGKILL);
            there.write_all(b"read\n").expect("it is being read");
            drop(there);
            said.join().expect("no panic")
        });
        assert_eq!((said.out.as_str(), said.code), ("read\n", 9), "{said:?}");
    });
}

/// The line waits for the first prompt, and nothing of it has been typed when the supervisor dies.
#[test]
fn a_line_for_a_shell_that_has_not_started_runs_once_over_a_crash() {
    in_house(async |house, desk| {
        let (profile, count) = (house.fifo("go"), house.path("count"));
        let home = house.path("home");
        fs::create_dir_all(&home).expect("a home can be made");
        fs::write(house.file("home/.bashrc"), format!("read x <{profile}\n")).expect("written");
        let request = OpenShell {
            args: vec!["bash".into()],
            cwd: Some("/".into()),
            env: [("HOME".to_owned(), Some(home))].into(),
            wait_ms: Some(1),
            ..OpenShell::default()
        };
        let opened = desk.must::<ShellOpen>(request).await;
        assert!(!opened.ready);
        let id = opened.row.id;
        let line = exec(&id, &format!("echo once >>{count}; echo said"));
        let go = tokio::task::spawn_blocking(move || fs::File::options().write(true).open(profile));
        let meanwhile = async {
            let go = within(PATIENCE, "the start files", go).await;
            let mut go = go.expect("no panic").expect("it is there");
            house.kill_supervisor().await;
            go.write_all(b"\n").expect("it is being read");
        };
        let (answer, ()) = tokio::join!(run(&desk, line), meanwhile);
        assert_eq!(output(&answer), ("said\n", Some(0)));
        let times = fs::read_to_string(house.file("count")).expect("it ran");
        assert_eq!(times, "once\n");
    });
}

/// Kills the supervisor at any step of what is asked, after one and so many more answers.
async fn kill_after(
    house: &House,
    answered: &mut tokio::sync::watch::Receiver<usize>,
    more: usize,
    chance: &mut Chance,
) {
    let enough = *answered.borrow() + 1 + more;
    let some = answered.wait_for(|n| *n >= enough);
    let told = within(PATIENCE, "some answers", some).await;
    told.expect("who asks is there to the end");
    for _ in 0..chance.below(500) {
        tokio::task::yield_now().await;
    }
    house.kill_supervisor().await;
}

/// At whatever moment the supervisor dies: each line runs once and is answered, or is refused with the words that it is
/// not known whether it ran, and then it ran once at most.
#[test]
fn lines_run_once_whenever_the_supervisor_is_killed() {
    let kills = rounds("OSTLER_KILLS", 10);
    in_house(async |house, desk| {
        let mut chance = Chance::of(kills as u64);
        for program in shells() {
            let id = desk.shell(program).await;
            let (told, mut answered) = tokio::sync::watch::channel(0);
            let over = std::cell::Cell::new(false);
            let kill = async {
                for _ in 0..kills {
                    kill_after(house, &mut answered, chance.below(20), &mut chance).await;
                }
                over.set(true);
            };
            let lines = async {
                let (mut ran, mut n) = (Vec::new(), 0);
                while !over.get() {
                    n += 1;
                    let text = match n % 2 {
                        0 => format!("echo {n} | tee -a {}", house.path(program)),
                        _ => format!("echo {n} |\ntee -a {}", house.path(program)),
                    };
                    let asked = desk.client.exec(exec(&id, &text));
                    match within(PATIENCE, "an answer", asked).await {
                        Ok(answer) => {
                            assert_eq!(
                                output(&answer),
                                (&*format!("{n}\n"), Some(0)),
                                "{answer:?}"
                            );
                            ran.push((n, true));
                            told.send_modify(|n| *n += 1);
                        }
                        Err(Error::Refused(why)) if why.kind == RefusalKind::Busy => {
                            assert!(why.message.contains("not known whether"), "{why:?}");
                            ran.push((n, false));
                        }
                        Err(e) => panic!("{program}: {e}"),
                    }
                }
                ran
            };
            let (ran, ()) = tokio::join!(lines, kill);
            let written = fs::read_to_string(house.file(program)).expect("some ran");
            let mut written: Vec<usize> = written.lines().map(|l| l.parse().unwrap()).collect();
            let unknown = ran.iter().filter(|(_, known)| !known).count();
            assert!(
                unknown <= kills / 5,
                "{program}: {unknown} of {}",
                ran.len()
            );
            for (n, known) in &ran {
                let times = written.iter().filter(|w| *w == n).count();
                assert!(
                    times == 1 || times == 0 && !known,
                    "{program}: {n} {times} {known}"
                );
                written.retain(|w| w != n);
            }
            assert_eq!(written, [0; 0], "{program}: nobody asked for these");
        }
    });
}

fn typed(id: &str, text: &str) -> Send {
    Send {
        id: id.into(),
        text: text.into(),
        timeout_ms: Some(20_000),
        ..Send::default()
    }
}

#[test]
fn a_text_over_a_change_of_the_supervisor_is_typed_once_and_answered() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = desk.shell(program).await;
            for (n, change) in [Change::Crash, Change::Upgrade].into_iter().enumerate() {
                let fifo = house.fifo("go");
                let count = house.path(&format!("{program}{n}"));
                let text = format!("echo once >>{count}; cat {fifo}; sh -c 'exit 5'\n");
                let sending = desk.client.send(typed(&id, &text));
                let path = fifo.clone();
                let there =
                    tokio::task::spawn_blocking(move || fs::File::options().write(true).open(path));
                let meanwhile = async {
                    let there = within(PATIENCE, "the line", there).await;
                    let mut there = there.expect("no panic").expect("it is there");
                    change.happen(house).await;
                    there.write_all(b"read\n").expect("it is being read");
                };
                let (sent, ()) = tokio::join!(sending, meanwhile);
                let sent = sent.unwrap_or_else(|e| panic!("{program} {change:?}: {e}"));
                assert_eq!(
                    (sent.reason, sent.exit_code),
                    (Reason::Prompt, Some(5)),
                    "{program}"
                );
                assert!(
                    sent.text.contains("read\n"),
                    "{program} {change:?}: {sent:?}"
                );
                assert_eq!(fs::read_to_string(count).expect("it ran"), "once\n");
                fs::remove_file(&fifo).expect("it is there");
            }
        }
    });
}

/// A prompt that was on its way ended the wait for what was typed behind it, with the code of the line before.
#[test]
fn a_text_that_is_typed_while_a_line_runs_is_not_answered_with_the_end_of_that() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = desk.shell(program).await;
            let fifo = house.fifo("go");
            let short = Send {
                timeout_ms: Some(200),
                ..typed(&id, &format!("cat {fifo}; sh -c 'exit 1'\n"))
            };
            let sent = desk.client.send(short).await.expect("an answer");
            assert_ne!(sent.reason, Reason::Prompt, "{program}");
            let next = desk.client.send(typed(&id, "sh -c 'exit 2'\n"));
            let path = fifo.clone();
            let go = async {
                // The next text stands in the terminal by then, or it does not: both are to be answered with its own code.
                let opened =
                    tokio::task::spawn_blocking(move || fs::File::options().write(true).open(path));
                opened.await.expect("no panic").expect("it is there");
            };
            let (next, ()) = tokio::join!(next, go);
            let next = next.expect("an answer");
            assert_eq!(
                (next.reason, next.exit_code),
                (Reason::Prompt, Some(2)),
                "{program} {next:?}"
            );
            fs::remove_file(&fifo).expect("it is there");
        }
    });
}

/// The same for texts: what was typed is typed once, and told.
#[test]
fn texts_are_typed_once_whenever_the_supervisor_is_killed() {
    let kills = rounds("OSTLER_KILLS", 10);
    in_house(async |house, desk| {
        let mut chance = Chance::of(kills as u64);
        for program in shells() {
            let id = desk.shell(program).await;
            let (told, mut answered) = tokio::sync::watch::channel(0);
            let over = std::cell::Cell::new(false);
            let kill = async {
                for _ in 0..kills {
                    kill_after(house, &mut answered, chance.below(10), &mut chance).await;
                }
                over.set(true);
            };
            let texts = async {
                let (mut unknown, mut n) = (0, 0);
                while !over.get() {
                    n += 1;
                    let text = format!(
                        "echo {n} >>{}; sh -c 'exit {}'\n",
                        house.path(program),
                        n % 100
                    );
                    let asked = desk.client.send(typed(&id, &text));
                    match within(PATIENCE, "an answer", asked).await {
                        Ok(sent) => {
                            let code = (sent.reason, sent.exit_code);
                            assert_eq!(
                                code,
                                (Reason::Prompt, Some(n % 100)),
                                "{program} {n} {sent:?}"
                            );
                            told.send_modify(|n| *n += 1);
                        }
                        Err(Error::Refused(why)) if why.kind == RefusalKind::Busy => {
                            assert!(why.message.contains("not known whether"), "{why:?}");
                            unknown += 1;
                        }
                        Err(e) => panic!("{program}: {e}"),
                    }
                }
                (n, unknown)
            };
            let ((n, unknown), ()) = tokio::join!(texts, kill);
            let written = fs::read_to_string(house.file(program)).expect("some ran");
            let mut written: Vec<i32> = written.lines().map(|l| l.parse().unwrap()).collect();
            assert!(unknown <= kills / 5 + 1, "{program}: {unknown}");
            let lines = written.len() as i32;
            assert!(
                lines <= n && lines >= n - unknown as i32,
                "{program} {lines} {n}"
            );
            written.dedup();
            assert_eq!(written.len() as i32, lines, "{program}: none twice");
        }
    });
}

#[test]
fn a_key_stands_for_one_line() {
    in_house(async |house, desk| {
        let id = desk.shell("bash").await;
        let keyed = |key: &str, line: &str| Exec {
            key: Some(key.into()),
            ..exec(&id, line)
        };
        let first = desk
            .must::<ShellExec>(keyed("a", "echo $$; echo x >&2; (exit 4)"))
            .await;
        let again = desk
            .must::<ShellExec>(keyed("a", "echo $$; echo x >&2; (exit 4)"))
            .await;
        assert_eq!(output(&first), output(&again));
        assert_eq!((first.from, first.next), (again.from, again.next));
        let conflict = desk.refused::<ShellExec>(keyed("a", "echo other")).await;
        assert_eq!(conflict.kind, RefusalKind::KeyConflict);
        // Others have run since, and another supervisor has taken over.
        desk.must::<ShellExec>(keyed("b", "echo b")).await;
        house.kill_supervisor().await;
        let again = desk
            .must::<ShellExec>(keyed("a", "echo $$; echo x >&2; (exit 4)"))
            .await;
        assert_eq!(output(&first), output(&again));
        let b = desk.must::<ShellExec>(keyed("b", "echo b")).await;
        assert_eq!(output(&b), ("b\n", Some(0)));
        for key in ["", &"k".repeat(300)] {
            let refused = desk.refused::<ShellExec>(keyed(key, "true")).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
        }
        let background = Exec {
            background: true,
            ..keyed("c", "true")
        };
        let refused = desk.refused::<ShellExec>(background).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
        let text = Send {
            key: Some("b".into()),
            ..typed(&id, "echo b")
        };
        let conflict = desk.refused::<ShellSend>(text).await;
        assert_eq!(conflict.kind, RefusalKind::KeyConflict, "a text is no line");
    });
}

/// What a supervisor has typed is its own affair; who waits on behind it is told what the line has printed.
#[test]
fn a_wait_behind_a_crash_tells_what_the_line_printed_and_not_how_it_was_handed_over() {
    in_house(async |house, desk| {
        for program in shells() {
            let id = desk.shell(program).await;
            let fifo = house.fifo("go");
            let line = format!("printf 'first\n'\ncat {fifo}\nsh -c 'exit 5'");
            let short = Exec {
                timeout_ms: Some(1_000),
                ..exec(&id, &line)
            };
            let asked = desk.client.exec(short);
            let path = fifo.clone();
            let there =
                tokio::task::spawn_blocking(move || fs::File::options().write(true).open(path));
            let meanwhile = async {
                let there = within(PATIENCE, "the line", there).await;
                let there = there.expect("no panic").expect("it is there");
                house.kill_supervisor().await;
                there
            };
            let (answer, mut there) = tokio::join!(asked, meanwhile);
            assert_eq!(answer.expect("an answer").reason, Reason::WaitOver);
            house.kill_supervisor().await;
            there.write_all(b"read\n").expect("it is being read");
            drop(there);
            let wait = Send {
                id: id.clone(),
                timeout_ms: Some(20_000),
                ..Send::default()
            };
            let sent = desk.client.send(wait).await.expect("an answer");
            assert_eq!((sent.reason, sent.exit_code), (Reason::Prompt, Some(5)));
            let text = sent.text.trim_start_matches(['\n', '\r']);
            assert!(text.starts_with("first\nread\n"), "{program}: {sent:?}");
            assert!(!text.contains("eval"), "{program}: {sent:?}");
            fs::remove_file(&fifo).expect("it is there");
        }
    });
}
