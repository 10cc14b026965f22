//! `ostler lsp`: an editor on standard input and output, the supervisor on its socket.
//!
//! ```text
//!   editor -- stdio --> bridge -- link --> supervisor
//!                          |        ^
//!                          |        +-- made again when the supervisor was replaced, greeted with the editor's own
//!                          |            `initialize`
//!                          +-- pending: what has no answer, and whether it may be asked again
//!                          +-- works: progress that was begun and not ended
//! ```
//!
//! Messages go through as they are, but for three: `initialize` gets the owner key and the environment of the editor, a
//! start gets a key, so that it can be asked twice, and a stream that is taken up again goes on at its cursor. The
//! editor's end (of its input, `exit`, its process) ends all of it at once.

mod bridge;
mod greeting;
mod link;
mod message;
mod parent;
mod pending;
mod stdio;
mod works;

pub(crate) use bridge::{Ended, Setup, run};
