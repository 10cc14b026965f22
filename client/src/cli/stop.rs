//! `ostler stop`: ends whole trees, and says what that took.

use futures_util::future::join_all;
use ostler::{Client, Mode};
use ostler_proto::job::{Kind, SessionRef};
use ostler_proto::methods::{JobGet, JobStop, Receipt, Stop, StopSummary, Target};
use unicode_width::UnicodeWidthStr;

use super::failure::Failure;
use super::labels::{self, Labels};
use super::live::{self, Watched};
use super::output::{self, Out, note};
use super::scope::{self, Group, Scope, SessionArg};
use super::{ask_if_any, completions, duration, nearest, table, words};
use crate::exit;

/// Ends jobs with everything that descends from them. 0 when nothing is left.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler stop web
  ostler stop t1 t2 --grace 10s
  ostler stop --all
  ostler stop --project
  ostler stop claude-7k2/t3 --reason 'wrong branch'")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    #[command(flatten)]
    which: Which,
    /// Time between the polite and the forced end [default: the job's own, 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::grace, allow_hyphen_values = true, conflicts_with = "force")]
    grace: Option<u64>,
    /// Forces at once, without asking politely.
    #[arg(long)]
    force: bool,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// What is stopped; one of these.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// Jobs: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    ids: Vec<String>,
    /// Every job of the session.
    #[arg(long)]
    all: bool,
    /// Every job of every session of this project.
    #[arg(long)]
    project: bool,
    /// Every job of the user.
    #[arg(short = 'A', long)]
    everywhere: bool,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let groups = scope.targets(&args.which.ids)?;
    let what = match args.which.ids.as_slice() {
        [] => format!("everything {}", place(&args, &scope)),
        ids => live::named(ids),
    };
    let watched = Watched::new(format!("stopping {what}"), None, &groups);
    let stop = stop(&client, &args, &scope, &groups);
    let (summary, failures) =
        live::beside(&client, !args.json && !args.quiet, watched, stop).await?;
    if args.json {
        output::json(&summary)?;
    } else if !args.quiet {
        let rows = summary.jobs.iter().map(|r| &r.row);
        // What was done is told also where the supervisor has gone meanwhile.
        let labels = Labels::for_rows(&client, &scope, rows).await;
        print(&summary, &labels.unwrap_or_default())?;
        if summary.jobs.is_empty() && failures.is_empty() {
            if let Some(slip) = slip(&client, &scope, args.which.ids.is_empty()).await? {
                return Err(slip);
            }
            note(&format!("nothing to stop {}", place(&args, &scope)));
        }
    } else {
        tell_survivors(&summary);
    }
    failures.iter().for_each(Failure::tell);
    Ok(match failures.first() {
        Some(failure) => failure.code,
        None => code(&summary),
    })
}

/// A session that was named and is not there: whoever believes that all of it was stopped would be wrong.
async fn slip(client: &Client, scope: &Scope, all: bool) -> Result<Option<Failure>, Failure> {
    let Some(named) = scope.explicit.as_deref().filter(|_| all && scope.by_flag) else {
        return Ok(None);
    };
    let sessions = super::labels::sessions(client).await.unwrap_or_default();
    if sessions.is_empty() || scope::find(named, &sessions)?.is_some() {
        return Ok(None);
    }
    let failure = Failure::ours(format!("no session {named}"));
    let known = sessions
        .iter()
        .flat_map(|s| [s.name.as_str(), s.id.as_str()]);
    Ok(Some(match nearest::word(named, known) {
        Some(near) => failure.hint(format!("did you mean {near}?")),
        None => failure.hint("ostler session ls"),
    }))
}

/// Stops what is there, and says of what is not why not.
async fn stop(
    client: &Client,
    args: &Args,
    scope: &Scope,
    groups: &[Group],
) -> Result<(StopSummary, Vec<Failure>), Failure> {
    if args.which.ids.is_empty() {
        let params = everything(args, scope)?;
        let summary = ask_if_any::<JobStop>(client, params).await?;
        return Ok((summary.unwrap_or_default(), Vec::new()));
    }
    let calls = groups.iter().map(|group| {
        client.ask::<JobStop>(Stop {
            session: group.session.clone(),
            ids: group.ids.clone(),
            ..template(args)
        })
    });
    let (mut summary, mut failures) = (StopSummary::default(), Vec::new());
    for (group, answer) in groups.iter().zip(join_all(calls).await) {
        match answer {
            Ok(one) => {
                if !one.unknown.is_empty() {
                    failures.extend(unknown(client, scope, group, &one.unknown).await?);
                }
                summary.jobs.extend(one.jobs);
                summary.unknown.extend(one.unknown);
            }
            // The other groups are stopped all the same.
            Err(e @ ostler::Error::Refused(_)) => {
                let text = group.text(&group.ids[0]);
                failures.push(nearest::explained(client, scope, &text, e).await);
            }
            Err(e) => return Err(e.into()),
        }
    }
    summary.jobs = once(summary.jobs);
    if groups.len() > 1 {
        drop_stopped(client, &mut summary.jobs).await;
    }
    Ok((summary, failures))
}

/// Each request knows only its own jobs: what a sub-agent had started may be among those of another one.
async fn drop_stopped(client: &Client, receipts: &mut [Receipt]) {
    let stopped = receipts.iter().map(|r| r.row.process_id.clone());
    let stopped: Vec<String> = stopped.collect();
    for receipt in receipts {
        let mut left = Vec::new();
        for name in std::mem::take(&mut receipt.left_running) {
            let found = client
                .ask::<JobGet>(Target {
                    session: None,
                    id: name.clone(),
                })
                .await;
            if !found.is_ok_and(|found| stopped.contains(&found.row.process_id)) {
                left.push(name);
            }
        }
        receipt.left_running = left;
    }
}

/// Explains ids that named no job: their session may be the reason.
async fn unknown(
    client: &Client,
    scope: &Scope,
    group: &Group,
    ids: &[String],
) -> Result<Vec<Failure>, Failure> {
    let sessions = labels::sessions(client).await?;
    match group.session.as_deref().map(|s| scope::find(s, &sessions)) {
        Some(Err(not_unique)) => return Ok(vec![not_unique]),
        Some(Ok(None)) => {
            return Ok(vec![no_session(group.session.as_deref().unwrap_or(""))]);
        }
        Some(Ok(Some(SessionRef { .. }))) | None => {}
    }
    let mut failures = Vec::new();
    for id in ids {
        let refused = ostler_proto::refusal::Refusal::no_job(id).into();
        failures.push(nearest::explained(client, scope, &group.text(id), refused).await);
    }
    Ok(failures)
}

fn no_session(session: &str) -> Failure {
    ostler_proto::refusal::Refusal::no_session(session).into()
}

/// Drops the second receipt of a job that was named twice, by its id and by its name.
fn once(receipts: Vec<Receipt>) -> Vec<Receipt> {
    let mut kept: Vec<Receipt> = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        let same = |r: &Receipt| r.row.process_id == receipt.row.process_id;
        match kept.iter_mut().find(|r| same(r)) {
            // The one that was there when it ended has more to say.
            Some(before) if before.already_finished => *before = receipt,
            Some(_) => {}
            None => kept.push(receipt),
        }
    }
    kept
}

fn template(args: &Args) -> Stop {
    Stop {
        grace_ms: args.grace,
        force: args.force,
        by: Some("user".into()),
        reason: args.reason.clone(),
        ..Stop::default()
    }
}

fn everything(args: &Args, scope: &Scope) -> Result<Stop, Failure> {
    let mut params = template(args);
    if args.which.everywhere {
        params.everywhere = true;
    } else if args.which.project {
        if !scope.project.is_marked() {
            // In a home folder this would be everything that runs.
            let here = scope.project.root.display().to_string();
            return Err(Failure::ours(format!("{} is no project", words::clean(&here)))
                .hint("a project has .git, .jj or .hg; ostler stop --all, or -A for everything of yours"));
        }
        params.root = Some(scope.project.root_named()?);
    } else {
        params.session = Some(scope.session());
        params.all = true;
    }
    Ok(params)
}

fn place(args: &Args, scope: &Scope) -> String {
    if args.which.everywhere {
        "anywhere".into()
    } else if args.which.project {
        format!("in {}", words::clean(&scope.project.name))
    } else {
        format!("in {}", words::clean(scope.name()))
    }
}

/// Prints one receipt a line, the ids aligned.
pub(crate) fn print(summary: &StopSummary, labels: &Labels) -> Result<(), Failure> {
    let rows: Vec<String> = summary.jobs.iter().map(|r| labels.job(&r.row)).collect();
    let width = rows.iter().map(|l| l.width()).max().unwrap_or(0);
    let mut out = Out::new();
    for (receipt, label) in summary.jobs.iter().zip(&rows) {
        let label = table::padded(label, width);
        let mut text = words_of(receipt);
        if !receipt.left_running.is_empty() {
            let left = receipt.left_running.iter().map(|name| labels.name(name));
            let left: Vec<String> = left.collect();
            text += &format!("; its commands go on: {}", left.join(", "));
        }
        out.line(&format!("{label}  {text}"))?;
    }
    out.flush()
}

/// Says what could not be ended where nothing else is to be said.
pub(crate) fn tell_survivors(summary: &StopSummary) {
    for receipt in summary.jobs.iter().filter(|r| !r.survivors.is_empty()) {
        let text = format!("error: {} {}", receipt.row.id, words_of(receipt));
        note(&words::clean(&text));
    }
}

/// Returns 0 when nothing is left.
pub(crate) fn code(summary: &StopSummary) -> i32 {
    if summary.unknown.is_empty() && summary.jobs.iter().all(|r| r.survivors.is_empty()) {
        exit::DONE
    } else {
        exit::OURS
    }
}

fn words_of(receipt: &Receipt) -> String {
    if !receipt.survivors.is_empty() {
        let survivors: Vec<String> = receipt.survivors.iter().map(words::survivor).collect();
        return format!("not ended: {}", survivors.join("; "));
    }
    if receipt.already_finished {
        return format!("already finished: {}", words::ended(&receipt.row));
    }
    let mut text = format!("stopped in {}", words::took(receipt.took_ms));
    // No process stands for a sub-agent that somebody speaks as.
    if receipt.kind != Kind::Agent || receipt.ended > 0 {
        text += &format!(", {}", words::processes(receipt.ended));
    }
    if receipt.forced > 0 {
        text += &format!(", {} forced", receipt.forced);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended, row};
    use clap::Parser;
    use ostler_proto::job::{Kind, Outcome, Survivor};

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        _args: Args,
    }

    fn receipt() -> Receipt {
        Receipt {
            row: row("t1"),
            kind: Kind::Command,
            already_finished: false,
            ended: 4,
            forced: 0,
            took_ms: 310,
            survivors: Vec::new(),
            left_running: Vec::new(),
            result: None,
        }
    }

    #[test]
    fn receipts_read_as_in_the_walk() {
        let mut r = receipt();
        assert_eq!(words_of(&r), "stopped in 0.3 s, 4 processes");
        (r.ended, r.forced, r.took_ms) = (6, 2, 3_000);
        assert_eq!(words_of(&r), "stopped in 3.0 s, 6 processes, 2 forced");
        r.survivors.push(Survivor {
            pid: 812,
            program: "dd".into(),
            why: "uninterruptible".into(),
        });
        assert_eq!(
            words_of(&r),
            "not ended: pid 812 (dd) does not react, uninterruptible"
        );
        assert_eq!(
            code(&StopSummary {
                jobs: vec![r],
                ..StopSummary::default()
            }),
            125
        );
    }

    #[test]
    fn a_job_that_was_over_is_told_with_its_end_and_is_success() {
        let mut r = receipt();
        r.already_finished = true;
        r.row = ended(Outcome::Exited, Some(0), None);
        assert_eq!(words_of(&r), "already finished: exited with code 0");
        assert_eq!(
            code(&StopSummary {
                jobs: vec![r],
                ..StopSummary::default()
            }),
            0
        );
    }

    #[test]
    fn a_job_that_was_named_twice_is_told_once() {
        let over = Receipt {
            already_finished: true,
            ..receipt()
        };
        let told = once(vec![over, receipt(), receipt()]);
        assert_eq!(told.len(), 1);
        assert!(!told[0].already_finished);
    }

    #[test]
    fn exactly_one_way_of_choosing_is_needed() {
        assert!(Line::try_parse_from(["stop"]).is_err());
        assert!(Line::try_parse_from(["stop", "t1", "--all"]).is_err());
        assert!(Line::try_parse_from(["stop", "--all", "-A"]).is_err());
        assert!(Line::try_parse_from(["stop", "t1", "t2"]).is_ok());
        assert!(Line::try_parse_from(["stop", "--project"]).is_ok());
        assert!(Line::try_parse_from(["stop", "t1", "--grace", "0"]).is_ok());
    }
}
