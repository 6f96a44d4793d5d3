//! # Control policy: buckets switched together (TA2)
//!
//! Requests by-pass the token buckets until a response time approaches its objective.
//!
//! | | |
//! |---|---|
//! | Model    | if any tenant's observed time is above `hwm` % of its promise, all buckets on; if all are below `lwm` %, all off; on, a bucket is that of TA1; off, its backlog leaves first, at a pace that grows by `ramp` every 50 ms |
//! | Units    | observed time: of the tenant's last request at the device, or the 95th percentile of a window |
//! | Ties     | at a tick the lowest tenant first; within a tenant, order of arrival, except under `release = 2` |
//! | Cost     | O(log tenants) per request and ending; O(backlogs that leave) every 50 ms, O(tenants of the last second) every 100 ms; O(tenants) when the buckets are switched |
//! | Source   | scheme TA2 of the token-bucket paper, section 2.2; estimator, release and silence as in `docs/reference/control.md` section 2.3 and section 4, A6 and A8 |
//! | Not when | tenants that keep their contract should never meet a bucket: use `ta3`. A tenant that is alone on the array gates itself |
//!
//! A tenant without a contract has no objective to be watched; while the buckets are on it continues at
//! 100 requests of 4 KiB a second.

use super::switched::{Decide, KEEPS_ORDER, SHARED, Settings, Switched};
use crate::control::Build;
use crate::policy::Policy;
use alloc::boxed::Box;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "ta2",
    summary: "token buckets for all tenants while any response time is close to its objective (TA2)",
    properties: KEEPS_ORDER,
    parameters: &SHARED,
    build: |values, list| Box::new(Switched::new(Settings::shared(values, Decide::Together), list)),
};
