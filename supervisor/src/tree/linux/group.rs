//! The process group of a job's leader, signalled as a whole.
//!
//! The kernel does this atomically: a fork that is under way either is seen or begins again with the signal
//! pending, so no chain of forks runs away from it. It is done through a descriptor of the leader, which stands
//! for the group and not for its number: it cannot reach a group that got the number later. Kernels before 6.9
//! refuse, and the scan works alone.

use std::os::fd::{AsRawFd, OwnedFd};
use std::process;

use super::facts;
use super::handle::open_pidfd;

/// `PIDFD_SIGNAL_PROCESS_GROUP`, which the crate `libc` does not have.
const WHOLE_GROUP: libc::c_uint = 1 << 2;

/// A group that holds nobody but descendants of one leader.
pub(in super::super) struct Group {
    fd: OwnedFd,
}

impl Group {
    /// Returns the group of the process with this number and start time. It may be a zombie.
    ///
    /// Nothing once it is reaped, or when it did not make its own session: only then is everybody in its
    /// group its descendant. Nothing either for the session of this process or of its keeper.
    pub(in super::super) fn of(leader: u32, start: u64) -> Option<Self> {
        let fd = open_pidfd(leader).ok()??;
        let stat = facts::stat(leader)?;
        let own = stat.start == start && stat.session == leader && stat.group == leader;
        let house = [process::id(), std::os::unix::process::parent_id()];
        let foreign = house
            .iter()
            .all(|pid| facts::stat(*pid).is_none_or(|stat| stat.session != leader));
        (own && foreign).then_some(Self { fd })
    }

    /// Sends a signal to all of it. Whoever could not be reached is found by the scan, which also tells why,
    /// so there is no error here.
    pub(in super::super) fn send(&self, signal: i32) {
        // SAFETY: the descriptor is open, the null pointer asks for the default signal information.
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.fd.as_raw_fd(),
                signal,
                std::ptr::null::<libc::siginfo_t>(),
                WHOLE_GROUP,
            )
        };
    }
}
