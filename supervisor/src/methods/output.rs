//! `job/read` and `job/tail`: pages of a log at a cursor that the reader holds.

use std::{sync::Arc, time::Duration};

use base64::Engine as _;
use ostler_proto::{
    command::{TailCommand, Tailed},
    job::{Page, Stream},
    limits,
    methods::{JobRead, JobTail, Progress, Read, Tail, TailEnd},
    refusal::{Refusal, RefusalKind},
};
use serde_json::Value;

use super::{
    Serve,
    matching::Matching,
    newest::{last_lines, newest},
    notification::Notification,
};
use crate::{
    caller::Caller,
    claim,
    job::Job,
    life::plan::within,
    log::{Filter, Log, Slice},
    outbox::{Gone, Outbox},
    terminal::text::{self, Folder},
};

fn filter(stream: Option<Stream>) -> Filter {
    match stream {
        None => Filter::All,
        Some(Stream::Stdout) => Filter::Stdout,
        Some(Stream::Stderr) => Filter::Stderr,
    }
}

/// The page of a slice with its bytes.
fn bytes(slice: Slice) -> Page {
    Page {
        from: slice.from,
        next: slice.next,
        end: slice.end,
        lost: slice.lost,
        base64: Some(base64::engine::general_purpose::STANDARD.encode(&slice.bytes)),
        eof: slice.eof,
        ..Page::default()
    }
}

/// One page. `last`: an unfinished character at the end will not be finished any more.
fn page(log: &Log, since: u64, max: usize, filter: Filter, raw: bool, last: bool) -> Page {
    let runs = |runs: Vec<(u8, u32)>| {
        // All standard output needs no runs.
        let plain = runs.iter().all(|(stream, _)| *stream == 0);
        if plain {
            Vec::new()
        } else {
            runs.into_iter()
                .map(|(s, n)| (s + 1, u64::from(n)))
                .collect()
        }
    };
    if raw {
        let slice = log.read(since, max.max(1), filter);
        return Page {
            runs: runs(slice.runs.clone()),
            ..bytes(slice)
        };
    }
    let text = log.text(since, max, filter, last);
    Page {
        from: text.from,
        next: text.next,
        end: text.end,
        lost: text.lost,
        text: Some(text.text),
        base64: None,
        replaced: text.replaced,
        runs: runs(text.runs),
        eof: text.eof,
        lines: Vec::new(),
    }
}

/// One page of text as a person sees it. It ends before a sequence or a character that goes on behind it.
fn plain_page(job: &Job, since: u64, max: usize, filter: Filter, last: bool) -> Page {
    let mut slice = match filter {
        // What a line was handed over with is seen by nobody.
        Filter::All => job.face.echoes.read(&job.log, since, max.max(1)),
        _ => job.log.read(since, max.max(1), filter),
    };
    let length = slice.bytes.len();
    // With a filter nobody knows what stands between the last bytes and `next`.
    let whole = last && slice.next == slice.end;
    if !whole && filter == Filter::All {
        let character = match std::str::from_utf8(&slice.bytes[length - length.min(4)..]) {
            Err(e) if e.error_len().is_none() => length.min(4) - e.valid_up_to(),
            _ => 0,
        };
        let cut = text::unfinished(&slice.bytes).max(character);
        if cut < length {
            slice.bytes.truncate(length - cut);
            slice.next -= cut as u64;
            slice.eof &= cut == 0;
        }
    }
    plain(&slice, text::plain(&slice.bytes))
}

/// The page of a slice with this text of it.
fn plain(slice: &Slice, text: String) -> Page {
    let invalid = |chunk: std::str::Utf8Chunk<'_>| !chunk.invalid().is_empty();
    let replaced = slice.bytes.utf8_chunks().filter(|c| invalid(c.clone()));
    Page {
        from: slice.from,
        next: slice.next,
        end: slice.end,
        lost: slice.lost,
        text: Some(text),
        replaced: replaced.count() as u64,
        eof: slice.eof,
        ..Page::default()
    }
}

impl Serve for JobRead {
    async fn serve(caller: Caller, params: Read) -> Result<Page, Refusal> {
        within("max", params.max, 0, limits::PAGE_MAX)?;
        within("waitMs", params.wait_ms, 0, limits::WAIT_MAX)?;
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        job.saw_reader();
        let max = params.max.unwrap_or(limits::page());
        if let Some(found) = Matching::of(&params, max)? {
            return Ok(found.page(&job, params.since.unwrap_or(0)).await);
        }
        if params.strict && params.raw {
            return Err(Refusal::bad("strict", "and `raw` exclude each other"));
        }
        if params.plain && params.raw {
            return Err(Refusal::bad("plain", "and `raw` exclude each other"));
        }
        let strict = params.strict;
        let since = params.since.unwrap_or_else(|| newest(&job.log, max));
        let filter = filter(params.stream);
        let look = || {
            let (log, max) = (&job.log, max as usize);
            let last = job.status().finished.is_some();
            if params.plain {
                plain_page(&job, since, max, filter, last)
            } else {
                page(log, since, max, filter, params.raw, last)
            }
        };
        let mut news = job.log.subscribe();
        let mut status = job.watch();
        let patience = tokio::time::sleep(Duration::from_millis(params.wait_ms.unwrap_or(0)));
        tokio::pin!(patience);
        loop {
            let page = look();
            let found = page.next > since || page.lost > 0 || page.eof || since > page.end;
            if found || params.wait_ms.is_none() || job.status().over {
                let page = decodable(page, strict)?;
                if page.eof {
                    claim::told(&caller, &job);
                }
                return Ok(page);
            }
            tokio::select! {
                Ok(()) = news.changed() => {}
                Ok(()) = status.changed() => {}
                () = &mut patience => return decodable(look(), strict),
            }
        }
    }
}

/// Whoever asked for strict text gets text or nothing.
fn decodable(page: Page, strict: bool) -> Result<Page, Refusal> {
    if !strict || page.replaced == 0 {
        return Ok(page);
    }
    let words = format!(
        "{} of the bytes from {} to {} are no UTF-8",
        page.replaced, page.from, page.next
    );
    Err(Refusal::new(RefusalKind::Undecodable, words)
        .with("from", page.from)
        .with("next", page.next)
        .with("replaced", page.replaced)
        .hint("read with `raw` for the bytes, or without `strict`"))
}

/// Streams a log to one client: reserves a place first, reads at its cursor afterwards.
pub(super) struct Follower {
    job: Arc<Job>,
    outbox: Outbox,
    token: Value,
    filter: Filter,
    raw: bool,
    plain: Option<Plain>,
    /// As people see a terminal.
    dressed: bool,
    pub(super) cursor: u64,
}

/// Text as a person sees it, of a stream.
struct Plain {
    folder: Folder,
    /// Where the line begins that has no end yet: who takes the stream up again does it there.
    line: u64,
}

impl Plain {
    fn new(cursor: u64) -> Self {
        Self {
            folder: Folder::new(1),
            line: cursor,
        }
    }

    fn page(&mut self, log: &Log, since: u64, max: usize, filter: Filter) -> Page {
        let slice = log.read(since, max, filter);
        let text = self.folder.push(&slice.bytes);
        match slice.bytes.iter().rposition(|b| *b == b'\n') {
            Some(at) if filter == Filter::All => {
                self.line = slice.next - (slice.bytes.len() - at - 1) as u64;
            }
            Some(_) => self.line = slice.next,
            None => {}
        }
        plain(&slice, text)
    }
}

impl Follower {
    pub(super) fn new(
        caller: &Caller,
        job: &Arc<Job>,
        token: Value,
        filter: Filter,
        raw: bool,
        cursor: u64,
    ) -> Self {
        Self {
            job: Arc::clone(job),
            outbox: caller.outbox().clone(),
            token,
            filter,
            raw,
            plain: None,
            dressed: false,
            cursor,
        }
    }

    /// Tells what people see of a terminal.
    pub(super) fn dressed(mut self) -> Self {
        self.dressed = true;
        self
    }

    /// Tells text as a person sees it.
    fn plain(mut self, plain: bool) -> Self {
        self.plain = plain.then(|| Plain::new(self.cursor));
        self
    }

    /// Tells what has no line end, when nothing follows any more.
    async fn finish(&mut self) -> Result<(), Gone> {
        let Some(plain) = self.plain.take() else {
            return Ok(());
        };
        let page = Page {
            from: plain.line,
            next: self.cursor,
            end: self.job.log.end(),
            text: Some(plain.folder.finish()),
            ..Page::default()
        };
        if page.text.as_deref() != Some("") {
            self.send(&Progress::Page(page)).await?;
        }
        Ok(())
    }

    pub(super) async fn send(&self, value: &Progress) -> Result<(), Gone> {
        self.outbox.reserve().await?.send(&self.notification(value));
        Ok(())
    }

    fn notification<'a>(&'a self, value: &'a Progress) -> Notification<'a> {
        Notification::of(&self.token, value)
    }

    /// Streams until the job's result stands and all that belongs to it is told.
    pub(super) async fn follow(&mut self) -> Result<(), Gone> {
        let mut news = self.job.log.subscribe();
        let mut status = self.job.watch();
        loop {
            // The status first: what is read afterwards holds at least the output up to it.
            let until = status
                .borrow_and_update()
                .finished
                .as_ref()
                .map(|f| f.at_exit);
            news.mark_unchanged();
            if self.tell(until).await? {
                continue;
            }
            if until.is_some() {
                return Ok(());
            }
            tokio::select! {
                Ok(()) = news.changed() => {}
                Ok(()) = status.changed() => {}
            }
        }
    }

    /// Streams what is there now.
    async fn drain(&mut self) -> Result<(), Gone> {
        let end = self.job.log.end();
        while self.tell(Some(end)).await? {}
        Ok(())
    }

    /// Tells one page, up to `until` if that is given; false when there is nothing to tell.
    async fn tell(&mut self, until: Option<u64>) -> Result<bool, Gone> {
        let end = until.unwrap_or_else(|| self.job.log.end());
        if self.cursor >= end {
            return Ok(false);
        }
        let place = self.outbox.reserve().await?;
        let max = (end - self.cursor).min(limits::TAIL_FRAME) as usize;
        let (log, since) = (&self.job.log, self.cursor);
        let mut page = match &mut self.plain {
            Some(plain) => plain.page(log, since, max, self.filter),
            None if self.dressed => bytes(self.job.face.echoes.read(log, since, max)),
            None => page(log, since, max, self.filter, self.raw, until.is_some()),
        };
        if page.next <= self.cursor {
            return Ok(false);
        }
        self.cursor = page.next;
        if let Some(plain) = &self.plain {
            page.next = plain.line;
        }
        let empty = page.lost == 0 && page.text.as_deref().or(page.base64.as_deref()) == Some("");
        if !empty {
            place.send(&self.notification(&Progress::Page(page)));
        }
        Ok(true)
    }
}

impl Serve for JobTail {
    async fn serve(caller: Caller, params: Tail) -> Result<TailEnd, Refusal> {
        let token = super::token(params.partial_result_token)?;
        let job = caller.house().registry.find(
            params.session.as_deref(),
            &params.id,
            &caller.access(),
        )?;
        job.saw_reader();
        if params.plain && params.raw {
            return Err(Refusal::bad("plain", "and `raw` exclude each other"));
        }
        let filter = filter(params.stream);
        let since = match (params.since, params.lines) {
            (Some(_), Some(_)) => {
                return Err(Refusal::bad("lines", "and `since` exclude each other"));
            }
            (Some(since), None) => since,
            (None, Some(n)) => last_lines(&job.log, n, filter).await,
            (None, None) if params.follow => newest(&job.log, limits::page()),
            (None, None) => job.oldest(),
        };
        let since = since.min(job.log.end());
        let follower = Follower::new(&caller, &job, token, filter, params.raw, since);
        let mut follower = follower.plain(params.plain);
        let told = async {
            if params.follow {
                follower.follow().await?;
            } else {
                follower.drain().await?;
            }
            follower.finish().await
        };
        let told = told.await;
        told.map_err(|_| Refusal::new(RefusalKind::Cancelled, "the client is gone"))?;
        let row = job.row();
        if row.is_over() && follower.cursor >= job.log.end() {
            claim::told(&caller, &job);
        }
        Ok(TailEnd {
            next: follower.cursor,
            row,
        })
    }
}

/// `ostler.tail` without a token: the text in one page, with `follow` when the job is over.
pub(super) async fn tailed(caller: &Caller, tail: TailCommand) -> Result<Tailed, Refusal> {
    if tail.plain && tail.raw {
        return Err(Refusal::bad("plain", "and `raw` exclude each other"));
    }
    let registry = &caller.house().registry;
    let job = registry.find(tail.session.as_deref(), &tail.id, &caller.access())?;
    job.saw_reader();
    let filter = filter(tail.stream);
    let since = match (tail.since, tail.lines) {
        (Some(_), Some(_)) => return Err(Refusal::bad("lines", "and `since` exclude each other")),
        (Some(since), None) => since,
        (None, Some(n)) => last_lines(&job.log, n, filter).await,
        (None, None) => newest(&job.log, limits::page()),
    };
    if tail.follow {
        let mut status = job.watch();
        // The sender lives in the job that we hold.
        let _ = status.wait_for(|s| s.finished.is_some()).await;
    }
    let over = job.status().finished.is_some();
    let max = limits::PAGE_MAX as usize;
    let page = if tail.plain {
        plain_page(&job, since, max, filter, over)
    } else {
        page(&job.log, since, max, filter, tail.raw, over)
    };
    let row = job.row();
    if row.is_over() && page.next == page.end {
        claim::told(caller, &job);
    }
    Ok(Tailed {
        next: page.next,
        page: Some(page),
        row,
    })
}
