//! The settings of TA2 and TA3, and the parameters that they share.

use super::super::token_bucket;
use super::responses::Estimator;
use crate::policy::{Parameter, Property, Unit, Values};

/// What a switched policy is made from.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Settings {
    pub(in super::super) tau: u64,
    /// Thresholds in per cent of the promised response time.
    pub(in super::super) on_percent: u64,
    pub(in super::super) off_percent: u64,
    pub(in super::super) estimator: Estimator,
    pub(in super::super) leave: Leave,
    /// By what the pace of a ramp grows every 50 ms, in thousandths.
    pub(in super::super) ramp_permille: u64,
    pub(in super::super) decide: Decide,
}

/// What becomes of the queue when a switch goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Leave {
    /// It leaves in order at a growing multiple of the contract's rate, and arrivals join it.
    Ramp,
    /// It leaves at once.
    Flush,
    /// It leaves at the contract's rate, and arrivals overtake it.
    Stay,
}

/// Who is switched, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Decide {
    /// TA2: all on when anybody's response time is past its threshold.
    Together,
    /// TA3: tenants that exceed their contract, when one that does not suffers.
    Victim {
        /// What a tenant may exceed its rate by, in thousandths.
        margin_permille: u64,
    },
    /// TA3 by the letter: each who breaks its contract and suffers itself.
    Own {
        /// What a tenant may exceed its rate by, in thousandths.
        margin_permille: u64,
    },
}

impl Decide {
    /// What a tenant may exceed its rate by, in thousandths, if rates matter.
    pub(super) const fn margin_permille(self) -> Option<u64> {
        match self {
            Self::Together => None,
            Self::Victim { margin_permille } | Self::Own { margin_permille } => {
                Some(margin_permille)
            }
        }
    }
}

/// The parameters that TA2 and TA3 share.
pub(in super::super) const HWM: Parameter = Parameter {
    name: "hwm",
    unit: Unit::Count,
    min: 1,
    max: 1_000,
    default: 85,
    effect: "per cent of the promised response time above which buckets are switched on; more gives \
             throughput, less gives safety",
};
pub(in super::super) const LWM: Parameter = Parameter {
    name: "lwm",
    unit: Unit::Count,
    min: 1,
    max: 1_000,
    default: 80,
    effect: "per cent below which they are switched off, at most hwm; less keeps them on for longer",
};
pub(in super::super) const ESTIMATOR: Parameter = Parameter::word(
    "estimator",
    &["last", "p95"],
    "what counts as observed: `last` the tenant's last response time, `p95` the 95th percentile of a \
     window, which switches far less often on devices with a long tail",
);
pub(in super::super) const WINDOW: Parameter = Parameter {
    name: "window",
    unit: Unit::Time,
    min: 5_000_000,
    max: 1_000_000_000,
    default: 50_000_000,
    effect: "length of the window of estimator `p95`; about the promised response time, and at least 20 \
             requests of each tenant, gives the best signal",
};
pub(in super::super) const OLDEST: Parameter = Parameter::flag(
    "oldest",
    true,
    "true takes the age of the oldest request at the device for observed when it is longer, so that a \
     stalled device does not look fast; false looks at finished ones only",
);
pub(in super::super) const RELEASE: Parameter = Parameter::word(
    "release",
    &["ramp", "flush", "stay"],
    "how a backlog leaves when a bucket is switched off: `ramp` in order at a growing pace, `flush` at \
     once, `stay` at the contract's rate while later requests overtake it",
);
pub(in super::super) const KEEPS_ORDER: &[Property] =
    &[Property::KeepsOrderUnless { parameter: "release", word: "stay" }];
pub(in super::super) const RAMP: Parameter = Parameter {
    name: "ramp",
    unit: Unit::Count,
    min: 1_001,
    max: 10_000,
    default: 1_050,
    effect: "thousandths by which that pace is multiplied every 50 ms; more empties a backlog faster \
             and overshoots further",
};
pub(in super::super) const SHARED: [Parameter; 8] =
    [token_bucket::TAU, HWM, LWM, ESTIMATOR, WINDOW, OLDEST, RELEASE, RAMP];

impl Settings {
    /// From the values of [`SHARED`].
    pub(in super::super) fn shared(values: Values<'_>, decide: Decide) -> Self {
        let window = values.time("window");
        Self {
            tau: values.get("tau"),
            on_percent: values.get("hwm"),
            off_percent: values.get("lwm").min(values.get("hwm")),
            estimator: Estimator {
                window: (values.word("estimator") == "p95").then_some(window),
                oldest: values.flag("oldest"),
            },
            leave: match values.word("release") {
                "ramp" => Leave::Ramp,
                "flush" => Leave::Flush,
                _ => Leave::Stay,
            },
            ramp_permille: values.get("ramp"),
            decide,
        }
    }
}
