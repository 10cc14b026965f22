//! What may wait for a disk: it holds up who asked for it and nobody else. A network disk whose server is gone answers
//! neither a read nor a look at a name, for as long as that lasts.
//!
//! Never here: what is written to the log of a job (the spill writers of `pump`, which are counted).

use std::{io, path::Path, time::Duration};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    task,
};

/// Does it in place, while others take over whatever else this worker has to do.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    let flavor = Handle::try_current().map(|runtime| runtime.runtime_flavor());
    match flavor {
        Ok(RuntimeFlavor::MultiThread) => task::block_in_place(work),
        // A thread of its own already.
        _ => work(),
    }
}

/// Clears a folder with all that is in it. As a whole: where a link stands in its place, the link goes and what it
/// points to stays. That there is none is no error.
///
/// # Errors
/// What the disk answers; [`io::ErrorKind::TimedOut`] when that is nothing.
pub(crate) async fn clear(folder: &Path, patience_ms: u64) -> io::Result<()> {
    let path = folder.to_owned();
    let cleared = task::spawn_blocking(move || std::fs::remove_dir_all(path));
    let patience = Duration::from_millis(patience_ms);
    match tokio::time::timeout(patience, cleared).await {
        Ok(Ok(Err(error))) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(_) => Ok(()),
        Err(_) => {
            let words = format!("the disk of {} does not answer", folder.display());
            Err(io::Error::new(io::ErrorKind::TimedOut, words))
        }
    }
}
