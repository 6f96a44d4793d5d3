//! New connections: how many, how fast, and from whom.

use super::{CONNECTIONS, Gateway, Stop};
use crate::frontend::connection::{Connection, NbdWire, Speech};
use crate::frontend::iscsi::session::new_wire;
use crate::frontend::listener::{Listener, Protocol};
use crate::frontend::socket::{Peer, Socket};
use crate::ids::ConnectionId;
use mio::{Interest, Token};
use std::io;
use std::net::SocketAddr;
use tracing::{debug, warn};
use weir_flow::clock::Duration;
use weir_wire::nbd::Tls;

impl Gateway<'_> {
    /// Accepts what has come, in bursts that leave time for those who are there already.
    pub(super) fn accept(&mut self) {
        if self.now < self.next_accept || self.stop != Stop::No {
            return;
        }
        let mut left = ACCEPT_BURST;
        for index in 0..self.listeners.len() {
            while self.listeners[index].ready && left > 0 {
                left -= 1;
                match self.listeners[index].accept() {
                    Ok(socket) => self.admit(socket, index),
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
            self.next_accept = self.now + ACCEPT_PAUSE;
        }
    }

    /// Lets a connection in that came to this listener, or not.
    fn admit(&mut self, mut socket: Socket, listener: usize) {
        let peer = socket.peer().clone();
        let Listener { protocol, port, .. } = self.listeners[listener];
        if let Peer::Tcp(address) = &peer
            && let Some(wait) = self.door.refuses(address.ip(), self.now)
        {
            self.turn_away(&peer, &format!("too many failed logins; again in {wait}"));
            return;
        }
        let limit = match protocol {
            Protocol::Iscsi => self.config.iscsi.max_connections,
            Protocol::Nbd => self.config.nbd.max_connections,
        };
        if self.counts[protocol as usize] >= limit && !self.make_room(protocol) {
            self.turn_away(&peer, &format!("the limit of {limit} connections is reached"));
            return;
        }
        let speech = match protocol {
            Protocol::Iscsi => {
                let mut challenge = [0; 32];
                if let Err(error) = getrandom::fill(&mut challenge) {
                    warn!(%peer, %error, "no random numbers for a login: connection refused");
                    return;
                }
                let listening = self.portals().unwrap_or_default();
                let reached = socket.local().map(|local| portals_at(local, &listening));
                let reached = reached.iter().flatten().map(SocketAddr::to_string).collect();
                Speech::Iscsi(Box::new(new_wire(
                    &self.engine.catalog,
                    &self.limits,
                    reached,
                    challenge,
                )))
            }
            Protocol::Nbd => {
                let exports = self.engine.catalog.exports.clone();
                let mut limits = self.nbd_limits;
                if let Peer::Unix { .. } = peer {
                    // Nothing leaves the machine, and the file's mode says who may come.
                    limits.tls = Tls::Off;
                }
                Speech::Nbd(Box::new(NbdWire::new(exports, limits)))
            }
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() - 1
        });
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(CONNECTIONS + index);
        if let Err(error) = self.poll.registry().register(&mut socket, token, interest) {
            warn!(%peer, %error, "cannot watch a connection: refused");
            self.free.push(index);
            return;
        }
        self.serial += 1;
        let id = ConnectionId { index, serial: self.serial };
        debug!(%peer, ?protocol, "connected");
        self.counts[protocol as usize] += 1;
        let connection = Connection::new(id, socket, port, speech, self.now);
        self.connections[index] = Some(Box::new(connection));
        if let Some(longest) = self.door.enter(id) {
            self.close_id(longest, "others wait to log in");
        }
        // NBD speaks first.
        self.write(index);
    }

    /// Closes the connection of this protocol that has waited longest for its login; false if none
    /// waits.
    fn make_room(&mut self, protocol: Protocol) -> bool {
        let longest = self.door.longest(|id| {
            let connection = self.connections[id.index].as_deref();
            connection.is_some_and(|connection| connection.protocol() == protocol)
        });
        if let Some(longest) = longest {
            self.close_id(longest, "others wait to log in");
        }
        longest.is_some()
    }

    /// Says that a connection was refused; a flood says it once per power of two.
    fn turn_away(&mut self, peer: &Peer, reason: &str) {
        if self.turned_away.speaks() {
            let refused_total = self.turned_away.total();
            warn!(%peer, reason, refused_total, "connection refused");
        }
    }

    fn close_id(&mut self, id: ConnectionId, reason: &str) {
        let place = self.connections.get_mut(id.index);
        if let Some(old) = place.and_then(|place| place.take_if(|old| old.id == id)) {
            self.close(old, reason);
        }
    }
}

/// The portals that a host can use that has connected to `local`, of those that the gateway listens on.
///
/// A wildcard address stands for the address that the host has used. Loopback addresses are for hosts that have
/// used one.
fn portals_at(local: SocketAddr, listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut portals = Vec::new();
    for portal in listening {
        // A socket on `::` takes IPv4, too.
        let reachable = portal.is_ipv6() || local.is_ipv4();
        let portal = match portal.ip() {
            ip if ip.is_unspecified() && reachable => SocketAddr::new(local.ip(), portal.port()),
            ip if ip.is_unspecified() || ip.is_loopback() && !local.ip().is_loopback() => continue,
            _ => *portal,
        };
        if !portals.contains(&portal) {
            portals.push(portal);
        }
    }
    if !portals.contains(&local) {
        portals.push(local);
    }
    portals
}

/// Connections that are accepted at a time, and the pause after that: 1600 in a second. What waits
/// longer waits in the kernel.
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
