//! The control policies on the workloads of the token-bucket paper, and on twelve that stress them.
//!
//! [`run()`] runs one policy through one of the nine intervals: a second of warm-up from an idle array
//! M1, ten seconds that are measured. [`study`] runs everything that the paper claims something about, and
//! what its successors must show.

mod claims;
mod contestants;
mod intervals;
pub(crate) mod page;
mod scenarios;
mod score;
mod script;
pub mod study;

use self::script::{Machine, Model, Script, Tenant};
use crate::chapter::Chapter;
use crate::control::intervals::TENANTS;
pub use crate::control::intervals::{ArrivalModel, Set};
use crate::{Progress, Settings, Traces};
use score::Window;
pub use score::{Course, Gate, Sample, TenantFigures};
use weir_flow::control::Build;
use weir_flow::policy::Choice;
use weir_model::array;

/// Runs the experiment and judges its claims.
pub(crate) fn chapter(settings: Settings, _traces: &Traces, progress: &Progress) -> Chapter {
    let study = study::run(settings, progress);
    let claims = claims::judge(&study);
    Chapter::new("control", study.seed, claims, &study, page::parts(&study))
}

/// One run of an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Case<'a> {
    /// The control policy.
    pub policy: &'a Choice<Build>,
    /// The tenants and their contracts.
    pub set: Set,
    /// Who asks for how much: 1 to 9, see [`Set::rates`].
    pub interval: u32,
    /// When requests come.
    pub arrivals: ArrivalModel,
    /// Names the random streams.
    pub seed: u64,
}

/// Runs one policy through one interval, and gives each tenant's part.
pub fn run(case: &Case<'_>) -> [TenantFigures; TENANTS] {
    let script = interval(case.set, case.interval, case.arrivals, case.seed);
    let figures = script::play(&script, case.policy).windows.swap_remove(0);
    figures.try_into().expect("a set has two tenants")
}

/// The tenants who keep their contract in an interval: the cells that must be satisfied.
fn conforming(interval: u32) -> impl Iterator<Item = usize> {
    let keeps = [interval <= 6, !interval.is_multiple_of(3)];
    (0..2).filter(move |&tenant| keeps[tenant])
}

/// The script of an interval.
fn interval(set: Set, interval: u32, arrivals: ArrivalModel, seed: u64) -> Script {
    let rates = set.rates(interval).map(f64::from);
    two(set, u64::from(interval), rates, arrivals, seed)
}

/// A script of a set's tenants, at steady rates on array M1.
fn two(set: Set, name: u64, rates: [f64; TENANTS], arrivals: ArrivalModel, seed: u64) -> Script {
    let end = WARM_UP + LENGTH;
    let tenants = set.contracts().into_iter().zip(rates);
    Script {
        name: [seed, set.code(), name],
        tenants: tenants.map(|(contract, rate)| Tenant::steady(contract, rate, end)).collect(),
        arrivals,
        machine: Machine::well(Model::Array(array::Config::default())),
        end,
        windows: vec![Window { from: WARM_UP, until: end }],
        course: false,
    }
}

/// Seconds before an interval.
const WARM_UP: f64 = 1.0;

/// Seconds of an interval.
const LENGTH: f64 = 10.0;

#[cfg(test)]
mod tests;
