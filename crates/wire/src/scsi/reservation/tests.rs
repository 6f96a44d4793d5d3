//! Tests of single rules. Sequences of hosts, storage and a model of the whole are next door.

mod hosts;
mod model;
mod nvme;
mod stored;

use super::*;
use crate::scsi::nexus::{Effects, InitiatorPort};
use crate::scsi::sense::Sense;

const REGISTER: u8 = 0;
const RESERVE: u8 = 1;
const RELEASE: u8 = 2;
const CLEAR: u8 = 3;
const PREEMPT: u8 = 4;
const PREEMPT_AND_ABORT: u8 = 5;
const REGISTER_AND_IGNORE: u8 = 6;
const REGISTER_AND_MOVE: u8 = 7;

/// One of several nexuses, told apart by name and ISID.
fn nexus(number: u8) -> Nexus {
    let name = format!("iqn.2026-01.org.example:host{number}");
    let initiator = InitiatorPort { name, isid: [0x80, 0, 0, 0, 0, number] };
    Nexus { initiator, target: "iqn.2026-01.org.example:disk".into() }
}

/// The number of a nexus.
fn number(who: RegistrantRef<'_>) -> u8 {
    match who {
        RegistrantRef::Scsi(nexus) => nexus.initiator.isid[5],
        RegistrantRef::Nvme(host) => panic!("no nexus: {host:?}"),
    }
}

/// A parameter list of the basic format.
fn basic(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    let mut list = [key.to_be_bytes(), action_key.to_be_bytes(), [0; 8]].concat();
    list[20] = flags;
    list
}

/// The same with `TransportIDs`.
fn with_ports(key: u64, action_key: u64, flags: u8, ports: &[u8]) -> Vec<u8> {
    let mut list = basic(key, action_key, flags | 0x08);
    let ids: Vec<_> =
        ports.iter().flat_map(|port| transport_id::encode(&nexus(*port).initiator)).collect();
    list.extend_from_slice(&(ids.len() as u32).to_be_bytes());
    list.extend_from_slice(&ids);
    list
}

/// A parameter list of REGISTER AND MOVE.
fn to_port(key: u64, action_key: u64, flags: u8, port: u8) -> Vec<u8> {
    let mut list = basic(key, action_key, 0);
    list[17] = flags;
    list[19] = 1;
    let id = transport_id::encode(&nexus(port).initiator);
    list[20..24].copy_from_slice(&(id.len() as u32).to_be_bytes());
    list.extend_from_slice(&id);
    list
}

/// Sends a command and installs what it leads to.
fn send(
    unit: &mut Reservations,
    from: u8,
    action: u8,
    kind: u8,
    list: &[u8],
) -> Result<Effects, Refusal> {
    let out = Out { action, scope: 0, kind, list_length: list.len() as u32 };
    let change = unit.persistent_out(&nexus(from), out, list)?;
    *unit = change.next;
    Ok(change.effects)
}

/// A unit with these registrations: number of the nexus, key.
fn registered(keys: &[(u8, u64)]) -> Reservations {
    let mut unit = Reservations::default();
    for (from, key) in keys {
        send(&mut unit, *from, REGISTER, 0, &basic(0, *key, 0)).unwrap();
    }
    unit
}

/// The same, and the first of them has reserved it.
fn reserved(kind: u8, keys: &[(u8, u64)]) -> Reservations {
    let mut unit = registered(keys);
    send(&mut unit, keys[0].0, RESERVE, kind, &basic(keys[0].1, 0, 0)).unwrap();
    unit
}

fn codes(result: Result<Effects, Refusal>) -> (u8, u8) {
    match result {
        Err(Refusal::Check(sense)) => (sense.asc, sense.ascq),
        other => panic!("CHECK CONDITION was due, not {other:?}"),
    }
}

/// A command needs the right key, and an action, scope and type that exist.
#[test]
fn wrong_requests_are_refused() {
    let mut unit = reserved(1, &[(0, 10), (1, 11)]);
    let before = unit.clone();
    for action in [RESERVE, RELEASE, CLEAR, PREEMPT, PREEMPT_AND_ABORT] {
        for (from, key) in [(0, 11), (0, 0), (2, 0), (2, 10)] {
            let result = send(&mut unit, from, action, 1, &basic(key, 11, 0));
            assert_eq!(result, Err(Refusal::Conflict), "action {action} of {from} with {key}");
        }
    }
    for action in [8, 9, 0x1f] {
        assert_eq!(codes(send(&mut unit, 0, action, 1, &basic(10, 0, 0))), (0x24, 0));
    }
    for action in [RESERVE, RELEASE, PREEMPT] {
        for kind in [0, 2, 4, 9] {
            assert_eq!(codes(send(&mut unit, 0, action, kind, &basic(10, 10, 0))), (0x24, 0));
        }
        let out = Out { action, scope: 1, kind: 1, list_length: 24 };
        let result = unit.persistent_out(&nexus(0), out, &basic(10, 10, 0));
        assert_eq!(result.unwrap_err(), Sense::invalid_cdb_field(2, Some(7)).into());
    }
    assert_eq!(unit, before);
}

/// Without `SPEC_I_PT` a list has 24 bytes; with it, what it says must be there.
#[test]
fn the_length_of_the_list_must_fit() {
    let mut unit = registered(&[(0, 10)]);
    let before = unit.clone();
    for action in 0..=6 {
        for length in [0, 8, 23, 25, 28] {
            let mut list = basic(10, 10, 0);
            list.resize(length, 0);
            assert_eq!(codes(send(&mut unit, 0, action, 1, &list)), (0x1a, 0), "{length} bytes");
        }
    }
    // Fewer bytes came than the CDB says.
    let out = Out { action: RESERVE, scope: 0, kind: 1, list_length: 24 };
    let result = unit.persistent_out(&nexus(0), out, &basic(10, 0, 0)[..23]);
    assert_eq!(result.unwrap_err(), Sense::PARAMETER_LIST_LENGTH_ERROR.into());
    let long = vec![0; LIST_LENGTH_MAX as usize + 1];
    assert_eq!(codes(send(&mut unit, 1, REGISTER, 0, &long)), (0x1a, 0));

    let ports = with_ports(0, 5, 0, &[2, 3]);
    assert_eq!(codes(send(&mut unit, 1, REGISTER, 0, &ports[..26])), (0x1a, 0));
    assert_eq!(codes(send(&mut unit, 1, REGISTER, 0, &ports[..ports.len() - 1])), (0x26, 0));
    let mut cut = ports;
    cut[27] -= 4;
    assert_eq!(codes(send(&mut unit, 1, REGISTER, 0, &cut)), (0x26, 0));
    for action in 1..=6 {
        let list = with_ports(10, 5, 0, &[2]);
        assert_eq!(codes(send(&mut unit, 0, action, 1, &list)), (0x26, 0), "action {action}");
    }
    assert_eq!(unit, before);
}

/// `SPEC_I_PT` registers all ports that it names or none, and only together with a new sender.
#[test]
fn ports_are_registered_together() {
    let mut unit = registered(&[(3, 30)]);
    send(&mut unit, 0, REGISTER, 0, &with_ports(0, 5, 0x04, &[1, 3, 0, 1])).unwrap();
    let keys: Vec<_> = unit.keys.iter().map(|(who, key)| (number(who), key)).collect();
    assert_eq!(keys, [(0, 5), (1, 5), (3, 5)]);
    assert_eq!(unit.generation, 2);

    assert_eq!(codes(send(&mut unit, 0, REGISTER, 0, &with_ports(5, 6, 0, &[2]))), (0x26, 0));
    let nobody = send(&mut unit, 2, REGISTER, 0, &with_ports(0, 0, 0, &[4]));
    assert_eq!(nobody, Ok(Effects::default()));
    assert_eq!((unit.keys.len(), unit.generation), (3, 2), "no key, no registration");

    let mut list = with_ports(0, 5, 0, &[2, 4]);
    let second = 28 + (list.len() - 28) / 2;
    list[second] = 0x46;
    let before = unit.clone();
    assert_eq!(codes(send(&mut unit, 5, REGISTER, 0, &list)), (0x26, 0));
    assert_eq!(unit, before);
}

/// The number of registrations is bounded, of the sender or of others.
#[test]
fn registrations_are_bounded() {
    let all: Vec<_> = (0..REGISTRATIONS_MAX as u8).map(|number| (number, 7)).collect();
    let mut unit = reserved(1, &all);
    let list = with_ports(0, 9, 0, &[0]);
    for (action, list) in [(REGISTER, list), (REGISTER_AND_IGNORE, basic(0, 9, 0))] {
        assert_eq!(codes(send(&mut unit, 200, action, 0, &list)), (0x55, 4));
    }
    assert_eq!(codes(send(&mut unit, 0, REGISTER_AND_MOVE, 0, &to_port(7, 9, 0, 200))), (0x55, 4));
    // A change of key needs no room, and neither does a move that leaves a place behind.
    send(&mut unit, 0, REGISTER, 0, &basic(7, 8, 0)).unwrap();
    send(&mut unit, 0, REGISTER_AND_MOVE, 0, &to_port(8, 9, 2, 200)).unwrap();
    assert_eq!(unit.registrants().count(), REGISTRATIONS_MAX);
    let ports: Vec<_> = (0..REGISTRATIONS_MAX as u8).collect();
    let list = with_ports(0, 9, 0, &ports);
    assert!(list.len() <= LIST_LENGTH_MAX as usize, "a list for all fits");
    send(&mut Reservations::default(), 0, REGISTER, 0, &list).unwrap();
}

/// REGISTER AND MOVE takes a holder that is alone, another port, a key and the port that there is.
#[test]
fn a_move_has_its_rules() {
    for kind in [7, 8] {
        let mut unit = reserved(kind, &[(0, 10), (1, 11)]);
        let result = send(&mut unit, 0, REGISTER_AND_MOVE, 0, &to_port(10, 12, 0, 2));
        assert_eq!(result, Err(Refusal::Conflict));
    }
    let mut free = registered(&[(0, 10)]);
    let list = to_port(10, 12, 0, 2);
    assert_eq!(codes(send(&mut free, 0, REGISTER_AND_MOVE, 0, &list)), (0x24, 0));

    let mut unit = reserved(5, &[(0, 10), (1, 11)]);
    let before = unit.clone();
    for (from, key) in [(1, 11), (0, 11), (2, 0)] {
        let result = send(&mut unit, from, REGISTER_AND_MOVE, 0, &to_port(key, 12, 0, 2));
        assert_eq!(result, Err(Refusal::Conflict));
    }
    let mut wrong = vec![to_port(10, 0, 0, 2), to_port(10, 12, 0, 0)];
    for (at, value) in [(19, 2), (23, 255), (23, 0), (24, 0x05)] {
        let mut list = list.clone();
        list[at] = value;
        wrong.push(list);
    }
    for list in wrong {
        assert_eq!(codes(send(&mut unit, 0, REGISTER_AND_MOVE, 0, &list)), (0x26, 0));
    }
    assert_eq!(unit, before);
    // Scope and type are ignored, and no nexus is notified.
    assert_eq!(send(&mut unit, 0, REGISTER_AND_MOVE, 15, &list), Ok(Effects::default()));
    let (zero, one, two) = (nexus(0), nexus(1), nexus(2));
    let [zero, one, two] = [&zero, &one, &two].map(RegistrantRef::Scsi);
    assert!(unit.holds(two) && !unit.holds(zero));
    assert_eq!((unit.keys.get(two), unit.keys.get(zero)), (Some(12), Some(10)));
    send(&mut unit, 2, REGISTER_AND_MOVE, 0, &to_port(12, 13, 3, 1)).unwrap();
    assert!(unit.survives() && !unit.keys.contains(two) && unit.holds(one));
}

/// REPORT CAPABILITIES says what is here, and whether APTPL is on.
#[test]
fn capabilities_are_reported() {
    let mut unit = registered(&[(0, 10)]);
    assert_eq!(unit.persistent_in(2, 100), Ok(vec![0, 8, 0x1d, 0xb0, 0xea, 1, 0, 0]));
    send(&mut unit, 0, REGISTER, 0, &basic(10, 11, 1)).unwrap();
    assert_eq!(unit.persistent_in(2, 4), Ok(vec![0, 8, 0x1d, 0xb1]));
}

/// Answers are cut to the room that there is; their lengths are not.
#[test]
fn answers_are_cut() {
    let unit = reserved(3, &[(0, 10), (1, 11)]);
    let whole = [0, 0, 0, 2, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 11];
    for room in 0..=30 {
        let keys = unit.persistent_in(0, room).unwrap();
        assert_eq!(keys, whole[..whole.len().min(room as usize)]);
    }
    let held = unit.persistent_in(1, u32::MAX).unwrap();
    assert_eq!(held[4..], [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0x03, 0, 0]);
    let status = unit.persistent_in(3, u32::MAX).unwrap();
    assert_eq!(status.len() - 8, usize::from(status[7]));
    assert_eq!(status[20..22], [1, 3], "the holder");
    assert_eq!(status[26..28], [0, 1], "relative target port");
    let id = transport_id::encode(&nexus(0).initiator);
    assert_eq!(status[28..32], (id.len() as u32).to_be_bytes());
    assert_eq!(status[32..][..id.len()], id);
}

/// RESERVE(6) keeps everybody else out, and gives way to what ends it, while registrations stay.
#[test]
fn reserve_6_is_for_one() {
    let mut unit = Reservations::default();
    let (one, other) = (nexus(0), nexus(1));
    unit.reserve(&one).unwrap();
    unit.reserve(&one).unwrap();
    assert_eq!(unit.reserve(&other), Err(Refusal::Conflict));
    assert_eq!(unit.release(&other), Ok(()));
    for (who, inside) in [(Some(&one), true), (Some(&other), false), (None, false)] {
        let who = who.map(RegistrantRef::Scsi);
        assert!(unit.permits(who, Access::Free));
        for access in [Access::Query, Access::Read, Access::Write] {
            assert_eq!(unit.permits(who, access), inside, "{who:?} {access:?}");
        }
    }
    for from in [0, 1] {
        let result = send(&mut unit, from, REGISTER, 0, &basic(0, 1, 0));
        assert_eq!(result, Err(Refusal::Conflict));
    }
    unit.nexus_lost(&other);
    assert!(!unit.permits(None, Access::Read));
    let ends: [fn(&mut Reservations); 3] = [
        Reservations::reset,
        |unit| unit.nexus_lost(&nexus(0)),
        |unit| unit.release(&nexus(0)).unwrap(),
    ];
    for end in ends {
        let mut unit = unit.clone();
        end(&mut unit);
        assert_eq!(unit, Reservations::default());
    }
    let mut unit = reserved(1, &[(0, 10), (1, 11)]);
    let before = unit.clone();
    unit.reset();
    unit.nexus_lost(&one);
    assert_eq!(unit, before);
}

/// Where a nexus is registered, RESERVE(6) and RELEASE(6) conflict, except from those who have a
/// part in the persistent reservation: there they do nothing.
#[test]
fn reserve_6_respects_persistent_reservations() {
    for (kind, second) in
        [(0, false), (1, false), (3, false), (5, true), (6, true), (7, true), (8, true)]
    {
        let keys = [(0, 10), (1, 11)];
        let mut unit = if kind == 0 { registered(&keys) } else { reserved(kind, &keys) };
        let before = unit.clone();
        for (from, passes) in [(0, kind != 0), (1, second), (2, false)] {
            let due = if passes { Ok(()) } else { Err(Refusal::Conflict) };
            assert_eq!(unit.reserve(&nexus(from)), due, "type {kind} from {from}");
            assert_eq!(unit.release(&nexus(from)), due, "type {kind} from {from}");
        }
        assert_eq!(unit, before);
    }
}

/// PRGENERATION wraps around.
#[test]
fn the_generation_wraps() {
    let mut unit = Reservations { generation: u32::MAX, ..Reservations::default() };
    send(&mut unit, 0, REGISTER, 0, &basic(0, 1, 0)).unwrap();
    assert_eq!(unit.generation, 0);
}
