//! From a message to an answer: the life cycle of LSP, the table of methods, one task a request.

use std::{cell::RefCell, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{FutureExt, future::BoxFuture};
use ostler_proto::{
    VERSION, acp, for_each_method, limits,
    methods::{self, Method},
    refusal::{Refusal, RefusalKind},
};
use serde::Serialize;
use serde_json::{Value, json, value::RawValue};
use tower::Service as _;
use tower_lsp::{
    ClientSocket, LanguageServer, LspService,
    jsonrpc::{Error, ErrorCode, Id, Request, Response, Result as RpcResult},
    ls_types::{InitializeParams, InitializeResult},
};

use super::greeting;
use crate::{caller::Caller, claim, methods::Serve, params};

tokio::task_local! {
    /// The result of the request that is being served, as text.
    static RESULT: RefCell<Option<Box<RawValue>>>;
}

/// What goes out: the router's answer, with the text of the result in place of its empty one.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    Routed(Response),
    Result {
        jsonrpc: &'static str,
        result: Box<RawValue>,
        id: Id,
    },
}

/// tower-lsp's view of a caller.
struct Server(Caller);

impl Server {
    async fn serve<M: Serve>(caller: Caller, params: Value) -> RpcResult<Value> {
        let refused = |r: Refusal| to_error_of(M::NAME, &r);
        let params: M::Params = params::read(params).map_err(refused)?;
        let result = M::serve(caller, params).await.map_err(refused)?;
        let text = serde_json::value::to_raw_value(&result).map_err(|_| Error::internal_error())?;
        // The router can carry a tree of values only, and building one of a thousand rows costs more than all
        // the rest: the finished text goes round it, in the cell of this request.
        RESULT.with(|cell| *cell.borrow_mut() = Some(text));
        Ok(Value::Null)
    }
}

impl LanguageServer for Server {
    async fn initialize(&self, _: InitializeParams) -> RpcResult<InitializeResult> {
        Ok(InitializeResult::default())
    }

    async fn shutdown(&self) -> RpcResult<()> {
        Ok(())
    }
}

/// ACP has numbers of its own.
fn to_error_of(method: &str, refusal: &Refusal) -> Error {
    let mut error = to_error(refusal);
    if method.starts_with(acp::FAMILY) {
        error.code = ErrorCode::from(acp::code(refusal.kind));
    }
    error
}

fn to_error(refusal: &Refusal) -> Error {
    Error {
        code: ErrorCode::from(refusal.kind.code()),
        message: refusal.message.clone().into(),
        data: Some(refusal.to_data()),
    }
}

/// What became of a message.
pub(super) enum Routed {
    /// It is dealt with; this is the answer, if it has one.
    Answered(Option<Answer>),
    /// It goes on beside the connection.
    Task(BoxFuture<'static, ()>),
    /// The client said goodbye.
    Exit,
}

/// The router of one connection.
pub(super) struct Service {
    lsp: LspService<Server>,
    caller: Caller,
    /// The client said `shutdown`: all that may follow is `exit`.
    shut: bool,
    /// Kept so that the service counts as connected; nothing is ever sent through it.
    _socket: ClientSocket,
}

impl Service {
    pub(super) fn new(caller: Caller) -> Self {
        let own = caller.clone();
        let mut builder = LspService::build(move |_| Server(own));
        macro_rules! register {
            ($method:ident) => {
                builder = builder.custom_method(
                    routed(methods::$method::NAME),
                    |server: &Server, params: Value| {
                        Server::serve::<methods::$method>(server.0.clone(), params)
                    },
                );
            };
        }
        for_each_method!(register);
        let (lsp, socket) = builder.finish();
        let mut service = Self {
            lsp,
            caller,
            shut: false,
            _socket: socket,
        };
        service.wake();
        service
    }

    /// Any method may come first: the handshake that tower-lsp wants is done here, before the first message.
    fn wake(&mut self) {
        let initialize = Request::build("initialize")
            .params(json!({ "capabilities": {} }))
            .id(0)
            .finish();
        // The handler has nothing to wait for, so one look at the future is enough.
        let _ = self.lsp.call(initialize).now_or_never();
        let _ = self
            .lsp
            .call(Request::build("initialized").params(json!({})).finish())
            .now_or_never();
    }

    /// Finds out what a message is and begins with it. `pending`: requests in flight.
    pub(super) async fn route(&mut self, body: &[u8], pending: usize) -> Routed {
        let request = match parse(body) {
            Ok(Message::Request(request)) => request,
            Ok(Message::Response(answer)) => {
                self.caller.editor().answered(&answer);
                return Routed::Answered(None);
            }
            Err(answer) => return Routed::Answered(Some(Answer::Routed(answer))),
        };
        if self.shut && request.method() != "exit" {
            let answer = request.id().map(|id| shut_down(id.clone()));
            return Routed::Answered(answer.map(Answer::Routed));
        }
        match request.method() {
            "initialize" => {
                return Routed::Answered(self.initialize(request).await.map(Answer::Routed));
            }
            "initialized" => return Routed::Answered(None),
            "window/workDoneProgress/cancel" if request.id().is_none() => {
                self.caller.editor().cancel(request.params());
                return Routed::Answered(None);
            }
            "shutdown" => {
                self.shut = true;
                let (_, id, _) = request.into_parts();
                let answer = id.map(|id| Response::from_ok(id, Value::Null));
                return Routed::Answered(answer.map(Answer::Routed));
            }
            "exit" => return Routed::Exit,
            _ => {}
        }
        if pending >= limits::pending() {
            let refusal = Refusal::limit(
                "pending",
                limits::pending() as u64,
                "too many requests of this connection are pending",
                &[],
            );
            let (_, id, _) = request.into_parts();
            let answer = id.map(|id| Response::from_error(id, to_error(&refusal)));
            return Routed::Answered(answer.map(Answer::Routed));
        }
        self.begin(request).await
    }

    async fn begin(&mut self, request: Request) -> Routed {
        let entry = methods::TABLE.iter().find(|e| e.name == request.method());
        let id = request.id().cloned();
        if let (None, Some(id)) = (entry, &id) {
            // The router's own answer would carry no kind.
            let refusal = no_method(request.method());
            let answer = Response::from_error(id.clone(), to_error(&refusal));
            return Routed::Answered(Some(Answer::Routed(answer)));
        }
        let (ordered, streams) = entry.map_or((true, false), |e| (e.ordered, is_stream(e.name)));
        let answer = claim::collect(guarded(self.lsp.call(with_params(request)), id));
        if ordered {
            // What is served in order tells no ends.
            return Routed::Answered(answer.await.0);
        }
        let caller = self.caller.clone();
        let upgrade = entry.is_some_and(|e| e.name == methods::SupervisorUpgrade::NAME);
        let house = upgrade.then(|| Arc::clone(self.caller.house()));
        Routed::Task(Box::pin(async move {
            let (Some(answer), told) = answer.await else {
                return;
            };
            let granted = matches!(answer, Answer::Result { .. });
            let outbox = caller.outbox();
            // Behind its own pages, and behind the events of what it tells: never before them.
            if streams || caller.events_told().await {
                if let Ok(place) = outbox.reserve().await {
                    // First: who has the answer must not be told once more.
                    told.settle();
                    place.send(&answer);
                }
            } else {
                told.settle();
                outbox.answer(&answer);
            }
            if let Some(house) = house.filter(|_| granted) {
                // It may go now.
                house.upgrade.note_answer();
            }
        }))
    }

    /// LSP's handshake and ACP's are both understood; each gets the shape that it knows.
    async fn initialize(&self, request: Request) -> Option<Response> {
        let (_, id, params) = request.into_parts();
        if let Some(params) = params.as_ref().filter(|p| greeting::is_editors(Some(p))) {
            let id = id?;
            return Some(match greeting::answer(&self.caller, params).await {
                Ok(result) => Response::from_ok(id, result),
                Err(refusal) => Response::from_error(id, to_error(&refusal)),
            });
        }
        let hello = json!(self.caller.house().hello(false));
        let is_acp = params
            .as_ref()
            .is_some_and(|p| p.get("protocolVersion").is_some());
        let result = if is_acp {
            // Nothing of ours may stand beside the fields of that protocol.
            json!({
                "protocolVersion": acp::VERSION,
                "agentCapabilities": {},
                "agentInfo": { "name": "ostler", "version": VERSION },
                "authMethods": [],
                "_meta": { "ostler": hello },
            })
        } else {
            hello
        };
        id.map(|id| Response::from_ok(id, result))
    }
}

/// The name under which the router has a method. What LSP names itself is taken there, by handlers that refuse what
/// editors send (`"arguments": null`) and have no words for what is wrong.
fn routed(name: &'static str) -> &'static str {
    match name {
        methods::WorkspaceExecuteCommand::NAME => "ostler/executeCommand",
        name => name,
    }
}

/// What is asked behind `shutdown`.
fn shut_down(id: Id) -> Response {
    let words = "this connection was shut down: only `exit` may follow";
    let refusal = Refusal::new(RefusalKind::InvalidRequest, words);
    Response::from_error(id, to_error(&refusal))
}

/// Names the method, and the one that was probably meant.
fn no_method(name: &str) -> Refusal {
    let refusal = Refusal::new(RefusalKind::NoMethod, format!("no method {name}"));
    let refusal = refusal.with("method", name);
    let verb = name.rsplit('/').next().unwrap_or(name);
    let near = methods::TABLE.iter().find(|e| {
        let known = e.name.rsplit('/').next();
        e.name.eq_ignore_ascii_case(name) || known.is_some_and(|k| k.eq_ignore_ascii_case(verb))
    });
    match near {
        Some(entry) => refusal.hint(format!("did you mean {}?", entry.name)),
        None => refusal,
    }
}

fn is_stream(name: &str) -> bool {
    let streams = [
        methods::JobRun::NAME,
        methods::JobTail::NAME,
        methods::JobAttach::NAME,
        methods::SessionWatch::NAME,
        // Its answer comes behind the end of its progress.
        methods::WorkspaceExecuteCommand::NAME,
    ];
    streams.contains(&name)
}

/// A panic costs its request, not its connection.
async fn guarded(
    call: impl Future<Output = Result<Option<Response>, tower_lsp::ExitedError>>,
    id: Option<Id>,
) -> Option<Answer> {
    let served = RESULT.scope(RefCell::new(None), async {
        let answer = AssertUnwindSafe(call).catch_unwind().await;
        (answer, RESULT.with(RefCell::take))
    });
    let (answer, text) = served.await;
    match answer {
        Ok(Ok(answer)) => answer.map(|answer| match text {
            Some(result) if answer.is_ok() => {
                let (id, _) = answer.into_parts();
                Answer::Result {
                    jsonrpc: "2.0",
                    result,
                    id,
                }
            }
            _ => Answer::Routed(with_kind(answer)),
        }),
        Ok(Err(_exited)) => None,
        Err(_panic) => {
            crate::log_line!("error", "a request panicked; its connection goes on");
            let refused = Response::from_error(id?, Error::internal_error());
            Some(Answer::Routed(with_kind(refused)))
        }
    }
}

/// The router's own refusals have no kind, and say less than we know.
fn with_kind(answer: Response) -> Response {
    let (id, body) = answer.into_parts();
    let body = body.map_err(|error| match error {
        Error { data: Some(_), .. } => error,
        Error { code, message, .. } => {
            let mut refusal = Refusal::from_error(code.code(), &message, None);
            match refusal.kind {
                // The only reason that is left when the message itself is a request.
                RefusalKind::InvalidRequest => {
                    refusal.message = "another request with this id is pending".into();
                }
                RefusalKind::Cancelled => refusal.message = "the request was cancelled".into(),
                RefusalKind::Internal => {
                    refusal.hint = Some("ostler daemon logs says why".into());
                }
                _ => {}
            }
            to_error(&refusal)
        }
    });
    Response::from_parts(id, body)
}

/// Absent parameters become null, which the router passes on; ACP's cancel is LSP's.
fn with_params(request: Request) -> Request {
    let (method, id, params) = request.into_parts();
    let (method, params) = match &*method {
        "$/cancel_request" => {
            let id = params.as_ref().and_then(|p| p.get("requestId")).cloned();
            ("$/cancelRequest".into(), Some(json!({ "id": id })))
        }
        methods::WorkspaceExecuteCommand::NAME => {
            let name = methods::WorkspaceExecuteCommand::NAME;
            (routed(name).into(), params)
        }
        _ => (method, params),
    };
    let mut built = Request::build(method).params(params.unwrap_or(Value::Null));
    if let Some(id) = id {
        built = built.id(id);
    }
    built.finish()
}

/// A whole message.
enum Message {
    /// A request or a notification.
    Request(Request),
    /// An answer, to something that an editor was asked or to nothing.
    Response(Value),
}

fn parse(body: &[u8]) -> Result<Message, Response> {
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(refuse(
            RefusalKind::InvalidRequest,
            "batches are not taken: send the messages one by one",
        ));
    }
    let value: Value = serde_json::from_slice(body)
        .map_err(|e| refuse(RefusalKind::Parse, &format!("the message is no JSON: {e}")))?;
    let is_response = value.get("method").is_none()
        && (value.get("result").is_some() || value.get("error").is_some());
    if is_response {
        return Ok(Message::Response(value));
    }
    if let Some(why) = no_request(&value) {
        let words = format!("the message is no request: {why}");
        let refusal = Refusal::new(RefusalKind::InvalidRequest, words);
        // Whoever gave an id that can be read gets it back.
        let id = serde_json::from_value(value["id"].clone()).unwrap_or(Id::Null);
        return Err(Response::from_error(id, to_error(&refusal)));
    }
    serde_json::from_value(value)
        .map(Message::Request)
        .map_err(|_| {
            let words = "the message is no request";
            refuse(RefusalKind::InvalidRequest, words)
        })
}

/// Why a message is none, in words of JSON.
fn no_request(value: &Value) -> Option<&'static str> {
    let Some(fields) = value.as_object() else {
        return Some("it must be an object");
    };
    let is = |name: &str, right: fn(&Value) -> bool| fields.get(name).is_none_or(right);
    if fields.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        Some("`jsonrpc` must be \"2.0\"")
    } else if !fields.get("method").is_some_and(Value::is_string) {
        Some("`method` must be a text")
    } else if !is("id", |id| id.is_string() || id.is_i64() || id.is_null()) {
        Some("`id` must be a text or a whole number")
    } else if !is("params", |p| p.is_object() || p.is_array() || p.is_null()) {
        Some("`params` must be an object")
    } else {
        None
    }
}

fn refuse(kind: RefusalKind, words: &str) -> Response {
    Response::from_error(Id::Null, to_error(&Refusal::new(kind, words)))
}

/// The last words to a client whose next message cannot be found.
pub(super) fn broken(why: &str) -> Response {
    refuse(
        RefusalKind::InvalidRequest,
        &format!("this connection ends: {why}"),
    )
}

/// The last words to a client for whose message there is no room.
pub(super) fn full() -> Response {
    let most = limits::unfinished() as u64;
    let words =
        "this connection ends: the clients together hold too much of messages that are not whole";
    let refusal = Refusal::limit("unfinished", most, words, &[])
        .hint("try again, or raise connection.unfinished in the configuration");
    Response::from_error(Id::Null, to_error(&refusal))
}
