//! `ostler acp`: between any editor and any agent that speak the Agent Client Protocol, with terminals that are jobs of
//! the supervisor.
//!
//! ```text
//!   editor === stdin, stdout === ostler acp === pipes === agent
//!                                    |
//!                       client library, a connection a session
//!                                    |
//!                                supervisor
//! ```
//!
//! `ends` has the four streams, `lines` cuts them, `relay` looks at each line, `answer` does what the agent asks of
//! terminals, `display` and `follow` show the editor what comes of it. The agent is a plain child and no job: it ends
//! with its editor, and this process with the code of the agent.

mod agent;
mod answer;
mod display;
mod ends;
mod fields;
mod follow;
mod lines;
mod relay;
mod session;
mod text;

use ostler_proto::limits;
use std::io;
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt;
use signal_hook_tokio::Signals;
use tokio::sync::watch;

use self::agent::Agent;
use self::ends::{Gone, Inlet, Outlet};
use self::lines::{Lines, Next};
use self::relay::{Relay, Way};

pub(crate) use self::session::{Surroundings, name_of};

// What they mean stands beside the numbers.
const PATIENCE: Duration = Duration::from_millis(limits::acp::PATIENCE);
const STUCK: Duration = Duration::from_millis(limits::acp::STUCK);
const GRACE: Duration = Duration::from_millis(limits::acp::GRACE);
const CLOSING: Duration = Duration::from_millis(limits::acp::CLOSING);

/// Serves one editor until it or its agent has gone. Returns the exit code of the agent.
///
/// # Errors
/// The agent cannot be executed.
pub(crate) async fn run(agent: Command, around: Surroundings, note: fn(&str)) -> io::Result<i32> {
    let mut signals = Signals::new([libc::SIGTERM, libc::SIGINT, libc::SIGHUP])?;
    let (agent, stdin, stdout) = Agent::start(agent)?;
    let (to_agent, from_agent) = (
        ends::agent_in(stdin)?,
        ends::agent_out(stdout, agent.watch())?,
    );
    let (to_editor, mut unread) = ends::editor_out();
    let relay = Relay::new(around, to_editor.clone(), to_agent.clone(), note);
    // The end of what one side says is the end of what the other one hears.
    let passing = |way, from, to: Outlet| {
        let relay = relay.clone();
        tokio::spawn(async move {
            // Where nobody hears it, that is its end as well.
            let _ = pass(relay, way, from, &to).await;
            to.close();
        })
    };
    let mut up = passing(Way::Up, from_agent, to_editor);
    let mut down = passing(Way::Down, ends::editor_in(), to_agent.clone());
    let mut hung_up = ends::editor_hung_up();
    let told = tokio::select! {
        () = agent.ended() => None,
        // The editor says no more, or reads no more.
        _ = &mut down => Some(PATIENCE),
        true = async { unread.wait_for(|unread| *unread).await.is_ok() } => Some(PATIENCE),
        // It is gone, and its last words find no room.
        () = left(&mut hung_up, &to_agent) => Some(Duration::ZERO),
        _ = signals.next() => Some(Duration::ZERO),
    };
    let ending = async {
        if let Some(patience) = told {
            down.abort();
            to_agent.close();
            tokio::select! {
                () = agent.end(patience, GRACE) => {}
                // A second one has no patience.
                _ = signals.next() => agent.end(Duration::ZERO, Duration::ZERO).await,
            }
        } else {
            agent.signal(libc::SIGTERM);
        }
    };
    // What the agent waits for ends as well, so that it can.
    let ((), _) = tokio::join!(ending, tokio::time::timeout(CLOSING, relay.finish_all()));
    let last_words = async {
        let _ = (&mut up).await;
        while unread.changed().await.is_ok() {}
    };
    let patience = match told {
        None => limits::acp::LAST_WORDS,
        Some(_) => limits::acp::LAST_WORDS_UNWANTED,
    };
    let _ = tokio::time::timeout(Duration::from_millis(patience), last_words).await;
    up.abort();
    agent.code()
}

/// Comes when the editor has gone and the agent does not take what it has left.
async fn left(hung_up: &mut watch::Receiver<bool>, agent: &Outlet) {
    if hung_up.wait_for(|hung_up| *hung_up).await.is_err() {
        // Nobody tells.
        std::future::pending::<()>().await;
    }
    agent.stuck(STUCK).await;
}

/// Passes on what comes from one side.
async fn pass(relay: Relay, way: Way, mut from: Inlet, to: &Outlet) -> Result<(), Gone> {
    let mut lines = Lines::default();
    let mut turn = None;
    loop {
        let more = from.recv().await;
        if let Some(bytes) = &more {
            lines.push(bytes);
        }
        let over = more.is_none();
        while let Some(next) = lines.next().or_else(|| over.then(|| lines.rest())?) {
            match next {
                Next::Line(line) => relay.pass(way, line).await?,
                Next::Piece { bytes, last } => turn = to.pass(turn, bytes, last).await?,
            }
        }
        if over {
            return Ok(());
        }
    }
}
