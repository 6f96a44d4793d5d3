//! Tests of commands that reach the medium, and of those that are refused.

use super::*;

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
    for bytes in [
        &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0][..],
        &[0x0a, 0, 0, 0, 1, 0],
        &[0x2e],
        &[0x41],
        &[0x42],
        &[0x89],
        &[0x8b],
        &[0x8e],
        &[0xae],
    ] {
        assert_eq!(code(run(&disk, bytes)), (7, 0x27, 0), "{bytes:02x?}");
    }
    let verify = run(&disk, &[0x2f, 2, 0, 0, 0, 0, 0, 0, 1, 0]);
    let Ok(Action::Media(verify)) = verify else { panic!("{verify:?}") };
    assert_eq!(verify.op, MediaOp::Verify(Compare::Blocks));
    assert!(run(&disk, &[0x35]).is_ok());
    // The missing medium of thin provisioning comes second.
    let thick = DiskInfo { thin: false, ..disk };
    let same = [0x93, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    assert_eq!(code(run(&thick, &same)), (7, 0x27, 0));
    assert_eq!(code(run(&DiskInfo { read_only: false, ..thick }, &same)), (5, 0x24, 0));
}

/// The commands that read and write, or write and read: what they are, how much data they take, and
/// whether they need a buffer for the medium.
#[test]
fn mixed_commands_are_read() {
    let at = |opcode: u8, flags: u8, blocks: u8| match opcode {
        0x2e => vec![opcode, flags, 0, 0, 0, 7, 0, 0, blocks],
        0xae => vec![opcode, flags, 0, 0, 0, 7, 0, 0, 0, blocks],
        _ => vec![opcode, flags, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, blocks],
    };
    let verify = MediaOp::WriteVerify;
    for (opcode, flags, op, length, fua) in [
        (0x2e, 0x00, verify(Compare::Nothing), 1024, true),
        (0x2e, 0x12, verify(Compare::Blocks), 1024, true),
        (0xae, 0x02, verify(Compare::Blocks), 1024, true),
        (0x8e, 0x02, verify(Compare::Blocks), 1024, true),
        (0x8e, 0x10, verify(Compare::Nothing), 1024, true),
        (0x89, 0x08, MediaOp::CompareAndWrite, 2048, true),
        (0x89, 0x10, MediaOp::CompareAndWrite, 2048, false),
        (0x8b, 0x18, MediaOp::OrWrite, 1024, true),
        (0x8b, 0x00, MediaOp::OrWrite, 1024, false),
    ] {
        let Ok(Action::Media(media)) = run(&disk(), &at(opcode, flags, 2)) else {
            panic!("{opcode:#04x} is a media command");
        };
        let expected = Media { op, lba: 7, blocks: 2, fua, dpo: flags & 0x10 != 0 };
        assert_eq!(media, expected, "{opcode:#04x}");
        assert_eq!(media.data_out_length(512), length);
        assert!(media.is_write() && media.needs_medium());
    }
    for opcode in [0x2e, 0x8e, 0xae] {
        assert_eq!(code(run(&disk(), &at(opcode, 0x04, 1))), (5, 0x24, 0), "BYTCHK 2");
        assert_eq!(code(run(&disk(), &at(opcode, 0x06, 1))), (5, 0x24, 0), "BYTCHK 3");
    }
    let few = DiskInfo { max_compare_and_write_blocks: 4, ..disk() };
    assert_eq!(media(&few, &at(0x89, 0, 4)), Ok((7, 4)));
    assert_eq!(media(&few, &at(0x89, 0, 5)), Err((0x24, 0)));
    let none = DiskInfo { max_compare_and_write_blocks: 0, ..disk() };
    assert_eq!(media(&none, &at(0x89, 0, 1)), Err((0x20, 0)));
}

/// An atomic write lies on physical blocks, is short enough and, before all that, within the disk.
#[test]
fn atomic_writes_are_whole() {
    let disk = full();
    let write = |lba: u64, blocks: u16| {
        let mut cdb = [0; 16];
        cdb[0] = 0x9c;
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[12..14].copy_from_slice(&blocks.to_be_bytes());
        cdb
    };
    assert_eq!(media(&disk, &write(8, 256)), Ok((8, 256)));
    assert_eq!(media(&disk, &write(0, 0)), Ok((0, 0)));
    for (lba, blocks, sense) in [
        (8, 264, 0x24),
        (1, 8, 0x24),
        (0, 1, 0x24),
        (131_064, 16, 0x21),
        (131_072 - 256, 512, 0x21),
        (u64::MAX - 7, 8, 0x21),
        (1 << 63, 0, 0x21),
    ] {
        assert_eq!(media(&disk, &write(lba, blocks)), Err((sense, 0)), "{lba} {blocks}");
    }
    let mut boundary = write(0, 8);
    boundary[11] = 8;
    assert_eq!(media(&disk, &boundary), Err((0x24, 0)));
    assert_eq!(media(&thin(), &write(0, 8)), Err((0x20, 0)));
    let fine = DiskInfo { physical_block_exponent: 0, ..disk };
    assert_eq!(media(&fine, &write(1, 3)), Ok((1, 3)));
}

/// Fetching ahead is GOOD within the disk and refused outside of it.
#[test]
fn prefetching_is_checked() {
    for bytes in [
        &[0x34, 2, 0, 1, 0xff, 0xff, 3, 0, 1][..],
        &[0x34, 0, 0, 2, 0, 0],
        &[0x90, 2, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 1, 3],
        &[0x90],
    ] {
        assert!(is_done(&run(&disk(), bytes)), "{bytes:02x?}");
    }
    for bytes in [
        &[0x34, 0, 0, 2, 0, 1][..],
        &[0x34, 0, 0, 1, 0xff, 0xff, 0, 0, 2],
        &[0x34, 0, 0xff, 0xff, 0xff, 0xff],
        &[0x90, 0, 0x80],
        &[0x90, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1],
    ] {
        assert_eq!(code(run(&disk(), bytes)), (5, 0x21, 0), "{bytes:02x?}");
    }
}

/// Which blocks are mapped is the shell's to say for a thin disk; of another, all are.
#[test]
fn mapping_is_asked_for() {
    let ask = |lba: u64| {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 24);
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb
    };
    let map = Action::Map { lba: 131_071, blocks: 1, allocation: 24 };
    assert_eq!(run(&thin(), &ask(131_071)), Ok(map));
    let told = data(&disk(), &ask(72));
    assert_eq!(told[..8], [0, 0, 0, 20, 0, 0, 0, 0]);
    assert_eq!(told[8..], [0, 0, 0, 0, 0, 0, 0, 72, 0, 1, 0xff, 0xb8, 0, 0, 0, 0]);
    for lba in [131_072, 131_073, 1 << 63, u64::MAX] {
        assert_eq!(code(run(&disk(), &ask(lba))), (5, 0x21, 0), "{lba}");
    }
}

/// Without a write cache every write is durable when it ends; reads and flushes are as they are.
#[test]
fn no_cache_means_durable() {
    let through = DiskInfo { write_cache: false, ..full() };
    for (bytes, fua) in [
        (&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1][..], true),
        (&[0x41, 0, 0, 0, 0, 0, 0, 0, 1], true),
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 8], true),
        (&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], true),
        (&[0x28, 0, 0, 0, 0, 0, 0, 0, 1], false),
        (&[0x35], false),
    ] {
        let Ok(Action::Media(media)) = run(&through, bytes) else { panic!("{bytes:02x?}") };
        assert_eq!(media.fua, fua, "{bytes:02x?}");
        let Ok(Action::Media(media)) = run(&full(), bytes) else { panic!("{bytes:02x?}") };
        assert!(!media.fua, "{bytes:02x?}");
    }
}

/// The table says of every media command what its operation says itself.
#[test]
fn table_and_operation_agree() {
    let features = full().features();
    for supported in crate::scsi::commands::of(features) {
        let action = supported.action().unwrap_or(0);
        let decoded = cdb::decode(&padded(&[supported.opcode(), action]), features);
        if let Ok((_, Cdb::Media(media))) = decoded {
            assert_eq!(supported.access, media.access(), "{:#04x}", supported.opcode());
            assert_eq!(supported.needs, Needs::Medium);
        }
    }
}

/// What comes in another way meets the same checks.
#[test]
fn others_are_admitted_alike() {
    let write = |lba, blocks| Media { op: MediaOp::Write, lba, blocks, fua: false, dpo: false };
    let mut unit = Unit::new(full());
    assert_eq!(unit.admit(None, write(0, 1)), Ok(write(0, 1)));
    assert_eq!(code(unit.admit(None, write(131_072, 1))), (5, 0x21, 0));
    let eject = send(&mut unit, "a", &[0x1b, 0, 0, 0, 0x06]);
    assert!(is_done(&eject));
    assert_eq!(code(unit.admit(None, write(0, 1))), (2, 0x3a, 0));
    let protected = Unit::new(DiskInfo { read_only: true, write_cache: false, ..disk() });
    assert_eq!(
        code(protected.admit(Some(RegistrantRef::Scsi(&nexus("a"))), write(0, 1))),
        (7, 0x27, 0)
    );
}

/// Any CDB is answered without a panic, and what goes to the medium lies within it.
#[test]
fn any_cdb_is_survived() {
    use proptest::prelude::*;

    let disk = full();
    let opcodes = prop::sample::select(vec![
        0x00_u8, 0x03, 0x08, 0x0a, 0x12, 0x15, 0x16, 0x17, 0x1a, 0x1b, 0x1e, 0x25, 0x28, 0x2a,
        0x2e, 0x2f, 0x34, 0x35, 0x37, 0x41, 0x42, 0x48, 0x55, 0x5a, 0x5e, 0x5f, 0x83, 0x84, 0x88,
        0x89, 0x8a, 0x8b, 0x8e, 0x8f, 0x90, 0x91, 0x93, 0x9c, 0x9e, 0xa0, 0xa3, 0xa8, 0xaa, 0xae,
        0xaf, 0xb7, 0xff,
    ]);
    // Mostly zeros, so that many get through.
    let byte = prop_oneof![3 => Just(0_u8), 1 => any::<u8>()];
    let cdbs = (opcodes, prop::collection::vec(byte, 15), any::<bool>());
    proptest!(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() },
        |((opcode, rest, absent) in cdbs, list in prop::collection::vec(any::<u8>(), 0..64))| {
        let mut cdb = [opcode; 16];
        cdb[1..].copy_from_slice(&rest);
        let mut unit = Unit::new(disk.clone());
        let result = if absent {
            execute_absent(&cdb, PORT.units).map_err(Refusal::Check)
        } else {
            unit.execute(&nexus("a"), &PORT, &mut quiet(), &cdb)
        };
        match result {
            Ok(Action::Media(media)) => {
                prop_assert!(media.lba + media.blocks <= disk.blocks);
                let _ = media.check_data_out(u32::MAX, disk.block_size);
            }
            Ok(Action::Parameters(announced)) => {
                let mut data = list.clone();
                data.resize(announced.length() as usize, 0);
                let _ = unit.parameters(&nexus("a"), announced, &data);
            }
            _ => {}
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
