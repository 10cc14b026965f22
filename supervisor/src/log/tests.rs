//! One test a promise of the log; the numbers in the comments are those of the fault collections they come from.

use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::arena::{Arena, BlockWord, Shape, Word};
use super::scratch::{self, Pool, ScratchPair, Step};
use super::{Budget, Filter, Log, SpillPolicy};

const SHAPE: Shape = Shape {
    ring: 4096,
    runs: 64,
};
const JOB: u64 = 5;

fn arena() -> Arc<Arena> {
    let (rings, headers) = Arena::create_shaped(SHAPE, 2).expect("memfds");
    Arena::map_shaped(SHAPE, rings, headers).expect("mapping")
}

fn ring_only() -> Arc<Log> {
    Log::new(arena(), 0, JOB, SpillPolicy::Off)
}

fn to(path: PathBuf, cap: u64) -> SpillPolicy {
    let budget = Budget::new(u64::MAX / 2, None);
    SpillPolicy::To { path, cap, budget }
}

fn spilling(path: &Path, cap: u64) -> Arc<Log> {
    Log::new(arena(), 0, JOB, to(path.to_path_buf(), cap))
}

/// As a pump does: what is refused waits for the spill writer, whose errors are its own.
fn append(log: &Log, stream: u8, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = log.append(stream, bytes);
        bytes = &bytes[n..];
        if log.wants_spill() {
            log.spill_pending().ok();
        }
    }
}

fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + i / 251) as u8).collect()
}

fn whole(log: &Log) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < log.end() {
        let slice = log.read(at, 8192, Filter::All);
        assert_eq!(slice.lost, 0, "lost at {at}");
        bytes.extend(slice.bytes);
        at = slice.next;
    }
    bytes
}

fn text(log: &Log, from: u64, max: usize) -> super::Text {
    log.text(from, max, Filter::All, false)
}

// B4, B15
#[test]
fn output_of_exactly_one_ring_makes_no_file_and_loses_nothing() {
    let folder = tempfile::tempdir().expect("folder");
    let log = spilling(&folder.path().join("session/proc.log"), 1 << 20);
    append(&log, 0, &pattern(4096));
    log.mark_exit();
    log.seal();
    assert!(!log.wants_spill());
    log.spill_pending().expect("nothing to do");
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    assert_eq!((log.lost(), log.spill_path()), (0, None));
    assert_eq!(whole(&log), pattern(4096));
}

// B5, B16
#[test]
fn one_byte_more_than_a_ring_spills_everything_from_the_first_byte() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    let log = spilling(&path, 1 << 20);
    append(&log, 0, &pattern(4097));
    log.seal();
    assert!(log.wants_spill(), "the last byte is to be written as well");
    log.spill_pending().expect("written");
    assert_eq!(std::fs::read(&path).expect("file"), pattern(4097));
    assert_eq!((log.lost(), log.spill_path()), (0, Some(path.as_path())));
    assert_eq!(whole(&log), pattern(4097));
}

// B5 without a spill, B7, 143
#[test]
fn a_cursor_behind_the_ring_gets_the_oldest_byte_and_the_number_of_those_missed() {
    let log = ring_only();
    append(&log, 0, &pattern(100_000));
    let slice = log.read(0, 10, Filter::All);
    assert_eq!(
        (slice.from, slice.lost, slice.next),
        (95_904, 95_904, 95_914)
    );
    assert_eq!(slice.bytes, pattern(100_000)[95_904..95_914]);
    assert_eq!(log.lost(), 95_904);
    let slice = log.read(95_000, 10, Filter::All);
    assert_eq!((slice.from, slice.lost), (95_904, 904));
}

// 143
#[test]
fn a_cursor_behind_the_ring_is_served_from_the_spill() {
    let folder = tempfile::tempdir().expect("folder");
    let log = spilling(&folder.path().join("session/proc.log"), 1 << 20);
    append(&log, 0, &pattern(100_000));
    assert_eq!(whole(&log), pattern(100_000));
}

// B8
#[test]
fn a_cursor_beyond_the_end_answers_nothing_and_the_true_end() {
    let log = ring_only();
    append(&log, 0, b"abc");
    for from in [3, 4, u64::MAX] {
        let slice = log.read(from, 100, Filter::All);
        assert_eq!(
            (
                slice.from,
                slice.next,
                slice.end,
                slice.lost,
                slice.bytes.len()
            ),
            (3, 3, 3, 0, 0)
        );
        let text = text(&log, from, 100);
        assert_eq!((text.next, text.lost, text.text.as_str()), (3, 0, ""));
    }
}

// B9
#[test]
fn pages_keep_their_bound_and_the_cursor_yields_every_byte_once() {
    let (rings, headers) = Arena::create_shaped(Shape::DEFAULT, 1).expect("memfds");
    let arena = Arena::map(rings, headers).expect("mapping");
    let log = Log::new(arena, 0, JOB, SpillPolicy::Off);
    append(&log, 0, &pattern(100 * 1024));
    let (mut at, mut all) = (0, Vec::new());
    while at < log.end() {
        let slice = log.read(at, 8192, Filter::All);
        assert!(slice.bytes.len() <= 8192 && slice.next > at);
        all.extend(slice.bytes);
        at = slice.next;
    }
    assert_eq!(all, pattern(100 * 1024));
}

// B13
#[test]
fn a_limit_below_one_character_still_yields_whole_characters() {
    let log = ring_only();
    append(&log, 0, "😀—é!".as_bytes());
    for max in [0, 1, 2, 3] {
        let (mut at, mut pages) = (0, Vec::new());
        while at < log.end() {
            let page = text(&log, at, max);
            assert!(page.next > at);
            pages.push(page.text);
            at = page.next;
        }
        assert_eq!(pages.concat(), "😀—é!", "max {max}");
        assert!(
            max > 1 || pages == ["😀", "—", "é", "!"],
            "max {max}: {pages:?}"
        );
    }
}

// B14
#[test]
fn invalid_bytes_are_replaced_and_counted_and_still_there_as_bytes() {
    let log = ring_only();
    append(&log, 0, b"a\xffb\xe2\x80");
    let page = text(&log, 0, 100);
    assert_eq!(
        (page.text.as_str(), page.next, page.replaced),
        ("a\u{fffd}b", 3, 1)
    );
    let at_exit = log.text(0, 100, Filter::All, true);
    assert_eq!(
        (at_exit.text.as_str(), at_exit.next, at_exit.replaced),
        ("a\u{fffd}b\u{fffd}", 5, 3)
    );
    log.seal();
    assert_eq!(text(&log, 0, 100).text, "a\u{fffd}b\u{fffd}");
    assert_eq!(log.read(0, 100, Filter::All).bytes, b"a\xffb\xe2\x80");
}

// B17
#[test]
fn folder_and_file_of_the_spill_are_closed_to_others() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    std::fs::create_dir(folder.path().join("session")).expect("folder");
    std::fs::set_permissions(
        folder.path().join("session"),
        PermissionsExt::from_mode(0o755),
    )
    .expect("mode");
    let log = spilling(&path, 1 << 20);
    append(&log, 0, &pattern(5000));
    append(&log, 1, &pattern(5000));
    log.spill_pending().expect("written");
    let mode = |path: &Path| path.metadata().expect("made").mode() & 0o7777;
    assert_eq!(mode(path.parent().expect("parent")), 0o700);
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(&path.with_extension("runs")), 0o600);
}

// B17
#[test]
fn a_name_or_folder_that_somebody_planted_is_not_written_to() {
    let folder = tempfile::tempdir().expect("folder");
    let victim = folder.path().join("victim");
    std::fs::write(&victim, b"precious").expect("file");
    std::fs::create_dir(folder.path().join("session")).expect("folder");
    symlink(&victim, folder.path().join("session/proc.log")).expect("link");
    symlink(folder.path().join("session"), folder.path().join("linked")).expect("link");
    for path in ["session/proc.log", "linked/other.log"] {
        let log = spilling(&folder.path().join(path), 1 << 20);
        append(&log, 0, &pattern(10_000));
        assert!(log.spill_failure().is_some(), "{path}");
        assert_eq!(log.lost(), 10_000 - 4096);
    }
    assert_eq!(std::fs::read(&victim).expect("file"), b"precious");
    assert_eq!(
        std::fs::read_dir(folder.path().join("session"))
            .expect("folder")
            .count(),
        1
    );
}

// B19, 059
#[test]
fn a_place_that_cannot_be_written_costs_the_full_text_and_nothing_else() {
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("session"), b"a file, not a folder").expect("file");
    let log = spilling(&folder.path().join("session/proc.log"), 1 << 20);
    append(&log, 0, &pattern(10_000));
    assert!(log.spill_failure().is_some());
    assert!(!log.wants_spill());
    assert_eq!(log.spill_path(), None);
    let slice = log.read(0, 100, Filter::All);
    assert_eq!((slice.from, slice.lost), (5904, 5904));
}

// 059
#[test]
fn what_was_spilled_before_the_disk_failed_stays_readable() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    let arena = arena();
    let log = Log::new(Arc::clone(&arena), 0, JOB, to(path.clone(), 1 << 20));
    append(&log, 0, &pattern(6000));
    log.spill_pending().expect("written");
    drop(log);
    // A descriptor that can be read only: every write fails from here on.
    let read_only = std::fs::File::open(&path).expect("file");
    let log = Log::restore(arena, 0, JOB, Some(read_only.into()), to(path, 1 << 20));
    append(&log, 0, &pattern(16_000)[6000..]);
    assert!(log.spill_failure().is_some());
    let slice = log.read(0, 10_000, Filter::All);
    assert_eq!(slice.bytes, pattern(16_000)[..6000]);
    let slice = log.read(6000, 10_000, Filter::All);
    assert_eq!(
        (slice.from, slice.lost),
        (16_000 - 4096, 16_000 - 4096 - 6000)
    );
    assert_eq!(log.lost(), slice.lost);
}

// 053
#[test]
fn endless_output_keeps_head_and_tail_within_its_cap() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    let log = spilling(&path, 20_000);
    append(&log, 0, &pattern(300_000));
    log.seal();
    log.spill_pending().expect("written");
    assert_eq!(path.metadata().expect("file").len(), 20_000);
    assert_eq!(log.lost(), 280_000);
    let head = log.read(0, 1 << 20, Filter::All);
    assert_eq!(head.bytes, pattern(10_000));
    let tail = log.read(head.next, 1 << 20, Filter::All);
    assert_eq!((tail.lost, tail.from), (280_000, 290_000));
    assert_eq!(tail.bytes, pattern(300_000)[290_000..]);
}

#[test]
fn a_budget_that_is_used_up_by_another_job_leaves_the_ring_alone() {
    let folder = tempfile::tempdir().expect("folder");
    let budget = Budget::new(1000, None);
    assert!(budget.reserve(1000));
    let path = folder.path().join("session/proc.log");
    let (cap, shared) = (1 << 20, Arc::clone(&budget));
    let log = Log::new(
        arena(),
        0,
        JOB,
        SpillPolicy::To {
            path,
            cap,
            budget: shared,
        },
    );
    append(&log, 0, &pattern(10_000));
    assert_eq!(
        log.spill_failure().as_deref(),
        Some("no room for a spill file is left")
    );
    assert_eq!(std::fs::read_dir(folder.path()).expect("folder").count(), 0);
    assert_eq!(log.lost(), 10_000 - 4096);
}

// 044
#[test]
fn a_character_that_arrives_in_two_parts_is_never_shown_in_two() {
    let log = ring_only();
    append(&log, 0, b"x\xe2");
    let first = text(&log, 0, 100);
    assert_eq!((first.text.as_str(), first.next), ("x", 1));
    assert_eq!(text(&log, 1, 100).text, "");
    append(&log, 0, b"\x80\x94y");
    let second = text(&log, first.next, 100);
    assert_eq!((second.text.as_str(), second.replaced), ("—y", 0));
}

// 044, with the other stream in between
#[test]
fn a_character_interrupted_by_the_other_stream_is_whole() {
    let log = ring_only();
    append(&log, 0, b"\xe2\x80");
    append(&log, 1, b"oops");
    append(&log, 0, b"\x94");
    let page = text(&log, 0, 100);
    assert_eq!(
        (page.text.as_str(), page.runs.as_slice()),
        ("oops—", &[(1, 4), (0, 3)][..])
    );
}

#[test]
fn half_a_character_does_not_silence_the_other_stream_for_ever() {
    let (rings, headers) = Arena::create_shaped(Shape::DEFAULT, 1).expect("memfds");
    let log = Log::new(
        Arena::map(rings, headers).expect("mapping"),
        0,
        JOB,
        SpillPolicy::Off,
    );
    append(&log, 0, b"\xe2");
    append(&log, 1, &[b'e'; 100]);
    assert_eq!(text(&log, 0, 8192).text, "", "the rest may still come");
    append(&log, 1, &[b'e'; 4096]);
    let page = text(&log, 0, 8192);
    assert_eq!((page.text.len(), page.replaced), (3 + 4196, 1));
}

// 044, at the ring's head
#[test]
fn the_rest_of_a_character_that_left_the_ring_counts_as_lost() {
    let log = ring_only();
    append(&log, 0, "—".repeat(2000).as_bytes());
    let page = text(&log, 0, 8192);
    assert_eq!((log.head(), page.from, page.lost), (1904, 1905, 1905));
    assert_eq!((page.text, page.replaced), ("—".repeat(1365), 0));
}

// 046
#[test]
fn one_bad_byte_does_not_take_its_neighbours_away() {
    let log = ring_only();
    append(&log, 0, b"ok\xffok\n");
    assert_eq!(text(&log, 0, 100).text, "ok\u{fffd}ok\n");
}

// 145
#[test]
fn eviction_moves_no_offset_and_readers_do_not_disturb_each_other() {
    let log = ring_only();
    let all = pattern(20_000);
    let (mut fast, mut slow) = (0, 0);
    for (i, chunk) in all.chunks(1000).enumerate() {
        append(&log, 0, chunk);
        let slice = log.read(fast, 4096, Filter::All);
        assert_eq!(
            (slice.lost, slice.bytes.as_slice()),
            (0, &all[fast as usize..(i + 1) * 1000])
        );
        fast = slice.next;
        if i % 7 == 6 {
            let slice = log.read(slow, 100, Filter::All);
            assert_eq!(slice.bytes, all[slice.from as usize..slice.next as usize]);
            assert_eq!(slice.from, slow + slice.lost);
            slow = slice.next;
        }
    }
}

#[test]
fn a_filtered_reader_keeps_the_offsets_of_the_whole_log() {
    let log = ring_only();
    append(&log, 0, b"out");
    append(&log, 1, b"error");
    append(&log, 0, b"more");
    let err = log.read(0, 3, Filter::Stderr);
    assert_eq!((err.bytes.as_slice(), err.next), (&b"err"[..], 6));
    let err = log.read(err.next, 100, Filter::Stderr);
    assert_eq!(
        (err.bytes.as_slice(), err.next, err.runs),
        (&b"or"[..], 12, vec![(1, 2)])
    );
}

#[test]
fn a_watcher_sees_every_end_and_the_closing() {
    let log = ring_only();
    append(&log, 0, b"before");
    let mut ends = log.subscribe();
    assert_eq!(
        (*ends.borrow(), ends.has_changed().expect("open")),
        (6, false)
    );
    append(&log, 0, b"!");
    assert!(ends.has_changed().expect("open"));
    assert_eq!(*ends.borrow_and_update(), 7);
    log.seal();
    assert!(ends.has_changed().expect("open"));
    assert!(log.read(7, 1, Filter::All).eof);
}

#[test]
fn the_mark_of_the_exit_is_set_once() {
    let log = ring_only();
    append(&log, 0, b"12");
    assert_eq!(log.at_exit(), None);
    log.mark_exit();
    append(&log, 0, b"late");
    log.mark_exit();
    assert_eq!(log.at_exit(), Some(2));
}

#[test]
fn a_retired_slot_is_free_when_its_last_reader_lets_go() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    let arena = arena();
    assert_eq!(arena.claim(JOB), Some(0));
    let log = Log::new(Arc::clone(&arena), 0, JOB, to(path.clone(), 1 << 20));
    append(&log, 0, &pattern(9000));
    log.spill_pending().expect("written");
    let reader = Arc::clone(&log);
    log.retire();
    drop(log);
    assert!(!path.exists());
    assert_eq!(whole(&reader), pattern(9000), "it has the file open still");
    assert_eq!(arena.owner(0), Some(JOB));
    drop(reader);
    assert_eq!(arena.owner(0), None);
}

// ---- The step.

fn unblocked(fd: OwnedFd) -> OwnedFd {
    // SAFETY: a plain call on an owned descriptor.
    let set = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(set, 0);
    fd
}

fn pair() -> ScratchPair {
    let (read, write) = io::pipe().expect("pipe");
    ScratchPair {
        read: read.into(),
        write: write.into(),
        block: 0,
    }
}

fn source() -> (OwnedFd, io::PipeWriter) {
    let (read, write) = io::pipe().expect("pipe");
    (unblocked(read.into()), write)
}

#[test]
fn splicing_works_where_these_tests_run() {
    assert_eq!(scratch::splice_works().expect("probe"), (true, true));
}

#[test]
fn a_step_moves_what_is_there_then_finds_nothing_then_the_end() {
    let (read, mut write) = source();
    let (log, pool) = (ring_only(), Pool::new(vec![pair()]));
    let step = || pool.step(read.as_fd(), &log, 1).expect("step");
    assert_eq!(step(), Step::Empty);
    write.write_all(b"hello").expect("write");
    assert_eq!(step(), Step::Short(5));
    assert_eq!(step(), Step::Empty);
    drop(write);
    assert_eq!(step(), Step::Closed);
    assert_eq!(log.read(0, 10, Filter::Stderr).bytes, b"hello");
}

#[test]
fn threads_that_share_one_pair_all_get_their_turn() {
    let pool = Pool::new(vec![pair()]);
    let steps = || {
        let (read, mut write) = source();
        let log = ring_only();
        for n in 0..1_000 {
            write.write_all(b"x").expect("write");
            let step = pool.step(read.as_fd(), &log, 0).expect("step");
            assert_eq!((step, log.end()), (Step::Short(1), n + 1));
        }
    };
    std::thread::scope(|threads| {
        for _ in 0..4 {
            threads.spawn(steps);
        }
    });
}

#[test]
fn the_end_of_a_terminal_is_an_end() {
    let (master, slave) = scratch::open_terminal().expect("openpty");
    let master = unblocked(master);
    let log = ring_only();
    let scratch = pair();
    let mut slave = std::fs::File::from(slave);
    slave.write_all(b"hi").expect("write");
    assert_eq!(
        scratch::step(&scratch, master.as_fd(), &log, 0).expect("step"),
        Step::Short(2)
    );
    assert_eq!(
        scratch::step(&scratch, master.as_fd(), &log, 0).expect("step"),
        Step::Empty
    );
    drop(slave);
    assert_eq!(
        scratch::step(&scratch, master.as_fd(), &log, 0).expect("step"),
        Step::Closed
    );
}

// B4 through the step: at the brim it must look without taking.
#[test]
fn a_pump_at_the_brim_spills_only_if_one_more_byte_is_there() {
    let folder = tempfile::tempdir().expect("folder");
    let path = folder.path().join("session/proc.log");
    let log = spilling(&path, 1 << 20);
    let scratch = pair();
    let (read, mut write) = source();
    let step = || scratch::step(&scratch, read.as_fd(), &log, 0).expect("step");
    write.write_all(&pattern(4096)).expect("write");
    while log.end() < 4096 {
        assert!(matches!(step(), Step::Moved(_) | Step::Short(_)));
    }
    assert_eq!(step(), Step::Empty);
    assert!(!path.exists());
    write.write_all(b"1").expect("write");
    assert_eq!(step(), Step::WaitForSpill);
    assert_eq!(log.end(), 4096, "nothing was taken");
    assert!(log.wants_spill());
    log.spill_pending().expect("written");
    assert_eq!(step(), Step::Short(1));
    drop(write);
    assert_eq!(step(), Step::Closed);
    assert_eq!(std::fs::read(&path).expect("file"), pattern(4096));
}

// B4 through the step, closed at the brim.
#[test]
fn a_pump_at_the_brim_sees_the_end() {
    let folder = tempfile::tempdir().expect("folder");
    let log = spilling(&folder.path().join("session/proc.log"), 1 << 20);
    append(&log, 0, &pattern(4096));
    let (read, write) = source();
    drop(write);
    assert_eq!(
        scratch::step(&pair(), read.as_fd(), &log, 0).expect("step"),
        Step::Closed
    );
}

// 056
#[test]
fn one_line_without_end_never_stops_the_reader() {
    let log = ring_only();
    let (read, mut write) = source();
    let scratch = pair();
    let writer = std::thread::spawn(move || write.write_all(&vec![0; 5_000_000]).expect("write"));
    loop {
        match scratch::step(&scratch, read.as_fd(), &log, 0).expect("step") {
            Step::Closed => break,
            Step::Empty => wait_for_input(&read),
            Step::Moved(_) | Step::Short(_) => {}
            Step::WaitForSpill => panic!("there is no spill"),
        }
    }
    writer.join().expect("writer");
    assert_eq!((log.end(), log.lost()), (5_000_000, 5_000_000 - 4096));
}

fn wait_for_input(fd: &OwnedFd) {
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid structure.
    assert!(unsafe { libc::poll(&mut poll, 1, -1) } > 0);
}

/// The memory as a step leaves it when it is killed after each of its stores, and what a restore makes of it.
#[test]
fn a_step_cut_at_any_point_is_finished_by_the_restore() {
    let message = b"0123456789";
    for killed_after in 0..8 {
        for restored_twice in [false, true] {
            let arena = arena();
            let log = Log::new(Arc::clone(&arena), 0, JOB, SpillPolicy::Off);
            append(&log, 0, b"out");
            let scratch = pair();
            cut_step(&arena, &scratch, message, killed_after);
            drop(log);
            let log = Log::restore(Arc::clone(&arena), 0, JOB, None, SpillPolicy::Off);
            for _ in 0..=usize::from(restored_twice) {
                scratch::restore(&scratch, &arena, |job| {
                    (job == JOB).then(|| Arc::clone(&log))
                })
                .expect("restore");
            }
            let slice = log.read(0, 100, Filter::All);
            let expected = if killed_after == 0 {
                &b"out"[..]
            } else {
                b"out0123456789"
            };
            assert_eq!(slice.bytes, expected, "killed after store {killed_after}");
            let runs = if killed_after == 0 {
                vec![(0, 3)]
            } else {
                vec![(0, 3), (1, 10)]
            };
            assert_eq!(slice.runs, runs, "killed after store {killed_after}");
            assert_eq!(
                arena
                    .block(0, BlockWord::Pend)
                    .load(std::sync::atomic::Ordering::Relaxed),
                0
            );
        }
    }
}

/// The first `n` effects of a step that moves `message` as stderr behind 3 bytes of stdout.
fn cut_step(arena: &Arc<Arena>, scratch: &ScratchPair, message: &[u8], n: usize) {
    use std::sync::atomic::Ordering::Relaxed;
    let mut pipe = io::PipeWriter::from(scratch.write.try_clone().expect("descriptor"));
    let out_tag = 3 << 1;
    let err_tag = 13 << 1 | 1;
    let read_half = || {
        let mut half = [0; 5];
        // SAFETY: the buffer is ours and as long as it says.
        let n = unsafe { libc::read(scratch.read.as_raw_fd(), half.as_mut_ptr().cast(), 5) };
        assert_eq!(n, 5);
        half
    };
    let put = |at: usize, bytes: &[u8]| {
        // SAFETY: far inside the ring, which nobody else uses here.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), arena.ring(0).add(at), bytes.len())
        };
    };
    arena
        .block(0, BlockWord::Owner)
        .store(JOB << 1 | 1, Relaxed);
    let effects: [&mut dyn FnMut(); 8] = [
        &mut || {},
        &mut || pipe.write_all(message).expect("write"),
        &mut || arena.block(0, BlockWord::Base).store(3, Relaxed),
        &mut || arena.block(0, BlockWord::Pend).store(10, Relaxed),
        &mut || put(3, &read_half()),
        &mut || put(8, &read_half()),
        &mut || {
            arena.tag(0, 0).store(out_tag, Relaxed);
            arena.header(0, Word::RunsEnd).store(1, Relaxed);
            arena.tag(0, 1).store(err_tag, Relaxed);
            arena.header(0, Word::RunsEnd).store(2, Relaxed);
        },
        &mut || arena.header(0, Word::End).store(13, Relaxed),
    ];
    for effect in effects.into_iter().take(n + 1) {
        effect();
    }
}

#[test]
fn bytes_of_a_job_that_is_gone_do_not_stay_in_the_scratch_pipe() {
    let arena = arena();
    let scratch = pair();
    cut_step(&arena, &scratch, b"0123456789", 3);
    scratch::restore(&scratch, &arena, |_| None).expect("restore");
    let (read, mut write) = source();
    write.write_all(b"mine").expect("write");
    let log = Log::new(arena, 1, JOB + 1, SpillPolicy::Off);
    assert_eq!(
        scratch::step(&scratch, read.as_fd(), &log, 0).expect("step"),
        Step::Short(4)
    );
    assert_eq!(log.read(0, 100, Filter::All).bytes, b"mine");
}

#[test]
fn where_splice_is_refused_a_crash_says_how_much_is_in_doubt() {
    // A source that cannot be spliced from: an eventfd.
    // SAFETY: a plain call whose result is checked.
    let fd = unsafe { libc::eventfd(7, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
    assert!(fd >= 0);
    // SAFETY: just made, owned by nobody else.
    let refused = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) };
    let arena = arena();
    let log = Log::new(Arc::clone(&arena), 0, JOB, SpillPolicy::Off);
    let scratch = pair();
    assert_eq!(
        scratch::step(&scratch, refused.as_fd(), &log, 0).expect("step"),
        Step::Short(8)
    );
    assert_eq!(log.read(0, 8, Filter::All).bytes, 7u64.to_ne_bytes());
    assert_eq!(
        scratch::step(&scratch, refused.as_fd(), &log, 0).expect("step"),
        Step::Empty
    );
    assert_eq!(log.in_doubt(), None);
    use std::sync::atomic::Ordering::Relaxed;
    arena.block(0, BlockWord::Base).store(8, Relaxed);
    arena
        .block(0, BlockWord::Pend)
        .store(2048 | 1 << 63, Relaxed);
    scratch::restore(&scratch, &arena, |_| Some(Arc::clone(&log))).expect("restore");
    assert_eq!((log.in_doubt(), log.end()), (Some((8, 2048)), 8));
}
