//! The counters of the busiest volumes and tenants, for clients that show rates. Made on another thread than the event loop's.

use super::Metrics;
use super::blocks::{TenantBlock, VolumeBlock};
use super::counter::Counter;
use super::histogram::Counts;
use super::table::Table;
use crate::operator::protocol::{Bucket, Load, Sample};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_flow::clock::Duration;
use weir_flow::event::StageTimes;
use weir_flow::request::{TenantId, VolumeId};

/// What the event loop alone knows of a sample. It takes the same time however many volumes and tenants there are.
#[derive(Debug, Default)]
pub(crate) struct Moment {
    pub(crate) up_ns: u64,
    pub(crate) busy: f64,
    pub(crate) outstanding: u64,
    /// By tenant: the first objective of its contract.
    pub(crate) objectives: Arc<[Option<Duration>]>,
    /// Some of the requests that ended in the last second.
    pub(crate) latest: Vec<Latest>,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Latest {
    pub(crate) volume: VolumeId,
    pub(crate) tenant: TenantId,
    pub(crate) times: StageTimes,
}

/// The latest requests of a volume or a tenant, and their time by rule.
#[derive(Debug, Default)]
struct Causes {
    requests: u64,
    rules: Vec<(&'static str, Duration)>,
}

impl Metrics {
    /// Counters of the busiest volumes and tenants, and of all. O(volumes + tenants).
    pub(crate) fn sample(&self, moment: &Moment) -> Sample {
        let Moment { up_ns, busy, outstanding, ref objectives, ref latest } = *moment;
        let (mut of_volumes, mut of_tenants) = (BTreeMap::new(), BTreeMap::new());
        for one in latest {
            count(&mut of_volumes, one.volume.index(), &one.times);
            count(&mut of_tenants, one.tenant.index(), &one.times);
        }
        let mut all = Load::default();
        let mut times = Counts::default();
        let of_volume = |block: &VolumeBlock| {
            let own = volume_times(block);
            times.merge(&own);
            Load {
                name: block.name.clone(),
                requests: own.count() + sum(&block.errors),
                refused: sum(&block.refused),
                bytes: sum(&block.bytes),
                ..Load::default()
            }
        };
        let mut volumes = counted(&self.volumes, of_volume);
        for (_, load, _) in &volumes {
            all.requests += load.requests;
            all.refused += load.refused;
            all.bytes += load.bytes;
        }
        all.times = buckets(&times);
        volumes.retain(|(_, _, block)| block.is_there());
        let of_tenant = |block: &TenantBlock| Load {
            name: block.name.clone(),
            requests: sum(&block.requests),
            refused: block.refused.get(),
            bytes: sum(&block.bytes),
            slo_requests: block.slo.requests.get(),
            slo_missed: block.slo.missed.get(),
            slo_allowed_ppm: block.slo.allowed_ppm.get(),
            ..Load::default()
        };
        let tenants = counted(&self.tenants, of_tenant);
        let (volumes, volumes_left_out) = busiest(volumes, &of_volumes, &[], volume_times);
        let tenant_times = |block: &TenantBlock| block.durations.read();
        let (tenants, tenants_left_out) = busiest(tenants, &of_tenants, objectives, tenant_times);
        Sample {
            up_ns,
            busy,
            outstanding,
            all,
            volumes,
            volumes_left_out,
            tenants,
            tenants_left_out,
        }
    }
}

/// The response times of a volume.
fn volume_times(block: &VolumeBlock) -> Counts {
    let mut times = Counts::default();
    block.durations.iter().for_each(|one| times.merge(&one.read()));
    times
}

/// A volume or a tenant: its number, if it is not that of several, and its load without its response times.
type Counted<'a, T> = (Option<usize>, Load, &'a T);

/// Those that have had requests, refused ones included.
fn counted<T>(blocks: &Table<T>, mut load: impl FnMut(&T) -> Load) -> Vec<Counted<'_, T>> {
    let all = blocks.numbered().map(|(index, block)| (index, load(block), block));
    all.filter(|(_, load, _)| load.requests + load.refused > 0).collect()
}

/// At most [`LOADS`] of them, and how many are left out: the busiest of late, then the busiest since the start.
fn busiest<T>(
    mut all: Vec<Counted<'_, T>>,
    latest: &BTreeMap<usize, Causes>,
    objectives: &[Option<Duration>],
    times: impl Fn(&T) -> Counts,
) -> (Vec<Load>, u64) {
    let of = |index: Option<usize>| latest.get(&index?);
    all.sort_by_key(|(index, load, _)| {
        Reverse((of(*index).map_or(0, |causes| causes.requests), load.requests))
    });
    let left_out = all.len().saturating_sub(LOADS) as u64;
    let told = all.into_iter().take(LOADS).map(|(index, load, block)| {
        let objective = index.and_then(|index| *objectives.get(index)?);
        let rules = of(index).into_iter().flat_map(|causes| &causes.rules);
        Load {
            times: buckets(&times(block)),
            objective_ns: objective.map(Duration::as_nanos),
            held_by: rules.max_by_key(|(_, time)| *time).map_or("", |(rule, _)| *rule).to_owned(),
            ..load
        }
    });
    (told.collect(), left_out)
}

/// Counts a request that has ended.
fn count(causes: &mut BTreeMap<usize, Causes>, index: usize, times: &StageTimes) {
    let causes = causes.entry(index).or_default();
    causes.requests += 1;
    for (_, rule, time) in times.held() {
        match causes.rules.iter_mut().find(|(known, _)| *known == *rule.0) {
            Some((_, sum)) => *sum += time,
            None => causes.rules.push((*rule.0, time)),
        }
    }
}

fn sum(counters: &[Counter]) -> u64 {
    counters.iter().map(Counter::get).sum()
}

fn buckets(times: &Counts) -> Vec<Bucket> {
    times.each().map(|(up_to_ns, requests)| Bucket { up_to_ns, requests }).collect()
}

/// Volumes or tenants in an answer.
const LOADS: usize = 100;
