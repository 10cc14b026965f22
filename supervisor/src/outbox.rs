//! Frames to a client. Two roads to one writer: answers, bounded in bytes, and stream frames, bounded in number.
//!
//! Whoever streams reserves a place first and reads its log afterwards, so a slow client is a number and not a
//! backlog. A client that asks and asks and never reads is disconnected when its answers reach their bound.

use std::{
    sync::{
        Arc,
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
}

/// The client is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// A place for one frame.
pub(crate) struct Place<'a> {
    framing: Framing,
    permit: mpsc::Permit<'a, Vec<u8>>,
}

pub(crate) fn new(framing: Framing) -> (Outbox, Writer) {
    let (answers, answers_out) = mpsc::unbounded_channel();
    let (frames, frames_out) = mpsc::channel(limits::outbox());
    let waiting = Arc::new(Waiting::default());
    let outbox = Outbox {
        framing,
        answers,
        frames,
        waiting: Arc::clone(&waiting),
    };
    (
        outbox,
        Writer {
            answers: answers_out,
            frames: frames_out,
            waiting,
        },
    )
}

impl Outbox {
    /// Queues an answer; never waits.
    pub(crate) fn answer(&self, body: &impl Serialize) {
        let frame = encode(self.framing, body);
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
            framing: self.framing,
            permit,
        })
    }
}

impl Place<'_> {
    /// Puts one message into the place.
    pub(crate) fn send(self, body: &impl Serialize) {
        self.permit.send(encode(self.framing, body));
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
    pub(crate) async fn run(mut self, stream: Arc<Stream>) {
        let waiting = Arc::clone(&self.waiting);
        tokio::select! {
            () = self.write(&stream) => {}
            () = waiting.full.notified() => {
                crate::log_line!("warn", "a client that asks and does not read was disconnected");
                drop(self);
                // Its answers lie all over the heap; without this their pages stay ours.
                // SAFETY: plain call; the allocator takes its own locks.
                unsafe { libc::malloc_trim(0) };
            }
        }
    }

    async fn write(&mut self, stream: &Stream) {
        let mut socket = stream;
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
        }
    }
}
