//! The counters of the busiest volumes and tenants, for clients that show rates.

use super::Metrics;
use super::blocks::{TenantBlock, VolumeBlock};
use super::counter::Counter;
use super::histogram::Counts;
use crate::operator::protocol::{Bucket, Load};
use std::cmp::Reverse;

impl Metrics {
    /// The counters of the volumes that `first` ranks highest, and how many are left out. O(volumes).
    pub(crate) fn volume_loads(&self, first: impl Fn(&str) -> u64) -> (Vec<Load>, u64) {
        let requests = |block: &VolumeBlock| {
            let ended = block.durations.iter().map(|times| times.read().count());
            ended.sum::<u64>() + sum(&block.errors)
        };
        let blocks = self.volumes.all().map(|block| (requests(block), block));
        let (busiest, left_out) = busiest(blocks, |block| first(&block.name));
        let load = |(requests, block): (u64, &VolumeBlock)| {
            let mut times = Counts::default();
            block.durations.iter().for_each(|one| times.merge(&one.read()));
            let (refused, bytes) = (sum(&block.refused), sum(&block.bytes));
            let (name, times) = (block.name.clone(), buckets(&times));
            Load { name, requests, refused, bytes, times, ..Load::default() }
        };
        (busiest.into_iter().map(load).collect(), left_out)
    }

    /// The same of tenants. O(tenants).
    pub(crate) fn tenant_loads(&self, first: impl Fn(&str) -> u64) -> (Vec<Load>, u64) {
        let blocks = self.tenants.all().map(|block| (sum(&block.requests), block));
        let (busiest, left_out) = busiest(blocks, |block| first(&block.name));
        let load = |(requests, block): (u64, &TenantBlock)| Load {
            name: block.name.clone(),
            requests,
            refused: block.refused.get(),
            bytes: sum(&block.bytes),
            times: buckets(&block.durations.read()),
            slo_requests: block.slo.requests.get(),
            slo_missed: block.slo.missed.get(),
            slo_allowed_ppm: block.slo.allowed_ppm.get(),
            ..Load::default()
        };
        (busiest.into_iter().map(load).collect(), left_out)
    }
}

/// Those with requests, at most [`LOADS`]: the busiest of late, then the busiest since the start.
fn busiest<'a, T>(
    blocks: impl Iterator<Item = (u64, &'a T)>,
    first: impl Fn(&T) -> u64,
) -> (Vec<(u64, &'a T)>, u64) {
    let mut busy: Vec<_> = blocks.filter(|(requests, _)| *requests > 0).collect();
    busy.sort_by_cached_key(|&(requests, block)| Reverse((first(block), requests)));
    let left_out = busy.len().saturating_sub(LOADS);
    busy.truncate(LOADS);
    (busy, left_out as u64)
}

fn sum(counters: &[Counter]) -> u64 {
    counters.iter().map(Counter::get).sum()
}

fn buckets(times: &Counts) -> Vec<Bucket> {
    times.each().map(|(up_to_ns, requests)| Bucket { up_to_ns, requests }).collect()
}

/// Volumes or tenants in an answer.
const LOADS: usize = 100;
