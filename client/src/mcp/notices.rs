//! Which ends have been told: each exactly once.
//!
//! The supervisor numbers them and tells them again until a number is confirmed. A result takes some along; they count
//! as told when it is written in full, and are taken back when its call is cancelled before that. The next call
//! confirms the last number up to which everything is told.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ostler_proto::limits;
use ostler_proto::methods::Notice;

use crate::recent::Recent;

/// Jobs of which a result itself says how they are.
#[derive(Debug, Default)]
pub(crate) struct Shows {
    /// They have ended.
    pub(crate) ended: Vec<String>,
    /// They had not when it was made.
    pub(crate) live: Vec<String>,
    /// Shells in which a line ran then.
    pub(crate) busy: Vec<String>,
}

/// The end of a line in a shell.
#[derive(Debug)]
struct OwnEnd {
    /// Serial of the line.
    line: u64,
    /// Process id of the shell.
    shell: String,
    text: String,
}

/// What a result takes along.
#[derive(Debug, Default)]
struct Taken {
    numbers: Vec<u64>,
    own: Vec<u64>,
    /// Jobs of which the result itself shows that they have ended.
    shown: Vec<String>,
    once: Vec<String>,
    /// It is on its way out; nothing takes it back.
    writing: bool,
}

/// Jobs whose end a result has shown, the newest of them: most are never noticed.
#[derive(Debug)]
struct Shown(Recent<()>);

impl Default for Shown {
    fn default() -> Self {
        Self(Recent::new(limits::mcp::SHOWN))
    }
}

impl Shown {
    fn add(&mut self, job: &str) {
        self.0.entry(job, || ());
    }

    fn has(&self, job: &str) -> bool {
        self.0.get(job).is_some()
    }
}

#[derive(Debug, Default)]
struct State {
    /// Ends that the supervisor has told and nobody confirmed: number to process id.
    known: BTreeMap<u64, String>,
    written: BTreeSet<u64>,
    shown: Shown,
    /// Ends that only this process knows of.
    own: BTreeMap<u64, OwnEnd>,
    next_own: u64,
    /// Lines that are told once, before the notices.
    once: Vec<String>,
    taken: HashMap<String, Taken>,
}

/// The memory of one front end.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<State>);

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing that is done under the lock can leave it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number to confirm: everything up to it is told.
    pub(crate) fn seen(&self) -> Option<u64> {
        let state = self.lock();
        let told = |(number, job): &(&u64, &String)| {
            state.written.contains(*number) || state.shown.has(job)
        };
        let last = state.known.iter().take_while(told).last();
        last.map(|(number, _)| *number)
    }

    /// What the supervisor has told is not confirmed yet.
    pub(crate) fn hear(&self, notices: &[Notice]) {
        let mut state = self.lock();
        state.known = notices
            .iter()
            .map(|n| (n.number, n.row.process_id.clone()))
            .collect();
        let first = notices.first().map_or(u64::MAX, |n| n.number);
        // What came before it has been confirmed.
        state.written = state.written.split_off(&first.min(u64::MAX - 1));
    }

    /// An end that only this process knows of.
    pub(crate) fn add_own(&self, line: u64, shell: String, text: String) {
        let mut state = self.lock();
        let number = state.next_own;
        state.next_own += 1;
        let end = OwnEnd { line, shell, text };
        state.own.insert(number, end);
    }

    /// A result tells the end of this line by itself.
    pub(crate) fn forget_own(&self, line: u64) {
        self.lock().own.retain(|_, end| end.line != line);
    }

    /// A line that the next result tells, once.
    pub(crate) fn add_once(&self, line: String) {
        self.lock().once.push(line);
    }

    /// This job's end needs no notice: we ended it.
    pub(crate) fn ended_by_us(&self, process_id: &str) {
        self.lock().shown.add(process_id);
    }

    /// Another session: what is known of the old one says nothing.
    pub(crate) fn forget(&self) {
        let mut state = self.lock();
        let once = std::mem::take(&mut state.once);
        *state = State {
            once,
            ..State::default()
        };
    }

    /// Takes what this call's result tells besides what it `shows`. The end of a job that it shows alive is left to the next
    /// one: both in one result would be no truth.
    pub(crate) fn take(
        &self,
        call: &str,
        shows: Shows,
        notices: &[Notice],
        words: impl Fn(&Notice) -> Option<String>,
    ) -> Vec<String> {
        let mut state = self.lock();
        let mut taken = Taken {
            shown: shows.ended,
            once: std::mem::take(&mut state.once),
            ..Taken::default()
        };
        let mut lines = taken.once.clone();
        let mut more = 0;
        for notice in notices {
            let (number, job) = (notice.number, &notice.row.process_id);
            let elsewhere = state.taken.values().any(|t| t.numbers.contains(&number));
            if shows.live.contains(job)
                || elsewhere
                || state.written.contains(&number)
                || state.shown.has(job)
            {
                continue;
            }
            let text = words(notice).filter(|_| !taken.shown.contains(job));
            let Some(text) = text else {
                // The result shows it, or nobody needs to know.
                taken.numbers.push(number);
                continue;
            };
            if lines.len() >= limits::mcp::NOTICES {
                more += 1;
                continue;
            }
            taken.numbers.push(number);
            lines.push(format!("notice: {text}"));
        }
        for (number, end) in &state.own {
            let elsewhere = state.taken.values().any(|t| t.own.contains(number));
            if elsewhere || shows.busy.contains(&end.shell) {
                continue;
            }
            if lines.len() >= limits::mcp::NOTICES {
                more += 1;
                continue;
            }
            taken.own.push(*number);
            lines.push(format!("notice: {}", end.text));
        }
        if more > 0 {
            lines.push(match more {
                1 => "1 more notice follows".into(),
                n => format!("{n} more notices follow"),
            });
        }
        state.taken.insert(call.to_owned(), taken);
        lines
    }

    /// There was no room for them after all.
    pub(crate) fn leave(&self, call: &str) {
        let mut state = self.lock();
        if let Some(taken) = state.taken.get_mut(call) {
            taken.numbers.clear();
            taken.own.clear();
            let once = std::mem::take(&mut taken.once);
            state.once.extend(once);
        }
    }

    /// The result is on its way out.
    pub(crate) fn writing(&self, call: &str) {
        if let Some(taken) = self.lock().taken.get_mut(call) {
            taken.writing = true;
        }
    }

    /// The result is written, in full.
    pub(crate) fn written(&self, call: &str) {
        let mut state = self.lock();
        if let Some(taken) = state.taken.remove(call) {
            state.written.extend(taken.numbers);
            taken.shown.iter().for_each(|job| state.shown.add(job));
            for number in taken.own {
                state.own.remove(&number);
            }
        }
    }

    /// The call was cancelled: unless its result is on its way out, nobody will see it.
    pub(crate) fn cancelled(&self, call: &str) {
        let mut state = self.lock();
        if state.taken.get(call).is_some_and(|t| !t.writing)
            && let Some(taken) = state.taken.remove(call)
        {
            state.once.extend(taken.once);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;

    fn notice(number: u64) -> Notice {
        let mut row = row(&format!("t{number}"));
        row.process_id = format!("proc_{number}");
        Notice { number, row }
    }

    fn take(ledger: &Ledger, call: &str, shown: &[&str], notices: &[Notice]) -> Vec<String> {
        ledger.hear(notices);
        let shows = Shows {
            ended: shown.iter().map(ToString::to_string).collect(),
            ..Shows::default()
        };
        ledger.take(call, shows, notices, |n| Some(n.row.id.clone()))
    }

    /// One result said that it runs and that it has ended.
    #[test]
    fn the_end_of_a_job_that_a_result_shows_alive_is_left_to_the_next_one() {
        let (ledger, all) = (Ledger::default(), [notice(1), notice(2)]);
        ledger.hear(&all);
        let shows = Shows {
            live: vec!["proc_1".into()],
            ..Shows::default()
        };
        let told = ledger.take("a", shows, &all, |n| Some(n.row.id.clone()));
        assert_eq!(told, ["notice: t2"]);
        ledger.writing("a");
        ledger.written("a");
        assert_eq!(ledger.seen(), None, "the first is not told");
        assert_eq!(take(&ledger, "b", &[], &all), ["notice: t1"]);
        ledger.writing("b");
        ledger.written("b");
        assert_eq!(ledger.seen(), Some(2));
    }

    /// The same of a line in a shell. Of a shell at its prompt the result says nothing that could contradict.
    #[test]
    fn the_end_of_a_line_is_not_told_beside_its_shell_as_busy() {
        let ledger = Ledger::default();
        ledger.add_own(7, "proc_s".into(), "s1 command exited 0".into());
        let of = |busy: &[&str]| Shows {
            live: vec!["proc_s".into()],
            busy: busy.iter().map(ToString::to_string).collect(),
            ..Shows::default()
        };
        let told = ledger.take("a", of(&["proc_s"]), &[], |_| None);
        assert_eq!(told, [""; 0]);
        let told = ledger.take("b", of(&[]), &[], |_| None);
        assert_eq!(told, ["notice: s1 command exited 0"]);
    }

    #[test]
    fn what_is_written_is_confirmed_and_told_once() {
        let (ledger, all) = (Ledger::default(), [notice(1), notice(2)]);
        assert_eq!(take(&ledger, "a", &[], &all), ["notice: t1", "notice: t2"]);
        assert_eq!(ledger.seen(), None);
        assert!(
            take(&ledger, "b", &[], &all).is_empty(),
            "another call has them"
        );
        ledger.writing("a");
        ledger.written("a");
        assert_eq!(ledger.seen(), Some(2));
        assert!(take(&ledger, "c", &[], &all).is_empty());
    }

    #[test]
    fn a_cancelled_call_leaves_them_and_a_late_cancel_takes_nothing_back() {
        let (ledger, all) = (Ledger::default(), [notice(1)]);
        take(&ledger, "a", &[], &all);
        ledger.cancelled("a");
        assert_eq!(take(&ledger, "b", &[], &all), ["notice: t1"]);
        ledger.writing("b");
        ledger.cancelled("b");
        ledger.written("b");
        assert_eq!(ledger.seen(), Some(1));
    }

    #[test]
    fn nothing_is_confirmed_behind_one_that_is_not_written() {
        let (ledger, all) = (Ledger::default(), [notice(1), notice(2)]);
        take(&ledger, "a", &[], &all[..1]);
        take(&ledger, "b", &[], &all);
        ledger.writing("b");
        ledger.written("b");
        assert_eq!(ledger.seen(), None);
        ledger.cancelled("a");
        assert_eq!(take(&ledger, "c", &[], &all), ["notice: t1"]);
    }

    #[test]
    fn what_a_result_shows_needs_no_notice_once_it_is_written() {
        let (ledger, all) = (Ledger::default(), [notice(1)]);
        assert!(take(&ledger, "a", &["proc_1"], &all).is_empty());
        ledger.cancelled("a");
        assert_eq!(take(&ledger, "b", &[], &all), ["notice: t1"]);
        ledger.cancelled("b");
        take(&ledger, "c", &["proc_1"], &all);
        ledger.writing("c");
        ledger.written("c");
        assert_eq!(ledger.seen(), Some(1));
    }

    #[test]
    fn more_than_five_come_with_the_next_result() {
        let ledger = Ledger::default();
        let all: Vec<Notice> = (1..=7).map(notice).collect();
        let told = take(&ledger, "a", &[], &all);
        assert_eq!(told.len(), 6);
        assert_eq!(told[5], "2 more notices follow");
        ledger.writing("a");
        ledger.written("a");
        assert_eq!(ledger.seen(), Some(5));
        assert_eq!(take(&ledger, "b", &[], &all), ["notice: t6", "notice: t7"]);
    }
}
