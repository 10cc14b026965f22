//! A pipeline: several commands as one job, each reading what the one before it writes.
//!
//! ```text
//!   keeper --fork--> runner (this binary; leader of the job) --spawns--> stage 1 | stage 2 | stage 3
//!                        |  descriptor 3: closed when every stage has been executed, so that the keeper tells that as the exec
//!                        +--> report file: which stage is which process, how each ended  <--read-- life, job/get
//! ```
//!
//! The keeper knows jobs of one program, and is too small to learn more. What joins programs is therefore a program of the
//! job's own tree, as a shell would be, but without a language: nothing is quoted, and every end is told. It ends as
//! its last stage did. A stop, a signal, a terminal and an output limit meet it as any other tree. The report is a
//! file, so that it outlives a supervisor; it is gone with the job's processes, the record has it.

mod report;
pub(crate) mod runner;

use std::{
    fs,
    path::{Path, PathBuf},
};

use ostler_proto::{job::StageRow, start::Stage};
use serde::{Deserialize, Serialize};

pub(crate) use report::{Failure, Report};

/// What a pipeline is. It travels with the record of its job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pipeline {
    pub(crate) stages: Vec<Stage>,
    /// Where its runner reports.
    pub(crate) report: PathBuf,
}

/// How a stage ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum End {
    Code(i32),
    Signal(i32),
}

/// What became of one stage; nothing while nobody has told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StageEnd {
    pub(crate) pid: Option<u32>,
    pub(crate) path: Option<String>,
    pub(crate) end: Option<End>,
}

impl Pipeline {
    /// Where the runner of a job reports: beside the artifacts of sessions.
    pub(crate) fn report_of(artifacts: &Path, process_id: &str) -> PathBuf {
        artifacts.join(format!("{process_id}.stages"))
    }

    /// The programs that are the runner: this one as long as it lives, else the keeper's own, which the child is
    /// until its exec.
    pub(crate) fn programs() -> Vec<Vec<u8>> {
        let this = format!("/proc/{}/exe", std::process::id());
        vec![this.into_bytes(), b"/proc/self/exe".to_vec()]
    }

    /// What the runner is called with: its own words, then each stage behind the number of its arguments.
    pub(crate) fn argv(&self) -> Vec<Vec<u8>> {
        let own = ["ostler", "daemon", "pipe"].map(|word| word.as_bytes().to_vec());
        let mut argv = Vec::from(own);
        argv.push(self.report.as_os_str().as_encoded_bytes().to_vec());
        for stage in &self.stages {
            argv.push(stage.args.len().to_string().into_bytes());
            argv.extend(stage.args.iter().map(|arg| arg.clone().into_bytes()));
        }
        argv
    }

    /// What rows say of the stages.
    pub(crate) fn rows(&self, ends: &[StageEnd]) -> Vec<StageRow> {
        let unknown = StageEnd::default();
        let count = self.stages.len();
        let stages = self.stages.iter().enumerate();
        stages
            .map(|(index, stage)| {
                let told = ends.get(index).unwrap_or(&unknown);
                let (exit_code, signal) = match told.end {
                    Some(End::Code(code)) => (Some(code), None),
                    Some(End::Signal(number)) => (None, Some(crate::signal::name(number))),
                    None => (None, None),
                };
                StageRow {
                    args: stage.args.clone(),
                    resolved_path: told.path.clone(),
                    pid: told.pid,
                    exit_code,
                    signal,
                    ok: told
                        .end
                        .map(|end| is_expected(stage, end, index + 1 == count)),
                }
            })
            .collect()
    }

    /// Takes the report away, when nobody is left who could write it.
    pub(crate) fn clean(&self) {
        // There is none where the runner never ran, or the disk was full.
        let _ = fs::remove_file(&self.report);
    }
}

/// Whether a stage ended as was expected. Who still writes when the next one has read enough dies of SIGPIPE.
fn is_expected(stage: &Stage, end: End, is_last: bool) -> bool {
    match end {
        End::Code(code) if stage.ok.is_empty() => code == 0,
        End::Code(code) => stage.ok.contains(&code),
        End::Signal(number) => number == libc::SIGPIPE && !is_last,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(args: &[&str], ok: &[i32]) -> Stage {
        Stage {
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            ok: ok.to_vec(),
        }
    }

    #[test]
    fn a_stage_is_ok_by_its_own_codes_and_sigpipe_is_no_fault_of_who_writes() {
        let (plain, grep) = (stage(&["yes"], &[]), stage(&["grep", "x"], &[0, 1]));
        assert!(is_expected(&plain, End::Code(0), false));
        assert!(!is_expected(&plain, End::Code(1), false));
        assert!(is_expected(&grep, End::Code(1), false));
        assert!(is_expected(&plain, End::Signal(libc::SIGPIPE), false));
        assert!(!is_expected(&plain, End::Signal(libc::SIGPIPE), true));
        assert!(!is_expected(&plain, End::Signal(libc::SIGKILL), false));
    }

    #[test]
    fn the_runner_reads_the_stages_that_it_was_called_with() {
        let pipeline = Pipeline {
            stages: vec![stage(&["a", "", "3"], &[]), stage(&["b c"], &[])],
            report: "/r".into(),
        };
        let words: Vec<_> = pipeline.argv();
        assert_eq!(words[..4], [&b"ostler"[..], b"daemon", b"pipe", b"/r"]);
        let words = words.into_iter().skip(4);
        let words = words.map(|word| String::from_utf8(word).unwrap().into());
        let stages = runner::stages(words.collect()).unwrap();
        assert_eq!(stages, [vec!["a", "", "3"], vec!["b c"]]);
    }
}
