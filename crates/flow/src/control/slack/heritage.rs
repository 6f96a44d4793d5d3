//! What is kept when promises change: savings and the window.

use super::super::Legacy;
use super::Slack;
use super::lane::Lane;
use crate::clock::{Duration, Instant};

impl Slack {
    pub(super) fn leave(&mut self, now: Instant) -> Legacy {
        self.advance(now);
        let Self { lanes, guarantees, window, .. } = self;
        let saved = |lane: &mut Lane| {
            lane.fill(guarantees.clock(lane.tier), 0);
            lane.savings.as_ref().map_or(Duration::ZERO, |savings| savings.time())
        };
        Legacy { savings: lanes.iter_mut().map(saved).collect(), window: window.learnt() }
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
