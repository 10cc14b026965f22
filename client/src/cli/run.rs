//! `ostler run`: a job in the foreground.

use base64::Engine;
use ostler::Client;
use ostler::follow::{Event, Stream};
use ostler_proto::job::{JobResult, Outcome, Page, Row, Size};
use ostler_proto::methods::{
    JobDetach, JobRun, JobScreen, JobSignal, JobStop, JobWrite, Run, SignalJob, Stdin, Stop,
    Target, Write,
};
use ostler_proto::screen::Look;
use tokio::sync::{mpsc, watch};

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::output::{self, Pour, note};
use super::raw::Raw;
use super::request::JobArgs;
use super::scope::Scope;
use super::seat::{self, Leave, Left, Role, Seat};
use super::{size, table, words};
use crate::exit;

/// Bytes of input that travel in one message.
const INPUT: usize = 64 * 1024;
/// How long one message of input may wait for the job to take it, in ms. Then the rest is sent again.
const INPUT_PATIENCE: u64 = 30_000;

/// Runs a command in the foreground: streams its output, waits, and passes its exit code.
///
/// Ctrl-C once interrupts the job, twice stops it, a third time leaves while the stop goes on. The job ends
/// with this command, unless it is detached. While it runs it takes one of the places that its session has for
/// commands, 8 unless `session open --commands` says otherwise.
///
/// With --pty the command has a terminal of its own, and standard output and error are one. Where our input and output
/// are a terminal, it is shown there as if it ran in it: every key goes to the command, Ctrl-C too, and the detach key
/// leaves it running in the background. Elsewhere its output is written as it comes, and input is read with --stdin only.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler run -- cargo test
  ostler run --timeout 5m -c 'make 2>&1 | tee log'
  echo hello | ostler run --stdin -- cat
  ostler run --env RUST_LOG=debug --unset LANG -- ./server
  ostler run --pty -- vi notes.txt
  ostler run --pty=120x40 -- ls --color > listing")]
pub(crate) struct Args {
    /// Says nothing of its own at the end.
    #[arg(short, long)]
    quiet: bool,
    /// Prints the result as JSON instead of streaming the output.
    #[arg(long)]
    json: bool,
    /// Gives the job a terminal of this size [default: that of this terminal, which it follows; else 80x24].
    #[arg(
        long,
        value_name = "COLSxROWS",
        value_parser = size::size,
        num_args = 0..=1,
        require_equals = true
    )]
    pty: Option<Option<Size>>,
    /// The key that leaves a job with a terminal, which then goes on in the background.
    #[arg(long, value_name = "KEY", default_value = Leave::DEFAULT, value_parser = Leave::parse, requires = "pty")]
    detach_key: Leave,
    #[command(flatten)]
    job: JobArgs,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.job.session.scope()?;
    let mut params = Run {
        start: args.job.request()?,
        raw: true,
        collect: Some(args.json),
        ..Run::default()
    };
    if let Some(size) = args.pty {
        params.start.pty = Some(size.unwrap_or_else(table::window));
        // The terminal is its input.
        params.start.stdin = Stdin::Closed;
    }
    let interrupts = Interrupts::new()?;
    let client = scope.opening_client(args.quiet).await?;
    let (result, lost) = if args.pty.is_some() && !args.json && seat::is_there() {
        seated(&args, &client, params, interrupts).await?
    } else {
        streamed(&args, &client, params, interrupts).await?
    };
    let code = finish(&args, &scope, &result)?;
    whole(&result, lost, code)
}

/// Streams the output, and hands our input over if that is wanted; returns the result, and how many bytes did not get
/// through.
async fn streamed(
    args: &Args,
    client: &Client,
    params: Run,
    mut interrupts: Interrupts,
) -> Result<(JobResult, u64), Failure> {
    let (told, started) = watch::channel(None);
    let mut started_too = started.clone();
    tokio::select! {
        streamed = stream(client, params, &told, args.json) => streamed.map_err(unread),
        failure = interrupted(client, &mut interrupts, &started) => Err(failure),
        failure = feed(client, &mut started_too, args.job.stdin) => Err(failure),
    }
}

/// Shows the job's terminal on ours until it ends or is left.
async fn seated(
    args: &Args,
    client: &Client,
    mut params: Run,
    mut interrupts: Interrupts,
) -> Result<(JobResult, u64), Failure> {
    let name = ostler::fresh_key();
    params.seat = Some(name.clone());
    let mut stream = client.stream::<JobRun>(params);
    let row = tokio::select! {
        event = stream.next() => match event? {
            Event::Started(row) => row,
            Event::End(result) => return Ok((*result, 0)),
            Event::Page(_) | Event::Happened(_) => {
                return Err(Failure::ours("the supervisor tells output before the start"));
            }
        },
        // Nothing runs yet; going away takes the request back.
        _ = interrupts.next() => return Err(Failure::quiet(exit::INTERRUPTED)),
    };
    let role = match args.pty {
        Some(Some(_)) => Role::Typist,
        _ => Role::Whole,
    };
    let seat = Seat::new(
        client.clone(),
        &row.process_id,
        name,
        role,
        &args.detach_key,
    );
    let screen = Pour::stdout();
    let mut lost = 0;
    let show = async {
        loop {
            match stream.next().await? {
                Event::Page(page) => {
                    lost += page.lost;
                    screen.write(&output::bytes_of(&page)?).await?;
                }
                Event::End(result) => return Ok(*result),
                Event::Started(_) | Event::Happened(_) => {}
            }
        }
    };
    let (left, raw) = seat.sit(show).await?;
    match left {
        Left::Ended(result) => {
            stand_up(client, raw, &result.row).await;
            Ok((result, lost))
        }
        Left::Away => {
            stand_up(client, raw, &row).await;
            let target = Target {
                session: None,
                id: row.process_id.clone(),
            };
            client.ask::<JobDetach>(target).await?;
            Ok((end(&mut stream).await?, lost))
        }
        Left::Signal(signal) => {
            stand_up(client, raw, &row).await;
            // With its request the tree ends.
            drop(stream);
            note(&format!("{} is being stopped", row.id));
            Err(Failure::quiet(exit::of_signal(signal)))
        }
    }
}

/// The result of a run, whose output is not looked at any more.
async fn end(stream: &mut Stream<JobRun>) -> Result<JobResult, Failure> {
    loop {
        if let Event::End(result) = stream.next().await? {
            return Ok(*result);
        }
    }
}

/// Gives our terminal back, with as little of it changed as the program's end allows.
async fn stand_up(client: &Client, raw: Raw, row: &Row) {
    if row.outcome == Some(Outcome::Exited) {
        return raw.untouched();
    }
    let look = Look {
        id: row.process_id.clone(),
        ..Look::default()
    };
    match client.call::<JobScreen>(look).await {
        Ok(screen) if !screen.alternate => raw.here(screen.cursor.column),
        // It had the whole screen, or nobody knows.
        Ok(_) | Err(_) => drop(raw),
    }
}

/// A reader that went away ends the job with us, so it is no success: as in a shell, where the next write kills it.
fn unread(failure: Failure) -> Failure {
    match failure.code {
        exit::DONE => Failure::quiet(exit::UNREAD),
        _ => failure,
    }
}

/// Writes the output as it comes; returns the result, and how many bytes did not get through.
async fn stream(
    client: &Client,
    params: Run,
    told: &watch::Sender<Option<Row>>,
    silent: bool,
) -> Result<(JobResult, u64), Failure> {
    let mut lost = 0;
    let mut stream = client.stream::<JobRun>(params);
    let (out, err) = (Pour::stdout(), Pour::stderr());
    loop {
        match stream.next().await? {
            Event::Started(row) => {
                told.send_replace(Some(*row));
            }
            Event::Happened(_) => {}
            Event::Page(page) if silent => drop(page),
            Event::Page(page) => {
                lost += page.lost;
                pour(&page, &out, &err).await?;
            }
            Event::End(result) => return Ok((*result, lost)),
        }
    }
}

/// A run whose output did not get through whole is no success, whatever its program returned: in `ostler run -- dump >
/// file && upload` the second one must not follow.
fn whole(result: &JobResult, lost: u64, code: i32) -> Result<i32, Failure> {
    if lost == 0 || code != exit::DONE {
        return Ok(code);
    }
    let id = &result.row.id;
    Err(Failure::ours(format!(
        "{} of the output of {id} did not get through: it came faster than it was read, and no more is kept",
        words::bytes(lost)
    ))
    .hint("let the program write its file itself, or keep more: ostler config show"))
}

async fn pour(page: &Page, out: &Pour, err: &Pour) -> Result<(), Failure> {
    output::note_gap(page);
    let bytes = output::bytes_of(page)?;
    for (is_err, run) in output::runs(page, &bytes) {
        if is_err {
            err.write(run).await?;
        } else {
            out.write(run).await?;
        }
    }
    Ok(())
}

/// Handles Ctrl-C; returns how to leave when that is wanted.
async fn interrupted(
    client: &Client,
    interrupts: &mut Interrupts,
    started: &watch::Receiver<Option<Row>>,
) -> Failure {
    let mut count = 0;
    loop {
        interrupts.next().await;
        count += 1;
        let Some(row) = started.borrow().clone() else {
            // Nothing runs yet; going away takes the request back.
            return Failure::quiet(exit::INTERRUPTED);
        };
        let client = client.clone();
        match count {
            1 => {
                // In its own task: the next Ctrl-C must not wait for the answer to this one.
                tokio::spawn(async move { client.call::<JobSignal>(interrupt(&row)).await });
            }
            2 => {
                note(&format!("stopping {}; once more leaves", row.id));
                tokio::spawn(async move { client.ask::<JobStop>(stop(&row)).await });
            }
            _ => {
                note(&format!("{} is being stopped", row.id));
                return Failure::quiet(exit::INTERRUPTED);
            }
        }
    }
}

fn interrupt(row: &Row) -> SignalJob {
    SignalJob {
        session: None,
        id: row.process_id.clone(),
        signal: "SIGINT".into(),
    }
}

fn stop(row: &Row) -> Stop {
    Stop {
        ids: vec![row.process_id.clone()],
        by: Some("user".into()),
        reason: Some("Ctrl-C".into()),
        wait: Some(false),
        ..Stop::default()
    }
}

/// Hands our input to the job, piece by piece. Never returns but for a failure: the job decides when it ends.
async fn feed(
    client: &Client,
    started: &mut watch::Receiver<Option<Row>>,
    wanted: bool,
) -> Failure {
    if wanted && let Err(failure) = pump(client, started).await {
        return failure;
    }
    std::future::pending().await
}

async fn pump(client: &Client, started: &mut watch::Receiver<Option<Row>>) -> Result<(), Failure> {
    let id = match started.wait_for(Option::is_some).await {
        Ok(row) => row.as_ref().map(|r| r.process_id.clone()),
        Err(_) => None,
    };
    let Some(id) = id else { return Ok(()) };
    let mut input = read_input();
    while let Some(bytes) = input.recv().await {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let params = Write {
                id: id.clone(),
                base64: Some(base64::engine::general_purpose::STANDARD.encode(rest)),
                timeout_ms: Some(INPUT_PATIENCE),
                ..Write::default()
            };
            match client.call::<JobWrite>(params).await {
                // It does not read any more, as `head` does; that is its business.
                Ok(written) if written.closed => return Ok(()),
                Ok(written) => {
                    let n = usize::try_from(written.bytes).unwrap_or(usize::MAX);
                    rest = &rest[n.min(rest.len())..];
                }
                Err(ostler::Error::Broken(_)) => {
                    // Asking again could write it twice, giving up would end the job.
                    note(&format!(
                        "note: the supervisor was replaced; {} of input may be missing",
                        words::bytes(rest.len() as u64)
                    ));
                    break;
                }
                Err(e) => return over(e),
            }
        }
    }
    let end = Write {
        id,
        eof: true,
        ..Write::default()
    };
    // Twice is harmless.
    match client.ask::<JobWrite>(end).await {
        Ok(_) => Ok(()),
        Err(e) => over(e),
    }
}

/// A job that ended while it was being written to is no failure of ours; its result says everything.
fn over(error: ostler::Error) -> Result<(), Failure> {
    match error {
        ostler::Error::Refused(_) => Ok(()),
        other => Err(other.into()),
    }
}

/// Reads our input in a thread, since it may be a file, a pipe or a terminal; one piece waits at most.
fn read_input() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT];
        loop {
            match std::io::Read::read(&mut std::io::stdin().lock(), &mut buffer) {
                Ok(0) => return,
                Ok(n) if send.blocking_send(buffer[..n].to_vec()).is_err() => return,
                Ok(_) => {}
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => {
                    note(&format!("note: the input cannot be read: {e}"));
                    return;
                }
            }
        }
    });
    receive
}

fn finish(args: &Args, scope: &Scope, result: &JobResult) -> Result<i32, Failure> {
    if args.json {
        output::json(result)?;
    }
    let row = &result.row;
    if result.detached || row.outcome.is_none() {
        let mut line = format!("{} goes on in the background", words::titled(row));
        if args.pty.is_some() {
            line += &format!(": ostler attach {}", scope.pasted(&row.id));
        }
        note(&words::clean(&line));
        return Ok(exit::OURS);
    }
    let code = exit::of_row(row);
    match row.outcome {
        Some(Outcome::Exited | Outcome::Signaled) => {
            if !args.quiet && !args.json && output::words_are_read() {
                note(&last_line(row, &scope.pasted(&row.id)));
            } else if !args.quiet && !args.json && row.tree.left > 0 {
                // Also where nobody reads the last line: what lives on after a foreground command must be said.
                let left = words::processes(row.tree.left);
                let id = scope.pasted(&row.id);
                note(&format!("note: {left} of {id} left: ostler stop {id}"));
            }
            Ok(code)
        }
        Some(Outcome::SpawnFailed) => Err(words::never_ran(row)),
        _ => Err(Failure {
            code,
            ..Failure::ours(format!("{} {}", words::titled(row), words::ended(row)))
        }),
    }
}

/// Returns `t2 exited with code 101 after 42 s; 312 KiB kept: ostler tail t2`.
fn last_line(row: &Row, id: &str) -> String {
    let mut line = format!("{} {}", words::titled(row), words::ended(row));
    if let Some(ms) = row.duration_ms {
        line += &format!(" after {}", words::took(ms));
    }
    let kept = row.output.end.saturating_sub(row.output.start);
    if kept > 0 {
        line += &format!("; {} kept: ostler tail {id}", words::size(kept));
    }
    if row.tree.left > 0 {
        line += &format!(
            "; {} left: ostler stop {id}",
            words::processes(row.tree.left)
        );
    }
    words::clean(&line)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::ended;

    #[test]
    fn the_last_line_says_what_happened_and_where_the_output_is() {
        let mut row = ended(Outcome::Exited, Some(101), None);
        row.output.end = 312 * 1024;
        assert_eq!(
            last_line(&row, "t1"),
            "t1 exited with code 101 after 42 s; 312 KiB kept: ostler tail t1"
        );
        row.output.end = 0;
        row.tree.left = 1;
        assert_eq!(
            last_line(&row, "x/t1"),
            "t1 exited with code 101 after 42 s; 1 process left: ostler stop x/t1"
        );
    }
}
