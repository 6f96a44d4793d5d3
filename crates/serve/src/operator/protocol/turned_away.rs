//! Hosts that were turned away.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source that was turned away for one reason in the last hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnedAwayStatus {
    /// An IPv4 address, an IPv6 network of 64 bits, or `unix`.
    pub source: String,
    /// The iSCSI name of the last host, if it has said one.
    pub initiator: Option<String>,
    /// Why.
    pub why: String,
    /// How often, since the entry was made.
    pub count: u64,
    /// How long ago the last time was.
    pub age_ns: u64,
    /// In how long the source may try again; 0 if at once.
    pub retry_after_ns: u64,
}
