//! From a started process to a house that stands: lock, socket, memory, the way out.
//!
//! Owns what lives as long as the keeper. Runs once, top to bottom, before the loop;
//! every failure on the way is one line on the ready pipe and in the lock file.

use super::brain::Brain;
use super::cookie;
use super::fork::Defaults;
use super::kernel::{self, check};

use super::former::{self, Former};
use super::turn::Keeper;
use super::wire::Limit;
use crate::log::{Arena, BLOCKS};
use crate::tree::Rung;
use crate::tree::cgroup::{self, Cgroups};
use ostler_proto::address::RUNG_VARIABLE;
use ostler_proto::limits;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Longest path that fits a socket address, its closing zero left out.
const LONGEST_SOCKET: usize = 107;

/// Clients that may wait to be accepted while the supervisor is being restarted.
const BACKLOG: libc::c_int = 1024;

/// How to run a keeper.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where clients connect.
    pub socket: PathBuf,
    /// The lock that keeper and supervisor hold for life.
    pub house_lock: PathBuf,
    /// Where the log is.
    pub state_dir: PathBuf,
    /// The house's number in cookies, 30 bits.
    pub instance: u32,
    /// The best way to find members that may be used.
    pub rung: Rung,
    /// The supervisor's arguments, its own name first.
    pub supervise: Vec<OsString>,
    /// The supervisor's program; `None` is our own image.
    pub image: Option<PathBuf>,
    /// Stay the process that was started.
    pub foreground: bool,
    /// Which build of its version this is.
    pub build: String,
}

/// What lives as long as the keeper.
pub(super) struct House {
    pub(super) options: Options,
    pub(super) lock: File,
    pub(super) bound: Bound,
    pub(super) image: OwnedFd,
    pub(super) arena: OwnedFd,
    pub(super) headers: OwnedFd,
    pub(super) slots: u64,
    pub(super) ledger: OwnedFd,
    pub(super) generation: u64,
    pub(super) scratch: Vec<(OwnedFd, OwnedFd)>,
    pub(super) defaults: Defaults,
    /// The list of our children; missing without `/proc`.
    children: Option<File>,
    /// Where the starting client waits for one line.
    ready: Option<File>,
}

/// Runs a keeper until its house is gone. Standard output is where the starting client
/// waits for `ready` or `failed: REASON`.
///
/// Must be called before anything else of the process has made a thread or opened a file:
/// every descriptor above 2 is closed.
pub fn run(options: Options) -> ExitCode {
    kernel::default_signals();
    let opened = kernel::close_from(3, 0).and_then(|()| take_standard_files(options.foreground));
    let Ok(mut ready) = opened else {
        return ExitCode::FAILURE;
    };
    let lock = match begin(&options) {
        Ok(lock) => lock,
        Err(reason) => {
            // The starting client may be gone; there is nobody else to tell.
            let _ = writeln!(ready, "failed: {reason}");
            return ExitCode::FAILURE;
        }
    };
    let mut lock = Some(lock);
    match former::wake(options.instance, &options.socket, &mut lock) {
        Former::None => {}
        Former::Listens => {
            let _ = writeln!(ready, "ready");
            return ExitCode::SUCCESS;
        }
        Former::Silent(pid) => {
            let _ = writeln!(
                ready,
                "failed: the house of pid {pid} lives without its folder and does not answer"
            );
            return ExitCode::FAILURE;
        }
    }
    let lock = match lock.map_or_else(|| take_lock(&options.house_lock), Ok) {
        Ok(lock) => lock,
        Err(reason) => {
            let _ = writeln!(ready, "failed: {reason}");
            return ExitCode::FAILURE;
        }
    };
    if !options.foreground && !detach() {
        return ExitCode::SUCCESS;
    }
    match stand(options, &lock, &ready) {
        Ok(keeper) => {
            // The starting client reads to the end of file; the house has its own copy.
            drop((ready, lock));
            keeper.run()
        }
        Err(reason) => {
            // Whoever reads that looks for a house next, and must not wait for this one to be gone.
            let _ = lock.unlock();
            let _ = writeln!(ready, "failed: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Points 0, 1 and (in the background) 2 at the null device; keeps what was 1.
fn take_standard_files(foreground: bool) -> io::Result<File> {
    let null = loop {
        let null = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/null")?;
        if null.as_raw_fd() > 2 {
            break null;
        }
        // One of the three was closed; it stays filled.
        std::mem::forget(null);
    };
    let ready = io::stdout().as_fd().try_clone_to_owned()?;
    let targets = if foreground { 0..=1 } else { 0..=2 };
    for target in targets {
        // SAFETY: both are open; these three belong to the process as a whole.
        check(unsafe { libc::dup2(null.as_raw_fd(), target) }.into())?;
    }
    // It must say what is wrong where so few descriptors are allowed that none is left up there.
    Ok(File::from(kernel::lift_or_keep(ready)))
}

/// Everything that can fail while the starting client still is our parent.
fn begin(options: &Options) -> Result<File, String> {
    probe().map_err(|error| format!("the kernel is too old, 5.10 is needed: {error}"))?;
    room()?;
    let length = options.socket.as_os_str().len();
    if length > LONGEST_SOCKET {
        return Err(format!(
            "the socket path is {length} bytes long, at most {LONGEST_SOCKET} are possible: {}",
            options.socket.display()
        ));
    }
    take_lock(&options.house_lock)
}

/// Whether so many descriptors are allowed that one job can run.
fn room() -> Result<(), String> {
    let limit = kernel::limit_of(0, libc::RLIMIT_NOFILE);
    let most = limit.map_or(u64::MAX, |limit| limit.rlim_max);
    if limits::jobs_within(most) > 0 {
        return Ok(());
    }
    let least = limits::KEEPER_RESERVE + limits::DESCRIPTORS_KEPT;
    Err(format!(
        "{most} open files are allowed (ulimit -Hn) and {least} are needed for a first job"
    ))
}

/// `close_range` has been used already; this asks for waiting by pidfd.
fn probe() -> io::Result<()> {
    // SAFETY: nothing is written, the descriptor does not exist.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_waitid,
            libc::P_PIDFD,
            1_000_000_000,
            std::ptr::null_mut::<libc::siginfo_t>(),
            libc::WEXITED | libc::WNOHANG,
            std::ptr::null_mut::<libc::rusage>(),
        )
    };
    match check(answer) {
        Err(error) if error.raw_os_error() == Some(libc::EBADF) => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Ok(()),
    }
}

/// Takes the house lock or says who has it.
fn take_lock(path: &Path) -> Result<File, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    loop {
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)
            .map_err(failed)?;
        // SAFETY: plain call on an open descriptor.
        let taken = unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
        if let Err(error) = check(taken.into()) {
            if error.kind() == io::ErrorKind::WouldBlock {
                return Err(held_by(&mut lock));
            }
            return Err(failed(error));
        }
        let ours = lock.metadata().map_err(failed)?;
        // The file may have been replaced between open and lock; then the lock says nothing.
        if std::fs::metadata(path).is_ok_and(|there| same(&there, &ours)) {
            let lock = kernel::lift(lock.into()).map_err(failed)?;
            return Ok(lock.into());
        }
    }
}

fn held_by(lock: &mut File) -> String {
    let mut text = String::new();
    // What cannot be read or understood is an unknown holder.
    let _ = lock.read_to_string(&mut text);
    let line: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let pid = line.as_ref().and_then(|line| line["pid"].as_u64());
    match pid {
        Some(pid) => format!("house.lock is held by pid {pid}"),
        None => "house.lock is held by another process".into(),
    }
}

fn same(one: &std::fs::Metadata, other: &std::fs::Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Leaves the starting client's session. False in the process that is to exit.
fn detach() -> bool {
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: plain calls; a new child is no group leader, so the first succeeds.
            unsafe { libc::setsid() };
            true
        }
        // Failing to fork: go on as we are, which is worse only for the terminal's hang-up.
        -1 => true,
        _ => false,
    }
}

/// Builds the house around the lock.
fn stand(options: Options, lock: &File, ready: &File) -> Result<Keeper, String> {
    let failed = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let signals = kernel::signals()
        .and_then(kernel::lift)
        .map_err(failed("signals cannot be taken"))?;
    std::env::set_current_dir("/").map_err(failed("/ cannot be entered"))?;
    // SAFETY: plain call.
    let umask = unsafe { libc::umask(0o077) } as u32;
    let limits = raise_limits();
    let image = open_image(&options).map_err(failed("the supervisor's image cannot be opened"))?;
    // SAFETY: plain call. Without it escaped grandchildren go to init; it cannot fail here.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
    let rung = match options.rung {
        Rung::Links => cookie::Rung::None,
        Rung::Cgroup | Rung::Cookie => cookie::claim(options.instance),
    };
    let (arena, headers, slots) = memory().map_err(no_memory)?;
    let ledger = ledger().map_err(failed("the ledger cannot be made"))?;
    let scratch = scratch().map_err(failed("scratch pipes cannot be made"))?;
    let lock_copy = again(lock).map_err(failed("the lock cannot be kept"))?;
    let ready = again(ready).map_err(failed("the ready pipe cannot be kept"))?;
    // What others can see comes last: a start that fails leaves nothing of it.
    let bound = bind(&options.socket)?;
    let groups = groups(&options, lock);
    let seen = (options.socket.clone(), groups.clone());
    let defaults = Defaults {
        umask,
        limits,
        instance: options.instance,
        rung,
        oom: oom(),
        groups,
    };
    let house = House {
        bound,
        lock: lock_copy,
        ready: Some(ready),
        image,
        arena,
        headers,
        slots,
        ledger,
        generation: 0,
        scratch,
        defaults,
        children: children_file(),
        options,
    };
    let described = house.describe("", false);
    let described = described.map_err(failed("house.lock cannot be written"));
    let keeper = described.and_then(|()| {
        let keeper = Keeper::new(house, signals, Brain::default());
        keeper.map_err(failed("events cannot be watched"))
    });
    if keeper.is_err() {
        let (socket, groups) = seen;
        let _ = std::fs::remove_file(socket);
        if let Ok(groups) = groups {
            groups.whole().remove();
        }
    }
    keeper
}

/// The field of the lock file that says that nothing is left of a house that has ended.
const NOTHING_LEFT: &str = "nothingLeft";

/// Says in the lock file that nothing is left, for a supervisor whose keeper cannot say so any more.
///
/// # Errors
/// The file is not there, or says nothing.
pub(crate) fn say_nothing_is_left(house_lock: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let lock = options.custom_flags(libc::O_NOFOLLOW).open(house_lock)?;
    let mut line = read_line(&lock).ok_or(io::ErrorKind::InvalidData)?;
    line[NOTHING_LEFT] = true.into();
    write_line(&lock, &line)
}

/// In place: the lock is on the file, not on its name.
fn write_line(lock: &File, line: &serde_json::Value) -> io::Result<()> {
    let line = format!("{line}\n");
    lock.write_all_at(line.as_bytes(), 0)?;
    lock.set_len(line.len() as u64)
}

fn read_line(lock: &File) -> Option<serde_json::Value> {
    let mut text = vec![0; 4096];
    let length = lock.read_at(&mut text, 0).ok()?;
    serde_json::from_slice(&text[..length]).ok()
}

/// How long what a dead house left elsewhere may take to die; what takes longer is found by its cookie.
const FORMER_PATIENCE: Duration = Duration::from_millis(500);

/// The groups of this house, or why it has none. What a dead house of this instance left in another place goes: the
/// supervisor clears what stands in ours.
fn groups(options: &Options, lock: &File) -> Result<Cgroups, String> {
    let groups = match options.rung {
        Rung::Cgroup => Cgroups::find(options.instance).and_then(|found| {
            found.make()?;
            Ok(found)
        }),
        Rung::Cookie | Rung::Links => Err(format!("not wanted ({RUNG_VARIABLE})")),
    };
    let former = former_groups(options.instance, lock);
    if let Some(former) = former.filter(|former| groups.as_ref() != Ok(former)) {
        cgroup::clear_former(&former, FORMER_PATIENCE);
    }
    groups
}

/// Where the last house that held this lock had its groups.
fn former_groups(instance: u32, lock: &File) -> Option<Cgroups> {
    let line = read_line(lock)?;
    Cgroups::at(Path::new(line["cgroup"].as_str()?), instance)
}

/// The same open file, up where long-lived descriptors are.
fn again(file: &File) -> io::Result<File> {
    kernel::lift(file.try_clone()?.into()).map(File::from)
}

fn open_image(options: &Options) -> io::Result<OwnedFd> {
    let path = options.image.as_deref();
    let path = path.unwrap_or(Path::new("/proc/self/exe"));
    // A path handle: the image need not be readable, only executable.
    let mut handle = OpenOptions::new();
    let file = handle.read(true).custom_flags(libc::O_PATH).open(path)?;
    kernel::lift(file.into())
}

/// Raises what a keeper of many jobs needs; returns what was before, for the jobs.
fn raise_limits() -> Vec<Limit> {
    let mut before = Vec::new();
    for resource in [libc::RLIMIT_NOFILE, libc::RLIMIT_FSIZE] {
        let Ok(limit) = kernel::limit_of(0, resource) else {
            continue;
        };
        before.push(Limit {
            resource,
            soft: limit.rlim_cur,
            hard: limit.rlim_max,
        });
        // Soft up to hard is always allowed; a small limit on files is the starter's, and root may lift it. The number
        // of descriptors stays: who set it may have meant the house.
        let wanted = [libc::RLIM64_INFINITY, limit.rlim_max];
        let wanted = &wanted[usize::from(resource == libc::RLIMIT_NOFILE)..];
        let raised = |most: &u64| {
            let both = libc::rlimit64 {
                rlim_cur: *most,
                rlim_max: *most,
            };
            kernel::set_limit(resource, both).is_ok()
        };
        let _ = wanted.iter().any(raised);
    }
    before
}

/// Why there is no memory for rings, in words that say what to do where that is known.
fn no_memory(error: io::Error) -> String {
    let most = kernel::limit_of(0, libc::RLIMIT_FSIZE).map_or(0, |limit| limit.rlim_max);
    match error.raw_os_error() {
        Some(libc::EFBIG) => format!(
            "its memory needs larger files than the file size limit of {most} bytes allows; start it where ulimit -f is unlimited"
        ),
        _ => format!("memory files cannot be made: {error}"),
    }
}

/// What a job's `oom_score_adj` is to be: 100 more than ours.
fn oom() -> Vec<u8> {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    let ours: i32 = text.trim().parse().unwrap_or(0);
    (ours + 100).min(1000).to_string().into_bytes()
}

/// Rings and headers, with the number of slots.
fn memory() -> io::Result<(OwnedFd, OwnedFd, u64)> {
    let (rings, headers) = Arena::create()?;
    let slots = Arena::slots_of(&rings)?;
    Ok((kernel::lift(rings)?, kernel::lift(headers)?, slots))
}

fn ledger() -> io::Result<OwnedFd> {
    kernel::memfd(c"ostler-ledger").and_then(kernel::lift)
}

fn scratch() -> io::Result<Vec<(OwnedFd, OwnedFd)>> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (0..cores.clamp(1, BLOCKS))
        .map(|_| {
            let (reading, writing) = kernel::pipe(libc::O_NONBLOCK)?;
            Ok((kernel::lift(reading)?, kernel::lift(writing)?))
        })
        .collect()
}

fn children_file() -> Option<File> {
    let pid = std::process::id();
    let file = File::open(format!("/proc/self/task/{pid}/children")).ok()?;
    kernel::lift(file.into()).ok().map(File::from)
}

/// The listening socket and which file it is.
pub(super) struct Bound {
    pub(super) listener: OwnedFd,
    device: u64,
    inode: u64,
}

/// Binds beside the path and renames over it: who sees the socket can connect to it.
fn bind(path: &Path) -> Result<Bound, String> {
    let failed = |error: io::Error| format!("{}: {error}", path.display());
    match std::fs::symlink_metadata(path) {
        Ok(there) if !there.file_type().is_socket() => {
            return Err(format!("{} exists and is no socket", path.display()));
        }
        _ => {}
    }
    // Short, so that it fits wherever the path itself does.
    let beside = path.with_file_name(format!(".k{:x}", std::process::id()));
    // A left-over of a keeper with our number that died in between; the lock is ours.
    let _ = std::fs::remove_file(&beside);
    let bound = bind_private(&beside)
        .and_then(|listener| {
            std::fs::rename(&beside, path)?;
            let there = std::fs::symlink_metadata(path)?;
            Ok(Bound {
                listener,
                device: there.dev(),
                inode: there.ino(),
            })
        })
        .map_err(failed);
    if bound.is_err() {
        let _ = std::fs::remove_file(&beside);
    }
    bound
}

/// A listener that was never open to others, not even between bind and chmod.
fn bind_private(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: plain calls; the keeper has one thread, so nobody else makes a file now.
    let before = unsafe { libc::umask(0o177) };
    let listener = UnixListener::bind(path);
    // SAFETY: as above.
    unsafe { libc::umask(before) };
    let listener = listener?;
    // SAFETY: plain call; listening again only changes the length of the queue.
    check(unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) }.into())?;
    listener.set_nonblocking(true)?;
    kernel::lift(listener.into())
}

impl House {
    /// Whether clients that resolve the path reach us.
    pub(super) fn reachable(&self) -> bool {
        std::fs::symlink_metadata(&self.options.socket)
            .is_ok_and(|there| (there.dev(), there.ino()) == (self.bound.device, self.bound.inode))
    }

    /// Binds again, when the path is not ours any more.
    pub(super) fn rebind(&mut self) -> Result<(), String> {
        self.retake_lock();
        self.bound = bind(&self.options.socket)?;
        Ok(())
    }

    /// Takes the lock file that stands at the path now, when ours has lost its name: else the next start would find
    /// it free. The old one stays ours through the supervisor's copy.
    fn retake_lock(&mut self) {
        let path = &self.options.house_lock;
        let ours = self.lock.metadata();
        let there = std::fs::metadata(path);
        if let (Ok(ours), Ok(there)) = (&ours, &there)
            && same(ours, there)
        {
            return;
        }
        match take_lock(path) {
            Ok(lock) => {
                self.lock = lock;
                // The line only helps people and clients to find us.
                let _ = self.describe("", false);
            }
            Err(reason) => self.log(
                "error",
                &format!("the lock file is not ours any more: {reason}"),
            ),
        }
    }

    /// Removes the socket, if it still is ours.
    pub(super) fn vanish(&self) {
        if self.reachable() {
            // It may go away in between; gone is gone.
            let _ = std::fs::remove_file(&self.options.socket);
        }
    }

    /// Tells the starting client, once.
    pub(super) fn announce(&mut self, line: &str) {
        if let Some(mut ready) = self.ready.take() {
            // The client may have given up.
            let _ = writeln!(ready, "{line}");
        }
    }

    /// Writes the lock file's line.
    ///
    /// `nothing_left`: the house has ended, and so has everything in it; else the next one, or whoever looks, has to
    /// see to that.
    pub(super) fn describe(&self, reason: &str, nothing_left: bool) -> io::Result<()> {
        let pid = std::process::id();
        let line = serde_json::json!({
            "pid": pid,
            "start": start_time(pid as i32),
            "instance": self.options.instance,
            "version": env!("CARGO_PKG_VERSION"),
            "socket": self.options.socket.to_string_lossy(),
            "cgroup": self.defaults.groups.as_ref().ok().map(|g| g.folder().to_string_lossy()),
            "reason": (!reason.is_empty()).then_some(reason),
            NOTHING_LEFT: nothing_left,
        });
        write_line(&self.lock, &line)
    }

    /// One line in the house's log.
    pub(super) fn log(&self, level: &str, text: &str) {
        crate::diary::append(
            &self.options.state_dir.join("daemon.log"),
            level,
            &format!("keeper: {text}"),
        );
    }

    /// Our children, ended ones included.
    pub(super) fn children(&mut self) -> Option<Vec<i32>> {
        let file = self.children.as_mut()?;
        file.rewind().ok()?;
        // Read in large pieces: the kernel walks the list anew for each piece.
        let mut bytes = vec![0; 64 * 1024];
        let mut length = 0;
        loop {
            if length == bytes.len() {
                bytes.resize(2 * length, 0);
            }
            match file.read(&mut bytes[length..]).ok()? {
                0 => break,
                got => length += got,
            }
        }
        let words = bytes[..length].split(|byte| *byte == b' ');
        Some(words.filter_map(number).collect())
    }

    /// The job that the supervisor says it is restoring, and the mark taken away.
    pub(super) fn take_restoring(&self) -> Option<u64> {
        let headers = self.headers.try_clone().map(File::from).ok()?;
        let mut word = [0; 8];
        headers.read_exact_at(&mut word, Arena::HOUSE_WORD_0).ok()?;
        // Left standing it would be counted again at the next death.
        headers.write_all_at(&[0; 8], Arena::HOUSE_WORD_0).ok()?;
        u64::from_ne_bytes(word).checked_sub(1)
    }
}

/// A process number in decimal digits; `None` for no digits at all.
fn number(digits: &[u8]) -> Option<i32> {
    let add = |number: i32, digit: &u8| number * 10 + i32::from(digit - b'0');
    (!digits.is_empty()).then(|| digits.iter().fold(0, add))
}

/// A process's start time in clock ticks since boot.
pub(super) fn start_time(pid: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; the last bracket ends it. Start time is
    // the 22nd word, the 20th after the name.
    let rest = text.rsplit_once(')')?.1;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}
