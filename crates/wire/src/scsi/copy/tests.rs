use proptest::prelude::*;

use super::*;
use crate::scsi::Sense;
use crate::scsi::disk::DiskInfo;
use crate::scsi::unmap::Extent;

/// A disk with blocks of 512 bytes.
fn small() -> DiskInfo {
    DiskInfo {
        id: 0x0abc_def0_1234_5678,
        serial: String::from("SMALL"),
        blocks: 1 << 20,
        ..DiskInfo::default()
    }
}

/// A disk with blocks of 4096 bytes.
fn large() -> DiskInfo {
    DiskInfo {
        id: 7,
        serial: String::from("LARGE"),
        block_size: 4096,
        blocks: 1 << 18,
        ..DiskInfo::default()
    }
}

/// A disk by its NAA name.
fn naa(disk: &DiskInfo) -> [u8; 32] {
    let mut one = [0; 32];
    one[0] = 0xe4;
    one[4..8].copy_from_slice(&[1, 3, 0, 8]);
    one[8..16].copy_from_slice(&(3 << 60 | disk.id).to_be_bytes());
    one[28..].copy_from_slice(&disk.block_size.to_be_bytes());
    one
}

/// A disk by its vendor and serial number.
fn vendor(disk: &DiskInfo) -> [u8; 32] {
    let mut one = naa(disk);
    let name = format!("{:8}{}", disk.vendor, disk.serial);
    one[4..8].copy_from_slice(&[2, 1, 0, name.len() as u8]);
    one[8..8 + name.len()].copy_from_slice(name.as_bytes());
    one
}

const SEGMENT: Segment = Segment {
    source: 0,
    destination: 0,
    counts_destination: false,
    blocks: 2048,
    source_lba: 0,
    destination_lba: 4096,
};

fn encode(segment: &Segment) -> [u8; 28] {
    let mut one = [0; 28];
    one[..4].copy_from_slice(&[0x02, u8::from(segment.counts_destination) << 1, 0, 24]);
    one[4..6].copy_from_slice(&segment.source.to_be_bytes());
    one[6..8].copy_from_slice(&segment.destination.to_be_bytes());
    one[10..12].copy_from_slice(&segment.blocks.to_be_bytes());
    one[12..20].copy_from_slice(&segment.source_lba.to_be_bytes());
    one[20..].copy_from_slice(&segment.destination_lba.to_be_bytes());
    one
}

fn list(targets: &[[u8; 32]], segments: &[Segment]) -> Vec<u8> {
    let mut list = vec![0; 16];
    list[0] = 1;
    list[2..4].copy_from_slice(&(targets.len() as u16 * 32).to_be_bytes());
    list[8..12].copy_from_slice(&(segments.len() as u32 * 28).to_be_bytes());
    list.extend(targets.as_flattened());
    list.extend(segments.iter().flat_map(encode));
    list
}

fn plan(targets: &[[u8; 32]], segments: &[Segment]) -> Plan {
    parse(&list(targets, segments)).unwrap()
}

/// A whole list is read, and an empty one asks for nothing.
#[test]
fn good_lists_are_read() {
    let other = Segment {
        source: 1,
        destination: Segment::OWN,
        counts_destination: true,
        blocks: 0x0102,
        source_lba: 0x0304_0506_0708_090a,
        destination_lba: u64::MAX,
    };
    let plan = plan(&[naa(&small()), naa(&large())], &[SEGMENT, other]);
    assert_eq!((plan.list_id, plan.tracked), (1, true));
    assert_eq!(plan.targets.iter().map(|one| one.block_size).collect::<Vec<_>>(), [512, 4096]);
    assert_eq!(plan.segments, [SEGMENT, other]);
    assert_eq!(parse(&[]), Ok(Plan::default()));
}

/// The largest list that the operating parameters allow is taken.
#[test]
fn the_largest_list_passes() {
    let list = list(&[naa(&small()); TARGETS_MAX], &[SEGMENT; SEGMENTS_MAX]);
    assert_eq!(list.len(), LIST_LENGTH_MAX);
    assert_eq!(parse(&list).map(|plan| plan.segments.len()), Ok(SEGMENTS_MAX));
}

/// What a copy does not need is ignored: STR, PRIORITY, LU ID TYPE, the obsolete NUL bit, the initiator
/// port, CAT and PAD.
#[test]
fn what_does_not_matter_is_ignored() {
    let expected = plan(&[naa(&small())], &[SEGMENT]);
    for (at, value) in [(1, 0x27), (17, 0xe0), (18, 1), (19, 1), (44, 0x04), (49, 0x01)] {
        let mut list = list(&[naa(&small())], &[SEGMENT]);
        list[at] |= value;
        assert_eq!(parse(&list), Ok(expected.clone()), "{at}");
    }
}

/// A list identifier is tracked unless the list says that it is none.
#[test]
fn identifiers_are_optional() {
    for (usage, id, expected) in [
        (0x00, 9, Ok((9, true))),
        (0x10, 9, Ok((9, true))),
        (0x18, 0, Ok((0, false))),
        (0x18, 9, Err(Sense::invalid_parameter_field(0))),
        (0x08, 9, Err(Sense::invalid_parameter_field(1))),
    ] {
        let mut list = list(&[naa(&small())], &[SEGMENT]);
        list[..2].copy_from_slice(&[id, usage]);
        assert_eq!(parse(&list).map(|plan| (plan.list_id, plan.tracked)), expected);
    }
}

/// Each wrong byte has its own code and is pointed at.
#[test]
fn wrong_fields_are_refused() {
    let good = list(&[naa(&small())], &[SEGMENT]);
    let field = Sense::invalid_parameter_field;
    for (at, value, expected) in [
        (1, 0x40, field(1)),
        (4, 1, field(4)),
        (7, 1, field(4)),
        (3, 31, field(2)),
        (11, 27, field(8)),
        (15, 1, Sense::INLINE_DATA_LENGTH_EXCEEDED.at_parameter(12)),
        (16, 0xe0, Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE.at_parameter(16)),
        (16, 0xff, Sense::UNSUPPORTED_TARGET_DESCRIPTOR_TYPE_CODE.at_parameter(16)),
        (17, 0x01, field(17)),
        (23, 21, field(23)),
        (48, 0x03, Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE.at_parameter(48)),
        (48, 0x0d, Sense::UNSUPPORTED_SEGMENT_DESCRIPTOR_TYPE_CODE.at_parameter(48)),
        (49, 0x04, field(49)),
        (50, 1, field(50)),
        (51, 20, field(50)),
        (56, 1, field(56)),
        (57, 1, field(56)),
    ] {
        let mut wrong = good.clone();
        wrong[at] = value;
        assert_eq!(parse(&wrong), Err(expected), "byte {at}");
    }
}

/// A type code that is not supported is named even where its descriptor is shorter.
#[test]
fn a_short_segment_is_named_by_its_type() {
    let mut list = list(&[naa(&small())], &[SEGMENT]);
    list.truncate(48 + 20);
    list[11] = 20;
    list[48] = 0x03;
    assert_eq!(parse(&list).unwrap_err().ascq, 0x09);
}

/// A list that ends too early or is too long in all has a wrong length; else the limits of both kinds of
/// descriptors are named.
#[test]
fn limits_are_named() {
    let code = |targets: usize, segments: usize| {
        let list = list(&vec![naa(&small()); targets], &vec![SEGMENT; segments]);
        parse(&list).map_err(|sense| (sense.key as u8, sense.asc, sense.ascq)).map(drop)
    };
    assert_eq!(code(TARGETS_MAX + 1, 1), Err((5, 0x26, 0x06)));
    assert_eq!(code(1, SEGMENTS_MAX + 1), Err((5, 0x26, 0x08)));
    assert_eq!(code(TARGETS_MAX + 1, SEGMENTS_MAX + 1), Err((5, 0x1a, 0x00)));
    let whole = list(&[naa(&small())], &[SEGMENT]);
    for length in 1..whole.len() {
        assert_eq!(parse(&whole[..length]), Err(Sense::PARAMETER_LIST_LENGTH_ERROR), "{length}");
    }
    let mut long = whole;
    long.resize(LIST_LENGTH_MAX, 0);
    assert!(parse(&long).is_ok());
    long.push(0);
    assert_eq!(parse(&long), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
    long[8..12].fill(0xff);
    assert_eq!(parse(&long), Err(Sense::PARAMETER_LIST_LENGTH_ERROR));
}

/// A disk answers to both of its names, and to nothing else.
#[test]
fn disks_have_two_names() {
    let named = |one: [u8; 32]| plan(&[one], &[]).targets[0].names(&small());
    assert!(named(naa(&small())));
    assert!(named(vendor(&small())));
    assert!(!named(naa(&large())));
    assert!(!named(vendor(&large())));
    // Another code set, another type, the port instead of the unit, a part of the name, another name.
    for (at, value) in [(4, 2), (5, 2), (5, 0x13), (7, 7), (15, 0)] {
        let mut other = naa(&small());
        other[at] = value;
        assert!(!named(other), "{at}");
    }
    // The relative port identifier, which every unit shows, names none.
    let mut port = [0; 32];
    port[..12].copy_from_slice(&[0xe4, 0, 0, 0, 1, 0x14, 0, 4, 0, 0, 0, 0]);
    assert!(!named(port));
}

/// A segment within one disk, between two disks, and to the disk to which the command was sent.
#[test]
fn segments_find_their_disks() {
    let (small, large) = (small(), large());
    let disks = [&large, &small];
    let between = Segment { destination: 1, ..SEGMENT };
    let own = Segment { destination: Segment::OWN, ..SEGMENT };
    let counted = Segment { destination: 1, counts_destination: true, blocks: 3, ..SEGMENT };
    let nothing = Segment { blocks: 0, source_lba: 1 << 20, destination_lba: 0, ..SEGMENT };
    let plan = plan(&[naa(&small), vendor(&large)], &[SEGMENT, between, own, counted, nothing]);
    for (number, source, destination, from, to) in [
        (0, 1, 1, (0, 2048), (4096, 2048)),
        (1, 1, 0, (0, 2048), (4096, 256)),
        (2, 1, 0, (0, 2048), (4096, 256)),
        (3, 1, 0, (0, 24), (4096, 3)),
        (4, 1, 1, (1 << 20, 0), (0, 0)),
    ] {
        let step = Move {
            segment: number as u16,
            source,
            destination,
            from: Extent { lba: from.0, blocks: from.1 },
            to: Extent { lba: to.0, blocks: to.1 },
        };
        assert_eq!(plan.resolve(number, 0, &disks), Ok(step), "{number}");
    }
}

/// What is wrong with a segment ends the copy there: COPY ABORTED, the segment's number, and what is to
/// blame.
#[test]
fn wrong_segments_abort() {
    let (small, large) = (small(), large());
    let read_only = DiskInfo { id: 8, read_only: true, ..DiskInfo::default() };
    let absent = DiskInfo { id: 9, ..DiskInfo::default() };
    let mut mistaken = naa(&small);
    mistaken[28..].copy_from_slice(&4096_u32.to_be_bytes());
    let targets = [naa(&small), naa(&large), naa(&read_only), naa(&absent), mistaken];
    let last = small.blocks - 1;
    let at = 16 + 5 * 32 + 28;
    for (segment, code, byte) in [
        (Segment { source: 5, ..SEGMENT }, (0x08, 0x04), at + 4),
        (Segment { destination: 5, ..SEGMENT }, (0x08, 0x04), at + 6),
        (Segment { destination: 0xc000, ..SEGMENT }, (0x08, 0x04), at + 6),
        (Segment { source: 3, ..SEGMENT }, (0x08, 0x04), 16 + 3 * 32),
        (Segment { destination: 3, ..SEGMENT }, (0x08, 0x04), 16 + 3 * 32),
        (Segment { source: 4, ..SEGMENT }, (0x26, 0x00), 16 + 4 * 32 + 29),
        (
            Segment { destination: 2, blocks: 1, destination_lba: 0, ..SEGMENT },
            (0x0d, 0x01),
            16 + 2 * 32,
        ),
        (Segment { destination: 1, blocks: 9, ..SEGMENT }, (0x26, 0x0a), at + 10),
        (Segment { source: 1, blocks: u16::MAX, ..SEGMENT }, (0x26, 0x00), at + 10),
        (Segment { source_lba: last, ..SEGMENT }, (0x00, 0x00), at + 12),
        (Segment { source_lba: u64::MAX, ..SEGMENT }, (0x00, 0x00), at + 12),
        (Segment { destination_lba: last, ..SEGMENT }, (0x00, 0x00), at + 20),
    ] {
        let plan = plan(&targets, &[SEGMENT, segment]);
        let disks = [&small, &large, &read_only];
        assert!(plan.resolve(0, 0, &disks).is_ok());
        let sense = plan.resolve(1, 0, &disks).unwrap_err();
        assert_eq!((sense.key as u8, sense.segment), (0x0a, Some(1)), "{segment:?}");
        assert_eq!((sense.asc, sense.ascq), code, "{segment:?}");
        assert_eq!(sense.field.map(|field| (field.in_cdb, field.byte)), Some((false, byte)));
        assert_eq!(sense.information, None);
    }
}

/// A command that fails is blamed on its disk; what was not written is counted if anything was.
#[test]
fn failures_tell_the_residual() {
    let (small, large) = (small(), large());
    let plan = plan(&[naa(&small), naa(&large)], &[Segment { destination: 1, ..SEGMENT }]);
    let step = plan.resolve(0, 0, &[&small, &large]).unwrap();
    let failure = Sense::THIRD_PARTY_DEVICE_FAILURE.in_segment(0);
    assert_eq!(plan.failed(&step, Side::Source, 0), failure.at_parameter(16));
    let written = failure.at_parameter(48).with_information(156);
    assert_eq!(plan.failed(&step, Side::Destination, 100), written);
}

/// Only a move within one disk onto its own later part goes backwards.
#[test]
fn overlaps_go_backwards() {
    let disks = [&small()];
    for (to, expected) in [(4, false), (5, false), (6, true), (14, true), (15, false)] {
        let segment = Segment { blocks: 10, source_lba: 5, destination_lba: to, ..SEGMENT };
        let step = plan(&[naa(disks[0])], &[segment]).resolve(0, 0, &disks).unwrap();
        assert_eq!(step.from_the_end(), expected, "{to}");
        assert!(!Move { destination: 1, ..step }.from_the_end());
    }
}

const FAILED: State = State::Failed(Sense::UNREACHABLE_COPY_TARGET.in_segment(2));

/// The status of a copy in each state, in the smallest unit that has room for the count.
#[test]
fn the_status_of_a_copy() {
    for (state, segments, bytes, expected) in [
        (State::InProgress, 0, 0, [0, 0, 0, 0, 0, 0, 0, 0]),
        (State::Done, 1, 1 << 20, [1, 0, 1, 0, 0, 0x10, 0, 0]),
        (FAILED, 0x0102, u64::from(u32::MAX), [2, 1, 2, 0, 0xff, 0xff, 0xff, 0xff]),
        (State::Done, 64, 1 << 32, [1, 0, 64, 1, 0, 0x40, 0, 0]),
        (State::Done, 64, u64::MAX, [1, 0, 64, 4, 0, 0xff, 0xff, 0xff]),
    ] {
        let progress = Progress { state, segments, bytes };
        let data = receive(0x00, Some(&progress), 1024).unwrap();
        assert_eq!(data[..4], [0, 0, 0, 8]);
        assert_eq!(data[4..], expected);
    }
}

/// What is not known, or not yet, is refused; nothing is ever held, and success has no details.
#[test]
fn results_depend_on_the_state() {
    let refused = Err(Sense::invalid_cdb_field(2, None));
    let copy = |state| Progress { state, segments: 3, bytes: 0 };
    for action in [0x00, 0x01, 0x04] {
        assert_eq!(receive(action, None, 1024), refused);
    }
    for action in [0x01, 0x04] {
        assert_eq!(receive(action, Some(&copy(State::InProgress)), 1024), refused);
        assert_eq!(receive(action, Some(&copy(State::Done)), 1024), Ok(vec![0; 4]));
    }
    assert_eq!(receive(0x01, Some(&copy(FAILED)), 1024), Ok(vec![0; 4]));
    for action in [0x02, 0x05, 0x07] {
        let unknown = Err(Sense::invalid_cdb_field(1, Some(4)));
        assert_eq!(receive(action, Some(&copy(State::Done)), 1024), unknown);
    }
}

/// The details of a failure are the status and the sense data that ended the copy.
#[test]
fn the_details_of_a_failure() {
    let failed = Progress { state: FAILED, segments: 3, bytes: 0 };
    let data = receive(0x04, Some(&failed), 1024).unwrap();
    assert_eq!(data[..4], (data.len() as u32 - 4).to_be_bytes());
    assert_eq!(data[4..60], [[0; 52].as_slice(), &[0x02, 0, 0, 18]].concat());
    assert_eq!(data[60..], Sense::UNREACHABLE_COPY_TARGET.in_segment(2).fixed());
}

/// The operating parameters are the limits that lists are held to, and need no copy.
#[test]
fn operating_parameters_are_told() {
    let data = receive(0x03, None, 1024).unwrap();
    assert_eq!(data.len(), 46);
    assert_eq!(data[..8], [0, 0, 0, 42, 1, 0, 0, 0]);
    assert_eq!(data[8..20], [0, 8, 0, 64, 0, 0, 8, 0, 4, 0, 0, 0]);
    assert_eq!(data[20..34], [0; 14]);
    assert_eq!(data[34..], [0, 8, 8, 9, 0, 0, 0, 0, 0, 2, 0x02, 0xe4]);
    assert_eq!(receive(0x03, None, 5).unwrap(), [0, 0, 0, 42, 1]);
}

/// A good list with a few bytes changed, which reaches deeper than any bytes.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let good =
        list(&[naa(&small()), naa(&large())], &[SEGMENT, Segment { destination: 1, ..SEGMENT }]);
    let changes = prop::collection::vec((0..good.len(), any::<u8>()), 0..4);
    (changes, 0..=good.len()).prop_map(move |(changes, length)| {
        let mut list = good.clone();
        for (at, value) in changes {
            list[at] = value;
        }
        // Mostly whole.
        if length % 4 == 0 {
            list.truncate(length);
        }
        list
    })
}

proptest! {
    /// Whatever comes as a list, no panic, and no move that leaves its disks.
    #[test]
    fn nothing_leaves_its_disk(list in prop_oneof![prop::collection::vec(any::<u8>(), 0..200), damaged()]) {
        let (small, large) = (small(), large());
        let disks = [&small, &large];
        if let Ok(plan) = parse(&list) {
            prop_assert!(plan.targets.len() <= TARGETS_MAX && plan.segments.len() <= SEGMENTS_MAX);
            for number in 0..plan.segments.len() {
                match plan.resolve(number, 1, &disks) {
                    Ok(step) => {
                        let (from, to) = (disks[step.source], disks[step.destination]);
                        prop_assert!(from.check_range(step.from.lba, step.from.blocks.into()).is_ok());
                        prop_assert!(to.check_range(step.to.lba, step.to.blocks.into()).is_ok());
                        let bytes = step.from.blocks * from.block_size;
                        prop_assert_eq!(bytes, step.to.blocks * to.block_size);
                        prop_assert!(bytes <= SEGMENT_LENGTH_MAX);
                    }
                    Err(sense) => prop_assert_eq!(sense.key as u8, 0x0a),
                }
            }
        }
    }
}
