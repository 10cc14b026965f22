//! Promise (097): however many clients come at once to an empty place, one house begins and all are served.

use std::process::Stdio;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use ostler::{Client, Mode, Options};
use ostler_proto::methods::HelloAnswer;
use ostler_supervisor::tree::cookie::HOUSE_JOB;
use ostler_tests::process::{self, Process};
use ostler_tests::{House, HungFolder, in_empty_house, rounds};

/// Twenty clients, each on a thread and a runtime of its own, let loose at the same moment.
fn twenty_at_once(house: &House) -> Vec<HelloAnswer> {
    let gate = Arc::new(Barrier::new(20));
    let clients: Vec<_> = (0..20)
        .map(|_| {
            let (gate, options) = (Arc::clone(&gate), house.options(Mode::Start));
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                gate.wait();
                runtime
                    .expect("a runtime can be made")
                    .block_on(hello(options))
            })
        })
        .collect();
    clients
        .into_iter()
        .map(|c| c.join().expect("every client is served"))
        .collect()
}

async fn hello(options: Options) -> HelloAnswer {
    let answer = Client::new(options).hello().await;
    answer.unwrap_or_else(|e| panic!("{e}"))
}

fn assert_one_house(house: &House, answers: &[HelloAnswer]) {
    let first = &answers[0];
    for answer in answers {
        assert_eq!(
            (answer.keeper_pid, answer.pid),
            (first.keeper_pid, first.pid)
        );
    }
    let mut both = of_the_house(house);
    let mut wanted = vec![first.keeper_pid, first.pid];
    wanted.sort_unstable();
    both.sort_unstable();
    let known = wanted.iter().map(|pid| process::describe(*pid));
    let known = known.collect::<Vec<_>>().join("\n");
    assert_eq!(both, wanted, "one keeper and one supervisor\n{known}");
}

/// A house that has been told to end, or whose keeper has been killed.
struct Former {
    keeper: Process,
    supervisor: Process,
}

/// After a clean slate, after a killed keeper, after both were killed: round and round.
#[test]
fn twenty_clients_on_an_empty_house_make_one_supervisor() {
    in_empty_house(async |house| {
        let mut former: Option<Former> = None;
        for round in 0..rounds("OSTLER_RACES", 25) {
            let mut answers = twenty_at_once(house);
            if let Some(former) = former.take() {
                // A house that is about to end may still have answered; nobody is hurt by that.
                answers.retain(|a| a.keeper_pid != former.keeper.pid);
                former.keeper.gone().await;
                former.supervisor.gone().await;
            }
            if answers.is_empty() {
                continue;
            }
            assert_one_house(house, &answers);
            let ended = end(&answers[0], round % 3);
            // The clients of the next round come while this one still leaves.
            if round % 2 == 0 {
                ended.keeper.gone().await;
                ended.supervisor.gone().await;
            } else {
                former = Some(ended);
            }
        }
        if let Some(former) = former {
            former.keeper.gone().await;
            former.supervisor.gone().await;
        }
        // The last round may have killed both, which leaves a socket to the next house: that one ends in order.
        assert_one_house(house, &twenty_at_once(house));
        assert!(
            !house.log().contains("panicked"),
            "106: the losers are calm"
        );
    });
}

/// 100, 101: a socket that is there is no house yet, and a start that takes long is still the only one.
#[test]
fn a_start_that_takes_long_is_waited_for_and_not_repeated() {
    in_empty_house(async |house| {
        let artifacts = house.folders().artifacts();
        std::fs::create_dir(&artifacts).expect("it can be made");
        // The supervisor looks there for leftovers before it serves anybody.
        let Some(mut hung) = HungFolder::over(&artifacts) else {
            return;
        };
        let client = || {
            let mut command = house.ostler(&["run", "--", "echo", "served"]);
            command.stdin(Stdio::null()).stdout(Stdio::piped());
            command.spawn().expect("ostler can be executed")
        };
        let first = client();
        hung.has_caught_somebody();
        assert!(house.folders().socket().exists(), "it is bound already");
        let clients = [first, client(), client()];
        // They connect meanwhile; nobody may lose patience or begin another house.
        let process = Process::of(clients[2].id()).expect("it is not reaped");
        assert!(
            !process.gone_within(Duration::from_millis(500)),
            "it gave up"
        );
        assert_eq!(
            of_the_house(house).len(),
            2,
            "one keeper and one supervisor"
        );
        drop(hung);
        for client in clients {
            let output = client.wait_with_output().expect("it ends");
            assert_eq!(output.stdout, b"served\n", "{output:?}");
        }
        assert_eq!(
            of_the_house(house).len(),
            2,
            "one keeper and one supervisor"
        );
        assert_eq!(house.info().await.hello.generation, 1);
    });
}

/// Keepers and supervisors.
fn of_the_house(house: &House) -> Vec<u32> {
    let mut both = house.marks().living();
    both.retain(|pid| house.marks().job_of(*pid) == Some(HOUSE_JOB));
    both
}

/// 103: the first job of a house asks for one itself while that begins.
#[test]
fn a_job_that_starts_a_job_finds_the_house_it_is_in() {
    in_empty_house(async |house| {
        let line = "ostler run -- sh -c 'ostler run -- echo from inside'";
        let said = house.shell(line);
        assert_eq!(
            (said.code, &*said.out),
            (0, "from inside\n"),
            "{}",
            said.err
        );
        assert_eq!(
            of_the_house(house).len(),
            2,
            "one keeper and one supervisor"
        );
        assert_eq!(house.info().await.hello.generation, 1);
    });
}

fn end(hello: &HelloAnswer, how: usize) -> Former {
    let supervisor = Process::of(hello.pid).expect("it has just answered");
    let keeper = Process::of(hello.keeper_pid).expect("it has just answered");
    match how {
        0 => keeper.signal(libc::SIGKILL),
        1 => {
            supervisor.freeze();
            keeper.signal(libc::SIGKILL);
            supervisor.signal(libc::SIGKILL);
        }
        _ => keeper.signal(libc::SIGTERM),
    }
    Former { keeper, supervisor }
}
