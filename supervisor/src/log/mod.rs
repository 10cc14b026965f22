//! A job's output: one byte stream in order of arrival, at absolute offsets, each run tagged stdout or stderr.
//!
//! ```text
//!   pipe or PTY --scratch::step--> ring (memfd, newest 256 KiB) --Log::spill_pending--> file (the whole log)
//!                                      \__________________ Log::read, Log::text ________________/
//! ```
//!
//! Owned by the job. A byte leaves memory only after it is on disk or has been counted as lost; `kill -9` at any moment
//! neither loses nor doubles one. Readers hold a cursor, take no lock and consume nothing. Nothing here knows a session,
//! a client or a process.

mod arena;
mod budget;
mod job_log;
mod page;
mod read;
mod ring;
mod runs;
pub mod scratch;
mod spill;
#[cfg(test)]
mod tests;

pub use arena::{Arena, BLOCKS, RING_BYTES, RUN_RECORDS, SLOTS, Shape};
pub use budget::Budget;
pub use job_log::Log;
pub use page::Text;
pub use read::{Filter, Slice};
pub use spill::{Progress, SpillPolicy};
