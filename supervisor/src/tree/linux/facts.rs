//! What the kernel says of one process: its cookie, state, start time, program.
//!
//! Reads only, by number; whoever acts on an answer must hold the process by a descriptor first.

use std::fs;

use super::super::Member;

/// `RLIMIT_RTTIME`, as a plain number: its type differs between C libraries, its value does not.
const RTTIME: libc::c_int = 15;

/// Returns soft and hard `RLIMIT_RTTIME` of a process, nothing when it is gone or hidden. Works on zombies.
///
/// `prlimit` is refused for set-uid members and other users' processes, whose file is open to all: nine times
/// slower, so it is only the second way.
pub fn cookie_of(pid: u32) -> Option<(u64, u64)> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let pid_argument = libc::pid_t::try_from(pid).ok().filter(|pid| *pid > 0)?;
    // SAFETY: prlimit64 with a null new limit only writes to `limit`, which outlives the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            pid_argument,
            RTTIME,
            std::ptr::null::<libc::rlimit64>(),
            &raw mut limit,
        )
    };
    if done == 0 {
        return Some((limit.rlim_cur, limit.rlim_max));
    }
    let refused = std::io::Error::last_os_error().raw_os_error() == Some(libc::EPERM);
    refused.then(|| cookie_from_file(pid)).flatten()
}

fn cookie_from_file(pid: u32) -> Option<(u64, u64)> {
    parse_limits(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)
}

/// Finds soft and hard in the text of `/proc/PID/limits`.
fn parse_limits(text: &str) -> Option<(u64, u64)> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    let mut words = line.split_whitespace().map(|word| match word {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    });
    Some((words.next()??, words.next()??))
}

/// What `/proc/PID/stat` has, as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    pub(super) program: String,
    pub(super) state: char,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) start: u64,
}

pub(super) fn stat(pid: u32) -> Option<Stat> {
    let raw = fs::read(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&String::from_utf8_lossy(&raw))
}

/// The program's name stands in parentheses and may itself hold spaces and parentheses, so the last one counts.
fn parse_stat(text: &str) -> Option<Stat> {
    let (head, tail) = text.rsplit_once(')')?;
    let program = head.split_once('(')?.1.to_owned();
    let words: Vec<&str> = tail.split_whitespace().collect();
    // Zero and -1 stand for "none" in kernel threads and in other namespaces.
    let number = |at: usize| Some(words.get(at)?.parse::<i64>().ok()?.max(0) as u32);
    Some(Stat {
        program,
        state: words.first()?.chars().next()?,
        parent: number(1)?,
        group: number(2)?,
        session: number(3)?,
        start: words.get(19)?.parse().ok()?,
    })
}

/// Returns the kernel start time of a process in clock ticks since boot, nothing when it is gone.
pub fn start_time(pid: u32) -> Option<u64> {
    Some(stat(pid)?.start)
}

/// Returns the name of a program as the kernel has it (15 bytes at most), nothing when it is gone.
pub fn program(pid: u32) -> Option<String> {
    let raw = fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(
        String::from_utf8_lossy(&raw)
            .trim_end_matches('\n')
            .to_owned(),
    )
}

/// Returns who a process is, nothing when it is gone.
pub fn describe(pid: u32) -> Option<Member> {
    let stat = stat(pid)?;
    Some(Member {
        pid,
        start_time: stat.start,
        program: stat.program,
    })
}

/// Returns the letter of the process's state, such as `D`.
pub(in super::super) fn state(pid: u32) -> Option<char> {
    Some(stat(pid)?.state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_named_like_the_end_of_its_own_field_does_not_shift_the_others() {
        let text = "42 (a) R 1 (b) S 7 8 9 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3\n";
        let stat = parse_stat(text).expect("a whole line");
        assert_eq!(stat.program, "a) R 1 (b");
        assert_eq!(
            (stat.state, stat.parent, stat.group, stat.session),
            ('S', 7, 8, 9)
        );
        assert_eq!(stat.start, 987_654);
    }

    #[test]
    fn the_limits_file_tells_the_same_as_the_call() {
        let own = std::process::id();
        assert_eq!(cookie_from_file(own), cookie_of(own));
        let text =
            "Max realtime timeout      200000               unlimited            us        \n";
        assert_eq!(parse_limits(text), Some((200_000, u64::MAX)));
    }

    #[test]
    fn a_number_that_nobody_has_tells_nothing() {
        for pid in [0, u32::MAX, 4_194_305] {
            assert_eq!(cookie_of(pid), None, "{pid}");
            assert_eq!(start_time(pid), None, "{pid}");
            assert_eq!(describe(pid), None, "{pid}");
        }
    }
}
