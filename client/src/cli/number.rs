//! Numbers on the command line, refused in words.

use ostler_proto::limits;

fn bounded(text: &str, least: u64, most: u64) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err("must not be negative".into());
    }
    match text.parse::<u64>() {
        Ok(n) if n < least => Err(format!("must be at least {least}")),
        Ok(n) if n > most => Err(format!("must be at most {most}")),
        Ok(n) => Ok(n),
        Err(e) if *e.kind() == std::num::IntErrorKind::PosOverflow => {
            Err(format!("must be at most {most}"))
        }
        Err(_) => Err("must be a whole number".into()),
    }
}

/// An offset in a log.
pub(crate) fn offset(text: &str) -> Result<u64, String> {
    bounded(text, 0, u64::MAX)
}

/// The size of a page.
pub(crate) fn page(text: &str) -> Result<u64, String> {
    bounded(text, 1, limits::PAGE_MAX)
}

/// Lines around a match.
pub(crate) fn context(text: &str) -> Result<u64, String> {
    bounded(text, 0, limits::CONTEXT)
}

/// Lines of a screen.
pub(crate) fn lines(text: &str) -> Result<u64, String> {
    bounded(text, 1, limits::SCREEN_LINES)
}

/// Live jobs allowed.
pub(crate) fn quota(text: &str) -> Result<u32, String> {
    let n = bounded(text, 0, limits::quota_ceiling().into())?;
    u32::try_from(n).map_err(|_| format!("must be at most {}", limits::quota_ceiling()))
}

/// An exit code as a shell has it.
pub(crate) fn exit_code(text: &str) -> Result<i32, String> {
    let n = bounded(text, 0, 255)?;
    i32::try_from(n).map_err(|_| "must be at most 255".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_refused_with_the_bound() {
        assert_eq!(offset("0"), Ok(0));
        assert_eq!(offset("-5").unwrap_err(), "must not be negative");
        assert_eq!(offset("1.5").unwrap_err(), "must be a whole number");
        assert_eq!(offset("").unwrap_err(), "must be a whole number");
        assert_eq!(page("0").unwrap_err(), "must be at least 1");
        assert_eq!(page("1048577").unwrap_err(), "must be at most 1048576");
        assert_eq!(
            page(&"9".repeat(30)).unwrap_err(),
            "must be at most 1048576"
        );
        assert_eq!(context("101").unwrap_err(), "must be at most 100");
        assert_eq!(quota("10001").unwrap_err(), "must be at most 10000");
        assert_eq!(exit_code("255"), Ok(255));
        assert_eq!(exit_code("256").unwrap_err(), "must be at most 255");
    }
}
