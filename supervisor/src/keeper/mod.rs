//! The keeper: the parent of the supervisor and of every job.
//!
//! One thread, no runtime. It takes the lock, binds the socket, starts and restarts the
//! supervisor, forks jobs on request, reaps, and holds a copy of every descriptor, so that
//! a killed supervisor loses nothing. When the supervisor ends for good it kills every
//! descendant. It never reads a job's output, never waits for an exec, never blocks on a
//! send, and never decides when a job is to end.
//!
//! `former` finds a house that lives without its folder; `house` starts this one, `turn` is the loop; `brain` is the supervisor's process, `standby` the next one, `orders`
//! what it asks for, `tell` what it is told; `store` is the table, `fork` makes a job,
//! `strays` buries what came up, `guard` ends everything.

mod brain;
pub mod cookie;
mod fork;
mod former;
mod guard;
mod house;
pub(crate) mod kernel;
mod orders;
mod standby;
mod store;
mod strays;
mod tell;
mod turn;
pub mod wire;

pub(crate) use fork::{BEGUN, BUSY_PAUSES};
pub(crate) use house::say_nothing_is_left;
pub use house::{Options, run};
