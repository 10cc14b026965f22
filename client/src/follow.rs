//! A stream of output that goes on at its cursor when the supervisor is replaced.
//!
//! Owned by its reader. Dropping it cancels the request: for `job/run` that ends the tree, for `job/tail` it
//! ends the stream alone.

use ostler_proto::job::{Page, Row};
use ostler_proto::methods::Progress;
use tokio::sync::mpsc;

use crate::client::Client;
use crate::connection::{Call, Error, Streaming};

/// How often a stream is taken up again without a single page in between.
const AGAIN: u32 = 20;

/// What comes next.
#[derive(Debug)]
pub enum Event<R> {
    /// The job is there; once.
    Started(Box<Row>),
    /// Output. `lost` says how much is missing before it.
    Page(Page),
    /// The answer; last.
    End(Box<R>),
}

/// A running `job/run` or `job/tail`.
pub struct Stream<M: Streaming> {
    client: Client,
    params: M::Params,
    since: Option<u64>,
    started: bool,
    tries: u32,
    live: Option<Live<M>>,
}

struct Live<M: Streaming> {
    pages: mpsc::Receiver<Progress>,
    call: Call<M::Result>,
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
            tries: 0,
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
                    self.tries = 0;
                    return Ok(Event::Page(page));
                }
                None => match (&mut live.call).await {
                    Ok(answer) => return Ok(Event::End(Box::new(answer))),
                    Err(Error::Broken(_)) if self.tries < AGAIN => {
                        self.tries += 1;
                        self.live = None;
                    }
                    Err(e) => return Err(e),
                },
            }
        }
    }
}
