//! Pipes, files and terminals of a job.

use crate::stage::{Running, Stage, request, shell, wait_readable};
use ostler_supervisor::keeper::wire::{self, Frame, Op, Stdin};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

#[test]
fn closing_both_copies_of_the_input_ends_cat() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = request(&["cat"]);
    asked.stdin = Stdin::Pipe;
    let mut running = part.start(1, &asked);
    let mut input = File::from(running.input.take().unwrap());
    input.write_all(b"hello").unwrap();
    drop(input);
    // The keeper's copy keeps it open.
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_IN);
    assert_eq!(running.read_all(), "hello");
    assert_eq!(part.finish(1), (Some(0), None));
}

#[test]
fn a_writer_breaks_only_when_both_reading_ends_are_closed() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("while read x; do echo $x || exit 9; done; exit 0");
    asked.argv[2] = b"trap '' PIPE; while read x; do echo $x 2>/dev/null || exit 9; done".to_vec();
    asked.stdin = Stdin::Pipe;
    let running = part.start(1, &asked);
    let mut input = File::from(running.input.unwrap());
    drop(running.out);
    input.write_all(b"one\n").unwrap();
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_OUT);
    part.all_until_pong(2);
    input.write_all(b"two\n").unwrap();
    assert_eq!(part.finish(1), (Some(9), None));
}

#[test]
fn a_passed_file_is_the_input() {
    let mut stage = Stage::new();
    let path = stage.path("input");
    std::fs::write(&path, "given once").unwrap();
    let file = File::open(&path).unwrap();
    let mut asked = request(&["cat"]);
    asked.stdin = Stdin::Passed;
    let part = stage.part();
    let frame = Frame::new(Op::Fork, 1, [0; 5]);
    part.put(frame, &asked.encode(), &[file.as_fd()]);
    let running = Running::read(part.expect(Op::Started, 1));
    assert_eq!(running.read_all(), "given once");
    assert_eq!(part.finish(1), (Some(0), None));
}

#[test]
fn a_terminal_is_the_controlling_one_and_has_the_size_asked_for() {
    let mut stage = Stage::new();
    let part = stage.part();
    let mut asked = shell("stty size; tty -s && echo yes > /dev/tty; exec sleep 1000");
    asked.pty = Some((33, 99));
    let running = part.start(1, &asked);
    let mut text = Vec::new();
    let mut master = File::from(running.out.unwrap());
    while !text.ends_with(b"yes\r\n") {
        assert!(wait_readable(&master));
        let mut chunk = [0; 256];
        let got = master.read(&mut chunk).unwrap();
        text.extend_from_slice(&chunk[..got]);
    }
    assert_eq!(String::from_utf8(text).unwrap(), "33 99\r\nyes\r\n");
    // A hang-up is real only when both copies of the master are closed.
    drop(master);
    let told = part.all_until_pong(1);
    assert!(
        told.iter()
            .all(|message| message.frame.op() != Some(Op::Ended))
    );
    part.send(Op::Close, 1, wire::CLOSE_OUT);
    assert_eq!(part.finish(1), (None, Some(libc::SIGHUP)));
}
