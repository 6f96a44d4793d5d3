//! What the slack policy is made from.

use crate::policy::{Parameter, Unit, Values};

/// The parameters.
pub(in super::super) const PARAMETERS: &[Parameter] = &[THETA, KAPPA, MARGIN, MIN, FIRST, MAX];

const THETA: Parameter = Parameter {
    name: "theta",
    unit: Unit::Count,
    min: 10,
    max: 100,
    default: 95,
    effect: "per cent of the promised time that a request may take at the device before it counts as a \
             miss; less leaves room for waiting elsewhere",
};
const KAPPA: Parameter = Parameter {
    name: "kappa",
    unit: Unit::Count,
    min: 1,
    max: 1_000,
    default: 100,
    effect: "hundredths by which the logarithm of the window moves in a response time at most; more \
             follows faster and fluctuates more",
};
const MARGIN: Parameter = Parameter {
    name: "margin",
    unit: Unit::Count,
    min: 0,
    max: 1_000,
    default: 50,
    effect: "thousandths above the contract's rate that are still guaranteed; more keeps tenants at \
             their contract out of the excess, and promises more than was sold",
};
const MIN: Parameter = Parameter {
    name: "min",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 8,
    effect: "smallest window; more keeps the device busy however little the promises leave",
};
const FIRST: Parameter = Parameter {
    name: "first",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 64,
    effect: "window at the start, moved into the range from min to max",
};
const MAX: Parameter = Parameter {
    name: "max",
    unit: Unit::Count,
    min: 1,
    max: 65_536,
    default: 4_096,
    effect: "largest window, at least min, and the window while nothing is guaranteed: what the first \
             guaranteed request after that finds before it",
};

/// The parameters, with the bounds of the window in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) theta_percent: u64,
    pub(super) kappa_percent: u64,
    pub(super) margin_permille: u64,
    pub(super) min: u32,
    pub(super) first: u32,
    pub(super) max: u32,
}

impl Settings {
    pub(super) fn from(values: Values<'_>) -> Self {
        let (min, max) = (values.get_u32("min"), values.get_u32("max"));
        let max = max.max(min);
        Self {
            theta_percent: values.get("theta"),
            kappa_percent: values.get("kappa"),
            margin_permille: values.get("margin"),
            min,
            first: values.get_u32("first").clamp(min, max),
            max,
        }
    }
}
