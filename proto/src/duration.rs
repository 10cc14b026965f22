//! Durations as people write them: `5s`, `500ms`, `1m30s`, `2h`, `1d`; a plain number is seconds.

/// Parses a duration into ms, 0 included.
///
/// # Errors
/// Why it is none, as a fragment.
pub fn parse(text: &str) -> Result<u64, String> {
    let malformed = || "a duration looks like 5s, 500ms, 1m30s or 2h".to_owned();
    if text.starts_with('-') {
        return Err("must not be negative".into());
    }
    let mut rest = text.trim();
    let mut total = 0.0_f64;
    if rest.is_empty() {
        return Err(malformed());
    }
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| malformed())?;
        let after = &rest[digits..];
        let letters = after
            .find(|c: char| !c.is_ascii_alphabetic())
            .unwrap_or(after.len());
        let unit = match &after[..letters] {
            "ms" => 1.0,
            "s" => 1_000.0,
            "m" | "min" => 60_000.0,
            "h" => 3_600_000.0,
            "d" => 86_400_000.0,
            // A plain number, and nothing else beside it.
            "" if digits == text.trim().len() => 1_000.0,
            _ => return Err(malformed()),
        };
        total += number * unit;
        rest = &after[letters..];
    }
    if total > 1e15 {
        return Err("is absurdly long".into());
    }
    // In range, as was just made sure of; a fraction of a millisecond counts as one.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 to 1e15"
    )]
    Ok(total.ceil() as u64)
}
