//! Tests of the reservations that survive a loss of power.

use proptest::prelude::*;

use super::*;

fn any_unit() -> impl Strategy<Value = Reservations> {
    let nexus =
        (any::<[u8; 6]>(), "[a-z.:é]{1,30}", "[a-z]{1,9}").prop_map(|(isid, name, target)| {
            Registrant::Scsi(Nexus { initiator: InitiatorPort { name, isid }, target })
        });
    let who = prop_oneof![2 => nexus, 1 => any::<[u8; 16]>().prop_map(Registrant::Nvme)];
    let keys = prop::collection::vec((who, 1..=u64::MAX), 0..6);
    (keys, 0..6_usize, any::<prop::sample::Index>(), any::<u32>(), any::<bool>()).prop_map(
        |(keys, kind, holder, generation, survives)| {
            let mut all = Keys::default();
            for (who, key) in keys {
                all.insert(who, key);
            }
            let keys = all;
            let kind = Kind::from_code([1, 3, 5, 6, 7, 8][kind]).unwrap();
            let held = !keys.is_empty() && generation % 3 > 0;
            let persistent = held.then(|| {
                let holder = keys.iter().nth(holder.index(keys.len())).map(|(who, _)| who.owned());
                Persistent { kind, holder: holder.filter(|_| !kind.is_all_registrants()) }
            });
            Reservations { keys, persistent, reserved: None, generation, survives }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// With APTPL everything but the generation comes back; without it nothing does.
    #[test]
    fn states_survive(unit in any_unit()) {
        let due = if unit.survives {
            Reservations { generation: 0, ..unit.clone() }
        } else {
            Reservations::default()
        };
        prop_assert_eq!(Reservations::decode(&unit.encode()), Ok(due));
    }

    /// Damage is refused, or leads to another state that is whole: never to a panic.
    #[test]
    fn damage_is_refused(
        unit in any_unit(),
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = unit.encode();
        let cut = cut.index(bytes.len());
        let error = Reservations::decode(&bytes[..cut]).unwrap_err();
        let named = matches!(
            error,
            DecodeError::Foreign | DecodeError::CutOff { .. } | DecodeError::Length { .. }
        );
        prop_assert!(named, "{error:?}");
        for (at, value) in hits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Ok(state) = Reservations::decode(&bytes) {
            prop_assert_eq!(state.encode(), bytes);
        }
    }
}

/// Each kind of damage has its own name and place.
#[test]
fn damage_is_named() {
    let mut unit = registered(&[(0, 10), (1, 11)]);
    send(&mut unit, 0, REGISTER, 0, &basic(10, 10, 1)).unwrap();
    send(&mut unit, 0, RESERVE, 1, &basic(10, 0, 0)).unwrap();
    let good = unit.encode();
    let entry = (good.len() - 16) / 2;
    let damaged = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Reservations::decode(&bytes).unwrap_err()
    };
    assert_eq!(damaged(0, b'W'), DecodeError::Foreign);
    assert_eq!(Reservations::decode(&[]), Err(DecodeError::Foreign));
    assert_eq!(damaged(7, 3), DecodeError::Version { found: 3 });
    assert_eq!(damaged(7, 0), DecodeError::Version { found: 0 });
    assert_eq!(
        damaged(9, 1),
        DecodeError::Length { said: 0x1_0000 + good.len(), found: good.len() }
    );
    assert_eq!(damaged(12, 2), DecodeError::Value { at: 12 });
    assert_eq!(damaged(12, 0), DecodeError::Value { at: 13 });
    assert_eq!(damaged(13, 2), DecodeError::Value { at: 13 });
    assert_eq!(damaged(14, 1), DecodeError::Value { at: 14 });
    assert_eq!(damaged(15, 3), DecodeError::CutOff { at: good.len() });
    assert_eq!(damaged(15, 1), DecodeError::Surplus { at: 16 + entry });
    assert_eq!(damaged(23, 0), DecodeError::Value { at: 16 });
    assert_eq!(damaged(31, 1), DecodeError::Value { at: 31 }, "a name that is too long");
    assert_eq!(damaged(33, 0xff), DecodeError::Value { at: 31 }, "a name that is no text");
    assert_eq!(damaged(61, b'2'), DecodeError::Order { at: 16 + entry });
    let holders = |kind, holders| DecodeError::Holders { kind, holders, registrations: 2 };
    assert_eq!(damaged(24, 0), holders(1, 0));
    assert_eq!(damaged(24 + entry, 1), holders(1, 2));
    assert_eq!(damaged(13, 0), holders(0, 1));
    assert_eq!(damaged(13, 7), holders(7, 1));
    // Registrations where nothing survives, and holders without a registration.
    let mut bytes = registered(&[(0, 10)]).encode();
    bytes[15] = 1;
    assert_eq!(Reservations::decode(&bytes), Err(DecodeError::Value { at: 14 }));
    bytes[12..16].copy_from_slice(&[1, 7, 0, 0]);
    let nobody = DecodeError::Holders { kind: 7, holders: 0, registrations: 0 };
    assert_eq!(Reservations::decode(&bytes), Err(nobody));
    assert_eq!(
        damaged(13, 7).to_string(),
        "a stored reservation of type 7 with 1 single holders and 2 registrations"
    );
}

/// Saving is asked for exactly when what survives differs.
#[test]
fn a_save_is_asked_for_when_it_matters() {
    let mut unit = registered(&[(0, 10)]);
    let mut saves = |action, key, action_key, flags| {
        let out = Out { action, scope: 0, kind: 1, list_length: 24 };
        let change = unit.persistent_out(&nexus(0), out, &basic(key, action_key, flags)).unwrap();
        unit = change.next;
        change.save
    };
    assert!(!saves(RESERVE, 10, 0, 0), "nothing survives yet");
    assert!(saves(REGISTER, 10, 10, 1));
    assert!(!saves(REGISTER, 10, 10, 1), "the same again");
    assert!(!saves(RESERVE, 10, 0, 0), "the same again");
    assert!(saves(RELEASE, 10, 0, 0));
    assert!(saves(RESERVE, 10, 0, 1));
    assert!(saves(REGISTER, 10, 11, 0), "nothing survives any more");
    assert!(!saves(CLEAR, 11, 0, 0));
}
