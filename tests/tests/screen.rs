//! Promise: whoever cannot sit before a terminal sees what a person would see there, and programs that ask their
//! terminal something do not wait for an answer that nobody gives.

use ostler::follow::Event;
use ostler_proto::methods::{
    Happened, JobRead, JobResize, JobScreen, JobTail, Read, Resize, SessionWatch, Tail,
    WatchSession,
};
use ostler_proto::refusal::RefusalKind;
use ostler_proto::screen::{Back, Look};
use ostler_tests::installed;
use ostler_tests::screen::{WINDOW, on_terminal};
use ostler_tests::{Desk, PATIENCE, command, in_house, puppet, rounds, within};
use serde_json::json;

fn sh(line: &str) -> ostler_proto::methods::Start {
    on_terminal(["sh", "-c", line])
}

fn resize(id: &str, rows: u16, cols: u16) -> Resize {
    Resize {
        id: id.into(),
        rows,
        cols,
        ..Resize::default()
    }
}

#[test]
fn an_editor_can_be_driven_without_a_person() {
    in_house(async |house| {
        if !installed("vi") {
            return;
        }
        let desk = house.desk();
        let file = house.path("text");
        std::fs::write(&file, "first\nsecond\n").unwrap();
        let row = desk
            .start(on_terminal(["vi", "-u", "NONE", "-i", "NONE", &file]))
            .await;
        // It draws in several writes: what it comes to is awaited, not what is there in between.
        let screen = desk
            .sees(&row.id, "the file, and the cursor in it", |s| {
                s.rows[0] == "first"
                    && s.rows[2] == "~"
                    && s.cursor.row == 0
                    && s.cursor.column == 0
            })
            .await;
        assert!(screen.alternate, "{screen:?}");
        assert_eq!(screen.size, WINDOW);
        assert_eq!(screen.rows.len(), 30);
        desk.press(&row.id, &["G", "A", "!", "漢", "Escape", "Up", "x"])
            .await;
        desk.sees(&row.id, "what was typed", |s| {
            s.rows[0] == "firs" && s.rows[1] == "second!漢"
        })
        .await;
        desk.press(&row.id, &[":", "w", "q", "Enter"]).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!(ended.exit_code, Some(0));
        assert_eq!(std::fs::read_to_string(file).unwrap(), "firs\nsecond!漢\n");
        let after = desk.screen(&row.id).await;
        assert!(
            !after.alternate,
            "the screen from before is back: {after:?}"
        );
    });
}

#[test]
fn a_pager_and_a_process_table_are_seen_and_left() {
    in_house(async |house| {
        if !installed("less") || !installed("top") {
            return;
        }
        let desk = house.desk();
        let file = house.path("lines");
        let lines: String = (1..=200).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, lines).unwrap();
        let less = desk.start(on_terminal(["less", &file])).await;
        let top = desk.start(on_terminal(["top"])).await;
        desk.sees(&less.id, "the first page", |s| {
            s.rows[0] == "line 1" && s.rows[28] == "line 29"
        })
        .await;
        desk.press(&less.id, &["PageDown"]).await;
        desk.sees(&less.id, "the second page", |s| s.rows[0] == "line 30")
            .await;
        // The window is another one, and the program is told.
        desk.must::<JobResize>(resize(&less.id, 10, 40)).await;
        desk.sees(&less.id, "ten lines", |s| {
            s.rows.len() == 10 && s.rows[0] == "line 30" && s.rows[8] == "line 38"
        })
        .await;
        desk.shows(&top.id, "PID USER").await;
        for id in [&less.id, &top.id] {
            desk.press(id, &["q"]).await;
            assert_eq!(desk.wait(id).await.exit_code, Some(0));
        }
    });
}

/// A program that waits for what it has asked, as fish 4.9 and vim do, waits for seconds where nobody answers.
#[test]
fn what_a_program_asks_its_terminal_is_answered() {
    in_house(async |house| {
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let version = format!("\x1bP>|ostler {}\x1b\\", ostler_proto::VERSION);
        let table: [(&str, &str); 12] = [
            ("\\x1b[c", "\x1b[?62;22c"),
            ("\\x1b[0c", "\x1b[?62;22c"),
            ("\\x1b[>c", "\x1b[>1;10;0c"),
            ("\\x1b[5n", "\x1b[0n"),
            ("\\x1b[3;7H\\x1b[6n\\r\\n", "\x1b[3;7R"),
            ("\\x1b[?2004h\\x1b[?2004$p", "\x1b[?2004;1$y"),
            ("\\x1b[?1049$p", "\x1b[?1049;2$y"),
            ("\\x1b[?9999$p", "\x1b[?9999;0$y"),
            ("\\x1b[>0q", &version),
            ("\\x1b]11;?\\x07", "\x1b]11;rgb:0000/0000/0000\x07"),
            ("\\x1bP+q544e\\x1b\\\\", "\x1bP0+r\x1b\\"),
            ("\\x1b[18t", "\x1b[8;30;100t"),
        ];
        for (asked, answer) in table {
            let row = desk.tells(asked).await;
            desk.has_read(&row.id, answer.as_bytes()).await;
            desk.press(&row.id, &["C-d"]).await;
            desk.wait(&row.id).await;
        }
        // Several at once, in order.
        let row = desk.tells("\\x1b[>0q\\x1b[c\\x1b[5n\\x1b[6n").await;
        let all = format!("{version}\x1b[?62;22c\x1b[0n\x1b[1;1R");
        desk.has_read(&row.id, all.as_bytes()).await;
    });
}

/// A question in somebody's output must not be typed into the next line of the shell.
#[test]
fn an_answer_never_ends_in_a_line_that_is_typed() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "printf '\\033[c\\033[6n'; echo up; IFS= read -r x; printf '%s' \"$x\" | od -An -tx1; echo over";
        let row = desk.start(sh(line)).await;
        desk.said(&row.id, "up$").await;
        // Whoever was asked has had every occasion: this look is behind the question.
        desk.screen(&row.id).await;
        desk.press(&row.id, &["y", "Enter"]).await;
        desk.said(&row.id, "^over$").await;
        let text = desk.read(&row.id, 0).await.text.unwrap();
        assert!(text.contains("y\r\n 79\r\nover\r\n"), "{text:?}");
    });
}

/// E28, and lines beyond the screen with their totals.
#[test]
fn lines_are_paged_from_the_newest_one() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(sh("seq 1 500; printf 'Q? '; read x")).await;
        desk.shows(&row.id, "Q?").await;
        let look = |back, count| Look {
            id: row.id.clone(),
            lines: Some(Back { back, count }),
            ..Look::default()
        };
        let page = desk.must::<JobScreen>(look(0, 3)).await.lines.unwrap();
        assert_eq!(page.text, ["499", "500", "Q?"]);
        assert_eq!((page.total, page.back), (501, 0));
        let page = desk.must::<JobScreen>(look(499, 10)).await.lines.unwrap();
        assert_eq!(page.text, ["1", "2"]);
        let page = desk
            .must::<JobScreen>(look(10_000, 10))
            .await
            .lines
            .unwrap();
        assert_eq!((page.text.len(), page.back), (0, 501));
        for count in [0, 10_001] {
            let refused = desk.refused::<JobScreen>(look(0, count)).await;
            assert_eq!(refused.data["field"], "lines");
        }
        let mut wire = house.wire().await;
        let session = &row.session.id;
        let key = std::fs::read_to_string(house.folders().owner_key()).unwrap();
        let hello = json!({"ownerKey": key.trim()});
        wire.call("supervisor/hello", hello).await;
        let negative = json!({"id": row.id, "session": session, "lines": {"back": -1, "count": 5}});
        let refused = wire.call("job/screen", negative).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let said = house.cli(&["screen", &row.process_id, "--lines", "2", "--back", "1"]);
        assert_eq!((said.code, said.out.as_str()), (0, "499\n500\n"));
    });
}

/// Bug reports 079 and 080, and what has no screen.
#[test]
fn absurd_windows_are_refused_or_cost_nothing() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "trap 'stty size' WINCH; echo up; while :; do sleep 0.05; done";
        let row = desk.start(sh(line)).await;
        desk.shows(&row.id, "up").await;
        for (rows, cols) in [(0, 0), (0, 80), (5_001, 80), (24, u16::MAX)] {
            let refused = desk.refused::<JobResize>(resize(&row.id, rows, cols));
            assert_eq!(refused.await.kind, RefusalKind::BadArgument);
        }
        desk.must::<JobResize>(resize(&row.id, 5_000, 5_000)).await;
        desk.said(&row.id, "^5000 5000$").await;
        let look = Look {
            id: row.id.clone(),
            ..Look::default()
        };
        let refused = desk.refused::<JobScreen>(look.clone()).await;
        assert_eq!(refused.kind, RefusalKind::Limit);
        desk.must::<JobResize>(resize(&row.id, 1, 1)).await;
        desk.said(&row.id, "^1 1$").await;
        assert_eq!(desk.screen(&row.id).await.rows.len(), 1);
        desk.must::<JobResize>(resize(&row.id, 20, 70)).await;
        desk.shows(&row.id, "20 70").await;
        let plain = desk.start(command(["sleep", "1000"])).await;
        let refused = desk
            .refused::<JobScreen>(Look {
                id: plain.id,
                ..look
            })
            .await;
        assert_eq!(refused.kind, RefusalKind::NoInput);
    });
}

#[test]
fn text_wraps_again_in_another_window_and_wide_characters_have_two_cells() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "printf '漢字ab\\tx\\033[1;31mred\\033[0m'; printf '%0150d' 7; read x";
        let row = desk.start(sh(line)).await;
        let screen = desk
            .sees(&row.id, "the last digit", |s| s.rows[1].ends_with('7'))
            .await;
        assert!(screen.rows[0].starts_with("漢字ab  xred0"), "{screen:?}");
        let look = Look {
            id: row.id.clone(),
            colors: true,
            ..Look::default()
        };
        let colors = desk.must::<JobScreen>(look).await.colors.unwrap();
        assert_eq!((colors[0][0].column, colors[0][0].cells), (9, 3));
        assert_eq!(colors[0][0].fg.as_deref(), Some("red"));
        assert_eq!(colors[0][0].looks, ["bold"]);
        desk.must::<JobResize>(resize(&row.id, 30, 200)).await;
        let screen = desk.screen(&row.id).await;
        assert!(screen.rows[0].ends_with('7') && screen.rows[1].is_empty());
    });
}

/// A screen costs its job nothing: neither a flood of escapes nor a string without an end.
#[test]
fn hostile_output_costs_a_screen_and_never_a_job() {
    in_house(async |house| {
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let flood = "import os, random; r = random.Random(7); tail = bytes(r.choice(b'\\x1b[];?0123456789hlmHJKABCDPXcnqtp\\x07\\r\\n \\xe6\\xbc\\xa2\\xcc\\x81\\xff\\x00') for _ in range(400000))
os.write(1, b'\\x1b]0;'); [os.write(1, b'x' * 60000) for _ in range(40)]; os.write(1, b'\\x07')
n = 0
while n < len(tail): n += os.write(1, tail[n:n + 4000])
os.write(1, b'\\x18\\x1b\\\\\\x1bc' + b'e' + b'\\xcc\\x81' * 200000 + b'\\x1b[2J\\x1b[H\\x1b(Bover'); input()";
        let row = desk.start(on_terminal(["python3", "-c", flood])).await;
        desk.sees(&row.id, "the end of the flood", |s| {
            s.rows.iter().any(|row| row.ends_with("over"))
        })
        .await;
        let memory = ostler_tests::process::resident(house.info().await.hello.pid);
        assert!(memory < 96 << 20, "{memory} bytes");
        desk.press(&row.id, &["Enter"]).await;
        desk.wait(&row.id).await;
    });
}

#[test]
fn more_screens_than_are_kept_are_all_right_and_so_is_one_after_a_crash() {
    in_house(async |house| {
        let desk: Desk = house.desk_of(ostler_proto::methods::OpenSession {
            commands: Some(100),
            ..Default::default()
        });
        let mut rows = Vec::new();
        for n in 0..rounds("OSTLER_SCREENS", 20) {
            let line = format!("printf 'screen {n}\\033]2;title {n}\\007'; read x");
            rows.push(desk.start(sh(&line)).await);
        }
        for _ in 0..2 {
            for (n, row) in rows.iter().enumerate() {
                let screen = desk.shows(&row.id, &format!("screen {n}")).await;
                assert_eq!(screen.title, Some(format!("title {n}")));
            }
        }
        house.kill_supervisor().await;
        let screen = desk.screen(&rows[3].process_id).await;
        assert_eq!(screen.rows[0], "screen 3");
    });
}

/// What was written long ago is not known, and that is said.
#[test]
fn a_screen_after_much_output_says_what_it_was_not_made_from() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .start(on_terminal([
                puppet(),
                "out",
                "3000000",
                ",",
                "say",
                "over",
                ",",
                "sleep",
            ]))
            .await;
        desk.said(&row.id, "over$").await;
        let screen = desk.screen(&row.id).await;
        assert!(screen.cut > 1_000_000, "{}", screen.cut);
        assert!(screen.rows.iter().any(|row| row.ends_with("over")));
    });
}

#[test]
fn a_bell_and_a_title_are_told_to_those_who_watch() {
    in_house(async |house| {
        let desk = house.desk();
        let watch = WatchSession::default();
        let mut events = desk.client.stream::<SessionWatch>(watch);
        let fifo = house.fifo("go");
        let line = format!("read x <{fifo}; printf '\\033]2;at work\\007\\007'; read x");
        let row = desk.start(sh(&line)).await;
        let mut told = Vec::new();
        let both = async {
            while !(told.contains(&Happened::Title) && told.contains(&Happened::Bell)) {
                let Event::Happened(event) = events.next().await.unwrap() else {
                    continue;
                };
                if event.what == Happened::Watching {
                    std::fs::write(&fifo, "go\n").unwrap();
                }
                if event.what == Happened::Title {
                    assert_eq!(event.row.unwrap().title.as_deref(), Some("at work"));
                }
                told.push(event.what);
            }
        };
        within(PATIENCE, "bell and title", both).await;
        assert_eq!(
            desk.get(&row.id).await.row.title.as_deref(),
            Some("at work")
        );
        let title = desk.shows(&row.id, "").await.title;
        assert_eq!(title.as_deref(), Some("at work"));
    });
}

/// Also after the supervisor that saw the job live is gone.
#[test]
fn the_last_screen_of_a_job_has_the_window_that_it_had() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(sh("printf '\\033[30;95Hcorner'")).await;
        desk.over(&row.id).await;
        for _ in 0..2 {
            let screen = house.desk().screen(&row.process_id).await;
            assert_eq!(screen.size, WINDOW);
            assert!(screen.rows[29].ends_with("corner"), "{screen:?}");
            house.kill_supervisor().await;
        }
    });
}

#[test]
fn plain_text_is_what_a_person_sees() {
    in_house(async |house| {
        let desk = house.desk();
        let line =
            "printf '\\033[32mok\\033[0m\\n 1 %%\\r 50 %%\\r100 %%\\n\\033]0;title\\007last'";
        let row = desk.start(sh(line)).await;
        desk.over(&row.id).await;
        let read = Read {
            id: row.id.clone(),
            since: Some(0),
            plain: true,
            ..Read::default()
        };
        let page = desk.must::<JobRead>(read.clone()).await;
        assert_eq!(page.text.as_deref(), Some("ok\n100 %\nlast"));
        assert_eq!((page.next, page.eof), (page.end, true));
        let said = house.cli(&["read", "--plain", &row.process_id]);
        assert_eq!(said.out, "ok\n100 %\nlast");
        for follow in [&["tail", "--plain"][..], &["tail", "-f", "--plain"]] {
            let said = house.cli(&[follow, &[&row.process_id]].concat());
            assert_eq!(said.out, "ok\n100 %\nlast", "{follow:?}");
        }
        let both = Read { raw: true, ..read };
        let refused = desk.refused::<JobRead>(both).await;
        assert_eq!(refused.data["field"], "plain");
        let tail = Tail {
            id: row.id.clone(),
            partial_result_token: 1.into(),
            plain: true,
            raw: true,
            ..Tail::default()
        };
        let refused = desk.refused::<JobTail>(tail).await;
        assert_eq!(refused.data["field"], "plain");
    });
}

/// E27: wherever a page is cut, no rest of an escape is told as text, and no byte is left out.
#[test]
fn a_page_never_ends_inside_of_a_sequence() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "i=0; while [ $i -lt 200 ]; do printf '\\033[38;5;%dm\\303\\251%d\\033]2;t\\007\\033[0m\\n' $i $i; i=$((i+1)); done";
        let row = desk.start(sh(line)).await;
        desk.over(&row.id).await;
        for max in [40, 61, 100, 1_000] {
            let (mut all, mut since) = (String::new(), 0);
            loop {
                let read = Read {
                    id: row.id.clone(),
                    since: Some(since),
                    max: Some(max),
                    plain: true,
                    ..Read::default()
                };
                let page = desk.must::<JobRead>(read).await;
                assert!(page.next > since, "{max}: no progress at {since}");
                since = page.next;
                let text = page.text.unwrap();
                // Each page is folded by itself: a line that goes on in the next one is not told twice.
                all += &text;
                if page.eof {
                    break;
                }
            }
            let wanted: String = (0..200).map(|n| format!("é{n}\n")).collect();
            assert_eq!(all, wanted, "{max}");
        }
    });
}
