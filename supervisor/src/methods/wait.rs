//! `job/wait`: for ends, text, quiet or a port. A wait never ends a job, and waiting costs nobody anything.

use std::{
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt, future::join_all, stream::FuturesUnordered};
use ostler_proto::{
    job::Kind,
    limits,
    methods::{For, JobWait, Listener, Reason, Wait, Waited, WaitedJob},
    refusal::Refusal,
};
use regex::Regex;

use super::{Serve, compile, newest::newest};
use crate::{
    caller::Caller,
    claim::Claim,
    clock,
    house::House,
    job::Job,
    life::plan::within,
    lines::Lines,
    shell,
    tree::{holder, is_listening, listeners},
};

/// The kernel tells nobody when a socket begins to listen, so a wait for a port looks again: first after this
/// time, then ever later up to [`LOOK_MOST`]. Only while somebody waits.
const LOOK_FIRST: Duration = Duration::from_millis(5);
/// See [`LOOK_FIRST`].
const LOOK_MOST: Duration = Duration::from_millis(100);
/// One try to connect.
const CONNECT: Duration = Duration::from_secs(2);
/// Lines told when a job ended before what was waited for.
const LAST_LINES: usize = 5;

impl Serve for JobWait {
    async fn serve(caller: Caller, params: Wait) -> Result<Waited, Refusal> {
        let waits = prepare(&caller, &params)?;
        let patience = params.timeout_ms.map(Duration::from_millis);
        let n = waits.len();
        let mut told: Vec<Option<WaitedJob>> = vec![None; n];
        let mut running: FuturesUnordered<_> = waits
            .iter()
            .enumerate()
            .map(|(i, wait)| async move { (i, wait.until_true().await) })
            .collect();
        let all = async {
            while let Some((i, job)) = running.next().await {
                told[i] = Some(job);
                if params.any {
                    break;
                }
            }
        };
        let timed_out = match patience {
            None => {
                all.await;
                false
            }
            Some(patience) => tokio::time::timeout(patience, all).await.is_err(),
        };
        drop(running);
        let rest = waits.iter().zip(told).map(|(wait, told)| async move {
            match told {
                Some(told) => told,
                None => wait.still().await,
            }
        });
        let jobs = join_all(rest).await;
        for (wait, told) in waits.into_iter().zip(&jobs) {
            let ended = matches!(told.reason, Reason::Exit | Reason::EndedBefore);
            wait.claim
                .filter(|_| ended)
                .into_iter()
                .for_each(Claim::told);
        }
        Ok(Waited { jobs, timed_out })
    }
}

/// One job and what is waited for.
struct Waiting {
    house: Arc<House>,
    job: Arc<Job>,
    /// Whose tree listens: of a send in the background, for which no process stands, its shell's.
    tree: Arc<Job>,
    what: What,
    since: u64,
    claim: Option<Claim>,
}

enum What {
    Exit,
    Text(Regex),
    Quiet(u64),
    Port(Option<u16>),
    Tcp(String),
    Input { through: bool },
}

fn prepare(caller: &Caller, params: &Wait) -> Result<Vec<Waiting>, Refusal> {
    within("timeoutMs", params.timeout_ms, 0, limits::WAIT_MAX)?;
    if params.ids.is_empty() || params.ids.len() > limits::IDS {
        return Err(Refusal::bad(
            "ids",
            format!("must name 1 to {} jobs", limits::IDS),
        ));
    }
    let what = || {
        Ok(match &params.what {
            For::Exit => What::Exit,
            For::Text(pattern) => What::Text(compile("for.text", pattern)?),
            For::Quiet(ms) => {
                within("for.quiet", Some(*ms), 1, limits::WAIT_MAX)?;
                What::Quiet(*ms)
            }
            For::Port(0) => return Err(Refusal::bad("for.port", "must be 1 to 65535")),
            For::Port(port) => What::Port(Some(*port)),
            For::AnyPort => What::Port(None),
            For::Prompt => What::Input { through: true },
            For::Input => What::Input { through: false },
            For::Tcp(address) => What::Tcp(checked(address)?),
        })
    };
    let access = caller.access();
    params
        .ids
        .iter()
        .map(|id| {
            let job = caller
                .house()
                .registry
                .find(params.session.as_deref(), id, &access)?;
            let shell = job.spec.sent_to.as_deref();
            let shell = shell.and_then(|id| caller.house().registry.find(None, id, &access).ok());
            Ok(Waiting {
                claim: Claim::of(caller, &job),
                house: Arc::clone(caller.house()),
                tree: shell.unwrap_or_else(|| Arc::clone(&job)),
                job,
                what: what()?,
                since: params.since,
            })
        })
        .collect()
}

/// `HOST:PORT`.
fn checked(address: &str) -> Result<String, Refusal> {
    let parts = address.rsplit_once(':');
    let port = parts.and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
    match port {
        Some((host, port)) if !host.is_empty() && port > 0 && address.len() <= 255 => {
            Ok(address.into())
        }
        _ => Err(Refusal::bad("for.tcp", "must be HOST:PORT")),
    }
}

impl Waiting {
    async fn until_true(&self) -> WaitedJob {
        match &self.what {
            // Nobody knows when: who waits for that waits for ever.
            What::Exit if self.has_no_end() => self.told(Reason::NoEnd),
            What::Exit => {
                self.ended().await;
                self.told(Reason::Exit)
            }
            What::Text(pattern) => self.text(pattern).await,
            What::Quiet(ms) => self.or_ended(self.quiet(*ms)).await,
            What::Port(port) => self.or_ended(self.port(*port)).await,
            What::Tcp(address) => self.or_ended(self.tcp(address)).await,
            What::Input { through } => self.or_ended(self.input(*through)).await,
        }
    }

    fn has_no_end(&self) -> bool {
        self.job.spec.kind == Kind::Shell && self.job.status().finished.is_none()
    }

    async fn ended(&self) {
        let mut status = self.job.watch();
        // The sender lives in the job that we hold.
        let _ = status.wait_for(|s| s.finished.is_some()).await;
    }

    /// A job that ends first ends the wait.
    async fn or_ended(&self, what: impl Future<Output = WaitedJob>) -> WaitedJob {
        tokio::select! {
            biased;
            told = what => told,
            () = self.ended() => self.ended_before(),
        }
    }

    fn told(&self, reason: Reason) -> WaitedJob {
        WaitedJob {
            reason,
            row: self.job.row(),
            line: None,
            listener: None,
            stranger: None,
            ports: Vec::new(),
            last_lines: Vec::new(),
            exit_code: None,
            cwd: None,
            output_end: None,
        }
    }

    fn ended_before(&self) -> WaitedJob {
        let mut told = self.told(Reason::EndedBefore);
        let from = newest(&self.job.log, limits::page());
        let text = self
            .job
            .log
            .text(from, limits::page() as usize, crate::log::Filter::All, true)
            .text;
        let lines: Vec<_> = text
            .lines()
            .rev()
            .take(LAST_LINES)
            .map(str::to_owned)
            .collect();
        told.last_lines = lines.into_iter().rev().collect();
        told
    }

    /// The wait's own time is over.
    async fn still(&self) -> WaitedJob {
        let mut told = self.told(Reason::WaitOver);
        if let What::Port(port) = self.what {
            let (mark, net) = (self.tree.mark(), self.tree.status().pid);
            let pids = self.house.tools.trees.members(mark).await;
            let looked = tokio::task::spawn_blocking(move || {
                let ports: Vec<u16> = listeners(&pids).into_iter().map(|l| l.port).collect();
                (
                    ports,
                    net.zip(port).and_then(|(pid, port)| holder(port, pid)),
                )
            });
            if let Ok((ports, stranger)) = looked.await {
                told.ports = ports;
                told.stranger = stranger;
            }
        }
        told
    }

    /// Lines from `since` on, whole or not, with escapes stripped; the end of the job only counts when all is read.
    async fn text(&self, pattern: &Regex) -> WaitedJob {
        let mut news = self.job.log.subscribe();
        let mut status = self.job.watch();
        let mut lines = Lines::new(self.since);
        loop {
            let over = status.borrow_and_update().finished.is_some();
            news.mark_unchanged();
            loop {
                let turn = super::search().await;
                let mut found = None;
                let read = lines.read(&self.job.log, |raw| {
                    if pattern.is_match(&raw.text()) {
                        found = Some(raw.line());
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                });
                drop(turn);
                if let Some(line) = found {
                    return WaitedJob {
                        line: Some(line),
                        ..self.told(Reason::Text)
                    };
                }
                if read.is_none() {
                    break;
                }
                // A long log must not hold a worker of the house.
                tokio::task::yield_now().await;
            }
            let unfinished = lines.unfinished();
            if let Some(raw) = unfinished.filter(|raw| pattern.is_match(&raw.text())) {
                return WaitedJob {
                    line: Some(raw.line()),
                    ..self.told(Reason::Text)
                };
            }
            if over {
                return self.ended_before();
            }
            tokio::select! {
                Ok(()) = news.changed() => {}
                Ok(()) = status.changed() => {}
            }
        }
    }

    async fn quiet(&self, ms: u64) -> WaitedJob {
        loop {
            let until = self.job.last_output() + ms;
            if clock::mono() >= until {
                return self.told(Reason::Quiet);
            }
            tokio::time::sleep_until(clock::instant(until)).await;
        }
    }

    /// Tries to connect, ever later up to [`LOOK_MOST`]; nothing is sent.
    async fn tcp(&self, address: &str) -> WaitedJob {
        let mut pause = LOOK_FIRST;
        loop {
            let trying = tokio::net::TcpStream::connect(address);
            if let Ok(Ok(_)) = tokio::time::timeout(CONNECT, trying).await {
                return self.told(Reason::Port);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MOST);
        }
    }

    /// Says what the terminal of the job says, and takes no turn: who looks keeps nobody from talking.
    async fn input(&self, through: bool) -> WaitedJob {
        match shell::waiting::ready(&self.job, through).await {
            Some(reason) => {
                let done = shell::waiting::done(&self.job);
                let done = done.filter(|_| reason == Reason::Prompt);
                let output_end = done.as_ref().map(|d| d.from);
                let (exit_code, cwd) = done.map_or((None, None), |d| (d.code, d.cwd));
                WaitedJob {
                    exit_code,
                    cwd,
                    output_end,
                    ..self.told(reason)
                }
            }
            // It has no terminal, or has ended.
            None => std::future::pending().await,
        }
    }

    async fn port(&self, port: Option<u16>) -> WaitedJob {
        let mut pause = LOOK_FIRST;
        loop {
            if let Some(listener) = self.listens(port).await {
                let mut told = self.told(Reason::Port);
                told.listener = Some(listener);
                return told;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LOOK_MOST);
        }
    }

    /// A cheap look first: only when somebody listens is it worth asking who.
    async fn listens(&self, port: Option<u16>) -> Option<Listener> {
        let net = self.tree.status().pid?;
        let begun = Instant::now();
        let somebody = tokio::task::spawn_blocking(move || is_listening(port, net))
            .await
            .ok()?;
        if !somebody {
            return None;
        }
        let pids = self.house.tools.trees.members(self.tree.mark()).await;
        let found = tokio::task::spawn_blocking(move || listeners(&pids))
            .await
            .ok()?;
        if begun.elapsed() > Duration::from_secs(1) {
            crate::log_line!("info", "looking for who listens took {:?}", begun.elapsed());
        }
        found
            .into_iter()
            .find(|l| port.is_none_or(|port| l.port == port))
    }
}
