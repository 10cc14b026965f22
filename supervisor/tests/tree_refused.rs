//! Members that this user may not signal. Needs root to make one; as an ordinary user there is nothing to see.
#![cfg(target_os = "linux")]

mod tree_house;

use std::time::{Duration, Instant};

use ostler_supervisor::tree::{Rung, Trees};
use tree_house::{House, lives};

/// A service whose thread, and it alone, is an ordinary user's: the kernel keeps user numbers per thread and hands
/// them on to the threads that one makes, only the C library spreads them.
fn trees_of_an_ordinary_user(instance: u32) -> Trees {
    let make = move || {
        let nobody = 65_534;
        // SAFETY: changes numbers of the calling thread.
        let done = unsafe { libc::syscall(libc::SYS_setresuid, nobody, nobody, nobody) };
        assert_eq!(done, 0, "root may become anybody");
        Trees::new(instance, Rung::Cookie)
    };
    std::thread::spawn(make).join().expect("it does not panic")
}

#[tokio::test]
async fn a_member_that_became_another_users_is_found_and_named_instead_of_called_gone() {
    // SAFETY: no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can make a process that this user may not signal");
        return;
    }
    let mut house = House::new(Rung::Cookie);
    house.trees = trees_of_an_ordinary_user(house.instance);
    let mut job = house.sh(1, "echo $$; exec sleep 600");
    job.pids(1);
    let began = Instant::now();
    let reached = house.trees.polite(job.mark.clone(), false).await;
    let killed = house.trees.kill(job.mark.clone()).await;
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
