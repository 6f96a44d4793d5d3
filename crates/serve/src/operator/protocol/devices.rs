//! Modelled devices on the control socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A modelled device, and how exactly its times are met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceStatus {
    /// Its name.
    pub name: String,
    /// I/Os that have ended.
    pub ios: u64,
    /// Those of them whose file was later than the model, so that hosts saw the time of the file.
    pub late: u64,
    /// By how much.
    pub late_by: Spread,
    /// How long after the model's time the others ended.
    pub timer: Spread,
    /// The wear of its flash, if it has some.
    pub flash: Option<FlashStatus>,
}

/// Times, each within 1 %; `None` without any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spread {
    /// The median.
    pub p50_ns: Option<u64>,
    /// 99 of a hundred were no longer.
    pub p99_ns: Option<u64>,
    /// The longest.
    pub max_ns: Option<u64>,
}

/// The wear of flash since the gateway started.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlashStatus {
    /// Pages that hosts have written.
    pub programs: u64,
    /// Pages that garbage collection has moved.
    pub moves: u64,
    /// Blocks that it has erased.
    pub erases: u64,
    /// Erasures of the block that has had the fewest.
    pub least_worn: u32,
    /// Of the one that has had the most.
    pub most_worn: u32,
    /// Pages programmed for each page that hosts have written.
    pub amplification: f64,
}
