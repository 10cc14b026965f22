//! A keeper on a stage: its folder, the part of the supervisor that the test plays, and the jobs that it starts.

use ostler_supervisor::keeper::wire::{self, ForkRequest, Frame, Inbox, JobRow, Message, Op, Step};
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Reached only when something is broken.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The supervisor that the test plays.
pub(crate) struct Part {
    pub(crate) wire: OwnedFd,
    pub(crate) inbox: Inbox,
    pub(crate) seen: VecDeque<Message>,
    pub(crate) control: UnixStream,
    pub(crate) pid: i32,
}

/// A keeper with its folder and the part the test plays.
pub(crate) struct Stage {
    pub(crate) dir: TempDir,
    pub(crate) control: UnixListener,
    pub(crate) keeper: Child,
    pub(crate) ready: BufReader<std::process::ChildStdout>,
    pub(crate) part: Option<Part>,
}

pub(crate) fn wait_readable(file: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry that outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, LIMIT.as_millis() as i32) == 1 }
}

pub(crate) fn kill(pid: i32, signal: i32) {
    // SAFETY: plain call on a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill {pid}");
}

/// Ends when `what` is true; the condition has no event that a test could wait for.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "never: {what}");
        std::thread::yield_now();
    }
}

impl Part {
    pub(crate) fn take(control: &UnixListener) -> Self {
        assert!(wait_readable(control), "no supervisor came");
        let (control, _) = control.accept().unwrap();
        assert!(wait_readable(&control));
        let mut inbox = Inbox::default();
        let mut message = inbox.receive(control.as_fd()).unwrap().unwrap();
        Self {
            wire: message.files.remove(0),
            inbox,
            seen: VecDeque::new(),
            control,
            pid: message.frame.job as i32,
        }
    }

    pub(crate) fn send(&self, op: Op, job: u64, first: u64) {
        self.put(Frame::new(op, job, [first, 0, 0, 0, 0]), &[], &[]);
    }

    /// Waits for room if there is none, as the keeper must not.
    pub(crate) fn put(&self, frame: Frame, payload: &[u8], files: &[std::os::fd::BorrowedFd<'_>]) {
        let begun = Instant::now();
        loop {
            match wire::send(self.wire.as_fd(), frame, payload, files) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(begun.elapsed() < LIMIT, "the keeper does not read");
                    std::thread::yield_now();
                }
                other => return other.unwrap(),
            }
        }
    }

    pub(crate) fn fork(&self, job: u64, request: &ForkRequest) {
        self.put(Frame::new(Op::Fork, job, [0; 5]), &request.encode(), &[]);
    }

    pub(crate) fn next(&mut self) -> Message {
        loop {
            match self.inbox.receive(self.wire.as_fd()) {
                Ok(message) => return message.expect("the keeper closed the wire"),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(wait_readable(&self.wire), "nothing came");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The first message of this kind about this job; others are kept.
    pub(crate) fn expect(&mut self, op: Op, job: u64) -> Message {
        let fits = |message: &Message| message.frame.op() == Some(op) && message.frame.job == job;
        if let Some(place) = self.seen.iter().position(fits) {
            return self.seen.remove(place).unwrap();
        }
        loop {
            let message = self.next();
            if fits(&message) {
                return message;
            }
            self.seen.push_back(message);
        }
    }

    /// Everything that has come up to the answer of a ping.
    pub(crate) fn all_until_pong(&mut self, sequence: u32) -> Vec<Message> {
        self.put(Frame::new(Op::Ping, 0, [0; 5]).sequence(sequence), &[], &[]);
        let mut all: Vec<_> = self.seen.drain(..).collect();
        loop {
            let message = self.next();
            if message.frame.op() == Some(Op::Pong) && message.frame.sequence == sequence {
                return all;
            }
            all.push(message);
        }
    }

    pub(crate) fn start(&mut self, job: u64, request: &ForkRequest) -> Running {
        self.fork(job, request);
        Running::read(self.expect(Op::Started, job))
    }

    /// The code of a job that ends by itself, after its burial.
    pub(crate) fn finish(&mut self, job: u64) -> (Option<i32>, Option<i32>) {
        let ended = self.expect(Op::Ended, job).frame.args;
        let value = |word: u64| (word != wire::NONE).then_some(word as i32);
        let ended = (value(ended[0]), value(ended[1]));
        assert_eq!(self.bury(job), ended);
        ended
    }

    /// Reaps and forgets a job whose end was told.
    pub(crate) fn bury(&mut self, job: u64) -> (Option<i32>, Option<i32>) {
        self.send(Op::Reap, job, 0);
        let reaped = self.expect(Op::Reaped, job).frame.args;
        self.send(Op::Forget, job, 0);
        let value = |word: u64| (word != wire::NONE).then_some(word as i32);
        (value(reaped[0]), value(reaped[1]))
    }

    /// What a job prints until its pipe closes.
    pub(crate) fn output(&mut self, job: u64, request: &ForkRequest) -> String {
        let running = self.start(job, request);
        let text = running.read_all();
        self.finish(job);
        text
    }

    pub(crate) fn fetch(&mut self) -> Vec<(u64, JobRow, Vec<OwnedFd>, u32)> {
        self.put(
            Frame::new(Op::Fetch, wire::NONE, [0; 5]).sequence(77),
            &[],
            &[],
        );
        let mut rows = Vec::new();
        loop {
            let message = self.next();
            match message.frame.op() {
                Some(Op::Job) => rows.push((
                    message.frame.job,
                    JobRow::decode(&message.payload).unwrap(),
                    message.files,
                    message.frame.flags,
                )),
                Some(Op::Done) => return rows,
                _ => self.seen.push_back(message),
            }
        }
    }
}

/// A job that has started.
pub(crate) struct Running {
    pub(crate) pid: i32,
    pub(crate) out: Option<OwnedFd>,
    pub(crate) err: Option<OwnedFd>,
    pub(crate) input: Option<OwnedFd>,
}

impl Running {
    pub(crate) fn read(message: Message) -> Self {
        let flags = message.frame.flags;
        let mut files = message.files.into_iter();
        let mut next = |flag| (flags & flag != 0).then(|| files.next().unwrap());
        Self {
            pid: message.frame.args[0] as i32,
            out: next(wire::HAS_OUT),
            err: next(wire::HAS_ERR),
            input: next(wire::HAS_IN),
        }
    }

    pub(crate) fn read_all(&self) -> String {
        let mut out = File::from(self.out.as_ref().unwrap().try_clone().unwrap());
        let mut bytes = Vec::new();
        loop {
            match out.read_to_end(&mut bytes) {
                Ok(_) => return String::from_utf8_lossy(&bytes).into_owned(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    assert!(wait_readable(&out), "no output");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// As in the product, from the folder. With one number for all, a keeper took that of another test for a living house
/// without a folder, woke it, waited for it in vain and gave up.
pub(crate) fn instance_of(dir: &Path) -> u32 {
    ostler_supervisor::tree::instance_here(dir).expect("proc is mounted")
}

impl Stage {
    pub(crate) fn command(dir: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_stagehand"));
        command
            .arg("keep")
            .arg(dir.join("ostler.sock"))
            .arg(dir.join("house.lock"))
            .arg(dir)
            .arg(instance_of(dir).to_string())
            .arg(dir.join("control"))
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// A keeper whose supervisor has not said READY.
    pub(crate) fn raised(words: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let control = UnixListener::bind(dir.path().join("control")).unwrap();
        let command = Self::command(dir.path(), words);
        Self::open(dir, control, command)
    }

    pub(crate) fn open(dir: TempDir, control: UnixListener, mut command: Command) -> Self {
        let mut keeper = command.spawn().unwrap();
        let ready = BufReader::new(keeper.stdout.take().unwrap());
        let part = Some(Part::take(&control));
        Self {
            dir,
            control,
            keeper,
            ready,
            part,
        }
    }

    pub(crate) fn new() -> Self {
        let mut stage = Self::raised(&[]);
        stage.be_ready();
        stage
    }

    pub(crate) fn be_ready(&mut self) {
        let part = self.part();
        part.expect(Op::Hello, 0);
        part.send(Op::Ready, 0, 0);
        assert_eq!(self.line(), "ready");
    }

    pub(crate) fn part(&mut self) -> &mut Part {
        self.part.as_mut().unwrap()
    }

    /// The next supervisor.
    pub(crate) fn succeed(&mut self) -> &mut Part {
        self.part = Some(Part::take(&self.control));
        self.part()
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.ready.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn instance(&self) -> u64 {
        instance_of(self.dir.path()).into()
    }

    pub(crate) fn keeper_pid(&self) -> i32 {
        self.keeper.id() as i32
    }

    /// Lets the supervisor leave in order and waits for the keeper's end.
    pub(crate) fn leave(&mut self, why: u64) -> ExitStatus {
        let part = self.part();
        part.send(Op::Leave, 0, why);
        part.control.write_all(&[0]).unwrap();
        self.keeper.wait().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if matches!(self.keeper.try_wait(), Ok(Some(_))) {
            return;
        }
        // The keeper cleans up after us: with its supervisor gone it ends everything.
        if let Some(part) = &mut self.part {
            let leave = Frame::new(Op::Leave, 0, [wire::LEAVE_DISPOSE, 0, 0, 0, 0]);
            let said = wire::send(part.wire.as_fd(), leave, &[], &[]);
            if said.is_ok() && part.control.write_all(&[0]).is_ok() {
                let _ = self.keeper.wait();
                return;
            }
        }
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

pub(crate) fn bytes(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

pub(crate) fn request(words: &[&str]) -> ForkRequest {
    ForkRequest {
        programs: bytes(&[
            &format!("/usr/bin/{}", words[0]),
            &format!("/bin/{}", words[0]),
        ]),
        argv: bytes(words),
        env: bytes(&["PATH=/usr/bin:/bin"]),
        cwd: b"/".to_vec(),
        cookie: true,
        merge: true,
        ..ForkRequest::default()
    }
}

pub(crate) fn shell(script: &str) -> ForkRequest {
    request(&["sh", "-c", script])
}

pub(crate) fn failure(message: &Message) -> (Step, i32, u64) {
    let args = message.frame.args;
    (Step::from_number(args[0]).unwrap(), args[1] as i32, args[2])
}

pub(crate) fn children_in_state(parent: i32, wanted: char) -> BTreeSet<i32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    list.split_whitespace()
        .map(|word| word.parse().unwrap())
        .filter(|pid| state_of(*pid) == Some(wanted))
        .collect()
}

pub(crate) fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

pub(crate) fn descriptors(pid: i32) -> BTreeSet<i32> {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .file_name()
                .to_str()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect()
}

/// Lets a command begin with this limit.
pub(crate) fn limit_child(command: &mut Command, resource: u32, soft: u64, hard: u64) {
    use std::os::unix::process::CommandExt;
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    let set = move || {
        // SAFETY: a valid limit; one system call between fork and exec.
        match unsafe { libc::setrlimit(resource as _, &raw const limit) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    };
    // SAFETY: `set` makes one system call and allocates nothing.
    unsafe { command.pre_exec(set) };
}
