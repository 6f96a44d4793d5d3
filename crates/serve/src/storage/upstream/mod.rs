//! Upstreams: logical units of other targets, over iSCSI sessions of the gateway.
//!
//! All sessions live in the one event loop, beside those of hosts. A path is a portal, and has one session at a
//! time. The pipeline chooses the path of each operation and judges the paths; here they are connected, probed and
//! connected again, and each operation becomes SCSI commands.
//!
//! | event | reads and flushes | writes |
//! |---|---|---|
//! | a command was not sent yet, or was refused | another path | another path |
//! | the session is lost, or given up | another path, at once | held until the target has confirmed that the session is dead to it, then another path |
//!
//! So no command that changes the medium is executed twice, however late the first one arrives: see
//! [`held_writes`].
//!
//! | owner | of |
//! |---|---|
//! | [`Upstreams`] | the upstreams; which of them an operation or an event concerns |
//! | [`Upstream`] | one upstream: what an event of one path means for the others |
//! | [`PathSet`] | its paths: which work, and what the pipeline knows of them |
//! | [`Resets`](resets::Resets) | which paths have still to report a reset of the unit |
//! | [`LogicalUnit`] | what its sessions share: the unit's facts, the reservation |
//! | [`RememberedUnit`] | what a volume remembers of a unit while no gateway runs |
//! | [`Path`] | a portal: its session, [`Attempts`](retry::Attempts), [`HeldWrites`](held_writes::HeldWrites) |
//! | [`Session`] | one iSCSI session |
//! | [`Context`] | what all upstreams share: the network, the time, events for the shard |

mod backend;
mod cdb;
mod claim;
mod context;
mod held_writes;
pub(crate) mod network;
mod operation;
mod ownership;
mod path;
mod path_set;
mod payload;
mod probe;
pub(crate) mod remembered;
mod resets;
mod retry;
mod sense;
mod session;
mod start;
#[cfg(test)]
pub(crate) mod testing;
mod unit;

pub(crate) use network::FIRST_TOKEN;
#[cfg(test)]
pub(crate) use ownership::Owner;
pub use ownership::{Denied, Unowned};
pub(crate) use ownership::{Key, Ownership, Standing, owners};
pub(crate) use start::StartError;
pub use start::{Unreachable, UnreachablePath};

use crate::config;
use crate::config::Config;
use crate::identity::identity;
use crate::storage::io::{Io, StorageDone};
use crate::storage::random::Random;
use crate::storage::store::Unit;
use backend::Upstream;
use context::Context;
use network::{Network, Readiness};
use path::Path;
use path_set::PathSet;
use remembered::RememberedUnit;
use weir_flow::clock::Instant;
use weir_flow::request::{BackendId, PathId, RequestKey};
use weir_flow::rng::mix;

/// All upstreams.
pub(crate) struct Upstreams<N: Network> {
    all: Vec<Upstream<N>>,
    /// The first backend that is an upstream.
    first_backend: usize,
    /// The upstream of each path, by the path's number, and the index there.
    paths: Vec<(usize, usize)>,
    context: Context<N>,
}

impl<N: Network> Upstreams<N> {
    /// These upstreams; nothing is connected yet. To the pipeline they are the backends from `first_backend` on.
    pub(crate) fn new(
        upstreams: &[config::Upstream],
        first_backend: usize,
        network: N,
        random: Box<dyn Random>,
    ) -> Self {
        let node = identity();
        let mut paths = Vec::new();
        let upstream = |(index, config): (usize, &config::Upstream)| {
            let backend = BackendId::new((first_backend + index) as u32);
            let set = PathSet::new(config, backend, paths.len(), &node);
            paths.extend((0..set.len()).map(|path| (index, path)));
            Upstream::new(index, set)
        };
        let all = upstreams.iter().enumerate().map(upstream).collect();
        Self { all, first_backend, paths, context: Context::new(network, random) }
    }

    /// What is known of an upstream's unit. Panics before a session has probed it.
    pub(crate) fn unit(&self, upstream: usize) -> Unit {
        self.all[upstream].unit()
    }

    /// Who owns the unit of an upstream, if it is reserved.
    pub(crate) fn ownership(&self, upstream: usize) -> Option<Ownership> {
        self.all[upstream].ownership()
    }

    /// What a volume is to remember of its units. `stops`: the gateway stops, and gives their reservations up.
    pub(crate) fn to_remember(
        &self,
        config: &Config,
        volume: usize,
        stops: bool,
    ) -> Vec<RememberedUnit> {
        let of = |&(index, _): &(usize, &Upstream<N>)| volume_on(config, index) == Some(volume);
        let upstreams = self.all.iter().enumerate().filter(of);
        upstreams.filter_map(|(_, upstream)| upstream.to_remember(stops)).collect()
    }

    /// By path of an upstream: when a connection is tried next; the past while one is tried, `None` while there is one.
    pub(crate) fn next_attempts(&self, upstream: usize) -> impl Iterator<Item = Option<Instant>> {
        self.all[upstream].paths.iter().map(path::Path::next_attempt)
    }

    /// Claims the unit of an upstream from exactly this key.
    pub(crate) fn claim_from(&mut self, upstream: usize, key: u64) {
        self.all[upstream].claim_from(&mut self.context, key);
    }

    /// Claims the unit of an upstream with another key than the present one.
    pub(crate) fn claim_again(&mut self, upstream: usize) {
        self.all[upstream].claim_again(&mut self.context);
    }

    /// Another gateway may take the unit of an upstream over. The key that holds it.
    pub(crate) fn give(&mut self, upstream: usize) -> Option<u64> {
        self.all[upstream].give()
    }

    /// Makes durable what was written to an upstream; true when that is done. `again`: begin.
    pub(crate) fn flush_to_give(&mut self, upstream: usize, again: bool) -> bool {
        self.all[upstream].flush_to_give(&mut self.context, again)
    }

    /// Whether another gateway owns the unit of an upstream, and this one waits for a move.
    pub(crate) fn is_away(&self, upstream: usize) -> bool {
        self.all[upstream].is_away()
    }

    /// The name of the unit of an upstream, if it has said one.
    pub(crate) fn unit_name(&self, upstream: usize) -> Option<String> {
        self.all[upstream].unit.name()
    }

    /// Whether a backend of the pipeline is an upstream.
    pub(crate) const fn has(&self, backend: BackendId) -> bool {
        let index = backend.index();
        index >= self.first_backend && index < self.first_backend + self.all.len()
    }

    /// An upstream, and what it shares with the others.
    fn at(&mut self, backend: BackendId) -> (&mut Upstream<N>, &mut Context<N>) {
        (&mut self.all[backend.index() - self.first_backend], &mut self.context)
    }

    /// Takes an operation for a path.
    pub(crate) fn submit(&mut self, backend: BackendId, path: PathId, io: Io) {
        let (upstream, context) = self.at(backend);
        upstream.submit(context, path, io);
    }

    /// Asks for a sign of life on a path.
    pub(crate) fn check(&mut self, backend: BackendId, path: PathId) {
        let (upstream, context) = self.at(backend);
        upstream.check(context, path);
    }

    /// Forgets a read, and an end of it that the shard has not taken yet.
    pub(crate) fn abandon(&mut self, backend: BackendId, path: PathId, key: RequestKey) {
        let (upstream, context) = self.at(backend);
        context.retract(key);
        upstream.abandon(path, key);
    }

    /// Gives a path up if its target has deferred this operation, or takes none.
    pub(crate) fn recall(&mut self, backend: BackendId, path: PathId, key: RequestKey) {
        let (upstream, context) = self.at(backend);
        upstream.recall(context, path, key);
    }

    /// Gives a path up, and connects it again.
    pub(crate) fn reset(&mut self, backend: BackendId, path: PathId) {
        let (upstream, context) = self.at(backend);
        upstream.reset(context, path);
    }

    /// An event of the socket with this number.
    pub(crate) fn event(&mut self, number: usize, event: Readiness) {
        let Some(&(upstream, path)) = self.paths.get(number / 2) else { return };
        let (upstream, context) = (&mut self.all[upstream], &mut self.context);
        if number % 2 == 1 {
            upstream.helper_event(context, path, event);
        } else {
            upstream.event(context, path, event);
        }
    }

    /// Whether there is input that no event will announce.
    pub(crate) const fn has_more(&self) -> bool {
        !self.context.queued.is_empty()
    }

    /// Reads the input that no event will announce.
    pub(crate) fn read_on(&mut self) {
        for number in std::mem::take(&mut self.context.queued) {
            let (upstream, path) = self.paths[number];
            self.all[upstream].read(&mut self.context, path);
        }
    }

    /// Writes the output of all sessions.
    pub(crate) fn write_all(&mut self) {
        while let Some(number) = self.context.dirty.pop() {
            let (upstream, path) = self.paths[number];
            self.all[upstream].write(&mut self.context, path);
        }
    }

    /// Appends the events for the shard.
    pub(crate) fn append_done(&mut self, done: &mut Vec<StorageDone>) {
        if !self.context.done.is_empty() {
            done.append(&mut self.context.done);
        }
    }

    /// Sets the time, before events of this time are handled.
    pub(crate) const fn set_now(&mut self, now: Instant) {
        self.context.now = now;
    }

    /// When something is due without an event.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.all.iter().filter_map(Upstream::next).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self) {
        let now = self.context.now;
        for upstream in &mut self.all {
            for path in 0..upstream.paths.len() {
                if upstream.paths[path].next().is_some_and(|at| at <= now) {
                    upstream.tick_path(&mut self.context, path);
                }
            }
        }
        for upstream in &mut self.all {
            upstream.check_reservation(&mut self.context);
        }
    }
}

/// The initiator name of sessions where the configuration has none.
pub(crate) fn initiator_name() -> String {
    format!("iqn.2026-11.io.weir:{:016x}", fold(&[&identity()]))
}

fn fold(parts: &[&str]) -> u64 {
    let fold = |id, byte: u8| mix(id ^ mix(u64::from(byte) + 1));
    parts.iter().fold(0, |id, part| part.bytes().chain([0]).fold(id, fold))
}

/// The volume that is on an upstream.
pub(crate) fn volume_on(config: &Config, upstream: usize) -> Option<usize> {
    config.volumes.iter().position(|volume| volume.is_on(upstream))
}
