//! Names the build after what it is made of: the sources of the workspace, its dependencies, the profile.
//!
//! Two programs of one version are told apart by it, and two that were built from the same are not.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    let root = Path::new("..");
    let mut parts = Vec::new();
    for name in ["proto", "supervisor", "client"] {
        let package = root.join(name);
        files(&package.join("src"), &mut parts)?;
        parts.push(package.join("Cargo.toml"));
    }
    parts.push(root.join("Cargo.toml"));
    parts.push(root.join("Cargo.lock"));
    // A package that stands alone has no workspace around it.
    parts.retain(|path| path.exists());
    parts.sort();
    let mut hash = Hash::new();
    for path in &parts {
        println!("cargo::rerun-if-changed={}", path.display());
        hash.take(path.to_string_lossy().as_bytes());
        hash.take(&fs::read(path)?);
    }
    for folder in ["proto/src", "supervisor/src", "client/src"] {
        // For files that come or go.
        println!("cargo::rerun-if-changed={}", root.join(folder).display());
    }
    for variable in ["TARGET", "PROFILE", "OPT_LEVEL"] {
        hash.take(std::env::var(variable).unwrap_or_default().as_bytes());
    }
    println!("cargo::rustc-env=OSTLER_BUILD={:012x}", hash.0 >> 16);
    Ok(())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// FNV-1a: it tells builds apart and guards against nobody.
struct Hash(u64);

impl Hash {
    fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// The length goes in as well, so that what stands in one file is not the same in two.
    fn take(&mut self, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in length.iter().chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
