//! What the slack policy is made from.

use crate::clock::Duration;

/// The parameters, with the bounds of the window in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) quantile_permille: u64,
    pub(super) theta_percent: u64,
    pub(super) kappa_percent: u64,
    pub(super) margin_permille: u64,
    pub(super) burst: Duration,
    pub(super) min: u32,
    pub(super) first: u32,
    pub(super) max: u32,
}

impl Settings {
    pub(super) fn from(values: &[u64]) -> Self {
        let (min, max) = (values[5] as u32, values[7] as u32);
        let max = max.max(min);
        Self {
            quantile_permille: values[0],
            theta_percent: values[1],
            kappa_percent: values[2],
            margin_permille: values[3],
            burst: Duration::from_nanos(values[4]),
            min,
            first: (values[6] as u32).clamp(min, max),
            max,
        }
    }
}
