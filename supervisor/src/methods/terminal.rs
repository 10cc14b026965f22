//! `job/resize`, and what the methods on terminals share.

use std::time::Duration;

use ostler_proto::{
    job::{Row, Size},
    methods::{JobResize, Resize},
    refusal::{Refusal, RefusalKind},
};

use tokio::time::timeout;

use super::Serve;
use crate::{caller::Caller, job::Job, life::plan::check_size};

/// How long a terminal may take to be there.
const ARRIVES: Duration = Duration::from_secs(1);

impl Serve for JobResize {
    async fn serve(caller: Caller, params: Resize) -> Result<Row, Refusal> {
        let Resize {
            session,
            id,
            rows,
            cols,
            seat,
        } = params;
        let size = Size { rows, cols };
        check_size("rows", size)?;
        let registry = &caller.house().registry;
        let job = registry.find(session.as_deref(), &id, &caller.access())?;
        check_terminal(&job).await?;
        match seat {
            // Somebody who only looks has no say; the newest of the others has.
            Some(seat) if !job.desk.resize(&seat, size) => {}
            Some(_) | None => resize(&job, size).await?,
        }
        Ok(job.row())
    }
}

/// Gives a terminal another window, and its screen with it, if somebody looks at that.
pub(super) async fn resize(job: &Job, size: Size) -> Result<(), Refusal> {
    if job.window() == size {
        return Ok(());
    }
    let (log, easel) = (&job.log, &job.face.easel);
    if easel.is_used() {
        // What was written up to now was written for the old window. A screen that cannot be drawn is made anew.
        let _ = easel
            .follow(log, &job.face.echoes, job.window(), log.end())
            .await;
    }
    match job.with_terminal(|terminal| terminal.resize(size)) {
        Some(Ok(())) => {}
        Some(Err(error)) => {
            let words = format!("the terminal of {} cannot be resized: {error}", job.id());
            return Err(Refusal::new(RefusalKind::Internal, words));
        }
        None => return Err(no_terminal(job)),
    }
    if easel.is_used() {
        let at = easel.with(crate::terminal::Screen::at).unwrap_or(0);
        let _ = easel.follow(log, &job.face.echoes, size, at).await;
    }
    Ok(())
}

/// Refuses a job that has no terminal, or none any more. One that is just being started, or taken over by this
/// supervisor, has one in a moment.
pub(super) async fn check_terminal(job: &Job) -> Result<(), Refusal> {
    let mut arrived = std::pin::pin!(job.face.arrived.notified());
    // Before the look: what comes in between is not missed.
    arrived.as_mut().enable();
    let is_there = || job.with_terminal(|_| ()).is_some();
    if !is_there() && job.spec.pty && job.status().finished.is_none() {
        // Who waits in vain is told the same as without.
        let _ = timeout(ARRIVES, arrived).await;
    }
    if is_there() {
        Ok(())
    } else {
        Err(no_terminal(job))
    }
}

fn no_terminal(job: &Job) -> Refusal {
    let id = job.id();
    if job.spec.pty {
        Refusal::new(RefusalKind::NoInput, format!("{id} is over"))
    } else {
        let refusal = Refusal::new(RefusalKind::NoInput, format!("{id} has no terminal"));
        match job.spec.is_bare() {
            // Nobody starts it.
            true => refusal,
            false => refusal.hint("start --pty"),
        }
    }
}
