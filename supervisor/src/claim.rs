//! Ends of which an answer tells the owner of the job: once the answer is on its way, no notice tells them again.
//!
//! A claim is held while its request is served, and lost with it: an end that nobody was told of because the request was
//! cancelled is noticed after all.

use std::{cell::RefCell, sync::Arc};

use ostler_proto::job::Row;

use crate::{caller::Caller, job::Job, registry::Admission};

tokio::task_local! {
    /// What the answer of the request that is being served tells.
    static TOLD: RefCell<Vec<Claim>>;
}

/// A claim on the notice of the end of one job.
pub(crate) struct Claim {
    caller: Caller,
    job: Arc<Job>,
}

impl Claim {
    /// None for who is not the owner, and for an owner who confirms what it was told by itself.
    pub(crate) fn of(caller: &Caller, job: &Arc<Job>) -> Option<Self> {
        if caller.confirms(job) || !caller.owns(job) {
            return None;
        }
        job.claims.hold();
        Some(Self {
            caller: caller.clone(),
            job: Arc::clone(job),
        })
    }

    /// The answer of this request shows that the job has ended.
    pub(crate) fn told(self) {
        // What is done for no request has no answer: the claim is lost.
        let _ = TOLD.try_with(|told| told.borrow_mut().push(self));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.job.claims.let_go() {
            self.caller.house().registry.notice_again(&self.job);
        }
    }
}

/// The answer of this request shows that this job has ended, if it has.
pub(crate) fn told(caller: &Caller, job: &Arc<Job>) {
    if job.status().finished.is_some()
        && let Some(claim) = Claim::of(caller, job)
    {
        claim.told();
    }
}

/// The row with which a start is answered; whoever reads in it that the job never ran needs no notice of that.
pub(crate) fn started(caller: &Caller, admission: &Admission) -> Row {
    let row = admission.row();
    if row.spawn_error.is_some() {
        told(caller, admission.job());
    }
    row
}

/// Serves a request; returns what its answer tells besides.
pub(crate) async fn collect<T>(serve: impl Future<Output = T>) -> (T, Told) {
    let serve = async {
        let served = serve.await;
        (served, Told(TOLD.with(RefCell::take)))
    };
    TOLD.scope(RefCell::default(), serve).await
}

/// Ends of which an answer tells.
#[must_use = "what is not settled is noticed"]
pub(crate) struct Told(Vec<Claim>);

impl Told {
    /// The answer is on its way.
    pub(crate) fn settle(self) {
        // One that has gone to another owner meanwhile is news to that one.
        let own = |claim: &Claim| claim.caller.owns(&claim.job);
        for claim in self.0.into_iter().filter(own) {
            claim.caller.house().registry.notice_no_more(&claim.job);
        }
    }
}
