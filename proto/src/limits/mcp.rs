//! What the tools of `ostler mcp` bound. Times in ms, sizes in bytes; see [`super`], where the bounds of results stand.

/// Notices in one result; the rest follow with the next.
pub const NOTICES: usize = 5;
/// Jobs whose end a result has shown that are remembered, so that no notice tells it again.
pub const SHOWN: usize = 4_096;
/// Jobs in one call.
pub const IDS: usize = 16;
/// The greatest whole number in an argument: clients whose numbers are those of JavaScript know none above it exactly.
pub const WHOLE: u64 = (1 << 53) - 1;
/// Between which an `until` of `quiet` may ask for silence, in ms.
pub const QUIET: (u64, u64) = (200, 86_400_000);
/// How long a call is silent before its first word of progress.
pub const PROGRESS_FIRST: u64 = 5_000;
/// Between two words of progress.
pub const PROGRESS_NEXT: u64 = 10_000;
/// A page of output, and what matches a search.
pub const PAGE: u64 = 8 * 1024;
/// The smallest page that can be asked for.
pub const PAGE_LEAST: u64 = 16;
/// Finished tasks that are kept.
pub const TASKS: usize = 1_000;
/// How often a client should ask after a task.
pub const TASK_POLL: u64 = 1_000;
/// A call that takes longer becomes a task, where the client takes those.
pub const TASK_AFTER: u64 = 2_000;
/// How long clients may keep the list of tools.
pub const LIST_TTL: u64 = 86_400_000;
/// How long beyond the longest wait a supervisor may say nothing: it may be started, or be replaced, meanwhile.
pub const SILENCE: u64 = 30_000;
/// How long the end of a session may take that ends with its front end: whoever waits for that would kill it at last.
pub const CLOSING: u64 = 10_000;
/// How many front ends of one client may work in one folder at once and still find their sessions again.
pub const PLACES: u32 = 64;

/// How long it is looked whether somebody waits for a terminal: a few times what the kernel's answer needs.
pub const GLANCE: u64 = 80;
/// The shortest time in which a line is handed over.
pub const HAND_OVER: u64 = 250;
/// How long a shell that was just opened may take to its first prompt before its first line waits for it.
pub const FIRST_PROMPT: u64 = 10_000;

/// Set `compact`: the wait of a run, and of an output with a condition, that name none.
pub const COMPACT_WAIT: u64 = 30_000;
/// Set `compact`: the wait of an input that names none.
pub const COMPACT_INPUT_WAIT: u64 = 10_000;
/// Set `compact`: lines around a match.
pub const COMPACT_CONTEXT: u64 = 2;
/// Set `compact`: rows of a list.
pub const COMPACT_ROWS: usize = 20;
/// Set `compact`: a row of a list.
pub const COMPACT_ROW: usize = 120;

/// Set `epoch`: a command is ended when it has printed so much.
pub const EPOCH_OUTPUT: u64 = 10 * 1024 * 1024;
/// Set `epoch`: the wait of `task_wait` that names none.
pub const EPOCH_WAIT: u64 = 45_000;
/// Set `epoch`: the longest wait that can be asked for.
pub const EPOCH_WAIT_MAX: u64 = 300_000;
/// Set `epoch`: the wait of `shell_send` that names none.
pub const EPOCH_SEND_WAIT: u64 = 2_000;
/// Set `epoch`: the longest wait of a send.
pub const EPOCH_SEND_MAX: u64 = 45_000;

/// Set `dsh`: the time limit of a command that names none, and the longest.
pub const DSH_TIMEOUT: (u64, u64) = (120_000, 600_000);
/// Set `dsh`: the same of a wait for a job.
pub const DSH_WAIT: (u64, u64) = (30_000, 600_000);
/// Set `dsh`: the longest wait of a send.
pub const DSH_SEND: u64 = 30_000;
/// Set `dsh`: lines of a read that names no number.
pub const DSH_LINES: u64 = 500;
