//! A raw connection, for faults that are in the bytes: it sends whatever a test says, in whatever pieces.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::{PATIENCE, within};

/// One socket and what has come on it.
pub struct Wire {
    /// The socket, for tests that misuse it.
    pub socket: UnixStream,
    buffer: Vec<u8>,
    next: i64,
}

impl Wire {
    /// Connects.
    ///
    /// # Panics
    /// Nobody listens.
    pub async fn connect(path: &Path) -> Self {
        let socket = within(PATIENCE, "a connection", UnixStream::connect(path)).await;
        Self::over(socket.unwrap_or_else(|e| panic!("{}: {e}", path.display())))
    }

    /// Speaks over any socket.
    pub fn over(socket: UnixStream) -> Self {
        Self {
            socket,
            buffer: Vec::new(),
            next: 1,
        }
    }

    /// Starts a front end whose standard input and output are the other end, with this command.
    ///
    /// # Panics
    /// It cannot be executed.
    pub fn to_child(mut command: Command) -> (Self, Child) {
        let (own, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair can be made");
        own.set_nonblocking(true).expect("it is a socket");
        let own = UnixStream::from_std(own).expect("it is a socket");
        let side = || OwnedFd::from(theirs.try_clone().expect("a descriptor is free"));
        let child = command.stdin(side()).stdout(side()).spawn();
        (Self::over(own), child.expect("it can be executed"))
    }

    /// Sends bytes as they are. The other side may have gone: what it says about that is read afterwards.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = within(PATIENCE, "room for bytes", self.socket.write_all(bytes)).await;
    }

    /// Sends one message in LSP framing and returns its id.
    pub async fn ask(&mut self, method: &str, params: Value) -> i64 {
        let id = self.next;
        self.next += 1;
        self.send(&framed(&request(id, method, params))).await;
        id
    }

    /// Asks and returns the answer to that, past everything else.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(id).await
    }

    /// The whole answer to a request, `result` or `error`; other messages are dropped.
    ///
    /// # Panics
    /// The connection ends first.
    pub async fn answer(&mut self, id: i64) -> Value {
        loop {
            let message = self.read().await;
            let message =
                message.unwrap_or_else(|| panic!("the end came before the answer to {id}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Makes this connection the owner's, with a session.
    pub async fn attach(&mut self, key_file: &Path, session: &str) {
        let key = std::fs::read_to_string(key_file).expect("the owner key is there");
        self.call("supervisor/hello", json!({ "ownerKey": key.trim() }))
            .await;
        let opened = self
            .call("session/open", json!({ "id": session, "commands": 1000 }))
            .await;
        assert!(opened["result"]["session"].is_object(), "{opened}");
    }

    /// The next message, in either framing; `None` at the end of the connection.
    ///
    /// # Panics
    /// Nothing comes, or it is no message.
    pub async fn read(&mut self) -> Option<Value> {
        loop {
            if let Some(body) = self.cut() {
                return Some(serde_json::from_slice(&body).expect("a message is JSON"));
            }
            let reading = self.socket.read_buf(&mut self.buffer);
            match within(PATIENCE, "a message", reading).await {
                Ok(0) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }

    /// Reads to the end of the connection and returns every message.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(message) = self.read().await {
            all.push(message);
        }
        all
    }

    /// Ends our side of the connection; answers may still come.
    pub async fn say_no_more(&mut self) {
        let _ = self.socket.shutdown().await;
    }

    fn cut(&mut self) -> Option<Vec<u8>> {
        if self.buffer.first() == Some(&b'{') {
            let end = self.buffer.iter().position(|b| *b == b'\n')?;
            return Some(self.buffer.drain(..=end).collect());
        }
        let gap = self.buffer.windows(4).position(|w| w == b"\r\n\r\n")?;
        let header = String::from_utf8_lossy(&self.buffer[..gap]).to_ascii_lowercase();
        let length = header.split("content-length:").nth(1).expect("a length");
        let length: usize = length
            .split("\r\n")
            .next()?
            .trim()
            .parse()
            .expect("a number");
        if self.buffer.len() < gap + 4 + length {
            return None;
        }
        let frame: Vec<u8> = self.buffer.drain(..gap + 4 + length).collect();
        Some(frame[gap + 4..].to_vec())
    }
}

/// A request.
pub fn request(id: i64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// A message in LSP framing.
pub fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}
