//! Tests of a unit's state: attentions, removal, sanitize, power.

use super::*;
use crate::scsi::sanitize::Method;

/// TEST UNIT READY.
const READY: &[u8] = &[0];
/// WRITE(10) of one block.
const WRITE: &[u8] = &[0x2a, 0, 0, 0, 0, 0, 0, 0, 1];
/// START STOP UNIT with LOEJ: without START and with.
const EJECT: &[u8] = &[0x1b, 0, 0, 0, 0x02];
const LOAD: &[u8] = &[0x1b, 0, 0, 0, 0x03];
const PREVENT: &[u8] = &[0x1e, 0, 0, 0, 1];
const ALLOW: &[u8] = &[0x1e];
/// SANITIZE: OVERWRITE with a list of eight bytes, BLOCK ERASE, EXIT FAILURE MODE.
const OVERWRITE: &[u8] = &[0x48, 0x01, 0, 0, 0, 0, 0, 0, 8];
const ERASE: &[u8] = &[0x48, 0x02];
const EXIT: &[u8] = &[0x48, 0x1f];

const NO_MEDIUM: (u8, u8, u8) = (2, 0x3a, 0);
const PREVENTED: (u8, u8, u8) = (5, 0x53, 2);
const IN_PROGRESS: (u8, u8, u8) = (2, 0x04, 0x1b);
const SANITIZE_FAILED: (u8, u8, u8) = (3, 0x31, 3);

fn mode_page(unit: &mut Unit, code: u8) -> Vec<u8> {
    bytes_of(send(unit, "a", &[0x1a, 8, code, 0, 255]))[4..].to_vec()
}

/// MODE SELECT(6) of one page that was changed by `change`.
fn select(unit: &mut Unit, code: u8, change: impl Fn(&mut [u8])) -> Result<Outcome, Refusal> {
    let mut page = mode_page(unit, code);
    change(&mut page);
    let list = [&[0; 4][..], &page].concat();
    send_list(unit, "a", &[0x15, 0x10, 0, 0, list.len() as u8], &list)
}

fn others(sense: Sense) -> Effects {
    Effects { others: Some(sense), ..Effects::default() }
}

/// A unit that is withdrawn can be looked at, and nothing can be done with its medium, for good.
#[test]
fn a_withdrawn_unit_is_of_no_use() {
    let mut unit = Unit::new(disk());
    assert!(send(&mut unit, "a", WRITE).is_ok());
    unit.withdraw();
    for _ in 0..2 {
        for command in [READY, WRITE, &[0x28, 0, 0, 0, 0, 0, 0, 0, 1], &[0x35]] {
            assert_eq!(code(send(&mut unit, "a", command)), (2, 0x04, 0x0c), "{command:?}");
        }
        assert!(send(&mut unit, "a", &[0x12, 0, 0, 0, 36]).is_ok(), "INQUIRY");
        assert_eq!(unit.ready(), Err(Sense::UNAVAILABLE));
        unit.reset();
    }
}

/// Each bit that can be changed does what it says, others hear of it, and a reset takes it back.
#[test]
fn mode_parameters_take_effect() {
    let mut unit = Unit::new(disk());
    let changed = Ok(Outcome::Done(others(Sense::MODE_PARAMETERS_CHANGED)));
    let read_far = [0x88, 0, 0xff];

    assert_eq!(select(&mut unit, 0x0a, |page| page[4] |= 0x08), changed, "SWP");
    assert_eq!(code(send(&mut unit, "a", WRITE)), (7, 0x27, 2));
    assert_eq!(bytes_of(send(&mut unit, "a", &[0x1a, 8, 0x0a, 0, 255]))[2], 0x90, "WP");
    assert_eq!(select(&mut unit, 0x0a, |_| ()), Ok(Outcome::Done(Effects::default())));
    assert_eq!(select(&mut unit, 0x0a, |page| page[4] = 0), changed);
    assert!(send(&mut unit, "a", WRITE).is_ok());

    assert_eq!(check(send(&mut unit, "b", &read_far)).encoded().0[0] & 0x7f, 0x70);
    assert_eq!(select(&mut unit, 0x0a, |page| page[2] |= 0x04), changed, "D_SENSE");
    let (bytes, length) = check(send(&mut unit, "b", &read_far)).encoded();
    assert_eq!((bytes[0], bytes[1], bytes[2], length), (0x72, 5, 0x21, 20));
    let (bytes, _) = check(select(&mut unit, 0x0a, |page| page[3] = 0)).encoded();
    assert_eq!(bytes[..3], [0x72, 5, 0x26], "parameters too");
    let mut attention = UnitAttention::new();
    let refused = unit.execute(&nexus("b"), &PORT, &mut attention, &padded(READY));
    assert_eq!(check(refused).encoded().0[0], 0x72);

    assert_eq!(select(&mut unit, 0x08, |page| page[2] = 0), changed, "WCE");
    let Ok(Action::Media(write)) = send(&mut unit, "b", WRITE) else { panic!("a write") };
    assert!(write.fua);

    unit.reset();
    assert_eq!(check(send(&mut unit, "b", &read_far)).encoded().0[0] & 0x7f, 0x70);
    assert_eq!(mode_page(&mut unit, 0x08)[2], 0x04);
    let defaults = bytes_of(send(&mut unit, "a", &[0x1a, 8, 0x8a, 0, 255]));
    assert_eq!(defaults[4..], mode_page(&mut unit, 0x0a));
}

/// What cannot be changed must be as it is, lengths must add up, and nothing is changed by halves.
#[test]
fn wrong_mode_lists_are_refused() {
    let mut unit = Unit::new(disk());
    let control = mode_page(&mut unit, 0x0a);
    let caching = mode_page(&mut unit, 0x08);
    let with = |at: usize, value: u8| {
        let mut page = control.clone();
        page[at] = value;
        page
    };
    let short = |descriptor: &[u8], pages: &[u8]| {
        [&[0, 0, 0, descriptor.len() as u8], descriptor, pages].concat()
    };
    let own = [0, 2, 0, 0, 0, 0, 2, 0];
    let zero = [0, 0, 0, 0, 0, 0, 2, 0];
    let mut read_only_cache = caching.clone();
    read_only_cache[2] = 0x01;
    for (list, expected) in [
        (short(&[], &[]), None),
        (short(&own, &control), None),
        (short(&zero, &control), None),
        (short(&[], &[control.clone(), caching.clone()].concat()), None),
        (short(&[], &with(0, 0x8a)), None),
        (short(&[0, 2, 0, 0, 0, 0, 4, 0], &control), Some((0x26, 10))),
        (short(&[0, 2, 0, 1, 0, 0, 2, 0], &control), Some((0x26, 7))),
        (short(&own[..4], &control), Some((0x26, 8))),
        (short(&[], &with(2, 0x00)), Some((0x26, 6))),
        (short(&[], &with(3, 0x00)), Some((0x26, 7))),
        (short(&[], &with(1, 9)), Some((0x26, 5))),
        (short(&[], &with(0, 0x4a)), Some((0x26, 4))),
        (short(&[], &with(0, 0x02)), Some((0x26, 4))),
        (short(&[], &[with(4, 8), read_only_cache].concat()), Some((0x26, 18))),
        (vec![0, 1, 0, 0], Some((0x26, 1))),
        (short(&[], &control[..11]), Some((0x1a, 0))),
        (short(&[], &control[..1]), Some((0x1a, 0))),
        (vec![0, 0, 0, 8, 0], Some((0x1a, 0))),
        (vec![0; 3], Some((0x1a, 0))),
    ] {
        let result = send_list(&mut unit, "a", &[0x15, 0x10, 0, 0, list.len() as u8], &list);
        let expected = expected.ok_or(());
        let found = match result {
            Err(Refusal::Check(sense)) => Ok((sense.asc, sense.field.map_or(0, |at| at.byte))),
            Ok(Outcome::Done(effects)) if effects == Effects::default() => Err(()),
            other => panic!("{other:?}"),
        };
        assert_eq!(found, expected, "{list:02x?}");
    }
    assert_eq!(mode_page(&mut unit, 0x0a), control);
    assert!(is_done(&send(&mut unit, "a", &[0x15, 0x10])), "no list, no change");
}

/// The longer command has the longer header, and a long block descriptor if it says so.
#[test]
fn long_mode_lists_are_read() {
    let mut unit = Unit::new(disk());
    let told = bytes_of(send(&mut unit, "a", &[0x5a, 0x10, 0x0a, 0, 0, 0, 0, 1, 0]));
    let mut list = told.clone();
    (list[0], list[1]) = (0, 0);
    list[24 + 4] |= 0x08;
    let cdb = [0x55, 0x10, 0, 0, 0, 0, 0, 0, list.len() as u8];
    let changed = Outcome::Done(others(Sense::MODE_PARAMETERS_CHANGED));
    assert_eq!(send_list(&mut unit, "a", &cdb, &list), Ok(changed));
    assert_eq!(code(send(&mut unit, "b", WRITE)), (7, 0x27, 2));
    list[22] = 4;
    assert_eq!(code(send_list(&mut unit, "a", &cdb, &list)), (5, 0x26, 0));
}

/// Commands for the medium fail while it is ejected, others run; loading it reports to the others.
#[test]
fn a_medium_comes_and_goes() {
    let mut unit = Unit::new(DiskInfo { write_cache: false, ..full() });
    assert!(is_done(&send(&mut unit, "a", EJECT)));
    for bytes in [
        READY,
        WRITE,
        &[0x25],
        &[0x28, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x2e, 2, 0, 0, 0, 0, 0, 0, 1],
        &[0x2f, 2, 0, 0, 0, 0, 0, 0, 1],
        &[0x34, 2, 0, 0, 0, 0, 0, 0, 1],
        &[0x35],
        &[0x37],
        &[0x41, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x42, 0, 0, 0, 0, 0, 0, 0, 24],
        &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        &[0x8b],
        &[0x90],
        &[0x9c],
        &[0x9e, 0x10],
        &[0x9e, 0x12],
        ERASE,
        &[0x1b, 0, 0, 0, 1],
    ] {
        assert_eq!(code(send(&mut unit, "b", bytes)), NO_MEDIUM, "{bytes:02x?}");
    }
    assert_eq!(bytes_of(send(&mut unit, "b", &[0x03, 0, 0, 0, 18]))[12], 0x3a);
    for bytes in [&[0x12, 0, 0, 0, 96][..], &[0x1a, 0, 0x3f, 0, 255], &[0x16], &[0x17], ALLOW] {
        assert!(send(&mut unit, "b", bytes).is_ok(), "{bytes:02x?}");
    }
    assert!(is_done(&send(&mut unit, "a", EJECT)), "what is out is out");
    let loaded = Action::Done(others(Sense::MEDIUM_MAY_HAVE_CHANGED));
    assert_eq!(send(&mut unit, "a", LOAD), Ok(loaded));
    assert!(is_done(&send(&mut unit, "a", LOAD)));
    assert!(is_done(&send(&mut unit, "b", READY)));
    assert!(is_done(&send(&mut unit, "a", EJECT)));
    unit.reset();
    assert!(is_done(&send(&mut unit, "a", READY)));
}

/// Stopping and power conditions change nothing that could be seen.
#[test]
fn a_removable_unit_does_not_stop() {
    let mut unit = Unit::new(full());
    for byte in [0x00, 0x01, 0x04, 0x05] {
        for immediate in [0, 1] {
            assert!(is_done(&send(&mut unit, "a", &[0x1b, immediate, 0, 0, byte])));
            assert!(is_done(&send(&mut unit, "a", READY)));
        }
    }
    for power in 1..16 {
        assert!(is_done(&send(&mut unit, "a", &[0x1b, 1, 0, 0, power << 4 | 2])));
        assert!(is_done(&send(&mut unit, "a", READY)));
    }
    let mut fixed = Unit::new(disk());
    assert!(is_done(&send(&mut fixed, "a", &[0x1b, 0, 0, 0, 1])));
    for byte in [0x00, 0x02, 0x03, 0x10] {
        assert_eq!(code(send(&mut fixed, "a", &[0x1b, 0, 0, 0, byte])), (5, 0x24, 0));
    }
    assert_eq!(code(send(&mut fixed, "a", PREVENT)), (5, 0x20, 0));
}

/// A cache is flushed before the medium goes, unless the initiator wants no flush.
#[test]
fn ejecting_flushes() {
    let mut unit = Unit::new(full());
    let Ok(Action::Media(flush)) = send(&mut unit, "a", EJECT) else { panic!("a flush") };
    assert_eq!(flush.op, MediaOp::Synchronize { immediate: false });
    assert_eq!((flush.lba, flush.blocks), (0, 131_072));
    assert_eq!(code(send(&mut unit, "a", READY)), NO_MEDIUM);
    let mut unit = Unit::new(full());
    assert!(is_done(&send(&mut unit, "a", &[0x1b, 0, 0, 0, 0x06])));
}

/// While one initiator prevents removal no other ejects or loads; its own leave, the loss of
/// its nexus and a reset end that.
#[test]
fn removal_can_be_prevented() {
    let mut unit = Unit::new(full());
    for end in 0..3 {
        assert!(is_done(&send(&mut unit, "a", PREVENT)));
        assert!(is_done(&send(&mut unit, "b", ALLOW)), "not b's to allow");
        for name in ["a", "b"] {
            assert_eq!(code(send(&mut unit, name, EJECT)), PREVENTED);
        }
        assert!(is_done(&send(&mut unit, "a", READY)));
        match end {
            0 => assert!(is_done(&send(&mut unit, "a", ALLOW))),
            1 => unit.nexus_lost(&nexus("a")),
            _ => unit.reset(),
        }
        assert!(send(&mut unit, "b", EJECT).is_ok());
        assert_eq!(code(send(&mut unit, "a", READY)), NO_MEDIUM);
        send(&mut unit, "a", PREVENT).unwrap();
        assert_eq!(code(send(&mut unit, "a", LOAD)), PREVENTED);
        send(&mut unit, "a", ALLOW).unwrap();
        assert!(send(&mut unit, "a", LOAD).is_ok());
    }
}

/// During a sanitize operation only a few commands run, the rest learn how far it is; not even
/// a reset ends that.
#[test]
fn sanitizing_shuts_the_unit() {
    let mut unit = Unit::new(full());
    let Ok(Action::Sanitize(plan)) = send(&mut unit, "a", ERASE) else { panic!("a plan") };
    assert_eq!(plan.method, Method::BlockErase);
    assert!(send(&mut unit, "b", READY).is_ok(), "nothing has begun");
    let late = send(&mut unit, "b", OVERWRITE).unwrap();
    unit.sanitize_begun(false);
    unit.sanitize_progress(0x4000);
    unit.reset();
    for bytes in
        [READY, WRITE, &[0x28], &[0x35], &[0x16], &[0x5e], PREVENT, EJECT, ERASE, OVERWRITE, EXIT]
    {
        let sense = check(send(&mut unit, "b", bytes));
        assert_eq!(sense, Sense::SANITIZE_IN_PROGRESS.with_progress(0x4000), "{bytes:02x?}");
    }
    let Action::Parameters(late) = late else { panic!("a list") };
    let refused = unit.parameters(&nexus("b"), late, &[1, 0, 0, 4, 1, 2, 3, 4]);
    assert_eq!(code(refused), IN_PROGRESS, "begun while the list was on its way");
    let read = Media { op: MediaOp::Read, lba: 0, blocks: 1, fua: false, dpo: false };
    assert_eq!(code(unit.admit(None, read)), IN_PROGRESS);
    for bytes in [
        &[0x12, 0, 0, 0, 96][..],
        &[0xa0, 0, 0, 0, 0, 0, 0, 0, 0, 16],
        &[0x1a, 0, 0x3f, 0, 255],
        &[0x25],
        &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 1, 0],
    ] {
        assert!(matches!(send(&mut unit, "b", bytes), Ok(Action::Data(_))), "{bytes:02x?}");
    }
    let sense = bytes_of(send(&mut unit, "b", &[0x03, 0, 0, 0, 18]));
    assert_eq!(sense[12..], [0x04, 0x1b, 0, 0x80, 0x40, 0]);
    unit.sanitize_ended(true);
    assert!(is_done(&send(&mut unit, "b", READY)));
    unit.sanitize_progress(1);
    assert!(is_done(&send(&mut unit, "b", READY)), "progress of nothing");
}

/// After a failure a good sanitize operation helps, and EXIT FAILURE MODE if AUSE has allowed it.
#[test]
fn a_failed_sanitize_is_left() {
    let mut unit = Unit::new(full());
    let fail = |unit: &mut Unit, flags: u8| {
        send(unit, "a", &[0x48, flags | 0x02]).unwrap();
        unit.sanitize_begun(flags & 0x20 != 0);
        unit.sanitize_ended(false);
        assert_eq!(code(send(unit, "a", WRITE)), SANITIZE_FAILED);
        assert!(send(unit, "a", &[0x12, 0, 0, 0, 96]).is_ok());
    };
    fail(&mut unit, 0x20);
    assert!(is_done(&send(&mut unit, "a", EXIT)));
    assert!(is_done(&send(&mut unit, "a", READY)));
    assert!(is_done(&send(&mut unit, "a", EXIT)), "nothing to leave");

    fail(&mut unit, 0x00);
    assert_eq!(code(send(&mut unit, "a", EXIT)), (5, 0x24, 0));
    assert_eq!(code(send(&mut unit, "a", &[0x48, 0x22])), (5, 0x24, 0), "no way out by AUSE");
    assert!(send(&mut unit, "a", ERASE).is_ok());
    unit.sanitize_begun(false);
    unit.sanitize_ended(true);
    assert!(is_done(&send(&mut unit, "a", READY)));
}

/// Which disks can be sanitized how, and how a wrong request is refused.
#[test]
fn sanitizing_is_asked_for() {
    let list = [1, 0, 0, 4, 1, 2, 3, 4];
    let mut unit = Unit::new(full());
    let plan = send_list(&mut unit, "a", OVERWRITE, &list);
    assert!(matches!(plan, Ok(Outcome::Sanitize(_))), "{plan:?}");
    for length in 0..5 {
        let cdb = [0x48, 0x01, 0, 0, 0, 0, 0, 0, length];
        assert_eq!(code(send(&mut unit, "a", &cdb)).1, 0x24, "{length}");
    }
    for bytes in [&[0x48, 2, 0, 0, 0, 0, 0, 0, 8][..], &[0x48, 0x1f, 0, 0, 0, 0, 0, 0, 8]] {
        assert_eq!(code(send(&mut unit, "a", bytes)), (5, 0x24, 0));
    }
    for action in (0..0x1f).filter(|action| ![1, 2].contains(action)) {
        assert_eq!(code(send(&mut unit, "a", &[0x48, action])), (5, 0x24, 0));
    }
    assert!(select(&mut unit, 0x0a, |page| page[4] |= 0x08).is_ok());
    for bytes in [ERASE, OVERWRITE] {
        assert_eq!(code(send(&mut unit, "a", bytes)), (7, 0x27, 2));
    }
    assert_eq!(code(run(&DiskInfo { thin: false, ..full() }, ERASE)), (5, 0x24, 0));
    assert_eq!(code(run(&thin(), ERASE)), (5, 0x20, 0));
}

/// Lists of no length are done at once where that is legal; too long ones are refused.
#[test]
fn list_lengths_are_bounded() {
    assert!(is_done(&run(&disk(), &[0x83])));
    assert!(is_done(&run(&disk(), &[0x55, 0x10])));
    assert_eq!(code(run(&disk(), &[0x5f])), (5, 0x1a, 0));
    let copy = |length: u32| {
        let mut cdb = [0; 16];
        cdb[0] = 0x83;
        cdb[10..14].copy_from_slice(&length.to_be_bytes());
        run(&disk(), &cdb)
    };
    let Ok(Action::Parameters(list)) = copy(PARAMETER_LIST_LENGTH_MAX) else { panic!("a list") };
    assert_eq!(list.length(), PARAMETER_LIST_LENGTH_MAX);
    assert_eq!(code(copy(PARAMETER_LIST_LENGTH_MAX + 1)), (5, 0x1a, 0));
    let mut unit = Unit::new(disk());
    assert_eq!(code(unit.parameters(&nexus("a"), list, &[0; 8])), (5, 0x1a, 0));
}

/// A reservation keeps others out of what it protects, whichever way they come.
#[test]
fn reservations_are_heeded() {
    let mut unit = Unit::new(full());
    assert!(is_done(&send(&mut unit, "a", &[0x16])));
    let read = Media { op: MediaOp::Read, lba: 0, blocks: 1, fua: false, dpo: false };
    for bytes in [
        &[0x28][..],
        WRITE,
        EJECT,
        PREVENT,
        ERASE,
        OVERWRITE,
        &[0x1a, 0, 0x3f, 0, 255],
        &[0x15, 0x10],
        &[0x16],
        &[0x83],
        &[0x9e, 0x12],
        // Ranges come later.
        &[0x28, 0, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert_eq!(send(&mut unit, "b", bytes), Err(Refusal::Conflict), "{bytes:02x?}");
        assert_ne!(send(&mut unit, "a", bytes), Err(Refusal::Conflict), "{bytes:02x?}");
        send(&mut unit, "a", ALLOW).unwrap();
        send(&mut unit, "a", LOAD).unwrap();
    }
    assert_eq!(unit.admit(Some(RegistrantRef::Scsi(&nexus("b"))), read), Err(Refusal::Conflict));
    assert_eq!(unit.admit(None, read), Err(Refusal::Conflict));
    assert!(unit.admit(Some(RegistrantRef::Scsi(&nexus("a"))), read).is_ok());
    for bytes in [&[0x12, 0, 0, 0, 96][..], &[0x25], &[0x1b, 0, 0, 0, 1], ALLOW, &[0x17]] {
        assert!(send(&mut unit, "b", bytes).is_ok(), "{bytes:02x?}");
    }
    assert_eq!(code(send(&mut unit, "b", &[0xff])), (5, 0x20, 0), "decoding comes first");
    unit.nexus_lost(&nexus("a"));
    assert!(is_done(&send(&mut unit, "b", &[0x16])));
    unit.reset();
    assert!(unit.admit(None, read).is_ok());
}

/// PERSISTENT RESERVE OUT changes nothing before it is installed; what it protects it then does.
#[test]
fn persistent_reservations_are_installed() {
    let mut unit = Unit::new(disk());
    let mut list = [0; 24];
    list[15] = 7;
    let register = |unit: &mut Unit, list: &[u8]| {
        send_list(unit, "a", &[0x5f, 0x00, 0, 0, 0, 0, 0, 0, 24], list)
    };
    let Ok(Outcome::Reserve(change)) = register(&mut unit, &list) else { panic!("a change") };
    assert_eq!(*unit.reservations(), Reservations::default());
    unit.install(change.next);
    (list[7], list[15]) = (7, 0);
    // Write exclusive.
    let reserve = [0x5f, 0x01, 0x01, 0, 0, 0, 0, 0, 24];
    let Ok(Outcome::Reserve(change)) = send_list(&mut unit, "a", &reserve, &list) else {
        panic!("a change");
    };
    unit.install(change.next);
    for bytes in [WRITE, &[0x35], &[0x37], &[0x15, 0x10]] {
        assert_eq!(send(&mut unit, "b", bytes), Err(Refusal::Conflict), "{bytes:02x?}");
    }
    for bytes in [READY, &[0x28], &[0x34], &[0x1a, 0, 0x3f, 0, 255], &[0x9e, 0x12]] {
        assert!(send(&mut unit, "b", bytes).is_ok(), "{bytes:02x?}");
    }
    let keys = bytes_of(send(&mut unit, "b", &[0x5e, 0, 0, 0, 0, 0, 0, 1, 0]));
    assert_eq!(keys[keys.len() - 1], 7);
    unit.reset();
    assert_eq!(send(&mut unit, "b", WRITE), Err(Refusal::Conflict), "a reset does not end it");
}

/// The outcome of a copy is kept for who asked for it, until the same identifier is used again or
/// too many have come since.
#[test]
fn outcomes_of_copies_are_kept() {
    let mut unit = Unit::new(disk());
    let ended = |unit: &mut Unit, name: &str, list_id: u8, segments: u16| {
        let progress = copy::Progress { state: copy::State::Done, segments, bytes: 0 };
        let plan = copy::Plan { list_id, tracked: true, ..copy::Plan::default() };
        unit.copy_progressed(&nexus(name), &plan, progress);
    };
    let segments = |unit: &mut Unit, name: &str, list_id: u8| {
        let status = [0x84, 0x00, list_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        match send(unit, name, &status) {
            Ok(Action::Data(data)) => Some(data[6]),
            Err(Refusal::Check(Sense { asc: 0x24, .. })) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(segments(&mut unit, "a", 1), None);
    ended(&mut unit, "a", 1, 5);
    ended(&mut unit, "a", 1, 6);
    assert_eq!(segments(&mut unit, "a", 1), Some(6));
    assert_eq!(segments(&mut unit, "b", 1), None);
    assert_eq!(segments(&mut unit, "a", 2), None);
    for list_id in 2..=COPIES_MAX as u8 {
        ended(&mut unit, "a", list_id, 7);
    }
    assert_eq!(segments(&mut unit, "a", 1), Some(6));
    ended(&mut unit, "b", 1, 8);
    assert_eq!(segments(&mut unit, "a", 1), None, "the oldest");
    unit.nexus_lost(&nexus("a"));
    assert_eq!(segments(&mut unit, "a", 2), None);
    assert_eq!(segments(&mut unit, "b", 1), Some(8));
    unit.reset();
    assert_eq!(segments(&mut unit, "b", 1), None);
    let parameters = send(&mut unit, "a", &[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]);
    assert!(matches!(parameters, Ok(Action::Data(_))));
}

/// Its size can change, and ranges with it.
#[test]
fn a_unit_can_grow() {
    let mut unit = Unit::new(disk());
    let read = [0x28, 0, 0, 2, 0, 0, 0, 0, 1];
    assert_eq!(code(send(&mut unit, "a", &read)), (5, 0x21, 0));
    unit.resize(131_073);
    assert!(send(&mut unit, "a", &read).is_ok());
    assert_eq!(unit.disk().blocks, 131_073);
}
