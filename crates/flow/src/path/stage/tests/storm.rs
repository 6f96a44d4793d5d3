//! Everything at once, at random.

use super::rig::{Fate, Rig};
use crate::clock::Duration;
use crate::path::{Access, POLICIES, PathOrder, Settings};
use crate::request::PathId;
use crate::rng::Rng;

/// Whatever happens to paths, and whatever operators and targets ask for: each request is answered
/// once and without an error, no write is on the wire twice before its first time is known to be dead,
/// an I/O is on one path or waits, and the counts are those of the world. In the end, with
/// everything well, everything is used again.
#[test]
fn nothing_is_lost_or_done_twice() {
    for (seed, policy) in (0..24).zip(POLICIES.iter().cycle()) {
        let mut rng = Rng::stream(seed, "path storm");
        let groups: &[u32] = [&[0, 0][..], &[0, 1], &[0, 0, 1, 1], &[0]][rng.below(4) as usize];
        let settings = Settings { max_read_retries: rng.below(3) as u32, ..Settings::default() };
        let mut rig = Rig::with(policy.name, groups, settings);
        rig.random = rng.below(2) == 0;
        rig.hosts(1 + rng.below(32) as u32);
        for _ in 0..400 {
            let path = rng.below(groups.len() as u64) as u32;
            let fate = rig.fates[path as usize];
            match rng.below(14) {
                0 if fate.up => rig.cut(path),
                0..3 if !fate.up => rig.mend(path),
                3 => rig.fates[path as usize].silent = true,
                4 | 5 => rig.fates[path as usize].silent = false,
                6 => rig.fates[path as usize].factor = 1 + rng.below(40),
                7 => rig.fates[path as usize].factor = 1,
                8 => rig.access(path, Access::ALL[rng.below(5) as usize]),
                9 => rig.access(path, Access::Optimized),
                10 => rig.order(PathOrder::Disable(PathId::new(path))),
                11 => rig.order(PathOrder::Enable(PathId::new(path))),
                12 => rig.order(PathOrder::Failback),
                _ => {
                    rig.fates[path as usize].hung ^= true;
                    rig.fates[path as usize].busy = rng.below(2) == 0;
                }
            }
            rig.check_counts();
            rig.run_for(Duration::from_micros(rng.below(60_000)));
            rig.check_counts();
        }
        for path in 0..groups.len() as u32 {
            rig.fates[path as usize] = Fate::WELL;
            rig.mend(path);
            rig.access(path, Access::Optimized);
            rig.order(PathOrder::Enable(PathId::new(path)));
        }
        rig.loops = false;
        rig.run_for(Duration::from_secs(90));
        let left: alloc::vec::Vec<_> = rig.came.keys().collect();
        assert!(left.is_empty(), "seed {seed}: {left:?} is lost");
        assert_eq!(rig.pipeline.outstanding(), 0);
        let seen = rig.pipeline.observer();
        assert_eq!(seen.strays, 0);
        assert_eq!(seen.ended.len() as u64, rig.tags);
        assert!(seen.ended.iter().all(|(_, outcome)| outcome.is_ok()), "seed {seed}");
        let usable = rig.pipeline.paths(rig.now).all(|view| view.state.is_usable());
        assert!(usable, "seed {seed}");
    }
}
