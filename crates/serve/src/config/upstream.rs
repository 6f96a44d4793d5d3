//! The configuration of an upstream: storage on another iSCSI target.

use std::net::SocketAddr;
use weir_flow::clock::Duration;
use weir_flow::settings::{HOUR, MILLISECOND, SECOND};
use weir_flow::{settings, word_field};
use weir_wire::iscsi::target_role::{Account, DigestPolicy};

settings! {
    /// A logical unit of another iSCSI target, and the paths to it.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Upstream {
        /// The logical unit number.
        pub lun: u16 = Count(0, 16_383), 0;
        /// Commands that one path may have outstanding; the target may allow fewer.
        pub max_commands: u32 = Count(1, 1_024), 128;
        /// At the start one path must work within this time, or the gateway does not serve.
        pub connect_timeout: Duration = Time(100 * MILLISECOND, HOUR), 10 * SECOND;
        /// A connection must be made, logged in and its unit checked within this time, or it is tried again.
        pub login_timeout: Duration = Time(100 * MILLISECOND, HOUR), 3 * SECOND;
        /// The longest wait between two attempts to connect a path while another works. The first waits are
        /// shorter. While no path works, the longest is a second, or 78 ms for each path if that is more.
        pub reconnect_interval_max: Duration = Time(100 * MILLISECOND, HOUR), 5 * SECOND;
        /// Whether the gateway reserves the unit, so that no other initiator writes to it: if the volume on
        /// it has a `log` (auto), always (on), or never (off); with `off` you must keep others away.
        pub fence: Fence = Word(&["auto", "on", "off"]), 0;
    }
    also {
        /// Its name, unique.
        pub name: String = String::new();
        /// The target's iSCSI name.
        pub target: String = String::new();
        /// Where the target is reached, at least one; each is a path, by path id.
        pub portals: Vec<Portal> = Vec::new();
        /// The gateway's initiator name there. `None`: a name made of this machine's identity.
        pub initiator_name: Option<String> = None;
        /// The gateway's own credentials, if the target asks (CHAP).
        pub account: Option<Account> = None;
        /// The credentials that the target must have; only with an `account`.
        pub mutual: Option<Account> = None;
        /// CRC32C over headers.
        pub header_digest: DigestPolicy = DigestPolicy::Allowed;
        /// CRC32C over data.
        pub data_digest: DigestPolicy = DigestPolicy::Allowed;
    }
}

/// Whether the unit of an upstream is reserved for the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// If the volume that is on it has a log.
    #[default]
    Auto,
    /// Whatever is on it.
    On,
    /// Never: the operator keeps other initiators away.
    Off,
}

word_field!(Fence { Auto, On, Off });

/// Where a target is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Its address and port.
    pub address: SocketAddr,
    /// Its priority group: those of a smaller one are used while any of them works.
    pub group: u32,
}
