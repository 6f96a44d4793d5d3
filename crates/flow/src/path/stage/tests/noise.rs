//! Healthy paths stay: pauses and changes of the load eject no path, and a repaired path returns soon.

use super::rig::Rig;
use super::{SECOND, at};
use crate::clock::Duration;
use crate::path::{POLICIES, Settings, State};

/// Two equal paths that do eight I/Os at once, under the load of 16 hosts.
fn loaded(policy: &str) -> Rig {
    let mut rig = Rig::with(policy, &[0, 0], Settings::default());
    rig.fates.iter_mut().for_each(|fate| fate.servers = 8);
    rig.fixed = Duration::from_micros(500);
    rig.random = true;
    rig.hosts(16);
    rig.run_until(at(500));
    rig
}

/// A pause of one path delays everything in flight there. However many I/Os that are, it is one event, and no such
/// pause ejects a path.
#[test]
fn a_pause_of_a_path_is_one_event() {
    for policy in POLICIES {
        let mut rig = loaded(policy.name);
        for pause in 0..30 {
            let time = Duration::from_micros(2_000 + rig.rng.below(40_000));
            rig.pause(pause % 2, time);
            rig.run_for(time + Duration::from_millis(30));
        }
        assert_eq!(rig.ejections(at(0)), 0, "{}", policy.name);
    }
}

/// A pause of the gateway's machine delays all paths alike and ejects none.
#[test]
fn a_pause_of_the_machine_ejects_nobody() {
    for policy in POLICIES {
        let mut rig = loaded(policy.name);
        for _ in 0..30 {
            let time = Duration::from_micros(2_000 + rig.rng.below(90_000));
            rig.pause_machine(time);
            rig.run_for(Duration::from_millis(20));
        }
        assert_eq!(rig.ejections(at(0)), 0, "{}", policy.name);
    }
}

/// When hosts change the size of their I/Os, from one moment to the next or from one I/O to the next, no path is
/// ejected.
#[test]
fn a_change_of_size_ejects_nobody() {
    for policy in POLICIES {
        for servers in [1, 8] {
            let mut rig = loaded(policy.name);
            rig.fates.iter_mut().for_each(|fate| fate.servers = servers);
            rig.fixed = Duration::from_micros(100);
            for sizes in [&[4][..], &[1_024], &[64], &[4, 1_024], &[4], &[256, 1_024]] {
                rig.sizes = sizes.to_vec();
                rig.run_for(Duration::from_millis(300));
            }
            assert_eq!(rig.ejections(at(0)), 0, "{}, {servers} at once", policy.name);
        }
    }
}

/// A path that was twenty times slower for a while is in use again within three seconds of its repair, also where it
/// does many I/Os at once, so that a single probe takes longer than its share of a full load.
#[test]
fn a_repaired_path_returns_within_seconds() {
    for policy in POLICIES {
        let mut rig = loaded(policy.name);
        rig.eject(1);
        rig.run_for(SECOND * 3);
        let repaired = rig.now;
        rig.fates[1].factor = 1;
        rig.run_for(SECOND * 5);
        let back = rig.became(repaired, 1, State::Active);
        let back = back.unwrap_or_else(|| panic!("{}: it does not return", policy.name));
        assert!(back.since(repaired) < SECOND * 5, "{}: {}", policy.name, back.since(repaired));
        assert_eq!(rig.ejections(repaired), 0, "{}", policy.name);
    }
}

/// Behind a long queue on the best path a slow path's probes look good. It is tried, ejected again, and then needs
/// more good probes each time: it carries next to nothing.
#[test]
fn a_relapse_takes_longer() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(64);
    rig.run_until(at(1_000));
    rig.fates[1].factor = 20;
    rig.run_until(at(60_000));
    let share = rig.share(1, at(2_000), at(60_000));
    assert!(share <= 1, "{share} %");
    assert!(rig.ejections(at(0)) <= 6, "{} times", rig.ejections(at(0)));
}
