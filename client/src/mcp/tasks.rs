//! Calls that became tasks, for clients that declare the extension: each goes on without a bound until it has its result.

use ostler_proto::limits;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rmcp::ErrorData;
use rmcp::model::{DetailedTask, GetTaskResult, JsonObject, Task, TaskPayload, TaskStatus};
use tokio::task::AbortHandle;

use super::words;

/// What became of a call.
#[derive(Debug)]
enum State {
    Working,
    Done(JsonObject),
    Cancelled,
}

#[derive(Debug)]
struct Entry {
    created: String,
    updated: String,
    state: State,
    waiting: AbortHandle,
    /// The job that ends with the task.
    stops: Option<String>,
}

/// The tasks of one front end.
#[derive(Debug, Default)]
pub(crate) struct Tasks(Mutex<HashMap<String, Entry>>);

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        // Nothing that is done under the lock can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whether there is such a task.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.lock().contains_key(id)
    }

    /// Makes a task of a call. `is_job`: of a run to its end, whose task has the id of its job, so that the next front end
    /// knows it; others have that and a number.
    pub(crate) fn begin(
        &self,
        process_id: &str,
        is_job: bool,
        waiting: AbortHandle,
        stops: Option<String>,
    ) -> Task {
        let mut all = self.lock();
        if all.len() >= limits::mcp::TASKS {
            all.retain(|_, entry| matches!(entry.state, State::Working));
        }
        let mut ids = (1..).map(|n| format!("{process_id}.{n}"));
        let id = match is_job {
            true => process_id.to_owned(),
            false => ids.find(|id| !all.contains_key(id)).unwrap_or_default(),
        };
        let created = now();
        let entry = Entry {
            created: created.clone(),
            updated: created,
            state: State::Working,
            waiting,
            stops,
        };
        let task = task(&id, &entry);
        all.insert(id, entry);
        task
    }

    /// It has its result.
    pub(crate) fn finish(&self, id: &str, result: JsonObject) {
        if let Some(entry) = self.lock().get_mut(id)
            && matches!(entry.state, State::Working)
        {
            entry.state = State::Done(result);
            entry.updated = now();
        }
    }

    /// What is true of it.
    ///
    /// # Errors
    /// Nobody has made it.
    pub(crate) fn get(&self, id: &str) -> Result<GetTaskResult, ErrorData> {
        let all = self.lock();
        let entry = all.get(id).ok_or_else(|| unknown(id))?;
        let payload = match &entry.state {
            State::Working => TaskPayload::Working,
            State::Done(result) => TaskPayload::Completed {
                result: result.clone(),
            },
            State::Cancelled => TaskPayload::Cancelled,
        };
        Ok(GetTaskResult::new(DetailedTask::new(
            task(id, entry),
            payload,
        )))
    }

    /// Takes it back; returns the job that is to end with it.
    ///
    /// # Errors
    /// Nobody has made it.
    pub(crate) fn cancel(&self, id: &str) -> Result<Option<String>, ErrorData> {
        let mut all = self.lock();
        let entry = all.get_mut(id).ok_or_else(|| unknown(id))?;
        if !matches!(entry.state, State::Working) {
            return Ok(None);
        }
        entry.waiting.abort();
        entry.state = State::Cancelled;
        entry.updated = now();
        Ok(entry.stops.clone())
    }
}

fn task(id: &str, entry: &Entry) -> Task {
    let status = match entry.state {
        State::Working => TaskStatus::Working,
        State::Done(_) => TaskStatus::Completed,
        State::Cancelled => TaskStatus::Cancelled,
    };
    Task::new(id, status, &entry.created, &entry.updated)
        .with_poll_interval_ms(limits::mcp::TASK_POLL)
}

fn unknown(id: &str) -> ErrorData {
    let id = words::one_line(&words::cut(id, 60));
    ErrorData::invalid_params(format!("unknown task: {id}"), None)
}
