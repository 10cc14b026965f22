//! The inherited mark: a huge real-time limit that names house and job.
//!
//! A child inherits it through fork, exec, `setsid` and a cleared environment, and it
//! can be read of any process. It finds processes; it is no security boundary.

use super::kernel;
use std::io;

/// Bits for the job; the instance stands above them.
const JOB_BITS: u32 = 30;

/// The number that the keeper and the supervisor carry: the highest, since the hard
/// part can only go down from there.
pub const OWN: u64 = (1 << JOB_BITS) - 1;

const HARD: u64 = 1 << 62;
const SOFT: u64 = 1 << 61;
const NUMBER: u64 = (1 << (2 * JOB_BITS)) - 1;

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
    let nested = (HARD..HARD + NUMBER).contains(&before.rlim_max);
    let rung = if nested { Rung::Soft } else { Rung::Both };
    let Some(wanted) = limit(rung, instance, OWN) else {
        return Rung::None;
    };
    match kernel::set_limit(RESOURCE, wanted) {
        Ok(()) => rung,
        Err(_) => Rung::None,
    }
}

/// The limit that a job of this house is to carry. For a nested house the hard part
/// is the one that is there already.
pub(crate) fn limit(rung: Rung, instance: u32, job: u64) -> Option<libc::rlimit64> {
    let number = u64::from(instance) << JOB_BITS | job;
    let hard = match rung {
        Rung::None => return None,
        Rung::Both => HARD + number,
        Rung::Soft => kernel::limit_of(0, RESOURCE).ok()?.rlim_max,
    };
    Some(libc::rlimit64 {
        rlim_cur: SOFT + number,
        rlim_max: hard,
    })
}

/// Puts the limit on the calling process. Usable between fork and exec.
pub(crate) fn wear(limit: libc::rlimit64) -> io::Result<()> {
    kernel::set_limit(RESOURCE, limit)
}

/// Whose job a process is. Works on a zombie, too.
pub(crate) fn owner(pid: i32, instance: u32) -> Owner {
    let limit = kernel::limit_of(pid, RESOURCE)
        .ok()
        .map(|limit| (limit.rlim_cur, limit.rlim_max))
        .or_else(|| from_proc(pid));
    let Some((soft, hard)) = limit else {
        return Owner::Unknown;
    };
    [(hard, HARD), (soft, SOFT)]
        .into_iter()
        .find_map(|(value, base)| read(value, base, instance))
        // The house's own number: a job that was asked to carry no cookie.
        .filter(|job| *job != OWN)
        .map_or(Owner::Unknown, Owner::Job)
}

/// The job in one half of a cookie, if that half is of this instance.
fn read(value: u64, base: u64, instance: u32) -> Option<u64> {
    let number = value.checked_sub(base).filter(|number| *number <= NUMBER)?;
    (number >> JOB_BITS == u64::from(instance)).then_some(number & OWN)
}

/// The slow way, for members that became another user.
fn from_proc(pid: i32) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    let mut words = line.split_whitespace().map(str::parse);
    Some((words.next()?.ok()?, words.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_tells_job_and_instance_and_nothing_else_does() {
        let limit = limit(Rung::Both, 77, 5).expect("this rung always has a limit");
        assert_eq!(read(limit.rlim_max, HARD, 77), Some(5));
        assert_eq!(read(limit.rlim_cur, SOFT, 77), Some(5));
        assert_eq!(read(limit.rlim_max, HARD, 78), None);
        assert_eq!(read(u64::MAX, HARD, 77), None);
        assert_eq!(read(200_000, SOFT, 77), None);
    }
}
