//! Random runs: hosts, completions in any order, errors, crashes; the oracle after every step.

use super::rig::{Luck, Rig};
use super::small;
use crate::cache::writeback::{Kind, Mode, Order, Settings, Sync};
use crate::clock::Duration;
use crate::settings::Settings as _;

/// One random run of `steps` steps.
fn storm(seed: u64, settings: Settings, luck: Luck, strict: bool, steps: u32) -> Rig {
    let mut rig = Rig::new(seed, settings, 64);
    (rig.luck, rig.strict) = (luck, strict);
    for _ in 0..steps {
        step(&mut rig, strict);
    }
    rig
}

fn step(rig: &mut Rig, strict: bool) {
    if rig.blocked() {
        rig.crash(false);
    }
    match rig.rng.below(100) {
        0..35 if rig.outstanding() < 6 => {
            let (from, long) = (rig.rng.below(60) as usize, rig.rng.below(8) == 0);
            let count = 1 + rig.rng.below(if long { 64 } else { 4 }) as usize;
            let count = count.min(64 - from);
            let kind = match rig.rng.below(8) {
                0 => Kind::Zero,
                1 => Kind::Unmap,
                _ => Kind::Write,
            };
            let fua = !strict && rig.rng.below(10) == 0;
            if !rig.in_flight(from, count) {
                rig.ask(Some(kind), from, count, fua);
            }
        }
        35..40 if !strict => {
            rig.ask(None, 0, 0, false);
        }
        40..95 if !rig.running.is_empty() => {
            let i = rig.rng.below(rig.running.len() as u64) as usize;
            rig.end(i);
        }
        95 if rig.rng.below(4) == 0 => {
            let on = rig.rng.below(2) == 0;
            rig.log.drain(rig.now, on);
            rig.pump();
        }
        96 => {
            let power = rig.rng.below(2) == 0;
            rig.crash(power);
            rig.check_reads();
        }
        97 => rig.log.upstream_reset(),
        98 => rig.check_reads(),
        _ => {
            let until = rig.now + Duration::from_millis(rig.rng.below(300));
            rig.sleep(until);
        }
    }
}

/// Whatever crashes, tears, fails and is answered late: what was acknowledged can be read, upstream is
/// what a disk may show after a power cut, at every step, and in the end it has everything.
#[test]
fn nothing_acknowledged_is_lost() {
    let good = small();
    let calm = Luck::default();
    let rough = Luck { local: 10, upstream: 100 };
    let cases = [
        (good, calm, false),
        (good, rough, false),
        (Settings { upstream_flush: false, ..good }, rough, false),
        (Settings { order: Order::Strict, ..good }, rough, true),
        (Settings { sync: Sync::Upstream, ..good }, rough, false),
        (Settings { mode: Mode::Ram, ..good }, rough, false),
        (Settings { capacity: 8192 + 3 * 24576, segment: 24576, ..good }, rough, false),
    ];
    for (i, (settings, luck, strict)) in cases.into_iter().enumerate() {
        assert_eq!(settings.validate(), Ok(()));
        for seed in 0..40 {
            let mut rig = storm(seed * 100 + i as u64, settings, luck, strict, 1_500);
            rig.settle();
        }
    }
}
