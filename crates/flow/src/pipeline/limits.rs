//! The limits of a pipeline.

use crate::clock::Duration;
use crate::settings;
use crate::settings::{DAY, MILLISECOND, MINUTE, PIB, SECOND};

/// The largest limit of outstanding requests: memory is set aside for them.
pub const REQUESTS_MAX: u32 = 1 << 20;

settings! {
    /// The limits of a pipeline, and what happens when one is reached.
    ///
    /// Every queue inside the pipeline is bounded by `max_requests`, and by the pieces of split requests:
    /// `max_bytes` over the volumes' largest transfer or chunk, whichever is smaller.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Limits {
        /// Requests outstanding at once; one more is refused as TASK SET FULL.
        pub max_requests: u32 = Count(1, REQUESTS_MAX as u64), 4_096;
        /// Payload of all outstanding requests; a request that would exceed it is refused. At least
        /// `8MiB` in a configuration, the largest transfer of a host.
        pub max_bytes: u64 = Size(1, PIB), 256 << 20;
        /// Requests of one tenant outstanding at once; hosts' command windows shrink so that they stay
        /// below, one more is refused as TASK SET FULL.
        pub max_tenant_requests: u32 = Count(1, REQUESTS_MAX as u64), 4_096;
        /// Payload of one tenant's outstanding requests; a request that would exceed it is refused,
        /// unless the tenant has no other. At least `8MiB` in a configuration.
        pub max_tenant_bytes: u64 = Size(1, PIB), 64 << 20;
        /// Reply bytes in flight on one link; fewer where they would take more than 2 ms. 1 sends one
        /// reply, or one part of it, at a time.
        pub link_window: u64 = Size(1, PIB), 4 << 20;
        /// How long a request waits for a path before it fails; hosts have timers of their own and may
        /// give up sooner.
        pub no_path_timeout: Duration = Time(MILLISECOND, 366 * DAY), 10 * MINUTE;
        /// How long a request may be in one stage before it is reported as overdue, within twice this
        /// time and again after each further period.
        pub report_after: Duration = Time(MILLISECOND, 366 * DAY), 10 * SECOND;
    }
}
