//! Promise: the LSP clients of others attach, over the socket and through `ostler lsp`.

use std::path::{Path, PathBuf};

use ostler_tests::tools::{client, tool};
use ostler_tests::{House, Said, in_empty_house, in_house, installed, ostler};

/// Where a program on the PATH is.
fn program(name: &str) -> Option<PathBuf> {
    if !installed(name) {
        return None;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

fn lines(said: &Said) -> Vec<&str> {
    assert_eq!(said.code, 0, "{said:?}");
    said.out.lines().collect()
}

fn eglot(house: &House, contact: &[&str]) {
    let Some(emacs) = program("emacs") else {
        return;
    };
    if !Path::new("/usr/share/emacs/site-lisp/elpa/eglot-1.9").is_dir() {
        ostler_tests::skip("no eglot 1.9");
        return;
    }
    let mut command = house.client_command(&emacs);
    command
        .args(["-Q", "--batch", "-l"])
        .arg(client("eglot.el"))
        .args(contact);
    let said = Said::of(command);
    let expected = [
        "server ostler",
        "offers [ostler.start ostler.run ostler.list ostler.tail ostler.wait ostler.stop ostler.send]",
        "run 3 out err",
        "start t2 running",
        "stop stopped",
        "refused 2001 no job t9 in this session",
        "list 2",
        "left t",
    ];
    assert_eq!(lines(&said), expected, "{}", said.err);
}

#[test]
fn eglot_attaches_to_the_socket() {
    in_house(async |house| {
        let socket = house.folders().socket().display().to_string();
        eglot(house, &["--", "unix", &socket]);
    });
}

#[test]
fn eglot_starts_the_supervisor_through_ostler_lsp() {
    in_empty_house(async |house| {
        let program = ostler().display().to_string();
        eglot(house, &["--", "stdio", &program, "lsp"]);
    });
}

fn vscode(house: &House, way: &[&str], left: &str) {
    let (Some(node), Some(modules)) = (
        program("node"),
        tool("lsp-js/node_modules/vscode-languageserver-protocol"),
    ) else {
        return;
    };
    let mut command = house.client_command(&node);
    command.arg(client("vscode.mjs")).arg(modules).args(way);
    let said = Said::of(command);
    let mut lines = lines(&said);
    // Of the progress of others, begin and end are there.
    let created: Vec<&str> = lines
        .extract_if(.., |line| line.starts_with("created "))
        .collect();
    assert_eq!(
        created.first(),
        Some(&"created begin run: until [ -e go ]; do sleep 0.05; done"),
        "{said:?}"
    );
    assert!(
        created.contains(&"created end t2 exited with code 0"),
        "{said:?}"
    );
    assert!(
        created.contains(&"created begin run: sleep 100"),
        "{said:?}"
    );
    let expected = [
        "server ostler visual-studio-code-f",
        r#"run 3 "begun\nmiddle\n" begin end true"#,
        "cancelled -32800",
        "start t4 running",
        "stop stopped 1",
        "refused 2001 no job t9 in this session",
        "unknown -32601",
        left,
    ];
    assert_eq!(lines, expected, "{}", said.err);
}

#[test]
fn vscode_jsonrpc_attaches_to_the_socket() {
    in_house(async |house| {
        let socket = house.folders().socket().display().to_string();
        vscode(house, &["socket", &socket], "left closed");
    });
}

#[test]
fn vscode_jsonrpc_starts_the_supervisor_through_ostler_lsp() {
    in_empty_house(async |house| {
        let program = ostler().display().to_string();
        vscode(
            house,
            &["stdio", &program, "lsp", "--stdio"],
            "left exited 0",
        );
    });
}

#[test]
fn pygls_starts_the_supervisor_through_ostler_lsp() {
    in_empty_house(async |house| {
        // The system's, not one that needs its user's home.
        let python = PathBuf::from(house.shell("command -v python3").out.trim());
        let Some(folder) = tool("pygls").filter(|_| installed("python3")) else {
            return;
        };
        let mut command = house.client_command(&python);
        command
            .arg(client("pygls_client.py"))
            .arg(folder)
            .arg(ostler())
            .arg("lsp");
        let said = Said::of(command);
        let expected = [
            "ostler 7",
            "3 create begin end",
            "2001 no job t9 in this session",
            "left 0",
        ];
        assert_eq!(lines(&said), expected, "{}", said.err);
    });
}
