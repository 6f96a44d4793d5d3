//! What comes with time: periods are judged, clocks run.

use super::super::Notice;
use super::Slack;
use crate::clock::Instant;
use crate::request::TenantId;

impl Slack {
    /// Judges the periods that have ended, and lets the clocks run to `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        self.judge(now);
        self.run(now);
    }

    /// Lets the clocks run. They may be behind while nobody looks at them and no scale changes.
    pub(super) fn run(&mut self, now: Instant) {
        self.guarantees.advance(now);
        self.time.advance(now);
    }

    /// Judges the periods that have ended.
    pub(super) fn judge(&mut self, now: Instant) {
        while let Some(at) = self.window.due(now) {
            if self.window.settled() && self.guarantees.whole() {
                self.window.skip(now);
                break;
            }
            self.guarantees.advance(at);
            let (floor, misfit) = self.window.fits();
            let scaled = self.guarantees.judge(floor, misfit);
            self.notices.extend(scaled.map(|(tier, scale)| Notice::Scaled(tier, scale as u32)));
            for (promised, infeasible) in self.window.judge(self.guarantees.can_give()) {
                let class = self.window.class(promised);
                let named = (0_u32..).zip(&self.lanes);
                let hit =
                    named.filter(|(_, lane)| lane.classes.iter().flatten().any(|&c| c == class));
                self.notices
                    .extend(hit.map(|(id, _)| Notice::Infeasible(TenantId::new(id), infeasible)));
            }
        }
    }
}
