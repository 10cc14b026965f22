//! s
pub mod log;
