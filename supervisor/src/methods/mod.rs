//! The methods, one module a family. Translation only: what a method means is decided in the registry, in the
//! life of a job and in its log.

use ostler_proto::{methods::Method, refusal::Refusal};

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
