//! Promise: a key is what a person's key is, a paste is a paste, and a name that is none types nothing.

use ostler_proto::methods::JobKeys;
use ostler_proto::refusal::RefusalKind;
use ostler_proto::screen::Keys;
use ostler_tests::installed;
use ostler_tests::screen::on_terminal;
use ostler_tests::{command, in_house};

fn keys(id: &str, keys: &[&str]) -> Keys {
    Keys {
        id: id.into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        ..Keys::default()
    }
}

fn paste(id: &str, text: &str) -> Keys {
    Keys {
        id: id.into(),
        paste: Some(text.into()),
        timeout_ms: Some(20_000),
        ..Keys::default()
    }
}

#[test]
fn keys_follow_the_mode_that_the_program_has_asked_for() {
    in_house(async |house| {
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let row = desk.tells("").await;
        desk.press(&row.id, &["Up", "C-Left", "F5", "M-x", "C-Space", "é"])
            .await;
        desk.has_read(&row.id, b"\x1b[A\x1b[1;5D\x1b[15~\x1bx\0\xc3\xa9")
            .await;
        desk.press(&row.id, &["C-d"]).await;
        desk.wait(&row.id).await;
        let row = desk.tells("\\x1b[?1h\\x1b[?2004h").await;
        desk.press(&row.id, &["Up", "Home", "C-Up"]).await;
        desk.has_read(&row.id, b"\x1bOA\x1bOH\x1b[1;5A").await;
        desk.must::<JobKeys>(paste(&row.id, "a\nb\x1b[201~c")).await;
        desk.has_read(&row.id, b"\x1b[200~a\rbc\x1b[201~").await;
        // It is the program's, and outlives the supervisor that saw it.
        house.kill_supervisor().await;
        let desk = house.desk();
        desk.press(&row.process_id, &["Down"]).await;
        desk.has_read(&row.process_id, b"\x1bOB").await;
    });
}

#[test]
fn an_unknown_key_types_nothing_of_the_others() {
    in_house(async |house| {
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let row = desk.tells("").await;
        for wrong in ["Entr", "C-Enter", "", "hello", "\0"] {
            let refused = desk.refused::<JobKeys>(keys(&row.id, &["x", wrong])).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument, "{wrong:?}");
            assert_eq!(refused.data["field"], "keys");
        }
        let said = house.cli(&["keys", &row.process_id, "x", "Entr"]);
        assert_eq!(said.code, 2);
        assert_eq!(
            said.err,
            "error: `keys` has no key \"Entr\"\nhint: did you mean Enter?\n"
        );
        let refused = desk.refused::<JobKeys>(keys(&row.id, &[])).await;
        assert_eq!(refused.data["field"], "keys");
        let refused = desk.refused::<JobKeys>(paste(&row.id, "a\0b")).await;
        assert_eq!(refused.data["field"], "paste");
        let many = vec!["x"; 10_001];
        let refused = desk.refused::<JobKeys>(keys(&row.id, &many)).await;
        assert_eq!(refused.data["field"], "keys");
        desk.press(&row.id, &["y"]).await;
        desk.has_read(&row.id, b"y").await;
        let told = desk.read(&row.id, 0).await.text.unwrap();
        assert_eq!(told, "up\r\ngot 79\r\n", "nothing else was typed");
    });
}

#[test]
fn a_job_without_a_terminal_has_no_keys() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk.start(command(["sleep", "1000"])).await;
        let refused = desk.refused::<JobKeys>(keys(&row.id, &["C-c"])).await;
        assert_eq!(refused.kind, RefusalKind::NoInput);
        assert_eq!(refused.hint.as_deref(), Some("start --pty"));
        let row = desk.start(on_terminal(["true"])).await;
        desk.over(&row.id).await;
        let refused = desk.refused::<JobKeys>(keys(&row.id, &["C-c"])).await;
        assert_eq!(refused.message, format!("{} is over", row.id));
    });
}

/// Bug report 085: input and its echo must not wait for each other, whatever the length.
#[test]
fn a_paste_of_ten_mebibytes_arrives_whole_and_delays_nobody() {
    in_house(async |house| {
        if !installed("python3") {
            return;
        }
        let desk = house.desk();
        let count = "import os, tty; tty.setraw(0); os.write(1, b'up\\r\\n'); n = 0
while n < 10485760:
    some = os.read(0, 65536)
    n += len(some)
    os.write(1, some[:100])
os.write(1, b'\\r\\nread %d\\r\\n' % n)";
        let row = desk.start(on_terminal(["python3", "-c", count])).await;
        desk.said(&row.id, "^up$").await;
        let text = "0123456789abcde\n".repeat(10 * 65_536);
        let pasted = desk.must::<JobKeys>(paste(&row.id, &text)).await;
        assert_eq!(pasted.bytes, 10_485_760, "{pasted:?}");
        desk.said(&row.id, "^read 10485760$").await;
        // Who does not read costs the writer its time, and nobody else any.
        let deaf = on_terminal(["sh", "-c", "stty raw -echo; echo up; exec sleep 1000"]);
        let deaf = desk.start(deaf).await;
        desk.said(&deaf.id, "^up").await;
        let short = Keys {
            timeout_ms: Some(200),
            ..paste(&deaf.id, &text)
        };
        let (stuck, other) = tokio::join!(desk.must::<JobKeys>(short), desk.list());
        assert!(!stuck.complete && !stuck.closed, "{stuck:?}");
        assert_eq!(other.len(), 2);
    });
}

/// Bug report 067: Linux keeps 4,095 bytes of a line.
#[test]
fn a_long_line_that_is_pasted_is_not_cut() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "stty -echo; echo up; IFS= read -r x; echo read ${#x}";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        desk.said(&row.id, "^up$").await;
        let text = "x".repeat(20_000) + "\n";
        desk.must::<JobKeys>(paste(&row.id, &text)).await;
        desk.said(&row.id, "^read 20000$").await;
    });
}

/// Bug report 083: an installer asks, somebody sees it and answers.
#[test]
fn a_question_without_a_line_end_is_seen_and_answered() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "printf 'Proceed? [y/N] '; read x; echo answer=$x";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        let screen = desk.shows(&row.id, "Proceed? [y/N]").await;
        assert_eq!((screen.cursor.row, screen.cursor.column), (0, 15));
        assert_eq!(house.cli(&["keys", &row.process_id, "y", "Enter"]).code, 0);
        desk.said(&row.id, "^answer=y$").await;
    });
}

#[test]
fn a_key_stops_what_runs_in_front() {
    in_house(async |house| {
        let desk = house.desk();
        let line = "trap 'echo got-int; exit 9' INT; echo up; while :; do sleep 0.05; done";
        let row = desk.start(on_terminal(["sh", "-c", line])).await;
        desk.said(&row.id, "^up$").await;
        desk.press(&row.id, &["C-c"]).await;
        assert_eq!(desk.wait(&row.id).await.exit_code, Some(9));
    });
}
