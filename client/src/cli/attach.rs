//! `ostler attach`: our terminal becomes that of a job, until we leave or it ends.

use ostler::follow::Event;
use ostler::{Client, Mode};
use ostler_proto::address::JOB_VARIABLE;
use ostler_proto::job::{Kind, Page, Row, Size};
use ostler_proto::methods::{JobAttach, JobGet, JobScreen, Target};
use ostler_proto::screen::{Attach, Look};

use super::failure::Failure;
use super::labels::Labels;
use super::output::{self, Pour, note};
use super::scope::{self, Named, SessionArg};
use super::seat::{self, Leave, Left, Role, Seat};
use super::{completions, nearest, words};
use crate::exit;

/// Sits down before the terminal of a job: shows its screen, types into it, and leaves it running.
///
/// The job's window follows this terminal. The end of the job ends this command with its exit code.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler attach t1
  ostler attach claude-7k2/s1 --take
  ostler attach t1 --read-only
  ostler attach t1 --detach-key C-a")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Nobody else may type meanwhile.
    #[arg(long, conflicts_with = "read_only")]
    take: bool,
    /// Only looks: types nothing, and leaves the job's window as it is.
    #[arg(long)]
    read_only: bool,
    /// The key that leaves.
    #[arg(long, value_name = "KEY", default_value = Leave::DEFAULT, value_parser = Leave::parse)]
    detach_key: Leave,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    if !seat::is_there() {
        let id = words::clean(&args.id);
        return Err(Failure::usage("attach needs a terminal").hint(format!(
            "ostler screen {id} shows what is there, ostler keys and send type"
        )));
    }
    let client = scope::client(Mode::Use)?;
    let target = Target {
        session: named.session.clone(),
        id: named.id.clone(),
    };
    let row = match client.ask::<JobGet>(target).await {
        Ok(result) => result.row,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let label = Labels::for_rows(&client, &scope, std::iter::once(&row))
        .await?
        .job(&row);
    if std::env::var(JOB_VARIABLE).is_ok_and(|job| job == row.process_id) {
        return Err(Failure::ours(format!("this terminal is that of {label}")));
    }
    let role = if args.read_only {
        Role::Spectator
    } else {
        Role::Whole
    };
    let name = ostler::fresh_key();
    let seat = Seat::new(
        client.clone(),
        &row.process_id,
        name,
        role,
        &args.detach_key,
    );
    match sit(&client, &seat, &label, &row, &args).await? {
        Left::Away | Left::Signal(_) => {
            let doing = doing(&client, named, &row).await;
            note(&format!("left {label}; {doing}"));
            Ok(exit::DONE)
        }
        Left::Ended(row) => {
            note(&format!("{label} {}", words::ended(&row)));
            Ok(exit::of_row(&row))
        }
    }
}

/// Sits until it is left or the job ends.
async fn sit(
    client: &Client,
    seat: &Seat,
    label: &str,
    row: &Row,
    args: &Args,
) -> Result<Left<Row>, Failure> {
    let Size { rows, cols } = seat.window();
    let mut stream = client.stream::<JobAttach>(Attach {
        id: row.process_id.clone(),
        rows,
        cols,
        read_only: args.read_only,
        take: args.take,
        seat: Some(seat.name().to_owned()),
        by: Some("the user".into()),
        ..Attach::default()
    });
    // Nothing of our terminal is touched before the supervisor has granted the seat.
    let mut event = stream.next().await?;
    note(&greeting(seat.window(), label, row, args));
    let screen = Pour::stdout();
    let show = async {
        let mut drawn = false;
        loop {
            match event {
                Event::Page(page) => {
                    if is_screen(&page) && std::mem::replace(&mut drawn, true) {
                        // A new supervisor has our first window; ours may be another one by now.
                        seat.tell_window();
                    }
                    screen.write(&output::bytes_of(&page)?).await?;
                }
                Event::End(end) => return Ok(end.row),
                Event::Started(_) | Event::Happened(_) => {}
            }
            event = stream.next().await?;
        }
    };
    let (left, raw) = seat.sit(show).await?;
    drop(raw);
    Ok(left)
}

/// `s1 of claude-7k2, 120x40, held by you; C-] leaves`.
fn greeting(ours: Size, label: &str, row: &Row, args: &Args) -> String {
    // A name that another session has as well would not say whose it is.
    let own = (row.session.name.as_str(), label);
    let (session, id) = label.rsplit_once('/').unwrap_or(own);
    let Size { rows, cols } = match row.terminal {
        Some(window) if args.read_only => window,
        _ => ours,
    };
    let how = match (args.take, args.read_only) {
        (true, _) => ", held by you",
        (_, true) => ", read only",
        _ => "",
    };
    let key = &args.detach_key.name;
    words::clean(&format!(
        "{id} of {session}, {cols}x{rows}{how}; {key} leaves"
    ))
}

/// What the job does when it is left.
async fn doing(client: &Client, named: Named, row: &Row) -> &'static str {
    if row.kind != Kind::Shell {
        return "it still runs";
    }
    let look = Look {
        session: named.session,
        id: named.id,
        ..Look::default()
    };
    match client.ask::<JobScreen>(look).await {
        Ok(screen) if screen.foreground.is_some() => "a command still runs in it",
        _ => "no command runs in it",
    }
}

/// The whole screen, with which an attach begins.
fn is_screen(page: &Page) -> bool {
    page.from == page.next
}
