//! Orders that come twice, broken or at the wrong time.

use crate::stage::{Stage, failure, request, shell};
use ostler_supervisor::keeper::wire::{self, Frame, Op, Stdin, Step};
use std::fs::File;
use std::os::fd::AsFd;
use tempfile::TempDir;

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
