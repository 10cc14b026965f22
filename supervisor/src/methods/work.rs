//! The work-done progress of a command, as LSP has it: begin, reports with the newest line, end.
//!
//! It never holds a job or an answer up for longer than the editor reads: each message takes a place first, and says what
//! is true by then. An editor that gave no token is asked for one beside the command, which does not wait for that.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use ostler_proto::{job::Row, limits, refusal::Refusal};
use serde::Serialize;
use serde_json::Value;

use super::newest::newest;
use crate::{
    caller::Caller,
    job::Job,
    log::Filter,
    outbox::{Gone, Outbox},
    terminal::text,
};

/// Bytes of a log in which its last line is looked for.
const LAST: u64 = 4 * 1024;

/// One message of it.
#[derive(Serialize)]
struct Message<'a> {
    jsonrpc: &'static str,
    method: &'static str,
    params: Told<'a>,
}

#[derive(Serialize)]
struct Told<'a> {
    token: &'a Value,
    value: &'a Stage,
}

/// What LSP calls the value of work-done progress.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Stage {
    Begin {
        title: String,
        cancellable: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
    },
    Report {
        message: Option<String>,
    },
    End {
        message: String,
    },
}

impl<'a> Message<'a> {
    const fn of(token: &'a Value, value: &'a Stage) -> Self {
        Self {
            jsonrpc: "2.0",
            method: "$/progress",
            params: Told { token, value },
        }
    }
}

/// What the editor is told of.
pub(super) struct Subject {
    /// What is done, to what: `run: npm test`.
    pub(super) title: String,
    /// Whose lines are told.
    pub(super) job: Option<Arc<Job>>,
    /// The editor may offer to cancel it.
    pub(super) cancellable: bool,
}

/// The progress of one command.
pub(super) struct Work {
    caller: Caller,
    /// What the editor gave; none is made for what takes no time.
    token: Option<Value>,
    may_ask: bool,
    begun: bool,
}

impl Work {
    /// `may_ask`: it takes long enough that an editor without a token is asked for one.
    pub(super) fn new(caller: &Caller, token: Option<Value>, may_ask: bool) -> Self {
        Self {
            caller: caller.clone(),
            token,
            may_ask: may_ask && caller.editor().shows_progress(),
            begun: false,
        }
    }

    /// Awaits a command and tells of it meanwhile; `None`: the editor cancelled it by its token.
    pub(super) async fn beside<T>(
        &mut self,
        subject: &Subject,
        command: impl Future<Output = T>,
    ) -> Option<T> {
        tokio::pin!(command);
        if self.token.is_none() && self.may_ask {
            let asking = ask(&self.caller);
            tokio::select! {
                biased;
                done = &mut command => return Some(done),
                token = asking => self.token = Some(token),
            }
        }
        let Some(token) = self.token.clone() else {
            return Some(command.await);
        };
        let caller = self.caller.clone();
        let cancellable = caller.editor().cancellable(token);
        tokio::select! {
            biased;
            done = &mut command => Some(done),
            () = cancellable.cancelled(), if subject.cancellable => None,
            never = self.tell(subject) => match never {},
        }
    }

    /// Says how it ended, if its begin was told or the editor's own token waits for it.
    pub(super) async fn end(mut self, title: &str, message: String) {
        let Some(token) = self.token.clone() else {
            return;
        };
        let outbox = self.caller.outbox().clone();
        // Without a client nobody wants to know.
        if !self.begun
            && send(&outbox, &token, &begin(title, None, false))
                .await
                .is_err()
        {
            return;
        }
        self.begun = true;
        if send(&outbox, &token, &Stage::End { message }).await.is_ok() {
            // Said; and whoever is cancelled while he waits for room says it later.
            self.begun = false;
        }
    }

    /// Begins, and reports for as long as it is asked to. Never ends: what is told of does.
    async fn tell(&mut self, subject: &Subject) -> Infallible {
        let told = self.report(subject).await;
        match told {
            Ok(never) => never,
            Err(Gone) => pending().await,
        }
    }

    async fn report(&mut self, subject: &Subject) -> Result<Infallible, Gone> {
        let Some(token) = self.token.clone() else {
            return pending().await;
        };
        let caller = self.caller.clone();
        let outbox = caller.outbox();
        let mut last = subject.job.as_deref().and_then(last_line);
        let begin = begin(&subject.title, last.clone(), subject.cancellable);
        let place = outbox.reserve().await?;
        // Set together with the message: whoever is cancelled here has either both or none.
        self.begun = true;
        place.send(&Message::of(&token, &begin));
        let Some(job) = &subject.job else {
            return pending().await;
        };
        let mut news = job.log.subscribe();
        loop {
            tokio::time::sleep(Duration::from_millis(limits::PROGRESS_EVERY)).await;
            let place = outbox.reserve().await?;
            news.mark_unchanged();
            let line = last_line(job);
            if line.is_some() && line != last {
                place.send(&Message::of(
                    &token,
                    &Stage::Report {
                        message: line.clone(),
                    },
                ));
                last = line;
            } else {
                drop(place);
            }
            if news.changed().await.is_err() {
                return pending().await;
            }
        }
    }
}

impl Drop for Work {
    /// Its request was cancelled: an editor must not show it for ever.
    fn drop(&mut self) {
        let Some(token) = self.token.take().filter(|_| self.begun) else {
            return;
        };
        let outbox = self.caller.outbox().clone();
        tokio::spawn(async move {
            send(
                &outbox,
                &token,
                &Stage::End {
                    message: "cancelled".into(),
                },
            )
            .await
        });
    }
}

/// Asks the editor for a token; returns when it has one.
async fn ask(caller: &Caller) -> Value {
    let (asked, token, answer) = caller.editor().ask_for_token();
    match caller.outbox().reserve().await {
        Ok(place) => place.send(&asked),
        Err(Gone) => return pending().await,
    }
    match answer.await {
        Ok(true) => token,
        // It does not want to hear of it.
        _ => pending().await,
    }
}

fn begin(title: &str, message: Option<String>, cancellable: bool) -> Stage {
    Stage::Begin {
        title: title.to_owned(),
        cancellable,
        message,
    }
}

async fn send(outbox: &Outbox, token: &Value, value: &Stage) -> Result<(), Gone> {
    outbox.reserve().await?.send(&Message::of(token, value));
    Ok(())
}

/// The newest line of a job that has something in it, as a person sees it.
fn last_line(job: &Job) -> Option<String> {
    let from = newest(&job.log, LAST);
    let slice = job.log.read(from, LAST as usize, Filter::All);
    let text = text::plain(&slice.bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(
        line.trim_end()
            .chars()
            .take(limits::PROGRESS_LINE)
            .collect(),
    )
}

/// How a job ended, or that it goes on, in a few words.
pub(super) fn ended(row: &Row) -> String {
    let name = row.name.as_deref().unwrap_or(&row.id);
    let word = row.outcome.and_then(|outcome| {
        let word = serde_json::to_value(outcome).ok()?;
        Some(word.as_str()?.replace('_', " "))
    });
    match (word, row.exit_code, &row.signal) {
        (None, ..) => format!("{name} runs"),
        (Some(word), Some(code), _) if word == "exited" => {
            format!("{name} exited with code {code}")
        }
        (Some(word), _, Some(signal)) if word == "signaled" => format!("{name} died of {signal}"),
        (Some(word), ..) => format!("{name}: {word}"),
    }
}

/// How a command that was refused ended.
pub(super) fn refused(refusal: &Refusal) -> String {
    refusal
        .message
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}
