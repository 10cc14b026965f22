//! What the supervisor asks for.
//!
//! One order is carried out at once or answered by ERROR; none waits. Repeating an order
//! changes nothing, since a supervisor that was killed does not know what it had sent.

use super::cookie::Owner;
use super::fork::{self, Born, Refusal};
use super::house::start_time;
use super::kernel;
use super::store::Job;
use super::tell::Notice;
use super::turn::{Keeper, Token};
use super::wire::{self, Exec, ForkRequest, Frame, JobRow, Message, NONE, Op, Started, Step};
use ostler_proto::limits;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Orders taken in one turn; ends of jobs must not wait behind a burst of starts.
const AT_ONCE: usize = 16;

impl Keeper {
    /// Carries out what waits in the socket.
    pub(super) fn take_orders(&mut self) {
        for _ in 0..AT_ONCE {
            if !self.take_order() {
                return;
            }
            // Each start is answered before the next one is made.
            self.tell();
        }
    }

    /// Carries out what a dead supervisor has left behind.
    pub(super) fn take_last_orders(&mut self) {
        while self.take_order() {}
    }

    /// False when there is no order.
    fn take_order(&mut self) -> bool {
        let Some(wire) = &self.brain.wire else {
            return false;
        };
        match self.inbox.receive(wire.as_fd()) {
            Ok(Some(message)) => {
                self.obey(message);
                true
            }
            Ok(None) => {
                self.wire_lost();
                false
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let nothing = Frame::new(Op::Error, 0, [0; 5]);
                self.refuse(nothing, wire::ERROR_MALFORMED, "that was no message");
                true
            }
            Err(_) => false,
        }
    }

    fn refuse(&mut self, about: Frame, code: u64, text: &'static str) {
        self.notice(Notice::Error(about, code, text));
    }

    fn obey(&mut self, message: Message) {
        let frame = message.frame;
        let job = frame.job;
        match frame.op() {
            Some(Op::Fork) => self.fork(message),
            Some(Op::Reap) => self.order_reap(frame),
            Some(Op::Close) => self.close(frame),
            Some(Op::Hold) => self.hold(message),
            Some(Op::Forget) => self.forget(frame),
            Some(Op::Fetch) => self.fetch(frame.sequence, job),
            Some(Op::Ledger) => self.new_ledger(message),
            Some(Op::Ready) => self.supervisor_ready(),
            Some(Op::Steady) => self.brain.steady(),
            Some(Op::Leave) => self.supervisor_leaves(message),
            Some(Op::Sweep) => self.sweep(job),
            Some(Op::Ping) => self.notice(Notice::Pong(frame.sequence)),
            Some(Op::Pong) => self.brain.answered(),
            // Every supervisor says so before its HELLO; only of one in standby it is waited for.
            Some(Op::Standby) => {}
            // Answering it could go back and forth for ever.
            Some(Op::Error) => {}
            _ => self.refuse(frame, wire::ERROR_UNKNOWN, "not an order of this version"),
        }
    }

    fn fork(&mut self, message: Message) {
        let job = message.frame.job;
        if self.store.jobs.contains_key(&job) {
            self.store.mark_all(job);
            return;
        }
        let request = ForkRequest::decode(&message.payload).filter(|_| !message.truncated);
        let known = request.as_ref().map(|request| JobRow {
            slot: request.slot,
            record: request.record.clone(),
            ..JobRow::default()
        });
        let row = known.unwrap_or_default();
        match self.try_fork(job, request.as_ref(), message) {
            Ok(born) => self.enter(job, row, born),
            Err(refusal) => self.enter_refused(job, row, &refusal),
        }
    }

    fn try_fork(
        &self,
        job: u64,
        request: Option<&ForkRequest>,
        message: Message,
    ) -> Result<Born, Refusal> {
        let refusal = |step, errno| Refusal { step, errno };
        if message.truncated {
            return Err(refusal(Step::Descriptors, libc::EMFILE));
        }
        let request = request.ok_or(refusal(Step::Request, libc::EINVAL))?;
        let limit = kernel::limit_of(0, libc::RLIMIT_NOFILE);
        let ceiling = limit.map_or(0, |limit| limit.rlim_cur);
        if self.store.jobs() > limits::jobs_kept(ceiling) {
            return Err(refusal(Step::Descriptors, libc::EMFILE));
        }
        let passed = message.files.into_iter().next();
        fork::fork(request, job, passed, &self.house.defaults)
    }

    /// Record, process and descriptors come into the table in one step.
    fn enter(&mut self, job: u64, row: JobRow, born: Born) {
        let mut entry = Job::default();
        entry.row.told = row;
        entry.row.told.facts.started = Some(Started {
            pid: born.pid,
            start_time: start_time(born.pid).unwrap_or(0),
            grouped: born.grouped,
        });
        entry.row.clamped = born.clamped;
        // Both are new and ours; only a lack of memory could refuse them, and the sweep of
        // the children at the next signal does not cover that, so it is at least logged.
        let watched = self
            .epoll
            .add(born.pidfd.as_fd(), libc::EPOLLIN, Token::Leader(job).pack())
            .and_then(|()| {
                let token = Token::Status(job).pack();
                self.epoll.add(born.status.as_fd(), libc::EPOLLIN, token)
            });
        if let Err(error) = watched {
            self.house
                .log("error", &format!("job {job} cannot be watched: {error}"));
        }
        entry.held.pidfd = Some(born.pidfd);
        entry.held.status = Some(born.status);
        entry.held.out = born.out;
        entry.held.err = born.err;
        entry.held.input = born.input;
        self.store.leaders.insert(born.pid, job);
        self.store.sessions.insert(born.pid, job);
        self.store.jobs.insert(job, entry);
        self.store.mark(job, Op::Started);
    }

    /// A start of which nothing came is told like any other fact, until it is forgotten.
    fn enter_refused(&mut self, job: u64, row: JobRow, refusal: &Refusal) {
        let mut entry = Job::default();
        entry.row.told = row;
        entry.row.told.facts.exec = Exec::Failed {
            step: refusal.step,
            errno: refusal.errno,
            candidate: 0,
        };
        self.store.jobs.insert(job, entry);
        self.store.mark(job, Op::Execed);
    }

    fn order_reap(&mut self, frame: Frame) {
        let Some(entry) = self.store.get(frame.job) else {
            return self.refuse(frame, wire::ERROR_NO_JOB, "no such job");
        };
        let facts = &entry.row.told.facts;
        if facts.reaped.is_some() {
            self.store.mark(frame.job, Op::Reaped);
        } else if facts.ended.is_none() {
            self.refuse(frame, wire::ERROR_TOO_EARLY, "the leader has not ended");
        } else {
            self.reap(frame.job);
        }
    }

    fn close(&mut self, frame: Frame) {
        let Some(entry) = self.store.get(frame.job) else {
            return;
        };
        match frame.args[0] {
            wire::CLOSE_IN => entry.held.input = None,
            wire::CLOSE_OUT => entry.held.out = None,
            wire::CLOSE_ERR => entry.held.err = None,
            _ => self.refuse(frame, wire::ERROR_MALFORMED, "no such descriptor"),
        }
    }

    fn hold(&mut self, message: Message) {
        let file = message.files.into_iter().next();
        let Some(file) = file else {
            return self.refuse(message.frame, wire::ERROR_MALFORMED, "no file came along");
        };
        match self.store.get(message.frame.job) {
            Some(entry) => entry.held.spill = Some(kernel::lift_or_keep(file)),
            None => self.refuse(message.frame, wire::ERROR_NO_JOB, "no such job"),
        }
    }

    fn forget(&mut self, frame: Frame) {
        let Some(entry) = self.store.get(frame.job) else {
            return;
        };
        if entry.held.pidfd.is_some() {
            return self.refuse(frame, wire::ERROR_TOO_EARLY, "the leader is not reaped");
        }
        self.store.forget(frame.job);
        self.house.defaults.remove_leaf(frame.job);
    }

    fn new_ledger(&mut self, message: Message) {
        let file: Option<OwnedFd> = message.files.into_iter().next();
        let Some(file) = file else {
            return self.refuse(message.frame, wire::ERROR_MALFORMED, "no file came along");
        };
        self.house.ledger = kernel::lift_or_keep(file);
        self.house.generation = message.frame.args[0];
    }

    fn supervisor_ready(&mut self) {
        self.brain.serves();
        self.house.announce("ready");
    }

    /// Kills our children that carry a job's cookie; the job itself is one of them.
    fn sweep(&mut self, job: u64) {
        for pid in self.house.children().unwrap_or_default() {
            if self.brain.is(pid) {
                continue;
            }
            let hit = match self.owner(pid) {
                Owner::Job(owner) => job == NONE || owner == job,
                Owner::Unknown => false,
            };
            if hit {
                // SAFETY: plain call; an unreaped child's number is its own.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
        }
    }
}
