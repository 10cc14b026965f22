//! What a front end knows all its life: its bounds, what its jobs inherit, and what it remembers of shells and stops.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ostler::{Client, Error};
use ostler_proto::job::{JobResult, Row};
use ostler_proto::limits;
use ostler_proto::methods::{JobGet, ResourceLimit, Start, Target};

use super::arguments::is_id;
use super::fault::Fault;
use super::names::Names;
use super::notices::Ledger;
use super::progress::Watched;

/// What the jobs of a front end inherit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heritage {
    /// Variables, those left out whose names look like secrets.
    pub(crate) env: BTreeMap<String, Option<String>>,
    /// File mode mask.
    pub(crate) umask: u32,
    /// Resource limits.
    pub(crate) limits: BTreeMap<String, ResourceLimit>,
}

/// The front end.
pub(crate) struct Front {
    /// The agent's folder.
    pub(crate) here: PathBuf,
    /// What jobs inherit.
    pub(crate) heritage: Heritage,
    /// Longest wait of a call, in ms.
    pub(crate) max_wait: u64,
    /// Bytes of a page that is read on from a cursor.
    pub(crate) page: u64,
    /// Names for hints.
    pub(crate) names: Names,
    /// Which ends are told.
    pub(crate) ledger: Arc<Ledger>,
    /// Unique for this process; with the number of a call it makes the key of what that starts.
    nonce: String,
    calls: AtomicU64,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    lines: HashMap<String, Line>,
    /// Lines whose end no result has told and no notice either.
    untold: HashSet<u64>,
    /// Processes that a stop has ended.
    ended: HashMap<String, u32>,
    /// Directory that a shell was last told to be in.
    folders: HashMap<String, String>,
    cursors: HashMap<String, u64>,
}

/// A line that was run in a shell, or a text that was typed.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// The line.
    pub(crate) text: String,
    /// Where its output begins in the log.
    pub(crate) from: u64,
    /// When it was sent.
    pub(crate) began: Instant,
    /// How long it took, as soon as somebody has seen its end.
    pub(crate) took: Option<u64>,
    /// A result has told its end, or nobody needs to know.
    pub(crate) is_told: bool,
    /// Tells it from every other one.
    pub(crate) serial: u64,
}

impl Front {
    pub(crate) fn new(
        here: PathBuf,
        heritage: Heritage,
        max_wait: u64,
        page: u64,
        names: Names,
        ledger: Arc<Ledger>,
    ) -> Self {
        Self {
            here,
            heritage,
            max_wait,
            page,
            names,
            ledger,
            nonce: ostler::fresh_key(),
            calls: AtomicU64::new(0),
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        // Nothing that is done under the lock can leave it half changed.
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A key for what one call starts: asked again after a broken connection it is the same job.
    pub(crate) fn key(&self) -> String {
        let n = self.calls.fetch_add(1, Ordering::Relaxed);
        format!("mcp-{}-{n}", self.nonce)
    }

    /// A start with what jobs inherit.
    pub(crate) fn start(&self, cwd: String) -> Start {
        Start {
            key: Some(self.key()),
            cwd: Some(cwd),
            env: self.heritage.env.clone(),
            umask: Some(self.heritage.umask),
            limits: self.heritage.limits.clone(),
            ..Start::default()
        }
    }

    /// A line begins in a shell.
    pub(crate) fn begin_line(&self, shell: &str, text: &str, from: u64) -> Line {
        let line = Line {
            text: text.to_owned(),
            from,
            began: Instant::now(),
            took: None,
            is_told: false,
            serial: self.calls.fetch_add(1, Ordering::Relaxed),
        };
        let mut memory = self.memory();
        memory.untold.insert(line.serial);
        memory.lines.insert(shell.to_owned(), line.clone());
        line
    }

    /// It is known where the output of this line begins.
    pub(crate) fn place_line(&self, shell: &str, line: &Line) {
        if let Some(last) = self.memory().lines.get_mut(shell)
            && last.serial == line.serial
        {
            last.from = line.from;
        }
    }

    /// It was not taken: the one before is the last one.
    pub(crate) fn take_back(&self, shell: &str, before: Option<Line>) {
        let mut memory = self.memory();
        let refused = match before {
            Some(line) => memory.lines.insert(shell.to_owned(), line),
            None => memory.lines.remove(shell),
        };
        if let Some(line) = refused {
            memory.untold.remove(&line.serial);
        }
    }

    /// A line has ended just now, whoever will tell it.
    pub(crate) fn saw_end(&self, shell: &str, line: &Line) {
        let took = line.began.elapsed();
        if let Some(last) = self.memory().lines.get_mut(shell)
            && last.serial == line.serial
        {
            last.took = Some(u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        }
    }

    /// The last line of a shell.
    pub(crate) fn line(&self, shell: &str) -> Option<Line> {
        self.memory().lines.get(shell).cloned()
    }

    /// The last line of a shell if its end is still to be told.
    pub(crate) fn running_line(&self, shell: &str) -> Option<Line> {
        self.line(shell).filter(|line| !line.is_told)
    }

    /// The last line of a shell if it runs, as far as anybody has seen.
    pub(crate) fn open_line(&self, shell: &str) -> Option<Line> {
        self.running_line(shell).filter(|line| line.took.is_none())
    }

    /// Its end is told. False: it was already, or another line has begun.
    pub(crate) fn end_line(&self, shell: &str, line: &Line) -> bool {
        let mut memory = self.memory();
        memory.untold.remove(&line.serial);
        match memory.lines.get_mut(shell) {
            Some(last) if last.serial == line.serial && !last.is_told => {
                last.is_told = true;
                true
            }
            _ => false,
        }
    }

    /// The end of this line is to be noticed: nobody has told it, and no notice has yet.
    pub(crate) fn takes_notice(&self, line: &Line) -> bool {
        self.memory().untold.remove(&line.serial)
    }

    /// A shell is in this directory. Returns it if that is news.
    pub(crate) fn moved_to(&self, shell: &str, folder: &str) -> Option<String> {
        let before = self
            .memory()
            .folders
            .insert(shell.to_owned(), folder.to_owned());
        if before.as_deref() == Some(folder) {
            return None;
        }
        let short = std::path::Path::new(folder).strip_prefix(&self.here).ok();
        let short = short.and_then(|p| p.to_str()).filter(|p| !p.is_empty());
        Some(short.unwrap_or(folder).to_owned())
    }

    /// What a stop has ended; the number is told again when it is stopped again.
    pub(crate) fn note_ended(&self, process_id: &str, processes: u32) {
        self.memory().ended.insert(process_id.to_owned(), processes);
    }

    /// What an earlier stop has ended.
    pub(crate) fn ended(&self, process_id: &str) -> Option<u32> {
        self.memory().ended.get(process_id).copied()
    }

    /// Where a reader stands who holds no cursor of its own.
    pub(crate) fn cursor(&self, reader: &str) -> u64 {
        self.memory().cursors.get(reader).copied().unwrap_or(0)
    }

    /// It stands there now.
    pub(crate) fn set_cursor(&self, reader: &str, at: u64) {
        self.memory().cursors.insert(reader.to_owned(), at);
    }
}

/// One call of a tool.
pub(crate) struct Call<'a> {
    /// The front end.
    pub(crate) front: &'a Arc<Front>,
    /// Attached to the session.
    pub(crate) client: Client,
    /// Id of the session, where the connection sees others as well.
    pub(crate) session: Option<String>,
    /// What progress is told of.
    pub(crate) watched: &'a Watched,
    /// Longest wait, in ms.
    pub(crate) max_wait: u64,
    /// It becomes a task when it takes longer than this, in ms, and has no bound then.
    pub(crate) task_after: Option<u64>,
}

impl Call<'_> {
    /// What went wrong with a job.
    pub(crate) fn fault(&self, id: &str, error: &Error) -> Fault {
        Fault::of(error, id, self.front.names)
    }

    /// Id of the session.
    pub(crate) async fn own_session(&self) -> Option<String> {
        if self.session.is_some() {
            return self.session.clone();
        }
        let opened = self.client.session().await.ok().flatten();
        opened.map(|opened| opened.session.id)
    }

    /// Everything about a job of this session.
    ///
    /// # Errors
    /// There is none, in one and the same words whoever has it.
    pub(crate) async fn get(&self, id: &str) -> Result<JobResult, Fault> {
        if !is_id(id) {
            return Err(Fault::not_found(id, self.front.names));
        }
        let target = Target {
            session: None,
            id: id.to_owned(),
        };
        let found = self.client.ask::<JobGet>(target).await;
        let found = found.map_err(|e| self.fault(id, &e))?;
        let session = self.session.as_ref();
        if session.is_some_and(|session| found.row.session.id != *session) {
            return Err(Fault::not_found(id, self.front.names));
        }
        Ok(found)
    }

    /// The row of a job.
    ///
    /// # Errors
    /// As [`Call::get`].
    pub(crate) async fn row(&self, id: &str) -> Result<Row, Fault> {
        Ok(self.get(id).await?.row)
    }

    /// From now on the progress is that of this job.
    pub(crate) fn watch(&self, row: &Row) {
        self.watched.set(&self.client, &row.id, &row.process_id);
    }

    /// The bound of a wait.
    pub(crate) fn most(&self) -> Duration {
        Duration::from_millis(self.max_wait)
    }

    /// How long a call waits in vain: as long as was asked for, or, as a task, as long as it takes.
    pub(crate) fn patience(&self, asked: u64) -> u64 {
        match self.task_after {
            Some(after) if asked > after => limits::WAIT_MAX,
            _ => asked,
        }
    }
}

/// Ports on which the tree of a job listens, as far as they were looked for.
pub(crate) fn ports(row: &Row) -> Vec<u16> {
    let mut ports = row.tree.ports.clone().unwrap_or_default();
    ports.sort_unstable();
    ports.dedup();
    ports
}
