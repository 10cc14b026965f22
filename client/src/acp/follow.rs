//! Tells the editor of the output of a terminal that it is shown: at its own pace, and never of more than it can take.

use std::sync::Arc;
use std::time::Duration;

use ostler::Error;
use ostler_proto::acp::ExitStatus;
use ostler_proto::job::Page;
use ostler_proto::limits;
use ostler_proto::methods::{JobRead, Read, TerminalOutput, TerminalWaitForExit};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::display::Look;
use super::ends::{Gone, Outlet};
use super::session::{Opened, Session};

/// A pause after each update, for an editor that draws it.
fn pause(look: Look) -> Duration {
    match look {
        Look::Terminal => Duration::from_millis(50),
        // Each of them has the whole text.
        Look::Text => Duration::from_millis(500),
    }
}

/// One terminal that the editor is shown.
pub(super) struct Following {
    pub(super) session: Arc<Session>,
    pub(super) opened: Opened,
    pub(super) id: String,
    pub(super) look: Look,
    pub(super) editor: Outlet,
}

impl Following {
    /// Goes on until the terminal has ended and all is told.
    pub(super) async fn run(self, done: watch::Sender<bool>) {
        let status = match self.tell_output().await {
            Ok(Ok(status)) => status,
            // It was forgotten, or nobody can be asked: nothing more will come.
            Ok(Err(_)) => ExitStatus::default(),
            Err(Gone) => return,
        };
        let updates = self.session.display().ended(self.look, &self.id, status);
        let _ = self.send(updates).await;
        let _ = done.send(true);
    }

    async fn tell_output(&self) -> Result<Result<ExitStatus, Error>, Gone> {
        let mut ended = Box::pin(self.opened.ask::<TerminalWaitForExit>(&self.id));
        let (mut cursor, mut status) = (0, None);
        loop {
            let wait_ms = status.is_none().then_some(limits::WAIT_MAX);
            let page = tokio::select! {
                page = self.read(cursor, wait_ms) => Some(page),
                told = &mut ended, if status.is_none() => {
                    status = Some(told);
                    None
                }
            };
            let page = match page {
                Some(Ok(page)) => page,
                Some(Err(error)) => return Ok(Err(error)),
                None => continue,
            };
            let (text, next) = told(&page);
            let more = next > cursor;
            cursor = next;
            if !text.is_empty() {
                let updates = {
                    let mut display = self.session.display();
                    display.printed(self.look, &self.id, &text, status.is_some())
                };
                self.send(updates).await?;
            }
            if let Some(status) = status.take_if(|_| !more || cursor >= page.end) {
                if cursor == 0 {
                    self.tell_failure().await?;
                }
                return Ok(status);
            }
            if more && status.is_none() {
                tokio::select! {
                    () = tokio::time::sleep(pause(self.look)) => {}
                    told = &mut ended => status = Some(told),
                }
            }
        }
    }

    /// What could not be executed has printed nothing, and says why.
    async fn tell_failure(&self) -> Result<(), Gone> {
        let output = self.opened.ask::<TerminalOutput>(&self.id).await;
        let text = output.map(|output| output.output).unwrap_or_default();
        if text.is_empty() {
            return Ok(());
        }
        let updates = self
            .session
            .display()
            .printed(self.look, &self.id, &text, true);
        self.send(updates).await
    }

    async fn read(&self, since: u64, wait_ms: Option<u64>) -> Result<Page, Error> {
        let read = Read {
            id: self.id.clone(),
            since: Some(since),
            max: Some(limits::acp::PAGE),
            wait_ms,
            ..Read::default()
        };
        self.opened.client.ask::<JobRead>(read).await
    }

    async fn send(&self, updates: Vec<Value>) -> Result<(), Gone> {
        for update in updates {
            self.editor.send(line(&self.session.id, &update)).await?;
        }
        Ok(())
    }
}

/// What is told of a page, and where to go on.
fn told(page: &Page) -> (String, u64) {
    let mut text = String::new();
    if page.lost > 0 {
        text += &left_out(page.lost);
    }
    text += page.text.as_deref().unwrap_or_default();
    if page.end - page.next <= limits::acp::BEHIND {
        return (text, page.next);
    }
    let next = page.end - limits::acp::PAGE;
    text += &left_out(next - page.next);
    (text, next)
}

fn left_out(bytes: u64) -> String {
    format!("\n[{bytes} bytes are left out here]\n")
}

/// An update of a session.
pub(super) fn line(session: &str, update: &Value) -> Vec<u8> {
    let params = json!({ "sessionId": session, "update": update });
    let message = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
    format!("{message}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_far_behind_is_told_what_is_left_out() {
        let page = |end| Page {
            next: 10,
            end,
            text: Some("abc".into()),
            ..Page::default()
        };
        assert_eq!(told(&page(20)), ("abc".into(), 10));
        let (text, next) = told(&page(1_000_000));
        assert_eq!(next, 1_000_000 - limits::acp::PAGE);
        assert!(text.contains("967222 bytes"), "{text}");
    }
}
