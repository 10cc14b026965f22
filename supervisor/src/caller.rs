//! Who asks: the house, what this connection may see, and where answers go. Every handler is given one.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::sync::watch;

use crate::{
    editor::Editor, house::House, job::Job, outbox::Outbox, owner::Owner, registry::Access,
};

/// What every handler is given: the house, what this connection may see, and its outbox.
#[derive(Clone)]
pub(crate) struct Caller {
    inner: Arc<Inner>,
}

struct Inner {
    house: Arc<House>,
    access: Mutex<Access>,
    outbox: Outbox,
    /// The sub-agents that this connection speaks as; none, once it is gone.
    agents: Mutex<Option<Vec<Arc<Job>>>>,
    /// How far each of its streams of events has told.
    told: Mutex<Vec<watch::Receiver<u64>>>,
    editor: Editor,
    gone: AtomicBool,
}

impl Caller {
    pub(crate) fn new(house: Arc<House>, outbox: Outbox) -> Self {
        house.registry.connection_came();
        Self {
            inner: Arc::new(Inner {
                house,
                access: Mutex::default(),
                outbox,
                agents: Mutex::new(Some(Vec::new())),
                told: Mutex::default(),
                editor: Editor::default(),
                gone: AtomicBool::new(false),
            }),
        }
    }

    /// The connection is gone.
    pub(crate) fn leave(&self) {
        let house = &self.inner.house;
        for lease in house.registry.connection_went(&self.access()) {
            house.run_lease(lease);
        }
        let agents = self.agents().take();
        for job in agents.into_iter().flatten() {
            job.owner.iter().for_each(Owner::let_go);
        }
    }

    /// From here on until it is gone, this connection speaks as a sub-agent. A request that is served still when it
    /// has gone holds nothing: nobody would let go.
    pub(crate) fn speak_as(&self, job: &Arc<Job>) {
        let mut agents = self.agents();
        let Some(agents) = agents.as_mut() else {
            return;
        };
        agents.retain(|known| known.is_live());
        if !agents.iter().any(|known| Arc::ptr_eq(known, job)) {
            job.owner.iter().for_each(Owner::hold);
            agents.push(Arc::clone(job));
        }
    }

    fn agents(&self) -> MutexGuard<'_, Option<Vec<Arc<Job>>>> {
        let agents = self.inner.agents.lock();
        agents.unwrap_or_else(PoisonError::into_inner)
    }

    /// This connection has a stream of events, which says here how far it has told, until it is dropped.
    pub(crate) fn watches(&self, seq: u64) -> watch::Sender<u64> {
        let (told, far) = watch::channel(seq);
        let mut streams = self.streams();
        streams.retain(|stream| stream.has_changed().is_ok());
        streams.push(far);
        told
    }

    /// Waits until every event up to now stands in the outbox, on each stream of this connection. False: it has none.
    pub(crate) async fn events_told(&self) -> bool {
        let streams = self.streams().clone();
        let newest = self.house().registry.events.newest();
        let mut watches = false;
        for mut stream in streams {
            // One that ends tells nothing more.
            watches |= stream.wait_for(|told| *told >= newest).await.is_ok();
        }
        watches
    }

    fn streams(&self) -> MutexGuard<'_, Vec<watch::Receiver<u64>>> {
        let told = self.inner.told.lock();
        told.unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn house(&self) -> &Arc<House> {
        &self.inner.house
    }

    /// Tells whether a job is in a session of this connection's own.
    pub(crate) fn owns(&self, job: &Job) -> bool {
        self.inner.house.registry.owns(&self.access(), job)
    }

    /// Tells whether this connection confirms the notices of a job's session.
    pub(crate) fn confirms(&self, job: &Job) -> bool {
        self.inner.house.registry.confirms(&self.access(), job)
    }

    /// The client is gone; what is dropped from here on was not cancelled by it.
    pub(crate) fn hang_up(&self) {
        self.inner.gone.store(true, Ordering::Release);
    }

    /// Tells whether the client is gone.
    pub(crate) fn is_gone(&self) -> bool {
        self.inner.gone.load(Ordering::Acquire)
    }

    pub(crate) fn outbox(&self) -> &Outbox {
        &self.inner.outbox
    }

    pub(crate) fn editor(&self) -> &Editor {
        &self.inner.editor
    }

    /// A copy of what this connection may see now.
    pub(crate) fn access(&self) -> Access {
        self.lock().clone()
    }

    /// Changes what this connection may see; for what is done in order alone.
    pub(crate) fn change_access<T>(&self, change: impl FnOnce(&mut Access) -> T) -> T {
        change(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Access> {
        self.inner
            .access
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
