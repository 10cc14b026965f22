//! `job/run`: start, stream, wait, collect in one request. Only here does a tree end with its request.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    job::{JobResult, Retry, Row},
    limits,
    methods::{JobRun, Progress, Run},
    refusal::{Refusal, RefusalKind},
};

use serde_json::Value;

use super::{
    Serve,
    attach::{Seat, check_name},
    output::Follower,
    start::{admit, begun, result},
};
use crate::{
    caller::Caller,
    job::{Job, Who},
    life::plan::within,
    log::Filter,
    terminal::Guest,
};

/// A request's hold on its run. Letting go of the last one ends the tree, unless it was detached.
struct Hold {
    job: Arc<Job>,
    caller: Caller,
}

impl Hold {
    fn new(job: Arc<Job>, caller: Caller) -> Self {
        job.hold();
        Self { job, caller }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let job = &self.job;
        if job.let_go() && job.status().finished.is_none() {
            // Who cancels it knows. Of one that is gone somebody else may want to hear.
            let who = Who::asked("client", Some("its request is gone".into()));
            job.want_stop(job.spec.grace_ms, who.silent(!self.caller.is_gone()));
        }
    }
}

/// A run under way.
pub(super) struct Running {
    caller: Caller,
    /// What there was to know of it when it was asked for again.
    retry: Option<Retry>,
    hold: Hold,
    _seat: Option<Seat>,
    token: Option<Value>,
    pages: bool,
    raw: bool,
    since: u64,
    wait_ms: Option<u64>,
    collect: bool,
}

impl Running {
    /// Starts it. From here on, letting go of it ends its tree.
    ///
    /// # Errors
    /// As of a start.
    pub(super) async fn begin(caller: Caller, params: Run) -> Result<Self, Refusal> {
        within("waitMs", params.wait_ms, 1, limits::WAIT_MAX)?;
        if let Some(name) = &params.seat {
            check_name("seat", name)?;
            if params.start.pty.is_none() {
                return Err(Refusal::bad("seat", "needs `start.pty`"));
            }
        }
        let admission = admit(&caller, params.start, true)?;
        let job = Arc::clone(admission.job());
        let hold = Hold::new(Arc::clone(&job), caller.clone());
        // Before its first byte: a question in that is for whoever sits there.
        let seat = params.seat.map(|name| sit(&job, name)).transpose()?;
        begun(&job).await;
        Ok(Self {
            caller,
            retry: admission.retry(),
            hold,
            _seat: seat,
            token: params.partial_result_token,
            pages: params.pages.unwrap_or(true),
            raw: params.raw,
            since: params.since,
            wait_ms: params.wait_ms,
            collect: params.collect.unwrap_or(true),
        })
    }

    pub(super) fn job(&self) -> &Arc<Job> {
        &self.hold.job
    }

    /// Tells it if there is a token, and waits for its end, or until it goes on in the background.
    ///
    /// # Errors
    /// The client is gone.
    pub(super) async fn finish(self) -> Result<JobResult, Refusal> {
        let job = Arc::clone(self.job());
        let mut unbound = job.watch_bound();
        let over = self.tell();
        let detach = tokio::time::sleep(Duration::from_millis(
            self.wait_ms.unwrap_or(limits::WAIT_MAX),
        ));
        let gone = || Refusal::new(RefusalKind::Cancelled, "the client is gone");
        let detached = tokio::select! {
            told = over => { told.map_err(|_| gone())?; false }
            Ok(_) = unbound.wait_for(|bound| !bound) => true,
            () = detach, if self.wait_ms.is_some() => {
                self.caller.house().unbind(&job);
                true
            }
        };
        drop(self.hold);
        let mut result = result(&job, self.collect);
        result.detached = detached && !result.row.is_over();
        result.row.retry = self.retry;
        Ok(result)
    }

    /// Streams if there is a token, and returns when the result stands.
    async fn tell(&self) -> Result<(), crate::outbox::Gone> {
        let job = self.job();
        if let Some(token) = self.token.clone() {
            let mut follower =
                Follower::new(&self.caller, job, token, Filter::All, self.raw, self.since);
            let row = Row {
                retry: self.retry.clone(),
                ..job.row()
            };
            follower.send(&Progress::Started(Box::new(row))).await?;
            if self.pages {
                follower.follow().await?;
            }
        }
        let mut status = job.watch();
        // The sender lives in the job that we hold.
        let _ = status.wait_for(|s| s.finished.is_some()).await;
        Ok(())
    }
}

impl Serve for JobRun {
    async fn serve(caller: Caller, params: Run) -> Result<JobResult, Refusal> {
        Running::begin(caller, params).await?.finish().await
    }
}

/// A place before the job's own terminal, with the window that it has.
fn sit(job: &Arc<Job>, name: String) -> Result<Seat, Refusal> {
    let guest = Guest {
        who: "the user".into(),
        seat: Some(name),
        take: false,
        window: Some(job.window()),
    };
    Seat::take(job, guest)
}
