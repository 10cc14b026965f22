//! Which session a front end works in, and how it comes back to it.
//!
//! ```text
//!   --session NAME, OSTLER_SESSION   that one, shared with whoever names it too
//!   otherwise                        one of its own, `claude-7k2`, with the lease of agents; its token stands in a file
//!                                    by folder and client, locked as long as the front end lives. The next one of the
//!                                    same folder and client that can lock such a file goes on in that session.
//! ```
//!
//! A house that has ended takes its jobs along: the next call begins anew, and its result says so.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs2::FileExt;
use ostler::{Client, Endpoint, Error, Mode, Options};
use ostler_proto::job::{Kind, Row};
use ostler_proto::methods::{
    CloseSession, JobList, List, Nothing, OpenSession, OpenedSession, SessionClose, SessionList,
    ShellList, StopSummary,
};
use ostler_proto::refusal::{Refusal, RefusalKind};
use ostler_proto::{VERSION, id, limits};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::notices::Ledger;
use super::{fault::moved_to, status, words};

/// What the front end is told about itself at its start.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    /// Named session.
    pub(crate) session: Option<String>,
    /// The agent's folder.
    pub(crate) here: PathBuf,
    /// The `ostler` binary that a house is started with.
    pub(crate) program: PathBuf,
}

/// The session, once it is open.
#[derive(Clone)]
pub(crate) struct Open {
    /// Attached to it.
    pub(crate) client: Client,
    /// Its id, where the connection sees others as well.
    pub(crate) session: Option<String>,
}

/// What became of the session of a front end that has ended it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Closed {
    /// Of its jobs.
    #[serde(flatten)]
    summary: StopSummary,
    /// Sessions that it had before, whose jobs are not among these: `claude-7k2: its jobs are gone`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    earlier: Vec<String>,
}

/// What a token file holds.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    session: String,
    token: String,
}

/// The way to the session.
pub(crate) struct Sessions {
    origin: Origin,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    open: Option<Open>,
    /// Locked for as long as this process lives.
    file: Option<File>,
    /// Id of that one, or of the last one.
    id: Option<String>,
    /// The session that has the jobs of the last one now.
    moved_to: Option<String>,
    /// What became of those before.
    earlier: Vec<String>,
}

impl State {
    /// The last session is over. Returns what became of its jobs; nothing where there was none.
    fn leave(&mut self) -> Option<String> {
        self.open = None;
        let id = self.id.take()?;
        let jobs = match self.moved_to.take() {
            Some(to) => format!("its jobs are those of session {to}"),
            None => "its jobs are gone".into(),
        };
        self.earlier.push(format!("{id}: {jobs}"));
        Some(jobs)
    }
}

impl Sessions {
    pub(crate) fn new(origin: Origin, ledger: Arc<Ledger>) -> Self {
        Self {
            origin,
            ledger,
            state: Mutex::default(),
        }
    }

    /// Returns the session, opened now if it is not, a house started if there is none. `client`: what calls itself.
    ///
    /// # Errors
    /// There is no supervisor to be had.
    pub(crate) async fn open(&self, client: &str) -> Result<Open, Error> {
        let mut state = self.state.lock().await;
        if let Some(open) = &state.open {
            match open.client.hello().await {
                Ok(_) => return Ok(open.clone()),
                Err(e) if is_gone(&e) => state.open = None,
                Err(e) => return Err(e),
            }
        }
        let (open, id) = match &self.origin.session {
            Some(name) => self.named(name).await?,
            None => self.own(&mut state, client).await?,
        };
        if let Some(jobs) = state.leave() {
            self.ledger.forget();
            self.ledger
                .add_once(format!("the session before this one has ended: {jobs}"));
        }
        (state.open, state.id) = (Some(open.clone()), Some(id));
        Ok(open)
    }

    /// Forgets a session that is not there any more. `moved_to`: the one that has its jobs.
    pub(crate) async fn forget(&self, moved_to: Option<String>) {
        let mut state = self.state.lock().await;
        (state.open, state.moved_to) = (None, moved_to);
    }

    /// Ends the session, if there is one, and everything in it.
    ///
    /// # Errors
    /// It is there, and what became of its jobs is not known.
    pub(crate) async fn close(&self) -> Result<Closed, Error> {
        let mut state = self.state.lock().await;
        let summary = match state.open.take() {
            Some(open) => {
                open.client
                    .ask::<SessionClose>(CloseSession::default())
                    .await
            }
            None => {
                state.leave();
                Ok(StopSummary::default())
            }
        };
        let summary = match summary {
            Err(error) if is_gone(&error) => {
                if let Error::Refused(refusal) = &error {
                    state.moved_to = moved_to(refusal);
                }
                state.leave();
                StopSummary::default()
            }
            summary => summary?,
        };
        let earlier = std::mem::take(&mut state.earlier);
        Ok(Closed { summary, earlier })
    }

    fn options(&self) -> Result<Options, Error> {
        let mut options = Options::new(Endpoint::of_user()?, Mode::Start);
        options.program = Some(self.origin.program.clone());
        options.name = format!("ostler mcp {VERSION}");
        Ok(options)
    }

    fn root(&self) -> Option<String> {
        self.origin.here.to_str().map(str::to_owned)
    }

    /// One that people name, by its id or its name; made if there is none. It is theirs: who may read the owner key may
    /// use it.
    async fn named(&self, name: &str) -> Result<(Open, String), Error> {
        let mut options = self.options()?;
        options.owner = true;
        let client = Client::new(options);
        let sessions = client.ask::<SessionList>(Nothing {}).await?.sessions;
        let by_id = sessions.iter().find(|s| s.session.id == name);
        let by_name = sessions.iter().filter(|s| s.session.name == name);
        let ids: Vec<&str> = match by_id {
            Some(found) => vec![&found.session.id],
            None => by_name.map(|s| s.session.id.as_str()).collect(),
        };
        if ids.len() > 1 {
            return Err(Refusal::ambiguous_session(name, &ids).into());
        }
        let is_new = ids.is_empty();
        let session = ids.first().map_or(name, |id| id).to_owned();
        client
            .open_session(OpenSession {
                id: Some(session.clone()),
                root: self.root().filter(|_| is_new),
                confirms: true,
                ..OpenSession::default()
            })
            .await?;
        let open = Open {
            client,
            session: Some(session.clone()),
        };
        Ok((open, session))
    }

    /// One of its own: that of a predecessor in this folder, or a new one.
    async fn own(&self, state: &mut State, caller: &str) -> Result<(Open, String), Error> {
        let short = short_name(caller);
        if state.file.is_none() {
            state.file = self.token_file(&short);
        }
        if let Some(kept) = state.file.as_mut().and_then(read) {
            let id = kept.session.clone();
            if let Some(open) = self.go_on(kept).await? {
                return Ok((open, id));
            }
        }
        let (open, kept) = self.create(&short).await?;
        if let Some(file) = &mut state.file {
            // Without it nobody finds the session again, which the lease then ends.
            let _ = write(file, &kept);
        }
        Ok((open, kept.session))
    }

    async fn go_on(&self, kept: Kept) -> Result<Option<Open>, Error> {
        let mut options = self.options()?;
        options.session = Some(OpenSession {
            id: Some(kept.session),
            token: Some(kept.token),
            attach_only: true,
            lease_ms: Some(limits::AGENT_LEASE),
            confirms: true,
            ..OpenSession::default()
        });
        let client = Client::new(options);
        match client.session().await {
            Ok(_) => {}
            // It was closed, or was another house's.
            Err(Error::Refused(_)) => return Ok(None),
            Err(e) => return Err(e),
        }
        let open = Open {
            client,
            session: None,
        };
        self.tell_resumed(&open).await?;
        Ok(Some(open))
    }

    /// A new one, of a name that nobody has.
    async fn create(&self, short: &str) -> Result<(Open, Kept), Error> {
        loop {
            let key = ostler::fresh_key();
            let session = format!("{short}-{}", &key[..3]);
            let mut options = self.options()?;
            options.session = Some(OpenSession {
                id: Some(session.clone()),
                root: self.root(),
                lease_ms: Some(limits::AGENT_LEASE),
                confirms: true,
                ..OpenSession::default()
            });
            let client = Client::new(options);
            match client.session().await {
                Ok(Some(OpenedSession {
                    token: Some(token), ..
                })) => {
                    let open = Open {
                        client,
                        session: None,
                    };
                    return Ok((open, Kept { session, token }));
                }
                // Somebody else's has this name.
                Ok(_) => {}
                Err(Error::Refused(r))
                    if matches!(r.kind, RefusalKind::NotFound | RefusalKind::Moved) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// A token file that no living front end holds.
    fn token_file(&self, short: &str) -> Option<File> {
        let folder = Endpoint::of_user().ok()?.folders().state.join("agents");
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(&folder).ok()?;
        let folder_of = self.origin.here.as_os_str().as_encoded_bytes();
        let (name, _) = id::session_of_root(short, folder_of);
        (0..limits::mcp::PLACES).find_map(|n| locked(&folder.join(format!("{name}.{n}"))))
    }

    /// Says what lives in a session that was taken over.
    async fn tell_resumed(&self, open: &Open) -> Result<(), Error> {
        let list = List {
            live: true,
            ..List::default()
        };
        let jobs = open.client.ask::<JobList>(list.clone()).await?.jobs;
        if jobs.is_empty() {
            return Ok(());
        }
        let shells = open.client.ask::<ShellList>(list).await?.shells;
        let at_prompt = |row: &Row| {
            let shell = shells.iter().find(|s| s.row.process_id == row.process_id);
            shell.is_some_and(|s| s.ready && !s.busy)
        };
        let now = super::now();
        let told: Vec<String> = jobs
            .iter()
            .map(|row| {
                if row.kind == Kind::Shell && at_prompt(row) {
                    return format!("{} at prompt", row.id);
                }
                let command = words::cut(&words::command(row), 60);
                format!("{}: {command}", status::block(row, &[], now).phrase)
            })
            .collect();
        self.ledger
            .add_once(format!("resumed: {}", told.join("; ")));
        Ok(())
    }
}

/// The house or the session has ended; nothing of it is to be had any more.
pub(crate) fn is_gone(error: &Error) -> bool {
    match error {
        Error::Unavailable(why) => matches!(**why, ostler::Unavailable::NotRunning),
        Error::Refused(refusal) => {
            matches!(refusal.kind, RefusalKind::SessionGone | RefusalKind::Moved)
        }
        _ => false,
    }
}

/// The first word of what a client calls itself: `claude` of `claude-code`.
fn short_name(client: &str) -> String {
    let word = client
        .split(['-', '_', ' ', '/', '.'])
        .next()
        .unwrap_or_default();
    let word: String = word
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(20)
        .collect();
    if word.is_empty() {
        return "mcp".into();
    }
    word.to_lowercase()
}

fn locked(path: &Path) -> Option<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW);
    let file = options.open(path).ok()?;
    FileExt::try_lock(&file).is_ok().then_some(file)
}

fn read(file: &mut File) -> Option<Kept> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok()
}

fn write(file: &mut File, kept: &Kept) -> std::io::Result<()> {
    file.rewind()?;
    file.set_len(0)?;
    file.write_all(&serde_json::to_vec(kept)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_called_by_its_first_word() {
        for (name, short) in [
            ("claude-code", "claude"),
            ("codex-mcp-client", "codex"),
            ("opencode", "opencode"),
            ("../x", "mcp"),
            ("", "mcp"),
        ] {
            assert_eq!(short_name(name), short);
        }
    }

    #[test]
    fn a_token_is_found_again_and_never_by_two_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut first = locked(&path).unwrap();
        assert!(locked(&path).is_none());
        assert!(read(&mut first).is_none());
        let kept = Kept {
            session: "claude-7k2".into(),
            token: "secret".into(),
        };
        write(&mut first, &kept).unwrap();
        write(&mut first, &kept).unwrap();
        drop(first);
        let mut second = locked(&path).unwrap();
        assert_eq!(read(&mut second).unwrap().session, "claude-7k2");
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
