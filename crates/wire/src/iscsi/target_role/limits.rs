//! Settings of a target: names, access and limits per connection.

use super::access::{Authentication, Initiators, Redirect};
use super::task::OUTSTANDING_R2T_MAX;
use crate::crc32c::DIGEST_LENGTH;
use crate::iscsi::account::Account;
use crate::iscsi::chap::ChapAlgorithm;
use crate::iscsi::keys::{DigestPolicy, LENGTH_MAX, LENGTH_MIN, SEGMENT_LENGTH_DEFAULT};
use crate::iscsi::pdu::{AHS_LENGTH_MAX, HEADER_LENGTH};

/// Most commands for immediate delivery that may be outstanding on a connection, each of SCSI
/// commands and task management functions. One more is rejected with "immediate command reject".
// RFC 7143 section 4.2.2.1: at least one of each must be supported.
pub const IMMEDIATE_TASKS_MAX: usize = 16;
/// Largest command window, in commands.
const WINDOW_MAX: u32 = 1024;

/// The targets of a node, for discovery and login.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// The targets of this node, in the order in which they are listed.
    pub targets: Vec<TargetEntry>,
    /// Their portals. Empty: the address on which the discovery session was opened.
    pub portals: Vec<Advertised>,
    /// Portal group tag of every portal here, 0 to 65535.
    pub portal_group: u16,
    /// All accounts, which the targets refer to by index.
    pub accounts: Vec<Account>,
    /// Authentication of discovery sessions.
    pub discovery: Authentication,
}

/// One target by name.
#[derive(Clone, Debug, Default)]
pub struct TargetEntry {
    /// iSCSI name, such as `iqn.2026-01.org.example:disk1`, already in lower case.
    pub iqn: String,
    /// A name for people.
    pub alias: Option<String>,
    /// The initiators that may see it and log in to it.
    pub initiators: Initiators,
    /// The initiators that may see each of its units. For an initiator that may see none the target does not exist.
    /// Empty: no restriction.
    pub units: Vec<Initiators>,
    /// Their authentication.
    pub authentication: Authentication,
    /// The redirection, if the target is served elsewhere.
    pub redirect: Option<Redirect>,
    /// It is not served now, here or elsewhere: initiators get a status that lets them try again.
    pub unavailable: bool,
    /// The target was removed by a reload: initiators no longer find it. Its entry stays, so that the indices of the
    /// others do not change.
    pub removed: bool,
}

impl TargetEntry {
    /// Whether the target is there for the initiator of this name, in lower case.
    pub fn is_for(&self, initiator: &str) -> bool {
        let sees_something =
            self.units.is_empty() || self.units.iter().any(|unit| unit.admit(initiator));
        self.initiators.admit(initiator) && sees_something
    }
}

/// The address of a portal as text, such as `10.0.2.2:3260` or `[fd00::1]:3260`.
#[derive(Clone, Debug)]
pub struct Advertised(pub String);

/// Limits of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Largest data segment that is received, in bytes; 512 to 16777215, default 65536. The shell's
    /// receive buffer must hold one such segment and its header.
    pub max_recv_data_segment_length: u32,
    /// Longest sequence of data in either direction, in bytes; 512 to 16777215, default 262144. A larger value saves
    /// R2T round trips, and one command occupies the connection for longer.
    pub max_burst_length: u32,
    /// Most unsolicited data of one command, in bytes; 512 to `max_burst_length`, default 65536. An initiator that
    /// does not negotiate it may still send 65536.
    pub first_burst_length: u32,
    /// Whether a command may carry its first write data; default yes, which saves a round trip.
    pub immediate_data: bool,
    /// Whether to require R2T before any Data-Out; default no.
    pub initial_r2t: bool,
    /// R2Ts that one command may have outstanding; 1 to 8, default 4.
    pub max_outstanding_r2t: u16,
    /// Commands that may be outstanding on a connection; 1 to 1024, default 128. Commands beyond
    /// the window are ignored, as the protocol says.
    pub command_window: u32,
    /// CRC32C over headers; default allowed.
    pub header_digest: DigestPolicy,
    /// CRC32C over data; default allowed.
    pub data_digest: DigestPolicy,
    /// The weakest CHAP algorithm that is accepted; default MD5.
    pub chap_algorithm_min: ChapAlgorithm,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_recv_data_segment_length: 65_536,
            max_burst_length: 262_144,
            first_burst_length: 65_536,
            immediate_data: true,
            initial_r2t: false,
            max_outstanding_r2t: 4,
            command_window: 128,
            header_digest: DigestPolicy::Allowed,
            data_digest: DigestPolicy::Allowed,
            chap_algorithm_min: ChapAlgorithm::Md5,
        }
    }
}

impl Limits {
    /// The first limit that is out of its range, as a message for the operator.
    pub fn check(&self) -> Result<(), &'static str> {
        let lengths = LENGTH_MIN..=LENGTH_MAX;
        if !lengths.contains(&self.max_recv_data_segment_length) {
            return Err("max_recv_data_segment_length must lie between 512 and 16777215");
        }
        if !lengths.contains(&self.max_burst_length) {
            return Err("max_burst_length must lie between 512 and 16777215");
        }
        // RFC 7143 section 13.14: FirstBurstLength must not exceed MaxBurstLength.
        if !(LENGTH_MIN..=self.max_burst_length).contains(&self.first_burst_length) {
            return Err("first_burst_length must lie between 512 and max_burst_length");
        }
        if !(1..=OUTSTANDING_R2T_MAX as u16).contains(&self.max_outstanding_r2t) {
            return Err("max_outstanding_r2t must lie between 1 and 8");
        }
        if !(1..=WINDOW_MAX).contains(&self.command_window) {
            return Err("command_window must lie between 1 and 1024");
        }
        Ok(())
    }

    /// Length of the longest PDU that a peer may send, in bytes: what a receive buffer must hold.
    pub fn pdu_length_max(&self) -> usize {
        let segment = self.max_recv_data_segment_length.max(SEGMENT_LENGTH_DEFAULT) as usize;
        HEADER_LENGTH + AHS_LENGTH_MAX + segment.next_multiple_of(4) + 2 * DIGEST_LENGTH
    }

    /// The window that the shell requests, clamped to the limits.
    pub(crate) fn window(wanted: u32) -> u32 {
        wanted.min(WINDOW_MAX)
    }
}
