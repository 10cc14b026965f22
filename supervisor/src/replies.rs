//! What programs ask of their terminal: answers while nobody sits before it, the bell and the title for those who watch.
//!
//! An editor, a pager or a shell that asks and hears nothing waits for seconds. The pump hands every new byte of a
//! terminal to [`listen`], which costs a search for an escape; only a question that is found wakes somebody, and only
//! one about the state of the screen has an emulator made.
//!
//! An answer is typed only where the program reads byte by byte without an echo: a question in the output of `cat` must
//! not end in the next line of the shell.

use std::{sync::Arc, time::Duration};

use ostler_proto::methods::Happened;

use crate::{
    clock,
    job::Job,
    log::Filter,
    terminal::{Found, Query, Scan, Terminal},
};

/// How far behind a question may be and still be heard: who floods does not wait.
const BEHIND: u64 = 256 * 1024;
/// Bytes that are looked at in one go.
const PIECE: usize = 64 * 1024;
/// How long a program may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// A reader of what a terminal shows from now on. What it was asked before by now has no answer; what modes it was
/// given then is still true.
pub(crate) fn begin(job: &Job) -> Scan {
    let mut scan = Scan::from(job.log.end().saturating_sub(BEHIND));
    let found = read(job, &mut scan);
    if let Some(title) = found.title {
        job.face.retitle(title, clock::mono());
    }
    scan
}

/// Reads what is new, and sees to it that questions in it are answered.
pub(crate) fn listen(job: &Arc<Job>, scan: &mut Scan) {
    let Found {
        questions,
        bell,
        title,
    } = read(job, scan);
    let now = clock::mono();
    if title.is_some_and(|title| job.face.retitle(title, now)) {
        job.tell(Happened::Title);
    }
    if bell && job.face.ring(now) {
        job.tell(Happened::Bell);
    }
    // Of a real terminal the answers come by themselves.
    if questions.is_empty() || job.desk.window().is_some() {
        return;
    }
    if job.face.ask(questions) {
        let job = Arc::clone(job);
        tokio::spawn(async move { answer(&job).await });
    }
}

fn read(job: &Job, scan: &mut Scan) -> Found {
    let mut found = Found::default();
    loop {
        let end = job.log.end();
        if end > scan.at() + BEHIND {
            scan.skip_to(end - BEHIND);
        }
        let slice = job.log.read(scan.at(), PIECE, Filter::All);
        if slice.next <= scan.at() {
            return found;
        }
        if slice.lost > 0 {
            scan.skip_to(slice.from);
        }
        scan.read(&slice.bytes, &job.face.modes, &mut found);
    }
}

async fn answer(job: &Job) {
    while let Some((at, query)) = job.face.next() {
        let Some(words) = words(job, at, query).await else {
            continue;
        };
        // At the last moment: the program may have gone on without it, and somebody may have sat down.
        let taken = job.with_terminal(Terminal::takes_answers);
        if taken == Some(true)
            && job.desk.window().is_none()
            && let Some(feed) = &job.feed
        {
            feed.write(words.into_bytes(), false, PATIENCE).await;
        }
    }
}

async fn words(job: &Job, at: u64, query: Query) -> Option<String> {
    let window = job.window();
    if query == Query::Window {
        return Some(format!("\x1b[8;{};{}t", window.rows, window.cols));
    }
    if let Some(words) = query.answer() {
        return Some(words);
    }
    let easel = &job.face.easel;
    // Just behind the question: what the program writes then moves the cursor.
    easel
        .follow(&job.log, &job.face.echoes, window, at)
        .await
        .ok()?;
    easel.with(|screen| match query {
        Query::Cursor { private } => {
            let (row, column) = screen.position();
            let mark = if private { "?" } else { "" };
            format!("\x1b[{mark}{row};{column}R")
        }
        Query::Mode { private, number } => {
            let mark = if private { "?" } else { "" };
            let state = if private { screen.mode(number) } else { 0 };
            format!("\x1b[{mark}{number};{state}$y")
        }
        // They have answers of their own.
        _ => String::new(),
    })
}
