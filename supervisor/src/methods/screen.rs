//! `job/screen`.

use ostler_proto::{
    job::Size,
    limits,
    methods::JobScreen,
    refusal::{Refusal, RefusalKind},
    screen::{Look, Screen},
};

use super::Serve;
use crate::{
    caller::Caller,
    job::Job,
    life::plan::within,
    terminal::{self, Terminal},
};

impl Serve for JobScreen {
    async fn serve(caller: Caller, params: Look) -> Result<Screen, Refusal> {
        let count = params.lines.map(|lines| lines.count);
        within("lines", count, 1, limits::SCREEN_LINES)?;
        let registry = &caller.house().registry;
        let job = registry.find(params.session.as_deref(), &params.id, &caller.access())?;
        job.saw_reader();
        let seen = look(&job, |screen| screen.view(params.colors, params.lines)).await?;
        let main = job.status().pid;
        let front = job.with_terminal(Terminal::foreground).flatten();
        Ok(Screen {
            foreground: front.filter(|group| main != Some(*group)),
            ..seen
        })
    }
}

/// Looks at the screen of a job as it is now, also of one that has ended.
pub(super) async fn look<T>(
    job: &Job,
    ask: impl FnOnce(&terminal::Screen) -> T,
) -> Result<T, Refusal> {
    if !job.spec.pty {
        let words = format!("{} has no terminal", job.id());
        return Err(Refusal::new(RefusalKind::NoInput, words).hint("start --pty"));
    }
    let window = job.window();
    let cells = u32::from(window.rows) * u32::from(window.cols);
    if cells > limits::SCREEN_CELLS {
        let (most, Size { rows, cols }) = (limits::SCREEN_CELLS, window);
        let words = format!("a screen of {cols}x{rows} is too large to look at");
        return Err(Refusal::limit("cells", most.into(), words, &[]).hint("ostler resize"));
    }
    let easel = &job.face.easel;
    let followed = easel
        .follow(&job.log, &job.face.echoes, window, job.log.end())
        .await;
    let seen = match followed {
        // Nothing but another look can take it away in between; then it is as if it had been dropped before.
        Ok(()) => easel.with(ask),
        Err(terminal::Broken) => None,
    };
    seen.ok_or_else(|| {
        let words = format!("the screen of {} could not be drawn", job.id());
        Refusal::new(RefusalKind::Internal, words).hint("look again, or read the output")
    })
}
