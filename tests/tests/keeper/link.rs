//! The supervisor's side of the wire.

use crate::stage::{Stage, shell};
use ostler_supervisor::keeper::wire::{Exec, Stdin};
use ostler_supervisor::process::link::{self, Keeper, Leave};
use std::fs::File;
use std::io::Write;

#[tokio::test]
async fn the_link_shows_a_job_from_start_to_burial() {
    let mut stage = Stage::raised(&[]);
    let wire = stage.part().wire.try_clone().unwrap();
    let (keeper, house) = Keeper::hello(wire).await.unwrap();
    assert_eq!((house.attempt, house.why), (1, link::Why::First));
    assert!(!house.scratch.is_empty());
    keeper.ready();
    let mut entry = keeper.enter(1);
    let mut asked = shell("read x; exit $x");
    asked.stdin = Stdin::Pipe;
    keeper.fork(1, &asked, None).unwrap();
    let done = |exec: &Exec| matches!(exec, Exec::Done { .. });
    entry
        .facts
        .wait_for(|facts| done(&facts.exec))
        .await
        .unwrap();
    let fds = keeper.take_fds(1).unwrap();
    assert!(keeper.take_fds(1).is_none());
    File::from(fds.stdin.unwrap()).write_all(b"6\n").unwrap();
    let ended = entry
        .facts
        .wait_for(|facts| facts.ended.is_some())
        .await
        .unwrap()
        .clone();
    assert_eq!(ended.ended.unwrap().code, Some(6));
    assert!(ended.reaped.is_none());
    let rows = keeper.fetch().await;
    assert_eq!((rows.len(), rows[0].job), (1, 1));
    assert!(rows[0].fds.out.is_some());
    keeper.reap(1);
    let reaped = entry
        .facts
        .wait_for(|facts| facts.reaped.is_some())
        .await
        .unwrap()
        .clone();
    assert_eq!(reaped.reaped.unwrap().code, Some(6));
    keeper.forget(1);
    assert!(keeper.fetch().await.is_empty());
    keeper.leave(&Leave::Idle).unwrap();
    keeper.flushed().await;
    stage.part().control.write_all(&[0]).unwrap();
    keeper.closed().await;
    assert!(keeper.fetch().await.is_empty());
    assert!(stage.keeper.wait().unwrap().success());
}

#[tokio::test]
async fn the_link_queues_a_burst_and_loses_nothing_of_it() {
    let mut stage = Stage::raised(&[]);
    let wire = stage.part().wire.try_clone().unwrap();
    let (keeper, _house) = Keeper::hello(wire).await.unwrap();
    let entries: Vec<_> = (0..500).map(|job| (job, keeper.enter(job))).collect();
    for job in 0..500 {
        keeper
            .fork(job, &shell(&format!("exit {}", job % 256)), None)
            .unwrap();
    }
    for (job, mut entry) in entries {
        let facts = entry
            .facts
            .wait_for(|facts| facts.ended.is_some())
            .await
            .unwrap()
            .clone();
        assert_eq!(facts.ended.unwrap().code, Some((job % 256) as i32));
        keeper.reap(job);
        entry
            .facts
            .wait_for(|facts| facts.reaped.is_some())
            .await
            .unwrap();
        keeper.forget(job);
    }
    assert!(keeper.fetch().await.is_empty());
}
