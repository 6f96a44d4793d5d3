//! New connections: how many, how fast, and from whom.

use super::connections::{Connections, Incoming};
use super::kernel::Kernel;
use crate::config::Config;
use crate::frontend;
use crate::frontend::connection::{NbdWire, Protocol, Speech};
use crate::frontend::iscsi::session::new_wire;
use crate::frontend::listener::{Accept, Listener};
use crate::frontend::logins::FULL;
use crate::frontend::nvme_queue::Queue;
use crate::frontend::socket::{Peer, Socket};
use crate::isns::portals::usable;
use crate::isns::{Isns, ServerState};
use crate::storage::random::Random;
use crate::tasks::CommandEngine;
use std::io;
use std::net::SocketAddr;
use tracing::{debug, warn};
use weir_flow::clock::{Duration, Instant};
use weir_wire::iscsi::target_role::{Limits, LoginStatus};
use weir_wire::nbd::{self, Tls};
use weir_wire::nvme;

/// Accepts connections.
pub(crate) struct Acceptor<A> {
    listeners: Vec<Listener<A>>,
    /// Tells hosts of them.
    isns: Option<Isns>,
    /// No connection is accepted before this time.
    next: Instant,
    /// How iSCSI connections begin.
    iscsi: Limits,
    /// How NBD connections begin.
    nbd: nbd::Limits,
    /// How NVMe connections begin.
    nvme: nvme::Limits,
    /// For the challenges of logins.
    random: Box<dyn Random>,
}

/// What a new connection needs of others.
pub(crate) struct Around<'a, K: Kernel> {
    pub(crate) kernel: &'a mut K,
    pub(crate) connections: &'a mut Connections<K::Stream>,
    pub(crate) engine: &'a mut CommandEngine,
    pub(crate) config: &'a Config,
    pub(crate) now: Instant,
}

impl<A: Accept> Acceptor<A> {
    pub(crate) fn new(
        config: &Config,
        (listeners, isns): (Vec<Listener<A>>, Option<Isns>),
        random: Box<dyn Random>,
    ) -> Self {
        Self {
            listeners,
            isns,
            next: Instant::ZERO,
            iscsi: Limits {
                command_window: config.iscsi.max_commands,
                header_digest: config.iscsi.header_digest,
                data_digest: config.iscsi.data_digest,
                chap_algorithm_min: config.iscsi.chap_algorithm_min,
                ..Limits::default()
            },
            nbd: frontend::nbd::limits(config),
            nvme: frontend::nvme::limits(&config.nvme),
            random,
        }
    }

    /// The listeners of a protocol.
    pub(crate) fn listeners(&self, protocol: Protocol) -> impl Iterator<Item = &Listener<A>> {
        self.listeners.iter().filter(move |one| one.protocol == protocol)
    }

    /// The TCP addresses of a protocol that hosts can connect to now.
    pub(crate) fn addresses(&self, protocol: Protocol) -> io::Result<Vec<SocketAddr>> {
        self.listeners(protocol).filter_map(Listener::address).collect()
    }

    /// Those that the host behind a socket can use.
    fn reached(&self, protocol: Protocol, socket: &Socket<A::Stream>) -> Vec<SocketAddr> {
        let listening = self.addresses(protocol).unwrap_or_default();
        socket.local().map(|local| portals_at(local, &listening)).unwrap_or_default()
    }

    /// Whether hosts can connect.
    pub(crate) const fn is_open(&self) -> bool {
        !self.listeners.is_empty()
    }

    /// Has name servers tell what this configuration has.
    pub(crate) fn register(&self, config: &Config) {
        if let Some(isns) = &self.isns {
            isns.change(config);
        }
    }

    /// The state at each name server.
    pub(crate) fn registrations(&self) -> Vec<ServerState> {
        self.isns.as_ref().map(Isns::states).unwrap_or_default()
    }

    /// Closes all listeners.
    pub(crate) fn close(&mut self) {
        if let Some(isns) = &self.isns {
            isns.leave();
        }
        self.listeners.clear();
    }

    /// A listener has connections, as an event says.
    pub(crate) fn event(&mut self, listener: usize) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.ready = true;
        }
    }

    /// Tries all listeners again: an event comes once, and connections for which no descriptor was free
    /// still wait.
    pub(crate) fn retry(&mut self) {
        for listener in &mut self.listeners {
            listener.ready = true;
        }
    }

    /// When to accept if no event comes.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.listeners.iter().any(|listener| listener.ready).then_some(self.next)
    }

    /// Accepts connections, in bursts that leave time for established ones.
    pub(crate) fn accept<K>(&mut self, around: &mut Around<'_, K>)
    where
        K: Kernel<Listener = A, Stream = A::Stream>,
    {
        if around.now < self.next {
            return;
        }
        let mut left = ACCEPT_BURST;
        for index in 0..self.listeners.len() {
            while self.listeners[index].ready && left > 0 {
                left -= 1;
                match self.listeners[index].accept() {
                    Ok(socket) => self.admit(around, socket, index),
                    Err(error) => match error.kind() {
                        io::ErrorKind::WouldBlock => self.listeners[index].ready = false,
                        io::ErrorKind::Interrupted
                        | io::ErrorKind::ConnectionAborted
                        | io::ErrorKind::NotConnected
                        | io::ErrorKind::ConnectionReset => {}
                        _ => {
                            warn!(%error, "cannot accept a connection; trying again in a second");
                            self.listeners[index].ready = false;
                        }
                    },
                }
            }
        }
        if left == 0 {
            self.next = around.now + ACCEPT_PAUSE;
        }
    }

    /// Admits a connection that came to this listener, or refuses it.
    fn admit<K>(&mut self, around: &mut Around<'_, K>, socket: Socket<A::Stream>, listener: usize)
    where
        K: Kernel<Listener = A, Stream = A::Stream>,
    {
        let Around { kernel, connections, engine, config, now } = around;
        let peer = socket.peer().clone();
        let Listener { protocol, port, .. } = self.listeners[listener];
        let limit = match protocol {
            Protocol::Iscsi => config.iscsi.max_connections,
            Protocol::Nbd => config.nbd.max_connections,
            Protocol::Nvme => config.nvme.max_connections,
        };
        let turned_away = !connections.make_room(engine, protocol, limit);
        if turned_away {
            engine.set.log.line(*now, peer.source(), "connection refused", |text| {
                warn!(%peer, "{text}: the limit of {limit} connections is reached");
            });
            connections.logins.turned_away.note(*now, (peer.source(), FULL), Duration::ZERO, None);
            if protocol != Protocol::Iscsi {
                // The protocols have no answer to a client that has only connected.
                return;
            }
        }
        let speech = match protocol {
            Protocol::Iscsi => {
                let mut challenge = [0; 32];
                if let Err(error) = self.random.fill(&mut challenge) {
                    let text = "no random numbers for a login: connection refused";
                    let log = &engine.set.log;
                    log.line(*now, peer.source(), text, |text| warn!(%peer, %error, "{text}"));
                    return;
                }
                let reached = self.reached(protocol, &socket);
                let reached = reached.iter().map(SocketAddr::to_string).collect();
                let mut wire = new_wire(&engine.catalog, &self.iscsi, reached, challenge);
                if turned_away {
                    wire.refuse_logins(LoginStatus::OutOfResources);
                }
                Speech::Iscsi(Box::new(wire))
            }
            Protocol::Nbd => {
                let mut limits = self.nbd;
                if let Peer::Unix { .. } = peer {
                    // Nothing leaves the machine, and the file's mode says who may connect.
                    limits.tls = Tls::Off;
                }
                Speech::Nbd(Box::new(NbdWire::new(engine.catalog.exports.clone(), limits)))
            }
            Protocol::Nvme => {
                let (portals, local) = (self.reached(protocol, &socket), socket.local());
                Speech::Nvme(Box::new(Queue::new(self.nvme, portals, local)))
            }
        };
        debug!(%peer, ?protocol, "connected");
        let incoming = Incoming { socket, port, speech, turned_away };
        if let Err(error) = connections.enter(*kernel, engine, *now, incoming) {
            engine.set.log.line(
                *now,
                peer.source(),
                "cannot watch a connection: refused",
                |text| {
                    warn!(%peer, %error, "{text}");
                },
            );
        }
    }
}

/// The portals that a host can use that has connected to `local`, of those that the gateway listens on.
fn portals_at(local: SocketAddr, listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut portals = usable(local.ip(), listening);
    if !portals.contains(&local) {
        portals.push(local);
    }
    portals
}

/// Connections that are accepted at a time, and the pause after that: 1600 in a second. More stay in the
/// kernel.
const ACCEPT_BURST: u32 = 16;
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every portal is listed once, at the address that the host can use.
    #[test]
    fn portals_are_those_that_the_host_can_use() {
        let portals = |local: &str, listening: &[&str]| {
            let listening: Vec<_> = listening.iter().map(|text| text.parse().unwrap()).collect();
            let portals = portals_at(local.parse().unwrap(), &listening);
            portals.iter().map(SocketAddr::to_string).collect::<Vec<_>>()
        };
        let two = ["192.0.2.1:3260", "198.51.100.1:3261"];
        assert_eq!(portals("192.0.2.1:3260", &two), two);
        assert_eq!(portals("198.51.100.1:3261", &two), two);
        // Wildcards of either family, and one that the host cannot reach by its own family.
        let any = ["0.0.0.0:3260", "[::]:3261"];
        assert_eq!(portals("192.0.2.1:3260", &any), ["192.0.2.1:3260", "192.0.2.1:3261"]);
        assert_eq!(portals("[2001:db8::1]:3261", &any), ["[2001:db8::1]:3261"]);
        assert_eq!(portals("192.0.2.1:3260", &["0.0.0.0:3260", "192.0.2.1:3260"]).len(), 1);
        // A host would log in to itself at a loopback address.
        let with_loopback = ["127.0.0.1:3260", "192.0.2.1:3260"];
        assert_eq!(portals("192.0.2.1:3260", &with_loopback), ["192.0.2.1:3260"]);
        assert_eq!(portals("127.0.0.1:3260", &with_loopback), with_loopback);
    }
}
