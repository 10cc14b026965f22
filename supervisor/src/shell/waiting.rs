//! Waits until the program in front of a shell waits for more, by evidence newer than what was typed.
//!
//! In this order: the shell has ended; our line has; its prompt is back; the kernel shows somebody in front waiting for
//! the terminal; it has been quiet for long, which proves nothing and is said to be inferred; the time is over.

use std::{sync::Arc, time::Duration};

use ostler_proto::methods::Reason;
use tokio::time::{Instant, timeout};

use crate::{
    job::Job,
    terminal::{
        Settings, Terminal,
        dialect::Dialect,
        marks::Mark,
        proof::{self, Place, Wait, Waits},
        talk::{Line, Talk},
    },
};

/// Silence before the kernel is asked first, and between two questions at most: a line may run for hours.
const ASK_FIRST: Duration = Duration::from_millis(15);
/// See [`ASK_FIRST`].
const ASK_MOST: Duration = Duration::from_secs(1);
/// Silence after which somebody who waits for the terminal and for something else counts as waiting for the terminal.
const AMONG: Duration = Duration::from_millis(150);
/// The same inside a line, where what else it waits for may be its work.
const AMONG_IN_LINE: Duration = Duration::from_secs(1);
/// Silence after which a line is taken for waiting that talks to a terminal behind this one.
const RELAYED: Duration = Duration::from_secs(3);
/// How long the kernel may take to hand over what a program has written.
const ON_ITS_WAY: Duration = Duration::from_millis(5);
/// The same where the shell itself waits in the middle of a line: far more often the mark of its end is on its way, on
/// a machine that was busy for those few milliseconds (once in 10,000 lines), than it is a `read` of its own.
const END_ON_ITS_WAY: Duration = Duration::from_millis(100);
/// Silence at a prompt after which a line that was typed there and has not begun was not taken.
const NOT_TAKEN: Duration = Duration::from_secs(2);

/// What is waited for, and with which patience.
pub(super) struct Waiting<'a> {
    pub(super) job: &'a Arc<Job>,
    pub(super) talk: &'a Talk,
    /// Where the log ended when it was typed: what stands before proves nothing.
    pub(super) since: u64,
    /// Who waited then already.
    pub(super) before: Waits,
    /// For the end of our line, not for any prompt.
    pub(super) line: bool,
    /// Something ran when it was typed: the prompt behind that is not the end of what was typed, and the kernel alone
    /// tells whether the shell has taken it.
    pub(super) ahead: bool,
    /// A program that asks for input does not end the wait.
    pub(super) through: bool,
    pub(super) quiet: Option<Duration>,
    pub(super) until: Option<Instant>,
}

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Came {
    For(Reason),
    /// The shell is at its prompt and has not taken our line.
    NotTaken,
}

/// Waits until a shell is at its prompt or, unless `through` that, until whoever is in front of a terminal waits for it.
/// Nothing without a terminal, and at the end of the job.
pub(crate) async fn ready(job: &Arc<Job>, through: bool) -> Option<Reason> {
    let waiting = Waiting {
        job,
        talk: job.talk.as_ref()?,
        since: 0,
        before: Waits::default(),
        line: false,
        ahead: false,
        through,
        quiet: None,
        until: None,
    };
    match waiting.come().await {
        Came::For(Reason::Exit) | Came::NotTaken => None,
        Came::For(reason) => Some(reason),
    }
}

/// The end of the last line of a shell, as its marks tell it; it stays there for whoever asked for the line.
pub(crate) fn done(job: &Job) -> Option<Mark> {
    let reading = job.talk.as_ref()?.look(&job.log);
    let line = reading.line.as_ref().and_then(|l| l.done.clone());
    line.or_else(|| reading.done.clone())
}

impl Waiting<'_> {
    /// Waits.
    pub(super) async fn come(&self) -> Came {
        let mut news = self.job.log.subscribe();
        let mut status = self.job.watch();
        let (mut end, mut silent_since, mut pause) =
            (self.job.log.end(), Instant::now(), ASK_FIRST);
        let mut alarm = self.talk.alarm.take();
        loop {
            // Before looking: what comes afterwards is news.
            news.mark_unchanged();
            if status.borrow_and_update().finished.is_some() {
                return Came::For(Reason::Exit);
            }
            let now = Instant::now();
            if let Some(came) = self.marks(now - silent_since) {
                return came;
            }
            let at = self.job.log.end();
            if at != end {
                (end, silent_since, pause) = (at, now, ASK_FIRST);
            }
            if self.until.is_some_and(|until| now >= until) {
                return Came::For(Reason::WaitOver);
            }
            if self.quiet.is_some_and(|quiet| now >= silent_since + quiet) {
                return Came::For(Reason::InferredIdle);
            }
            if now >= silent_since + RELAYED && self.is_relayed() {
                return Came::For(Reason::InferredIdle);
            }
            let ask_at = silent_since + pause;
            if now >= ask_at {
                if let Some((came, on_its_way)) = self.ask(now - silent_since).await {
                    // What was printed on the way to that wait, a prompt perhaps, is still on its own way to the log.
                    let _ = timeout(on_its_way, news.changed()).await;
                    if self.job.log.end() == end && !self.has_more() {
                        return came;
                    }
                    continue;
                }
                pause = (pause * 2).min((now - silent_since) + ASK_MOST);
                continue;
            }
            let next = [
                Some(ask_at),
                self.until,
                self.quiet.map(|q| silent_since + q),
            ];
            let next = next.into_iter().flatten().min().unwrap_or(ask_at);
            tokio::select! {
                Ok(()) = news.changed() => {}
                Ok(()) = status.changed() => {}
                () = alarm.at(next) => {}
            }
        }
    }

    /// What the marks say.
    fn marks(&self, silent: Duration) -> Option<Came> {
        let reading = self.talk.look(&self.job.log);
        let prompt = reading.prompt.filter(|at| *at > self.since);
        if self.ahead {
            return None;
        }
        if !self.line {
            let over = reading
                .line
                .as_ref()
                .is_some_and(|l| l.is_done() || l.is_aborted());
            let prompt = prompt.filter(|at| self.is_newest(*at, reading.done.as_ref()));
            return (prompt.is_some() && (over || reading.line.is_none()) && self.shell_in_front())
                .then_some(Came::For(Reason::Prompt));
        }
        let line = reading.line.as_ref()?;
        if let Some(output) = line.output {
            self.job.face.echoes.close(&self.job.log, output);
        }
        if line.is_done() {
            return Some(Came::For(Reason::Prompt));
        }
        let idle_at_prompt = prompt.is_some() && !self.has_begun(line) && silent >= NOT_TAKEN;
        (idle_at_prompt && self.shell_in_front()).then_some(Came::NotTaken)
    }

    /// Whoever only looks is not told of the prompt at which something was entered since: the shell itself is in front
    /// while it works on that.
    fn is_newest(&self, prompt: u64, done: Option<&Mark>) -> bool {
        self.since > 0 || !self.talk.typed_since(prompt) || self.talk.is_half_typed(done)
    }

    /// What the kernel says, and how long the log may still belie it.
    async fn ask(&self, silent: Duration) -> Option<(Came, Duration)> {
        let taken = !self.line || self.line_has_begun();
        // Before its output begins, whoever waits has not read it yet, until that takes too long.
        if !taken && silent < NOT_TAKEN {
            return None;
        }
        let (place, modes) = self.job.place()?;
        let waits = look(place).await;
        let wait = waits.newer_than(&self.before)?;
        if !taken {
            return Some((Came::NotTaken, ON_ITS_WAY));
        }
        let enough = if self.line { AMONG_IN_LINE } else { AMONG };
        if wait == Wait::Among && silent < enough {
            return None;
        }
        let in_front = place.group == place.leader && self.is_shell();
        let at_prompt = in_front && !modes.lines;
        let reading = self.talk.look(&self.job.log);
        let (aborted, plain) = reading
            .line
            .as_ref()
            .map_or((false, false), |l| (l.is_aborted(), l.plain));
        let marked = reading.prompt.is_some_and(|at| at > self.since);
        // Inside a line a shell can read its terminal as it does at its prompt; outside of one it asks for the rest.
        let inside = reading.more.is_some() || reading.running.is_some();
        // Nobody has seen a mark of it: it may be another program by now.
        let known = reading.done.is_some() || reading.prompt.is_some();
        let reason = match (self.line, at_prompt) {
            // The shell has thrown the line away.
            (true, _) if in_front && aborted => Reason::Prompt,
            (true, true) if marked || plain => Reason::Prompt,
            // Its marks were thrown away by hand, or its output went elsewhere.
            (false, true) if known && !inside => Reason::Prompt,
            (false, _) if self.ahead && in_front && marked => Reason::Prompt,
            _ if self.through => return None,
            (true, _) if in_front => return Some((Came::For(Reason::InputWait), END_ON_ITS_WAY)),
            _ => Reason::InputWait,
        };
        Some((Came::For(reason), ON_ITS_WAY))
    }

    /// Something else sits in front that passes on what is typed: whether that works or waits, nobody here can see.
    fn is_relayed(&self) -> bool {
        let relay = |settings: Settings| {
            !settings.lines && !settings.echo && !settings.signals && !settings.adds_cr
        };
        self.line
            && !self.through
            && self
                .job
                .place()
                .is_some_and(|(place, settings)| place.group != place.leader && relay(settings))
    }

    fn line_has_begun(&self) -> bool {
        let reading = self.talk.look(&self.job.log);
        reading.line.as_ref().is_some_and(|l| self.has_begun(l))
    }

    /// Where no mark says so, the output begins behind the echo, which must have come.
    fn has_begun(&self, line: &Line) -> bool {
        line.output.is_some_and(|at| at <= self.job.log.end())
    }

    fn has_more(&self) -> bool {
        self.job.with_terminal(Terminal::has_output) == Some(true)
    }

    fn is_shell(&self) -> bool {
        let spec = self.job.spec.shell.as_ref();
        spec.is_some_and(|s| s.dialect != Dialect::Plain)
    }

    fn shell_in_front(&self) -> bool {
        self.job
            .place()
            .is_some_and(|(place, _)| place.group == place.leader)
    }
}

/// Who waits for the terminal now.
pub(super) async fn look(place: Place) -> Waits {
    let looked = tokio::task::spawn_blocking(move || proof::look(place)).await;
    // Nothing seen is nothing proven.
    looked.unwrap_or_default()
}
