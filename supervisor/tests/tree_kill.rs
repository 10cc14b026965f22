//! Trees that do not want to end, on the cookie rung.
#![cfg(target_os = "linux")]

mod tree_house;

use std::collections::BTreeSet;
use std::process::Command;

use ostler_supervisor::tree::cookie::{Cookie, HOUSE_JOB};
use ostler_supervisor::tree::{self, Rung};
use tree_house::{House, Job, lives, living_of, parent, set_cookie, state, until};

/// Kills and checks against the process table that nobody is left.
async fn end(house: &House, job: &Job) -> Vec<u32> {
    let killed = house.trees.kill(job.mark.clone()).await;
    assert_eq!(killed.survivors, []);
    assert_eq!(living_of(house.instance), [0_u32; 0]);
    killed.seen
}

#[tokio::test]
async fn a_leader_and_a_child_that_ignore_the_polite_signal_are_ended_by_force() {
    let house = House::new(Rung::Cookie);
    let line = "trap '' TERM; sh -c 'echo $$; while :; do sleep 600; done' & echo $$; wait";
    let mut job = house.sh(1, line);
    let pids = job.pids(2);
    let reached = house.trees.polite(job.mark.clone(), false).await;
    assert!(pids.iter().all(|pid| reached.contains(pid)), "{reached:?}");
    assert!(pids.iter().all(|pid| lives(*pid)), "both ignore it");
    let seen = end(&house, &job).await;
    assert!(pids.iter().all(|pid| seen.contains(pid)), "{seen:?}");
}

#[tokio::test]
async fn an_orphan_with_its_own_session_and_an_empty_environment_is_still_a_member() {
    let house = House::new(Rung::Cookie);
    let line =
        "(setsid env -i /bin/sh -c 'echo $$; trap \"\" TERM HUP; while :; do sleep 600; done' &)";
    let mut job = house.sh(1, line);
    let orphan = job.pids(1)[0];
    let members = house.trees.members(job.mark.clone()).await;
    assert!(members.contains(&orphan), "{members:?}");
    end(&house, &job).await;
    assert!(!lives(orphan));
}

#[tokio::test]
async fn eight_loops_that_fork_all_the_time_are_ended() {
    let house = House::new(Rung::Cookie);
    let line = "for i in 1 2 3 4 5 6 7 8; do (while :; do sh -c 'echo x'; done) & done; wait";
    let mut job = house.sh(1, line);
    (0..50).for_each(|_| assert_eq!(job.line(), "x"));
    end(&house, &job).await;
}

#[tokio::test]
async fn eight_chains_in_which_each_process_forks_its_successor_and_dies_are_ended() {
    let house = House::new(Rung::Cookie);
    let line = "for i in 1 2 3 4 5 6 7 8; do setsid sh -c \"$CHAIN\" & done";
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]);
    command.env("CHAIN", "echo x; sh -c \"$CHAIN\" & exit 0");
    let mut job = house.start(1, command);
    (0..200).for_each(|_| assert_eq!(job.line(), "x"));
    end(&house, &job).await;
    let scans = house.trees.scans();
    assert!(scans <= 20, "{scans} looks: it was chased, not stopped");
}

#[tokio::test]
async fn a_stopped_tree_obeys_the_polite_signal_because_it_is_continued() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(
        1,
        "sleep 600 & echo $!; kill -STOP $!; echo $$; kill -STOP $$",
    );
    let pids = job.pids(2);
    until(|| pids.iter().all(|pid| state(*pid) == Some('T'))).await;
    let reached = house.trees.polite(job.mark.clone(), false).await;
    assert!(pids.iter().all(|pid| reached.contains(pid)), "{reached:?}");
    job.closed();
    until(|| !pids.iter().any(|pid| lives(*pid))).await;
}

#[tokio::test]
async fn a_stopped_tree_is_ended_by_force() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(
        1,
        "sleep 600 & echo $!; kill -STOP $!; echo $$; kill -STOP $$",
    );
    let pids = job.pids(2);
    until(|| pids.iter().all(|pid| state(*pid) == Some('T'))).await;
    end(&house, &job).await;
}

/// Starts a process whose main thread is gone while another thread lives on. Its state reads `Z`.
fn main_thread_gone(cookie: Cookie) -> u32 {
    extern "C" fn stay(_: *mut libc::c_void) -> *mut libc::c_void {
        loop {
            // SAFETY: waits for a signal.
            unsafe { libc::pause() };
        }
    }
    // SAFETY: the child makes a thread and system calls only; it never returns.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut thread = 0;
        let made = set_cookie(cookie).is_ok()
            // SAFETY: `thread` lives as long as the call, `stay` needs no argument.
            && unsafe {
                libc::pthread_create(&mut thread, std::ptr::null(), stay, std::ptr::null_mut())
            } == 0;
        // SAFETY: ends this thread alone when the other one is there, else the process.
        unsafe {
            libc::syscall(
                if made {
                    libc::SYS_exit
                } else {
                    libc::SYS_exit_group
                },
                0,
            )
        };
    }
    u32::try_from(pid).expect("fork works")
}

#[tokio::test]
async fn a_process_whose_main_thread_has_ended_is_alive_and_is_ended() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "echo $$; exec sleep 600");
    job.pids(1);
    let odd = main_thread_gone(Cookie::new(house.instance, 1));
    until(|| state(odd) == Some('Z')).await;
    let members = house.trees.members(job.mark.clone()).await;
    assert!(members.contains(&odd), "{members:?}");
    let killed = house.trees.kill(job.mark.clone()).await;
    assert!(killed.seen.contains(&odd));
    assert_eq!(killed.survivors, []);
    assert_eq!(house.trees.members(job.mark.clone()).await, [0_u32; 0]);
}

#[tokio::test]
async fn an_unreaped_child_is_no_member() {
    let house = House::new(Rung::Cookie);
    // exec: the new program does not know of the child and never reaps it.
    let mut job = house.sh(
        1,
        "sh -c 'echo $$' & read -r x < /dev/null; echo $$; exec sleep 600",
    );
    job.pids(2);
    let leader = job.pid;
    while house.trees.members(job.mark.clone()).await != [leader] {
        tokio::task::yield_now().await;
    }
    assert_eq!(living_of(house.instance), [leader]);
    end(&house, &job).await;
}

#[tokio::test]
async fn a_tree_that_is_gone_is_told_gone_twice() {
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "echo $$");
    job.closed();
    for _ in 0..2 {
        let killed = house.trees.kill(job.mark.clone()).await;
        assert_eq!(killed.survivors, []);
    }
}

#[tokio::test]
async fn who_lowers_his_own_limit_is_told_by_what_ties_him_to_the_tree() {
    let house = House::new(Rung::Cookie);
    // The second has neither the session nor the environment of the job, only a parent.
    let line = "prlimit --pid $$ --rttime=200000:200000; sleep 600 & echo $!; \
                env -i setsid sh -c 'echo $$; exec sleep 600' & wait";
    let mut job = house.sh(1, line);
    let [inside, outside] = [(); 2].map(|()| job.pids(1)[0]);
    let all = BTreeSet::from([job.pid, inside, outside]);
    let members = house.trees.members(job.mark.clone()).await;
    assert_eq!(members.into_iter().collect::<BTreeSet<_>>(), all);
    let killed = house.trees.kill(job.mark.clone()).await;
    let seen: BTreeSet<u32> = killed.seen.into_iter().collect();
    assert_eq!((seen, killed.survivors), (all.clone(), vec![]));
    assert!(!all.into_iter().any(lives));
}

/// It finds processes, it is no boundary.
#[tokio::test]
async fn who_has_lost_his_limit_and_every_tie_is_nobodys() {
    let house = House::new(Rung::Cookie);
    let line = "(prlimit --pid $BASHPID --rttime=200000:200000; \
                exec env -i setsid sh -c 'sleep 600 & echo $!') & wait; exec sleep 600";
    let mut command = Command::new("/bin/bash");
    command.args(["-c", line]);
    let mut job = house.start(1, command);
    let lost = job.pids(1)[0];
    until(|| parent(lost) == Some(std::process::id())).await;
    let killed = house.trees.kill(job.mark.clone()).await;
    assert_eq!((killed.seen, killed.survivors), (vec![job.pid], vec![]));
    assert!(lives(lost));
    // SAFETY: our own descendant, alive and unreaped.
    unsafe { libc::kill(lost as i32, libc::SIGKILL) };
}

#[tokio::test]
async fn a_number_that_now_belongs_to_somebody_else_is_not_touched() {
    let house = House::new(Rung::Cookie);
    let other = House::new(Rung::Cookie);
    let mut stranger = other.sh(1, "echo $$; exec sleep 600");
    stranger.pids(1);
    let mut mark = stranger.mark.clone();
    mark.leader = Some((stranger.pid, stranger.mark.leader.expect("set").1 - 1));
    let killed = house.trees.kill(mark).await;
    assert_eq!((killed.seen, killed.survivors), (vec![], vec![]));
    assert!(lives(stranger.pid));
    end(&other, &stranger).await;
}

#[tokio::test]
async fn another_job_another_house_and_unmarked_processes_are_not_touched() {
    let house = House::new(Rung::Cookie);
    let other = House::new(Rung::Cookie);
    let mut victim = house.sh(1, "echo $$; exec sleep 600");
    let mut spared = [
        house.sh(2, "echo $$; exec sleep 600"),
        other.sh(1, "echo $$; exec sleep 600"),
        house.sh(HOUSE_JOB, "echo $$; exec sleep 600"),
    ];
    victim.pids(1);
    spared
        .iter_mut()
        .for_each(|job| assert_eq!(job.pids(1), [job.pid]));
    let killed = house.trees.kill(victim.mark.clone()).await;
    assert_eq!((killed.seen, killed.survivors), (vec![victim.pid], vec![]));
    assert!(!lives(victim.pid));
    for job in spared {
        assert!(lives(job.pid));
        // SAFETY: our own child, alive and unreaped.
        unsafe { libc::kill(job.pid as i32, libc::SIGKILL) };
    }
}

#[tokio::test]
async fn jobs_of_an_inner_house_end_with_the_outer_job_that_holds_it() {
    let outer = House::new(Rung::Cookie);
    let inner = House::new(Rung::Cookie);
    let hard = Cookie::new(outer.instance, 7).hard;
    let nested = Cookie::for_child(hard, inner.instance, 3).expect("room for a soft cookie");
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "echo $$; exec sleep 600"]);
    let mut job = inner.start_marked(nested, 3, command);
    job.pids(1);
    assert_eq!(inner.trees.members(job.mark.clone()).await, [job.pid]);
    let mark = tree::Mark {
        job: 7,
        leader: None,
        process_id: String::new(),
    };
    let killed = outer.trees.kill(mark).await;
    assert_eq!((killed.seen, killed.survivors), (vec![job.pid], vec![]));
    assert!(!lives(job.pid));
}

#[tokio::test]
async fn what_a_dead_house_left_is_ended_and_the_new_house_is_not() {
    let house = House::new(Rung::Cookie);
    let mut jobs = [1, 2, 3].map(|job| house.sh(job, "echo $$; trap '' TERM; exec sleep 600"));
    let mut keeper = house.sh(HOUSE_JOB, "echo $$; exec sleep 600");
    jobs.iter_mut()
        .for_each(|job| assert_eq!(job.pids(1), [job.pid]));
    keeper.pids(1);
    assert_eq!(
        tree::house_is_alive(house.instance, &[]).expect("a /proc"),
        Some(keeper.pid)
    );
    assert_eq!(
        tree::house_is_alive(house.instance, &[keeper.pid]).expect("a /proc"),
        None
    );
    let killed = house.trees.sweep_house(&[jobs[2].pid]).await;
    assert_eq!(killed.survivors, []);
    assert!(!lives(jobs[0].pid) && !lives(jobs[1].pid));
    assert!(lives(jobs[2].pid), "it was to be kept");
    assert!(lives(keeper.pid));
    house.trees.sweep_house(&[]).await;
    // SAFETY: our own child, alive and unreaped.
    unsafe { libc::kill(keeper.pid as i32, libc::SIGKILL) };
}

#[tokio::test]
async fn a_process_that_was_there_before_the_question_is_in_the_answer() {
    let house = House::new(Rung::Cookie);
    let trees = house.trees.clone();
    let mark = house.sh(9, ":").mark.clone();
    // Keeps the worker scanning, so that most questions arrive during a scan.
    let noise = tokio::spawn(async move {
        loop {
            trees.members(mark.clone()).await;
        }
    });
    for job in 10..40 {
        let mut started = house.sh(job, "echo $$; exec sleep 600");
        started.pids(1);
        assert_eq!(
            house.trees.members(started.mark.clone()).await,
            [started.pid]
        );
        house.trees.kill(started.mark.clone()).await;
    }
    noise.abort();
}

#[tokio::test]
async fn two_hundred_hostile_trees_of_five_end_together_in_a_few_looks() {
    let house = House::new(Rung::Cookie);
    let line = "sleep 600 & setsid sleep 600 & (setsid sleep 600 &); \
                (trap '' TERM HUP; exec sleep 600) & echo up; wait";
    let mut jobs: Vec<Job> = (1..=200).map(|job| house.sh(job, line)).collect();
    jobs.iter_mut().for_each(|job| assert_eq!(job.line(), "up"));
    let before = house.trees.scans();
    let began = std::time::Instant::now();
    let kills: Vec<_> = jobs
        .iter()
        .map(|job| {
            let (trees, mark) = (house.trees.clone(), job.mark.clone());
            tokio::spawn(async move { trees.kill(mark).await })
        })
        .collect();
    for kill in kills {
        let killed = kill.await.expect("no panic");
        assert_eq!(killed.survivors, []);
        assert!(killed.seen.len() >= 5, "{killed:?}");
    }
    let scans = house.trees.scans() - before;
    eprintln!("200 trees: {scans} looks, {:?}", began.elapsed());
    // One after the other would need at least three looks each, 600. On a busy machine the dead take many to vanish: 103
    // and 203 were counted beside other suites, some 10 alone.
    assert!(scans < 400, "{scans} looks for 200 trees");
    assert_eq!(living_of(house.instance), [0_u32; 0]);
}

/// Many that die of the first of two signals and are reaped at once: a receipt once named fewer than it had ended.
#[tokio::test]
async fn who_dies_of_the_first_signal_counts_as_reached() {
    let house = House::new(Rung::Cookie);
    let line =
        "i=0; while [ $i -lt 300 ]; do sleep 600 & i=$((i+1)); done; echo $$; exec sleep 600";
    let mut job = house.sh(1, line);
    job.pids(1);
    until(|| living_of(house.instance).len() == 301).await;
    let reached = house.trees.polite(job.mark.clone(), false).await;
    assert_eq!(reached.len(), 301);
    job.closed();
}
