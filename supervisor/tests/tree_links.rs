//! Trees without a cookie: parents, session, group, marker, and what was seen before.
#![cfg(target_os = "linux")]

mod tree_house;

use ostler_supervisor::tree::Rung;
use tree_house::{House, Job, lives, living_of, until};

/// Kills by links and checks by cookie, which this rung does not read, that nobody is left.
async fn end(house: &House, job: &Job) {
    assert_eq!(house.trees.rung(), "links");
    let killed = house.trees.kill(job.mark.clone()).await;
    assert_eq!(killed.survivors, []);
    assert_eq!(living_of(house.instance), [0_u32; 0]);
}

#[tokio::test]
async fn children_that_ignore_the_polite_signal_or_have_their_own_session_are_ended() {
    let house = House::new(Rung::Links);
    let line = "trap '' TERM; setsid sh -c 'echo $$; while :; do sleep 600; done' & \
                env -i setsid sh -c 'echo $$; while :; do sleep 600; done' & echo $$; wait";
    let mut job = house.sh(1, line);
    let pids = job.pids(3);
    let members = house.trees.members(job.mark.clone()).await;
    assert!(pids.iter().all(|pid| members.contains(pid)), "{members:?}");
    end(&house, &job).await;
}

#[tokio::test]
async fn an_orphan_in_its_own_session_is_known_by_its_marker() {
    let house = House::new(Rung::Links);
    let mut job = house.sh(1, "(setsid sh -c 'echo $$; exec sleep 600' &)");
    let orphan = job.pids(1)[0];
    let members = house.trees.members(job.mark.clone()).await;
    assert!(members.contains(&orphan), "{members:?}");
    end(&house, &job).await;
    assert!(!lives(orphan));
}

#[tokio::test]
async fn an_orphan_that_cleared_its_environment_is_known_by_its_session() {
    let house = House::new(Rung::Links);
    let mut job = house.sh(1, "(env -i sh -c 'echo $$; exec sleep 600' &)");
    let orphan = job.pids(1)[0];
    let members = house.trees.members(job.mark.clone()).await;
    assert!(members.contains(&orphan), "{members:?}");
    end(&house, &job).await;
    assert!(!lives(orphan));
}

#[tokio::test]
async fn the_second_look_does_not_forget_whom_the_first_saw_below_a_leader_that_is_now_dead() {
    let house = House::new(Rung::Links);
    let line = "env -i setsid sh -c 'trap \"\" TERM; echo $$; while :; do sleep 600; done' & \
                echo $$; while :; do sleep 600; done";
    let mut job = house.sh(1, line);
    let pids = job.pids(2);
    let (leader, escaped) = (job.pid, pids.iter().copied().find(|pid| *pid != job.pid));
    let escaped = escaped.expect("two different processes");
    let reached = house.trees.polite(job.mark.clone(), false).await;
    assert!(reached.contains(&escaped), "{reached:?}");
    until(|| !lives(leader)).await;
    assert!(lives(escaped), "it ignores the signal");
    end(&house, &job).await;
    assert!(!lives(escaped));
}

#[tokio::test]
async fn an_orphan_that_changed_everything_before_the_first_look_is_nobodys() {
    let house = House::new(Rung::Links);
    let mut job = house.sh(1, "(setsid env -i sh -c 'echo $$; exec sleep 600' &)");
    let orphan = job.pids(1)[0];
    until(|| !lives(job.pid)).await;
    // The shell between leader and orphan may outlive the leader for a moment.
    while house
        .trees
        .members(job.mark.clone())
        .await
        .contains(&job.pid)
    {
        tokio::task::yield_now().await;
    }
    let fresh = House::new(Rung::Links);
    assert!(
        !fresh
            .trees
            .members(job.mark.clone())
            .await
            .contains(&orphan)
    );
    assert!(lives(orphan), "the rung's known limit");
    // SAFETY: an orphan below this sub-reaper, alive and unreaped.
    unsafe { libc::kill(orphan as i32, libc::SIGKILL) };
}

#[tokio::test]
async fn eight_loops_that_fork_all_the_time_are_ended() {
    let house = House::new(Rung::Links);
    let line = "for i in 1 2 3 4 5 6 7 8; do (while :; do sh -c 'echo x'; done) & done; wait";
    let mut job = house.sh(1, line);
    (0..50).for_each(|_| assert_eq!(job.line(), "x"));
    end(&house, &job).await;
}

#[tokio::test]
async fn the_session_of_a_stranger_with_the_leaders_number_is_not_touched() {
    let house = House::new(Rung::Links);
    let mut stranger = house.sh(1, "sleep 600 & echo $$; wait");
    stranger.pids(1);
    let mut mark = stranger.mark.clone();
    mark.process_id = "proc_of_somebody_who_ended".to_owned();
    mark.leader = Some((stranger.pid, stranger.mark.leader.expect("it lives").1 - 1));
    let killed = house.trees.kill(mark).await;
    assert_eq!((killed.seen, killed.survivors), (vec![], vec![]));
    assert!(lives(stranger.pid));
    end(&house, &stranger).await;
}
