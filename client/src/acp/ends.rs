//! The two streams of the editor, and those of the agent, as channels of bytes. The editor's may be anything: a pipe, a
//! socket, a file; so a thread each reads and writes them.

use ostler_proto::limits;
use std::fs::File;
use std::io::{self, Read, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, mpsc, watch};

/// Bytes read in one go.
const CHUNK: usize = 64 * 1024;
/// Chunks or lines that wait; their sender goes on when there is room.
const WAITING: usize = 8;

/// Bytes that come; the end of the channel is the end of the stream.
pub(super) type Inlet = mpsc::Receiver<Vec<u8>>;

/// Where lines go. Whole lines of several senders never mix.
#[derive(Clone)]
pub(super) struct Outlet {
    to: mpsc::UnboundedSender<Option<Vec<u8>>>,
    /// Places in the queue.
    room: Arc<Semaphore>,
    turn: Arc<Mutex<()>>,
    /// Lines and pieces that have found room.
    sent: Arc<AtomicU64>,
}

/// Nobody reads there any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// The right to write a line in pieces.
pub(super) struct Turn {
    outlet: Outlet,
    _turn: OwnedMutexGuard<()>,
}

impl Turn {
    /// Writes a piece.
    async fn send(&self, bytes: Vec<u8>) -> Result<(), Gone> {
        let outlet = &self.outlet;
        outlet.room.acquire().await.map_err(|_| Gone)?.forget();
        outlet.sent.fetch_add(1, Ordering::Relaxed);
        outlet.to.send(Some(bytes)).map_err(|_| Gone)
    }
}

impl Outlet {
    fn new() -> (Self, Queue) {
        let (to, from) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(WAITING));
        let queue = Queue {
            from,
            room: Arc::clone(&room),
        };
        let outlet = Self {
            to,
            room,
            turn: Arc::default(),
            sent: Arc::default(),
        };
        (outlet, queue)
    }

    /// Waits for the turn.
    async fn turn(&self) -> Turn {
        Turn {
            outlet: self.clone(),
            _turn: Arc::clone(&self.turn).lock_owned().await,
        }
    }

    /// Writes a whole line.
    pub(super) async fn send(&self, line: Vec<u8>) -> Result<(), Gone> {
        self.turn().await.send(line).await
    }

    /// Writes a piece of a line; `turn` is that of the piece before. Returns the turn for the next one.
    pub(super) async fn pass(
        &self,
        turn: Option<Turn>,
        bytes: Vec<u8>,
        last: bool,
    ) -> Result<Option<Turn>, Gone> {
        let turn = match turn {
            Some(turn) => turn,
            None => self.turn().await,
        };
        turn.send(bytes).await?;
        Ok((!last).then_some(turn))
    }

    /// Comes when nothing has found room for this long.
    pub(super) async fn stuck(&self, patience: Duration) {
        loop {
            let before = self.sent.load(Ordering::Relaxed);
            tokio::time::sleep(patience).await;
            if self.sent.load(Ordering::Relaxed) == before {
                return;
            }
        }
    }

    /// Ends the stream behind what was sent, whoever waits to send more. Never waits itself.
    pub(super) fn close(&self) {
        // Where nobody reads any more, it has ended.
        let _ = self.to.send(None);
    }
}

/// The other side of an outlet. Who waits for room in it hears of its end.
struct Queue {
    from: mpsc::UnboundedReceiver<Option<Vec<u8>>>,
    room: Arc<Semaphore>,
}

impl Queue {
    async fn next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.from.recv().await.flatten()?;
        self.room.add_permits(1);
        Some(bytes)
    }

    fn blocking_next(&mut self) -> Option<Vec<u8>> {
        let bytes = self.from.blocking_recv().flatten()?;
        self.room.add_permits(1);
        Some(bytes)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.room.close();
    }
}

/// Standard input.
pub(super) fn editor_in() -> Inlet {
    let (to, from) = mpsc::channel(WAITING);
    std::thread::spawn(move || {
        let mut input = standard(0);
        let mut bytes = vec![0; CHUNK];
        loop {
            match input.read(&mut bytes) {
                Ok(0) => return,
                Ok(n) => {
                    if to.blocking_send(bytes[..n].to_vec()).is_err() {
                        return;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    });
    from
}

/// Tells when nobody writes to standard input any more, also while what was written last is not read yet.
pub(super) fn editor_hung_up() -> watch::Receiver<bool> {
    let (told, hung_up) = watch::channel(false);
    std::thread::spawn(move || {
        let mut fd = libc::pollfd {
            fd: 0,
            events: HALF_CLOSED,
            revents: 0,
        };
        // SAFETY: one plain struct that is alive for the call.
        while unsafe { libc::poll(&raw mut fd, 1, -1) } < 0 {
            if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
                return;
            }
        }
        let _ = told.send(true);
    });
    hung_up
}

/// That a socket's other side writes no more; of a pipe that is told in any case.
#[cfg(target_os = "linux")]
const HALF_CLOSED: i16 = libc::POLLRDHUP;
/// Not told elsewhere.
#[cfg(not(target_os = "linux"))]
const HALF_CLOSED: i16 = 0;

/// Standard output, and what is true when nobody reads there any more, and ends when all is written.
pub(super) fn editor_out() -> (Outlet, watch::Receiver<bool>) {
    let (outlet, mut queue) = Outlet::new();
    let (told, done) = watch::channel(false);
    std::thread::spawn(move || {
        let mut output = standard(1);
        while let Some(bytes) = queue.blocking_next() {
            if output.write_all(&bytes).is_err() {
                // First, so that senders find nobody there when they hear of it.
                drop(queue);
                let _ = told.send(true);
                break;
            }
        }
        let_go(1);
    });
    (outlet, done)
}

/// Lets the other side of a standard stream see its end. Its number stays taken.
fn let_go(fd: i32) {
    if let Ok(null) = File::open("/dev/null") {
        // SAFETY: two open descriptors.
        unsafe {
            libc::dup2(null.as_raw_fd(), fd);
        }
    }
}

/// One of the standard streams without a buffer of the library's; closing it is not ours.
fn standard(fd: i32) -> ManuallyDrop<File> {
    // SAFETY: the descriptor stays open for the life of the process, and is never closed by this file.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// What the agent writes. When it has `ended`, others may hold its output open: then only what is there is read.
pub(super) fn agent_out(fd: OwnedFd, mut ended: watch::Receiver<bool>) -> io::Result<Inlet> {
    let mut pipe = pipe::Receiver::from_owned_fd(fd)?;
    let (to, from) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        loop {
            let mut bytes = Vec::with_capacity(CHUNK);
            let idle = async {
                let _ = ended.wait_for(|ended| *ended).await;
                tokio::time::sleep(Duration::from_millis(limits::acp::DRAIN)).await;
            };
            let read = tokio::select! {
                read = pipe.read_buf(&mut bytes) => read,
                () = idle => return,
            };
            match read {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    if to.send(bytes).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    Ok(from)
}

/// What the agent reads.
pub(super) fn agent_in(fd: OwnedFd) -> io::Result<Outlet> {
    let mut pipe = pipe::Sender::from_owned_fd(fd)?;
    let (outlet, mut queue) = Outlet::new();
    tokio::spawn(async move {
        while let Some(bytes) = queue.next().await {
            if pipe.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    Ok(outlet)
}
