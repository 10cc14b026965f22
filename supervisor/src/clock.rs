//! The three clocks. Deadlines use the monotonic one, which stands still while the machine sleeps and
//! means the same in the next supervisor; people read the wall clock; the difference of boot time and
//! monotonic time is the sleep.

use std::{path::PathBuf, sync::OnceLock, time::Duration};

use ostler_proto::address::{CLOCKS_VARIABLE, DIR_VARIABLE};

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
        let (wall, boot) = ahead();
        Self {
            wall: read(libc::CLOCK_REALTIME).saturating_add_signed(wall),
            mono: mono(),
            boot: read(libc::CLOCK_BOOTTIME).saturating_add_signed(boot),
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

/// See [`CLOCKS_VARIABLE`].
fn ahead() -> (i64, i64) {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let hermetic = std::env::var_os(DIR_VARIABLE).is_some();
        let named = std::env::var_os(CLOCKS_VARIABLE).filter(|_| hermetic);
        named.map(PathBuf::from)
    });
    let Some(file) = file else { return (0, 0) };
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
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
