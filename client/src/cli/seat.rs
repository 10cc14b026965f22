//! A seat before the terminal of a job: what is typed on ours goes to it, its window follows ours, and one key leaves.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use base64::Engine as _;
use futures_util::StreamExt;
use ostler::Client;
use ostler_proto::job::Size;
use ostler_proto::methods::{JobResize, JobWrite, Resize, Write};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::failure::Failure;
use super::output::Pour;
use super::raw::Raw;
use super::table;

/// Bytes of the keyboard that are read in one go.
const INPUT: usize = 16 * 1024;
/// How long the last keys before leaving may take.
const LAST_KEYS: Duration = Duration::from_secs(1);
/// Rung where a key goes nowhere.
const BELL: &[u8] = b"\x07";

/// The key that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leave {
    byte: u8,
    pub(crate) name: String,
}

impl Leave {
    /// The key where none was named.
    pub(crate) const DEFAULT: &str = "C-]";

    /// Parses `C-a`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let byte = match text.as_bytes() {
            [
                b'C',
                b'-',
                key @ (b'a'..=b'z' | b'A'..=b'Z' | b'\\' | b']' | b'^' | b'_'),
            ] => key & 0x1f,
            _ => return Err("must be C- and a letter or one of \\ ] ^ _: C-a".into()),
        };
        Ok(Self {
            byte,
            name: text.to_owned(),
        })
    }
}

/// Tells whether there is a terminal of ours that a job's could be shown on.
pub(crate) fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// How a seat was left.
pub(crate) enum Left<T> {
    /// By the key, or because nobody can type any more.
    Away,
    /// By a signal.
    Signal(i32),
    /// What was shown has ended.
    Ended(T),
}

/// Our place before a job's terminal.
pub(crate) struct Seat {
    client: Client,
    /// What never changes of the job.
    id: String,
    name: String,
    window: Cell<Size>,
    role: Role,
    leave: u8,
}

/// What somebody does there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Types, and brings a window along.
    Whole,
    /// Types; the window stays as it is.
    Typist,
    /// Only looks.
    Spectator,
}

impl Seat {
    /// A seat of this name before the job with this id.
    pub(crate) fn new(client: Client, id: &str, name: String, role: Role, leave: &Leave) -> Self {
        Self {
            client,
            id: id.to_owned(),
            name,
            window: Cell::new(table::window()),
            role,
            leave: leave.byte,
        }
    }

    /// The name by which the supervisor knows it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How large our terminal is.
    pub(crate) fn window(&self) -> Size {
        self.window.get()
    }

    /// Sits until it is left or `show` ends. Our terminal is raw as long as what is returned with it lives.
    pub(crate) async fn sit<T>(
        &self,
        show: impl Future<Output = Result<T, Failure>>,
    ) -> Result<(Left<T>, Raw), Failure> {
        let mut signals = Signals::new([libc::SIGWINCH, libc::SIGTERM, libc::SIGHUP, libc::SIGINT])
            .map_err(|e| Failure::ours(format!("signals cannot be taken: {e}")))?;
        let mut raw = Raw::enter(self.window.get().rows)?;
        let mut keys = keyboard();
        let (typed, typing) = mpsc::unbounded_channel();
        let typist = tokio::spawn(type_in(self.client.clone(), self.write(), typing));
        // Beside it: a terminal that takes nothing must not keep the key that leaves from working.
        tokio::pin!(show);
        let left = loop {
            tokio::select! {
                shown = &mut show => break Left::Ended(shown?),
                bytes = keys.recv() => match self.press(bytes, &typed) {
                    Pressed::Leave => break Left::Away,
                    Pressed::Nothing => {}
                },
                signal = signals.next() => match signal {
                    Some(libc::SIGWINCH) => {
                        self.window.set(table::window());
                        raw.resized(self.window.get().rows);
                        self.tell_window();
                    }
                    Some(signal) => break Left::Signal(signal),
                    None => break Left::Away,
                },
            }
        };
        drop(typed);
        // What was typed before the last key is for the job, if that takes it.
        let _ = timeout(LAST_KEYS, typist).await;
        Ok((left, raw))
    }

    /// What became of keys. The end of our input is an end of the visit as well.
    fn press(&self, bytes: Option<Vec<u8>>, typed: &mpsc::UnboundedSender<Vec<u8>>) -> Pressed {
        let Some(mut bytes) = bytes else {
            return Pressed::Leave;
        };
        let leaves = bytes.iter().position(|b| *b == self.leave);
        bytes.truncate(leaves.unwrap_or(bytes.len()));
        if self.role != Role::Spectator && !bytes.is_empty() {
            // The typist lives as long as this.
            let _ = typed.send(bytes);
        }
        match leaves {
            Some(_) => Pressed::Leave,
            None => Pressed::Nothing,
        }
    }

    fn write(&self) -> Write {
        Write {
            id: self.id.clone(),
            seat: Some(self.name.clone()),
            ..Write::default()
        }
    }

    /// Tells the supervisor how large our terminal is now.
    pub(crate) fn tell_window(&self) {
        if self.role != Role::Whole {
            return;
        }
        let params = Resize {
            session: None,
            id: self.id.clone(),
            rows: self.window.get().rows,
            cols: self.window.get().cols,
            seat: Some(self.name.clone()),
        };
        let client = self.client.clone();
        tokio::spawn(async move {
            // Where it is refused the job is over, which the stream tells.
            let _ = client.ask::<JobResize>(params).await;
        });
    }
}

enum Pressed {
    Nothing,
    Leave,
}

/// Types what comes, in order; a job that does not read is waited for.
async fn type_in(client: Client, write: Write, mut typing: mpsc::UnboundedReceiver<Vec<u8>>) {
    let bell = Pour::stdout();
    while let Some(bytes) = typing.recv().await {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let params = Write {
                base64: Some(base64::engine::general_purpose::STANDARD.encode(rest)),
                ..write.clone()
            };
            match client.call::<JobWrite>(params).await {
                Ok(written) if !written.closed => {
                    let n = usize::try_from(written.bytes).unwrap_or(usize::MAX);
                    rest = &rest[n.min(rest.len())..];
                }
                // Somebody else holds it, it ends, or the supervisor was replaced and nobody knows what arrived.
                Ok(_) | Err(_) => {
                    let _ = bell.write(BELL).await;
                    break;
                }
            }
        }
    }
}

/// Reads our keyboard in a thread: a terminal that others have as well cannot be watched.
fn keyboard() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(16);
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT];
        loop {
            // SAFETY: the buffer is valid for its length. Not by the library: it keeps what it has read ahead.
            let n = unsafe { libc::read(libc::STDIN_FILENO, buffer.as_mut_ptr().cast(), INPUT) };
            match usize::try_from(n) {
                Ok(n @ 1..) if send.blocking_send(buffer[..n].to_vec()).is_ok() => {}
                Err(_) if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                _ => return,
            }
        }
    });
    receive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_leaves_is_a_control_character() {
        assert_eq!(Leave::parse(Leave::DEFAULT).unwrap().byte, 0x1d);
        assert_eq!(Leave::parse("C-a").unwrap().byte, 1);
        for bad in ["", "a", "C-", "C-1", "M-x", "Escape"] {
            assert!(Leave::parse(bad).is_err(), "{bad:?}");
        }
    }
}
