//! The memory of all logs: two memfds that keeper and supervisor both hold, so that no byte is lost when the supervisor
//! is killed.
//!
//! `ARENA` is one slot after the other, each a ring and its run tags. `HEADERS` starts with the house page (scratch
//! control blocks and a few words of the house), followed by 128 bytes a slot. The keeper makes both and never looks
//! inside; the supervisor maps them. Everything shared is an aligned 8-byte word, because a word is what `kill -9`
//! cannot tear. Nothing here knows what a log is.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes of the ring of one job. Wire-visible default; `DESIGN.md` section 5 has it in its table.
pub const RING_BYTES: u64 = ostler_proto::limits::RING;
/// Run tags kept beside a ring: 8 bytes each, so that a slot stays a whole number of pages.
pub const RUN_RECORDS: u64 = ostler_proto::limits::RUN_TAGS as u64;
/// Slots asked for; halved until the kernel agrees. Untouched slots cost address space only.
pub const SLOTS: usize = 16_384;
/// Scratch control blocks in the house page: one a worker, and four workers are the most (`wire.md` section 2).
pub const BLOCKS: usize = 4;

const HOUSE_BYTES: usize = 4096;
const HOUSE_WORDS_AT: usize = 2048;
const BLOCK_BYTES: usize = 64;
const HEADER_BYTES: usize = 128;

/// How large one slot is. Everything but a test uses [`Shape::DEFAULT`]; small rings make the rare cases common there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of the ring, at least 8.
    pub ring: u64,
    /// Records of run tags, at least 4: one append may need two new ones.
    pub runs: u64,
}

impl Shape {
    /// The shape of `wire.md`: 256 KiB and 4,096 records, 294,912 bytes together.
    pub const DEFAULT: Shape = Shape {
        ring: RING_BYTES,
        runs: RUN_RECORDS,
    };

    fn slot_bytes(self) -> usize {
        // Tags are read as words, so a ring of an odd size is padded.
        (self.ring as usize).next_multiple_of(8) + self.runs as usize * 8
    }

    fn runs_at(self) -> usize {
        (self.ring as usize).next_multiple_of(8)
    }
}

/// The words of a slot's header, by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum Word {
    /// The job that owns the slot; 0 is a free slot.
    Job = 0,
    /// Oldest offset in the ring.
    Head = 1,
    /// Offset behind the newest byte.
    End = 2,
    /// Everything before this offset has been handed to the spill.
    Spilled = 3,
    /// Oldest record in the wrapping half of the sidecar. (`wire.md` has `lost` here; loss is derived from the other
    /// words instead, so that no crash between two stores can make them disagree.)
    RunsFloor = 4,
    /// `end` when the main process had ended, plus 1; 0 is "not yet".
    AtExit = 5,
    /// Index of the oldest run tag in memory.
    RunsHead = 6,
    /// Index behind the newest run tag.
    RunsEnd = 7,
    // Word 8, `replaced`, belongs to whoever decodes.
    /// Flag bits, see [`super::job_log::flag`]; the upper half is the reason of a failed spill.
    Flags = 9,
    /// Size at which the spill file began to wrap; 0 is "it grows".
    Wrap = 10,
    /// Records at which the sidecar began to wrap; 0 is "it grows".
    RunsWrap = 11,
    /// Where the gap inside the spill begins.
    HoleFrom = 12,
    /// Where the gap inside the spill ends.
    Floor = 13,
    /// Run tags in the sidecar that can change no more.
    RunsSpilled = 14,
    /// The last gap in doubt: `base << 16 | bytes`.
    Doubt = 15,
}

/// The words of a scratch control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum BlockWord {
    /// `job << 1 | stream`, set before bytes enter the scratch pipe.
    Owner = 0,
    /// `end` of the owner's log before the bytes on their way.
    Base = 1,
    /// Bytes on their way; 0 is none.
    Pend = 2,
}

/// Both memfds, mapped. Shared by every log of the house.
#[derive(Debug)]
pub struct Arena {
    shape: Shape,
    slots: usize,
    fd: OwnedFd,
    rings: Mapping,
    headers: Mapping,
    next_claim: AtomicUsize,
}

impl Arena {
    /// Offset in the headers file of the first word that belongs to the house ([`Arena::house_word`] 0): the job
    /// that is being restored, plus one.
    pub const HOUSE_WORD_0: u64 = HOUSE_WORDS_AT as u64;

    /// Slots of a file that [`Arena::create`] made.
    ///
    /// # Errors
    /// What `fstat` answers.
    pub fn slots_of(rings: &OwnedFd) -> io::Result<u64> {
        let bytes = std::fs::File::from(rings.try_clone()?).metadata()?.len();
        Ok(bytes / Shape::DEFAULT.slot_bytes() as u64)
    }

    /// Makes the two memfds, rings first and headers second, sealed against changes of size. Called by the keeper.
    ///
    /// # Errors
    /// What `memfd_create`, `ftruncate` or `fcntl` answer when not even one slot can be had.
    pub fn create() -> io::Result<(OwnedFd, OwnedFd)> {
        Self::create_shaped(Shape::DEFAULT, SLOTS)
    }

    /// [`Arena::create`] for slots of another shape.
    ///
    /// # Errors
    /// As [`Arena::create`].
    pub fn create_shaped(shape: Shape, slots: usize) -> io::Result<(OwnedFd, OwnedFd)> {
        let rings = memfd(c"ostler-rings")?;
        let headers = memfd(c"ostler-headers")?;
        let mut slots = slots.min(slots_below_file_limit(shape)).max(1);
        while let Err(e) = resize(&rings, slots * shape.slot_bytes()) {
            if slots == 1 {
                return Err(e);
            }
            slots /= 2;
        }
        resize(&headers, HOUSE_BYTES + slots * HEADER_BYTES)?;
        seal(&rings)?;
        seal(&headers)?;
        Ok((rings, headers))
    }

    /// Maps what [`Arena::create`] made, in any process that was handed the descriptors.
    ///
    /// # Errors
    /// What `fstat` or `mmap` answer; `InvalidInput` when the files cannot be an arena.
    pub fn map(rings: OwnedFd, headers: OwnedFd) -> io::Result<Arc<Arena>> {
        Self::map_shaped(Shape::DEFAULT, rings, headers)
    }

    /// [`Arena::map`] for slots of another shape.
    ///
    /// # Errors
    /// As [`Arena::map`].
    pub fn map_shaped(shape: Shape, rings: OwnedFd, headers: OwnedFd) -> io::Result<Arc<Arena>> {
        let ring_bytes = size_of_file(&rings)?;
        let header_bytes = size_of_file(&headers)?;
        let slots = ring_bytes / shape.slot_bytes();
        if slots == 0 || header_bytes < HOUSE_BYTES + slots * HEADER_BYTES {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        Ok(Arc::new(Arena {
            shape,
            slots,
            rings: Mapping::new(&rings, ring_bytes)?,
            headers: Mapping::new(&headers, header_bytes)?,
            fd: rings,
            next_claim: AtomicUsize::new(0),
        }))
    }

    /// How many slots there are.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// The job in this slot, if any. After a restart this tells which slots are taken.
    pub fn owner(&self, slot: usize) -> Option<u64> {
        let job = self.header(slot, Word::Job).load(Ordering::Acquire);
        (job != 0).then_some(job)
    }

    /// Takes a free slot for a job, whose number must not be 0; `None` when all are taken.
    ///
    /// The header word is the truth, so nothing has to be told to a supervisor that comes after this one.
    pub fn claim(&self, job: u64) -> Option<usize> {
        debug_assert!(
            job != 0 && job >> 63 == 0,
            "job numbers fit 63 bits and are not 0"
        );
        let start = self.next_claim.load(Ordering::Relaxed);
        for step in 0..self.slots {
            let slot = (start + step) % self.slots;
            let word = self.header(slot, Word::Job);
            if word
                .compare_exchange(0, job, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                self.next_claim.store(slot + 1, Ordering::Relaxed);
                return Some(slot);
            }
        }
        None
    }

    /// Gives a slot's pages back and its header to whoever claims it next. Nobody may read the slot any more;
    /// [`super::Log::retire`] sees to that.
    ///
    /// # Errors
    /// What `fallocate` answers; the slot is free all the same, and its old bytes are unreachable because the header is zero.
    pub fn punch(&self, slot: usize) -> io::Result<()> {
        let bytes = self.shape.slot_bytes();
        let done = punch_hole(&self.fd, slot * bytes, bytes);
        self.clear_header(slot);
        // Last: a slot that looks free is claimed at once.
        self.header(slot, Word::Job).store(0, Ordering::Release);
        done
    }

    /// A word for the house itself, such as the job that is being restored; 256 of them, zero at first.
    pub fn house_word(&self, index: usize) -> &AtomicU64 {
        assert!(
            index < (HOUSE_BYTES - HOUSE_WORDS_AT) / 8,
            "256 house words"
        );
        self.headers.word(HOUSE_WORDS_AT + index * 8)
    }

    pub(super) fn shape(&self) -> Shape {
        self.shape
    }

    pub(super) fn clear_header(&self, slot: usize) {
        for word in 1..HEADER_BYTES / 8 {
            self.headers
                .word(HOUSE_BYTES + slot * HEADER_BYTES + word * 8)
                .store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn header(&self, slot: usize, word: Word) -> &AtomicU64 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        self.headers
            .word(HOUSE_BYTES + slot * HEADER_BYTES + word as usize * 8)
    }

    pub(super) fn block(&self, block: usize, word: BlockWord) -> &AtomicU64 {
        assert!(block < BLOCKS, "block {block} of {BLOCKS}");
        self.headers.word(block * BLOCK_BYTES + word as usize * 8)
    }

    pub(super) fn tag(&self, slot: usize, index: u64) -> &AtomicU64 {
        let at = (index % self.shape.runs) as usize * 8;
        self.rings
            .word(slot * self.shape.slot_bytes() + self.shape.runs_at() + at)
    }

    /// Start of a slot's ring in memory; valid for `shape.ring` bytes as long as the arena lives.
    pub(super) fn ring(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.slots, "slot {slot} of {}", self.slots);
        // SAFETY: the mapping covers `slots` whole slots, and `slot` is one of them.
        unsafe { self.rings.base.as_ptr().add(slot * self.shape.slot_bytes()) }
    }

    /// Descriptor and file offset of a slot's ring, for writes that let the kernel touch the page first.
    pub(super) fn ring_file(&self, slot: usize) -> (RawFd, u64) {
        (self.fd.as_raw_fd(), (slot * self.shape.slot_bytes()) as u64)
    }
}

/// One shared mapping, unmapped at the end.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain shared memory; words are reached through atomics only, ring bytes through raw copies that
// the readers validate afterwards.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(fd: &OwnedFd, bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a fresh shared mapping of a file that is sealed against shrinking; no address is demanded.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_NORESERVE,
                fd.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base =
            NonNull::new(base.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Mapping { base, bytes })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(
            at.is_multiple_of(8) && at + 8 <= self.bytes,
            "word at {at} of {}",
            self.bytes
        );
        // SAFETY: in bounds and aligned (the mapping starts on a page); all processes reach it by atomics only.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `mmap` returned, and references into it borrow the mapping.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

fn memfd(name: &CStr) -> io::Result<OwnedFd> {
    // SAFETY: a plain call with a NUL-terminated name; the result is checked.
    let fd =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn resize(fd: &OwnedFd, bytes: usize) -> io::Result<()> {
    let bytes =
        libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a plain call on an owned descriptor.
    match unsafe { libc::ftruncate(fd.as_raw_fd(), bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn seal(fd: &OwnedFd) -> io::Result<()> {
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a plain call on an owned descriptor.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn size_of_file(fd: &OwnedFd) -> io::Result<usize> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the kernel fills the whole structure when it answers 0.
    if unsafe { libc::fstat(fd.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled, see above.
    let size = unsafe { stat.assume_init() }.st_size;
    usize::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

/// A soft `ulimit -f` also binds memfds, and going over it is a signal that ends the process: ask before, not after.
fn slots_below_file_limit(shape: Shape) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel fills the structure when it answers 0.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } != 0
        || limit.rlim_cur == libc::RLIM_INFINITY
    {
        return usize::MAX;
    }
    usize::try_from(limit.rlim_cur).map_or(usize::MAX, |bytes| bytes / shape.slot_bytes())
}

fn punch_hole(fd: &OwnedFd, at: usize, bytes: usize) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: a plain call on an owned descriptor; sizes come from the mapping, so they fit.
    match unsafe {
        libc::fallocate(
            fd.as_raw_fd(),
            mode,
            at as libc::off_t,
            bytes as libc::off_t,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(slots: usize) -> Arc<Arena> {
        let shape = Shape {
            ring: 4096,
            runs: 512,
        };
        let (rings, headers) = Arena::create_shaped(shape, slots).expect("memfds");
        Arena::map_shaped(shape, rings, headers).expect("mapping")
    }

    #[test]
    fn the_default_arena_has_the_layout_of_the_contract() {
        let (rings, headers) = Arena::create().expect("memfds");
        let arena = Arena::map(rings, headers).expect("mapping");
        assert_eq!(Shape::DEFAULT.slot_bytes(), 294_912);
        assert_eq!(arena.rings.bytes, arena.slots() * 294_912);
        assert_eq!(arena.headers.bytes, 4096 + arena.slots() * 128);
    }

    #[test]
    fn the_memfds_cannot_be_shrunk_under_a_mapping() {
        let (rings, headers) = Arena::create_shaped(Shape::DEFAULT, 2).expect("memfds");
        assert!(resize(&rings, 0).is_err());
        assert!(resize(&headers, 0).is_err());
    }

    #[test]
    fn a_punched_slot_is_zero_and_can_be_claimed_again() {
        let arena = small(2);
        assert_eq!(arena.claim(7), Some(0));
        assert_eq!(arena.claim(8), Some(1));
        assert_eq!(arena.claim(9), None);
        arena.header(0, Word::End).store(5, Ordering::Relaxed);
        arena.tag(0, 3).store(99, Ordering::Relaxed);
        arena.punch(0).expect("punch");
        assert_eq!(arena.owner(0), None);
        assert_eq!(arena.tag(0, 3).load(Ordering::Relaxed), 0);
        assert_eq!(arena.claim(9), Some(0));
        assert_eq!(arena.header(0, Word::End).load(Ordering::Relaxed), 0);
        assert_eq!(arena.owner(1), Some(8));
    }
}
