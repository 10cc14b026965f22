//! Who listens on a TCP port: members of a job, or a stranger.
//!
//! Each call reads afresh and keeps nothing. A socket in another network namespace than the asked-for one is
//! not told: nobody outside could connect to it.

use std::collections::{HashMap, HashSet};

use ostler_proto::methods::Listener;

use super::platform;

/// Returns on which ports `pids` listen, by port, each with the first process that has the socket.
///
/// The namespace is that of the first of them that still lives. Blocks for some microseconds a process.
pub fn listeners(pids: &[u32]) -> Vec<Listener> {
    let Some(first) = pids.iter().find(|pid| platform::state(**pid).is_some()) else {
        return Vec::new();
    };
    let ports: HashMap<u64, u16> = platform::listening(*first)
        .into_iter()
        .map(|socket| (socket.inode, socket.port))
        .collect();
    if ports.is_empty() {
        return Vec::new();
    }
    let mut told = HashSet::new();
    let mut found = Vec::new();
    for pid in pids {
        for inode in platform::sockets_of(*pid) {
            if let Some(port) = ports.get(&inode).filter(|port| told.insert(**port)) {
                found.push(listener(*port, *pid));
            }
        }
    }
    found.sort_by_key(|listener| listener.port);
    found
}

/// Returns who listens on `port` in the network namespace of process `net_of_pid`, whoever that is; nothing
/// when nobody does. The process is 0 and its program empty when it cannot be seen: another user's.
///
/// Looks at the descriptors of every process that it may look at. Blocks for milliseconds.
pub fn holder(port: u16, net_of_pid: u32) -> Option<Listener> {
    let inodes: HashSet<u64> = platform::listening(net_of_pid)
        .into_iter()
        .filter(|socket| socket.port == port)
        .map(|socket| socket.inode)
        .collect();
    if inodes.is_empty() {
        return None;
    }
    let has_it = |pid: &u32| {
        platform::sockets_of(*pid)
            .iter()
            .any(|inode| inodes.contains(inode))
    };
    let seen = platform::pids().ok().and_then(|mut pids| pids.find(has_it));
    Some(seen.map_or_else(|| hidden(port), |pid| listener(port, pid)))
}

/// Tells whether anybody listens on `port`, or on any, in the network namespace of process `net_of_pid`. Reads two small
/// tables: cheap enough to ask again and again.
pub fn is_listening(port: Option<u16>, net_of_pid: u32) -> bool {
    let mut sockets = platform::listening(net_of_pid).into_iter();
    sockets.any(|socket| port.is_none_or(|port| socket.port == port))
}

fn listener(port: u16, pid: u32) -> Listener {
    Listener {
        port,
        pid,
        program: platform::program(pid).unwrap_or_default(),
    }
}

fn hidden(port: u16) -> Listener {
    Listener {
        port,
        pid: 0,
        program: String::new(),
    }
}
