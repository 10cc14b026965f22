//! Who waits for the end of a job that is theirs is told of it by the answer, and claims its notice meanwhile.

use std::sync::atomic::{AtomicU32, Ordering};

/// The claims on the notice of one end: how many, and [`KEPT_BACK`].
#[derive(Debug, Default)]
pub(crate) struct Claims(AtomicU32);

/// Somebody who reads notices was not told of this one.
const KEPT_BACK: u32 = 1 << 31;

impl Claims {
    /// One more.
    pub(crate) fn hold(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// One less. True when none is left and the notice was kept back meanwhile: it is to be told yet, by a number that
    /// nobody can have confirmed.
    pub(crate) fn let_go(&self) -> bool {
        let last = |now: u32| now & !KEPT_BACK == 1;
        let before = self.update(|now| Some(if last(now) { 0 } else { now - 1 }));
        before.is_some_and(|before| last(before) && before & KEPT_BACK != 0)
    }

    /// Tells whether the notice is claimed, so that a reader of notices is not told of it.
    pub(crate) fn keeps_back(&self) -> bool {
        self.update(|now| (now > 0).then_some(now | KEPT_BACK))
            .is_some()
    }

    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> Option<u32> {
        let (set, fetch) = (Ordering::AcqRel, Ordering::Acquire);
        self.0.fetch_update(set, fetch, change).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_kept_back_is_told_when_the_last_claim_is_gone() {
        let claims = Claims::default();
        assert!(!claims.keeps_back());
        claims.hold();
        claims.hold();
        assert!(!claims.let_go());
        assert!(claims.keeps_back());
        assert!(claims.let_go());
        assert!(!claims.keeps_back());
        claims.hold();
        assert!(!claims.let_go(), "nobody had asked");
    }
}
