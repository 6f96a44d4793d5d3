//! The move of a volume between gateways.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use weir_flow::clock::Duration;

/// How far the move of a volume is at one gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoveStatus {
    /// The volume.
    pub volume: String,
    /// `owner`: it is served here. `draining`, `freezing`, `granted`, `revoking`: it is given to another gateway.
    /// `standby`: another gateway owns it, or may. `claiming`: it is taken over. `fenced`: it was taken from this gateway
    /// without a move.
    pub state: String,
    /// The number of the move in progress; 0 if there is none.
    pub number: u64,
    /// In `granted`, the key from which the other gateway takes the unit over.
    #[serde(default)]
    pub key: Option<String>,
    /// For how long it has been in this state.
    pub age_ns: u64,
    /// Where hosts are sent, or will be.
    #[serde(default)]
    pub to: Option<String>,
    /// The portals of this gateway.
    pub portals: Vec<String>,
    /// The disk that hosts see, and the unit that it is on: equal at both gateways.
    pub identity: String,
    /// How the last move ended; empty if there was none.
    pub ended: String,
}

/// An order about the move of a volume.
#[derive(Debug)]
pub(crate) enum MoveOrder {
    /// Tell how far it is.
    Look { volume: usize },
    /// Give it to another gateway.
    Out { volume: usize, number: u64, to: String, identity: String, within: Duration },
    /// Take it over.
    In { volume: usize, number: u64, key: u64 },
    /// Give the move up.
    Cancel { volume: usize, number: u64 },
}

impl MoveOrder {
    /// The volume.
    pub(crate) const fn volume(&self) -> usize {
        match self {
            Self::Look { volume }
            | Self::Out { volume, .. }
            | Self::In { volume, .. }
            | Self::Cancel { volume, .. } => *volume,
        }
    }
}
