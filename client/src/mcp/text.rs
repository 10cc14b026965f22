//! Output of a job as a call shows it: read from the supervisor in bounded pages, and put together.

use ostler::{Client, Error};
use ostler_proto::job::{Page, Row};
use ostler_proto::limits;
use ostler_proto::methods::{JobRead, Read};

use super::fold::fold;

/// How much of an output is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Bytes up to which it is shown whole.
    pub(crate) whole: u64,
    /// Characters of its beginning, above that.
    pub(crate) head: usize,
    /// Characters of its end.
    pub(crate) tail: usize,
}

/// What a page may be as JSON, in bytes for each of its own, and what stands around it.
const JSON: (u64, u64) = (2, 400);

/// Bytes of a page that is shown whole in a result of at most so many: whoever reads on from its end must have had all of
/// it.
pub(crate) fn page_within(result: usize) -> u64 {
    let (each, around) = JSON;
    let room = (result as u64).saturating_sub(around) / each;
    room.clamp(limits::mcp::PAGE_LEAST, limits::mcp::PAGE)
}

/// Output, with what is known of the parts that are not here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Text {
    /// What is shown.
    pub(crate) output: String,
    /// Bytes of it that stand before what is left out.
    pub(crate) head: usize,
    /// Bytes that are left out.
    pub(crate) cut: u64,
    /// Bytes before it that are gone for good.
    pub(crate) lost: u64,
    /// Where it begins.
    pub(crate) from: u64,
    /// Where it ends: the cursor to go on.
    pub(crate) next: u64,
    /// Bytes of the log, all in all.
    pub(crate) end: u64,
    /// Bytes of lines that were drawn over.
    pub(crate) overwritten: u64,
}

impl Text {
    fn add(&mut self, page: &Page, folds: bool) {
        let text = page.text.as_deref().unwrap_or_default();
        if folds {
            let folded = fold(text);
            self.output += &folded.text;
            self.overwritten += folded.overwritten;
        } else {
            self.output += text;
        }
        self.next = page.next;
        self.end = page.end;
    }
}

async fn page(client: &Client, row: &Row, since: u64, max: u64) -> Result<Page, Error> {
    let read = Read {
        id: row.process_id.clone(),
        since: Some(since),
        max: Some(max),
        // What was typed to a terminal is drawn by it; of a pipe we fold by ourselves, to count what is left out.
        plain: row.terminal.is_some(),
        ..Read::default()
    };
    client.ask::<JobRead>(read).await
}

/// Reads from `from` up to `end`, or where nothing more is to be had.
async fn stretch(client: &Client, row: &Row, from: u64, end: u64) -> Result<Text, Error> {
    let mut text = Text {
        from,
        next: from,
        end,
        ..Text::default()
    };
    loop {
        let left = end.saturating_sub(text.next);
        if left == 0 {
            return Ok(text);
        }
        let page = page(client, row, text.next, left).await?;
        if page.lost > 0 {
            text.lost += page.lost;
            text.from = text.from.max(page.from);
        }
        let at = text.next;
        text.add(&page, row.terminal.is_none());
        if text.next <= at {
            return Ok(text);
        }
    }
}

/// Reads an output from an offset to another one, or to its end: whole, or its beginning and its end.
///
/// # Errors
/// The supervisor's.
pub(crate) async fn share(
    client: &Client,
    row: &Row,
    from: u64,
    to: Option<u64>,
    share: Share,
) -> Result<Text, Error> {
    // What can still be read, up to now.
    let look = page(client, row, from, 1).await?;
    let end = to.unwrap_or(look.end).min(look.end);
    let begin = look.from.min(end);
    if end.saturating_sub(begin) <= share.whole {
        let mut text = stretch(client, row, begin, end).await?;
        text.lost = look.lost;
        return Ok(text);
    }
    let room = |chars: usize| 4 * chars as u64;
    let mut head = stretch(client, row, begin, begin + room(share.head)).await?;
    let mut tail = stretch(client, row, end - room(share.tail).min(end - begin), end).await?;
    keep_first(&mut head.output, share.head);
    keep_last(&mut tail.output, share.tail);
    let shown = (head.output.len() + tail.output.len()) as u64;
    Ok(Text {
        head: head.output.len(),
        cut: (end - begin).saturating_sub(shown),
        lost: look.lost,
        from: begin,
        next: end,
        end,
        overwritten: head.overwritten + tail.overwritten,
        output: head.output + &tail.output,
    })
}

/// Reads one page from a cursor on.
///
/// # Errors
/// The supervisor's.
pub(crate) async fn page_from(
    client: &Client,
    row: &Row,
    since: u64,
    most: u64,
) -> Result<Text, Error> {
    let page = page(client, row, since, most).await?;
    let mut text = Text {
        lost: page.lost,
        from: page.from,
        ..Text::default()
    };
    text.add(&page, row.terminal.is_none());
    Ok(text)
}

/// Reads the newest page.
///
/// # Errors
/// The supervisor's.
pub(crate) async fn newest(client: &Client, row: &Row) -> Result<Text, Error> {
    let begin = row.output.start;
    let from = row.output.end.saturating_sub(limits::mcp::PAGE).max(begin);
    let mut text = stretch(client, row, from, row.output.end).await?;
    if from > begin {
        // From the beginning of a line.
        let line = text.output.find('\n').map_or(0, |at| at + 1);
        if line < text.output.len() {
            text.output.drain(..line);
        }
    }
    Ok(text)
}

fn keep_first(text: &mut String, chars: usize) {
    if let Some((at, _)) = text.char_indices().nth(chars) {
        text.truncate(at);
    }
}

fn keep_last(text: &mut String, chars: usize) {
    // It may begin inside a character, of which nobody knows the rest.
    let whole = text.trim_start_matches('\u{fffd}').len();
    let from = text.len() - whole;
    if let Some((at, _)) = text.char_indices().rev().nth(chars.saturating_sub(1)) {
        text.drain(..at.max(from));
    } else {
        text.drain(..from);
    }
}

/// What an echo of typed text leaves of an output.
pub(crate) fn without_echo<'a>(output: &'a str, typed: &str) -> &'a str {
    let typed = typed.trim_end_matches(['\n', '\r']);
    if typed.is_empty() {
        return output;
    }
    let first = typed.lines().next().unwrap_or_default();
    for echo in [typed, first] {
        if echo.is_empty() {
            continue;
        }
        if let Some(rest) = output.strip_prefix(echo) {
            return rest.strip_prefix('\n').unwrap_or(rest);
        }
    }
    output
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_is_left_out_and_nothing_else() {
        assert_eq!(without_echo("1+1\n2\n>>> ", "1+1\n"), "2\n>>> ");
        assert_eq!(without_echo("y", "y"), "");
        assert_eq!(without_echo("a\nb\nx\n", "a\nb\n"), "x\n");
        assert_eq!(without_echo("hidden\n", "secret\n"), "hidden\n");
        assert_eq!(without_echo("x\n", "\n"), "x\n");
    }

    #[test]
    fn characters_are_counted_and_none_is_split() {
        let mut text = "\u{e4}bc".to_owned();
        keep_first(&mut text, 2);
        assert_eq!(text, "\u{e4}b");
        let mut text = "\u{fffd}a\u{e4}b".to_owned();
        keep_last(&mut text, 2);
        assert_eq!(text, "\u{e4}b");
        let mut text = "\u{fffd}ab".to_owned();
        keep_last(&mut text, 9);
        assert_eq!(text, "ab");
    }
}
