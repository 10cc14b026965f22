//! What a program may do so that whoever ends its tree misses a part of it. The puppet's verbs for that.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Keeps the writing end of a FIFO open, and so does every descendant that does not close it.
pub(crate) fn hold(path: &str) {
    use std::os::fd::{AsRawFd, IntoRawFd};
    // Opened for reading as well, so that it does not wait for a reader.
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.expect("the FIFO is there");
    // SAFETY: plain call on an open descriptor.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
    let _ = file.into_raw_fd();
}

/// The calling process under another name, in the list of processes too.
pub(crate) fn name(name: &str) {
    let name = std::ffi::CString::new(name).expect("a name has no NUL");
    // SAFETY: the name is a valid C string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// A mark of limits is overwritten, as a program would that asks for real-time scheduling.
pub(crate) fn lower() {
    let limit = libc::rlimit64 {
        rlim_cur: 200_000,
        rlim_max: 200_000,
    };
    // SAFETY: reads a live structure.
    let done = unsafe { libc::setrlimit64(libc::RLIMIT_RTTIME, &raw const limit) };
    assert_eq!(done, 0, "anybody may lower a limit");
}

/// No descriptor is left.
pub(crate) fn close_all() {
    // SAFETY: nothing of this process uses one any more.
    unsafe { libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0) };
}

/// Orphans below come to this process instead of the keeper.
pub(crate) fn subreaper() {
    // SAFETY: a flag of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// A child in a `vfork` that does not end: its parent hangs in the kernel until then. True in the child, which has
/// memory of its own here.
pub(crate) fn vfork() -> bool {
    let flags = libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: no shared memory, no new stack; the puppet has one thread.
    unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 }
}

/// Asks to be traced by the parent.
pub(crate) fn trace_me() {
    // SAFETY: no memory is touched.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
}

/// Traces a process, and takes its end as a debugger does. Says `tracing` once it does.
pub(crate) fn trace(pid: i32) {
    // SAFETY: no memory is touched, but for the status that outlives its call.
    unsafe {
        let seized = libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0);
        println!("{}", if seized == 0 { "tracing" } else { "refused" });
        let mut status = 0;
        while libc::waitpid(pid, &raw mut status, libc::__WALL) == pid {
            if libc::WIFSTOPPED(status) {
                libc::ptrace(libc::PTRACE_CONT, pid, 0, 0);
            }
        }
    }
}

/// A child on a terminal of its own. True in the child.
pub(crate) fn forkpty() -> bool {
    let mut master = -1;
    // SAFETY: the descriptor outlives the call, everything else may be null; the puppet has one thread.
    unsafe {
        libc::forkpty(
            &raw mut master,
            std::ptr::null_mut(),
            std::ptr::null(),
            std::ptr::null(),
        ) == 0
    }
}

/// Goes into another control group.
pub(crate) fn enter(folder: &str) {
    write(&PathBuf::from(folder).join("cgroup.procs"), "0");
}

/// Makes a control group in its own and goes there, if its own is a job's.
pub(crate) fn subgroup(name: &str) {
    if let Some(own) = own_leaf() {
        let inner = own.join(name);
        fs::create_dir(&inner).expect("a group can be made");
        write(&inner.join("cgroup.procs"), "0");
    }
}

/// Stops its control group as a whole, itself with it, if that is a job's.
pub(crate) fn freeze() {
    if let Some(own) = own_leaf() {
        write(&own.join("cgroup.freeze"), "1");
    }
}

/// Only the group of a job: what is above it holds the test.
fn own_leaf() -> Option<PathBuf> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = groups.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mount = mounts.lines().find(|l| l.contains(" - cgroup2 "))?;
    let root = mount.split(' ').nth(4)?;
    let (_, name) = own.rsplit_once("ostler-")?;
    name.contains('/').then(|| PathBuf::from(root).join(own))
}

/// Opens without making: in this file system a mere write would try to create.
fn write(path: &std::path::Path, text: &str) {
    let file = fs::OpenOptions::new().write(true).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}
