//! The keeper and the supervisor.

pub mod keeper;
pub mod log;
pub mod process;
pub mod stats;
pub mod tree;
