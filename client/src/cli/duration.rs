//! Durations as people write them: `5s`, `500ms`, `1m30s`, `2h`, `1d`; a plain number is seconds.

use ostler_proto::{duration, limits};

fn bounded(text: &str, least: u64, most: u64) -> Result<u64, String> {
    match duration::parse(text)? {
        n if n < least => Err("must be above 0".into()),
        n if n > most => Err(format!("must be at most {}", super::words::limit(most))),
        n => Ok(n),
    }
}

/// A time limit of a job.
pub(crate) fn time_limit(text: &str) -> Result<u64, String> {
    bounded(text, 1, limits::TIMEOUT_MAX)
}

/// A grace, which may be 0.
pub(crate) fn grace(text: &str) -> Result<u64, String> {
    bounded(text, 0, limits::GRACE_MAX)
}

/// How long one request waits.
pub(crate) fn wait(text: &str) -> Result<u64, String> {
    bounded(text, 1, limits::WAIT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_spellings_are_taken() {
        for (text, ms) in [
            ("5s", 5_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("5", 5_000),
            ("0.5", 500),
            ("1.5s", 1_500),
            ("2h", 7_200_000),
            ("1d", 86_400_000),
            ("0.2ms", 1),
        ] {
            assert_eq!(wait(text), Ok(ms), "{text}");
        }
    }

    #[test]
    fn nothing_else_is() {
        for text in [
            "", " ", "s", "5x", "5s3", "3 5", "1m 30s", "inf", "NaN", "1e3", "0x5", "..", "5 s",
            "é",
        ] {
            assert!(wait(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn zero_negative_and_absurd_are_refused_with_the_reason() {
        assert_eq!(time_limit("0").unwrap_err(), "must be above 0");
        assert_eq!(time_limit("-5").unwrap_err(), "must not be negative");
        assert!(
            time_limit("99999d")
                .unwrap_err()
                .starts_with("must be at most")
        );
        assert!(time_limit(&"9".repeat(400)).is_err());
        assert_eq!(grace("0"), Ok(0));
        assert!(grace("61s").is_err());
    }
}
