//! The words that the supervisor and its clients share: methods, types, refusals, limits, addresses.
//!
//! Everything here is plain data. The crate does no I/O, knows no async runtime and starts nothing;
//! both sides can therefore depend on it without depending on each other. The JSON Schema that is
//! committed beside `PROTOCOL.md` is generated from these types, and a test keeps it equal.
//!
//! Reading order: [`limits`] (every number), [`id`], [`job`] (what is said of a job), [`refusal`],
//! [`methods`] (the one table), [`address`] (where the socket is), [`frame`] (what a message may be).

pub mod limits;

pub mod id;

pub mod job;

pub mod refusal;

pub mod reason;

pub mod resource;

pub mod session;

pub mod start;

pub mod methods;

pub mod command;

pub mod editor;

pub mod shell;

pub mod upgrade;

pub mod acp;

pub mod agent;

pub mod address;
pub mod config;
pub mod duration;

pub mod frame;

pub mod schema;

pub mod screen;

/// Version of the protocol that this crate speaks. A change that is not additive raises it.
pub const PROTOCOL: u32 = 1;

/// Oldest version of the protocol that this crate still understands.
pub const PROTOCOL_MIN: u32 = 1;

/// Version of the build, the same for every crate of the workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
