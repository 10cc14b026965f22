//! What is known of the prompt of a shell: nothing but what its log says, read when somebody asks.
//!
//! A shell that nobody talks to costs nothing here. After a restart of the supervisor the same log gives the same
//! answers.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Instant,
};

use ostler_proto::limits;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    handed::{Handed, HandedOnes},
    marks::{Letter, Mark, Scanner},
    witness::Witness,
};
use crate::{
    alarm::Alarm,
    log::{Filter, Log},
};

/// Unread output above this is not searched for marks when no line of ours runs: what counts is how it ends.
const CATCH_UP: u64 = 4 * 1024 * 1024;

/// So much before a line is read where its log is read again: a prompt and the end of the line before.
const SHORTLY: u64 = 64 * 1024;

/// One shell, as far as talking to it goes.
#[derive(Debug)]
pub(crate) struct Talk {
    /// One send or exec at a time.
    turn: Arc<Semaphore>,
    reading: Mutex<Reading>,
    /// What the marks of this shell carry.
    nonce: String,
    handed: Mutex<HandedOnes>,
    /// Where the log ended when somebody last typed, plus one; 0: never.
    typed: AtomicU64,
    /// The same for what left a line unfinished.
    half: AtomicU64,
    /// What was typed last ended with Enter.
    entered: AtomicBool,
    /// Nobody lived in it besides the shell when its last line ended, and nobody has typed since.
    alone: AtomicBool,
    number: AtomicU64,
    witness: Witness,
    /// Up to where the log has been handed back to those who talk.
    told: AtomicU64,
    /// Of whoever waits for its prompt.
    pub(crate) alarm: Alarm,
}

/// What the marks have said so far.
#[derive(Debug)]
pub(crate) struct Reading {
    scanner: Scanner,
    /// End of the last prompt, while nothing has started since.
    pub(crate) prompt: Option<u64>,
    /// The shell asks for the rest of a line: since where.
    pub(crate) more: Option<u64>,
    /// A line runs, since where.
    pub(crate) running: Option<u64>,
    /// The newest end of a line.
    pub(crate) done: Option<Mark>,
    /// The newest prompt came behind an end that its hook told.
    hooked: bool,
    /// Our line, from its hand-over until somebody has taken its end.
    pub(crate) line: Option<Line>,
}

/// A line that we handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) number: u64,
    /// Where the log ended before it was typed.
    pub(crate) typed_at: u64,
    /// When.
    pub(crate) since: Instant,
    /// It was typed as it is: what begins and ends it are the marks of the prompt, which have no number.
    pub(crate) plain: bool,
    /// Where its output begins.
    pub(crate) output: Option<u64>,
    /// Its end, by its own mark, or by that of a prompt after it was aborted.
    pub(crate) done: Option<Mark>,
    /// The prompt is back behind it.
    pub(crate) prompt: bool,
}

impl Line {
    /// Its own mark says that it has ended.
    pub(crate) fn is_done(&self) -> bool {
        let told = |d: &Mark| d.number.is_some() || self.plain;
        self.done.as_ref().is_some_and(told)
    }

    /// A prompt came back without that. Output can look like it, so the kernel has the last word.
    pub(crate) fn is_aborted(&self) -> bool {
        self.prompt && !self.is_done()
    }
}

impl Talk {
    /// `nonce`: what is in each mark of it.
    pub(crate) fn new(nonce: &str) -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            reading: Mutex::new(Reading::new(nonce, 0)),
            nonce: nonce.to_owned(),
            handed: Mutex::default(),
            typed: AtomicU64::new(0),
            half: AtomicU64::new(0),
            entered: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            number: AtomicU64::new(0),
            witness: Witness::default(),
            told: AtomicU64::new(0),
            alarm: Alarm::default(),
        }
    }

    /// Takes down a line that is about to be typed.
    pub(crate) fn hand_over(&self, log: &Log, handed: Handed) {
        self.look(log).begin(&handed);
        self.handed().push(handed);
    }

    /// Takes down a text that is about to be typed.
    pub(crate) fn hand_over_text(&self, handed: Handed) {
        self.handed().push(handed);
    }

    /// Something runs in this shell, or is about to: the next prompt is not the one behind what is typed now.
    pub(crate) fn is_ahead(&self, log: &Log) -> bool {
        let reading = self.look(log);
        match (reading.prompt, &reading.line) {
            (Some(prompt), _) => self.typed_since(prompt),
            (None, Some(line)) => !line.is_done(),
            (None, None) => reading.running.is_some(),
        }
    }

    /// The lines that an earlier supervisor has handed over: where the newest one stands, the log says.
    pub(crate) fn restore(&self, log: &Log, lines: HandedOnes) {
        if let Some(newest) = lines.newest() {
            self.tell(newest.typed_at);
        }
        if let Some(newest) = lines.newest_line() {
            self.go_back(log, newest);
            let number = newest.line.map_or(0, |line| line.number);
            self.number.store(number, Ordering::Release);
        }
        *self.handed() = lines;
    }

    /// What has this key, and whether nothing has been handed over since.
    pub(crate) fn handed_by(&self, key: &str) -> Option<(Handed, bool)> {
        let handed = self.handed();
        let one = handed.of(key)?.clone();
        let newest = handed.newest() == Some(&one);
        Some((one, newest))
    }

    /// What is remembered, oldest first.
    pub(crate) fn all_handed(&self) -> Vec<Handed> {
        self.handed().iter().cloned().collect()
    }

    /// Reads again from where a line was typed, so that its end can be taken once more.
    pub(crate) fn go_back(&self, log: &Log, handed: &Handed) {
        let again = Reading::since(&self.nonce, log, handed);
        *self.reading.lock().unwrap_or_else(PoisonError::into_inner) = again;
    }

    /// What came of a line that others have followed.
    pub(crate) fn followed(&self, log: &Log, handed: &Handed) -> Option<Line> {
        let mut reading = Reading::since(&self.nonce, log, handed);
        reading.catch_up(log);
        reading.line
    }

    fn handed(&self) -> MutexGuard<'_, HandedOnes> {
        self.handed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to talk as soon as nobody else has it.
    pub(crate) async fn wait_for_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).acquire_owned().await.ok()
    }

    /// The right to talk, held until the last byte of it is written; none while somebody else has it.
    pub(crate) fn take_turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).try_acquire_owned().ok()
    }

    /// A line has ended, and whether others live on in its shell.
    pub(crate) fn note_alone(&self, alone: bool) {
        self.alone.store(alone, Ordering::Release);
    }

    /// It has ended.
    pub(crate) fn close(&self) {
        self.witness.close();
    }

    /// Somebody lives in it besides the shell itself, which has this number.
    pub(crate) fn has_others(&self, pid: u32) -> bool {
        self.witness.has_children(pid)
    }

    /// Where the shell is, by the kernel.
    pub(crate) fn directory(&self, pid: u32) -> Option<String> {
        self.witness.directory(pid)
    }

    /// Nobody else can print: what lives in a shell was started by a line of it.
    pub(crate) fn is_alone(&self) -> bool {
        self.alone.load(Ordering::Acquire)
    }

    /// Somebody is talking.
    pub(crate) fn is_busy(&self) -> bool {
        self.turn.available_permits() == 0
    }

    /// Reads what the log has had since, and hands out what is known then.
    pub(crate) fn look(&self, log: &Log) -> MutexGuard<'_, Reading> {
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        reading.catch_up(log);
        reading
    }

    /// Takes down that something was typed, which is not a line that we hand over.
    pub(crate) fn note_typed(&self, log: &Log, bytes: &[u8]) {
        // To draw the screen anew types nothing.
        let Some(last) = bytes.iter().rfind(|b| **b != 0x0c) else {
            return;
        };
        let at = log.end() + 1;
        self.typed.store(at, Ordering::Release);
        self.alone.store(false, Ordering::Release);
        let entered = matches!(last, b'\n' | b'\r');
        self.entered.store(entered, Ordering::Release);
        // Enter, and what throws a line away: ^C ^D ^U.
        let whole = matches!(last, b'\n' | b'\r' | 0x03 | 0x04 | 0x15);
        self.half
            .store(if whole { 0 } else { at }, Ordering::Release);
    }

    /// Somebody has typed at the prompt that stands at this offset, and it may not have got to it yet.
    pub(crate) fn typed_since(&self, prompt: u64) -> bool {
        self.typed.load(Ordering::Acquire) > prompt
    }

    /// What was typed last ended with Enter. Otherwise it is half a line, or it has thrown one away: fish shows no new
    /// prompt for that.
    pub(crate) fn was_entered(&self) -> bool {
        self.entered.load(Ordering::Acquire)
    }

    /// Half a line stands at the prompt: something was typed without an end, and no line has ended since. That the
    /// prompt was drawn again since, for a window or a key, says nothing.
    pub(crate) fn is_half_typed(&self, done: Option<&Mark>) -> bool {
        let half = self.half.load(Ordering::Acquire);
        half > 0 && done.is_none_or(|d| d.from + 1 < half)
    }

    /// Up to where the log has been handed back to those who talk.
    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// It has been handed back up to this offset.
    pub(crate) fn tell(&self, to: u64) {
        self.told.fetch_max(to, Ordering::AcqRel);
    }

    /// What was typed last left a line unfinished, and something ran then: it may stand at the next prompt, or the
    /// program has taken it.
    pub(crate) fn was_typed_ahead(&self) -> bool {
        self.half.load(Ordering::Acquire) > 0
    }

    /// A number that no line of this shell has had. It grows with the log, so also in the next supervisor.
    pub(crate) fn next_number(&self, log: &Log) -> u64 {
        let last = self.number.load(Ordering::Acquire);
        let next = log.end().max(last + 1);
        self.number.store(next, Ordering::Release);
        next
    }
}

impl Reading {
    fn new(nonce: &str, at: u64) -> Self {
        Self {
            scanner: Scanner::new(nonce, at),
            prompt: None,
            more: None,
            running: None,
            done: None,
            hooked: false,
            line: None,
        }
    }

    /// As if a line had been typed just now, whose log is still to be read. What stands shortly before it says how the
    /// shell stood: it may never have taken the line.
    fn since(nonce: &str, log: &Log, handed: &Handed) -> Self {
        let from = handed.typed_at.saturating_sub(SHORTLY);
        let mut reading = Self::new(nonce, from);
        reading.read_to(log, handed.typed_at);
        if reading.scanner.at() != handed.typed_at {
            reading.forget(handed.typed_at);
        }
        reading.begin(handed);
        reading
    }

    /// A line of ours is typed now.
    fn begin(&mut self, handed: &Handed) {
        self.prompt = None;
        self.line = handed.line.map(|line| Line {
            number: line.number,
            typed_at: handed.typed_at,
            since: Instant::now(),
            plain: line.plain,
            output: line.output,
            done: None,
            prompt: false,
        });
    }

    /// The hooks of the prompt are in place: they have spoken since the last line began.
    pub(crate) fn is_hooked(&self) -> bool {
        self.hooked
    }

    /// What our line has printed so far and nobody will take for something else: from where and up to where.
    pub(crate) fn printed(&self) -> Option<(u64, u64)> {
        let line = self.line.as_ref()?;
        let from = line.output?;
        let done = line.done.as_ref();
        let to = done.map_or_else(|| self.scanner.known(), |d| d.from);
        Some((from, to.max(from)))
    }

    fn catch_up(&mut self, log: &Log) {
        let end = log.end();
        let at = self.scanner.at();
        if self.line.is_none() && end - at.min(end) > CATCH_UP {
            self.forget(end - limits::RING.min(end));
        }
        self.read_to(log, u64::MAX);
    }

    fn read_to(&mut self, log: &Log, end: u64) {
        loop {
            let left = end.saturating_sub(self.scanner.at());
            let most = left.min(limits::TAIL_FRAME) as usize;
            if most == 0 {
                return;
            }
            let slice = log.read(self.scanner.at(), most, Filter::All);
            if slice.lost > 0 {
                self.forget(slice.from);
            }
            if slice.next <= self.scanner.at() {
                return;
            }
            let mut found = Vec::new();
            self.scanner.feed(&slice.bytes, |mark| found.push(mark));
            if self.scanner.at() < slice.next {
                // A gap behind the bytes.
                self.forget(slice.next);
            }
            found.into_iter().for_each(|mark| self.see(mark));
        }
    }

    /// What is between is not known.
    fn forget(&mut self, at: u64) {
        self.scanner.jump(at);
        (self.prompt, self.more, self.running) = (None, None, None);
        self.hooked = false;
    }

    fn see(&mut self, mark: Mark) {
        match mark.letter {
            Letter::Prompt => {}
            Letter::Input => {
                self.prompt = Some(mark.to);
                (self.more, self.running) = (None, None);
                if let Some(line) = self.line.as_mut().filter(|l| l.done.is_some()) {
                    line.prompt = true;
                }
            }
            Letter::More => {
                // The prompt is used up: what is typed now goes on with the line that stands there.
                self.prompt = None;
                self.more = Some(mark.to);
            }
            Letter::Typed => {
                self.start(mark.to);
                if let Some(line) = self.line.as_mut().filter(|l| l.plain) {
                    line.output.get_or_insert(mark.to);
                }
            }
            Letter::Output => {
                self.start(mark.to);
                if let Some(line) = self.line.as_mut()
                    && mark.number == Some(line.number)
                    && line.output.is_none()
                {
                    line.output = Some(mark.to);
                }
            }
            Letter::Done => self.end(mark),
        }
    }

    fn start(&mut self, at: u64) {
        (self.prompt, self.more) = (None, None);
        self.hooked = false;
        self.running.get_or_insert(at);
    }

    fn end(&mut self, mark: Mark) {
        if let Some(line) = self.line.as_mut() {
            let ours = mark.number == Some(line.number);
            // The hook of a prompt speaks for it only where its own mark never came; the prompt behind it decides. Where
            // the text of a prompt is printed, its code is none. The first one counts: zsh says it twice, with a mark of
            // an unfinished line in between.
            let hook = mark.number.is_none() && line.output.is_some() && mark.code.is_some();
            if ours && !line.is_done() || hook && line.done.is_none() {
                line.done = Some(mark.clone());
            }
        }
        self.running = None;
        self.hooked |= mark.number.is_none();
        self.done = Some(mark);
    }
}

#[cfg(test)]
mod tests {
    use ostler_proto::shell::Exec;

    use super::*;
    use crate::terminal::handed::HandedLine;

    fn reading(text: &str) -> Reading {
        let mut reading = Reading::new("k", 0);
        let line = HandedLine {
            number: 7,
            plain: false,
            output: None,
        };
        reading.begin(&Handed::line(&Exec::default(), line, 0));
        feed(&mut reading, text);
        reading
    }

    fn feed(reading: &mut Reading, text: &str) {
        let bytes = text.replace('<', "\x1b]133;").replace('>', "\x07");
        let mut found = Vec::new();
        reading.scanner.feed(bytes.as_bytes(), |m| found.push(m));
        found.into_iter().for_each(|m| reading.see(m));
    }

    #[test]
    fn a_line_is_over_with_its_own_mark() {
        let mut r = reading(" . x;eval<H;k=k><C;k=k;n=7>out");
        assert!(!r.line.as_ref().unwrap().is_done());
        assert!(r.running.is_some());
        feed(&mut r, "<D;3;k=k;n=7;/tmp>");
        let line = r.line.as_ref().unwrap();
        assert!(line.is_done());
        assert_eq!(line.done.as_ref().unwrap().code, Some(3));
    }

    #[test]
    fn the_second_mark_at_the_same_prompt_changes_nothing() {
        let r = reading("<C;k=k;n=7>x<D;3;k=k;n=7;/tmp><D;0;k=k;/tmp><B;k=k>$ ");
        let line = r.line.as_ref().unwrap();
        assert_eq!(line.done.as_ref().unwrap().code, Some(3));
        assert!(r.prompt.is_some());
    }

    #[test]
    fn what_may_become_a_mark_is_not_printed_yet() {
        let mut r = reading("<C;k=k;n=7>out");
        let (from, to) = r.printed().unwrap();
        assert_eq!(to - from, 3);
        feed(&mut r, "<D;3;k=k;n=7;/t");
        r.scanner.feed(b"m", |_| panic!("it has no end yet"));
        assert_eq!(r.printed(), Some((from, to)));
    }

    #[test]
    fn an_aborted_line_is_over_when_the_prompt_is_back() {
        let mut r = reading("<C;k=k;n=7>x^C<D;130;k=k;/tmp>");
        assert!(
            !r.line.as_ref().unwrap().is_aborted(),
            "a hook alone proves nothing"
        );
        feed(&mut r, "<A;k=k>$ <B;k=k>");
        assert!(r.line.as_ref().unwrap().is_aborted());
        assert_eq!(r.line.unwrap().done.unwrap().code, Some(130));
    }

    #[test]
    fn a_prompt_that_the_output_prints_ends_no_line() {
        let r = reading("<C;k=k;n=7><A;k=k>$ <B;k=k>");
        assert!(!r.line.as_ref().unwrap().is_done() && !r.line.unwrap().is_aborted());
    }

    #[test]
    fn an_end_from_before_the_output_is_not_that_of_the_line() {
        let r = reading("<D;1;k=k;/><B;k=k> . x;eval");
        assert!(!r.line.as_ref().unwrap().is_done() && !r.line.unwrap().is_aborted());
    }
}
