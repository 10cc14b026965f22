//! The agreed sizes of the two shared memory files and the scratch pipes.
//!
//! The keeper makes the files and never looks into them, with one exception: the
//! word that names the job being restored. Whoever writes rings and headers takes
//! the same numbers from here.

/// Bytes of one slot in the arena: a 256 KiB ring and 32 KiB of run tags.
pub const SLOT: u64 = 294_912;

/// Slots asked for; halved until the kernel grants the file.
pub const SLOTS: u64 = 16_384;

/// Bytes before the first job header: the scratch control blocks and the house's own words.
pub const CONTROL: u64 = 4096;

/// Bytes of one scratch control block at the start of the headers file.
pub const SCRATCH_BLOCK: u64 = 64;

/// Most scratch pipes, one a pump worker.
pub const SCRATCH_PIPES: usize = 4;

/// Where the supervisor notes which job it is restoring: job + 1 as a native `u64`, 0 for none.
/// The arena knows it as its house word 0.
pub const RESTORING_AT: u64 = 2048;

/// Bytes of one job header.
pub const HEADER: u64 = 128;
