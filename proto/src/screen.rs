//! What is said of a terminal: keys that are pressed, the screen that a person would see, and who sits before it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::job::{Row, Size};

/// `job/keys`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Keys {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Text that is pasted before the keys are pressed: in brackets where the program asked for them, with line ends as
    /// Enter sends them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
    /// Keys in order: `C-c`, `M-x`, `C-Left`, `S-Tab`, `F5`, `Up`, `Enter`, `Space`, or one character.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Longest time to wait for the job to take it all; 5 s when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// `job/screen`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Look {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Tell the colours and the like of each line as well.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub colors: bool,
    /// Lines counted back from the newest one, those that have left the screen included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Back>,
}

/// Some lines, counted from the newest one.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Back {
    /// How many newer ones are left out.
    #[serde(default)]
    pub back: u64,
    /// How many are wanted, 1 to 10,000.
    pub count: u64,
}

/// The screen of a job's terminal.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Screen {
    /// Its window.
    pub size: Size,
    /// The lines from the top, without the blanks at their ends.
    pub rows: Vec<String>,
    /// Where the cursor is.
    pub cursor: Cursor,
    /// Title of the window, if the program gave it one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The program has the whole screen to itself, as editors and pagers do.
    pub alternate: bool,
    /// What the program asked of its terminal.
    pub modes: Modes,
    /// The group in the foreground, where that is not the main process's own: a command of a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<u32>,
    /// How often it rang the bell, as far as the output was looked at.
    pub bells: u64,
    /// Lines that have left the screen and are still known.
    pub history: u64,
    /// The lines that were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Lines>,
    /// Looks of the text, one list a line; where they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub colors: Option<Vec<Vec<Style>>>,
    /// The screen is that of the log up to this offset.
    pub at: u64,
    /// Bytes of older output that it was not made from; the line ends and modes in them are not known.
    pub cut: u64,
}

/// A cursor.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Cursor {
    /// Its line, the first one is 0.
    pub row: u16,
    /// Its column, the first one is 0.
    pub column: u16,
    /// The program shows it.
    pub visible: bool,
    /// `block`, `underline` or `beam`.
    pub shape: String,
}

/// What a program asked of its terminal.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Modes {
    /// Cursor keys send other sequences; `job/keys` does it by itself.
    pub application_cursor: bool,
    /// A paste comes in brackets; `job/keys` does it by itself.
    pub bracketed_paste: bool,
    /// It wants to hear of the mouse.
    pub mouse: bool,
    /// It wants to hear whether its window is in front.
    pub focus: bool,
}

/// Lines, oldest first.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Lines {
    /// All lines that there are.
    pub total: u64,
    /// How many newer ones than these there are.
    pub back: u64,
    /// The lines.
    pub text: Vec<String>,
}

/// How some cells of a line look that do not look plain.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Style {
    /// First column.
    pub column: u16,
    /// How many cells.
    pub cells: u16,
    /// Colour of the text: a name, a number of the palette or `#rrggbb`; absent: the usual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fg: Option<String>,
    /// The same of the ground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bg: Option<String>,
    /// `bold`, `dim`, `italic`, `underline`, `inverse`, `strikeout`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<String>,
}

/// `job/attach`.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Attach {
    /// Owner; the attached session when absent.
    #[serde(default)]
    pub session: Option<String>,
    /// Short id, name or process id.
    pub id: String,
    /// Token of the `$/progress` notifications.
    pub partial_result_token: serde_json::Value,
    /// Lines of the terminal before which the person sits, 1 to 5,000. The job's window follows the newest one.
    pub rows: u16,
    /// Columns of it.
    pub cols: u16,
    /// Look only: the job's window stays as it is, and queries of the program are not answered by this terminal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_only: bool,
    /// Nobody else may type meanwhile; refused with `held` where somebody has it already.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub take: bool,
    /// A name, made up by the client, by which `job/write` and `job/resize` belong to this attach.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seat: Option<String>,
    /// Who it is, for the words that others are told; `client` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The end of an attach: that of the job.
#[derive(Serialize, Deserialize, JsonSchema, Debug, Clone)]
#[serde(rename_all = "camelCase")]
pub struct Attached {
    /// The job.
    pub row: Row,
}
