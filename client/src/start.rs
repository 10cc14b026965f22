//! From nothing to a connection whose handshake is answered, starting a supervisor exactly once.
//!
//! ```text
//!   connect --answered--> link
//!      | nobody listens          refused, reset, or ended before the answer: again, up to five times
//!      v
//!   start.lock (others wait for it and go on connecting)
//!      v
//!   connect again --> house.lock held? wait for it, ask its keeper to look --> else spawn, wait for `ready`
//! ```
//!
//! A supervisor is ready when its handshake is answered, never because a file exists. Errors such as EACCES or
//! EMFILE are told as they are: they say nothing about whether somebody listens. Whoever loses the race is
//! silent. This file never unlinks anything and never ends a process.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use interprocess::local_socket::traits::tokio::Stream as _;
use interprocess::local_socket::{GenericFilePath, ToFsName, tokio::Stream};
use ostler_proto::address::{
    DIR_VARIABLE, Folders, HOUSE_VARIABLE, JOB_VARIABLE, RUNG_VARIABLE, STEADY_VARIABLE,
};
use ostler_proto::methods::{Hello, HelloAnswer, OpenSession, OpenedSession};
use ostler_proto::methods::{SessionOpen, SupervisorHello};
use ostler_proto::{PROTOCOL, PROTOCOL_MIN, VERSION, limits};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::time::{sleep, timeout};

use crate::connection::{Call, Connection, Error};
use crate::endpoint::{self, BadFolder, Endpoint};
use crate::house::{self, Held, StartLock};
use crate::unavailable::Unavailable;

/// How often a broken handshake is tried again before it counts as a fault.
const TRIES: u32 = 5;
/// How often a lock or a socket that somebody else is about to change is looked at again.
const AGAIN: Duration = Duration::from_millis(3);
/// How long the keeper is given to look before it is asked again: it may have had a reason not to, such as a
/// supervisor that it has only just started.
const KNOCK_AGAIN: Duration = Duration::from_secs(10);
/// A house that holds its lock while nobody listens is asked to look after this time: a leaving one needs less,
/// and one whose socket was deleted would make people wait.
const ASK_AFTER: Duration = Duration::from_secs(1);

/// What a client may do to get its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Start a supervisor if there is none.
    Start,
    /// Use one that is there; ask its keeper to look if it does not answer.
    Use,
    /// Look for 2 s, and disturb nobody.
    Look,
}

/// How a connection is made, and made again.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where.
    pub endpoint: Endpoint,
    /// What may be done to get there.
    pub mode: Mode,
    /// The `ostler` binary to start a supervisor with. `None`: the one beside this program, else on `PATH`.
    pub program: Option<PathBuf>,
    /// Who this is, for the supervisor's log.
    pub name: String,
    /// Show the owner key if it can be read: every session of the user becomes visible.
    pub owner: bool,
    /// A session to create or attach to on every connection.
    pub session: Option<OpenSession>,
    /// Called once for a connection that nobody has answered within [`limits::status_patience()`], and is still tried.
    pub slow: Option<fn(&Endpoint)>,
}

impl Options {
    /// Returns options without owner key and session.
    pub fn new(endpoint: Endpoint, mode: Mode) -> Self {
        Self {
            endpoint,
            mode,
            program: None,
            name: format!("ostler {VERSION}"),
            owner: false,
            session: None,
            slow: None,
        }
    }
}

/// A connection whose handshake is answered.
#[derive(Clone)]
pub struct Link {
    /// The socket.
    pub connection: Connection,
    /// Who answered.
    pub hello: HelloAnswer,
    /// The session of [`Options::session`].
    pub session: Option<OpenedSession>,
}

/// Connects, attaches the session, and queues `first` behind both without waiting, so that all of it costs
/// one round trip. `first` runs once for each connection that is tried: what it asks must be safe to repeat.
///
/// # Errors
/// Nobody is there, nobody could be started, or the supervisor refused handshake or session.
pub async fn reach<T>(
    options: &Options,
    first: impl Fn(&Connection) -> T,
) -> Result<(Link, T), Error> {
    let slow = async {
        if let Some(tell) = options.slow {
            sleep(ms(limits::status_patience())).await;
            tell(&options.endpoint);
        }
        std::future::pending().await
    };
    tokio::select! {
        biased;
        link = patiently(options, first) => link,
        never = slow => never,
    }
}

async fn patiently<T>(
    options: &Options,
    first: impl Fn(&Connection) -> T,
) -> Result<(Link, T), Error> {
    let mut approach = Approach::new(options);
    loop {
        let Stream::UdSocket(socket) = approach.socket().await?;
        let (read, write) = tokio::net::UnixStream::from(socket).into_split();
        let connection = Connection::over(read, write);
        let greeting = Greeting::queue(&connection, options, &approach.at);
        let queued = first(&connection);
        match greeting.settle(&mut approach).await {
            Ok((hello, session)) => {
                let link = Link {
                    connection,
                    hello,
                    session,
                };
                return Ok((link, queued));
            }
            Err(Error::Broken(_)) => approach.broke().await?,
            Err(e) => return Err(e),
        }
    }
}

/// What every connection begins with: the handshake, and the session if there is one.
struct Greeting {
    key: Option<String>,
    hello: Call<HelloAnswer>,
    session: Option<Call<OpenedSession>>,
}

impl Greeting {
    fn queue(connection: &Connection, options: &Options, at: &Folders) -> Self {
        // Read each time: the first supervisor of a user makes the key.
        let key = if options.owner { owner_key(at) } else { None };
        let hello = connection.call::<SupervisorHello>(&Hello {
            protocol: Some(PROTOCOL),
            client: Some(options.name.clone()),
            owner_key: key.clone(),
        });
        let session = options.session.as_ref();
        Self {
            key,
            hello,
            session: session.map(|open| connection.call::<SessionOpen>(open)),
        }
    }

    /// Returns both answers. `Broken` means: begin again.
    async fn settle(
        mut self,
        approach: &mut Approach<'_>,
    ) -> Result<(HelloAnswer, Option<OpenedSession>), Error> {
        let hello = loop {
            match timeout(approach.patience(), &mut self.hello).await {
                Ok(answer) => break check(answer?)?,
                Err(_) => approach.silent().await?,
            }
        };
        let session = match self.session {
            Some(call) => Some(call.await),
            None => None,
        };
        let strange = matches!(&session, None | Some(Err(Error::Refused(_))));
        let options = approach.options;
        if options.owner && !hello.owner && strange && owner_key(&approach.at) != self.key {
            // The key was made while we were connecting. Nothing was done for a stranger, so that it can be
            // asked again by the owner.
            return Err(Error::Broken(Arc::new(
                io::ErrorKind::PermissionDenied.into(),
            )));
        }
        Ok((hello, session.transpose()?))
    }
}

fn owner_key(at: &Folders) -> Option<String> {
    let key = std::fs::read_to_string(at.owner_key()).ok()?;
    Some(key.trim().to_owned())
}

fn check(hello: HelloAnswer) -> Result<HelloAnswer, Unavailable> {
    if hello.protocol_min > PROTOCOL || hello.protocol < PROTOCOL_MIN {
        return Err(Unavailable::TooOld {
            theirs: hello.version,
        });
    }
    Ok(hello)
}

/// How a try to connect ended, when it says something about who is there.
enum Dialled {
    Connected(Stream),
    /// No socket there.
    Missing,
    /// A socket that nobody listens on, or that went away meanwhile.
    Refused,
    /// Its backlog is full.
    Full,
}

struct Approach<'a> {
    options: &'a Options,
    /// The folder that was dialled last.
    at: Folders,
    lock: Option<StartLock>,
    began: Instant,
    /// When a held lock without a listener was first seen.
    held_since: Option<Instant>,
    tries: u32,
    spawned: u32,
    failure: Option<String>,
    /// The last words of one that gave up, also after others were waited for.
    last_words: Option<String>,
    /// When the keeper was first asked to look.
    knocked: Option<Instant>,
}

impl<'a> Approach<'a> {
    fn new(options: &'a Options) -> Self {
        Self {
            options,
            at: options.endpoint.folders().clone(),
            lock: None,
            began: Instant::now(),
            held_since: None,
            tries: 0,
            spawned: 0,
            failure: None,
            last_words: None,
            knocked: None,
        }
    }

    /// Returns a connected socket, after whatever that takes.
    async fn socket(&mut self) -> Result<Stream, Unavailable> {
        loop {
            match self.dial().await? {
                Dialled::Connected(socket) => return Ok(socket),
                Dialled::Refused if self.tries < TRIES => {
                    self.tries += 1;
                    tokio::task::yield_now().await;
                }
                Dialled::Full => self.wait_for_room().await?,
                Dialled::Missing | Dialled::Refused => match self.options.mode {
                    Mode::Start => self.start().await?,
                    Mode::Use | Mode::Look => self.look_for_house().await?,
                },
            }
        }
    }

    /// Tries every place once.
    async fn dial(&mut self) -> Result<Dialled, Unavailable> {
        let mut answer = Dialled::Missing;
        for (n, folders) in self.options.endpoint.candidates().iter().enumerate() {
            match endpoint::check_folder(&folders.run) {
                Ok(true) => {}
                Ok(false) => continue,
                // The second place is for everybody to write in: what is there need not be ours.
                Err(_) if n > 0 => continue,
                Err(e) => return Err(self.bad_folder(e)),
            }
            match connect(folders).await? {
                Dialled::Missing => continue,
                Dialled::Refused => answer = Dialled::Refused,
                found => {
                    self.at = folders.clone();
                    return Ok(found);
                }
            }
        }
        self.at = self.options.endpoint.folders().clone();
        Ok(answer)
    }

    /// Nobody listens and we may start one: a step nearer to that. The caller connects again after each.
    async fn start(&mut self) -> Result<(), Unavailable> {
        endpoint::create_folder(&self.at.run).map_err(|e| self.bad_folder(e))?;
        // A cleaner may have taken the folder with the lock in it: then somebody else may hold a new one.
        if !self.lock.as_ref().is_some_and(|l| l.is_current(&self.at)) {
            self.lock = StartLock::try_take(&self.at).map_err(|e| self.lock_error(e))?;
            if self.lock.is_none() {
                return self.wait_for_starter().await;
            }
            // Whoever had the lock may just have started one.
            return Ok(());
        }
        if house::held_under_start_lock(&self.at).map_err(|e| self.lock_error(e))? {
            return self.wait_for_house().await;
        }
        self.held_since = None;
        self.check_place(&self.at)?;
        match self.failure.take() {
            Some(reason) => Err(self.failed(reason)),
            None if self.spawned == 2 => {
                let words = self.last_words.take();
                let nobody = || "it says that it is ready, but nobody listens".into();
                Err(self.failed(words.unwrap_or_else(nobody)))
            }
            None => self.spawn().await,
        }
    }

    async fn wait_for_starter(&self) -> Result<(), Unavailable> {
        // The starter may itself be waiting for a house that leaves.
        if self.began.elapsed() > ms(limits::start_patience() + limits::house_patience()) {
            return Err(Unavailable::Contended { log: self.at.log() });
        }
        sleep(AGAIN).await;
        Ok(())
    }

    /// Somebody holds the house and nobody listens: it leaves, begins, or has lost its socket.
    async fn wait_for_house(&mut self) -> Result<(), Unavailable> {
        // Its keeper binds no socket over that.
        self.check_place(&self.at)?;
        // Whatever kept ours from starting was probably that one.
        self.failure = None;
        let since = *self.held_since.get_or_insert_with(Instant::now);
        if since.elapsed() > ms(limits::house_patience()) {
            return Err(self.silence());
        }
        if since.elapsed() > ASK_AFTER && self.knocked.is_none() {
            self.knock();
        }
        sleep(AGAIN).await;
        Ok(())
    }

    /// Nobody listens and we may not start one: is there a house all the same?
    async fn look_for_house(&mut self) -> Result<(), Unavailable> {
        let looking = self.options.mode == Mode::Look;
        // Each place may have lost its socket.
        for folders in self.options.endpoint.candidates() {
            if !matches!(endpoint::check_folder(&folders.run), Ok(true)) {
                continue;
            }
            match house::held(folders).map_err(|e| self.lock_error(e))? {
                Held::No => self.check_place(folders)?,
                Held::Yes | Held::Starting if looking => {
                    self.at = folders.clone();
                    self.check_place(folders)?;
                    if self.began.elapsed() > ms(limits::status_patience()) {
                        return Err(self.silence());
                    }
                    sleep(AGAIN).await;
                    return Ok(());
                }
                Held::Starting => return self.wait_for_starter().await,
                Held::Yes => {
                    self.at = folders.clone();
                    return self.wait_for_house().await;
                }
            }
        }
        Err(Unavailable::NotRunning)
    }

    async fn spawn(&mut self) -> Result<(), Unavailable> {
        self.spawned += 1;
        let program = match &self.options.program {
            Some(program) => program.clone(),
            None => find_program(),
        };
        let (child, ready) =
            spawn(&program, &self.at).map_err(|error| Unavailable::Program { program, error })?;
        match timeout(ms(limits::start_patience()), first_line(ready)).await {
            Ok(Ok(line)) => self.failure = heard(&line, child),
            Ok(Err(e)) => self.failure = Some(format!("its words cannot be read: {e}")),
            Err(_) => {
                let reason = format!("not ready after {} s", limits::start_patience() / 1000);
                return Err(self.failed(reason));
            }
        }
        self.last_words = self.failure.clone().or(self.last_words.take());
        // Also after a failure the caller connects once more: it may have failed because one is there.
        Ok(())
    }

    /// A full backlog means a living listener that is busy or hung.
    async fn wait_for_room(&mut self) -> Result<(), Unavailable> {
        if self.began.elapsed() > self.patience() {
            self.silent().await?;
        }
        sleep(AGAIN).await;
        Ok(())
    }

    /// Returns how long an answer to the handshake is waited for.
    fn patience(&self) -> Duration {
        match self.options.mode {
            Mode::Look => ms(limits::status_patience()),
            _ if self.knocked.is_some() => KNOCK_AGAIN,
            _ => ms(limits::hello_patience()),
        }
    }

    /// The handshake was not answered in time.
    async fn silent(&mut self) -> Result<(), Unavailable> {
        // Its keeper pings it for 5 s, then replaces it.
        let enough = ms(limits::hello_patience() + limits::house_patience());
        if self.options.mode == Mode::Look || self.knocked.is_some_and(|at| at.elapsed() >= enough)
        {
            return Err(self.silence());
        }
        // Others need not wait for us while we wait for an answer.
        self.lock = None;
        self.knock();
        Ok(())
    }

    fn knock(&mut self) {
        self.knocked.get_or_insert_with(Instant::now);
        house::knock(&self.at);
    }

    /// The connection ended before the handshake was answered.
    async fn broke(&mut self) -> Result<(), Unavailable> {
        self.tries += 1;
        if self.tries > 2 * TRIES {
            return Err(Unavailable::Unsteady { log: self.at.log() });
        }
        sleep(AGAIN * self.tries).await;
        Ok(())
    }

    /// Nobody listens: is what lies at the place of the socket one that can be replaced?
    fn check_place(&self, folders: &Folders) -> Result<(), Unavailable> {
        use std::os::unix::fs::FileTypeExt;
        let socket = folders.socket();
        match std::fs::symlink_metadata(&socket) {
            Ok(meta) if !meta.file_type().is_socket() => Err(Unavailable::NoSocket {
                socket,
                starting: self.options.mode == Mode::Start,
                folder: meta.is_dir(),
            }),
            _ => Ok(()),
        }
    }

    fn bad_folder(&self, error: BadFolder) -> Unavailable {
        Unavailable::Folder {
            error,
            starting: self.options.mode == Mode::Start,
        }
    }

    fn lock_error(&self, error: io::Error) -> Unavailable {
        Unavailable::Lock {
            path: self.at.start_lock(),
            error,
        }
    }

    fn failed(&self, reason: String) -> Unavailable {
        Unavailable::Failed {
            reason,
            log: self.at.log(),
        }
    }

    fn silence(&self) -> Unavailable {
        let pid = house::read(&self.at).map(|h| h.pid).filter(|pid| *pid > 0);
        let stopped = pid.and_then(house::stopped_one);
        Unavailable::Silent {
            pid: stopped.or(pid),
            stopped: stopped.is_some(),
            log: self.at.log(),
        }
    }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

async fn connect(folders: &Folders) -> Result<Dialled, Unavailable> {
    let socket = folders.socket();
    let name = socket.as_path().to_fs_name::<GenericFilePath>();
    let result = match name {
        Ok(name) => Stream::connect(name).await,
        Err(e) => Err(e),
    };
    match result {
        Ok(stream) => Ok(Dialled::Connected(stream)),
        Err(error) => match error.raw_os_error() {
            Some(libc::ENOENT) => Ok(Dialled::Missing),
            Some(libc::ECONNREFUSED | libc::ECONNRESET) => Ok(Dialled::Refused),
            Some(libc::EAGAIN) => Ok(Dialled::Full),
            _ => Err(Unavailable::Connect { socket, error }),
        },
    }
}

/// Returns the binary beside this program, else the first one on `PATH`, else the name alone for the error.
fn find_program() -> PathBuf {
    let exe = std::env::current_exe().ok();
    let beside = exe.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    // Looked for here: the program is started without our environment, and so without a `PATH`.
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = beside.into_iter().chain(std::env::split_paths(&path));
    let mut there = folders.map(|folder| folder.join("ostler"));
    there
        .find(|program| is_executable(program))
        .unwrap_or_else(|| "ostler".into())
}

fn is_executable(program: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    let found = std::fs::metadata(program);
    found.is_ok_and(|f| f.is_file() && f.permissions().mode() & 0o111 != 0)
}

/// Starts `ostler daemon keep` with nothing of ours: no environment, folder, descriptor or terminal output.
fn spawn(program: &Path, folders: &Folders) -> io::Result<(Child, OwnedFd)> {
    let mut command = Command::new(program);
    command
        .arg0("ostler")
        .args(["daemon", "keep"])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if folders.run == folders.state {
        // Only a moved house has one folder for both.
        command.env(DIR_VARIABLE, &folders.run);
        if let Some(steady) = std::env::var_os(STEADY_VARIABLE) {
            command.env(STEADY_VARIABLE, steady);
        }
    }
    // A house that a job starts is the job's.
    for variable in [RUNG_VARIABLE, JOB_VARIABLE, HOUSE_VARIABLE] {
        if let Some(value) = std::env::var_os(variable) {
            command.env(variable, value);
        }
    }
    // SAFETY: the closure runs between fork and exec and makes system calls only; it allocates nothing.
    unsafe {
        command.pre_exec(|| {
            close_all_on_exec();
            Ok(())
        });
    }
    let mut child = command.spawn()?;
    let ready = child
        .stdout
        .take()
        .ok_or_else(|| io::Error::other("no pipe to the new supervisor"))?;
    Ok((child, ready.into()))
}

/// Marks every descriptor above the standard three, so that nothing that our own caller left open gets into
/// the supervisor: it would hold a pipe of theirs open for days.
fn close_all_on_exec() {
    // SAFETY: the calls take integers only; descriptors that are not open are ignored or refused.
    unsafe {
        let marked = libc::syscall(
            libc::SYS_close_range,
            3_u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        );
        if marked != 0 {
            // Linux 5.10 has the call without this flag.
            for fd in 3..4096 {
                libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC);
            }
        }
    }
}

/// Reads up to the first line end or the end of the pipe.
async fn first_line(pipe: OwnedFd) -> io::Result<String> {
    let mut pipe = pipe::Receiver::from_owned_fd(pipe)?;
    let mut text = Vec::new();
    while !text.contains(&b'\n') && text.len() < 8 * 1024 {
        if pipe.read_buf(&mut text).await? == 0 {
            break;
        }
    }
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}

/// Returns why the start failed, if it did, and reaps the process that we started.
fn heard(line: &str, mut child: Child) -> Option<String> {
    // It forks once more and ends at once, so that this does not wait for the house.
    let status = child.wait();
    match line.trim().split_once(':') {
        None if line.trim() == "ready" => None,
        Some(("failed", reason)) => Some(reason.trim().to_owned()),
        _ => Some(match status {
            Ok(status) => format!("it ended without a word ({status})"),
            Err(e) => format!("it ended without a word ({e})"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn options(dir: &Path, mode: Mode) -> Options {
        Options::new(Endpoint::at(dir).unwrap(), mode)
    }

    fn script(dir: &Path, text: &str) -> PathBuf {
        let path = dir.join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    }

    async fn why(options: &Options) -> Unavailable {
        match reach(options, |_| ()).await {
            Err(Error::Unavailable(e)) => std::sync::Arc::into_inner(e).unwrap(),
            Err(e) => panic!("another error: {e}"),
            Ok(_) => panic!("connected to nobody"),
        }
    }

    #[tokio::test]
    async fn who_does_not_start_one_is_told_that_none_runs() {
        let dir = tempfile::tempdir().unwrap();
        for mode in [Mode::Use, Mode::Look] {
            assert!(matches!(
                why(&options(dir.path(), mode)).await,
                Unavailable::NotRunning
            ));
        }
        assert!(!dir.path().join("start.lock").exists());
    }

    #[tokio::test]
    async fn a_failing_start_tells_its_reason_and_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(&dir.path().join("run"), Mode::Start);
        options.program = Some(script(dir.path(), "echo failed: no room; exit 1"));
        let e = why(&options).await;
        assert_eq!(e.to_string(), "the supervisor did not start: no room");
        assert!(e.hint().unwrap().ends_with("run/daemon.log"));
    }

    #[tokio::test]
    async fn a_start_without_a_word_is_told_with_its_exit_status() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(&dir.path().join("run"), Mode::Start);
        options.program = Some(script(dir.path(), "exit 3"));
        let e = why(&options).await.to_string();
        assert!(e.contains("without a word (exit status: 3)"), "{e}");
    }

    #[tokio::test]
    async fn the_new_supervisor_gets_nothing_of_its_starter() {
        let dir = tempfile::tempdir().unwrap();
        let open = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: duplicates an open descriptor; the duplicate is inherited unless it is marked again.
        assert!(unsafe { libc::fcntl(open.as_raw_fd(), libc::F_DUPFD, 40) } >= 40);
        let mut options = options(&dir.path().join("run"), Mode::Start);
        options.program = Some(script(
            dir.path(),
            "echo \"failed: $(pwd) $*; $(/usr/bin/env | /usr/bin/cut -d= -f1 | /usr/bin/sort | /usr/bin/tr '\\n' ' '); $(test -e /proc/$$/fd/40 && echo leak)\"",
        ));
        let e = why(&options).await.to_string();
        assert!(e.contains("start: / daemon keep; "), "{e}");
        assert!(e.contains("OSTLER_DIR"), "{e}");
        assert!(!e.contains("HOME"), "{e}");
        assert!(!e.contains("leak"), "{e}");
    }

    #[tokio::test]
    async fn a_folder_that_is_not_ours_alone_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        let e = why(&options(dir.path(), Mode::Start)).await;
        assert!(
            e.to_string()
                .starts_with("the supervisor did not start: socket folder"),
            "{e}"
        );
        assert!(e.hint().unwrap().starts_with("chmod 700 "));
    }

    #[tokio::test]
    async fn a_socket_that_may_not_be_used_is_not_taken_for_a_stale_one() {
        let dir = tempfile::tempdir().unwrap();
        // A link to itself cannot be followed; unlike missing rights that holds for root as well.
        let socket = dir.path().join("ostler.sock");
        std::os::unix::fs::symlink(&socket, &socket).unwrap();
        let e = why(&options(dir.path(), Mode::Start)).await;
        assert!(matches!(e, Unavailable::Connect { .. }), "{e}");
        assert!(std::fs::symlink_metadata(&socket).is_ok());
    }

    #[tokio::test]
    async fn what_lies_in_the_way_of_the_socket_is_named_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("ostler.sock");
        std::fs::write(&socket, "notes").unwrap();
        for mode in [Mode::Start, Mode::Use, Mode::Look] {
            let e = why(&options(dir.path(), mode)).await;
            assert!(
                e.to_string()
                    .ends_with("ostler.sock is a file, not a socket"),
                "{e}"
            );
            assert!(e.hint().unwrap().starts_with("move it away: mv "), "{e:?}");
        }
        assert_eq!(std::fs::read(&socket).unwrap(), b"notes");
        std::fs::remove_file(&socket).unwrap();
        std::fs::create_dir(&socket).unwrap();
        let e = why(&options(dir.path(), Mode::Start)).await;
        assert!(
            e.to_string()
                .ends_with("ostler.sock is a folder, not a socket"),
            "{e}"
        );
    }

    #[tokio::test]
    async fn a_long_silence_is_told_once_and_waited_out() {
        static TOLD: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let dir = tempfile::tempdir().unwrap();
        let _listener =
            std::os::unix::net::UnixListener::bind(dir.path().join("ostler.sock")).unwrap();
        let mut options = options(dir.path(), Mode::Use);
        options.slow = Some(|_| {
            TOLD.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        });
        let patience = ms(limits::status_patience() + limits::status_patience() / 2);
        assert!(timeout(patience, reach(&options, |_| ())).await.is_err());
        assert_eq!(TOLD.load(std::sync::atomic::Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_listener_that_says_nothing_is_left_alone_by_who_only_looks() {
        let dir = tempfile::tempdir().unwrap();
        let _listener =
            std::os::unix::net::UnixListener::bind(dir.path().join("ostler.sock")).unwrap();
        let began = Instant::now();
        let e = why(&options(dir.path(), Mode::Look)).await;
        assert!(matches!(e, Unavailable::Silent { pid: None, .. }), "{e}");
        assert!(began.elapsed() >= ms(limits::status_patience()));
        assert!(!dir.path().join("start.lock").exists());
    }
}
