//! One hermetic house for one test.
//!
//! ```text
//!   BASE/h   OSTLER_DIR: socket, locks, log, key, artifacts      BASE/f   files of the test
//! ```
//!
//! `close` is the second half of every test: it ends the house in the ordinary way and looks for what is left.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ostler::{Client, Endpoint, Mode, Options};
use ostler_proto::address::{DIR_VARIABLE, Folders, RUNG_VARIABLE, STEADY_VARIABLE};
use ostler_proto::methods::{Info, Nothing, OpenSession, SupervisorInfo};
use ostler_supervisor::tree::cookie::HOUSE_JOB;
use tempfile::TempDir;

use crate::process::{Marks, Process, describe, has_memory};
use crate::{Desk, PATIENCE, Wire, ostler, within};

/// A whole test, its house's end excluded.
const LONGEST: Duration = Duration::from_secs(240);
/// An orderly end: one grace, the forced end, and a busy machine.
const END: Duration = Duration::from_secs(20);

/// A few times the millisecond after which a crash is forgiven.
const STEADY: Duration = Duration::from_millis(10);

/// A house and the files of its test.
pub struct House {
    base: TempDir,
    folders: Folders,
    marks: Marks,
    keeper: Mutex<Option<Child>>,
    /// Writing ends of FIFOs that were opened: whoever comes late to one must find it open.
    opened: Mutex<Vec<fs::File>>,
}

/// Runs a test in a house that is up.
///
/// # Panics
/// The test failed, or something is left after it.
pub fn in_house(test: impl AsyncFnOnce(&House)) {
    run(async |house| {
        house.start();
        test(house).await;
    });
}

/// Runs a test in a house that is up, with a client whose session may have more shells than people need.
///
/// # Panics
/// As [`in_house`].
pub fn in_house_of_shells(test: impl AsyncFnOnce(&House, crate::Desk)) {
    in_house(async |house| {
        let desk = house.desk_of(OpenSession {
            id: Some("x".into()),
            shells: Some(50),
            ..OpenSession::default()
        });
        test(house, desk).await;
    });
}

/// Runs a test in a house in which nothing has been started.
///
/// # Panics
/// The test failed, or something is left after it.
pub fn in_empty_house(test: impl AsyncFnOnce(&House)) {
    run(test);
}

fn run(test: impl AsyncFnOnce(&House)) {
    let house = House::build();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let all = async { within(LONGEST, "the end of the test", test(&house)).await };
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| runtime.block_on(all)));
    // Closes every socket of the test: a client that stays would only make the end slower.
    runtime.shutdown_background();
    let outcome =
        outcome.and_then(|()| std::panic::catch_unwind(AssertUnwindSafe(|| house.close())));
    if let Err(failure) = outcome {
        eprintln!("--- daemon.log\n{}---", house.log());
        house.raze();
        std::panic::resume_unwind(failure);
    }
}

impl House {
    fn build() -> Self {
        // Not the system's folder for temporary files: its path may be too long for a socket.
        let base = tempfile::Builder::new()
            .prefix("o")
            .tempdir_in("/tmp")
            .expect("a temporary folder can be made");
        let dir = base.path().join("h");
        for folder in [&dir, &base.path().join("f")] {
            let mut builder = fs::DirBuilder::new();
            builder.mode(0o700).create(folder).expect("it can be made");
        }
        Self {
            folders: Folders::moved(&dir),
            marks: Marks::of(&dir),
            keeper: Mutex::new(None),
            opened: Mutex::new(Vec::new()),
            base,
        }
    }

    /// The `OSTLER_DIR` of the house.
    pub fn dir(&self) -> &Path {
        &self.folders.run
    }

    /// Where everything of the house is.
    pub fn folders(&self) -> &Folders {
        &self.folders
    }

    /// A path for a file of the test; nothing of the house looks there.
    pub fn file(&self, name: &str) -> PathBuf {
        self.base.path().join("f").join(name)
    }

    /// The same as text, for arguments.
    pub fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// Makes a FIFO among the files of the test and returns its path: puppets `await` it, [`House::open`] lets
    /// them go on.
    ///
    /// # Panics
    /// It cannot be made.
    pub fn fifo(&self, name: &str) -> String {
        let path = self.path(name);
        let c = std::ffi::CString::new(path.clone()).expect("a path has no NUL");
        // SAFETY: the path is a valid C string.
        let made = unsafe { libc::mkfifo(c.as_ptr(), 0o600) };
        assert_eq!(made, 0, "{path}: {}", std::io::Error::last_os_error());
        path
    }

    /// Lets everybody go on who awaits the FIFO, now or later; waits until somebody does.
    ///
    /// # Panics
    /// Nobody comes.
    pub async fn open(&self, fifo: &str) {
        let path = fifo.to_owned();
        let opened =
            tokio::task::spawn_blocking(move || fs::OpenOptions::new().write(true).open(path));
        let opened = within(crate::PATIENCE, "a reader of the FIFO", opened).await;
        let file = opened
            .expect("opening does not panic")
            .expect("it is there");
        let mut kept = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push(file);
    }

    /// Lets those go on who await the FIFO now, if anybody does.
    pub fn open_if_awaited(&self, fifo: &str) {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = fs::OpenOptions::new();
        let opened = options
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(fifo);
        let mut kept = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(opened);
    }

    /// A command of the binary under test in this house, with a plain environment.
    pub fn ostler(&self, args: &[&str]) -> Command {
        let mut command = Command::new(ostler());
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", self.base.path().join("f"))
            .env(DIR_VARIABLE, self.dir())
            .env(STEADY_VARIABLE, "1")
            .envs(std::env::var_os(RUNG_VARIABLE).map(|rung| (RUNG_VARIABLE, rung)))
            .current_dir(self.base.path().join("f"));
        command
    }

    /// Starts the daemon and waits until it says that it is ready.
    ///
    /// # Panics
    /// It says anything else.
    pub fn start(&self) {
        let said = self.try_start();
        assert_eq!(said.trim(), "ready", "what the daemon said\n{}", self.log());
    }

    /// Starts the daemon and returns its first line.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn try_start(&self) -> String {
        self.spawn(|_| {})
    }

    /// Starts it with more variables.
    ///
    /// # Panics
    /// It is not ready.
    pub fn start_with(&self, variables: &[(&str, &str)]) {
        let said = self.spawn(|command| {
            command.envs(variables.iter().copied());
        });
        assert_eq!(said.trim(), "ready", "what the daemon said\n{}", self.log());
    }

    /// Starts it with room for so many descriptors in each of its processes, and no more.
    ///
    /// # Panics
    /// It is not ready.
    pub fn start_with_descriptors(&self, most: u64) {
        let said = self.try_start_with_limit(libc::RLIMIT_NOFILE, most);
        assert_eq!(said.trim(), "ready", "what the daemon said\n{}", self.log());
    }

    /// Starts it with a limit that it cannot raise, unless it is root, and returns its first line.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn try_start_with_limit(&self, resource: libc::__rlimit_resource_t, most: u64) -> String {
        let limit = libc::rlimit {
            rlim_cur: most,
            rlim_max: most,
        };
        let set = move || {
            // SAFETY: a valid limit; one system call between fork and exec.
            match unsafe { libc::setrlimit(resource, &raw const limit) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        self.spawn(|command| {
            // SAFETY: `set` makes one system call and allocates nothing.
            unsafe { command.pre_exec(set) };
        })
    }

    /// Starts the daemon and waits for nothing.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn begin(&self) -> Process {
        let keeper = self.execute(|_| {});
        let process = Process::of(keeper.id()).expect("nobody has waited for it");
        self.hold(keeper);
        process
    }

    /// Starts it after a step of the child's own, between fork and exec.
    ///
    /// # Panics
    /// It is not ready.
    pub fn start_after(&self, step: impl Fn() -> std::io::Result<()> + Send + Sync + 'static) {
        let said = self.spawn(|command| {
            // SAFETY: the steps of the suites make a few system calls; no other thread of theirs holds a lock.
            unsafe { command.pre_exec(step) };
        });
        assert_eq!(said.trim(), "ready", "what the daemon said\n{}", self.log());
    }

    /// Kills keeper and supervisor together and waits until both are gone.
    ///
    /// # Panics
    /// They live on.
    pub async fn kill_both(&self) {
        let hello = self.info().await.hello;
        // The supervisor first: the kernel wakes who stands still when his parent dies.
        let both = [hello.pid, hello.keeper_pid].map(|pid| Process::of(pid).expect("it lives"));
        // Stopped first: the second to go must not see the end of the first.
        both.iter().for_each(Process::freeze);
        both.iter()
            .for_each(|process| process.signal(libc::SIGKILL));
        for process in both {
            process.gone().await;
        }
        self.reap();
    }

    fn spawn(&self, adjust: impl FnOnce(&mut Command)) -> String {
        let mut keeper = self.execute(adjust);
        let mut said = String::new();
        let out = keeper.stdout.take().expect("it was piped");
        BufReader::new(out)
            .read_line(&mut said)
            .expect("the daemon speaks text");
        self.hold(keeper);
        said
    }

    fn execute(&self, adjust: impl FnOnce(&mut Command)) -> Child {
        let words = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(self.file("daemon.err"))
            .expect("a file can be made");
        let mut command = self.ostler(&["daemon", "run"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(words)
            // A Ctrl-C at the test's terminal must not be what ends the house.
            .process_group(0);
        adjust(&mut command);
        command.spawn().expect("ostler can be executed")
    }

    fn hold(&self, keeper: Child) {
        let mut held = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut former) = held.replace(keeper) {
            let _ = former.wait();
        }
    }

    /// Options of a client that shows the owner key.
    ///
    /// # Panics
    /// The path is too long for a socket.
    pub fn options(&self, mode: Mode) -> Options {
        let endpoint = Endpoint::at(self.dir()).expect("the path is short");
        let mut options = Options::new(endpoint, mode);
        options.program = Some(ostler().to_path_buf());
        options.owner = true;
        options
    }

    /// A client with a session named `x` that may have many commands.
    pub fn desk(&self) -> Desk {
        self.desk_of(OpenSession {
            id: Some("x".into()),
            commands: Some(10_000),
            ..OpenSession::default()
        })
    }

    /// A client with this session.
    pub fn desk_of(&self, session: OpenSession) -> Desk {
        let mut options = self.options(Mode::Use);
        options.session = Some(session);
        Desk::new(Client::new(options))
    }

    /// A client without a session.
    pub fn desk_without_session(&self) -> Desk {
        Desk::new(Client::new(self.options(Mode::Use)))
    }

    /// A raw connection.
    ///
    /// # Panics
    /// Nobody listens.
    pub async fn wire(&self) -> Wire {
        Wire::connect(&self.folders.socket()).await
    }

    /// What the supervisor says of itself.
    ///
    /// # Panics
    /// It does not answer.
    pub async fn info(&self) -> Info {
        let desk = self.desk_without_session();
        desk.must::<SupervisorInfo>(Nothing {}).await
    }

    /// Kills the supervisor as `kill -9` does and waits until a new one answers. Returns the new generation.
    ///
    /// # Panics
    /// No new one comes, or it is the same.
    pub async fn kill_supervisor(&self) -> u64 {
        self.end_supervisor(libc::SIGKILL).await
    }

    /// The same with another signal that ends it.
    ///
    /// # Panics
    /// No new one comes, or it is the same.
    pub async fn end_supervisor(&self, signal: i32) -> u64 {
        let before = self.info().await.hello;
        let process = Process::of(before.pid).expect("it has just answered");
        process.signal(signal);
        process.gone().await;
        let after = self.info().await.hello;
        assert_eq!(
            after.generation,
            before.generation + 1,
            "one new supervisor"
        );
        assert_eq!(after.keeper_pid, before.keeper_pid, "the same keeper");
        // The house forgives a crash after a millisecond of service (OSTLER_STEADY_MS); a test that kills again
        // within it would be taken for a crash loop. Nothing tells of that moment, so it is passed by asking.
        let begun = Instant::now();
        while begun.elapsed() < STEADY {
            self.info().await;
        }
        after.generation
    }

    /// The keeper as the lock file names it, if it lives.
    pub fn keeper(&self) -> Option<Process> {
        let text = fs::read_to_string(self.folders.house_lock()).ok()?;
        let line: serde_json::Value = serde_json::from_str(text.lines().next()?).ok()?;
        let pid = u32::try_from(line["pid"].as_u64()?).ok()?;
        let process = Process::of(pid)?;
        self.marks.living().contains(&pid).then_some(process)
    }

    /// Children of the keeper that carry the cookie of the house itself: the supervisor, one in standby, one that is dying.
    ///
    /// # Panics
    /// There is no keeper.
    pub fn supervisors(&self) -> Vec<u32> {
        let keeper = self.keeper().expect("the keeper lives").pid;
        let mut all = self.marks.living();
        all.retain(|p| {
            self.marks.job_of(*p) == Some(HOUSE_JOB) && crate::process::parent(*p) == Some(keeper)
        });
        all
    }

    /// Kills the supervisor, and the next one as soon as there is one, before anybody has spoken to it.
    ///
    /// # Panics
    /// No other comes, or another keeper.
    pub async fn kill_supervisor_and_the_next(&self) {
        let old = self.info().await.hello;
        let process = Process::of(old.pid).expect("it has just answered");
        process.signal(libc::SIGKILL);
        let next = async {
            loop {
                let fresh = self.supervisors().into_iter().find(|pid| *pid != old.pid);
                match fresh.and_then(Process::of) {
                    Some(process) => return process,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        let next = within(crate::PATIENCE, "the next supervisor", next).await;
        next.signal(libc::SIGKILL);
        let now = self.info().await.hello;
        assert!(now.generation > old.generation && now.keeper_pid == old.keeper_pid);
    }

    /// How its processes are recognised.
    pub fn marks(&self) -> &Marks {
        &self.marks
    }

    /// Living processes that are of the house, but neither its keeper nor its supervisor.
    pub fn members(&self) -> Vec<u32> {
        let house_job = ostler_supervisor::tree::cookie::HOUSE_JOB;
        // Without a cookie, its own are told by what they were executed as.
        let own = |pid: u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut words = line.split(|byte| *byte == 0);
            self.marks.job_of(pid) == Some(house_job)
                || words.next().is_some_and(|w| w.ends_with(b"ostler"))
                    && words.next() == Some(b"daemon")
        };
        let living = self.marks.living().into_iter();
        living.filter(|pid| !own(*pid)).collect()
    }

    /// The supervisor's log, and what the keeper said on its standard error.
    pub fn log(&self) -> String {
        let log = fs::read_to_string(self.folders.log()).unwrap_or_default();
        let said = fs::read_to_string(self.file("daemon.err")).unwrap_or_default();
        log + &said
    }

    /// Ends the house in the ordinary way and looks for what is left.
    ///
    /// # Panics
    /// It does not end, or something is left.
    pub fn close(&self) {
        if let Some(keeper) = self.keeper() {
            keeper.signal(libc::SIGTERM);
            assert!(keeper.gone_within(END), "TERM did not end the keeper");
        }
        self.reap();
        self.assert_nothing_is_left();
    }

    /// The user who keeps it.
    pub fn uid(&self) -> u32 {
        // SAFETY: geteuid has no precondition.
        unsafe { libc::geteuid() }
    }

    /// Collects the keeper's own exit, if it was our child and is over.
    pub fn reap(&self) {
        let mut held = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut keeper) = held.take() {
            let _ = keeper.wait();
        }
    }

    /// What must be true of a house that has ended.
    ///
    /// # Panics
    /// It is not.
    pub fn assert_nothing_is_left(&self) {
        let left = self.marks.living().into_iter();
        // One that was killed and has no memory any more runs nothing, and is gone in a moment.
        let (left, dying): (Vec<u32>, Vec<u32>) = left.partition(|pid| has_memory(*pid));
        for dying in dying.into_iter().filter_map(Process::of) {
            assert!(dying.gone_within(PATIENCE), "a process does not end");
        }
        let lines: Vec<String> = left.iter().map(|pid| describe(*pid)).collect();
        assert!(left.is_empty(), "processes are left:\n{}", lines.join("\n"));
        let groups = crate::groups::named(&self.marks.group());
        assert!(groups.is_empty(), "control groups are left: {groups:?}");
        let socket = self.folders.socket();
        assert!(!socket.exists(), "{} is left", socket.display());
        let artifacts = files_below(&self.folders.artifacts());
        assert!(artifacts.is_empty(), "artifacts are left: {artifacts:?}");
    }

    /// Kills everything of the house, after a test that has failed anyway.
    fn raze(&self) {
        for _ in 0..50 {
            let left: Vec<Process> = self
                .marks
                .living()
                .into_iter()
                .filter_map(Process::of)
                .collect();
            if left.is_empty() {
                break;
            }
            for process in &left {
                process.signal(libc::SIGKILL);
            }
            for process in &left {
                process.gone_within(Duration::from_secs(1));
            }
        }
        let groups = crate::groups::named(&self.marks.group());
        groups.iter().for_each(|group| crate::groups::remove(group));
        self.reap();
    }
}

/// Every file below a folder.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// Nobody, everywhere.
pub(crate) const NOBODY: u32 = 65_534;

/// Names the set-uid puppet to a test that runs as an ordinary user.
const ROOT_PUPPET: &str = "OSTLER_TEST_ROOT_PUPPET";

/// Runs the test of this name again as an ordinary user if this is the superuser. `true`: go on, this is one.
///
/// # Panics
/// It failed there.
pub fn as_ordinary_user(test: &str) -> bool {
    if !is_superuser() {
        return true;
    }
    run_as_nobody(Command::new(own_program()), test);
    false
}

/// The same with a puppet that may `become 0`, whose path is returned there. Nothing: the test is over, or there is
/// no superuser here who could make one.
///
/// # Panics
/// It failed there.
pub fn as_ordinary_user_with_root_puppet(test: &str) -> Option<String> {
    if !is_superuser() {
        let given = std::env::var(ROOT_PUPPET).ok();
        if given.is_none() {
            crate::skip("only the superuser can make a set-uid program");
        }
        return given;
    }
    let made = RootPuppet::make();
    let mut command = Command::new(own_program());
    command.env(ROOT_PUPPET, made.path());
    run_as_nobody(command, test);
    None
}

/// A puppet that may become the superuser whoever starts it.
pub(crate) struct RootPuppet {
    folder: TempDir,
}

impl RootPuppet {
    /// Only the superuser can.
    pub(crate) fn make() -> Self {
        let folder = TempDir::with_prefix_in("o", "/tmp").expect("a temporary folder can be made");
        // Beside the superuser, nobody but nobody may come near it.
        std::os::unix::fs::chown(folder.path(), Some(0), Some(NOBODY)).expect("root may give away");
        mode(folder.path(), 0o710);
        let made = Self { folder };
        fs::copy(crate::puppet(), made.path()).expect("the puppet can be copied");
        mode(&made.path(), 0o4755);
        made
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("puppet")
    }
}

fn mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let mode = fs::Permissions::from_mode(mode);
    fs::set_permissions(path, mode).expect("it is ours");
}

pub(crate) fn is_superuser() -> bool {
    // SAFETY: geteuid has no precondition.
    unsafe { libc::geteuid() == 0 }
}

fn own_program() -> PathBuf {
    std::env::current_exe().expect("a running program has a path")
}

fn run_as_nobody(mut command: Command, test: &str) {
    let status = command
        .args(["--exact", test, "--nocapture"])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/")
        .status()
        .expect("the suite can be executed by everybody");
    assert!(status.success(), "it failed as an ordinary user");
}
