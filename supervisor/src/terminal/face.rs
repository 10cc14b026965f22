//! What is seen on the terminal of one job, whether or not somebody looks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_proto::job::Size;

use super::{Easel, Modes, Query};

/// Questions of a program that may wait for an answer; one that asks more gets none.
const QUESTIONS: usize = 32;

/// The window of a terminal of which nobody knows it any more.
const WINDOW: Size = Size { rows: 24, cols: 80 };

/// The face of a terminal.
#[derive(Debug, Default)]
pub(crate) struct Face {
    /// What the program has asked of its terminal last.
    pub(crate) modes: Modes,
    /// The screen, while it is looked at.
    pub(crate) easel: Easel,
    asked: Mutex<Asked>,
    window: Mutex<Option<Size>>,
}

#[derive(Debug, Default)]
struct Asked {
    /// Each with the offset of the log behind it.
    waiting: Vec<(u64, Query)>,
    /// Somebody answers.
    served: bool,
}

impl Face {
    /// The program has asked. True when nobody answers yet: the caller does, until [`Face::next`] has no more.
    pub(crate) fn ask(&self, questions: impl IntoIterator<Item = (u64, Query)>) -> bool {
        let mut asked = self.asked();
        let room = QUESTIONS - asked.waiting.len().min(QUESTIONS);
        asked.waiting.extend(questions.into_iter().take(room));
        !std::mem::replace(&mut asked.served, true)
    }

    /// The oldest question; with none left, the one who answers is done.
    pub(crate) fn next(&self) -> Option<(u64, Query)> {
        let mut asked = self.asked();
        if asked.waiting.is_empty() {
            asked.served = false;
            return None;
        }
        Some(asked.waiting.remove(0))
    }

    /// The terminal had this window when it was last seen.
    pub(crate) fn was(&self, window: Size) {
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Some(window);
    }

    /// The last window that is known, else the usual one.
    pub(crate) fn last_window(&self) -> Size {
        let window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.unwrap_or(WINDOW)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_answered_in_order_by_one() {
        let face = Face::default();
        assert!(face.ask([(1, Query::Primary), (2, Query::Status)]));
        assert!(!face.ask([(3, Query::Version)]), "somebody is at it");
        let order: Vec<u64> = std::iter::from_fn(|| face.next())
            .map(|(at, _)| at)
            .collect();
        assert_eq!(order, [1, 2, 3]);
        assert!(face.ask([(4, Query::Primary)]), "nobody is any more");
        face.ask(vec![(5, Query::Primary); 1_000]);
        assert_eq!(std::iter::from_fn(|| face.next()).count(), QUESTIONS);
    }
}
