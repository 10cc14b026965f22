//! A sub-agent that this program speaks as: a job of the session that delegates, with what it says as its output.
//!
//! It outlives a supervisor that is replaced, and is lost when its program is gone for longer than the supervisor waits.

use ostler_proto::agent::{
    AppendAgent, AppendedAgent, AwaitStop, FinishAgent, RegisterAgent, StopRequest,
};
use ostler_proto::job::Row;
use ostler_proto::methods::{
    AgentAppend, AgentFinish, AgentRegister, AgentStopRequested, OpenedSession,
};
use tokio::sync::Mutex;

use crate::client::{Client, fresh_key};
use crate::connection::Error;

/// A registered sub-agent.
pub struct Agent {
    client: Client,
    row: Row,
    child: Option<OpenedSession>,
    /// Where its log ends.
    end: Mutex<u64>,
}

impl Agent {
    /// Registers a sub-agent that no program stands for. It gets a key where it has none.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn register(client: &Client, mut ask: RegisterAgent) -> Result<Self, Error> {
        ask.key.get_or_insert_with(fresh_key);
        let registered = client.ask::<AgentRegister>(ask).await?;
        Ok(Self {
            client: client.clone(),
            end: Mutex::new(registered.row.output.end),
            row: registered.row,
            child: registered.child,
        })
    }

    /// Its row, as it was when it was registered.
    pub fn row(&self) -> &Row {
        &self.row
    }

    /// Its own session, if it has one: what is started there goes to the session that delegates when this has finished.
    pub fn child(&self) -> Option<&OpenedSession> {
        self.child.as_ref()
    }

    /// Adds to what it says, once, also over a replaced supervisor. Returns whether somebody wants its end.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn say(&self, text: &str) -> Result<Option<StopRequest>, Error> {
        // One word after the other: each says where it belongs.
        let mut end = self.end.lock().await;
        let append = AppendAgent {
            id: self.row.process_id.clone(),
            text: Some(text.into()),
            at: Some(*end),
            ..AppendAgent::default()
        };
        let appended: AppendedAgent = self.client.ask::<AgentAppend>(append).await?;
        *end = appended.end;
        Ok(appended.stop)
    }

    /// Waits until somebody wants its end; then it has the grace to finish. `None`: it has ended otherwise.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn stop_requested(&self) -> Result<Option<StopRequest>, Error> {
        let wait = AwaitStop {
            id: self.row.process_id.clone(),
            ..AwaitStop::default()
        };
        Ok(self.client.ask::<AgentStopRequested>(wait).await?.stop)
    }

    /// Ends it: 0 for done, anything else for failed, and why.
    ///
    /// # Errors
    /// As [`Client::ask`].
    pub async fn finish(self, exit_code: i32, reason: Option<String>) -> Result<Row, Error> {
        let finish = FinishAgent {
            id: self.row.process_id.clone(),
            exit_code,
            reason,
            ..FinishAgent::default()
        };
        self.client.ask::<AgentFinish>(finish).await
    }
}
