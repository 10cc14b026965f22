//! What tells members of one house from those of another.

use crate::stage::{Stage, kill, limit_child, shell};
use ostler_supervisor::keeper::wire::Op;
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

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
