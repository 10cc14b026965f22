//! Columns for a terminal, tabs for everything else. The last column takes what is left of the width.

use super::words::clean;

/// Width when the terminal does not tell one.
const WIDTH: usize = 80;

/// Returns the terminal's width if standard output is one.
pub(crate) fn terminal_width() -> Option<usize> {
    // SAFETY: isatty takes a number, the ioctl fills a plain struct that is alive for the call.
    unsafe {
        if libc::isatty(libc::STDOUT_FILENO) == 0 {
            return None;
        }
        let mut size: libc::winsize = std::mem::zeroed();
        let known = libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) == 0;
        Some(match size.ws_col {
            cols if known && cols > 0 => usize::from(cols),
            _ => WIDTH,
        })
    }
}

/// Renders rows under headings: aligned and cut to `width`, or without one bare and tab-separated, no headings.
pub(crate) fn render<const N: usize>(
    headings: [&str; N],
    rows: &[[String; N]],
    width: Option<usize>,
) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| std::array::from_fn(|i| clean(&row[i])))
        .collect();
    let Some(width) = width else {
        return rows.iter().map(|row| row.join("\t") + "\n").collect();
    };
    let headings = headings.map(str::to_owned);
    let columns: [usize; N] = std::array::from_fn(|i| {
        let cells = rows.iter().chain(std::iter::once(&headings));
        cells.map(|row| row[i].chars().count()).max().unwrap_or(0)
    });
    std::iter::once(&headings)
        .chain(&rows)
        .map(|row| line(row, &columns, width))
        .collect()
}

fn line<const N: usize>(row: &[String; N], columns: &[usize; N], width: usize) -> String {
    let mut text = String::new();
    for (i, cell) in row.iter().enumerate() {
        if i + 1 == N {
            text.push_str(cell);
        } else {
            text.push_str(&format!("{cell:<width$}  ", width = columns[i]));
        }
    }
    cut(text.trim_end(), width) + "\n"
}

/// Cuts a line that is too wide, and says so by its last character.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}…")
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
        let table = render(["ID", "NAME", "COMMAND"], &rows(), Some(18));
        assert_eq!(
            table,
            "ID   NAME  COMMAND\nt1   web   npm ru…\nt12        x\\e[2J…\n"
        );
    }

    #[test]
    fn a_pipe_gets_tabs_and_nothing_is_cut() {
        let plain = render(["ID", "NAME", "COMMAND"], &rows(), None);
        assert_eq!(plain, "t1\tweb\tnpm run dev\nt12\t\tx\\e[2J\\ny\n");
    }

    #[test]
    fn an_empty_table_is_its_headings_or_nothing() {
        assert_eq!(render(["A", "B"], &[], Some(80)), "A  B\n");
        assert_eq!(render(["A", "B"], &[], None), "");
    }
}
