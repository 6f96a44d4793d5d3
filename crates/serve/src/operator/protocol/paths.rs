//! The state of a path to a backend, as the control socket has it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A path to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathStatus {
    /// The backend: an upstream, a modelled device, or the file of a volume under the name of the volume, or of
    /// the store if the volume has several.
    pub backend: String,
    /// Its number there, from 0.
    pub path: u32,
    /// Its portal: an address, `model` or `file`.
    pub portal: String,
    /// Its state.
    pub state: String,
    /// For how long it has been in this state.
    pub since_ns: u64,
    /// The cause of the state.
    pub why: String,
    /// Its priority group: smaller is better.
    pub group: u32,
    /// Its asymmetric access state (ALUA, SPC-4 5.15.2).
    pub access: String,
    /// I/Os on it now.
    pub in_flight: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How long the first of them has been on it.
    pub oldest_ns: u64,
    /// The speed that the selector has learned, if it learns.
    pub learned: Option<LearnedSpeed>,
    /// How often its state has changed.
    pub changes: u64,
    /// How long until it is tried next while it is out of use, 0 for now; `None` if it waits for the operator, the
    /// target or another path.
    #[serde(default)]
    pub next_try_ns: Option<u64>,
    /// Why it is ejected, and what its probes say, if it is.
    #[serde(default)]
    pub ejection: Option<EjectionStatus>,
}

/// The judgement on an ejected path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EjectionStatus {
    /// The mean response of the I/Os by which it was judged.
    pub response_ns: u64,
    /// What they would have taken on the best path.
    pub best_path_ns: u64,
    /// How many there were, without those that overlapped others.
    pub ios: u64,
    /// The time in which they were answered.
    pub over_ns: u64,
    /// The response of the last probe, if it was answered.
    pub last_probe_ns: Option<u64>,
    /// The longest response of that probe that would have been good.
    pub good_probe_max_ns: Option<u64>,
    /// Good probes in a row.
    pub probes_passed: u64,
    /// The number of them that returns it to use.
    pub probes_to_return: u64,
    /// How long until it is used again if no read can be a probe.
    pub trial_ns: u64,
}

/// How long an I/O takes on a path while it is alone there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LearnedSpeed {
    /// The part that does not depend on its size.
    pub fixed_ns: u64,
    /// The part for each MiB.
    pub per_mib_ns: u64,
}
