//! `session/watch`: what happens to jobs, streamed in order.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use ostler_proto::{
    limits,
    methods::{Event, Happened, Progress, SessionWatch, WatchEnd, WatchSession},
    refusal::{Refusal, RefusalKind},
};
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{Serve, notification::Notification, start};
use crate::{
    caller::Caller,
    events::{Kept, Next, Watcher},
    life::plan::within,
    outbox::Gone,
};

/// The sessions that are watched, by their keys: an id changes with a rename, and may be another session's later.
enum Whose {
    One(String),
    /// All that the connection sees, and those that it saw: the removal of a job is told after its session is gone.
    Seen(HashSet<String>),
}

/// One stream of events.
struct Watching {
    caller: Caller,
    watcher: Watcher,
    whose: Whose,
    token: Value,
    seq: u64,
    /// Says how far it has told to those who answer on this connection.
    told: watch::Sender<u64>,
    heartbeat: Option<Duration>,
}

impl Serve for SessionWatch {
    async fn serve(caller: Caller, params: WatchSession) -> Result<WatchEnd, Refusal> {
        let token = super::token(params.partial_result_token)?;
        let least = limits::HEARTBEAT_LEAST;
        within("heartbeatMs", params.heartbeat_ms, least, limits::WAIT_MAX)?;
        let registry = &caller.house().registry;
        let whose = if params.all {
            Whose::Seen(registry.keys(&caller.access()).into_iter().collect())
        } else {
            Whose::One(registry.key_of(params.session.as_deref(), &caller.access())?)
        };
        let (watcher, newest) = registry.events.watch();
        let seq = params.since.unwrap_or(newest);
        let mut watching = Watching {
            told: caller.watches(seq),
            caller,
            watcher,
            whose,
            token,
            seq,
            heartbeat: params.heartbeat_ms.map(Duration::from_millis),
        };
        let told = watching.run().await;
        told.map_err(|_| Refusal::new(RefusalKind::Cancelled, "the client is gone"))?;
        Ok(WatchEnd { seq: watching.seq })
    }
}

impl Watching {
    /// Tells until the session is closed, or handed to another one.
    async fn run(&mut self) -> Result<(), Gone> {
        let begun = bare(Happened::Watching, self.seq, None);
        self.send(begun).await?;
        let mut beat = Instant::now();
        loop {
            self.watcher.seen();
            // First: what is told of a session stands there before it is gone.
            let closed = self.is_closed();
            while self.tell().await? {
                self.told.send_replace(self.seq);
            }
            if closed {
                return Ok(());
            }
            let Some(pause) = self.heartbeat else {
                self.watcher.changed().await;
                continue;
            };
            tokio::select! {
                () = self.watcher.changed() => {}
                () = sleep_until(beat + pause) => {
                    self.beat().await?;
                    beat = Instant::now();
                }
            }
        }
    }

    /// Tells how each live job is.
    async fn beat(&mut self) -> Result<(), Gone> {
        let house = Arc::clone(self.caller.house());
        let mut live = house.registry.live();
        live.retain(|job| self.is_seen(&job.seat().key));
        // All at once: one walk over the processes of the machine does for many.
        let looks = live.iter().map(async |job| {
            let mut row = job.row();
            start::look(&house, job, &mut row.tree).await;
            row
        });
        for (job, row) in live.iter().zip(join_all(looks).await) {
            // It has ended while it was looked at: that is told, and no heart beats behind it.
            if job.is_finished() {
                continue;
            }
            let event = Event {
                row: Some(Box::new(row)),
                ..bare(Happened::Heartbeat, self.seq, None)
            };
            self.send(event).await?;
        }
        Ok(())
    }

    /// Tells one event; false when there is none. The place comes first: a slow client is a number.
    async fn tell(&mut self) -> Result<bool, Gone> {
        if matches!(self.watcher.after(self.seq), Next::Nothing) {
            return Ok(false);
        }
        let outbox = self.caller.outbox().clone();
        let place = outbox.reserve().await?;
        let event = match self.watcher.after(self.seq) {
            Next::Nothing => return Ok(false),
            Next::Missed { count, seq } => {
                self.seq = seq;
                bare(Happened::Missed, seq, Some(count))
            }
            Next::Event(kept) => {
                self.seq = kept.event.seq;
                if !self.concerns(&kept) {
                    return Ok(true);
                }
                kept.event.clone()
            }
        };
        place.send(&Notification::of(
            &self.token,
            &Progress::Event(Box::new(event)),
        ));
        Ok(true)
    }

    async fn send(&self, event: Event) -> Result<(), Gone> {
        let place = self.caller.outbox().reserve().await?;
        place.send(&Notification::of(
            &self.token,
            &Progress::Event(Box::new(event)),
        ));
        Ok(())
    }

    fn concerns(&mut self, kept: &Kept) -> bool {
        match &self.whose {
            Whose::One(key) => kept.session == *key || kept.before.as_ref() == Some(key),
            Whose::Seen(_) => self.is_seen(&kept.session),
        }
    }

    /// The session of this key is one of those that are watched.
    fn is_seen(&mut self, session: &str) -> bool {
        match &mut self.whose {
            Whose::One(key) => session == key,
            Whose::Seen(keys) => {
                if keys.contains(session) {
                    return true;
                }
                let (registry, access) = (&self.caller.house().registry, self.caller.access());
                let sees = registry.sees(&access, session);
                // The owner sees what is gone as well: nothing is to be kept for him.
                if sees && !access.owner {
                    keys.insert(session.to_owned());
                }
                sees
            }
        }
    }

    /// It is over, or its jobs were handed to another one.
    fn is_closed(&self) -> bool {
        match &self.whose {
            Whose::One(key) => !self.caller.house().registry.has(key),
            Whose::Seen(_) => false,
        }
    }
}

/// An event of the stream itself.
fn bare(what: Happened, seq: u64, missed: Option<u64>) -> Event {
    Event {
        seq,
        what,
        row: None,
        from: None,
        missed,
    }
}
