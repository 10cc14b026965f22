//! Output of a pipe as it is told to a model: without escape sequences, and of a line that was drawn over and over
//! only the last state. Pure.

/// Text for a model.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Folded {
    /// What is left.
    pub(crate) text: String,
    /// Bytes of states of lines that were drawn over.
    pub(crate) overwritten: u64,
}

/// Folds a page of output.
pub(crate) fn fold(raw: &str) -> Folded {
    let bare = without_escapes(raw);
    let mut folded = Folded::default();
    for line in bare.split_inclusive('\n') {
        let (body, end) = match line.strip_suffix('\n') {
            Some(body) => (body.trim_end_matches('\r'), "\n"),
            None => (line, ""),
        };
        // A line that has no end yet may end in the return that begins its next state.
        let last = body
            .trim_end_matches('\r')
            .rsplit('\r')
            .next()
            .unwrap_or_default();
        if last.len() < body.trim_end_matches('\r').len() {
            folded.overwritten += (body.trim_end_matches('\r').len() - last.len()) as u64;
        }
        folded.text += last;
        folded.text += end;
    }
    folded
}

/// Takes out CSI, OSC and other escape sequences, and control characters that print nothing.
fn without_escapes(raw: &str) -> String {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => match rest.next() {
                Some('[') => {
                    for c in rest.by_ref() {
                        if ('\u{40}'..='\u{7e}').contains(&c) {
                            break;
                        }
                    }
                }
                Some(']' | 'P' | '_' | '^' | 'X') => skip_string(&mut rest),
                // A designation of a character set has one more.
                Some('(' | ')' | '*' | '+' | '#' | '%' | ' ') => drop(rest.next()),
                _ => {}
            },
            '\n' | '\r' | '\t' => out.push(c),
            // What a backspace rubs out, as `man` does for bold.
            '\u{8}' => {
                if out.ends_with(|c| c != '\n') {
                    out.pop();
                }
            }
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

fn skip_string(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    while let Some(c) = rest.next() {
        match c {
            '\u{7}' => return,
            '\u{1b}' if rest.peek() == Some(&'\\') => {
                rest.next();
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_line_drawn_over_only_the_last_state_is_left_and_the_rest_is_counted() {
        let folded = fold("10%\r20%\r100%\ndone\r\n");
        assert_eq!(folded.text, "100%\ndone\n");
        assert_eq!(folded.overwritten, 8);
        assert_eq!(fold("a\r\nb").overwritten, 0);
        assert_eq!(fold("50%\r").text, "50%");
    }

    #[test]
    fn escapes_are_gone_and_text_stays() {
        let folded =
            fold("\u{1b}[1;31mred\u{1b}[0m \u{1b}]0;title\u{7}x\u{1b}]8;;u\u{1b}\\l\u{1b}(B!");
        assert_eq!(folded.text, "red xl!");
        assert_eq!(fold("N\u{8}NA\u{8}A").text, "NA");
    }
}
