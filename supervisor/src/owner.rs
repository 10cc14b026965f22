//! Who speaks as a sub-agent that no program stands for, what has been said of its end, and what it left behind.
//! Cells only: what follows from them is decided in [`crate::agent`].

use std::sync::OnceLock;

use tokio::sync::{Mutex, MutexGuard, watch};

/// The end of a sub-agent, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LastWord {
    /// As of a program.
    pub(crate) code: i32,
    /// In a line.
    pub(crate) reason: Option<String>,
}

/// The cells.
#[derive(Debug)]
pub(crate) struct Owner {
    /// Connections that speak as it.
    holders: watch::Sender<u32>,
    last_word: watch::Sender<Option<LastWord>>,
    turn: Mutex<()>,
    left_running: OnceLock<Vec<String>>,
    /// Token of its own session, in this life alone: who asks for the registration again has lost the answer.
    child_token: OnceLock<String>,
}

impl Owner {
    pub(crate) fn new() -> Self {
        Self {
            holders: watch::Sender::new(0),
            last_word: watch::Sender::new(None),
            turn: Mutex::new(()),
            left_running: OnceLock::new(),
            child_token: OnceLock::new(),
        }
    }

    /// A connection speaks as it from here on.
    pub(crate) fn hold(&self) {
        self.holders.send_modify(|n| *n += 1);
    }

    /// That connection is gone.
    pub(crate) fn let_go(&self) {
        self.holders.send_modify(|n| *n = n.saturating_sub(1));
    }

    /// The turn to speak: what was asked again beside the first must find it said, or not begun.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// How many speak as it.
    pub(crate) fn holders(&self) -> watch::Receiver<u32> {
        self.holders.subscribe()
    }

    /// Says how it ended; whoever has the turn, and has seen that nobody said it before.
    pub(crate) fn say_last(&self, word: LastWord) {
        self.last_word.send_replace(Some(word));
    }

    /// How it ended, as soon as that is said.
    pub(crate) fn last_word(&self) -> watch::Receiver<Option<LastWord>> {
        self.last_word.subscribe()
    }

    /// The token of its own session, where that was made by this supervisor.
    pub(crate) fn child_token(&self) -> Option<&String> {
        self.child_token.get()
    }

    /// Its own session was made, and this opens it.
    pub(crate) fn keep_child_token(&self, token: String) {
        let _ = self.child_token.set(token);
    }

    /// What went to the session that delegates and lives, as `SESSION/t1`.
    pub(crate) fn left_running(&self) -> &[String] {
        self.left_running.get().map_or(&[], Vec::as_slice)
    }

    /// Its jobs went to the session that delegates: those that live. The first word stays.
    pub(crate) fn leave_running(&self, names: Vec<String>) {
        let _ = self.left_running.set(names);
    }
}
