//! Why a job never ran, in words for people: which field, which path, what to do.

use ostler_proto::job::SpawnError;

use crate::{
    job::Spec,
    keeper::wire::Step,
    pipeline::{Failure, Pipeline},
};

/// Puts the keeper's answer into words.
pub(crate) fn of(spec: &Spec, step: Step, errno: i32, candidate: u32) -> SpawnError {
    let (name, field, path) = match step {
        Step::Exec | Step::Try => ("exec", "args", Some(tried(spec, errno, candidate))),
        Step::Chdir => ("cwd", "cwd", Some(spec.cwd.clone())),
        Step::Limits => ("limits", "limits", None),
        Step::Stdio | Step::Terminal => ("stdin", "stdin", None),
        Step::Descriptors => ("descriptors", "args", None),
        Step::Request | Step::Pipes | Step::Clone | Step::Unshare | Step::Died => {
            ("fork", "args", None)
        }
    };
    let program = spec.args.first().map_or("", String::as_str);
    let hint = hint(program, step, errno, path.as_deref());
    SpawnError {
        step: name.into(),
        errno,
        message: message(step, errno),
        path,
        field: field.into(),
        hint,
    }
}

/// Puts the answer of a pipeline's runner into words.
pub(crate) fn of_stage(pipeline: &Pipeline, failure: &Failure) -> SpawnError {
    let Failure { stage, errno, path } = failure;
    let args = pipeline.stages.get(*stage).map(|stage| &stage.args);
    let program = args
        .and_then(|args| args.first())
        .map_or("", String::as_str);
    let path = if *errno == libc::ENOENT && !program.contains('/') {
        program
    } else {
        path
    };
    SpawnError {
        step: "exec".into(),
        errno: *errno,
        message: message(Step::Exec, *errno),
        path: Some(path.into()),
        field: format!("stages[{stage}].args"),
        hint: hint(program, Step::Exec, *errno, Some(path)),
    }
}

/// A bare name that was found nowhere is told as it was asked; everything else is the file itself.
fn tried(spec: &Spec, errno: i32, candidate: u32) -> String {
    let asked = spec.args.first().cloned().unwrap_or_default();
    if errno == libc::ENOENT && !asked.contains('/') {
        return asked;
    }
    spec.candidates
        .get(candidate as usize)
        .cloned()
        .unwrap_or(asked)
}

fn message(step: Step, errno: i32) -> String {
    match (step, errno) {
        (Step::Died, 0) => "the child was ended before it executed anything".into(),
        (Step::Unshare, 0) => "the child did not come up in time".into(),
        _ => {
            let text = std::io::Error::from_raw_os_error(errno).to_string();
            text.split(" (os error")
                .next()
                .unwrap_or_default()
                .to_lowercase()
        }
    }
}

fn hint(program: &str, step: Step, errno: i32, path: Option<&str>) -> Option<String> {
    let exists = path.is_some_and(|p| p.contains('/') && std::path::Path::new(p).exists());
    Some(match (step, errno) {
        (Step::Exec, libc::ENOENT) if program.contains(char::is_whitespace) => {
            "a shell line needs -c".into()
        }
        (Step::Exec, libc::ENOENT) if exists => {
            "the interpreter in its first line does not exist".into()
        }
        (Step::Exec, libc::EACCES) if path.is_some_and(|p| std::path::Path::new(p).is_dir()) => {
            "it is a folder, not a program".into()
        }
        (Step::Exec, libc::EACCES) if exists => format!("chmod +x {}", path.unwrap_or_default()),
        (Step::Exec, libc::ENOEXEC) => "a script needs a first line like #!/bin/sh".into(),
        (Step::Exec, libc::E2BIG) => {
            "arguments and environment are larger than the kernel takes".into()
        }
        (Step::Chdir, libc::ENOENT) => "give an existing directory".into(),
        (Step::Descriptors, _) => {
            "stop some jobs, or raise the limit of open files and restart".into()
        }
        _ => return None,
    })
}
