//! Promise: the words of the tools stay as they are. They are API: agents act on them, and caches of prompts hold them.
//!
//! One table for each class of words that the seeds keep apart; a changed wording is a red line here.

use std::os::unix::fs::PermissionsExt;

use ostler_proto::agent::{ChildSession, RegisterAgent};
use ostler_proto::job::{JobResult, Outcome, State};
use ostler_proto::methods::{AgentRegister, For, OpenSession};
use ostler_tests::desk::script;
use ostler_tests::mcp::Era;
use ostler_tests::{Desk, House, Mcp, in_empty_house, puppet};
use regex::Regex;
use serde_json::{Value, json};

/// Text without what differs from run to run.
fn fixed(text: &str) -> String {
    let puppet = regex::escape(puppet());
    let rules = [
        (puppet.as_str(), "puppet"),
        (r"\b\d+(\.\d+s|m\d\ds|h\d\dm)", "N"),
        (r"/tmp/o\w{6}/h/artifacts/\w+/proc_\w+\.log", "LOG"),
        (r"/tmp/o\w{6}/", "BASE/"),
        (r"\bproc_\w+", "PROC"),
        (r"\bsince \d\d:\d\d", "since HH:MM"),
        (r"\bgroup \d+", "group G"),
        (r"\S*/bash\b", "bash"),
        (r"\bpid \d+", "pid P"),
        // Of a program that prints until it is ended nobody knows how much it was.
        (r"\b1\d{7} bytes( left out|; t)", "M bytes$1"),
        // Prompts, and their lengths: whoever runs this, and wherever.
        (r"(?m)^(\[s\d.*since=)\d+", "${1}AT"),
        (r"(?m)^([\w.-]+(@\S+)?)?[#$]( |$)", "PROMPT$3"),
    ];
    rules.iter().fold(text.to_owned(), |text, (pattern, with)| {
        let rule = Regex::new(pattern).unwrap();
        rule.replace_all(&text, *with).into_owned()
    })
}

/// Calls, and holds what is said against what is to be said: all of it, so that every changed line is shown at once.
struct Words {
    mcp: Mcp,
    wrong: Vec<String>,
}

impl Words {
    async fn new(house: &House, args: &[&str]) -> Self {
        Self {
            mcp: Mcp::legacy(house, args).await,
            wrong: Vec::new(),
        }
    }

    async fn says(&mut self, tool: &str, arguments: Value, words: &str) {
        let told = self.mcp.call(tool, arguments.clone()).await;
        let told = fixed(&told.text);
        self.compare(&format!("{tool} {arguments}"), &told, words);
    }

    /// The same of a call that was begun before.
    async fn answers(&mut self, call: u64, words: &str) {
        let told = fixed(&self.mcp.result(call).await.text);
        self.compare(&format!("answer {call}"), &told, words);
    }

    /// The same of what stands in brackets alone, where a program has printed much.
    async fn says_around(&mut self, tool: &str, arguments: Value, words: &str) {
        let told = self.mcp.call(tool, arguments.clone()).await;
        let ours: Vec<&str> = told.text.lines().filter(|l| l.starts_with('[')).collect();
        let told = fixed(&ours.join("\n"));
        self.compare(&format!("{tool} {arguments}"), &told, words);
    }

    /// The same without what is told besides: how soon that comes is nobody's promise.
    async fn says_without_notices(&mut self, tool: &str, arguments: Value, words: &str) {
        let told = self.mcp.call(tool, arguments.clone()).await;
        let lines: Vec<&str> = told.text.lines().collect();
        let lines = lines.into_iter().filter(|l| !l.starts_with("[notice: "));
        let told = fixed(&lines.collect::<Vec<_>>().join("\n"));
        self.compare(&format!("{tool} {arguments}"), &told, words);
    }

    fn compare(&mut self, what: &str, told: &str, words: &str) {
        if told != words {
            let wrong = format!("{what}\n{told}\n--- not:\n{words}");
            self.wrong.push(wrong);
        }
    }

    fn end(self) {
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n\n"));
    }
}

fn line(steps: &str) -> String {
    format!("exec {} {steps}", puppet())
}

fn session(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        ..OpenSession::default()
    }
}

/// A house with small quotas.
fn small(house: &House) {
    let text = "[session]\ncommands = 2\nshells = 1\n";
    std::fs::write(&house.folders().config, text).unwrap();
    house.start();
}

/// A shell whose close takes as long as its longest grace: something in it does not want to end.
async fn closing(desk: &Desk, id: &str) {
    let is = |r: &JobResult| r.row.state == State::Stopping;
    desk.until(id, "the close", is).await;
}

/// A house with small quotas, a client of the session `x` in it, and a front end in that session.
async fn of_set(house: &House, set: &str) -> (Desk, Words) {
    small(house);
    let desk = house.desk_of(session("x"));
    desk.list().await;
    // A wait of a second is the longest: what takes longer is a job.
    let args = ["--session", "x", "--tools", set, "--max-wait", "1"];
    (desk, Words::new(house, &args).await)
}

/// 003, classes: not found, quota, still running, stop receipts, refusals before any process, bare cd.
#[test]
fn the_words_of_epoch_for_tasks() {
    in_empty_house(async |house| {
        let (desk, mut e) = of_set(house, "epoch").await;
        let foreign = house.desk_of(session("other")).start(script("sleep")).await;
        e.says("task_list", json!({}), "[no jobs]").await;
        e.says("shell_list", json!({}), "[no terminals]").await;
        e.says(
            "task_output",
            json!({"id": "t9"}),
            "not_found: no job t9. task_list lists yours.",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": foreign.process_id}),
            "not_found: no job PROC. task_list lists yours.",
        )
        .await;
        e.says(
            "shell_read",
            json!({"id": "s9"}),
            "not_found: no job s9. task_list lists yours.",
        )
        .await;
        let fifo = house.fifo("g");
        let steps = line(&format!("await {fifo} , say done , exit 4"));
        let start = |command: &str| json!({"command": command, "background": true});
        e.says(
            "terminal",
            start(&steps),
            "[t1 started; read it: task_output id=t1; end it: task_stop id=t1]",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": "t1"}),
            "[no output yet]\n[t1 running N; since=0]",
        )
        .await;
        e.says(
            "task_wait",
            json!({"id": "t1", "timeoutMs": 1}),
            "[t1 still running N; the wait is over, the job goes on]",
        )
        .await;
        e.says(
            "task_list",
            json!({}),
            "t1 running N: exec puppet await BASE/f/g , say done , exit 4\n[1 job; live: t1]",
        )
        .await;
        house.open(&fifo).await;
        desk.wait("t1").await;
        e.says(
            "task_wait",
            json!({"id": "t1"}),
            "[t1 exited 4 in N; read it: task_output id=t1]",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": "t1"}),
            "done\n[t1 exited 4 in N; since=5]",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": "t1", "since": 5}),
            "[no new output]\n[t1 exited 4 in N; since=5]",
        )
        .await;
        e.says(
            "task_stop",
            json!({"id": "t1"}),
            "[t1 had exited 4; nothing to stop]",
        )
        .await;
        e.says_without_notices(
            "terminal",
            start("true"),
            "[t2 started; read it: task_output id=t2; end it: task_stop id=t2]",
        )
        .await;
        desk.wait("t2").await;
        e.says(
            "task_output",
            json!({"id": "t2"}),
            "[no retained output]\n[t2 exited 0 in N; since=0]",
        )
        .await;
        // The quota.
        e.says(
            "terminal",
            start("exec sleep 1000"),
            "[t3 started; read it: task_output id=t3; end it: task_stop id=t3]",
        )
        .await;
        e.says(
            "terminal",
            start("exec sleep 2000"),
            "[t4 started; read it: task_output id=t4; end it: task_stop id=t4]",
        )
        .await;
        e.says(
            "terminal",
            start("true"),
            "limit: 2 of 2 commands run: t3 exec sleep 1000; t4 exec sleep 2000; stop one first.",
        )
        .await;
        e.says(
            "terminal",
            json!({"command": "true"}),
            "limit: 2 of 2 commands run: t3 exec sleep 1000; t4 exec sleep 2000; stop one first.",
        )
        .await;
        e.says(
            "task_stop",
            json!({"id": "t3"}),
            "[t3 stopped after N; 1 process ended]",
        )
        .await;
        e.says(
            "task_stop",
            json!({"id": "t3"}),
            "[t3 stopped after N; 1 process ended]",
        )
        .await;
        desk.stop("t4", 0).await;
        e.says("task_stop", json!({"id": "t4"}), "[t4 stopped after N]")
            .await;
        // Other ends, and what is not started.
        e.says(
            "terminal",
            json!({"command": "cd /tmp"}),
            "[cd does not outlive this call: use workdir or shell_open]\n[exited 0 in N; t5]",
        )
        .await;
        let killed = line("put half , kill SEGV");
        e.says(
            "terminal",
            json!({"command": killed}),
            "half\n[signaled SIGSEGV in N; t6]",
        )
        .await;
        let left = line("orphan [ sleep ] , say x");
        e.says(
            "terminal",
            json!({"command": left}),
            "x\n[exited 0 in N; 1 process left; t7]",
        )
        .await;
        desk.stop("t7", 0).await;
        e.says(
            "terminal",
            json!({"command": "exec sleep 3000"}),
            "[t8 running N; next: task_output id=t8 since=0]",
        )
        .await;
        desk.stop("t8", 0).await;
        let nowhere = json!({"command": "true", "workdir": "nowhere"});
        e.says(
            "terminal",
            nowhere,
            "[t9 spawn failed: no such folder: BASE/f/nowhere]",
        )
        .await;
        let outside = json!({"command": "true", "workdir": "/etc"});
        e.says(
            "terminal",
            outside,
            "cwd_refused: /etc is outside the project. Nothing was started.",
        )
        .await;
        let half = json!({"command": "true", "justification": "x"});
        e.says(
            "terminal",
            half,
            "bad_argument: sandbox_permissions and justification go together. Nothing was started.",
        )
        .await;
        let wider = json!({
            "command": "true", "sandbox_permissions": "danger-full-access", "justification": "x"
        });
        e.says("terminal", wider, "bad_argument: danger-full-access is not wider than what holds here: no sandbox confines commands. Leave sandbox_permissions and justification out. Nothing was started.").await;
        let unknown = json!({"command": "true", "nonsense": 1});
        e.says("terminal", unknown, "bad_argument: no argument \"nonsense\": use command, background, pty, stdin, workdir, sandbox_permissions, justification. Nothing was started.").await;
        e.says(
            "terminal",
            json!({"command": " "}),
            "bad_argument: command is empty. Nothing was started.",
        )
        .await;
        e.end();
    });
}

/// 003, classes: spill place, over capture, in one text for its three paths.
#[test]
fn the_words_of_epoch_for_much_output() {
    in_empty_house(async |house| {
        house.start();
        let mut e = Words::new(house, &["--tools", "epoch"]).await;
        let seq = |n: u32| json!({"command": format!("seq 1 {n}")});
        e.says_around(
            "terminal",
            seq(60_000),
            "[344894 bytes left out; whole output: LOG]\n[exited 0 in N; 348894 bytes; t1]",
        )
        .await;
        e.says_around("terminal", seq(12_000), "[56894 bytes left out; read on: task_output id=t2 since=2000]\n[exited 0 in N; 60894 bytes; t2]").await;
        e.says_around(
            "task_output",
            json!({"id": "t1", "since": 0}),
            "[t1 exited 0 in N; since=8192]",
        )
        .await;
        let flood = line("flood");
        e.says_around("terminal", json!({"command": flood}), "[M bytes left out; whole output: LOG]\n[output limit: 10485760 bytes; killed]\n[output limit after N; M bytes; t3]")
            .await;
        let pty = json!({"command": flood, "pty": true});
        e.says_around("terminal", pty, "[M bytes left out; whole output: LOG]\n[output limit: 10485760 bytes; killed]\n[output limit after N; M bytes; t4]").await;
        let background = json!({"command": flood, "background": true});
        e.says(
            "terminal",
            background,
            "[t5 started; read it: task_output id=t5; end it: task_stop id=t5]",
        )
        .await;
        e.says("task_wait", json!({"id": "t5"}), "[output limit: 10485760 bytes; killed]\n[t5 output limit after N; read it: task_output id=t5]").await;
        e.end();
    });
}

/// 003, classes: no end state, the reasons of a send, closing, gone, the receipt of a shell.
#[test]
fn the_words_of_epoch_for_shells() {
    in_empty_house(async |house| {
        small(house);
        let desk = house.desk_of(session("x"));
        desk.list().await;
        let mut e = Words::new(house, &["--session", "x", "--tools", "epoch"]).await;
        let send = |input: &str, wait: u32| json!({"id": "s1", "input": input, "wait": wait});
        e.says(
            "terminal",
            json!({"command": "true"}),
            "[exited 0 in N; t1]",
        )
        .await;
        e.says(
            "shell_read",
            json!({"id": "t1"}),
            "bad_argument: t1 is no shell: shell_list lists yours.",
        )
        .await;
        e.says(
            "shell_send",
            json!({"id": "t1", "input": "x"}),
            "bad_argument: t1 is no shell: shell_list lists yours.",
        )
        .await;
        e.says(
            "shell_open",
            json!({}),
            "PROMPT\n[s1 open; sh in the workspace]",
        )
        .await;
        e.says(
            "shell_open",
            json!({}),
            "limit: 1 of 1 shells run: s1 sh; stop one first.",
        )
        .await;
        e.says(
            "task_wait",
            json!({"id": "s1"}),
            "[s1 is a shell: it has no end to wait for]",
        )
        .await;
        e.says(
            "shell_send",
            send("echo a; false\n", 20_000),
            "echo a; false\na\nPROMPT\n[s1 at prompt; exit 1 in N; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("half", 300),
            "half\n[s1 typed, not entered; end with \\n to run it; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("\u{3}", 20_000),
            "^C\nPROMPT\n[s1 at prompt; exit 130 in N; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("cat\n", 20_000),
            "cat\n[s1 waits for input; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("\u{4}", 20_000),
            "PROMPT\n[s1 at prompt; exit 0 in N; since=AT]",
        )
        .await;
        let stubborn = format!("{} ignore TERM , ignore HUP , sleep\n", puppet());
        e.says("shell_send", send(&stubborn, 300), "puppet ignore TERM , ignore HUP , sleep\n[s1 busy N; the wait is over, it goes on; since=AT]").await;
        e.says(
            "shell_list",
            json!({}),
            "s1 busy N: sh\n[1 shell; live: s1]",
        )
        .await;
        let closes = e.mcp.begin_call("shell_close", json!({"id": "s1"})).await;
        closing(&desk, "s1").await;
        e.says_around(
            "shell_read",
            json!({"id": "s1", "since": 0}),
            "[s1 stopping; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("x\n", 300),
            "closing: s1 is being closed. shell_open opens another.",
        )
        .await;
        e.says(
            "shell_list",
            json!({}),
            "s1 stopping: sh\n[1 shell; live: s1]",
        )
        .await;
        desk.stop("s1", 0).await;
        e.answers(closes, "[s1 closed; 2 processes ended]").await;
        e.says(
            "shell_send",
            send("x\n", 300),
            "gone: s1 was released. task_list lists what is kept.",
        )
        .await;
        e.says(
            "shell_open",
            json!({}),
            "PROMPT\n[s2 open; sh in the workspace]",
        )
        .await;
        let send = |input: &str| json!({"id": "s2", "input": input, "wait": 20_000});
        e.says(
            "shell_send",
            send("exit 3\n"),
            "exit 3\n[s2 exited 3; its state is gone; since=AT]",
        )
        .await;
        e.says(
            "shell_send",
            send("x\n"),
            "gone: s2 has ended; its state is lost. shell_open opens another.",
        )
        .await;
        e.says(
            "shell_close",
            json!({"id": "s2"}),
            "[s2 closed; nothing to stop]",
        )
        .await;
        e.end();
    });
}

/// 003, class: the receipt of a sub-agent, whose commands go on.
#[test]
fn the_words_of_epoch_for_sub_agents() {
    in_empty_house(async |house| {
        // Who speaks for it says nothing when its end is asked for.
        std::fs::write(&house.folders().config, "[stop]\ngrace = 100\n").unwrap();
        house.start();
        let desk = house.desk_of(session("x"));
        desk.list().await;
        let mut e = Words::new(house, &["--session", "x", "--tools", "epoch"]).await;
        let agent = RegisterAgent {
            label: Some("review".into()),
            child: Some(ChildSession {
                id: Some("below".into()),
                ..ChildSession::default()
            }),
            ..RegisterAgent::default()
        };
        desk.must::<AgentRegister>(agent).await;
        house.desk_of(session("below")).start(script("sleep")).await;
        e.says(
            "task_list",
            json!({}),
            "a1 running N: review\n[1 job; live: a1]",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": "a1"}),
            "[no output yet]\n[a1 running N; since=0]",
        )
        .await;
        e.says(
            "task_wait",
            json!({"id": "a1", "timeoutMs": 1}),
            "[a1 still running N; the wait is over, the job goes on]",
        )
        .await;
        e.says(
            "shell_send",
            json!({"id": "a1", "input": "x\n"}),
            "bad_argument: a1 is no shell: shell_list lists yours.",
        )
        .await;
        e.says(
            "task_stop",
            json!({"id": "a1"}),
            "[a1 stopped after N; its commands go on: t1]",
        )
        .await;
        e.says(
            "task_output",
            json!({"id": "a1"}),
            "[no retained output]\n[a1 stopped after N; since=0]",
        )
        .await;
        e.end();
    });
}

/// 004, classes: started, placeholders, status line, command markers, kill, errors.
#[test]
fn the_words_of_dsh_for_jobs() {
    in_empty_house(async |house| {
        let (desk, mut d) = of_set(house, "dsh").await;
        let foreign = house.desk_of(session("other")).start(script("sleep")).await;
        let bash = |command: &str| json!({"command": command, "description": "x"});
        let with = |more: Value| {
            let mut all = bash("exec sleep 1000");
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        let start = |command: &str| json!({"command": command, "description": "x", "run_in_background": true});
        let job = |id: &str| json!({"job_id": id});
        let wait = |id: &str| json!({"job_id": id, "wait": true});
        d.says("job_list", json!({}), "[no jobs]").await;
        d.says(
            "job_output",
            job("bash-9"),
            "not_found: no job bash-9. job_list lists yours.",
        )
        .await;
        d.says(
            "job_output",
            job(&foreign.process_id),
            "not_found: no job PROC. job_list lists yours.",
        )
        .await;
        let fifo = house.fifo("g");
        let steps = line(&format!("await {fifo} , say done , exit 4"));
        d.says(
            "bash",
            start(&steps),
            "[started background job bash-1; collect it with job_output, end it with job_kill]",
        )
        .await;
        d.says(
            "job_output",
            job("bash-1"),
            "[no new output]\n[bash-1 status: running]",
        )
        .await;
        let short = json!({"job_id": "bash-1", "wait": true, "timeout_ms": 1});
        d.says(
            "job_output",
            short,
            "[no new output]\n[bash-1 status: running]",
        )
        .await;
        d.says("job_list", json!({}), "bash-1 bash running: exec puppet await BASE/f/g , say done , exit 4\n[1 job; live: bash-1]").await;
        house.open(&fifo).await;
        desk.wait("t1").await;
        d.says(
            "job_output",
            wait("bash-1"),
            "done\n[bash-1 status: completed, exit code 4]",
        )
        .await;
        d.says(
            "job_output",
            job("bash-1"),
            "[no new output]\n[bash-1 status: completed, exit code 4]",
        )
        .await;
        d.says(
            "job_kill",
            job("bash-1"),
            "[bash-1 had already finished: completed, exit code 4]",
        )
        .await;
        // The quota.
        d.says(
            "bash",
            start("exec sleep 1000"),
            "[started background job bash-2; collect it with job_output, end it with job_kill]",
        )
        .await;
        d.says(
            "bash",
            start("exec sleep 2000"),
            "[started background job bash-3; collect it with job_output, end it with job_kill]",
        )
        .await;
        d.says("bash", bash("true"), "limit: 2 of 2 commands run: bash-2 exec sleep 1000; bash-3 exec sleep 2000; stop one first.").await;
        let kill = json!({"job_id": "bash-2", "reason": "enough"});
        d.says(
            "job_kill",
            kill,
            "[bash-2 kill requested; status: stopping]",
        )
        .await;
        d.says(
            "job_output",
            wait("bash-2"),
            "[no new output]\n[bash-2 status: killed, enough]",
        )
        .await;
        // What takes longer than a call may becomes a job.
        d.says(
            "bash",
            bash("exec sleep 3000"),
            "[started background job bash-4; collect it with job_output, end it with job_kill]",
        )
        .await;
        desk.stop("t4", 0).await;
        desk.stop("t3", 0).await;
        d.says(
            "bash",
            bash("echo out; echo err >&2; exit 3"),
            "out\n[stderr]\nerr\n[exit code: 3]",
        )
        .await;
        d.says("bash", bash("true"), "[exit code: 0]").await;
        d.says("bash", bash("kill -9 $$"), "[signal: SIGKILL]")
            .await;
        d.says(
            "bash",
            with(json!({"timeoutMs": 100})),
            "[timed out after 100 ms]\n[signal: SIGTERM]",
        )
        .await;
        let polite =
            with(json!({"command": "trap 'exit 0' TERM; sleep 1000 & wait", "timeoutMs": 100}));
        d.says("bash", polite, "[timed out after 100 ms]\n[exit code: 0]")
            .await;
        d.says_around("bash", bash("seq 1 60000"), "[... the middle is in the log ...]\n[output truncated; full output: LOG]\n[exit code: 0]").await;
        d.says(
            "bash",
            with(json!({"workdir": "nowhere"})),
            "[bash-11 spawn failed: no such folder: BASE/f/nowhere]",
        )
        .await;
        d.says(
            "job_output",
            job("bash-11"),
            "[no new output]\n[bash-11 status: failed, no such folder: BASE/f/nowhere]",
        )
        .await;
        d.says(
            "bash",
            json!({"command": "true"}),
            "bad_argument: description is missing. Nothing was started.",
        )
        .await;
        let pair = json!({"sandbox_permissions": "workspace-write", "justification": "x"});
        d.says("bash", with(pair), "bad_argument: workspace-write is not wider than what holds here: no sandbox confines commands. Leave sandbox_permissions and justification out. Nothing was started.").await;
        let half = json!({"sandbox_permissions": "workspace-write"});
        d.says(
            "bash",
            with(half),
            "bad_argument: sandbox_permissions and justification go together. Nothing was started.",
        )
        .await;
        d.end();
    });
}

/// 004, classes: started, no startup output, wait and session markers, line marker, close, errors.
#[test]
fn the_words_of_dsh_for_terminals() {
    in_empty_house(async |house| {
        let (desk, mut d) = of_set(house, "dsh").await;
        let foreign = house.desk_of(session("other")).start(script("sleep")).await;
        let at = |id: &str| json!({"sessionId": id});
        let type_in = |text: &str| json!({"sessionId": "pty-1", "text": text});
        let signal = |name: &str| json!({"sessionId": "pty-1", "signal": name});
        let shell = json!({"type": "shell"});
        let main = json!({"type": "shell", "name": "main"});
        d.says("terminal_list", json!({}), "[no terminals]").await;
        d.says(
            "terminal_read",
            at("pty-9"),
            "NO_SESSION: no terminal pty-9. terminal_list lists yours.",
        )
        .await;
        d.says(
            "terminal_read",
            at(&foreign.process_id),
            "NO_SESSION: no terminal PROC. terminal_list lists yours.",
        )
        .await;
        d.says(
            "terminal_open",
            json!({"type": "emacs"}),
            "NO_BACKEND: no terminal type \"emacs\": use shell. Nothing was started.",
        )
        .await;
        d.says(
            "terminal_open",
            main.clone(),
            "[started terminal pty-1 (shell)]\nPROMPT",
        )
        .await;
        d.says(
            "terminal_open",
            main,
            "DUPLICATE_NAME: the name main belongs to a live job of x.",
        )
        .await;
        d.says(
            "terminal_open",
            shell.clone(),
            "limit: 1 of 1 shells run: pty-1 bash; stop one first.",
        )
        .await;
        d.says(
            "terminal_send",
            type_in("echo a; false"),
            "echo a; false\na\nPROMPT\n[wait: stdin_read]\n[terminal: running]",
        )
        .await;
        d.says(
            "terminal_send",
            type_in("cat"),
            "cat\n[wait: stdin_read]\n[terminal: running]",
        )
        .await;
        d.says_without_notices(
            "terminal_signal",
            signal("SIGINT"),
            "[SIGINT sent to group G]",
        )
        .await;
        // It is the shell again that is in front.
        let prompt = For::Prompt;
        desk.wait_for("s1", prompt).await;
        d.says_without_notices("terminal_signal", signal("SIGKILL"), "no_group: the shell itself is in front of pty-1; SIGKILL would end it. terminal_close ends it whole.")
            .await;
        d.says_without_notices(
            "terminal_signal",
            signal("SIGUSR1"),
            "bad_argument: signal \"SIGUSR1\": use SIGINT, SIGTERM, SIGKILL, SIGTSTP, SIGHUP.",
        )
        .await;
        let page = json!({"sessionId": "pty-1", "count": 2});
        d.says_without_notices(
            "terminal_read",
            page,
            "\nPROMPT\n[lines 0 to 2 of 5 from the newest]",
        )
        .await;
        let past = json!({"sessionId": "pty-1", "offset": 99});
        d.says(
            "terminal_read",
            past,
            "[no retained output]\n[lines 99 to 99 of 5 from the newest]",
        )
        .await;
        let none = json!({"sessionId": "pty-1", "count": 0});
        d.says(
            "terminal_read",
            none,
            "bad_argument: count must be 1 or more.",
        )
        .await;
        d.says(
            "terminal_list",
            json!({}),
            "pty-1 (main) shell running\n[1 terminal]",
        )
        .await;
        let background =
            json!({"sessionId": "pty-1", "text": "sleep 1000", "run_in_background": true});
        d.says(
            "terminal_send",
            background,
            "[started background job pty-send-1; collect it with job_output, end it with job_kill]",
        )
        .await;
        d.says("terminal_send", type_in("ls"), "SEND_ACTIVE: pty-1 still runs \"sleep 1000\". terminal_read sessionId=pty-1 waits; terminal_signal sessionId=pty-1 signal=SIGINT interrupts.").await;
        d.says(
            "job_kill",
            json!({"job_id": "pty-send-1"}),
            "[pty-send-1 kill requested; status: stopping]",
        )
        .await;
        desk.wait("x1").await;
        d.says_around(
            "job_output",
            json!({"job_id": "pty-send-1"}),
            "[pty-send-1 status: killed]",
        )
        .await;
        let stubborn = format!("{} ignore TERM , ignore HUP , sleep", puppet());
        d.says(
            "terminal_send",
            type_in(&stubborn),
            "puppet ignore TERM , ignore HUP , sleep\n[wait: timeout]\n[terminal: running]",
        )
        .await;
        let closes = d.mcp.begin_call("terminal_close", at("pty-1")).await;
        closing(&desk, "s1").await;
        let again = d.mcp.begin_call("terminal_close", at("pty-1")).await;
        d.says(
            "terminal_send",
            type_in("ls"),
            "closing: pty-1 is being closed. terminal_open opens another.",
        )
        .await;
        d.says(
            "terminal_signal",
            signal("SIGINT"),
            "closing: pty-1 is being closed. terminal_open opens another.",
        )
        .await;
        d.says(
            "terminal_list",
            json!({}),
            "pty-1 (main) shell running\n[1 terminal]",
        )
        .await;
        desk.stop("s1", 0).await;
        d.answers(closes, "[pty-1 closed]").await;
        d.answers(again, "[pty-1 was already closing]").await;
        d.says(
            "terminal_send",
            type_in("ls"),
            "NO_SESSION: no terminal pty-1. terminal_list lists yours.",
        )
        .await;
        d.says(
            "terminal_open",
            shell,
            "[started terminal pty-2 (shell)]\nPROMPT",
        )
        .await;
        let exit = json!({"sessionId": "pty-2", "text": "exit 3"});
        d.says(
            "terminal_send",
            exit.clone(),
            "exit 3\nexit\n[wait: session_exit]\n[terminal: exited, code 3, signal null]",
        )
        .await;
        d.says(
            "terminal_send",
            exit,
            "exited: pty-2 has exited: completed, exit code 3.",
        )
        .await;
        d.says(
            "terminal_list",
            json!({}),
            "pty-2 shell exited, code 3, signal null\n[1 terminal]",
        )
        .await;
        d.says("terminal_close", at("pty-2"), "[pty-2 closed]")
            .await;
        d.end();
    });
}

/// 004: what the shell says at first is told behind the id; where it says nothing, that.
#[test]
fn the_words_of_dsh_for_the_message_of_the_day() {
    in_empty_house(async |house| {
        house.start();
        let cases = [
            (
                "silent",
                "exec sleep 1000",
                "[started terminal pty-1 (shell)]\n[no startup output]",
                "",
            ),
            (
                "speaking",
                "echo Welcome; echo to this; exec sleep 1000",
                "[started terminal pty-1 (shell)]\nWelcome\nto this",
                "Welcome\nto this",
            ),
        ];
        for (name, line, words, motd) in cases {
            // The first `bash` of its path is the shell.
            let folder = house.file(name);
            std::fs::create_dir(&folder).unwrap();
            let script = format!("#!/bin/sh\n{line}\n");
            std::fs::write(folder.join("bash"), script).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(folder.join("bash"), mode).unwrap();
            let mut command = house.ostler(&["mcp", "--tools", "dsh"]);
            command.env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
            let mut mcp = Mcp::of(command, Era::Legacy, name).await;
            let told = mcp.good("terminal_open", json!({"type": "shell"})).await;
            assert_eq!(told.text, words);
            assert_eq!(told.json.unwrap()["motd"], motd);
        }
    });
}

/// In the three sets: the name of the set, the tool that starts a command in the foreground, and the one that reads.
const READERS: [(&str, &str, &str); 3] = [
    ("compact", "run", "output"),
    ("epoch", "terminal", "task_output"),
    ("dsh", "bash", "job_output"),
];

/// B19 for those who read through tools: what left the buffer and found no place is told, and no file is named that has
/// not all of it.
#[test]
fn the_words_for_output_that_could_not_be_kept() {
    in_empty_house(async |house| {
        std::fs::write(house.folders().artifacts(), "in the way").unwrap();
        house.start();
        let mut wrong = Vec::new();
        for (set, run, read) in READERS {
            let mut of = Words::new(house, &["--tools", set, "--session", set]).await;
            let much = line("out 600000 , exit 0");
            let arguments = match set {
                "dsh" => json!({"command": much, "description": "x"}),
                _ => json!({"command": much}),
            };
            let (foreground, page) = match set {
                "compact" => (
                    "[337856 bytes before this are lost]\n[259144 bytes cut]\n[not all output could be kept: Not a directory (os error 20)]\n[t1 exited 0 in N; 600000 bytes; next: output id=t1 grep=REGEX]",
                    "[337856 bytes before this are lost]\n[not all output could be kept: Not a directory (os error 20)]\n[t1 exited 0 in N; next: output id=t1 since=346048]",
                ),
                "epoch" => (
                    "[337856 bytes before this are lost]\n[258144 bytes left out; read on: task_output id=t1 since=2000]\n[not all output could be kept: Not a directory (os error 20)]\n[exited 0 in N; 600000 bytes; t1]",
                    "[337856 bytes before this are lost]\n[not all output could be kept: Not a directory (os error 20)]\n[t1 exited 0 in N; since=346048]",
                ),
                _ => (
                    "[... the middle is lost ...]\n[output truncated; full output: unavailable]\n[exit code: 0]",
                    "[337856 bytes before this are lost]\n[not all output could be kept: Not a directory (os error 20)]\n[253952 more bytes: call job_output again]\n[bash-1 status: completed, exit code 0]",
                ),
            };
            of.says_around(run, arguments, foreground).await;
            let reading = match set {
                "dsh" => json!({"job_id": "bash-1"}),
                _ => json!({"id": "t1", "since": 0}),
            };
            of.says_around(read, reading, page).await;
            wrong.extend(of.wrong);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
        std::fs::remove_file(house.folders().artifacts()).unwrap();
    });
}

/// A shell that nobody used is not replaced silently: its state is gone, and whoever goes on with it is told so.
#[test]
fn the_words_for_a_shell_that_was_reaped() {
    in_empty_house(async |house| {
        std::fs::write(&house.folders().config, "[shell]\nshell_idle = 1000\n").unwrap();
        house.start();
        let mut wrong = Vec::new();
        for (set, ..) in READERS {
            let mut of = Words::new(house, &["--tools", set, "--session", set]).await;
            let (open, arguments) = match set {
                "compact" => ("run", json!({"command": "", "shell": "new"})),
                "epoch" => ("shell_open", json!({})),
                _ => ("terminal_open", json!({"type": "shell"})),
            };
            of.mcp.good(open, arguments).await;
            let desk = house.desk_of(session(set));
            assert_eq!(desk.over("s1").await.outcome, Some(Outcome::IdleReaped));
            match set {
                "compact" => {
                    of.says("run", json!({"command": "ls", "shell": "s1"}), "gone: s1 was closed after 1s without use; its state is lost. run with shell=new opens another.\n[notice: s1 ended without use: bash; next: output id=s1]")
                        .await;
                    of.says("input", json!({"id": "s1", "text": "x"}), "gone: s1 was closed after 1s without use; its state is lost. run with shell=new opens another.")
                        .await;
                    of.says(
                        "output",
                        json!({}),
                        "s1 ended without use; its state is gone: bash\n[1 job]",
                    )
                    .await;
                    of.says(
                        "stop",
                        json!({"id": "s1"}),
                        "[s1 had ended; nothing to stop]",
                    )
                    .await;
                }
                "epoch" => {
                    of.says("shell_send", json!({"id": "s1", "input": "x\n"}), "gone: s1 was closed after 1s without use; its state is lost. shell_open opens another.\n[notice: s1 ended without use: sh; next: task_output id=s1]")
                        .await;
                    of.says(
                        "shell_list",
                        json!({}),
                        "s1 ended without use; its state is gone: sh\n[1 shell]",
                    )
                    .await;
                    of.says(
                        "task_wait",
                        json!({"id": "s1"}),
                        "[s1 ended without use; its state is gone; read it: task_output id=s1]",
                    )
                    .await;
                }
                _ => {
                    of.says(
                        "terminal_send",
                        json!({"sessionId": "pty-1", "text": "x"}),
                        "exited: pty-1 has exited: killed, 1s without use.\n[notice: pty-1 ended without use: bash; next: terminal_read sessionId=pty-1]",
                    )
                    .await;
                    of.says(
                        "terminal_list",
                        json!({}),
                        "pty-1 shell exited, code null, signal SIGHUP\n[1 terminal]",
                    )
                    .await;
                }
            }
            wrong.extend(of.wrong);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    });
}

/// Tools 4, `held`: a person sits before the terminal, and what can be done meanwhile is named by tools that take it.
#[test]
fn the_words_for_a_terminal_that_somebody_holds() {
    in_empty_house(async |house| {
        house.start();
        let desk = house.desk();
        desk.shell("sh").await;
        let mut person = house.wire().await;
        person.attach(&house.folders().owner_key(), "x").await;
        let sit = json!({
            "id": "s1", "partialResultToken": 1, "rows": 24, "cols": 80, "take": true, "by": "the user"
        });
        person.ask("job/attach", sit).await;
        // Its screen comes first: it sits there then.
        person.read().await.expect("a screen");
        let mut wrong = Vec::new();
        for (set, tool, arguments, words) in [
            (
                "compact",
                "input",
                json!({"id": "s1", "text": "x\n"}),
                "held: s1 is held by the user since HH:MM. Wait, or read it: output id=s1.",
            ),
            (
                "epoch",
                "shell_send",
                json!({"id": "s1", "input": "x\n"}),
                "held: s1 is held by the user since HH:MM. Wait, or read it: task_output id=s1.",
            ),
            (
                "dsh",
                "terminal_send",
                json!({"sessionId": "pty-1", "text": "x"}),
                "held: pty-1 is held by the user since HH:MM. Wait, or read it: terminal_read sessionId=pty-1.",
            ),
        ] {
            let mut of = Words::new(house, &["--session", "x", "--tools", set]).await;
            of.says(tool, arguments, words).await;
            wrong.extend(of.wrong);
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    });
}

/// While it is being closed a shell says so, and nobody is told that it has no terminal or what is at its prompt.
#[test]
fn the_words_of_compact_for_a_shell_that_is_being_closed() {
    in_empty_house(async |house| {
        house.start();
        let desk = house.desk();
        desk.list().await;
        let mut of = Words::new(house, &["--session", "x"]).await;
        let stubborn = format!("{} ignore TERM , ignore HUP , sleep", puppet());
        let run = json!({"command": stubborn, "shell": "new", "wait_s": 0.3});
        of.says("run", run, "[s1 busy N; next: output id=s1 until=exit]")
            .await;
        let stops = of.mcp.begin_call("stop", json!({"id": "s1"})).await;
        closing(&desk, "s1").await;
        of.says(
            "run",
            json!({"command": "ls", "shell": "s1"}),
            "closing: s1 is being closed. run with shell=new opens another.",
        )
        .await;
        of.says(
            "input",
            json!({"id": "s1", "text": "x"}),
            "closing: s1 is being closed. run with shell=new opens another.",
        )
        .await;
        of.says_around("output", json!({"id": "s1", "since": 0}), "[s1 stopping]")
            .await;
        of.says("output", json!({}), "s1 stopping: bash\n[1 job; live: s1]")
            .await;
        desk.stop("s1", 0).await;
        of.answers(stops, "[s1 stopped; 2 processes ended]").await;
        of.says(
            "run",
            json!({"command": "ls", "shell": "s1"}),
            "gone: s1 has ended; its state is lost. run with shell=new opens another.",
        )
        .await;
        of.end();
    });
}
