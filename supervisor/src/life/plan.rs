//! From a request to a plan, and from a plan to what the keeper is told. Checks form only: what just trying can
//! show (program, directory, rights, size) becomes a row that ends `spawn_failed`.

use std::{
    ffi::CStr,
    os::fd::{FromRawFd, OwnedFd},
    path::Path,
};

use base64::Engine as _;
use ostler_proto::{
    address::{DIR_VARIABLE, HOUSE_VARIABLE, JOB_VARIABLE, SESSION_VARIABLE},
    id,
    job::{Kind, Size},
    limits,
    methods::{OnLimit, ResourceLimit, Start, Stdin},
    refusal::Refusal,
};

use crate::{
    clock::Moment,
    job::Plan,
    job::Spec,
    keeper::wire::{ForkRequest, Limit, Stdin as WireStdin},
    ledger::checksum,
    pipeline::Pipeline,
    program::{PLAIN_PATH, candidates},
};

/// What a terminal is called where the request says nothing: what every program knows.
const TERM: &str = "xterm-256color";

/// Checks a request.
///
/// # Errors
/// Names the field that is wrong.
pub(crate) fn plan(start: Start, bound: bool, home: &Path) -> Result<Plan, Refusal> {
    check_numbers(&start)?;
    let key_of =
        checksum(&serde_json::to_vec(&start).expect("a request that came as JSON is JSON"));
    let args = arguments(&start)?;
    check_texts(&start, &args)?;
    let cwd = start
        .cwd
        .clone()
        .unwrap_or_else(|| home.display().to_string());
    let candidates = candidates(&args[0], &cwd, search_path(&start));
    Ok(Plan {
        start,
        args,
        cwd,
        candidates,
        accepted: Moment::now(),
        bound,
        key_of,
        kind: Kind::Command,
        shell: None,
        sent_to: None,
        text_limit: None,
    })
}

fn arguments(start: &Start) -> Result<Vec<String>, Refusal> {
    if !start.stages.is_empty() {
        return first_stage(start);
    }
    match (&start.line, start.args.first()) {
        (Some(_), Some(_)) => Err(Refusal::bad("line", "and `args` exclude each other")),
        (Some(line), None) if line.trim().is_empty() => {
            Err(Refusal::bad("line", "must not be empty"))
        }
        (Some(line), None) => Ok(vec!["/bin/sh".into(), "-c".into(), line.clone()]),
        (None, Some(program)) if program.is_empty() => Err(Refusal::bad(
            "args",
            "must begin with a program, not with an empty text",
        )),
        (None, Some(_)) => Ok(start.args.clone()),
        (None, None) => Err(Refusal::bad("args", "must name a program")),
    }
}

/// Checks the stages of a pipeline; its first one is what the row shows as its arguments.
fn first_stage(start: &Start) -> Result<Vec<String>, Refusal> {
    let stages = &start.stages;
    if start.line.is_some() || !start.args.is_empty() {
        return Err(Refusal::bad(
            "stages",
            "stand in place of `args` and `line`",
        ));
    }
    if !start.ok.is_empty() {
        return Err(Refusal::bad("ok", "stands in each of `stages`"));
    }
    if stages.len() > limits::STAGES {
        let words = format!("are {}, above {}", stages.len(), limits::STAGES);
        return Err(Refusal::bad("stages", words));
    }
    for (index, stage) in stages.iter().enumerate() {
        let field = |name: &str| format!("stages[{index}].{name}");
        if stage.args.first().is_none_or(String::is_empty) {
            return Err(Refusal::bad(&field("args"), "must begin with a program"));
        }
        check_arguments(&field("args"), &stage.args)?;
        check_codes(&field("ok"), &stage.ok)?;
    }
    Ok(stages[0].args.clone())
}

fn check_arguments(field: &str, args: &[String]) -> Result<(), Refusal> {
    if args.iter().any(|a| a.contains('\0')) {
        let words = "may not contain NUL: no program can be given it";
        return Err(Refusal::bad(field, words));
    }
    Ok(())
}

fn check_codes(field: &str, codes: &[i32]) -> Result<(), Refusal> {
    let strange = codes.iter().find(|code| !(0..=255).contains(*code));
    strange.map_or(Ok(()), |code| {
        let words = format!("has {code}, which no program can return");
        Err(Refusal::bad(field, words))
    })
}

fn check_texts(start: &Start, args: &[String]) -> Result<(), Refusal> {
    check_arguments("args", args)?;
    match start.cwd.as_deref() {
        Some(cwd) if !cwd.starts_with('/') => {
            return Err(Refusal::bad(
                "cwd",
                "must be absolute: the supervisor has no directory of yours",
            ));
        }
        Some(cwd) if cwd.contains('\0') => return Err(Refusal::bad("cwd", "may not contain NUL")),
        _ => {}
    }
    for (name, value) in &start.env {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Refusal::bad(
                "env",
                format!("has the impossible name {name:?}"),
            ));
        }
        if value.as_deref().is_some_and(|v| v.contains('\0')) {
            return Err(Refusal::bad("env", format!("has a value with NUL: {name}")));
        }
    }
    if let Some(Err(why)) = start.name.as_deref().map(id::check_job_name) {
        return Err(Refusal::bad("name", why));
    }
    check_key(start.key.as_deref())?;
    let stages = start.stages.iter().flat_map(|stage| &stage.args);
    let size: usize = args.iter().chain(stages).map(String::len).sum::<usize>()
        + start
            .env
            .iter()
            .map(|(k, v)| k.len() + v.as_ref().map_or(0, String::len))
            .sum::<usize>();
    if size > limits::ARGUMENTS {
        return Err(Refusal::bad(
            "args",
            format!(
                "and environment have {size} bytes, above {}",
                limits::ARGUMENTS
            ),
        ));
    }
    Ok(())
}

fn check_numbers(start: &Start) -> Result<(), Refusal> {
    within("timeoutMs", start.timeout_ms, 1, limits::TIMEOUT_MAX)?;
    within("idleMs", start.idle_ms, 1, limits::TIMEOUT_MAX)?;
    within("graceMs", start.grace_ms, 0, limits::GRACE_MAX)?;
    within(
        "output.maxBytes",
        start.output.max_bytes,
        1,
        limits::OUTPUT_MAX,
    )?;
    if start.output.on_limit == OnLimit::Stop && start.output.max_bytes.is_none() {
        return Err(Refusal::bad("output.onLimit", "needs `output.maxBytes`"));
    }
    if let Some(size) = start.pty {
        check_size("pty", size)?;
        if !matches!(start.stdin, Stdin::Closed | Stdin::Open) {
            return Err(Refusal::bad("stdin", "is the terminal: write to it"));
        }
    }
    if start.umask.is_some_and(|u| u > 0o777) {
        return Err(Refusal::bad("umask", "must be at most 0777"));
    }
    check_codes("ok", &start.ok)?;
    for (name, limit) in &start.limits {
        resource(name).ok_or_else(|| Refusal::bad("limits", format!("knows no {name}")))?;
        if limit.soft.unwrap_or(u64::MAX) > limit.hard.unwrap_or(u64::MAX) {
            return Err(Refusal::bad(
                "limits",
                format!("has a soft {name} above the hard one"),
            ));
        }
    }
    if start.mode.is_some() {
        return Err(Refusal::bad(
            "mode",
            "is not supported by this supervisor yet",
        ));
    }
    Ok(())
}

/// Checks the window of a terminal.
///
/// # Errors
/// Names the field and the bounds.
pub(crate) fn check_size(field: &str, size: Size) -> Result<(), Refusal> {
    let most = limits::TERMINAL_SIDE;
    if (1..=most).contains(&size.rows) && (1..=most).contains(&size.cols) {
        return Ok(());
    }
    Err(Refusal::bad(
        field,
        format!("must have 1 to {most} rows and columns"),
    ))
}

/// Refuses an idempotency key that is none.
pub(crate) fn check_key(key: Option<&str>) -> Result<(), Refusal> {
    if key.is_some_and(|k| k.is_empty() || k.len() > limits::KEY) {
        let words = format!("must have 1 to {} bytes", limits::KEY);
        return Err(Refusal::bad("key", words));
    }
    Ok(())
}

/// Checks a number against its bounds.
///
/// # Errors
/// Names the field and the bounds.
pub(crate) fn within(field: &str, value: Option<u64>, low: u64, high: u64) -> Result<(), Refusal> {
    match value {
        Some(n) if n < low || n > high => {
            Err(Refusal::bad(field, format!("must be {low} to {high}")))
        }
        _ => Ok(()),
    }
}

fn search_path(start: &Start) -> &str {
    match start.env.get("PATH") {
        Some(Some(path)) => path,
        _ => PLAIN_PATH,
    }
}

/// What becomes descriptor 0: which kind, and the file if the input was given whole.
pub(crate) type Input = (WireStdin, Option<OwnedFd>);

/// Prepares the input of a request.
///
/// # Errors
/// Text for the input that is no base64, or no memory for it.
pub(crate) fn input(stdin: &Stdin) -> Result<Input, Refusal> {
    Ok(match stdin {
        Stdin::Closed => (WireStdin::Null, None),
        Stdin::Open => (WireStdin::Pipe, None),
        Stdin::Text(text) => (WireStdin::Passed, Some(sealed(text.as_bytes())?)),
        Stdin::Base64(text) => (
            WireStdin::Passed,
            Some(sealed(&decode_base64("stdin", text)?)?),
        ),
    })
}

/// What the keeper needs to make the child, and the file for descriptor 0 if there is one.
pub(crate) fn fork_request(
    start: &Start,
    spec: &Spec,
    input: Input,
    house: String,
    child: Option<String>,
) -> (ForkRequest, Option<OwnedFd>) {
    let (stdin, file) = input;
    let bytes = |list: &[String]| {
        list.iter()
            .map(|s| s.clone().into_bytes())
            .collect::<Vec<_>>()
    };
    let (programs, argv) = match &spec.pipeline {
        Some(pipeline) => (Pipeline::programs(), pipeline.argv()),
        None => {
            let argv = spec.shell.as_ref().map_or(&spec.args, |shell| &shell.argv);
            (bytes(&spec.candidates), bytes(argv))
        }
    };
    let request = ForkRequest {
        slot: spec.slot,
        programs,
        argv,
        tells_begun: spec.pipeline.is_some(),
        env: environment(start, spec, house, child),
        cwd: spec.cwd.clone().into_bytes(),
        umask: start.umask,
        limits: start
            .limits
            .iter()
            .filter_map(|(name, l)| wire_limit(name, *l))
            .collect(),
        cookie: true,
        stdin,
        pty: start.pty.map(|size| (size.rows, size.cols)),
        merge: start.output.merge,
        record: serde_json::to_vec(spec).expect("a spec is plain data with string keys"),
    };
    (request, file)
}

/// Decodes a field that holds bytes.
///
/// # Errors
/// Names the field.
pub(crate) fn decode_base64(field: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    base64::engine::general_purpose::STANDARD
        .decode(text)
        .map_err(|e| Refusal::bad(field, format!("is no base64: {e}")))
}

fn environment(start: &Start, spec: &Spec, house: String, child: Option<String>) -> Vec<Vec<u8>> {
    let mut env = std::collections::BTreeMap::new();
    if !start.env_replace {
        env.extend(LOGIN.get_or_init(login_environment).iter().cloned());
    }
    for (name, value) in &start.env {
        match value {
            Some(value) => env.insert(name.clone(), value.clone()),
            None => env.remove(name),
        };
    }
    if start.pty.is_some() {
        env.entry("TERM".into()).or_insert_with(|| TERM.into());
    }
    env.insert(JOB_VARIABLE.into(), spec.process_id.clone());
    env.insert(HOUSE_VARIABLE.into(), house);
    if let Some(child) = child {
        env.insert(SESSION_VARIABLE.into(), child);
    }
    // A job's own `ostler` must find the house that runs it.
    if let Ok(dir) = std::env::var(DIR_VARIABLE) {
        env.entry(DIR_VARIABLE.into()).or_insert(dir);
    }
    env.into_iter()
        .map(|(name, value)| format!("{name}={value}").into_bytes())
        .collect()
}

/// Read once: the password file does not change under a running house, and each look costs four system calls.
static LOGIN: std::sync::OnceLock<Vec<(String, String)>> = std::sync::OnceLock::new();

/// What a plain login would have: never the supervisor's own, which is that of whoever started it.
pub(crate) fn login_environment() -> Vec<(String, String)> {
    // SAFETY: getpwuid returns a pointer into static storage or null. Only this function calls it, and only
    // one thread of the supervisor could race here for the same, unchanging entry.
    let entry = unsafe { libc::getpwuid(libc::getuid()) };
    if entry.is_null() {
        return vec![("PATH".into(), PLAIN_PATH.into())];
    }
    // SAFETY: the entry is not null and its strings are NUL-terminated.
    let [name, home, shell] = unsafe {
        [(*entry).pw_name, (*entry).pw_dir, (*entry).pw_shell].map(|p| CStr::from_ptr(p))
    }
    .map(|s| s.to_string_lossy().into_owned());
    vec![
        ("HOME".into(), home),
        ("LOGNAME".into(), name.clone()),
        ("PATH".into(), PLAIN_PATH.into()),
        ("SHELL".into(), shell),
        ("USER".into(), name),
    ]
}

fn sealed(bytes: &[u8]) -> Result<OwnedFd, Refusal> {
    use std::io::{Seek, Write};
    // SAFETY: the name is a NUL-terminated literal.
    let fd = unsafe {
        libc::memfd_create(
            c"stdin".as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING,
        )
    };
    if fd < 0 {
        return Err(no_memory(&std::io::Error::last_os_error()));
    }
    // SAFETY: the call above returned a new descriptor that nobody else owns.
    let mut file = std::fs::File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    file.write_all(bytes)
        .and_then(|()| file.rewind())
        .map_err(|e| no_memory(&e))?;
    let seals = libc::F_SEAL_WRITE | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: fcntl on a descriptor that we own.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
        return Err(no_memory(&std::io::Error::last_os_error()));
    }
    Ok(file.into())
}

fn no_memory(error: &std::io::Error) -> Refusal {
    Refusal::new(
        ostler_proto::refusal::RefusalKind::Internal,
        format!("no memory for the input: {error}"),
    )
}

fn resource(name: &str) -> Option<u32> {
    Some(match name {
        "as" => libc::RLIMIT_AS,
        "core" => libc::RLIMIT_CORE,
        "cpu" => libc::RLIMIT_CPU,
        "data" => libc::RLIMIT_DATA,
        "fsize" => libc::RLIMIT_FSIZE,
        "memlock" => libc::RLIMIT_MEMLOCK,
        "nofile" => libc::RLIMIT_NOFILE,
        "nproc" => libc::RLIMIT_NPROC,
        "stack" => libc::RLIMIT_STACK,
        _ => return None,
    })
}

fn wire_limit(name: &str, limit: ResourceLimit) -> Option<Limit> {
    Some(Limit {
        resource: resource(name)?,
        soft: limit.soft.unwrap_or(u64::MAX),
        hard: limit.hard.unwrap_or(u64::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(start: Start) -> String {
        plan(start, false, Path::new("/")).unwrap_err().data["field"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn start(args: &[&str]) -> Start {
        Start {
            args: args.iter().map(|a| (*a).to_owned()).collect(),
            ..Start::default()
        }
    }

    #[test]
    fn an_impossible_request_names_its_field() {
        assert_eq!(refused(start(&[])), "args");
        assert_eq!(refused(start(&[""])), "args");
        assert_eq!(refused(start(&["a", "b\0c"])), "args");
        assert_eq!(
            refused(Start {
                cwd: Some("x".into()),
                ..start(&["a"])
            }),
            "cwd"
        );
        assert_eq!(
            refused(Start {
                timeout_ms: Some(0),
                ..start(&["a"])
            }),
            "timeoutMs"
        );
        assert_eq!(
            refused(Start {
                timeout_ms: Some(u64::MAX),
                ..start(&["a"])
            }),
            "timeoutMs"
        );
        assert_eq!(
            refused(Start {
                grace_ms: Some(60_001),
                ..start(&["a"])
            }),
            "graceMs"
        );
        assert_eq!(
            refused(Start {
                ok: vec![256],
                ..start(&["a"])
            }),
            "ok"
        );
        assert_eq!(
            refused(Start {
                name: Some("t1".into()),
                ..start(&["a"])
            }),
            "name"
        );
        assert_eq!(
            refused(Start {
                line: Some("x".into()),
                ..start(&["a"])
            }),
            "line"
        );
    }
}
