//! How a command ends when it does not succeed: one line that says what, its causes indented, a hint last.

use std::fmt::Write as _;

use ostler::Error;
use ostler_proto::job::Row;
use ostler_proto::refusal::{Refusal, RefusalKind};

use super::output::note;
use super::words;
use crate::exit;

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit code.
    pub(crate) code: i32,
    /// What went wrong; empty when nothing is to be said.
    pub(crate) what: String,
    /// Lines below it.
    pub(crate) causes: Vec<String>,
    /// What to do next.
    pub(crate) hint: Option<String>,
}

impl Failure {
    /// Our failure.
    pub(crate) fn ours(what: impl Into<String>) -> Self {
        Self {
            code: exit::OURS,
            what: what.into(),
            causes: Vec::new(),
            hint: None,
        }
    }

    /// Wrong use.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self {
            code: exit::USAGE,
            ..Self::ours(what)
        }
    }

    /// Nothing to say: the words are out already, or a closed pipe wants none.
    pub(crate) fn quiet(code: i32) -> Self {
        Self {
            code,
            ..Self::ours("")
        }
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a line below it. What says nothing goes on saying nothing.
    pub(crate) fn cause(mut self, cause: impl Into<String>) -> Self {
        self.causes.push(cause.into());
        self
    }

    /// Writes it to standard error.
    pub(crate) fn tell(&self) {
        if !self.what.is_empty() {
            note(&self.text());
        }
    }

    fn text(&self) -> String {
        let mut text = format!("error: {}", words::clean(&self.what));
        for cause in &self.causes {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n  {}", words::clean(cause));
        }
        if let Some(hint) = &self.hint {
            let _ = write!(text, "\nhint: {}", words::clean(hint));
        }
        text
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.kind {
            RefusalKind::BadArgument => exit::USAGE,
            _ => exit::OURS,
        };
        // A message of several lines, such as that of a regular expression, goes on as causes.
        let mut lines = refusal.message.lines().map(str::to_owned);
        Self {
            code,
            what: lines.next().unwrap_or_default(),
            causes: lines.chain(causes(&refusal)).collect(),
            hint: refusal.hint,
        }
    }
}

/// Returns what stands in the way: the jobs that fill a quota.
fn causes(refusal: &Refusal) -> Vec<String> {
    let rows = refusal
        .data
        .get("rows")
        .and_then(|rows| serde_json::from_value::<Vec<Row>>(rows.clone()).ok())
        .unwrap_or_default();
    rows.iter()
        .map(|row| {
            let name = row
                .name
                .as_deref()
                .map_or(String::new(), |n| format!(" ({n})"));
            format!(
                "{}{name} {}: {}",
                row.id,
                words::state(row),
                words::command(row)
            )
        })
        .collect()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            Error::Refused(refusal) => refusal.into(),
            Error::Unavailable(why) => {
                let failure = Self::ours(why.to_string());
                match why.hint() {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                }
            }
            Error::Broken(cause) => Self {
                causes: vec![cause.to_string()],
                ..Self::ours("the connection to the supervisor broke")
            }
            .hint("ostler ls tells whether it was done, ostler daemon logs why it broke"),
            Error::Protocol(why) => Self {
                causes: vec![why],
                ..Self::ours("the supervisor's answer is not understood")
            }
            .hint("ostler daemon status tells its version"),
        }
    }
}

impl From<ostler::endpoint::BadFolder> for Failure {
    fn from(e: ostler::endpoint::BadFolder) -> Self {
        Error::from(e).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;

    #[test]
    fn a_full_quota_names_what_runs_and_what_to_do() {
        let refusal = Refusal::limit("commands", 8, "8 of 8 commands run in app", &[row("t1")])
            .hint("stop one");
        let failure = Failure::from(refusal);
        assert_eq!(
            failure.text(),
            "error: 8 of 8 commands run in app\n  t1 running: cargo test\nhint: stop one"
        );
        assert_eq!(failure.code, 125);
    }

    #[test]
    fn a_message_of_several_lines_stays_readable() {
        let failure = Failure::from(Refusal::bad("for", "is wrong:\n  (\n  ^"));
        assert_eq!(failure.text(), "error: `for` is wrong:\n    (\n    ^");
    }

    #[test]
    fn a_wrong_argument_is_wrong_use() {
        assert_eq!(Failure::from(Refusal::bad("name", "is empty")).code, 2);
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let text = Failure::ours("no program \u{1b}[2Jx").text();
        assert!(!text.contains('\u{1b}'), "{text:?}");
    }
}
