//! How far a stop has come: not requested, draining, or now.

use crate::ServeError;
use std::io;
use tracing::error;
use weir_flow::clock::Instant;

/// The state of a stop.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    phase: Phase,
    /// Hosts were asked to log out.
    announced: bool,
    /// Why the event loop stopped by itself.
    failure: Option<ServeError>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// No stop is requested.
    #[default]
    No,
    /// No new work is taken; requests in flight may end until this time.
    Draining(Instant),
    /// A second signal came, or the time was up, or the event loop failed.
    Now,
}

impl Stop {
    /// Whether a stop is requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.phase != Phase::No
    }

    /// Whether the event loop ends now.
    pub(crate) fn is_now(&self) -> bool {
        self.phase == Phase::Now
    }

    /// The end of the time for requests in flight, while it lasts.
    pub(crate) const fn draining_until(&self) -> Option<Instant> {
        match self.phase {
            Phase::Draining(until) => Some(until),
            Phase::No | Phase::Now => None,
        }
    }

    /// Begins a graceful stop.
    pub(crate) const fn drain(&mut self, until: Instant) {
        self.phase = Phase::Draining(until);
    }

    /// Ends the event loop.
    pub(crate) const fn now(&mut self) {
        self.phase = Phase::Now;
    }

    /// Ends the event loop, which cannot continue.
    pub(crate) fn fail(&mut self, action: &'static str, source: io::Error) {
        error!(%source, "cannot {action}: stopping");
        self.failure = Some(ServeError::Setup { action, source });
        self.phase = Phase::Now;
    }

    /// Whether hosts still have to be asked to log out; false from then on.
    pub(crate) const fn announce(&mut self) -> bool {
        !std::mem::replace(&mut self.announced, true)
    }

    /// Why the event loop has failed.
    pub(crate) const fn take_failure(&mut self) -> Option<ServeError> {
        self.failure.take()
    }
}
