//! Which files the name of a program may mean. Only trying shows which of them it is; nothing is looked at here.

use std::path::Path;

/// Directories searched when the environment of a job names none.
pub(crate) const PLAIN_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";
/// Places in which a bare program name is tried at most; the keeper takes no more.
const MOST_CANDIDATES: usize = 256;

/// The files that a program name may mean, in order, all absolute: the child tries them one after another.
pub(crate) fn candidates(program: &str, cwd: &str, path: &str) -> Vec<String> {
    let absolute = |p: &str| Path::new(cwd).join(p).display().to_string();
    if program.contains('/') {
        return vec![absolute(program)];
    }
    path.split(':')
        .map(|dir| absolute(if dir.is_empty() { "." } else { dir }))
        .map(|dir| format!("{}/{program}", dir.trim_end_matches('/')))
        .take(MOST_CANDIDATES)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_name_is_tried_in_every_place_of_the_jobs_own_path() {
        assert_eq!(
            candidates("x", "/w", "/a:b::/c/"),
            ["/a/x", "/w/b/x", "/w/./x", "/c/x"]
        );
        assert_eq!(candidates("./x", "/w", "/a"), ["/w/./x"]);
        assert_eq!(candidates("/x", "/w", "/a"), ["/x"]);
    }
}
