//! `ostler daemon`: the house itself. The two hidden entries and `run` call the supervisor's crate directly.

use std::ffi::OsString;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use ostler::house::{self, Held};
use ostler::{Client, Endpoint, Error, Mode, Unavailable};
use ostler_proto::address::Folders;
use ostler_proto::methods::{
    Build, HelloAnswer, Info, Nothing, StopSummary, StopSupervisor, SupervisorInfo, SupervisorStop,
};
use ostler_proto::{VERSION, limits};
use ostler_supervisor::tree::Member;
use serde_json::json;

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::labels::{self, Labels};
use super::left::{self, Left};
use super::output::{self, Out, Pour, note};
use super::scope::{self, SessionArg};
use super::{duration, nobody, stop, upgrade, words};
use crate::exit;

/// How long `daemon stop` waits for the lock after the supervisor has answered.
const FREE_WITHIN: Duration = Duration::from_secs(5);
/// How often a file that somebody else changes is looked at.
const AGAIN: Duration = Duration::from_millis(20);
/// How often the log is looked at while following it.
const LOG_AGAIN: Duration = Duration::from_millis(200);

/// The supervisor: start, status, stop, upgrade, logs, run.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Start(Start),
    Status(Status),
    Stop(Stop),
    Upgrade(upgrade::Args),
    Logs(Logs),
    /// Runs the supervisor in the foreground, for service managers and containers.
    #[command(after_help = "Examples:\n  ostler daemon run")]
    Run,
    /// The keeper, as the command line starts it.
    #[command(hide = true)]
    Keep,
    /// The supervisor, as the keeper starts it; its wire is descriptor 3.
    #[command(hide = true)]
    Supervise,
    /// What an image says that is to be upgraded to; copies of what it would have to read are descriptors 3 and 4.
    #[command(hide = true)]
    Check,
    /// The commands of a pipeline, as its job executes them.
    #[command(hide = true)]
    Pipe,
}

/// Starts the supervisor if none runs.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler daemon start")]
pub(crate) struct Start {
    /// Prints nothing but errors.
    #[arg(short, long)]
    quiet: bool,
}

/// Says whether a supervisor runs, and what it is. 0 both times.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler daemon status
  ostler daemon status --json | jq .running")]
pub(crate) struct Status {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Stops every job, then the supervisor.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler daemon stop
  ostler daemon stop --grace 0")]
pub(crate) struct Stop {
    /// Time between the polite and the forced end [default: each job's own, 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::grace, allow_hyphen_values = true)]
    grace: Option<u64>,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the supervisor's own log. Needs no supervisor.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler daemon logs | tail -20
  ostler daemon logs -f")]
pub(crate) struct Logs {
    /// Goes on until Ctrl-C.
    #[arg(short, long)]
    follow: bool,
}

/// Runs the keeper in this process, which must have no threads yet.
pub(crate) fn keep(foreground: bool) -> ExitCode {
    match folders() {
        Ok(folders) => ostler_supervisor::keep(ostler_supervisor::KeepOptions {
            folders,
            foreground,
            build: ostler::BUILD,
        }),
        Err(failure) => {
            if !foreground {
                // The starting client reads one line here.
                println!("failed: {}", failure.what);
            }
            failure.tell();
            ExitCode::from(u8::try_from(failure.code).unwrap_or(u8::MAX))
        }
    }
}

/// Runs the keeper in the foreground.
pub(crate) fn run() -> ExitCode {
    let there = folders()
        .ok()
        .filter(|folders| std::os::unix::net::UnixStream::connect(folders.socket()).is_ok());
    if let Some(house) = there.and_then(|folders| house::read(&folders)) {
        Failure::ours(format!(
            "a supervisor runs already, with keeper {}",
            house.pid
        ))
        .hint("ostler daemon stop ends it")
        .tell();
        return ExitCode::from(125);
    }
    keep(true)
}

/// Runs the supervisor on descriptor 3, in the folders that its keeper names.
pub(crate) fn supervise(words: &[OsString]) -> ExitCode {
    match ostler_supervisor::folders_of(words) {
        Some(folders) => ostler_supervisor::supervise(folders, ostler::BUILD),
        None => {
            Failure::ours("the supervisor is started by its keeper alone")
                .hint("ostler daemon start")
                .tell();
            ExitCode::from(125)
        }
    }
}

fn folders() -> Result<Folders, Failure> {
    let folders = Endpoint::of_user()?.folders().clone();
    ostler::endpoint::create_folder(&folders.run)?;
    Ok(folders)
}

pub(crate) async fn dispatch(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Start(args) => start(&args).await,
        Command::Status(args) => status(args).await,
        Command::Stop(args) => end(args).await,
        Command::Upgrade(args) => upgrade::run(args).await,
        Command::Logs(args) => logs(args).await,
        Command::Run | Command::Keep | Command::Supervise | Command::Check | Command::Pipe => {
            Err(Failure::usage("this entry takes no further arguments"))
        }
    }
}

async fn start(args: &Start) -> Result<i32, Failure> {
    let client = scope::client(Mode::Start)?;
    upgrade::meet(&client).await?;
    let hello = client.hello().await?;
    if !args.quiet {
        note(&format!(
            "supervisor {} runs, pid {}",
            hello.version, hello.pid
        ));
    }
    Ok(exit::DONE)
}

async fn status(args: Status) -> Result<i32, Failure> {
    let endpoint = Endpoint::of_user()?;
    let client = scope::client(Mode::Look)?;
    let asked = client.call::<SupervisorInfo>(Nothing {});
    let patience = Duration::from_millis(limits::status_patience() + 100);
    let answer = match tokio::time::timeout(patience, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(silent(endpoint.folders()).into()),
    };
    match answer {
        Ok(info) => running(&args, &info)?,
        Err(e) if nobody(&e) => not_running(&args, &endpoint)?,
        Err(e) => {
            if args.json && matches!(&e, Error::Unavailable(_)) {
                unanswered(&endpoint)?;
            }
            return Err(e.into());
        }
    }
    Ok(exit::DONE)
}

/// The handshake was answered and nothing after it.
fn silent(folders: &Folders) -> Unavailable {
    let pid = house::read(folders).map(|h| h.pid);
    let stopped = pid.and_then(house::stopped_one);
    Unavailable::Silent {
        pid: stopped.or(pid),
        stopped: stopped.is_some(),
        log: folders.log(),
    }
}

fn running(args: &Status, info: &Info) -> Result<(), Failure> {
    let hello = &info.hello;
    let mut out = Out::new();
    if args.json {
        let mut value = serde_json::to_value(info)
            .map_err(|e| Failure::ours(format!("cannot write JSON: {e}")))?;
        value["running"] = true.into();
        out.json(&value)?;
        return out.flush();
    }
    upgrade::tell(hello);
    let up = words::age(super::ls::now().saturating_sub(info.started_at));
    let this = Build {
        version: hello.version.clone(),
        build: hello.build.clone(),
    };
    let mut lines = vec![
        ("running", "yes".to_owned()),
        ("version", this.to_string()),
        (
            "pid",
            format!("{} (keeper {})", hello.pid, hello.keeper_pid),
        ),
        ("up", up),
        ("socket", info.socket.clone()),
        ("log", info.log.clone()),
        ("generation", hello.generation.to_string()),
        ("sessions", info.sessions.to_string()),
        ("jobs", info.jobs.to_string()),
        ("clients", info.connections.to_string()),
        (
            "members",
            words::found_by(&info.rung, info.rung_why.as_deref()),
        ),
        ("bytes", format!("by {}", info.byte_path)),
    ];
    if info.keeper != this && info.keeper != Build::default() {
        let stays = format!("{}, as long as this house stands", info.keeper);
        lines.push(("keeper", stays));
    }
    if let Some(why) = &info.taken_back {
        lines.push(("upgrade", format!("taken back: {}", words::clean(why))));
    }
    for (word, value) in lines {
        out.line(&format!("{word:<10} {value}"))?;
    }
    out.flush()
}

fn not_running(args: &Status, endpoint: &Endpoint) -> Result<(), Failure> {
    let socket = endpoint.folders().socket();
    let mut out = Out::new();
    if args.json {
        out.json(&json!({
            "running": false,
            "socket": socket.to_string_lossy(),
            "version": VERSION,
            "sessions": 0,
            "jobs": 0,
        }))?;
    } else {
        out.line(&format!("{:<10} no", "running"))?;
        out.line(&format!("{:<10} {}", "socket", socket.display()))?;
        // Why the last one left, if it had to say something.
        if let Some(reason) = house::read(endpoint.folders()).and_then(|h| h.reason) {
            out.line(&format!("{:<10} {reason}", "last"))?;
        }
    }
    out.flush()
}

fn unanswered(endpoint: &Endpoint) -> Result<(), Failure> {
    let folders = endpoint.folders();
    let mut out = Out::new();
    out.json(&json!({
        "running": true,
        "answers": false,
        "socket": folders.socket().to_string_lossy(),
        "keeperPid": house::read(folders).map(|h| h.pid),
    }))?;
    out.flush()
}

async fn end(args: Stop) -> Result<i32, Failure> {
    let Some((client, hello)) = whom_to_stop().await? else {
        if args.json {
            output::json(&json!({ "jobs": [] }))?;
        }
        if !args.quiet {
            note("no supervisor runs");
        }
        return Ok(exit::DONE);
    };
    let scope = SessionArg::default().scope()?;
    // Afterwards there is nobody to ask.
    let sessions = labels::sessions(&client).await.unwrap_or_default();
    let labels = Labels::of(&scope, &sessions);
    let params = StopSupervisor {
        grace_ms: args.grace,
    };
    let summary = ask_to_stop(&client, params, hello.generation).await?;
    drop(client);
    let free = wait_until_free().await;
    let remaining = remaining(&summary);
    if args.json {
        let mut summary = json!(summary);
        if !remaining.is_empty() {
            let named = |m: &Member| json!({ "pid": m.pid, "program": m.program });
            summary["remaining"] = remaining.iter().map(named).collect();
        }
        output::json(&summary)?;
    } else if args.quiet {
        stop::tell_survivors(&summary);
    } else {
        stop::print(&summary, &labels)?;
    }
    free?;
    if !args.quiet {
        note(&format!("supervisor {} stopped", hello.version));
    }
    for left in &remaining {
        let text = format!("error: not ended: pid {} ({})", left.pid, left.program);
        note(&words::clean(&text));
    }
    Ok(if remaining.is_empty() {
        stop::code(&summary)
    } else {
        exit::OURS
    })
}

/// What lives on of jobs and stands in no receipt: an earlier stop has named it, and could not end it either.
fn remaining(summary: &StopSummary) -> Vec<Member> {
    let survivors = summary.jobs.iter().flat_map(|r| &r.survivors);
    let named: Vec<u32> = survivors.map(|s| s.pid).collect();
    let mut remaining = left::processes();
    remaining.retain(|m| !named.contains(&m.pid));
    remaining
}

/// The supervisor that is to stop everything; none where nobody runs and nothing is left.
///
/// A house that was killed as a whole has nobody to end what it left, but the next one does, before it answers.
async fn whom_to_stop() -> Result<Option<(Client, HelloAnswer)>, Failure> {
    loop {
        let mode = match left::behind() {
            Left::Nothing => Mode::Use,
            Left::Remains | Left::Jobs | Left::House => Mode::Start,
        };
        let client = scope::client(mode)?;
        match client.hello().await {
            Ok(hello) => return Ok(Some((client, hello))),
            Err(e) if nobody(&e) => {}
            Err(e) => return Err(e.into()),
        }
        // One that cannot be reached any more may be ending everything, and may be killed over that.
        wait_until_free().await?;
        if left::behind() == Left::Nothing {
            return Ok(None);
        }
    }
}

/// Asks for the end, and of the next supervisor again where one has taken over meanwhile.
async fn ask_to_stop(
    client: &Client,
    params: StopSupervisor,
    mut generation: u64,
) -> Result<StopSummary, Failure> {
    loop {
        match client.call::<SupervisorStop>(params.clone()).await {
            // It left before its answer was through, or somebody else stopped it: the lock tells the truth.
            Err(Error::Broken(_)) => match client.hello().await {
                Ok(hello) if hello.generation > generation => generation = hello.generation,
                _ => return Ok(StopSummary::default()),
            },
            answer => return Ok(answer?),
        }
    }
}

/// Waits until no house is there any more: only then has the last process of it gone.
async fn wait_until_free() -> Result<(), Failure> {
    let endpoint = Endpoint::of_user()?;
    let began = Instant::now();
    loop {
        let mut free = true;
        for folders in endpoint.candidates() {
            let ours = matches!(ostler::endpoint::check_folder(&folders.run), Ok(true));
            // Another client that starts a new one has already seen the old one gone.
            free &= !ours || !matches!(house::held(folders), Ok(Held::Yes));
        }
        if free {
            return Ok(());
        }
        if began.elapsed() > FREE_WITHIN {
            return Err(Failure::ours(
                "the supervisor does not answer any more but still holds its lock",
            )
            .hint(format!("log: {}", endpoint.folders().log().display())));
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn logs(args: Logs) -> Result<i32, Failure> {
    let log = Endpoint::of_user()?.folders().log();
    let mut interrupts = Interrupts::new()?;
    tokio::select! {
        done = print(&log, args.follow) => done,
        _ = interrupts.next() => Err(Failure::quiet(exit::INTERRUPTED)),
    }
}

/// Prints the log, and what is added to it. One that was replaced is read from its beginning.
async fn print(path: &Path, follow: bool) -> Result<i32, Failure> {
    let pour = Pour::stdout();
    let mut at = 0;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match std::fs::File::open(path) {
            Ok(mut file) => {
                let length = file.metadata().map_or(0, |m| m.len());
                at = if length < at { 0 } else { at };
                file.seek(SeekFrom::Start(at))
                    .map_err(|e| unreadable(path, &e))?;
                loop {
                    let n = file.read(&mut buffer).map_err(|e| unreadable(path, &e))?;
                    if n == 0 {
                        break;
                    }
                    at += n as u64;
                    pour.write(&buffer[..n]).await?;
                }
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                if !follow {
                    note(&format!("no log yet: {}", path.display()));
                }
            }
            Err(e) => return Err(unreadable(path, &e)),
        }
        if !follow {
            return Ok(exit::DONE);
        }
        tokio::time::sleep(LOG_AGAIN).await;
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::ours(format!("cannot read {}: {error}", path.display()))
}
