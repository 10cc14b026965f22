//! A look that fails. Alone in its file: it takes the descriptors of the whole process away.
#![cfg(target_os = "linux")]

mod tree_house;

use std::fs::File;

use ostler_supervisor::tree::Rung;
use tree_house::House;

/// Opens files until there is no descriptor left.
fn take_all_descriptors() -> Vec<File> {
    let few = libc::rlimit {
        rlim_cur: 100,
        rlim_max: 1024,
    };
    // SAFETY: one valid limit.
    let done = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) };
    assert_eq!(done, 0, "a limit may be lowered");
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// A job was called over, and its members forgotten, because the process table could not be read.
#[test]
fn a_tree_that_cannot_be_looked_at_is_not_counted_as_empty() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "echo $$; exec sleep 600");
    job.pids(1);
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        assert_eq!(house.trees.count(job.mark.clone()).await, Some(1));
        let taken = take_all_descriptors();
        assert_eq!(house.trees.count(job.mark.clone()).await, None);
        drop(taken);
        assert_eq!(house.trees.count(job.mark.clone()).await, Some(1));
    });
}
