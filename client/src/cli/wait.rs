//! `ostler wait`: for ends, text, quiet or a port. Never ends a job.

use std::time::{Duration, Instant};

use futures_util::future::{select_ok, try_join_all};
use ostler::{Client, Mode};
use ostler_proto::job::Outcome;
use ostler_proto::methods::{For, Listener, Reason, Wait, Waited, WaitedJob};

use super::failure::Failure;
use super::interrupts::Interrupts;
use super::live::{self, Watched};
use super::output::{self, note};
use super::scope::{self, Group, Scope, SessionArg};
use super::{completions, duration, nearest, number, pattern, words};
use crate::exit;

/// Waits for jobs to end, or for one of their ports, a text or quiet.
///
/// The exit code is the job's own when its end was waited for, else 0; 124 when the time is over: the job still
/// runs then. A job that ends before what was waited for ends the wait, with its own code, or 125 if that was 0.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler wait t1
  ostler wait web --for port=5173 --timeout 30s
  ostler wait web --for 'text=ready in \\d+ ms'
  ostler wait --any t1 t2 t3")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// What for: exit, text=REGEX, port, port=N, tcp=HOST:PORT, quiet=TIME, prompt, input.
    #[arg(long = "for", value_name = "WHAT", default_value = "exit", value_parser = what, hide_default_value = true, allow_hyphen_values = true, add = completions::conditions())]
    what: For,
    /// How long [default: until it happens].
    #[arg(long, value_name = "TIME", value_parser = duration::wait, allow_hyphen_values = true)]
    timeout: Option<u64>,
    /// The first job is enough.
    #[arg(long)]
    any: bool,
    /// Offset from which text counts.
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = number::offset, allow_hyphen_values = true)]
    since: u64,
    /// Says nothing: the exit code tells.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints the answer as JSON.
    #[arg(long)]
    json: bool,
    /// Jobs: id, name, SESSION/id or processId.
    #[arg(add = completions::kept(), value_name = "ID", required = true)]
    ids: Vec<String>,
}

fn what(text: &str) -> Result<For, String> {
    match text.split_once('=') {
        None if text == "exit" => Ok(For::Exit),
        None if text == "port" => Ok(For::AnyPort),
        None if text == "prompt" => Ok(For::Prompt),
        None if text == "input" => Ok(For::Input),
        Some(("text", text)) => Ok(For::Text(pattern::pattern(text)?)),
        Some(("port", port)) => match port.parse() {
            Ok(0) | Err(_) => Err("a port is a number from 1 to 65535".into()),
            Ok(port) => Ok(For::Port(port)),
        },
        Some(("tcp", address)) if address.contains(':') => Ok(For::Tcp(address.into())),
        Some(("quiet", time)) => Ok(For::Quiet(duration::wait(time)?)),
        _ => Err(
            "must be exit, text=REGEX, port, port=N, tcp=HOST:PORT, quiet=TIME, prompt or input"
                .into(),
        ),
    }
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let groups = scope.targets(&args.ids)?;
    let client = scope::client(Mode::Use)?;
    let mut interrupts = Interrupts::new()?;
    let began = Instant::now();
    let watched = Watched::new(
        format!("waiting for {}", live::named(&args.ids)),
        args.timeout,
        &groups,
    );
    let wait = wait(&client, &args, &scope, &groups);
    let waited = tokio::select! {
        waited = live::beside(&client, !args.json && !args.quiet, watched, wait) => waited?,
        _ = interrupts.next() => {
            match args.ids.as_slice() {
                [id] => note(&format!("{} still runs", words::clean(&scope.pasted(id)))),
                _ => note("the jobs are not touched"),
            }
            return Err(Failure::quiet(exit::INTERRUPTED));
        }
    };
    if args.json {
        output::json(&waited)?;
    } else if !args.quiet {
        tell(&args, &scope, &waited, began.elapsed());
    }
    // The words are out, one line a job.
    Ok(exit::of_wait(&waited, args.any))
}

async fn wait(
    client: &Client,
    args: &Args,
    scope: &Scope,
    groups: &[Group],
) -> Result<Waited, Failure> {
    let calls = groups.iter().map(|group| {
        Box::pin(async {
            let params = Wait {
                session: group.session.clone(),
                ids: group.ids.clone(),
                any: args.any,
                what: args.what.clone(),
                since: args.since,
                timeout_ms: args.timeout,
            };
            match client.wait(params).await {
                Ok(waited) => Ok(waited),
                Err(e) => {
                    // The refusal is about the first that is not there; of several it is not said which.
                    let text = match group.ids.as_slice() {
                        [id] => group.text(id),
                        _ => return Err(Failure::from(e)),
                    };
                    Err(nearest::explained(client, scope, &text, e).await)
                }
            }
        })
    });
    if args.any {
        // The waits of the other sessions are dropped, which takes them back.
        return Ok(select_ok(calls).await?.0);
    }
    let all = try_join_all(calls).await?;
    Ok(Waited {
        timed_out: all.iter().any(|w| w.timed_out),
        jobs: all.into_iter().flat_map(|w| w.jobs).collect(),
    })
}

fn tell(args: &Args, scope: &Scope, waited: &Waited, took: Duration) {
    let mut told = std::collections::HashSet::new();
    for job in &waited.jobs {
        if !told.insert(&job.row.process_id) {
            // Named twice, by its id and by its name.
            continue;
        }
        if job.reason == Reason::WaitOver && args.any && !waited.timed_out {
            continue;
        }
        if let Some(text) = sentence(args, scope, job, took) {
            note(&text);
        }
        if let Some(stranger) = &job.stranger {
            note(&format!(
                "note: port {} is held by {}, which is not of {}",
                stranger.port,
                holder(stranger),
                job.row.id
            ));
        }
    }
}

fn holder(listener: &Listener) -> String {
    match listener.pid {
        0 => "a process that cannot be seen".into(),
        pid => format!("pid {pid} ({})", words::clean(&listener.program)),
    }
}

/// Returns what is said of one job.
fn sentence(args: &Args, scope: &Scope, job: &WaitedJob, took: Duration) -> Option<String> {
    let who = words::titled(&job.row);
    let took = words::took(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
    Some(match job.reason {
        Reason::Exit => return ended(args, job),
        Reason::EndedBefore => ended_before(args, scope, job),
        Reason::Port => match &job.listener {
            Some(l) => format!(
                "{who} listens on {} after {took}: {}, pid {}",
                l.port,
                words::clean(&l.program),
                l.pid
            ),
            None => format!("{} takes connections after {took}", address(args)),
        },
        Reason::Text => match &job.line {
            Some(line) => format!("{who} printed after {took}: {}", words::clean(&line.text)),
            None => format!("{who} printed it after {took}"),
        },
        Reason::Quiet => format!("{who} is quiet"),
        Reason::Prompt | Reason::InputWait => format!("{who} waits for input after {took}"),
        Reason::InferredIdle => format!("{who} is quiet and probably waits, after {took}"),
        Reason::WaitOver => timed_out(args, job),
        Reason::Background => format!("{who} goes on in the background"),
        Reason::NoEnd => {
            format!("{who} has no end to wait for: wait --for text=, quiet= or port=")
        }
    })
}

/// Whose it is nobody knows: any process anywhere may serve it.
fn address(args: &Args) -> String {
    match &args.what {
        For::Tcp(address) => words::clean(address),
        _ => "it".into(),
    }
}

/// An end that was waited for speaks by its code, unless the code alone would not tell.
fn ended(args: &Args, job: &WaitedJob) -> Option<String> {
    match job.row.outcome {
        // A code above 128 may be the program's own. Of several jobs it does not say whose it is.
        Some(Outcome::Exited) if args.ids.len() == 1 || job.row.exit_code == Some(0) => None,
        _ => Some(format!(
            "{} {}",
            words::titled(&job.row),
            words::clean(&words::ended(&job.row))
        )),
    }
}

fn ended_before(args: &Args, scope: &Scope, job: &WaitedJob) -> String {
    let wanted = match &args.what {
        For::Exit => "it was over".into(),
        For::Text(pattern) => format!("it printed {}", words::clean(pattern)),
        For::Quiet(_) => "it was quiet".into(),
        For::Port(port) => format!("port {port} was open"),
        For::AnyPort => "it listened on a port".into(),
        For::Prompt => "its prompt was back".into(),
        For::Input => "it waited for input".into(),
        For::Tcp(address) => format!("{} took connections", words::clean(address)),
    };
    let id = &job.row.id;
    let mut text = format!(
        "error: {id} ended before {wanted}: {}",
        words::clean(&words::ended(&job.row))
    );
    for line in job.last_lines.iter().rev().take(5).rev() {
        text += &format!("\n  {}", words::clean(line));
    }
    text + &format!("\nhint: ostler tail {}", scope.pasted(id))
}

/// Returns `timed out after 30 s; t1 still runs, listening on 24678`.
fn timed_out(args: &Args, job: &WaitedJob) -> String {
    let after = args
        .timeout
        .map_or(String::new(), |ms| format!(" after {}", words::limit(ms)));
    let mut text = format!("timed out{after}; {} still runs", job.row.id);
    if !job.ports.is_empty() {
        let ports: Vec<String> = job.ports.iter().map(u16::to_string).collect();
        text += &format!(", listening on {}", ports.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::{ended as over, row};
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn args(args: &[&str]) -> Args {
        let all = std::iter::once("wait").chain(args.iter().copied());
        Line::parse_from(all).args
    }

    fn scope() -> Scope {
        SessionArg::default().scope().unwrap()
    }

    fn job(reason: Reason, row: ostler_proto::job::Row) -> WaitedJob {
        WaitedJob {
            reason,
            row,
            line: None,
            listener: None,
            stranger: None,
            ports: Vec::new(),
            last_lines: Vec::new(),
            exit_code: None,
            cwd: None,
            output_end: None,
        }
    }

    #[test]
    fn what_is_waited_for_is_read_from_one_word() {
        assert_eq!(what("exit"), Ok(For::Exit));
        assert_eq!(what("text=a=b"), Ok(For::Text("a=b".into())));
        assert_eq!(what("port=80"), Ok(For::Port(80)));
        assert_eq!(what("port"), Ok(For::AnyPort));
        assert_eq!(what("prompt"), Ok(For::Prompt));
        assert_eq!(what("input"), Ok(For::Input));
        assert_eq!(what("quiet=2s"), Ok(For::Quiet(2_000)));
        for bad in [
            "",
            "port=0",
            "port=65536",
            "port=x",
            "text=",
            "text=(",
            "quiet=0",
            "ports",
        ] {
            assert!(what(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_port_that_opens_is_told_as_in_the_walk() {
        let mut row = row("t1");
        row.name = Some("web".into());
        let mut job = job(Reason::Port, row);
        job.listener = Some(Listener {
            port: 5173,
            pid: 41207,
            program: "node".into(),
        });
        let args = args(&["web", "--for", "port=5173"]);
        assert_eq!(
            sentence(&args, &scope(), &job, Duration::from_millis(1_800)).unwrap(),
            "t1 (web) listens on 5173 after 1.8 s: node, pid 41207"
        );
    }

    #[test]
    fn an_end_that_came_first_shows_the_last_lines() {
        let mut job = job(Reason::EndedBefore, over(Outcome::Exited, Some(1), None));
        job.last_lines = (0..7).map(|n| format!("line {n}")).collect();
        let args = args(&["t1", "--for", "port=5173"]);
        assert_eq!(
            sentence(&args, &scope(), &job, Duration::ZERO).unwrap(),
            "error: t1 ended before port 5173 was open: exited with code 1\n  line 2\n  line 3\n  \
             line 4\n  line 5\n  line 6\nhint: ostler tail t1"
        );
    }

    #[test]
    fn a_wait_that_is_over_says_that_the_job_still_runs() {
        let mut job = job(Reason::WaitOver, row("t1"));
        job.ports = vec![24_678];
        let args = args(&["t1", "--for", "port=1", "--timeout", "30s"]);
        assert_eq!(
            sentence(&args, &scope(), &job, Duration::ZERO).unwrap(),
            "timed out after 30 s; t1 still runs, listening on 24678"
        );
    }
}
