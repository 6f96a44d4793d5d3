//! A host of NVMe over TCP, written anew from the standards: one object for each queue.

use super::initiator::connect;
use super::pdu::crc32c;
use super::{Gateway, ONE_DISK};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// NQN of the subsystem of [`Gateway`]s in tests.
pub(crate) const SUBSYSTEM: &str = "nqn.2026-11.org.example:disk";
/// NQN of every discovery subsystem.
pub(crate) const DISCOVERY: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// I/O opcodes.
pub(crate) const FLUSH: u8 = 0x00;
pub(crate) const WRITE: u8 = 0x01;
pub(crate) const READ: u8 = 0x02;
pub(crate) const COMPARE: u8 = 0x05;
pub(crate) const WRITE_ZEROES: u8 = 0x08;
pub(crate) const DATASET_MANAGEMENT: u8 = 0x09;
pub(crate) const VERIFY: u8 = 0x0c;
pub(crate) const RESERVATION_REGISTER: u8 = 0x0d;
pub(crate) const RESERVATION_REPORT: u8 = 0x0e;
pub(crate) const RESERVATION_ACQUIRE: u8 = 0x11;
pub(crate) const RESERVATION_RELEASE: u8 = 0x15;
/// Admin opcodes.
pub(crate) const GET_LOG_PAGE: u8 = 0x02;
pub(crate) const IDENTIFY: u8 = 0x06;
pub(crate) const ABORT: u8 = 0x08;
pub(crate) const SET_FEATURES: u8 = 0x09;
pub(crate) const GET_FEATURES: u8 = 0x0a;
pub(crate) const EVENT_REQUEST: u8 = 0x0c;
pub(crate) const KEEP_ALIVE: u8 = 0x18;

/// Bytes of a block.
pub(crate) const BLOCK: u64 = 512;

/// CC: enabled, with entries of 64 and 16 bytes.
pub(crate) const ENABLED: u64 = 0x46_0001;
/// CC: a normal shutdown is asked for.
pub(crate) const SHUTDOWN: u64 = 0x46_4001;
/// Offsets of CC and CSTS.
pub(crate) const CC: u32 = 0x14;
pub(crate) const CSTS: u32 = 0x1c;

/// A host that connects to a subsystem.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) nqn: String,
    pub(crate) id: [u8; 16],
    pub(crate) subsystem: String,
    pub(crate) kato_ms: u32,
    /// Header and data digests.
    pub(crate) digests: bool,
}

/// How a command has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Status code and type, without "do not retry".
    pub(crate) status: u16,
    /// The host must not retry.
    pub(crate) is_final: bool,
    pub(crate) dw0: u32,
    pub(crate) data: Vec<u8>,
}

/// One queue.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) socket: TcpStream,
    digests: bool,
    next_cid: u16,
    /// Data to be sent when it is asked for.
    unsent: BTreeMap<u16, Vec<u8>>,
    read: BTreeMap<u16, Vec<u8>>,
    answered: BTreeMap<u16, Answer>,
    /// The FUSE field of commands: 1 for the first of a pair, 2 for the second.
    pub(crate) fuse: u8,
    /// Digests of data are wrong.
    pub(crate) damages: bool,
    /// This many bytes at the end of PDUs with data are not sent.
    pub(crate) withheld: usize,
}

/// A controller with its admin queue.
#[derive(Debug)]
pub(crate) struct Controller {
    pub(crate) admin: Queue,
    pub(crate) id: u16,
    host: Host,
    address: SocketAddr,
}

/// `ONE_DISK` as a namespace, too; `more` is said of the subsystem.
pub(crate) fn with_subsystem(nvme: &str, more: &str) -> String {
    format!(
        "[nvme]\nlisten = [\"127.0.0.1:0\"]\n{nvme}{ONE_DISK}\n[[subsystem]]\n\
         name = \"{SUBSYSTEM}\"\nnamespaces = {{ 1 = \"disk\" }}\n{more}"
    )
}

impl Gateway {
    /// A host of this number, with an enabled controller.
    pub(crate) fn controller(&self, number: u8) -> Controller {
        Host::of(number).connect(self.nvme[0]).unwrap().enabled()
    }
}

impl Host {
    /// The host of this number.
    pub(crate) fn of(number: u8) -> Self {
        Self {
            nqn: format!("nqn.2014-08.org.nvmexpress:uuid:host{number}"),
            id: [number; 16],
            subsystem: SUBSYSTEM.to_owned(),
            kato_ms: 120_000,
            digests: false,
        }
    }

    /// Connects an admin queue; an error is the status and dword 0.
    pub(crate) fn connect(self, address: SocketAddr) -> Result<Controller, (u16, u32)> {
        let mut admin = Queue::initialized(address, self.digests);
        let id = admin.connect(&self, 0, 0xffff)? as u16;
        Ok(Controller { admin, id, host: self, address })
    }
}

impl Controller {
    /// Enables it.
    pub(crate) fn enabled(mut self) -> Self {
        self.admin.set(CC, ENABLED);
        assert_eq!(self.admin.get(CSTS) & 1, 1, "CSTS.RDY");
        self
    }

    /// Connects an I/O queue; an error is the status and dword 0.
    pub(crate) fn queue(&self, number: u16) -> Result<Queue, (u16, u32)> {
        self.queue_as(&self.host, number)
    }

    /// The same, under another name.
    pub(crate) fn queue_as(&self, host: &Host, number: u16) -> Result<Queue, (u16, u32)> {
        let mut queue = Queue::initialized(self.address, host.digests);
        queue.connect(host, number, self.id)?;
        Ok(queue)
    }

    /// Identify with this CNS.
    pub(crate) fn identify(&mut self, cns: u32, nsid: u32) -> Answer {
        self.admin.execute(IDENTIFY, nsid, &[cns], Move::In(4096))
    }

    /// A log page, or a part of it.
    pub(crate) fn log(&mut self, page: u32, offset: u32, length: u32) -> Answer {
        let dwords = [page | (length / 4 - 1) << 16, 0, offset];
        self.admin.execute(GET_LOG_PAGE, 0, &dwords, Move::In(length))
    }
}

/// The data of a command.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Move<'a> {
    None,
    In(u32),
    Out(&'a [u8]),
}

impl Queue {
    /// A connection that is initialized.
    pub(crate) fn initialized(address: SocketAddr, digests: bool) -> Self {
        let mut socket = connect(address);
        let mut request = [0; 128];
        (request[2], request[4]) = (128, 128);
        request[11] = if digests { 3 } else { 0 };
        socket.write_all(&request).unwrap();
        let mut answer = [0; 128];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!((answer[0], answer[10], answer[11]), (1, 0, request[11]));
        let (unsent, read, answered) = Default::default();
        Self {
            socket,
            digests,
            next_cid: 0,
            unsent,
            read,
            answered,
            fuse: 0,
            damages: false,
            withheld: 0,
        }
    }

    /// Fabrics Connect; dword 0, or the status and dword 0.
    fn connect(&mut self, host: &Host, number: u16, controller: u16) -> Result<u32, (u16, u32)> {
        let mut data = vec![0; 1024];
        data[..16].copy_from_slice(&host.id);
        data[16..18].copy_from_slice(&controller.to_le_bytes());
        data[256..256 + host.subsystem.len()].copy_from_slice(host.subsystem.as_bytes());
        data[512..512 + host.nqn.len()].copy_from_slice(host.nqn.as_bytes());
        let size = if number == 0 { 31 } else { 127 };
        let dwords = [u32::from(number) << 16, size | 4 << 16, host.kato_ms];
        let answer = self.execute(0x7f, 1, &dwords, Move::Out(&data));
        if answer.status == 0 { Ok(answer.dw0) } else { Err((answer.status, answer.dw0)) }
    }

    /// Writes a property of four bytes.
    pub(crate) fn set(&mut self, offset: u32, value: u64) {
        let answer = self.execute(0x7f, 0, &[0, offset, value as u32, 0], Move::None);
        assert_eq!(answer.status, 0);
    }

    /// Reads a property of four bytes.
    pub(crate) fn get(&mut self, offset: u32) -> u32 {
        let answer = self.execute(0x7f, 4, &[0, offset], Move::None);
        assert_eq!(answer.status, 0);
        answer.dw0
    }

    /// Sends a command; returns its identifier. In a Fabrics command the namespace is the type.
    pub(crate) fn issue(&mut self, opcode: u8, nsid: u32, dwords: &[u32], data: Move<'_>) -> u16 {
        let cid = self.next_cid;
        self.next_cid += 1;
        let mut sqe = [0; 64];
        (sqe[0], sqe[1]) = (opcode, 0x40 | self.fuse);
        sqe[2..4].copy_from_slice(&cid.to_le_bytes());
        sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
        for (place, dword) in dwords.iter().enumerate() {
            sqe[40 + 4 * place..44 + 4 * place].copy_from_slice(&dword.to_le_bytes());
        }
        let (kind, length, inside): (u8, u32, &[u8]) = match data {
            Move::None => (0x5a, 0, &[]),
            Move::In(length) => (0x5a, length, &[]),
            Move::Out(bytes) if bytes.len() <= 8192 => (0x01, bytes.len() as u32, bytes),
            Move::Out(bytes) => {
                self.unsent.insert(cid, bytes.to_vec());
                (0x5a, bytes.len() as u32, &[])
            }
        };
        sqe[32..36].copy_from_slice(&length.to_le_bytes());
        sqe[39] = kind;
        let mut header = vec![4, 0, 72, 0, 0, 0, 0, 0];
        header.extend_from_slice(&sqe);
        let mut pdu = self.framed(header, inside);
        if !inside.is_empty() {
            pdu.truncate(pdu.len() - self.withheld);
        }
        self.socket.write_all(&pdu).unwrap();
        cid
    }

    /// Sends a command and waits for its end.
    pub(crate) fn execute(
        &mut self,
        opcode: u8,
        nsid: u32,
        dwords: &[u32],
        data: Move<'_>,
    ) -> Answer {
        let cid = self.issue(opcode, nsid, dwords, data);
        self.wait(cid).unwrap()
    }

    /// Sends a command for blocks of namespace 1.
    pub(crate) fn issue_at(&mut self, opcode: u8, offset: u64, length: u64, data: Move<'_>) -> u16 {
        let (lba, count) = (offset / BLOCK, length / BLOCK);
        self.issue(opcode, 1, &[lba as u32, (lba >> 32) as u32, count as u32 - 1], data)
    }

    /// Reads from namespace 1.
    pub(crate) fn read(&mut self, offset: u64, length: u32) -> Answer {
        let cid = self.issue_at(READ, offset, length.into(), Move::In(length));
        self.wait(cid).unwrap()
    }

    /// Writes to namespace 1.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        let cid = self.issue_at(WRITE, offset, bytes.len() as u64, Move::Out(bytes));
        self.wait(cid).unwrap()
    }

    /// Waits for the end of a command. An error: the connection has ended.
    pub(crate) fn wait(&mut self, cid: u16) -> io::Result<Answer> {
        loop {
            if let Some(answer) = self.answered.remove(&cid) {
                return Ok(answer);
            }
            self.hear()?;
        }
    }

    /// A PDU from its header: flags, lengths and digests are filled in.
    fn framed(&self, mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let digest = if self.digests { 4 } else { 0 };
        let end = header.len() + digest;
        let tail = if data.is_empty() { 0 } else { digest };
        header[1] |= u8::from(self.digests) | u8::from(tail > 0) << 1;
        header[3] = if data.is_empty() { 0 } else { end as u8 };
        header[4..8].copy_from_slice(&((end + data.len() + tail) as u32).to_le_bytes());
        let mut pdu = header.clone();
        if self.digests {
            pdu.extend(crc32c(&header).to_le_bytes());
        }
        pdu.extend_from_slice(data);
        if tail > 0 {
            pdu.extend((crc32c(data) ^ u32::from(self.damages)).to_le_bytes());
        }
        pdu
    }

    /// Whether the end of a command was heard.
    pub(crate) fn has_ended(&self, cid: u16) -> bool {
        self.answered.contains_key(&cid)
    }

    /// Takes in one PDU of the controller, and sends the data that it asks for.
    pub(crate) fn hear(&mut self) -> io::Result<()> {
        let mut header = [0; 24];
        self.socket.read_exact(&mut header)?;
        let word = |at: usize| u32::from_le_bytes(*header[at..].first_chunk().unwrap());
        let half = |at: usize| u16::from_le_bytes(*header[at..].first_chunk().unwrap());
        let mut rest = vec![0; word(4) as usize - 24];
        self.socket.read_exact(&mut rest)?;
        let digest = if self.digests { 4 } else { 0 };
        if self.digests {
            assert_eq!(rest[..4], crc32c(&header).to_le_bytes(), "header digest");
        }
        match header[0] {
            5 => {
                let (cid, status) = (half(20), half(22) >> 1);
                let data = self.read.remove(&cid).unwrap_or_default();
                self.end(cid, status, word(8), data);
            }
            7 => {
                let (cid, length) = (half(8), word(16) as usize);
                let data = &rest[digest..digest + length];
                if self.digests {
                    let found = &rest[digest + length..];
                    assert_eq!(found, crc32c(data).to_le_bytes(), "data digest");
                }
                let read = self.read.entry(cid).or_default();
                assert_eq!(read.len(), word(12) as usize, "data ascends without gaps");
                read.extend_from_slice(data);
                if header[1] & 8 != 0 {
                    let data = self.read.remove(&cid).unwrap();
                    self.end(cid, 0, 0, data);
                }
            }
            9 => {
                let (cid, length) = (half(8), word(16) as usize);
                let data = self.unsent.remove(&cid).expect("data that is there is asked for");
                assert_eq!((word(12), length), (0, data.len()), "all of it");
                let mut header = vec![6, 4, 24, 0, 0, 0, 0, 0];
                header.extend(cid.to_le_bytes());
                header.extend(half(10).to_le_bytes());
                header.extend(0_u32.to_le_bytes());
                header.extend((length as u32).to_le_bytes());
                header.extend([0; 4]);
                let pdu = self.framed(header, &data);
                self.socket.write_all(&pdu[..pdu.len() - self.withheld])?;
            }
            other => panic!("PDU of type {other}"),
        }
        Ok(())
    }

    fn end(&mut self, cid: u16, status: u16, dw0: u32, data: Vec<u8>) {
        let (status, is_final) = (status & 0x7ff, status & 0x4000 != 0);
        self.answered.insert(cid, Answer { status, is_final, dw0, data });
    }
}
