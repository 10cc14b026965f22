//! Fork loops, and the life of a first process.

use crate::stage::{LIMIT, Stage, shell, until, wait_readable};
use ostler_supervisor::keeper::wire::{self, Op};
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::Instant;
use tempfile::TempDir;

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
