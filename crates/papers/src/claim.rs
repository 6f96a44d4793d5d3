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

/// The smallest of some figures.
pub(super) fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::INFINITY, f64::min)
}

/// The largest of some figures.
pub(super) fn most(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NEG_INFINITY, f64::max)
}
