//! Whatever a supervisor sends, the keeper goes on: it answers, or it refuses by name, and its jobs live.

use crate::stage::{Stage, request, shell, state_of};
use ostler_supervisor::keeper::wire::{self, Frame, Op, Stdin};
use ostler_tests::chance::Chance;
use ostler_tests::rounds;
use std::fs::File;
use std::os::fd::AsFd;

#[test]
fn no_frame_ends_the_keeper_or_a_job_that_it_does_not_name() {
    let seed = rounds("OSTLER_FUZZ_SEED", 1) as u64;
    let mut chance = Chance::of(seed);
    let mut stage = Stage::new();
    let file = File::create(stage.path("file")).unwrap();
    let part = stage.part();
    // Above every number that is drawn below.
    let (sentinel, above) = (1000, 50);
    let living = part.start(sentinel, &request(&["sleep", "1000"]));
    let ops = [
        Op::Fork,
        Op::Fork,
        Op::Fork,
        Op::Reap,
        Op::Reap,
        Op::Close,
        Op::Hold,
        Op::Forget,
        Op::Forget,
        Op::Fetch,
        Op::Steady,
        Op::Sweep,
        Op::Ping,
        Op::Pong,
        Op::Started,
        Op::Error,
        Op::Term,
        Op::Hello,
    ];
    for round in 0..rounds("OSTLER_FUZZ", 600) as u32 {
        let job = chance.below(above) as u64;
        let mut frame = Frame::new(*chance.pick(&ops), job, [0; 5]).sequence(round);
        for arg in &mut frame.args {
            *arg = *chance.pick(&[0, 0, 1, 2, 3, 7, u64::MAX, 1 << 32, wire::NONE]);
        }
        if chance.below(10) == 0 {
            frame.op = 26 + chance.below(60_000) as u16;
        }
        frame.flags = *chance.pick(&[0, 0, 0, 1, 2, wire::PAYLOAD_FILE, u32::MAX]);
        let mut payload = payload(&mut chance);
        for _ in 0..chance.below(3) {
            if !payload.is_empty() {
                let at = chance.below(payload.len());
                payload[at] = chance.below(256) as u8;
            }
        }
        let files = vec![file.as_fd(); chance.below(3)];
        eprintln!("{round}: {frame:?} {} files {}", payload.len(), files.len());
        part.put(frame, &payload, &files);
        // Every one of them is taken before the next: a full wire is no finding.
        part.send(Op::Ping, 0, 0);
        part.expect(Op::Pong, 0);
        part.seen.clear();
        let state = state_of(living.pid);
        let lives = state.is_some_and(|s| s != 'Z');
        assert!(lives, "{state:?}, OSTLER_FUZZ_SEED={seed}, round {round}");
    }
    // It still makes a job, tells of its end and forgets it.
    assert_eq!(part.output(sentinel + 1, &shell("echo fine")), "fine\n");
}

fn payload(chance: &mut Chance) -> Vec<u8> {
    let mut asked = request(&["true"]);
    match chance.below(6) {
        0 => return Vec::new(),
        1 => {
            return (0..chance.below(300))
                .map(|_| chance.below(256) as u8)
                .collect();
        }
        2 => asked.stdin = Stdin::Pipe,
        3 => asked.record = vec![b'r'; chance.below(100_000)],
        4 => asked = shell("exit 3"),
        _ => {}
    }
    asked.encode()
}
