//! Tests of CDB parsing and of the length of write data.

use super::*;

const FEATURES: Features =
    Features { thin: true, removable: true, sanitize: true, compare_and_write: true, atomic: true };

fn read(bytes: &[u8]) -> Result<Cdb, Sense> {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    decode(&cdb, FEATURES).map(|(_, command)| command)
}

fn transfer(op: MediaOp, lba: u64, blocks: u64) -> Cdb {
    Cdb::Media(Media { op, lba, blocks, fua: false, dpo: false })
}

/// Addresses and lengths lie where each CDB size has them.
#[test]
fn every_size_has_its_places() {
    for (bytes, expected) in [
        (&[0x08, 0x1f, 0xff, 0xfe, 2, 0][..], transfer(MediaOp::Read, 0x1f_fffe, 2)),
        (&[0x0a, 0, 0, 1, 0, 0], transfer(MediaOp::Write, 1, 256)),
        (&[0x28, 0, 1, 2, 3, 4, 0x1f, 5, 6, 0], transfer(MediaOp::Read, 0x0102_0304, 0x0506)),
        (&[0xaa, 0, 1, 2, 3, 4, 0, 5, 6, 7, 0, 0], transfer(MediaOp::Write, 0x0102_0304, 0x5_0607)),
        (
            &[0x88, 0, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 9, 0, 0],
            transfer(MediaOp::Read, 0x0102_0304_0506_0708, 9),
        ),
        (&[0x35, 2], transfer(MediaOp::Synchronize { immediate: true }, 0, 0)),
        (&[0x2f, 2, 0, 0, 0, 7, 0, 0, 1, 0], transfer(MediaOp::Verify(Compare::Blocks), 7, 1)),
        (
            &[0x93, 9, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0],
            transfer(MediaOp::WriteSame { unmap: true, no_data: true }, 3, 4),
        ),
    ] {
        assert_eq!(read(bytes), Ok(expected), "{bytes:02x?}");
    }
}

/// FUA and DPO are read where they exist, and only there.
#[test]
fn cache_bits_are_read() {
    let Ok(Cdb::Media(media)) = read(&[0x2a, 0x18, 0, 0, 0, 0, 0, 0, 1, 0]) else {
        panic!("WRITE(10) is a media command");
    };
    assert!(media.fua && media.dpo);
    let Ok(Cdb::Media(media)) = read(&[0x0a, 0x18, 0, 0, 1, 0]) else {
        panic!("WRITE(6) is a media command");
    };
    assert!(!media.fua && !media.dpo && media.lba == 0x18_0000);
}

/// What is not offered is refused by name.
#[test]
fn refusals_name_the_field() {
    let code = |bytes: &[u8]| read(bytes).map_err(|sense| (sense.asc, sense.ascq)).unwrap_err();
    assert_eq!(code(&[0x12, 0, 0x80, 0, 96, 0]), (0x24, 0));
    assert_eq!(code(&[0x15, 0x00, 0, 0, 12]), (0x24, 0), "pages of the vendor's");
    assert_eq!(code(&[0x15, 0x11, 0, 0, 12]), (0x24, 0), "saved pages");
    assert_eq!(code(&[0x2f, 4]), (0x24, 0));
    assert_eq!(code(&[0x41, 0x10]), (0x24, 0), "anchor");
    assert_eq!(code(&[0x25, 0, 0, 0, 0, 1]), (0x24, 0));
    assert_eq!(code(&[0x5e, 4]), (0x24, 0));
    assert_eq!(code(&[0x4c]), (0x20, 0), "LOG SELECT");
    assert_eq!(code(&[0x4d, 1]), (0x24, 0), "parameters to be saved");
}

/// Write data must fit the command; for a pattern it must fit exactly.
#[test]
fn data_out_must_fit() {
    let media = |op, blocks| Media { op, lba: 0, blocks, fua: false, dpo: false };
    let write = media(MediaOp::Write, 2);
    assert_eq!(write.check_data_out(1024, 512), Ok(1024));
    assert_eq!(write.check_data_out(4096, 512), Ok(1024));
    assert_eq!(write.check_data_out(1023, 512), Err(Sense::INVALID_FIELD_IN_INFORMATION_UNIT));
    assert_eq!(write.check_data_out(512, 512), Ok(512));
    assert_eq!(write.check_data_out(0, 512), Ok(0));
    assert!(media(MediaOp::Verify(Compare::Blocks), 2).check_data_out(512, 512).is_err());
    let same = media(MediaOp::WriteSame { unmap: false, no_data: false }, 99);
    assert_eq!(same.check_data_out(512, 512), Ok(512));
    assert!(same.check_data_out(1024, 512).is_err());
    assert!(same.check_data_out(256, 512).is_err());
    let verified = media(MediaOp::WriteVerify(Compare::Blocks), 2);
    assert_eq!(verified.check_data_out(512, 512), Ok(512));
    assert!(verified.check_data_out(200, 512).is_err());
    for op in [MediaOp::OrWrite, MediaOp::WriteAtomic] {
        assert!(media(op, 2).check_data_out(512, 512).is_err());
        assert_eq!(media(op, 2).check_data_out(2048, 512), Ok(1024));
    }
    let compare = |blocks, expected| {
        let compare = media(MediaOp::CompareAndWrite, blocks);
        compare.check_data_out(expected, 512).map_err(|sense| sense.asc)
    };
    assert_eq!(compare(1, 1024), Ok(1024));
    assert_eq!(compare(0, 0), Ok(0));
    assert_eq!(compare(1, 2048), Err(0x24), "as many as four, but one by the CDB");
    assert_eq!(compare(3, 2048), Err(0x24));
    assert_eq!(compare(0, 256 * 1024), Err(0x24), "256 blocks do not fit the field");
    let huge = media(MediaOp::Write, u64::from(u32::MAX));
    assert_eq!(huge.check_data_out(0xffff_f000, 4096), Ok(0xffff_f000));
    let none = media(MediaOp::WriteSame { unmap: false, no_data: true }, 1);
    assert_eq!(none.check_data_out(0, 512), Ok(0));
}
