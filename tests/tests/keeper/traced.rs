//! Processes that a debugger holds.

use crate::stage::{Stage, kill, shell, state_of, until};
use ostler_supervisor::keeper::wire::{self, Op, Stdin};
use std::fs::File;
use std::io::{self, Write};

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
