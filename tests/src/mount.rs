//! File systems that a test needs to be small or silent, seen by its own thread and what that starts, by nobody else.
//!
//! Only the superuser may mount. For others the makers say aloud that the test is skipped, and return nothing.

use std::ffi::{CStr, CString};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

/// A mounted file system; taken away when dropped.
pub struct Mount {
    folder: PathBuf,
}

impl Mount {
    /// An empty disk of this many bytes over an existing folder. The house must be started after the first mount of a test.
    pub fn disk(folder: &Path, bytes: u64) -> Option<Self> {
        let options = format!("size={bytes},mode=0700");
        skippable(Self::new(folder, c"tmpfs", &options))
    }

    /// Makes the disk larger or smaller; it must not hold more than that.
    ///
    /// # Panics
    /// It cannot be done.
    pub fn resize(&self, bytes: u64) {
        let options = CString::new(format!("size={bytes}")).expect("digits have no NUL");
        let (none, at) = (std::ptr::null(), path(&self.folder));
        // SAFETY: two C strings that outlive the call.
        let done = unsafe {
            let options = options.as_ptr().cast();
            libc::mount(none, at.as_ptr(), none, libc::MS_REMOUNT, options)
        };
        ok(done).expect("the disk takes another size");
    }

    /// Lets nobody write there any more, or again.
    ///
    /// # Panics
    /// It cannot be done.
    pub fn lock(&self, locked: bool) {
        let (none, at) = (std::ptr::null(), path(&self.folder));
        let flags = if locked { libc::MS_RDONLY } else { 0 };
        // For this place alone: the disk itself may still be written to by who has it open.
        let flags = flags | libc::MS_REMOUNT | libc::MS_BIND;
        // SAFETY: a change of flags needs the path alone.
        ok(unsafe { libc::mount(none, at.as_ptr(), none, flags, none.cast()) })
            .expect("it can be locked");
    }

    fn new(folder: &Path, kind: &CStr, options: &str) -> io::Result<Self> {
        keep_mounts_private()?;
        let (at, options) = (path(folder), CString::new(options)?);
        // SAFETY: four C strings that outlive the call.
        let done = unsafe {
            let options = options.as_ptr().cast();
            libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, options)
        };
        let folder = folder.to_owned();
        ok(done).map(|()| Self { folder })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // SAFETY: a C string that outlives the call. One that is gone already is as good.
        unsafe { libc::umount2(path(&self.folder).as_ptr(), libc::MNT_DETACH) };
    }
}

fn path(folder: &Path) -> CString {
    CString::new(folder.as_os_str().as_bytes()).expect("a path has no NUL")
}

fn ok(result: i32) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What may not be had here is skipped, loudly; any other failure is one of the test.
fn skippable<T>(made: io::Result<T>) -> Option<T> {
    match made {
        Ok(made) => Some(made),
        Err(error) => {
            let lacking = [
                io::ErrorKind::PermissionDenied,
                io::ErrorKind::NotFound,
                io::ErrorKind::Unsupported,
            ];
            let lacking =
                lacking.contains(&error.kind()) || error.raw_os_error() == Some(libc::ENODEV);
            assert!(lacking, "it cannot be mounted: {error}");
            crate::skip(&format!("nothing can be mounted here: {error}"));
            None
        }
    }
}

fn keep_mounts_private() -> io::Result<()> {
    thread_local! {
        static PRIVATE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    }
    // Once: a house sees what is mounted after its start in the place where it was started.
    if PRIVATE.get() {
        return Ok(());
    }
    // SAFETY: takes a number; only this thread changes its place.
    ok(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: a change of flags needs the path alone.
    ok(unsafe { libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) })?;
    PRIVATE.set(true);
    Ok(())
}

/// A folder that does not answer: whoever looks for a file in it hangs in the kernel, and no signal reaches him. As a
/// network disk whose server is gone.
pub struct HungFolder {
    /// Taken away before the connection ends, so that nobody hangs anew.
    _mount: Mount,
    caught: mpsc::Receiver<File>,
    /// The kernel's side of it. Closing it lets everybody go.
    connection: Option<File>,
}

impl HungFolder {
    /// Over an existing folder. The house must be started after the first mount of a test.
    pub fn over(folder: &Path) -> Option<Self> {
        skippable(Self::new(folder))
    }

    fn new(folder: &Path) -> io::Result<Self> {
        let connection = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/fuse")?;
        let fd = connection.as_raw_fd();
        let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
        let mount = Mount::new(folder, c"fuse", &options)?;
        let (tell, caught) = mpsc::channel();
        std::thread::spawn(move || {
            // When the folder is taken away first, there is nothing to read any more.
            if let Ok(connection) = take_first_question(connection) {
                let _ = tell.send(connection);
            }
        });
        Ok(Self {
            _mount: mount,
            caught,
            connection: None,
        })
    }

    /// Waits until somebody hangs.
    ///
    /// # Panics
    /// Nobody comes.
    pub fn has_caught_somebody(&mut self) {
        let connection = self.caught.recv_timeout(crate::PATIENCE);
        self.connection = Some(connection.expect("somebody looks into the folder"));
    }
}

/// Shakes hands with the kernel, takes the first question about a file and leaves it unanswered. One that was not
/// taken could still be given up by who asked.
fn take_first_question(mut connection: File) -> io::Result<File> {
    /// The kernel wants room for a whole write.
    const ROOM: usize = 1 << 17;
    let mut question = vec![0; ROOM];
    // A whole message comes with each call.
    let length = connection.read(&mut question)?;
    let ticket = question[..length]
        .get(8..16)
        .ok_or(io::ErrorKind::InvalidData)?;
    let ticket = ticket.try_into().map_err(io::Error::other)?;
    connection.write_all(&hello(ticket))?;
    match connection.read(&mut question)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(connection),
    }
}

/// The answer to the kernel's first message (`fuse_out_header` and `fuse_init_out` of version 7.23 and later).
fn hello(ticket: [u8; 8]) -> Vec<u8> {
    let mut answer = vec![0; 16 + 64];
    answer[..4].copy_from_slice(&80_u32.to_ne_bytes());
    answer[8..16].copy_from_slice(&ticket);
    let mut word = |at: usize, value: u32| {
        answer[16 + at..][..4].copy_from_slice(&value.to_ne_bytes());
    };
    let (major, minor, most_written) = (7, 31, 4096);
    word(0, major);
    word(4, minor);
    word(20, most_written);
    answer
}
