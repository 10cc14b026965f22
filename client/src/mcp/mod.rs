//! `ostler mcp`: the tools of an agent, over standard input and output.
//!
//! ```text
//!   client --stdio--> transport --> server --> compact --> front, shells, text --> client library --> supervisor
//!                        |            |                                              answer <-- status, words
//!                        +-- written? +--> notices, session
//! ```
//!
//! Thin: it owns no job. What it starts belongs to its session in the supervisor and outlives it; what it remembers is
//! of use to its own client alone. It outlives the supervisor in turn: a call comes back to the one that replaced it, or
//! says why none answers, and the front end goes on. It ends when its input does.

mod answer;
mod arguments;
pub(crate) mod client_config;
mod compact;
mod condition;
mod definitions;
mod dsh;
mod epoch;
mod fault;
mod fold;
mod front;
mod lines;
mod list;
mod names;
mod notices;
mod progress;
mod read;
mod run;
mod sandbox;
mod server;
mod session;
mod shells;
mod status;
mod stop;
mod tasks;
mod text;
mod transport;
mod wait;
mod words;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ostler::Error;
use ostler_proto::limits;
use rmcp::ServiceExt;
use tokio::{sync::watch, time::timeout};

pub(crate) use definitions::Set;
pub(crate) use front::Heritage;

use front::Front;
use notices::Ledger;
use server::{Inner, Server};
use session::{Closed, Origin, Sessions};

use transport::{Prepared, Stdio};

/// How a front end is asked to be.
pub(crate) struct Options {
    /// Which tools.
    pub(crate) set: Set,
    /// Named session.
    pub(crate) session: Option<String>,
    /// The agent's folder.
    pub(crate) here: PathBuf,
    /// The `ostler` binary that a house is started with.
    pub(crate) program: PathBuf,
    /// What jobs inherit.
    pub(crate) heritage: Heritage,
    /// Bytes of a result at most.
    pub(crate) max_result: usize,
    /// Longest wait of a call, in ms.
    pub(crate) max_wait: u64,
    /// End the session with its client.
    pub(crate) headless: bool,
}

/// How a front end has ended.
pub(crate) enum End {
    /// Its session goes on without it.
    Left,
    /// Its session has ended with it.
    Closed(Closed),
    /// It was to end its session, and what became of that is not known.
    Unknown(Error),
    /// The same: nobody has answered for so long.
    Silent(Duration),
}

/// Serves until the input ends, or something else is to end it: `ended` says when. Where the session ends with that, and
/// something asks for the end once more, it goes on without us.
///
/// # Errors
/// The list of tools is no JSON, which a test sees to.
pub(crate) async fn serve(
    options: Options,
    mut ended: impl AsyncFnMut(),
) -> serde_json::Result<End> {
    let ledger = Arc::new(Ledger::default());
    let prepared = Prepared::default();
    let tools = options.set.list(options.max_wait)?;
    let (raise, gone) = watch::channel(false);
    let origin = Origin {
        session: options.session,
        here: options.here.clone(),
        program: options.program,
    };
    let front = Front::new(
        options.here,
        options.heritage,
        options.max_wait,
        text::page_within(options.max_result),
        options.set.names(),
        Arc::clone(&ledger),
    );
    let inner = Arc::new(Inner {
        set: options.set,
        tools: Arc::clone(&tools),
        front: Arc::new(front),
        sessions: Sessions::new(origin, Arc::clone(&ledger)),
        max_result: options.max_result,
        prepared: Arc::clone(&prepared),
        gone,
        telling: tokio::sync::Mutex::new(()),
        taking_up: tokio::sync::Mutex::new(()),
        tasks: tasks::Tasks::default(),
    });
    let server = Server(Arc::clone(&inner));
    let (read, write) = rmcp::transport::stdio_pipes();
    let stdio = Stdio::new(read, write, ledger, prepared, tools, raise);
    // Whatever ends it, nobody is left who could be told.
    let serving = async {
        if let Ok(running) = Box::pin(server.serve(stdio)).await {
            let _ = running.waiting().await;
        }
    };
    tokio::select! {
        () = serving => {}
        () = ended() => {}
    }
    if !options.headless {
        return Ok(End::Left);
    }
    let most = Duration::from_millis(limits::mcp::CLOSING);
    Ok(tokio::select! {
        closed = timeout(most, inner.sessions.close()) => match closed {
            Ok(Ok(closed)) => End::Closed(closed),
            Ok(Err(error)) => End::Unknown(error),
            Err(_) => End::Silent(most),
        },
        () = ended() => End::Left,
    })
}

/// Unix time in ms.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
