//! An upgrade: the next supervisor waits, executed and with its libraries loaded, before this one leaves.
//!
//! ```text
//!   LEAVE (upgrade, image) -> execute it -> it says STANDBY -> tell the old one STANDBY, it exits (or is killed after 1 s)
//!                                  |                            -> HELLO to the new one, whose image is kept
//!                                  +-- it dies, or is late: the old one is told why, and goes on
//! ```
//!
//! There is one wire to one supervisor at any moment: the one in standby has read nothing and is told nothing. The image
//! before is kept until the new one is steady. A new one that never served, or that dies for the sixth time, is given up
//! for it once.

use super::brain::{CLOSED_WAIT, Process, Why};
use super::kernel::{self, Whom};
use super::tell::Notice;
use super::turn::{Keeper, Token};
use super::wire::{self, Message, Op};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long the next supervisor may take until it waits for its turn.
const STANDBY_WAIT: Duration = Duration::from_secs(5);
/// How long a new image may take until it serves clients for the first time.
const TRIAL: Duration = Duration::from_secs(10);

/// The next supervisor.
pub(super) struct Standby {
    image: OwnedFd,
    pub(super) process: Process,
    wire: OwnedFd,
    /// Until when it is to say that it waits; `None` when it has.
    pub(super) until: Option<Instant>,
}

/// The image before an upgrade.
pub(super) struct Former {
    image: OwnedFd,
    /// Until when the new one is to serve clients; `None` when it has.
    pub(super) until: Option<Instant>,
}

impl Former {
    /// The new one serves.
    pub(super) fn outdone(&mut self) {
        self.until = None;
    }

    /// The new one has never served.
    pub(super) fn is_needed(&self) -> bool {
        self.until.is_some()
    }
}

impl Keeper {
    /// LEAVE for an upgrade: executes the image that came along.
    pub(super) fn prepare(&mut self, message: Message) {
        let Some(image) = message.files.into_iter().next() else {
            return self.notice(Notice::Standby(Some("its image did not arrive".into())));
        };
        self.drop_standby();
        self.brain.taken_back.clear();
        let image = kernel::lift_or_keep(image);
        match self.raise(image.as_fd(), Token::Standby, Token::StandbyWire) {
            Ok((process, wire)) => {
                self.brain.standby = Some(Standby {
                    image,
                    process,
                    wire,
                    until: Some(Instant::now() + STANDBY_WAIT),
                });
            }
            Err(error) => self.give_up(&format!("it cannot be executed: {error}")),
        }
    }

    /// Something came over its wire, or that was closed.
    pub(super) fn standby_speaks(&mut self) {
        let Some(standby) = &mut self.brain.standby else {
            return;
        };
        match self.inbox.receive(standby.wire.as_fd()) {
            Ok(Some(message)) if message.frame.op() == Some(Op::Standby) => {
                standby.until = None;
                self.brain.leaves = Some((wire::LEAVE_UPGRADE, String::new()));
                // It goes by itself; killing it would lose nothing either.
                self.brain.kill_at = Some(Instant::now() + CLOSED_WAIT);
                self.notice(Notice::Standby(None));
            }
            Ok(None) => {
                // Dead, most likely, which is told in a moment with its reason.
                self.epoll.remove(standby.wire.as_fd());
                standby.until = Some(Instant::now() + CLOSED_WAIT);
            }
            // Nothing else is listened to before its turn.
            Ok(Some(_)) | Err(_) => {}
        }
    }

    /// Its pidfd is readable.
    pub(super) fn standby_ended(&mut self) {
        let Some(standby) = &self.brain.standby else {
            return;
        };
        let pidfd = standby.process.pidfd.as_fd();
        let how = match kernel::wait(Whom::Pidfd(pidfd), false) {
            Ok(Some(seen)) => match (seen.code, seen.signal) {
                // What `execute` leaves behind when the kernel takes no such program.
                (Some(127), _) => "it cannot be executed here".to_owned(),
                (Some(code), _) => format!("it ended with code {code}"),
                (None, signal) => format!("it was ended by signal {}", signal.unwrap_or(0)),
            },
            _ => "it ended".into(),
        };
        self.give_up(&how);
    }

    /// It does not say that it waits.
    pub(super) fn standby_late(&mut self) {
        self.give_up("it was not ready in time");
    }

    /// The supervisor that asked for the upgrade goes on, and is told why.
    fn give_up(&mut self, why: &str) {
        self.call_off();
        self.house
            .log("error", &format!("the new supervisor does not come: {why}"));
        // For the case that the old one was already on its way out.
        self.brain.taken_back = why.into();
        self.notice(Notice::Standby(Some(why.into())));
    }

    /// No upgrade after all.
    pub(super) fn call_off(&mut self) {
        self.drop_standby();
        if matches!(self.brain.leaves, Some((wire::LEAVE_UPGRADE, _))) {
            self.brain.leaves = None;
            self.brain.kill_at = None;
        }
    }

    /// Ends the one in standby, if there is one. It is buried as a stray.
    pub(super) fn drop_standby(&mut self) {
        if let Some(standby) = self.brain.standby.take() {
            self.epoll.remove(standby.process.pidfd.as_fd());
            self.epoll.remove(standby.wire.as_fd());
            // It may be dead already.
            let _ = kernel::signal(standby.process.pidfd.as_fd(), libc::SIGKILL);
        }
    }

    /// The old supervisor is gone: the one in standby has its turn. False when there is none.
    pub(super) fn hand_over(&mut self) -> bool {
        let Some(standby) = self.brain.standby.take() else {
            return false;
        };
        if let Err(error) = self.watch_as_supervisor(&standby) {
            self.brain.standby = Some(standby);
            self.give_up(&format!("it cannot be watched: {error}"));
            return false;
        }
        self.house.log("info", "the next supervisor takes over");
        self.brain.former = Some(Former {
            image: std::mem::replace(&mut self.house.image, standby.image),
            until: Some(Instant::now() + TRIAL),
        });
        self.brain.process = Some(standby.process);
        self.brain.wire = Some(standby.wire);
        self.brain.why = Why::Upgrade;
        self.brain.attempt = 1;
        self.notice(Notice::Hello);
        if self.brain.end_at.is_some() {
            // The old one took that along.
            self.notice(Notice::Term(self.brain.end_signal));
        }
        self.tell();
        true
    }

    fn watch_as_supervisor(&self, standby: &Standby) -> std::io::Result<()> {
        let (pidfd, wire) = (standby.process.pidfd.as_fd(), standby.wire.as_fd());
        self.epoll
            .change(pidfd, libc::EPOLLIN, Token::Supervisor.pack())?;
        self.epoll.change(wire, libc::EPOLLIN, Token::Wire.pack())
    }

    /// Goes on with the image before the upgrade. False when there is none.
    pub(super) fn fall_back(&mut self, why: &str) -> bool {
        let Some(former) = self.brain.former.take() else {
            return false;
        };
        self.house
            .log("error", &format!("the upgrade is taken back: {why}"));
        self.house.image = former.image;
        self.brain.taken_back = why.into();
        self.brain.why = Why::Crash;
        self.brain.attempt = 0;
        self.start_supervisor();
        true
    }

    /// The new one does not serve: its death lets the one before come back.
    pub(super) fn trial_over(&mut self) {
        if let Some(former) = &mut self.brain.former {
            // Once; it stays one that has never served.
            former.until = Some(Instant::now() + TRIAL);
        }
        let seconds = TRIAL.as_secs();
        let text = format!("the new supervisor does not serve after {seconds} s and is killed");
        self.house.log("error", &text);
        self.brain.kill();
    }
}
