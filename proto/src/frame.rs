//! What a message may look like, without reading or writing one.
//!
//! Two framings: LSP's (`Content-Length: N`, blank line, N bytes; any letter case, any further headers) and
//! newline-delimited JSON, chosen for both directions by the first byte of a connection: `{` is the latter.

use crate::limits;

/// How a connection separates its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    /// `Content-Length` headers.
    Lsp,
    /// One message a line.
    Lines,
}

/// Why a header block is refused. The connection cannot go on: the place of the next message is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHeader {
    /// No `Content-Length` among them.
    NoLength,
    /// A length that is no number.
    NotANumber,
    /// A length above [`limits::MESSAGE`].
    TooLarge,
}

impl std::fmt::Display for BadHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoLength => f.write_str("no Content-Length header"),
            Self::NotANumber => f.write_str("Content-Length is no number"),
            Self::TooLarge => write!(f, "message above {} bytes", limits::MESSAGE),
        }
    }
}

/// Returns the length that a header block (without its final blank line) announces.
///
/// # Errors
/// Tells why the block cannot be used.
pub fn content_length(header: &[u8]) -> Result<usize, BadHeader> {
    let mut length = None;
    for line in header.split(|b| *b == b'\n') {
        let Some(colon) = line.iter().position(|b| *b == b':') else {
            continue;
        };
        if line[..colon]
            .trim_ascii()
            .eq_ignore_ascii_case(b"content-length")
        {
            let text = std::str::from_utf8(line[colon + 1..].trim_ascii())
                .map_err(|_| BadHeader::NotANumber)?;
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(BadHeader::NotANumber);
            }
            // A number too long for u64 is a number too large.
            length = Some(text.parse::<u64>().unwrap_or(u64::MAX));
        }
    }
    match length {
        None => Err(BadHeader::NoLength),
        Some(n) if n > limits::MESSAGE as u64 => Err(BadHeader::TooLarge),
        Some(n) => Ok(n as usize),
    }
}

/// Returns where a header block ends: `(length of the block, start of the body)`. Bare line feeds are taken too.
pub fn header_end(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut at = 0;
    while let Some(nl) = bytes[at..].iter().position(|b| *b == b'\n').map(|i| at + i) {
        match &bytes[nl + 1..] {
            [b'\n', ..] => return Some((nl, nl + 2)),
            [b'\r', b'\n', ..] => return Some((nl, nl + 3)),
            _ => at = nl + 1,
        }
    }
    None
}

/// Appends `body` to `out` as one message.
pub fn encode(framing: Framing, body: &[u8], out: &mut Vec<u8>) {
    match framing {
        Framing::Lsp => {
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", body.len()).as_bytes());
            out.extend_from_slice(body);
        }
        Framing::Lines => {
            out.extend_from_slice(body);
            out.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_and_foreign_headers_are_taken() {
        assert_eq!(
            content_length(b"content-length: 12\r\nX: y\r\nContent-Type: a"),
            Ok(12)
        );
    }

    #[test]
    fn an_absurd_length_is_refused_before_anything_is_allocated() {
        assert_eq!(
            content_length(b"Content-Length: 18446744073709551615"),
            Err(BadHeader::TooLarge)
        );
        assert_eq!(
            content_length(b"Content-Length: 99999999999999999999999"),
            Err(BadHeader::TooLarge)
        );
        assert_eq!(
            content_length(b"Content-Length: -1"),
            Err(BadHeader::NotANumber)
        );
        assert_eq!(
            content_length(b"Content-Length:"),
            Err(BadHeader::NotANumber)
        );
        assert_eq!(content_length(b"X: 1"), Err(BadHeader::NoLength));
    }

    #[test]
    fn a_header_block_ends_at_its_blank_line() {
        assert_eq!(header_end(b"A: 1\r\n\r\n{}"), Some((5, 8)));
        assert_eq!(header_end(b"A: 1\n\n{}"), Some((4, 6)));
        assert_eq!(header_end(b"A: 1\r\n"), None);
    }
}
