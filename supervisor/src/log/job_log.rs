//! The log of one job: ring, run tags and spill as one byte stream at absolute offsets.
//!
//! Owned by the job, shared with its pump and with every reader. It never waits, never blocks the pump on a reader and
//! never drops a byte without a number: what is in neither ring nor spill is `lost`. All of its state that matters is in
//! the slot, so that a supervisor that takes over restores it from there.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use super::arena::{Arena, Word};
use super::read::Kept;
use super::ring::Slot;
use super::spill::{Progress, Spill, SpillPolicy, reason};
use crate::disk;

/// Bits of the header's flag word. The upper 32 bits are the errno or [`reason`] of a spill that failed.
pub(super) mod flag {
    /// One stream has written.
    pub(in crate::log) const LONE: u64 = 1;
    /// That one is stderr.
    pub(in crate::log) const LONE_STDERR: u64 = 1 << 1;
    /// The output is closed.
    pub(in crate::log) const SEALED: u64 = 1 << 2;
    /// The ring has overflowed, or is about to: the spill has begun.
    pub(in crate::log) const OVERFLOWED: u64 = 1 << 3;
    /// The spill file is being made, or was.
    pub(in crate::log) const LOG_MAKING: u64 = 1 << 4;
    /// The spill file was made by us.
    pub(in crate::log) const LOG_MADE: u64 = 1 << 5;
    /// The sidecar is being made, or was.
    pub(in crate::log) const RUNS_MAKING: u64 = 1 << 6;
    /// The sidecar was made by us.
    pub(in crate::log) const RUNS_MADE: u64 = 1 << 7;
    /// No more is spilled; what is there stays readable.
    pub(in crate::log) const SPILL_FAILED: u64 = 1 << 8;
    /// What was spilled cannot be read any more.
    pub(in crate::log) const SPILL_GONE: u64 = 1 << 9;
}

/// A job's output. See the module.
#[derive(Debug)]
pub struct Log {
    slot: Slot,
    job: u64,
    /// Held by whoever appends. The spill writer and readers do not take it.
    turn: Mutex<()>,
    spill: Option<Spill>,
    ends: watch::Sender<u64>,
    spilled: watch::Sender<u64>,
    retired: AtomicBool,
}

/// How much may be appended now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admit {
    /// So many bytes, at least 1.
    Bytes(u64),
    /// The spill writer must run first.
    Wait,
    /// The ring is exactly full and nothing was spilled yet: whether it overflows depends on one more byte.
    Full,
}

impl Log {
    /// An empty log in a claimed slot. The job number fits 63 bits and is not 0.
    pub fn new(arena: Arc<Arena>, slot: usize, job: u64, policy: SpillPolicy) -> Arc<Log> {
        arena.clear_header(slot);
        arena.header(slot, Word::Job).store(job, Ordering::Release);
        Self::build(arena, slot, job, policy)
    }

    /// The log as an earlier supervisor left it, before [`super::scratch::restore`] adds the bytes that were on their
    /// way. `file` is the spill's descriptor, if the keeper had it; else the spill is opened again by its path.
    ///
    /// A slot that does not carry this job's number (a death between the claim and the first store) is made new.
    pub fn restore(
        arena: Arc<Arena>,
        slot: usize,
        job: u64,
        file: Option<OwnedFd>,
        policy: SpillPolicy,
    ) -> Arc<Log> {
        if arena.owner(slot) != Some(job) {
            return Self::new(arena, slot, job, policy);
        }
        let log = Self::build(arena, slot, job, policy);
        log.slot.trim_tags();
        if let Some(spill) = &log.spill {
            spill.resume(&log.slot, file.map(File::from));
        }
        log
    }

    fn build(arena: Arc<Arena>, slot: usize, job: u64, policy: SpillPolicy) -> Arc<Log> {
        let slot = Slot::new(arena, slot);
        Arc::new(Log {
            ends: watch::Sender::new(slot.get(Word::End)),
            spilled: watch::Sender::new(slot.get(Word::Spilled)),
            slot,
            job,
            turn: Mutex::new(()),
            spill: match policy {
                SpillPolicy::Off => None,
                SpillPolicy::To { path, cap, budget } => Some(Spill::new(path, cap, budget)),
            },
            retired: AtomicBool::new(false),
        })
    }

    /// The job's number, as in the slot.
    pub fn job(&self) -> u64 {
        self.job
    }

    /// The slot's number in the arena.
    pub fn slot_index(&self) -> usize {
        self.slot.index()
    }

    /// Offset behind the newest byte: all bytes ever written.
    pub fn end(&self) -> u64 {
        self.slot.get(Word::End)
    }

    /// Oldest offset in the ring.
    pub fn head(&self) -> u64 {
        self.slot.get(Word::Head)
    }

    /// Bytes that are in neither ring nor spill any more.
    pub fn lost(&self) -> u64 {
        Kept::look(self).lost()
    }

    /// Watches `end`: the value moves after every append, and once more when the output closes. The receiver starts at
    /// the present end; what was written before counts as seen.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        watched(&self.ends, || self.end())
    }

    /// Wakes whoever watches `end`, which has not moved: something else that readers wait for has changed.
    pub fn wake(&self) {
        self.tell_end();
    }

    /// Watches how far the spill has come; moves too when it fails. For a pump that has to wait.
    pub fn subscribe_spilled(&self) -> watch::Receiver<u64> {
        watched(&self.spilled, || self.slot.get(Word::Spilled))
    }

    /// Waits until a step may go on: room for it, or no spill to wait for.
    pub async fn room_made(&self) {
        let mut spilled = self.subscribe_spilled();
        while self.room() < self.step_bytes() {
            if spilled.changed().await.is_err() {
                return;
            }
        }
    }

    /// Appends as much as may be appended now and returns how much that was. Less than all means: the spill writer has
    /// to run first ([`Log::spill_pending`]), then the rest can be given again.
    pub fn append(&self, stream: u8, bytes: &[u8]) -> usize {
        let turn = self.turn();
        let mut done = 0;
        while done < bytes.len() {
            let left = (bytes.len() - done) as u64;
            match self.admit(&turn, stream, left.min(self.slot.capacity())) {
                Admit::Bytes(n) => {
                    let piece = &bytes[done..done + n as usize];
                    let base = self.end();
                    self.slot.make_room(n);
                    if self.slot.write(base, piece).is_err() {
                        self.drop_ring(&turn, n);
                    }
                    self.commit(&turn, stream, base, n);
                    done += piece.len();
                }
                Admit::Wait => break,
                Admit::Full => {
                    self.overflow();
                    break;
                }
            }
        }
        done
    }

    /// The output is closed: nothing follows.
    pub fn seal(&self) {
        self.set_flag(flag::SEALED);
        self.tell_end();
    }

    /// Whether the output is closed.
    pub fn is_sealed(&self) -> bool {
        self.flags() & flag::SEALED != 0
    }

    /// The main process has ended: what follows is late output. Only the first call counts.
    pub fn mark_exit(&self) {
        let word = self.slot.word(Word::AtExit);
        // Losing this race means that the mark was set; that is all that is wanted.
        word.compare_exchange(0, self.end() + 1, Ordering::AcqRel, Ordering::Acquire)
            .ok();
    }

    /// `end` when the main process had ended.
    pub fn at_exit(&self) -> Option<u64> {
        self.slot.get(Word::AtExit).checked_sub(1)
    }

    /// Bytes at most in doubt, and where, after a crash of a house that cannot splice: `(base, bytes)`.
    pub fn in_doubt(&self) -> Option<(u64, u64)> {
        match self.slot.get(Word::Doubt) {
            0 => None,
            doubt => Some((doubt >> 16, doubt & 0xffff)),
        }
    }

    /// Bytes that may be appended now without overwriting any that are still to be spilled.
    pub fn room(&self) -> u64 {
        if !self.is_spilling() {
            return self.slot.capacity();
        }
        if self.free_tags() < 2 {
            return 0;
        }
        self.slot.capacity() - self.unspilled()
    }

    /// Whether [`Log::spill_pending`] should run: the ring has overflowed and half of it waits, or the last of it does.
    pub fn wants_spill(&self) -> bool {
        let flags = self.flags();
        if !self.is_spilling() || flags & flag::OVERFLOWED == 0 {
            return false;
        }
        let unspilled = self.unspilled();
        unspilled > self.slot.capacity() / 2
            || self.free_tags() < self.slot.max_runs() / 2
            || unspilled > 0 && (flags & flag::SEALED != 0 || self.at_exit().is_some())
            || self.room() < self.step_bytes()
    }

    /// Writes what waits to be spilled. Blocks on the disk; one call at a time a log (a second one waits). Does nothing
    /// while nothing has overflowed.
    ///
    /// # Errors
    /// The first failed write, once. The spill has ended then: what is there stays readable, the job goes on, and
    /// [`Log::spill_failure`] tells why.
    pub fn spill_pending(&self) -> io::Result<Progress> {
        match &self.spill {
            Some(spill) if self.flags() & flag::OVERFLOWED != 0 => spill
                .write_pending(&self.slot, &|| {
                    tell(&self.spilled, || self.slot.get(Word::Spilled))
                }),
            _ => Ok(Progress::default()),
        }
    }

    /// Why the full text is not kept, if it should be and is not.
    pub fn spill_failure(&self) -> Option<String> {
        let flags = self.flags();
        if flags & flag::SPILL_GONE != 0 {
            return Some("the spill file cannot be read any more".into());
        }
        (flags & flag::SPILL_FAILED != 0).then(|| match (flags >> 32) as u32 {
            reason::NO_ROOM => "no room for a spill file is left".into(),
            reason::NO_MEMORY => "no memory for the ring".into(),
            errno => io::Error::from_raw_os_error(errno as i32).to_string(),
        })
    }

    /// Where the spill file is, once there is one that can be read.
    pub fn spill_path(&self) -> Option<&Path> {
        let spill = self.spill.as_ref()?;
        (self.flags() & flag::LOG_MADE != 0 && self.spill_is_readable()).then(|| spill.path())
    }

    /// Size of the spill file. Known without asking the disk, which may not answer.
    pub fn spill_bytes(&self) -> u64 {
        match self.slot.get(Word::Wrap) {
            0 => self.slot.get(Word::Spilled),
            size => size.min(self.slot.get(Word::Spilled)),
        }
    }

    /// A duplicate of the spill's descriptor for the keeper to hold; `None` while there is no file.
    ///
    /// # Errors
    /// What duplicating answers.
    pub fn spill_fd(&self) -> io::Result<Option<OwnedFd>> {
        let handle = disk::in_place(|| self.spill.as_ref().and_then(Spill::handle));
        handle
            .map(|file| file.try_clone().map(OwnedFd::from))
            .transpose()
    }

    /// Closes the spill's descriptors: a kept record holds none. A later read opens the file again by its path.
    pub fn close_spill(&self) {
        if let Some(spill) = &self.spill {
            disk::in_place(|| spill.close());
        }
    }

    /// The record goes: the spill's names are taken away now, and the slot is given back when the last reader has let
    /// go of the log, so that nobody reads the next owner's bytes.
    pub fn retire(&self) {
        self.retired.store(true, Ordering::Release);
        if let Some(spill) = &self.spill
            && self.flags() & flag::LOG_MAKING != 0
        {
            disk::in_place(|| spill.unlink());
        }
    }

    pub(super) fn slot(&self) -> &Slot {
        &self.slot
    }

    pub(super) fn spill(&self) -> Option<&Spill> {
        self.spill.as_ref()
    }

    pub(super) fn spill_is_readable(&self) -> bool {
        self.spill.is_some() && self.flags() & flag::SPILL_GONE == 0
    }

    pub(super) fn give_up_spill(&self) {
        self.set_flag(flag::SPILL_GONE | flag::SPILL_FAILED);
        tell(&self.spilled, || self.slot.get(Word::Spilled));
    }

    /// The right to append. Held over a whole step, so that nobody finds `end` between two of its stores.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Most bytes of one step: 32 KiB, or half of a smaller ring.
    pub(super) fn step_bytes(&self) -> u64 {
        STEP_BYTES.min(self.slot.capacity() / 2)
    }

    /// How much of `want` bytes of `stream` may be appended.
    pub(super) fn admit(&self, _turn: &MutexGuard<'_, ()>, stream: u8, want: u64) -> Admit {
        if !self.is_spilling() {
            return Admit::Bytes(want);
        }
        let room = match self.slot.tags_needed(stream) {
            n if n > self.free_tags() => 0,
            _ => self.slot.capacity() - self.unspilled(),
        };
        if self.flags() & flag::OVERFLOWED == 0 {
            return if room == 0 {
                Admit::Full
            } else {
                Admit::Bytes(want.min(room))
            };
        }
        // Once it spills, small remainders are not worth a system call; the writer is running already.
        if room < want.min(self.step_bytes()) {
            Admit::Wait
        } else {
            Admit::Bytes(want.min(room))
        }
    }

    /// There is one byte more than the ring holds: from here on the whole log goes to disk.
    pub(super) fn overflow(&self) {
        self.set_flag(flag::OVERFLOWED);
    }

    /// `n` bytes of `stream` stand in the ring at `base`. Safe to repeat.
    pub(super) fn commit(&self, _turn: &MutexGuard<'_, ()>, stream: u8, base: u64, n: u64) {
        self.slot.tag_run(stream, base, base + n);
        self.slot.set(Word::End, base + n);
        self.tell_end();
    }

    /// The next `n` bytes could not be written for want of memory, so nothing in the ring is certain and nothing of it
    /// is kept. Called before they are committed: neither reader nor spill writer ever sees them.
    pub(super) fn drop_ring(&self, _turn: &MutexGuard<'_, ()>, n: u64) {
        self.set_flag(flag::SPILL_FAILED | u64::from(reason::NO_MEMORY) << 32);
        self.slot.raise_before(Word::Head, self.end() + n);
    }

    /// Notes bytes in doubt at the present end.
    pub(super) fn doubt(&self, base: u64, bytes: u64) {
        self.slot.set(Word::Doubt, base << 16 | bytes.min(0xffff));
    }

    fn is_spilling(&self) -> bool {
        self.spill.is_some() && self.flags() & flag::SPILL_FAILED == 0
    }

    fn unspilled(&self) -> u64 {
        // `spilled` first: it never passes `end`, however old the value.
        let spilled = self.slot.get(Word::Spilled);
        (self.end() - spilled).min(self.slot.capacity())
    }

    fn free_tags(&self) -> u64 {
        let spilled = self.slot.get(Word::RunsSpilled);
        let n = self.slot.get(Word::RunsEnd);
        self.slot.max_runs() - n.saturating_sub(spilled).min(self.slot.max_runs())
    }

    fn flags(&self) -> u64 {
        self.slot.get(Word::Flags)
    }

    fn set_flag(&self, bits: u64) {
        self.slot.word(Word::Flags).fetch_or(bits, Ordering::AcqRel);
    }

    fn tell_end(&self) {
        tell(&self.ends, || self.end());
    }
}

/// Bytes a step moves at most: half the default pipe, one eighth of the ring (`keeper.md` section 5).
pub(super) const STEP_BYTES: u64 = 32 * 1024;

/// Publishes a value that was stored just now, if anybody watches. Costs a fence and a load otherwise.
fn tell(cell: &watch::Sender<u64>, value: impl Fn() -> u64) {
    fence(Ordering::SeqCst);
    if cell.receiver_count() > 0 {
        cell.send_modify(|v| *v = value().max(*v));
    }
}

/// A receiver whose present value is not older than its subscription. The fence pairs with that of [`tell`]: either the
/// teller sees the receiver, or we see what it stored.
fn watched(cell: &watch::Sender<u64>, value: impl Fn() -> u64) -> watch::Receiver<u64> {
    let mut receiver = cell.subscribe();
    fence(Ordering::SeqCst);
    cell.send_if_modified(|v| {
        let now = value();
        let moved = now > *v;
        *v = now.max(*v);
        moved
    });
    receiver.mark_unchanged();
    receiver
}

impl Drop for Log {
    fn drop(&mut self) {
        if *self.retired.get_mut() {
            // A slot that could not be punched is free all the same; its pages are used again by its next owner.
            self.slot.arena().punch(self.slot.index()).ok();
        }
    }
}
