//! Waiting for one job.

use ostler::{Client, Error};
use ostler_proto::methods::{For, Wait, WaitedJob};

/// Waits for the end of a job, or for anything else of it; for a text from an offset on.
///
/// # Errors
/// As of [`Client::wait`].
pub(crate) async fn wait_for(
    client: &Client,
    id: &str,
    what: For,
    since: u64,
    timeout_ms: Option<u64>,
) -> Result<WaitedJob, Error> {
    let wait = Wait {
        ids: vec![id.to_owned()],
        what,
        since,
        timeout_ms,
        ..Wait::default()
    };
    let mut waited = client.wait(wait).await?;
    match waited.jobs.pop() {
        Some(job) => Ok(job),
        None => Err(Error::Protocol("a wait without a job".into())),
    }
}
