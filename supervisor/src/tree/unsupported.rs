//! Process trees where they cannot be read yet: macOS and Windows.
//!
//! On macOS they will be read by session, group, parents and the environment marker, there being no cookie; on Windows
//! they are to be Job Objects, one a job, which the kernel ends without a scan. Until then nothing is found, and every
//! request says so instead of calling a tree empty.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use std::{fs, io};

use super::{Found, Member, Proof, Rung, Target, cookie};

/// Its name, as its users write it.
const SYSTEM: &str = if cfg!(windows) { "Windows" } else { "macOS" };

/// Control groups: there are none.
pub mod cgroup {
    use std::io;
    use std::path::Path;
    use std::time::Instant;

    use super::Wake;

    /// Never made.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Cgroups {}

    /// Never made.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub enum Leaf {}

    /// What became of removing a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Removed {
        /// It is not there any more.
        Gone,
    }

    /// What the kernel counted for a group.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Figures {
        /// Processor time.
        pub cpu_ms: u64,
        /// Memory.
        pub memory: Option<u64>,
    }

    impl Cgroups {
        /// Finds none.
        ///
        /// # Errors
        /// Always.
        pub fn find(_instance: u32) -> Result<Self, String> {
            Err(format!("{} has none", super::SYSTEM))
        }

        /// Finds none.
        pub fn at(_folder: &Path, _instance: u32) -> Option<Self> {
            None
        }

        /// The group of a job.
        pub fn leaf(&self, _job: u64) -> Leaf {
            match *self {}
        }

        /// The house's own group.
        pub fn whole(&self) -> Leaf {
            match *self {}
        }

        /// Removes what is empty.
        pub fn clear(&self) {
            match *self {}
        }
    }

    impl Leaf {
        /// Tells whether there is such a group.
        pub fn exists(&self) -> bool {
            match *self {}
        }

        /// Numbers of everybody who lives in it.
        pub fn members(&self) -> Vec<u32> {
            match *self {}
        }

        /// Ends everybody in it.
        ///
        /// # Errors
        /// It may not be written.
        pub fn kill(&self) -> io::Result<()> {
            match *self {}
        }

        pub(in super::super) fn empties(&self, _until: Instant, _wake: Option<&Wake>) -> bool {
            match *self {}
        }

        /// Removes it.
        pub fn remove(&self) -> Removed {
            match *self {}
        }

        /// What the kernel counted.
        pub fn figures(&self) -> Option<Figures> {
            match *self {}
        }
    }
}

fn not_yet() -> io::Error {
    let words = format!("process trees are not yet read on {SYSTEM}");
    io::Error::new(io::ErrorKind::Unsupported, words)
}

/// Returns nothing: there is no cookie.
pub fn cookie_of(_pid: u32) -> Option<(u64, u64)> {
    None
}

/// Returns nothing: there is no cookie.
pub fn job_of(_pid: u32, _instance: u32) -> Option<u64> {
    None
}

/// Returns the instance of a house of this user with this runtime folder (its real path).
///
/// # Errors
/// The folder cannot be resolved.
pub fn instance_here(run_folder: &Path) -> io::Result<u32> {
    let real = fs::canonicalize(run_folder)?;
    Ok(cookie::instance(0, SYSTEM, &real))
}

/// Cannot tell yet.
///
/// # Errors
/// Always: nothing is known, and a start must sweep nothing.
pub fn house_is_alive(_instance: u32, _except: &[u32]) -> io::Result<Option<u32>> {
    Err(not_yet())
}

/// Nobody is recognised.
///
/// # Errors
/// Always: not yet.
pub fn jobs_alive(_instance: u32, _rung: super::Rung) -> io::Result<Vec<u32>> {
    Err(not_yet())
}

/// Returns how the jobs of a house are marked in their environment.
pub fn house_marker(instance: u32) -> String {
    format!("{instance:08x}")
}

/// Returns nothing: not yet.
pub fn start_time(_pid: u32) -> Option<u64> {
    None
}

/// Returns nothing: not yet.
pub fn program(_pid: u32) -> Option<String> {
    None
}

/// Returns nothing: not yet.
pub fn describe(_pid: u32) -> Option<Member> {
    None
}

pub(super) fn state(_pid: u32) -> Option<char> {
    None
}

pub(super) fn pids() -> io::Result<impl Iterator<Item = u32>> {
    Err::<std::iter::Empty<u32>, _>(not_yet())
}

/// A listening TCP socket.
pub(super) struct Socket {
    pub(super) port: u16,
    pub(super) inode: u64,
}

pub(super) fn listening(_pid: u32) -> Vec<Socket> {
    Vec::new()
}

pub(super) fn sockets_of(_pid: u32) -> Vec<u64> {
    Vec::new()
}

/// Never made: nothing is found.
pub(super) enum Process {}

#[expect(dead_code, reason = "the surface is shared with Linux")]
pub(super) enum Opened {
    Live(Process),
    Dead,
    Stranger,
}

#[expect(dead_code, reason = "the surface is shared with Linux")]
pub(super) enum Waited {
    Dead,
    TimeOver,
    Woken,
}

impl Process {
    pub(super) fn pid(&self) -> u32 {
        match *self {}
    }

    pub(super) fn proof(&self) -> Proof {
        match *self {}
    }

    pub(super) fn send(&self, _signal: i32) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn wait_dead(&self, _until: Instant, _wake: &Wake) -> io::Result<Waited> {
        match *self {}
    }
}

/// Never made: nobody is signalled here.
pub(super) enum Group {}

impl Group {
    pub(super) fn of(_leader: u32, _start: u64) -> Option<Self> {
        None
    }

    pub(super) fn send(&self, _signal: i32) {
        match *self {}
    }
}

/// Nothing is chased here, so nobody is in a hurry.
pub(super) struct Urgency;

impl Urgency {
    pub(super) fn new() -> Self {
        Self
    }
}

/// Nobody waits for a death here, so nobody is woken.
pub(super) struct Wake;

impl Wake {
    pub(super) fn new() -> Self {
        Self
    }

    pub(super) fn ring(&self) {}

    pub(super) fn hush(&self) {}
}

/// Finds nothing and says so.
pub(super) struct Scanner;

impl Scanner {
    pub(super) fn new(_instance: u32, _rung: Rung, _groups: Option<cgroup::Cgroups>) -> Self {
        Self
    }

    pub(super) fn leaf(&self, _job: Option<u64>) -> Option<cgroup::Leaf> {
        None
    }

    pub(super) fn scan(
        &mut self,
        _targets: &[Arc<Target>],
        _chase: bool,
        _visit: &mut dyn FnMut(usize, Found<'_>),
    ) -> io::Result<()> {
        Err(not_yet())
    }

    pub(super) fn reopen(&self, _pid: u32, _proof: Proof) -> io::Result<Opened> {
        Err(not_yet())
    }
}
