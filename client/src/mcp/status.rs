//! What is true of a job, as the status line and the fields of the JSON say it. Pure.

use ostler_proto::job::{Kind, Outcome, Row, SpawnError, State};
use ostler_proto::limits;

use super::answer::Block;
use super::words;

/// Returns what is said of a job: state, outcome, times, ports. Output, markers and hints are added by who asked.
pub(crate) fn block(row: &Row, ports: &[u16], now: u64) -> Block {
    let is = |outcome| row.outcome == Some(outcome);
    let mut block = Block {
        id: row.id.clone(),
        process_id: row.process_id.clone(),
        state: state(row.state),
        outcome: row.outcome.and_then(outcome),
        code: row.exit_code.filter(|_| is(Outcome::Exited)).map(i64::from),
        signal: row.signal.clone().filter(|_| is(Outcome::Signaled)),
        seconds: Some(tenths(elapsed(row, now))),
        ports: ports.to_vec(),
        ..Block::default()
    };
    let (phrase, facts) = match row.outcome {
        Some(outcome) => ended(row, outcome),
        None => lives(row, ports, now),
    };
    if facts.iter().any(|f| has_no_field(f)) {
        let told: Vec<&String> = facts.iter().filter(|f| has_no_field(f)).collect();
        block.note = Some(
            told.iter()
                .map(|f| f.as_str())
                .collect::<Vec<_>>()
                .join("; "),
        );
    }
    block.phrase = format!("{} {phrase}", row.id);
    block.facts = facts;
    block
}

/// `port 5173` stands in `ports`.
fn has_no_field(fact: &str) -> bool {
    !fact.starts_with("port ") && !fact.starts_with("ports ")
}

/// How long a job has run, or ran, in ms.
pub(crate) fn elapsed(row: &Row, now: u64) -> u64 {
    let since = now.saturating_sub(row.started_at + row.slept_ms);
    row.duration_ms.unwrap_or(since)
}

/// Seconds with one digit.
pub(crate) fn tenths(ms: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "tenths of seconds of a job")]
    let tenths = ((ms + 50) / 100) as f64;
    tenths / 10.0
}

fn state(state: State) -> &'static str {
    match state {
        State::Starting => "starting",
        State::Running => "running",
        State::Stopping => "stopping",
        State::Draining => "draining",
        State::Exited => "exited",
    }
}

/// A plain exit says itself by its code.
fn outcome(outcome: Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::Exited => return None,
        Outcome::Signaled => "signaled",
        Outcome::TimedOut => "timed_out",
        Outcome::Stopped => "stopped",
        Outcome::OutputLimit => "output_limit",
        Outcome::IdleReaped => "idle_reaped",
        Outcome::SpawnFailed => "spawn_failed",
        Outcome::SandboxFailed => "sandbox_failed",
        Outcome::Lost => "lost",
    })
}

fn lives(row: &Row, ports: &[u16], now: u64) -> (String, Vec<String>) {
    let mut facts = Vec::new();
    let phrase = match row.state {
        State::Starting | State::Running => format!("running {}", words::took(elapsed(row, now))),
        State::Stopping => "stopping".into(),
        State::Draining => {
            if let Some(n) = row.output.held_by.filter(|n| *n > 0) {
                facts.push(format!("output held by {}", words::processes(n.into())));
            }
            "draining".into()
        }
        State::Exited => "exited".into(),
    };
    facts.extend(listening(ports));
    (phrase, facts)
}

/// `port 5173`, `ports 3000, 3001`.
pub(crate) fn listening(ports: &[u16]) -> Option<String> {
    match ports {
        [] => None,
        [port] => Some(format!("port {port}")),
        ports => {
            let all: Vec<String> = ports.iter().map(u16::to_string).collect();
            Some(format!("ports {}", all.join(", ")))
        }
    }
}

fn ended(row: &Row, outcome: Outcome) -> (String, Vec<String>) {
    let took = words::took(row.duration_ms.unwrap_or(0));
    let is_shell = row.kind == Kind::Shell;
    let mut facts = Vec::new();
    if is_shell && outcome != Outcome::Stopped {
        facts.push("its state is gone".into());
    }
    if row.tree.left > 0 {
        facts.push(format!("{} left", words::processes(row.tree.left.into())));
    }
    let code = row.exit_code.unwrap_or(0);
    let detail = row.outcome_detail.as_ref();
    let phrase = match outcome {
        Outcome::Exited if is_shell => format!("exited {code}"),
        Outcome::Exited if row.exit_code.is_none() => format!("done in {took}"),
        Outcome::Exited => format!("exited {code} in {took}"),
        Outcome::Signaled => {
            let signal = row.signal.as_deref().unwrap_or("by a signal");
            format!("signaled {signal} in {took}")
        }
        Outcome::TimedOut => {
            let limit = detail.and_then(|d| d.limit);
            format!("timed out after {}", limit.map_or(took, words::limit))
        }
        Outcome::Stopped if is_shell => "stopped".into(),
        Outcome::Stopped => format!("stopped after {took}"),
        Outcome::OutputLimit => format!("output limit after {took}"),
        Outcome::IdleReaped => "ended without use".into(),
        Outcome::SpawnFailed => match &row.spawn_error {
            Some(error) => format!("spawn failed: {}", spawn_error(error)),
            None => "spawn failed".into(),
        },
        Outcome::SandboxFailed => {
            let reason = detail
                .and_then(|d| d.reason.as_deref())
                .unwrap_or("no reason given");
            facts.push("the command did not run".into());
            format!("sandbox failed (2009): {}", words::one_line(reason))
        }
        Outcome::Lost => "lost".into(),
    };
    (phrase, facts)
}

/// How long a job was left alone before it was ended for that: `10 min`.
pub(crate) fn unused(row: &Row) -> String {
    const MINUTE: u64 = 60_000;
    let limit = row.outcome_detail.as_ref().and_then(|d| d.limit);
    match limit.unwrap_or_else(limits::shell_idle) {
        ms if ms.is_multiple_of(MINUTE) => format!("{} min", ms / MINUTE),
        ms => words::limit(ms),
    }
}

/// Why the output of a job cannot be had whole, if what left its buffer found no place.
pub(crate) fn not_kept(row: &Row) -> Option<String> {
    let why = row.output.spill_stopped.as_deref()?;
    Some(format!(
        "not all output could be kept: {}",
        words::one_line(why)
    ))
}

/// The file that has all output, if it does.
pub(crate) fn whole_output(row: &Row) -> Option<&str> {
    let path = row.output.spill.as_deref();
    path.filter(|_| row.output.spill_stopped.is_none())
}

/// `no such file: foo`.
pub(crate) fn spawn_error(error: &SpawnError) -> String {
    const ENOENT: i32 = 2;
    let path = error.path.as_deref().map(words::one_line);
    let what = match (error.errno, error.step.as_str()) {
        (ENOENT, "cwd") => "no such folder".to_owned(),
        (ENOENT, _) => "no such file".to_owned(),
        _ => words::one_line(&error.message),
    };
    match path {
        Some(path) => format!("{what}: {path}"),
        None => what,
    }
}

/// It never ran.
pub(crate) fn never_ran(row: &Row) -> bool {
    matches!(
        row.outcome,
        Some(Outcome::SpawnFailed | Outcome::SandboxFailed)
    )
}

/// What a notice says of an end: `exited 1 in 42.0s: npm test`, `stopped by the user after 12m22s: npm run dev`.
pub(crate) fn notice(row: &Row, names: super::names::Names) -> String {
    let took = words::took(row.duration_ms.unwrap_or(0));
    let command = words::cut(&words::command(row), 60);
    let id = names.shown(&row.id);
    if row.outcome == Some(Outcome::Stopped) {
        let by = row.outcome_detail.as_ref().and_then(|d| d.by.as_deref());
        let by = match by {
            Some("user") => " by the user",
            Some("lease") => " by the end of its lease",
            Some("client") => " by another client",
            _ => "",
        };
        return format!("{id} stopped{by} after {took}: {command}");
    }
    let (phrase, _) = match row.outcome {
        Some(outcome) => ended(row, outcome),
        None => lives(row, &[], 0),
    };
    format!("{id} {phrase}: {command}; next: {}", names.read(&row.id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended as over, row};
    use crate::mcp::names::COMPACT;
    use ostler_proto::job::OutcomeDetail;

    fn line(row: &Row) -> String {
        let block = block(row, &[], 30_000);
        let all = block.facts.iter().fold(block.phrase, |l, f| l + "; " + f);
        format!("[{all}]")
    }

    fn of(outcome: Outcome, code: Option<i32>, signal: Option<&str>, ms: u64) -> Row {
        Row {
            duration_ms: Some(ms),
            ..over(outcome, code, signal)
        }
    }

    #[test]
    fn each_end_has_its_line() {
        assert_eq!(
            line(&of(Outcome::Exited, Some(0), None, 100)),
            "[t1 exited 0 in 0.1s]"
        );
        assert_eq!(
            line(&of(Outcome::Signaled, None, Some("SIGSEGV"), 2_000)),
            "[t1 signaled SIGSEGV in 2.0s]"
        );
        let mut limit = of(Outcome::TimedOut, None, None, 60_100);
        limit.outcome_detail = Some(OutcomeDetail {
            limit: Some(60_000),
            ..OutcomeDetail::default()
        });
        assert_eq!(line(&limit), "[t1 timed out after 60s]");
        assert_eq!(
            line(&of(Outcome::OutputLimit, None, None, 9_100)),
            "[t1 output limit after 9.1s]"
        );
        assert_eq!(line(&of(Outcome::Lost, None, None, 1)), "[t1 lost]");
        assert_eq!(
            line(&of(Outcome::Stopped, None, None, 9_200)),
            "[t1 stopped after 9.2s]"
        );
    }

    #[test]
    fn what_never_ran_says_why() {
        let mut failed = of(Outcome::SpawnFailed, None, None, 1);
        failed.spawn_error = Some(SpawnError {
            step: "exec".into(),
            errno: 2,
            message: "No such file or directory".into(),
            path: Some("foo".into()),
            field: "args".into(),
            hint: None,
        });
        assert_eq!(line(&failed), "[t1 spawn failed: no such file: foo]");
        let mut boxed = of(Outcome::SandboxFailed, None, None, 1);
        boxed.outcome_detail = Some(OutcomeDetail {
            reason: Some("no backend".into()),
            ..OutcomeDetail::default()
        });
        assert_eq!(
            line(&boxed),
            "[t1 sandbox failed (2009): no backend; the command did not run]"
        );
    }

    #[test]
    fn a_living_job_has_its_time_and_its_ports() {
        let running = row("t1");
        assert_eq!(line(&running), "[t1 running 30.0s]");
        let block = block(&running, &[5173], 30_000);
        assert_eq!(
            (block.facts, block.ports),
            (vec!["port 5173".to_owned()], vec![5173])
        );
        let mut held = row("t1");
        held.state = State::Draining;
        held.output.held_by = Some(2);
        assert_eq!(line(&held), "[t1 draining; output held by 2 processes]");
    }

    #[test]
    fn a_notice_names_who_stopped_it_or_what_to_read() {
        let ended = of(Outcome::Exited, Some(1), None, 42_000);
        assert_eq!(
            notice(&ended, COMPACT),
            "t1 exited 1 in 42.0s: cargo test; next: output id=t1"
        );
        let mut stopped = of(Outcome::Stopped, None, None, 742_000);
        stopped.outcome_detail = Some(OutcomeDetail {
            by: Some("user".into()),
            ..OutcomeDetail::default()
        });
        assert_eq!(
            notice(&stopped, COMPACT),
            "t1 stopped by the user after 12m22s: cargo test"
        );
    }
}
