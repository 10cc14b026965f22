//! Promise: one reaper, no stolen exit code, no zombie, also as the first process of a container.

use std::os::unix::process::CommandExt;
use std::process::Stdio;

use ostler_proto::methods::{JobWrite, Start, Stdin, Write};
use ostler_supervisor::tree::cookie::HOUSE_JOB;
use ostler_tests::process::{self, Marks, Process};
use ostler_tests::{PATIENCE, in_empty_house, in_house, rounds, script, within};

/// 032.
#[test]
fn exit_codes_are_right_beside_crowds_of_orphans() {
    in_house(async |house| {
        let desk = house.desk();
        let jobs: Vec<_> = (0..500)
            .map(|n| {
                let desk = desk.clone();
                let steps = if n % 2 == 0 {
                    format!("exit {}", n % 200)
                } else {
                    format!(
                        "orphan [ exit 1 ] , fork [ orphan [ nap 20 ] ] , exit {}",
                        n % 200
                    )
                };
                tokio::spawn(async move { desk.run(script(&steps)).await.row })
            })
            .collect();
        for (n, job) in jobs.into_iter().enumerate() {
            let row = job.await.unwrap();
            assert_eq!(row.exit_code, Some(n as i32 % 200), "{row:?}");
        }
        let keeper = house.info().await.hello.keeper_pid;
        let none = async {
            while !process::zombies_of(keeper).is_empty() {
                desk.list().await;
            }
        };
        within(PATIENCE, "the reaping of every orphan", none).await;
    });
}

/// An orphan is the keeper's child and is reaped by it, at once and while its job lives.
#[test]
fn orphans_of_living_jobs_are_reaped() {
    in_house(async |house| {
        let desk = house.desk();
        let fifo = house.fifo("go");
        let steps = format!("orphan [ pid , await {fifo} ] , sleep");
        let row = desk.start(script(&steps)).await;
        let orphan = desk.number(&row.id, "pid").await;
        let keeper = house.info().await.hello.keeper_pid;
        let adopted = async {
            while process::parent(orphan) != Some(keeper) {
                desk.list().await;
            }
        };
        within(PATIENCE, "the adoption by the keeper", adopted).await;
        house.open(&fifo).await;
        let gone = async {
            while process::state(orphan).is_some() {
                desk.list().await;
            }
        };
        within(PATIENCE, "the reaping of the orphan", gone).await;
    });
}

/// 034.
#[test]
fn as_the_first_process_of_a_container_it_leaves_no_zombies() {
    in_empty_house(async |house| {
        let ostler = ostler_tests::ostler().display().to_string();
        let mut command = std::process::Command::new("unshare");
        let plain = house.ostler(&[]);
        command.args([
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            &ostler,
            "daemon",
            "run",
        ]);
        if house.uid() != 0 {
            command = std::process::Command::new("unshare");
            command.args([
                "--user",
                "--map-root-user",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
            ]);
            command.args([&ostler, "daemon", "run"]);
        }
        command
            .env_clear()
            .envs(plain.get_envs().filter_map(|(k, v)| Some((k, v?))));
        let words = std::fs::File::create(house.file("daemon.err")).unwrap();
        let mut container = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(words)
            .process_group(0)
            .spawn()
            .unwrap();
        let mut said = String::new();
        let out = container.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).unwrap();
        if said.is_empty() {
            ostler_tests::skip(&format!("no process namespace here: {}", house.log()));
            container.wait().unwrap();
            return;
        }
        assert_eq!(said.trim(), "ready", "{}", house.log());
        let desk = house.desk();
        for _ in 0..30 {
            let batch: Vec<_> = (0..10)
                .map(|n| {
                    let desk = desk.clone();
                    let steps = format!("fork [ orphan [ nap 5 ] , nap 5 ] , exit {n}");
                    tokio::spawn(async move { desk.run(script(&steps)).await.row.exit_code })
                })
                .collect();
            for (n, code) in (0..).zip(batch) {
                assert_eq!(code.await.unwrap(), Some(n));
            }
        }
        let first = process::all()
            .into_iter()
            .find(|p| process::parent(*p) == Some(container.id()));
        let keeper = first.expect("unshare has one child");
        let marks = Marks::in_namespace_of(keeper, house.dir());
        assert_eq!(marks.job_of(keeper), Some(HOUSE_JOB));
        let none = async {
            while !process::zombies_of(keeper).is_empty() {
                desk.list().await;
            }
        };
        within(PATIENCE, "zero zombies", none).await;
        assert_eq!(house.info().await.hello.keeper_pid, 1);
        // A correct init ends its house when it is told to.
        desk.ready(script("orphan [ ignore TERM , say ready , sleep ] , sleep"))
            .await;
        drop(desk);
        let keeper = Process::of(keeper).unwrap();
        keeper.signal(libc::SIGTERM);
        keeper.gone().await;
        container.wait().unwrap();
        house.assert_nothing_is_left();
    });
}

/// A result once said, now and then, that a plain program had left a process.
#[test]
fn a_plain_program_leaves_nobody_in_its_result() {
    in_house(async |house| {
        let desk = house.desk();
        for _ in 0..rounds("OSTLER_PLAIN", 100) {
            let result = desk.run(script("say x")).await;
            assert_eq!(result.row.tree.left, 0);
        }
    });
}

/// A job that had an input once held its descriptor for as long as its record was kept.
#[test]
fn an_ended_job_with_an_input_holds_no_descriptor() {
    in_house(async |house| {
        let desk = house.desk();
        desk.run(script("exit 0")).await;
        let pid = house.info().await.hello.pid;
        let before = process::descriptors(pid);
        let fed = || Start {
            stdin: Stdin::Open,
            ..script("exit 0")
        };
        for _ in 0..30 {
            desk.run(fed()).await;
        }
        let closed = async {
            while process::descriptors(pid) > before {
                desk.list().await;
            }
        };
        within(PATIENCE, "the end of every descriptor", closed).await;
        let write = Write {
            id: "t2".into(),
            text: Some("x".into()),
            ..Write::default()
        };
        assert!(desk.must::<JobWrite>(write).await.closed);
    });
}
