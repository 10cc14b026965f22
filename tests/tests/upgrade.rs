//! Promise: another build takes the place of the supervisor while everything runs on, or is refused before anything
//! stops.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ostler::upgrade::{Upgraded, upgrade};
use ostler_proto::job::Row;
use ostler_proto::methods::{
    Info, JobStart, Nothing, Start, SupervisorInfo, SupervisorUpgrade, UpgradeSupervisor, Wait,
};
use ostler_proto::reason::Reason;
use ostler_proto::refusal::RefusalKind;
use ostler_proto::shell::{Exec, OpenShell};
use ostler_tests::chance::Chance;
use ostler_tests::process::{self, Process};
use ostler_tests::{
    Desk, House, PATIENCE, Printers, in_empty_house, in_house, ostler, puppet, rounds, script,
    within,
};
use regex::bytes::{NoExpand, Regex};
use serde_json::{Value, json};

/// A copy of the program under test in which these bytes are others: another build, as the compiler would have made it of
/// sources that differ there and nowhere else.
fn patched(house: &House, name: &str, changes: &[(&str, &str)]) -> PathBuf {
    let mut bytes = fs::read(ostler()).expect("the program can be read");
    for (from, to) in changes {
        assert_eq!(from.len(), to.len(), "nothing may move");
        let from = Regex::new(&regex::escape(from)).expect("it is escaped");
        assert!(from.is_match(&bytes), "the program has no {from}");
        bytes = from.replace_all(&bytes, NoExpand(to.as_bytes())).into();
    }
    let path = house.file(name);
    fs::write(&path, bytes).expect("the folder is ours");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    path
}

/// The same sources but for the name of the build.
async fn other_build(house: &House) -> PathBuf {
    let ours = house.info().await.hello.build;
    assert_eq!(ours.len(), 12, "a build has a name");
    patched(house, "other", &[(&ours, OTHER)])
}

const OTHER: &str = "0ther0build0";

/// The next version.
fn newer(house: &House) -> PathBuf {
    patched(house, "newer", &[(ostler_proto::VERSION, NEWER)])
}

const NEWER: &str = "0.9.9";

fn to(image: &Path) -> UpgradeSupervisor {
    UpgradeSupervisor {
        image: image.display().to_string(),
        force: false,
    }
}

async fn upgrade_to(house: &House, image: &Path) -> Upgraded {
    let desk = house.desk_without_session();
    let upgraded = upgrade(&desk.client, to(image));
    within(PATIENCE, "the next supervisor", upgraded)
        .await
        .unwrap_or_else(|e| panic!("{e}\n{}", house.log()))
}

async fn must_upgrade(house: &House, image: &Path) {
    let done = upgrade_to(house, image).await;
    assert!(matches!(done, Upgraded::Done { .. }), "{done:?}");
}

/// Asks all the time; returns the longest time between an answer of one supervisor and the first of the next.
async fn gaps(desk: Desk, until: impl Fn(u64) -> bool) -> Duration {
    let info = async || {
        let asked = desk.client.ask::<SupervisorInfo>(Nothing {});
        let answer = within(PATIENCE, "an answer", asked).await;
        answer.expect("somebody answers").hello.generation
    };
    let mut longest = Duration::ZERO;
    let mut before = (info().await, Instant::now());
    loop {
        let generation = info().await;
        if generation != before.0 {
            longest = longest.max(before.1.elapsed());
        }
        before = (generation, Instant::now());
        if until(generation) {
            return longest;
        }
        tokio::task::yield_now().await;
    }
}

async fn upgrades_under_load(house: &House, jobs: usize, upgrades: usize) -> Duration {
    let images = [other_build(house).await, ostler().to_path_buf()];
    let desk = house.desk();
    let printers = Printers::start(house, &desk, jobs, 203, 20).await;
    let rows = &printers.rows;
    let keeper = house.info().await.hello.keeper_pid;
    let files = process::descriptors(keeper);
    let tails = rows.iter().take(4).map(|row| {
        let (desk, id) = (house.desk(), row.id.clone());
        async move { desk.follow(&id).await }
    });
    let tails: Vec<_> = tails.map(tokio::spawn).collect();
    let last = house.info().await.hello.generation + upgrades as u64;
    let asking = tokio::spawn(gaps(house.desk_without_session(), move |g| g == last));
    for n in 0..upgrades {
        must_upgrade(house, &images[n % 2]).await;
        let now = desk.list().await;
        let pids = |rows: &[Row]| {
            let mut pids: Vec<_> = rows.iter().map(|r| (r.id.clone(), r.pid)).collect();
            pids.sort();
            pids
        };
        assert_eq!(pids(&now), pids(rows), "after upgrade {n}");
    }
    assert!(process::zombies_of(keeper).is_empty());
    let files_now = process::descriptors(keeper);
    // The image before the last upgrade is held until the new one is steady.
    assert!(files_now <= files + 1, "{files} became {files_now}");
    let longest = within(PATIENCE, "the last generation", asking)
        .await
        .unwrap();
    printers.finish(&desk).await;
    for (tail, row) in tails.into_iter().zip(rows) {
        let seen = within(PATIENCE, "the end of a tail", tail).await.unwrap();
        let printed = desk
            .stream(&row.id, ostler_proto::job::Stream::Stdout)
            .await;
        assert_eq!(seen, printed.len() as u64, "{}", row.id);
    }
    let hello = house.info().await.hello;
    assert_eq!((hello.keeper_pid, hello.generation), (keeper, last));
    longest
}

fn is_optimised() -> bool {
    ostler().components().any(|c| c.as_os_str() == "release")
}

/// 100 ms are promised; a program that was not optimised, on a machine that runs other tests, gets more.
fn longest_gap() -> Duration {
    Duration::from_millis(if is_optimised() { 100 } else { 1000 })
}

/// Whether the compiler has put a word into its code, where a patch does not find it: then there is no such image.
fn is_out_of_reach(patch_failed: bool) -> bool {
    let is_so = is_optimised() && patch_failed;
    if is_so {
        ostler_tests::skip("an optimised program cannot be spoilt by a patch of its words");
    }
    is_so
}

#[test]
fn a_hundred_printing_jobs_go_through_ten_upgrades() {
    in_house(async |house| {
        let upgrades = rounds("OSTLER_UPGRADES", 10);
        let longest = upgrades_under_load(house, 100, upgrades).await;
        eprintln!("longest gap over {upgrades} upgrades with 100 jobs: {longest:?}");
        assert!(longest < longest_gap(), "{longest:?}");
    });
}

#[test]
fn an_ordinary_user_upgrades_as_well() {
    if !ostler_tests::house::as_ordinary_user("an_ordinary_user_upgrades_as_well") {
        return;
    }
    in_house(async |house| {
        upgrades_under_load(house, 10, 3).await;
    });
}

/// What was in progress is what it would be after a crash: asked again, and answered.
#[test]
fn lines_runs_waits_and_keys_go_through_an_upgrade() {
    in_house(async |house| {
        let other = other_build(house).await;
        let desk = house.desk();
        let (fifo, line_goes) = (house.fifo("go"), house.fifo("line"));
        // A shell with a line that runs.
        let open = OpenShell {
            args: vec!["sh".into()],
            cwd: Some("/".into()),
            ..OpenShell::default()
        };
        let shell = desk
            .must::<ostler_proto::methods::ShellOpen>(open)
            .await
            .row
            .id;
        let exec = |timeout_ms, text: &str| Exec {
            id: shell.clone(),
            line: text.into(),
            timeout_ms,
            ..Exec::default()
        };
        let line = exec(Some(200), &format!("A=kept; cat {line_goes}; (exit 8)"));
        let sent = desk.must::<ostler_proto::methods::ShellExec>(line).await;
        assert_eq!(sent.reason, Reason::WaitOver);
        // A run in the foreground of a terminal.
        let mut running = house.terminal(&format!(
            "ostler run --session x -- {} say up , await {fifo} , exit 7",
            puppet()
        ));
        running.shows("up");
        // A wait.
        let steps = format!("await {fifo} , say done , exit 5");
        let keyed = Start {
            key: Some("once".into()),
            ..script(&steps)
        };
        let waited = desk.start(keyed.clone()).await;
        let waiting = tokio::spawn({
            let (desk, id) = (house.desk(), waited.id.clone());
            async move { desk.wait(&id).await }
        });
        // It has begun when the supervisor has answered what was asked after it.
        tokio::task::yield_now().await;
        house.info().await;

        must_upgrade(house, &other).await;

        let again = desk.must::<JobStart>(keyed).await;
        assert_eq!(again.process_id, waited.process_id, "the key holds");
        house.open(&fifo).await;
        let row = within(PATIENCE, "the wait", waiting).await.unwrap();
        assert_eq!(row.exit_code, Some(5));
        let (code, screen) = running.ends();
        assert_eq!(code, 7, "{screen}");
        fs::write(&line_goes, "").expect("somebody reads it");
        let send = ostler_proto::shell::Send {
            id: shell.clone(),
            ..Default::default()
        };
        let sent = desk.must::<ostler_proto::methods::ShellSend>(send).await;
        assert_eq!(
            (sent.reason, sent.exit_code),
            (Reason::Prompt, Some(8)),
            "{sent:?}"
        );
        let done = desk
            .must::<ostler_proto::methods::ShellExec>(exec(None, "echo $A"))
            .await;
        assert_eq!(
            (done.output.as_deref(), done.exit_code),
            (Some("kept\n"), Some(0))
        );
    });
}

/// A house with a job that must notice nothing, and what it is before.
struct Calm {
    job: Row,
    before: Info,
}

impl Calm {
    async fn new(house: &House) -> Self {
        let job = house.desk().ready(script("say ready , sleep")).await;
        let before = house.info().await;
        Self { job, before }
    }

    /// Nothing has stopped, and nothing has begun.
    async fn assert_still(&self, house: &House, what: &str) {
        let now = house.info().await;
        let told = |info: &Info| {
            let hello = &info.hello;
            (hello.pid, hello.generation, hello.build.clone(), info.jobs)
        };
        assert_eq!(told(&now), told(&self.before), "{what}");
        assert_eq!(house.desk().get(&self.job.id).await.row.pid, self.job.pid);
    }
}

fn children(pid: u32) -> usize {
    let all = process::all().into_iter();
    all.filter(|p| process::parent(*p) == Some(pid)).count()
}

async fn refusal_of(house: &House, image: &Path) -> (RefusalKind, String) {
    let desk = house.desk_without_session();
    let refusal = desk.refused::<SupervisorUpgrade>(to(image)).await;
    assert!(refusal.hint.is_some(), "{refusal:?}");
    (refusal.kind, refusal.message)
}

#[test]
fn what_cannot_take_over_is_refused_and_nothing_has_changed() {
    in_empty_house(async |house| {
        let config = "[supervisor]\ncheck_patience = 300\n";
        fs::write(&house.folders().config, config).expect("the folder is ours");
        house.start();
        let calm = Calm::new(house).await;
        let copy = |from: &str, name: &str, mode| {
            let path = house.file(name);
            fs::copy(from, &path).expect("it can be copied");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            path
        };
        let text = house.file("text");
        fs::write(&text, "#!/bin/sh\nexec sleep 1000\n").expect("the folder is ours");
        fs::set_permissions(&text, fs::Permissions::from_mode(0o755)).expect("it is ours");
        let own = ostler().display().to_string();
        let no_ostler = "is no ostler that can be upgraded to";
        for (image, why) in [
            (house.file("nothing"), "No such file or directory"),
            (house.file("."), "is no regular file"),
            (house.fifo("fifo").into(), "is no regular file"),
            (copy(&own, "plain", 0o644), "not executable"),
            (copy(&own, "open", 0o757), "may be written by everybody"),
            (copy("/bin/true", "true", 0o755), no_ostler),
            // Says something, and it is no verdict.
            (copy("/bin/echo", "echo", 0o755), no_ostler),
            (text, no_ostler),
            (puppet().into(), no_ostler),
            (
                copy("/usr/bin/yes", "yes", 0o755),
                "did not answer its check within 0.3 s",
            ),
        ] {
            let (kind, message) = refusal_of(house, &image).await;
            assert_eq!(kind, RefusalKind::ImageRefused, "{message}");
            assert!(message.contains(why), "{message}");
            calm.assert_still(house, &message).await;
        }
        // A file that was mended wrongly since the start.
        fs::write(&house.folders().config, "[supervisor]\nlog = 1\n").expect("it is ours");
        let (kind, message) = refusal_of(house, ostler()).await;
        assert_eq!(kind, RefusalKind::ImageRefused);
        assert!(
            message.contains("config.toml, line 2: `log` must be "),
            "{message}"
        );
        let desk = house.desk_without_session();
        let relative = to(Path::new("ostler"));
        let refusal = desk.refused::<SupervisorUpgrade>(relative).await;
        assert_eq!(refusal.kind, RefusalKind::BadArgument);
        // None of those that were run is left.
        assert_eq!(children(calm.before.hello.pid), 0);
    });
}

/// A program that is good in its check and not in its place.
#[test]
fn an_image_that_dies_in_standby_is_told_and_the_old_one_goes_on() {
    in_house(async |house| {
        let calm = Calm::new(house).await;
        // It does not know the word by which its keeper would start it.
        let build = house.info().await.hello.build;
        let changes = [("supervise", "supervisE"), (build.as_str(), OTHER)];
        let image = patched(house, "mute", &changes);
        let alone = house.cli_of(&image, &["daemon", "supervise"]).code;
        if is_out_of_reach(alone != 2) {
            return;
        }
        let (kind, message) = refusal_of(house, &image).await;
        assert_eq!(kind, RefusalKind::ImageRefused);
        assert!(
            message.ends_with("does not come up: it ended with code 2"),
            "{message}"
        );
        calm.assert_still(house, "after it died").await;
        // What was told once must not be taken for the answer to this one.
        must_upgrade(house, &other_build(house).await).await;
    });
}

/// A program that waits as it should and then cannot serve.
#[test]
fn an_image_that_does_not_come_up_is_taken_back() {
    in_house(async |house| {
        let desk = house.desk();
        let before = house.info().await;
        let build = before.hello.build.as_str();
        let over = house.path("over");
        let row = desk
            .start(script(&format!("until {over} 1000 1 , exit 4")))
            .await;
        // It would put the owner's key into a folder that is not there.
        let changes = [("owner.key", "owner/key"), (build, OTHER)];
        let image = patched(house, "sick", &changes);
        let said = house.cli(&["daemon", "upgrade", "--image", &image.display().to_string()]);
        if is_out_of_reach(said.code == 0) {
            return;
        }
        let ours = format!("{} ({build})", ostler_proto::VERSION);
        let begin = format!(
            "error: not upgraded: {} ({OTHER}) did not come up: ",
            ostler_proto::VERSION
        );
        let end = format!("hint: {ours} runs again, the jobs go on; more: ostler daemon logs\n");
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
        assert!(
            said.err.starts_with(&begin) && said.err.ends_with(&end),
            "{said:?}"
        );
        assert!(said.err.contains("owner/key: No such file"), "{said:?}");
        let now = house.info().await;
        assert_eq!((now.hello.build.as_str(), now.jobs), (build, 1));
        let why = now.taken_back.expect("it is told");
        let status = house.cli(&["daemon", "status"]).out;
        assert!(
            status.contains(&format!("upgrade    taken back: {why}\n")),
            "{status}"
        );
        assert!(
            house
                .log()
                .contains(&format!("the upgrade is taken back: {why}"))
        );
        fs::write(&over, "").expect("a file can be made");
        let row = desk.wait(&row.id).await;
        assert_eq!((row.exit_code, row.output.lost), (Some(4), 0));
        desk.assert_whole(&row).await;
        // The next one that comes up makes that a thing of the past.
        must_upgrade(house, &other_build(house).await).await;
        assert_eq!(house.info().await.taken_back, None);
    });
}

/// The frame of a record of the ledger.
fn entry(body: &str) -> Vec<u8> {
    // FNV-1a, as in the ledger.
    let sum = body.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3)
    });
    let length = (body.len() as u32).to_le_bytes();
    [&length[..], &sum.to_le_bytes(), body.as_bytes()].concat()
}

/// Writes an entry as a later build might have, through the keeper's own descriptor.
fn append_to_ledger(house: &House, body: &str) {
    let keeper = house.keeper().expect("it lives").pid;
    let files = fs::read_dir(format!("/proc/{keeper}/fd")).expect("proc is mounted");
    let ledger = files.flatten().find(|file| {
        let target = fs::read_link(file.path());
        target.is_ok_and(|target| target.to_string_lossy().contains("ledger"))
    });
    let path = ledger.expect("the keeper holds the ledger").path();
    let mut file = File::options().append(true).open(path).expect("it is ours");
    file.write_all(&entry(body))
        .expect("it is a file in memory");
}

#[test]
fn records_that_would_be_lost_or_misread_are_a_reason_not_to_begin() {
    for (body, why) in [
        (
            r#"{"Painted":{"id":"x"}}"#,
            "is not understood: unknown variant `Painted`",
        ),
        (
            r#"{"Closed":{"id":"nobody","colour":"red"}}"#,
            "has Closed.colour, which would be lost",
        ),
        (
            r#"{"House":{"started_at":1,"generation":1,"next_number":9,"notices":0,"format":7}}"#,
            "has format 7, and 1 to 1 are understood",
        ),
    ] {
        in_house(async |house| {
            let other = other_build(house).await;
            let calm = Calm::new(house).await;
            append_to_ledger(house, body);
            let (kind, message) = refusal_of(house, &other).await;
            assert_eq!(kind, RefusalKind::ImageRefused);
            assert!(message.contains("cannot take over: entry "), "{message}");
            assert!(message.contains(why), "{message}");
            calm.assert_still(house, &message).await;
        });
    }
}

/// F: an entry that is not understood hid all that stood behind it, and was cut off with it.
#[test]
fn a_crash_with_an_entry_of_a_later_build_loses_nothing_else() {
    in_house(async |house| {
        let desk = house.desk();
        append_to_ledger(house, r#"{"Painted":{"id":"x"}}"#);
        let ended = desk.run(script("say out , exit 5")).await;
        house.kill_supervisor().await;
        assert_eq!(desk.get(&ended.row.id).await, ended);
        assert!(
            house.log().contains("1 entries are not understood"),
            "{}",
            house.log()
        );
    });
}

#[test]
fn what_becomes_of_the_file_afterwards_is_no_matter() {
    in_house(async |house| {
        let other = other_build(house).await;
        let job = house.desk().ready(script("say ready , sleep")).await;
        must_upgrade(house, &other).await;
        let build = async || house.info().await.hello.build;
        assert_eq!(build().await, OTHER);
        // Replaced: a running program cannot be written over, only put another in its place.
        fs::remove_file(&other).expect("it is there");
        fs::copy("/bin/true", &other).expect("the folder is ours");
        house.kill_supervisor().await;
        assert_eq!(
            build().await,
            OTHER,
            "a crash brings back what was upgraded to"
        );
        fs::remove_file(&other).expect("it is there");
        house.kill_supervisor().await;
        assert_eq!(build().await, OTHER);
        assert_eq!(house.desk().get(&job.id).await.row.pid, job.pid);
        // And away from a program that has no file any more, to one that has none either.
        let second = patched(house, "second", &[]);
        let mut sleeper = std::process::Command::new(&second)
            .args(["daemon", "logs", "-f"])
            .env("OSTLER_DIR", house.dir())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("it can be executed");
        fs::remove_file(&second).expect("it is there");
        let image = format!("/proc/{}/exe", sleeper.id());
        must_upgrade(house, Path::new(&image)).await;
        assert_ne!(build().await, OTHER);
        sleeper.kill().expect("it is our child");
        sleeper.wait().expect("it is our child");
        house.kill_supervisor().await;
        assert_ne!(build().await, OTHER);
    });
}

#[test]
fn of_two_upgrades_at_once_one_is_told() {
    in_house(async |house| {
        let other = other_build(house).await;
        let calm = Calm::new(house).await;
        let slow = house.file("yes");
        fs::copy("/usr/bin/yes", &slow).expect("it can be copied");
        let desk = house.desk_without_session();
        // Whichever comes first: the other one is told at once.
        let (one, two) = tokio::join!(
            desk.call::<SupervisorUpgrade>(to(&slow)),
            desk.call::<SupervisorUpgrade>(to(&slow)),
        );
        let kinds = [one.unwrap_err().kind, two.unwrap_err().kind];
        assert!(kinds.contains(&RefusalKind::Busy), "{kinds:?}");
        assert!(kinds.contains(&RefusalKind::ImageRefused), "{kinds:?}");
        calm.assert_still(house, "after two").await;
        must_upgrade(house, &other).await;
    });
}

/// Who ends the house ends an upgrade that is under way.
#[test]
fn a_stop_goes_before_an_upgrade() {
    in_house(async |house| {
        let slow = house.file("yes");
        fs::copy("/usr/bin/yes", &slow).expect("it can be copied");
        let desk = house.desk_without_session();
        let upgrading =
            tokio::spawn(async move { desk.call::<SupervisorUpgrade>(to(&slow)).await });
        let supervisor = house.info().await.hello.pid;
        let begun = async {
            while children(supervisor) == 0 {
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, "the run of the image", begun).await;
        house.desk().ready(script("say ready , sleep")).await;
        let said = house.cli(&["daemon", "stop"]);
        assert_eq!(said.code, 0, "{said:?}");
        assert!(said.err.contains("stopped"), "{said:?}");
        let told = within(PATIENCE, "its end", upgrading).await.unwrap();
        assert_eq!(told.map_err(|r| r.kind).unwrap_err(), RefusalKind::Leaving);
        house.reap();
        house.assert_nothing_is_left();
    });
}

/// Whichever of the two is first: no house is left, and nobody is told of a fault of ours.
#[test]
fn a_stop_beside_an_upgrade_ends_the_house_all_the_same() {
    in_empty_house(async |house| {
        for _ in 0..rounds("OSTLER_UPGRADES", 10) {
            house.start();
            let said = house.cli(&["start", "--session", "x", "--", puppet(), "sleep"]);
            assert_eq!(said.code, 0, "{said:?}");
            let (upgrade, stop) = std::thread::scope(|scope| {
                let upgrade = scope.spawn(|| house.cli(&["daemon", "upgrade", "--force"]));
                let stop = scope.spawn(|| house.cli(&["daemon", "stop", "--grace", "0"]));
                (upgrade.join().unwrap(), stop.join().unwrap())
            });
            assert_eq!(stop.code, 0, "{stop:?}");
            assert!(stop.err.contains("stopped"), "{stop:?}");
            assert!([0, 125].contains(&upgrade.code), "{upgrade:?}");
            house.reap();
            house.assert_nothing_is_left();
        }
    });
}

/// The old supervisor had made way, the next one had not been told of its house: the jobs lived on, and nobody's.
#[test]
fn a_keeper_that_is_killed_during_an_upgrade_leaves_no_job_behind() {
    let mut chance = Chance::of(7);
    in_empty_house(async |house| {
        for _ in 0..rounds("OSTLER_UPGRADES", 20) {
            house.start();
            let said = house.cli(&[
                "start",
                "--session",
                "x",
                "--",
                puppet(),
                "ignore",
                "TERM",
                ",",
                "sleep",
            ]);
            assert_eq!(said.code, 0, "{said:?}");
            let keeper = house.keeper().expect("it lives");
            let old = house.supervisors();
            std::thread::scope(|scope| {
                let upgrade = scope.spawn(|| house.cli(&["daemon", "upgrade", "--force"]));
                // From the moment at which there are two of them.
                while house.keeper().is_some()
                    && house.supervisors() == old
                    && !upgrade.is_finished()
                {
                    std::thread::yield_now();
                }
                for _ in 0..chance.below(2_000) {
                    std::thread::yield_now();
                }
                keeper.signal(libc::SIGKILL);
                let said = upgrade.join().unwrap();
                assert!([0, 125].contains(&said.code), "{said:?}");
                assert!(!said.err.contains("the jobs go on"), "{said:?}");
            });
            let gone = async {
                while !house.marks().living().is_empty() {
                    house.reap();
                    tokio::task::yield_now().await;
                }
            };
            if tokio::time::timeout(PATIENCE, gone).await.is_err() {
                let living = house.marks().living().into_iter().map(process::describe);
                panic!("{:?} live on\n{}", living.collect::<Vec<_>>(), house.log());
            }
        }
    });
}

/// Whoever came second took the turn of the first away, and both were refused.
#[test]
fn of_two_upgrades_at_once_one_is_done() {
    in_house(async |house| {
        for _ in 0..rounds("OSTLER_UPGRADES", 10) {
            let before = house.info().await.hello.generation;
            let ask = || async {
                let desk = house.desk_without_session();
                let forced = UpgradeSupervisor {
                    force: true,
                    ..to(ostler())
                };
                desk.client.call::<SupervisorUpgrade>(forced).await
            };
            let (one, other) = tokio::join!(ask(), ask());
            let done = [&one, &other].iter().filter(|a| a.is_ok()).count();
            assert!(done >= 1, "{one:?} {other:?}");
            for refused in [one, other].into_iter().filter_map(Result::err) {
                let ostler::Error::Refused(why) = refused else {
                    continue;
                };
                assert_eq!(why.kind, RefusalKind::Busy, "{why:?}");
            }
            let next = async { while house.info().await.hello.generation == before {} };
            within(PATIENCE, "the next supervisor", next).await;
        }
    });
}

/// Clients gave up at the twentieth, however long ago the first one was.
#[test]
fn who_waits_quietly_outlasts_many_upgrades() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let row = desk.start(script(&format!("await {fifo} , exit 6"))).await;
        let id = desk.shell("sh").await;
        let read = house.fifo("read");
        let lined = format!("cat {read}; (exit 5)");
        let line = Exec {
            id,
            line: lined,
            ..Exec::default()
        };
        let wait = desk.client.wait(Wait {
            ids: vec![row.id.clone()],
            ..Wait::default()
        });
        let upgrades = async {
            for _ in 0..30 {
                let forced = UpgradeSupervisor {
                    force: true,
                    ..to(ostler())
                };
                let other = house.desk_without_session();
                let upgraded = upgrade(&other.client, forced);
                let done = within(PATIENCE, "the next supervisor", upgraded).await;
                assert!(matches!(done, Ok(Upgraded::Done { .. })), "{done:?}");
            }
            house.open(&fifo).await;
            fs::write(&read, "").expect("somebody reads it");
        };
        let (waited, executed, ()) = tokio::join!(wait, desk.client.exec(line), upgrades);
        assert_eq!(waited.expect("an answer").jobs[0].row.exit_code, Some(6));
        assert_eq!(executed.expect("an answer").exit_code, Some(5));
    });
}

/// One that stands still is killed after a second, which loses nothing.
#[test]
fn an_old_one_that_stands_still_is_no_obstacle() {
    in_house(async |house| {
        let other = other_build(house).await;
        let desk = house.desk();
        let over = house.path("over");
        let row = desk
            .start(script(&format!("until {over} 1000 1 , exit 4")))
            .await;
        let old = house.info().await.hello;
        let process = Process::of(old.pid).expect("it has just answered");
        let asked = tokio::spawn({
            let (desk, other) = (house.desk_without_session(), to(&other));
            async move { desk.client.call::<SupervisorUpgrade>(other).await }
        });
        // From the moment at which the next one is there, the old one is on its way.
        let keeper = old.keeper_pid;
        let next = async {
            while house.supervisors().into_iter().all(|pid| pid == old.pid) {
                tokio::task::yield_now().await;
            }
        };
        within(PATIENCE, "the next supervisor", next).await;
        // It may be gone by now, and then this test has seen nothing; the keeper's own suite always does.
        process.signal(libc::SIGSTOP);
        let now = async {
            loop {
                let now = house.info().await.hello;
                // A signal takes a moment, and the old one may answer once more.
                if now.generation > old.generation {
                    return now;
                }
            }
        };
        let now = within(PATIENCE, "the next one's answer", now).await;
        assert_eq!((now.build.as_str(), now.keeper_pid), (OTHER, keeper));
        let _ = within(PATIENCE, "the answer", asked).await.unwrap();
        fs::write(&over, "").expect("a file can be made");
        let row = desk.wait(&row.id).await;
        assert_eq!((row.exit_code, row.output.lost), (Some(4), 0));
        desk.assert_whole(&row).await;
    });
}

/// Kills of whoever is there, at any moment of an upgrade: the old one, the one in standby, the new one.
#[test]
fn kills_during_upgrades_lose_no_byte_and_no_house() {
    in_house(async |house| {
        let images = [other_build(house).await, ostler().to_path_buf()];
        let desk = house.desk();
        let printers = Printers::start(house, &desk, 20, 1021, 10).await;
        let keeper = house.info().await.hello.keeper_pid;
        for round in 0..rounds("OSTLER_KILLS", 10) * 3 {
            let params = UpgradeSupervisor {
                force: true,
                ..to(&images[round % 2])
            };
            let asked = tokio::spawn({
                let desk = house.desk_without_session();
                // Whatever comes of it.
                async move { drop(desk.client.call::<SupervisorUpgrade>(params).await) }
            });
            // Up to 29 ms later, which in most rounds is somewhere in the middle.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(round as u64 % 30) {
                tokio::task::yield_now().await;
            }
            let there = house.supervisors();
            if let Some(process) = there.get(round / 3 % there.len().max(1)) {
                Process::of(*process).inspect(|p| p.signal(libc::SIGKILL));
            }
            within(PATIENCE, "the end of the request", asked)
                .await
                .unwrap();
            // And then it serves long enough to have the crash forgiven.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(20) {
                house.info().await;
            }
        }
        printers.finish(&desk).await;
        assert_eq!(house.info().await.hello.keeper_pid, keeper);
        assert_eq!(house.supervisors().len(), 1);
    });
}

#[test]
fn only_the_owner_may_upgrade() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        let params = json!({ "image": ostler() });
        let answer = wire.call("supervisor/upgrade", params).await;
        assert_eq!(answer["error"]["data"]["kind"], "not_found", "{answer}");
        assert_eq!(house.info().await.hello.generation, 1);
    });
}

#[test]
fn the_command_line_says_what_it_did() {
    in_empty_house(async |house| {
        let said = house.cli(&["daemon", "upgrade"]);
        assert_eq!(
            (said.code, said.out.as_str(), said.err.as_str()),
            (0, "", "no supervisor runs; the next start is this ostler\n")
        );
        let said = house.cli(&["daemon", "upgrade", "--json"]);
        let told: Value = serde_json::from_str(&said.out).expect("JSON was asked for");
        assert_eq!(told, json!({ "running": false, "changed": false }));
        house.start();
        let hello = house.info().await.hello;
        let version = &hello.version;
        let ours = format!("{version} ({})", hello.build);
        let said = house.cli(&["daemon", "upgrade"]);
        assert_eq!(
            (said.code, said.err),
            (
                0,
                format!("supervisor {ours} runs already; nothing was done\n")
            )
        );
        house.desk().ready(script("say ready , sleep")).await;
        let newer = newer(house);
        let said = house.cli_of(&newer, &["daemon", "upgrade"]);
        let theirs = format!("{NEWER} ({})", hello.build);
        let begin = format!("supervisor upgraded from {ours} to {theirs}: 1 job went on, for ");
        let end = format!(" ms nobody was answered; the keeper stays {ours}\n");
        assert!(
            said.err.starts_with(&begin) && said.err.ends_with(&end),
            "{said:?}"
        );
        assert_eq!((said.code, said.out.as_str()), (0, ""));
        let status = house.cli_of(&newer, &["daemon", "status"]).out;
        assert!(
            status.contains(&format!("version    {theirs}\n")),
            "{status}"
        );
        let stays = format!("keeper     {ours}, as long as this house stands\n");
        assert!(status.contains(&stays), "{status}");
        // And back, with an ostler that is older than what runs.
        let said = house.cli(&["daemon", "upgrade"]);
        let begin = format!("supervisor downgraded from {theirs} to {ours}: 1 job went on, for ");
        assert!(said.err.starts_with(&begin), "{said:?}");
        let said = house.cli(&["daemon", "upgrade", "--force", "--json"]);
        let told: Value = serde_json::from_str(&said.out).expect("JSON was asked for");
        assert_eq!((&told["changed"], &told["jobs"]), (&json!(true), &json!(1)));
        assert!(told["gapMs"].is_number() && said.err.is_empty(), "{said:?}");
        let said = house.cli(&["daemon", "upgrade", "--image", "/bin/true"]);
        assert_eq!(
            (said.code, said.err.as_str()),
            (
                125,
                "error: not upgraded: /bin/true is no ostler that can be upgraded to\nhint: nothing has changed, the jobs go on\n"
            )
        );
    });
}

#[test]
fn an_older_supervisor_is_told_of_or_replaced_as_the_settings_say() {
    in_house(async |house| {
        let newer = newer(house);
        let build = house.info().await.hello.build;
        let older = ostler_proto::VERSION;
        let ls = || house.cli_of(&newer, &["ls"]);
        let said = ls();
        let note = format!(
            "note: supervisor {older} is older than this ostler {NEWER}; ostler daemon upgrade replaces it, its jobs go on\n"
        );
        assert_eq!((said.code, said.err.as_str()), (0, note.as_str()));
        assert_eq!(house.info().await.hello.generation, 1);
        let config = "[client]\nauto_upgrade = true\n";
        fs::write(&house.folders().config, config).expect("the folder is ours");
        let said = ls();
        let begin =
            format!("note: supervisor upgraded from {older} ({build}) to {NEWER} ({build}): ");
        assert!(said.code == 0 && said.err.starts_with(&begin), "{said:?}");
        assert_eq!(house.info().await.hello.version, NEWER);
        assert_eq!((ls().code, ls().err.as_str()), (0, ""));
        // An older one never does.
        let said = house.cli(&["ls"]);
        let note = format!("note: supervisor {NEWER} is newer than this ostler {older}\n");
        assert_eq!((said.code, said.err.as_str()), (0, note.as_str()));
        // What starts something does so, too, and its own answer comes from the next one.
        must_upgrade(house, ostler()).await;
        let said = house.cli_of(
            &newer,
            &["run", "--session", "x", "--", puppet(), "exit", "3"],
        );
        assert!(
            said.code == 3 && said.err.starts_with("note: supervisor upgraded"),
            "{said:?}"
        );
        assert_eq!(house.info().await.hello.generation, 4);
    });
}
