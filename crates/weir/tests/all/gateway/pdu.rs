//! iSCSI PDUs as bytes, written anew from RFC 7143 so that the gateway is not judged by its own code.

use std::io::{Read, Write};

/// Length of the basic header, in bytes.
pub(crate) const HEADER: usize = 48;

/// The tag that means "no tag".
pub(crate) const NO_TAG: u32 = u32::MAX;

/// Opcodes, RFC 7143 section 11.2.1.2.
pub(crate) mod opcode {
    pub(crate) const NOP_OUT: u8 = 0x00;
    pub(crate) const COMMAND: u8 = 0x01;
    pub(crate) const MANAGEMENT: u8 = 0x02;
    pub(crate) const LOGIN: u8 = 0x03;
    pub(crate) const TEXT: u8 = 0x04;
    pub(crate) const DATA_OUT: u8 = 0x05;
    pub(crate) const LOGOUT: u8 = 0x06;
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const RESPONSE: u8 = 0x21;
    pub(crate) const MANAGED: u8 = 0x22;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const TEXT_RESPONSE: u8 = 0x24;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const ASYNC_MESSAGE: u8 = 0x32;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// One PDU without its digests.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: [u8; HEADER],
    pub(crate) data: Vec<u8>,
}

impl Pdu {
    /// A PDU without data; `first` is the opcode, perhaps with the immediate bit.
    pub(crate) fn new(first: u8, flags: u8, itt: u32) -> Self {
        let mut header = [0; HEADER];
        (header[0], header[1]) = (first, flags);
        Self { header, data: Vec::new() }.with(16, itt)
    }

    /// The same with a field of four bytes.
    pub(crate) fn with(mut self, at: usize, value: u32) -> Self {
        self.header[at..at + 4].copy_from_slice(&value.to_be_bytes());
        self
    }

    /// The same with data.
    pub(crate) fn carrying(mut self, data: &[u8]) -> Self {
        let [_, length @ ..] = u32::try_from(data.len()).unwrap().to_be_bytes();
        self.header[5..8].copy_from_slice(&length);
        self.data = data.to_vec();
        self
    }

    /// The four bytes at `at` as a number.
    pub(crate) fn field(&self, at: usize) -> u32 {
        u32::from_be_bytes(self.header[at..at + 4].try_into().unwrap())
    }

    /// The opcode without the immediate bit.
    pub(crate) const fn opcode(&self) -> u8 {
        self.header[0] & 0x3f
    }

    /// Initiator task tag.
    pub(crate) fn itt(&self) -> u32 {
        self.field(16)
    }

    /// As it goes over the wire, padded, with both digests if wanted.
    pub(crate) fn encode(&self, digests: bool) -> Vec<u8> {
        let mut bytes = self.header.to_vec();
        if digests {
            bytes.extend(crc32c(&self.header).to_le_bytes());
        }
        let start = bytes.len();
        bytes.extend(&self.data);
        bytes.resize(start + self.data.len().next_multiple_of(4), 0);
        if digests && !self.data.is_empty() {
            let digest = crc32c(&bytes[start..]).to_le_bytes();
            bytes.extend(digest);
        }
        bytes
    }

    /// Writes it.
    pub(crate) fn send(&self, mut to: impl Write, digests: bool) -> std::io::Result<()> {
        to.write_all(&self.encode(digests))
    }

    /// Reads the next one, and checks its digests if it has any.
    pub(crate) fn receive(mut from: impl Read, digests: bool) -> std::io::Result<Self> {
        let mut header = [0; HEADER];
        from.read_exact(&mut header)?;
        let mut digest = [0; 4];
        if digests {
            from.read_exact(&mut digest)?;
            assert_eq!(crc32c(&header).to_le_bytes(), digest, "header digest of the gateway");
        }
        assert_eq!(header[4], 0, "the gateway sends no additional header segments");
        let length = u32::from_be_bytes([0, header[5], header[6], header[7]]) as usize;
        let mut data = vec![0; length.next_multiple_of(4)];
        from.read_exact(&mut data)?;
        if digests && length > 0 {
            from.read_exact(&mut digest)?;
            assert_eq!(crc32c(&data).to_le_bytes(), digest, "data digest of the gateway");
        }
        data.truncate(length);
        Ok(Self { header, data })
    }
}

/// CRC32C, bit by bit (RFC 7143 section 13.1).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 * (crc & 1)))
    })
}

/// The examples of RFC 7143 appendix A.4 hold.
#[test]
fn the_digest_is_the_published_one() {
    assert_eq!(crc32c(&[0; 32]).to_le_bytes(), [0xaa, 0x36, 0x91, 0x8a]);
    assert_eq!(crc32c(&[0xff; 32]).to_le_bytes(), [0x43, 0xab, 0xa8, 0x62]);
}
