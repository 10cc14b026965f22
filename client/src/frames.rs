//! Cuts a byte stream in LSP framing into messages. Owned by the reader of that; does no I/O.

use ostler_proto::{frame, limits};

/// Why the stream cannot be read on: the place of the next message is unknown.
#[derive(Debug, thiserror::Error)]
pub enum BadFrame {
    /// More bytes without a blank line than any header has.
    #[error("a header of more than {} bytes", limits::HEADER)]
    Endless,
    /// The header announces nothing usable.
    #[error("{0}")]
    Header(frame::BadHeader),
}

/// Bytes that came and have not been handed out.
#[derive(Debug, Default)]
pub struct Decoder {
    /// Where the reader appends.
    pub buffer: Vec<u8>,
    at: usize,
}

impl Decoder {
    /// Returns the next whole message, if all of it has come.
    ///
    /// # Errors
    /// The place of the next message is unknown; nothing more can be read.
    #[expect(
        clippy::should_implement_trait,
        reason = "what it returns borrows from it"
    )]
    pub fn next(&mut self) -> Result<Option<&[u8]>, BadFrame> {
        let rest = &self.buffer[self.at..];
        let Some((header, body)) = frame::header_end(rest) else {
            if rest.len() > limits::HEADER {
                return Err(BadFrame::Endless);
            }
            self.compact();
            return Ok(None);
        };
        let length = frame::content_length(&rest[..header]).map_err(BadFrame::Header)?;
        if rest.len() - body < length {
            self.compact();
            return Ok(None);
        }
        let from = self.at + body;
        self.at = from + length;
        Ok(Some(&self.buffer[from..self.at]))
    }

    /// Moves what is left to the front, only when nothing whole is left, so that each byte moves once.
    fn compact(&mut self) {
        self.buffer.drain(..self.at);
        self.at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drain(decoder: &mut Decoder) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(body) = decoder.next().unwrap() {
            out.push(body.to_vec());
        }
        out
    }

    proptest! {
        #[test]
        fn messages_come_out_whole_however_the_stream_is_cut(
            bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..10),
            cut in 1usize..50,
        ) {
            let mut wire = Vec::new();
            for body in &bodies {
                frame::encode(frame::Framing::Lsp, body, &mut wire);
            }
            let (mut decoder, mut got) = (Decoder::default(), Vec::new());
            for piece in wire.chunks(cut) {
                decoder.buffer.extend_from_slice(piece);
                got.extend(drain(&mut decoder));
            }
            prop_assert_eq!(got, bodies);
            prop_assert!(decoder.buffer.is_empty());
        }
    }

    #[test]
    fn an_endless_header_and_an_absurd_length_end_the_stream() {
        let mut decoder = Decoder {
            buffer: vec![b'x'; limits::HEADER + 1],
            at: 0,
        };
        assert!(matches!(decoder.next(), Err(BadFrame::Endless)));
        let mut decoder = Decoder {
            buffer: b"Content-Length: 99999999999\r\n\r\n".to_vec(),
            at: 0,
        };
        assert!(matches!(decoder.next(), Err(BadFrame::Header(_))));
    }
}
