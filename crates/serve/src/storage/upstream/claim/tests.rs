//! Claims against a target that follows SPC-4, at every point at which another gateway may interfere.

use super::*;
use std::collections::BTreeMap;

const GOOD: (u8, Sense) = (0, Sense { deferred: false, key: 0, asc: 0, ascq: 0 });
const CONFLICT: (u8, Sense) = (0x18, Sense { deferred: false, key: 0, asc: 0, ascq: 0 });
const REFUSED: (u8, Sense) = (2, Sense { deferred: false, key: 5, asc: 0x24, ascq: 0 });
const UNKNOWN: (u8, Sense) = (2, Sense { deferred: false, key: 5, asc: 0x20, ascq: 0 });
const ATTENTION: (u8, Sense) = (2, Sense { deferred: false, key: 6, asc: 0x2a, ascq: 5 });

/// Paths of two gateways to one unit.
const A: [u8; 2] = [0, 1];
const B: [u8; 2] = [2, 3];

/// A unit with reservations for registrants only (SPC-4, 5.13).
#[derive(Default)]
struct Unit {
    generation: u32,
    keys: BTreeMap<u8, u64>,
    holder: Option<u8>,
    /// It does not know APTPL, PREEMPT AND ABORT, or reservations at all.
    forgets: bool,
    no_abort: bool,
    none: bool,
}

impl Unit {
    fn take(&mut self, path: u8, order: &Order) -> ((u8, Sense), Vec<u8>) {
        let end = |end| (end, Vec::new());
        if self.none {
            return end(UNKNOWN);
        }
        if order.cdb[0] == 0x5e {
            let rest: Vec<u8> = match order.cdb[1] {
                0 => self.keys.values().flat_map(|key| key.to_be_bytes()).collect(),
                _ => self.holder.map_or_else(Vec::new, |holder| {
                    [&self.keys[&holder].to_be_bytes()[..], &[0, 0, 0, 0, 0, 5, 0, 0]].concat()
                }),
            };
            let head = [self.generation.to_be_bytes(), (rest.len() as u32).to_be_bytes()].concat();
            return (GOOD, [head, rest].concat());
        }
        let list = order.list.expect("every other command has one");
        let (own, other) = (number(&list[..8]), number(&list[8..16]));
        if order.cdb[1] == 6 {
            if list[20] == 1 && self.forgets {
                return end(REFUSED);
            }
            match other {
                0 => {
                    self.keys.remove(&path);
                    self.holder = self.holder.filter(|&holder| holder != path);
                }
                key => drop(self.keys.insert(path, key)),
            }
            self.generation += 1;
            return end(GOOD);
        }
        if self.keys.get(&path) != Some(&own) {
            return end(CONFLICT);
        }
        match order.cdb[1] {
            1 if self.holder.is_none_or(|holder| holder == path) => self.holder = Some(path),
            1 => return end(CONFLICT),
            3 => (self.keys, self.holder) = (BTreeMap::new(), None),
            4 | 5 => {
                if order.cdb[1] == 5 && self.no_abort {
                    return end(REFUSED);
                }
                if !self.keys.values().any(|&key| key == other) {
                    return end(CONFLICT);
                }
                if self.holder.is_some_and(|holder| self.keys[&holder] == other) {
                    self.holder = Some(path);
                }
                self.keys.retain(|&one, key| one == path || *key != other);
            }
            action => panic!("no claim sends {action}"),
        }
        self.generation += 1;
        end(GOOD)
    }

    /// Whether a path may write.
    fn admits(&self, path: u8) -> bool {
        self.holder.is_none() || self.keys.contains_key(&path)
    }
}

fn owner(id: u64, dirty: bool, expected: &[u64]) -> Owner {
    Owner::new(id, dirty, expected.to_vec())
}

/// One command of a claim; true when it is over.
fn step(unit: &mut Unit, path: u8, owner: &mut Owner, claim: &mut Claim) -> Result<bool, Denied> {
    let Some(order) = claim.order(owner) else { return Ok(true) };
    let (end, answer) = unit.take(path, &order);
    claim.answered(owner, end, &answer)?;
    Ok(claim.order(owner).is_none())
}

fn claim(unit: &mut Unit, path: u8, owner: &mut Owner) -> Result<(), Denied> {
    let mut claim = Claim::new();
    while !step(unit, path, owner, &mut claim)? {}
    Ok(())
}

fn held(unit: &Unit) -> u64 {
    unit.keys[&unit.holder.expect("it is reserved")]
}

/// A unit without an owner is claimed on all paths, and only its owner writes then.
#[test]
fn the_first_one_owns_it() {
    let (mut unit, mut a, mut b) = (Unit::default(), owner(1, false, &[]), owner(2, false, &[]));
    for path in A {
        claim(&mut unit, path, &mut a).expect("it is free");
    }
    assert_eq!((held(&unit), a.key), (0x1_0000_0000_0001, a.key));
    for path in B {
        let denied = claim(&mut unit, path, &mut b).expect_err("it is taken");
        assert_eq!(denied, Denied::Held { key: held(&unit), kind: Some(5) });
    }
    assert_eq!([0, 1, 2, 3].map(|path| unit.admits(path)), [true, true, false, false]);
    assert_eq!(unit.keys.len(), 2, "a refusal leaves no trace");
}

/// A gateway that comes again knows itself by any of its keys, on any path, with any log; the
/// one before it, should it still be there, writes no more.
#[test]
fn a_gateway_knows_itself() {
    let (mut unit, mut a) = (Unit::default(), owner(1, false, &[]));
    for path in A {
        claim(&mut unit, path, &mut a).expect("it is free");
    }
    let mut again = owner(1, true, &[]);
    claim(&mut unit, 7, &mut again).expect("it is its own");
    assert_eq!(held(&unit), 0x2_0000_0000_0001);
    assert_eq!([0, 1, 7].map(|path| unit.admits(path)), [false, false, true]);
    claim(&mut unit, 0, &mut again).expect("so is this path");
    assert_eq!([0, 1, 7].map(|path| unit.admits(path)), [true, false, true]);
    let denied = claim(&mut unit, 1, &mut a).expect_err("the older one has lost it");
    assert_eq!(denied, Denied::Held { key: held(&unit), kind: Some(5) });
    assert!(!unit.admits(1));
}

/// A gateway takes over from the owner that the operator names, on all paths; another name is refused, and so is one
/// whose log is from before.
#[test]
fn a_person_decides_who_gives_way() {
    let (mut unit, mut a) = (Unit::default(), owner(1, true, &[]));
    for path in A {
        claim(&mut unit, path, &mut a).expect("it is free");
    }
    let key = held(&unit);
    let mut wrong = owner(2, false, &[key + 1]);
    assert_eq!(claim(&mut unit, 2, &mut wrong), Err(Denied::Held { key, kind: Some(5) }));
    let mut stale = owner(2, true, &[key]);
    assert_eq!(claim(&mut unit, 2, &mut stale), Err(Denied::Dirty { key }));
    let mut b = owner(2, false, &[key]);
    for path in B {
        claim(&mut unit, path, &mut b).expect("a person has decided so");
    }
    assert_eq!(held(&unit), 0x2_0000_0000_0002);
    assert_eq!([0, 1, 2, 3].map(|path| unit.admits(path)), [false, false, true, true]);
    // The old owner finds out on any path, and leaves no trace.
    let denied = claim(&mut unit, 0, &mut a).expect_err("another gateway has it");
    assert_eq!(denied, Denied::Held { key: held(&unit), kind: Some(5) });
    assert!(!unit.admits(0));
    // The word that was given for the old key is worth nothing for the next.
    let mut c = owner(3, false, &[key]);
    assert!(claim(&mut unit, 5, &mut c).is_err());
}

/// A grant is good while its key holds the unit, and for no other state of it: not when the owner has claimed the unit
/// again, and not when the target has forgotten the reservation.
#[test]
fn a_grant_is_of_one_key() {
    let (mut unit, mut a, mut b) = (Unit::default(), owner(1, false, &[]), owner(2, false, &[]));
    for path in A {
        claim(&mut unit, path, &mut a).expect("it is free");
    }
    let given = held(&unit);
    // The grant is not used in time: the owner claims from its own key.
    a.revoke();
    claim(&mut unit, 0, &mut a).expect("its key holds the unit");
    assert_ne!(held(&unit), given);
    b.grant(given);
    let holder = Some(held(&unit));
    assert_eq!(claim(&mut unit, 2, &mut b), Err(Denied::NotGranted { given, holder }));
    assert_eq!(unit.keys.len(), 1, "a refusal leaves no trace");

    let given = held(&unit);
    a.turn = Turn::Given;
    b.grant(given);
    for path in B {
        claim(&mut unit, path, &mut b).expect("the grant is good");
    }
    assert_eq!([0, 1, 2, 3].map(|path| unit.admits(path)), [false, false, true, true]);
    // The old owner made the grant void too late.
    a.revoke();
    let holder = Some(held(&unit));
    assert_eq!(claim(&mut unit, 0, &mut a), Err(Denied::NotGranted { given, holder }));

    // A target that has forgotten the unit's owner: neither gateway takes the unit because of a grant.
    let mut unit = Unit::default();
    let mut owner_before = owner(1, false, &[]);
    claim(&mut unit, 0, &mut owner_before).expect("it is free");
    let given = held(&unit);
    owner_before.turn = Turn::Given;
    unit = Unit::default();
    b.grant(given);
    let nothing = Err(Denied::NotGranted { given, holder: None });
    assert_eq!(claim(&mut unit, 2, &mut b), nothing);
    assert_eq!(claim(&mut unit, 0, &mut owner_before), nothing);
}

/// Two paths of one gateway, and one of another that takes over, in every order of their commands: afterwards at most
/// one of them may write, and a gateway that believes that it owns the unit and has lost it cannot.
#[test]
fn every_order_of_commands_leaves_one_owner() {
    for pattern in 0..3_u32.pow(TURNS) {
        let mut unit = Unit::default();
        let mut before = owner(1, false, &[]);
        claim(&mut unit, 0, &mut before).expect("it is free");
        let (mut a, mut b) = (owner(1, true, &[]), owner(2, false, &[held(&unit)]));
        let mut paths = [0, 1, 2].map(|path| (path, Claim::new(), None));
        let mut first = None;
        let pattern_turns = (0..TURNS).map(|place| pattern / 3_u32.pow(place) % 3);
        // The pattern, and then the paths that are left.
        for turn in pattern_turns.chain((0..60).map(|turn| turn % 3)) {
            let (path, claim, end) = &mut paths[turn as usize];
            let owner = if turn < 2 { &mut a } else { &mut b };
            if end.is_none() {
                *end = match step(&mut unit, *path, owner, claim) {
                    Ok(false) => None,
                    Ok(true) => {
                        // The first owner stays the owner: the other would not know what was written.
                        let who = turn < 2;
                        assert_eq!(*first.get_or_insert(who), who, "{pattern}");
                        Some(Ok(()))
                    }
                    Err(denied) => Some(Err(denied)),
                };
            }
        }
        let writes = |turn: usize| paths[turn].2 == Some(Ok(())) && unit.admits(paths[turn].0);
        let ends = || paths.each_ref().map(|(.., end)| end.clone());
        let (one, other) = (writes(0) || writes(1), writes(2));
        assert!(one != other, "{pattern}: {:?}", ends());
        let key = Some(held(&unit));
        assert_eq!(key, if one { a.key } else { b.key }, "{pattern}: {:?}", ends());
        assert!(unit.keys.values().all(|&one| Some(one) == key), "{pattern}: {:?}", unit.keys);
    }
}

/// Commands whose order is tried.
const TURNS: u32 = 9;

/// A unit that was ours and is free: it is claimed again if no gateway has registered since the target lost its
/// memory; otherwise only if nothing of ours could go over what others wrote, or a person says so.
#[test]
fn nobodys_unit_is_not_taken_back_blindly() {
    let lost = || Unit { generation: 9, ..Unit::default() };
    let gone = Denied::Gone { generation: 9 };
    assert_eq!(claim(&mut lost(), 0, &mut owner(1, true, &[])), Err(gone.clone()));
    claim(&mut lost(), 0, &mut owner(1, true, &[0])).expect("a person says so");
    claim(&mut lost(), 0, &mut owner(1, false, &[])).expect("there is nothing to lose");
    claim(&mut Unit::default(), 0, &mut owner(1, true, &[])).expect("it is free");

    // The same while it serves.
    let (mut unit, mut a) = (Unit::default(), owner(1, true, &[]));
    claim(&mut unit, 0, &mut a).expect("it is free");
    unit = Unit::default();
    for path in A {
        claim(&mut unit, path, &mut a).expect("the target was restarted");
    }
    assert_eq!(Some(held(&unit)), a.key);
    unit = lost();
    assert_eq!(claim(&mut unit, 0, &mut a), Err(gone));
    assert!(unit.keys.is_empty());
}

/// A gateway that has registered without a reservation, as one that is about to take over, is not overlooked: before
/// the unit is reserved it must be named, and afterwards the owner shuts it out when it comes again.
#[test]
fn registrations_count() {
    let mut unit = Unit { generation: 1, keys: [(9, 77)].into(), ..Unit::default() };
    let denied = Denied::Held { key: 77, kind: None };
    assert_eq!(claim(&mut unit, 0, &mut owner(1, false, &[])), Err(denied));
    claim(&mut unit, 0, &mut owner(1, false, &[77])).expect("a person has decided so");
    assert!(!unit.admits(9));
    unit.keys.insert(9, 77);
    claim(&mut unit, 0, &mut owner(1, true, &[])).expect("it is its own");
    assert!(!unit.admits(9));
}

/// What a target does not know is done without where that is safe, and named where it is not.
#[test]
fn targets_without_parts_of_it() {
    let mut unit = Unit { forgets: true, no_abort: true, ..Unit::default() };
    claim(&mut unit, 0, &mut owner(1, false, &[])).expect("it remembers while it runs");
    // Two paths at once, of which one hears after the other that there is something that the target does not know.
    let mut b = owner(2, false, &[held(&unit)]);
    let mut claims = B.map(|path| (path, Claim::new(), false));
    for _ in 0..20 {
        for (path, claim, done) in &mut claims {
            *done = *done || step(&mut unit, *path, &mut b, claim).expect("by PREEMPT");
        }
    }
    assert!(claims.iter().all(|&(.., done)| done) && B.iter().all(|&path| unit.admits(path)));
    assert_eq!((held(&unit), unit.admits(0)), (b.key.expect("it owns it"), false));

    let mut unit = Unit { none: true, ..Unit::default() };
    let denied = claim(&mut unit, 0, &mut owner(1, false, &[])).expect_err("it has none");
    assert!(matches!(denied, Denied::Unsupported(_)), "{denied}");
}

/// Unit attentions are no answers; answers that cannot be, or are cut off, end the claim.
#[test]
fn answers_are_read_with_care() {
    let mut a = owner(1, false, &[]);
    let mut claim = Claim::new();
    for _ in 0..AGAIN_MAX {
        claim.answered(&mut a, ATTENTION, &[]).expect("it is asked again");
    }
    assert!(claim.answered(&mut a, ATTENTION, &[]).is_err());
    assert_eq!(claim.order(&a), Some(look()));
    assert_eq!(holder_of(&[0, 0, 0, 4, 0, 0, 0, 0]), Ok((4, None)));
    let whole = [&[0, 0, 0, 4, 0, 0, 0, 16][..], &[0; 7], &[9, 0, 0, 0, 0, 0, 0x05, 0, 0]].concat();
    assert_eq!(holder_of(&whole), Ok((4, Some(Holder { key: 9, kind: 5 }))));
    for length in 0..whole.len() {
        assert!(holder_of(&whole[..length]).is_err(), "{length}");
    }
    assert!(keys_of(&[0, 0, 0, 4, 0, 0, 0, 16, 0, 0]).is_err(), "a registrant may be hidden");
    assert!(keys_of(&[0, 0, 0, 4, 0, 0, 0, 3, 0, 0, 0]).is_err());
    assert_eq!(next_key(0xffff, 5), 0x1_0000_0000_0005, "epochs begin again, without 0");
}
