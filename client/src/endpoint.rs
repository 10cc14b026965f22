//! Where this user's supervisor is, and whether that folder can be trusted.
//!
//! Owned by the client; the rules themselves are in `ostler_proto::address`. This file looks at the disk and
//! at the password file, never at `HOME`, `XDG_RUNTIME_DIR` or the like: clients with and without such
//! variables must meet at the same socket.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use ostler_proto::address::{DIR_VARIABLE, Folders, SOCKET_PATH_MAX};

/// Why a folder cannot hold the socket.
#[derive(Debug, thiserror::Error)]
pub enum BadFolder {
    /// The socket's path is longer than the kernel takes.
    #[error("socket path in {} has {length} bytes, at most {SOCKET_PATH_MAX} are possible", path.display())]
    TooLong {
        /// The folder.
        path: PathBuf,
        /// What the path would need.
        length: usize,
    },
    /// Somebody else's.
    #[error("socket folder {} belongs to {owner}, must be yours", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Name of its owner, or the number.
        owner: String,
    },
    /// A link could lead anywhere tomorrow.
    #[error("socket folder {} is a symbolic link", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Something else has that name.
    #[error("socket folder {} is no folder", path.display())]
    NoFolder {
        /// What is there.
        path: PathBuf,
    },
    /// Others could replace the socket.
    #[error("socket folder {} can be written by others (mode {mode:04o})", path.display())]
    Writable {
        /// The folder.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The kernel refused to look at it or to create it.
    #[error("socket folder {} cannot be used: {error}", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The password file has no entry for this user.
    #[error("no home folder for user {uid} in the password file")]
    NoHome {
        /// The user.
        uid: u32,
    },
}

impl BadFolder {
    /// Returns what to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Writable { path, .. } => format!("chmod 700 {}", path.display()),
            Self::TooLong { .. } => format!("set {DIR_VARIABLE} to a shorter path"),
            Self::NoHome { .. } => format!("set {DIR_VARIABLE} to a folder of yours"),
            _ => format!("remove it, or set {DIR_VARIABLE} to a folder of yours"),
        }
    }
}

/// The places at which a user's supervisor can be. The first one is where a new one is started.
#[derive(Debug, Clone)]
pub struct Endpoint {
    candidates: Vec<Folders>,
}

impl Endpoint {
    /// Returns the endpoint of the user that runs this process; `OSTLER_DIR` moves it.
    ///
    /// # Errors
    /// The path is too long for a socket, or the password file does not know the user.
    pub fn of_user() -> Result<Self, BadFolder> {
        match std::env::var_os(DIR_VARIABLE).filter(|v| !v.is_empty()) {
            Some(dir) => Self::at(Path::new(&dir)),
            None => Self::of_uid(my_uid()),
        }
    }

    /// Returns the endpoint inside one folder, as if `OSTLER_DIR` named it.
    ///
    /// # Errors
    /// The path is too long for a socket.
    pub fn at(dir: &Path) -> Result<Self, BadFolder> {
        let dir = std::path::absolute(dir).map_err(|error| BadFolder::Io {
            path: dir.into(),
            error,
        })?;
        let folders = Folders::moved(&dir);
        check_length(&folders)?;
        Ok(Self {
            candidates: vec![folders],
        })
    }

    fn of_uid(uid: u32) -> Result<Self, BadFolder> {
        let home = home_of(uid).ok_or(BadFolder::NoHome { uid })?;
        let in_run = run_user_is_ours(uid);
        let mut candidates = vec![Folders::of_user(uid, &home, in_run)];
        if in_run {
            // A supervisor that was started before the login manager made the folder sits in the other place.
            candidates.push(Folders::of_user(uid, &home, false));
        }
        candidates.iter().try_for_each(check_length)?;
        Ok(Self { candidates })
    }

    /// Returns where a supervisor is started.
    pub fn folders(&self) -> &Folders {
        &self.candidates[0]
    }

    /// Returns every place at which one may listen, in the order in which they are tried.
    pub fn candidates(&self) -> &[Folders] {
        &self.candidates
    }
}

fn check_length(folders: &Folders) -> Result<(), BadFolder> {
    folders.check_length().map_err(|length| BadFolder::TooLong {
        path: folders.run.clone(),
        length,
    })
}

/// Tells whether the socket's folder is there and can be trusted: `false` when it is missing.
///
/// # Errors
/// It is there and cannot be trusted.
pub fn check_folder(path: &Path) -> Result<bool, BadFolder> {
    let path_buf = || path.to_path_buf();
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => {
            return Err(BadFolder::Io {
                path: path_buf(),
                error,
            });
        }
    };
    if meta.file_type().is_symlink() {
        return Err(BadFolder::Link { path: path_buf() });
    }
    if !meta.is_dir() {
        return Err(BadFolder::NoFolder { path: path_buf() });
    }
    if meta.uid() != my_uid() {
        return Err(BadFolder::Foreign {
            path: path_buf(),
            owner: user_name(meta.uid()),
        });
    }
    if meta.mode() & 0o022 != 0 {
        return Err(BadFolder::Writable {
            path: path_buf(),
            mode: meta.mode() & 0o7777,
        });
    }
    Ok(true)
}

/// Creates the socket's folder for the user alone if it is missing, then checks it.
///
/// # Errors
/// It cannot be created or cannot be trusted.
pub fn create_folder(path: &Path) -> Result<(), BadFolder> {
    if check_folder(path)? {
        return Ok(());
    }
    let made = std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    if let Err(error) = made {
        return Err(BadFolder::Io {
            path: path.into(),
            error,
        });
    }
    // Between the look and the creation somebody else may have put something there.
    check_folder(path).map(drop)
}

/// Returns the user id of this process.
pub fn my_uid() -> u32 {
    // SAFETY: getuid has no arguments, touches no memory and cannot fail.
    unsafe { libc::getuid() }
}

fn run_user_is_ours(uid: u32) -> bool {
    std::fs::symlink_metadata(format!("/run/user/{uid}"))
        .is_ok_and(|m| m.is_dir() && m.uid() == uid)
}

fn user_name(uid: u32) -> String {
    passwd(uid, |p| p.pw_name).map_or_else(
        || format!("user {uid}"),
        |n| OsStr::from_bytes(&n).to_string_lossy().into_owned(),
    )
}

/// Returns the home folder that the password file gives a user.
pub fn home_of(uid: u32) -> Option<PathBuf> {
    passwd(uid, |p| p.pw_dir)
        .filter(|home| home.starts_with(b"/"))
        .map(|home| PathBuf::from(OsStr::from_bytes(&home)))
}

/// Returns one text of a user's entry in the password file.
fn passwd(uid: u32, field: fn(&libc::passwd) -> *mut libc::c_char) -> Option<Vec<u8>> {
    let mut buffer = vec![0u8; 1024];
    loop {
        // SAFETY: an all-zero passwd is a valid value of this plain C struct.
        let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
        let mut found: *mut libc::passwd = std::ptr::null_mut();
        // SAFETY: all pointers are valid for the call, and the length is that of the buffer.
        let code = unsafe {
            libc::getpwuid_r(
                uid,
                &raw mut entry,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        if code == libc::ERANGE && buffer.len() < 1 << 20 {
            buffer.resize(buffer.len() * 4, 0);
            continue;
        }
        let text = field(&entry);
        if code != 0 || found.is_null() || text.is_null() {
            return None;
        }
        // SAFETY: the call succeeded, so the text is NUL-terminated and lies in `buffer`, which is alive.
        return Some(unsafe { CStr::from_ptr(text) }.to_bytes().to_vec());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_folder_that_others_can_write_is_refused_with_its_mode() {
        let dir = tempfile::tempdir().unwrap();
        mode(dir.path(), 0o770);
        let e = check_folder(dir.path()).unwrap_err();
        assert!(e.to_string().contains("mode 0770"), "{e}");
        assert!(e.hint().starts_with("chmod 700 "));
        mode(dir.path(), 0o700);
        assert!(check_folder(dir.path()).unwrap());
    }

    #[test]
    fn a_link_and_a_file_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        symlink(dir.path(), &link).unwrap();
        assert!(matches!(check_folder(&link), Err(BadFolder::Link { .. })));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(matches!(
            check_folder(&file),
            Err(BadFolder::NoFolder { .. })
        ));
    }

    #[test]
    fn a_missing_folder_is_created_for_the_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("a/b");
        assert!(!check_folder(&run).unwrap());
        create_folder(&run).unwrap();
        let meta = std::fs::metadata(&run).unwrap();
        assert_eq!(meta.mode() & 0o777, 0o700);
    }

    #[test]
    fn a_path_too_long_is_refused_before_anything_is_looked_at() {
        let long = PathBuf::from(format!("/{}", "x".repeat(120)));
        assert!(matches!(
            Endpoint::at(&long),
            Err(BadFolder::TooLong { .. })
        ));
    }

    #[test]
    fn the_home_folder_comes_from_the_password_file() {
        assert_eq!(home_of(0).as_deref(), Some(Path::new("/root")));
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(4_000_000_123), "user 4000000123");
    }
}
