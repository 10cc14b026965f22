//! What a program asks of its terminal, found in its output without an emulator: questions that wait for an answer,
//! the modes that change what keys send, the bell, and the title of the window.
//!
//! Every byte of every terminal passes here, also where nobody looks, so text costs one search for an escape.

use std::sync::atomic::{AtomicU8, Ordering};

use memchr::memchr2;

/// Bytes of a sequence that can be one of ours; of a longer title this is told.
const LONGEST: usize = 256;

/// What a terminal is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Query {
    /// What are you (DA1, DA2, DA3)?
    Primary,
    Secondary,
    Tertiary,
    /// Are you well?
    Status,
    /// Where is the cursor? The private form has a `?`.
    Cursor {
        private: bool,
    },
    /// Is this mode set?
    Mode {
        private: bool,
        number: u16,
    },
    /// Name and version.
    Version,
    /// How many lines and columns?
    Window,
    /// The colour of text (10), ground (11) or cursor (12), or one of the palette.
    Color {
        what: Paint,
        bell: bool,
    },
    /// A capability of the terminfo kind (XTGETTCAP), a setting (DECRQSS).
    Capability,
    Setting,
    /// Dark or light?
    Theme,
}

/// Whose colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Paint {
    Text,
    Ground,
    Cursor,
    Palette(u8),
}

/// What was found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Questions, each with the offset behind it.
    pub(crate) questions: Vec<(u64, Query)>,
    /// The bell was rung.
    pub(crate) bell: bool,
    /// The newest title; empty where it was taken away.
    pub(crate) title: Option<String>,
}

/// The modes that keys depend on, as the program has set them last.
#[derive(Debug, Default)]
pub(crate) struct Modes(AtomicU8);

const APPLICATION_CURSOR: u8 = 1;
const BRACKETED_PASTE: u8 = 2;

impl Modes {
    /// Cursor keys send other sequences.
    pub(crate) fn application_cursor(&self) -> bool {
        self.0.load(Ordering::Acquire) & APPLICATION_CURSOR != 0
    }

    /// A paste comes in brackets.
    pub(crate) fn bracketed_paste(&self) -> bool {
        self.0.load(Ordering::Acquire) & BRACKETED_PASTE != 0
    }

    fn set(&self, mode: u8, on: bool) {
        if on {
            self.0.fetch_or(mode, Ordering::AcqRel);
        } else {
            self.0.fetch_and(!mode, Ordering::AcqRel);
        }
    }
}

/// A reader of one terminal's output; sequences may be split anywhere.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    place: Place,
    /// What was read of a sequence; more than [`LONGEST`] bytes are none of ours.
    held: Vec<u8>,
    /// Bytes read so far.
    at: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Text,
    Escape,
    Sequence,
    /// `]`: an OSC string, which a bell may end.
    Command,
    /// `P`: a DCS string.
    Data,
}

impl Scan {
    /// A reader that begins behind so many bytes.
    pub(crate) fn from(at: u64) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    /// Offset of the next byte that it wants.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Bytes are missing here.
    pub(crate) fn skip_to(&mut self, at: u64) {
        *self = Self::from(at);
    }

    /// Reads on, and adds what it finds.
    pub(crate) fn read(&mut self, bytes: &[u8], modes: &Modes, found: &mut Found) {
        let mut done = 0;
        while done < bytes.len() {
            if self.place == Place::Text {
                match memchr2(0x1b, 0x07, &bytes[done..]) {
                    Some(n) => done += n + 1,
                    None => break,
                }
                if bytes[done - 1] == 0x07 {
                    found.bell = true;
                    continue;
                }
                self.place = Place::Escape;
                done += skip(&bytes[done..], &mut self.place);
                continue;
            }
            let query = self.step(bytes[done], modes, &mut found.title);
            done += 1;
            let query = query.map(|query| (self.at + done as u64, query));
            found.questions.extend(query);
        }
        self.at += bytes.len() as u64;
    }

    fn step(&mut self, byte: u8, modes: &Modes, title: &mut Option<String>) -> Option<Query> {
        match (self.place, byte) {
            (_, 0x18 | 0x1a) => self.place = Place::Text,
            (Place::Command | Place::Data, 0x1b) => {
                // The end of the string, whatever follows.
                let query = self.string(false, title);
                self.place = Place::Escape;
                return query;
            }
            (_, 0x1b) => self.place = Place::Escape,
            (Place::Escape, _) => self.escape(byte, modes),
            (Place::Sequence, 0x40..=0x7e) => {
                self.place = Place::Text;
                return self.sequence(byte, modes);
            }
            (Place::Sequence, 0x20..=0x3f) => self.hold(byte),
            (Place::Command, 0x07) => {
                self.place = Place::Text;
                return self.string(true, title);
            }
            (Place::Command | Place::Data, 0x20..) => self.hold(byte),
            _ => {}
        }
        None
    }

    fn hold(&mut self, byte: u8) {
        if self.held.len() <= LONGEST {
            self.held.push(byte);
        }
    }

    fn escape(&mut self, byte: u8, modes: &Modes) {
        self.held.clear();
        self.place = match byte {
            b'[' => Place::Sequence,
            b']' => {
                self.held.push(b']');
                Place::Command
            }
            b'P' => {
                self.held.push(b'P');
                Place::Data
            }
            0x20..=0x7e => {
                if byte == b'c' {
                    modes.set(APPLICATION_CURSOR | BRACKETED_PASTE, false);
                }
                Place::Text
            }
            _ => Place::Escape,
        };
    }

    fn sequence(&self, last: u8, modes: &Modes) -> Option<Query> {
        let body = std::str::from_utf8(&self.held).ok()?;
        if self.held.len() > LONGEST {
            return None;
        }
        Some(match (body, last) {
            ("" | "0", b'c') => Query::Primary,
            (">" | ">0", b'c') => Query::Secondary,
            ("=" | "=0", b'c') => Query::Tertiary,
            ("5", b'n') => Query::Status,
            ("6", b'n') => Query::Cursor { private: false },
            ("?6", b'n') => Query::Cursor { private: true },
            ("?996", b'n') => Query::Theme,
            (">" | ">0", b'q') => Query::Version,
            ("18", b't') => Query::Window,
            ("!", b'p') => {
                modes.set(APPLICATION_CURSOR, false);
                return None;
            }
            (_, b'p') => {
                let number = body.strip_suffix('$')?;
                let private = number.starts_with('?');
                let number = number.trim_start_matches('?').parse().ok()?;
                Query::Mode { private, number }
            }
            (_, b'h' | b'l') => {
                let numbers = body.strip_prefix('?')?.split(';');
                for number in numbers {
                    match number {
                        "1" => modes.set(APPLICATION_CURSOR, last == b'h'),
                        "2004" => modes.set(BRACKETED_PASTE, last == b'h'),
                        _ => {}
                    }
                }
                return None;
            }
            _ => return None,
        })
    }

    fn string(&self, bell: bool, title: &mut Option<String>) -> Option<Query> {
        let body = &self.held[..self.held.len().min(LONGEST)];
        for kind in [&b"]0;"[..], b"]2;"] {
            if let Some(text) = body.strip_prefix(kind) {
                *title = Some(String::from_utf8_lossy(text).into_owned());
                return None;
            }
        }
        if self.held.starts_with(b"P+q") {
            return Some(Query::Capability);
        }
        if self.held.starts_with(b"P$q") {
            return Some(Query::Setting);
        }
        let what = match self.held.as_slice() {
            b"]10;?" => Paint::Text,
            b"]11;?" => Paint::Ground,
            b"]12;?" => Paint::Cursor,
            palette => {
                let number = palette.strip_prefix(b"]4;")?.strip_suffix(b";?")?;
                Paint::Palette(std::str::from_utf8(number).ok()?.parse().ok()?)
            }
        };
        Some(Query::Color { what, bell })
    }
}

/// Passes over a whole sequence that is no question and sets no mode of ours: colours, mostly.
fn skip(bytes: &[u8], place: &mut Place) -> usize {
    if bytes.first() != Some(&b'[') {
        return 0;
    }
    let end = bytes[1..].iter().position(|b| !(0x20..=0x3f).contains(b));
    match end.map(|end| (end + 2, bytes[end + 1])) {
        Some((length, 0x40..=0x7e))
            if !matches!(
                bytes[length - 1],
                b'c' | b'h' | b'l' | b'n' | b'p' | b'q' | b't'
            ) =>
        {
            *place = Place::Text;
            length
        }
        _ => 0,
    }
}

impl Query {
    /// Its answer, where that depends on nothing.
    pub(crate) fn answer(self) -> Option<String> {
        Some(match self {
            // A VT220 with colours; enough for every program that only waits for an answer.
            Self::Primary => "\x1b[?62;22c".into(),
            Self::Secondary => "\x1b[>1;10;0c".into(),
            Self::Tertiary => "\x1bP!|00000000\x1b\\".into(),
            Self::Status => "\x1b[0n".into(),
            Self::Version => format!("\x1bP>|ostler {}\x1b\\", ostler_proto::VERSION),
            Self::Color { what, bell } => color(what, bell),
            // Unknown, as a terminal says it.
            Self::Capability => "\x1bP0+r\x1b\\".into(),
            Self::Setting => "\x1bP0$r\x1b\\".into(),
            Self::Theme => "\x1b[?997;1n".into(),
            Self::Cursor { .. } | Self::Mode { .. } | Self::Window => return None,
        })
    }
}

fn color(what: Paint, bell: bool) -> String {
    let end = if bell { "\x07" } else { "\x1b\\" };
    let (name, [r, g, b]) = match what {
        Paint::Text => ("10".to_owned(), [0xd8; 3]),
        Paint::Ground => ("11".to_owned(), [0; 3]),
        Paint::Cursor => ("12".to_owned(), [0xd8; 3]),
        Paint::Palette(n) => (format!("4;{n}"), palette(n)),
    };
    format!("\x1b]{name};rgb:{r:02x}{r:02x}/{g:02x}{g:02x}/{b:02x}{b:02x}{end}")
}

/// The palette that terminals agree on: sixteen colours, a cube of six by six by six, and grey.
fn palette(n: u8) -> [u8; 3] {
    match n {
        0..=15 => {
            let on = match n {
                0..=6 => 0xcd,
                7 => 0xe5,
                8 => return [0x7f; 3],
                _ => 0xff,
            };
            [1, 2, 4].map(|bit| if n & bit != 0 { on } else { 0 })
        }
        16..=231 => {
            let level = |n: u8| if n == 0 { 0 } else { 55 + 40 * n };
            let n = n - 16;
            [level(n / 36), level(n / 6 % 6), level(n % 6)]
        }
        _ => [8 + 10 * (n - 232); 3],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(text: &str, piece: usize) -> (Vec<(u64, Query)>, Modes) {
        let (found, modes) = all(text, piece);
        (found.questions, modes)
    }

    fn all(text: &str, piece: usize) -> (Found, Modes) {
        let (mut scan, modes, mut found) = (Scan::default(), Modes::default(), Found::default());
        for bytes in text.as_bytes().chunks(piece) {
            scan.read(bytes, &modes, &mut found);
        }
        assert_eq!(scan.at(), text.len() as u64);
        (found, modes)
    }

    #[test]
    fn questions_are_found_however_they_are_split() {
        let asked = [
            ("\x1b[c", Query::Primary),
            ("\x1b[0c", Query::Primary),
            ("\x1b[>c", Query::Secondary),
            ("\x1b[6n", Query::Cursor { private: false }),
            (
                "\x1b[?2026$p",
                Query::Mode {
                    private: true,
                    number: 2026,
                },
            ),
            ("\x1b[>0q", Query::Version),
            (
                "\x1b]11;?\x07",
                Query::Color {
                    what: Paint::Ground,
                    bell: true,
                },
            ),
            (
                "\x1b]4;12;?\x1b\\",
                Query::Color {
                    what: Paint::Palette(12),
                    bell: false,
                },
            ),
            ("\x1bP+q544e;524742\x1b\\", Query::Capability),
            ("\x1b[18t", Query::Window),
        ];
        for (text, query) in asked {
            let text = format!("é \x1b[31mx\x1b]0;title\x07{text}y");
            for piece in [1, 2, 5, 100] {
                let (found, _) = scanned(&text, piece);
                assert_eq!(found.len(), 1, "{text:?}");
                assert_eq!(found[0].1, query, "{text:?}");
                // An ST has one byte more, which ends nothing.
                let behind = text.len() as u64 - found[0].0;
                assert!(behind == 1 || behind == 2, "{text:?}: {behind}");
            }
        }
    }

    #[test]
    fn what_is_no_question_is_none() {
        let text = "\x1b[31m\x1b[2J\x1b[?25h\x1b[1;6H\x1b]2;c\x07\x1b]11;#fff\x07\x1b[>4;2m\x1b[?u\x1b[14t c 6n \x1b[\x186n\x1b(c";
        assert_eq!(scanned(text, 3).0, []);
        let endless = format!("\x1b[{}c\x1b]{}", "1;".repeat(5_000), "x".repeat(100_000));
        assert_eq!(scanned(&endless, 4_096).0, []);
    }

    #[test]
    fn bell_and_title_are_heard_and_the_end_of_a_title_is_no_bell() {
        for piece in [1, 3, 100] {
            let (found, _) = all("a\x1b]0;one\x07b\x1b]2;tw\u{f6}\x1b\\c", piece);
            assert_eq!(
                (found.bell, found.title.as_deref()),
                (false, Some("tw\u{f6}"))
            );
            let (found, _) = all("a\x07b\x1b]2;\x07\x1b]1;icon\x07", piece);
            assert_eq!((found.bell, found.title.as_deref()), (true, Some("")));
        }
        let (found, _) = all(&format!("\x1b]2;{}\x07", "x".repeat(9_999)), 64);
        assert_eq!(found.title.unwrap().len(), LONGEST - 3);
    }

    #[test]
    fn modes_follow_the_program() {
        let (_, modes) = scanned("\x1b[?1h\x1b=\x1b[?25;2004h", 2);
        assert!(modes.application_cursor() && modes.bracketed_paste());
        let (_, modes) = scanned("\x1b[?1h\x1b[?2004h\x1b[?1l\x1b[?2004l", 1);
        assert!(!modes.application_cursor() && !modes.bracketed_paste());
        let (_, modes) = scanned("\x1b[?1;2004h\x1b[!p", 100);
        assert!(!modes.application_cursor() && modes.bracketed_paste());
        let (_, modes) = scanned("\x1b[?1;2004h\x1bc", 100);
        assert!(!modes.application_cursor() && !modes.bracketed_paste());
    }

    #[test]
    fn the_palette_is_that_of_every_terminal() {
        assert_eq!(palette(1), [0xcd, 0, 0]);
        assert_eq!(palette(196), [255, 0, 0]);
        assert_eq!(palette(16), [0; 3]);
        assert_eq!(palette(255), [238; 3]);
        let answer = Query::Color {
            what: Paint::Ground,
            bell: true,
        };
        assert_eq!(answer.answer().unwrap(), "\x1b]11;rgb:0000/0000/0000\x07");
    }
}
