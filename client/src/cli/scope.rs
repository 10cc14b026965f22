//! Which session a command means, and which job: flags, `OSTLER_SESSION`, else the project around the folder.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::Args;
use ostler::{Client, Endpoint, Mode, Options};
use ostler_proto::address::SESSION_VARIABLE;
use ostler_proto::id;
use ostler_proto::job::SessionRef;
use ostler_proto::methods::OpenSession;
use ostler_proto::refusal::Refusal;

use super::failure::Failure;
use super::output::note;
use super::{completions, labels, nearest, slow, upgrade, words};

/// What makes a folder the root of a project.
const ROOTS: [&str; 3] = [".git", ".jj", ".hg"];

/// The flag that every command on jobs has.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SessionArg {
    /// Session, by id, unique prefix or name [default: OSTLER_SESSION, else that of the enclosing project].
    #[arg(long, value_name = "SESSION", add = completions::sessions())]
    session: Option<String>,
}

/// A session as the word of a command that is about sessions, or as the flag that all others have.
#[derive(Args, Debug, Clone, Default)]
pub(crate) struct SessionWord {
    /// Id, unique prefix or name [default: the session of this project].
    #[arg(value_name = "SESSION", add = completions::sessions())]
    word: Option<String>,
    /// The same as a flag.
    #[arg(long = "session", value_name = "SESSION", conflicts_with = "word", add = completions::sessions())]
    flag: Option<String>,
}

impl SessionWord {
    /// Returns what is meant.
    pub(crate) fn scope(self) -> Result<Scope, Failure> {
        SessionArg::of(self.word.or(self.flag)).scope()
    }
}

/// The session that is meant.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    /// As the caller named it, if they did.
    pub(crate) explicit: Option<String>,
    /// It was named by a flag, which the next command does not have.
    pub(crate) by_flag: bool,
    /// The project around the current folder.
    pub(crate) project: Project,
}

/// A folder with a session of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Project {
    /// Real path.
    pub(crate) root: PathBuf,
    /// Id of its session.
    pub(crate) id: String,
    /// Name of its session.
    pub(crate) name: String,
}

impl SessionArg {
    /// Returns the flag as if it had been given so, for commands that name a session otherwise.
    pub(crate) fn of(session: Option<String>) -> Self {
        Self { session }
    }

    /// Returns the session as the flag names it.
    pub(crate) fn named(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Returns what is meant.
    pub(crate) fn scope(&self) -> Result<Scope, Failure> {
        let variable = std::env::var_os(SESSION_VARIABLE).filter(|v| !v.is_empty());
        let explicit = match (&self.session, variable) {
            (Some(session), _) => Some(check(session, "the session")?),
            (None, Some(session)) => Some(check(&text(session)?, SESSION_VARIABLE)?),
            (None, None) => None,
        };
        let here =
            here().map_err(|e| Failure::ours(format!("the current folder cannot be used: {e}")))?;
        Ok(Scope {
            explicit,
            by_flag: self.session.is_some(),
            project: project_of(&here),
        })
    }
}

/// The real path of the current folder, also when it was deleted: what was started in a removed worktree must still
/// be listed and stopped from there, and it is found by the path that the folder had.
fn here() -> std::io::Result<PathBuf> {
    let gone = match std::env::current_dir().and_then(|dir| dir.canonicalize()) {
        Ok(dir) => return Ok(dir),
        Err(gone) => gone,
    };
    let link = std::fs::read_link("/proc/self/cwd").map_err(|_| gone)?;
    let path = link.as_os_str().as_bytes();
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    Ok(PathBuf::from(std::ffi::OsStr::from_bytes(path)))
}

fn text(value: OsString) -> Result<String, Failure> {
    value
        .into_string()
        .map_err(|v| Failure::usage(format!("{SESSION_VARIABLE} is not UTF-8: {v:?}")))
}

fn check(session: &str, whence: &str) -> Result<String, Failure> {
    id::check_word(session).map_err(|e| Failure::usage(format!("{whence} {e}")))?;
    Ok(session.to_owned())
}

/// Returns the nearest folder upwards that is a project's root, else the folder itself.
pub(crate) fn project_of(real: &Path) -> Project {
    let root = real
        .ancestors()
        .find(|dir| ROOTS.iter().any(|mark| dir.join(mark).exists()))
        .unwrap_or(real);
    let folder = root.file_name().unwrap_or_default().to_string_lossy();
    let (id, name) = id::session_of_root(&folder, root.as_os_str().as_bytes());
    Project {
        root: root.to_path_buf(),
        id,
        name,
    }
}

impl Project {
    /// Tells whether it is one, or just the folder that somebody stands in.
    pub(crate) fn is_marked(&self) -> bool {
        ROOTS.iter().any(|mark| self.root.join(mark).exists())
    }

    /// Returns the root as the wire has it, if it can.
    pub(crate) fn root_text(&self) -> Option<String> {
        self.root.to_str().map(str::to_owned)
    }

    /// Returns the root, or why it cannot be asked for.
    pub(crate) fn root_named(&self) -> Result<String, Failure> {
        self.root_text().ok_or_else(|| {
            Failure::ours(format!(
                "the path of this project is not UTF-8: {:?}",
                self.root
            ))
        })
    }

    fn open(&self) -> OpenSession {
        OpenSession {
            id: Some(self.id.clone()),
            name: Some(self.name.clone()),
            root: self.root_text(),
            ..OpenSession::default()
        }
    }
}

/// Returns a client of the user's supervisor that shows the owner key.
pub(crate) fn client(mode: Mode) -> Result<Client, Failure> {
    Ok(Client::new(options(mode)?))
}

/// Returns how the user's supervisor is reached, with the owner key.
pub(crate) fn options(mode: Mode) -> Result<Options, Failure> {
    let mut options = Options::new(Endpoint::of_user()?, mode);
    // Our own image, also after its file was replaced by a newer one.
    options.program = Some(PathBuf::from("/proc/self/exe"));
    options.name = format!("ostler command line {}", ostler_proto::VERSION);
    options.owner = true;
    if mode != Mode::Look {
        // Who only looks says it in the answer.
        options.slow = Some(slow::tell);
    }
    Ok(options)
}

impl Scope {
    /// Returns the session as methods name it.
    pub(crate) fn session(&self) -> String {
        self.explicit
            .clone()
            .unwrap_or_else(|| self.project.id.clone())
    }

    /// Returns the session's name for people.
    pub(crate) fn name(&self) -> &str {
        self.explicit.as_deref().unwrap_or(&self.project.name)
    }

    /// Returns an id of this session as the next command needs it, which has no `--session` of its own.
    pub(crate) fn pasted(&self, id: &str) -> String {
        match &self.explicit {
            Some(session) if self.by_flag && !id.contains('/') => format!("{session}/{id}"),
            _ => id.to_owned(),
        }
    }

    /// Returns a client with the session open, created if it does not exist, a supervisor started if none runs.
    ///
    /// The default session travels together with the first request. One that was named is looked up first,
    /// because `app` may be the name of `app-3f2c19ab`; that it was made is said, since a slip of the pen makes one too.
    pub(crate) async fn opening_client(&self, quiet: bool) -> Result<Client, Failure> {
        let mut options = options(Mode::Start)?;
        if self.explicit.is_none() {
            options.session = Some(self.project.open());
            let client = Client::new(options);
            upgrade::take_over_if_wanted(&client).await?;
            return Ok(client);
        }
        let client = Client::new(options);
        upgrade::take_over_if_wanted(&client).await?;
        let sessions = labels::sessions(&client).await?;
        let opened = client.open_session(self.among(&sessions)?).await?;
        if opened.created && !quiet {
            note(&words::clean(&made(&opened.session.id, &sessions)));
        }
        Ok(client)
    }

    /// Returns how to open the session that is meant.
    pub(crate) async fn named(&self, client: &Client) -> Result<OpenSession, Failure> {
        if self.explicit.is_none() {
            return Ok(self.project.open());
        }
        self.among(&labels::sessions(client).await?)
    }

    fn among(&self, sessions: &[SessionRef]) -> Result<OpenSession, Failure> {
        let Some(text) = &self.explicit else {
            return Ok(self.project.open());
        };
        Ok(match pick(text, sessions)? {
            Some(found) => OpenSession {
                id: Some(found.id.clone()),
                ..OpenSession::default()
            },
            None => OpenSession {
                id: Some(text.clone()),
                root: self.project.root_text(),
                ..OpenSession::default()
            },
        })
    }

    /// Returns an id with the session in which it was looked for: `t1 in app`.
    pub(crate) fn placed(&self, text: &str) -> String {
        match text.rsplit_once('/') {
            Some((session, id)) => format!("{id} in {session}"),
            None if id::is_process_id(text) => text.to_owned(),
            None => format!("{text} in {}", self.name()),
        }
    }

    /// Returns what one id means.
    pub(crate) fn target(&self, text: &str) -> Result<Named, Failure> {
        if text.is_empty() {
            return Err(Failure::usage("an id must not be empty"));
        }
        Ok(match text.rsplit_once('/') {
            Some((session, id)) if !session.is_empty() && !id.is_empty() => Named {
                session: Some(session.into()),
                id: id.into(),
            },
            Some(_) => {
                return Err(Failure::usage(format!(
                    "{text:?} is no id: SESSION/t1 names a job of another session"
                )));
            }
            // It is unique everywhere, so that it needs no session.
            None if id::is_process_id(text) => Named {
                session: None,
                id: text.into(),
            },
            None => Named {
                session: Some(self.session()),
                id: text.into(),
            },
        })
    }

    /// Returns the ids of a command, those of one session together, in order of their first.
    pub(crate) fn targets(&self, texts: &[String]) -> Result<Vec<Group>, Failure> {
        let mut groups: Vec<Group> = Vec::new();
        for text in texts {
            let Named { session, id } = self.target(text)?;
            match groups.iter_mut().find(|g| g.session == session) {
                Some(group) => group.ids.push(id),
                None => groups.push(Group {
                    session,
                    ids: vec![id],
                }),
            }
        }
        Ok(groups)
    }
}

/// A job as a method names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Named {
    /// Its session; none for a processId.
    pub(crate) session: Option<String>,
    /// Its id.
    pub(crate) id: String,
}

/// Jobs of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The session; none for processIds.
    pub(crate) session: Option<String>,
    /// Their ids.
    pub(crate) ids: Vec<String>,
}

impl Group {
    /// Returns one of the ids with its session.
    pub(crate) fn text(&self, id: &str) -> String {
        match &self.session {
            Some(session) => format!("{session}/{id}"),
            None => id.to_owned(),
        }
    }
}

/// Returns the session that is meant: the one of this id, else of this name, else of this unique prefix.
pub(crate) fn find<'a>(
    text: &str,
    sessions: &'a [SessionRef],
) -> Result<Option<&'a SessionRef>, Failure> {
    match pick(text, sessions)? {
        Some(found) => Ok(Some(found)),
        None => only(text, sessions, |s| s.id.starts_with(text)),
    }
}

/// Returns the session that is to be opened: the one of this id, else of this name, else none yet. A prefix does
/// not count here: opening `s1` must make `s1`, also where there is an `s10`.
fn pick<'a>(text: &str, sessions: &'a [SessionRef]) -> Result<Option<&'a SessionRef>, Failure> {
    match only(text, sessions, |s| s.id == text)? {
        Some(found) => Ok(Some(found)),
        None => only(text, sessions, |s| s.name == text),
    }
}

/// Returns what is said of a session that was made because there was none of that name.
fn made(id: &str, sessions: &[SessionRef]) -> String {
    let known = sessions.iter().flat_map(|s| [&s.name, &s.id]);
    match nearest::word(id, known.map(String::as_str)) {
        Some(near) => format!("note: session {id} is new; did you mean {near}?"),
        None => format!("note: session {id} is new"),
    }
}

fn only<'a>(
    text: &str,
    sessions: &'a [SessionRef],
    meant: impl Fn(&SessionRef) -> bool,
) -> Result<Option<&'a SessionRef>, Failure> {
    let found: Vec<&SessionRef> = sessions.iter().filter(|s| meant(s)).collect();
    match found.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one)),
        many => {
            let ids: Vec<&str> = many.iter().map(|s| s.id.as_str()).collect();
            Err(Refusal::ambiguous_session(text, &ids).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(explicit: Option<&str>) -> Scope {
        Scope {
            explicit: explicit.map(str::to_owned),
            by_flag: true,
            project: project_of(Path::new("/nowhere/app")),
        }
    }

    #[test]
    fn a_sub_folder_has_the_session_of_its_project() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let deep = dir.join("app/src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        assert_eq!(project_of(&deep).root, deep);
        std::fs::write(dir.join("app/.git"), "gitdir: elsewhere").unwrap();
        let project = project_of(&deep);
        assert_eq!(project.root, dir.join("app"));
        assert_eq!(project.name, "app");
        assert_eq!(project, project_of(&dir.join("app")));
        std::fs::create_dir(dir.join("app/src/.jj")).unwrap();
        assert_eq!(project_of(&deep).root, dir.join("app/src"));
    }

    #[test]
    fn the_root_folder_has_a_session_too() {
        let project = project_of(Path::new("/"));
        assert!(id::check_word(&project.id).is_ok(), "{project:?}");
    }

    #[test]
    fn ids_name_their_session_or_mean_the_selected_one() {
        let scope = scope(Some("mine"));
        let named = |session: Option<&str>, id: &str| Named {
            session: session.map(str::to_owned),
            id: id.into(),
        };
        assert_eq!(scope.target("t1").unwrap(), named(Some("mine"), "t1"));
        assert_eq!(scope.target("x/t1").unwrap(), named(Some("x"), "t1"));
        assert_eq!(scope.target("proc_01").unwrap(), named(None, "proc_01"));
        for bad in ["", "/t1", "x/"] {
            assert_eq!(scope.target(bad).unwrap_err().code, 2, "{bad:?}");
        }
        let ids = ["t1", "x/t1", "web"].map(str::to_owned);
        let groups = scope.targets(&ids).unwrap();
        assert_eq!(groups.len(), 2);
        assert_eq!(groups[0].ids, ["t1", "web"]);
    }

    #[test]
    fn a_hint_names_the_session_that_a_flag_has_named() {
        assert_eq!(scope(None).pasted("t3"), "t3");
        assert_eq!(scope(Some("x")).pasted("t3"), "x/t3");
        assert_eq!(scope(Some("x")).pasted("y/t3"), "y/t3");
    }

    #[test]
    fn a_name_that_two_sessions_have_is_refused_with_both() {
        let session = |id: &str, name: &str| SessionRef {
            id: id.into(),
            name: name.into(),
        };
        let all = [
            session("app-1", "app"),
            session("app-2", "app"),
            session("b-1", "b"),
        ];
        assert_eq!(pick("app-1", &all).unwrap().unwrap().id, "app-1");
        assert_eq!(pick("b", &all).unwrap().unwrap().id, "b-1");
        assert!(pick("new", &all).unwrap().is_none());
        assert!(pick("b-", &all).unwrap().is_none());
        assert_eq!(find("b-", &all).unwrap().unwrap().id, "b-1");
        let refused = find("app", &all).unwrap_err();
        assert_eq!(refused.what, "session app is not unique");
        assert_eq!(
            refused.hint.as_deref(),
            Some("name it by its id: app-1, app-2")
        );
        assert_eq!(refused.code, 125);
    }
}
