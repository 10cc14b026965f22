//! A supervisor that dies, hangs or does not read is replaced, and gets everything back.

use crate::stage::{Part, Stage, children_in_state, kill, request, shell, state_of, until};
use ostler_supervisor::keeper::wire::{self, Exec, Frame, Op, Stdin, Welcome};
use ostler_supervisor::log::Arena;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

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
