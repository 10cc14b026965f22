//! The words for what is true of a job, and for numbers. Pure; nothing here prints.

use ostler_proto::job::{Kind, Outcome, Row, State, Survivor};

use super::failure::Failure;
use crate::exit;

/// Returns a text in which control characters are shown instead of obeyed.
///
/// Names and arguments come from anybody's programs; in a listing they must not move the cursor, retitle the
/// terminal or break a line.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => "\\n".to_owned(),
            '\t' => "\\t".to_owned(),
            '\r' => "\\r".to_owned(),
            '\u{1b}' => "\\e".to_owned(),
            // Direction marks reorder what follows them on the line.
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                c.escape_unicode().to_string()
            }
            c if c.is_control() => c.escape_unicode().to_string(),
            c => c.to_string(),
        })
        .collect()
}

/// Returns a size: `512 B`, `48 KiB`, `1.5 GiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    #[expect(clippy::cast_precision_loss, reason = "for people's eyes")]
    let mut n = bytes as f64 / 1024.0;
    let mut unit = 0;
    while n >= 1023.5 && unit + 1 < UNITS.len() {
        n /= 1024.0;
        unit += 1;
    }
    if n < 9.95 && unit > 0 {
        format!("{n:.1} {}", UNITS[unit])
    } else {
        format!("{n:.0} {}", UNITS[unit])
    }
}

/// Returns a number with separators: `81,920`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Returns a time that was measured: `0.3 s`, `42 s`, `12 min`.
pub(crate) fn took(ms: u64) -> String {
    match ms {
        // Rounded first: 9.96 s is 10 s and not 10.0 s.
        0..9_950 => {
            let tenths = (ms + 50) / 100;
            format!("{}.{} s", tenths / 10, tenths % 10)
        }
        9_950..600_000 => format!("{} s", (ms + 500) / 1_000),
        _ => format!("{} min", (ms + 30_000) / 60_000),
    }
}

/// Returns a time that was asked for, exactly: `5 s`, `500 ms`, `90 s`, `1.5 s`, `30 days`.
pub(crate) fn limit(ms: u64) -> String {
    const DAY: u64 = 86_400_000;
    match ms {
        _ if ms >= DAY && ms.is_multiple_of(DAY) => match ms / DAY {
            1 => "1 day".into(),
            n => format!("{n} days"),
        },
        0..1_000 => format!("{ms} ms"),
        _ if ms.is_multiple_of(1_000) => format!("{} s", ms / 1_000),
        _ => format!(
            "{}.{} s",
            ms / 1_000,
            format!("{:03}", ms % 1_000).trim_end_matches('0')
        ),
    }
}

/// Returns an age: `42s`, `12m`, `3h`, `2d`.
pub(crate) fn age(ms: u64) -> String {
    match ms / 1_000 {
        s @ 0..60 => format!("{s}s"),
        s @ 60..3_600 => format!("{}m", s / 60),
        s @ 3_600..172_800 => format!("{}h", s / 3_600),
        s => format!("{}d", s / 86_400),
    }
}

/// Returns `1 process`, `2 processes`.
pub(crate) fn processes(n: u32) -> String {
    match n {
        1 => "1 process".into(),
        n => format!("{n} processes"),
    }
}

/// Returns `found by cgroup`, `found by cookie (cgroup: not delegated)`.
pub(crate) fn found_by(rung: &str, why: Option<&str>) -> String {
    match why {
        Some(why) => format!("found by {rung} ({why})"),
        None => format!("found by {rung}"),
    }
}

/// Returns `1 byte`, `81,920 bytes`.
pub(crate) fn bytes(n: u64) -> String {
    match n {
        1 => "1 byte".into(),
        n => format!("{} bytes", thousands(n)),
    }
}

/// Returns the short form of a state for a table: `running`, `exited 101`, `stopped (lease)`.
pub(crate) fn state(row: &Row) -> String {
    let word = match row.outcome {
        None => match row.state {
            State::Starting => "starting".into(),
            State::Running => "running".into(),
            State::Stopping => "stopping".into(),
            State::Draining => "draining".into(),
            State::Exited => "exited".into(),
        },
        Some(Outcome::Exited) => match row.exit_code {
            Some(code) => format!("exited {code}"),
            None if row.kind == Kind::Send => "done".into(),
            None => "exited".into(),
        },
        Some(Outcome::Signaled) => match &row.signal {
            Some(signal) => format!("died of {signal}"),
            None => "died of a signal".into(),
        },
        Some(Outcome::TimedOut) => "timed out".into(),
        Some(Outcome::Stopped) => match by(row) {
            Some(by) => format!("stopped ({by})"),
            None => "stopped".into(),
        },
        Some(Outcome::OutputLimit) => "output limit".into(),
        Some(Outcome::IdleReaped) => "ended, idle".into(),
        Some(Outcome::SpawnFailed) => "not started".into(),
        Some(Outcome::SandboxFailed) => "sandbox failed".into(),
        Some(Outcome::Lost) => "lost".into(),
    };
    match row.tree.left {
        0 => word,
        left => format!("{word}, {left} left"),
    }
}

fn by(row: &Row) -> Option<&str> {
    row.outcome_detail.as_ref()?.by.as_deref()
}

/// Returns how a job ended, as the rest of a sentence that begins with its id.
pub(crate) fn ended(row: &Row) -> String {
    let detail = row.outcome_detail.clone().unwrap_or_default();
    match row.outcome {
        None => "still runs".into(),
        Some(Outcome::Exited) => match (row.exit_code, row.kind) {
            (None, Kind::Send) => format!("is done: {}", waits(detail.reason.as_deref())),
            (code, _) => format!("exited with code {}", code.unwrap_or(0)),
        },
        Some(Outcome::Signaled) => {
            format!("died of {}", row.signal.as_deref().unwrap_or("a signal"))
        }
        Some(Outcome::TimedOut) => match detail.limit {
            Some(ms) => format!("reached its time limit of {} and was ended", limit(ms)),
            None => "reached its time limit and was ended".into(),
        },
        Some(Outcome::Stopped) => {
            let by = detail.by.map_or(String::new(), |by| match by.as_str() {
                "user" => " by the user".into(),
                other => format!(" by {other}"),
            });
            let why = detail.reason.map_or(String::new(), |r| format!(": {r}"));
            format!("was stopped{by}{why}")
        }
        Some(Outcome::OutputLimit) => match detail.limit {
            Some(bytes) => format!("wrote more than {} and was ended", size(bytes)),
            None => "wrote more than its limit and was ended".into(),
        },
        Some(Outcome::IdleReaped) => "was quiet for its idle limit and was ended".into(),
        Some(Outcome::SpawnFailed) => match &row.spawn_error {
            Some(error) => format!("did not start: {}: {}", error.step, error.message),
            None => "did not start".into(),
        },
        Some(Outcome::SandboxFailed) => "did not start: the sandbox failed".into(),
        Some(Outcome::Lost) => match detail.reason {
            Some(why) => format!("is lost: {why}"),
            None => "is lost: its keeper was killed, nobody knows how it ended".into(),
        },
    }
}

/// Returns why a send is done that was told no code.
fn waits(reason: Option<&str>) -> &'static str {
    match reason {
        Some("input_wait") => "its shell waits for input",
        Some("inferred_idle") => "its shell is quiet",
        _ => "its shell is at its prompt",
    }
}

/// Returns the id with its name: `t1 (web)`.
pub(crate) fn titled(row: &Row) -> String {
    match &row.name {
        Some(name) => format!("{} ({name})", row.id),
        None => row.id.clone(),
    }
}

/// Returns the command as one line, that of a pipeline as a shell has it; arguments with blanks are quoted.
pub(crate) fn command(row: &Row) -> String {
    if row.stages.is_empty() {
        return line(&row.args);
    }
    let stages: Vec<String> = row.stages.iter().map(|stage| line(&stage.args)).collect();
    stages.join(" | ")
}

/// Returns arguments as one line.
pub(crate) fn line(args: &[String]) -> String {
    let words: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
    words.join(" ")
}

/// Returns one argument as a shell takes it.
pub(crate) fn quoted(arg: &str) -> String {
    let plain = !arg.is_empty()
        && !arg.contains(|c: char| c.is_whitespace() || "'\"$`\\|&;<>()*?[]{}#~!".contains(c));
    if plain {
        arg.to_owned()
    } else {
        format!("'{}'", arg.replace('\'', "'\\''"))
    }
}

/// Returns the beginning of a text that is too long, and says so by its last character.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    if text.chars().nth(most).is_none() {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{kept}…")
}

/// Returns what could not be ended: `pid 812 (dd) does not react, uninterruptible`.
pub(crate) fn survivor(s: &Survivor) -> String {
    match s.why.as_str() {
        "does not react" => format!("pid {} ({}) does not react", s.pid, s.program),
        "not permitted" => format!("pid {} ({}) may not be signalled by you", s.pid, s.program),
        why => format!("pid {} ({}) does not react, {why}", s.pid, s.program),
    }
}

/// Returns how a job that never ran is told, with the code of a shell.
pub(crate) fn never_ran(row: &Row) -> Failure {
    let Some(error) = &row.spawn_error else {
        return Failure {
            code: exit::of_row(row),
            ..Failure::ours(format!("{} {}", titled(row), ended(row)))
        };
    };
    let shell_line =
        error.step == "exec" && row.args.len() == 1 && row.executable.contains(char::is_whitespace);
    let what = match error.step.as_str() {
        "exec" if error.errno == libc::ENOENT => format!("no program {:?}", row.executable),
        "exec" => format!("cannot run {:?}: {}", row.executable, error.message),
        "cwd" => format!(
            "cannot enter {}: {}",
            error.path.as_deref().unwrap_or(&row.cwd),
            error.message
        ),
        step => format!("{} did not start: {step}: {}", titled(row), error.message),
    };
    let causes = match &error.path {
        Some(path) if error.step == "exec" && *path != row.executable => {
            vec![format!("tried {path}")]
        }
        _ => Vec::new(),
    };
    Failure {
        code: error.shell_code(),
        causes,
        hint: if shell_line {
            Some("a shell line needs -c".into())
        } else if super::size::size(&row.executable).is_ok() {
            Some(format!("a size stands behind =: --pty={}", row.executable))
        } else {
            error.hint.clone().or_else(|| not_found(row))
        },
        ..Failure::ours(what)
    }
}

/// Returns where a program was looked for that is not there.
fn not_found(row: &Row) -> Option<String> {
    let error = row.spawn_error.as_ref()?;
    if error.step != "exec" || error.errno != libc::ENOENT {
        return None;
    }
    Some(if row.executable.contains('/') {
        format!("a path counts from the working directory, {}", row.cwd)
    } else {
        "it is in no folder of PATH".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended as over, row};
    use ostler_proto::job::{OutcomeDetail, SpawnError};

    #[test]
    fn control_characters_are_shown_and_not_obeyed() {
        assert_eq!(clean("a\u{1b}]0;x\u{7}b\nc"), "a\\e]0;x\\u{7}b\\nc");
        assert_eq!(clean("é ü 漢"), "é ü 漢");
        assert_eq!(clean("\u{9b}\u{202e}"), "\\u{9b}\\u{202e}");
    }

    #[test]
    fn numbers_read_as_in_the_walks() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(48 * 1024), "48 KiB");
        assert_eq!(size(312 * 1024 + 100), "312 KiB");
        assert_eq!(size(1024 * 1024 - 1), "1.0 MiB");
        assert_eq!(size(3 << 40), "3.0 TiB");
        assert_eq!(size(u64::MAX), "16777216 TiB");
        assert_eq!(thousands(81_920), "81,920");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_000_000), "1,000,000");
        assert_eq!(took(290), "0.3 s");
        assert_eq!(took(3_000), "3.0 s");
        assert_eq!(took(9_960), "10 s");
        assert_eq!(took(42_100), "42 s");
        assert_eq!(limit(30_000), "30 s");
        assert_eq!(limit(1_500), "1.5 s");
        assert_eq!(limit(1_050), "1.05 s");
        assert_eq!(limit(500), "500 ms");
        assert_eq!(age(720_000), "12m");
        assert_eq!(age(90_000_000), "25h");
    }

    #[test]
    fn a_state_fits_a_column() {
        assert_eq!(state(&row("t1")), "running");
        assert_eq!(state(&over(Outcome::Exited, Some(101), None)), "exited 101");
        let mut stopped = over(Outcome::Stopped, None, Some("SIGTERM"));
        stopped.outcome_detail = Some(OutcomeDetail {
            by: Some("lease".into()),
            ..OutcomeDetail::default()
        });
        assert_eq!(state(&stopped), "stopped (lease)");
        stopped.tree.left = 2;
        assert_eq!(state(&stopped), "stopped (lease), 2 left");
    }

    #[test]
    fn one_word_with_blanks_is_told_to_need_a_shell() {
        let mut row = over(Outcome::SpawnFailed, None, None);
        row.executable = "npm run dev".into();
        row.args = vec!["npm run dev".into()];
        row.spawn_error = Some(SpawnError {
            step: "exec".into(),
            errno: libc::ENOENT,
            message: "No such file or directory".into(),
            path: None,
            field: "args".into(),
            hint: None,
        });
        let failure = never_ran(&row);
        assert_eq!(failure.what, "no program \"npm run dev\"");
        assert_eq!(failure.hint.as_deref(), Some("a shell line needs -c"));
        assert_eq!(failure.code, 127);
        row.executable = "nmp".into();
        let hint = never_ran(&row).hint;
        assert_eq!(hint.as_deref(), Some("it is in no folder of PATH"));
        row.executable = "./server".into();
        row.cwd = "/srv".into();
        let hint = never_ran(&row).hint;
        assert_eq!(
            hint.as_deref(),
            Some("a path counts from the working directory, /srv")
        );
    }

    #[test]
    fn one_of_a_thing_is_not_several() {
        assert_eq!(
            (processes(1), processes(2)),
            ("1 process".into(), "2 processes".into())
        );
        assert_eq!((bytes(1), bytes(0)), ("1 byte".into(), "0 bytes".into()));
        assert_eq!(limit(86_400_000), "1 day");
    }

    #[test]
    fn a_survivor_is_told_with_the_reason() {
        let mut s = Survivor {
            pid: 812,
            program: "dd".into(),
            why: "uninterruptible".into(),
        };
        assert_eq!(survivor(&s), "pid 812 (dd) does not react, uninterruptible");
        s.why = "not permitted".into();
        assert_eq!(survivor(&s), "pid 812 (dd) may not be signalled by you");
    }

    #[test]
    fn a_long_text_says_that_it_was_cut() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("äbcd", 3), "äb…");
    }

    #[test]
    fn a_command_line_can_be_pasted() {
        let mut row = row("t1");
        row.args = vec!["sh".into(), "-c".into(), "echo it's".into(), String::new()];
        assert_eq!(command(&row), r"sh -c 'echo it'\''s' ''");
        row.args = vec!["grep".into(), "a|b".into(), "*.rs".into(), "--x=y".into()];
        assert_eq!(command(&row), "grep 'a|b' '*.rs' --x=y");
    }
}
