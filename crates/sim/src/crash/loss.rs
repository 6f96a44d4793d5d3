//! The kinds of loss at a crash: which sectors that were not flushed survive.

use super::content::Image;
use super::device::{AtRisk, Device};
use super::journal::Record;
use super::tear::Tear;
use serde::Serialize;
use weir_flow::cache::quarantine::LostRange;
use weir_flow::rng::Rng;

/// A kind of loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Loss {
    /// Nothing: only the program has ended.
    Nothing,
    /// Everything that was not flushed.
    Everything,
    /// Everything from some sector on: a write is torn.
    Torn,
    /// Whole writes, with others that began later being kept.
    Reordered,
    /// Any sectors.
    Random,
    /// One sector.
    OneSector,
    /// Everything but one sector.
    AllButOne,
}

impl Loss {
    /// All kinds.
    pub const ALL: [Self; 7] = [
        Self::Nothing,
        Self::Everything,
        Self::Torn,
        Self::Reordered,
        Self::Random,
        Self::OneSector,
        Self::AllButOne,
    ];

    /// What it is called.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing lost",
            Self::Everything => "all that was not flushed",
            Self::Torn => "all from a sector on (torn)",
            Self::Reordered => "whole writes (reordered)",
            Self::Random => "any sectors",
            Self::OneSector => "one sector",
            Self::AllButOne => "all but one sector",
        }
    }

    /// What a device does that has lost this.
    pub(super) const fn lost(self) -> &'static str {
        match self {
            Self::Nothing => "loses power and nothing else",
            Self::Everything => "loses all that was not flushed",
            Self::Torn => "loses all from a sector on",
            Self::Reordered => "loses whole writes",
            Self::Random => "loses some sectors",
            Self::OneSector => "loses one sector",
            Self::AllButOne => "loses all but one sector",
        }
    }

    /// Which of what is at risk is kept.
    pub(super) fn keep(self, at_risk: &AtRisk, rng: &mut Rng) -> Vec<bool> {
        let count = at_risk.sectors.len();
        let one = if count == 0 { 0 } else { rng.below(count as u64) as usize };
        match self {
            Self::Nothing => vec![true; count],
            Self::Everything => vec![false; count],
            Self::Torn => (0..count).map(|i| i < one).collect(),
            Self::Reordered => {
                let mut keep = Vec::with_capacity(count);
                for (place, &start) in at_risk.writes.iter().enumerate() {
                    let end = at_risk.writes.get(place + 1).copied().unwrap_or(count);
                    let kept = rng.below(2) == 0;
                    keep.resize(keep.len() + (end - start), kept);
                }
                keep
            }
            Self::Random => {
                let share = 1 + rng.below(3);
                (0..count).map(|_| rng.below(4) < share).collect()
            }
            Self::OneSector => (0..count).map(|i| i != one).collect(),
            Self::AllButOne => (0..count).map(|i| i == one).collect(),
        }
    }
}

/// What a device has after a crash.
pub(super) struct Left {
    pub(super) loss: Loss,
    pub(super) image: Image,
    /// Sectors that were at risk, and those of them that were kept.
    pub(super) of: (usize, usize),
}

/// Crashes a device; without anything at risk every loss is the same.
pub(super) fn crash(device: &Device, loss: Loss, rng: &mut Rng) -> Left {
    let at_risk = device.at_risk();
    let stores = at_risk.stores.iter().max().map_or(0, |last| last + 1);
    // Stores may lose different things.
    let apart = stores > 1 && rng.below(2) == 0;
    let keep = if apart { of_each(&at_risk, stores, rng) } else { loss.keep(&at_risk, rng) };
    let kept = keep.iter().filter(|&&keep| keep).count();
    let loss = if keep.is_empty() { Loss::Nothing } else { loss };
    Left { loss, image: device.left(&at_risk, &keep), of: (keep.len(), kept) }
}

/// Which of what is at risk is kept if each store has its loss.
fn of_each(at_risk: &AtRisk, stores: u32, rng: &mut Rng) -> Vec<bool> {
    let mut keep = vec![false; at_risk.sectors.len()];
    for store in 0..stores {
        let any = Loss::ALL[rng.below(Loss::ALL.len() as u64) as usize].keep(at_risk, rng);
        for (write, &of) in at_risk.stores.iter().enumerate() {
            let end = at_risk.writes.get(write + 1).copied().unwrap_or(keep.len());
            if of == store {
                let sectors = at_risk.writes[write]..end;
                keep[sectors.clone()].copy_from_slice(&any[sectors]);
            }
        }
    }
    keep
}

/// A crash, of both devices.
pub(super) struct State {
    pub(super) log: Left,
    /// Sectors of the log device that are torn.
    pub(super) tears: Vec<Tear>,
    pub(super) upstream: Left,
    /// The record that the journal of atomic writes has.
    pub(super) record: Option<Record>,
    /// The ranges that are given up.
    pub(super) lost: Vec<LostRange>,
}

impl State {
    /// In words.
    pub(super) fn told(&self) -> String {
        let told = |left: &Left| match left.of {
            (0, _) => "nothing at risk".to_owned(),
            (of, kept) => format!("{kept} of {of} sectors at risk kept, {}", left.loss.name()),
        };
        let record = if self.record.is_some() { "; the journal has a record" } else { "" };
        let torn = match self.tears.len() {
            0 => String::new(),
            count => format!(", {count} sectors torn"),
        };
        format!("log device: {}{torn}; upstream: {}{record}", told(&self.log), told(&self.upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_risk() -> AtRisk {
        let content = super::super::content::Content::default();
        AtRisk { sectors: vec![(0, content); 10], writes: vec![0, 4, 5], stores: vec![0, 1, 0] }
    }

    /// One store may lose everything, and another nothing.
    #[test]
    fn stores_lose_apart() {
        let mut rng = Rng::stream(1, "loss");
        let mut first = [false; 10];
        first[4] = true;
        let kept: Vec<_> = (0..400).map(|_| of_each(&at_risk(), 2, &mut rng)).collect();
        assert!(kept.iter().any(|keep| keep[..] == first));
        assert!(kept.iter().any(|keep| keep[..] == first.map(|one| !one)));
    }

    /// Each kind loses what its name says; whole writes are lost whole, and in every combination.
    #[test]
    fn each_kind_is_what_it_says() {
        let mut rng = Rng::stream(1, "loss");
        let mut combinations = std::collections::BTreeSet::new();
        let mut counts = std::collections::BTreeSet::new();
        for _ in 0..200 {
            let mut kept = |loss: Loss| {
                let keep = loss.keep(&at_risk(), &mut rng);
                assert_eq!(keep.len(), 10);
                keep
            };
            let count = |keep: &[bool]| keep.iter().filter(|&&keep| keep).count();
            assert_eq!(count(&kept(Loss::Nothing)), 10);
            assert_eq!(count(&kept(Loss::Everything)), 0);
            assert_eq!(count(&kept(Loss::OneSector)), 9);
            assert_eq!(count(&kept(Loss::AllButOne)), 1);
            let torn = kept(Loss::Torn);
            assert!(torn.is_sorted_by(|a, b| a >= b) && !torn[9], "{torn:?}");
            let whole = kept(Loss::Reordered);
            assert!(whole[..4].iter().all(|&keep| keep == whole[0]));
            assert!(whole[5..].iter().all(|&keep| keep == whole[5]));
            combinations.insert((whole[0], whole[4], whole[5]));
            counts.insert(count(&kept(Loss::Random)));
        }
        assert_eq!(combinations.len(), 8);
        assert!(counts.len() > 7, "{counts:?}");
    }
}
