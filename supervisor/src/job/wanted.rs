//! The *wanted* cell: how much is wanted of a job, from when on by force, and who wanted it first. It only rises.

use serde::{Deserialize, Serialize};

/// How much is wanted of a job. Only rises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Level {
    Run,
    Stop,
    Kill,
}

/// Why somebody wants the end of a job; decides the outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Cause {
    Asked,
    Timeout,
    Idle,
    OutputLimit,
    /// Supervisors died while restoring it.
    Quarantine,
}

/// Who wanted it first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Who {
    pub(crate) cause: Cause,
    pub(crate) by: String,
    pub(crate) reason: Option<String>,
    /// No notice tells of the end: its owner asked for it, or takes everything down.
    #[serde(default)]
    pub(crate) silent: bool,
}

impl Who {
    /// Something of ours wants it.
    pub(crate) fn ours(cause: Cause, by: &str) -> Self {
        Self {
            cause,
            by: by.into(),
            reason: None,
            silent: false,
        }
    }

    /// Somebody asked for it.
    pub(crate) fn asked(by: &str, reason: Option<String>) -> Self {
        Self {
            reason,
            ..Self::ours(Cause::Asked, by)
        }
    }

    /// The same, of which no notice tells if this is true.
    pub(crate) fn silent(self, silent: bool) -> Self {
        Self { silent, ..self }
    }
}

/// The *wanted* cell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) level: Level,
    /// Monotonic time from which force is allowed; only falls, until somebody asks again after a stop that was
    /// withstood.
    pub(crate) force_at: u64,
    /// The first one stays.
    pub(crate) who: Option<Who>,
    /// When it first rose, or was asked again.
    pub(crate) since: u64,
}

impl Wanted {
    /// Nothing of the job is to be looked at any more but its processes.
    pub(crate) fn is_quarantine(&self) -> bool {
        let who = self.who.as_ref();
        who.is_some_and(|who| who.cause == Cause::Quarantine)
    }

    pub(super) fn raise(&mut self, level: Level, force_at: u64, who: Who, now: u64) -> bool {
        let before = (self.level, self.force_at);
        if self.level == Level::Run {
            self.since = now;
        }
        self.level = self.level.max(level);
        self.force_at = self.force_at.min(force_at);
        self.who.get_or_insert(who);
        before != (self.level, self.force_at)
    }

    /// Another try, with a grace of its own unless force was wanted once.
    pub(super) fn renew(&mut self, grace_ms: u64, now: u64) {
        if grace_ms == 0 {
            self.level = Level::Kill;
        }
        let grace_ms = if self.level == Level::Kill {
            0
        } else {
            grace_ms
        };
        self.force_at = now.saturating_add(grace_ms);
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(by: &str) -> Who {
        Who::asked(by, None)
    }

    #[test]
    fn wanted_only_rises_and_its_first_cause_stays() {
        let mut w = Wanted {
            level: Level::Run,
            force_at: u64::MAX,
            who: None,
            since: 0,
        };
        assert!(w.raise(Level::Stop, 100, who("a"), 1));
        assert!(
            !w.raise(Level::Stop, 200, who("b"), 2),
            "a later deadline changes nothing"
        );
        assert!(
            w.raise(Level::Stop, 50, who("b"), 2),
            "a shorter one shortens"
        );
        assert!(w.raise(Level::Kill, 60, who("c"), 3));
        assert!(!w.raise(Level::Stop, 70, who("d"), 4));
        assert_eq!((w.level, w.force_at, w.since), (Level::Kill, 50, 1));
        assert_eq!(w.who, Some(who("a")));
    }

    #[test]
    fn another_try_has_its_own_grace_unless_force_was_wanted() {
        let mut w = Wanted {
            level: Level::Stop,
            force_at: 50,
            who: Some(who("a")),
            since: 1,
        };
        w.renew(100, 1_000);
        assert_eq!((w.level, w.force_at, w.since), (Level::Stop, 1_100, 1_000));
        w.renew(0, 2_000);
        assert_eq!((w.level, w.force_at), (Level::Kill, 2_000));
        w.renew(100, 3_000);
        assert_eq!((w.level, w.force_at, w.since), (Level::Kill, 3_000, 3_000));
        assert_eq!(w.who, Some(who("a")), "the first cause stays");
    }
}
