//! A claim of a paper: a figure, its threshold and the verdict.

use serde::Serialize;

/// A claim and what became of it.
#[derive(Clone, Debug, Serialize)]
pub struct Claim {
    /// What the text that claims it calls it, unique in an experiment together with `set` and `arrivals`.
    pub id: &'static str,
    /// The workload, as the experiment's tables call it.
    pub set: &'static str,
    /// How requests come.
    pub arrivals: &'static str,
    /// What is claimed.
    pub published: &'static str,
    /// The figure that decides.
    pub measured: f64,
    /// What it counts.
    pub unit: &'static str,
    /// What it must be.
    pub tolerance: &'static str,
    /// Whether it is.
    pub holds: bool,
    /// Whether it has to be, for the command to succeed.
    pub required: bool,
    /// The figures behind, and why what does not hold does not.
    pub note: String,
}

impl Claim {
    /// A claim that has not been judged yet: it does not hold.
    pub(super) const fn new(
        id: &'static str,
        set: &'static str,
        arrivals: &'static str,
        published: &'static str,
    ) -> Self {
        Self {
            id,
            set,
            arrivals,
            published,
            measured: 0.0,
            unit: "",
            tolerance: "",
            holds: false,
            required: false,
            note: String::new(),
        }
    }

    pub(super) fn measured(mut self, measured: f64, unit: &'static str) -> Self {
        self.measured = measured;
        self.unit = unit;
        self
    }

    pub(super) fn judged(mut self, tolerance: &'static str, holds: bool) -> Self {
        self.tolerance = tolerance;
        self.holds = holds;
        self
    }

    pub(super) fn required(mut self, required: bool) -> Self {
        self.required = required;
        self
    }

    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// The smallest of some figures. `NaN` if there are none or one is `NaN`: no claim holds for a figure that is missing.
pub(super) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    extreme(values, f64::min)
}

/// The largest of some figures. `NaN` as for [`least`].
pub(super) fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    extreme(values, f64::max)
}

fn extreme(values: impl IntoIterator<Item = f64>, choose: fn(f64, f64) -> f64) -> f64 {
    let both = |a: f64, b: f64| if a.is_nan() || b.is_nan() { f64::NAN } else { choose(a, b) };
    values.into_iter().reduce(both).unwrap_or(f64::NAN)
}

/// The middle of some figures, or the mean of the two in the middle. `NaN` as for [`least`].
pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    if values.is_empty() || values.iter().any(|value| value.is_nan()) {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[half - 1], values[half])
    } else {
        values[half]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A missing figure is never the smallest, the largest or the middle one in silence.
    #[test]
    fn what_is_missing_is_no_figure() {
        for of in [least, most, median] as [fn(Vec<f64>) -> f64; 3] {
            assert!(of(vec![]).is_nan() && of(vec![1.0, f64::NAN, 2.0]).is_nan());
            assert!(of(vec![f64::NAN, 1.0]).is_nan() && of(vec![1.0, f64::NAN]).is_nan());
        }
        let values = || vec![3.0, 1.0, 2.0, 9.0];
        let found =
            [least(values()), most(values()), median(values()), median(vec![5.0, 1.0, 2.0])];
        assert_eq!(found.map(f64::to_bits), [1.0, 9.0, 2.5, 2.0].map(f64::to_bits));
    }
}
