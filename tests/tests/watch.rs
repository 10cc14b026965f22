//! Promise: who watches a session learns of everything that happens to its jobs, once and in order, whatever name the
//! session has; and each end in the background is told once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ostler::follow::Event;
use ostler_proto::job::{Row, State};
use ostler_proto::methods::{
    self, AdoptSession, CloseSession, Happened, JobRelease, Notices, OpenSession, ReadNotices,
    RenameSession, SessionAdopt, SessionClose, SessionNotices, SessionRename, SessionWatch, Target,
    WatchSession,
};
use ostler_proto::refusal::RefusalKind;
use ostler_tests::house::{House, in_house};
use ostler_tests::wire::framed;
use ostler_tests::{Desk, PATIENCE, Wire, desk::script, within};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;

fn named(id: &str) -> OpenSession {
    OpenSession {
        id: Some(id.into()),
        commands: Some(1_000),
        ..OpenSession::default()
    }
}

async fn rename(desk: &Desk, to: &str) {
    let ask = RenameSession {
        session: None,
        to: to.into(),
    };
    desk.must::<SessionRename>(ask).await;
}

async fn adopt(into: &Desk, child: &str) {
    let ask = AdoptSession {
        session: child.into(),
        into: None,
    };
    into.must::<SessionAdopt>(ask).await;
}

async fn release(desk: &Desk, id: &str) {
    let ask = Target {
        session: None,
        id: id.into(),
    };
    desk.must::<JobRelease>(ask).await;
}

/// Everything that a watcher of a session is told, until the session is gone.
struct Watcher {
    events: JoinHandle<Vec<methods::Event>>,
    missed: watch::Receiver<usize>,
}

impl Watcher {
    /// Begins to watch; what happens from now on is told.
    async fn new(desk: Desk, params: WatchSession) -> Self {
        let (tell, missed) = watch::channel(0);
        let (begun, watching) = tokio::sync::oneshot::channel();
        let events = tokio::spawn(async move {
            let mut begun = Some(begun);
            let mut all = Vec::new();
            let mut stream = desk.client.stream::<SessionWatch>(params);
            loop {
                match stream.next().await.expect("a watch goes on") {
                    Event::Happened(event) if event.what == Happened::Watching => {
                        if let Some(begun) = begun.take() {
                            let _ = begun.send(());
                        }
                    }
                    Event::Happened(event) => {
                        tell.send_modify(|n| *n += usize::from(event.what == Happened::Missed));
                        all.push(*event);
                    }
                    Event::End(_) => return all,
                    other => panic!("{other:?}"),
                }
            }
        });
        within(PATIENCE, "a watch", watching)
            .await
            .expect("it begins");
        Self { events, missed }
    }

    async fn has_missed(&mut self, times: usize) {
        let told = self.missed.wait_for(|n| *n >= times);
        within(PATIENCE, "word of what was missed", told)
            .await
            .expect("the watch goes on");
    }

    async fn end(self) -> Vec<methods::Event> {
        let end = within(PATIENCE, "the end of a watch", self.events).await;
        end.expect("a watch ends with its session")
    }
}

/// What comes later has a higher rank; a move may come at any time in between.
fn rank(what: Happened) -> u32 {
    match what {
        Happened::Starting => 0,
        Happened::Running => 1,
        Happened::Stopping => 2,
        Happened::Draining => 3,
        Happened::Exited => 4,
        Happened::Empty => 5,
        Happened::Removed => 6,
        Happened::Heartbeat
        | Happened::Moved
        | Happened::Watching
        | Happened::Missed
        | Happened::Bell
        | Happened::Title => panic!("{what:?} has none"),
    }
}

/// What was told of each job, in order. Where nothing was missed, nothing may be: a row never goes back, a job that
/// came goes, and each state is told once.
fn told(events: &[methods::Event]) -> BTreeMap<String, Vec<Happened>> {
    let mut of: BTreeMap<String, Vec<Happened>> = BTreeMap::new();
    let mut last = 0;
    for event in events {
        assert!(event.seq > last, "{} after {last}", event.seq);
        last = event.seq;
        let Some(row) = &event.row else { continue };
        let of = of.entry(row.process_id.clone()).or_default();
        let gone = of.last() == Some(&Happened::Removed);
        assert!(!gone, "{:?} of {} that is gone", event.what, row.id);
        if event.what != Happened::Moved {
            let before = of.iter().rev().find(|w| **w != Happened::Moved);
            let rises = before.is_none_or(|w| rank(*w) < rank(event.what));
            assert!(rises, "{:?} after {of:?} of {}", event.what, row.id);
        }
        let first = of.is_empty();
        assert!(first || event.what != Happened::Starting, "{of:?}");
        of.push(event.what);
    }
    of
}

/// The jobs of a session that come and go, and the name that changes meanwhile.
#[derive(Clone)]
struct Load {
    desk: Desk,
    name: &'static str,
}

impl Load {
    /// Jobs one after the other; every third is kept. Returns those that went and those that are kept.
    async fn work(self, jobs: usize) -> (Vec<String>, Vec<String>) {
        let (mut went, mut kept) = (Vec::new(), Vec::new());
        for i in 0..jobs {
            let row = self.desk.start(script("say hello , exit 3")).await;
            self.desk.wait(&row.process_id).await;
            if i % 3 == 2 {
                kept.push(row.process_id);
            } else {
                release(&self.desk, &row.process_id).await;
                went.push(row.process_id);
            }
        }
        (went, kept)
    }

    /// Back and forth, for as long as the others work. A job in between, so that it is no mere flood of moves.
    async fn wander(self, done: Arc<AtomicBool>) -> Vec<String> {
        let mut went = Vec::new();
        while !done.load(Ordering::Acquire) {
            for to in ["there", "back", "there"] {
                rename(&self.desk, &format!("{}-{to}", self.name)).await;
            }
            went.extend(self.clone().work(1).await.0);
            rename(&self.desk, self.name).await;
        }
        went
    }

    /// Sessions that do a job each and are adopted while it ends.
    async fn take_in(self, house: &House, phase: usize, children: usize) -> Vec<String> {
        let mut taken = Vec::new();
        for i in 0..children {
            let id = format!("{}-child-{phase}-{i}", self.name);
            let child = house.desk_of(named(&id));
            let row = child.start(script("exit 4")).await;
            adopt(&self.desk, &id).await;
            self.desk.wait(&row.process_id).await;
            taken.push(row.process_id);
        }
        taken
    }

    /// Notices as their reader gets them: each job once, each number once, over all phases.
    async fn read_notices(self, mut told: Told, done: Arc<AtomicBool>) -> Told {
        loop {
            let last = done.load(Ordering::Acquire);
            let ask = ReadNotices {
                session: None,
                seen: told.numbers.last().copied(),
            };
            let Notices { notices, .. } = self.desk.must::<SessionNotices>(ask).await;
            for notice in notices {
                let row = notice.row;
                assert_eq!(row.state, State::Exited, "{} has not ended", row.id);
                let newer = told.numbers.last().is_none_or(|n| *n < notice.number);
                assert!(newer, "{} after {:?}", notice.number, told.numbers.last());
                told.numbers.insert(notice.number);
                let first = told.jobs.insert(row.process_id);
                assert!(first, "{} was told twice", row.id);
            }
            if last {
                return told;
            }
        }
    }
}

#[derive(Default)]
struct Told {
    numbers: BTreeSet<u64>,
    jobs: BTreeSet<String>,
}

/// What came and went in one session during one phase.
#[derive(Default)]
struct Done {
    went: Vec<String>,
    kept: Vec<String>,
    taken: Vec<String>,
}

async fn phase(house: &House, load: &Load, n: usize, told: Told) -> (Done, Told) {
    let over = Arc::new(AtomicBool::new(false));
    let reader = tokio::spawn(load.clone().read_notices(told, Arc::clone(&over)));
    let mover = tokio::spawn(load.clone().wander(Arc::clone(&over)));
    let workers: Vec<_> = (0..20)
        .map(|_| tokio::spawn(load.clone().work(6)))
        .collect();
    let mut done = Done {
        taken: load.clone().take_in(house, n, 12).await,
        ..Done::default()
    };
    for worker in workers {
        let (went, kept) = worker.await.expect("a worker ends well");
        done.went.extend(went);
        done.kept.extend(kept);
    }
    over.store(true, Ordering::Release);
    done.went.extend(mover.await.expect("the mover ends well"));
    (done, reader.await.expect("the reader ends well"))
}

/// Where nothing was missed, the whole way of each job was told; `closed`: to its removal.
fn assert_whole(events: &[methods::Event], done: &Done, closed: bool) {
    let told = told(events);
    let of = |id| told.get(id).unwrap_or_else(|| panic!("nothing of {id}"));
    for id in done.went.iter().chain(&done.kept) {
        let of = of(id);
        assert!(of.contains(&Happened::Exited), "{of:?}");
        let states: Vec<_> = of.iter().filter(|w| **w != Happened::Moved).collect();
        assert_eq!(states[..2], [&Happened::Starting, &Happened::Running]);
        assert_eq!(of[0], Happened::Starting, "announced before it moves");
    }
    for id in &done.taken {
        assert_eq!(of(id)[0], Happened::Moved, "{:?}", of(id));
    }
    let removed = |id| of(id).last() == Some(&Happened::Removed);
    assert!(done.went.iter().all(removed));
    let kept = done.kept.iter().chain(&done.taken);
    assert!(kept.into_iter().all(|id| removed(id) == closed));
}

/// I8, I9, I14, 139: jobs that come and go while their session is renamed back and forth and takes in others. A move
/// and a change of one job at the same time once stopped the supervisor for ever.
#[test]
fn no_event_and_no_notice_is_lost_or_told_twice_while_sessions_move() {
    in_house(async |house| {
        let mut stages = Vec::new();
        for name in ["a", "b"] {
            // It waits for all of them, and wants to be told of each none the less.
            let desk = house.desk_of(OpenSession {
                confirms: true,
                ..named(name)
            });
            let load = Load { desk, name };
            load.desk.list().await;
            let mut watchers = Vec::new();
            for _ in 0..2 {
                let desk = house.desk_of(named(name));
                watchers.push(Watcher::new(desk, WatchSession::default()).await);
            }
            stages.push((load, watchers, Told::default()));
        }
        let mut all = vec![Vec::new(), Vec::new()];
        for n in 0..2 {
            let [a, b] = &mut stages[..] else {
                unreachable!()
            };
            let (first, second) = (std::mem::take(&mut a.2), std::mem::take(&mut b.2));
            let (a_done, b_done) =
                tokio::join!(phase(house, &a.0, n, first), phase(house, &b.0, n, second));
            (a.2, b.2) = (a_done.1, b_done.1);
            all[0].push(a_done.0);
            all[1].push(b_done.0);
            if n == 0 {
                house.kill_supervisor().await;
                // Whatever happened in between: who watched knows that he has to look.
                for watcher in stages.iter_mut().flat_map(|s| &mut s.1) {
                    let before = *watcher.missed.borrow();
                    if before == 0 {
                        watcher.has_missed(1).await;
                    }
                }
            }
        }
        for ((load, watchers, notices), done) in stages.into_iter().zip(all) {
            load.desk
                .must::<SessionClose>(CloseSession::default())
                .await;
            for id in done.iter().flat_map(|d| d.kept.iter().chain(&d.taken)) {
                assert!(notices.jobs.contains(id), "no notice of {id}");
            }
            for watcher in watchers {
                let events = watcher.end().await;
                told(&events);
                let cut = |e: &methods::Event| e.what == Happened::Missed;
                let first = events.iter().position(cut).expect("one for the crash");
                let last = events
                    .iter()
                    .rposition(cut)
                    .expect("the same, or a later one");
                if first == last {
                    assert_whole(&events[..first], &done[0], false);
                    assert_whole(&events[last..], &done[1], true);
                }
            }
        }
    });
}

/// What a list showed, and the numbers of the last events before it was asked for and behind its answer.
struct Look {
    before: u64,
    states: BTreeMap<String, State>,
    behind: u64,
}

/// A connection that lists, and asks for the number of the newest event.
struct Looker {
    wire: Wire,
    newest: u64,
}

impl Looker {
    async fn new(house: &House) -> Self {
        let mut wire = house.wire().await;
        wire.attach(&house.folders().owner_key(), "x").await;
        let mut looker = Self { wire, newest: 0 };
        looker.newest = looker.number().await;
        looker
    }

    /// A watch says first behind which event it begins.
    async fn number(&mut self) -> u64 {
        let ask = json!({ "partialResultToken": "number" });
        let asked = self.wire.ask("session/watch", ask).await;
        let number = loop {
            let message = self.wire.read().await.expect("the watch begins");
            if message["method"] == "$/progress" {
                break message["params"]["value"]["event"]["seq"].as_u64();
            }
        };
        let cancel =
            json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": { "id": asked } });
        self.wire.send(&framed(&cancel)).await;
        self.wire.answer(asked).await;
        number.expect("every event has a number")
    }

    async fn look(&mut self) -> Look {
        let before = self.newest;
        let listed = self.wire.call("job/list", json!({})).await;
        let rows = listed["result"]["jobs"].as_array().expect("a list").clone();
        let of = |row: Row| (row.process_id, row.state);
        let rows = rows
            .into_iter()
            .map(|row| of(serde_json::from_value(row).unwrap()));
        let states = rows.collect();
        self.newest = self.number().await;
        Look {
            before,
            states,
            behind: self.newest,
        }
    }
}

/// I14: what a list shows has been announced, what was announced is listed, and what is not listed any more had its last
/// word: one connection watches, another one lists, a third one works.
#[test]
fn a_job_is_announced_before_it_is_listed_and_has_its_last_word_before_it_is_not() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        desk.list().await;
        let watcher = Watcher::new(house.desk_of(named("x")), WatchSession::default()).await;
        let mut looker = Looker::new(house).await;
        let working = async {
            for _ in 0..40 {
                let row = desk.start(script("say hello , exit 3")).await;
                desk.wait(&row.id).await;
                release(&desk, &row.id).await;
            }
        };
        let mut looks = Vec::new();
        let looking = async {
            loop {
                looks.push(looker.look().await);
            }
        };
        tokio::select! {
            () = working => {}
            () = looking => {}
        }
        looks.push(Looker::new(house).await.look().await);
        desk.must::<SessionClose>(CloseSession::default()).await;
        let events = watcher.end().await;
        let number = |job: &str, what: Happened| {
            let is = |e: &&methods::Event| {
                e.what == what && e.row.as_ref().is_some_and(|row| row.process_id == job)
            };
            let event = events.iter().find(is);
            event.unwrap_or_else(|| panic!("no {what:?} of {job}")).seq
        };
        let all: BTreeSet<&String> = events
            .iter()
            .filter_map(|e| Some(&e.row.as_ref()?.process_id))
            .collect();
        assert_eq!(all.len(), 40);
        let mut listed = BTreeSet::new();
        for look in &looks {
            for job in &all {
                let [starting, exited, removed] =
                    [Happened::Starting, Happened::Exited, Happened::Removed]
                        .map(|what| number(job, what));
                assert!(starting < exited && exited < removed, "{job}");
                match look.states.get(*job) {
                    Some(state) => {
                        listed.insert(*job);
                        assert!(
                            starting <= look.behind,
                            "{job} is listed before it is announced"
                        );
                        assert!(look.before < removed, "{job} is listed when it is gone");
                        if *state == State::Exited {
                            assert!(exited <= look.behind, "{job} has ended before that is told");
                        }
                    }
                    None => assert!(
                        look.before < starting || removed <= look.behind,
                        "{job} is announced, not gone, and not listed"
                    ),
                }
            }
        }
        assert!(!listed.is_empty(), "{} looks saw nobody", looks.len());
    });
}

/// A watch ended, or went deaf, with a rename of a session in which nothing had happened yet.
#[test]
fn a_watch_goes_on_when_a_session_without_jobs_is_renamed() {
    in_house(async |house| {
        let (desk, other) = (house.desk_of(named("x")), house.desk_of(named("y")));
        let watcher = Watcher::new(house.desk_of(named("x")), WatchSession::default()).await;
        rename(&desk, "z").await;
        // A later session of the old id is another one.
        let later = house.desk_of(named("x"));
        let strange = later.start(script("exit 0")).await;
        other.run(script("exit 0")).await;
        let row = desk.start(script("exit 0")).await;
        desk.wait(&row.id).await;
        later.wait(&strange.id).await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        let told = told(&watcher.end().await);
        assert_eq!(told.keys().collect::<Vec<_>>(), [&row.process_id]);
        let of = &told[&row.process_id];
        assert_eq!(
            (of[0], of.last()),
            (Happened::Starting, Some(&Happened::Removed))
        );
    });
}

/// An adoption ends the watch of the session that is no more, and is told to both.
#[test]
fn an_adoption_is_told_to_both_sides_and_ends_the_watch_of_one() {
    in_house(async |house| {
        let (parent, child) = (house.desk_of(named("p")), house.desk_of(named("c")));
        let ours = Watcher::new(house.desk_of(named("p")), WatchSession::default()).await;
        let theirs = Watcher::new(house.desk_of(named("c")), WatchSession::default()).await;
        let row = child.start(script("sleep")).await;
        adopt(&parent, "c").await;
        let events = theirs.end().await;
        assert_eq!(
            told(&events)[&row.process_id].last(),
            Some(&Happened::Moved)
        );
        assert_eq!(events.last().unwrap().from.as_deref(), Some("c/t1"));
        parent.stop(&row.process_id, 5_000).await;
        parent.must::<SessionClose>(CloseSession::default()).await;
        let told = told(&ours.end().await);
        let of = &told[&row.process_id];
        assert_eq!(
            (of[0], of.last()),
            (Happened::Moved, Some(&Happened::Removed))
        );
    });
}

/// A guest who watches all that he sees is told of removals although the session is gone by then.
#[test]
fn who_watches_all_is_told_of_what_goes_with_a_session() {
    in_house(async |house| {
        let mut guest = house.wire().await;
        let opened = guest.call("session/open", json!({ "id": "x" })).await;
        assert_eq!(opened["result"]["created"], true, "{opened}");
        let args = script("exit 0").args;
        let start = json!({ "args": args, "cwd": "/" });
        let row = guest.call("job/start", start).await;
        let id = row["result"]["processId"].clone();
        guest.call("job/wait", json!({ "ids": [id] })).await;
        let watch = json!({ "all": true, "partialResultToken": 7 });
        guest.ask("session/watch", watch).await;
        let begun = guest.read().await.expect("the connection goes on");
        assert_eq!(begun["params"]["value"]["event"]["type"], "watching");
        let close = guest.ask("session/close", json!({})).await;
        let (mut removed, mut answered) = (false, false);
        while !(removed && answered) {
            let message = guest.read().await.expect("the connection goes on");
            let event = &message["params"]["value"]["event"];
            removed |= event["type"] == "removed" && event["row"]["processId"] == id;
            answered |= message["id"] == close;
        }
    });
}

/// Numbers of events begin anew with a supervisor: one that had told as many as the last one had left its watchers
/// without a word of what they missed.
#[test]
fn a_watch_over_a_crash_says_that_something_was_missed() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        desk.list().await;
        let mut watcher = Watcher::new(house.desk_of(named("x")), WatchSession::default()).await;
        // Nothing happens at all, in either life; one lives through it, which each life tells itself.
        let lives = desk.start(script("sleep")).await;
        for round in 1..=2 {
            house.kill_supervisor().await;
            watcher.has_missed(round).await;
        }
        let row = desk.start(script("exit 0")).await;
        desk.wait(&row.id).await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        let events = watcher.end().await;
        let counts = events.iter().filter_map(|e| e.missed);
        let counts: Vec<_> = counts.collect();
        assert_eq!(counts, [0, 0], "nobody knows how many there were");
        let told = told(&events);
        assert_eq!(told[&row.process_id][0], Happened::Starting);
        assert_eq!(told[&lives.process_id][0], Happened::Starting);
    });
}

/// The watch asked for the id of its beginning, and was told where that went; the client did the same with its session.
#[test]
fn a_watch_finds_its_session_that_was_renamed_when_the_supervisor_is_replaced() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        desk.list().await;
        let by_name = WatchSession {
            session: Some("x".into()),
            ..WatchSession::default()
        };
        let mut watchers = [
            Watcher::new(house.desk_without_session(), by_name).await,
            Watcher::new(house.desk_of(named("x")), WatchSession::default()).await,
        ];
        for to in ["y", "z"] {
            rename(&desk, to).await;
        }
        house.kill_supervisor().await;
        for watcher in &mut watchers {
            watcher.has_missed(1).await;
        }
        let row = desk.start(script("exit 0")).await;
        assert_eq!(row.session.id, "z");
        desk.wait(&row.id).await;
        desk.must::<SessionClose>(CloseSession::default()).await;
        for watcher in watchers {
            let told = told(&watcher.end().await);
            assert_eq!(told[&row.process_id][0], Happened::Starting);
        }
    });
}

async fn notices(desk: &Desk, seen: Option<u64>) -> Vec<(u64, String)> {
    let ask = ReadNotices {
        session: None,
        seen,
    };
    let told = desk.must::<SessionNotices>(ask).await.notices;
    let told = told.into_iter();
    told.map(|n| (n.number, n.row.process_id)).collect()
}

/// The end of what a job had left behind gave its notice back the number of another session, so that it was told again,
/// or never.
#[test]
fn the_notice_of_an_adopted_job_stays_as_it_was_told() {
    in_house(async |house| {
        let parent = house.desk_of(named("p"));
        let child = house.desk_of(OpenSession {
            confirms: true,
            ..named("c")
        });
        parent.list().await;
        let fifo = house.fifo("go");
        let leaves = |code: u32| script(&format!("fork [ await {fifo} ] , exit {code}"));
        let read = child.start(leaves(1)).await;
        child.wait(&read.id).await;
        let first = notices(&child, None).await;
        assert_eq!(first[0].1, read.process_id);
        assert_eq!(notices(&child, Some(first[0].0)).await, []);
        let unread = child.start(leaves(2)).await;
        child.wait(&unread.id).await;
        adopt(&parent, "c").await;
        let told = notices(&parent, None).await;
        assert_eq!(told.len(), 1, "what was read is told to nobody else");
        assert_eq!(told[0].1, unread.process_id);
        house.open(&fifo).await;
        for row in [&read, &unread] {
            parent.over(&row.process_id).await;
        }
        assert_eq!(notices(&parent, None).await, told);
        house.kill_supervisor().await;
        assert_eq!(notices(&parent, None).await, told, "over a crash too");
        assert_eq!(notices(&parent, Some(told[0].0)).await, []);
    });
}

/// Numbers began again at what was kept: an end that came after a crash had one that its reader had confirmed for another
/// job, and was never told.
#[test]
fn the_numbers_of_notices_go_on_after_a_crash_although_their_jobs_are_gone() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        let mut last = 0;
        for round in 0..3 {
            let row = desk.start(script("exit 0")).await;
            desk.over(&row.process_id).await;
            let told = notices(&desk, Some(last)).await;
            assert_eq!(told.len(), 1, "round {round}");
            assert!(told[0].0 > last, "{told:?} after {last}");
            last = told[0].0;
            if round == 1 {
                assert_eq!(notices(&desk, Some(last)).await, []);
            }
            release(&desk, &row.process_id).await;
            house.kill_supervisor().await;
        }
    });
}

/// J6: periodic, with what its processes use, and only while somebody asked for it; none behind its end.
#[test]
fn the_heart_of_a_live_job_beats_for_who_asked_for_it_and_for_nobody_else() {
    in_house(async |house| {
        let desk = house.desk_of(named("x"));
        let other = house.desk_of(named("y"));
        other.start(script("sleep")).await;
        let row = desk
            .ready(script("fork [ sleep ] , say ready , sleep"))
            .await;
        let quiet = Watcher::new(desk.clone(), WatchSession::default()).await;
        let asked = WatchSession {
            heartbeat_ms: Some(1_000),
            ..WatchSession::default()
        };
        let mut stream = house
            .desk_of(named("x"))
            .client
            .stream::<SessionWatch>(asked);
        let mut beats = Vec::new();
        while beats.len() < 2 {
            let next = within(PATIENCE, "a heartbeat", stream.next()).await;
            if let Event::Happened(event) = next.expect("a watch goes on")
                && event.what == Happened::Heartbeat
            {
                beats.push((std::time::Instant::now(), event));
            }
        }
        assert!(beats[1].0 - beats[0].0 >= Duration::from_millis(900));
        for (_, beat) in &beats {
            let beat = beat.row.as_ref().expect("it is of a job");
            assert_eq!(beat.process_id, row.process_id, "of no other session");
            let pids = beat.tree.pids.as_ref().expect("somebody lives");
            assert!(pids.len() == 2 && pids.contains(&row.pid.unwrap()));
            assert!(beat.tree.cpu_ms.is_some());
            assert!(beat.tree.rss_bytes.is_some_and(|bytes| bytes > 0));
        }
        desk.must::<SessionClose>(CloseSession::default()).await;
        let mut over = false;
        loop {
            match within(PATIENCE, "the end", stream.next()).await {
                Ok(Event::Happened(event)) => {
                    assert!(!over || event.what != Happened::Heartbeat, "{event:?}");
                    over |= event.what == Happened::Exited;
                }
                Ok(Event::End(_)) => break,
                next => panic!("{next:?}"),
            }
        }
        assert!(over);
        let told = quiet.end().await;
        assert!(told.iter().all(|e| e.what != Happened::Heartbeat));
        let often = WatchSession {
            heartbeat_ms: Some(1),
            partial_result_token: 1.into(),
            all: true,
            ..WatchSession::default()
        };
        let refused = other.refused::<SessionWatch>(often).await;
        assert_eq!(refused.kind, RefusalKind::BadArgument);
    });
}
