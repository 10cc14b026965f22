//! Listening sockets and who has them, from `/proc`.
//!
//! Reads only. Tables belong to a network namespace, which is named by any process in it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};

/// A listening TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Socket {
    pub(in super::super) port: u16,
    pub(in super::super) inode: u64,
}

/// Returns what listens in the network namespace of process `pid`; nothing when it is gone.
pub(in super::super) fn listening(pid: u32) -> Vec<Socket> {
    let mut sockets = Vec::new();
    for table in ["tcp", "tcp6"] {
        if let Ok(file) = File::open(format!("/proc/{pid}/net/{table}")) {
            read_table(BufReader::new(file), &mut sockets);
        }
    }
    sockets
}

/// The kernel lists listening sockets first: the rest, which may be tens of thousands, is not read.
fn read_table(table: impl BufRead, sockets: &mut Vec<Socket>) {
    for line in table.lines().skip(1).map_while(Result::ok) {
        let Some(socket) = parse_row(&line) else {
            return;
        };
        sockets.push(socket);
    }
}

/// Port and inode of a row in state `0A`.
fn parse_row(line: &str) -> Option<Socket> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if *words.get(3)? != "0A" {
        return None;
    }
    let (_, port) = words.get(1)?.rsplit_once(':')?;
    Some(Socket {
        port: u16::from_str_radix(port, 16).ok()?,
        inode: words.get(9)?.parse().ok()?,
    })
}

/// Returns the inodes of all sockets that process `pid` has open; none when we may not look.
pub(in super::super) fn sockets_of(pid: u32) -> Vec<u64> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return Vec::new();
    };
    let links = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    links.filter_map(|link| inode_of(link.to_str()?)).collect()
}

fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000001000000:0016 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0 100 0 0 10 0
   2: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 4713 1 0 20 4 30 10 -1
";

    #[test]
    fn only_listening_sockets_are_taken_and_established_ones_end_the_table() {
        let mut sockets = Vec::new();
        read_table(TABLE.as_bytes(), &mut sockets);
        let expected = [(8080, 4711), (22, 4712)].map(|(port, inode)| Socket { port, inode });
        assert_eq!(sockets, expected);
    }

    #[test]
    fn only_socket_links_have_an_inode() {
        assert_eq!(inode_of("socket:[4711]"), Some(4711));
        assert_eq!(inode_of("pipe:[4711]"), None);
        assert_eq!(inode_of("/tmp/socket:[1]"), None);
    }
}
