//! The origin of connections as counts and tables know it: an address, or this machine.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Where connections come from. One host may have all addresses of an IPv6 network, so its first 64 bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// An IPv4 address, or an IPv6 network of 64 bits.
    Network(IpAddr),
    /// A Unix socket.
    Local,
}

impl Source {
    /// The source of a host at this address.
    pub(crate) fn of(address: IpAddr) -> Self {
        // A listener for both kinds shows IPv4 hosts as IPv6 addresses that agree in their first 64 bits.
        Self::Network(match address.to_canonical() {
            IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
            address @ IpAddr::V4(_) => address,
        })
    }
}

/// As logs and `weir status` name it: `192.0.2.7`, `2001:db8::/64`, `unix`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(IpAddr::V4(address)) => address.fmt(f),
            Self::Network(IpAddr::V6(network)) => write!(f, "{network}/64"),
            Self::Local => f.write_str("unix"),
        }
    }
}

/// The bits of an IPv6 address that name a network.
const NETWORK: u128 = !0 << 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// An IPv6 network is one source, and an IPv4 host is the same in either spelling.
    #[test]
    fn sources_are_networks() {
        let of = |text: &str| Source::of(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:ffff:ffff::1"), of("2001:db8:1:2::3"));
        assert_ne!(of("2001:db8:1:3::1"), of("2001:db8:1:2::1"));
        assert_eq!(of("::ffff:192.0.2.3"), of("192.0.2.3"));
        assert_ne!(of("192.0.2.4"), of("192.0.2.3"));
        let names = [of("2001:db8:1:2:ffff::1"), of("192.0.2.3"), Source::Local];
        assert_eq!(names.map(|one| one.to_string()), ["2001:db8:1:2::/64", "192.0.2.3", "unix"]);
    }
}
