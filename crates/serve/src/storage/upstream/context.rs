//! What the upstreams of a shard share: the network, random bytes, the time, and the events for the shard.

use super::network::Network;
use super::payload::Payload;
use super::session::{Session, SessionEvent};
use super::{fold, initiator_name};
use crate::config;
use crate::storage::io::{Ended, StorageDone};
use crate::storage::random::Random;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_flow::clock::Instant;
use weir_flow::pipeline::Input;
use weir_flow::request::RequestKey;
use weir_flow::rng::{Rng, mix};
use weir_wire::iscsi::initiator::{Chap, Initiator, Isid, Settings};

/// What the upstreams of a shard share.
pub(super) struct Context<N: Network> {
    pub(super) network: N,
    random: Box<dyn Random>,
    /// Spreads the attempts to connect.
    pub(super) jitter: Rng,
    /// The time of the current turn of the event loop.
    pub(super) now: Instant,
    /// The gateway stops: no session is started any more.
    pub(super) closing: bool,
    /// Events for the shard, in order.
    pub(super) done: Vec<StorageDone>,
    /// Numbers of the paths that have output to write.
    pub(super) dirty: Vec<usize>,
    /// Numbers of the paths that have more input, which no event will announce.
    pub(super) queued: Vec<usize>,
    /// Empty between calls; its memory is used again.
    pub(super) events: Vec<SessionEvent>,
}

impl<N: Network> Context<N> {
    pub(super) fn new(network: N, mut random: Box<dyn Random>) -> Self {
        let mut seed = [0; 8];
        // Without random bytes all gateways reconnect at the same time, which loads the target but is correct.
        let _ = random.fill(&mut seed);
        Self {
            network,
            random,
            jitter: Rng::stream(u64::from_le_bytes(seed), "retries"),
            now: Instant::ZERO,
            closing: false,
            done: Vec::new(),
            dirty: Vec::new(),
            queued: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Starts a connection for a new session; its socket has this number.
    pub(super) fn open(
        &mut self,
        config: &config::Upstream,
        isid: Isid,
        address: SocketAddr,
        socket: usize,
    ) -> io::Result<Box<Session<N::Stream>>> {
        let mut entropy = [0; 32];
        self.random.fill(&mut entropy)?;
        let wire: Initiator<Payload> = Initiator::new(Arc::new(settings(config, isid)), entropy);
        let stream = self.network.connect(address, socket)?;
        Ok(Box::new(Session::new(stream, wire, config.lun.into())))
    }

    /// Reports the end of an operation.
    pub(super) fn end(&mut self, ended: Ended) {
        self.done.push(StorageDone::Ended(ended));
    }

    /// Reports the state of a path to the pipeline.
    pub(super) fn input(&mut self, input: Input) {
        self.done.push(StorageDone::Input(input));
    }

    /// Removes the end of a request that the shard has not taken yet.
    pub(super) fn retract(&mut self, key: RequestKey) {
        let whose = crate::storage::io::Whose::Request(key);
        self.done.retain(|one| !matches!(one, StorageDone::Ended(ended) if ended.whose == whose));
    }
}

/// The settings of sessions with an upstream.
fn settings(config: &config::Upstream, isid: Isid) -> Settings {
    let name = config.initiator_name.clone().unwrap_or_else(initiator_name);
    let mut settings = Settings::new(name, isid, Some(config.target.clone()));
    settings.header_digest = config.header_digest;
    settings.data_digest = config.data_digest;
    settings.commands_max = config.max_commands;
    settings.chap =
        config.account.clone().map(|account| Chap { account, target: config.mutual.clone() });
    settings
}

/// The initiator's part of the session name of a path. It is the same after a restart, so that the first login
/// of a gateway ends the session of its predecessor. Of the random type (RFC 7143, 11.12.5).
pub(super) fn isid(parts: &[&str], path: usize) -> Isid {
    let mut isid = [0x80; 6];
    isid[1..].copy_from_slice(&mix(fold(parts) ^ path as u64).to_be_bytes()[3..]);
    Isid(isid)
}
