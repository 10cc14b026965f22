//! The whole log in a file, from the first overflow on and with the first byte.
//!
//! Written by one blocking call at a time ([`super::Log::spill_pending`]), never by the pump: step and writer share no
//! lock, because the step does not overwrite what is not spilled yet. Bytes stand at their absolute offset and `spilled`
//! is raised afterwards, so doing it again after a crash is harmless. At the cap (of the job, a budget, or the disk's
//! floor) the file stops growing at some size F: its first half stays, the other half becomes a ring of the newest
//! bytes, and what was between is a gap. The run tags stand in a sidecar by the same rules. A write that fails ends the
//! spill, never the job.
//!
//! ```text
//!   0            F/2                 F            offset o >= F/2 stands at F/2 + (o - F/2) % (F - F/2)
//!   | head, kept | newest bytes, wrapping |
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::arena::Word;
use super::budget::Budget;
use super::job_log::flag;
use super::ring::Slot;
use super::runs::{self, Run, end_of};

/// Budget is asked for in steps of this size: it has a lock, and perhaps a look at the disk.
const GRANT_STEP: u64 = 1 << 20;
/// The sidecar may take this part of the cap again. A job that alternates its streams byte by byte needs eight bytes of
/// tags a byte; it gets a gap instead of nine times its cap.
const SIDECAR_PART: u64 = 8;
/// One call writes at most this much, so that a flood cannot keep one of the few writer places for ever.
const ROUND: u64 = 8 << 20;

/// Whether and where a log goes to disk.
#[derive(Clone, Debug)]
pub enum SpillPolicy {
    /// Only the ring is kept.
    Off,
    /// The whole log is kept in a file from the first overflow on.
    To {
        /// `.../artifacts/<session>/<processId>.log`; made then, with its folder. The sidecar stands beside it as `.runs`.
        path: PathBuf,
        /// Most bytes of this file.
        cap: u64,
        /// What session and user have left.
        budget: Arc<Budget>,
    },
}

/// What a call of the spill writer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the log that were handed over.
    pub spilled: u64,
    /// There was more when it stopped.
    pub more: bool,
}

/// Why a spill ended early, kept in the header as a number so that it survives a restart.
pub(super) mod reason {
    /// No byte was granted by cap, budget or floor.
    pub(in crate::log) const NO_ROOM: u32 = 0x10000;
    /// The ring could not be read or written: no memory.
    pub(in crate::log) const NO_MEMORY: u32 = 0x10001;
}

#[derive(Debug)]
pub(super) struct Spill {
    path: PathBuf,
    cap: u64,
    budget: Arc<Budget>,
    files: Mutex<[Option<Arc<File>>; 2]>,
    /// Nothing is written any more.
    closed: AtomicBool,
    writing: Mutex<Granted>,
}

/// What the writer has been granted: bytes of the log file, records of the sidecar.
#[derive(Debug, Default)]
struct Granted {
    bytes: u64,
    records: u64,
}

/// The two files, by their place in `Spill::files`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Log = 0,
    Runs = 1,
}

impl Spill {
    pub(super) fn new(path: PathBuf, cap: u64, budget: Arc<Budget>) -> Spill {
        Spill {
            path,
            cap,
            budget,
            files: Mutex::default(),
            closed: AtomicBool::new(false),
            writing: Mutex::default(),
        }
    }

    /// Takes up what an earlier supervisor left: its descriptor if the keeper had it, and the room its files take.
    pub(super) fn resume(&self, slot: &Slot, file: Option<File>) {
        self.files()[Which::Log as usize] = file.map(Arc::new);
        let mut granted = self.granted();
        granted.bytes = match slot.get(Word::Wrap) {
            0 => slot.get(Word::Spilled),
            size => size,
        };
        let records = slot.get(Word::RunsSpilled) + u64::from(slot.get(Word::RunsSpilled) > 0);
        granted.records = match slot.get(Word::RunsWrap) {
            0 => records,
            size => size,
        };
        self.budget.charge(granted.bytes + granted.records * 8);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The log file's handle for the keeper, once there is a file.
    pub(super) fn handle(&self) -> Option<Arc<File>> {
        self.files()[Which::Log as usize].clone()
    }

    /// Closes both files; the next reader or writer opens them again by name. One whose name somebody has taken away
    /// stays open, for as long as its job is kept: nobody could open it again.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let mut files = self.files();
        for file in files.iter_mut() {
            *file = file.take().filter(|f| has_no_name(f));
        }
    }

    /// Takes both names away. Readers that hold the file still read.
    pub(super) fn unlink(&self) {
        if check_folders(&self.path).is_err() {
            // Not our folders: a file of this name there is somebody else's.
            return;
        }
        for which in [Which::Log, Which::Runs] {
            // A missing file is what we want; any other failure leaves a file that goes with its folder.
            std::fs::remove_file(self.name(which)).ok();
        }
    }

    fn files(&self) -> MutexGuard<'_, [Option<Arc<File>>; 2]> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn granted(&self) -> MutexGuard<'_, Granted> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn name(&self, which: Which) -> PathBuf {
        match which {
            Which::Log => self.path.clone(),
            Which::Runs => self.path.with_extension("runs"),
        }
    }

    /// The file for reading: held, or opened again by name. Once closed, it is held by its reader alone: a thousand
    /// kept records that somebody looked into would be a thousand descriptors.
    fn open(&self, which: Which) -> io::Result<Arc<File>> {
        if let Some(file) = &self.files()[which as usize] {
            return Ok(Arc::clone(file));
        }
        // Without the lock: a disk that does not answer is to hold up who reads from it.
        let file = Arc::new(open_ours(&self.name(which))?);
        if !self.closed.load(Ordering::Acquire) {
            self.files()[which as usize] = Some(Arc::clone(&file));
        }
        Ok(file)
    }

    /// The file for writing: made exclusively the first time.
    fn open_or_create(&self, slot: &Slot, which: Which) -> io::Result<Arc<File>> {
        let (making, made) = match which {
            Which::Log => (flag::LOG_MAKING, flag::LOG_MADE),
            Which::Runs => (flag::RUNS_MAKING, flag::RUNS_MADE),
        };
        let flags = slot.get(Word::Flags);
        if flags & made != 0 {
            return self.open(which);
        }
        let name = self.name(which);
        // A name that exists is somebody else's, unless we were killed between making it and saying so.
        let ours_perhaps = flags & making != 0 && name.symlink_metadata().is_ok();
        slot.word(Word::Flags)
            .fetch_or(making, std::sync::atomic::Ordering::AcqRel);
        let file = if ours_perhaps {
            open_ours(&name)?
        } else {
            create(&name)?
        };
        slot.word(Word::Flags)
            .fetch_or(made, std::sync::atomic::Ordering::AcqRel);
        let file = Arc::new(file);
        self.files()[which as usize] = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Writes what is pending. The first error ends the spill and is returned once.
    pub(super) fn write_pending(&self, slot: &Slot, raised: &dyn Fn()) -> io::Result<Progress> {
        let mut granted = self.granted();
        let mut writer = Writer {
            spill: self,
            slot,
            granted: &mut granted,
            raised,
        };
        let mut progress = Progress::default();
        loop {
            let from = slot.get(Word::Spilled);
            let to = slot.get(Word::End);
            progress.more = from < to;
            if slot.get(Word::Flags) & flag::SPILL_FAILED != 0
                || from == to
                || progress.spilled >= ROUND
            {
                return Ok(progress);
            }
            if let Err((e, code)) = writer.write(from, to) {
                let bits = flag::SPILL_FAILED | u64::from(code) << 32;
                slot.word(Word::Flags)
                    .fetch_or(bits, std::sync::atomic::Ordering::AcqRel);
                raised();
                return Err(e);
            }
            progress.spilled += to - from;
        }
    }

    /// Reads bytes `at..at + out.len()` of the log; the caller has checked that the spill has them, and checks again.
    pub(super) fn read(&self, slot: &Slot, mut at: u64, out: &mut [u8]) -> io::Result<()> {
        let file = self.open(Which::Log)?;
        let wrap = Wrap::of(slot.get(Word::Wrap));
        let mut done = 0;
        while done < out.len() {
            let (place, run) = wrap.place(at);
            let n = run.min((out.len() - done) as u64) as usize;
            file.read_exact_at(&mut out[done..done + n], place)?;
            done += n;
            at += n as u64;
        }
        Ok(())
    }

    /// Appends the runs of `from..to`, from the sidecar and then from memory, and returns how far they reach.
    pub(super) fn runs(
        &self,
        slot: &Slot,
        from: u64,
        to: u64,
        out: &mut Vec<Run>,
    ) -> io::Result<u64> {
        let kept = out.len();
        loop {
            let oldest = slot.get(Word::RunsHead);
            let in_file = slot.get(Word::RunsSpilled);
            let floor = slot.get(Word::RunsFloor);
            let (mut at, sidecar_told) = self.runs_in_sidecar(slot, in_file, from, to, out)?;
            // Tags that never left memory: from the log's start, or from where the sidecar ends.
            if at < to && (oldest == 0 || sidecar_told && oldest <= in_file) {
                let before = out.len();
                slot.runs_in_memory(at, to, out);
                at = out[before..].last().map_or(at, |run| run.to);
            }
            if slot.get(Word::RunsHead) == oldest && slot.get(Word::RunsFloor) == floor {
                return Ok(at);
            }
            // A tag left memory meanwhile, and by now the sidecar has it; or one in the sidecar was overwritten.
            out.truncate(kept);
        }
    }

    /// What the sidecar knows, and whether it could be asked.
    fn runs_in_sidecar(
        &self,
        slot: &Slot,
        in_file: u64,
        from: u64,
        to: u64,
        out: &mut Vec<Run>,
    ) -> io::Result<(u64, bool)> {
        if in_file == 0 {
            return Ok((from, false));
        }
        let file = self.open(Which::Runs)?;
        let wrap = Wrap::of(slot.get(Word::RunsWrap));
        let behind = in_file + 1; // The newest one stands there too, perhaps shorter than it is by now.
        let (lo, hi) = if wrap.size == 0 {
            (0, behind)
        } else if from < slot.get(Word::HoleFrom) {
            (0, wrap.head())
        } else {
            (slot.get(Word::RunsFloor).max(wrap.head()), behind)
        };
        let mut cache = Cache::new(&file, wrap);
        let at = runs::collect(lo, hi, from, to, |i| cache.tag(i), out);
        Ok((at, !cache.broken))
    }
}

impl Drop for Spill {
    fn drop(&mut self) {
        let granted = self.granted();
        self.budget.release(granted.bytes + granted.records * 8);
    }
}

/// Where things stand in a file that perhaps wraps. `size` 0 is a file that grows.
#[derive(Clone, Copy, Debug)]
struct Wrap {
    size: u64,
}

impl Wrap {
    fn of(size: u64) -> Wrap {
        Wrap { size }
    }

    fn head(self) -> u64 {
        self.size / 2
    }

    fn tail(self) -> u64 {
        self.size - self.head()
    }

    /// The place of item `at`, and how many items follow it in one piece.
    fn place(self, at: u64) -> (u64, u64) {
        if self.size == 0 {
            return (at, u64::MAX);
        }
        if at < self.head() {
            return (at, self.head() - at);
        }
        let place = self.head() + (at - self.head()) % self.tail();
        (place, self.size - place)
    }
}

/// One call's view of the writing side.
struct Writer<'a> {
    spill: &'a Spill,
    slot: &'a Slot,
    granted: &'a mut Granted,
    raised: &'a dyn Fn(),
}

type Failed = (io::Error, u32);

fn failed(e: io::Error) -> Failed {
    let code = e
        .raw_os_error()
        .and_then(|n| u32::try_from(n).ok())
        .unwrap_or(libc::EIO as u32);
    (e, code)
}

fn no_room() -> Failed {
    (
        io::Error::from(io::ErrorKind::QuotaExceeded),
        reason::NO_ROOM,
    )
}

/// Sizes to ask the budget for: the usual step, then less and less, so that its last bytes are used as well.
fn steps() -> impl Iterator<Item = u64> {
    std::iter::successors(Some(GRANT_STEP), |s| Some(s / 2).filter(|s| *s > 0))
}

impl Writer<'_> {
    /// Tags first: a byte that counts as spilled has its tag on disk too, or in memory that is not given up.
    fn write(&mut self, from: u64, to: u64) -> Result<(), Failed> {
        // Before a file is made: a log that may keep nothing leaves no trace.
        if self.slot.get(Word::Wrap) == 0 && self.grant_bytes(to) == 0 {
            return Err(no_room());
        }
        let final_runs = self.write_runs()?;
        let done = self.write_bytes(from, to);
        // After `spilled`, since a tag may leave memory as soon as it counts as final.
        if done.is_ok()
            && let Some(n) = final_runs
        {
            self.slot.set(Word::RunsSpilled, n);
            (self.raised)();
        }
        done
    }

    fn write_bytes(&mut self, mut from: u64, to: u64) -> Result<(), Failed> {
        let file = self
            .spill
            .open_or_create(self.slot, Which::Log)
            .map_err(failed)?;
        while from < to {
            let wrap = Wrap::of(self.slot.get(Word::Wrap));
            let until = if wrap.size == 0 {
                let until = to.min(self.grant_bytes(to));
                if until <= from {
                    self.begin_wrap(from);
                    continue;
                }
                until
            } else {
                let skipped = to.saturating_sub(wrap.tail()).max(wrap.head());
                if from < skipped {
                    // These would be overwritten within this very call.
                    self.slot.raise_before(Word::Floor, skipped);
                    from = skipped;
                }
                let until = to.min(from + wrap.place(from).1);
                if until > wrap.size {
                    self.slot.raise_before(Word::Floor, until - wrap.tail());
                }
                until
            };
            from += self
                .write_piece(&file, wrap.place(from).0, from, until)
                .map_err(failed)?;
            self.slot.set(Word::Spilled, from);
            (self.raised)();
        }
        Ok(())
    }

    /// From the mapped ring straight to the file; at most two pieces.
    fn write_piece(&self, file: &File, place: u64, from: u64, to: u64) -> io::Result<u64> {
        let pieces = self.slot.pieces(from, to);
        loop {
            // SAFETY: both pieces lie in the ring's mapping; nobody overwrites them, because the step leaves unspilled
            // bytes alone, and nothing else is promised about them than that they are readable.
            let n = unsafe {
                libc::pwritev(file.as_raw_fd(), pieces.as_ptr(), 2, place as libc::off_t)
            };
            match n {
                0 => return Err(io::Error::from_raw_os_error(libc::ENOSPC)),
                n if n > 0 => return Ok(n as u64),
                _ => {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
            }
        }
    }

    /// How large the file may be, asking for more when `want` needs it.
    fn grant_bytes(&mut self, want: u64) -> u64 {
        while self.granted.bytes < want.min(self.spill.cap) {
            let most = self.spill.cap - self.granted.bytes;
            match steps()
                .map(|s| s.min(most))
                .find(|s| self.spill.budget.reserve(*s))
            {
                Some(step) => self.granted.bytes += step,
                None => break,
            }
        }
        self.granted.bytes
    }

    /// The file has reached its size: from now on its second half holds the newest bytes.
    fn begin_wrap(&self, size: u64) {
        self.open_hole(Wrap::of(size).head());
        self.slot.set(Word::Wrap, size);
    }

    /// An empty hole at `at`, or the one there is made to begin there. The order keeps every byte readable meanwhile.
    fn open_hole(&self, at: u64) {
        let from = match self.slot.get(Word::Floor) {
            0 => at,
            _ => at.min(self.slot.get(Word::HoleFrom)),
        };
        self.slot.set(Word::HoleFrom, from);
        self.slot.raise_before(Word::Floor, at);
    }

    /// Brings the sidecar up to date, and returns how many of its records are final once the bytes are written too.
    fn write_runs(&mut self) -> Result<Option<u64>, Failed> {
        let n = self.slot.get(Word::RunsEnd);
        if n == 0 {
            return Ok(None);
        }
        let mut from = self.slot.get(Word::RunsSpilled);
        let file = self
            .spill
            .open_or_create(self.slot, Which::Runs)
            .map_err(failed)?;
        while from < n {
            let mut wrap = Wrap::of(self.slot.get(Word::RunsWrap));
            if wrap.size == 0 {
                let until = n.min(self.grant_records(n));
                if until <= from {
                    wrap = self.begin_runs_wrap(&file, from)?;
                } else {
                    self.write_records(&file, wrap, from, until)?;
                    from = until;
                    continue;
                }
            }
            from = from.max(n.saturating_sub(wrap.tail()).max(wrap.head().min(n)));
            let until = n.min(from + wrap.place(from).1);
            self.drop_records(&file, wrap, until)?;
            self.write_records(&file, wrap, from, until)?;
            from = until;
        }
        Ok(Some(n - 1))
    }

    fn write_records(&self, file: &File, wrap: Wrap, from: u64, until: u64) -> Result<(), Failed> {
        let records: Vec<u8> = (from..until)
            .flat_map(|i| {
                self.slot
                    .tag(i)
                    .load(std::sync::atomic::Ordering::Acquire)
                    .to_le_bytes()
            })
            .collect();
        file.write_all_at(&records, wrap.place(from).0 * 8)
            .map_err(failed)
    }

    fn grant_records(&mut self, want: u64) -> u64 {
        let most = (self.spill.cap / SIDECAR_PART / 8).max(4);
        while self.granted.records < want.min(most) {
            let left = most - self.granted.records;
            match steps()
                .map(|s| (s / 64).clamp(1, left))
                .find(|s| self.spill.budget.reserve(*s * 8))
            {
                Some(step) => self.granted.records += step,
                None => break,
            }
        }
        self.granted.records
    }

    fn begin_runs_wrap(&mut self, file: &File, size: u64) -> Result<Wrap, Failed> {
        let wrap = Wrap::of(size);
        if wrap.head() == 0 {
            return Err(no_room());
        }
        self.open_hole(end_of(self.record(file, Wrap::of(0), wrap.head() - 1)?));
        self.slot.set(Word::RunsWrap, size);
        Ok(wrap)
    }

    /// Bytes whose tags are about to be overwritten are given up first.
    fn drop_records(&self, file: &File, wrap: Wrap, until: u64) -> Result<(), Failed> {
        let Some(last) = until
            .checked_sub(wrap.tail() + 1)
            .filter(|i| *i >= wrap.head())
        else {
            return Ok(());
        };
        // The newest record is written again as it grows; what stood at its place went the first time.
        if last >= self.slot.get(Word::RunsFloor) {
            let gone = end_of(self.record(file, wrap, last)?);
            self.slot.raise_before(Word::Floor, gone);
            self.slot.raise_before(Word::RunsFloor, last + 1);
        }
        Ok(())
    }

    /// A tag from memory while it is there, else from the sidecar.
    fn record(&self, file: &File, wrap: Wrap, index: u64) -> Result<u64, Failed> {
        let tag = self
            .slot
            .tag(index)
            .load(std::sync::atomic::Ordering::Acquire);
        if index >= self.slot.get(Word::RunsHead) {
            return Ok(tag);
        }
        let mut word = [0; 8];
        file.read_exact_at(&mut word, wrap.place(index).0 * 8)
            .map_err(failed)?;
        Ok(u64::from_le_bytes(word))
    }
}

/// Records of the sidecar, read in blocks.
struct Cache<'a> {
    file: &'a File,
    wrap: Wrap,
    start: u64,
    block: Vec<u8>,
    broken: bool,
}

impl<'a> Cache<'a> {
    const RECORDS: usize = 64;

    fn new(file: &'a File, wrap: Wrap) -> Self {
        Cache {
            file,
            wrap,
            start: 0,
            block: Vec::new(),
            broken: false,
        }
    }

    fn tag(&mut self, index: u64) -> Option<u64> {
        let tag = self.find(index);
        self.broken |= tag.is_none();
        tag
    }

    fn find(&mut self, index: u64) -> Option<u64> {
        let held = self.block.len() as u64 / 8;
        if index < self.start || index >= self.start + held {
            let (place, run) = self.wrap.place(index);
            self.block.resize(
                Self::RECORDS.min(usize::try_from(run).unwrap_or(usize::MAX)) * 8,
                0,
            );
            let n = self.file.read_at(&mut self.block, place * 8).ok()?;
            self.block.truncate(n / 8 * 8);
            self.start = index;
        }
        let at = (index - self.start) as usize * 8;
        let word = self.block.get(at..at + 8)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }
}

/// Opens a spill that we made earlier; whatever is not a plain file of ours alone is refused.
fn open_ours(name: &Path) -> io::Result<File> {
    check_folders(name)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(name)?;
    let meta = file.metadata()?;
    // SAFETY: a plain call that cannot fail.
    let us = unsafe { libc::geteuid() };
    if !meta.is_file() || meta.uid() != us || meta.nlink() != 1 {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(file)
}

/// A file that lives by its descriptors alone.
fn has_no_name(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.nlink() == 0)
}

/// Makes the file, and its folders when they are not there.
fn create(name: &Path) -> io::Result<File> {
    for folder in folders(name) {
        make_folder(folder)?;
    }
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(name)
}

/// The folder is ours and closed to others, or it is refused: a planted link must not send output elsewhere.
fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let handle = open_folder(folder)?;
    if handle.metadata()?.mode() & 0o077 != 0 {
        handle.set_permissions(std::fs::Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// The folders of a spill that are ours, the outer one first: that of all artifacts and that of the session.
fn folders(name: &Path) -> impl Iterator<Item = &Path> {
    let inner = name.parent();
    inner.and_then(Path::parent).into_iter().chain(inner)
}

/// Each folder of a spill is still the one that was made.
fn check_folders(name: &Path) -> io::Result<()> {
    folders(name).try_for_each(|folder| open_folder(folder).map(drop))
}

fn open_folder(folder: &Path) -> io::Result<File> {
    let handle = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_DIRECTORY)
        .open(folder)?;
    // SAFETY: a plain call that cannot fail.
    if handle.metadata()?.uid() != unsafe { libc::geteuid() } {
        return Err(io::Error::from(io::ErrorKind::PermissionDenied));
    }
    Ok(handle)
}
