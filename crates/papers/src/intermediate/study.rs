//! The whole of `weir reproduce intermediate`: both figures, what is behind them, and what the paper leaves
//! out.

use super::exchange::{BLOCK, Exchange, Kind};
use super::play::{Met, play};
use super::{Buffer, Case, Forward, Outcome, Route, gain};
use crate::Settings;
use serde::Serialize;
use weir_flow::clock::{Duration, Instant};
use weir_flow::units::Bandwidth;

/// What was found. Splits are those of the delay, client to intermediate target : from there to the storage.
#[derive(Clone, Debug, Serialize)]
pub struct Study {
    /// The first seed.
    pub seed: u64,
    /// Figure 6: reads, with the hit ratios that the paper assumes.
    pub reads: Vec<ReadRow>,
    /// Figure 7: writes.
    pub writes: Vec<WriteRow>,
    /// Reads of generated streams through the gateway's own buffer and prefetch.
    pub hits: Vec<HitRow>,
    /// Reads whose status travels with their data.
    pub together: Vec<TogetherRow>,
    /// Writes by how many are outstanding, split 1:9 of 64 ms.
    pub depths: Vec<DepthRow>,
    /// How long a write that the client takes for done is nowhere but in the intermediate target's memory.
    pub exposure: Vec<ExposureRow>,
    /// An hour of writes over a far link that is as narrow as the near one.
    pub backlog: Vec<BacklogRow>,
    /// Sequential reads over a fast link.
    pub ahead: Vec<AheadRow>,
}

/// Reads of one kind of data at one distance.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReadRow {
    /// `R1`, `R2`, or `printed`: which reading of the paper's parameters.
    pub reading: &'static str,
    /// What is read.
    pub data: &'static str,
    /// The share of hits that is assumed.
    pub hits: f64,
    /// One way, client to storage.
    pub delay_ms: u64,
    /// Throughput without the intermediate target, in bit/s.
    pub direct_bits: f64,
    /// Throughput with it, in bit/s: bytes over time.
    pub through_bits: f64,
    /// The gain in per cent, as the mean of each block's rate.
    pub mean_of_rates: f64,
    /// The gain in per cent, as bytes over time.
    pub bytes_over_time: f64,
}

/// Writes at one split and distance.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct WriteRow {
    /// Of the delay.
    pub split: &'static str,
    /// One way, client to storage.
    pub delay_ms: u64,
    /// Throughput without the intermediate target, in bit/s.
    pub direct_bits: f64,
    /// Throughput with it, in bit/s.
    pub through_bits: f64,
    /// The gain in per cent.
    pub gain: f64,
}

/// Generated reads at 64 ms; means of runs.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HitRow {
    /// `R1` or `R2`.
    pub reading: &'static str,
    /// What is read.
    pub data: &'static str,
    /// The probability that a block follows the one before it.
    pub follows: f64,
    /// Runs, of 4000 reads each.
    pub runs: u32,
    /// The share of blocks that did follow.
    pub followed: f64,
    /// The share of reads whose block was in the buffer.
    pub ready: f64,
    /// Its least and most in a run.
    pub ready_from_to: (f64, f64),
    /// The share of reads that waited for a fetch that had begun.
    pub in_flight: f64,
    /// The gain in per cent, as the mean of each block's rate.
    pub mean_of_rates: f64,
    /// The gain in per cent, as bytes over time.
    pub bytes_over_time: f64,
}

/// Reads at 64 ms with data and status in one packet.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TogetherRow {
    /// `R1` or `R2`.
    pub reading: &'static str,
    /// What is read.
    pub data: &'static str,
    /// The gain in per cent, as bytes over time.
    pub bytes_over_time: f64,
}

/// Writes by number of outstanding commands.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DepthRow {
    /// Of the client's link, in bit/s.
    pub link_bits: u64,
    /// How many.
    pub depth: usize,
    /// Throughput without the intermediate target, in bit/s.
    pub direct_bits: f64,
    /// Throughput with it, in bit/s.
    pub through_bits: f64,
    /// The gain in per cent.
    pub gain: f64,
}

/// A single write at 64 ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ExposureRow {
    /// Of the delay.
    pub split: &'static str,
    /// From the client's receipt of the acknowledgement to the storage's at the intermediate target, in
    /// milliseconds.
    pub exposed_ms: f64,
}

/// One hour of writes at 64 ms.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BacklogRow {
    /// Of the delay.
    pub split: &'static str,
    /// Blocks that were acknowledged in it.
    pub acknowledged: usize,
    /// Those of them that were at the storage.
    pub home: usize,
}

/// Sequential reads at 1 Gbit/s, 50 us to the intermediate target and 20 ms from there.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct AheadRow {
    /// How many are outstanding.
    pub depth: usize,
    /// Throughput without the intermediate target, in bytes per second.
    pub direct: f64,
    /// Throughput with it, in bytes per second.
    pub through: f64,
    /// The share of reads whose block was in the buffer.
    pub ready: f64,
    /// The share of reads that waited for a fetch that had begun.
    pub in_flight: f64,
}

/// Runs everything. `progress` hears of the share that is done.
pub fn run(settings: Settings, progress: &(dyn Fn(f64) + Sync)) -> Study {
    let mut study = Study {
        seed: settings.seed,
        reads: READINGS.iter().flat_map(reads).collect(),
        writes: SPLITS.iter().flat_map(|&split| DELAYS.map(move |ms| write(split, ms))).collect(),
        hits: Vec::new(),
        together: Vec::new(),
        depths: depths(),
        exposure: SPLITS.map(exposure).to_vec(),
        backlog: SPLITS.map(backlog).to_vec(),
        ahead: [1, 8].map(ahead).to_vec(),
    };
    for reading in &READINGS[..2] {
        for (data, share) in DATA {
            study.hits.push(produced(reading, data, share, settings));
            study.together.push(together(reading, data, share));
            progress(study.hits.len() as f64 / (2 * DATA.len()) as f64);
        }
    }
    study
}

/// A way to read the parameters that the paper prints for its reads.
struct Reading {
    name: &'static str,
    /// Of the client's link, in bit/s.
    bits: u64,
    /// Tenths of the delay that are between client and intermediate target.
    tenths: u64,
}

/// The last is as printed.
const READINGS: [Reading; 3] = [
    Reading { name: "R1", bits: 144_000, tenths: 7 },
    Reading { name: "R2", bits: NARROW, tenths: 3 },
    Reading { name: "printed", bits: NARROW, tenths: 7 },
];

/// The reads of the paper, and the hits in a hundred of them.
const DATA: [(&str, u64); 3] = [("video", 90), ("text", 80), ("application", 50)];

/// What of the delay is between client and intermediate target, in tenths.
const SPLITS: [(&str, u64); 3] = [("5:5", 5), ("3:7", 3), ("1:9", 1)];

/// Milliseconds.
const DELAYS: std::ops::RangeInclusive<u64> = 1..=LONGEST;

/// The longest delay of the paper, in milliseconds.
pub(super) const LONGEST: u64 = 64;

/// The paper's link, in bit/s.
const NARROW: u64 = 14_400;

fn bandwidth(bits: u64) -> Bandwidth {
    Bandwidth::per_second(bits / 8).expect("no link here is without a rate")
}

impl Case {
    /// Commands one after the other, over a link of the client's of this bit rate, at a distance of
    /// which this number of tenths is before the intermediate target.
    fn new(kind: Kind, bits: u64, delay_ms: u64, tenths: u64) -> Self {
        let whole = Duration::from_millis(delay_ms).as_nanos();
        let near = whole / 10 * tenths;
        Self {
            route: Route::Direct,
            exchange: Exchange::Lockstep,
            bandwidth: bandwidth(bits),
            far_bandwidth: None,
            near: Duration::from_nanos(near),
            far: Duration::from_nanos(whole - near),
            kind,
            follows: 100,
            depth: 1,
            count: 100,
            seed: 1,
        }
    }

    /// What it measures without the intermediate target, and with it.
    fn both(self, buffer: Buffer) -> [Outcome; 2] {
        [Route::Direct, Route::Through(buffer, Forward::AtOnce)]
            .map(|route| play(&Self { route, ..self }))
    }
}

fn reads(reading: &Reading) -> impl Iterator<Item = ReadRow> {
    DATA.into_iter().flat_map(move |(data, share)| {
        DELAYS.map(move |delay_ms| {
            let case = Case::new(Kind::Read, reading.bits, delay_ms, reading.tenths);
            let [direct, through] = case.both(Buffer::Assumed(share));
            ReadRow {
                reading: reading.name,
                data,
                hits: share as f64 / 100.0,
                delay_ms,
                direct_bits: 8.0 * direct.bytes_over_time(),
                through_bits: 8.0 * through.bytes_over_time(),
                mean_of_rates: gain(through.mean_of_rates(), direct.mean_of_rates()),
                bytes_over_time: gain(through.bytes_over_time(), direct.bytes_over_time()),
            }
        })
    })
}

fn write((split, tenths): (&'static str, u64), delay_ms: u64) -> WriteRow {
    let both = Case::new(Kind::Write, NARROW, delay_ms, tenths).both(Buffer::Machines);
    let [direct, through] = both.map(|outcome| 8.0 * outcome.bytes_over_time());
    let gain = gain(through, direct);
    WriteRow { split, delay_ms, direct_bits: direct, through_bits: through, gain }
}

fn produced(reading: &Reading, data: &'static str, share: u64, settings: Settings) -> HitRow {
    let case = Case::new(Kind::Read, reading.bits, LONGEST, reading.tenths);
    let runs: Vec<[Outcome; 2]> = settings
        .seeds(HIT_RUNS)
        .map(|seed| Case { follows: share, count: REQUESTS, seed, ..case }.both(Buffer::Machines))
        .collect();
    let mean = |figure: &dyn Fn(&[Outcome; 2]) -> f64| {
        runs.iter().map(figure).sum::<f64>() / runs.len() as f64
    };
    let ready = || runs.iter().map(|[_, through]| through.share(Met::Ready));
    HitRow {
        reading: reading.name,
        data,
        follows: share as f64 / 100.0,
        runs: runs.len() as u32,
        followed: mean(&|[_, through]| through.followed as f64 / REQUESTS as f64),
        ready: mean(&|[_, through]| through.share(Met::Ready)),
        ready_from_to: (crate::claim::least(ready()), crate::claim::most(ready())),
        in_flight: mean(&|[_, through]| through.share(Met::InFlight)),
        mean_of_rates: mean(&|[direct, through]| {
            gain(through.mean_of_rates(), direct.mean_of_rates())
        }),
        bytes_over_time: mean(&|[direct, through]| {
            gain(through.bytes_over_time(), direct.bytes_over_time())
        }),
    }
}

/// Reads of a generated stream, as many as in docs/reference/intermediate.md, section 9.
const REQUESTS: usize = 4_000;

/// Runs of a generated stream: in one of them the share of blocks that follow is off by up to 0.02 for
/// chance.
const HIT_RUNS: u32 = 20;

fn together(reading: &Reading, data: &'static str, share: u64) -> TogetherRow {
    let case = Case::new(Kind::Read, reading.bits, LONGEST, reading.tenths);
    let case = Case { exchange: Exchange::Together, ..case };
    let [direct, through] = case.both(Buffer::Assumed(share));
    let bytes_over_time = gain(through.bytes_over_time(), direct.bytes_over_time());
    TogetherRow { reading: reading.name, data, bytes_over_time }
}

fn depths() -> Vec<DepthRow> {
    let cells = [(NARROW, 1), (NARROW, 2), (NARROW, 4), (NARROW, 8)];
    let fast = [(10_000_000, 1), (10_000_000, 8), (10_000_000, 32)];
    let row = |(bits, depth)| {
        let case = Case::new(Kind::Write, bits, LONGEST, 1);
        let both = Case { depth, count: REQUESTS, ..case }.both(Buffer::Machines);
        let [direct, through] = both.map(|outcome| 8.0 * outcome.bytes_over_time());
        let gain = gain(through, direct);
        DepthRow { link_bits: bits, depth, direct_bits: direct, through_bits: through, gain }
    };
    cells.into_iter().chain(fast).map(row).collect()
}

fn exposure((split, tenths): (&'static str, u64)) -> ExposureRow {
    let case = Case::new(Kind::Write, NARROW, LONGEST, tenths);
    let route = Route::Through(Buffer::Machines, Forward::AtOnce);
    let done = play(&Case { route, count: 1, ..case }).done[0];
    let home = done.home.expect("what is acknowledged is forwarded");
    ExposureRow { split, exposed_ms: home.since(done.ended).as_nanos() as f64 / 1e6 }
}

fn backlog((split, tenths): (&'static str, u64)) -> BacklogRow {
    let hour = Instant::ZERO + Duration::from_secs(3_600);
    let case = Case::new(Kind::Write, NARROW, LONGEST, tenths);
    let route = Route::Through(Buffer::Machines, Forward::OneByOne);
    let far_bandwidth = Some(bandwidth(NARROW));
    // The fastest has issued 9230 in an hour.
    let outcome = play(&Case { route, far_bandwidth, count: 10_000, ..case });
    let until = |when: &dyn Fn(&super::Done) -> Option<Instant>| {
        outcome.done.iter().filter_map(when).filter(|&at| at <= hour).count()
    };
    BacklogRow {
        split,
        acknowledged: until(&|done| Some(done.ended)),
        home: until(&|done| done.home),
    }
}

fn ahead(depth: usize) -> AheadRow {
    let case = Case {
        exchange: Exchange::Together,
        near: Duration::from_micros(50),
        far: Duration::from_millis(20),
        depth,
        count: REQUESTS,
        ..Case::new(Kind::Read, 1_000_000_000, 0, 0)
    };
    let [direct, through] = case.both(Buffer::Machines);
    AheadRow {
        depth,
        direct: direct.bytes_over_time(),
        through: through.bytes_over_time(),
        ready: through.share(Met::Ready),
        in_flight: through.share(Met::InFlight),
    }
}

/// Bytes that a cycle of a write puts on the wire: its data and three packets without.
pub(super) const WRITE_BYTES: u64 = BLOCK + 3 * super::exchange::CONTROL;
