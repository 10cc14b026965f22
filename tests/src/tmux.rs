//! A person at a real terminal: a tmux server of the test's own, keys sent into it, its screen looked at.

use std::process::Command;
use std::time::Instant;

use crate::process::{self, Process};
use crate::{House, PATIENCE};

/// One terminal; its server ends with it.
pub struct Tmux {
    folder: std::path::PathBuf,
    plain: Vec<(String, String)>,
}

impl House {
    /// A terminal of this size in which a shell waits for lines; `ostler` is a command there.
    ///
    /// # Panics
    /// tmux cannot be started.
    pub fn tmux(&self, name: &str, cols: u16, rows: u16) -> Tmux {
        let folder = self.file(name);
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        let own = crate::ostler()
            .parent()
            .expect("a program lies in a folder");
        let text = |value: Option<&std::ffi::OsStr>| {
            value.unwrap_or_default().to_string_lossy().into_owned()
        };
        let plain = self.ostler(&[]);
        let mut plain: Vec<(String, String)> = plain
            .get_envs()
            .map(|(key, value)| (key.to_string_lossy().into_owned(), text(value)))
            .filter(|(key, _)| key != "PATH")
            .collect();
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", own.display());
        plain.push(("PATH".into(), path));
        // A prompt in the environment is not taken by every shell.
        let start = folder.join("env");
        std::fs::write(&start, "PS1='> '\n").expect("a file can be made");
        plain.push(("ENV".into(), start.display().to_string()));
        plain.push(("LC_ALL".into(), "C.UTF-8".into()));
        plain.push(("TMUX_TMPDIR".into(), folder.display().to_string()));
        let tmux = Tmux { folder, plain };
        let size = [cols.to_string(), rows.to_string()];
        tmux.run(&["new-session", "-d", "-x", &size[0], "-y", &size[1], "sh"]);
        tmux.shows(">");
        tmux
    }
}

impl Tmux {
    /// Types a line.
    pub fn line(&self, text: &str) {
        self.run(&["send-keys", "-l", text]);
        self.run(&["send-keys", "Enter"]);
    }

    /// Presses keys by tmux's names.
    pub fn keys(&self, keys: &[&str]) {
        self.run(&[&["send-keys"], keys].concat());
    }

    /// What stands on the screen.
    pub fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// What stands on the screen and above it.
    pub fn history(&self) -> String {
        self.run(&["capture-pane", "-p", "-S", "-1000"])
    }

    /// Gives it another size.
    pub fn resize(&self, cols: u16, rows: u16) {
        let size = [cols.to_string(), rows.to_string()];
        self.run(&["resize-window", "-x", &size[0], "-y", &size[1]]);
    }

    /// Looks until the screen shows this, and returns it. Each look is a whole program, so that it does not spin.
    ///
    /// # Panics
    /// It does not come.
    pub fn shows(&self, text: &str) -> String {
        self.until(text, |screen| screen.contains(text))
    }

    /// Looks until the screen is as it should be.
    ///
    /// # Panics
    /// It does not become so.
    pub fn until(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let screen = self.screen();
            if is(&screen) {
                return screen;
            }
            assert!(
                Instant::now() < until,
                "{what:?} did not come:\n{}",
                self.history()
            );
        }
    }

    fn run(&self, args: &[&str]) -> String {
        let done = Command::new("tmux")
            .args(["-L", "test", "-f", "/dev/null"])
            .args(args)
            .env_clear()
            .envs(self.plain.iter().map(|(k, v)| (k, v)))
            .current_dir(&self.folder)
            .output()
            .expect("tmux can be executed");
        assert!(
            done.status.success(),
            "tmux {args:?}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        let ours = self.processes();
        let _ = Command::new("tmux")
            .args(["-L", "test", "kill-server"])
            .env("TMUX_TMPDIR", &self.folder)
            .output();
        // They have the folder of the house in their environment, and nothing of that may be left behind.
        for process in ours {
            process.gone_within(PATIENCE);
        }
    }
}

impl Tmux {
    /// The server, and what runs in its terminal.
    fn processes(&self) -> Vec<Process> {
        let variable = format!("TMUX_TMPDIR={}", self.folder.display());
        let is_ours = |pid: &u32| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .split(|b| *b == 0)
                .any(|v| v == variable.as_bytes())
        };
        let ours = process::all().into_iter().filter(is_ours);
        ours.filter_map(Process::of).collect()
    }
}
