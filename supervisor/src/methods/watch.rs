//! `session/watch`: what happens to jobs, streamed in order.

use ostler_proto::{
    methods::{Event, Happened, Progress, SessionWatch, WatchEnd, WatchSession},
    refusal::{Refusal, RefusalKind},
};
use serde_json::Value;

use super::{Serve, notification::Notification};
use crate::{
    caller::Caller,
    events::{Next, Watcher},
    outbox::Gone,
};

/// One stream of events.
struct Watching {
    caller: Caller,
    watcher: Watcher,
    /// The one session that is watched; its id changes with a rename. None: all that the connection sees.
    session: Option<String>,
    token: Value,
    seq: u64,
}

impl Serve for SessionWatch {
    async fn serve(caller: Caller, params: WatchSession) -> Result<WatchEnd, Refusal> {
        let token = super::token(params.partial_result_token)?;
        let registry = &caller.house().registry;
        let session = if params.all {
            None
        } else {
            Some(registry.id_of(params.session.as_deref(), &caller.access())?)
        };
        let (watcher, newest) = registry.events.watch();
        let mut watching = Watching {
            caller,
            watcher,
            session,
            token,
            seq: params.since.unwrap_or(newest),
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
        loop {
            self.watcher.seen();
            while self.tell().await? {}
            if self.is_closed() {
                return Ok(());
            }
            self.watcher.changed().await;
        }
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
            Next::Event(event) => {
                self.seq = event.seq;
                if !self.concerns(&event) {
                    return Ok(true);
                }
                Event::clone(&event)
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

    fn concerns(&mut self, event: &Event) -> bool {
        let Some(row) = &event.row else { return true };
        let id = &row.session.id;
        let Some(watched) = &mut self.session else {
            let registry = &self.caller.house().registry;
            return registry.sees(&self.caller.access(), id);
        };
        let from = event.from.as_deref().and_then(|f| f.split_once('/'));
        let left = from.is_some_and(|(session, _)| session == watched);
        if left {
            // A rename takes its watchers along; an adoption ends the session, and this stream with it.
            let registry = &self.caller.house().registry;
            if registry.sees(&self.caller.access(), id) {
                watched.clone_from(id);
            }
        }
        left || id == watched
    }

    fn is_closed(&self) -> bool {
        let registry = &self.caller.house().registry;
        let watched = self.session.as_deref();
        watched.is_some_and(|id| !(registry.has(id) && registry.sees(&self.caller.access(), id)))
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
