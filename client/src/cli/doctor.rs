//! `ostler doctor`: what could keep the supervisor from working here, and the remedy. It looks and changes nothing.

use std::fs::File;
use std::path::Path;

use ostler::{Endpoint, Mode, endpoint, house};
use ostler_proto::address::Folders;
use ostler_proto::limits;
use serde::Serialize;

use super::failure::Failure;
use super::left::{self, Left};
use super::output::Out;
use super::{config, scope, words};
use crate::exit;

/// Looks for what could keep the supervisor from working here. Changes nothing, needs no supervisor.
///
/// The code is 125 when something is wrong. `containment` tells how the processes of a job are found: by the control group
/// that each job has (`cgroup`, where one may be made), by a mark that is inherited (`cookie`), or by parents, sessions
/// and environment (`links`). With OSTLER_RUNG=cookie or OSTLER_RUNG=links in its environment a new supervisor uses no
/// better one.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler doctor
  ostler doctor --json | jq '.checks[] | select(.ok | not)'")]
pub(crate) struct Args {
    /// Prints JSON: {"checks": [...]}.
    #[arg(long)]
    json: bool,
}

/// What was looked at.
#[derive(Serialize, Debug)]
struct Check {
    name: &'static str,
    ok: bool,
    /// What was found.
    found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, found: impl Into<String>) -> Self {
        Self {
            name,
            ok: true,
            found: found.into(),
            remedy: None,
        }
    }

    fn bad(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name,
            ok: false,
            found: found.into(),
            remedy: Some(remedy.into()),
        }
    }
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let checks = checks().await;
    let mut out = Out::new();
    if args.json {
        out.json(&serde_json::json!({ "checks": checks }))?;
    } else {
        for check in &checks {
            let verdict = if check.ok { "ok" } else { "FAIL" };
            out.line(&format!("{:<15} {verdict:<5} {}", check.name, check.found))?;
            if let Some(remedy) = &check.remedy {
                out.line(&format!("{:<15} {:<5} -> {remedy}", "", ""))?;
            }
        }
    }
    out.flush()?;
    if checks.iter().all(|c| c.ok) {
        Ok(exit::DONE)
    } else {
        Ok(exit::OURS)
    }
}

async fn checks() -> Vec<Check> {
    let mut checks = vec![kernel()];
    let endpoint = match Endpoint::of_user() {
        Ok(endpoint) => endpoint,
        Err(error) => {
            checks.push(Check::bad("socket folder", error.to_string(), error.hint()));
            return checks;
        }
    };
    let folders = endpoint.folders();
    checks.push(socket_folder(folders));
    checks.push(lock(folders).await);
    checks.push(configuration(&folders.config));
    checks.push(containment(folders));
    checks.push(disk(&folders.artifacts()));
    checks.push(open_files());
    checks.push(terminals());
    checks
}

fn kernel() -> Check {
    let name = "kernel";
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    let Ok(release) = release else {
        return Check::bad(
            name,
            "/proc is not mounted",
            "mount it: members are found there",
        );
    };
    let release = release.trim();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || {
        numbers
            .next()
            .and_then(|n| n.parse::<u32>().ok())
            .unwrap_or(0)
    };
    if (next(), next()) >= (5, 10) {
        Check::good(name, format!("Linux {release}"))
    } else {
        Check::bad(name, format!("Linux {release}"), "5.10 or newer is needed")
    }
}

fn socket_folder(folders: &Folders) -> Check {
    let name = "socket folder";
    let path = folders.run.display();
    match endpoint::check_folder(&folders.run) {
        Ok(true) => Check::good(name, path.to_string()),
        Ok(false) => Check::good(name, format!("{path}, made at the first start")),
        Err(error) => Check::bad(name, error.to_string(), error.hint()),
    }
}

fn left_behind(name: &'static str, folders: &Folders) -> Check {
    match left::of(folders) {
        Left::Nothing => Check::good(name, "none runs"),
        Left::Remains => Check::good(
            name,
            "none runs; the next one clears what the last one left",
        ),
        Left::Jobs => Check::bad(
            name,
            "the last one was killed together with its keeper; jobs of it still run",
            "ostler daemon start ends them, ostler daemon stop as well",
        ),
        Left::House => Check::bad(
            name,
            "one lives whose folder was taken away",
            "ostler daemon start finds it again, ostler daemon stop ends it",
        ),
    }
}

async fn lock(folders: &Folders) -> Check {
    let name = "supervisor";
    let keeper = match house::held(folders) {
        Ok(house::Held::Yes) => house::read(folders).map(|h| h.pid),
        Ok(_) => return left_behind(name, folders),
        Err(error) => {
            let lock = folders.house_lock();
            return Check::bad(
                name,
                format!("{} cannot be looked at: {error}", lock.display()),
                "remove it",
            );
        }
    };
    let patience = std::time::Duration::from_millis(limits::status_patience());
    let hello = async { scope::client(Mode::Look).ok()?.hello().await.ok() };
    match tokio::time::timeout(patience, hello).await {
        Ok(Some(hello)) => Check::good(
            name,
            format!(
                "{} runs, pid {} (keeper {})",
                hello.version, hello.pid, hello.keeper_pid
            ),
        ),
        _ => match keeper.and_then(house::stopped_one) {
            Some(pid) => Check::bad(
                name,
                format!("holds the lock but does not answer (pid {pid}, stopped by a debugger?)"),
                format!("kill -CONT {pid}"),
            ),
            None => Check::bad(
                name,
                "holds the lock but does not answer",
                format!("look into {}", folders.log().display()),
            ),
        },
    }
}

fn configuration(file: &Path) -> Check {
    let name = "configuration";
    match config::read(file) {
        Ok(given) if given.is_empty() && !file.exists() => {
            Check::good(name, format!("all defaults, no {}", file.display()))
        }
        Ok(given) => {
            let settings = if given.len() == 1 {
                "setting"
            } else {
                "settings"
            };
            Check::good(
                name,
                format!("{} {settings} from {}", given.len(), file.display()),
            )
        }
        Err(fault) => Check::bad(
            name,
            format!("{}, {fault}", file.display()),
            "mend the file: no supervisor starts with it (ostler config show --help has an example)",
        ),
    }
}

/// How members are found: any rung but the lowest finds them wherever they went.
fn containment(folders: &Folders) -> Check {
    let name = "containment";
    let found = match ostler_supervisor::containment(folders) {
        Ok(found) => found,
        Err(fault) => return Check::bad(name, fault, "set it to one of them, or not at all"),
    };
    let why = match found.lacks.is_empty() {
        true => String::new(),
        false => format!(" ({})", found.lacks.join("; ")),
    };
    match found.rung {
        "cgroup" => Check::good(name, "cgroup: each job has a group that the kernel keeps"),
        "cookie" => Check::good(
            name,
            format!("cookie: members are found wherever they went{why}"),
        ),
        _ => Check::bad(
            name,
            format!("links: by parents, sessions and environment only{why}"),
            "raise the hard limit (ulimit -R unlimited) before the supervisor starts",
        ),
    }
}

fn disk(artifacts: &Path) -> Check {
    let name = "disk";
    // The folder may not be there yet.
    let there = artifacts.ancestors().find(|p| p.exists());
    let free = there.map(fs2::available_space);
    match free {
        Some(Ok(free)) if free > limits::disk_floor() => {
            Check::good(name, format!("{} free for artifacts", words::size(free)))
        }
        Some(Ok(free)) => Check::bad(
            name,
            format!("{} free for artifacts", words::size(free)),
            format!(
                "below {} nothing is written to disk, and output beyond 256 KiB a job is lost (output.disk_floor)",
                words::size(limits::disk_floor())
            ),
        ),
        Some(Err(error)) => Check::bad(
            name,
            format!("{}: {error}", artifacts.display()),
            "make it readable",
        ),
        None => Check::bad(
            name,
            format!("{} has no parent", artifacts.display()),
            "set OSTLER_DIR",
        ),
    }
}

fn open_files() -> Check {
    let name = "open files";
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills a plain struct that is alive for the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let most = limits::jobs_within(limit.rlim_max);
    let found = format!("hard limit {}, enough for {most} live jobs", limit.rlim_max);
    if most >= u64::from(limits::commands()) {
        Check::good(name, found)
    } else {
        Check::bad(
            name,
            found,
            "raise it: ulimit -Hn 4096 before the supervisor starts",
        )
    }
}

fn terminals() -> Check {
    match File::open("/dev/ptmx") {
        Ok(_) => Check::good("terminals", "/dev/ptmx opens"),
        Err(error) => Check::bad(
            "terminals",
            format!("/dev/ptmx: {error}"),
            "mount devpts: shells need it, commands do not",
        ),
    }
}
