//! Output in which every byte is a function of its offset, so that a lost, doubled or moved byte shows.
//!
//! Shared by the puppet, which prints it, and by the suites, which compare. Plain text: lines of 16 bytes that
//! hold their own offset in hexadecimal.

/// Bytes of one line, its line end included.
pub const LINE: u64 = 16;

/// Returns the `len` bytes that begin at `offset`.
pub fn bytes(offset: u64, len: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(len + LINE as usize);
    let mut at = offset - offset % LINE;
    while out.len() < len + (offset % LINE) as usize {
        let mut line = [b'0'; LINE as usize];
        line[LINE as usize - 1] = b'\n';
        let mut rest = at;
        let mut digit = LINE as usize - 1;
        while rest > 0 {
            digit -= 1;
            line[digit] = b"0123456789abcdef"[(rest % 16) as usize];
            rest /= 16;
        }
        out.extend_from_slice(&line);
        at += LINE;
    }
    out.drain(..(offset % LINE) as usize);
    out.truncate(len);
    out
}

/// Returns the first offset at which `got`, which should begin at `offset`, differs from the pattern.
pub fn first_difference(offset: u64, got: &[u8]) -> Option<u64> {
    let wanted = bytes(offset, got.len());
    got.iter()
        .zip(&wanted)
        .position(|(a, b)| a != b)
        .map(|n| offset + n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_the_pattern_is_that_piece_of_the_whole() {
        let whole = bytes(0, 4096);
        for (from, len) in [(0, 0), (0, 1), (15, 2), (17, 100), (255, 300), (4095, 1)] {
            assert_eq!(
                bytes(from, len),
                whole[from as usize..][..len],
                "{from}+{len}"
            );
        }
        assert_eq!(&whole[16..32], b"000000000000010\n");
    }

    #[test]
    fn a_lost_byte_is_found_at_its_place() {
        let mut got = bytes(32, 100);
        assert_eq!(first_difference(32, &got), None);
        got.remove(50);
        // The byte after a lost one is equal to it only inside a run of zeros.
        assert!((82..96).contains(&first_difference(32, &got).expect("a difference")));
    }
}
