//! The supervisor's process: started, watched, started again, and at last let go.
//!
//! The keeper acts on its death, never on a closed socket alone: two supervisors on one
//! pipe would be worse than none. There is no regular ping; a client that gets no answer
//! asks with SIGUSR1, and only then is looked after a hung one.

use super::kernel::{self, Whom};
use super::standby::{Former, Standby};
use super::tell::Notice;
use super::turn::{Finish, Keeper, Token};
use super::wire::{self, Message};
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

/// A supervisor that dies this many times without having been steady is given up.
const MOST_ATTEMPTS: u32 = 6;
/// The wait before the third attempt; it doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// How long a supervisor may live on after its end of the socket is closed.
pub(super) const CLOSED_WAIT: Duration = Duration::from_secs(1);
/// How long it may take for an orderly end that the keeper was asked for.
const END_WAIT: Duration = Duration::from_secs(10);
/// How long it may take to answer a ping.
const PING_WAIT: Duration = Duration::from_secs(5);
/// How long after its exec it is not suspected at all.
const YOUNG: Duration = Duration::from_secs(30);

/// Why this supervisor was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Why {
    #[default]
    First = 0,
    Crash = 1,
    Upgrade = 2,
}

pub(super) struct Process {
    pub(super) pid: i32,
    pub(super) pidfd: OwnedFd,
    pub(super) begun: Instant,
}

/// Somebody asked whether it is alive.
struct Ping {
    until: Instant,
    /// It was found stopped, continued, and asked once more.
    again: bool,
}

/// All about the supervisor.
#[derive(Default)]
pub(super) struct Brain {
    pub(super) process: Option<Process>,
    pub(super) wire: Option<OwnedFd>,
    pub(super) attempt: u32,
    pub(super) why: Why,
    pub(super) ready: bool,
    pub(super) restoring: Option<u64>,
    pub(super) restoring_deaths: u32,
    /// It has ended, but a tracer has the status.
    pub(super) withheld: bool,
    pub(super) leaves: Option<(u64, String)>,
    start_at: Option<Instant>,
    pub(super) kill_at: Option<Instant>,
    pub(super) end_at: Option<Instant>,
    /// The signal that asked for the end.
    pub(super) end_signal: i32,
    /// The next one.
    pub(super) standby: Option<Standby>,
    /// The image before this one, until this one is steady.
    pub(super) former: Option<Former>,
    /// Why the last upgrade was taken back; empty when it was not.
    pub(super) taken_back: String,
    ping: Option<Ping>,
    pings: u32,
}

impl Brain {
    pub(super) fn is(&self, pid: i32) -> bool {
        let next = self.standby.as_ref().map(|it| &it.process);
        let mut all = self.process.iter().chain(next);
        all.any(|it| it.pid == pid)
    }

    /// It serves clients.
    pub(super) fn serves(&mut self) {
        self.ready = true;
        if let Some(former) = &mut self.former {
            former.outdone();
        }
    }

    /// The nearest time at which something is to be done.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let ping = self.ping.as_ref().map(|ping| ping.until);
        let standby = self.standby.as_ref().and_then(|it| it.until);
        let trial = self.former.as_ref().and_then(|it| it.until);
        let all = [
            self.start_at,
            self.kill_at,
            self.end_at,
            ping,
            standby,
            trial,
        ];
        all.into_iter().flatten().min()
    }

    /// It has run well: the crashes before it do not count any more.
    pub(super) fn steady(&mut self) {
        self.attempt = 1;
        self.restoring_deaths = 0;
        self.former = None;
    }

    /// It answers, so it is alive.
    pub(super) fn answered(&mut self) {
        self.ping = None;
    }

    pub(super) fn kill(&self) {
        if let Some(process) = &self.process {
            // It may be dead already.
            let _ = kernel::signal(process.pidfd.as_fd(), libc::SIGKILL);
        }
    }
}

impl Keeper {
    /// Starts the supervisor, as attempt 1 or the next one.
    pub(super) fn start_supervisor(&mut self) {
        self.brain.start_at = None;
        self.brain.attempt += 1;
        if let Err(error) = self.try_start_supervisor() {
            let text = format!("the supervisor cannot be started: {error}");
            self.house.log("error", &text);
            self.start_later(&text);
        }
    }

    fn try_start_supervisor(&mut self) -> io::Result<()> {
        let image = self.house.image.as_fd();
        let (process, wire) = self.raise(image, Token::Supervisor, Token::Wire)?;
        self.brain.process = Some(process);
        self.brain.wire = Some(wire);
        self.notice(Notice::Hello);
        self.tell();
        Ok(())
    }

    /// Executes an image with a wire of its own, and watches both.
    pub(super) fn raise(
        &self,
        image: BorrowedFd<'_>,
        death: Token,
        says: Token,
    ) -> io::Result<(Process, OwnedFd)> {
        let (ours, theirs) = kernel::packet_pair()?;
        let ours = kernel::lift(ours)?;
        let theirs = kernel::lift(theirs)?;
        let (pid, pidfd) = self.execute(image, &theirs)?;
        let pidfd = kernel::lift_or_keep(pidfd);
        let watched = self
            .epoll
            .add(pidfd.as_fd(), libc::EPOLLIN, death.pack())
            .and_then(|()| self.epoll.add(ours.as_fd(), libc::EPOLLIN, says.pack()));
        if let Err(error) = watched {
            let _ = kernel::signal(pidfd.as_fd(), libc::SIGKILL);
            return Err(error);
        }
        let begun = Instant::now();
        Ok((Process { pid, pidfd, begun }, ours))
    }

    /// Forks and executes an image that is held open: a restarted supervisor is always of the
    /// same build, even when the file is gone.
    fn execute(&self, image: BorrowedFd<'_>, wire: &OwnedFd) -> io::Result<(i32, OwnedFd)> {
        let words = self.house.options.supervise.iter();
        let argv: Vec<CString> = words
            .map(|word| CString::new(word.as_bytes()))
            .collect::<Result<_, _>>()?;
        let mut pointers: Vec<_> = argv.iter().map(|word| word.as_ptr()).collect();
        pointers.push(std::ptr::null());
        let image = image.as_raw_fd();
        // SAFETY: the keeper has one thread; the child makes only the calls below. The
        // environment is ours, and nobody changes it.
        unsafe {
            if let Some(made) = kernel::clone(0)? {
                return Ok(made);
            }
            kernel::unmask();
            // All other descriptors close themselves at the exec.
            libc::dup2(wire.as_raw_fd(), 3);
            libc::syscall(
                libc::SYS_execveat,
                image,
                c"".as_ptr(),
                pointers.as_ptr(),
                environ,
                libc::AT_EMPTY_PATH,
            );
            libc::_exit(127)
        }
    }

    /// The supervisor's pidfd is readable.
    pub(super) fn supervisor_ended(&mut self) {
        let Some(process) = &self.brain.process else {
            return;
        };
        let Ok(Some(seen)) = kernel::wait(Whom::Pidfd(process.pidfd.as_fd()), true) else {
            let ended = kernel::readable([process.pidfd.as_fd()], Duration::ZERO);
            if matches!(ended, Ok([true])) {
                // A tracer withholds it; looked at again when a child has changed. Left
                // in the set, the level-triggered entry would spin.
                self.epoll.remove(process.pidfd.as_fd());
                self.brain.withheld = true;
            }
            return;
        };
        self.brain.withheld = false;
        // What it had sent before it died is carried out: it may be its farewell.
        self.take_last_orders();
        if let Some(process) = self.brain.process.take() {
            self.epoll.remove(process.pidfd.as_fd());
            let _ = kernel::wait(Whom::Pidfd(process.pidfd.as_fd()), false);
        }
        self.wire_gone();
        self.brain.kill_at = None;
        self.brain.ping = None;
        self.brain.ready = false;
        let how = match (seen.code, seen.signal) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, signal) => format!("was ended by signal {}", signal.unwrap_or(0)),
        };
        self.after_supervisor(&how);
    }

    fn after_supervisor(&mut self, how: &str) {
        self.note_restoring();
        let leaves = self.brain.leaves.take();
        if matches!(leaves, Some((wire::LEAVE_UPGRADE, _))) && self.hand_over() {
            return;
        }
        self.drop_standby();
        match leaves {
            Some((wire::LEAVE_REFUSE, reason)) => {
                if !self.fall_back(&reason) {
                    self.finish = Some(Finish::left(reason));
                }
            }
            // The one that was to come has died meanwhile.
            Some((wire::LEAVE_UPGRADE, _)) => {
                self.brain.why = Why::Crash;
                self.brain.attempt = 0;
                self.start_supervisor();
            }
            Some(_) => self.finish = Some(Finish::left(String::new())),
            None if self.brain.end_at.is_some() => {
                self.finish = Some(Finish::cut_short(String::new()));
            }
            None => {
                self.brain.why = Why::Crash;
                let text = format!("the supervisor {how}");
                self.house.log("error", &text);
                let untried = self.brain.former.as_ref().is_some_and(Former::is_needed);
                if !(untried && self.fall_back(&text)) {
                    self.start_later(&text);
                }
            }
        }
    }

    /// Who died while restoring a job, and how often in a row.
    fn note_restoring(&mut self) {
        let job = self.house.take_restoring();
        let same = job.is_some() && job == self.brain.restoring;
        self.brain.restoring_deaths = match job {
            Some(_) if same => self.brain.restoring_deaths + 1,
            Some(_) => 1,
            None => 0,
        };
        self.brain.restoring = job;
    }

    /// The next attempt: at once, after a wait, or never.
    fn start_later(&mut self, text: &str) {
        let next = self.brain.attempt + 1;
        if next > MOST_ATTEMPTS {
            let reason = format!("{text}, {} times in a row", self.brain.attempt);
            if !self.fall_back(&reason) {
                self.finish = Some(Finish::cut_short(reason));
            }
        } else if next <= 2 {
            self.start_supervisor();
        } else {
            self.brain.start_at = Some(Instant::now() + FIRST_WAIT * (1 << (next - 3)));
        }
    }

    /// The other end of the socket is closed. That alone proves nothing, so it gets a second.
    pub(super) fn wire_lost(&mut self) {
        self.wire_gone();
        if self.brain.process.is_some() {
            let at = Instant::now() + CLOSED_WAIT;
            self.brain.kill_at = Some(self.brain.kill_at.map_or(at, |before| before.min(at)));
        }
    }

    fn wire_gone(&mut self) {
        if let Some(wire) = self.brain.wire.take() {
            self.epoll.remove(wire.as_fd());
        }
        self.tell_nothing();
    }

    /// LEAVE: it will exit, and what is to come after it.
    pub(super) fn supervisor_leaves(&mut self, message: Message) {
        let why = message.frame.args[0];
        match why {
            wire::LEAVE_UPGRADE => return self.prepare(message),
            wire::LEAVE_STAY => return self.call_off(),
            _ => self.drop_standby(),
        }
        self.brain.kill_at = Some(Instant::now() + END_WAIT);
        let reason = String::from_utf8_lossy(&message.payload).into_owned();
        if why == wire::LEAVE_REFUSE {
            // Before its end: one that hangs in the kernel behind a disk that is gone cannot even end.
            self.house.announce(&format!("failed: {reason}"));
        }
        self.brain.leaves = Some((why, reason));
    }

    /// TERM, INT or HUP came to the keeper.
    pub(super) fn asked_to_end(&mut self, number: i32) {
        self.house
            .log("info", &format!("asked to end by signal {number}"));
        if self.brain.process.is_none() {
            self.finish = Some(Finish::cut_short(String::new()));
        } else if self.brain.end_at.is_none() {
            self.brain.end_at = Some(Instant::now() + END_WAIT);
            self.brain.end_signal = number;
            self.notice(Notice::Term(number));
        }
    }

    /// A client got no answer (SIGUSR1).
    pub(super) fn look_after_supervisor(&mut self) {
        if !self.house.reachable() {
            match self.house.rebind() {
                Ok(()) => self.notice(Notice::Listener),
                Err(reason) => self
                    .house
                    .log("error", &format!("not bound again: {reason}")),
            }
        }
        let old = |process: &Process| process.begun.elapsed() >= YOUNG;
        let suspect = self.brain.ready && self.brain.process.as_ref().is_some_and(old);
        if suspect && self.brain.ping.is_none() {
            self.ping(false);
        }
    }

    fn ping(&mut self, again: bool) {
        let until = Instant::now() + PING_WAIT;
        self.brain.ping = Some(Ping { until, again });
        self.brain.pings += 1;
        self.notice(Notice::Ping(self.brain.pings));
    }

    /// Does what is due.
    pub(super) fn see_deadlines(&mut self, now: Instant) {
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if due(self.brain.start_at) {
            self.start_supervisor();
        }
        if due(self.brain.kill_at) {
            self.brain.kill_at = None;
            self.brain.kill();
        }
        if due(self.brain.standby.as_ref().and_then(|it| it.until)) {
            self.standby_late();
        }
        if due(self.brain.former.as_ref().and_then(|it| it.until)) {
            self.trial_over();
        }
        if due(self.brain.end_at) {
            // It is killed with everything else.
            self.finish = Some(Finish::cut_short(String::new()));
        }
        if due(self.brain.ping.as_ref().map(|ping| ping.until)) {
            self.unanswered();
        }
    }

    /// No answer to a ping: traced is left alone, stopped is continued once, hung is killed.
    fn unanswered(&mut self) {
        let Some(ping) = self.brain.ping.take() else {
            return;
        };
        let Some(process) = &self.brain.process else {
            return;
        };
        let (state, traced) = state(process.pid);
        if traced {
            return;
        }
        if state == 'T' && !ping.again {
            let _ = kernel::signal(process.pidfd.as_fd(), libc::SIGCONT);
            return self.ping(true);
        }
        self.house
            .log("error", "the supervisor does not answer and is replaced");
        self.brain.kill();
    }
}

/// State letter of a process and whether somebody traces it.
fn state(pid: i32) -> (char, bool) {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let value = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.map_or("", str::trim)
    };
    let letter = value("State:").chars().next().unwrap_or('?');
    (letter, !matches!(value("TracerPid:"), "" | "0"))
}

unsafe extern "C" {
    /// The process's environment, as the C library keeps it.
    static environ: *const *const libc::c_char;
}
