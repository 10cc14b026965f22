//! The shapes of the wire as bytes: fixed header, payloads, and what both are put together from.

use super::{
    ForkRequest, Frame, HEADER, JobRow, Limit, MAGIC, NONE, Op, Stdin, Welcome, ended_args,
    exec_args, members_args, reaped_args, started_args,
};

impl Frame {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&MAGIC.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.version.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.op.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[12..16].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[16..24].copy_from_slice(&self.job.to_ne_bytes());
        for (place, value) in bytes[24..].chunks_exact_mut(8).zip(self.args) {
            place.copy_from_slice(&value.to_ne_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        if reader.u32()? != MAGIC {
            return None;
        }
        Some(Self {
            version: reader.u16()?,
            op: reader.u16()?,
            flags: reader.u32()?,
            sequence: reader.u32()?,
            job: reader.u64()?,
            args: [
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
                reader.u64()?,
            ],
        })
    }
}

impl ForkRequest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.slot);
        let flags = [self.cookie, self.merge, self.tells_begun];
        let bits = flags.iter().enumerate();
        out.u32(bits.fold(0, |all, (bit, flag)| all | u32::from(*flag) << bit));
        out.u32(self.stdin as u32);
        out.optional(self.umask);
        let size = self
            .pty
            .map(|(rows, columns)| u32::from(rows) << 16 | u32::from(columns));
        out.optional(size);
        out.limits(&self.limits);
        out.list(&self.programs);
        out.list(&self.argv);
        out.list(&self.env);
        out.bytes(&self.cwd);
        out.bytes(&self.record);
        out.0
    }

    /// From bytes; `None` when they are no request.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let slot = from.u32()?;
        let flags = from.u32()?;
        let stdin = match from.u32()? {
            0 => Stdin::Null,
            1 => Stdin::Pipe,
            2 => Stdin::Passed,
            _ => return None,
        };
        let umask = from.optional()?;
        let pty = from
            .optional()?
            .map(|size| ((size >> 16) as u16, size as u16));
        Some(Self {
            slot,
            cookie: flags & 1 != 0,
            merge: flags & 2 != 0,
            tells_begun: flags & 4 != 0,
            stdin,
            umask,
            pty,
            limits: from.limits()?,
            programs: from.list()?,
            argv: from.list()?,
            env: from.list()?,
            cwd: from.bytes()?,
            record: from.bytes()?,
        })
    }
}

impl JobRow {
    /// As bytes: each fact as the operation and arguments that would tell it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        let facts = &self.facts;
        let mut told = Vec::new();
        if let Some(started) = facts.started {
            told.push((Op::Started, started_args(started, self.slot)));
        }
        told.extend(exec_args(facts.exec));
        told.extend(facts.ended.map(|ended| (Op::Ended, ended_args(ended))));
        told.extend(facts.reaped.map(|reaped| (Op::Reaped, reaped_args(reaped))));
        told.push((Op::MemberEnded, members_args(facts)));
        out.u32(self.slot);
        out.u32(told.len() as u32);
        for (op, args) in told {
            out.u32(u32::from(op as u16));
            args.iter().for_each(|value| out.u64(*value));
        }
        out.bytes(&self.record);
        out.0
    }

    /// From bytes; `None` when they are no row.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let mut row = Self {
            slot: from.u32()?,
            ..Self::default()
        };
        for _ in 0..from.u32()? {
            let op = Op::from_number(from.u32()?.try_into().ok()?)?;
            let mut args = [0; 5];
            for place in &mut args {
                *place = from.u64()?;
            }
            row.facts.learn(&Frame::new(op, 0, args));
        }
        row.record = from.bytes()?;
        Some(row)
    }
}

impl Welcome {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::default();
        out.u32(self.oldest);
        out.u32(self.newest);
        out.bytes(&self.build);
        out.u32(self.umask);
        out.limits(&self.limits);
        out.u64(self.restoring.unwrap_or(NONE));
        out.u32(self.restoring_deaths);
        out.u64(self.ledger);
        out.bytes(&self.id);
        out.bytes(&self.taken_back);
        out.bytes(&self.cgroup);
        out.bytes(&self.cgroup_lack);
        out.0
    }

    /// From bytes; `None` when they are no welcome.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        Some(Self {
            oldest: from.u32()?,
            newest: from.u32()?,
            build: from.bytes()?,
            umask: from.u32()?,
            limits: from.limits()?,
            restoring: Some(from.u64()?).filter(|job| *job != NONE),
            restoring_deaths: from.u32()?,
            ledger: from.u64()?,
            // A keeper of an earlier build ends here; one of a later build may say more.
            id: from.bytes().unwrap_or_default(),
            taken_back: from.bytes().unwrap_or_default(),
            cgroup: from.bytes().unwrap_or_default(),
            cgroup_lack: from.bytes().unwrap_or_default(),
        })
    }
}

/// Builds a payload.
#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_ne_bytes());
    }

    fn optional(&mut self, value: Option<u32>) {
        self.u64(value.map_or(NONE, u64::from));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    fn list(&mut self, list: &[Vec<u8>]) {
        self.u32(list.len() as u32);
        list.iter().for_each(|item| self.bytes(item));
    }

    fn limits(&mut self, limits: &[Limit]) {
        self.u32(limits.len() as u32);
        for limit in limits {
            self.u32(limit.resource);
            self.u64(limit.soft);
            self.u64(limit.hard);
        }
    }
}

/// Reads a payload; every method answers `None` when the bytes are used up.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_ne_bytes)
    }

    fn optional(&mut self) -> Option<Option<u32>> {
        let value = self.u64()?;
        Some((value != NONE).then_some(value as u32))
    }

    fn bytes(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()?;
        self.take(length as usize).map(<[u8]>::to_vec)
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.u32()?;
        (0..count).map(|_| self.bytes()).collect()
    }

    fn limits(&mut self) -> Option<Vec<Limit>> {
        let count = self.u32()?;
        (0..count)
            .map(|_| {
                Some(Limit {
                    resource: self.u32()?,
                    soft: self.u64()?,
                    hard: self.u64()?,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::wire::{Ended, Exec, Facts, Reaped, Started, Step};

    fn request() -> ForkRequest {
        ForkRequest {
            slot: 3,
            programs: vec![b"/bin/true".to_vec(), b"/usr/bin/true".to_vec()],
            argv: vec![b"true".to_vec(), vec![]],
            env: vec![b"A=1".to_vec()],
            cwd: b"/".to_vec(),
            umask: Some(0o22),
            limits: vec![Limit {
                resource: 7,
                soft: 1024,
                hard: u64::MAX,
            }],
            cookie: true,
            stdin: Stdin::Passed,
            pty: Some((24, 80)),
            merge: true,
            tells_begun: true,
            record: vec![0, 255],
        }
    }

    #[test]
    fn a_request_survives_the_wire_and_a_cut_one_is_refused() {
        let bytes = request().encode();
        assert_eq!(ForkRequest::decode(&bytes), Some(request()));
        for length in 0..bytes.len() {
            assert_eq!(ForkRequest::decode(&bytes[..length]), None);
        }
    }

    #[test]
    fn a_welcome_of_an_earlier_or_a_later_keeper_is_understood() {
        let welcome = Welcome {
            oldest: 1,
            newest: 2,
            build: b"0.1.0".to_vec(),
            restoring: Some(4),
            ledger: 3,
            id: b"abc".to_vec(),
            taken_back: b"it died".to_vec(),
            cgroup: b"/a".to_vec(),
            cgroup_lack: b"why".to_vec(),
            ..Welcome::default()
        };
        let bytes = welcome.encode();
        let later = [&bytes[..], b"something new"].concat();
        assert_eq!(Welcome::decode(&later), Some(welcome.clone()));
        let earlier = &bytes[..bytes.len() - 4 - 3 - 4 - 7 - 4 - 2 - 4 - 3];
        let expected = Welcome {
            id: Vec::new(),
            taken_back: Vec::new(),
            cgroup: Vec::new(),
            cgroup_lack: Vec::new(),
            ..welcome
        };
        assert_eq!(Welcome::decode(earlier), Some(expected));
    }

    #[test]
    fn a_row_survives_the_wire() {
        let row = JobRow {
            slot: 9,
            record: b"mine".to_vec(),
            facts: Facts {
                started: Some(Started {
                    pid: 7,
                    start_time: 99,
                    grouped: true,
                }),
                exec: Exec::Failed {
                    step: Step::Chdir,
                    errno: 20,
                    candidate: 1,
                },
                ended: Some(Ended {
                    code: None,
                    signal: Some(9),
                    core: true,
                    withheld: false,
                    strays: 2,
                }),
                reaped: Some(Reaped {
                    code: Some(0),
                    signal: None,
                    user_us: 1,
                    sys_us: 2,
                    max_rss_kib: 3,
                }),
                members_ended: 4,
            },
        };
        assert_eq!(JobRow::decode(&row.encode()), Some(row));
    }
}
