//! An upgrade as the keeper sees it: the next supervisor waits before this one leaves, and never are there two.

use crate::stage::{Part, Stage, kill, shell, until};
use ostler_supervisor::keeper::wire::{self, Frame, Op, Welcome};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Another image: the same program under another name.
fn image(stage: &Stage) -> PathBuf {
    let path = stage.path("next");
    std::fs::copy(env!("CARGO_BIN_EXE_stagehand"), &path).unwrap();
    path
}

fn ask(part: &Part, image: &PathBuf) {
    let file = File::open(image).unwrap();
    let leave = Frame::new(Op::Leave, 0, [wire::LEAVE_UPGRADE, 0, 0, 0, 0]);
    part.put(leave, &[], &[file.as_fd()]);
}

/// The one in standby, which has not said that it waits.
fn standby(stage: &Stage) -> Part {
    Part::take(&stage.control)
}

fn waits(part: &Part) {
    part.send(Op::Standby, 0, 0);
}

/// Asks for an upgrade, up to where the one in standby waits and the old one knows it.
fn ready(stage: &mut Stage, image: &PathBuf) -> Part {
    ask(stage.part(), image);
    let next = standby(stage);
    waits(&next);
    assert_eq!(told(stage.part()).0, 0);
    next
}

fn told(part: &mut Part) -> (u64, String) {
    let message = part.expect(Op::Standby, 0);
    let why = String::from_utf8(message.payload).unwrap();
    (message.frame.args[0], why)
}

fn exit(part: &mut Part) {
    use std::io::Write;
    part.control.write_all(&[0]).unwrap();
}

fn runs(part: &Part) -> PathBuf {
    std::fs::read_link(format!("/proc/{}/exe", part.pid)).unwrap()
}

#[test]
fn the_next_one_is_told_nothing_before_the_old_one_is_gone() {
    let mut stage = Stage::new();
    let image = image(&stage);
    let part = stage.part();
    let job = part.start(1, &shell("read x; exit 5")).pid;
    ask(part, &image);
    let mut next = standby(&stage);
    assert_eq!(runs(&next), image);
    waits(&next);
    let part = stage.part();
    assert_eq!(told(part), (0, String::new()));
    // The old one goes on until it goes.
    assert_eq!(part.fetch().len(), 1);
    assert!(
        next.inbox.receive(next.wire.as_fd()).is_err(),
        "nothing has come"
    );
    exit(part);
    let hello = next.expect(Op::Hello, 0);
    assert_eq!(hello.frame.args[..2], [1, 2], "attempt 1, an upgrade");
    assert_eq!(Welcome::decode(&hello.payload).unwrap().taken_back, b"");
    next.send(Op::Ready, 0, 0);
    let rows = next.fetch();
    assert_eq!(rows[0].1.facts.started.unwrap().pid, job);
    // Its image is the one that a crash brings back, also when the file is another one by then.
    std::fs::remove_file(&image).unwrap();
    kill(next.pid, libc::SIGKILL);
    let part = stage.succeed();
    assert!(runs(part).to_string_lossy().ends_with("next (deleted)"));
    assert_eq!(part.expect(Op::Hello, 0).frame.args[..2], [2, 1]);
}

#[test]
fn an_old_one_that_does_not_leave_is_killed_after_a_second() {
    let mut stage = Stage::new();
    let image = image(&stage);
    ask(stage.part(), &image);
    let mut next = standby(&stage);
    let begun = Instant::now();
    waits(&next);
    let old = stage.part.take().unwrap();
    kill(old.pid, libc::SIGSTOP);
    assert_eq!(next.expect(Op::Hello, 0).frame.args[..2], [1, 2]);
    assert!(begun.elapsed() >= Duration::from_millis(900));
    stage.part = Some(next);
}

#[test]
fn a_standby_that_dies_is_told_of_and_the_old_one_goes_on() {
    let mut stage = Stage::new();
    let image = image(&stage);
    for (signal, why) in [
        (libc::SIGKILL, "it was ended by signal 9"),
        (libc::SIGTERM, "it was ended by signal 15"),
    ] {
        ask(stage.part(), &image);
        kill(standby(&stage).pid, signal);
        assert_eq!(told(stage.part()), (1, why.to_owned()));
    }
    // Also after it has said that it waits: then it is only to be hoped that the old one has not left yet.
    let next = ready(&mut stage, &image);
    let part = stage.part();
    kill(next.pid, libc::SIGKILL);
    assert_eq!(told(part).0, 1);
    assert!(part.fetch().is_empty(), "it is served still");
}

#[test]
fn an_old_one_that_left_for_a_standby_that_died_comes_back() {
    let mut stage = Stage::new();
    let image = image(&stage);
    let next = ready(&mut stage, &image);
    let part = stage.part();
    kill(next.pid, libc::SIGKILL);
    assert_eq!(told(part).0, 1);
    exit(part);
    let part = stage.succeed();
    assert_ne!(runs(part), image);
    let hello = part.expect(Op::Hello, 0);
    let why = Welcome::decode(&hello.payload).unwrap().taken_back;
    assert_eq!(why, b"it was ended by signal 9");
}

#[test]
fn what_is_no_program_is_told_and_the_old_one_goes_on() {
    let mut stage = Stage::new();
    let path = stage.path("text");
    std::fs::write(&path, "no program").unwrap();
    let part = stage.part();
    ask(part, &path);
    let (said, why) = told(part);
    assert_eq!((said, why.as_str()), (1, "it cannot be executed here"));
    part.send(Op::Leave, 0, wire::LEAVE_UPGRADE);
    assert_eq!(told(part), (1, "its image did not arrive".to_owned()));
    assert!(part.fetch().is_empty());
}

#[test]
fn a_standby_that_is_late_is_ended() {
    let mut stage = Stage::new();
    let image = image(&stage);
    ask(stage.part(), &image);
    let next = standby(&stage);
    let begun = Instant::now();
    assert_eq!(
        told(stage.part()),
        (1, "it was not ready in time".to_owned())
    );
    assert!(begun.elapsed() >= Duration::from_millis(4500));
    until("it is gone", || crate::stage::state_of(next.pid).is_none());
}

#[test]
fn an_upgrade_that_is_called_off_leaves_the_old_one_alone() {
    let mut stage = Stage::new();
    let image = image(&stage);
    let next = ready(&mut stage, &image);
    let part = stage.part();
    part.send(Op::Leave, 0, wire::LEAVE_STAY);
    until("it is gone", || crate::stage::state_of(next.pid).is_none());
    // Well past the second after which it would have been killed.
    assert!(!wait_readable_for(part, Duration::from_millis(1500)));
    assert!(part.fetch().is_empty());
    // An end in order is still one.
    assert!(stage.leave(wire::LEAVE_DISPOSE).success());
}

/// Whether something comes within that time.
fn wait_readable_for(part: &Part, limit: Duration) -> bool {
    use std::os::fd::AsRawFd;
    let mut asked = libc::pollfd {
        fd: part.wire.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry that outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, limit.as_millis() as i32) == 1 }
}

/// Upgrades, up to the HELLO of the next one.
fn upgraded(stage: &mut Stage, image: &PathBuf) {
    let mut next = ready(stage, image);
    exit(stage.part());
    next.expect(Op::Hello, 0);
    stage.part = Some(next);
}

#[test]
fn a_new_one_that_never_served_is_given_up_for_the_one_before() {
    let mut stage = Stage::new();
    let image = image(&stage);
    for refuse in [false, true] {
        upgraded(&mut stage, &image);
        let part = stage.part();
        if refuse {
            let refuse = Frame::new(Op::Leave, 0, [wire::LEAVE_REFUSE, 0, 0, 0, 0]);
            part.put(refuse, b"it does not like this", &[]);
            exit(part);
        } else {
            kill(part.pid, libc::SIGKILL);
        }
        let part = stage.succeed();
        assert_ne!(runs(part), image);
        let hello = part.expect(Op::Hello, 0);
        assert_eq!(hello.frame.args[..2], [1, 1]);
        let why = Welcome::decode(&hello.payload).unwrap().taken_back;
        let wanted = if refuse {
            "it does not like this"
        } else {
            "the supervisor was ended by signal 9"
        };
        assert_eq!(String::from_utf8(why).unwrap(), wanted);
        part.send(Op::Ready, 0, 0);
        part.send(Op::Steady, 0, 0);
        part.all_until_pong(1);
    }
    let log = std::fs::read_to_string(stage.path("daemon.log")).unwrap();
    assert!(log.contains("the upgrade is taken back: it does not like this"));
    // Then it is a house like any other: there is nobody to go back to.
    let part = stage.part();
    kill(part.pid, libc::SIGKILL);
    assert_eq!(stage.succeed().expect(Op::Hello, 0).frame.args[0], 2);
}

#[test]
fn a_new_one_that_hangs_before_it_serves_is_given_up() {
    let mut stage = Stage::new();
    let image = image(&stage);
    upgraded(&mut stage, &image);
    let begun = Instant::now();
    let part = stage.succeed();
    assert_ne!(runs(part), image);
    assert!(begun.elapsed() >= Duration::from_secs(9));
    let hello = part.expect(Op::Hello, 0);
    assert_eq!(hello.frame.args[..2], [1, 1]);
}

#[test]
fn a_new_one_that_keeps_dying_is_given_up_before_the_house_is() {
    let mut stage = Stage::new();
    let image = image(&stage);
    upgraded(&mut stage, &image);
    stage.part().send(Op::Ready, 0, 0);
    for attempt in 2..=6 {
        kill(stage.part().pid, libc::SIGKILL);
        let part = stage.succeed();
        assert_eq!(runs(part), image);
        assert_eq!(part.expect(Op::Hello, 0).frame.args[0], attempt);
    }
    kill(stage.part().pid, libc::SIGKILL);
    let part = stage.succeed();
    assert_ne!(runs(part), image);
    let hello = part.expect(Op::Hello, 0);
    assert_eq!(hello.frame.args[0], 1);
    let why = Welcome::decode(&hello.payload).unwrap().taken_back;
    assert!(
        String::from_utf8(why)
            .unwrap()
            .ends_with("6 times in a row")
    );
}

/// TERM to the keeper while the old one is on its way out: the next one hears of it.
#[test]
fn an_end_that_was_asked_for_meanwhile_is_not_forgotten() {
    let mut stage = Stage::new();
    let image = image(&stage);
    let mut next = ready(&mut stage, &image);
    let keeper = stage.keeper_pid();
    let part = stage.part();
    kill(keeper, libc::SIGTERM);
    part.expect(Op::Term, 0);
    exit(part);
    next.expect(Op::Hello, 0);
    let number = next.expect(Op::Term, 0).frame.args[0];
    assert_eq!(number, libc::SIGTERM as u64);
    stage.part = Some(next);
    assert!(stage.leave(wire::LEAVE_DISPOSE).success());
}
