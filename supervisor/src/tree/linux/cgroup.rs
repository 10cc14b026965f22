//! Control groups (version 2): one folder a house, in it one leaf a job, below the group that the keeper stands in.
//!
//! ```text
//!   <own group>/ostler-<instance>/<job>[/what the job made itself]
//! ```
//!
//! Whoever is in a leaf is a member, whatever became of its cookie, and one write ends all of them at once: no fork
//! gets away from it, and another user's program neither. A member may move itself to another group where it may write
//! there; the cookie finds it then. No controller is ever enabled, so the rule that inner groups hold no process does
//! not concern us. The keeper makes leaves and removes them; the supervisor reads and kills.

use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use super::Wake;
use super::handle::poll_for;

/// How deep the groups are followed that a job made in its own: it cannot make us run out of stack.
const DEEPEST: usize = 64;

/// Bytes that tell the file system of version 2 (`CGROUP2_SUPER_MAGIC`).
const MAGIC: i64 = 0x6367_7270;

/// The groups of one house.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroups {
    folder: PathBuf,
}

/// The group of one job, or that of a house with all its jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    folder: PathBuf,
}

/// What became of removing a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// It is not there any more.
    Gone,
    /// Somebody lives in it.
    Populated,
    /// Nobody lives in it, and the kernel keeps it for the moment.
    Kept,
}

/// What the kernel counted for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Processor time of everybody who was ever in it.
    pub cpu_ms: u64,
    /// Memory of everybody who is; nothing where no controller counts it.
    pub memory: Option<u64>,
}

impl Cgroups {
    /// Where a house started by this process would have its groups. Makes nothing.
    ///
    /// # Errors
    /// Why it can have none, in words that stand behind `cgroup: `.
    pub fn find(instance: u32) -> Result<Self, String> {
        let own = own_group()?;
        let name = name(instance);
        // Started inside of what a dead house of this instance has left: that folder is ours, and we go out of it.
        let above = own.ancestors().find(|a| a.file_name() == Some(&name));
        let parent = above.and_then(Path::parent).unwrap_or(&own);
        if !may_write(parent) || !may_write(&parent.join("cgroup.procs")) {
            return Err(format!("not delegated: {} is not ours", parent.display()));
        }
        Ok(Self {
            folder: parent.join(name),
        })
    }

    /// The groups in a folder that a keeper has named. Nothing when it cannot be that of a house of this instance.
    pub fn at(folder: &Path, instance: u32) -> Option<Self> {
        let ours = folder.file_name() == Some(&name(instance)) && is_cgroup(folder);
        ours.then(|| Self {
            folder: folder.to_owned(),
        })
    }

    /// Makes the folder and tries what is needed of it.
    ///
    /// # Errors
    /// As [`Cgroups::find`]; nothing new is left then.
    pub fn make(&self) -> Result<(), String> {
        let made = fs::create_dir(&self.folder);
        if let Err(error) = &made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(format!("{}: {error}", self.folder.display()));
        }
        self.leave().and_then(|()| self.suits()).inspect_err(|_| {
            // Only what we have made is empty.
            let _ = fs::remove_dir(&self.folder);
        })
    }

    /// The calling process must not stand in what it is going to clear.
    fn leave(&self) -> Result<(), String> {
        if !own_group()?.starts_with(&self.folder) {
            return Ok(());
        }
        let parent = self.folder.parent().unwrap_or(&self.folder);
        fs::write(parent.join("cgroup.procs"), "0")
            .map_err(|error| format!("{} cannot be entered: {error}", parent.display()))
    }

    fn suits(&self) -> Result<(), String> {
        if !self.folder.join("cgroup.kill").exists() {
            return Err("Linux 5.14 is needed".to_owned());
        }
        let kind = fs::read_to_string(self.folder.join("cgroup.type"));
        match kind.as_deref().map(str::trim) {
            Ok("domain") => Ok(()),
            Ok(kind) => Err(format!("{} is of the kind `{kind}`", self.folder.display())),
            Err(error) => Err(format!("{}: {error}", self.folder.display())),
        }
    }

    /// The folder of the house.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The group of a job.
    pub fn leaf(&self, job: u64) -> Leaf {
        Leaf {
            folder: self.folder.join(job.to_string()),
        }
    }

    /// The house's own group: all jobs.
    pub fn whole(&self) -> Leaf {
        Leaf {
            folder: self.folder.clone(),
        }
    }

    /// Makes the group of a job and returns its handle.
    ///
    /// # Errors
    /// The kernel refuses, or somebody still lives in one of this number.
    pub(crate) fn make_leaf(&self, job: u64) -> io::Result<OwnedFd> {
        let leaf = self.leaf(job);
        match fs::create_dir(&leaf.folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                leaf.remove();
                fs::create_dir(&leaf.folder)?;
            }
            // A cleaner of empty groups took the folder away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir(&self.folder)?;
                fs::create_dir(&leaf.folder)?;
            }
            made => made?,
        }
        let mut options = fs::OpenOptions::new();
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let opened = options.read(true).custom_flags(flags).open(&leaf.folder);
        opened.map(OwnedFd::from).inspect_err(|_| {
            leaf.remove();
        })
    }

    /// Removes the groups of jobs in which nobody lives.
    pub fn clear(&self) {
        for below in below(&self.folder) {
            Leaf { folder: below }.remove();
        }
    }
}

impl Leaf {
    /// Tells whether there is such a group.
    pub fn exists(&self) -> bool {
        self.folder.exists()
    }

    /// Numbers of everybody who lives in it or in what is below. Nobody when there is no such group.
    pub fn members(&self) -> Vec<u32> {
        let mut found = Vec::new();
        gather(&self.folder, DEEPEST, &mut found);
        found
    }

    /// Ends everybody in it and in what is below, whosesoever they are.
    ///
    /// # Errors
    /// There is no such group, or it may not be written.
    pub fn kill(&self) -> io::Result<()> {
        // Opened without making: a mere write would try to create the file.
        let mut options = fs::OpenOptions::new();
        let mut file = options.write(true).open(self.folder.join("cgroup.kill"))?;
        io::Write::write_all(&mut file, b"1")
    }

    /// Tells whether nobody lives in it, and waits for that until then or until somebody rings.
    pub(in super::super) fn empties(&self, until: Instant, wake: Option<&Wake>) -> bool {
        // One that is gone is empty.
        let Ok(file) = fs::File::open(self.folder.join("cgroup.events")) else {
            return true;
        };
        loop {
            let mut bytes = [0; 128];
            let Ok(length) = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 0) else {
                return true;
            };
            if contains(&bytes[..length], b"populated 0") {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            let asked = [
                (file.as_raw_fd(), libc::POLLPRI),
                (wake.map_or(-1, Wake::raw), libc::POLLIN),
            ];
            if left.is_zero() || !matches!(poll_for(&asked, left), Ok([true, false])) {
                return false;
            }
        }
    }

    /// Removes it, with the empty groups that a job made in it.
    pub fn remove(&self) -> Removed {
        if removed(&self.folder) {
            return Removed::Gone;
        }
        // Counted by those who live: the kernel may take a moment longer to let a dead one go.
        if !self.members().is_empty() {
            return Removed::Populated;
        }
        remove_below(&self.folder, DEEPEST);
        match removed(&self.folder) {
            true => Removed::Gone,
            false => Removed::Kept,
        }
    }

    /// What the kernel counted, if there is such a group.
    pub fn figures(&self) -> Option<Figures> {
        let text = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
        let micros = text.lines().find_map(|l| l.strip_prefix("usage_usec "))?;
        let memory = fs::read_to_string(self.folder.join("memory.current")).ok();
        Some(Figures {
            cpu_ms: micros.trim().parse::<u64>().ok()? / 1_000,
            memory: memory.and_then(|text| text.trim().parse().ok()),
        })
    }
}

/// Ends everybody in the folder that a dead house of this instance has left, and removes it. False: somebody is left.
pub fn clear_former(former: &Cgroups, patience: Duration) -> bool {
    let whole = former.whole();
    if whole.kill().is_ok() {
        whole.empties(Instant::now() + patience, None);
    }
    former.clear();
    whole.remove() == Removed::Gone
}

fn name(instance: u32) -> OsString {
    format!("ostler-{instance:08x}").into()
}

/// True when the group is not there any more.
fn removed(folder: &Path) -> bool {
    match fs::remove_dir(folder) {
        Ok(()) => true,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn remove_below(folder: &Path, depth: usize) {
    if depth == 0 {
        return;
    }
    for below in below(folder) {
        remove_below(&below, depth - 1);
        removed(&below);
    }
}

fn gather(folder: &Path, depth: usize, found: &mut Vec<u32>) {
    // A process of another process namespace is listed as 0.
    let listed = fs::read(folder.join("cgroup.procs")).unwrap_or_default();
    let words = listed.split(|byte| *byte == b'\n');
    let numbers = words.filter_map(|word| str::from_utf8(word).ok()?.parse().ok());
    found.extend(numbers.filter(|pid: &u32| *pid > 0));
    if depth > 0 && has_below(folder) {
        for below in below(folder) {
            gather(&below, depth - 1, found);
        }
    }
}

/// A group's link count is that of its folders, as everywhere; reading a folder costs ten times as much.
fn has_below(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|meta| meta.nlink() > 2)
}

fn below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let folders = entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

fn contains(text: &[u8], line: &[u8]) -> bool {
    text.split(|byte| *byte == b'\n').any(|one| one == line)
}

fn may_write(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: a valid C string; nothing is changed.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

fn is_cgroup(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: all zeroes is a valid value of this plain structure, and it outlives the call.
    unsafe {
        let mut found: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut found) == 0 && found.f_type as i64 == MAGIC
    }
}

/// The folder of the group that the calling process is in.
fn own_group() -> Result<PathBuf, String> {
    let groups = fs::read("/proc/self/cgroup").map_err(|_| "this kernel has none".to_owned())?;
    let mounts = fs::read("/proc/self/mountinfo").map_err(|error| error.to_string())?;
    own_folder(&groups, &mounts)
}

fn own_folder(groups: &[u8], mounts: &[u8]) -> Result<PathBuf, String> {
    let own = lines(groups)
        .find_map(|line| line.strip_prefix(b"0::"))
        .ok_or("this kernel has no version 2")?;
    let own = Path::new(OsStr::from_bytes(own));
    let mut there = false;
    for (root, place) in lines(mounts).filter_map(mount_of_version_2) {
        there = true;
        if let Ok(rest) = own.strip_prefix(&root) {
            // A trailing slash would stay in what is compared later.
            return Ok(place.join(rest).components().collect());
        }
    }
    Err(match there {
        true => format!("our own, {}, is outside of what is mounted", own.display()),
        false => "version 2 is not mounted".to_owned(),
    })
}

/// Root and place of one line of `mountinfo`, if that is a mount of version 2.
fn mount_of_version_2(line: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let words: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = words.iter().position(|word| *word == b"-")?;
    if *words.get(dash + 1)? != b"cgroup2" {
        return None;
    }
    Some((unescape(words.get(3)?), unescape(words.get(4)?)))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| *byte == b'\n')
}

/// Blanks and backslashes stand there as three octal digits.
fn unescape(word: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        let number = digits.and_then(|d| u8::from_str_radix(str::from_utf8(d).ok()?, 8).ok());
        match number {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => bytes.push(*first),
        }
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &[u8] = b"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
        32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n";

    #[test]
    fn the_own_group_is_found_in_a_hybrid_and_in_a_plain_layout() {
        let own = |groups: &str, mounts| own_folder(groups.as_bytes(), mounts);
        let unified = |path| Ok(PathBuf::from(path));
        assert_eq!(
            own("9:cpu:/a\n0::/\n", HYBRID),
            unified("/sys/fs/cgroup/unified")
        );
        assert_eq!(
            own(
                "0::/user.slice/x.scope\n",
                b"30 23 0:26 / /sys/fs/cgroup rw - cgroup2 c rw"
            ),
            unified("/sys/fs/cgroup/user.slice/x.scope")
        );
    }

    #[test]
    fn a_container_that_sees_a_part_of_the_groups_finds_its_own_there() {
        let mounts = b"30 23 0:26 /pod/a /my\\040groups ro - cgroup2 cgroup2 rw\n";
        assert_eq!(
            own_folder(b"0::/pod/a/b\n", mounts),
            Ok(PathBuf::from("/my groups/b"))
        );
        assert!(own_folder(b"0::/pod/c\n", mounts).is_err());
    }

    #[test]
    fn without_version_2_the_reason_is_told() {
        assert!(own_folder(b"9:cpu:/a\n", HYBRID).is_err());
        let mounts = b"32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        let reason = own_folder(b"0::/\n", mounts).expect_err("it is not mounted");
        assert!(reason.contains("not mounted"), "{reason}");
    }

    #[test]
    fn a_folder_that_is_no_group_of_this_house_is_never_taken_for_one() {
        let instance = 0x1234;
        let elsewhere = std::env::temp_dir().join(name(instance));
        assert_eq!(Cgroups::at(&elsewhere, instance), None);
        for mount in ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
            assert_eq!(Cgroups::at(Path::new(mount), instance), None);
        }
    }
}
