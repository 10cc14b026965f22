//! Process trees: which processes belong to a job, how they are signalled and ended, on which ports they listen.
//!
//! The supervisor owns one [`Trees`]; the keeper uses [`cookie`] and the few plain functions here. Nothing in
//! here reaps, forks or knows a session. The platform is chosen in this file and nowhere else.

#![cfg_attr(
    not(target_os = "linux"),
    expect(dead_code, reason = "nothing is found yet, so nobody is recognised")
)]

use ostler_proto::address::RUNG_VARIABLE;

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
    cgroup, cookie_of, describe, house_is_alive, house_marker, instance_here, job_of, jobs_alive,
    program, start_time,
};
pub use ports::{holder, is_listening, listeners};
pub use sweep::{Killed, Trees};

/// How members are found. A higher rung is the lesser one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rung {
    /// By the group that the kernel keeps for each job, and by the cookie of who moved out of it.
    Cgroup,
    /// By the inherited cookie: whatever a descendant did, unless it lowered its own limits.
    Cookie,
    /// By parents, session, group and environment marker: an orphan that changed all of them is lost.
    Links,
}

impl Rung {
    /// Returns the word that rows use.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Cookie => "cookie",
            Self::Links => "links",
        }
    }

    /// The highest rung that a house started by this process may use, see [`RUNG_VARIABLE`].
    ///
    /// # Errors
    /// The variable says something else, in words for people.
    pub fn allowed() -> Result<Self, String> {
        let Some(given) = std::env::var_os(RUNG_VARIABLE).filter(|given| !given.is_empty()) else {
            return Ok(Self::Cgroup);
        };
        let all = [Self::Cgroup, Self::Cookie, Self::Links];
        let found = all.into_iter().find(|rung| given == rung.word());
        found.ok_or_else(|| {
            let given = given.display();
            format!("{RUNG_VARIABLE} is `{given}`: it may be cgroup, cookie or links")
        })
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

impl Target {
    /// The job, if it is one.
    fn job(&self) -> Option<u64> {
        match self {
            Self::Job(mark) => Some(mark.job),
            Self::House { .. } => None,
        }
    }
}

/// By what a member was recognised, so that it can be recognised again before it is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// Its cookie names this job.
    Cookie(u64),
    /// It has this kernel start time.
    Start(u64),
    /// It stands in the group of this job; of the whole house without one.
    Group(Option<u64>),
}

/// What a scan tells of a candidate.
enum Found<'a> {
    /// It lives, and is held by a descriptor for the length of the call.
    Live(&'a platform::Process),
    /// It was a member and is dead: a zombie, or reaped between two steps of the scan.
    Dead(u32),
}
