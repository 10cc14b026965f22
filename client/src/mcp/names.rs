//! How the tools of a set are called in hints. Pure.

/// Names for hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    /// Lists jobs.
    pub(crate) list: &'static str,
    /// Reads a job; an id follows.
    pub(crate) read: &'static str,
    /// Types into a job; an id follows.
    pub(crate) input: &'static str,
    /// Waits for the end of what runs in a shell, with the id in the middle.
    wait: (&'static str, &'static str),
    /// Interrupts what runs in a shell, with the id in the middle.
    interrupt: (&'static str, &'static str),
    /// Opens a shell.
    pub(crate) open: &'static str,
    /// Gives a command a terminal.
    pub(crate) terminal: &'static str,
    /// Ids are `bash-1`, `pty-1`, `pty-send-1` and `subagent-1`.
    is_long: bool,
}

/// The tools of the set `compact`.
pub(crate) const COMPACT: Names = Names {
    list: "output without id",
    read: "output id=",
    input: "input id=",
    wait: ("output id=", " until=exit"),
    interrupt: ("input id=", " keys=C-c"),
    open: "run with shell=new",
    terminal: "Start it with tty=true.",
    is_long: false,
};

/// The tools of the set `epoch`.
pub(crate) const EPOCH: Names = Names {
    list: "task_list",
    read: "task_output id=",
    input: "shell_send id=",
    wait: ("shell_read id=", ""),
    interrupt: ("shell_send id=", " input=\\u0003"),
    open: "shell_open",
    terminal: "Use shell_open.",
    is_long: false,
};

/// The tools of the set `dsh`.
pub(crate) const DSH: Names = Names {
    list: "job_list",
    read: "job_output job_id=",
    input: "terminal_send sessionId=",
    wait: ("terminal_read sessionId=", ""),
    interrupt: ("terminal_signal sessionId=", " signal=SIGINT"),
    open: "terminal_open",
    terminal: "Use terminal_open.",
    is_long: true,
};

impl Names {
    /// An id as this set writes it.
    pub(crate) fn shown(&self, id: &str) -> String {
        let long = match id.chars().next().filter(|_| self.is_long) {
            Some('t') => "bash-",
            Some('s') => "pty-",
            Some('x') => "pty-send-",
            Some('a') => "subagent-",
            _ => return id.to_owned(),
        };
        format!("{long}{}", &id[1..])
    }

    /// Waits for the end of what runs in this shell.
    pub(crate) fn wait(&self, id: &str) -> String {
        format!("{}{id}{}", self.wait.0, self.wait.1)
    }

    /// Interrupts what runs in this shell.
    pub(crate) fn interrupt(&self, id: &str) -> String {
        format!("{}{id}{}", self.interrupt.0, self.interrupt.1)
    }
}
