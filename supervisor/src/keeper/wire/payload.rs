//! What does not fit into the arguments of a message: the request of a job, and what a new supervisor is told first.

/// One resource limit; `u64::MAX` is "unlimited".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The kernel's number (`RLIMIT_*`).
    pub resource: u32,
    /// What holds.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// What the job gets as descriptor 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stdin {
    /// The null device.
    #[default]
    Null,
    /// A pipe; STARTED carries its writing end.
    Pipe,
    /// The file that came with the request.
    Passed,
}

/// The payload of FORK.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ForkRequest {
    /// Arena slot of the job's ring; the keeper only remembers it.
    pub slot: u32,
    /// Absolute paths, tried in order; 256 at most.
    pub programs: Vec<Vec<u8>>,
    /// The arguments, the first being the name the program sees.
    pub argv: Vec<Vec<u8>>,
    /// The whole environment as `NAME=value`.
    pub env: Vec<Vec<u8>>,
    /// The directory to start in.
    pub cwd: Vec<u8>,
    /// `None`: the keeper's own from before it was started.
    pub umask: Option<u32>,
    /// Limits to set; what is above the keeper's hard limit is cut down to it.
    pub limits: Vec<Limit>,
    /// Mark the job (where this house can).
    pub cookie: bool,
    /// Descriptor 0.
    pub stdin: Stdin,
    /// Rows and columns of a terminal, which then is all three descriptors.
    pub pty: Option<(u16, u16)>,
    /// Error output goes where output goes.
    pub merge: bool,
    /// The program executes others: it has the status pipe as descriptor 3, and the exec counts as done when it has closed
    /// that. A keeper of an earlier build knows nothing of it.
    pub tells_begun: bool,
    /// The caller's own record, given back by FETCH.
    pub record: Vec<u8>,
}

/// The payload of HELLO: what does not fit its arguments.
///
/// Its descriptors, in order: listener, house lock, ledger, arena, headers, then reading
/// and writing end of each scratch pipe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Welcome {
    /// Lowest wire version the keeper speaks.
    pub oldest: u32,
    /// Highest one.
    pub newest: u32,
    /// Version of the keeper's build.
    pub build: Vec<u8>,
    /// The umask the keeper was started with.
    pub umask: u32,
    /// The limits it was started with and has raised for itself.
    pub limits: Vec<Limit>,
    /// The job that the last supervisor was restoring when it died.
    pub restoring: Option<u64>,
    /// How many supervisors in a row died while restoring that job.
    pub restoring_deaths: u32,
    /// Generation of the ledger passed along; 0 is the empty first one.
    pub ledger: u64,
    /// Which build of its version the keeper is; empty from a keeper that does not say so.
    pub id: Vec<u8>,
    /// Why the last upgrade was taken back; empty when it was not.
    pub taken_back: Vec<u8>,
    /// The folder in which jobs have groups of their own; empty where they have none.
    pub cgroup: Vec<u8>,
    /// Why they have none.
    pub cgroup_lack: Vec<u8>,
}
