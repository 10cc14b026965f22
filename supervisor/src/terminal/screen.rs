//! The screen of a terminal as a person would see it: an emulator that is made when somebody looks, and fed from the
//! log up to that moment.
//!
//! A job that nobody looks at has none. A bounded number is kept in a house; one that was dropped is made again. A
//! panic in the emulator costs the screen and nothing else.

use std::{
    collections::VecDeque,
    fmt::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use alacritty_terminal::{
    Term,
    event::{Event, EventListener},
    grid::Dimensions,
    index::{Column, Line},
    term::{
        Config, Osc52, TermMode,
        cell::{Cell, Flags},
    },
    vte::ansi::{Color, CursorShape, NamedColor, Processor},
};
use ostler_proto::{job::Size, limits, screen};

use super::{echo::Echoes, sieve::Sieve};
use crate::log::Log;

/// How far back a screen is made from. Everything a person sees was drawn in it, and it takes some milliseconds.
const LOOK_BACK: u64 = 1024 * 1024;
/// Bytes that are fed in one go; between two the others of the house have their turn.
const PIECE: u64 = 32 * 1024;
/// Characters without a width that a screen may have taken in its life, before it is made anew: each is kept beside its
/// cell, and a cell takes any number.
const MARKS: u64 = 1_000_000;
/// The same of one cell, as it is told.
const MARKS_TOLD: usize = 16;

/// The screens of the house that are kept, the one looked at last at the end.
static KEPT: Mutex<VecDeque<Weak<Slot>>> = Mutex::new(VecDeque::new());

type Slot = Mutex<Option<Screen>>;

/// Where the screen of one job is, while there is one.
#[derive(Debug, Default)]
pub(crate) struct Easel(Arc<Slot>);

/// The emulator panicked: its screen is gone, the next look makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

impl Easel {
    /// Whether there is one.
    pub(crate) fn is_used(&self) -> bool {
        lock(&self.0).is_some()
    }

    /// Feeds the screen up to an offset of the log, and gives it this window then. Makes it where there is none.
    ///
    /// # Errors
    /// [`Broken`].
    pub(crate) async fn follow(
        &self,
        log: &Log,
        echoes: &Echoes,
        window: Size,
        until: u64,
    ) -> Result<(), Broken> {
        self.touch();
        while self.step(log, echoes, window, until)? {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// The screen for a moment, if there is one.
    pub(crate) fn with<T>(&self, ask: impl FnOnce(&Screen) -> T) -> Option<T> {
        lock(&self.0).as_ref().map(ask)
    }

    /// Feeds a piece; false when it has come as far as it is to.
    fn step(&self, log: &Log, echoes: &Echoes, window: Size, until: u64) -> Result<bool, Broken> {
        let mut slot = lock(&self.0);
        if slot.as_ref().is_some_and(Screen::is_worn) {
            *slot = None;
        }
        let screen = slot.get_or_insert_with(|| Screen::new(window));
        let did = catch_unwind(AssertUnwindSafe(|| {
            let more = screen.read(log, echoes, until);
            if !more {
                screen.settle(window);
            }
            more
        }));
        did.map_err(|_| {
            *slot = None;
            crate::log_line!("error", "a screen could not be drawn and was dropped");
            Broken
        })
    }

    /// It is looked at: it stays, and the one that was not looked at for the longest time goes.
    fn touch(&self) {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::downgrade(&self.0);
        kept.retain(|other| other.strong_count() > 0 && !other.ptr_eq(&own));
        kept.push_back(own);
        let oldest = if kept.len() > limits::SCREENS {
            kept.pop_front()
        } else {
            None
        };
        // Nobody holds two locks: whoever has that screen may want this list.
        drop(kept);
        if let Some(slot) = oldest.and_then(|oldest| oldest.upgrade()) {
            *lock(&slot) = None;
        }
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Option<Screen>> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the emulator tells besides its grid.
#[derive(Debug, Default)]
struct Heard {
    title: Option<String>,
    bells: u64,
}

/// The side of [`Heard`] that the emulator has. What it would answer to the program is not taken from it: it was fed
/// late, and the questions are old.
#[derive(Debug, Clone, Default)]
struct Ear(Arc<Mutex<Heard>>);

impl EventListener for Ear {
    fn send_event(&self, event: Event) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Title(title) => heard.title = Some(title),
            Event::ResetTitle => heard.title = None,
            Event::Bell => heard.bells += 1,
            _ => {}
        }
    }
}

/// A window as the emulator wants it; narrower than two columns it cannot be.
struct Window(Size);

impl Dimensions for Window {
    fn total_lines(&self) -> usize {
        self.screen_lines()
    }

    fn screen_lines(&self) -> usize {
        usize::from(self.0.rows.max(1))
    }

    fn columns(&self) -> usize {
        usize::from(self.0.cols.max(2))
    }
}

/// One emulator.
pub(crate) struct Screen {
    term: Term<Ear>,
    parser: Processor,
    sieve: Sieve,
    ear: Ear,
    window: Size,
    /// Offset of the next byte that it wants; none before the first look.
    at: Option<u64>,
    /// Bytes that it was not made from.
    cut: u64,
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Screen")
            .field("window", &self.window)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

impl Screen {
    pub(super) fn new(window: Size) -> Self {
        let ear = Ear::default();
        let config = Config {
            scrolling_history: limits::SCREEN_HISTORY
                .min(limits::SCREEN_CELLS as usize / usize::from(window.cols.max(1))),
            osc52: Osc52::Disabled,
            ..Config::default()
        };
        Self {
            term: Term::new(config, &Window(window), ear.clone()),
            parser: Processor::new(),
            sieve: Sieve::default(),
            ear,
            window,
            at: None,
            cut: 0,
        }
    }

    /// Offset up to which it was fed.
    pub(crate) fn at(&self) -> u64 {
        self.at.unwrap_or(0)
    }

    fn is_worn(&self) -> bool {
        self.sieve.marks() > MARKS
    }

    /// Reads a piece of the log; false when there is none before `until`.
    fn read(&mut self, log: &Log, echoes: &Echoes, until: u64) -> bool {
        let first = until.saturating_sub(LOOK_BACK);
        let at = self.at.unwrap_or(0);
        let jump = at < first;
        let from = at.max(first);
        self.at = Some(from);
        if from >= until {
            return false;
        }
        let slice = echoes.read(log, from, (until - from).min(PIECE) as usize);
        if slice.next <= from {
            return false;
        }
        self.cut += from - at + slice.lost;
        self.at = Some(slice.next);
        let mut bytes = slice.bytes.as_slice();
        if jump || slice.lost > 0 {
            // The beginning is anywhere, also in the middle of a sequence.
            self.parser = Processor::new();
            let line = memchr::memchr(b'\n', bytes).map_or(0, |at| at + 1);
            bytes = &bytes[line..];
        }
        self.feed(bytes);
        true
    }

    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let mut passed = Vec::with_capacity(bytes.len());
        self.sieve.pass(bytes, &mut passed);
        self.parser.advance(&mut self.term, &passed);
    }

    /// What was held back for one drawing is drawn if its time is over, and the window is that of the terminal.
    fn settle(&mut self, window: Size) {
        let due = self.parser.sync_timeout().sync_timeout();
        if due.is_some_and(|due| due <= std::time::Instant::now()) {
            self.parser.stop_sync(&mut self.term);
        }
        if self.window != window {
            self.window = window;
            self.term.resize(Window(window));
        }
    }

    /// What a person would see.
    pub(crate) fn view(&self, colors: bool, lines: Option<screen::Back>) -> screen::Screen {
        let rows = self.rows();
        let mode = self.term.mode();
        let heard = self.heard();
        screen::Screen {
            size: self.window,
            rows: (0..rows).map(|row| self.text(row)).collect(),
            cursor: self.cursor(),
            title: heard.title.clone(),
            alternate: mode.contains(TermMode::ALT_SCREEN),
            modes: screen::Modes {
                application_cursor: mode.contains(TermMode::APP_CURSOR),
                bracketed_paste: mode.contains(TermMode::BRACKETED_PASTE),
                mouse: mode.intersects(TermMode::MOUSE_MODE),
                focus: mode.contains(TermMode::FOCUS_IN_OUT),
            },
            foreground: None,
            bells: heard.bells,
            history: self.term.history_size() as u64,
            lines: lines.map(|lines| self.lines(lines)),
            colors: colors.then(|| (0..rows).map(|row| self.styles(row)).collect()),
            at: self.at(),
            cut: self.cut,
        }
    }

    /// Where the cursor is, from one, as a terminal tells it.
    pub(crate) fn position(&self) -> (u16, u16) {
        let cursor = self.cursor();
        (cursor.row + 1, cursor.column + 1)
    }

    /// How a terminal answers whether a private mode is set: 1 yes, 2 no, 0 unknown.
    pub(crate) fn mode(&self, number: u16) -> u8 {
        let flag = match number {
            1 => TermMode::APP_CURSOR,
            7 => TermMode::LINE_WRAP,
            25 => TermMode::SHOW_CURSOR,
            1000 => TermMode::MOUSE_REPORT_CLICK,
            1002 => TermMode::MOUSE_DRAG,
            1003 => TermMode::MOUSE_MOTION,
            1004 => TermMode::FOCUS_IN_OUT,
            1006 => TermMode::SGR_MOUSE,
            1049 => TermMode::ALT_SCREEN,
            2004 => TermMode::BRACKETED_PASTE,
            // Known, and never set at the moment of asking.
            2026 => return 2,
            _ => return 0,
        };
        if self.term.mode().contains(flag) {
            1
        } else {
            2
        }
    }

    /// Bytes that make a terminal of the same size look like this one.
    pub(crate) fn redraw(&self) -> Vec<u8> {
        let mode = self.term.mode();
        let mut out = String::from("\x1b[?25l\x1b[0m\x1b[r");
        if mode.contains(TermMode::ALT_SCREEN) {
            out += "\x1b[?1049h";
        }
        out += "\x1b[H\x1b[2J";
        let mut pen = Pen::default();
        for row in 0..self.rows() {
            self.draw(row, &mut pen, &mut out);
        }
        let cursor = &self.term.grid().cursor;
        Pen::of(&cursor.template).change(&mut pen, &mut out);
        self.set_modes(&mut out);
        if let Some(title) = &self.heard().title {
            let title: String = title.chars().filter(|c| !c.is_control()).collect();
            // A String takes whatever it is given.
            let _ = write!(out, "\x1b]2;{title}\x07");
        }
        let (row, column) = self.position();
        let _ = write!(out, "\x1b[{row};{column}H");
        if mode.contains(TermMode::SHOW_CURSOR) {
            out += "\x1b[?25h";
        }
        out.into_bytes()
    }

    fn set_modes(&self, out: &mut String) {
        let sequences = [
            (TermMode::APP_CURSOR, "\x1b[?1h"),
            (TermMode::APP_KEYPAD, "\x1b="),
            (TermMode::BRACKETED_PASTE, "\x1b[?2004h"),
            (TermMode::MOUSE_REPORT_CLICK, "\x1b[?1000h"),
            (TermMode::MOUSE_DRAG, "\x1b[?1002h"),
            (TermMode::MOUSE_MOTION, "\x1b[?1003h"),
            (TermMode::SGR_MOUSE, "\x1b[?1006h"),
            (TermMode::FOCUS_IN_OUT, "\x1b[?1004h"),
            (TermMode::INSERT, "\x1b[4h"),
        ];
        let mode = self.term.mode();
        for (_, sequence) in sequences.iter().filter(|(flag, _)| mode.contains(*flag)) {
            out.push_str(sequence);
        }
        if !mode.contains(TermMode::LINE_WRAP) {
            out.push_str("\x1b[?7l");
        }
    }

    /// Draws a line from its first cell on.
    fn draw(&self, row: i32, pen: &mut Pen, out: &mut String) {
        let cells = &self.term.grid()[Line(row)];
        let columns = self.term.columns();
        let used = (0..columns)
            .rev()
            .find(|column| !is_plain_blank(&cells[Column(*column)]))
            .map_or(0, |column| column + 1);
        if used == 0 {
            return;
        }
        let _ = write!(out, "\x1b[{};1H", row + 1);
        for column in 0..used {
            let cell = &cells[Column(column)];
            if is_spacer(cell) {
                continue;
            }
            Pen::of(cell).change(pen, out);
            push(cell, out);
        }
    }

    fn rows(&self) -> i32 {
        self.term.screen_lines() as i32
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.ear.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cursor(&self) -> screen::Cursor {
        let point = self.term.grid().cursor.point;
        let shape = match self.term.cursor_style().shape {
            CursorShape::Underline => "underline",
            CursorShape::Beam => "beam",
            CursorShape::Block | CursorShape::HollowBlock | CursorShape::Hidden => "block",
        };
        screen::Cursor {
            row: point.line.0.max(0) as u16,
            column: point.column.0 as u16,
            visible: self.term.mode().contains(TermMode::SHOW_CURSOR),
            shape: shape.into(),
        }
    }

    /// A line as text; those above the screen have negative numbers.
    fn text(&self, row: i32) -> String {
        let cells = &self.term.grid()[Line(row)];
        let mut text = String::new();
        for column in 0..self.term.columns() {
            let cell = &cells[Column(column)];
            if !is_spacer(cell) {
                push(cell, &mut text);
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }

    fn lines(&self, wanted: screen::Back) -> screen::Lines {
        let history = self.term.history_size() as i32;
        let below = (0..self.rows())
            .rev()
            .find(|row| !self.text(*row).is_empty())
            .unwrap_or(-1);
        let cursor = self.term.grid().cursor.point.line.0;
        // The line of the cursor counts, also where nothing is on it: a prompt will be.
        let last = below.max(cursor);
        let total = (history + last + 1).max(0);
        let count = |n: u64| i32::try_from(n).unwrap_or(i32::MAX);
        let back = count(wanted.back).min(total);
        let end = total - back;
        let begin = end.saturating_sub(count(wanted.count)).max(0);
        screen::Lines {
            total: total as u64,
            back: back as u64,
            text: (begin..end).map(|n| self.text(n - history)).collect(),
        }
    }

    /// What does not look plain in a line.
    fn styles(&self, row: i32) -> Vec<screen::Style> {
        let cells = &self.term.grid()[Line(row)];
        let mut styles: Vec<(Pen, screen::Style)> = Vec::new();
        for column in 0..self.term.columns() {
            let pen = Pen::of(&cells[Column(column)]);
            match styles.last_mut() {
                Some((before, style)) if *before == pen => style.cells += 1,
                _ => styles.push((pen, pen.style(column as u16))),
            }
        }
        let plain = Pen::default();
        let styled = styles.into_iter().filter(|(pen, _)| *pen != plain);
        styled.map(|(_, style)| style).collect()
    }
}

fn is_spacer(cell: &Cell) -> bool {
    cell.flags
        .intersects(Flags::WIDE_CHAR_SPACER | Flags::LEADING_WIDE_CHAR_SPACER)
}

fn is_plain_blank(cell: &Cell) -> bool {
    cell.c == ' ' && Pen::of(cell) == Pen::default()
}

/// The character of a cell as it is seen.
fn push(cell: &Cell, text: &mut String) {
    // A tab stays in the cell where it began; the cells that it jumped over are blank.
    if cell.flags.contains(Flags::HIDDEN) || cell.c.is_control() {
        text.push(' ');
        return;
    }
    text.push(cell.c);
    let marks = cell.zerowidth().unwrap_or_default();
    text.extend(marks.iter().take(MARKS_TOLD));
}

/// How a cell looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pen {
    fg: Color,
    bg: Color,
    flags: Flags,
}

impl Default for Pen {
    fn default() -> Self {
        Self::of(&Cell::default())
    }
}

/// The looks that are told: flag, word, number of the sequence.
const LOOKS: [(Flags, &str, u8); 6] = [
    (Flags::BOLD, "bold", 1),
    (Flags::DIM, "dim", 2),
    (Flags::ITALIC, "italic", 3),
    (Flags::ALL_UNDERLINES, "underline", 4),
    (Flags::INVERSE, "inverse", 7),
    (Flags::STRIKEOUT, "strikeout", 9),
];

impl Pen {
    fn of(cell: &Cell) -> Self {
        let told = LOOKS
            .iter()
            .fold(Flags::empty(), |all, (flag, ..)| all | *flag);
        Self {
            fg: cell.fg,
            bg: cell.bg,
            flags: cell.flags & told,
        }
    }

    fn looks(self) -> impl Iterator<Item = (&'static str, u8)> {
        let looks = LOOKS.iter();
        looks
            .filter(move |(flag, ..)| self.flags.intersects(*flag))
            .map(|(_, word, number)| (*word, *number))
    }

    fn style(self, column: u16) -> screen::Style {
        screen::Style {
            column,
            cells: 1,
            fg: name(self.fg),
            bg: name(self.bg),
            looks: self.looks().map(|(word, _)| word.to_owned()).collect(),
        }
    }

    /// Takes another pen, if it is another one.
    fn change(self, pen: &mut Self, out: &mut String) {
        if self == *pen {
            return;
        }
        *pen = self;
        out.push_str("\x1b[0");
        for (_, number) in self.looks() {
            let _ = write!(out, ";{number}");
        }
        ink(self.fg, 30, out);
        ink(self.bg, 40, out);
        out.push('m');
    }
}

/// The number of a colour in the palette, if it has one.
fn number(color: Color) -> Option<u8> {
    match color {
        Color::Named(named) => u8::try_from(named as usize).ok(),
        Color::Indexed(n) => Some(n),
        Color::Spec(_) => None,
    }
}

/// The parameters of a colour; `base` is 30 for text and 40 for the ground.
fn ink(color: Color, base: u8, out: &mut String) {
    let _ = match (color, number(color)) {
        (Color::Spec(rgb), _) => write!(out, ";{};2;{};{};{}", base + 8, rgb.r, rgb.g, rgb.b),
        (_, Some(n @ 0..=7)) => write!(out, ";{}", base + n),
        (_, Some(n @ 8..=15)) => write!(out, ";{}", base + 52 + n),
        (_, Some(n)) => write!(out, ";{};5;{n}", base + 8),
        // The usual one.
        (_, None) => Ok(()),
    };
}

/// A colour in words; none for the usual one.
fn name(color: Color) -> Option<String> {
    const NAMES: [&str; 8] = [
        "black", "red", "green", "yellow", "blue", "magenta", "cyan", "white",
    ];
    match color {
        Color::Spec(rgb) => Some(format!("#{:02x}{:02x}{:02x}", rgb.r, rgb.g, rgb.b)),
        Color::Named(NamedColor::BrightForeground) => Some("bright-white".into()),
        _ => Some(match number(color)? {
            n @ 0..=7 => NAMES[usize::from(n)].into(),
            n @ 8..=15 => format!("bright-{}", NAMES[usize::from(n) - 8]),
            n => n.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ostler_proto::screen::Back;

    const WINDOW: Size = Size { rows: 5, cols: 20 };

    fn fed(bytes: &[u8]) -> Screen {
        let mut screen = Screen::new(WINDOW);
        screen.feed(bytes);
        screen
    }

    #[test]
    fn a_person_would_see_this() {
        let text = "one\r\n漢字 e\u{301}\tx\r\n\x1b]2;title\x07\x07\x1b[1;31mred\x1b[0m \x1b[44;38;5;200mx\x1b[0m\x1b[?1h\x1b[?2004h\x1b[3 q";
        let view = fed(text.as_bytes()).view(true, None);
        assert_eq!(view.rows, ["one", "漢字 e\u{301}  x", "red x", "", ""]);
        assert_eq!((view.cursor.row, view.cursor.column), (2, 5));
        assert!(view.cursor.visible && view.cursor.shape == "underline");
        assert_eq!((view.title.as_deref(), view.bells), (Some("title"), 1));
        assert!(view.modes.application_cursor && view.modes.bracketed_paste && !view.alternate);
        let colors = &view.colors.unwrap()[2];
        assert_eq!((colors[0].fg.as_deref(), colors[0].cells), (Some("red"), 3));
        assert_eq!(colors[0].looks, ["bold"]);
        assert_eq!(colors[1].bg.as_deref(), Some("blue"));
        assert_eq!(colors[1].fg.as_deref(), Some("200"));
        assert_eq!(colors.len(), 2);
    }

    #[test]
    fn a_redraw_makes_another_terminal_look_the_same() {
        let texts = [
            "plain\r\n\x1b[1;32mgreen\x1b[0m 漢 \x1b[7minverse\x1b[0m\r\n\x1b[38;2;1;2;3;48;5;99mx \x1b[4m",
            "main\x1b[?1049h\x1b[2J\x1b[3;5Halt\x1b[?25l\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b]2;t\x07",
            "full\x1b[5;20Hx\x1b[?7l\x1b[4h\x1b=\x1b[?1h\x1b[95;103mbright",
        ];
        for text in texts {
            let screen = fed(text.as_bytes());
            let again = fed(&screen.redraw());
            let mut view = again.view(true, None);
            let wanted = screen.view(true, None);
            // What stood there before has left it.
            view.history = wanted.history;
            assert_eq!(
                serde_json::to_value(&view).unwrap(),
                serde_json::to_value(&wanted).unwrap(),
                "{text:?}"
            );
            assert_eq!(
                again.term.grid().cursor.template.fg,
                screen.term.grid().cursor.template.fg
            );
        }
    }

    /// E28, and the totals of a view by lines.
    #[test]
    fn lines_are_counted_from_the_newest_one() {
        let mut text = String::new();
        for n in 0..50 {
            let _ = write!(text, "line {n}\r\n");
        }
        let screen = fed((text + "$ ").as_bytes());
        let lines = |back, count| {
            screen
                .view(false, Some(Back { back, count }))
                .lines
                .unwrap()
        };
        assert_eq!(lines(0, 2).text, ["line 49", "$"]);
        assert_eq!(lines(0, 2).total, 51);
        assert_eq!(lines(50, 500).text, ["line 0"]);
        let none = lines(1_000, 5);
        assert_eq!((none.text.len(), none.back, none.total), (0, 51, 51));
        assert_eq!(lines(1, u64::MAX).text.len(), 50);
    }

    #[test]
    fn another_window_wraps_the_lines_again() {
        let mut screen = fed("a long line of thirty characters".as_bytes());
        assert_eq!(screen.text(0), "a long line of thirt");
        screen.settle(Size { rows: 5, cols: 40 });
        assert_eq!(screen.text(0), "a long line of thirty characters");
        screen.settle(Size { rows: 1, cols: 1 });
        screen.feed(b"x\r\n\x1b[2Jy");
        assert_eq!(screen.view(true, None).rows.len(), 1);
    }

    /// A seeded walk over hostile bytes: no panic, no growth, and always a view.
    #[test]
    fn hostile_bytes_neither_panic_nor_pile_up() {
        let mut seed = 0x2545_f491_4f6c_dd1d_u64;
        let pool = b"\x1b\x1b[[];;??$ \x07\r\n\t\x080123456789ABCDGHJKLMPSTXZcfghlmnrstu@`\xe6\xbc\xa2\xcc\x81\xff\x9b\x00 ax";
        let mut screen = Screen::new(WINDOW);
        for round in 0..3_000_u16 {
            let piece: Vec<u8> = (0..100)
                .map(|_| {
                    seed ^= seed << 13;
                    seed ^= seed >> 7;
                    seed ^= seed << 17;
                    pool[(seed % pool.len() as u64) as usize]
                })
                .collect();
            screen.feed(&piece);
            if round % 50 == 0 {
                screen.settle(Size {
                    rows: 1 + round % 7,
                    cols: 1 + round % 90,
                });
                let view = screen.view(
                    true,
                    Some(Back {
                        back: 0,
                        count: 100,
                    }),
                );
                assert_eq!(view.rows.len(), usize::from(screen.window.rows));
                assert!(!screen.redraw().is_empty());
            }
        }
        let mut screen = Screen::new(WINDOW);
        screen.feed(b"\x1b]0;");
        (0..64).for_each(|_| screen.feed(&[b'x'; 64 * 1024]));
        screen.feed(b"\x07ok");
        assert!(screen.heard().title.as_ref().unwrap().len() < 8 * 1024);
        assert_eq!(screen.text(0), "ok");
        assert!(!screen.is_worn());
        (0..60).for_each(|_| screen.feed("\u{301}".repeat(20_000).as_bytes()));
        assert!(screen.is_worn(), "it is made anew before its cells grow");
        assert!(screen.text(0).len() < 100);
    }
}
