//! One slot of the arena as a ring of bytes at absolute offsets, and its header words by name.
//!
//! One writer at a time ([`super::Log`] holds its turn), any number of readers without a lock: `head` is raised before a
//! byte is overwritten and `end` after a byte is written, so a reader that copies and then looks at `head` again knows
//! what of its copy is true. Nothing here decides whether a byte may be overwritten.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::arena::{Arena, Word};

/// A slot together with the arena that keeps its memory mapped.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    arena: Arc<Arena>,
    index: usize,
}

impl Slot {
    pub(super) fn new(arena: Arc<Arena>, index: usize) -> Slot {
        Slot { arena, index }
    }

    pub(super) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    pub(super) fn index(&self) -> usize {
        self.index
    }

    /// Bytes the ring holds.
    pub(super) fn capacity(&self) -> u64 {
        self.arena.shape().ring
    }

    /// Run tags the slot holds.
    pub(super) fn max_runs(&self) -> u64 {
        self.arena.shape().runs
    }

    pub(super) fn word(&self, word: Word) -> &AtomicU64 {
        self.arena.header(self.index, word)
    }

    pub(super) fn get(&self, word: Word) -> u64 {
        self.word(word).load(Ordering::Acquire)
    }

    pub(super) fn set(&self, word: Word, value: u64) {
        self.word(word).store(value, Ordering::Release);
    }

    /// Raises a word that never falls, before what it guards is overwritten.
    pub(super) fn raise_before(&self, word: Word, value: u64) {
        self.word(word).fetch_max(value, Ordering::AcqRel);
        // The bytes are overwritten by plain stores (of the kernel, or of `pwrite`), which the release above does not
        // order. Readers have the matching fence between their copy and their second look.
        fence(Ordering::SeqCst);
    }

    pub(super) fn tag(&self, index: u64) -> &AtomicU64 {
        self.arena.tag(self.index, index)
    }

    /// Gives up what `n` more bytes will overwrite. Repeating it is harmless.
    pub(super) fn make_room(&self, n: u64) {
        debug_assert!(n <= self.capacity());
        let end = self.get(Word::End);
        let head = (end + n).saturating_sub(self.capacity());
        if head > self.get(Word::Head) {
            self.raise_before(Word::Head, head);
        }
    }

    /// The memory that offsets `from..to` stand in, as at most two pieces.
    pub(super) fn pieces(&self, from: u64, to: u64) -> [libc::iovec; 2] {
        // Not only while debugging: a longer piece would reach into the next job's slot.
        assert!(
            to - from <= self.capacity(),
            "{from}..{to} is more than a ring"
        );
        let at = from % self.capacity();
        let first = (to - from).min(self.capacity() - at);
        let ring = self.arena.ring(self.index);
        let piece = |at: u64, n: u64| libc::iovec {
            // SAFETY: `at` is below the capacity, and the ring is that long.
            iov_base: unsafe { ring.add(at as usize) }.cast(),
            iov_len: n as usize,
        };
        [piece(at, first), piece(0, to - from - first)]
    }

    /// Writes `bytes` at offset `at` through the descriptor, not the mapping: a page that cannot be had is then an
    /// error of a system call instead of a SIGBUS in our own code.
    pub(super) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        let (fd, start) = self.arena.ring_file(self.index);
        let place = at % self.capacity();
        let first = bytes.len().min((self.capacity() - place) as usize);
        for (piece, place) in [(&bytes[..first], place), (&bytes[first..], 0)] {
            let mut done = 0;
            while done < piece.len() {
                let to = (start + place) as usize + done;
                // SAFETY: the source is a live slice and the length is its own.
                let n = unsafe {
                    libc::pwrite(
                        fd,
                        piece[done..].as_ptr().cast(),
                        piece.len() - done,
                        to as libc::off_t,
                    )
                };
                match n {
                    0 => return Err(io::Error::from(io::ErrorKind::WriteZero)),
                    n if n > 0 => done += n as usize,
                    _ => {
                        let e = io::Error::last_os_error();
                        if e.kind() != io::ErrorKind::Interrupted {
                            return Err(e);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Appends a copy of `from..to` and returns the oldest offset of it that is certainly true. The caller has seen
    /// `end >= to`, so every page of it exists.
    pub(super) fn copy(&self, from: u64, to: u64, out: &mut Vec<u8>) -> u64 {
        out.reserve((to - from) as usize);
        for piece in self.pieces(from, to) {
            let room = out.spare_capacity_mut();
            debug_assert!(room.len() >= piece.iov_len);
            // SAFETY: source and destination are valid for `iov_len` bytes and do not overlap. The kernel may be
            // overwriting the source while this runs, which is why it is a raw copy that makes no reference to it and
            // why no byte of the copy is used before `head` has been read again below: bytes under the new head are
            // dropped by the caller, and bytes above it were not being written.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    piece.iov_base.cast::<u8>().cast_const(),
                    room.as_mut_ptr().cast::<u8>(),
                    piece.iov_len,
                );
                out.set_len(out.len() + piece.iov_len);
            }
        }
        fence(Ordering::SeqCst);
        self.get(Word::Head)
    }
}
