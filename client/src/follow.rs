//! A stream of output that goes on at its cursor when the supervisor is replaced.
//!
//! Owned by its reader. Dropping it cancels the request: for `job/run` that ends the tree, for `job/tail` it
//! ends the stream alone.

use ostler_proto::job::{Page, Row};
use ostler_proto::methods::{self, Progress};
use ostler_proto::refusal::{Refusal, RefusalKind};
use tokio::sync::mpsc;

use crate::breaks::Breaks;
use crate::client::Client;
use crate::connection::{Call, Error, Streaming};

/// How often one stream follows a session that is renamed while its connection is gone.
const MOVES: u32 = 20;

/// What comes next.
#[derive(Debug)]
pub enum Event<R> {
    /// The job is there; once.
    Started(Box<Row>),
    /// Output. `lost` says how much is missing before it.
    Page(Page),
    /// Something happened to a job; of `session/watch`.
    Happened(Box<methods::Event>),
    /// The answer; last.
    End(Box<R>),
}

/// A running `job/run`, `job/tail` or `session/watch`.
pub struct Stream<M: Streaming> {
    client: Client,
    params: M::Params,
    since: Option<u64>,
    started: bool,
    breaks: Breaks,
    moves: u32,
    live: Option<Live<M>>,
}

struct Live<M: Streaming> {
    pages: mpsc::Receiver<Progress>,
    call: Call<M::Result>,
}

impl Client {
    /// Streams `job/run` or `job/tail`; see [`Stream`]. A `job/run` needs a key to be found again.
    pub fn stream<M: Streaming>(&self, params: M::Params) -> Stream<M>
    where
        M::Params: Clone,
    {
        Stream::new(self.clone(), params)
    }
}

impl<M: Streaming> Stream<M>
where
    M::Params: Clone,
{
    pub(crate) fn new(client: Client, params: M::Params) -> Self {
        Self {
            client,
            params,
            since: None,
            started: false,
            breaks: Breaks::default(),
            moves: 0,
            live: None,
        }
    }

    /// Returns what comes next. Nothing is lost when the future is dropped and made again.
    ///
    /// # Errors
    /// The supervisor refused, or is gone for good.
    pub async fn next(&mut self) -> Result<Event<M::Result>, Error> {
        loop {
            let live = match &mut self.live {
                Some(live) => live,
                none => {
                    let (params, since) = (&self.params, self.since);
                    let (_link, (pages, call)) = self
                        .client
                        .with(|c| c.stream::<M>(params.clone(), since))
                        .await?;
                    none.insert(Live { pages, call })
                }
            };
            match live.pages.recv().await {
                Some(Progress::Started(row)) => {
                    if !std::mem::replace(&mut self.started, true) {
                        return Ok(Event::Started(row));
                    }
                }
                Some(Progress::Page(page)) => {
                    self.since = Some(page.next);
                    self.breaks = Breaks::default();
                    return Ok(Event::Page(page));
                }
                Some(Progress::Event(event)) => {
                    self.since = Some(event.seq);
                    self.breaks = Breaks::default();
                    return Ok(Event::Happened(event));
                }
                None => match (&mut live.call).await {
                    Ok(answer) => return Ok(Event::End(Box::new(answer))),
                    // Before the pause in it: who drops this future and makes it again must find a stream that is over gone.
                    Err(Error::Broken(cause)) => {
                        self.live = None;
                        if !self.breaks.again().await {
                            return Err(Error::Broken(cause));
                        }
                    }
                    // Only on the way back: whoever names an id that has moved is told so.
                    Err(Error::Refused(r)) if self.since.is_some() && self.goes_along(&r) => {
                        self.live = None;
                    }
                    Err(e) => return Err(e),
                },
            }
        }
    }
}

impl<M: Streaming> Stream<M> {
    /// Its session was renamed while the connection was gone.
    fn goes_along(&mut self, refusal: &Refusal) -> bool {
        let renamed =
            refusal.kind == RefusalKind::Moved && refusal.data.get("renamed") == Some(&true.into());
        let to = refusal.data.get("to").and_then(|to| to.as_str());
        self.moves += 1;
        let Some(to) = to.filter(|_| renamed && self.moves < MOVES) else {
            return false;
        };
        M::renamed(&mut self.params, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Decoder;
    use crate::house::{House, StartLock};
    use crate::start::{Mode, Options};
    use crate::{Endpoint, reach};
    use fs2::FileExt;
    use ostler_proto::address::Folders;
    use ostler_proto::frame::{self, Framing};
    use ostler_proto::methods::{JobRun, JobTail, JobWait, OpenSession, Run, Tail, Wait};
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{UnixListener, UnixStream};

    /// The other end of a socket: frames in, frames out, and nothing of a supervisor behind them.
    struct Peer {
        socket: UnixStream,
        decoder: Decoder,
    }

    impl Peer {
        async fn accept(listener: &UnixListener) -> Self {
            let (socket, _) = listener.accept().await.unwrap();
            let decoder = Decoder::default();
            Self { socket, decoder }
        }

        async fn read(&mut self) -> Value {
            loop {
                if let Some(body) = self.decoder.next().unwrap() {
                    return serde_json::from_slice(body).unwrap();
                }
                let n = self.socket.read_buf(&mut self.decoder.buffer).await;
                assert!(n.unwrap() > 0, "the client closed the connection");
            }
        }

        async fn write(&mut self, message: &Value) {
            let mut frame = Vec::new();
            frame::encode(Framing::Lsp, message.to_string().as_bytes(), &mut frame);
            self.socket.write_all(&frame).await.unwrap();
        }

        async fn answer(&mut self, request: &Value, result: Value) {
            self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}))
                .await;
        }

        async fn greet(&mut self) {
            let hello = self.read().await;
            assert_eq!(hello["method"], "supervisor/hello");
            let answer = json!({"protocol": 1, "protocolMin": 1, "version": "0", "pid": 2, "keeperPid": 1, "generation": 1, "owner": false});
            self.answer(&hello, answer).await;
        }

        async fn page(&mut self, request: &Value, from: u64, text: &str) {
            let next = from + text.len() as u64;
            let page = json!({"from": from, "next": next, "end": next, "lost": 0, "text": text, "replaced": 0, "eof": false});
            let token = &request["params"]["partialResultToken"];
            self.write(&json!({"jsonrpc": "2.0", "method": "$/progress", "params": {"token": token, "value": {"page": page}}}))
                .await;
        }

        async fn refuse(&mut self, request: &Value) {
            self.write(&json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": 2001, "message": "the end"}}))
                .await;
        }
    }

    fn listen(dir: &std::path::Path) -> (Options, UnixListener) {
        let endpoint = Endpoint::at(dir).unwrap();
        let listener = UnixListener::bind(endpoint.folders().socket()).unwrap();
        (Options::new(endpoint, Mode::Use), listener)
    }

    async fn text(stream: &mut Stream<JobTail>) -> String {
        match stream.next().await.unwrap() {
            Event::Page(page) => page.text.unwrap(),
            other => panic!("no page but {other:?}"),
        }
    }

    #[tokio::test]
    async fn a_tail_goes_on_at_its_cursor_on_a_new_connection() {
        let dir = tempfile::tempdir().unwrap();
        let (options, listener) = listen(dir.path());
        let supervisor = async {
            let mut first = Peer::accept(&listener).await;
            first.greet().await;
            let request = first.read().await;
            assert_eq!(request["params"]["since"], Value::Null);
            first.page(&request, 100, "abc").await;
            drop(first);
            let mut second = Peer::accept(&listener).await;
            second.greet().await;
            let request = second.read().await;
            assert_eq!(request["params"]["since"], 103);
            second.page(&request, 103, "def").await;
            second.refuse(&request).await;
            second
        };
        let reader = async {
            let client = Client::new(options);
            let mut stream = client.stream::<JobTail>(Tail {
                id: "t1".into(),
                follow: true,
                ..Tail::default()
            });
            assert_eq!(text(&mut stream).await, "abc");
            assert_eq!(text(&mut stream).await, "def");
            assert!(matches!(stream.next().await, Err(Error::Refused(_))));
        };
        tokio::join!(supervisor, reader);
    }

    #[tokio::test]
    async fn a_run_costs_one_round_trip_and_comes_back_with_its_key_and_session() {
        let dir = tempfile::tempdir().unwrap();
        let (mut options, listener) = listen(dir.path());
        options.session = Some(OpenSession {
            id: Some("app-1".into()),
            ..OpenSession::default()
        });
        let opened = json!({
            "session": {"id": "app-1", "name": "app"}, "token": "secret", "created": true,
            "limits": {"commands": 8, "shells": 4, "agents": 16},
        });
        let supervisor = async {
            let mut first = Peer::accept(&listener).await;
            // All three are there before the first one is answered.
            let (hello, open, run) = (first.read().await, first.read().await, first.read().await);
            assert_eq!(hello["method"], "supervisor/hello");
            assert_eq!(open["method"], "session/open");
            assert_eq!(run["method"], "job/run");
            assert_eq!(run["params"]["since"], 0);
            let answer = json!({"protocol": 1, "protocolMin": 1, "version": "0", "pid": 2, "keeperPid": 1, "generation": 1, "owner": false});
            first.answer(&hello, answer).await;
            first.answer(&open, opened.clone()).await;
            first.page(&run, 0, "abc").await;
            drop(first);
            let mut second = Peer::accept(&listener).await;
            second.greet().await;
            let open = second.read().await;
            assert_eq!(open["params"]["token"], "secret");
            assert_eq!(open["params"]["attachOnly"], true);
            second.answer(&open, opened).await;
            let again = second.read().await;
            assert_eq!(again["params"]["start"]["key"], "k");
            assert_eq!(again["params"]["since"], 3);
            second.refuse(&again).await;
            second
        };
        let runner = async {
            let client = Client::new(options);
            let mut params = Run::default();
            params.start.key = Some("k".into());
            let mut stream = client.stream::<JobRun>(params);
            assert!(matches!(stream.next().await, Ok(Event::Page(_))));
            assert!(matches!(stream.next().await, Err(Error::Refused(_))));
        };
        tokio::join!(supervisor, runner);
    }

    #[tokio::test]
    async fn a_connection_that_ends_before_the_handshake_is_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let (options, listener) = listen(dir.path());
        let supervisor = async {
            for _ in 0..3 {
                drop(listener.accept().await.unwrap());
            }
            let mut peer = Peer::accept(&listener).await;
            peer.greet().await;
            peer
        };
        let (peer, link) = tokio::join!(supervisor, reach(&options, |_| ()));
        assert_eq!(link.unwrap().0.hello.pid, 2);
        drop(peer);
    }

    #[tokio::test]
    async fn an_owner_key_that_was_made_meanwhile_is_shown_on_a_new_connection() {
        let dir = tempfile::tempdir().unwrap();
        let (mut options, listener) = listen(dir.path());
        options.owner = true;
        let key = options.endpoint.folders().owner_key();
        let supervisor = async {
            let mut first = Peer::accept(&listener).await;
            std::fs::write(key, "abc\n").unwrap();
            first.greet().await;
            let mut second = Peer::accept(&listener).await;
            let hello = second.read().await;
            assert_eq!(hello["params"]["ownerKey"], "abc");
            let answer = json!({"protocol": 1, "protocolMin": 1, "version": "0", "pid": 2, "keeperPid": 1, "generation": 1, "owner": true});
            second.answer(&hello, answer).await;
            (first, second)
        };
        let (_peers, link) = tokio::join!(supervisor, reach(&options, |_| ()));
        assert!(link.unwrap().0.hello.owner);
    }

    #[tokio::test]
    async fn a_wait_that_is_asked_again_has_only_the_rest_of_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let (options, listener) = listen(dir.path());
        let supervisor = async {
            let mut first = Peer::accept(&listener).await;
            first.greet().await;
            let request = first.read().await;
            assert_eq!(
                request["method"],
                <JobWait as ostler_proto::methods::Method>::NAME
            );
            let whole = request["params"]["timeoutMs"].as_u64().unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(30)).await;
            drop(first);
            let mut second = Peer::accept(&listener).await;
            second.greet().await;
            let request = second.read().await;
            assert!(request["params"]["timeoutMs"].as_u64().unwrap() + 30 <= whole);
            second
                .answer(&request, json!({"jobs": [], "timedOut": true}))
                .await;
            second
        };
        let client = Client::new(options);
        let wait = client.wait(Wait {
            ids: vec!["t1".into()],
            timeout_ms: Some(60_000),
            ..Wait::default()
        });
        let (_peer, waited) = tokio::join!(supervisor, wait);
        assert!(waited.unwrap().timed_out);
    }

    /// A living process that says so when it is knocked at, in the place of a keeper.
    fn door(folders: &Folders) -> (std::process::Child, std::process::ChildStdout) {
        let mut child = std::process::Command::new("/bin/sh")
            .args([
                "-c",
                "trap 'echo knocked; exit 0' USR1; echo up; while read -r _; do :; done",
            ])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        let start: u64 = stat[stat.rfind(')').unwrap() + 2..]
            .split(' ')
            .nth(19)
            .unwrap()
            .parse()
            .unwrap();
        let line = json!({"pid": child.id(), "start": start, "version": "0", "reason": null});
        std::fs::write(folders.house_lock(), format!("{line}\n")).unwrap();
        let out = child.stdout.take().unwrap();
        (child, out)
    }

    fn line(out: &mut std::process::ChildStdout) -> String {
        let mut text = String::new();
        let mut byte = [0];
        while std::io::Read::read(out, &mut byte).unwrap() == 1 && byte[0] != b'\n' {
            text.push(char::from(byte[0]));
        }
        text
    }

    #[tokio::test]
    async fn a_house_that_lost_its_socket_is_asked_to_look_and_no_second_one_is_started() {
        let dir = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::at(dir.path()).unwrap();
        let folders = endpoint.folders().clone();
        let (mut child, mut out) = door(&folders);
        assert_eq!(line(&mut out), "up");
        let house = std::fs::File::open(folders.house_lock()).unwrap();
        FileExt::lock(&house).unwrap();
        let mut options = Options::new(endpoint, Mode::Start);
        options.program = Some("/bin/false".into());
        let supervisor = async {
            let knocked = tokio::task::spawn_blocking(move || line(&mut out));
            assert_eq!(knocked.await.unwrap(), "knocked");
            let listener = UnixListener::bind(folders.socket()).unwrap();
            let mut peer = Peer::accept(&listener).await;
            peer.greet().await;
            peer
        };
        let (_peer, link) = tokio::join!(supervisor, reach(&options, |_| ()));
        assert_eq!(link.unwrap().0.hello.pid, 2);
        assert!(child.wait().unwrap().success());
        let said: House = crate::house::read(options.endpoint.folders()).unwrap();
        assert_eq!(said.pid, child.id());
        assert!(
            StartLock::try_take(options.endpoint.folders())
                .unwrap()
                .is_some()
        );
    }
}
