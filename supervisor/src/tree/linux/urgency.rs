//! Lets the calling thread run before ordinary ones while it ends trees, where the kernel allows it.
//!
//! Forty chains on two cores leave a scanning thread a twentieth of a core, and it comes too late. Only root, or
//! a user with a limit for it, may do this; everybody else goes on without. Children do not inherit it.

/// In force until dropped.
pub(in super::super) struct Urgency {
    before: Option<(libc::c_int, libc::sched_param)>,
}

impl Urgency {
    pub(in super::super) fn new() -> Self {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut old: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: both calls ask about the calling thread; `old` outlives the second one.
        let (policy, read) = unsafe {
            (
                libc::sched_getscheduler(0),
                libc::sched_getparam(0, &mut old),
            )
        };
        // Whoever already has a class of his own keeps it.
        let ordinary = read == 0 && policy & !libc::SCHED_RESET_ON_FORK == libc::SCHED_OTHER;
        let raised = ordinary && set(libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, 1);
        Self {
            before: raised.then_some((policy, old)),
        }
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        if let Some((policy, old)) = self.before {
            set(policy, old.sched_priority);
        }
    }
}

/// Tells whether the kernel agreed.
fn set(policy: libc::c_int, priority: libc::c_int) -> bool {
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut wished: libc::sched_param = unsafe { std::mem::zeroed() };
    wished.sched_priority = priority;
    // SAFETY: zero is the calling thread; the structure outlives the call.
    unsafe { libc::sched_setscheduler(0, policy, &wished) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> libc::c_int {
        // SAFETY: asks about the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[test]
    fn what_was_before_is_put_back() {
        let before = policy();
        let urgency = Urgency::new();
        if urgency.before.is_some() {
            assert_eq!(policy(), libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK);
        } else {
            assert_eq!(policy(), before, "refused means unchanged");
        }
        drop(urgency);
        assert_eq!(policy(), before);
    }
}
