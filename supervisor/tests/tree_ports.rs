//! Who listens: a member however deep, or a stranger.
#![cfg(target_os = "linux")]

mod tree_house;

use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use ostler_supervisor::tree::{Rung, holder, is_listening, listeners};
use tree_house::House;

/// One test at a time: between fork and exec, a child of one test also has the sockets of the others.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// A shell line that inherits the listening socket as descriptor 9.
fn with_socket(socket: &TcpListener, line: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]);
    let raw = socket.as_raw_fd();
    // SAFETY: two system calls on a descriptor that is open until spawn returns. Where it already has the
    // number, dup2 does nothing, so close-on-exec is cleared by itself.
    unsafe {
        command.pre_exec(
            move || match (libc::dup2(raw, 9), libc::fcntl(9, libc::F_SETFD, 0)) {
                (9, 0) => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            },
        )
    };
    command
}

fn bind(address: &str) -> (TcpListener, u16) {
    let socket = TcpListener::bind(address).expect("loopback is there");
    let port = socket.local_addr().expect("it is bound").port();
    (socket, port)
}

#[tokio::test]
async fn the_port_of_a_grandchild_is_found_and_named_after_it() {
    let _alone = ALONE.lock().await;
    let house = House::new(Rung::Cookie);
    let (socket, port) = bind("127.0.0.1:0");
    let line = "(exec sleep 600) & echo $!; exec 9<&-; echo $$; wait";
    let mut job = house.start(1, with_socket(&socket, line));
    drop(socket);
    let grandchild: u32 = job.line().parse().expect("a process number");
    job.line();
    let members = house.trees.members(job.mark.clone()).await;
    // The subshell becomes `sleep` at some moment; both have the socket.
    let found = listeners(&members);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].port, found[0].pid), (port, grandchild));
    assert!(["sleep", "sh"].contains(&&*found[0].program), "{found:?}");
    assert!(is_listening(Some(port), job.pid));
    assert_eq!(
        holder(port, job.pid).map(|holder| holder.pid),
        Some(grandchild)
    );
    house.trees.kill(job.mark.clone()).await;
    assert!(
        !is_listening(Some(port), std::process::id()),
        "its port is free"
    );
    assert_eq!(holder(port, std::process::id()), None);
}

#[tokio::test]
async fn a_socket_for_both_protocols_is_one_port() {
    let _alone = ALONE.lock().await;
    let house = House::new(Rung::Cookie);
    let (socket, port) = bind("[::]:0");
    let mut job = house.start(1, with_socket(&socket, "echo $$; exec sleep 600"));
    drop(socket);
    job.pids(1);
    let found = listeners(&[job.pid]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((found[0].port, found[0].pid), (port, job.pid));
    house.trees.kill(job.mark.clone()).await;
}

#[tokio::test]
async fn a_stranger_on_the_port_is_told_and_does_not_count_as_a_member() {
    let _alone = ALONE.lock().await;
    let house = House::new(Rung::Cookie);
    let mut job = house.sh(1, "echo $$; exec sleep 600");
    job.pids(1);
    let (_socket, port) = bind("127.0.0.1:0");
    let members = house.trees.members(job.mark.clone()).await;
    assert_eq!(listeners(&members), []);
    let stranger = holder(port, job.pid).expect("this test listens");
    assert_eq!((stranger.port, stranger.pid), (port, std::process::id()));
    assert!(!stranger.program.is_empty());
    house.trees.kill(job.mark.clone()).await;
}

#[test]
fn a_port_that_is_only_connected_to_is_not_listened_on() {
    let (_socket, port) = bind("127.0.0.1:0");
    let client = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let near = client.local_addr().expect("it is connected").port();
    assert!(is_listening(Some(port), std::process::id()));
    assert!(!is_listening(Some(near), std::process::id()));
}

#[test]
fn nobody_listens_for_processes_that_are_gone() {
    assert_eq!(listeners(&[u32::MAX - 1]), []);
    assert!(!is_listening(Some(1), u32::MAX - 1));
}
