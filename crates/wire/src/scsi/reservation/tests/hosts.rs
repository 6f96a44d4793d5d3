//! Tests of command sequences that hosts and clusters use.

use super::*;

/// The attentions of a command: number of the nexus, qualifier.
fn told(result: Result<Effects, Refusal>) -> Vec<(u8, u8)> {
    let tell = |(who, sense): (Registrant, Sense)| {
        assert_eq!(sense.asc, 0x2a);
        (number(who.borrowed()), sense.ascq)
    };
    result.unwrap().attentions.into_iter().map(tell).collect()
}

fn read_keys(unit: &Reservations) -> Vec<u64> {
    let data = unit.persistent_in(0, u32::MAX).unwrap();
    data[8..].as_chunks().0.iter().map(|key| u64::from_be_bytes(*key)).collect()
}

/// The key and type of the reservation.
fn read_reservation(unit: &Reservations) -> Option<(u64, u8)> {
    let data = unit.persistent_in(1, u32::MAX).unwrap();
    let (key, rest) = data[8..].split_first_chunk()?;
    Some((u64::from_be_bytes(*key), rest[5]))
}

/// Four service actions are there to read, and the others are wrong fields of a known command.
#[test]
fn four_reports_exist() {
    let unit = Reservations::default();
    for action in 0..0x20 {
        match unit.persistent_in(action, 16_384) {
            Ok(_) => assert!(action < 4),
            Err(sense) => assert_eq!((action >= 4, sense.asc), (true, 0x24)),
        }
    }
}

/// A host registers, cannot register anew without its key, and leaves.
#[test]
fn a_host_comes_and_goes() {
    let mut unit = Reservations::default();
    assert_eq!(told(send(&mut unit, 0, REGISTER_AND_IGNORE, 0, &basic(0, 77, 0))), []);
    assert_eq!(read_keys(&unit), [77]);
    let again = send(&mut unit, 0, REGISTER, 0, &basic(0, 78, 0));
    assert_eq!(again, Err(Refusal::Conflict));
    assert_eq!(told(send(&mut unit, 0, REGISTER, 0, &basic(77, 0, 0))), []);
    assert_eq!(read_keys(&unit), []);
}

/// A reservation of each type can be made, read, repeated and released by its holder.
#[test]
fn every_type_is_reserved_and_released() {
    let mut unit = registered(&[(0, 77)]);
    for kind in [1, 3, 5, 6, 7, 8] {
        for _ in 0..2 {
            assert_eq!(told(send(&mut unit, 0, RESERVE, kind, &basic(77, 0, 0))), []);
            let key = if kind >= 7 { 0 } else { 77 };
            assert_eq!(read_reservation(&unit), Some((key, kind)));
        }
        let other = if kind == 1 { 3 } else { 1 };
        let result = send(&mut unit, 0, RESERVE, other, &basic(77, 0, 0));
        assert_eq!(result, Err(Refusal::Conflict));
        assert_eq!(codes(send(&mut unit, 0, RELEASE, other, &basic(77, 0, 0))), (0x26, 4));
        assert_eq!(told(send(&mut unit, 0, RELEASE, kind, &basic(77, 0, 0))), []);
        assert_eq!(told(send(&mut unit, 0, RELEASE, kind, &basic(77, 0, 0))), [], "no error");
        assert_eq!(read_reservation(&unit), None);
    }
    assert_eq!(unit.generation, 1);
}

/// Who reads and writes besides the holder, registered and then not.
#[test]
fn each_type_lets_its_own_through() {
    for (kind, with_key, without) in [
        (1, [true, false], [true, false]),
        (3, [false, false], [false, false]),
        (5, [true, true], [true, false]),
        (6, [true, true], [false, false]),
        (7, [true, true], [true, false]),
        (8, [true, true], [false, false]),
    ] {
        let mut unit = reserved(kind, &[(0, 10), (1, 11)]);
        let may = |unit: &Reservations, who: Option<u8>| {
            let who = who.map(nexus);
            let who = who.as_ref().map(RegistrantRef::Scsi);
            assert!(unit.permits(who, Access::Free));
            assert!(unit.permits(who, Access::Query));
            [Access::Read, Access::Write].map(|access| unit.permits(who, access))
        };
        assert_eq!(may(&unit, Some(0)), [true, true], "type {kind}");
        assert_eq!(may(&unit, Some(1)), with_key, "type {kind}");
        assert_eq!(told(send(&mut unit, 1, REGISTER, 0, &basic(11, 0, 0))), []);
        assert_eq!(may(&unit, Some(1)), without, "type {kind}");
        assert_eq!(may(&unit, None), without, "type {kind}");
        assert_eq!(told(send(&mut unit, 0, RELEASE, kind, &basic(10, 0, 0))), []);
        assert_eq!(may(&unit, None), [true, true]);
    }
}

/// The holder leaves: its reservation ends, unless all who are registered hold it. Of the types
/// that end, those for registrants are lost for the others, which are notified once.
#[test]
fn a_reservation_ends_with_its_last_holder() {
    for kind in [1, 3, 5, 6, 7, 8] {
        let mut unit = reserved(kind, &[(0, 10), (1, 11)]);
        let attentions = told(send(&mut unit, 0, REGISTER, 0, &basic(10, 0, 0)));
        if kind >= 7 {
            assert_eq!((attentions, read_reservation(&unit)), (vec![], Some((0, kind))));
            assert_eq!(told(send(&mut unit, 1, RELEASE, kind, &basic(11, 0, 0))), []);
        } else {
            let due = if kind >= 5 { vec![(1, 4)] } else { vec![] };
            assert_eq!((attentions, read_reservation(&unit)), (due, None));
        }
        assert_eq!(told(send(&mut unit, 1, REGISTER, 0, &basic(11, 0, 0))), []);
        let mut unit = reserved(kind, &[(0, 10)]);
        send(&mut unit, 0, REGISTER_AND_IGNORE, 0, &basic(0, 0, 0)).unwrap();
        assert_eq!(read_reservation(&unit), None, "the last of type {kind}");
    }
}

/// RELEASE notifies the other registrants; by a nexus that is not the holder it does nothing.
#[test]
fn a_release_is_heard_by_registrants() {
    for kind in [1, 3, 5, 6, 7, 8] {
        let mut unit = reserved(kind, &[(0, 10), (1, 11), (2, 12)]);
        if kind < 7 {
            assert_eq!(told(send(&mut unit, 1, RELEASE, kind, &basic(11, 0, 0))), []);
            assert_eq!(read_reservation(&unit), Some((10, kind)));
        }
        let due = if kind >= 5 { vec![(1, 4), (2, 4)] } else { vec![] };
        assert_eq!(told(send(&mut unit, 0, RELEASE, kind, &basic(10, 0, 0))), due);
        assert_eq!((read_reservation(&unit), unit.keys.len()), (None, 3));
    }
}

/// CLEAR ends everything and counts once.
#[test]
fn clear_leaves_nothing() {
    let mut unit = reserved(3, &[(0, 10), (1, 11)]);
    assert_eq!(told(send(&mut unit, 1, CLEAR, 0, &basic(11, 0, 0))), [(0, 3)]);
    assert_eq!((read_keys(&unit), read_reservation(&unit)), (vec![], None));
    assert_eq!(unit.generation, 3);
}

/// PREEMPT without a reservation takes registrations away, its own without a word.
#[test]
fn registrations_are_preempted() {
    let mut unit = registered(&[(0, 10), (1, 11), (2, 10)]);
    assert_eq!(told(send(&mut unit, 1, PREEMPT, 15, &basic(11, 10, 0))), [(0, 5), (2, 5)]);
    assert_eq!((read_keys(&unit), unit.generation), (vec![11], 4));
    let nobody = send(&mut unit, 1, PREEMPT, 3, &basic(11, 12, 0));
    assert_eq!(nobody, Err(Refusal::Conflict));
    assert_eq!(codes(send(&mut unit, 1, PREEMPT, 3, &basic(11, 0, 0))), (0x26, 0));
    assert_eq!(told(send(&mut unit, 1, PREEMPT, 3, &basic(11, 11, 0))), []);
    assert_eq!(read_keys(&unit), []);
}

/// A node fences the holder: it takes the reservation over, the fenced nexuses are notified and their tasks
/// aborted, and the rest hears of it if the type is another.
#[test]
fn a_node_fences_the_holder() {
    for (kind, rest) in [(5, vec![]), (6, vec![(2, 4)])] {
        let mut unit = reserved(5, &[(0, 10), (1, 11), (2, 12), (3, 10)]);
        let fenced = send(&mut unit, 1, PREEMPT_AND_ABORT, kind, &basic(11, 10, 0));
        assert_eq!(
            fenced.as_ref().unwrap().aborts,
            [0, 3].map(|number| Registrant::Scsi(nexus(number)))
        );
        assert_eq!(told(fenced), [rest, vec![(0, 5), (3, 5)]].concat());
        assert_eq!((read_keys(&unit), read_reservation(&unit)), (vec![11, 12], Some((11, kind))));
        // One that holds nothing is fenced, and the reservation stays as it is.
        let fenced = send(&mut unit, 1, PREEMPT_AND_ABORT, 1, &basic(11, 12, 0)).unwrap();
        assert_eq!(fenced.aborts, [Registrant::Scsi(nexus(2))]);
        assert_eq!(read_reservation(&unit), Some((11, kind)));
        // The holder may preempt itself to change the type.
        send(&mut unit, 1, PREEMPT, 8, &basic(11, 11, 0)).unwrap();
        assert_eq!((read_keys(&unit), read_reservation(&unit)), (vec![11], Some((0, 8))));
    }
}

/// Where all who are registered hold the reservation, the key zero preempts them all; any other
/// key takes away registrations only.
#[test]
fn all_registrants_are_preempted_by_key_zero() {
    let mut unit = reserved(7, &[(0, 10), (1, 11), (2, 12)]);
    assert_eq!(told(send(&mut unit, 1, PREEMPT, 3, &basic(11, 10, 0))), [(0, 5)]);
    assert_eq!(read_reservation(&unit), Some((0, 7)));
    assert_eq!(codes(send(&mut unit, 1, PREEMPT, 2, &basic(11, 0, 0))), (0x24, 0));
    assert_eq!(told(send(&mut unit, 1, PREEMPT, 3, &basic(11, 0, 0))), [(2, 5)]);
    assert_eq!((read_keys(&unit), read_reservation(&unit)), (vec![11], Some((11, 3))));
    let mut alone = reserved(8, &[(0, 10)]);
    assert_eq!(told(send(&mut alone, 0, PREEMPT, 3, &basic(10, 10, 0))), []);
    assert_eq!(read_reservation(&alone), None, "the last registration went");
}
