//! Transfer policies to compare with: published ones, and the classic orders.
//!
//! They obey the same laws and can be configured, but nothing on a gateway asks for them.

pub(super) mod aged;
pub(super) mod dqbs;
pub(super) mod fsp;
pub(super) mod hrrn;
pub(super) mod round_robin;
pub(super) mod sjf;
pub(super) mod srpt;
