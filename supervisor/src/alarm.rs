//! A timer that is kept from one wait to the next.
//!
//! To set a timer may wake a thread, which looks whether it must sleep less; to put off one that is still set wakes nobody.
//! Who waits again and again for moments, as for the lines of a shell, takes the same one each time. Nobody owns it
//! between two waits: it rings for nobody then, once.

use std::{
    pin::Pin,
    sync::{Mutex, PoisonError},
};

use tokio::time::{Instant, Sleep, sleep_until};

/// The timer, while nobody waits with it.
#[derive(Debug, Default)]
pub(crate) struct Alarm(Mutex<Option<Pin<Box<Sleep>>>>);

/// The timer of one wait.
#[derive(Debug)]
pub(crate) struct Taken<'a> {
    from: &'a Alarm,
    /// Until it is given back.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Alarm {
    /// The timer, or one more where somebody else waits with it. It is set by [`Taken::at`].
    pub(crate) fn take(&self) -> Taken<'_> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        Taken {
            from: self,
            sleep: kept,
        }
    }
}

impl Taken<'_> {
    /// Comes then.
    pub(crate) async fn at(&mut self, then: Instant) {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(then)));
        if sleep.deadline() != then || sleep.is_elapsed() {
            sleep.as_mut().reset(then);
        }
        sleep.as_mut().await;
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut kept = self.from.0.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = self.sleep.take();
    }
}
