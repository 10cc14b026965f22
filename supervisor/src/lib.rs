//! The keeper and the supervisor.
//!
//! ```text
//!   editor plugin   agent A   agent B   CLI            one binary: `ostler`
//!         \            |         |       /
//!          Unix socket (JSON-RPC, LSP framing or a line a message)
//!                      |
//!                supervisor ------- wire (SCM_RIGHTS) ------- keeper
//!           sessions, jobs, output                  forks, reaps, holds descriptors, cleans
//!                      |                                         |
//!                      +-------------- pipes ------------- job trees
//! ```
//!
//! A job is two cells and a log; one task lives it (`life`; of what is sent to a shell in the background, for which no
//! process stands, `shell::background`). Whoever wants something raises *wanted*; whoever wants to know
//! watches *status*; whoever wants output reads the *log* at a cursor. Bytes and decisions never share a road.
//!
//! Invariants, each with a test:
//! - Only `life` signals or buries, and it buries last.
//! - *Exited* is published once: after a natural end when the main process is gone and its output drained, members
//!   left being counted; after a stop when the tree is gone.
//! - A byte leaves memory only after it is on disk or has been counted as lost.
//! - No lock is held across an await; no client can delay a child, another client or a stop.
//! - *Wanted* only rises; every request is safe to repeat.
//! - Output has no queue; the only queues are keyboard input and the outbox, both bounded.
//! - A foreign job is the same answer as no job.
//! - One supervisor has a house at any moment; in an upgrade the next one waits and has read nothing.
//! - There is no periodic tick: an idle supervisor does not wake.

mod daemon;

mod connection;

mod methods;

mod restore;

mod caller;

mod claim;

mod editor;

mod params;

mod outbox;

mod house;

mod registry;

mod owner;

mod session;

mod agent;

mod shell;

mod ledger;

#[cfg(test)]
mod fuzz;
mod life;

mod pipeline;

mod program;

mod pump;

mod feed;

mod replies;

mod terminal;

mod job;

mod events;

mod lines;

pub mod stats;

pub mod tree;

mod ready;

mod alarm;
mod clock;

mod file;

mod diary;
mod disk;

mod secret;

mod signal;

mod upgrade;

pub mod keeper;

pub mod log;

pub mod process;
mod quarantine;

use std::{ffi::OsString, fs, io::Write, path::Path, process::ExitCode};

use ostler_proto::{address::Folders, config};

/// How to keep a house.
#[derive(Debug, Clone)]
pub struct KeepOptions {
    /// Where everything is.
    pub folders: Folders,
    /// Stay the process that was started, for service units.
    pub foreground: bool,
    /// Which build of its version this program is.
    pub build: &'static str,
}

/// Runs the keeper of a house until the house is gone. Standard output is where the starting client waits for
/// `ready` or `failed: REASON`. Must be called before anything of the process has made a thread or opened a file.
pub fn keep(options: KeepOptions) -> ExitCode {
    let KeepOptions {
        folders,
        foreground,
        build,
    } = options;
    match config::read(fs::read_to_string(&folders.config)) {
        Ok(given) => config::apply(&given),
        Err(fault) => {
            let config = folders.config.display();
            let _ = writeln!(std::io::stdout(), "failed: {config}, {fault}");
            return ExitCode::FAILURE;
        }
    }
    let instance = match tree::instance_here(&real(&folders.run)) {
        Ok(instance) => instance,
        Err(error) => {
            // The starting client reads this line; where it is gone there is nobody to tell.
            let _ = writeln!(
                std::io::stdout(),
                "failed: this machine cannot be told apart: {error}"
            );
            return ExitCode::FAILURE;
        }
    };
    let rung = match tree::Rung::allowed() {
        Ok(rung) => rung,
        Err(fault) => {
            let _ = writeln!(std::io::stdout(), "failed: {fault}");
            return ExitCode::FAILURE;
        }
    };
    // The folders go along: the next supervisor must not look for them anew and find others.
    let words = ["ostler", "daemon", "supervise"].map(OsString::from);
    let paths = [&folders.run, &folders.state, &folders.config].map(|p| p.clone().into_os_string());
    keeper::run(keeper::Options {
        socket: folders.socket(),
        house_lock: folders.house_lock(),
        state_dir: folders.state,
        instance,
        rung,
        supervise: words.into_iter().chain(paths).collect(),
        image: None,
        foreground,
        build: build.into(),
    })
}

/// Who lives of a house although nobody holds its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Nobody who can be recognised.
    Nobody,
    /// Keeper or supervisor: their folder, or the lock in it, was taken away.
    House,
    /// Jobs alone: both were killed.
    Jobs,
}

/// Looks who carries the mark of a house in these folders. Changes nothing, and needs none of its files.
pub fn behind(folders: &Folders) -> Behind {
    let Ok(instance) = tree::instance_here(&real(&folders.run)) else {
        return Behind::Nobody;
    };
    if let Ok(Some(_)) = tree::house_is_alive(instance, &[std::process::id()]) {
        return Behind::House;
    }
    if jobs_alive(instance).is_empty() {
        Behind::Nobody
    } else {
        Behind::Jobs
    }
}

/// Returns the processes that jobs of a house in these folders have left, whoever could not end them.
pub fn left_by_jobs(folders: &Folders) -> Vec<tree::Member> {
    let Ok(instance) = tree::instance_here(&real(&folders.run)) else {
        return Vec::new();
    };
    let pids = jobs_alive(instance).into_iter();
    pids.filter_map(tree::describe).collect()
}

fn jobs_alive(instance: u32) -> Vec<u32> {
    let rung = tree::Rung::allowed().unwrap_or(tree::Rung::Cookie);
    tree::jobs_alive(instance, rung).unwrap_or_default()
}

/// As it is without links, where it is there.
fn real(folder: &Path) -> std::path::PathBuf {
    fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned())
}

/// How members of jobs would be found in a house that this process starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Containment {
    /// `cgroup`, `cookie` or `links`.
    pub rung: &'static str,
    /// Why no better one, from the best downwards.
    pub lacks: Vec<String>,
}

/// Looks how members of jobs would be found in a house in these folders. Changes nothing.
///
/// # Errors
/// `OSTLER_RUNG` says something that it may not, in words for people.
pub fn containment(folders: &Folders) -> Result<Containment, String> {
    let allowed = tree::Rung::allowed()?;
    let unwanted = |rung| (allowed > rung).then(|| "not wanted (OSTLER_RUNG)".to_owned());
    let group = unwanted(tree::Rung::Cgroup).map_or_else(
        || {
            let instance =
                tree::instance_here(&real(&folders.run)).map_err(|error| error.to_string())?;
            tree::cgroup::Cgroups::find(instance).map(drop)
        },
        Err,
    );
    let cookie = unwanted(tree::Rung::Cookie)
        .map_or_else(|| keeper::cookie::possible().map_err(str::to_owned), Err);
    let rungs = [
        (tree::Rung::Cgroup, group),
        (tree::Rung::Cookie, cookie),
        (tree::Rung::Links, Ok(())),
    ];
    let mut found = Containment {
        rung: tree::Rung::Links.word(),
        lacks: Vec::new(),
    };
    for (rung, possible) in rungs {
        match possible {
            Ok(()) => {
                found.rung = rung.word();
                break;
            }
            Err(lack) => found.lacks.push(format!("{}: {lack}", rung.word())),
        }
    }
    Ok(found)
}

/// Reads the folders from the words that follow `daemon supervise`.
pub fn folders_of(words: &[OsString]) -> Option<Folders> {
    let [run, state, config] = words else {
        return None;
    };
    Some(Folders {
        run: run.into(),
        state: state.into(),
        config: config.into(),
    })
}

/// Runs the supervisor: the hidden entry that the keeper executes, with its wire on descriptor 3.
pub fn supervise(folders: Folders, build: &str) -> ExitCode {
    daemon::run(folders, build)
}

/// Runs the stages of a pipeline: the hidden entry that the job of one executes. `words`: where it reports, then the
/// stages.
pub fn pipe(words: Vec<OsString>) -> ExitCode {
    pipeline::runner::run(words)
}

/// Says whether this program could take over a house, with copies of its ledger on descriptor 3 and of its jobs' records
/// on descriptor 4: the hidden entry that a supervisor executes before it makes room. `build`: which one of its version;
/// `config`: the settings that it would have.
pub fn check(build: &str, config: Option<&Path>) -> ExitCode {
    upgrade::check(build, config)
}
