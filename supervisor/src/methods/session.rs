//! `session/*`.

use ostler_proto::{
    limits,
    methods::{
        AdoptSession, CloseSession, MovedSession, Nothing, Notices, OpenSession, OpenedSession,
        ReadNotices, RenameSession, SessionAdopt, SessionClose, SessionList, SessionNotices,
        SessionOpen, SessionRename, SessionTable, StopSummary,
    },
    refusal::Refusal,
};

use super::{Serve, stop::receipt};
use crate::{caller::Caller, house::settled, life::plan::within};

impl Serve for SessionOpen {
    async fn serve(caller: Caller, params: OpenSession) -> Result<OpenedSession, Refusal> {
        caller.change_access(|access| caller.house().registry.open(params, access))
    }
}

impl Serve for SessionList {
    async fn serve(caller: Caller, _: Nothing) -> Result<SessionTable, Refusal> {
        Ok(SessionTable {
            sessions: caller.house().registry.sessions(&caller.access()),
        })
    }
}

impl Serve for SessionRename {
    async fn serve(caller: Caller, params: RenameSession) -> Result<MovedSession, Refusal> {
        let registry = &caller.house().registry;
        let moved = registry.rename(params.session.as_deref(), &params.to, &caller.access())?;
        registry.trim(&moved.session.id);
        Ok(moved)
    }
}

impl Serve for SessionAdopt {
    async fn serve(caller: Caller, params: AdoptSession) -> Result<MovedSession, Refusal> {
        let registry = &caller.house().registry;
        let moved = registry.adopt(&params.session, params.into.as_deref(), &caller.access())?;
        registry.trim(&moved.session.id);
        Ok(moved)
    }
}

impl Serve for SessionNotices {
    async fn serve(caller: Caller, params: ReadNotices) -> Result<Notices, Refusal> {
        let registry = &caller.house().registry;
        let session = params.session.as_deref();
        Ok(Notices {
            notices: registry.notices(session, params.seen, &caller.access())?,
        })
    }
}

impl Serve for SessionClose {
    async fn serve(caller: Caller, params: CloseSession) -> Result<StopSummary, Refusal> {
        within("graceMs", params.grace_ms, 0, limits::GRACE_MAX)?;
        let registry = &caller.house().registry;
        let Some((key, jobs)) =
            registry.begin_close(params.session.as_deref(), &caller.access())?
        else {
            return Ok(StopSummary::default());
        };
        // It goes on when the asker does not: a session that is half closed is of use to nobody.
        let registry = std::sync::Arc::clone(registry);
        let grace = params.grace_ms.unwrap_or(limits::grace());
        let closing = tokio::spawn(async move {
            // Before anything is asked: one ends while another is waited for, and was no finished job for that.
            let over: Vec<bool> = jobs.iter().map(|j| j.is_finished()).collect();
            for job in jobs.iter().filter(|j| j.is_live()) {
                job.ask_stop(grace, crate::job::Who::asked("close", None).silent(true));
            }
            let mut receipts = Vec::new();
            for (job, was_over) in jobs.iter().zip(over) {
                // Its record goes with the session: the last word of its life comes first.
                if job.is_live() {
                    settled(job).await;
                }
                receipts.push(receipt(job, was_over));
            }
            if receipts.iter().all(|r| r.survivors.is_empty()) {
                registry.finish_close(&key);
            } else {
                registry.give_up_close(&key);
            }
            StopSummary {
                jobs: receipts,
                ..StopSummary::default()
            }
        });
        closing.await.map_err(|_| {
            Refusal::new(
                ostler_proto::refusal::RefusalKind::Internal,
                "closing the session failed",
            )
        })
    }
}
