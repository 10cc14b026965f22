//! `supervisor/*`.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::FutureExt;
use ostler_proto::{
    PROTOCOL_MIN, limits,
    methods::{
        Hello, HelloAnswer, Info, List, Nothing, StopSummary, StopSupervisor, SupervisorHello,
        SupervisorInfo, SupervisorStop, SupervisorUpgrade, UpgradeBegun, UpgradeSupervisor,
    },
    refusal::{Refusal, RefusalKind},
};

use super::{
    Serve,
    stop::{drop_stopped, receipt},
};
use crate::{
    caller::Caller,
    disk,
    house::House,
    life::plan::within,
    registry::{self, Access},
    secret,
    upgrade::{Image, Past},
};

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
        let is_ours = |k: String| secret::hash(&k) == secret::hash(&caller.house().owner_key);
        let owner = params.owner_key.is_some_and(is_ours);
        if !owner {
            // Who may read it looks once more.
            disk::in_place(|| caller.house().put_back_key());
        }
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
            keeper: house.keeper_build.clone(),
            taken_back: house.taken_back.clone(),
        })
    }
}

/// Only who has the owner key may do this.
fn owner_alone(caller: &Caller, what: &str) -> Result<(), Refusal> {
    if caller.access().owner {
        return Ok(());
    }
    let words = format!("only the owner may {what} the supervisor");
    Err(Refusal::new(RefusalKind::NotFound, words).hint("show the owner key in supervisor/hello"))
}

impl Serve for SupervisorUpgrade {
    async fn serve(caller: Caller, params: UpgradeSupervisor) -> Result<UpgradeBegun, Refusal> {
        owner_alone(&caller, "upgrade")?;
        if !Path::new(&params.image).is_absolute() {
            return Err(Refusal::bad("image", "must be an absolute path"));
        }
        // It goes on when the asker does not: half an upgrade is of use to nobody.
        let house = Arc::clone(caller.house());
        let upgrading = tokio::spawn(async move { upgrade(&house, params).await });
        upgrading
            .await
            .map_err(|_| Refusal::new(RefusalKind::Internal, "upgrading the supervisor failed"))?
    }
}

/// Everything up to the moment at which this supervisor leaves.
async fn upgrade(house: &House, params: UpgradeSupervisor) -> Result<UpgradeBegun, Refusal> {
    let busy = || {
        Refusal::new(RefusalKind::Busy, "another upgrade is under way")
            .hint("ostler daemon status tells how it ended")
    };
    let turn = house.upgrade.begin().ok_or_else(busy)?;
    house.registry.check_stays()?;
    let past = Past {
        ledger: house.registry.ledger.copy().map_err(|e| refused(&e))?,
        records: house.tools.keeper.records().await,
        config: house.folders.config.clone(),
    };
    let path = params.image.into();
    let asked = tokio::task::spawn_blocking(move || {
        let image = Image::open(path)?;
        let verdict = image.ask(&past, Duration::from_millis(limits::check_patience()))?;
        Ok::<_, String>((image, verdict))
    });
    let asked = tokio::select! {
        asked = asked => asked,
        () = turn.called_off() => return Err(registry::leaving()),
    };
    let (image, verdict) = asked.map_err(|e| refused(&e))?.map_err(|e| refused(&e))?;
    let mut begun = UpgradeBegun {
        changed: false,
        from: house.this(),
        to: verdict.ostler,
        keeper: house.keeper_build.clone(),
        generation: house.generation,
        jobs: house.registry.load().jobs,
    };
    let (oldest, newest) = house.keeper_wire;
    if verdict.wire.0 > newest || verdict.wire.1 < oldest {
        let (from, to) = verdict.wire;
        return Err(refused(&format!(
            "{} speaks wire {from} to {to}, the keeper {oldest} to {newest}",
            begun.to
        ))
        .hint("a new house has a new keeper: ostler daemon stop, which ends its jobs"));
    }
    if begun.to == begun.from && !params.force {
        return Ok(begun);
    }
    crate::log_line!("info", "upgrade from {} to {}", begun.from, begun.to);
    if !turn.start() {
        return Err(registry::leaving());
    }
    tokio::select! {
        prepared = house.tools.keeper.prepare(image.as_fd()) => prepared.map_err(|why| {
            match house.tools.keeper.closed().now_or_never() {
                Some(()) => keeper_lost(),
                None => refused(&format!("{} does not come up: {why}", begun.to)),
            }
        })?,
        () = turn.called_off() => return Err(registry::leaving()),
    }
    if !turn.go() {
        return Err(registry::leaving());
    }
    begun.changed = true;
    Ok(begun)
}

fn keeper_lost() -> Refusal {
    let words = "not upgraded: the keeper was killed, and every job ends";
    Refusal::new(RefusalKind::Leaving, words).hint("ostler daemon start")
}

fn refused(why: &impl std::fmt::Display) -> Refusal {
    Refusal::new(RefusalKind::ImageRefused, format!("not upgraded: {why}"))
        .hint("nothing has changed, the jobs go on")
}

impl Serve for SupervisorStop {
    async fn serve(caller: Caller, params: StopSupervisor) -> Result<StopSummary, Refusal> {
        within("graceMs", params.grace_ms, 0, limits::GRACE_MAX)?;
        owner_alone(&caller, "stop")?;
        // It goes on when the asker does not: a house that refuses everything and never leaves is of use to nobody.
        // The asker may be one of the jobs that it ends.
        let house = Arc::clone(caller.house());
        let grace = params.grace_ms.unwrap_or(limits::grace());
        let stopping = tokio::spawn(async move {
            let jobs = house.stop_all(grace, "dispose").await;
            let mut receipts: Vec<_> = jobs.iter().map(|job| receipt(job, false)).collect();
            let all = Access {
                owner: true,
                ..Access::default()
            };
            drop_stopped(&mut receipts, &jobs, &house.registry, &all);
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
