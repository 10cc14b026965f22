//! Promise: what the help shows can be typed as it stands. Every example of every command is run.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ostler_tests::{House, Said, in_empty_house, puppet};

/// What examples call, besides `ostler`, as far as it is not part of every system.
const STAND_INS: [(&str, &str); 10] = [
    ("bin/npm", "echo 'ready in 120 ms'; exec sleep 1000"),
    ("bin/cargo", "echo test parse::empty ... FAILED"),
    ("bin/make", "echo made"),
    ("bin/bc", "exec cat"),
    ("bin/less", "exec cat"),
    ("bin/jq", "exec cat"),
    ("bin/vi", "echo edited"),
    ("bin/kimi", "exec cat"),
    ("bin/npx", "exec cat"),
    ("server", "echo serving"),
];

/// The commands of a help text, as words behind `ostler`.
fn commands(house: &House, path: &[&str]) -> Vec<Vec<String>> {
    let text = house.cli(&[path, &["--help"]].concat()).out;
    let mut found = vec![path.iter().map(|&w| w.to_owned()).collect()];
    let list = text.lines().skip_while(|l| *l != "Commands:").skip(1);
    for line in list.take_while(|l| !l.is_empty()) {
        // A description that is too long goes on below, further to the right.
        let Some(name) = line.strip_prefix("  ").and_then(|l| l.split(' ').next()) else {
            continue;
        };
        if !name.is_empty() && name != "help" {
            found.extend(commands(house, &[path, &[name]].concat()));
        }
    }
    found
}

/// The examples of all commands.
fn examples(house: &House) -> Vec<String> {
    let mut all = Vec::new();
    for path in commands(house, &[]) {
        let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
        words.push("--help");
        let text = house.cli(&words).out;
        let lines = text.lines().skip_while(|l| *l != "Examples:").skip(1);
        for line in lines.take_while(|l| l.starts_with("  ")) {
            // An explanation stands behind a gap.
            let example = line.trim().split("   ").next().unwrap_or_default();
            assert!(example.contains("ostler "), "{line}");
            if !all.contains(&example.to_owned()) {
                all.push(example.to_owned());
            }
        }
    }
    all
}

fn put_stand_ins(house: &House) {
    fs::create_dir(house.file("bin")).unwrap();
    for (name, line) in STAND_INS {
        if name == "bin/jq" && house.shell("jq --version").code == 0 {
            // The filters are examples, too.
            continue;
        }
        let path = house.file(name);
        fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

fn bash(house: &House, line: &str) -> Said {
    fs::write(house.file("line"), format!("PATH=$PWD/bin:$PATH\n{line}\n")).unwrap();
    house.shell("exec bash line")
}

/// What is there when most examples are typed: `web`, which ends with its input, and listens; two that are over;
/// an agent with three jobs. Returns the port.
fn scene(house: &House) -> String {
    let p = puppet();
    let line = format!(
        "set -e
        ostler start --name web --stdin -- {p} on HUP [ , ] , say 'ready in 120 ms' , listen 0 , stdin
        ostler start -- {p} say , say 'test parse::empty ... FAILED' , out 9000
        ostler start -- {p} sayerr 'to stderr'
        for n in 1 2 3; do ostler start --session claude-7k2 -- {p} sleep; done
        ostler wait t2 t3
        ostler wait web --for 'text=^port '
        ostler read web --match '^port '"
    );
    let said = bash(house, &line);
    assert_eq!(said.code, 0, "{said:?}");
    let port = said.out.lines().last().and_then(|l| l.rsplit(' ').next());
    port.expect("it told its port").to_owned()
}

/// An example about a job that has a terminal.
fn on_terminal(example: &str) -> String {
    let example = example.replace("claude-7k2/s1", "tty").replace("t1", "tty");
    format!(
        "ostler start --pty --name tty -- {} sleep && {example}",
        puppet()
    )
}

/// How an example is run so that it comes to its end, where it does not do so by itself.
fn to_its_end(example: &str) -> String {
    // Who waits for the end of `web` sees it when its input ends.
    let waits = [
        "ostler tail -f web",
        "ostler tail -f --json web",
        "ostler wait t1",
    ];
    if waits.iter().any(|w| example.starts_with(w)) {
        return format!("({example}) & ostler send web --eof; wait $!");
    }
    match example {
        "ostler detach t2" => format!(
            "ostler rm t2; ostler run --name r -- {} say up , sleep & until ostler wait r --for text=up 2>err; do :; done; {}; code=$?; wait; exit $code",
            puppet(),
            example.replace("t2", "r")
        ),
        "ostler resize t1 120x40" => on_terminal(example),
        _ if SHELLS.iter().any(|verb| example.starts_with(verb)) => {
            format!("echo 'echo done' >script.sh; ostler shell open --name build --clean -- bash && {example}")
        }
        _ if example.starts_with("ostler keys ") || example.starts_with("ostler screen ") => {
            on_terminal(example)
        }
        // Until it is left.
        _ if example.starts_with("ostler attach ") => on_terminal(&format!(
            "script -qec 'timeout --foreground --preserve-status -s INT 0.5 {example}' typescript </dev/null"
        )),
        "ostler daemon run" => {
            "ostler daemon stop -q; ostler daemon run >out & until grep -q ready out; do :; done; ostler daemon stop -q; wait $!".into()
        }
        // Until Ctrl-C.
        _ if goes_on(example) => format!("timeout --preserve-status -s INT 0.5 {example}"),
        "ostler session adopt claude-7k2 --into claude-9qd" => {
            format!("ostler session open claude-9qd && {example}")
        }
        // What another program is told to start: its input has ended.
        _ if example.contains(" mcp add ") => {
            example[example.rfind("ostler mcp").unwrap_or(0)..].to_owned()
        }
        _ => example.to_owned(),
    }
}

/// Commands about a shell that is there.
const SHELLS: &[&str] = &[
    "ostler shell exec ",
    "ostler shell send ",
    "ostler shell read ",
    "ostler shell close ",
];

/// Ended by nothing but the person who typed it.
fn goes_on(example: &str) -> bool {
    let endless = ["ostler daemon logs -f", "ostler session watch"];
    endless.iter().any(|e| example.starts_with(e))
}

/// The shell that an example is for, if it is not any.
fn shell_of(example: &str) -> &str {
    ["zsh", "fish", "elvish", "powershell"]
        .into_iter()
        .find(|shell| example.contains(&format!("completions {shell}")))
        .unwrap_or("bash")
}

#[test]
fn every_example_of_the_help_works_as_it_stands() {
    in_empty_house(async |house| {
        put_stand_ins(house);
        // A project.
        fs::create_dir(house.file(".git")).unwrap();
        let examples = examples(house);
        assert!(
            examples.len() > 40,
            "the examples were not found: {examples:?}"
        );
        for example in examples {
            if shell_of(&example) != "bash" {
                // Its script is read by its shell in another suite.
                continue;
            }
            // What starts something finds an empty house, everything else the scene.
            let starts = [" run ", " start ", " daemon start", "ostler shell "]
                .iter()
                .any(|w| example.contains(w));
            let port = if starts && !example.contains("daemon run") {
                "5173".to_owned()
            } else {
                scene(house)
            };
            let said = bash(house, &to_its_end(&example).replace("5173", &port));
            // Of a pipeline the code is that of its end.
            let code = if goes_on(&example) && !example.contains('|') {
                130
            } else {
                0
            };
            assert_eq!(said.code, code, "{example}: {said:?}");
            // A detached run says so, with the code of an error and no such word.
            assert!(!said.err.contains("error:"), "{example}: {said:?}");
            let stopped = house.cli(&["daemon", "stop", "--grace", "0"]);
            assert_eq!(stopped.code, 0, "after {example}: {stopped:?}");
        }
    });
}

#[test]
fn a_slip_in_a_command_or_a_flag_gets_a_suggestion() {
    in_empty_house(async |house| {
        for (args, suggestion) in [
            (&["strat"][..], "'start'"),
            (&["sesion", "ls"], "'session'"),
            (&["session", "clsoe"], "'close'"),
            (&["stop", "--al"], "'--all'"),
            (&["read", "t1", "--sicne", "5"], "'--since'"),
        ] {
            let said = house.cli(args);
            assert_eq!(said.code, 2, "{args:?}");
            assert!(
                said.err.contains("tip: ") && said.err.contains(suggestion),
                "{args:?}: {said:?}"
            );
        }
    });
}
