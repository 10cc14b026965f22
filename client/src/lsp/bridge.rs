//! The bridge itself: who said what, to whom it goes, and what happens when either side ends.

use std::pin::Pin;

use ostler::{Error, Mode, Options};
use ostler_proto::editor::EditorOptions;
use serde_json::Value;
use tokio::sync::mpsc;

use super::greeting::Greeting;
use super::link::Link;
use super::message::{self, Envelope};
use super::parent;
use super::pending::{Pending, Request};
use super::stdio::{self, Heard};
use super::works::Works;

/// What a bridge needs to know.
pub(crate) struct Setup {
    /// How the supervisor is reached.
    pub(crate) options: Options,
    /// What the editor's `initialize` is given that it does not say itself.
    pub(crate) dress: EditorOptions,
}

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// As LSP has it: `exit` behind `shutdown`, the end of input, or the end of the editor.
    Orderly,
    /// `exit` without `shutdown`.
    Abrupt,
    /// The editor sent something else than messages.
    Garbage(String),
}

type Opening = Pin<Box<dyn Future<Output = Result<Link, Error>>>>;

/// How it stands with the supervisor.
enum House {
    /// Nobody is there; the next request starts one.
    Down,
    /// On the way. What the editor says meanwhile waits.
    Opening {
        opening: Opening,
        mode: Mode,
        waiting: Vec<Vec<u8>>,
    },
    /// There.
    Up(Link),
}

struct Bridge {
    setup: Setup,
    house: House,
    editor: mpsc::Sender<Vec<u8>>,
    greeting: Option<Greeting>,
    pending: Pending,
    works: Works,
    /// What the editor has said that it is, and nobody watches yet.
    process: Option<u32>,
    shut: bool,
}

/// What happens next.
enum Next {
    Heard(Option<Heard>),
    Told(Option<Vec<u8>>),
    Opened(Result<Link, Error>),
    EditorGone,
}

/// Stands between an editor and the supervisor until the editor ends.
pub(crate) async fn run(setup: Setup) -> Ended {
    let mut heard = stdio::input();
    let mut bridge = Bridge {
        setup,
        house: House::Down,
        editor: stdio::output(),
        greeting: None,
        pending: Pending::default(),
        works: Works::default(),
        process: None,
        shut: false,
    };
    bridge.open(Mode::Start, Vec::new());
    let mut parent: Pin<Box<dyn Future<Output = ()>>> = Box::pin(std::future::pending());
    loop {
        let next = tokio::select! {
            heard = heard.recv() => Next::Heard(heard),
            next = bridge.house.next() => next,
            () = &mut parent => Next::EditorGone,
            () = bridge.editor.closed() => Next::EditorGone,
        };
        match next {
            Next::Heard(Some(Heard::Message(body))) => {
                if let Some(ended) = bridge.hear(body).await {
                    return ended;
                }
                if let Some(pid) = bridge.process.take() {
                    parent = Box::pin(parent::gone(pid));
                }
            }
            Next::Heard(Some(Heard::Garbage(why))) => return Ended::Garbage(why),
            Next::Heard(None) | Next::EditorGone => return Ended::Orderly,
            Next::Told(Some(body)) => bridge.tell(body).await,
            Next::Told(None) => bridge.broke().await,
            Next::Opened(Ok(link)) => bridge.opened(link).await,
            Next::Opened(Err(error)) => bridge.failed(&error).await,
        }
    }
}

impl House {
    async fn next(&mut self) -> Next {
        match self {
            Self::Down => std::future::pending().await,
            Self::Opening { opening, .. } => Next::Opened(opening.await),
            Self::Up(link) => Next::Told(link.next().await),
        }
    }
}

impl Bridge {
    /// Begins to connect. A supervisor that was there before is greeted with what the editor has said.
    fn open(&mut self, mode: Mode, waiting: Vec<Vec<u8>>) {
        let mut options = self.setup.options.clone();
        options.mode = mode;
        let greeting = self.greeting.clone();
        let mut dress = self.setup.dress.clone();
        let opening = async move {
            let greeting = greeting.map(|greeting| {
                dress.owner_key = owner_key(&options);
                greeting.again(&dress)
            });
            Link::open(options, greeting).await
        };
        self.house = House::Opening {
            opening: Box::pin(opening),
            mode,
            waiting,
        };
    }

    /// What the editor does not say itself, of this moment: the first supervisor of a user makes the key.
    fn dress(&self) -> EditorOptions {
        EditorOptions {
            owner_key: owner_key(&self.setup.options),
            ..self.setup.dress.clone()
        }
    }

    /// The editor said something.
    async fn hear(&mut self, body: Vec<u8>) -> Option<Ended> {
        let envelope = Envelope::read(&body);
        let method = envelope.as_ref().and_then(|e| e.method.as_deref());
        if method == Some("exit") {
            return Some(if self.shut {
                Ended::Orderly
            } else {
                Ended::Abrupt
            });
        }
        if method == Some("initialize") {
            self.process = Greeting::of(&body).and_then(|greeting| greeting.process());
        }
        let id = envelope.as_ref().and_then(Envelope::id);
        let is_request = method.is_some() && id.is_some();
        if let (Some("shutdown"), Some(id)) = (method, id) {
            self.shut = true;
            if !matches!(self.house, House::Up(_)) {
                let answer = message::answer(id, &Value::Null);
                self.say(answer).await;
                return None;
            }
        }
        match &mut self.house {
            House::Up(_) => self.pass(&body),
            House::Opening { waiting, .. } => waiting.push(body),
            // Nobody is there who could be told of anything else.
            House::Down if is_request => self.open(Mode::Start, vec![body]),
            House::Down => {}
        }
        None
    }

    /// Hands a message of the editor's on.
    fn pass(&mut self, body: &[u8]) {
        let House::Up(link) = &self.house else { return };
        let envelope = Envelope::read(body);
        let request = envelope.filter(|e| e.method.is_some());
        let Some((id, method)) = request
            .as_ref()
            .and_then(|e| Some((e.id()?, e.method.as_deref()?)))
        else {
            link.send(body);
            return;
        };
        if method == "initialize" {
            self.greeting = Greeting::of(body);
        }
        let Some((request, changed)) = Request::of(id, body) else {
            link.send(body);
            return;
        };
        self.pending.add(request);
        match &self.greeting {
            Some(greeting) if method == "initialize" => {
                link.send(&greeting.dressed(&self.dress()));
            }
            _ => link.send(changed.as_deref().unwrap_or(body)),
        }
    }

    /// The supervisor said something.
    async fn tell(&mut self, body: Vec<u8>) {
        let envelope = Envelope::read(&body);
        let method = envelope.as_ref().and_then(|e| e.method.as_deref());
        let told = match method {
            Some("$/progress") => {
                if !self.pending.note(&body) {
                    return;
                }
                self.works.note(&body)
            }
            Some(_) => None,
            None => {
                if let Some(id) = envelope.as_ref().and_then(Envelope::id) {
                    self.pending.remove(id);
                }
                None
            }
        };
        self.say(told.unwrap_or(body)).await;
    }

    /// Tells the editor; where it is gone, the loop finds out.
    async fn say(&self, body: Vec<u8>) {
        let _ = self.editor.send(body).await;
    }

    /// The connection ended under us.
    async fn broke(&mut self) {
        const WORDS: &str =
            "the supervisor was replaced before it answered: nobody knows whether this was done";
        // Behind `shutdown` the editor wants nothing but to say `exit`.
        let lost = match self.shut {
            true => self.pending.take(),
            false => self.pending.lost(),
        };
        for request in lost {
            let answer = match request.is("shutdown") {
                true => message::answer(&request.id, &Value::Null),
                false => message::refusal(&request.id, WORDS, Some("ostler.list tells what runs")),
            };
            self.say(answer).await;
        }
        if self.shut {
            self.house = House::Down;
            return;
        }
        let safe: Vec<Value> = self
            .pending
            .all()
            .filter_map(|r| r.work_token().cloned())
            .collect();
        let goes_on: Vec<&Value> = safe.iter().collect();
        for end in self.works.end_all_but(&goes_on) {
            self.say(end).await;
        }
        // Never a new one in its place: its jobs would be gone, and an empty list is no answer.
        self.open(Mode::Use, Vec::new());
    }

    async fn opened(&mut self, link: Link) {
        let House::Opening { waiting, .. } = std::mem::replace(&mut self.house, House::Up(link))
        else {
            return;
        };
        if let House::Up(link) = &self.house {
            let greeting = self.greeting.as_ref();
            let greeting = greeting.map(|greeting| greeting.dressed(&self.dress()));
            for request in self.pending.all() {
                match &greeting {
                    Some(greeting) if request.is("initialize") => link.send(greeting),
                    _ => link.send(&request.again()),
                }
            }
        }
        for body in waiting {
            self.pass(&body);
        }
    }

    /// Nobody is there, or nobody could be started.
    async fn failed(&mut self, error: &Error) {
        let House::Opening { mode, waiting, .. } = std::mem::replace(&mut self.house, House::Down)
        else {
            return;
        };
        let lost = self.pending.take().into_iter().map(|request| request.id);
        let mut refused: Vec<String> = lost.collect();
        // What was asked after the end of the one before may have another.
        let wanted = mode == Mode::Use && waiting.iter().any(|body| request_id(body).is_some());
        if !wanted {
            refused.extend(waiting.iter().filter_map(|body| request_id(body)));
        }
        // It is greeted with that when there is one.
        let greeting = waiting.iter().find_map(|body| greeting_in(body));
        self.greeting = greeting.or(self.greeting.take());
        for end in self.works.end_all_but(&[]) {
            self.say(end).await;
        }
        let hint = match error {
            Error::Unavailable(why) => why.hint(),
            _ => None,
        };
        let words = error.to_string();
        for id in refused {
            self.say(message::refusal(&id, &words, hint.as_deref()))
                .await;
        }
        if wanted {
            self.open(Mode::Start, waiting);
        }
    }
}

/// Id of a message that wants an answer.
fn request_id(body: &[u8]) -> Option<String> {
    let request = Envelope::read(body).filter(|e| e.method.is_some())?;
    request.id().map(str::to_owned)
}

fn greeting_in(body: &[u8]) -> Option<Greeting> {
    let envelope = Envelope::read(body)?;
    (envelope.method.as_deref() == Some("initialize")).then(|| Greeting::of(body))?
}

fn owner_key(options: &Options) -> Option<String> {
    let key = std::fs::read_to_string(options.endpoint.folders().owner_key()).ok()?;
    Some(key.trim().to_owned())
}
