//! `ostler shell read`, `ls` and `close`.

use ostler::Mode;
use ostler_proto::methods::{List, ShellClose, ShellList, ShellRead};
use ostler_proto::shell::{ReadShell, ShellRow, ShellTable};

use crate::cli::failure::Failure;
use crate::cli::labels::Labels;
use crate::cli::ls::now;
use crate::cli::output::Out;
use crate::cli::scope::{self, SessionArg};
use crate::cli::{ask_if_any, completions, nearest, rm, table, words};
use crate::exit;

/// Prints the last lines of a shell as a person would see them.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell read s1
  ostler shell read s1 -n 20
  ostler shell read s1 -n 100 --back 100")]
pub(crate) struct Read {
    #[command(flatten)]
    session: SessionArg,
    /// Lines at most.
    #[arg(short = 'n', value_name = "N", default_value_t = 500)]
    count: u64,
    /// Leaves out so many of the newest.
    #[arg(long, value_name = "N", default_value_t = 0)]
    back: u64,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Shell: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID")]
    id: String,
}

/// Lists shells, and whether each waits for a line.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell ls
  ostler shell ls -A --json | jq -r '.shells[] | select(.ready) | .row.id'")]
pub(crate) struct Ls {
    #[command(flatten)]
    session: SessionArg,
    /// Every session of the user.
    #[arg(short = 'A', long, conflicts_with = "session")]
    all: bool,
    /// Prints ids only.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints JSON: {"shells": [...]}.
    #[arg(long)]
    json: bool,
}

/// Ends shells with everything in them, then forgets them. Twice is success.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell close s1
  ostler shell close s1 s2")]
pub(crate) struct Close {
    #[command(flatten)]
    session: SessionArg,
    /// Prints one JSON answer a line.
    #[arg(long)]
    json: bool,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Shells: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID", required = true)]
    ids: Vec<String>,
}

pub(super) async fn read(args: Read) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    let params = ReadShell {
        session: named.session,
        id: named.id,
        back: args.back,
        count: Some(args.count),
    };
    let client = scope::client(Mode::Use)?;
    let lines = match client.ask::<ShellRead>(params).await {
        Ok(lines) => lines,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let mut out = Out::new();
    if args.json {
        out.json(&lines)?;
    } else {
        for line in &lines.lines {
            out.line(line)?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

pub(super) async fn list(args: Ls) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let params = List {
        session: scope.explicit.clone().filter(|_| !args.all),
        root: match (&scope.explicit, args.all) {
            (None, false) => Some(scope.project.root_named()?),
            _ => None,
        },
        all: args.all,
        live: false,
    };
    let table = ask_if_any::<ShellList>(&client, params).await?;
    let table = table.unwrap_or(ShellTable { shells: Vec::new() });
    let mut out = Out::new();
    if args.json {
        out.json(&table)?;
    } else {
        let rows = table.shells.iter().map(|s| &s.row);
        let labels = Labels::for_rows(&client, &scope, rows).await?;
        if args.quiet {
            for shell in &table.shells {
                out.line(&scope.pasted(&labels.job(&shell.row)))?;
            }
        } else {
            out.text(&render(&table.shells, &labels))?;
        }
    }
    out.flush()?;
    Ok(exit::DONE)
}

fn render(shells: &[ShellRow], labels: &Labels) -> String {
    let headings = ["ID", "NAME", "STATE", "AGE", "DIRECTORY", "COMMAND"];
    let cells = |shell: &ShellRow| {
        let row = &shell.row;
        let state = match (row.outcome, shell.busy, shell.ready) {
            (Some(_), ..) => words::state(row),
            (None, true, _) => "busy".into(),
            (None, _, true) => "ready".into(),
            _ => words::state(row),
        };
        vec![
            labels.job(row),
            row.name.clone().unwrap_or_default(),
            state,
            words::age(now().saturating_sub(row.started_at)),
            shell.cwd.clone().unwrap_or_else(|| row.cwd.clone()),
            words::command(row),
        ]
    };
    let rows: Vec<Vec<String>> = shells.iter().map(cells).collect();
    table::render(&headings, &rows, table::terminal_width())
}

pub(super) async fn close(args: Close) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    let say = rm::Say {
        thing: "shell",
        verb: "close",
        json: args.json,
        quiet: args.quiet,
    };
    rm::forget::<ShellClose>(&client, &scope, &args.ids, &say).await
}
