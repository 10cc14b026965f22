//! Every default, bound and limit, once, with its reason. Times are milliseconds, sizes bytes.

/// Live commands that a session may have: enough for a dev server, a build and some checks.
pub const COMMANDS: u32 = 8;
/// Live shells that a session may have.
pub const SHELLS: u32 = 4;
/// Live sub-agents that a session may have.
pub const AGENTS: u32 = 16;
/// What `session/open` may raise any of the three to.
pub const QUOTA_CEILING: u32 = 10_000;

/// Newest output of a job that is kept in memory.
pub const RING: u64 = 256 * 1024;
/// Records of a stream change that are kept beside the ring.
pub const RUN_TAGS: usize = 4_096;
/// A page when the reader names no size.
pub const PAGE: u64 = 8 * 1024;
/// The largest page that a reader may ask for.
pub const PAGE_MAX: u64 = 1024 * 1024;
/// One frame of `job/tail`: large enough that framing is free, small enough that four of them are no memory.
pub const TAIL_FRAME: u64 = 64 * 1024;

/// A result's text above this is handed back as head and tail.
pub const RESULT_WHOLE: u64 = 50 * 1024;
/// Characters of head and of tail in a shortened result.
pub const RESULT_ENDS: usize = 2_000;
/// Largest `output.maxBytes` that can be asked for together with `onLimit: stop`.
pub const OUTPUT_MAX: u64 = 1 << 40;

/// Spill file of one job.
pub const SPILL_JOB: u64 = 256 * 1024 * 1024;
/// Spill files of one session together.
pub const SPILL_SESSION: u64 = 1024 * 1024 * 1024;
/// Spill files of one user together.
pub const SPILL_USER: u64 = 8 * 1024 * 1024 * 1024;
/// A spill never takes the disk below this much free space.
pub const DISK_FLOOR: u64 = 1024 * 1024 * 1024;
/// Spill writes that may be under way at once, so that a slow disk cannot take every blocking thread.
pub const SPILL_WRITERS: usize = 8;

/// Time between the polite signal and the forced end: long enough for a server to close, short enough to sit through.
pub const GRACE: u64 = 3_000;
/// Longest grace that can be asked for.
pub const GRACE_MAX: u64 = 60_000;
/// After the forced end: when the survivors are named.
pub const FORCE_WAIT: u64 = 2_000;
/// How long the output of an ended job may be held open by a descendant before the end is published.
pub const DRAIN: u64 = 200;
/// A start answers within this time, with what is known by then.
pub const START_ANSWER: u64 = 100;
/// Longest time limit of a job: 30 days.
pub const TIMEOUT_MAX: u64 = 30 * 24 * 3_600 * 1_000;
/// Longest wait of one request: a day. Shorter waits are the client's choice.
pub const WAIT_MAX: u64 = 24 * 3_600 * 1_000;
/// How long a `job/run` whose supervisor was replaced waits for its client to come back with its key.
pub const REATTACH: u64 = 30_000;

/// Finished jobs that a session keeps.
pub const FINISHED: usize = 200;
/// How long a finished job is kept.
pub const FINISHED_FOR: u64 = 24 * 3_600 * 1_000;
/// Tombstones that a session keeps until it is closed.
pub const TOMBSTONES: usize = 1_000;

/// Events that wait for those who watch sessions; a watcher that is further behind is told how many it missed.
pub const EVENTS: usize = 1_024;
/// Names before an adoption or a rename that stay valid.
pub const MOVED: usize = 1_000;

/// A supervisor with nothing to keep leaves after this time.
pub const LEAVE_AFTER: u64 = 600_000;
/// Longest start of a supervisor that a client waits for, and longest time that `start.lock` is held.
pub const START_PATIENCE: u64 = 10_000;
/// How long a starter waits for `house.lock` when it is held and nobody listens.
pub const HOUSE_PATIENCE: u64 = 15_000;
/// How long a client waits for the answer to its handshake before it asks the keeper to look.
pub const HELLO_PATIENCE: u64 = 5_000;
/// `daemon status` and `doctor` give up after this time and never signal.
pub const STATUS_PATIENCE: u64 = 2_000;

/// A supervisor that served this long without trouble has the crashes before it forgiven; the sixth in a row
/// without such a time ends the house.
pub const STEADY: u64 = 10_000;

/// Descriptors that one live job costs in the keeper, and in the supervisor.
pub const DESCRIPTORS_PER_JOB: u64 = 4;
/// Descriptors that are kept free for connections and control.
pub const DESCRIPTORS_RESERVE: u64 = 32;
/// Pipes that may be enlarged at once: pipe pages are counted per user, and a user who has used them up gets tiny pipes in every program.
pub const BIG_PIPES: usize = 16;

/// Largest message, header excluded.
pub const MESSAGE: usize = 32 * 1024 * 1024;
/// Largest header of a message.
pub const HEADER: usize = 4 * 1024;
/// A client that began a message must go on within this time.
pub const FRAME_PATIENCE: u64 = 30_000;
/// Frames that wait for a slow client; further producers wait, each with a cursor in hand.
pub const OUTBOX: usize = 4;
/// Bytes of answers that may wait for a client that does not read, before it is disconnected.
pub const ANSWERS: usize = 64 * 1024 * 1024;
/// Requests of one connection that may be pending at once.
pub const PENDING: usize = 10_000;
/// Connections at once.
pub const CONNECTIONS: usize = 2_000;

/// Arguments and environment of one job together. The kernel's own bound is usually lower and is then the job's `spawn_failed`.
pub const ARGUMENTS: usize = 16 * 1024 * 1024;
/// Longest name of a job or session.
pub const NAME: usize = 64;
/// Longest idempotency key.
pub const KEY: usize = 256;
/// Longest regular expression of a wait or a read.
pub const PATTERN: usize = 4 * 1024;
/// Lines of context around a match.
pub const CONTEXT: u64 = 100;
/// Ids in one request.
pub const IDS: usize = 10_000;
/// Longest `reason` of a stop.
pub const REASON: usize = 1_024;

/// Silence after which a time jump of the wall clock against the monotonic clock is called sleep.
pub const SLEPT: u64 = 2_000;
