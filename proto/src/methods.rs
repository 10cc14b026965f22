//! The one table of methods: name, parameters, result, and how the supervisor runs them.
//!
//! Parameters refuse unknown fields, so that a slip of the pen is told and never ignored; results may grow.
//! `session` may be left out where one session is attached on the connection.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    acp::{CreateTerminal, CreatedTerminal, Done, ExitStatus, TerminalTarget, TerminalText},
    agent::{
        AppendAgent, AppendedAgent, AwaitStop, FinishAgent, RegisterAgent, RegisteredAgent,
        StopAwaited,
    },
    job::{JobResult, Kind, Line, Page, Row, SessionRef, Stream},
    screen::{Attach, Attached, Keys, Look, Screen},
    shell::{
        Exec, Executed, OpenShell, OpenedShell, ReadShell, Send as SendText, Sent, ShellLines,
        ShellTable,
    },
};

pub use crate::{
    command::ExecuteCommand,
    reason::Reason,
    resource::ResourceLimit,
    session::{OpenedSession, SessionLimits},
    start::{OnLimit, OutputPolicy, Start, Stdin},
    upgrade::{Build, UpgradeBegun, UpgradeSupervisor},
};

/// A method of the table.
pub trait Method: 'static {
    /// Its name on the wire.
    const NAME: &'static str;
    /// One sentence.
    const DOC: &'static str;
    /// Runs to its answer before the connection's next message is looked at, because later messages build on it.
    const ORDERED: bool;
    /// What it takes.
    type Params: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
    /// What it answers.
    type Result: Serialize + DeserializeOwned + JsonSchema + Send + 'static;
}

/// A row of the table, for tests and documents.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Name on the wire.
    pub name: &'static str,
    /// One sentence.
    pub doc: &'static str,
    /// See [`Method::ORDERED`].
    pub ordered: bool,
    /// Adds the schemas of parameters and result to a generator.
    pub schema: fn(&mut schemars::SchemaGenerator) -> (schemars::Schema, schemars::Schema),
}

macro_rules! table {
    ($($name:ident $wire:literal $order:ident ($params:ty) -> $result:ty, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            #[derive(Debug, Clone, Copy)]
            pub struct $name;

            impl Method for $name {
                const NAME: &'static str = $wire;
                const DOC: &'static str = $doc;
                const ORDERED: bool = table!(@$order);
                type Params = $params;
                type Result = $result;
            }
        )*

        /// Every method.
        pub const TABLE: &[Entry] = &[$(Entry {
            name: $wire,
            doc: $doc,
            ordered: table!(@$order),
            schema: |g| (g.subschema_for::<$params>(), g.subschema_for::<$result>()),
        },)*];

        /// Calls a macro with the name of every method, so that nobody can forget one.
        #[macro_export]
        macro_rules! for_each_method {
            ($call:ident) => { $($call!($name);)* };
        }
    };
    (@ordered) => { true };
    (@spawned) => { false };
}

table! {
    SupervisorHello "supervisor/hello" ordered (Hello) -> HelloAnswer, "Says who both sides are; optional. The owner key makes every session of the user visible.";
    SupervisorInfo "supervisor/info" spawned (Nothing) -> Info, "Tells what this supervisor is and has.";
    SupervisorStop "supervisor/stop" spawned (StopSupervisor) -> StopSummary, "Refuses new work, stops every job, answers when all are gone, then leaves.";
    SupervisorUpgrade "supervisor/upgrade" spawned (UpgradeSupervisor) -> UpgradeBegun, "Checks another image, starts it in standby, answers, then leaves for it; jobs go on. Refused before anything stops.";
    SessionOpen "session/open" ordered (OpenSession) -> OpenedSession, "Creates a session or attaches to one by its token.";
    SessionList "session/list" spawned (Nothing) -> SessionTable, "Lists the sessions that this connection may see.";
    SessionRename "session/rename" ordered (RenameSession) -> MovedSession, "Gives a session another id: the whole slot moves. Onto one that exists, it is adopted by that.";
    SessionAdopt "session/adopt" ordered (AdoptSession) -> MovedSession, "Hands all jobs of a session to another one and ends the first.";
    SessionNotices "session/notices" spawned (ReadNotices) -> Notices, "Lists the ends of background jobs that nobody has confirmed yet, and confirms those that were read. What its owner stopped, waited for or read to the end is no news to it.";
    SessionWatch "session/watch" spawned (WatchSession) -> WatchEnd, "Streams what happens to jobs as `$/progress`, in order, until it is cancelled or the session is closed.";
    SessionClose "session/close" spawned (CloseSession) -> StopSummary, "Stops every job of a session, forgets them, then deletes their artifacts.";
    JobStart "job/start" spawned (Start) -> Row, "Starts a job; answers when exec has succeeded or failed, 100 ms at most.";
    JobRun "job/run" spawned (Run) -> JobResult, "Starts a job, streams it, waits and collects; cancelling it or going away ends the tree.";
    JobDetach "job/detach" spawned (Target) -> DetachedJob, "Turns a running `job/run` into a background job.";
    JobList "job/list" spawned (List) -> JobTable, "Lists jobs, live ones first, then the newest ended.";
    JobGet "job/get" spawned (Target) -> JobResult, "Tells everything about one job.";
    JobRead "job/read" spawned (Read) -> Page, "Reads one page of a job's log at a cursor; consumes nothing.";
    JobTail "job/tail" spawned (Tail) -> TailEnd, "Streams pages as `$/progress` until the log ends, the request is cancelled or, without follow, all is told.";
    JobWait "job/wait" spawned (Wait) -> Waited, "Waits for ends, text, quiet or a port. Never ends a job.";
    JobWrite "job/write" spawned (Write) -> Written, "Writes to a job's input, or ends it.";
    JobResize "job/resize" spawned (Resize) -> Row, "Gives the terminal of a job another size.";
    JobKeys "job/keys" spawned (Keys) -> Written, "Presses keys at a job's terminal, by their names, and pastes text into it.";
    JobScreen "job/screen" spawned (Look) -> Screen, "Tells what a person would see on a job's terminal, and lines that have left it.";
    JobAttach "job/attach" spawned (Attach) -> Attached, "Streams the screen of a job's terminal and then its output as `$/progress`, until the job ends or it is cancelled.";
    JobSignal "job/signal" spawned (SignalJob) -> Signalled, "Sends a signal to the group of the main process, on a terminal to the one in the foreground.";
    JobStop "job/stop" spawned (Stop) -> StopSummary, "Ends the whole tree of one or more jobs; answers when nothing is left or the survivors are named.";
    JobRelease "job/release" spawned (Target) -> Released, "Stops the job if it runs, then forgets it and its artifacts.";
    ShellOpen "shell/open" spawned (OpenShell) -> OpenedShell, "Opens a persistent shell in a terminal; answers when it waits for a line, after 250 ms at most.";
    ShellSend "shell/send" spawned (SendText) -> Sent, "Types into a shell, waits until it waits for more, says why it returned and what was printed.";
    ShellExec "shell/exec" spawned (Exec) -> Executed, "Runs one command line in a shell: exactly its output, its exit code, the directory afterwards.";
    ShellRead "shell/read" spawned (ReadShell) -> ShellLines, "Reads lines of a shell as a person would see them, counted from the newest.";
    ShellList "shell/list" spawned (List) -> ShellTable, "Lists shells, and whether each waits for a line.";
    ShellClose "shell/close" spawned (Target) -> Released, "Ends a shell and everything in it, then forgets it.";
    AgentRegister "agent/register" spawned (RegisterAgent) -> RegisteredAgent, "Makes a sub-agent a job, with a program or spoken for by who asks, and opens its session.";
    AgentAppend "agent/append" spawned (AppendAgent) -> AppendedAgent, "Adds to what a sub-agent says; answers whether somebody wants its end.";
    AgentStopRequested "agent/stopRequested" spawned (AwaitStop) -> StopAwaited, "Asked by who speaks as a sub-agent: answered when somebody wants its end, or it has ended.";
    AgentFinish "agent/finish" spawned (FinishAgent) -> Row, "Ends a sub-agent with its last words and its code.";
    WorkspaceExecuteCommand "workspace/executeCommand" spawned (ExecuteCommand) -> serde_json::Value, "The common verbs for any LSP client, with work-done progress: `ostler.start`, `run`, `list`, `tail`, `wait`, `stop`, `send`.";
    TerminalCreate "terminal/create" spawned (CreateTerminal) -> CreatedTerminal, "Starts a command as ACP's version 1 says; the terminal is a job, and its id the job's `processId`.";
    TerminalOutput "terminal/output" spawned (TerminalTarget) -> TerminalText, "Tells the newest text of a terminal, and how it ended.";
    TerminalWaitForExit "terminal/wait_for_exit" spawned (TerminalTarget) -> ExitStatus, "Waits for the end of a terminal's command, whoever ends it.";
    TerminalKill "terminal/kill" spawned (TerminalTarget) -> Done, "Ends the whole tree of a terminal; answers when the signal is out. What it printed can still be read.";
    TerminalRelease "terminal/release" spawned (TerminalTarget) -> Done, "Ends what runs in a terminal, then forgets it. Releasing twice is success.";
}

/// No parameters.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Nothing {}

/// `supervisor/hello`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hello {
    /// Newest protocol that the client speaks.
    pub protocol: Option<u32>,
    /// Name and version of the client, for the log.
    pub client: Option<String>,
    /// Content of the owner key file.
    pub owner_key: Option<String>,
}

/// Who answers.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct HelloAnswer {
    /// Newest protocol that the supervisor speaks.
    pub protocol: u32,
    /// Oldest one.
    pub protocol_min: u32,
    /// Version of the supervisor.
    pub version: String,
    /// Which build of that version; empty in one that does not say so.
    #[serde(default)]
    pub build: String,
    /// Process number of the supervisor.
    pub pid: u32,
    /// Process number of the keeper.
    pub keeper_pid: u32,
    /// How often the supervisor was started in this house; cursors and ids hold across generations.
    pub generation: u64,
    /// The owner key was right.
    pub owner: bool,
}

/// `supervisor/info`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Info {
    /// As in the handshake.
    #[serde(flatten)]
    pub hello: HelloAnswer,
    /// Where it listens.
    pub socket: String,
    /// Where its log is.
    pub log: String,
    /// When this house began.
    pub started_at: u64,
    /// Open sessions that the asker may see.
    pub sessions: u64,
    /// Live jobs in them.
    pub jobs: u64,
    /// Connections, this one included.
    pub connections: u64,
    /// How members of a tree are found.
    pub rung: String,
    /// Why it is no better one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rung_why: Option<String>,
    /// How bytes are read: `splice`, or `read` where the former is refused.
    pub byte_path: String,
    /// What the keeper is, which an upgrade leaves as it was.
    #[serde(default)]
    pub keeper: Build,
    /// Why the last upgrade was taken back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_back: Option<String>,
}

/// `supervisor/stop`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct StopSupervisor {
    /// Time between the polite and the forced end.
    pub grace_ms: Option<u64>,
}

/// `session/open`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenSession {
    /// Id; a new one is made up when absent.
    pub id: Option<String>,
    /// Short name for people; the id when absent.
    pub name: Option<String>,
    /// Folder of the project that it belongs to.
    pub root: Option<String>,
    /// Proof that the asker may attach; the owner key does as well.
    pub token: Option<String>,
    /// Live commands allowed.
    pub commands: Option<u32>,
    /// Live shells allowed.
    pub shells: Option<u32>,
    /// Live sub-agents allowed.
    pub agents: Option<u32>,
    /// How long it outlives its last connection, in ms; absent: as it was, at first until it is closed.
    pub lease_ms: Option<u64>,
    /// No lease: it lasts until it is closed, whatever was said before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// The session that this one works for, one that the connection may see: who holds that sees this one too.
    pub parent: Option<String>,
    /// Refuse instead of creating.
    pub attach_only: bool,
    /// This connection confirms what it was told of ends in this session by `session/notices` alone: what it waits for or
    /// reads to the end is noticed until then. For front ends, whose own answers may not reach who asked.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub confirms: bool,
}

/// `session/list`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct SessionTable {
    /// In order of opening.
    pub sessions: Vec<SessionRow>,
}

/// One session.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    /// Which.
    pub session: SessionRef,
    /// Folder of its project.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
    /// Live jobs.
    pub jobs: u32,
    /// Finished jobs kept.
    pub finished: u32,
    /// Connections attached.
    pub clients: u32,
    /// Its limits.
    pub limits: SessionLimits,
    /// When it was opened.
    pub opened_at: u64,
    /// The session that it works for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// How long it outlives its last connection; absent: until it is closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// What is left of that; absent while somebody is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_left_ms: Option<u64>,
    /// When its lease ended its jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lapsed_at: Option<u64>,
}

/// `session/rename`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenameSession {
    /// Which; the attached one when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Its new id, and its new name: not the name of another session that the connection sees.
    pub to: String,
}

/// `session/adopt`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AdoptSession {
    /// Whose jobs.
    pub session: String,
    /// Who gets them; the attached session when absent.
    #[serde(default)]
    pub into: Option<String>,
}

/// Where the jobs of a session are now.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct MovedSession {
    /// The session that has them.
    pub session: SessionRef,
    /// Jobs with their old and new names. Old ones stay valid for the new owner.
    pub jobs: Vec<MovedJob>,
}

/// One job that has moved.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct MovedJob {
    /// `SESSION/t1`, as it was.
    pub from: String,
    /// Its short id now.
    pub to: String,
    /// What never changes.
    pub process_id: String,
}

/// `session/notices`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ReadNotices {
    /// Whose; the attached session when absent.
    pub session: Option<String>,
    /// The last number that the reader has shown: it and those before are not told again.
    pub seen: Option<u64>,
}

/// Ends that nobody has confirmed.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Notices {
    /// Oldest first.
    pub notices: Vec<Notice>,
}

/// The end of a job that ran in the background.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Notice {
    /// Its number; grows, and is never used twice in a session.
    pub number: u64,
    /// The job.
    pub row: Row,
}

/// `session/watch`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct WatchSession {
    /// Whose jobs; the attached session when absent.
    pub session: Option<String>,
    /// Those of every session that the connection may see.
    pub all: bool,
    /// Token of the `$/progress` notifications.
    pub partial_result_token: serde_json::Value,
    /// Go on behind the event of this number; absent: with the next one that happens.
    pub since: Option<u64>,
    /// Tell `heartbeat` of every live job so often, in ms, 1,000 at least: only then is anybody looked at.
    pub heartbeat_ms: Option<u64>,
}

/// Where a watch ended.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct WatchEnd {
    /// Number of the last event that was told.
    pub seq: u64,
}

/// Something that happened to a job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// Its number; grows, also over a new supervisor.
    pub seq: u64,
    /// What.
    #[serde(rename = "type")]
    pub what: Happened,
    /// The job at that moment; absent for `watching` and `missed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<Box<Row>>,
    /// `moved`: its name before, `SESSION/t1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// `missed`: how many events are gone that the reader did not take in time; 0 where a supervisor was replaced and
    /// nobody knows. List the jobs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<u64>,
}

/// What happened to a job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Happened {
    /// The watch has begun, behind the event of this number: a list that is asked for now misses nothing. First.
    Watching,
    /// It was accepted; there is no process yet.
    Starting,
    /// Its program runs.
    Running,
    /// Somebody wants its end.
    Stopping,
    /// Its main process is gone, its output is being read.
    Draining,
    /// Its result stands.
    Exited,
    /// The processes that it had left behind are gone.
    Empty,
    /// It is in another session now, or has another name there.
    Moved,
    /// It rang the bell of its terminal. Told once a second at most.
    Bell,
    /// Its window has another title, which the row holds. Told once a second at most.
    Title,
    /// It lives: its row has `tree` with processes, CPU time and memory. Where that was asked for; it has the number of the
    /// event before.
    Heartbeat,
    /// Its record is gone.
    Removed,
    /// Events are missing here.
    Missed,
}

/// `session/close`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CloseSession {
    /// Which; the attached one when absent.
    pub session: Option<String>,
    /// Time between the polite and the forced end.
    pub grace_ms: Option<u64>,
}

/// `job/run`: a start, and what is to be told of it.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Run {
    /// What to start. Its `key` lets a client that lost its connection come back.
    pub start: Start,
    /// Stream pages as `$/progress` with this token: `{started: row}`, then `{page}`.
    pub partial_result_token: Option<serde_json::Value>,
    /// With a token: stream its output; true when absent. Otherwise `{started: row}` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pages: Option<bool>,
    /// Pages hold base64 instead of text.
    pub raw: bool,
    /// Hand the texts back in the result; true when absent.
    pub collect: Option<bool>,
    /// Detach after this time.
    pub wait_ms: Option<u64>,
    /// With a key of a job that exists: stream from this offset.
    pub since: u64,
    /// Sit before its terminal meanwhile as an attach does, under this name, made up by the client: `job/write` and
    /// `job/resize` belong to it, and what the program asks its terminal is the client's to answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
}

/// One job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Target {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
}

/// A job that goes on in the background.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct DetachedJob {
    /// The job.
    #[serde(flatten)]
    pub row: Row,
    /// No `job/run` held it: it was in the background already, or over.
    #[serde(default)]
    pub already: bool,
}

/// `job/list`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct List {
    /// This session alone.
    pub session: Option<String>,
    /// Every session whose root lies in this folder.
    pub root: Option<String>,
    /// Every session that the connection may see.
    pub all: bool,
    /// Live jobs only, and ended ones with members left.
    pub live: bool,
}

/// Jobs.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct JobTable {
    /// Live first, then the newest ended.
    pub jobs: Vec<Row>,
}

/// `job/read`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Read {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Cursor. Absent: the newest page, from a line's start.
    #[serde(default)]
    pub since: Option<u64>,
    /// Bytes of the log at most; with `match`, of the lines that are told.
    #[serde(default)]
    pub max: Option<u64>,
    /// Wait this long for something to read.
    #[serde(default)]
    pub wait_ms: Option<u64>,
    /// One stream alone; offsets stay those of the whole log.
    #[serde(default)]
    pub stream: Option<Stream>,
    /// Bytes instead of text.
    #[serde(default)]
    pub raw: bool,
    /// Refuse instead of replacing what is no text: `undecodable`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
    /// Text as a person sees it: without escape sequences, lines that were drawn over and over as they stood at last.
    /// Offsets stay those of the log.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// Only lines that match this regular expression, in `lines` of the page; `since` is then 0 when absent. Excludes
    /// `waitMs`, `stream` and `strict`.
    #[serde(default, rename = "match")]
    pub pattern: Option<String>,
    /// Lines before and after each match, at most 100. Needs `match`. What follows the last match of a page is not
    /// told by the next one.
    #[serde(default)]
    pub context: Option<u64>,
}

/// `job/tail`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tail {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Token of the `$/progress` notifications.
    pub partial_result_token: serde_json::Value,
    /// Cursor. Absent: with `follow` the newest page, from a line's start; else the oldest byte kept.
    #[serde(default)]
    pub since: Option<u64>,
    /// In place of `since`: the last so many lines; 0 is only what is new.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
    /// Go on until the job is over.
    #[serde(default)]
    pub follow: bool,
    /// One stream alone.
    #[serde(default)]
    pub stream: Option<Stream>,
    /// Bytes instead of text.
    #[serde(default)]
    pub raw: bool,
    /// Text as a person sees it, as in `job/read`; a line is told when it has its end.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

/// Where a stream ended.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct TailEnd {
    /// Cursor to read on.
    pub next: u64,
    /// The job.
    pub row: Row,
}

/// What is waited for.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub enum For {
    /// The end of the job.
    #[default]
    Exit,
    /// A line that matches this regular expression, from `since`.
    Text(String),
    /// No output for this many milliseconds.
    Quiet(u64),
    /// A member of the tree listens on this TCP port.
    Port(u16),
    /// A member of the tree listens on some TCP port.
    AnyPort,
    /// A shell is at its prompt. Of anything else, its end.
    Prompt,
    /// Whoever is in front of its terminal waits for input; a shell at its prompt too.
    Input,
    /// Somebody takes connections at this `HOST:PORT`, wherever that is: for servers in containers, whose processes
    /// are no members.
    Tcp(String),
}

/// `job/wait`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Wait {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short ids, names or process ids.
    pub ids: Vec<String>,
    /// The first one is enough.
    #[serde(default)]
    pub any: bool,
    /// What for.
    #[serde(default, rename = "for")]
    pub what: For,
    /// Offset from which text counts.
    #[serde(default)]
    pub since: u64,
    /// How long; absent: until it happens.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// The answer of a wait.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Waited {
    /// One a job, in the order asked.
    pub jobs: Vec<WaitedJob>,
    /// The wait's own time is over before all (or any) was true.
    pub timed_out: bool,
}

/// One job of a wait.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct WaitedJob {
    /// Why its part of the wait is over.
    pub reason: Reason,
    /// The job at that moment.
    pub row: Row,
    /// The line that matched, and its offset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Line>,
    /// Who listens on the port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listener: Option<Listener>,
    /// A stranger that listens on the port, which does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stranger: Option<Listener>,
    /// Ports on which members listen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
    /// The last lines, when it ended before what was waited for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Exit code of the last line of a shell that is at its prompt, where the prompt tells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Directory of that shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Where in the log what that line printed ends; the prompt follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_end: Option<u64>,
}

/// A process that listens.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Listener {
    /// The port.
    pub port: u16,
    /// Its process, 0 when it cannot be seen.
    pub pid: u32,
    /// Its program.
    pub program: String,
}

/// `job/write`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Write {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Text, as it is.
    #[serde(default)]
    pub text: Option<String>,
    /// Bytes.
    #[serde(default)]
    pub base64: Option<String>,
    /// End of input after that.
    #[serde(default)]
    pub eof: bool,
    /// Longest time to wait for the job to take it all; 5 s when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// The attach that it was typed in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
}

/// How much was written.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Written {
    /// Bytes that the job's pipe took.
    pub bytes: u64,
    /// All of it.
    pub complete: bool,
    /// The job has closed its input.
    pub closed: bool,
}

/// `job/resize`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resize {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Lines, 1 to 5,000.
    pub rows: u16,
    /// Columns, 1 to 5,000.
    pub cols: u16,
    /// The attach whose window it is; the job's window follows the newest of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
}

/// `job/signal`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SignalJob {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// `SIGINT` or `INT`.
    pub signal: String,
}

/// Who got a signal.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Signalled {
    /// The group.
    pub group: u32,
}

/// `job/stop`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Stop {
    /// Owner; the attached session when absent.
    pub session: Option<String>,
    /// Short ids, names or process ids.
    pub ids: Vec<String>,
    /// Every job of the session.
    pub all: bool,
    /// Every job of every session whose root lies in this folder.
    pub root: Option<String>,
    /// Every job of every session that the connection may see.
    pub everywhere: bool,
    /// Time between the polite and the forced end.
    pub grace_ms: Option<u64>,
    /// No polite signal.
    pub force: bool,
    /// Who asks, for the record: `user` from the command line, `client` when absent.
    pub by: Option<String>,
    /// Why, for the record.
    pub reason: Option<String>,
    /// Answer when it is over; true when absent.
    pub wait: Option<bool>,
    /// With each receipt the result, with its texts as `job/run` has them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub collect: bool,
}

/// What a stop did, in the order asked, or in reverse order of start.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase")]
pub struct StopSummary {
    /// One receipt a job.
    pub jobs: Vec<Receipt>,
    /// Ids among several that name no job: the others are stopped all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

/// What the stop of one job did.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// The job after it.
    pub row: Row,
    /// What it was.
    pub kind: Kind,
    /// It was over before, with nothing left.
    pub already_finished: bool,
    /// Processes that were there when the stop began or appeared during it.
    pub ended: u32,
    /// Of those: how many had to be forced.
    pub forced: u32,
    /// From the request to the end of the last member.
    pub took_ms: u64,
    /// What could not be ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub survivors: Vec<crate::job::Survivor>,
    /// What a sub-agent had started and is not stopped with it, as `SESSION/t1`: they are jobs of the session that
    /// delegated now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_running: Vec<String>,
    /// The final result, where that was asked for and the job is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<JobResult>>,
}

/// `job/release`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// The job, for the last time; absent when it was unknown, which is success too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub row: Option<Row>,
}

/// The value of a `$/progress` notification.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub enum Progress {
    /// The job is there. First, once.
    Started(Box<Row>),
    /// Output.
    Page(Page),
    /// Something happened to a job; `session/watch` alone.
    Event(Box<Event>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_field_is_refused() {
        let e = serde_json::from_str::<Start>(r#"{"args":["true"],"timeout_ms":5}"#).unwrap_err();
        assert!(e.to_string().contains("timeout_ms"), "{e}");
    }

    #[test]
    fn names_of_methods_are_unique() {
        for (i, a) in TABLE.iter().enumerate() {
            assert!(
                TABLE[i + 1..].iter().all(|b| a.name != b.name),
                "{}",
                a.name
            );
        }
    }

    #[test]
    fn stdin_is_a_word_or_a_text() {
        assert_eq!(
            serde_json::from_str::<Stdin>(r#""open""#).unwrap(),
            Stdin::Open
        );
        assert_eq!(
            serde_json::from_str::<Stdin>(r#"{"text":"x"}"#).unwrap(),
            Stdin::Text("x".into())
        );
    }
}
