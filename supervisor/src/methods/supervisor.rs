//! `supervisor/*`.

use std::sync::Arc;

use ostler_proto::{
    PROTOCOL_MIN, limits,
    methods::{
        Hello, HelloAnswer, Info, List, Nothing, StopSummary, StopSupervisor, SupervisorHello,
        SupervisorInfo, SupervisorStop,
    },
    refusal::{Refusal, RefusalKind},
};

use super::{Serve, stop::receipt};
use crate::{caller::Caller, life::plan::within, secret};

impl Serve for SupervisorHello {
    async fn serve(caller: Caller, params: Hello) -> Result<HelloAnswer, Refusal> {
        if params.protocol.is_some_and(|p| p < PROTOCOL_MIN) {
            return Err(Refusal::new(
                RefusalKind::TooOld,
                "this client is too old for the supervisor",
            )
            .with("protocolMin", PROTOCOL_MIN)
            .hint("update the client"));
        }
        // Hashes are compared, so that the time says nothing about the key.
        let owner = params
            .owner_key
            .is_some_and(|k| secret::hash(&k) == secret::hash(&caller.house().owner_key));
        caller.change_access(|a| a.owner |= owner);
        Ok(caller.house().hello(caller.access().owner))
    }
}

impl Serve for SupervisorInfo {
    async fn serve(caller: Caller, _: Nothing) -> Result<Info, Refusal> {
        let (house, access) = (caller.house(), caller.access());
        let load = house.registry.load();
        // Those of others are nobody's business, not even as a number.
        let seen = List {
            all: true,
            live: true,
            ..List::default()
        };
        let jobs = house.registry.list(&seen, &access)?.len() as u64;
        Ok(Info {
            hello: house.hello(access.owner),
            socket: house.folders.socket().display().to_string(),
            log: house.folders.log().display().to_string(),
            started_at: house.started_at,
            sessions: house.registry.sessions(&access).len() as u64,
            jobs,
            connections: load.connections,
            rung: house.tools.trees.rung().into(),
            rung_why: house
                .tools
                .trees
                .lack()
                .map(|lack| format!("cgroup: {lack}")),
            byte_path: house.byte_path.into(),
        })
    }
}

impl Serve for SupervisorStop {
    async fn serve(caller: Caller, params: StopSupervisor) -> Result<StopSummary, Refusal> {
        within("graceMs", params.grace_ms, 0, limits::GRACE_MAX)?;
        if !caller.access().owner {
            return Err(Refusal::new(
                RefusalKind::NotFound,
                "only the owner may stop the supervisor",
            )
            .hint("show the owner key in supervisor/hello"));
        }
        // It goes on when the asker does not: a house that refuses everything and never leaves is of use to nobody.
        // The asker may be one of the jobs that it ends.
        let house = Arc::clone(caller.house());
        let grace = params.grace_ms.unwrap_or(limits::grace());
        let stopping = tokio::spawn(async move {
            let jobs = house.stop_all(grace, "dispose").await;
            let receipts = jobs.iter().map(|job| receipt(job, false)).collect();
            house.disposed.notify_one();
            receipts
        });
        let jobs = stopping
            .await
            .map_err(|_| Refusal::new(RefusalKind::Internal, "stopping the supervisor failed"))?;
        Ok(StopSummary {
            jobs,
            ..StopSummary::default()
        })
    }
}
