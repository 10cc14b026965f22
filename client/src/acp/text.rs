//! Text by what it becomes in a line of JSON: many an editor takes no line that is longer than 64 KiB.

/// Bytes of a character in JSON.
fn written(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// Bytes of a text in JSON.
pub(super) fn length(text: &str) -> usize {
    text.chars().map(written).sum()
}

/// The beginning of a text, `most` bytes of JSON at most.
pub(super) fn head(text: &str, most: usize) -> &str {
    let mut left = most;
    let too_much = |(_, c): &(usize, char)| match left.checked_sub(written(*c)) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    };
    let end = text.char_indices().find(too_much);
    end.map_or(text, |(at, _)| &text[..at])
}

/// The end of a text, likewise.
pub(super) fn tail(text: &str, most: usize) -> &str {
    let mut left = most;
    let fits = |(_, c): &(usize, char)| match left.checked_sub(written(*c)) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let begin = text.char_indices().rev().take_while(fits).last();
    begin.map_or("", |(at, _)| &text[at..])
}

/// A text in pieces, each of which is that short.
pub(super) fn pieces(mut text: &str, most: usize) -> Vec<&str> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let piece = match head(text, most) {
            // Never none: that would go on for ever.
            "" => text,
            piece => piece,
        };
        pieces.push(piece);
        text = &text[piece.len()..];
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_counts_as_json_writes_it() {
        for c in (0..=0x300).filter_map(char::from_u32) {
            let quoted = serde_json::to_string(&c).unwrap();
            assert_eq!(written(c), quoted.len() - 2, "{c:?}");
        }
    }

    #[test]
    fn ends_are_cut_and_pieces_join() {
        assert_eq!((head("a€b", 3), tail("a€b", 3)), ("a", "b"));
        assert_eq!((head("a€b", 4), tail("a€b", 4)), ("a€", "€b"));
        assert_eq!((head("ab", 2), tail("ab", 2)), ("ab", "ab"));
        assert_eq!((head("\0", 5), tail("\0", 5)), ("", ""));
        let text = "\0\0\0ab€\n".repeat(50);
        let all = pieces(&text, 13);
        assert_eq!(all.concat(), text);
        assert!(all.iter().all(|piece| head(piece, 13) == *piece));
        assert!(pieces("", 13).is_empty());
    }
}
