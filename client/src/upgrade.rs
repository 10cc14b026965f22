//! Another image in the place of the supervisor, while its jobs run on (`supervisor/upgrade`).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler_proto::methods::{
    Build, Info, Nothing, SupervisorInfo, SupervisorUpgrade, UpgradeBegun, UpgradeSupervisor,
};
use tokio::time::sleep;

use crate::{Client, Error};

/// How long the next supervisor may take to answer: a new one that never serves is given up for the one before.
const NEXT_WITHIN: Duration = Duration::from_secs(60);
/// How soon one that is about to leave is asked again.
const AGAIN: Duration = Duration::from_millis(1);

/// What became of an upgrade.
#[derive(Debug, Clone)]
pub enum Upgraded {
    /// That build runs already, and nothing was done.
    Same(UpgradeBegun),
    /// It runs.
    Done {
        /// What was found and done.
        begun: UpgradeBegun,
        /// The longest time in which nobody was answered.
        gap: Duration,
    },
    /// It did not come up, and the one before goes on, in a process of its own.
    TakenBack {
        /// What was found and done.
        begun: UpgradeBegun,
        /// Why.
        why: String,
    },
}

/// Which build this library is.
pub fn this_build() -> Build {
    Build {
        version: ostler_proto::VERSION.into(),
        build: crate::BUILD.into(),
    }
}

/// A path that leads to the image of this process, also where its file was replaced or deleted.
///
/// # Errors
/// There is no `/proc`.
pub fn own_image() -> std::io::Result<PathBuf> {
    let running = std::fs::metadata("/proc/self/exe")?;
    let same = |path: &Path| {
        let there = std::fs::metadata(path);
        there.is_ok_and(|it| (it.dev(), it.ino()) == (running.dev(), running.ino()))
    };
    let named = std::env::current_exe().ok().filter(|path| same(path));
    Ok(named.unwrap_or_else(|| format!("/proc/{}/exe", std::process::id()).into()))
}

/// Upgrades, and waits until the next supervisor answers. The client must show the owner key.
///
/// # Errors
/// The image was refused, and nothing has changed; or nobody answers any more.
pub async fn upgrade(client: &Client, params: UpgradeSupervisor) -> Result<Upgraded, Error> {
    let begun = client.call::<SupervisorUpgrade>(params).await?;
    if !begun.changed {
        return Ok(Upgraded::Same(begun));
    }
    let (began, mut answered) = (Instant::now(), Instant::now());
    let next = loop {
        let info = client.ask::<SupervisorInfo>(Nothing {}).await?;
        if info.hello.generation > begun.generation {
            break info;
        }
        if began.elapsed() > NEXT_WITHIN {
            return Err(Error::Protocol(format!(
                "{} said that it would leave and is still there",
                begun.from
            )));
        }
        answered = Instant::now();
        sleep(AGAIN).await;
    };
    let gap = answered.elapsed();
    Ok(match why_not(&next, &begun) {
        None => Upgraded::Done { begun, gap },
        Some(why) => Upgraded::TakenBack { begun, why },
    })
}

/// Why another one answers than the one that was to.
fn why_not(next: &Info, begun: &UpgradeBegun) -> Option<String> {
    let now = Build {
        version: next.hello.version.clone(),
        build: next.hello.build.clone(),
    };
    let words = || format!("{now} answers");
    let back = next.taken_back.clone();
    // One that was forced may be the same build: then only this tells.
    back.or_else(|| (now != begun.to).then(words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_image_is_a_path_that_others_can_open() {
        let path = own_image().expect("proc is mounted");
        let there = std::fs::metadata(&path).expect("it is there");
        let running = std::fs::metadata("/proc/self/exe").expect("it runs");
        assert_eq!(there.ino(), running.ino());
        assert!(path.is_absolute() && !path.starts_with("/proc/self"));
    }
}
