//! Promise: the tools of the set `compact` do what their four descriptions say, and say it in text and in JSON alike.

use ostler_proto::methods::For;
use ostler_tests::mcp::Outcome;
use ostler_tests::{House, Mcp, PATIENCE, in_empty_house, installed, puppet, within};
use regex::Regex;
use serde_json::{Value, json};

/// Text with the times taken out.
fn timeless(text: &str) -> String {
    let times = Regex::new(r"\b\d+(\.\d+s|m\d\ds|h\d\dm)").unwrap();
    times.replace_all(text, "N").into_owned()
}

async fn run(mcp: &mut Mcp, command: &str) -> Outcome {
    mcp.good("run", json!({ "command": command })).await
}

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

/// A command that listens, and the fifo that lets it.
fn server(house: &House) -> (String, String) {
    let fifo = house.fifo("go");
    (
        line(&format!("say up , await {fifo} , listen 0 , sleep")),
        fifo,
    )
}

#[test]
fn a_command_that_ends_gives_its_output_and_its_code() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = run(&mut mcp, "echo out; echo err >&2; exit 3").await;
        assert_eq!(timeless(&told.text), "out\nerr\n[t1 exited 3 in N]");
        let job = told.job();
        assert_eq!(
            (&job["id"], &job["state"], &job["code"], &job["why"]),
            (&json!("t1"), &json!("exited"), &json!(3), &json!("exit"))
        );
        assert_eq!(told.output(), "out\nerr\n");
        // Programs address it by what never changes.
        let id = told.meta["ostler/processIds"]["t1"].as_str().unwrap();
        let again = mcp.good("output", json!({ "id": id })).await;
        assert_eq!(again.output(), "out\nerr\n");
        let again = mcp.good("output", json!({ "id": &id[..12] })).await;
        assert_eq!(again.job()["id"], "t1");
        let quiet = run(&mut mcp, "true").await;
        assert_eq!(timeless(&quiet.text), "[t2 exited 0 in N]");
        assert_eq!(mcp.close().await, 0);
    });
}

#[test]
fn what_takes_longer_than_the_wait_goes_on_and_its_end_is_told_once() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        let steps = line(&format!("say begun , await {fifo} , say done , exit 4"));
        let told = mcp
            .good("run", json!({"command": steps, "wait_s": 0.5}))
            .await;
        assert_eq!(
            timeless(&told.text),
            "begun\n[t1 running N; next: output id=t1 since=6]"
        );
        assert_eq!(told.job()["next"], 6);
        assert_eq!(told.json.as_ref().unwrap()["hint"], "output id=t1 since=6");
        house.open(&fifo).await;
        let waited = mcp
            .good("output", json!({"id": "t1", "since": 6, "until": "exit"}))
            .await;
        assert_eq!(timeless(&waited.text), "done\n[t1 exited 4 in N]");
        // The wait has told it: no notice.
        let after = run(&mut mcp, "true").await;
        assert_eq!(timeless(&after.text), "[t2 exited 0 in N]");
        let now = mcp
            .good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        assert_eq!(
            timeless(&now.text),
            "[t3 running N; next: output id=t3 since=0]"
        );
        assert_eq!(now.job().get("why"), None);
    });
}

#[test]
fn until_returns_as_soon_as_it_is_true() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let (steps, fifo) = server(house);
        let id = mcp
            .begin_call("run", json!({"command": steps, "until": "port"}))
            .await;
        house.open(&fifo).await;
        let told = mcp.result(id).await;
        let port = told.job()["ports"][0].as_u64().unwrap();
        assert!(told.text.starts_with("up\n"), "{}", told.text);
        let next = &told.job()["next"];
        assert_eq!(
            timeless(told.status()),
            format!("[t1 running N; port {port}; next: output id=t1 since={next}]")
        );
        assert_eq!(told.job()["why"], "port");
        let same = mcp
            .good(
                "output",
                json!({"id": "t1", "until": format!("port={port}")}),
            )
            .await;
        assert_eq!(same.job()["why"], "port");
        let text = line("say one , say two , sleep");
        let told = mcp
            .good("run", json!({"command": text, "until": "text=^two$"}))
            .await;
        assert_eq!(
            (&told.job()["why"], told.output()),
            (&json!("text"), "one\ntwo\n")
        );
        // Printed before the wait began: no race.
        let told = mcp
            .good("output", json!({"id": "t2", "until": "text=one"}))
            .await;
        assert_eq!(told.job()["why"], "text");
        let told = mcp
            .good("output", json!({"id": "t2", "until": "quiet=0.2"}))
            .await;
        assert_eq!(told.job()["why"], "quiet");
        let ends = mcp
            .good(
                "run",
                json!({"command": "echo no; exit 1", "until": "port"}),
            )
            .await;
        assert_eq!(
            timeless(&ends.text),
            "no\n[t3 exited 1 in N; ended before port]"
        );
        assert_eq!(ends.job()["note"], "ended before port");
    });
}

#[test]
fn a_wait_in_vain_says_for_how_long_and_whose_the_port_is() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let silent = line("sleep");
        let told = mcp
            .good(
                "run",
                json!({"command": silent, "until": "port", "wait_s": 0.5}),
            )
            .await;
        assert_eq!(
            timeless(&told.text),
            "[t1 running N; waited N for port; next: output id=t1 since=0]"
        );
        assert!(told.text.contains("waited 0.5s for port"), "{}", told.text);
        assert_eq!(told.job()["why"], "wait_over");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let told = mcp
            .good(
                "output",
                json!({"id": "t1", "until": format!("port={port}"), "wait_s": 0.3}),
            )
            .await;
        let pid = std::process::id();
        assert!(
            told.text
                .contains(&format!("port {port} belongs to another process ("))
                && told.text.contains(&format!(", pid {pid})")),
            "{}",
            told.text
        );
        let told = mcp.good("output", json!({"id": "t1", "wait_s": 0.3})).await;
        assert!(told.text.contains("; waited 0.3s; "), "{}", told.text);
    });
}

#[test]
fn the_list_has_live_jobs_first_and_names_them_in_its_last_line() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let none = mcp.good("output", json!({})).await;
        assert_eq!(
            (none.text.as_str(), none.json_text.as_str()),
            ("[no jobs]", "{\"jobs\":[]}")
        );
        run(&mut mcp, "echo a").await;
        let (steps, fifo) = server(house);
        house.open_if_awaited(&fifo);
        let id = mcp
            .begin_call("run", json!({"command": steps, "until": "port"}))
            .await;
        house.open(&fifo).await;
        let port = mcp.result(id).await.job()["ports"][0].clone();
        run(&mut mcp, "exit 2").await;
        let told = mcp.good("output", json!({})).await;
        let lines: Vec<&str> = told.text.lines().collect();
        assert_eq!(lines.len(), 4, "{}", told.text);
        assert!(timeless(lines[0]).starts_with(&format!("t2 running N; port {port}: exec ")));
        assert!(lines[0].len() <= 120);
        assert_eq!(timeless(lines[1]), "t3 exited 2 in N: exit 2");
        assert_eq!(lines[3], "[3 jobs; live: t2]");
        let kinds: Vec<&Value> = told.json.as_ref().unwrap()["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|j| &j["kind"])
            .collect();
        assert_eq!(kinds, ["command", "command", "command"]);
        assert_eq!(told.json.as_ref().unwrap()["jobs"][1]["command"], "exit 2");
    });
}

#[test]
fn several_jobs_are_waited_for_and_read_at_once() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        for n in 1..=2 {
            let steps = line(&format!("await {fifo} , say of{n} , exit {n}"));
            mcp.good("run", json!({"command": steps, "wait_s": 0}))
                .await;
        }
        let id = mcp
            .begin_call("output", json!({"id": "t1,t2", "until": "exit"}))
            .await;
        house.open(&fifo).await;
        let told = mcp.result(id).await;
        assert_eq!(
            timeless(&told.text),
            "[t1 output]\nof1\n[t1 exited 1 in N]\n[t2 output]\nof2\n[t2 exited 2 in N]"
        );
        assert_eq!(told.json.unwrap()["jobs"][1]["code"], 2);
        let one = mcp.bad("output", json!({"id": "t1,t2", "since": 1})).await;
        assert_eq!(
            one,
            "bad_argument: since is the cursor of one job: name one id."
        );
        let unknown = mcp.bad("output", json!({"id": "t1,t9"})).await;
        assert_eq!(
            unknown,
            "not_found: no job t9. output without id lists yours."
        );
    });
}

#[test]
fn a_terminal_is_typed_to_and_returns_when_it_waits() {
    if !installed("python3") {
        return;
    }
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = mcp
            .good("run", json!({"command": "exec python3 -q", "tty": true}))
            .await;
        assert_eq!(told.status(), "[t1 waits for input; next: input id=t1]");
        assert_eq!(told.job()["why"], "input_wait");
        let told = mcp
            .good("input", json!({"id": "t1", "text": "6*7\n"}))
            .await;
        // Its own echo is left out.
        assert!(told.output().starts_with("42\n"), "{:?}", told.output());
        assert_eq!(told.status(), "[t1 waits for input]");
        let told = mcp.good("input", json!({"id": "t1", "keys": "C-d"})).await;
        assert_eq!(timeless(told.status()), "[t1 exited 0 in N]");
        let key = mcp
            .good("run", json!({"command": "exec cat", "tty": true}))
            .await;
        assert_eq!(key.status(), "[t2 waits for input; next: input id=t2]");
        let wrong = mcp
            .bad(
                "input",
                json!({"id": "t2", "text": "no\n", "keys": "Entre"}),
            )
            .await;
        assert!(
            wrong.starts_with("bad_argument: ") && wrong.ends_with("Nothing was sent."),
            "{wrong}"
        );
        let told = mcp
            .good("input", json!({"id": "t2", "text": "yes", "keys": "Enter"}))
            .await;
        assert!(!told.text.contains("no"), "{}", told.text);
        let pipe = mcp
            .good("run", json!({"command": "sleep 60", "wait_s": 0}))
            .await;
        assert_eq!(pipe.job()["id"], "t3");
        let refused = mcp.bad("input", json!({"id": "t3", "text": "x"})).await;
        assert_eq!(
            refused,
            "no_input: t3 has no terminal. Start it with tty=true."
        );
    });
}

#[test]
fn a_program_that_has_the_screen_to_itself_is_shown_as_a_grid() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let draw = r"printf '\033[?1049h\033[2J\033[2;3Hhello'; read x; printf '\033[?1049l'";
        let told = mcp.good("run", json!({"command": draw, "tty": true})).await;
        assert_eq!(
            told.text,
            "\n  hello\n[screen 120x40, cursor 1,7]\n[t1 waits for input; next: input id=t1]"
        );
        let told = mcp.good("input", json!({"id": "t1", "text": "\n"})).await;
        assert_eq!(timeless(told.status()), "[t1 exited 0 in N]");
    });
}

#[test]
fn a_shell_keeps_its_state_and_tells_exact_codes() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = mcp
            .good(
                "run",
                json!({"command": "mkdir -p a/b; cd a; X=5; (exit 7)", "shell": "new"}),
            )
            .await;
        assert_eq!(timeless(&told.text), "[s1 at prompt; exit 7 in N; cwd a]");
        assert_eq!(
            (&told.job()["code"], &told.job()["cwd"]),
            (&json!(7), &json!("a"))
        );
        let told = mcp
            .good("run", json!({"command": "echo $X; pwd", "shell": "s1"}))
            .await;
        let pwd = house.path("a");
        assert_eq!(
            timeless(&told.text),
            format!("5\n{pwd}\n[s1 at prompt; exit 0 in N]")
        );
        let told = mcp
            .good("output", json!({"id": "s1", "until": "exit"}))
            .await;
        assert_eq!(
            told.status(),
            "[s1 at prompt; a shell has no end of its own]"
        );
        let asks = mcp
            .good(
                "run",
                json!({"command": "printf 'name? '; read n; echo hi $n", "shell": "s1"}),
            )
            .await;
        assert_eq!(asks.text, "name?\n[s1 waits for input]");
        let told = mcp
            .good("input", json!({"id": "s1", "text": "you\n"}))
            .await;
        assert!(told.text.contains("hi you\n"), "{}", told.text);
        assert!(
            timeless(told.status()).starts_with("[s1 at prompt; exit 0 in N"),
            "{}",
            told.text
        );
        let wrong = mcp
            .bad("run", json!({"command": "ls", "shell": "s1", "cwd": "/"}))
            .await;
        assert!(
            wrong.starts_with("bad_argument: cwd does not go with shell s1"),
            "{wrong}"
        );
        let told = mcp.good("stop", json!({"id": "s1"})).await;
        assert_eq!(told.text, "[s1 stopped; 1 process ended]");
        let gone = mcp
            .bad("run", json!({"command": "ls", "shell": "s1"}))
            .await;
        assert_eq!(
            gone,
            "gone: s1 has ended; its state is lost. run with shell=new opens another."
        );
        let none = mcp
            .bad("run", json!({"command": "ls", "shell": "t1"}))
            .await;
        assert_eq!(none, "not_found: no job t1. output without id lists yours.");
    });
}

#[test]
fn a_line_that_outlives_its_call_is_announced_like_a_job() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let fifo = house.fifo("go");
        mcp.good("run", json!({"command": "", "shell": "new"}))
            .await;
        let steps = format!("{} await {fifo} , say done , exit 3", puppet());
        let told = mcp
            .good(
                "run",
                json!({"command": steps, "shell": "s1", "wait_s": 0.5}),
            )
            .await;
        assert_eq!(
            timeless(&told.text),
            "[s1 busy N; next: output id=s1 until=exit]"
        );
        let busy = mcp
            .bad("run", json!({"command": "ls", "shell": "s1"}))
            .await;
        assert!(
            busy.starts_with("busy: s1 still runs \"")
                && busy
                    .ends_with("output id=s1 until=exit waits; input id=s1 keys=C-c interrupts."),
            "{busy}"
        );
        let id = mcp
            .begin_call("output", json!({"id": "s1", "until": "exit"}))
            .await;
        house.open(&fifo).await;
        let told = mcp.result(id).await;
        assert!(told.text.starts_with("done\n"), "{}", told.text);
        assert_eq!(timeless(told.status()), "[s1 at prompt; exit 3 in N]");
        // Told by the wait: no notice behind it.
        let after = run(&mut mcp, "true").await;
        assert_eq!(timeless(&after.text), "[t1 exited 0 in N]");
        let told = mcp
            .good(
                "run",
                json!({"command": "sleep 0.6; (exit 2)", "shell": "s1", "wait_s": 0.3}),
            )
            .await;
        assert!(told.text.starts_with("[s1 busy"), "{}", told.text);
        let told = mcp.good("run", json!({"command": "sleep 1"})).await;
        assert!(
            timeless(&told.text).starts_with(
                "[notice: s1 command exited 2 in N: sleep 0.6; (exit 2); next: output id=s1]\n"
            ),
            "{}",
            told.text
        );
        // C-c interrupts what runs.
        mcp.good(
            "run",
            json!({"command": "sleep 60", "shell": "s1", "wait_s": 0.3}),
        )
        .await;
        let told = mcp.good("input", json!({"id": "s1", "keys": "C-c"})).await;
        assert!(
            timeless(told.status()).starts_with("[s1 at prompt; exit 130 in N"),
            "{}",
            told.text
        );
    });
}

/// The end of a line was forgotten when the next one ended; what runs was named by one that had ended.
#[test]
fn the_end_of_a_line_is_told_although_another_one_ends_before_that() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &["--session", "x"]).await;
        mcp.good("run", json!({"command": "", "shell": "new"}))
            .await;
        let fifo = house.fifo("go");
        let first = format!("{} await {fifo} , exit 3", puppet());
        let first = json!({"command": first, "shell": "s1", "wait_s": 0.3});
        let told = mcp.good("run", first).await;
        assert!(told.text.starts_with("[s1 busy"), "{}", told.text);
        house.open(&fifo).await;
        house.desk().wait_for("s1", For::Prompt).await;
        // It is told with the second one, or, where that was faster, behind it: once.
        let second = json!({"command": "(exit 4)", "shell": "s1"});
        let mut all = mcp.good("run", second).await.text;
        assert!(
            timeless(&all).ends_with("[s1 at prompt; exit 4 in N]"),
            "{all}"
        );
        let told = |all: &str| all.matches("[notice: s1 command exited 3 in ").count();
        let soon = async {
            while told(&all) == 0 {
                all += &mcp.good("output", json!({})).await.text;
            }
        };
        within(PATIENCE, "the notice of the first line", soon).await;
        all += &mcp.good("output", json!({})).await.text;
        assert_eq!(told(&all), 1, "{all}");
    });
}

#[test]
fn a_stop_ends_the_whole_tree_and_a_second_one_says_the_same() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let steps = line("ignore TERM , fork [ sleep ] , say up , sleep");
        let told = mcp
            .good("run", json!({"command": steps, "until": "text=up"}))
            .await;
        assert_eq!(told.job()["state"], "running");
        let told = mcp.good("stop", json!({"id": "t1"})).await;
        assert_eq!(
            timeless(&told.text),
            "[t1 stopped after N; 2 processes ended]"
        );
        assert_eq!(
            (&told.job()["outcome"], &told.job()["note"]),
            (&json!("stopped"), &json!("2 processes ended"))
        );
        let again = mcp.good("stop", json!({"id": "t1"})).await;
        assert_eq!(again.text, told.text);
        run(&mut mcp, "exit 5").await;
        let ended = mcp.good("stop", json!({"id": "t2"})).await;
        assert_eq!(ended.text, "[t2 had exited 5; nothing to stop]");
        let none = mcp.bad("stop", json!({"id": "t9"})).await;
        assert_eq!(none, "not_found: no job t9. output without id lists yours.");
        assert_eq!(
            mcp.bad("stop", json!({})).await,
            "bad_argument: id is missing: t1, or several: t1,s1."
        );
    });
}

#[test]
fn output_is_paged_searched_and_cut_in_the_middle() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = run(&mut mcp, "seq 1 10000").await;
        let bytes = 48_894;
        assert!(told.text.starts_with("1\n2\n"));
        assert!(told.text.contains("\n9999\n10000\n["));
        let cut = told.job()["cut"].as_u64().unwrap();
        assert_eq!(cut, bytes - 3_000);
        assert_eq!(
            told.text.matches(&format!("\n[{cut} bytes cut]\n")).count(),
            1
        );
        assert_eq!(
            timeless(told.status()),
            format!("[t1 exited 0 in N; {bytes} bytes; next: output id=t1 grep=REGEX]")
        );
        // Up to 16 KiB it is whole.
        let told = run(&mut mcp, "head -c 16384 /dev/zero | tr '\\0' x").await;
        assert_eq!((told.output().len(), told.job().get("cut")), (16_384, None));
        // Read again without a cursor it is shorter.
        let told = mcp.good("output", json!({"id": "t2"})).await;
        assert_eq!(told.job()["cut"], 16_384 - 3_000);
        // Pages, oldest first, each byte once.
        let (mut at, mut all) = (0, String::new());
        loop {
            let page = mcp.good("output", json!({"id": "t1", "since": at})).await;
            all += page.output();
            let next = page.job()["next"].as_u64().unwrap();
            assert!(next - at <= 8_192);
            at = next;
            if next == bytes {
                assert_eq!(timeless(page.status()), "[t1 exited 0 in N]");
                break;
            }
            assert!(
                page.status()
                    .ends_with(&format!("next: output id=t1 since={next}]"))
            );
        }
        assert_eq!(all.lines().count(), 10_000);
        let found = mcp
            .good("output", json!({"id": "t1", "grep": "^777$"}))
            .await;
        assert_eq!(
            found.text,
            "[at 2988]\n775\n776\n777\n778\n779\n[t1 exited 0; 1 line matches, all shown]"
        );
        let none = mcp
            .good("output", json!({"id": "t1", "grep": "nothing"}))
            .await;
        assert_eq!(none.text, "[t1 exited 0; 0 lines match]");
        let many = mcp.good("output", json!({"id": "t1", "grep": "."})).await;
        assert!(
            many.status()
                .contains(" lines match up to here; next: output id=t1 grep=REGEX since="),
            "{}",
            many.status()
        );
        let wrong = mcp.bad("output", json!({"id": "t1", "grep": "("})).await;
        assert!(wrong.starts_with("bad_argument: grep \"(\": "), "{wrong}");
    });
}

#[test]
fn escapes_are_left_out_and_of_a_line_drawn_over_the_last_state_stays() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = run(
            &mut mcp,
            r"printf '\033[31mred\033[0m\r\n10%%\r50%%\r100%%\n'",
        )
        .await;
        assert_eq!(
            timeless(&told.text),
            "red\n100%\n[8 bytes of overwritten lines left out]\n[t1 exited 0 in N]"
        );
        assert_eq!(told.job()["note"], "8 bytes of overwritten lines left out");
    });
}

#[test]
fn what_a_program_prints_never_passes_for_a_status() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = run(
            &mut mcp,
            "echo '[t1 exited 0 in 0.1s]'; printf '[t1 exited 0]'; exit 9",
        )
        .await;
        assert_eq!(timeless(told.status()), "[t1 exited 9 in N]");
        assert_eq!(told.job()["code"], 9);
    });
}

#[test]
fn other_ends_are_told_apart() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let told = run(&mut mcp, &line("kill SEGV")).await;
        assert_eq!(timeless(&told.text), "[t1 signaled SIGSEGV in N]");
        assert_eq!(
            (&told.job()["outcome"], &told.job()["signal"]),
            (&json!("signaled"), &json!("SIGSEGV"))
        );
        let failed = mcp
            .bad("run", json!({"command": "ls", "cwd": "nowhere"}))
            .await;
        assert_eq!(
            failed,
            format!(
                "[t2 spawn failed: no such folder: {}]",
                house.path("nowhere")
            )
        );
        let told = run(&mut mcp, "cd /tmp").await;
        assert_eq!(
            timeless(&told.text),
            "[cd does not outlive this call: use cwd or shell]\n[t3 exited 0 in N]"
        );
        let held = run(&mut mcp, &line("orphan [ sleep ] , say x")).await;
        assert!(held.text.contains("1 process left"), "{}", held.text);
        assert_eq!(held.job()["note"], "1 process left");
    });
}

#[test]
fn wrong_arguments_are_told_and_nothing_is_done() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        let table = [
            (
                "run",
                json!({"command": "ls", "until": "prot"}),
                "bad_argument: until \"prot\": use exit, port, port=N, text=REGEX or quiet=SECONDS. Nothing was started.",
            ),
            (
                "run",
                json!({"cmd": "ls"}),
                "bad_argument: no argument \"cmd\": use command, cwd, wait_s, until, tty, shell. Nothing was started.",
            ),
            (
                "run",
                json!({}),
                "bad_argument: command is missing. Nothing was started.",
            ),
            (
                "run",
                json!({"command": ""}),
                "bad_argument: command is empty. Nothing was started.",
            ),
            (
                "run",
                json!({"command": "ls", "wait_s": "soon"}),
                "bad_argument: wait_s must be a number of 0 or more. Nothing was started.",
            ),
            (
                "output",
                json!({"id": "t1", "since": 1_000_000_000_000_000_000_u64}),
                "bad_argument: since must be at most 9007199254740991.",
            ),
            (
                "run",
                json!({"command": "ls", "until": "port=99999"}),
                "bad_argument: until \"port=99999\": a port is 1 to 65535. Nothing was started.",
            ),
            (
                "output",
                json!({"id": "web"}),
                "not_found: no job web. output without id lists yours.",
            ),
            (
                "output",
                json!({"until": "exit"}),
                "bad_argument: until needs an id.",
            ),
            (
                "stop",
                json!({"id": "t1", "force": true}),
                "bad_argument: no argument \"force\": use id. Nothing was stopped.",
            ),
            (
                "output",
                json!({"id": "t1", "since": "soon"}),
                "bad_argument: since must be a number of 0 or more.",
            ),
            (
                "output",
                json!({"id": ","}),
                "bad_argument: id must be ids: t1,a1.",
            ),
            (
                "input",
                json!({"id": "s1", "enter": "soon"}),
                "bad_argument: no argument \"enter\": use id, text, keys, wait_s. Nothing was sent.",
            ),
        ];
        for (tool, arguments, words) in table {
            assert_eq!(mcp.bad(tool, arguments).await, words);
        }
        let list = mcp.good("output", json!({})).await;
        assert_eq!(list.text, "[no jobs]");
    });
}

#[test]
fn a_full_quota_names_what_runs_in_this_session() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        for n in 1..=8 {
            let told = mcp
                .good(
                    "run",
                    json!({"command": format!("sleep 6{n}"), "wait_s": 0}),
                )
                .await;
            assert_eq!(told.job()["id"], format!("t{n}"));
        }
        let full = mcp.bad("run", json!({"command": "ls"})).await;
        assert!(full.starts_with("limit: 8 of 8 commands run: t"), "{full}");
        assert!(
            full.contains("t3 sleep 63; ") && full.ends_with("stop one first."),
            "{full}"
        );
        mcp.good("stop", json!({"id": "t1 t2"})).await;
        run(&mut mcp, "true").await;
    });
}

/// The command was started, and the pattern refused afterwards with the words that nothing was.
#[test]
fn a_pattern_that_is_none_starts_nothing() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        mcp.good("run", json!({"command": "true"})).await;
        let mark = house.path("mark");
        let command = format!("touch {mark}; sleep 5");
        let text = mcp
            .bad("run", json!({"command": command, "until": "text=("}))
            .await;
        assert!(
            text.starts_with("bad_argument: until \"text=(\": "),
            "{text}"
        );
        assert!(text.ends_with("Nothing was started."), "{text}");
        let list = mcp.good("output", json!({})).await;
        assert!(!list.text.contains("t2"), "{}", list.text);
        assert!(!house.file("mark").exists());
    });
}

/// A line without its end was called busy, and a model would have waited for it for ever.
#[test]
fn a_line_that_was_typed_without_its_end_is_told_so() {
    in_empty_house(async |house| {
        let mut mcp = Mcp::legacy(house, &[]).await;
        mcp.good("run", json!({"command": "true", "shell": "new"}))
            .await;
        let typed = mcp
            .good(
                "input",
                json!({"id": "s1", "text": "echo y$((1+1))", "wait_s": 1}),
            )
            .await;
        assert_eq!(
            typed.status(),
            "[s1 typed, not entered; end with \\n to run it]"
        );
        let entered = mcp.good("input", json!({"id": "s1", "text": "\n"})).await;
        assert!(entered.text.contains("y2"), "{}", entered.text);
        assert!(
            entered.status().starts_with("[s1 at prompt; exit 0"),
            "{}",
            entered.text
        );
    });
}

/// The beginning of a page was cut away, and the cursor stood behind it: nobody could read it any more.
#[test]
fn who_reads_on_from_cursors_under_a_small_bound_misses_nothing() {
    in_empty_house(async |house| {
        for bound in ["600", "1000", "5000"] {
            let mut mcp = Mcp::legacy(house, &["--max-result", bound]).await;
            let ran = mcp.good("run", json!({"command": "seq 3000"})).await;
            let id = ran.job()["id"].clone();
            let (mut all, mut since) = (String::new(), 0);
            loop {
                let page = mcp.good("output", json!({"id": id, "since": since})).await;
                let job = page.job();
                let text = job["output"].as_str().unwrap_or_default();
                let shown = page.text.rsplit_once("\n[").map_or("", |(shown, _)| shown);
                assert_eq!(text.trim_end(), shown.trim_end(), "both say the same");
                all += text;
                match job["next"].as_u64() {
                    Some(next) if next > since => since = next,
                    _ => break,
                }
            }
            let whole: String = (1..=3000).map(|n| format!("{n}\n")).collect();
            assert_eq!(all, whole, "{bound}");
        }
    });
}
