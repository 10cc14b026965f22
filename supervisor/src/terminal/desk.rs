//! Who sits at a terminal: the people who are attached, the one who holds it, and how often somebody has typed.
//!
//! Pure: it knows no job, no connection and no byte.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use ostler_proto::{
    job::Size,
    refusal::{Refusal, RefusalKind},
};

/// The place before the terminal of one job. Copies are the same place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Desk {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    seats: Mutex<Seats>,
    typed: AtomicU64,
}

#[derive(Debug, Default)]
struct Seats {
    last: u64,
    /// In the order in which they came, or last asked for their window.
    taken: Vec<Seat>,
}

#[derive(Debug)]
struct Seat {
    number: u64,
    name: Option<String>,
    who: String,
    since_ms: u64,
    holds: bool,
    window: Option<Size>,
}

/// Who holds a terminal, so that nobody else may type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) who: String,
    /// Wall clock.
    pub(crate) since_ms: u64,
}

impl Holder {
    /// What somebody else is told who wants to type there.
    pub(crate) fn refusal(&self, id: &str) -> Refusal {
        let since = clock_time(self.since_ms);
        let words = format!("{id} is held by {} since {since}", self.who);
        Refusal::new(RefusalKind::Held, words)
            .with("holder", &self.who)
            .with("since", self.since_ms)
            .hint("wait until it is left, or only read")
    }
}

/// Hour and minute as the clock of this machine shows them.
fn clock_time(ms: u64) -> String {
    let seconds = libc::time_t::try_from(ms / 1_000).unwrap_or(0);
    let mut parts = std::mem::MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both places live for the call, and zeroes are a valid value if it fails.
    let parts = unsafe {
        libc::localtime_r(&raw const seconds, parts.as_mut_ptr());
        parts.assume_init()
    };
    format!("{:02}:{:02}", parts.tm_hour, parts.tm_min)
}

/// Somebody who wants to sit down.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guest {
    /// What people call it.
    pub(crate) who: String,
    /// A name that its other requests give, so that they are known for its own.
    pub(crate) seat: Option<String>,
    /// Nobody else may type meanwhile.
    pub(crate) take: bool,
    /// Its window, if the job's is to follow it.
    pub(crate) window: Option<Size>,
}

/// A seat that is taken; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seated {
    desk: Desk,
    number: u64,
}

impl Desk {
    /// Takes a seat. One of the same name is taken over: its client has come back before its old connection was
    /// known to be gone.
    ///
    /// # Errors
    /// The guest wants to hold the terminal and somebody else does.
    pub(crate) fn attach(&self, guest: Guest, now_ms: u64) -> Result<Seated, Holder> {
        let mut seats = self.seats();
        seats.taken.retain(|s| !s.is(guest.seat.as_deref()));
        if guest.take
            && let Some(holder) = seats.holder()
        {
            return Err(holder);
        }
        seats.last += 1;
        let number = seats.last;
        seats.taken.push(Seat {
            number,
            name: guest.seat,
            who: guest.who,
            since_ms: now_ms,
            holds: guest.take,
            window: guest.window,
        });
        Ok(Seated {
            desk: self.clone(),
            number,
        })
    }

    /// Who holds it, if somebody does.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.seats().holder()
    }

    /// Whether somebody may type who gives this name of a seat, or none.
    ///
    /// # Errors
    /// Somebody else holds it.
    pub(crate) fn may_type(&self, seat: Option<&str>) -> Result<(), Holder> {
        let seats = self.seats();
        let own = seats.taken.iter().any(|s| s.holds && s.is(seat));
        match seats.holder() {
            Some(holder) if !own => Err(holder),
            _ => Ok(()),
        }
    }

    /// How many are attached.
    pub(crate) fn attached(&self) -> usize {
        self.seats().taken.len()
    }

    /// How often somebody has typed. It only grows.
    pub(crate) fn typed(&self) -> u64 {
        self.shared.typed.load(Ordering::Acquire)
    }

    /// Somebody types.
    pub(crate) fn note_typed(&self) {
        self.shared.typed.fetch_add(1, Ordering::AcqRel);
    }

    /// The window that the terminal is to have: that of the newest of those who have one.
    pub(crate) fn window(&self) -> Option<Size> {
        self.seats().taken.iter().rev().find_map(|s| s.window)
    }

    /// Another window of a seat, which is the newest then. False when there is no seat of this name, or it only looks.
    pub(crate) fn resize(&self, seat: &str, window: Size) -> bool {
        let mut seats = self.seats();
        let found = seats
            .taken
            .iter()
            .position(|s| s.is(Some(seat)) && s.window.is_some());
        let Some(at) = found else { return false };
        let mut seat = seats.taken.remove(at);
        seat.window = Some(window);
        seats.taken.push(seat);
        true
    }

    fn seats(&self) -> MutexGuard<'_, Seats> {
        self.shared
            .seats
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seats {
    fn holder(&self) -> Option<Holder> {
        let seat = self.taken.iter().find(|s| s.holds)?;
        Some(Holder {
            who: seat.who.clone(),
            since_ms: seat.since_ms,
        })
    }
}

impl Seat {
    fn is(&self, name: Option<&str>) -> bool {
        name.is_some() && self.name.as_deref() == name
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.desk.seats().taken.retain(|s| s.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(seat: &str, take: bool, cols: u16) -> Guest {
        Guest {
            who: "the user".into(),
            seat: Some(seat.into()),
            take,
            window: (cols > 0).then_some(Size { rows: 24, cols }),
        }
    }

    #[test]
    fn a_second_take_is_refused_with_the_holder_until_the_first_one_leaves() {
        let desk = Desk::default();
        let first = desk.attach(guest("a", true, 80), 7).unwrap();
        let holder = Holder {
            who: "the user".into(),
            since_ms: 7,
        };
        assert_eq!(
            desk.attach(guest("b", true, 80), 8).unwrap_err(),
            holder.clone()
        );
        let looking = desk.attach(guest("c", false, 80), 9).unwrap();
        assert_eq!((desk.attached(), desk.holder()), (2, Some(holder.clone())));
        assert_eq!(desk.may_type(Some("a")), Ok(()));
        assert_eq!(desk.may_type(Some("c")), Err(holder.clone()));
        assert_eq!(desk.may_type(None), Err(holder));
        drop(first);
        assert_eq!((desk.attached(), desk.holder()), (1, None));
        assert_eq!(desk.may_type(None), Ok(()));
        drop(looking);
        assert_eq!(desk.attached(), 0);
    }

    #[test]
    fn the_window_follows_the_newest_who_has_one() {
        let desk = Desk::default();
        let cols = |desk: &Desk| desk.window().map(|w| w.cols);
        assert_eq!(cols(&desk), None);
        let first = desk.attach(guest("a", false, 80), 0).unwrap();
        let second = desk.attach(guest("b", false, 100), 0).unwrap();
        let looks = desk.attach(guest("c", false, 0), 0).unwrap();
        assert_eq!(cols(&desk), Some(100));
        let wide = Size {
            rows: 24,
            cols: 120,
        };
        assert!(desk.resize("a", wide));
        assert!(!desk.resize("c", wide), "who only looks has no window");
        assert!(!desk.resize("z", wide));
        assert_eq!(cols(&desk), Some(120));
        drop(first);
        assert_eq!(cols(&desk), Some(100));
        drop(second);
        assert_eq!(cols(&desk), None);
        drop(looks);
    }

    #[test]
    fn who_comes_back_has_the_seat_that_was_left_behind() {
        let desk = Desk::default();
        let old = desk.attach(guest("a", true, 80), 1).unwrap();
        let new = desk.attach(guest("a", true, 90), 2).unwrap();
        assert_eq!(desk.attached(), 1);
        drop(old);
        assert_eq!(desk.holder().unwrap().since_ms, 2);
        drop(new);
        assert_eq!(desk.holder(), None);
    }

    #[test]
    fn typing_is_counted_and_never_forgotten() {
        let desk = Desk::default();
        let seated = desk.attach(guest("a", false, 80), 0).unwrap();
        desk.note_typed();
        desk.clone().note_typed();
        drop(seated);
        assert_eq!(desk.typed(), 2);
    }
}
