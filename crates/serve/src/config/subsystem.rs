//! NVMe subsystems: who finds what under their names, and what of it is a separate stream.

use super::{AnaState, Initiators};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use weir_flow::dispatch::Weight;

/// A name that NVMe hosts connect to, and what they find there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its NQN, such as `nqn.2026-11.org.example:disks`.
    pub name: String,
    /// Pairs of namespace identifier (1 to 256) and volume index, ascending, each once.
    pub namespaces: Vec<(u32, usize)>,
    /// Who may see it and connect, by NQN.
    pub hosts: Initiators,
    /// What is a separate stream at the backends.
    pub streams: Streams,
    /// The state of asymmetric access through portals; through others it is the best.
    pub ana: Vec<(SocketAddr, AnaState)>,
}

impl Subsystem {
    /// The state of access for a host that came to this address. An entry with a whole address goes before one with a
    /// wildcard, which means its port at every address.
    pub(crate) fn access(&self, local: Option<SocketAddr>) -> AnaState {
        let Some(local) = local else { return AnaState::Optimized };
        let whole = |(portal, _): &&(SocketAddr, AnaState)| *portal == local;
        let any = |(portal, _): &&(SocketAddr, AnaState)| {
            portal.ip().is_unspecified() && portal.port() == local.port()
        };
        let found = self.ana.iter().find(whole).or_else(|| self.ana.iter().find(any));
        found.map_or(AnaState::Optimized, |&(_, state)| state)
    }

    /// The volumes whose requests are streams, with their weights.
    pub(super) fn volume_streams(&self) -> impl Iterator<Item = (usize, Weight)> {
        let weights = match &self.streams {
            Streams::Namespace(weights) => Some(weights),
            Streams::Tenant | Streams::Queue(_) | Streams::Host(_) => None,
        };
        weights.into_iter().flat_map(|weights| {
            let weight = |nsid| weights.get(&nsid).copied().unwrap_or_default();
            self.namespaces.iter().map(move |&(nsid, volume)| (volume, weight(nsid)))
        })
    }
}

/// What of a subsystem is a separate stream, within the share of its tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Nothing: all requests of a tenant are one stream.
    #[default]
    Tenant,
    /// Every I/O queue, with these weights by queue identifier; others have weight 1.
    Queue(BTreeMap<u16, Weight>),
    /// Every host: the requests of all its queues.
    Host(HostShares),
    /// Every namespace, with these weights by identifier; others have weight 1. Requests for its volume that come over
    /// other protocols are of it, too.
    Namespace(BTreeMap<u32, Weight>),
}

/// Whose the requests of an I/O queue are, apart from those of others of its tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The queue's alone.
    Queue,
    /// Its host's.
    Host,
}

impl Streams {
    pub(super) fn of_queue(&self, queue: u16, host: &str) -> Option<(Whose, Weight)> {
        match self {
            Self::Tenant | Self::Namespace(_) => None,
            Self::Queue(weights) => {
                Some((Whose::Queue, weights.get(&queue).copied().unwrap_or_default()))
            }
            Self::Host(shares) => Some((Whose::Host, shares.weight(host))),
        }
    }
}

/// The weights of hosts, by their NQNs or by beginnings of NQNs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostShares(Vec<(String, Weight)>);

impl HostShares {
    /// Hosts by NQN, whose upper and lower case are the same; an entry that ends in `*` is for all with that beginning.
    pub fn new(shares: impl IntoIterator<Item = (String, Weight)>) -> Self {
        let lower = |(name, weight): (String, Weight)| (name.to_ascii_lowercase(), weight);
        let mut shares: Vec<_> = shares.into_iter().map(lower).collect();
        shares.sort_by_key(|(name, _)| (name.ends_with('*'), Reverse(name.len())));
        Self(shares)
    }

    /// The weight of a host: that of its NQN, else of the longest beginning that fits, else 1.
    pub fn weight(&self, host: &str) -> Weight {
        let host = host.to_ascii_lowercase();
        let fits = |(name, _): &&(String, Weight)| match name.strip_suffix('*') {
            Some(front) => host.starts_with(front),
            None => host == *name,
        };
        self.0.iter().find(fits).map_or(Weight::ONE, |&(_, weight)| weight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A whole name goes before beginnings, and a long beginning before a short one; case does not matter.
    #[test]
    fn the_most_exact_entry_counts() {
        let names = ["nqn.a*", "NQN.a:one*", "nqn.a:one", "nqn.b:two"];
        let parts = |parts| Weight::from_1024ths(parts).unwrap();
        let shares = names.into_iter().zip(1..).map(|(name, at)| (name.to_owned(), parts(at)));
        let shares = HostShares::new(shares);
        let hosts = ["nqn.A:ONE", "nqn.a:one.more", "nqn.a", "nqn.b:two", "nqn.b:two.more"];
        let weights = hosts.map(|host| shares.weight(host).as_1024ths());
        assert_eq!(weights, [3, 2, 1, 4, 1_024]);
    }
}
