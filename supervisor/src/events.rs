//! What happens to jobs, in one order, for those who watch. Kept only while somebody does.
//!
//! An event is written before anybody who waits for the job hears of the same change, so a watcher that is not
//! behind never learns of an end from elsewhere first. A watcher is a number: a slow one costs nothing and is told
//! how many events it missed.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use ostler_proto::{
    job::Row,
    limits,
    methods::{Event, Happened},
};
use tokio::sync::watch;

/// Numbers of one life of the supervisor. Together with the lives that a house can have they stay below 2^53, up to
/// which every reader of JSON has them exactly.
const LIFE_BITS: u32 = 36;

/// The events of a house.
#[derive(Debug)]
pub(crate) struct Events {
    /// Numbers up to this one are of an earlier life of the supervisor.
    before: u64,
    inner: Mutex<Inner>,
    news: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Number of the newest event.
    last: u64,
    kept: VecDeque<Arc<Kept>>,
    watchers: usize,
}

/// An event, and whose it is: sessions by what tells them from every other one, since their ids change.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) event: Event,
    pub(crate) session: String,
    /// The session that the job was taken from.
    pub(crate) before: Option<String>,
}

/// Where a job was before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From<'a> {
    pub(crate) session: &'a str,
    /// `SESSION/t1`.
    pub(crate) name: &'a str,
}

/// What stands behind a cursor.
#[derive(Debug)]
pub(crate) enum Next {
    Event(Arc<Kept>),
    /// So many are gone, 0 where nobody knows; go on behind `seq`.
    Missed {
        count: u64,
        seq: u64,
    },
    Nothing,
}

/// Somebody who watches; events are kept while there is one.
pub(crate) struct Watcher {
    events: Arc<Events>,
    news: watch::Receiver<u64>,
}

impl Events {
    /// Those of this life of the supervisor. Each has numbers of its own: with those of an earlier one, somebody who
    /// goes on would be told that he missed nothing.
    pub(crate) fn new(generation: u64) -> Arc<Self> {
        let before = generation.saturating_sub(1) << LIFE_BITS;
        Arc::new(Self {
            before,
            inner: Mutex::new(Inner {
                last: before,
                ..Inner::default()
            }),
            news: watch::Sender::new(0),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what happened to a job of this session; `row` is asked for only if somebody watches. `from`: where
    /// it was before.
    pub(crate) fn tell(
        &self,
        what: Happened,
        session: &str,
        from: Option<From<'_>>,
        row: impl FnOnce() -> Row,
    ) {
        let last = {
            let mut inner = self.lock();
            inner.last += 1;
            if inner.watchers == 0 {
                return;
            }
            let event = Event {
                seq: inner.last,
                what,
                row: Some(Box::new(row())),
                from: from.map(|f| f.name.into()),
                missed: None,
            };
            inner.kept.push_back(Arc::new(Kept {
                event,
                session: session.into(),
                before: from.map(|f| f.session.into()),
            }));
            if inner.kept.len() > limits::events() {
                inner.kept.pop_front();
            }
            inner.last
        };
        self.news.send_replace(last);
    }

    /// Wakes those who watch: a session that they may watch is gone.
    pub(crate) fn stir(&self) {
        self.news.send_modify(|_| {});
    }

    /// The number of the newest event.
    pub(crate) fn newest(&self) -> u64 {
        self.lock().last
    }

    /// Begins to watch; the number of the newest event is where it begins.
    pub(crate) fn watch(self: &Arc<Self>) -> (Watcher, u64) {
        let mut inner = self.lock();
        inner.watchers += 1;
        let watcher = Watcher {
            events: Arc::clone(self),
            news: self.news.subscribe(),
        };
        (watcher, inner.last)
    }
}

impl Watcher {
    /// What stands behind `seq`.
    pub(crate) fn after(&self, seq: u64) -> Next {
        let inner = self.events.lock();
        if seq == inner.last {
            return Next::Nothing;
        }
        // A number from another life of the supervisor, or older than what is kept.
        let first = inner.last + 1 - inner.kept.len() as u64;
        if seq > inner.last || seq + 1 < first {
            // Of those of an earlier life nobody knows how many there were, whatever has happened in this one.
            let known = seq >= self.events.before;
            let count = if known {
                (first - 1).saturating_sub(seq)
            } else {
                0
            };
            return Next::Missed {
                count,
                seq: first - 1,
            };
        }
        match inner.kept.get((seq + 1 - first) as usize) {
            Some(event) => Next::Event(Arc::clone(event)),
            None => Next::Nothing,
        }
    }

    /// Waits for something new since the last look.
    pub(crate) async fn changed(&mut self) {
        // The sender lives in the events that this holds.
        let _ = self.news.changed().await;
    }

    /// What happened up to now is no news.
    pub(crate) fn seen(&mut self) {
        self.news.mark_unchanged();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let mut inner = self.events.lock();
        inner.watchers -= 1;
        if inner.watchers == 0 {
            inner.kept = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        serde_json::from_value(serde_json::json!({
            "id": "t1", "processId": "proc_1", "session": { "id": "s", "name": "s" }, "kind": "command",
            "state": "running", "outcome": null, "exitCode": null, "signal": null, "ok": null,
            "timedOut": false, "cancelled": false, "pid": null, "executable": "x", "args": ["x"],
            "cwd": "/", "startedAt": 0, "finishedAt": null, "durationMs": null, "sleptMs": 0,
            "encoding": "utf-8", "output": { "start": 0, "end": 0, "atExit": null, "lost": 0, "spill": null },
            "tree": { "rung": "cookie", "left": 0 },
        }))
        .unwrap()
    }

    fn tell(events: &Events, n: usize) {
        (0..n).for_each(|_| events.tell(Happened::Running, "key", None, row));
    }

    #[test]
    fn a_watcher_gets_every_event_in_order_from_where_it_began() {
        let events = Events::new(1);
        tell(&events, 3);
        let (watcher, begun) = events.watch();
        assert_eq!(begun, 3);
        tell(&events, 2);
        let Next::Event(first) = watcher.after(3) else {
            panic!("it was told")
        };
        assert_eq!(first.event.seq, 4);
        assert!(matches!(watcher.after(4), Next::Event(e) if e.event.seq == 5));
        assert!(matches!(watcher.after(5), Next::Nothing));
    }

    #[test]
    fn who_is_behind_is_told_how_much_is_gone() {
        let events = Events::new(1);
        tell(&events, 7);
        let (watcher, _) = events.watch();
        // What happened before anybody watched was not kept.
        assert!(matches!(
            watcher.after(2),
            Next::Missed { count: 5, seq: 7 }
        ));
        tell(&events, limits::events() + 10);
        assert!(matches!(
            watcher.after(7),
            Next::Missed { count: 10, seq: 17 }
        ));
        assert!(matches!(watcher.after(17), Next::Event(e) if e.event.seq == 18));
    }

    #[test]
    fn a_number_from_another_life_is_answered_as_missed() {
        let events = Events::new(1);
        let (watcher, _) = events.watch();
        tell(&events, 1);
        assert!(matches!(watcher.after(900), Next::Missed { .. }));
        // As many in the new life as in the old one, and more.
        for n in [3, 5] {
            let events = Events::new(2);
            // Its jobs are told before anybody comes.
            tell(&events, 2);
            let (watcher, begun) = events.watch();
            tell(&events, n);
            let Next::Missed { count: 0, seq } = watcher.after(3) else {
                panic!("nobody knows what happened in between")
            };
            assert_eq!(seq, begun);
            assert!(matches!(watcher.after(seq), Next::Event(e) if e.event.seq == begun + 1));
        }
    }

    #[test]
    fn nothing_is_kept_when_nobody_watches() {
        let events = Events::new(1);
        let (watcher, _) = events.watch();
        tell(&events, 5);
        drop(watcher);
        events.tell(Happened::Running, "key", None, || {
            panic!("nobody wants a row")
        });
        assert!(events.lock().kept.is_empty());
    }
}
