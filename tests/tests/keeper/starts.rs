//! A job begins with exactly what was asked for, or says at which step it failed.

use crate::stage::{Stage, bytes, children_in_state, descriptors, failure, request, shell, until};
use ostler_supervisor::keeper::wire::{ForkRequest, Limit, Op, Step, Welcome};
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

#[test]
fn hello_brings_everything_a_supervisor_needs() {
    let mut stage = Stage::raised(&[]);
    let hello = stage.part().expect(Op::Hello, 0);
    let welcome = Welcome::decode(&hello.payload).unwrap();
    assert!(!hello.truncated);
    assert_eq!(hello.frame.args[..4], [1, 0, 1, stage.instance()]);
    assert_eq!((welcome.oldest, welcome.newest), (1, 1));
    assert!(hello.files.len() >= 7 && hello.files.len() % 2 == 1);
    let socket = std::fs::metadata(stage.path("ostler.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    let slots = hello.frame.args[4];
    let arena = File::from(hello.files[3].try_clone().unwrap());
    assert_eq!(arena.metadata().unwrap().len(), slots * 294_912);
    assert!(arena.set_len(0).is_err(), "the arena can be cut");
    let lock = std::fs::read_to_string(stage.path("house.lock")).unwrap();
    let lock: serde_json::Value = serde_json::from_str(&lock).unwrap();
    assert_eq!(lock["pid"], stage.keeper_pid());
    assert!(lock["start"].as_u64().unwrap() > 0);
}

#[test]
fn arguments_environment_folder_umask_and_limits_are_exactly_those_asked_for() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["sh", "-c", "printf '[%s]' \"$0\" \"$@\"", "a b", "", "ü"]);
    assert_eq!(part.output(1, &asked), "[a b][][ü]");
    asked = request(&["env"]);
    asked.env = bytes(&["ONE=1", "EMPTY=", "TWO=a b"]);
    assert_eq!(part.output(2, &asked), "ONE=1\nEMPTY=\nTWO=a b\n");
    asked = shell("pwd; umask; ulimit -Sn; ulimit -Hn");
    asked.cwd = b"/usr".to_vec();
    asked.umask = Some(0o027);
    asked.limits = vec![Limit {
        resource: libc::RLIMIT_NOFILE,
        soft: 100,
        hard: 200,
    }];
    assert_eq!(part.output(3, &asked), "/usr\n0027\n100\n200\n");
}

#[test]
fn a_job_gets_back_the_umask_and_the_soft_limits_the_keeper_had_before() {
    let dir = TempDir::new().unwrap();
    let control = UnixListener::bind(dir.path().join("control")).unwrap();
    let keeper = Stage::command(dir.path(), &[]);
    let mut command = Command::new("/bin/sh");
    command
        .args([
            "-c",
            "umask 031; ulimit -Sn 321; ulimit -Sf 8000; exec \"$@\"",
            "sh",
        ])
        .arg(keeper.get_program())
        .args(keeper.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut stage = Stage::open(dir, control, command);
    stage.be_ready();
    let keeper = stage.keeper_pid();
    let limits = std::fs::read_to_string(format!("/proc/{keeper}/limits")).unwrap();
    assert!(!limits.contains(" 321 "), "{limits}");
    let text = stage
        .part()
        .output(1, &shell("umask; ulimit -Sn; ulimit -Sf"));
    assert_eq!(text, "0031\n321\n8000\n");
}

#[test]
fn a_limit_above_the_hard_one_is_cut_down_and_said_so() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell(":");
    asked.limits = vec![Limit {
        resource: libc::RLIMIT_NOFILE,
        soft: u64::MAX,
        hard: u64::MAX,
    }];
    part.start(1, &asked);
    assert_eq!(part.expect(Op::Execed, 1).frame.args[1], 1);
    part.start(2, &shell(":"));
    assert_eq!(part.expect(Op::Execed, 2).frame.args[1], 0);
}

#[test]
fn a_job_has_no_descriptor_above_two_and_the_null_device_as_input() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["sleep", "1000"]);
    asked.merge = false;
    for job in 1..=3 {
        let running = part.start(job, &asked);
        part.expect(Op::Execed, job);
        // The dynamic loader has a library open for a moment; a leak would stay.
        until("three descriptors alone", || {
            descriptors(running.pid) == [0, 1, 2].into()
        });
        let input = std::fs::read_link(format!("/proc/{}/fd/0", running.pid)).unwrap();
        assert_eq!(input, Path::new("/dev/null"));
        assert!(running.err.is_some());
    }
}

#[test]
fn signals_are_clean_in_a_job_whatever_the_keeper_was_started_with() {
    let mut stage = Stage::raised(&["deaf"]);
    stage.be_ready();
    let text = stage
        .part()
        .output(1, &request(&["cat", "/proc/self/status"]));
    for name in ["SigBlk", "SigIgn", "SigCgt", "SigPnd"] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        assert!(line.ends_with("\t0000000000000000"), "{line}");
    }
}

#[test]
fn a_job_has_its_own_session_its_cookie_and_a_higher_oom_score() {
    let mut stage = Stage::new();
    let instance = stage.instance();
    let part = stage.part();
    let script = "cat /proc/$$/oom_score_adj; cut -d' ' -f5,6 /proc/$$/stat; \
                  grep realtime.timeout /proc/$$/limits; echo $$";
    let text = part.output(5, &shell(script));
    let lines: Vec<_> = text.lines().collect();
    let ours = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap();
    let higher = ours.trim().parse::<i32>().unwrap() + 100;
    assert_eq!(lines[0], higher.min(1000).to_string());
    assert_eq!(lines[1], format!("{0} {0}", lines[3]));
    let number = instance << 30 | 5;
    let words: Vec<_> = lines[2].split_whitespace().collect();
    assert_eq!(words[3], ((1u64 << 61) + number).to_string());
    assert_eq!(words[4], ((1u64 << 62) + number).to_string());
}

#[test]
fn a_failing_start_names_step_reason_and_program() {
    let mut stage = Stage::new();
    let file = stage.path("plain");
    std::fs::write(&file, "no program").unwrap();
    let plain = file.to_str().unwrap().to_owned();
    let part = stage.part();
    let mut failed = |job, request: &ForkRequest| {
        part.fork(job, request);
        let answer = failure(&part.expect(Op::Failed, job));
        part.send(Op::Forget, job, 0);
        answer
    };
    let with = |programs: &[&str]| ForkRequest {
        programs: bytes(programs),
        ..shell(":")
    };
    let missing = (Step::Exec, libc::ENOENT, 1);
    assert_eq!(failed(1, &with(&["/no/a", "/no/b"])), missing);
    let denied = (Step::Exec, libc::EACCES, 1);
    assert_eq!(failed(2, &with(&["/no/a", &plain, "/no/b"])), denied);
    let mut asked = shell(":");
    asked.cwd = plain.clone().into_bytes();
    assert_eq!(failed(3, &asked), (Step::Chdir, libc::ENOTDIR, 0));
    asked.cwd = b"/no/such/folder".to_vec();
    assert_eq!(failed(4, &asked), (Step::Chdir, libc::ENOENT, 0));
    asked = shell(":");
    asked.argv.push(vec![b'x'; 200_000]);
    assert_eq!(failed(5, &asked), (Step::Exec, libc::E2BIG, 0));
    asked = shell(":");
    asked.argv.push(b"a\0b".to_vec());
    assert_eq!(failed(6, &asked), (Step::Request, libc::EINVAL, 0));
    assert_eq!(failed(7, &with(&[])), (Step::Request, libc::EINVAL, 0));
    assert!(children_in_state(stage.keeper_pid(), 'Z').is_empty());
}

#[test]
fn the_index_of_the_program_that_runs_is_told() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("exit 3");
    asked.programs = bytes(&["/no/sh", "/etc/passwd/sh", "/bin/sh"]);
    part.start(1, &asked);
    assert_eq!(part.expect(Op::Execed, 1).frame.args[0], 2);
    assert_eq!(part.finish(1), (Some(3), None));
}

#[test]
fn a_program_that_is_still_being_written_is_tried_again_until_it_is_free() {
    let mut stage = Stage::new();
    let path = stage.path("busy");
    std::fs::copy("/bin/true", &path).unwrap();
    let writer = File::options().append(true).open(&path).unwrap();
    let mut asked = request(&["busy"]);
    asked.programs = vec![path.to_str().unwrap().into()];
    let part = stage.part();
    // Held for good it is an error in the end.
    part.fork(1, &asked);
    let busy = (Step::Exec, libc::ETXTBSY, 0);
    assert_eq!(failure(&part.expect(Op::Failed, 1)), busy);
    // Let go while the child tries, it runs.
    part.fork(2, &asked);
    part.expect(Op::Started, 2);
    drop(writer);
    part.expect(Op::Execed, 2);
    assert_eq!(part.finish(2), (Some(0), None));
}

#[test]
fn a_mebibyte_of_arguments_arrives_whole() {
    let mut stage = Stage::new();
    let mut asked = request(&["sh", "-c", "echo $# ${#1} ${#16}", "sh"]);
    asked.argv.extend((0..16).map(|_| vec![b'x'; 65_536]));
    assert_eq!(stage.part().output(1, &asked), "16 65536 65536\n");
}
