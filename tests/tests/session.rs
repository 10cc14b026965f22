//! Promise: a session is the one owner of its jobs. It can get another name, hand its jobs on, be watched and be
//! left; a stranger never learns that it is there.

use ostler::follow::Event;
use ostler_proto::job::{JobResult, Outcome, State};
use ostler_proto::methods::{
    AdoptSession, CloseSession, For, Happened, JobGet, JobList, JobRead, JobSignal, JobStart,
    JobStop, List, MovedSession, Nothing, Notices, OpenSession, OpenedSession, Read, ReadNotices,
    RenameSession, SessionAdopt, SessionClose, SessionList, SessionNotices, SessionOpen,
    SessionRename, SessionWatch, SignalJob, Start, Stop, Target, WatchSession,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::house::{House, files_below, in_house};
use ostler_tests::process::Process;
use ostler_tests::{Desk, PATIENCE, Wire, desk::script, within};
use serde_json::json;

fn named(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        ..OpenSession::default()
    }
}

/// A client that holds the tokens of what it opens, and no owner key.
struct Guest {
    wire: Wire,
}

impl Guest {
    async fn new(house: &House) -> Self {
        Self {
            wire: house.wire().await,
        }
    }

    async fn ask(&mut self, method: &str, params: serde_json::Value) -> serde_json::Value {
        self.wire.call(method, params).await
    }

    async fn open(&mut self, id: &str) -> String {
        let opened = self.ask("session/open", json!({ "id": id })).await;
        let token = opened["result"]["token"].as_str();
        token.unwrap_or_else(|| panic!("{opened}")).into()
    }

    async fn start(&mut self, steps: &str) -> serde_json::Value {
        let args = script(steps).args;
        let row = self
            .ask("job/start", json!({ "args": args, "cwd": "/" }))
            .await;
        assert!(row["result"]["processId"].is_string(), "{row}");
        row["result"].clone()
    }
}

async fn rename(desk: &Desk, to: &str) -> MovedSession {
    let ask = RenameSession {
        session: None,
        to: to.into(),
    };
    desk.must::<SessionRename>(ask).await
}

async fn notices(desk: &Desk, seen: Option<u64>) -> Notices {
    desk.must::<SessionNotices>(ReadNotices {
        session: None,
        seen,
    })
    .await
}

async fn list(desk: &Desk, session: &str) -> Vec<String> {
    let ask = List {
        session: Some(session.into()),
        ..List::default()
    };
    let rows = desk.must::<JobList>(ask).await.jobs;
    rows.into_iter().map(|r| r.id).collect()
}

/// F3, 139: the whole slot moves; cursors, ids, waits and stops go on.
#[test]
fn a_renamed_session_keeps_its_jobs_under_their_ids() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        let row = desk
            .ready(script("say ready , fork [ sleep ] , sleep"))
            .await;
        let waiter = {
            let (desk, id) = (desk.clone(), row.process_id.clone());
            tokio::spawn(async move { desk.wait(&id).await })
        };
        let moved = rename(&desk, "z").await;
        assert_eq!(
            (moved.session.id.as_str(), moved.session.name.as_str()),
            ("z", "z")
        );
        assert_eq!(moved.jobs[0].from, "x/t1");
        assert_eq!(
            (moved.jobs[0].to.as_str(), &moved.jobs[0].process_id),
            ("t1", &row.process_id)
        );
        // The same connection goes on, without naming anything and by the new name.
        let page = desk.read("t1", 0).await;
        assert_eq!(page.text.as_deref(), Some("ready\n"));
        assert_eq!(list(&desk, "z").await, ["t1"]);
        assert_eq!(desk.get("z/t1").await.row.session.id, "z");
        // The old one says where it went, and old notes of a job still work.
        let old = List {
            session: Some("x".into()),
            ..List::default()
        };
        let refusal = desk.refused::<JobList>(old).await;
        assert_eq!(
            (refusal.kind, &refusal.data["to"]),
            (RefusalKind::Moved, &json!("z"))
        );
        assert_eq!(desk.get("x/t1").await.row.process_id, row.process_id);
        // Numbers go on where they were.
        assert_eq!(desk.start(script("sleep")).await.id, "t2");
        let receipt = desk.stop("t1", 5_000).await;
        assert_eq!((receipt.ended, receipt.row.session.id.as_str()), (2, "z"));
        let waited = within(PATIENCE, "the waiter", waiter).await.unwrap();
        assert_eq!(waited.outcome, Some(Outcome::Stopped));
    });
}

/// The old id answers its holder alone; everybody else gets the words of an unknown one.
#[test]
fn only_who_held_a_session_learns_where_it_went() {
    in_house(async |house| {
        let mut holder = Guest::new(house).await;
        let token = holder.open("x").await;
        holder.start("sleep").await;
        let moved = holder.ask("session/rename", json!({ "to": "z" })).await;
        assert_eq!(moved["result"]["session"]["id"], "z", "{moved}");
        let mut stranger = Guest::new(house).await;
        stranger.open("own").await;
        let asked = |session: &str| json!({ "session": session });
        let old = stranger.ask("job/list", asked("x")).await["error"].to_string();
        let never = stranger.ask("job/list", asked("q")).await["error"].to_string();
        assert_eq!(old.replace("session x", "session q"), never);
        let new = stranger.ask("job/list", asked("z")).await["error"].to_string();
        assert_eq!(new.replace("session z", "session q"), never);
        // A stranger cannot take the place of a session by renaming his own onto it either.
        let onto = stranger.ask("session/rename", json!({ "to": "z" })).await;
        assert_eq!(onto["error"]["data"]["kind"], "not_found", "{onto}");
        // The holder, back on a new connection with its token.
        let mut back = Guest::new(house).await;
        let open = json!({ "id": "x", "token": token });
        let refused = back.ask("session/open", open).await;
        assert_eq!(refused["error"]["data"]["kind"], "moved", "{refused}");
        assert_eq!(refused["error"]["data"]["to"], "z");
        let hint = &refused["error"]["data"]["hint"];
        assert_eq!(hint, "open z with the same token");
        let open = json!({ "id": "z", "token": token });
        let opened = back.ask("session/open", open).await;
        assert_eq!(opened["result"]["created"], false, "{opened}");
        assert_eq!(
            back.ask("job/list", json!({})).await["result"]["jobs"][0]["id"],
            "t1"
        );
    });
}

/// What a connection holds is that session, not whoever has its name later.
#[test]
fn a_later_session_of_the_same_id_is_not_open_to_who_held_the_former() {
    in_house(async |house| {
        let mut first = Guest::new(house).await;
        first.open("x").await;
        first.ask("session/close", json!({})).await;
        let mut second = Guest::new(house).await;
        second.open("x").await;
        second.start("sleep").await;
        let seen = first.ask("job/list", json!({ "session": "x" })).await;
        assert_eq!(seen["error"]["data"]["kind"], "not_found", "{seen}");
        let stopped = first
            .ask("job/stop", json!({ "session": "x", "all": true }))
            .await;
        assert!(stopped["error"].is_object(), "{stopped}");
        assert_eq!(
            second.ask("job/list", json!({})).await["result"]["jobs"][0]["state"],
            "running"
        );
    });
}

/// F6: the parent sees and can stop them, the child's id sees nothing. Colliding ids get the next free number.
#[test]
fn an_adopted_session_hands_over_its_jobs_with_a_table_of_names() {
    in_house(async |house| {
        let mut parent = Guest::new(house).await;
        parent.open("parent").await;
        for _ in 0..2 {
            parent.start("sleep").await;
        }
        let mut child = Guest::new(house).await;
        let opened = parent
            .ask("session/open", json!({ "id": "child", "parent": "parent" }))
            .await;
        let token = opened["result"]["token"].as_str().unwrap().to_owned();
        child
            .ask("session/open", json!({ "id": "child", "token": token }))
            .await;
        let one = child.start("ignore TERM , say ready , sleep").await;
        let two = child.start("out 300000 , exit 3").await;
        let ask = json!({ "ids": [two["id"]] });
        child.ask("job/wait", ask).await;
        // A third party that was told the parent's name may not take the child.
        let mut stranger = Guest::new(house).await;
        stranger.open("mine").await;
        let taken = stranger
            .ask("session/adopt", json!({ "session": "child" }))
            .await;
        assert_eq!(taken["error"]["data"]["kind"], "not_found", "{taken}");

        let adopt = json!({ "session": "child", "into": "parent" });
        let moved = parent.ask("session/adopt", adopt).await;
        let names: Vec<_> = moved["result"]["jobs"].as_array().unwrap().iter().collect();
        assert_eq!(
            (&names[0]["from"], &names[0]["to"]),
            (&json!("child/t1"), &json!("t3"))
        );
        assert_eq!(
            (&names[1]["from"], &names[1]["to"]),
            (&json!("child/t2"), &json!("t4"))
        );
        assert_eq!(names[0]["processId"], one["processId"]);
        // By the new name, and by the old one.
        for id in ["t4", "child/t2"] {
            let ask = json!({ "session": "parent", "id": id, "since": 0, "max": 1000 });
            let page = parent.ask("job/read", ask).await;
            assert_eq!(page["result"]["end"], 300_000, "{page}");
        }
        let gone = child.ask("job/list", json!({})).await;
        assert_eq!(gone["error"]["data"]["kind"], "moved", "{gone}");
        let gone = child
            .ask("job/get", json!({ "id": one["processId"] }))
            .await;
        assert_eq!(gone["error"]["data"]["kind"], "not_found", "{gone}");
        // Nor does its token open the other one: it was told to try that, and refused then.
        let open = json!({ "id": "child", "token": token });
        let gone = child.ask("session/open", open).await["error"].take();
        assert_eq!(gone["data"]["kind"], "moved", "{gone}");
        assert_eq!(gone["data"]["renamed"], false, "{gone}");
        assert_eq!(
            gone["data"]["hint"],
            "its jobs are parent's, which has a token of its own; open another session, or ask its owner"
        );
        let stop = json!({ "session": "parent", "ids": ["child/t1"], "force": true });
        let stopped = parent.ask("job/stop", stop).await;
        assert_eq!(stopped["result"]["jobs"][0]["row"]["id"], "t3", "{stopped}");
        // Its artifacts go with the session that has its jobs now.
        let spills = |house: &House| files_below(&house.folders().artifacts()).len();
        assert!(spills(house) > 0, "300 KB left the ring");
        parent
            .ask("session/close", json!({ "session": "parent" }))
            .await;
        assert_eq!(spills(house), 0);
    });
}

/// Adopted over the quota: taken and counted, never killed; new starts wait for room.
#[test]
fn adoption_over_the_quota_kills_nobody_and_is_counted() {
    in_house(async |house| {
        let small = |id: &str| OpenSession {
            commands: Some(2),
            ..named(id)
        };
        let (parent, child) = (
            house.desk_of(small("parent")),
            house.desk_of(small("child")),
        );
        for _ in 0..2 {
            parent.start(script("sleep")).await;
            child.start(script("sleep")).await;
        }
        let ask = AdoptSession {
            session: "child".into(),
            into: Some("parent".into()),
        };
        let moved = parent.must::<SessionAdopt>(ask).await;
        assert_eq!(moved.jobs.len(), 2);
        let rows = parent.list().await;
        assert_eq!(rows.iter().filter(|r| r.state == State::Running).count(), 4);
        let full = parent.refused::<JobStart>(script("sleep")).await;
        assert_eq!(
            (full.kind, full.data["rows"].as_array().unwrap().len()),
            (RefusalKind::Limit, 4)
        );
        for id in ["t1", "t2", "t3"] {
            parent.stop(id, 5_000).await;
        }
        parent.start(script("sleep")).await;
    });
}

/// Wanted only rises: a stop in progress goes on under the new owner, who did not ask for it and is told of its end.
#[test]
fn a_stop_goes_on_through_an_adoption() {
    in_house(async |house| {
        let parent = house.desk_of(named("parent"));
        let mut child = Guest::new(house).await;
        child.open("child").await;
        let row = child.start("ignore TERM , say ready , sleep").await;
        let id = row["processId"].as_str().unwrap();
        parent.printed(id, "^ready$").await;
        let stop = json!({ "ids": [id], "graceMs": 800 });
        let stopping = child.wire.ask("job/stop", stop).await;
        let is_stopping = |r: &JobResult| r.row.state == State::Stopping;
        parent.until(id, "the stop", is_stopping).await;
        let ask = AdoptSession {
            session: "child".into(),
            into: Some("parent".into()),
        };
        parent.must::<SessionAdopt>(ask).await;
        let summary = child.wire.answer(stopping).await["result"].take();
        let receipt = &summary["jobs"][0];
        assert_eq!(receipt["forced"], 1, "{summary}");
        assert_eq!(receipt["row"]["session"]["id"], "parent", "{summary}");
        let told = notices(&parent, None).await.notices;
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].row.outcome, Some(Outcome::Stopped));
    });
}

/// Renames, adoptions, notices and their confirmation outlive the supervisor.
#[test]
fn a_move_outlives_a_crash() {
    in_house(async |house| {
        let (desk, child) = (house.desk_of(named("x")), house.desk_of(named("child")));
        let live = desk.start(script("sleep")).await;
        let ended = desk.start(script("exit 4")).await;
        desk.over(&ended.id).await;
        let theirs = child.start(script("sleep")).await;
        rename(&desk, "z").await;
        let first = notices(&desk, None).await.notices;
        assert_eq!(first.len(), 1);
        let ask = AdoptSession {
            session: "child".into(),
            into: Some("z".into()),
        };
        let moved = desk.must::<SessionAdopt>(ask).await;
        assert_eq!(moved.jobs[0].to, "t3");
        for round in 0..2 {
            house.kill_supervisor().await;
            let desk = house.desk_of(named("z"));
            let rows = list(&desk, "z").await;
            assert_eq!(rows, ["t1", "t3", "t2"], "round {round}");
            assert_eq!(desk.get("t1").await.row.process_id, live.process_id);
            assert_eq!(desk.get("child/t1").await.row.process_id, theirs.process_id);
            let old = desk.refused::<JobGet>(Target {
                session: Some("x".into()),
                id: "t9".into(),
            });
            assert_eq!(old.await.kind, RefusalKind::Moved);
            // The notice is there until it is confirmed, with its number, and then never again.
            if round == 0 {
                let again = notices(&desk, None).await.notices;
                assert_eq!((again.len(), again[0].number), (1, first[0].number));
                assert_eq!(notices(&desk, Some(first[0].number)).await.notices.len(), 0);
            } else {
                assert_eq!(notices(&desk, None).await.notices.len(), 0);
            }
        }
        let desk = house.desk_of(named("z"));
        let end = SignalJob {
            session: None,
            id: "t3".into(),
            signal: "KILL".into(),
        };
        desk.must::<JobSignal>(end).await;
        desk.over("t3").await;
        let told = notices(&desk, None).await.notices;
        assert_eq!(told.len(), 1, "numbers go on");
        assert!(told[0].number > first[0].number);
    });
}

/// Where sessions went is the same after a crash: an id that is in use again was said to have moved, and an older one
/// pointed at whoever had the id in between by now.
#[test]
fn where_sessions_went_is_known_after_a_crash_as_before() {
    in_house(async |house| {
        let desk = house.desk_of(named("a"));
        for to in ["x", "z"] {
            rename(&desk, to).await;
        }
        house.desk_of(named("x")).list().await;
        let mut guest = Guest::new(house).await;
        let token = guest.open("p").await;
        for to in ["q", "p"] {
            guest.ask("session/rename", json!({ "to": to })).await;
        }
        guest.ask("session/close", json!({})).await;
        for when in ["before", "after"] {
            let get = Target {
                session: Some("a".into()),
                id: "t1".into(),
            };
            let refusal = house.desk_without_session().refused::<JobGet>(get).await;
            assert_eq!(refusal.kind, RefusalKind::Moved, "{when}");
            assert_eq!(refusal.data["to"], "z", "{when}");
            let open = json!({ "id": "p", "token": token });
            let refused = Guest::new(house).await.ask("session/open", open).await;
            let kind = &refused["error"]["data"]["kind"];
            assert_eq!(kind, "session_gone", "{when}: {refused}");
            if when == "before" {
                house.kill_supervisor().await;
            }
        }
    });
}

/// It said "moved to b" of a session that was closed, and of a later one of that id that had nothing to do with it.
#[test]
fn nothing_has_moved_to_a_session_that_is_closed() {
    in_house(async |house| {
        let desk = house.desk_of(named("a"));
        desk.list().await;
        rename(&desk, "b").await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        let kind = async || {
            let get = Target {
                session: Some("a".into()),
                id: "t1".into(),
            };
            let refusal = house.desk_without_session().refused::<JobGet>(get).await;
            refusal.kind
        };
        for when in ["closed", "opened again", "after a crash"] {
            assert_eq!(kind().await, RefusalKind::NotFound, "{when}");
            match when {
                "closed" => drop(house.desk_of(named("b")).list().await),
                _ => drop(house.kill_supervisor().await),
            }
        }
    });
}

/// `CHILD/web` was unknown after an adoption, although `CHILD/t1` was known.
#[test]
fn a_job_that_was_adopted_is_found_by_its_old_name_too() {
    in_house(async |house| {
        let child = house.desk_of(named("child"));
        let named_web = |steps: &str| Start {
            name: Some("web".into()),
            ..script(steps)
        };
        let ended = child.start(named_web("exit 0")).await;
        child.wait(&ended.id).await;
        let live = child.start(named_web("sleep")).await;
        let other = house.desk_of(named("other"));
        other.start(named_web("sleep")).await;
        let into = house.desk_of(named("into"));
        into.start(named_web("sleep")).await;
        for session in ["child", "other"] {
            let ask = AdoptSession {
                session: session.into(),
                into: Some("into".into()),
            };
            into.must::<SessionAdopt>(ask).await;
        }
        for _ in 0..2 {
            let into = house.desk_of(named("into"));
            // The live one first, as everywhere.
            let found = into.get("child/web").await.row;
            assert_eq!(found.process_id, live.process_id);
            assert_eq!(into.get("child/t1").await.row.process_id, ended.process_id);
            let unknown = into.refused::<JobGet>(Target {
                session: None,
                id: "child/api".into(),
            });
            assert_eq!(unknown.await.kind, RefusalKind::Moved);
            house.kill_supervisor().await;
        }
        let said = house.cli(&["stop", "child/web"]);
        assert_eq!(said.code, 0, "{said:?}");
        let into = house.desk_of(named("into"));
        let found = into.get("child/web").await.row;
        assert_eq!(
            found.process_id, live.process_id,
            "the newest that has ended"
        );
    });
}

/// I8, I9, I14, J3: starting before any process, change before completion, final before removal.
#[test]
fn events_come_in_order_and_before_those_who_wait() {
    in_house(async |house| {
        let (desk, other) = (house.desk_of(named("x")), house.desk_of(named("y")));
        let mut events = desk.client.stream::<SessionWatch>(WatchSession::default());
        let mut next = async || match within(PATIENCE, "an event", events.next()).await.unwrap() {
            Event::Happened(event) => *event,
            other => panic!("{other:?}"),
        };
        let begun = next().await;
        assert_eq!((begun.what, begun.row), (Happened::Watching, None));
        // What other sessions do is not told.
        other.run(script("exit 0")).await;
        let row = desk.start(script("fork [ sleep ] , say up , sleep")).await;
        let starting = next().await;
        assert_eq!(starting.what, Happened::Starting);
        assert_eq!(starting.row.as_ref().unwrap().pid, None, "J3");
        assert_eq!(starting.row.unwrap().process_id, row.process_id);
        assert_eq!(next().await.what, Happened::Running);
        desk.said(&row.id, "^up$").await;
        let receipt = desk.stop(&row.id, 5_000).await;
        assert_eq!(receipt.ended, 2);
        let mut seen = Vec::new();
        let mut last = starting.seq;
        while seen.last() != Some(&Happened::Exited) {
            let event = next().await;
            assert!(event.seq > last);
            last = event.seq;
            let row_then = event.row.unwrap();
            if event.what == Happened::Exited {
                assert_eq!(
                    row_then.outcome,
                    Some(Outcome::Stopped),
                    "the row of that moment"
                );
            } else {
                assert_eq!(row_then.outcome, None, "{:?}", event.what);
            }
            seen.push(event.what);
        }
        assert_eq!(seen[0], Happened::Stopping);
        desk.must::<ostler_proto::methods::JobRelease>(Target {
            session: None,
            id: row.id.clone(),
        })
        .await;
        let removed = next().await;
        assert_eq!(removed.what, Happened::Removed);
        assert_eq!(
            removed.row.unwrap().outcome,
            Some(Outcome::Stopped),
            "final before removal"
        );
    });
}

/// I8. Whoever watches and waits on one connection hears of an end once as an event, then as an answer.
#[test]
fn an_answer_stands_behind_the_events_of_what_it_tells() {
    in_house(async |house| {
        let mut wire = house.wire().await;
        wire.call("session/open", json!({ "id": "x" })).await;
        wire.ask("session/watch", json!({ "partialResultToken": "w" }))
            .await;
        for n in 0..30 {
            let started = wire
                .call("job/start", json!({ "args": ["sleep", "60"] }))
                .await;
            let id = started["result"]["id"].as_str().unwrap().to_owned();
            let (ask, last) = match n % 3 {
                0 => ("job/stop", "exited"),
                1 => ("job/release", "removed"),
                _ => ("job/wait", "exited"),
            };
            let params = match ask {
                "job/release" => json!({ "id": id }),
                _ => json!({ "ids": [id] }),
            };
            let asked = wire.ask(ask, params).await;
            if ask == "job/wait" {
                let pid = started["result"]["pid"].as_u64().unwrap();
                Process::of(pid as u32).unwrap().signal(libc::SIGKILL);
            }
            let mut told = false;
            loop {
                let message = wire.read().await.expect("the supervisor lives");
                if message["id"] == asked {
                    break;
                }
                let event = &message["params"]["value"]["event"];
                told |= event["row"]["id"] == id.as_str() && event["type"] == last;
            }
            assert!(told, "{ask}: its answer came before the event");
        }
    });
}

/// A watch ends with its session; one that is behind is told how much it missed and goes on.
#[test]
fn a_watch_ends_with_its_session_and_counts_what_it_missed() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        let behind = WatchSession {
            since: Some(0),
            ..WatchSession::default()
        };
        // Nobody watched: these are not kept.
        desk.run(script("exit 0")).await;
        let mut events = desk.client.stream::<SessionWatch>(behind);
        let mut next = async || match within(PATIENCE, "an event", events.next()).await.unwrap() {
            Event::Happened(event) => *event,
            other => panic!("{other:?}"),
        };
        assert_eq!(next().await.what, Happened::Watching);
        let first = next().await;
        assert_eq!(first.what, Happened::Missed);
        assert_eq!(first.missed, Some(first.seq), "all from the first one on");
        desk.must::<SessionClose>(CloseSession::default()).await;
        loop {
            match within(PATIENCE, "the end", events.next()).await.unwrap() {
                Event::Happened(event) => assert_eq!(event.what, Happened::Removed),
                Event::End(end) => {
                    assert!(end.seq > first.seq);
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
    });
}

/// Tokens of a session that was closed are of no use, and say why.
#[test]
fn the_token_of_a_closed_session_is_gone_and_makes_no_new_one() {
    in_house(async |house| {
        let mut guest = Guest::new(house).await;
        let token = guest.open("x").await;
        guest.ask("session/close", json!({})).await;
        let again = guest
            .ask("session/open", json!({ "id": "x", "token": token }))
            .await;
        assert_eq!(again["error"]["data"]["kind"], "session_gone", "{again}");
        assert!(again["error"]["data"]["startedAt"].is_u64(), "{again}");
        let desk = house.desk_without_session();
        assert!(
            desk.must::<SessionList>(Nothing {})
                .await
                .sessions
                .is_empty()
        );
    });
}

/// F8: A lease that ended says so, keeps what there is to read, and is void when somebody comes back.
#[test]
fn a_lapsed_session_keeps_its_records_and_takes_its_owner_back() {
    in_house(async |house| {
        let leased = OpenSession {
            lease_ms: Some(1),
            ..named("x")
        };
        let desk = house.desk_of(leased.clone());
        let row = desk.ready(script("say ready , sleep")).await;
        let watcher = house.desk_without_session();
        drop(desk);
        let ended = watcher.wait(&row.process_id).await;
        assert_eq!(
            ended.outcome_detail.and_then(|d| d.by).as_deref(),
            Some("lease")
        );
        let session = async || {
            watcher
                .must::<SessionList>(Nothing {})
                .await
                .sessions
                .remove(0)
        };
        let told = session().await;
        assert!(told.lapsed_at.is_some() && told.clients == 0, "{told:?}");
        assert_eq!(told.lease_ms, Some(1));
        let read = Read {
            id: row.process_id.clone(),
            since: Some(0),
            ..Read::default()
        };
        assert_eq!(
            watcher.must::<JobRead>(read).await.text.as_deref(),
            Some("ready\n")
        );
        let back = house.desk_of(OpenSession {
            keep: true,
            ..named("x")
        });
        assert_eq!(back.start(script("sleep")).await.id, "t2");
        let told = session().await;
        assert_eq!(
            (told.lapsed_at, told.lease_ms, told.lease_left_ms),
            (None, None, None)
        );
        drop(back);
        // Kept without a deadline from now on: leaving ends nothing.
        let stop = Stop {
            ids: vec![row.process_id.clone()],
            ..Stop::default()
        };
        watcher.must::<JobStop>(stop).await;
        let told = watcher.wait_for("x/t2", For::Quiet(50)).await;
        assert_eq!(told.row.state, State::Running);
    });
}

/// 140: a start beside a close is refused, or ended with it; nothing of it is left.
#[test]
fn a_start_beside_a_close_is_refused_or_ended() {
    in_house(async |house| {
        let artifacts = house.folders().artifacts();
        for round in 0..ostler_tests::rounds("OSTLER_CLOSES", 50) {
            let id = format!("s{round}");
            let (opener, closer) = (house.desk_of(named(&id)), house.desk_without_session());
            let _: OpenedSession = opener.must::<SessionOpen>(named(&id)).await;
            let start = Start {
                session: Some(id.clone()),
                ..script("out 300000 , sleep")
            };
            let close = CloseSession {
                session: Some(id.clone()),
                grace_ms: Some(0),
            };
            let starting = tokio::spawn(async move { opener.call::<JobStart>(start).await });
            closer.must::<SessionClose>(close).await;
            let started = within(PATIENCE, "the start", starting).await.unwrap();
            if let Ok(row) = started {
                let get = Target {
                    session: None,
                    id: row.process_id,
                };
                closer.refused::<JobGet>(get).await;
            }
            assert_eq!(house.info().await.jobs, 0, "round {round}");
            assert!(files_below(&artifacts).is_empty(), "round {round}");
        }
    });
}

/// F13: where two clients closed a session at the same time, the slower one forgot, and left without an owner, what had
/// begun under the same id since.
#[test]
fn a_late_close_does_not_touch_the_next_session_of_the_same_id() {
    in_house(async |house| {
        for round in 0..ostler_tests::rounds("OSTLER_CLOSES", 50) {
            let (mut first, mut second) = (Guest::new(house).await, Guest::new(house).await);
            first.open("x").await;
            first.start("sleep").await;
            let close = json!({ "session": "x", "graceMs": 0 });
            for _ in 0..16 {
                first.wire.ask("session/close", close.clone()).await;
            }
            // Its id is free with the first answer.
            let answer = first.wire.read().await.expect("the connection goes on");
            assert!(answer["result"].is_object(), "{answer}");
            second.open("x").await;
            let row = second.start("sleep").await;
            for _ in 1..16 {
                let answer = first.wire.read().await.expect("the connection goes on");
                assert!(answer["result"].is_object(), "{answer}");
            }
            let jobs = second.ask("job/list", json!({})).await;
            let jobs = &jobs["result"]["jobs"];
            assert_eq!(jobs[0]["processId"], row["processId"], "round {round}");
            assert_eq!(jobs[0]["state"], "running", "round {round}");
            second.ask("session/close", close).await;
        }
    });
}

/// F13: neither the connection of the former owner nor the lease that it left behind ends what is another's by now.
#[test]
fn the_lease_of_a_former_session_does_not_end_the_next_one_of_the_same_id() {
    in_house(async |house| {
        let open = json!({ "id": "x", "leaseMs": 50 });
        let mut former = Guest::new(house).await;
        former.ask("session/open", open.clone()).await;
        let row = former.start("sleep").await;
        let watcher = house.desk_without_session();
        drop(former);
        // Its lease runs from here on.
        let close = CloseSession {
            session: Some("x".into()),
            grace_ms: Some(0),
        };
        watcher.must::<SessionClose>(close).await;
        let get = Target {
            session: None,
            id: row["processId"].as_str().unwrap().into(),
        };
        watcher.refused::<JobGet>(get).await;
        let (mut owner, mut gone) = (Guest::new(house).await, Guest::new(house).await);
        let opened = owner.ask("session/open", open).await;
        let token = opened["result"]["token"].clone();
        let back = json!({ "id": "x", "token": token });
        gone.ask("session/open", back).await;
        let row = owner.start("sleep").await;
        drop(gone);
        let id = row["processId"].as_str().unwrap();
        let told = watcher.wait_for(id, For::Quiet(200)).await;
        assert_eq!(told.row.state, State::Running);
    });
}

/// Each job that a close ended says so, the second one as well, which ended while the first was waited for.
#[test]
fn the_receipts_of_a_close_tell_what_it_ended() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        let over = desk.start(script("exit 0")).await;
        desk.wait(&over.id).await;
        for _ in 0..3 {
            desk.ready(script("say ready , sleep")).await;
        }
        let summary = desk.must::<SessionClose>(CloseSession::default()).await;
        for receipt in &summary.jobs {
            let was_over = receipt.row.id == over.id;
            assert_eq!(
                (receipt.already_finished, receipt.ended),
                (was_over, u32::from(!was_over)),
                "{receipt:?}"
            );
        }
        assert_eq!(summary.jobs.len(), 4);
    });
}

/// A token that opens nothing is answered alike for a session that is there and for one that never was; and nobody
/// counts what others run.
#[test]
fn a_wrong_token_does_not_tell_whether_a_session_is_there() {
    in_house(async |house| {
        let mut owner = Guest::new(house).await;
        owner.open("there").await;
        owner.start("sleep").await;
        let mut stranger = Guest::new(house).await;
        let wrong = "0".repeat(64);
        let mut ask = async |id: &str| {
            let params = json!({ "id": id, "token": wrong });
            stranger.ask("session/open", params).await["error"].to_string()
        };
        let (there, never) = (ask("there").await, ask("never").await);
        assert_eq!(there.replace("session there", "session never"), never);
        assert!(never.contains("session_gone"), "{never}");
        let info = stranger.ask("supervisor/info", json!({})).await;
        assert_eq!(
            (&info["result"]["sessions"], &info["result"]["jobs"]),
            (&json!(0), &json!(0))
        );
    });
}
