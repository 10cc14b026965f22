//! Promise: several commands joined by pipes are one job, without a shell, and the end of each is told.

use std::path::PathBuf;

use ostler_proto::job::{JobResult, Outcome, Row, State};
use ostler_proto::limits;
use ostler_proto::methods::{JobSignal, JobStart, JobWrite, SignalJob, Start, Stdin, Write};
use ostler_proto::start::Stage;
use ostler_tests::house::files_below;
use ostler_tests::process::{self, Process};
use ostler_tests::{Desk, House, command, in_house, puppet};
use regex::Regex;

fn stage<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Stage {
    Stage {
        args: args.into_iter().map(Into::into).collect(),
        ok: Vec::new(),
    }
}

/// A stage of the puppet, from steps that are separated by blanks.
fn steps(steps: &str) -> Stage {
    stage([puppet()].into_iter().chain(steps.split_whitespace()))
}

fn pipeline(stages: impl IntoIterator<Item = Stage>) -> Start {
    Start {
        stages: stages.into_iter().collect(),
        ..command([""; 0])
    }
}

fn codes(row: &Row) -> Vec<Option<i32>> {
    row.stages.iter().map(|stage| stage.exit_code).collect()
}

/// The processes of the stages, once each has said that it is set up.
async fn stages_of(desk: &Desk, row: &Row) -> Vec<u32> {
    let row = desk.get(&row.id).await.row;
    row.stages.iter().filter_map(|stage| stage.pid).collect()
}

/// Reports go beside everything else, when their jobs are over.
async fn no_report_is_left(house: &House, desk: &Desk, id: &str) {
    let is_report = |file: &PathBuf| file.extension().is_some_and(|e| e == "stages");
    let gone = |_: &JobResult| {
        !files_below(&house.folders().artifacts())
            .iter()
            .any(is_report)
    };
    desk.until(id, "the end of the reports", gone).await;
}

#[test]
fn arguments_pass_no_shell_and_each_stage_reads_what_the_one_before_writes() {
    in_house(async |house| {
        let odd = "a  b;$HOME`id`'|\"*\\";
        let say = stage([puppet(), "argv", odd]);
        let result = house
            .desk()
            .run(pipeline([say, stage(["cat"]), stage(["tr", "a", "A"])]))
            .await;
        let text = format!("{}:{odd}\n", odd.len()).replace('a', "A");
        assert_eq!(result.stdout.as_deref(), Some(text.as_str()));
        let row = result.row;
        assert_eq!((row.exit_code, row.ok), (Some(0), Some(true)));
        assert_eq!(codes(&row), [Some(0); 3]);
        let tr = &row.stages[2];
        assert_eq!(tr.args, ["tr", "a", "A"]);
        assert!(tr.pid.is_some_and(|pid| Some(pid) != row.pid), "{tr:?}");
        let path = tr.resolved_path.as_deref().unwrap_or_default();
        assert!(path.starts_with('/') && path.ends_with("/tr"), "{path}");
    });
}

#[test]
fn a_stage_is_an_ordinary_child_with_three_descriptors_and_no_signal_blocked() {
    in_house(async |house| {
        let look = "fds , mask";
        let numbers = Regex::new(r"\[\d+\]").unwrap();
        let seen = async |start| {
            let text = house.desk().run(start).await.stdout.unwrap_or_default();
            numbers.replace_all(&text, "").into_owned()
        };
        let alone = seen(ostler_tests::script(look)).await;
        assert!(
            alone.contains("0 /dev/null") && alone.contains("SigBlk"),
            "{alone}"
        );
        assert_eq!(seen(pipeline([steps(look), stage(["cat"])])).await, alone);
        let last = seen(pipeline([stage(["true"]), steps(look)])).await;
        assert_eq!(last, alone.replace("0 /dev/null", "0 pipe:"));
    });
}

#[test]
fn the_job_ends_as_its_last_stage_and_is_ok_if_all_are() {
    in_house(async |house| {
        let desk = house.desk();
        let row = desk
            .run(pipeline([steps("exit 3"), steps("exit 0")]))
            .await
            .row;
        assert_eq!((row.exit_code, row.ok), (Some(0), Some(false)));
        assert_eq!(codes(&row), [Some(3), Some(0)]);
        let row = desk
            .run(pipeline([steps("exit 0"), steps("exit 5")]))
            .await
            .row;
        assert_eq!((row.exit_code, row.ok), (Some(5), Some(false)));
        let expected = |code| Stage {
            ok: vec![0, code],
            ..steps(&format!("exit {code}"))
        };
        let row = desk.run(pipeline([expected(3), expected(5)])).await.row;
        assert_eq!((row.exit_code, row.ok), (Some(5), Some(true)));
        let row = desk
            .run(pipeline([stage(["cat"]), steps("kill TERM")]))
            .await
            .row;
        assert_eq!(
            (row.outcome, row.signal.as_deref(), row.ok),
            (Some(Outcome::Signaled), Some("SIGTERM"), Some(false))
        );
        assert_eq!(row.stages[1].signal.as_deref(), Some("SIGTERM"));
    });
}

#[test]
fn who_writes_to_one_that_has_enough_dies_of_that_and_nothing_is_wrong() {
    in_house(async |house| {
        let stages = [stage(["yes"]), stage(["head", "-n", "1"])];
        let result = house.desk().run(pipeline(stages)).await;
        assert_eq!(result.stdout.as_deref(), Some("y\n"));
        let yes = &result.row.stages[0];
        assert_eq!(
            (yes.exit_code, yes.signal.as_deref(), yes.ok),
            (None, Some("SIGPIPE"), Some(true))
        );
        assert_eq!(result.row.ok, Some(true));
    });
}

#[test]
fn input_reaches_the_first_stage_and_its_end_all_of_them() {
    in_house(async |house| {
        let desk = house.desk();
        let text = Start {
            stdin: Stdin::Text("one\ntwo\n".into()),
            ..pipeline([stage(["cat"]), stage(["tail", "-n", "1"])])
        };
        assert_eq!(desk.run(text).await.stdout.as_deref(), Some("two\n"));
        let open = Start {
            stdin: Stdin::Open,
            ..pipeline([stage(["cat"]), stage(["cat"]), steps("cat")])
        };
        let row = desk.start(open).await;
        let write = |text: Option<&str>| Write {
            id: row.id.clone(),
            text: text.map(Into::into),
            eof: text.is_none(),
            ..Write::default()
        };
        desk.must::<JobWrite>(write(Some("through\n"))).await;
        desk.printed(&row.id, "^through$").await;
        desk.must::<JobWrite>(write(None)).await;
        assert_eq!(desk.wait(&row.id).await.ok, Some(true));
    });
}

#[test]
fn a_stage_that_cannot_be_executed_fails_the_start_and_ends_the_others() {
    in_house(async |house| {
        let desk = house.desk();
        let pidfile = house.path("pid");
        let first = steps(&format!("pidfile {pidfile} , sleep"));
        let missing = stage(["no-such-program-9", "x"]);
        let row = desk
            .must::<JobStart>(pipeline([first, missing, stage(["cat"])]))
            .await;
        let row = desk.wait(&row.id).await;
        assert_eq!(row.outcome, Some(Outcome::SpawnFailed));
        assert_eq!((row.exit_code, row.ok), (None, Some(false)));
        let error = row.spawn_error.clone().unwrap();
        assert_eq!(
            (error.field.as_str(), error.errno),
            ("stages[1].args", libc::ENOENT)
        );
        assert_eq!(error.path.as_deref(), Some("no-such-program-9"));
        assert_eq!(desk.get(&row.id).await.row.tree.left, 0);
        if let Some(first) = row.stages[0].pid {
            assert!(!process::lives(first), "a stage of no pipeline lives");
        }
        let folder = desk.run(pipeline([stage(["/tmp"]), stage(["cat"])])).await;
        let error = folder.row.spawn_error.unwrap();
        assert_eq!(
            (error.field.as_str(), error.errno),
            ("stages[0].args", libc::EACCES)
        );
        assert_eq!(error.hint.as_deref(), Some("it is a folder, not a program"));
        // Whoever thinks of another try is told whether anything ran.
        let ran = async |key: &str, stages: [Stage; 2]| {
            let start = Start {
                key: Some(key.into()),
                ..pipeline(stages)
            };
            desk.must::<JobStart>(start.clone()).await;
            desk.must::<JobStart>(start).await.retry.unwrap().ran
        };
        let missing = || stage(["no-such-program-9"]);
        assert_eq!(ran("a", [missing(), stage(["cat"])]).await, Some(false));
        assert_eq!(ran("b", [steps("sleep"), missing()]).await, Some(true));
        no_report_is_left(house, &desk, "t1").await;
    });
}

#[test]
fn a_stop_ends_every_stage_and_a_signal_reaches_each() {
    in_house(async |house| {
        let desk = house.desk();
        let stubborn = steps("ignore TERM , sayerr ready , sleep");
        let row = desk.start(pipeline([stubborn, steps("cat")])).await;
        desk.printed(&row.id, "^ready$").await;
        let mut pids = stages_of(&desk, &row).await;
        pids.extend(row.pid);
        assert_eq!(pids.len(), 3);
        let receipt = desk.stop(&row.id, 50).await;
        assert_eq!(receipt.row.outcome, Some(Outcome::Stopped));
        assert!(
            receipt.survivors.is_empty() && receipt.forced > 0,
            "{receipt:?}"
        );
        assert!(pids.iter().all(|pid| !process::lives(*pid)), "{pids:?}");

        let row = desk
            .start(pipeline([steps("sayerr ready , sleep"), steps("cat")]))
            .await;
        desk.printed(&row.id, "^ready$").await;
        let signal = SignalJob {
            id: row.id.clone(),
            signal: "SIGINT".into(),
            session: None,
        };
        desk.must::<JobSignal>(signal).await;
        let row = desk.wait(&row.id).await;
        assert_eq!(
            (row.outcome, row.signal.as_deref()),
            (Some(Outcome::Signaled), Some("SIGINT"))
        );
        let signals: Vec<_> = row.stages.iter().map(|s| s.signal.as_deref()).collect();
        assert_eq!(signals, [Some("SIGINT"); 2]);
    });
}

#[test]
fn the_end_of_a_stage_is_told_while_others_run_and_survives_a_supervisor() {
    in_house(async |house| {
        let desk = house.desk();
        let go = house.fifo("go");
        let last = steps(&format!("cat , sayerr ready , await {go} , exit 4"));
        let row = desk.start(pipeline([steps("say x , exit 3"), last])).await;
        desk.printed(&row.id, "^ready$").await;
        let seen = |result: &JobResult| codes(&result.row) == [Some(3), None];
        let told = desk.until(&row.id, "the end of the first stage", seen);
        assert_eq!(told.await.row.state, State::Running);
        house.kill_supervisor().await;
        let after = desk.get(&row.id).await;
        assert!(seen(&after), "{after:?}");
        house.open(&go).await;
        let row = desk.wait(&row.id).await;
        assert_eq!((row.exit_code, row.ok), (Some(4), Some(false)));
        assert_eq!(codes(&row), [Some(3), Some(4)]);
        let result = desk.get(&row.id).await;
        house.kill_supervisor().await;
        assert_eq!(desk.get(&row.id).await, result);
    });
}

#[test]
fn a_pipeline_that_ends_while_nobody_supervises_is_told_all_the_same() {
    in_house(async |house| {
        let desk = house.desk();
        let go = house.fifo("go");
        let stages = [
            steps("exit 7"),
            steps(&format!("sayerr ready , await {go} , exit 0")),
        ];
        let row = desk.start(pipeline(stages)).await;
        desk.printed(&row.id, "^ready$").await;
        let last = Process::of(stages_of(&desk, &row).await[1]).unwrap();
        let [supervisor] = house.supervisors()[..] else {
            panic!("there is one supervisor");
        };
        let supervisor = Process::of(supervisor).unwrap();
        supervisor.freeze();
        house.open(&go).await;
        last.gone().await;
        supervisor.signal(libc::SIGKILL);
        let row = desk.wait(&row.id).await;
        assert_eq!(codes(&row), [Some(7), Some(0)]);
        assert_eq!((row.outcome, row.ok), (Some(Outcome::Exited), Some(false)));
    });
}

#[test]
fn a_terminal_is_the_first_input_and_the_last_output() {
    in_house(async |house| {
        let line = |line: &str| stage(["/bin/sh", "-c", line]);
        let start = Start {
            pty: Some(ostler_proto::job::Size { rows: 24, cols: 80 }),
            ..pipeline([
                line("test -t 0 && ! test -t 1 && echo in"),
                line("cat; ! test -t 0 && test -t 1 && echo out"),
            ])
        };
        let result = house.desk().run(start).await;
        assert_eq!(result.stdout.as_deref(), Some("in\r\nout\r\n"));
        assert_eq!(result.row.ok, Some(true));
    });
}

#[test]
fn without_a_report_a_pipeline_runs_and_its_stages_have_no_end() {
    in_house(async |house| {
        let desk = house.desk();
        // A file stands where the folder of reports would.
        let artifacts = house.folders().artifacts();
        let _ = std::fs::remove_dir_all(&artifacts);
        std::fs::write(&artifacts, "").unwrap();
        let result = desk.run(pipeline([steps("say x"), steps("cat")])).await;
        std::fs::remove_file(&artifacts).unwrap();
        assert_eq!(result.stdout.as_deref(), Some("x\n"));
        assert_eq!(result.row.exit_code, Some(0));
        assert_eq!(codes(&result.row), [None, None]);
        assert_eq!(result.row.ok, Some(false), "nobody knows that it was");
        // A mask that shuts its own files is for the programs.
        let shut = Start {
            umask: Some(0o777),
            ..pipeline([steps("umask"), stage(["cat"])])
        };
        let result = desk.run(shut).await;
        assert!(result.stdout.is_some_and(|mask| mask.contains("777")));
        assert_eq!(codes(&result.row), [Some(0); 2]);
    });
}

#[test]
fn as_many_stages_as_are_allowed_run_and_nothing_is_left_of_them() {
    in_house(async |house| {
        let desk = house.desk();
        let mut stages = vec![steps("out 200000")];
        stages.resize(limits::STAGES, stage(["cat"]));
        let result = desk.run(pipeline(stages)).await;
        assert_eq!(result.row.ok, Some(true));
        assert_eq!(result.row.output.end, 200_000);
        assert_eq!(result.row.stages.len(), limits::STAGES);
        let one = desk.run(pipeline([steps("exit 2")])).await.row;
        assert_eq!((one.exit_code, codes(&one)), (Some(2), vec![Some(2)]));
        no_report_is_left(house, &desk, "t1").await;
    });
}

#[test]
fn a_pipeline_that_is_none_names_its_field() {
    in_house(async |house| {
        let desk = house.desk();
        let cat = || stage(["cat"]);
        let none = stage([""; 0]);
        let cases = [
            (pipeline([cat(), none]), "stages[1].args"),
            (pipeline([cat(), stage(["", "x"])]), "stages[1].args"),
            (pipeline([cat(), stage(["a", "b\0c"])]), "stages[1].args"),
            (
                pipeline([Stage {
                    ok: vec![256],
                    ..cat()
                }]),
                "stages[0].ok",
            ),
            (
                Start {
                    args: vec!["cat".into()],
                    ..pipeline([cat()])
                },
                "stages",
            ),
            (
                Start {
                    line: Some("cat".into()),
                    ..pipeline([cat()])
                },
                "stages",
            ),
            (
                Start {
                    ok: vec![1],
                    ..pipeline([cat()])
                },
                "ok",
            ),
            (pipeline(vec![cat(); limits::STAGES + 1]), "stages"),
        ];
        for (start, field) in cases {
            let refusal = desk.refused::<JobStart>(start).await;
            assert_eq!(refusal.data["field"], field, "{refusal:?}");
        }
        assert!(desk.list().await.is_empty(), "a refusal left a row");
    });
}
