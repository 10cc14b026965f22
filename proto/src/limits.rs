//! Every default, bound and limit, once, with its reason. Times are milliseconds, sizes bytes.
//!
//! Two kinds. The *settings* may be changed in the configuration file; each is a function that tells the value in
//! force, and [`SETTINGS`] lists them with their bounds. The constants below are the same everywhere: bounds of the
//! protocol, on which clients build, and the layout of memory that outlives a supervisor.

pub mod acp;
pub mod mcp;

use std::sync::atomic::{AtomicU64, Ordering};

/// What a setting counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Things.
    Count,
    /// Bytes; in the file also `"256 KiB"`.
    Bytes,
    /// Milliseconds; in the file also `"3s"` or `"1h30m"`.
    Ms,
    /// 0 or 1; in the file `false` or `true`.
    Switch,
}

/// A limit that the configuration file may change.
#[derive(Debug)]
pub struct Setting {
    /// Table of the file.
    pub table: &'static str,
    /// Key in it.
    pub key: &'static str,
    /// What it is for.
    pub doc: &'static str,
    /// What it counts.
    pub unit: Unit,
    /// Value without a file.
    pub default: u64,
    /// Smallest value that makes sense.
    pub least: u64,
    /// Largest one.
    pub most: u64,
    cell: &'static AtomicU64,
}

impl Setting {
    /// The value in force.
    pub fn value(&self) -> u64 {
        self.cell.load(Ordering::Relaxed)
    }

    /// Puts a value in force; once, at the start of a process, before anything has asked.
    ///
    /// # Errors
    /// It is out of bounds, and nothing has changed.
    pub fn set(&self, value: u64) -> Result<(), OutOfBounds> {
        if !(self.least..=self.most).contains(&value) {
            return Err(OutOfBounds {
                least: self.least,
                most: self.most,
            });
        }
        self.cell.store(value, Ordering::Relaxed);
        Ok(())
    }
}

/// A value that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be {least} to {most}")]
pub struct OutOfBounds {
    /// Smallest one.
    pub least: u64,
    /// Largest one.
    pub most: u64,
}

macro_rules! settings {
    ($($table:ident { $($(#[doc = $doc:literal])+ $key:ident: $ty:ty = $default:expr, $unit:ident, $least:expr, $most:expr;)* })*) => {
        mod cells {
            use super::{AtomicU64, DAY, GIB, KIB, MIB, SECOND};
            $($(#[allow(non_upper_case_globals, reason = "named as the function that reads it")]
            pub(super) static $key: AtomicU64 = AtomicU64::new($default);)*)*
        }

        $($($(#[doc = $doc])+
        pub fn $key() -> $ty {
            // The bounds of the setting are those of its type or narrower.
            cells::$key.load(Ordering::Relaxed) as $ty
        })*)*

        /// Every setting, in the order of the file.
        pub static SETTINGS: &[Setting] = &[$($(Setting {
            table: stringify!($table),
            key: stringify!($key),
            doc: concat!($($doc),+),
            unit: Unit::$unit,
            default: $default,
            least: $least,
            most: $most,
            cell: &cells::$key,
        },)*)*];
    };
}

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const GIB: u64 = 1024 * MIB;

settings! {
    session {
        /// Live commands that a session may have: enough for a dev server, a build and some checks.
        commands: u32 = 8, Count, 1, 10_000;
        /// Live shells that a session may have.
        shells: u32 = 4, Count, 1, 10_000;
        /// Live sub-agents that a session may have.
        agents: u32 = 16, Count, 1, 10_000;
        /// What `session/open` may raise any of the three to.
        quota_ceiling: u32 = 10_000, Count, 1, 10_000;
        /// Finished jobs that a session keeps.
        finished: usize = 200, Count, 0, 100_000;
        /// How long a finished job is kept, and a session whose lease has ended.
        finished_for: u64 = DAY, Ms, 1, 30 * DAY;
        /// Tombstones that a session keeps until it is closed.
        tombstones: usize = 1_000, Count, 0, 100_000;
        /// Events that wait for those who watch sessions; a watcher that is further behind is told how many it missed.
        events: usize = 1_024, Count, 1, 1_000_000;
        /// How long the session of an editor outlives it: a window that is loaded again loses nothing.
        editor_lease: u64 = 300 * SECOND, Ms, 1, 30 * DAY;
        /// Names before an adoption or a rename that stay valid.
        moved: usize = 1_000, Count, 0, 100_000;
    }
    output {
        /// Bytes of a page when the reader names no size.
        page: u64 = 8 * KIB, Bytes, 4, MIB;
        /// A result's text above this is handed back as head and tail.
        result_whole: u64 = 50 * KIB, Bytes, 0, 16 * MIB;
        /// Characters of head and of tail in a shortened result.
        result_ends: usize = 2_000, Count, 0, 1_000_000;
        /// Spill file of one job.
        spill_job: u64 = 256 * MIB, Bytes, 0, 1 << 50;
        /// Spill files of one session together.
        spill_session: u64 = GIB, Bytes, 0, 1 << 50;
        /// Spill files of one user together.
        spill_user: u64 = 8 * GIB, Bytes, 0, 1 << 50;
        /// A spill never takes the disk below this much free space.
        disk_floor: u64 = GIB, Bytes, 0, 1 << 50;
        /// Spill writes that may be under way at once, so that a slow disk cannot take every blocking thread.
        spill_writers: usize = 8, Count, 1, 24;
        /// Pipes that may be enlarged at once: pipe pages are counted per user, and a user who has used them up gets tiny pipes in every program.
        big_pipes: usize = 16, Count, 0, 1_000;
    }
    stop {
        /// Time between the polite signal and the forced end: long enough for a server to close, short enough to sit through.
        grace: u64 = 3 * SECOND, Ms, 0, GRACE_MAX;
        /// After the forced end: when the survivors are named.
        force_wait: u64 = 2 * SECOND, Ms, 100, 60 * SECOND;
        /// How long the output of an ended job may be held open by a descendant before the end is published.
        drain: u64 = 200, Ms, 0, 60 * SECOND;
        /// How long the end then waits for what already stands in the pipes, behind our own disk alone.
        catch_up: u64 = 5 * SECOND, Ms, 0, 60 * SECOND;
    }
    shell {
        /// How long a shell may be without activity before it is ended; 0 in a request: never.
        shell_idle: u64 = 600 * SECOND, Ms, 1_000, 30 * DAY;
        /// How long the open of a shell waits for its first prompt before it answers that it is not ready yet.
        first_output: u64 = 250, Ms, 0, 60 * SECOND;
    }
    supervisor {
        /// A supervisor with nothing to keep leaves after this time.
        leave_after: u64 = 600 * SECOND, Ms, 1, 30 * DAY;
        /// A start answers within this time, with what is known by then.
        start_answer: u64 = 100, Ms, 1, 60 * SECOND;
        /// How long a `job/run` whose supervisor was replaced waits for its client to come back with its key.
        reattach: u64 = 30 * SECOND, Ms, 1, HOUR;
        /// A supervisor that served this long without trouble has the crashes before it forgiven; the sixth in a row without such a time ends the house.
        steady: u64 = 10 * SECOND, Ms, 1, HOUR;
        /// Descriptors that are kept free for connections and control.
        descriptors_reserve: u64 = 32, Count, 8, 100_000;
        /// How long the image of an upgrade may take to say whether it understands what runs.
        check_patience: u64 = 5 * SECOND, Ms, 1, 60 * SECOND;
        /// Size at which its log begins anew; the one before is kept beside it.
        log: u64 = 4 * MIB, Bytes, 4 * KIB, GIB;
    }
    client {
        /// Longest start of a supervisor that a client waits for, and longest time that `start.lock` is held.
        start_patience: u64 = 10 * SECOND, Ms, 1, HOUR;
        /// How long a starter waits for `house.lock` when it is held and nobody listens.
        house_patience: u64 = 15 * SECOND, Ms, 1, HOUR;
        /// How long a client waits for the answer to its handshake before it asks the keeper to look.
        hello_patience: u64 = 5 * SECOND, Ms, 1, HOUR;
        /// `daemon status` and `doctor` give up after this time and never signal.
        status_patience: u64 = 2 * SECOND, Ms, 1, HOUR;
        /// A command of a later version puts itself in the place of the supervisor that it finds (`daemon upgrade`) before it goes on; without it says so and leaves it.
        auto_upgrade: u64 = 0, Switch, 0, 1;
    }
    connection {
        /// Connections at once.
        connections: usize = 2_000, Count, 1, 100_000;
        /// Requests of one connection that may be pending at once.
        pending: usize = 10_000, Count, 1, 1_000_000;
        /// Bytes of answers that may wait for a client that does not read, before it is disconnected.
        answers: usize = 64 * MIB, Bytes, MIB, 4 * GIB;
        /// Frames that wait for a slow client; further producers wait, each with a cursor in hand.
        outbox: usize = 4, Count, 1, 1_000;
        /// Memory for messages that are not whole yet, of all connections together; the one that needs more is disconnected. Small messages always have room.
        unfinished: usize = 256 * MIB, Bytes, MIB, 64 * GIB;
        /// A client that began a message must go on within this time.
        frame_patience: u64 = 30 * SECOND, Ms, 100, HOUR;
    }
}

/// Newest output of a job that is kept in memory. The keeper lays the rings out, and they outlive a supervisor.
pub const RING: u64 = 256 * 1024;
/// Records of a stream change that are kept beside the ring.
pub const RUN_TAGS: usize = 4_096;
/// The largest page that a reader may ask for.
pub const PAGE_MAX: u64 = 1024 * 1024;
/// One frame of `job/tail`: large enough that framing is free, small enough that four of them are no memory.
pub const TAIL_FRAME: u64 = 64 * 1024;
/// Largest `output.maxBytes` that can be asked for together with `onLimit: stop`.
pub const OUTPUT_MAX: u64 = 1 << 40;

/// Longest grace that can be asked for.
pub const GRACE_MAX: u64 = 60_000;
/// Longest time limit of a job: 30 days.
pub const TIMEOUT_MAX: u64 = 30 * DAY;
/// Longest wait of one request: a day. Shorter waits are the client's choice.
pub const WAIT_MAX: u64 = DAY;

/// Least time between two reports of a command's progress to an editor, which draws each of them.
pub const PROGRESS_EVERY: u64 = 200;
/// Longest line in such a report, in characters.
pub const PROGRESS_LINE: usize = 200;

/// Descriptors that one live job costs in the supervisor.
pub const DESCRIPTORS_PER_JOB: u64 = 4;
/// Descriptors that one live job costs in the keeper at most: pidfd, status, out, err, input, spill.
pub const DESCRIPTORS_KEPT: u64 = 6;
/// Descriptors that a keeper keeps back for everything that is no job.
pub const KEEPER_RESERVE: u64 = 128;

/// Returns for how many live jobs the keeper has room under this limit of descriptors.
pub fn jobs_kept(descriptors: u64) -> u64 {
    descriptors.saturating_sub(KEEPER_RESERVE) / DESCRIPTORS_KEPT
}

/// Returns for how many live jobs both processes of a house have room, each under this limit of descriptors.
pub fn jobs_within(descriptors: u64) -> u64 {
    let supervisor = descriptors.saturating_sub(descriptors_reserve()) / DESCRIPTORS_PER_JOB;
    // Where the supervisor thought of fewer descriptors a job, starts that it let through failed instead of being refused.
    supervisor.min(jobs_kept(descriptors))
}

/// Most lines or columns of a terminal.
pub const TERMINAL_SIDE: u16 = 5_000;

/// Most cells of a terminal whose screen can be looked at: more than any window has, and no burden to keep.
pub const SCREEN_CELLS: u32 = 1_000_000;
/// Screens that are kept in a house; the one that was not looked at for the longest time goes, and is made again when it is.
pub const SCREENS: usize = 16;
/// Lines that have left a screen and are kept with it.
pub const SCREEN_HISTORY: usize = 1_000;
/// Lines of a screen and its history that one request may ask for.
pub const SCREEN_LINES: u64 = 10_000;
/// Keys of one request.
pub const KEYS: usize = 10_000;

/// Longest time that the open of a shell waits for its first prompt.
pub const SHELL_OPEN_MAX: u64 = 60_000;
/// Longest text that is sent to a shell, and longest line or script that is run in one.
pub const SHELL_TEXT: usize = 16 * 1024 * 1024;
/// Most output of a line that is handed back whole.
pub const SHELL_OUTPUT: u64 = 16 * 1024 * 1024;
/// Newest lines of a shell that can be asked for again by their keys.
pub const SHELL_KEYS: usize = 16;
/// Lines of a shell that can be asked for at once.
pub const SHELL_LINES: u64 = 10_000;
/// Lines that are handed back when the reader names no number.
pub const SHELL_LINES_DEFAULT: u64 = 500;
/// Lines and columns of a shell's window where the request names none: wide enough for the listings that agents read.
pub const SHELL_WINDOW: (u16, u16) = (40, 120);
/// Longest time of a send that names none.
pub const SEND_TIMEOUT: u64 = 30_000;
/// Silence after which a send takes a program for waiting, where the request names none.
pub const SEND_QUIET: u64 = 3_000;
/// Bytes of a text that people see in place of how it was handed to a shell.
pub const SHELL_SHOWN: usize = 4 * 1024;

/// Text of an ACP terminal that is handed back at most, whatever the agent says: what the greediest of them ask for, and
/// where each byte of it becomes six in JSON it still fits a message.
pub const TERMINAL_OUTPUT: u64 = 4 * 1024 * 1024;

/// Largest message, header excluded.
pub const MESSAGE: usize = 32 * 1024 * 1024;
/// Largest header of a message.
pub const HEADER: usize = 4 * 1024;

/// Arguments and environment of one job together. The kernel's own bound is usually lower and is then the job's `spawn_failed`.
pub const ARGUMENTS: usize = 16 * 1024 * 1024;
/// Commands of one pipeline: nobody types more, and each is a process.
pub const STAGES: usize = 64;
/// What is read of the report of a pipeline: two lines for each command, the longest with a path.
pub const STAGE_REPORT: u64 = 1024 * 1024;
/// Longest name of a job or session.
pub const NAME: usize = 64;
/// Least time between two heartbeats of a job.
pub const HEARTBEAT_LEAST: u64 = 1_000;
/// Time between them where a person asks for them without a time.
pub const HEARTBEAT: u64 = 5_000;
/// Longest line that says what a sub-agent is to do.
pub const LABEL: usize = 1_024;
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

/// How long a start waits for the disk of the artifacts, in ms: a full folder on a slow one takes some time to be cleared.
pub const DISK_ANSWERS: u64 = 10_000;
/// The same at the end of a house, which has a bound of its own.
pub const DISK_ANSWERS_LAST: u64 = 5_000;
/// Threads of a supervisor that may wait for disks at once. Whoever waits for one that does not answer has one for as long
/// as that lasts, and clients ask again and again: with none left, the next one holds up everybody.
pub const WAITING_FOR_DISKS: usize = 512;
/// How far past its bound a forced end goes while members die, if slower than they should, in ms: on a full machine the
/// kernel took four seconds to run each of a tree 500 deep once more, and those about to die were called survivors.
pub const FORCE_DYING: u64 = 8_000;
/// Supervisors that may die in a row while they restore a job; it is not restored again then.
pub const RESTORE_DEATHS: u32 = 2;

/// How long the session of an agent outlives its front end: long enough for a restart, short enough to leave nothing.
pub const AGENT_LEASE: u64 = 30_000;
/// Longest time for which a call of a tool waits, in ms, where `ostler mcp --max-wait` names none: the least patient client
/// gives up after 60 s.
pub const TOOL_WAIT: u64 = 45_000;
/// What `--max-wait` may ask for.
pub const TOOL_WAIT_MAX: u64 = 300_000;
/// Bytes of the largest result of a tool, and of its JSON.
pub const TOOL_RESULT: usize = 262_144;
/// The smallest bound of a result that can be asked for: an id and its state fit.
pub const TOOL_RESULT_LEAST: usize = 64;
/// A command's result above this is handed to a model as head and tail by the tools of the set `compact`; the other
/// sets have [`result_whole`] and [`result_ends`].
pub const COMPACT_WHOLE: u64 = 16 * 1024;
/// The same of an output that is read without a cursor.
pub const COMPACT_READ_WHOLE: u64 = 4 * 1024;
/// Characters of its head there.
pub const COMPACT_HEAD: usize = 500;
/// Characters of its tail there: the end says how it ended.
pub const COMPACT_TAIL: usize = 2_500;

/// How often in a row a request is asked again at once whose connection broke: a supervisor that is replaced breaks each
/// connection once.
pub const BREAKS_AT_ONCE: u32 = 20;
/// Between two tries after those, for as long as a start of the house may take.
pub const BREAK_PAUSE: u64 = 50;
/// A connection that held for so long is no part of the row.
pub const BREAK_CALM: u64 = 1_000;

/// Silence after which a time jump of the wall clock against the monotonic clock is called sleep.
pub const SLEPT: u64 = 2_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_within_its_bounds_and_every_key_is_there_once() {
        for (i, setting) in SETTINGS.iter().enumerate() {
            assert!(
                (setting.least..=setting.most).contains(&setting.default),
                "{}",
                setting.key
            );
            assert_eq!(setting.value(), setting.default, "{}", setting.key);
            let twice = SETTINGS[i + 1..].iter().any(|s| s.key == setting.key);
            assert!(!twice, "{}", setting.key);
        }
    }

    #[test]
    fn a_value_out_of_bounds_changes_nothing() {
        let writers = SETTINGS.iter().find(|s| s.key == "spill_writers").unwrap();
        let error = writers.set(0).unwrap_err();
        assert_eq!(error.to_string(), "must be 1 to 24");
        assert_eq!(spill_writers(), 8);
    }
}
