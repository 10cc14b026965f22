//! The cookie: two huge values of `RLIMIT_RTTIME` that name house and job, inherited by every descendant.
//!
//! Pure arithmetic, used by the keeper (which sets it on children) and by the scan (which reads it). It never
//! makes a system call. The layout and the hash are fixed for ever: a start must recognise what an older
//! build left behind.
//!
//! ```text
//! hard = 2^62 + n      the outermost house; can only go down, so an inner house leaves it alone
//! soft = 2^61 + n      the innermost house
//! n    = instance (30 bits) << 30 | job (30 bits)
//! ```
//!
//! It is no security boundary: a process may lower its own limits and is then not found by them.

use std::path::Path;

/// Bits of an instance and of a job.
const BITS: u32 = 30;
const MASK: u64 = (1 << BITS) - 1;
const HARD: u64 = 1 << 62;
const SOFT: u64 = 1 << 61;
/// `n` is below this; what is above the base by more is no cookie (infinity, above all).
const SPAN: u64 = 1 << (2 * BITS);

/// The job number that keeper and supervisor carry themselves: the highest one, because the hard part of
/// every child can only be lower than its parent's.
pub const HOUSE_JOB: u64 = MASK;

/// Soft and hard value of `RLIMIT_RTTIME`, in that order of meaning: inner owner, outer owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cookie {
    /// Carries the innermost house and its job.
    pub soft: u64,
    /// Carries the outermost house and its job, or is a limit that somebody else set.
    pub hard: u64,
}

impl Cookie {
    /// Returns the cookie of `job` in a house that nobody else's house contains.
    ///
    /// Bits of `instance` and `job` above the thirtieth are dropped.
    pub const fn new(instance: u32, job: u64) -> Self {
        let n = number(instance, job);
        Self {
            soft: SOFT + n,
            hard: HARD + n,
        }
    }

    /// Returns what a child for `job` is to be given by a process whose own hard limit is `own_hard`, or
    /// nothing when that limit leaves no room for a cookie (a unit's or a login's limit: the rung is missing).
    ///
    /// The hard part is set only where it is free or our own: a foreign one belongs to an outer house, whose
    /// scan must still find the child.
    pub const fn for_child(own_hard: u64, instance: u32, job: u64) -> Option<Self> {
        let wished = Self::new(instance, job);
        if own_hard < wished.soft {
            return None;
        }
        let foreign = match decode(own_hard, HARD) {
            Some((owner, _)) => owner as u64 != instance as u64 & MASK,
            None => false,
        };
        if foreign || own_hard < wished.hard {
            return Some(Self {
                soft: wished.soft,
                hard: own_hard,
            });
        }
        Some(wished)
    }
}

/// Returns the job of `instance` that a process with these two limits belongs to, [`HOUSE_JOB`] for the house
/// itself, or nothing.
///
/// The soft part is asked first: an inner house overwrites only that one, so below an inner house the hard
/// part tells the outer owner.
pub const fn belongs(soft: u64, hard: u64, instance: u32) -> Option<u64> {
    let own = (instance as u64 & MASK) as u32;
    if let Some((owner, job)) = decode(soft, SOFT)
        && owner == own
    {
        return Some(job);
    }
    match decode(hard, HARD) {
        Some((owner, job)) if owner == own => Some(job),
        _ => None,
    }
}

/// Tells whether a process has set itself a limit of its own, and so carries no cookie any more if it ever did.
pub const fn was_lowered(soft: u64) -> bool {
    soft < SOFT
}

/// Returns the 30 bits that name a house: FNV-1a (64 bits) over the user's number as four little-endian
/// bytes, a zero, the boot id without surrounding white space, a zero, and the path, folded by exclusive or.
///
/// `run_folder` must be the real path: a symbolic link would give the same house two names. `boot_id` may
/// carry more than the kernel's boot id; see [`super::instance_here`].
pub fn instance(uid: u32, boot_id: &str, run_folder: &Path) -> u32 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut eat = |bytes: &[u8]| {
        for byte in bytes {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    };
    eat(&uid.to_le_bytes());
    eat(&[0]);
    eat(boot_id.trim().as_bytes());
    eat(&[0]);
    eat(run_folder.as_os_str().as_encoded_bytes());
    let folded = hash ^ (hash >> BITS) ^ (hash >> (2 * BITS));
    (folded & MASK) as u32
}

const fn number(instance: u32, job: u64) -> u64 {
    (instance as u64 & MASK) << BITS | job & MASK
}

/// Instance and job of one limit, if it is a cookie on that base.
const fn decode(value: u64, base: u64) -> Option<(u32, u64)> {
    if value < base || value - base >= SPAN {
        return None;
    }
    let n = value - base;
    Some(((n >> BITS) as u32, n & MASK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_gives_back_its_job_to_its_own_house_and_nothing_to_another() {
        for (instance, job) in [(0, 0), (1, 7), (0x3fff_ffff, HOUSE_JOB), (12345, 1 << 29)] {
            let cookie = Cookie::new(instance, job);
            assert_eq!(belongs(cookie.soft, cookie.hard, instance), Some(job));
            assert_eq!(belongs(cookie.soft, cookie.hard, instance ^ 1), None);
            assert!(
                cookie.soft < cookie.hard,
                "a soft limit above hard is EINVAL"
            );
        }
    }

    #[test]
    fn ordinary_limits_are_no_cookies() {
        for limit in [
            0,
            200_000,
            1 << 40,
            SOFT - 1,
            SOFT + SPAN,
            HARD - 1,
            HARD + SPAN,
            u64::MAX,
        ] {
            assert_eq!(belongs(limit, u64::MAX, 0), None, "{limit}");
            assert_eq!(belongs(0, limit, 0), None, "{limit}");
        }
    }

    #[test]
    fn below_an_inner_house_both_owners_are_told() {
        let outer = Cookie::new(5, 17);
        let inner = Cookie::for_child(outer.hard, 9, 3).expect("room for a soft cookie");
        assert_eq!(inner.hard, outer.hard, "the outer owner must stay readable");
        assert_eq!(belongs(inner.soft, inner.hard, 9), Some(3));
        assert_eq!(belongs(inner.soft, inner.hard, 5), Some(17));
    }

    #[test]
    fn a_house_started_inside_a_leftover_of_itself_is_the_house_and_not_the_leftover() {
        let leftover = Cookie::new(5, 17);
        let house = Cookie::for_child(leftover.hard, 5, HOUSE_JOB).expect("room for a soft cookie");
        assert_eq!(
            house.hard, leftover.hard,
            "an ordinary user cannot raise it"
        );
        assert_eq!(belongs(house.soft, house.hard, 5), Some(HOUSE_JOB));
    }

    #[test]
    fn a_house_gives_its_children_both_parts() {
        let house = Cookie::for_child(u64::MAX, 5, HOUSE_JOB).expect("nothing in the way");
        assert_eq!(house, Cookie::new(5, HOUSE_JOB));
        assert_eq!(
            Cookie::for_child(house.hard, 5, 17),
            Some(Cookie::new(5, 17))
        );
    }

    #[test]
    fn a_low_limit_set_by_somebody_else_leaves_no_cookie() {
        assert_eq!(Cookie::for_child(200_000, 5, 1), None);
    }

    #[test]
    fn the_instance_never_changes_between_builds() {
        let path = Path::new("/run/user/1000/ostler");
        let boot = "5f3a000f-ac2f-4dac-8d0c-93bc8060a68e\n";
        assert_eq!(
            instance(1000, boot, path),
            instance(1000, boot.trim(), path)
        );
        assert_eq!(instance(1000, boot, path), 603_730_055);
        assert_ne!(instance(1000, boot, path), instance(1001, boot, path));
        assert_ne!(instance(1000, boot, path), instance(1000, "other", path));
        assert_ne!(
            instance(1000, boot, path),
            instance(1000, boot, Path::new("/tmp/o"))
        );
    }
}
