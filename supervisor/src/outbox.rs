//! Frames to a client. Two roads to one writer: answers, bounded in bytes, and stream frames, bounded in number.
//!
//! Whoever streams reserves a place first and reads its log afterwards, so a slow client is a number and not a
//! backlog. A client that asks and asks and never reads is disconnected when its answers reach their bound.
//!
//! Where nothing is on its way, whoever has a frame writes it at once, as far as it fits: to wake the writer for it costs
//! more than the write. What does not fit goes before everything else.

use std::{
    io,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use interprocess::os::unix::uds_local_socket::tokio::Stream;
use ostler_proto::{
    frame::{self, Framing},
    limits,
};
use serde::Serialize;
use tokio::{
    io::AsyncWriteExt,
    sync::{Notify, mpsc},
};

/// The sending side, one a connection, cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Outbox {
    framing: Framing,
    answers: mpsc::UnboundedSender<Answer>,
    frames: mpsc::Sender<Vec<u8>>,
    waiting: Arc<Waiting>,
    way: Arc<Way>,
}

/// The way to the client: who writes when.
#[derive(Debug)]
struct Way {
    stream: Arc<Stream>,
    /// Frames, and rests of frames, that the writer has not written yet. Whoever adds one holds it until that is queued.
    queued: Mutex<usize>,
}

impl Way {
    fn queued(&self) -> MutexGuard<'_, usize> {
        // A number has no state to be left half changed.
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How far a frame got at once.
enum Sent {
    All,
    /// So many bytes.
    Part(usize),
    Nothing,
}

impl Sent {
    fn of(stream: &Stream, frame: &[u8]) -> Self {
        loop {
            return match stream.inner().try_write(frame) {
                Ok(n) if n == frame.len() => Self::All,
                Ok(n) => Self::Part(n),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                // Full, or gone, which the writer finds out.
                Err(_) => Self::Nothing,
            };
        }
    }
}

/// Answers of all connections that are not written yet.
static UNWRITTEN: AtomicUsize = AtomicUsize::new(0);

/// Comes when every answer is written, or its client is gone. It looks again and again: to wake somebody with each
/// answer would cost all of them, and this is asked once in the life of a process.
pub(crate) async fn written() {
    while UNWRITTEN.load(Ordering::Acquire) > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// An answer on its way.
#[derive(Debug)]
struct Answer(Vec<u8>);

impl Answer {
    fn new(bytes: Vec<u8>) -> Self {
        UNWRITTEN.fetch_add(1, Ordering::AcqRel);
        Self(bytes)
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        UNWRITTEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Bytes of answers that are not written yet.
#[derive(Debug, Default)]
struct Waiting {
    bytes: AtomicUsize,
    /// There are too many: the writer, who may be stuck in the middle of one, gives up.
    full: Notify,
}

/// The writing side.
pub(crate) struct Writer {
    answers: mpsc::UnboundedReceiver<Answer>,
    frames: mpsc::Receiver<Vec<u8>>,
    waiting: Arc<Waiting>,
    way: Arc<Way>,
}

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// A place for one frame.
pub(crate) struct Place<'a> {
    outbox: &'a Outbox,
    permit: mpsc::Permit<'a, Vec<u8>>,
}

pub(crate) fn new(framing: Framing, stream: Arc<Stream>) -> (Outbox, Writer) {
    let (answers, answers_out) = mpsc::unbounded_channel();
    let (frames, frames_out) = mpsc::channel(limits::outbox());
    let waiting = Arc::new(Waiting::default());
    let way = Arc::new(Way {
        stream,
        queued: Mutex::new(0),
    });
    let outbox = Outbox {
        framing,
        answers,
        frames,
        waiting: Arc::clone(&waiting),
        way: Arc::clone(&way),
    };
    (
        outbox,
        Writer {
            answers: answers_out,
            frames: frames_out,
            waiting,
            way,
        },
    )
}

impl Outbox {
    /// Writes or queues an answer; never waits.
    pub(crate) fn answer(&self, body: &impl Serialize) {
        let frame = encode(self.framing, body);
        let mut queued = self.way.queued();
        if let Some(rest) = self.send_now(&queued, frame) {
            self.queue(&mut queued, rest);
        }
    }

    /// Writes what fits, where nothing is before it; returns what does not.
    fn send_now(&self, queued: &MutexGuard<'_, usize>, mut frame: Vec<u8>) -> Option<Vec<u8>> {
        if **queued > 0 {
            return Some(frame);
        }
        match Sent::of(&self.way.stream, &frame) {
            Sent::All => return None,
            Sent::Part(n) => drop(frame.drain(..n)),
            Sent::Nothing => {}
        }
        Some(frame)
    }

    /// Before all stream frames.
    fn queue(&self, queued: &mut MutexGuard<'_, usize>, frame: Vec<u8>) {
        **queued += 1;
        let before = self.waiting.bytes.fetch_add(frame.len(), Ordering::AcqRel);
        if before + frame.len() > limits::answers() {
            self.waiting.full.notify_one();
        }
        // A connection that is gone needs no answer.
        let _ = self.answers.send(Answer::new(frame));
    }

    /// Waits for a place in the stream queue.
    ///
    /// # Errors
    /// [`Gone`].
    pub(crate) async fn reserve(&self) -> Result<Place<'_>, Gone> {
        let permit = self.frames.reserve().await.map_err(|_| Gone)?;
        Ok(Place {
            outbox: self,
            permit,
        })
    }
}

impl Place<'_> {
    /// Puts one message into the place.
    pub(crate) fn send(self, body: &impl Serialize) {
        let Place { outbox, permit } = self;
        let frame = encode(outbox.framing, body);
        let mut queued = outbox.way.queued();
        let whole = frame.len();
        let Some(rest) = outbox.send_now(&queued, frame) else {
            return;
        };
        if rest.len() < whole {
            // An answer that is queued from now on must not come into the middle of it.
            outbox.queue(&mut queued, rest);
        } else {
            *queued += 1;
            permit.send(rest);
        }
    }
}

fn encode(framing: Framing, body: &impl Serialize) -> Vec<u8> {
    let body = serde_json::to_vec(body).expect("answers are plain data with string keys");
    let mut frame = Vec::with_capacity(body.len() + 32);
    frame::encode(framing, &body, &mut frame);
    frame
}

impl Writer {
    /// Writes until every sender is gone, the client is, or it has let its answers pile up.
    pub(crate) async fn run(mut self) {
        let waiting = Arc::clone(&self.waiting);
        tokio::select! {
            () = self.write() => {}
            () = waiting.full.notified() => {
                crate::log_line!("warn", "a client that asks and does not read was disconnected");
                drop(self);
                // Its answers lie all over the heap; without this their pages stay ours.
                // SAFETY: plain call; the allocator takes its own locks.
                unsafe { libc::malloc_trim(0) };
            }
        }
    }

    async fn write(&mut self) {
        let way = Arc::clone(&self.way);
        let mut socket = &*way.stream;
        loop {
            let written = tokio::select! {
                biased;
                Some(answer) = self.answers.recv() => {
                    self.waiting.bytes.fetch_sub(answer.0.len(), Ordering::AcqRel);
                    socket.write_all(&answer.0).await
                }
                Some(frame) = self.frames.recv() => socket.write_all(&frame).await,
                else => return,
            };
            if written.is_err() {
                return;
            }
            *way.queued() -= 1;
        }
    }
}
