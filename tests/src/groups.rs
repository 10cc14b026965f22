//! Control groups as a bystander sees them: what a house has left in them, and one that is handed to another user.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// Where version 2 is mounted; nothing where it is not.
pub fn root() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|l| l.contains(" - cgroup2 "))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

/// Every group of this name, anywhere.
pub fn named(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = root().into_iter().collect();
    while let Some(folder) = open.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let below = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
        for path in below.map(|e| e.path()) {
            if path.file_name().is_some_and(|n| n == name) {
                found.push(path.clone());
            }
            open.push(path);
        }
    }
    found
}

/// The groups in a group, with who lives in each.
pub fn below(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let groups = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    let lives = |path: &Path| fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    groups.map(|e| (e.path(), lives(&e.path()))).collect()
}

/// Removes a group with all below it, as far as nobody lives there.
pub fn remove(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for below in entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
        remove(&below.path());
    }
    // Whoever lives in it keeps it; whoever looks for what is left finds it then.
    let _ = fs::remove_dir(folder);
}

/// The group that this process is in.
pub fn own() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    Some(root()?.join(own))
}

/// A group of this test's own, handed to a user as a service manager would.
#[derive(Debug)]
pub struct Delegated {
    folder: PathBuf,
}

impl Delegated {
    /// Makes one below the group of this process; nothing where that is not allowed.
    pub fn to(uid: u32) -> Option<Self> {
        let folder = own()?.join(format!("ostler-test-{}", std::process::id()));
        fs::create_dir(&folder).ok()?;
        let made = Self { folder };
        for file in [
            "",
            "cgroup.procs",
            "cgroup.threads",
            "cgroup.subtree_control",
        ] {
            chown(made.folder.join(file), Some(uid), Some(uid)).ok()?;
        }
        Some(made)
    }

    /// Its list of processes: who writes `0` there goes in.
    pub fn door(&self) -> PathBuf {
        self.folder.join("cgroup.procs")
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Delegated {
    fn drop(&mut self) {
        // Only a test that failed has left somebody in it.
        let mut options = fs::OpenOptions::new();
        if let Ok(mut kill) = options.write(true).open(self.folder.join("cgroup.kill")) {
            let _ = std::io::Write::write_all(&mut kill, b"1");
        }
        remove(&self.folder);
    }
}
