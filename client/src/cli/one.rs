//! The one job that a command is about: named as it was typed, asked about, and explained when it is not there.

use ostler::{Client, Error, Mode};
use ostler_proto::methods::Method;

use super::failure::Failure;
use super::nearest;
use super::scope::{self, Named, Scope, SessionArg};

/// A job that was named on the command line, and who is asked about it.
pub(crate) struct OneJob {
    pub(crate) scope: Scope,
    pub(crate) client: Client,
    /// As methods name it.
    pub(crate) session: Option<String>,
    /// See [`OneJob::session`].
    pub(crate) id: String,
    /// As it was typed.
    text: String,
}

impl OneJob {
    /// Takes the words apart; nobody is asked yet.
    pub(crate) fn of(session: &SessionArg, text: &str) -> Result<Self, Failure> {
        let scope = session.scope()?;
        let Named { session, id } = scope.target(text)?;
        Ok(Self {
            client: scope::client(Mode::Use)?,
            session,
            id,
            text: text.to_owned(),
            scope,
        })
    }

    /// Asks, also over a replaced supervisor.
    pub(crate) async fn ask<M: Method>(&self, params: M::Params) -> Result<M::Result, Failure> {
        match self.client.ask::<M>(params).await {
            Ok(answer) => Ok(answer),
            Err(e) => Err(self.failure(e).await),
        }
    }

    /// Asks once: for what must not be done twice.
    pub(crate) async fn call<M: Method>(&self, params: M::Params) -> Result<M::Result, Failure> {
        match self.client.call::<M>(params).await {
            Ok(answer) => Ok(answer),
            Err(e) => Err(self.failure(e).await),
        }
    }

    /// How the command fails, with the job that was probably meant.
    pub(crate) async fn failure(&self, error: Error) -> Failure {
        nearest::explained(&self.client, &self.scope, &self.text, error).await
    }
}
