//! `job/start`, `list`, `get`, `detach`, `release`.

use std::time::Duration;

use ostler_proto::{
    job::{JobResult, Row, StageRow, State, Tree},
    limits,
    methods::{
        DetachedJob, JobDetach, JobGet, JobList, JobRelease, JobStart, JobTable, List, Released,
        Start, Target,
    },
    refusal::{Refusal, RefusalKind},
};

use super::Serve;
use crate::{
    caller::Caller,
    claim,
    house::{House, over},
    job::{Job, Plan},
    life::{plan, texts},
    pipeline::Report,
    registry::Admission,
    stats,
    tree::listeners,
};

/// Makes the job of a request, or finds the one that its key names.
pub(super) fn admit(caller: &Caller, start: Start, bound: bool) -> Result<Admission, Refusal> {
    let plan = planned(caller, start, bound)?;
    admit_plan(caller, &plan)
}

/// Checks a request.
pub(super) fn planned(caller: &Caller, start: Start, bound: bool) -> Result<Plan, Refusal> {
    let house = caller.house();
    let root = house
        .registry
        .root_of(start.session.as_deref(), &caller.access());
    plan::plan(start, bound, root.as_deref().unwrap_or(&house.home))
}

/// The same for a request that has been checked.
pub(super) fn admit_plan(caller: &Caller, plan: &Plan) -> Result<Admission, Refusal> {
    let house = caller.house();
    let input = plan::input(&plan.start.stdin)?;
    let admission = house.registry.admit(plan, &caller.access())?;
    if let Admission::New(job) = &admission {
        house.launch(job, &plan.start, input)?;
    }
    Ok(admission)
}

/// Waits until exec has succeeded or failed, 100 ms at most.
pub(super) async fn begun(job: &Job) {
    let mut status = job.watch();
    let known = status.wait_for(|s| s.state != State::Starting);
    let _ = tokio::time::timeout(Duration::from_millis(limits::start_answer()), known).await;
}

impl Serve for JobStart {
    async fn serve(caller: Caller, params: Start) -> Result<Row, Refusal> {
        let admission = admit(&caller, params, false)?;
        begun(admission.job()).await;
        Ok(claim::started(&caller, &admission))
    }
}

impl Serve for JobList {
    async fn serve(caller: Caller, params: List) -> Result<JobTable, Refusal> {
        let jobs = caller.house().registry.list(&params, &caller.access())?;
        Ok(JobTable {
            jobs: jobs.iter().map(|j| j.row()).collect(),
        })
    }
}

impl Serve for JobGet {
    async fn serve(caller: Caller, params: Target) -> Result<JobResult, Refusal> {
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        let mut result = result(&job, true);
        look(caller.house(), &job, &mut result.row.tree).await;
        if let Some(stages) = stages_now(&job).await {
            result.row.stages = stages;
        }
        Ok(result)
    }
}

/// How far the stages of a pipeline are that is not over.
async fn stages_now(job: &Job) -> Option<Vec<StageRow>> {
    let pipeline = job.spec.pipeline.clone();
    let pipeline = pipeline.filter(|_| job.status().finished.is_none())?;
    let read = tokio::task::spawn_blocking(move || Report::read(&pipeline.report));
    Some(job.stages(&read.await.ok()?.stages))
}

/// What its processes are and use now, where somebody is left.
pub(super) async fn look(house: &House, job: &Job, tree: &mut Tree) {
    // Of a tree in which nobody is left there is nothing to tell, and a result is the same each time it is read.
    if job.is_finished() {
        return;
    }
    let trees = &house.tools.trees;
    let grouped = trees.figures(job.spec.number);
    let pids = trees.members(job.mark()).await;
    let looked = tokio::task::spawn_blocking(move || {
        let ports = listeners(&pids).into_iter().map(|l| l.port).collect();
        (stats::usage(&pids), ports, pids)
    });
    if let Ok((used, ports, pids)) = looked.await {
        // The group counts those as well who are gone.
        tree.cpu_ms = Some(grouped.map_or(used.cpu_ms, |g| g.cpu_ms.max(used.cpu_ms)));
        let memory = grouped.and_then(|g| g.memory);
        tree.rss_bytes = Some(memory.unwrap_or(used.rss_bytes));
        tree.rung_why = trees.lack().map(|lack| format!("cgroup: {lack}"));
        tree.ports = Some(ports);
        tree.pids = Some(pids);
    }
}

/// The row with its texts, if it is over and they are wanted.
pub(super) fn result(job: &Job, collect: bool) -> JobResult {
    let mut row = job.row();
    let finished = job.status().finished.clone();
    let texts = finished.filter(|_| collect).map(|f| {
        f.texts
            .clone()
            .unwrap_or_else(|| texts::of(&job.log, f.at_exit))
    });
    row.replaced = texts.as_ref().map(|t| t.replaced).or(row.replaced);
    let (cut_out, cut_err) = texts
        .as_ref()
        .map_or((false, false), |t| (t.stdout_cut, t.stderr_cut));
    let (stdout, stderr) = texts.map(|t| (t.stdout, t.stderr)).unzip();
    JobResult {
        row,
        stdout,
        stderr,
        stdout_truncated: cut_out,
        stderr_truncated: cut_err,
        side_effect: job.spec.side_effect.clone(),
        file: job.status().file.clone(),
        withheld: job.spec.withheld.clone(),
        detached: false,
    }
}

impl Serve for JobDetach {
    async fn serve(caller: Caller, params: Target) -> Result<DetachedJob, Refusal> {
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        let was_held = job.status().finished.is_none() && caller.house().unbind(&job);
        Ok(DetachedJob {
            row: job.row(),
            already: !was_held,
        })
    }
}

impl Serve for JobRelease {
    async fn serve(caller: Caller, params: Target) -> Result<Released, Refusal> {
        release(caller, params, "release").await
    }
}

/// Stops a job if it runs, then forgets it.
pub(super) async fn release(caller: Caller, target: Target, by: &str) -> Result<Released, Refusal> {
    let registry = &caller.house().registry;
    let job = match registry.find(target.session.as_deref(), &target.id, &caller.access()) {
        Ok(job) => job,
        // Releasing twice, or what never was, is success.
        Err(r) if matches!(r.kind, RefusalKind::NotFound | RefusalKind::Gone) => {
            return Ok(Released { row: None });
        }
        Err(r) => return Err(r),
    };
    if job.is_live() {
        let who = crate::job::Who::asked(by, None).silent(caller.owns(&job));
        job.ask_stop(job.spec.grace_ms, who);
        over(&job).await;
    }
    if job.is_live() {
        // What cannot be ended stays listed: forgetting it would be a lie.
        return Err(Refusal::new(
            RefusalKind::Busy,
            format!("{} could not be ended and stays listed", job.id()),
        )
        .with("rows", [job.row()]));
    }
    registry.release(&job);
    Ok(Released {
        row: Some(job.row()),
    })
}
