//! A model of a device, fitted from the I/Os of a recording: servers that take I/Os in order of arrival.
//!
//! For each I/O in order of issue the server that is free first, at `f`, serves it for `x = end - max(issue, f)`.
//! This inversion is exact for such a device. A number of servers is consistent if no `x` is negative and `x` does
//! not depend on the depth. Each candidate is fitted on the first two thirds of the I/Os and predicts the last third;
//! the largest error of its percentiles is the goodness of fit.

use super::evidence::{Access, Io, op};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use weir_flow::clock::{Duration, Instant};
use weir_flow::request::Op;
use weir_flow::rng::Rng;

/// How well a model predicts I/Os that it was not fitted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Within 5 %.
    Good,
    /// Within 15 %.
    Fair,
    /// Worse.
    Poor,
}

/// What was found out about a station: a backend, or one of its paths.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// The backend, by its place in the configuration.
    pub backend: usize,
    /// The path to it, from 0.
    pub path: u32,
    /// I/Os that it was fitted from.
    pub ios: usize,
    /// Servers.
    pub servers: u32,
    /// The fewest and the most servers that agree with the recording.
    pub consistent: (u32, u32),
    /// The largest error of a percentile in the last third: p50, half of that of p95, a third of that of p99.
    pub error: f64,
    /// The same in words.
    pub grade: Grade,
    /// The greatest depth that was recorded.
    pub depth: u32,
}

/// Service times by kind of I/O.
#[derive(Clone, Debug)]
pub(super) struct Model {
    pub(super) fitted: Fitted,
    pools: BTreeMap<Kind, Vec<u64>>,
}

/// I/Os that are expected to take about as long as each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    op: u8,
    sequential: bool,
    /// The power of two of its bytes.
    size: u32,
}

/// An I/O of one station.
#[derive(Clone, Copy, Debug)]
struct Sample {
    begun: u64,
    ended: u64,
    depth: u32,
    kind: Kind,
}

/// Tells sequential I/Os: where the last one of each part of a volume ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ends(BTreeMap<(usize, u32), u64>);

impl Ends {
    /// The kind of an I/O, which is the next of its station.
    pub(super) fn kind(&mut self, access: &Access) -> Kind {
        let end = access.offset.saturating_add(access.length);
        let before = self.0.insert((access.volume, access.part), end);
        let sequential = before == Some(access.offset) && op(access) != Op::Flush;
        Kind { op: access.op, sequential, size: access.length.max(1).ilog2() }
    }
}

/// Fits a model to a station. `None` if too few of its I/Os ended.
pub(super) fn fit(ios: &[Io], station: u32, backend: usize, path: u32) -> Option<Model> {
    let samples = samples(ios, station);
    if samples.len() < FEWEST {
        return None;
    }
    let depth = samples.iter().map(|sample| sample.depth).max().unwrap_or(1);
    let first = samples.len() * 2 / 3;
    let mut candidates: Vec<u32> = CANDIDATES.into_iter().filter(|&k| k < depth).collect();
    candidates.push(depth);
    let tried: Vec<Tried> = candidates.iter().map(|&k| Tried::new(&samples, first, k)).collect();
    let consistent: Vec<&Tried> = tried.iter().filter(|tried| tried.consistent).collect();
    let among = if consistent.is_empty() { tried.iter().collect() } else { consistent.clone() };
    let least = among.iter().map(|tried| tried.error).fold(f64::INFINITY, f64::min);
    let best = among.iter().find(|tried| tried.error <= least * 1.1)?;
    let servers = best.servers;
    let range = |pick: fn(&[&Tried]) -> Option<u32>| pick(&consistent).unwrap_or(servers);
    let fewest = range(|all| all.first().map(|tried| tried.servers));
    let most = range(|all| all.last().map(|tried| tried.servers));
    let grade = match best.error {
        error if error <= 0.05 => Grade::Good,
        error if error <= 0.15 => Grade::Fair,
        _ => Grade::Poor,
    };
    let fitted = Fitted {
        backend,
        path,
        ios: samples.len(),
        servers,
        consistent: (fewest, most),
        error: best.error,
        grade,
        depth,
    };
    let pools = pools(&samples, &invert(&samples, servers));
    Some(Model { fitted, pools })
}

impl Model {
    /// The same with another number of servers, which the recording does not contradict.
    pub(super) fn with_servers(&self, ios: &[Io], station: u32, servers: u32) -> Self {
        let samples = samples(ios, station);
        let pools = pools(&samples, &invert(&samples, servers));
        Self { fitted: Fitted { servers, ..self.fitted.clone() }, pools }
    }

    /// A service time of an I/O of this kind.
    pub(super) fn draw(&self, kind: Kind, rng: &mut Rng) -> u64 {
        draw(&self.pools, kind, rng)
    }
}

/// The I/Os of a station that ended, in order of issue.
fn samples(ios: &[Io], station: u32) -> Vec<Sample> {
    let mut ends = Ends::default();
    let here = ios.iter().filter(|io| io.station == station);
    here.filter_map(|io| {
        let kind = ends.kind(&io.access);
        let (ended, _) = io.ended?;
        let (begun, ended) = (io.begun.as_nanos(), ended.as_nanos());
        Some(Sample { begun, ended, depth: io.depth, kind })
    })
    .collect()
}

/// The servers of a station.
#[derive(Clone, Debug)]
pub(super) struct Servers(BinaryHeap<Reverse<u64>>);

impl Servers {
    pub(super) fn new(count: u32) -> Self {
        Self((0..count).map(|_| Reverse(0)).collect())
    }

    /// An I/O begins, and takes this long once a server is free; returns when it ends.
    pub(super) fn serve(&mut self, now: Instant, service: u64) -> Instant {
        let Reverse(free) = self.0.pop().expect("a station has a server");
        let begun = now.max(Instant::from_nanos(free));
        let end = begun + Duration::from_nanos(service);
        self.0.push(Reverse(end.as_nanos()));
        end
    }
}

/// A candidate.
struct Tried {
    servers: u32,
    consistent: bool,
    error: f64,
}

impl Tried {
    fn new(samples: &[Sample], first: usize, servers: u32) -> Self {
        let services = invert(samples, servers);
        let negative = services.iter().filter(|&&service| service < 0).count();
        let consistent = negative as f64 <= samples.len() as f64 * MOST_NEGATIVE
            && correlation(samples, &services).abs() <= MOST_CORRELATED;
        let known = pools(&samples[..first], &services[..first]);
        Self { servers, consistent, error: error(&samples[first..], &known, servers) }
    }
}

/// The service times of a device with this number of servers; those below 0 contradict it.
fn invert(samples: &[Sample], servers: u32) -> Vec<i64> {
    let mut free: BinaryHeap<Reverse<u64>> = (0..servers).map(|_| Reverse(0)).collect();
    let service = |sample: &Sample| {
        let Reverse(earliest) = free.pop().expect("there is a server");
        free.push(Reverse(sample.ended));
        sample.ended.cast_signed() - sample.begun.max(earliest).cast_signed()
    };
    samples.iter().map(service).collect()
}

/// Service times by kind. Kinds with few samples are left out; everything is in the pool of no kind, see [`draw`].
fn pools(samples: &[Sample], services: &[i64]) -> BTreeMap<Kind, Vec<u64>> {
    let mut pools: BTreeMap<Kind, Vec<u64>> = BTreeMap::new();
    for (sample, &service) in samples.iter().zip(services) {
        pools.entry(sample.kind).or_default().push(service.max(0) as u64);
    }
    let small: Vec<Kind> =
        pools.iter().filter(|(_, pool)| pool.len() < FEWEST).map(|(&kind, _)| kind).collect();
    for kind in small {
        // Only a kind whose operation has another pool can join it.
        if nearest(&pools, kind).is_some_and(|other| other != kind) {
            let few = pools.remove(&kind).unwrap_or_default();
            let other = nearest(&pools, kind).expect("another kind was found");
            pools.entry(other).or_default().extend(few);
        }
    }
    pools
}

/// The kind of the same operation with the closest size, or of another operation if it has none; small pools only if there
/// is no large one.
fn nearest(pools: &BTreeMap<Kind, Vec<u64>>, kind: Kind) -> Option<Kind> {
    let distance = |other: &Kind, pool: &Vec<u64>| {
        (
            other.op != kind.op,
            pool.len() < FEWEST,
            other.size.abs_diff(kind.size),
            other.sequential != kind.sequential,
        )
    };
    pools.iter().min_by_key(|&(other, pool)| distance(other, pool)).map(|(&other, _)| other)
}

fn draw(pools: &BTreeMap<Kind, Vec<u64>>, kind: Kind, rng: &mut Rng) -> u64 {
    let pool = pools.get(&kind).or_else(|| pools.get(&nearest(pools, kind)?));
    pool.map_or(0, |pool| pool[rng.below(pool.len() as u64) as usize])
}

/// Plays the recorded issues into servers with drawn service times, and compares the percentiles by kind.
fn error(samples: &[Sample], pools: &BTreeMap<Kind, Vec<u64>>, servers: u32) -> f64 {
    let mut rng = Rng::stream(1, "fit");
    let mut stations = Servers::new(servers);
    let mut both: BTreeMap<Kind, (Vec<u64>, Vec<u64>)> = BTreeMap::new();
    for sample in samples {
        let begun = Instant::from_nanos(sample.begun);
        let end = stations.serve(begun, draw(pools, sample.kind, &mut rng));
        let (real, drawn) = both.entry(sample.kind).or_default();
        real.push(sample.ended - sample.begun);
        drawn.push(end.since(begun).as_nanos());
    }
    let mut compared: Vec<_> =
        both.values().filter(|(real, _)| real.len() >= COMPARED).cloned().collect();
    if compared.is_empty() {
        let mut all = (Vec::new(), Vec::new());
        for (real, drawn) in both.into_values() {
            all.0.extend(real);
            all.1.extend(drawn);
        }
        compared.push(all);
    }
    let mut largest: f64 = 0.0;
    for (mut real, mut drawn) in compared {
        real.sort_unstable();
        drawn.sort_unstable();
        for (permille, weight) in [(500, 1.0), (950, 2.0), (990, 3.0)] {
            let at = |sorted: &[u64]| sorted[(sorted.len() * permille).div_ceil(1_000) - 1] as f64;
            let (real, drawn) = (at(&real), at(&drawn));
            largest = largest.max((drawn - real).abs() / real.max(1.0) / weight);
        }
    }
    largest
}

/// The rank correlation of service times, each relative to the median of its kind, with the depth.
fn correlation(samples: &[Sample], services: &[i64]) -> f64 {
    let mut medians: BTreeMap<Kind, Vec<i64>> = BTreeMap::new();
    for (sample, &service) in samples.iter().zip(services) {
        medians.entry(sample.kind).or_default().push(service);
    }
    let medians: BTreeMap<Kind, f64> = medians
        .into_iter()
        .map(|(kind, mut all)| {
            let middle = all.len() / 2;
            (kind, (*all.select_nth_unstable(middle).1).max(1) as f64)
        })
        .collect();
    let step = samples.len().div_ceil(CORRELATED);
    let chosen = || samples.iter().zip(services).step_by(step);
    let relative: Vec<f64> =
        chosen().map(|(sample, &service)| service as f64 / medians[&sample.kind]).collect();
    let depths: Vec<f64> = chosen().map(|(sample, _)| f64::from(sample.depth)).collect();
    let (a, b) = (ranks(&relative), ranks(&depths));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(&b) {
        ab += (a - mean) * (b - mean);
        aa += (a - mean).powi(2);
        bb += (b - mean).powi(2);
    }
    if aa * bb == 0.0 { 0.0 } else { ab / (aa * bb).sqrt() }
}

/// The rank of each value from 0; equal ones share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let same = |&&index: &&usize| values[index].total_cmp(&values[order[begin]]).is_eq();
        let count = order[begin..].iter().take_while(same).count();
        let rank = begin as f64 + (count as f64 - 1.0) / 2.0;
        for &index in &order[begin..begin + count] {
            ranks[index] = rank;
        }
        begin += count;
    }
    ranks
}

/// Numbers of servers that are tried, below the greatest depth.
const CANDIDATES: [u32; 17] = [1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Samples below which a kind joins another one, and a station is not fitted.
const FEWEST: usize = 200;

/// I/Os of a kind from which its percentiles are compared.
const COMPARED: usize = 1_000;

/// The share of negative service times up to which a number of servers is consistent.
const MOST_NEGATIVE: f64 = 0.001;

/// The correlation up to which it is.
const MOST_CORRELATED: f64 = 0.05;

/// Most samples of a correlation.
const CORRELATED: usize = 20_000;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_flow::request::Op;

    /// I/Os of a queue with this number of servers at 60 % load.
    fn queue(servers: u32, count: usize) -> Vec<Io> {
        let mut rng = Rng::stream(3, "queue");
        let mut exponential = |mean: f64| (-(1.0 - rng.unit()).ln() * mean) as u64 + 1;
        let mut station = Servers::new(servers);
        let (mut clock, mut ends, mut ios) = (0, BinaryHeap::new(), Vec::new());
        for index in 0..count as u64 {
            clock += exponential(500_000.0 / f64::from(servers) / 0.6);
            while ends.peek().is_some_and(|&Reverse(end)| end <= clock) {
                ends.pop();
            }
            let begun = Instant::from_nanos(clock);
            let end = station.serve(begun, 100_000 + exponential(400_000.0));
            ends.push(Reverse(end.as_nanos()));
            let offset = index * 1_048_576;
            let access = Access { volume: 0, part: 0, op: Op::Read.code(), offset, length: 4_096 };
            let depth = ends.len() as u32;
            ios.push(Io { access, station: 0, depth, begun, ended: Some((end, Ok(()))) });
        }
        ios
    }

    /// The number of servers is found where depths vary, and the model is good.
    #[test]
    fn servers_are_found() {
        for servers in [1, 4, 16] {
            let model = fit(&queue(servers, 40_000), 0, 0, 0).unwrap();
            assert_eq!(model.fitted.servers, servers, "{:?}", model.fitted);
            assert_eq!(model.fitted.consistent.0, servers, "{:?}", model.fitted);
            assert!(model.fitted.error <= 0.1, "{:?}", model.fitted);
        }
    }

    /// Too few I/Os give no model.
    #[test]
    fn few_ios_give_no_model() {
        assert!(fit(&queue(1, FEWEST - 1), 0, 0, 0).is_none());
        assert!(fit(&queue(1, FEWEST), 0, 0, 0).is_some());
    }
}
