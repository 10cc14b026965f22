//! The text of an output as a person sees it: without escape sequences, and with every line as it stood at last, when
//! a progress bar has drawn itself over and over.
//!
//! It knows no width: nothing is wrapped. What is drawn at a place of a whole screen begins a line of its own; such
//! programs have a screen to look at.

use alacritty_terminal::vte::{Params, Parser, Perform};
use unicode_width::UnicodeWidthChar;

use super::sieve::Sieve;

/// Characters of a line that has no end; then it is told in pieces.
const LONGEST: usize = 64 * 1024;
/// Characters without a width that a cell takes.
const MARKS: usize = 8;
/// Cells that sequences may fill, clear or move, beside four for each byte of the text: a few bytes can ask for a lot.
const WORK: usize = 4 * 1024;

/// The lines of some bytes. An unfinished one counts, and so does the empty one behind the last line end.
pub(crate) fn lines(bytes: &[u8]) -> Vec<String> {
    let mut folder = Folder::new(usize::MAX);
    folder.read(bytes);
    folder.sheet.rows.iter().map(|row| row.text()).collect()
}

/// The text of some bytes, as they stand alone.
pub(crate) fn plain(bytes: &[u8]) -> String {
    lines(bytes).join("\n")
}

/// Bytes at the end of a piece that are the beginning of a sequence which goes on behind it. Whoever cuts there reads
/// every sequence whole.
pub(crate) fn unfinished(bytes: &[u8]) -> usize {
    /// No sequence that is one is longer.
    const MOST: usize = 4 * 1024;
    let from = bytes.len().saturating_sub(MOST);
    let Some(at) = bytes[from..].iter().rposition(|b| *b == 0x1b) else {
        return 0;
    };
    let tail = &bytes[from + at..];
    let whole = match tail.get(1) {
        None => false,
        Some(b'[') => tail[2..].iter().any(|b| (0x40..=0x7e).contains(b)),
        // The end of a string is an escape itself, which would have been found.
        Some(b']') => tail.contains(&0x07),
        Some(b'P' | b'X' | b'^' | b'_') => false,
        Some(_) => tail[1..].iter().any(|b| (0x30..=0x7e).contains(b)),
    };
    if whole { 0 } else { tail.len() }
}

/// Folds a stream that comes in pieces.
pub(crate) struct Folder {
    parser: Parser,
    sieve: Sieve,
    sheet: Sheet,
}

impl std::fmt::Debug for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Folder").finish_non_exhaustive()
    }
}

impl Folder {
    /// `keep`: lines that may still be changed, the present one included.
    pub(crate) fn new(keep: usize) -> Self {
        Self {
            parser: Parser::new(),
            sieve: Sieve::default(),
            sheet: Sheet {
                done: String::new(),
                rows: vec![Line::default()],
                at: 0,
                work: WORK,
                keep: keep.max(1),
            },
        }
    }

    /// The lines that became final with this piece, each with its end.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.read(bytes);
        std::mem::take(&mut self.sheet.done)
    }

    /// The rest: what has no line end yet.
    pub(crate) fn finish(mut self) -> String {
        let rest: Vec<String> = self.sheet.rows.iter().map(Line::text).collect();
        std::mem::take(&mut self.sheet.done) + &rest.join("\n")
    }

    fn read(&mut self, bytes: &[u8]) {
        let mut passed = Vec::with_capacity(bytes.len());
        self.sieve.pass(bytes, &mut passed);
        self.sheet.work = self.sheet.work.saturating_add(bytes.len() * 4);
        self.parser.advance(&mut self.sheet, &passed);
        if self.sheet.keep < usize::MAX {
            self.sheet.work = self.sheet.work.min(WORK + bytes.len() * 4);
        }
    }
}

/// What may still be changed, and what may not.
struct Sheet {
    done: String,
    /// Never empty.
    rows: Vec<Line>,
    /// The present one.
    at: usize,
    work: usize,
    keep: usize,
}

/// A line, cell by cell.
#[derive(Default)]
struct Line {
    cells: Vec<Cell>,
    column: usize,
}

#[derive(Clone, Default)]
struct Cell {
    /// NUL is the second half of a wide character.
    c: char,
    marks: String,
}

impl Line {
    fn text(&self) -> String {
        let mut text = String::with_capacity(self.cells.len());
        for cell in self.cells.iter().filter(|cell| cell.c != '\0') {
            text.push(cell.c);
            text.push_str(&cell.marks);
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }

    /// Makes a cell blank, and the other half of a wide character with it.
    fn clear(&mut self, at: usize) {
        let Some(cell) = self.cells.get(at) else {
            return;
        };
        let wide = cell.c.width() == Some(2);
        if cell.c == '\0' && at > 0 {
            self.cells[at - 1] = blank();
        }
        if wide && at + 1 < self.cells.len() {
            self.cells[at + 1] = blank();
        }
        self.cells[at] = blank();
    }

    fn clear_range(&mut self, from: usize, to: usize) {
        (from..to.min(self.cells.len())).for_each(|at| self.clear(at));
    }

    fn put(&mut self, c: char, width: usize) {
        for at in self.column..self.column + width {
            if at < self.cells.len() {
                self.clear(at);
            } else {
                self.cells.push(blank());
            }
        }
        self.cells[self.column].c = c;
        if width == 2 {
            self.cells[self.column + 1].c = '\0';
        }
        self.column += width;
    }
}

fn blank() -> Cell {
    Cell {
        c: ' ',
        marks: String::new(),
    }
}

impl Sheet {
    fn row(&mut self) -> &mut Line {
        &mut self.rows[self.at]
    }

    /// Goes to the next line; what falls out of reach is done.
    fn down(&mut self) {
        self.at += 1;
        if self.at == self.rows.len() {
            self.rows.push(Line::default());
        }
        // Whether the terminal adds a carriage return is not in the bytes; people end lines to begin new ones.
        self.row().column = 0;
        while self.rows.len() > self.keep {
            let line = self.rows.remove(0);
            self.done += &line.text();
            self.done.push('\n');
            self.at = self.at.saturating_sub(1);
        }
    }

    /// A new line at the end, unless the last one is empty.
    fn fresh(&mut self) {
        self.at = self.rows.len() - 1;
        if !self.row().cells.is_empty() {
            self.down();
        }
        self.row().column = 0;
    }

    /// Fills the line with blanks up to its column, as far as there are any.
    fn reach(&mut self) {
        let missing = self
            .row()
            .column
            .saturating_sub(self.rows[self.at].cells.len());
        let given = self.afford(missing);
        let row = self.row();
        row.cells.extend(std::iter::repeat_n(blank(), given));
        row.column = row.column.min(row.cells.len());
    }

    /// Pays for some cells; returns for how many there was enough.
    fn afford(&mut self, cells: usize) -> usize {
        let paid = cells.min(self.work);
        self.work -= paid;
        paid
    }

    fn move_to(&mut self, column: usize) {
        self.row().column = column.min(LONGEST);
    }

    fn erase(&mut self, what: u16) {
        let column = self.row().column;
        match what {
            0 => self.row().cells.truncate(column),
            1 => self.clear(0, column + 1),
            _ => self.row().cells.clear(),
        }
    }

    fn clear(&mut self, from: usize, to: usize) {
        let to = to.min(self.row().cells.len());
        let cells = self.afford(to.saturating_sub(from));
        self.row().clear_range(from, from + cells);
    }

    /// Takes cells away; what is behind them moves.
    fn delete(&mut self, count: usize) {
        let row = self.row();
        let (column, length) = (row.column, row.cells.len());
        if column < length && self.afford(length - column) == length - column {
            self.row().cells.drain(column..(column + count).min(length));
        }
    }
}

impl Perform for Sheet {
    fn print(&mut self, c: char) {
        let Some(width) = c.width() else { return };
        if width == 0 {
            let row = self.row();
            let before = row.column.saturating_sub(1);
            let place = row.cells[..row.column.min(row.cells.len())]
                .iter()
                .rposition(|cell| cell.c != '\0')
                .unwrap_or(before);
            if let Some(cell) = row.cells.get_mut(place)
                && cell.marks.chars().count() < MARKS
            {
                cell.marks.push(c);
            }
            return;
        }
        self.reach();
        self.row().put(c, width);
        if self.row().column >= LONGEST && self.keep < usize::MAX {
            let line = std::mem::take(self.row());
            self.done += &line.text();
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\n' | 0x0b | 0x0c => self.down(),
            b'\r' => self.row().column = 0,
            0x08 => self.row().column = self.row().column.saturating_sub(1),
            b'\t' => {
                let column = self.row().column;
                self.move_to((column / 8 + 1) * 8);
            }
            _ => {}
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _: bool, action: char) {
        if !intermediates.is_empty() {
            return;
        }
        let first = params.iter().next().and_then(|p| p.first().copied());
        let given = first.unwrap_or(0);
        let count = usize::from(given.max(1));
        let column = self.row().column;
        match action {
            'C' => self.move_to(column + count),
            'D' => self.move_to(column.saturating_sub(count)),
            'G' | '`' => self.move_to(count - 1),
            'A' | 'F' => {
                self.at = self.at.saturating_sub(count);
                self.row().column = if action == 'F' { 0 } else { column };
            }
            'B' | 'E' => {
                self.at = (self.at + count).min(self.rows.len() - 1);
                self.row().column = if action == 'E' { 0 } else { column };
            }
            'K' => self.erase(given),
            'J' if given == 0 => {
                self.erase(0);
                self.rows.truncate(self.at + 1);
            }
            'J' | 'H' | 'f' | 'd' => self.fresh(),
            'X' => self.clear(column, column + count),
            'P' => self.delete(count),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same text however it is split.
    fn folded(text: &str) -> String {
        let whole = plain(text.as_bytes());
        for piece in [1, 2, 3, 5] {
            let mut folder = Folder::new(64);
            let mut told = String::new();
            for bytes in text.as_bytes().chunks(piece) {
                told += &folder.push(bytes);
            }
            told += &folder.finish();
            assert_eq!(told, whole, "in pieces of {piece}");
        }
        whole
    }

    /// E27: bytes that arrive one by one leave neither a doubled line end nor the rest of an escape.
    #[test]
    fn a_split_escape_or_line_end_leaves_no_rest() {
        assert_eq!(folded("a\r\nb\r\n"), "a\nb\n");
        assert_eq!(
            folded("\x1b[1;31mred\x1b[0m \x1b]0;title\x07x\x1b]2;t\x1b\\y\x1b(B\x1b=z"),
            "red xyz"
        );
        assert_eq!(folded("bell\x07, é漢\u{301}!"), "bell, é漢\u{301}!");
        assert_eq!(folded("kept\x1b]0;no end"), "kept");
        assert_eq!(folded("kept\x1b[38;5"), "kept");
        assert_eq!(folded("\x1bP+q544e\x1b\\after\x1b_x\x1b\\."), "after.");
    }

    #[test]
    fn a_progress_bar_is_the_line_that_it_was_at_last() {
        assert_eq!(folded("10 %\r20 %\r100 %\ndone\n"), "100 %\ndone\n");
        assert_eq!(folded("long words\rshort\x1b[K\n"), "short\n");
        assert_eq!(folded("abc\x08\x08XY\n"), "aXY\n");
        assert_eq!(
            folded("one\ntwo\n\x1b[2A\x1b[2Kuno\n\x1b[2Kdos\n"),
            "uno\ndos\n"
        );
        assert_eq!(folded("a\tb\x1b[3Cc\x1b[2Gx"), "ax      b   c");
        assert_eq!(
            folded("漢字\r\x1b[CX"),
            " X字",
            "half of a wide character is gone whole"
        );
        assert_eq!(folded("abcdef\x1b[3G\x1b[2P\x1b[1X"), "ab f");
        assert_eq!(
            folded("top\x1b[H\x1b[2Jnext\x1b[5;1Hthird"),
            "top\nnext\nthird"
        );
    }

    #[test]
    fn hostile_bytes_cost_no_more_than_their_length() {
        let jumps = "\x1b[60000Cx\n".repeat(100_000);
        let text = plain(jumps.as_bytes());
        assert!(text.len() < jumps.len() * 6, "{} bytes", text.len());
        let mut folder = Folder::new(1);
        let mut told = 0;
        for _ in 0..1_000 {
            told += folder.push(&[b'x'; 4_096]).len();
            told += folder.push("\u{301}".repeat(2_000).as_bytes()).len();
        }
        assert!(
            told > 3_900_000,
            "an endless line is told in pieces: {told}"
        );
        // As much work as a line allows, again and again.
        let mut erasing = "x".repeat(60_000);
        erasing += &"\x1b[1G\x1b[65535X\x1b[65535P".repeat(40_000);
        assert!(plain(erasing.as_bytes()).len() <= 60_000);
    }

    /// A seeded walk over hostile bytes: no panic, whatever comes.
    #[test]
    fn random_bytes_never_panic() {
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let pool =
            b"\x1b[];?0123456789ABCDEFGHJKPXhlm\r\n\x08\t\x07\x18\xe6\xbc\xa2\xcc\x81\xff\x00 ax";
        let mut folder = Folder::new(8);
        for _ in 0..2_000 {
            let piece: Vec<u8> = (0..64)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    pool[(seed % pool.len() as u64) as usize]
                })
                .collect();
            folder.push(&piece);
            plain(&piece);
        }
    }

    #[test]
    fn a_cut_falls_before_an_unfinished_sequence() {
        let rest = |text: &str| unfinished(text.as_bytes());
        assert_eq!(rest("plain"), 0);
        assert_eq!(rest("a\x1b[31mb"), 0);
        assert_eq!(rest("a\x1b"), 1);
        assert_eq!(rest("a\x1b[3"), 3);
        assert_eq!(rest("a\x1b]0;t"), 5);
        assert_eq!(rest("a\x1b]0;t\x07"), 0);
        assert_eq!(rest("a\x1b]0;t\x1b\\"), 0);
        assert_eq!(rest("a\x1b("), 2);
        assert_eq!(rest("a\x1b(B"), 0);
    }
}
