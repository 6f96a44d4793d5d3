//! Settings of a session, made before it begins.

use crate::crc32c::DIGEST_LENGTH;
use crate::iscsi::account::Account;
use crate::iscsi::codes::Isid;
use crate::iscsi::keys::{DigestPolicy, LENGTH_MAX, LENGTH_MIN, SEGMENT_LENGTH_DEFAULT};
use crate::iscsi::pdu::{AHS_LENGTH_MAX, HEADER_LENGTH};

/// Most requests outside of the command window that may wait for an answer on a connection: task management
/// functions, pings and the logout together. Targets need accept only one of each kind at a time (RFC 7143 section
/// 4.2.2.1) and reject more, which ends the connection.
pub const IMMEDIATE_MAX: usize = 16;

/// Parameters and limits of one session.
#[derive(Clone, Debug)]
pub struct Settings {
    /// iSCSI name of this initiator, such as `iqn.2026-01.org.example:gateway`; 1 to 223 bytes.
    pub initiator_name: String,
    /// A name for people, at most 255 bytes.
    pub alias: Option<String>,
    /// The initiator's part of the session identifier. A login with the name and ISID of a session
    /// that exists at the same portal group ends that session (RFC 7143 section 6.3.5).
    pub isid: Isid,
    /// iSCSI name of the target, 1 to 223 bytes; `None` for a discovery session.
    pub target: Option<String>,
    /// CHAP credentials; `None`: the login succeeds only on targets without authentication.
    pub chap: Option<Chap>,
    /// CRC32C over headers; default: if the target requires it.
    pub header_digest: DigestPolicy,
    /// CRC32C over data; default: if the target requires it.
    pub data_digest: DigestPolicy,
    /// Largest data segment that is received, in bytes; 512 to 16777215, default 262144. The shell's
    /// receive buffer must hold one such segment and its header.
    pub max_recv: u32,
    /// Longest sequence of data in either direction, in bytes; 512 to 16777215, default 262144. It
    /// bounds what one R2T may ask for.
    pub max_burst: u32,
    /// Most unsolicited data of one command, in bytes; 512 to `max_burst`, default 262144. It saves
    /// a round trip for writes up to this length.
    pub first_burst: u32,
    /// Whether a command may carry its first write data; default yes.
    pub immediate_data: bool,
    /// Whether to wait for R2T before any Data-Out; default no.
    pub initial_r2t: bool,
    /// R2Ts that one command may have outstanding; 1 to 64, default 8.
    pub max_outstanding_r2t: u16,
    /// Maximum outstanding commands, even if the target's window is larger; 1 to 1024, default 128.
    pub commands_max: u32,
}

/// Credentials of this initiator and of the target.
#[derive(Clone, Debug)]
pub struct Chap {
    /// The credentials of this initiator.
    pub account: Account,
    /// The credentials that the target must have (mutual CHAP); a target without them is refused. The secret must
    /// differ from that of `account`.
    pub target: Option<Account>,
}

impl Settings {
    /// Settings with the defaults, for a session with `target` or, without one, for discovery.
    pub fn new(initiator_name: String, isid: Isid, target: Option<String>) -> Self {
        Self {
            initiator_name,
            alias: None,
            isid,
            target,
            chap: None,
            header_digest: DigestPolicy::Allowed,
            data_digest: DigestPolicy::Allowed,
            max_recv: 262_144,
            max_burst: 262_144,
            first_burst: 262_144,
            immediate_data: true,
            initial_r2t: false,
            max_outstanding_r2t: 8,
            commands_max: 128,
        }
    }

    /// The first setting that is out of its range.
    pub fn check(&self) -> Result<(), SettingsError> {
        for (setting, name) in
            [("initiator_name", Some(&self.initiator_name)), ("target", self.target.as_ref())]
        {
            if name.is_some_and(|name| !is_plain(name, NAME_LENGTH_MAX)) {
                return Err(SettingsError::Name { setting });
            }
        }
        if self.alias.as_ref().is_some_and(|alias| !is_plain(alias, VALUE_LENGTH_MAX)) {
            return Err(SettingsError::Alias);
        }
        if let Some(chap) = &self.chap {
            for account in [Some(&chap.account), chap.target.as_ref()].into_iter().flatten() {
                if !is_plain(&account.name, VALUE_LENGTH_MAX) {
                    return Err(SettingsError::ChapName);
                }
            }
            // RFC 7143 section 9.2.1: each direction has its own secret.
            if chap.target.as_ref().is_some_and(|target| target.secret == chap.account.secret) {
                return Err(SettingsError::SameSecret);
            }
        }
        for (setting, value, least, most) in [
            ("max_recv", self.max_recv, LENGTH_MIN, LENGTH_MAX),
            ("max_burst", self.max_burst, LENGTH_MIN, LENGTH_MAX),
            // RFC 7143 section 13.14: FirstBurstLength must not exceed MaxBurstLength.
            ("first_burst", self.first_burst, LENGTH_MIN, self.max_burst),
            ("max_outstanding_r2t", self.max_outstanding_r2t.into(), 1, OUTSTANDING_R2T_MAX),
            ("commands_max", self.commands_max, 1, COMMANDS_MAX),
        ] {
            if !(least..=most).contains(&value) {
                return Err(SettingsError::Range { setting, value, least, most });
            }
        }
        Ok(())
    }

    /// Length of the longest PDU that a target may send, in bytes: what a receive buffer must hold.
    pub fn pdu_length_max(&self) -> usize {
        let segment = self.max_recv.max(SEGMENT_LENGTH_DEFAULT) as usize;
        HEADER_LENGTH + AHS_LENGTH_MAX + segment.next_multiple_of(4) + 2 * DIGEST_LENGTH
    }
}

/// Whether a value can stand in a text: not empty, not too long, no byte that ends it.
fn is_plain(value: &str, most: usize) -> bool {
    (1..=most).contains(&value.len()) && !value.contains(char::is_control)
}

/// A setting that makes no session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// An iSCSI name is empty, too long, or has a control character.
    #[error("`{setting}` must be an iSCSI name of 1 to {NAME_LENGTH_MAX} bytes")]
    Name {
        /// The setting.
        setting: &'static str,
    },
    /// The alias is empty, too long, or has a control character.
    #[error("`alias` must have 1 to {VALUE_LENGTH_MAX} bytes and no control character")]
    Alias,
    /// A CHAP name is empty, too long, or has a control character.
    #[error("a CHAP name must have 1 to {VALUE_LENGTH_MAX} bytes and no control character")]
    ChapName,
    /// One secret would serve both directions, so that either side could play the other.
    #[error("the target's CHAP secret must be another than the initiator's")]
    SameSecret,
    /// A number is out of its range.
    #[error("`{setting}` is {value}; it must lie between {least} and {most}")]
    Range {
        /// The setting.
        setting: &'static str,
        /// Its value.
        value: u32,
        /// The minimum.
        least: u32,
        /// The maximum.
        most: u32,
    },
}

/// Longest iSCSI name, in bytes (RFC 7143 section 4.2.7.1).
const NAME_LENGTH_MAX: usize = 223;
/// Longest other value of a key, in bytes (RFC 7143 section 6.1).
const VALUE_LENGTH_MAX: usize = 255;
/// Most R2Ts that one command may have outstanding.
const OUTSTANDING_R2T_MAX: u32 = 64;
/// Most commands outstanding.
const COMMANDS_MAX: u32 = 1024;
