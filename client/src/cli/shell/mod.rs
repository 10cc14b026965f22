//! `ostler shell`: opening in [`open`], a line or a text in [`exec`] and [`send`], looking in [`look`].

mod exec;
mod look;
mod open;
mod send;

use clap::Subcommand;
use ostler_proto::id;
use ostler_proto::job::{Outcome, Row};
use ostler_proto::methods::Reason;

use super::failure::Failure;
use super::output::Out;
use super::words;
use crate::exit;

/// Shells that stay: their directory, variables and programs last from one line to the next.
#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    Open(open::Args),
    Exec(exec::Args),
    Send(send::Args),
    Read(look::Read),
    Ls(look::Ls),
    Close(look::Close),
}

pub(crate) async fn run(command: Command) -> Result<i32, Failure> {
    match command {
        Command::Open(args) => open::run(args).await,
        Command::Exec(args) => exec::run(args).await,
        Command::Send(args) => send::run(args).await,
        Command::Read(args) => look::read(args).await,
        Command::Ls(args) => look::list(args).await,
        Command::Close(args) => look::close(args).await,
    }
}

/// Prints the id of what goes on in the background, in the form in which its shell was named: it can be given back as
/// it stands.
fn begun(job: &Row, shell: &str, json: bool) -> Result<i32, Failure> {
    if !json {
        let id = match shell.split_once('/') {
            _ if id::is_process_id(shell) => job.process_id.clone(),
            Some((session, _)) => format!("{session}/{}", job.id),
            None => job.id.clone(),
        };
        let mut out = Out::new();
        out.line(&id)?;
        out.flush()?;
    }
    if job.outcome == Some(Outcome::SpawnFailed) {
        return Err(words::never_ran(job));
    }
    Ok(exit::DONE)
}

/// Returns how a shell stands, in words.
fn stands(id: &str, row: &Row, reason: Reason) -> String {
    let id = words::clean(id);
    match reason {
        Reason::Prompt => format!("{id} is at its prompt"),
        Reason::InputWait => format!("{id} waits for input"),
        Reason::InferredIdle => format!("{id} is quiet; it may wait for input, or work"),
        Reason::WaitOver => format!("the time is over; what runs in {id} goes on"),
        _ => format!("{id} {}", words::ended(row)),
    }
}
