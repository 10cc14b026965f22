//! The Agent Client Protocol's own types, asked through a program that `tests/run` builds outside the workspace.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::skip;

/// Whoever knows what that protocol's types can read; nobody where it was not built, which is said aloud.
pub struct Oracle(Option<(Child, BufReader<ChildStdout>)>);

impl Default for Oracle {
    fn default() -> Self {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/oracle/debug/acp-oracle");
        let program = std::env::var_os("OSTLER_ORACLE").map_or(own, PathBuf::from);
        if !program.exists() {
            skip("no acp-oracle: tests/run builds it");
            return Self(None);
        }
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be executed");
        let out = child.stdout.take().expect("it was piped");
        Self(Some((child, BufReader::new(out))))
    }
}

impl Oracle {
    /// Whether a type can read this, and why not; `None` where nobody knows.
    ///
    /// # Panics
    /// It has no such type.
    pub fn verdict(&mut self, name: &str, value: &Value) -> Option<Result<(), String>> {
        let (child, out) = self.0.as_mut()?;
        let stdin = child.stdin.as_mut().expect("it was piped");
        writeln!(stdin, "{}", json!({ "type": name, "value": value })).expect("it listens");
        let mut said = String::new();
        out.read_line(&mut said).expect("it speaks");
        match said.trim_end() {
            "ok" => Some(Ok(())),
            why if why.starts_with("no type") => panic!("{why}"),
            why => Some(Err(why.to_owned())),
        }
    }

    /// A type must be able to read this.
    ///
    /// # Panics
    /// It is not.
    pub fn reads(&mut self, name: &str, value: &Value) {
        if let Some(Err(why)) = self.verdict(name, value) {
            panic!("{name}: {why}: {value}");
        }
    }
}

impl Drop for Oracle {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}
