//! Regular expressions on the command line: told to be none before anybody is asked.

use ostler_proto::limits;
use regex::Regex;

/// Checks a regular expression. What the supervisor takes is decided there.
pub(crate) fn pattern(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("needs a regular expression".into());
    }
    if text.len() > limits::PATTERN {
        return Err(format!("must have at most {} bytes", limits::PATTERN));
    }
    match Regex::new(text) {
        Ok(_) => Ok(text.to_owned()),
        // It draws the expression with a pointer below; the last line says why.
        Err(e) => {
            let drawn = e.to_string();
            let why = drawn.lines().last().unwrap_or_default();
            let why = why.strip_prefix("error: ").unwrap_or(why);
            Err(format!("is no regular expression: {why}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_told_in_one_line() {
        assert_eq!(pattern("a|b"), Ok("a|b".into()));
        assert_eq!(
            pattern("(").unwrap_err(),
            "is no regular expression: unclosed group"
        );
        assert_eq!(pattern("").unwrap_err(), "needs a regular expression");
        let long = "x".repeat(limits::PATTERN + 1);
        assert_eq!(pattern(&long).unwrap_err(), "must have at most 4096 bytes");
        assert_eq!(pattern("a{999999}").unwrap_err().lines().count(), 1);
    }
}
