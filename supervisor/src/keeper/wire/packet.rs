//! One message, one packet: a 64-byte header, then the payload, with descriptors beside it. A payload above [`INLINE`]
//! travels in a sealed memory file, which then is the first descriptor. Nothing here ever blocks.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;

use super::{Frame, HEADER, INLINE, LARGEST, MOST_FILES, PAYLOAD_FILE};
use crate::keeper::kernel::{self, check};

/// A message as it came in.
#[derive(Debug)]
pub struct Message {
    /// The fixed part.
    pub frame: Frame,
    /// The payload, from the packet or from its file.
    pub payload: Vec<u8>,
    /// The descriptors that came along, without the payload's file.
    pub files: Vec<OwnedFd>,
    /// Descriptors were lost on the way (our table is full) or the payload's file cannot be
    /// read; what came is closed.
    pub truncated: bool,
}

/// Sends one message at once.
///
/// # Errors
/// `WouldBlock` when the other side's queue is full; `BrokenPipe` when it is gone;
/// ETOOMANYREFS when too many descriptors are on their way already.
pub fn send(
    wire: BorrowedFd<'_>,
    mut frame: Frame,
    payload: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if payload.len() <= INLINE {
        return send_packet(wire, &frame, payload, files);
    }
    let file = payload_file(payload)?;
    frame.flags |= PAYLOAD_FILE;
    let mut all = vec![file.as_fd()];
    all.extend_from_slice(files);
    send_packet(wire, &frame, &[], &all)
}

/// A sealed memory file with these bytes.
fn payload_file(payload: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(kernel::memfd(c"ostler-payload")?);
    file.write_all(payload)?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    kernel::seal(file.as_fd(), seals)?;
    Ok(file.into())
}

/// Room for the descriptors of one message, aligned as the kernel wants it.
type Ancillary = [u64; 32];

fn send_packet(
    wire: BorrowedFd<'_>,
    frame: &Frame,
    payload: &[u8],
    files: &[BorrowedFd<'_>],
) -> io::Result<()> {
    if files.len() > MOST_FILES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut head = frame.encode();
    let mut parts = [part(&mut head), constant_part(payload)];
    let mut ancillary: Ancillary = [0; 32];
    // SAFETY: zeroes are a valid empty message header.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = 2;
    if !files.is_empty() {
        attach(&mut message, &mut ancillary, files);
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    loop {
        // SAFETY: everything that `message` points to outlives the call.
        let sent = unsafe { libc::sendmsg(wire.as_raw_fd(), &raw const message, flags) };
        match check(sent as libc::c_long) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

fn part(bytes: &mut [u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    }
}

/// For sending only: the kernel does not write through this one.
fn constant_part(bytes: &[u8]) -> libc::iovec {
    libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    }
}

/// Puts the descriptors into the message's ancillary part.
fn attach(message: &mut libc::msghdr, room: &mut Ancillary, files: &[BorrowedFd<'_>]) {
    let bytes = (files.len() * size_of::<RawFd>()) as u32;
    message.msg_control = room.as_mut_ptr().cast();
    // SAFETY: `room` is 256 bytes, more than the space for MOST_FILES descriptors, and
    // aligned for a control header, so the pointers below stay inside it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(bytes) as usize;
        let control = libc::CMSG_FIRSTHDR(message);
        (*control).cmsg_level = libc::SOL_SOCKET;
        (*control).cmsg_type = libc::SCM_RIGHTS;
        (*control).cmsg_len = libc::CMSG_LEN(bytes) as usize;
        let data = libc::CMSG_DATA(control).cast::<RawFd>();
        for (place, file) in files.iter().enumerate() {
            data.add(place).write_unaligned(file.as_raw_fd());
        }
    }
}

/// Receives messages; keeps its buffer between them.
pub struct Inbox {
    buffer: Vec<u8>,
}

impl Default for Inbox {
    fn default() -> Self {
        Self {
            buffer: vec![0; HEADER + INLINE],
        }
    }
}

impl Inbox {
    /// Takes the next message; `None` when the other side is gone.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; `InvalidData` for a packet that is no message
    /// (it is consumed, the next call goes on).
    pub fn receive(&mut self, wire: BorrowedFd<'_>) -> io::Result<Option<Message>> {
        let mut parts = [part(&mut self.buffer)];
        let mut ancillary: Ancillary = [0; 32];
        // SAFETY: zeroes are a valid empty message header.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = 1;
        message.msg_control = ancillary.as_mut_ptr().cast();
        message.msg_controllen = size_of::<Ancillary>();
        let length = receive_packet(wire, &mut message)?;
        let files = detach(&message);
        if length == 0 {
            return Ok(None);
        }
        let truncated = message.msg_flags & libc::MSG_CTRUNC != 0;
        if message.msg_flags & libc::MSG_TRUNC != 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.assemble(length, files, truncated).map(Some)
    }

    fn assemble(
        &self,
        length: usize,
        mut files: Vec<OwnedFd>,
        truncated: bool,
    ) -> io::Result<Message> {
        let frame = Frame::decode(&self.buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        let mut payload = self.buffer[HEADER..length].to_vec();
        let mut truncated = truncated;
        if !truncated && frame.flags & PAYLOAD_FILE != 0 {
            let file = (!files.is_empty()).then(|| files.remove(0));
            // One that cannot be read is as good as one that did not arrive: the receiver
            // knows what the message was about and can answer.
            match file.map(read_whole) {
                Some(Ok(whole)) => payload = whole,
                _ => truncated = true,
            }
        }
        if truncated {
            // Which of them are missing is not said; a wrong one is worse than none.
            files.clear();
        }
        Ok(Message {
            frame,
            payload,
            files,
            truncated,
        })
    }
}

fn receive_packet(wire: BorrowedFd<'_>, message: &mut libc::msghdr) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    loop {
        // SAFETY: everything that `message` points to outlives the call.
        let got = unsafe { libc::recvmsg(wire.as_raw_fd(), message, flags) };
        match check(got as libc::c_long) {
            Ok(length) => return Ok(length as usize),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            // Said once when the other side went without having read all of ours. What it had sent before is still
            // there: a farewell that is not read looks like a crash.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
            Err(error) => return Err(error),
        }
    }
}

/// Takes over the descriptors that came with a message.
fn detach(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut files = Vec::new();
    // SAFETY: the kernel has filled the control part and its length; every number in an
    // SCM_RIGHTS entry is a descriptor that it has just made for us.
    unsafe {
        let mut control = libc::CMSG_FIRSTHDR(message);
        while let Some(entry) = control.as_ref() {
            if entry.cmsg_level == libc::SOL_SOCKET && entry.cmsg_type == libc::SCM_RIGHTS {
                let data = libc::CMSG_DATA(control).cast::<RawFd>();
                let bytes = entry.cmsg_len - libc::CMSG_LEN(0) as usize;
                for place in 0..bytes / size_of::<RawFd>() {
                    files.push(OwnedFd::from_raw_fd(data.add(place).read_unaligned()));
                }
            }
            control = libc::CMSG_NXTHDR(message, control);
        }
    }
    files
}

fn read_whole(file: OwnedFd) -> io::Result<Vec<u8>> {
    let file = File::from(file);
    let length = file.metadata()?.len();
    if length > LARGEST {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::wire::Op;

    #[test]
    fn a_large_payload_and_descriptors_arrive_together() {
        let (ours, theirs) = kernel::packet_pair().expect("a socket pair");
        let payload = vec![7; 1 << 20];
        let frame = Frame::new(Op::Fork, 5, [1, 2, 3, 4, 5]).sequence(6);
        send(ours.as_fd(), frame, &payload, &[ours.as_fd()]).expect("room in the queue");
        let got = Inbox::default()
            .receive(theirs.as_fd())
            .expect("a message")
            .expect("an open socket");
        assert_eq!(got.payload, payload);
        assert_eq!((got.frame.job, got.frame.args), (5, [1, 2, 3, 4, 5]));
        assert_eq!((got.files.len(), got.truncated), (1, false));
    }

    #[test]
    fn the_last_words_of_one_who_had_not_read_everything_are_heard() {
        let (ours, theirs) = kernel::packet_pair().expect("a socket pair");
        let unread = Frame::new(Op::MemberEnded, 1, [0; 5]);
        send(ours.as_fd(), unread, &[], &[]).expect("room in the queue");
        let farewell = Frame::new(Op::Leave, 0, [1, 0, 0, 0, 0]);
        send(theirs.as_fd(), farewell, &[], &[]).expect("room in the queue");
        drop(theirs);
        let mut inbox = Inbox::default();
        let heard = inbox.receive(ours.as_fd()).expect("a message");
        assert_eq!(heard.map(|heard| heard.frame), Some(farewell));
        let end = inbox.receive(ours.as_fd()).expect("the end");
        assert!(end.is_none());
    }

    #[test]
    fn a_packet_that_is_no_message_is_skipped() {
        let (ours, theirs) = kernel::packet_pair().expect("a socket pair");
        // SAFETY: three readable bytes.
        unsafe { libc::write(ours.as_raw_fd(), b"abc".as_ptr().cast(), 3) };
        let frame = Frame::new(Op::Ping, 0, [0; 5]);
        send(ours.as_fd(), frame, &[], &[]).expect("room in the queue");
        let mut inbox = Inbox::default();
        let error = inbox.receive(theirs.as_fd()).expect_err("not a message");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let next = inbox.receive(theirs.as_fd()).expect("a message");
        assert_eq!(next.map(|next| next.frame), Some(frame));
    }
}
