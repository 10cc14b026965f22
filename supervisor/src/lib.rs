//! The keeper and the supervisor.

pub mod log;
pub mod stats;
pub mod tree;
