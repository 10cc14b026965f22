//! The flags that `run` and `start` share, and the request that they make.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use ostler_proto::address::SESSION_VARIABLE;
use ostler_proto::id;
use ostler_proto::methods::{OutputPolicy, Start, Stdin};

use super::failure::Failure;
use super::scope::SessionArg;
use super::{caller, duration, number};

/// What is started, and how.
#[derive(Args, Debug)]
pub(crate) struct JobArgs {
    #[command(flatten)]
    pub(crate) session: SessionArg,

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
    #[arg(long, value_name = "K", value_parser = variable_name)]
    unset: Vec<String>,

    /// Ends the job after this time (5s, 500ms, 1m30s; a plain number is seconds).
    #[arg(long, value_name = "TIME", value_parser = duration::time_limit, allow_hyphen_values = true)]
    timeout: Option<u64>,

    /// Ends the job after this time without output or input.
    #[arg(long, value_name = "TIME", value_parser = duration::time_limit, allow_hyphen_values = true)]
    idle: Option<u64>,

    /// Time between the polite and the forced end of any stop [default: 3s].
    #[arg(long, value_name = "TIME", value_parser = duration::grace, allow_hyphen_values = true)]
    grace: Option<u64>,

    /// Gives the job an input; without it the job reads an end at once.
    #[arg(long)]
    pub(crate) stdin: bool,

    /// Keeps only the newest 256 KiB of output, and never writes a file.
    #[arg(long)]
    no_spill: bool,

    /// Exit codes that count as success in `show` and `ls --json`, separated by commas; the code is passed on all
    /// the same.
    #[arg(long, value_name = "CODES", value_delimiter = ',', value_parser = number::exit_code, allow_hyphen_values = true)]
    ok: Vec<i32>,

    /// Idempotency key: the same key and command give the same job again.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// A line for /bin/sh instead of a program.
    #[arg(short = 'c', value_name = "LINE", allow_hyphen_values = true)]
    line: Option<OsString>,

    /// Program and arguments.
    #[arg(
        trailing_var_arg = true,
        value_hint = ValueHint::AnyPath,
        value_name = "CMD",
        required_unless_present = "line",
        conflicts_with = "line"
    )]
    command: Vec<OsString>,
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    id::check_job_name(text).map_err(|e| e.to_string())?;
    Ok(text.to_owned())
}

pub(crate) fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some(("", _)) => Err("the name is empty".into()),
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => Err("must be K=V; --unset K leaves a variable out".into()),
    }
}

fn variable_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name is empty".into()),
        name if name.contains('=') => Err("must be a name alone; --env K= makes it empty".into()),
        name => Ok(name.to_owned()),
    }
}

impl JobArgs {
    /// Returns the request, with a key in any case: a start that is asked twice must not run twice.
    pub(crate) fn request(&self) -> Result<Start, Failure> {
        Ok(Start {
            key: Some(self.key.clone().unwrap_or_else(ostler::fresh_key)),
            args: self.arguments()?,
            line: match &self.line {
                Some(line) => Some(utf8(line, "the line")?),
                None => None,
            },
            cwd: Some(self.directory()?),
            env: self.environment()?,
            env_replace: true,
            umask: Some(caller::umask()),
            limits: caller::limits(),
            stdin: if self.stdin {
                Stdin::Open
            } else {
                Stdin::Closed
            },
            timeout_ms: self.timeout,
            idle_ms: self.idle,
            grace_ms: self.grace,
            output: OutputPolicy {
                spill: self.no_spill.then_some(false),
                ..OutputPolicy::default()
            },
            ok: self.ok.clone(),
            name: self.name.clone(),
            ..Start::default()
        })
    }

    fn arguments(&self) -> Result<Vec<String>, Failure> {
        arguments(&self.command)
    }

    fn directory(&self) -> Result<String, Failure> {
        directory(self.cwd.as_deref())
    }

    fn environment(&self) -> Result<Environment, Failure> {
        environment(&self.session, &self.env, &self.unset)
    }
}

/// Returns a program and its arguments as text.
pub(crate) fn arguments(command: &[OsString]) -> Result<Vec<String>, Failure> {
    let numbered = command.iter().enumerate();
    numbered
        .map(|(n, arg)| match n {
            0 => utf8(arg, "the program"),
            n => utf8(arg, &format!("argument {n}")),
        })
        .collect()
}

/// Variables of a request.
pub(crate) type Environment = std::collections::BTreeMap<String, Option<String>>;

/// Returns the caller's folder, or another one, as a whole path.
pub(crate) fn directory(asked: Option<&Path>) -> Result<String, Failure> {
    let asked = asked.unwrap_or(Path::new(""));
    let here = match std::env::current_dir() {
        Ok(here) => here,
        // An absolute folder needs no current one.
        Err(_) if asked.is_absolute() => PathBuf::new(),
        Err(e) => {
            return Err(
                Failure::ours(format!("the current folder cannot be used: {e}"))
                    .hint("cd to a folder that exists, or --cwd"),
            );
        }
    };
    let dir = here.join(asked);
    // A trailing slash, left by an empty path, is no part of the name.
    let dir: PathBuf = dir.components().collect();
    utf8(dir.as_os_str(), "the working directory")
}

/// Returns the caller's variables, without some, with others.
pub(crate) fn environment(
    session: &SessionArg,
    set: &[(String, String)],
    unset: &[String],
) -> Result<Environment, Failure> {
    // What is left out need not be text.
    let mut env = caller::environment_without(unset)?;
    // What the job starts itself stands beside it, not in the session of the folder.
    if let Some(session) = session.named() {
        env.insert(SESSION_VARIABLE.into(), Some(session.to_owned()));
    }
    for (name, value) in set {
        env.insert(name.clone(), Some(value.clone()));
    }
    Ok(env)
}

fn utf8(text: &std::ffi::OsStr, what: &str) -> Result<String, Failure> {
    match text.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Failure::usage(format!("{what} is not UTF-8: {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::ffi::OsStringExt;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        job: JobArgs,
    }

    fn parse(args: &[&str]) -> Result<JobArgs, clap::Error> {
        let args = std::iter::once("run").chain(args.iter().copied());
        Line::try_parse_from(args).map(|line| line.job)
    }

    #[test]
    fn everything_after_the_program_belongs_to_it() {
        let job = parse(&["--name", "web", "ls", "-l", "--name", "x"]).unwrap();
        assert_eq!(job.arguments().unwrap(), ["ls", "-l", "--name", "x"]);
        let job = parse(&["--", "-x", "--help"]).unwrap();
        assert_eq!(job.arguments().unwrap(), ["-x", "--help"]);
    }

    #[test]
    fn a_line_and_a_program_exclude_each_other_and_one_is_needed() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["-c", "true", "ls"]).is_err());
        let start = parse(&["-c", "-x | y"]).unwrap().request().unwrap();
        assert_eq!(start.line.as_deref(), Some("-x | y"));
        assert!(start.args.is_empty());
    }

    #[test]
    fn a_wrong_duration_is_told_with_its_flag() {
        for bad in ["0", "-5", "99999d", "x"] {
            let e = parse(&["--timeout", bad, "ls"]).err().unwrap().to_string();
            assert!(e.contains("--timeout"), "{e}");
        }
    }

    #[test]
    fn variables_are_set_emptied_and_left_out() {
        let job = parse(&["--env", "A=b=c", "--env", "E=", "--unset", "PATH", "ls"]).unwrap();
        let env = job.request().unwrap().env;
        assert_eq!(env["A"].as_deref(), Some("b=c"));
        assert_eq!(env["E"].as_deref(), Some(""));
        assert!(!env.contains_key("PATH"));
        assert!(parse(&["--env", "A", "ls"]).is_err());
        assert!(parse(&["--env", "=x", "ls"]).is_err());
        for bad in ["", "A=B", "A="] {
            assert!(parse(&["--unset", bad, "ls"]).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_argument_that_is_no_text_is_named_by_its_place() {
        let odd = OsString::from_vec(b"caf\xe9".to_vec());
        let args = ["run".into(), "ls".into(), "x".into(), odd];
        let job = Line::try_parse_from(args).unwrap().job;
        let failure = job.request().unwrap_err();
        assert_eq!(failure.what, "argument 2 is not UTF-8: \"caf\\xE9\"");
        assert_eq!(failure.code, 2);
    }

    #[test]
    fn a_relative_directory_is_made_absolute() {
        let here = std::env::current_dir().unwrap();
        let job = parse(&["--cwd", "a", "ls"]).unwrap();
        assert_eq!(job.directory().unwrap(), here.join("a").to_str().unwrap());
        let job = parse(&["ls"]).unwrap();
        assert_eq!(job.directory().unwrap(), here.to_str().unwrap());
    }

    #[test]
    fn two_starts_have_two_keys_unless_one_was_given() {
        let key = |args: &[&str]| parse(args).unwrap().request().unwrap().key;
        assert_ne!(key(&["ls"]), key(&["ls"]));
        assert_eq!(key(&["--key", "k", "ls"]).as_deref(), Some("k"));
    }
}
