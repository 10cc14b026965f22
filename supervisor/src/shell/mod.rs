//! Persistent shells: opening one, and talking to it in turn.
//!
//! A shell is a job like any other: its life, its end and its output are not decided here. Here: how it is started so
//! that its prompt can be told apart ([`open`], `scripts`), how a line is handed over and its end awaited ([`exec`]),
//! how something is typed to whatever is in front ([`send`]), and both as a job of its own ([`background`]).

pub(crate) mod background;

pub(crate) mod exec;

mod interrupt;

pub(crate) mod open;

mod printed;

mod scripts;

pub(crate) mod send;

pub(crate) mod waiting;
