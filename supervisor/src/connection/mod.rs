//! One client: frames in, frames out, requests in flight. It never delays a child, another client or a stop.
//!
//! ```text
//!   socket -> frames (bounds, both framings) -> service (tower-lsp routes) -> task a request -> outbox -> socket
//! ```
//!
//! tower-lsp's own transport is not used: it serves four requests at once, keeps handlers alive without a client
//! and frozen with a slow one, takes any size and closes on a lower-case header. Its router, life cycle and
//! cancelling are.

use std::{os::fd::AsFd, sync::Arc};

use interprocess::os::unix::uds_local_socket::tokio::Stream;
use tokio::task::JoinSet;

use self::{
    frames::{Frames, Next},
    service::{Routed, Service},
};
use crate::{
    caller::Caller,
    house::House,
    outbox::{self, Outbox},
};

mod frames;

mod greeting;

mod service;

/// Serves a client until it is gone.
pub(crate) async fn serve(stream: Stream, house: Arc<House>) {
    if !is_ours(&stream) {
        return;
    }
    let stream = Arc::new(stream);
    let mut frames = Frames::new(Arc::clone(&stream));
    let Ok(Some(framing)) = frames.sniff().await else {
        return;
    };
    let (outbox, writer) = outbox::new(framing, Arc::clone(&stream));
    let mut writing = tokio::spawn(writer.run());
    let caller = Caller::new(house, outbox.clone());
    let house = Arc::clone(caller.house());
    let mut client = Client {
        service: Service::new(caller.clone()),
        outbox,
        tasks: JoinSet::new(),
    };
    let end = tokio::select! {
        end = client.read(&mut frames) => end,
        // The socket takes nothing any more: the client is gone.
        _ = &mut writing => End::Silence,
        // Nothing is begun that could not be ended: what is not read yet, the client asks of the next supervisor.
        () = house.upgrade.going() => std::future::pending().await,
    };
    if end == End::Silence && !writing.is_finished() {
        client.finish(&stream).await;
    }
    caller.hang_up();
    // Dropping the tasks ends what was tied to this connection, and nothing else.
    drop(client);
    caller.leave();
    drop(caller);
    if !writing.is_finished() {
        // Every sender is gone: it writes what is left and ends, or finds the socket closed.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), &mut writing).await;
        writing.abort();
    }
}

/// How a client ends its side.
#[derive(PartialEq, Eq)]
enum End {
    /// It said goodbye, and wants nothing any more.
    Exit,
    /// It sends no more. It may still want its answers.
    Silence,
}

struct Client {
    service: Service,
    outbox: Outbox,
    tasks: JoinSet<()>,
}

impl Client {
    async fn read(&mut self, frames: &mut Frames) -> End {
        loop {
            while self.tasks.try_join_next().is_some() {}
            match frames.next().await {
                Next::Message(body) => match self.service.route(&body, self.tasks.len()).await {
                    Routed::Answered(answer) => {
                        if let Some(answer) = answer {
                            self.outbox.answer(&answer);
                        }
                    }
                    Routed::Task(task) => {
                        // Not looked at here first, which would save a wake-up: it may wait for a disk that does not
                        // answer, and that holds up nobody else, also not the other requests of its client.
                        self.tasks.spawn(task);
                    }
                    Routed::Exit => return End::Exit,
                },
                Next::End => return End::Silence,
                Next::Full => {
                    self.outbox.answer(&service::full());
                    return End::Silence;
                }
                Next::Broken(why) => {
                    self.outbox.answer(&service::broken(&why));
                    return End::Silence;
                }
            }
        }
    }

    /// Waits for the answers that it may still want; when it is wholly gone, nobody does.
    async fn finish(&mut self, stream: &Stream) {
        let done = async { while self.tasks.join_next().await.is_some() {} };
        tokio::select! {
            () = done => {}
            () = hung_up(stream) => {}
        }
    }
}

/// Only programs of the same user are served. The folder keeps others out already; this is the second wall.
fn is_ours(stream: &Stream) -> bool {
    // SAFETY: geteuid has no precondition.
    let me = unsafe { libc::geteuid() };
    // Not by interprocess: it refuses a peer whose pid is not visible here, as that of a client outside a container.
    match stream.inner().peer_cred().map(|c| c.uid()) {
        Ok(uid) if uid == me => true,
        other => {
            crate::log_line!("warn", "a connection of another user was closed: {other:?}");
            false
        }
    }
}

/// Waits until the other side has closed both directions.
async fn hung_up(stream: &Stream) {
    // A descriptor of its own: forgetting readiness on the shared one would freeze the writer.
    let Ok(fd) = stream.as_fd().try_clone_to_owned() else {
        return;
    };
    let Ok(fd) = crate::ready::writable(fd) else {
        return;
    };
    while let Ok(mut ready) = fd.writable().await {
        if ready.ready().is_write_closed() {
            return;
        }
        ready.clear_ready();
    }
}
