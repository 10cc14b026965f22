//! The keeper and the supervisor of ostler.

#[cfg(target_os = "linux")]
pub mod keeper;
#[cfg(target_os = "linux")]
pub mod process;
