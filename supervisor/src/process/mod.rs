//! The supervisor's side of everything that is a process.
//!
//! `link` speaks with the keeper, which alone forks and reaps.

pub mod link;
