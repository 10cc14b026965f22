//! One connection to the supervisor: many calls and streams at once over LSP framing.
//!
//! ```text
//!   call / stream -> queue -> writer task -> socket -> supervisor
//!   Call, pages  <- table of pending ids <- reader task <-+
//! ```
//!
//! Owned by whoever holds a clone; the socket closes when the last clone and the last pending [`Call`] are
//! gone. It never reconnects (that is [`Client`](crate::Client)) and never decides what may be repeated.
//!
//! Frames are queued without waiting, so that several requests made in one go leave in one write: a handshake,
//! the opening of a session and the first request cost one round trip. The queue needs no bound of its own:
//! it holds at most one request and one cancel for each call that the program itself keeps pending.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use ostler_proto::frame::{self, Framing};
use ostler_proto::job::{Page, Row};
use ostler_proto::methods::{JobAttach, JobRun, JobTail, Method, Progress, SessionWatch};
use ostler_proto::refusal::Refusal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::frames::Decoder;
use crate::unavailable::Unavailable;

/// Pages of one stream that may wait for the program. One page has at most 64 KiB of output. When they are not
/// taken, the whole connection stops reading: memory stays bounded and the supervisor keeps a cursor.
const PAGES: usize = 16;

/// Messages that leave in one write at most.
const TOGETHER: usize = 64 * 1024;

/// Why a call has no result.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The supervisor refused: what, why, what next.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// There is no supervisor to ask, or none could be started.
    #[error("{0}")]
    Unavailable(Arc<Unavailable>),
    /// The connection ended before the answer came; the request may or may not have been carried out.
    #[error("the connection to the supervisor broke")]
    Broken(#[source] Arc<io::Error>),
    /// The supervisor said something that this version does not understand.
    #[error("the supervisor's answer is not understood: {0}")]
    Protocol(String),
}

impl From<Unavailable> for Error {
    fn from(e: Unavailable) -> Self {
        Self::Unavailable(Arc::new(e))
    }
}

impl From<crate::endpoint::BadFolder> for Error {
    fn from(error: crate::endpoint::BadFolder) -> Self {
        Unavailable::Folder {
            error,
            starting: false,
        }
        .into()
    }
}

/// A method that streams pages before it answers.
pub trait Streaming: Method {
    /// Puts in the token of the stream and, when it is taken up again, the cursor at which it goes on.
    fn prepare(params: &mut Self::Params, token: i64, since: Option<u64>);

    /// Takes it up again in a session that was renamed since it began; false where that makes no difference.
    fn renamed(_params: &mut Self::Params, _to: &str) -> bool {
        false
    }
}

impl Streaming for JobRun {
    fn prepare(params: &mut Self::Params, token: i64, since: Option<u64>) {
        params.partial_result_token = Some(token.into());
        params.since = since.unwrap_or(params.since);
    }
}

impl Streaming for JobTail {
    fn prepare(params: &mut Self::Params, token: i64, since: Option<u64>) {
        params.partial_result_token = token.into();
        if since.is_some() {
            // They were counted when it began.
            params.lines = None;
        }
        params.since = since.or(params.since);
    }
}

impl Streaming for JobAttach {
    fn prepare(params: &mut Self::Params, token: i64, _since: Option<u64>) {
        // It begins with the whole screen each time.
        params.partial_result_token = token.into();
    }
}

impl Streaming for SessionWatch {
    fn prepare(params: &mut Self::Params, token: i64, since: Option<u64>) {
        params.partial_result_token = token.into();
        params.since = since.or(params.since);
    }

    fn renamed(params: &mut Self::Params, to: &str) -> bool {
        params.session.replace(to.to_owned()).is_some()
    }
}

/// A connection. Clones share the socket.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    out: mpsc::UnboundedSender<Vec<u8>>,
    table: Arc<Mutex<Table>>,
    next: AtomicI64,
    reader: AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The writer ends by itself when `out` is gone and what is queued is written.
        self.reader.abort();
    }
}

#[derive(Default)]
struct Table {
    waiting: HashMap<i64, Waiting>,
    broken: Option<Error>,
}

struct Waiting {
    answer: oneshot::Sender<Answer>,
    pages: Option<mpsc::Sender<Progress>>,
}

type Answer = Result<Box<RawValue>, Error>;

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    // Nothing that is done under the lock can leave the table half changed.
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<i64>,
    method: &'a str,
    params: &'a P,
}

impl Connection {
    /// Speaks over any pair of byte streams. Must be called inside a tokio runtime.
    pub fn over<R, W>(read: R, write: W) -> Self
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let table = Arc::new(Mutex::new(Table::default()));
        let (out, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_all(write, queue));
        let reader = tokio::spawn(read_all(read, Arc::clone(&table), out.downgrade()));
        Self {
            inner: Arc::new(Inner {
                out,
                table,
                next: AtomicI64::new(1),
                reader: reader.abort_handle(),
            }),
        }
    }

    /// Asks. The request is queued at once, even if the answer is never awaited; dropping the call cancels it.
    pub fn call<M: Method>(&self, params: &M::Params) -> Call<M::Result> {
        self.queue(M::NAME, self.fresh_id(), params, None)
    }

    /// Asks for a stream: its pages in order, then the receiver ends and the call has the answer.
    ///
    /// The pages must be taken or the receiver dropped: 16 that wait stop every other answer on this connection.
    pub fn stream<M: Streaming>(
        &self,
        mut params: M::Params,
        since: Option<u64>,
    ) -> (mpsc::Receiver<Progress>, Call<M::Result>) {
        let (pages, receiver) = mpsc::channel(PAGES);
        let id = self.fresh_id();
        M::prepare(&mut params, id, since);
        (receiver, self.queue(M::NAME, id, &params, Some(pages)))
    }

    /// Tells whether the socket has ended.
    pub fn is_broken(&self) -> bool {
        lock(&self.inner.table).broken.is_some()
    }

    /// Tells whether both are the same socket.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    fn fresh_id(&self) -> i64 {
        self.inner.next.fetch_add(1, Ordering::Relaxed)
    }

    fn queue<P: Serialize, R>(
        &self,
        method: &str,
        id: i64,
        params: &P,
        pages: Option<mpsc::Sender<Progress>>,
    ) -> Call<R> {
        let (answer, receiver) = oneshot::channel();
        let waiting = Waiting { answer, pages };
        if let Err((waiting, error)) = self.enter(method, id, params, waiting) {
            // The call itself holds the receiver, so that this cannot fail.
            let _ = waiting.answer.send(Err(error));
        }
        Call {
            id,
            receiver,
            connection: self.clone(),
            result: PhantomData,
        }
    }

    fn enter<P: Serialize>(
        &self,
        method: &str,
        id: i64,
        params: &P,
        waiting: Waiting,
    ) -> Result<(), (Waiting, Error)> {
        let frame = match encode(Some(id), method, params) {
            Ok(frame) => frame,
            Err(e) => return Err((waiting, Error::Protocol(e.to_string()))),
        };
        let mut table = lock(&self.inner.table);
        if let Some(error) = &table.broken {
            return Err((waiting, error.clone()));
        }
        table.waiting.insert(id, waiting);
        // When the writer is gone the reader is about to see the end, which answers everything in the table.
        let _ = self.inner.out.send(frame);
        Ok(())
    }

    fn cancel(&self, id: i64) {
        if lock(&self.inner.table).waiting.remove(&id).is_none() {
            return;
        }
        if let Ok(frame) = encode(None, "$/cancelRequest", &serde_json::json!({ "id": id })) {
            let _ = self.inner.out.send(frame);
        }
    }
}

fn encode<P: Serialize>(id: Option<i64>, method: &str, params: &P) -> serde_json::Result<Vec<u8>> {
    let body = serde_json::to_vec(&Request {
        jsonrpc: "2.0",
        id,
        method,
        params,
    })?;
    let mut frame = Vec::with_capacity(body.len() + 32);
    frame::encode(Framing::Lsp, &body, &mut frame);
    Ok(frame)
}

/// A pending request. Await it for the answer; drop it to cancel the request.
#[must_use = "dropping a call cancels it"]
pub struct Call<R> {
    id: i64,
    receiver: oneshot::Receiver<Answer>,
    connection: Connection,
    result: PhantomData<fn() -> R>,
}

impl<R: DeserializeOwned> Future for Call<R> {
    type Output = Result<R, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = match ready!(Pin::new(&mut self.receiver).poll(cx)) {
            Ok(answer) => answer,
            // The reader was torn down together with its runtime.
            Err(_) => Err(broken(io::ErrorKind::ConnectionAborted.into())),
        };
        Poll::Ready(answer.and_then(|raw| {
            serde_json::from_str(raw.get()).map_err(|e| Error::Protocol(e.to_string()))
        }))
    }
}

impl<R> Drop for Call<R> {
    fn drop(&mut self) {
        self.connection.cancel(self.id);
    }
}

fn broken(e: io::Error) -> Error {
    Error::Broken(Arc::new(e))
}

async fn write_all<W: AsyncWrite + Unpin>(
    mut socket: W,
    mut queue: mpsc::UnboundedReceiver<Vec<u8>>,
) {
    while let Some(mut frame) = queue.recv().await {
        while frame.len() < TOGETHER
            && let Ok(more) = queue.try_recv()
        {
            frame.extend_from_slice(&more);
        }
        if socket.write_all(&frame).await.is_err() {
            // The reader sees the end of the same socket and tells every caller.
            return;
        }
    }
}

async fn read_all<R: AsyncRead + Unpin>(
    mut socket: R,
    table: Arc<Mutex<Table>>,
    out: mpsc::WeakUnboundedSender<Vec<u8>>,
) {
    let error = read_until_end(&mut socket, &table, &out).await;
    let waiting = {
        let mut table = lock(&table);
        table.broken = Some(error.clone());
        std::mem::take(&mut table.waiting)
    };
    for (_, call) in waiting {
        let _ = call.answer.send(Err(error.clone()));
    }
}

async fn read_until_end<R: AsyncRead + Unpin>(
    socket: &mut R,
    table: &Mutex<Table>,
    out: &mpsc::WeakUnboundedSender<Vec<u8>>,
) -> Error {
    let mut decoder = Decoder::default();
    loop {
        // A page of output fits.
        decoder.buffer.reserve(96 * 1024);
        match socket.read_buf(&mut decoder.buffer).await {
            Ok(0) => return broken(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(e) => return broken(e),
        }
        loop {
            match decoder.next() {
                Ok(Some(body)) => {
                    if let Err(e) = take(body, table, out).await {
                        return e;
                    }
                }
                Ok(None) => break,
                Err(e) => return Error::Protocol(e.to_string()),
            }
        }
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<WireError>,
}

#[derive(Deserialize)]
struct WireError {
    code: i64,
    message: String,
    data: Option<serde_json::Value>,
}

async fn take(
    body: &[u8],
    table: &Mutex<Table>,
    out: &mpsc::WeakUnboundedSender<Vec<u8>>,
) -> Result<(), Error> {
    let message: Message<'_> =
        serde_json::from_slice(body).map_err(|e| Error::Protocol(e.to_string()))?;
    match (&message.method, message.id) {
        (Some(method), None) if method == "$/progress" => progress(message.params, table).await,
        (Some(method), Some(id)) => {
            refuse_request(method, id, out);
            Ok(())
        }
        // Notifications of a newer supervisor.
        (Some(_), None) => Ok(()),
        (None, Some(id)) => match id.get().parse() {
            Ok(id) => {
                answer(id, message, table);
                Ok(())
            }
            Err(_) => Err(Error::Protocol(format!("an answer to {id}"))),
        },
        // An answer to `null`: one of our messages could not be read, so that somebody would wait for ever.
        (None, None) => Err(Error::Protocol(match message.error {
            Some(e) => e.message,
            None => "a message that is neither request nor answer".into(),
        })),
    }
}

fn answer(id: i64, message: Message<'_>, table: &Mutex<Table>) {
    let answer = match message.error {
        Some(e) => Err(Refusal::from_error(e.code, &e.message, e.data.as_ref()).into()),
        None => Ok(message
            .result
            .map_or_else(|| RawValue::NULL.to_owned(), ToOwned::to_owned)),
    };
    // Absent: a cancelled call whose answer was on its way.
    if let Some(waiting) = lock(table).waiting.remove(&id) {
        let _ = waiting.answer.send(answer);
    }
}

#[derive(Deserialize)]
struct Note {
    token: serde_json::Value,
    value: Told,
}

/// What of a progress value is known here; what a newer supervisor tells besides is skipped.
#[derive(Deserialize)]
struct Told {
    started: Option<Box<Row>>,
    page: Option<Page>,
    /// Read later: one of a kind that is not known here is no fault.
    event: Option<Box<RawValue>>,
}

async fn progress(params: Option<&RawValue>, table: &Mutex<Table>) -> Result<(), Error> {
    // A page that cannot be read would be a silent gap, so that it ends the connection.
    let note: Note = serde_json::from_str(params.map_or("null", RawValue::get))
        .map_err(|e| Error::Protocol(e.to_string()))?;
    let pages = note
        .token
        .as_i64()
        .and_then(|id| lock(table).waiting.get(&id).and_then(|w| w.pages.clone()));
    let Some(pages) = pages else { return Ok(()) };
    let event = note.value.event;
    let event = event.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let told = note
        .value
        .started
        .map(Progress::Started)
        .into_iter()
        .chain(note.value.page.map(Progress::Page))
        .chain(event.map(Progress::Event));
    for one in told {
        // The receiver may have been dropped: the caller wants the answer only.
        let _ = pages.send(one).await;
    }
    Ok(())
}

fn refuse_request(method: &str, id: &RawValue, out: &mpsc::WeakUnboundedSender<Vec<u8>>) {
    let refusal = serde_json::json!({
        "jsonrpc": "2.0",
        "id": id,
        "error": { "code": -32601, "message": format!("no method {method}") },
    });
    let mut frame = Vec::new();
    frame::encode(Framing::Lsp, refusal.to_string().as_bytes(), &mut frame);
    if let Some(out) = out.upgrade() {
        let _ = out.send(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ostler_proto::methods::{JobGet, JobTail, Tail, Target};
    use serde_json::{Value, json};
    use tokio::io::DuplexStream;

    /// The other end of the wire: reads our frames, writes whatever a test says.
    struct Wire {
        socket: DuplexStream,
        decoder: Decoder,
    }

    impl Wire {
        async fn read(&mut self) -> Value {
            loop {
                if let Some(body) = self.decoder.next().unwrap() {
                    return serde_json::from_slice(body).unwrap();
                }
                let n = self
                    .socket
                    .read_buf(&mut self.decoder.buffer)
                    .await
                    .unwrap();
                assert!(n > 0, "the client closed the connection");
            }
        }

        async fn write(&mut self, message: Value) {
            let mut frame = Vec::new();
            frame::encode(Framing::Lsp, message.to_string().as_bytes(), &mut frame);
            self.socket.write_all(&frame).await.unwrap();
        }
    }

    fn pair() -> (Connection, Wire) {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let (read, write) = tokio::io::split(ours);
        let wire = Wire {
            socket: theirs,
            decoder: Decoder::default(),
        };
        (Connection::over(read, write), wire)
    }

    fn target(id: &str) -> Target {
        Target {
            session: None,
            id: id.into(),
        }
    }

    fn refusal(id: &Value, message: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": 2001, "message": message, "data": {"hint": "ostler ls"}}})
    }

    #[tokio::test]
    async fn answers_find_their_calls_in_any_order() {
        let (connection, mut wire) = pair();
        let a = connection.call::<JobGet>(&target("t1"));
        let b = connection.call::<JobGet>(&target("t2"));
        let (first, second) = (wire.read().await, wire.read().await);
        assert_eq!(first["method"], "job/get");
        assert_eq!(second["params"]["id"], "t2");
        wire.write(refusal(&second["id"], "two")).await;
        wire.write(refusal(&first["id"], "one")).await;
        let Err(Error::Refused(one)) = a.await else {
            panic!("the first call was not refused")
        };
        let Err(Error::Refused(two)) = b.await else {
            panic!("the second call was not refused")
        };
        assert_eq!((one.message.as_str(), two.message.as_str()), ("one", "two"));
        assert_eq!(one.hint.as_deref(), Some("ostler ls"));
    }

    #[tokio::test]
    async fn a_dropped_call_is_cancelled_and_an_answered_one_is_not() {
        let (connection, mut wire) = pair();
        drop(connection.call::<JobGet>(&target("t1")));
        let request = wire.read().await;
        let cancel = wire.read().await;
        assert_eq!(cancel["method"], "$/cancelRequest");
        assert_eq!(cancel["params"]["id"], request["id"]);

        let call = connection.call::<JobGet>(&target("t2"));
        let request = wire.read().await;
        wire.write(refusal(&request["id"], "x")).await;
        assert!(call.await.is_err());
        let next = connection.call::<JobGet>(&target("t3"));
        assert_eq!(wire.read().await["params"]["id"], "t3");
        drop(next);
    }

    #[tokio::test]
    async fn pages_come_in_order_and_end_before_the_answer() {
        let (connection, mut wire) = pair();
        let (mut pages, call) = connection.stream::<JobTail>(
            Tail {
                id: "t1".into(),
                ..Tail::default()
            },
            Some(7),
        );
        let request = wire.read().await;
        assert_eq!(request["params"]["since"], 7);
        let token = &request["params"]["partialResultToken"];
        for n in 0..40_u64 {
            let page = json!({"from": n, "next": n + 1, "end": 40, "lost": 0, "replaced": 0, "eof": false});
            wire.write(json!({"jsonrpc": "2.0", "method": "$/progress", "params": {"token": token, "value": {"page": page}}}))
                .await;
        }
        wire.write(json!({"jsonrpc": "2.0", "method": "$/progress", "params": {"token": token, "value": {"event": {"seq": 1}}}}))
            .await;
        wire.write(refusal(&request["id"], "end")).await;
        for n in 0..40 {
            let Some(Progress::Page(page)) = pages.recv().await else {
                panic!("page {n} did not come")
            };
            assert_eq!(page.from, n);
        }
        assert!(pages.recv().await.is_none());
        assert!(matches!(call.await, Err(Error::Refused(r)) if r.message == "end"));
    }

    #[tokio::test]
    async fn an_end_of_the_socket_answers_every_call() {
        let (connection, mut wire) = pair();
        let call = connection.call::<JobGet>(&target("t1"));
        wire.read().await;
        drop(wire);
        assert!(matches!(call.await, Err(Error::Broken(_))));
        assert!(connection.is_broken());
        let later = connection.call::<JobGet>(&target("t1"));
        assert!(matches!(later.await, Err(Error::Broken(_))));
    }

    #[tokio::test]
    async fn a_message_that_could_not_be_read_is_told_to_the_callers() {
        let (connection, mut wire) = pair();
        let call = connection.call::<JobGet>(&target("t1"));
        wire.read().await;
        wire.write(
            json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "no JSON"}}),
        )
        .await;
        assert!(matches!(call.await, Err(Error::Protocol(m)) if m == "no JSON"));
    }

    #[tokio::test]
    async fn a_request_of_the_supervisor_is_refused_and_does_no_harm() {
        let (connection, mut wire) = pair();
        wire.write(
            json!({"jsonrpc": "2.0", "id": "x", "method": "window/showMessage", "params": {}}),
        )
        .await;
        let answer = wire.read().await;
        assert_eq!(answer["id"], "x");
        assert_eq!(answer["error"]["code"], -32601);
        assert!(!connection.is_broken());
    }
}
