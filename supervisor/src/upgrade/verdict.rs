//! What an image says when it is asked whether it could take over: one line of JSON on its standard output.
//!
//! It is run by the supervisor that is to leave, with copies of the ledger and of the jobs' records on two descriptors.
//! The configuration file is named by a word. It changes nothing and starts nothing. Fields may be added; who reads them must do without.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::{
        fd::{FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    path::Path,
    process::ExitCode,
};

use ostler_proto::{VERSION, config, upgrade::Build};
use serde::{Deserialize, Serialize};

use crate::{
    keeper::{kernel, wire},
    ledger,
};

/// The copy of the ledger.
pub(super) const LEDGER: i32 = 3;
/// The copies of the records: each with the number of its job and its length before it, in native order.
pub(super) const RECORDS: i32 = 4;

/// The line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Verdict {
    /// Says that this is a supervisor at all.
    pub(crate) ostler: Build,
    /// Wire versions that it speaks, oldest and newest.
    pub(crate) wire: (u32, u32),
    /// Formats of ledger and records that it understands.
    pub(crate) formats: (u32, u32),
    /// Why it cannot take over.
    #[serde(default)]
    pub(crate) reason: Option<String>,
}

impl Verdict {
    /// Why it cannot take over, from its own mouth or because of what is written between its check and its turn.
    pub(super) fn objection(&self) -> Option<String> {
        let (oldest, newest) = self.formats;
        let format = ledger::FORMAT;
        let strange = || {
            format!(
                "it understands formats {oldest} to {newest} of the records, and this is {format}"
            )
        };
        let understood = (oldest..=newest).contains(&format);
        self.reason.clone().or_else(|| (!understood).then(strange))
    }
}

/// Runs the check: the hidden entry of the image.
pub(crate) fn give(build: &str, config: Option<&Path>) -> ExitCode {
    let reason = look(config).err();
    let good = reason.is_none();
    let verdict = Verdict {
        ostler: Build {
            version: VERSION.into(),
            build: build.into(),
        },
        wire: (wire::OLDEST.into(), wire::VERSION.into()),
        formats: (ledger::FORMAT_OLDEST, ledger::FORMAT),
        reason,
    };
    let line = serde_json::to_string(&verdict).map_err(io::Error::other);
    let said = line.and_then(|line| writeln!(io::stdout(), "{line}"));
    match said {
        Ok(()) if good => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn look(config: Option<&Path>) -> Result<(), String> {
    if let Some(path) = config {
        let given = config::read(fs::read_to_string(path));
        given.map_err(|fault| format!("{}, {fault}", path.display()))?;
    }
    let copy = |number, what: &str| {
        read(number).map_err(|error| format!("the copy of {what} cannot be read: {error}"))
    };
    ledger::check(&copy(LEDGER, "the ledger")?)?;
    let records = copy(RECORDS, "the records")?;
    let mut rest = records.as_slice();
    while !rest.is_empty() {
        let (job, record) = next(&mut rest).ok_or("the copy of the records is cut")?;
        ledger::check_record(record).map_err(|why| format!("the record of job {job} {why}"))?;
    }
    Ok(())
}

fn read(number: i32) -> io::Result<Vec<u8>> {
    // A duplicate: where somebody calls this by hand there is no such file, or it is not ours to close.
    // SAFETY: plain call with a number.
    let made = unsafe { libc::fcntl(number, libc::F_DUPFD_CLOEXEC, 0) };
    kernel::check(made.into())?;
    // SAFETY: the kernel has just made this descriptor for us.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(made) });
    let mut bytes = vec![0; file.metadata()?.len() as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

fn next<'a>(rest: &mut &'a [u8]) -> Option<(u64, &'a [u8])> {
    let mut take = |length: usize| {
        let (taken, left) = rest.split_at_checked(length)?;
        *rest = left;
        Some(taken)
    };
    let job = u64::from_ne_bytes(take(8)?.try_into().ok()?);
    let length = u32::from_ne_bytes(take(4)?.try_into().ok()?);
    Some((job, take(length as usize)?))
}

/// Puts records into the form that [`give`] reads.
pub(super) fn pack(records: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (job, record) in records {
        bytes.extend_from_slice(&job.to_ne_bytes());
        bytes.extend_from_slice(&(record.len() as u32).to_ne_bytes());
        bytes.extend_from_slice(record);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_of_another_build_is_read_by_what_it_has_in_common() {
        let read = |text: &str| serde_json::from_str::<Verdict>(text).expect("it is a verdict");
        let later = r#"{"ostler":{"version":"9.0.0","build":"x","more":1},"wire":[1,3],"formats":[1,4],"colour":"red"}"#;
        assert_eq!(read(later).objection(), None);
        let much_later = later.replace("[1,4]", "[2,4]");
        assert_eq!(
            read(&much_later).objection().as_deref(),
            Some("it understands formats 2 to 4 of the records, and this is 1")
        );
        let unwilling = later.replace("\"colour\"", "\"reason\"");
        assert_eq!(read(&unwilling).objection().as_deref(), Some("red"));
    }

    #[test]
    fn records_come_out_of_their_copy_as_they_went_in() {
        let records = [
            (7, b"one".to_vec()),
            (8, Vec::new()),
            (9, b"three".to_vec()),
        ];
        let bytes = pack(&records);
        let mut rest = bytes.as_slice();
        for (job, record) in &records {
            assert_eq!(next(&mut rest), Some((*job, record.as_slice())));
        }
        assert!(rest.is_empty());
        assert_eq!(next(&mut &bytes[..14]), None, "a cut one is told");
    }
}
