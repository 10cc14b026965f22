//! The methods, one module a family. Translation only: what a method means is decided in the registry, in the
//! life of a job and in its log.

use ostler_proto::{limits, methods::Method, refusal::Refusal};
use regex::Regex;
use serde_json::Value;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::caller::Caller;

mod acp;

mod agent;

mod attach;

mod command;

mod keys;
mod matching;

mod newest;

mod notification;

mod output;

mod run;

mod screen;

mod session;

mod shell;

mod start;

mod stop;

mod supervisor;

mod terminal;

mod wait;

mod watch;

mod work;

mod write;

pub(crate) use command::provider;

/// A method of the table that this supervisor serves.
pub(crate) trait Serve: Method {
    /// Answers one request. Dropping the future is the request's cancel.
    fn serve(
        caller: Caller,
        params: Self::Params,
    ) -> impl Future<Output = Result<Self::Result, Refusal>> + Send + 'static;
}

/// Searches that may run at once, a piece of a log each. An expression can be as dear as its author likes; with one at
/// a time the others of the house have their workers.
static SEARCHES: Semaphore = Semaphore::const_new(1);

/// Takes part in that; dropped after a piece.
async fn search() -> Option<SemaphorePermit<'static>> {
    // Never closed.
    SEARCHES.acquire().await.ok()
}

/// A regular expression of a request, bounded.
fn compile(field: &str, pattern: &str) -> Result<Regex, Refusal> {
    if pattern.is_empty() || pattern.len() > limits::PATTERN {
        return Err(Refusal::bad(
            field,
            format!("must have 1 to {} bytes", limits::PATTERN),
        ));
    }
    Regex::new(pattern).map_err(|e| Refusal::bad(field, format!("is no regular expression: {e}")))
}

/// The token of a stream.
fn token(token: Value) -> Result<Value, Refusal> {
    if token.is_string() || token.is_number() {
        return Ok(token);
    }
    Err(Refusal::bad(
        "partialResultToken",
        "must be a text or a number",
    ))
}
