//! Ctrl-C, counted, and other signals that ask for the end. Without this their default would end the command before it
//! could say what still runs.

use futures_util::StreamExt;
use signal_hook_tokio::Signals;

use super::failure::Failure;

/// The signals that ask this command for its end.
pub(crate) struct Interrupts {
    /// None where all are ignored or left as they are.
    signals: Option<Signals>,
}

impl Interrupts {
    /// Counts Ctrl-C from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        Self::of(&[libc::SIGINT])
    }

    /// Counts none; they do what they always do.
    pub(crate) fn none() -> Self {
        Self { signals: None }
    }

    /// Counts these from now on, but for those that the caller ignores, as a shell does with Ctrl-C for what it runs in the
    /// background, and `nohup` with the end of the terminal.
    pub(crate) fn of(signals: &[i32]) -> Result<Self, Failure> {
        let heard: Vec<i32> = signals.iter().copied().filter(|s| !ignored(*s)).collect();
        if heard.is_empty() {
            return Ok(Self::none());
        }
        let signals = Signals::new(heard)
            .map_err(|e| Failure::ours(format!("no signal can be taken: {e}")))?;
        Ok(Self {
            signals: Some(signals),
        })
    }

    /// Returns when the next one comes, with its number.
    pub(crate) async fn next(&mut self) -> i32 {
        if let Some(signals) = &mut self.signals
            && let Some(signal) = signals.next().await
        {
            return signal;
        }
        std::future::pending().await
    }
}

fn ignored(signal: i32) -> bool {
    // SAFETY: asks for the present disposition of a valid signal into a plain struct that is alive.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
