//! `ostler session`: open, ls, close; renaming and adopting in [`moves`], events and notices in [`news`].

mod moves;
mod news;

use std::path::Path;

use clap::Subcommand;
use ostler::Mode;
use ostler_proto::methods::{CloseSession, SessionClose, SessionList, SessionRow, SessionTable};
use ostler_proto::methods::{Nothing, OpenSession};

use crate::cli::failure::Failure;
use crate::cli::labels::{self, Labels};
use crate::cli::output::{self, Out, note};
use crate::cli::scope::{self, SessionArg, SessionWord};
use crate::cli::{ask_if_any, completions, duration, number, stop, table, words};
use crate::exit;

/// Sessions: the owners of jobs.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Open(Open),
    Ls(Ls),
    Rename(moves::Rename),
    Adopt(moves::Adopt),
    Watch(news::Watch),
    Notices(news::ListNotices),
    Close(Close),
}

/// Creates a session, or changes the limits of one; prints its id.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session open
  ostler session open nightly
  ostler session open claude-7k2 --commands 16
  ostler session open claude-7k2 --keep")]
pub(crate) struct Open {
    /// Id or name [default: the session of this project].
    #[arg(value_name = "NAME", add = completions::sessions())]
    session: Option<String>,
    /// Live commands allowed.
    #[arg(long, value_name = "N", value_parser = number::quota, allow_hyphen_values = true)]
    commands: Option<u32>,
    /// Live shells allowed.
    #[arg(long, value_name = "N", value_parser = number::quota, allow_hyphen_values = true)]
    shells: Option<u32>,
    /// Live sub-agents allowed.
    #[arg(long, value_name = "N", value_parser = number::quota, allow_hyphen_values = true)]
    agents: Option<u32>,
    /// How long it outlives its last client; then its jobs are stopped.
    #[arg(long, value_name = "TIME", value_parser = duration::time_limit, allow_hyphen_values = true)]
    lease: Option<u64>,
    /// No lease: it lasts until it is closed.
    #[arg(long, conflicts_with = "lease")]
    keep: bool,
    /// Prints the id only, which is what it does anyway.
    #[arg(short, long)]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Lists sessions.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session ls
  ostler session ls --json | jq -r '.sessions[].session.id'")]
pub(crate) struct Ls {
    /// Prints ids only.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints JSON: {"sessions": [...]}.
    #[arg(long)]
    json: bool,
}

/// Stops every job of a session, then forgets them and deletes their output.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler session close
  ostler session close nightly --grace 10s")]
pub(crate) struct Close {
    #[command(flatten)]
    session: SessionWord,
    /// Time between the polite and the forced end [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::grace, allow_hyphen_values = true)]
    grace: Option<u64>,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Open(args) => open(args).await,
        Command::Ls(args) => list(args).await,
        Command::Rename(args) => moves::rename(args).await,
        Command::Adopt(args) => moves::adopt(args).await,
        Command::Watch(args) => news::watch(args).await,
        Command::Notices(args) => news::notices(args).await,
        Command::Close(args) => close(args).await,
    }
}

async fn open(args: Open) -> Result<i32, Failure> {
    let scope = SessionArg::of(args.session).scope()?;
    let client = scope::client(Mode::Start)?;
    let open = OpenSession {
        commands: args.commands,
        shells: args.shells,
        agents: args.agents,
        lease_ms: args.lease,
        keep: args.keep,
        ..scope.named(&client).await?
    };
    let opened = client.open_session(open).await?;
    let print = || {
        let mut out = Out::new();
        if args.json {
            out.json(&opened)?;
        } else {
            out.line(&opened.session.id)?;
        }
        out.flush()
    };
    // Without its id nobody would find again what is open now.
    print().map_err(|f| f.cause(format!("session {} is open", opened.session.id)))?;
    Ok(exit::DONE)
}

async fn list(args: Ls) -> Result<i32, Failure> {
    let client = scope::client(Mode::Use)?;
    let table = ask_if_any::<SessionList>(&client, Nothing {})
        .await?
        .unwrap_or(SessionTable {
            sessions: Vec::new(),
        });
    let mut out = Out::new();
    if args.json {
        out.json(&table)?;
    } else if args.quiet {
        for row in &table.sessions {
            out.line(&row.session.id)?;
        }
    } else {
        let home = ostler::endpoint::home_of(ostler::endpoint::my_uid());
        let sessions: Vec<_> = table.sessions.iter().map(|s| s.session.clone()).collect();
        let scope = SessionArg::default().scope()?;
        out.text(&render(
            &table.sessions,
            &Labels::of(&scope, &sessions),
            home.as_deref(),
            table::terminal_width(),
        ))?;
    }
    out.flush()?;
    Ok(exit::DONE)
}

fn render(
    sessions: &[SessionRow],
    labels: &Labels,
    home: Option<&Path>,
    width: Option<usize>,
) -> String {
    let rows: Vec<[String; 6]> = sessions
        .iter()
        .map(|row| {
            [
                labels.session(&row.session).to_owned(),
                row.root
                    .as_deref()
                    .map_or(String::new(), |r| short(r, home)),
                row.jobs.to_string(),
                row.finished.to_string(),
                row.clients.to_string(),
                lease(row),
            ]
        })
        .collect();
    let headings = ["SESSION", "ROOT", "JOBS", "FINISHED", "CLIENTS", "LEASE"];
    table::render(&headings, &rows, width)
}

/// How long it goes on without a client.
fn lease(row: &SessionRow) -> String {
    if let Some(at) = row.lapsed_at {
        let ago = crate::cli::ls::now().saturating_sub(at);
        return format!("ended by lease {} ago", words::age(ago));
    }
    match (row.lease_left_ms, row.lease_ms) {
        (Some(left), _) => format!("ends in {}", words::took(left)),
        (None, Some(ms)) => format!("{} without a client", words::limit(ms)),
        (None, None) => "until closed".into(),
    }
}

/// Returns a path with `~` for the home folder.
fn short(path: &str, home: Option<&Path>) -> String {
    match home.and_then(|home| Path::new(path).strip_prefix(home).ok()) {
        Some(rest) if rest.as_os_str().is_empty() => "~".into(),
        Some(rest) => format!("~/{}", rest.display()),
        None => path.to_owned(),
    }
}

async fn close(args: Close) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let client = scope::client(Mode::Use)?;
    // Asked before: afterwards it is not there to be looked at.
    let sessions = labels::sessions(&client).await?;
    let found = scope::find(&scope.session(), &sessions)?;
    if let Some(found) = found {
        let typed = scope.session();
        if found.id != typed && found.name != typed {
            // What is lost by a slip here is lost for good.
            let words = format!("{typed} is only the beginning of {}", found.name);
            return Err(Failure::usage(words).hint("a close wants the whole name"));
        }
    }
    let params = CloseSession {
        session: Some(scope.session()),
        grace_ms: args.grace,
    };
    let summary = client.ask::<SessionClose>(params).await?;
    let name = words::clean(scope.name());
    if args.json {
        output::json(&summary)?;
    } else if args.quiet {
        stop::tell_survivors(&summary);
    } else if found.is_some() {
        stop::print(&summary, &Labels::of(&scope, &sessions))?;
        // With survivors it stays, so that these can be seen and stopped.
        if stop::code(&summary) == exit::DONE {
            note(&format!("closed {name}"));
        }
    } else {
        note(&format!("note: no session {name}; nothing to close"));
    }
    Ok(stop::code(&summary))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ostler_proto::job::SessionRef;
    use ostler_proto::methods::SessionLimits;

    fn session(id: &str, name: &str) -> SessionRow {
        SessionRow {
            session: SessionRef {
                id: id.into(),
                name: name.into(),
            },
            root: Some("/home/a/app".into()),
            jobs: 1,
            finished: 2,
            clients: 0,
            limits: SessionLimits {
                commands: 8,
                shells: 4,
                agents: 16,
            },
            opened_at: 0,
            parent: None,
            lease_ms: None,
            lease_left_ms: None,
            lapsed_at: None,
        }
    }

    #[test]
    fn a_lease_says_when_it_ends() {
        let mut row = session("a-1", "a");
        row.lease_ms = Some(30_000);
        assert_eq!(lease(&row), "30 s without a client");
        row.lease_left_ms = Some(21_400);
        assert_eq!(lease(&row), "ends in 21 s");
        row.lapsed_at = Some(crate::cli::ls::now().saturating_sub(190_000));
        assert_eq!(lease(&row), "ended by lease 3m ago");
    }

    #[test]
    fn a_name_is_shown_where_it_is_unique() {
        let all = [
            session("a-1", "a"),
            session("b-1", "b"),
            session("b-2", "b"),
        ];
        let sessions: Vec<_> = all.iter().map(|s| s.session.clone()).collect();
        let scope = SessionArg::of(Some("a".into())).scope().unwrap();
        let labels = Labels::of(&scope, &sessions);
        let text = render(&all, &labels, Some(Path::new("/home/a")), None);
        assert_eq!(
            text,
            "a\t~/app\t1\t2\t0\tuntil closed\nb-1\t~/app\t1\t2\t0\tuntil closed\nb-2\t~/app\t1\t2\t0\tuntil closed\n"
        );
    }
}
