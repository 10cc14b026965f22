//! The stop of what was sent to a shell: whoever is in front of it is interrupted, after the grace killed, and the
//! shell itself never ended.

use std::{collections::BTreeSet, ops::ControlFlow, sync::Arc, time::Duration};

use ostler_proto::{
    job::{State, Survivor},
    limits,
};

use super::exec;
use crate::{
    clock,
    job::{Job, Level, Stopped, Who},
    terminal::{
        dialect::ShellSpec,
        proof::{self, Place},
    },
};

/// Who is in front may change while what was sent is interrupted: it is looked at again after this time. Only then.
pub(super) const AGAIN: Duration = Duration::from_millis(50);

/// What a stop has done so far.
#[derive(Debug, Default)]
pub(super) struct Interrupt {
    /// Why; none while nobody wants it.
    who: Option<Who>,
    /// Groups that were asked to end.
    asked: BTreeSet<u32>,
    forced: BTreeSet<u32>,
    stopped: Stopped,
}

impl Interrupt {
    /// Somebody wants the end, for the first time or again.
    pub(super) fn begin(&mut self, job: &Job) {
        self.who.clone_from(&job.wanted().borrow().who);
        if std::mem::take(&mut self.stopped.done) {
            // The first try was withstood.
            self.asked.clear();
            self.stopped.survivors.clear();
        }
        job.publish(|s| s.state = State::Stopping);
    }

    /// Who wanted it first.
    pub(super) fn who(&self) -> Option<&Who> {
        self.who.as_ref()
    }

    /// There is something to do yet.
    pub(super) fn goes_on(&self) -> bool {
        self.who.is_some() && !self.stopped.done
    }

    /// Looks who is in front, and asks or forces them to end. `due`: what was sent runs there. Breaks where nobody is
    /// to be ended and nothing to be waited for.
    pub(super) async fn step(
        &mut self,
        shell: &Arc<Job>,
        job: &Job,
        due: bool,
        is_text: bool,
    ) -> ControlFlow<()> {
        let force_at = job.wanted().borrow().force_at;
        let now = clock::mono();
        let place = shell.place().map(|(place, _)| place);
        if now >= force_at.saturating_add(limits::force_wait()) {
            self.name_survivor(place, job);
            return ControlFlow::Continue(());
        }
        let Some(place) = place.filter(|_| due) else {
            return ControlFlow::Continue(());
        };
        let force = now >= force_at;
        let own = place.group == place.leader;
        let takes_it = !own || may_interrupt(shell, place.leader);
        let idle = if is_text {
            // Whoever took the text is the program of the shell itself, and goes on.
            own && (force || !takes_it)
        } else {
            // Its marks were thrown away.
            let talk = shell.talk.as_ref().filter(|_| own && force);
            match talk {
                Some(talk) => exec::proven(shell, talk).await.is_ok(),
                None => false,
            }
        };
        if idle {
            return ControlFlow::Break(());
        }
        let signal = if force && !own {
            libc::SIGKILL
        } else {
            libc::SIGINT
        };
        if takes_it && (self.asked.insert(place.group) || force) {
            self.signal(shell, place, signal).await;
        }
        ControlFlow::Continue(())
    }

    async fn signal(&mut self, shell: &Job, place: Place, signal: i32) {
        let members = tokio::task::spawn_blocking(move || proof::members(place)).await;
        let mut members = members.unwrap_or_default();
        members.retain(|pid| *pid != place.leader);
        if shell.place().is_none_or(|(now, _)| now != place) {
            // It has ended meanwhile, and its number may be anybody's.
            return;
        }
        // SAFETY: kill has no memory precondition; the group is in front of a terminal whose leader lives, and is never
        // 0, 1 or our own.
        if unsafe { libc::kill(-(place.group as i32), signal) } != 0 {
            return;
        }
        if signal == libc::SIGKILL {
            self.forced.extend(&members);
        }
        for pid in members {
            if !self.stopped.seen.contains(&pid) {
                self.stopped.seen.push(pid);
            }
        }
    }

    /// Neither has helped.
    fn name_survivor(&mut self, place: Option<Place>, job: &Job) {
        let pid = place.map_or(0, |place| place.group);
        self.stopped.survivors = vec![Survivor {
            pid,
            program: proof::program(pid),
            why: "does not react".into(),
        }];
        let stopped = self.receipt(job);
        job.publish(|s| s.stopped = stopped);
    }

    /// What it did, if there was one.
    pub(super) fn receipt(&mut self, job: &Job) -> Option<Stopped> {
        let wanted = job.wanted();
        let wanted = wanted.borrow();
        if wanted.level == Level::Run {
            return None;
        }
        self.stopped.forced = self.forced.len() as u32;
        self.stopped.took_ms = clock::mono().saturating_sub(wanted.since);
        self.stopped.done = true;
        Some(self.stopped.clone())
    }
}

/// The shell itself is in front and goes on after an interrupt: it is one whose prompts are ours, and has not become
/// another program. What else catches the signal may do so to end.
fn may_interrupt(shell: &Job, leader: u32) -> bool {
    let spec = shell.spec.shell.as_ref();
    spec.is_some_and(ShellSpec::takes_lines) && proof::withstands(leader, libc::SIGINT)
}
