//! `[isns]`: the name servers that tell hosts where the targets of this gateway are.

use std::net::SocketAddr;
use weir_flow::clock::Duration;
use weir_flow::settings;
use weir_flow::settings::{HOUR, Invalid, MINUTE, SECOND};
pub use weir_wire::isns::PORT;

settings! {
    /// The registration at iSNS servers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Isns {
        /// A server forgets the gateway after this time without a refresh. The gateway refreshes three times as often.
        pub period: Duration = Time(20 * SECOND, 24 * HOUR), 10 * MINUTE;
        /// How often a server asks whether the gateway is alive (ESI): after three times without an answer it removes
        /// the portals. Servers may do it less often. 0: never.
        pub esi: Duration = Time(0, HOUR), MINUTE;
        /// The TCP port at which servers reach the gateway for ESI and notifications; 0 takes a free one.
        pub port: u32 = Count(0, 65_535), 0;
    }
    also {
        /// The servers, 1 to 4. Each has its own registration: they are not replicas of each other.
        pub servers: Vec<SocketAddr> = Vec::new();
        /// The entity: one name for all gateways that serve the same volumes.
        pub entity: String = String::new();
        /// Where hosts find the targets. Empty: where the gateway listens for iSCSI.
        pub portals: Vec<SocketAddr> = Vec::new();
        /// The gateway's own name at the servers. `None`: a name made of this machine's identity.
        pub initiator_name: Option<String> = None;
    }
    check whole;
}

/// What cannot be said by ranges.
fn whole(isns: &Isns) -> Result<(), Invalid> {
    let zero = Duration::ZERO;
    if isns.esi > zero && isns.esi < Duration::from_secs(5) {
        return Err(Invalid::Rule("esi", "must be 0 or at least 5s"));
    }
    Ok(())
}

/// The most servers.
pub const SERVERS_MAX: usize = 4;

/// The longest name of an entity in bytes (RFC 4171, section 6.2.1).
pub const ENTITY_MAX: usize = 255;
