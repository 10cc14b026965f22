//! Where the real programs are. They lie beside the tests; nothing is built here.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

/// The puppet. Cargo builds it whenever it builds a suite.
pub fn puppet() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| beside("puppet").display().to_string())
}

/// The binary under test: `OSTLER_BIN`, else the one in the target folder.
///
/// # Panics
/// It is missing or older than its sources, which would test yesterday's program.
pub fn ostler() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match std::env::var_os("OSTLER_BIN") {
        Some(path) => path.into(),
        None => {
            let path = beside("ostler");
            assert_fresh(&path);
            path
        }
    })
}

/// Suites lie in `target/PROFILE/deps`, binaries one folder above.
fn beside(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let folder = own.parent().expect("a program lies in a folder");
    let suite = folder.ends_with("deps").then(|| folder.parent()).flatten();
    suite.unwrap_or(folder).join(name)
}

fn assert_fresh(path: &Path) {
    const ADVICE: &str = "run `cargo build --workspace --bins` first";
    let built = match std::fs::metadata(path).and_then(|m| m.modified()) {
        Ok(time) => time,
        Err(e) => panic!("{}: {e}; {ADVICE}", path.display()),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in ["proto/src", "supervisor/src", "client/src"] {
        if let Some((file, _)) = newest(&root.join(folder)).filter(|(_, time)| *time > built) {
            panic!(
                "{} is older than {}; {ADVICE}",
                path.display(),
                file.display()
            );
        }
    }
}

fn newest(folder: &Path) -> Option<(PathBuf, SystemTime)> {
    let entries = std::fs::read_dir(folder).ok()?;
    entries
        .flatten()
        .filter_map(|e| {
            if e.file_type().ok()?.is_dir() {
                return newest(&e.path());
            }
            Some((e.path(), e.metadata().ok()?.modified().ok()?))
        })
        .max_by_key(|(_, time)| *time)
}
