//! Another image in the place of this supervisor.
//!
//! ```text
//!   image      opened, looked at, and asked by a run of its own (`verdict`) on copies of all that it would have to read
//!   keeper     starts it in standby; until it waits there, nothing has stopped
//!   going      the answer is out: no request is begun any more, no byte moves, the process ends
//! ```
//!
//! Here: the image and whose turn it is. The way out is the daemon's.

mod image;

mod verdict;

use tokio::sync::{Notify, watch};

pub(crate) use image::{Image, Past};
pub(crate) use verdict::give as check;

/// How far an upgrade has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    None,
    /// The image is being looked at.
    Checking,
    /// The keeper starts it.
    Starting,
    /// The end of the house was asked for meanwhile.
    CalledOff,
    /// This supervisor leaves.
    Going,
}

/// The one upgrade that can be under way.
#[derive(Debug)]
pub(crate) struct Upgrade {
    stage: watch::Sender<Stage>,
    answered: Notify,
}

impl Default for Upgrade {
    fn default() -> Self {
        Self {
            stage: watch::Sender::new(Stage::None),
            answered: Notify::new(),
        }
    }
}

/// Whoever has it may upgrade.
pub(crate) struct Turn<'a>(&'a Upgrade);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.stage.send_if_modified(|stage| {
            let over = *stage != Stage::Going;
            if over {
                *stage = Stage::None;
            }
            over
        });
    }
}

impl Turn<'_> {
    /// The image is good, the keeper starts it next. False: it was called off.
    pub(crate) fn start(&self) -> bool {
        self.0.step(Stage::Checking, Stage::Starting)
    }

    /// It waits: this supervisor leaves. False: it was called off.
    pub(crate) fn go(&self) -> bool {
        self.0.step(Stage::Starting, Stage::Going)
    }

    /// Comes when it is called off.
    pub(crate) async fn called_off(&self) {
        self.0.reached(Stage::CalledOff).await;
    }
}

impl Upgrade {
    /// Nothing when somebody else is at it.
    pub(crate) fn begin(&self) -> Option<Turn<'_>> {
        // Not made before it is known: one that is dropped takes the turn of the other away.
        self.step(Stage::None, Stage::Checking).then(|| Turn(self))
    }

    /// The end of the house was asked for. True when the keeper must be told that we stay.
    pub(crate) fn call_off(&self) -> bool {
        self.step(Stage::Checking, Stage::CalledOff);
        self.step(Stage::Starting, Stage::CalledOff)
    }

    /// Comes when this supervisor leaves.
    pub(crate) async fn going(&self) {
        self.reached(Stage::Going).await;
    }

    /// A request for an upgrade was granted, and the answer is among those that are to be written. Before this supervisor
    /// leaves that means nothing: then the build was the one that runs.
    pub(crate) fn note_answer(&self) {
        if *self.stage.borrow() == Stage::Going {
            self.answered.notify_one();
        }
    }

    /// Comes with that.
    pub(crate) async fn answered(&self) {
        self.answered.notified().await;
    }

    fn step(&self, from: Stage, to: Stage) -> bool {
        self.stage.send_if_modified(|stage| {
            let right = *stage == from;
            if right {
                *stage = to;
            }
            right
        })
    }

    async fn reached(&self, wanted: Stage) {
        // The sender lives in `self`, so that this ends by the value alone.
        let _ = self.stage.subscribe().wait_for(|s| *s == wanted).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer to one that came to nothing was taken for that of the next one, which then was cut off.
    #[test]
    fn only_the_answer_of_the_upgrade_that_goes_is_waited_for() {
        use futures_util::FutureExt;
        let upgrade = Upgrade::default();
        drop(upgrade.begin().expect("nobody is at it"));
        upgrade.note_answer();
        let turn = upgrade.begin().expect("that one is over");
        assert!(turn.start() && turn.go());
        assert!(upgrade.answered().now_or_never().is_none());
        upgrade.note_answer();
        assert!(upgrade.answered().now_or_never().is_some());
    }

    #[test]
    fn one_upgrade_at_a_time_and_none_beside_the_end_of_the_house() {
        let upgrade = Upgrade::default();
        let turn = upgrade.begin().expect("nobody is at it");
        assert!(upgrade.begin().is_none());
        assert!(upgrade.begin().is_none(), "the first is still at it");
        assert!(turn.start(), "who asked meanwhile has changed nothing");
        drop(turn);
        let turn = upgrade.begin().expect("the first is over");
        assert!(!upgrade.call_off(), "the keeper knows nothing of it yet");
        assert!(!turn.start());
        drop(turn);
        let turn = upgrade.begin().expect("that one is over as well");
        assert!(turn.start());
        assert!(upgrade.call_off(), "the keeper must be told");
        assert!(!turn.go());
        drop(turn);
        let turn = upgrade.begin().expect("and that one");
        assert!(turn.start() && turn.go());
        assert!(!upgrade.call_off(), "it is too late");
        drop(turn);
        assert!(upgrade.begin().is_none(), "who goes does nothing more");
    }
}
