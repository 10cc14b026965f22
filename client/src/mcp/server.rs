//! The MCP side: which calls there are, and how each is begun, cancelled and answered. It owns no job.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ostler_proto::methods::{ReadNotices, SessionNotices};
use rmcp::model::{
    CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult,
    CancelledNotificationParam, ContentBlock, Implementation, ListToolsResult, MetaObject,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::answer::{Answer, Told};
use super::compact;
use super::definitions::Set;
use super::dsh;
use super::epoch;
use super::fault::Fault;
use super::front::{Call, Front};
use super::progress::{self, Watched};
use super::session::{self, Open, Sessions};
use super::status;
use super::transport::{Prepared, key};

/// How long clients may keep the list of tools.
const LIST_TTL: u64 = 86_400_000;

/// The server of one client.
pub(crate) struct Server {
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
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
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
        list.ttl_ms = Some(LIST_TTL);
        list.cache_scope = Some(CacheScope::Public);
        Ok(list)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !self.set.has(&request.name) {
            let words = format!("unknown tool: {}", request.name);
            return Err(ErrorData::invalid_params(words, None));
        }
        let id = key(&context.id);
        let watched = Watched::default();
        let most = Duration::from_millis(self.front.max_wait);
        let mut gone = self.gone.clone();
        let work = self.work(&request, &context, &watched);
        let answer = tokio::select! {
            biased;
            () = context.ct.cancelled() => Err(Fault::new("cancelled", "nobody waits for this")),
            _ = gone.wait_for(|gone| *gone) => Err(Fault::new("cancelled", "the client is gone")),
            answer = progress::beside(&context, &watched, most, work) => answer,
        };
        let (answer, open) = match answer {
            Ok((answer, open)) => (answer, Some(open)),
            Err(fault) if fault.kind == "cancelled" => {
                return Ok(CallToolResult::error(vec![ContentBlock::text(fault.text())]).into());
            }
            Err(fault) => {
                if fault.gone {
                    self.sessions.forget().await;
                }
                (Answer::error(fault.text()), None)
            }
        };
        Ok(self.told(answer, open, &id, &context).await.into())
    }

    async fn on_cancelled(
        &self,
        notification: CancelledNotificationParam,
        _context: NotificationContext<RoleServer>,
    ) {
        if let Some(id) = &notification.request_id {
            self.front.ledger.cancelled(&key(id));
        }
    }
}

impl Server {
    async fn work(
        &self,
        request: &CallToolRequestParams,
        context: &RequestContext<RoleServer>,
        watched: &Watched,
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
            Err(fault) => Ok((Answer::error(fault.text()), open)),
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
            session: open.session.clone(),
            seen: ledger.seen(),
        };
        let heard = match open.client.ask::<SessionNotices>(ask).await {
            Ok(heard) => heard.notices,
            Err(error) => {
                if session::is_gone(&error) {
                    self.sessions.forget().await;
                }
                Vec::new()
            }
        };
        if context.ct.is_cancelled() {
            return Vec::new();
        }
        ledger.hear(&heard);
        let over = answer.blocks.iter().filter(|b| b.state == "exited");
        let ended = answer.ended.iter().cloned();
        let shown = over.map(|b| b.process_id.clone()).chain(ended).collect();
        let names = self.set.names();
        ledger.take(id, shown, &heard, |notice| {
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
