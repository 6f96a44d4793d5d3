//! The PDUs that a load generator needs (RFC 7143, section 11), without digests.

/// Bytes of a basic header segment.
pub(crate) const HEADER: usize = 48;

/// The tag that names nothing.
pub(crate) const NO_TAG: u32 = u32::MAX;

/// Opcodes from the target.
pub(crate) mod opcode {
    pub(crate) const NOP_IN: u8 = 0x20;
    pub(crate) const SCSI_RESPONSE: u8 = 0x21;
    pub(crate) const LOGIN_RESPONSE: u8 = 0x23;
    pub(crate) const DATA_IN: u8 = 0x25;
    pub(crate) const LOGOUT_RESPONSE: u8 = 0x26;
    pub(crate) const R2T: u8 = 0x31;
    pub(crate) const ASYNC_MESSAGE: u8 = 0x32;
    pub(crate) const REJECT: u8 = 0x3f;
}

/// A basic header segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header(pub(crate) [u8; HEADER]);

impl Header {
    fn new(opcode: u8, flags: u8, itt: u32) -> Self {
        let mut header = Self([0; HEADER]);
        header.0[0] = opcode;
        header.0[1] = flags;
        header.put(16, itt);
        header
    }

    /// A SCSI Command (11.3) whose unsolicited data, if any, is all immediate.
    pub(crate) fn command(lun: u8, itt: u32, cdb: &[u8; 16], transfer: Transfer) -> Self {
        let (direction, length) = match transfer {
            Transfer::None => (0x00, 0),
            Transfer::Read(length) => (0x40, length),
            Transfer::Write(length) => (0x20, length),
        };
        // Final, SIMPLE task attribute.
        let mut header = Self::new(0x01, 0x80 | direction | 0x01, itt);
        header.0[9] = lun;
        header.put(20, length);
        header.0[32..48].copy_from_slice(cdb);
        header
    }

    /// A Data-Out (11.7) that answers an R2T.
    pub(crate) fn data_out(lun: u8, itt: u32, ttt: u32, number: u32, offset: u32) -> Self {
        let mut header = Self::new(0x05, 0, itt);
        header.0[9] = lun;
        header.put(20, ttt);
        header.put(36, number);
        header.put(40, offset);
        header
    }

    /// A NOP-Out (11.18) that answers a NOP-In.
    pub(crate) fn pong(ping: &Self) -> Self {
        let mut header = Self::new(0x40, 0x80, NO_TAG);
        header.0[8..16].copy_from_slice(&ping.0[8..16]);
        header.put(20, ping.ttt());
        header
    }

    /// A Logout (11.14) that closes the session.
    pub(crate) fn logout() -> Self {
        Self::new(0x46, 0x80, NO_TAG - 1)
    }

    /// A Login (11.12) that asks to go from operational negotiation to the full feature phase.
    pub(crate) fn login(isid: [u8; 6]) -> Self {
        let mut header = Self::new(0x43, 0x87, 0);
        header.0[8..14].copy_from_slice(&isid);
        header
    }

    /// Marks the last Data-Out of a sequence.
    pub(crate) const fn set_final(&mut self) {
        self.0[1] |= 0x80;
    }

    /// Sets `CmdSN` and `ExpStatSN`.
    pub(crate) fn set_numbers(&mut self, cmd_sn: u32, exp_stat_sn: u32) {
        self.put(24, cmd_sn);
        self.put(28, exp_stat_sn);
    }

    /// Sets the length of the data segment, below 16 MiB.
    pub(crate) fn set_data_length(&mut self, length: usize) {
        // The first of the four bytes is the length of additional headers: none.
        self.put(4, length as u32);
    }

    fn put(&mut self, at: usize, value: u32) {
        self.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }

    /// The four bytes at `at`.
    pub(crate) fn get(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// What kind of PDU it is.
    pub(crate) const fn opcode(&self) -> u8 {
        self.0[0] & 0x3f
    }

    /// The flags of its kind.
    pub(crate) const fn flags(&self) -> u8 {
        self.0[1]
    }

    /// SCSI status.
    pub(crate) const fn status(&self) -> u8 {
        self.0[3]
    }

    /// Bytes of additional headers.
    pub(crate) fn ahs_length(&self) -> usize {
        usize::from(self.0[4]) * 4
    }

    /// Bytes of data, without padding.
    pub(crate) fn data_length(&self) -> usize {
        (self.get(4) & 0x00ff_ffff) as usize
    }

    /// Initiator task tag.
    pub(crate) fn itt(&self) -> u32 {
        self.get(16)
    }

    /// Target transfer tag.
    pub(crate) fn ttt(&self) -> u32 {
        self.get(20)
    }

    /// `StatSN`.
    pub(crate) fn stat_sn(&self) -> u32 {
        self.get(24)
    }

    /// `ExpCmdSN`.
    pub(crate) fn exp_cmd_sn(&self) -> u32 {
        self.get(28)
    }

    /// `MaxCmdSN`.
    pub(crate) fn max_cmd_sn(&self) -> u32 {
        self.get(32)
    }
}

/// Which way a command's data goes, and how many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Transfer {
    None,
    Read(u32),
    Write(u32),
}

/// Whether `a` comes before `b` in serial number arithmetic (RFC 1982).
pub(crate) const fn precedes(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() < 0
}

/// READ(16) or WRITE(16): SBC-4, 5.16 and 5.46.
pub(crate) fn read_write_16(write: bool, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = if write { 0x8a } else { 0x88 };
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

/// Bytes from the end of a data segment to the next PDU.
pub(crate) const fn padding(length: usize) -> usize {
    length.wrapping_neg() & 3
}
