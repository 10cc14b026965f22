//! How sessions and jobs are called in what this command prints, so that each id works when it is given back here.

use std::collections::HashMap;

use ostler::Client;
use ostler_proto::job::{Row, SessionRef};
use ostler_proto::methods::{Nothing, SessionList};

use super::failure::Failure;
use super::scope::{self, Scope};

/// The shortest text that names each session.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// Id of the session that is meant without naming one.
    own: Option<String>,
    /// From the id of each session to what names it.
    names: HashMap<String, String>,
}

impl Labels {
    /// Asks which sessions there are, unless the answer cannot matter: a job of the default session is `t1`.
    pub(crate) async fn for_rows<'a>(
        client: &Client,
        scope: &Scope,
        mut rows: impl Iterator<Item = &'a Row>,
    ) -> Result<Self, Failure> {
        let own = &scope.project.id;
        if scope.explicit.is_none() && rows.all(|row| row.session.id == *own) {
            return Ok(Self {
                own: Some(own.clone()),
                names: HashMap::new(),
            });
        }
        Ok(Self::of(scope, &sessions(client).await?))
    }

    /// Returns the names that are right among these sessions.
    pub(crate) fn of(scope: &Scope, sessions: &[SessionRef]) -> Self {
        let own = match scope::find(&scope.session(), sessions) {
            Ok(Some(found)) => Some(found.id.clone()),
            Ok(None) | Err(_) => None,
        };
        let names = sessions
            .iter()
            .map(|s| {
                // An id is looked for before a name: one that is another session's id names that one.
                let plain = sessions
                    .iter()
                    .all(|other| other.id == s.id || (other.name != s.name && other.id != s.name));
                let name = if plain { &s.name } else { &s.id };
                (s.id.clone(), name.clone())
            })
            .collect();
        Self { own, names }
    }

    /// Returns the name of a session where it is the only one of that name, else its id.
    pub(crate) fn session<'a>(&'a self, session: &'a SessionRef) -> &'a str {
        self.names.get(&session.id).unwrap_or(&session.id)
    }

    /// Returns a job's id as it can be typed here: `t1`, or `claude-7k2/t3` for another session's.
    pub(crate) fn job(&self, row: &Row) -> String {
        self.id(&row.session, &row.id)
    }

    /// The same of a job of which only its whole name is known: `SESSION/t1`.
    pub(crate) fn name(&self, name: &str) -> String {
        let Some((session, id)) = name.rsplit_once('/') else {
            return name.to_owned();
        };
        let session = SessionRef {
            id: session.into(),
            name: session.into(),
        };
        self.id(&session, id)
    }

    /// The same of a job of which only the id is known.
    pub(crate) fn id(&self, session: &SessionRef, id: &str) -> String {
        if self.own.as_ref() == Some(&session.id) {
            id.to_owned()
        } else {
            format!("{}/{id}", self.session(session))
        }
    }
}

/// Returns the sessions that this user has.
pub(crate) async fn sessions(client: &Client) -> Result<Vec<SessionRef>, Failure> {
    let table = client.ask::<SessionList>(Nothing {}).await?;
    Ok(table.sessions.into_iter().map(|s| s.session).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::tests::row;

    fn session(id: &str, name: &str) -> SessionRef {
        SessionRef {
            id: id.into(),
            name: name.into(),
        }
    }

    fn scope(explicit: Option<&str>) -> Scope {
        Scope {
            explicit: explicit.map(str::to_owned),
            by_flag: true,
            project: scope::project_of(std::path::Path::new("/nowhere/app")),
        }
    }

    fn job(session: &SessionRef) -> Row {
        Row {
            session: session.clone(),
            ..row("t3")
        }
    }

    #[test]
    fn another_sessions_job_is_labelled_with_it() {
        let app = session(&scope(None).project.id, "app");
        let all = [app.clone(), session("claude-7k2", "claude-7k2")];
        assert_eq!(Labels::of(&scope(None), &all).job(&job(&app)), "t3");
        let other = Labels::of(&scope(Some("claude-7k2")), &all);
        assert_eq!(other.job(&job(&app)), "app/t3");
        assert_eq!(other.job(&job(&all[1])), "t3");
    }

    #[test]
    fn sessions_of_one_name_are_told_apart_by_their_ids() {
        let all = [
            session("app-1", "app"),
            session("app-2", "app"),
            session("b-1", "b"),
        ];
        let labels = Labels::of(&scope(None), &all);
        let told: Vec<String> = all.iter().map(|s| labels.job(&job(s))).collect();
        assert_eq!(told, ["app-1/t3", "app-2/t3", "b/t3"]);
        // A name that two have selects none of them.
        let labels = Labels::of(&scope(Some("app")), &all);
        assert_eq!(labels.job(&job(&all[0])), "app-1/t3");
        let labels = Labels::of(&scope(Some("app-2")), &all);
        assert_eq!(labels.job(&job(&all[0])), "app-1/t3");
        assert_eq!(labels.job(&job(&all[1])), "t3");
    }

    #[test]
    fn a_name_that_is_the_id_of_another_session_is_not_used() {
        let all = [session("app", "app"), session("x-1", "app")];
        let labels = Labels::of(&scope(None), &all);
        assert_eq!(labels.job(&job(&all[0])), "app/t3");
        assert_eq!(labels.job(&job(&all[1])), "x-1/t3");
    }
}
