//! An end is told while its number is kept, and strays are buried and attributed.

use crate::stage::{Stage, children_in_state, kill, shell, state_of, until};
use ostler_supervisor::keeper::wire::{self, Op, Stdin};

#[test]
fn an_end_is_told_while_the_leader_is_a_zombie_and_its_number_is_kept() {
    let mut stage = Stage::new();
    let part = stage.part();
    let running = part.start(1, &shell("sleep 1000 & exit 7"));
    let ended = part.expect(Op::Ended, 1).frame.args;
    assert_eq!(ended, [7, wire::NONE, 0, 0, 1]);
    assert_eq!(state_of(running.pid), Some('Z'));
    // Its group can still be addressed, and the stray in it dies of that.
    kill(-running.pid, libc::SIGKILL);
    let member = part.expect(Op::MemberEnded, 1);
    assert_eq!(member.frame.args[0], 1);
    assert_eq!(state_of(running.pid), Some('Z'));
    assert_eq!(part.bury(1), (Some(7), None));
    assert_eq!(state_of(running.pid), None);
}

#[test]
fn every_exit_code_and_the_signals_are_told() {
    let mut stage = Stage::new();
    let part = stage.part();
    for code in 0..=255 {
        part.fork(code, &shell(&format!("exit {code}")));
    }
    for code in 0..=255 {
        assert_eq!(part.finish(code), (Some(code as i32), None));
    }
    for signal in [1, 2, 3, 6, 9, 13, 14, 15, 40, 64] {
        part.fork(1000 + signal, &shell(&format!("kill -{signal} $$")));
        assert_eq!(part.finish(1000 + signal), (None, Some(signal as i32)));
    }
}

#[test]
fn strays_are_buried_and_attributed_while_a_leader_is_held() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    // Both leaders end at once and are held as zombies; their escaped children go on.
    let escape = "exec 3<&0; setsid env -i /bin/sh -c 'read x <&3' & exit 0";
    let mut inputs = Vec::new();
    for job in [1, 2] {
        let mut asked = shell(escape);
        asked.stdin = Stdin::Pipe;
        inputs.push(part.start(job, &asked).input);
        assert_eq!(part.expect(Op::Ended, job).frame.args[4], 1);
    }
    assert_eq!(children_in_state(keeper, 'Z').len(), 2);
    part.send(Op::Close, 2, wire::CLOSE_IN);
    drop(inputs.pop());
    part.expect(Op::MemberEnded, 2);
    until("the strays of job 2 are buried", || {
        children_in_state(keeper, 'Z').len() == 2
    });
    let others = part.all_until_pong(1);
    let of_first = others.iter().filter(|message| message.frame.job == 1);
    assert!(
        of_first
            .clone()
            .all(|message| message.frame.op() != Some(Op::MemberEnded))
    );
    assert_eq!(part.bury(1).0, Some(0));
    assert_eq!(part.bury(2).0, Some(0));
}

#[test]
fn a_thousand_double_forks_leave_no_zombie_and_steal_no_code() {
    let mut stage = Stage::new();
    let keeper = stage.keeper_pid();
    let part = stage.part();
    let script = "i=0; while [ $i -lt 100 ]; do (true & ) ; i=$((i+1)); done; exit 7";
    for job in 0..10 {
        part.fork(job, &shell(script));
    }
    for job in 0..10 {
        part.expect(Op::Ended, job);
    }
    until("only the leaders are zombies", || {
        children_in_state(keeper, 'Z').len() == 10
    });
    for job in 0..10 {
        part.send(Op::Reap, job, 0);
        assert_eq!(part.expect(Op::Reaped, job).frame.args[0], 7);
    }
    // A last orphan may be dead and not reaped yet at any moment, but not for long.
    until("no zombie is left", || {
        children_in_state(keeper, 'Z').is_empty()
    });
}

#[test]
fn a_sweep_ends_the_strays_of_one_job_and_no_other() {
    let mut stage = Stage::new();
    let part = stage.part();
    for job in [1, 2] {
        part.start(job, &shell("setsid env -i sleep 1000 & exit 0"));
        assert!(part.expect(Op::Ended, job).frame.args[4] >= 1);
        part.send(Op::Reap, job, 0);
        part.expect(Op::Reaped, job);
    }
    part.send(Op::Sweep, 1, 0);
    part.expect(Op::MemberEnded, 1);
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::MemberEnded))
    );
}
