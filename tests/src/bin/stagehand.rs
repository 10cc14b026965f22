//! Plays the parts around a keeper under test.
//!
//! `stagehand keep SOCKET LOCK STATE INSTANCE CONTROL [background] [deaf]` is the keeper,
//! with stagehand as its supervisor's image. As the supervisor it hands the wire to the
//! test over the socket CONTROL, so that the test itself speaks, and lives until the test
//! says with which code to exit. `deaf` ignores some signals before the keeper begins.

use ostler_supervisor::keeper::{self, Options, wire};
use ostler_supervisor::tree::Rung;
use std::ffi::OsString;
use std::io::Read;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    match args.get(1).and_then(|word| word.to_str()) {
        Some("keep") => keep(&args),
        Some("supervise") => supervise(&args[2]),
        _ => ExitCode::from(64),
    }
}

fn keep(args: &[OsString]) -> ExitCode {
    let has = |word: &str| args.iter().any(|arg| arg == word);
    if has("deaf") {
        for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGUSR2, 40] {
            // SAFETY: plain calls in a process of one thread.
            unsafe {
                libc::signal(signal, libc::SIG_IGN);
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGALRM);
                libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            }
        }
    }
    let instance = args[5].to_str().and_then(|word| word.parse().ok());
    keeper::run(Options {
        socket: args[2].clone().into(),
        house_lock: args[3].clone().into(),
        state_dir: args[4].clone().into(),
        instance: instance.expect("a number"),
        rung: Rung::allowed().expect("a rung"),
        supervise: vec!["stagehand".into(), "supervise".into(), args[6].clone()],
        image: None,
        foreground: !has("background"),
        build: "of the stage".into(),
    })
}

fn supervise(control: &OsString) -> ExitCode {
    // SAFETY: the keeper puts the wire there, and nobody else in this process uses it.
    let line = unsafe { OwnedFd::from_raw_fd(3) };
    let Ok(mut control) = UnixStream::connect(control) else {
        return ExitCode::from(70);
    };
    let pid = std::process::id().into();
    let frame = wire::Frame::new(wire::Op::Hello, pid, [0; 5]);
    wire::send(control.as_fd(), frame, &[], &[line.as_fd()]).expect("room in a new socket");
    drop(line);
    let mut code = [0];
    match control.read(&mut code) {
        Ok(1) => ExitCode::from(code[0]),
        _ => ExitCode::from(71),
    }
}
