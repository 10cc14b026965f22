//! What `ostler acp` bounds. Times in ms, sizes in bytes; see [`super`].

/// Output of a terminal that is told in one message.
pub const PAGE: u64 = 32 * 1024;
/// An editor that is further behind than this is told how much was left out.
pub const BEHIND: u64 = 256 * 1024;
/// Requests of the editor whose answers say something; more than that are never pending.
pub const ASKED: usize = 10_000;
/// Terminals that may run at once in a session: an agent whose create is refused drops its session.
pub const COMMANDS: u32 = 256;
/// Text of a terminal that is kept when it is released, for who refers to it afterwards.
pub const RELEASED_TEXT: u64 = 16 * 1024;
/// How long the editor may take to be told of the end of what is released.
pub const RELEASE_TOLD: u64 = 1_000;

/// Terminals that are remembered of a session, ended ones with their last words.
pub const TERMINALS: usize = 500;
/// Tool calls that are remembered of a session.
pub const CALLS: usize = 500;
/// Text of a terminal that stands in a message, as JSON writes it.
pub const TEXT: usize = 16 * 1024;
/// Text of all terminals in one message, likewise: many an editor takes no line that is longer than 64 KiB.
pub const MESSAGE: usize = 48 * 1024;
/// A field of a tool call that is remembered.
pub const FIELD: usize = 16 * 1024;

/// How long the supervisor may take to be there when the editor shakes hands.
pub const REACH: u64 = 10_000;
/// How long an agent may take to end by itself when its editor has gone.
pub const PATIENCE: u64 = 2_000;
/// How long an agent may take nothing of what an editor has left that has gone.
pub const STUCK: u64 = 5_000;
/// Between the polite and the forced end of an agent.
pub const GRACE: u64 = 3_000;
/// Between those of the jobs of a session that is closed.
pub const JOB_GRACE: u64 = 1_000;
/// How long its sessions may take to be closed when all is over.
pub const CLOSING: u64 = 10_000;
/// How long the output of an agent that has ended is read while nothing comes.
pub const DRAIN: u64 = 200;
/// How long the last words of an agent that has ended may take to reach its editor.
pub const LAST_WORDS: u64 = 30_000;
/// The same where the editor wanted its end.
pub const LAST_WORDS_UNWANTED: u64 = 2_000;
