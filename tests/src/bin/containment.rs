//! Plays the matrix of containment and prints it as a Markdown table.
//!
//! ```text
//! containment              the whole matrix; minutes
//! containment RUNG USER    one column of it
//! ```
//!
//! `play RUNG END` is what each of its processes does. As the superuser it plays both users.

use std::collections::BTreeMap;
use std::process::ExitCode;

use ostler_tests::containment::{Cell, ESCAPES, End, RUNGS, User, column, excuse, play};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["play", rung, end] => {
            let end = End::ALL.into_iter().find(|e| e.word() == *end);
            let cells = play(rung, end.expect("an end"));
            println!("{}", serde_json::to_string(&cells).expect("plain data"));
            ExitCode::SUCCESS
        }
        [] => print(&RUNGS, &User::ALL),
        [rung, user] => {
            let users: Vec<User> = User::ALL
                .into_iter()
                .filter(|u| u.word() == *user)
                .collect();
            print(&[rung], &users)
        }
        _ => {
            eprintln!("containment [RUNG USER]");
            ExitCode::from(2)
        }
    }
}

/// Cells of one escape on one rung, by end.
type Row = BTreeMap<End, Cell>;

fn print(rungs: &[&str], users: &[User]) -> ExitCode {
    let program = std::env::current_exe().expect("a running program has a path");
    let mut columns = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    let mut unexcused = 0;
    for rung in rungs {
        for user in users {
            let mut rows: BTreeMap<String, Row> = BTreeMap::new();
            for end in End::ALL {
                for cell in column(&program, rung, *user, end).into_iter().flatten() {
                    rows.entry(cell.escape.clone())
                        .or_default()
                        .insert(end, cell);
                }
            }
            columns.push((*rung, *user, rows));
        }
    }
    let heads: Vec<String> = columns
        .iter()
        .map(|(rung, user, _)| format!("{rung}, {}", user.word()))
        .collect();
    println!("| escape | {} |", heads.join(" | "));
    println!("|---|{}", "---|".repeat(heads.len()));
    for escape in ESCAPES {
        let cells: Vec<String> = columns
            .iter()
            .map(|(rung, user, rows)| {
                let row = rows.get(escape.name);
                row.map_or_else(
                    || "-".into(),
                    |row| say(row, rung, *user, &mut notes, &mut unexcused),
                )
            })
            .collect();
        println!("| {} | {} |", escape.name, cells.join(" | "));
    }
    println!();
    for (at, note) in notes.iter().enumerate() {
        println!("[{}] {note}.", at + 1);
    }
    match unexcused {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// One field of the table: at how many ends nobody is left, and why not at the others.
fn say(row: &Row, rung: &str, user: User, notes: &mut Vec<String>, unexcused: &mut u32) -> String {
    let clean = row.values().filter(|cell| cell.left == 0).count();
    let mut text = format!("{clean}/{}", row.len());
    let mut told = Vec::new();
    for (end, cell) in row.iter().filter(|(_, cell)| cell.left > 0) {
        let Some(excuse) = excuse(&cell.escape, rung, user, *end) else {
            *unexcused += 1;
            text += &format!(" **{}: {} left**", end.word(), cell.left);
            continue;
        };
        let at = notes.iter().position(|note| note == excuse);
        let at = at.unwrap_or_else(|| {
            notes.push(excuse.to_owned());
            notes.len() - 1
        });
        if !told.contains(&at) {
            told.push(at);
            text += &format!(" [{}]", at + 1);
        }
    }
    text
}
