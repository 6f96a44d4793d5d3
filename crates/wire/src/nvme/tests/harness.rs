//! A host for tests: builds PDUs and commands, takes answers apart.

use std::sync::Arc;

use crate::crc32c;
use crate::nvme::{Connect, Connection, Event, Limits, PeerError, Received, Sqe, Status, Transfer};

pub(super) const HOST: &str =
    "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";
pub(super) const SUBSYSTEM: &str = "nqn.2026-11.io.weir:disk0";
/// Places of the I/O queue of [`Host::io`].
pub(super) const DEPTH: u16 = 16;

/// An event that keeps its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Told {
    Connect(Connect),
    Property { slot: u32, offset: u32 },
    Command { slot: u32, opcode: u8, cid: u16, transfer: Transfer },
    Data { slot: u32, offset: u32, bytes: Vec<u8>, complete: bool },
    Gathered { slot: u32, opcode: u8, cid: u16, data: Vec<u8> },
    TransferFailed { slot: u32, status: Status },
    Disconnect { slot: u32 },
    Terminated { fes: u16, fei: u32 },
}

impl From<Event<'_>> for Told {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Connect(connect) => Self::Connect(*connect),
            Event::Property { slot, property } => Self::Property { slot, offset: property.offset },
            Event::Command { slot, sqe, transfer } => {
                Self::Command { slot, opcode: sqe.opcode(), cid: sqe.cid(), transfer }
            }
            Event::Data { slot, offset, bytes, complete } => {
                Self::Data { slot, offset, bytes: bytes.to_vec(), complete }
            }
            Event::Gathered { slot, sqe, data } => {
                Self::Gathered { slot, opcode: sqe.opcode(), cid: sqe.cid(), data }
            }
            Event::TransferFailed { slot, status } => Self::TransferFailed { slot, status },
            Event::Disconnect { slot } => Self::Disconnect { slot },
            Event::Terminated { fes, fei } => Self::Terminated { fes, fei },
        }
    }
}

/// A PDU of the controller, taken apart; digests were right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pdu {
    pub(super) kind: u8,
    pub(super) flags: u8,
    /// The header behind its first eight bytes.
    pub(super) body: Vec<u8>,
    pub(super) data: Vec<u8>,
    /// Offset of the data.
    pub(super) pdo: usize,
}

impl Pdu {
    pub(super) fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(*self.body[at - 8..].first_chunk().unwrap())
    }

    pub(super) fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.body[at - 8..].first_chunk().unwrap())
    }

    /// Status code and type of a response capsule.
    pub(super) fn status(&self) -> u16 {
        assert_eq!(self.kind, 5, "{self:?}");
        self.u16(22) >> 1 & 0x7ff
    }

    /// CID and status of a response capsule.
    pub(super) fn ending(&self) -> (u16, u16) {
        (self.u16(20), self.status())
    }
}

pub(super) struct Host {
    pub(super) connection: Connection<Arc<[u8]>>,
    /// Header and data digests.
    pub(super) digests: (bool, bool),
    /// Bytes that were sent and not taken.
    pub(super) pending: Vec<u8>,
    /// Slots whose responses were written.
    pub(super) done: Vec<u32>,
}

impl Host {
    /// A host that has sent nothing.
    pub(super) fn silent(limits: Limits) -> Self {
        let connection = Connection::new(limits);
        Self { connection, digests: (false, false), pending: Vec::new(), done: Vec::new() }
    }

    /// A host that has sent its `ICReq` and got the answer.
    pub(super) fn initialized(limits: Limits, hpda: u8, digests: (bool, bool)) -> Self {
        let mut host = Self::silent(limits);
        let bits = u8::from(digests.0) | u8::from(digests.1) << 1;
        assert_eq!(host.send(&ic_req(hpda, bits)), Ok(vec![]));
        let answer = host.take_bytes();
        assert_eq!((answer.len(), answer[0], answer[11]), (128, 1, bits));
        host.digests = digests;
        host
    }

    /// A host whose queue is connected, without flow control if so said.
    pub(super) fn live(queue: u16, digests: (bool, bool), hpda: u8, no_flow_control: bool) -> Self {
        let mut host = Self::initialized(Limits::default(), hpda, digests);
        let attributes = if no_flow_control { 4 } else { 0 };
        let capsule =
            host.capsule(&connect_sqe(queue, DEPTH - 1, attributes), &connect_data(queue));
        let told = host.send(&capsule).unwrap();
        assert!(matches!(&told[..], [Told::Connect(_)]), "{told:?}");
        host.connection.admitted(1);
        let answers = host.pdus();
        assert_eq!(answers.len(), 1);
        assert_eq!((answers[0].status(), answers[0].u32(8)), (0, 1));
        host.done.clear();
        host
    }

    pub(super) fn io() -> Self {
        Self::live(1, (false, false), 0, true)
    }

    pub(super) fn admin() -> Self {
        Self::live(0, (false, false), 0, true)
    }

    /// Sends bytes as a shell would hand them on.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<Vec<Told>, PeerError> {
        self.pending.extend_from_slice(bytes);
        let mut told = Vec::new();
        loop {
            assert!(self.connection.needed() <= crate::nvme::NEEDED_MAX);
            let Received { consumed, event } = self.connection.receive(&self.pending)?;
            let idle = consumed == 0 && event.is_none();
            told.extend(event.map(Told::from));
            self.pending.drain(..consumed);
            if idle || self.pending.is_empty() {
                return Ok(told);
            }
        }
    }

    /// Sends one command that is an event, and returns its slot.
    pub(super) fn command(&mut self, sqe: &[u8; 64], data: &[u8]) -> u32 {
        let told = self.send(&self.capsule(sqe, data)).unwrap();
        let Some(Told::Command { slot, .. }) = told.first() else {
            panic!("a command is an event: {told:?}");
        };
        *slot
    }

    pub(super) fn capsule(&self, sqe: &[u8; 64], data: &[u8]) -> Vec<u8> {
        let mut header = vec![4, 0, 72, 0, 0, 0, 0, 0];
        header.extend_from_slice(sqe);
        self.framed(header, data)
    }

    pub(super) fn h2c_data(&self, cid: u16, tag: u32, at: u32, data: &[u8], last: bool) -> Vec<u8> {
        let flags = if last { 4 } else { 0 };
        let mut header = vec![6, flags, 24, 0, 0, 0, 0, 0];
        header.extend_from_slice(&cid.to_le_bytes());
        header.extend_from_slice(&(tag as u16).to_le_bytes());
        header.extend_from_slice(&at.to_le_bytes());
        header.extend_from_slice(&(data.len() as u32).to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        self.framed(header, data)
    }

    /// Fills in flags and lengths, adds digests.
    fn framed(&self, mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let (with_header, with_data) = self.digests;
        let end = header.len() + if with_header { 4 } else { 0 };
        let tail = if with_data && !data.is_empty() { 4 } else { 0 };
        header[1] |= u8::from(with_header) | u8::from(tail > 0) << 1;
        if !data.is_empty() {
            header[3] = end as u8;
        }
        header[4..8].copy_from_slice(&((end + data.len() + tail) as u32).to_le_bytes());
        let mut pdu = header.clone();
        if with_header {
            pdu.extend_from_slice(&crc32c::padded(&header, 0));
        }
        pdu.extend_from_slice(data);
        if tail > 0 {
            pdu.extend_from_slice(&crc32c::padded(data, 0));
        }
        pdu
    }

    /// Writes all that waits in the outbox.
    pub(super) fn take_bytes(&mut self) -> Vec<u8> {
        let outbox = self.connection.outbox();
        let bytes: Vec<u8> = outbox.slices().flatten().copied().collect();
        assert_eq!(bytes.len(), outbox.len());
        let done = &mut self.done;
        outbox.advance(bytes.len(), |slot| done.push(slot));
        bytes
    }

    /// The PDUs that have come, as Linux reads them: 24 bytes of header, whatever it is.
    pub(super) fn pdus(&mut self) -> Vec<Pdu> {
        let bytes = self.take_bytes();
        let mut rest = &bytes[..];
        let mut pdus = Vec::new();
        while !rest.is_empty() {
            let plen = u32::from_le_bytes(*rest[4..].first_chunk().unwrap()) as usize;
            let (pdu, behind) = rest.split_at(plen);
            rest = behind;
            let (kind, flags, pdo) = (pdu[0], pdu[1], usize::from(pdu[3]));
            assert_eq!(pdu[2], 24, "{pdu:x?}");
            let mut data = Vec::new();
            if kind == 3 {
                data = pdu[24..].to_vec();
            } else {
                let (with_header, with_data) = self.digests;
                assert_eq!(flags & 1 != 0, with_header);
                if with_header {
                    assert!(crc32c::matches(&pdu[..24], &pdu[24..28]));
                }
                if kind == 7 {
                    let front = 24 + if with_header { 4 } else { 0 };
                    assert!(pdu[front..pdo].iter().all(|&byte| byte == 0), "padding is zero");
                    assert_eq!(flags & 2 != 0, with_data);
                    let end = plen - if with_data { 4 } else { 0 };
                    data = pdu[pdo..end].to_vec();
                    assert!(!with_data || crc32c::matches(&data, &pdu[end..]));
                    assert_eq!(
                        data.len() as u32,
                        u32::from_le_bytes(*pdu[16..].first_chunk().unwrap())
                    );
                } else {
                    assert_eq!(plen, 24 + if with_header { 4 } else { 0 });
                }
            }
            pdus.push(Pdu { kind, flags, body: pdu[8..24].to_vec(), data, pdo });
        }
        pdus
    }

    /// CIDs and status codes of the response capsules that have come, and nothing else.
    pub(super) fn endings(&mut self) -> Vec<(u16, u16)> {
        self.pdus().iter().map(Pdu::ending).collect()
    }
}

pub(super) fn ic_req(hpda: u8, digests: u8) -> Vec<u8> {
    let mut pdu = vec![0; 128];
    pdu[2] = 128;
    pdu[4] = 128;
    pdu[10] = hpda;
    pdu[11] = digests;
    pdu
}

/// How a command describes its data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sgl {
    /// In the capsule, of this length.
    Capsule(u32),
    /// By data PDUs, of this length.
    Transport(u32),
}

pub(super) fn sqe(opcode: u8, cid: u16, nsid: u32, cdws: &[u32], sgl: Sgl) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    let (kind, length) = match sgl {
        Sgl::Capsule(length) => (0x01, length),
        Sgl::Transport(length) => (0x5a, length),
    };
    sqe[32..36].copy_from_slice(&length.to_le_bytes());
    sqe[39] = kind;
    for (place, cdw) in cdws.iter().enumerate() {
        sqe[40 + 4 * place..44 + 4 * place].copy_from_slice(&cdw.to_le_bytes());
    }
    sqe
}

pub(super) fn parsed(sqe: &[u8; 64]) -> Sqe {
    Sqe::from_bytes(sqe)
}

/// A read of this many blocks of 512 bytes.
pub(super) fn read(cid: u16, blocks: u32) -> [u8; 64] {
    sqe(0x02, cid, 1, &[0, 0, blocks - 1], Sgl::Transport(blocks * 512))
}

/// A write of this many blocks of 512 bytes, whose data is asked for.
pub(super) fn write(cid: u16, blocks: u32) -> [u8; 64] {
    sqe(0x01, cid, 1, &[0, 0, blocks - 1], Sgl::Transport(blocks * 512))
}

/// A write of this many blocks of 512 bytes in the capsule.
pub(super) fn write_in_capsule(cid: u16, blocks: u32) -> [u8; 64] {
    sqe(0x01, cid, 1, &[0, 0, blocks - 1], Sgl::Capsule(blocks * 512))
}

pub(super) fn flush(cid: u16) -> [u8; 64] {
    sqe(0x00, cid, 1, &[], Sgl::Transport(0))
}

/// A Fabrics command of this type.
pub(super) fn fabrics(fctype: u8, cid: u16, cdws: &[u32], sgl: Sgl) -> [u8; 64] {
    sqe(0x7f, cid, fctype.into(), cdws, sgl)
}

pub(super) fn disconnect(cid: u16) -> [u8; 64] {
    fabrics(0x08, cid, &[], Sgl::Transport(0))
}

pub(super) fn connect_sqe(queue: u16, size: u16, attributes: u32) -> [u8; 64] {
    let cdws = [u32::from(queue) << 16, u32::from(size) | attributes << 16, 15_000];
    fabrics(0x01, 0, &cdws, Sgl::Capsule(1024))
}

pub(super) fn connect_data(queue: u16) -> Vec<u8> {
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&[7; 16]);
    let controller: u16 = if queue == 0 { 0xffff } else { 1 };
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + SUBSYSTEM.len()].copy_from_slice(SUBSYSTEM.as_bytes());
    data[512..512 + HOST.len()].copy_from_slice(HOST.as_bytes());
    data
}
