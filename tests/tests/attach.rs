//! Promise: a person sits down before the terminal of a job, beside an agent or in its place, and stands up again
//! with everything as it was.

use ostler_proto::job::{Size, Stream};
use ostler_proto::methods::{
    JobAttach, JobKeys, JobWrite, OpenSession, ShellExec, ShellOpen, ShellSend, Start, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::screen::{Attach, Keys};
use ostler_proto::shell::{Exec, OpenShell, Send};
use ostler_tests::installed;
use ostler_tests::screen::on_terminal;
use ostler_tests::{Desk, House, Tmux, command, in_house, within};

/// A shell with a prompt of its own.
fn shell(house: &House) -> Start {
    let file = house.path("prompt");
    std::fs::write(&file, "PS1='job> '\n").unwrap();
    let mut start = on_terminal(["sh", "-i"]);
    start.env.insert("ENV".into(), Some(file));
    start
}

fn person(house: &House, name: &str) -> Option<Tmux> {
    installed("tmux").then(|| house.tmux(name, 90, 24))
}

async fn write(desk: &Desk, id: &str, text: &str) {
    let write = Write {
        id: id.into(),
        text: Some(text.into()),
        ..Write::default()
    };
    assert!(desk.must::<JobWrite>(write).await.complete);
}

/// Two were greeted with the same words.
#[test]
fn whose_terminal_it_is_is_said_as_it_can_be_named_here() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let mut row = None;
        for id in ["app-1", "app-2"] {
            let desk = house.desk_of(OpenSession {
                id: Some(id.into()),
                name: Some("app".into()),
                ..OpenSession::default()
            });
            row = Some(
                desk.start(on_terminal(["sh", "-c", "echo here; exec sleep 60"]))
                    .await,
            );
        }
        let id = row.expect("two were started").process_id;
        person.line(&format!("ostler attach {id}"));
        person.shows("here");
        person.keys(&["C-]"]);
        person.shows("it still runs");
        let greeted = person.history();
        assert!(
            greeted.contains("t1 of app-2, 90x24; C-] leaves"),
            "{greeted}"
        );
    });
}

#[test]
fn a_person_and_an_agent_share_a_shell_and_both_see_the_truth() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        let row = desk.start(shell(house)).await;
        desk.shows(&row.id, "job>").await;
        write(&desk, &row.id, "echo before\n").await;
        desk.shows(&row.id, "before").await;
        person.line(&format!("ostler attach {}; echo code $?", row.process_id));
        // What was there is seen, then what comes.
        person.until("the last screen", |s| {
            s.contains("before") && s.starts_with("job>")
        });
        person.line("stty size; echo from-person");
        desk.sees(&row.id, "what the person has typed", |s| {
            s.rows.iter().any(|r| r == "from-person") && s.rows.iter().any(|r| r == "24 90")
        })
        .await;
        assert_eq!(
            desk.get(&row.id).await.row.terminal,
            Some(Size { rows: 24, cols: 90 }),
            "the window is that of the person"
        );
        write(&desk, &row.id, "echo from-agent\n").await;
        person.until("what the agent has typed", |s| {
            s.lines().any(|l| l == "from-agent")
        });
        person.keys(&["C-]"]);
        let left = person.shows("code 0");
        assert!(left.contains("; it still runs"), "{left}");
        let before = person.history();
        assert!(before.contains(", 90x24; C-] leaves"), "{before}");
        write(&desk, &row.id, "exit 5\n").await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(5));
    });
}

/// Seeds: the end of the shell ends the attach with its code.
#[test]
fn the_end_of_the_job_ends_the_attach_with_its_code() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        let row = desk.start(shell(house)).await;
        person.line(&format!("ostler attach {}; echo code $?", row.process_id));
        person.shows("job>");
        person.line("exit 3");
        let left = person.shows("code 3");
        assert!(left.contains(" exited with code 3"), "{left}");
        // Its terminal is as before: a line can be typed and is shown.
        person.line("echo all is we''ll");
        person.shows("all is well");
        let refused = desk.refused::<JobAttach>(attach(&row.id, "a")).await;
        assert_eq!(refused.message, format!("{} is over", row.id));
    });
}

fn attach(id: &str, seat: &str) -> Attach {
    Attach {
        id: id.into(),
        partial_result_token: 1.into(),
        rows: 24,
        cols: 80,
        seat: Some(seat.into()),
        ..Attach::default()
    }
}

#[test]
fn who_has_taken_a_terminal_types_alone() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        let row = desk.start(shell(house)).await;
        let id = &row.process_id;
        person.line(&format!("ostler attach {id} --take; echo code $?"));
        person.shows("job>");
        let text = Write {
            id: row.id.clone(),
            text: Some("echo agent\n".into()),
            ..Write::default()
        };
        let refused = desk.refused::<JobWrite>(text.clone()).await;
        assert_eq!(refused.kind, RefusalKind::Held);
        assert_eq!(refused.data["holder"], "the user");
        assert!(refused.data["since"].as_u64().unwrap() > 0);
        assert!(refused.message.contains(" is held by the user since "));
        let keys = Keys {
            id: row.id.clone(),
            keys: vec!["C-c".into()],
            ..Keys::default()
        };
        assert_eq!(desk.refused::<JobKeys>(keys).await.kind, RefusalKind::Held);
        let second = Attach {
            take: true,
            ..attach(&row.id, "b")
        };
        assert_eq!(
            desk.refused::<JobAttach>(second).await.kind,
            RefusalKind::Held
        );
        // To look on is nobody's loss, and neither is to sit beside; but only one types.
        let other = house.tmux("q", 90, 24);
        other.line(&format!("ostler attach {id}; echo code $?"));
        other.shows("job>");
        other.line("echo other");
        person.line("echo person");
        other.until("the person's line", |s| s.lines().any(|l| l == "person"));
        other.keys(&["C-]"]);
        other.shows("code 0");
        person.keys(&["C-]"]);
        person.shows("code 0");
        assert!(person.history().contains(", held by you; C-] leaves"));
        assert!(desk.must::<JobWrite>(text).await.complete);
        let screen = desk
            .sees(&row.id, "the agent's line", |s| {
                s.rows.iter().any(|r| r == "agent")
            })
            .await;
        assert!(!screen.rows.iter().any(|r| r == "other"), "{screen:?}");
    });
}

/// Bug report 079.
#[test]
fn the_window_follows_the_newest_person_and_goes_back() {
    in_house(async |house| {
        let Some(first) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        let line = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        desk.said(&row.id, "^up$").await;
        let id = &row.process_id;
        first.line(&format!("ostler attach {id}"));
        desk.said(&row.id, "^24 90$").await;
        let second = house.tmux("q", 70, 20);
        second.line(&format!("ostler attach {id}; echo code $?"));
        desk.said(&row.id, "^20 70$").await;
        // Who only looks changes nothing.
        let third = house.tmux("r", 60, 15);
        third.line(&format!(
            "ostler attach {id} --read-only --detach-key C-a; echo code $?"
        ));
        third.shows("20 70");
        first.resize(85, 22);
        desk.said(&row.id, "^22 85$").await;
        second.resize(75, 21);
        desk.said(&row.id, "^21 75$").await;
        second.keys(&["C-]"]);
        second.shows("code 0");
        desk.until(&row.id, "the window of the first one", |r| {
            r.row.terminal == Some(Size { rows: 22, cols: 85 })
        })
        .await;
        third.keys(&["x", "C-a"]);
        third.shows("code 0");
        first.keys(&["C-]"]);
        first.shows("still runs");
        let typed = desk.read(&row.id, 0).await.text.unwrap();
        assert!(!typed.contains('x'), "{typed:?}");
    });
}

/// The terminal that a person gets back is the one that they had, however the visit ends.
#[test]
fn whatever_ends_a_visit_the_terminal_is_as_it_was() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        // On the other screen, with mouse, paste brackets and no cursor.
        let line = "printf '\\033[?1049h\\033[?1000h\\033[?2004h\\033[?1h\\033[?25l\\033[31mon the other screen'; exec sleep 1000";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        desk.shows(&row.id, "on the other screen").await;
        let id = &row.process_id;
        person.line("PS1='# '; stty -a >before");
        for (how, code) in [("TERM", 0), ("HUP", 0), ("INT", 0)] {
            person.line("clear");
            person.line(&format!(
                "sh -c 'echo $$ >pid; exec ostler attach {id}'; echo $? >code; stty -a >after; cmp before after && echo sa''me-{how}"
            ));
            person.until("the other screen", |s| s.starts_with("on the other screen"));
            let pid = std::fs::read_to_string(house.file("p/pid")).unwrap();
            let said = house.shell(&format!("kill -{how} {pid}"));
            assert_eq!(said.code, 0, "{said:?}");
            let screen = person.shows(&format!("same-{how}"));
            assert!(!screen.contains("on the other screen"), "{screen}");
            let told = std::fs::read_to_string(house.file("p/code")).unwrap();
            assert_eq!(told.trim(), code.to_string(), "{how}");
        }
        // The house itself goes.
        person.line("clear");
        person.line(&format!(
            "ostler attach {id}; echo code $?; stty -a >after; cmp before after && echo sa''me-house"
        ));
        person.until("the other screen", |s| s.starts_with("on the other screen"));
        assert_eq!(house.cli(&["stop", id, "--force"]).code, 0);
        let screen = person.shows("same-house");
        assert!(screen.contains("was stopped by the user"), "{screen}");
        assert!(screen.contains("code 137"), "{screen}");
    });
}

/// Nothing of the last visit is on the screen that could be taken for the next one.
fn wiped(person: &Tmux) {
    person.line("clear");
    person.until("an empty screen", |s| s.trim() == ">");
}

/// Walk 9: a person takes over a shell that an agent works in.
#[test]
fn a_person_takes_over_a_shell_and_the_agent_is_told() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        if !installed("bash") {
            return;
        }
        let desk = house.desk();
        let opened = desk
            .must::<ShellOpen>(OpenShell {
                args: vec!["bash".into()],
                clean: true,
                cwd: Some("/".into()),
                wait_ms: Some(20_000),
                ..OpenShell::default()
            })
            .await;
        assert!(opened.ready, "{opened:?}");
        let (id, label) = (&opened.row.process_id, &opened.row.id);
        let exec = |line: &str| Exec {
            id: id.clone(),
            line: line.into(),
            timeout_ms: Some(20_000),
            ..Exec::default()
        };
        let ran = desk.must::<ShellExec>(exec("cd /tmp; echo by-agent")).await;
        assert_eq!(ran.output.as_deref(), Some("by-agent\n"));
        // Beside each other: what the person types during a line of the agent is told with it.
        person.line(&format!("ostler attach {id}"));
        person.until("the last screen", |s| s.lines().any(|l| l == "by-agent"));
        let quiet = desk.must::<ShellExec>(exec("echo alone")).await;
        assert!(
            !quiet.shared,
            "a terminal that answers has typed nothing: {quiet:?}"
        );
        assert_eq!(quiet.output.as_deref(), Some("alone\n"));
        person.until("the agent's line", |s| s.lines().any(|l| l == "alone"));
        let reads = desk.must::<ShellExec>(Exec {
            through: true,
            ..exec("printf 'ask: '; read -r word; echo got-$word")
        });
        let types = async {
            desk.shows(id, "ask:").await;
            person.line("person");
        };
        let (ran, ()) = tokio::join!(reads, types);
        assert!(ran.shared, "{ran:?}");
        person.keys(&["C-]"]);
        let left = person.shows("left ");
        assert!(left.contains("; no command runs in it"), "{left}");
        // Alone: the agent is refused until the person leaves.
        wiped(&person);
        person.line(&format!("ostler attach {id} --take"));
        person.until("the last screen", |s| s.lines().any(|l| l == "alone"));
        let refused = desk.refused::<ShellExec>(exec("echo no")).await;
        assert_eq!(refused.kind, RefusalKind::Held);
        let send = Send {
            id: id.clone(),
            text: "echo no\n".into(),
            ..Send::default()
        };
        assert_eq!(
            desk.refused::<ShellSend>(send).await.kind,
            RefusalKind::Held
        );
        // In front by the time it speaks: between fork and exec an interrupt is lost.
        person.line("sh -c 'echo in-front; exec sleep 1000'");
        person.until("the command", |s| s.lines().any(|l| l == "in-front"));
        desk.sees(id, "a command in front", |s| s.foreground.is_some())
            .await;
        person.keys(&["C-]"]);
        let left = person.shows("; a command still runs in it");
        assert!(left.contains(&format!("/{label};")), "{left}");
        desk.press(id, &["C-c"]).await;
        desk.sees(id, "the prompt", |s| {
            let last = s.rows.iter().rfind(|row| !row.is_empty());
            s.foreground.is_none() && last.is_some_and(|row| row.ends_with(['#', '$']))
        })
        .await;
        let ran = desk.must::<ShellExec>(exec("pwd")).await;
        assert_eq!(ran.output.as_deref(), Some("/tmp\n"));
        // Its end ends a visit with its code.
        wiped(&person);
        person.line(&format!("ostler attach {id}; echo code $?"));
        person.until("the last screen", |s| s.lines().any(|l| l == "alone"));
        person.line("exit 3");
        person.shows("code 3");
    });
}

#[test]
fn a_visit_goes_on_with_a_new_supervisor() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        let desk = house.desk();
        let row = desk.start(shell(house)).await;
        let id = &row.process_id;
        person.line(&format!("ostler attach {id} --take"));
        person.shows("job>");
        person.line("echo one");
        person.until("one", |s| s.lines().any(|l| l == "one"));
        house.kill_supervisor().await;
        // A key that nobody can say the fate of is told by a bell and not typed twice: this one asks for a new prompt.
        let typed = async {
            let desk = house.desk();
            loop {
                person.keys(&["Enter"]);
                person.line("echo two");
                let page = desk.read(id, 0).await;
                if page.text.unwrap().contains("\r\ntwo\r\n") {
                    return desk;
                }
            }
        };
        let desk = within(ostler_tests::PATIENCE, "a line after the crash", typed).await;
        person.until("two", |s| s.lines().any(|l| l == "two"));
        let keys = Keys {
            id: id.clone(),
            keys: vec!["C-c".into()],
            ..Keys::default()
        };
        let refused = desk.refused::<JobKeys>(keys).await;
        assert_eq!(refused.kind, RefusalKind::Held, "it is still held");
    });
}

/// The real terminal answers then, and nobody twice.
#[test]
fn while_a_person_is_there_their_terminal_answers() {
    in_house(async |house| {
        let Some(person) = person(house, "p") else {
            return;
        };
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let asks = "import os, tty; tty.setraw(0); os.write(1, b'up\\r\\n')
while True:
    some = os.read(0, 4096)
    if some == b'q': break
    os.write(1, b'\\x1b[5n' if some == b'a' else b'got ' + some.hex().encode() + b'\\r\\n')";
        let row = desk.start(on_terminal(["python3", "-c", asks])).await;
        desk.said(&row.id, "^up$").await;
        let id = &row.process_id;
        person.line(&format!("ostler attach {id}; echo code $?"));
        person.shows("up");
        // Both terminals see the question and answer it.
        let other = house.tmux("q", 90, 24);
        other.line(&format!("ostler attach {id}; echo code $?"));
        other.shows("up");
        person.keys(&["a"]);
        person.shows("got 1b5b306e");
        other.keys(&["y"]);
        person.shows("got 79");
        person.keys(&["x"]);
        person.shows("got 78");
        let text = desk.read(&row.id, 0).await.text.unwrap();
        assert_eq!(text.matches("1b5b306e").count(), 1, "{text:?}");
        person.keys(&["q"]);
        person.shows("code 0");
        other.shows("code 0");
    });
}

#[test]
fn what_cannot_be_attached_to_is_refused_politely() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(shell(house)).await;
        let said = house.cli(&["attach", &row.process_id]);
        assert_eq!(said.code, 2);
        assert!(
            said.err
                .starts_with("error: attach needs a terminal\nhint: ")
        );
        let plain = desk.start(command(["sleep", "1000"])).await;
        let (code, seen) = house
            .terminal(&format!("ostler attach {}", plain.process_id))
            .ends();
        assert_eq!(code, 125);
        assert!(seen.contains(" has no terminal"), "{seen:?}");
        assert!(seen.contains("hint: start --pty"), "{seen:?}");
        assert!(!seen.contains("\x1b[?25h"), "nothing was touched: {seen:?}");
        let nobody = format!("ostler attach {}/nobody", row.session.id);
        let (code, seen) = house.terminal(&nobody).ends();
        assert_eq!(code, 125);
        assert!(seen.contains("error: no job nobody"), "{seen:?}");
        let (code, _) = house
            .terminal(&format!("ostler attach {} --detach-key x", row.process_id))
            .ends();
        assert_eq!(code, 2);
        for bad in [
            Attach {
                rows: 0,
                ..attach(&row.id, "a")
            },
            Attach {
                cols: 5_001,
                ..attach(&row.id, "a")
            },
            Attach {
                take: true,
                read_only: true,
                ..attach(&row.id, "a")
            },
            attach(&row.id, &"x".repeat(65)),
        ] {
            let refused = desk.refused::<JobAttach>(bad).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
        }
        let page = desk.stream(&row.id, Stream::Stdout).await;
        assert!(page.starts_with(b"job>"), "nothing was typed into it");
    });
}
