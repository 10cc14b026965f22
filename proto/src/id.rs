//! Names: of sessions, of jobs, of processes.
//!
//! A short id (`t1`) is unique in its session and never used again there. A `processId` (`proc_` and a
//! ULID with fresh random bits) is unique everywhere and cannot be guessed. A pid is only metadata.

use crate::{job::Kind, limits};

/// Prefix of every process id.
pub const PROCESS_PREFIX: &str = "proc_";

/// Returns the short id of the `n`th job of this kind in its session.
pub fn short_id(kind: Kind, n: u64) -> String {
    format!("{}{n}", kind.letter())
}

/// Tells whether `text` has the form of a short id. Names may not, so that `t1` is never two things.
pub fn is_short_id(text: &str) -> bool {
    let mut rest = text.chars();
    matches!(rest.next(), Some('t' | 's' | 'a' | 'x'))
        && !rest.as_str().is_empty()
        && rest.all(|c| c.is_ascii_digit())
}

/// Tells whether `text` has the form of a process id or of a prefix of one.
pub fn is_process_id(text: &str) -> bool {
    text.strip_prefix(PROCESS_PREFIX)
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// Why a text cannot be a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadName {
    /// Nothing, or more than [`limits::NAME`] bytes.
    Length,
    /// A character outside `A-Z a-z 0-9 . _ -`.
    Character(char),
    /// `.` or `..`, which would be folders.
    Dots,
    /// It looks like an id.
    LooksLikeId,
}

impl std::fmt::Display for BadName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length => write!(f, "must have 1 to {} characters", limits::NAME),
            Self::Character(c) => write!(
                f,
                "may not contain {c:?}: letters, digits, '.', '_' and '-' only"
            ),
            Self::Dots => write!(f, "may not be only dots"),
            Self::LooksLikeId => write!(f, "may not look like an id: t, s, a or x and a number"),
        }
    }
}

/// Checks the charset that session ids, session names and job names share.
///
/// # Errors
/// Tells what is wrong with the text.
pub fn check_word(text: &str) -> Result<(), BadName> {
    if text.is_empty() || text.len() > limits::NAME {
        return Err(BadName::Length);
    }
    if let Some(c) = text
        .chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')))
    {
        return Err(BadName::Character(c));
    }
    if text.chars().all(|c| c == '.') {
        return Err(BadName::Dots);
    }
    Ok(())
}

/// Checks the name of a job: a word that does not look like an id.
///
/// # Errors
/// Tells what is wrong with the text.
pub fn check_job_name(text: &str) -> Result<(), BadName> {
    check_word(text)?;
    if is_short_id(text) || text.starts_with(PROCESS_PREFIX) {
        return Err(BadName::LooksLikeId);
    }
    Ok(())
}

/// Returns the default session of a project: folder name and hash of the real path, in the charset of ids.
///
/// The hash is FNV-1a over the bytes of the path, so that every client finds the same id without asking.
pub fn session_of_root(folder: &str, real_path: &[u8]) -> (String, String) {
    let mut name: String = folder
        .chars()
        .map(|c| {
            if check_word(&c.to_string()).is_ok() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .take(40)
        .collect();
    if name.chars().all(|c| c == '.' || c == '-') {
        name = "root".into();
    }
    let hash = real_path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3)
    });
    (
        format!("{name}-{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff)),
        name,
    )
}

/// Returns the session of an editor in a workspace, as `(id, name)`: one for each pair of the two, so that a window that is
/// loaded again finds its jobs. `editor` is what it calls itself.
pub fn session_of_editor(editor: &str, folder: &str, real_path: &[u8]) -> (String, String) {
    let words: Vec<String> = editor
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    let mut editor = words.join("-");
    editor.truncate(20);
    if editor.is_empty() {
        editor = "editor".into();
    }
    if folder.is_empty() {
        return session_of_root(&editor, real_path);
    }
    session_of_root(&format!("{editor}-{folder}"), real_path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_looks_like_an_id_is_refused() {
        assert_eq!(check_job_name("t1"), Err(BadName::LooksLikeId));
        assert_eq!(check_job_name("proc_x"), Err(BadName::LooksLikeId));
        assert_eq!(check_job_name("web"), Ok(()));
        assert_eq!(check_job_name("tail"), Ok(()));
    }

    #[test]
    fn a_hostile_session_id_is_refused() {
        for bad in ["", ".", "..", "a/b", "a\0b", "../x", &"x".repeat(65), "é"] {
            assert!(check_word(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn each_editor_has_a_session_of_its_own_in_a_workspace() {
        let of = |editor: &str, folder: &str| session_of_editor(editor, folder, b"/a/app");
        assert_eq!(of("Neovim", "app").1, "neovim-app");
        assert_eq!(of("Visual Studio Code", "app").1, "visual-studio-code-app");
        assert_ne!(of("Neovim", "app").0, of("Emacs", "app").0);
        assert_ne!(
            of("Neovim", "app").0,
            session_of_editor("Neovim", "app", b"/b/app").0
        );
        assert_eq!(of("", "").1, "editor");
        for (editor, folder) in [
            ("\u{65e5}", "\u{65e5}"),
            (&*"x".repeat(99), &*"y".repeat(99)),
            ("..", ".."),
        ] {
            let (id, name) = of(editor, folder);
            assert!(
                check_word(&id).is_ok() && check_word(&name).is_ok(),
                "{id} {name}"
            );
        }
    }

    #[test]
    fn sessions_of_two_folders_with_one_name_differ() {
        let a = session_of_root("app", b"/a/app");
        let b = session_of_root("app", b"/b/app");
        assert_eq!(a.1, b.1);
        assert_ne!(a.0, b.0);
        assert!(check_word(&session_of_root("mein projekt é", b"/x").0).is_ok());
        assert!(check_word(&session_of_root("..", b"/x").0).is_ok());
    }
}
