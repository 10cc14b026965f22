//! `agent/*`.

use std::sync::Arc;

use ostler_proto::{
    agent::{
        AppendAgent, AppendedAgent, AwaitStop, ChildSession, FinishAgent, RegisterAgent,
        RegisteredAgent, StopAwaited,
    },
    job::{Kind, Row, State},
    limits,
    methods::{AgentAppend, AgentFinish, AgentRegister, AgentStopRequested, Start},
    refusal::{Refusal, RefusalKind},
};

use super::{Serve, start::begun};
use crate::{
    agent,
    caller::Caller,
    claim,
    house::over,
    job::{Job, Plan, Status},
    ledger::checksum,
    life::plan,
    owner::{LastWord, Owner},
    pump,
    registry::Admission,
};

impl Serve for AgentRegister {
    async fn serve(caller: Caller, params: RegisterAgent) -> Result<RegisteredAgent, Refusal> {
        let has_program = params.start.is_some();
        let child = params.child.clone();
        let child = child.or_else(|| has_program.then(ChildSession::default));
        let plan = planned(&caller, params)?;
        let input = plan::input(&plan.start.stdin).map_err(of_program)?;
        let house = caller.house();
        let registered = house.registry.register(&plan, child, &caller.access())?;
        let (admission, child) = registered;
        let job = admission.job();
        match &admission {
            Admission::Known(_) => {}
            Admission::New(job) if has_program => {
                let launched = house.launch(job, &plan.start, input);
                launched.inspect_err(|_| {
                    let child = job.spec.child.iter();
                    child.for_each(|key| house.registry.finish_close(key));
                })?;
            }
            Admission::New(job) => {
                house.let_live(job, agent::live(house.tools.clone(), Arc::clone(job)));
            }
        }
        if !has_program {
            caller.speak_as(job);
        }
        begun(job).await;
        Ok(RegisteredAgent {
            row: claim::started(&caller, &admission),
            child,
        })
    }
}

/// Checks a request.
fn planned(caller: &Caller, params: RegisterAgent) -> Result<Plan, Refusal> {
    let key_of = checksum(&serde_json::to_vec(&params).expect("what came as JSON is JSON"));
    let house = caller.house();
    let root = house
        .registry
        .root_of(params.session.as_deref(), &caller.access());
    let home = root.as_deref().unwrap_or(&house.home);
    let RegisterAgent {
        session,
        label,
        name,
        key,
        start,
        timeout_ms,
        grace_ms,
        ..
    } = params;
    let mut plan = match start {
        Some(start) => {
            beside(&start)?;
            if label.is_some() {
                let words = "is for one without a program: with `start` that is what lists show";
                return Err(Refusal::bad("label", words));
            }
            for (field, time) in [("timeoutMs", timeout_ms), ("graceMs", grace_ms)] {
                if time.is_some() {
                    let words = format!("belongs into `start`, as `start.{field}`");
                    return Err(Refusal::bad(field, words));
                }
            }
            let start = Start {
                session,
                key,
                name,
                ..*start
            };
            plan::plan(start, false, home).map_err(of_program)?
        }
        None => {
            let label = label.filter(|l| !l.trim().is_empty());
            let label = label.ok_or_else(|| {
                Refusal::bad(
                    "label",
                    "must say what it is to do, or `start` which program it is",
                )
            })?;
            if label.contains('\0') {
                return Err(Refusal::bad("label", "may not contain NUL"));
            }
            if label.len() > limits::LABEL {
                let words = format!("must have at most {} bytes", limits::LABEL);
                return Err(Refusal::bad("label", words));
            }
            let start = Start {
                session,
                key,
                name,
                timeout_ms,
                grace_ms,
                args: vec![label],
                ..Start::default()
            };
            let mut plan = plan::plan(start, false, home)?;
            plan.candidates.clear();
            plan
        }
    };
    plan.kind = Kind::Agent;
    plan.key_of = key_of;
    Ok(plan)
}

/// What a program has of the sub-agent that it is stands in the registration.
fn beside(start: &Start) -> Result<(), Refusal> {
    for (field, given) in [
        ("session", &start.session),
        ("key", &start.key),
        ("name", &start.name),
    ] {
        if given.is_some() {
            let words = format!("belongs beside `start`, as `{field}`");
            return Err(Refusal::bad(&format!("start.{field}"), words));
        }
    }
    Ok(())
}

/// Fields of the program stand in `start`, all but those that were taken out of the registration.
fn of_program(refusal: Refusal) -> Refusal {
    match refusal.data.get("field").and_then(|field| field.as_str()) {
        Some("name" | "key") => refusal,
        _ => refusal.inside("start"),
    }
}

/// The sub-agent that is meant, which this connection speaks as from here on.
///
/// # Errors
/// It is none, or a program stands for it.
fn spoken_for(caller: &Caller, session: Option<&str>, id: &str) -> Result<Arc<Job>, Refusal> {
    let registry = &caller.house().registry;
    let job = registry.find(session, id, &caller.access())?;
    if !job.spec.is_bare() || job.spec.kind != Kind::Agent {
        let what = match job.spec.kind {
            Kind::Agent => "a program stands for it and speaks for itself",
            _ => "it is no sub-agent",
        };
        let words = format!("{} cannot be spoken for: {what}", job.id());
        return Err(Refusal::new(RefusalKind::NoInput, words));
    }
    caller.speak_as(&job);
    Ok(job)
}

fn owner(job: &Job) -> Result<&Owner, Refusal> {
    let none = || Refusal::new(RefusalKind::Internal, "a sub-agent has no owner");
    job.owner.as_ref().ok_or_else(none)
}

/// Its last word was said, or somebody's wish was carried out.
fn has_ended(job: &Job) -> Refusal {
    let words = format!("{} has ended", job.id());
    Refusal::new(RefusalKind::NoInput, words).hint("agent/register makes another")
}

impl Serve for AgentAppend {
    async fn serve(caller: Caller, params: AppendAgent) -> Result<AppendedAgent, Refusal> {
        let bytes = match (params.text, params.base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => plan::decode_base64("base64", &text)?,
            _ => return Err(Refusal::bad("text", "must be given, or `base64`")),
        };
        let job = spoken_for(&caller, params.session.as_deref(), &params.id)?;
        let owner = owner(&job)?;
        let _turn = owner.turn().await;
        if owner.last_word().borrow().is_some() || job.status().finished.is_some() {
            return Err(has_ended(&job));
        }
        let end = job.log.end();
        let said = params.at.is_some_and(|at| at + bytes.len() as u64 == end);
        if !said && params.at.is_some_and(|at| at != end) {
            return Err(Refusal::bad(
                "at",
                format!("is not where its log ends, at {end}"),
            ));
        }
        if !said {
            pump::put(&caller.house().tools.pumps, &job, &bytes).await;
        }
        Ok(AppendedAgent {
            end: job.log.end(),
            stop: agent::stop_request(&job),
        })
    }
}

impl Serve for AgentStopRequested {
    async fn serve(caller: Caller, params: AwaitStop) -> Result<StopAwaited, Refusal> {
        let job = spoken_for(&caller, params.session.as_deref(), &params.id)?;
        let mut status = job.watch();
        let wanted = |s: &Status| s.finished.is_some() || s.state == State::Stopping;
        // The sender lives in the job.
        let _ = status.wait_for(wanted).await;
        Ok(StopAwaited {
            stop: agent::stop_request(&job),
            row: job.row(),
        })
    }
}

impl Serve for AgentFinish {
    async fn serve(caller: Caller, params: FinishAgent) -> Result<Row, Refusal> {
        if !(0..=255).contains(&params.exit_code) {
            return Err(Refusal::bad("exitCode", "must be 0 to 255"));
        }
        if params
            .reason
            .as_ref()
            .is_some_and(|r| r.len() > limits::REASON)
        {
            let words = format!("must have at most {} bytes", limits::REASON);
            return Err(Refusal::bad("reason", words));
        }
        let job = spoken_for(&caller, params.session.as_deref(), &params.id)?;
        let owner = owner(&job)?;
        let word = LastWord {
            code: params.exit_code,
            reason: params.reason,
        };
        // Until the word is said: another one that says the same must not add its text as well.
        let turn = owner.turn().await;
        let said = owner.last_word().borrow().clone();
        if said.as_ref() == Some(&word) {
            // Asked again by who has lost the answer.
            drop(turn);
            return Ok(finished(&caller, &job).await);
        }
        let row = job.row();
        if row.exit_code == Some(word.code) {
            // The same, and a crash of the supervisor came in between.
            return Ok(row);
        }
        if said.is_some() || row.state == State::Exited {
            return Err(has_ended(&job));
        }
        if let Some(text) = params.text {
            pump::put(&caller.house().tools.pumps, &job, text.as_bytes()).await;
        }
        owner.say_last(word);
        drop(turn);
        Ok(finished(&caller, &job).await)
    }
}

/// Its row when it is over and what it started stands with who delegated: whoever is answered finds it there.
async fn finished(caller: &Caller, job: &Job) -> Row {
    over(job).await;
    caller.house().registry.hand_over(job);
    job.row()
}
