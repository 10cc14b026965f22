//! A client as a test holds it: the library's, with a deadline on every call and the common questions short.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ostler::follow::Event;
use ostler::{Client, Error};
use ostler_proto::job::{JobResult, Page, Row, State, Stream};
use ostler_proto::methods::{
    For, JobGet, JobList, JobRead, JobRun, JobStart, JobStop, JobTail, JobWait, List, Method, Read,
    Receipt, Run, ShellOpen, Start, Stop, Tail, Target, Wait, WaitedJob,
};
use ostler_proto::refusal::Refusal;
use ostler_proto::shell::OpenShell;
use regex::Regex;

use crate::{PATIENCE, pattern, puppet, within};

/// A start of this program with these arguments, in the root folder: not every user has a home.
pub fn command<S: Into<String>>(args: impl IntoIterator<Item = S>) -> Start {
    Start {
        args: args.into_iter().map(Into::into).collect(),
        cwd: Some("/".into()),
        ..Start::default()
    }
}

/// A start of the puppet. Its steps are words separated by blanks; an argument with blanks needs [`command`].
pub fn script(steps: &str) -> Start {
    command([puppet()].into_iter().chain(steps.split_whitespace()))
}

/// One client.
#[derive(Clone)]
pub struct Desk {
    /// The library's client, for what has no short form here.
    pub client: Client,
}

impl Desk {
    /// A desk on this client.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// Asks, and takes a refusal for an answer.
    ///
    /// # Errors
    /// The supervisor refused.
    ///
    /// # Panics
    /// There was no answer.
    pub async fn call<M: Method>(&self, params: M::Params) -> Result<M::Result, Refusal> {
        match within(PATIENCE, M::NAME, self.client.call::<M>(params)).await {
            Ok(answer) => Ok(answer),
            Err(Error::Refused(refusal)) => Err(refusal),
            Err(e) => panic!("{}: {e}", M::NAME),
        }
    }

    /// Asks what must be granted.
    ///
    /// # Panics
    /// It was refused.
    pub async fn must<M: Method>(&self, params: M::Params) -> M::Result {
        match self.call::<M>(params).await {
            Ok(answer) => answer,
            Err(refusal) => panic!("{} was refused: {refusal:?}", M::NAME),
        }
    }

    /// Asks what must be refused.
    ///
    /// # Panics
    /// It was granted.
    pub async fn refused<M: Method>(&self, params: M::Params) -> Refusal
    where
        M::Result: std::fmt::Debug,
    {
        match self.call::<M>(params).await {
            Ok(answer) => panic!("{} was granted: {answer:?}", M::NAME),
            Err(refusal) => refusal,
        }
    }

    /// Starts a job that must run.
    pub async fn start(&self, start: Start) -> Row {
        let row = self.must::<JobStart>(start).await;
        assert_eq!(row.spawn_error, None, "{:?}", row.args);
        row
    }

    /// Starts the puppet, waits for the line that it says when it is set up, and returns the row.
    pub async fn ready(&self, start: Start) -> Row {
        let row = self.start(start).await;
        self.printed(&row.id, "^ready$").await;
        row
    }

    /// Opens this shell without start files of anybody, waits for its prompt and returns its id.
    pub async fn shell(&self, program: &str) -> String {
        let request = OpenShell {
            args: vec![program.into()],
            clean: true,
            cwd: Some("/".into()),
            wait_ms: Some(20_000),
            ..OpenShell::default()
        };
        let opened = self.must::<ShellOpen>(request).await;
        assert!(opened.ready, "{opened:?}");
        opened.row.id
    }

    /// Waits until a line that matches is in the log, whoever of the tree prints it, and returns it: a wait for text
    /// ends with the main process, and what that has left behind may speak later.
    pub async fn printed(&self, id: &str, pattern: &str) -> String {
        let wanted = Regex::new(pattern).expect("the pattern of a test is one");
        let reading = async {
            let (mut cursor, mut text) = (0, String::new());
            loop {
                let whole = text.rfind('\n').map_or(0, |at| at + 1);
                if let Some(line) = text[..whole].lines().find(|l| wanted.is_match(l)) {
                    return line.to_owned();
                }
                // What follows the last line end is the beginning of a line.
                text.drain(..whole);
                let read = Read {
                    id: id.into(),
                    since: Some(cursor),
                    wait_ms: Some(1000),
                    ..Read::default()
                };
                let page = self.must::<JobRead>(read).await;
                text += page.text.as_deref().unwrap_or_default();
                cursor = page.next;
            }
        };
        within(PATIENCE, &format!("{pattern:?} of {id}"), reading).await
    }

    /// Waits until a job has printed a line that matches, and returns the line.
    pub async fn said(&self, id: &str, pattern: &str) -> String {
        let told = self.wait_for(id, For::Text(pattern.into())).await;
        match told.line {
            Some(line) => line.text,
            None => panic!(
                "{id} ended before {pattern}: {:?} {:?}",
                told.row.outcome, told.last_lines
            ),
        }
    }

    /// Waits until a job has printed `WORD N`, and returns the number.
    pub async fn number(&self, id: &str, word: &str) -> u32 {
        let line = self.printed(id, &format!("^{word} [0-9]+$")).await;
        line[word.len() + 1..].parse().expect("digits are a number")
    }

    /// Runs to the end and collects.
    pub async fn run(&self, start: Start) -> JobResult {
        let run = Run {
            start,
            ..Run::default()
        };
        self.must::<JobRun>(run).await
    }

    /// Waits for the end of a job.
    pub async fn wait(&self, id: &str) -> Row {
        self.wait_for(id, For::Exit).await.row
    }

    /// Waits for anything.
    pub async fn wait_for(&self, id: &str, what: For) -> WaitedJob {
        let wait = Wait {
            ids: vec![id.into()],
            what,
            ..Wait::default()
        };
        let waiting = self.client.wait(wait.clone());
        match within(PATIENCE, &format!("{:?} of {id}", wait.what), waiting).await {
            Ok(mut waited) => waited.jobs.remove(0),
            Err(e) => panic!("the wait for {:?} of {id}: {e}", wait.what),
        }
    }

    /// Waits for a time, which may pass.
    pub async fn wait_ms(&self, id: &str, timeout_ms: u64) -> WaitedJob {
        let wait = Wait {
            ids: vec![id.into()],
            timeout_ms: Some(timeout_ms),
            ..Wait::default()
        };
        self.must::<JobWait>(wait).await.jobs.remove(0)
    }

    /// Everything about a job.
    pub async fn get(&self, id: &str) -> JobResult {
        let target = Target {
            session: None,
            id: id.into(),
        };
        self.must::<JobGet>(target).await
    }

    /// The jobs of the session.
    pub async fn list(&self) -> Vec<Row> {
        self.must::<JobList>(List::default()).await.jobs
    }

    /// Stops one job, at once or with this grace.
    pub async fn stop(&self, id: &str, grace_ms: u64) -> Receipt {
        let stop = Stop {
            ids: vec![id.into()],
            grace_ms: Some(grace_ms),
            ..Stop::default()
        };
        self.must::<JobStop>(stop).await.jobs.remove(0)
    }

    /// One page of text from a cursor.
    pub async fn read(&self, id: &str, since: u64) -> Page {
        let read = Read {
            id: id.into(),
            since: Some(since),
            ..Read::default()
        };
        self.must::<JobRead>(read).await
    }

    /// One page of bytes from a cursor.
    pub async fn read_raw(&self, id: &str, since: u64, max: u64) -> (Page, Vec<u8>) {
        let read = Read {
            id: id.into(),
            since: Some(since),
            max: Some(max),
            raw: true,
            ..Read::default()
        };
        let page = self.must::<JobRead>(read).await;
        let bytes = bytes_of(&page);
        (page, bytes)
    }

    /// Every byte of a finished job, by following the cursor; nothing may be lost.
    pub async fn bytes(&self, id: &str) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let (page, bytes) = self.read_raw(id, all.len() as u64, 1024 * 1024).await;
            assert_eq!(page.lost, 0, "lost before {}", page.from);
            assert_eq!(page.from, all.len() as u64, "pages join");
            all.extend(bytes);
            if page.next == page.end {
                return all;
            }
            assert!(
                page.next > page.from,
                "no progress at {} of {}",
                page.next,
                page.end
            );
        }
    }

    /// Every byte of one stream of a finished job; nothing may be lost.
    pub async fn stream(&self, id: &str, stream: Stream) -> Vec<u8> {
        let (mut all, mut cursor) = (Vec::new(), 0);
        loop {
            let read = Read {
                id: id.into(),
                since: Some(cursor),
                max: Some(1024 * 1024),
                stream: Some(stream),
                raw: true,
                ..Read::default()
            };
            let page = self.must::<JobRead>(read).await;
            assert_eq!(page.lost, 0, "lost before {}", page.from);
            all.extend(bytes_of(&page));
            if page.next == page.end {
                return all;
            }
            assert!(
                page.next > cursor,
                "no progress at {cursor} of {}",
                page.end
            );
            cursor = page.next;
        }
    }

    /// Asserts that a finished job printed exactly the first `n` bytes of the pattern.
    pub async fn assert_pattern(&self, id: &str, n: u64) {
        let bytes = self.bytes(id).await;
        assert_eq!(pattern::first_difference(0, &bytes), None, "in {id}");
        assert_eq!(bytes.len() as u64, n, "bytes of {id}");
    }

    /// Reads a job's standard output to its end, whatever happens to the supervisor meanwhile, and returns how long it was:
    /// every byte of the pattern comes once and in order.
    ///
    /// # Panics
    /// It does not.
    pub async fn follow(&self, id: &str) -> u64 {
        let tail = Tail {
            id: id.into(),
            since: Some(0),
            follow: true,
            raw: true,
            stream: Some(Stream::Stdout),
            ..Tail::default()
        };
        let mut stream = self.client.stream::<JobTail>(tail);
        let mut seen = 0;
        loop {
            match stream.next().await.expect("a tail goes on over a crash") {
                Event::Page(page) => {
                    assert_eq!(page.lost, 0, "at {seen}: {page:?}");
                    let bytes = bytes_of(&page);
                    assert_eq!(pattern::first_difference(seen, &bytes), None, "at {seen}");
                    seen += bytes.len() as u64;
                }
                Event::End(_) => return seen,
                other => panic!("{other:?} in a tail"),
            }
        }
    }

    /// All of what an `until` printed is its pattern, and as long as it says on its error output.
    ///
    /// # Panics
    /// It is not.
    pub async fn assert_whole(&self, row: &Row) {
        let said = self.stream(&row.id, Stream::Stderr).await;
        let said = String::from_utf8_lossy(&said).into_owned();
        let wanted = said
            .trim()
            .strip_prefix("total ")
            .and_then(|n| n.parse::<u64>().ok());
        let all = self.stream(&row.id, Stream::Stdout).await;
        assert_eq!(pattern::first_difference(0, &all), None, "{}", row.id);
        assert_eq!(
            Some(all.len() as u64),
            wanted,
            "bytes of {}, which said {said}",
            row.id
        );
    }

    /// Waits, look by look, until a row is as it should be: for states that have no wait of their own. Each look
    /// is a whole round trip, so that it does not spin.
    pub async fn until(&self, id: &str, what: &str, is: impl Fn(&JobResult) -> bool) -> JobResult {
        let looking = async {
            loop {
                let row = self.get(id).await;
                if is(&row) {
                    return row;
                }
            }
        };
        within(PATIENCE, what, looking).await
    }

    /// Waits until the result stands and no member is left.
    pub async fn over(&self, id: &str) -> Row {
        let is = |r: &JobResult| r.row.state == State::Exited && r.row.tree.left == 0;
        self.until(id, "the end of the whole tree", is).await.row
    }
}

/// The bytes of a page that was read raw.
///
/// # Panics
/// It was not.
pub fn bytes_of(page: &Page) -> Vec<u8> {
    let text = page.base64.as_deref().expect("a raw page has base64");
    STANDARD.decode(text).expect("base64 is well formed")
}
