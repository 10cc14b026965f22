//! Columns for a terminal, tabs for everything else. Widths are those of a terminal's cells: a Chinese character
//! takes two, an accent that is put on the letter before it none.

use std::os::fd::RawFd;

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use ostler_proto::job::Size;

use super::words::clean;

/// Width when the terminal does not tell one.
const WIDTH: usize = 80;
/// What the last column gets before another one is cut.
const LAST: usize = 12;
/// What is left of a column that is cut.
const LEAST: usize = 6;
/// Between two columns.
const GAP: usize = 2;

/// Returns the terminal's width if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    width_of(libc::STDOUT_FILENO)
}

/// Returns the width of the terminal that a descriptor is, if it is one.
pub(crate) fn width_of(fd: RawFd) -> Option<usize> {
    // SAFETY: isatty takes a number, the ioctl fills a plain struct that is alive for the call.
    unsafe {
        if libc::isatty(fd) == 0 {
            return None;
        }
        let mut size: libc::winsize = std::mem::zeroed();
        let known = libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) == 0;
        Some(match size.ws_col {
            cols if known && cols > 0 => usize::from(cols),
            _ => WIDTH,
        })
    }
}

/// The window of the terminal that a person sits at, else what terminals have always been.
pub(crate) fn window() -> Size {
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO, libc::STDIN_FILENO] {
        // SAFETY: the ioctl fills a plain struct that is alive for the call.
        let (known, size) = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            (libc::ioctl(fd, libc::TIOCGWINSZ, &raw mut size) == 0, size)
        };
        if known && size.ws_col > 0 && size.ws_row > 0 {
            return Size {
                rows: size.ws_row,
                cols: size.ws_col,
            };
        }
    }
    Size { rows: 24, cols: 80 }
}

/// Renders rows under headings: aligned and cut to `width`, or without one bare and tab-separated, no headings.
pub(crate) fn render<R: AsRef<[String]>>(
    headings: &[&str],
    rows: &[R],
    width: Option<usize>,
) -> String {
    let rows = rows.iter().map(|row| row.as_ref().iter());
    let mut rows: Vec<Vec<String>> = rows
        .map(|row| row.map(|cell| clean(cell)).collect())
        .collect();
    let Some(width) = width else {
        return rows.iter().map(|row| row.join("\t") + "\n").collect();
    };
    rows.insert(0, headings.iter().map(|&h| h.to_owned()).collect());
    let mut columns: Vec<usize> = (0..headings.len())
        .map(|i| rows.iter().map(|row| row[i].width()).max().unwrap_or(0))
        .collect();
    fit(&mut columns, width);
    rows.iter().map(|row| line(row, &columns, width)).collect()
}

/// Makes room for the last column, which gets what is left. The first one is never cut: it is what is typed.
fn fit(columns: &mut [usize], width: usize) {
    let Some((last, others)) = columns.split_last_mut() else {
        return;
    };
    let wanted = (*last).min(LAST);
    while others.iter().map(|c| c + GAP).sum::<usize>() + wanted > width {
        let widest = others.iter_mut().skip(1).max_by_key(|c| **c);
        match widest {
            Some(column) if *column > LEAST => *column -= 1,
            _ => return,
        }
    }
}

fn line(row: &[String], columns: &[usize], width: usize) -> String {
    let mut text = String::new();
    for (i, cell) in row.iter().enumerate() {
        if i + 1 == columns.len() {
            text.push_str(cell);
        } else {
            text.push_str(&padded(&cut(cell, columns[i]), columns[i] + GAP));
        }
    }
    cut(text.trim_end(), width) + "\n"
}

/// Fills a text with blanks up to a width.
pub(crate) fn padded(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(text.width());
    format!("{text}{:missing$}", "")
}

/// Cuts a text that is too wide, and says so by its last character.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let room = width.saturating_sub(1);
    let (mut kept, mut taken) = (String::new(), 0);
    for c in text.chars() {
        taken += c.width().unwrap_or(0);
        if taken > room {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<[String; 3]> {
        vec![
            ["t1".into(), "web".into(), "npm run dev".into()],
            ["t12".into(), String::new(), "x\u{1b}[2J\ny".into()],
        ]
    }

    #[test]
    fn a_terminal_gets_aligned_columns_that_fit() {
        let table = render(&["ID", "NAME", "COMMAND"], &rows(), Some(18));
        assert_eq!(
            table,
            "ID   NAME  COMMAND\nt1   web   npm ru…\nt12        x\\e[2J…\n"
        );
    }

    #[test]
    fn a_pipe_gets_tabs_and_nothing_is_cut() {
        let plain = render(&["ID", "NAME", "COMMAND"], &rows(), None);
        assert_eq!(plain, "t1\tweb\tnpm run dev\nt12\t\tx\\e[2J\\ny\n");
    }

    #[test]
    fn an_empty_table_is_its_headings_or_nothing() {
        assert_eq!(render::<[String; 2]>(&["A", "B"], &[], Some(80)), "A  B\n");
        assert_eq!(render::<[String; 2]>(&["A", "B"], &[], None), "");
    }

    #[test]
    fn wide_and_combining_characters_keep_the_columns_straight() {
        let rows = [
            ["漢字".to_owned(), "one".to_owned()],
            ["e\u{301}t".to_owned(), "two".to_owned()],
            ["abcd".to_owned(), "three".to_owned()],
        ];
        let table = render(&["N", "C"], &rows, Some(80));
        assert_eq!(table, "N     C\n漢字  one\ne\u{301}t    two\nabcd  three\n");
        assert_eq!(cut("漢字漢字", 6), "漢字…");
        assert_eq!(cut("e\u{301}e\u{301}e\u{301}", 2), "e\u{301}…");
    }

    #[test]
    fn a_narrow_terminal_still_shows_ids_and_the_beginning_of_commands() {
        let rows = [[
            "t1".to_owned(),
            "a-session-with-a-long-name".to_owned(),
            "running".to_owned(),
            "npm run dev".to_owned(),
        ]];
        let table = render(&["ID", "SESSION", "STATE", "COMMAND"], &rows, Some(40));
        assert_eq!(
            table,
            "ID  SESSION         STATE    COMMAND\nt1  a-session-wit…  running  npm run dev\n"
        );
        for width in 1..60 {
            for line in render(&["ID", "SESSION", "STATE", "COMMAND"], &rows, Some(width)).lines() {
                assert!(line.width() <= width.max(1), "{width}: {line}");
            }
        }
    }
}
