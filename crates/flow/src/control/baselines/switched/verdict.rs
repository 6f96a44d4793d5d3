//! Decides which switches change under TA2 and TA3, by counters that each change of a tenant updates.
//!
//! Every change of a tenant's standing moves a few counters, so that a decision that switches no tenant
//! costs nothing, however many tenants there are.

use super::settings::Decide;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::mem;

/// What a decision goes by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Whether the tenant has a contract, so that its response time counts.
    pub(super) kept: bool,
    /// Whether anything came in the last second.
    pub(super) active: bool,
    /// Whether it breaks its contract.
    pub(super) violates: bool,
    /// Whether its response time is above the threshold for on.
    pub(super) hurt: bool,
    /// Whether its response time is not below the threshold for off.
    pub(super) unwell: bool,
    /// Whether its bucket is in the path.
    pub(super) on: bool,
}

/// Everybody's standing, and what follows from it.
pub(super) struct Verdict {
    decide: Decide,
    standings: Vec<Standing>,
    active: usize,
    active_violators: usize,
    on: usize,
    /// Those with a contract, and of those the ones who keep it.
    all: Pain,
    conforming: Pain,
    /// Who would be switched on, and off, if it came to that. Under [`Decide::Together`] that is
    /// everybody, and these are empty.
    to_on: BTreeSet<usize>,
    to_off: BTreeSet<usize>,
}

/// How many suffer.
#[derive(Clone, Copy, Debug, Default)]
struct Pain {
    hurt: usize,
    unwell: usize,
}

impl Verdict {
    /// One tenant for each item, which says whether it has a contract. All are off.
    pub(super) fn new(decide: Decide, kept: impl Iterator<Item = bool>) -> Self {
        Self {
            decide,
            standings: kept.map(|kept| Standing { kept, ..Standing::default() }).collect(),
            active: 0,
            active_violators: 0,
            on: 0,
            all: Pain::default(),
            conforming: Pain::default(),
            to_on: BTreeSet::new(),
            to_off: BTreeSet::new(),
        }
    }

    pub(super) fn standing(&self, index: usize) -> Standing {
        self.standings[index]
    }

    /// Whether anybody is switched on.
    pub(super) fn any_on(&self) -> bool {
        self.on > 0
    }

    /// A tenant's standing has changed.
    pub(super) fn change(&mut self, index: usize, new: Standing) {
        let old = mem::replace(&mut self.standings[index], new);
        if old == new {
            return;
        }
        let (was, is) = (Share::of(old), Share::of(new));
        for (count, was, is) in [
            (&mut self.active, old.active, new.active),
            (&mut self.active_violators, was.active_violator, is.active_violator),
            (&mut self.on, old.on, new.on),
            (&mut self.all.hurt, was.hurt, is.hurt),
            (&mut self.all.unwell, was.unwell, is.unwell),
            (&mut self.conforming.hurt, was.hurt && !old.violates, is.hurt && !new.violates),
            (&mut self.conforming.unwell, was.unwell && !old.violates, is.unwell && !new.violates),
        ] {
            *count = *count + usize::from(is) - usize::from(was);
        }
        let (to_on, to_off) = match self.decide {
            Decide::Together => return,
            Decide::Victim { .. } => (new.violates && !new.on, new.on),
            Decide::Own { .. } => {
                (is.hurt && new.violates && !new.on, new.kept && !new.unwell && new.on)
            }
        };
        for (set, member) in [(&mut self.to_on, to_on), (&mut self.to_off, to_off)] {
            if member {
                set.insert(index);
            } else {
                set.remove(&index);
            }
        }
    }

    /// The tenants whose switch changes, and its new state, in order. The caller must report each in
    /// [`change`](Self::change). O(1) without a change.
    pub(super) fn decide(&mut self) -> Vec<(usize, bool)> {
        let pain = match self.decide {
            Decide::Together => self.all,
            Decide::Victim { .. } if self.crowd() => self.all,
            Decide::Victim { .. } => self.conforming,
            Decide::Own { .. } => {
                let on = mem::take(&mut self.to_on).into_iter().map(|index| (index, true));
                let off = mem::take(&mut self.to_off).into_iter().map(|index| (index, false));
                let mut both: Vec<_> = on.chain(off).collect();
                both.sort_unstable();
                return both;
            }
        };
        let on = pain.hurt > 0;
        if !on && pain.unwell > 0 {
            return Vec::new();
        }
        if self.decide == Decide::Together {
            let others = if on { self.standings.len() - self.on } else { self.on };
            let all = if others > 0 { 0..self.standings.len() } else { 0..0 };
            return all.map(|index| (index, on)).collect();
        }
        let concerned = mem::take(if on { &mut self.to_on } else { &mut self.to_off });
        concerned.into_iter().map(|index| (index, on)).collect()
    }

    /// Whether all active tenants, at least two, break their contracts: then everybody's response
    /// time counts.
    fn crowd(&self) -> bool {
        self.active >= 2 && self.active == self.active_violators
    }
}

/// What a tenant adds to the counters, besides the plain parts of its standing.
struct Share {
    active_violator: bool,
    hurt: bool,
    unwell: bool,
}

impl Share {
    fn of(standing: Standing) -> Self {
        Self {
            active_violator: standing.active && standing.violates,
            hurt: standing.kept && standing.hurt,
            unwell: standing.kept && standing.unwell,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The decision as the paper has it, by looking at everybody.
    fn plain(decide: Decide, standings: &[Standing]) -> Vec<(usize, bool)> {
        let violates = |standing: &Standing| standing.violates;
        let mut active = standings.iter().filter(|standing| standing.active);
        let crowd = active.clone().count() >= 2 && active.all(violates);
        let mut watched = standings.iter().filter(|standing| {
            standing.kept && (decide == Decide::Together || crowd || !standing.violates)
        });
        let on = watched.clone().any(|standing| standing.hurt);
        let off = !on && watched.all(|standing| !standing.unwell);
        let turned = |standing: &Standing| match decide {
            Decide::Own { .. } if standing.kept && standing.hurt && standing.violates => Some(true),
            Decide::Own { .. } => (standing.kept && !standing.unwell).then_some(false),
            Decide::Victim { .. } if on => standing.violates.then_some(true),
            _ => (on || off).then_some(on),
        };
        let all = standings.iter().enumerate();
        let turned = all.map(|(index, standing)| (index, standing.on, turned(standing)));
        turned.filter_map(|(i, was, is)| is.filter(|&is| is != was).map(|is| (i, is))).collect()
    }

    /// The counters say what a pass over every tenant says, whatever has changed before.
    #[test]
    fn the_counters_decide_as_a_look_at_everybody() {
        let margin_permille = 50;
        for decide in
            [Decide::Together, Decide::Victim { margin_permille }, Decide::Own { margin_permille }]
        {
            let (mut switched, mut rng) = (0, Rng::stream(7, "verdict"));
            for round in 0..200 {
                let tenants = 1 + round % 6;
                let mut verdict = Verdict::new(decide, (0..tenants).map(|index| index % 3 != 1));
                for _ in 0..100 {
                    let index = rng.below(tenants as u64) as usize;
                    let mut coin = || rng.below(2) == 1;
                    let (active, violates, hurt) = (coin(), coin(), coin() && coin());
                    let unwell = hurt || coin() && coin();
                    let old = verdict.standing(index);
                    verdict.change(index, Standing { active, violates, hurt, unwell, ..old });
                    if rng.below(3) > 0 {
                        continue;
                    }
                    let expected = plain(decide, &verdict.standings);
                    let turned = verdict.decide();
                    assert_eq!(turned, expected, "{decide:?}: {:?}", verdict.standings);
                    switched += turned.len();
                    for (index, on) in turned {
                        verdict.change(index, Standing { on, ..verdict.standing(index) });
                    }
                    let on = verdict.standings.iter().any(|standing| standing.on);
                    assert_eq!(verdict.any_on(), on);
                }
            }
            assert!(switched > 1_000, "{decide:?}: {switched}");
        }
    }
}
