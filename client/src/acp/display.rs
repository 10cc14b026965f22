//! What the editor is shown of terminals that are not its own.
//!
//! The agent refers to a terminal of ours in the content of a tool call; the editor knows none of that id. One that has
//! said `_meta.terminal_output` gets what it builds a terminal from: `terminal_info`, then output to append, then
//! `terminal_exit`. Any other gets the output as text in place of the reference.

use ostler_proto::acp::ExitStatus;
use ostler_proto::id;
use ostler_proto::limits;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::answer::words as words_of;
use super::fields::Fields;
use super::text;
use crate::recent::Recent;

/// What makes up a tool call beside its content.
const HEAD: [&str; 5] = ["title", "kind", "status", "locations", "rawInput"];
/// Room for what stands around the output of a terminal that is shown as text: fences, words, the JSON of its part.
const AROUND: usize = 256;
/// The longest fence.
const FENCE: usize = 32;
/// Length of a whole process id.
const ID: usize = id::PROCESS_PREFIX.len() + 26;

/// How the editor shows terminals of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// By what stands in `_meta`.
    Terminal,
    /// As text.
    Text,
}

/// The last words of a terminal.
#[derive(Debug, Clone)]
pub(super) struct Past {
    pub(super) text: String,
    /// There was more before it.
    pub(super) cut: bool,
    pub(super) status: ExitStatus,
}

struct Terminal {
    line: String,
    cwd: Option<String>,
    /// The tool call in which the editor was told of it.
    told_in: Option<String>,
    text: String,
    cut: bool,
    status: Option<ExitStatus>,
    /// Somebody tells the editor of its output; true when all is told.
    follower: Option<watch::Receiver<bool>>,
}

impl Terminal {
    /// It as text, for people, in so much room: without its output it always fits some hundreds of bytes.
    fn words(&self, room: usize) -> String {
        let line = short(&self.line, room / 4);
        let most = room.saturating_sub(text::length(&line) + AROUND);
        let mut words = format!("$ {line}\n");
        let shown = text::tail(&self.text, most);
        if self.cut || shown.len() < self.text.len() {
            words += "(the beginning is left out)\n";
        }
        words += shown;
        if !words.ends_with('\n') {
            words.push('\n');
        }
        let fence = fence(&words);
        let end = self.status.as_ref().map(words_of).unwrap_or_default();
        format!("{fence}\n{words}{fence}\n{end}")
    }

    fn append(&mut self, text: &str) {
        self.text += text;
        let kept = text::tail(&self.text, limits::acp::TEXT);
        let from = self.text.len() - kept.len();
        if from > 0 {
            // From a line's start, where there is one.
            let line = kept.find('\n').map_or(from, |at| from + at + 1);
            self.text
                .drain(..if line < self.text.len() { line } else { from });
            self.cut = true;
        }
    }
}

/// A command, where it is too long with its end left out.
fn short(line: &str, room: usize) -> String {
    match text::head(line, room) {
        all if all.len() == line.len() => line.to_owned(),
        head => format!("{head}…"),
    }
}

/// A fence that the text does not have. It is no longer than [`FENCE`]: of a program that prints more of both characters in a
/// row the text looks wrong.
fn fence(text: &str) -> String {
    let longest = |mark: char| {
        let runs = text.split(|c| c != mark).map(str::len);
        runs.max().unwrap_or(0)
    };
    let length = |mark| (longest(mark) + 1).max(3);
    let mark = if length('`') > FENCE { '~' } else { '`' };
    mark.to_string().repeat(length(mark).min(FENCE))
}

/// A part of the content of a tool call.
enum Part {
    Theirs(Box<RawValue>),
    /// A terminal that is shown as text.
    Text(String),
}

/// A tool call, as far as it is known.
#[derive(Default)]
struct Call {
    head: Fields,
    /// Its content, where a terminal stands in it as text.
    parts: Vec<Part>,
}

/// What is to be done when a message was rewritten and has been sent.
#[derive(Default)]
pub(super) struct Then {
    /// It is another message now.
    pub(super) changed: bool,
    /// The terminal that the editor is told of by it.
    told: Option<String>,
    /// Updates that follow it.
    pub(super) updates: Vec<Value>,
    /// Terminals whose output the editor is to be told of, with who is told when that is done.
    pub(super) follow: Vec<(String, watch::Sender<bool>)>,
}

/// Terminals and tool calls of a session.
pub(super) struct Display {
    terminals: Recent<Terminal>,
    calls: Recent<Call>,
}

impl Default for Display {
    fn default() -> Self {
        Self {
            terminals: Recent::new(limits::acp::TERMINALS),
            calls: Recent::new(limits::acp::CALLS),
        }
    }
}

impl Display {
    /// A terminal was made.
    pub(super) fn begin(&mut self, id: &str, line: String, cwd: Option<String>) {
        self.terminals.entry(id, || Terminal {
            line,
            cwd,
            told_in: None,
            text: String::new(),
            cut: false,
            status: None,
            follower: None,
        });
    }

    /// Tells whether a terminal was made here, and is not over yet as far as is known.
    pub(super) fn knows(&self, id: &str) -> bool {
        let terminal = self.terminals.get(id);
        terminal.is_some_and(|t| t.status.is_none() || t.follower.is_some())
    }

    /// Those who tell the editor of a terminal.
    pub(super) fn followers(&self, id: &str) -> Vec<watch::Receiver<bool>> {
        let terminal = self.terminals.get(id);
        terminal
            .and_then(|t| t.follower.clone())
            .into_iter()
            .collect()
    }

    /// Its last words, before it is forgotten.
    pub(super) fn end(&mut self, id: &str, past: Past) {
        if let Some(terminal) = self.terminals.get_mut(id) {
            terminal.text.clear();
            terminal.cut = past.cut;
            terminal.append(&past.text);
            terminal.status = Some(past.status);
            terminal.follower = None;
        }
    }

    /// Rewrites what refers to terminals in a tool call. `can_tell`: this message may become the one that tells of a
    /// tool call.
    pub(super) fn rewrite(&mut self, look: Look, call: &mut Fields, can_tell: bool) -> Then {
        let mut then = Then::default();
        let Some(call_id) = call.text("toolCallId") else {
            return then;
        };
        self.note(&call_id, call);
        let Some(content) = call.list("content") else {
            return then;
        };
        let mut parts = Vec::with_capacity(content.len());
        for item in content {
            let may_tell = look == Look::Terminal && can_tell && then.told.is_none();
            parts.push(self.part(look, may_tell, &call_id, item, &mut then));
        }
        let has_text = parts.iter().any(|part| matches!(part, Part::Text(_)));
        if has_text {
            call.set("content", &self.content(&parts));
        }
        let known = self.calls.entry(&call_id, Call::default);
        // What stands in it without being shown as text is nothing that changes.
        known.parts = if has_text { parts } else { Vec::new() };
        let told = then.told.as_ref();
        if let Some((id, terminal)) = told.and_then(|id| Some((id, self.terminals.get(id)?))) {
            tell(call, known, id, terminal);
        }
        then.changed = has_text || then.told.is_some();
        then
    }

    /// Remembers what is said of a tool call beside its content.
    fn note(&mut self, call_id: &str, call: &Fields) {
        let known = self.calls.entry(call_id, Call::default);
        for name in HEAD {
            if let Some(value) = call
                .get(name)
                .filter(|v| v.get().len() <= limits::acp::FIELD)
            {
                known.head.set(name, &value);
            }
        }
    }

    /// What becomes of a part of the content. `may_tell`: the message can be the first to show a terminal.
    fn part(
        &mut self,
        look: Look,
        may_tell: bool,
        call_id: &str,
        item: Box<RawValue>,
        then: &mut Then,
    ) -> Part {
        let Some(id) = referred(&item) else {
            return Part::Theirs(item);
        };
        let Some(terminal) = self.terminals.get_mut(&id) else {
            return Part::Text(id);
        };
        let tells = may_tell && terminal.told_in.is_none();
        if tells {
            terminal.told_in = Some(call_id.to_owned());
            then.told = Some(id.clone());
        }
        if terminal.follower.is_none() && terminal.status.is_none() {
            let (done, follower) = watch::channel(false);
            terminal.follower = Some(follower);
            then.follow.push((id.clone(), done));
        } else if tells {
            then.updates.extend(past(call_id, &id, terminal));
        }
        if look == Look::Terminal && terminal.told_in.is_some() {
            Part::Theirs(item)
        } else {
            Part::Text(id)
        }
    }

    /// Parts as the editor gets them.
    fn content(&self, parts: &[Part]) -> Vec<Box<RawValue>> {
        let is_text = |part: &&Part| matches!(part, Part::Text(_));
        let room = limits::acp::MESSAGE / parts.iter().filter(is_text).count().max(1);
        let shown = parts.iter().filter_map(|part| match part {
            Part::Theirs(item) => Some(item.clone()),
            Part::Text(id) => self.text(id, room.min(limits::acp::TEXT)),
        });
        shown.collect()
    }

    /// A terminal as a part of the content of a tool call, in so much room.
    fn text(&self, id: &str, room: usize) -> Option<Box<RawValue>> {
        let text = match self.terminals.get(id) {
            Some(terminal) => terminal.words(room),
            None => format!("(the output of terminal {id} is not kept any more)"),
        };
        let part = json!({ "type": "content", "content": { "type": "text", "text": text } });
        serde_json::value::to_raw_value(&part).ok()
    }

    /// More output of a terminal: returns the updates by which the editor learns of it. `last`: its end is known, and
    /// is told next.
    pub(super) fn printed(&mut self, look: Look, id: &str, text: &str, last: bool) -> Vec<Value> {
        let Some(terminal) = self.terminals.get_mut(id) else {
            return Vec::new();
        };
        terminal.append(text);
        let told_in = terminal.told_in.clone().filter(|_| look == Look::Terminal);
        let mut updates: Vec<_> = told_in
            .iter()
            .flat_map(|call| appended(call, id, text))
            .collect();
        if !last {
            updates.extend(self.texts(id));
        }
        updates
    }

    /// The end of a terminal, likewise.
    pub(super) fn ended(&mut self, look: Look, id: &str, status: ExitStatus) -> Vec<Value> {
        let Some(terminal) = self.terminals.get_mut(id) else {
            return Vec::new();
        };
        let told_in = terminal.told_in.clone().filter(|_| look == Look::Terminal);
        let mut updates: Vec<_> = told_in
            .map(|call| exited(&call, id, &status))
            .into_iter()
            .collect();
        terminal.status = Some(status);
        updates.extend(self.texts(id));
        updates
    }

    /// Updates of the tool calls in which it stands as text.
    fn texts(&self, id: &str) -> Vec<Value> {
        let calls = self.calls.iter();
        let has = |part: &Part| matches!(part, Part::Text(of) if of == id);
        calls
            .filter(|(_, call)| call.parts.iter().any(has))
            .map(|(call_id, call)| {
                let content = self.content(&call.parts);
                json!({ "sessionUpdate": "tool_call_update", "toolCallId": call_id, "content": content })
            })
            .collect()
    }
}

/// The terminal that a part of the content refers to, if it is one of ours.
fn referred(item: &RawValue) -> Option<String> {
    let item = Fields::read(item.get().as_bytes())?;
    if item.text("type")? != "terminal" {
        return None;
    }
    // By its form: an agent that takes up a session refers to terminals of an earlier one of us.
    let id = item.text("terminalId")?;
    (id.len() == ID && id::is_process_id(&id)).then_some(id)
}

/// Makes a message the one that tells of a tool call, with a terminal in it: only there editors look for that.
fn tell(call: &mut Fields, known: &Call, id: &str, terminal: &Terminal) {
    call.set("sessionUpdate", &"tool_call");
    for name in HEAD {
        if let Some(value) = known.head.get(name) {
            call.add(name, &value);
        }
    }
    call.add("title", &short(&terminal.line, limits::acp::TEXT));
    let mut meta = call.object("_meta").unwrap_or_default();
    let info = json!({ "terminal_id": id, "cwd": terminal.cwd });
    meta.set("terminal_info", &info);
    call.set("_meta", &meta);
}

/// What a terminal that is over has printed, and how it ended.
fn past(call: &str, id: &str, terminal: &Terminal) -> Vec<Value> {
    let ended = terminal
        .status
        .as_ref()
        .map(|status| exited(call, id, status));
    appended(call, id, &terminal.text)
        .into_iter()
        .chain(ended)
        .collect()
}

fn appended(call: &str, id: &str, text: &str) -> Vec<Value> {
    let update = |piece: &str| {
        let meta = json!({ "terminal_output": { "terminal_id": id, "data": piece } });
        json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "_meta": meta })
    };
    let pieces = text::pieces(text, limits::acp::MESSAGE);
    pieces.into_iter().map(update).collect()
}

fn exited(call: &str, id: &str, status: &ExitStatus) -> Value {
    let exit = json!({ "terminal_id": id, "exit_code": status.exit_code, "signal": status.signal });
    json!({ "sessionUpdate": "tool_call_update", "toolCallId": call, "_meta": { "terminal_exit": exit } })
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "proc_01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn call(kind: &str, more: Value) -> Fields {
        let mut call = json!({ "sessionUpdate": kind, "toolCallId": "c",
            "content": [{ "type": "terminal", "terminalId": T }] });
        call.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        Fields::read(call.to_string().as_bytes()).unwrap()
    }

    fn display() -> Display {
        let mut display = Display::default();
        display.begin(T, "ls -l".into(), Some("/x".into()));
        display
    }

    fn text_of(call: &Fields) -> String {
        let content = call.value("content").unwrap();
        content[0]["content"]["text"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_first_reference_tells_of_the_terminal_and_the_next_ones_refer_to_it() {
        let mut display = display();
        let mut first = call("tool_call", json!({ "title": "List", "_meta": { "x": 1 } }));
        let then = display.rewrite(Look::Terminal, &mut first, true);
        assert!(then.changed);
        assert_eq!(then.follow.len(), 1);
        let meta = first.value("_meta").unwrap();
        assert_eq!(
            meta,
            json!({ "x": 1, "terminal_info": { "terminal_id": T, "cwd": "/x" } })
        );
        let mut again = call("tool_call_update", json!({}));
        let then = display.rewrite(Look::Terminal, &mut again, true);
        assert!(!then.changed && then.follow.is_empty() && then.updates.is_empty());
        let updates = display.printed(Look::Terminal, T, "out", false);
        assert_eq!(updates, appended("c", T, "out"));
        let status = ExitStatus {
            exit_code: Some(3),
            signal: None,
        };
        let updates = display.ended(Look::Terminal, T, status);
        assert_eq!(updates[0]["_meta"]["terminal_exit"]["exit_code"], 3);
    }

    /// Kimi tells of the tool call first and of its terminal in an update.
    #[test]
    fn an_update_that_brings_the_terminal_becomes_the_tool_call() {
        let mut display = display();
        let head = json!({ "sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run", "kind": "execute", "status": "pending" });
        let mut head = Fields::read(head.to_string().as_bytes()).unwrap();
        assert!(!display.rewrite(Look::Terminal, &mut head, true).changed);
        let mut update = call("tool_call_update", json!({ "status": "in_progress" }));
        assert!(display.rewrite(Look::Terminal, &mut update, true).changed);
        for (name, value) in [
            ("sessionUpdate", "tool_call"),
            ("title", "Run"),
            ("kind", "execute"),
            ("status", "in_progress"),
        ] {
            assert_eq!(update.text(name).as_deref(), Some(value));
        }
    }

    #[test]
    fn without_the_convention_the_output_stands_as_text_and_is_kept_up() {
        let mut display = display();
        let other = json!({ "type": "content", "content": { "type": "text", "text": "mine" } });
        let more = json!({ "content": [{ "type": "terminal", "terminalId": T }, other] });
        let mut first = call("tool_call", more);
        let then = display.rewrite(Look::Text, &mut first, true);
        assert_eq!((then.changed, then.follow.len()), (true, 1));
        assert_eq!(text_of(&first), "```\n$ ls -l\n```\n");
        let updates = display.printed(Look::Text, T, "a ``` b", false);
        assert_eq!(updates.len(), 1);
        let content = &updates[0]["content"];
        assert_eq!(
            content[0]["content"]["text"],
            "````\n$ ls -l\na ``` b\n````\n"
        );
        assert_eq!(content[1], other);
        let status = ExitStatus {
            exit_code: None,
            signal: Some("SIGKILL".into()),
        };
        let updates = display.ended(Look::Text, T, status);
        let text = updates[0]["content"][0]["content"]["text"]
            .as_str()
            .unwrap();
        assert!(text.ends_with("ended by SIGKILL"), "{text}");
        // Content that does not refer to it any more is not touched.
        let mut plain = call("tool_call_update", json!({ "content": [other] }));
        assert!(!display.rewrite(Look::Text, &mut plain, true).changed);
        assert!(display.printed(Look::Text, T, "late", false).is_empty());
    }

    #[test]
    fn a_reference_after_the_release_shows_what_there_was() {
        let mut display = display();
        let status = ExitStatus {
            exit_code: Some(0),
            signal: None,
        };
        display.end(
            T,
            Past {
                text: "all\n".into(),
                cut: false,
                status,
            },
        );
        let mut late = call("tool_call_update", json!({}));
        let then = display.rewrite(Look::Terminal, &mut late, true);
        assert_eq!((then.updates.len(), then.follow.len()), (2, 0));
        assert_eq!(then.updates[..1], appended("c", T, "all\n"));
        let mut late = call("tool_call_update", json!({}));
        display.rewrite(Look::Text, &mut late, true);
        assert_eq!(text_of(&late), "```\n$ ls -l\nall\n```\nexited with code 0");
    }

    #[test]
    fn terminals_of_the_agent_itself_are_its_own_and_those_of_an_earlier_life_are_told_as_gone() {
        let mut display = Display::default();
        let theirs = json!({ "content": [{ "type": "terminal", "terminalId": "call-1" }] });
        let mut theirs = call("tool_call", theirs);
        assert!(!display.rewrite(Look::Terminal, &mut theirs, true).changed);
        let mut old = call("tool_call", json!({}));
        assert!(display.rewrite(Look::Terminal, &mut old, true).changed);
        assert!(text_of(&old).contains("not kept"));
    }

    /// Many an editor takes no line that is longer than 64 KiB.
    #[test]
    fn many_terminals_in_one_message_share_its_room() {
        for (printed, count) in ["\0\u{fffd}\n", "`", "~`", "\""]
            .iter()
            .flat_map(|printed| [1, 10, 60, 256].map(|count| (printed, count)))
        {
            let mut display = Display::default();
            let ids: Vec<String> = (0..count)
                .map(|n| format!("{}{n:03}", &T[..T.len() - 3]))
                .collect();
            for id in &ids {
                display.begin(id, "\0x".repeat(5_000), None);
                display.printed(Look::Text, id, &printed.repeat(20_000), false);
                let status = ExitStatus {
                    exit_code: None,
                    signal: Some("SIGRTMAX-10".into()),
                };
                display.ended(Look::Text, id, status);
            }
            let content: Vec<Value> = ids
                .iter()
                .map(|id| json!({ "type": "terminal", "terminalId": id }))
                .collect();
            let mut all = call("tool_call", json!({ "content": content }));
            assert!(display.rewrite(Look::Text, &mut all, true).changed);
            let line = serde_json::to_string(&all).unwrap();
            let told = format!("{printed:?} {count}: {} bytes", line.len());
            assert!(line.len() < 64 * 1024, "{told}");
            assert_eq!(line.matches("the beginning is left out").count(), count);
        }
    }

    #[test]
    fn a_fence_is_what_the_text_has_not_and_never_long() {
        for (text, is) in [
            ("x", "```"),
            ("a ``` b", "````"),
            (&*"`".repeat(31), &*"`".repeat(32)),
            (&*"`".repeat(32), "~~~"),
            (&*("`".repeat(90) + &"~".repeat(90)), &*"~".repeat(32)),
        ] {
            assert_eq!(fence(text), is);
        }
    }

    #[test]
    fn a_permission_is_asked_with_text_where_the_terminal_is_not_told_of() {
        let mut display = display();
        let mut asked = call("x", json!({}));
        assert!(display.rewrite(Look::Terminal, &mut asked, false).changed);
        assert!(text_of(&asked).contains("ls -l"));
    }
}
