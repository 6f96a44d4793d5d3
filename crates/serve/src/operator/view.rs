//! What operators can see of a gateway at one moment, apart from its pipeline.

use crate::config::Config;
use crate::frontend::connection::Connection;
use crate::frontend::turned_away::TurnedAway;
use crate::isns::ServerState;
use crate::storage::upstream::{Ownership, volume_on};
use crate::tasks::CommandEngine;
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::{BackendId, PathId};

/// A gateway at one moment. The event loop makes it for each question.
pub(crate) struct View<'a> {
    pub(crate) now: Instant,
    pub(crate) config: &'a Config,
    pub(crate) engine: &'a CommandEngine,
    /// All connections, also those that have not logged in.
    pub(crate) connections: Vec<&'a Connection>,
    /// Hosts that were turned away.
    pub(crate) turned_away: &'a TurnedAway,
    /// By upstream: the reservation of its unit; `None` for a unit without one.
    pub(crate) ownership: Vec<Option<Ownership>>,
    /// By upstream and path: when a connection is tried next; the past while one is tried, `None` while there is one.
    pub(crate) next_attempts: Vec<Vec<Option<Instant>>>,
    /// The registrations at iSNS servers.
    pub(crate) isns: Vec<ServerState>,
    /// The name of the disk driver.
    pub(crate) driver: &'static str,
    /// The part of the last second or so in which its thread has worked, in 1000ths.
    pub(crate) busy: u32,
    /// For how long its thread has slept since the start.
    pub(crate) asleep: Duration,
    /// Takes no new work: a stop was requested.
    pub(crate) stopping: bool,
}

impl View<'_> {
    /// The name of an NBD export, by its place.
    pub(crate) fn export_name(&self, export: usize) -> Option<&str> {
        let exports = self.engine.catalog.exports.as_slice();
        exports.get(export).map(|export| export.name.as_str())
    }

    /// When a connection on a path is tried next, if it has none.
    pub(crate) fn next_attempt(&self, backend: BackendId, path: PathId) -> Option<Instant> {
        let upstream = backend.index().checked_sub(self.config.backends.len())?;
        *self.next_attempts.get(upstream)?.get(path.index())?
    }

    /// The reservations of the units that a volume is on, with the names of their upstreams.
    pub(crate) fn ownership(&self, volume: usize) -> impl Iterator<Item = (&str, &Ownership)> {
        let upstreams = self.config.upstreams.iter().zip(&self.ownership).enumerate();
        let of = move |(index, _): &(usize, _)| volume_on(self.config, *index) == Some(volume);
        upstreams
            .filter(of)
            .filter_map(|(_, (upstream, owned))| Some((&upstream.name[..], owned.as_ref()?)))
    }
}
