//! Prompt marks in the output of a shell: `ESC ] 133 ; LETTER … BEL` with the nonce of that shell.
//!
//! A terminal ignores them, so they stand in the log as they came. What has no nonce, or another one, is ordinary
//! output: many shells and users print marks of their own. Where a mark begins and ends is known to the byte, which is
//! what makes the output of a line exact.

/// A mark longer than this is none: the longest one holds a path.
const LONGEST: usize = 8 * 1024;
const PREFIX: &[u8] = b"\x1b]133;";
const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Letter {
    /// `A`: the prompt begins.
    Prompt,
    /// `B`: the prompt has been printed, a line may come.
    Input,
    /// `P`: the shell asks for the rest of a line.
    More,
    /// `H`: a typed line starts.
    Typed,
    /// `C`: the output of a line that we handed over starts.
    Output,
    /// `D`: a line has ended.
    Done,
}

/// One mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) letter: Letter,
    /// Offset of its first byte in the log.
    pub(crate) from: u64,
    /// Offset behind its last one.
    pub(crate) to: u64,
    /// Which of our lines it is about; what a prompt's hook prints has none.
    pub(crate) number: Option<u64>,
    /// Exit code of the line.
    pub(crate) code: Option<i32>,
    /// Directory of the shell as it calls it.
    pub(crate) cwd: Option<String>,
}

/// Finds the marks of one shell in its output, which may come in pieces of any size.
#[derive(Debug)]
pub(crate) struct Scanner {
    /// `k=NONCE`.
    key: String,
    /// Offset of the next byte to be fed.
    at: u64,
    /// The begin of what may become a mark; it ends at `at`.
    part: Vec<u8>,
}

impl Scanner {
    pub(crate) fn new(nonce: &str, at: u64) -> Self {
        Self {
            key: format!("k={nonce}"),
            at,
            part: Vec::new(),
        }
    }

    /// Offset of the next byte to be fed.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Offset up to which it is known what the bytes are: behind it may stand the begin of a mark.
    pub(crate) fn known(&self) -> u64 {
        self.at - self.part.len() as u64
    }

    /// Goes on at another offset: what is between is not known.
    pub(crate) fn jump(&mut self, at: u64) {
        self.at = at;
        self.part.clear();
    }

    /// Takes the next bytes; tells each mark that ends in them.
    pub(crate) fn feed(&mut self, bytes: &[u8], mut found: impl FnMut(Mark)) {
        let begin = self.at - self.part.len() as u64;
        self.at += bytes.len() as u64;
        if self.part.is_empty() {
            let kept = self.search(begin, bytes, &mut found);
            self.part.extend_from_slice(&bytes[kept..]);
        } else {
            let mut all = std::mem::take(&mut self.part);
            all.extend_from_slice(bytes);
            let kept = self.search(begin, &all, &mut found);
            all.drain(..kept);
            self.part = all;
        }
    }

    /// Searches a text whose first byte is at `begin`; returns where what may go on in the next one starts.
    fn search(&self, begin: u64, text: &[u8], found: &mut impl FnMut(Mark)) -> usize {
        let mut i = 0;
        while let Some(at) = memchr::memchr(ESC, &text[i..]).map(|n| i + n) {
            let rest = &text[at..];
            if rest.len() < PREFIX.len() && PREFIX.starts_with(rest) {
                return at;
            }
            i = at + 1;
            if !rest.starts_with(PREFIX) {
                continue;
            }
            let body = &rest[PREFIX.len()..];
            match memchr::memchr2(BEL, ESC, &body[..body.len().min(LONGEST)]) {
                Some(n) if body[n] == BEL => {
                    let to = at + PREFIX.len() + n + 1;
                    let span = (begin + at as u64, begin + to as u64);
                    if let Some(mark) = self.read(&body[..n], span) {
                        found(mark);
                    }
                    i = to;
                }
                None if body.len() < LONGEST => return at,
                // Another sequence begins in it, or it never ends: no mark of ours.
                _ => {}
            }
        }
        text.len()
    }

    /// `LETTER[;CODE];k=NONCE[;n=NUMBER][;DIRECTORY]`; the directory is last because it may hold anything.
    fn read(&self, body: &[u8], (from, to): (u64, u64)) -> Option<Mark> {
        let body = String::from_utf8_lossy(body);
        let (letter, rest) = body.split_once(';')?;
        let letter = match letter {
            "A" => Letter::Prompt,
            "B" => Letter::Input,
            "P" => Letter::More,
            "H" => Letter::Typed,
            "C" => Letter::Output,
            "D" => Letter::Done,
            _ => return None,
        };
        let (code, rest) = match rest.split_once(';') {
            Some((code, rest)) if !code.starts_with("k=") => (code.parse().ok(), rest),
            _ => (None, rest),
        };
        let (key, rest) = rest.split_once(';').unwrap_or((rest, ""));
        if key != self.key {
            return None;
        }
        let (number, rest) = match rest.strip_prefix("n=") {
            Some(rest) => {
                let (number, rest) = rest.split_once(';').unwrap_or((rest, ""));
                (number.parse().ok(), rest)
            }
            None => (None, rest),
        };
        let cwd = Some(rest).filter(|p| p.starts_with('/')).map(str::to_owned);
        Some(Mark {
            letter,
            from,
            to,
            number,
            code,
            cwd,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(pieces: &[&[u8]]) -> Vec<Mark> {
        let mut scanner = Scanner::new("n0", 0);
        let mut found = Vec::new();
        for piece in pieces {
            scanner.feed(piece, |m| found.push(m));
        }
        found
    }

    #[test]
    fn a_mark_says_where_it_stands_and_what_it_knows() {
        let text = b"$ \x1b]133;C;k=n0;n=7\x07out\x1b]133;D;3;k=n0;n=7;/a;b\x07";
        let found = marks(&[text]);
        assert_eq!(
            (found[0].letter, found[0].from, found[0].to),
            (Letter::Output, 2, 19)
        );
        let done = &found[1];
        assert_eq!(
            (done.letter, done.code, done.number),
            (Letter::Done, Some(3), Some(7))
        );
        assert_eq!((done.from, done.cwd.as_deref()), (22, Some("/a;b")));
    }

    #[test]
    fn a_mark_in_single_bytes_is_the_same_mark() {
        let text = b"ab\x1b[1m\x1b]133;B;k=n0\x07c\x1b]133;D;0;k=n0;/\x07\x1b";
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(marks(&bytes), marks(&[text]));
        assert_eq!(marks(&bytes).len(), 2);
    }

    #[test]
    fn marks_without_the_nonce_are_output() {
        let foreign =
            b"\x1b]133;B\x07\x1b]133;D;0;k=other;/\x07\x1b]133;A;k=n0x\x07\x1b]133;Z;k=n0\x07";
        assert_eq!(marks(&[foreign]), []);
    }

    #[test]
    fn an_unfinished_foreign_mark_does_not_swallow_ours() {
        let text = b"\x1b]133;A\x1b\\\x1b]133;\x1b]133;B;k=n0\x07";
        assert_eq!(marks(&[text]).len(), 1);
        let mut endless = b"\x1b]133;B;k=n0;".to_vec();
        endless.extend(vec![b'x'; 3 * LONGEST]);
        endless.extend_from_slice(b"\x1b]133;B;k=n0\x07");
        let mut scanner = Scanner::new("n0", 0);
        let mut n = 0;
        for piece in endless.chunks(1_000) {
            scanner.feed(piece, |_| n += 1);
            assert!(scanner.part.len() <= LONGEST + PREFIX.len() + 1_000);
        }
        assert_eq!(n, 1);
    }
}
