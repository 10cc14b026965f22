//! Lines that were handed over to a shell, as the ledger has them: the next supervisor finds a line where the last one
//! left it, and who has lost the answer asks again with the key. The log says what came of each.

use std::collections::VecDeque;

use ostler_proto::{limits, shell::Exec};
use serde::{Deserialize, Serialize};

use crate::{clock::Moment, ledger::checksum};

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// What its marks say.
    pub(crate) number: u64,
    /// Where the log ended before it was typed.
    pub(crate) typed_at: u64,
    /// It was typed as it is, see [`super::talk::Line`].
    pub(crate) plain: bool,
    /// Where its output begins, if no mark will say so.
    pub(crate) output: Option<u64>,
    /// When.
    pub(crate) began: Moment,
    /// By what it can be asked for again.
    pub(crate) key: Option<String>,
    /// Checksum of its text.
    pub(crate) text: u64,
}

impl Handed {
    /// A line that is about to be typed.
    pub(crate) fn new(ask: &Exec, number: u64, typed_at: u64) -> Self {
        Self {
            number,
            typed_at,
            plain: false,
            output: None,
            began: Moment::now(),
            key: ask.key.clone(),
            text: checksum(ask.line.as_bytes()),
        }
    }

    /// It is what somebody asks for, whose key it has.
    pub(crate) fn is(&self, ask: &Exec) -> bool {
        self.text == checksum(ask.line.as_bytes())
    }
}

/// The newest lines of a shell, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandedLines(VecDeque<Handed>);

impl HandedLines {
    /// Adds the newest one.
    pub(crate) fn push(&mut self, handed: Handed) {
        self.0.push_back(handed);
        if self.0.len() > limits::SHELL_KEYS {
            self.0.pop_front();
        }
    }

    /// The one that has this key.
    pub(crate) fn of(&self, key: &str) -> Option<&Handed> {
        self.0.iter().rev().find(|h| h.key.as_deref() == Some(key))
    }

    /// The newest one.
    pub(crate) fn newest(&self) -> Option<&Handed> {
        self.0.back()
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Handed> {
        self.0.iter()
    }
}
