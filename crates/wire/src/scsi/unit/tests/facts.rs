//! Tests of INQUIRY and the other descriptions of a unit.

use super::*;

/// Standard data, and the same cut to every room from nothing on.
#[test]
fn inquiry_describes_a_disk() {
    let whole = data(&disk(), &[0x12, 0, 0, 2, 0, 0]);
    assert_eq!(whole.len(), 96);
    assert_eq!(whole[..8], [0, 0, 6, 0x12, 91, 0x18, 0, 2]);
    assert_eq!(&whole[8..36], b"WEIR    DISK            0001");
    assert_eq!(whole[58..66], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60]);
    for room in 0..=255 {
        let cut = data(&disk(), &[0x12, 0, 0, 0, room, 0]);
        assert_eq!(cut, whole[..96.min(usize::from(room))]);
    }
    assert_eq!(code(run(&disk(), &[0x12, 0, 0x80, 0, 96, 0])), (5, 0x24, 0));
    assert_eq!(data(&full(), &[0x12, 0, 0, 2, 0, 0])[1], 0x80, "RMB");
}

fn page(disk: &DiskInfo, page: u8) -> Vec<u8> {
    data(disk, &[0x12, 1, page, 1, 0, 0])
}

/// Every page that is listed can be read, says its own code and length, and the list is sorted.
#[test]
fn listed_pages_can_be_read() {
    for (disk, count) in [(disk(), 8), (thin(), 9)] {
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
    assert_eq!(code(run(&disk(), &[0x12, 1, 0xb9, 0, 255, 0])), (5, 0x24, 0));
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
            (0x51, 0x95, vec![0, 0, 0, 1]),
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
    assert_eq!(thick[4..12], [1, 255, 0, 8, 0, 0, 8, 0], "with a limit comes WSNZ");
    let unlimited = DiskInfo { max_write_same_blocks: 0, ..disk() };
    assert_eq!(page(&unlimited, 0xb0)[4], 0);
    assert_eq!(thick[20..36], [0; 16], "nothing can be deallocated");
    assert_eq!(thick[36..44], 65_536_u64.to_be_bytes());
    let thin_page = page(&thin(), 0xb0);
    assert_eq!(thin_page[20..32], [0, 0x10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 8]);
    assert_eq!(thin_page[32..36], [0x80, 0, 0, 0]);
    assert_eq!(thin_page[44..], [0; 20], "no WRITE ATOMIC");
    let atomic = page(&full(), 0xb0);
    assert_eq!(atomic[44..], [0, 0, 1, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(page(&thin(), 0xb1)[4..8], [0, 1, 0, 0]);
    assert_eq!(page(&full(), 0xb1)[7], 0x40, "WABEREQ");
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
    assert_eq!(changeable[4..8], [0x08, 18, 0x04, 0]);
    assert!(changeable[7..].iter().all(|&byte| byte == 0));
    let changeable = data(&disk(), &[0x1a, 8, 0x4a, 0, 255, 0]);
    assert_eq!(changeable[4..], [0x0a, 10, 0x04, 0, 0x08, 0, 0, 0, 0, 0, 0, 0]);
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

/// The power-on condition comes once, and REQUEST SENSE fetches it as data.
#[test]
fn attention_comes_first() {
    let mut unit = Unit::new(disk());
    let mut attention = UnitAttention::new();
    let mut send = |attention: &mut UnitAttention, bytes: &[u8]| {
        unit.execute(&nexus("a"), &PORT, attention, &padded(bytes))
    };
    assert!(send(&mut attention, &[0x12, 0, 0, 0, 96]).is_ok());
    assert_eq!(check(send(&mut attention, &[0xff])), Sense::POWER_ON_OR_RESET);
    assert!(is_done(&send(&mut attention, &[0])));

    attention.raise(Sense::CAPACITY_CHANGED);
    let sense = bytes_of(send(&mut attention, &[0x03, 0, 0, 0, 252]));
    assert_eq!((sense[2], sense[12], sense[13]), (6, 0x2a, 9));
    let sense = bytes_of(send(&mut attention, &[0x03, 1, 0, 0, 252]));
    assert_eq!(sense, [0x72, 0, 0, 0, 0, 0, 0, 0]);
}

/// The three pages that are the same for every disk, but for the cache.
#[test]
fn pages_of_a_kind_are_told() {
    let extended = page(&disk(), 0x86);
    assert_eq!((extended.len(), extended[5], extended[6], extended[13]), (64, 3, 1, 40));
    assert_eq!(page(&DiskInfo::default(), 0x86)[6], 0);
    assert_eq!(page(&disk(), 0x87)[4..], [0x3f, 0xff, 0, 0]);
    let ports = page(&disk(), 0x88);
    assert_eq!(ports[4..16], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40]);
    assert_eq!(ports[16..20], [0x53, 0x98, 0, 36]);
    assert_eq!(&ports[20..55], b"iqn.2026-01.test.weir:disk,t,0x0001");
}

/// One group with one port, and the functions that there are; both in two formats.
#[test]
fn ports_and_functions_are_told() {
    let ask = |bytes: &[u8]| data(&disk(), bytes);
    let groups = ask(&[0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(groups, [0, 0, 0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]);
    let extended = ask(&[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!(extended[..8], [0, 0, 0, 16, 0x10, 0, 0, 0]);
    assert_eq!(extended[8..], groups[4..]);
    assert_eq!(ask(&[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 1, 0]), [0xda, 0, 0, 0]);
    let extended = ask(&[0xa3, 0x0d, 0x80, 0, 0, 0, 0, 0, 1, 0]);
    assert_eq!((extended.len(), &extended[..4]), (16, &[0xda, 0, 0, 12][..]));
    assert_eq!(code(run(&disk(), &[0xa3, 0x0d, 0, 0, 0, 0, 0, 0, 0, 3])), (5, 0x24, 0));
}

/// There are no defects.
#[test]
fn defects_are_none() {
    assert_eq!(data(&disk(), &[0x37, 0, 0x18, 0, 0, 0, 0, 0, 32]), [0, 0x18, 0, 0]);
    let long = data(&disk(), &[0xb7, 0x0d, 0, 0, 0, 0, 0, 0, 0, 32]);
    assert_eq!(long, [0, 0x0d, 0, 0, 0, 0, 0, 0]);
}

/// A unit that does not exist says so in four different ways.
#[test]
fn an_absent_unit_says_so() {
    let absent = |bytes: &[u8]| execute_absent(&padded(bytes), &[0, 1]).map_err(Refusal::Check);
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
