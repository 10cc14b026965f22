//! What is said of a job: its row, its detail, what to know before a retry. Cells only; nobody is asked.

use ostler_proto::job::{
    Artifact, Kind, Outcome, OutcomeDetail, Output, Retry, Row, StageRow, Tree,
};

use super::{Finished, Job, Status};
use crate::{clock::Moment, pipeline::StageEnd, terminal::Terminal};

impl Job {
    /// The row of a list: cells only, nobody is asked.
    pub(crate) fn row(&self) -> Row {
        let status = self.status().clone();
        self.row_of(&status)
    }

    pub(super) fn row_of(&self, status: &Status) -> Row {
        let finished = status.finished.as_deref();
        let outcome = finished.map(|f| f.outcome);
        let exit_code = finished.and_then(|f| f.exit_code);
        let seat = self.seat();
        let stages = self.stages(finished.map_or(&[], |f| &f.stages));
        Row {
            id: seat.id,
            process_id: self.spec.process_id.clone(),
            session: seat.session,
            kind: self.spec.kind,
            name: self.spec.name.clone(),
            state: status.state,
            outcome,
            outcome_detail: self.detail(status),
            exit_code,
            signal: finished.and_then(|f| f.signal.clone()),
            ok: outcome.map(|o| o == Outcome::Exited && self.is_expected(exit_code, &stages)),
            shell: self.spec.sent_to.clone(),
            timed_out: outcome == Some(Outcome::TimedOut),
            cancelled: outcome == Some(Outcome::Stopped),
            spawn_error: finished.and_then(|f| f.spawn_error.clone()),
            pid: status.pid,
            executable: self.spec.args.first().cloned().unwrap_or_default(),
            resolved_path: status.resolved.clone(),
            args: self.spec.args.clone(),
            stages,
            retry: None,
            cwd: self.spec.cwd.clone(),
            started_at: self.spec.accepted.wall,
            finished_at: finished.map(|f| self.finished_wall(f)),
            duration_ms: finished.map(|f| f.at.mono.saturating_sub(self.spec.accepted.mono)),
            slept_ms: self
                .spec
                .accepted
                .slept_until(&finished.map_or_else(Moment::now, |f| f.at)),
            encoding: "utf-8".into(),
            replaced: finished.and_then(|f| f.texts.as_ref()).map(|t| t.replaced),
            artifacts: self.artifacts(),
            terminal: match finished {
                None => self.with_terminal(Terminal::size).flatten(),
                Some(_) => None,
            },
            title: match finished {
                None => self.face.title(),
                Some(_) => None,
            },
            output: self.output(finished),
            tree: Tree {
                rung: status.rung.unwrap_or(self.rung).into(),
                left: status.left,
                ..Tree::default()
            },
        }
    }

    /// A wall clock that was set back must not end a job before it began: the monotonic duration decides.
    fn finished_wall(&self, finished: &Finished) -> u64 {
        let a = &self.spec.accepted;
        a.wall + finished.at.mono.saturating_sub(a.mono) + a.slept_until(&finished.at)
    }

    /// What its stages are, with what is known of their ends.
    pub(crate) fn stages(&self, ends: &[StageEnd]) -> Vec<StageRow> {
        let pipeline = self.spec.pipeline.as_ref();
        pipeline.map_or_else(Vec::new, |pipeline| pipeline.rows(ends))
    }

    fn is_expected(&self, code: Option<i32>, stages: &[StageRow]) -> bool {
        if !stages.is_empty() {
            return stages.iter().all(|stage| stage.ok == Some(true));
        }
        let ok = &self.spec.ok;
        if code.is_none() && self.spec.kind == Kind::Send {
            // What was typed was taken; a program at its prompt tells no code.
            return true;
        }
        code.is_some_and(|c| {
            if ok.is_empty() {
                c == 0
            } else {
                ok.contains(&c)
            }
        })
    }

    /// What to know before the same is started once more.
    pub(crate) fn retry(&self) -> Retry {
        let status = self.status();
        let finished = status.finished.as_deref();
        Retry {
            running: finished.is_none() || status.left > 0,
            ran: match finished.map(|f| f.outcome) {
                // A pipeline of which one stage could not be executed: others were, for a moment.
                Some(Outcome::SpawnFailed | Outcome::SandboxFailed) => {
                    Some(finished.is_some_and(Finished::began))
                }
                _ if status.resolved.is_some() || self.spec.is_bare() => Some(true),
                Some(Outcome::Exited | Outcome::Signaled) => Some(true),
                // Its runner may have told nobody.
                Some(Outcome::Lost) | None => None,
                Some(_) if self.spec.pipeline.is_some() => None,
                Some(_) => Some(false),
            },
            side_effect: self.spec.side_effect.clone(),
        }
    }

    /// Detail of the outcome, or of a stop that has not ended everything.
    fn detail(&self, status: &Status) -> Option<OutcomeDetail> {
        if let Some(finished) = &status.finished {
            return finished.detail.clone();
        }
        let survivors = status
            .stopped
            .as_ref()
            .map(|s| s.survivors.clone())
            .unwrap_or_default();
        let wanted = self.wanted.borrow();
        let who = wanted.who.as_ref()?;
        Some(OutcomeDetail {
            by: Some(who.by.clone()),
            reason: who.reason.clone(),
            survivors,
            ..OutcomeDetail::default()
        })
    }

    fn artifacts(&self) -> Vec<Artifact> {
        let Some(path) = self.log.spill_path() else {
            return Vec::new();
        };
        vec![Artifact {
            kind: "log".into(),
            path: path.display().to_string(),
            bytes: self.log.spill_bytes(),
        }]
    }

    /// Offset of the oldest byte that is kept: the spill begins with the first one.
    pub(crate) fn oldest(&self) -> u64 {
        if self.log.spill_path().is_some() {
            0
        } else {
            self.log.head()
        }
    }

    fn output(&self, finished: Option<&Finished>) -> Output {
        let spill = self.log.spill_path();
        Output {
            start: self.oldest(),
            end: self.log.end(),
            at_exit: finished.map(|f| f.at_exit),
            lost: finished.map_or(0, |f| f.lost).max(self.log.lost()),
            spill: spill.map(|p| p.display().to_string()),
            spill_stopped: self.log.spill_failure(),
            held_by: finished.and_then(|f| f.held_by),
        }
    }
}
