//! The cookie as the keeper handles it: takes it for the house, puts it on children, reads it of strays.
//!
//! What the two values mean is in `tree::cookie`; here are the system calls. It finds processes; it is no
//! security boundary.

use super::kernel;
use crate::tree::{
    self,
    cookie::{Cookie, HOUSE_JOB},
};
use std::io;

/// The number that the keeper and the supervisor carry.
pub const OWN: u64 = HOUSE_JOB;

const RESOURCE: u32 = libc::RLIMIT_RTTIME;

/// What this house can write on its jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    /// The limit cannot be set here; links and the sub-reaper remain.
    None,
    /// Hard and soft are ours.
    Both,
    /// Another house owns the hard part; we are nested and write the soft part only.
    Soft,
}

/// Whose a process is, as far as its limits tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    Job(u64),
    Unknown,
}

/// Marks the calling process as the house's own and says what its jobs can carry.
pub(crate) fn claim(instance: u32) -> Rung {
    let Ok(before) = kernel::limit_of(0, RESOURCE) else {
        return Rung::None;
    };
    let Some(own) = Cookie::for_child(before.rlim_max, instance, OWN) else {
        return Rung::None;
    };
    let rung = if own == Cookie::new(instance, OWN) {
        Rung::Both
    } else {
        Rung::Soft
    };
    match wear(as_limit(own)) {
        Ok(()) => rung,
        Err(_) => Rung::None,
    }
}

/// Whether a house started by this process could mark its jobs, or why not.
pub(crate) fn possible() -> Result<(), &'static str> {
    let own = kernel::limit_of(0, RESOURCE).ok();
    match own.and_then(|own| Cookie::for_child(own.rlim_max, 0, OWN)) {
        Some(_) => Ok(()),
        None => Err("RLIMIT_RTTIME is limited here"),
    }
}

/// The limit that a job of this house is to carry. For a nested house the hard part is the one that is there
/// already.
pub(crate) fn limit(rung: Rung, instance: u32, job: u64) -> Option<libc::rlimit64> {
    if rung == Rung::None {
        return None;
    }
    let own = kernel::limit_of(0, RESOURCE).ok()?;
    Cookie::for_child(own.rlim_max, instance, job).map(as_limit)
}

fn as_limit(cookie: Cookie) -> libc::rlimit64 {
    libc::rlimit64 {
        rlim_cur: cookie.soft,
        rlim_max: cookie.hard,
    }
}

/// Puts the limit on the calling process. Usable between fork and exec.
pub(crate) fn wear(limit: libc::rlimit64) -> io::Result<()> {
    kernel::set_limit(RESOURCE, limit)
}

/// Whose job a process is. Works on a zombie, too.
pub(crate) fn owner(pid: i32, instance: u32) -> Owner {
    match tree::job_of(pid as u32, instance) {
        // The house's own number: a job that was asked to carry no cookie.
        None | Some(OWN) => Owner::Unknown,
        Some(job) => Owner::Job(job),
    }
}
