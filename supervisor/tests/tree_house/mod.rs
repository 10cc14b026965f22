//! Real trees for the tests: a house with its own instance, children that carry its cookie, one reaper.
//!
//! The test process plays the keeper: it is the sub-reaper, and one thread reaps everything, so no test may
//! wait for a child by itself.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, Once};

use ostler_supervisor::tree::cookie::Cookie;
use ostler_supervisor::tree::{self, Mark, Rung, Trees};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// One supervisor's view; no two tests share an instance.
pub struct House {
    pub instance: u32,
    pub trees: Trees,
}

/// A started job.
pub struct Job {
    pub mark: Mark,
    pub pid: u32,
    out: BufReader<std::process::ChildStdout>,
}

impl House {
    pub fn new(rung: Rung) -> Self {
        reap_everything();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let instance = (std::process::id() << 10 | number) & 0x3fff_ffff;
        Self {
            instance,
            trees: Trees::new(instance, rung),
        }
    }

    /// Starts a shell line as `job`; it must print what the test waits for.
    pub fn sh(&self, job: u64, line: &str) -> Job {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        self.start(job, command)
    }

    pub fn start(&self, job: u64, command: Command) -> Job {
        self.start_marked(Cookie::new(self.instance, job), job, command)
    }

    /// Starts with a cookie of the test's choice.
    #[expect(clippy::zombie_processes, reason = "the reaper takes them all")]
    pub fn start_marked(&self, cookie: Cookie, job: u64, mut command: Command) -> Job {
        let process_id = format!("proc_{}_{job}", self.instance);
        command.env("OSTLER_JOB", &process_id);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::setsid();
                set_cookie(cookie)
            })
        };
        // Under the lock nobody is reaped: a job that ends at once is still there to be asked.
        let mut spawned = SPAWNED.lock().expect("no panic under it");
        let mut child = command.spawn().expect("the shell starts");
        *spawned += 1;
        NEWS.notify_all();
        let pid = child.id();
        let out = BufReader::new(child.stdout.take().expect("it was piped"));
        let start = tree::start_time(pid);
        drop(spawned);
        let leader = Some((pid, start.expect("not reaped yet")));
        Job {
            mark: Mark {
                job,
                leader,
                process_id,
            },
            pid,
            out,
        }
    }
}

impl Drop for House {
    /// A test that fails leaves nobody behind.
    fn drop(&mut self) {
        for pid in living_of(self.instance) {
            // SAFETY: it carries this test's own instance.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
    }
}

impl Job {
    /// Reads the next line.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("its output is a pipe");
        line.trim().to_owned()
    }

    /// Reads that many process numbers, in ascending order.
    pub fn pids(&mut self, count: usize) -> Vec<u32> {
        let mut pids: Vec<u32> = (0..count)
            .map(|_| self.line().parse().expect("a process number"))
            .collect();
        pids.sort_unstable();
        pids
    }

    /// Returns when the last holder of its output is dead.
    pub fn closed(&mut self) {
        let mut rest = Vec::new();
        self.out
            .read_to_end(&mut rest)
            .expect("its output is a pipe");
    }
}

/// Sets both parts on the calling process.
pub fn set_cookie(cookie: Cookie) -> std::io::Result<()> {
    let limit = libc::rlimit64 {
        rlim_cur: cookie.soft,
        rlim_max: cookie.hard,
    };
    // SAFETY: reads a live structure.
    let done = unsafe { libc::setrlimit64(libc::RLIMIT_RTTIME, &limit) };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// The letter of a process's state, by a plain look at the process table.
pub fn state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The parent of a process, by a plain look at the process table.
pub fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut words = stat.rsplit_once(") ")?.1.split(' ').skip(1);
    words.next()?.parse().ok()
}

/// Tells whether a process is there and no zombie.
pub fn lives(pid: u32) -> bool {
    state(pid).is_some_and(|state| !"ZX".contains(state))
}

/// Looks until it is so. The kernel announces neither a stop nor a parent's exit to a bystander.
pub async fn until(mut so: impl FnMut() -> bool) {
    while !so() {
        tokio::task::yield_now().await;
    }
}

/// Everybody in the process table whose limits carry the instance and who is no zombie, by a plain look.
pub fn living_of(instance: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").expect("there is a /proc");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // The whole list first: chains give out numbers as fast as they can be looked at.
    let pids: Vec<u32> = pids.collect();
    pids.into_iter()
        .filter(|pid| tree::job_of(*pid, instance).is_some() && lives(*pid))
        .collect()
}

static SPAWNED: Mutex<u64> = Mutex::new(0);
static NEWS: Condvar = Condvar::new();

/// Once a test process.
fn reap_everything() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
        std::thread::spawn(reaper);
    });
}

fn reaper() {
    let mut seen = 0;
    loop {
        // SAFETY: all zeroes is a valid value of this plain structure.
        let mut dead: libc::siginfo_t = unsafe { std::mem::zeroed() };
        let look = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `dead` outlives the call.
        let found = unsafe { libc::waitid(libc::P_ALL, 0, &mut dead, look) } == 0;
        let guard = SPAWNED.lock().expect("no panic under it");
        if found {
            // SAFETY: the structure was filled by waitid; a null status is allowed.
            unsafe { libc::waitpid(dead.si_pid(), std::ptr::null_mut(), 0) };
            continue;
        }
        let news = NEWS.wait_while(guard, |count| *count == seen);
        seen = *news.expect("no panic under it");
    }
}
