//! What must survive the supervisor and is not told by the keeper: sessions, results, wishes.
//!
//! One memfd, appended with one `write` a record, its descriptor held by the keeper, which never reads it.
//! Records of a few KiB are never torn by `kill -9`, larger ones can be: each has a length and a checksum,
//! and a bad tail is dropped. When it has grown well past what is alive, a new one is written and the keeper
//! gets that instead.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::fs::FileExt,
    },
    sync::{Mutex, PoisonError},
};

use ostler_proto::limits;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    job::{Finished, Seat, Spec, Wanted, first_format},
    session::{Record, Tombstone},
    terminal::handed::Handed,
};

/// Format of the entries and of the records of jobs that this build writes. One that an earlier build would
/// misunderstand raises it. A field that is only added does not: see [`check`].
pub(crate) const FORMAT: u32 = 1;

/// The oldest format that this build understands.
pub(crate) const FORMAT_OLDEST: u32 = 1;

/// A ledger below this size is never rewritten.
const SMALL: u64 = 1024 * 1024;

/// One fact. Later ones win.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Entry {
    /// A supervisor began; numbers below `next_number` are used.
    House {
        started_at: u64,
        generation: u64,
        next_number: u64,
        /// Numbers of notices up to this one are used.
        #[serde(default)]
        notices: u64,
        /// What it writes.
        #[serde(default = "first_format")]
        format: u32,
    },
    /// A session was opened or changed.
    Session(Record),
    /// A session is gone.
    Closed { id: String },
    /// A job began that no process stands for, so that the keeper cannot tell of it. It ends with its supervisor.
    Begun(Box<Spec>),
    /// A job's result stands.
    Finished {
        spec: Box<Spec>,
        finished: Box<Finished>,
    },
    /// A job's record is gone.
    Released { process_id: String },
    /// A job's record is gone, and this is what stays of it.
    Buried {
        session: String,
        tombstone: Tombstone,
    },
    /// A line is handed over to the shell of this number now.
    Handed { number: u64, line: Handed },
    /// Somebody wants the end of a live job.
    Wanted { number: u64, wanted: Wanted },
    /// A foreground run became a background job.
    Unbound { number: u64 },
    /// A session got another id, or its jobs went to another session: one record, so that a crash finds all of it
    /// or nothing.
    Moved(Box<Moved>),
    /// Where a job stands, when that is not where it was born.
    Seated(Seated),
    /// Where a session went.
    Gone(Gone),
}

/// A rename or an adoption.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Moved {
    /// The session that is no more.
    pub(crate) from: Gone,
    /// The session that has its jobs now.
    pub(crate) to: Record,
    /// All that moved.
    pub(crate) seats: Vec<Seated>,
}

/// What stays of a session that was renamed or adopted.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) id: String,
    /// Its artifact folder, which is its identity.
    pub(crate) key: String,
    pub(crate) token_hash: String,
    /// Id of the session that has its jobs.
    pub(crate) to: String,
}

/// Where sessions went that were renamed or adopted, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Moves(VecDeque<Gone>);

impl Moves {
    /// Keeps where a session went. Earlier ones that went there go along, so that no chain is to be followed.
    pub(crate) fn remember(&mut self, gone: Gone) {
        for earlier in self.0.iter_mut().filter(|g| g.to == gone.id) {
            earlier.to.clone_from(&gone.to);
        }
        self.0.push_back(gone);
        if self.0.len() > limits::moved() {
            self.0.pop_front();
        }
    }

    /// An id that is in use again has not moved.
    pub(crate) fn forget(&mut self, id: &str) {
        self.0.retain(|g| g.id != id);
    }

    /// Of what went to a session that is closed nobody can say any more where it is.
    pub(crate) fn forget_to(&mut self, id: &str) {
        self.0.retain(|g| g.to != id);
    }

    pub(crate) fn newest_first(&self) -> impl Iterator<Item = &Gone> {
        self.0.iter().rev()
    }

    pub(crate) fn oldest_first(&self) -> impl Iterator<Item = &Gone> {
        self.0.iter()
    }
}

/// A job and its place.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Seated {
    pub(crate) number: u64,
    pub(crate) seat: Seat,
    /// Number of its notice, 0 when there is none any more; absent when the job had not ended yet.
    pub(crate) notice: Option<u64>,
    /// `SESSION/t1`, by which its owner may still call it.
    pub(crate) from: Vec<String>,
}

/// The open ledger.
#[derive(Debug)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    len: u64,
    rewrite_at: u64,
    generation: u64,
}

impl Ledger {
    /// Opens what the keeper holds and returns what it says.
    pub(crate) fn open(fd: OwnedFd) -> io::Result<(Self, Vec<Entry>)> {
        let file = File::from(fd);
        let mut bytes = vec![0; file.metadata()?.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let Decoded {
            entries,
            strange,
            good,
        } = decode(&bytes);
        if strange > 0 {
            crate::log_line!(
                "error",
                "ledger: {strange} entries are not understood and left out; a later build wrote them"
            );
        }
        // A torn tail would hide every later record from the next reader.
        file.set_len(good)?;
        append_only(&file)?;
        let inner = Inner {
            file,
            len: good,
            // How much of it is alive is not known yet, so the next end of a job finds out. Twice of what there is would
            // be twice as much after each of many crashes: it was never rewritten, and each supervisor read all of it.
            rewrite_at: SMALL,
            generation: 0,
        };
        Ok((
            Self {
                inner: Mutex::new(inner),
            },
            entries,
        ))
    }

    /// Appends one fact. A full memory is told in the log and costs only what a crash right now would lose.
    pub(crate) fn append(&self, entry: &Entry) {
        let record = encode(entry);
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.file.write_all(&record) {
            Ok(()) => inner.len += record.len() as u64,
            Err(error) => crate::log_line!("error", "ledger: {error}"),
        }
    }

    /// All of it, as it is now.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn copy(&self) -> io::Result<Vec<u8>> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // What is there, not what was counted: the next one reads the file.
        let mut bytes = vec![0; inner.file.metadata()?.len() as usize];
        inner.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Tells whether [`Ledger::rewrite`] is worth its while.
    pub(crate) fn is_long(&self) -> bool {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.len > inner.rewrite_at
    }

    /// Where the next record will stand. Taken before what is alive is collected for [`Ledger::rewrite`].
    pub(crate) fn mark(&self) -> u64 {
        self.inner
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len
    }

    /// Writes what is alive into a new memfd and hands it to the keeper before the old one is dropped.
    pub(crate) fn rewrite(
        &self,
        entries: &[Entry],
        mark: u64,
        hand_over: impl FnOnce(u64, BorrowedFd<'_>),
    ) -> io::Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = File::from(memfd()?);
        append_only(&file)?;
        let mut bytes: Vec<u8> = entries.iter().flat_map(encode).collect();
        // What others appended while the entries were collected would be lost; said twice, it does no harm.
        let mut tail = vec![0; inner.len.saturating_sub(mark) as usize];
        inner.file.read_exact_at(&mut tail, mark)?;
        bytes.extend_from_slice(&tail);
        file.write_all(&bytes)?;
        inner.generation += 1;
        hand_over(inner.generation, file.as_fd());
        inner.file = file;
        inner.len = bytes.len() as u64;
        inner.rewrite_at = SMALL.max(inner.len * 2);
        Ok(())
    }
}

fn memfd() -> io::Result<OwnedFd> {
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe { libc::memfd_create(c"ledger".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above returned a new descriptor that nobody else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn append_only(file: &File) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // SAFETY: fcntl on a descriptor that we own.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn encode(entry: &Entry) -> Vec<u8> {
    let body = serde_json::to_vec(entry).expect("entries are plain data with string keys");
    let mut record = Vec::with_capacity(body.len() + HEAD);
    record.extend_from_slice(&(body.len() as u32).to_le_bytes());
    record.extend_from_slice(&checksum(&body).to_le_bytes());
    record.extend_from_slice(&body);
    record
}

/// What stands in a ledger.
#[derive(Default)]
struct Decoded {
    entries: Vec<Entry>,
    /// Whole records that this build does not know. They hide nothing behind them.
    strange: usize,
    /// Where the first record begins that is not whole.
    good: u64,
}

fn decode(bytes: &[u8]) -> Decoded {
    let mut decoded = Decoded::default();
    for body in bodies(bytes) {
        match serde_json::from_slice(body) {
            Ok(entry) => decoded.entries.push(entry),
            Err(_) => decoded.strange += 1,
        }
        decoded.good += (body.len() + HEAD) as u64;
    }
    decoded
}

/// Length and checksum of a record.
const HEAD: usize = 12;

/// The bodies of all records up to the first that is not whole.
fn bodies(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let body = body(rest)?;
        rest = &rest[HEAD + body.len()..];
        Some(body)
    })
}

fn body(bytes: &[u8]) -> Option<&[u8]> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..HEAD)?.try_into().ok()?);
    let body = bytes.get(HEAD..HEAD + len)?;
    (checksum(body) == sum).then_some(body)
}

/// Whether this build understands all of a ledger and would lose nothing of it.
///
/// # Errors
/// The first thing that it would.
pub(crate) fn check(bytes: &[u8]) -> Result<(), String> {
    for (n, body) in bodies(bytes).enumerate() {
        let here = |why| format!("entry {} of the ledger {why}", n + 1);
        if let Entry::House { format, .. } = check_one::<Entry>(body).map_err(here)? {
            check_format(format).map_err(here)?;
        }
    }
    Ok(())
}

/// The same for the record of a job.
///
/// # Errors
/// As [`check`].
pub(crate) fn check_record(bytes: &[u8]) -> Result<(), String> {
    check_format(check_one::<Spec>(bytes)?.format)
}

fn check_format(format: u32) -> Result<(), String> {
    if (FORMAT_OLDEST..=FORMAT).contains(&format) {
        return Ok(());
    }
    Err(format!(
        "has format {format}, and {FORMAT_OLDEST} to {FORMAT} are understood"
    ))
}

/// Reads it, and looks whether all that it says would be written again.
fn check_one<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let cannot = |error| format!("is not understood: {error}");
    let written: Value = serde_json::from_slice(bytes).map_err(cannot)?;
    let read: T = serde_json::from_slice(bytes).map_err(cannot)?;
    let again = serde_json::to_value(&read).map_err(cannot)?;
    match lost(&written, &again) {
        Some(field) => Err(format!("has {field}, which would be lost")),
        None => Ok(read),
    }
}

/// The first field of one that another does not have. One that says nothing may be left out.
fn lost(one: &Value, other: &Value) -> Option<String> {
    match (one, other) {
        (Value::Object(fields), Value::Object(others)) => {
            fields
                .iter()
                .find_map(|(name, value)| match others.get(name) {
                    Some(other) => lost(value, other).map(|inner| format!("{name}.{inner}")),
                    None if says_nothing(value) => None,
                    None => Some(name.clone()),
                })
        }
        (Value::Array(items), Value::Array(others)) => {
            let pairs = items.iter().zip(others).enumerate();
            let inner = |(n, (one, other))| lost(one, other).map(|inner| format!("{n}.{inner}"));
            pairs.map(inner).find_map(|found| found)
        }
        _ => None,
    }
}

fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// FNV-1a: it guards against torn writes, not against malice.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_that_comes_during_a_rewrite_is_kept() {
        let file = File::from(memfd().unwrap());
        let (ledger, _) = Ledger::open(file.into()).unwrap();
        ledger.append(&closed("old"));
        let mark = ledger.mark();
        ledger.append(&closed("meanwhile"));
        let mut copy = None;
        ledger
            .rewrite(&[closed("alive")], mark, |_, fd| {
                copy = Some(fd.try_clone_to_owned().unwrap());
            })
            .unwrap();
        ledger.append(&closed("later"));
        let (_, entries) = Ledger::open(copy.unwrap()).unwrap();
        let ids: Vec<_> = entries
            .iter()
            .map(|e| match e {
                Entry::Closed { id } => id.as_str(),
                _ => "",
            })
            .collect();
        assert_eq!(ids, ["alive", "meanwhile", "later"]);
    }

    fn record(body: &str) -> Vec<u8> {
        let sum = checksum(body.as_bytes()).to_le_bytes();
        [
            &(body.len() as u32).to_le_bytes()[..],
            &sum,
            body.as_bytes(),
        ]
        .concat()
    }

    #[test]
    fn an_entry_of_a_later_build_hides_nothing_behind_it() {
        let bytes = [
            encode(&closed("a")),
            record(r#"{"Painted":{"colour":"red"}}"#),
            encode(&closed("b")),
        ];
        let decoded = decode(&bytes.concat());
        assert_eq!((decoded.entries.len(), decoded.strange), (2, 1));
        assert_eq!(decoded.good, bytes.concat().len() as u64);
    }

    #[test]
    fn what_would_be_lost_or_misread_is_named() {
        for (body, why) in [
            (r#"{"Closed":{"id":"x"}}"#, None),
            (r#"{"Closed":{"id":"x","later":null}}"#, None),
            (
                r#"{"Closed":{"id":"x","by":"me"}}"#,
                Some("entry 1 of the ledger has Closed.by, which would be lost"),
            ),
            (
                r#"{"Painted":{}}"#,
                Some("entry 1 of the ledger is not understood: unknown variant `Painted`"),
            ),
            (
                r#"{"House":{"started_at":1,"generation":1,"next_number":1,"notices":0,"format":2}}"#,
                Some("entry 1 of the ledger has format 2, and 1 to 1 are understood"),
            ),
        ] {
            match (check(&record(body)), why) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) if said.starts_with(why) => {}
                (said, _) => panic!("{body}: {said:?}"),
            }
        }
        // A torn tail is no entry.
        assert_eq!(check(&record("{}")[..13]), Ok(()));
    }

    /// A record as the first build wrote it, before there was a format.
    const FIRST: &str = r#"{"number":5,"born":{"session":{"id":"x","name":"x"},"key":"01M8QGYK5K415C1HMM5VBWWYNQ",
        "id":"t1"},"process_id":"proc_01M8QGYK5M4R7FZ6RWVG3DMY1T","kind":"command","name":null,"args":["true"],"cwd":"/",
        "candidates":["/usr/bin/true","/bin/true"],"accepted":{"wall":1796085861556,"mono":36685893,"boot":36685893},
        "window":null,"timeout_at":null,"timeout_ms":null,"idle_ms":null,"grace_ms":3000,"max_bytes":null,
        "on_limit":"keep","ok":[],"side_effect":null,"key":"be5bf66561f9541e","key_of":6294263268952095871,
        "stdin_open":false,"pty":false,"shell":null,"sent_to":null,"bound":true,"spill":"/tmp/x.log","slot":4}"#;

    #[test]
    fn the_record_of_a_job_is_understood_whole_or_refused() {
        assert_eq!(check_record(FIRST.as_bytes()), Ok(()));
        let with = |more: &str| {
            let record = FIRST.replace("\"slot\":4", &format!("\"slot\":4,{more}"));
            check_record(record.as_bytes())
        };
        assert_eq!(with(r#""format":1"#), Ok(()));
        let later = "has format 2, and 1 to 1 are understood".to_owned();
        assert_eq!(with(r#""format":2"#), Err(later));
        let lost = "has colour, which would be lost".to_owned();
        assert_eq!(with(r#""colour":"red""#), Err(lost));
        // One that did not arrive.
        assert!(check_record(b"").is_err());
    }

    #[test]
    fn every_entry_of_ours_says_again_what_it_said() {
        let house = Entry::House {
            started_at: 1,
            generation: 2,
            next_number: 3,
            notices: 4,
            format: FORMAT,
        };
        let all = [house, closed("a"), Entry::Unbound { number: 1 }];
        let bytes: Vec<u8> = all.iter().flat_map(encode).collect();
        assert_eq!(check(&bytes), Ok(()));
    }

    fn closed(id: &str) -> Entry {
        Entry::Closed { id: id.into() }
    }

    #[test]
    fn a_torn_tail_hides_nothing_before_or_after_it() {
        let file = File::from(memfd().unwrap());
        let (ledger, none) = Ledger::open(file.try_clone().unwrap().into()).unwrap();
        assert!(none.is_empty());
        ledger.append(&closed("a"));
        ledger.append(&closed("b"));
        let len = file.metadata().unwrap().len();
        file.set_len(len - 3).unwrap();
        let (ledger, entries) = Ledger::open(file.try_clone().unwrap().into()).unwrap();
        assert_eq!(entries.len(), 1);
        ledger.append(&closed("c"));
        let (_, entries) = Ledger::open(file.into()).unwrap();
        assert!(matches!(&entries[1], Entry::Closed { id } if id == "c"));
    }
}
