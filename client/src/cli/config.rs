//! `ostler config`: every setting with its value and where that comes from.

use std::path::Path;

use clap::Subcommand;
use ostler::Endpoint;
use ostler_proto::config::{self, Fault, Given};
use ostler_proto::limits::{SETTINGS, Setting, Unit};
use serde_json::json;

use super::failure::Failure;
use super::output::{Out, note};
use super::table;
use crate::exit;

/// The configuration: show.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Show(Show),
}

/// Shows every setting, its value and where that comes from. Needs no supervisor.
///
/// The file is read at the start of the supervisor: what it says now holds from the next `daemon start` on, or from
/// `daemon upgrade --force`, over which jobs go on.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler config show
  ostler config show --json | jq '.settings[] | select(.origin != \"default\")'

The file, where there is one:
  [session]
  commands = 16
  [output]
  spill_job = \"64 MiB\"
  [stop]
  grace = \"10s\"")]
pub(crate) struct Show {
    /// Prints JSON: {"file": ..., "settings": [...]}.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Show(args) => show(&args),
    }
}

/// What the file of this user gives.
pub(crate) fn read(file: &Path) -> Result<Vec<Given>, Fault> {
    config::read(std::fs::read_to_string(file))
}

/// Puts the file's settings in force in this process. A faulty one is left alone here: the supervisor refuses to
/// start with it, and stopping what runs must work all the same.
pub(crate) fn apply() {
    if let Ok(endpoint) = Endpoint::of_user()
        && let Ok(given) = read(&endpoint.folders().config)
    {
        config::apply(&given);
    }
}

fn show(args: &Show) -> Result<i32, Failure> {
    let endpoint = Endpoint::of_user().map_err(ostler::Error::from)?;
    let file = &endpoint.folders().config;
    let given = read(file).map_err(|fault| faulty(file, &fault))?;
    let mut out = Out::new();
    if args.json {
        out.json(&as_json(file, &given))?;
    } else {
        out.text(&as_table(file, &given))?;
    }
    out.flush()?;
    if !args.json && !file.exists() {
        note(&format!(
            "note: there is no {}; all values are defaults",
            file.display()
        ));
    }
    Ok(exit::DONE)
}

/// The failure that a faulty file is.
pub(crate) fn faulty(file: &Path, fault: &Fault) -> Failure {
    Failure::ours(format!("{}, {fault}", file.display())).hint(
        "ostler config show --help has an example; every key without a file: ostler config show",
    )
}

fn as_table(file: &Path, given: &[Given]) -> String {
    let rows: Vec<[String; 3]> = SETTINGS
        .iter()
        .map(|setting| {
            let from = given.iter().find(|g| std::ptr::eq(g.setting, setting));
            let value = from.map_or(setting.default, |g| g.value);
            let origin = from.map_or_else(
                || "default".into(),
                |g| format!("{}:{}", file.display(), g.line),
            );
            let name = format!("{}.{}", setting.table, setting.key);
            [name, setting.unit.say(value), origin]
        })
        .collect();
    table::render(
        &["SETTING", "VALUE", "ORIGIN"],
        &rows,
        table::terminal_width(),
    )
}

/// A value as a program takes it.
fn shown(setting: &Setting, value: u64) -> serde_json::Value {
    match setting.unit {
        Unit::Switch => (value == 1).into(),
        Unit::Count | Unit::Bytes | Unit::Ms => value.into(),
    }
}

fn as_json(file: &Path, given: &[Given]) -> serde_json::Value {
    let settings: Vec<_> = SETTINGS
        .iter()
        .map(|setting| {
            let from = given.iter().find(|g| std::ptr::eq(g.setting, setting));
            json!({
                "table": setting.table,
                "key": setting.key,
                "value": shown(setting, from.map_or(setting.default, |g| g.value)),
                "unit": match setting.unit {
                    Unit::Count => "count",
                    Unit::Bytes => "bytes",
                    Unit::Ms => "ms",
                    Unit::Switch => "switch",
                },
                "default": shown(setting, setting.default),
                "least": setting.least,
                "most": setting.most,
                "origin": if from.is_some() { "file" } else { "default" },
                "line": from.map(|g| g.line),
                "what": setting.doc.trim(),
            })
        })
        .collect();
    json!({ "file": file.to_string_lossy(), "exists": file.exists(), "settings": settings })
}
