//! `terminal/*` of the Agent Client Protocol, version 1. A terminal is an ordinary job of a session; here is what that
//! protocol says differently: a command that is a line, text with a limit, an end that is a code or a signal.

use std::{os::unix::fs::PermissionsExt, path::Path, sync::Arc, time::Duration};

use ostler_proto::{
    acp::{
        CreateTerminal, CreatedTerminal, Done, EnvVariable, ExitStatus, TerminalTarget,
        TerminalText,
    },
    job::{SpawnError, State},
    limits,
    methods::{
        Method, OutputPolicy, Start, Stdin, Target, TerminalCreate, TerminalKill, TerminalOutput,
        TerminalRelease, TerminalWaitForExit,
    },
    refusal::{Refusal, RefusalKind},
};

use tokio::sync::Semaphore;

use super::{
    Serve,
    start::{admit_plan, begun, planned, release},
};
use crate::{
    caller::Caller,
    claim,
    house::over,
    job::{Job, Plan, Who},
    log::{Filter, Log},
};

/// How long the disks of a search path may take to say whether a command is a program's name.
const LOOKED: Duration = Duration::from_secs(1);
/// Looks that may be under way at once: one at a disk that does not answer keeps its thread for as long as that lasts.
static LOOKS: Semaphore = Semaphore::const_new(8);
/// Bytes of a log that are read in one go.
const PIECE: u64 = 64 * 1024;
/// A character has no more bytes behind its first one.
const REST: u64 = 3;
/// Variables without which programs show their output in a pager, and wait there for ever.
const NO_PAGER: [(&str, &str); 2] = [("PAGER", ""), ("GIT_PAGER", "cat")];

impl Serve for TerminalCreate {
    async fn serve(caller: Caller, params: CreateTerminal) -> Result<CreatedTerminal, Refusal> {
        let plan = plan(&caller, params).await?;
        let admission = admit_plan(&caller, &plan)?;
        let job = admission.job();
        begun(job).await;
        let failed = job.row().spawn_error;
        if let Some(error) = failed.filter(|error| error.step != "exec") {
            // Nothing that it could have printed would say it: the terminal would never have been one.
            over(job).await;
            caller.house().registry.release(job);
            return Err(refusal(&error));
        }
        Ok(CreatedTerminal {
            terminal_id: job.spec.process_id.clone(),
        })
    }
}

async fn plan(caller: &Caller, mut params: CreateTerminal) -> Result<Plan, Refusal> {
    if params.command.trim().is_empty() || params.command.contains('\0') {
        return Err(Refusal::bad("command", "must be a program or a line"));
    }
    params.session_id = session(caller, &params.session_id);
    let args = params.args.take().unwrap_or_default();
    let is_line = args.is_empty();
    let command = std::mem::take(&mut params.command);
    let limit = params.output_byte_limit;
    let mut start = start(params);
    start.args = [vec![command.clone()], args].concat();
    let mut plan = planned(caller, start.clone(), false)?;
    if is_line && !is_program(&plan).await {
        start.args = vec!["bash".into(), "-c".into(), line(&command)];
        plan = planned(caller, start.clone(), false)?;
        if !is_program(&plan).await {
            start.args[0] = "/bin/sh".into();
            plan = planned(caller, start, false)?;
        }
    }
    plan.text_limit = Some(limit.unwrap_or(u64::MAX).min(limits::TERMINAL_OUTPUT));
    Ok(plan)
}

/// A line that begins like an option is none for the shell.
fn line(command: &str) -> String {
    if command.starts_with(['-', '+']) {
        format!(" {command}")
    } else {
        command.into()
    }
}

fn start(params: CreateTerminal) -> Start {
    let meta = params.meta.unwrap_or_default();
    let options = meta.ostler.unwrap_or_default();
    let withheld = options.withheld.into_iter().map(|name| (name, None));
    let pager = NO_PAGER.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
    let given = params.env.into_iter().flatten();
    let given = given.map(|e: EnvVariable| (e.name, Some(e.value)));
    Start {
        session: Some(params.session_id),
        key: options.key,
        name: options.name,
        cwd: params.cwd,
        // Of a name that is given twice the last one stays.
        env: withheld.chain(pager).chain(given).collect(),
        env_replace: options.env_replace,
        umask: options.umask,
        limits: options.limits,
        stdin: if options.stdin {
            Stdin::Open
        } else {
            Stdin::Closed
        },
        pty: options.pty,
        timeout_ms: options.timeout_ms,
        idle_ms: options.idle_ms,
        grace_ms: options.grace_ms,
        output: OutputPolicy {
            // Agents see one text: its order must be that of the program.
            merge: options.pty.is_none(),
            ..OutputPolicy::default()
        },
        ..Start::default()
    }
}

/// Tells whether a file is there that would be executed. Where a disk does not answer that is not known, and a shell
/// takes the name of a program as well.
async fn is_program(plan: &Plan) -> bool {
    let candidates = plan.candidates.clone();
    let looked = async {
        // Never closed.
        let turn = LOOKS.acquire().await.ok()?;
        let looked = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            candidates.iter().any(|c| executable(c))
        });
        looked.await.ok()
    };
    let looked = tokio::time::timeout(LOOKED, looked).await;
    looked.ok().flatten().unwrap_or(false)
}

fn executable(path: &str) -> bool {
    Path::new(path)
        .metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Why there is no terminal.
fn refusal(error: &SpawnError) -> Refusal {
    let what = error.path.as_deref().unwrap_or(&error.step);
    let words = format!("{what}: {}", error.message);
    let refusal = match error.step.as_str() {
        "cwd" => Refusal::bad("cwd", format!("cannot be entered: {words}")),
        _ => Refusal::new(RefusalKind::Internal, words),
    };
    match &error.hint {
        Some(hint) => refusal.hint(hint),
        None => refusal,
    }
}

/// What a shell would print in place of a program that it could not execute.
fn complaint(error: &SpawnError) -> String {
    let what = error.path.as_deref().unwrap_or(&error.field);
    let why = match error.shell_code() {
        127 if !what.contains('/') => "command not found",
        _ => &error.message,
    };
    format!("{what}: {why}\n")
}

/// A session by the id that an agent was told. Nobody can tell it of another one, so it stays good when the session is
/// renamed.
fn session(caller: &Caller, asked: &str) -> String {
    let moved = caller
        .house()
        .registry
        .key_of(Some(asked), &caller.access())
        .err();
    let to = moved.and_then(|r| {
        let renamed = r.kind == RefusalKind::Moved && r.data.get("renamed") == Some(&true.into());
        let to = r.data.get("to").filter(|_| renamed)?.as_str();
        to.map(str::to_owned)
    });
    to.unwrap_or_else(|| asked.to_owned())
}

/// A terminal by the id that was answered, in the session in which it was made. A foreign one is answered like one that
/// never was.
fn find(caller: &Caller, target: &TerminalTarget) -> Result<Arc<Job>, Refusal> {
    let (registry, access) = (&caller.house().registry, caller.access());
    let session = session(caller, &target.session_id);
    let key = registry.key_of(Some(&session), &access)?;
    let unknown = || {
        let words = format!(
            "no terminal {} in session {}",
            target.terminal_id, target.session_id
        );
        Refusal::new(RefusalKind::NotFound, words)
    };
    let job = match registry.find(None, &target.terminal_id, &access) {
        Ok(job) => job,
        Err(refusal) if refusal.kind == RefusalKind::Gone => return Err(refusal),
        Err(_) => return Err(unknown()),
    };
    let is_it = job.spec.process_id == target.terminal_id && job.seat().key == key;
    is_it.then_some(job).ok_or_else(unknown)
}

impl Serve for TerminalOutput {
    async fn serve(caller: Caller, params: TerminalTarget) -> Result<TerminalText, Refusal> {
        let job = find(&caller, &params)?;
        job.saw_reader();
        // The end first: what is read afterwards holds at least the output up to it.
        let row = job.row();
        let limit = job.spec.text_limit.unwrap_or(limits::TERMINAL_OUTPUT);
        let (output, truncated) = match &row.spawn_error {
            Some(error) => shorten(complaint(error), limit),
            None => newest(&job.log, limit, row.is_over()).await,
        };
        if row.is_over() {
            claim::told(&caller, &job);
        }
        Ok(TerminalText {
            output,
            truncated,
            exit_status: ExitStatus::of(&row),
        })
    }
}

/// The newest text of a log, `limit` bytes at most as it is handed back, and whether something before it is missing.
/// `over`: a character that is not whole will not be any more.
async fn newest(log: &Log, limit: u64, over: bool) -> (String, bool) {
    let end = log.end();
    // Decoding makes nothing shorter: of so many bytes the newest `limit` of the text come.
    let from = end.saturating_sub(limit + REST);
    let (mut at, mut bytes, mut dropped) = (from, Vec::new(), from > 0);
    while at < end {
        let slice = log.read(at, (end - at).min(PIECE) as usize, Filter::All);
        if slice.lost > 0 {
            bytes.clear();
            dropped = true;
        }
        if slice.next <= at {
            break;
        }
        at = slice.next;
        bytes.extend_from_slice(&slice.bytes);
        // A long text must not hold a worker of the house.
        tokio::task::yield_now().await;
    }
    let (text, cut) = shorten(decode(&bytes, dropped, over), limit);
    (text, cut || dropped || log.lost() > 0)
}

/// Bytes as text. `inside`: the first ones may be the rest of a character; unless `over`, the last ones may be the
/// beginning of one, which is held back until the rest has come.
fn decode(bytes: &[u8], inside: bool, over: bool) -> String {
    let rests = bytes.iter().take(REST as usize);
    let skip = rests.take_while(|b| inside && **b & 0xc0 == 0x80).count();
    let bytes = &bytes[skip..];
    let held = if over { 0 } else { unfinished(bytes) };
    String::from_utf8_lossy(&bytes[..bytes.len() - held]).into_owned()
}

/// Length of the character at the end that is not whole.
fn unfinished(bytes: &[u8]) -> usize {
    let begins = |n: &usize| {
        let tail = bytes.len().checked_sub(*n).map(|at| &bytes[at..]);
        let error = tail.and_then(|tail| std::str::from_utf8(tail).err());
        error.is_some_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
    };
    (1..=REST as usize).find(begins).unwrap_or(0)
}

/// The newest `limit` bytes of a text, from the beginning of a character on, and whether that is less than all.
fn shorten(text: String, limit: u64) -> (String, bool) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if text.len() <= limit {
        return (text, false);
    }
    let from = (text.len() - limit..=text.len()).find(|at| text.is_char_boundary(*at));
    (text[from.unwrap_or(text.len())..].to_owned(), true)
}

impl Serve for TerminalWaitForExit {
    async fn serve(caller: Caller, params: TerminalTarget) -> Result<ExitStatus, Refusal> {
        let job = find(&caller, &params)?;
        let mut status = job.watch();
        // The sender lives in the job that we hold, also when it is released meanwhile.
        let _ = status.wait_for(|s| s.finished.is_some()).await;
        claim::told(&caller, &job);
        Ok(ExitStatus::of(&job.row()).unwrap_or_default())
    }
}

impl Serve for TerminalKill {
    async fn serve(caller: Caller, params: TerminalTarget) -> Result<Done, Refusal> {
        let job = find(&caller, &params)?;
        if !job.is_finished() {
            let who = Who::asked("client", Some(Self::NAME.into())).silent(caller.owns(&job));
            job.ask_stop(job.spec.grace_ms, who);
            let mut status = job.watch();
            let signalled = |s: &crate::job::Status| {
                !matches!(s.state, State::Starting | State::Running) || s.over
            };
            // The end itself is for who waits for it.
            let patience = Duration::from_millis(limits::start_answer());
            let _ = tokio::time::timeout(patience, status.wait_for(signalled)).await;
        }
        Ok(Done {})
    }
}

impl Serve for TerminalRelease {
    async fn serve(caller: Caller, params: TerminalTarget) -> Result<Done, Refusal> {
        match find(&caller, &params) {
            Ok(_) => {}
            // Releasing twice, or what never was, is success.
            Err(r) if matches!(r.kind, RefusalKind::NotFound | RefusalKind::Gone) => {
                return Ok(Done {});
            }
            Err(r) => return Err(r),
        }
        let target = Target {
            session: None,
            id: params.terminal_id,
        };
        release(caller, target, "release").await.map(|_| Done {})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_is_never_cut() {
        let euro = "€€".as_bytes();
        // The first byte is gone, the last one has not come.
        assert_eq!(decode(&euro[1..5], true, false), "");
        assert_eq!(decode(&euro[1..], true, false), "€");
        assert_eq!(decode(&euro[..5], false, false), "€");
        assert_eq!(decode(&euro[..5], false, true), "€\u{fffd}");
        assert_eq!(shorten("a€€".into(), 5), ("€".into(), true));
        assert_eq!(shorten("€".into(), 3), ("€".into(), false));
        assert_eq!(shorten("€".into(), 0), (String::new(), true));
    }

    #[test]
    fn what_is_no_text_is_replaced_wherever_it_stands() {
        assert_eq!(decode(b"a\xff", false, false), "a\u{fffd}");
        assert_eq!(decode(b"\x80\x80\x80\x80", true, false), "\u{fffd}");
        assert_eq!(decode(b"\x80", false, false), "\u{fffd}");
        assert_eq!(unfinished(b"a\xf0\x9f\x98"), 3);
        assert_eq!(unfinished(b"a\xf0\x9f\x98\x80"), 0);
        assert_eq!(unfinished(b""), 0);
    }

    #[test]
    fn a_line_is_no_option_of_its_shell() {
        assert_eq!(line("-x"), " -x");
        assert_eq!(line("ls -l"), "ls -l");
    }
}
