//! The house begins and ends whole: lock, socket, starter.

use crate::stage::{LIMIT, Stage, kill, request, shell, state_of, until, wait_readable};
use ostler_supervisor::keeper::wire::{self, Frame, Op};
use ostler_tests::process::Process;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use tempfile::TempDir;

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
