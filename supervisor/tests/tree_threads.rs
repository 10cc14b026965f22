//! In a full process table no thread can be made; a stop that needed one panicked there. Alone in its file, since it
//! counts the threads of its process.
#![cfg(target_os = "linux")]

mod tree_house;

use ostler_supervisor::tree::Rung;
use tree_house::{House, living_of};

#[tokio::test]
async fn a_tree_is_ended_where_no_thread_can_be_made() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "sleep 600 & echo $!; wait");
    job.pids(1);
    let threads = || {
        std::fs::read_dir("/proc/self/task")
            .map(Iterator::count)
            .unwrap_or(0)
    };
    let before = threads();
    let killed = house.trees.kill(job.mark.clone()).await;
    assert_eq!(killed.survivors, []);
    assert_eq!(living_of(house.instance), [0_u32; 0]);
    assert_eq!(threads(), before, "one was made for this stop");
}
