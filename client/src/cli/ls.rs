//! `ostler ls`: the table of jobs.

use std::time::{SystemTime, UNIX_EPOCH};

use ostler::{Client, Mode};
use ostler_proto::job::Row;
use ostler_proto::methods::{JobList, JobTable, List};

use super::failure::Failure;
use super::labels::Labels;
use super::output::Out;
use super::scope::{self, Scope, SessionArg};
use super::{ask_if_any, table, words};
use crate::exit;

/// Lists jobs: live ones first, then the newest ended.
///
/// Without --session it shows every session of this project, with -A every one of the user; a job of another session
/// is listed as SESSION/id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler ls
  ostler ls -A --live
  ostler ls --json | jq -r '.jobs[] | select(.ok == false) | .id'
  ostler ls -q --live | xargs -r ostler stop")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Every session of the user.
    #[arg(short = 'A', long, alias = "everywhere", conflicts_with = "session")]
    all: bool,
    /// Only jobs with living processes.
    #[arg(long)]
    live: bool,
    /// Prints ids only.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints JSON: {"jobs": [...]}.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let table = list(&client, &args, &scope).await?;
    let mut out = Out::new();
    if args.json {
        out.json(&table)?;
    } else {
        let labels = Labels::for_rows(&client, &scope, table.jobs.iter()).await?;
        if args.quiet {
            for row in &table.jobs {
                // For the next command, which has no --session of its own.
                out.line(&scope.pasted(&labels.job(row)))?;
            }
        } else {
            out.text(&render(
                &table.jobs,
                &labels,
                now(),
                table::terminal_width(),
            ))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

async fn list(client: &Client, args: &Args, scope: &Scope) -> Result<JobTable, Failure> {
    let params = List {
        session: scope.explicit.clone().filter(|_| !args.all),
        root: match (&scope.explicit, args.all) {
            (None, false) => Some(scope.project.root_named()?),
            _ => None,
        },
        all: args.all,
        live: args.live,
    };
    let table = ask_if_any::<JobList>(client, params).await?;
    Ok(table.unwrap_or(JobTable { jobs: Vec::new() }))
}

/// Returns the time as the wire has it.
pub(crate) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}

/// What a script gets of a command line, in characters; `--json` has all of it.
const COMMAND_IN_A_PIPE: usize = 500;

/// What a terminal that is narrower than that has no room for. Nothing else takes a column away or adds one: what the
/// table looks like must not depend on what is in it.
const NARROWER: [(&str, usize); 3] = [("OUTPUT", 70), ("AGE", 60), ("NAME", 40)];

fn render(rows: &[Row], labels: &Labels, now: u64, width: Option<usize>) -> String {
    let has_room = |heading: &&str| {
        let least = NARROWER.iter().find(|(h, _)| h == heading);
        least.is_none_or(|(_, least)| width.is_none_or(|width| width >= *least))
    };
    let headings: Vec<&str> = ["ID", "NAME", "STATE", "AGE", "OUTPUT", "COMMAND"]
        .into_iter()
        .filter(has_room)
        .collect();
    let cell = |row: &Row, heading: &str| match heading {
        // With its session where that is another one: it can be given back as it stands.
        "ID" => labels.job(row),
        "NAME" => row.name.clone().unwrap_or_default(),
        "STATE" => words::state(row),
        "AGE" => words::age(now.saturating_sub(row.started_at)),
        "OUTPUT" => words::size(row.output.end),
        _ if width.is_none() => words::shortened(&words::command(row), COMMAND_IN_A_PIPE),
        _ => words::command(row),
    };
    let cells = |row| headings.iter().map(|h| cell(row, h)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    table::render(&headings, &rows, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended, row};
    use ostler_proto::job::Outcome;

    fn labels() -> Labels {
        let scope = Scope {
            explicit: Some("app-1".into()),
            by_flag: true,
            project: scope::project_of(std::path::Path::new("/nowhere")),
        };
        Labels::of(&scope, &[row("t1").session])
    }

    #[test]
    fn the_table_is_that_of_the_walk() {
        let mut web = row("t1");
        web.name = Some("web".into());
        web.args = vec!["npm".into(), "run".into(), "dev".into()];
        web.output.end = 48 * 1024;
        let mut test = ended(Outcome::Exited, Some(101), None);
        test.id = "t2".into();
        test.output.end = 312 * 1024;
        test.started_at = 540_000;
        let text = render(&[web, test], &labels(), 720_000, Some(80));
        assert_eq!(
            text,
            "ID  NAME  STATE       AGE  OUTPUT   COMMAND\n\
             t1  web   running     12m  48 KiB   npm run dev\n\
             t2        exited 101  3m   312 KiB  cargo test\n"
        );
    }

    #[test]
    fn a_very_long_command_line_is_cut_in_a_pipe() {
        let mut long = row("t1");
        long.args = vec!["echo".into(), "x".repeat(120_000)];
        let text = render(&[long], &labels(), 0, None);
        let command = text.trim_end().rsplit('\t').next().unwrap();
        assert_eq!(command.chars().count(), 500);
        assert!(command.ends_with("x…"), "{command}");
    }

    /// A second session added a column, and scripts and eyes were lost.
    #[test]
    fn what_is_in_the_table_changes_no_column() {
        let mut other = row("t1");
        other.session.name = "claude-7k2".into();
        other.session.id = "claude-7k2".into();
        let text = render(&[row("t1"), other.clone()], &labels(), 0, None);
        assert_eq!(
            text,
            "t1\t\trunning\t0s\t0 B\tcargo test\nclaude-7k2/t1\t\trunning\t0s\t0 B\tcargo test\n"
        );
        let headings = |rows: &[Row], width| {
            let text = render(rows, &labels(), 0, Some(width));
            let words = text.lines().next().unwrap_or_default().split_whitespace();
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        let all = ["ID", "NAME", "STATE", "AGE", "OUTPUT", "COMMAND"];
        for (width, without) in [
            (80, &[][..]),
            (70, &[]),
            (69, &["OUTPUT"]),
            (59, &["OUTPUT", "AGE"]),
            (39, &["OUTPUT", "AGE", "NAME"]),
        ] {
            let expected: Vec<_> = all.iter().filter(|h| !without.contains(*h)).collect();
            for rows in [&[][..], &[row("t1")], &[row("t1"), other.clone()]] {
                let told = headings(rows, width);
                assert!(
                    told.iter().eq(expected.iter().copied()),
                    "{width}: {told:?}"
                );
            }
        }
    }
}
