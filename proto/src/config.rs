//! The configuration file: which settings it gives, and what is wrong with it, by name and line.
//!
//! ```toml
//! [session]
//! commands = 16
//! finished_for = "2d"
//!
//! [output]
//! spill_job = "64 MiB"
//! ```
//!
//! Keys are those of [`SETTINGS`]. It is read once, at the start of a process; nothing here looks at a disk.

use std::{io, ops::Range};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    duration,
    limits::{SETTINGS, Setting, Unit},
};

/// A setting that the file gives.
#[derive(Debug)]
pub struct Given {
    /// Which.
    pub setting: &'static Setting,
    /// Its value, in its unit.
    pub value: u64,
    /// Line of the file.
    pub line: usize,
}

/// What is wrong with the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is there and cannot be read.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// A key or value is wrong, or the text is no TOML.
    #[error("line {line}: {what}")]
    Wrong {
        /// Where.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
}

/// Reads the file's text; one that is not there gives nothing.
///
/// # Errors
/// The first [`Fault`]; no part of a faulty file is used.
pub fn read(text: io::Result<String>) -> Result<Vec<Given>, Fault> {
    match text {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Fault::Unreadable(error.to_string())),
    }
}

/// Puts the settings in force that a file gives.
pub fn apply(given: &[Given]) {
    for one in given {
        // `parse` has checked the bounds.
        let _ = one.setting.set(one.value);
    }
}

fn parse(text: &str) -> Result<Vec<Given>, Fault> {
    let tables = DeTable::parse(text).map_err(|error| {
        // The crate's own words begin with a picture of the place; the last line says what is wrong.
        wrong(text, error.span(), error.message().to_owned())
    })?;
    let mut given = Vec::new();
    for (table, keys) in tables.get_ref().iter() {
        let name: &str = table.get_ref();
        let DeValue::Table(keys) = keys.get_ref() else {
            let home = SETTINGS.iter().find(|s| s.key == name);
            let what = match home {
                Some(setting) => format!("`{name}` belongs into [{}]", setting.table),
                None => format!("there is no setting `{name}`"),
            };
            return Err(wrong(text, Some(table.span()), what));
        };
        if !SETTINGS.iter().any(|s| s.table == name) {
            let what = format!("there is no table [{name}]; there are {}", tables_there());
            return Err(wrong(text, Some(table.span()), what));
        }
        for (key, value) in keys.iter() {
            given.push(one(text, name, key, value)?);
        }
    }
    given.sort_by_key(|g| g.line);
    Ok(given)
}

fn one(
    text: &str,
    table: &str,
    key: &Spanned<std::borrow::Cow<'_, str>>,
    value: &Spanned<DeValue<'_>>,
) -> Result<Given, Fault> {
    let name: &str = key.get_ref();
    let found = SETTINGS.iter().find(|s| s.table == table && s.key == name);
    let Some(setting) = found else {
        let home = SETTINGS.iter().find(|s| s.key == name);
        let what = match home {
            Some(setting) => format!("`{name}` belongs into [{}]", setting.table),
            None => format!("there is no setting `{name}` in [{table}]"),
        };
        return Err(wrong(text, Some(key.span()), what));
    };
    let fault = |why: String| wrong(text, Some(value.span()), format!("`{name}` {why}"));
    let number = number(setting.unit, value.get_ref()).map_err(fault)?;
    let range = i128::from(setting.least)..=i128::from(setting.most);
    let value = u64::try_from(number)
        .ok()
        .filter(|_| range.contains(&number));
    let Some(value) = value else {
        let (least, most) = (
            setting.unit.say(setting.least),
            setting.unit.say(setting.most),
        );
        return Err(fault(format!("must be {least} to {most}")));
    };
    Ok(Given {
        setting,
        value,
        line: line_of(text, &key.span()),
    })
}

/// One that no setting can have is one all the same: its bounds are told.
fn number(unit: Unit, value: &DeValue<'_>) -> Result<i128, String> {
    let wanted = || match unit {
        Unit::Count => "must be a whole number".to_owned(),
        Unit::Bytes => "must be a number of bytes, or a size such as \"256 KiB\"".to_owned(),
        Unit::Ms => "must be a number of milliseconds, or a time such as \"3s\"".to_owned(),
        Unit::Switch => "must be true or false".to_owned(),
    };
    match value {
        DeValue::Boolean(on) if unit == Unit::Switch => Ok(i128::from(*on)),
        DeValue::Integer(digits) if unit != Unit::Switch => {
            let number = i128::from_str_radix(digits.as_str(), digits.radix());
            Ok(number.unwrap_or(i128::MAX))
        }
        DeValue::String(words) if unit == Unit::Ms && !is_plain(words) => {
            duration::parse(words).map(i128::from)
        }
        DeValue::String(words) if unit == Unit::Bytes => size(words).ok_or_else(wanted),
        _ => Err(wanted()),
    }
}

/// A plain number in quotes: seconds on the command line, milliseconds as a number here; neither is guessed.
fn is_plain(words: &str) -> bool {
    words.trim().chars().all(|c| c.is_ascii_digit() || c == '.')
}

fn size(words: &str) -> Option<i128> {
    let words = words.trim();
    let digits = words.find(|c: char| !c.is_ascii_digit())?;
    if digits == 0 {
        return None;
    }
    let number: i128 = words[..digits].parse().unwrap_or(i128::MAX);
    let unit = match words[digits..].trim() {
        "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        _ => return None,
    };
    Some(number.saturating_mul(unit))
}

impl Unit {
    /// A value of this unit as the file takes it.
    pub fn say(self, value: u64) -> String {
        match self {
            Self::Count => value.to_string(),
            Self::Switch => (value == 1).to_string(),
            Self::Bytes => said(
                value,
                &[
                    ("TiB", 1 << 40),
                    ("GiB", 1 << 30),
                    ("MiB", 1 << 20),
                    ("KiB", 1 << 10),
                ],
                " ",
                "B",
            ),
            Self::Ms => said(
                value,
                &[
                    ("d", 86_400_000),
                    ("h", 3_600_000),
                    ("m", 60_000),
                    ("s", 1_000),
                ],
                "",
                "ms",
            ),
        }
    }
}

/// The largest unit in which it is a whole number.
fn said(value: u64, units: &[(&str, u64)], gap: &str, smallest: &str) -> String {
    let whole = units
        .iter()
        .find(|(_, n)| value > 0 && value.is_multiple_of(*n));
    match whole {
        Some((unit, n)) => format!("{}{gap}{unit}", value / n),
        None => format!("{value}{gap}{smallest}"),
    }
}

fn tables_there() -> String {
    let mut names: Vec<_> = SETTINGS.iter().map(|s| format!("[{}]", s.table)).collect();
    names.dedup();
    names.join(", ")
}

fn wrong(text: &str, span: Option<Range<usize>>, what: String) -> Fault {
    Fault::Wrong {
        line: line_of(text, &span.unwrap_or(0..0)),
        what,
    }
}

fn line_of(text: &str, span: &Range<usize>) -> usize {
    let before = &text.as_bytes()[..span.start.min(text.len())];
    before.iter().filter(|b| **b == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn values_are_taken_as_numbers_and_in_words() {
        let text = "# mine\n[session]\ncommands = 0x10\nfinished_for = \"1d12h\"\n\n[output]\npage = \"16 KiB\"\nspill_job = 1_000\n[stop]\ngrace = 0\n[client]\nauto_upgrade = true\n";
        let given = parse(text).unwrap();
        let told: Vec<_> = given
            .iter()
            .map(|g| (g.setting.key, g.value, g.line))
            .collect();
        assert_eq!(
            told,
            [
                ("commands", 16, 3),
                ("finished_for", 36 * 3_600_000, 4),
                ("page", 16 * 1024, 7),
                ("spill_job", 1_000, 8),
                ("grace", 0, 10),
                ("auto_upgrade", 1, 12)
            ]
        );
        assert!(parse("").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_told_by_name_and_line() {
        for (text, words) in [
            (
                "[session]\n\ncomands = 3\n",
                "line 3: there is no setting `comands` in [session]",
            ),
            (
                "[session]\ngrace = 3\n",
                "line 2: `grace` belongs into [stop]",
            ),
            (
                "commands = 3\n",
                "line 1: `commands` belongs into [session]",
            ),
            (
                "[sesion]\n",
                "line 1: there is no table [sesion]; there are [session], ",
            ),
            (
                "[session]\ncommands = 0\n",
                "line 2: `commands` must be 1 to 10000",
            ),
            (
                "[session]\ncommands = -1\n",
                "line 2: `commands` must be 1 to 10000",
            ),
            (
                "[session]\ncommands = 100000000000000000000000000000000000000000\n",
                "line 2: `commands` must be 1 to 10000",
            ),
            (
                "[output]\nspill_job = \"99999999999999999999999999999999999999999 TiB\"\n",
                "line 2: `spill_job` must be 0 B to 1024 TiB",
            ),
            (
                "[session]\ncommands = 1.5\n",
                "line 2: `commands` must be a whole number",
            ),
            (
                "[session]\ncommands = \"8\"\n",
                "line 2: `commands` must be a whole number",
            ),
            (
                "[stop]\ngrace = \"3\"\n",
                "line 2: `grace` must be a number of milliseconds",
            ),
            (
                "[stop]\ngrace = \"2m\"\n",
                "line 2: `grace` must be 0ms to 1m",
            ),
            (
                "[output]\npage = \"8 KB\"\n",
                "line 2: `page` must be a number of bytes",
            ),
            (
                "[client]\nauto_upgrade = 1\n",
                "line 2: `auto_upgrade` must be true or false",
            ),
            (
                "[session]\ncommands = true\n",
                "line 2: `commands` must be a whole number",
            ),
            ("[output]\npage = 8192\npage = 1\n", "line 3: "),
            ("[output\n", "line 1: "),
            (
                "[output]\n[output.page]\n",
                "line 2: `page` must be a number of bytes",
            ),
        ] {
            let told = fault(text);
            assert!(told.starts_with(words), "{text:?}: {told}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_gives_nothing_and_one_that_cannot_be_read_is_told() {
        assert!(
            read(Err(io::ErrorKind::NotFound.into()))
                .unwrap()
                .is_empty()
        );
        let fault = read(Err(io::ErrorKind::PermissionDenied.into())).unwrap_err();
        assert!(fault.to_string().contains("cannot be read"), "{fault}");
    }

    #[test]
    fn every_default_can_be_written_into_the_file() {
        for setting in SETTINGS {
            let value = setting.unit.say(setting.default);
            let value = match setting.unit {
                Unit::Count | Unit::Switch => value,
                Unit::Bytes | Unit::Ms => format!("{value:?}"),
            };
            let text = format!("[{}]\n{} = {value}\n", setting.table, setting.key);
            let given = parse(&text).unwrap();
            assert_eq!(given[0].value, setting.default, "{text}");
        }
    }
}
