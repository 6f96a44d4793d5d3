//! What a pipeline shows of itself to people who ask.

use super::{Census, Overdue, Pipeline};
use crate::clock::{Duration, Instant};
use crate::dispatch::{BackendView, StreamView, SubstreamView};
use crate::event::{Observer, StageName};
use crate::path;

impl<O: Observer> Pipeline<O> {
    /// What is in each stage now. O(outstanding): for people who ask, not for the data path.
    pub fn census(&self, now: Instant) -> [Census; 7] {
        let mut census =
            StageName::ALL.map(|stage| Census { stage, count: 0, oldest: Duration::ZERO });
        for entry in self.requests.values() {
            let place = &mut census[entry.stage.index()];
            place.count += 1;
            place.oldest = place.oldest.max(now.saturating_since(entry.entered));
        }
        census
    }

    /// Every path as it is now.
    pub fn paths(&self, now: Instant) -> impl Iterator<Item = path::View> {
        self.paths.views(now)
    }

    /// How each stream fares at the backends.
    pub fn streams(&self, now: Instant) -> impl Iterator<Item = StreamView> {
        self.dispatch.streams(now)
    }

    /// How each stream within a tenant fares at the backends.
    pub fn substreams(&self, now: Instant) -> impl Iterator<Item = SubstreamView> {
        self.dispatch.substreams(now)
    }

    /// How full each backend is.
    pub fn backends(&self) -> impl Iterator<Item = BackendView> {
        self.dispatch.backends()
    }

    /// What has been in one stage for [`Limits::report_after`](super::Limits::report_after) or longer. O(outstanding): as
    /// [`census`](Self::census).
    pub fn overdue(&self, now: Instant) -> impl Iterator<Item = Overdue<'_>> {
        let limit = self.limits.report_after;
        self.requests.values().filter_map(move |entry| entry.overdue(now, limit))
    }
}
