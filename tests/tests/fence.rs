//! Promise: what belongs to somebody else is answered, by every method and byte for byte, as what never was; and nothing
//! happens to it.

use std::collections::BTreeSet;

use ostler_proto::agent::RegisterAgent;
use ostler_proto::command::COMMANDS;
use ostler_proto::methods::{AgentRegister, OpenSession, SessionList, ShellSend, TABLE};
use ostler_proto::methods::{Nothing, Start};
use ostler_proto::schema;
use ostler_proto::shell::Send;
use ostler_tests::desk::script;
use ostler_tests::{Desk, House, Wire, in_house};
use serde_json::{Value, json};

/// What both are answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    /// That there is none.
    None,
    /// That all is well: it is as the asker wants it.
    Done,
}

/// One question: `@session`, `@job` and `@root` stand for what is somebody else's, and for what never was.
type Ask = (Says, &'static str);

const JOB: &[Ask] = &[
    (Says::None, r#"{"id":"@job"}"#),
    (Says::None, r#"{"session":"@session","id":"t1"}"#),
    (Says::None, r#"{"session":"mine","id":"@job"}"#),
];
const FORGOTTEN: &[Ask] = &[
    (Says::Done, r#"{"id":"@job"}"#),
    (Says::Done, r#"{"session":"@session","id":"t1"}"#),
    (Says::Done, r#"{"session":"mine","id":"@job"}"#),
];
const LIST: &[Ask] = &[
    (Says::None, r#"{"session":"@session"}"#),
    (Says::Done, r#"{"root":"@root"}"#),
];
const TERMINAL: &[Ask] = &[
    (
        Says::None,
        r#"{"sessionId":"@session","terminalId":"@job"}"#,
    ),
    (Says::None, r#"{"sessionId":"mine","terminalId":"@job"}"#),
];

/// Every method that takes something which belongs to somebody. One that has no row takes nothing of that kind.
const ASKED: &[(&str, &[Ask])] = &[
    (
        "session/open",
        &[
            (Says::None, r#"{"parent":"@session"}"#),
            (Says::None, r#"{"id":"@session","attachOnly":true}"#),
            (Says::None, r#"{"id":"@session","token":"wrong"}"#),
            (
                Says::None,
                r#"{"id":"@session","token":"wrong","attachOnly":true}"#,
            ),
        ],
    ),
    (
        "session/rename",
        &[(Says::None, r#"{"session":"@session","to":"elsewhere"}"#)],
    ),
    (
        "session/adopt",
        &[
            (Says::None, r#"{"session":"@session"}"#),
            (Says::None, r#"{"session":"@session","into":"mine"}"#),
            (Says::None, r#"{"session":"mine","into":"@session"}"#),
        ],
    ),
    (
        "session/notices",
        &[(Says::None, r#"{"session":"@session","seen":9}"#)],
    ),
    (
        "session/watch",
        &[(
            Says::None,
            r#"{"session":"@session","partialResultToken":1}"#,
        )],
    ),
    (
        "session/close",
        &[(Says::Done, r#"{"session":"@session","graceMs":0}"#)],
    ),
    (
        "job/start",
        &[(
            Says::None,
            r#"{"session":"@session","args":["true"],"cwd":"/"}"#,
        )],
    ),
    (
        "job/run",
        &[(
            Says::None,
            r#"{"start":{"session":"@session","args":["true"],"cwd":"/"}}"#,
        )],
    ),
    ("job/detach", JOB),
    ("job/list", LIST),
    ("job/get", JOB),
    ("job/read", JOB),
    (
        "job/tail",
        &[
            (Says::None, r#"{"id":"@job","partialResultToken":1}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"t1","partialResultToken":1,"follow":true}"#,
            ),
        ],
    ),
    (
        "job/wait",
        &[
            (Says::None, r#"{"ids":["@job"],"timeoutMs":0}"#),
            (Says::None, r#"{"ids":["@job","@job"],"any":true}"#),
            (Says::None, r#"{"session":"@session","ids":["t1"]}"#),
        ],
    ),
    (
        "job/write",
        &[
            (Says::None, r#"{"id":"@job","text":"typed"}"#),
            (Says::None, r#"{"session":"@session","id":"t1","eof":true}"#),
        ],
    ),
    (
        "job/resize",
        &[
            (Says::None, r#"{"id":"@job","rows":9,"cols":9}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"s1","rows":9,"cols":9}"#,
            ),
        ],
    ),
    (
        "job/keys",
        &[
            (Says::None, r#"{"id":"@job","keys":["C-c"]}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"s1","keys":["C-c"]}"#,
            ),
        ],
    ),
    ("job/screen", JOB),
    (
        "job/attach",
        &[
            (
                Says::None,
                r#"{"id":"@job","partialResultToken":1,"rows":9,"cols":9}"#,
            ),
            (
                Says::None,
                r#"{"session":"@session","id":"s1","partialResultToken":1,"rows":9,"cols":9,"take":true}"#,
            ),
        ],
    ),
    (
        "job/signal",
        &[
            (Says::None, r#"{"id":"@job","signal":"KILL"}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"t1","signal":"KILL"}"#,
            ),
        ],
    ),
    (
        "job/stop",
        &[
            (Says::None, r#"{"ids":["@job"],"force":true}"#),
            // Of several the others are ended, and those are named that are none.
            (Says::Done, r#"{"ids":["@job","t1"],"force":true}"#),
            (Says::None, r#"{"session":"@session","ids":["t1"]}"#),
            (Says::None, r#"{"session":"@session","all":true}"#),
            (Says::Done, r#"{"root":"@root","force":true}"#),
        ],
    ),
    ("job/release", FORGOTTEN),
    (
        "shell/open",
        &[(Says::None, r#"{"session":"@session","cwd":"/"}"#)],
    ),
    (
        "shell/send",
        &[
            (Says::None, r#"{"id":"@job","text":"typed","enter":true}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"s1","text":"typed","background":true}"#,
            ),
        ],
    ),
    (
        "shell/exec",
        &[
            (Says::None, r#"{"id":"@job","line":"typed"}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"s1","line":"typed"}"#,
            ),
        ],
    ),
    ("shell/read", JOB),
    ("shell/list", LIST),
    ("shell/close", FORGOTTEN),
    (
        "agent/register",
        &[(Says::None, r#"{"session":"@session","label":"review"}"#)],
    ),
    (
        "agent/append",
        &[
            (Says::None, r#"{"id":"@job","text":"typed"}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"a1","text":"typed"}"#,
            ),
        ],
    ),
    ("agent/stopRequested", JOB),
    (
        "agent/finish",
        &[
            (Says::None, r#"{"id":"@job","exitCode":0}"#),
            (
                Says::None,
                r#"{"session":"@session","id":"a1","exitCode":0}"#,
            ),
        ],
    ),
    (
        "terminal/create",
        &[(
            Says::None,
            r#"{"sessionId":"@session","command":"true","cwd":"/"}"#,
        )],
    ),
    ("terminal/output", TERMINAL),
    ("terminal/wait_for_exit", TERMINAL),
    ("terminal/kill", TERMINAL),
    (
        "terminal/release",
        &[
            (
                Says::Done,
                r#"{"sessionId":"@session","terminalId":"@job"}"#,
            ),
            (Says::Done, r#"{"sessionId":"mine","terminalId":"@job"}"#),
        ],
    ),
];

/// Its commands are asked with what the methods of [`ASKED`] are asked that they stand for.
const COMMAND: &str = "workspace/executeCommand";

/// Fields of parameters that name what may be somebody else's.
const FIELDS: &[&str] = &[
    "session",
    "sessionId",
    "id",
    "ids",
    "terminalId",
    "parent",
    "into",
    "root",
];

/// Those that do not. What a new session shall be called must be free, and the asker is told whether it is; the session
/// of a sub-agent stands beside its program, and is refused in it whosever it is.
const OWN: &[(&str, &str)] = &[
    ("session/open", "root"),
    ("agent/register", "child.id"),
    ("agent/register", "start.session"),
];

/// All that is asked of a method.
fn asks(method: &str) -> Vec<(Says, Value)> {
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    if method == COMMAND {
        let of = COMMANDS.iter().flat_map(|offered| {
            let wrapped =
                move |params: Value| json!({ "command": offered.name, "arguments": [params] });
            let asks = asks(offered.method).into_iter();
            asks.map(move |(says, params)| (says, wrapped(params)))
        });
        return of.collect();
    }
    let row = ASKED.iter().find(|(name, _)| *name == method);
    let asks = row.map_or(&[][..], |(_, asks)| asks);
    asks.iter()
        .map(|(says, text)| (*says, read(text)))
        .collect()
}

/// The names of the fields that parameters have, those of what stands inside them with a dot.
fn fields(schema: &Value, defs: &Value, before: &str, into: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(path) => &defs[path.rsplit('/').next().unwrap()],
        None => schema,
    };
    for one in schema["anyOf"].as_array().into_iter().flatten() {
        fields(one, defs, before, into);
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        into.insert(format!("{before}{name}"));
        fields(field, defs, &format!("{before}{name}."), into);
    }
}

/// F1, the table is whole: a method that is added with a session, a job or a folder among its parameters needs a row.
#[test]
fn every_field_that_names_what_may_be_foreign_is_asked_with_it() {
    let document = schema::document();
    let mut missing = Vec::new();
    for method in TABLE {
        let mut all = BTreeSet::new();
        let params = &document["methods"][method.name]["params"];
        fields(params, &document["$defs"], "", &mut all);
        let names = |path: &String| FIELDS.contains(&path.rsplit('.').next().unwrap());
        let asks = asks(method.name);
        for path in all.iter().filter(|path| names(path)) {
            let pointer = format!("/{}", path.replace('.', "/"));
            let is_asked = |params: &Value| {
                let value = params.pointer(&pointer);
                value.is_some_and(|value| value.to_string().contains('@'))
            };
            let is_own = OWN.contains(&(method.name, path.as_str()));
            if !is_own && !asks.iter().any(|(_, params)| is_asked(params)) {
                missing.push(format!("{} {path}", method.name));
            }
        }
    }
    assert_eq!(missing, [""; 0], "nobody asks for these of somebody else");
    // Nor is there a row for what is gone.
    for (name, _) in ASKED {
        assert!(TABLE.iter().any(|method| method.name == *name), "{name}");
    }
    assert!(!asks(COMMAND).is_empty());
}

/// Somebody else's, or nobody's.
struct Named {
    session: &'static str,
    root: String,
    jobs: Vec<String>,
}

impl Named {
    /// The questions, with names in them.
    fn fill(&self, params: &Value, job: usize) -> Value {
        let text = params.to_string();
        let text = text
            .replace("@session", self.session)
            .replace("@root", &self.root)
            .replace("@job", &self.jobs[job]);
        serde_json::from_str(&text).unwrap()
    }
}

const THEIRS: &str = "theirs";
const NOBODY: &str = "nobody";
/// As long as one that is, and never given to any job.
const NEVER: &str = "proc_01ARZ3NDEKTSV4RRFFQ69G5FAV";

/// A session with a job of each kind and a terminal, and its jobs by each name that they have.
async fn theirs(house: &House) -> (Desk, Wire, Named) {
    let root = house.path(THEIRS);
    std::fs::create_dir(&root).unwrap();
    let desk = house.desk_of(OpenSession {
        id: Some(THEIRS.into()),
        root: Some(root.clone()),
        ..OpenSession::default()
    });
    let named = Start {
        name: Some("web".into()),
        ..script("sleep")
    };
    let command = desk.start(named).await.process_id;
    let shell = desk.shell("sh").await;
    let send = Send {
        id: shell.clone(),
        text: "sleep 1000".into(),
        enter: true,
        background: true,
        ..Send::default()
    };
    let sent = desk.must::<ShellSend>(send).await.job.expect("a job");
    let shell = desk.get(&shell).await.row.process_id;
    let review = RegisterAgent {
        label: Some("review".into()),
        ..RegisterAgent::default()
    };
    let agent = desk.must::<AgentRegister>(review).await;
    let mut wire = house.wire().await;
    wire.attach(&house.folders().owner_key(), THEIRS).await;
    let create = json!({ "sessionId": THEIRS, "command": "sleep", "args": ["1000"], "cwd": "/" });
    let created = wire.call("terminal/create", create).await;
    let terminal = created["result"]["terminalId"].as_str().expect("its id");
    let jobs = vec![
        command.clone(),
        shell,
        agent.row.process_id,
        sent.process_id.clone(),
        terminal.to_owned(),
        // The beginning of one alone, and of all.
        command[..20].to_owned(),
        command[..8].to_owned(),
        format!("{THEIRS}/t1"),
        format!("{THEIRS}/s1"),
        format!("{THEIRS}/a1"),
        format!("{THEIRS}/{}", sent.id),
        format!("{THEIRS}/web"),
        "web".to_owned(),
    ];
    let session = THEIRS;
    let named = Named {
        session,
        root,
        jobs,
    };
    (desk, wire, named)
}

/// Names of the same shapes that nobody has.
fn nobodys(house: &House, theirs: &Named) -> Named {
    let of = |name: &String| match name {
        name if name.starts_with("proc_") => NEVER[..name.len()].to_owned(),
        name if name == "web" => "bew".into(),
        name => name.replace(THEIRS, NOBODY),
    };
    Named {
        session: NOBODY,
        root: house.path(NOBODY),
        jobs: theirs.jobs.iter().map(of).collect(),
    }
}

/// The answer alone, in which the names of the one are those of the other.
fn bare(answer: &Value, theirs: &Named, nobodys: &Named) -> String {
    let mut answer = answer.clone();
    answer.as_object_mut().expect("an answer").remove("id");
    let mut text = answer.to_string();
    for (from, to) in theirs.jobs.iter().zip(&nobodys.jobs) {
        // A name among others that are longer.
        text = text.replace(&format!("{from} "), &format!("{to} "));
        text = text.replace(&format!("{from}\""), &format!("{to}\""));
    }
    text.replace(theirs.session, nobodys.session)
}

/// F1: a stranger who guesses an id learns nothing, from no method, and changes nothing.
#[test]
fn what_is_foreign_is_answered_as_what_never_was_by_every_method() {
    in_house(async |house| {
        let (owner, _holds_the_terminal, theirs) = theirs(house).await;
        let nobodys = nobodys(house, &theirs);
        let before = owner.list().await;
        assert_eq!(before.len(), 5);
        let (mut stranger, mut homeless) = (house.wire().await, house.wire().await);
        let opened = stranger.call("session/open", json!({ "id": "mine" })).await;
        assert_eq!(opened["result"]["created"], true, "{opened}");
        let mut differences = Vec::new();
        for method in TABLE {
            for (says, params) in asks(method.name) {
                let of_jobs = params.to_string().contains("@job");
                let names = if of_jobs { theirs.jobs.len() } else { 1 };
                for job in 0..names {
                    let foreign = theirs.fill(&params, job);
                    let never = nobodys.fill(&params, job);
                    for (who, wire) in [("stranger", &mut stranger), ("homeless", &mut homeless)] {
                        let a = wire.call(method.name, foreign.clone()).await;
                        let b = wire.call(method.name, never.clone()).await;
                        let kind = b["error"]["data"]["kind"].as_str().unwrap_or_default();
                        // Refused for another reason, nothing would be shown.
                        let is_as_said = match says {
                            Says::None => matches!(kind, "not_found" | "session_gone"),
                            Says::Done => b["result"].is_object(),
                        };
                        let (a, b) = (bare(&a, &theirs, &nobodys), b);
                        let b = bare(&b, &theirs, &nobodys);
                        if a != b || (who == "stranger" && !is_as_said) {
                            let name = method.name;
                            differences.push(format!("{who} {name} {foreign}\n  {a}\n  {b}"));
                        }
                    }
                }
            }
        }
        assert!(
            differences.is_empty(),
            "{} differ:\n{}",
            differences.len(),
            differences.join("\n")
        );
        assert_eq!(owner.list().await, before, "nothing has happened to them");
        let sessions = owner.must::<SessionList>(Nothing {}).await.sessions;
        let ids: Vec<&str> = sessions.iter().map(|s| s.session.id.as_str()).collect();
        assert_eq!(ids, [THEIRS, "mine"]);
    });
}
