//! Dispatch policies to compare with: published ones, and plain turns.
//!
//! They obey the same laws and can be configured, but nothing on a gateway asks for them.

pub(super) mod deficit_round_robin;
pub(super) mod fair_queueing;
pub(super) mod fog;
pub(super) mod round_robin;
pub(super) mod start_time_fair;
