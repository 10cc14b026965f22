//! The life of a job as a table: pure, every cell tested. `life` feeds it and does what it says.
//!
//! ```text
//!             exec ok   exec failed  main ended     tree empty      output closed  deadline        wanted rises
//! starting    running   over         bury,draining  note            note           want (timeout)  polite,stopping
//! running     -         -            bury,draining  note            note           want (timeout)  polite,stopping
//! stopping    -         over         keep zombie    bury,draining   note           force           earlier deadline;
//!                                                                                                 withstood: polite
//! draining    -         -            -              note            publish        publish         publish,polite
//! held        -         -            -              close,over      note           force           polite
//! over        -         -            -              -               -              -               -
//! ```
//!
//! `publish` happens once and leads to *over* if the tree is empty, else to *held* (exited, members left).

use ostler_proto::limits;

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Starting,
    Running,
    /// The leader's zombie is kept, so that its number stays ours until the tree is gone. Neither a deadline nor
    /// forced: the forced end was withstood.
    Stopping {
        force_at: Option<u64>,
        forced: bool,
    },
    Draining {
        until: u64,
    },
    /// The result stands and members are left; `force_at` once somebody wants these to end as well.
    Held {
        force_at: Option<u64>,
    },
    Over,
}

/// All that the table knows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) phase: Phase,
    pub(crate) main_ended: bool,
    pub(crate) tree_empty: bool,
    pub(crate) output_closed: bool,
    pub(crate) timeout_at: Option<u64>,
}

/// What can happen to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    ExecOk,
    ExecFailed,
    MainEnded,
    TreeEmpty,
    OutputClosed,
    Deadline,
    /// The forced end is over, and somebody is left.
    Withstood,
    /// Somebody wants its end; force is allowed from `force_at` on.
    Wanted {
        force_at: u64,
    },
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Raise *wanted* because the time limit passed.
    WantTimeout,
    /// TERM and CONT to every member.
    Polite,
    /// Freeze, scan, kill until nothing is left.
    Force,
    /// Reap the leader: its number may be used again from here on.
    Bury,
    /// The result stands.
    Publish,
    /// The job never ran.
    PublishFailure,
    /// Close the reading ends, forget the job in the keeper, give the place back.
    Close,
}

/// At most three actions follow one event.
pub(crate) type Actions = Vec<Action>;

impl Life {
    pub(crate) fn new(timeout_at: Option<u64>) -> Self {
        Self {
            phase: Phase::Starting,
            main_ended: false,
            tree_empty: false,
            output_closed: false,
            timeout_at,
        }
    }

    /// The next moment at which time itself is an event.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.phase {
            Phase::Starting | Phase::Running => self.timeout_at,
            Phase::Stopping {
                force_at,
                forced: false,
            } => force_at,
            Phase::Draining { until } => Some(until),
            Phase::Held { force_at } => force_at,
            Phase::Stopping { forced: true, .. } | Phase::Over => None,
        }
    }
}

/// One cell of the table.
pub(crate) fn step(mut life: Life, now: u64, event: Event) -> (Life, Actions) {
    let actions = match event {
        Event::ExecOk => {
            if life.phase == Phase::Starting {
                life.phase = Phase::Running;
            }
            vec![]
        }
        Event::ExecFailed => exec_failed(&mut life),
        Event::MainEnded => {
            life.main_ended = true;
            main_ended(&mut life, now)
        }
        Event::TreeEmpty => {
            life.tree_empty = true;
            tree_empty(&mut life, now)
        }
        Event::OutputClosed => {
            life.output_closed = true;
            if matches!(life.phase, Phase::Draining { .. }) {
                publish(&mut life)
            } else {
                vec![]
            }
        }
        Event::Deadline => deadline(&mut life),
        Event::Withstood => withstood(&mut life),
        Event::Wanted { force_at } => wanted(&mut life, force_at),
    };
    (life, actions)
}

fn exec_failed(life: &mut Life) -> Actions {
    match life.phase {
        Phase::Starting | Phase::Stopping { .. } => {
            life.phase = Phase::Over;
            vec![Action::PublishFailure]
        }
        _ => vec![],
    }
}

fn main_ended(life: &mut Life, now: u64) -> Actions {
    match life.phase {
        Phase::Starting | Phase::Running => drain(life, now),
        // The tree may be known to be empty before the end of its leader is told.
        Phase::Stopping { .. } if life.tree_empty => drain(life, now),
        _ => vec![],
    }
}

fn tree_empty(life: &mut Life, now: u64) -> Actions {
    match life.phase {
        Phase::Stopping { .. } if life.main_ended => drain(life, now),
        Phase::Held { .. } => {
            life.phase = Phase::Over;
            vec![Action::Close]
        }
        _ => vec![],
    }
}

fn drain(life: &mut Life, now: u64) -> Actions {
    life.phase = Phase::Draining {
        until: now + limits::drain(),
    };
    let mut actions = vec![Action::Bury];
    if life.output_closed {
        actions.extend(publish(life));
    }
    actions
}

fn publish(life: &mut Life) -> Actions {
    if life.tree_empty {
        life.phase = Phase::Over;
        vec![Action::Publish, Action::Close]
    } else {
        life.phase = Phase::Held { force_at: None };
        vec![Action::Publish]
    }
}

fn deadline(life: &mut Life) -> Actions {
    match &mut life.phase {
        Phase::Starting | Phase::Running => {
            life.timeout_at = None;
            vec![Action::WantTimeout]
        }
        Phase::Stopping {
            force_at: Some(_),
            forced,
        } if !*forced => {
            *forced = true;
            vec![Action::Force]
        }
        Phase::Draining { .. } => publish(life),
        Phase::Held { force_at } if force_at.is_some() => {
            *force_at = None;
            vec![Action::Force]
        }
        _ => vec![],
    }
}

fn withstood(life: &mut Life) -> Actions {
    if let Phase::Stopping { force_at, forced } = &mut life.phase {
        (*force_at, *forced) = (None, false);
    }
    vec![]
}

fn wanted(life: &mut Life, wanted_at: u64) -> Actions {
    match &mut life.phase {
        Phase::Starting | Phase::Running => {
            life.phase = Phase::Stopping {
                force_at: Some(wanted_at),
                forced: false,
            };
            vec![Action::Polite]
        }
        Phase::Stopping {
            force_at: Some(force_at),
            ..
        } => {
            *force_at = wanted_at.min(*force_at);
            vec![]
        }
        // Asked again after it was withstood.
        Phase::Stopping { force_at, .. } => {
            *force_at = Some(wanted_at);
            vec![Action::Polite]
        }
        Phase::Draining { .. } => {
            let mut actions = publish(life);
            if let Phase::Held { force_at } = &mut life.phase {
                *force_at = Some(wanted_at);
                actions.push(Action::Polite);
            }
            actions
        }
        Phase::Held { force_at } => {
            *force_at = Some(force_at.map_or(wanted_at, |at| at.min(wanted_at)));
            vec![Action::Polite]
        }
        Phase::Over => vec![],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_000;
    const UNTIL: u64 = NOW + 200;

    fn at(phase: Phase) -> Life {
        Life {
            phase,
            main_ended: false,
            tree_empty: false,
            output_closed: false,
            timeout_at: Some(9),
        }
    }

    fn check(life: Life, event: Event, phase: Phase, actions: &[Action]) {
        let (after, did) = step(life, NOW, event);
        assert_eq!(
            (after.phase, did.as_slice()),
            (phase, actions),
            "{life:?} {event:?}"
        );
    }

    #[test]
    fn starting() {
        use Phase::*;
        let l = at(Starting);
        check(l, Event::ExecOk, Running, &[]);
        check(l, Event::ExecFailed, Over, &[Action::PublishFailure]);
        check(
            l,
            Event::MainEnded,
            Draining { until: UNTIL },
            &[Action::Bury],
        );
        check(l, Event::TreeEmpty, Starting, &[]);
        check(l, Event::OutputClosed, Starting, &[]);
        check(l, Event::Deadline, Starting, &[Action::WantTimeout]);
        check(
            l,
            Event::Wanted { force_at: 5 },
            Stopping {
                force_at: Some(5),
                forced: false,
            },
            &[Action::Polite],
        );
    }

    #[test]
    fn running() {
        use Phase::*;
        let l = at(Running);
        check(l, Event::ExecOk, Running, &[]);
        check(l, Event::ExecFailed, Running, &[]);
        check(
            l,
            Event::MainEnded,
            Draining { until: UNTIL },
            &[Action::Bury],
        );
        check(l, Event::TreeEmpty, Running, &[]);
        check(l, Event::OutputClosed, Running, &[]);
        check(l, Event::Deadline, Running, &[Action::WantTimeout]);
        check(
            l,
            Event::Wanted { force_at: 5 },
            Stopping {
                force_at: Some(5),
                forced: false,
            },
            &[Action::Polite],
        );
        let closed = Life {
            output_closed: true,
            tree_empty: true,
            ..l
        };
        check(
            closed,
            Event::MainEnded,
            Over,
            &[Action::Bury, Action::Publish, Action::Close],
        );
    }

    #[test]
    fn stopping_keeps_the_zombie_until_the_tree_is_empty() {
        use Phase::*;
        let s = Stopping {
            force_at: Some(50),
            forced: false,
        };
        let l = at(s);
        check(l, Event::ExecOk, s, &[]);
        check(l, Event::ExecFailed, Over, &[Action::PublishFailure]);
        check(l, Event::MainEnded, s, &[]);
        check(l, Event::TreeEmpty, s, &[]);
        check(l, Event::OutputClosed, s, &[]);
        check(
            l,
            Event::Deadline,
            Stopping {
                force_at: Some(50),
                forced: true,
            },
            &[Action::Force],
        );
        check(
            l,
            Event::Wanted { force_at: 9 },
            Stopping {
                force_at: Some(9),
                forced: false,
            },
            &[],
        );
        check(l, Event::Wanted { force_at: 99 }, s, &[]);
        let dead = Life {
            main_ended: true,
            ..l
        };
        check(
            dead,
            Event::TreeEmpty,
            Draining { until: UNTIL },
            &[Action::Bury],
        );
        let empty = Life {
            tree_empty: true,
            ..l
        };
        check(
            empty,
            Event::MainEnded,
            Draining { until: UNTIL },
            &[Action::Bury],
        );
        let forced = at(Stopping {
            force_at: Some(50),
            forced: true,
        });
        check(
            forced,
            Event::Deadline,
            Stopping {
                force_at: Some(50),
                forced: true,
            },
            &[],
        );
        assert_eq!(forced.deadline(), None);
    }

    #[test]
    fn what_withstood_waits_for_its_end_or_for_somebody_who_asks_again() {
        use Phase::*;
        let stopping = |force_at, forced| Stopping { force_at, forced };
        let (forced, withstood) = (at(stopping(Some(50), true)), at(stopping(None, false)));
        check(forced, Event::Withstood, withstood.phase, &[]);
        assert_eq!(withstood.deadline(), None);
        check(withstood, Event::Deadline, withstood.phase, &[]);
        check(
            withstood,
            Event::Wanted { force_at: 99 },
            stopping(Some(99), false),
            &[Action::Polite],
        );
        check(
            Life {
                main_ended: true,
                ..withstood
            },
            Event::TreeEmpty,
            Draining { until: UNTIL },
            &[Action::Bury],
        );
        for phase in [Running, Held { force_at: None }, Over] {
            check(at(phase), Event::Withstood, phase, &[]);
        }
    }

    #[test]
    fn draining() {
        use Phase::*;
        let d = Draining { until: 7 };
        let l = Life {
            main_ended: true,
            ..at(d)
        };
        check(l, Event::ExecOk, d, &[]);
        check(l, Event::ExecFailed, d, &[]);
        check(l, Event::MainEnded, d, &[]);
        check(l, Event::TreeEmpty, d, &[]);
        check(
            l,
            Event::OutputClosed,
            Held { force_at: None },
            &[Action::Publish],
        );
        check(
            l,
            Event::Deadline,
            Held { force_at: None },
            &[Action::Publish],
        );
        check(
            l,
            Event::Wanted { force_at: 5 },
            Held { force_at: Some(5) },
            &[Action::Publish, Action::Polite],
        );
        let empty = Life {
            tree_empty: true,
            ..l
        };
        check(
            empty,
            Event::OutputClosed,
            Over,
            &[Action::Publish, Action::Close],
        );
        check(
            empty,
            Event::Deadline,
            Over,
            &[Action::Publish, Action::Close],
        );
        check(
            empty,
            Event::Wanted { force_at: 5 },
            Over,
            &[Action::Publish, Action::Close],
        );
    }

    #[test]
    fn held_and_over() {
        use Phase::*;
        let h = Held { force_at: None };
        let l = Life {
            main_ended: true,
            ..at(h)
        };
        check(l, Event::TreeEmpty, Over, &[Action::Close]);
        check(
            l,
            Event::Wanted { force_at: 5 },
            Held { force_at: Some(5) },
            &[Action::Polite],
        );
        let asked = Life {
            phase: Held { force_at: Some(5) },
            ..l
        };
        check(
            asked,
            Event::Wanted { force_at: 9 },
            Held { force_at: Some(5) },
            &[Action::Polite],
        );
        check(asked, Event::Deadline, h, &[Action::Force]);
        assert_eq!((l.deadline(), asked.deadline()), (None, Some(5)));
        for e in [
            Event::ExecOk,
            Event::ExecFailed,
            Event::MainEnded,
            Event::OutputClosed,
            Event::Deadline,
        ] {
            check(l, e, h, &[]);
        }
        for e in [
            Event::ExecOk,
            Event::ExecFailed,
            Event::MainEnded,
            Event::TreeEmpty,
            Event::OutputClosed,
            Event::Deadline,
            Event::Wanted { force_at: 5 },
        ] {
            check(at(Over), e, Over, &[]);
        }
    }

    #[test]
    fn every_order_of_events_publishes_once() {
        const EVENTS: [Event; 8] = [
            Event::ExecOk,
            Event::ExecFailed,
            Event::MainEnded,
            Event::TreeEmpty,
            Event::OutputClosed,
            Event::Deadline,
            Event::Withstood,
            Event::Wanted { force_at: 5 },
        ];
        // All sequences of six events.
        for mut code in 0..8_u32.pow(6) {
            let (mut life, mut published, mut closed, mut buried) = (Life::new(Some(1)), 0, 0, 0);
            for _ in 0..6 {
                let (next, actions) = step(life, NOW, EVENTS[(code % 8) as usize]);
                code /= 8;
                for action in actions {
                    match action {
                        Action::Publish | Action::PublishFailure => published += 1,
                        Action::Close => {
                            assert_eq!(published, 1, "closed before it was published");
                            closed += 1;
                        }
                        Action::Bury => {
                            assert!(next.main_ended, "buried alive");
                            buried += 1;
                        }
                        _ => {}
                    }
                }
                life = next;
            }
            assert!(published <= 1 && closed <= 1 && buried <= 1);
            assert_eq!(
                published == 1,
                matches!(life.phase, Phase::Held { .. } | Phase::Over)
            );
        }
    }
}
