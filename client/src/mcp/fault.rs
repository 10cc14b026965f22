//! Why a call has no result: what, why, what next, in the words that a model is told.

use ostler::{Error, Unavailable};
use ostler_proto::job::Row;
use ostler_proto::refusal::{Refusal, RefusalKind};

use super::names::Names;
use super::words;

/// A call that has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Stable word in front.
    pub(crate) kind: &'static str,
    /// What and why, what next.
    pub(crate) words: String,
    /// The house or the session is not there any more: what comes next begins anew.
    pub(crate) gone: bool,
    /// The session that has the jobs then, if one has.
    pub(crate) moved_to: Option<String>,
}

impl Fault {
    /// Words behind their kind.
    pub(crate) fn new(kind: &'static str, words: impl Into<String>) -> Self {
        Self {
            kind,
            words: words.into(),
            gone: false,
            moved_to: None,
        }
    }

    /// A wrong argument; nothing was done.
    pub(crate) fn argument(words: impl Into<String>) -> Self {
        Self::new("bad_argument", words)
    }

    /// An id that names no job of this session, whoever has one of that name elsewhere.
    pub(crate) fn not_found(id: &str, names: Names) -> Self {
        let id = words::one_line(&words::cut(id, 60));
        Self::new(
            "not_found",
            format!("no job {id}. {} lists yours.", names.list),
        )
    }

    /// There is nothing to type at. What to do about that depends on what it is, which its id tells.
    pub(crate) fn no_terminal(id: &str, names: Names) -> Self {
        let shown = names.shown(id);
        let words = match id.as_bytes().first() {
            Some(b'a') => format!(
                "{shown} is a sub-agent and takes no input. Read it: {}.",
                names.read(id)
            ),
            Some(b'x') => format!("{shown} has no terminal of its own: its shell has."),
            _ => format!("{shown} has no terminal. {}", names.terminal),
        };
        Self::new("no_input", words)
    }

    /// The same of a tool that would have done something else than to start a program: `undone` says what it has not.
    pub(crate) fn of_tool(mut self, undone: &str) -> Self {
        if let Some(words) = self.words.strip_suffix(" Nothing was started.") {
            self.words = format!("{words}{undone}");
        }
        self
    }

    /// The line of the result.
    pub(crate) fn text(&self) -> String {
        format!("{}: {}", self.kind, self.words)
    }

    /// From what the supervisor, or the way to it, has said. `id`: the job that was asked about.
    pub(crate) fn of(error: &Error, id: &str, names: Names) -> Self {
        match error {
            Error::Refused(refusal) => Self::of_refusal(refusal, id, names),
            Error::Unavailable(why) => Self::of_unavailable(why),
            Error::Broken(_) => Self::unavailable("the connection broke"),
            Error::Protocol(why) => {
                Self::new("internal", format!("its answer is not understood: {why}"))
            }
        }
    }

    /// Nobody has answered for so long.
    pub(crate) fn silent(patience: std::time::Duration) -> Self {
        Self::unavailable(&format!("no answer for {} s", patience.as_secs()))
    }

    fn unavailable(reason: &str) -> Self {
        Self::new(
            "unavailable",
            format!(
                "the supervisor does not answer ({}). Running jobs go on. Try again; if it stays, \
                 tell the user to run: ostler doctor",
                words::one_line(reason)
            ),
        )
    }

    fn of_unavailable(why: &Unavailable) -> Self {
        match why {
            Unavailable::TooOld { .. } => Self::too_old(),
            Unavailable::NotRunning => Self {
                gone: true,
                ..Self::new(
                    "unavailable",
                    "the supervisor has ended, and every job with it. Try again: the next call starts another",
                )
            },
            other => Self::unavailable(&other.to_string()),
        }
    }

    fn too_old() -> Self {
        Self::new(
            "too_old",
            "the supervisor is newer than this front end. Jobs go on. Tell the user to restart the agent.",
        )
    }

    fn of_refusal(refusal: &Refusal, id: &str, names: Names) -> Self {
        let message = words::one_line(refusal.message.lines().next_back().unwrap_or_default());
        let message = names.words(&message, id);
        match refusal.kind {
            // The session that the front end was given: no job is meant.
            RefusalKind::Ambiguous if refusal.data.contains_key("candidates") => Self::new(
                "ambiguous",
                format!(
                    "{message}: {}. Tell the user to give ostler mcp one of them.",
                    candidates(refusal)
                ),
            ),
            RefusalKind::NotFound | RefusalKind::Ambiguous => Self::not_found(id, names),
            RefusalKind::Gone => Self::new(
                "gone",
                format!("{}. {} lists what is kept.", message, names.list),
            ),
            RefusalKind::Limit => Self::new("limit", full(refusal, names)),
            RefusalKind::Busy => Self::new("busy", format!("{message}.")),
            RefusalKind::Held => {
                // Its own words name the holder and the time, behind the id.
                Self::new(
                    "held",
                    format!("{message}. Wait, or read it: {}.", names.read(id)),
                )
            }
            RefusalKind::NoInput => Self::no_terminal(id, names),
            RefusalKind::CwdRefused => {
                Self::new("cwd_refused", format!("{message}. Nothing was started."))
            }
            RefusalKind::CommandRefused => Self::new(
                "command_refused",
                format!("{message}. Nothing was started."),
            ),
            RefusalKind::SandboxFailed => Self::new(
                "sandbox_failed (2009)",
                format!("{message}. The command did not run; changing it will not help."),
            ),
            RefusalKind::TooOld => Self::too_old(),
            RefusalKind::Leaving => Self::unavailable(&message),
            RefusalKind::SessionGone => Self {
                gone: true,
                ..Self::new(
                    "unavailable",
                    "this session was closed, and its jobs with it. Try again: the next call begins another",
                )
            },
            RefusalKind::Moved => Self {
                gone: true,
                moved_to: moved_to(refusal),
                ..Self::new(
                    "moved",
                    format!(
                        "{message}, which has its jobs. Try again: the next call begins another session"
                    ),
                )
            },
            RefusalKind::BadArgument => Self::argument(format!("{message}. Nothing was started.")),
            _ => Self::new(refusal.kind.word(), format!("{message}.")),
        }
    }
}

/// The ids of those that a name may mean.
fn candidates(refusal: &Refusal) -> String {
    let ids = refusal.data.get("candidates").cloned().unwrap_or_default();
    let ids: Vec<String> = serde_json::from_value(ids).unwrap_or_default();
    ids.join(", ")
}

/// A full quota, with what fills it.
fn full(refusal: &Refusal, names: Names) -> String {
    let rows = refusal.data.get("rows").cloned().unwrap_or_default();
    let rows: Vec<Row> = serde_json::from_value(rows).unwrap_or_default();
    let limit = refusal
        .data
        .get("limit")
        .and_then(serde_json::Value::as_u64);
    let what = refusal.data.get("what").and_then(serde_json::Value::as_str);
    if rows.is_empty() {
        return format!("{}.", words::one_line(&refusal.message));
    }
    let mut text = match (limit, what) {
        (Some(limit), Some(what)) => format!("{limit} of {limit} {what} run: "),
        _ => format!("{}: ", words::one_line(&refusal.message)),
    };
    for row in &rows {
        let command = words::cut(&words::command(row), 60);
        text += &format!("{} {command}; ", names.shown(&row.id));
    }
    text + "stop one first."
}

impl From<Fault> for String {
    fn from(fault: Fault) -> Self {
        fault.text()
    }
}

/// The session that has the jobs of one that is over.
pub(crate) fn moved_to(refusal: &Refusal) -> Option<String> {
    refusal.data.get("to")?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::names::COMPACT as COMPACT_NAMES;

    fn told(refusal: Refusal) -> String {
        Fault::of(&refusal.into(), "s1", COMPACT_NAMES).text()
    }

    #[test]
    fn each_refusal_has_its_word_and_what_to_do_next() {
        let of = |kind, message: &str| told(Refusal::new(kind, message));
        assert_eq!(
            of(RefusalKind::NotFound, "no job s1 in session x"),
            "not_found: no job s1. output without id lists yours."
        );
        assert_eq!(
            of(RefusalKind::NoInput, "s1 is no shell"),
            "no_input: s1 has no terminal. Start it with tty=true."
        );
        let of_agent = Fault::no_terminal("a1", COMPACT_NAMES);
        assert_eq!(
            of_agent.text(),
            "no_input: a1 is a sub-agent and takes no input. Read it: output id=a1."
        );
        assert_eq!(
            of(RefusalKind::Held, "s1 is held by the user since 14:10"),
            "held: s1 is held by the user since 14:10. Wait, or read it: output id=s1."
        );
        assert_eq!(
            of(RefusalKind::CwdRefused, "/etc is outside the project"),
            "cwd_refused: /etc is outside the project. Nothing was started."
        );
        assert_eq!(
            of(RefusalKind::SandboxFailed, "no backend"),
            "sandbox_failed (2009): no backend. The command did not run; changing it will not help."
        );
        assert!(of(RefusalKind::TooOld, "x").starts_with("too_old: the supervisor is newer"));
    }

    #[test]
    fn a_full_quota_names_what_fills_it() {
        let mut row = crate::exit::tests::row("t1");
        row.args = ["/bin/sh", "-c", "npm run dev"].map(String::from).into();
        let refusal = Refusal::limit("commands", 8, "8 of 8 commands run in app", &[row]);
        assert_eq!(
            told(refusal),
            "limit: 8 of 8 commands run: t1 npm run dev; stop one first."
        );
    }

    #[test]
    fn who_does_not_answer_is_told_with_what_helps() {
        let error = Error::from(Unavailable::NotRunning);
        let fault = Fault::of(&error, "", COMPACT_NAMES);
        assert_eq!(
            fault.text(),
            "unavailable: the supervisor has ended, and every job with it. Try again: the next call starts another"
        );
        assert!(fault.gone);
    }
}
