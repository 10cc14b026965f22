//! What the kernel says of processes: who lives, who belongs to a house, and the end of one, awaited by pidfd.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ostler_supervisor::tree::cookie;

/// A process that cannot be mistaken for a later one of the same number.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    handle: OwnedFd,
}

impl Process {
    /// Takes hold of a process; `None` when there is none.
    pub fn of(pid: u32) -> Option<Self> {
        // SAFETY: the call takes numbers only; a result that is no error is a fresh descriptor.
        let handle = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))?
        };
        Some(Self { pid, handle })
    }

    /// Sends a signal. That it is gone already is no error.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the descriptor is open and the info pointer may be null.
        unsafe {
            let none = std::ptr::null::<libc::siginfo_t>();
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                self.handle.as_raw_fd(),
                signal,
                none,
                0,
            );
        }
    }

    /// Stops it and comes back when each of its threads stands still: the call that sends the signal returns before
    /// a thread on another processor has seen it, and that thread may well answer one more request.
    ///
    /// # Panics
    /// A thread ran on.
    pub fn freeze(&self) {
        self.signal(libc::SIGSTOP);
        let start = std::time::Instant::now();
        while let Some(thread) = moving_thread(self.pid) {
            assert!(
                start.elapsed() < crate::PATIENCE,
                "{thread:?} of {} runs on",
                self.pid
            );
            std::thread::yield_now();
        }
    }

    /// Waits until it has ended; a zombie has. `false`: it still lives.
    pub fn gone_within(&self, patience: Duration) -> bool {
        let mut poll = libc::pollfd {
            fd: self.handle.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let ms = patience.as_millis() as i32;
        loop {
            // SAFETY: one valid entry, as the count says.
            match unsafe { libc::poll(&raw mut poll, 1, ms) } {
                -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
                n => return n == 1,
            }
        }
    }

    /// The same from a test.
    ///
    /// # Panics
    /// It lives on.
    pub async fn gone(self) {
        let pid = self.pid;
        let gone = tokio::task::spawn_blocking(move || self.gone_within(crate::PATIENCE));
        let gone = gone.await.expect("waiting does not panic");
        assert!(gone, "pid {pid} still lives: {}", describe(pid));
    }
}

/// Tells whether a process of this number runs; a zombie does not.
pub fn lives(pid: u32) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

/// Tells whether any of its threads runs: the main one may have ended alone, and then it looks like a zombie.
pub fn has_living_thread(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut states = threads.into_iter().flatten().flatten();
    states.any(|t| !matches!(state_in(&t.path()), None | Some('Z' | 'X')))
}

/// Tells whether any of its threads has memory, without which nothing can run: who has none is in the middle of its end.
pub fn has_memory(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let mut sizes = threads.into_iter().flatten().flatten();
    sizes.any(|t| fs::read_to_string(t.path().join("statm")).is_ok_and(|s| !s.starts_with("0 ")))
}

/// Command line, house and programs of a process, as far as they can be read.
pub fn marks_of(pid: u32) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    let mut marks = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let variables = environment.split(|byte| *byte == 0);
    for house in variables.filter(|v| v.starts_with(b"OSTLER_DIR=")) {
        marks.push(0);
        marks.extend(house);
    }
    // One whose main thread has ended has neither, but its other threads do.
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    for thread in threads.into_iter().flatten().flatten() {
        marks.push(0);
        if let Ok(program) = fs::read_link(thread.path().join("exe")) {
            marks.extend(program.into_os_string().into_vec());
        }
    }
    marks
}

/// The letter of its state.
pub fn state(pid: u32) -> Option<char> {
    state_in(&Path::new("/proc").join(pid.to_string()))
}

fn state_in(folder: &Path) -> Option<char> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    stat[stat.rfind(')')? + 1..].trim_start().chars().next()
}

/// A thread of this process that is neither stopped nor traced nor dead.
fn moving_thread(pid: u32) -> Option<std::path::PathBuf> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut folders = threads.flatten().map(|t| t.path());
    folders.find(|f| !matches!(state_in(f), None | Some('T' | 't' | 'Z' | 'X')))
}

/// Parent of a process.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let rest = &stat[stat.rfind(')')? + 1..];
    rest.split_whitespace().nth(1)?.parse().ok()
}

/// Number, state, parent and command line, for messages.
pub fn describe(pid: u32) -> String {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let state = state(pid).unwrap_or('?');
    let parent = parent(pid).unwrap_or(0);
    format!(
        "{pid} {state} (parent {parent}) {}",
        line.replace('\0', " ")
    )
}

/// How many descriptors a process has open.
pub fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// Lets a process make neither children nor threads from now on. The superuser's are not bound by that.
///
/// # Panics
/// It is not ours.
pub fn forbid_children(pid: u32) {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: one valid limit, and the old one is not asked for.
    let done = unsafe {
        libc::prlimit(
            pid as i32,
            libc::RLIMIT_NPROC,
            &raw const none,
            std::ptr::null_mut(),
        )
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Resident memory in bytes.
pub fn resident(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Dead processes that nobody has reaped, below `pid`.
pub fn zombies_of(pid: u32) -> Vec<u32> {
    all()
        .into_iter()
        .filter(|p| parent(*p) == Some(pid) && state(*p) == Some('Z'))
        .collect()
}

/// Every process number there is.
pub fn all() -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("proc is mounted");
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .collect()
}

/// How processes of one house are recognised, whatever they did to their parents, groups and environment.
#[derive(Debug, Clone)]
pub struct Marks {
    instance: u32,
    variable: String,
}

impl Marks {
    /// The marks of the house in this folder, kept by the user who asks in the process namespace of this process.
    pub fn of(folder: &Path) -> Self {
        Self::in_namespace_of(std::process::id(), folder)
    }

    /// The same for a house in the process namespace of another process.
    pub fn in_namespace_of(pid: u32, folder: &Path) -> Self {
        // SAFETY: getuid has no precondition.
        let uid = unsafe { libc::getuid() };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("it is readable");
        let namespace = fs::read_link(format!("/proc/{pid}/ns/pid")).expect("it is readable");
        let epoch = format!("{} {}", boot.trim(), namespace.display());
        let real = fs::canonicalize(folder).expect("the folder of the house is there");
        Self {
            instance: cookie::instance(uid, &epoch, &real),
            variable: format!("OSTLER_DIR={}", folder.display()),
        }
    }

    /// The name of its folder among the control groups.
    pub fn group(&self) -> String {
        format!("ostler-{:08x}", self.instance)
    }

    /// Living processes with the cookie of the house, or with its folder in the environment they began with.
    pub fn living(&self) -> Vec<u32> {
        let own = std::process::id();
        all()
            .into_iter()
            .filter(|pid| *pid != own && (self.has_cookie(*pid) || self.has_variable(*pid)))
            .filter(|pid| lives(*pid))
            .collect()
    }

    /// The job number in its cookie, if it has this house's.
    pub fn job_of(&self, pid: u32) -> Option<u64> {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
        let line = limits
            .lines()
            .find(|l| l.starts_with("Max realtime timeout"))?;
        let mut values = line.split_whitespace().skip(3);
        let mut value = || values.next().map(|v| v.parse().unwrap_or(u64::MAX));
        cookie::belongs(value()?, value()?, self.instance)
    }

    fn has_cookie(&self, pid: u32) -> bool {
        self.job_of(pid).is_some()
    }

    fn has_variable(&self, pid: u32) -> bool {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|e| e.split(|b| *b == 0).any(|v| v == self.variable.as_bytes()))
    }
}
