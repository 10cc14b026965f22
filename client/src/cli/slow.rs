//! What is said while a supervisor or its keeper does not answer. The command goes on waiting.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler::{Endpoint, house};
use tokio::time::{Instant, sleep};

use super::output::note;

/// A command that takes longer looks whether somebody is stopped who would have to do something; later ever more
/// seldom.
const FIRST: Duration = Duration::from_secs(2);
/// See [`FIRST`].
const MOST: Duration = Duration::from_secs(60);

/// It is said once.
static TOLD: AtomicBool = AtomicBool::new(false);

/// Who is stopped, and cannot do what is waited for.
struct Stopped {
    pid: u32,
    is_keeper: bool,
}

impl Stopped {
    /// Looks at the house of a user, if there is one.
    fn look(keeper: u32) -> Option<Self> {
        let pid = house::stopped_one(keeper)?;
        Some(Self {
            pid,
            is_keeper: pid == keeper,
        })
    }

    fn who(&self) -> String {
        let who = if self.is_keeper {
            "keeper"
        } else {
            "supervisor"
        };
        format!("the {who} (pid {})", self.pid)
    }

    /// What a job waits for that cannot begin or end.
    fn waited_for(&self) -> String {
        let (who, pid) = (self.who(), self.pid);
        format!("{who} is stopped; kill -CONT {pid} lets it go on")
    }

    /// What a client says that has no answer at all.
    fn unanswered(&self) -> String {
        format!(
            "note: {} does not answer yet; stopped by a debugger?",
            self.who()
        )
    }
}

fn keeper(endpoint: &Endpoint) -> Option<u32> {
    let mut pids = endpoint
        .candidates()
        .iter()
        .filter_map(|folders| house::read(folders).map(|h| h.pid));
    pids.find(|pid| *pid > 0)
}

/// Says once who does not answer, if the lock file of a house names anybody.
pub(crate) fn tell(endpoint: &Endpoint) {
    let Some(pid) = keeper(endpoint) else { return };
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    note(&match Stopped::look(pid) {
        Some(stopped) => stopped.unanswered(),
        None => format!("note: the supervisor (pid {pid}) does not answer yet"),
    });
}

/// Says of a job that is not known to run yet that nobody can start it now.
pub(crate) fn tell_starting(id: &str) {
    let endpoint = Endpoint::of_user().ok();
    if let Some(stopped) = endpoint.and_then(|e| Stopped::look(keeper(&e)?)) {
        note(&format!("note: {id} is starting: {}", stopped.waited_for()));
    }
}

/// Awaits a command. Without its keeper no job begins or ends, and a supervisor that waits for it cannot say so.
pub(crate) async fn beside<T>(command: impl Future<Output = T>) -> T {
    tokio::pin!(command);
    tokio::select! {
        biased;
        done = &mut command => return done,
        () = tell_stopped() => {}
    }
    command.await
}

/// Returns when it has been said.
async fn tell_stopped() {
    let (began, mut pause) = (Instant::now(), FIRST);
    while !TOLD.load(Ordering::Relaxed) {
        sleep(pause).await;
        pause = (pause * 2).min(MOST);
        let endpoint = Endpoint::of_user().ok();
        let stopped = endpoint.and_then(|e| Stopped::look(keeper(&e)?));
        if let Some(stopped) = stopped
            && !TOLD.swap(true, Ordering::Relaxed)
        {
            let seconds = began.elapsed().as_secs();
            note(&match stopped.is_keeper {
                true => format!("note: waiting for {seconds} s: {}", stopped.waited_for()),
                false => stopped.unanswered(),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_stopped_is_named_with_what_helps() {
        let mut stopped = Stopped {
            pid: 7,
            is_keeper: false,
        };
        assert_eq!(
            stopped.unanswered(),
            "note: the supervisor (pid 7) does not answer yet; stopped by a debugger?"
        );
        stopped.is_keeper = true;
        assert_eq!(
            stopped.waited_for(),
            "the keeper (pid 7) is stopped; kill -CONT 7 lets it go on"
        );
    }
}
