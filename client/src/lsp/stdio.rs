//! Standard input and output as messages. A thread each: neither a pipe that an editor made nor a terminal can be relied
//! on to be watched.

use std::io::{self, Read, Write};
use std::thread;

use ostler::frames::Decoder;
use ostler_proto::frame::{self, Framing};
use tokio::sync::mpsc;

/// Messages that may wait on either side; then the other one waits.
const WAITING: usize = 64;

/// What the editor sends.
pub(super) enum Heard {
    /// A message.
    Message(Vec<u8>),
    /// Bytes that are none: what follows cannot be understood.
    Garbage(String),
}

/// Reads until the editor sends no more; then the receiver ends.
pub(super) fn input() -> mpsc::Receiver<Heard> {
    let (to, heard) = mpsc::channel(WAITING);
    thread::spawn(move || read(&mut io::stdin().lock(), &to));
    heard
}

fn read(input: &mut impl Read, to: &mpsc::Sender<Heard>) {
    let mut decoder = Decoder::default();
    let mut bytes = vec![0; 64 * 1024];
    loop {
        match input.read(&mut bytes) {
            Ok(0) => return,
            Ok(n) => decoder.buffer.extend_from_slice(&bytes[..n]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        }
        loop {
            match decoder.next() {
                Ok(Some(body)) => {
                    if to.blocking_send(Heard::Message(body.to_vec())).is_err() {
                        return;
                    }
                }
                Ok(None) => break,
                Err(why) => {
                    let _ = to.blocking_send(Heard::Garbage(why.to_string()));
                    return;
                }
            }
        }
    }
}

/// Writes what is sent there. It closes when the editor reads no more.
pub(super) fn output() -> mpsc::Sender<Vec<u8>> {
    let (to, mut told) = mpsc::channel::<Vec<u8>>(WAITING);
    thread::spawn(move || {
        let mut output = io::stdout().lock();
        while let Some(body) = told.blocking_recv() {
            let mut framed = Vec::with_capacity(body.len() + 32);
            frame::encode(Framing::Lsp, &body, &mut framed);
            if output
                .write_all(&framed)
                .and_then(|()| output.flush())
                .is_err()
            {
                return;
            }
        }
    });
    to
}
