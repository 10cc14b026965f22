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
    life::plan::{decode_base64, within},
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
            return Err(Refusal::new(
                RefusalKind::NoInput,
                format!("{} was started with its input closed", job.id()),
            )
            .hint("start --stdin"));
        };
        if job.spec.pty {
            let held = job.desk.may_type(params.seat.as_deref());
            held.map_err(|holder| holder.refusal(&job.id()))?;
        }
        job.note_typed(&bytes);
        let asked = bytes.len() as u64;
        let patience = Duration::from_millis(params.timeout_ms.unwrap_or(PATIENCE));
        let took = feed.write(bytes, params.eof, patience).await;
        Ok(Written {
            bytes: took.bytes,
            complete: took.bytes == asked,
            closed: took.closed,
        })
    }
}
