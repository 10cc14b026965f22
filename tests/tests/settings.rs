//! Promise: every limit can be set, a wrong word in the file is named with its line and costs no running job; and
//! the doctor knows what is wrong without changing anything.

use std::time::{Duration, Instant};

use ostler::Mode;
use ostler_proto::job::{Outcome, State};
use ostler_proto::methods::{
    For, JobGet, JobRead, JobStart, JobWrite, OpenSession, Read, Start, Stdin, Target, Write,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::{Desk, House, in_empty_house, in_house, puppet, script};
use serde_json::{Value, json};

fn configure(house: &House, text: &str) {
    std::fs::write(&house.folders().config, text).expect("the folder is ours");
}

async fn gone(desk: &Desk, id: &str) -> bool {
    let get = Target {
        session: None,
        id: id.into(),
    };
    matches!(desk.call::<JobGet>(get).await, Err(refusal) if refusal.kind == RefusalKind::Gone)
}

#[test]
fn a_quota_of_the_file_is_in_force() {
    in_empty_house(async |house| {
        configure(house, "[session]\ncommands = 2\n");
        house.start();
        let desk = house.desk_of(OpenSession {
            id: Some("small".into()),
            ..OpenSession::default()
        });
        for _ in 0..2 {
            desk.start(script("sleep")).await;
        }
        let full = desk.refused::<JobStart>(script("sleep")).await;
        assert_eq!(
            (full.kind, &full.data["limit"]),
            (RefusalKind::Limit, &json!(2))
        );
    });
}

/// History: what is older than it is kept for goes by itself, and an answer can still say what happened.
#[test]
fn ended_jobs_and_lapsed_sessions_go_when_they_are_old() {
    in_empty_house(async |house| {
        configure(house, "[session]\nfinished_for = 300\n");
        house.start();
        let desk = house.desk();
        let row = desk.start(script("out 300000 , exit 3")).await;
        desk.wait(&row.id).await;
        let spill = desk
            .get(&row.id)
            .await
            .row
            .output
            .spill
            .expect("it left the ring");
        let begun = Instant::now();
        while !gone(&desk, &row.id).await {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "it stays for ever"
            );
            tokio::task::yield_now().await;
        }
        // Its record goes first: a file without one is in nobody's way.
        while std::path::Path::new(&spill).exists() {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "its file stays for ever"
            );
            tokio::task::yield_now().await;
        }
        let leased = house.desk_of(OpenSession {
            id: Some("leased".into()),
            lease_ms: Some(1),
            ..OpenSession::default()
        });
        leased.start(script("sleep")).await;
        drop(leased);
        let sessions = async || house.info().await.sessions;
        while sessions().await > 1 {
            assert!(
                begun.elapsed() < Duration::from_secs(40),
                "the session stays for ever"
            );
            tokio::task::yield_now().await;
        }
    });
}

/// The start is refused with file, line and name; a house that runs already is not touched by it.
#[test]
fn a_wrong_word_is_named_with_its_line_and_costs_no_running_job() {
    in_empty_house(async |house| {
        let said = house.cli(&["start", "--", puppet(), "sleep"]);
        assert_eq!(said.code, 0, "{}", said.err);
        configure(house, "[session]\n\ncomands = 2\n");
        house.kill_supervisor().await;
        assert!(
            house.log().contains("going on with defaults"),
            "{}",
            house.log()
        );
        let said = house.cli(&["ls"]);
        assert!(said.out.contains("running"), "{}", said.out);
        let said = house.cli(&["config", "show"]);
        assert_eq!(said.code, 125);
        assert!(
            said.err
                .contains("config.toml, line 3: there is no setting `comands` in [session]"),
            "{}",
            said.err
        );
        let said = house.cli(&["doctor"]);
        assert_eq!(said.code, 125);
        assert!(said.out.contains("configuration   FAIL"), "{}", said.out);
        assert_eq!(
            house.cli(&["daemon", "stop"]).code,
            0,
            "stopping works all the same"
        );
        let said = house.cli(&["start", "--", "true"]);
        assert_eq!(said.code, 125);
        assert!(
            said.err.contains("line 3: there is no setting `comands`"),
            "{}",
            said.err
        );
        configure(house, "");
        assert_eq!(house.cli(&["run", "--", "true"]).code, 0);
    });
}

#[test]
fn config_show_tells_where_each_value_comes_from() {
    in_empty_house(async |house| {
        configure(house, "[stop]\ngrace = \"7s\"\n");
        let said = house.cli(&["config", "show"]);
        let line = |key: &str| {
            let mut lines = said.out.lines();
            lines
                .find(|l| l.starts_with(key))
                .unwrap_or_else(|| panic!("{key}: {}", said.out))
                .to_owned()
        };
        assert!(
            line("stop.grace").ends_with("config.toml:2"),
            "{}",
            said.out
        );
        assert!(line("stop.grace").contains("7s"));
        assert_eq!(line("output.page"), "output.page\t8 KiB\tdefault");
        let told: Value =
            serde_json::from_str(&house.cli(&["config", "show", "--json"]).out).unwrap();
        let grace = told["settings"]
            .as_array()
            .unwrap()
            .iter()
            .find(|s| s["key"] == "grace")
            .unwrap();
        assert_eq!(
            (&grace["value"], &grace["origin"], &grace["line"]),
            (&json!(7_000), &json!("file"), &json!(2))
        );
        assert!(house.marks().living().is_empty(), "it starts nothing");
    });
}

/// Walk 10.
#[test]
fn the_doctor_needs_no_supervisor_and_finds_what_is_wrong() {
    in_empty_house(async |house| {
        let said = house.cli(&["doctor"]);
        assert_eq!((said.code, said.err.as_str()), (0, ""), "{}", said.out);
        assert!(
            said.out.contains("supervisor      ok    none runs"),
            "{}",
            said.out
        );
        assert!(house.marks().living().is_empty(), "it starts nothing");
        house.start();
        let told: Value = serde_json::from_str(&house.cli(&["doctor", "--json"]).out).unwrap();
        let checks = told["checks"].as_array().unwrap();
        assert!(checks.iter().all(|c| c["ok"] == true), "{told}");
        let supervisor = checks.iter().find(|c| c["name"] == "supervisor").unwrap();
        let pid = house.info().await.hello.pid.to_string();
        assert!(
            supervisor["found"].as_str().unwrap().contains(&pid),
            "{supervisor}"
        );
    });
}

/// A supervisor that does not answer is named within two seconds, and nobody is signalled.
#[test]
fn the_doctor_names_a_supervisor_that_does_not_answer() {
    in_house(async |house| {
        let hello = house.info().await.hello;
        let both = [hello.keeper_pid, hello.pid]
            .map(|pid| ostler_tests::process::Process::of(pid).expect("it lives"));
        both.iter().for_each(ostler_tests::process::Process::freeze);
        let begun = Instant::now();
        let said = house.cli(&["doctor"]);
        assert_eq!(said.code, 125);
        assert!(said.out.contains("does not answer"), "{}", said.out);
        assert!(begun.elapsed() < Duration::from_secs(10));
        let still =
            |p: &ostler_tests::process::Process| ostler_tests::process::state(p.pid) == Some('T');
        assert!(both.iter().all(still), "it was signalled");
        both.iter().rev().for_each(|p| p.signal(libc::SIGCONT));
    });
}

/// A silent build is work, unless somebody said otherwise; input is activity as well.
#[test]
fn an_idle_limit_ends_what_says_and_hears_nothing() {
    in_house(async |house| {
        let desk = house.desk();
        let idle = |ms: u64, steps: &str| Start {
            idle_ms: Some(ms),
            ..script(steps)
        };
        let row = desk.start(idle(300, "say x , sleep")).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!(ended.outcome, Some(Outcome::IdleReaped));
        assert_eq!(ended.outcome_detail.and_then(|d| d.limit), Some(300));
        assert_eq!(
            (ended.timed_out, ended.cancelled, ended.ok),
            (false, false, Some(false))
        );
        assert!(ended.duration_ms.unwrap() >= 300);
        // Kept alive by what it hears, ended when that stops.
        let fed = Start {
            stdin: Stdin::Open,
            ..idle(2_000, "cat")
        };
        let row = desk.start(fed).await;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_500) {
            let write = Write {
                id: row.id.clone(),
                text: Some("x\n".into()),
                ..Write::default()
            };
            desk.must::<JobWrite>(write).await;
            desk.wait_ms(&row.id, 100).await;
        }
        assert_eq!(desk.get(&row.id).await.row.state, State::Running);
        let refused = desk.refused::<JobStart>(idle(0, "sleep")).await;
        assert_eq!(refused.data["field"], "idleMs");
        let said = house.cli(&["run", "--idle", "200ms", "--", puppet(), "sleep"]);
        assert_eq!(said.code, 125, "{}", said.err);
    });
}

/// 002: the path that was hit, and which file that was.
#[test]
fn a_result_names_the_file_that_was_executed() {
    in_house(async |house| {
        use std::os::unix::fs::MetadataExt;
        let desk = house.desk();
        let result = desk.run(script("exit 0")).await;
        let stat = std::fs::metadata(puppet()).unwrap();
        let file = result.file.expect("it was executed");
        assert_eq!(
            (file.device, file.inode, file.bytes),
            (stat.dev(), stat.ino(), stat.len())
        );
        assert_eq!(result.row.resolved_path.as_deref(), Some(puppet()));
        house.kill_supervisor().await;
        assert_eq!(
            house.desk().get(&result.row.process_id).await.file,
            Some(file)
        );
    });
}

/// J2, J7: bytes that are no text are an answer of their own, never an outcome.
#[test]
fn strict_text_is_refused_where_bytes_are_none() {
    in_house(async |house| {
        let desk = house.desk();
        let shell = ostler_tests::command(["sh", "-c", "printf 'caf\\351\\n'; exit 3"]);
        let row = desk.start(shell).await;
        let ended = desk.wait(&row.id).await;
        assert_eq!(
            (ended.outcome, ended.exit_code),
            (Some(Outcome::Exited), Some(3))
        );
        let read = |strict| Read {
            id: row.id.clone(),
            since: Some(0),
            strict,
            ..Read::default()
        };
        let page = desk.must::<JobRead>(read(false)).await;
        assert_eq!(
            (page.text.as_deref(), page.replaced),
            (Some("caf\u{fffd}\n"), 1)
        );
        let refused = desk.refused::<JobRead>(read(true)).await;
        assert_eq!(
            (refused.kind, &refused.data["replaced"]),
            (RefusalKind::Undecodable, &json!(1))
        );
        let said = house.cli(&["read", "--strict", &row.process_id]);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{}", said.err);
        let result = desk.get(&row.id).await;
        assert_eq!(
            (result.row.encoding.as_str(), result.row.replaced),
            ("utf-8", Some(1))
        );
    });
}

/// A server in a container is no member; that it takes connections can be waited for all the same.
#[test]
fn a_wait_for_an_address_connects_and_ends_with_the_job() {
    in_house(async |house| {
        let desk = house.desk();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let row = desk.start(script("sleep")).await;
        let told = desk.wait_for(&row.id, For::Tcp(address.clone())).await;
        assert_eq!(told.reason, ostler_proto::methods::Reason::Port);
        drop(listener);
        let waiting = {
            let (desk, id) = (desk.clone(), row.id.clone());
            tokio::spawn(async move { desk.wait_for(&id, For::Tcp(address)).await })
        };
        desk.stop(&row.id, 5_000).await;
        let told = waiting.await.unwrap();
        assert_eq!(told.reason, ostler_proto::methods::Reason::EndedBefore);
        for bad in ["", "x", ":80", "x:0", "x:y"] {
            let wait = ostler_proto::methods::Wait {
                ids: vec![row.id.clone()],
                what: For::Tcp(bad.into()),
                ..Default::default()
            };
            let refused = desk.refused::<ostler_proto::methods::JobWait>(wait).await;
            assert_eq!(refused.data["field"], "for.tcp");
        }
        let _ = house.options(Mode::Use);
    });
}
