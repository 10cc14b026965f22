//! Promise: `run --pty` shows a command on a person's terminal as if it ran in it, and ends with it or goes on without it
//! as every `run` does.

use ostler_proto::job::{Outcome, Size};
use ostler_proto::methods::{JobRun, Run};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::installed;
use ostler_tests::process::Process;
use ostler_tests::{Desk, House, PATIENCE, Tmux, command, in_house, within};

fn person(house: &House) -> Option<Tmux> {
    installed("tmux").then(|| house.tmux("p", 90, 24))
}

/// Types a line whose output begins at the top: what is typed ahead would be shown where nobody expects it. Lines tell
/// their code as `done-N`: `code N` is in the note of an end, which is printed before the prompt is back.
fn line(person: &Tmux, text: &str) {
    person.line("clear");
    person.until("an empty screen", |s| s.trim() == ">");
    person.line(&format!("clear; {text}"));
}

/// The job of this name, once it is there.
async fn job(house: &House, name: &str) -> (Desk, String) {
    let desk = house.desk_without_session();
    let found = async {
        loop {
            let said = house.cli(&["ls", "-A", "--json"]);
            let table: serde_json::Value = serde_json::from_str(&said.out).unwrap();
            let jobs = table["jobs"].as_array().unwrap();
            if let Some(row) = jobs.iter().find(|row| row["name"] == name) {
                return row["processId"].as_str().unwrap().to_owned();
            }
        }
    };
    let id = within(PATIENCE, "the job", found).await;
    (desk, id)
}

#[test]
fn an_editor_is_opened_and_left_and_the_screen_is_as_before() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        if !installed("vi") {
            return;
        }
        person.line("stty -a >before; echo was he''re");
        person.shows("was here");
        person.line("ostler run --pty -- vi -u NONE -N note; echo done-$?; stty -a >after; cmp before after && echo sa''me");
        person.until("an empty file", |s| s.lines().nth(3) == Some("~"));
        person.keys(&["i"]);
        person.keys(&["h", "i", "Escape"]);
        person.line(":wq");
        let screen = person.shows("same");
        assert!(screen.contains("done-0"), "{screen}");
        assert!(screen.contains("was here"), "{screen}");
        assert!(!screen.lines().any(|l| l == "~"), "{screen}");
        assert_eq!(
            std::fs::read_to_string(house.file("p/note")).unwrap(),
            "hi\n"
        );
    });
}

#[test]
fn its_code_is_passed_and_what_it_wrote_stays() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        line(
            &person,
            "ostler run --pty -c 'test -t 0 -a -t 1 -a -t 2 && stty size; printf rest; exit 7'; echo done-$?",
        );
        let screen = person.shows("done-7");
        assert!(screen.starts_with("24 90\nrest"), "{screen}");
        assert!(screen.contains("t1 exited with code 7"), "{screen}");
        // What never ran touches nothing.
        line(&person, "ostler run --pty -- no-such-program; echo done-$?");
        let screen = person.shows("done-127");
        assert!(screen.starts_with("error: no program"), "{screen}");
    });
}

/// Every key is the command's; as for a shell, an end by Ctrl-C is an end by SIGINT.
#[test]
fn an_interrupt_is_a_key_of_the_command() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        let reads = "stty raw -echo; echo up; dd bs=1 count=3 2>/dev/null | od -An -tx1";
        line(
            &person,
            &format!("ostler run --pty -c '{reads}'; echo done-$?"),
        );
        person.until("the command", |s| s.starts_with("up"));
        person.keys(&["C-c", "C-z", "C-\\"]);
        let screen = person.shows("done-0");
        assert!(screen.contains("03 1a 1c"), "{screen}");
        line(
            &person,
            "ostler run --pty -c 'echo up; exec sleep 1000'; echo done-$?",
        );
        person.until("the command", |s| s.starts_with("up"));
        let (desk, id) = newest(house).await;
        desk.until(&id, "sleep in place of the shell", |r| {
            let pid = r.row.pid.unwrap();
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|c| c == "sleep\n")
        })
        .await;
        person.keys(&["C-c"]);
        let screen = person.shows("done-130");
        let lines: Vec<&str> = screen.lines().collect();
        assert_eq!(lines[..2], ["up", "^C"], "{screen}");
        assert!(lines[2].contains("died of SIGINT"), "{screen}");
    });
}

/// The newest job of all.
async fn newest(house: &House) -> (Desk, String) {
    let said = house.cli(&["ls", "-A", "--json"]);
    let table: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    let id = table["jobs"][0]["processId"].as_str().unwrap().to_owned();
    (house.desk_without_session(), id)
}

#[test]
fn its_window_follows_ours_unless_it_was_told() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        let text = "trap \"stty size\" WINCH; echo up; stty size; while :; do sleep 0.05; done";
        person.line(&format!("ostler run --pty --name web -c '{text}'"));
        person.shows("24 90");
        person.resize(85, 22);
        person.shows("22 85");
        // Somebody else sits down before it for a moment.
        let (desk, id) = job(house, "web").await;
        let other = house.tmux("q", 70, 20);
        other.line(&format!("ostler attach {id}; echo done-$?"));
        person.shows("20 70");
        other.keys(&["C-]"]);
        other.shows("done-0");
        desk.until(&id, "its window again", |r| {
            r.row.terminal == Some(Size { rows: 22, cols: 85 })
        })
        .await;
        person.keys(&["C-]"]);
        person.shows("goes on in the background");
        desk.stop(&id, 0).await;
        line(
            &person,
            &format!("ostler run --pty=100x30 --name fixed -c '{text}'"),
        );
        person.shows("30 100");
        let (desk, id) = job(house, "fixed").await;
        person.resize(80, 20);
        // A key comes behind the window.
        person.line("x");
        desk.said(&id, "x").await;
        assert_eq!(
            desk.get(&id).await.row.terminal,
            Some(Size {
                rows: 30,
                cols: 100
            })
        );
        person.keys(&["C-]"]);
        person.shows("goes on in the background");
        desk.stop(&id, 0).await;
    });
}

#[test]
fn the_key_that_leaves_lets_it_go_on_in_the_background() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        let text = "printf \"\\033[?1049h\\033[H\\033[31mon the other screen\"; read -r word; echo got-$word";
        line(
            &person,
            &format!(
                "echo was he''re; stty -a >before; ostler run --pty --detach-key C-a --name web -c '{text}'; echo done-$?; stty -a >after; cmp before after && echo sa''me"
            ),
        );
        person.until("the other screen", |s| s.starts_with("on the other screen"));
        let (desk, id) = job(house, "web").await;
        person.keys(&["C-a"]);
        let screen = person.shows("same");
        assert!(
            screen.contains("t1 (web) goes on in the background: ostler attach t1\ndone-125"),
            "{screen}"
        );
        assert!(!screen.contains("other screen"), "{screen}");
        desk.press(&id, &["x", "Enter"]).await;
        let ended = desk.wait(&id).await;
        assert_eq!(ended.outcome, Some(Outcome::Exited));
        let text = desk.read(&id, 0).await.text.unwrap();
        assert!(text.ends_with("got-x\r\n"), "{text:?}");
    });
}

/// As every `run`: the tree ends with it.
#[test]
fn whatever_ends_us_ends_the_tree() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        let tree = "setsid sh -c 'echo $$ >member; exec sleep 1000' &
until test -s member; do :; done
echo up
exec sleep 1000
";
        std::fs::write(house.file("p/tree"), tree).unwrap();
        for (how, code) in [("TERM", 143), ("HUP", 129), ("KILL", 137)] {
            line(
                &person,
                &format!(
                    "rm -f member; stty -a >before; sh -c 'echo $$ >pid; exec ostler run --pty --name {how} -- sh tree'; echo done-$?; stty -a >after; cmp before after && echo sa''me"
                ),
            );
            person.until("the command", |s| s.lines().any(|l| l == "up"));
            let (desk, id) = job(house, how).await;
            let number = |name: &str| -> u32 {
                let text = std::fs::read_to_string(house.file(name)).unwrap();
                text.trim().parse().unwrap()
            };
            let member = Process::of(number("p/member")).unwrap();
            let said = house.shell(&format!("kill -{how} {}", number("p/pid")));
            assert_eq!(said.code, 0, "{said:?}");
            let row = desk.wait(&id).await;
            assert_eq!(row.outcome, Some(Outcome::Stopped), "{row:?}");
            assert!(member.gone_within(PATIENCE), "{how}");
            let screen = person.shows(&format!("done-{code}"));
            if how != "KILL" {
                assert!(screen.contains("is being stopped"), "{screen}");
                person.shows("same");
            }
        }
    });
}

#[test]
fn it_goes_on_with_a_new_supervisor() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        let reads =
            "echo up; while read -r word; do echo got-$word; test $word = end && exit 3; done";
        line(
            &person,
            &format!("ostler run --pty --name web -c '{reads}'; echo done-$?"),
        );
        person.until("the command", |s| s.starts_with("up"));
        house.kill_supervisor().await;
        let (desk, id) = job(house, "web").await;
        // A key whose fate nobody knows is told by a bell and not typed twice.
        let typed = async {
            loop {
                person.keys(&["Enter"]);
                person.line("two");
                let page = desk.read(&id, 0).await;
                if page.text.unwrap().contains("got-two\r\n") {
                    return;
                }
            }
        };
        within(PATIENCE, "a line after the crash", typed).await;
        person.resize(85, 22);
        desk.until(&id, "our window", |r| {
            r.row.terminal == Some(Size { rows: 22, cols: 85 })
        })
        .await;
        person.line("end");
        let screen = person.shows("done-3");
        assert!(screen.contains("got-two"), "{screen}");
    });
}

/// The person's terminal answers from the first byte on, and the house does not as well.
#[test]
fn a_question_in_the_first_bytes_is_answered_once() {
    in_house(async |house| {
        let Some(person) = person(house) else {
            return;
        };
        if !installed("python3") {
            return;
        }
        // Its version is its own, and the last answer is the last.
        let asks = "import os, tty
tty.setraw(0)
os.write(1, b'\\033[>q\\033[5n\\033[c')
said = b''
while not said.endswith(b'c'): said += os.read(0, 100)
os.write(1, b'said ' + said.hex().encode() + b'\\r\\n')";
        std::fs::write(house.file("p/asks"), asks).unwrap();
        for _ in 0..5 {
            line(&person, "ostler run --pty -- python3 asks; echo done-$?");
            let screen = person.shows("done-0");
            // `ESC P > | tmux`, up to `ESC \ ESC [ 0 n ESC [ ?`.
            assert!(screen.starts_with("said 1b503e7c746d7578"), "{screen}");
            assert_eq!(screen.matches("1b5c1b5b306e1b5b3f").count(), 1, "{screen}");
            assert_eq!(screen.matches("306e").count(), 1, "{screen}");
        }
    });
}

#[test]
fn without_a_terminal_of_ours_output_comes_as_it_is_and_input_where_asked() {
    in_house(async |house| {
        let said = house.shell("ostler run --pty -c 'test -t 0 && test -t 2 && stty size; echo err >&2; exit 4' | od -c | head -2; ostler run --pty=100x30 -- stty size");
        assert!(
            said.out
                .starts_with("0000000   2   4       8   0  \\r  \\n   e   r   r  \\r  \\n\n"),
            "{said:?}"
        );
        assert!(said.out.ends_with("30 100\r\n"), "{said:?}");
        let said = house.shell("ostler run -q --pty -c 'exit 4'");
        assert_eq!((said.code, said.out.as_str()), (4, ""));
        // Not read: what is there is for whoever comes next.
        let said = house.shell("echo rest | { ostler run --pty -- echo one; cat; }");
        assert_eq!(said.out, "one\r\nrest\n");
        // The end of our input is the key that ends the input of a terminal.
        let said = house.shell("echo line | ostler run --pty --stdin -c 'stty -echo; cat'");
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.out.ends_with("line\r\n"), "{said:?}");
        let said = house.shell("ostler run --pty --json -- echo one");
        let result: serde_json::Value = serde_json::from_str(&said.out).unwrap();
        assert_eq!(result["stdout"], "one\r\n");
    });
}

#[test]
fn a_seat_needs_a_terminal_and_a_name() {
    in_house(async |house| {
        let desk = house.desk();
        let run = |seat: &str, pty| Run {
            start: ostler_proto::methods::Start {
                pty,
                ..command(["true"])
            },
            seat: Some(seat.into()),
            ..Run::default()
        };
        let window = Some(Size { rows: 24, cols: 80 });
        for (bad, what) in [
            (run("a", None), "needs `start.pty`"),
            (run("", window), "must have 1 to 64 bytes"),
            (run(&"x".repeat(65), window), "must have 1 to 64 bytes"),
        ] {
            let refused = desk.refused::<JobRun>(bad).await;
            assert_eq!(refused.kind, RefusalKind::BadArgument);
            assert!(refused.message.contains(what), "{refused:?}");
        }
        let run = desk.must::<JobRun>(run("a", window)).await;
        assert_eq!(run.row.exit_code, Some(0));
    });
}
