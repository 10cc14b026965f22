//! The log against a naive model: everything ever written in one vector, and the question which of it must be there.
//!
//! Rings of a few dozen bytes make the rare cases (wraps, full tag tables, caps, cut characters) happen in every run.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use ostler_supervisor::log::{Arena, Budget, Filter, Log, Shape, SpillPolicy};
use proptest::prelude::*;

const JOB: u64 = 77;

#[derive(Clone, Debug)]
struct World {
    shape: Shape,
    spill: Option<u64>,
    budget: u64,
    binary: bool,
    streams: u8,
    ops: Vec<Op>,
}

#[derive(Clone, Debug)]
enum Op {
    Append {
        stream: u8,
        len: usize,
    },
    Spill,
    Restart {
        keep_fd: bool,
    },
    /// From now on writes to the spill fail.
    BreakSpill,
    /// A temp cleaner takes the files.
    LoseSpill,
    CloseSpill,
    Check {
        page: usize,
    },
    Read {
        from: u64,
        max: usize,
        filter: Filter,
    },
    Exit,
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![
        Just(Filter::All),
        Just(Filter::Stdout),
        Just(Filter::Stderr)
    ]
}

fn ops() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (0..2u8, 1..40usize).prop_map(|(stream, len)| Op::Append { stream, len }),
        6 => (0..2u8, 1..4usize).prop_map(|(stream, len)| Op::Append { stream, len }),
        1 => (0..2u8, 100..400usize).prop_map(|(stream, len)| Op::Append { stream, len }),
        4 => Just(Op::Spill),
        2 => any::<bool>().prop_map(|keep_fd| Op::Restart { keep_fd }),
        1 => Just(Op::CloseSpill),
        3 => (0..40usize).prop_map(|page| Op::Check { page }),
        3 => (0..900u64, 0..300usize, filters()).prop_map(|(from, max, filter)| Op::Read { from, max, filter }),
        1 => Just(Op::Exit),
    ]
}

fn worlds() -> impl Strategy<Value = World> {
    let shape = (8..96u64, 4..20u64).prop_map(|(ring, runs)| Shape { ring, runs });
    let spill = prop_oneof![
        2 => Just(None),
        3 => Just(Some(u64::MAX / 2)),
        4 => (1..400u64).prop_map(Some),
    ];
    let budget = prop_oneof![4 => Just(u64::MAX / 2), 1 => 0..600u64];
    let trouble = prop_oneof![
        3 => Just(None),
        1 => (0..50usize).prop_map(|at| Some((at, Op::BreakSpill))),
        1 => (0..50usize).prop_map(|at| Some((at, Op::LoseSpill))),
    ];
    let rest = (any::<bool>(), 1..3u8, prop::collection::vec(ops(), 1..50));
    (shape, spill, budget, trouble, rest).prop_map(
        |(shape, spill, budget, trouble, (binary, streams, mut ops))| {
            if let Some((at, op)) = trouble {
                ops.insert(at.min(ops.len()), op);
            }
            World {
                shape,
                spill,
                budget,
                binary,
                streams,
                ops,
            }
        },
    )
}

/// The model, and the log under test with the memory that outlives it.
struct Bench {
    world: World,
    rings: OwnedFd,
    headers: OwnedFd,
    log: Option<Arc<Log>>,
    budget: Arc<Budget>,
    folder: tempfile::TempDir,
    written: Vec<(u8, u8)>,
    sources: [Source; 2],
    may_fail: bool,
    exit: Option<u64>,
}

/// Endless bytes of one stream: characters of one to four bytes, and nonsense if asked for.
struct Source {
    state: u32,
    binary: bool,
    waiting: Vec<u8>,
}

impl Source {
    fn next(&mut self) -> u8 {
        if self.waiting.is_empty() {
            self.state = self
                .state
                .wrapping_mul(1_664_525)
                .wrapping_add(1_013_904_223);
            let pick = (self.state >> 24) as usize;
            let text = ["a", "\n", "é", "—", "😀", "z", "ß", "日"][pick % 8];
            self.waiting = text.bytes().rev().collect();
            if self.binary && pick.is_multiple_of(5) {
                self.waiting = [&[0xff][..], &[0x80], &[0x80, 0xe2], &[0x9f, 0xf0], &[0xc0]]
                    [pick / 5 % 5]
                    .to_vec();
            }
        }
        self.waiting.pop().expect("filled above")
    }
}

impl Bench {
    fn new(world: World) -> Bench {
        let (rings, headers) = Arena::create_shaped(world.shape, 1).expect("memfds");
        let mut bench = Bench {
            budget: Budget::new(world.budget, None),
            sources: [1, 2].map(|state| Source {
                state,
                binary: world.binary,
                waiting: Vec::new(),
            }),
            world,
            rings,
            headers,
            log: None,
            folder: tempfile::tempdir().expect("temp folder"),
            written: Vec::new(),
            may_fail: false,
            exit: None,
        };
        bench.log = Some(Log::new(bench.arena(), 0, JOB, bench.policy()));
        bench
    }

    fn arena(&self) -> Arc<Arena> {
        let dup = |fd: &OwnedFd| fd.try_clone().expect("descriptor");
        Arena::map_shaped(self.world.shape, dup(&self.rings), dup(&self.headers)).expect("mapping")
    }

    fn path(&self) -> PathBuf {
        self.folder
            .path()
            .join("artifacts")
            .join("session")
            .join("proc.log")
    }

    fn policy(&self) -> SpillPolicy {
        match self.world.spill {
            None => SpillPolicy::Off,
            Some(cap) => SpillPolicy::To {
                path: self.path(),
                cap,
                budget: Arc::clone(&self.budget),
            },
        }
    }

    fn log(&self) -> &Arc<Log> {
        self.log
            .as_ref()
            .expect("there is a log between two operations")
    }

    fn run(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match op {
            Op::Append { stream, len } => self.append(stream % self.world.streams, *len)?,
            Op::Spill => self.spill()?,
            Op::Restart { keep_fd } => {
                let fd = self
                    .log()
                    .spill_fd()
                    .expect("duplicate")
                    .filter(|_| *keep_fd);
                self.restart(fd);
            }
            Op::BreakSpill => {
                let read_only = File::open(self.path()).ok().map(OwnedFd::from);
                self.may_fail |= read_only.is_some();
                self.restart(read_only);
            }
            Op::LoseSpill => {
                self.may_fail = true;
                std::fs::remove_dir_all(self.folder.path().join("artifacts")).ok();
                self.log().close_spill();
            }
            Op::CloseSpill => self.log().close_spill(),
            Op::Check { page } => self.check(*page)?,
            Op::Read { from, max, filter } => self.read(*from, *max, *filter)?,
            Op::Exit => {
                self.exit.get_or_insert(self.written.len() as u64);
                self.log().mark_exit();
            }
        }
        prop_assert_eq!(self.log().end(), self.written.len() as u64);
        prop_assert_eq!(self.log().at_exit(), self.exit);
        Ok(())
    }

    fn restart(&mut self, fd: Option<OwnedFd>) {
        drop(self.log.take());
        assert_eq!(
            self.budget.used(),
            0,
            "a log that is gone has given its budget back"
        );
        self.log = Some(Log::restore(self.arena(), 0, JOB, fd, self.policy()));
    }

    fn append(&mut self, stream: u8, len: usize) -> Result<(), TestCaseError> {
        let source = &mut self.sources[usize::from(stream)];
        let bytes: Vec<u8> = (0..len).map(|_| source.next()).collect();
        let mut done = 0;
        for _ in 0..=2 * len {
            let n = self.log().append(stream, &bytes[done..]);
            self.written
                .extend(bytes[done..done + n].iter().map(|b| (stream, *b)));
            done += n;
            if done == len {
                return Ok(());
            }
            prop_assert!(
                self.log().wants_spill(),
                "a refusal means that the spill writer has something to do"
            );
            self.spill()?;
        }
        Err(TestCaseError::fail("appending does not come to an end"))
    }

    fn spill(&mut self) -> Result<(), TestCaseError> {
        let small = self.world.budget < 1000 || self.world.spill.is_some_and(|cap| cap < 1000);
        match self.log().spill_pending() {
            Ok(progress) => prop_assert!(
                !progress.more || self.log().spill_failure().is_some() || !self.path().exists()
            ),
            Err(e) => {
                prop_assert!(self.may_fail || small, "{e}");
                prop_assert!(self.log().spill_failure().is_some());
            }
        }
        prop_assert!(!self.log().wants_spill());
        prop_assert!(self.budget.used() <= self.world.budget);
        Ok(())
    }

    /// The oldest byte that the ring alone must still have: by size, and by the number of runs it can tag.
    fn ring_head(&self) -> usize {
        let by_size = self
            .written
            .len()
            .saturating_sub(self.world.shape.ring as usize);
        let mut runs = 0;
        for start in (0..self.written.len()).rev() {
            if start + 1 == self.written.len() || self.written[start].0 != self.written[start + 1].0
            {
                runs += 1;
            }
            if runs > self.world.shape.runs {
                return by_size.max(start + 1);
            }
        }
        by_size
    }

    fn read(&self, from: u64, max: usize, filter: Filter) -> Result<(), TestCaseError> {
        let end = self.written.len() as u64;
        let slice = self.log().read(from, max, filter);
        prop_assert_eq!(slice.end, end);
        if from >= end {
            prop_assert_eq!(
                (slice.from, slice.next, slice.lost, slice.bytes.len()),
                (end, end, 0, 0)
            );
            return Ok(());
        }
        prop_assert_eq!(slice.from, from + slice.lost);
        prop_assert!(slice.next > from && slice.next <= end);
        prop_assert!(slice.bytes.len() <= max.max(1));
        let expected: Vec<_> = self.written[slice.from as usize..slice.next as usize]
            .iter()
            .filter(|(stream, _)| wants(filter, *stream))
            .copied()
            .collect();
        prop_assert_eq!(tagged(&slice.bytes, &slice.runs), expected);
        Ok(())
    }

    /// Follows the cursor from 0 with every filter, as bytes and as text.
    fn check(&self, page: usize) -> Result<(), TestCaseError> {
        let kept = self.walk(page, Filter::All)?;
        let missing = kept.iter().filter(|k| !**k).count();
        prop_assert_eq!(self.log().lost(), missing as u64);
        prop_assert!(
            kept[self.ring_head()..].iter().all(|k| *k),
            "the ring keeps its newest bytes"
        );
        self.check_promises(&kept, missing)?;
        for filter in [Filter::Stdout, Filter::Stderr] {
            self.walk(page, filter)?;
        }
        for filter in [Filter::All, Filter::Stdout, Filter::Stderr] {
            self.check_text(page, filter, missing)?;
        }
        Ok(())
    }

    /// What must be there, by policy.
    fn check_promises(&self, kept: &[bool], missing: usize) -> Result<(), TestCaseError> {
        let Some(cap) = self.world.spill else {
            prop_assert_eq!(missing, self.ring_head());
            return Ok(());
        };
        if self.may_fail {
            return Ok(());
        }
        if self.ring_head() == 0 {
            prop_assert_eq!(missing, 0);
        }
        if self.written.len() <= self.world.shape.ring as usize && self.world.streams == 1 {
            prop_assert!(
                !self.folder.path().join("artifacts").exists(),
                "no overflow, no folder"
            );
        }
        let file = std::fs::read(self.path());
        if cap > 1000 && self.world.budget > 1000 {
            prop_assert_eq!(missing, 0, "with room on the disk nothing is lost");
            prop_assert!(self.ring_head() == 0 || file.is_ok());
            let file = file.unwrap_or_default();
            prop_assert!(
                file.iter()
                    .copied()
                    .eq(self.written.iter().map(|(_, b)| *b).take(file.len()))
            );
        } else if self.world.streams == 1 && self.world.budget > 1000 {
            let cap = cap as usize;
            prop_assert!(file.map_or(0, |f| f.len()) <= cap);
            prop_assert!(
                kept[..self.written.len().min(cap / 2)].iter().all(|k| *k),
                "the head half stays"
            );
            prop_assert!(
                self.written.len() - missing >= self.written.len().min(cap),
                "a file of its cap keeps its cap"
            );
        }
        Ok(())
    }

    fn walk(&self, page: usize, filter: Filter) -> Result<Vec<bool>, TestCaseError> {
        let mut kept = vec![false; self.written.len()];
        let mut at = 0;
        while at < self.written.len() as u64 {
            self.read(at, page, filter)?;
            let slice = self.log().read(at, page, filter);
            kept[slice.from as usize..slice.next as usize].fill(true);
            at = slice.next;
        }
        Ok(kept)
    }

    fn check_text(&self, page: usize, filter: Filter, missing: usize) -> Result<(), TestCaseError> {
        let (mut texts, mut lost, mut replaced) = ([const { String::new() }; 2], 0, 0);
        let mut at = 0;
        loop {
            let text = self.log().text(at, page, filter, false);
            let mut passed = 0;
            for (stream, n) in &text.runs {
                let part = text.text.get(passed..passed + *n as usize);
                prop_assert!(part.is_some(), "a run ends inside a character");
                texts[usize::from(*stream)].push_str(part.unwrap_or_default());
                passed += *n as usize;
            }
            prop_assert_eq!(passed, text.text.len());
            lost += text.lost;
            replaced += text.replaced;
            if text.next == at {
                break;
            }
            prop_assert!(text.next > at);
            at = text.next;
        }
        let until = &self.written[..at as usize];
        let held = &self.written[until.len()..];
        prop_assert!(
            self.world.streams == 2 || held.len() <= 3,
            "{held:?} held back, {filter:?}, page {page}"
        );
        if missing == 0 {
            prop_assert_eq!(lost, 0);
            for stream in (0..2).filter(|s| wants(filter, *s)) {
                let bytes: Vec<u8> = until
                    .iter()
                    .filter(|w| w.0 == stream)
                    .map(|w| w.1)
                    .collect();
                prop_assert_eq!(
                    &texts[usize::from(stream)],
                    &String::from_utf8_lossy(&bytes)
                );
            }
        }
        if !self.world.binary {
            prop_assert_eq!(replaced, 0, "no character was split");
            prop_assert!(!texts.concat().contains(char::REPLACEMENT_CHARACTER));
            if filter == Filter::All {
                prop_assert_eq!(lost + texts.concat().len() as u64, at);
            }
        }
        Ok(())
    }

    /// The output closes: now everything is text, the last half character too.
    fn finish(&mut self) -> Result<(), TestCaseError> {
        self.check(16)?;
        self.log().seal();
        self.spill()?;
        let slice = self.log().read(self.written.len() as u64, 1, Filter::All);
        prop_assert!(slice.eof);
        if self.log().lost() == 0 {
            let text = self.log().text(0, 1 << 20, Filter::Stdout, false);
            let bytes: Vec<u8> = self
                .written
                .iter()
                .filter(|w| w.0 == 0)
                .map(|w| w.1)
                .collect();
            prop_assert_eq!(&text.text, &String::from_utf8_lossy(&bytes));
            prop_assert!(text.eof);
        }
        Ok(())
    }
}

fn wants(filter: Filter, stream: u8) -> bool {
    match filter {
        Filter::All => true,
        Filter::Stdout => stream == 0,
        Filter::Stderr => stream == 1,
    }
}

fn tagged(bytes: &[u8], runs: &[(u8, u32)]) -> Vec<(u8, u8)> {
    let streams = runs
        .iter()
        .flat_map(|(stream, n)| std::iter::repeat_n(*stream, *n as usize));
    assert_eq!(
        runs.iter().map(|r| r.1 as usize).sum::<usize>(),
        bytes.len(),
        "runs cover the bytes"
    );
    streams.zip(bytes.iter().copied()).collect()
}

proptest! {
    // More by PROPTEST_CASES, never fewer.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.max(2500),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_byte_is_right_or_counted_as_lost(world in worlds()) {
        let mut bench = Bench::new(world.clone());
        for op in &world.ops {
            bench.run(op)?;
        }
        bench.finish()?;
    }
}
