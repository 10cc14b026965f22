//! Standard input and output: one message a line, nothing else on either.
//!
//! It knows when a result has been written in full, and when the client is gone. JSON whose order of fields was chosen
//! goes out as it was made: the library's own maps would sort it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ostler_proto::limits;
use rmcp::RoleServer;
use rmcp::model::{JsonRpcMessage, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};

use super::lines::Measured;
use super::notices::Ledger;

/// JSON that goes out as it was made, by the request that it answers.
pub(crate) type Prepared = Arc<Mutex<HashMap<String, Box<RawValue>>>>;

/// What waits to be written, and who wants to know that it was.
type Piece = (Vec<u8>, Option<oneshot::Sender<io::Result<()>>>);

/// The transport of a front end.
pub(crate) struct Stdio<R: AsyncRead + Unpin> {
    reader: AsyncRwTransport<RoleServer, Measured<R>, Funnel>,
    out: mpsc::UnboundedSender<Piece>,
    ledger: Arc<Ledger>,
    prepared: Prepared,
    /// The list of tools as it is defined.
    tools: Arc<RawValue>,
    gone: watch::Sender<bool>,
}

impl<R: AsyncRead + Send + Unpin> Stdio<R> {
    /// Reads and writes there. `gone` is raised when the client is.
    pub(crate) fn new<W: AsyncWrite + Send + Unpin + 'static>(
        read: R,
        write: W,
        ledger: Arc<Ledger>,
        prepared: Prepared,
        tools: Arc<RawValue>,
        gone: watch::Sender<bool>,
    ) -> Self {
        // What waits here is bounded by the calls that the client keeps pending.
        let (out, queue) = mpsc::unbounded_channel();
        tokio::spawn(write_all(write, queue));
        let (refused, mut refusals) = mpsc::unbounded_channel();
        let answers = out.clone();
        tokio::spawn(async move {
            while let Some(line) = refusals.recv().await {
                // The writer ends with the client.
                let _ = answers.send((line, None));
            }
        });
        let read = Measured::new(read, refused);
        let reader = AsyncRwTransport::new(read, Funnel(out.clone()));
        Self {
            reader: reader.with_max_line_length(limits::MESSAGE),
            out,
            ledger,
            prepared,
            tools,
            gone,
        }
    }
}

async fn write_all<W: AsyncWrite + Unpin>(mut to: W, mut queue: mpsc::UnboundedReceiver<Piece>) {
    while let Some((bytes, told)) = queue.recv().await {
        let written = async {
            to.write_all(&bytes).await?;
            to.flush().await
        };
        let written = written.await;
        if let Some(told) = told {
            // Whoever asked may have left.
            let _ = told.send(written);
        }
    }
}

impl<R: AsyncRead + Send + Unpin> Transport<RoleServer> for Stdio<R> {
    type Error = io::Error;

    fn name() -> Cow<'static, str> {
        "stdio".into()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let call = answered(&item);
        if let Some(call) = &call {
            self.ledger.writing(call);
        }
        let prepared = call.as_ref().and_then(|call| {
            let mut all = self.prepared.lock().unwrap_or_else(PoisonError::into_inner);
            all.remove(call)
        });
        let line = encode(&item, prepared.as_deref(), &self.tools);
        let (out, ledger) = (self.out.clone(), Arc::clone(&self.ledger));
        async move {
            let (told, written) = oneshot::channel();
            let closed = || io::Error::from(io::ErrorKind::BrokenPipe);
            out.send((line?, Some(told))).map_err(|_| closed())?;
            written.await.map_err(|_| closed())??;
            if let Some(call) = call {
                ledger.written(&call);
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        let message = self.reader.receive().await;
        if message.is_none() {
            // Whoever waits for a job waits for nobody any more.
            self.gone.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        self.reader.close().await
    }
}

/// What calls are told apart by: `1` and `"1"` are two ids.
pub(crate) fn key(id: &RequestId) -> String {
    format!("{id:?}")
}

/// The request that a message answers.
fn answered(item: &TxJsonRpcMessage<RoleServer>) -> Option<String> {
    match item {
        JsonRpcMessage::Response(response) => Some(key(&response.id)),
        JsonRpcMessage::Error(error) => error.id.as_ref().map(key),
        _ => None,
    }
}

/// A line with its end.
fn encode(
    item: &TxJsonRpcMessage<RoleServer>,
    prepared: Option<&RawValue>,
    tools: &RawValue,
) -> io::Result<Vec<u8>> {
    let in_place: Option<(&str, &RawValue)> = match item {
        JsonRpcMessage::Response(response) => match &response.result {
            ServerResult::ListToolsResult(_) => Some(("tools", tools)),
            ServerResult::CallToolResult(_) => prepared.map(|json| ("structuredContent", json)),
            _ => None,
        },
        _ => None,
    };
    let mut line = match in_place {
        None => serde_json::to_vec(item)?,
        Some((field, json)) => with_raw(&serde_json::to_value(item)?, field, json)?.into_bytes(),
    };
    line.push(b'\n');
    Ok(line)
}

/// A response in whose result one field is as it was made.
fn with_raw(response: &Value, field: &str, json: &RawValue) -> serde_json::Result<String> {
    let mut parts = Vec::new();
    let result = response.get("result").and_then(Value::as_object);
    for (name, value) in result.into_iter().flatten() {
        let text = if name == field {
            json.get().to_owned()
        } else {
            serde_json::to_string(value)?
        };
        parts.push(format!("{}:{text}", serde_json::to_string(name)?));
    }
    let id = serde_json::to_string(&response["id"])?;
    Ok(format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{{}}}}}",
        parts.join(",")
    ))
}

/// The writing end that the library gets for its own words.
struct Funnel(mpsc::UnboundedSender<Piece>);

impl AsyncWrite for Funnel {
    fn poll_write(
        self: Pin<&mut Self>,
        _cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = self.0.send((bytes.to_vec(), None));
        Poll::Ready(match sent {
            Ok(()) => Ok(bytes.len()),
            Err(_) => Err(io::ErrorKind::BrokenPipe.into()),
        })
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
