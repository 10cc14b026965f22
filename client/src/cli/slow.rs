//! What is said while a supervisor does not answer. The command goes on waiting.

use ostler::{Endpoint, house};

use super::output::note;

/// Says once who does not answer, if the lock file of a house names anybody.
pub(crate) fn tell(endpoint: &Endpoint) {
    let pid = endpoint
        .candidates()
        .iter()
        .find_map(|folders| house::read(folders).map(|h| h.pid))
        .filter(|pid| *pid > 0);
    if let Some(pid) = pid {
        let stopped = house::stopped_one(pid);
        note(&words(stopped.unwrap_or(pid), stopped.is_some()));
    }
}

fn words(pid: u32, stopped: bool) -> String {
    let why = if stopped {
        "; stopped by a debugger?"
    } else {
        ""
    };
    format!("note: the supervisor (pid {pid}) does not answer yet{why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debugger_is_suspected_only_of_what_is_stopped() {
        assert_eq!(
            words(7, true),
            "note: the supervisor (pid 7) does not answer yet; stopped by a debugger?"
        );
        assert_eq!(
            words(7, false),
            "note: the supervisor (pid 7) does not answer yet"
        );
    }
}
