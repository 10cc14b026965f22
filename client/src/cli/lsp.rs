//! `ostler lsp`: the supervisor for editors.

use std::collections::BTreeMap;

use ostler::Mode;
use ostler_proto::editor::EditorOptions;

use super::failure::Failure;
use super::{caller, scope};
use crate::exit;
use crate::lsp::{self, Ended, Setup};
use crate::secret::inherited;

/// Speaks LSP on standard input and output, for editors.
///
/// Starts the supervisor if none runs and outlives its replacement. The editor has a session of its workspace, whose jobs
/// end 5 min after the last window is closed. Variables of the editor whose names look like secrets (KEY, PASSWORD,
/// SECRET, TOKEN) are withheld from jobs.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Commands (workspace/executeCommand), each with one object as in proto/schema.json, or plain texts:
  ostler.start [\"npm run dev\"]   ostler.run [\"npm test\"]    ostler.list []
  ostler.tail [\"t1\"]             ostler.wait [\"t1\"]         ostler.stop [\"t1\"]   ostler.send [\"t1\", \"y\\n\"]

Examples:
  ostler lsp </dev/null                      what an editor starts; it ends with its input
  ostler lsp --help | less

Neovim has a plugin in contrib/nvim. Any other client starts `ostler lsp` beside the language servers:
  vim.lsp.start({ name = 'ostler', cmd = { 'ostler', 'lsp' }, root_dir = vim.fn.getcwd() }, { attach = false })")]
pub(crate) struct Args {
    /// As other servers have it: nothing else is possible.
    #[arg(long, hide = true)]
    stdio: bool,
}

pub(crate) async fn run(args: Args) -> Result<i32, Failure> {
    let Args { stdio: _ } = args;
    let mut options = scope::options(Mode::Start)?;
    options.name = format!("ostler lsp {}", ostler_proto::VERSION);
    let dress = EditorOptions {
        env: environment(),
        umask: Some(caller::umask()),
        limits: caller::limits(),
        ..EditorOptions::default()
    };
    match lsp::run(Setup { options, dress }).await {
        Ended::Orderly => Ok(exit::DONE),
        // As LSP has it.
        Ended::Abrupt => Ok(1),
        Ended::Garbage(why) => Err(Failure::ours(format!(
            "what the editor sends is no LSP: {why}"
        ))
        .hint("people use the other commands: ostler --help")),
    }
}

/// The editor's variables, as far as jobs may have them. An editor that was started with next to nothing has jobs with a
/// login environment.
fn environment() -> Option<BTreeMap<String, Option<String>>> {
    std::env::var_os("PATH")?;
    Some(inherited(std::env::vars_os(), &[]))
}
