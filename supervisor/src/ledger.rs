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
use serde::{Deserialize, Serialize};

use crate::{
    job::{Finished, Seat, Spec, Wanted},
    session::{Record, Tombstone},
};

/// A ledger below this size is never rewritten.
const SMALL: u64 = 4 * 1024 * 1024;

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
        let (entries, good) = decode(&bytes);
        // A torn tail would hide every later record from the next reader.
        file.set_len(good)?;
        append_only(&file)?;
        let inner = Inner {
            file,
            len: good,
            rewrite_at: SMALL.max(good * 2),
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
    let mut record = Vec::with_capacity(body.len() + 12);
    record.extend_from_slice(&(body.len() as u32).to_le_bytes());
    record.extend_from_slice(&checksum(&body).to_le_bytes());
    record.extend_from_slice(&body);
    record
}

/// Returns the entries up to the first record that is not whole, and where that one begins.
fn decode(bytes: &[u8]) -> (Vec<Entry>, u64) {
    let (mut entries, mut at) = (Vec::new(), 0);
    while let Some((entry, size)) = decode_one(&bytes[at..]) {
        entries.push(entry);
        at += size;
    }
    (entries, at as u64)
}

fn decode_one(bytes: &[u8]) -> Option<(Entry, usize)> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let sum = u64::from_le_bytes(bytes.get(4..12)?.try_into().ok()?);
    let body = bytes.get(12..12 + len)?;
    (checksum(body) == sum).then(|| serde_json::from_slice(body).ok().map(|e| (e, 12 + len)))?
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
