//! The binary as a person uses it: words in, words and a code out, on pipes or in a terminal, with a deadline.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use regex::Regex;

use crate::process::Process;
use crate::{House, PATIENCE};

/// What a command said.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    /// Its exit code; 128 and the number for a signal.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Said {
    /// What a command says to its end.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn of(command: Command) -> Self {
        let program = command.get_program().to_string_lossy().into_owned();
        finish(command, &program)
    }
}

impl House {
    /// Runs `ostler` with these arguments on pipes, standard input closed.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn cli(&self, args: &[&str]) -> Said {
        let mut command = self.ostler(args);
        command.stdin(Stdio::null());
        finish(command, &args.join(" "))
    }

    /// The same with another program than the one under test.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn cli_of(&self, program: &std::path::Path, args: &[&str]) -> Said {
        let plain = self.ostler(args);
        let mut command = Command::new(program);
        command
            .args(args)
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .current_dir(self.file("."))
            .stdin(Stdio::null());
        finish(command, &args.join(" "))
    }

    /// Runs a line of `sh` in which `ostler` and `puppet` are commands.
    ///
    /// # Panics
    /// It does not end in time.
    pub fn shell(&self, line: &str) -> Said {
        finish(self.shell_command(line), line)
    }

    /// A program of others, in which `ostler` is a command, with the files of the test as its home and folder.
    pub fn client_command(&self, program: &std::path::Path) -> Command {
        let plain = self.shell_command("");
        let mut command = Command::new(program);
        command
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env("TERM", "dumb")
            .current_dir(self.file("."))
            .stdin(Stdio::null());
        command
    }

    fn shell_command(&self, line: &str) -> Command {
        let plain = self.ostler(&[]);
        let folder = crate::ostler()
            .parent()
            .expect("a program lies in a folder");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", folder.display());
        let mut command = Command::new("sh");
        command
            .args(["-c", line])
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))))
            .env("PATH", path)
            .current_dir(self.file("."))
            .stdin(Stdio::null());
        command
    }

    /// Runs a line of `sh` in a terminal of its own.
    pub fn terminal(&self, line: &str) -> Terminal {
        Terminal::open(self.shell_command(line))
    }
}

fn finish(mut command: Command, what: &str) -> Said {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it can be executed");
    let out = collect(child.stdout.take().expect("it was piped"));
    let err = collect(child.stderr.take().expect("it was piped"));
    // The end of its output is awaited, not its own: a daemon that keeps the pipe is the fault to be found.
    let both = (out.recv_timeout(PATIENCE), err.recv_timeout(PATIENCE));
    let (Ok(out), Ok(err)) = both else {
        let _ = child.kill();
        panic!("`{what}` still holds its output open after {PATIENCE:?}")
    };
    Said {
        code: code(end(&mut child, what)),
        out,
        err,
    }
}

fn collect(mut from: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (to, all) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    all
}

fn end(child: &mut Child, what: &str) -> ExitStatus {
    let handle = Process::of(child.id()).expect("an unreaped child has a number");
    assert!(handle.gone_within(PATIENCE), "`{what}` does not end");
    child.wait().expect("it is our child")
}

fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// A program that has a terminal, and the person before it.
pub struct Terminal {
    child: Child,
    master: File,
    pieces: mpsc::Receiver<Vec<u8>>,
    seen: String,
}

impl Terminal {
    fn open(mut command: Command) -> Self {
        let (master, slave) = pair();
        let side = |fd: &OwnedFd| Stdio::from(fd.try_clone().expect("a descriptor is free"));
        command
            .stdin(side(&slave))
            .stdout(side(&slave))
            .stderr(side(&slave));
        // SAFETY: both calls are safe between fork and exec; they take numbers only.
        unsafe {
            command.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = command.spawn().expect("sh can be executed");
        drop((command, slave));
        let master = File::from(master);
        let mut reader = master.try_clone().expect("a descriptor is free");
        let (to, pieces) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut buffer) {
                if to.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            master,
            pieces,
            seen: String::new(),
        }
    }

    /// Types.
    ///
    /// # Panics
    /// The terminal is gone.
    pub fn type_in(&mut self, keys: &str) {
        self.master
            .write_all(keys.as_bytes())
            .expect("the terminal takes keys");
    }

    /// Waits until the screen has shown this since the last time, and returns what came up to then.
    ///
    /// # Panics
    /// It does not come.
    pub fn shows(&mut self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.seen.find(text) {
                return self.seen.drain(..at + text.len()).collect();
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.pieces.recv_timeout(left) {
                Ok(piece) => self.seen += &String::from_utf8_lossy(&piece),
                Err(why) => {
                    let child = self.child.try_wait();
                    panic!("{text:?} did not come ({why}, {child:?}): {:?}", self.seen)
                }
            }
        }
    }

    /// Tells whether the screen has shown this by now.
    pub fn has_shown(&mut self, text: &str) -> bool {
        while let Ok(piece) = self.pieces.try_recv() {
            self.seen += &String::from_utf8_lossy(&piece);
        }
        self.seen.contains(text)
    }

    /// Waits for the end; returns the code and what else the screen showed.
    ///
    /// # Panics
    /// It does not end.
    pub fn ends(mut self) -> (i32, String) {
        let status = end(&mut self.child, "the program in the terminal");
        // What was written before the end is in the terminal already.
        while let Ok(piece) = self.pieces.recv_timeout(Duration::from_millis(100)) {
            self.seen += &String::from_utf8_lossy(&piece);
        }
        (code(status), self.seen)
    }
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (mut master, mut slave) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: two valid places for numbers; name, settings and size may be null.
    let opened = unsafe {
        libc::openpty(
            &raw mut master,
            &raw mut slave,
            none,
            none.cast(),
            none.cast(),
        )
    };
    assert_eq!(opened, 0, "openpty: {}", std::io::Error::last_os_error());
    for fd in [master, slave] {
        // SAFETY: the descriptor is open and ours.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
    // SAFETY: both are fresh descriptors that nobody else has.
    unsafe { (OwnedFd::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) }
}

/// Text without what differs from run to run: times, ages, process numbers, folders.
///
/// # Panics
/// Never: the patterns are fixed.
pub fn redacted(text: &str) -> String {
    let puppet = regex::escape(crate::puppet());
    let rules = [
        (puppet.as_str(), "puppet"),
        (r"\b\d+\.\d s\b", "N s"),
        (r"\bpid \d+", "pid P"),
        (r"\b\d+(ms|s|m|h|d)\t", "AGE\t"),
        (r"/tmp/o\w{6}/", "BASE/"),
        (r"\bf-[0-9a-f]{8}\b", "f-HASH"),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        let rule = Regex::new(pattern).expect("the pattern is fixed");
        rule.replace_all(&text, *with).into_owned()
    })
}
