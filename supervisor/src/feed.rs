//! Bytes to a child: one bounded queue of orders, one task that writes them.
//!
//! A child that does not read delays only its own writers, each with a deadline; nobody else is on this road.

use std::{
    io,
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::terminal::{self, Mode};
use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::timeout_at,
};

/// Orders that may wait. Each holds one request's bytes.
const ORDERS: usize = 8;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Took {
    pub(crate) bytes: u64,
    /// The other side has closed its input.
    pub(crate) closed: bool,
}

/// What is at the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Into {
    Pipe,
    Terminal,
}

#[derive(Debug)]
struct Order {
    bytes: Vec<u8>,
    end: bool,
    until: tokio::time::Instant,
    answer: oneshot::Sender<Took>,
}

/// The keyboard of a job.
#[derive(Debug)]
pub(crate) struct Feed {
    orders: mpsc::Sender<Order>,
    queue: Mutex<Option<mpsc::Receiver<Order>>>,
    over: Notify,
}

impl Feed {
    pub(crate) fn new() -> Self {
        let (orders, queue) = mpsc::channel(ORDERS);
        Self {
            orders,
            queue: Mutex::new(Some(queue)),
            over: Notify::new(),
        }
    }

    /// Nobody is left who could read: lets go of the descriptor, which a record that is kept for a day must not hold.
    pub(crate) fn end(&self) {
        self.over.notify_one();
    }

    /// Writes within `patience`; says how much the pipe took. `end` closes the input after that.
    pub(crate) async fn write(&self, bytes: Vec<u8>, end: bool, patience: Duration) -> Took {
        let until = tokio::time::Instant::now() + patience;
        let (answer, answered) = oneshot::channel();
        let none = Took {
            bytes: 0,
            closed: false,
        };
        let order = Order {
            bytes,
            end,
            until,
            answer,
        };
        match timeout_at(until, self.orders.send(order)).await {
            Ok(Ok(())) => answered.await.unwrap_or(Took {
                closed: true,
                ..none
            }),
            Ok(Err(_)) => Took {
                closed: true,
                ..none
            },
            Err(_) => none,
        }
    }

    /// Serves the queue until the input is closed by either side. `close` tells the keeper to close its copy:
    /// the child sees no end of input while that one is open.
    pub(crate) async fn serve(&self, input: OwnedFd, into: Into, close: impl FnOnce()) {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(mut queue) = queue else { return };
        let mut keyboard = Keyboard::default();
        loop {
            let order = tokio::select! {
                order = queue.recv() => order,
                () = self.over.notified() => None,
            };
            let Some(order) = order else { return };
            if into == Into::Terminal {
                let took = keyboard.type_in(&input, &order).await;
                let _ = order.answer.send(took);
                continue;
            }
            let took = write(&input, &order.bytes, order.until).await;
            let end = took.closed || (order.end && took.bytes == order.bytes.len() as u64);
            if end {
                queue.close();
                drop(input);
                close();
                // The asker may be gone; its bytes are written all the same.
                let _ = order.answer.send(took);
                return;
            }
            let _ = order.answer.send(took);
        }
    }
}

/// What was typed of the line that stands in a terminal.
#[derive(Default)]
struct Keyboard {
    typed: usize,
}

impl Keyboard {
    /// Types as it is, in parts where a line is longer than the terminal keeps: between two parts stands the character
    /// that hands over what there is, which the program reads as one line all the same.
    async fn type_in(&mut self, input: &OwnedFd, order: &Order) -> Took {
        let mut sum = Took {
            bytes: 0,
            closed: false,
        };
        let mut rest = order.bytes.as_slice();
        while !rest.is_empty() {
            let (n, typed, hand_over) = match terminal::mode(input) {
                Mode::Bytes => (rest.len().min(terminal::PART), 0, None),
                Mode::Lines { end } => {
                    let (n, typed) = terminal::part(rest, self.typed);
                    (n, typed, (typed >= terminal::PART).then_some(end))
                }
            };
            let took = write(input, &rest[..n], order.until).await;
            sum.bytes += took.bytes;
            sum.closed |= took.closed;
            if took.bytes < n as u64 {
                return sum;
            }
            self.typed = typed;
            rest = &rest[n..];
            if let Some(end) = hand_over {
                self.typed = 0;
                write(input, &[end], order.until).await;
            }
        }
        if order.end
            && let Mode::Lines { end } = terminal::mode(input)
        {
            // Behind an unfinished line the first one hands that over, the second one is the end.
            let both = [end, end];
            let ends = if self.typed > 0 {
                &both[..]
            } else {
                &both[..1]
            };
            sum.closed |= write(input, ends, order.until).await.closed;
            self.typed = 0;
        }
        sum
    }
}

async fn write(input: &OwnedFd, bytes: &[u8], until: tokio::time::Instant) -> Took {
    let mut took = Took {
        bytes: 0,
        closed: false,
    };
    while let rest = &bytes[took.bytes as usize..]
        && !rest.is_empty()
    {
        match write_once(input, rest) {
            Ok(n) => took.bytes += n as u64,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                if !has_room(input, until).await {
                    break;
                }
            }
            Err(_) => {
                took.closed = true;
                break;
            }
        }
    }
    took
}

/// Waits for room. Watched only as long as there is none: a terminal tells of room whenever its program has read, and
/// woke us beside each line of a shell.
async fn has_room(input: &OwnedFd, until: tokio::time::Instant) -> bool {
    match crate::ready::writable(input.as_fd()) {
        Ok(watched) => timeout_at(until, watched.writable()).await.is_ok(),
        Err(error) => {
            crate::log_line!("error", "an input could not be watched: {error}");
            false
        }
    }
}

fn write_once(fd: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the slice is valid for its length and the descriptor is ours.
    match unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) } {
        n if n >= 0 => Ok(n as usize),
        _ => Err(io::Error::last_os_error()),
    }
}
