//! Path selectors to compare with: published ones, and those of the Linux device mapper.
//!
//! They obey the same laws and can be configured, but nothing on a gateway asks for them.

pub(super) mod ewma;
pub(super) mod historical_service_time;
pub(super) mod queue_length;
pub(super) mod round_robin;
pub(super) mod roung;
pub(super) mod roung_job;
pub(super) mod service_time;
pub(super) mod two_choices;
