//! The client library of ostler: find the user's supervisor, start it if need be, and speak with it.
//!
//! ```no_run
//! use ostler::{Client, Endpoint, Mode, Options};
//! use ostler_proto::methods::{JobStart, OpenSession, Start};
//!
//! # async fn example() -> Result<(), ostler::Error> {
//! let mut options = Options::new(Endpoint::of_user()?, Mode::Start);
//! options.session = Some(OpenSession { lease_ms: Some(30_000), ..OpenSession::default() });
//! let client = Client::new(options);
//! let row = client
//!     .ask::<JobStart>(Start {
//!         key: Some(ostler::fresh_key()),
//!         args: vec!["sleep".into(), "60".into()],
//!         ..Start::default()
//!     })
//!     .await?;
//! println!("{}", row.process_id);
//! # Ok(())
//! # }
//! ```
//!
//! Layers, each usable alone:
//!
//! - [`Endpoint`]: where this user's socket is, and whether its folder can be trusted;
//! - [`reach`]: connect, or start a supervisor exactly once and connect;
//! - [`Connection`]: LSP framing; many calls and streams at once on one socket;
//! - [`Client`]: a connection that comes back after the supervisor was replaced, with the same session;
//! - [`Stream`](follow::Stream): output that goes on at its cursor over such a break;
//! - [`socket`] and [`frames`]: a bare socket, and messages out of its bytes, for who speaks the protocol itself;
//! - [`upgrade`](upgrade::upgrade): another build in the place of the supervisor.
//!
//! Everything is plain tokio: a current-thread runtime with I/O and time enabled is enough. Times and
//! durations on the wire are integer milliseconds, sizes bytes. The library never prints, never reads a
//! configuration file, and never looks at any variable but `OSTLER_DIR` (and hands on `OSTLER_RUNG`,
//! `OSTLER_JOB` and `OSTLER_STEADY_MS` to a house that it starts).

pub mod agent;
mod breaks;
mod client;
mod connection;
pub mod endpoint;
pub mod follow;
pub mod frames;
pub mod house;
mod start;
mod unavailable;
pub mod upgrade;

/// Which build of its version this is: what it was made of, as a number.
pub const BUILD: &str = env!("OSTLER_BUILD");

pub use agent::Agent;
pub use client::{Client, fresh_key};
pub use connection::{Call, Connection, Error, Streaming};
pub use endpoint::Endpoint;
pub use start::{Link, Mode, Options, reach, socket};
pub use unavailable::Unavailable;
