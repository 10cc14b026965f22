//! The runner: joins the stages by pipes, waits for all of them, ends as the last one did.
//!
//! A process of the job's tree, its leader; it has no threads. Every signal that can be blocked is, so that what
//! the tree is sent ends the stages and not whoever tells of them; they themselves begin with none blocked.
//! It holds none of their pipes: who reads sees the end when the last
//! writer is gone, who writes is told when the last reader is.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Child, Command, ExitCode, ExitStatus, Stdio},
};

use super::{
    End,
    report::{Line, Writer},
};
use crate::{
    keeper::{BEGUN, BUSY_PAUSES, kernel},
    program,
};

/// Runs a pipeline: the hidden entry that a job of stages executes. `words`: the report file, then each stage behind the
/// number of its arguments.
pub(crate) fn run(words: Vec<OsString>) -> ExitCode {
    // Before anything else is opened, which would get its number.
    let begun = begun();
    let mut words = words.into_iter();
    let report = words.next();
    let (Some(report), Some(stages)) = (report, stages(words.collect())) else {
        return ExitCode::from(125);
    };
    block_signals();
    // It was executed by a path that ends with another name.
    // SAFETY: a valid C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"ostler".as_ptr()) };
    let mut runner = Runner {
        report: Writer::new(Path::new(&report)),
        stages: stages.len(),
        running: HashMap::new(),
    };
    let all = runner.begin(&stages);
    if all.is_err() {
        runner.end();
    }
    // Every stage is executed, or one cannot be, which is in the report already.
    drop(begun);
    match all {
        Ok(()) => runner.wait(),
        Err(code) => ExitCode::from(code),
    }
}

/// The descriptor by which the keeper sees that all is executed; none of an earlier build of it.
fn begun() -> Option<OwnedFd> {
    // SAFETY: plain call on a number.
    if unsafe { libc::fcntl(BEGUN, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return None;
    }
    // SAFETY: it is open, and nobody else in this process knows of it.
    Some(unsafe { OwnedFd::from_raw_fd(BEGUN) })
}

/// The stages in the words that a runner is called with.
pub(super) fn stages(words: Vec<OsString>) -> Option<Vec<Vec<OsString>>> {
    let mut words = words.into_iter();
    let mut stages = Vec::new();
    while let Some(count) = words.next() {
        let count: usize = count.to_str()?.parse().ok()?;
        let stage: Vec<_> = words.by_ref().take(count).collect();
        if count == 0 || stage.len() < count {
            return None;
        }
        stages.push(stage);
    }
    Some(stages).filter(|stages| !stages.is_empty())
}

struct Runner {
    report: Writer,
    stages: usize,
    /// Which stage a process is.
    running: HashMap<u32, (usize, Child)>,
}

/// What a stage reads and writes.
struct Ends {
    input: OwnedFd,
    output: OwnedFd,
}

/// What the next stage reads, and what the last one writes.
struct Loose {
    input: OwnedFd,
    output: OwnedFd,
}

impl Loose {
    /// The ends of the next stage, with what it writes ready for the one after it.
    fn next(self) -> io::Result<(Ends, Self)> {
        let (reading, writing) = io::pipe()?;
        let ends = Ends {
            input: self.input,
            output: writing.into(),
        };
        let rest = Self {
            input: reading.into(),
            output: self.output,
        };
        Ok((ends, rest))
    }

    /// The ends of the last stage.
    fn last(self) -> Ends {
        Ends {
            input: self.input,
            output: self.output,
        }
    }
}

impl Runner {
    /// Executes every stage.
    ///
    /// # Errors
    /// One cannot be; with the code of a shell for that.
    fn begin(&mut self, stages: &[Vec<OsString>]) -> Result<(), u8> {
        let [before @ .., last] = stages else {
            return Ok(());
        };
        let mut loose = give_away_stdio().map_err(|error| self.failed(0, &error, &stages[0][0]))?;
        for (stage, args) in before.iter().enumerate() {
            let joined = loose.next();
            let (ends, rest) = joined.map_err(|error| self.failed(stage, &error, &args[0]))?;
            self.spawn(stage, args, &ends)?;
            loose = rest;
        }
        self.spawn(before.len(), last, &loose.last())
    }

    /// Tries each file that a name may mean, as the keeper does for a job of one program.
    fn spawn(&mut self, stage: usize, args: &[OsString], ends: &Ends) -> Result<(), u8> {
        let mut denied = None;
        let mut last = (io::Error::from_raw_os_error(libc::ENOENT), args[0].clone());
        for path in candidates(&args[0]) {
            match try_program(&path, args, ends) {
                Ok(child) => {
                    let begun = Line::Begun {
                        stage,
                        pid: child.id(),
                        path: path.to_string_lossy().into_owned(),
                    };
                    self.report.tell(&begun);
                    self.running.insert(child.id(), (stage, child));
                    return Ok(());
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::ENOENT | libc::ENOTDIR) => last = (error, path),
                    Some(libc::EACCES) => denied = denied.or(Some((error, path))),
                    _ => return Err(self.failed(stage, &error, &path)),
                },
            }
        }
        let (error, path) = denied.unwrap_or(last);
        Err(self.failed(stage, &error, &path))
    }

    fn failed(&mut self, stage: usize, error: &io::Error, path: &OsStr) -> u8 {
        let errno = error.raw_os_error().unwrap_or(libc::EINVAL);
        self.report.tell(&Line::Failed {
            stage,
            errno,
            path: path.to_string_lossy().into_owned(),
        });
        if errno == libc::ENOENT { 127 } else { 126 }
    }

    /// Waits for every stage, and ends as the last one.
    fn wait(mut self) -> ExitCode {
        let mut last = None;
        while !self.running.is_empty() {
            let Some((stage, end)) = self.next_end() else {
                break;
            };
            self.report.tell(&Line::Ended { stage, end });
            if stage + 1 == self.stages {
                last = Some(end);
            }
        }
        match last {
            Some(End::Code(code)) => ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX)),
            Some(End::Signal(number)) => die_of(number),
            None => ExitCode::from(125),
        }
    }

    /// The next stage that ends, whichever it is.
    fn next_end(&mut self) -> Option<(usize, End)> {
        loop {
            let mut status = 0;
            // SAFETY: room for the status. Only children of ours are waited for.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, 0) };
            if pid < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                return None;
            }
            let status = ExitStatus::from_raw(status);
            if let Some((stage, _)) = self.running.remove(&pid.unsigned_abs()) {
                let code = status.code().map(End::Code);
                return Some((stage, code.or(status.signal().map(End::Signal))?));
            }
        }
    }

    /// Ends what runs of a pipeline that does not come to be. What a stage may have forked by then is left to the job's
    /// own end.
    fn end(&mut self) {
        for (_, (_, mut child)) in self.running.drain() {
            // Gone already, or gone now; either way it is waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Takes descriptors 0 and 1 of this process for the first and the last stage; the null device stands in their places.
fn give_away_stdio() -> io::Result<Loose> {
    let loose = Loose {
        input: io::stdin().as_fd().try_clone_to_owned()?,
        output: io::stdout().as_fd().try_clone_to_owned()?,
    };
    let mut null = File::options();
    let null = null.read(true).write(true).open("/dev/null")?;
    for number in [libc::STDIN_FILENO, libc::STDOUT_FILENO] {
        // SAFETY: plain call on descriptors that are open; nothing of ours is buffered on either.
        if unsafe { libc::dup2(null.as_raw_fd(), number) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(loose)
}

/// The files that the name of a program may mean, in order.
fn candidates(program: &OsStr) -> Vec<OsString> {
    let path = std::env::var("PATH");
    let cwd = std::env::current_dir().unwrap_or_default();
    let found = program::candidates(
        &program.to_string_lossy(),
        &cwd.to_string_lossy(),
        path.as_deref().unwrap_or(program::PLAIN_PATH),
    );
    found.into_iter().map(OsString::from).collect()
}

/// Executes one file. One that somebody still writes is tried again, as often as the keeper tries.
fn try_program(path: &OsStr, args: &[OsString], ends: &Ends) -> io::Result<Child> {
    for pause in BUSY_PAUSES {
        let mut command = Command::new(path);
        command.arg0(&args[0]).args(&args[1..]);
        command.stdin(Stdio::from(ends.input.try_clone()?));
        command.stdout(Stdio::from(ends.output.try_clone()?));
        // SAFETY: one system call between fork and exec.
        unsafe {
            command.pre_exec(|| {
                kernel::unmask();
                Ok(())
            });
        }
        match command.spawn() {
            Err(error) if error.raw_os_error() == Some(libc::ETXTBSY) && !pause.is_zero() => {
                std::thread::sleep(pause);
            }
            done => return done,
        }
    }
    Err(io::Error::from_raw_os_error(libc::ETXTBSY))
}

fn block_signals() {
    // SAFETY: zeroes are a valid set to fill; plain calls.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const all, std::ptr::null_mut());
    }
}

/// Ends this process by a signal, without a core of its own: what a signal did to the last stage is how the pipeline ended.
fn die_of(number: i32) -> ExitCode {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: plain calls; the set holds this one signal, so that no other one that is pending comes before it.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        libc::signal(number, libc::SIG_DFL);
        let mut one: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut one);
        libc::sigaddset(&raw mut one, number);
        libc::kill(libc::getpid(), number);
        libc::sigprocmask(libc::SIG_UNBLOCK, &raw const one, std::ptr::null_mut());
    }
    // One that ends nobody.
    ExitCode::from(u8::try_from(128 + number).unwrap_or(u8::MAX))
}
