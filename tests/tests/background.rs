//! Promise: what is sent to a shell in the background is a job like any other. It is listed, read, waited for and
//! stopped; its log has exactly what it printed; the shell outlives it; and it never hangs.

use std::fs;
use std::time::Duration;

use ostler::follow::Event;
use ostler_proto::job::{Kind, Outcome, Row, State};
use ostler_proto::methods::{
    AdoptSession, CloseSession, For, Happened, JobGet, JobRelease, JobSignal, JobStop, JobWait,
    JobWrite, Notices, OpenSession, ReadNotices, Reason, RenameSession, SessionAdopt, SessionClose,
    SessionNotices, SessionRename, SessionWatch, ShellClose, ShellExec, ShellOpen, ShellSend,
    SignalJob, Stop, Target, Wait, WatchSession, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{Exec, Executed, OpenShell, Send};
use ostler_tests::process::Process;
use ostler_tests::{Desk, PATIENCE, in_house_of_shells as in_house, installed, puppet, within};

async fn bash(desk: &Desk) -> String {
    desk.shell("bash").await
}

fn line(id: &str, line: &str) -> Exec {
    Exec {
        id: id.into(),
        line: line.into(),
        background: true,
        ..Exec::default()
    }
}

/// Runs a line in the background; returns its row.
async fn begin(desk: &Desk, id: &str, text: &str) -> Row {
    begun(desk.must::<ShellExec>(line(id, text)).await)
}

fn begun(executed: Executed) -> Row {
    assert_eq!(executed.reason, Reason::Background);
    let row = *executed.job.expect("there is one");
    assert_eq!(row.kind, Kind::Send);
    assert_eq!(row.shell.as_deref(), Some(&*executed.row.process_id));
    row
}

/// Runs a line in the foreground that ends; returns its output.
async fn run(desk: &Desk, id: &str, text: &str) -> String {
    let ask = Exec {
        background: false,
        timeout_ms: Some(20_000),
        ..line(id, text)
    };
    let executed = desk.must::<ShellExec>(ask).await;
    assert_eq!(executed.reason, Reason::Prompt, "{executed:?}");
    executed.output.expect("text was asked for")
}

/// A step of a line: prints its own number, then lives until it is told to go on.
fn stubborn(fifo: &str) -> String {
    format!("{} on INT [ , ] , say ready , await {fifo}", puppet())
}

fn target(id: &str) -> Target {
    Target {
        session: None,
        id: id.into(),
    }
}

async fn whole(desk: &Desk, id: &str) -> String {
    let (page, bytes) = desk.read_raw(id, 0, 1 << 20).await;
    assert_eq!((page.lost, page.next), (0, page.end), "{page:?}");
    String::from_utf8(bytes).expect("it is text")
}

/// E8.
#[test]
fn the_turn_is_taken_before_there_is_an_id() {
    in_house(async |house, desk| {
        let id = bash(&desk).await;
        let fifo = house.fifo("go");
        let text = format!("{} await {fifo}", puppet());
        let asked = (0..20).map(|_| {
            let (desk, ask) = (desk.clone(), line(&id, &text));
            tokio::spawn(async move { desk.call::<ShellExec>(ask).await })
        });
        let asked: Vec<_> = asked.collect();
        let (mut rows, mut refused) = (Vec::new(), 0);
        for answer in asked {
            match answer.await.expect("no task panics") {
                Ok(executed) => rows.push(begun(executed)),
                Err(refusal) => {
                    assert_eq!(refusal.kind, RefusalKind::Busy, "{refusal:?}");
                    refused += 1;
                }
            }
        }
        assert_eq!((rows.len(), refused), (1, 19));
        assert_eq!(rows[0].id, "x1");
        let sends = desk.list().await;
        assert_eq!(sends.iter().filter(|r| r.kind == Kind::Send).count(), 1);
        house.open(&fifo).await;
        desk.wait("x1").await;
        let next = begin(&desk, &id, "true").await;
        assert_eq!(next.id, "x2", "a refusal uses up no id");
        desk.wait("x2").await;
    });
}

#[test]
fn its_log_has_exactly_what_it_printed_and_its_code_is_that_of_the_line() {
    in_house(async |_, desk| {
        let lines = [
            ("printf 'a\\r\\n\\n\\tb'; (exit 7)", "a\r\n\n\tb", 7),
            ("true", "", 0),
            ("echo é; false", "é\n", 1),
            ("printf 'x\\r'", "x\r", 0),
            (
                "printf '\\033[1mb\\033]133;D;0\\007'",
                "\u{1b}[1mb\u{1b}]133;D;0\u{7}",
                0,
            ),
        ];
        for program in ["bash", "zsh", "dash", "fish"] {
            if !installed(program) {
                continue;
            }
            let id = desk.shell(program).await;
            for (text, output, code) in lines {
                if program == "fish" && (text.contains("(exit") || text.contains("]133")) {
                    // It has no such list, and takes foreign marks off its own output.
                    continue;
                }
                let begun = begin(&desk, &id, text).await;
                assert_eq!(begun.args, [text]);
                let row = desk.wait(&begun.id).await;
                assert_eq!(row.outcome, Some(Outcome::Exited), "{program}: {row:?}");
                assert_eq!(row.exit_code, Some(code), "{program}: {text}");
                assert_eq!(row.ok, Some(code == 0));
                assert_eq!(whole(&desk, &row.id).await, output, "{program}: {text}");
                assert_eq!(desk.get(&row.id).await.stdout.as_deref(), Some(output));
            }
            assert_eq!(run(&desk, &id, "echo next").await, "next\n");
        }
    });
}

/// More than a ring, and as it comes.
#[test]
fn output_above_the_ring_is_whole() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, "seq 1 200000").await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(0));
        let expected: String = (1..=200_000).map(|n| format!("{n}\n")).collect();
        let mut got = Vec::new();
        loop {
            let (page, bytes) = desk.read_raw(&row.id, got.len() as u64, 1 << 20).await;
            assert_eq!(page.lost, 0);
            got.extend(bytes);
            if page.eof {
                break;
            }
        }
        assert!(got == expected.as_bytes(), "{} bytes", got.len());
    });
}

#[test]
fn what_it_prints_is_there_before_its_end_and_it_waits_through_a_question() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, "echo before; read -r x; echo got-$x").await;
        assert_eq!(desk.said(&row.id, "before").await, "before");
        desk.wait_for(&row.id, For::Quiet(50)).await;
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        let busy = desk.refused::<ShellExec>(line(&id, "true")).await;
        assert_eq!(busy.kind, RefusalKind::Busy);
        let send = Send {
            id: id.clone(),
            ..Send::default()
        };
        assert_eq!(
            desk.refused::<ShellSend>(send).await.kind,
            RefusalKind::Busy
        );
        let answer = Write {
            id: id.clone(),
            text: Some("yes\n".into()),
            ..Write::default()
        };
        desk.must::<JobWrite>(answer).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(0));
        assert_eq!(whole(&desk, &row.id).await, "before\nyes\ngot-yes\n");
    });
}

#[test]
fn a_stop_interrupts_what_runs_and_the_shell_keeps_its_state() {
    in_house(async |_, desk| {
        for program in ["bash", "zsh", "dash"] {
            if !installed(program) {
                continue;
            }
            let id = desk.shell(program).await;
            run(&desk, &id, "cd /tmp; A=kept").await;
            let text = format!("{} say ready , sleep; echo not-here", puppet());
            let row = begin(&desk, &id, &text).await;
            desk.said(&row.id, "ready").await;
            let receipt = desk.stop(&row.id, 20_000).await;
            assert_eq!(receipt.row.outcome, Some(Outcome::Stopped), "{receipt:?}");
            assert_eq!(receipt.survivors, []);
            assert_eq!((receipt.ended, receipt.forced), (1, 0), "{program}");
            let by = receipt.row.outcome_detail.and_then(|d| d.by);
            assert_eq!(by.as_deref(), Some("client"));
            let state = run(&desk, &id, "echo $A; pwd").await;
            assert_eq!(state, "kept\n/tmp\n", "{program}");
            assert!(!whole(&desk, &row.id).await.contains("not-here"));
        }
    });
}

#[test]
fn a_loop_of_the_shell_itself_is_interrupted_too() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        run(&desk, &id, "A=kept").await;
        let row = begin(&desk, &id, "echo ready; while :; do :; done").await;
        desk.said(&row.id, "ready").await;
        let receipt = desk.stop(&row.id, 20_000).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped), "{receipt:?}");
        assert_eq!(run(&desk, &id, "echo $A").await, "kept\n");
    });
}

#[test]
fn what_ignores_the_interrupt_is_killed_after_the_grace() {
    in_house(async |house, desk| {
        let id = bash(&desk).await;
        run(&desk, &id, "A=kept").await;
        let row = begin(&desk, &id, &stubborn(&house.fifo("never"))).await;
        desk.said(&row.id, "ready").await;
        let receipt = desk.stop(&row.id, 200).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped), "{receipt:?}");
        assert_eq!((receipt.ended, receipt.forced), (1, 1));
        assert_eq!(run(&desk, &id, "echo $A").await, "kept\n");
    });
}

/// Nothing may end the shell for it, so it is named, and a later stop can still succeed.
#[test]
fn a_shell_that_ignores_the_interrupt_itself_is_named_as_survivor() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let text = "trap '' INT; trap 'go=1' USR1; echo ready; while [ -z \"$go\" ]; do :; done; trap - INT; echo over";
        let row = begin(&desk, &id, text).await;
        desk.said(&row.id, "ready").await;
        let receipt = desk.stop(&row.id, 0).await;
        assert_eq!(receipt.survivors.len(), 1, "{receipt:?}");
        assert_eq!(receipt.row.state, State::Stopping);
        let shell = desk.get(&id).await.row;
        let pid = shell.pid.expect("it lives");
        assert_eq!(receipt.survivors[0].pid, pid);
        Process::of(pid).expect("it lives").signal(libc::SIGUSR1);
        let row = desk.wait(&row.id).await;
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        assert_eq!(whole(&desk, &row.id).await, "ready\nover\n");
    });
}

#[test]
fn its_time_limit_interrupts_it() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let ask = Exec {
            timeout_ms: Some(300),
            ..line(&id, &format!("{} say ready , sleep", puppet()))
        };
        let row = begun(desk.must::<ShellExec>(ask).await);
        let row = desk.wait(&row.id).await;
        assert_eq!(row.outcome, Some(Outcome::TimedOut), "{row:?}");
        assert_eq!(row.outcome_detail.and_then(|d| d.limit), Some(300));
        assert_eq!(run(&desk, &id, "echo on").await, "on\n");
    });
}

#[test]
fn it_is_lost_with_its_shell_and_whoever_ends_that_finds_it_over() {
    in_house(async |_, desk| {
        // By a stop, which keeps the shell's record; by a close, which does not; and by the line itself.
        for way in ["stop", "close", "line"] {
            let id = bash(&desk).await;
            let text = match way {
                "line" => "echo ready; exit 7".to_owned(),
                _ => format!("{} say ready , sleep", puppet()),
            };
            let row = begin(&desk, &id, &text).await;
            desk.said(&row.id, "ready").await;
            match way {
                "stop" => drop(desk.stop(&id, 0).await),
                "close" => drop(desk.must::<ShellClose>(target(&id)).await),
                _ => drop(desk.wait(&row.id).await),
            }
            let row = desk.get(&row.id).await.row;
            assert_eq!(row.state, State::Exited, "{way}");
            assert_eq!(row.outcome, Some(Outcome::Lost), "{way}: {row:?}");
            let why = row.outcome_detail.and_then(|d| d.reason);
            assert_eq!(why.as_deref(), Some("its shell ended"));
            if way == "line" {
                assert_eq!(row.exit_code, Some(7));
            }
            assert_eq!(row.tree.left, 0);
        }
    });
}

#[test]
fn everything_stops_together() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, &format!("{} say ready , sleep", puppet())).await;
        desk.said(&row.id, "ready").await;
        let stop = Stop {
            all: true,
            ..Stop::default()
        };
        let summary = desk.must::<JobStop>(stop).await;
        let outcomes: Vec<_> = summary.jobs.iter().map(|r| r.row.outcome).collect();
        assert_eq!(outcomes, [Some(Outcome::Stopped); 2], "{summary:?}");
        let id = bash(&desk).await;
        begin(&desk, &id, "sleep 1000").await;
        let closed = desk.must::<SessionClose>(CloseSession::default()).await;
        assert!(closed.jobs.iter().all(|r| r.survivors.is_empty()));
    });
}

#[test]
fn a_new_supervisor_answers_for_what_was_sent_by_the_one_before() {
    in_house(async |house, desk| {
        let id = bash(&desk).await;
        let fifo = house.fifo("go");
        let done = begin(&desk, &id, "echo done").await;
        desk.wait(&done.id).await;
        let text = format!("A=kept; seq 1 100000; {} await {fifo}", puppet());
        let row = begin(&desk, &id, &text).await;
        desk.said(&row.id, "^100000$").await;
        let spill = desk.get(&row.id).await.row.output.spill.expect("it is big");
        house.kill_supervisor().await;
        for name in [&row.id, &row.process_id] {
            let gone = desk.refused::<JobGet>(target(name)).await;
            assert_eq!(gone.kind, RefusalKind::Gone, "{gone:?}");
            let words = format!(
                "{name} was lost when its supervisor was replaced; what it sent goes on in {id}"
            );
            assert_eq!(gone.message, words);
        }
        assert!(!fs::exists(&spill).unwrap(), "{spill} is nobody's");
        assert_eq!(
            desk.get(&done.id).await.stdout.as_deref(),
            Some("done\n"),
            "one that was over is kept"
        );
        let busy = desk.refused::<ShellExec>(line(&id, "true")).await;
        assert_eq!(busy.kind, RefusalKind::Busy);
        house.open(&fifo).await;
        let waits = Send {
            id: id.clone(),
            timeout_ms: Some(20_000),
            ..Send::default()
        };
        assert_eq!(desk.must::<ShellSend>(waits).await.reason, Reason::Prompt);
        // Once more: what the new one has said is remembered as well.
        house.kill_supervisor().await;
        let gone = desk.refused::<JobGet>(target(&row.id)).await;
        assert_eq!(gone.kind, RefusalKind::Gone);
        let next = begin(&desk, &id, "echo $A").await;
        assert_eq!(next.id, "x3", "no id is given out twice");
        desk.wait(&next.id).await;
        assert_eq!(whole(&desk, &next.id).await, "kept\n");
    });
}

#[test]
fn a_release_stops_it_and_forgets_it() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, &format!("{} say ready , sleep", puppet())).await;
        desk.said(&row.id, "ready").await;
        let released = desk.must::<JobRelease>(target(&row.id)).await;
        let row = released.row.expect("it was there");
        assert_eq!(row.outcome, Some(Outcome::Stopped));
        let gone = desk.refused::<JobGet>(target(&row.id)).await;
        assert_eq!(gone.kind, RefusalKind::Gone);
        assert_eq!(run(&desk, &id, "echo on").await, "on\n");
    });
}

async fn notices(desk: &Desk, seen: Option<u64>) -> Notices {
    let ask = ReadNotices {
        seen,
        ..ReadNotices::default()
    };
    desk.must::<SessionNotices>(ask).await
}

#[test]
fn its_end_is_told_once() {
    in_house(async |house, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, "exit_with() { return 3; }; exit_with").await;
        desk.over(&row.id).await;
        let told = notices(&desk, None).await.notices;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].row.id, row.id);
        assert_eq!(told[0].row.exit_code, Some(3));
        house.kill_supervisor().await;
        let again = notices(&desk, None).await.notices;
        assert_eq!(again.len(), 1);
        assert_eq!(notices(&desk, Some(again[0].number)).await.notices.len(), 0);
    });
}

#[test]
fn it_moves_with_its_session() {
    in_house(async |house, desk| {
        let id = bash(&desk).await;
        let fifo = house.fifo("go");
        let row = begin(&desk, &id, &format!("{} await {fifo}", puppet())).await;
        let rename = RenameSession {
            session: Some("x".into()),
            to: "y".into(),
        };
        desk.must::<SessionRename>(rename).await;
        let wait = Wait {
            ids: vec![format!("y/{}", row.id)],
            ..Wait::default()
        };
        let waiting = desk.must::<JobWait>(wait);
        let ended = async {
            house.open(&fifo).await;
        };
        let (mut waited, ()) = tokio::join!(waiting, ended);
        let ended = waited.jobs.remove(0).row;
        assert_eq!(ended.exit_code, Some(0));
        assert_eq!(ended.session.id, "y");
        let busy = begin(&desk, &format!("y/{id}"), "sleep 1000").await;
        house.kill_supervisor().await;
        let gone = desk
            .refused::<JobGet>(target(&format!("y/{}", busy.id)))
            .await;
        assert_eq!(gone.kind, RefusalKind::Gone, "{gone:?}");
    });
}

/// Over the quota of the parent, under the next free id, its old one still good; and a crash finds it there.
#[test]
fn an_adopted_one_has_the_next_id_and_answers_to_the_old_one() {
    in_house(async |house, desk| {
        let own = bash(&desk).await;
        let row = begin(&desk, &own, "true").await;
        desk.wait(&row.id).await;
        let child = house.desk_of(OpenSession {
            id: Some("child".into()),
            parent: Some("x".into()),
            ..OpenSession::default()
        });
        let id = bash(&child).await;
        let fifo = house.fifo("go");
        let row = begin(
            &child,
            &id,
            &format!("{} await {fifo} , say over", puppet()),
        )
        .await;
        assert_eq!(row.id, "x1");
        let ask = AdoptSession {
            session: "child".into(),
            into: None,
        };
        let moved = desk.must::<SessionAdopt>(ask).await;
        let sent = moved.jobs.iter().find(|j| j.process_id == row.process_id);
        assert_eq!(sent.expect("it went along").to, "x2");
        let shell = desk.get("child/s1").await.row;
        assert_eq!(row.shell.as_deref(), Some(&*shell.process_id));
        house.open(&fifo).await;
        assert_eq!(desk.wait("child/x1").await.exit_code, Some(0));
        assert_eq!(whole(&desk, "x2").await, "over\n");
        begin(&desk, &shell.id, "sleep 1000").await;
        house.kill_supervisor().await;
        let gone = desk.refused::<JobGet>(target("x3")).await;
        let words = format!("what it sent goes on in {}", shell.id);
        assert!(gone.message.ends_with(&words), "{gone:?}");
        assert_eq!(desk.get("x2").await.row.exit_code, Some(0));
    });
}

/// No process stands for it; whoever waits for its server means one in its shell.
#[test]
fn a_wait_for_a_port_means_a_listener_in_its_shell() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let text = format!("{} listen 0 , say ready , sleep", puppet());
        let row = begin(&desk, &id, &text).await;
        let port = u16::try_from(desk.number(&row.id, "port").await).expect("it is one");
        let told = desk.wait_for(&row.id, For::Port(port)).await;
        let listener = told.listener.expect("somebody listens");
        assert_eq!((told.reason, listener.port), (Reason::Port, port));
        assert_eq!(told.row.id, row.id);
        desk.stop(&row.id, 0).await;
    });
}

#[test]
fn whoever_watches_is_told_of_it_like_of_any_job() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let mut stream = desk.client.stream::<SessionWatch>(WatchSession::default());
        let mut told = Vec::new();
        while told.last() != Some(&Happened::Exited) {
            let next = within(PATIENCE, "an event", stream.next()).await;
            let Ok(Event::Happened(event)) = next else {
                panic!("{next:?}")
            };
            if event.what == Happened::Watching {
                begin(&desk, &id, "echo out").await;
            } else if event.row.is_some_and(|row| row.kind == Kind::Send) {
                told.push(event.what);
            }
        }
        let whole = [Happened::Starting, Happened::Running, Happened::Exited];
        assert_eq!(told, whole);
    });
}

/// Nobody tells the end of such a line any more. It held its shell for ever, and no stop helped.
#[test]
fn a_line_that_throws_the_marks_away_can_be_stopped() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let text = "echo ready; PS1='$ ' PROMPT_COMMAND=; unset -f $(compgen -A function __ost)";
        let row = begin(&desk, &id, text).await;
        desk.said(&row.id, "ready").await;
        desk.wait_for(&row.id, For::Quiet(300)).await;
        let receipt = desk.stop(&row.id, 0).await;
        assert_eq!(receipt.survivors, [], "{receipt:?}");
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        assert_eq!(desk.get(&id).await.row.state, State::Running);
        let send = Send {
            id: id.clone(),
            text: "echo o''n".into(),
            enter: true,
            ..Send::default()
        };
        let sent = desk.must::<ShellSend>(send).await;
        assert!(sent.text.contains("on"), "{sent:?}");
    });
}

#[test]
fn a_text_is_over_when_whoever_took_it_waits_again() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let ask = Send {
            id: id.clone(),
            text: "echo $((20 + 1)); (exit 4)".into(),
            enter: true,
            background: true,
            ..Send::default()
        };
        let sent = desk.must::<ShellSend>(ask).await;
        assert_eq!(sent.reason, Reason::Background);
        let row = *sent.job.expect("there is one");
        let row = desk.wait(&row.id).await;
        assert_eq!(
            (row.outcome, row.exit_code),
            (Some(Outcome::Exited), Some(4))
        );
        let reason = row.outcome_detail.and_then(|d| d.reason);
        assert_eq!(reason.as_deref(), Some("prompt"));
        let printed = whole(&desk, &row.id).await;
        assert!(printed.contains("21\n"), "{printed:?}");

        let cat = desk.shell("cat").await;
        let ask = Send {
            id: cat.clone(),
            text: "hello\n".into(),
            background: true,
            ..Send::default()
        };
        let sent = desk.must::<ShellSend>(ask).await;
        let row = desk.wait(&sent.job.expect("there is one").id).await;
        assert_eq!((row.outcome, row.exit_code), (Some(Outcome::Exited), None));
        assert_eq!(row.ok, Some(true), "{row:?}");
        assert_eq!(whole(&desk, &row.id).await, "hello\nhello\n");
    });
}

/// A program that would die of the interrupt is left alone: it is the shell.
#[test]
fn the_stop_of_a_text_ends_no_program_that_is_the_shell_itself() {
    in_house(async |house, desk| {
        let fifo = house.fifo("never");
        let request = OpenShell {
            args: [
                "sh",
                "-c",
                &format!("echo up; read -r x; echo took-$x; exec <{fifo}"),
            ]
            .map(str::to_owned)
            .to_vec(),
            cwd: Some("/".into()),
            wait_ms: Some(20_000),
            ..OpenShell::default()
        };
        let opened = desk.must::<ShellOpen>(request).await;
        assert!(!opened.exec);
        let ask = Send {
            id: opened.row.id.clone(),
            text: "it\n".into(),
            background: true,
            ..Send::default()
        };
        let sent = desk.must::<ShellSend>(ask).await;
        let row = sent.job.expect("there is one");
        desk.said(&row.id, "took-it").await;
        let receipt = desk.stop(&row.id, 20_000).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        assert_eq!(receipt.ended, 0);
        let shell = desk.get(&opened.row.id).await.row;
        assert_eq!(shell.state, State::Running, "{shell:?}");
    });
}

#[test]
fn what_has_no_process_says_where_to_turn() {
    in_house(async |_, desk| {
        let id = bash(&desk).await;
        let row = begin(&desk, &id, "read -r x").await;
        let shell = row.shell.clone().expect("it is named");
        let signal = SignalJob {
            session: None,
            id: row.id.clone(),
            signal: "SIGINT".into(),
        };
        let refused = desk.refused::<JobSignal>(signal).await;
        assert_eq!(refused.kind, RefusalKind::NoGroup);
        let write = Write {
            id: row.id.clone(),
            text: Some("x\n".into()),
            ..Write::default()
        };
        let refused = desk.refused::<JobWrite>(write).await;
        assert_eq!(refused.kind, RefusalKind::NoInput);
        let hint = format!("ostler send {shell}");
        assert_eq!(refused.hint, Some(hint));
    });
}

/// A shell that has just been opened takes it when it has started; one that has something else to do refuses.
#[test]
fn it_waits_for_a_shell_that_starts_and_is_refused_by_one_that_works() {
    in_house(async |_, desk| {
        let request = OpenShell {
            args: vec!["bash".into()],
            clean: true,
            cwd: Some("/".into()),
            wait_ms: Some(0),
            ..OpenShell::default()
        };
        let opened = desk.must::<ShellOpen>(request).await;
        let row = begin(&desk, &opened.row.id, "echo started").await;
        desk.wait(&row.id).await;
        assert_eq!(whole(&desk, &row.id).await, "started\n");
        let ask = Exec {
            timeout_ms: Some(300),
            background: false,
            ..line(&opened.row.id, "sleep 1000")
        };
        let waits = desk.must::<ShellExec>(ask).await;
        assert_eq!(waits.reason, Reason::WaitOver);
        let refused = desk
            .refused::<ShellExec>(line(&opened.row.id, "true"))
            .await;
        assert_eq!(refused.kind, RefusalKind::Busy);
        let rows = desk.list().await;
        assert_eq!(rows.iter().filter(|r| r.kind == Kind::Send).count(), 1);
    });
}

#[test]
fn on_the_command_line_it_is_a_job() {
    in_house(async |house, _| {
        let said = house.cli(&["shell", "open", "--clean", "--", "bash"]);
        assert_eq!(said.code, 0, "{said:?}");
        let said = house.cli(&[
            "shell",
            "exec",
            "s1",
            "-b",
            "echo a b; exit_() { return 9; }; exit_",
        ]);
        assert_eq!((said.code, said.out.as_str()), (0, "x1\n"), "{said:?}");
        assert_eq!(house.cli(&["wait", "x1"]).code, 9);
        let said = house.cli(&["tail", "-f", "x1"]);
        assert_eq!((said.code, said.out.as_str()), (9, "a b\n"), "{said:?}");
        let said = house.cli(&["show", "x1"]);
        assert!(said.out.contains("shell      s1 (proc_"), "{}", said.out);
        let said = house.cli(&["ls"]);
        assert!(said.out.contains("x1\t\texited 9\t"), "{}", said.out);
        let said = house.cli(&["shell", "send", "s1", "-b", "--enter", "sleep 1000"]);
        assert_eq!((said.code, said.out.as_str()), (0, "x2\n"), "{said:?}");
        let said = house.cli(&["shell", "exec", "s1", "true"]);
        assert_eq!(said.code, 125, "{said:?}");
        let said = house.cli(&["stop", "x2"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert_eq!(house.cli(&["shell", "close", "s1"]).code, 0);
    });
}

/// A shell in which only a background line is quiet is in use.
#[test]
fn the_idle_time_of_its_shell_does_not_run() {
    in_house(async |house, desk| {
        let request = OpenShell {
            args: vec!["bash".into()],
            clean: true,
            cwd: Some("/".into()),
            wait_ms: Some(20_000),
            idle_ms: Some(300),
            ..OpenShell::default()
        };
        let opened = desk.must::<ShellOpen>(request).await;
        let fifo = house.fifo("go");
        // A question in front: nothing else would keep the shell.
        let row = begin(
            &desk,
            &opened.row.id,
            &format!("read -r x; read -r y <{fifo}"),
        )
        .await;
        let told = desk.wait_ms(&row.id, 1_500).await;
        assert_eq!(told.reason, Reason::WaitOver, "{told:?}");
        let shell = desk.get(&opened.row.id).await.row;
        assert_eq!(shell.state, State::Running, "{shell:?}");
        tokio::time::timeout(Duration::from_secs(20), desk.stop(&row.id, 0))
            .await
            .expect("it can be stopped");
    });
}
