//! Promise: a job can have a terminal of its own. What is typed arrives whole, what is shown is kept, its window can
//! change, and its end is an end.

use ostler_proto::job::{Outcome, Size, State};
use ostler_proto::limits::RING;
use ostler_proto::methods::{
    For, JobResize, JobSignal, JobStart, JobWrite, Resize, SignalJob, Start, Stdin, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::{Desk, PATIENCE, command, in_house, process, puppet, rounds, within};

const WINDOW: Size = Size {
    rows: 40,
    cols: 120,
};

fn on_terminal<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Start {
    Start {
        pty: Some(WINDOW),
        ..command(args)
    }
}

fn sh(line: &str) -> Start {
    on_terminal(["sh", "-c", line])
}

async fn text(desk: &Desk, id: &str) -> String {
    desk.read(id, 0).await.text.unwrap_or_default()
}

async fn type_in(desk: &Desk, id: &str, text: &str, eof: bool) {
    let write = Write {
        id: id.into(),
        text: Some(text.into()),
        eof,
        timeout_ms: Some(20_000),
        ..Write::default()
    };
    let written = desk.must::<JobWrite>(write).await;
    assert!(written.complete, "{written:?}");
}

/// A read that the edge of the ring cut short was taken for all that the terminal had, and what stood behind it stayed there
/// until the program printed more.
#[test]
fn what_a_terminal_shows_across_the_edge_of_the_ring_is_there_at_once() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let before = RING - 500;
        let line = format!(
            "stty -opost; head -c {} /dev/zero | tr '\\0' x; printf READY; exec {} await {fifo} , out 1000 , sleep",
            before - 5,
            puppet()
        );
        let row = desk.start(sh(&line)).await;
        desk.wait_for(&row.id, For::Text("READY".into())).await;
        house.open(&fifo).await;
        desk.until(&row.id, "all of it", |job| {
            job.row.output.end == before + 1_000
        })
        .await;
    });
}

#[test]
fn a_job_on_a_terminal_is_its_session_leader_and_sees_its_window_and_name() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .start(sh(
                "tty; stty size; echo $TERM; ps -o sid= -o tpgid= -p $$; echo x >/dev/tty; exit 3",
            ))
            .await;
        assert_eq!(row.terminal, Some(WINDOW));
        let ended = desk.wait(&row.id).await;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Exited), Some(3))
        );
        assert_eq!(ended.terminal, None, "it is gone");
        let said = text(&desk, &row.id).await;
        let lines: Vec<_> = said.lines().collect();
        assert!(lines[0].starts_with("/dev/pts/"), "{said}");
        assert_eq!(lines[1..3], ["40 120", "xterm-256color"], "{said}");
        let ids: Vec<u32> = lines[3]
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        assert_eq!(ids, [row.pid.unwrap(); 2], "{said}");
        assert_eq!(lines[4], "x", "the last line is there");
        desk.until(&row.id, "the end of its tree", |r| r.row.tree.left == 0)
            .await;
    });
}

/// The end of a terminal is an error of the kernel, and no last line is lost over it.
#[test]
fn no_last_line_is_lost_at_the_end_of_a_terminal() {
    in_house(async |house| {
        let desk = house.desk();
        for round in 0..rounds("OSTLER_LAST_LINES", 100) {
            let row = desk.start(sh("printf 'one\\ntwo\\nlast'; exit 0")).await;
            desk.wait(&row.id).await;
            assert_eq!(
                text(&desk, &row.id).await,
                "one\r\ntwo\r\nlast",
                "round {round}"
            );
        }
    });
}

#[test]
fn a_window_can_change_and_the_program_is_told() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done";
        let row = desk.start(sh(line)).await;
        desk.said(&row.id, "^up$").await;
        let size = |rows, cols| Resize {
            session: None,
            id: row.id.clone(),
            rows,
            cols,
            seat: None,
        };
        let told = desk.must::<JobResize>(size(50, 132)).await;
        assert_eq!(
            told.terminal,
            Some(Size {
                rows: 50,
                cols: 132
            })
        );
        desk.said(&row.id, "^50 132$").await;
        for (rows, cols) in [(0, 80), (24, 0), (5_001, 80), (24, u16::MAX)] {
            let refused = desk.refused::<JobResize>(size(rows, cols)).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
        }
        // It is in the kernel, not with us.
        house.kill_supervisor().await;
        let desk = house.desk();
        let row = desk.get(&row.process_id).await.row;
        assert_eq!(
            row.terminal,
            Some(Size {
                rows: 50,
                cols: 132
            })
        );
        assert_eq!(house.cli(&["resize", &row.process_id, "80x24"]).code, 0);
        desk.said(&row.process_id, "^24 80$").await;
        desk.stop(&row.process_id, 5_000).await;
        let refused = desk.refused::<JobResize>(Resize {
            id: row.process_id,
            ..size(24, 80)
        });
        assert_eq!(refused.await.kind, RefusalKind::NoInput);
    });
}

#[test]
fn what_is_typed_is_read_and_its_end_is_an_end() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(sh("stty -echo; echo up; exec cat")).await;
        desk.said(&row.id, "^up$").await;
        type_in(&desk, &row.id, "hello\n", false).await;
        desk.said(&row.id, "^hello$").await;
        // Behind an unfinished line as well.
        type_in(&desk, &row.id, "rest", true).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Exited), Some(0))
        );
        assert_eq!(text(&desk, &row.id).await, "up\r\nhello\r\nrest");
    });
}

/// Linux keeps 4,095 bytes of an unfinished line and throws the others away without a word.
#[test]
fn a_line_of_any_length_arrives_whole() {
    in_house(async |house| {
        let desk = house.desk();
        let counting = [
            sh("stty -echo; echo up; IFS= read -r x; echo ${#x}"),
            sh("stty -echo; echo up; head -n 1 | wc -c"),
            on_terminal([
                "python3",
                "-c",
                "import os; os.system('stty -echo'); print('up', flush=True); print(len(input()))",
            ]),
        ];
        let python = house.shell("command -v python3").code == 0;
        for (n, start) in counting.into_iter().enumerate() {
            if n == 2 && !python {
                ostler_tests::skip("no python3 here to read a long line");
                continue;
            }
            for length in [100, 2_999, 3_000, 3_001, 4_096, 20_000, 300_000] {
                let row = desk.start(start.clone()).await;
                desk.said(&row.id, "^up$").await;
                // In two requests: the second one goes on in the line of the first.
                let line: String = (0..length)
                    .map(|i| char::from(b'a' + (i % 26) as u8))
                    .collect();
                let (first, second) = line.split_at(length / 3);
                type_in(&desk, &row.id, first, false).await;
                type_in(&desk, &row.id, &format!("{second}\n"), false).await;
                desk.wait(&row.id).await;
                let counted = if n == 1 { length + 1 } else { length };
                let said = text(&desk, &row.id).await;
                assert_eq!(
                    said.trim_start_matches("up").trim(),
                    counted.to_string(),
                    "program {n}, {length} bytes"
                );
            }
        }
    });
}

/// A paste that is echoed must not stand still because nobody reads the echo.
#[test]
fn a_large_paste_does_not_wait_for_its_own_echo() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(sh("wc -c; echo over")).await;
        let paste = ("0123456789abcdef".repeat(4) + "\n").repeat(16_000);
        type_in(&desk, &row.id, &paste, true).await;
        let end = desk.wait(&row.id).await.output.end;
        // What the kernel may leave out, or show late, is the echo of input that comes faster than it is shown; never
        // the input.
        let said = desk.read(&row.id, end - 8_000).await.text.unwrap();
        let counted = paste.len().to_string();
        assert!(said.contains(&counted), "{said}");
    });
}

/// As if it had been typed: the group in front gets it, not the shell behind it.
#[test]
fn a_signal_goes_to_the_group_in_the_foreground() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "set -m; trap 'echo shell-got-it' INT; sh -c 'trap \"echo front-got-it; exit 7\" INT; echo up; while :; do sleep 0.05; done'; echo code $?; sleep 1000";
        let row = desk.start(sh(line)).await;
        desk.said(&row.id, "^up$").await;
        let signal = SignalJob {
            session: None,
            id: row.id.clone(),
            signal: "INT".into(),
        };
        let told = desk.must::<JobSignal>(signal).await;
        assert_ne!(Some(told.group), row.pid);
        desk.said(&row.id, "^front-got-it$").await;
        desk.said(&row.id, "^code 7$").await;
        assert!(!text(&desk, &row.id).await.contains("shell-got-it"));
        desk.stop(&row.id, 5_000).await;
    });
}

/// D16: a tree on a terminal ends as wholly as any other, with what left it.
#[test]
fn a_tree_on_a_terminal_ends_to_the_last_member() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "trap '' HUP TERM; setsid sh -c \"trap '' HUP TERM; echo out \\$\\$; while :; do sleep 1; done\" & nohup sleep 1000 >/dev/null 2>&1 & echo up; while :; do sleep 1; done";
        let row = desk.start(sh(line)).await;
        let escaped = desk.number(&row.id, "out").await;
        desk.said(&row.id, "^up$").await;
        let receipt = desk.stop(&row.id, 100).await;
        assert!(
            receipt.survivors.is_empty() && receipt.forced >= 2,
            "{receipt:?}"
        );
        assert!(!process::lives(escaped));
    });
}

#[test]
fn terminals_that_come_and_go_leave_no_descriptor() {
    in_house(async |house| {
        let desk = house.desk();
        desk.run(sh("exit 0")).await;
        let hello = house.info().await.hello;
        let open = || {
            [
                process::descriptors(hello.keeper_pid),
                process::descriptors(hello.pid),
            ]
        };
        let before = open();
        for _ in 0..rounds("OSTLER_TERMINALS", 100) {
            desk.run(sh("exit 0")).await;
        }
        let closed = async {
            while open().iter().zip(before).any(|(now, before)| *now > before) {
                desk.list().await;
            }
        };
        within(PATIENCE, "the end of every descriptor", closed).await;
    });
}

#[test]
fn what_makes_no_terminal_is_refused_by_name() {
    in_house(async |house| {
        let desk = house.desk();
        for (rows, cols) in [(0, 0), (0, 80), (24, 0), (24, 60_000)] {
            let start = Start {
                pty: Some(Size { rows, cols }),
                ..command(["true"])
            };
            assert_eq!(desk.refused::<JobStart>(start).await.data["field"], "pty");
        }
        let given = Start {
            stdin: Stdin::Text("x".into()),
            ..sh("cat")
        };
        assert_eq!(desk.refused::<JobStart>(given).await.data["field"], "stdin");
        let plain = desk.start(command(["sleep", "100"])).await;
        let resize = Resize {
            session: None,
            id: plain.id,
            rows: 24,
            cols: 80,
            seat: None,
        };
        assert_eq!(
            desk.refused::<JobResize>(resize).await.kind,
            RefusalKind::NoInput
        );
        let said = house.cli(&["start", "--pty=80", "--", "true"]);
        assert_eq!(said.code, 2);
        assert!(said.err.contains("must be COLSxROWS"), "{}", said.err);
        let said = house.cli(&["start", "--pty=100x30", "--", "stty", "size"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""));
        let id = said.out.trim();
        let told = house.shell(&format!("ostler wait {id} && ostler read {id}"));
        assert_eq!(told.out, "30 100\r\n");
        assert_eq!(
            desk.list()
                .await
                .iter()
                .filter(|r| r.state == State::Running)
                .count(),
            1
        );
    });
}

/// While it is loud its pump watches it, and the runtime otherwise: nothing is lost where that changes.
#[test]
fn a_terminal_that_is_loud_now_and_then_loses_nothing() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "stty -echo -onlcr; echo up; while read -r n; do head -c $n /dev/zero | tr '\\0' x; echo; echo did-$n; done";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        desk.said(&row.id, "^up$").await;
        let mut all = b"up\n".to_vec();
        for n in [200_000, 1, 300_000, 40_000, 2, 4_096, 500_000] {
            type_in(&desk, &row.id, &format!("{n}\n"), false).await;
            desk.said(&row.id, &format!("^did-{n}$")).await;
            all.extend(std::iter::repeat_n(b'x', n));
            all.extend(format!("\ndid-{n}\n").into_bytes());
        }
        let bytes = desk.bytes(&row.id).await;
        assert_eq!(bytes.len(), all.len());
        assert!(bytes == all);
    });
}
