//! Promise: a wait ends when what it waits for is true, costs nobody anything, and never touches the job.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{
    For, JobWait, Nothing, Reason, ShellExec, ShellOpen, ShellSend, Start, SupervisorInfo, Wait,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{Exec, OpenShell, Send};
use ostler_tests::{PATIENCE, in_house, process, script, within};
use serde_json::json;

fn wait(ids: &[&str], what: For) -> Wait {
    Wait {
        ids: ids.iter().map(ToString::to_string).collect(),
        what,
        ..Wait::default()
    }
}

/// C1.
#[test]
fn a_wait_whose_time_is_over_says_so_and_the_job_lives() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        for ms in [0, 50] {
            let waited = desk.must::<JobWait>(Wait {
                timeout_ms: Some(ms),
                ..wait(&[&row.id], For::Exit)
            });
            let waited = waited.await;
            assert!(waited.timed_out);
            assert_eq!(waited.jobs[0].reason, Reason::WaitOver);
            assert_eq!(waited.jobs[0].row.state, State::Running);
        }
        assert!(process::lives(row.pid.unwrap()));
    });
}

/// C2, C3.
#[test]
fn a_wait_is_answered_at_the_end_and_at_once_after_it() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk.start(script(&format!("await {fifo} , exit 6"))).await;
        let (other, id) = (house.desk(), row.id.clone());
        let waiting = tokio::spawn(async move { other.wait_for(&id, For::Exit).await });
        house.open(&fifo).await;
        let told = waiting.await.unwrap();
        assert_eq!((told.reason, told.row.exit_code), (Reason::Exit, Some(6)));
        let again = desk.wait_for(&row.id, For::Exit).await;
        assert_eq!((again.reason, again.row), (Reason::Exit, told.row));
    });
}

/// C4.
#[test]
fn a_cancelled_wait_is_answered_as_cancelled_at_once() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let row = house.desk().start(script("sleep")).await;
        let id = wire.ask("job/wait", json!({ "ids": [row.id] })).await;
        // A later request is served while the wait is pending.
        assert!(wire.call("job/get", json!({ "id": row.id })).await["result"].is_object());
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": id } });
        wire.send(&ostler_tests::wire::framed(&cancel)).await;
        assert_eq!(wire.answer(id).await["error"]["code"], -32800);
        assert_eq!(house.desk().get(&row.id).await.row.state, State::Running);
    });
}

/// C7.
#[test]
fn a_hundred_waiters_of_which_half_leave_get_the_end_and_leave_nothing_behind() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk.start(script(&format!("await {fifo} , exit 6"))).await;
        let pid = house.info().await.hello.pid;
        let mut waiters = Vec::new();
        for _ in 0..100 {
            let mut wire = house.wire().await;
            wire.attach(&house.folders().owner_key(), "x").await;
            let id = wire.ask("job/wait", json!({ "ids": [row.id] })).await;
            waiters.push((wire, id));
        }
        let with_all = process::descriptors(pid);
        let staying = waiters.split_off(50);
        drop(waiters);
        house.open(&fifo).await;
        for (mut wire, id) in staying {
            let answer = wire.answer(id).await;
            assert_eq!(
                answer["result"]["jobs"][0]["row"]["exitCode"], 6,
                "{answer}"
            );
        }
        let gone = async { while desk.must::<SupervisorInfo>(Nothing {}).await.connections > 1 {} };
        within(PATIENCE, "the end of every connection", gone).await;
        assert!(process::descriptors(pid) + 95 <= with_all, "{with_all}");
    });
}

/// C9.
#[test]
fn who_waits_while_another_client_stops_gets_the_stopped_state() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let (other, id) = (house.desk(), row.id.clone());
        let waiting = tokio::spawn(async move { other.wait_for(&id, For::Exit).await });
        desk.stop(&row.id, 3000).await;
        let told = waiting.await.unwrap();
        assert_eq!(
            (told.reason, told.row.outcome),
            (Reason::Exit, Some(Outcome::Stopped))
        );
    });
}

/// C10.
#[test]
fn a_client_that_vanishes_while_it_waits_leaves_the_job_alone() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        for what in [
            json!("exit"),
            json!({ "text": "never" }),
            json!({ "port": 1 }),
            json!({ "quiet": 60_000 }),
        ] {
            let mut wire = house.wire().await;
            wire.attach(&house.folders().owner_key(), "x").await;
            wire.ask("job/wait", json!({ "ids": [row.id], "for": what }))
                .await;
        }
        let gone = async { while desk.must::<SupervisorInfo>(Nothing {}).await.connections > 1 {} };
        within(PATIENCE, "the end of every connection", gone).await;
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
    });
}

/// 050: ends in another order than asked, on one connection.
#[test]
fn fifty_waits_on_one_connection_get_their_own_answers() {
    in_house(async |house| {
        let desk = house.desk();
        let mut jobs = Vec::new();
        for n in 0..50 {
            let fifo = house.fifo(&format!("go{n}"));
            let row = desk
                .start(script(&format!("await {fifo} , exit {n}")))
                .await;
            let (desk, id) = (desk.clone(), row.id.clone());
            let waiting = tokio::spawn(async move { desk.wait(&id).await });
            jobs.push((n, fifo, row.id, waiting));
        }
        // 7 and 50 have no common divisor: an order that is neither that of asking nor its reverse.
        for n in 0..50 {
            house.open(&jobs[n * 7 % 50].1).await;
        }
        for (n, _, id, waiting) in jobs {
            let row = waiting.await.unwrap();
            assert_eq!((row.id, row.exit_code), (id, Some(n)));
        }
    });
}

/// Several ids: all, or the first.
#[test]
fn a_wait_for_any_ends_with_the_first_and_one_for_all_with_the_last() {
    in_house(async |house| {
        let desk = house.desk();
        let (one, two) = (house.fifo("one"), house.fifo("two"));
        let a = desk
            .start(script(&format!("await {one} , exit 1")))
            .await
            .id;
        let b = desk
            .start(script(&format!("await {two} , exit 2")))
            .await
            .id;
        let any = Wait {
            any: true,
            ..wait(&[&a, &b], For::Exit)
        };
        let (other, ask) = (desk.clone(), any.clone());
        let waiting = tokio::spawn(async move { other.must::<JobWait>(ask).await });
        house.open(&two).await;
        let waited = waiting.await.unwrap();
        assert!(!waited.timed_out);
        let told: Vec<_> = waited
            .jobs
            .iter()
            .map(|j| (j.row.id.clone(), j.reason))
            .collect();
        assert_eq!(
            told,
            [(a.clone(), Reason::WaitOver), (b.clone(), Reason::Exit)]
        );
        let (other, ids) = (desk.clone(), [a, b]);
        let waiting = tokio::spawn(async move {
            other
                .must::<JobWait>(wait(&[&ids[0], &ids[1]], For::Exit))
                .await
        });
        house.open(&one).await;
        let codes: Vec<_> = waiting
            .await
            .unwrap()
            .jobs
            .iter()
            .map(|j| j.row.exit_code)
            .collect();
        assert_eq!(codes, [Some(1), Some(2)]);
    });
}

/// Text printed before the wait counts; escapes do not hide it; a page border does not cut it.
#[test]
fn a_wait_for_text_sees_what_was_printed_before_and_across_pages() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let steps = format!(
            "out 8190 , hex 0a1b5b33326d4c697374656e696e671b5b306d0a , await {fifo} , put half , sleep"
        );
        let row = desk.start(script(&steps)).await;
        let told = desk
            .wait_for(&row.id, For::Text("^Listening$".into()))
            .await;
        let line = told.line.unwrap();
        assert_eq!(
            (told.reason, line.from, line.text.as_str()),
            (Reason::Text, 8191, "Listening")
        );
        let later = Wait {
            since: 8192,
            timeout_ms: Some(50),
            ..wait(&[&row.id], For::Text("Listening".into()))
        };
        let page_cut = desk.must::<JobWait>(later).await;
        assert!(page_cut.timed_out || page_cut.jobs[0].line.is_some());
        let after = Wait {
            since: 8211,
            timeout_ms: Some(50),
            ..wait(&[&row.id], For::Text("Listening".into()))
        };
        assert!(
            desk.must::<JobWait>(after).await.timed_out,
            "text before `since` does not count"
        );
        house.open(&fifo).await;
        let told = desk.wait_for(&row.id, For::Text("^half$".into())).await;
        assert_eq!(told.reason, Reason::Text, "a line need not be whole");
    });
}

/// A job that ends first ends the wait, with its last lines.
#[test]
fn a_job_that_ends_first_ends_any_wait() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("say one , say two , exit 3")).await;
        for what in [For::Text("never".into()), For::Port(9), For::Quiet(600_000)] {
            let told = desk.wait_for(&row.id, what).await;
            assert_eq!(
                (told.reason, told.row.exit_code),
                (Reason::EndedBefore, Some(3))
            );
            assert_eq!(told.last_lines, ["one", "two"]);
        }
    });
}

/// Quiet may hold at once; a job that prints does not have it.
#[test]
fn quiet_is_counted_from_the_last_output() {
    in_house(async |house| {
        let desk = house.desk();
        let silent = desk.start(script("sleep")).await;
        let told = desk.wait_for(&silent.id, For::Quiet(100)).await;
        assert_eq!(told.reason, Reason::Quiet);
        // It is quiet already. A wait that begins to count anew shows in each of them; a busy machine does not.
        let mut quickest = Duration::MAX;
        for _ in 0..5 {
            let begun = Instant::now();
            let told = desk.wait_for(&silent.id, For::Quiet(100)).await;
            quickest = quickest.min(begun.elapsed());
            assert_eq!(told.reason, Reason::Quiet);
        }
        assert!(quickest < Duration::from_millis(100), "{quickest:?}");
        let chatty = desk.start(script("paced 1000000 16 5")).await;
        let over = Wait {
            timeout_ms: Some(700),
            ..wait(&[&chatty.id], For::Quiet(500))
        };
        assert!(desk.must::<JobWait>(over).await.timed_out);
    });
}

/// A member of this tree listens, wherever it went; a stranger on the port does not count.
#[test]
fn a_wait_for_a_port_means_a_listener_of_this_tree() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .start(script("orphan [ listen 0 , sleep ] , sleep"))
            .await;
        let port = desk.number(&row.id, "port").await as u16;
        let told = desk.wait_for(&row.id, For::Port(port)).await;
        let listener = told.listener.expect("somebody listens");
        assert_eq!((told.reason, listener.port), (Reason::Port, port));
        assert_eq!(
            house.marks().job_of(listener.pid),
            house.marks().job_of(row.pid.unwrap())
        );
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert_eq!(desk.get(&row.id).await.row.tree.ports, Some(vec![port]));

        let strange = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = strange.local_addr().unwrap().port();
        let over = Wait {
            timeout_ms: Some(200),
            ..wait(&[&row.id], For::Port(port))
        };
        let waited = desk.must::<JobWait>(over).await;
        assert!(waited.timed_out);
        let stranger = waited.jobs[0]
            .stranger
            .as_ref()
            .expect("the stranger is named");
        assert_eq!((stranger.port, stranger.pid), (port, std::process::id()));
    });
}

/// A port that opens later is found.
#[test]
fn a_port_that_opens_during_the_wait_ends_it() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let row = desk
            .start(script(&format!("await {fifo} , listen {port} , sleep")))
            .await;
        let (other, id) = (house.desk(), row.id.clone());
        let waiting = tokio::spawn(async move { other.wait_for(&id, For::Port(port)).await });
        house.open(&fifo).await;
        assert_eq!(waiting.await.unwrap().reason, Reason::Port);
    });
}

/// A wrong pattern or an unknown job is refused at once, also beside good ones.
#[test]
fn a_wait_that_makes_no_sense_is_refused_at_once() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(script("sleep")).await;
        let bad = [
            (wait(&[&row.id], For::Text("(".into())), "for.text"),
            (wait(&[&row.id], For::Text(String::new())), "for.text"),
            (wait(&[&row.id], For::Port(0)), "for.port"),
            (wait(&[&row.id], For::Quiet(0)), "for.quiet"),
        ];
        for (ask, field) in bad {
            assert_eq!(desk.refused::<JobWait>(ask).await.data["field"], field);
        }
        let unknown = desk
            .refused::<JobWait>(wait(&[&row.id, "t99"], For::Exit))
            .await;
        assert_eq!(unknown.kind, RefusalKind::NotFound);
    });
}

/// A wait holds over a new supervisor: the library asks again, the end is the same.
#[test]
fn a_wait_outlives_a_crash_of_the_supervisor() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let start = Start {
            name: Some("w".into()),
            ..script(&format!("await {fifo} , exit 6"))
        };
        desk.start(start).await;
        let other = house.desk();
        let waiting = tokio::spawn(async move { other.wait("w").await });
        house.kill_supervisor().await;
        house.open(&fifo).await;
        assert_eq!(waiting.await.unwrap().exit_code, Some(6));
    });
}

#[test]
fn a_wait_for_any_port_names_the_first_that_a_member_listens_on() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
        let row = desk
            .start(script(&format!("await {fifo} , listen 0 , sleep")))
            .await;
        let over = desk.must::<JobWait>(Wait {
            timeout_ms: Some(50),
            ..wait(&[&row.id], For::AnyPort)
        });
        assert!(over.await.timed_out, "a stranger's port counted");
        house.open(&fifo).await;
        let told = desk.wait_for(&row.id, For::AnyPort).await;
        assert_eq!(told.reason, Reason::Port);
        let port = told.listener.unwrap().port;
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
        assert_ne!(port, stranger.local_addr().unwrap().port());
    });
}

#[test]
fn a_wait_for_input_tells_a_question_and_the_end_of_who_asks() {
    in_house(async |house| {
        let desk = house.desk();
        let asks = Start {
            line: Some("printf 'name? '; read x; echo \"hello $x\"".into()),
            pty: Some(ostler_proto::job::Size { rows: 24, cols: 80 }),
            ..script("x")
        };
        let row = desk
            .start(Start {
                args: Vec::new(),
                ..asks
            })
            .await;
        let told = desk.wait_for(&row.id, For::Input).await;
        assert_eq!(told.reason, Reason::InputWait);
        let sent = desk
            .must::<ShellSend>(Send {
                id: row.id.clone(),
                text: "you\n".into(),
                ..Send::default()
            })
            .await;
        assert_eq!((sent.reason, sent.exit_code), (Reason::Exit, Some(0)));
        assert!(sent.text.ends_with("hello you\n"), "{:?}", sent.text);
        let told = desk.wait_for(&row.id, For::Input).await;
        assert_eq!(told.reason, Reason::EndedBefore);
    });
}

/// The shell itself is in front while it works, and its last prompt is older than that.
#[test]
fn a_wait_for_the_prompt_is_not_met_by_the_one_before_what_was_typed() {
    in_house(async |house| {
        let desk = house.desk();
        for program in ["sh", "bash"] {
            let id = desk.shell(program).await;
            let go = house.path(&format!("go-{program}"));
            let send = Send {
                id: id.clone(),
                text: format!("while ! [ -e {go} ]; do :; done; (exit 3)\n"),
                timeout_ms: Some(300),
                ..Send::default()
            };
            let sent = desk.must::<ShellSend>(send).await;
            assert_eq!(sent.reason, Reason::WaitOver, "{program}: {sent:?}");
            for what in [For::Prompt, For::Input] {
                let wait = Wait {
                    ids: vec![id.clone()],
                    what,
                    timeout_ms: Some(500),
                    ..Wait::default()
                };
                let waited = desk.must::<JobWait>(wait).await;
                assert!(waited.timed_out, "{program}: {waited:?}");
            }
            std::fs::write(&go, "").unwrap();
            let told = desk.wait_for(&id, For::Prompt).await;
            let told = (told.reason, told.exit_code);
            assert_eq!(told, (Reason::Prompt, Some(3)), "{program}");
        }
    });
}

#[test]
fn a_wait_for_the_prompt_passes_over_questions_and_keeps_nobody_from_answering_them() {
    in_house(async |house| {
        let desk = house.desk();
        let open = OpenShell {
            args: vec!["sh".into()],
            clean: true,
            wait_ms: Some(20_000),
            ..OpenShell::default()
        };
        let shell = desk.must::<ShellOpen>(open).await.row;
        let told = desk.wait_for(&shell.id, For::Prompt).await;
        assert_eq!(told.reason, Reason::Prompt);
        let asked = desk
            .must::<ShellExec>(Exec {
                id: shell.id.clone(),
                line: "printf 'name? '; read x; (exit 3)".into(),
                ..Exec::default()
            })
            .await;
        assert_eq!(asked.reason, Reason::InputWait);
        let told = desk.wait_for(&shell.id, For::Input).await;
        assert_eq!(told.reason, Reason::InputWait);
        let (other, id) = (house.desk(), shell.id.clone());
        let waiting = tokio::spawn(async move { other.wait_for(&id, For::Prompt).await });
        let sent = desk
            .must::<ShellSend>(Send {
                id: shell.id.clone(),
                text: "x\n".into(),
                ..Send::default()
            })
            .await;
        assert_eq!((sent.reason, sent.exit_code), (Reason::Prompt, Some(3)));
        let told = within(PATIENCE, "the prompt", waiting).await.unwrap();
        assert_eq!((told.reason, told.exit_code), (Reason::Prompt, Some(3)));
    });
}
