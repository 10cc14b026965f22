//! The tools of each set as clients are told of them. The files in `tools/` are the contract, byte for byte: nothing in
//! them varies by session, folder, machine or client.

use std::collections::BTreeMap as Map;
use std::sync::Arc;

use ostler_proto::limits;
use serde_json::value::RawValue;

use super::dsh;
use super::names::{self, Names};

/// Which tools there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// Four tools, one a class of permission.
    Compact,
    /// Ten tools in three families.
    Epoch,
    /// Ten tools of another harness.
    Dsh,
    /// The same, jobs by the names that they had before.
    DshOld,
}

const DSH_OUTPUT: &str = include_str!("tools/dsh-output.json");
const OUTPUT: &str = include_str!("tools/output.json");

/// What a class of tools does, for clients that ask before they call: read-only, destructive, idempotent, open world.
#[derive(Debug, Clone, Copy)]
enum Class {
    /// Starts programs.
    Starts,
    /// Types into them.
    Types,
    /// Changes nothing.
    Reads,
    /// Ends what this session started, and nothing else.
    Ends,
}

impl Class {
    fn annotations(self) -> String {
        let hints = match self {
            Self::Starts | Self::Types => {
                r#""readOnlyHint":false,"destructiveHint":true,"idempotentHint":false,"openWorldHint":true"#
            }
            Self::Reads => r#""readOnlyHint":true,"openWorldHint":false"#,
            Self::Ends => {
                r#""readOnlyHint":false,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false"#
            }
        };
        format!("{{{hints}}}")
    }
}

/// A tool.
struct Tool {
    name: &'static str,
    title: &'static str,
    class: Class,
}

const fn tool(name: &'static str, title: &'static str, class: Class) -> Tool {
    Tool { name, title, class }
}

const COMPACT: &[Tool] = &[
    tool("run", "Run a command", Class::Starts),
    tool("output", "Read, wait for or list jobs", Class::Reads),
    tool("input", "Type into a job", Class::Types),
    tool("stop", "Stop jobs", Class::Ends),
];

const EPOCH: &[Tool] = &[
    tool("terminal", "Run a command", Class::Starts),
    tool("task_list", "List jobs", Class::Reads),
    tool("task_output", "Read a job", Class::Reads),
    tool("task_wait", "Wait for a job", Class::Reads),
    tool("task_stop", "Stop a job", Class::Ends),
    tool("shell_open", "Open a shell", Class::Starts),
    tool("shell_send", "Type into a shell", Class::Types),
    tool("shell_read", "Read a shell", Class::Reads),
    tool("shell_list", "List shells", Class::Reads),
    tool("shell_close", "Close a shell", Class::Ends),
];

const DSH: &[Tool] = &[
    tool("bash", "Run a command", Class::Starts),
    tool("job_output", "Read a job", Class::Reads),
    tool("job_list", "List jobs", Class::Reads),
    tool("job_kill", "Stop a job", Class::Ends),
    tool("terminal_open", "Open a terminal", Class::Starts),
    tool("terminal_send", "Type into a terminal", Class::Types),
    tool("terminal_read", "Read a terminal", Class::Reads),
    tool("terminal_signal", "Signal a program", Class::Types),
    tool("terminal_close", "Close a terminal", Class::Ends),
    tool("terminal_list", "List terminals", Class::Reads),
];

impl Set {
    fn tools(self) -> &'static [Tool] {
        match self {
            Self::Compact => COMPACT,
            Self::Epoch => EPOCH,
            Self::Dsh | Self::DshOld => DSH,
        }
    }

    fn written(self) -> &'static str {
        match self {
            Self::Compact => include_str!("tools/compact.json"),
            Self::Epoch => include_str!("tools/epoch.json"),
            Self::Dsh | Self::DshOld => include_str!("tools/dsh.json"),
        }
    }

    /// Names of before are good in the sets that had them.
    fn today(self, name: &str) -> &str {
        match self {
            Self::Dsh | Self::DshOld => dsh::today(name),
            _ => name,
        }
    }

    /// Tells whether there is a tool of this name.
    pub(crate) fn has(self, name: &str) -> bool {
        let today = self.today(name);
        self.tools().iter().any(|t| t.name == today)
    }

    fn class(self, name: &str) -> Option<Class> {
        let today = self.today(name);
        let tool = self.tools().iter().find(|t| t.name == today);
        tool.map(|t| t.class)
    }

    /// Tells whether a tool ends jobs, and nothing else.
    pub(crate) fn ends(self, name: &str) -> bool {
        matches!(self.class(name), Some(Class::Ends))
    }

    /// What has not happened when a call of this tool is refused; nothing of one that only looks.
    pub(crate) fn undone(self, name: &str) -> &'static str {
        match self.class(name) {
            Some(Class::Starts) => " Nothing was started.",
            Some(Class::Types) => " Nothing was sent.",
            Some(Class::Ends) => " Nothing was stopped.",
            Some(Class::Reads) | None => "",
        }
    }

    /// How its tools are called in hints.
    pub(crate) fn names(self) -> Names {
        match self {
            Self::Compact => names::COMPACT,
            Self::Epoch => names::EPOCH,
            Self::Dsh | Self::DshOld => names::DSH,
        }
    }

    /// What the model is told besides.
    pub(crate) fn instructions(self) -> Option<&'static str> {
        match self {
            Self::Compact => Some(
                "For commands that outlive one call: servers, watchers, REPLs, long tests, persistent shells.",
            ),
            Self::Epoch => None,
            Self::Dsh | Self::DshOld => Some(
                "Use a terminal only for state or typing; bash for the rest. Close terminals you no longer need. \
                 inferred_idle and timeout do not prove that a command ended.",
            ),
        }
    }

    /// The list as it goes out, with the bound of waits.
    ///
    /// # Errors
    /// The files are no JSON; a test sees to that.
    pub(crate) fn list(self, max_wait: u64) -> serde_json::Result<Arc<RawValue>> {
        let mut all = Vec::new();
        let others: Map<String, Box<RawValue>> = serde_json::from_str(DSH_OUTPUT)?;
        for definition in objects(&compacted(self.written())) {
            let name = serde_json::from_str::<serde_json::Value>(&definition)?;
            let name = name["name"].as_str().unwrap_or_default().to_owned();
            let Some(tool) = self.tools().iter().find(|t| t.name == name) else {
                continue;
            };
            let output = match self {
                Self::Dsh | Self::DshOld => serde_json::to_string(&others[&name])?,
                _ => compacted(OUTPUT),
            };
            // The last brace is that of the definition; those before it belong to the schema.
            let inner = &definition[..definition.len() - 1];
            all.push(format!(
                "{inner},\"title\":{:?},\"outputSchema\":{},\"annotations\":{}}}",
                tool.title,
                output,
                tool.class.annotations()
            ));
        }
        let mut text = format!("[{}]", all.join(","));
        if self == Self::DshOld {
            for (old, new) in [
                ("task_output", "job_output"),
                ("task_list", "job_list"),
                ("task_kill", "job_kill"),
                ("task_id", "job_id"),
            ] {
                text = text.replace(new, old);
            }
        }
        let default = format!("\"maximum\":{}", limits::TOOL_WAIT / 1_000);
        let text = text.replace(&default, &format!("\"maximum\":{}", max_wait / 1_000));
        Ok(Arc::from(RawValue::from_string(text)?))
    }
}

/// JSON without blanks between its parts, in its own order.
fn compacted(json: &str) -> String {
    let (mut out, mut in_text, mut escaped) = (String::new(), false, false);
    for c in json.chars() {
        if in_text {
            out.push(c);
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else if !c.is_whitespace() {
            in_text = c == '"';
            out.push(c);
        }
    }
    out
}

/// The objects of a list.
fn objects(list: &str) -> Vec<String> {
    let (mut all, mut depth, mut in_text, mut escaped, mut from) = (Vec::new(), 0, false, false, 0);
    for (at, c) in list.char_indices() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
            continue;
        }
        match c {
            '"' => in_text = true,
            '{' => {
                if depth == 0 {
                    from = at;
                }
                depth += 1;
            }
            '}' => {
                depth -= 1;
                if depth == 0 {
                    all.push(list[from..=at].to_owned());
                }
            }
            _ => {}
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_its_definition_and_keeps_the_order_in_which_it_is_written() {
        let list = Set::Compact.list(limits::TOOL_WAIT).unwrap();
        let parsed: serde_json::Value = serde_json::from_str(list.get()).unwrap();
        let names: Vec<&str> = parsed
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["run", "output", "input", "stop"]);
        assert!(
            list.get()
                .starts_with("[{\"name\":\"run\",\"description\":\"Run a shell")
        );
        assert!(list.get().contains("\"cwd\":{\"type\":\"string\""));
    }

    #[test]
    fn the_bound_of_waits_is_that_of_the_schema() {
        let list = Set::Compact.list(120_000).unwrap();
        assert_eq!(list.get().matches("\"maximum\":120").count(), 3);
        assert!(!list.get().contains("\"maximum\":45"));
    }

    #[test]
    fn blanks_inside_texts_stay() {
        assert_eq!(
            compacted("{ \"a b\" : \"c \\\" d\" }"),
            "{\"a b\":\"c \\\" d\"}"
        );
        assert_eq!(objects("[{\"a\":{}},{\"b\":\"}\"}]").len(), 2);
    }
}
