//! What was handed over to a shell, lines and texts, as the ledger has it: the next supervisor finds a line where the last
//! one left it, and who has lost the answer asks again with the key. The log says what came of each.

use std::collections::VecDeque;

use ostler_proto::{
    limits,
    shell::{Exec, Send},
};
use serde::{Deserialize, Serialize};

use crate::{clock::Moment, ledger::checksum};

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handed {
    /// Where the log ended before it was typed.
    pub(crate) typed_at: u64,
    /// A line; nothing: a text for whoever is in front.
    pub(crate) line: Option<HandedLine>,
    /// When.
    pub(crate) began: Moment,
    /// By what it can be asked for again.
    pub(crate) key: Option<String>,
    /// Checksum of it.
    pub(crate) text: u64,
    /// Something ran when it was typed, see [`super::talk::Talk::is_ahead`].
    pub(crate) ahead: bool,
}

/// What tells the end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandedLine {
    /// What its marks say.
    pub(crate) number: u64,
    /// It was typed as it is, see [`super::talk::Line`].
    pub(crate) plain: bool,
    /// Where its output begins, if no mark will say so.
    pub(crate) output: Option<u64>,
}

impl Handed {
    /// A line that is about to be typed.
    pub(crate) fn line(ask: &Exec, line: HandedLine, typed_at: u64) -> Self {
        Self {
            typed_at,
            line: Some(line),
            began: Moment::now(),
            key: ask.key.clone(),
            text: checksum(ask.line.as_bytes()),
            ahead: false,
        }
    }

    /// A text that is about to be typed.
    pub(crate) fn text(ask: &Send, typed_at: u64, ahead: bool) -> Self {
        Self {
            typed_at,
            line: None,
            began: Moment::now(),
            key: ask.key.clone(),
            text: typed(ask),
            ahead,
        }
    }

    /// It is this line.
    pub(crate) fn is_line(&self, line: &str) -> bool {
        self.line.is_some() && self.text == checksum(line.as_bytes())
    }

    /// It is this text.
    pub(crate) fn is_text(&self, ask: &Send) -> bool {
        self.line.is_none() && self.text == typed(ask)
    }
}

/// Checksum of all that is typed.
fn typed(ask: &Send) -> u64 {
    let keys = ask.keys.iter().flat_map(|key| ["\0", key.as_str()]);
    let enter = if ask.enter { "\r" } else { "" };
    let all: String = [ask.text.as_str(), enter].into_iter().chain(keys).collect();
    checksum(all.as_bytes())
}

/// The newest of a shell, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct HandedOnes(VecDeque<Handed>);

impl HandedOnes {
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

    /// The newest line.
    pub(crate) fn newest_line(&self) -> Option<&Handed> {
        self.0.iter().rev().find(|h| h.line.is_some())
    }

    /// All of them, oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Handed> {
        self.0.iter()
    }
}
