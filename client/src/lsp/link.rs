//! One connection to a supervisor, in messages. It never reconnects: that is the bridge's business.

use std::io;

use ostler::frames::Decoder;
use ostler::{Error, Options};
use ostler_proto::frame::{self, Framing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::greeting::OWN_ID;
use super::message::Envelope;

/// A connection.
pub(super) struct Link {
    reader: OwnedReadHalf,
    decoder: Decoder,
    out: mpsc::UnboundedSender<Vec<u8>>,
}

impl Link {
    /// Connects; with a greeting, when that is answered.
    pub(super) async fn open(options: Options, greeting: Option<Vec<u8>>) -> Result<Self, Error> {
        let socket = ostler::socket(&options).await?;
        let (reader, writer) = socket.into_split();
        // The editor bounds it: each message in it is one of its requests.
        let (out, queue) = mpsc::unbounded_channel();
        tokio::spawn(write(writer, queue));
        let mut link = Self {
            reader,
            decoder: Decoder::default(),
            out,
        };
        if let Some(greeting) = greeting {
            link.send(&greeting);
            link.greeted().await?;
        }
        Ok(link)
    }

    async fn greeted(&mut self) -> Result<(), Error> {
        let gone = |e: io::Error| Error::Broken(e.into());
        loop {
            let Some(body) = self.next().await else {
                return Err(gone(io::ErrorKind::UnexpectedEof.into()));
            };
            if Envelope::read(&body).is_some_and(|e| e.method.is_none() && e.id() == Some(OWN_ID)) {
                self.send(br#"{"jsonrpc":"2.0","method":"initialized","params":{}}"#);
                return Ok(());
            }
        }
    }

    /// Sends one message, without waiting.
    pub(super) fn send(&self, body: &[u8]) {
        let mut framed = Vec::with_capacity(body.len() + 32);
        frame::encode(Framing::Lsp, body, &mut framed);
        // Where the writer is gone, the reader is about to see the end.
        let _ = self.out.send(framed);
    }

    /// The next message; `None` when the connection has ended. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        loop {
            match self.decoder.next() {
                Ok(Some(body)) => return Some(body.to_vec()),
                Ok(None) => {}
                Err(_) => return None,
            }
            self.decoder.buffer.reserve(96 * 1024);
            match self.reader.read_buf(&mut self.decoder.buffer).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}

async fn write(mut socket: OwnedWriteHalf, mut queue: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(framed) = queue.recv().await {
        if socket.write_all(&framed).await.is_err() {
            return;
        }
    }
}
