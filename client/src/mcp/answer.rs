//! What a tool answers: facts of jobs, once as text and once as JSON, each of them whole. Pure.
//!
//! Text of a job, in this order: what is lost before it, its output, markers, notices, the status line. The status line
//! is always ours, always one and always last, so that nothing a program prints can pass for it.

use serde::Serialize;

use super::{notices::Shows, words};

/// What is said of one job. The order of the fields is that of the JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct Block {
    /// Short id.
    pub(crate) id: String,
    /// What it is; in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    /// What is true of it.
    pub(crate) state: &'static str,
    /// How it ended, where a code does not say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<&'static str>,
    /// Exit code: of the job, in a shell of its last line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) code: Option<i64>,
    /// Signal of which it died.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signal: Option<String>,
    /// Why the call returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<&'static str>,
    /// How long it has run, or ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    /// What was asked to run; in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<String>,
    /// Directory of a shell, where it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// Ports on which its tree listens.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) ports: Vec<u16>,
    /// Where the output begins, when that is not what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) since: Option<u64>,
    /// Cursor to read on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<u64>,
    /// Bytes before the output that are gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lost: Option<u64>,
    /// Bytes of the output that are left out here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cut: Option<u64>,
    /// Facts that have no field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    /// What it printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    /// What never changes.
    #[serde(skip)]
    pub(crate) process_id: String,
    /// Id and state, as the status line has them: `t1 exited 0 in 0.1s`.
    #[serde(skip)]
    pub(crate) phrase: String,
    /// What follows in the status line.
    #[serde(skip)]
    pub(crate) facts: Vec<String>,
    /// What to call next.
    #[serde(skip)]
    pub(crate) hint: Option<String>,
    /// Lines of their own below the output, without brackets.
    #[serde(skip)]
    pub(crate) markers: Vec<String>,
    /// How many bytes of `output` stand before what is left out.
    #[serde(skip)]
    pub(crate) head: usize,
    /// A shell in which a line runs.
    #[serde(skip)]
    pub(crate) is_busy: bool,
    /// `phrase` is a row of a list; it has no brackets.
    #[serde(skip)]
    pub(crate) is_row: bool,
    /// The status line ends with the id, and does not begin with it.
    #[serde(skip)]
    pub(crate) id_last: bool,
    /// Words in place of `N bytes cut`.
    #[serde(skip)]
    pub(crate) cut_words: Option<String>,
}

/// What a tool answers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    /// The jobs that it is about.
    pub(crate) blocks: Vec<Block>,
    /// The last line of a list, without brackets.
    pub(crate) list: Option<String>,
    /// What is told besides, each a line without brackets.
    pub(crate) notices: Vec<String>,
    /// What to call next.
    pub(crate) hint: Option<String>,
    /// The tool has failed; there is no JSON then.
    pub(crate) is_error: bool,
    /// Words instead of blocks: of an error.
    pub(crate) words: Option<String>,
    /// A short result keeps the end of the output, not its beginning.
    pub(crate) keeps_tail: bool,
    /// Another set's JSON in place of ours; it has `notices` and output fields of its own.
    pub(crate) json: Option<serde_json::Value>,
    /// Text that is not followed by status lines of ours: of the set `dsh`.
    pub(crate) plain: Option<Plain>,
    /// Printed by a program that nobody vouches for.
    pub(crate) untrusted: bool,
    /// Jobs whose end it shows, besides those of the blocks.
    pub(crate) ended: Vec<String>,
    /// Jobs that it shows alive, besides those of the blocks.
    pub(crate) live: Vec<String>,
}

/// Text with last lines of its own.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Plain {
    /// Cut first.
    pub(crate) body: String,
    /// Lines behind it, kept as long as possible; the last one as the very last.
    pub(crate) last: Vec<String>,
    /// Fields of the JSON that hold the body, or parts of it.
    pub(crate) fields: &'static [&'static str],
    /// It is told already that something is left out, and where all of it is: a second mark would say less.
    pub(crate) is_marked: bool,
}

impl Plain {
    /// A text of it of at most so many bytes.
    fn clipped(&self, text: &str, most: usize, keeps_tail: bool) -> String {
        match (self.is_marked, keeps_tail) {
            (false, _) => clipped(text, 0, most, keeps_tail),
            (true, true) => {
                text[text.ceil_char_boundary(text.len().saturating_sub(most))..].to_owned()
            }
            (true, false) => text[..text.floor_char_boundary(most)].to_owned(),
        }
    }
}

/// How much of an answer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Level {
    /// Bytes of each output.
    output: usize,
    markers: bool,
    notices: bool,
    facts: usize,
}

const WHOLE: Level = Level {
    output: usize::MAX,
    markers: true,
    notices: true,
    facts: usize::MAX,
};

/// An answer as it goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// For people and for clients that show text.
    pub(crate) text: String,
    /// For clients that show JSON; none for errors.
    pub(crate) json: Option<String>,
    /// The notices are in it.
    pub(crate) notices: bool,
}

#[derive(Serialize)]
struct Json<'a> {
    jobs: Vec<Block>,
    #[serde(skip_serializing_if = "<[&str]>::is_empty")]
    notices: &'a [&'a str],
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a String>,
}

#[derive(Serialize)]
struct Least<'a> {
    jobs: Vec<LeastJob<'a>>,
}

#[derive(Serialize)]
struct LeastJob<'a> {
    id: &'a str,
    state: &'a str,
}

impl Answer {
    /// Which jobs it shows, and how.
    pub(crate) fn shows(&self) -> Shows {
        let of = |over: bool, besides: &[String]| {
            let blocks = self.blocks.iter().filter(|b| (b.state == "exited") == over);
            let blocks = blocks.map(|b| b.process_id.clone());
            blocks.chain(besides.iter().cloned()).collect()
        };
        Shows {
            ended: of(true, &self.ended),
            live: of(false, &self.live),
            busy: self
                .blocks
                .iter()
                .filter(|b| b.is_busy)
                .map(|b| b.process_id.clone())
                .collect(),
        }
    }

    /// An error: words and nothing else.
    pub(crate) fn error(words: impl Into<String>) -> Self {
        Self {
            words: Some(words.into()),
            is_error: true,
            ..Self::default()
        }
    }

    /// Words about a job that has not come to run: they tell its end.
    pub(crate) fn never_ran(words: String, process_id: &str) -> Self {
        Self {
            ended: vec![process_id.to_owned()],
            ..Self::error(words)
        }
    }

    /// Puts it into so many bytes, text and JSON each. Parts go in this order: output, markers, notices, facts from the
    /// right. Id and state never go.
    pub(crate) fn fit(&self, most: usize) -> Told {
        let told = self.fit_with(most, true);
        if told.notices {
            return told;
        }
        // Told in both, or in neither.
        self.fit_with(most, false)
    }

    fn fit_with(&self, most: usize, notices: bool) -> Told {
        let text = self.fit_text(most, notices);
        let json = (!self.is_error).then(|| self.fit_json(most, notices));
        Told {
            notices: text.notices && json.as_ref().is_none_or(|json| json.notices),
            text: text.text,
            json: json.map(|json| json.text),
        }
    }

    fn fit_text(&self, most: usize, notices: bool) -> Fitted {
        let mut levels = vec![
            WHOLE,
            Level {
                markers: false,
                ..WHOLE
            },
        ];
        let facts = self.blocks.iter().map(|b| b.facts.len() + 1).max();
        let facts = (0..=facts.unwrap_or(0)).rev().map(|facts| Level {
            markers: false,
            notices: false,
            facts,
            ..WHOLE
        });
        levels.extend(facts);
        let fitted = fitted(most, notices, &levels, |level| self.text(level));
        fitted.unwrap_or_else(|| Fitted {
            text: self.least_text(most),
            notices: false,
        })
    }

    /// Nothing but ids and states.
    fn least_text(&self, most: usize) -> String {
        if let Some(words) = &self.words {
            return words::cut(words, most);
        }
        if let Some(plain) = &self.plain {
            let last = plain.last.last().map_or("", String::as_str);
            return bracketed_cut(last, most);
        }
        if let ([block], None) = (self.blocks.as_slice(), &self.list) {
            return bracketed_cut(&format!("[{}]", block.phrase), most);
        }
        let all: Vec<String> = self
            .blocks
            .iter()
            .map(|b| format!("{} {}", b.id, b.state))
            .collect();
        bracketed_cut(&format!("[{}]", all.join(", ")), most)
    }

    fn text(&self, level: Level) -> String {
        let mut out = Lines::default();
        if let Some(words) = &self.words {
            out.line(words);
            self.notices_into(&mut out, level);
            return out.text;
        }
        if let Some(plain) = &self.plain {
            out.block(&plain.clipped(&plain.body, level.output, self.keeps_tail));
            self.notices_into(&mut out, level);
            plain.last.iter().for_each(|line| out.line(line));
            return out.text;
        }
        let several = self.blocks.len() > 1 && self.list.is_none();
        let last = self.blocks.len().saturating_sub(1);
        for (i, block) in self.blocks.iter().enumerate() {
            block.body_into(&mut out, level, several, self.keeps_tail);
            if i == last && self.list.is_none() {
                self.notices_into(&mut out, level);
            }
            out.line(&block.status(level.facts));
        }
        if let Some(list) = &self.list {
            self.notices_into(&mut out, level);
            out.line(&format!("[{list}]"));
        }
        out.text
    }

    fn notices_into(&self, out: &mut Lines, level: Level) {
        if level.notices {
            for notice in &self.notices {
                out.line(&format!("[{notice}]"));
            }
        }
    }

    fn fit_json(&self, most: usize, notices: bool) -> Fitted {
        let levels = [
            WHOLE,
            Level {
                markers: false,
                ..WHOLE
            },
            Level {
                markers: false,
                notices: false,
                ..WHOLE
            },
        ];
        let fitted = match &self.json {
            Some(json) => fitted(most, notices, &levels, |level| self.other_json(json, level)),
            None => fitted(most, notices, &levels, |level| self.to_json(level)),
        };
        fitted.unwrap_or_else(|| Fitted {
            text: match &self.json {
                Some(json) => least_other(json),
                None => self.least_json(most),
            },
            notices: false,
        })
    }

    fn to_json(&self, level: Level) -> String {
        let jobs = self
            .blocks
            .iter()
            .map(|b| b.at(level, self.keeps_tail))
            .collect();
        let notices = self.bare_notices();
        let json = Json {
            jobs,
            notices: if level.notices { &notices } else { &[] },
            hint: self.hint.as_ref().filter(|_| level.markers),
        };
        // Plain data with text for keys.
        serde_json::to_string(&json).unwrap_or_default()
    }

    /// Without the word that tells them from output.
    fn bare_notices(&self) -> Vec<&str> {
        self.notices
            .iter()
            .map(|n| n.strip_prefix("notice: ").unwrap_or(n))
            .collect()
    }

    fn least_json(&self, most: usize) -> String {
        let mut n = self.blocks.len();
        loop {
            let jobs = self.blocks[..n]
                .iter()
                .map(|b| LeastJob {
                    id: &b.id,
                    state: b.state,
                })
                .collect();
            let json = serde_json::to_string(&Least { jobs }).unwrap_or_default();
            if json.len() <= most || n == 0 {
                return json;
            }
            n -= 1;
        }
    }

    /// The JSON of another set: its texts give way, then the notices.
    fn other_json(&self, json: &serde_json::Value, level: Level) -> String {
        let mut json = json.clone();
        if let (Some(plain), Some(map)) = (&self.plain, json.as_object_mut()) {
            for field in plain.fields {
                if let Some(serde_json::Value::String(text)) = map.get_mut(*field) {
                    *text = plain.clipped(text, level.output, self.keeps_tail);
                }
            }
            if level.notices && !self.notices.is_empty() {
                map.insert("notices".into(), self.bare_notices().into());
            }
        }
        json.to_string()
    }
}

/// What tells which job the JSON of another set is about.
fn least_other(json: &serde_json::Value) -> String {
    const IDS: [&str; 4] = ["jobId", "sessionId", "job", "kind"];
    let mut least = serde_json::Map::new();
    if let Some((field, value)) = IDS.iter().find_map(|f| Some((*f, json.get(*f)?))) {
        let value = match value {
            serde_json::Value::Object(job) => {
                serde_json::json!({ "id": job.get("id").cloned().unwrap_or_default() })
            }
            value => value.clone(),
        };
        least.insert(field.into(), value);
    }
    serde_json::Value::Object(least).to_string()
}

/// A text within its bound.
#[derive(Debug)]
struct Fitted {
    text: String,
    /// It has the notices, or there was nothing to tell.
    notices: bool,
}

/// The first level that fits; at each, output gives way before the next one is tried.
fn fitted(
    most: usize,
    notices: bool,
    levels: &[Level],
    make: impl Fn(Level) -> String,
) -> Option<Fitted> {
    for (n, level) in levels.iter().enumerate() {
        let level = Level {
            notices: notices && level.notices,
            ..*level
        };
        let with = |output: usize| make(Level { output, ..level });
        let fitted = |text: String| Fitted {
            text,
            notices: level.notices,
        };
        let bare = with(0);
        if bare.len() > most {
            continue;
        }
        // Only with everything else in its place is there room for output.
        if n == 0 {
            let whole = with(usize::MAX);
            if whole.len() <= most {
                return Some(fitted(whole));
            }
            if let Some(text) = shrink(most - bare.len(), most, with) {
                return Some(fitted(text));
            }
        }
        return Some(fitted(bare));
    }
    None
}

/// The longest text of so many bytes; less output than there would be room for where it grows in JSON.
fn shrink(room: usize, most: usize, make: impl Fn(usize) -> String) -> Option<String> {
    let mut output = room;
    while output > 0 {
        let made = make(output);
        if made.len() <= most {
            return Some(made);
        }
        output -= (made.len() - most).max(1).min(output);
    }
    None
}

/// A status line above the bound ends in `...]`.
fn bracketed_cut(line: &str, most: usize) -> String {
    const END: &str = "...]";
    if line.len() <= most {
        return line.to_owned();
    }
    let end = line.floor_char_boundary(most.saturating_sub(END.len()));
    format!("{}{END}", &line[..end])
}

/// Text of at most so many bytes, with a mark where bytes are missing; where some are missing already, there.
fn clipped(text: &str, cut: u64, most: usize, keeps_tail: bool) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let mark = |missing: u64| format!("[{missing} bytes cut]\n");
    let room = most.saturating_sub(mark(text.len() as u64 + cut).len() + 1);
    if room == 0 {
        return String::new();
    }
    if keeps_tail {
        let from = text.ceil_char_boundary(text.len() - room.min(text.len()));
        return mark(from as u64 + cut) + &text[from..];
    }
    let to = text.floor_char_boundary(room);
    let line = if text[..to].ends_with('\n') { "" } else { "\n" };
    format!(
        "{}{line}{}",
        &text[..to],
        mark((text.len() - to) as u64 + cut).trim_end()
    )
}

impl Block {
    /// Output with the mark of what is left out.
    fn marked(&self) -> Option<String> {
        let text = self.output.as_deref()?;
        let Some(cut) = self.cut.filter(|n| *n > 0) else {
            return Some(text.to_owned());
        };
        let (head, tail) = text.split_at(self.head.min(text.len()));
        let line = if head.is_empty() || head.ends_with('\n') {
            ""
        } else {
            "\n"
        };
        let usual = || format!("{cut} bytes cut");
        let words = self.cut_words.clone().unwrap_or_else(usual);
        Some(format!("{head}{line}[{words}]\n{tail}"))
    }

    /// Output of at most so many bytes. One mark even where something was left out before.
    fn shown(&self, most: usize, keeps_tail: bool) -> Option<String> {
        let marked = self.marked()?;
        if marked.len() <= most {
            return Some(marked);
        }
        let text = self.output.as_deref().unwrap_or_default();
        let cut = self.cut.unwrap_or(0);
        let shown = if keeps_tail && self.head <= text.len() {
            // Of a text with a gap only the part behind it may be left.
            let tail = &text[self.head..];
            if tail.len() <= most {
                clipped(text, cut, most, true)
            } else {
                clipped(tail, cut + self.head as u64, most, true)
            }
        } else {
            clipped(text, cut, most, false)
        };
        Some(shown).filter(|shown| !shown.is_empty())
    }

    fn body_into(&self, out: &mut Lines, level: Level, several: bool, keeps_tail: bool) {
        if level.markers
            && let Some(lost) = self.lost
        {
            out.line(&format!("[{lost} bytes before this are lost]"));
        }
        if let Some(shown) = self
            .shown(level.output, keeps_tail)
            .filter(|s| !s.is_empty())
        {
            if several {
                out.line(&format!("[{} output]", self.id));
            }
            out.block(&shown);
        }
        if level.markers {
            for marker in &self.markers {
                out.line(&format!("[{marker}]"));
            }
        }
    }

    /// `facts`: how many, the hint counted as the last one.
    fn status(&self, facts: usize) -> String {
        if self.is_row {
            return self.phrase.clone();
        }
        let hint = self.hint.as_ref().map(|hint| format!("next: {hint}"));
        let all = self.facts.iter().chain(&hint).take(facts);
        if self.id_last {
            let bare = self.phrase.strip_prefix(&format!("{} ", self.id));
            let bare = bare.unwrap_or(&self.phrase).to_owned();
            let line = all.fold(bare, |line, fact| line + "; " + fact);
            return format!("[{line}; {}]", self.id);
        }
        let line = all.fold(self.phrase.clone(), |line, fact| line + "; " + fact);
        format!("[{line}]")
    }

    fn at(&self, level: Level, keeps_tail: bool) -> Self {
        let mut block = self.clone();
        block.output = self
            .shown(level.output, keeps_tail)
            .filter(|s| !s.is_empty());
        if self.markers_text().is_some() && level.markers {
            block.note = self.markers_text();
        }
        if !level.markers {
            block.command = None;
            block.cwd = None;
            block.ports.clear();
            block.note = None;
        }
        block
    }

    /// Every marker that has no field, and facts that have none.
    fn markers_text(&self) -> Option<String> {
        let note = self.note.iter().cloned();
        let all: Vec<String> = note.chain(self.markers.iter().cloned()).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Text made of whole lines.
#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    /// Adds text as it is; what follows begins on a line of its own.
    fn block(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.end_line();
        self.text += text;
    }

    fn line(&mut self, line: &str) {
        self.end_line();
        self.text += line;
        // The last line of all has no end.
    }

    fn end_line(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

/// One job, and what to do next.
pub(crate) fn single(block: Block) -> Answer {
    Answer {
        hint: block.hint.clone(),
        blocks: vec![block],
        ..Answer::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some<T: std::fmt::Debug + Clone + 'static>(
        of: impl Strategy<Value = T> + 'static,
    ) -> impl Strategy<Value = Option<T>> {
        proptest::option::of(of)
    }

    prop_compose! {
        fn block()(
            id in "[tsax][1-9][0-9]{0,2}",
            output in some("[ -~\n\u{e4}\u{1f600}\\[\\]\"]{0,200}"),
            code in some(0_i64..256),
            lost in some(1_u64..9999),
            cut in some(1_u64..9999),
            ports in proptest::collection::vec(1_u16.., 0..3),
            markers in proptest::collection::vec("[a-z ]{1,20}", 0..3),
            has_hint in any::<bool>(),
        ) -> Block {
            let phrase = match code {
                Some(code) => format!("{id} exited {code} in 0.1s"),
                None => format!("{id} running 0.1s"),
            };
            let facts = super::super::status::listening(&ports);
            Block {
                head: output.as_ref().map_or(0, |o: &String| o.floor_char_boundary(o.len() / 2)),
                cut: cut.filter(|_| output.as_ref().is_some_and(|o| !o.is_empty())),
                hint: has_hint.then(|| format!("output id={id}")),
                state: if code.is_some() { "exited" } else { "running" },
                facts: facts.into_iter().collect(),
                id, output, code, lost, ports, markers, phrase,
                ..Block::default()
            }
        }
    }

    prop_compose! {
        fn answer()(
            blocks in proptest::collection::vec(block(), 1..4),
            notices in proptest::collection::vec("notice: t9 exited [0-9]{1,3} in 1.0s: [a-z]{1,30}", 0..4),
            keeps_tail in any::<bool>(),
        ) -> Answer {
            let hint = match blocks.as_slice() {
                [block] => block.hint.clone(),
                _ => None,
            };
            Answer { blocks, notices, hint, keeps_tail, ..Answer::default() }
        }
    }

    proptest! {
        /// Some clients show the one, some the other.
        #[test]
        fn text_and_json_hold_the_same_facts(answer in answer()) {
            let told = answer.fit(usize::MAX);
            let json: serde_json::Value = serde_json::from_str(told.json.as_deref().unwrap()).unwrap();
            prop_assert_eq!(json["jobs"].as_array().unwrap().len(), answer.blocks.len());
            for (block, job) in answer.blocks.iter().zip(json["jobs"].as_array().unwrap()) {
                let output = job["output"].as_str().unwrap_or_default();
                prop_assert!(told.text.contains(output));
                prop_assert_eq!(output, block.marked().unwrap_or_default());
                let status = block.status(usize::MAX);
                prop_assert!(told.text.contains(&status));
                if let Some(code) = job["code"].as_i64() {
                    let word = format!(" {code} in");
                    prop_assert!(status.contains(&word));
                }
                for port in &block.ports {
                    prop_assert!(status.contains(&port.to_string()));
                    prop_assert!(job["ports"].as_array().unwrap().contains(&(*port).into()));
                }
                for marker in &block.markers {
                    let line = format!("[{marker}]");
                    prop_assert!(told.text.contains(&line));
                    prop_assert!(job["note"].as_str().unwrap().contains(marker.as_str()));
                }
                if let Some(lost) = job["lost"].as_u64() {
                    let line = format!("[{lost} bytes before this are lost]");
                    prop_assert!(told.text.contains(&line));
                }
                if let (Some(hint), Some(top)) = (&block.hint, json["hint"].as_str()) {
                    prop_assert_eq!(hint, top);
                    prop_assert!(status.contains(top));
                }
            }
            for notice in &answer.notices {
                let line = format!("[{notice}]");
                prop_assert!(told.text.contains(&line));
                let bare = notice.strip_prefix("notice: ").unwrap();
                prop_assert!(json["notices"].as_array().unwrap().contains(&bare.into()));
            }
            let last = answer.blocks.last().unwrap().status(usize::MAX);
            prop_assert_eq!(told.text.lines().next_back(), Some(last.as_str()));
        }

        #[test]
        fn a_bound_is_kept_and_the_first_id_never_goes(answer in answer(), most in 64_usize..600) {
            let told = answer.fit(most);
            let json = told.json.unwrap();
            prop_assert!(told.text.len() <= most, "{}", told.text);
            prop_assert!(json.len() <= most, "{}", json);
            prop_assert!(told.text.contains(&answer.blocks[0].id), "{}", told.text);
            let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(parsed["jobs"][0]["id"].as_str(), Some(answer.blocks[0].id.as_str()));
            // Told in both, or in neither.
            for notice in &answer.notices {
                prop_assert_eq!(told.text.contains(notice.as_str()), told.notices);
            }
            prop_assert_eq!(json.contains("\"notices\""), told.notices && !answer.notices.is_empty());
        }
    }

    #[test]
    fn a_status_line_above_the_bound_ends_in_dots() {
        let block = Block {
            id: "t1".into(),
            state: "exited",
            phrase: format!("t1 spawn failed: no such file: {}", "x".repeat(90)),
            ..Block::default()
        };
        let answer = Answer {
            blocks: vec![block],
            ..Answer::default()
        };
        let text = answer.fit(64).text;
        assert_eq!(text.len(), 64);
        assert!(
            text.starts_with("[t1 spawn failed") && text.ends_with("x...]"),
            "{text}"
        );
    }

    #[test]
    fn several_jobs_fall_back_to_their_states() {
        let block = |id: &str| Block {
            id: id.into(),
            state: "running",
            phrase: format!("{id} running 12m22s"),
            output: Some("x".repeat(100)),
            ..Block::default()
        };
        let answer = Answer {
            blocks: ["t1", "t2", "t3", "t4"].map(block).into(),
            ..Answer::default()
        };
        assert_eq!(
            answer.fit(64).text,
            "[t1 running, t2 running, t3 running, t4 running]"
        );
    }
}
