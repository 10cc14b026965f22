//! The line that a person sees while a command waits: how long it has been, and what the job is doing.
//!
//! It is drawn in place on a terminal and gone when the command says its words. One small request a second is all
//! that it costs the supervisor, whatever is waited for.

use std::time::Duration;

use ostler::Client;
use ostler_proto::job::Page;
use ostler_proto::methods::{JobRead, Read};
use tokio::time::{Instant, sleep, timeout};

use super::output;
use super::scope::Group;
use super::words;

/// A wait that is over before needs no line; afterwards it is drawn this often.
const EVERY: Duration = Duration::from_secs(1);
/// How much of the newest output is looked at for its last line.
const LOOK: u64 = 2 * 1024;

/// What the line is about.
pub(crate) struct Watched {
    /// Its first words: `waiting for web`.
    what: String,
    /// How long is waited at most.
    limit: Option<u64>,
    jobs: Vec<Job>,
}

/// A job whose output is looked at.
struct Job {
    session: Option<String>,
    id: String,
    /// Where its log ended when it was looked at last.
    seen: Option<(Instant, u64)>,
}

impl Watched {
    /// A line that begins with these words, about these jobs; none where they are not known.
    pub(crate) fn new(what: String, limit: Option<u64>, groups: &[Group]) -> Self {
        let jobs = groups.iter().flat_map(|group| {
            group.ids.iter().map(|id| Job {
                session: group.session.clone(),
                id: id.clone(),
                seen: None,
            })
        });
        Self {
            what,
            limit,
            jobs: jobs.collect(),
        }
    }
}

/// Returns `web`, or `3 jobs`.
pub(crate) fn named(ids: &[String]) -> String {
    match ids {
        [one] => one.clone(),
        several => format!("{} jobs", several.len()),
    }
}

/// Awaits the work; the line is drawn meanwhile if it is `wanted` and a person is there to see it.
pub(crate) async fn beside<T>(
    client: &Client,
    wanted: bool,
    watched: Watched,
    work: impl Future<Output = T>,
) -> T {
    if !(wanted && output::line_is_seen()) {
        return work.await;
    }
    let _erased = Erased;
    tokio::select! {
        biased;
        done = work => done,
        never = draw(client, watched) => never,
    }
}

/// Takes the line away, however the wait ends.
struct Erased;

impl Drop for Erased {
    fn drop(&mut self) {
        output::erase_line();
    }
}

async fn draw<T>(client: &Client, mut watched: Watched) -> T {
    let began = Instant::now();
    let mut turn = 0;
    loop {
        sleep(EVERY).await;
        // One job each time, so that many cost no more than one.
        let doing = match watched.jobs.len() {
            0 => None,
            n => {
                turn = (turn + 1) % n;
                let several = n > 1;
                match timeout(EVERY, watched.jobs[turn].look(client)).await {
                    Ok(Some(doing)) if several => {
                        Some(format!("{}: {doing}", watched.jobs[turn].id))
                    }
                    Ok(Some(doing)) => Some(doing),
                    // Over, or nobody who could tell.
                    Ok(None) => {
                        watched.jobs.swap_remove(turn);
                        None
                    }
                    Err(_) => None,
                }
            }
        };
        output::draw_line(&text(&watched, began.elapsed(), doing.as_deref()));
    }
}

/// Returns `waiting for web, 12 s of 30 s, 1.5 KiB/s: last line`.
fn text(watched: &Watched, elapsed: Duration, doing: Option<&str>) -> String {
    let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
    let mut text = format!("{}, {} s", watched.what, ms(elapsed) / 1_000);
    if let Some(limit) = watched.limit {
        text += &format!(" of {}", words::limit(limit));
    }
    if let Some(doing) = doing {
        text += &format!(", {doing}");
    }
    text
}

impl Job {
    /// Returns what it does, or nothing when that cannot be told any more.
    async fn look(&mut self, client: &Client) -> Option<String> {
        let params = Read {
            session: self.session.clone(),
            id: self.id.clone(),
            max: Some(LOOK),
            ..Read::default()
        };
        let page = client.ask::<JobRead>(params).await.ok()?;
        if page.eof {
            return None;
        }
        let now = Instant::now();
        let rate = self.seen.map(|(at, end)| {
            let ms = now.duration_since(at).as_millis().max(1);
            let bytes = u128::from(page.end.saturating_sub(end)) * 1_000 / ms;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        });
        self.seen = Some((now, page.end));
        Some(doing(rate, &page))
    }
}

/// Returns `1.5 KiB/s: last line`.
fn doing(rate: Option<u64>, page: &Page) -> String {
    let amount = match rate {
        Some(rate) => format!("{}/s", words::size(rate)),
        None => format!("{} so far", words::size(page.end)),
    };
    match last_line(page.text.as_deref().unwrap_or("")) {
        "" => amount,
        line => format!("{amount}: {}", plain(line)),
    }
}

/// The last line that has anything on it; of one that is drawn over and over, its newest state.
fn last_line(text: &str) -> &str {
    text.split(['\n', '\r'])
        .map(str::trim)
        .rfind(|line| !line.is_empty())
        .unwrap_or("")
}

/// Returns a line of a job's output without the colours and movements that it has for a terminal.
fn plain(line: &str) -> String {
    words::clean(&anstream::adapter::strip_str(line).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Page {
        Page {
            text: Some(text.into()),
            end: 2_048,
            ..Page::default()
        }
    }

    #[test]
    fn the_line_says_how_long_how_much_and_what() {
        let group = Group {
            session: None,
            ids: vec!["web".into()],
        };
        let watched = Watched::new("waiting for web".into(), Some(30_000), &[group]);
        let line = doing(Some(1_536), &page("one\ntwo\n"));
        assert_eq!(
            text(&watched, Duration::from_millis(12_900), Some(&line)),
            "waiting for web, 12 s of 30 s, 2 KiB/s: two"
        );
        assert_eq!(doing(None, &page("")), "2 KiB so far");
        assert_eq!(named(&["a".into(), "b".into()]), "2 jobs");
    }

    #[test]
    fn a_progress_bar_is_shown_as_it_stands_now() {
        assert_eq!(last_line("10 %\r20 %\r30 %"), "30 %");
        assert_eq!(last_line("done\n\n \r\n"), "done");
        assert_eq!(last_line(""), "");
    }

    #[test]
    fn nothing_of_a_jobs_output_moves_the_cursor() {
        let line = doing(
            None,
            &page("\u{1b}[32mok\u{1b}[0m\u{1b}]0;title\u{7}\u{8}\u{9b}x"),
        );
        assert!(!line.contains(char::is_control), "{line:?}");
        assert!(line.starts_with("2 KiB so far: ok"), "{line:?}");
    }
}
