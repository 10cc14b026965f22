//! The one obedient child of the suites: it does what its arguments say, step after step, and nothing else.
//!
//! ```text
//! puppet STEP , STEP , fork [ STEP , STEP ] , exit 3
//! ```
//!
//! Steps, separated by a lone `,`; a block stands in lone brackets:
//!
//! | step | does |
//! |---|---|
//! | `out N`, `err N` | prints the next N bytes of the pattern to stdout, stderr at full speed |
//! | `paced N BYTES MS` | N pieces of the pattern to stdout, a pause after each |
//! | `until PATH BYTES MS` | such pieces until the file is there, then `total N` on stderr |
//! | `flood` | prints the pattern until it is ended |
//! | `say TEXT`, `sayerr TEXT`, `put TEXT` | a line, a line on stderr, text without line end |
//! | `hex DIGITS`, `hexerr DIGITS` | these bytes |
//! | `argv ANYTHING...` | prints each of the remaining arguments as `LENGTH:BYTES\n`; last step |
//! | `environ`, `fds`, `cwd`, `umask`, `mask` | prints the environment, own descriptors, directory, umask, signals |
//! | `stdin` | reads to the end, prints `stdin COUNT SUM`; `cat` echoes |
//! | `ignore SIG`, `default SIG` | sets the disposition |
//! | `on SIG [ ... ]` | what a later `sleep` does when the signal comes |
//! | `sleep` | waits for ever; `nap MS` for a time |
//! | `fork [ ... ]` | a child does that and exits 0; `reap` waits for all children |
//! | `orphan [ ... ]` | the same in a new session with no parent left; `setsid`, `setpgid` alone |
//! | `deep N [ ... ]` | N processes, each the child of the one before; the last one does that |
//! | `wide N` | N children that wait for ever; comes back when all are there |
//! | `pty [ ... ]`, `vfork [ ... ]` | a child on a terminal of its own; one for which its parent hangs until it ends |
//! | `traced [ ... ]` | a child that is traced by this process and stands still |
//! | `threadfork [ ... ]` | a thread forks a child that does that |
//! | `trace PID` | traces a process until that is gone; prints `tracing` |
//! | `hold FIFO` | keeps its writing end open, with all descendants |
//! | `name NAME`, `lower`, `closeall`, `subreaper` | another name, no cookie, no descriptor, orphans come here |
//! | `enter PATH`, `subgroup NAME`, `freeze` | another control group; one in its own; all of its own stands still |
//! | `renew N` | N chains of processes, each of which forks its successor and exits, for a minute at most |
//! | `close FD`, `null FD` | closes a descriptor, points it at the null device |
//! | `pid`, `pidfile PATH` | prints `pid N`; writes it to a file that appears whole |
//! | `await FIFO` | waits until somebody has opened the FIFO for writing |
//! | `touch PATH`, `lock PATH` | makes a file; takes a lock on it or exits 9 |
//! | `listen PORT` | listens on 127.0.0.1, prints `port N` |
//! | `exit CODE`, `kill SIG` | ends itself; `raise SIG` sends itself a signal and goes on |
//! | `become UID` | becomes that user for good; only a set-uid puppet or the superuser's may |
//! | `leavemain` | the main thread ends, another one does the rest |
//! | `exec PROGRAM ...` | becomes that program; last step |
//!
//! Every process it makes is ended by an alarm after five minutes, whatever becomes of the test.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::process::exit;
use std::time::{Duration, Instant};

#[expect(unreachable_pub, reason = "the suites share the file")]
#[cfg_attr(not(test), expect(dead_code, reason = "the suites compare with it"))]
mod pattern;

mod escapes;

/// Seconds after which every process ends itself.
const LIFE: u32 = 300;

#[derive(Clone, Debug)]
struct Step {
    verb: String,
    args: Vec<String>,
    block: Vec<Step>,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    // The Rust runtime ignores it; an ordinary program does not.
    disposition(libc::SIGPIPE, libc::SIG_DFL);
    live();
    let (script, rest) = parse(&args);
    assert!(rest.is_empty(), "a bracket too many before {rest:?}");
    Puppet::default().play(&script);
}

/// Reads steps up to a closing bracket or the end, and returns what follows.
fn parse(mut words: &[String]) -> (Vec<Step>, &[String]) {
    let mut script: Vec<Step> = Vec::new();
    while let Some((verb, rest)) = words.split_first() {
        words = rest;
        match verb.as_str() {
            "]" => return (script, words),
            "," => continue,
            _ => {}
        }
        let mut step = Step {
            verb: verb.clone(),
            args: Vec::new(),
            block: Vec::new(),
        };
        if verb == "argv" || verb == "exec" {
            step.args = std::mem::take(&mut words).to_vec();
        }
        while let Some((word, rest)) = words.split_first() {
            match word.as_str() {
                "," | "]" => break,
                "[" => (step.block, words) = parse(rest),
                _ => {
                    step.args.push(word.clone());
                    words = rest;
                }
            }
        }
        script.push(step);
    }
    (script, words)
}

#[derive(Default)]
struct Puppet {
    /// Offsets in the pattern, of stdout and stderr.
    at: [u64; 2],
    on: Vec<(i32, Vec<Step>)>,
    kept: Vec<Box<dyn std::any::Any + Send>>,
}

impl Puppet {
    fn play(&mut self, script: &[Step]) {
        for (n, step) in script.iter().enumerate() {
            if step.verb == "leavemain" {
                self.leave_main(script[n + 1..].to_vec());
            }
            self.step(step);
        }
    }

    fn step(&mut self, step: &Step) {
        let word = |n: usize| {
            step.args
                .get(n)
                .unwrap_or_else(|| panic!("{} needs more words", step.verb))
                .as_str()
        };
        let number = |n: usize| word(n).parse::<u64>().expect("a number");
        match step.verb.as_str() {
            "out" => self.print(1, number(0)),
            "err" => self.print(2, number(0)),
            "paced" => self.paced(number(0), number(1), number(2)),
            "until" => self.until(word(0), number(1), number(2)),
            "flood" => self.print(1, u64::MAX),
            "say" => write_all(1, format!("{}\n", step.args.join(" ")).as_bytes()),
            "sayerr" => write_all(2, format!("{}\n", step.args.join(" ")).as_bytes()),
            "put" => write_all(1, step.args.join(" ").as_bytes()),
            "hex" => write_all(1, &unhex(word(0))),
            "hexerr" => write_all(2, &unhex(word(0))),
            "argv" => step.args.iter().for_each(|a| {
                write_all(1, format!("{}:{a}\n", a.len()).as_bytes());
            }),
            "environ" | "fds" | "cwd" | "umask" | "mask" => tell(&step.verb),
            "stdin" => stdin(),
            "cat" => cat(),
            "ignore" => disposition(signal(word(0)), libc::SIG_IGN),
            "default" => disposition(signal(word(0)), libc::SIG_DFL),
            "on" => self.on(signal(word(0)), &step.block),
            "sleep" => self.sleep(),
            "nap" => std::thread::sleep(Duration::from_millis(number(0))),
            "fork" => self.fork(&step.block),
            "orphan" => self.orphan(&step.block),
            "deep" => self.deep(number(0), &step.block),
            "wide" => self.wide(number(0)),
            "pty" => self.child(escapes::forkpty(), &step.block),
            "vfork" => self.child(escapes::vfork(), &step.block),
            "traced" => self.traced(&step.block),
            "threadfork" => thread_fork(&step.block),
            "hold" => escapes::hold(word(0)),
            "trace" => escapes::trace(number(0) as i32),
            "name" => escapes::name(word(0)),
            "lower" => escapes::lower(),
            "closeall" => escapes::close_all(),
            "subreaper" => escapes::subreaper(),
            "enter" => escapes::enter(word(0)),
            "subgroup" => escapes::subgroup(word(0)),
            "freeze" => escapes::freeze(),
            "reap" => while wait_any() {},
            "setsid" => ok("setsid", unsafe_free::setsid()),
            "setpgid" => ok("setpgid", unsafe_free::setpgid()),
            "renew" => renew(number(0)),
            "close" => ok("close", unsafe_free::close(number(0) as i32)),
            "null" => null(number(0) as i32),
            "become" => ok("setuid", unsafe_free::setuid(number(0) as u32)),
            "pid" => write_all(1, format!("pid {}\n", std::process::id()).as_bytes()),
            "pidfile" => pidfile(word(0)),
            // Opening is the whole wait: a reader comes in when there is a writer.
            "await" => drop(fs::File::open(word(0)).expect("the FIFO can be opened")),
            "touch" => fs::write(word(0), "").expect("the file can be made"),
            "lock" => self.lock(word(0)),
            "listen" => self.listen(number(0) as u16),
            "exit" => exit(number(0) as i32),
            "kill" => die_of(signal(word(0))),
            "raise" => ok("raise", unsafe_free::raise(signal(word(0)))),
            "exec" => exec(&step.args),
            other => panic!("the puppet does not know {other}"),
        }
    }

    fn print(&mut self, fd: i32, mut n: u64) {
        let at = &mut self.at[fd as usize - 1];
        while n > 0 {
            let piece = n.min(64 * 1024);
            write_all(fd, &pattern::bytes(*at, piece as usize));
            *at += piece;
            n -= piece;
        }
    }

    fn paced(&mut self, n: u64, bytes: u64, ms: u64) {
        for _ in 0..n {
            self.print(1, bytes);
            std::thread::sleep(Duration::from_millis(ms));
        }
    }

    fn until(&mut self, path: &str, bytes: u64, ms: u64) {
        while !fs::exists(path).expect("its folder can be read") {
            self.paced(1, bytes, ms);
        }
        write_all(2, format!("total {}\n", self.at[0]).as_bytes());
    }

    fn on(&mut self, signal: i32, block: &[Step]) {
        unsafe_free::block(signal);
        self.on.push((signal, block.to_vec()));
    }

    fn sleep(&mut self) {
        loop {
            if self.on.is_empty() {
                unsafe_free::pause();
                continue;
            }
            let wanted: Vec<i32> = self.on.iter().map(|(s, _)| *s).collect();
            let came = unsafe_free::await_signal(&wanted);
            let found = self.on.iter().find(|(s, _)| *s == came).cloned();
            if let Some((_, block)) = found {
                self.play(&block);
            }
        }
    }

    fn deep(&mut self, n: u64, block: &[Step]) {
        for _ in 1..n {
            if unsafe_free::fork() != 0 {
                return;
            }
            live();
        }
        self.play(block);
    }

    fn wide(&mut self, n: u64) {
        for _ in 0..n {
            self.fork(&[Step {
                verb: "sleep".into(),
                args: Vec::new(),
                block: Vec::new(),
            }]);
        }
    }

    fn traced(&mut self, block: &[Step]) {
        if unsafe_free::fork() == 0 {
            live();
            escapes::trace_me();
            ok("raise", unsafe_free::raise(libc::SIGSTOP));
            self.play(block);
            exit(0);
        }
        // It stops before it does anything, and that is told here.
        ok("wait", unsafe_free::wait_stopped());
    }

    fn fork(&mut self, block: &[Step]) {
        let child = unsafe_free::fork() == 0;
        self.child(child, block);
    }

    fn child(&mut self, child: bool, block: &[Step]) {
        if child {
            live();
            for (signal, _) in std::mem::take(&mut self.on) {
                unsafe_free::unblock(signal);
            }
            self.play(block);
            exit(0);
        }
    }

    fn orphan(&mut self, block: &[Step]) {
        let middle = unsafe_free::fork();
        if middle == 0 {
            ok("setsid", unsafe_free::setsid());
            self.fork(block);
            exit(0);
        }
        unsafe_free::wait_for(middle);
    }

    fn lock(&mut self, path: &str) {
        let file = fs::File::create(path).expect("the lock file can be made");
        if file.try_lock().is_err() {
            write_all(1, b"lock held\n");
            exit(9);
        }
        self.kept.push(Box::new(file));
    }

    fn listen(&mut self, port: u16) {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("the port is free");
        let port = listener.local_addr().expect("it is bound").port();
        self.kept.push(Box::new(listener));
        write_all(1, format!("port {port}\n").as_bytes());
    }

    fn leave_main(&mut self, rest: Vec<Step>) -> ! {
        let mut other = Puppet {
            at: self.at,
            on: std::mem::take(&mut self.on),
            kept: std::mem::take(&mut self.kept),
        };
        std::thread::spawn(move || {
            other.play(&rest);
            exit(0);
        });
        unsafe_free::end_thread()
    }
}

/// Limits the life of this process; an alarm is not inherited by a fork.
fn live() {
    unsafe_free::alarm(LIFE);
}

fn ok(what: &str, result: i32) {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
}

fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match unsafe_free::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            // Nobody to tell.
            Err(_) => exit(74),
        }
    }
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2)
        .map(|n| u8::from_str_radix(&digits[2 * n..][..2], 16).expect("hexadecimal digits"))
        .collect()
}

fn tell(what: &str) {
    let text = match what {
        "environ" => fs::read_to_string("/proc/self/environ")
            .expect("the environment is text")
            .replace('\0', "\n"),
        "fds" => descriptors(),
        "cwd" => format!(
            "{}\n",
            std::env::current_dir().expect("it is there").display()
        ),
        field => {
            let wanted: &[&str] = match field {
                "umask" => &["Umask:"],
                _ => &["SigBlk:", "SigIgn:"],
            };
            let status = fs::read_to_string("/proc/self/status").expect("it is readable");
            let lines = status.lines();
            lines
                .filter(|l| wanted.iter().any(|w| l.starts_with(w)))
                .map(|l| format!("{}\n", l.replace('\t', " ")))
                .collect()
        }
    };
    write_all(1, text.as_bytes());
}

fn descriptors() -> String {
    let folder = fs::read_dir("/proc/self/fd").expect("it is readable");
    let mut all: Vec<(i32, String)> = folder
        .flatten()
        .filter_map(|e| {
            let n = e.file_name().to_str()?.parse().ok()?;
            Some((n, fs::read_link(e.path()).ok()?.display().to_string()))
        })
        // The one that reads the folder.
        .filter(|(_, to)| !to.starts_with("/proc/"))
        .collect();
    all.sort();
    all.iter().map(|(n, to)| format!("{n} {to}\n")).collect()
}

/// Reads standard input to its end and prints how much came and a sum in which the order counts (FNV-1a).
fn stdin() {
    let (mut count, mut sum) = (0_u64, 0xcbf2_9ce4_8422_2325_u64);
    each_piece(|piece| {
        count += piece.len() as u64;
        for byte in piece {
            sum = (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    });
    write_all(1, format!("stdin {count} {sum:016x}\n").as_bytes());
}

fn cat() {
    each_piece(|piece| write_all(1, piece));
}

fn each_piece(mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(&mut io::stdin().lock(), &mut buffer) {
            Ok(0) => return,
            Ok(n) => take(&buffer[..n]),
            Err(e) => panic!("stdin: {e}"),
        }
    }
}

fn wait_any() -> bool {
    unsafe_free::wait_for(-1) > 0
}

/// A process that ends and is replaced all the time: its number is stale as soon as it is known.
fn renew(chains: u64) {
    let until = Instant::now() + Duration::from_secs(60);
    for _ in 0..chains {
        if unsafe_free::fork() != 0 {
            continue;
        }
        loop {
            live();
            std::thread::sleep(Duration::from_micros(300));
            if Instant::now() > until || unsafe_free::fork() != 0 {
                exit(0);
            }
        }
    }
}

fn null(fd: i32) {
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/null")
        .expect("the null device is there");
    ok("dup2", unsafe_free::dup2(file.as_raw_fd(), fd));
}

fn pidfile(path: &str) {
    let half = format!("{path}.{}", std::process::id());
    fs::write(&half, std::process::id().to_string()).expect("the file can be made");
    fs::rename(half, path).expect("it can be renamed");
}

fn die_of(signal: i32) {
    disposition(signal, libc::SIG_DFL);
    unsafe_free::unblock(signal);
    ok("kill", unsafe_free::raise(signal));
    panic!("signal {signal} did not end the puppet");
}

/// The thread ends, its child does not.
fn thread_fork(block: &[Step]) {
    let block = block.to_vec();
    let forked = std::thread::spawn(move || {
        Puppet::default().fork(&block);
    });
    forked.join().expect("a thread can fork");
}

fn exec(words: &[String]) {
    use std::os::unix::process::CommandExt;
    let error = std::process::Command::new(&words[0])
        .args(&words[1..])
        .exec();
    panic!("{}: {error}", words[0]);
}

fn disposition(signal: i32, how: libc::sighandler_t) {
    unsafe_free::disposition(signal, how);
}

fn signal(name: &str) -> i32 {
    match name.trim_start_matches("SIG") {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "ABRT" => libc::SIGABRT,
        "KILL" => libc::SIGKILL,
        "USR1" => libc::SIGUSR1,
        "SEGV" => libc::SIGSEGV,
        "USR2" => libc::SIGUSR2,
        "PIPE" => libc::SIGPIPE,
        "TERM" => libc::SIGTERM,
        "STOP" => libc::SIGSTOP,
        "CONT" => libc::SIGCONT,
        other => panic!("the puppet does not know the signal {other}"),
    }
}

/// System calls without memory of ours in them, so that the rest of the file needs none.
mod unsafe_free {
    use super::io;

    macro_rules! plain {
        ($($name:ident($($arg:ident: $kind:ty),*) -> $result:ty = $call:expr;)*) => {
            $(pub(crate) fn $name($($arg: $kind),*) -> $result {
                // SAFETY: the call takes numbers only and touches no memory of this process. The puppet has one
                // thread, or its main thread has ended, so that a forked child finds no lock held.
                unsafe { $call }
            })*
        };
    }

    plain! {
        fork() -> i32 = libc::fork();
        setsid() -> i32 = libc::setsid();
        setuid(uid: u32) -> i32 = libc::setuid(uid);
        setpgid() -> i32 = libc::setpgid(0, 0);
        close(fd: i32) -> i32 = libc::close(fd);
        dup2(from: i32, to: i32) -> i32 = libc::dup2(from, to);
        pause() -> i32 = libc::pause();
        alarm(seconds: u32) -> u32 = libc::alarm(seconds);
        raise(signal: i32) -> i32 = libc::kill(libc::getpid(), signal);
        disposition(signal: i32, how: libc::sighandler_t) -> usize = libc::signal(signal, how);
        wait_stopped() -> i32 = libc::waitpid(-1, std::ptr::null_mut(), libc::WUNTRACED);
        wait_for(pid: i32) -> i32 = libc::waitpid(pid, std::ptr::null_mut(), 0);
    }

    pub(crate) fn write(fd: i32, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the slice is valid for its whole length.
        let n = unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) };
        usize::try_from(n).map_err(|_| io::Error::last_os_error())
    }

    fn set_of(signals: &[i32]) -> libc::sigset_t {
        // SAFETY: an all-zero set is a valid value, and it is a local of this function.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in signals {
                libc::sigaddset(&raw mut set, *signal);
            }
            set
        }
    }

    fn mask(how: i32, signal: i32) {
        let set = set_of(&[signal]);
        // SAFETY: the set is valid, and the old one is not asked for.
        unsafe { libc::sigprocmask(how, &raw const set, std::ptr::null_mut()) };
    }

    pub(crate) fn block(signal: i32) {
        mask(libc::SIG_BLOCK, signal);
    }

    pub(crate) fn unblock(signal: i32) {
        mask(libc::SIG_UNBLOCK, signal);
    }

    pub(crate) fn await_signal(signals: &[i32]) -> i32 {
        let set = set_of(signals);
        let mut came = 0;
        // SAFETY: both pointers are to locals.
        unsafe { libc::sigwait(&raw const set, &raw mut came) };
        came
    }

    /// Ends this thread alone, without the unwinding that the library's call would do.
    pub(crate) fn end_thread() -> ! {
        // SAFETY: no memory is touched; what this thread owns stays where it is for the others.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
        unreachable!("the thread has ended")
    }
}
