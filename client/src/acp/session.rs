//! A session of the agent and the session of jobs that stands for it: opened with its first terminal, closed with it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ostler::{Client, Error, Mode, Options};
use ostler_proto::acp::{CreateTerminal, CreatedTerminal, EnvVariable, TerminalTarget};
use ostler_proto::address::SESSION_VARIABLE;
use ostler_proto::methods::{
    CloseSession, Method, OpenSession, ResourceLimit, SessionClose, TerminalCreate,
};
use ostler_proto::refusal::{Refusal, RefusalKind};
use ostler_proto::{id, limits};

use super::display::Display;

/// Tries to find an id that nobody has.
const TRIES: u32 = 5;

/// What every terminal is given, beside what the agent asks for.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    /// How the supervisor is reached.
    pub(crate) options: Options,
    /// What sessions are called: the agent's program.
    pub(crate) name: String,
    /// The whole environment, with what is withheld without a value; that of a login when absent.
    pub(crate) env: Option<BTreeMap<String, Option<String>>>,
    /// File mode mask.
    pub(crate) umask: u32,
    /// Resource limits.
    pub(crate) limits: BTreeMap<String, ResourceLimit>,
}

impl Surroundings {
    /// Makes sure that there is a supervisor.
    ///
    /// # Errors
    /// There is none, and none could be started: why, in words.
    pub(super) async fn reach(&self) -> Result<Client, String> {
        let mut options = self.options.clone();
        options.session = None;
        let client = Client::new(options);
        match tokio::time::timeout(Duration::from_millis(limits::acp::REACH), client.hello()).await
        {
            Ok(Ok(_)) => Ok(client),
            Ok(Err(why)) => Err(why.to_string()),
            Err(_) => Err("the supervisor does not answer".into()),
        }
    }

    /// Opens a session that was not there before.
    async fn open(&self, cwd: Option<&str>) -> Result<Opened, Error> {
        let root = cwd.filter(|cwd| Path::new(cwd).is_absolute());
        let mut tries = 0;
        loop {
            let mut options = self.options.clone();
            options.mode = Mode::Start;
            options.session = Some(OpenSession {
                id: Some(format!("{}-{}", self.name, &ostler::fresh_key()[..6])),
                root: root.map(str::to_owned),
                commands: Some(limits::acp::COMMANDS.min(limits::quota_ceiling())),
                lease_ms: Some(limits::AGENT_LEASE),
                ..OpenSession::default()
            });
            let client = Client::new(options);
            tries += 1;
            match client.session().await {
                Ok(Some(opened)) => {
                    return Ok(Opened {
                        client,
                        id: opened.session.id,
                    });
                }
                // Somebody else's.
                Err(Error::Refused(r)) if r.kind == RefusalKind::NotFound && tries < TRIES => {}
                Err(error) => return Err(error),
                Ok(None) => return Err(Error::Protocol("no session was opened".into())),
            }
        }
    }
}

/// What sessions of this program are called.
pub(crate) fn name_of(program: &Path) -> String {
    let stem = program.file_stem().unwrap_or_default().to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let name: String = stem.chars().filter(|c| plain(*c)).take(40).collect();
    match id::check_job_name(&name) {
        Ok(()) => name,
        Err(_) => "agent".into(),
    }
}

/// An open session of jobs. Its connection is its own, so that it comes back to this session and to no other.
#[derive(Clone)]
pub(super) struct Opened {
    pub(super) client: Client,
    /// Its id at the supervisor.
    pub(super) id: String,
}

impl Opened {
    /// Names a terminal of it.
    pub(super) fn target(&self, terminal_id: &str) -> TerminalTarget {
        TerminalTarget {
            session_id: self.id.clone(),
            terminal_id: terminal_id.into(),
        }
    }

    /// Asks about a terminal of it, also over a supervisor that is replaced.
    pub(super) async fn ask<M: Method<Params = TerminalTarget>>(
        &self,
        terminal_id: &str,
    ) -> Result<M::Result, Error> {
        self.client.ask::<M>(self.target(terminal_id)).await
    }
}

/// One session of the agent.
pub(super) struct Session {
    /// Its id between editor and agent.
    pub(super) id: String,
    cwd: Option<String>,
    jobs: tokio::sync::Mutex<Jobs>,
    display: Mutex<Display>,
}

/// Whether there is a session of jobs for it.
#[derive(Default)]
enum Jobs {
    /// Not yet.
    #[default]
    None,
    Open(Opened),
    /// Not any more, and never again.
    Closed,
}

impl Session {
    pub(super) fn new(id: String, cwd: Option<String>) -> Self {
        Self {
            id,
            cwd,
            jobs: tokio::sync::Mutex::default(),
            display: Mutex::default(),
        }
    }

    /// What the editor is shown of it; never held across an await.
    pub(super) fn display(&self) -> MutexGuard<'_, Display> {
        self.display.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of jobs, where there is one.
    pub(super) async fn opened(&self) -> Option<Opened> {
        match &*self.jobs.lock().await {
            Jobs::Open(opened) => Some(opened.clone()),
            Jobs::None | Jobs::Closed => None,
        }
    }

    /// Starts a terminal. Where the supervisor was ended meanwhile, another one is started, and where a person has closed
    /// the session, another one is opened: what there was is gone, but the agent can go on.
    ///
    /// # Errors
    /// It was refused, or there is no supervisor.
    pub(super) async fn create(
        &self,
        around: &Surroundings,
        params: CreateTerminal,
    ) -> Result<CreatedTerminal, Error> {
        let (mut opened, fresh) = self.open(around, None).await?;
        match create(around, &opened, params.clone()).await {
            Err(error) if !fresh && is_lost(&error) => {
                opened = self.open(around, Some(&opened)).await?.0;
                create(around, &opened, params).await
            }
            answer => answer,
        }
    }

    /// The session of jobs, opened if it is not, or is still the one that is `lost`; and whether it was opened now.
    async fn open(
        &self,
        around: &Surroundings,
        lost: Option<&Opened>,
    ) -> Result<(Opened, bool), Error> {
        let mut jobs = self.jobs.lock().await;
        match &*jobs {
            Jobs::Closed => {
                let words = format!("session {} is over", self.id);
                return Err(Refusal::new(RefusalKind::SessionGone, words).into());
            }
            Jobs::Open(opened) if lost.is_none_or(|lost| lost.id != opened.id) => {
                return Ok((opened.clone(), false));
            }
            Jobs::Open(_) | Jobs::None => {}
        }
        let opened = around.open(self.cwd.as_deref()).await?;
        *jobs = Jobs::Open(opened.clone());
        Ok((opened, true))
    }

    /// Ends its terminals and forgets it.
    pub(super) async fn close(&self) {
        let jobs = std::mem::replace(&mut *self.jobs.lock().await, Jobs::Closed);
        let Jobs::Open(opened) = jobs else {
            return;
        };
        let params = CloseSession {
            session: Some(opened.id),
            grace_ms: Some(limits::acp::JOB_GRACE),
        };
        // A supervisor that is gone has ended them itself; one that cannot be asked does so by the lease.
        let _ = opened.client.ask::<SessionClose>(params).await;
    }
}

/// Tells whether the session of jobs is there no more.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Unavailable(_) => true,
        Error::Refused(r) => matches!(
            r.kind,
            RefusalKind::NotFound | RefusalKind::SessionGone | RefusalKind::Moved
        ),
        Error::Broken(_) | Error::Protocol(_) => false,
    }
}

async fn create(
    around: &Surroundings,
    opened: &Opened,
    mut params: CreateTerminal,
) -> Result<CreatedTerminal, Error> {
    params.session_id = opened.id.clone();
    let inherited = around.env.iter().flatten();
    let (mut env, mut withheld) = (Vec::new(), Vec::new());
    for (name, value) in inherited {
        match value {
            Some(value) => env.push(EnvVariable::new(name, value)),
            None => withheld.push(name.clone()),
        }
    }
    // Behind ours, before the agent's: of two the last one counts.
    env.push(EnvVariable::new("PAGER", ""));
    env.push(EnvVariable::new("GIT_PAGER", "cat"));
    env.push(EnvVariable::new(SESSION_VARIABLE, &opened.id));
    env.extend(params.env.take().unwrap_or_default());
    params.env = Some(env);
    let options = params.meta.get_or_insert_default();
    let options = options.ostler.get_or_insert_default();
    // A create that is asked twice must not run twice.
    options.key.get_or_insert_with(ostler::fresh_key);
    options.env_replace = around.env.is_some();
    options.withheld = withheld;
    options.umask.get_or_insert(around.umask);
    if options.limits.is_empty() {
        options.limits = around.limits.clone();
    }
    opened.client.ask::<TerminalCreate>(params).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_called_as_its_agent() {
        assert_eq!(name_of(Path::new("/usr/bin/kimi")), "kimi");
        assert_eq!(name_of(Path::new("agent.mjs")), "agent");
        assert_eq!(name_of(Path::new("t1")), "agent");
        assert_eq!(name_of(Path::new("/x/é é")), "agent");
    }
}
