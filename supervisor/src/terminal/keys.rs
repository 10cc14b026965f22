//! What keys send: names as people and tools write them, to the bytes of an xterm.

use ostler_proto::refusal::Refusal;

/// Keys that have a name and send the same whatever is held with them but Meta.
const PLAIN: &[(&str, &[u8])] = &[
    ("Enter", b"\r"),
    ("Tab", b"\t"),
    ("Escape", b"\x1b"),
    ("Space", b" "),
    ("Backspace", b"\x7f"),
];

/// Keys that end their sequence with a letter; the first four have another one in application mode.
const LETTERS: &[(&str, u8)] = &[
    ("Up", b'A'),
    ("Down", b'B'),
    ("Right", b'C'),
    ("Left", b'D'),
    ("Home", b'H'),
    ("End", b'F'),
    ("F1", b'P'),
    ("F2", b'Q'),
    ("F3", b'R'),
    ("F4", b'S'),
];

/// Keys that have a number.
const NUMBERS: &[(&str, u8)] = &[
    ("Insert", 2),
    ("Delete", 3),
    ("PageUp", 5),
    ("PageDown", 6),
    ("F5", 15),
    ("F6", 17),
    ("F7", 18),
    ("F8", 19),
    ("F9", 20),
    ("F10", 21),
    ("F11", 23),
    ("F12", 24),
];

/// Other names of the same keys.
const ALIASES: &[(&str, &str)] = &[
    ("Return", "Enter"),
    ("Esc", "Escape"),
    ("Del", "Delete"),
    ("Ins", "Insert"),
    ("PgUp", "PageUp"),
    ("PgDn", "PageDown"),
];

/// Begin and end of a paste.
const PASTE: (&str, &str) = ("\x1b[200~", "\x1b[201~");

/// What is held with a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Held {
    shift: bool,
    meta: bool,
    control: bool,
}

impl Held {
    /// The parameter of a sequence.
    fn number(self) -> u8 {
        1 + u8::from(self.shift) + 2 * u8::from(self.meta) + 4 * u8::from(self.control)
    }
}

/// The bytes of one key. `application`: the program asked for the other cursor keys.
///
/// # Errors
/// There is no such key; names the one that is most like it.
pub(crate) fn press(word: &str, application: bool) -> Result<Vec<u8>, Refusal> {
    let unknown = || unknown(word);
    let (held, key) = held(word);
    let mut sent = Vec::new();
    let mut chars = key.chars();
    if let (Some(c), None) = (chars.next(), chars.next()) {
        character(c, held, &mut sent).ok_or_else(unknown)?;
        return Ok(sent);
    }
    let key = ALIASES.iter().find(|(alias, _)| same(alias, key));
    let key = key.map_or(self::held(word).1, |(_, name)| *name);
    if let Some((_, bytes)) = PLAIN.iter().find(|(name, _)| same(name, key)) {
        plain(bytes, held, &mut sent).ok_or_else(unknown)?;
    } else if let Some((name, letter)) = LETTERS.iter().find(|(name, _)| same(name, key)) {
        let one_shift = application || name.starts_with('F');
        match held.number() {
            1 if one_shift => sent.extend([0x1b, b'O', *letter]),
            1 => sent.extend([0x1b, b'[', *letter]),
            n => sent.extend(format!("\x1b[1;{n}{}", char::from(*letter)).bytes()),
        }
    } else if let Some((_, number)) = NUMBERS.iter().find(|(name, _)| same(name, key)) {
        match held.number() {
            1 => sent.extend(format!("\x1b[{number}~").bytes()),
            n => sent.extend(format!("\x1b[{number};{n}~").bytes()),
        }
    } else {
        return Err(unknown());
    }
    Ok(sent)
}

/// The bytes of a paste: with line ends as Enter sends them, in brackets if the program asked for them. What would end
/// the brackets from within is left out.
pub(crate) fn paste(text: &str, bracketed: bool) -> Vec<u8> {
    let mut text = text.replace("\r\n", "\r").replace('\n', "\r");
    if !bracketed {
        return text.into_bytes();
    }
    // Again and again: what is left out may bring two halves together.
    while text.contains(PASTE.1) {
        text = text.replace(PASTE.1, "");
    }
    [PASTE.0, &text, PASTE.1].concat().into_bytes()
}

/// Whether these bytes are nothing but what a terminal tells by itself: answers to questions, and that its window came
/// to the front. Nobody has typed them.
pub(crate) fn is_report(mut bytes: &[u8]) -> bool {
    if bytes.is_empty() {
        return false;
    }
    while !bytes.is_empty() {
        let Some(length) = report(bytes) else {
            return false;
        };
        bytes = &bytes[length..];
    }
    true
}

/// The length of the report that stands at the beginning.
fn report(bytes: &[u8]) -> Option<usize> {
    match bytes {
        [0x1b, b'[', rest @ ..] => {
            let end = rest.iter().position(|b| (0x40..=0x7e).contains(b))?;
            let (body, last) = (&rest[..end], rest[end]);
            let told = match last {
                b'c' | b'n' | b'y' | b'u' => body.first().is_some_and(|b| *b == b'?' || *b == b'>'),
                // The position of the cursor; F3 with something held has a 1 in its place.
                b'R' => body.contains(&b';') && !body.starts_with(b"1;"),
                b'I' | b'O' => body.is_empty(),
                b't' => body.contains(&b';'),
                _ => false,
            };
            (told || (body == b"0" && last == b'n')).then_some(end + 3)
        }
        [0x1b, b']' | b'P', rest @ ..] => {
            let bell = rest.iter().position(|b| *b == 0x07).map(|at| at + 1);
            let end = rest.windows(2).position(|two| two == b"\x1b\\");
            let end = end.map(|at| at + 2);
            Some(2 + bell.into_iter().chain(end).min()?)
        }
        _ => None,
    }
}

fn same(name: &str, word: &str) -> bool {
    name.eq_ignore_ascii_case(word)
}

fn held(word: &str) -> (Held, &str) {
    let (mut held, mut key) = (Held::default(), word);
    loop {
        let rest = match key.as_bytes() {
            [b'C', b'-', _, ..] => {
                held.control = true;
                &key[2..]
            }
            [b'M', b'-', _, ..] => {
                held.meta = true;
                &key[2..]
            }
            [b'S', b'-', _, ..] => {
                held.shift = true;
                &key[2..]
            }
            _ => return (held, key),
        };
        key = rest;
    }
}

/// A key of one character. NUL has a name, and nothing else sends it.
fn character(c: char, held: Held, sent: &mut Vec<u8>) -> Option<()> {
    if held.meta {
        sent.push(0x1b);
    }
    let c = match (held.shift, c) {
        (true, c) if c.is_ascii_alphabetic() => c.to_ascii_uppercase(),
        (true, _) | (_, '\0') => return None,
        (false, c) => c,
    };
    if held.control {
        sent.push(match c {
            'a'..='z' | 'A'..='Z' => c as u8 & 0x1f,
            '@' => 0,
            '[' | '\\' | ']' | '^' | '_' => c as u8 & 0x1f,
            '/' => 0x1f,
            '?' => 0x7f,
            _ => return None,
        });
    } else {
        sent.extend(c.encode_utf8(&mut [0; 4]).bytes());
    }
    Some(())
}

fn plain(bytes: &[u8], held: Held, sent: &mut Vec<u8>) -> Option<()> {
    if held.meta {
        sent.push(0x1b);
    }
    match (bytes, held.control, held.shift) {
        (b" ", true, false) => sent.push(0),
        (b"\x7f", true, false) => sent.push(0x08),
        (b"\t", false, true) => sent.extend(b"\x1b[Z"),
        (_, false, false) => sent.extend(bytes),
        _ => return None,
    }
    Some(())
}

fn unknown(word: &str) -> Refusal {
    let refusal = Refusal::bad("keys", format!("has no key {word:?}"));
    match nearest(word) {
        Some(near) => refusal.hint(format!("did you mean {near}?")),
        None => refusal.hint("C-c, M-x, Up, F5, Enter or one character; a text is sent or pasted"),
    }
}

/// The key whose name is most like a word, with what is held.
fn nearest(word: &str) -> Option<String> {
    const SLIPS: usize = 2;
    let (_, key) = held(word);
    let before = &word[..word.len() - key.len()];
    let names = PLAIN.iter().map(|(name, _)| *name);
    let names = names.chain(LETTERS.iter().chain(NUMBERS).map(|(name, _)| *name));
    let key = key.to_ascii_lowercase();
    let slips = |name: &str| strsim::osa_distance(&key, &name.to_ascii_lowercase());
    let (slips, name) = names.map(|name| (slips(name), name)).min()?;
    (slips <= SLIPS && slips * 2 <= name.len() && slips > 0).then(|| format!("{before}{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(word: &str) -> Vec<u8> {
        press(word, false).unwrap()
    }

    #[test]
    fn keys_send_what_an_xterm_sends() {
        let table: &[(&str, &[u8])] = &[
            ("C-c", b"\x03"),
            ("C-C", b"\x03"),
            ("C-Space", b"\0"),
            ("C-@", b"\0"),
            ("C-[", b"\x1b"),
            ("C-]", b"\x1d"),
            ("C-?", b"\x7f"),
            ("M-x", b"\x1bx"),
            ("M-C-c", b"\x1b\x03"),
            ("C-M-c", b"\x1b\x03"),
            ("S-a", b"A"),
            ("x", b"x"),
            ("-", b"-"),
            ("\u{e9}", b"\xc3\xa9"),
            ("Enter", b"\r"),
            ("enter", b"\r"),
            ("Return", b"\r"),
            ("M-Enter", b"\x1b\r"),
            ("Tab", b"\t"),
            ("S-Tab", b"\x1b[Z"),
            ("Escape", b"\x1b"),
            ("Space", b" "),
            ("Backspace", b"\x7f"),
            ("C-Backspace", b"\x08"),
            ("Up", b"\x1b[A"),
            ("Home", b"\x1b[H"),
            ("C-Left", b"\x1b[1;5D"),
            ("S-F5", b"\x1b[15;2~"),
            ("S-F1", b"\x1b[1;2P"),
            ("M-S-PageUp", b"\x1b[5;4~"),
            ("F1", b"\x1bOP"),
            ("F12", b"\x1b[24~"),
            ("Delete", b"\x1b[3~"),
            ("PgDn", b"\x1b[6~"),
        ];
        for (word, bytes) in table {
            assert_eq!(sent(word), *bytes, "{word}");
        }
        assert_eq!(press("Up", true).unwrap(), b"\x1bOA");
        assert_eq!(press("End", true).unwrap(), b"\x1bOF");
        assert_eq!(press("C-Up", true).unwrap(), b"\x1b[1;5A");
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_one_that_is_most_like_it() {
        let hint = |word: &str| press(word, false).unwrap_err().hint.unwrap();
        assert_eq!(hint("Entr"), "did you mean Enter?");
        assert_eq!(hint("C-lfet"), "did you mean C-Left?");
        assert_eq!(hint("F13"), "did you mean F1?");
        assert!(hint("hello").starts_with("C-c, M-x"));
        for word in ["", "\0", "C-\u{e9}", "C-Enter", "S-1", "C-", "C-1", "Page"] {
            let refused = press(word, false).map(|bytes| format!("{bytes:?}"));
            assert!(refused.is_err(), "{word:?}: {refused:?}");
        }
    }

    #[test]
    fn what_a_terminal_tells_by_itself_was_not_typed() {
        for told in [
            &b"\x1b[?62;22c"[..],
            b"\x1b[>1;10;0c\x1b[0n\x1b[12;40R",
            b"\x1b]11;rgb:0000/0000/0000\x07\x1b]10;rgb:ff/ff/ff\x1b\\",
            b"\x1bP>|tmux 3.3a\x1b\\",
            b"\x1b[I",
            b"\x1b[?2026;2$y",
        ] {
            assert!(is_report(told), "{told:?}");
        }
        for typed in [
            &b""[..],
            b"c",
            b"\x1b",
            b"\x1b[A",
            b"\x1b[1;2R",
            b"\x1b[?62;22cls",
            b"\x1b]unfinished",
            b"\x1bOI",
            b"\x1b[<0;1;1M",
        ] {
            assert!(!is_report(typed), "{typed:?}");
        }
    }

    #[test]
    fn a_paste_cannot_end_itself() {
        assert_eq!(paste("a\nb\r\nc", false), b"a\rb\rc");
        assert_eq!(paste("ls\n", true), b"\x1b[200~ls\r\x1b[201~");
        let evil = "x\x1b[201~rm -rf\n\x1b[20\x1b[201~1~y";
        assert_eq!(paste(evil, true), b"\x1b[200~xrm -rf\ry\x1b[201~");
    }
}
