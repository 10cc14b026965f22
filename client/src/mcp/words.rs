//! Words for times and for what programs are called, as the tools write them. Pure.

use ostler_proto::job::Row;

/// Returns a time that was measured: `0.4s`, `31.4s`, `4m10s`, `2h03m`.
pub(crate) fn took(ms: u64) -> String {
    match ms {
        // Rounded first: 59.96 s is a minute.
        0..59_950 => {
            let tenths = (ms + 50) / 100;
            format!("{}.{}s", tenths / 10, tenths % 10)
        }
        59_950..3_599_500 => {
            let seconds = (ms + 500) / 1_000;
            format!("{}m{:02}s", seconds / 60, seconds % 60)
        }
        _ => {
            let minutes = (ms + 30_000) / 60_000;
            format!("{}h{:02}m", minutes / 60, minutes % 60)
        }
    }
}

/// Returns a time that was asked for: `45s`, `0.2s`.
pub(crate) fn limit(ms: u64) -> String {
    if ms.is_multiple_of(1_000) {
        return format!("{}s", ms / 1_000);
    }
    let text = format!("{}.{:03}", ms / 1_000, ms % 1_000);
    format!("{}s", text.trim_end_matches('0'))
}

/// Returns `1 process`, `2 processes`.
pub(crate) fn processes(n: u64) -> String {
    match n {
        1 => "1 process".into(),
        n => format!("{n} processes"),
    }
}

/// Returns a text on one line, in which control characters are shown instead of obeyed.
pub(crate) fn one_line(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let shown = match c {
                '\n' => "\\n".to_owned(),
                '\t' => " ".to_owned(),
                c if c.is_control() => c.escape_unicode().to_string(),
                c => c.to_string(),
            };
            shown.chars().collect::<Vec<_>>()
        })
        .collect()
}

/// Returns at most so many bytes of a text; a cut one ends with three dots.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most.saturating_sub(3));
    format!("{}...", &text[..end])
}

/// Returns what was asked to run: the line of a shell command, else the arguments.
pub(crate) fn command(row: &Row) -> String {
    let stages = || row.stages.iter().map(|stage| stage.args.join(" "));
    let text = match row.args.as_slice() {
        _ if !row.stages.is_empty() => stages().collect::<Vec<_>>().join(" | "),
        [shell, flag, line] if flag == "-c" && is_shell(shell) => line.clone(),
        args => args.join(" "),
    };
    one_line(&text)
}

fn is_shell(program: &str) -> bool {
    matches!(program.rsplit('/').next(), Some("sh" | "bash"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_the_contract_has_them() {
        let all = [
            (0, "0.0s"),
            (449, "0.4s"),
            (31_400, "31.4s"),
            (59_960, "1m00s"),
            (250_000, "4m10s"),
            (7_380_000, "2h03m"),
        ];
        for (ms, expected) in all {
            assert_eq!(took(ms), expected);
        }
        assert_eq!((limit(45_000), limit(200)), ("45s".into(), "0.2s".into()));
    }

    #[test]
    fn a_cut_splits_no_character_and_is_never_longer() {
        for most in 3..12 {
            let short = cut("ab\u{e4}\u{f6}\u{1f600}xyz", most);
            assert!(short.len() <= most, "{short:?}");
        }
        assert_eq!(cut("abc", 3), "abc");
    }

    #[test]
    fn a_command_stays_on_its_line() {
        assert_eq!(one_line("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
    }
}
