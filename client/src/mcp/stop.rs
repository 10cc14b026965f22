//! Stopping jobs, and the receipt of that.

use futures_util::future::join_all;
use ostler_proto::job::{Kind, Outcome, Row};
use ostler_proto::methods::{JobStop, Receipt, Stop};

use super::answer::{Answer, Block};
use super::fault::Fault;
use super::front::Call;
use super::{status, words};

/// Ends jobs with everything that they started.
pub(crate) async fn stop(call: &Call<'_>, ids: &[String]) -> Result<Answer, Fault> {
    let rows = join_all(ids.iter().map(|id| call.row(id))).await;
    let rows = rows.into_iter().collect::<Result<Vec<Row>, Fault>>()?;
    let client = call.client.clone();
    let asked: Vec<String> = rows.iter().map(|r| r.process_id.clone()).collect();
    // Their ends need no notice: this result tells them, or the call that was cancelled wanted them.
    let live = rows.iter().filter(|r| !r.is_over());
    live.for_each(|r| call.front.ledger.ended_by_us(&r.process_id));
    let stop = Stop {
        ids: asked.clone(),
        ..Stop::default()
    };
    // It goes on when the call is cancelled.
    let stopping = tokio::spawn(async move { client.ask::<JobStop>(stop).await });
    let most = call.most();
    let receipts = match tokio::time::timeout(most, stopping).await {
        Ok(Ok(summary)) => summary.map_err(|e| call.fault(&ids[0], &e))?.jobs,
        Ok(Err(_)) => return Err(Fault::new("internal", "the stop broke off")),
        Err(_) => Vec::new(),
    };
    let own = call.own_session().await;
    let mut blocks = Vec::new();
    let mut is_error = false;
    for row in &rows {
        let receipt = receipts.iter().find(|r| r.row.process_id == row.process_id);
        match receipt {
            Some(receipt) => {
                is_error |= !receipt.survivors.is_empty();
                let mut block = stopped(call, row, receipt);
                if row.kind == Kind::Agent {
                    block.facts.extend(left_running(receipt, own.as_deref()));
                }
                blocks.push(block);
            }
            None => {
                let row = call.row(&row.process_id).await?;
                blocks.push(status::block(&row, &[], super::now()));
            }
        }
    }
    Ok(Answer {
        blocks,
        is_error,
        ..Answer::default()
    })
}

/// What a sub-agent had started goes on, and belongs to this session unless another one is named.
fn left_running(receipt: &Receipt, own: Option<&str>) -> Option<String> {
    let short = |name: &String| match name.rsplit_once('/') {
        Some((session, id)) if Some(session) == own => id.to_owned(),
        _ => name.clone(),
    };
    let names: Vec<String> = receipt.left_running.iter().map(short).collect();
    (!names.is_empty()).then(|| format!("its commands go on: {}", names.join(", ")))
}

/// The receipt of a stop.
fn stopped(call: &Call<'_>, before: &Row, receipt: &Receipt) -> Block {
    let row = &receipt.row;
    let front = call.front;
    let mut block = status::block(row, &[], super::now());
    if !receipt.survivors.is_empty() {
        let all: Vec<String> = receipt
            .survivors
            .iter()
            .map(|s| format!("{} {}", s.pid, words::one_line(&s.program)))
            .collect();
        let n = words::processes(all.len() as u64);
        let remain = if all.len() == 1 { "remains" } else { "remain" };
        block.phrase = format!("{} stopped", row.id);
        block.facts = vec![format!("{n} {remain}: {}", all.join(", "))];
        block.note = Some(block.facts[0].clone());
        return block;
    }
    let was_stopped = row.outcome == Some(Outcome::Stopped);
    if receipt.already_finished && !was_stopped {
        block.phrase = match (row.outcome, row.exit_code) {
            (Some(Outcome::Exited), Some(code)) => format!("{} had exited {code}", row.id),
            _ => format!("{} had ended", row.id),
        };
        block.facts = vec!["nothing to stop".into()];
        block.note = Some("nothing to stop".into());
        block.seconds = None;
        return block;
    }
    if !receipt.already_finished {
        front.note_ended(&row.process_id, receipt.ended);
    }
    // A sub-agent that somebody speaks for has none.
    let ended = front.ended(&row.process_id);
    if let Some(ended) = ended.filter(|n| *n > 0 || row.kind != Kind::Agent) {
        block.facts = vec![format!("{} ended", words::processes(ended.into()))];
        block.note = Some(block.facts[0].clone());
    }
    if before.kind == Kind::Shell {
        block.seconds = None;
    }
    block
}
