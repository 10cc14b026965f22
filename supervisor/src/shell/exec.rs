//! One command line: handed over, awaited, and what it printed.

use std::{sync::Arc, time::Duration};

use ostler_proto::{
    limits,
    methods::Reason,
    refusal::{Refusal, RefusalKind},
    shell::{Exec, Executed},
};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use super::{
    printed::{self, Printed, Way},
    waiting::{Came, Waiting, look},
};
use crate::{
    clock,
    job::{Job, Level},
    ledger::{Entry, Ledger},
    log::Filter,
    terminal::{
        dialect::{Dialect, HandOver, ShellSpec, is_plain},
        handed::{Handed, HandedLine},
        marks::Mark,
        proof::Waits,
        talk::{Line, Reading, Talk},
        text,
    },
};

/// How long a prompt is awaited that must come by itself: behind the end of a line, or behind an Enter.
const PROMPT: Duration = Duration::from_secs(1);
/// How long a shell may take to start where the request sets no time.
const FIRST_PROMPT: Duration = Duration::from_secs(30);
/// What a terminal takes at once at a prompt.
const SHORT: usize = 1_024;
/// How long the terminal may take to accept the short line that is typed.
const TYPING: Duration = Duration::from_secs(5);

/// `^U`, which empties the line of a terminal that takes whole lines.
const KILL_LINE: char = '\x15';

/// The shell of a job, and what is known of its prompt.
///
/// # Errors
/// It is none, or it has ended.
pub(crate) fn shell(job: &Job) -> Result<(&ShellSpec, &Talk), Refusal> {
    let spec = job.spec.shell.as_ref().ok_or_else(|| no_shell(job))?;
    Ok((spec, talker(job)?))
}

fn no_shell(job: &Job) -> Refusal {
    Refusal::new(RefusalKind::NoInput, format!("{} is no shell", job.id()))
        .hint("ostler send writes to a command; ostler shell open opens a shell")
}

/// Whoever can be talked to in turn: a shell, or a command at a terminal.
///
/// # Errors
/// It is neither, or it has ended.
pub(super) fn talker(job: &Job) -> Result<&Talk, Refusal> {
    let id = job.id();
    let talk = job.talk.as_ref().ok_or_else(|| no_shell(job))?;
    if job.wanted().borrow().level > Level::Run && job.status().finished.is_none() {
        let words = format!("{id} is being ended");
        return Err(
            Refusal::new(RefusalKind::NoInput, words).hint("ostler shell open opens another")
        );
    }
    if job.status().finished.is_some() {
        let how = job.row().outcome.map_or("", outcome_words);
        let words = format!("{id} has ended{how}; its directory, variables and programs are gone");
        return Err(Refusal::new(RefusalKind::NoInput, words).hint(
            "ostler shell open opens another; what it printed can be read until it is closed",
        ));
    }
    Ok(talk)
}

fn outcome_words(outcome: ostler_proto::job::Outcome) -> &'static str {
    match outcome {
        ostler_proto::job::Outcome::IdleReaped => " because nobody used it for its idle time",
        _ => "",
    }
}

/// The right to talk to it.
///
/// # Errors
/// Somebody else is talking, or holds it.
pub(super) fn turn(job: &Job, talk: &Talk) -> Result<OwnedSemaphorePermit, Refusal> {
    if let Some(holder) = job.desk.holder() {
        return Err(holder.refusal(&job.id()));
    }
    talk.take_turn().ok_or_else(|| in_progress(job))
}

/// A key stands for one line or text.
pub(super) fn key_conflict() -> Refusal {
    let words = "this key was used for something else that was typed";
    Refusal::new(RefusalKind::KeyConflict, words).hint("use a fresh key for something new")
}

/// The same, as soon as whoever talks is done.
pub(super) async fn turn_by(
    job: &Job,
    talk: &Talk,
    until: Option<Instant>,
) -> Result<OwnedSemaphorePermit, Refusal> {
    let turn = talk.wait_for_turn();
    let turn = match until {
        Some(until) => tokio::time::timeout_at(until, turn).await.ok().flatten(),
        None => turn.await,
    };
    turn.ok_or_else(|| in_progress(job))
}

fn in_progress(job: &Job) -> Refusal {
    match job.background().filter(|send| send.is_live()) {
        Some(send) => {
            let id = send.id();
            busy(job, &format!("{id} goes on in it")).hint(format!(
                "ostler wait {id} waits for its end, ostler stop {id} interrupts it"
            ))
        }
        None => busy(job, "another send or exec is in progress").hint(format!(
            "wait until that is over; ostler signal {} INT interrupts what runs",
            job.id()
        )),
    }
}

fn busy(job: &Job, why: &str) -> Refusal {
    Refusal::new(RefusalKind::Busy, format!("{}: {why}", job.id()))
}

/// Runs a line. Dropping this does not stop it. One that has run already, by its key, is awaited and told again.
pub(crate) async fn exec(ledger: &Ledger, job: &Arc<Job>, ask: &Exec) -> Result<Executed, Refusal> {
    if let Some(answer) = again(job, ask).await {
        return answer;
    }
    let talk = takes(job, ask)?;
    let turn = turn(job, talk)?;
    let until = ask
        .timeout_ms
        .map(|ms| Instant::now() + Duration::from_millis(ms));
    ready(job, talk, ask.inline, until).await?;
    let handed = HandedOver::by(ledger, job, talk, ask, turn).await?;
    handed.answer(ask, until).await
}

/// The answer to a line that was handed over earlier: by a request that has lost its connection, perhaps to the
/// supervisor before this one. None where no line has this key.
async fn again(job: &Arc<Job>, ask: &Exec) -> Option<Result<Executed, Refusal>> {
    let (key, talk) = (ask.key.as_deref()?, job.talk.as_ref()?);
    let (handed, _) = talk.handed_by(key)?;
    if !handed.is_line(&ask.line) {
        return Some(Err(key_conflict()));
    }
    let until = ask
        .timeout_ms
        .map(|ms| Instant::now() + Duration::from_millis(ms));
    Some(HandedOver::again(job, talk, ask, handed, until).await)
}

/// What is known of a shell that takes this line.
///
/// # Errors
/// It takes none.
pub(super) fn takes<'a>(job: &'a Job, ask: &Exec) -> Result<&'a Talk, Refusal> {
    let (spec, talk) = shell(job)?;
    if spec.takes_lines() || ask.inline {
        return Ok(talk);
    }
    let program = job.spec.args.first().map_or("it", String::as_str);
    let words = format!("{program} is no shell whose lines can be told apart");
    Err(Refusal::new(RefusalKind::NoInput, words).hint("ostler shell send"))
}

/// Waits until a line can be handed over; an `inline` one to whoever is in front.
pub(super) async fn ready(
    job: &Arc<Job>,
    talk: &Talk,
    inline: bool,
    until: Option<Instant>,
) -> Result<(), Refusal> {
    if inline {
        somebody_waits(job).await
    } else {
        at_prompt(job, talk, until).await
    }
}

/// A line that was typed and is not known to be over. Nobody else talks to its shell meanwhile.
pub(super) struct HandedOver<'a> {
    job: &'a Arc<Job>,
    talk: &'a Talk,
    handed: Handed,
    /// How often people had typed before.
    times: u64,
    turn: OwnedSemaphorePermit,
    /// What it is made of. None once it has been asked for again.
    _lying: Option<Lying<'a>>,
    /// People see a line that is typed as it is.
    _shown: Option<Shown<'a>>,
}

impl<'a> HandedOver<'a> {
    /// Hands a line over to a shell that waits for one.
    pub(super) async fn by(
        ledger: &Ledger,
        job: &'a Arc<Job>,
        talk: &'a Talk,
        ask: &Exec,
        turn: OwnedSemaphorePermit,
    ) -> Result<Self, Refusal> {
        let (spec, _) = shell(job)?;
        let number = talk.next_number(&job.log);
        let typed = Typed::of(job, ask, spec, talk, number).await?;
        // Known again when it has ended.
        talk.note_alone(false);
        let since = job.log.end();
        let (line, shown) = if let Typed::Plain { output, .. } = &typed {
            let output = output.map(|length| since + length);
            (
                HandedLine {
                    number,
                    plain: true,
                    output,
                },
                None,
            )
        } else {
            let shown = Shown::open(job, since, &ask.line);
            (
                HandedLine {
                    number,
                    plain: false,
                    output: None,
                },
                Some(shown),
            )
        };
        let handed = Handed::line(ask, line, since);
        // Before it is typed: who asks again must never make it run a second time.
        ledger.append(&Entry::Handed {
            number: job.spec.number,
            line: handed.clone(),
        });
        talk.hand_over(&job.log, handed.clone());
        let times = job.desk.typed();
        let turn = type_in(job, &typed, turn).await?;
        Ok(Self {
            job,
            talk,
            handed,
            times,
            turn,
            _lying: Some(Lying {
                job,
                talk,
                typed,
                number,
            }),
            _shown: shown,
        })
    }

    /// What came of one that was handed over earlier, as soon as nobody else talks and it is over.
    async fn again(
        job: &'a Arc<Job>,
        talk: &'a Talk,
        ask: &Exec,
        handed: Handed,
        until: Option<Instant>,
    ) -> Result<Executed, Refusal> {
        let times = job.desk.typed();
        let turn = turn_by(job, talk, until).await?;
        let newest = talk.handed_by(handed.key.as_deref().unwrap_or_default());
        if newest.is_none_or(|(_, newest)| !newest) {
            let line = talk.followed(&job.log, &handed);
            let reason = Reason::Prompt;
            return Ok(answer(job, ask, reason, line, &handed, false));
        }
        talk.go_back(&job.log, &handed);
        let again = Self {
            job,
            talk,
            handed,
            times,
            turn,
            _lying: None,
            _shown: None,
        };
        again.answer(ask, until).await
    }

    /// Waits for its end and tells it.
    async fn answer(self, ask: &Exec, until: Option<Instant>) -> Result<Executed, Refusal> {
        let (job, times, handed) = (self.job, self.times, self.handed.clone());
        let came = self.come(ask.through, until).await;
        let (reason, line) = self.end(came)?;
        let shared = job.desk.typed() != times;
        Ok(answer(job, ask, reason, line, &handed, shared))
    }

    /// Waits for its end, or for a program that asks for input where it does not wait `through` that.
    pub(super) async fn come(&self, through: bool, until: Option<Instant>) -> Came {
        let waiting = Waiting {
            job: self.job,
            talk: self.talk,
            since: self.handed.typed_at,
            before: Waits::default(),
            line: true,
            ahead: false,
            through,
            quiet: None,
            until,
        };
        waiting.come().await
    }

    /// What is known of it, taken away if it is over; then others may talk.
    ///
    /// # Errors
    /// Its shell has not taken it.
    pub(super) fn end(self, came: Came) -> Result<(Reason, Option<Line>), Refusal> {
        let is_done = |reading: &Reading| reading.line.as_ref().is_some_and(Line::is_done);
        let came = match came {
            // It has ended on the way here.
            Came::For(reason)
                if reason != Reason::Exit && is_done(&self.talk.look(&self.job.log)) =>
            {
                Came::For(Reason::Prompt)
            }
            came => came,
        };
        let over = matches!(came, Came::NotTaken | Came::For(Reason::Prompt));
        let line = self.line(over);
        drop(self.turn);
        match came {
            Came::For(reason) => Ok((reason, line)),
            Came::NotTaken => Err(busy(
                self.job,
                "its shell has not said that it took the line; it is not known whether it ran",
            )
            .hint("ostler shell read shows what it says instead")),
        }
    }

    /// What is known of it, where nobody will tell its end.
    pub(super) fn give_up(self) -> Option<Line> {
        self.line(true)
    }

    fn line(&self, over: bool) -> Option<Line> {
        let mut reading = self.talk.look(&self.job.log);
        if over {
            return reading.line.take();
        }
        reading.line.clone()
    }
}

/// What a line is made of lies there until the shell has taken it, also when whoever handed it over is gone: a supervisor
/// that leaves took it away, and the shell then ran nothing.
struct Lying<'a> {
    job: &'a Job,
    talk: &'a Talk,
    typed: Typed,
    number: u64,
}

impl Drop for Lying<'_> {
    fn drop(&mut self) {
        let reading = self.talk.look(&self.job.log);
        let line = reading.line.as_ref().filter(|l| l.number == self.number);
        let waits = line.is_some_and(|l| l.output.is_none());
        if let (true, Typed::HandedOver(laid)) = (waits, &mut self.typed) {
            laid.leave();
        }
    }
}

/// What people see in place of how a line is handed over, as long as nobody has given up.
struct Shown<'a>(&'a Job);

impl<'a> Shown<'a> {
    fn open(job: &'a Job, since: u64, line: &str) -> Self {
        job.face.echoes.open(since, line);
        Self(job)
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.0.face.echoes.give_up(&self.0.log);
    }
}

/// What makes the shell run a text.
enum Typed {
    HandedOver(HandOver),
    Inline(String),
    /// As it is. `output`: how many bytes the terminal itself shows of it, where that is what comes before its output.
    Plain {
        line: String,
        output: Option<u64>,
    },
}

/// In front of a line that is typed as it is; keeps it out of histories.
const APART: &str = "   ";

impl Typed {
    async fn of(
        job: &Job,
        ask: &Exec,
        spec: &ShellSpec,
        talk: &Talk,
        number: u64,
    ) -> Result<Self, Refusal> {
        if ask.inline {
            return Ok(Self::Inline(inline(spec, number, &ask.line)));
        }
        if let Some(plain) = Self::plain(job, ask, spec.dialect, talk) {
            return Ok(plain);
        }
        let (shell, text) = (spec.clone(), ask.line.clone());
        // A disk that does not answer must hold up nobody but this request.
        let laid = tokio::task::spawn_blocking(move || shell.hand_over(number, &text)).await;
        let laid = laid.map_err(std::io::Error::other).flatten();
        let mut laid = laid.map_err(|e| not_laid_down(job, &e))?;
        if talk.was_typed_ahead() && takes_lines(job) {
            // The terminal itself holds what was typed ahead, and shows nothing of it; it throws it away.
            laid.trigger.insert(0, KILL_LINE);
        }
        Ok(Self::HandedOver(laid))
    }

    /// A plain line is typed where the hooks of the prompt are known to be in place and nobody else has typed.
    fn plain(job: &Job, ask: &Exec, dialect: Dialect, talk: &Talk) -> Option<Self> {
        let hooked = talk.look(&job.log).is_hooked();
        if !hooked || talk.was_typed_ahead() || !is_plain(&ask.line) {
            return None;
        }
        let line = format!("{APART}{}\n", ask.line);
        let output = match dialect {
            Dialect::Bash => None,
            // A line editor may have other ideas of single keys.
            Dialect::Zsh if job.face.modes.bracketed_paste() => {
                let line = format!("\x1b[200~{APART}{}\x1b[201~\n", ask.line);
                return Some(Self::Plain { line, output: None });
            }
            Dialect::Posix => {
                // Its terminal echoes, and its prompt alone marks: nobody may speak in between.
                let (place, settings) = job.place()?;
                let echoes = settings.lines && settings.echo && settings.adds_cr;
                if !echoes || !talk.is_alone() && talk.has_others(place.leader) {
                    return None;
                }
                Some(line.len() as u64 + 1)
            }
            Dialect::Zsh | Dialect::Fish | Dialect::Plain => return None,
        };
        Some(Self::Plain { line, output })
    }

    fn line(&self) -> &str {
        match self {
            Self::HandedOver(laid) => &laid.trigger,
            Self::Inline(line) | Self::Plain { line, .. } => line,
        }
    }
}

fn takes_lines(job: &Job) -> bool {
    job.place().is_some_and(|(_, settings)| settings.lines)
}

fn not_laid_down(job: &Job, error: &std::io::Error) -> Refusal {
    let words = format!("the line could not be handed to {}: {error}", job.id());
    Refusal::new(RefusalKind::Internal, words)
        .hint("the disk of the artifacts must take a small file")
}

/// Types the line. The turn goes with it: whoever asked may leave, but nobody else talks before it is typed.
async fn type_in(
    job: &Arc<Job>,
    typed: &Typed,
    turn: OwnedSemaphorePermit,
) -> Result<OwnedSemaphorePermit, Refusal> {
    job.saw_input();
    // A short line at a prompt is taken at once.
    let bytes = typed.line().as_bytes();
    let took = if bytes.len() <= SHORT {
        job.with_terminal(|t| t.type_now(bytes)).unwrap_or(0)
    } else {
        0
    };
    if took == bytes.len() {
        return Ok(turn);
    }
    let (writer, line) = (Arc::clone(job), bytes[took..].to_vec());
    let all = line.len() as u64;
    let written = tokio::spawn(async move {
        let took = match &writer.feed {
            Some(feed) => feed.write(line, false, TYPING).await.bytes,
            None => 0,
        };
        (took, turn)
    });
    match written.await {
        Ok((took, turn)) if took == all => Ok(turn),
        Ok((took, _)) => Err(busy(
            job,
            &format!("its terminal took {took} of {all} bytes"),
        )),
        Err(_) => Err(busy(job, "its terminal could not be written to")),
    }
}

/// Waits until a line can be handed over.
///
/// # Errors
/// Something runs in it, or somebody has typed half a line.
async fn at_prompt(job: &Arc<Job>, talk: &Talk, until: Option<Instant>) -> Result<(), Refusal> {
    let since = Instant::now();
    let mut news = job.log.subscribe();
    let mut status = job.watch();
    loop {
        news.mark_unchanged();
        if status.borrow_and_update().finished.is_some() {
            shell(job)?;
        }
        let patience = match stand(job, talk) {
            Stand::Prompt => return Ok(()),
            Stand::Starting => FIRST_PROMPT,
            Stand::Coming => PROMPT,
            Stand::Busy(refusal) => return Err(*refusal),
        };
        let give_up = until.map_or(since + patience, |until| until.min(since + patience));
        tokio::select! {
            Ok(()) = news.changed() => {}
            Ok(()) = status.changed() => {}
            () = tokio::time::sleep_until(give_up) => {
                if until.is_some_and(|until| Instant::now() >= until) {
                    return Err(busy(job, "it is not at its prompt yet; nothing was typed")
                        .hint("ostler shell read shows what it does; give it more time"));
                }
                if talk.was_entered() && talk.look(&job.log).prompt.is_some() {
                    return Err(busy(job, "what was typed at its prompt has not begun")
                        .hint(format!("ostler keys {} C-c throws it away", job.id())));
                }
                return proven(job, talk).await;
            }
        }
    }
}

/// How a shell stands.
pub(super) enum Stand {
    /// It waits for a line.
    Prompt,
    /// It has never had a prompt.
    Starting,
    /// A prompt must come.
    Coming,
    Busy(Box<Refusal>),
}

/// Something stands behind a prompt. fish prints its prompt there.
fn shows_text(job: &Job, prompt: u64) -> bool {
    let dialect = job.spec.shell.as_ref().map(|s| s.dialect);
    let slice = job
        .log
        .read(prompt, limits::TAIL_FRAME as usize, Filter::All);
    dialect != Some(Dialect::Fish) && !text::plain(&slice.bytes).trim().is_empty()
}

fn goes_on(job: &Job) -> String {
    let id = job.id();
    format!(
        "ostler shell send {id} waits for it or types to it, ostler signal {id} INT interrupts it; \
         exec --inline runs a line in a shell that it has opened"
    )
}

/// How a shell stands, by its marks.
pub(super) fn stand(job: &Job, talk: &Talk) -> Stand {
    let mut reading = talk.look(&job.log);
    if let Some(line) = &reading.line {
        // It never began, and its shell is at another prompt, or has had its time: somebody threw it away.
        let again = reading.prompt.is_some_and(|at| at > line.typed_at);
        let gone = line.output.is_none() && (again || line.since.elapsed() > PROMPT * 2);
        let in_front = || {
            job.place()
                .is_some_and(|(place, _)| place.group == place.leader)
        };
        let over = line.is_done() || line.is_aborted() && in_front();
        if !over && !gone {
            let why = busy(job, "its last line still runs").hint(goes_on(job));
            return Stand::Busy(Box::new(why));
        }
        reading.line = None;
    }
    match (reading.prompt, reading.running) {
        (Some(prompt), _)
            if talk.is_half_typed(reading.done.as_ref())
                || talk.was_typed_ahead() && shows_text(job, prompt) =>
        {
            let why = busy(job, "somebody has typed half a line at its prompt")
                .hint(format!("ostler keys {} C-c throws it away", job.id()));
            Stand::Busy(Box::new(why))
        }
        (Some(prompt), _) if talk.typed_since(prompt) => Stand::Coming,
        (Some(_), _) => Stand::Prompt,
        (None, Some(_)) => {
            let why = busy(job, "a command runs in it that was typed there").hint(goes_on(job));
            Stand::Busy(Box::new(why))
        }
        (None, None) if reading.more.is_some() => {
            let why = busy(
                job,
                "a line that was typed there is not whole, and it asks for the rest",
            )
            .hint(format!(
                "ostler shell send {0} types it, ostler keys {0} C-c throws the line away",
                job.id()
            ));
            Stand::Busy(Box::new(why))
        }
        (None, None) if reading.done.is_none() => Stand::Starting,
        (None, None) => Stand::Coming,
    }
}

/// No prompt has come: its marks may have been thrown away, and the kernel knows.
pub(super) async fn proven(job: &Arc<Job>, talk: &Talk) -> Result<(), Refusal> {
    // Nobody has started anything since its last line ended; else a shell that reads whole lines looks the same at its
    // prompt and in a `read`.
    let untouched = {
        let reading = talk.look(&job.log);
        let done = reading.done.as_ref();
        done.is_some_and(|d| reading.running.is_none() && !talk.typed_since(d.from))
    };
    if let Some((place, modes)) = job.place()
        && place.group == place.leader
        && (!modes.lines || untouched)
        && look(place).await.newer_than(&Waits::default()).is_some()
    {
        return Ok(());
    }
    Err(busy(job, "it is not at its prompt")
        .hint("ostler shell read shows what it does; exec --inline runs a line in whatever shell is in front"))
}

/// Somebody in front waits for the terminal.
async fn somebody_waits(job: &Arc<Job>) -> Result<(), Refusal> {
    if let Some((place, _)) = job.place()
        && look(place).await.newer_than(&Waits::default()).is_some()
    {
        return Ok(());
    }
    Err(busy(
        job,
        "nobody in front of it is seen to wait for a line",
    ))
}

/// The whole text in one line of printable ASCII that any POSIX shell takes, marks included: for a shell that cannot
/// read our files or has none of our functions.
fn inline(spec: &ShellSpec, number: u64, text: &str) -> String {
    let nonce = &spec.nonce;
    let mut plain = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        match byte {
            b'\'' | b'\\' | b'!' | 0..=0x1f | 0x7f.. => plain.push_str(&format!("\\0{byte:03o}")),
            _ => plain.push(char::from(byte)),
        }
    }
    format!(
        " printf '\\033]133;C;k=%s;n=%s\\007' {nonce} {number};eval \"$(printf '%b' '{plain}')\";\
         printf '\\033]133;D;%s;k=%s;n=%s;%s\\007' \"$?\" {nonce} {number} \"$PWD\"\n"
    )
}

fn answer(
    job: &Arc<Job>,
    ask: &Exec,
    reason: Reason,
    line: Option<Line>,
    handed: &Handed,
    shared: bool,
) -> Executed {
    let done = line
        .as_ref()
        .and_then(|l| l.done.as_ref())
        .filter(|_| reason == Reason::Prompt);
    let (begin, end) = span(job, line.as_ref(), done);
    if let Some(talk) = &job.talk {
        talk.tell(end);
    }
    let max = ask.max.unwrap_or(limits::result_whole());
    let way = Way::of(job);
    let printed = printed::read(&job.log, begin, end, max, way);
    let row = job.row();
    let ended = job
        .status()
        .finished
        .clone()
        .filter(|_| reason == Reason::Exit);
    let pid = row.pid.filter(|_| reason == Reason::Prompt);
    let talk = job.talk.as_ref();
    let others = talk.is_some_and(|talk| pid.is_some_and(|pid| talk.has_others(pid)));
    if let Some(talk) = talk {
        talk.note_alone(pid.is_some() && !others);
    }
    let text = Text::of(printed, ask.raw);
    Executed {
        reason,
        output: text.output,
        base64: text.base64,
        tail: text.tail,
        truncated: text.truncated,
        from: begin,
        next: end,
        crlf: way.adds_cr,
        lost: text.lost,
        replaced: text.replaced,
        exit_code: match &ended {
            Some(ended) => ended.exit_code,
            None => done.and_then(|d| d.code),
        },
        cwd: done.and_then(|d| d.cwd.clone().or_else(|| talk?.directory(pid?))),
        duration_ms: clock::mono().saturating_sub(handed.began.mono),
        shared,
        others,
        row,
        job: None,
    }
}

/// Where the output of a line begins, and where it ends or ended so far.
pub(super) fn span(job: &Job, line: Option<&Line>, done: Option<&Mark>) -> (u64, u64) {
    let begin = line.map_or(job.log.end(), |l| l.output.unwrap_or(l.typed_at));
    let begun = line.is_some_and(|l| l.output.is_some());
    let end = match done {
        Some(done) => done.from,
        // What stands there is how it was typed.
        None if !begun => begin,
        None => job.log.end(),
    };
    (begin, end.max(begin))
}

/// What was printed, as the answer has it.
struct Text {
    output: Option<String>,
    base64: Option<String>,
    tail: String,
    truncated: bool,
    lost: u64,
    replaced: u64,
}

impl Text {
    fn of(printed: Printed, raw: bool) -> Self {
        use base64::Engine as _;
        let Printed {
            head,
            tail,
            truncated,
            lost,
        } = printed;
        if raw {
            return Self {
                output: None,
                base64: Some(base64::engine::general_purpose::STANDARD.encode(&head)),
                tail: String::from_utf8_lossy(&tail).into_owned(),
                truncated,
                lost,
                replaced: 0,
            };
        }
        let (output, in_head) = lossy(&head);
        let (tail, in_tail) = lossy(&tail);
        Self {
            output: Some(output),
            base64: None,
            tail,
            truncated,
            lost,
            replaced: in_head + in_tail,
        }
    }
}

/// The text, and how many of its bytes were none.
fn lossy(bytes: &[u8]) -> (String, u64) {
    let bad: usize = bytes.utf8_chunks().map(|c| c.invalid().len()).sum();
    (String::from_utf8_lossy(bytes).into_owned(), bad as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::dialect::Dialect;

    #[test]
    fn an_inline_line_is_one_line_of_printable_ascii() {
        let spec = ShellSpec {
            dialect: Dialect::Bash,
            nonce: "n0".into(),
            dir: None,
            argv: Vec::new(),
        };
        let line = inline(&spec, 3, "echo 'a!b\\'\né");
        assert!(line.is_ascii());
        assert_eq!(line.matches('\n').count(), 1);
        assert!(
            line.contains(r"'echo \0047a\0041b\0134\0047\0012\0303\0251'"),
            "{line}"
        );
    }
}
