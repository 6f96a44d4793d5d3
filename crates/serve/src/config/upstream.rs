//! Storage that somebody else runs.

use std::net::SocketAddr;
use weir_flow::clock::Duration;
use weir_wire::iscsi::target_role::{Account, DigestPolicy};

/// A logical unit of somebody else's iSCSI target, and the ways to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name, unique.
    pub name: String,
    /// The target's iSCSI name.
    pub target: String,
    /// The logical unit number, 0 to 16383.
    pub lun: u16,
    /// Where the target is reached, at least one; each is a path, by path id.
    pub portals: Vec<Portal>,
    /// Who the gateway is there. `None`: a name made of this machine's identity.
    pub initiator_name: Option<String>,
    /// What the gateway proves itself by, if the target asks (CHAP).
    pub account: Option<Account>,
    /// What the target must prove itself by; only with an `account`.
    pub mutual: Option<Account>,
    /// CRC32C over headers.
    pub header_digest: DigestPolicy,
    /// CRC32C over data.
    pub data_digest: DigestPolicy,
    /// Commands that one path may have outstanding; the target may allow fewer. 1 to 1024.
    pub commands: u32,
    /// At the start one path must work by then, or the gateway does not serve.
    pub connect_timeout: Duration,
    /// A connection must be made, logged in and looked at by then, or it is tried again.
    pub login_timeout: Duration,
    /// The longest wait between two tries of a path that does not work, while another does; else it is a
    /// second at most, or 78 ms for each path if that is more.
    pub reconnect_interval_max: Duration,
    /// Whether its unit is reserved, so that nobody else writes to it.
    pub fence: Fence,
}

/// Whether the unit of an upstream is reserved for the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fence {
    /// If the volume that is on it has a log.
    #[default]
    Auto,
    /// Whatever is on it.
    On,
    /// Never: it is somebody else's business that nobody else writes.
    Off,
}

/// Where a target is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Its address and port.
    pub address: SocketAddr,
    /// Its priority group: those of a smaller one are used while any of them works.
    pub group: u32,
}
