//! Ctrl-C, counted. Without this its default would end the command before it could say what still runs.

use futures_util::StreamExt;
use signal_hook_tokio::Signals;

use super::failure::Failure;

/// The Ctrl-Cs of this command.
pub(crate) struct Interrupts {
    /// None where the caller ignores them, as a shell does for what it runs in the background.
    signals: Option<Signals>,
}

impl Interrupts {
    /// Counts from now on.
    pub(crate) fn new() -> Result<Self, Failure> {
        if ignored() {
            return Ok(Self { signals: None });
        }
        let signals = Signals::new([libc::SIGINT])
            .map_err(|e| Failure::ours(format!("Ctrl-C cannot be taken: {e}")))?;
        Ok(Self {
            signals: Some(signals),
        })
    }

    /// Returns when the next one comes.
    pub(crate) async fn next(&mut self) {
        if let Some(signals) = &mut self.signals
            && signals.next().await.is_some()
        {
            return;
        }
        std::future::pending().await
    }
}

fn ignored() -> bool {
    // SAFETY: asks for the present disposition of a valid signal into a plain struct that is alive.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(libc::SIGINT, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}
