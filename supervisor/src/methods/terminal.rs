//! `job/resize`.

use ostler_proto::{
    job::{Row, Size},
    methods::{JobResize, Resize},
    refusal::{Refusal, RefusalKind},
};

use super::Serve;
use crate::{caller::Caller, life::plan::check_size};

impl Serve for JobResize {
    async fn serve(caller: Caller, params: Resize) -> Result<Row, Refusal> {
        let Resize {
            session,
            id,
            rows,
            cols,
        } = params;
        let size = Size { rows, cols };
        check_size("rows", size)?;
        let registry = &caller.house().registry;
        let job = registry.find(session.as_deref(), &id, &caller.access())?;
        match job.with_terminal(|terminal| terminal.resize(size)) {
            Some(Ok(())) => Ok(job.row()),
            Some(Err(error)) => Err(Refusal::new(
                RefusalKind::Internal,
                format!("the terminal of {} cannot be resized: {error}", job.id()),
            )),
            None if job.spec.pty => Err(Refusal::new(
                RefusalKind::NoInput,
                format!("{} is over", job.id()),
            )),
            None => Err(Refusal::new(
                RefusalKind::NoInput,
                format!("{} has no terminal", job.id()),
            )
            .hint("start --pty")),
        }
    }
}
