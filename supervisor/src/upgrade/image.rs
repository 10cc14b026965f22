//! The image of the next supervisor: opened once, looked at, asked by a run of its own.

use std::{
    ffi::{CString, OsStr},
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use super::verdict::{self, Verdict};
use crate::keeper::kernel::{self, Whom};

/// The longest verdict that is read.
const LONGEST: usize = 64 * 1024;

/// An image that may be executed.
#[derive(Debug)]
pub(crate) struct Image {
    file: OwnedFd,
    path: PathBuf,
}

/// Copies of all that the next supervisor would have to read.
#[derive(Debug, Default)]
pub(crate) struct Past {
    pub(crate) ledger: Vec<u8>,
    pub(crate) records: Vec<(u64, Vec<u8>)>,
    /// Its configuration file, which it reads itself.
    pub(crate) config: PathBuf,
}

impl Image {
    /// Opens it.
    ///
    /// # Errors
    /// Why it is none, with its path.
    pub(crate) fn open(path: PathBuf) -> Result<Self, String> {
        let named = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
        // A path handle: the image need not be readable, only executable, and opening a FIFO must not wait.
        let mut handle = OpenOptions::new();
        let file = handle.read(true).custom_flags(libc::O_PATH).open(&path);
        let file = file.map_err(|error| named(&error))?;
        let meta = file.metadata().map_err(|error| named(&error))?;
        if !meta.is_file() {
            return Err(named(&"is no regular file"));
        }
        // SAFETY: geteuid has no precondition.
        let me = unsafe { libc::geteuid() };
        if meta.uid() != me && meta.uid() != 0 {
            return Err(named(&"belongs to another user"));
        }
        if meta.mode() & 0o002 != 0 {
            return Err(named(&"may be written by everybody"));
        }
        // Out of the way of the numbers that a child gets.
        let file = kernel::lift(file.into()).map_err(|error| named(&error))?;
        executable(file.as_fd()).map_err(|error| named(&format!("not executable: {error}")))?;
        Ok(Self {
            file,
            path: path.clone(),
        })
    }

    /// Its descriptor.
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Runs it on copies of what there is, and returns what it says. Waits that long at most.
    ///
    /// # Errors
    /// It is no supervisor, or cannot take over.
    pub(crate) fn ask(&self, past: &Past, patience: Duration) -> Result<Verdict, String> {
        let path = self.path.display();
        let failed = |error: io::Error| format!("{path} cannot be asked: {error}");
        let said = self.run(past, patience).map_err(failed)?;
        let Some(said) = said else {
            let seconds = patience.as_secs_f64();
            return Err(format!(
                "{path} did not answer its check within {seconds} s"
            ));
        };
        let verdict: Verdict = serde_json::from_slice(&said)
            .map_err(|_| format!("{path} is no ostler that can be upgraded to"))?;
        match verdict.objection() {
            Some(reason) => Err(format!("{} cannot take over: {reason}", verdict.ostler)),
            None => Ok(verdict),
        }
    }

    /// What it writes to its standard output until it ends; nothing when it does not end.
    fn run(&self, past: &Past, patience: Duration) -> io::Result<Option<Vec<u8>>> {
        let ledger = copy(&past.ledger)?;
        let records = copy(&verdict::pack(&past.records))?;
        let null = File::options().read(true).write(true).open("/dev/null")?;
        let null = kernel::lift(null.into())?;
        let (out, theirs) = kernel::pipe(0)?;
        let theirs = kernel::lift(theirs)?;
        let files = [&null, &theirs, &null, &ledger, &records];
        let (pid, pidfd) = self.execute(files, &past.config)?;
        drop((theirs, ledger, records));
        kernel::unblock(out.as_fd())?;
        let said = listen(
            &mut File::from(out),
            pidfd.as_fd(),
            Instant::now() + patience,
        );
        // With all that it may have started: it leads its group.
        // SAFETY: plain call; the child is unreaped, so that its number is its own.
        unsafe { libc::kill(-pid, libc::SIGKILL) };
        let _ = kernel::signal(pidfd.as_fd(), libc::SIGKILL);
        // Dead or about to be.
        let _ = kernel::readable([pidfd.as_fd()], Duration::from_secs(1));
        let _ = kernel::wait(Whom::Pidfd(pidfd.as_fd()), false);
        said
    }

    /// A child that executes it with these descriptors, from 0 on. All of them stand above the last one.
    fn execute(&self, files: [&OwnedFd; 5], config: &Path) -> io::Result<(i32, OwnedFd)> {
        let words = ["ostler", "daemon", "check"].map(OsStr::new);
        let words = words.into_iter().chain([config.as_os_str()]);
        let words = words.map(|word| CString::new(word.as_bytes()));
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let mut argv: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
        argv.push(std::ptr::null());
        // Ours, which is the keeper's and will be that of the next supervisor.
        let variables = std::env::vars_os().map(|(name, value)| {
            let bytes = [name.as_bytes(), b"=", value.as_bytes()].concat();
            CString::new(bytes)
        });
        let variables = variables.collect::<Result<Vec<_>, _>>()?;
        let mut environment: Vec<_> = variables.iter().map(|v| v.as_ptr()).collect();
        environment.push(std::ptr::null());
        let image = self.file.as_raw_fd();
        let files = files.map(|file| file.as_raw_fd());
        // SAFETY: everything is allocated by now; the child makes only system calls, and ends in one of the last two.
        unsafe {
            if let Some(made) = kernel::clone(0)? {
                return Ok(made);
            }
            libc::setpgid(0, 0);
            // Of a supervisor that is killed meanwhile nothing of this is left.
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
            for (number, file) in files.into_iter().enumerate() {
                libc::dup2(file, number as i32);
            }
            kernel::unmask();
            libc::syscall(
                libc::SYS_execveat,
                image,
                c"".as_ptr(),
                argv.as_ptr(),
                environment.as_ptr(),
                libc::AT_EMPTY_PATH,
            );
            libc::_exit(127)
        }
    }
}

/// Whether we may execute what is open.
fn executable(file: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain call with an empty, closed path.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_faccessat2,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::X_OK,
            libc::AT_EMPTY_PATH | libc::AT_EACCESS,
        )
    };
    kernel::check(answer).map(drop)
}

/// A memory file with these bytes.
fn copy(bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(kernel::lift(kernel::memfd(c"ostler-check")?)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Reads until the process has ended; nothing when it has not by then.
fn listen(out: &mut File, process: BorrowedFd<'_>, until: Instant) -> io::Result<Option<Vec<u8>>> {
    let mut said = Vec::new();
    let mut open = true;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // A pipe that is at its end would wake us for ever.
        let ended = if open {
            kernel::readable([process, out.as_fd()], left)?[0]
        } else {
            kernel::readable([process], left)?[0]
        };
        open &= drain(out, &mut said)?;
        if ended {
            return Ok(Some(said));
        }
    }
}

/// Takes what there is. False at the end of the pipe, or when it is too much.
fn drain(out: &mut File, said: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    while said.len() < LONGEST {
        match out.read(&mut buffer) {
            Ok(0) => return Ok(false),
            Ok(n) => said.extend_from_slice(&buffer[..n]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(path: &str, why: &str) {
        let said = Image::open(path.into()).expect_err(path);
        assert!(said.starts_with(path) && said.contains(why), "{said}");
    }

    #[test]
    fn only_a_program_is_opened() {
        refused("/nowhere/ostler", "No such file");
        refused("/tmp", "is no regular file");
        refused("/etc/passwd", "not executable");
        let dir = tempfile::tempdir().expect("a folder can be made");
        let path = dir.path().join("program");
        std::fs::copy("/bin/true", &path).expect("it can be copied");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o757);
        std::fs::set_permissions(&path, mode).expect("it is ours");
        refused(&path.to_string_lossy(), "may be written by everybody");
    }

    #[test]
    fn what_is_no_supervisor_or_does_not_end_is_told() {
        let ask = |program: &str, patience| {
            let image = Image::open(program.into()).expect("it is a program");
            image.ask(&Past::default(), patience).expect_err(program)
        };
        let said = ask("/bin/true", Duration::from_secs(20));
        assert_eq!(said, "/bin/true is no ostler that can be upgraded to");
        let said = ask("/bin/sh", Duration::from_secs(20));
        assert_eq!(said, "/bin/sh is no ostler that can be upgraded to");
        // It writes for ever.
        let said = ask("/usr/bin/yes", Duration::from_millis(300));
        assert_eq!(said, "/usr/bin/yes did not answer its check within 0.3 s");
    }
}
