//! `ostler show`: everything about one job.

use jiff::Timestamp;
use ostler_proto::job::{Kind, Row, StageRow};
use ostler_proto::methods::{JobGet, Target};

use super::failure::Failure;
use super::one::OneJob;
use super::output::Out;
use super::scope::SessionArg;
use super::{completions, words};
use crate::exit;

/// Shows everything about one job.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler show web
  ostler show --json t1 | jq .tree.ports")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Prints JSON, with the texts of a finished job.
    #[arg(long)]
    json: bool,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let job = OneJob::of(&args.session, &args.id)?;
    let params = Target {
        session: job.session.clone(),
        id: job.id.clone(),
    };
    let result = job.ask::<JobGet>(params).await?;
    let mut out = Out::new();
    if args.json {
        out.json(&result)?;
    } else {
        let mut lines = lines(&result.row);
        if !result.withheld.is_empty() {
            lines.push(("withheld", result.withheld.join(" ")));
        }
        if let Some(shell) = &result.row.shell {
            lines.push(("shell", named(&job, shell).await));
        }
        for (word, value) in lines {
            out.line(&format!("{word:<10} {value}"))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

/// Returns the short id of a shell, beside the one that is always right.
async fn named(job: &OneJob, process_id: &str) -> String {
    let params = Target {
        session: None,
        id: process_id.to_owned(),
    };
    match job.ask::<JobGet>(params).await {
        Ok(shell) => format!("{} ({process_id})", shell.row.id),
        // It is forgotten, which is no fault of what was sent to it.
        Err(_) => process_id.to_owned(),
    }
}

fn lines(row: &Row) -> Vec<(&'static str, String)> {
    let mut lines = vec![
        ("id", row.id.clone()),
        ("processId", row.process_id.clone()),
        (
            "session",
            format!("{} ({})", row.session.name, row.session.id),
        ),
    ];
    let mut add = |word, value: Option<String>| {
        if let Some(value) = value {
            lines.push((word, value));
        }
    };
    add("name", row.name.clone());
    add("state", Some(words::state(row)));
    add("ended", row.outcome.map(|_| words::ended(row)));
    add("command", Some(words::command(row)));
    for stage in &row.stages {
        add("stage", Some(self::stage(stage)));
    }
    add("file", row.resolved_path.clone());
    add("cwd", Some(row.cwd.clone()));
    add("pid", row.pid.map(|pid| pid.to_string()));
    add("started", Some(time(row.started_at)));
    add("finished", row.finished_at.map(time));
    add("duration", row.duration_ms.map(words::took));
    add(
        "slept",
        (row.slept_ms > 0).then(|| words::age(row.slept_ms)),
    );
    add("output", Some(output(row)));
    add("spill", row.output.spill.clone());
    add("spill ends", row.output.spill_stopped.clone());
    // No process stands for what is sent to a shell.
    add("tree", (row.kind != Kind::Send).then(|| tree(row)));
    let survivors = row.outcome_detail.iter().flat_map(|d| &d.survivors);
    for survivor in survivors {
        add("survivor", Some(words::survivor(survivor)));
    }
    lines
}

/// Returns what became of one command of a pipeline: `grep x: 1, as expected, pid 812`.
fn stage(stage: &StageRow) -> String {
    let end = match (stage.exit_code, &stage.signal) {
        (Some(0), _) => "0".into(),
        (Some(code), _) if stage.ok == Some(true) => format!("{code}, as expected"),
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) if stage.ok == Some(true) => {
            format!("{signal}, its reader had enough")
        }
        (None, Some(signal)) => signal.clone(),
        (None, None) if stage.pid.is_some() => "no end is known".into(),
        (None, None) => "not begun".into(),
    };
    let pid = stage.pid.map(|pid| format!(", pid {pid}"));
    format!(
        "{}: {end}{}",
        words::line(&stage.args),
        pid.unwrap_or_default()
    )
}

fn output(row: &Row) -> String {
    let output = &row.output;
    let mut text = format!("{} written", words::size(output.end));
    if output.lost > 0 {
        text += &format!(", {} lost", words::bytes(output.lost));
    }
    if let Some(n) = output.held_by {
        text += &format!(", held open by {} at the end", words::processes(n));
    }
    text
}

fn tree(row: &Row) -> String {
    let tree = &row.tree;
    let mut parts = Vec::new();
    if let Some(pids) = tree.pids.as_ref().filter(|p| !p.is_empty()) {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        parts.push(format!("pids {}", pids.join(" ")));
    }
    if row.is_over() && tree.left > 0 {
        parts.push(format!("{} left", words::processes(tree.left)));
    }
    if let Some(ports) = tree.ports.as_ref().filter(|p| !p.is_empty()) {
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        parts.push(format!("listening on {}", ports.join(" ")));
    }
    if let Some(cpu) = tree.cpu_ms {
        parts.push(format!("cpu {}", words::took(cpu)));
    }
    if let Some(rss) = tree.rss_bytes {
        parts.push(format!("memory {}", words::size(rss)));
    }
    parts.push(words::found_by(&tree.rung, tree.rung_why.as_deref()));
    parts.join(", ")
}

/// Returns a time of the wire as RFC 3339.
fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| ms.to_string(), |t| t.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;

    #[test]
    fn what_does_not_apply_is_left_out() {
        let text = lines(&row("t1"));
        let words: Vec<_> = text.iter().map(|(w, _)| *w).collect();
        assert!(words.contains(&"state"));
        assert!(!words.contains(&"finished"));
        assert!(!words.contains(&"slept"));
    }

    #[test]
    fn sleep_of_the_machine_is_told() {
        let mut slept = row("t1");
        slept.slept_ms = 8 * 3_600_000;
        assert!(lines(&slept).contains(&("slept", "8h".into())));
    }
}
