//! The three clocks. Deadlines use the monotonic one, which stands still while the machine sleeps and
//! means the same in the next supervisor; people read the wall clock; the difference of boot time and
//! monotonic time is the sleep.

use std::time::Duration;

/// One moment on all three clocks, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub(crate) struct Moment {
    /// Since the epoch.
    pub(crate) wall: u64,
    /// Since boot, sleep left out.
    pub(crate) mono: u64,
    /// Since boot.
    pub(crate) boot: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self {
            wall: read(libc::CLOCK_REALTIME),
            mono: mono(),
            boot: read(libc::CLOCK_BOOTTIME),
        }
    }

    /// Sleep of the machine between `self` and a later moment, in ms.
    pub(crate) fn slept_until(&self, later: &Self) -> u64 {
        let slept = later
            .boot
            .saturating_sub(self.boot)
            .saturating_sub(later.mono.saturating_sub(self.mono));
        // Two clocks read one after the other differ by scheduling; that is no sleep.
        if slept < ostler_proto::limits::SLEPT {
            0
        } else {
            slept
        }
    }
}

/// The monotonic clock in ms.
pub(crate) fn mono() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The instant of a monotonic time, for timers. A time in the past is now.
pub(crate) fn instant(at: u64) -> tokio::time::Instant {
    tokio::time::Instant::now() + Duration::from_millis(at.saturating_sub(mono()))
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec and the clock ids above exist on every Linux that we run on.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    t.tv_sec as u64 * 1_000 + t.tv_nsec as u64 / 1_000_000
}
