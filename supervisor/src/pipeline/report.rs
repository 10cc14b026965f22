//! The report of a runner: one line of JSON for each thing that happened, in the order in which it did.
//!
//! Written by the runner alone, read by anybody; a line that is not whole is none. Jobs run as the user, so that a
//! program could write into it or put something else in its place: it can deceive about its own pipeline, and nothing
//! else is built on it; what is read is bounded, and never waited for.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use ostler_proto::limits;
use serde::{Deserialize, Serialize};

use super::{End, StageEnd};

/// What happened to the stage of this index.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Line {
    /// It runs.
    Begun {
        stage: usize,
        pid: u32,
        path: String,
    },
    /// It ended.
    Ended { stage: usize, end: End },
    /// It could not be executed; what ran of the others was ended.
    Failed {
        stage: usize,
        errno: i32,
        path: String,
    },
}

/// Why a pipeline did not come to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) stage: usize,
    pub(crate) errno: i32,
    /// What was tried last.
    pub(crate) path: String,
}

/// Everything that was told so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) stages: Vec<StageEnd>,
    pub(crate) failure: Option<Failure>,
}

impl Report {
    /// Reads it. Nothing is known where there is none.
    pub(crate) fn read(file: &Path) -> Self {
        let mut text = Vec::new();
        // Of what cannot be read the beginning counts.
        let _ = open(file).and_then(|file| file.take(limits::STAGE_REPORT).read_to_end(&mut text));
        let mut report = Self::default();
        // Lossy: what is no text is no line of ours.
        for line in String::from_utf8_lossy(&text).lines() {
            if let Ok(line) = serde_json::from_str(line) {
                report.take(line);
            }
        }
        report
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Begun { stage, pid, path } => {
                if let Some(told) = self.stage(stage) {
                    (told.pid, told.path) = (Some(pid), Some(path));
                }
            }
            Line::Ended { stage, end } => {
                if let Some(told) = self.stage(stage) {
                    told.end = Some(end);
                }
            }
            Line::Failed { stage, errno, path } => {
                self.failure = Some(Failure { stage, errno, path });
            }
        }
    }

    fn stage(&mut self, index: usize) -> Option<&mut StageEnd> {
        if index >= limits::STAGES {
            return None;
        }
        if index >= self.stages.len() {
            self.stages.resize_with(index + 1, StageEnd::default);
        }
        self.stages.get_mut(index)
    }
}

/// Opens what must be a file: a pipe in its place would be waited for.
fn open(file: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let file = options.read(true).open(file)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// Where the runner writes.
pub(super) struct Writer(Option<File>);

impl Writer {
    /// Makes the file. Without one the pipeline runs all the same: then nobody knows how its stages ended.
    pub(super) fn new(file: &Path) -> Self {
        // That of the job is for what its programs make.
        // SAFETY: plain calls; this process has one thread.
        let mask = unsafe { libc::umask(0o077) };
        let made = make(file);
        // SAFETY: as above.
        unsafe { libc::umask(mask) };
        Self(made.ok())
    }

    pub(super) fn tell(&mut self, line: &Line) {
        let Some(file) = &mut self.0 else {
            return;
        };
        let text = serde_json::to_string(line).map(|text| text + "\n");
        // In one write, so that nobody reads half a line; on a full disk nobody can be told.
        let _ = text.map(|text| file.write_all(text.as_bytes()));
    }
}

fn make(file: &Path) -> io::Result<File> {
    if let Some(above) = file.parent() {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(above)?;
    }
    File::options()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_line_and_lines_of_others_are_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("above").join("report");
        let mut writer = Writer::new(&file);
        let begun = |stage| Line::Begun {
            stage,
            pid: 7,
            path: "/bin/a".into(),
        };
        let end = End::Signal(13);
        writer.tell(&begun(1));
        writer.tell(&begun(usize::MAX));
        writer.tell(&Line::Ended { stage: 1, end });
        let mut other = File::options().append(true).open(&file).unwrap();
        other
            .write_all(b"\xff nonsense\n{\"ended\":{\"sta")
            .unwrap();
        let told = StageEnd {
            pid: Some(7),
            path: Some("/bin/a".into()),
            end: Some(end),
        };
        let report = Report::read(&file);
        assert_eq!(report.stages, [StageEnd::default(), told]);
        assert_eq!(report.failure, None);
        assert_eq!(Report::read(dir.path()), Report::default());
    }

    #[test]
    fn what_a_program_put_in_the_place_of_a_report_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let name = std::ffi::CString::new(pipe.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a valid C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        assert_eq!(Report::read(&pipe), Report::default());
        assert_eq!(Report::read(Path::new("/dev/zero")), Report::default());
        let link = dir.path().join("link");
        let file = dir.path().join("file");
        let line = r#"{"ended":{"stage":0,"end":{"code":1}}}"#;
        fs::write(&file, format!("{line}\n")).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(Report::read(&link), Report::default());
        assert_eq!(Report::read(&file).stages.len(), 1);
        let beyond = " ".repeat(limits::STAGE_REPORT as usize) + "\n" + line;
        fs::write(&file, beyond).unwrap();
        assert_eq!(Report::read(&file), Report::default());
    }
}
