//! What stands in the configuration of a client so that it starts `ostler mcp`. Pure.

use serde_json::json;

/// Clients whose configuration is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// opencode.
    Opencode,
    /// Any other one that reads `mcpServers`.
    Json,
}

/// Returns what to paste, or to run.
pub(crate) fn text(client: For, program: &str, args: &[String]) -> String {
    let quoted: Vec<String> = std::iter::once(program)
        .chain(args.iter().map(String::as_str))
        .map(quoted)
        .collect();
    let command = quoted.join(" ");
    match client {
        For::Claude => format!("claude mcp add ostler -- {command}\n"),
        For::Gemini => format!("gemini mcp add ostler {command}\n"),
        For::Codex => {
            let args: Vec<String> = args.iter().map(|a| toml_text(a)).collect();
            format!(
                "# ~/.codex/config.toml\n[mcp_servers.ostler]\ncommand = {}\nargs = [{}]\n",
                toml_text(program),
                args.join(", ")
            )
        }
        For::Opencode => {
            let all: Vec<&str> = std::iter::once(program)
                .chain(args.iter().map(String::as_str))
                .collect();
            pretty(&json!({
                "$schema": "https://opencode.ai/config.json",
                "mcp": {"ostler": {"type": "local", "command": all, "enabled": true}}
            }))
        }
        For::Json => pretty(&json!({
            "mcpServers": {"ostler": {"command": program, "args": args}}
        })),
    }
}

fn pretty(json: &serde_json::Value) -> String {
    // Plain data with text for keys.
    serde_json::to_string_pretty(json).unwrap_or_default() + "\n"
}

/// As TOML has it; its texts and those of JSON are written alike.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(client: For) -> String {
        text(
            client,
            "ostler",
            &["mcp".into(), "--tools".into(), "epoch".into()],
        )
    }

    #[test]
    fn each_client_is_told_in_its_own_form() {
        assert_eq!(
            of(For::Claude),
            "claude mcp add ostler -- ostler mcp --tools epoch\n"
        );
        assert_eq!(
            of(For::Gemini),
            "gemini mcp add ostler ostler mcp --tools epoch\n"
        );
        assert_eq!(
            of(For::Codex),
            "# ~/.codex/config.toml\n[mcp_servers.ostler]\ncommand = \"ostler\"\nargs = [\"mcp\", \"--tools\", \"epoch\"]\n"
        );
        let opencode: serde_json::Value = serde_json::from_str(&of(For::Opencode)).unwrap();
        assert_eq!(opencode["mcp"]["ostler"]["command"][1], "mcp");
        let json: serde_json::Value = serde_json::from_str(&of(For::Json)).unwrap();
        assert_eq!(json["mcpServers"]["ostler"]["command"], "ostler");
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
    }
}
