//! What is seen on the terminal of one job, whether or not somebody looks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_proto::job::Size;
use tokio::sync::Notify;

use super::{Easel, Modes, Query, echo::Echoes};

/// Questions of a program that may wait for an answer; one that asks more gets none.
const QUESTIONS: usize = 32;

/// The face of a terminal.
#[derive(Debug, Default)]
pub(crate) struct Face {
    /// What the program has asked of its terminal last.
    pub(crate) modes: Modes,
    /// What is seen in place of what it showed.
    pub(crate) echoes: Echoes,
    /// The screen, while it is looked at.
    pub(crate) easel: Easel,
    asked: Mutex<Asked>,
    window: Mutex<Option<Size>>,
    title: Mutex<Title>,
    rung: Mutex<Pace>,
    /// The terminal is there: at the start of the job, and when a new supervisor has taken it over.
    pub(crate) arrived: Notify,
}

/// What may be told no more often than a second: a program may ring and rename all the time.
#[derive(Debug, Default)]
struct Pace(Option<u64>);

impl Pace {
    const EVERY: u64 = 1_000;

    fn is_due(&mut self, now: u64) -> bool {
        let due = self.0.is_none_or(|last| now >= last + Self::EVERY);
        if due {
            self.0 = Some(now);
        }
        due
    }
}

#[derive(Debug, Default)]
struct Title {
    text: Option<String>,
    pace: Pace,
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

    /// The title of its window, if the program gave it one.
    pub(crate) fn title(&self) -> Option<String> {
        lock(&self.title).text.clone()
    }

    /// Gives it a title; true where that is another one and is to be told.
    pub(crate) fn retitle(&self, text: String, now: u64) -> bool {
        let text = Some(text).filter(|text| !text.is_empty());
        let mut title = lock(&self.title);
        if title.text == text {
            return false;
        }
        title.text = text;
        title.pace.is_due(now)
    }

    /// The bell was rung; true where that is to be told.
    pub(crate) fn ring(&self, now: u64) -> bool {
        lock(&self.rung).is_due(now)
    }

    /// The terminal had this window when it was last seen.
    pub(crate) fn was(&self, window: Size) {
        *lock(&self.window) = Some(window);
    }

    /// The last window that was seen.
    pub(crate) fn last_window(&self) -> Option<Size> {
        *lock(&self.window)
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        lock(&self.asked)
    }
}

fn lock<T>(cell: &Mutex<T>) -> MutexGuard<'_, T> {
    cell.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bell_and_a_title_are_told_once_a_second_and_the_title_is_the_newest() {
        let face = Face::default();
        assert!(face.ring(10) && !face.ring(500) && face.ring(1_010));
        assert!(face.retitle("a".into(), 0));
        assert!(!face.retitle("a".into(), 5_000), "it is the same");
        assert!(face.retitle("b".into(), 5_000) && !face.retitle("c".into(), 5_500));
        assert_eq!(face.title().as_deref(), Some("c"));
        assert!(face.retitle(String::new(), 9_000));
        assert_eq!(face.title(), None);
    }

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
