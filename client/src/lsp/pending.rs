//! Requests that have no answer yet, and which of them the next supervisor may be asked as well.

use std::time::Instant;

use ostler_proto::command;
use ostler_proto::methods::{
    JobAttach, JobDetach, JobGet, JobList, JobRead, JobRelease, JobResize, JobRun, JobScreen,
    JobStart, JobStop, JobTail, JobWait, Method, SessionClose, SessionList, SessionNotices,
    SessionOpen, SessionWatch, ShellClose, ShellExec, ShellList, ShellRead, SupervisorHello,
    SupervisorInfo, WorkspaceExecuteCommand,
};
use serde_json::{Map, Value, json};

/// Those that may be carried out twice, starts aside: they have keys.
const SAFE: &[&str] = &[
    "initialize",
    JobAttach::NAME,
    JobDetach::NAME,
    JobGet::NAME,
    JobList::NAME,
    JobRead::NAME,
    JobRelease::NAME,
    JobResize::NAME,
    JobScreen::NAME,
    JobStop::NAME,
    JobTail::NAME,
    JobWait::NAME,
    SessionClose::NAME,
    SessionList::NAME,
    SessionNotices::NAME,
    SessionOpen::NAME,
    SessionWatch::NAME,
    ShellClose::NAME,
    ShellList::NAME,
    ShellRead::NAME,
    SupervisorHello::NAME,
    SupervisorInfo::NAME,
];

/// A request of the editor's.
#[derive(Debug)]
pub(super) struct Request {
    /// Text of JSON.
    pub(super) id: String,
    message: Value,
    /// The method that is meant; of a command the one that it stands for.
    method: String,
    /// Where its stream goes on: an offset, or the number of an event.
    since: Option<u64>,
    /// The stream has said that its job is there.
    started: bool,
    /// It was asked another supervisor before.
    repeated: bool,
    /// When it came: a time limit counts from then.
    since_when: Instant,
}

/// All of them, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Pending {
    requests: Vec<Request>,
}

impl Request {
    /// Reads a request; a start gets a key if it has none. Returns it with what is to be sent, if that is another text.
    pub(super) fn of(id: &str, body: &[u8]) -> Option<(Self, Option<Vec<u8>>)> {
        let mut message: Value = serde_json::from_slice(body).ok()?;
        let method = meant(&message)?;
        let keyed = takes_key(&message, &method) && add_key(&mut message, &method);
        let changed = keyed.then(|| message.to_string().into_bytes());
        let request = Self {
            id: id.to_owned(),
            message,
            method,
            since: None,
            started: false,
            repeated: false,
            since_when: Instant::now(),
        };
        Some((request, changed))
    }

    /// Whether another supervisor may be asked the same.
    pub(super) fn is_safe(&self) -> bool {
        // What takes a key and has none is wrong, and was refused or will be.
        takes_key(&self.message, &self.method) || SAFE.contains(&self.method.as_str())
    }

    /// Whether it is the request of this name.
    pub(super) fn is(&self, method: &str) -> bool {
        self.method == method
    }

    /// What the editor gave to tell its progress with.
    pub(super) fn work_token(&self) -> Option<&Value> {
        let token = &self.message["params"]["workDoneToken"];
        (!token.is_null()).then_some(token)
    }

    /// What another supervisor is asked: a stream goes on where it was, a wait has what is left of its time.
    pub(super) fn again(&mut self) -> Vec<u8> {
        self.repeated = true;
        let mut message = self.message.clone();
        if let Some(fields) = fields(&mut message) {
            if let Some(since) = self.since {
                fields.insert("since".into(), since.into());
                // They were counted when it began.
                fields.remove("lines");
            }
            let waits = self.is(JobWait::NAME) || self.is(ShellExec::NAME);
            let limit = fields.get_mut("timeoutMs").filter(|_| waits);
            if let Some(limit) = limit
                && let Some(whole) = limit.as_u64()
            {
                let gone = u64::try_from(self.since_when.elapsed().as_millis()).unwrap_or(u64::MAX);
                *limit = whole.saturating_sub(gone).max(1).into();
            }
        }
        message.to_string().into_bytes()
    }

    fn stream_token(&self) -> Option<&Value> {
        let params = &self.message["params"];
        let fields = match self.is_command() {
            true => &params["arguments"][0],
            false => params,
        };
        let token = &fields["partialResultToken"];
        (!token.is_null()).then_some(token)
    }

    fn is_command(&self) -> bool {
        self.message["method"] == WorkspaceExecuteCommand::NAME
    }
}

/// The method that a message means.
fn meant(message: &Value) -> Option<String> {
    let method = message["method"].as_str()?;
    if method != WorkspaceExecuteCommand::NAME {
        return Some(method.to_owned());
    }
    let name = message["params"]["command"].as_str()?;
    let offered = command::COMMANDS
        .iter()
        .find(|offered| offered.name == name);
    Some(offered.map_or(name, |offered| offered.method).to_owned())
}

/// The object with the fields of the method.
fn fields(message: &mut Value) -> Option<&mut Map<String, Value>> {
    let is_command = message["method"] == WorkspaceExecuteCommand::NAME;
    let params = message.get_mut("params")?;
    match is_command {
        true => params.get_mut("arguments")?.get_mut(0)?.as_object_mut(),
        false => params.as_object_mut(),
    }
}

/// Whether it can be asked twice by its key: a start, or a line in a shell whose end is waited for.
fn takes_key(message: &Value, method: &str) -> bool {
    let is_line = method == ShellExec::NAME && message["params"]["background"] != true;
    is_line || method == JobStart::NAME || method == JobRun::NAME
}

/// Gives it a key; true when it had none.
fn add_key(message: &mut Value, method: &str) -> bool {
    // A plain line, as an object.
    if message["method"] == WorkspaceExecuteCommand::NAME
        && let [Value::String(line)] = message["params"]["arguments"]
            .as_array()
            .map_or(&[][..], |a| a)
    {
        let start = json!({ "line": line });
        let fields = match method == JobRun::NAME {
            true => json!({ "start": start }),
            false => start,
        };
        message["params"]["arguments"] = json!([fields]);
    }
    let start = match method == JobRun::NAME {
        true => fields(message).and_then(|f| f.get_mut("start")?.as_object_mut()),
        false => fields(message),
    };
    // Anything else has not the form of a start, and is refused as it stands.
    let Some(start) = start else { return false };
    if start.get("key").is_some_and(|key| !key.is_null()) {
        return false;
    }
    start.insert("key".into(), ostler::fresh_key().into());
    true
}

impl Pending {
    /// A request goes out.
    pub(super) fn add(&mut self, request: Request) {
        self.requests.push(request);
    }

    /// Its answer is there.
    pub(super) fn remove(&mut self, id: &str) {
        self.requests.retain(|request| request.id != id);
    }

    /// Takes note of how far a stream is; false for what the editor has been told already.
    pub(super) fn note(&mut self, body: &[u8]) -> bool {
        let Ok(told) = serde_json::from_slice::<Value>(body) else {
            return true;
        };
        let (token, value) = (&told["params"]["token"], &told["params"]["value"]);
        let of = |request: &&mut Request| request.stream_token() == Some(token);
        let Some(request) = self.requests.iter_mut().find(of) else {
            return true;
        };
        if let Some(next) = value["page"]["next"].as_u64() {
            request.since = Some(next);
        }
        if let Some(seq) = value["event"]["seq"].as_u64() {
            request.since = Some(seq);
            // The watch goes on; it does not begin.
            return !(request.repeated && value["event"]["type"] == "watching");
        }
        if value["started"].is_object() {
            return !std::mem::replace(&mut request.started, true);
        }
        true
    }

    /// The connection broke: returns those that nobody may be asked again.
    pub(super) fn lost(&mut self) -> Vec<Request> {
        let (keep, lost) = std::mem::take(&mut self.requests)
            .into_iter()
            .partition(Request::is_safe);
        self.requests = keep;
        lost
    }

    /// All of them, to be asked again.
    pub(super) fn all(&mut self) -> impl Iterator<Item = &mut Request> {
        self.requests.iter_mut()
    }

    /// Takes all of them out.
    pub(super) fn take(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn of(method: &str, params: Value) -> (Request, Option<Value>) {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let (request, sent) = Request::of("1", body.to_string().as_bytes()).unwrap();
        (
            request,
            sent.map(|sent| serde_json::from_slice(&sent).unwrap()),
        )
    }

    fn command(name: &str, arguments: Value) -> (Request, Option<Value>) {
        of(
            WorkspaceExecuteCommand::NAME,
            json!({ "command": name, "arguments": arguments, "workDoneToken": "w" }),
        )
    }

    #[test]
    fn a_start_is_given_a_key_and_keeps_the_one_it_has() {
        let key = |sent: Option<Value>, at: &str| {
            sent.unwrap()
                .pointer(at)
                .and_then(Value::as_str)
                .map(str::len)
        };
        let (_, sent) = command("ostler.start", json!(["npm run dev"]));
        assert_eq!(
            sent.as_ref().unwrap()["params"]["arguments"][0]["line"],
            "npm run dev"
        );
        assert_eq!(key(sent, "/params/arguments/0/key"), Some(32));
        let (_, sent) = command("ostler.run", json!(["true"]));
        assert_eq!(key(sent, "/params/arguments/0/start/key"), Some(32));
        let (_, sent) = of("job/start", json!({ "args": ["true"] }));
        assert_eq!(key(sent, "/params/key"), Some(32));
        let (request, sent) = of("shell/exec", json!({ "id": "s1", "line": "make" }));
        assert_eq!(key(sent, "/params/key"), Some(32));
        assert!(request.is_safe());
        for (request, sent) in [
            command(
                "ostler.run",
                json!([{ "start": { "line": "true", "key": "k" } }]),
            ),
            of("job/start", json!({ "args": ["true"], "key": "k" })),
            // Wrong, and refused as it stands.
            command("ostler.run", json!([7])),
            of("job/run", json!({ "args": ["true"] })),
        ] {
            assert_eq!(sent, None, "{request:?}");
            assert!(request.is_safe());
        }
    }

    #[test]
    fn what_may_not_be_done_twice_is_lost_with_its_connection() {
        let mut pending = Pending::default();
        for (request, _) in [
            command("ostler.send", json!(["t1", "x"])),
            command("ostler.wait", json!(["t1"])),
            of(
                "shell/exec",
                json!({ "id": "s1", "line": "make", "background": true }),
            ),
            of("job/write", json!({ "id": "t1", "text": "x" })),
            of("supervisor/stop", json!({})),
            of("job/list", json!({})),
            command("ostler.unknown", json!([])),
        ] {
            pending.add(request);
        }
        let lost: Vec<String> = pending.lost().into_iter().map(|r| r.method).collect();
        assert_eq!(
            lost,
            [
                "job/write",
                "shell/exec",
                "job/write",
                "supervisor/stop",
                "ostler.unknown"
            ]
        );
        assert_eq!(pending.take().len(), 2);
    }

    #[test]
    fn a_wait_that_is_asked_again_has_what_is_left_of_its_time() {
        let (mut wait, _) = command("ostler.wait", json!([{ "ids": ["t1"], "timeoutMs": 5000 }]));
        wait.since_when -= Duration::from_secs(2);
        let again: Value = serde_json::from_slice(&wait.again()).unwrap();
        let left = again["params"]["arguments"][0]["timeoutMs"]
            .as_u64()
            .unwrap();
        assert!((1000..=3000).contains(&left), "{left}");
        // That of a job is the job's.
        let start = json!([{ "line": "make", "timeoutMs": 5000, "key": "k" }]);
        let (mut start, _) = command("ostler.start", start);
        start.since_when -= Duration::from_secs(2);
        let again: Value = serde_json::from_slice(&start.again()).unwrap();
        assert_eq!(again["params"]["arguments"][0]["timeoutMs"], 5000);
    }

    #[test]
    fn a_stream_is_taken_up_at_its_cursor() {
        let mut pending = Pending::default();
        pending.add(
            command(
                "ostler.tail",
                json!([{ "id": "t1", "lines": 5, "partialResultToken": "p" }]),
            )
            .0,
        );
        let told = |value: Value| {
            json!({ "method": "$/progress", "params": { "token": "p", "value": value } })
                .to_string()
                .into_bytes()
        };
        assert!(pending.note(&told(json!({ "started": {} }))));
        assert!(pending.note(&told(json!({ "page": { "next": 42 } }))));
        let again: Value = serde_json::from_slice(&pending.all().next().unwrap().again()).unwrap();
        assert_eq!(
            again["params"]["arguments"][0],
            json!({ "id": "t1", "since": 42, "partialResultToken": "p" })
        );
        // What the editor knows is not told again.
        assert!(!pending.note(&told(json!({ "started": {} }))));
        assert!(!pending.note(&told(json!({ "event": { "seq": 3, "type": "watching" } }))));
        assert!(pending.note(&told(json!({ "event": { "seq": 4, "type": "exited" } }))));
    }
}
