//! Promise: lines of a log are found, all of them and no others, in pages that hold to their bound; and its last lines
//! are those that tail(1) would print.

use ostler_proto::job::{Line, Page};
use ostler_proto::methods::{JobRead, Read};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::{Desk, House, Said, command, in_empty_house, in_house, puppet};

/// A job that printed `line 1` to `line N` and is over.
async fn counted(desk: &Desk, n: u32) -> String {
    let line = format!("seq -f 'line %.0f' {n}");
    let row = desk.start(command(["sh", "-c", &line])).await;
    desk.wait(&row.id).await;
    row.id
}

fn matching(id: &str, pattern: &str) -> Read {
    Read {
        id: id.into(),
        pattern: Some(pattern.into()),
        ..Read::default()
    }
}

/// All pages of a search, one behind the other.
async fn pages(desk: &Desk, ask: Read) -> Vec<Page> {
    let (mut all, mut since) = (Vec::new(), 0);
    loop {
        let ask = Read {
            since: Some(since),
            ..ask.clone()
        };
        let page = desk.must::<JobRead>(ask).await;
        assert!(page.next > since, "it goes on: {page:?}");
        since = page.next;
        let over = page.eof;
        all.push(page);
        if over {
            return all;
        }
    }
}

fn texts(pages: &[Page]) -> Vec<&str> {
    let lines = pages.iter().flat_map(|p| &p.lines);
    lines.map(|l| l.text.as_str()).collect()
}

/// It read whole pieces of 64 KiB and told all that matched in them.
#[test]
fn a_page_of_matches_holds_to_its_bound_and_no_match_is_lost_between_pages() {
    in_house(async |house| {
        let desk = house.desk();
        let id = counted(&desk, 30_000).await;
        let expected: Vec<String> = (1..=30_000)
            .filter(|n| n % 10 == 7)
            .map(|n| format!("line {n}"))
            .collect();
        for max in [11, 100, 4_096] {
            let ask = Read {
                max: Some(max),
                ..matching(&id, "7$")
            };
            let pages = pages(&desk, ask).await;
            for page in &pages {
                let told: usize = page.lines.iter().map(|l| l.text.len() + 1).sum();
                assert!(told as u64 <= max, "{told} of {max}");
            }
            assert!(texts(&pages).into_iter().eq(&expected), "{max}");
        }
        // Lines that stand before a match go with it to the next page.
        let ask = Read {
            max: Some(64),
            context: Some(2),
            ..matching(&id, "00$")
        };
        let pages = pages(&desk, ask).await;
        let before = |n: u32| (n - 2..=n).map(|n| format!("line {n}"));
        let lines: Vec<&Line> = pages.iter().flat_map(|p| &p.lines).collect();
        for n in (100..=30_000).step_by(100) {
            let at = lines
                .iter()
                .position(|l| l.text == format!("line {n}"))
                .unwrap();
            let told = lines[at - 2..=at].iter().map(|l| l.text.clone());
            assert!(told.eq(before(n)), "{n}");
        }
        let matches = lines.iter().filter(|l| !l.context).count();
        assert_eq!(matches, 300, "none is told twice");
    });
}

#[test]
fn a_line_that_is_longer_than_the_page_is_cut_and_told_as_that() {
    in_house(async |house| {
        let desk = house.desk();
        let long = format!("printf '%s\\nx\\n' {}", "é".repeat(40));
        let row = desk.start(command(["sh", "-c", &long])).await;
        desk.wait(&row.id).await;
        let ask = Read {
            max: Some(10),
            ..matching(&row.id, ".")
        };
        let pages = pages(&desk, ask).await;
        assert_eq!(texts(&pages), ["éééé", "x"]);
        assert!(pages[0].lines[0].cut && !pages[1].lines[0].cut);
        let said = house.cli(&["read", &row.process_id, "--match", "é", "--max", "10"]);
        assert_eq!(said.out, "0:éééé\n");
        assert!(
            said.err
                .starts_with("note: the line at 0 is longer than that and was cut\n"),
            "{said:?}"
        );
    });
}

/// The lines around a match looked like matches.
#[test]
fn context_is_marked_as_grep_does() {
    in_empty_house(async |house| {
        house.cli(&["run", "-c", "seq 1 9; seq 10 12 >&2"]);
        let read =
            |args: &[&str]| house.cli(&[&["read", "t1", "--match", "^[267]$"], args].concat());
        let (plain, around) = (read(&[]), read(&["-C", "1"]));
        assert_eq!((plain.code, plain.err.as_str()), (0, ""));
        assert_eq!(plain.out, "2:2\n10:6\n12:7\n");
        assert_eq!(around.out, "0-1\n2:2\n4-3\n--\n8-5\n10:6\n12:7\n14-8\n");
        // Neighbours are one group.
        let all = house.cli(&["read", "t1", "--match", "^[25]$", "-C", "1"]);
        assert_eq!(all.out, "0-1\n2:2\n4-3\n6-4\n8:5\n10-6\n");
        let grep = house.shell("seq 1 9 | grep -b -C1 '^[267]$'");
        if grep.code == 0 {
            assert_eq!(grep.out, around.out);
        }
        // The last line of a job that is over was looked at, too.
        house.cli(&["run", "-c", "printf end"]);
        let none = house.cli(&["read", "t2", "--match", "x"]);
        assert_eq!(none.err, "note: no line of t2 matches x\n");
        let json = read(&["-C", "1", "--json"]);
        let page: Page = serde_json::from_str(&json.out).unwrap();
        let marks: Vec<_> = page.lines.iter().map(|l| (l.context, l.skipped)).collect();
        assert_eq!(
            marks[..4],
            [(true, false), (false, false), (true, false), (true, true)]
        );
    });
}

/// They were passed over in silence.
#[test]
fn what_does_not_go_with_a_search_is_refused_in_one_line() {
    in_house(async |house| {
        let desk = house.desk();
        let id = counted(&desk, 3).await;
        let plain = |change: fn(&mut Read)| {
            let mut ask = Read {
                id: id.clone(),
                ..Read::default()
            };
            change(&mut ask);
            ask
        };
        for (ask, words) in [
            (plain(|r| r.context = Some(1)), "`context` needs `match`"),
            (
                plain(|r| r.context = Some(u64::MAX)),
                "`context` must be 0 to 100",
            ),
            (
                plain(|r| (r.pattern, r.context) = (Some("x".into()), Some(101))),
                "`context` must be 0 to 100",
            ),
            (
                plain(|r| (r.pattern, r.wait_ms) = (Some("x".into()), Some(1))),
                "`waitMs` and `match` exclude each other",
            ),
            (
                plain(|r| (r.pattern, r.strict) = (Some("x".into()), true)),
                "`strict` and `match` exclude each other",
            ),
        ] {
            let refusal = desk.refused::<JobRead>(ask).await;
            assert_eq!(refusal.kind, RefusalKind::BadArgument);
            assert_eq!(refusal.message, words);
        }
    });
}

fn tail(house: &House, n: &str, more: &[&str]) -> Said {
    house.cli(&[&["tail", "t1", "-n", n], more].concat())
}

#[test]
fn the_last_lines_are_those_of_tail() {
    in_empty_house(async |house| {
        // Beyond the ring, and many pieces of what is looked at in one go.
        house.cli(&[
            "run",
            "-q",
            "-c",
            "seq 1 200000 | tee all; printf end | tee -a all",
        ]);
        for n in ["0", "1", "2", "10", "20000", "199999", "200001", "999999"] {
            let expected = house.shell(&format!("tail -n {n} all")).out;
            let told = tail(house, n, &[]);
            assert!(told.out == expected, "{n}: {} bytes", told.out.len());
            assert_eq!((told.code, told.err.as_str()), (0, ""), "{n}");
        }
        assert_eq!(tail(house, "1", &["--since", "0"]).code, 2);
        assert_eq!(tail(house, "-1", &[]).code, 2);
    });
}

#[test]
fn the_last_lines_of_one_stream_are_counted_in_it_alone() {
    in_empty_house(async |house| {
        let steps = "say a , sayerr x , say b , sayerr y , say c , sayerr z , sayerr z2";
        house.shell(&format!("ostler run -q -- {} {steps}", puppet()));
        assert_eq!(tail(house, "2", &["--stdout"]).out, "b\nc\n");
        assert_eq!(tail(house, "3", &["--stderr"]).out, "y\nz\nz2\n");
        // Which of the two streams came first is the reader's order, not the program's.
        assert_eq!(tail(house, "2", &[]).out.lines().count(), 2);
    });
}

#[test]
fn following_from_the_last_lines_goes_on_with_what_comes() {
    in_empty_house(async |house| {
        house.cli(&["start", "--stdin", "--", "cat"]);
        let send = |text: &str| assert_eq!(house.cli(&["send", "t1", text, "--enter"]).code, 0);
        for line in ["a", "b", "ready"] {
            send(line);
        }
        house.cli(&["wait", "t1", "--for", "text=ready"]);
        let mut two = house.terminal("ostler tail -f -n 2 t1");
        assert_eq!(two.shows("ready\r\n"), "b\r\nready\r\n");
        let mut none = house.terminal("ostler tail -f -n 0 t1");
        let began = std::time::Instant::now();
        while !none.has_shown("new") {
            assert!(began.elapsed() < ostler_tests::PATIENCE, "it shows nothing");
            send("new");
        }
        house.cli(&["send", "t1", "--eof"]);
        for tail in [two, none] {
            let (code, shown) = tail.ends();
            assert_eq!(code, 0);
            assert!(shown.lines().all(|line| line == "new"), "{shown:?}");
        }
    });
}
