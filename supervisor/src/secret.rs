//! Random words: tokens, folder names, the random part of process ids. From the kernel, never from a clock.

use sha2::{Digest, Sha256};

/// A session token: 32 random bytes in hex.
pub(crate) fn token() -> String {
    hex(&random::<32>())
}

/// A short random word for ids that nobody has to guess.
pub(crate) fn word() -> String {
    hex(&random::<4>())
}

/// A ULID with a fresh random part, never the last one plus one: knowing one must not help to guess another.
pub(crate) fn ulid() -> String {
    let random = u128::from_le_bytes(random::<16>());
    ulid::Ulid::from_parts(crate::clock::Moment::now().wall, random).to_string()
}

/// What is kept of a token. Comparing hashes takes the same time wherever they differ in the token.
pub(crate) fn hash(token: &str) -> String {
    hex(&Sha256::digest(token.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // SAFETY: the buffer is valid for its length; requests up to 256 bytes are never cut short or interrupted.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), N, 0) };
    assert_eq!(
        got, N as isize,
        "without random numbers nothing of this program is safe"
    );
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_fresh() {
        assert_ne!(token(), token());
        assert_ne!(&ulid()[10..], &ulid()[10..]);
        assert_eq!(hash("a"), hash("a"));
    }
}
