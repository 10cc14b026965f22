//! The list of jobs.

use ostler_proto::job::{Kind, Row};
use ostler_proto::limits;
use ostler_proto::methods::{JobList, List, Reason};

use super::answer::{Answer, Block};
use super::fault::Fault;
use super::front::{Call, ports};
use super::shells;
use super::{status, words};

/// All jobs: live ones first, then the newest ended.
pub(crate) async fn list(call: &Call<'_>) -> Result<Answer, Fault> {
    let table = call.client.ask::<JobList>(List::default()).await;
    let rows = table.map_err(|e| call.fault("", &e))?.jobs;
    let total = rows.len();
    let mut blocks = Vec::new();
    for row in rows.iter().take(limits::mcp::COMPACT_ROWS) {
        blocks.push(list_row(call, row).await);
    }
    // A shown one may have ended since.
    let shown = blocks.iter().map(|b| b.state == "exited");
    let over = shown.chain(rows.iter().skip(blocks.len()).map(Row::is_over));
    let live = rows.iter().zip(over).filter(|(_, over)| !over);
    let live: Vec<_> = live.map(|(row, _)| row.id.as_str()).collect();
    let mut last = match total {
        0 => "no jobs".to_owned(),
        1 => "1 job".into(),
        n => format!("{n} jobs"),
    };
    if !live.is_empty() {
        last += &format!("; live: {}", live.join(", "));
    }
    if total > limits::mcp::COMPACT_ROWS {
        last = format!("{} more]\n[{last}", total - limits::mcp::COMPACT_ROWS);
    }
    Ok(Answer {
        blocks,
        list: Some(last),
        ..Answer::default()
    })
}

/// `t1 running 12m22s; port 18765: COMMAND`.
pub(crate) async fn list_row(call: &Call<'_>, row: &Row) -> Block {
    // Of a living one it is looked where it listens.
    let looked = match row.is_over() {
        true => None,
        false => call.row(&row.process_id).await.ok(),
    };
    let row = looked.as_ref().unwrap_or(row);
    let mut block = if row.kind == Kind::Shell && !row.is_over() {
        match shells::glance(call, row).await {
            Ok(came) => {
                let mut block = shells::block(call, &came);
                if came.reason == Reason::Prompt {
                    block.facts.clear();
                    block.code = None;
                    block.seconds = None;
                }
                block
            }
            Err(_) => status::block(row, &[], super::now()),
        }
    } else {
        status::block(row, &ports(row), super::now())
    };
    let command = words::command(row);
    let facts = block
        .facts
        .iter()
        .fold(block.phrase.clone(), |l, f| l + "; " + f);
    block.phrase = words::cut(&format!("{facts}: {command}"), limits::mcp::COMPACT_ROW);
    block.kind = Some(match row.kind {
        Kind::Command => "command",
        Kind::Shell => "shell",
        Kind::Agent => "agent",
        Kind::Send => "send",
    });
    block.command = Some(words::cut(&command, limits::mcp::COMPACT_ROW));
    block.hint = None;
    block.note = None;
    block.is_row = true;
    block
}
