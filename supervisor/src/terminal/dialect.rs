//! Which shell a shell is, and the line that makes it run a text.
//!
//! The text is never typed: it stands in a file that only the user can read, and one short line makes the shell take it
//! from there, evaluate it and say when it is done. So nothing of it passes the line editor or the terminal's bound of
//! a line, and its echo is known.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

/// A family of shells that are talked to alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Dialect {
    Bash,
    Zsh,
    Fish,
    /// dash, ash, ksh and whatever else calls itself `sh`.
    Posix,
    /// No shell, or one whose prompt cannot be marked.
    Plain,
}

impl Dialect {
    /// By the name of the program; a login shell's may begin with a dash.
    pub(crate) fn of(program: &str) -> Self {
        let name = program.rsplit('/').next().unwrap_or(program);
        match name.trim_start_matches('-') {
            "bash" => Self::Bash,
            "zsh" => Self::Zsh,
            "fish" => Self::Fish,
            "sh" | "dash" | "ash" | "ksh" | "ksh93" | "mksh" => Self::Posix,
            _ => Self::Plain,
        }
    }
}

/// How to talk to one shell. It travels with its record, so that a later supervisor can go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ShellSpec {
    pub(crate) dialect: Dialect,
    /// In every mark of this shell and in no other. Never in an argument or the environment.
    pub(crate) nonce: String,
    /// Its folder: start files, and the texts on their way. None where the dialect is `Plain`.
    pub(crate) dir: Option<PathBuf>,
    /// What is executed; the row shows what was asked for.
    pub(crate) argv: Vec<String>,
}

/// A text that waits for its shell.
#[derive(Debug)]
pub(crate) struct HandOver {
    file: PathBuf,
    /// What is typed, with its Enter.
    pub(crate) trigger: String,
}

impl Drop for HandOver {
    fn drop(&mut self) {
        let file = std::mem::take(&mut self.file);
        // Gone already when the whole folder went with its shell.
        let remove = move || drop(fs::remove_file(file));
        // Beside the answer: a disk may be slow.
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}

impl ShellSpec {
    /// It can be told to run a text.
    pub(crate) fn takes_lines(&self) -> bool {
        self.dir.is_some()
    }

    /// Lays a text down for the shell. `number` is in the marks around its output.
    ///
    /// # Errors
    /// What the disk answers; and that this shell takes none.
    pub(crate) fn hand_over(&self, number: u64, text: &str) -> io::Result<HandOver> {
        let Some(dir) = &self.dir else {
            return Err(io::Error::from(io::ErrorKind::Unsupported));
        };
        // A name of its own: a shell that comes late to an earlier trigger must not find this text.
        let name = format!("x{number}");
        let file = dir.join(&name);
        // The blank in front keeps it out of histories. Enter is LF: what has left the terminal raw maps no CR.
        let (content, trigger) = match self.dialect {
            Dialect::Fish => (
                text.to_owned(),
                format!(" __ost_c {name} {number};eval $__ost_t;__ost_e\n"),
            ),
            Dialect::Zsh => (
                format!("{}__ost_c\n", assigned(number, text)),
                format!(" . \"$__ost_p\"/{name};eval \"${{__ost_t-}}\";__ost_e\n"),
            ),
            Dialect::Bash | Dialect::Posix | Dialect::Plain => (
                format!("{}{{ __ost_c; }} 2>/dev/null\n", assigned(number, text)),
                format!(
                    " . \"$__ost_p\"/{name};eval \"${{__ost_t-}}\";{{ __ost_e; }} 2>/dev/null\n"
                ),
            ),
        };
        // One that has this name was never typed: its supervisor died before it had written down the number.
        if let Err(error) = fs::remove_file(&file)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        write_new(&file, content.as_bytes())?;
        Ok(HandOver { file, trigger })
    }
}

/// Words that begin what may go on in another line, and those that change the shell itself, its prompt and hooks perhaps,
/// or read its terminal.
const OTHERS: &[&str] = &[
    "!",
    ".",
    "alias",
    "autoload",
    "bind",
    "bindkey",
    "builtin",
    "case",
    "command",
    "coproc",
    "declare",
    "do",
    "done",
    "elif",
    "else",
    "emulate",
    "enable",
    "end",
    "esac",
    "eval",
    "exec",
    "export",
    "fi",
    "for",
    "foreach",
    "function",
    "if",
    "in",
    "local",
    "nocorrect",
    "noglob",
    "read",
    "readonly",
    "repeat",
    "select",
    "set",
    "setopt",
    "shopt",
    "source",
    "then",
    "time",
    "trap",
    "typeset",
    "unalias",
    "unset",
    "unsetopt",
    "until",
    "vared",
    "while",
    "zmodload",
];
/// Longest line that is typed as it is.
const PLAIN: usize = 500;

/// Programs with plain words as arguments, side by side: whole in one line, and the same text for every shell and every
/// line editor. Such a line may be typed, which is quicker.
pub(crate) fn is_plain(line: &str) -> bool {
    let word_byte = |b: u8| b.is_ascii_alphanumeric() || b"_./:,+@%-=".contains(&b);
    let bytes = |b: u8| word_byte(b) || b" ;&|".contains(&b);
    if line.len() > PLAIN || !line.bytes().all(bytes) {
        return false;
    }
    let joined = line.replace("&&", ";").replace("||", ";").replace('|', ";");
    !joined.contains('&')
        && joined.split(';').all(|command| {
            let mut words = command.split(' ').filter(|w| !w.is_empty()).peekable();
            let program = |first: &&str| !OTHERS.contains(first) && !first.contains('=');
            let whole = words.peek().is_some_and(program);
            // What begins with one is looked up by zsh.
            whole && words.all(|w| !w.starts_with('='))
        })
}

/// The status of the line before comes first, else it would be that of the assignments.
fn assigned(number: u64, text: &str) -> String {
    format!(
        "__ost_s=$? __ost_n={number} __ost_t={}\n",
        quoted(&format!("{text}\n"))
    )
}

/// One word of a POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Writes a file that nobody else can read and that was not there.
pub(crate) fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(content).inspect_err(|_| {
        // Half a text must never be evaluated.
        let _ = fs::remove_file(path);
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_known_by_the_name_of_its_program() {
        assert_eq!(Dialect::of("/usr/bin/bash"), Dialect::Bash);
        assert_eq!(Dialect::of("-zsh"), Dialect::Zsh);
        assert_eq!(Dialect::of("sh"), Dialect::Posix);
        assert_eq!(Dialect::of("python3"), Dialect::Plain);
    }

    #[test]
    fn a_plain_line_can_be_nothing_but_whole_commands() {
        for plain in [
            "true",
            "cd /tmp; ls -la",
            "make A=b -j4 && git status",
            "cat x | wc -l",
            "a || b",
        ] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "",
            " ",
            "a &",
            "a &&",
            "| a",
            "a; ; b",
            "if true",
            "a;",
            "echo \"x\"",
            "echo $A",
            "x *",
            "a\nb",
            "time ls",
            "PS1=x",
            "x; unset PS0",
            "ls =x",
            "!!",
            "a#b",
            "~",
            "a;if b",
            "é",
        ] {
            assert!(!is_plain(other), "{other}");
        }
    }

    #[test]
    fn a_text_is_one_word_whatever_it_holds() {
        assert_eq!(quoted("a'b\n$c"), "'a'\\''b\n$c'");
    }
}
