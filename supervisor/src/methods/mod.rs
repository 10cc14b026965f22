//! The methods, one module a family. Translation only: what a method means is decided in the registry, in the
//! life of a job and in its log.

use ostler_proto::{limits, methods::Method, refusal::Refusal};
use regex::Regex;

use crate::caller::Caller;

mod output;

mod run;

mod session;

mod start;

mod stop;

mod supervisor;

mod wait;

mod write;

/// A method of the table that this supervisor serves.
pub(crate) trait Serve: Method {
    /// Answers one request. Dropping the future is the request's cancel.
    fn serve(
        caller: Caller,
        params: Self::Params,
    ) -> impl Future<Output = Result<Self::Result, Refusal>> + Send + 'static;
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
