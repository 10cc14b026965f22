//! Messages off a socket, bounded before anything is allocated. The first byte decides the framing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use interprocess::os::unix::uds_local_socket::tokio::Stream;
use ostler_proto::{
    frame::{Framing, content_length, header_end},
    limits,
};
use tokio::{
    io::Interest,
    time::{Instant, timeout_at},
};

/// Bytes asked of the socket at once.
const CHUNK: usize = 64 * 1024;
/// What a connection may hold without being counted: a message of ordinary size is never refused for the size of others.
const UNCOUNTED: usize = 2 * CHUNK;
/// What all connections hold beyond that.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// What came.
pub(super) enum Next {
    /// One whole message.
    Message(Vec<u8>),
    /// The client sends no more.
    End,
    /// The place of the next message is unknown, or the client stopped in the middle of one.
    Broken(String),
    /// All clients together hold as much of messages that are not whole as the house has room for.
    Full,
}

/// What one connection holds of that.
#[derive(Default)]
struct Share(usize);

impl Share {
    /// Counts what it holds now; false when that is too much for the house.
    fn hold(&mut self, capacity: usize) -> bool {
        let now = capacity.saturating_sub(UNCOUNTED);
        if now == self.0 {
            return true;
        }
        let before = HELD.fetch_add(now, Ordering::AcqRel);
        HELD.fetch_sub(self.0, Ordering::AcqRel);
        let grows = now > self.0;
        let others = before - self.0;
        self.0 = now;
        !grows || others + now <= limits::unfinished()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::AcqRel);
    }
}

/// The reading side of a connection.
pub(super) struct Frames {
    stream: Arc<Stream>,
    bytes: Vec<u8>,
    framing: Framing,
    /// A message began and is not whole: it must be by then.
    until: Option<Instant>,
    /// Bytes already searched for the end of a line.
    searched: usize,
    share: Share,
}

impl Frames {
    pub(super) fn new(stream: Arc<Stream>) -> Self {
        Self {
            stream,
            bytes: Vec::new(),
            framing: Framing::Lsp,
            until: None,
            searched: 0,
            share: Share::default(),
        }
    }

    /// Waits for the first byte and takes the framing from it; `None` when there is none.
    pub(super) async fn sniff(&mut self) -> std::io::Result<Option<Framing>> {
        loop {
            if let Some(first) = self.bytes.iter().find(|b| !b.is_ascii_whitespace()) {
                self.framing = if matches!(first, b'{' | b'[') {
                    Framing::Lines
                } else {
                    Framing::Lsp
                };
                return Ok(Some(self.framing));
            }
            // White space before the first message is no message.
            self.bytes.clear();
            if self.fill().await? == 0 {
                return Ok(None);
            }
        }
    }

    pub(super) async fn next(&mut self) -> Next {
        loop {
            match self.take() {
                Ok(Some(message)) => {
                    self.until = None;
                    return Next::Message(message);
                }
                Ok(None) => {}
                Err(why) => return Next::Broken(why),
            }
            if self.until.is_none() && !self.bytes.is_empty() {
                self.until = Some(Instant::now() + Duration::from_millis(limits::frame_patience()));
            }
            let filled = match self.until {
                None => self.fill().await,
                Some(until) => match timeout_at(until, self.fill()).await {
                    Ok(filled) => filled,
                    Err(_) => return Next::Broken("the rest of a message did not come".into()),
                },
            };
            match filled {
                Ok(0) if self.bytes.iter().all(u8::is_ascii_whitespace) => return Next::End,
                Ok(0) => return Next::Broken("the connection ended inside a message".into()),
                Ok(_) if !self.share.hold(self.bytes.capacity()) => return Next::Full,
                Ok(_) => {}
                Err(_) => return Next::End,
            }
        }
    }

    async fn fill(&mut self) -> std::io::Result<usize> {
        // Memory follows what has come, never what was announced.
        self.bytes.reserve(CHUNK);
        let (socket, bytes) = (self.stream.inner(), &mut self.bytes);
        loop {
            socket.readable().await?;
            let (before, room) = (bytes.len(), bytes.capacity() - bytes.len());
            let read = socket.try_io(Interest::READABLE, || {
                let n = socket.try_read_buf(bytes)?;
                // Fewer than there was room for: it is empty, and what comes from now on is told anew. To be told so by one
                // more call would hold up the request that has just come.
                match n == 0 || n == room {
                    true => Ok(()),
                    false => Err(std::io::ErrorKind::WouldBlock.into()),
                }
            });
            match read {
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && bytes.len() == before => {}
                Err(e) if e.kind() != std::io::ErrorKind::WouldBlock => return Err(e),
                _ => return Ok(bytes.len() - before),
            }
        }
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, String> {
        match self.framing {
            Framing::Lines => self.take_line(),
            Framing::Lsp => self.take_framed(),
        }
    }

    fn take_line(&mut self) -> Result<Option<Vec<u8>>, String> {
        loop {
            let Some(at) = self.bytes[self.searched..].iter().position(|b| *b == b'\n') else {
                self.searched = self.bytes.len();
                if self.bytes.len() > limits::MESSAGE {
                    return Err(format!("message above {} bytes", limits::MESSAGE));
                }
                return Ok(None);
            };
            let line = self.cut(0, self.searched + at, self.searched + at + 1);
            if !line.trim_ascii().is_empty() {
                return Ok(Some(line));
            }
        }
    }

    fn take_framed(&mut self) -> Result<Option<Vec<u8>>, String> {
        // Blank lines between messages are nobody's message.
        let blank = self
            .bytes
            .iter()
            .take_while(|b| matches!(b, b'\r' | b'\n'))
            .count();
        self.bytes.drain(..blank);
        if let Some(line) = not_a_header(&self.bytes) {
            return Err(format!("not a header: {line:?}"));
        }
        let Some((header, body)) = header_end(&self.bytes[..self.bytes.len().min(limits::HEADER)])
        else {
            if self.bytes.len() >= limits::HEADER {
                return Err(format!("no header within {} bytes", limits::HEADER));
            }
            return Ok(None);
        };
        let length = content_length(&self.bytes[..header]).map_err(|e| e.to_string())?;
        if self.bytes.len() < body + length {
            return Ok(None);
        }
        Ok(Some(self.cut(body, body + length, body + length)))
    }

    /// Takes `from..to` out and drops everything before `rest`.
    fn cut(&mut self, from: usize, to: usize, rest: usize) -> Vec<u8> {
        let message = self.bytes[from..to].to_vec();
        self.bytes.drain(..rest);
        self.searched = 0;
        if self.bytes.is_empty() && self.bytes.capacity() > UNCOUNTED {
            // A large message is no reason to keep its memory for the life of a connection.
            self.bytes = Vec::new();
        }
        self.share.hold(self.bytes.capacity());
        message
    }
}

/// The first whole line, if it can be no header: whoever sends that must hear of it and not wait for ever.
fn not_a_header(bytes: &[u8]) -> Option<String> {
    let line = &bytes[..bytes.iter().position(|b| *b == b'\n')?];
    (!line.contains(&b':'))
        .then(|| String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned())
}
