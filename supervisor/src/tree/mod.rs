//! Process trees: which processes belong to a job, how they are signalled and ended, on which ports they listen.
//!
//! The supervisor owns one [`Trees`]; the keeper uses [`cookie`] and the few plain functions here. Nothing in
//! here reaps, forks or knows a session. The platform is chosen in this file and nowhere else.

#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nothing is found yet, so nobody is recognised")
)]

pub mod cookie;
mod ports;
mod sweep;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
use linux as platform;

#[cfg(not(target_os = "linux"))]
mod unsupported;
#[cfg(not(target_os = "linux"))]
use unsupported as platform;

pub use platform::{
    cookie_of, describe, house_is_alive, instance_here, job_of, program, start_time,
};
pub use ports::{holder, is_listening, listeners};
pub use sweep::{Killed, Trees};

/// How members are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// By the inherited cookie: whatever a descendant did, unless it lowered its own limits.
    Cookie,
    /// By parents, session, group and environment marker: an orphan that changed all of them is lost.
    Links,
}

impl Rung {
    /// Returns the word that rows use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cookie => "cookie",
            Self::Links => "links",
        }
    }
}

/// Names a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The job's number in the cookie.
    pub job: u64,
    /// Process number and kernel start time (clock ticks since boot) of the main process. It is a member on
    /// every rung while both agree, even when it lowered its own cookie.
    pub leader: Option<(u32, u64)>,
    /// The value of `OSTLER_JOB` in the job's environment.
    pub process_id: String,
}

/// A process, as far as its identity goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Process number.
    pub pid: u32,
    /// Kernel start time in clock ticks since boot. Number and start time together are never used twice.
    pub start_time: u64,
    /// Program name as the kernel has it: at most 15 bytes.
    pub program: String,
}

/// What one scan is to look for.
#[derive(Debug)]
enum Target {
    /// The members of one job.
    Job(Mark),
    /// Everything of the instance that is not the house itself, except these process numbers.
    House { keep: Vec<u32> },
}

/// By what a member was recognised, so that it can be recognised again before it is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Its cookie names this job.
    Cookie(u64),
    /// It has this kernel start time.
    Start(u64),
}

/// What a scan tells of a candidate.
enum Found<'a> {
    /// It lives, and is held by a descriptor for the length of the call.
    Live(&'a platform::Process),
    /// It was a member and is dead: a zombie, or reaped between two steps of the scan.
    Dead(u32),
}
