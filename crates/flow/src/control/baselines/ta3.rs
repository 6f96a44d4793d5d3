//! # Control policy: buckets switched for those who break their contract (TA3)
//!
//! Requests by-pass the token buckets until a tenant that keeps its contract suffers; then those that do
//! not get theirs.
//!
//! | | |
//! |---|---|
//! | Model    | a tenant breaks its contract if it came faster than `iops * (1 + margin)` over the last second, or has a backlog; if a tenant that does not has an observed time above `hwm` % of its promise, buckets on for those who do; if all of those are below `lwm` %, all off. If all active tenants, at least two, break theirs, all are watched |
//! | Units    | rates in tokens per second, over ten slots of 100 ms; the rest as in `ta2` |
//! | Ties     | at a tick the lowest tenant first; within a tenant, order of arrival, except under `release = 2` |
//! | Cost     | O(log tenants) per request, ending and switch; O(backlogs that leave) every 50 ms, O(tenants of the last second) every 100 ms |
//! | Source   | scheme TA3 of the token-bucket paper, sections 2.3 and 3.4; rate meter and who is watched as in `docs/reference/control.md` section 4, A9 and A10 |
//! | Not when | a tenant may flood an idle array before another one comes: nothing bounds the work inside the array. Use `slack` |
//!
//! A tenant without a contract is promised 100 requests of 4 KiB a second when it is judged, and
//! nothing when it suffers.

use super::switched::{
    Decide, ESTIMATOR, HWM, KEEPS_ORDER, LWM, OLDEST, RAMP, RELEASE, Settings, Switched, WINDOW,
};
use super::token_bucket::TAU;
use crate::control::Build;
use crate::policy::{Parameter, Policy, Unit};
use alloc::boxed::Box;

pub(in crate::control) const POLICY: Policy<Build> = Policy {
    name: "ta3",
    summary: "token buckets for tenants that break their contract while one that keeps it suffers \
              (TA3)",
    properties: KEEPS_ORDER,
    parameters: &[TAU, HWM, LWM, ESTIMATOR, WINDOW, OLDEST, RELEASE, RAMP, MARGIN, WATCH],
    build: |values, list| {
        let margin_permille = values.get("margin");
        let decide = match values.word("watch") {
            "victims" => Decide::Victim { margin_permille },
            _ => Decide::Own { margin_permille },
        };
        Box::new(Switched::new(Settings::shared(values, decide), list))
    },
};

const MARGIN: Parameter = Parameter {
    name: "margin",
    unit: Unit::Count,
    min: 0,
    max: 1_000,
    default: 50,
    effect: "thousandths by which a tenant may exceed its rate; less accuses tenants whose arrivals \
             only fluctuate",
};
const WATCH: Parameter = Parameter::word(
    "watch",
    &["victims", "own"],
    "whose response time switches: `victims` that of tenants that keep their contract, `own` each one's \
     own, which overlooks a violator with a lax promise",
);
