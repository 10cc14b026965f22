//! What a test asks of a job's terminal, and a program that tells every byte that it reads.

use ostler_proto::job::{Row, Size};
use ostler_proto::methods::{JobKeys, JobScreen, Start, Written};
use ostler_proto::screen::{Keys, Look, Screen};

use crate::{Desk, PATIENCE, command, within};

/// A window that no default has.
pub const WINDOW: Size = Size {
    rows: 30,
    cols: 100,
};

/// Reads byte by byte without an echo and tells `got HEX`. Before that it writes its first argument.
const TELLS: &str = "\
import os, sys, tty
tty.setraw(0)
os.write(1, sys.argv[1].encode().decode('unicode_escape').encode('latin-1') + b'up\\r\\n')
while True:
    some = os.read(0, 65536)
    if not some or some == b'\\x04': break
    os.write(1, b'got ' + some.hex().encode() + b'\\r\\n')
";

/// A start of this program on a terminal.
pub fn on_terminal<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Start {
    Start {
        pty: Some(WINDOW),
        ..command(args)
    }
}

/// A start of a program that writes this, with the escapes of Python, and then tells what it reads.
pub fn telling(first: &str) -> Start {
    on_terminal(["python3", "-c", TELLS, first])
}

impl Desk {
    /// What a person would see.
    pub async fn screen(&self, id: &str) -> Screen {
        let look = Look {
            id: id.into(),
            ..Look::default()
        };
        self.must::<JobScreen>(look).await
    }

    /// Looks until the screen is as it should be. Each look is a whole round trip, so that it does not spin.
    ///
    /// # Panics
    /// It does not become so.
    pub async fn sees(&self, id: &str, what: &str, is: impl Fn(&Screen) -> bool) -> Screen {
        let mut last = None;
        let looking = async {
            loop {
                let screen = self.screen(id).await;
                if is(&screen) {
                    return screen;
                }
                last = Some(screen.rows.join("\n"));
            }
        };
        match tokio::time::timeout(PATIENCE, looking).await {
            Ok(screen) => screen,
            Err(_) => panic!("{id} never shows {what}: {}", last.unwrap_or_default()),
        }
    }

    /// Looks until a line of the screen holds this text.
    pub async fn shows(&self, id: &str, text: &str) -> Screen {
        let has = |screen: &Screen| screen.rows.iter().any(|row| row.contains(text));
        self.sees(id, text, has).await
    }

    /// Presses keys, which must all be taken.
    pub async fn press(&self, id: &str, keys: &[&str]) -> Written {
        let params = Keys {
            id: id.into(),
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..Keys::default()
        };
        let written = self.must::<JobKeys>(params).await;
        assert!(written.complete, "{keys:?}: {written:?}");
        written
    }

    /// Waits until a program of [`telling`] has told that it read these bytes, however they came apart.
    pub async fn has_read(&self, id: &str, bytes: &[u8]) {
        let wanted: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        let reading = async {
            loop {
                let page = self.read(id, 0).await;
                let text = page.text.unwrap_or_default();
                let told = text.lines().filter_map(|line| line.strip_prefix("got "));
                let all: String = told.collect();
                if all.ends_with(&wanted) {
                    return;
                }
                let waited = ostler_proto::methods::Read {
                    id: id.into(),
                    since: Some(page.next),
                    wait_ms: Some(500),
                    ..Default::default()
                };
                self.must::<ostler_proto::methods::JobRead>(waited).await;
            }
        };
        within(PATIENCE, &format!("{wanted} in {id}"), reading).await;
    }

    /// Starts a program of [`telling`] and waits until it reads.
    pub async fn tells(&self, first: &str) -> Row {
        let row = self.start(telling(first)).await;
        self.said(&row.id, "up$").await;
        row
    }
}
