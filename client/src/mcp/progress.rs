//! Progress of a call that takes long, for a client that gave a token: first after 5 s, then every 10 s, none after the
//! answer.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ostler::Client;
use ostler_proto::limits;
use ostler_proto::methods::{JobGet, Target};
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;

use super::words;

/// What a call works on, as far as it knows.
#[derive(Default)]
pub(crate) struct Watched(Mutex<Option<Job>>);

#[derive(Clone)]
struct Job {
    client: Client,
    id: String,
    process_id: String,
}

impl Watched {
    /// From now on it is this job.
    pub(crate) fn set(&self, client: &Client, id: &str, process_id: &str) {
        let mut job = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *job = Some(Job {
            client: client.clone(),
            id: id.to_owned(),
            process_id: process_id.to_owned(),
        });
    }

    /// Id of the job, and a client of its session, as soon as it is known.
    pub(crate) fn process(&self) -> Option<(String, Client)> {
        self.job().map(|job| (job.process_id, job.client))
    }

    fn job(&self) -> Option<Job> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Awaits a call and tells how long it has taken.
pub(crate) async fn beside<T>(
    context: &RequestContext<RoleServer>,
    watched: &Watched,
    most: Duration,
    work: impl Future<Output = T>,
) -> T {
    let Some(token) = context.meta.get_progress_token() else {
        return work.await;
    };
    tokio::pin!(work);
    let began = Instant::now();
    let mut at = Duration::from_millis(limits::mcp::PROGRESS_FIRST);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = tokio::time::sleep_until((began + at).into()) => {}
        }
        let seconds = at.as_secs();
        // Neither is raced with the end of the work: what is sent is out before the answer is.
        let message = tokio::select! {
            biased;
            done = &mut work => return done,
            message = said(watched, seconds) => message,
        };
        let mut progress = ProgressNotificationParam::new(token.clone(), seconds as f64);
        progress.total = Some(most.as_secs_f64());
        progress.message = message;
        // A client that is gone is seen by who reads.
        let _ = context.peer.notify_progress(progress).await;
        at += Duration::from_millis(limits::mcp::PROGRESS_NEXT);
    }
}

/// `t1 running 15s, 812 bytes`.
async fn said(watched: &Watched, seconds: u64) -> Option<String> {
    let job = watched.job()?;
    let target = Target {
        session: None,
        id: job.process_id.clone(),
    };
    let row = job.client.ask::<JobGet>(target).await.ok()?.row;
    let word = if row.is_over() { "exited" } else { "running" };
    Some(format!(
        "{} {word} {}, {} bytes",
        job.id,
        words::limit(seconds * 1_000),
        row.output.end
    ))
}
