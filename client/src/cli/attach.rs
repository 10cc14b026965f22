//! `ostler attach`: our terminal becomes that of a job, until we leave or it ends.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::time::Duration;

use base64::Engine as _;
use futures_util::StreamExt;
use ostler::follow::Event;
use ostler::{Client, Mode};
use ostler_proto::address::JOB_VARIABLE;
use ostler_proto::job::{Kind, Page, Row, Size};
use ostler_proto::methods::{
    JobAttach, JobGet, JobResize, JobScreen, JobWrite, Resize, Target, Write,
};
use ostler_proto::screen::{Attach, Look};
use signal_hook_tokio::Signals;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::failure::Failure;
use super::labels::Labels;
use super::output::{self, Pour, note};
use super::raw::Raw;
use super::scope::{self, Named, SessionArg};
use super::{completions, nearest, table, words};
use crate::exit;

/// Bytes of the keyboard that are read in one go.
const INPUT: usize = 16 * 1024;
/// How long the last keys before leaving may take.
const LAST_KEYS: Duration = Duration::from_secs(1);
/// Rung where a key goes nowhere.
const BELL: &[u8] = b"\x07";

/// Sits down before the terminal of a job: shows its screen, types into it, and leaves it running.
///
/// The job's window follows this terminal. The end of the job ends this command with its exit code.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  ostler attach t1
  ostler attach claude-7k2/s1 --take
  ostler attach t1 --read-only
  ostler attach t1 --detach-key C-a")]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArg,
    /// Nobody else may type meanwhile.
    #[arg(long, conflicts_with = "read_only")]
    take: bool,
    /// Only looks: types nothing, and leaves the job's window as it is.
    #[arg(long)]
    read_only: bool,
    /// The key that leaves.
    #[arg(long, value_name = "KEY", default_value = "C-]", value_parser = leave)]
    detach_key: Leave,
    /// Job: id, name, SESSION/id or processId.
    #[arg(add = completions::live(), value_name = "ID")]
    id: String,
}

/// The key that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Leave {
    byte: u8,
    name: String,
}

fn leave(text: &str) -> Result<Leave, String> {
    let byte = match text.as_bytes() {
        [
            b'C',
            b'-',
            key @ (b'a'..=b'z' | b'A'..=b'Z' | b'\\' | b']' | b'^' | b'_'),
        ] => key & 0x1f,
        _ => return Err("must be C- and a letter or one of \\ ] ^ _: C-a".into()),
    };
    Ok(Leave {
        byte,
        name: text.to_owned(),
    })
}

/// How it was left.
enum Left {
    /// By the key, or by a signal; the job goes on.
    Away,
    /// The job has ended.
    Ended(Box<Row>),
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let scope = args.session.scope()?;
    let named = scope.target(&args.id)?;
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let id = words::clean(&args.id);
        return Err(Failure::usage("attach needs a terminal").hint(format!(
            "ostler screen {id} shows what is there, ostler keys and send type"
        )));
    }
    let client = scope::client(Mode::Use)?;
    let target = Target {
        session: named.session.clone(),
        id: named.id.clone(),
    };
    let row = match client.ask::<JobGet>(target).await {
        Ok(result) => result.row,
        Err(e) => return Err(nearest::explained(&client, &scope, &args.id, e).await),
    };
    let label = Labels::for_rows(&client, &scope, std::iter::once(&row))
        .await?
        .job(&row);
    if std::env::var(JOB_VARIABLE).is_ok_and(|job| job == row.process_id) {
        return Err(Failure::ours(format!("this terminal is that of {label}")));
    }
    let seat = Seat::new(client, &row, &args);
    let left = seat.sit(&label, &row, &args).await?;
    match left {
        Left::Away => {
            let doing = seat.doing(named, &row).await;
            note(&format!("left {label}; {doing}"));
            Ok(exit::DONE)
        }
        Left::Ended(row) => {
            note(&format!("{label} {}", words::ended(&row)));
            Ok(exit::of_row(&row))
        }
    }
}

/// Our place before the job's terminal.
struct Seat {
    client: Client,
    /// What never changes of the job.
    id: String,
    name: String,
    window: Cell<Size>,
    read_only: bool,
    leave: u8,
}

impl Seat {
    fn new(client: Client, row: &Row, args: &Args) -> Self {
        Self {
            client,
            id: row.process_id.clone(),
            name: ostler::fresh_key(),
            window: Cell::new(table::window()),
            read_only: args.read_only,
            leave: args.detach_key.byte,
        }
    }

    /// Sits until it is left or the job ends.
    async fn sit(&self, label: &str, row: &Row, args: &Args) -> Result<Left, Failure> {
        let mut stream = self.client.stream::<JobAttach>(Attach {
            id: self.id.clone(),
            rows: self.window.get().rows,
            cols: self.window.get().cols,
            read_only: args.read_only,
            take: args.take,
            seat: Some(self.name.clone()),
            by: Some("the user".into()),
            ..Attach::default()
        });
        let mut signals = Signals::new([libc::SIGWINCH, libc::SIGTERM, libc::SIGHUP, libc::SIGINT])
            .map_err(|e| Failure::ours(format!("signals cannot be taken: {e}")))?;
        // Nothing of our terminal is touched before the supervisor has granted the seat.
        let mut event = stream.next().await?;
        note(&self.greeting(label, row, args));
        let mut raw = Raw::enter(self.window.get().rows)?;
        let mut keys = keyboard();
        let (typed, typing) = mpsc::unbounded_channel();
        let typist = tokio::spawn(type_in(self.client.clone(), self.write(), typing));
        let screen = Pour::stdout();
        let show = async {
            let mut drawn = false;
            loop {
                match event {
                    Event::Page(page) => {
                        if is_screen(&page) && std::mem::replace(&mut drawn, true) {
                            // A new supervisor has our first window; ours may be another one by now.
                            self.tell_window();
                        }
                        screen.write(&output::bytes_of(&page)?).await?;
                    }
                    Event::End(end) => return Ok::<_, Failure>(end.row),
                    Event::Started(_) | Event::Happened(_) => {}
                }
                event = stream.next().await?;
            }
        };
        // Beside it: a terminal that takes nothing must not keep the key that leaves from working.
        tokio::pin!(show);
        let left = loop {
            tokio::select! {
                row = &mut show => break Left::Ended(Box::new(row?)),
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
                    _ => break Left::Away,
                },
            }
        };
        drop(typed);
        // What was typed before the last key is for the job, if that takes it.
        let _ = timeout(LAST_KEYS, typist).await;
        Ok(left)
    }

    /// `s1 of claude-7k2, 120x40, held by you; C-] leaves`.
    fn greeting(&self, label: &str, row: &Row, args: &Args) -> String {
        let id = label.rsplit('/').next().unwrap_or(label);
        let Size { rows, cols } = match row.terminal {
            Some(window) if self.read_only => window,
            _ => self.window.get(),
        };
        let how = match (args.take, args.read_only) {
            (true, _) => ", held by you",
            (_, true) => ", read only",
            _ => "",
        };
        let (session, key) = (&row.session.name, &args.detach_key.name);
        words::clean(&format!(
            "{id} of {session}, {cols}x{rows}{how}; {key} leaves"
        ))
    }

    /// What became of keys. The end of our input is an end of the visit as well.
    fn press(&self, bytes: Option<Vec<u8>>, typed: &mpsc::UnboundedSender<Vec<u8>>) -> Pressed {
        let Some(mut bytes) = bytes else {
            return Pressed::Leave;
        };
        let leaves = bytes.iter().position(|b| *b == self.leave);
        bytes.truncate(leaves.unwrap_or(bytes.len()));
        if !self.read_only && !bytes.is_empty() {
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
    fn tell_window(&self) {
        if self.read_only {
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

    /// What the job does when it is left.
    async fn doing(&self, named: Named, row: &Row) -> &'static str {
        if row.kind != Kind::Shell {
            return "it still runs";
        }
        let look = Look {
            session: named.session,
            id: named.id,
            ..Look::default()
        };
        match self.client.ask::<JobScreen>(look).await {
            Ok(screen) if screen.foreground.is_some() => "a command still runs in it",
            _ => "no command runs in it",
        }
    }
}

enum Pressed {
    Nothing,
    Leave,
}

/// The whole screen, with which an attach begins.
fn is_screen(page: &Page) -> bool {
    page.from == page.next
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
        assert_eq!(leave("C-]").unwrap().byte, 0x1d);
        assert_eq!(leave("C-a").unwrap().byte, 1);
        for bad in ["", "a", "C-", "C-1", "M-x", "Escape"] {
            assert!(leave(bad).is_err(), "{bad:?}");
        }
    }
}
