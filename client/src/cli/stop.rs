//! `ostler stop`: ends whole trees, and says what that took.

use futures_util::future::try_join_all;
use ostler::Mode;
use ostler_proto::methods::{JobStop, Receipt, Stop, StopSummary};

use super::failure::Failure;
use super::output::{Out, note};
use super::scope::{self, Scope, SessionArg};
use super::{ask_if_any, duration, words};
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
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// What is stopped; one of these.
#[derive(clap::Args, Debug)]
#[group(required = true, multiple = false)]
struct Which {
    /// Jobs: id, name, SESSION/id or processId.
    #[arg(value_name = "ID")]
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
    let summary = stop(&args, &scope).await?;
    if args.json {
        let mut out = Out::new();
        out.json(&summary)?;
        out.flush()?;
    } else {
        print(&summary, &scope)?;
        for id in &summary.unknown {
            note(&format!(
                "error: no job {} in this session",
                words::clean(id)
            ));
        }
        if summary.jobs.is_empty() && summary.unknown.is_empty() {
            note(&format!("nothing to stop {}", place(&args, &scope)));
        }
    }
    Ok(code(&summary))
}

async fn stop(args: &Args, scope: &Scope) -> Result<StopSummary, Failure> {
    let client = scope::client(Mode::Use)?;
    if args.which.ids.is_empty() {
        let params = everything(args, scope)?;
        let summary = ask_if_any::<JobStop>(&client, params).await?;
        return Ok(summary.unwrap_or_default());
    }
    let groups = scope.targets(&args.which.ids)?;
    let calls = groups.into_iter().map(|group| {
        client.ask::<JobStop>(Stop {
            session: group.session,
            ids: group.ids,
            ..template(args)
        })
    });
    let all = try_join_all(calls).await?;
    let mut summary = StopSummary::default();
    for one in all {
        summary.jobs.extend(one.jobs);
        summary.unknown.extend(one.unknown);
    }
    Ok(summary)
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
pub(crate) fn print(summary: &StopSummary, scope: &Scope) -> Result<(), Failure> {
    let labels: Vec<String> = summary.jobs.iter().map(|r| scope.label(&r.row)).collect();
    let width = labels.iter().map(|l| l.chars().count()).max().unwrap_or(0);
    let mut out = Out::new();
    for (receipt, label) in summary.jobs.iter().zip(&labels) {
        out.line(&format!("{label:<width$}  {}", words_of(receipt)))?;
    }
    out.flush()
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
    let mut text = format!(
        "stopped in {}, {}",
        words::took(receipt.took_ms),
        words::processes(receipt.ended)
    );
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
    fn exactly_one_way_of_choosing_is_needed() {
        assert!(Line::try_parse_from(["stop"]).is_err());
        assert!(Line::try_parse_from(["stop", "t1", "--all"]).is_err());
        assert!(Line::try_parse_from(["stop", "--all", "-A"]).is_err());
        assert!(Line::try_parse_from(["stop", "t1", "t2"]).is_ok());
        assert!(Line::try_parse_from(["stop", "--project"]).is_ok());
        assert!(Line::try_parse_from(["stop", "t1", "--grace", "0"]).is_ok());
    }
}
