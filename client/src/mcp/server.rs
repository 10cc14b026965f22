//! The MCP side: which calls there are, and how each is begun, cancelled and answered. It owns no job.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ostler_proto::job::Kind;
use ostler_proto::methods::{JobStop, ReadNotices, SessionNotices, Stop};
use ostler_proto::{id, limits};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams,
    CancelledNotificationParam, ContentBlock, CreateTaskResult, CustomRequest, CustomResult,
    ErrorCode, GetTaskParams, GetTaskResult, Implementation, InitializeRequestParams,
    ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
    ServerConfig, Task, UpdateTaskParams,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::answer::{Answer, Told};
use super::compact;
use super::definitions::Set;
use super::dsh;
use super::epoch;
use super::fault::Fault;
use super::front::{Call, Front};
use super::progress::{self, Watched};
use super::run;
use super::session::{Open, Sessions};
use super::status;
use super::tasks::Tasks;
use super::transport::{Prepared, key};
use super::words;

/// The server of one client. Calls that become tasks outlive their request, and hold it too.
pub(crate) struct Server(pub(crate) Arc<Inner>);

impl std::ops::Deref for Server {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

/// What all calls share.
pub(crate) struct Inner {
    pub(crate) set: Set,
    pub(crate) tools: Arc<RawValue>,
    pub(crate) front: Arc<Front>,
    pub(crate) sessions: Sessions,
    /// Bytes of a result at most.
    pub(crate) max_result: usize,
    pub(crate) prepared: Prepared,
    /// The client is.
    pub(crate) gone: watch::Receiver<bool>,
    /// One at a time: what is heard late must not take the place of what is known by then.
    pub(crate) telling: tokio::sync::Mutex<()>,
    pub(crate) tasks: Tasks,
    /// One at a time: a task must not be taken up twice.
    pub(crate) taking_up: tokio::sync::Mutex<()>,
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let tools = ServerCapabilities::builder().enable_tools();
        let capabilities = match self.set {
            Set::Compact => tools.enable_tasks().build(),
            _ => tools.build(),
        };
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("ostler", ostler_proto::VERSION);
        info.instructions = self.set.instructions().map(str::to_owned);
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = serde_json::from_str(self.tools.get())
            .map_err(|e| ErrorData::internal_error(e.to_string(), None))?;
        let mut list = ListToolsResult::with_all_items(tools);
        list.ttl_ms = Some(limits::mcp::LIST_TTL);
        list.cache_scope = Some(CacheScope::Public);
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.set.has(&request.name) {
            let name = words::one_line(&words::cut(&request.name, 60));
            let words = format!("unknown tool: {name}");
            return Err(ErrorData::invalid_params(words, None));
        }
        let task_after = self
            .may_be_task(&request.name, &context)
            .then_some(limits::mcp::TASK_AFTER);
        let watched = Arc::new(Watched::default());
        let most = Duration::from_millis(self.front.max_wait);
        let mut gone = self.gone.clone();
        let work = {
            let (inner, watched) = (Arc::clone(&self.0), Arc::clone(&watched));
            let context = context.clone();
            let stops = request.name == "run";
            let asks = |name| {
                request
                    .arguments
                    .as_ref()
                    .is_some_and(|a| a.contains_key(name))
            };
            let is_job = stops && !asks("until") && !asks("shell");
            let goes_on = self.set.ends(&request.name);
            let begun =
                tokio::spawn(
                    async move { inner.work(&request, &context, &watched, task_after).await },
                );
            Working {
                begun: Some(begun),
                stops,
                is_job,
                goes_on,
            }
        };
        let mut work = work;
        let ended = {
            let done = progress::beside(&context, &watched, most, work.ended());
            tokio::select! {
                biased;
                () = context.ct.cancelled() => Ended::Left("nobody waits for this"),
                _ = gone.wait_for(|gone| *gone) => Ended::Left("the client is gone"),
                answer = done => Ended::Done(Box::new(answer)),
                () = tokio::time::sleep(most + Duration::from_millis(limits::mcp::SILENCE)), if task_after.is_none() => Ended::Silent,
                process = task_known(&watched), if task_after.is_some() => Ended::Task(process),
            }
        };
        match ended {
            Ended::Left(why) => {
                let words = Fault::new("cancelled", why).text();
                Ok(CallToolResult::error(vec![ContentBlock::text(words)]).into())
            }
            Ended::Silent => {
                let words =
                    Fault::silent(most + Duration::from_millis(limits::mcp::SILENCE)).text();
                Ok(CallToolResult::error(vec![ContentBlock::text(words)]).into())
            }
            Ended::Done(answer) => Ok(self.answered(*answer, &context).await.into()),
            Ended::Task(process_id) => {
                let task = self.become_task(work, &process_id, context);
                Ok(CallToolResponse::Task(CreateTaskResult::new(task)))
            }
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        self.take_up(&request.task_id, context).await;
        self.tasks.get(&request.task_id)
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.take_up(&request.task_id, context).await;
        // None of ours asks for anything.
        self.tasks.get(&request.task_id).map(drop)
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        self.take_up(&request.task_id, context.clone()).await;
        let Some(job) = self.tasks.cancel(&request.task_id)? else {
            return Ok(());
        };
        self.front.ledger.ended_by_us(&job);
        let name = context.client_info().map(|info| info.name);
        if let Ok(open) = self.sessions.open(&name.unwrap_or_default()).await {
            let stop = Stop {
                ids: vec![job],
                ..Stop::default()
            };
            // Its end is not awaited: the client asks for the task.
            tokio::spawn(async move { drop(open.client.ask::<JobStop>(stop).await) });
        }
        Ok(())
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let CustomRequest { method, params, .. } = request;
        // The library takes what it cannot read for a method that it does not know.
        match unreadable(self.set, &method, params) {
            Some(why) => Err(ErrorData::invalid_params(format!("{method}: {why}"), None)),
            None => Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, method, None)),
        }
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        if let Some(id) = &notification.request_id {
            self.front.ledger.cancelled(&key(id));
            self.forget_prepared(&key(id));
        }
    }
}

/// Why the parameters of a method that is served cannot be read.
fn unreadable(set: Set, method: &str, params: Option<serde_json::Value>) -> Option<String> {
    fn why<T: DeserializeOwned>(params: serde_json::Value) -> Option<String> {
        let read = serde_json::from_value::<T>(params);
        Some(read.map_or_else(|e| e.to_string(), |_| "params cannot be read".into()))
    }
    let has_tasks = set == Set::Compact;
    let read = match method {
        "tools/call" => why::<CallToolRequestParams>,
        "tools/list" => why::<PaginatedRequestParams>,
        "tasks/get" if has_tasks => why::<GetTaskParams>,
        "tasks/update" if has_tasks => why::<UpdateTaskParams>,
        "tasks/cancel" if has_tasks => why::<CancelTaskParams>,
        "initialize" => why::<InitializeRequestParams>,
        _ => return None,
    };
    match params {
        None | Some(serde_json::Value::Null) => Some("params are missing".into()),
        Some(params) => read(params),
    }
}

/// A call at work; it ends with whoever holds this.
struct Working {
    begun: Option<JoinHandle<Result<(Answer, Open), Fault>>>,
    /// Its job ends with the task that it becomes.
    stops: bool,
    /// It is a run to its end: all that is known of it, its job tells.
    is_job: bool,
    /// It goes on when nobody waits for it: somebody wanted an end.
    goes_on: bool,
}

impl Working {
    async fn ended(&mut self) -> Result<(Answer, Open), Fault> {
        match &mut self.begun {
            Some(begun) => begun
                .await
                .unwrap_or_else(|_| Err(Fault::new("internal", "the call broke off"))),
            None => std::future::pending().await,
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.as_ref().filter(|_| !self.goes_on) {
            begun.abort();
        }
    }
}

/// How a request ends.
enum Ended {
    Left(&'static str),
    Done(Box<Result<(Answer, Open), Fault>>),
    /// It goes on as a task, known by this job.
    Task(String),
    /// Nobody has answered for longer than any call may take.
    Silent,
}

/// The job of a call that has taken too long to be awaited.
async fn task_known(watched: &Watched) -> String {
    tokio::time::sleep(Duration::from_millis(limits::mcp::TASK_AFTER)).await;
    match watched.process() {
        Some((process_id, _)) => process_id,
        None => std::future::pending().await,
    }
}

impl Server {
    /// A client of the era of tasks that declares them on this request.
    fn may_be_task(&self, tool: &str, context: &RequestContext<RoleServer>) -> bool {
        let is_modern = context
            .protocol_version()
            .is_some_and(|v| v >= ProtocolVersion::V_2026_07_28);
        let declared = context
            .client_capabilities()
            .is_some_and(|c| c.supports_tasks());
        self.set == Set::Compact && matches!(tool, "run" | "output") && is_modern && declared
    }

    /// Goes on with the task of a front end before this one, if it is one whose job tells all that there is to know.
    async fn take_up(&self, id: &str, context: RequestContext<RoleServer>) {
        if !id::is_process_id(id) {
            return;
        }
        let _turn = self.taking_up.lock().await;
        if self.tasks.has(id) {
            return;
        }
        let name = context.client_info().map(|info| info.name);
        let Ok(open) = self.sessions.open(&name.unwrap_or_default()).await else {
            return;
        };
        let (front, process_id) = (Arc::clone(&self.front), id.to_owned());
        // One that there is not is no task.
        let (known, job) = tokio::sync::oneshot::channel();
        let begun = tokio::spawn(async move {
            let watched = Watched::default();
            let call = Call {
                front: &front,
                client: open.client.clone(),
                session: open.session.clone(),
                watched: &watched,
                max_wait: front.max_wait,
                task_after: None,
            };
            let row = call.row(&process_id).await?;
            if row.kind != Kind::Command {
                return Err(Fault::not_found(&process_id, front.names));
            }
            let _ = known.send(());
            Ok((run::go_on(&call, &row).await?, open))
        });
        let work = Working {
            begun: Some(begun),
            stops: true,
            is_job: true,
            goes_on: false,
        };
        if job.await.is_ok() {
            self.become_task(work, id, context);
        }
    }

    /// The call goes on without a request.
    fn become_task(
        &self,
        mut work: Working,
        process_id: &str,
        context: RequestContext<RoleServer>,
    ) -> Task {
        let stops = work.stops.then(|| process_id.to_owned());
        let (known, id) = tokio::sync::oneshot::channel::<String>();
        let inner = Arc::clone(&self.0);
        let begun = work.begun.take();
        let waiting = begun.as_ref().map(JoinHandle::abort_handle);
        let following = tokio::spawn(async move {
            let (Some(begun), Ok(id)) = (begun, id.await) else {
                return;
            };
            let answer = match begun.await {
                Ok(answer) => answer,
                // Taken back.
                Err(_) => return,
            };
            let key = format!("task {id}");
            let result = inner.bare(answer, &key, &context).await;
            if let Ok(serde_json::Value::Object(result)) = serde_json::to_value(result) {
                inner.tasks.finish(&id, result);
            }
        });
        let waiting = waiting.unwrap_or_else(|| following.abort_handle());
        let task = self.tasks.begin(process_id, work.is_job, waiting, stops);
        // It is there now, for whoever asks.
        let _ = known.send(task.task_id.clone());
        task
    }
}

impl Inner {
    /// The result of a call that has ended.
    async fn answered(
        &self,
        answer: Result<(Answer, Open), Fault>,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let id = key(&context.id);
        let (answer, open) = self.settled(answer).await;
        self.told(answer, open, &id, context).await
    }

    /// The same without what is told besides: nobody knows when a client fetches it.
    async fn bare(
        &self,
        answer: Result<(Answer, Open), Fault>,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        let (answer, _) = self.settled(answer).await;
        for block in answer.blocks.iter().filter(|b| b.state == "exited") {
            self.front.ledger.ended_by_us(&block.process_id);
        }
        let result = self.told(answer, None, id, context).await;
        self.forget_prepared(id);
        result
    }

    /// What was made for a result that does not go out as an answer.
    fn forget_prepared(&self, id: &str) {
        let all = self.prepared.lock();
        all.unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    async fn settled(&self, answer: Result<(Answer, Open), Fault>) -> (Answer, Option<Open>) {
        match answer {
            Ok((answer, open)) => (answer, Some(open)),
            Err(fault) => {
                let text = fault.text();
                if fault.gone {
                    self.sessions.forget(fault.moved_to).await;
                }
                (Answer::error(text), None)
            }
        }
    }

    async fn work(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        watched: &Watched,
        task_after: Option<u64>,
    ) -> Result<(Answer, Open), Fault> {
        let client = context.client_info().map(|info| info.name);
        let client = client.unwrap_or_default();
        let open = self.sessions.open(&client).await;
        let open = open.map_err(|e| Fault::of(&e, "", self.set.names()))?;
        let call = Call {
            front: &self.front,
            client: open.client.clone(),
            session: open.session.clone(),
            watched,
            max_wait: self.front.max_wait,
            task_after,
        };
        let answer = match self.set {
            Set::Compact => compact::call(&call, &request.name, request.arguments.clone()).await,
            Set::Epoch => epoch::call(&call, &request.name, request.arguments.clone()).await,
            Set::Dsh | Set::DshOld => {
                dsh::call(&call, &request.name, request.arguments.clone()).await
            }
        };
        match answer {
            Ok(answer) => Ok((answer, open)),
            Err(fault) if fault.gone => Err(fault),
            // What has happened meanwhile is told with an error too.
            Err(fault) => {
                let fault = fault.of_tool(self.set.undone(&request.name));
                Ok((Answer::error(fault.text()), open))
            }
        }
    }

    /// The result as it goes out, with what is to be told besides.
    async fn told(
        &self,
        mut answer: Answer,
        open: Option<Open>,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> CallToolResult {
        if let Some(open) = &open {
            answer.notices = self.notices(&answer, open, id, context).await;
        }
        let told = answer.fit(self.max_result);
        if !told.notices {
            self.front.ledger.leave(id);
        }
        self.result(&answer, told, id)
    }

    /// What has happened to jobs that nobody was told.
    async fn notices(
        &self,
        answer: &Answer,
        open: &Open,
        id: &str,
        context: &RequestContext<RoleServer>,
    ) -> Vec<String> {
        let _turn = self.telling.lock().await;
        let ledger = &self.front.ledger;
        let ask = ReadNotices {
            session: None,
            seen: ledger.seen(),
        };
        let heard = match open.client.ask::<SessionNotices>(ask).await {
            Ok(heard) => heard.notices,
            Err(error) => {
                let fault = Fault::of(&error, "", self.set.names());
                if fault.gone {
                    self.sessions.forget(fault.moved_to).await;
                }
                Vec::new()
            }
        };
        if context.ct.is_cancelled() {
            return Vec::new();
        }
        ledger.hear(&heard);
        let names = self.set.names();
        ledger.take(id, answer.shows(), &heard, |notice| {
            let by = notice.row.outcome_detail.as_ref();
            let by = by.and_then(|d| d.by.as_deref());
            // At the end of the house nobody has to know of each.
            let is_told = !matches!(by, Some("dispose" | "close"));
            is_told.then(|| status::notice(&notice.row, names))
        })
    }

    fn result(&self, answer: &Answer, told: Told, id: &str) -> CallToolResult {
        let content = vec![ContentBlock::text(told.text)];
        let mut result = match told.json {
            Some(json) => {
                let mut result = CallToolResult::success(content);
                result.structured_content = serde_json::from_str(&json).ok();
                if let Ok(raw) = RawValue::from_string(json) {
                    let all = self.prepared.lock();
                    all.unwrap_or_else(PoisonError::into_inner)
                        .insert(id.to_owned(), raw);
                }
                result
            }
            None => CallToolResult::error(content),
        };
        let ids: BTreeMap<&str, &str> = answer
            .blocks
            .iter()
            .filter(|b| !b.process_id.is_empty())
            .map(|b| (b.id.as_str(), b.process_id.as_str()))
            .collect();
        let mut meta = MetaObject::default();
        if !ids.is_empty()
            && let Ok(ids) = serde_json::to_value(ids)
        {
            meta.insert("ostler/processIds".into(), ids);
        }
        if answer.untrusted {
            meta.insert("ostler/untrusted".into(), true.into());
        }
        result.meta = Some(meta).filter(|meta| !meta.is_empty());
        result
    }
}
