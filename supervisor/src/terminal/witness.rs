//! What the kernel says of a shell after each of its lines: where it is, and whether others live in it.
//!
//! The files that tell it stay open while it lives: to find one each time costs more than to read it.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt as _, OpenOptionsExt as _},
    },
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::proof::is_alive;

/// Asked about one shell, always the same one.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    children: Mutex<Option<File>>,
    cwd: Mutex<Option<File>>,
}

impl Witness {
    /// The shell of this number has living children: who they are is not asked.
    pub(crate) fn has_children(&self, pid: u32) -> bool {
        let mut children = held(&self.children);
        let file = match children.take() {
            Some(file) => file,
            None => match File::open(format!("/proc/{pid}/task/{pid}/children")) {
                Ok(file) => file,
                // Gone; else who cannot be looked at may have some: no descriptor was left.
                Err(e) => return e.kind() != io::ErrorKind::NotFound,
            },
        };
        let file = children.insert(file);
        let mut numbers = [0; 4096];
        // Of a shell that is gone there is nothing to read. A number that is cut is the last of hundreds.
        let n = file.read_at(&mut numbers, 0).unwrap_or(0);
        let text = std::str::from_utf8(&numbers[..n]).unwrap_or_default();
        let mut pids = text.split_whitespace().filter_map(|c| c.parse().ok());
        pids.any(is_alive)
    }

    /// Where it is. Its own name for that may hold what no mark can.
    pub(crate) fn directory(&self, pid: u32) -> Option<String> {
        let mut cwd = held(&self.cwd);
        let link = match cwd.take() {
            Some(link) => link,
            None => OpenOptions::new()
                .read(true)
                .custom_flags(libc::O_PATH | libc::O_NOFOLLOW)
                .open(format!("/proc/{pid}/cwd"))
                .ok()?,
        };
        target(cwd.insert(link))
    }

    /// It has ended: its record may be kept for a day, and needs no descriptor.
    pub(crate) fn close(&self) {
        held(&self.children).take();
        held(&self.cwd).take();
    }
}

fn held(file: &Mutex<Option<File>>) -> MutexGuard<'_, Option<File>> {
    file.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where a link leads that is open as itself.
fn target(link: &File) -> Option<String> {
    let mut path = [0u8; libc::PATH_MAX as usize];
    // SAFETY: a descriptor that we own, an empty path that ends, and a buffer of the length that is told.
    let n = unsafe {
        libc::readlinkat(
            link.as_raw_fd(),
            c"".as_ptr(),
            path.as_mut_ptr().cast(),
            path.len(),
        )
    };
    let path = path.get(..usize::try_from(n).ok()?)?;
    Some(String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_directory_is_told_as_it_is_now_and_of_who_is_gone_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().canonicalize().unwrap();
        let mut child = Command::new("sleep")
            .arg("1000")
            .current_dir(&real)
            .spawn()
            .unwrap();
        let witness = Witness::default();
        assert_eq!(witness.directory(child.id()).as_deref(), real.to_str());
        let moved = real.with_extension("moved");
        std::fs::rename(&real, &moved).unwrap();
        assert_eq!(witness.directory(child.id()).as_deref(), moved.to_str());
        std::fs::rename(&moved, &real).unwrap();
        assert!(!witness.has_children(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(witness.directory(child.id()), None);
        assert!(!witness.has_children(child.id()));
    }
}
