//! Commands beyond reading and writing, as bytes.

use super::initiator::{BLOCK, CHECK_CONDITION, Session, Transfer};

/// Key, additional code and qualifier of sense data.
pub(crate) type Sense = (u8, u8, u8);

pub(crate) const NOT_SUPPORTED_UNIT: Sense = (0x5, 0x25, 0x00);
pub(crate) const SANITIZE_IN_PROGRESS: Sense = (0x2, 0x04, 0x1b);
pub(crate) const MISCOMPARE: Sense = (0xe, 0x1d, 0x00);

/// TEST UNIT READY.
pub(crate) const READY: [u8; 16] = [0; 16];

/// A CDB that ends in zeroes.
pub(crate) fn cdb(bytes: &[u8]) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    cdb
}

/// A CDB of 16 bytes with an address; the length, in blocks, is in its last byte.
fn short16(code: u8, flags: u8, offset: u64, blocks: usize) -> [u8; 16] {
    let mut cdb = cdb(&[code, flags]);
    cdb[2..10].copy_from_slice(&(offset / BLOCK).to_be_bytes());
    cdb[13] = u8::try_from(blocks).unwrap();
    cdb
}

/// PERSISTENT RESERVE OUT (SPC-4 section 6.16).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reserve {
    /// Service action.
    pub(crate) action: u8,
    /// Type of the reservation.
    pub(crate) kind: u8,
    pub(crate) key: u64,
    /// Service action reservation key.
    pub(crate) other: u64,
    /// APTPL: it survives a loss of power.
    pub(crate) survives: bool,
}

pub(crate) const REGISTER: u8 = 0;
pub(crate) const RESERVE: u8 = 1;
pub(crate) const PREEMPT_AND_ABORT: u8 = 5;
pub(crate) const WRITE_EXCLUSIVE: u8 = 1;
pub(crate) const EXCLUSIVE_ACCESS: u8 = 3;
pub(crate) const WRITE_EXCLUSIVE_REGISTRANTS_ONLY: u8 = 5;

impl Reserve {
    /// The command and its parameter list.
    pub(crate) fn command(self) -> ([u8; 16], Transfer) {
        let mut cdb = cdb(&[0x5f, self.action, self.kind]);
        cdb[8] = 24;
        let mut list = self.key.to_be_bytes().to_vec();
        list.extend(self.other.to_be_bytes());
        list.extend([0, 0, 0, 0, u8::from(self.survives), 0, 0, 0]);
        (cdb, Transfer::Out(list))
    }
}

impl Session {
    /// Executes a command that must end with CHECK CONDITION; returns its sense data.
    pub(crate) fn sense_of(&mut self, cdb: [u8; 16], transfer: Transfer) -> Sense {
        let ended = self.execute(cdb, transfer);
        assert_eq!(ended.status, CHECK_CONDITION, "{ended:?}");
        ended.sense.unwrap()
    }

    /// Sends the commands that follow to this unit, its first unit attention over.
    pub(crate) fn at(mut self, lun: u8) -> Self {
        self.lun = lun;
        self.ready()
    }

    /// Executes PERSISTENT RESERVE OUT; returns the status.
    pub(crate) fn reserve(&mut self, command: Reserve) -> u8 {
        let (cdb, list) = command.command();
        self.execute(cdb, list).status
    }

    /// The registered keys (READ KEYS).
    pub(crate) fn keys(&mut self) -> Vec<u64> {
        let data = self.execute(cdb(&[0x5e, 0, 0, 0, 0, 0, 0, 1, 0]), Transfer::In(256)).good();
        let length = u32::from_be_bytes(data[4..8].try_into().unwrap()) as usize;
        let keys = data[8..8 + length].chunks(8);
        keys.map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
    }

    /// INQUIRY: the standard data, or a page of vital product data.
    pub(crate) fn inquiry(&mut self, page: Option<u8>) -> Vec<u8> {
        let ask = [0x12, u8::from(page.is_some()), page.unwrap_or(0), 1, 0];
        self.execute(cdb(&ask), Transfer::In(256)).good()
    }

    /// The numbers of the units (REPORT LUNS).
    pub(crate) fn luns(&mut self) -> Vec<u8> {
        let ask = cdb(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 8, 0]);
        let data = self.execute(ask, Transfer::In(2048)).good();
        let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        data[8..8 + length].chunks(8).map(|lun| lun[1]).collect()
    }

    /// Bytes of the unit (READ CAPACITY(16)).
    pub(crate) fn capacity(&mut self) -> u64 {
        let mut ask = cdb(&[0x9e, 0x10]);
        ask[13] = 32;
        let data = self.execute(ask, Transfer::In(32)).good();
        (u64::from_be_bytes(data[..8].try_into().unwrap()) + 1) * BLOCK
    }

    /// Which blocks are mapped from an offset on, in bytes (GET LBA STATUS).
    pub(crate) fn mapped(&mut self, offset: u64) -> Vec<(u64, u64, bool)> {
        let mut ask = cdb(&[0x9e, 0x12]);
        ask[2..10].copy_from_slice(&(offset / BLOCK).to_be_bytes());
        ask[12] = 16;
        let data = self.execute(ask, Transfer::In(4096)).good();
        let length = u32::from_be_bytes(data[..4].try_into().unwrap()) as usize;
        let runs = data[8..4 + length].chunks(16).map(|run| {
            let lba = u64::from_be_bytes(run[..8].try_into().unwrap());
            let blocks = u64::from(u32::from_be_bytes(run[8..12].try_into().unwrap()));
            (lba * BLOCK, blocks * BLOCK, run[12] == 0)
        });
        runs.collect()
    }

    /// The name of the unit as a copy names it: an Identification Descriptor CSCD descriptor with
    /// its NAA designator.
    pub(crate) fn copy_name(&mut self) -> Vec<u8> {
        let page = self.inquiry(Some(0x83));
        let mut at = 4;
        while page[at + 1] & 0x3f != 3 {
            at += 4 + usize::from(page[at + 3]);
        }
        let length = usize::from(page[at + 3]);
        let mut name = vec![0xe4, 0, 0, 0];
        name.extend(&page[at..at + 4 + length]);
        name.resize(28, 0);
        name.extend([0, 0, 2, 0]);
        name
    }

    /// Waits until the unit is ready again while it is sanitized; true if it was not ready at first.
    pub(crate) fn until_sanitized(&mut self) -> bool {
        let mut rounds = 0;
        super::eventually("end of the sanitize", || {
            let ended = self.execute(READY, Transfer::None);
            if ended.status == CHECK_CONDITION {
                assert_eq!(ended.sense, Some(SANITIZE_IN_PROGRESS));
                rounds += 1;
                return None;
            }
            ended.good();
            Some(())
        });
        rounds > 0
    }
}

/// COMPARE AND WRITE.
pub(crate) fn compare_and_write(offset: u64, old: &[u8], new: &[u8]) -> ([u8; 16], Transfer) {
    let blocks = old.len() / BLOCK as usize;
    (short16(0x89, 0, offset, blocks), Transfer::Out([old, new].concat()))
}

/// ORWRITE(16).
pub(crate) fn or_write(offset: u64, data: &[u8]) -> ([u8; 16], Transfer) {
    let blocks = data.len() / BLOCK as usize;
    (short16(0x8b, 0, offset, blocks), Transfer::Out(data.to_vec()))
}

/// WRITE AND VERIFY(16), which compares what it finds with the data.
pub(crate) fn write_and_verify(offset: u64, data: &[u8]) -> ([u8; 16], Transfer) {
    let blocks = data.len() / BLOCK as usize;
    (short16(0x8e, 0x02, offset, blocks), Transfer::Out(data.to_vec()))
}

/// WRITE ATOMIC(16).
pub(crate) fn write_atomic(offset: u64, data: &[u8]) -> ([u8; 16], Transfer) {
    let mut cdb = short16(0x9c, 0, offset, 0);
    let blocks = (data.len() / BLOCK as usize) as u16;
    cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
    (cdb, Transfer::Out(data.to_vec()))
}

/// SANITIZE by overwriting this many times with a pattern; `immediate`: the answer comes at once.
pub(crate) fn overwrite(passes: u8, pattern: &[u8], immediate: bool) -> ([u8; 16], Transfer) {
    let mut cdb = cdb(&[0x48, 0x01 | u8::from(immediate) << 7]);
    let length = (pattern.len() + 4) as u16;
    cdb[7..9].copy_from_slice(&length.to_be_bytes());
    let mut list = vec![passes, 0];
    list.extend((pattern.len() as u16).to_be_bytes());
    list.extend(pattern);
    (cdb, Transfer::Out(list))
}

/// EXTENDED COPY of one range from the first of `names` to the last; offsets and length in bytes.
pub(crate) fn extended_copy(
    names: &[Vec<u8>],
    from: u64,
    to: u64,
    length: usize,
) -> ([u8; 16], Transfer) {
    let names_length = 32 * names.len();
    let mut list = vec![7, 0x10, 0, names_length as u8, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0];
    list.extend(names.concat());
    list.extend([0x02, 0, 0, 24, 0, 0, 0, names.len() as u8 - 1, 0, 0]);
    list.extend(((length as u64 / BLOCK) as u16).to_be_bytes());
    list.extend((from / BLOCK).to_be_bytes());
    list.extend((to / BLOCK).to_be_bytes());
    let mut cdb = cdb(&[0x83]);
    cdb[10..14].copy_from_slice(&(list.len() as u32).to_be_bytes());
    (cdb, Transfer::Out(list))
}

/// MODE SELECT(6) of the caching page: whether a write may be lost before a flush.
pub(crate) fn write_cache(on: bool) -> ([u8; 16], Transfer) {
    let mut list = vec![0, 0, 0, 0, 0x08, 18];
    list.push(u8::from(on) << 2);
    list.resize(24, 0);
    (cdb(&[0x15, 0x10, 0, 0, 24]), Transfer::Out(list))
}

/// START STOP UNIT: loads the medium or ejects it.
pub(crate) fn load(start: bool) -> [u8; 16] {
    cdb(&[0x1b, 0, 0, 0, 0x02 | u8::from(start)])
}

/// PREVENT ALLOW MEDIUM REMOVAL.
pub(crate) fn prevent(prevent: bool) -> [u8; 16] {
    cdb(&[0x1e, 0, 0, 0, u8::from(prevent)])
}
