//! The keeper alone, with the test itself as its supervisor.
//!
//! `stagehand` is started as a keeper; the supervisor that it starts hands the wire over,
//! so that each test speaks the wire and sees every message. No test waits by the clock:
//! each waits for an event, with a limit that only a failure reaches.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a failing unwrap is a failing test")]

use ostler_supervisor::keeper::wire::{
    self, Exec, ForkRequest, Frame, Inbox, JobRow, Limit, Message, Op, Stdin, Step, Welcome,
};
use ostler_supervisor::log::Arena;
use ostler_supervisor::process::link::{self, Keeper, Leave};
use ostler_tests::process::Process;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Reached only when something is broken.
const LIMIT: Duration = Duration::from_secs(20);

/// The supervisor that the test plays.
struct Part {
    wire: OwnedFd,
    inbox: Inbox,
    seen: VecDeque<Message>,
    control: UnixStream,
    pid: i32,
}

/// A keeper with its folder and the part the test plays.
struct Stage {
    dir: TempDir,
    control: UnixListener,
    keeper: Child,
    ready: BufReader<std::process::ChildStdout>,
    part: Option<Part>,
}

fn wait_readable(file: &impl AsRawFd) -> bool {
    let mut asked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry that outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, LIMIT.as_millis() as i32) == 1 }
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: plain call on a process that this test has started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0, "kill {pid}");
}

/// Ends when `what` is true; the condition has no event that a test could wait for.
fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LIMIT, "never: {what}");
        std::thread::yield_now();
    }
}

impl Part {
    fn take(control: &UnixListener) -> Self {
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

    fn send(&self, op: Op, job: u64, first: u64) {
        self.put(Frame::new(op, job, [first, 0, 0, 0, 0]), &[], &[]);
    }

    /// Waits for room if there is none, as the keeper must not.
    fn put(&self, frame: Frame, payload: &[u8], files: &[std::os::fd::BorrowedFd<'_>]) {
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

    fn fork(&self, job: u64, request: &ForkRequest) {
        self.put(Frame::new(Op::Fork, job, [0; 5]), &request.encode(), &[]);
    }

    fn next(&mut self) -> Message {
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
    fn expect(&mut self, op: Op, job: u64) -> Message {
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
    fn all_until_pong(&mut self, sequence: u32) -> Vec<Message> {
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

    fn start(&mut self, job: u64, request: &ForkRequest) -> Running {
        self.fork(job, request);
        Running::read(self.expect(Op::Started, job))
    }

    /// The code of a job that ends by itself, after its burial.
    fn finish(&mut self, job: u64) -> (Option<i32>, Option<i32>) {
        let ended = self.expect(Op::Ended, job).frame.args;
        let value = |word: u64| (word != wire::NONE).then_some(word as i32);
        let ended = (value(ended[0]), value(ended[1]));
        assert_eq!(self.bury(job), ended);
        ended
    }

    /// Reaps and forgets a job whose end was told.
    fn bury(&mut self, job: u64) -> (Option<i32>, Option<i32>) {
        self.send(Op::Reap, job, 0);
        let reaped = self.expect(Op::Reaped, job).frame.args;
        self.send(Op::Forget, job, 0);
        let value = |word: u64| (word != wire::NONE).then_some(word as i32);
        (value(reaped[0]), value(reaped[1]))
    }

    /// What a job prints until its pipe closes.
    fn output(&mut self, job: u64, request: &ForkRequest) -> String {
        let running = self.start(job, request);
        let text = running.read_all();
        self.finish(job);
        text
    }

    fn fetch(&mut self) -> Vec<(u64, JobRow, Vec<OwnedFd>, u32)> {
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
struct Running {
    pid: i32,
    out: Option<OwnedFd>,
    err: Option<OwnedFd>,
    input: Option<OwnedFd>,
}

impl Running {
    fn read(message: Message) -> Self {
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

    fn read_all(&self) -> String {
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
fn instance_of(dir: &Path) -> u32 {
    ostler_supervisor::tree::instance_here(dir).expect("proc is mounted")
}

impl Stage {
    fn command(dir: &Path, words: &[&str]) -> Command {
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
    fn raised(words: &[&str]) -> Self {
        let dir = TempDir::new().unwrap();
        let control = UnixListener::bind(dir.path().join("control")).unwrap();
        let command = Self::command(dir.path(), words);
        Self::open(dir, control, command)
    }

    fn open(dir: TempDir, control: UnixListener, mut command: Command) -> Self {
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

    fn new() -> Self {
        let mut stage = Self::raised(&[]);
        stage.be_ready();
        stage
    }

    fn be_ready(&mut self) {
        let part = self.part();
        part.expect(Op::Hello, 0);
        part.send(Op::Ready, 0, 0);
        assert_eq!(self.line(), "ready");
    }

    fn part(&mut self) -> &mut Part {
        self.part.as_mut().unwrap()
    }

    /// The next supervisor.
    fn succeed(&mut self) -> &mut Part {
        self.part = Some(Part::take(&self.control));
        self.part()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.ready.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn instance(&self) -> u64 {
        instance_of(self.dir.path()).into()
    }

    fn keeper_pid(&self) -> i32 {
        self.keeper.id() as i32
    }

    /// Lets the supervisor leave in order and waits for the keeper's end.
    fn leave(&mut self, why: u64) -> ExitStatus {
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

fn bytes(words: &[&str]) -> Vec<Vec<u8>> {
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

fn request(words: &[&str]) -> ForkRequest {
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

fn shell(script: &str) -> ForkRequest {
    request(&["sh", "-c", script])
}

fn failure(message: &Message) -> (Step, i32, u64) {
    let args = message.frame.args;
    (Step::from_number(args[0]).unwrap(), args[1] as i32, args[2])
}

fn children_in_state(parent: i32, wanted: char) -> BTreeSet<i32> {
    let list = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    list.split_whitespace()
        .map(|word| word.parse().unwrap())
        .filter(|pid| state_of(*pid) == Some(wanted))
        .collect()
}

fn state_of(pid: i32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

fn descriptors(pid: i32) -> BTreeSet<i32> {
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

#[test]
fn hello_brings_everything_a_supervisor_needs() {
    let mut stage = Stage::raised(&[]);
    let hello = stage.part().expect(Op::Hello, 0);
    let welcome = Welcome::decode(&hello.payload).unwrap();
    assert!(!hello.truncated);
    assert_eq!(hello.frame.args[..4], [1, 0, 1, stage.instance()]);
    assert_eq!((welcome.oldest, welcome.newest), (1, 1));
    assert!(hello.files.len() >= 7 && hello.files.len() % 2 == 1);
    let socket = std::fs::metadata(stage.path("ostler.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let slots = hello.frame.args[4];
    let arena = File::from(hello.files[3].try_clone().unwrap());
    assert_eq!(arena.metadata().unwrap().len(), slots * 294_912);
    assert!(arena.set_len(0).is_err(), "the arena can be cut");
    let lock = std::fs::read_to_string(stage.path("house.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    assert_eq!(lock["pid"], stage.keeper_pid());
    assert!(lock["start"].as_u64().unwrap() > 0);
}

#[test]
fn arguments_environment_folder_umask_and_limits_are_exactly_those_asked_for() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["sh", "-c", "printf '[%s]' \"$0\" \"$@\"", "a b", "", "ü"]);
    assert_eq!(part.output(1, &asked), "[a b][][ü]");
    asked = request(&["env"]);
    asked.env = bytes(&["ONE=1", "EMPTY=", "TWO=a b"]);
    assert_eq!(part.output(2, &asked), "ONE=1\nEMPTY=\nTWO=a b\n");
    asked = shell("pwd; umask; ulimit -Sn; ulimit -Hn");
    asked.cwd = b"/usr".to_vec();
    asked.umask = Some(0o027);
    asked.limits = vec![Limit {
        resource: libc::RLIMIT_NOFILE,
        soft: 100,
        hard: 200,
    }];
    assert_eq!(part.output(3, &asked), "/usr\n0027\n100\n200\n");
}

#[test]
fn a_job_gets_back_the_umask_and_the_soft_limits_the_keeper_had_before() {
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let keeper = Stage::command(dir.path(), &[]);
    let mut command = Command::new("/bin/sh");
    command
        .args([
            "-c",
            "umask 031; ulimit -Sn 321; ulimit -Sf 8000; exec \"$@\"",
            "sh",
        ])
        .arg(keeper.get_program())
        .args(keeper.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut stage = Stage::open(dir, control, command);
    stage.be_ready();
    let keeper = stage.keeper_pid();
    let limits = std::fs::read_to_string(format!("/proc/{keeper}/limits")).unwrap();
    assert!(!limits.contains(" 321 "), "{limits}");
    let text = stage
        .part()
        .output(1, &shell("umask; ulimit -Sn; ulimit -Sf"));
    assert_eq!(text, "0031\n321\n8000\n");
}

#[test]
fn a_limit_above_the_hard_one_is_cut_down_and_said_so() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell(":");
    asked.limits = vec![Limit {
        resource: libc::RLIMIT_NOFILE,
        soft: u64::MAX,
        hard: u64::MAX,
    }];
    part.start(1, &asked);
    assert_eq!(part.expect(Op::Execed, 1).frame.args[1], 1);
    part.start(2, &shell(":"));
    assert_eq!(part.expect(Op::Execed, 2).frame.args[1], 0);
}

#[test]
fn a_job_has_no_descriptor_above_two_and_the_null_device_as_input() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["sleep", "1000"]);
    asked.merge = false;
    for job in 1..=3 {
        let running = part.start(job, &asked);
        part.expect(Op::Execed, job);
        // The dynamic loader has a library open for a moment; a leak would stay.
        until("three descriptors alone", || {
            descriptors(running.pid) == [0, 1, 2].into()
        });
        let input = std::fs::read_link(format!("/proc/{}/fd/0", running.pid)).unwrap();
        assert_eq!(input, Path::new("/dev/null"));
        assert!(running.err.is_some());
    }
}

#[test]
fn signals_are_clean_in_a_job_whatever_the_keeper_was_started_with() {
    let mut stage = Stage::raised(&["deaf"]);
    stage.be_ready();
    let text = stage
        .part()
        .output(1, &request(&["cat", "/proc/self/status"]));
    for name in ["SigBlk", "SigIgn", "SigCgt", "SigPnd"] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
}

#[test]
fn a_job_has_its_own_session_its_cookie_and_a_higher_oom_score() {
    let mut stage = Stage::new();
    let instance = stage.instance();
    let part = stage.part();
    let script = "cat /proc/$$/oom_score_adj; cut -d' ' -f5,6 /proc/$$/stat; \
                  grep realtime.timeout /proc/$$/limits; echo $$";
    let text = part.output(5, &shell(script));
    let lines: Vec<_> = text.lines().collect();
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let higher = ours.trim().parse::<i32>().unwrap() + 100;
    assert_eq!(lines[0], higher.min(1000).to_string());
    assert_eq!(lines[1], format!("{0} {0}", lines[3]));
    let number = instance << 30 | 5;
    let words: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(words[3], ((1u64 << 61) + number).to_string());
    assert_eq!(words[4], ((1u64 << 62) + number).to_string());
}

#[test]
fn a_failing_start_names_step_reason_and_program() {
    let mut stage = Stage::new();
    let file = stage.path("plain");
    std::fs::write(&file, "no program").unwrap();
    let plain = file.to_str().unwrap().to_owned();
    let part = stage.part();
    let mut failed = |job, request: &ForkRequest| {
        part.fork(job, request);
        let answer = failure(&part.expect(Op::Failed, job));
        part.send(Op::Forget, job, 0);
        answer
    };
    let with = |programs: &[&str]| ForkRequest {
        programs: bytes(programs),
        ..shell(":")
    };
    let missing = (Step::Exec, libc::ENOENT, 1);
    assert_eq!(failed(1, &with(&["/no/a", "/no/b"])), missing);
    let denied = (Step::Exec, libc::EACCES, 1);
    assert_eq!(failed(2, &with(&["/no/a", &plain, "/no/b"])), denied);
    let mut asked = shell(":");
    asked.cwd = plain.clone().into_bytes();
    assert_eq!(failed(3, &asked), (Step::Chdir, libc::ENOTDIR, 0));
    asked.cwd = b"/no/such/folder".to_vec();
    assert_eq!(failed(4, &asked), (Step::Chdir, libc::ENOENT, 0));
    asked = shell(":");
    asked.argv.push(vec![b'x'; 200_000]);
    assert_eq!(failed(5, &asked), (Step::Exec, libc::E2BIG, 0));
    asked = shell(":");
    asked.argv.push(b"a\0b".to_vec());
    assert_eq!(failed(6, &asked), (Step::Request, libc::EINVAL, 0));
    assert_eq!(failed(7, &with(&[])), (Step::Request, libc::EINVAL, 0));
    assert!(children_in_state(stage.keeper_pid(), 'Z').is_empty());
}

#[test]
fn the_index_of_the_program_that_runs_is_told() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("exit 3");
    asked.programs = bytes(&["/no/sh", "/etc/passwd/sh", "/bin/sh"]);
    part.start(1, &asked);
    assert_eq!(part.expect(Op::Execed, 1).frame.args[0], 2);
    assert_eq!(part.finish(1), (Some(3), None));
}

#[test]
fn a_program_that_is_still_being_written_is_tried_again_until_it_is_free() {
    let mut stage = Stage::new();
    let path = stage.path("busy");
    std::fs::copy("/bin/true", &path).unwrap();
    let writer = File::options().append(true).open(&path).unwrap();
    let mut asked = request(&["busy"]);
    asked.programs = vec![path.to_str().unwrap().into()];
    let part = stage.part();
    // Held for good it is an error in the end.
    part.fork(1, &asked);
    let busy = (Step::Exec, libc::ETXTBSY, 0);
    assert_eq!(failure(&part.expect(Op::Failed, 1)), busy);
    // Let go while the child tries, it runs.
    part.fork(2, &asked);
    part.expect(Op::Started, 2);
    drop(writer);
    part.expect(Op::Execed, 2);
    assert_eq!(part.finish(2), (Some(0), None));
}

#[test]
fn a_mebibyte_of_arguments_arrives_whole() {
    let mut stage = Stage::new();
    let mut asked = request(&["sh", "-c", "echo $# ${#1} ${#16}", "sh"]);
    asked.argv.extend((0..16).map(|_| vec![b'x'; 65_536]));
    assert_eq!(stage.part().output(1, &asked), "16 65536 65536\n");
}

#[test]
fn an_end_is_told_while_the_leader_is_a_zombie_and_its_number_is_kept() {
    let mut stage = Stage::new();
    let part = stage.part();
    let running = part.start(1, &shell("sleep 1000 & exit 7"));
    let ended = part.expect(Op::Ended, 1).frame.args;
    assert_eq!(ended, [7, wire::NONE, 0, 0, 1]);
    assert_eq!(state_of(running.pid), Some('Z'));
    // Its group can still be addressed, and the stray in it dies of that.
    kill(-running.pid, libc::SIGKILL);
    let member = part.expect(Op::MemberEnded, 1);
    assert_eq!(member.frame.args[0], 1);
    assert_eq!(state_of(running.pid), Some('Z'));
    assert_eq!(part.bury(1), (Some(7), None));
    assert_eq!(state_of(running.pid), None);
}

#[test]
fn every_exit_code_and_the_signals_are_told() {
    let mut stage = Stage::new();
    let part = stage.part();
    for code in 0..=255 {
        part.fork(code, &shell(&format!("exit {code}")));
    }
    for code in 0..=255 {
        assert_eq!(part.finish(code), (Some(code as i32), None));
    }
    for signal in [1, 2, 3, 6, 9, 13, 14, 15, 40, 64] {
        part.fork(1000 + signal, &shell(&format!("kill -{signal} $$")));
        assert_eq!(part.finish(1000 + signal), (None, Some(signal as i32)));
    }
}

#[test]
fn strays_are_buried_and_attributed_while_a_leader_is_held() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    // Both leaders end at once and are held as zombies; their escaped children go on.
    let escape = "exec 3<&0; setsid env -i /bin/sh -c 'read x <&3' & exit 0";
    let mut inputs = Vec::new();
    for job in [1, 2] {
        let mut asked = shell(escape);
        asked.stdin = Stdin::Pipe;
        inputs.push(part.start(job, &asked).input);
        assert_eq!(part.expect(Op::Ended, job).frame.args[4], 1);
    }
    assert_eq!(children_in_state(keeper, 'Z').len(), 2);
    part.send(Op::Close, 2, wire::CLOSE_IN);
    drop(inputs.pop());
    part.expect(Op::MemberEnded, 2);
    until("the strays of job 2 are buried", || {
        children_in_state(keeper, 'Z').len() == 2
    });
    let others = part.all_until_pong(1);
    let of_first = others.iter().filter(|message| message.frame.job == 1);
    assert!(
        of_first
            .clone()
            .all(|message| message.frame.op() != Some(Op::MemberEnded))
    );
    assert_eq!(part.bury(1).0, Some(0));
    assert_eq!(part.bury(2).0, Some(0));
}

#[test]
fn a_thousand_double_forks_leave_no_zombie_and_steal_no_code() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    let script = "i=0; while [ $i -lt 100 ]; do (true & ) ; i=$((i+1)); done; exit 7";
    for job in 0..10 {
        part.fork(job, &shell(script));
    }
    for job in 0..10 {
        part.expect(Op::Ended, job);
    }
    until("only the leaders are zombies", || {
        children_in_state(keeper, 'Z').len() == 10
    });
    for job in 0..10 {
        part.send(Op::Reap, job, 0);
        assert_eq!(part.expect(Op::Reaped, job).frame.args[0], 7);
    }
    // A last orphan may be dead and not reaped yet at any moment, but not for long.
    until("no zombie is left", || {
        children_in_state(keeper, 'Z').is_empty()
    });
}

#[test]
fn closing_both_copies_of_the_input_ends_cat() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["cat"]);
    asked.stdin = Stdin::Pipe;
    let mut running = part.start(1, &asked);
    let mut input = File::from(running.input.take().unwrap());
    input.write_all(b"hello").unwrap();
    drop(input);
    // The keeper's copy keeps it open.
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_IN);
    assert_eq!(running.read_all(), "hello");
    assert_eq!(part.finish(1), (Some(0), None));
}

#[test]
fn a_writer_breaks_only_when_both_reading_ends_are_closed() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("while read x; do echo $x || exit 9; done; exit 0");
    asked.argv[2] = b"trap '' PIPE; while read x; do echo $x 2>/dev/null || exit 9; done".to_vec();
    asked.stdin = Stdin::Pipe;
    let running = part.start(1, &asked);
    let mut input = File::from(running.input.unwrap());
    drop(running.out);
    input.write_all(b"one\n").unwrap();
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_OUT);
    part.all_until_pong(2);
    input.write_all(b"two\n").unwrap();
    assert_eq!(part.finish(1), (Some(9), None));
}

#[test]
fn a_passed_file_is_the_input() {
    let mut stage = Stage::new();
    let path = stage.path("input");
    std::fs::write(&path, "given once").unwrap();
    let file = File::open(&path).unwrap();
    let mut asked = request(&["cat"]);
    asked.stdin = Stdin::Passed;
    let part = stage.part();
    let frame = Frame::new(Op::Fork, 1, [0; 5]);
    part.put(frame, &asked.encode(), &[file.as_fd()]);
    let running = Running::read(part.expect(Op::Started, 1));
    assert_eq!(running.read_all(), "given once");
    assert_eq!(part.finish(1), (Some(0), None));
}

#[test]
fn a_terminal_is_the_controlling_one_and_has_the_size_asked_for() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("stty size; tty -s && echo yes > /dev/tty; exec sleep 1000");
    asked.pty = Some((33, 99));
    let running = part.start(1, &asked);
    let mut text = Vec::new();
    let mut master = File::from(running.out.unwrap());
    while !text.ends_with(b"yes\r\n") {
        assert!(wait_readable(&master));
        let mut chunk = [0; 256];
        let got = master.read(&mut chunk).unwrap();
        text.extend_from_slice(&chunk[..got]);
    }
    assert_eq!(String::from_utf8(text).unwrap(), "33 99\r\nyes\r\n");
    // A hang-up is real only when both copies of the master are closed.
    drop(master);
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_OUT);
    assert_eq!(part.finish(1), (None, Some(libc::SIGHUP)));
}

#[test]
fn a_start_that_is_asked_for_twice_happens_once() {
    let mut stage = Stage::new();
    let part = stage.part();
    let file = TempDir::new().unwrap();
    let path = file.path().join("count");
    let mut asked = shell(&format!("echo x >> {}; read x; exit 4", path.display()));
    asked.stdin = Stdin::Pipe;
    let first = part.start(1, &asked);
    let again = part.start(1, &asked);
    assert_eq!(first.pid, again.pid);
    assert!(again.out.is_some() && again.input.is_some());
    drop((first.input, again.input));
    part.send(Op::Close, 1, wire::CLOSE_IN);
    part.expect(Op::Ended, 1);
    part.all_until_pong(1);
    // Asked once more after the end, everything known is told again.
    part.fork(1, &asked);
    assert_eq!(part.expect(Op::Started, 1).frame.args[0], first.pid as u64);
    part.expect(Op::Execed, 1);
    assert_eq!(part.finish(1), (Some(4), None));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "x\n");
}

#[test]
fn a_start_whose_payload_cannot_be_read_is_a_failed_start() {
    let mut stage = Stage::new();
    let file = File::create(stage.path("huge")).unwrap();
    file.set_len(1 << 40).unwrap();
    let part = stage.part();
    let mut frame = Frame::new(Op::Fork, 1, [0; 5]);
    frame.flags = wire::PAYLOAD_FILE;
    for (job, files) in [(1, vec![file.as_fd()]), (2, vec![])] {
        frame.job = job;
        part.put(frame, &[], &files);
        let answer = failure(&part.expect(Op::Failed, job));
        assert_eq!(answer, (Step::Descriptors, libc::EMFILE, 0));
    }
    part.put(Frame::new(Op::Fork, 3, [0; 5]), b"no request", &[]);
    let answer = failure(&part.expect(Op::Failed, 3));
    assert_eq!(answer, (Step::Request, libc::EINVAL, 0));
}

#[test]
fn orders_at_the_wrong_time_and_unknown_ones_are_refused_by_name() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut refused = |op: u16, job: u64| {
        let mut frame = Frame::new(Op::Ping, job, [0; 5]).sequence(9);
        frame.op = op;
        part.put(frame, &[], &[]);
        let error = part.expect(Op::Error, job).frame;
        assert_eq!((error.args[1], error.sequence), (op.into(), 9));
        error.args[0]
    };
    assert_eq!(refused(999, 0), wire::ERROR_UNKNOWN);
    assert_eq!(refused(Op::Started as u16, 0), wire::ERROR_UNKNOWN);
    assert_eq!(refused(Op::Reap as u16, 5), wire::ERROR_NO_JOB);
    assert_eq!(refused(Op::Hold as u16, 5), wire::ERROR_MALFORMED);
    part.start(1, &request(&["sleep", "1000"]));
    for op in [Op::Reap, Op::Forget] {
        part.send(op, 1, 0);
        let error = part.expect(Op::Error, 1).frame;
        assert_eq!(error.args[0], wire::ERROR_TOO_EARLY);
    }
}

#[test]
fn a_killed_supervisor_is_replaced_and_gets_everything_back() {
    let mut stage = Stage::new();
    let spill = File::create(stage.path("spill")).unwrap();
    let ledger = File::create(stage.path("ledger")).unwrap();
    let inode = spill.metadata().unwrap().ino();
    let part = stage.part();
    let mut asked = shell("read x; echo $x; exit 5");
    asked.stdin = Stdin::Pipe;
    asked.record = b"my record".to_vec();
    asked.slot = 12;
    let pid = part.start(1, &asked).pid;
    part.expect(Op::Execed, 1);
    part.put(Frame::new(Op::Hold, 1, [0; 5]), &[], &[spill.as_fd()]);
    part.put(
        Frame::new(Op::Ledger, 0, [3, 0, 0, 0, 0]),
        &[],
        &[ledger.as_fd()],
    );
    part.start(2, &shell("exit 6"));
    part.expect(Op::Ended, 2);
    part.send(Op::Reap, 2, 0);
    part.expect(Op::Reaped, 2);
    // This one is asked for and the supervisor dies before the answer.
    part.fork(3, &shell("exit 8"));
    kill(part.pid, libc::SIGKILL);

    let part = stage.succeed();
    let hello = part.expect(Op::Hello, 0);
    assert_eq!(hello.frame.args[..2], [2, 1]);
    assert_eq!(Welcome::decode(&hello.payload).unwrap().ledger, 3);
    let mut rows = part.fetch();
    assert_eq!(rows.iter().map(|row| row.0).collect::<Vec<_>>(), [1, 2, 3]);
    let (_, row, files, flags) = rows.remove(0);
    assert_eq!((row.slot, row.record.as_slice()), (12, &b"my record"[..]));
    assert_eq!(row.facts.started.unwrap().pid, pid);
    assert!(matches!(row.facts.exec, Exec::Done { .. }));
    assert_eq!(flags, wire::HAS_OUT | wire::HAS_IN | wire::HAS_SPILL);
    assert_eq!(
        File::from(files[2].try_clone().unwrap())
            .metadata()
            .unwrap()
            .ino(),
        inode
    );
    assert_eq!(rows[0].1.facts.reaped.unwrap().code, Some(6));
    File::from(files[1].try_clone().unwrap())
        .write_all(b"on\n")
        .unwrap();
    assert_eq!(part.finish(1), (Some(5), None));
    part.send(Op::Forget, 2, 0);
    if rows[1].1.facts.ended.is_none() {
        part.expect(Op::Ended, 3);
    }
    part.send(Op::Reap, 3, 0);
    assert_eq!(part.expect(Op::Reaped, 3).frame.args[0], 8);
    part.send(Op::Forget, 3, 0);
    assert!(part.fetch().is_empty());
}

#[test]
fn a_supervisor_that_closes_the_wire_but_lives_on_is_killed_after_a_second() {
    let mut stage = Stage::new();
    let begun = Instant::now();
    let Part { wire, control, .. } = stage.part.take().unwrap();
    drop(wire);
    let part = stage.succeed();
    assert!(begun.elapsed() >= Duration::from_millis(900));
    assert_eq!(part.expect(Op::Hello, 0).frame.args[..2], [2, 1]);
    drop(control);
}

#[test]
fn a_supervisor_that_keeps_dying_ends_the_house_with_its_reason() {
    let mut stage = Stage::raised(&[]);
    let job = {
        let part = stage.part();
        part.start(1, &request(&["sleep", "1000"])).pid
    };
    for attempt in 1..=6 {
        let part = stage.part.as_mut().unwrap();
        assert_eq!(part.expect(Op::Hello, 0).frame.args[0], attempt);
        kill(part.pid, libc::SIGKILL);
        if attempt < 6 {
            stage.succeed();
        }
    }
    assert!(!stage.keeper.wait().unwrap().success());
    assert!(
        stage
            .line()
            .starts_with("failed: the supervisor was ended by signal 9")
    );
    let lock = std::fs::read_to_string(stage.path("house.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    assert!(
        lock["reason"]
            .as_str()
            .unwrap()
            .contains("6 times in a row")
    );
    assert!(
        std::fs::read_to_string(stage.path("daemon.log"))
            .unwrap()
            .contains("error keeper: ")
    );
    assert!(!stage.path("ostler.sock").exists());
    assert_eq!(state_of(job), None);
}

#[test]
fn steady_forgets_the_crashes_before_it() {
    let mut stage = Stage::new();
    for _ in 0..8 {
        let part = stage.part();
        part.send(Op::Steady, 0, 0);
        part.all_until_pong(1);
        kill(part.pid, libc::SIGKILL);
        assert_eq!(stage.succeed().expect(Op::Hello, 0).frame.args[0], 2);
    }
}

#[test]
fn the_job_under_the_restoring_mark_is_named_with_its_deaths() {
    use std::os::unix::fs::FileExt;
    let mut stage = Stage::raised(&[]);
    for deaths in 0..3u32 {
        let part = stage.part();
        let hello = part.expect(Op::Hello, 0);
        let welcome = Welcome::decode(&hello.payload).unwrap();
        let expected = (deaths > 0).then_some(41);
        assert_eq!(
            (welcome.restoring, welcome.restoring_deaths),
            (expected, deaths)
        );
        let headers = File::from(hello.files[4].try_clone().unwrap());
        headers
            .write_all_at(&42u64.to_ne_bytes(), Arena::HOUSE_WORD_0)
            .unwrap();
        kill(part.pid, libc::SIGKILL);
        stage.succeed();
    }
}

#[test]
fn nothing_is_left_when_the_supervisor_leaves() {
    let mut stage = Stage::new();
    let part = stage.part();
    let escape = "trap '' TERM HUP; (setsid env -i sh -c 'trap \"\" TERM; \
                  sleep 1000 & echo $! $$; wait' & ) ; exec sleep 1000";
    let mut pids = Vec::new();
    for job in 0..5 {
        let running = part.start(job, &shell(escape));
        let mut line = String::new();
        let out = File::from(running.out.unwrap());
        assert!(wait_readable(&out));
        BufReader::new(out).read_line(&mut line).unwrap();
        pids.push(running.pid);
        pids.extend(
            line.split_whitespace()
                .map(|word| word.parse::<i32>().unwrap()),
        );
    }
    assert!(pids.iter().all(|pid| state_of(*pid).is_some()));
    assert!(stage.leave(wire::LEAVE_DISPOSE).success());
    for pid in pids {
        assert_eq!(state_of(pid), None, "{pid}");
    }
    assert!(!stage.path("ostler.sock").exists());
}

#[test]
fn a_refusing_supervisor_gives_the_starter_its_reason() {
    let mut stage = Stage::raised(&[]);
    let part = stage.part();
    let leave = Frame::new(Op::Leave, 0, [wire::LEAVE_REFUSE, 0, 0, 0, 0]);
    part.put(leave, b"the state folder is read-only", &[]);
    part.control.write_all(&[1]).unwrap();
    assert_eq!(stage.line(), "failed: the state folder is read-only");
    assert!(!stage.keeper.wait().unwrap().success());
}

#[test]
fn term_is_passed_on_and_the_house_ends_with_the_supervisor() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let job = stage.part().start(1, &request(&["sleep", "1000"])).pid;
    kill(keeper, libc::SIGTERM);
    let part = stage.part();
    assert_eq!(part.expect(Op::Term, 0).frame.args[0], libc::SIGTERM as u64);
    part.control.write_all(&[0]).unwrap();
    assert!(stage.keeper.wait().unwrap().success());
    assert_eq!(state_of(job), None);
}

/// The first of these orders has an answer, which nobody hears any more; the others are carried out all the same. A lost
/// farewell was a house that began anew after `daemon stop`.
#[test]
fn the_last_orders_of_a_supervisor_that_is_gone_are_all_carried_out() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let mut part = stage.part.take().unwrap();
    part.start(1, &shell("exit 3"));
    part.expect(Op::Ended, 1);
    kill(keeper, libc::SIGSTOP);
    until("the keeper stands still", || state_of(keeper) == Some('T'));
    part.send(Op::Reap, 1, 0);
    part.send(Op::Forget, 1, 0);
    part.send(Op::Leave, 0, wire::LEAVE_DISPOSE);
    part.control.write_all(&[0]).unwrap();
    until("the supervisor is gone", || state_of(part.pid) == Some('Z'));
    drop(part);
    let process = Process::of(keeper as u32).expect("it stands still");
    kill(keeper, libc::SIGCONT);
    assert!(process.gone_within(LIMIT), "it began anew");
    assert!(stage.keeper.wait().unwrap().success());
}

#[test]
fn a_supervisor_that_reads_nothing_never_holds_up_the_keeper() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    // Nothing is read from the wire until all thousand have ended.
    for job in 0..1000 {
        part.fork(job, &shell("exit 3"));
    }
    until("a thousand zombies wait for their burial", || {
        children_in_state(keeper, 'Z').len() == 1000
    });
    for job in 0..1000 {
        assert_eq!(part.expect(Op::Ended, job).frame.args[0], 3);
        part.seen.retain(|message| message.frame.job != job);
        part.send(Op::Reap, job, 0);
        part.send(Op::Forget, job, 0);
    }
    assert!(part.fetch().is_empty());
}

#[test]
fn a_second_keeper_on_the_same_lock_says_who_has_it_and_goes() {
    let stage = Stage::new();
    let second = Stage::command(stage.dir.path(), &[]).output().unwrap();
    assert!(!second.status.success());
    let line = String::from_utf8(second.stdout).unwrap();
    let expected = format!("failed: house.lock is held by pid {}\n", stage.keeper_pid());
    assert_eq!(line, expected);
    assert!(UnixStream::connect(stage.path("ostler.sock")).is_ok());
}

#[test]
fn a_stale_socket_is_replaced_and_another_file_is_not() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("ostler.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(UnixStream::connect(&path).is_err());
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let command = Stage::command(dir.path(), &[]);
    let mut stage = Stage::open(dir, control, command);
    assert!(UnixStream::connect(&path).is_ok());
    assert!(stage.leave(wire::LEAVE_IDLE).success());
    // The supervisor's duplicate of the lock came with the wire, and goes with it.
    stage.part = None;
    std::fs::write(&path, "precious").unwrap();
    let refused = Stage::command(stage.dir.path(), &[]).output().unwrap();
    let line = String::from_utf8(refused.stdout).unwrap();
    assert!(line.ends_with("exists and is no socket\n"), "{line}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[test]
fn a_socket_path_that_is_too_long_is_a_clear_reason() {
    let dir = TempDir::new().unwrap();
    let long = dir.path().join("x".repeat(100));
    std::fs::create_dir(&long).unwrap();
    let refused = Stage::command(&long, &[]).output().unwrap();
    let line = String::from_utf8(refused.stdout).unwrap();
    assert!(line.starts_with("failed: the socket path is ") && line.contains("at most 107"));
}

#[test]
fn the_socket_comes_back_when_it_was_removed_and_somebody_asks() {
    let mut stage = Stage::new();
    let path = stage.path("ostler.sock");
    std::fs::remove_file(&path).unwrap();
    kill(stage.keeper_pid(), libc::SIGUSR1);
    let message = stage.part().expect(Op::Listener, 0);
    let listener = UnixListener::from(message.files.into_iter().next().unwrap());
    let client = UnixStream::connect(&path).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    served.write_all(b"!").unwrap();
    let mut byte = [0];
    (&client).read_exact(&mut byte).unwrap();
    // A young supervisor is not suspected, so nothing else comes of the signal.
    let told = stage.part().all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ping))
    );
}

#[test]
fn a_foreign_socket_in_our_place_is_not_removed_at_the_end() {
    let mut stage = Stage::new();
    let path = stage.path("ostler.sock");
    std::fs::remove_file(&path).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    assert!(stage.leave(wire::LEAVE_IDLE).success());
    assert!(path.exists());
}

#[test]
fn a_keeper_in_the_background_stands_apart_from_its_starter() {
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let command = Stage::command(dir.path(), &["background"]);
    let mut stage = Stage::open(dir, control, command);
    stage.be_ready();
    // The process that was started is gone, and nobody holds its pipe any more.
    assert!(stage.keeper.wait().unwrap().success());
    let mut rest = String::new();
    stage.ready.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
    let lock = std::fs::read_to_string(stage.path("house.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    let keeper = lock["pid"].as_i64().unwrap() as i32;
    assert_eq!(
        std::fs::read_link(format!("/proc/{keeper}/cwd")).unwrap(),
        Path::new("/")
    );
    // SAFETY: plain call.
    assert_eq!(unsafe { libc::getsid(keeper) }, keeper);
    for number in 0..=2 {
        let file = std::fs::read_link(format!("/proc/{keeper}/fd/{number}")).unwrap();
        assert_eq!(file, Path::new("/dev/null"));
    }
    let part = stage.part();
    part.send(Op::Leave, 0, wire::LEAVE_IDLE);
    part.control.write_all(&[0]).unwrap();
    until("the keeper is gone", || state_of(keeper).is_none());
}

#[test]
fn a_sweep_ends_the_strays_of_one_job_and_no_other() {
    let mut stage = Stage::new();
    let part = stage.part();
    for job in [1, 2] {
        part.start(job, &shell("setsid env -i sleep 1000 & exit 0"));
        assert!(part.expect(Op::Ended, job).frame.args[4] >= 1);
        part.send(Op::Reap, job, 0);
        part.expect(Op::Reaped, job);
    }
    part.send(Op::Sweep, 1, 0);
    part.expect(Op::MemberEnded, 1);
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::MemberEnded))
    );
}

#[test]
fn kills_between_starts_make_no_job_twice_and_lose_none() {
    let mut stage = Stage::new();
    let count = stage.path("count");
    let script = format!("echo $0 >> {}; exit 9", count.display());
    let asked = |job: u64| {
        let mut asked = shell(&script);
        asked.argv.push(job.to_string().into_bytes());
        asked
    };
    for round in 0..20 {
        let part = stage.part();
        part.send(Op::Steady, 0, 0);
        let jobs = round * 10..round * 10 + 10;
        jobs.clone().for_each(|job| part.fork(job, &asked(job)));
        kill(part.pid, libc::SIGKILL);
        let part = stage.succeed();
        // What a restarted supervisor does not know it asks for again.
        jobs.clone().for_each(|job| part.fork(job, &asked(job)));
        for job in jobs {
            assert_eq!(part.finish(job), (Some(9), None));
        }
        assert!(part.fetch().is_empty());
    }
    let text = std::fs::read_to_string(count).unwrap();
    let mut ran: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    ran.sort_unstable();
    assert_eq!(ran, (0..200).collect::<Vec<_>>());
}

#[test]
fn forgotten_jobs_leave_no_descriptor_in_the_keeper() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    // Answered after the ready pipe is closed.
    part.all_until_pong(0);
    let before = descriptors(keeper);
    let mut asked = shell("exit 0");
    asked.stdin = Stdin::Pipe;
    asked.merge = false;
    let mut terminal = shell("exit 0");
    terminal.pty = Some((24, 80));
    let mut failing = shell(":");
    failing.cwd = b"/no".to_vec();
    for job in (0..300).step_by(3) {
        part.fork(job, &asked);
        part.fork(job + 1, &terminal);
        part.fork(job + 2, &failing);
        part.finish(job);
        part.finish(job + 1);
        part.expect(Op::Failed, job + 2);
        part.send(Op::Forget, job + 2, 0);
        part.seen.clear();
    }
    part.all_until_pong(1);
    assert_eq!(descriptors(keeper), before);
}

#[test]
fn a_start_for_which_descriptors_are_lacking_is_refused_before_anything_is_made() {
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let mut command = Stage::command(dir.path(), &[]);
    limit_child(&mut command, libc::RLIMIT_NOFILE, 200, 200);
    let mut stage = Stage::open(dir, control, command);
    stage.be_ready();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    let mut job = 0;
    let refusal = loop {
        job += 1;
        part.fork(job, &request(&["sleep", "1000"]));
        let answer = part.next();
        match answer.frame.op().unwrap() {
            Op::Failed => break failure(&answer),
            Op::Started => drop(part.expect(Op::Execed, job)),
            other => panic!("{other:?}"),
        }
        assert!(job < 40, "no refusal");
    };
    assert_eq!(refusal, (Step::Descriptors, libc::EMFILE, 0));
    assert!(job > 5);
    let held = descriptors(keeper);
    part.fork(job + 1, &request(&["sleep", "1000"]));
    part.expect(Op::Failed, job + 1);
    assert_eq!(descriptors(keeper), held);
}

/// Lets a command begin with this limit.
fn limit_child(command: &mut Command, resource: u32, soft: u64, hard: u64) {
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

#[test]
fn a_house_inside_another_leaves_the_outer_cookie_alone() {
    let outer = (1u64 << 62) + (99 << 30 | 3);
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let mut command = Stage::command(dir.path(), &[]);
    limit_child(&mut command, libc::RLIMIT_RTTIME, outer, outer);
    let mut stage = Stage::open(dir, control, command);
    let instance = stage.instance();
    let part = stage.part();
    assert_eq!(part.expect(Op::Hello, 0).frame.args[2], 2);
    let text = part.output(5, &shell("grep realtime.timeout /proc/$$/limits"));
    let words: Vec<_> = text.split_whitespace().collect();
    let inner = (1u64 << 61) + (instance << 30 | 5);
    assert_eq!(words[3..5], [inner.to_string(), outer.to_string()]);
    part.start(6, &shell("setsid env -i sleep 1000 & exit 0"));
    assert_eq!(part.expect(Op::Ended, 6).frame.args[4], 1);
    part.send(Op::Sweep, 6, 0);
    part.expect(Op::MemberEnded, 6);
}

#[test]
fn without_a_cookie_a_member_is_known_by_its_session() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("sleep 1000 & exit 0");
    asked.cookie = false;
    let running = part.start(1, &asked);
    assert_eq!(part.expect(Op::Ended, 1).frame.args[4], 1);
    part.send(Op::Reap, 1, 0);
    part.expect(Op::Reaped, 1);
    // Another job's end does not count it.
    part.start(2, &shell("exit 0"));
    assert_eq!(part.expect(Op::Ended, 2).frame.args[4], 0);
    kill(-running.pid, libc::SIGKILL);
    part.expect(Op::MemberEnded, 1);
    assert_eq!(part.bury(2).0, Some(0));
}

/// Follows a process as a debugger does.
fn trace(pid: i32) {
    // SAFETY: plain call; nothing is written.
    let answer = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    assert_eq!(answer, 0, "{}", io::Error::last_os_error());
}

/// Takes the status that a tracer gets before the parent.
fn let_go(pid: i32) {
    // SAFETY: no status is asked for.
    let taken = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::__WALL) };
    assert_eq!(taken, pid);
}

/// A keeper that spins never sleeps.
fn sleeps(keeper: i32) {
    until("the keeper sleeps", || state_of(keeper) == Some('S'));
}

#[test]
fn a_status_that_a_tracer_withholds_is_told_when_it_lets_go() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    let mut asked = shell("read x; exit 6");
    asked.stdin = Stdin::Pipe;
    let running = part.start(1, &asked);
    part.expect(Op::Execed, 1);
    trace(running.pid);
    File::from(running.input.unwrap()).write_all(b"\n").unwrap();
    let ended = part.expect(Op::Ended, 1).frame.args;
    assert_eq!(ended[..4], [wire::NONE, wire::NONE, 0, 1]);
    part.send(Op::Reap, 1, 0);
    let told = part.all_until_pong(1);
    assert!(told.is_empty());
    sleeps(keeper);
    let_go(running.pid);
    assert_eq!(
        part.expect(Op::Ended, 1).frame.args[..4],
        [6, wire::NONE, 0, 0]
    );
    // The burial was asked for before it was possible, and comes by itself.
    assert_eq!(part.expect(Op::Reaped, 1).frame.args[0], 6);
}

#[test]
fn a_traced_supervisor_is_replaced_when_its_tracer_lets_go() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    let pid = part.pid;
    trace(pid);
    kill(pid, libc::SIGKILL);
    until("it is a zombie", || state_of(pid) == Some('Z'));
    sleeps(keeper);
    let_go(pid);
    assert_eq!(stage.succeed().expect(Op::Hello, 0).frame.args[..2], [2, 1]);
}

#[test]
fn a_fork_loop_that_ignores_everything_is_ended_with_the_house() {
    let mut stage = Stage::new();
    let part = stage.part();
    // Each process forks its successor and goes: a chain that is never the same twice.
    let chain = "trap '' TERM HUP INT; f() { ( f & ) ; }; \
                 for i in 1 2 3 4; do setsid sh -c 'while :; do (true &); done' & done; \
                 echo up; f; exec sleep 1000";
    let running = part.start(777, &shell(chain));
    assert!(wait_readable(running.out.as_ref().unwrap()));
    drop(running.out);
    let begun = Instant::now();
    let number = stage.instance() << 30 | 777;
    assert!(stage.leave(wire::LEAVE_DISPOSE).success());
    assert!(begun.elapsed() < LIMIT);
    until("no process carries the cookie", || carriers(number) == 0);
}

/// Living processes with this number in their cookie.
fn carriers(number: u64) -> usize {
    let cookie = ((1u64 << 61) + number).to_string();
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.unwrap().path().join("limits")).ok())
        .filter(|limits| limits.contains(&cookie))
        .count()
}

#[test]
fn as_the_first_process_of_a_namespace_it_reaps_and_obeys_term() {
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let keeper = Stage::command(dir.path(), &[]);
    let mut command = Command::new("unshare");
    command
        .args(["-Urpf", "--mount-proc"])
        .arg(keeper.get_program())
        .args(keeper.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut stage = Stage::open(dir, control, command);
    stage.be_ready();
    let part = stage.part();
    let text = part.output(1, &shell("cut -d' ' -f4 /proc/$$/stat; (sleep 0 &)"));
    assert_eq!(text, "1\n");
    part.start(2, &shell("kill -TERM 1; exec sleep 1000"));
    assert_eq!(part.expect(Op::Term, 0).frame.args[0], libc::SIGTERM as u64);
    part.control.write_all(&[0]).unwrap();
    assert!(stage.keeper.wait().unwrap().success());
}

#[tokio::test]
async fn the_link_shows_a_job_from_start_to_burial() {
    let mut stage = Stage::raised(&[]);
    let wire = stage.part().wire.try_clone().unwrap();
    let (keeper, house) = Keeper::hello(wire).await.unwrap();
    assert_eq!((house.attempt, house.why), (1, link::Why::First));
    assert!(!house.scratch.is_empty());
    keeper.ready();
    let mut entry = keeper.enter(1);
    let mut asked = shell("read x; exit $x");
    asked.stdin = Stdin::Pipe;
    keeper.fork(1, &asked, None).unwrap();
    let done = |exec: &Exec| matches!(exec, Exec::Done { .. });
    entry
        .facts
        .wait_for(|facts| done(&facts.exec))
        .await
        .unwrap();
    let fds = keeper.take_fds(1).unwrap();
    assert!(keeper.take_fds(1).is_none());
    File::from(fds.stdin.unwrap()).write_all(b"6\n").unwrap();
    let ended = entry
        .facts
        .wait_for(|facts| facts.ended.is_some())
        .await
        .unwrap()
        .clone();
    assert_eq!(ended.ended.unwrap().code, Some(6));
    assert!(ended.reaped.is_none());
    let rows = keeper.fetch().await;
    assert_eq!((rows.len(), rows[0].job), (1, 1));
    assert!(rows[0].fds.out.is_some());
    keeper.reap(1);
    let reaped = entry
        .facts
        .wait_for(|facts| facts.reaped.is_some())
        .await
        .unwrap()
        .clone();
    assert_eq!(reaped.reaped.unwrap().code, Some(6));
    keeper.forget(1);
    assert!(keeper.fetch().await.is_empty());
    keeper.leave(&Leave::Idle).unwrap();
    keeper.flushed().await;
    stage.part().control.write_all(&[0]).unwrap();
    keeper.closed().await;
    assert!(keeper.fetch().await.is_empty());
    assert!(stage.keeper.wait().unwrap().success());
}

#[tokio::test]
async fn the_link_queues_a_burst_and_loses_nothing_of_it() {
    let mut stage = Stage::raised(&[]);
    let wire = stage.part().wire.try_clone().unwrap();
    let (keeper, _house) = Keeper::hello(wire).await.unwrap();
    let entries: Vec<_> = (0..500).map(|job| (job, keeper.enter(job))).collect();
    for job in 0..500 {
        keeper
            .fork(job, &shell(&format!("exit {}", job % 256)), None)
            .unwrap();
    }
    for (job, mut entry) in entries {
        let facts = entry
            .facts
            .wait_for(|facts| facts.ended.is_some())
            .await
            .unwrap()
            .clone();
        assert_eq!(facts.ended.unwrap().code, Some((job % 256) as i32));
        keeper.reap(job);
        entry
            .facts
            .wait_for(|facts| facts.reaped.is_some())
            .await
            .unwrap();
        keeper.forget(job);
    }
    assert!(keeper.fetch().await.is_empty());
}
