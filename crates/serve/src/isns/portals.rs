//! Which of the addresses that the gateway listens on a peer can use.

use std::net::{IpAddr, SocketAddr};

/// The portals for a peer that has used the address `local`. A wildcard address stands for that; loopback addresses are
/// for peers that have used one.
pub(crate) fn usable(local: IpAddr, listening: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut portals = Vec::new();
    for portal in listening {
        // A socket on `::` takes IPv4, too.
        let reachable = portal.is_ipv6() || local.is_ipv4();
        let portal = match portal.ip() {
            ip if ip.is_unspecified() && reachable => SocketAddr::new(local, portal.port()),
            ip if ip.is_unspecified() || ip.is_loopback() && !local.is_loopback() => continue,
            _ => *portal,
        };
        if !portals.contains(&portal) {
            portals.push(portal);
        }
    }
    portals
}
