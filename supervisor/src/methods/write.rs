//! `job/write`.

use std::time::Duration;

use ostler_proto::{
    limits,
    methods::{JobWrite, Write, Written},
    refusal::{Refusal, RefusalKind},
};

use super::Serve;
use crate::{
    caller::Caller,
    job::Job,
    life::plan::{decode_base64, within},
    terminal::keys,
};

/// How long a write waits for its job when the request names no time.
pub(super) const PATIENCE: u64 = 5_000;

impl Serve for JobWrite {
    async fn serve(caller: Caller, params: Write) -> Result<Written, Refusal> {
        within("timeoutMs", params.timeout_ms, 1, limits::WAIT_MAX)?;
        let bytes = match (params.text, params.base64) {
            (Some(_), Some(_)) => {
                return Err(Refusal::bad("base64", "and `text` exclude each other"));
            }
            (Some(text), None) => text.into_bytes(),
            (None, Some(text)) => decode_base64("base64", &text)?,
            (None, None) if params.eof => Vec::new(),
            (None, None) => {
                return Err(Refusal::bad("text", "must be given, or `base64`, or `eof`"));
            }
        };
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        let Some(feed) = &job.feed else {
            return Err(no_input(&job));
        };
        if job.spec.pty {
            let held = job.desk.may_type(params.seat.as_deref());
            held.map_err(|holder| holder.refusal(&job.id()))?;
        }
        let asked = bytes.len() as u64;
        if let Some(seat) = &params.seat
            && keys::is_report(&bytes)
            && !job.desk.is_newest(seat)
        {
            // What a program asks is shown on every terminal that is attached, and one answer is what it expects.
            return Ok(Written {
                bytes: asked,
                complete: true,
                closed: false,
            });
        }
        job.note_typed(&bytes);
        let patience = Duration::from_millis(params.timeout_ms.unwrap_or(PATIENCE));
        let took = feed.write(bytes, params.eof, patience).await;
        Ok(Written {
            bytes: took.bytes,
            complete: took.bytes == asked,
            closed: took.closed,
        })
    }
}

/// There is nothing to write to.
fn no_input(job: &Job) -> Refusal {
    let id = job.id();
    match &job.spec.sent_to {
        Some(shell) => Refusal::new(
            RefusalKind::NoInput,
            format!("{id} has no input of its own, its shell has"),
        )
        .hint(format!("ostler send {shell}")),
        None if job.spec.is_bare() => {
            let words = format!("{id} is a sub-agent, which takes no input");
            Refusal::new(RefusalKind::NoInput, words).hint(format!("ostler read {id}"))
        }
        None => Refusal::new(
            RefusalKind::NoInput,
            format!("{id} was started with its input closed"),
        )
        .hint("start --stdin"),
    }
}
