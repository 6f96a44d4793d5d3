//! The pairs of Compare and Write of a queue, until they are answered.

use crate::frontend::nvme_part::Part;
use std::collections::BTreeMap;
use weir_flow::clock::{Duration, Instant};

/// The fused commands of a queue.
#[derive(Debug, Default)]
pub(crate) struct Fused {
    pub(super) first: Option<First>,
    /// Pairs that have no answer, by the slot of the first.
    pub(super) pairs: BTreeMap<u32, Pair>,
}

/// A Compare that waits for its Write, which must be the next command.
#[derive(Debug)]
pub(super) struct First {
    /// `None` if it has ended already.
    pub(super) half: Option<(Half, Part)>,
}

/// A command of a pair.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) slot: u32,
    /// Its data, once that is whole, and since when.
    pub(super) data: Option<(Vec<u8>, Instant)>,
}

/// A Compare and its Write. Their data is here until both have come.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) compare: Half,
    pub(super) write: Half,
    pub(super) part: Part,
}

impl Fused {
    /// The Compare that has come before, if nothing else has.
    pub(super) const fn take_first(&mut self) -> Option<First> {
        self.first.take()
    }

    /// The slot under which the command in this slot is done: that of the Compare of its pair.
    pub(super) fn lead(&self, slot: u32) -> u32 {
        let pair = self.pairs.values().find(|pair| pair.write.slot == slot);
        pair.map_or(slot, |pair| pair.compare.slot)
    }

    /// The command in this slot ends. Returns the slot of the other one of its pair, which is a pair no more.
    pub(super) fn part(&mut self, slot: u32) -> Option<u32> {
        if let Some(first) = &mut self.first
            && first.half.as_ref().is_some_and(|(half, _)| half.slot == slot)
        {
            first.half = None;
        }
        let lead = self.lead(slot);
        let Pair { compare, write, .. } = self.pairs.remove(&lead)?;
        Some(if slot == lead { write.slot } else { compare.slot })
    }

    /// No command comes any more, and of the pairs only those stay that have begun.
    pub(super) fn close(&mut self, has_begun: impl Fn(u32) -> bool) {
        self.first = None;
        self.pairs.retain(|&lead, _| has_begun(lead));
    }

    /// Whether a Compare has waited too long for its Write.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let half = self.first.as_ref().and_then(|first| first.half.as_ref());
        let since = half.and_then(|(half, _)| half.data.as_ref()).map(|&(_, since)| since);
        since.is_some_and(|since| now.saturating_since(since) >= FOLLOWS_WITHIN)
    }
}

/// A Compare whose data has come waits for its Write this long.
const FOLLOWS_WITHIN: Duration = Duration::from_secs(1);
