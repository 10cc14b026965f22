//! How much disk the spills of a session, or of a user, may take together.
//!
//! Budgets form a chain: a session's asks its user's. The last one may also keep a floor of free space on the disk. A
//! refusal is an answer, not an error: the spill then keeps head and tail of what it has. Nothing here opens a file.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Granted bytes between two looks at the disk. `statvfs` costs a microsecond, but writing 16 MiB costs thousands.
const LOOK_EVERY: u64 = 16 << 20;

/// One level of the chain.
#[derive(Debug)]
pub struct Budget {
    cap: u64,
    parent: Option<Arc<Budget>>,
    floor: Option<Floor>,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Floor {
    path: PathBuf,
    free: u64,
}

#[derive(Debug, Default)]
struct Used {
    bytes: u64,
    unseen: Option<u64>,
}

impl Budget {
    /// A budget of `cap` bytes below another one.
    pub fn new(cap: u64, parent: Option<Arc<Budget>>) -> Arc<Budget> {
        Arc::new(Budget {
            cap,
            parent,
            floor: None,
            used: Mutex::default(),
        })
    }

    /// A budget that also refuses when less than `free` bytes would stay free on the disk that holds `path` (any
    /// existing folder above the artifacts).
    pub fn with_floor(cap: u64, path: PathBuf, free: u64) -> Arc<Budget> {
        Arc::new(Budget {
            cap,
            parent: None,
            floor: Some(Floor { path, free }),
            used: Mutex::default(),
        })
    }

    /// Takes `bytes` from this budget and all above it, or nothing from any.
    pub fn reserve(&self, bytes: u64) -> bool {
        {
            let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
            if used.bytes.saturating_add(bytes) > self.cap || !self.floor_holds(&mut used, bytes) {
                return false;
            }
            used.bytes += bytes;
        }
        if self.parent.as_ref().is_none_or(|p| p.reserve(bytes)) {
            return true;
        }
        self.give_back_here(bytes);
        false
    }

    /// Counts bytes that are on the disk already, whether they fit or not: after a restart.
    pub fn charge(&self, bytes: u64) {
        self.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes += bytes;
        if let Some(parent) = &self.parent {
            parent.charge(bytes);
        }
    }

    /// Gives bytes back, here and above.
    pub fn release(&self, bytes: u64) {
        self.give_back_here(bytes);
        if let Some(parent) = &self.parent {
            parent.release(bytes);
        }
    }

    /// Bytes taken at present.
    pub fn used(&self) -> u64 {
        self.used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .bytes
    }

    fn give_back_here(&self, bytes: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        used.bytes = used.bytes.saturating_sub(bytes);
    }

    fn floor_holds(&self, used: &mut Used, bytes: u64) -> bool {
        let Some(floor) = &self.floor else {
            return true;
        };
        let unseen = used.unseen.map_or(u64::MAX, |u| u.saturating_add(bytes));
        if unseen < LOOK_EVERY {
            used.unseen = Some(unseen);
            return true;
        }
        // A disk that cannot be asked is no reason to refuse: the write itself will tell.
        let holds = fs2::available_space(&floor.path)
            .map_or(true, |free| free.saturating_sub(bytes) >= floor.free);
        used.unseen = holds.then_some(0);
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_above_takes_nothing_below() {
        let user = Budget::new(10, None);
        let session = Budget::new(100, Some(Arc::clone(&user)));
        assert!(session.reserve(8));
        assert!(!session.reserve(3));
        assert_eq!((session.used(), user.used()), (8, 8));
        session.release(8);
        assert_eq!((session.used(), user.used()), (0, 0));
    }

    #[test]
    fn a_disk_below_its_floor_refuses() {
        let full = Budget::with_floor(u64::MAX, "/".into(), u64::MAX);
        assert!(!full.reserve(1));
        let free = Budget::with_floor(u64::MAX, "/".into(), 0);
        assert!(free.reserve(1));
    }
}
