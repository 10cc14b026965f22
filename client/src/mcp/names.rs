//! How the tools of a set are called in hints. Pure.

/// Names for hints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Names {
    /// Lists jobs.
    pub(crate) list: &'static str,
    /// Reads a job; an id follows. Of any job: [`Names::read`].
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

    /// Words of the supervisor, which knows no long ids, about this job.
    pub(crate) fn words(&self, text: &str, id: &str) -> String {
        let shown = |word: &str| {
            let rest = word.strip_prefix(id).filter(|_| !id.is_empty());
            let rest = rest.filter(|rest| rest.chars().all(|c| c.is_ascii_punctuation()));
            rest.map_or_else(|| word.to_owned(), |rest| self.shown(id) + rest)
        };
        text.split(' ').map(shown).collect::<Vec<_>>().join(" ")
    }

    /// Reads this job, whatever it is.
    pub(crate) fn read(&self, id: &str) -> String {
        // With long ids a terminal is no job.
        if self.is_long && id.starts_with('s') {
            return self.wait(id);
        }
        format!("{}{}", self.read, self.shown(id))
    }

    /// Waits for the end of what runs in this shell.
    pub(crate) fn wait(&self, id: &str) -> String {
        format!("{}{}{}", self.wait.0, self.shown(id), self.wait.1)
    }

    /// Interrupts what runs in this shell.
    pub(crate) fn interrupt(&self, id: &str) -> String {
        format!("{}{}{}", self.interrupt.0, self.shown(id), self.interrupt.1)
    }
}
