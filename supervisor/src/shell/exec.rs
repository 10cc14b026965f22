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
    job::Job,
    terminal::{
        dialect::{HandOver, ShellSpec},
        marks::Mark,
        proof::{self, Waits},
        talk::{Line, Talk},
    },
};

/// How long a prompt is awaited that must come by itself: behind the end of a line, or behind an Enter.
const PROMPT: Duration = Duration::from_secs(1);
/// How long a shell may take to start where the request sets no time.
const FIRST_PROMPT: Duration = Duration::from_secs(30);
/// How long the terminal may take to accept the short line that is typed.
const TYPING: Duration = Duration::from_secs(5);

/// The shell of a job, and what is known of its prompt.
///
/// # Errors
/// It is none, or it has ended.
pub(crate) fn shell(job: &Job) -> Result<(&ShellSpec, &Talk), Refusal> {
    let id = job.id();
    let (Some(spec), Some(talk)) = (&job.spec.shell, &job.talk) else {
        let words = format!("{id} is no shell");
        return Err(Refusal::new(RefusalKind::NoInput, words)
            .hint("ostler send writes to a command; ostler shell open opens a shell"));
    };
    if job.status().finished.is_some() {
        let how = job.row().outcome.map_or("", outcome_words);
        let words = format!("{id} has ended{how}; its directory, variables and programs are gone");
        return Err(Refusal::new(RefusalKind::NoInput, words).hint(
            "ostler shell open opens another; what it printed can be read until it is closed",
        ));
    }
    Ok((spec, talk))
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

/// Runs a line. Dropping this does not stop it.
pub(crate) async fn exec(job: &Arc<Job>, ask: &Exec) -> Result<Executed, Refusal> {
    let talk = takes(job, ask)?;
    let turn = turn(job, talk)?;
    let until = ask
        .timeout_ms
        .map(|ms| Instant::now() + Duration::from_millis(ms));
    ready(job, talk, ask.inline, until).await?;
    let (began, times) = (Instant::now(), job.desk.typed());
    let handed = HandedOver::by(job, talk, ask, turn).await?;
    let came = handed.come(ask.through, until).await;
    let (reason, line) = handed.end(came)?;
    let shared = job.desk.typed() != times;
    Ok(answer(job, ask, reason, line, began, shared))
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
    since: u64,
    turn: OwnedSemaphorePermit,
    /// What it is made of: it lies there until the shell has taken it.
    _typed: Typed,
    _shown: Shown<'a>,
}

impl<'a> HandedOver<'a> {
    /// Hands a line over to a shell that waits for one.
    pub(super) async fn by(
        job: &'a Arc<Job>,
        talk: &'a Talk,
        ask: &Exec,
        turn: OwnedSemaphorePermit,
    ) -> Result<Self, Refusal> {
        let (spec, _) = shell(job)?;
        let number = talk.next_number(&job.log);
        let typed = if ask.inline {
            Typed::Inline(inline(spec, number, &ask.line))
        } else {
            let laid = spec.hand_over(number, &ask.line);
            Typed::HandedOver(laid.map_err(|e| not_laid_down(job, &e))?)
        };
        let since = job.log.end();
        talk.look(&job.log).begin(number, since);
        let shown = Shown::open(job, since, &ask.line);
        let turn = type_in(job, &typed, turn).await?;
        Ok(Self {
            job,
            talk,
            since,
            turn,
            _typed: typed,
            _shown: shown,
        })
    }

    /// Waits for its end, or for a program that asks for input where it does not wait `through` that.
    pub(super) async fn come(&self, through: bool, until: Option<Instant>) -> Came {
        let waiting = Waiting {
            job: self.job,
            talk: self.talk,
            since: self.since,
            before: Waits::default(),
            line: true,
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
        let over = matches!(came, Came::NotTaken | Came::For(Reason::Prompt));
        let line = self.line(over);
        drop(self.turn);
        match came {
            Came::For(reason) => Ok((reason, line)),
            Came::NotTaken => Err(busy(self.job, "its shell did not take the line")
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
}

impl Typed {
    fn line(&self) -> &str {
        match self {
            Self::HandedOver(laid) => &laid.trigger,
            Self::Inline(line) => line,
        }
    }
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
    let (writer, line) = (Arc::clone(job), typed.line().as_bytes().to_vec());
    let all = line.len() as u64;
    let written = tokio::spawn(async move {
        writer.saw_input();
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
            () = tokio::time::sleep_until(give_up) => return proven(job).await,
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

fn goes_on(job: &Job) -> String {
    let id = job.id();
    format!(
        "ostler shell send {id} waits for it or types to it, ostler signal {id} INT interrupts it"
    )
}

/// How a shell stands, by its marks.
pub(super) fn stand(job: &Job, talk: &Talk) -> Stand {
    let mut reading = talk.look(&job.log);
    if let Some(line) = &reading.line {
        if !line.is_over() {
            let why = busy(job, "its last line still runs").hint(goes_on(job));
            return Stand::Busy(Box::new(why));
        }
        reading.line = None;
    }
    match (reading.prompt, reading.running) {
        (Some(prompt), _) if talk.is_half_typed(prompt) => {
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
        (None, None) if reading.done.is_none() && reading.more.is_none() => Stand::Starting,
        (None, None) => Stand::Coming,
    }
}

/// No prompt has come: its marks may have been thrown away, and the kernel knows.
pub(super) async fn proven(job: &Arc<Job>) -> Result<(), Refusal> {
    if let Some((place, modes)) = job.place()
        && place.group == place.leader
        && !modes.lines
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
    began: Instant,
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
    let printed = printed::read(&job.log, begin, end, max, Way::of(job));
    let row = job.row();
    let ended = job
        .status()
        .finished
        .clone()
        .filter(|_| reason == Reason::Exit);
    let pid = row.pid.filter(|_| reason == Reason::Prompt);
    let text = Text::of(printed, ask.raw);
    Executed {
        reason,
        output: text.output,
        base64: text.base64,
        tail: text.tail,
        truncated: text.truncated,
        from: begin,
        next: end,
        lost: text.lost,
        replaced: text.replaced,
        exit_code: match &ended {
            Some(ended) => ended.exit_code,
            None => done.and_then(|d| d.code),
        },
        cwd: done.and_then(|d| d.cwd.clone()),
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        shared,
        others: pid.is_some_and(proof::has_children),
        row,
        job: None,
    }
}

/// Where the output of a line begins, and where it ends or ended so far.
pub(super) fn span(job: &Job, line: Option<&Line>, done: Option<&Mark>) -> (u64, u64) {
    let begin = line.map_or(job.log.end(), |l| l.output.unwrap_or(l.typed_at));
    let end = done.map_or_else(|| job.log.end(), |d| d.from);
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
