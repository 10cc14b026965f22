//! `job/attach`: a person sits down before a job's terminal.

use std::sync::Arc;

use base64::Engine as _;
use ostler_proto::{
    job::{Page, Size},
    limits,
    methods::{JobAttach, Progress},
    refusal::{Refusal, RefusalKind},
    screen::{Attach, Attached},
};

use super::{
    Serve,
    newest::newest,
    output::Follower,
    screen::look,
    terminal::{check_terminal, resize},
};
use crate::{
    caller::Caller,
    claim,
    clock::Moment,
    job::Job,
    life::plan::check_size,
    log::Filter,
    terminal::{Guest, Seated},
};

/// What a screen that cannot be drawn is replaced with.
const CLEAR: &[u8] = b"\x1b[0m\x1b[H\x1b[2J";

/// A seat; when it is left, the window goes back to the newest of those who are still there.
pub(super) struct Seat {
    job: Arc<Job>,
    seated: Option<Seated>,
}

impl Seat {
    /// Sits down. Refused where somebody else holds the terminal whom the guest wants to take it from.
    pub(super) fn take(job: &Arc<Job>, guest: Guest) -> Result<Self, Refusal> {
        let seated = job.desk.attach(guest, Moment::now().wall);
        let seated = seated.map_err(|holder| holder.refusal(&job.id()))?;
        Ok(Self {
            job: Arc::clone(job),
            seated: Some(seated),
        })
    }
}

/// Refuses what cannot be the name of a person or a seat.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), Refusal> {
    if name.is_empty() || name.len() > limits::NAME {
        let words = format!("must have 1 to {} bytes", limits::NAME);
        return Err(Refusal::bad(field, words));
    }
    Ok(())
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seated = None;
        let job = Arc::clone(&self.job);
        if let Some(window) = job.desk.window() {
            tokio::spawn(async move {
                // A terminal that is gone needs no window.
                let _ = resize(&job, window).await;
            });
        }
    }
}

impl Serve for JobAttach {
    async fn serve(caller: Caller, params: Attach) -> Result<Attached, Refusal> {
        let token = super::token(params.partial_result_token)?;
        let window = Size {
            rows: params.rows,
            cols: params.cols,
        };
        check_size("rows", window)?;
        let by = params.by.unwrap_or_else(|| "client".into());
        for (field, text) in [("by", Some(&by)), ("seat", params.seat.as_ref())] {
            text.map_or(Ok(()), |text| check_name(field, text))?;
        }
        if params.take && params.read_only {
            return Err(Refusal::bad("take", "and `readOnly` exclude each other"));
        }
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        check_terminal(&job).await?;
        let guest = Guest {
            who: by,
            seat: params.seat,
            take: params.take,
            window: (!params.read_only).then_some(window),
        };
        let _seat = Seat::take(&job, guest)?;
        if !params.read_only {
            resize(&job, window).await?;
        }
        let gone = || Refusal::new(RefusalKind::Cancelled, "the client is gone");
        let (drawn, at) = draw(&job).await;
        let follower = Follower::new(&caller, &job, token, Filter::All, true, at);
        let mut follower = follower.dressed();
        let first = follower.send(&Progress::Page(drawn)).await;
        first.map_err(|_| gone())?;
        follower.follow().await.map_err(|_| gone())?;
        claim::told(&caller, &job);
        Ok(Attached { row: job.row() })
    }
}

/// The last screen as a page of its own, and where the output goes on behind it.
async fn draw(job: &Job) -> (Page, u64) {
    let seen = look(job, |screen| (screen.redraw(), screen.at())).await;
    // Without a screen there is still what was written last.
    let (bytes, at) = seen.unwrap_or_else(|_| (CLEAR.to_vec(), newest(&job.log, limits::page())));
    let page = Page {
        from: at,
        next: at,
        end: job.log.end(),
        base64: Some(base64::engine::general_purpose::STANDARD.encode(bytes)),
        ..Page::default()
    };
    (page, at)
}
