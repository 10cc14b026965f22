//! Readers beside a flooding writer and a spill writer, without a lock between them: whatever they are given is true.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use ostler_supervisor::log::{Arena, Budget, Filter, Log, Shape, SpillPolicy};

const TOTAL: u64 = 600_000;
/// Tags overflow before bytes do, so both tables are overtaken.
const SHAPE: Shape = Shape {
    ring: 2048,
    runs: 32,
};

/// Stream and byte are functions of the offset.
fn stream_at(offset: u64) -> u8 {
    (offset / 48 % 2) as u8
}

fn byte_at(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

fn flood(log: &Log) {
    let mut at = 0;
    while at < TOTAL {
        let bytes: Vec<u8> = (at..at + 48).map(byte_at).collect();
        let mut done = 0;
        while done < bytes.len() {
            done += log.append(stream_at(at), &bytes[done..]);
            if done < bytes.len() {
                std::thread::yield_now();
            }
        }
        at += 48;
    }
}

/// Follows the log as fast or as slowly as it likes and checks every byte; returns bytes seen and bytes lost.
fn follow(log: &Log, page: usize, filter: Filter, done: &AtomicBool) -> (u64, u64) {
    let (mut at, mut seen, mut lost) = (0, 0, 0);
    loop {
        let over = done.load(Ordering::Acquire);
        let slice = log.read(at, page, filter);
        assert_eq!(slice.from, at + slice.lost);
        let mut wanted = (slice.from..slice.next).filter(|o| match filter {
            Filter::All => true,
            Filter::Stdout => stream_at(*o) == 0,
            Filter::Stderr => stream_at(*o) == 1,
        });
        let streams = slice
            .runs
            .iter()
            .flat_map(|(s, n)| std::iter::repeat_n(*s, *n as usize));
        for (byte, stream) in slice.bytes.iter().zip(streams) {
            let offset = wanted.next().expect("no more bytes than offsets");
            assert_eq!(
                (*byte, stream),
                (byte_at(offset), stream_at(offset)),
                "offset {offset}"
            );
        }
        assert_eq!(
            wanted.next(),
            None,
            "a byte was left out without being counted"
        );
        seen += slice.bytes.len() as u64;
        lost += slice.lost;
        at = slice.next;
        if over && at == log.end() {
            return (seen, lost);
        }
    }
}

fn race(policy: SpillPolicy) -> Vec<(u64, u64)> {
    let (rings, headers) = Arena::create_shaped(SHAPE, 1).expect("memfds");
    let log = Log::new(
        Arena::map_shaped(SHAPE, rings, headers).expect("mapping"),
        0,
        1,
        policy,
    );
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = [
            (100, Filter::All),
            (1900, Filter::All),
            (64, Filter::Stderr),
            (5000, Filter::All),
        ]
        .into_iter()
        .map(|(page, filter)| {
            let (log, done) = (&log, &done);
            scope.spawn(move || follow(log, page, filter, done))
        })
        .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                log.spill_pending().expect("the disk takes it");
                std::thread::yield_now();
            }
        });
        flood(&log);
        done.store(true, Ordering::Release);
        readers
            .into_iter()
            .map(|r| r.join().expect("reader"))
            .collect()
    })
}

fn to(path: PathBuf, cap: u64) -> SpillPolicy {
    let budget = Budget::new(u64::MAX / 2, None);
    SpillPolicy::To { path, cap, budget }
}

#[test]
fn readers_that_are_overtaken_get_true_bytes_and_a_true_count() {
    for (seen, lost) in race(SpillPolicy::Off) {
        assert!(seen > 0 && seen + lost <= TOTAL + 48);
    }
}

#[test]
fn readers_of_a_spilling_log_get_everything() {
    let folder = tempfile::tempdir().expect("folder");
    let end = TOTAL.next_multiple_of(48);
    let all = race(to(folder.path().join("session/proc.log"), u64::MAX / 2));
    assert_eq!(all.iter().map(|r| r.1).collect::<Vec<_>>(), [0; 4]);
    assert_eq!([all[0].0, all[1].0, all[3].0], [end; 3]);
}

#[test]
fn readers_of_a_wrapping_spill_get_true_bytes_and_a_true_count() {
    let folder = tempfile::tempdir().expect("folder");
    for (seen, lost) in race(to(folder.path().join("session/proc.log"), 60_000)) {
        assert!(seen > 0 && seen + lost <= TOTAL + 48);
    }
    let size = folder
        .path()
        .join("session/proc.log")
        .metadata()
        .expect("file")
        .len();
    assert!(size <= 60_000, "{size}");
}
