//! Promise: a person at a terminal sees that something goes on, in as many columns as there are, and nothing that
//! a job prints can move the cursor in words of ours.

use ostler_tests::{House, in_house, puppet};

/// Takes the drawn line away.
const ERASE: &str = "\r\x1b[K";

/// A job that prints a title, a colour and a bell, and goes on.
fn noisy(house: &House) {
    // "\e]0;title\a", then a line in colour.
    let title = "1b5d303b7469746c6507";
    let line = "1b5b33326d636f6d70696c696e671b5b306d0a";
    house.cli(&[
        "start",
        "--name",
        "web",
        "--",
        puppet(),
        "hex",
        title,
        ",",
        "hex",
        line,
        ",",
        "sleep",
    ]);
    house.cli(&["wait", "web", "--for", "text=compiling"]);
}

#[test]
fn a_long_wait_shows_the_time_and_the_last_line_in_place() {
    in_house(async |house| {
        noisy(house);
        let mut terminal = house.terminal("ostler wait web; echo code $?");
        let first = terminal.shows(" s, 29 B so far: compiling");
        let second = terminal.shows(" s, 0 B/s: compiling");
        assert!(
            first.contains(ERASE) && first.contains("\x1b[2m"),
            "{first:?}"
        );
        assert!(
            second.contains("waiting for web, ") && second.contains(ERASE),
            "{second:?}"
        );
        house.cli(&["stop", "web"]);
        let end = terminal.shows("t1 (web) was stopped by the user");
        let words = end.rfind("t1 (web)").unwrap();
        assert!(
            end[..words].ends_with(ERASE),
            "the line is gone before the words: {end:?}"
        );
        terminal.shows("code 143");
        for seen in [first, second, end] {
            assert!(
                !seen.contains("title") || !seen.contains("\x1b]"),
                "{seen:?}"
            );
            assert!(
                !seen.contains('\u{7}') && !seen.contains("\x1b[32m"),
                "{seen:?}"
            );
        }
        terminal.ends();
    });
}

#[test]
fn a_long_stop_shows_that_it_goes_on_and_ctrl_c_leaves_a_clean_line() {
    in_house(async |house| {
        let stubborn = [
            "start",
            "--grace",
            "2500ms",
            "--",
            puppet(),
            "ignore",
            "TERM",
            ",",
            "say",
            "ready",
            ",",
            "sleep",
        ];
        house.cli(&stubborn);
        house.cli(&["wait", "t1", "--for", "text=ready"]);
        let mut terminal = house.terminal("NO_COLOR=1 ostler stop t1; echo code $?");
        let seen = terminal.shows(" s, 6 B so far: ready");
        assert!(!seen.contains("\x1b[2m"), "{seen:?}");
        let seen = terminal.shows("t1  stopped in ");
        assert!(
            seen.contains(&format!("{ERASE}t1  stopped in ")),
            "{seen:?}"
        );
        terminal.shows("code 0");
        terminal.ends();
        house.cli(&["start", "--", puppet(), "sleep"]);
        let mut terminal = house.terminal("trap : INT; ostler wait t2; echo code $?");
        terminal.shows("waiting for t2, ");
        terminal.type_in("\x03");
        let seen = terminal.shows("t2 still runs");
        assert!(seen.contains(&format!("{ERASE}t2 still runs")), "{seen:?}");
        terminal.shows("code 130");
        terminal.ends();
    });
}

#[test]
fn no_line_is_drawn_where_it_was_not_asked_for() {
    in_house(async |house| {
        noisy(house);
        for line in [
            "ostler wait web --timeout 1500ms --json",
            "ostler wait web --timeout 1500ms -q",
            "ostler wait web --timeout 1500ms 2>err; cat err",
            "TERM=dumb ostler wait web --timeout 1500ms",
            "set -m; ostler wait web --timeout 1500ms & wait $!",
        ] {
            let (code, seen) = house.terminal(&format!("{line}; exit $?")).ends();
            assert!(code == 124 || code == 0, "{line}: {code}");
            assert!(!seen.contains("waiting"), "{line}: {seen:?}");
            assert!(!seen.contains('\x1b'), "{line}: {seen:?}");
        }
    });
}

#[test]
fn a_table_has_as_many_columns_as_the_terminal() {
    in_house(async |house| {
        noisy(house);
        let long = [
            "start",
            "--session",
            "an-agent-with-a-very-long-name",
            "--",
            puppet(),
            "exec",
            "sleep",
            "1000",
        ];
        house.cli(&[&long[..], &["漢字"; 40][..]].concat());
        // Of the narrowest the long id leaves nothing; it is whole, because it is what is typed.
        let id = "an-agent-with-a-very-long-name/t1";
        for (columns, command) in [(40, id), (80, "COMMAND"), (200, "漢字")] {
            let (code, seen) = house
                .terminal(&format!("stty cols {columns}; ostler ls"))
                .ends();
            assert_eq!(code, 0);
            assert!(seen.contains(command), "{columns}: {seen}");
            let lines: Vec<&str> = seen.lines().filter(|l| !l.trim().is_empty()).collect();
            assert_eq!(lines.len(), 3, "{columns}: {seen}");
            for line in lines {
                // Two cells for each of these characters.
                let cells: usize = line
                    .trim_end()
                    .chars()
                    .map(|c| if c > '\u{2e80}' { 2 } else { 1 })
                    .sum();
                assert!(cells <= columns, "{cells} of {columns}: {line:?}");
                let starts = ["ID", "t1", id].iter().any(|begin| line.starts_with(begin));
                assert!(starts, "{line:?}");
            }
        }
    });
}
