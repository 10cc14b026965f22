//! What tells a file from another one of the same name.

use std::{ffi::CString, mem};

use ostler_proto::job::FileIdentity;

/// The identity of a file that was executed a moment ago; nothing when it is gone.
///
/// No file server is asked: it might not answer, and this runs where others wait. The path was just walked by the
/// kernel for the exec, so that what is wanted is at hand.
pub(crate) fn identity(path: &str) -> Option<FileIdentity> {
    let path = CString::new(path).ok()?;
    // SAFETY: all zeroes is a valid value of this plain structure.
    let mut told: libc::statx = unsafe { mem::zeroed() };
    let flags = libc::AT_STATX_DONT_SYNC | libc::AT_NO_AUTOMOUNT;
    // SAFETY: the path is a valid C string and the structure outlives the call.
    let done = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            libc::STATX_BASIC_STATS,
            &raw mut told,
        )
    };
    let modified = &told.stx_mtime;
    let seconds = u64::try_from(modified.tv_sec).unwrap_or(0);
    (done == 0).then(|| FileIdentity {
        device: libc::makedev(told.stx_dev_major, told.stx_dev_minor),
        inode: told.stx_ino,
        bytes: told.stx_size,
        modified_at: seconds * 1_000 + u64::from(modified.tv_nsec) / 1_000_000,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn it_is_what_stat_tells_and_changes_with_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "one").unwrap();
        let text = path.to_str().unwrap();
        let told = identity(text).unwrap();
        let stat = std::fs::metadata(&path).unwrap();
        assert_eq!(
            (told.device, told.inode, told.bytes),
            (stat.dev(), stat.ino(), 3)
        );
        assert_eq!(told.modified_at / 1_000, stat.mtime() as u64);
        std::fs::write(dir.path().join("new"), "other").unwrap();
        std::fs::rename(dir.path().join("new"), &path).unwrap();
        assert_ne!(identity(text).unwrap(), told);
        assert_eq!(identity("/nowhere"), None);
    }
}
