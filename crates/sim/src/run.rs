//! Runs a plan through the pipeline.

use crate::error::RunError;
use crate::measure::Measure;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::results::Results;
use crate::source::Source;
use crate::world::{Journal, World};
use std::io::Write;
use weir_flow::accept;
use weir_flow::cache;
use weir_flow::clock::Instant;
use weir_flow::event::Observer;
use weir_flow::pipeline::{Backend, Config, Pipeline};
use weir_flow::request::TenantId;
use weir_flow::stage;

/// Runs a plan to its end.
pub fn run(plan: &Plan, mut progress: impl FnMut(Progress)) -> Result<Results, RunError> {
    simulate(plan, None, (), &mut progress).map(|(results, ())| results)
}

/// Runs a plan and writes a recording of the run, which [`replay`](crate::replay) can check.
pub fn record(
    plan: &Plan,
    out: &mut dyn Write,
    mut progress: impl FnMut(Progress),
) -> Result<Results, RunError> {
    simulate(plan, Some(out), (), &mut progress).map(|(results, ())| results)
}

/// What the pipeline of a plan is made from.
fn config(plan: &Plan) -> Config {
    let volume = |volume: &crate::plan::Volume| accept::Volume {
        capacity: volume.size,
        layout: accept::Layout::One(volume.backend),
        max_transfer: volume.max_transfer,
        cap: volume.cap,
    };
    Config {
        volumes: plan.volumes.iter().map(volume).collect(),
        backends: plan.backends.iter().map(|backend| Backend::alike(backend.paths)).collect(),
        promises: plan.promises.clone(),
        shares: plan.shares.clone(),
        limits: plan.limits,
        paths: plan.paths,
        cache: cache::Settings {
            owners: vec![TenantId::new(plan.tenants.len() as u32); plan.volumes.len()],
            ..plan.cache.clone()
        },
        policies: plan.policies.clone(),
    }
}

/// Runs a plan before the eyes of one more observer.
pub(crate) fn simulate<O: Observer>(
    plan: &Plan,
    out: Option<&mut dyn Write>,
    observer: O,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Results, O), RunError> {
    plan.check()?;
    let config = config(plan);
    let journal = out.map(|out| Journal::new(out, &config)).transpose()?;
    let sources = Source::all(plan)?;
    let measure = Measure::new(plan.tenants.len(), &plan.promises, plan.end.warm_up);
    let mut pipeline = Pipeline::new(&config, (measure, observer));
    let mut world = World::new(plan, sources, journal, progress)?;
    stage::run(&mut pipeline, &mut world);
    let ended = world.finish()?;
    let (mut measure, observer) = pipeline.into_observer();
    let interval = ended.at.saturating_since(Instant::ZERO + plan.end.warm_up);
    let (all, tenants) = measure.results(&plan.tenants, ended.at, interval);
    let results = Results {
        seed: plan.seed,
        virtual_ns: ended.at.as_nanos(),
        measured_ns: interval.as_nanos(),
        events: ended.events,
        actions: ended.digest.actions(),
        digest: ended.digest.to_string(),
        totals: all.totals,
        paths_failed: measure.paths_failed,
        paths_reinstated: measure.paths_reinstated,
        ios_lost: ended.ios_lost,
        overdue: measure.overdue,
        all,
        tenants,
    };
    Ok((results, observer))
}

#[cfg(test)]
mod shares;
#[cfg(test)]
mod tests;
