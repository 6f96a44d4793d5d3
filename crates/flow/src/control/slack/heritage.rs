//! What is kept when promises change: savings and the window.

use super::super::Legacy;
use super::Slack;
use super::lane::Lane;
use crate::clock::{Duration, Instant};

impl Slack {
    /// Changes nothing: somebody may only have a look.
    pub(super) fn leave(&self, now: Instant) -> Legacy {
        let mut guarantees = self.guarantees.clone();
        guarantees.advance(now);
        let saved = |lane: &Lane| {
            let Some(savings) = &lane.savings else { return Duration::ZERO };
            let (mut savings, mut marker) = (savings.clone(), lane.marker.clone());
            savings.save(marker.fill(guarantees.clock(lane.tier), 0));
            savings.time()
        };
        Legacy { savings: self.lanes.iter().map(saved).collect(), window: self.window.learnt() }
    }

    pub(super) fn take_over(&mut self, now: Instant, legacy: &Legacy) {
        self.advance(now);
        for (lane, &saved) in self.lanes.iter_mut().zip(&legacy.savings) {
            if let Some(savings) = &mut lane.savings {
                savings.begin(saved);
            }
        }
        if let Some(window) = legacy.window {
            self.window.begin(window);
        }
    }
}
