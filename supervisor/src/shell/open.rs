//! From a request to the plan of a shell.

use std::{
    io,
    path::{Path, PathBuf},
};

use ostler_proto::{
    job::{Kind, Size},
    limits,
    methods::{Start, Stdin},
    refusal::{Refusal, RefusalKind},
    shell::OpenShell,
};

use super::scripts;
use crate::{
    job::Plan,
    ledger::checksum,
    life::plan::{self, within},
    secret,
    terminal::dialect::{Dialect, ShellSpec, quoted},
};

/// Checks a request and lays the start files of its shell down.
///
/// # Errors
/// Names the field that is wrong; says what the disk answered.
pub(crate) fn plan(open: OpenShell, home: &Path, artifacts: &Path) -> Result<Plan, Refusal> {
    within("idleMs", open.idle_ms, 0, limits::TIMEOUT_MAX)?;
    let key_of = checksum(&serde_json::to_vec(&open).expect("a request that came as JSON is JSON"));
    let asked = program(&open);
    let mut spec = spec(&asked, artifacts);
    let clean = open.clean || asked[1..].iter().any(|a| is_clean(spec.dialect, a));
    if clean && spec.dialect == Dialect::Fish {
        spec.argv.push("--no-config".into());
    }
    let mut start = start(&open, asked.clone());
    let prepared = spec.dir.as_deref().map(|dir| scripts::Start {
        nonce: &spec.nonce,
        dir,
        clean,
        login: asked.iter().any(|a| is_login(a)),
        zdotdir: variable(&open, "ZDOTDIR"),
        env: variable(&open, "ENV"),
    });
    if let Some(dir) = &spec.dir {
        let dir = dir.display().to_string();
        match spec.dialect {
            Dialect::Zsh => start.env.insert("ZDOTDIR".into(), Some(dir)),
            Dialect::Posix => start.env.insert("ENV".into(), Some(format!("{dir}/env"))),
            Dialect::Bash | Dialect::Fish | Dialect::Plain => None,
        };
    }
    let mut plan = plan::plan(start, false, home)?;
    if let Some(prepared) = prepared {
        // Behind every check: a refusal leaves nothing behind.
        prepared
            .lay_down(spec.dialect)
            .map_err(|e| no_folder(prepared.dir, &e))?;
    }
    plan.key_of = key_of;
    plan.kind = Kind::Shell;
    plan.shell = Some(spec);
    Ok(plan)
}

fn no_folder(dir: &Path, error: &io::Error) -> Refusal {
    let words = format!(
        "the start files of a shell cannot be written: {}: {error}",
        dir.display()
    );
    Refusal::new(RefusalKind::Internal, words)
}

fn variable<'a>(open: &'a OpenShell, name: &str) -> Option<&'a str> {
    open.env.get(name)?.as_deref().filter(|v| !v.is_empty())
}

/// The program that was asked for, else the user's own shell.
fn program(open: &OpenShell) -> Vec<String> {
    if !open.args.is_empty() {
        return open.args.clone();
    }
    let own = || {
        let login = plan::login_environment();
        login
            .into_iter()
            .find(|(name, _)| name == "SHELL")
            .map(|(_, shell)| shell)
    };
    let shell = variable(open, "SHELL").map(str::to_owned).or_else(own);
    vec![
        shell
            .filter(|s| !s.is_empty())
            .unwrap_or_else(|| "/bin/sh".into()),
    ]
}

fn is_login(argument: &str) -> bool {
    matches!(argument, "-l" | "--login")
}

/// Arguments that ask for a shell without the user's files.
fn is_clean(dialect: Dialect, argument: &str) -> bool {
    match dialect {
        Dialect::Bash => matches!(argument, "--norc" | "--noprofile"),
        Dialect::Zsh => matches!(argument, "-f" | "--no-rcs"),
        Dialect::Fish => matches!(argument, "-N" | "--no-config"),
        Dialect::Posix | Dialect::Plain => false,
    }
}

/// Arguments of its own may keep a shell from reading what is laid down for it; then its prompt is not marked.
fn spec(asked: &[String], artifacts: &Path) -> ShellSpec {
    let nonce = secret::token()[..32].to_owned();
    let dialect = Dialect::of(&asked[0]);
    let is_private = |a: &str| dialect == Dialect::Fish && matches!(a, "-P" | "--private");
    let is_known = |a: &String| is_login(a) || a == "-i" || is_clean(dialect, a) || is_private(a);
    let known = asked[1..].iter().all(is_known);
    let dialect = if known { dialect } else { Dialect::Plain };
    let dir = (dialect != Dialect::Plain).then(|| folder(artifacts));
    let mut argv = vec![asked[0].clone()];
    let inside = |name: &str| {
        dir.as_deref()
            .unwrap_or(artifacts)
            .join(name)
            .display()
            .to_string()
    };
    match dialect {
        Dialect::Bash => argv.extend(["--rcfile".into(), inside("rc"), "-i".into()]),
        Dialect::Zsh | Dialect::Posix => argv.push("-i".into()),
        Dialect::Fish => {
            argv.push("-C".into());
            argv.push(format!("source {}", quoted(&inside("rc"))));
            argv.extend(asked[1..].iter().filter(|a| is_private(a)).cloned());
        }
        Dialect::Plain => argv.extend_from_slice(&asked[1..]),
    }
    ShellSpec {
        dialect,
        nonce,
        dir,
        argv,
    }
}

/// Beside the artifacts of sessions; gone with the shell.
fn folder(artifacts: &Path) -> PathBuf {
    artifacts.join(format!("shell-{}", secret::ulid()))
}

fn start(open: &OpenShell, args: Vec<String>) -> Start {
    let size = Size {
        rows: open.rows.unwrap_or(limits::SHELL_WINDOW.0),
        cols: open.cols.unwrap_or(limits::SHELL_WINDOW.1),
    };
    Start {
        session: open.session.clone(),
        key: open.key.clone(),
        args,
        cwd: open.cwd.clone(),
        env: open.env.clone(),
        env_replace: open.env_replace,
        umask: open.umask,
        limits: open.limits.clone(),
        stdin: Stdin::Open,
        pty: Some(size),
        idle_ms: Some(open.idle_ms.unwrap_or(limits::shell_idle())).filter(|ms| *ms > 0),
        grace_ms: open.grace_ms,
        name: open.name.clone(),
        mode: open.mode.clone(),
        ..Start::default()
    }
}
