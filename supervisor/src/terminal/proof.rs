//! Proof that the program in front of a terminal waits for it: the kernel says in which call each of its threads is.
//!
//! Everything that cannot be read counts as not waiting, so a proof is never wrong that way. A wait that was there
//! before something was typed proves nothing about what was typed: a thread counts only when it has left its call
//! since, which its count of voluntary switches tells.

use std::{
    collections::HashMap,
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

/// Members that are looked at: a group of thousands waits for nothing that we could tell in time.
const MOST: usize = 256;
/// Descriptors of one call that are looked at.
const MOST_FDS: usize = 1_024;

/// A terminal and whose it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// The leader of its session.
    pub(crate) leader: u32,
    /// The group in front.
    pub(crate) group: u32,
    /// Device number of its slave.
    pub(crate) device: u64,
}

/// How somebody waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// In a read of the terminal, or for it alone.
    Alone,
    /// For the terminal and for something else: it may go on by itself.
    Among,
}

/// Threads in front that wait for the terminal, each with its count of voluntary switches.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Waits(HashMap<u32, (u64, Wait)>);

impl Waits {
    /// Tells whether somebody waits that did not wait then, and for what.
    pub(crate) fn newer_than(&self, before: &Self) -> Option<Wait> {
        let fresh = self.0.iter().filter(|(thread, (switches, _))| {
            before
                .0
                .get(*thread)
                .is_none_or(|(then, _)| then != switches)
        });
        let waits: Vec<Wait> = fresh.map(|(_, (_, wait))| *wait).collect();
        if waits.contains(&Wait::Alone) {
            return Some(Wait::Alone);
        }
        waits.first().copied()
    }
}

/// Looks who in front waits for the terminal. Blocking: some of these files can take their time.
pub(crate) fn look(place: Place) -> Waits {
    let mut waits = Waits::default();
    for pid in members(place) {
        for thread in threads(pid) {
            if let Some(wait) = waits_for(pid, thread, place.device)
                && let Some(switches) = switches(pid, thread)
            {
                waits.0.insert(thread, (switches, wait));
            }
        }
    }
    waits
}

/// Somebody besides the leader lives there who is not seen to wait for the terminal, and is not stopped.
pub(crate) fn works(place: Place) -> bool {
    let below = descendants(place.leader);
    let mut others = below.into_iter().filter(|pid| *pid != place.leader);
    others.any(|pid| {
        let stopped = stat(pid).is_none_or(|(state, _)| matches!(state, 'T' | 'Z'));
        let waits = || {
            threads(pid)
                .iter()
                .any(|t| waits_for(pid, *t, place.device).is_some())
        };
        !stopped && !waits()
    })
}

/// A process would not die of this signal now: it catches or ignores it.
pub(crate) fn withstands(pid: u32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let in_mask = |line: &str| {
        let mask = line.split_once(':').map(|(_, mask)| mask.trim());
        let mask = mask.and_then(|mask| u64::from_str_radix(mask, 16).ok());
        mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
    };
    let mut lines = status.lines();
    lines.any(|l| (l.starts_with("SigCgt:") || l.starts_with("SigIgn:")) && in_mask(l))
}

/// Name of a program as the kernel has it.
pub(crate) fn program(pid: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

/// Members of the group in front: the leader's descendants that are in it.
pub(crate) fn members(place: Place) -> Vec<u32> {
    let group = i64::from(place.group);
    descendants(place.leader)
        .into_iter()
        .filter(|pid| stat(*pid).is_some_and(|(_, its)| its == group))
        .collect()
}

/// The leader, and everything below it that lives.
fn descendants(leader: u32) -> Vec<u32> {
    let mut found = vec![leader];
    let mut at = 0;
    while at < found.len() && found.len() < MOST {
        let pid = found[at];
        at += 1;
        for thread in threads(pid) {
            found.extend(children(pid, thread));
        }
    }
    found
}

fn children(pid: u32, thread: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{thread}/children");
    let children = fs::read_to_string(path).unwrap_or_default();
    let numbers = children.split_whitespace().filter_map(|c| c.parse().ok());
    numbers.filter(|c| is_alive(*c)).collect()
}

/// It is there and no zombie.
pub(super) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state != 'Z')
}

/// State and process group. The name before them may hold anything, also blanks and parentheses.
fn stat(pid: u32) -> Option<(char, i64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut rest = text.rsplit_once(") ")?.1.split(' ');
    let state = rest.next()?.chars().next()?;
    Some((state, rest.nth(1)?.parse().ok()?))
}

fn threads(pid: u32) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .take(MOST)
        .collect()
}

fn switches(pid: u32, thread: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
    let line = status
        .lines()
        .find(|l| l.starts_with("voluntary_ctxt_switches:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The calls that wait for a descriptor, by their number here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Call {
    Read,
    Select,
    Poll,
    Epoll,
}

#[cfg(target_arch = "x86_64")]
const CALLS: &[(i64, Call)] = &[
    (libc::SYS_read, Call::Read),
    (libc::SYS_readv, Call::Read),
    (libc::SYS_select, Call::Select),
    (libc::SYS_pselect6, Call::Select),
    (libc::SYS_poll, Call::Poll),
    (libc::SYS_ppoll, Call::Poll),
    (libc::SYS_epoll_wait, Call::Epoll),
    (libc::SYS_epoll_pwait, Call::Epoll),
    (libc::SYS_epoll_pwait2, Call::Epoll),
];

#[cfg(target_arch = "aarch64")]
const CALLS: &[(i64, Call)] = &[
    (libc::SYS_read, Call::Read),
    (libc::SYS_readv, Call::Read),
    (libc::SYS_pselect6, Call::Select),
    (libc::SYS_ppoll, Call::Poll),
    (libc::SYS_epoll_pwait, Call::Epoll),
    (libc::SYS_epoll_pwait2, Call::Epoll),
];

/// Elsewhere nothing is proven.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const CALLS: &[(i64, Call)] = &[];

fn waits_for(pid: u32, thread: u32, device: u64) -> Option<Wait> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")).ok()?;
    let mut words = text.split_whitespace();
    let number: i64 = words.next()?.parse().ok()?;
    let call = CALLS.iter().find(|(n, _)| *n == number)?.1;
    let mut argument = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (first, second) = (argument()?, argument()?);
    let fds = match call {
        Call::Read => vec![u32::try_from(first).ok()?],
        Call::Select => select_set(pid, first, second)?,
        Call::Poll => poll_set(pid, first, second)?,
        Call::Epoll => epoll_set(pid, u32::try_from(first).ok()?)?,
    };
    let (terminals, others): (Vec<u32>, Vec<u32>) = fds
        .into_iter()
        .partition(|fd| is_terminal(pid, *fd, device));
    if terminals.is_empty() || others.iter().any(|fd| speaks(pid, *fd)) {
        return None;
    }
    Some(if others.is_empty() {
        Wait::Alone
    } else {
        Wait::Among
    })
}

/// `/dev/tty` is the terminal by another name for everybody who is in front of it.
fn is_terminal(pid: u32, fd: u32, device: u64) -> bool {
    let controlling = libc::makedev(5, 0);
    fs::metadata(format!("/proc/{pid}/fd/{fd}"))
        .is_ok_and(|file| file.rdev() == device || file.rdev() == controlling)
}

/// Somebody may speak there: a socket, or another terminal. Who waits for that as well works, or passes on what is
/// typed here to who does.
fn speaks(pid: u32, fd: u32) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(format!("/proc/{pid}/fd/{fd}")).map_or(true, |file| {
        file.file_type().is_socket() || file.file_type().is_char_device()
    })
}

fn memory(pid: u32, at: u64, length: usize) -> Option<Vec<u8>> {
    let file = fs::File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn select_set(pid: u32, most: u64, at: u64) -> Option<Vec<u32>> {
    let most = usize::try_from(most).ok()?.min(MOST_FDS);
    if at == 0 {
        return None;
    }
    let bits = memory(pid, at, most.div_ceil(64) * 8)?;
    let is_in = |fd: &u32| bits[*fd as usize / 8] & (1 << (fd % 8)) != 0;
    Some((0..most as u32).filter(is_in).collect())
}

fn poll_set(pid: u32, at: u64, count: u64) -> Option<Vec<u32>> {
    let count = usize::try_from(count).ok()?.min(MOST_FDS);
    let bytes = memory(pid, at, count * 8)?;
    let entries = bytes.chunks_exact(8).filter_map(|entry| {
        let fd = i32::from_ne_bytes(entry[..4].try_into().ok()?);
        let events = i16::from_ne_bytes(entry[4..6].try_into().ok()?);
        (events & libc::POLLIN != 0).then_some(u32::try_from(fd).ok()?)
    });
    Some(entries.collect())
}

fn epoll_set(pid: u32, fd: u32) -> Option<Vec<u32>> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let entries = text.lines().filter_map(|line| {
        let mut words = line.strip_prefix("tfd:")?.split_whitespace();
        let fd = words.next()?.parse().ok()?;
        let events = u32::from_str_radix(words.nth(1)?, 16).ok()?;
        (events & libc::EPOLLIN as u32 != 0).then_some(fd)
    });
    Some(entries.take(MOST_FDS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_wait_that_began_since_counts() {
        let before = Waits(HashMap::from([
            (1, (5, Wait::Alone)),
            (2, (1, Wait::Among)),
        ]));
        assert_eq!(before.newer_than(&before), None);
        let after = Waits(HashMap::from([
            (1, (5, Wait::Alone)),
            (2, (2, Wait::Among)),
        ]));
        assert_eq!(after.newer_than(&before), Some(Wait::Among));
        let fresh = Waits(HashMap::from([
            (3, (1, Wait::Alone)),
            (2, (2, Wait::Among)),
        ]));
        assert_eq!(fresh.newer_than(&before), Some(Wait::Alone));
    }

    #[test]
    fn this_process_is_its_own_descendant_and_waits_for_no_terminal() {
        let me = std::process::id();
        assert!(descendants(me).contains(&me));
        let (state, group) = stat(me).unwrap();
        assert_ne!(state, 'Z');
        let place = Place {
            leader: me,
            group: u32::try_from(group).unwrap(),
            device: 1,
        };
        assert_eq!(look(place), Waits::default());
    }
}
