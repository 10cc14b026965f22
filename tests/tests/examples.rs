//! Promise: the examples for authors of agents run as they stand, and go on when the supervisor is replaced under them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ostler_proto::methods::{JobList, List};
use ostler_tests::process::Process;
use ostler_tests::tools::{contrib, tool};
use ostler_tests::{House, PATIENCE, Said, in_empty_house, installed, puppet, within};

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// An example with its arguments, in an environment with next to nothing: no XDG_RUNTIME_DIR above all.
fn command(house: &House, program: &[PathBuf], arguments: &[&str]) -> Command {
    let mut command = house.client_command(&program[0]);
    command
        .args(&program[1..])
        .args(arguments)
        .env_remove("TERM");
    command
}

/// From no supervisor to none of the jobs left.
fn serves(house: &House, program: &[PathBuf]) {
    let port = free_port().to_string();
    let said = Said::of(command(
        house,
        program,
        &[&port, "python3", "-m", "http.server", &port],
    ));
    assert_eq!(said.code, 0, "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    assert!(lines[0].starts_with("t1 runs, pid "), "{said:?}");
    assert!(
        lines[1].starts_with(&format!("port {port}: python3, pid ")),
        "{said:?}"
    );
    assert_eq!(
        lines[2..],
        ["it says 200", "stopped: 1 processes"],
        "{said:?}"
    );
    assert!(house.cli(&["ls", "-A", "--live", "-q"]).out.is_empty());
}

/// The supervisor is killed while the example waits for its server, which comes up afterwards.
async fn comes_back(house: &House, program: &[PathBuf]) {
    let port = free_port().to_string();
    let fifo = house.fifo("go");
    let server = [
        &port,
        puppet(),
        "await",
        &fifo,
        ",",
        "exec",
        "python3",
        "-m",
        "http.server",
        &port,
    ];
    let mut command = command(house, program, &server);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().expect("it was piped"));
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.starts_with("t1 runs, pid "), "{line}");
    house.kill_supervisor().await;
    house.open(&fifo).await;
    let process = Process::of(child.id()).unwrap();
    within(PATIENCE, "the end of the example", process.gone()).await;
    let rest: Vec<String> = out.lines().map(Result::unwrap).collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert_eq!(
        rest[1..],
        ["it says 200", "stopped: 1 processes"],
        "{rest:?}"
    );
    let list = List {
        all: true,
        ..List::default()
    };
    let jobs = house
        .desk_without_session()
        .must::<JobList>(list)
        .await
        .jobs;
    assert_eq!(jobs.len(), 1, "started once: {jobs:?}");
}

/// What is wrong is said, with what to do next.
fn says_what_is_wrong(house: &House, program: &[PathBuf]) {
    let said = Said::of(command(house, program, &["1", "no-such-program"]));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.err
            .contains("no-such-program did not start: no such file or directory"),
        "{said:?}"
    );
    let said = Said::of(command(
        house,
        program,
        &["1", puppet(), "say", "why", ",", "exit", "3"],
    ));
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("it ended first: why"), "{said:?}");
}

fn python(house: &House) -> Option<Vec<PathBuf>> {
    let python = house
        .shell("command -v python3 && python3 -c 'import sys; print(sys.version_info >= (3, 8))'");
    let Some((path, "True")) = python.out.trim().split_once('\n') else {
        ostler_tests::skip("no Python 3.8 here");
        return None;
    };
    Some(vec![path.into(), contrib("examples/python/dev_server.py")])
}

/// Types are checked on the way to what any Node runs.
fn typescript(house: &House) -> Option<Vec<PathBuf>> {
    if !(installed("node") && installed("python3")) {
        return None;
    }
    let (compiler, types) = (
        tool("lsp-js/node_modules/typescript/bin/tsc")?,
        tool("lsp-js/node_modules/@types")?,
    );
    let node = PathBuf::from(house.shell("command -v node").out.trim());
    let out = house.file("js");
    let mut command = house.client_command(&node);
    command
        .arg(compiler)
        .args([
            "--strict",
            "--skipLibCheck",
            "--target",
            "es2022",
            "--module",
            "nodenext",
            "--erasableSyntaxOnly",
            "--typeRoots",
        ])
        .arg(types)
        .arg("--types")
        .arg("node")
        .arg("--outDir")
        .arg(&out)
        .arg(contrib("examples/typescript/dev_server.ts"));
    let said = Said::of(command);
    assert_eq!((said.code, said.out.as_str()), (0, ""), "{said:?}");
    Some(vec![node, out.join("dev_server.js")])
}

#[test]
fn the_python_example_starts_waits_talks_and_stops() {
    in_empty_house(async |house| {
        let Some(program) = python(house) else { return };
        serves(house, &program);
        says_what_is_wrong(house, &program);
    });
}

#[test]
fn the_python_example_comes_back_to_a_replaced_supervisor() {
    in_empty_house(async |house| {
        let Some(program) = python(house) else { return };
        comes_back(house, &program).await;
    });
}

/// All in one: the compiler takes seconds.
#[test]
fn the_typescript_example_serves_and_comes_back_to_a_replaced_supervisor() {
    in_empty_house(async |house| {
        let Some(program) = typescript(house) else {
            return;
        };
        comes_back(house, &program).await;
        serves(house, &program);
        says_what_is_wrong(house, &program);
    });
}

/// What a reader copies is what the compiler has seen.
#[test]
fn the_rust_example_is_short_and_the_one_that_the_readme_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let found: Vec<&str> = [
        "client/examples/dev_server.rs",
        "contrib/examples",
        "contrib/nvim",
    ]
    .into_iter()
    .filter(|path| readme.contains(path) && root.join(path).exists())
    .collect();
    assert_eq!(found.len(), 3, "{found:?}");
}
