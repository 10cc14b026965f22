//! Exit codes of every command, once. Pure: from what is true of a job to a number.

use ostler_proto::job::{Outcome, Row};
use ostler_proto::methods::{Reason, Waited, WaitedJob};

/// Done.
pub(crate) const DONE: i32 = 0;
/// Wrong use; nothing was done.
pub(crate) const USAGE: i32 = 2;
/// A time limit, of the job or of the wait.
pub(crate) const TIMED_OUT: i32 = 124;
/// Our refusal or failure.
pub(crate) const OURS: i32 = 125;
/// A program that is there and cannot be executed, as for a shell.
pub(crate) const NOT_EXECUTABLE: i32 = 126;
/// A program that is not there.
pub(crate) const NOT_FOUND: i32 = 127;
/// Ctrl-C ended this command.
pub(crate) const INTERRUPTED: i32 = 130;
/// A foreground run whose reader went away: 128 + PIPE.
pub(crate) const UNREAD: i32 = 141;
/// What a job gives that was stopped and whose main process nevertheless ended with 0: 128 + TERM.
const STOPPED: i32 = 143;

/// Returns the code that a job passes on.
pub(crate) fn of_row(row: &Row) -> i32 {
    match row.outcome {
        None => OURS,
        Some(Outcome::Exited | Outcome::Signaled) => own(row),
        Some(Outcome::TimedOut) => TIMED_OUT,
        Some(Outcome::Stopped) => match own(row) {
            DONE => STOPPED,
            code => code,
        },
        Some(Outcome::SpawnFailed) => row.spawn_error.as_ref().map_or(OURS, |e| e.shell_code()),
        Some(
            Outcome::OutputLimit | Outcome::IdleReaped | Outcome::SandboxFailed | Outcome::Lost,
        ) => OURS,
    }
}

/// Returns what a shell makes of the end by a signal.
pub(crate) fn of_signal(number: i32) -> i32 {
    128 + number
}

/// Returns what the main process itself gave.
fn own(row: &Row) -> i32 {
    if let Some(signal) = &row.signal {
        return signal_number(signal).map_or(OURS, of_signal);
    }
    match row.exit_code {
        Some(code @ 0..=255) => code,
        // Codes of another system that no shell can carry must not become success.
        Some(_) => 255,
        None => DONE,
    }
}

/// Returns the code of one job's part of a wait.
pub(crate) fn of_waited(job: &WaitedJob) -> i32 {
    match job.reason {
        Reason::Exit => of_row(&job.row),
        Reason::EndedBefore => match of_row(&job.row) {
            DONE => OURS,
            code => code,
        },
        Reason::WaitOver => TIMED_OUT,
        Reason::Port
        | Reason::Text
        | Reason::Quiet
        | Reason::Prompt
        | Reason::InputWait
        | Reason::InferredIdle
        | Reason::NoEnd
        | Reason::Background => DONE,
    }
}

/// Returns the code of a wait: the first that is not 0, in the order given.
///
/// With `any`, jobs whose part did not happen say nothing unless nothing happened at all.
pub(crate) fn of_wait(waited: &Waited, any: bool) -> i32 {
    waited
        .jobs
        .iter()
        .filter(|job| !any || waited.timed_out || job.reason != Reason::WaitOver)
        .map(of_waited)
        .find(|code| *code != DONE)
        .unwrap_or(if waited.timed_out { TIMED_OUT } else { DONE })
}

/// Signals that have a name everywhere.
const NAMES: &[(&str, i32)] = &[
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("SYS", libc::SIGSYS),
    #[cfg(target_os = "linux")]
    ("STKFLT", libc::SIGSTKFLT),
    #[cfg(target_os = "linux")]
    ("PWR", libc::SIGPWR),
];

/// Returns the names that people give them.
pub(crate) fn signal_names() -> impl Iterator<Item = &'static str> {
    NAMES.iter().map(|(name, _)| *name)
}

/// Returns the name on the wire of a signal.
pub(crate) fn signal_name(number: i32) -> Option<String> {
    let (name, _) = NAMES.iter().find(|(_, n)| *n == number)?;
    Some(format!("SIG{name}"))
}

/// Returns the number of a signal named `SIGINT` or `INT`.
pub(crate) fn signal_number(name: &str) -> Option<i32> {
    let bare = name.strip_prefix("SIG").unwrap_or(name);
    if let Ok(number) = bare.parse::<i32>() {
        return (1..=64).contains(&number).then_some(number);
    }
    #[cfg(target_os = "linux")]
    if let Some(above) = bare.strip_prefix("RTMIN") {
        let above = above.strip_prefix('+').map_or(Some(0), |n| n.parse().ok());
        // 34 is the first that the C library leaves to programs.
        return above.map(|n: i32| 34 + n).filter(|n| *n <= 64);
    }
    NAMES.iter().find(|(n, _)| *n == bare).map(|(_, n)| *n)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ostler_proto::job::{Kind, Output, SessionRef, SpawnError, State, Tree};

    /// A running job of the session `app`.
    pub(crate) fn row(id: &str) -> Row {
        Row {
            id: id.into(),
            process_id: format!("proc_{id}"),
            session: SessionRef {
                id: "app-1".into(),
                name: "app".into(),
            },
            kind: Kind::Command,
            name: None,
            state: State::Running,
            outcome: None,
            outcome_detail: None,
            exit_code: None,
            signal: None,
            ok: None,
            timed_out: false,
            cancelled: false,
            spawn_error: None,
            shell: None,
            pid: Some(7),
            executable: "cargo".into(),
            resolved_path: None,
            args: vec!["cargo".into(), "test".into()],
            cwd: "/".into(),
            started_at: 0,
            finished_at: None,
            duration_ms: None,
            slept_ms: 0,
            encoding: "utf-8".into(),
            replaced: None,
            artifacts: Vec::new(),
            terminal: None,
            stages: Vec::new(),
            retry: None,
            title: None,
            output: Output::default(),
            tree: Tree::default(),
        }
    }

    /// An ended job.
    pub(crate) fn ended(outcome: Outcome, code: Option<i32>, signal: Option<&str>) -> Row {
        Row {
            state: State::Exited,
            outcome: Some(outcome),
            exit_code: code,
            signal: signal.map(str::to_owned),
            duration_ms: Some(42_000),
            ..row("t1")
        }
    }

    #[test]
    fn each_outcome_has_its_code() {
        let table = [
            (Outcome::Exited, Some(0), None, 0),
            (Outcome::Exited, Some(101), None, 101),
            (Outcome::Exited, Some(255), None, 255),
            (Outcome::Exited, Some(256), None, 255),
            (Outcome::Exited, Some(-1), None, 255),
            (Outcome::Signaled, None, Some("SIGSEGV"), 139),
            (Outcome::Signaled, None, Some("SIGRTMIN+2"), 164),
            (Outcome::TimedOut, Some(0), None, 124),
            (Outcome::TimedOut, None, Some("SIGKILL"), 124),
            (Outcome::Stopped, Some(0), None, 143),
            (Outcome::Stopped, Some(3), None, 3),
            (Outcome::Stopped, None, Some("SIGKILL"), 137),
            (Outcome::Stopped, None, None, 143),
            (Outcome::OutputLimit, None, Some("SIGTERM"), 125),
            (Outcome::IdleReaped, Some(0), None, 125),
            (Outcome::SandboxFailed, None, None, 125),
            (Outcome::Lost, None, None, 125),
        ];
        for (outcome, code, signal, expected) in table {
            assert_eq!(
                of_row(&ended(outcome, code, signal)),
                expected,
                "{outcome:?} {code:?} {signal:?}"
            );
        }
        assert_eq!(of_row(&row("t1")), 125, "a job that still runs");
    }

    #[test]
    fn a_program_that_cannot_run_gives_what_a_shell_gives() {
        for (step, errno, expected) in [("exec", 2, 127), ("exec", 13, 126), ("cwd", 2, 126)] {
            let mut row = ended(Outcome::SpawnFailed, None, None);
            row.spawn_error = Some(SpawnError {
                step: step.into(),
                errno,
                message: String::new(),
                path: None,
                field: "args".into(),
                hint: None,
            });
            assert_eq!(of_row(&row), expected, "{step} {errno}");
        }
    }

    fn part(reason: Reason, row: Row) -> WaitedJob {
        WaitedJob {
            reason,
            row,
            line: None,
            listener: None,
            stranger: None,
            ports: Vec::new(),
            last_lines: Vec::new(),
            exit_code: None,
            cwd: None,
            output_end: None,
        }
    }

    #[test]
    fn a_wait_gives_the_first_code_that_is_not_0() {
        let good = || part(Reason::Exit, ended(Outcome::Exited, Some(0), None));
        let bad = |code| part(Reason::Exit, ended(Outcome::Exited, Some(code), None));
        let over = || part(Reason::WaitOver, row("t9"));
        let wait = |jobs, timed_out| Waited { jobs, timed_out };
        assert_eq!(
            of_wait(&wait(vec![good(), bad(4), bad(5)], false), false),
            4
        );
        assert_eq!(of_wait(&wait(vec![good(), over()], true), false), 124);
        assert_eq!(of_wait(&wait(vec![over(), good()], false), true), 0);
        assert_eq!(of_wait(&wait(vec![over(), over()], true), true), 124);
    }

    #[test]
    fn an_end_before_what_was_waited_for_is_never_success() {
        let before = |code| {
            part(
                Reason::EndedBefore,
                ended(Outcome::Exited, Some(code), None),
            )
        };
        assert_eq!(of_waited(&before(0)), 125);
        assert_eq!(of_waited(&before(1)), 1);
        assert_eq!(of_waited(&part(Reason::Port, row("t1"))), 0);
    }

    #[test]
    fn signals_have_two_spellings() {
        assert_eq!(signal_number("INT"), Some(2));
        assert_eq!(signal_number("SIGINT"), Some(2));
        assert_eq!(signal_number("9"), Some(9));
        assert_eq!(signal_number("0"), None);
        assert_eq!(signal_number("NOPE"), None);
    }
}
