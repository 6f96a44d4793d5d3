//! Tests of NVMe hosts on the table: their own rules, and what they and SCSI nexuses do to one another.

use proptest::prelude::*;

use super::*;
use crate::scsi::nexus::HostId;

const REGISTER_KEY: HostOut = out(HostAction::Register, 0);
/// Conflicting, or wrong, fields.
const FIELD: Answer = Err(Refused::Field);
const CONFLICT: Answer = Err(Refused::Conflict);
/// No condition, and nothing is aborted.
const GOOD: Answer = Ok((Vec::new(), Vec::new()));

/// Registrants and qualifiers of conditions, and whose commands are aborted. Numbers from 10 on are of NVMe hosts.
type Answer = Result<(Vec<(u8, u8)>, Vec<u8>), Refused>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Conflict,
    Field,
}

const fn out(action: HostAction, rtype: u8) -> HostOut {
    HostOut { action, rtype, ignores_key: false, persistence: None }
}

fn host(number: u8) -> HostId {
    [number; 16]
}

fn who(number: u8) -> Registrant {
    if number < 10 { Registrant::Scsi(nexus(number)) } else { Registrant::Nvme(host(number)) }
}

fn number_of(who: &Registrant) -> u8 {
    match who {
        Registrant::Scsi(nexus) => nexus.initiator.isid[5],
        Registrant::Nvme(host) => host[0],
    }
}

/// Has a host do something, on a unit that can persist.
fn ask(unit: &mut Reservations, number: u8, out: HostOut, keys: [u64; 2]) -> Answer {
    ask_with(unit, number, out, keys, true)
}

fn ask_with(
    unit: &mut Reservations,
    number: u8,
    out: HostOut,
    keys: [u64; 2],
    can_persist: bool,
) -> Answer {
    let change = unit.host_out(&host(number), out, keys, can_persist);
    answer(change.map(|change| {
        assert_eq!(change.save, change.next.encode() != unit.encode());
        *unit = change.next;
        change.effects
    }))
}

fn answer(result: Result<Effects, Refusal>) -> Answer {
    match result {
        Ok(effects) => {
            assert_eq!(effects.others, None);
            let told = effects.attentions.iter().map(|(who, sense)| (number_of(who), sense.ascq));
            Ok((told.collect(), effects.aborts.iter().map(number_of).collect()))
        }
        Err(Refusal::Conflict) => CONFLICT,
        Err(Refusal::Check(sense)) => {
            assert!(matches!((sense.asc, sense.ascq), (0x24 | 0x26, 0)), "{sense:?}");
            FIELD
        }
    }
}

/// A unit with these registrations.
fn with(keys: &[(u8, u64)]) -> Reservations {
    let mut unit = Reservations::default();
    for &(number, key) in keys {
        let quiet = if number < 10 {
            answer(send(&mut unit, number, REGISTER, 0, &basic(0, key, 0)))
        } else {
            ask(&mut unit, number, REGISTER_KEY, [0, key])
        };
        assert_eq!(quiet, GOOD);
    }
    unit
}

fn keys(unit: &Reservations) -> Vec<(u8, u64)> {
    unit.keys.iter().map(|(who, key)| (number_of(&who.owned()), key)).collect()
}

/// A host registers, with the same key again as well; only its own key, or IEKEY, changes that; a zero key ends it. What
/// is done counts.
#[test]
fn a_host_comes_and_goes() {
    let mut unit = with(&[(0, 5)]);
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [0, 0]), FIELD, "a zero key");
    assert_eq!(ask(&mut unit, 0, REGISTER_KEY, [0, 7]), FIELD, "a host without an identifier");
    for key in [7, 7] {
        assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [99, key]), GOOD, "CRKEY is not looked at");
    }
    assert_eq!(unit.generation, 3);
    let ignoring = |action| HostOut { ignores_key: true, ..out(action, 0) };
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [7, 8]), CONFLICT);
    assert_eq!(ask(&mut unit, 10, ignoring(HostAction::Register), [7, 8]), CONFLICT);
    let (replace, unregister) = (out(HostAction::Replace, 0), out(HostAction::Unregister, 0));
    for (out, key) in [(replace, 8), (unregister, 8), (replace, 0)] {
        assert_eq!(ask(&mut unit, 10, out, [key, 9]), CONFLICT, "a wrong key");
        assert_eq!(ask(&mut unit, 11, out, [0, 9]), CONFLICT, "not registered");
        let ignores_key = true;
        assert_eq!(ask(&mut unit, 11, HostOut { ignores_key, ..out }, [0, 9]), CONFLICT);
    }
    assert_eq!((unit.generation, keys(&unit)), (3, vec![(0, 5), (10, 7)]));
    assert_eq!(ask(&mut unit, 10, replace, [7, 9]), GOOD);
    assert_eq!(ask(&mut unit, 10, ignoring(HostAction::Replace), [0, 10]), GOOD);
    assert_eq!(keys(&unit), [(0, 5), (10, 10)]);
    assert_eq!(ask(&mut unit, 10, replace, [10, 0]), GOOD, "as Linux unregisters");
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [0, 1]), GOOD);
    assert_eq!(ask(&mut unit, 10, unregister, [1, 0]), GOOD);
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [0, 2]), GOOD);
    assert_eq!(ask(&mut unit, 10, ignoring(HostAction::Unregister), [0, 0]), GOOD);
    assert_eq!((unit.generation, keys(&unit)), (10, vec![(0, 5)]));
}

/// Who reads and writes under each type: its holder, another that is registered, and one that is not, whichever
/// protocols they speak (NVM Express Base 1.4 figures 451 and 452).
#[test]
fn each_type_lets_its_own_through() {
    for (rtype, registered, stranger) in [
        (1, [true, false], [true, false]),
        (2, [false, false], [false, false]),
        (3, [true, true], [true, false]),
        (4, [true, true], [false, false]),
        (5, [true, true], [true, false]),
        (6, [true, true], [false, false]),
    ] {
        for (holder, other, third) in [(10, 0, 11), (10, 11, 0), (0, 10, 11)] {
            let mut unit = with(&[(holder, 5), (other, 6)]);
            let taken = if holder < 10 {
                let kind = [1, 3, 5, 6, 7, 8][usize::from(rtype) - 1];
                answer(send(&mut unit, holder, RESERVE, kind, &basic(5, 0, 0)))
            } else {
                ask(&mut unit, holder, out(HostAction::Acquire, rtype), [5, 0])
            };
            assert_eq!(taken, GOOD);
            let may = |number| {
                let who = who(number);
                let who = Some(who.borrowed());
                assert!(unit.permits(who, Access::Free));
                [Access::Read, Access::Write].map(|access| unit.permits(who, access))
            };
            assert_eq!(may(holder), [true, true], "type {rtype}");
            assert_eq!(may(other), registered, "type {rtype}");
            assert_eq!(may(third), stranger, "type {rtype}");
        }
    }
}

/// Only a registrant with its key has Acquire and Release done; a reservation that is held conflicts with another type
/// and another holder; what is not held is released without an error, and with a wrong type not at all.
#[test]
fn acquire_and_release_have_their_rules() {
    let mut unit = with(&[(10, 5), (11, 6), (0, 7)]);
    let before = unit.clone();
    for action in [
        HostAction::Acquire,
        HostAction::Preempt,
        HostAction::PreemptAndAbort,
        HostAction::Release,
        HostAction::Clear,
    ] {
        for (number, key) in [(10, 6), (10, 0), (12, 0), (12, 5)] {
            assert_eq!(ask(&mut unit, number, out(action, 1), [key, 6]), CONFLICT, "{action:?}");
        }
    }
    assert_eq!(unit, before);
    for rtype in 1..=6 {
        let acquire = out(HostAction::Acquire, rtype);
        let other = out(HostAction::Acquire, rtype % 6 + 1);
        assert_eq!(ask(&mut unit, 10, acquire, [5, 0]), GOOD);
        assert_eq!(ask(&mut unit, 10, acquire, [5, 0]), GOOD, "again");
        assert_eq!(ask(&mut unit, 10, other, [5, 0]), CONFLICT);
        let shared = if rtype >= 5 { GOOD } else { CONFLICT };
        assert_eq!(ask(&mut unit, 11, acquire, [6, 0]), shared);
        let release = out(HostAction::Release, rtype);
        if rtype < 5 {
            assert_eq!(ask(&mut unit, 11, release, [6, 0]), GOOD, "it has nothing to release");
        }
        assert_eq!(ask(&mut unit, 10, out(HostAction::Release, rtype % 6 + 1), [5, 0]), CONFLICT);
        assert!(unit.persistent.is_some());
        let told = if rtype >= 3 { vec![(0, 4), (11, 4)] } else { vec![] };
        assert_eq!(ask(&mut unit, 10, release, [5, 0]), Ok((told, vec![])));
        assert_eq!(unit.persistent, None);
        assert_eq!(ask(&mut unit, 10, release, [5, 0]), GOOD);
    }
    assert_eq!(unit.generation, 3, "none of this counts");
}

/// A host preempts nexuses and hosts alike, and is preempted; the victims learn of it, and their commands aborted if asked
/// for; zero is a key only where all registrants hold the reservation.
#[test]
fn victims_are_of_either_protocol() {
    let mut unit = with(&[(0, 5), (1, 6), (10, 5), (11, 7)]);
    answer(send(&mut unit, 0, RESERVE, 1, &basic(5, 0, 0))).unwrap();
    let preempt = out(HostAction::PreemptAndAbort, 2);
    assert_eq!(ask(&mut unit, 11, preempt, [7, 0]), FIELD, "zero, and one holder");
    assert_eq!(ask(&mut unit, 11, preempt, [7, 99]), CONFLICT, "no registrant has that key");
    let victims = vec![(1, 4), (0, 5), (10, 5)];
    assert_eq!(ask(&mut unit, 11, preempt, [7, 5]), Ok((victims, vec![0, 10])));
    assert_eq!((keys(&unit), unit.generation), (vec![(1, 6), (11, 7)], 5));
    assert!(unit.holds(who(11).borrowed()));
    // A nexus takes it back.
    let taken = answer(send(&mut unit, 1, PREEMPT_AND_ABORT, 8, &basic(6, 7, 0)));
    assert_eq!(taken, Ok((vec![(11, 5)], vec![11])));
    // All registrants hold it: the key zero takes them all.
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [0, 3]), GOOD);
    let all = ask(&mut unit, 10, out(HostAction::Preempt, 6), [3, 0]);
    assert_eq!(all, Ok((vec![(1, 5)], vec![])));
    assert_eq!(keys(&unit), [(10, 3)]);
    answer(send(&mut unit, 0, REGISTER, 0, &basic(0, 4, 0))).unwrap();
    let cleared = ask(&mut unit, 10, out(HostAction::Clear, 0), [3, 0]);
    assert_eq!(cleared, Ok((vec![(0, 3)], vec![])));
    assert!(unit.keys.is_empty() && unit.persistent.is_none());
}

/// RESERVE(6) of a nexus shuts hosts out, and conflicts with what they ask for.
#[test]
fn reserve_6_shuts_hosts_out() {
    let mut unit = Reservations::default();
    unit.reserve(&nexus(0)).unwrap();
    for action in [
        HostAction::Register,
        HostAction::Replace,
        HostAction::Unregister,
        HostAction::Acquire,
        HostAction::Preempt,
        HostAction::PreemptAndAbort,
        HostAction::Release,
        HostAction::Clear,
    ] {
        assert_eq!(ask(&mut unit, 10, out(action, 1), [0, 1]), CONFLICT, "{action:?}");
    }
    let persist = HostOut { persistence: Some(true), ..out(HostAction::Persist, 0) };
    assert_eq!(ask(&mut unit, 10, persist, [0, 0]), GOOD, "a feature is free");
    for access in [Access::Read, Access::Write] {
        assert!(!unit.permits(Some(who(10).borrowed()), access));
    }
    unit.reset();
    assert_eq!(ask(&mut unit, 10, REGISTER_KEY, [0, 1]), GOOD);
    assert_eq!(unit.reserve(&nexus(0)), Err(Refusal::Conflict));
}

/// Registering sets the persistence, or leaves it; where it cannot be had it is not given, and only the feature that
/// sets nothing else says so.
#[test]
fn persistence_is_set() {
    let mut unit = Reservations::default();
    let with = |persistence| HostOut { persistence, ..REGISTER_KEY };
    for (persistence, survives) in
        [(None, false), (Some(true), true), (None, true), (Some(false), false)]
    {
        assert_eq!(ask(&mut unit, 10, with(persistence), [0, 1]), GOOD);
        assert_eq!(unit.survives(), survives, "{persistence:?}");
    }
    assert_eq!(ask_with(&mut unit, 10, with(Some(true)), [0, 1], false), GOOD);
    assert!(!unit.survives());
    let generation = unit.generation;
    let persist = |on| HostOut { persistence: Some(on), ..out(HostAction::Persist, 0) };
    assert_eq!(ask_with(&mut unit, 11, persist(true), [0; 2], false), FIELD);
    assert_eq!(ask(&mut unit, 11, persist(true), [0; 2]), GOOD);
    assert!(unit.survives());
    assert_eq!(ask(&mut unit, 11, persist(false), [0; 2]), GOOD);
    assert_eq!((unit.survives(), unit.generation), (false, generation));
}

/// A report has an entry for each registrant, and each protocol finds something for the other's.
#[test]
fn registrants_are_reported() {
    let mut unit = with(&[(0, 5), (10, 0x0102)]);
    let persist = HostOut { persistence: Some(true), ..out(HostAction::Replace, 0) };
    ask(&mut unit, 10, persist, [0x0102, 0x0304]).unwrap();
    ask(&mut unit, 10, out(HostAction::Acquire, 4), [0x0304, 0]).unwrap();
    let report = unit.host_report();
    assert_eq!(report.len(), 3 * 64);
    assert_eq!(report[..12], [3, 0, 0, 0, 4, 2, 0, 0, 0, 1, 0, 0]);
    let (scsi, nvme) = (&report[64..128], &report[128..]);
    assert_eq!(scsi[..16], [0xff, 0xff, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(nvme[..16], [0xff, 0xff, 1, 0, 0, 0, 0, 0, 4, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(nvme[16..32], host(10));
    // Always the same, and for each nexus another one.
    assert_eq!(unit.host_report()[80..96], scsi[16..32]);
    let other = with(&[(1, 5)]).host_report();
    assert_ne!(other[80..96], scsi[16..32]);
    assert_ne!(scsi[16..32], [0; 16]);
    let status = unit.persistent_in(3, u32::MAX).unwrap();
    let id = &status[status.len() - 24..];
    assert_eq!((id[0], &id[4..20], &id[20..]), (0x0f, &host(10)[..], &[0; 4][..]));
    assert_eq!(transport_id::take(id), None, "a reservation cannot be moved to it");
    assert_eq!(unit.persistent_in(0, 100).unwrap()[4..8], [0, 0, 0, 16], "two keys");
    assert_eq!(Reservations::default().host_report(), [0; 64]);
}

/// Without NVMe hosts older releases read what is stored; with them it has another version, in one form only.
#[test]
fn hosts_are_stored() {
    let mut unit = with(&[(0, 5)]);
    send(&mut unit, 0, REGISTER, 0, &basic(5, 5, 1)).unwrap();
    assert_eq!(unit.encode()[..8], *b"weir-pr\x01");
    ask(&mut unit, 10, REGISTER_KEY, [0, 6]).unwrap();
    ask(&mut unit, 11, REGISTER_KEY, [0, 7]).unwrap();
    ask(&mut unit, 11, out(HostAction::Acquire, 1), [7, 0]).unwrap();
    let good = unit.encode();
    assert_eq!(good[..8], *b"weir-pr\x02");
    assert_eq!(Reservations::decode(&good), Ok(Reservations { generation: 0, ..unit.clone() }));
    let last = good.len() - 26;
    assert_eq!(good[last..last + 10], [0, 0, 0, 0, 0, 0, 0, 7, 1, 1]);
    assert_eq!(good[last + 10..], host(11));
    let damaged = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Reservations::decode(&bytes).unwrap_err()
    };
    assert_eq!(damaged(last + 9, 2), DecodeError::Value { at: last + 9 });
    assert_eq!(damaged(last + 10, 9), DecodeError::Order { at: last });
    ask(&mut unit, 10, out(HostAction::Unregister, 0), [6, 0]).unwrap();
    ask(&mut unit, 11, out(HostAction::Unregister, 0), [7, 0]).unwrap();
    let mut bytes = unit.encode();
    assert_eq!(bytes[7], 1);
    bytes[7] = 2;
    bytes[11] += 1;
    bytes.insert(25, 0);
    assert_eq!(Reservations::decode(&bytes), Err(DecodeError::Value { at: 7 }));
}

/// A step that both protocols have, of one of four.
#[derive(Clone, Copy, Debug)]
struct Step {
    from: u8,
    action: HostAction,
    rtype: u8,
    right_key: bool,
    key: u64,
    ignores_key: bool,
    aptpl: bool,
}

fn any_step() -> impl Strategy<Value = Step> {
    let action = prop::sample::select(vec![
        HostAction::Replace,
        HostAction::Replace,
        HostAction::Acquire,
        HostAction::Acquire,
        HostAction::Preempt,
        HostAction::PreemptAndAbort,
        HostAction::Release,
        HostAction::Clear,
    ]);
    let flags = (prop::bool::weighted(0.9), any::<bool>(), any::<bool>());
    (0..4_u8, action, 1..=6_u8, flags, 0..4_u64).prop_map(
        |(from, action, rtype, (right_key, ignores_key, aptpl), key)| Step {
            from,
            action,
            rtype,
            right_key,
            key,
            ignores_key,
            aptpl,
        },
    )
}

/// Does a step in the words of SCSI.
fn as_nexus(unit: &mut Reservations, step: Step, known: u64, key: u64) -> Answer {
    let kind = [1, 3, 5, 6, 7, 8][usize::from(step.rtype) - 1];
    let aptpl = u8::from(step.aptpl);
    let (action, list) = match step.action {
        HostAction::Replace if step.ignores_key || known == 0 => {
            (REGISTER_AND_IGNORE, basic(0, step.key, aptpl))
        }
        HostAction::Replace => (REGISTER, basic(key, step.key, aptpl)),
        HostAction::Acquire => (RESERVE, basic(key, 0, 0)),
        HostAction::Preempt => (PREEMPT, basic(key, step.key, 0)),
        HostAction::PreemptAndAbort => (PREEMPT_AND_ABORT, basic(key, step.key, 0)),
        HostAction::Release => (RELEASE, basic(key, 0, 0)),
        _ => (CLEAR, basic(key, 0, 0)),
    };
    let wrong_type = Sense::INVALID_RELEASE_OF_PERSISTENT_RESERVATION.into();
    match send(unit, step.from, action, kind, &list) {
        Err(refusal) if refusal == wrong_type => CONFLICT,
        other => answer(other),
    }
}

/// Does a step in the words of NVMe.
fn as_host(unit: &mut Reservations, step: Step, known: u64, key: u64) -> Answer {
    let Step { action, rtype, ignores_key, aptpl, .. } = step;
    let is_new = action == HostAction::Replace && known == 0;
    let action = if is_new { HostAction::Register } else { action };
    let persistence = (action == HostAction::Replace || is_new).then_some(aptpl);
    let out = HostOut { action, rtype, ignores_key, persistence };
    ask(unit, 10 + step.from, out, [key, step.key])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Four nexuses, and two nexuses with two hosts, that do the same get the same answers, and what they do to each
    /// other is the same.
    #[test]
    fn hosts_are_as_nexuses(steps in prop::collection::vec(any_step(), 1..40)) {
        let (mut scsi, mut mixed) = (Reservations::default(), Reservations::default());
        let as_mixed = |number: u8| if number < 2 { number } else { 10 + number };
        for step in steps {
            let known = scsi.keys.get(who(step.from).borrowed()).unwrap_or(0);
            if step.action == HostAction::Replace && known == 0 && step.key == 0 {
                // Nothing for SCSI, and an error for NVMe.
                continue;
            }
            let key = if step.right_key { known } else { 3 - known };
            let due = as_nexus(&mut scsi, step, known, key).map(|(mut told, mut aborts)| {
                for (number, _) in &mut told {
                    *number = as_mixed(*number);
                }
                for number in &mut aborts {
                    *number = as_mixed(*number);
                }
                (told, aborts)
            });
            let done = if step.from < 2 {
                as_nexus(&mut mixed, step, known, key)
            } else {
                as_host(&mut mixed, step, known, key)
            };
            prop_assert_eq!(done, due, "{:?}", step);
            prop_assert_eq!(mixed.generation, scsi.generation);
            prop_assert_eq!(mixed.survives, scsi.survives);
            let kind = |unit: &Reservations| unit.persistent.as_ref().map(|held| held.kind);
            prop_assert_eq!(kind(&mixed), kind(&scsi));
            for number in 0..4 {
                let (one, other) = (who(number), who(as_mixed(number)));
                let (one, other) = (one.borrowed(), other.borrowed());
                prop_assert_eq!(mixed.keys.get(other), scsi.keys.get(one));
                prop_assert_eq!(mixed.holds(other), scsi.holds(one));
                for access in [Access::Read, Access::Write] {
                    prop_assert_eq!(mixed.permits(Some(other), access), scsi.permits(Some(one), access));
                }
            }
            if mixed.survives {
                let kept = Reservations { generation: mixed.generation, ..Reservations::decode(&mixed.encode()).unwrap() };
                prop_assert_eq!(&kept, &mixed);
            }
        }
    }
}
