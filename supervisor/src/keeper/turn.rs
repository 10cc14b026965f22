//! The loop: one wait, then everything that has happened, then what is to be told.
//!
//! Owns the keeper's state; the modules beside it are its verbs. It has no timer of its
//! own: it sleeps until an event or the nearest deadline, and without one for ever.

use super::brain::Brain;
use super::house::House;
use super::kernel::{self, Epoll};
use super::store::Store;
use super::tell::Telling;
use super::wire::Inbox;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What an epoll entry stands for: the kind in the top byte, the job below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    Signals,
    Supervisor,
    Wire,
    Leader(u64),
    Status(u64),
    Standby,
    StandbyWire,
}

const JOB: u64 = (1 << 56) - 1;

impl Token {
    pub(super) fn pack(self) -> u64 {
        match self {
            Self::Signals => 0,
            Self::Supervisor => 1 << 56,
            Self::Wire => 2 << 56,
            Self::Leader(job) => 3 << 56 | job,
            Self::Status(job) => 4 << 56 | job,
            Self::Standby => 5 << 56,
            Self::StandbyWire => 6 << 56,
        }
    }

    fn unpack(token: u64) -> Self {
        match token >> 56 {
            0 => Self::Signals,
            1 => Self::Supervisor,
            2 => Self::Wire,
            3 => Self::Leader(token & JOB),
            4 => Self::Status(token & JOB),
            5 => Self::Standby,
            _ => Self::StandbyWire,
        }
    }
}

/// The end of the house, once decided.
pub(super) struct Finish {
    /// Empty for an orderly end.
    pub(super) reason: String,
    /// The supervisor left by itself, and cleared before what it had laid down.
    pub(super) cleared: bool,
}

impl Finish {
    /// The supervisor has left.
    pub(super) fn left(reason: String) -> Self {
        Self {
            reason,
            cleared: true,
        }
    }

    /// There is no supervisor any more that could clear anything.
    pub(super) fn cut_short(reason: String) -> Self {
        Self {
            reason,
            cleared: false,
        }
    }
}

/// All of the keeper's state.
pub(super) struct Keeper {
    pub(super) house: House,
    pub(super) signals: OwnedFd,
    pub(super) epoll: Epoll,
    pub(super) store: Store,
    pub(super) brain: Brain,
    pub(super) telling: Telling,
    pub(super) inbox: Inbox,
    /// Leaders that ended in this turn and are to be told of with their strays.
    pub(super) ends: Vec<u64>,
    /// Ended jobs of which a member was buried since it was told who is left.
    pub(super) touched: BTreeSet<u64>,
    /// A child has changed since the strays were looked at.
    pub(super) children_changed: bool,
    pub(super) finish: Option<Finish>,
}

impl Keeper {
    pub(super) fn new(house: House, signals: OwnedFd, brain: Brain) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(signals.as_fd(), libc::EPOLLIN, Token::Signals.pack())?;
        Ok(Self {
            house,
            signals,
            epoll,
            store: Store::default(),
            brain,
            telling: Telling::default(),
            inbox: Inbox::default(),
            ends: Vec::new(),
            touched: BTreeSet::new(),
            children_changed: false,
            finish: None,
        })
    }

    /// Runs until the house is gone.
    pub(super) fn run(mut self) -> ExitCode {
        self.start_supervisor();
        loop {
            if let Some(finish) = self.finish.take() {
                return self.guard(&finish);
            }
            self.turn();
        }
    }

    fn turn(&mut self) {
        let events = match self.epoll.wait(self.time_left()) {
            Ok(events) => events,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(error) => {
                let reason = format!("events cannot be awaited: {error}");
                self.finish = Some(Finish::cut_short(reason));
                return;
            }
        };
        let (mut wire, mut death) = (false, false);
        let (mut standby_wire, mut standby_death) = (false, false);
        for (token, _) in events {
            match Token::unpack(token) {
                Token::Signals => self.read_signals(),
                Token::Supervisor => death = true,
                Token::Wire => wire = true,
                Token::Leader(job) => self.leader_ended(job),
                Token::Status(job) => self.read_status(job),
                Token::Standby => standby_death = true,
                Token::StandbyWire => standby_wire = true,
            }
        }
        if self.children_changed || !self.ends.is_empty() {
            self.settle();
        }
        // Orders come after the events of jobs: they can make and forget jobs, and an
        // event read before must not be taken for one of a new job.
        if wire {
            self.take_orders();
        }
        // What it said before it died is no matter; but the one that leaves for it must find it dead.
        if standby_death {
            self.standby_ended();
        } else if standby_wire {
            self.standby_speaks();
        }
        if death {
            self.supervisor_ended();
        }
        self.see_deadlines(Instant::now());
        self.tell();
    }

    /// Until the nearest deadline.
    fn time_left(&self) -> Option<Duration> {
        if self.children_changed {
            return Some(Duration::ZERO);
        }
        let nearest = self.brain.deadline().into_iter().chain(self.telling.retry);
        nearest
            .min()
            .map(|at| at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn read_signals(&mut self) {
        while let Some(number) = next_signal(&self.signals) {
            match number {
                libc::SIGCHLD => self.children_changed = true,
                libc::SIGUSR1 => self.look_after_supervisor(),
                libc::SIGTERM | libc::SIGINT | libc::SIGHUP => self.asked_to_end(number),
                _ => {}
            }
        }
    }
}

/// The next signal that has come in.
pub(super) fn next_signal(signals: &OwnedFd) -> Option<i32> {
    // SAFETY: zeroes are a valid value of this plain data.
    let mut info: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: room for one whole record; the file does not block.
    let got = unsafe { libc::read(signals.as_raw_fd(), (&raw mut info).cast(), size) };
    (got == size as isize).then_some(info.ssi_signo as i32)
}

/// Reads the child's records and whether it has come to the end of file.
pub(super) fn records(status: &OwnedFd) -> (Vec<(u32, i32)>, bool) {
    let mut all = Vec::new();
    let mut bytes = [0u8; 512];
    loop {
        // SAFETY: room for 512 bytes; the pipe does not block.
        let got = unsafe { libc::read(status.as_raw_fd(), bytes.as_mut_ptr().cast(), 512) };
        match kernel::check(got as libc::c_long) {
            Ok(0) => return (all, true),
            // Records are written whole and 512 is a multiple of their size.
            Ok(length) => all.extend(bytes[..length as usize].chunks_exact(8).map(record)),
            Err(_) => return (all, false),
        }
    }
}

fn record(bytes: &[u8]) -> (u32, i32) {
    let word = |at: usize| [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
    (u32::from_ne_bytes(word(0)), i32::from_ne_bytes(word(4)))
}
