//! Better words for an answer that a name meant nothing, or too much: what may have been meant.

use ostler::{Client, Error};
use ostler_proto::job::Row;
use ostler_proto::methods::{JobList, List};
use ostler_proto::refusal::{Refusal, RefusalKind};

use super::failure::Failure;
use super::labels::{self, Labels};
use super::scope::{self, Scope};

/// Slips of the pen that a name may have; fewer in a short one, of which nothing would be left.
const SLIPS: usize = 3;

/// Returns how a command about the job `text` fails.
pub(crate) async fn explained(client: &Client, scope: &Scope, text: &str, error: Error) -> Failure {
    let Error::Refused(refusal) = error else {
        return error.into();
    };
    if refusal.kind != RefusalKind::NotFound {
        return refusal.into();
    }
    let own = scope.session();
    match text.rsplit_once('/') {
        Some((session, id)) if session != own => {
            elsewhere(client, scope, session, id, refusal).await
        }
        _ => {
            // Without an answer the plain words stand.
            let mut failure = Failure::from(refusal);
            let id = text.rsplit_once('/').map_or(text, |(_, id)| id);
            // What was typed itself may have come meanwhile.
            if let Some(near) = near(client, scope, id).await.filter(|near| near != id) {
                failure.hint = Some(format!("did you mean {near}?"));
            }
            failure
        }
    }
}

/// Of `SESSION/t1` the session may be wrong, or the job in it; a job of another session is never meant.
async fn elsewhere(
    client: &Client,
    scope: &Scope,
    session: &str,
    id: &str,
    refusal: Refusal,
) -> Failure {
    let Ok(sessions) = labels::sessions(client).await else {
        return refusal.into();
    };
    match scope::find(session, &sessions) {
        Err(not_unique) => not_unique,
        Ok(None) => {
            let mut failure = Failure::from(refusal);
            let known = sessions.iter().map(|s| s.name.as_str());
            if let Some(near) = word(session, known) {
                failure.hint = Some(format!("did you mean {near}/{id}?"));
            }
            failure
        }
        Ok(Some(found)) => {
            let list = List {
                session: Some(found.id.clone()),
                ..List::default()
            };
            let rows = client.ask::<JobList>(list).await.map(|table| table.jobs);
            let labels = Labels::of(scope, &sessions);
            let hint = match nearest(id, &rows.unwrap_or_default(), &labels) {
                Some(near) => format!("did you mean {near}?"),
                None => format!("ostler ls --session {session}"),
            };
            Failure::from(Refusal::no_job(&format!("{session}/{id}"))).hint(hint)
        }
    }
}

/// Returns how a command fails that would forget `text`, where something of nearly that name is there.
pub(crate) async fn slip(client: &Client, scope: &Scope, text: &str) -> Option<Failure> {
    let near = near(client, scope, text)
        .await
        .filter(|near| near != text)?;
    let words = format!("no job {}", scope.placed(text));
    Some(Failure::ours(words).hint(format!("did you mean {near}?")))
}

/// Returns the id or name that is most like what was typed: of this project, or of the one session that was named.
async fn near(client: &Client, scope: &Scope, id: &str) -> Option<String> {
    let list = match &scope.explicit {
        Some(session) => List {
            session: Some(session.clone()),
            ..List::default()
        },
        None => List {
            root: Some(scope.project.root_text()?),
            ..List::default()
        },
    };
    let rows = client.ask::<JobList>(list).await.ok()?.jobs;
    let labels = Labels::for_rows(client, scope, rows.iter()).await.ok()?;
    nearest(id, &rows, &labels)
}

/// An id of another session is exactly what was typed; a name is like it. Ids are never like each other.
fn nearest(text: &str, rows: &[Row], labels: &Labels) -> Option<String> {
    if let Some(row) = rows.iter().find(|row| row.id == text) {
        return Some(labels.job(row));
    }
    let mut best: Option<(usize, String)> = None;
    for row in rows {
        let Some(name) = &row.name else { continue };
        let label = labels.job(row);
        let label = match label.strip_suffix(&row.id) {
            Some(session) => format!("{session}{name}"),
            None => label,
        };
        if let Some(slips) = slips(text, name)
            && best.as_ref().is_none_or(|(before, _)| slips < *before)
        {
            best = Some((slips, label));
        }
    }
    best.map(|(_, label)| label)
}

/// Returns how many slips of the pen make one word of another, if they can be that.
fn slips(text: &str, name: &str) -> Option<usize> {
    let slips = strsim::osa_distance(text, name);
    (slips <= SLIPS && slips * 2 < text.len().max(name.len())).then_some(slips)
}

/// Returns the word that was probably meant, among others that are there. Those that differ in a number alone are
/// numbered on purpose.
pub(crate) fn word<'a>(text: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let bare = |word: &str| word.replace(|c: char| c.is_ascii_digit(), "");
    known
        .filter(|name| bare(name) != bare(text))
        .filter_map(|name| {
            let begun = text.len() > 1 && name.starts_with(text);
            Some((if begun { 1 } else { slips(text, name)? }, name))
        })
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;
    use ostler_proto::job::SessionRef;

    fn scope() -> Scope {
        Scope {
            explicit: Some("app-1".into()),
            by_flag: false,
            project: super::super::scope::project_of(std::path::Path::new("/nowhere")),
        }
    }

    fn labels() -> Labels {
        let session = |id: &str, name: &str| SessionRef {
            id: id.into(),
            name: name.into(),
        };
        Labels::of(
            &scope(),
            &[session("app-1", "app"), session("claude-7k2", "claude-7k2")],
        )
    }

    fn named(id: &str, name: &str) -> Row {
        Row {
            name: Some(name.into()),
            ..row(id)
        }
    }

    #[test]
    fn a_slip_in_a_name_is_seen() {
        let rows = [named("t1", "web"), named("t2", "db"), row("t3")];
        assert_eq!(nearest("wbe", &rows, &labels()).as_deref(), Some("web"));
        assert_eq!(nearest("nothing", &rows, &labels()), None);
        assert_eq!(nearest("t4", &rows, &labels()), None);
    }

    #[test]
    fn a_word_with_a_slip_is_told_and_one_with_another_number_is_not() {
        let known = ["nightly", "agent-1", "claude-7k2"];
        let near = |text| word(text, known.into_iter());
        assert_eq!(near("nightyl"), Some("nightly"));
        assert_eq!(near("claude"), Some("claude-7k2"));
        assert_eq!(near("agent-2"), None);
        assert_eq!(near("build"), None);
    }

    #[test]
    fn an_id_of_another_session_is_named_with_it() {
        let mut other = named("t7", "api");
        other.session = SessionRef {
            id: "claude-7k2".into(),
            name: "claude-7k2".into(),
        };
        let rows = [other];
        assert_eq!(
            nearest("t7", &rows, &labels()).as_deref(),
            Some("claude-7k2/t7")
        );
        assert_eq!(
            nearest("apu", &rows, &labels()).as_deref(),
            Some("claude-7k2/api")
        );
    }
}
