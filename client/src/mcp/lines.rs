//! The lines that come in, measured on their way: the library leaves out one that is too long, without a word, and who sent
//! it would wait for an answer for ever.

use std::io;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};

use ostler_proto::limits;
use regex::bytes::Regex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

/// So much of a line is kept to find out whose request it is.
const HEAD: usize = 256;

/// A reader that tells of lines that are too long.
pub(crate) struct Measured<R> {
    read: R,
    length: usize,
    head: Vec<u8>,
    /// An answer to each.
    refused: mpsc::UnboundedSender<Vec<u8>>,
}

impl<R> Measured<R> {
    pub(crate) fn new(read: R, refused: mpsc::UnboundedSender<Vec<u8>>) -> Self {
        Self {
            read,
            length: 0,
            head: Vec::new(),
            refused,
        }
    }

    fn measure(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = HEAD.saturating_sub(self.head.len()).min(piece.len());
            self.head.extend_from_slice(&piece[..room]);
            self.length += piece.len();
            if piece.ends_with(b"\n") {
                if self.length > limits::MESSAGE {
                    // Without a client nobody misses it.
                    let _ = self.refused.send(refusal(&self.head));
                }
                self.length = 0;
                self.head.clear();
            }
        }
    }
}

/// The answer to a request that begins so.
fn refusal(head: &[u8]) -> Vec<u8> {
    // Only where it stands in front: behind the parameters is what is too long.
    static ID: LazyLock<Option<Regex>> =
        LazyLock::new(|| Regex::new(r#"^[^\[]*?"id"\s*:\s*("[^"\\]*"|-?\d+)"#).ok());
    let head = head.split(|b| *b == b'[').next().unwrap_or_default();
    let params = head.windows(8).position(|w| w == b"\"params\"");
    let head = &head[..params.unwrap_or(head.len())];
    let id = ID.as_ref().and_then(|id| id.captures(head)?.get(1));
    let id = id.map_or("null".into(), |id| String::from_utf8_lossy(id.as_bytes()));
    let most = limits::MESSAGE;
    let error = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"error\":{{\"code\":-32600,\"message\":\"the message has more than {most} bytes: write what is long to a file\"}}}}\n"
    );
    error.into_bytes()
}

impl<R: AsyncRead + Unpin> AsyncRead for Measured<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, buffer))?;
        self.measure(&buffer.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_too_long_is_answered_by_its_id_where_that_stands_in_front() {
        let (refused, mut told) = mpsc::unbounded_channel();
        let mut lines = Measured::new((), refused);
        for (begin, id) in [
            (&b"{\"jsonrpc\":\"2.0\",\"id\":7,\"params\":\""[..], "7"),
            (b"{\"id\" : \"x-1\",\"params\":\"", "\"x-1\""),
            (b"{\"params\":{\"id\":3,\"x\":\"", "null"),
        ] {
            lines.measure(b"{\"id\":1}\n");
            lines.measure(begin);
            lines.measure(&vec![b'z'; limits::MESSAGE]);
            assert!(told.try_recv().is_err(), "it has no end yet");
            lines.measure(b"\"}\n");
            let told = String::from_utf8(told.try_recv().unwrap()).unwrap();
            assert!(told.contains(&format!("\"id\":{id},\"error\"")), "{told}");
        }
        assert!(told.try_recv().is_err());
    }
}
