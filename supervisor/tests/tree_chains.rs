//! Chains: each process forks its successor and dies, far faster than anybody reads the process table.
#![cfg(target_os = "linux")]

mod tree_house;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Instant;

use ostler_supervisor::tree::Rung;
use ostler_supervisor::tree::cookie::Cookie;
use tree_house::{House, Job, living_of, set_cookie, state};

/// Seconds after which a chain ends by itself: a test that fails must not eat the machine.
const LIFE: i64 = 5;

/// Microseconds that a link rests before it forks, as the links that were found to escape did. Without a rest forty
/// chains fill the process table of the machine within a second, and every other test fails.
const REST: u32 = 300;

/// Held while chains run: the promise is about forty, not about those of all tests at a time. A file, because each
/// test may be a process of its own.
fn alone() -> File {
    let path = std::env::temp_dir().join(format!("ostler-chains-{}", user()));
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .expect("a temporary folder");
    file.lock().expect("locks");
    file
}

fn user() -> u32 {
    // SAFETY: plain call.
    unsafe { libc::geteuid() }
}

/// Where a chain lives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Home {
    /// In the group of the leader.
    LeadersGroup,
    /// In a session that its first process made.
    OwnSession,
    /// In a session that each process makes for itself.
    NewSessionEachTime,
}

const HOMES: [Home; 3] = [
    Home::LeadersGroup,
    Home::OwnSession,
    Home::NewSessionEachTime,
];

/// Becomes one link after the other; never returns.
///
/// Only system calls: it runs in a child of a program with threads.
fn chain(home: Home, rest: u32) -> ! {
    let end = now() + LIFE;
    // SAFETY: plain system calls without memory of their own; the structure outlives its call.
    unsafe {
        if home == Home::OwnSession {
            libc::setsid();
        }
        loop {
            if home == Home::NewSessionEachTime {
                libc::setsid();
            }
            if rest > 0 {
                let pause = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: libc::c_long::from(rest) * 1_000,
                };
                libc::nanosleep(&pause, std::ptr::null_mut());
            }
            // A full table or a limit: it tries again, as a hostile program would.
            if libc::fork() > 0 || now() > end {
                libc::_exit(0);
            }
        }
    }
}

/// Seconds of a clock that nobody sets.
fn now() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the structure outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec
}

/// What the leader does: ignores the polite signal, starts the chains, says so, and stays.
fn lead(cookie: Cookie, count: u32, home: Home, rest: u32) -> ! {
    // SAFETY: plain system calls in a fresh child. The descriptors above the three are nobody's here; the
    // close of the one that tells of a failed exec lets the parent go on.
    unsafe {
        libc::setsid();
        if set_cookie(cookie).is_err() {
            libc::_exit(1);
        }
        libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0);
        libc::signal(libc::SIGTERM, libc::SIG_IGN);
        for _ in 0..count {
            if libc::fork() == 0 {
                libc::close(1);
                chain(home, rest);
            }
        }
        libc::write(1, c"up\n".as_ptr().cast(), 3);
        loop {
            libc::pause();
        }
    }
}

fn start(house: &House, count: u32, home: Home, rest: u32) -> Job {
    let mut command = Command::new("/bin/false");
    let cookie = Cookie::new(house.instance, 1);
    // SAFETY: `lead` makes system calls only and never returns.
    unsafe { command.pre_exec(move || lead(cookie, count, home, rest)) };
    let mut job = house.start(1, command);
    assert_eq!(job.line(), "up");
    job
}

/// Returns when that many process numbers have been given out: the corpses lie about by then.
async fn births(count: u32) {
    let newest = || {
        let load = std::fs::read_to_string("/proc/loadavg").expect("there is a /proc");
        let newest = load.split_whitespace().nth(4).expect("five fields");
        newest.parse::<u32>().expect("a process number")
    };
    let (mut last, mut born) = (newest(), 0);
    while born < count {
        tokio::task::yield_now().await;
        let now = newest();
        // Around the end of the circle some births go uncounted.
        born += now.saturating_sub(last);
        last = now;
    }
}

/// Ends so many chains with one kill, and looks at the process table.
async fn ended(house: &House, count: u32, home: Home, rest: u32) {
    ended_after(0, house, count, home, rest).await;
}

async fn ended_after(links: u32, house: &House, count: u32, home: Home, rest: u32) {
    let _alone = alone();
    let job = start(house, count, home, rest);
    births(links).await;
    let before = house.trees.scans();
    let began = Instant::now();
    let killed = house.trees.kill(job.mark.clone()).await;
    let (took, looks) = (began.elapsed(), house.trees.scans() - before);
    let seen = killed.seen.len();
    eprintln!("{count} chains, {home:?}, rest {rest} us: {looks} looks, {took:?}, {seen} seen");
    let left = living_of(house.instance);
    assert_eq!((killed.survivors, left), (vec![], vec![]));
}

#[tokio::test]
async fn chains_in_the_leaders_group_are_ended() {
    let house = House::new(Rung::Cookie);
    for count in [20, 40] {
        ended(&house, count, Home::LeadersGroup, REST).await;
    }
}

#[tokio::test]
async fn chains_with_a_session_each_are_ended() {
    let house = House::new(Rung::Cookie);
    for count in [20, 40] {
        ended(&house, count, Home::OwnSession, REST).await;
    }
}

#[tokio::test]
async fn chains_that_make_a_session_at_every_link_are_ended() {
    let house = House::new(Rung::Cookie);
    for count in [20, 40] {
        ended(&house, count, Home::NewSessionEachTime, REST).await;
    }
}

#[tokio::test]
async fn chains_whose_links_sleep_before_they_fork_are_ended() {
    let house = House::new(Rung::Cookie);
    for home in HOMES {
        ended(&house, 40, home, 1_000).await;
    }
}

#[tokio::test]
async fn chains_that_had_three_thousand_links_are_ended() {
    let house = House::new(Rung::Cookie);
    for home in HOMES {
        ended_after(3_000, &house, 20, home, REST).await;
    }
}

#[tokio::test]
async fn chains_are_ended_while_those_of_another_house_go_on() {
    let [house, other] = [(); 2].map(|()| House::new(Rung::Cookie));
    for home in HOMES {
        // Anew each time: three rounds on a busy machine are longer than the life of a chain.
        let noise = start(&other, 3, Home::OwnSession, 2_000);
        ended(&house, 20, home, REST).await;
        assert_eq!(state(noise.pid), Some('S'), "it waits, nobody stopped it");
        let killed = other.trees.kill(noise.mark.clone()).await;
        assert_eq!(killed.survivors, []);
        assert!(
            killed.seen.len() > 3,
            "the leader and three chains: {killed:?}"
        );
    }
}
