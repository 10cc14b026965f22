//! The one binary. What must be fast, or must run before anything of the process is set up, is decided here.

mod acp;
mod cli;
mod exit;
mod lsp;
mod mcp;
mod recent;
mod secret;

use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let words: Vec<&str> = args.iter().skip(1).map_while(|a| a.to_str()).collect();
    match words.as_slice() {
        // Before the parser: scripts ask this in loops.
        ["--version" | "-V"] => {
            let _ = writeln!(std::io::stdout(), "ostler {}", ostler_proto::VERSION);
            ExitCode::SUCCESS
        }
        // The keeper must find a process without threads and without files of ours.
        ["daemon", "keep"] => cli::daemon::keep(false),
        ["daemon", "check", ..] => {
            ostler_supervisor::check(ostler::BUILD, args.get(3).map(Path::new))
        }
        // A program of a job's tree.
        ["daemon", "pipe", ..] => ostler_supervisor::pipe(args.into_iter().skip(3).collect()),
        ["daemon", "supervise", ..] => cli::daemon::supervise(args.get(3..).unwrap_or_default()),
        _ => cli::main(args),
    }
}
