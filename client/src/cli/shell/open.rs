//! `ostler shell open`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::ValueHint;
use ostler_proto::job::{Outcome, Size};
use ostler_proto::methods::{Reason, ShellOpen};
use ostler_proto::shell::{OpenShell, OpenedShell};

use crate::cli::failure::Failure;
use crate::cli::output::{self, Out, note};
use crate::cli::request::{arguments, directory, environment, name, variable};
use crate::cli::scope::SessionArg;
use crate::cli::{caller, duration, size, words};
use crate::exit;

/// Opens a shell in the background and prints its id.
///
/// Without a program it is your own shell. It lasts until it is closed, or until nobody has used it for 10 minutes.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler shell open
  ostler shell open --name build --clean -- bash
  ostler shell open --idle 8h -- python3
  s=$(ostler shell open) && ostler shell exec \"$s\" 'cd /tmp && pwd'")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Name, unique among the session's live jobs.
    #[arg(long, value_name = "NAME", value_parser = name)]
    name: Option<String>,
    /// Working directory [default: the current one].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    cwd: Option<PathBuf>,
    /// Sets a variable beside those of the caller; K= makes it empty. May be repeated.
    #[arg(long, value_name = "K=V", value_parser = variable)]
    env: Vec<(String, String)>,
    /// Leaves a variable of the caller out. May be repeated.
    #[arg(long, value_name = "K")]
    unset: Vec<String>,
    /// Leaves your start files out.
    #[arg(long)]
    clean: bool,
    /// Its window [default: 120x40].
    #[arg(long, value_name = "COLSxROWS", value_parser = size::size)]
    size: Option<Size>,
    /// Ends it when nobody has used it for this time [default: 10m].
    #[arg(long, value_name = "TIME", value_parser = duration::time_limit, allow_hyphen_values = true)]
    idle: Option<u64>,
    /// Never ends it for that.
    #[arg(long, conflicts_with = "idle")]
    keep: bool,
    /// Time between the polite and the forced end of any stop [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::grace, allow_hyphen_values = true)]
    grace: Option<u64>,
    /// Idempotency key: the same key and program give the same shell again.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Prints the whole answer as JSON.
    #[arg(long)]
    json: bool,
    /// Prints the id only.
    #[arg(short, long)]
    quiet: bool,
    /// Program and arguments.
    #[arg(trailing_var_arg = true, value_hint = ValueHint::AnyPath, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let request = args.request()?;
    let client = scope.opening_client(args.quiet).await?;
    let opened = client.ask::<ShellOpen>(request).await?;
    let print = || {
        let mut out = Out::new();
        if args.json {
            out.json(&opened)?;
        } else {
            out.line(&opened.row.id)?;
        }
        out.flush()
    };
    // Without its id nobody would find again what runs now.
    print().map_err(|f| {
        let id = scope.pasted(&opened.row.id);
        f.cause(format!("{id} was opened"))
            .hint(format!("ostler shell close {id}"))
    })?;
    told(&opened, args.quiet || args.json)
}

fn told(opened: &OpenedShell, quiet: bool) -> Result<i32, Failure> {
    let row = &opened.row;
    if row.outcome == Some(Outcome::SpawnFailed) {
        return Err(words::never_ran(row));
    }
    if opened.reason == Some(Reason::Exit) {
        let mut failure = Failure::ours(format!("{} {}", row.id, words::ended(row)));
        for line in opened
            .text
            .lines()
            .rev()
            .take(5)
            .collect::<Vec<_>>()
            .iter()
            .rev()
        {
            failure = failure.cause(*line);
        }
        return Err(failure);
    }
    let shell = ["bash", "zsh", "fish", "sh", "dash", "ksh", "mksh"];
    let name = row.executable.rsplit('/').next().unwrap_or_default();
    if !opened.exec && !quiet && shell.contains(&name) {
        note(&words::clean(&format!(
            "note: with arguments of its own {} takes send, not exec; --clean leaves your start files out",
            words::command(row)
        )));
    }
    if !opened.ready && !quiet && output::words_are_read() {
        note(&format!(
            "{} has not shown its prompt yet; a line waits for it",
            row.id
        ));
    }
    Ok(exit::DONE)
}

impl Args {
    fn request(&self) -> Result<OpenShell, Failure> {
        Ok(OpenShell {
            key: Some(self.key.clone().unwrap_or_else(ostler::fresh_key)),
            args: arguments(&self.program)?,
            clean: self.clean,
            cwd: Some(directory(self.cwd.as_deref())?),
            env: environment(&self.session, &self.env, &self.unset)?,
            env_replace: true,
            umask: Some(caller::umask()),
            limits: caller::limits(),
            rows: self.size.map(|s| s.rows),
            cols: self.size.map(|s| s.cols),
            idle_ms: if self.keep { Some(0) } else { self.idle },
            grace_ms: self.grace,
            name: self.name.clone(),
            ..OpenShell::default()
        })
    }
}
