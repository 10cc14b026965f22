//! `job/keys`.

use std::time::Duration;

use ostler_proto::{
    limits,
    methods::{JobKeys, Written},
    refusal::Refusal,
    screen::Keys,
};

use super::{Serve, terminal::check_terminal, write::PATIENCE};
use crate::{
    caller::Caller,
    life::plan::within,
    terminal::{Modes, keys},
};

impl Serve for JobKeys {
    async fn serve(caller: Caller, params: Keys) -> Result<Written, Refusal> {
        within("timeoutMs", params.timeout_ms, 1, limits::WAIT_MAX)?;
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        let bytes = bytes(&params, &job.face.modes)?;
        check_terminal(&job)?;
        let held = job.desk.may_type(None);
        held.map_err(|holder| holder.refusal(&job.id()))?;
        let Some(feed) = &job.feed else {
            return Err(Refusal::bad("id", "has no input"));
        };
        job.note_typed(&bytes);
        let asked = bytes.len() as u64;
        let patience = Duration::from_millis(params.timeout_ms.unwrap_or(PATIENCE));
        let took = feed.write(bytes, false, patience).await;
        Ok(Written {
            bytes: took.bytes,
            complete: took.bytes == asked,
            closed: took.closed,
        })
    }
}

/// All of it or nothing: a key that there is not must not leave half a line behind.
fn bytes(params: &Keys, modes: &Modes) -> Result<Vec<u8>, Refusal> {
    let paste = params.paste.as_deref().unwrap_or("");
    if params.keys.len() > limits::KEYS {
        let words = format!("must have at most {} keys", limits::KEYS);
        return Err(Refusal::bad("keys", words).hint("a text is sent, or pasted"));
    }
    if paste.is_empty() && params.keys.is_empty() {
        return Err(Refusal::bad(
            "keys",
            "must name a key, or `paste` have a text",
        ));
    }
    if paste.contains('\0') {
        return Err(Refusal::bad("paste", "must have no NUL").hint("the key C-Space sends one"));
    }
    let mut bytes = Vec::new();
    if !paste.is_empty() {
        bytes = keys::paste(paste, modes.bracketed_paste());
    }
    for key in &params.keys {
        bytes.extend(keys::press(key, modes.application_cursor())?);
    }
    Ok(bytes)
}
