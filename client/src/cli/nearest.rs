//! Better words for an answer that a name meant nothing, or too much: what may have been meant.

use ostler::{Client, Error};
use ostler_proto::job::Row;
use ostler_proto::methods::{JobList, List};
use ostler_proto::refusal::{Refusal, RefusalKind};

use super::failure::Failure;
use super::labels::Labels;
use super::scope::Scope;

/// Slips of the pen that a name may have; fewer in a short one, of which nothing would be left.
const SLIPS: usize = 3;

/// Returns how a command about the job `text` fails.
pub(crate) async fn explained(client: &Client, scope: &Scope, text: &str, error: Error) -> Failure {
    let Error::Refused(refusal) = error else {
        return error.into();
    };
    match refusal.kind {
        RefusalKind::Ambiguous => ambiguous(scope, text, refusal),
        RefusalKind::NotFound => {
            let mut failure = Failure::from(refusal);
            // Without an answer the plain words stand.
            // What was typed itself may have come meanwhile.
            if let Some(near) = near(client, scope, text).await.filter(|near| near != text) {
                failure.hint = Some(format!("did you mean {near}?"));
            }
            failure
        }
        _ => refusal.into(),
    }
}

fn ambiguous(scope: &Scope, text: &str, refusal: Refusal) -> Failure {
    let session = scope.target(text).ok().and_then(|named| named.session);
    let ids: Vec<&str> = refusal
        .data
        .get("candidates")
        .and_then(|c| c.as_array())
        .into_iter()
        .flatten()
        .filter_map(|c| c.as_str())
        .collect();
    match session {
        Some(session) if !ids.is_empty() => Failure::not_unique(&session, &ids),
        _ => {
            let failure = Failure::from(refusal);
            match failure.hint {
                Some(_) => failure,
                None => failure.hint("give more of it; whole ones: ostler ls --json"),
            }
        }
    }
}

/// Returns the id or name that is most like what was typed: of this project, or of the one session that was named.
async fn near(client: &Client, scope: &Scope, text: &str) -> Option<String> {
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
    let id = text.rsplit_once('/').map_or(text, |(_, id)| id);
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
        let slips = strsim::osa_distance(text, name);
        let alike = slips <= SLIPS && slips * 2 < text.len().max(name.len());
        if alike && best.as_ref().is_none_or(|(before, _)| slips < *before) {
            best = Some((slips, label));
        }
    }
    best.map(|(_, label)| label)
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

    #[test]
    fn a_name_of_several_sessions_is_told_with_their_ids() {
        let refusal = Refusal::new(RefusalKind::Ambiguous, "app may be any of app-1, app-2")
            .with("candidates", ["app-1", "app-2"]);
        let failure = ambiguous(&scope(), "app/t1", refusal);
        assert_eq!(failure.what, "session app is not unique");
        assert_eq!(
            failure.hint.as_deref(),
            Some("name it by its id: app-1, app-2")
        );
    }
}
