//! What the keeper holds, and what it does when it may hold no more.

use crate::stage::{Stage, descriptors, failure, limit_child, request, shell};
use ostler_supervisor::keeper::wire::{Op, Stdin, Step};
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

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
