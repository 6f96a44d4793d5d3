//! Keeps the gateway registered at iSNS servers, on a thread beside the event loop.
//!
//! `weir_wire::isns` says what is sent and when; here are its sockets, its clock and its lines in the log. The event loop
//! says what shall be registered and never waits for a server. [Decision 50](../../../../docs/decisions/0050-isns.md) has
//! the reasons.

mod caller;
mod keeper;
mod lines;
pub(crate) mod portals;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use keeper::Isns;

use crate::config::{self, Config};
use std::net::{IpAddr, SocketAddr};
use weir_flow::rng::mix;
use weir_wire::isns::{Objects, Own, Settings, Target, View};

/// What shall be registered, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    isns: config::Isns,
    /// The gateway's own name.
    source: String,
    /// Where it listens for iSCSI.
    listening: Vec<SocketAddr>,
    targets: Vec<Target>,
    /// The port for callbacks.
    callback: u16,
}

impl Registration {
    /// That of a configuration; `name` is the gateway's own name if that has none.
    fn new(config: &Config, listening: &[SocketAddr], name: &str) -> Option<Self> {
        let isns = config.isns.clone()?;
        let target = |target: &config::Target| Target {
            name: target.name.clone(),
            alias: target.alias.clone(),
        };
        Some(Self {
            source: isns.initiator_name.clone().unwrap_or_else(|| name.to_owned()),
            isns,
            listening: listening.to_vec(),
            targets: config.targets.iter().map(target).collect(),
            callback: 0,
        })
    }

    /// What is registered at a server that sees the gateway at this address.
    fn objects(&self, local: IpAddr) -> Objects {
        let portals = match &self.isns.portals[..] {
            [] => portals::usable(local, &self.listening),
            portals => portals.to_vec(),
        };
        Objects { portals, targets: self.targets.clone(), callback: self.callback }
    }

    fn settings(&self, host: &str, seed: u64) -> Settings {
        // Configured in seconds and more.
        let seconds = |time: weir_flow::clock::Duration| (time.as_nanos() / 1_000_000_000) as u32;
        Settings {
            source: self.source.clone(),
            alias: format!("weir {host}"),
            entity: self.isns.entity.clone(),
            period: seconds(self.isns.period),
            inquiries: seconds(self.isns.esi),
            seed: mix(seed),
        }
    }

    /// Whether a client keeps its registration when this one takes the place of another.
    fn is_same_gateway(&self, other: &Self) -> bool {
        let of = |one: &Self| {
            (one.source.clone(), one.isns.entity.clone(), one.isns.period, one.isns.esi)
        };
        of(self) == of(other)
    }

    /// What callbacks that come to this address are about.
    fn own(&self, local: IpAddr) -> Own {
        let (source, entity) = (self.source.clone(), self.isns.entity.clone());
        Own { source, entity, portals: self.objects(local).portals }
    }
}

/// The state at one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerState {
    pub(crate) address: SocketAddr,
    pub(crate) view: View,
}
