//! `workspace/executeCommand`: the verbs that any LSP client can ask for, each the method of its name.

use std::{pin::pin, sync::Arc};

use ostler_proto::{
    command::{self, COMMANDS, ExecuteCommand, Offered, TailCommand, Tailed},
    job::Row,
    limits,
    methods::{
        JobList, JobStart, JobStop, JobTail, JobWait, JobWrite, List, Run, Start, Stop,
        StopSummary, Tail, Wait, WorkspaceExecuteCommand, Write,
    },
    refusal::{Refusal, RefusalKind},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::{
    Serve, output,
    run::Running,
    work::{Subject, Work, ended, refused},
};
use crate::{
    caller::Caller,
    job::{Job, Who},
    params,
};

impl Serve for WorkspaceExecuteCommand {
    async fn serve(caller: Caller, params: ExecuteCommand) -> Result<Value, Refusal> {
        let offered = COMMANDS
            .iter()
            .find(|offered| offered.name == params.command)
            .ok_or_else(|| no_command(&params.command))?;
        let token = params.work_done_token.filter(|token| !token.is_null());
        let token = token.map(check_token).transpose()?;
        let given = Given {
            offered,
            arguments: params.arguments.unwrap_or_default(),
        };
        let takes_time = matches!(
            offered.name,
            command::RUN | command::TAIL | command::WAIT | command::STOP
        );
        open_again(&caller)?;
        let work = Work::new(&caller, token, takes_time);
        match offered.name {
            command::START => start(caller, given, work).await,
            command::RUN => run(caller, given, work).await,
            command::LIST => list(caller, given, work).await,
            command::TAIL => tail(caller, given, work).await,
            command::WAIT => wait(caller, given, work).await,
            command::STOP => stop(caller, given, work).await,
            _ => send(caller, given, work).await,
        }
    }
}

/// Opens the session of an editor anew, where somebody has closed or adopted the last one: an editor has no way to.
fn open_again(caller: &Caller) -> Result<(), Refusal> {
    let registry = &caller.house().registry;
    let Some(mut ask) = caller.editor().session() else {
        return Ok(());
    };
    match registry.key_of(None, &caller.access()) {
        Err(r) if matches!(r.kind, RefusalKind::SessionGone | RefusalKind::Moved) => {
            // That was the last one's.
            ask.token = None;
            caller.change_access(|access| registry.open(ask, access))?;
            Ok(())
        }
        _ => Ok(()),
    }
}

fn no_command(name: &str) -> Refusal {
    let known: Vec<&str> = COMMANDS.iter().map(|offered| offered.name).collect();
    Refusal::bad("command", format!("is none of ours: {name}"))
        .hint(format!("known: {}", known.join(", ")))
}

fn check_token(token: Value) -> Result<Value, Refusal> {
    if token.is_string() || token.is_i64() {
        return Ok(token);
    }
    Err(Refusal::bad(
        "workDoneToken",
        "must be a text or a whole number",
    ))
}

/// The arguments of a command.
struct Given {
    offered: &'static Offered,
    arguments: Vec<Value>,
}

impl Given {
    /// Reads them: one object, or texts of which `from` makes the parameters. `None` from that: there are too many or
    /// too few of them.
    fn read<P: DeserializeOwned>(
        self,
        from: impl FnOnce(&[String]) -> Option<P>,
    ) -> Result<P, Refusal> {
        if let [one @ Value::Object(_)] = self.arguments.as_slice() {
            return params::read(one.clone()).map_err(inside);
        }
        let texts = self.arguments.iter();
        let texts: Option<Vec<String>> =
            texts.map(|text| Some(text.as_str()?.to_owned())).collect();
        texts.and_then(|texts| from(&texts)).ok_or_else(|| {
            let Offered {
                name,
                method,
                texts,
                ..
            } = self.offered;
            Refusal::bad(
                "arguments",
                format!("of {name} must be {texts}, or one object with the fields of {method}"),
            )
        })
    }
}

/// The field of an object that stands in the arguments.
fn inside(refusal: Refusal) -> Refusal {
    let field = refusal.data.get("field").and_then(Value::as_str);
    match field {
        Some(field) if field != "params" => {
            let field = format!("arguments[0].{field}");
            refusal.with("field", field)
        }
        _ => refusal.with("field", "arguments[0]"),
    }
}

fn one(texts: &[String]) -> Option<&String> {
    match texts {
        [one] => Some(one),
        _ => None,
    }
}

/// A line for a shell.
fn line(texts: &[String]) -> Option<Start> {
    Some(Start {
        line: Some(one(texts)?.clone()),
        ..Start::default()
    })
}

fn answer(result: &impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(result)
        .map_err(|_| Refusal::new(RefusalKind::Internal, "the answer cannot be written"))
}

/// Ends the progress of a command that is over, and returns its answer.
async fn close<T: Serialize>(
    work: Work,
    title: &str,
    result: Result<T, Refusal>,
    words: impl FnOnce(&T) -> String,
) -> Result<Value, Refusal> {
    let message = match &result {
        Ok(done) => words(done),
        Err(refusal) => refused(refusal),
    };
    work.end(title, message).await;
    answer(&result?)
}

/// What is started, in a few words.
fn shown(start: &Start) -> String {
    let words = match (&start.name, &start.line) {
        (Some(name), _) => name.clone(),
        (None, Some(line)) => line.clone(),
        (None, None) => start.args.join(" "),
    };
    words.chars().take(limits::NAME).collect()
}

async fn start(caller: Caller, given: Given, work: Work) -> Result<Value, Refusal> {
    let mut start = given.read(line)?;
    let title = format!("start: {}", shown(&start));
    caller.editor().dress(&mut start);
    let result = JobStart::serve(caller, start).await;
    close(work, &title, result, ended).await
}

async fn run(caller: Caller, given: Given, mut work: Work) -> Result<Value, Refusal> {
    let mut run = given.read(|texts| {
        Some(Run {
            start: line(texts)?,
            ..Run::default()
        })
    })?;
    let title = format!("run: {}", shown(&run.start));
    caller.editor().dress(&mut run.start);
    let running = match Running::begin(caller, run).await {
        Ok(running) => running,
        Err(refusal) => return close(work, &title, Err::<Row, _>(refusal), ended).await,
    };
    let job = Arc::clone(running.job());
    let subject = Subject {
        title,
        job: Some(Arc::clone(&job)),
        cancellable: true,
    };
    let mut finish = pin!(running.finish());
    let result = match work.beside(&subject, finish.as_mut()).await {
        Some(result) => result,
        None => {
            let who = Who::asked("client", Some("cancelled in the editor".into())).silent(true);
            job.ask_stop(job.spec.grace_ms, who);
            finish.await
        }
    };
    close(work, &subject.title, result, |result| ended(&result.row)).await
}

async fn list(caller: Caller, given: Given, work: Work) -> Result<Value, Refusal> {
    let list = given.read(|texts| texts.is_empty().then(List::default))?;
    let result = JobList::serve(caller, list).await;
    let words = |table: &ostler_proto::methods::JobTable| format!("{} jobs", table.jobs.len());
    close(work, "list", result, words).await
}

/// The job that an id means, for what is told of it; whoever serves the request finds out what is wrong with it.
fn looked_at(caller: &Caller, session: Option<&str>, id: &str) -> Option<Arc<Job>> {
    let registry = &caller.house().registry;
    registry.find(session, id, &caller.access()).ok()
}

fn cancelled(words: String) -> Refusal {
    Refusal::new(RefusalKind::Cancelled, words)
}

async fn tail(caller: Caller, given: Given, mut work: Work) -> Result<Value, Refusal> {
    let tail = given.read(|texts| {
        Some(TailCommand {
            id: one(texts)?.clone(),
            plain: true,
            ..TailCommand::default()
        })
    })?;
    let subject = Subject {
        title: format!("tail: {}", tail.id),
        job: looked_at(&caller, tail.session.as_deref(), &tail.id),
        cancellable: true,
    };
    let id = tail.id.clone();
    let reading = async {
        match tail.partial_result_token.clone() {
            Some(token) => stream(caller, tail, token).await,
            None => output::tailed(&caller, tail).await,
        }
    };
    let result = work.beside(&subject, reading).await;
    let result =
        result.unwrap_or_else(|| Err(cancelled(format!("the tail of {id} was cancelled"))));
    close(work, &subject.title, result, |tailed| ended(&tailed.row)).await
}

async fn stream(caller: Caller, tail: TailCommand, token: Value) -> Result<Tailed, Refusal> {
    let tail = Tail {
        session: tail.session,
        id: tail.id,
        partial_result_token: token,
        since: tail.since,
        lines: tail.lines,
        follow: tail.follow,
        stream: tail.stream,
        raw: tail.raw,
        plain: tail.plain,
    };
    let end = JobTail::serve(caller, tail).await?;
    Ok(Tailed {
        page: None,
        next: end.next,
        row: end.row,
    })
}

async fn wait(caller: Caller, given: Given, mut work: Work) -> Result<Value, Refusal> {
    let wait = given.read(|texts| {
        (!texts.is_empty()).then(|| Wait {
            ids: texts.to_vec(),
            ..Wait::default()
        })
    })?;
    let names = several(&wait.ids);
    let subject = Subject {
        title: format!("wait: {names}"),
        job: match wait.ids.as_slice() {
            [one] => looked_at(&caller, wait.session.as_deref(), one),
            _ => None,
        },
        cancellable: true,
    };
    let result = work.beside(&subject, JobWait::serve(caller, wait)).await;
    let result = result.unwrap_or_else(|| {
        let words = format!("the wait for {names} was cancelled; what was waited for goes on");
        Err(cancelled(words))
    });
    let words = |waited: &ostler_proto::methods::Waited| match waited.jobs.as_slice() {
        [one] => ended(&one.row),
        many => format!("{} jobs", many.len()),
    };
    close(work, &subject.title, result, words).await
}

/// `web`, or `web and 2 more`.
fn several(ids: &[String]) -> String {
    match ids {
        [] => "nothing".into(),
        [one] => one.clone(),
        [first, more @ ..] => format!("{first} and {} more", more.len()),
    }
}

async fn stop(caller: Caller, given: Given, mut work: Work) -> Result<Value, Refusal> {
    let mut stop = given.read(|texts| {
        (!texts.is_empty()).then(|| Stop {
            ids: texts.to_vec(),
            ..Stop::default()
        })
    })?;
    // A person sits before an editor.
    stop.by.get_or_insert_with(|| "user".into());
    let subject = Subject {
        title: format!(
            "stop: {}",
            if stop.ids.is_empty() {
                "all".into()
            } else {
                several(&stop.ids)
            }
        ),
        job: None,
        cancellable: false,
    };
    let result = match work.beside(&subject, JobStop::serve(caller, stop)).await {
        Some(result) => result,
        // It cannot be cancelled.
        None => Err(cancelled("the stop goes on".into())),
    };
    let words = |summary: &StopSummary| match summary.jobs.as_slice() {
        [one] => ended(&one.row),
        many => format!("{} jobs", many.len()),
    };
    close(work, &subject.title, result, words).await
}

async fn send(caller: Caller, given: Given, work: Work) -> Result<Value, Refusal> {
    let write = given.read(|texts| match texts {
        [id, text] => Some(Write {
            id: id.clone(),
            text: Some(text.clone()),
            ..Write::default()
        }),
        _ => None,
    })?;
    let title = format!("send: {}", write.id);
    let result = JobWrite::serve(caller, write).await;
    let words = |written: &ostler_proto::methods::Written| format!("{} bytes", written.bytes);
    close(work, &title, result, words).await
}

/// What an editor is told in the answer to its `initialize`.
pub(crate) fn provider() -> Value {
    let names: Vec<&str> = COMMANDS.iter().map(|offered| offered.name).collect();
    json!({ "commands": names, "workDoneProgress": true })
}
