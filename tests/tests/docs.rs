//! Promise: what README and PROTOCOL.md show can be typed as it stands.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ostler_tests::{House, in_empty_house, puppet};

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name);
    fs::read_to_string(path).expect("it is in the tree")
}

/// Commands behind a `$ ` in the blocks of a document, with their continuation lines and without remarks.
fn typed(document: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut open = false;
    for line in document.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            commands.push(command.to_owned());
        } else if open && let Some(last) = commands.last_mut() {
            *last += "\n";
            *last += line;
        }
        open = commands.last().is_some_and(|c| c.ends_with('\\')) && line.ends_with('\\');
    }
    let plain = |c: String| {
        c.split("   #")
            .next()
            .unwrap_or_default()
            .trim_end()
            .to_owned()
    };
    commands.into_iter().map(plain).collect()
}

/// A program of the document's, played by a script.
fn stand_in(house: &House, name: &str, line: &str) {
    let bin = house.file("bin");
    fs::create_dir_all(&bin).unwrap();
    let path = bin.join(name);
    fs::write(&path, format!("#!/bin/sh\n{line}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn every_command_of_the_readme_works_as_it_stands() {
    in_empty_house(async |house| {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        stand_in(
            house,
            "npm",
            &format!("exec {} listen {port} , sleep", puppet()),
        );
        stand_in(house, "cargo", "echo tests run");
        fs::create_dir(house.file(".git")).unwrap();
        let commands = typed(&document("README.md"));
        assert!(commands.len() >= 5, "{commands:?}");
        for command in commands {
            // The port of the document may be somebody's here; a follower goes on until its job ends.
            let command = command.replace("5173", &port.to_string());
            let command = match command.starts_with("ostler tail -f") {
                true => format!("timeout --preserve-status -s INT 0.5 {command}"),
                false => command,
            };
            let said = house.shell(&format!("PATH=$PWD/bin:$PATH; {command}"));
            let fine = said.code == 0 || command.contains("-s INT") && said.code == 130;
            assert!(fine, "{command}: {said:?}");
        }
        assert!(
            house.cli(&["ls", "--live"]).out.is_empty(),
            "the last one stops all"
        );
    });
}

/// NDJSON by hand.
#[test]
fn every_command_of_the_protocol_works_as_it_stands() {
    in_empty_house(async |house| {
        if house.shell("command -v socat").code != 0 {
            ostler_tests::skip("no socat here");
            return;
        }
        house.start();
        let commands = typed(&document("proto/PROTOCOL.md"));
        assert!(!commands.is_empty());
        for command in commands {
            let said = house.shell(&command);
            assert_eq!(said.code, 0, "{command}: {said:?}");
            assert!(
                said.out.contains("\"stdout\":\"hello\\n\""),
                "{command}: {}",
                said.out
            );
        }
    });
}
