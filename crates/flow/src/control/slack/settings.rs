//! What the slack policy is made from.

/// The parameters, with the bounds of the window in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) theta_percent: u64,
    pub(super) kappa_percent: u64,
    pub(super) margin_permille: u64,
    pub(super) min: u32,
    pub(super) first: u32,
    pub(super) max: u32,
}

impl Settings {
    pub(super) fn from(values: &[u64]) -> Self {
        let (min, max) = (values[3] as u32, values[5] as u32);
        let max = max.max(min);
        Self {
            theta_percent: values[0],
            kappa_percent: values[1],
            margin_permille: values[2],
            min,
            first: (values[4] as u32).clamp(min, max),
            max,
        }
    }
}
