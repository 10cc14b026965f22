//! The keeper and the supervisor of ostler.

pub mod stats;
pub mod tree;
