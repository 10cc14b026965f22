//! What the supervisor is told, and when there is room for it.
//!
//! The keeper never blocks on a send. Facts of jobs are bits in the table, sent when the
//! socket takes them; the few messages about no job wait in a short queue. A supervisor
//! that stands still costs no memory and delays nobody.

use super::cookie::Rung;
use super::store::{TELL, bit};
use super::turn::{Keeper, Token};
use super::wire::{self, Frame, NONE, Op};
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// Most waiting messages about no job; above it, answers to nonsense are dropped.
const MOST_NOTICES: usize = 64;

/// How long to wait when the kernel refuses a message for another reason than a full queue.
const RETRY: Duration = Duration::from_millis(5);

/// A message about no job.
pub(super) enum Notice {
    Hello,
    Ping(u32),
    Pong(u32),
    Listener,
    Term(i32),
    /// The next supervisor waits, or why it does not come.
    Standby(Option<String>),
    Error(Frame, u64, &'static str),
}

/// A FETCH that is being answered.
struct Fetch {
    sequence: u32,
    jobs: VecDeque<u64>,
}

/// What waits for room.
#[derive(Default)]
pub(super) struct Telling {
    notices: VecDeque<Notice>,
    fetches: VecDeque<Fetch>,
    /// The socket is watched for room.
    waits: bool,
    /// Try again then.
    pub(super) retry: Option<Instant>,
}

impl Keeper {
    /// Puts a message about no job into the queue.
    pub(super) fn notice(&mut self, notice: Notice) {
        let optional = matches!(notice, Notice::Error(..) | Notice::Pong(_));
        if !optional || self.telling.notices.len() < MOST_NOTICES {
            self.telling.notices.push_back(notice);
        }
    }

    /// Answers FETCH: job by job, as there is room.
    pub(super) fn fetch(&mut self, sequence: u32, job: u64) {
        let mut jobs: VecDeque<u64> = if job == NONE {
            self.store.jobs.keys().copied().collect()
        } else {
            [job].into()
        };
        jobs.make_contiguous().sort_unstable();
        self.telling.fetches.push_back(Fetch { sequence, jobs });
    }

    /// Nothing waits for a supervisor that is gone.
    pub(super) fn tell_nothing(&mut self) {
        self.telling = Telling::default();
        self.store.unmark();
    }

    /// Sends as much as there is room for.
    pub(super) fn tell(&mut self) {
        self.telling.retry = None;
        loop {
            match self.tell_one() {
                Ok(true) => {}
                Ok(false) => return self.watch_room(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return self.watch_room(true);
                }
                // Nobody hears us any more. What was ordered before may still stand in the socket, a farewell among
                // it; its end shows when that is read.
                Err(error) if gone(&error) => {
                    self.watch_room(false);
                    return self.tell_nothing();
                }
                // Too many descriptors on their way, or none left to make a payload's
                // file: room in the socket would wake us at once, so a clock does.
                Err(_) => {
                    self.telling.retry = Some(Instant::now() + RETRY);
                    return self.watch_room(false);
                }
            }
        }
    }

    fn watch_room(&mut self, wanted: bool) {
        if self.telling.waits == wanted {
            return;
        }
        if let Some(wire) = &self.brain.wire {
            let room = if wanted { libc::EPOLLOUT } else { 0 };
            let events = libc::EPOLLIN | room;
            let changed = self.epoll.change(wire.as_fd(), events, Token::Wire.pack());
            if changed.is_ok() {
                self.telling.waits = wanted;
            }
        }
    }

    /// Sends one message. False when nothing waits.
    fn tell_one(&mut self) -> io::Result<bool> {
        if self.brain.wire.is_none() {
            return Ok(false);
        }
        if let Some(notice) = self.telling.notices.front() {
            self.send_notice(notice)?;
            self.telling.notices.pop_front();
            return Ok(true);
        }
        if let Some(job) = self.store.waiting.front().copied() {
            return self.tell_job(job).map(|()| true);
        }
        self.tell_fetch()
    }

    fn send(
        &self,
        frame: Frame,
        payload: &[u8],
        files: &[std::os::fd::BorrowedFd<'_>],
    ) -> io::Result<()> {
        match &self.brain.wire {
            Some(wire) => wire::send(wire.as_fd(), frame, payload, files),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn send_notice(&self, notice: &Notice) -> io::Result<()> {
        let plain = |op, first: u64| Frame::new(op, 0, [first, 0, 0, 0, 0]);
        match notice {
            Notice::Hello => self.send_hello(),
            Notice::Ping(sequence) => self.send(plain(Op::Ping, 0).sequence(*sequence), &[], &[]),
            Notice::Pong(sequence) => self.send(plain(Op::Pong, 0).sequence(*sequence), &[], &[]),
            Notice::Term(number) => self.send(plain(Op::Term, *number as u64), &[], &[]),
            Notice::Standby(None) => self.send(plain(Op::Standby, 0), &[], &[]),
            Notice::Standby(Some(why)) => self.send(plain(Op::Standby, 1), why.as_bytes(), &[]),
            Notice::Listener => {
                // The lock goes along: it may be another file by now, and two hold it for life.
                let listener = self.house.bound.listener.as_fd();
                let lock = self.house.lock.as_fd();
                self.send(plain(Op::Listener, 0), &[], &[listener, lock])
            }
            Notice::Error(about, code, text) => {
                let args = [*code, about.op.into(), 0, 0, 0];
                let frame = Frame::new(Op::Error, about.job, args).sequence(about.sequence);
                self.send(frame, text.as_bytes(), &[])
            }
        }
    }

    fn send_hello(&self) -> io::Result<()> {
        let house = &self.house;
        let rung = match house.defaults.rung {
            Rung::None => 0,
            Rung::Both => 1,
            Rung::Soft => 2,
        };
        let instance = house.defaults.instance.into();
        let brain = &self.brain;
        let args = [
            brain.attempt.into(),
            brain.why as u64,
            rung,
            instance,
            house.slots,
        ];
        let (folder, lack) = match &house.defaults.groups {
            Ok(groups) => (groups.folder().as_os_str().as_bytes().to_vec(), Vec::new()),
            Err(lack) => (Vec::new(), lack.clone().into_bytes()),
        };
        let welcome = wire::Welcome {
            oldest: wire::OLDEST.into(),
            newest: wire::VERSION.into(),
            build: env!("CARGO_PKG_VERSION").into(),
            umask: house.defaults.umask,
            limits: house.defaults.limits.clone(),
            restoring: brain.restoring,
            restoring_deaths: brain.restoring_deaths,
            ledger: house.generation,
            id: house.options.build.clone().into(),
            taken_back: brain.taken_back.clone().into(),
            cgroup: folder,
            cgroup_lack: lack,
        };
        let mut files = vec![
            house.bound.listener.as_fd(),
            house.lock.as_fd(),
            house.ledger.as_fd(),
            house.arena.as_fd(),
            house.headers.as_fd(),
        ];
        for (reading, writing) in &house.scratch {
            files.extend([reading.as_fd(), writing.as_fd()]);
        }
        self.send(Frame::new(Op::Hello, 0, args), &welcome.encode(), &files)
    }

    /// Sends the first untold fact of the job in front.
    fn tell_job(&mut self, job: u64) -> io::Result<()> {
        let untold = self.store.jobs.get(&job).map_or(0, |job| job.row.untold);
        let next = TELL.into_iter().find(|op| untold & bit(*op) != 0);
        if let Some(op) = next {
            self.send_fact(job, op)?;
        }
        let left = untold & !next.map_or(0, bit);
        if let Some(entry) = self.store.get(job) {
            entry.row.untold = left;
        }
        if left == 0 {
            self.store.waiting.pop_front();
        }
        Ok(())
    }

    /// Sends one fact, if it is one yet.
    fn send_fact(&self, job: u64, op: Op) -> io::Result<()> {
        let Some(entry) = self.store.jobs.get(&job) else {
            return Ok(());
        };
        let facts = &entry.row.told.facts;
        let (op, args) = match op {
            Op::Started => return self.send_started(job),
            Op::Execed => match wire::exec_args(facts.exec) {
                Some(known) => known,
                None => return Ok(()),
            },
            Op::MemberEnded if facts.members_ended > 0 => (op, wire::members_args(facts)),
            Op::Ended => match facts.ended {
                Some(ended) => (op, wire::ended_args(ended)),
                None => return Ok(()),
            },
            Op::Reaped => match facts.reaped {
                Some(reaped) => (op, wire::reaped_args(reaped)),
                None => return Ok(()),
            },
            _ => return Ok(()),
        };
        self.send(Frame::new(op, job, args), &[], &[])
    }

    fn send_started(&self, job: u64) -> io::Result<()> {
        let Some(entry) = self.store.jobs.get(&job) else {
            return Ok(());
        };
        let Some(started) = entry.row.told.facts.started else {
            return Ok(());
        };
        let args = wire::started_args(started, entry.row.told.slot);
        let mut frame = Frame::new(Op::Started, job, args);
        let files: Vec<_> = entry
            .held
            .files()
            .into_iter()
            .filter(|(flag, _)| *flag != wire::HAS_SPILL)
            .inspect(|(flag, _)| frame.flags |= flag)
            .map(|(_, file)| file)
            .collect();
        self.send(frame, &[], &files)
    }

    /// Sends the next part of an answer to FETCH. False when there is none to give.
    fn tell_fetch(&mut self) -> io::Result<bool> {
        let Some(fetch) = self.telling.fetches.front() else {
            return Ok(false);
        };
        let sequence = fetch.sequence;
        if let Some(job) = fetch.jobs.front().copied() {
            self.send_row(job, sequence)?;
            if let Some(fetch) = self.telling.fetches.front_mut() {
                fetch.jobs.pop_front();
            }
            return Ok(true);
        }
        self.send(Frame::new(Op::Done, 0, [0; 5]).sequence(sequence), &[], &[])?;
        self.telling.fetches.pop_front();
        Ok(true)
    }

    fn send_row(&self, job: u64, sequence: u32) -> io::Result<()> {
        let Some(entry) = self.store.jobs.get(&job) else {
            return Ok(());
        };
        let mut frame = Frame::new(Op::Job, job, [0; 5]).sequence(sequence);
        let files: Vec<_> = entry
            .held
            .files()
            .into_iter()
            .inspect(|(flag, _)| frame.flags |= flag)
            .map(|(_, file)| file)
            .collect();
        self.send(frame, &entry.row.told.encode(), &files)
    }
}

/// The other end of the socket is closed.
fn gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
    matches!(error.kind(), BrokenPipe | ConnectionReset | NotConnected)
}
