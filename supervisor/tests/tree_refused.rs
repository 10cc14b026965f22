//! Members that this user may not signal. Needs root to make one; as an ordinary user there is nothing to see.
#![cfg(target_os = "linux")]

mod tree_house;

use std::time::{Duration, Instant};

use ostler_supervisor::tree::Rung;
use tree_house::{House, lives};

/// A runtime whose worker threads, and they alone, are an ordinary user's: the kernel keeps user numbers per
/// thread, only the C library spreads them.
fn ordinary_user() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().on_thread_start(|| {
        let nobody = 65_534;
        // SAFETY: changes numbers of the calling thread.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        assert_eq!(done, 0, "root may become anybody");
    });
    builder.build().expect("a runtime")
}

#[test]
fn a_member_that_became_another_users_is_found_and_named_instead_of_called_gone() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make a process that this user may not signal");
        return;
    }
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "echo $$; exec sleep 600");
    job.pids(1);
    let began = Instant::now();
    let runtime = ordinary_user();
    let (reached, killed) = runtime.block_on(async {
        let reached = house.trees.polite(job.mark.clone()).await;
        (reached, house.trees.kill(job.mark.clone()).await)
    });
    assert_eq!(reached, [0_u32; 0]);
    assert_eq!(killed.seen, [job.pid], "its limits are open to all");
    let survivor = killed.survivors.first().expect("it may not be signalled");
    assert_eq!(survivor.pid, job.pid);
    assert_eq!(
        (&*survivor.program, &*survivor.why),
        ("sleep", "not permitted")
    );
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "the wait is bounded"
    );
    assert!(
        house.trees.scans() < 60,
        "{} looks: a busy loop",
        house.trees.scans()
    );
    assert!(lives(job.pid));
    // SAFETY: our own child, alive and unreaped.
    unsafe { libc::kill(job.pid as i32, libc::SIGKILL) };
}
