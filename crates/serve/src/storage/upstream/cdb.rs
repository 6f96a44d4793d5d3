//! The commands that a gateway sends to an upstream, as SPC-4 and SBC-3 lay them out.

/// A command descriptor block, padded with zeroes.
pub(super) type Cdb = [u8; 16];

/// TEST UNIT READY.
pub(super) const TEST_UNIT_READY: Cdb = [0; 16];

/// INQUIRY (SPC-4, 6.4): the standard data, or a page of the vital product data.
pub(super) fn inquiry(page: Option<u8>, allocation: u16) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = 0x12;
    cdb[1] = u8::from(page.is_some());
    cdb[2] = page.unwrap_or(0);
    cdb[3..5].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// REPORT LUNS (SPC-4, 6.33).
pub(super) fn report_luns(allocation: u32) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = 0xa0;
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// READ CAPACITY (16) (SBC-3, 5.16).
pub(super) fn read_capacity_16(allocation: u32) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x9e, 0x10);
    cdb[10..14].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// READ CAPACITY (10) (SBC-3, 5.15).
pub(super) fn read_capacity_10() -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = 0x25;
    cdb
}

/// MODE SENSE (6) of the caching page (SBC-3, 6.4.5), current values, without block descriptors.
pub(super) fn mode_sense_caching(allocation: u8) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[4]) = (0x1a, 0x08, 0x08, allocation);
    cdb
}

/// REPORT TARGET PORT GROUPS (SPC-4, 6.37).
pub(super) fn report_target_port_groups(allocation: u32) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0xa3, 0x0a);
    cdb[6..10].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// Which form of a command with an address a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// 16 bytes, any address.
    Long,
    /// 10 bytes: addresses below 2^32, up to 65 535 blocks.
    Short,
}

/// READ (SBC-3, 5.11 and 5.13).
pub(super) fn read(form: Form, lba: u64, blocks: u32) -> Cdb {
    ranged(form, [0x88, 0x28], 0, lba, blocks)
}

/// WRITE (SBC-3, 5.34 and 5.36), with FUA if it is to be durable by itself.
pub(super) fn write(form: Form, lba: u64, blocks: u32, fua: bool) -> Cdb {
    ranged(form, [0x8a, 0x2a], if fua { 0x08 } else { 0 }, lba, blocks)
}

/// SYNCHRONIZE CACHE (SBC-3, 5.24 and 5.25) of everything.
pub(super) fn synchronize(form: Form) -> Cdb {
    ranged(form, [0x91, 0x35], 0, 0, 0)
}

/// WRITE SAME (SBC-3, 5.44 and 5.45), which may unmap what reads as zeroes afterwards.
pub(super) fn write_same(lba: u64, blocks: u32, unmap: bool) -> Cdb {
    ranged(Form::Long, [0x93, 0x41], if unmap { 0x08 } else { 0 }, lba, blocks)
}

/// UNMAP (SBC-3, 5.28) with a parameter list of this number of bytes.
pub(super) fn unmap(length: u16) -> Cdb {
    let mut cdb = [0; 16];
    cdb[0] = 0x42;
    cdb[7..9].copy_from_slice(&length.to_be_bytes());
    cdb
}

/// The parameter list of an UNMAP of one range.
pub(super) fn unmap_list(lba: u64, blocks: u32) -> [u8; 24] {
    let mut list = [0; 24];
    list[1] = 22;
    list[3] = 16;
    list[8..16].copy_from_slice(&lba.to_be_bytes());
    list[16..20].copy_from_slice(&blocks.to_be_bytes());
    list
}

/// PERSISTENT RESERVE IN (SPC-4, 6.15).
pub(super) fn persistent_in(action: u8, allocation: u16) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (0x5e, action);
    cdb[7..9].copy_from_slice(&allocation.to_be_bytes());
    cdb
}

/// PERSISTENT RESERVE OUT (SPC-4, 6.16) for the whole unit, with a list of [`persistent_list`].
pub(super) fn persistent_out(action: u8, kind: u8) -> Cdb {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[2], cdb[8]) = (0x5f, action, kind, LIST as u8);
    cdb
}

/// The parameter list of a PERSISTENT RESERVE OUT: the sender's key, the key of the action, and whether the
/// target is to remember over a loss of power.
pub(super) fn persistent_list(key: u64, of_action: u64, survives: bool) -> [u8; LIST] {
    let mut list = [0; LIST];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&of_action.to_be_bytes());
    list[20] = u8::from(survives);
    list
}

/// Bytes of that list.
pub(super) const LIST: usize = 24;

fn ranged(form: Form, [long, short]: [u8; 2], flags: u8, lba: u64, blocks: u32) -> Cdb {
    let mut cdb = [0; 16];
    cdb[1] = flags;
    match form {
        Form::Long => {
            cdb[0] = long;
            cdb[2..10].copy_from_slice(&lba.to_be_bytes());
            cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
        }
        Form::Short => {
            cdb[0] = short;
            cdb[2..6].copy_from_slice(&(lba as u32).to_be_bytes());
            cdb[7..9].copy_from_slice(&(blocks as u16).to_be_bytes());
        }
    }
    cdb
}
