//! A disk seen through its CDBs.

use super::*;
use crate::scsi::cdb::Compare;

const PORT: Port<'_> =
    Port { iqn: "iqn.2026-01.test.weir:disk", portal_group: 1, relative: 1, units: &[0, 1] };

fn disk() -> DiskInfo {
    DiskInfo {
        blocks: 131_072,
        serial: "weir-0001".to_owned(),
        id: 0xf123_4567_89ab_cdef,
        write_cache: true,
        max_transfer_blocks: 2048,
        max_write_same_blocks: 65_536,
        ..DiskInfo::default()
    }
}

fn thin() -> DiskInfo {
    DiskInfo { thin: true, ..disk() }
}

fn run(disk: &DiskInfo, bytes: &[u8]) -> Result<Action, Sense> {
    let mut cdb = [0; 16];
    cdb[..bytes.len()].copy_from_slice(bytes);
    let mut attention = UnitAttention::new();
    attention.take();
    disk.execute(&cdb, &PORT, &mut attention)
}

fn data(disk: &DiskInfo, bytes: &[u8]) -> Vec<u8> {
    match run(disk, bytes) {
        Ok(Action::Data(data)) => data,
        other => panic!("data expected: {other:?}"),
    }
}

fn code(result: Result<Action, Sense>) -> (u8, u8, u8) {
    let sense = result.unwrap_err();
    (sense.key as u8, sense.asc, sense.ascq)
}

fn media(disk: &DiskInfo, bytes: &[u8]) -> Result<(u64, u64), (u8, u8)> {
    match run(disk, bytes) {
        Ok(Action::Media(media)) => Ok((media.lba, media.blocks)),
        Err(sense) => Err((sense.asc, sense.ascq)),
        other => panic!("a media command expected: {other:?}"),
    }
}

/// Standard data, and the same cut to every room from nothing on.
#[test]
fn inquiry_describes_a_disk() {
    let whole = data(&disk(), &[0x12, 0, 0, 2, 0, 0]);
    assert_eq!(whole.len(), 96);
    assert_eq!(whole[..8], [0, 0, 6, 0x12, 91, 0, 0, 2]);
    assert_eq!(&whole[8..36], b"WEIR    DISK            0001");
    assert_eq!(whole[58..66], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60]);
    for room in 0..=255 {
        let cut = data(&disk(), &[0x12, 0, 0, 0, room, 0]);
        assert_eq!(cut, whole[..96.min(usize::from(room))]);
    }
    assert_eq!(code(run(&disk(), &[0x12, 0, 0x80, 0, 96, 0])), (5, 0x24, 0));
}

fn page(disk: &DiskInfo, page: u8) -> Vec<u8> {
    data(disk, &[0x12, 1, page, 1, 0, 0])
}

/// Every page that is listed can be read, says its own code and length, and the list is sorted.
#[test]
fn listed_pages_can_be_read() {
    for (disk, count) in [(disk(), 5), (thin(), 6)] {
        let list = page(&disk, 0);
        assert_eq!(usize::from(list[3]), count);
        assert!(list[4..].is_sorted());
        for &listed in &list[4..] {
            let page = page(&disk, listed);
            assert_eq!(page[1], listed);
            assert_eq!(usize::from(u16::from_be_bytes([page[2], page[3]])), page.len() - 4);
        }
    }
    assert_eq!(code(run(&disk(), &[0x12, 1, 0xb2, 0, 255, 0])), (5, 0x24, 0));
    assert_eq!(code(run(&disk(), &[0x12, 1, 0x86, 0, 255, 0])), (5, 0x24, 0));
    assert_eq!(page(&disk(), 0x80)[4..], *b"weir-0001");
}

/// The designators of page 83h, taken apart.
#[test]
fn the_disk_has_names() {
    let page = page(&disk(), 0x83);
    let mut rest = &page[4..];
    let mut seen = Vec::new();
    while let [code, flags, _, length, tail @ ..] = rest {
        let (body, next) = tail.split_at(usize::from(*length));
        seen.push((*code, *flags, body.to_vec()));
        rest = next;
    }
    let string = |text: &str| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
        bytes
    };
    assert_eq!(
        seen,
        [
            (0x01, 0x03, vec![0x31, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
            (0x02, 0x01, b"WEIR    weir-0001".to_vec()),
            (0x51, 0x94, vec![0, 0, 0, 1]),
            (0x53, 0x98, string("iqn.2026-01.test.weir:disk,t,0x0001")),
            (0x53, 0xa8, string("iqn.2026-01.test.weir:disk")),
        ]
    );
}

/// Limits and provisioning, thick and thin.
#[test]
fn limits_are_published() {
    let thick = page(&disk(), 0xb0);
    assert_eq!(thick.len(), 64);
    assert_eq!(thick[4..12], [1, 0, 0, 8, 0, 0, 8, 0], "with a limit comes WSNZ");
    let unlimited = DiskInfo { max_write_same_blocks: 0, ..disk() };
    assert_eq!(page(&unlimited, 0xb0)[4], 0);
    assert_eq!(thick[20..36], [0; 16], "nothing can be deallocated");
    assert_eq!(thick[36..44], 65_536_u64.to_be_bytes());
    let thin_page = page(&thin(), 0xb0);
    assert_eq!(thin_page[20..32], [0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8]);
    assert_eq!(page(&thin(), 0xb1)[4..6], [0, 1]);
    assert_eq!(page(&thin(), 0xb2)[4..], [0, 0xe4, 2, 0]);
}

/// Both capacities, small, large and thin.
#[test]
fn capacity_is_told() {
    assert_eq!(data(&disk(), &[0x25]), [0, 1, 0xff, 0xff, 0, 0, 2, 0]);
    let long = [0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    let huge = DiskInfo { blocks: 1 << 33, block_size: 4096, ..thin() };
    assert_eq!(data(&huge, &[0x25]), [0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0]);
    let told = data(&huge, &long);
    assert_eq!(told[..16], [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x10, 0, 0, 3, 0xc0, 0]);
    assert_eq!(data(&disk(), &long)[14], 0);
    let mut short = long;
    short[13] = 12;
    assert_eq!(data(&huge, &short).len(), 12);
}

/// Mode pages: one, all, changeable, saved, with and without descriptors, long and short.
#[test]
fn mode_pages_are_told() {
    let caching = data(&disk(), &[0x1a, 0, 0x08, 0, 255, 0]);
    assert_eq!(caching[..4], [31, 0, 0x10, 8]);
    assert_eq!(caching[4..12], [0, 2, 0, 0, 0, 0, 2, 0]);
    assert_eq!(caching[12..15], [0x08, 18, 0x04]);
    let all = data(&disk(), &[0x1a, 8, 0x3f, 0xff, 255, 0]);
    assert_eq!(all[..4], [47 - 4 + 4, 0, 0x10, 0]);
    assert_eq!(all.len(), 48);
    assert_eq!((all[4], all[24], all[36]), (0x08, 0x0a, 0x1c));
    let changeable = data(&disk(), &[0x1a, 8, 0x48, 0, 255, 0]);
    assert!(changeable[6..].iter().all(|&byte| byte == 0));
    assert_eq!(data(&disk(), &[0x1a, 0, 0x3f, 0, 4, 0]).len(), 4);

    let protected = DiskInfo { read_only: true, write_cache: false, ..disk() };
    let told = data(&protected, &[0x5a, 0x10, 0x88, 0, 0, 0, 0, 1, 0, 0]);
    assert_eq!(told[..8], [0, 42, 0, 0x90, 1, 0, 0, 16]);
    assert_eq!(told[8..24], [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0]);
    assert_eq!(told[24..27], [0x08, 18, 0]);

    assert_eq!(code(run(&disk(), &[0x1a, 0, 0xc8, 0, 255, 0])), (5, 0x39, 0));
    assert_eq!(code(run(&disk(), &[0x1a, 0, 0x02, 0, 255, 0])), (5, 0x24, 0));
    assert_eq!(code(run(&disk(), &[0x1a, 0, 0x08, 1, 255, 0])), (5, 0x24, 0));
}

/// Ranges: inside, at the end, over the end, over the arithmetic.
#[test]
fn ranges_are_checked() {
    let disk = disk();
    let read10 = |lba: u32, blocks: u16| {
        let (lba, blocks) = (lba.to_be_bytes(), blocks.to_be_bytes());
        [0x28, 0, lba[0], lba[1], lba[2], lba[3], 0, blocks[0], blocks[1], 0]
    };
    let out = Err((0x21, 0));
    assert_eq!(media(&disk, &read10(131_071, 1)), Ok((131_071, 1)));
    assert_eq!(media(&disk, &read10(131_072, 0)), Ok((131_072, 0)));
    assert_eq!(media(&disk, &read10(131_073, 0)), out);
    assert_eq!(media(&disk, &read10(131_071, 2)), out);
    assert_eq!(media(&disk, &read10(u32::MAX, 1)), out);
    assert_eq!(media(&disk, &read10(0, 2048)), Ok((0, 2048)));
    assert_eq!(media(&disk, &read10(0, 2049)), Err((0x24, 0)));
    let mut read16 = [0xff; 16];
    (read16[0], read16[1], read16[14], read16[15]) = (0x88, 0, 0, 0);
    assert_eq!(media(&disk, &read16), out);
}

/// Zero blocks means "to the end" for flushing, and for patterns of a disk without a limit.
#[test]
fn to_the_end_is_resolved() {
    let disk = DiskInfo { max_write_same_blocks: 0, ..disk() };
    assert_eq!(media(&disk, &[0x35]), Ok((0, 131_072)));
    assert_eq!(media(&disk, &[0x35, 0, 0, 0, 1, 0]), Ok((256, 130_816)));
    assert_eq!(media(&disk, &[0x41, 0, 0, 1, 0, 0]), Ok((65_536, 65_536)));
    let limited = DiskInfo { max_write_same_blocks: 65_536, ..disk.clone() };
    assert_eq!(media(&limited, &[0x41, 0, 0, 1, 0, 0]), Err((0x24, 0)));
    assert_eq!(media(&limited, &[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]), Err((0x24, 0)));
    assert_eq!(media(&disk, &[0x41, 0, 0, 2, 0, 1]), Err((0x21, 0)));
    assert_eq!(media(&disk, &[0x2f, 0, 0, 0, 0, 0]), Ok((0, 0)));
}

/// A read-only disk refuses what writes and nothing else.
#[test]
fn write_protection_holds() {
    let disk = DiskInfo { read_only: true, ..thin() };
    for bytes in [&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0][..], &[0x41], &[0x42], &[0x0a, 0, 0, 0, 1, 0]]
    {
        assert_eq!(code(run(&disk, bytes)), (7, 0x27, 0), "{bytes:02x?}");
    }
    let verify = run(&disk, &[0x2f, 2, 0, 0, 0, 0, 0, 0, 1, 0]);
    let Ok(Action::Media(verify)) = verify else { panic!("{verify:?}") };
    assert_eq!(verify.op, MediaOp::Verify(Compare::Blocks));
    assert!(run(&disk, &[0x35]).is_ok());
}

/// The power-on condition comes once, and REQUEST SENSE fetches it as data.
#[test]
fn attention_comes_first() {
    let disk = disk();
    let mut attention = UnitAttention::new();
    let mut inquiry = [0; 16];
    inquiry[..5].copy_from_slice(&[0x12, 0, 0, 0, 96]);
    assert!(disk.execute(&inquiry, &PORT, &mut attention).is_ok());
    let ready = [0; 16];
    let first = disk.execute(&ready, &PORT, &mut attention);
    assert_eq!(first, Err(Sense::POWER_ON_OR_RESET));
    assert_eq!(disk.execute(&ready, &PORT, &mut attention), Ok(Action::Done));

    attention.raise(Sense::CAPACITY_CHANGED);
    let mut request = [0; 16];
    (request[0], request[4]) = (0x03, 252);
    let Ok(Action::Data(sense)) = disk.execute(&request, &PORT, &mut attention) else {
        panic!("sense data expected");
    };
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x2a, 9));
    request[1] = 1;
    let Ok(Action::Data(sense)) = disk.execute(&request, &PORT, &mut attention) else {
        panic!("sense data expected");
    };
    assert_eq!(sense, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

/// A unit that does not exist says so in four different ways.
#[test]
fn an_absent_unit_says_so() {
    let absent = |bytes: &[u8]| {
        let mut cdb = [0; 16];
        cdb[..bytes.len()].copy_from_slice(bytes);
        execute_absent(&cdb, &[0, 1])
    };
    let Ok(Action::Data(inquiry)) = absent(&[0x12, 0, 0, 0, 36, 0]) else {
        panic!("inquiry data expected");
    };
    assert_eq!((inquiry[0], inquiry.len()), (0x7f, 36));
    let Ok(Action::Data(list)) = absent(&[0xa0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]) else {
        panic!("a list expected");
    };
    assert_eq!(list.len(), 24);
    let Ok(Action::Data(sense)) = absent(&[0x03, 0, 0, 0, 18, 0]) else {
        panic!("sense data expected");
    };
    assert_eq!((sense[2], sense[12]), (5, 0x25));
    for bytes in [&[0x00][..], &[0x28], &[0x12, 1, 0, 0, 36], &[0xff]] {
        assert_eq!(code(absent(bytes)), (5, 0x25, 0), "{bytes:02x?}");
    }
}

/// Any CDB is answered without a panic, and what goes to the medium lies within it.
#[test]
fn any_cdb_is_survived() {
    use proptest::prelude::*;

    let disk = thin();
    let opcodes = prop::sample::select(vec![
        0x00_u8, 0x03, 0x08, 0x0a, 0x12, 0x1a, 0x1b, 0x25, 0x28, 0x2a, 0x2f, 0x35, 0x41, 0x42,
        0x5a, 0x88, 0x8a, 0x8f, 0x91, 0x93, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xaf, 0xff,
    ]);
    // Mostly zeros, so that many get through.
    let byte = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    let cdbs = (opcodes, prop::collection::vec(byte, 15), any::<bool>());
    proptest!(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() },
        |((opcode, rest, absent) in cdbs)| {
        let mut cdb = [opcode; 16];
        cdb[1..].copy_from_slice(&rest);
        let mut attention = UnitAttention::new();
        attention.take();
        let result = if absent {
            execute_absent(&cdb, PORT.units)
        } else {
            disk.execute(&cdb, &PORT, &mut attention)
        };
        if let Ok(Action::Media(media)) = result {
            prop_assert!(media.lba + media.blocks <= disk.blocks);
            let _ = media.check_data_out(u32::MAX, disk.block_size);
        }
    });
}

/// Any parameter list is answered without a panic, and its extents lie within the disk.
#[test]
fn any_unmap_list_is_survived() {
    use proptest::prelude::*;

    let disk = thin();
    let byte = prop_oneof![3 => Just(0_u8), 1 => 0..64_u8];
    proptest!(|(list in prop::collection::vec(byte, 0..100))| {
        if let Ok(extents) = crate::scsi::unmap::extents(&list, &disk) {
            for extent in extents {
                prop_assert!(extent.lba + u64::from(extent.blocks) <= disk.blocks);
            }
        }
    });
}
