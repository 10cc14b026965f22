//! `ostler daemon upgrade`, and what a command does that finds a supervisor of another build.

use std::path::PathBuf;

use ostler::upgrade::{self, Upgraded};
use ostler::{Client, Error, Mode};
use ostler_proto::limits;
use ostler_proto::methods::{Build, HelloAnswer, UpgradeBegun, UpgradeSupervisor};
use ostler_proto::refusal::RefusalKind;
use serde_json::json;

use super::failure::Failure;
use super::output::{self, note};
use super::{nobody, scope, words};
use crate::exit;

/// Puts this ostler in the place of the supervisor that runs; its jobs go on.
///
/// The new one is asked first whether it understands everything, and waits before the old one leaves: what does not fit is
/// refused and nothing has stopped. No output is lost, clients come back by themselves. The keeper stays what it is.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler daemon upgrade
  ostler daemon upgrade --json | jq .gapMs")]
pub(crate) struct Args {
    /// Another program than this one.
    #[arg(long, value_name = "PATH")]
    image: Option<PathBuf>,
    /// Also when that build runs already.
    #[arg(long)]
    force: bool,
    /// Prints nothing but errors.
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let client = scope::client(Mode::Use)?;
    let hello = match client.hello().await {
        Ok(hello) => hello,
        Err(e) if nobody(&e) => {
            if args.json {
                output::json(&json!({ "running": false, "changed": false }))?;
            } else if !args.quiet {
                note("no supervisor runs; the next start is this ostler");
            }
            return Ok(exit::DONE);
        }
        Err(e) => return Err(e.into()),
    };
    let params = UpgradeSupervisor {
        image: image(args.image)?,
        force: args.force,
    };
    let upgraded = upgrade::upgrade(&client, params)
        .await
        .map_err(|e| failure(e, &hello))?;
    if args.json {
        output::json(&as_json(&upgraded))?;
    }
    match &upgraded {
        Upgraded::TakenBack { begun, why } => Err(taken_back(begun, why)),
        _ => {
            if !args.json && !args.quiet {
                note(&words::clean(&line(&upgraded)));
            }
            Ok(exit::DONE)
        }
    }
}

/// The path of the image, absolute.
fn image(given: Option<PathBuf>) -> Result<String, Failure> {
    let path = match given {
        Some(path) => std::path::absolute(path),
        None => upgrade::own_image(),
    };
    let path = path.map_err(|e| Failure::ours(format!("the image has no path: {e}")))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| Failure::usage(format!("the path of the image is not UTF-8: {path:?}")))
}

fn failure(error: Error, hello: &HelloAnswer) -> Failure {
    match error {
        Error::Refused(refusal) if refusal.kind == RefusalKind::NoMethod => Failure::ours(format!(
            "not upgraded: supervisor {} cannot make room for another",
            hello.version
        ))
        .hint("ostler daemon stop ends its jobs; the next start is this ostler"),
        Error::Broken(_) => Failure::ours("the supervisor went away before it answered")
            .hint("ostler daemon status tells what runs now, ostler daemon logs why"),
        other => other.into(),
    }
}

fn taken_back(begun: &UpgradeBegun, why: &str) -> Failure {
    Failure::ours(format!("not upgraded: {} did not come up: {why}", begun.to)).hint(format!(
        "{} runs again, the jobs go on; more: ostler daemon logs",
        begun.from
    ))
}

/// What was done, in one line.
fn line(upgraded: &Upgraded) -> String {
    match upgraded {
        Upgraded::Same(begun) => {
            format!("supervisor {} runs already; nothing was done", begun.from)
        }
        Upgraded::TakenBack { begun, .. } => format!("supervisor {} runs again", begun.from),
        Upgraded::Done { begun, gap } => {
            let UpgradeBegun {
                from,
                to,
                keeper,
                jobs,
                ..
            } = begun;
            let how = if is_older(&to.version, &from.version) {
                "downgraded"
            } else {
                "upgraded"
            };
            let jobs = match jobs {
                0 => "no job ran".into(),
                1 => "1 job went on".into(),
                n => format!("{n} jobs went on"),
            };
            let keeper = if keeper == to {
                String::new()
            } else {
                format!("; the keeper stays {keeper}")
            };
            // Rounded up: it must not say less than it was.
            let ms = gap.as_millis() + 1;
            format!(
                "supervisor {how} from {from} to {to}: {jobs}, for {ms} ms nobody was answered{keeper}"
            )
        }
    }
}

fn as_json(upgraded: &Upgraded) -> serde_json::Value {
    let (begun, changed) = match upgraded {
        Upgraded::Same(begun) | Upgraded::TakenBack { begun, .. } => (begun, false),
        Upgraded::Done { begun, .. } => (begun, true),
    };
    let mut value = json!({
        "running": true,
        "changed": changed,
        "from": begun.from,
        "to": begun.to,
        "keeper": begun.keeper,
        "jobs": begun.jobs,
    });
    match upgraded {
        Upgraded::Done { gap, .. } => value["gapMs"] = json!(gap.as_secs_f64() * 1000.0),
        Upgraded::TakenBack { why, .. } => value["takenBack"] = json!(why),
        Upgraded::Same(_) => {}
    }
    value
}

/// What the supervisor is that answered.
fn theirs(hello: &HelloAnswer) -> Build {
    Build {
        version: hello.version.clone(),
        build: hello.build.clone(),
    }
}

/// Tells whether a version is older than another one.
fn is_older(one: &str, other: &str) -> bool {
    let numbers = |v: &str| -> Vec<u64> {
        v.split(['.', '-', '+'])
            .map_while(|part| part.parse().ok())
            .collect()
    };
    numbers(one) < numbers(other)
}

/// What is said of a supervisor of another build. Nothing of our own, or of one that may be ours as well.
fn remark(theirs: &Build, ours: &Build) -> Option<String> {
    let replaces = "ostler daemon upgrade replaces it, its jobs go on";
    if theirs.version == ours.version {
        let other = !theirs.build.is_empty() && theirs.build != ours.build;
        return other.then(|| {
            format!(
                "note: supervisor {theirs} is another build than this ostler {ours}; {replaces}"
            )
        });
    }
    let (theirs, ours) = (&theirs.version, &ours.version);
    Some(if is_older(theirs, ours) {
        format!("note: supervisor {theirs} is older than this ostler {ours}; {replaces}")
    } else {
        format!("note: supervisor {theirs} is newer than this ostler {ours}")
    })
}

/// Says so if the supervisor is of another build.
pub(crate) fn tell(hello: &HelloAnswer) {
    if let Some(remark) = remark(&theirs(hello), &upgrade::this_build()) {
        note(&words::clean(&remark));
    }
}

/// Says so if the supervisor is of another build, or takes its place where it is older and the settings allow it.
pub(crate) async fn meet(client: &Client) -> Result<(), Failure> {
    let hello = client.hello().await?;
    if !is_wanted(&hello) {
        tell(&hello);
        return Ok(());
    }
    take_over(client, &hello).await;
    Ok(())
}

/// The same where nothing would be said: it costs a command that starts something a way to the supervisor and back.
pub(crate) async fn take_over_if_wanted(client: &Client) -> Result<(), Failure> {
    if limits::auto_upgrade() == 0 {
        return Ok(());
    }
    let hello = client.hello().await?;
    if is_wanted(&hello) {
        take_over(client, &hello).await;
    }
    Ok(())
}

fn is_wanted(hello: &HelloAnswer) -> bool {
    limits::auto_upgrade() == 1 && is_older(&hello.version, ostler_proto::VERSION)
}

/// Whatever comes of it, the command that was asked for goes on.
async fn take_over(client: &Client, hello: &HelloAnswer) {
    let params = image(None).map(|image| UpgradeSupervisor {
        image,
        force: false,
    });
    let done = match params {
        Ok(params) => upgrade::upgrade(client, params)
            .await
            .map_err(|e| failure(e, hello)),
        Err(failure) => Err(failure),
    };
    let said = match done {
        Ok(Upgraded::TakenBack { begun, why }) => taken_back(&begun, &why).what,
        Ok(upgraded) => line(&upgraded),
        Err(failure) => failure.what,
    };
    note(&words::clean(&format!("note: {said}")));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn build(version: &str, build: &str) -> Build {
        Build {
            version: version.into(),
            build: build.into(),
        }
    }

    #[test]
    fn another_build_is_told_once_and_our_own_is_not() {
        let ours = build("0.2.0", "bb");
        assert_eq!(remark(&ours, &ours), None);
        assert_eq!(remark(&build("0.2.0", ""), &ours), None);
        assert_eq!(
            remark(&build("0.2.0", "aa"), &ours).as_deref(),
            Some(
                "note: supervisor 0.2.0 (aa) is another build than this ostler 0.2.0 (bb); ostler daemon upgrade replaces it, its jobs go on"
            )
        );
        assert_eq!(
            remark(&build("0.1.9", ""), &ours).as_deref(),
            Some(
                "note: supervisor 0.1.9 is older than this ostler 0.2.0; ostler daemon upgrade replaces it, its jobs go on"
            )
        );
        assert_eq!(
            remark(&build("0.10.0", ""), &ours).as_deref(),
            Some("note: supervisor 0.10.0 is newer than this ostler 0.2.0")
        );
    }

    #[test]
    fn what_was_done_is_one_true_line() {
        let begun = UpgradeBegun {
            changed: true,
            from: build("0.1.0", "aa"),
            to: build("0.2.0", "bb"),
            keeper: build("0.1.0", "aa"),
            generation: 3,
            jobs: 100,
        };
        let done = |begun: UpgradeBegun| {
            line(&Upgraded::Done {
                begun,
                gap: Duration::from_micros(14_200),
            })
        };
        assert_eq!(
            done(begun.clone()),
            "supervisor upgraded from 0.1.0 (aa) to 0.2.0 (bb): 100 jobs went on, for 15 ms nobody was answered; the keeper stays 0.1.0 (aa)"
        );
        let back = UpgradeBegun {
            from: begun.to.clone(),
            to: begun.from.clone(),
            jobs: 1,
            ..begun
        };
        assert_eq!(
            done(back),
            "supervisor downgraded from 0.2.0 (bb) to 0.1.0 (aa): 1 job went on, for 15 ms nobody was answered"
        );
    }
}
