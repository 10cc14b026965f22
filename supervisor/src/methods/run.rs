//! `job/run`: start, stream, wait, collect in one request. Only here does a tree end with its request.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    job::JobResult,
    limits,
    methods::{JobRun, Progress, Run},
    refusal::{Refusal, RefusalKind},
};

use super::{
    Serve,
    attach::{Seat, check_name},
    output::Follower,
    start::{admit, begun, result},
};
use crate::{caller::Caller, job::Job, life::plan::within, log::Filter, terminal::Guest};

/// A request's hold on its run. Letting go of the last one ends the tree, unless it was detached.
struct Claim(Arc<Job>);

impl Claim {
    fn new(job: Arc<Job>) -> Self {
        job.claim();
        Self(job)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0.unclaim() && self.0.status().finished.is_none() {
            self.0.want_stop(
                self.0.spec.grace_ms,
                crate::job::Who::asked("client", Some("its request is gone".into())),
            );
        }
    }
}

impl Serve for JobRun {
    async fn serve(caller: Caller, params: Run) -> Result<JobResult, Refusal> {
        within("waitMs", params.wait_ms, 1, limits::WAIT_MAX)?;
        if let Some(name) = &params.seat {
            check_name("seat", name)?;
            if params.start.pty.is_none() {
                return Err(Refusal::bad("seat", "needs `start.pty`"));
            }
        }
        let job = admit(&caller, params.start, true)?;
        let claim = Claim::new(Arc::clone(&job));
        // Before its first byte: a question in that is for whoever sits there.
        let _seat = params.seat.map(|name| sit(&job, name)).transpose()?;
        begun(&job).await;
        let mut unbound = job.watch_bound();
        let over = tell(
            &caller,
            &job,
            params.partial_result_token,
            params.pages.unwrap_or(true),
            params.raw,
            params.since,
        );
        let detach = tokio::time::sleep(Duration::from_millis(
            params.wait_ms.unwrap_or(limits::WAIT_MAX),
        ));
        let gone = || Refusal::new(RefusalKind::Cancelled, "the client is gone");
        let detached = tokio::select! {
            told = over => { told.map_err(|_| gone())?; false }
            Ok(_) = unbound.wait_for(|bound| !bound) => true,
            () = detach, if params.wait_ms.is_some() => {
                job.unbind();
                true
            }
        };
        drop(claim);
        let mut result = result(&job, params.collect.unwrap_or(true));
        result.detached = detached && !result.row.is_over();
        Ok(result)
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

/// Streams if there is a token, and returns when the result stands.
async fn tell(
    caller: &Caller,
    job: &Arc<Job>,
    token: Option<serde_json::Value>,
    pages: bool,
    raw: bool,
    since: u64,
) -> Result<(), crate::outbox::Gone> {
    if let Some(token) = token {
        let mut follower = Follower::new(caller, job, token, Filter::All, raw, since);
        follower
            .send(&Progress::Started(Box::new(job.row())))
            .await?;
        if pages {
            follower.follow().await?;
        }
    }
    let mut status = job.watch();
    // The sender lives in the job that we hold.
    let _ = status.wait_for(|s| s.finished.is_some()).await;
    Ok(())
}
