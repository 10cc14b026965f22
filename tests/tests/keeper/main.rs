//! The keeper alone, with the test itself as its supervisor.
//!
//! `stagehand` is started as a keeper; the supervisor that it starts hands the wire over,
//! so that each test speaks the wire and sees every message. No test waits by the clock:
//! each waits for an event, with a limit that only a failure reaches.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failing unwrap is a failing test")]

mod cookie;

mod descriptors;

mod ends;
mod fuzz;

mod hostile;

mod house;

mod link;

mod orders;

mod replaced;

mod stage;

mod standby;

mod starts;

mod streams;

mod traced;
