//! Promise: a job that the supervisor cannot restore is ended and named; the house and everything else in it goes on.
//! DESIGN.md section 5, `wire.md` section 2.
//!
//! The damage is done for real: bytes are overwritten in the memory that the keeper holds.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use ostler_proto::job::{Outcome, Row, State};
use ostler_proto::methods::{JobGet, Target};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::desk::script;
use ostler_tests::house::{House, in_house};
use ostler_tests::process::{self, Process};
use ostler_tests::{Desk, PATIENCE, Printers, within};

/// Size of the header of a log, and where the first one stands.
const HEADER: usize = 128;
const FIRST: usize = 4096;

/// The memory in which the logs are described, by way of the keeper's descriptor.
fn headers(house: &House) -> File {
    let folder = format!("/proc/{}/fd", house.keeper().expect("the keeper lives").pid);
    let is_it = |path: &PathBuf| {
        let target = fs::read_link(path).unwrap_or_default();
        target
            .display()
            .to_string()
            .starts_with("/memfd:ostler-headers")
    };
    let mut links = fs::read_dir(folder).expect("it can be listed");
    let path = links.find_map(|link| Some(link.ok()?.path()).filter(is_it));
    let path = path.expect("the keeper holds the headers");
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("memory of our own can be opened")
}

/// Overwrites what is known of the newest log, but for the number of its job.
fn damage(house: &House, number: u64) {
    let file = headers(house);
    let mut header = [0; HEADER];
    let mut slots = (FIRST..).step_by(HEADER).map(|at| at as u64);
    let at = slots.find(|at| {
        file.read_exact_at(&mut header, *at)
            .expect("the job has a header");
        header[..8] == number.to_ne_bytes()
    });
    header[8..].fill(0xff);
    file.write_all_at(&header, at.expect("there are slots"))
        .expect("it can be written");
}

/// Makes the keeper's record of a job unreadable: wherever its name stands in the keeper's memory, it stands no more.
fn blot_out(house: &House, name: &str) {
    let pid = house.keeper().expect("the keeper lives").pid;
    let memory = OpenOptions::new()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"));
    let memory = memory.expect("memory of our own can be opened");
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("its maps can be read");
    let name = format!("\"{name}\"").into_bytes();
    let mut blots = 0;
    // `from-to rw-p ...`; what is shared is no record.
    for (from, to) in maps
        .lines()
        .filter(|m| m.contains(" rw-p "))
        .filter_map(bounds)
    {
        let mut bytes = vec![0; (to - from) as usize];
        if memory.read_exact_at(&mut bytes, from).is_err() {
            continue;
        }
        let found = bytes
            .windows(name.len())
            .enumerate()
            .filter(|(_, w)| *w == name);
        for (at, _) in found {
            memory
                .write_all_at(b"!", from + at as u64)
                .expect("it can be written");
            blots += 1;
        }
    }
    assert!(blots > 0, "the keeper has a record");
}

fn bounds(map: &str) -> Option<(u64, u64)> {
    let (from, rest) = map.split_once('-')?;
    let (to, _) = rest.split_once(' ')?;
    let number = |hex| u64::from_str_radix(hex, 16).ok();
    Some((number(from)?, number(to)?))
}

/// Who must notice nothing, and a job with a member, whose record is to be damaged.
async fn two(house: &House, desk: &Desk) -> (Printers, Row) {
    let other = Printers::start(house, desk, 1, 4099, 10).await;
    let steps = "fork [ ignore TERM , sleep ] , say ready , sleep";
    (other, desk.ready(script(steps)).await)
}

#[test]
fn a_job_that_two_supervisors_died_of_is_ended_and_lost_and_the_house_goes_on() {
    in_house(async |house| {
        let desk = house.desk();
        let (other, row) = two(house, &desk).await;
        let member = Process::of(row.pid.expect("it runs")).expect("it lives");
        damage(house, 2);
        house.kill_supervisor().await;
        let lost = desk.wait(&row.id).await;
        assert_eq!(
            (lost.outcome, lost.state),
            (Some(Outcome::Lost), State::Exited)
        );
        let reason = lost
            .outcome_detail
            .and_then(|d| d.reason)
            .unwrap_or_default();
        assert!(reason.contains("died twice while restoring it"), "{reason}");
        desk.over(&row.id).await;
        member.gone().await;
        // It is not begun anew with: one more crash, and nobody dies of it again.
        let generation = house.info().await.hello.generation;
        house.kill_supervisor().await;
        assert_eq!(house.info().await.hello.generation, generation + 1);
        assert_eq!(desk.wait(&row.id).await.outcome, Some(Outcome::Lost));
        other.finish(&desk).await;
    });
}

#[test]
fn a_job_whose_record_nobody_can_read_is_ended_and_told_in_the_log() {
    in_house(async |house| {
        let desk = house.desk();
        let (other, row) = two(house, &desk).await;
        let leader = Process::of(row.pid.expect("it runs")).expect("it lives");
        let held = process::descriptors(house.keeper().expect("the keeper lives").pid);
        blot_out(house, &row.process_id);
        house.kill_supervisor().await;
        leader.gone().await;
        let refusal = desk
            .refused::<JobGet>(Target {
                session: None,
                id: row.id.clone(),
            })
            .await;
        assert_eq!(refusal.kind, RefusalKind::NotFound);
        other.finish(&desk).await;
        assert!(
            house
                .log()
                .contains("has no record that can be read: its processes are ended")
        );
        let keeper = house.keeper().expect("the keeper lives").pid;
        // Forgotten by the keeper as well, and not met again.
        within(PATIENCE, "the keeper to let go of it", async {
            while process::descriptors(keeper) >= held {
                tokio::task::yield_now().await;
            }
        })
        .await;
        house.kill_supervisor().await;
        let told = house
            .log()
            .matches("has no record that can be read")
            .count();
        assert_eq!(told, 1, "{}", house.log());
    });
}
