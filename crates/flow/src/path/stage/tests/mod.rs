//! The stage against paths that fail, are slow, are silent, and come back.

mod noise;
mod rig;
mod storm;

use crate::clock::{Duration, Instant};
use crate::path::{Access, Failback, POLICIES, PathOrder, Settings, State, Why};
use crate::request::PathId;
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use rig::Rig;

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(millis)
}

/// A path that goes silent under load delays no request for a second, be it reads or writes, whatever
/// the selector; what is on it is known to be dead before a write goes the other way, and when it
/// answers again it is used again.
#[test]
fn a_silent_path_stalls_nobody_for_a_second() {
    for policy in POLICIES {
        for (read_percent, slower) in [(0, 1), (100, 1), (50, 100)] {
            let mut rig = Rig::with(policy.name, &[0, 0], Settings::default());
            rig.read_percent = read_percent;
            rig.fixed = rig.fixed * slower;
            rig.hosts(8);
            rig.run_until(at(2_000));
            rig.fates[0].silent = true;
            rig.run_until(at(6_000));
            let stall = rig.longest_from(at(2_000));
            assert!(stall < SECOND, "{}: {stall}", policy.name);
            assert_eq!(rig.resets, 1, "{}", policy.name);
            assert_eq!(rig.state(0), State::Failed, "{}", policy.name);
            if read_percent == 100 {
                assert!(stall < Duration::from_millis(600), "{}: {stall}", policy.name);
            }
            rig.fates[0].silent = false;
            rig.run_until(at(8_000));
            assert_eq!(rig.state(0), State::Active, "{}", policy.name);
            rig.check_counts();
        }
    }
}

/// A path whose session is lost is left at once, and nothing is checked, reset or abandoned.
#[test]
fn a_lost_session_is_left_at_once() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(8);
    rig.run_until(at(1_000));
    rig.cut(1);
    rig.run_until(at(3_000));
    assert!(rig.longest_from(at(1_000)) < Duration::from_millis(20));
    assert_eq!((rig.resets, rig.abandoned), (0, 0));
    assert_eq!(rig.state(1), State::Failed);
}

/// What died with the old session of a path says nothing of the new one, however late it is known.
#[test]
fn late_deaths_do_not_fail_a_new_session() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(8);
    rig.run_until(at(1_000));
    assert!(rig.given.values().any(|given| given.io.path == PathId::new(0)));
    rig.cut(0);
    rig.mend(0);
    rig.run_until(at(2_000));
    let changes = &rig.pipeline.observer().changes;
    let failed = changes.iter().filter(|(_, change)| change.state == State::Failed);
    assert_eq!((failed.count(), rig.state(0)), (1, State::Active));
}

/// The only path may be silent for seconds before it is given up, for no other could take over.
#[test]
fn the_last_path_is_given_time() {
    let mut rig = Rig::new(&[0], Settings::default());
    rig.hosts(4);
    rig.run_until(at(1_000));
    rig.fates[0].silent = true;
    rig.run_until(at(5_000));
    assert_eq!((rig.resets, rig.state(0)), (0, State::Active));
    rig.run_until(at(7_000));
    assert_eq!((rig.resets, rig.state(0)), (1, State::Failed));
    rig.fates[0].silent = false;
    rig.run_until(at(9_000));
    assert!(rig.done.last().unwrap().1 > at(8_900), "it continues");
}

/// When every path is silent at once it is the storage that stands still: no path is given up for
/// another that is no better, and no read is sent twice.
#[test]
fn silent_storage_is_waited_for() {
    let mut rig = Rig::new(&[0, 0, 0], Settings::default());
    rig.hosts(9);
    rig.run_until(at(1_000));
    let silence = |rig: &mut Rig, silent| rig.fates.iter_mut().for_each(|f| f.silent = silent);
    silence(&mut rig, true);
    rig.run_until(at(4_000));
    assert_eq!((rig.resets, rig.abandoned), (0, 0));
}

/// A path that becomes 10 or 20 times slower without an error loses its traffic within a second
/// under every selector, comes back when it is as fast as before, and takes it up step by step.
#[test]
fn a_slow_path_leaves_and_returns() {
    for policy in POLICIES {
        for factor in [10, 20] {
            let mut rig = Rig::with(policy.name, &[0, 0], Settings::default());
            rig.hosts(8);
            rig.run_until(at(3_000));
            rig.fates[1].factor = factor;
            rig.run_until(at(8_000));
            let share = rig.share(1, at(4_000), at(8_000));
            assert!(share <= 5, "{} {factor}: {share} %", policy.name);
            rig.fates[1].factor = 1;
            rig.run_until(at(16_000));
            let share = rig.share(1, at(14_000), at(16_000));
            assert!(share >= 20, "{} {factor}: {share} % after it is well again", policy.name);
            let Some(back) = rig.became(at(8_000), 1, State::Returning) else {
                // A selector that keeps the queue of a slow path as short as it is slow leaves
                // the stage nothing to do.
                continue;
            };
            for &(start, path, on_path) in &rig.starts {
                if path == 1 && start >= back && start < back + Duration::from_millis(200) {
                    let step = start.since(back).as_nanos() / 25_000_000;
                    assert!(on_path <= 1 << step, "{on_path} at once in step {step}");
                }
            }
            let spike = rig.longest_from(back);
            assert!(spike < Duration::from_millis(20), "{} {factor}: {spike}", policy.name);
        }
    }
}

/// Round robin, which knows nothing of speed, is rid of a slow path within a second of traffic,
/// and by ejection.
#[test]
fn slowness_is_noticed_within_a_second() {
    for factor in [8, 10, 20, 100] {
        for parallel in [1, 16] {
            let mut rig = Rig::new(&[0, 0], Settings::default());
            rig.fates.iter_mut().for_each(|fate| fate.servers = parallel);
            rig.hosts(8);
            rig.run_until(at(3_000));
            rig.fates[0].factor = factor;
            rig.run_until(at(4_500));
            let ejected = rig.became(at(3_000), 0, State::Ejected);
            let ejected = ejected.unwrap_or_else(|| panic!("{factor} times slower is overlooked"));
            assert!(ejected < at(4_000), "{factor} times slower, {parallel} at once: {ejected:?}");
            assert_eq!(rig.pipeline.observer().changes[0].1.why, Why::Slow);
        }
    }
}

/// A path that stays slow is left alone more and more: probes double their distance up to the most.
#[test]
fn probes_back_off() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.read_percent = 100;
    rig.hosts(4);
    rig.run_until(at(1_000));
    rig.fates[0].factor = 50;
    rig.run_until(at(60_000));
    let probes: Vec<_> = rig.starts.iter().filter(|s| s.1 == 0 && s.0 > at(20_000)).collect();
    assert!((10..=13).contains(&probes.len()), "{} probes in 40 s", probes.len());
    assert_eq!(rig.state(0), State::Ejected);
    assert!(rig.longest_from(at(20_000)) < Duration::from_millis(110));
}

/// Where no host reads, an ejected path is tried after half a minute.
#[test]
fn writers_get_a_path_back() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.read_percent = 0;
    rig.hosts(8);
    rig.run_until(at(1_000));
    rig.fates[0].factor = 20;
    rig.run_until(at(3_000));
    assert_eq!(rig.state(0), State::Ejected);
    rig.fates[0].factor = 1;
    rig.run_until(at(34_000));
    assert_eq!(rig.state(0), State::Active);
    let changes = &rig.pipeline.observer().changes;
    assert!(changes.iter().any(|(_, change)| change.why == Why::Trial));
}

/// Bursts that hit all paths alike, with service times all over the place, eject no path and give
/// none up, whatever the selector.
#[test]
fn bursts_eject_nobody() {
    for policy in POLICIES {
        for (servers, sizes) in [(1, vec![4]), (8, vec![4, 64, 1_024])] {
            let mut rig = Rig::with(policy.name, &[0, 0, 0], Settings::default());
            rig.random = true;
            rig.sizes = sizes;
            rig.fates.iter_mut().for_each(|fate| fate.servers = servers);
            for burst in 0..60 {
                for _ in 0..rig.rng.below(1_000) {
                    let after = rig.rng.below(5_000) + burst * 500_000;
                    rig.arrives_in(Duration::from_micros(after));
                }
            }
            for _ in 0..3_000 {
                let after = rig.rng.below(30_000_000);
                rig.arrives_in(Duration::from_micros(after));
            }
            rig.run_until(at(40_000));
            let changes = &rig.pipeline.observer().changes;
            assert!(changes.is_empty(), "{} {servers}: {:?}", policy.name, changes[0]);
            assert!(rig.came.is_empty());
            assert_eq!(rig.abandoned, 0, "{}", policy.name);
        }
    }
}

/// However slow, the last usable path is never ejected; and one that is ejected is taken back when
/// there is no other.
#[test]
fn the_last_path_is_never_ejected() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(8);
    rig.run_until(at(1_000));
    rig.fates[0].factor = 50;
    rig.run_until(at(2_500));
    assert_eq!(rig.state(0), State::Ejected);
    rig.cut(1);
    assert_eq!(rig.state(0), State::Active);
    assert_eq!(rig.pipeline.paths(rig.now).next().unwrap().why, Why::LastLeft);
    rig.run_until(at(10_000));
    assert_eq!(rig.state(0), State::Active);
    assert!(rig.done.last().unwrap().1 > at(9_800));
    assert_eq!(rig.share(0, at(2_600), at(10_000)), 100);
}

/// A path that is out because it is slow, or because it has changed too often, takes over within a second
/// from the only one in use, be that silent or does what it was given hang there.
#[test]
fn a_path_that_is_out_takes_over() {
    for policy in POLICIES {
        for (flaps, hung) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = format!("{}, flaps: {flaps}, hung: {hung}", policy.name);
            let mut rig = Rig::with(policy.name, &[0, 0], Settings::default());
            rig.read_percent = 100;
            rig.hosts(8);
            rig.run_until(at(1_000));
            if flaps {
                for _ in 0..3 {
                    rig.cut(0);
                    rig.mend(0);
                }
            } else {
                rig.eject(0);
            }
            rig.run_until(at(4_000));
            let out = if flaps { State::Failed } else { State::Ejected };
            assert_eq!((rig.state(0), rig.state(1)), (out, State::Active), "{case}");
            (rig.fates[1].silent, rig.fates[1].hung) = (!hung, hung);
            rig.run_until(at(8_000));
            let stall = rig.longest_from(at(4_000));
            assert!(stall < Duration::from_millis(900), "{case}: {stall}");
            assert!(rig.done.last().unwrap().1 > at(7_900), "{case}: it continues");
            let lost = if hung { State::Ejected } else { State::Failed };
            assert_eq!((rig.state(0), rig.state(1)), (State::Active, lost), "{case}");
            assert_eq!(rig.resets, u32::from(!hung), "{case}");
        }
    }
}

/// A moment of silence on the only path in use brings no other path in. Where the path that is out is silent as
/// well it is the storage: neither is given up, and nothing is sent twice.
#[test]
fn a_path_that_is_out_is_not_called_in_vain() {
    for out in [0, 1] {
        let mut rig = Rig::new(&[0, 0], Settings::default());
        rig.read_percent = 100;
        rig.hosts(8);
        rig.run_until(at(1_000));
        rig.eject(out);
        // Whenever it was heard last, which it is every two seconds if nothing else is.
        for start in (0..8).map(|n| n * 5_500 + 30_000) {
            rig.run_until(at(start));
            rig.fates[1 - out].silent = true;
            rig.run_for(Duration::from_millis(150));
            rig.fates[1 - out].silent = false;
            rig.run_for(SECOND);
            rig.fates.iter_mut().for_each(|fate| fate.silent = true);
            rig.run_for(SECOND * 2);
            rig.fates.iter_mut().for_each(|fate| fate.silent = false);
        }
        rig.run_for(SECOND);
        // The path that is out may have been tried meanwhile and found slow, or given up.
        let late = rig.pipeline.observer().changes.iter().filter(|(when, _)| *when > at(5_000));
        for (when, change) in late {
            let lost = change.path.index() != out || change.why == Why::LastLeft;
            assert!(!lost, "{change:?} at {when:?}");
        }
        let probes = rig.starts.iter().filter(|start| start.1 == out && start.0 > at(30_000));
        assert!(rig.abandoned as usize <= probes.count(), "{} sent twice", rig.abandoned);
    }
}

/// A path that fails and comes back ten times a second changes between usable and not no more often
/// than the bound in any minute, and stays out, saying why, until it may return.
#[test]
fn a_flapping_path_stays_out() {
    let settings = Settings::default();
    let mut rig = Rig::new(&[0, 0], settings);
    rig.hosts(4);
    for flap in 0..1_500 {
        rig.run_until(at(flap * 100));
        if flap % 2 == 0 { rig.cut(0) } else { rig.mend(0) }
    }
    let changes = &rig.pipeline.observer().changes;
    let turns: Vec<Instant> = changes
        .iter()
        .filter(|(_, c)| c.path.index() == 0 && c.from.is_usable() != c.state.is_usable())
        .map(|&(at, _)| at)
        .collect();
    assert!(turns.len() >= 12, "{}", turns.len());
    for window in turns.windows(settings.max_changes_per_minute as usize + 1) {
        assert!(window[window.len() - 1].since(window[0]) >= SECOND * 60, "{window:?}");
    }
    assert!(changes.iter().any(|(_, change)| change.why == Why::Flapping));
    rig.run_for(SECOND * 61);
    assert_eq!(rig.state(0), State::Active, "the minute is over");
    // The last usable path is let in, however often it has changed.
    for _ in 0..10 {
        rig.cut(1);
        rig.cut(0);
        rig.run_for(Duration::from_millis(100));
        rig.mend(0);
        assert!(rig.state(0).is_usable());
    }
}

/// Groups: the first with a usable path is used and kept, a better one is gone back to as the
/// settings say or the operator asks, and not before it has fully returned.
#[test]
fn groups_fail_over_and_back() {
    for failback in [Failback::Immediate, Failback::After, Failback::Manual] {
        let failback_after = SECOND * 5;
        let settings = Settings { failback, failback_after, ..Settings::default() };
        let mut rig = Rig::new(&[1, 0, 0, 1], settings);
        rig.hosts(4);
        rig.run_until(at(1_000));
        assert_eq!((rig.share(1, at(0), at(1_000)), rig.share(2, at(0), at(1_000))), (50, 49));
        rig.cut(1);
        rig.run_until(at(1_500));
        assert_eq!(rig.share(2, at(1_010), at(1_500)), 100);
        rig.cut(2);
        rig.run_until(at(2_000));
        assert_eq!([0, 3].map(|path| rig.state(path)), [State::Active; 2]);
        rig.mend(1);
        assert_eq!(rig.state(1), State::Waiting, "it has to return first");
        rig.run_until(at(3_000));
        let back = failback == Failback::Immediate;
        assert_eq!(rig.state(1) == State::Active, back, "{failback:?}");
        rig.run_until(at(8_000));
        assert_eq!(rig.state(1) == State::Active, failback != Failback::Manual);
        rig.order(PathOrder::Failback);
        assert_eq!(rig.state(1), State::Active);
        assert_eq!(rig.state(0), State::Waiting);
        assert!(rig.longest_from(at(1_000)) < Duration::from_millis(50));
    }
}

/// A path that the target does not serve gets nothing, and one that is not optimized gets something
/// only while no optimized one of its group works.
#[test]
fn the_targets_wish_is_respected() {
    let mut rig = Rig::new(&[0, 0, 0], Settings::default());
    rig.access(1, Access::NonOptimized);
    rig.access(2, Access::Standby);
    rig.hosts(4);
    rig.run_until(at(1_000));
    assert_eq!(rig.share(0, at(0), at(1_000)), 100);
    assert_eq!([1, 2].map(|path| rig.state(path)), [State::Waiting, State::Inaccessible]);
    rig.access(0, Access::Unavailable);
    rig.run_until(at(2_000));
    assert_eq!(rig.share(1, at(1_000), at(2_000)), 100);
    rig.access(1, Access::Transitioning);
    rig.run_until(at(3_000));
    assert_eq!(rig.starts.last().unwrap().0.max(at(2_000)), at(2_000));
    rig.access(2, Access::Optimized);
    rig.run_until(at(4_000));
    assert_eq!(rig.share(2, at(3_000), at(4_000)), 100);
    assert!(rig.starts.last().unwrap().0 > at(3_900));
}

/// A path that the operator switches off gets nothing more, what is on it ends there, and it takes
/// part again when it is switched on.
#[test]
fn the_operator_has_his_way() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(6);
    rig.run_until(at(500));
    rig.order(PathOrder::Disable(PathId::new(0)));
    rig.run_until(at(1_000));
    assert_eq!((rig.state(0), rig.share(0, at(500), at(1_000))), (State::Disabled, 0));
    assert_eq!(rig.pipeline.observer().changes[0].1.why, Why::ByOperator);
    rig.order(PathOrder::Disable(PathId::new(1)));
    rig.run_until(at(2_000));
    assert!(rig.given.is_empty(), "everybody waits");
    rig.order(PathOrder::Enable(PathId::new(0)));
    rig.run_until(at(3_000));
    assert_eq!((rig.state(0), rig.share(0, at(2_000), at(3_000))), (State::Active, 100));
}

/// An I/O that is stuck on a path that answers checks: a read is sent to another path, a bounded number
/// of times; a write waits until the time-out gives the path up, and the path gets nothing else.
#[test]
fn a_stuck_io_does_not_hold_others() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.hosts(8);
    rig.run_until(at(1_000));
    rig.fates[0].hung = true;
    rig.run_until(at(20_000));
    assert_eq!(rig.resets, 0);
    assert!(rig.abandoned > 0);
    assert_eq!(rig.share(0, at(2_000), at(20_000)), 0);
    assert!(rig.given.values().all(|given| given.io.op.writes() || given.io.path.index() == 1));
    rig.run_until(at(32_000));
    assert_eq!(rig.resets, 1);
    assert!(rig.came.values().all(|&came| came > at(31_000)), "what was stuck has ended");
}

/// A path that is given up because it is silent gets no other order: a write that hangs there is not recalled as well.
#[test]
fn a_path_that_is_given_up_gets_no_other_order() {
    let mut rig = Rig::new(&[0, 0], Settings::default());
    rig.read_percent = 0;
    rig.hosts(2);
    rig.run_until(at(500));
    rig.fates[0].silent = true;
    rig.run_until(at(1_500));
    assert_eq!((rig.resets, rig.recalls), (1, 0));
}

/// Where all that hangs on a path are reads, each goes to another path once, none of them is left behind, and
/// the path gets nothing but probes until they are answered.
#[test]
fn hanging_reads_leave_for_good() {
    for policy in POLICIES {
        let mut rig = Rig::with(policy.name, &[0, 0], Settings::default());
        rig.read_percent = 100;
        rig.hosts(8);
        rig.run_until(at(2_000));
        rig.fates[1].hung = true;
        rig.run_until(at(20_000));
        let stall = rig.longest_from(at(2_000));
        assert!(stall < SECOND, "{}: {stall}", policy.name);
        assert_eq!((rig.resets, rig.state(1)), (0, State::Ejected), "{}", policy.name);
        let tried = rig.starts.iter().filter(|start| start.1 == 1 && start.0 > at(4_000)).count();
        assert!((4..12).contains(&tried), "{}: {tried} probes in 16 s", policy.name);
        rig.fates[1].hung = false;
        rig.run_until(at(26_000));
        assert_eq!(rig.state(1), State::Active, "{}", policy.name);
    }
}

/// A target that puts off whatever it is asked for on one path holds no request for two seconds, be it a single
/// write, and the path stays out after some tries. Where every path does so no request gains by moving: none
/// changes more often than the flap bound allows, and when they work again all requests continue.
#[test]
fn what_is_put_off_goes_another_way() {
    for hosts in [1, 8] {
        let mut rig = Rig::new(&[0, 0], Settings::default());
        rig.read_percent = 0;
        rig.hosts(hosts);
        rig.run_until(at(1_000));
        (rig.fates[0].hung, rig.fates[0].busy) = (true, true);
        rig.run_until(at(20_000));
        let stall = rig.longest_from(at(1_000));
        assert!(stall < SECOND * 2, "{hosts}: {stall}");
        assert_eq!((rig.resets, rig.state(0)), (0, State::Failed));
        rig.fates[1] = rig.fates[0];
        rig.run_until(at(60_000));
        let changes = rig.pipeline.observer().changes.len();
        assert!(changes < 40, "{hosts}: {changes}");
        rig.fates.fill(rig::Fate::WELL);
        rig.run_until(at(62_000));
        assert!(rig.came.values().all(|&came| came > at(61_000)), "{hosts}: all continue");
    }
}

/// Those whose path failed go before those who came later, in the order of their arrival, when the
/// only path returns.
#[test]
fn the_hold_queue_keeps_the_order() {
    let mut rig = Rig::new(&[0], Settings::default());
    rig.fixed = Duration::from_millis(10);
    for n in 0..6 {
        rig.arrives_in(Duration::from_micros(n));
    }
    rig.run_until(at(5));
    rig.cut(0);
    for n in 0..6 {
        rig.arrives_in(Duration::from_micros(n));
    }
    rig.run_until(at(1_000));
    let before = rig.starts.len();
    rig.mend(0);
    let mut given: Vec<_> = rig.given.values().filter(|given| given.at >= at(1_000)).collect();
    given.sort_unstable_by_key(|given| given.serial);
    let order: Vec<u64> = given.iter().map(|given| given.io.tag.0).collect();
    assert_eq!(order, (1..=12).collect::<Vec<_>>());
    assert_eq!(rig.starts.len() - before, 12);
}

/// A path that returns while no other is there takes everything at once: steps would hold back what
/// nothing else does. One that returns beside it takes its share step by step.
#[test]
fn the_only_path_is_not_held_back() {
    for policy in POLICIES {
        let mut rig = Rig::with(policy.name, &[0, 0], Settings::default());
        rig.fixed = Duration::from_millis(20);
        rig.fates.iter_mut().for_each(|fate| fate.servers = 64);
        rig.hosts(64);
        rig.run_until(at(1_000));
        rig.cut(1);
        rig.cut(0);
        rig.run_until(at(2_000));
        assert!(rig.given.is_empty(), "everybody waits");
        rig.mend(0);
        assert_eq!(rig.given.len(), 64, "{}: no request waits", policy.name);
        assert_eq!(rig.state(0), State::Active, "{}", policy.name);
        rig.run_until(at(2_010));
        rig.mend(1);
        assert_eq!(rig.state(1), State::Returning, "{}", policy.name);
        rig.run_until(at(2_030));
        assert!(rig.given.values().filter(|given| given.io.path.index() == 1).count() <= 1);
    }
}

/// A path that is still returning when the last one beside it fails takes everything from then on,
/// be there another group or not.
#[test]
fn a_returning_path_that_is_left_alone_is_not_held_back() {
    for groups in [&[0, 0][..], &[0, 0, 1]] {
        let mut rig = Rig::new(groups, Settings::default());
        rig.fixed = Duration::from_millis(20);
        rig.fates.iter_mut().for_each(|fate| fate.servers = 64);
        rig.hosts(64);
        rig.run_until(at(1_000));
        rig.cut(0);
        rig.run_until(at(2_000));
        rig.mend(0);
        rig.run_until(at(2_030));
        assert_eq!(rig.state(0), State::Returning);
        rig.cut(1);
        assert_eq!(rig.state(0), State::Active);
        rig.run_until(at(2_060));
        assert_eq!(rig.given.len(), 64, "{groups:?}: no request waits");
        assert!(rig.given.values().all(|given| given.io.path == PathId::new(0)));
    }
}
