//! Programs of others that the test command has put into the target folder, pinned: what cannot be had is skipped, loudly.

use std::path::{Path, PathBuf};

use crate::skip;

/// A file of such a program, below the folder of all of them; `None`, and that is said, where it is not there.
pub fn tool(path: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("OSTLER_CLIENTS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/clients"),
        PathBuf::from,
    );
    // Not resolved: a Python of its own is a link, and is one by where it stands.
    let file = folder.join(path);
    if !file.exists() {
        skip(&format!(
            "no {path} among the clients: tests/run installs them"
        ));
        return None;
    }
    std::path::absolute(file).ok()
}

/// A file of the suites that such a tool reads.
///
/// # Panics
/// It is not there.
pub fn client(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("clients")
        .join(name);
    path.canonicalize().expect("it is in the tree")
}

/// A file of `contrib`.
///
/// # Panics
/// It is not there.
pub fn contrib(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../contrib")
        .join(name);
    path.canonicalize().expect("it is in the tree")
}
