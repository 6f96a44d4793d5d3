//! A host for the NVMe/TCP targets: makes PDUs, and checks those of the controller.

use std::collections::{BTreeMap, VecDeque};

/// Data that the controller has asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) cid: u16,
    pub(crate) tag: u16,
    /// Bytes that were sent.
    pub(crate) sent: u32,
    pub(crate) length: u32,
}

/// A host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// Alignment of data that it has asked for, in bytes.
    alignment: usize,
    /// Unanswered commands by their identifier, of which there can be several.
    unanswered: BTreeMap<u16, u32>,
    /// Bytes of data that have come for an identifier.
    data: BTreeMap<u16, u32>,
    pub(crate) grants: VecDeque<Grant>,
    /// Everything that has come.
    pub(crate) output: Vec<u8>,
    /// Not every command that the controller sees is known.
    is_wild: bool,
    is_terminated: bool,
}

impl Host {
    pub(crate) fn new(
        header_digest: bool,
        data_digest: bool,
        alignment: usize,
        is_wild: bool,
    ) -> Self {
        Self { header_digest, data_digest, alignment, is_wild, ..Self::default() }
    }

    pub(crate) fn ic_req(&self) -> Vec<u8> {
        let mut pdu = vec![0; 128];
        pdu[2] = 128;
        pdu[4] = 128;
        pdu[10] = (self.alignment / 4 - 1) as u8;
        pdu[11] = u8::from(self.header_digest) | u8::from(self.data_digest) << 1;
        pdu
    }

    /// A command capsule, with data.
    pub(crate) fn capsule(&mut self, sqe: &[u8; 64], data: &[u8]) -> Vec<u8> {
        let cid = u16::from_le_bytes([sqe[2], sqe[3]]);
        *self.unanswered.entry(cid).or_default() += 1;
        let mut header = vec![4, 0, 72, 0, 0, 0, 0, 0];
        header.extend_from_slice(sqe);
        self.framed(header, data)
    }

    pub(crate) fn h2c_data(&self, grant: &Grant, data: &[u8], is_last: bool) -> Vec<u8> {
        let mut header = vec![6, if is_last { 4 } else { 0 }, 24, 0, 0, 0, 0, 0];
        header.extend_from_slice(&grant.cid.to_le_bytes());
        header.extend_from_slice(&grant.tag.to_le_bytes());
        header.extend_from_slice(&grant.sent.to_le_bytes());
        header.extend_from_slice(&(data.len() as u32).to_le_bytes());
        header.extend_from_slice(&[0; 4]);
        self.framed(header, data)
    }

    /// All the data that is left of a grant.
    pub(crate) fn rest(&self, grant: &Grant) -> Vec<u8> {
        self.h2c_data(grant, &vec![3; (grant.length - grant.sent) as usize], true)
    }

    /// A PDU from its header: flags, lengths and digests are filled in.
    pub(crate) fn framed(&self, mut header: Vec<u8>, data: &[u8]) -> Vec<u8> {
        let end = header.len() + if self.header_digest { 4 } else { 0 };
        let tail = if self.data_digest && !data.is_empty() { 4 } else { 0 };
        header[1] |= u8::from(self.header_digest) | u8::from(tail > 0) << 1;
        header[3] = if data.is_empty() { 0 } else { end as u8 };
        header[4..8].copy_from_slice(&((end + data.len() + tail) as u32).to_le_bytes());
        let mut pdu = header.clone();
        if self.header_digest {
            pdu.extend_from_slice(&crc32c::crc32c(&header).to_le_bytes());
        }
        pdu.extend_from_slice(data);
        if tail > 0 {
            pdu.extend_from_slice(&crc32c::crc32c(data).to_le_bytes());
        }
        pdu
    }

    /// Looks at whole PDUs of the controller.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
        let mut rest = bytes;
        while !rest.is_empty() {
            assert!(!self.is_terminated, "nothing follows a termination request");
            let length = u32::from_le_bytes(*rest[4..].first_chunk().unwrap()) as usize;
            let (pdu, behind) = rest.split_at(length);
            rest = behind;
            self.on_pdu(pdu);
        }
    }

    fn on_pdu(&mut self, pdu: &[u8]) {
        let word = |at: usize| u32::from_le_bytes(*pdu[at..].first_chunk().unwrap());
        let half = |at: usize| u16::from_le_bytes(*pdu[at..].first_chunk().unwrap());
        let (kind, flags) = (pdu[0], pdu[1]);
        if kind == 1 {
            assert_eq!((pdu.len(), pdu[2], half(8), pdu[10]), (128, 128, 0, 0));
            assert_eq!(pdu[11], self.ic_req()[11]);
            return;
        }
        assert_eq!(pdu[2], 24, "no other header length");
        if kind == 3 {
            assert!((24..=152).contains(&pdu.len()) && (1..=6).contains(&half(8)));
            self.is_terminated = true;
            return;
        }
        let front = if self.header_digest { 28 } else { 24 };
        assert_eq!(flags & 1 == 1, self.header_digest);
        if self.header_digest {
            assert_eq!(crc32c::crc32c(&pdu[..24]), word(24));
        }
        match kind {
            5 => {
                assert_eq!(pdu.len(), front);
                let status = half(22);
                assert_eq!(status & 1, 0, "there is no phase");
                self.on_answer(half(20));
            }
            7 => {
                let pdo = usize::from(pdu[3]);
                assert_eq!(pdo, front.next_multiple_of(self.alignment));
                assert!(pdu[front..pdo].iter().all(|&byte| byte == 0));
                let tail = if self.data_digest { 4 } else { 0 };
                let end = pdu.len() - tail;
                assert_eq!(word(16) as usize, end - pdo);
                assert!(end > pdo);
                if self.data_digest {
                    assert_eq!(crc32c::crc32c(&pdu[pdo..end]), word(end));
                }
                let (is_last, is_success) = (flags & 4 != 0, flags & 8 != 0);
                assert!(is_last || !is_success);
                let sum = self.data.entry(half(8)).or_default();
                assert_eq!(*sum, word(12), "data ascends without gaps");
                *sum += word(16);
                if is_last {
                    self.data.remove(&half(8));
                }
                if is_success {
                    self.on_answer(half(8));
                }
            }
            9 => {
                assert_eq!(pdu.len(), front);
                assert_eq!(word(12), 0, "one R2T for all of the data");
                assert!(word(16) > 0);
                let grant = Grant { cid: half(8), tag: half(10), sent: 0, length: word(16) };
                let is_twice = self.grants.iter().any(|other| other.tag == grant.tag);
                assert!(!is_twice, "a tag has one grant");
                self.grants.push_back(grant);
            }
            other => panic!("PDU of type {other} from a controller"),
        }
    }

    fn on_answer(&mut self, cid: u16) {
        self.data.remove(&cid);
        if self.is_wild {
            return;
        }
        let count = self.unanswered.get_mut(&cid).expect("an answer belongs to a command");
        *count -= 1;
        if *count == 0 {
            self.unanswered.remove(&cid);
        }
    }

    /// Every command has had its answer.
    pub(crate) fn assert_answered(&self) {
        assert!(self.is_wild || self.unanswered.is_empty(), "unanswered: {:?}", self.unanswered);
    }
}

/// Takes bytes from the front, zeros when there are no more.
pub(crate) fn take<const N: usize>(records: &mut &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let n = N.min(records.len());
    bytes[..n].copy_from_slice(&records[..n]);
    *records = &records[n..];
    bytes
}

/// A command: opcode, identifier, namespace, dwords from 10 on, and its SGL descriptor.
pub(crate) fn sqe(opcode: u8, cid: u16, nsid: u32, cdws: &[u32], sgl: (u8, u32)) -> [u8; 64] {
    let mut sqe = [0; 64];
    sqe[0] = opcode;
    sqe[1] = 0x40;
    sqe[2..4].copy_from_slice(&cid.to_le_bytes());
    sqe[4..8].copy_from_slice(&nsid.to_le_bytes());
    sqe[32..36].copy_from_slice(&sgl.1.to_le_bytes());
    sqe[39] = sgl.0;
    for (place, cdw) in cdws.iter().enumerate() {
        sqe[40 + 4 * place..44 + 4 * place].copy_from_slice(&cdw.to_le_bytes());
    }
    sqe
}

/// The command and the data of a Connect.
pub(crate) fn connect(queue: u16, size: u16, attributes: u32, nqn: &str) -> ([u8; 64], Vec<u8>) {
    let cdws = [u32::from(queue) << 16, u32::from(size) | attributes << 16, 15_000];
    let mut data = vec![0; 1024];
    data[..16].copy_from_slice(&[7; 16]);
    let controller: u16 = if queue == 0 { 0xffff } else { 1 };
    data[16..18].copy_from_slice(&controller.to_le_bytes());
    data[256..256 + nqn.len()].copy_from_slice(nqn.as_bytes());
    data[512..521].copy_from_slice(b"nqn.host\0");
    (sqe(0x7f, 0xffff, 1, &cdws, (1, 1024)), data)
}
